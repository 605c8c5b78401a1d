#!/usr/bin/env python3
"""How soon sessions answer again when their node dies.

Three nodes share a PostgreSQL; sessions with a small file are at the first, and rest. It is killed with
`SIGKILL`. From then on each session is asked for through the other two nodes, as often as it takes:
for its record, for a program, and for its file. The time of each is from the kill to its first good
answer. All are asked at once, so that the times are those of the last of many as well.

Some more sessions of the first node are at work: their agent says something ten times a second, and each
has a listener at one of the other nodes. Their *silence* is the longest time between two events of a
listener, from a second before the kill to the end of the turn, which is told with an error. Numbers of
events are checked to have no gap, and each turn to have one end.

`--minio` has the files in a bucket, `--object-round-trip-ms` far away, and `--prefetch-bytes 0` keeps the
nodes from fetching files ahead: what that saves is the difference.

The CPU time from the kill to the last answer is divided by the sessions: that of the two servers that
are left, of their spawners and all sandboxes, of PostgreSQL, of this client, and what is left of the
busy time of the machine: threads of the kernel (loop devices, file systems, network namespaces that
go), programs that ended, the end of the sandboxes of the node that was killed, which is on the same
machine here, and whatever else ran.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import threading
import time

import far_objects
import kept
import machine
import rivals
from bouncer import poolers
from client import Client, Refused
from cluster import ECHO, Node, own_cpu_seconds, wait_for_nodes

TICKING = pathlib.Path(__file__).parent / "programs" / "ticking_agent.py"

CONTENT = b"here\n"
GIVE_UP_SECONDS = 120
PAUSE_SECONDS = 0.02
PREFETCH_STILL_SECONDS = 4
RESTORED = 'cove_session_restored_pieces_total{{from="{}"}}'
TABLES = """\
[sessions]
snapshot_after_turn = true
disk_bytes = 67108864
disk_inodes = 8192
ready = 0
resident_max = {resident}
prefetch_bytes_max = {prefetch}
"""


def others_than(client, verb):
    """Has all nodes but the one that is asked take no work, or take it again."""
    for node in client.json("GET", "/v1/nodes")["nodes"]:
        if not node["is_this"]:
            client.json("POST", f"/v1/nodes/{node['id']}/{verb}")
    time.sleep(3)


def prepare(first, data_bytes):
    """A session with files: a small one, and data that cannot be packed."""
    session = first.json("POST", "/v1/sessions", {"agent": "echo"}, status=201)["id"]
    path = f"/v1/sessions/{session}"
    data = f"head -c {data_bytes} /dev/urandom > data"
    first.json("POST", f"{path}/exec", {"command": f"echo here > small; {data}"})
    return session


def store_files(first, session):
    """Brings its files to the object store, whose next owner is told so: no node drains any more."""
    path = f"/v1/sessions/{session}"
    # A turn brings the files there, and has done so when the next one begins.
    for text in ("one", "two"):
        first.json("POST", f"{path}/messages?wait=true", {"content": text})


class Listener:
    """Hears the events of a session at a node, from its own thread."""

    def __init__(self, session, address, token):
        self.session, self.address, self.token = session, address, token
        self.events, self.sender = [], None
        self.connection = http.client.HTTPConnection(address, timeout=GIVE_UP_SECONDS)
        self.connection.request("GET", f"/v1/sessions/{session}/events",
                                headers={"authorization": f"Bearer {token}"})
        self.answer = self.connection.getresponse()
        if self.answer.status != 200:
            raise SystemExit(f"{session}: {self.answer.status} {self.answer.read()[:200]!r}")
        self.ended = threading.Event()
        threading.Thread(target=self.hear, daemon=True).start()

    def hear(self):
        """Notes each event and when it came, up to the end of a turn that was lost."""
        is_lost = False
        for line in self.answer:
            if line.startswith(b"data:"):
                event = json.loads(line[5:])
                self.events.append((time.monotonic(), event))
                is_lost = is_lost or event["type"] == "error"
                if is_lost and event["type"] == "done":
                    break
        self.ended.set()

    def kept(self, last):
        """Numbers of the events that are kept from the first one that was heard to the last."""
        first = next(event["seq"] for _, event in self.events if "seq" in event)
        client, after, kept = Client(self.address, self.token), first - 1, set()
        while after is not None and after < last:
            path = f"/v1/sessions/{self.session}/events?after={after}&limit=1000"
            page = client.json("GET", path, headers={"accept": "application/json"}.items())
            kept.update(event["seq"] for event in page["events"] if event["seq"] <= last)
            after = page.get("next_after")
        return kept

    def silence(self, killed):
        """The longest time between two events from a second before the kill on."""
        if not self.ended.wait(GIVE_UP_SECONDS):
            raise SystemExit(f"{self.session}: its turn has no end")
        heard = [event["seq"] for _, event in self.events if "seq" in event]
        if any(later <= before for before, later in zip(heard, heard[1:])):
            raise SystemExit(f"{self.session}: events come twice: {heard}")
        kept = self.kept(heard[-1])
        if not kept.issubset(heard):
            raise SystemExit(f"{self.session}: events were not heard: {kept.difference(heard)}")
        kinds = [event["type"] for _, event in self.events]
        if kinds.count("error") != 1 or kinds.count("done") != kinds.count("turn_start"):
            raise SystemExit(f"{self.session}: a turn has other ends than one: {kinds}")
        at = [came for came, _ in self.events if came >= killed - 1]
        return max(later - before for before, later in zip(at, at[1:]))


def listen(first, addresses, token, count):
    """Sessions that are at work, each with a listener that has heard something."""
    listeners = []
    for number in range(count):
        session = first.json("POST", "/v1/sessions", {"agent": "ticking"}, status=201)["id"]
        path = f"/v1/sessions/{session}/messages"
        first.json("POST", f"{path}?wait=true", {"content": "one"})
        listener = Listener(session, addresses[number % len(addresses)], token)
        # Its answer is a stream that nobody reads.
        sender = http.client.HTTPConnection(first.address, timeout=GIVE_UP_SECONDS)
        sender.request("POST", path, json.dumps({"content": "tick", "on_disconnect": "continue"}),
                       {"authorization": f"Bearer {token}", "content-type": "application/json"})
        listener.sender = sender
        listeners.append(listener)
    while not all(len(listener.events) > 10 for listener in listeners):
        time.sleep(0.1)
    return listeners


def until_answered(clients, killed, ask):
    """Seconds from the kill to the first good answer of any of the clients, asked in turns."""
    number = 0
    while time.monotonic() - killed < GIVE_UP_SECONDS:
        client = clients[number % len(clients)]
        number += 1
        try:
            if ask(client):
                return time.monotonic() - killed
        except (OSError, Refused, http.client.HTTPException):
            pass
        time.sleep(PAUSE_SECONDS)
    raise SystemExit("a session did not answer any more")


def times_of(session, addresses, token, killed):
    """The times of one session: its record, a program, its file."""
    clients = [Client(address, token) for address in addresses]
    path = f"/v1/sessions/{session}"

    def record(client):
        return client.json("GET", path)["id"] == session

    def program(client):
        ended = client.json("POST", f"{path}/exec", {"command": "echo $((6*7))"})
        return ended["stdout"] == "42\n"

    def file(client):
        return client.request("GET", f"{path}/files/small") == (200, CONTENT)

    return [until_answered(clients, killed, ask) for ask in (record, program, file)]


def summary(values):
    """Median, 99th percentile and greatest of times in seconds."""
    return {
        "p50_s": statistics.median(values),
        "p99_s": statistics.quantiles(values, n=100)[98],
        "max_s": max(values),
    }


def cpu_seconds(servers, database):
    """CPU time so far by who takes it; the rest of the machine's is `rest`."""
    ticks = os.sysconf("SC_CLK_TCK")
    fields = machine.cpu_fields(machine.read("/proc/stat"))
    # All of a processor's time but idle and waiting for disks: proc_stat(5).
    busy = (sum(fields[:8]) - fields[3] - fields[4]) / ticks
    client = time.process_time()
    figures = {
        "servers": sum(map(own_cpu_seconds, servers)),
        "spawners and sandboxes": sum(map(machine.fine_tree_cpu_seconds, servers)),
        "PostgreSQL": machine.fine_tree_cpu_seconds(database),
        "client": client,
    }
    figures["spawners and sandboxes"] -= figures["servers"]
    figures["rest"] = busy - sum(figures.values())
    return figures


def metric(addresses, token, name):
    """Sum of a metric over some nodes."""
    total = 0
    for address in addresses:
        client = Client(address, token)
        status, text = client.request("GET", "/metrics")
        client.close()
        if status != 200:
            raise SystemExit(f"{address}: {status} of /metrics")
        lines = (line.rpartition(" ") for line in text.decode().splitlines())
        total += sum(float(value) for found, _, value in lines if found == name)
    return total


def wait_for_prefetch(addresses, token):
    """Bytes that the nodes have fetched ahead, once they fetch no more."""
    fetched, since = None, time.monotonic()
    while time.monotonic() - since < PREFETCH_STILL_SECONDS:
        now = metric(addresses, token, "cove_session_prefetched_bytes")
        if now != fetched:
            fetched, since = now, time.monotonic()
        time.sleep(0.2)
    return fetched


def deploy(first, name, program):
    """Makes an agent of one program."""
    first.json("POST", "/v1/agents", {
        "name": name,
        "files": [{"path": "agent.py", "content": program.read_text(encoding="utf-8")}],
        "runtime": {"type": "command", "argv": ["python3", "agent.py"]},
    }, status=201)


def measure(nodes, token, given, database):
    """Prepares sessions at the first node, kills it, and asks for all of them."""
    count = given.sessions
    # A node that has just been started compiles libraries of languages for a minute or two.
    for node in nodes:
        client = Client(node.address, token)
        while any(it.get("preparing") for it in client.json("GET", "/v1/languages")["languages"]):
            time.sleep(1)
        client.close()
    first = Client(nodes[0].address, token)
    wait_for_nodes(first, len(nodes))
    deploy(first, "echo", ECHO / "agent.py")
    deploy(first, "ticking", TICKING)
    addresses = [node.address for node in nodes[1:]]
    others_than(first, "drain")
    sessions = [prepare(first, given.data_bytes) for _ in range(count)]
    listeners = listen(first, addresses, token, given.listening)
    others_than(first, "undrain")
    for session in sessions:
        store_files(first, session)
    fetched = wait_for_prefetch(addresses, token)
    servers = [node.process.pid for node in nodes[1:]]
    with concurrent.futures.ThreadPoolExecutor(max_workers=count) as threads:
        before = cpu_seconds(servers, database.pid)
        killed = time.monotonic()
        nodes[0].process.process.send_signal(signal.SIGKILL)
        asked = [threads.submit(times_of, session, addresses, token, killed)
                 for session in sessions]
        times = [one.result() for one in asked]
        after = cpu_seconds(servers, database.pid)
    names = ("record", "program", "file")
    of_all = {name: summary(of_it) for name, of_it in zip(names, zip(*times), strict=True)}
    if listeners:
        of_all["silence"] = summary([listener.silence(killed) for listener in listeners])
    return {
        "times": of_all,
        "prefetched_bytes": fetched,
        "restored_pieces": {way: metric(addresses, token, RESTORED.format(way))
                            for way in ("objects", "prefetched")},
        "cpu_ms_of_session": {name: (after[name] - before[name]) * 1000 / count for name in after},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--binary", default="target/release/cove")
    parser.add_argument("--out", help="where the figures go, as JSON")
    parser.add_argument("--publish", action="store_true",
                        help="keep them in results/, for `bench/run.py --render`")
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--listening", type=int, default=20,
                        help="sessions at work that somebody listens to, beside those")
    parser.add_argument("--data-bytes", type=int, default=0,
                        help="more data in each session, which cannot be packed")
    parser.add_argument("--minio", help="MinIO's program: files are in its bucket, not in a directory")
    parser.add_argument("--object-round-trip-ms", type=float, default=0,
                        help="how far away the bucket is")
    parser.add_argument("--prefetch-bytes", type=int, default=4 << 30,
                        help="files that the next node fetches ahead; 0: none")
    parser.add_argument("--resident", type=int, default=256,
                        help="sandboxes of each node: no fewer than there are sessions")
    given = parser.parse_args()
    about = kept.about()
    binary = str(pathlib.Path(given.binary).resolve())
    with tempfile.TemporaryDirectory(prefix="cove-bench-failover-") as scratch, \
            poolers.postgres(scratch) as database, contextlib.ExitStack() as stack:
        database.sql("CREATE DATABASE cove", database="postgres")
        url = f"postgres://postgres@127.0.0.1:{database.port}/cove"
        tables = TABLES.format(resident=given.resident, prefetch=given.prefetch_bytes)
        objects = None
        if given.minio:
            store = far_objects.store(scratch, given.minio, given.object_round_trip_ms)
            objects = stack.enter_context(store)
        nodes = [Node(binary, scratch, name, url, 0, tables, objects)
                 for name in ("one", "two", "three")]
        try:
            for node in nodes:
                node.start()
            token = rivals.run([binary, "token", "--data-dir", nodes[0].data]).strip()
            report = {"machine": machine.describe(), "sessions": given.sessions,
                      "load_average": machine.load_average()[0],
                      **measure(nodes, token, given, database)}
        finally:
            for node in nodes:
                node.process.stop()
    for name, figures in report["times"].items():
        print(f"{name:8} p50 {figures['p50_s']:6.3f} s  p99 {figures['p99_s']:6.3f} s"
              f"  last {figures['max_s']:6.3f} s")
    pieces = ", ".join(f"{int(count)} {way}" for way, count in report["restored_pieces"].items())
    print(f"fetched ahead {report['prefetched_bytes'] / (1 << 20):.1f} MiB; pieces restored: {pieces}")
    parts = [f"{name} {value:.1f}" for name, value in report["cpu_ms_of_session"].items()]
    print(f"CPU per session, ms: {', '.join(parts)}; load average {report['load_average']}")
    if given.publish:
        kept.publish("failover", {**about, "scenarios": {"failover": report}})
    if given.out:
        pathlib.Path(given.out).write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
