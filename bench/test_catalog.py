#!/usr/bin/env python3
"""Tests of the harness of the catalog, without a server: `python3 bench/test_catalog.py`."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from catalog import BARE, COVE, DISK, JAVA, RUSTBERG, cases, documents, figures


def row(case, rival, key="", **more):
    return {"case": case, "rival": rival, "key": key, **more}


def met(rows):
    return {goal.name: goal.met for goal in figures.goals({"rows": rows})}


class Figures(unittest.TestCase):
    def test_rounds_become_medians(self):
        rows = [row("load", COVE, per_second=n) for n in (1.0, 9.0, 2.0)]
        rows.append(row("load", COVE, failure="status 500"))
        found = figures.summarise(rows)
        self.assertEqual((found["per_second"], found["failures"]), (2.0, ["status 500"]))
        self.assertTrue(figures.failed({"rows": rows}))
        self.assertFalse(figures.failed({"rows": rows[:3]}))

    def test_a_load_is_compared_with_the_bare_server_and_with_rivals(self):
        rows = [row("load", COVE, per_second=80.0), row("load", BARE, per_second=100.0)]
        self.assertEqual(met(rows), {"load": True})
        rows[0]["per_second"] = 79.0
        self.assertEqual(met(rows), {"load": False})
        rows += [row("load", RUSTBERG, per_second=7.0), row("load", JAVA, per_second=4.0)]
        self.assertEqual([g.met for g in figures.goals({"rows": rows})], [False, False, True])

    def test_commits_are_compared_with_the_disk(self):
        rows = [row("sync", DISK, per_second=100.0)]
        rows += [row("commit", COVE, "1", per_second=70.0)]
        rows += [row("commit", COVE, "16", per_second=299.0)]
        self.assertEqual(met(rows), {"commit, 1 writers": True, "commit, 16 writers": False})

    def test_what_was_not_measured_is_no_goal_and_no_text(self):
        self.assertEqual((figures.goals(None), figures.text(None)), ([], []))
        self.assertEqual(figures.goals({"rows": [row("load", COVE, failure="x")]}), [])

    def test_every_case_has_a_title_and_its_figures_are_in_a_table(self):
        rows = [row(case, COVE, per_second=1234.0) for case in figures.TITLES]
        text = "\n".join(figures.text({"rows": rows, "versions": {COVE: "1"}}))
        for title in figures.TITLES.values():
            self.assertIn(title, text)
        self.assertIn("1 234", text)


class Documents(unittest.TestCase):
    def test_a_ratio_is_of_one_round_and_an_allocation_too_many_misses_the_goal(self):
        def one(ours, theirs, allocations):
            side = {"bytes_per_op": 0, "checked": True}
            mine = {**side, "ns_per_op": ours, "allocs_per_op": allocations}
            other = {**side, "ns_per_op": theirs, "allocs_per_op": 232}
            return {"seed/small_reused": {"cove": mine, "go": other}}

        for rounds, is_met in (
            ([one(1, 4, 0), one(10, 40, 0)], True),
            ([one(2, 4, 0), one(20, 40, 0)], False),
            ([one(1, 4, 1)], False),
        ):
            [entry] = documents.summary(rounds)
            self.assertEqual(entry["met"], is_met, rounds)

    def test_a_table_of_many_snapshots_is_whole(self):
        made = cases.document("file:///w/t", 3)
        self.assertEqual(len(made["snapshots"]), 3)
        self.assertEqual(made["current-snapshot-id"], made["snapshots"][-1]["snapshot-id"])
        self.assertNotIn("parent-snapshot-id", made["snapshots"][0])
        self.assertGreater(len(json.dumps(cases.document("file:///w/t", 1000))), 500_000)


if __name__ == "__main__":
    unittest.main()
