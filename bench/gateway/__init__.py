"""The gateway: what code in sandboxes reaches by its sockets, beside the same code outside.

`measure` runs the cases that are wanted in rounds and gives a document for `gateway.figures`, which
says what the figures mean.
"""

import contextlib
import pathlib
import random
import resource
import sys
import traceback
from collections import namedtuple

import machine
import report
import rivals
from gateway import cases, servers
from rivals import Unavailable, say
from sessions.cases import quiet

# Two hundred sandboxes have a thousand connections, each with an end in the server.
OPEN_FILES = 20_000

# `rounds` is for what takes long: it takes part in so many rounds only.
Case = namedtuple("Case", "name run rounds", defaults=(None,))
CASES = [
    Case("select", cases.select),
    Case("create", cases.create),
    Case("fair", cases.fair, rounds=3),
]
NAMES = ["gateway", *(f"gateway-{case.name}" for case in CASES)]


def measure(scratch, options):
    """Everything about the gateway that was asked for."""
    asked = options.only or ["gateway"]
    chosen = [c for c in CASES if "gateway" in asked or f"gateway-{c.name}" in asked]
    found = {"rows": [], "unavailable": {}, "versions": {}, "busy_percent": [], "left": []}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, OPEN_FILES)), hard))
    with contextlib.ExitStack() as stack:
        running = Running(stack, pathlib.Path(scratch) / "gateway", options, found)
        for number in options.numbers:
            found["busy_percent"].append(machine.background_busy())
            busy = f"machine {found['busy_percent'][-1]:.0f} % busy before it"
            say(f"gateway, round {number + 1}: {busy}")
            for case in chosen:
                if not case.rounds or number < case.rounds:
                    one(case, running, number, options)
    return found


def prepare(_options):
    """Builds the client that runs inside and outside."""
    servers.build_client()


def merge(founds):
    """One document of those of several rounds."""
    return report.joined(founds)


def one(case, running, number, options):
    """One round of a case. One that breaks must not lose the others' figures."""

    def add(key, rival, turn, figures):
        row = {"case": case.name, "key": key, "rival": rival, "turn": turn, **figures}
        running.found["rows"].append(row)
        say(f"  {case.name}, {key}, {rival}: {told(row)}")

    try:
        case.run(running, number, options, add)
    except Unavailable as reason:
        running.missing(case.name, reason)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        add("", "", (number, 0), {"failure": repr(error)[-400:]})


def told(row):
    """A row in one line."""
    if "failure" in row:
        return f"FAILURE: {row['failure']}"
    words = [f"{k} {v:.5g}" for k, v in row.items() if isinstance(v, (int, float))]
    for name, values in row.items():
        if name.endswith("_us") and isinstance(values, list) and values:
            words.append(f"{name} p50 {sorted(values)[len(values) // 2]:.5g}")
    return ", ".join([*words, *row.get("examples", [])])


class Running:
    """The servers of a run, each started when it is needed first."""

    def __init__(self, stack, scratch, options, found):
        self.stack, self.scratch, self.found = stack, scratch, found
        self.options, self.order = options, random.Random(options.seed)
        scratch.mkdir()
        self.binary = rivals.cove_binary(options.cove)
        self.client = servers.build_client()
        self.content = self.client.read_bytes()
        self.sessions, self.made = {}, {}
        self._server = None

    def postgres(self):
        return self.database("PostgreSQL", servers.postgres)

    def databases(self):
        """Those that are installed."""
        mariadb = self.database("MariaDB", servers.mariadb)
        return [self.postgres(), *([mariadb] if mariadb else [])]

    def has_mariadb(self):
        return len(self.databases()) > 1

    def database(self, name, maker):
        """One that was started; none when it is not installed."""
        if name not in self.made:
            try:
                self.made[name] = self.stack.enter_context(maker(self.scratch))
                self.found["versions"][name] = self.made[name].version
            except Unavailable as reason:
                if name == "PostgreSQL":
                    raise
                self.made[name] = None
                self.missing(name, reason)
        return self.made[name]

    def server(self):
        """Cove before the databases, with an agent of which a sandbox is kept ready."""
        if self._server is None:
            postgres, *mariadb = self.databases()
            server = servers.Gateway(self.binary, self.scratch, postgres, *(mariadb or [None]))
            self.stack.callback(self.stop, server)
            server.start()
            server.deploy(ready=cases.READY, name=cases.POOLED)
            quiet(server)
            version = rivals.first_line([self.binary, "--version"])
            self.found["versions"]["cove"] = version
            self._server = server
        return self._server

    def stop(self, server):
        if left := server.stop():
            self.found["left"].append(f"{left} processes after the server's end")
        server.remove()

    def session(self, grant):
        """A session with one grant and the client in its workspace; the same one each time."""
        kind = grant["kind"]
        if kind not in self.sessions:
            server = self.server()
            self.sessions[kind] = server.session([grant])
            server.upload(self.sessions[kind], servers.CLIENT, self.content)
        return self.sessions[kind]

    def missing(self, name, reason):
        if name not in self.found["unavailable"]:
            self.found["unavailable"][name] = str(reason)
            say(f"  {name} cannot take part: {reason}")
