#!/usr/bin/python3
"""Memory, disk and CPU of one more of each: what to multiply when a machine is chosen.

    bench/sizing.py --binary target/release/cove [--only sandbox,session]

Starts a server in control groups of its own, makes a number of things, and divides the difference
by the number: memory without page cache but with what the kernel keeps (the group's usage less its
file pages), disk as allocated blocks of the data directory, CPU of the whole group for one operation.
Prints a table for docs/operations.md. Root, for sandboxes; needs nothing but Python and mkfs.ext4.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

SETTLE_S = 300
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": number, "name": f"column_{number}", "type": "string", "required": False}
        for number in range(1, 21)
    ],
}


class Group:
    """A memory and a CPU group for one server and all that it starts."""

    def __init__(self, purpose="sizing"):
        root = pathlib.Path("/sys/fs/cgroup")
        self.is_v1 = (root / "memory").is_dir()
        name = f"cove-{purpose}-{os.getpid()}"
        homes = [root / "memory", root / "cpuacct"] if self.is_v1 else [root]
        self.homes = [home / name for home in homes]
        for home in self.homes:
            home.mkdir()

    def enter(self):
        """Moves the calling process there: between fork and exec."""
        for home in self.homes:
            (home / "cgroup.procs").write_text(str(os.getpid()))

    def memory(self):
        home = self.homes[0]
        fields = dict(line.split() for line in (home / "memory.stat").read_text().splitlines())
        if self.is_v1:
            used = int((home / "memory.usage_in_bytes").read_text())
            pages = int(fields["total_inactive_file"]) + int(fields["total_active_file"])
        else:
            used = int((home / "memory.current").read_text())
            pages = int(fields["inactive_file"]) + int(fields["active_file"])
        return used - pages

    def cpu_s(self):
        if self.is_v1:
            return int((self.homes[1] / "cpuacct.usage").read_text()) / 1e9
        fields = dict(line.split() for line in (self.homes[0] / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6

    def remove(self):
        for home in self.homes:
            for path in sorted(home.glob("**/"), key=lambda it: len(str(it)), reverse=True):
                try:
                    path.rmdir()
                except OSError:
                    pass


class Server:
    """One server on a data directory of its own, but for what languages have prepared once."""

    # Where that is between two of them; set before the first one.
    prepared = None

    def __init__(self, binary, config=""):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="cove-sizing-"))
        self.group = Group()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        top = f'http = "127.0.0.1:{self.port}"\nbouncer.listen = "127.0.0.1:0"\n'
        top += 'bouncer.mysql.listen = "127.0.0.1:0"\n'
        (self.home / "cove.toml").write_text(top + config)
        self.data = self.home / "data"
        if (self.prepared / "cache").exists():
            self.data.mkdir(mode=0o700)
            shutil.move(self.prepared / "cache", self.data / "cache")
        arguments = [binary, "serve", "--config", self.home / "cove.toml", "--data-dir", self.data]
        with open(self.home / "log", "w") as log:
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log, preexec_fn=self.group.enter)
        self.token = None
        try:
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise

    def wait_ready(self):
        deadline = time.monotonic() + SETTLE_S
        while self.token is None:
            try:
                self.token = (self.data / "token").read_text().strip()
                self.ask("GET", "/health/ready")
            except OSError:
                self.token = None
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError((self.home / "log").read_text()) from None
                time.sleep(0.1)
        self.settle()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.group.remove()
        if (self.data / "cache").exists():
            shutil.move(self.data / "cache", self.prepared / "cache")
        shutil.rmtree(self.home)

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        address = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(address, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith(("{", "[")) else text

    def metric(self, name):
        lines = self.ask("GET", "/metrics").splitlines()
        return float(next(line for line in lines if line.startswith(name + " ")).split()[1])

    def settle(self):
        """Waits until all sandboxes that are kept prepared are there, and nothing is going on."""
        deadline = time.monotonic() + SETTLE_S
        while self.metric("cove_sandboxes_preparing") or "preparing" in self.ask("GET", "/health/ready"):
            if time.monotonic() > deadline:
                raise RuntimeError("the server does not come to rest")
            time.sleep(0.2)
        time.sleep(2)

    def disk(self):
        os.sync()
        total = 0
        for path in self.data.rglob("*"):
            total += path.lstat().st_blocks * 512
        return total


def share(before, after, count):
    return (after - before) / count


def per_prepared(binary, config, few, many):
    figures = []
    for count in (few, many):
        with Server(binary, config.format(count)) as server:
            figures.append((server.group.memory(), server.disk()))
    (memory, disk), (more_memory, more_disk) = figures
    return share(memory, more_memory, many - few), share(disk, more_disk, many - few)


def sandboxes(binary):
    bare = "sandbox.warm_runtimes = false\nsandbox.warm = {}\n[sessions]\nresident_max = 0\n"
    yield "prepared sandbox (`sandbox.warm`)", *per_prepared(binary, bare, 2, 34), None
    warm = "sandbox.warm = 2\nsandbox.warm_runtimes_ready = {}\n[sessions]\nresident_max = 0\n"
    yield (
        "round of prepared sandboxes with interpreters (`warm_runtimes_ready`), one for each language "
        "that can be started ahead",
        *per_prepared(binary, warm, 1, 9),
        None,
    )


def sessions(binary, count=16):
    config = "sandbox.warm_runtimes = false\n[sessions]\nready = 0\n"
    with Server(binary, config) as server:
        server.ask("POST", "/v1/sessions", {})
        agent = {
            "name": "echo",
            "files": [{"path": "agent.py", "content": ECHO.read_text()}],
            "runtime": {"type": "command", "argv": ["python3", "agent.py"]},
        }
        server.ask("POST", "/v1/agents", agent)
        for label, request in (
            ("session with a sandbox, no agent, empty disk", {}),
            ("session with an agent in Python that has started", {"agent": "echo"}),
        ):
            server.settle()
            memory, disk, cpu = server.group.memory(), server.disk(), server.group.cpu_s()
            ids = [server.ask("POST", "/v1/sessions", request)["id"] for _ in range(count)]
            if request:
                for id_ in ids:
                    server.ask("POST", f"/v1/sessions/{id_}/messages", {"content": "hello"})
            cpu = share(cpu, server.group.cpu_s(), count)
            server.settle()
            yield (
                label,
                share(memory, server.group.memory(), count),
                share(disk, server.disk(), count),
                cpu,
            )
            if not request:
                done = 50
                cpu = server.group.cpu_s()
                for _ in range(done):
                    server.ask("POST", f"/v1/sessions/{ids[0]}/exec", {"argv": ["/bin/true"]})
                yield "command in a session (`/bin/true`)", None, None, share(cpu, server.group.cpu_s(), done)
                continue
            memory_rest, cpu = server.group.memory(), server.group.cpu_s()
            for id_ in ids:
                server.ask("POST", f"/v1/sessions/{id_}/stop", {})
            server.settle()
            yield (
                "the same session at rest (stopped): its row and its disk",
                share(memory, server.group.memory(), count),
                share(disk, server.disk(), count),
                share(cpu, server.group.cpu_s(), count),
            )
            assert memory_rest >= 0


def executions(binary, count=400):
    config = "[sessions]\nresident_max = 0\n"
    with Server(binary, config) as server:
        for label, request in (
            ("execution of `/bin/true`, answered at once", {"argv": ["/bin/true"]}),
            ("execution of Python, interpreter started ahead", {"language": "python", "source": "print(6*7)"}),
        ):
            server.ask("POST", "/v1/executions?wait=true", request)
            server.settle()
            cpu = server.group.cpu_s()
            for _ in range(count):
                server.ask("POST", "/v1/executions?wait=true", request)
            server.settle()
            yield label, None, None, share(cpu, server.group.cpu_s(), count)
        memory, disk, cpu = server.group.memory(), server.disk(), server.group.cpu_s()
        batch = {"executions": [{"argv": ["/bin/echo", "x" * 1000]}] * 100}
        for _ in range(20):
            server.ask("POST", "/v1/executions/batch", batch)
        while server.ask("GET", "/v1/queue?all=true")["finished"] < 2000:
            time.sleep(0.2)
        cpu = share(cpu, server.group.cpu_s(), 2000)
        server.settle()
        yield (
            "asynchronous execution with 1 KB of request and of result, kept (SQLite)",
            share(memory, server.group.memory(), 2000),
            share(disk, server.disk(), 2000),
            cpu,
        )


def tables(binary, count=1000):
    config = "[sessions]\nresident_max = 0\n"
    with Server(binary, config) as server:
        base = "/catalog/v1/main/namespaces"
        server.ask("POST", base, {"namespace": ["shop"]})
        server.ask("POST", f"{base}/shop/tables", {"name": "first", "schema": SCHEMA})
        server.settle()
        memory, disk, cpu = server.group.memory(), server.disk(), server.group.cpu_s()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            names = (f"table_{number}" for number in range(count))
            make = lambda name: server.ask(  # noqa: E731
                "POST", f"{base}/shop/tables", {"name": name, "schema": SCHEMA}
            )
            list(pool.map(make, names))
        cpu = share(cpu, server.group.cpu_s(), count)
        server.settle()
        yield (
            "catalog table of 20 columns, without snapshots, in memory",
            share(memory, server.group.memory(), count),
            share(disk, server.disk(), count),
            cpu,
        )
        cpu, loads = server.group.cpu_s(), 1000
        for number in range(loads):
            server.ask("GET", f"{base}/shop/tables/table_{number % count}")
        yield "load of a table", None, None, share(cpu, server.group.cpu_s(), loads)
        disk, cpu, commits = server.disk(), server.group.cpu_s(), 300
        for number in range(commits):
            update = {"action": "set-properties", "updates": {"k": str(number)}}
            body = {"requirements": [], "updates": [update]}
            server.ask("POST", f"{base}/shop/tables/first", body)
        cpu = share(cpu, server.group.cpu_s(), commits)
        yield "commit to a table (one metadata file more)", None, share(disk, server.disk(), commits), cpu


def size(value):
    if value is None:
        return "–"
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value:.0f} B"


PARTS = {"sandbox": sandboxes, "session": sessions, "execution": executions, "table": tables}
ECHO = pathlib.Path(__file__).parent.parent / "examples/agents/echo/agent.py"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, divided by commas")
    options = parser.parse_args()
    binary = options.binary.resolve()
    if os.geteuid() != 0:
        sys.exit("sizing.py: sandboxes need root")
    # So that a server that runs is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    version = subprocess.run([binary, "version"], capture_output=True, text=True, check=True)
    load = os.getloadavg()[0]
    print(f"{version.stdout.splitlines()[0]}, {os.cpu_count()} cores, Linux {platform.release()}, load {load:.1f}\n")
    print("| one more | memory | disk | CPU to make or do it |\n|---|--:|--:|--:|")
    Server.prepared = pathlib.Path(tempfile.mkdtemp(prefix="cove-sizing-prepared-"))
    try:
        for part in options.only.split(","):
            for label, memory, disk, cpu in PARTS[part](binary):
                took = "–" if cpu is None else f"{cpu * 1000:.1f} ms"
                print(f"| {label} | {size(memory)} | {size(disk)} | {took} |", flush=True)
    finally:
        shutil.rmtree(Server.prepared)


if __name__ == "__main__":
    main()
