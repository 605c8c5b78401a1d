#!/usr/bin/env python3
"""Tests of the comparison of a branch with its base: `python3 bench/test_check.py`."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import check

# Takes 100 instructions for an operation and 1000 before the first one.
STAND_IN = """\
#!/bin/sh
case $1 in
list) echo "pool/one 50"; echo "wire/two 10";;
wire/*) echo "thread main panicked: wrong" >&2; exit 101;;
*) echo "==1== I   refs:      $((1000 + 100 * $2))" >&2;;
esac
"""


class Counts(unittest.TestCase):
    def test_valgrinds_answer_is_read(self):
        text = "==17005== \n==17005== I   refs:      6,067,057\n"
        self.assertEqual(check.counts_of_valgrind(text), 6_067_057)
        self.assertIsNone(check.counts_of_valgrind("==1== Segmentation fault"))

    def test_a_processor_that_does_not_count_is_no_counter(self):
        self.assertEqual(check.counts_of_perf("1234,,instructions:u,100,100.00,,\n"), 1234)
        self.assertIsNone(check.counts_of_perf("<not supported>,,instructions:u,0,100.00,,\n"))

    def test_preparation_is_in_no_figure_and_a_panic_is_none(self):
        binary = check.BENCH / ".cache" / "stand-in"
        binary.parent.mkdir(exist_ok=True)
        binary.write_text(STAND_IN, encoding="utf-8")
        binary.chmod(0o755)
        self.addCleanup(binary.unlink)
        tool = (["env"], check.counts_of_valgrind)
        self.assertEqual(check.per_operation(tool, binary, "pool/"), {"pool/one": 100})
        with self.assertRaisesRegex(check.Failed, "wire/two with 10 operations: .*panicked"):
            check.per_operation(tool, binary, "")


class Rows(unittest.TestCase):
    def test_only_growth_beyond_the_limit_fails(self):
        base = {"a": 100, "b": 100, "c": 100, "gone": 5}
        rows = check.compare(base, {"a": 105, "b": 106, "c": 40, "new": 7}, 5)
        found = {row["case"]: (row["ratio"], row["grown"]) for row in rows}
        self.assertEqual(found["a"], (1.05, False))
        self.assertEqual(found["b"], (1.06, True))
        self.assertEqual(found["c"], (0.4, False))
        self.assertEqual((found["gone"], found["new"]), ((None, False), (None, False)))
        text = check.table(rows, 5)
        self.assertEqual(text.count("more than 5 % more"), 1)
        self.assertIn("no longer here", text)
        self.assertIn("only here", text)

    def test_the_driver_lists_what_is_in_its_table(self):
        source = (check.BENCH / "counts" / "src" / "main.rs").read_text(encoding="utf-8")
        for service in ("pool/", "postgres/", "mysql/", "executions/", "catalog/"):
            self.assertIn(f'name: "{service}', source)


if __name__ == "__main__":
    unittest.main()
