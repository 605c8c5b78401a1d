#!/usr/bin/env python3
"""Tests of what can be tested without a machine to measure: `python3 bench/test_run.py`."""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import machine
import report
import rivals
import run
from rivals import BARE, BUBBLEWRAP, COVE, GO_JUDGE


def batch(rival, workload, clients, latencies_ms, seconds=1.0, failures=0, reported=()):
    """A batch as the load generator reports it."""
    return {
        "rival": rival,
        "workload": workload,
        "clients": clients,
        "jobs": len(latencies_ms),
        "failures": failures,
        "failure_examples": ["it broke"] * failures,
        "seconds": seconds,
        "latencies_us": [round(ms * 1000) for ms in latencies_ms],
        "reported_cpu_ms": list(reported),
        "others_cpu_ms": 2.0 * len(latencies_ms),
        "own_cpu_ms": 1.0,
        "stolen_cpu_ms": 0.0,
        "load_average": 0.0,
    }


def goal(batches, memory, name, target):
    """One goal of a run, found by its name and target."""
    listed = report.goals(report.group(batches), memory)
    return next(g for g in listed if name in g.name and target in g.target)


class Figures(unittest.TestCase):
    def test_percentiles_are_nearest_rank(self):
        ten = list(range(10, 0, -1))
        cases = [(0, 1), (1, 1), (50, 5), (51, 6), (95, 10), (99, 10), (100, 10)]
        for percent, expected in cases:
            self.assertEqual(report.percentile(ten, percent), expected, percent)
        self.assertEqual(report.percentile([7], 99), 7)
        self.assertIsNone(report.percentile([], 50))

    def test_batches_are_pooled_and_not_averaged(self):
        batches = [
            batch(COVE, "noop", 1, [1, 1, 1, 1], seconds=1.0),
            batch(COVE, "noop", 1, [9], seconds=4.0, failures=2),
        ]
        f = report.summarise(batches)
        self.assertEqual((f["jobs"], f["failures"]), (5, 2))
        self.assertEqual((f["min_ms"], f["p50_ms"], f["max_ms"]), (1, 1, 9))
        self.assertEqual(f["p50_ms_by_round"], [1, 9])
        self.assertEqual(f["jobs_per_second"], 1.0)
        self.assertEqual(f["cpu_ms_per_job"], 2.0)

    def test_nothing_but_failures_gives_no_figures(self):
        f = report.summarise([batch(COVE, "noop", 1, [], failures=3)])
        for name in ("p50_ms", "max_ms", "jobs_per_second", "cpu_ms_per_job"):
            self.assertIsNone(f[name], name)
        self.assertEqual(f["failures"], 3)


class Text(unittest.TestCase):
    def test_numbers_have_three_digits(self):
        cases = [(None, "–"), (0, "0"), (0.123, "0.12"), (1.5, "1.50"), (12.34, "12.3")]
        cases += [
            (9.999, "10.0"),
            (99.97, "100"),
            (123.4, "123"),
            (-2.5, "-2.50"),
            (1234567.0, "1 234 567"),
        ]
        for value, expected in cases:
            self.assertEqual(report.number(value), expected)

    def test_tables_line_up_with_figures_on_the_right(self):
        expected = (
            "| name | n    |    ms |\n"
            "|------|------|------:|\n"
            "| a    | x\\|y |  1.50 |\n"
            "| bb   | 2    | −0.10 |"
        )
        self.assertEqual(
            report.table(["name", "n", "ms"], [["a", "x|y", "1.50"], ["bb", 2, "−0.10"]]), expected
        )
        self.assertEqual(report.table(["a"], []), "| a |\n|---|")

    def test_a_busy_machine_is_said_to_be_busy(self):
        self.assertNotIn("not idle", report.background_text([1.0, 9.0]))
        self.assertIn("not idle", report.background_text([1.0, 60.0]))


class Goals(unittest.TestCase):
    def test_one_client_is_judged_by_median_and_by_ratio(self):
        def judged(mine, theirs):
            batches = [batch(COVE, "noop", 1, [mine]), batch(GO_JUDGE, "noop", 1, [theirs])]
            return tuple(goal(batches, {}, "(W0)", t).met for t in ("1.8 ms", "1/2.5"))

        self.assertEqual(judged(1.8, 4.5), (True, True))
        self.assertEqual(judged(1.9, 4.8), (False, True))
        self.assertEqual(judged(1.7, 4.2), (True, False))

    def test_ten_clients_are_judged_by_throughput_and_failures(self):
        def judged(mine, theirs, failures):
            batches = [
                batch(COVE, "noop", 10, [1] * mine, failures=failures),
                batch(GO_JUDGE, "noop", 10, [1] * theirs),
            ]
            return tuple(goal(batches, {}, "(W0)", t).met for t in ("2.5 ×", "0 failures"))

        self.assertEqual(judged(25, 10, 0), (True, True))
        self.assertEqual(judged(24, 10, 0), (False, True))
        self.assertEqual(judged(25, 10, 1), (True, False))

    def test_python_may_add_two_and_a_half_milliseconds(self):
        def judged(mine):
            batches = [batch(COVE, "python", 1, [mine]), batch(BARE, "python", 1, [12.0])]
            return goal(batches, {}, "Python", "bare").met

        self.assertEqual((judged(14.5), judged(14.6), judged(11.0)), (True, False, True))

    def test_the_worst_stop_counts(self):
        def judged(*cpu_ms):
            batches = [batch(COVE, "cpu-limit", 1, [1] * len(cpu_ms), reported=cpu_ms)]
            return goal(batches, {}, "CPU limit", "5 ms").met

        self.assertEqual((judged(301, 305), judged(301, 305.1)), (True, False))

    def test_memory_is_that_of_the_idle_server(self):
        def judged(kib):
            reading = {"rss_kib": kib, "tree_pss_kib": 1, "processes": 1}
            return goal([], {COVE: {"idle after start": reading}}, "memory", "30 MiB").met

        self.assertEqual((judged(30 * 1024), judged(30 * 1024 + 1)), (True, False))

    def test_pool_rows_need_their_ratio_and_no_allocation(self):
        def judged(met, allocations, checked=True):
            side = {"ns_per_op": 12.0, "allocs_per_op": allocations, "checked": checked}
            row = {"name": "pool/x", "cove": side, "go": side, "ratio": 0.2}
            rows = [{**row, "goal": "<= 0.25 x go", "met": met}, {**row, "name": "pool/free"}]
            listed = list(report.pool_goals({"figures": {"rows": rows}}))
            self.assertEqual([g.name for g in listed], ["pool/x"])
            return listed[0].met

        self.assertEqual((judged(True, 0.0), judged(False, 0.0)), (True, False))
        self.assertEqual((judged(True, 0.01), judged(True, 0.0, checked=False)), (False, False))
        self.assertEqual(list(report.pool_goals({"error": "x"})), [])

    def test_what_was_not_measured_is_neither_met_nor_missed(self):
        listed = report.goals({}, {})
        self.assertEqual({g.met for g in listed}, {None})
        self.assertEqual(len(listed), 12)
        self.assertIn("not measured", report.goal_table(listed))
        # go-judge alone decides nothing either.
        theirs = [batch(GO_JUDGE, "noop", 1, [5.0])]
        self.assertIsNone(goal(theirs, {}, "(W0)", "1/2.5").met)


class Report(unittest.TestCase):
    def document(self):
        reading = {"rss_kib": 10240, "tree_pss_kib": 20480, "processes": 5}
        return {
            "date": "2030-01-02 03:04 UTC",
            "commit": "abc1234",
            "dirty": True,
            "command": "python3 bench/run.py",
            "machine": machine.describe(),
            "load_start": [0.0, 0.1, 0.2],
            "load_end": [1.0, 0.1, 0.2],
            "rounds": 2,
            "seed": 7,
            "parallelism": 2,
            "batch_seconds": 2.0,
            "background_busy_percent": [1.0],
            "rivals": {COVE: {"version": "0.1", "options": "serve"}},
            "unavailable": {BUBBLEWRAP: "`bwrap` is not installed"},
            "memory": {COVE: {"idle after start": reading}},
            "pool": {"error": "no Go"},
            "batches": [
                batch(COVE, "true", 1, [2.0], failures=1),
                batch(COVE, "noop", 10, [1.0, 2.0]),
                batch(COVE, "noop", 1, [1.0, 2.0]),
                batch(COVE, "cpu-limit", 1, [310.0], reported=[302.5]),
            ],
        }

    def test_it_says_what_was_missing_and_what_failed(self):
        text = report.document(self.document())
        for expected in (
            "commit `abc1234` with uncommitted changes",
            "`bwrap` is not installed",
            "Not measured: no Go",
            "it broke",
            "2.50",
            "| yes",
            "## What these figures do not show",
        ):
            self.assertIn(expected, text)

    def test_cells_come_in_the_order_of_workloads_and_clients(self):
        titles = re.findall(
            r"^### (W\S+|Busy).*, (\d+) client", report.document(self.document()), re.M
        )
        self.assertEqual(titles, [("W0:", "1"), ("W0:", "10"), ("W1:", "1"), ("Busy", "1")])


class Machine(unittest.TestCase):
    def test_busy_is_what_idle_leaves(self):
        before = "cpu  100 0 100 1000 0 0 0 0 50 0\ncpu0 1 2 3\n"
        after = "cpu  120 0 110 1050 10 0 5 5 70 0\n"
        self.assertAlmostEqual(machine.busy_percent(before, after), 40.0)
        self.assertEqual(machine.busy_percent(before, before), 0.0)

    def test_cgroup_layouts_are_told_apart(self):
        v1, v2 = "cgroup /a cgroup rw 0 0\n", "cgroup2 /b cgroup2 rw 0 0\n"
        layouts = [machine.cgroup_layout(text) for text in ("", v1, v2, v1 + v2)]
        self.assertEqual(layouts, ["none", "v1", "v2", "hybrid"])

    def test_this_process_is_among_its_descendants_and_weighs_something(self):
        self.assertIn(os.getpid(), machine.descendants(os.getpid()))
        self.assertGreater(machine.memory_of(os.getpid())["rss_kib"], 0)

    def test_a_childs_work_is_work_of_the_tree(self):
        before = machine.tree_cpu_seconds(os.getpid())
        burn = "import time\nwhile time.process_time() < 0.1: pass"
        subprocess.run([sys.executable, "-c", burn], check=True)
        self.assertGreaterEqual(machine.tree_cpu_seconds(os.getpid()) - before, 0.08)


class Rivals(unittest.TestCase):
    def test_every_rival_compiles_with_the_same_command(self):
        source = (rivals.BENCH / "load" / "src" / "rival.rs").read_text(encoding="utf-8")
        words = re.search(r"COMPILE: .*?= (\[.*?\]);", source, re.S)
        generator = json.loads(words.group(1))
        mine = re.search(r"^compile = (\[.*\])$", rivals.C_LANGUAGE_TOML, re.M)
        self.assertEqual(json.loads(mine.group(1))[1:], generator[1:])
        self.assertEqual(generator[0], "/usr/bin/gcc")

    def test_a_runc_bundle_has_the_limits_and_mounts_of_the_others(self):
        spec = {
            "process": {"terminal": True},
            "mounts": [{"destination": "/proc"}, {"destination": "/sys"}],
            "linux": {},
        }
        limits = {"memory_bytes": 7, "processes": 3}
        config = rivals.runc_config(spec, "/rootfs", limits)
        destinations = [mount["destination"] for mount in config["mounts"]]
        self.assertEqual(destinations[:2], ["/proc", "/usr"])
        self.assertEqual(destinations[-2:], ["/tmp", rivals.WORKDIR_INSIDE])
        self.assertNotIn("/sys", destinations)
        self.assertEqual(config["linux"]["resources"]["memory"], {"limit": 7})
        self.assertEqual(config["linux"]["resources"]["pids"], {"limit": 3})
        self.assertFalse(config["process"]["terminal"])

    def test_a_rival_that_cannot_be_had_says_why(self):
        with self.assertRaisesRegex(rivals.Unavailable, "exit-with-3"):
            rivals.run(["sh", "-c", "echo exit-with-3 >&2; exit 3"])


class CommandLine(unittest.TestCase):
    def test_only_a_whole_run_is_published(self):
        partial = [["--quick"], ["--only", "noop"], ["--rival", COVE]]
        for argv in partial:
            self.assertTrue(run.parse_arguments(argv).partial, argv)
        self.assertFalse(run.parse_arguments(["--rounds", "3"]).partial)

    def test_quick_is_quicker_unless_told_otherwise(self):
        quick, whole = run.parse_arguments(["--quick"]), run.parse_arguments([])
        self.assertLess(quick.rounds * quick.seconds, whole.rounds * whole.seconds)
        self.assertEqual(run.parse_arguments(["--quick", "--rounds", "9"]).rounds, 9)

    def test_every_workload_has_a_title(self):
        self.assertEqual(set(report.TITLES), {cell.workload for cell in run.CELLS})

    def test_only_what_is_ours_is_left_behind(self):
        running = {COVE: {"pid": 12}, BARE: {}}
        after = {
            "/c/cove-12-3",
            "/c/cove-12-3/s0",
            "/c/cove-99-1",
            "/c/old",
            "/c/x/cove-bench-runc-1",
        }
        names = run.left_behind({"/c/old"}, after, running)
        self.assertEqual(names, ["cove-12-3", "cove-bench-runc-1", "s0"])

    def test_directories_of_this_machine_are_not_written_down(self):
        argv = ["--go-judge", "/home/me/bin/go-judge", "--rounds", "2"]
        self.assertEqual(run.hidden_paths(argv), ["--go-judge", "go-judge", "--rounds", "2"])


if __name__ == "__main__":
    unittest.main()
