#!/usr/bin/env python3
"""Kills the server while it works a queue off, and looks whether every job has exactly one result.

    python3 bench/durability.py --cove PATH [--jobs 10000] [--kills 3]

Every job prints a name of its own. A job is lost when it was accepted and has no result at the end;
doubled when it is listed twice, its result was published again after it had been seen, or its
events end twice; wrong when the result is not its own.
"""

import argparse
import json
import pathlib
import sys
import time
from http.client import HTTPException

import machine
import rivals
from client import Client, Refused
from rivals import say

JOBS, KILLS = 10_000, 3
BATCH = 100
PAGE = 200
EVENTS_SAMPLE = 200
POLL_SECONDS = 0.02
DRAIN_SECONDS_MAX = 900
EXAMPLES_MAX = 3


def name_of(number):
    """What job `number` prints."""
    return f"durability-{number}"


def submit(client, jobs):
    """Submits all jobs in batches; `{id: number}` of those that were accepted."""
    accepted = {}
    for first in range(0, jobs, BATCH):
        numbers = range(first, min(first + BATCH, jobs))
        executions = [{"argv": ["/bin/echo", name_of(n)]} for n in numbers]
        headers = {"idempotency-key": f"durability-{first}"}
        answer = client.json(
            "POST", "/v1/executions/batch", {"executions": executions}, headers, status=202
        )
        accepted.update(zip((e["id"] for e in answer["executions"]), numbers, strict=True))
    return accepted


def stats(client):
    """The queue's own figures."""
    return client.json("GET", "/v1/queue")


def listed(client, state=""):
    """Every execution that the server lists, newest first."""
    found, cursor = [], ""
    while True:
        query = f"?limit={PAGE}{state and f'&state={state}'}{cursor and f'&cursor={cursor}'}"
        page = client.json("GET", f"/v1/executions{query}")
        found += page["executions"]
        if not (cursor := page.get("next_cursor", "")):
            return found


def wait_for(client, process, reached, seconds=DRAIN_SECONDS_MAX):
    """Waits until `reached` of the queue's figures, which are returned; None when too late."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        figures = stats(client)
        if reached(figures):
            return figures
        time.sleep(POLL_SECONDS)
    return None


def kill(process):
    """SIGKILL to the server alone; what it started has to notice by itself."""
    below = set(machine.descendants(process.pid)) - {process.pid}
    process.kill()
    process.wait()
    return below


def answers(client):
    """The queue's figures as soon as a server that starts answers; None before."""
    try:
        return stats(client)
    except (OSError, HTTPException, Refused):
        return None


def drain(server, jobs, kills):
    """Submits, kills, starts again, and waits for the end: what became of every job."""
    process, client = server.start()
    began = time.monotonic()
    accepted = submit(client, jobs)
    submitted = time.monotonic()
    say(f"  {len(accepted)} jobs accepted in {submitted - began:.1f} s")
    seen, restarts, doubled, orphans, pids = {}, [], [], 0, [process.pid]
    for n in range(kills):
        wait_for(client, process, lambda f, n=n: f["finished"] >= jobs * (n + 1) // (kills + 1))
        doubled += remember(seen, listed(client, "finished"))
        figures = stats(client)
        killed = time.monotonic()
        below = kill(process)
        process, client = server.start(wait=False)
        pids.append(process.pid)
        first = rivals.wait_until(lambda: answers(client), process, server.log, rivals.COVE)
        answered = time.monotonic()
        wait_for(client, process, lambda f, first=first: f["finished"] > first["finished"])
        restarts.append(
            {
                "finished_before": figures["finished"],
                "finished_after": first["finished"],
                "answers_after_ms": round((answered - killed) * 1000),
                "next_result_after_ms": round((time.monotonic() - killed) * 1000),
            }
        )
        orphans += len(below & set(machine.processes()))
        say(f"  killed at {figures['finished']} results: {restarts[-1]}")
    wait_for(client, process, lambda f: f["queued"] == 0 and f["running"] == 0)
    took = time.monotonic() - began
    found = verify(client, accepted, seen, doubled)
    server.stop()
    groups = [p for p in machine.cgroup_directories() if any(f"/cove-{pid}-" in p for pid in pids)]
    return {
        "jobs": jobs,
        "accepted": len(accepted),
        "kills": len(restarts),
        "restarts": restarts,
        "submit_seconds": submitted - began,
        "drain_seconds": took,
        "processes_left_by_kills": orphans,
        "control_groups_left": len(groups),
        **found,
    }


def remember(seen, executions):
    """Notes results that are published; those that were published before in another way."""
    changed = []
    for e in executions:
        result = (e["finished_at"], e["attempts"])
        if seen.setdefault(e["id"], result) != result:
            changed.append(f"{e['id']} was published again")
    return changed


def verify(client, accepted, seen, doubled):
    """What became of every job that was accepted."""
    lost, wrong, retried = [], [], 0
    everything = listed(client)
    ids = [e["id"] for e in everything]
    counted = {}
    for identity in ids:
        counted[identity] = counted.get(identity, 0) + 1
    doubled = doubled + [f"{i} is listed {n} times" for i, n in counted.items() if n > 1]
    doubled += [f"{i} was never accepted" for i in counted if i not in accepted]
    doubled += remember(seen, [e for e in everything if e["state"] == "finished"])
    for identity, number in accepted.items():
        status, text = client.request("GET", f"/v1/executions/{identity}")
        record = json.loads(text) if status == 200 else {}
        if record.get("state") != "finished" or "result" not in record:
            lost.append(f"{identity}: status {status}, {record.get('state')}")
            continue
        retried += record["attempts"] > 1
        result = record["result"]
        expected = ("OK", f"{name_of(number)}\n", identity)
        if (result["verdict"], result["stdout"], result["id"]) != expected:
            wrong.append(f"{identity}: {result['verdict']}, {result['stdout']!r:.60}")
    doubled += ended_twice(client, list(accepted)[:: max(1, len(accepted) // EVENTS_SAMPLE)])
    return {
        "finished": sum(e["state"] == "finished" for e in everything),
        "lost": len(lost),
        "doubled": len(doubled),
        "wrong": len(wrong),
        "run_again": retried,
        "examples": (lost + doubled + wrong)[:EXAMPLES_MAX],
    }


def ended_twice(client, ids):
    """Those whose events do not end with exactly one verdict."""
    found = []
    for identity in ids:
        status, text = client.request("GET", f"/v1/executions/{identity}/events")
        names = [line for line in text.decode().splitlines() if line.startswith("event:")]
        if status != 200 or names.count("event: verdict") != 1 or "verdict" not in names[-1]:
            found.append(f"{identity}: status {status}, events {names}")
    return found


def measure(scratch, parallelism, cove=None, jobs=JOBS, kills=KILLS):
    """The whole scenario with a server of its own."""
    say(f"durability: {jobs} jobs, {kills} kills")
    server = rivals.Restartable(scratch, parallelism, cove)
    try:
        return drain(server, jobs, kills)
    except (OSError, HTTPException, Refused, rivals.Unavailable) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        server.stop()


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--cove", metavar="PATH", help="the cove to run")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--parallelism", type=int, default=2)
    options = parser.parse_args(argv)
    with rivals.disk_directory() as directory:
        found = measure(
            pathlib.Path(directory), options.parallelism, options.cove, options.jobs, options.kills
        )
    print(json.dumps(found, indent=1))
    return 0 if not found.get("error") and not found["examples"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
