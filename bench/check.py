#!/usr/bin/env python3
"""Compares a branch with its base by counts of instructions: two runs agree, however busy the machine.

    bench/check.py --base origin/main        a table; the status is 1 when a case has grown
    bench/check.py --only postgres --json -  cases whose names begin so, as JSON on standard output

Builds `bench/counts` of the commit at which the branch left its base, and of the files as they are here,
and runs each case with N and with 2N operations: the difference is that of N operations without what
comes before them. Counts are valgrind's, or the processor's own where it has no valgrind and counts.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent
# Of one case, from base to branch: what is beyond it is said and fails the check.
LIMIT_PERCENT = 5.0
CASE_SECONDS_MAX = 120
VALGRIND = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
PERF = ["perf", "stat", "-x", ",", "-e", "instructions:u"]


class Failed(Exception):
    """Something that has to be there is not, or a case has a wrong result."""


def run(argv, **options):
    """Standard output of a command; its last lines are the error when it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        words = " / ".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise Failed(f"`{' '.join(map(str, argv))}` failed: {words}")
    return done.stdout


def git(*arguments):
    return run(["git", "-C", ROOT, *arguments]).strip()


def say(text):
    print(text, file=sys.stderr, flush=True)


# --- counting


def counts_of_valgrind(text):
    """Instructions as cachegrind tells them."""
    found = re.search(r"I\s+refs:\s+([\d,]+)", text)
    return int(found.group(1).replace(",", "")) if found else None


def counts_of_perf(text):
    """Instructions as `perf stat -x ,` tells them; nothing where the processor does not count."""
    found = re.search(r"^(\d+),[^,]*,instructions", text, re.M)
    return int(found.group(1)) if found else None


def counter():
    """The command that counts, and what reads its answer."""
    if shutil.which("valgrind"):
        return VALGRIND, counts_of_valgrind
    if shutil.which("perf"):
        done = subprocess.run([*PERF, "true"], capture_output=True, text=True, check=False)
        if counts_of_perf(done.stderr):
            return PERF, counts_of_perf
    raise Failed("neither valgrind nor a processor whose instructions `perf` may count is here")


def instructions(tool, binary, case, operations):
    """Instructions of a whole run."""
    command, read = tool
    argv = [*command, binary, case, str(operations)]
    # A panic shows no frames, which would be counted as well if it was mistaken for a result.
    environment = {**os.environ, "RUST_BACKTRACE": "0"}
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=CASE_SECONDS_MAX,
        env=environment,
    )  # fmt: skip
    counted = read(done.stderr)
    if done.returncode != 0 or counted is None:
        words = [line for line in done.stderr.splitlines() if not line.startswith("==")]
        raise Failed(f"{case} with {operations} operations: {' / '.join(words[-3:])}")
    return counted


def cases_of(binary):
    """The cases of a binary, and of how many operations the shorter run is."""
    lines = run([binary, "list"]).split("\n")
    return {name: int(n) for name, n in (line.split() for line in lines if line)}


def per_operation(tool, binary, wanted):
    """Instructions of one operation of each case."""

    def of(case):
        name, n = case
        shorter, longer = (instructions(tool, binary, name, times * n) for times in (1, 2))
        return name, (longer - shorter) / n

    cases = {name: n for name, n in cases_of(binary).items() if name.startswith(wanted)}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(pool.map(of, cases.items()))


# --- building


def target():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "bench-check"


def build(root, name):
    """Builds `bench/counts` below `root`; a copy of it that the next build leaves alone."""
    say(f"building the counts of {name}")
    manifest = root / "bench" / "counts" / "Cargo.toml"
    # Packages of the registry are compiled once for both sides: they share a directory.
    argv = ["cargo", "build", "--release", "--quiet", "--manifest-path", manifest]
    environment = {**os.environ, "CARGO_INCREMENTAL": "0"}
    run([*argv, "--target-dir", target()], cwd=root / "bench" / "counts", env=environment)
    copy = target() / f"counts-{name}"
    shutil.copy(target() / "release" / "bench-counts", copy)
    return copy


@contextlib.contextmanager
def worktree(commit):
    """The files of a commit, for as long as they are built."""
    with tempfile.TemporaryDirectory(prefix="base-", dir=target()) as directory:
        tree = pathlib.Path(directory) / "tree"
        git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield tree
        finally:
            git("worktree", "remove", "--force", str(tree))


def build_base(commit):
    """The binary of a commit, from an earlier check if there was one."""
    copy = target() / f"counts-{commit[:12]}"
    if copy.exists():
        return copy
    with worktree(commit) as tree:
        driver = tree / "bench" / "counts"
        if not driver.exists():
            say("the base has no bench/counts: it is built with that of the branch")
            shutil.copytree(BENCH / "counts", driver)
            # What the copied driver borrows from the other benches is the base's.
        return build(tree, commit[:12])


# --- the comparison


def compare(base, branch, limit_percent):
    """A row for each case: what it took and takes, their ratio, and whether it is too much more."""
    rows = []
    for name in sorted({*base, *branch}):
        before, after = base.get(name), branch.get(name)
        ratio = after / before if before and after is not None else None
        grown = ratio is not None and ratio > 1 + limit_percent / 100
        rows.append({"case": name, "base": before, "branch": after, "ratio": ratio,
                     "grown": grown})  # fmt: skip
    return rows


def table(rows, limit_percent):
    """The rows as text."""

    def count(value):
        return "–" if value is None else f"{value:,.0f}".replace(",", " ")

    lines = [f"{'instructions of one operation':32}{'base':>12}{'branch':>12}{'ratio':>8}"]
    for row in rows:
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.3f}"
        words = f"  more than {limit_percent:g} % more" if row["grown"] else ""
        if row["ratio"] is None:
            words = "  only here" if row["base"] is None else "  no longer here"
        line = f"{row['case']:32}{count(row['base']):>12}{count(row['branch']):>12}{ratio:>8}"
        lines.append(line + words)
    return "\n".join(lines)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--base", default="origin/main", help="what the branch left (origin/main)")
    parser.add_argument("--only", default="", metavar="PREFIX", help="cases whose names begin so")
    parser.add_argument("--limit", type=float, default=LIMIT_PERCENT, metavar="PERCENT",
                        help=f"growth that is still good ({LIMIT_PERCENT:g})")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON; - is standard output")
    return parser.parse_args(argv)


def main(argv):
    options = parse_arguments(argv)
    try:
        tool = counter()
        target().mkdir(parents=True, exist_ok=True)
        commit = git("merge-base", options.base, "HEAD")
        base, branch = build_base(commit), build(ROOT, "branch")
        say(f"counting by {tool[0][0]}")
        before, after = (per_operation(tool, side, options.only) for side in (base, branch))
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        say(f"bench-check: {error}")
        return 2
    rows = compare(before, after, options.limit)
    if options.json:
        found = {"base": commit, "counter": tool[0][0], "limit_percent": options.limit, "rows": rows}
        text = json.dumps(found, indent=1) + "\n"
        if options.json == "-":
            print(text, end="")
        else:
            pathlib.Path(options.json).write_text(text, encoding="utf-8")
    if options.json != "-":
        print(table(rows, options.limit))
    return 1 if any(row["grown"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
