#!/usr/bin/env python3
"""Rows of the pool: ours and Go's in interleaved rounds, medians and ratios.

    python3 bench/pool/run.py --rounds 5 --out FILE
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parent / "target"
# Ours / Go's, at most. `pool/contended_yield` is an extra row without a goal: tasks give way while they hold a lease, so
# that queues really form. It does not reach the quarter that the other rows do.
GOALS = {
    "pool/acquire_return": 0.25,
    "pool/parallel": 0.25,
    "pool/contended": 0.25,
    "pool/throughput": 0.25,
}
NS_GOALS = {"pool/stats": 3.0}


def build():
    """Builds both sides and returns their commands by group."""
    subprocess.run(
        ["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", HERE / "Cargo.toml", "--target-dir", TARGET],
        check=True,
    )
    commands = {}
    for group in ("pool",):
        binary = TARGET / f"go-{group}"
        subprocess.run(["go", "build", "-o", binary, "."], cwd=HERE.parent / "go" / group, check=True)
        commands[group] = {"cove": [TARGET / "release" / "bench-pool", group], "go": [binary]}
    return commands


def one_round(commands, reverse):
    """Runs each side once, next to each other so that both see the same machine."""
    rows = {}
    for group in commands.values():
        for side, command in sorted(group.items(), reverse=reverse):
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            for row in json.loads(out)["rows"]:
                rows.setdefault(row["name"], {})[side] = row
    return rows


def summary(rounds):
    """One entry per row: medians over the rounds, and ours against the goal."""
    result = []
    for name in rounds[0]:
        entry = {"name": name}
        for side in ("cove", "go"):
            runs = [r[name][side] for r in rounds]
            entry[side] = {
                key: statistics.median(run[key] for run in runs)
                for key in ("ns_per_op", "allocs_per_op", "bytes_per_op")
            }
            entry[side]["checked"] = all(run["checked"] for run in runs)
        # The ratio within a round, because load differs between rounds.
        ratios = [r[name]["cove"]["ns_per_op"] / r[name]["go"]["ns_per_op"] for r in rounds]
        entry["ratio"] = statistics.median(ratios)
        if name in GOALS:
            entry["goal"] = f"<= {GOALS[name]:g} x go"
            entry["met"] = entry["ratio"] <= GOALS[name]
        elif name in NS_GOALS:
            entry["goal"] = f"<= {NS_GOALS[name]:g} ns"
            entry["met"] = entry["cove"]["ns_per_op"] <= NS_GOALS[name]
        result.append(entry)
    return result


def table(entries):
    lines = [f"{'row':24} {'cove ns':>9} {'go ns':>9} {'ratio':>6} {'allocs':>8} {'go':>8}  goal"]
    for e in entries:
        verdict = {True: "met", False: "MISSED", None: ""}[e.get("met")]
        right = "" if e["cove"]["checked"] and e["go"]["checked"] else "  WRONG RESULT"
        lines.append(
            f"{e['name']:24} {e['cove']['ns_per_op']:9.1f} {e['go']['ns_per_op']:9.1f} {e['ratio']:6.3f} "
            f"{e['cove']['allocs_per_op']:8.3f} {e['go']['allocs_per_op']:8.3f}  {e.get('goal', '-')} {verdict}{right}"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    commands = build()
    rounds = [one_round(commands, reverse=bool(n % 2)) for n in range(max(args.rounds, 1))]
    entries = summary(rounds)
    args.out.write_text(json.dumps({"rounds": len(rounds), "load_1m": os.getloadavg()[0], "rows": entries}, indent=1) + "\n")
    print(table(entries))
    return 0 if all(e["cove"]["checked"] and e["go"]["checked"] for e in entries) else 1


if __name__ == "__main__":
    sys.exit(main())
