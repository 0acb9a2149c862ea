#!/usr/bin/env python3
"""What a user must know was not said: too many threads, a context beyond the trained one, the plan, the placement.

Usage: unsaid_warnings_test.py path/to/numoe
"""
import os
import re
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
from processes import MODEL, Run  # noqa: E402

BINARY = None


class UnsaidWarnings(unittest.TestCase):
    def said(self, *options):
        with Run(BINARY, "run", MODEL, "-p", "Once", "-n", 2, "--temp", 0, *options) as run:
            self.assertEqual(run.finish(), 0, run.stderr())
            return run.stderr()

    def warnings(self, text):
        return [line for line in text.splitlines() if "warning:" in line]

    def test_more_threads_than_cpus_are_told_without_statistics(self):
        threads = (os.cpu_count() or 1) + 2
        found = [line for line in self.warnings(self.said("--nodes", 1, "--threads-per-node", threads))
                 if "oversubscribed" in line]
        self.assertEqual(len(found), 1, found)
        self.assertIn(f"{threads} threads", found[0])

    def test_a_context_beyond_the_trained_one_is_told_with_both_numbers(self):
        found = [line for line in self.warnings(self.said("--threads-per-node", 1, "--ctx", 2001)) if "--ctx" in line]
        self.assertEqual(len(found), 1, found)
        trained = re.search(r"--ctx 2001 is more than the (\d+) positions", found[0]).group(1)
        quiet = self.said("--threads-per-node", 1, "--ctx", trained)
        self.assertFalse([line for line in self.warnings(quiet) if "--ctx" in line], quiet)

    def test_statistics_begin_with_the_plan_and_end_with_the_placement(self):
        text = self.said("--nodes", 2, "--threads-per-node", 1, "--stats")
        self.assertLess(text.index("rank 1"), text.index("loading"), text)
        self.assertRegex(text, r"rank 1: .* MB of the arena in huge pages, 1 threads, memory (not )?bound to ")
        self.assertNotIn("vocabulary", self.said("--nodes", 2, "--threads-per-node", 1), "no plan unless asked")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    BINARY = sys.argv.pop(1)
    unittest.main()
