"""Instructions of one operation of each kind: see `check.py`, which compares two commits by them."""

import subprocess

import check
import report
from rivals import Unavailable

NAMES = ["counts"]


def prepare(_options):
    """Builds what is counted."""
    build()


def build():
    """The program that does the work."""
    try:
        check.target().mkdir(parents=True, exist_ok=True)
        return check.build(check.ROOT, "branch")
    except check.Failed as error:
        raise Unavailable(str(error)) from error


def measure(_scratch, options):
    """The counts, in the first round alone: they are the same in each."""
    if options.rival or options.numbers[0] > 0:
        return {}
    try:
        tool = check.counter()
        rows = check.per_operation(tool, build(), "")
        return {"counter": tool[0][0], "instructions": rows}
    except (check.Failed, Unavailable, OSError, subprocess.TimeoutExpired) as error:
        return {"error": str(error)}


def merge(founds):
    """One document of those of several rounds."""
    return report.joined(founds)


def failed(found):
    """Whether an operation had a wrong result: then it has no count."""
    return "error" in (found or {})


def text(found):
    """The table, or why there is none."""
    if "error" in found:
        return [f"Not counted: {found['error']}\n"]
    rows = [[name, report.number(n, 0)] for name, n in found["instructions"].items()]
    return [
        "Counted in one thread of one process, without system calls; what comes before the first"
        f" operation is taken off. By {found['counter']}. `make bench-check` compares a branch with its"
        " base by these: two runs agree within 3 %, whatever else the machine does.\n",
        report.table(["operation", "instructions"], rows) + "\n",
    ]
