#!/usr/bin/env python3
"""The same prompt three times, around the length of a KV block, is the same answer: computed, found in the cache, and found
while others are answered; as text and as token ids; for attention by heads, through a latent, in windows and in chunks.

Usage: same_prompt_test.py path/to/numoe
"""
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from processes import MODEL, ROOT, wait_until  # noqa: E402
from serving import Service  # noqa: E402
from streams import Streams  # noqa: E402

BINARY = None
BLOCK = 64
LENGTHS = (BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK)
SAMPLING = ({"temperature": 0}, {"temperature": 0.8, "seed": 11})
TOKENS = 12
GOLDEN = ROOT / "tests" / "golden" / "models"
TALES = ROOT / "tests" / "golden" / "heldout.txt"


def numoe(*arguments, text=None):
    return subprocess.run([BINARY, *map(str, arguments)], input=text, capture_output=True, text=True, check=True,
                          timeout=120).stdout


def ids_of(text):
    return [int(word) for word in numoe("tokenize", MODEL, text=text).split()]


def prompt_of(length, number):
    """A text of so many tokens and its ids; no two begin alike."""
    tales = TALES.read_text(encoding="utf-8")[number * 3000:][:3000]
    text = numoe("detokenize", MODEL, *ids_of(tales)[:length]).removesuffix("\n")
    return text, ids_of(text)


class SamePrompt(unittest.TestCase):
    def ask(self, service, prompt, sampling):
        status, body, _ = service.post("/v1/completions", {"prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True,
                                                           **sampling})
        self.assertEqual(status, 200, body)
        return body["choices"][0]["text"], body["usage"]

    def thrice(self, service, first, second, sampling):
        """Three answers that must be one, the last beside others; the middle one to `second`."""
        text, usage = self.ask(service, first, sampling)
        self.assertEqual(self.ask(service, second, sampling), (text, usage))
        others = Streams(service, [{"prompt": [7, 8, 9 + index], "max_tokens": 40, "ignore_eos": True, "seed": index}
                                   for index in range(3)])
        others.wait_for(1)
        self.assertEqual(self.ask(service, first, sampling), (text, usage))
        others.texts()
        return usage

    def test_of_words(self):
        with Service(BINARY, "--nodes", 2, "--ctx", 512, "--parallel", 4) as service:
            service.wait_ready()
            found = 0
            for number, (length, sampling) in enumerate((length, sampling) for length in LENGTHS for sampling in SAMPLING):
                with self.subTest(length=length, **sampling):
                    text, ids = prompt_of(length, number)
                    self.assertEqual(len(ids), length)
                    usage = self.thrice(service, text, ids, sampling)
                    self.assertEqual(usage["prompt_tokens"], length)
                    # Whole blocks, and never all of a prompt: its last position must be computed.
                    found += 2 * ((length - 1) // BLOCK)
            wait_until(lambda: service.get("/status")[1]["kv_blocks"]["reused"] == found,
                       f"{found} blocks were found, not {service.get('/status')[1]['kv_blocks']}")

    def of_family(self, name):
        with Service(BINARY, "--nodes", 2, "--ctx", 512, "--parallel", 4, model=GOLDEN / f"{name}-f16.gguf") as service:
            service.wait_ready()
            for number, (length, sampling) in enumerate((length, sampling) for length in LENGTHS for sampling in SAMPLING):
                with self.subTest(length=length, **sampling):
                    ids = [(number * 17 + position * 7) % 250 + 3 for position in range(length)]
                    self.thrice(service, ids, ids, sampling)
            wait_until(lambda: service.get("/status")[1]["kv_blocks"]["reused"] > 0, "blocks were found")

    def test_through_a_latent(self):
        self.of_family("deepseek2-v3-mla")

    def test_in_windows(self):
        self.of_family("gpt-oss")

    def test_in_chunks(self):
        self.of_family("llama4")


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
