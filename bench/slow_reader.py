#!/usr/bin/env python3
"""Watches the server's memory while a client reads a flood at one KiB a second.

    python3 bench/slow_reader.py --cove PATH [--seconds 20]

The program writes as fast as it can and may write a GiB. A reader that keeps up shows first how
fast that is; then a slow one is attached, and the server's resident memory is read all the time.
"""

import argparse
import json
import pathlib
import sys
import time
from http.client import HTTPException

import machine
import rivals
from client import Client, Refused, events
from rivals import say

SECONDS = 20
READ_BYTES = 1024
RECEIVE_BYTES = 4096
FAST_SECONDS = 1.0
FAST_READ_BYTES = 1 << 20
SAMPLE_SECONDS = 0.1
END_SECONDS_MAX = 10
# Memory is flat when its largest reading is no more than this above its smallest, the one before
# the start among them: room for the events that an execution keeps and for what one costs, not for
# a flood. And when it does not creep once the program waits, which is after a moment.
FLAT_KIB_MAX = 8192
CREEP_KIB_MAX = 512
SETTLE_SECONDS = 2
FLOOD_LINE = "0123456789abcdefghijklmnopqrstuvwxyz-flood"
OUTPUT_BYTES = 1 << 30
# What a program may still write is counted as if its reader had it to read.
CONFIG = f"""
answers_bytes_max = {4 * OUTPUT_BYTES}
answers_bytes_max_per_tenant = {4 * OUTPUT_BYTES}
[executions.limits_max]
output_bytes = {OUTPUT_BYTES}
"""
REQUEST = {
    "argv": ["/usr/bin/yes", FLOOD_LINE],
    "interactive": True,
    "limits": {"output_bytes": OUTPUT_BYTES, "wall_ms": 120_000, "cpu_ms": 60_000},
}


def start(client):
    """A flood that waits for its reader: the path of its events."""
    return f"/v1/executions/{client.json('POST', '/v1/executions', REQUEST, status=202)['id']}"


def fast(client):
    """Bytes a second of a reader that keeps up."""
    path = start(client)
    with client.websocket(f"{path}/events") as connection:
        # The first message is there before anything of the flood.
        connection.recv(FAST_READ_BYTES)
        read, began = 0, time.monotonic()
        while time.monotonic() < began + FAST_SECONDS:
            read += len(connection.recv(FAST_READ_BYTES))
        rate = read / (time.monotonic() - began)
    ended(client, path)
    return rate


def ended(client, path):
    """Waits for the end of an execution whose reader went away; its state and the seconds."""
    began = time.monotonic()
    while time.monotonic() < began + END_SECONDS_MAX:
        record = client.json("GET", path)
        if record["state"] not in ("queued", "running"):
            return record["state"], time.monotonic() - began
        time.sleep(SAMPLE_SECONDS)
    return "running", time.monotonic() - began


def slow(client, pid, seconds):
    """What a slow reader got, and the server's memory meanwhile, in KiB."""
    # With the seconds since the slow reader began.
    readings = [(0, machine.resident_kib(pid))]
    path = start(client)
    data = b""
    with client.websocket(f"{path}/events", RECEIVE_BYTES) as connection:
        began = time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            readings.append((now - began, machine.resident_kib(pid)))
            if len(data) < READ_BYTES * (now - began):
                data += connection.recv(READ_BYTES)
            time.sleep(SAMPLE_SECONDS)
        state = client.json("GET", path)["state"]
    end, took = ended(client, path)
    return {
        "readings_kib": readings,
        "bytes_read": len(data),
        "mistakes": mistakes(events(data), state, end),
        "ended_after_seconds": took,
    }


def mistakes(received, state, end):
    """What is wrong with what the reader got, in words."""
    found = []
    numbers = [event["seq"] for event in received]
    if numbers != list(range(1, len(numbers) + 1)):
        found.append(f"events are numbered {numbers[:5]} … {numbers[-1:]}")
    text = "".join(event.get("data", "") for event in received if event["type"] == "stdout")
    if not text or not (f"{FLOOD_LINE}\n" * (len(text) // len(FLOOD_LINE) + 1)).startswith(text):
        found.append(f"the flood is not what was written: {text[:60]!r}")
    if state != "running":
        found.append(f"the program was {state} while its reader was there")
    if end != "cancelled":
        found.append(f"the program was {end} after its reader had gone")
    return found


def summarise(readings, rate, found):
    """The figures of the scenario."""
    everything = [kib for _, kib in readings]
    settled = [kib for seconds, kib in readings if seconds >= SETTLE_SECONDS]
    growth, creep = (max(r, default=0) - min(r, default=0) for r in (everything, settled))
    return {
        "fast_reader_bytes_per_second": rate,
        "rss_min_kib": min(everything),
        "rss_max_kib": max(everything),
        "rss_growth_kib": growth,
        "rss_creep_kib": creep,
        "bounds_kib": [FLAT_KIB_MAX, CREEP_KIB_MAX],
        "flat": bool(settled) and growth <= FLAT_KIB_MAX and creep <= CREEP_KIB_MAX,
        "readings": len(everything),
        **found,
    }


def measure(scratch, parallelism, cove=None, seconds=SECONDS):
    """The whole scenario with a server of its own."""
    say(f"slow reader: {seconds:g} s")
    directory = scratch / "slow-reader"
    directory.mkdir()
    try:
        with rivals.cove(directory, parallelism, cove, CONFIG) as server:
            client = Client(server["spec"]["address"], server["spec"]["token"])
            rate = fast(client)
            found = slow(client, server["pid"], seconds)
    except (OSError, HTTPException, Refused, rivals.Unavailable) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"seconds": seconds, **summarise(found.pop("readings_kib"), rate, found)}


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--cove", metavar="PATH", help="the cove to run")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--parallelism", type=int, default=2)
    options = parser.parse_args(argv)
    with rivals.disk_directory() as directory:
        found = measure(
            pathlib.Path(directory), options.parallelism, options.cove, options.seconds
        )
    print(json.dumps(found, indent=1))
    return 0 if found.get("flat") and not found["mistakes"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
