#!/usr/bin/env python3
"""What traces cost: the CPU of a server for requests that are traced, and that are not.

Three servers of one binary take turns: one without a collector (`off`), one with a collector whose
requests say that they are not recorded (`not recorded`), and one that records each (`recorded`). The
collector is a server of this process that takes OTLP over HTTP and counts the spans of each name; every
request of a round has to have left its span there, or none. The CPU is that of the server and all that
it starts, by a control group of its own. Root.
"""

import argparse
import collections
import gzip
import http.server
import json
import pathlib
import secrets
import statistics
import subprocess
import tempfile
import threading
import time

import machine
import rivals
from client import Client
from sessions.servers import PLAIN_LANGUAGE, PLAIN_LANGUAGES, until
from sizing import Group

OFF, UNRECORDED, RECORDED = "off", "not recorded", "recorded"
ROUNDS = 24
BATCH_SECONDS = 0.2
ARRIVAL_SECONDS_MAX = 30
SCHEMA = {"type": "struct", "schema-id": 0,
          "fields": [{"id": 1, "name": "a", "type": "long", "required": False}]}
TABLES = """\
sandbox.warm_runtimes = false
bouncer.enabled = false
[executions]
languages = "{languages}"
"""


class Collector(http.server.ThreadingHTTPServer):
    """Counts spans by name."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Export)
        self.spans = collections.Counter()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Export(http.server.BaseHTTPRequestHandler):
    """One batch."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in json.loads(body)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                self.server.spans.update(span["name"] for span in scope["spans"])
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


class Traced:
    """A server, and how its requests are sent."""

    def __init__(self, binary, scratch, way, collector):
        self.way, self.collector = way, collector
        self.data = pathlib.Path(scratch) / way.replace(" ", "-")
        config = self.data.with_suffix(".toml")
        telemetry = ""
        if way != OFF:
            telemetry = (f"[telemetry]\ntraces_endpoint = \"http://127.0.0.1:{collector.server_port}\"\n"
                         f"batch_delay_s = {BATCH_SECONDS}\n")
        languages = self.data.with_suffix(".languages.toml")
        plain = "".join(PLAIN_LANGUAGE.format(name=name) for name in PLAIN_LANGUAGES)
        languages.write_text(plain, encoding="utf-8")
        config.write_text(TABLES.format(languages=languages) + telemetry, encoding="utf-8")
        self.argv = [binary, "serve", "--data-dir", self.data, "--config", config,
                     "--http", f"127.0.0.1:{rivals.free_port()}"]
        self.group, self.process = Group(f"tracing-{way.replace(' ', '-')}"), None

    def start(self, binary):
        log = self.data.with_suffix(".log")
        with open(log, "ab") as out:
            self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            preexec_fn=self.group.enter)
        found = rivals.wait_until(lambda: json.loads((self.data / "addresses.json").read_text()),
                                  self.process, log, "cove")
        token = rivals.run([binary, "token", "--data-dir", self.data]).strip()
        self.client = Client(found["http"], token)
        until(lambda: self.client.request("GET", "/health/ready")[0] == 200, "a ready server")
        prefix = self.client.json("GET", "/catalog/v1/config")["overrides"]["prefix"]
        base = f"/catalog/v1/{prefix}/namespaces"
        self.client.json("POST", base, {"namespace": ["n"]})
        self.table = f"{base}/n/tables/t"
        self.client.json("POST", f"{base}/n/tables", {"name": "t", "schema": SCHEMA})

    def stop(self):
        if self.process is not None:
            rivals.stop(self.process, self.argv[0])
        self.group.remove()

    def ask(self, method, path, body=None):
        """One request, in a trace of its own."""
        headers = {}
        if self.way != OFF:
            flags = "01" if self.way == RECORDED else "00"
            trace, span = secrets.token_hex(16), secrets.token_hex(8)
            headers["traceparent"] = f"00-{trace}-{span}-{flags}"
        return self.client.json(method, path, body, headers)


def load(server):
    found = server.ask("GET", server.table)
    assert found["metadata"]["schemas"][0]["fields"][0]["name"] == "a", found


def commit(server):
    value = secrets.token_hex(4)
    change = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"k": value}}]}
    assert server.ask("POST", server.table, change)["metadata"]["properties"]["k"] == value


def execute(server):
    found = server.ask("POST", "/v1/executions?wait=true", {"language": "bash", "source": "echo 42"})
    assert found["stdout"] == "42\n", found


# What is asked, how often in a round, and a span that each leaves.
CASES = {
    "load a table": (load, 1000, None),
    "commit to a table": (commit, 200, "commit"),
    "run a program": (execute, 30, "run"),
}


def check_arrived(collector, way, name, count, before):
    """Waits for the spans of a round; there are to be none of what is not recorded."""
    if name is None:
        return
    wanted = count if way == RECORDED else 0
    deadline = time.monotonic() + ARRIVAL_SECONDS_MAX
    while (arrived := collector.spans[name] - before) < wanted and time.monotonic() < deadline:
        time.sleep(BATCH_SECONDS)
    assert arrived == wanted, f"{way}: {arrived} spans {name!r} of {wanted}"


def measure(servers, collector, case, count, span):
    """CPU of each request in µs, a figure for each round, by way."""
    cpu = {server.way: [] for server in servers}
    for number in range(ROUNDS):
        for server in servers[number % 3:] + servers[:number % 3]:
            spans, before = collector.spans[span], server.group.cpu_s()
            for _ in range(count):
                case(server)
            check_arrived(collector, server.way, span, count, spans)
            # What is sent behind belongs to it.
            time.sleep(2 * BATCH_SECONDS)
            taken = server.group.cpu_s() - before
            cpu[server.way].append(taken * 1e6 / count)
    return cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--binary", default="target/release/cove")
    parser.add_argument("--out", help="where the figures go, as JSON")
    given = parser.parse_args()
    binary = str(pathlib.Path(given.binary).resolve())
    report = {"machine": machine.describe(), "cases": {}}
    with tempfile.TemporaryDirectory(prefix="cove-bench-tracing-") as scratch:
        collector = Collector()
        servers = [Traced(binary, scratch, way, collector) for way in (OFF, UNRECORDED, RECORDED)]
        try:
            for server in servers:
                server.start(binary)
            print("| CPU of a request, µs: median (least) | " + " | ".join(it.way for it in servers) + " |")
            print("|---|" + "---|" * len(servers))
            for name, (case, count, span) in CASES.items():
                cpu = measure(servers, collector, case, count, span)
                report["cases"][name] = cpu
                row = [f"{statistics.median(all_of_it):.0f} ({min(all_of_it):.0f})"
                       for all_of_it in cpu.values()]
                print(f"| {name} | " + " | ".join(row) + " |", flush=True)
        finally:
            for server in servers:
                server.stop()
    if given.out:
        pathlib.Path(given.out).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
