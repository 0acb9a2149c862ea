#!/usr/bin/env python3
"""Numbers through real processes: logits are equal for any split, perplexity is what the model's card says.

Usage: numbers_test.py path/to/numoe
"""
import json
import math
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(__import__("pathlib").Path(__file__).resolve().parent))
from processes import MODEL, ROOT  # noqa: E402

BINARY = None
GOLDEN = ROOT / "tests" / "golden"
TEXT = GOLDEN / "heldout.txt"
Q8_0 = ROOT.parent / "shared" / "models" / "fairy-tales-moe-21m-Q8_0.gguf"
# Of the card, by another engine: text cut into chunks of 512, positions 256-511 scored.
CARD = {"Q4_K_M": 46.046, "Q8_0": 45.954}


def numoe(*arguments):
    run = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr
    return run.stdout


def perplexity(model):
    words = numoe("perplexity", model, "-f", TEXT).split()
    return float(words[words.index("perplexity") + 1])


class Logits(unittest.TestCase):
    def test_equal_for_any_nodes_threads_and_chunks(self):
        for case in ("qwen3moe-q4_k", "olmoe-f32", "mixtral-f16"):
            path = GOLDEN / "models" / f"{case}.gguf"
            sequence = json.loads(path.with_suffix(".json").read_text())["reference"][2]
            tokens = " ".join(map(str, sequence["tokens"]))
            answers = []
            for options in [(), ("--nodes", 2), ("--nodes", 3, "--threads-per-node", 2), ("--nodes", 4, "--chunk", 7),
                            ("--nodes", 2, "--isa", "scalar", "--chunk", 1)]:
                answers.append(json.loads(numoe("logits", path, "--tokens", tokens, *options)))
                self.assertEqual(answers[-1], answers[0], (case, options))
            self.assertEqual(len(answers[0]["positions"]), len(sequence["tokens"]))
            self.assertEqual(len(answers[0]["last"]), len(sequence["last_logits"]))

    def test_reference_meets_the_golden_logits(self):
        path = GOLDEN / "models" / "qwen3moe-q4_k.gguf"
        for sequence in json.loads(path.with_suffix(".json").read_text())["reference"]:
            tokens = " ".join(map(str, sequence["tokens"]))
            got = json.loads(numoe("logits", path, "--tokens", tokens, "--isa", "reference", "--kv-type", "f32",
                                   "--nodes", 2))
            differences = [abs(a - b) for a, b in zip(got["last"], sequence["last_logits"], strict=True)]
            self.assertLess(max(differences), 1e-3)
            for ours, theirs in zip(got["positions"], sequence["top8"], strict=True):
                for (_, a), (_, b) in zip(ours["top"], theirs, strict=True):
                    self.assertLess(abs(a - b), 1e-3)


class Perplexity(unittest.TestCase):
    def test_of_the_demo_model_is_that_of_its_card(self):
        q4 = perplexity(MODEL)
        print(f"perplexity Q4_K_M {q4}, card {CARD['Q4_K_M']}")
        self.assertLess(abs(q4 - CARD["Q4_K_M"]), 0.1)
        if not Q8_0.exists():
            print(f"{Q8_0} is absent: Q8_0 not measured")
            return
        q8 = perplexity(Q8_0)
        print(f"perplexity Q8_0 {q8}, card {CARD['Q8_0']}")
        self.assertLess(abs(q8 - CARD["Q8_0"]), 0.1)
        self.assertTrue(math.isclose(q4 - q8, CARD["Q4_K_M"] - CARD["Q8_0"], abs_tol=0.05))


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
