#!/usr/bin/env python3
"""Tests of what is made of a soak, without one: `python3 bench/test_soak.py`."""

import os
import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import pages
import soak


def samples(count=90, grows=1.0, slower=1.0):
    """Samples of which the last third has more memory, and slower answers."""
    found = []
    for number in range(count):
        is_late = number >= 2 * count / 3
        found.append({
            "rss_anon_mib": 40 * (grows if is_late else 1), "descriptors": 90, "processes": 20,
            "disk_mib": 5, "p50_ms": {"catalog": 2.0 * (slower if is_late else 1)},
        })  # fmt: skip
    return found


def document(found, failed=0, errors=()):
    """A soak as it is kept."""
    of_server, of_services = soak.drifts_of(found)
    row = {"requests": 1000, "failed": failed, "failed_beside_faults": 3, "failures": [],
           "p50_ms": 2.0, "p99_ms": 9.0}  # fmt: skip
    return {"minutes": 7, "alive": True, "drift": of_server, "latency_drift": of_services,
            "quiet": {"catalog": {"p99_ms": 4.0}}, "under_attack": {"catalog": row},
            "faults": [[1.0, "postgres stands still"]], "errors_logged": list(errors),
            "samples": found}  # fmt: skip


class Verdict(unittest.TestCase):
    def test_growth_failures_and_errors_are_not_good(self):
        self.assertTrue(soak.is_good(document(samples())))
        self.assertFalse(soak.is_good(document(samples(grows=1.3))))
        self.assertFalse(soak.is_good(document(samples(slower=1.6))))
        self.assertFalse(soak.is_good(document(samples(), failed=1)))
        self.assertFalse(soak.is_good(document(samples(), errors=["ERROR"])))

    def test_a_service_that_is_missing_in_some_samples_has_a_drift(self):
        found = samples()
        found[7]["p50_ms"] = {}
        _, of_services = soak.drifts_of(found)
        self.assertEqual(of_services, {"catalog": 1.0})


class Notes(unittest.TestCase):
    def test_failures_beside_a_fault_are_counted_by_themselves(self):
        ledger = soak.Ledger()
        ledger.note("catalog", 0.002)
        ledger.note("catalog", 0, "it broke")
        ledger.excuse(60)
        ledger.note("catalog", 0, "it broke")
        row = ledger.summary()["catalog"]
        self.assertEqual((row["requests"], row["failed"], row["failed_beside_faults"]), (3, 1, 1))
        ledger.excused_until = time.monotonic() - 1
        ledger.note("catalog", 0, "it broke")
        self.assertEqual(ledger.summary()["catalog"]["failed"], 2)

    def test_a_window_is_what_came_since_the_last_look(self):
        ledger = soak.Ledger()
        for seconds in (0.001, 0.002, 0.009):
            ledger.note("queue", seconds)
        self.assertEqual(ledger.window(), {"queue": 2.0})
        self.assertEqual(ledger.window(), {})

    def test_this_process_is_in_no_sandbox(self):
        self.assertFalse(soak.is_in_a_sandbox(os.getpid()))


class Page(unittest.TestCase):
    def test_it_says_how_long_it_was_and_what_failed(self):
        run = {"date": "2030-01-02 03:04 UTC", "commit": "abc1234", "load_start": [1, 1, 1],
               "load_end": [2, 2, 2], "soak": document(samples(), failed=4)}  # fmt: skip
        files = pages.render([run])
        self.assertIn("7 minutes, 2 January 2030, commit `abc1234`", files["RESULTS.md"])
        self.assertRegex(files["RESULTS.md"], r"\| catalog \| +1 000 \| +4 \| +3 \|")
        self.assertIn("for 7 minutes", files["plots/soak.svg"])
        self.assertIn("postgres stands still", files["plots/soak.svg"])

    def test_a_plot_of_all_services_is_small(self):
        found = samples(360)
        for it in found:
            it["p50_ms"] = dict.fromkeys(soak.HONEST, 12.345)
        text = soak.plot({**document(found), "faults": [[n, "x" * 30] for n in range(120)]})
        self.assertLess(len(text), 12_000)


if __name__ == "__main__":
    unittest.main()
