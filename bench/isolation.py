#!/usr/bin/python3
"""Latency of a quiet tenant, alone and while another tenant floods the same service.

    bench/isolation.py --binary target/release/cove --out isolation.json

Starts one server. For each case the quiet tenant repeats one operation over one connection and
checks every answer: alone, then beside each kind of flood, round after round, so that both meet the
same machine. The flood is a process of its own with another tenant's token (or none), as many
connections as are asked for, and the lowest priority; the quiet client has a high one: neither's
own use of the processor is what is measured, because they would have machines of their own. The
server has prepared its languages before anything is measured. Prints percentiles and the ratio of the 99th ones; exits with 1 when an answer was
wrong, an honest request failed, or a ratio is above `--ratio-max`.

Debian's Python; root, for sandboxes.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections import Counter

import machine
import rivals
from client import Client
from sessions.servers import Process

ECHO = rivals.ROOT / "examples" / "agents" / "echo"
# A quiet tenant asks, looks at the answer, and asks again a little later.
PAUSE_SECONDS = 0.01
QUIET_NICE = -10
# A flood has begun when its connections have been answered for so long.
FLOOD_BEGINS_SECONDS = 0.7
FLOOD_ANSWER_SECONDS_MAX = 60
# Rendered once: a flood is not to be slow because it writes JSON.
LARGE_BODY = json.dumps({"argv": ["x" * (8 << 20)], "agent": 7}).encode()
BUSY = ["/usr/bin/python3", "-c", "while True: pass"]
CATALOG = "/catalog/v1/main"
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [
    {"id": 1, "name": "id", "type": "long", "required": False}]}
KINDS = ("work", "large-bodies", "failing", "unauthenticated")


# --- The quiet tenant: each operation is asked once for each step, and its answer checked.


def run_execution(client, number):
    body = {"argv": ["/bin/echo", str(number)]}
    result = client.json("POST", "/v1/executions?wait=true", body)
    return result["verdict"] == "OK" and result["stdout"] == f"{number}\n"


def queue_execution(client, number):
    body = {"argv": ["/bin/echo", str(number)]}
    job = client.json("POST", "/v1/executions", body, status=202)
    result = client.json("GET", f"/v1/executions/{job['id']}?wait=true")
    result = result["result"]
    return result["verdict"] == "OK" and result["stdout"] == f"{number}\n"


def create_session(client, number):
    made = client.json("POST", "/v1/sessions", {"agent": "quiet"}, status=201)
    return made["agent"] == "quiet" and number >= 0, made["id"]


def exec_in_session(client, number, session):
    body = {"argv": ["/bin/echo", str(number)]}
    return client.json("POST", f"/v1/sessions/{session}/exec", body)["stdout"] == f"{number}\n"


def load_table(client):
    table = client.json("GET", f"{CATALOG}/namespaces/quiet/tables/t")
    return table["metadata"]["schemas"][0]["fields"][0]["name"] == "id"


def commit_table(client, number):
    body = {"requirements": [],
            "updates": [{"action": "set-properties", "updates": {"number": str(number)}}]}
    table = client.json("POST", f"{CATALOG}/namespaces/quiet/tables/t", body)
    return table["metadata"]["properties"]["number"] == str(number)


def operation(case, client):
    """What the quiet tenant repeats, as a function of a number; not timed: what cleans up."""
    if case == "session-exec":
        _, session = create_session(client, 0)
        yield lambda number: exec_in_session(client, number, session)
        client.request("DELETE", f"/v1/sessions/{session}")
        return
    if case == "session-create":
        left = []

        def create(number):
            is_right, session = create_session(client, number)
            left.append(session)
            return is_right

        def remove():
            for session in left:
                client.request("DELETE", f"/v1/sessions/{session}")
            left.clear()

        create.after = remove
        yield create
        return
    yield {
        "execution": lambda number: run_execution(client, number),
        "execution-queued": lambda number: queue_execution(client, number),
        "catalog-load": lambda _: load_table(client),
        "catalog-commit": lambda number: commit_table(client, number),
    }[case]


CASES = {
    "execution": "executions",
    "execution-queued": "executions",
    "session-exec": "sessions",
    "session-create": "sessions",
    "catalog-load": "catalog",
    "catalog-commit": "catalog",
}


# --- The flood, in a process of its own.


class FloodConnection:
    """One connection of the flood; opened anew when the server closes it."""

    def __init__(self, address, token, counts):
        self.address, self.token, self.counts = address, token, counts
        self.streams = None

    async def ask(self, method, path, body=None):
        """Status and body of one request; -1 when the connection was lost."""
        data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        credential = f"authorization: Bearer {self.token}\r\n" if self.token else ""
        head = (f"{method} {path} HTTP/1.1\r\nhost: flood\r\n{credential}"
                f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n")
        try:
            async with asyncio.timeout(FLOOD_ANSWER_SECONDS_MAX):
                status, answer = await self._exchange(head.encode() + data)
        except (OSError, EOFError, ValueError, TimeoutError):
            self.close()
            await asyncio.sleep(0.01)
            status, answer = -1, b""
        self.counts[status] += 1
        return status, answer

    async def _exchange(self, request):
        if self.streams is None:
            host, port = self.address.rsplit(":", 1)
            self.streams = await asyncio.open_connection(host, int(port))
        reader, writer = self.streams
        writer.write(request)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = int(head.split(" ", 2)[1])
        if "transfer-encoding: chunked" in head:
            parts = []
            while size := int(await reader.readline(), 16):
                parts.append((await reader.readexactly(size + 2))[:-2])
            await reader.readline()
            answer = b"".join(parts)
        else:
            length = head.partition("content-length:")[2].split("\r\n")[0].strip()
            answer = await reader.readexactly(int(length or 0))
        if "connection: close" in head:
            self.close()
        return status, answer

    def close(self):
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def flood_executions(ask, number):
    turn = number % 4
    if turn == 0:
        body = {"argv": BUSY, "limits": {"cpu_ms": 300, "wall_ms": 3000}}
        await ask("POST", "/v1/executions?wait=true", body)
    elif turn == 1:
        body = {"argv": ["/bin/sleep", "2"], "limits": {"wall_ms": 5000}}
        await ask("POST", "/v1/executions?wait=true", body)
    elif turn == 2:
        await ask("POST", "/v1/executions?wait=true", {"argv": ["/bin/true"]})
    else:
        await ask("POST", "/v1/executions", {"argv": ["/bin/sleep", "0.2"]})


async def flood_sessions(ask, number):
    status, answer = await ask("POST", "/v1/sessions", {"agent": "flood"})
    if status != 201:
        return
    session = json.loads(answer)["id"]
    for turn in range(10):
        body = {"argv": ["/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]}
        if (turn + number) % 2:
            body = {"argv": ["/bin/echo", "x"]}
        await ask("POST", f"/v1/sessions/{session}/exec", body)
    await ask("DELETE", f"/v1/sessions/{session}")


async def flood_catalog(ask, number):
    name = f"{CATALOG}/namespaces/flood/tables/t{number}"
    await ask("POST", f"{CATALOG}/namespaces/flood/tables",
              {"name": f"t{number}", "schema": SCHEMA})
    for turn in range(20):
        await ask("GET", name)
        updates = [{"action": "set-properties", "updates": {"turn": str(turn)}}]
        await ask("POST", name, {"requirements": [], "updates": updates})
    await ask("GET", f"{CATALOG}/namespaces/flood/tables")


WORK = {"executions": flood_executions, "sessions": flood_sessions, "catalog": flood_catalog}
# What each service is asked in vain, and with how much.
PATHS = {"executions": "/v1/executions?wait=true", "sessions": "/v1/sessions",
         "catalog": f"{CATALOG}/namespaces"}


async def flood_once(service, kind, connection, number):
    """One turn of one connection."""
    if kind == "work":
        await WORK[service](connection.ask, number)
    elif kind == "large-bodies":
        await connection.ask("POST", PATHS[service], LARGE_BODY)
    elif kind == "failing":
        await connection.ask("POST", PATHS[service], {"no_such_field": number})
        await connection.ask("GET", f"{PATHS[service].partition('?')[0]}/none-such")
    else:
        await connection.ask("POST", PATHS[service], {"argv": ["/bin/true"]})
        await connection.ask("GET", PATHS[service].partition("?")[0])


async def flood(service, kind, address, token, connections):
    """Floods until the process is told to end; prints what was answered."""
    counts, number, over = Counter(), iter(range(1 << 60)), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)

    async def repeat():
        connection = FloodConnection(address, token, counts)
        try:
            while not over.is_set():
                await flood_once(service, kind, connection, next(number))
        finally:
            connection.close()

    tasks = [asyncio.ensure_future(repeat()) for _ in range(connections)]
    await over.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps(counts))


# --- One measurement.


@contextlib.contextmanager
def flooded(world, service, kind, given):
    """A flood for as long as the block takes; its statuses and CPU time are in what is given."""
    found = {}
    if kind is None:
        yield found
        return
    token = "" if kind == "unauthenticated" else world.flood_token
    argv = [sys.executable, __file__, "--flood", service, kind, world.address, token,
            str(given.connections)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    os.setpriority(os.PRIO_PROCESS, process.pid, given.flood_nice)
    try:
        time.sleep(FLOOD_BEGINS_SECONDS)
        yield found
        found["cpu_seconds"] = machine.tree_cpu_seconds(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            text, _ = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
    found["statuses"] = json.loads(text or "{}")


class World:
    """The server under test with a quiet and a flooding tenant."""

    def __init__(self, binary, scratch, settings):
        self.binary, self.data = binary, pathlib.Path(scratch) / "data"
        config = pathlib.Path(scratch) / "cove.toml"
        config.write_text(settings, encoding="utf-8")
        argv = [binary, "serve", "--data-dir", self.data, "--config", config,
                "--http", f"127.0.0.1:{rivals.free_port()}"]
        self.process = Process(argv, pathlib.Path(scratch) / "cove.log")

    def start(self):
        self.process.start()
        addresses = self.data / "addresses.json"
        found = rivals.wait_until(lambda: json.loads(addresses.read_text()),
                                  self.process.process, self.process.log, "cove")
        self.address = found["http"]
        token = [self.binary, "token", "--data-dir", self.data]
        self.quiet_token = rivals.run(token).strip()
        self.flood_token = rivals.run([*token, "create", "--name", "flood", "--tenant", "flood"]).strip()
        client = Client(self.address, self.quiet_token)
        while any(it.get("preparing") for it in client.json("GET", "/v1/languages")["languages"]):
            time.sleep(0.5)
        client.close()
        for name, token in (("quiet", self.quiet_token), ("flood", self.flood_token)):
            client = Client(self.address, token)
            files = [{"path": "agent.py", "content": (ECHO / "agent.py").read_text()}]
            runtime = {"type": "command", "argv": ["python3", "agent.py"]}
            client.json("POST", "/v1/agents", {"name": name, "files": files, "runtime": runtime},
                        status=201)
            client.close()
        client = Client(self.address, self.quiet_token)
        for name in ("quiet", "flood"):
            client.json("POST", f"{CATALOG}/namespaces", {"namespace": [name]})
        rivals.run([self.binary, "catalog", "grant", "--data-dir", self.data, "add",
                    "tenant:flood", "write", "--namespace", "flood"])
        client.json("POST", f"{CATALOG}/namespaces/quiet/tables", {"name": "t", "schema": SCHEMA})
        client.close()


class Samples:
    """Latencies of one case beside one kind of flood, from all rounds."""

    def __init__(self):
        self.ms, self.failures, self.statuses = [], [], Counter()
        self.flood_cpu, self.server_cpu, self.seconds = 0, 0, 0

    def measure(self, ask, seconds, first):
        """Repeats the operation; `first` is the number of the first one."""
        end, number = time.monotonic() + seconds, first
        while time.monotonic() < end:
            number += 1
            started = time.monotonic()
            try:
                if not ask(number):
                    self.failures.append("a wrong answer")
                self.ms.append((time.monotonic() - started) * 1000)
            except Exception as error:  # Whatever is raised is a request that failed.
                self.failures.append(f"{type(error).__name__}: {error}"[:200])
            getattr(ask, "after", lambda: None)()
            time.sleep(PAUSE_SECONDS)
        return number

    def quantile(self, share):
        ordered = sorted(self.ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None

    def document(self, alone):
        p99, base = self.quantile(0.99), alone.quantile(0.99)
        return {
            "requests": len(self.ms), "failed": len(self.failures),
            "failures": self.failures[:5],
            **{f"p{int(q * 100)}_ms": self.quantile(q) for q in (0.5, 0.95, 0.99)},
            "p99_ratio": p99 / base if p99 and base else None,
            "per_second": len(self.ms) / self.seconds,
            "server_cpu_percent": 100 * self.server_cpu / self.seconds,
            "flood_cpu_percent": 100 * self.flood_cpu / self.seconds,
            "flood_per_second": sum(self.statuses.values()) / self.seconds,
            "flood_statuses": dict(self.statuses),
        }


def measure_case(world, case, given):
    """Documents of one case by kind of flood, with that of the quiet tenant alone."""
    kinds = [None, *(kind for kind in KINDS if not given.flood_only or kind in given.flood_only)]
    found, number = {kind: Samples() for kind in kinds}, 0
    for _ in range(given.rounds):
        for kind in kinds:
            samples, client = found[kind], Client(world.address, world.quiet_token)
            with contextlib.contextmanager(operation)(case, client) as ask:
                with flooded(world, CASES[case], kind, given) as told:
                    before, started = machine.tree_cpu_seconds(world.process.pid), time.monotonic()
                    number = samples.measure(ask, given.seconds, number)
                    samples.seconds += time.monotonic() - started
                    samples.server_cpu += machine.tree_cpu_seconds(world.process.pid) - before
            samples.flood_cpu += told.get("cpu_seconds", 0)
            samples.statuses.update(told.get("statuses", {}))
            client.close()
            settle(world)
    return {kind or "alone": samples.document(found[None]) for kind, samples in found.items()}


def settle(world):
    """Ends what the flood has left: its jobs and sessions."""
    client = Client(world.address, world.flood_token)
    for state in ("queued", "running"):
        status, text = client.request("GET", f"/v1/executions?status={state}&limit=100")
        for job in json.loads(text)["executions"] if status == 200 else []:
            client.request("DELETE", f"/v1/executions/{job['id']}")
    for session in client.json("GET", "/v1/sessions?limit=100")["sessions"]:
        client.request("DELETE", f"/v1/sessions/{session['id']}")
    client.close()
    time.sleep(0.3)


def print_case(case, documents):
    for kind, row in documents.items():
        ratio = f"{row['p99_ratio']:.1f}" if row["p99_ratio"] else "-"
        times = " ".join(f"{row[f'p{q}_ms'] or 0:9.1f}" for q in (50, 95, 99))
        print(f"{case:17} {kind:16} {row['requests']:6} {row['failed']:6} {times} {ratio:>6} "
              f"{row['server_cpu_percent']:6.0f} {row['flood_cpu_percent']:6.0f} "
              f"{row['flood_per_second']:8.0f}  {row['flood_statuses']}", flush=True)
        for failure in row["failures"][:2]:
            print(f"    {failure}")


def main():
    if sys.argv[1:2] == ["--flood"]:
        service, kind, address, token, connections = sys.argv[2:]
        asyncio.run(flood(service, kind, address, token, int(connections)))
        return 0
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--binary", default="target/release/cove")
    arguments.add_argument("--only", action="append", choices=CASES, help="a case; may be repeated")
    arguments.add_argument("--flood-only", action="append", choices=KINDS)
    arguments.add_argument("--connections", type=int, default=64, help="of the flood")
    arguments.add_argument("--flood-nice", type=int, default=19,
                           help="of the flood's process; less where other work is on the machine")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=4, help="of each slice of a round")
    arguments.add_argument("--ratio-max", type=float, default=3)
    arguments.add_argument("--settings", default="[sandbox]\nwarm_runtimes = false\n[sessions]\n"
                           "disk_bytes = 67108864\ndisk_inodes = 8192\n")
    arguments.add_argument("--out", type=pathlib.Path)
    given = arguments.parse_args()
    results = {}
    with rivals.disk_directory() as scratch:
        world = World(pathlib.Path(given.binary).resolve(), scratch, given.settings)
        try:
            world.start()
            os.setpriority(os.PRIO_PROCESS, 0, QUIET_NICE)
            print(f"{'case':17} {'flood':16} {'n':>6} {'failed':>6} {'p50 ms':>9} {'p95 ms':>9} "
                  f"{'p99 ms':>9} {'ratio':>6} {'cpu %':>6} {'its %':>6} {'its /s':>8}  statuses")
            for case in given.only or CASES:
                results[case] = measure_case(world, case, given)
                print_case(case, results[case])
        finally:
            sys.stderr.write(world.process.tail() + "\n")
            world.process.stop()
    if given.out:
        document = {"machine": machine.describe(), "connections": given.connections,
                    "cases": results}
        given.out.write_text(json.dumps(document, indent=1), encoding="utf-8")
    rows = [row for documents in results.values() for row in documents.values()]
    is_good = all(not row["failed"] and (row["p99_ratio"] or 0) <= given.ratio_max for row in rows)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
