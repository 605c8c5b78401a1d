#!/usr/bin/python3
"""Times of the code interpreter, beside a kernel of Jupyter's.

    bench/interpreter.py --binary target/release/cove --jupyter /usr/bin/python3 --out FILE

Starts one server and speaks E2B's protocol of the code interpreter to it: makes contexts, runs
cells in them, looks at every result. A context of Cove's and a kernel of Jupyter's are made in
turn, round after round, so that both meet the same machine. Then come the first context of sessions
from the pool, whose sandboxes wait with a parked interpreter or without, and forks of contexts. The interpreter of `--jupyter` has
`jupyter_client` and `ipykernel` (Debian's python3-ipykernel) and the same numpy, pandas and
matplotlib; without it Cove stands alone. Prints medians and percentiles in milliseconds; exits
with 1 when an answer was wrong.

Debian's Python with python3-ipython, python3-numpy, python3-pandas, python3-matplotlib; root, for
sandboxes.
"""

import argparse
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import machine
import rivals
from sessions.servers import Cove

PORT = "49999"
TEMPLATE = "code-interpreter-v1"
# What every context of the comparison has imported when it is ready.
IMPORTS = "import numpy, pandas, matplotlib.pyplot as plt"
PLOT = "plt.figure(); plt.plot([1, 2, 3]); plt.show()"
MEMORY_CONTEXTS = 100
# Pages that no other process has, of the context itself.
PRIVATE = """\
rows = dict(line.split(":") for line in open("/proc/self/smaps_rollup").readlines()[1:])
sum(int(rows[name].split()[0]) for name in ("Private_Clean", "Private_Dirty"))
"""
# A kernel as `jupyter_client` starts it, ready when it has answered; printed: when it was, and how
# long its cells took.
JUPYTER = """\
import json, sys, time
from jupyter_client.manager import start_new_kernel
imports, plot = sys.argv[1:3]
def cell(client, code):
    began = time.perf_counter()
    found = []
    client.execute_interactive(code, timeout=60, output_hook=found.append)
    return (time.perf_counter() - began) * 1000, found
began = time.perf_counter()
manager, client = start_new_kernel(kernel_name="python3")
cell(client, imports)
times = {"context": (time.perf_counter() - began) * 1000}
times["first-cell"], _ = cell(client, "40+2")
times["cell"] = sorted(cell(client, "1+1")[0] for _ in range(20))[10]
times["plot"], found = cell(client, "%matplotlib inline\\n" + plot)
assert any("image/png" in it["content"].get("data", {}) for it in found), found
client.stop_channels()
manager.shutdown_kernel(now=True)
print(json.dumps(times))
"""


class Interpreter:
    """Contexts of one sandbox, over one kept connection."""

    def __init__(self, address, key):
        self.http = http.client.HTTPConnection(address, timeout=60)
        self.headers = {"x-api-key": key, "content-type": "application/json"}
        made = self.ask("POST", "/sandboxes", {"templateID": TEMPLATE, "timeout": 600}, 201)
        self.id = made["sandboxID"]
        self.headers |= {"e2b-sandbox-id": self.id, "e2b-sandbox-port": PORT}
        if token := made.get("envdAccessToken"):
            self.headers["x-access-token"] = token

    def ask(self, method, path, body=None, *statuses):
        text = self.raw(method, path, body, statuses or (200, 201))
        return json.loads(text) if text else None

    def raw(self, method, path, body, statuses):
        self.http.request(method, path, json.dumps(body) if body is not None else None, self.headers)
        answer = self.http.getresponse()
        text = answer.read()
        if answer.status not in statuses:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:300]!r}")
        return text

    def context(self):
        """Milliseconds until a new context was ready, and its id."""
        began = time.perf_counter()
        made = self.ask("POST", "/contexts", {"language": "python"})
        return (time.perf_counter() - began) * 1000, made["id"]

    def cell(self, context, code, expected):
        """Milliseconds of a cell; `expected` is the text of its result, or says whether it is."""
        began = time.perf_counter()
        text = self.raw("POST", "/execute", {"code": code, "context_id": context}, (200,))
        took = (time.perf_counter() - began) * 1000
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        results = [line for line in lines if line["type"] == "result"]
        is_right = expected(results) if callable(expected) else (
            [line.get("text") for line in results] == [expected])
        if not is_right or lines[-1]["type"] != "end_of_execution":
            raise SystemExit(f"{code!r} gave {text[:500]!r}")
        return took, results

    def end(self):
        # These send a request to a port of the sandbox.
        for name in ("e2b-sandbox-id", "e2b-sandbox-port"):
            del self.headers[name]
        self.raw("DELETE", f"/sandboxes/{self.id}", None, (204,))

    def remove(self, context):
        self.raw("DELETE", f"/contexts/{context}", None, (200, 204))


def has_picture(results):
    return any("png" in line for line in results)


def measure_cove(interpreter):
    """Times of one new context, as of a kernel."""
    took, context = interpreter.context()
    times = {"context": took}
    times["first-cell"], _ = interpreter.cell(context, "40+2", "42")
    ones = sorted(interpreter.cell(context, "1+1", "2")[0] for _ in range(20))
    times["cell"] = ones[10]
    code = "import matplotlib.pyplot as plt\n" + PLOT
    times["plot"], _ = interpreter.cell(context, code, has_picture)
    interpreter.remove(context)
    return times


class PooledSessions:
    """Sessions of an agent whose sandboxes wait with an interpreter parked in them, or without."""

    def __init__(self, server, agent, parked):
        self.server, self.agent, self.parked = server, agent, parked
        server.call("POST", "/v1/agents", {
            "name": agent, "runtime": {"type": "none"},
            "settings": {"prewarm_sandboxes": 1, "park_interpreter": parked}})

    def wait_for(self, interpreters):
        """Waits until a sandbox waits for a session, and so many interpreters are parked."""
        server = self.server
        rivals.wait_until(
            lambda: server.is_ready(1) and parked_interpreters(server) == interpreters or None,
            server.process.process, server.process.log, "a sandbox that waits")

    def measure(self):
        """Times of the first two contexts of a session, and of a fork of the second."""
        server = self.server
        self.wait_for(int(self.parked))
        session = server.call("POST", "/v1/sessions", {"agent": self.agent})["id"]
        contexts = f"/v1/sessions/{session}/contexts"
        first, context = timed(server, "POST", contexts, {})
        second, _ = timed(server, "POST", contexts, {})
        imports = {"code": IMPORTS + "\nnumpy.arange(3).sum()"}
        cell = server.call("POST", f"{contexts}/{context['id']}/execute", imports)
        if cell["verdict"] != "OK" or cell["results"][0]["data"]["text/plain"] != "3":
            raise SystemExit(f"a cell gave {cell}")
        forked, copy = timed(server, "POST", f"{contexts}/{context['id']}/fork", {})
        value = {"code": "numpy.arange(4).sum()"}
        cell = server.call("POST", f"{contexts}/{copy['id']}/execute", value)
        if cell["verdict"] != "OK" or cell["results"][0]["data"]["text/plain"] != "6":
            raise SystemExit(f"a cell of a fork gave {cell}")
        # With that of the next session, so that this one's is not taken for it.
        self.wait_for(1 + self.parked)
        server.call("DELETE", f"/v1/sessions/{session}", None, 200, 204)
        return {"first": first, "second": second, "fork": forked}


def parked_interpreters(server):
    lines = server.wire.call("GET", "/metrics").body.decode().splitlines()
    found = [line for line in lines if line.startswith("cove_interpreter_parked ")]
    return int(found[0].split()[1])


def timed(server, method, path, body):
    """Milliseconds of a request, and its answer."""
    began = time.perf_counter()
    answer = server.call(method, path, body)
    return (time.perf_counter() - began) * 1000, answer


def measure_pooled(server, rounds):
    """Times of sessions from the pool, with and without a parked interpreter."""
    figures = {}
    for agent, parked in (("cold", False), ("parked", True)):
        pooled = PooledSessions(server, agent, parked)
        found = [pooled.measure() for _ in range(rounds)]
        figures[agent] = {name: {"p50": round(percentile([it[name] for it in found], 0.5), 2),
                                 "p95": round(percentile([it[name] for it in found], 0.95), 2)}
                          for name in ("first", "second", "fork")}
        server.call("DELETE", f"/v1/agents/{agent}", None, 200, 204)
    return figures


def measure_jupyter(python):
    argv = [str(python), "-c", JUPYTER, IMPORTS, PLOT]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def private_memory(interpreter):
    """KiB of pages of its own for each of many contexts that have run a cell."""
    contexts = [interpreter.context()[1] for _ in range(MEMORY_CONTEXTS)]
    for context in contexts:
        interpreter.cell(context, "1+1", "2")
    sizes = [int(interpreter.cell(it, PRIVATE, lambda _: True)[1][-1]["text"]) for it in contexts]
    for context in contexts:
        interpreter.remove(context)
    return sorted(sizes)


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def summary(rounds):
    """p50 and p95 of each figure of each side."""
    names = ("context", "first-cell", "cell", "plot")
    return {name: {"p50": round(percentile([it[name] for it in rounds], 0.5), 2),
                   "p95": round(percentile([it[name] for it in rounds], 0.95), 2)}
            for name in names}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="Cove's, as released")
    parser.add_argument("--jupyter", type=pathlib.Path, help="interpreter that has Jupyter")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=pathlib.Path, help="file for the figures")
    return parser.parse_args()


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="cove-bench-") as scratch:
        server = Cove(arguments.binary, scratch, faces=("--e2b", "127.0.0.1:0"))
        try:
            server.start()
            key = rivals.run([arguments.binary, "token", "--e2b", "--data-dir", server.data])
            interpreter = Interpreter(server.addresses["e2b"], key.strip())
            measure_cove(interpreter)
            cove, jupyter = [], []
            for _ in range(arguments.rounds):
                cove.append(measure_cove(interpreter))
                if arguments.jupyter:
                    jupyter.append(measure_jupyter(arguments.jupyter))
            sizes = private_memory(interpreter)
            interpreter.end()
            pooled = measure_pooled(server, arguments.rounds)
        finally:
            server.stop()
    figures = {"machine": machine.describe(), "load": machine.load_average(),
               "rounds": arguments.rounds, "cove_ms": summary(cove),
               "pooled_ms": pooled,
               "private_kib": {"p50": sizes[len(sizes) // 2], "max": sizes[-1]}}
    if jupyter:
        figures["jupyter_ms"] = summary(jupyter)
    text = json.dumps(figures, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
