#!/usr/bin/env python3
"""numoe inspect: which kernels multiply the weights of a type.

Usage: inspect_test.py path/to/numoe
"""
import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "fairy-tales-moe-21m-Q4_K_M.gguf"
MIXED = ROOT / "tests" / "golden" / "models" / "qwen3moe-ud-mix.gguf"
BINARY = None


def paths(model):
    """Type -> path, as the report and the JSON say, which must agree."""
    def inspect(*options):
        return subprocess.run([BINARY, "inspect", *options, str(model)], check=True, capture_output=True,
                              encoding="utf-8", timeout=60).stdout
    report = dict(re.findall(r"^  (\w+) +\d+ +tensors \d+ bytes, (\w+) path$", inspect(), re.M))
    machine = {name: one["path"] for name, one in json.loads(inspect("--json"))["formats"].items()}
    assert report == machine, (report, machine)
    return report


class KernelPath(unittest.TestCase):
    def test_all_types_of_a_usual_file_are_fast(self):
        found = paths(DEMO)
        self.assertEqual(set(found), {"F32", "Q4_K", "Q5_K", "Q6_K", "Q8_0"})
        self.assertEqual(set(found.values()), {"fast"})

    def test_codebook_types_take_the_reference_path(self):
        self.assertEqual(paths(MIXED), {
            "F32": "fast", "Q8_0": "fast", "Q6_K": "fast", "Q5_K": "fast", "Q4_K": "fast", "Q3_K": "fast",
            "IQ4_XS": "fast", "IQ3_XXS": "reference", "IQ2_S": "reference", "IQ2_XXS": "reference"})


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
