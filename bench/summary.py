"""The rows of the summary: of each service a dozen figures, with the best rival, the floor and the goal.

Pure: the document of a run in, rows out. A part that was not measured has no rows; a figure that
was not measured has none either, and a goal that was missed stays in its place.
"""

import inspect
import statistics
from collections import namedtuple

import bouncer.figures
import catalog
import catalog.figures
import gateway.figures
import report
import sessions
import sessions.figures
from bouncer import DIRECT, PGBOUNCER, PGBOUNCER_RESET, mysql
from bouncer.figures import of as bouncer_figure
from bouncer.matrix import MODES
from catalog import BARE, DISK, JAVA, RUSTBERG
from gateway.cases import CALLS, INSIDE, ONE, OUTSIDE, PLAIN, THREE
from gateway.cases import DIRECT as OUTSIDE_DIRECT
from rivals import BARE as BARE_PROCESS
from rivals import BUBBLEWRAP, BULLMQ, COVE, COVE_FRESH, COVE_WEBSOCKET, GO_JUDGE, RUNC
from sessions import ASH_CLAUDE, ASH_IDLE, COVE_CLAUDE, COVE_DEFAULT, COVE_IDLE
from sessions.servers import ASH

# `rival` is the best of them and `floor` what stands below, each (name, figure); `upward` says that more
# is better.
Row = namedtuple("Row", "figure unit cove rival floor upward goal met")


def row(figure, unit, cove, rivals=(), floor=None, goal="–", met=None, upward=False):
    """One row. `met` is a condition on Cove's figure (`c`), the best rival's (`r`) and the floor's (`f`):
    its parameters say on which, and where one of those is missing nothing is met or missed."""
    known = [(name, value) for name, value in rivals if value]
    best = (max if upward else min)(known, key=lambda it: it[1], default=(None, None))
    floor = floor if floor and floor[1] is not None else None
    is_met = None
    if cove is not None and met is not None:
        values = {"c": cove, "r": best[1], "f": floor[1] if floor else None}
        needs = {n: values[n] for n in inspect.signature(met).parameters if n in values}
        if all(value is not None for value in needs.values()):
            is_met = bool(met(**needs))
    return Row(figure, unit, cove, best, floor, upward, goal, is_met)


def ratio(it):
    """How many times better Cove is than the best rival; nothing without one."""
    mine, theirs = it.cove, it.rival[1]
    if not mine or not theirs:
        return None
    return mine / theirs if it.upward else theirs / mine


# --- pool


def of_pool(run):
    """Operations of the pool in one process."""
    rows = [it for it in ((run.get("pool") or {}).get("figures") or {}).get("rows", [])
            if it["name"].startswith("pool/")]  # fmt: skip
    goals = {name: "≤ 1/4 of Go's" for name in ("acquire_return", "parallel", "contended",
                                               "throughput")}  # fmt: skip
    for it in rows:
        name = it["name"].removeprefix("pool/")
        met = (lambda c, r: 4 * c <= r) if name in goals else None
        goal = goals.get(name, "–")
        if name == "stats":
            goal, met = "≤ 3 ns", lambda c: c <= 3
        yield row(name.replace("_", " "), "ns", it["cove"]["ns_per_op"],
                  [("Go", it["go"]["ns_per_op"])], goal=goal, met=met)  # fmt: skip


# --- executions


def of_executions(run):
    """Programs, one at a time and ten at once, and the queue."""
    f = report.figures_of(run)

    def get(cell, rival, name):
        return report.figure(f, cell, rival, name)

    def line(title, cell, name="p50_ms", unit="ms", rival=COVE, names=(GO_JUDGE, BUBBLEWRAP, RUNC),
             **more):  # fmt: skip
        floor = (BARE_PROCESS, get(cell, BARE_PROCESS, name))
        others = [(other, get(cell, other, name)) for other in names]
        return row(title, unit, get(cell, rival, name), others, floor, **more)

    one, ten = ("noop", 1), ("noop", 10)
    yield line("no-op, p50", one)
    yield line("no-op, CPU of the machine", one, "cpu_ms_per_job", goal="≤ 1.4 ms",
               met=lambda c: c <= 1.4)  # fmt: skip
    yield line("no-op, 10 clients", ten, "jobs_per_second", "/s", upward=True, names=(GO_JUDGE,),
               goal="≥ 2.5 × go-judge", met=lambda c, r: c >= 2.5 * r)  # fmt: skip
    yield line("`/bin/true`, p50", ("true", 1), goal="≤ 1.8 ms", met=lambda c: c <= 1.8)
    yield line("C, compiled and run, p50", ("c", 1), goal="≤ bare process + 6 ms",
               met=lambda c, f: c <= f + 6)  # fmt: skip
    yield line("C that was compiled before, p50", ("c-repeated", 1), goal="≤ 3.5 ms",
               met=lambda c: c <= 3.5)  # fmt: skip
    yield line("Python from a zygote, p50", ("python", 1), goal="≤ 4 ms", met=lambda c: c <= 4)
    yield line("Python, fresh, p50", ("python", 1), rival=COVE_FRESH,
               goal="≤ bare process + 2.5 ms", met=lambda c, f: c <= f + 2.5)  # fmt: skip
    yield line("Node, prestarted, p50", ("node", 1), goal="≤ 8 ms", met=lambda c: c <= 8)
    yield line("Node, prestarted, 100 ms between runs, p50", ("node-paced", 1))
    yield line("Java that was compiled before, p50", ("java-repeated", 1), goal="≤ 60 ms",
               met=lambda c: c <= 60)  # fmt: skip
    yield line("Go, new sources, 10 clients, p50", ("go-50", 10), rival=COVE_WEBSOCKET,
               names=(GO_JUDGE,), goal="≤ 1.1 × bare process", met=lambda c, f: c <= 1.1 * f)  # fmt: skip
    yield line("queue, 100 in flight", ("queue", 100), "jobs_per_second", "/s", COVE_WEBSOCKET,
               names=(BULLMQ,), upward=True, goal="≥ 800/s", met=lambda c: c >= 800)  # fmt: skip
    kib = {name: it.get("idle after start", {}).get("rss_kib")
           for name, it in run.get("memory", {}).items()}  # fmt: skip
    mib = {name: value / 1024 for name, value in kib.items() if value}
    yield row("memory of an idle server", "MiB", mib.get(COVE), [(GO_JUDGE, mib.get(GO_JUDGE))],
              goal="≤ 30 MiB", met=lambda c: c <= 30)  # fmt: skip


# --- sessions


def of_sessions(run):
    """Sessions from nothing, from rest, and at work."""
    found = run.get("scenarios", {}).get("sessions")
    f = sessions.figures.group(found) if found else {}

    def get(case, rival, key="p50_ms"):
        return f.get(case, {}).get(rival, {}).get(key)

    def line(title, case, mine=COVE, theirs=ASH, key="p50_ms", **more):
        return row(title, "ms", get(case, mine, key), [(ASH, get(case, theirs, key))], **more)

    def at_most(limit):
        return {"goal": f"≤ {limit:g} ms", "met": lambda c: c <= limit}

    yield line("create, a sandbox is ready, p50", "create-ready", **at_most(2))
    yield line("create, nothing made ahead, p50", "create", **at_most(8))
    yield line("create, CPU of the machine", "create", key="cpu_ms")
    totals = {name: [note["total_ms"] for note in (get("concurrent", name, "notes") or [])]
              for name in (COVE, ASH)}  # fmt: skip
    worst = {name: max(times) for name, times in totals.items() if times}
    yield row("100 creates at once, the last one", "ms", worst.get(COVE), [(ASH, worst.get(ASH))],
              goal="< 1 500 ms", met=lambda c: c < 1500)  # fmt: skip
    yield line("resume, its sandbox is there, p50", "warm-resume", **at_most(0.5))
    yield line("resume after a restart, p50", "cold-resume", **at_most(12))
    yield line("message less the agent's time, p50", "message", **at_most(0.5))
    yield line("the same, p99", "message", key="p99_ms", **at_most(2))
    yield line("fork with 16 MiB of files, p50", "fork", **at_most(15))
    yield line("first text of a new Claude, p50", "claude-first", COVE_CLAUDE, ASH_CLAUDE,
               **at_most(200))  # fmt: skip
    yield line("E2B's SDK to the first result, p50", "e2b", COVE_DEFAULT, **at_most(25))
    kib = {name: sessions.figures.kib_each(f.get("memory", {}).get(name, {"p50_ms": None}))
           for name in (COVE_IDLE, ASH_IDLE)}  # fmt: skip
    yield row("memory of an idle session", "KiB", kib[COVE_IDLE], [(ASH, kib[ASH_IDLE])],
              goal="≤ 2 048 KiB", met=lambda c: c <= 2048)  # fmt: skip


# --- catalog


def of_catalog(run):
    """Reads beside a bare server, changes beside the disk."""
    found = run.get("scenarios", {}).get("catalog")
    f = catalog.figures.group(found) if found else {}

    def get(case, rival, name, key=""):
        return catalog.figures.of(f, case, rival, name, key)

    def rate(title, case, floor, goal, least, **more):
        mine, its = (f.get((case, ""), {}).get(name, {}) for name in (COVE, floor))
        # Of rounds that ran beside each other, as on the page behind this one.
        part = catalog.figures.ratio_of(mine, its)
        others = [(name, get(case, name, "per_second")) for name in (RUSTBERG, JAVA)]
        met = (lambda c: part >= least) if part is not None else None
        return row(title, "/s", mine.get("per_second"), others, (floor, its.get("per_second")),
                   goal, met, upward=True, **more)  # fmt: skip

    def cpu(title, case, limit_ms):
        values = {name: get(case, name, "cpu_us") for name in (COVE, RUSTBERG, JAVA)}
        ms = {name: value / 1000 for name, value in values.items() if value is not None}
        return row(title, "ms", ms.get(COVE), [(n, ms.get(n)) for n in (RUSTBERG, JAVA)],
                   goal=f"≤ {limit_ms:g} ms", met=lambda c: c <= limit_ms)  # fmt: skip

    yield rate("loadTable, 2 KB, 16 connections", "load", BARE, "≥ 0.8 × floor", 0.8)
    yield rate("loadTable, 1 000 snapshots", "thousand", BARE, "≥ 0.8 × floor", 0.8)
    yield rate("list of 100 tables", "list", BARE, "≥ 0.7 × floor", 0.7)
    yield rate("createTable, one writer", "create", DISK, "≥ 0.7 × floor", 0.7)
    yield cpu("createTable, CPU of the server", "create", 0.4)
    yield rate("commit of a property, one writer", "commit", DISK, "≥ 0.5 × floor", 0.5)
    yield rate("the same, 16 writers", "commit-16", DISK, "≥ 2 × floor", 2)
    yield cpu("commit, CPU of the server", "commit", 0.25)
    yield cpu("append at 1 000 snapshots, CPU", "append", 1)
    yield row("start to the first answer", "ms", get("start", COVE, "start_ms"),
              [(n, get("start", n, "start_ms")) for n in (RUSTBERG, JAVA)],
              goal="≤ 50 ms", met=lambda c: c <= 50)  # fmt: skip
    yield row("memory of an idle server", "MiB", get("start", COVE, "rss_mib"),
              [(n, get("start", n, "rss_mib")) for n in (RUSTBERG, JAVA)],
              goal="≤ 30 MiB", met=lambda c: c <= 30)  # fmt: skip
    yield row("memory with 100 000 tables", "MiB", get("memory", COVE, "rss_mib", "100000"),
              goal="≤ 200 MiB", met=lambda c: c <= 200)  # fmt: skip


# --- gateway


def of_gateway(run):
    """A database's round trip from a sandbox, what grants cost, and many sandboxes at once."""
    found = run.get("scenarios", {}).get("gateway")
    f = gateway.figures.group(found) if found else {}

    def get(case, key, rival, name):
        return f.get((case, key), {}).get(rival, {}).get(name)

    for engine in ("PostgreSQL", "MariaDB"):
        mine, its = (f.get(("select", engine), {}).get(name, {}) for name in (INSIDE, OUTSIDE))
        part = gateway.figures.ratio_of(mine, its) if mine and its else None
        yield row(f"`SELECT 1` from a sandbox, {engine}, p50", "µs", mine.get("p50_us"),
                  [("outside, by the bouncer", its.get("p50_us"))],
                  ("directly", get("select", engine, OUTSIDE_DIRECT, "p50_us")),
                  "≤ 1.15 × outside", None if part is None else lambda c: part <= 1.15)  # fmt: skip
    yield row("the same, PostgreSQL, CPU of Cove", "µs", get("select", "PostgreSQL", INSIDE, "cove_cpu_us"),
              [("outside, by the bouncer", get("select", "PostgreSQL", OUTSIDE, "cove_cpu_us"))])  # fmt: skip
    for what, words in (("session, its sandbox ready", "create, a sandbox is ready"),
                        ("execution", "execution of `/bin/true`")):  # fmt: skip
        rivals = f.get(("create", what), {})
        plain = rivals.get(PLAIN, {}).get("times_us_p50")
        for who, grants in ((ONE, "one grant"), (THREE, "three grants")):
            mine = rivals.get(who, {})
            if mine.get("times_us_p50") is None or plain is None:
                continue
            more = gateway.figures.more_of(mine, rivals[PLAIN]) / 1000
            yield row(f"{words}, {grants}, p50", "ms", mine["times_us_p50"] / 1000,
                      floor=("without grants", plain / 1000), goal="≤ 0.5 ms more",
                      met=lambda c, more=more: more <= 0.5)  # fmt: skip
    busy = next(iter(CALLS))
    direct = f.get(("fair", busy), {}).get(OUTSIDE_DIRECT, {})
    yield row("sandboxes of 200 × 5 connections served", "", get("fair", busy, INSIDE, "served"),
              [("directly", direct.get("served") and direct["served"] / direct.get("rounds", 1))],
              goal="all", met=lambda c: c >= 200, upward=True)  # fmt: skip
    yield row("largest p99 of them ÷ smallest", "", get("fair", busy, INSIDE, "spread"),
              goal="≤ 2", met=lambda c: c <= 2)  # fmt: skip


# --- bouncer


def of_bouncer(run):
    """What a transaction costs the pooler, and how many there are."""
    found = run.get("scenarios", {}).get("bouncer")
    f = bouncer.figures.group(found) if found else {}
    peers = [name for name in bouncer.POOLERS if name != COVE]

    def peer(case, key, name):
        return [(rival, bouncer_figure(f, case, key, rival, name)) for rival in peers]

    def mine(case, key, name):
        return bouncer_figure(f, case, key, COVE, name)

    def direct(case, key, name):
        return "no pooler", bouncer_figure(f, case, key, DIRECT, name)

    yield from cpu_rows(f)
    key = ("tcp", 100, "prepared")
    yield row("transactions, 100 clients, prepared", "/s", mine("load", key, "per_second"),
              peer("load", key, "per_second"), direct("load", key, "per_second"),
              "≥ every peer", lambda c, r: c >= r, True)  # fmt: skip
    yield p99_row(f, peers)
    key = ("tcp", 100)
    yield row("connect, log in and ask, 100 clients", "/s", mine("connect", key, "per_second"),
              peer("connect", key, "per_second"), None,
              "≥ 1.2 × every peer", lambda c, r: c >= 1.2 * r, True)  # fmt: skip
    key = ("tcp",)
    yield row("results of 10 MB", "MiB/s", mine("rows", key, "mebibytes_per_second"),
              peer("rows", key, "mebibytes_per_second"), direct("rows", key, "mebibytes_per_second"),
              upward=True)  # fmt: skip
    yield fairness_row(f)
    key = next((key for case, key in f if case == "memory"), None)
    yield row("memory of an idle client", "KiB", mine("memory", key, "kib_per_client"),
              peer("memory", key, "kib_per_client"), goal="≤ 2 KiB", met=lambda c: c <= 2)  # fmt: skip
    yield row("transactions of which 3 % leave something", "/s",
              mine("dirty", (), "mixed_per_second"),
              [(PGBOUNCER_RESET, bouncer_figure(f, "dirty", (), PGBOUNCER_RESET, "mixed_per_second"))],
              direct("dirty", (), "mixed_per_second"), upward=True)  # fmt: skip
    key = (mysql.SELECT, mysql.PREPARED, 100)
    yield row("MySQL point select, CPU of the pooler", "µs",
              bouncer_figure(f, "mysql", key, mysql.COVE_MYSQL, "cpu_us"))  # fmt: skip


def cpu_rows(f):
    """CPU of a transaction at the worst point for Cove, and system calls."""
    for way, limit in (("tcp", 0.85), ("unix", 0.6)):
        points = []
        for clients in (10, 100):
            for mode in MODES:
                ours = bouncer_figure(f, "load", (way, clients, mode), COVE, "cpu_us")
                theirs = bouncer_figure(f, "load", ("tcp", clients, mode), PGBOUNCER, "cpu_us")
                if ours and theirs:
                    points.append((ours / theirs, ours, theirs, f"{clients} clients, {mode}"))
        sockets = {"tcp": "TCP", "unix": "Unix"}[way]
        if not points:
            # Nobody to compare with: the largest.
            points = [
                (it[COVE]["cpu_us"], f"{key[1]} clients, {key[2]}")
                for (case, key), it in f.items()
                if case == "load" and key[0] == way and it.get(COVE, {}).get("cpu_us")
            ]
            ours, where = max(points, default=(None, ""))
            yield row(f"CPU of a transaction, {sockets}, {where} (most of {len(points)})", "µs", ours)
            continue
        middle = statistics.median(point[2] / point[1] for point in points)
        worst, ours, theirs, where = max(points)
        yield row(f"CPU of a transaction, {sockets}, {where} (worst of {len(points)}; median ratio"
                  f" {middle:.2f} ×)", "µs", ours,
                  [("PgBouncer, TCP", theirs)], goal=f"≤ {limit:g} × PgBouncer",
                  met=lambda c, limit=limit, worst=worst: worst <= limit)  # fmt: skip
    calls = {}
    for (case, key), rivals in f.items():
        if case == "calls" and key[0] == "tcp" and key[1] >= 10:
            for name, it in rivals.items():
                if it.get("calls"):
                    calls.setdefault(name, []).append(it["calls"]["all"])
    worst = {name: max(values) for name, values in calls.items()}
    if worst:
        yield row("system calls of a transaction, worst", "", worst.get(COVE),
                  [(n, v) for n, v in worst.items() if n != COVE],
                  goal="≤ 4.6", met=lambda c: c <= 4.6)  # fmt: skip


def p99_row(f, peers):
    """The 99th percentile at the point at which it compares worst."""
    points = []
    for (case, key), rivals in f.items():
        if case != "load" or key[1] < 100:
            continue
        ours = rivals.get(COVE, {}).get("latencies_us_p99")
        theirs = [(n, rivals.get(n, {}).get("latencies_us_p99")) for n in peers]
        theirs = [it for it in theirs if it[1]]
        if ours and theirs:
            best = min(theirs, key=lambda it: it[1])
            points.append((ours / best[1], ours, best, " ".join(map(str, key))))
    if not points:
        return row("p99 of a transaction, worst", "ms", None)
    _, ours, (name, theirs), where = max(points)
    return row(f"p99 of a transaction, {where} (worst of {len(points)})", "ms", ours / 1000,
               [(name, theirs / 1000)], goal="≤ every peer", met=lambda c, r: c <= r)  # fmt: skip


def fairness_row(f):
    """How a quiet tenant fares beside another's flood, as a multiple of its time without."""

    def times(rival, quiet="quiet_us_p99", flooded="select_us_p99"):
        it = f.get(("fairness", ("shared",)), {}).get(rival, {})
        quiet, flooded = it.get(quiet), it.get(flooded)
        return flooded / quiet if quiet and flooded else None

    floor = ("no pooler", times(DIRECT))
    if past := times(COVE, "past_quiet_us_p99", "past_us_p99"):
        floor = ("the quiet tenant directly, the flood by Cove", past)
    return row("quiet tenant's p99 beside a flood ÷ alone", "×", times(COVE),
               [(PGBOUNCER, times(PGBOUNCER))], floor, "≤ 3", lambda c: c <= 3)  # fmt: skip


# --- cluster


def of_cluster(run):
    """What a request costs that another node passes on: `bench/cluster.py`."""
    found = run.get("scenarios", {}).get("cluster") or {}
    cases = found.get("cases", {})
    for name, words in (("record", "record of a session"), ("exec", "program in a session"),
                        ("file of 1 MiB", "file of 1 MiB")):  # fmt: skip
        it = cases.get(name, {})
        if not it:
            continue
        direct, hop, proxy = (it.get(way, {}) for way in ("direct", "hop", "HAProxy"))
        goal, met = ("≤ 0.5 ms more", lambda c, f: c - f <= 0.5) if name != "file of 1 MiB" else ("–", None)
        yield row(f"{words} by way of another node, p50", "ms", hop.get("p50_ms"),
                  [("HAProxy", proxy.get("p50_ms"))], ("asked directly", direct.get("p50_ms")),
                  goal, met)  # fmt: skip
        if name == "record":
            goal, met = "≤ 1.25 × floor", lambda c, f: c <= 1.25 * f
            yield row("the same, CPU of the servers", "ms", hop.get("cpu_ms"),
                      [("HAProxy", proxy.get("cpu_ms"))], ("asked directly", direct.get("cpu_ms")),
                      goal, met)  # fmt: skip


def of_failover(run):
    """From the death of a node to answers of its sessions at others: `bench/failover.py`."""
    found = run.get("scenarios", {}).get("failover") or {}
    times, count = found.get("times", {}), found.get("sessions", 0)
    for name, words, limit in (("record", f"record of each of {count} sessions", 2),
                               ("program", f"program in each of {count} sessions", 2),
                               ("silence", "silence of event streams", 2.5)):  # fmt: skip
        yield row(f"{words}, p99", "s", times.get(name, {}).get("p99_s"),
                  goal=f"≤ {limit:g} s", met=lambda c, limit=limit: c <= limit)  # fmt: skip


SERVICES = {
    "executions": of_executions,
    "sessions": of_sessions,
    "bouncer": of_bouncer,
    "catalog": of_catalog,
    "gateway": of_gateway,
    "cluster": of_cluster,
    "failover": of_failover,
    "pool": of_pool,
}


def rows_of(service, run):
    """The rows of a service that were measured in a run."""
    return [it for it in SERVICES[service](run) if it.cove is not None]
