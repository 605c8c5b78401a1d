#!/usr/bin/env python3
"""What a hop costs: a request for a session, asked of the node that has it and of another one.

Two nodes share a PostgreSQL, and a session is at the first. The same requests go to the first node
(`direct`), to the second, which passes them on (`hop`), and through HAProxy to the first (`HAProxy`,
where it is installed): what a proxy costs that knows nothing of what it carries. Rounds take turns.
The CPU is that of both nodes and of HAProxy, without sandboxes. `--streams` also opens so many
streams of the session's events at the second node, and checks that each gets the same turn.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import resource
import shutil
import statistics
import sys
import tempfile
import time

import kept
import machine
import rivals
from bouncer import poolers
from client import Client
from sessions.servers import Process

HERE = pathlib.Path(__file__).resolve().parent
ECHO = HERE.parent / "examples" / "agents" / "echo"
KEY = "5a" * 32
DIRECT, HOP, PROXY = "direct", "hop", "HAProxy"
ROUNDS = 8
OPEN_SECONDS_MAX = 90
IDLE_SECONDS = 20
CREATIONS = 90
FILE_BYTES = 1 << 20
HAPROXY = """\
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen cove
  bind 127.0.0.1:{port}
  server one {address}
"""


def own_cpu_seconds(pid):
    """CPU time of one process, without its children."""
    fields = machine.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[11:13]
    return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")


def url_of_directory(scratch):
    """Objects of all nodes in one directory, as a table of settings says it."""
    return f'url = "{scratch}/objects"\n'


class Node:
    """A server of the cluster."""

    def __init__(self, binary, scratch, name, database, streams, tables="", objects=None):
        self.binary = binary
        self.data = pathlib.Path(scratch) / name
        config = pathlib.Path(scratch) / f"{name}.toml"
        config.write_text(
            f"store.url = {json.dumps(database)}\n"
            f"secrets_key = \"{KEY}\"\nexecutions.jobs.webhook_key = \"{KEY}\"\n"
            "cluster.listen = \"127.0.0.1:0\"\nbouncer.enabled = false\ncatalog.enabled = false\n"
            "sandbox.warm_runtimes = false\n"
            # One tenant has three quarters of what there is, at most.
            f"limits.streams_max = {2 * streams + 1000}\n"
            f"limits.connections_max = {streams + 1000}\n"
            f"limits.connections_per_address_max = {streams + 1000}\n"
            f"[objects]\n{objects or url_of_directory(scratch)}{tables}",
            encoding="utf-8",
        )
        argv = [binary, "serve", "--data-dir", self.data, "--config", config]
        argv += ["--http", f"127.0.0.1:{rivals.free_port()}"]
        self.process = Process(argv, pathlib.Path(scratch) / f"{name}.log")

    def start(self):
        self.process.start()
        addresses = self.data / "addresses.json"
        found = rivals.wait_until(lambda: json.loads(addresses.read_text()),
                                  self.process.process, self.process.log, "cove")
        self.address = found["http"]


def wait_for_nodes(client, count):
    """Waits until all nodes are known, and a renewal longer."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        nodes = client.json("GET", "/v1/nodes")["nodes"]
        if sum(node["state"] == "active" for node in nodes) == count:
            time.sleep(2.5)
            return
        time.sleep(0.1)
    raise SystemExit("the nodes did not find each other")


def idle_transactions(database, nodes):
    """Transactions a second that a node has with the store while nobody asks it anything."""

    def committed():
        # A backend tells its figures when it is idle, a second late at most.
        sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'cove'"
        return int(database.sql(sql, database="postgres"))

    before = committed()
    time.sleep(IDLE_SECONDS)
    return (committed() - before) / IDLE_SECONDS / nodes


def cpu_seconds_with_children(pid):
    """CPU time of one process and of its children that have ended."""
    fields = machine.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[11:15]
    return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")


def creation(clients, pids):
    """What it costs to make a session and to remove it, asked of the nodes in turns."""
    taken = []
    before = sum(map(cpu_seconds_with_children, pids))
    for number in range(CREATIONS):
        client = clients[number % len(clients)]
        started = time.perf_counter()
        session = client.json("POST", "/v1/sessions", {"agent": "echo"}, status=201)["id"]
        taken.append((time.perf_counter() - started) * 1000)
        status, _ = client.request("DELETE", f"/v1/sessions/{session}")
        assert status in (200, 204), status
    cpu = sum(map(cpu_seconds_with_children, pids)) - before
    return {"p50_ms": statistics.median(taken), "cpu_ms": cpu * 1000 / CREATIONS,
            "operations": CREATIONS}


def place_at_first(client, others):
    """A session at the node of `client`, wherever it would be placed."""
    def sandboxes():
        counts = client.json("GET", "/v1/sandboxes?here=true")
        return sum(counts[state] for state in ("warming", "warm", "running", "waiting"))

    elsewhere = []
    while True:
        before = sandboxes()
        session = client.json("POST", "/v1/sessions", {"agent": "echo"}, status=201)["id"]
        if sandboxes() > before:
            break
        elsewhere.append(session)
    for other in elsewhere:
        others.request("DELETE", f"/v1/sessions/{other}")
    return session


def cases(session):
    """What is asked, and a check of the answer."""
    path = f"/v1/sessions/{session}"

    def record(client):
        found = client.json("GET", path)
        assert found["id"] == session, found

    def execute(client):
        found = client.json("POST", f"{path}/exec", {"command": "echo $((6*7))"})
        assert found["stdout"] == "42\n", found

    def read(client):
        status, content = client.request("GET", f"{path}/files/large")
        assert (status, len(content)) == (200, FILE_BYTES), status

    return {"record": (record, 400), "exec": (execute, 60), "file of 1 MiB": (read, 60)}


def measure(case, count, clients, pids):
    """Latencies in ms and CPU in ms for each operation, by the way that was taken."""
    taken = {way: [] for way in clients}
    cpu = {way: 0.0 for way in clients}
    for client in clients.values():
        case(client)
    for _ in range(ROUNDS):
        for way, client in clients.items():
            before = sum(map(own_cpu_seconds, pids))
            for _ in range(count):
                started = time.perf_counter()
                case(client)
                taken[way].append((time.perf_counter() - started) * 1000)
            cpu[way] += sum(map(own_cpu_seconds, pids)) - before
    return {
        way: {
            "p50_ms": statistics.median(all_of_it),
            "p95_ms": statistics.quantiles(all_of_it, n=100)[94],
            "p99_ms": statistics.quantiles(all_of_it, n=100)[98],
            "cpu_ms": cpu[way] * 1000 / len(all_of_it),
            "operations": len(all_of_it),
        }
        for way, all_of_it in taken.items()
    }


async def follow(address, token, path, ready, turn_seen):
    """Reads one stream until a turn has come to its end."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    request = f"GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n"
    writer.write(f"{request}accept: text/event-stream\r\n\r\n".encode())
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            return head.split(b"\r\n")[0].decode()
        ready()
        text = b""
        while b"event: done" not in text:
            piece = await asyncio.wait_for(reader.read(65536), 300)
            if not piece:
                return "ended early"
            text += piece
        turn_seen()
        return None
    finally:
        writer.close()


async def streams(count, node, token, session, client, pids):
    """Opens streams at a node, has one turn spoken, and counts who heard it."""
    state = {"ready": 0, "seen": 0}
    opened, seen = asyncio.Event(), {}

    def ready():
        state["ready"] += 1
        if state["ready"] == count:
            opened.set()

    def turn_seen():
        state["seen"] += 1
        seen.setdefault("last", 0)
        seen["last"] = time.perf_counter()

    last = client.json("GET", f"/v1/sessions/{session}")["last_seq"]
    path = f"/v1/sessions/{session}/events?after={last}"
    memory = [rss(pid) for pid in pids]
    started = time.perf_counter()
    limit = asyncio.Semaphore(200)

    async def one():
        async with limit:
            await asyncio.sleep(0)
        return await follow(node.address, token, path, ready, turn_seen)

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    failed = asyncio.create_task(asyncio.sleep(OPEN_SECONDS_MAX))
    await asyncio.wait([asyncio.create_task(opened.wait()), failed],
                       return_when=asyncio.FIRST_COMPLETED)
    failed.cancel()
    open_seconds = time.perf_counter() - started
    grown = [(rss(pid) - before) / max(count, 1) for pid, before in zip(pids, memory, strict=True)]
    before = [own_cpu_seconds(pid) for pid in pids]
    spoken = time.perf_counter()
    # The server has closed the idle connection.
    client.close()
    await asyncio.to_thread(
        client.request, "POST", f"/v1/sessions/{session}/messages", {"content": "hello"}
    )
    outcomes = await asyncio.gather(*tasks)
    failures = [outcome for outcome in outcomes if outcome]
    cpu = [own_cpu_seconds(pid) - was for pid, was in zip(pids, before, strict=True)]
    return {
        "streams": count, "opened": state["ready"], "heard": state["seen"],
        "failures": sorted(set(failures))[:5], "open_s": open_seconds,
        "last_heard_s": seen.get("last", spoken) - spoken,
        "kib_per_stream_owner": grown[0] / 1024, "kib_per_stream_front": grown[1] / 1024,
        "turn_cpu_s_owner": cpu[0], "turn_cpu_s_front": cpu[1],
    }


def rss(pid):
    """Resident memory of a process, in bytes."""
    for line in machine.read(f"/proc/{pid}/status").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


@contextlib.contextmanager
def proxy(scratch, address):
    """HAProxy before a node; none where it is not installed."""
    program = shutil.which("haproxy")
    if program is None:
        yield None
        return
    port = rivals.free_port()
    config = pathlib.Path(scratch) / "haproxy.cfg"
    config.write_text(HAPROXY.format(port=port, address=address), encoding="utf-8")
    process = Process([program, "-f", config, "-db"], pathlib.Path(scratch) / "haproxy.log")
    process.start()
    time.sleep(1)
    try:
        yield f"127.0.0.1:{port}", process.pid
    finally:
        process.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--binary", default="target/release/cove")
    parser.add_argument("--out", help="where the figures go, as JSON")
    parser.add_argument("--publish", action="store_true",
                        help="keep them in results/, for `bench/run.py --render`")
    parser.add_argument("--streams", type=int, default=0, help="streams of events at the other node")
    given = parser.parse_args()
    about = kept.about()
    binary = str(pathlib.Path(given.binary).resolve())
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="cove-bench-cluster-") as scratch, \
            poolers.postgres(scratch) as database:
        database.sql("CREATE DATABASE cove", database="postgres")
        url = f"postgres://postgres@127.0.0.1:{database.port}/cove"
        nodes = [Node(binary, scratch, name, url, given.streams) for name in ("one", "two")]
        third = Node(binary, scratch, "three", url, given.streams)
        try:
            for node in nodes:
                node.start()
            token = rivals.run([binary, "token", "--data-dir", nodes[0].data]).strip()
            clients = {DIRECT: Client(nodes[0].address, token), HOP: Client(nodes[1].address, token)}
            wait_for_nodes(clients[DIRECT], len(nodes))
            idle = idle_transactions(database, len(nodes))
            print(f"idle: {idle:.2f} transactions a second of each node at the store")
            files = [{"path": "agent.py", "content": (ECHO / "agent.py").read_text()}]
            runtime = {"type": "command", "argv": ["python3", "agent.py"]}
            clients[DIRECT].json("POST", "/v1/agents",
                                 {"name": "echo", "files": files, "runtime": runtime}, status=201)
            session = place_at_first(clients[DIRECT], clients[HOP])
            make = {"command": f"head -c {FILE_BYTES} /dev/urandom > large"}
            clients[DIRECT].json("POST", f"/v1/sessions/{session}/exec", make)
            pids = [node.process.pid for node in nodes]
            report = {"machine": machine.describe(), "idle_tps_of_node": idle, "cases": {}}
            with proxy(scratch, nodes[0].address) as found:
                ways, counted = dict(clients), list(pids)
                if found is not None:
                    ways[PROXY] = Client(found[0], token)
                    # HAProxy works in a child of the process that was started.
                    counted += machine.descendants(found[1])
                for name, (case, count) in cases(session).items():
                    report["cases"][name] = measure(case, count, ways, counted)
                    show(name, report["cases"][name])
            if given.streams:
                report["streams"] = asyncio.run(
                    streams(given.streams, nodes[1], token, session, clients[DIRECT], pids)
                )
                print(json.dumps(report["streams"], indent=1))
            report["creation"] = creation_over(nodes, third, token)
        finally:
            nodes.append(third)
            for node in nodes:
                node.process.stop()
        if given.publish:
            kept.publish("cluster", {**about, "scenarios": {"cluster": report}})
        if given.out:
            pathlib.Path(given.out).write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0


def creation_over(nodes, third, token):
    """Sessions made by one node while the others take no work, and by three in turns."""
    third.start()
    clients = [Client(node.address, token) for node in (*nodes, third)]
    wait_for_nodes(clients[0], len(clients))
    others = [node["id"] for node in clients[0].json("GET", "/v1/nodes")["nodes"]
              if not node["is_this"]]
    pids = [node.process.pid for node in (*nodes, third)]
    report = {}
    for name, asked, verb in (("one node", clients[:1], "drain"), ("three nodes", clients, "undrain")):
        for node in others:
            clients[0].json("POST", f"/v1/nodes/{node}/{verb}")
        time.sleep(3)
        creation(asked, pids)
        report[name] = creation(asked, pids)
        print(f"{name:12} create p50 {report[name]['p50_ms']:7.2f} ms"
              f"  CPU {report[name]['cpu_ms']:7.2f} ms")
    ratio = len(clients) * report["one node"]["cpu_ms"] / report["three nodes"]["cpu_ms"]
    report["ratio"] = ratio
    print(f"three nodes with processors of their own make {ratio:.2f} times as many sessions as one")
    return report


def show(name, ways):
    for way, figures in ways.items():
        print(
            f"{name:14} {way:8} p50 {figures['p50_ms']:7.3f} ms  p95 {figures['p95_ms']:7.3f}"
            f"  p99 {figures['p99_ms']:7.3f}  CPU {figures['cpu_ms']:6.3f} ms"
            f"  ({figures['operations']})"
        )


if __name__ == "__main__":
    sys.exit(main())
