#!/usr/bin/env python3
"""Tests of how the rounds of parts follow each other: `python3 bench/test_spread.py`."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import rivals
import run
import spread

NAMES = ("pool", "executions", "bouncer")
MINUTE = 60


class Clock:
    """A clock that moves when it is told."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Spread(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.clock, self.calls = Clock(), []

    def go(self, minutes, rounds_max=100, lasts=None, breaks=()):
        """Runs parts of which each takes its minutes, and the first round twice as long."""
        lasts = lasts or {"pool": 1, "executions": 4, "bouncer": 6}

        def measure(name, number):
            self.calls.append((number, name))
            self.clock.now += MINUTE * lasts[name] * (1 if number else 2)
            if (number, name) in breaks:
                raise OSError("it broke")
            return {"rows": [number]}

        plan = spread.Plan(NAMES, rounds_max, minutes, seed=7)
        kept = spread.Kept(self.directory.name)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            found = spread.run(plan, kept, measure, self.clock)
        self.said = said.getvalue()
        return plan, *found

    def test_no_round_follows_another_of_its_part_before_all_had_one(self):
        _, found, _ = self.go(minutes=60)
        numbers = [number for number, _ in self.calls]
        self.assertEqual(numbers, sorted(numbers))
        self.assertEqual({name for number, name in self.calls if number == 1}, set(NAMES))
        self.assertEqual([it["rows"] for it in found["pool"]], [[n] for n in range(len(found["pool"]))])

    def test_a_short_part_is_not_repeated_without_end(self):
        _, found, _ = self.go(minutes=300, lasts={"pool": 1, "executions": 100, "bouncer": 2})
        self.assertEqual(len(found["executions"]), 1)
        self.assertEqual(len(found["pool"]), 1 + spread.AHEAD_MAX)

    def test_rounds_begin_only_if_they_end_in_time_and_the_first_ones_always(self):
        plan, found, _ = self.go(minutes=45)
        self.assertLessEqual(plan.elapsed(), 45 * MINUTE)
        self.assertGreater(plan.elapsed(), 38 * MINUTE)
        self.assertGreater(len(found["pool"]), len(found["bouncer"]))
        self.calls.clear()
        _, found, _ = self.go_elsewhere(minutes=5)
        self.assertEqual({name: len(of) for name, of in found.items()}, dict.fromkeys(NAMES, 1))

    def go_elsewhere(self, **more):
        self.directory.cleanup()
        pathlib.Path(self.directory.name).mkdir()
        return self.go(**more)

    def test_a_part_that_breaks_loses_nothing_else(self):
        _, found, failures = self.go(minutes=None, rounds_max=2, breaks={(0, "executions")})
        self.assertEqual({name: len(of) for name, of in found.items()},
                         {"pool": 2, "executions": 1, "bouncer": 2})  # fmt: skip
        self.assertEqual([(it["part"], it["round"]) for it in failures], [("executions", 1)])
        self.assertIn("it broke", failures[0]["error"])

    def test_a_run_that_was_stopped_goes_on_where_it_was(self):
        _, whole, _ = self.go(minutes=None, rounds_max=2)
        done, took = list(self.calls), self.clock.now
        # As if it had been stopped within the last round of all.
        number, name = done[-1]
        spread.Kept(self.directory.name).path(number, name).unlink()
        self.calls.clear()
        plan, again, _ = self.go(minutes=None, rounds_max=2)
        self.assertEqual(self.calls, [(number, name)])
        self.assertEqual(again, whole)
        self.assertEqual(plan.elapsed(), took)

    def test_what_is_next_is_told_with_the_time_that_is_left(self):
        self.go(minutes=60)
        self.assertRegex(self.said, r"\[\d+ min of 60, \d+ left\] bouncer, round 2, about 12.0 min")


class Parts(unittest.TestCase):
    def test_parts_of_which_something_was_asked_for_take_part(self):
        def wanted(*argv):
            return run.wanted_parts(run.parse_arguments(list(argv)))

        self.assertEqual(wanted(), list(run.PARTS))
        self.assertEqual(wanted("--only", "noop", "--only", "catalog-load"), ["executions", "catalog"])
        self.assertEqual(wanted("--only", "pool"), ["pool"])
        self.assertEqual(wanted("--rival", "PgBouncer"), ["bouncer"])
        self.assertEqual(wanted("--rival", rivals.COVE), ["executions", "bouncer", "catalog"])

    def test_every_part_can_be_built_measured_and_merged(self):
        for name, part in run.PARTS.items():
            for verb in ("prepare", "measure", "merge"):
                self.assertTrue(callable(getattr(part.module, verb)), f"{name}.{verb}")
            self.assertIn(name, part.module.NAMES)
            self.assertFalse(part.figures.failed(part.module.merge([{}])), name)

    def test_rounds_of_a_part_become_one_document(self):
        def row(ns):
            return {"ns_per_op": ns, "allocs_per_op": 0, "bytes_per_op": 0, "checked": True}

        rounds = [{"pool/stats": {"cove": row(ns), "go": row(9)}} for ns in (1, 2, 6)]
        found = run.PARTS["pool"].module.merge([{"rounds": [it]} for it in rounds])
        self.assertEqual(found["figures"]["rounds"], 3)
        self.assertEqual(found["figures"]["rows"][0]["cove"]["ns_per_op"], 2)
        founds = [{"rows": [n], "versions": {"a": n}, "unavailable": {}} for n in (1, 2)]
        merged = run.PARTS["gateway"].module.merge(founds)
        self.assertEqual((merged["rows"], merged["versions"]), ([1, 2], {"a": 2}))


if __name__ == "__main__":
    unittest.main()
