#!/usr/bin/env python3
"""Tests of the pages of results, and that those here are what the files here give:
`python3 bench/test_pages.py`."""

import copy
import pathlib
import sys
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import agree
import pages
import plots
import report
import run
import summary
from rivals import BARE, COVE, GO_JUDGE

PLOT_BYTES_MAX = 10_000
ROWS_MAX = 14


class Committed(unittest.TestCase):
    """The pages that are in the repository."""

    @classmethod
    def setUpClass(cls):
        cls.documents = pages.load(pages.BENCH / "results")
        cls.files = pages.render(cls.documents)

    def test_they_are_what_the_files_of_runs_give(self):
        for name, text in self.files.items():
            there = (pages.BENCH / name).read_text(encoding="utf-8")
            self.assertEqual(there, text, f"bench/{name}: run `bench/run.py --render`")
        plotted = {f"plots/{path.name}" for path in (pages.BENCH / "plots").glob("*.svg")}
        self.assertEqual(plotted - set(self.files), set(), "plots of nothing")

    def test_the_summary_is_a_page(self):
        text = self.files["RESULTS.md"]
        self.assertLess(len(text), 20_000)
        for name in summary.SERVICES:
            found = pages.newest(self.documents, name)
            rows = summary.rows_of(name, found) if found else []
            self.assertLessEqual(len(rows), ROWS_MAX, name)

    def test_every_service_says_of_when_and_of_what_it_is(self):
        text = self.files["RESULTS.md"]
        for name in summary.SERVICES:
            found = pages.newest(self.documents, name)
            if found is None:
                self.assertIn(f"| {pages.TITLES[name]} ", text)
                continue
            section = text[text.index(f"## {pages.TITLES[name]}\n") :]
            caption = section.splitlines()[2]
            self.assertIn(pages.day(found["date"]), caption)
            self.assertIn(found["commit"], caption)

    def test_plots_are_small_and_whole(self):
        for name, text in self.files.items():
            if name.endswith(".svg"):
                self.assertLess(len(text.encode()), PLOT_BYTES_MAX, name)
                xml.etree.ElementTree.fromstring(text)
                self.assertIn("prefers-color-scheme:dark", text)


FIGURES = report.summarise([])


def executions(cove_ms, judge_ms, date="2030-01-02 03:04 UTC", commit="abc1234", **more):
    """A run of one workload, as it is kept."""
    of = {
        name: {**FIGURES, "p50_ms": ms, "cpu_ms_per_job": ms / 2}
        for name, ms in ((COVE, cove_ms), (GO_JUDGE, judge_ms), (BARE, 0.5))
    }
    figures = [{"workload": "true", "clients": 1, "rivals": of}]
    machine = {"cores": 2, "cpu": "x", "kernel": "6.1-a", "system": "s", "memory_mib": 1,
               "cgroups": "v2"}  # fmt: skip
    about = {"dirty": False, "command": "x", "load_start": [0] * 3, "load_end": [0] * 3, "seed": 1,
             "batch_seconds": 1, "parallelism": 2, "background_busy_percent": [1.0], "rivals": {},
             "unavailable": {}, "scenarios": {}}  # fmt: skip
    return {"date": date, "commit": commit, "machine": machine, "figures": figures, "memory": {},
            "rounds": 3, **about, **more}  # fmt: skip


class Rows(unittest.TestCase):
    def test_a_ratio_above_one_is_ahead_whichever_way_is_better(self):
        times = summary.row("a", "ms", 2.0, [("x", 8.0), ("y", 6.0), ("z", None)])
        self.assertEqual((times.rival, summary.ratio(times)), (("y", 6.0), 3.0))
        rates = summary.row("a", "/s", 2.0, [("x", 8.0), ("y", 6.0)], upward=True)
        self.assertEqual((rates.rival, summary.ratio(rates)), (("x", 8.0), 0.25))
        self.assertIsNone(summary.ratio(summary.row("a", "ms", 2.0)))

    def test_a_goal_is_of_what_it_is_about_and_of_nothing_where_that_is_missing(self):
        def met(floor, condition):
            return summary.row("a", "ms", 7.0, floor=floor, met=condition).met

        self.assertIs(met(("f", 1.0), lambda c, f: c <= f + 6), True)
        self.assertIs(met(("f", 0.9), lambda c, f: c <= f + 6), False)
        self.assertIsNone(met(("f", None), lambda c, f: c <= f + 6))
        self.assertIsNone(met(None, lambda c, r: c <= r))

    def test_a_goal_that_was_missed_stays(self):
        for ms, met in ((1.8, True), (1.9, False)):
            rows = summary.rows_of("executions", executions(ms, 5.0))
            (found,) = [it for it in rows if "`/bin/true`" in it.figure]
            self.assertEqual((found.met, found.floor), (met, (BARE, 0.5)))
        text = pages.render([executions(1.9, 5.0)])["RESULTS.md"]
        self.assertRegex(text, r"`/bin/true`, p50 +\| 1.90 ms \| go-judge 5 ms +\| 2.63 × .*\*\*no\*\*")
        self.assertIn("0 of 1 goals on this page are met", text)

    def test_the_bouncer_shows_the_point_at_which_it_is_worst(self):
        def load(cove, pgbouncer):
            return {"cove": {"cpu_us": cove}, "PgBouncer": {"cpu_us": pgbouncer}}

        figures = [
            {"case": "load", "key": ["tcp", 10, "simple"], "rivals": load(31.0, 25.0)},
            {"case": "load", "key": ["tcp", 100, "simple"], "rivals": load(24.0, 38.0)},
        ]
        run_of = executions(1, 1, scenarios={"bouncer": {"figures": figures}})
        (first, *_) = summary.rows_of("bouncer", run_of)
        self.assertIn("10 clients, simple (worst of 2; median ratio 1.19 ×)", first.figure)
        self.assertEqual((first.cove, first.rival, first.met), (31.0, ("PgBouncer, TCP", 25.0), False))


class Sources(unittest.TestCase):
    def test_the_last_run_of_a_part_counts_and_several_commits_are_told(self):
        old, new = executions(9, 9), executions(1, 2, "2030-02-01 00:00 UTC", "def5678")
        self.assertEqual(pages.newest([old, new], "executions"), new)
        pool = [{"name": "pool/stats", "cove": {"ns_per_op": 2}, "go": {"ns_per_op": 9}}]
        old = copy.deepcopy(old) | {"pool": {"figures": {"rows": pool}}}
        self.assertEqual(pages.newest([old, new], "pool"), old)
        sources = {"executions": new, "pool": old}
        text = "\n".join(pages.one_run(sources.values()))
        self.assertIn("not of one run", text)
        self.assertEqual(pages.one_run([new, new]), [])

    def test_rounds_are_those_of_the_part(self):
        run_of = executions(1, 2, rounds_of={"executions": 7})
        self.assertRegex(pages.source_table({"executions": run_of, "sessions": None}), r"\| +7 \|")


class Agree(unittest.TestCase):
    def test_cpu_and_counts_have_to_agree_and_wall_times_need_not(self):
        one, other = executions(2.0, 5.0), executions(3.0, 5.0)
        counts = {"instructions": {"pool/one": 100, "pool/two": 100}}
        again = {"instructions": {"pool/one": 104, "pool/two": 106}}
        rows, apart = agree.compare(one | {"counts": counts}, other | {"counts": again}, 5)
        self.assertEqual(apart, [("Executions", "true ×1, cove: CPU"), ("Counts", "pool/two")])
        told = {row[1]: row[5:] for row in rows}
        self.assertEqual(told["`/bin/true`, p50"], ["+50.0 %", "wall"])
        self.assertEqual(told["pool/one"], ["+4.0 %", ""])
        self.assertTrue(agree.is_judged(("Executions", "no-op, CPU of the machine")))
        self.assertTrue(agree.is_judged(("Bouncer", "system calls of a transaction, worst")))


class Plots(unittest.TestCase):
    def test_bars_of_less_and_more_than_one_are_on_their_sides(self):
        text = plots.ratio_bars("t", [("a & b", 10.0, "10 ×"), ("c", 0.1, "0.1 ×")])
        self.assertIn("a &amp; b", text)
        self.assertEqual((text.count('class="ahead"'), text.count('class="behind"')), (1, 1))
        self.assertEqual(text, plots.ratio_bars("t", [("a & b", 10.0, "10 ×"), ("c", 0.1, "0.1 ×")]))

    def test_peaks_are_not_thinned_away(self):
        values = [1] * 5000
        values[3333] = 99
        thinned = plots.thinned(values)
        self.assertLess(len(thinned), 200)
        self.assertEqual(max(thinned), 99)
        text = plots.lines("t", 60, [("memory", values)], [(30, "killed")])
        xml.etree.ElementTree.fromstring(text)
        self.assertIn("at most 99, last 1", text)


class Kept(unittest.TestCase):
    def test_what_is_kept_has_no_samples_and_gives_the_same_page(self):
        batch = {
            "rival": COVE, "workload": "noop", "clients": 1, "jobs": 2, "failures": 0,
            "failure_examples": [], "seconds": 1.0, "latencies_us": [1000, 2000],
            "reported_cpu_ms": [], "modes": {"fresh": 2}, "others_cpu_ms": 4.0, "own_cpu_ms": 0.0,
            "stolen_cpu_ms": 0.0, "load_average": 0.0,
        }  # fmt: skip
        about = executions(1, 2, scenarios={name: {} for name in run.SCENARIOS}, batches=[batch])
        del about["figures"]
        kept = run.without_samples(about)
        self.assertNotIn("batches", kept)
        self.assertEqual(
            pages.detail_page("executions", kept), pages.detail_page("executions", about)
        )


if __name__ == "__main__":
    unittest.main()
