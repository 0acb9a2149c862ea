#!/usr/bin/env python3
"""With standard input closed the signal descriptor became number 0, and a chat waited for it for ever.

Usage: closed_descriptors_test.py path/to/numoe
"""
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
from processes import MODEL, Run  # noqa: E402

BINARY = None


class ClosedDescriptors(unittest.TestCase):
    def run_with(self, redirection, *arguments):
        with tempfile.TemporaryDirectory() as arena:
            with Run("bash", "-c", f'exec "$@" {redirection}', "bash", BINARY, *arguments, "--threads-per-node", 1,
                     "--arena-dir", arena, arena=arena) as run:
                code = run.finish()
                self.assertEqual(run.leftovers(), [])
                return code, run.stdout(), run.stderr()

    def test_a_chat_without_standard_input_ends(self):
        code, out, err = self.run_with("<&-", "run", MODEL, "-n", 2)
        self.assertEqual((code, out), (0, ""), err)

    def test_a_story_needs_no_standard_input(self):
        code, out, err = self.run_with("<&-", "run", MODEL, "-p", "Once", "-n", 2)
        self.assertEqual(code, 0, err)
        self.assertTrue(out.startswith("Once"))

    def test_nothing_is_written_into_sockets(self):
        self.assertEqual(self.run_with(">&-", "run", MODEL, "-p", "Once", "-n", 2)[:2], (0, ""))
        code, out, err = self.run_with("<&- 2>&-", "run", MODEL, "-p", "Once", "-n", 2, "--stats")
        self.assertEqual((code, err), (0, ""))
        self.assertTrue(out.startswith("Once"))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    BINARY = sys.argv.pop(1)
    unittest.main()
