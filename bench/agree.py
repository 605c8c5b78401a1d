#!/usr/bin/env python3
"""Compares two runs of the benchmarks: the rows of the summary, CPU of every case, and counts.

    bench/agree.py results/2026-12-01-abc1234.json results/2026-12-02-abc1234.json
    bench/agree.py A.json B.json --limit 5      the status is 1 when CPU or counts differ by more

CPU of an operation and counts of instructions should agree within the limit on a quiet machine. Wall times
are shown beside them and judged by nobody.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import pages
import report
import summary
from gateway.cases import INSIDE
from report import number, table
from rivals import COVE

LIMIT_PERCENT = 5.0


# Where the CPU of an operation is, by part: the member of a case's figures, and its unit.
CPU = {"sessions": ("cpu_ms", "ms"), "bouncer": ("cpu_us", "µs"), "catalog": ("cpu_us", "µs"),
       "gateway": ("cove_cpu_us", "µs")}  # fmt: skip


def cpu_of_cases(run):
    """CPU of an operation in each case of each part, of Cove and of the gateway's insides."""
    found = {}
    for (workload, clients), of in report.figures_of(run).items():
        for rival, it in of.items():
            if rival.startswith(COVE) and it.get("cpu_ms_per_job"):
                name = f"{workload} ×{clients}, {rival}: CPU"
                found["Executions", name] = (it["cpu_ms_per_job"], "ms")
    for part, (member, unit) in CPU.items():
        document = run.get("scenarios", {}).get(part)
        for case, of in pages.FIGURES[part].group(document).items() if document else ():
            for rival, it in of.items():
                if (rival.startswith(COVE) or rival == INSIDE) and it.get(member):
                    words = [case] if isinstance(case, str) else [case[0], *flat(case[1])]
                    name = f"{' '.join(words)}, {rival}: CPU"
                    found[pages.TITLES[part], name] = (it[member], unit)
    return found


def flat(key):
    """The words of a case's key."""
    return [key] if isinstance(key, str) else map(str, key)


def figures(run):
    """Cove's figure and its unit by service and row, CPU by case, and instructions by operation."""
    found = {
        (pages.TITLES[name], it.figure): (it.cove, it.unit)
        for name in summary.SERVICES
        for it in summary.rows_of(name, run)
    }
    counts = (run.get("counts") or {}).get("instructions", {})
    return found | cpu_of_cases(run) | {("Counts", name): (n, "instructions") for name, n in counts.items()}


def is_judged(row):
    """Whether a row is of what does not depend on how long others kept the processor."""
    service, figure = row
    return service == "Counts" or "CPU" in figure or "system calls" in figure


def compare(before, after, limit_percent):
    """A row of text for each figure that both have, those that are judged first, and which of those
    differ by more than the limit."""
    first, second = figures(before), figures(after)
    rows, apart = [], []
    for row in sorted((it for it in first if it in second), key=lambda it: not is_judged(it)):
        (a, unit), (b, _) = first[row], second[row]
        percent = 100 * (b / a - 1) if a else 0.0
        is_apart = is_judged(row) and abs(percent) > limit_percent
        apart += [row] if is_apart else []
        verdict = f"more than {limit_percent:g} %" if is_apart else "" if is_judged(row) else "wall"
        rows.append([*row, number(a), number(b), unit, f"{percent:+.1f} %", verdict])
    return rows, apart


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("runs", nargs=2, type=pathlib.Path, metavar="RUN.json")
    parser.add_argument("--limit", type=float, default=LIMIT_PERCENT, metavar="PERCENT",
                        help=f"how far apart CPU and counts may be ({LIMIT_PERCENT:g})")  # fmt: skip
    options = parser.parse_args(argv)
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in options.runs)
    rows, apart = compare(before, after, options.limit)
    print(table(["service", "figure", before["commit"], after["commit"], "unit", "apart", ""], rows))
    judged = sum(map(is_judged, ((row[0], row[1]) for row in rows)))
    print(f"\n{judged - len(apart)} of {judged} figures of CPU and counts agree within"
          f" {options.limit:g} %")  # fmt: skip
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
