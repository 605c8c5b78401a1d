#!/usr/bin/env python3
"""Tests of the harness of the bouncer, without a server: `python3 bench/test_bouncer.py`."""

import base64
import hashlib
import hmac
import pathlib
import struct
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import bouncer
from bouncer import figures, load, matrix, mysql, poolers, relay, wire
from bouncer.poolers import COVE, PGBOUNCER

CELL = ["tcp", 10, "simple"]


def row(case, rival, key=(), **more):
    return {"case": case, "rival": rival, "key": list(key), **more}


class Figures(unittest.TestCase):
    def test_rounds_become_medians_and_samples_percentiles_of_all(self):
        rows = [
            row("load", COVE, CELL, cpu_us=us, latencies_us=list(range(n)))
            for us, n in ((1.0, 100), (9.0, 1), (2.0, 1))
        ]
        found = figures.summarise(rows)
        self.assertEqual(found["cpu_us"], 2.0)
        self.assertEqual(found["latencies_us_n"], 102)
        self.assertEqual(found["latencies_us_p99"], 98)

    def test_goals_compare_with_pgbouncer_over_tcp(self):
        rows = [
            row("load", COVE, ["unix", 10, "simple"], cpu_us=6.0),
            row("load", PGBOUNCER, CELL, cpu_us=9.0),
            row("load", PGBOUNCER, ["unix", 10, "simple"], cpu_us=60.0),
        ]
        [goal] = figures.goals({"rows": rows})
        self.assertFalse(goal.met)
        rows[0]["cpu_us"] = 5.0
        self.assertTrue(figures.goals({"rows": rows})[0].met)

    def test_what_was_left_behind_is_a_failure_and_no_goal_is_met(self):
        clean = row("dirty", COVE, clean_per_second=100.0, mixed_per_second=99.0, left=[])
        dirty = {**clean, "left": ["60123ms, 0 locks, 0 tables"]}
        for one, wrong in ((clean, False), (dirty, True)):
            found = {"rows": [one]}
            self.assertEqual(figures.failed(found), wrong)
            self.assertEqual(figures.goals(found)[0].met, not wrong)

    def test_mysql_is_compared_with_postgresql_and_by_its_worst_round(self):
        select = [mysql.SELECT, mysql.TEXT, 10]
        mix = [mysql.READ_WRITE, mysql.TEXT, 1000]
        rows = [
            row("mysql", COVE, select, cpu_us=10.0),
            row("mysql", mysql.COVE_MYSQL, select, cpu_us=11.5),
            row("mysql", mysql.COVE_MYSQL, mix, per_second=1.0, server_connections=20),
        ]
        self.assertEqual([goal.met for goal in figures.goals({"rows": rows})], [False, True])
        rows.append(row("mysql", mysql.COVE_MYSQL, mix, per_second=1.0, server_connections=21))
        rows.append(row("mysql", mysql.COVE_MYSQL, select, cpu_us=10.0))
        self.assertEqual([goal.met for goal in figures.goals({"rows": rows})], [True, False])
        rows[-2:] = [row("mysql", mysql.COVE_MYSQL, mix, failure="lost")]
        self.assertEqual([goal.met for goal in figures.goals({"rows": rows})], [False, False])
        self.assertTrue(figures.failed({"rows": rows}))

    def test_failures_of_others_are_theirs(self):
        self.assertFalse(figures.failed({"rows": [row("load", PGBOUNCER, failure="no")]}))
        self.assertTrue(figures.failed({"rows": [row("load", COVE, failure="no")]}))

    def test_every_case_has_a_title_and_a_table(self):
        for case in bouncer.CASES:
            self.assertIn(case.name, figures.TITLES)
            self.assertIn(case.name, figures.TABLES)

    def test_samples_are_not_written_down(self):
        found = {"rows": [row("load", COVE, CELL, latencies_us=[1, 2, 3])]}
        document = figures.without_samples(found)
        self.assertNotIn("rows", document)
        self.assertEqual(document["figures"][0]["rivals"][COVE]["latencies_us_p50"], 2)


class Relay(unittest.TestCase):
    def rounds(self, ours, allocations=0.0):
        def one(ns, allocs):
            return {"ns_per_op": ns, "allocs_per_op": allocs, "bytes_per_op": 0, "checked": True}

        always, dirty = "postgres/rendezvous/reset_always", "postgres/rendezvous/dirty_only"
        go = {"go 1": one(3000, 35), "go 2": one(2000, 35)}
        return [
            {
                always: {"cove": one(ours, allocations), **go},
                dirty: {"cove": one(ours, allocations), **go},
                "mysql/status_flags": {"go 1": one(5, 0)},
            }
        ]

    def test_gos_better_figure_counts(self):
        always, dirty, flags = relay.summary(self.rounds(500))
        self.assertEqual(always["ratio"], 0.25)
        self.assertTrue(always["met"])
        # The same time is not enough for a fifth.
        self.assertFalse(dirty["met"])
        self.assertNotIn("goal", flags)
        self.assertIn("status_flags", relay.table([always, dirty, flags]))

    def test_an_allocation_misses_the_goal(self):
        self.assertFalse(relay.summary(self.rounds(100, allocations=1.0))[0]["met"])


class Pgbench(unittest.TestCase):
    def test_only_transactions_of_the_time_that_counts(self):
        run = object.__new__(load.Load)
        with tempfile.TemporaryDirectory() as directory:
            run.directory = types.SimpleNamespace(name=directory)
            lines = ["0 1 11 0 99 999999", "0 2 22 0 100 500000", "0 3 33 0 102 1", "0 4 44 0 1"]
            pathlib.Path(directory, "log.1").write_text("\n".join(lines), encoding="utf-8")
            self.assertEqual(run.latencies(100.0, 102.0), {"latencies_us": [22]})

    def test_figures_are_of_the_seconds_after_the_first(self):
        run = object.__new__(load.Load)
        run.latencies = lambda *_: {}
        marks = [(1.0, 500.0, 0, 1.0, 2.0, 10), (2.0, 100.0, 1, 1.5, 3.0, 110)]
        found = run.figures(marks)
        self.assertEqual(found["transactions"], 100.0)
        self.assertEqual((found["user_us"], found["kernel_us"]), (5000.0, 10000.0))
        self.assertEqual(found["switches"], 1.0)

    def test_a_script_for_each_share_of_dirty_work(self):
        self.assertEqual(sum(matrix.DIRTY_WEIGHTS.values()), 100)
        self.assertLessEqual(set(matrix.DIRTY_WEIGHTS), set(matrix.SCRIPTS))


class Sysbench(unittest.TestCase):
    LINES = (
        "99th percentile:                         1.23",
        "         avg:                                    0.50",
        "    ignored errors:                      3      (1.00 per sec.)",
        "    reconnects:                          0      (0.00 per sec.)",
    )

    def test_what_it_says_is_read(self):
        line = "[ 2s ] thds: 10 tps: 7339.21 qps: 146784.20 (r/w/o: 1/2/3) lat (ms,99%): 0.20"
        self.assertEqual(mysql.Sysbench.progress.search(line).groups(), ("2", "7339.21"))
        run = object.__new__(mysql.Sysbench)
        found = run.summary("", list(self.LINES))
        self.assertEqual(found, {"mean_ms": 0.5, "p99_ms": 1.23, "ignored": 3.0})

    def test_a_lost_connection_is_an_error(self):
        lines = [*self.LINES[:3], self.LINES[3].replace("0  ", "1  ", 1)]
        with self.assertRaises(load.Failed):
            object.__new__(mysql.Sysbench).summary("", lines)

    def test_it_speaks_the_protocol_of_the_endpoint(self):
        for kind, word in ((mysql.Server, "mysql"), (poolers.Endpoint, "pgsql")):
            argv = mysql.command(kind("x", 1, "/d", 2, "v"), "oltp_point_select")
            self.assertIn(f"--{word}-port=1", argv)
            self.assertIn(f"--db-driver={word}", argv)

    def test_a_secret_is_a_hash_of_a_hash(self):
        # Of MariaDB's own documentation.
        self.assertEqual(mysql.secret("mariadb"), "*54958E764CE10E50764C2EECBB71D01F08549980")


class Protocol(unittest.TestCase):
    def test_rows_and_errors_are_read(self):
        body = struct.pack("!Hi1si", 2, 1, b"7", -1)
        self.assertEqual(wire.values(body), [b"7", None])
        self.assertEqual(wire.error_text(b"SERROR\0C42P01\0Mno table\0\0"), "42P01 no table")

    def test_a_secret_is_what_a_client_proves(self):
        secret = poolers.scram_secret("word")
        rounds, salt = secret.split("$")[1].split(":")
        client, stored = wire.client_keys("word", base64.b64decode(salt), int(rounds))
        self.assertEqual(base64.b64encode(stored).decode(), secret.split("$")[2].split(":")[0])
        self.assertEqual(hashlib.sha256(client).digest(), stored)
        self.assertEqual(len(hmac.digest(stored, b"", "sha256")), 32)


if __name__ == "__main__":
    unittest.main()
