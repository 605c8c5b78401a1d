#!/usr/bin/env python3
"""Tests of the harness of the gateway, without a server: `python3 bench/test_gateway.py`."""

import json
import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import gateway
from gateway import cases, figures
from gateway.cases import CALLS, CALM, DIRECT, FLOODED, INSIDE, ONE, OUTSIDE, PLAIN
from gateway.servers import POOL, arguments
from sessions.wire import Refused, Wire

FIRST = next(iter(CALLS))
# What a load of all sandboxes looks like where nothing is wrong.
SERVED = {
    "sandboxes": 200, "served": 200, "wrong": 0, "refused": 0, "late": 0, "examples": [],
    "server_connections": POOL, "spread": 1.5, "p99_most_us": 1500.0, "p99_least_us": 1000.0,
    "p99_middle_us": 1200.0,
}  # fmt: skip


def row(case, key, rival, turn=0, **more):
    return {"case": case, "key": key, "rival": rival, "turn": (0, turn), **more}


def trip(rival, turn, p50, **more):
    return row("select", "PostgreSQL", rival, turn, p50_us=p50, **more)


def verdicts(rows):
    return [goal.met for goal in figures.goals({"rows": rows})]


class Goals(unittest.TestCase):
    def test_a_round_trip_is_compared_with_the_one_beside_it(self):
        # Of the medians it would be 1: the machine was busy in batches of only one of the two.
        times = {INSIDE: (12.0, 80.0, 120.0), OUTSIDE: (10.0, 80.0, 100.0)}
        rows = [trip(name, n, p50) for name, of_it in times.items() for n, p50 in enumerate(of_it)]
        [goal] = figures.goals({"rows": rows})
        self.assertEqual((goal.ratio, goal.met), ("1.200", False))
        self.assertEqual(verdicts([trip(INSIDE, 0, 115.0), trip(OUTSIDE, 0, 100.0)]), [True])
        self.assertEqual(verdicts([trip(INSIDE, 0, 116.0), trip(OUTSIDE, 0, 100.0)]), [False])
        self.assertEqual(verdicts([trip(INSIDE, 0, 1.0), trip(DIRECT, 0, 1.0)]), [])

    def test_a_grant_may_cost_half_a_millisecond(self):
        # Of the medians it would be nothing: the machine was busy when two of them were made.
        plain = [5000.0, 7000.0, 7000.0]

        def judged(more):
            mine = [5000.0 + more, 7000.0, 7000.0 + more]
            rows = [row("create", "session", PLAIN, times_us=plain)]
            return verdicts([*rows, row("create", "session", ONE, times_us=mine)])

        self.assertEqual((judged(500.0), judged(501.0)), ([True], [False]))

    def test_all_are_served_alike_and_by_no_more_connections_than_there_may_be(self):
        cases_of = [
            ({}, [True, True]),
            ({"server_connections": POOL + 1}, [False, True]),
            ({"served": 199}, [False, True]),
            ({"refused": 1}, [False, True]),
            ({"late": 1}, [False, True]),
            ({"spread": 2.1}, [True, False]),
        ]
        for change, expected in cases_of:
            rows = [row("fair", FIRST, INSIDE, **SERVED)]
            rows.append(row("fair", FIRST, INSIDE, **{**SERVED, **change}))
            self.assertEqual(verdicts(rows), expected, change)

    def test_tails_are_compared_where_all_wait_for_the_same_connections(self):
        rows = [row("fair", key, INSIDE, **{**SERVED, "spread": 2.1}) for key in CALLS]
        self.assertEqual(verdicts(rows), [True, False] * 2 + [True] * 2)

    def test_what_was_not_measured_is_no_goal_and_no_text(self):
        self.assertEqual((figures.goals(None), figures.text(None)), ([], []))
        self.assertEqual(figures.goals({"rows": [row("fair", FIRST, INSIDE, failure="x")]}), [])
        self.assertFalse(figures.failed(None))


class Figures(unittest.TestCase):
    def test_who_is_refused_without_cove_is_a_figure_and_everybody_else_a_failure(self):
        refused = {**SERVED, "refused": 900}
        self.assertFalse(figures.failed({"rows": [row("fair", FIRST, DIRECT, **refused)]}))
        for rows in (
            [row("fair", FIRST, INSIDE, **refused)],
            [row("fair", FIRST, INSIDE, **{**SERVED, "late": 1})],
            [row("fair", FIRST, DIRECT, **{**SERVED, "wrong": 1})],
            [row("select", "", "", failure="it broke")],
        ):
            self.assertTrue(figures.failed({"rows": rows}), rows)
        self.assertTrue(figures.failed({"rows": [], "left": ["1 process"]}))

    def test_samples_are_joined_rounds_are_medians_and_the_worst_counts(self):
        rows = [row("create", "session", ONE, n, times_us=list(range(100))) for n in range(2)]
        self.assertEqual(figures.summarise(rows)["times_us_p99"], 98)
        rows = [row("fair", FIRST, INSIDE, p50_us=us, spread=us, wrong=1) for us in (1.0, 9.0, 2.0)]
        found = figures.summarise(rows)
        self.assertEqual((found["p50_us"], found["spread"], found["wrong"]), (2.0, 9.0, 3))

    def test_tables_have_every_case_and_what_went_wrong(self):
        found = {
            "rows": [
                trip(INSIDE, 0, 110.0), trip(OUTSIDE, 0, 100.0),
                row("create", "session", ONE, times_us=[1234.0]),
                row("fair", CALM, INSIDE, **SERVED),
                row("fair", FLOODED, INSIDE, **{**SERVED, "p99_middle_us": 2400.0}),
                row("fair", FIRST, DIRECT, refused=903, examples=["53300 too many clients"]),
                row("create", "", "", failure="it broke"),
            ],
            "unavailable": {"MariaDB": "not installed"},
        }  # fmt: skip
        text = "\n".join(figures.text(found))
        for words in (
            *figures.TITLES.values(), "1.100", "1 234", "903 refused", "53300 too many clients",
            "it broke", "1 rounds", "2.40 ms (2.00 ×)", "MariaDB is missing: not installed",
        ):  # fmt: skip
            self.assertIn(words, text)

    def test_the_document_has_no_samples(self):
        found = {"rows": [row("create", "session", ONE, times_us=[1.0, 2.0], wrong=0)]}
        short = figures.without_samples(found)
        self.assertNotIn("rows", short)
        self.assertEqual(short["figures"][0]["times_us_p50"], 1.0)

    def test_what_is_kept_gives_the_same_goals_and_text(self):
        rows = [trip(name, n, us * n) for n in (1, 2) for name, us in ((INSIDE, 80.0), (OUTSIDE, 76.0))]
        rows += [row("create", "session", name, times_us=times, wrong=0)
                 for name, times in ((PLAIN, [1000.0, 2000.0]), (ONE, [1100.0, 2300.0]))]  # fmt: skip
        found = {"rows": rows, "versions": {}, "unavailable": {}, "left": []}
        kept = json.loads(json.dumps(figures.without_samples(found)))
        self.assertEqual(list(figures.goals(kept)), list(figures.goals(found)))
        self.assertEqual(figures.text(kept), figures.text(found))


class Cases(unittest.TestCase):
    def one(self, p99, **more):
        good = {"answers": 10, "wrong": 0, "refused": 0, "is_late": False, "connects": 5}
        more = {"p50_us": p99 / 2, "connect_max_us": 1.0, "examples": [], **more}
        return {**good, "p99_us": p99, "per_second": 2.0, "cpu_us": 100.0, **more}

    def test_sandboxes_are_told_apart_and_one_that_floods_is_not_looked_at(self):
        told = [self.one(9000.0), self.one(10.0), self.one(15.0), self.one(30.0, wrong=1)]
        found = cases.together(told, told[1:])
        self.assertEqual((found["sandboxes"], found["spread"]), (3, 3.0))
        self.assertEqual((found["spread_to_middle"], found["wrong"]), (2.0, 1))
        self.assertEqual((found["per_second"], found["client_cpu_us"]), (8.0, 10.0))

    def test_one_that_nobody_answers_has_no_percentile_and_was_not_served(self):
        nobody = {"answers": 0, "p99_us": None, "p50_us": None, "per_second": None, "refused": 5}
        found = cases.together([self.one(10.0), {**self.one(1.0), **nobody}], [self.one(10.0)])
        self.assertEqual((found["served"], found["refused"]), (1, 5))
        self.assertEqual(cases.together([{**self.one(1.0), **nobody}], [])["served"], 0)

    def test_every_sandbox_asks_for_numbers_of_its_own(self):
        options = types.SimpleNamespace(quick=True, seconds=0.5)
        words = cases.clients_words(options, "a:1", {"think_ms": 7}, {"churners": 1}, at=5)
        values = {word for of in words for word in of if word.startswith("value=")}
        self.assertEqual((len(words), len(values)), (cases.SANDBOXES, cases.SANDBOXES))
        self.assertIn("churners=1", words[0])
        self.assertNotIn("think_ms=7", words[0])
        self.assertTrue(all("think_ms=7" in of for of in words[1:]))

    def test_a_client_that_fails_is_an_error(self):
        answer = types.SimpleNamespace(json=lambda: {"exit_code": 2, "stdout": "", "stderr": "x"})
        with self.assertRaisesRegex(Refused, "ended with"):
            cases.said(answer)
        with self.assertRaises(OSError):
            cases.said(OSError("gone"))
        with self.assertRaisesRegex(Refused, "leads nowhere"):
            cases.check(self.one(1.0))
        cases.check({**self.one(1.0), "answers": 1})

    def test_the_client_knows_every_argument(self):
        source = (pathlib.Path(gateway.__file__).parent / "src" / "options.rs").read_text()
        told = [*arguments("postgres", "a:1", trips=1, value=1)]
        for others, first in CALLS.values():
            more = {**others, **first, "connections": 1, "seconds": 1, "at_ms": 1}
            told += arguments("mysql", "a:1", **more)
        for name in {word.partition("=")[0] for word in told}:
            self.assertIn(f'"{name}" =>', source)

    def test_a_grant_of_each_database_is_tried(self):
        grants = [cases.SHOP, cases.JUDGE, cases.SERVERS_OUTSIDE]
        tried = [words[:2] for words in cases.checks(grants)]
        expected = [["protocol=postgres", f"address={cases.POSTGRES_INSIDE}"]]
        expected.append(["protocol=mysql", f"address={cases.MYSQL_INSIDE}"])
        self.assertEqual(tried, expected)

    def test_a_file_is_sent_as_it_is(self):
        request = Wire("127.0.0.1:1", "t").bytes_of("PUT", "/x", b'\x00{"a"')
        head, _, body = request.partition(b"\r\n\r\n")
        self.assertEqual(body, b'\x00{"a"')
        self.assertIn(b"application/octet-stream", head)


if __name__ == "__main__":
    unittest.main()
