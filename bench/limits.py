#!/usr/bin/env python3
"""What it costs that limits hold over all nodes.

Two nodes share a PostgreSQL, which is also the database of a tenant with limits on its server connections
and clients. `pgbench` selects through both at once; once with `cluster.limits = "node"`, where each node has
the limits for itself, then with `soft` and `strict`, round after round with servers that are started anew.
Counted are the CPU time of both servers for each transaction, and the transactions that they have with the store.
All transactions have to succeed, and the tenant's server connections are counted all the time: together they
may never be more than the limit, but for `node`.

`--churn` has each client connect for each transaction, so that each is counted against the limits.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import machine
import rivals
from bouncer import poolers
from client import Client
from cluster import Node, own_cpu_seconds, wait_for_nodes
from sessions.servers import PLAIN_LANGUAGE, PLAIN_LANGUAGES

SCOPES = ("node", "soft", "strict")
CONNECTIONS_MAX, CLIENTS_MAX, CLIENTS = 8, 64, 16
SAMPLE_SECONDS = 0.01
TRANSACTIONS = re.compile(r"number of transactions actually processed: (\d+)")
FAILED = re.compile(r"number of failed transactions: (\d+)")


class BouncerNode(Node):
    """A server of the cluster with the bouncer."""

    def __init__(self, binary, scratch, name, database, scope):
        self.bouncer = rivals.free_port()
        super().__init__(binary, scratch, name, database, 0)
        config = pathlib.Path(scratch) / f"{name}.toml"
        text = config.read_text(encoding="utf-8").replace(
            "bouncer.enabled = false",
            f'bouncer.listen = "127.0.0.1:{self.bouncer}"\ncluster.limits = "{scope}"\n'
            # Checks of health have connections of their own.
            "bouncer.health.interval_s = 0\n"
            f'executions.languages = "{self.plain_languages(scratch)}"')
        config.write_text(text, encoding="utf-8")

    def plain_languages(self, scratch):
        """Languages that need nothing, so that nothing is prepared in the background."""
        path = pathlib.Path(scratch) / "languages.toml"
        plain = (PLAIN_LANGUAGE.format(name=name) for name in PLAIN_LANGUAGES)
        path.write_text("\n".join(plain), encoding="utf-8")
        return path


class Connections(threading.Thread):
    """Server connections of the tenant, as its database counts them."""

    def __init__(self, database):
        super().__init__(daemon=True)
        self.database, self.most, self.samples, self.over = database, 0, 0, threading.Event()
        sql = ("SELECT count(*) FROM pg_stat_activity WHERE datname = 'shop'"
               " AND backend_type = 'client backend'\n")
        argv = ["psql", "-XAtq", "-d", f"host=127.0.0.1 port={database.port} user=postgres dbname=postgres"]
        self.sql = sql.replace("\n", ";\n")
        self.psql = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self):
        while not self.over.is_set():
            self.psql.stdin.write(self.sql)
            self.psql.stdin.flush()
            self.most = max(self.most, int(self.psql.stdout.readline()))
            self.samples += 1
            time.sleep(SAMPLE_SECONDS)
        self.psql.stdin.close()
        self.psql.wait()


def committed(database):
    """Transactions of the store so far; a backend tells its figures when it is idle."""
    sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'cove'"
    return int(database.sql(sql, database="postgres"))


def select(node, seconds, churn):
    """pgbench through a node."""
    argv = ["pgbench", "-n", "-c", str(CLIENTS), "-j", "1", "-T", str(seconds), "-f", "-"]
    argv += ["-C"] if churn else []
    target = ["-h", "127.0.0.1", "-p", str(node.bouncer), "-U", "postgres", "shop"]
    process = subprocess.Popen([*argv, *target], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    process.stdin.write("SELECT 1;\n")
    process.stdin.close()
    return process


def measure(binary, scope, given):
    """Both nodes of one scope, started, used and stopped."""
    with tempfile.TemporaryDirectory(prefix="cove-bench-limits-") as scratch, \
            poolers.postgres(scratch) as database:
        for name in ("cove", "shop"):
            database.sql(f"CREATE DATABASE {name}", database="postgres")
        url = f"postgres://postgres@127.0.0.1:{database.port}/cove"
        nodes = [BouncerNode(binary, scratch, name, url, scope) for name in ("one", "two")]
        try:
            for node in nodes:
                node.start()
            token = rivals.run([binary, "token", "--data-dir", nodes[0].data]).strip()
            client = Client(nodes[0].address, token)
            wait_for_nodes(client, len(nodes))
            client.json("POST", "/v1/tenants", {
                "name": "shop", "server": f"127.0.0.1:{database.port}", "database": "shop",
                "users": [{"name": "postgres", "auth": "trust"}],
                "limits": {"server_connections_max": CONNECTIONS_MAX, "clients_max": CLIENTS_MAX},
            }, status=201)
            for process in [select(node, 1, given.churn) for node in nodes]:
                process.wait()
            pids = [node.process.pid for node in nodes]
            connections = Connections(database)
            connections.start()
            before, stored = sum(map(own_cpu_seconds, pids)), committed(database)
            done = failed = 0
            for process in [select(node, given.seconds, given.churn) for node in nodes]:
                text, errors = process.stdout.read(), process.stderr.read()
                if process.wait() != 0:
                    raise SystemExit(f"pgbench: {errors}")
                done += int(TRANSACTIONS.search(text)[1])
                failed += int((FAILED.search(text) or [0, 0])[1])
            cpu = sum(map(own_cpu_seconds, pids)) - before
            stored = committed(database) - stored
            connections.over.set()
            connections.join()
        finally:
            for node in nodes:
                node.process.stop()
    if failed or (scope != "node" and connections.most > CONNECTIONS_MAX):
        raise SystemExit(f"{scope}: {failed} failed, {connections.most} server connections")
    return {"cpu_us": cpu * 1e6 / done, "per_second": done / given.seconds,
            "store_per_second": stored / given.seconds, "connections": connections.most}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--binary", default="target/release/cove")
    parser.add_argument("--out", help="where the figures go, as JSON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--churn", action="store_true", help="a connection for each transaction")
    given = parser.parse_args()
    binary = str(pathlib.Path(given.binary).resolve())
    rounds = {scope: [] for scope in SCOPES}
    for number in range(given.rounds):
        for scope in SCOPES[number % 3:] + SCOPES[:number % 3]:
            rounds[scope].append(measure(binary, scope, given))
    print(f"{'limits':8} {'CPU µs':>8} {'per s':>8} {'store per s':>12} {'connections':>12}")
    figures = {}
    for scope, found in rounds.items():
        figures[scope] = {name: statistics.median(it[name] for it in found) for name in found[0]}
        it = figures[scope]
        print(f"{scope:8} {it['cpu_us']:8.1f} {it['per_second']:8.0f}"
              f" {it['store_per_second']:12.1f} {it['connections']:12.0f}")
    if given.out:
        report = {"machine": machine.describe(), "churn": given.churn, "medians": figures, "rounds": rounds}
        pathlib.Path(given.out).write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
