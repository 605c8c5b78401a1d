"""The seed's rows and those of documents: ours and Go's in interleaved rounds, medians and ratios.

    python3 bench/catalog/documents.py --rounds 5
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BENCH = HERE.parent
# Also where this file is run by itself.
sys.path.insert(0, str(BENCH))

from bouncer.relay import medians, right, table  # noqa: E402

TARGET = BENCH / "target"
GO, COVE = "go", "cove"
# Ours to Go's, at most; and whether there may be an allocation.
GOALS = {
    "seed/small_fresh": (1 / 4, 1),
    "seed/small_reused": (1 / 4, 0),
    "seed/large_fresh": (1 / 4, 1),
    "seed/large_reused": (1 / 4, 0),
    "seed/gc_fresh": (1 / 4, 1),
    "seed/gc_reused": (1 / 4, 0),
    "seed/concurrent_small": (1 / 4, 1),
    "seed/token_fresh": (1, 1),
    "seed/token_reused": (1, 1),
}
# Nanoseconds at most.
NS_GOALS = {
    "documents/small_serve": 100,
    "documents/large_serve": 250,
    "documents/thousand_append": 1_000_000,
}
SECONDS_MAX = 600


def cargo(package):
    manifest = BENCH / package / "Cargo.toml"
    # Not `--locked`: what the project's own crates need is theirs to say, and a name that is new
    # there must not keep the benches from running.
    command = ["cargo", "build", "--release", "--quiet", "--manifest-path", manifest]
    subprocess.run([*command, "--target-dir", TARGET], check=True)
    return TARGET / "release" / f"bench-{package}"


def go(package, *arguments):
    binary = TARGET / f"go-{package}"
    subprocess.run(["go", "build", "-o", binary, "."], cwd=BENCH / "go" / package, check=True)
    return [binary, *arguments]


def build():
    """The program that is the load generator and the bare server as well."""
    return cargo("catalog")


def commands():
    """Builds both sides and returns the command of each."""
    return {COVE: [build()], GO: go("catalog", HERE / "fixtures")}


def one_round(both, reverse):
    """Runs each side once, next to each other so that both see the same machine."""
    rows = {}
    for side, command in sorted(both.items(), reverse=reverse):
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=SECONDS_MAX
        )
        for row in json.loads(done.stdout)["rows"]:
            rows.setdefault(row["name"], {})[side] = row
    return rows


def summary(rounds):
    """One entry per row: medians over the rounds, and ours against the goal."""
    entries = []
    for name, first in rounds[0].items():
        entry = {"name": name}
        for side in (COVE, GO):
            if side in first:
                entry[side] = medians([r[name][side] for r in rounds])
        if COVE in entry and GO in entry:
            # The ratio within a round, because load differs between rounds.
            ratios = [r[name][COVE]["ns_per_op"] / r[name][GO]["ns_per_op"] for r in rounds]
            entry["ratio"] = statistics.median(ratios)
        if name in GOALS:
            limit, allocations = GOALS[name]
            entry["goal"] = f"<= {limit:g} x Go, at most {allocations} allocations"
            few = round(entry[COVE]["allocs_per_op"], 2) <= allocations
            entry["met"] = entry["ratio"] <= limit and few
        elif name in NS_GOALS:
            entry["goal"] = f"<= {NS_GOALS[name]} ns"
            entry["met"] = entry[COVE]["ns_per_op"] <= NS_GOALS[name]
        entries.append(entry)
    return entries


def measure(numbers):
    """What each side did in some rounds."""
    both = commands()
    return [one_round(both, reverse=bool(number % 2)) for number in numbers]


def document(rounds):
    """The document of `catalog.figures`."""
    return {"rounds": len(rounds), "rows": summary(rounds)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    found = document(measure(range(max(parser.parse_args().rounds, 1))))
    print(table(found["rows"]))
    return 0 if right(found["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
