"""From what was measured of the catalog to tables and goals. Pure: documents in, text out."""

import statistics

from catalog import BARE, COVE, DISK, JAVA, RIVALS, RUSTBERG
from report import Goal, group_rows, number, table, without

TITLES = {
    "load": "loadTable, 20 columns, 16 connections",
    "load-gzip": "The same, packed by gzip",
    "thousand": "loadTable with 1,000 snapshots, 16 connections",
    "thousand-gzip": "The same, packed by gzip",
    "list": "100 names of tables, 16 connections",
    "namespace": "A namespace, 16 connections",
    "create": "createTable, 20 columns, one writer",
    "create-16": "createTable, 20 columns, 16 writers",
    "commit": "A commit of a property, one writer",
    "commit-16": "A commit of a property, 16 writers, each with a table of its own",
    "append": "A snapshot more for a table with 1,000, one writer",
    "start": "A start on a directory that was used before, and memory a second later",
    "memory": "Memory with many tables, and a load of one of them before and after",
}
COLUMNS = [
    ("per_second", "/s"), ("p50_us", "p50 µs"), ("p95_us", "p95 µs"), ("p99_us", "p99 µs"),
    ("cpu_us", "server's CPU µs"), ("bytes", "bytes"), ("start_ms", "ms to the first answer"),
    ("rss_mib", "RSS MiB"), ("alone_p50_us", "p50 µs before"), ("beside_p50_us", "p50 µs after"),
]  # fmt: skip
RATIO = "Cove's rate ÷ it"
HIDDEN = """\
- Servers and the load generator share the cores: a rate is that of both, and what the generator
  costs is in everybody's, most of all in the fastest one's. CPU times are the server's alone.
- Cove checks access tokens and rights, the others nothing.
- Percentiles are medians of the rounds' own. One machine, loopback, tables in files; no buckets.
- Resident memory has the pages of the program in it that the kernel mapped beside those in use.
- No second server changes anything, so nobody has to ask a store whether what is kept is new."""
# The part of the bare server's throughput, and how many times a rival's.
BARE_MIN = {"load": 0.8, "thousand": 0.8, "thousand-gzip": 0.8, "list": 0.7, "namespace": 0.7}
RIVAL_MIN = {
    "load": {RUSTBERG: 12, JAVA: 18},
    "thousand": {RUSTBERG: 20, JAVA: 20},
    "thousand-gzip": {RUSTBERG: 20, JAVA: 20},
}
SYNC_MIN = {"create": 0.7, "commit": 0.5, "create-16": 2.0, "commit-16": 2.0}
CPU_MS_MAX = {"create": 0.4, "commit": 0.25}
APPEND_CPU_MS_MAX, START_MS_MAX, IDLE_MIB_MAX = 1.0, 50.0, 30.0
MANY_MIB_MAX, HIT_RATIO_MAX = 200.0, 1.1


def group(found):
    """By case and key, by rival: medians over rounds. A file that a run left has no rows, but what was
    made of them."""
    if "figures" not in found:
        return group_rows(found, summarise)
    by = {}
    for it in found["figures"]:
        rates = {int(number): rate for number, rate in it["rates"].items()}
        by.setdefault((it["case"], it["key"]), {})[it["rival"]] = {**it, "rates": rates}
    return by


def without_samples(found):
    """The document as it is kept."""
    if not found:
        return found
    figures = [
        {"case": case, "key": key, "rival": rival, **of}
        for (case, key), rivals in group(found).items()
        for rival, of in rivals.items()
    ]
    return {**without(found, "rows"), "figures": figures}


def summarise(rows):
    """Rows of one rival in several rounds as one set of figures."""
    good = [row for row in rows if "failure" not in row]
    figures = {"failures": [row["failure"] for row in rows if "failure" in row]}
    figures["wrong"] = sum(row.get("wrong", 0) for row in good)
    figures["notes"] = sorted({row["note"] for row in good if "note" in row})
    # By round, because load differs between rounds.
    figures["rates"] = {row["round"]: row["per_second"] for row in good if "per_second" in row}
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
    ours = [row for row in found.get("rows", []) if row["rival"] in (COVE, BARE)]
    is_wrong = any("failure" in row or row.get("wrong") for row in ours)
    return is_wrong or any(not side["checked"] for side in sides)


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


def ratio_of(mine, theirs):
    """How many times another's rate ours is: the median over the rounds that both took part in."""
    ours, others = mine.get("rates", {}), theirs.get("rates", {})
    ratios = [ours[n] / others[n] for n in ours if others.get(n)]
    return statistics.median(ratios) if ratios else None


def at_least(f, case, limit, rival):
    """A goal about a rate, and a part or a multiple of another one."""
    rivals = f.get((case, ""), {})
    mine, theirs = rivals.get(COVE, {}), rivals.get(rival, {})
    ratio = ratio_of(mine, theirs)
    if ratio is None:
        return []
    measured = f"{number(mine['per_second'])}/s"
    beside = f"{rival} {number(theirs['per_second'])}/s"
    target = f"≥ {limit:g} × {rival}"
    return [Goal(TITLES[case], target, measured, beside, number(ratio, 2), ratio >= limit)]


def at_most(name, limit, unit, mine):
    if mine is None:
        return []
    measured, met = f"{number(mine)} {unit}", mine <= limit
    return [Goal(name, f"≤ {limit:g} {unit}", measured, "–", "–", met)]


def reading_goals(f):
    found = []
    for case, limit in BARE_MIN.items():
        found += at_least(f, case, limit, BARE)
        for rival, times in RIVAL_MIN.get(case, {}).items():
            found += at_least(f, case, times, rival)
    return found


def writing_goals(f):
    found = [goal for case, limit in SYNC_MIN.items() for goal in at_least(f, case, limit, DISK)]
    for case, limit in CPU_MS_MAX.items():
        cpu = of(f, case, COVE, "cpu_us")
        mine = None if cpu is None else cpu / 1e3
        found += at_most(f"{TITLES[case]}, CPU of the server", limit, "ms", mine)
    cpu = of(f, "append", COVE, "cpu_us")
    mine = None if cpu is None else cpu / 1e3
    title = "append to a table with 1,000 snapshots, CPU of a commit"
    return found + at_most(title, APPEND_CPU_MS_MAX, "ms", mine)


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
    return [*lines, "", "### What these figures do not show", "", HIDDEN, ""]


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
    first = ["tables"] if keyed else []
    header = [*first, "rival", *(title for _, title in columns)]
    ours = next((figures for _, name, figures in rows if name == COVE), {})
    ratios = [ratio_of(ours, figures) if name != COVE else None for _, name, figures in rows]
    has_ratios = any(ratios)
    header += [RATIO] if has_ratios else []
    cells = [
        [
            *([key] if keyed else []),
            ", ".join([name, *figures["notes"]]),
            *(number(figures.get(column)) for column, _ in columns),
            *([number(ratio)] if has_ratios else []),
            f"{len(figures['failures'])} batches, {figures['wrong']} answers",
        ]
        for (key, name, figures), ratio in zip(rows, ratios, strict=True)
    ]
    told = {name: figures["failures"][0] for _, name, figures in rows if figures["failures"]}
    lines = [f"- {name} failed: {words.splitlines()[0]}" for name, words in told.items() if words]
    return [table([*header, "failures"], cells), *([""] if lines else []), *lines]
