"""The catalog: its documents in one process beside Go, and whole servers under HTTP beside others.

`measure` runs the cases that are wanted in rounds, every rival of a case next to the other, and
gives a document for `catalog.figures`, which says what the figures mean.
"""

import contextlib
import pathlib
import random
import sys
import traceback
from collections import namedtuple

import machine
import report
from catalog import cases, documents, servers
from catalog.servers import BARE, COVE, DISK, JAVA, RUSTBERG
from rivals import Unavailable, say

SERVERS = (COVE, RUSTBERG, JAVA)
READERS = (COVE, BARE, RUSTBERG, JAVA)
WRITERS = (COVE, DISK, RUSTBERG, JAVA)
RIVALS = (COVE, BARE, DISK, RUSTBERG, JAVA)

# `rounds` is for what takes long: it takes part in so many rounds only.
Case = namedtuple("Case", "name rivals run rounds", defaults=(None,))
CASES = [
    Case("load", READERS, cases.load),
    Case("load-gzip", READERS, cases.load_gzip),
    Case("thousand", READERS, cases.thousand),
    Case("thousand-gzip", READERS, cases.thousand_gzip),
    Case("list", READERS, cases.list_tables),
    Case("namespace", READERS, cases.load_namespace),
    Case("create", WRITERS, cases.create, rounds=3),
    Case("create-16", WRITERS, cases.create_16, rounds=3),
    Case("commit", WRITERS, cases.commit, rounds=3),
    Case("commit-16", WRITERS, cases.commit_16, rounds=3),
    Case("append", SERVERS, cases.append, rounds=3),
    Case("start", SERVERS, cases.start, rounds=3),
    Case("memory", (COVE,), cases.memory, rounds=1),
]
NAMES = ["catalog", "catalog-documents", *(f"catalog-{case.name}" for case in CASES)]


def measure(scratch, options):
    """Everything about the catalog that was asked for."""
    asked = options.only or ["catalog"]
    chosen = [c for c in CASES if "catalog" in asked or f"catalog-{c.name}" in asked]
    found = {"rows": [], "unavailable": {}, "versions": {}, "busy_percent": []}
    tool = documents.build()
    if "catalog" in asked or "catalog-documents" in asked:
        found["document_rounds"] = documents.measure(options.numbers)
    if chosen:
        with contextlib.ExitStack() as stack:
            running = Running(stack, pathlib.Path(scratch) / "catalog", options, found, tool)
            with_servers(running, chosen, options, found)
    return found


def prepare(options):
    """Builds what is measured with, so that no compiler runs beside a figure."""
    if not options.only or {"catalog", "catalog-documents"} & set(options.only):
        documents.commands()
    else:
        documents.build()


def merge(founds):
    """One document of those of several rounds."""
    found = report.joined(founds)
    if rounds := found.pop("document_rounds", None):
        found["documents"] = documents.document(rounds)
    return found


def with_servers(running, chosen, options, found):
    order = random.Random(f"{options.seed} {options.numbers[0]}")
    for number in options.numbers:
        found["busy_percent"].append(machine.background_busy())
        busy = f"machine {found['busy_percent'][-1]:.0f} % busy before it"
        say(f"catalog, round {number + 1}: {busy}")
        for case in chosen:
            if case.rounds and number >= case.rounds:
                continue
            names = [n for n in case.rivals if not options.rival or n in options.rival]
            order.shuffle(names)
            for name in names:
                found["rows"] += one(case, running, name, options, number)


def one(case, running, name, options, number):
    """One case for one rival. One that breaks must not lose the others' figures."""
    rows = []

    def add(key, figures):
        row = {"case": case.name, "rival": name, "key": key, "round": number}
        rows.append({**row, **figures})

    try:
        case.run(running, name, options, add)
    except Unavailable as reason:
        running.missing(name, reason)
    except cases.Failed as error:
        add("", {"failure": str(error)[-400:]})
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        add("", {"failure": repr(error)[-400:]})
    for row in rows:
        words = [f"{k} {v:.5g}" for k, v in row.items() if isinstance(v, float) or k == "wrong"]
        text = f"FAILURE: {row['failure']}" if "failure" in row else ", ".join(words)
        say(f"  {case.name} {row['key']} {name}: {text}")
    return rows


class Running:
    """The servers of a run, each started when it is needed first, with the same tables in it."""

    def __init__(self, stack, scratch, options, found, tool):
        self.stack, self.options, self.found, self.tool = stack, options, found, tool
        self.scratch = scratch
        scratch.mkdir()
        self.servers = {}

    def get(self, name):
        """A server that has what the cases read."""
        if reason := self.found["unavailable"].get(name):
            raise Unavailable(reason)
        if name not in self.servers:
            if name == BARE:
                server = servers.bare(self.scratch, self.tool, cases.bodies(self.get(COVE)))
                self.servers[name] = self.stack.enter_context(server)
            else:
                made = self.stack.enter_context(self.new(name))
                cases.fill(made)
                if name == JAVA:
                    cases.warm(self, made)
                self.servers[name] = made
            self.found["versions"][name] = self.servers[name].version
        return self.servers[name]

    def new(self, name):
        """A server of its own, with nothing in it."""
        return servers.MAKERS[name](self.scratch, self.options)

    def missing(self, name, reason):
        if name not in self.found["unavailable"]:
            self.found["unavailable"][name] = str(reason)
            say(f"  {name} can not take part: {reason}")
