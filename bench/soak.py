#!/usr/bin/python3
"""Honest and hostile clients on every listener at once, and faults now and then, for as long as one likes.

    bench/soak.py --binary target/release/cove --minutes 120 --out soak
    bench/soak.py --minutes 120 --publish     keeps it in results/, for `bench/run.py --render`

Starts one server with PostgreSQL and MariaDB behind its bouncer. Honest clients of each service
check every answer; hostile ones hold connections, send garbage, read nothing, flood with a token of
their own. Now and then connections to the databases are ended, a database stands still, or a process in
a sandbox is killed. Memory, descriptors and disk of the server, and the latency of each service, are
sampled. Writes OUT.json and OUT.svg, and exits with 1 when an honest answer was wrong or refused while
no fault was the reason, or when the last third of the samples lies above the middle third by more than
the tolerance.

Debian's Python, with python3-psycopg2 and python3-pymysql; root, for sandboxes.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import struct
import sys
import threading
import time

import kept
import machine
import plots
import rivals
from client import Client
from gateway import servers
from sessions.servers import Process

# Of so long a run there are no more samples than that, and none is shorter than some seconds.
SAMPLES_MAX, SAMPLE_SECONDS_MIN = 360, 5
# What the last third may be above the middle one: allocators keep what a peak took. Latency is that of
# a machine that has more to do than it can.
TOLERANCE, LATENCY_TOLERANCE = 1.25, 1.5
# Between two faults, and how long after one honest answers may be wrong for it.
FAULT_SECONDS, EXCUSED_SECONDS = 60, 10
STANDSTILL_SECONDS = 2
TRIPS = 50
ECHO = rivals.ROOT / "examples" / "agents" / "echo"
# Source of logins with wrong passwords.
HOSTILE_ADDRESS = "127.0.0.9"
NULS = "import os\nb=bytes(1<<20)\nfor f in (1,2):\n for _ in range(16): os.write(f,b)"


class Ledger:
    """Latencies and failures of honest clients, by service."""

    def __init__(self):
        self.lock, self.rows, self.excused_until = threading.Lock(), {}, 0.0

    def excuse(self, seconds):
        """From now on failures are a fault's for so long; one under way may make them longer."""
        with self.lock:
            self.excused_until = max(self.excused_until, time.monotonic() + seconds)

    def note(self, service, seconds, failure=None):
        nothing = {"ms": [], "window": [], "failures": [], "count": 0, "beside_faults": 0}
        with self.lock:
            row = self.rows.setdefault(service, nothing)
            row["count"] += 1
            if failure is None:
                row["ms"].append(seconds * 1000)
                row["window"].append(seconds * 1000)
            elif time.monotonic() < self.excused_until:
                row["beside_faults"] += 1
            elif len(row["failures"]) < 20:
                row["failures"].append(failure)

    def window(self):
        """The median of each service since the last look."""
        with self.lock:
            found = {}
            for service, row in self.rows.items():
                if row["window"]:
                    found[service] = round(statistics.median(row["window"]), 3)
                row["window"] = []
            return found

    def summary(self):
        def quantile(values, share):
            return sorted(values)[min(len(values) - 1, int(len(values) * share))]

        with self.lock:
            return {
                service: {
                    "requests": row["count"],
                    "failed": row["count"] - len(row["ms"]) - row["beside_faults"],
                    "failed_beside_faults": row["beside_faults"],
                    "failures": row["failures"],
                    **{
                        f"p{share}_ms": round(quantile(row["ms"], share / 100), 2)
                        for share in (50, 95, 99)
                        if row["ms"]
                    },
                }
                for service, row in self.rows.items()
            }


class World:
    """The server under test, its addresses and its tokens."""

    def __init__(self, binary, scratch, postgres, mariadb):
        self.binary, self.postgres, self.mariadb = binary, postgres, mariadb
        self.program = servers.build_client().read_bytes()
        self.data = pathlib.Path(scratch) / "data"
        config = pathlib.Path(scratch) / "cove.toml"
        config.write_text(
            "[sandbox]\nwarm_runtimes = false\n[sessions]\ndisk_bytes = 67108864\ndisk_inodes = 8192\n"
            + "".join(
                f'[[bouncer.tenants]]\nname = "{name}"\nengine = "{engine}"\nserver = "{name}"\n'
                f'database = "{servers.DATABASE}"\n'
                "[[bouncer.tenants.users]]\n"
                f'name = "{servers.USER}"\npassword = "{servers.PASSWORD}"\n'
                f'[bouncer.servers.{name}]\naddress = "127.0.0.1:{at.port}"\n'
                for name, engine, at in (("pg", "postgres", postgres), ("my", "mysql", mariadb))
            ),
            encoding="utf-8",
        )
        argv = [binary, "serve", "--data-dir", self.data, "--config", config]
        for listener in ("--http", "--bouncer", "--bouncer-mysql"):
            argv += [listener, f"127.0.0.1:{rivals.free_port()}"]
        self.process = Process(argv, pathlib.Path(scratch) / "cove.log")

    def start(self):
        self.process.start()
        addresses = self.data / "addresses.json"
        self.addresses = rivals.wait_until(
            lambda: json.loads(addresses.read_text()),
            self.process.process,
            self.process.log,
            "cove",
        )
        token = [self.binary, "token", "--data-dir", self.data]
        self.token = rivals.run(token).strip()
        self.hostile = rivals.run([*token, "create", "--name", "mallory"]).strip()
        time.sleep(2)

    def address(self, name):
        host, port = self.addresses[name].rsplit(":", 1)
        return host, int(port)

    def login(self, listener):
        """How a driver logs in at one of the bouncer's listeners."""
        host, port = self.address(listener)
        return {"host": host, "port": port, "user": servers.USER, "password": servers.PASSWORD}

    def client(self, token=None):
        return Client(self.addresses["http"], token or self.token)

    def ask_postgres(self, text):
        """What PostgreSQL answers to its owner."""
        at = self.postgres
        return rivals.run(["psql", "-XAtq", "-h", at.directory, "-p", str(at.port), "-U", "postgres",
                           "-c", text])  # fmt: skip

    def ask_mariadb(self, text):
        """What MariaDB answers to its owner."""
        socket_path = f"--socket={self.mariadb.directory}/mysql.sock"
        return rivals.run(["mariadb", "--no-defaults", "--user=root", socket_path, "-N", "-e", text])

    def sample(self):
        pid = self.process.pid
        status = machine.read(f"/proc/{pid}/status")
        anonymous = int(status.partition("RssAnon:")[2].split()[0])
        disk = used_kib(self.data)
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        processes = len(machine.descendants(pid))
        return {"rss_anon_mib": anonymous / 1024, "descriptors": descriptors,
                "disk_mib": disk / 1024, "processes": processes}


# --- Honest clients: each is a generator that does one thing for each step.


def executions(world):
    client, number = world.client(), 0
    while True:
        number += 1
        body = {"argv": ["/bin/echo", str(number)]}
        result = client.json("POST", "/v1/executions?wait=true", body)
        yield result["verdict"] == "OK" and result["stdout"] == f"{number}\n"


def sessions(world):
    client = world.client()
    while True:
        made = client.json("POST", "/v1/sessions", {"agent": "echo"}, status=201)
        yield True
        for number in range(40):
            body = {"argv": ["/bin/echo", str(number)]}
            result = client.json("POST", f"/v1/sessions/{made['id']}/exec", body)
            yield result["stdout"] == f"{number}\n"
        client.json("DELETE", f"/v1/sessions/{made['id']}")
        yield True


def queue(world):
    """Jobs that are accepted durably, and asked for until they have ended."""
    client, number = world.client(), 0
    while True:
        number += 1
        body = {"argv": ["/bin/echo", str(number)]}
        made = client.json("POST", "/v1/executions", body, status=202)
        result = client.json("GET", f"/v1/executions/{made['id']}?wait=true")
        yield result["result"]["stdout"] == f"{number}\n"


def gateway(world):
    """A database's round trips from inside of a sandbox: those of each program are one step."""
    client = world.client()
    body = {"agent": "echo", "grants": [{"kind": "postgres", "tenant": "pg"}]}
    session = client.json("POST", "/v1/sessions", body, status=201)["id"]
    status, text = client.request(
        "PUT", f"/v1/sessions/{session}/files/{servers.CLIENT}?mode=0755", world.program
    )
    yield status in (200, 201, 204)
    words = servers.arguments("postgres", "127.0.0.1:5432", trips=TRIPS)
    body = {"argv": [f"./{servers.CLIENT}", *words]}
    while True:
        result = client.json("POST", f"/v1/sessions/{session}/exec", body)
        told = json.loads(result["stdout"])
        yield (told["answers"], told["wrong"], told["refused"]) == (TRIPS, 0, 0)


def contexts(world):
    """Cells of an interpreter that keeps what they define."""
    client = world.client()
    while True:
        made = client.json("POST", "/v1/sessions", {"agent": "echo"}, status=201)
        path = f"/v1/sessions/{made['id']}/contexts"
        context = client.json("POST", path, {"language": "python"}, status=201)["id"]
        client.json("POST", f"{path}/{context}/execute", {"code": "n = 0"})
        for number in range(1, 41):
            told = client.json("POST", f"{path}/{context}/execute", {"code": "n += 1; n"})
            yield told["results"][0]["data"]["text/plain"] == str(number)
        client.json("DELETE", f"/v1/sessions/{made['id']}")


def catalog(world):
    client, base = world.client(), "/catalog/v1/main"
    while True:
        # The namespace of a run that was ended may still be there.
        name = f"n{random.getrandbits(64):x}"
        client.json("POST", f"{base}/namespaces", {"namespace": [name]})
        yield True
        schema = {"type": "struct", "schema-id": 0, "fields": [
            {"id": 1, "name": "id", "type": "long", "required": False}]}
        client.json("POST", f"{base}/namespaces/{name}/tables", {"name": "t", "schema": schema})
        for _ in range(40):
            table = client.json("GET", f"{base}/namespaces/{name}/tables/t")
            yield table["metadata"]["schemas"][0]["fields"][0]["name"] == "id"
        client.request("DELETE", f"{base}/namespaces/{name}/tables/t?purgeRequested=true")
        client.request("DELETE", f"{base}/namespaces/{name}")


def questions(connect, statement):
    """Asks for numbers over connections of `connect`, each for two hundred of them."""
    while True:
        with contextlib.closing(connect()) as connection:
            for number in range(200):
                with connection.cursor() as cursor:
                    cursor.execute(statement, (number,))
                    answer = cursor.fetchone()
                connection.commit()
                yield answer == (number,)


def postgres_client(world):
    import psycopg2

    login = world.login("bouncer")
    return questions(lambda: psycopg2.connect(dbname="pg", **login), "SELECT %s::int")


def mysql_client(world):
    import pymysql

    login = world.login("mysql")
    return questions(lambda: pymysql.connect(database="my", **login), "SELECT %s")


HONEST = {
    "executions": executions,
    "queue": queue,
    "sessions": sessions,
    "contexts": contexts,
    "gateway": gateway,
    "catalog": catalog,
    "postgres": postgres_client,
    "mysql": mysql_client,
}


# --- Hostile clients: each holds or floods for a while and begins again.


def connection(address):
    made = socket.create_connection(address, 10)
    made.settimeout(5)
    return made


def hold(world, listener, first, count, seconds=8):
    """Connections that say `first` and nothing more."""
    held = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                one = connection(world.address(listener))
                held.append(one)
                one.sendall(first)
        time.sleep(seconds)
    finally:
        for one in held:
            one.close()


def silent(world):
    hold(world, "http", b"", 150)


def half_heads(world):
    hold(world, "http", b"GET / HTTP/1.1\r\nx-long: ", 150)


def slow_bodies(world):
    head = (f"POST /v1/executions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {world.hostile}"
            "\r\ncontent-type: application/json\r\ncontent-length: 1048576\r\n\r\n{").encode()
    hold(world, "http", head, 64)


def unread_answers(world):
    """Answers of 32 MiB of NULs that nobody reads."""
    body = json.dumps({"argv": ["/usr/bin/python3", "-c", NULS],
                       "limits": {"output_bytes": 16 << 20, "memory_bytes": 128 << 20}})
    head = (f"POST /v1/executions?wait=true HTTP/1.1\r\nhost: a\r\nauthorization: Bearer "
            f"{world.hostile}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n{body}").encode()
    hold(world, "http", head, 8, 15)


def flood_executions(world):
    client = world.client(world.hostile)
    for _ in range(50):
        client.request("POST", "/v1/executions", {"argv": ["/bin/sleep", "0.2"]})
    client.close()


def flood_sessions(world):
    client, made = world.client(world.hostile), []
    for _ in range(20):
        status, text = client.request("POST", "/v1/sessions", {"agent": "mallory"})
        if status == 201:
            made.append(json.loads(text)["id"])
    time.sleep(3)
    for session in made:
        client.request("DELETE", f"/v1/sessions/{session}")
    client.close()


def garbage(world):
    """Bytes that mean nothing, and beginnings that mean something, to every listener."""
    for listener in ("http", "bouncer", "mysql"):
        for _ in range(20):
            with contextlib.suppress(OSError), connection(world.address(listener)) as one:
                first = random.choice([b"", struct.pack("!II", 8, 80877103), b"\x16\x03\x01\x02"])
                one.sendall(first + random.randbytes(random.randrange(1, 4096)))
                one.recv(4096)


def half_logins(world):
    startup = struct.pack("!II", 60, 196608) + b"user\0bench\0"
    hold(world, "bouncer", startup, 100, 4)
    hold(world, "mysql", b"\x20\x00", 100, 4)


def wrong_login(world):
    """A login that fails: SCRAM with a proof of zeros (RFC 5802). It comes from an address of its
    own, because the bouncer refuses an address from which too many logins have failed."""

    def send(kind, body):
        one.sendall(kind + struct.pack("!I", len(body) + 4) + body)

    def receive():
        kind, length = struct.unpack("!cI", one.recv(5, socket.MSG_WAITALL))
        return kind, one.recv(length - 4, socket.MSG_WAITALL)

    with socket.create_connection(world.address("bouncer"), 10, (HOSTILE_ADDRESS, 0)) as one:
        send(b"", struct.pack("!I", 196608) + f"user\0{servers.USER}\0database\0pg\0\0".encode())
        receive()
        first = b"n,,n=,r=" + random.randbytes(12).hex().encode()
        send(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(first)) + first)
        kind, challenge = receive()
        if kind == b"R":
            nonce = challenge[4:].split(b",")[0]
            send(b"p", b"c=biws," + nonce + b",p=" + b"A" * 43 + b"=")
            kind, _ = receive()
        return kind


def wrong_passwords(world):
    for _ in range(10):
        with contextlib.suppress(OSError, struct.error):
            wrong_login(world)
    client = world.client("cove_0000000000000000")
    for _ in range(50):
        client.request("GET", "/v1/sessions")
        client.request("POST", "/catalog/v1/oauth/tokens", {"grant_type": "client_credentials"})
    client.close()


def bad_documents(world):
    """Documents that are deep, long or no documents."""
    for body in (b"[" * 5000 + b"]" * 5000, b'{"a":' * 2000, b'"' + b"x" * (1 << 20) + b'"'):
        for path in ("/v1/executions", "/v1/sessions", "/catalog/v1/main/namespaces"):
            with contextlib.closing(connection(world.address("http"))) as one:
                one.sendall(
                    f"POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {world.hostile}"
                    f"\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
                    "\r\n\r\n".encode() + body
                )
                one.recv(4096)


HOSTILE = [silent, half_heads, slow_bodies, unread_answers, flood_executions, flood_sessions,
           garbage, half_logins, wrong_passwords, bad_documents]


def run_honest(world, service, ledger, stop):
    while not stop.is_set():
        steps = HONEST[service](world)
        try:
            while not stop.is_set():
                started = time.monotonic()
                is_right = next(steps)
                failure = None if is_right else "a wrong answer"
                ledger.note(service, time.monotonic() - started, failure)
                time.sleep(0.02)
        except Exception as error:  # Whatever a driver raises is a failure of the service.
            ledger.note(service, 0, f"{type(error).__name__}: {error}"[:300])
            time.sleep(0.5)


def run_hostile(world, attack, stop):
    while not stop.is_set():
        # Refused, cut or broken: that is what hostile clients are for.
        with contextlib.suppress(Exception):
            attack(world)
        stop.wait(0.5)


# --- Faults: what an operator's day brings, now and then. Each says how many it was done to.


def end_connections(world):
    """All connections of the bouncer to both databases are ended."""
    text = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        f" WHERE usename = '{servers.USER}' AND pid <> pg_backend_pid()"
    )
    ended = len(world.ask_postgres(text).split())
    for number in world.ask_mariadb(
        f"SELECT id FROM information_schema.processlist WHERE user = '{servers.USER}'"
    ).split():
        with contextlib.suppress(rivals.Unavailable):
            world.ask_mariadb(f"KILL {int(number)}")
            ended += 1
    return ended


def stand_still(database):
    """A database whose processes do nothing for a while."""

    def fault(world):
        tree = machine.descendants(getattr(world, database).pid)
        try:
            for pid in tree:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            time.sleep(STANDSTILL_SECONDS)
        finally:
            for pid in tree:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        return len(tree)

    fault.__name__ = f"{database} stands still"
    return fault


def kill_in_a_sandbox(world):
    """A process in a sandbox is killed from outside."""
    inside = [pid for pid in machine.descendants(world.process.pid) if is_in_a_sandbox(pid)]
    if not inside:
        return 0
    os.kill(random.choice(inside), signal.SIGKILL)
    return 1


def is_in_a_sandbox(pid):
    """Whether a process has a namespace of process numbers that is not ours, and is not its first one:
    the whole sandbox would go with that."""
    numbers = machine.read(f"/proc/{pid}/status").partition("NSpid:")[2].split("\n")[0].split()
    return len(numbers) > 1 and numbers[-1] != "1"


end_connections.__name__ = "connections to databases ended"
kill_in_a_sandbox.__name__ = "a process in a sandbox killed"
FAULTS = [end_connections, stand_still("postgres"), kill_in_a_sandbox, stand_still("mariadb")]


def run_faults(world, ledger, stop, marks):
    """One after the other, each a while after the one before."""
    began, number = time.monotonic(), 0
    while not stop.wait(FAULT_SECONDS):
        fault = FAULTS[number % len(FAULTS)]
        number += 1
        mark = [round((time.monotonic() - began) / 60, 3), fault.__name__, 0]
        ledger.excuse(EXCUSED_SECONDS + STANDSTILL_SECONDS)
        # What a fault does not find is no fault: a process may be gone.
        with contextlib.suppress(Exception):
            mark[2] = fault(world)
        marks.append(mark)
        ledger.excuse(EXCUSED_SECONDS)


# --- What came of it.


def drift(values):
    """Median of the last third over that of the middle third."""
    third = max(1, len(values) // 3)
    middle, last = values[third:2 * third] or values, values[-third:]
    return statistics.median(last) / max(statistics.median(middle), 1e-9)


def drifts_of(samples):
    """The drift of each figure of the server, and of the latency of each service."""
    of_server = {key: drift([max(it[key], 1) for it in samples]) for key in SERIES}
    of_services = {
        service: drift([it["p50_ms"][service] for it in samples if service in it["p50_ms"]])
        for service in sorted({name for it in samples for name in it["p50_ms"]})
    }
    return ({key: round(value, 3) for key, value in of.items()} for of in (of_server, of_services))


SERIES = {
    "rss_anon_mib": "anonymous memory, MiB", "descriptors": "descriptors",
    "processes": "processes", "disk_mib": "disk, MiB",
}  # fmt: skip


def plot(found):
    """The samples as SVG: a line for each figure, and one for the latency of each service."""
    samples = found["samples"]
    series = [(label, [it[key] for it in samples]) for key, label in SERIES.items()]
    for service in HONEST:
        values = [it["p50_ms"][service] for it in samples if service in it["p50_ms"]]
        if values:
            series.append((f"{service}, p50 ms", values))
    title = f"All services under load for {found['minutes']:g} minutes, with faults (strokes)"
    marks = [(minute, words) for minute, words, *_ in found["faults"]]
    return plots.lines(title, found["minutes"], series, marks)


def soak(world, minutes, with_hostile):
    ledger, stop, samples, marks = Ledger(), threading.Event(), [], []
    for agent in (("echo", world.token), ("mallory", world.hostile)):
        files = [{"path": "agent.py", "content": (ECHO / "agent.py").read_text()}]
        body = {"name": agent[0], "files": files,
                "runtime": {"type": "command", "argv": ["python3", "agent.py"]}}
        Client(world.addresses["http"], agent[1]).json("POST", "/v1/agents", body, status=201)
    threads = [threading.Thread(target=run_honest, args=(world, service, ledger, stop))
               for service in HONEST]
    if with_hostile:
        threads += [threading.Thread(target=run_hostile, args=(world, attack, stop))
                    for attack in HOSTILE]
        threads.append(threading.Thread(target=run_faults, args=(world, ledger, stop, marks)))
    for thread in threads:
        thread.start()
    end = time.monotonic() + minutes * 60
    try:
        while time.monotonic() < end and world.process.process.poll() is None:
            time.sleep(max(SAMPLE_SECONDS_MIN, minutes * 60 / SAMPLES_MAX))
            samples.append({**world.sample(), "p50_ms": ledger.window()})
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return samples, ledger.summary(), marks


def used_kib(directory):
    """KiB that the files of a directory take. Files may go while they are counted."""
    blocks = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                blocks += os.lstat(os.path.join(folder, name)).st_blocks
            except FileNotFoundError:
                continue
    return blocks // 2


def parse_arguments():
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--binary", default="target/release/cove")
    arguments.add_argument("--minutes", type=float, default=60)
    arguments.add_argument("--out", type=pathlib.Path, default=pathlib.Path("soak"))
    arguments.add_argument("--publish", action="store_true",
                           help="write into bench/results, where the pages are rendered from")
    arguments.add_argument("--quiet-minutes", type=float, default=1,
                           help="honest clients alone before, to compare with")
    return arguments.parse_args()


def measure(given):
    """The document of a soak."""
    binary = pathlib.Path(given.binary).resolve()
    about = kept.about()
    with rivals.disk_directory() as scratch:
        with servers.postgres(scratch) as pg, servers.mariadb(scratch) as my:
            world = World(binary, scratch, pg, my)
            world.start()
            try:
                _, quiet, _ = soak(world, given.quiet_minutes, with_hostile=False)
                for name, token in (("echo", world.token), ("mallory", world.hostile)):
                    world.client(token).request("DELETE", f"/v1/agents/{name}")
                samples, busy, marks = soak(world, given.minutes, with_hostile=True)
                alive = world.process.process.poll() is None
                log = machine.read(world.process.log)
            finally:
                sys.stderr.write(world.process.tail() + "\n")
                world.process.stop()
    errors = [line for line in log.splitlines() if " ERROR " in line]
    of_server, of_services = drifts_of(samples)
    found = {"minutes": given.minutes, "alive": alive, "drift": of_server,
             "latency_drift": of_services, "quiet": quiet, "under_attack": busy, "faults": marks,
             "errors_logged": errors[:10], "samples": samples}
    return {**about, "load_end": machine.load_average(), "soak": found}


def is_good(found):
    """Whether everything was right and stayed as it was."""
    right = found["alive"] and not found["errors_logged"]
    right &= all(row["failed"] == 0 for row in found["under_attack"].values())
    flat = all(value <= TOLERANCE for value in found["drift"].values())
    return right and flat and all(
        value <= LATENCY_TOLERANCE for value in found["latency_drift"].values()
    )


def show(found):
    """The figures of each service, and what has moved."""
    print(f"{'service':12}{'requests':>10}{'failed':>8}{'by faults':>11}{'p50 ms':>9}{'p99 ms':>9}"
          f"{'quiet p99':>11}{'drift':>8}")
    for service, row in found["under_attack"].items():
        before = found["quiet"].get(service, {}).get("p99_ms", float("nan"))
        print(f"{service:12}{row['requests']:10}{row['failed']:8}{row['failed_beside_faults']:11}"
              f"{row.get('p50_ms', 0):9.1f}{row.get('p99_ms', 0):9.1f}{before:11.1f}"
              f"{found['latency_drift'].get(service, 0):8.2f}")
        for failure in row["failures"][:3]:
            print(f"    {failure}")
    print("last third over middle third:", found["drift"], "| server alive:", found["alive"],
          "| faults:", [f"{name} ({n})" for _, name, n in found["faults"]], "| errors logged:", len(found["errors_logged"]))
    for line in found["errors_logged"]:
        print(f"    {line[:300]}")


def main():
    given = parse_arguments()
    document = measure(given)
    if given.publish:
        kept.publish("soak", document)
    else:
        text = json.dumps(document, indent=1) + "\n"
        pathlib.Path(f"{given.out}.json").write_text(text, encoding="utf-8")
        pathlib.Path(f"{given.out}.svg").write_text(plot(document["soak"]), encoding="utf-8")
    show(document["soak"])
    return 0 if is_good(document["soak"]) else 1


if __name__ == "__main__":
    sys.exit(main())
