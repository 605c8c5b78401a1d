"""From what was measured of the bouncer to tables and goals. Pure: documents in, text out."""

import statistics

import report
from bouncer import CASES, DIRECT, PGBOUNCER, PGBOUNCER_RESET, POOLERS, mysql
from bouncer.matrix import MODES
from bouncer.poolers import COVE, POOL
from report import Goal, number, table

TITLES = {
    "load": "`pgbench -S`",
    "calls": "System calls for each transaction of `pgbench -S`",
    "connect": "`pgbench -S -C`: a connection with a login by SCRAM for each transaction",
    "rows": "Results of 10 MB, 4 clients",
    "memory": "Idle clients",
    "fairness": "Tenant B, one client at 50/s, while tenant A's 200 clients flood the same server",
    "dirty": "1 % each `SET`, advisory lock and temporary table, 40 clients",
    "churn": "All server connections ended every second",
    "mysql": "sysbench before MariaDB, and its point selects before PostgreSQL",
}
CPU_RATIO_MAX, UNIX_CPU_RATIO_MAX, CALLS_MAX = 0.85, 0.6, 4.6
CONNECT_RATIO_MIN = 1.2
KIB_PER_CLIENT_MAX, ACTIVE_RATIO_MAX = 2.0, 1.1
FAIR_RATIO_MAX, DIRTY_RATIO_MIN = 3.0, 0.9
MYSQL_CPU_RATIO_MAX = 1.1
PERCENTILES = (50, 95, 99)
# Of which the worst round counts.
PEAKS = ("server_connections",)


# --- figures


def group(found):
    """By case and key, by rival: medians of figures over rounds, percentiles of all samples."""
    if "figures" in found:
        return {(it["case"], tuple(it["key"])): it["rivals"] for it in found["figures"]}
    return report.group_rows(found, summarise)


def summarise(rows):
    """Rows of one rival in several rounds as one set of figures."""
    good = [row for row in rows if "failure" not in row]
    figures = {"failures": [row["failure"] for row in rows if "failure" in row]}
    for name in {name for row in good for name in row}:
        values = [row[name] for row in good if name in row]
        if name in ("left", "calls"):
            figures[name] = values[-1] if name == "calls" else sum(values, [])
        elif all(isinstance(value, (int, float)) for value in values):
            figures[name] = (max if name in PEAKS else statistics.median)(values)
        elif name.endswith(("_us", "_ms")):
            samples = [sample for value in values for sample in value]
            for percent in PERCENTILES:
                figures[f"{name}_p{percent}"] = report.percentile(samples, percent)
            figures[f"{name}_n"] = len(samples)
    return figures


def without_samples(found):
    """A document that is not a hundred times as long: single times say little more."""
    if not found:
        return found
    figures = [
        {"case": case, "key": list(key), "rivals": rivals}
        for (case, key), rivals in group(found).items()
    ]
    return {**report.without(found, "rows"), "figures": figures}


def failed(found):
    """Whether Cove, or the relay of either side, gave a wrong answer anywhere."""
    if not found:
        return False
    relay = (found.get("relay") or {}).get("rows", [])
    wrong = any(not side["checked"] for row in relay for side in row.values() if is_side(side))
    ours = [row for row in found.get("rows", []) if row["rival"] in (COVE, mysql.COVE_MYSQL)]
    return wrong or any("failure" in row or row.get("left") for row in ours)


def is_side(cell):
    return isinstance(cell, dict) and "checked" in cell


# --- goals


def goals(found):
    """The goals of the bouncer; none when it was not measured."""
    if not found:
        return []
    f = group(found)
    return [
        *relay_goals(found.get("relay")),
        *cpu_goals(f, "tcp", CPU_RATIO_MAX),
        *cpu_goals(f, "unix", UNIX_CPU_RATIO_MAX),
        *calls_goal(f),
        *ahead_goals(f),
        *memory_goals(f),
        *fairness_goals(f),
        *dirty_goals(f),
        *mysql_goals(f),
    ]


def of(f, case, key, rival, name):
    """One figure, or none."""
    return f.get((case, key), {}).get(rival, {}).get(name)


def compared(name, target, mine, theirs, beside, limit, unit="", upward=False):
    """A goal about a ratio to somebody else's figure; nothing where either is missing."""
    if mine is None or not theirs:
        return []
    ratio = mine / theirs
    met = ratio >= limit if upward else ratio <= limit
    words = f"{beside} {number(theirs)}{unit}"
    return [Goal(name, target, f"{number(mine)}{unit}", words, number(ratio, 2), met)]


def relay_goals(relay):
    rows = (relay or {}).get("rows", [])
    return [
        Goal(
            f"relay in one process, {row['name']}",
            row["goal"],
            f"{number(row['cove']['ns_per_op'])} ns, {row['cove']['allocs_per_op']:g} allocations",
            f"Go {number(row['go']['ns_per_op'])} ns, {row['go']['allocs_per_op']:g}",
            number(row["ratio"], 3),
            row["met"],
        )
        for row in rows
        if "goal" in row
    ]


def cpu_goals(f, way, limit):
    """CPU time of the pooler for a transaction, to PgBouncer's over TCP."""
    found = []
    for clients in (10, 100):
        for mode in MODES:
            mine = of(f, "load", (way, clients, mode), COVE, "cpu_us")
            theirs = of(f, "load", ("tcp", clients, mode), PGBOUNCER, "cpu_us")
            name = f"pooler's CPU time, {way}, {clients} clients, {mode}"
            target, beside = f"≤ {limit} × PgBouncer over TCP", "PgBouncer"
            found += compared(name, target, mine, theirs, beside, limit, " µs")
    return found


def calls_goal(f):
    cells = [("tcp", clients, mode) for clients in (10, 100) for mode in MODES]
    calls = [of(f, "calls", cell, COVE, "calls") for cell in cells]
    calls = [one["all"] for one in calls if one]
    if not calls:
        return []
    theirs = [of(f, "calls", cell, PGBOUNCER, "calls") for cell in cells]
    theirs = [one["all"] for one in theirs if one]
    beside = f"PgBouncer {number(max(theirs))}" if theirs else "–"
    target, worst = f"≤ {CALLS_MAX} at every point", number(max(calls))
    met = max(calls) <= CALLS_MAX
    return [Goal("system calls for a transaction, TCP, worst", target, worst, beside, "–", met)]


def ahead_goals(f):
    """Throughput and 99th percentile ahead of every other pooler."""
    found = []
    for (case, key), rivals in f.items():
        if not (case == "load" and key[1] in (100, 1000) or case == "connect"):
            continue
        what = " ".join(map(str, key)) if case == "load" else f"-C {' '.join(map(str, key))}"
        figures = [("per_second", "/s", max, True)]
        if case == "load":
            figures.append(("latencies_us_p99", " µs", min, False))
        for name, unit, best, upward in figures:
            others = {n: rivals[n].get(name) for n in POOLERS if n != COVE and n in rivals}
            others = {n: value for n, value in others.items() if value}
            if not others or COVE not in rivals:
                continue
            leader = best(others, key=others.get)
            title = "throughput" if upward else "p99"
            limit = CONNECT_RATIO_MIN if case == "connect" else 1.0
            times = f"{limit:g} × " if limit != 1 else ""
            found += compared(
                f"{title}, {what}", f"{'≥' if upward else '≤'} {times}every peer",
                rivals[COVE].get(name), others[leader], leader, limit, unit, upward,
            )  # fmt: skip
    return found


def memory_goals(f):
    found = []
    for (case, key), rivals in f.items():
        mine = rivals.get(COVE, {})
        if case != "memory" or "kib_per_client" not in mine:
            continue
        theirs = rivals.get(PGBOUNCER, {}).get("kib_per_client")
        beside = f"PgBouncer {number(theirs)} KiB" if theirs else "–"
        name, kib = f"memory of an idle client, {key[0]} clients", mine["kib_per_client"]
        target, met = f"≤ {KIB_PER_CLIENT_MAX:g} KiB", kib <= KIB_PER_CLIENT_MAX
        found.append(Goal(name, target, f"{number(kib)} KiB", beside, "–", met))
        found += compared(
            f"p50 of a client among {key[0]} idle ones", f"≤ {ACTIVE_RATIO_MAX} × alone",
            mine.get("among_p50_us"), mine.get("alone_p50_us"), "alone", ACTIVE_RATIO_MAX, " µs",
        )  # fmt: skip
    return found


def fairness_goals(f):
    rivals, found = f.get(("fairness", ("shared",)), {}), []
    mine, theirs = rivals.get(COVE, {}), rivals.get(PGBOUNCER, {})
    for flood in ("select", "sleep"):
        quiet = theirs.get("quiet_us_p99")
        other = theirs.get(f"{flood}_us_p99")
        beside = "alone"
        if quiet and other:
            beside = f"PgBouncer {number(other / quiet)} × its quiet one; alone"
        found += compared(
            f"B's p99 while A floods ({flood})", f"≤ {FAIR_RATIO_MAX:g} × its quiet p99",
            mine.get(f"{flood}_us_p99"), mine.get("quiet_us_p99"), beside, FAIR_RATIO_MAX, " µs",
        )  # fmt: skip
    return found


def dirty_goals(f):
    rivals = f.get(("dirty", ()), {})
    mine = rivals.get(COVE, {})
    if "mixed_per_second" not in mine:
        return []
    beside = []
    for name in (PGBOUNCER_RESET, DIRECT):
        theirs = rivals.get(name, {})
        if "mixed_per_second" in theirs:
            share = theirs["mixed_per_second"] / theirs["clean_per_second"]
            beside.append(f"{name} {number(theirs['mixed_per_second'])}/s, ratio {share:.2f}")
    ratio = mine["mixed_per_second"] / mine["clean_per_second"]
    met = ratio >= DIRTY_RATIO_MIN and not mine.get("left")
    left = mine.get("left")
    words = f"{number(mine['mixed_per_second'])}/s, {'nothing' if not left else left[0]} left"
    target = f"≥ {DIRTY_RATIO_MIN} × clean, nothing left behind"
    return [Goal("dirty work", target, words, "; ".join(beside), number(ratio, 2), met)]


def mysql_goals(f):
    """CPU time beside PostgreSQL's relay, and a thousand clients on the connections of a pool."""
    found = []
    for clients in mysql.COMPARED_CLIENTS:
        for mode in (mysql.PREPARED, mysql.TEXT):
            key = (mysql.SELECT, mode, clients)
            mine, theirs = (of(f, "mysql", key, r, "cpu_us") for r in (mysql.COVE_MYSQL, COVE))
            name = f"MySQL relay's CPU time for a point select, {clients} clients, {mode}"
            target, limit = f"≤ {MYSQL_CPU_RATIO_MAX} × PostgreSQL relay", MYSQL_CPU_RATIO_MAX
            found += compared(name, target, mine, theirs, "PostgreSQL relay", limit, " µs")
    for mode in (mysql.PREPARED, mysql.TEXT):
        rivals = f.get(("mysql", (mysql.READ_WRITE, mode, max(mysql.CLIENTS))), {})
        mine = rivals.get(mysql.COVE_MYSQL, {})
        if "server_connections" not in mine and not mine.get("failures"):
            continue
        name = f"read-write mix of {max(mysql.CLIENTS)} clients, {mode}"
        errors, most = len(mine["failures"]), mine.get("server_connections")
        met = not errors and most <= POOL
        words = f"{number(most)} connections, {errors} runs with errors"
        direct = rivals.get(mysql.DIRECT_MYSQL, {}).get("per_second")
        beside = f"{number(mine.get('per_second'))}/s; MariaDB itself {number(direct)}/s"
        target = f"no error, ≤ {POOL} server connections"
        found.append(Goal(name, target, words, beside, "–", met))
    return found


# --- tables


def text(found):
    """The whole section, or nothing."""
    if not found:
        return []
    parts = ["## Bouncer\n"]
    if found["versions"] or found["unavailable"]:
        versions = [[name, version] for name, version in found["versions"].items()]
        versions += [
            [name, f"**not measured**: {why}"] for name, why in found["unavailable"].items()
        ]
        parts.append(table(["what", "version"], versions) + "\n")
    if found.get("relay"):
        parts += ["### The relay in one process\n", relay_table(found["relay"]) + "\n"]
    f = group(found)
    for case in CASES:
        cells = {key: rivals for (name, key), rivals in f.items() if name == case.name}
        if cells:
            parts += [f"### {TITLES[case.name]}\n", TABLES[case.name](cells) + "\n"]
    lines = [
        f"- {rival}, {case} {' '.join(map(str, key))}: {figures['failures'][0]}"
        for (case, key), rivals in f.items()
        for rival, figures in rivals.items()
        if figures["failures"]
    ]
    if lines:
        parts.append("\n".join(lines) + "\n")
    return parts


def relay_table(relay):
    header = ["row", "Cove ns", "allocations", "Go ns", "allocations", "ratio", "checked"]
    rows = []
    for row in relay["rows"]:
        cells = [row["name"]]
        for side in ("cove", "go"):
            if one := row.get(side):
                cells += [number(one["ns_per_op"]), f"{one['allocs_per_op']:g}"]
            else:
                cells += ["–", "–"]
        sides = [row[side] for side in ("cove", "go") if side in row]
        checked = "yes" if all(side["checked"] for side in sides) else "**wrong result**"
        rows.append([*cells, number(row["ratio"], 3) if "ratio" in row else "–", checked])
    return table(header, rows)


def by_rival(cells, keys, columns):
    """A table with a row for each cell and rival; a column is its title and the figure's name."""
    header = [*keys, "pooler", *(title for title, _ in columns)]
    rows = [
        [*map(str, key), rival, *(number(figures.get(name)) for _, name in columns)]
        for key, rivals in cells.items()
        for rival, figures in rivals.items()
        if len(figures) > 1
    ]
    return table(header, rows)


def load_table(cells):
    columns = [
        ("per second", "per_second"), ("CPU µs", "cpu_us"), ("user", "user_us"),
        ("kernel", "kernel_us"), ("switches", "switches"), ("p50 µs", "latencies_us_p50"),
        ("p95 µs", "latencies_us_p95"), ("p99 µs", "latencies_us_p99"),
    ]  # fmt: skip
    return by_rival(cells, ["sockets", "clients", "protocol"], columns)


def calls_table(cells):
    header = ["sockets", "clients", "protocol", "pooler", "all", "of them"]
    rows = []
    for key, rivals in cells.items():
        for rival, figures in rivals.items():
            if calls := figures.get("calls"):
                parts = sorted(calls.items(), key=lambda part: -part[1])
                words = [f"{name} {n:.2f}" for name, n in parts if name != "all" and n >= 0.01]
                rows.append([*map(str, key), rival, f"{calls['all']:.2f}", ", ".join(words)])
    return table(header, rows)


def connect_table(cells):
    columns = [("per second", "per_second"), ("CPU µs", "cpu_us"), ("p99 µs", "latencies_us_p99")]
    return by_rival(cells, ["sockets", "clients"], columns)


def rows_table(cells):
    columns = [("MiB/s", "mebibytes_per_second"), ("CPU µs per MiB", "cpu_us_per_mib")]
    return by_rival(cells, ["sockets"], columns)


def memory_table(cells):
    columns = [
        ("KiB per client", "kib_per_client"), ("KiB before", "kib_before"),
        ("p50 µs alone", "alone_p50_us"), ("p50 µs among them", "among_p50_us"),
    ]  # fmt: skip
    return by_rival(cells, ["clients"], columns)


def fairness_table(cells):
    columns = [
        ("quiet p50 µs", "quiet_us_p50"), ("p99", "quiet_us_p99"),
        ("A selects: p50", "select_us_p50"), ("p99", "select_us_p99"),
        ("A/s", "select_flood_per_second"), ("A sleeps: p50", "sleep_us_p50"),
        ("p99", "sleep_us_p99"), ("A/s", "sleep_flood_per_second"),
        ("B directly: p99", "past_quiet_us_p99"), ("while A selects", "past_us_p99"),
    ]  # fmt: skip
    return by_rival(cells, ["connections"], columns)


def dirty_table(cells):
    columns = [
        ("clean/s", "clean_per_second"), ("mixed/s", "mixed_per_second"),
        ("clean CPU µs", "clean_cpu_us"), ("mixed CPU µs", "mixed_cpu_us"),
    ]  # fmt: skip
    return by_rival(cells, [], columns)


def churn_table(cells):
    columns = [
        ("answers", "answers"), ("errors", "errors"), ("connections lost", "lost"),
        ("gap p50 ms", "gaps_ms_p50"), ("p99", "gaps_ms_p99"),
    ]  # fmt: skip
    return by_rival(cells, [], columns)


def mysql_table(cells):
    columns = [
        ("per second", "per_second"), ("CPU µs", "cpu_us"), ("user", "user_us"),
        ("kernel", "kernel_us"), ("switches", "switches"), ("mean ms", "mean_ms"),
        ("p99 ms", "p99_ms"), ("deadlocks", "ignored"),
        ("server connections", "server_connections"),
    ]  # fmt: skip
    return by_rival(cells, ["workload", "statements", "clients"], columns)


TABLES = {
    "load": load_table,
    "calls": calls_table,
    "connect": connect_table,
    "rows": rows_table,
    "memory": memory_table,
    "fairness": fairness_table,
    "dirty": dirty_table,
    "churn": churn_table,
    "mysql": mysql_table,
}
