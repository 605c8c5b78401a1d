"""The relay in one process, and leases: ours and Go's in interleaved rounds, medians and ratios.

    python3 bench/bouncer/relay.py --rounds 5

Go's side runs with one processor and with as many as the machine has, and its better figure counts:
goroutines that hand over to each other do not always gain by a second one.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BENCH = HERE.parent
TARGET = BENCH / "target"
GO = "go"
# Ours to Go's, at most; Go's always resets, as the seed did.
GOALS = {
    "postgres/rendezvous/reset_always": 1 / 3,
    "postgres/rendezvous/dirty_only": 1 / 5,
    "mysql/rendezvous/reset_always": 1 / 3,
    "mysql/rendezvous/dirty_only": 1 / 5,
    "mysql/status_flags": 1,
    "lease/acquire_return": 1 / 4,
    "lease/parallel": 1 / 4,
    "lease/contended": 1 / 4,
    "lease/throughput": 1 / 4,
    "lease/stats": 1 / 4,
}
AGAINST = {
    f"{protocol}/rendezvous/dirty_only": f"{protocol}/rendezvous/reset_always"
    for protocol in ("postgres", "mysql")
}
# Go's pool is the one of the other bench, under its own names.
POOL_ROWS = {"pool/": "lease/"}
SECONDS_MAX = 600


def build():
    """Builds both sides and returns the command of each."""
    manifest = HERE / "Cargo.toml"
    cargo = ["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", manifest]
    subprocess.run([*cargo, "--target-dir", TARGET], check=True)
    binary = TARGET / "go-bouncer"
    subprocess.run(["go", "build", "-o", binary, "."], cwd=BENCH / "go" / "bouncer", check=True)
    commands = {"cove": [TARGET / "release" / "bench-bouncer"]}
    for processors in sorted({1, os.cpu_count()}):
        commands[f"{GO} {processors}"] = [binary, "-processors", str(processors)]
    binary = TARGET / "go-pool"
    subprocess.run(["go", "build", "-o", binary, "."], cwd=BENCH / "go" / "pool", check=True)
    commands[f"{GO} pool"] = [binary]
    return commands


def one_round(commands, reverse):
    """Runs each side once, next to each other so that all see the same machine."""
    rows = {}
    for side, command in sorted(commands.items(), reverse=reverse):
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=SECONDS_MAX
        )
        for row in json.loads(done.stdout)["rows"]:
            name = row["name"]
            for theirs, ours in POOL_ROWS.items():
                name = name.replace(theirs, ours)
            rows.setdefault(name, {})[side] = row
    return rows


def best(row):
    """The faster of Go's figures of a row, if there are any."""
    figures = [one for side, one in row.items() if side.startswith(GO)]
    return min(figures, key=lambda one: one["ns_per_op"], default=None)


def summary(rounds):
    """One entry per row: medians over the rounds, and ours against the goal."""
    entries = []
    for name, first in rounds[0].items():
        entry = {"name": name}
        for side, pick in (("cove", lambda row: row.get("cove")), (GO, best)):
            if pick(first):
                entry[side] = medians([pick(r[name]) for r in rounds])
        other = AGAINST.get(name, name)
        if "cove" in entry and best(rounds[0][other]):
            # The ratio within a round, because load differs between rounds.
            ratios = [r[name]["cove"]["ns_per_op"] / best(r[other])["ns_per_op"] for r in rounds]
            entry["ratio"] = statistics.median(ratios)
        if name in GOALS and "ratio" in entry:
            theirs = "Go with a reset" if name in AGAINST else "Go"
            entry["goal"] = f"<= {GOALS[name]:.2f} x {theirs}, 0 allocations"
            entry["met"] = entry["ratio"] <= GOALS[name] and not entry["cove"]["allocs_per_op"]
        entries.append(entry)
    return entries


def medians(runs):
    keys = ("ns_per_op", "allocs_per_op", "bytes_per_op")
    figures = {key: statistics.median(run[key] for run in runs) for key in keys}
    # A growing buffer of the harness in one of a million operations is none of an operation.
    figures["allocs_per_op"] = round(figures["allocs_per_op"], 3)
    return {**figures, "checked": all(run["checked"] for run in runs)}


def right(entries):
    """Whether every answer was what it has to be."""
    return all(e[side]["checked"] for e in entries for side in ("cove", GO) if side in e)


def measure(numbers):
    """What each side did in some rounds."""
    commands = build()
    return [one_round(commands, reverse=bool(number % 2)) for number in numbers]


def document(rounds):
    """The document of `bouncer.figures`."""
    return {"rounds": len(rounds), "rows": summary(rounds)}


def table(entries):
    """Rows of text."""
    lines = [f"{'row':42} {'cove ns':>9} {'go ns':>9} {'ratio':>6} {'allocs':>7} {'go':>6}  goal"]
    for entry in entries:
        cove, go = entry.get("cove"), entry.get(GO)
        cells = [
            f"{entry['name']:42}",
            f"{cove['ns_per_op']:9.1f}" if cove else " " * 9,
            f"{go['ns_per_op']:9.1f}" if go else " " * 9,
            f"{entry['ratio']:6.3f}" if "ratio" in entry else " " * 6,
            f"{cove['allocs_per_op']:7.3f}" if cove else " " * 7,
            f"{go['allocs_per_op']:6.1f}" if go else " " * 6,
            f" {entry['goal']} {'met' if entry['met'] else 'MISSED'}" if "goal" in entry else "",
        ]
        lines.append(" ".join(cells).rstrip())
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    found = document(measure(range(max(parser.parse_args().rounds, 1))))
    print(table(found["rows"]))
    return 0 if right(found["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
