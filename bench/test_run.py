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

import client
import durability
import executions
import machine
import pages
import report
import rivals
import run
import slow_reader
from rivals import (
    BARE, BUBBLEWRAP, BULLMQ, COVE, COVE_20, COVE_20_WEBSOCKET, COVE_FRESH, COVE_WEBSOCKET, GO_JUDGE,
    GO_JUDGE_20,
)  # fmt: skip


def batch(
    rival, workload, clients, latencies_ms, seconds=1.0, failures=0, reported=(), mode=None
):
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
        "modes": {mode: len(latencies_ms)} if mode else {},
        "others_cpu_ms": 2.0 * len(latencies_ms),
        "own_cpu_ms": 1.0,
        "stolen_cpu_ms": 0.0,
        "load_average": 0.0,
    }


def goal(batches, memory, name, target):
    """One goal of a run, found by its name and target."""
    listed = report.goals(report.group(batches), {"memory": memory})
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
            batches = [batch(COVE_FRESH, "python", 1, [mine]), batch(BARE, "python", 1, [12.0])]
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

    def test_a_speed_mode_that_was_not_the_mode_is_not_met(self):
        def judged(mine, mode):
            batches = [batch(COVE, "python", 1, [mine], mode=mode)]
            return goal(batches, {}, "Python hello (W2) over HTTP", "4 ms").met

        self.assertEqual((judged(4.0, "zygote"), judged(4.1, "zygote")), (True, False))
        self.assertEqual((judged(2.0, "fresh"), judged(2.0, None)), (False, False))
        repeated = [batch(COVE, "c-repeated", 1, [3.5], mode="cached")]
        self.assertTrue(goal(repeated, {}, "C source", "3.5 ms").met)

    def test_the_seeds_rows_are_judged_by_median_total_and_failures(self):
        def judged(jobs, rival, *batches):
            listed = list(report.seed_goals(report.group(batches), jobs, rival, GO_JUDGE))
            return [g.met for g in listed]

        new = batch(COVE_WEBSOCKET, "go-50", 10, [998.0, 999.0, 1001.0], seconds=19.9)
        slow = batch(COVE_WEBSOCKET, "go-50", 10, [1001.0], seconds=20.0, failures=1)
        same = batch(COVE_WEBSOCKET, "go-repeated-50", 10, [10.0], seconds=0.49)
        none = [None] * 3
        self.assertEqual(judged(50, COVE_WEBSOCKET, new), [True] * 3 + none)
        self.assertEqual(judged(50, COVE_WEBSOCKET, slow, same), [False] * 3 + [True] * 3)
        # The slowest round counts for the total.
        self.assertEqual(judged(50, COVE_WEBSOCKET, new, slow)[:3], [True, False, False])
        self.assertEqual(judged(100, COVE_20_WEBSOCKET, new, same), none + none)

    def test_the_queue_is_judged_on_websockets(self):
        def judged(p50, jobs):
            batches = [
                batch(COVE_WEBSOCKET, "queue", 1, [p50]),
                batch(COVE_WEBSOCKET, "queue", 100, [1] * jobs),
                batch(BULLMQ, "queue", 100, [1] * 1600),
            ]
            listed = list(report.queue_goals(report.group(batches)))
            self.assertIn("BullMQ 1 600 jobs/s", listed[1].beside)
            return [g.met for g in listed]

        self.assertEqual((judged(4.0, 800), judged(4.1, 799)), ([True, True], [False, False]))

    def test_one_lost_or_doubled_job_is_one_too_many(self):
        found = {
            "jobs": 10, "accepted": 10, "finished": 10, "lost": 0, "doubled": 0, "wrong": 0,
            "kills": 3,
        }  # fmt: skip
        cases = [({}, True), ({"lost": 1}, False), ({"doubled": 1}, False), ({"wrong": 1}, False)]
        cases += [({"finished": 9}, False), ({"accepted": 9}, False), ({"kills": 0}, False)]
        for change, met in cases:
            self.assertEqual(report.durability_goal({**found, **change}).met, met, change)
        self.assertIs(report.durability_goal({"error": "x"}).met, False)

    def test_memory_has_to_be_flat_and_the_flood_right(self):
        def judged(*kib, mistakes=()):
            readings = [(seconds, value) for seconds, value in enumerate(kib)]
            found = slow_reader.summarise(readings, 1.0, {"mistakes": list(mistakes)})
            return report.slow_reader_goal(found).met

        self.assertTrue(judged(1000, 1000 + 8192, 1000 + 8192))
        self.assertFalse(judged(1000, 1000 + 8193, 1000 + 8193), "too large")
        self.assertFalse(judged(1000, 1000, 1000, 1513), "it creeps")
        self.assertFalse(judged(1000, 1000), "too short to tell")
        self.assertFalse(judged(1000, 1000, 1000, mistakes=["it ended"]))

    def test_what_was_not_measured_is_neither_met_nor_missed(self):
        listed = report.goals({}, {})
        self.assertEqual({g.met for g in listed}, {None})
        self.assertEqual(len(listed), 34)
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
            "scenarios": {"durability": {"error": "no server"}},
            "batches": [
                batch(COVE_20_WEBSOCKET, "go-100", 10, [500.0], seconds=7.0, mode="fresh"),
                batch(GO_JUDGE_20, "go-100", 10, [900.0], seconds=9.0),
                batch(COVE, "python", 1, [2.0], mode="zygote"),
                batch(COVE, "true", 1, [2.0], failures=1),
                batch(COVE, "noop", 10, [1.0, 2.0]),
                batch(COVE, "noop", 1, [1.0, 2.0]),
                batch(COVE, "cpu-limit", 1, [310.0], reported=[302.5]),
            ],
        }

    def test_it_says_what_was_missing_and_what_failed(self):
        run = self.document()
        text = pages.detail_page("executions", run) + pages.detail_page("pool", run)
        for expected in (
            "commit `abc1234` with uncommitted changes",
            "`bwrap` is not installed",
            "Not measured: no Go",
            "it broke",
            "2.50",
            "| yes",
            "p50 2.00 ms (zygote)",
            "7.00 … 7.00",
            "Not measured: no server",
            "## What these figures do not show",
        ):
            self.assertIn(expected, text)

    def test_cells_come_in_the_order_of_workloads_and_clients(self):
        titles = re.findall(
            r"^### (W\S+|Busy).*, (\d+) client", pages.detail_page("executions", self.document()), re.M
        )
        expected = [("W0:", "1"), ("W0:", "10"), ("W1:", "1"), ("W2:", "1"), ("Busy", "1")]
        self.assertEqual(titles, expected)
        text = pages.detail_page("executions", self.document())
        self.assertLess(text.index("### Seed: Go hello"), text.index("### W0"))

    def test_several_modes_are_shown_with_their_shares(self):
        batches = [
            batch(COVE, "node", 1, [1.0] * 3, mode="prestarted"),
            batch(COVE, "node", 1, [9.0], mode="fresh"),
        ]
        self.assertEqual(report.modes(report.summarise(batches)), "fresh 25.0 %, prestarted 75.0 %")
        self.assertEqual(report.modes(report.summarise(batches[:1])), "prestarted")
        self.assertEqual(report.modes(report.summarise([])), "")


class Rounds(unittest.TestCase):
    def test_rounds_become_one_document(self):
        first = {"batches": [1], "busy_percent": [2.0], "memory": {COVE: {"idle after start": {}}},
                 "rivals": {COVE: {"version": "1"}}, "unavailable": {"runc": "none"},
                 "scenarios": {"calls": {"error": "no perf"}}, "left_behind": ["a"]}  # fmt: skip
        second = {"batches": [3], "busy_percent": [4.0], "rivals": {COVE: {"version": "1"}},
                  "unavailable": {"runc": "none"}, "scenarios": {}, "left_behind": []}  # fmt: skip
        merged = executions.merge([first, second])
        self.assertEqual((merged["batches"], merged["busy_percent"]), ([1, 3], [2.0, 4.0]))
        self.assertEqual((merged["memory"], merged["left_behind"]), (first["memory"], ["a"]))

    def test_system_calls_that_nothing_counts_are_no_failure_and_a_lost_job_is(self):
        def failed(**scenarios):
            return executions.failed({"batches": [], "scenarios": scenarios, "unavailable": {}})

        self.assertFalse(failed(calls={"error": "`perf` is not installed"}))
        self.assertTrue(failed(durability={"lost": 1}))

    def test_system_calls_are_told_with_the_most_frequent_first(self):
        found = {"jobs": 200, "calls": {"read": 7.0, "close": 31.5, "all": 120.25, "mkdir": 0.001}}
        names = re.findall(r"^\| (\w+) +\|", report.calls_text(found), re.M)
        self.assertEqual(names, ["call", "all", "close", "read"])
        self.assertIn("Not counted: x", report.calls_text({"error": "x"}))


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
        source = (rivals.BENCH / "load" / "src" / "language.rs").read_text(encoding="utf-8")
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
    def test_only_a_whole_run_or_a_whole_part_is_published(self):
        partial = [
            ["--quick"],
            ["--only", "noop"],
            ["--rival", COVE],
            ["--only", "bouncer-load"],
            ["--only", "bouncer", "--only", "noop"],
            ["--only", "bouncer", "--quick"],
        ]
        for argv in partial:
            options = run.parse_arguments(argv)
            self.assertEqual((options.partial, options.part), (True, None), argv)
        for part, argv in [
            (None, ["--rounds", "3"]),
            ("bouncer", ["--only", "bouncer"]),
            ("sessions", ["--only", "sessions", "--rival", COVE]),
        ]:
            options = run.parse_arguments(argv)
            self.assertEqual((options.partial, options.part), (False, part), argv)

    def test_quick_is_quicker_unless_told_otherwise(self):
        quick, whole = run.parse_arguments(["--quick"]), run.parse_arguments([])
        self.assertLess(quick.rounds * quick.seconds, whole.rounds * whole.seconds)
        self.assertEqual(run.parse_arguments(["--quick", "--rounds", "9"]).rounds, 9)

    def test_every_workload_has_a_title(self):
        self.assertEqual(set(report.TITLES), {cell.workload for cell in executions.CELLS})

    def test_every_rival_of_a_cell_can_be_named_and_started(self):
        named = {name for cell in executions.CELLS for name in cell.rivals}
        self.assertEqual(named, set(rivals.EVERYBODY))
        for base, _ in rivals.VARIANTS.values():
            self.assertNotIn(base, rivals.VARIANTS)

    def test_the_load_generator_knows_every_workload(self):
        source = (rivals.BENCH / "load" / "src" / "spec.rs").read_text(encoding="utf-8")
        names = re.findall(r"^    ([A-Z]\w*),$", source[source.index("enum Workload") :], re.M)
        known = {re.sub(r"(?<!^)([A-Z])", r"-\1", name).lower() for name in names}
        self.assertEqual({report.workload_of(cell.workload) for cell in executions.CELLS}, known)
        self.assertLessEqual(set(executions.LIMITS_OF) | set(executions.ENVIRONMENT_OF), known)

    def test_rivals_that_were_not_asked_for_stay_out_of_every_cell(self):
        options = run.parse_arguments(["--only", "queue", "--rival", BULLMQ])
        cells = executions.wanted_cells(options)
        self.assertEqual([(c.workload, c.rivals) for c in cells], [("queue", (BULLMQ,))] * 2)
        self.assertEqual(executions.tool_names(cells), set())
        everything = executions.wanted_cells(run.parse_arguments([]))
        self.assertEqual(executions.tool_names(everything), {"go", "node", "java"})

    def test_only_what_is_ours_is_left_behind(self):
        running = {COVE: {"pid": 12}, COVE_20: {"pid": 13}, BARE: {}}
        after = {
            "/c/cove-12-3",
            "/c/cove-12-3/s0",
            "/c/cove-99-1",
            "/c/cove-13-1",
            "/c/old",
            "/c/x/cove-bench-runc-1",
        }
        names = executions.left_behind({"/c/old"}, after, running)
        self.assertEqual(names, ["cove-12-3", "cove-13-1", "cove-bench-runc-1", "s0"])

    def test_directories_of_this_machine_are_not_written_down(self):
        argv = ["--go-judge", "/home/me/bin/go-judge", "--rounds", "2"]
        self.assertEqual(run.hidden_paths(argv), ["--go-judge", "go-judge", "--rounds", "2"])


class Scenarios(unittest.TestCase):
    def test_frames_are_read_whole_or_not_at_all(self):
        short = b"\x81\x0b" + b'{"seq": 1 }'
        long = b"\x81\x7e\x01\x00" + b'{"seq": 2, "data": "'.ljust(254, b"x") + b'"}'
        close = b"\x88\x02\x03\xe8"
        seen = [event["seq"] for event in client.events(short + long + close + short[:5])]
        self.assertEqual(seen, [1, 2])
        self.assertEqual(client.events(long[:-1]), [])

    def test_a_flood_that_is_not_the_flood_is_a_mistake(self):
        line = f"{slow_reader.FLOOD_LINE}\n"

        def events(*chunks):
            numbered = enumerate(chunks, 2)
            texts = [{"seq": n, "type": "stdout", "data": text} for n, text in numbered]
            return [{"seq": 1, "type": "started"}, *texts]

        good = events(line * 2, line[:7])
        self.assertEqual(slow_reader.mistakes(good, "running", "cancelled"), [])
        wrong = [
            (events(line, line[1:]), "running", "cancelled"),
            (events(), "running", "cancelled"),
            (good[:1] + good[2:], "running", "cancelled"),
            (good, "finished", "cancelled"),
            (good, "running", "running"),
        ]
        for received, state, end in wrong:
            self.assertNotEqual(slow_reader.mistakes(received, state, end), [], received)

    def server(self, changes):
        """Ten jobs as a server may show them, with some changes."""
        records = {
            f"ex_{n}": {
                "id": f"ex_{n}", "state": "finished", "finished_at": "t", "attempts": 1,
                "result": {
                    "id": f"ex_{n}", "verdict": "OK", "stdout": f"{durability.name_of(n)}\n"
                },
            }
            for n in range(10)
        }  # fmt: skip
        for identity, change in changes.items():
            records[identity] = {**records[identity], **change} if change else None
        return Fake({name: record for name, record in records.items() if record})

    def check_jobs(self, changes, expected, **server):
        fake = self.server(changes)
        vars(fake).update(server)
        accepted = {f"ex_{n}": n for n in range(10)}
        found = durability.verify(fake, accepted, {"ex_0": ("t", 1)}, [])
        seen = tuple(found[name] for name in ("lost", "doubled", "wrong", "run_again"))
        self.assertEqual(seen, expected, found["examples"])

    def test_jobs_that_are_lost_doubled_or_wrong_are_found(self):
        self.check_jobs({}, (0, 0, 0, 0))
        self.check_jobs({"ex_3": {"attempts": 2}}, (0, 0, 0, 1))
        self.check_jobs({"ex_3": {"state": "dead"}}, (1, 0, 0, 0))
        self.check_jobs({"ex_3": {"result": {"id": "ex_3", "verdict": "OK", "stdout": "x"}}},
                        (0, 0, 1, 0))  # fmt: skip
        # Its result had been seen with another date.
        self.check_jobs({"ex_0": {"finished_at": "later"}}, (0, 1, 0, 0))
        self.check_jobs({}, (0, 1, 0, 0), twice="ex_5")
        self.check_jobs({}, (0, 10, 0, 0), verdicts=2)


class Fake:
    """A client of a server that is not there."""

    def __init__(self, records):
        self.records, self.twice, self.verdicts = records, None, 1

    def json(self, _method, _path):
        listed = [*self.records.values()]
        return {"executions": listed + [self.records[self.twice]] if self.twice else listed}

    def request(self, _method, path):
        identity = path.split("/")[3]
        if path.endswith("/events"):
            return 200, b"event: queued\n\n" + b"event: verdict\ndata: {}\n\n" * self.verdicts
        record = self.records.get(identity)
        return (200, json.dumps(record).encode()) if record else (404, b"")


if __name__ == "__main__":
    unittest.main()
