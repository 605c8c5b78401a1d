#!/usr/bin/env python3
"""Tests of the harness of the catalog, without a server: `python3 bench/test_catalog.py`."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from catalog import BARE, CASES, COVE, DISK, JAVA, RUSTBERG, cases, documents, figures


def row(case, rival, number=0, **more):
    return {"case": case, "rival": rival, "key": "", "round": number, **more}


def verdicts(rows):
    return [goal.met for goal in figures.goals({"rows": rows})]


class Figures(unittest.TestCase):
    def test_rounds_become_medians(self):
        rows = [row("load", COVE, n, per_second=value) for n, value in enumerate((1.0, 9.0, 2.0))]
        rows.append(row("load", COVE, 3, failure="status 500"))
        found = figures.summarise(rows)
        self.assertEqual((found["per_second"], found["failures"]), (2.0, ["status 500"]))
        self.assertTrue(figures.failed({"rows": rows}))
        self.assertFalse(figures.failed({"rows": rows[:3]}))
        self.assertTrue(figures.failed({"rows": [row("load", COVE, per_second=1.0, wrong=1)]}))
        self.assertFalse(figures.failed({"rows": [row("load", JAVA, per_second=1.0, wrong=1)]}))

    def test_a_load_is_compared_with_the_bare_server_and_with_rivals(self):
        rows = [row("load", COVE, per_second=80.0), row("load", BARE, per_second=100.0)]
        self.assertEqual(verdicts(rows), [True])
        rows[0]["per_second"] = 79.0
        self.assertEqual(verdicts(rows), [False])
        rows += [row("load", RUSTBERG, per_second=7.0), row("load", JAVA, per_second=4.0)]
        self.assertEqual(verdicts(rows), [False, False, True])

    def test_a_ratio_is_of_one_round(self):
        # Of the medians it would be 1: the machine was busy in rounds of only one of the two.
        rates = {COVE: (10.0, 80.0, 90.0), BARE: (20.0, 80.0, 180.0)}
        rows = [
            row("load", name, n, per_second=rate)
            for name, of_it in rates.items()
            for n, rate in enumerate(of_it)
        ]
        [goal] = figures.goals({"rows": rows})
        self.assertEqual((goal.ratio, goal.met), ("0.50", False))
        # A round that one of them did not take part in says nothing about both.
        self.assertIsNone(figures.ratio_of({"rates": {0: 1.0}}, {"rates": {1: 1.0}}))

    def test_what_is_kept_gives_the_same_goals_and_text(self):
        rows = [row("load", name, n, per_second=rate * n)
                for n in (1, 2) for name, rate in ((COVE, 80.0), (BARE, 100.0))]  # fmt: skip
        found = {"rows": rows, "versions": {}, "unavailable": {}}
        kept = json.loads(json.dumps(figures.without_samples(found)))
        self.assertNotIn("rows", kept)
        self.assertEqual(figures.goals(kept), figures.goals(found))
        self.assertEqual(figures.text(kept), figures.text(found))

    def test_commits_are_compared_with_the_disk(self):
        rows = []
        for case, rate in (("commit", 50.0), ("commit-16", 199.0)):
            rows += [row(case, COVE, per_second=rate), row(case, DISK, per_second=100.0)]
        self.assertEqual(verdicts(rows), [True, False])

    def test_what_a_rival_does_not_do_is_told(self):
        rows = [
            row("load-gzip", COVE, per_second=9.0),
            row("load-gzip", RUSTBERG, per_second=3.0, note="it packs nothing", wrong=2),
            row("load-gzip", JAVA, failure="no answer in time"),
        ]
        text = "\n".join(figures.text({"rows": rows}))
        for words in ("rustberg, it packs nothing", "0 batches, 2 answers", "no answer in time"):
            self.assertIn(words, text)
        self.assertIn("3.00", text)

    def test_what_was_not_measured_is_no_goal_and_no_text(self):
        self.assertEqual((figures.goals(None), figures.text(None)), ([], []))
        self.assertEqual(figures.goals({"rows": [row("load", COVE, failure="x")]}), [])

    def test_every_case_has_a_title_and_its_figures_are_in_a_table(self):
        self.assertEqual([case.name for case in CASES], list(figures.TITLES))
        rows = [row(case, COVE, per_second=1234.0) for case in figures.TITLES]
        text = "\n".join(figures.text({"rows": rows, "versions": {COVE: "1"}}))
        for title in figures.TITLES.values():
            self.assertIn(title, text)
        self.assertIn("1 234", text)


class Answers(unittest.TestCase):
    def test_an_answer_says_what_it_has_to(self):
        fields = cases.schema(cases.COLUMNS)
        thousand = {"metadata": cases.document("file:///w/t", cases.SNAPSHOTS)}
        names = [{"name": f"table_{n:03}"} for n in range(cases.LISTED)]
        right = {
            "load": {"metadata": {"schemas": [fields]}},
            "thousand": thousand,
            "list": {"identifiers": names},
            "namespace": {"namespace": ["bench"], "properties": {"owner": "bench"}},
        }
        wrong = {
            "load": {"metadata": {"schemas": [cases.schema(1)]}},
            # What a server that takes numbers for floating point ones makes of them.
            "thousand": json.loads(json.dumps(thousand), parse_int=float),
            "list": {"identifiers": names[1:]},
            "namespace": {"namespace": ["bench"], "properties": {}},
        }
        for case in cases.READS:
            plain = case.removesuffix("-gzip")
            self.assertTrue(cases.is_right(case, right[plain]), case)
            self.assertFalse(cases.is_right(case, wrong[plain]), case)


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
