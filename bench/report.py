"""From batches to figures, tables and goals. Pure: documents in, text out."""

import math
from collections import namedtuple

from rivals import (
    BARE, BUBBLEWRAP, BULLMQ, COVE, COVE_20_WEBSOCKET, COVE_EVENTS, COVE_FRESH, COVE_POLL,
    COVE_WEBSOCKET, EVERYBODY, GO_JUDGE, GO_JUDGE_20, RUNC,
)  # fmt: skip

TITLES = {
    "go-50": "Seed: Go hello, unique sources, 50 jobs",
    "go-100": "Seed: Go hello, unique sources, 100 jobs, 20 workers",
    "go-repeated-50": "Seed: Go hello, one source, 50 jobs",
    "go-repeated-100": "Seed: Go hello, one source, 100 jobs, 20 workers",
    "python-50": "Seed's way: Python hello, 50 jobs",
    "python-100": "Seed's way: Python hello, 100 jobs, 20 workers",
    "c-50": "Seed's way: C, unique sources, 50 jobs",
    "c-100": "Seed's way: C, unique sources, 100 jobs, 20 workers",
    "c-repeated-50": "Seed's way: C, one source, 50 jobs",
    "c-repeated-100": "Seed's way: C, one source, 100 jobs, 20 workers",
    "queue": "Queue: a job that does nothing, from submit to its result",
    "noop": "W0: static program that does nothing",
    "true": "W1: /bin/true",
    "python": "W2: Python hello",
    "c": "W3: C program, compiled (gcc -O1) and run",
    "c-repeated": "C program that was compiled before, run with another argument",
    "node": "W6: Node hello",
    "node-paced": "W6 with a pause of 100 ms before each job",
    "java-repeated": "W7: Java program that was compiled before, run with another argument",
    "stdin": "W9: 1 MiB from standard input to standard output (cat)",
    "output": "W10: 64 KiB of output",
    "cpu-limit": "Busy loop with a CPU time limit of 300 ms",
}
# A number of jobs and not a length of time, as the seed's benchmark has it.
SEED = {name for name in TITLES if name.endswith(("-50", "-100"))}
# What the load generator calls it, where that is something else.
LOAD_NAMES = {"queue": "noop", "node": "javascript", "node-paced": "javascript"}
# What a client waits between an answer and its next job, in milliseconds.
PAUSES_MS = {"node-paced": 100}
SEED_SAYS = {
    50: "seed 17.5 s on average (1.8 jobs/s by its own latencies; other hardware)",
    100: "seed 35.1 s on average (1.8 jobs/s by its own latencies; other hardware)",
}
CPU_LIMIT_MS = 300
BACKGROUND_BUSY_PERCENT_MAX = 10

Goal = namedtuple("Goal", "name target measured beside ratio met")


# --- figures


def percentile(values, percent):
    """The smallest value that at least `percent` % of all values do not exceed (nearest rank)."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def workload_of(name):
    """The load generator's name of a cell's workload."""
    return LOAD_NAMES.get(name, name.removesuffix("-50").removesuffix("-100"))


def summarise(batches):
    """One rival's batches of one workload and number of clients, as one set of figures."""
    latencies = [us / 1000 for batch in batches for us in batch["latencies_us"]]
    reported = [ms for batch in batches for ms in batch["reported_cpu_ms"]]
    jobs = sum(batch["jobs"] for batch in batches)
    seconds = sum(batch["seconds"] for batch in batches)
    rounds = [percentile(batch["latencies_us"], 50) for batch in batches]
    rounds = [us / 1000 for us in rounds if us is not None]
    return {
        "jobs": jobs,
        "failures": sum(batch["failures"] for batch in batches),
        "failure_examples": [text for batch in batches for text in batch["failure_examples"]][:3],
        "min_ms": min(latencies, default=None),
        "p50_ms": percentile(latencies, 50),
        "p95_ms": percentile(latencies, 95),
        "p99_ms": percentile(latencies, 99),
        "max_ms": max(latencies, default=None),
        "p50_ms_by_round": rounds,
        "seconds_by_round": [batch["seconds"] for batch in batches if batch["jobs"]],
        "modes": {
            mode: sum(batch["modes"].get(mode, 0) for batch in batches)
            for mode in sorted({mode for batch in batches for mode in batch["modes"]})
        },
        "jobs_per_second": jobs / seconds if jobs else None,
        "cpu_ms_per_job": sum(batch["others_cpu_ms"] for batch in batches) / jobs if jobs else None,
        "reported_cpu_ms": {
            "p50": percentile(reported, 50),
            "max": max(reported, default=None),
        },
    }


def group_rows(found, summarise):
    """By case and key, by rival: what `summarise` makes of its rows in all rounds."""
    by = {}
    for row in found.get("rows", []):
        key = tuple(row["key"]) if isinstance(row["key"], list) else row["key"]
        by.setdefault((row["case"], key), {}).setdefault(row["rival"], []).append(row)
    return {
        key: {name: summarise(rows) for name, rows in rivals.items()}
        for key, rivals in by.items()
    }


def joined(founds):
    """One document of those of several rounds: lists one after the other, members together."""
    merged = {}
    for found in founds:
        for name, value in found.items():
            if isinstance(value, list):
                merged[name] = [*merged.get(name, []), *value]
            elif isinstance(value, dict):
                merged[name] = {**merged.get(name, {}), **value}
            else:
                merged[name] = value
    return merged


def without(document, member):
    """A document without one of its members."""
    return {name: value for name, value in document.items() if name != member}


def group(batches):
    """`{(workload, clients): {rival: figures}}` of all batches of a run."""
    sorted_out = {}
    for batch in batches:
        cell = sorted_out.setdefault((batch["workload"], batch["clients"]), {})
        cell.setdefault(batch["rival"], []).append(batch)
    return {
        cell: {rival: summarise(of) for rival, of in rivals.items()}
        for cell, rivals in sorted_out.items()
    }


def figures_of(run):
    """The same of a run: of its batches, or of the file that it left, which has no single latencies."""
    if "figures" not in run:
        return group(run.get("batches", []))
    return {(cell["workload"], cell["clients"]): cell["rivals"] for cell in run["figures"]}


# --- text


def number(value, digits=None):
    """A figure with about three significant digits; `–` where there is none."""
    if value is None:
        return "–"
    if digits is None:
        # The bounds are those at which rounding to fewer digits would make one digit more.
        whole = abs(value) >= 99.95 or value == 0
        digits = 0 if whole else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{digits}f}".replace(",", " ")


def table(header, rows):
    """A Markdown table that also lines up as plain text; columns of figures are aligned right."""
    rows = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    columns = list(zip(header, *rows, strict=True)) if rows else [(name,) for name in header]
    widths = [max(map(len, column)) for column in columns]
    right = [bool(rows) and all(map(is_figure, column[1:])) for column in columns]

    def line(cells):
        sides = (
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)
        )
        return f"| {' | '.join(sides)} |"

    rule = "|".join(
        f"{'-' * (w + 1)}{':' if r else '-'}" for w, r in zip(widths, right, strict=True)
    )
    return "\n".join([line(header), f"|{rule}|", *map(line, rows)])


def is_figure(text):
    """Whether a cell is a number, a range of two, or the dash that stands for none."""
    return text == "–" or text[:1].isdigit() or text[:1] in "-−" and text[1:2].isdigit()


def spread(values):
    """Smallest and largest of several rounds."""
    return f"{number(min(values))} … {number(max(values))}" if values else "–"


def modes(f):
    """The ways in which a rival's jobs came about, with their shares when there are several."""
    if len(f["modes"]) <= 1:
        return "".join(f["modes"])
    jobs = sum(f["modes"].values())
    return ", ".join(f"{mode} {number(100 * n / jobs, 1)} %" for mode, n in f["modes"].items())


LATENCY_HEADER = [
    "rival", "mode", "jobs", "min ms", "p50 ms", "p95 ms", "p99 ms", "max ms",
    "p50 by round", "jobs/s", "CPU ms/job", "failures",
]  # fmt: skip


def latency_rows(rivals):
    """One row for each rival of a cell, in the order in which rivals are always named."""
    for rival in sorted(rivals, key=EVERYBODY.index):
        f = rivals[rival]
        times = [number(f[name]) for name in ("min_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")]
        rate, cpu = number(f["jobs_per_second"]), number(f["cpu_ms_per_job"])
        by_round = spread(f["p50_ms_by_round"])
        yield [rival, modes(f), f["jobs"], *times, by_round, rate, cpu, f["failures"]]


SEED_HEADER = [
    "rival", "mode", "jobs", "p50 ms", "p95 ms", "p99 ms", "max ms",
    "first submit to last result, s by round", "jobs/s", "CPU ms/job", "failures",
]  # fmt: skip


def seed_rows(rivals):
    """One row for each rival of a cell of the seed's benchmark."""
    for rival in sorted(rivals, key=EVERYBODY.index):
        f = rivals[rival]
        times = [number(f[name]) for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms")]
        rate, cpu = number(f["jobs_per_second"]), number(f["cpu_ms_per_job"])
        by_round = spread(f["seconds_by_round"])
        yield [rival, modes(f), f["jobs"], *times, by_round, rate, cpu, f["failures"]]


def cpu_limit_rows(rivals):
    """CPU time used beyond the limit, by the rival's own account and by the client's clock."""
    for rival in sorted(rivals, key=EVERYBODY.index):
        f = rivals[rival]
        own = [over(f["reported_cpu_ms"][name]) for name in ("p50", "max")]
        clock = [over(f[name]) for name in ("p50_ms", "max_ms")]
        yield [rival, f["jobs"], *map(number, own), *map(number, clock), f["failures"]]


CPU_LIMIT_HEADER = [
    "rival", "jobs", "CPU over the limit, p50 ms", "max ms",
    "client's clock over the limit, p50 ms", "max ms", "failures",
]  # fmt: skip


def over(ms):
    """What of `ms` is beyond the CPU limit."""
    return None if ms is None else ms - CPU_LIMIT_MS


def cell_tables(figures):
    """All tables of latency and throughput, one for each workload and number of clients."""
    for workload, clients in sorted(figures, key=cell_order):
        rivals = figures[workload, clients]
        title = f"{TITLES[workload]}, {clients} client{'s' if clients > 1 else ''}"
        if workload == "cpu-limit":
            body = table(CPU_LIMIT_HEADER, list(cpu_limit_rows(rivals)))
        elif workload in SEED:
            body = table(SEED_HEADER, list(seed_rows(rivals)))
        else:
            body = table(LATENCY_HEADER, list(latency_rows(rivals)))
        yield f"### {title}\n\n{body}\n"


def cell_order(cell):
    """Workloads as in TITLES, then by clients."""
    return list(TITLES).index(cell[0]), cell[1]


def memory_table(memory):
    """Memory of each server before and after its work."""
    header = ["server", "when", "RSS MiB", "PSS of its process tree MiB", "processes"]
    rows = []
    for rival, readings in memory.items():
        for when, m in readings.items():
            rows.append([rival, when, mib(m["rss_kib"]), mib(m["tree_pss_kib"]), m["processes"]])
    return table(header, rows)


def mib(kib):
    """KiB as MiB."""
    return number(kib / 1024 if kib is not None else None)


# --- goals


def figure(figures, cell, rival, name):
    """One figure, or None where it was not measured."""
    return figures.get(cell, {}).get(rival, {}).get(name)


def verdict(met):
    """Whether a goal was met, in a word."""
    return {True: "yes", False: "**no**", None: "not measured"}[met]


def ratio(a, b):
    """a / b as text."""
    return f"{a / b:.2f}" if a is not None and b else "–"


def beside(figures, cell, name, unit, rivals):
    """What the rivals show for the same thing."""
    known = ((rival, figure(figures, cell, rival, name)) for rival in rivals)
    told = [
        f"{rival} {number(value)} {unit}".strip() for rival, value in known if value is not None
    ]
    return ", ".join(told) or "–"


def compare(a, b, holds):
    """Whether `holds` of two figures; None when one is missing."""
    return None if a is None or b is None else holds(a, b)


def noop_goals(figures, workload):
    """One client's latency and ten clients' throughput of a program that does nothing."""
    one, ten = (workload, 1), (workload, 10)
    what = TITLES[workload].split(":")[0]
    mine, theirs = (figure(figures, one, rival, "p50_ms") for rival in (COVE, GO_JUDGE))
    others = beside(figures, one, "p50_ms", "ms", (GO_JUDGE, BUBBLEWRAP, RUNC, BARE))
    shown = f"p50 {number(mine)} ms"
    yield Goal(
        f"no-op ({what}) over HTTP, 1 client", "p50 ≤ 1.8 ms on an idle machine",
        shown, others, "–", compare(mine, 1.8, lambda a, b: a <= b),
    )  # fmt: skip
    cpu = figure(figures, one, COVE, "cpu_ms_per_job")
    yield Goal(
        f"no-op ({what}) over HTTP, 1 client", "CPU of the machine ≤ 1.4 ms", f"{number(cpu)} ms",
        beside(figures, one, "cpu_ms_per_job", "ms", (GO_JUDGE, BUBBLEWRAP, RUNC, BARE)),
        ratio(cpu, figure(figures, one, GO_JUDGE, "cpu_ms_per_job")),
        compare(cpu, 1.4, lambda a, b: a <= b),
    )  # fmt: skip
    yield Goal(
        f"no-op ({what}) over HTTP, 1 client", "p50 ≤ 1/2.5 of go-judge's",
        shown, others, ratio(mine, theirs), compare(mine, theirs, lambda a, b: a * 2.5 <= b),
    )  # fmt: skip
    mine, theirs = (figure(figures, ten, rival, "jobs_per_second") for rival in (COVE, GO_JUDGE))
    others = beside(figures, ten, "jobs_per_second", "jobs/s", (GO_JUDGE, BUBBLEWRAP, RUNC, BARE))
    yield Goal(
        f"no-op ({what}) over HTTP, 10 clients", "≥ 2.5 × go-judge's jobs/s",
        f"{number(mine)} jobs/s", others, ratio(mine, theirs),
        compare(mine, theirs, lambda a, b: a >= 2.5 * b),
    )  # fmt: skip
    failures = figure(figures, ten, COVE, "failures")
    yield Goal(
        f"no-op ({what}) over HTTP, 10 clients", "0 failures", number(failures, 0),
        beside(figures, ten, "failures", "", (GO_JUDGE,)), "–",
        compare(failures, 0, lambda a, b: a == b),
    )  # fmt: skip


def bare_goal(figures, workload, rival, name, extra_ms):
    """What the sandbox may add to a bare process."""
    cell = (workload, 1)
    mine, floor = (figure(figures, cell, name, "p50_ms") for name in (rival, BARE))
    added = None if mine is None or floor is None else mine - floor
    shown = f"p50 {number(mine)} ms"
    if added is not None:
        shown += f" (bare {'+' if added >= 0 else '−'} {number(abs(added))} ms)"
    return Goal(
        name, f"≤ bare process + {extra_ms} ms at p50", shown,
        beside(figures, cell, "p50_ms", "ms", (BARE, GO_JUDGE, BUBBLEWRAP, RUNC)),
        ratio(mine, floor), compare(added, extra_ms, lambda a, b: a <= b),
    )  # fmt: skip


def cpu_limit_goal(figures):
    """The longest any busy loop went on beyond its limit."""

    def worst(rival):
        reported = figure(figures, ("cpu-limit", 1), rival, "reported_cpu_ms") or {}
        return over(reported.get("max"))

    mine, theirs = worst(COVE), worst(GO_JUDGE)
    return Goal(
        "CPU limit 300 ms on a busy loop", "stopped within 5 ms of CPU",
        f"at most {number(mine)} ms over", f"{GO_JUDGE} {number(theirs)} ms over",
        ratio(mine, theirs), compare(mine, 5, lambda a, b: a <= b),
    )  # fmt: skip


def memory_goal(memory):
    """Memory of the server process before it had anything to do."""

    def resident(rival):
        return memory.get(rival, {}).get("idle after start", {}).get("rss_kib")

    mine, theirs = resident(COVE), resident(GO_JUDGE)
    return Goal(
        "memory of an idle server", "≤ 30 MiB RSS", f"{mib(mine)} MiB",
        f"{GO_JUDGE} {mib(theirs)} MiB", ratio(mine, theirs),
        compare(mine, 30 * 1024, lambda a, b: a <= b),
    )  # fmt: skip


def pool_goals(pool):
    """Rows of the pool's benchmark that have a goal; all of them may allocate nothing."""
    for row in (pool or {}).get("figures", {}).get("rows", []):
        if "goal" not in row:
            continue
        mine, theirs = row["cove"], row["go"]
        # Starting the tasks allocates, too; spread over their operations that is below a hundredth.
        none_allocated = mine["allocs_per_op"] < 0.01
        yield Goal(
            row["name"], f"{row['goal'].replace('<=', '≤').replace(' x ', ' × ')}, 0 allocations",
            f"{number(mine['ns_per_op'])} ns, {number(mine['allocs_per_op'], 3)} allocations",
            f"Go {number(theirs['ns_per_op'])} ns", number(row["ratio"], 3),
            bool(row["met"] and none_allocated and mine["checked"]),
        )  # fmt: skip


def seed_goals(figures, jobs, rival, theirs):
    """The seed's benchmark with so many jobs, with new sources and with one source."""
    p50_max, seconds_max = {"go": 1000, "go-repeated": 10}, {"go": 20, "go-repeated": 0.5}
    for workload, what in (("go", "unique sources"), ("go-repeated", "one source")):
        cell = (f"{workload}-{jobs}", 10)
        name = f"Go hello, {jobs} jobs, 10 clients, {what}"
        mine, other = (figure(figures, cell, r, "p50_ms") for r in (rival, theirs))
        seed = f", {SEED_SAYS[jobs]}" if workload == "go" else ""
        mode = modes(figures[cell][rival]) if mine is not None else ""
        yield Goal(
            name, f"p50 ≤ {number(p50_max[workload], 0)} ms",
            f"p50 {number(mine)} ms {mode}".strip(),
            f"{theirs} {number(other)} ms{seed}", ratio(mine, other),
            compare(mine, p50_max[workload], lambda a, b: a <= b),
        )  # fmt: skip
        mine, other = (
            max(figure(figures, cell, r, "seconds_by_round") or [], default=None)
            for r in (rival, theirs)
        )
        yield Goal(
            name, f"all results within {seconds_max[workload]} s", f"{number(mine)} s",
            f"{theirs} {number(other)} s", ratio(mine, other),
            compare(mine, seconds_max[workload], lambda a, b: a < b),
        )  # fmt: skip
        failures = figure(figures, cell, rival, "failures")
        yield Goal(
            name, "every output verified", f"{number(failures, 0)} failures",
            beside(figures, cell, "failures", "failures", (theirs,)), "–",
            compare(failures, 0, lambda a, b: a == b),
        )  # fmt: skip


def mode_goal(figures, workload, name, target_ms, mode, others):
    """A speed mode: its median, and that it was this mode and no other."""
    cell = (workload, 1)
    mine, theirs = (figure(figures, cell, rival, "p50_ms") for rival in (COVE, GO_JUDGE))
    seen = figure(figures, cell, COVE, "modes") or {}
    shown = f"p50 {number(mine)} ms"
    if mine is not None:
        shown += f" ({modes(figures[cell][COVE]) or 'no mode'})"
    return Goal(
        name, f"p50 ≤ {target_ms} ms, all {mode}", shown,
        beside(figures, cell, "p50_ms", "ms", others), ratio(mine, theirs),
        compare(mine, target_ms, lambda a, b: a <= b and set(seen) == {mode}),
    )  # fmt: skip


def queue_goals(figures):
    """From submit to result, one at a time and a hundred at once."""
    others = (COVE_EVENTS, COVE_POLL, COVE_20_WEBSOCKET, BULLMQ)
    mine, theirs = (figure(figures, ("queue", 1), r, "p50_ms") for r in (COVE_WEBSOCKET, BULLMQ))
    yield Goal(
        "queue: submit to result event, 1 in flight", "p50 ≤ 4 ms", f"p50 {number(mine)} ms",
        beside(figures, ("queue", 1), "p50_ms", "ms", others), ratio(mine, theirs),
        compare(mine, 4, lambda a, b: a <= b),
    )  # fmt: skip
    cell, name = ("queue", 100), "jobs_per_second"
    mine, theirs = (figure(figures, cell, r, name) for r in (COVE_WEBSOCKET, BULLMQ))
    yield Goal(
        "queue: submit to result event, 100 in flight", "≥ 800 jobs/s", f"{number(mine)} jobs/s",
        beside(figures, cell, name, "jobs/s", others), ratio(mine, theirs),
        compare(mine, 800, lambda a, b: a >= b),
    )  # fmt: skip


def durability_goal(found):
    """Every accepted job ends with exactly one result."""
    if "error" in found or not found:
        measured, met = found.get("error", "–"), False if found else None
    else:
        measured = (
            f"{number(found['accepted'], 0)} accepted, {number(found['finished'], 0)} results,"
            f" {found['lost']} lost, {found['doubled']} doubled, {found['wrong']} wrong,"
            f" {found['kills']} kills"
        )
        exact = found["accepted"] == found["finished"] == found["jobs"]
        met = exact and found["kills"] > 0 and not scenario_failed(found)
    return Goal(
        "queued jobs, then kill -9 of the server during the drain",
        "exactly one result each; none lost, none doubled", measured, "–", "–", met,
    )  # fmt: skip


def slow_reader_goal(found):
    """Memory of the server while a flood is read at 1 KiB/s."""
    target, met = "memory flat", None
    measured = found.get("error", "–")
    if "error" in found:
        met = False
    elif found:
        flat, creep = (mib(bound) for bound in found["bounds_kib"])
        target += f": within {flat} MiB, and within {creep} MiB once it waits"
        measured = f"{mib(found['rss_growth_kib'])} MiB, {mib(found['rss_creep_kib'])} MiB"
        met = found["flat"] and not scenario_failed(found)
    return Goal(
        "slow WebSocket reader (1 KiB/s) of a flood", target, measured, "–", "–", met
    )


def scenario_failed(found):
    """Whether something was wrong, not just slow or large."""
    wrong = ("lost", "doubled", "wrong", "mistakes", "error")
    return any(found.get(name) for name in wrong)


def goals(figures, about):
    """The goals, each with what was measured and with what stands beside it."""
    scenarios = about.get("scenarios", {})
    return [
        *pool_goals(about.get("pool")),
        *noop_goals(figures, "noop"),
        *noop_goals(figures, "true"),
        bare_goal(figures, "python", COVE_FRESH, "Python hello (W2), fresh, 1 client", 2.5),
        bare_goal(figures, "c", COVE, "C compile and run (W3), 1 client", 6),
        cpu_limit_goal(figures),
        memory_goal(about.get("memory", {})),
        *seed_goals(figures, 50, COVE_WEBSOCKET, GO_JUDGE),
        *seed_goals(figures, 100, COVE_20_WEBSOCKET, GO_JUDGE_20),
        mode_goal(
            figures, "python", "Python hello (W2) over HTTP, 1 client", 4, "zygote",
            (GO_JUDGE, BARE, COVE_FRESH),
        ),
        mode_goal(
            figures, "node", "Node hello (W6) over HTTP, 1 client", 8, "prestarted",
            (GO_JUDGE, BARE, COVE_FRESH),
        ),
        mode_goal(
            figures, "java-repeated", "Java source that is repeated (W7), 1 client", 60, "cached",
            (BARE, COVE_FRESH),
        ),
        mode_goal(
            figures, "c-repeated", "C source that is repeated, 1 client", 3.5, "cached", (GO_JUDGE,)
        ),
        *queue_goals(figures),
        durability_goal(scenarios.get("durability", {})),
        slow_reader_goal(scenarios.get("slow_reader", {})),
    ]  # fmt: skip


def scenario_tables(scenarios):
    """What the scenarios showed, in words and tables."""
    if found := scenarios.get("durability"):
        yield f"### Queue under kill -9\n\n{durability_text(found)}\n"
    if found := scenarios.get("calls"):
        yield f"### System calls of one execution\n\n{calls_text(found)}\n"
    if found := scenarios.get("slow_reader"):
        yield f"### Slow reader\n\n{slow_reader_text(found)}\n"


def durability_text(found):
    """How the queue was worked off."""
    if "error" in found:
        return f"Not measured: {found['error']}"
    header = ["kill at results", "results when it answers again", "answers after ms",
              "next result after ms"]  # fmt: skip
    keys = ("finished_before", "finished_after", "answers_after_ms", "next_result_after_ms")
    rows = [[number(restart[key], 0) for key in keys] for restart in found["restarts"]]
    examples = "".join(f"\n- {text}" for text in found["examples"])
    return (
        f"{number(found['accepted'], 0)} jobs accepted in {number(found['submit_seconds'])} s, all"
        f" worked off after {number(found['drain_seconds'])} s, restarts included."
        f" {found['run_again']} were started again. {found['processes_left_by_kills']} processes of"
        f" killed servers were there when the next one had a result;"
        f" {found['control_groups_left']} of their control groups are left."
        f"\n\n{table(header, rows)}{examples and chr(10)}{examples}"
    )


def calls_text(found):
    """System calls by name, the most frequent first."""
    if "error" in found:
        return f"Not counted: {found['error']}"
    calls = sorted(found["calls"].items(), key=lambda it: (it[0] != "all", -it[1]))
    rows = [[name, number(n)] for name, n in calls if n >= 0.01]
    return (
        f"Of all processes of Cove's, for a program that does nothing; means of {found['jobs']}. What"
        f" makes the next sandbox is in them.\n\n{table(['call', 'of one execution'], rows)}"
    )


def slow_reader_text(found):
    """What the readers got and what it took."""
    if "error" in found:
        return f"Not measured: {found['error']}"
    header = ["reader", "read", "RSS min MiB", "RSS max MiB", "readings"]
    rate = found["fast_reader_bytes_per_second"]
    rows = [
        ["that keeps up", f"{mib(rate / 1024)} MiB/s", "–", "–", "–"],
        ["of 1 KiB/s", f"{number(found['bytes_read'] / 1024)} KiB in {number(found['seconds'])} s",
         mib(found["rss_min_kib"]), mib(found["rss_max_kib"]), found["readings"]],
    ]  # fmt: skip
    mistakes = "".join(f"\n- {text}" for text in found["mistakes"])
    return (
        f"{table(header, rows)}\n\nThe program was ended"
        f" {number(found['ended_after_seconds'])} s after its reader had gone.{mistakes}"
    )


def goal_table(listed):
    """Goals as a table."""
    header = ["figure", "goal", "Cove", "beside it", "ratio", "met"]
    rows = [[g.name, g.target, g.measured, g.beside, g.ratio, verdict(g.met)] for g in listed]
    return table(header, rows)


# --- the report

HIDDEN = """\
- Servers, load generator and whatever else the machine did shared its cores. "CPU ms/job" leaves
  the load generator's CPU time out; the wall time it took from the rivals is in every figure.
- "CPU ms/job" is the busy time of the whole machine less the load generator's, divided by jobs. It
  sees processes whose parent is gone and kernel threads that tear namespaces down; it also sees
  whatever else ran. What starting a process costs the starter is left out, to the advantage of
  rivals that are started anew for every job.
- CPU time beyond the limit is by each rival's own account; the client's clock beside it is not.
- One machine, loopback, synchronous requests, small programs. Nothing here says how either side
  behaves with hostile programs, on many cores, over hours or with a full disk.
- bubblewrap and a bare process set no limits; bubblewrap, runc and a bare process answer no HTTP,
  keep no queue and check no token. They show floors, not equals.
- go-judge uses its containers again for the next job, Cove makes new ones for each. That is a
  difference in what is promised, and no column shows it.
- `mode` is Cove's own word for the short cut it took; the other rivals have none, but a program
  that is repeated is an executable that go-judge keeps by its client's wish.
- A job of the queue is a process in a new sandbox with Cove, and nothing at all with BullMQ: its
  worker returns at once. Cove's client connects anew for each WebSocket, BullMQ's keeps its
  connections. Both survive the kill of their process, not the loss of power.
- With twenty workers on few cores compilers take turns, which makes each of them slower.
- The seed's figures are its own, from other hardware; its jobs/s are derived from its latencies.
- RSS counts shared pages in full; the share of the whole tree beside it divides them."""


def background_text(percents):
    """How busy the machine was while nothing was measured."""
    worst = max(percents, default=0.0)
    text = f"median {number(percentile(percents, 50) or 0.0, 0)} %, at most {number(worst, 0)} %"
    if worst > BACKGROUND_BUSY_PERCENT_MAX:
        text += " — **not idle: compare rivals within this run, not figures with goals in ms**"
    return text


# Parts whose figures do not depend on what else the machine does.
UNTIMED = ("counts",)


def header(run, part):
    """When, where and how."""
    rounds = run.get("rounds_of", {}).get(part, run["rounds"])
    m, changed = run["machine"], " with uncommitted changes" if run["dirty"] else ""
    percents = run.get("busy_of", {}).get(part) or run.get("background_busy_percent", [])
    busy = background_text(percents)
    start, end = (" ".join(f"{x:.2f}" for x in run[name]) for name in ("load_start", "load_end"))
    text = f"""\
- Date: {run["date"]}, commit `{run["commit"]}`{changed}
- Command: `{run["command"]}`
- Machine: {m["cores"]} cores ({m["cpu"]}), {m["memory_mib"]} MiB, {m["system"]},
  kernel {m["kernel"]}, cgroups {m["cgroups"]}
- Load average at the start {start}, at the end {end}
"""
    if part in UNTIMED:
        return text
    return f"""{text}\
- Busy before each round, with nothing of ours to do: {busy}
- {rounds} rounds in random order (seed {run["seed"]}), up to {run["batch_seconds"]} s
  a batch, {run["parallelism"]} jobs at a time on every side
"""


def page(run, title, goals, parts):
    """The page of one part of a run."""
    rivals = run.get("rivals", {}) if title == "executions" else {}
    missing = run.get("unavailable", {}) if title == "executions" else {}
    versions = [[name, about["version"], about["options"]] for name, about in rivals.items()]
    versions += [[name, "**not measured**", reason] for name, reason in missing.items()]
    lines = [
        f"# Results: {title}\n",
        "Written by `bench/run.py`; [README.md](README.md) says what is measured and how,"
        " [RESULTS.md](RESULTS.md) has the summary.\n",
        header(run, title),
        *([table(["rival", "version", "options"], versions) + "\n"] if versions else []),
        *(["## Goals\n", goal_table(goals) + "\n"] if goals else []),
        *parts,
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def text(run):
    """The part of executions of a run."""
    figures = figures_of(run)
    return [
        "## Figures\n",
        *cell_tables(figures),
        *scenario_tables(run.get("scenarios", {})),
        *(["### Memory of a server\n", memory_table(run["memory"]) + "\n"] if run["memory"] else []),
        *failure_text(figures),
        "## What these figures do not show\n",
        HIDDEN + "\n",
    ]


def failure_text(figures):
    """What went wrong, in words, where something did."""
    lines = [
        f"- {rival}, {workload}, {clients} clients: {f['failures']} failures, such as"
        f" {'; '.join(f['failure_examples'])}"
        for (workload, clients), rivals in figures.items()
        for rival, f in rivals.items()
        if f["failures"]
    ]
    return ["## Failures\n", "\n".join(lines) + "\n"] if lines else []


def pool_text(pool):
    """What the pool's own benchmark reports."""
    if "error" in pool:
        return f"Not measured: {pool['error']}"
    header = ["row", "Cove ns", "Go ns", "ratio", "Cove allocations", "Go allocations", "checked"]
    rows = []
    for row in pool["figures"]["rows"]:
        mine, theirs = row["cove"], row["go"]
        allocations = [number(side["allocs_per_op"], 3) for side in (mine, theirs)]
        checked = "yes" if mine["checked"] and theirs["checked"] else "**wrong result**"
        times = [number(side["ns_per_op"]) for side in (mine, theirs)]
        rows.append([row["name"], *times, number(row["ratio"], 3), *allocations, checked])
    text = "Time and allocations for one operation, medians of the rounds; the ratio is the median"
    return f"{text}\nof the rounds' own ratios.\n\n{table(header, rows)}"
