"""The cases that run whole processes: what is done with a pooler, and what is seen of it."""

import contextlib
import os
import pathlib
import threading
import time

import machine
import report
from bouncer.load import Calls, Failed, Load
from bouncer.poolers import COVE, PGBOUNCER, POOL, SCALE, TENANTS
from bouncer.wire import Client, Refused

MODES = ("simple", "extended", "prepared")
CLIENTS = (1, 10, 100, 1000)
IDLE_CLIENTS = 5000
FLOOD_CLIENTS, STEADY_RATE = 200, 50
DIRTY_CLIENTS = 2 * POOL
CHURN_CLIENTS, CHURN_KILLS = 8, 5
ROWS_BYTES = 10_000 * 1_000
# A hundredth quantile of 50 transactions a second wants some seconds.
FAIRNESS_SECONDS_FACTOR = 5
SETTLE_SECONDS = 10

ACCOUNT = f"\\set aid random(1, {100_000 * SCALE})\n"
SELECT = "SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n"
# What one in a hundred transactions each leaves behind on its connection, or would.
SCRIPTS = {
    "clean": ACCOUNT + SELECT,
    "set": f"{ACCOUNT}SET statement_timeout = '60123ms';\n{SELECT}",
    "lock": f"{ACCOUNT}SELECT pg_advisory_lock(1000 + :client_id);\n{SELECT}"
    "SELECT pg_advisory_unlock(1000 + :client_id);\n",
    # Where each transaction is followed by a reset, the table is gone by then.
    "temporary": f"{ACCOUNT}CREATE TEMPORARY TABLE bench_left_behind (x int);\n{SELECT}"
    "DROP TABLE IF EXISTS bench_left_behind;\n",
    "sleep": "SELECT pg_sleep(0.005);\n",
    "rows": "SELECT repeat('x', 1000) FROM generate_series(1, 10000);\n",
}
DIRTY_WEIGHTS = {"clean": 97, "set": 1, "lock": 1, "temporary": 1}


class Samples:
    """What one case gave for one rival in one round."""

    def __init__(self, case, rival):
        self.case, self.rival, self.rows = case, rival, []

    def add(self, key, figures):
        """`key` tells rows of a case apart, as words in order."""
        self.rows.append({"case": self.case, "rival": self.rival, "key": list(key), **figures})

    def fail(self, key, reason):
        self.add(key, {"failure": str(reason)[-400:]})


def threads(clients):
    return ["-c", str(clients), "-j", str(min(clients, os.cpu_count()))]


def ways():
    return ((unix, "unix" if unix else "tcp") for unix in (False, True))


# --- load


def load_cells(options):
    """Each number of clients, protocol and kind of socket; fewer for a first look."""
    tcp = (10, 100) if options.quick else CLIENTS
    cells = [(False, "tcp", n, mode) for n in tcp for mode in MODES]
    return cells + [(True, "unix", n, mode) for n in (10, 100) for mode in MODES]


def calls_cells(options):
    """A thousand clients make no other system calls than a hundred."""
    return [cell for cell in load_cells(options) if cell[2] <= 100]


def load(server, endpoint, samples, options, cell):
    unix, way, clients, mode = cell
    arguments = ["-S", "-M", mode, *threads(clients)]
    figures = Load(server, endpoint, options.seconds, arguments, unix=unix).run()
    samples.add((way, clients, mode), figures)


def calls(server, endpoint, samples, options, cell):
    """The same once more while the system calls are counted."""
    unix, way, clients, mode = cell
    seconds = max(int(round(options.seconds)), 1)
    arguments = ["-S", "-M", mode, *threads(clients)]
    counter = Calls(endpoint.pid)
    try:
        figures = Load(server, endpoint, seconds, arguments, unix=unix).run(meter=counter)
    finally:
        counted = counter.close()
    of_one = {name: n / figures["transactions"] for name, n in counted.items()}
    samples.add((way, clients, mode), {"calls": of_one})


def connect(server, endpoint, samples, options, cell):
    """A new connection for each transaction, with a login by SCRAM."""
    unix, way, clients, _ = cell
    arguments = ["-S", "-C", "-M", "simple", *threads(clients)]
    figures = Load(server, endpoint, options.seconds, arguments, unix=unix).run()
    samples.add((way, clients), figures)


def connect_cells(_options):
    return [(unix, way, n, "connect") for unix, way in ways() for n in (10, 100)]


def script(directory, name):
    path = pathlib.Path(directory) / f"{name}.sql"
    path.write_text(SCRIPTS[name], encoding="utf-8")
    return str(path)


def rows(server, endpoint, samples, options, scratch):
    """Results of ten megabytes each."""
    for unix, way in ways():
        arguments = ["-f", script(scratch, "rows"), *threads(4)]
        figures = Load(server, endpoint, options.seconds, arguments, unix=unix, sampled=1).run()
        mebibytes = figures["per_second"] * ROWS_BYTES / (1 << 20)
        figures["cpu_us_per_mib"] = figures["cpu_us"] / (ROWS_BYTES / (1 << 20))
        samples.add((way,), {**figures, "mebibytes_per_second": mebibytes})


# --- memory of idle clients


def memory(server, endpoint, samples, options, _scratch):
    """What each of so many clients costs that have asked once, and what they cost an active one."""
    count = 500 if options.quick else IDLE_CLIENTS
    seconds = options.seconds
    alone = Load(server, endpoint, seconds, ["-S", "-M", "prepared", *threads(1)], sampled=1)
    alone = alone.run()
    before = machine.memory_of(endpoint.pid)["tree_pss_kib"]
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(Client(endpoint))
            if client.query("SELECT 1") != [[b"1"]]:
                raise Failed("a wrong answer")
        after = settled(lambda: machine.memory_of(endpoint.pid)["tree_pss_kib"])
        among = Load(server, endpoint, seconds, ["-S", "-M", "prepared", *threads(1)], sampled=1)
        among = among.run()
    samples.add(
        (count,),
        {
            "kib_per_client": (after - before) / count,
            "kib_before": before,
            "alone_p50_us": report.percentile(alone["latencies_us"], 50),
            "among_p50_us": report.percentile(among["latencies_us"], 50),
        },
    )


def settled(read):
    """A figure once it stays the same."""
    last, deadline = read(), time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.5)
        now = read()
        if now == last:
            break
        last = now
    return last


# --- tenants beside each other


def fairness(server, endpoint, samples, options, scratch):
    """One client of B at a steady rate, alone and while A's clients ask for all they can get."""
    seconds = max(options.seconds * FAIRNESS_SECONDS_FACTOR, 3)
    # PgBouncer has a limit that its users share, or parts of their own that they do not lend.
    ways = ("shared", "divided") if endpoint.name == PGBOUNCER else ("shared",)
    for way in ways:
        try:
            samples.add((way,), beside_a_flood(server, endpoint, way, seconds, scratch))
        except Failed as error:
            samples.fail((way,), error)


def beside_a_flood(server, endpoint, way, seconds, scratch):
    flooding, steady = TENANTS

    def by(tenant, at=endpoint):
        database = {COVE: tenant, PGBOUNCER: way}.get(at.name, "bench")
        return {"database": database, "user": tenant}

    def b(at=endpoint):
        arguments = ["-S", "-M", "simple", "-R", str(STEADY_RATE), *threads(1)]
        return Load(server, at, seconds, arguments, sampled=1, **by(steady, at)).run()

    def beside(work, measured):
        arguments = [*work, *threads(FLOOD_CLIENTS)]
        a = Load(server, endpoint, seconds, arguments, held=True, **by(flooding))
        return a.run(lambda _: {"b": measured()})

    row = {"quiet_us": b()["latencies_us"]}
    for flood in ("select", "sleep"):
        work = ["-S"] if flood == "select" else ["-f", script(scratch, "sleep")]
        found = beside(work, b)
        row[f"{flood}_us"] = found["b"]["latencies_us"]
        row[f"{flood}_flood_per_second"] = found["per_second"]
    if endpoint.name == COVE:
        # B past the pooler: what is left of its delay is the database's and the processors'.
        row["past_quiet_us"] = b(server)["latencies_us"]
        row["past_us"] = beside(["-S"], lambda: b(server))["b"]["latencies_us"]
    return row


# --- transactions that leave something behind


def dirty(server, endpoint, samples, options, scratch):
    """Work of which three in a hundred leave something on the connection, and what was left."""
    clean = ["-f", script(scratch, "clean"), *threads(DIRTY_CLIENTS)]
    clean = Load(server, endpoint, options.seconds, clean).run()
    mixed = threads(DIRTY_CLIENTS)
    for name, weight in DIRTY_WEIGHTS.items():
        mixed += ["-f", f"{script(scratch, name)}@{weight}"]
    mixed = Load(server, endpoint, options.seconds, mixed).run()
    samples.add(
        (),
        {
            "clean_per_second": clean["per_second"],
            "mixed_per_second": mixed["per_second"],
            "clean_cpu_us": clean["cpu_us"],
            "mixed_cpu_us": mixed["cpu_us"],
            "left": left_behind(endpoint),
        },
    )


def left_behind(endpoint):
    """What new clients find on connections that others had; they hold all of them at once."""
    found = []
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(endpoint)) for _ in range(POOL)]
        for client in clients:
            client.query("BEGIN")
        for client in clients:
            [[timeout]] = client.query("SHOW statement_timeout")
            [[locks]] = client.query(
                "SELECT count(*) FROM pg_locks"
                " WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            )
            [[tables]] = client.query(
                "SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()"
            )
            if (timeout, locks, tables) != (b"0", b"0", b"0"):
                words = (timeout.decode(), f"{locks.decode()} locks", f"{tables.decode()} tables")
                found.append(", ".join(words))
        for client in clients:
            client.query("ROLLBACK")
    return found


# --- server connections that are cut


def churn(server, endpoint, samples, _options, _scratch):
    """Clients that ask without end while all server connections are ended every second."""
    stop, lock = threading.Event(), threading.Lock()
    total, gaps_ms = {"answers": 0, "wrong": 0, "errors": 0, "lost": 0}, []

    def count(**more):
        with lock:
            for name, n in more.items():
                total[name] += n

    def ask(number):
        client, nth, broken = None, 0, None
        while not stop.is_set():
            nth += 1
            value = number * 1_000_000 + nth
            try:
                client = client or Client(endpoint)
                right = client.query(f"SELECT {value}") == [[str(value).encode()]]
            except OSError as error:
                # An error that the server told leaves the client connected, if the pooler does.
                if client is not None and not isinstance(error, Refused):
                    client.close()
                    client = None
                    count(lost=1)
                count(errors=1)
                broken = broken or time.monotonic()
                continue
            count(answers=1, wrong=not right)
            if broken is not None:
                gaps_ms.append((time.monotonic() - broken) * 1000)
                broken = None
        if client is not None:
            client.close()

    workers = [threading.Thread(target=ask, args=(n,)) for n in range(CHURN_CLIENTS)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(CHURN_KILLS):
            time.sleep(1)
            server.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE usename IN ('bench', 'direct') AND pid <> pg_backend_pid()"
            )
        time.sleep(1)
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    if total["wrong"]:
        raise Failed(f"{total['wrong']} wrong answers")
    samples.add((), {**total, "gaps_ms": gaps_ms})
