"""The bouncer and poolers beside it: the relay in one process, and whole processes under pgbench
and sysbench.

`measure` runs the cases that are wanted in rounds, every rival of a case next to the other, and
gives a document for `bouncer.figures`, which says what the figures mean.
"""

import contextlib
import os
import random
import resource
import sys
import traceback
from collections import namedtuple

import machine
import report
from bouncer import matrix, mysql, poolers, relay
from bouncer.load import Failed
from bouncer.poolers import ALL, COVE, DIRECT, ODYSSEY, PG_DOORMAN, PGBOUNCER, PGBOUNCER_RESET
from rivals import Unavailable, say

OPEN_FILES = 20_000
ROUNDS = 5
POOLERS = (COVE, PGBOUNCER, PG_DOORMAN, ODYSSEY)
LOGINS = (COVE, PGBOUNCER, PG_DOORMAN, DIRECT)

# `cells` gives the parts of a case, which is then run part by part; `rounds` is for what takes
# long: it takes part in so many rounds only.
Case = namedtuple("Case", "name rivals run cells rounds", defaults=(None, None))
CASES = [
    Case("load", ALL, matrix.load, matrix.load_cells, rounds=3),
    Case("calls", POOLERS, matrix.calls, matrix.calls_cells, rounds=1),
    Case("connect", LOGINS, matrix.connect, matrix.connect_cells, rounds=3),
    Case("rows", ALL, matrix.rows, rounds=3),
    Case("memory", POOLERS, matrix.memory, rounds=1),
    Case("fairness", (COVE, PGBOUNCER, DIRECT), matrix.fairness, rounds=3),
    Case("dirty", (COVE, PGBOUNCER_RESET, DIRECT), matrix.dirty, rounds=3),
    Case("churn", POOLERS, matrix.churn, rounds=1),
    Case("mysql", mysql.RIVALS, mysql.load, mysql.cells, rounds=3),
]
RIVALS = (*ALL, PGBOUNCER_RESET, *mysql.ALL)
NAMES = ["bouncer", "bouncer-relay", *(f"bouncer-{case.name}" for case in CASES)]


def measure(scratch, options):
    """Everything about the bouncer that was asked for."""
    asked = options.only or ["bouncer"]
    chosen = [c for c in CASES if "bouncer" in asked or f"bouncer-{c.name}" in asked]
    found = {"rows": [], "unavailable": {}, "versions": {}, "busy_percent": []}
    if "bouncer" in asked or "bouncer-relay" in asked:
        found["relay_rounds"] = relay.measure(options.numbers)
    if chosen and options.numbers[0] < ROUNDS:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, OPEN_FILES)), hard))
        with contextlib.ExitStack() as stack:
            running = Running(stack, scratch, options, found)
            with_servers(running, chosen, options, found)
    return found


def prepare(options):
    """Builds what is measured with, so that no compiler runs beside a figure."""
    if not options.only or {"bouncer", "bouncer-relay"} & set(options.only):
        relay.build()


def merge(founds):
    """One document of those of several rounds."""
    found = report.joined(founds)
    if rounds := found.pop("relay_rounds", None):
        found["relay"] = relay.document(rounds)
    return found


def with_servers(running, chosen, options, found):
    order = random.Random(f"{options.seed} {options.numbers[0]}")
    for number in options.numbers:
        found["busy_percent"].append(machine.background_busy())
        busy = f"machine {found['busy_percent'][-1]:.0f} % busy before it"
        say(f"bouncer, round {number + 1}: {busy}")
        for case in chosen:
            if case.rounds and number >= case.rounds:
                continue
            for cell in case.cells(options) if case.cells else [running.scratch]:
                names = [n for n in case.rivals if wanted(n, options)]
                order.shuffle(names)
                for name in names:
                    found["rows"] += one(case, running, name, options, cell)


def wanted(name, options):
    return not options.rival or name in options.rival


def one(case, running, name, options, cell):
    """One case for one rival. One that breaks must not lose the others' figures."""
    samples = matrix.Samples(case.name, name)
    key = cell[1:] if isinstance(cell, tuple) else ()
    try:
        endpoint = running.get(name)
        case.run(running.server_of(name), endpoint, samples, options, cell)
    except Unavailable as reason:
        running.missing(name, reason)
    except (Failed, OSError) as error:
        samples.fail(key, error)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        samples.fail(key, repr(error))
    for row in samples.rows:
        say(f"  {case.name} {' '.join(map(str, row['key']))} {name}: {told(row)}")
    return samples.rows


def told(row):
    """A row in one line."""
    if "failure" in row:
        return f"FAILURE: {row['failure']}"
    words = [
        f"{name} {value:.4g}" for name, value in row.items() if isinstance(value, (int, float))
    ]
    for name, values in row.items():
        if name.endswith(("_us", "_ms")) and isinstance(values, list) and values:
            values = sorted(values)
            words.append(f"{name} p50 {values[len(values) // 2]:.4g}")
            words.append(f"p99 {values[len(values) * 99 // 100]:.4g}")
    calls = row.get("calls", {})
    words += [f"{name} {n:.2f}" for name, n in calls.items() if n >= 0.01]
    if row.get("left"):
        words.append(f"LEFT BEHIND: {row['left'][0]}")
    return ", ".join(words)


class Running:
    """The servers and the poolers of a run, each started when it is needed first."""

    def __init__(self, stack, scratch, options, found):
        self.stack, self.options, self.found = stack, options, found
        self.scratch = os.path.join(scratch, "bouncer")
        os.mkdir(self.scratch)
        # Poolers that refuse to be root have their files below it.
        for directory in (scratch, self.scratch):
            os.chmod(directory, 0o755)
        self.endpoints = {}

    def get(self, name):
        if reason := self.found["unavailable"].get(name):
            raise Unavailable(reason)
        if name not in self.endpoints:
            endpoint = self.stack.enter_context(self.maker(name))
            if name in (COVE, mysql.COVE_MYSQL):
                # What its other services prepare in the background is no work of the bouncer's.
                machine.settle({name: endpoint.pid})
            self.endpoints[name] = endpoint
            self.found["versions"][name] = endpoint.version
        return self.endpoints[name]

    def server_of(self, name):
        """The database that a rival stands before."""
        return self.get(mysql.DIRECT_MYSQL if name in mysql.ALL else DIRECT)

    def maker(self, name):
        if name == DIRECT:
            return poolers.postgres(self.scratch)
        if name == mysql.DIRECT_MYSQL:
            return mysql.mariadb(self.scratch)
        server = self.server_of(name)
        if name in (COVE, mysql.COVE_MYSQL):
            cove = poolers.cove if name == COVE else mysql.cove
            return cove(self.scratch, server, self.options.cove)
        return poolers.MAKERS[name](self.scratch, server)

    def missing(self, name, reason):
        if name not in self.found["unavailable"]:
            self.found["unavailable"][name] = str(reason)
            say(f"  {name} can not take part: {reason}")
