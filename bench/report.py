"""From batches to figures, tables and goals. Pure: documents in, text out."""

import math
from collections import namedtuple

from rivals import ALL, BARE, BUBBLEWRAP, COVE, GO_JUDGE, RUNC

TITLES = {
    "noop": "W0: static program that does nothing",
    "true": "W1: /bin/true",
    "python": "W2: Python hello",
    "c": "W3: C program, compiled (gcc -O1) and run",
    "stdin": "W9: 1 MiB from standard input to standard output (cat)",
    "output": "W10: 64 KiB of output",
    "cpu-limit": "Busy loop with a CPU time limit of 300 ms",
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
        "jobs_per_second": jobs / seconds if jobs else None,
        "cpu_ms_per_job": sum(batch["others_cpu_ms"] for batch in batches) / jobs if jobs else None,
        "reported_cpu_ms": {
            "p50": percentile(reported, 50),
            "max": max(reported, default=None),
        },
    }


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


LATENCY_HEADER = [
    "rival", "jobs", "min ms", "p50 ms", "p95 ms", "p99 ms", "max ms",
    "p50 by round", "jobs/s", "CPU ms/job", "failures",
]  # fmt: skip


def latency_rows(rivals):
    """One row for each rival of a cell, in the order in which rivals are always named."""
    for rival in sorted(rivals, key=ALL.index):
        f = rivals[rival]
        times = [number(f[name]) for name in ("min_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")]
        rate, cpu = number(f["jobs_per_second"]), number(f["cpu_ms_per_job"])
        yield [rival, f["jobs"], *times, spread(f["p50_ms_by_round"]), rate, cpu, f["failures"]]


def cpu_limit_rows(rivals):
    """CPU time used beyond the limit, by the rival's own account and by the client's clock."""
    for rival in sorted(rivals, key=ALL.index):
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


def bare_goal(figures, workload, name, extra_ms):
    """What the sandbox may add to a bare process."""
    cell = (workload, 1)
    mine, floor = (figure(figures, cell, rival, "p50_ms") for rival in (COVE, BARE))
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


def goals(figures, memory, pool=None):
    """The goals of the foundation, each with what was measured and with what stands beside it."""
    return [
        *pool_goals(pool),
        *noop_goals(figures, "noop"),
        *noop_goals(figures, "true"),
        bare_goal(figures, "python", "Python hello (W2), 1 client", 2.5),
        bare_goal(figures, "c", "C compile and run (W3), 1 client", 5),
        cpu_limit_goal(figures),
        memory_goal(memory),
    ]


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
- RSS counts shared pages in full; the share of the whole tree beside it divides them."""


def background_text(percents):
    """How busy the machine was while nothing was measured."""
    worst = max(percents, default=0.0)
    text = f"median {number(percentile(percents, 50) or 0.0, 0)} %, at most {number(worst, 0)} %"
    if worst > BACKGROUND_BUSY_PERCENT_MAX:
        text += " — **not idle: compare rivals within this run, not figures with goals in ms**"
    return text


def header(run):
    """When, where and how."""
    m, changed = run["machine"], " with uncommitted changes" if run["dirty"] else ""
    busy = background_text(run["background_busy_percent"])
    start, end = (" ".join(f"{x:.2f}" for x in run[name]) for name in ("load_start", "load_end"))
    return f"""\
- Date: {run["date"]}, commit `{run["commit"]}`{changed}
- Command: `{run["command"]}`
- Machine: {m["cores"]} cores ({m["cpu"]}), {m["memory_mib"]} MiB, {m["system"]},
  kernel {m["kernel"]}, cgroups {m["cgroups"]}
- Load average at the start {start}, at the end {end}
- Busy before each round, with nothing of ours to do: {busy}
- {run["rounds"]} rounds in random order (seed {run["seed"]}), up to {run["batch_seconds"]} s
  a batch, {run["parallelism"]} jobs at a time on every side
"""


def document(run):
    """RESULTS.md of one run."""
    figures = group(run["batches"])
    versions = [[name, about["version"], about["options"]] for name, about in run["rivals"].items()]
    versions += [[name, "**not measured**", reason] for name, reason in run["unavailable"].items()]
    parts = [
        "# Results\n",
        "Written by `bench/run.py`; `README.md` beside it says what is measured and how.\n",
        header(run),
        table(["rival", "version", "options"], versions) + "\n",
        "## Goals\n",
        goal_table(goals(figures, run["memory"], run["pool"])) + "\n",
    ]
    if run["pool"]:
        parts += ["## Pool and buffers\n", pool_text(run["pool"]) + "\n"]
    parts += ["## Figures\n", *cell_tables(figures)]
    if run["memory"]:
        parts += ["### Memory of a server\n", memory_table(run["memory"]) + "\n"]
    parts += failure_text(figures)
    parts += ["## What these figures do not show\n", HIDDEN + "\n"]
    return "\n".join(parts)


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
