#!/usr/bin/env python3
"""What `run_code` over MCP adds to the same run by the native interface.

    python3 bench/mcp.py http://127.0.0.1:4100 TOKEN [RUNS]

Both take turns, one after the other and each on a connection of its own that stays open, so that
what else the machine does hits both. Every answer is checked. Prints one line of JSON with
milliseconds; `added_p50` is the difference of the medians, whose goal is 0.5 ms at most. RUNS is
500 unless it is given.
"""

import http.client
import json
import sys
import time
import urllib.parse

CODE = "print(6 * 7)"
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
# Interpreters and connections are ready after these, which are not counted.
WARM_UP_RUNS = 20


class Caller:
    """One connection, and the request that it repeats."""

    def __init__(self, address, token, path, body, headers):
        self.connection = http.client.HTTPConnection(address)
        self.path, self.body = path, json.dumps(body)
        plain = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self.headers = plain | headers

    def run(self, result_of):
        """Runs once; returns how long it took, in milliseconds."""
        begun = time.perf_counter()
        self.connection.request("POST", self.path, self.body, self.headers)
        answer = self.connection.getresponse()
        document = json.loads(answer.read())
        took = (time.perf_counter() - begun) * 1000
        result = result_of(document)
        if answer.status != 200 or result["stdout"] != "42\n":
            raise SystemExit(f"{self.path} answered {answer.status}: {document}")
        return took


def quantile(sorted_times, part):
    return round(sorted_times[min(int(len(sorted_times) * part), len(sorted_times) - 1)], 3)


def main(url, token, runs=500):
    address = urllib.parse.urlsplit(url).netloc
    native = Caller(
        address, token, "/v1/executions?wait=true", {"language": "python", "source": CODE}, {})
    call = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {
            "name": "run_code", "arguments": {"language": "python", "code": CODE}, "_meta": META,
        },
    }
    mcp = Caller(address, token, "/mcp", call, {
        "accept": "application/json, text/event-stream", "mcp-protocol-version": VERSION,
        "mcp-method": "tools/call", "mcp-name": "run_code",
    })
    ways = {
        "native": (native, lambda document: document),
        "mcp": (mcp, lambda document: document["result"]["structuredContent"]),
    }
    times = {name: [] for name in ways}
    for number in range(WARM_UP_RUNS + int(runs)):
        for name, (caller, result_of) in ways.items():
            took = caller.run(result_of)
            if number >= WARM_UP_RUNS:
                times[name].append(took)
    line = {"runs": int(runs)}
    for name, all_times in times.items():
        all_times.sort()
        line |= {f"{name}_p50": quantile(all_times, 0.5), f"{name}_p95": quantile(all_times, 0.95)}
    line["added_p50"] = round(line["mcp_p50"] - line["native_p50"], 3)
    print(json.dumps(line))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
