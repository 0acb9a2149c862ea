#!/usr/bin/env python3
"""Output that could not be written ended the program without a word; a closed pipe may do that, a full disk may not.

Usage: full_output_test.py path/to/numoe
"""
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
from processes import MODEL  # noqa: E402

BINARY = None


class FullOutput(unittest.TestCase):
    def test_a_full_disk_is_one_sentence(self):
        for command in (["tokenize", MODEL, "-p", "Once"], ["inspect", MODEL], ["completion", "bash"]):
            with open("/dev/full", "wb") as full:
                run = subprocess.run([BINARY, *command], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(run.returncode, 1, command)
            self.assertIn("standard output cannot be written: No space left on device", run.stderr, command)
            self.assertEqual(run.stderr.count("\n"), 1, run.stderr)

    def test_a_reader_that_left_is_no_error_to_tell(self):
        run = subprocess.Popen([BINARY, "inspect", MODEL], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        run.stdout.close()
        self.assertEqual(run.stderr.read(), "")
        run.stderr.close()
        self.assertEqual(run.wait(), 1)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
