#!/usr/bin/env python3
"""Random commits through Iceberg's own library and through Cove's, side by side.

    compat/iceberg/oracle/run.py --class-path FILE [--seed N] [--commits N]

FILE holds a Java class path with iceberg-core, as Maven's `dependency:build-classpath` writes it. Both must make the
same document of each commit, or refuse it for the same reason. Ends with status 1 if they do not.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import commits

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SHOWN_MAX = 5


def reference(class_path, text):
    """What Iceberg's library says, a line for each commit."""
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run(["javac", "-cp", class_path, "-d", classes, HERE / "Oracle.java"], check=True)
        command = ["java", "-cp", f"{classes}:{class_path}", "org.apache.iceberg.Oracle"]
        done = subprocess.run(command, input=text, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def ours(text):
    """What Cove's says."""
    command = ["cargo", "run", "-q", "-p", "iceberg", "--example", "apply"]
    done = subprocess.run(command, cwd=ROOT, input=text, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def meaning(answer):
    """What must be the same: all but the time of the commit, and how lists of one kind are ordered or left out."""
    kind, *rest = answer.split("\t")
    if kind == "refused":
        message = rest[1].replace("Validation failed, please retry: ", "").replace("[BUG] ", "")
        # Both name the moment of the commit, and each shows a specification in its own way.
        message = re.sub(r"Invalid update timestamp \d+", "Invalid update timestamp", message)
        # The reference reads a version more.
        message = re.sub(r" \(supported: v\d\)", "", message)
        return kind, re.sub(r"(required in v1): .*", r"\1", message)
    document = json.loads(rest[0])
    updated = document.pop("last-updated-ms")
    document.pop("metadata-log", None)
    for entry in document.get("snapshot-log", []):
        if entry["timestamp-ms"] == updated:
            entry["timestamp-ms"] = "now"
    for name in ("statistics", "partition-statistics"):
        document[name] = sorted(document.get(name, []), key=lambda it: it["snapshot-id"])
    if not document.get("encryption-keys"):
        document.pop("encryption-keys", None)
    for snapshot in document["snapshots"]:
        snapshot.setdefault("sequence-number", 0)
    return kind, document


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--class-path", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commits", type=int, default=5_000)
    options = parser.parse_args()
    cases = [
        f"{json.dumps(table) if table else ''}\t{json.dumps(updates)}"
        for table, updates in commits.commits(options.seed, options.commits)
    ]
    text = "\n".join(cases) + "\n"
    theirs, here = reference(options.class_path.read_text().strip(), text), ours(text)
    if not len(cases) == len(theirs) == len(here):
        sys.exit(f"{len(cases)} commits, {len(theirs)} answers of the reference, {len(here)} of ours")
    counts = {"done": 0, "refused": 0, "different": 0}
    for case, their, our in zip(cases, theirs, here):
        if meaning(their) == meaning(our):
            counts[our.split("\t")[0]] += 1
            continue
        counts["different"] += 1
        if counts["different"] <= SHOWN_MAX:
            print(f"different: {case}\n  reference: {their}\n  ours: {our}")
    print(f"seed {options.seed}: {counts}")
    # A run in which one side only refuses would prove nothing.
    sys.exit(1 if counts["different"] or min(counts["done"], counts["refused"]) < len(cases) // 10 else 0)


if __name__ == "__main__":
    main()
