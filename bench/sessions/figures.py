"""From what was measured of sessions to tables and goals. Pure: documents in, text out."""

import report
from report import Goal, number, table
from sessions import (
    ASH_CLAUDE, ASH_IDLE, CASES, COVE_CLAUDE, COVE_DEFAULT, COVE_IDLE, COVE_POSTGRES,
)  # fmt: skip
from sessions.servers import ASH, COVE

TITLES = {
    "create-ready": "Create over HTTP, from a pool of sandboxes that are ready",
    "create": "Create over HTTP, nothing made ahead",
    "concurrent": "100 concurrent creates, nothing made ahead",
    "warm-resume": "Resume of a paused session whose sandbox is there",
    "cold-resume": "Resume after the server was stopped and started",
    "message": "Message: end to end less the agent's own time in that turn",
    "stop": "Stop of a session, until its files are durable",
    "fork": "Fork of a live session with 16 MiB of files",
    "snapshot": "Snapshot of a live session with 16 MiB of files",
    "e2b": "E2B's Python SDK: `Sandbox.create` to the first command's result",
    "claude-later": "Claude's command line, turns 2 and later: first piece of text",
    "claude-first": "Claude's command line started ahead: first piece of text of a new session",
    "memory": "Memory of an idle session",
}
PARTS = {
    "first_message": "its first message, to the first text",
    "end_to_end": "end to end, the agent's time included",
    "agent": "the agent's own time",
    "first_event": "to the first text",
    "create": "the create alone",
    "created": "the create alone",
    "resumed": "the resume afterwards",
    "command": "the command alone",
    "done": "to the end of the turn",
}
SEED = {
    "create-ready": "Ash 18 ms", "create": "Ash 220 ms (seed 44 ms)", "warm-resume": "seed 1.7 ms",
    "cold-resume": "seed 32 ms", "message": "seed 0.41 ms claimed, 17 ms measured",
    "claude-later": "Ash 2 320 ms", "memory": "Ash 10.6 MiB", "concurrent": "Ash 38 succeed, 21 s",
    "e2b": "hosted services 110–440 ms",
}  # fmt: skip
# Rows of the pool's books: goal in nanoseconds, and what the seed has.
BOOKS = {
    "mark_running": ("`markRunning`", 1_000, "seed 28 µs"),
    "mark_waiting": ("`markWaiting`", 1_000, "seed 28 µs"),
    "evict_one": ("evict one at capacity", 15_000, "seed 95 µs"),
    "count": ("count", 50, "seed 3 µs"),
    "stats": ("statistics", 50, "seed 6 µs"),
    "sweep_5_idle": ("sweep of 5 idle (pool and store only)", 60_000, "seed 265 µs"),
}
CONCURRENT, CONCURRENT_MS_MAX = 100, 1500
MEMORY_KIB_MAX = 2048


def summarise(batches):
    """One rival's batches of one case as one set of figures, in milliseconds."""
    times = [us / 1000 for batch in batches for us in batch["times_us"]]
    parts = {name for batch in batches for name in batch["parts_us"]}
    by_round = [report.percentile(batch["times_us"], 50) for batch in batches]
    seconds = sum(batch["seconds"] for batch in batches)
    return {
        **spread(times),
        "parts": {
            name: spread([us / 1000 for b in batches for us in b["parts_us"].get(name, [])])
            for name in PARTS
            if name in parts
        },
        "p50_ms_by_round": [us / 1000 for us in by_round if us is not None],
        "failures": sum(batch["failures"] for batch in batches),
        "failure_examples": [text for b in batches for text in b["failure_examples"]][:3],
        "per_second": len(times) / seconds if times and seconds else None,
        "cpu_ms": sum(batch["others_cpu_ms"] for batch in batches) / len(times) if times else None,
        "notes": [batch["notes"] for batch in batches if batch["notes"]],
    }


def spread(times):
    """How many, and where they lie."""
    return {
        "n": len(times),
        "min_ms": min(times, default=None),
        "p50_ms": report.percentile(times, 50),
        "p95_ms": report.percentile(times, 95),
        "p99_ms": report.percentile(times, 99),
        "max_ms": max(times, default=None),
    }


def group(found):
    """`{case: {rival: figures}}` of a run, or of the file that it left, which has no samples."""
    if "figures" in found:
        return found["figures"]
    sorted_out = {}
    for batch in found.get("batches", []):
        sorted_out.setdefault(batch["case"], {}).setdefault(batch["rival"], []).append(batch)
    return {
        case: {rival: summarise(of) for rival, of in rivals.items()}
        for case, rivals in sorted_out.items()
    }


# --- tables

HEADER = [
    "rival", "n", "min ms", "p50 ms", "p95 ms", "p99 ms", "max ms", "p50 by round",
    "per s", "CPU ms each", "failures",
]  # fmt: skip
TIMES = ("min_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")


def rows(rivals):
    """A row for each rival, and one below it for each other time of its operations."""
    for rival, f in rivals.items():
        times = [number(f[name]) for name in TIMES]
        by_round = report.spread(f["p50_ms_by_round"])
        rate, cpu = number(f["per_second"]), number(f["cpu_ms"])
        yield [rival, f["n"], *times, by_round, rate, cpu, f["failures"]]
        for name, part in f["parts"].items():
            times = [number(part[key]) for key in TIMES]
            yield [f"– {PARTS[name]}", part["n"], *times, "–", "–", "–", "–"]


def concurrent_rows(rivals):
    """How many of each hundred there were, and when the last one was."""
    for rival, f in rivals.items():
        totals = [note["total_ms"] for note in f["notes"]]
        asked = len(totals) * CONCURRENT
        yield [rival, asked, f["n"], number(f["p50_ms"]), number(f["max_ms"]),
               report.spread(totals), number(f["cpu_ms"]), f["failures"]]  # fmt: skip


CONCURRENT_HEADER = [
    "rival", "asked for", "succeeded", "p50 ms", "max ms", "all answered, ms by round",
    "CPU ms each", "failures",
]  # fmt: skip
MEMORY_HEADER = [
    "rival", "sessions", "PSS of all processes KiB each", "processes each",
    "RSS of the server KiB each", "kernel KiB each (whole machine)", "failures",
]  # fmt: skip


def memory_rows(rivals):
    """What each idle session adds."""
    for rival, f in rivals.items():
        for note in f["notes"]:
            keys = ("processes_each", "server_rss_kib_each", "kernel_kib_each")
            others = [number(note[key]) for key in keys]
            yield [rival, note["sessions"], number(kib_each(f)), *others, f["failures"]]


def kib_each(f):
    """The samples of this case are KiB where those of the others are microseconds."""
    return None if f["p50_ms"] is None else f["p50_ms"] * 1000


def tables(found):
    """All tables, one for each case."""
    figures = group(found)
    for case in CASES:
        rivals = figures.get(case.name)
        if not rivals:
            continue
        rivals = {name: rivals[name] for name in case.rivals if name in rivals}
        header, shown = HEADER, rows
        if case.name == "concurrent":
            header, shown = CONCURRENT_HEADER, concurrent_rows
        elif case.name == "memory":
            header, shown = MEMORY_HEADER, memory_rows
        yield f"### Sessions: {TITLES[case.name]}\n\n{table(header, list(shown(rivals)))}\n"
    if "pool" in found:
        yield f"### Sessions: the books and the write-behind alone\n\n{books_text(found['pool'])}\n"


def books_text(pool):
    """The rows of the books by themselves."""
    if "error" in pool:
        return f"Not measured: {pool['error']}"
    header = ["operation", "n", "p50 µs", "p95 µs", "p99 µs", "mean µs"]
    keys = ("p50_ns", "p95_ns", "p99_ns", "mean_ns")
    lines = [
        [BOOKS[row["name"]][0], row["n"], *(number(row[key] / 1000, 3) for key in keys)]
        for row in pool["rows"]
        if row["name"] in BOOKS
    ]
    return table(header, lines)


# --- goals


def latency_goal(figures, case, rival, target_ms, theirs, key="p50_ms", name=None, beside=None):
    """One percentile of one case."""
    mine = figures.get(case, {}).get(rival, {}).get(key)
    failures = figures.get(case, {}).get(rival, {}).get("failures", 0)
    other = figures.get(case, {}).get(theirs, {}).get(key)
    percentile = key.removesuffix("_ms")
    theirs = "nothing made ahead" if theirs == COVE and case == "e2b" else theirs
    said = [f"{theirs} {number(other)} ms"] if other is not None else []
    said += [beside or SEED.get(case, "")]
    shown = f"{percentile} {number(mine)} ms"
    if failures:
        shown += f", {failures} failures"
    met = None if mine is None else mine <= target_ms and not failures
    return Goal(
        name or TITLES[case], f"{percentile} ≤ {target_ms} ms", shown,
        ", ".join(filter(None, said)) or "–", report.ratio(mine, other), met,
    )  # fmt: skip


def concurrent_goal(figures):
    """Every one of a hundred, and all of them soon."""
    f, ash = (figures.get("concurrent", {}).get(name, {}) for name in (COVE, ASH))
    totals = [note["total_ms"] for note in f.get("notes", [])]
    said = "–"
    if ash:
        theirs = max(note["total_ms"] for note in ash["notes"])
        said = f"Ash {ash['n']} succeed, {number(theirs / 1000)} s"
    if not f:
        shown, met = "–", None
    else:
        shown = f"{f['n']} of {len(totals) * CONCURRENT}, at most {number(max(totals))} ms"
        met = f["failures"] == 0 and max(totals) < CONCURRENT_MS_MAX
    return Goal(
        TITLES["concurrent"], "all succeed, total < 1.5 s", shown, f"{said}; {SEED['concurrent']}",
        "–", met,
    )  # fmt: skip


def memory_goal(figures):
    """Processes of an idle session, as Ash's were counted."""
    mine, theirs = (
        kib_each(figures.get("memory", {}).get(name, {"p50_ms": None}))
        for name in (COVE_IDLE, ASH_IDLE)
    )
    notes = figures.get("memory", {}).get(COVE_IDLE, {}).get("notes", [])
    shown = f"{number(mine)} KiB"
    if notes:
        shown += f" (and {number(notes[0]['kernel_kib_each'])} KiB in the kernel)"
    # Both count: what the kernel holds for a session is memory as well.
    total = None if mine is None else mine + max(notes[0]["kernel_kib_each"], 0)
    said = f"Ash {number(theirs)} KiB, " if theirs is not None else ""
    return Goal(
        "memory per idle session without an agent process", "≤ 2 MiB", shown,
        f"{said}{SEED['memory']}", report.ratio(mine, theirs),
        None if total is None else total <= MEMORY_KIB_MAX,
    )  # fmt: skip


def books_goals(pool):
    """The operations of a pool, one by one."""
    found = {row["name"]: row for row in (pool or {}).get("rows", [])}
    for key, (name, target_ns, seed) in BOOKS.items():
        row = found.get(key)
        p50 = row["p50_ns"] if row else None
        target = f"{target_ns} ns" if target_ns < 1000 else f"{target_ns // 1000} µs"
        unit = "ns" if target_ns < 1000 else "µs"
        shown = number(p50 if p50 is None or target_ns < 1000 else p50 / 1000)
        met = None if p50 is None else p50 <= target_ns
        yield Goal(f"pool: {name}", f"p50 ≤ {target}", f"{shown} {unit}", seed, "–", met)


def goals(found):
    """The goals of sessions; none when they were not measured."""
    if not found:
        return []
    f = group(found)
    on_postgres = {"theirs": COVE, "rival": COVE_POSTGRES}
    return [
        *books_goals(found.get("pool")),
        latency_goal(f, "create-ready", COVE, 2, ASH),
        latency_goal(f, "create", COVE, 8, ASH),
        concurrent_goal(f),
        latency_goal(f, "warm-resume", COVE, 0.5, ASH),
        latency_goal(f, "cold-resume", COVE, 12, ASH),
        latency_goal(f, "warm-resume", target_ms=2, name="warm resume on PostgreSQL",
                     beside="CockroachDB 4.9 ms", **on_postgres),
        latency_goal(f, "cold-resume", target_ms=20, name="cold resume on PostgreSQL",
                     beside="CockroachDB 54 ms", **on_postgres),
        latency_goal(f, "create", target_ms=15, name="create on PostgreSQL, nothing made ahead",
                     beside="CockroachDB 173 ms", **on_postgres),
        latency_goal(f, "message", COVE, 0.5, ASH),
        latency_goal(f, "message", COVE, 2, ASH, key="p99_ms"),
        latency_goal(f, "stop", COVE, 20, ASH),
        latency_goal(f, "fork", COVE, 15, ASH),
        latency_goal(f, "claude-later", COVE_CLAUDE, 30, ASH_CLAUDE),
        latency_goal(f, "claude-first", COVE_CLAUDE, 200, ASH_CLAUDE),
        memory_goal(f),
        latency_goal(f, "e2b", COVE_DEFAULT, 25, COVE),
    ]  # fmt: skip


def without_samples(found):
    """A document that is not a hundred times as long: single times say little more."""
    if not found:
        return found
    return {**report.without(found, "batches"), "figures": group(found)}


def failed(found):
    """Whether Cove gave a wrong answer anywhere."""
    return any(
        batch["failures"] and batch["rival"].startswith(COVE)
        for batch in (found or {}).get("batches", [])
    )


def text(found):
    """The whole section, or nothing."""
    if not found:
        return []
    versions = [[name, version] for name, version in found["versions"].items()]
    versions += [[name, f"**not measured**: {why}"] for name, why in found["unavailable"].items()]
    parts = ["## Sessions\n", table(["what", "version"], versions) + "\n", *tables(found)]
    lines = [
        f"- {rival}, {case}: {f['failures']} failures, such as {'; '.join(f['failure_examples'])}"
        for case, rivals in group(found).items()
        for rival, f in rivals.items()
        if f["failures"]
    ]
    lines += [f"- left behind: {what}" for what in found["left"]]
    if lines:
        parts.append("\n".join(lines) + "\n")
    return parts
