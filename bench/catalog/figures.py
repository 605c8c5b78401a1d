"""From what was measured of the catalog to tables and goals. Pure: documents in, text out."""

import statistics

from catalog import BARE, COVE, DISK, JAVA, RIVALS, RUSTBERG
from report import Goal, number, table

TITLES = {
    "load": "loadTable, 20 columns, 16 connections",
    "load-gzip": "The same, packed by gzip",
    "thousand": "loadTable with 1,000 snapshots, 16 connections",
    "thousand-gzip": "The same, packed by gzip",
    "list": "100 names of tables, 16 connections",
    "namespace": "A namespace, 16 connections",
    "sync": "Appends of 4 KiB with `fdatasync`, one after the other",
    "create": "createTable, 20 columns, by writers",
    "commit": "A commit of a property, by writers, each with a table of its own",
    "append": "A snapshot more for a table with 1,000, one writer",
    "start": "A start on a directory that was used before, and memory a second later",
    "memory": "Memory with many tables, and a load of one of them before and after",
}
COLUMNS = [
    ("per_second", "/s"), ("p50_us", "p50 µs"), ("p99_us", "p99 µs"), ("cpu_us", "server's CPU µs"),
    ("bytes", "bytes"), ("start_ms", "ms to the first answer"), ("rss_mib", "RSS MiB"),
    ("alone_p50_us", "p50 µs before"), ("beside_p50_us", "p50 µs after"),
]  # fmt: skip
# The part of the bare server's throughput, and how many times a rival's.
BARE_MIN = {"load": 0.8, "thousand": 0.8, "thousand-gzip": 0.8, "list": 0.7, "namespace": 0.7}
RIVAL_MIN = {
    "load": {RUSTBERG: 12, JAVA: 18},
    "thousand": {RUSTBERG: 20, JAVA: 20},
    "thousand-gzip": {RUSTBERG: 20, JAVA: 20},
}
SYNC_MIN = {"1": 0.7, "16": 3.0}
APPEND_CPU_MS_MAX, START_MS_MAX, IDLE_MIB_MAX = 1.0, 50.0, 30.0
# The cache's own 128 MiB, what an idle server has, and as much again for what is under way.
MANY_MIB_MAX, HIT_RATIO_MAX = 256.0, 1.1


def group(found):
    """By case and key, by rival: medians over rounds."""
    by = {}
    for row in found.get("rows", []):
        rivals = by.setdefault((row["case"], row["key"]), {})
        rivals.setdefault(row["rival"], []).append(row)
    return {
        key: {name: summarise(rows) for name, rows in rivals.items()}
        for key, rivals in by.items()
    }


def summarise(rows):
    """Rows of one rival in several rounds as one set of figures."""
    good = [row for row in rows if "failure" not in row]
    figures = {"failures": [row["failure"] for row in rows if "failure" in row]}
    for name, _ in COLUMNS:
        values = [row[name] for row in good if name in row]
        if values:
            figures[name] = statistics.median(values)
    return figures


def failed(found):
    """Whether Cove, or a document of either side, gave a wrong answer anywhere."""
    if not found:
        return False
    documents = (found.get("documents") or {}).get("rows", [])
    sides = [row[side] for row in documents for side in ("cove", "go") if side in row]
    ours = [row for row in found.get("rows", []) if row["rival"] == COVE]
    return any(not side["checked"] for side in sides) or any("failure" in row for row in ours)


# --- goals


def goals(found):
    """The goals of the catalog; none when it was not measured."""
    if not found:
        return []
    f = group(found)
    return [
        *document_goals(found.get("documents")),
        *reading_goals(f),
        *writing_goals(f),
        *process_goals(f),
    ]


def of(f, case, rival, name, key=""):
    """One figure, or none."""
    return f.get((case, key), {}).get(rival, {}).get(name)


def document_goals(documents):
    found = []
    for row in (documents or {}).get("rows", []):
        if "goal" not in row:
            continue
        ours, theirs = row["cove"], row.get("go")
        measured = f"{number(ours['ns_per_op'])} ns, {number(ours['allocs_per_op'])} allocations"
        beside = "–"
        if theirs:
            beside = f"Go {number(theirs['ns_per_op'])} ns, {number(theirs['allocs_per_op'])}"
        ratio = number(row.get("ratio"), 3)
        found.append(Goal(row["name"], row["goal"], measured, beside, ratio, row["met"]))
    return found


def at_least(name, target, mine, theirs, beside, limit):
    """A goal about a rate and a part or a multiple of another one."""
    if mine is None or not theirs:
        return []
    ratio = mine / theirs
    words = f"{beside} {number(theirs)}/s"
    return [Goal(name, target, f"{number(mine)}/s", words, number(ratio, 2), ratio >= limit)]


def at_most(name, limit, unit, mine):
    if mine is None:
        return []
    measured, met = f"{number(mine)} {unit}", mine <= limit
    return [Goal(name, f"≤ {limit:g} {unit}", measured, "–", "–", met)]


def reading_goals(f):
    found = []
    for case, limit in BARE_MIN.items():
        mine = of(f, case, COVE, "per_second")
        theirs = of(f, case, BARE, "per_second")
        found += at_least(case, f"≥ {limit} × {BARE}", mine, theirs, BARE, limit)
        for rival, times in RIVAL_MIN.get(case, {}).items():
            theirs = of(f, case, rival, "per_second")
            found += at_least(case, f"≥ {times} × {rival}", mine, theirs, rival, times)
    return found


def writing_goals(f):
    found = []
    disk = of(f, "sync", DISK, "per_second")
    for case in ("create", "commit"):
        for writers, limit in SYNC_MIN.items():
            mine = of(f, case, COVE, "per_second", writers)
            name, target = f"{case}, {writers} writers", f"≥ {limit} × {DISK}"
            found += at_least(name, target, mine, disk, DISK, limit)
    cpu = of(f, "append", COVE, "cpu_us")
    mine = None if cpu is None else cpu / 1e3
    return found + at_most("append, CPU for a commit", APPEND_CPU_MS_MAX, "ms", mine)


def process_goals(f):
    found = [
        *at_most("cold start", START_MS_MAX, "ms", of(f, "start", COVE, "start_ms")),
        *at_most("idle memory", IDLE_MIB_MAX, "MiB", of(f, "start", COVE, "rss_mib")),
    ]
    for (case, key), rivals in f.items():
        figures = rivals.get(COVE, {})
        if case != "memory" or "rss_mib" not in figures:
            continue
        found += at_most(f"memory with {key} tables", MANY_MIB_MAX, "MiB", figures["rss_mib"])
        ratio = figures["beside_p50_us"] / figures["alone_p50_us"]
        name, target = f"p50 of a hit with {key} tables", f"≤ {HIT_RATIO_MAX} × before"
        measured = f"{number(figures['beside_p50_us'])} µs"
        beside = f"before {number(figures['alone_p50_us'])} µs"
        met = ratio <= HIT_RATIO_MAX
        found.append(Goal(name, target, measured, beside, number(ratio, 2), met))
    return found


# --- tables


def text(found):
    """Lines of Markdown; none when it was not measured."""
    if not found:
        return []
    lines = ["## The catalog", ""]
    lines += document_table(found.get("documents"))
    f = group(found)
    for case, title in TITLES.items():
        rows, names = [], set()
        for (of_case, key), rivals in f.items():
            if of_case == case:
                rows += [(key, name, rivals[name]) for name in RIVALS if name in rivals]
                names |= {column for figures in rivals.values() for column in figures}
        if rows:
            lines += [f"### {title}", "", *case_table(rows, names), ""]
    versions = found.get("versions", {})
    lines += [f"- {name}: {version}" for name, version in versions.items()]
    lines += [f"- {name} is missing: {why}" for name, why in found.get("unavailable", {}).items()]
    return [*lines, ""]


def document_table(documents):
    rows = [
        (
            row["name"],
            *(number(row.get(side, {}).get("ns_per_op")) for side in ("cove", "go")),
            number(row.get("ratio"), 3),
            *(number(row.get(side, {}).get("allocs_per_op")) for side in ("cove", "go")),
            *(number(row.get(side, {}).get("bytes_per_op")) for side in ("cove", "go")),
        )
        for row in (documents or {}).get("rows", [])
    ]
    if not rows:
        return []
    header = ("row", "ns", "Go ns", "ratio", "allocations", "Go's", "bytes", "Go's bytes")
    return ["### Documents, tokens and buffers in one process", "", table(header, rows), ""]


def case_table(rows, names):
    columns = [(name, title) for name, title in COLUMNS if name in names]
    keyed = any(key for key, _, _ in rows)
    first = ["writers or tables"] if keyed else []
    header = [*first, "rival", *(title for _, title in columns), "failures"]
    cells = [
        [
            *([key] if keyed else []),
            name,
            *(number(figures.get(column)) for column, _ in columns),
            str(len(figures["failures"])),
        ]
        for key, name, figures in rows
    ]
    return [table(header, cells)]
