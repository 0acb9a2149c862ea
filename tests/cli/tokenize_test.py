#!/usr/bin/env python3
"""numoe tokenize and detokenize: long runs of one kind of character, and the second round of a text.

Usage: tokenize_test.py path/to/numoe
"""
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
BYTE_PAIRS = ROOT / "models" / "fairy-tales-moe-21m-Q4_K_M.gguf"
PIECES = ROOT / "tests" / "golden" / "tokenizers" / "tiny-spm.gguf"
BINARY = None


def numoe(*arguments, text=""):
    run = subprocess.run([BINARY, *map(str, arguments)], input=text.encode("utf-8"), capture_output=True, timeout=120)
    if run.returncode != 0:
        raise AssertionError(run.stderr.decode("utf-8", errors="replace"))
    return run.stdout.decode("utf-8")


class RowB1(unittest.TestCase):
    def test_one_long_run_of_a_single_class(self):
        runs = ["Z" * 131072, "字" * 100000, " " * 200000 + "x", "\n" * 100000, "9" * 60000, "a\u0301" * 65536]
        for model in (BYTE_PAIRS, PIECES):
            for text in runs:
                with self.subTest(model=model.name, run=text[:3]):
                    self.assertGreater(len(numoe("tokenize", model, text=text).split()), 0)


class RowB3(unittest.TestCase):
    def test_a_second_round_gives_the_same(self):
        for model in (BYTE_PAIRS, PIECES):
            for text in ("a b", " a b", "\ta", "a\u00a0b", "  ", "a  b "):
                with self.subTest(model=model.name, text=text):
                    ids = numoe("tokenize", model, text=text).split()
                    again = numoe("detokenize", model, *ids)
                    self.assertEqual(again, text + "\n")
                    self.assertEqual(numoe("tokenize", model, text=again[:-1]).split(), ids)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    BINARY = sys.argv.pop(1)
    unittest.main()
