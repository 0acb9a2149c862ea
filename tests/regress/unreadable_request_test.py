#!/usr/bin/env python3
"""A request that no worker could read was sent again for ever, and the command never ended.

Usage: unreadable_request_test.py path/to/numoe
"""
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
from processes import MODEL, Run  # noqa: E402

BINARY = None


class UnreadableRequest(unittest.TestCase):
    def refusal(self, *arguments):
        with Run(BINARY, *arguments) as run:
            self.assertEqual(run.finish(), 1, run.stderr())
            self.assertEqual(run.leftovers(), [])
            return run.stderr()

    def test_a_negative_id_names_the_option(self):
        message = self.refusal("logits", MODEL, "--tokens", "1 -2")
        self.assertIn("--tokens", message)
        self.assertIn('"-2"', message)

    def test_an_id_beyond_the_vocabulary_is_named_with_it(self):
        self.assertIn("id 4096; this model has ids 0 … 4095", self.refusal("logits", MODEL, "--tokens", "1 4096"))

    def test_a_prompt_beyond_every_limit_is_refused_with_both_numbers(self):
        # A chat's turn of over a million tokens; the conversation goes on after it, so the exit code is 0.
        with tempfile.TemporaryFile() as turn:
            turn.write(b"a b c d " * 300000 + b"\n")
            turn.seek(0)
            with Run(BINARY, "run", MODEL, "-n", 2, "--threads-per-node", 1, stdin=turn) as run:
                self.assertEqual(run.finish(), 0, run.stderr())
                self.assertRegex(run.stderr(), r"the prompt has \d{7} tokens, which exceeds the context of \d+;")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    BINARY = sys.argv.pop(1)
    unittest.main()
