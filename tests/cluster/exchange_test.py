#!/usr/bin/env python3
"""Both exchanges through the real program: the same words and numbers, the same end when a worker dies.

Usage: exchange_test.py path/to/numoe
"""
import json
import re
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from processes import MODEL, ROOT, Run, wait_until  # noqa: E402

BINARY = None
PROMPT = "Once upon a time there was a poor miller who had"
GOLDEN = ROOT / "tests" / "golden" / "models"


class Exchange(unittest.TestCase):
    def finished(self, run, code=0):
        self.assertEqual(run.finish(), code, run.stderr())
        wait_until(lambda: not run.alive(), "the processes of a finished command end")
        self.assertEqual(run.leftovers(), [])

    def told(self, *options):
        """Text and statistics of a story."""
        with Run(BINARY, "run", MODEL, "-p", PROMPT, "-n", 40, "--seed", 5, "--stats", *options) as run:
            self.finished(run)
            exchange = re.search(r"^exchange: +(.*)$", run.stderr(), re.MULTILINE)
            return run.stdout(), exchange.group(1), run.stderr()

    def test_stories_are_equal_and_statistics_name_the_exchange(self):
        text, exchange, _ = self.told("--nodes", 1)
        self.assertEqual(exchange, "none, a single rank")
        for nodes, threads in ((2, 1), (3, 2)):
            size = ("--nodes", nodes, "--threads-per-node", threads)
            for choice, taken in (("shm", "shm"), ("zmq", "zmq"), ("auto", "shm")):
                other, exchange, stderr = self.told(*size, "--exchange", choice)
                self.assertEqual(other, text, (size, choice))
                self.assertEqual(exchange, taken, (size, choice))
                self.assertNotIn("share memory", stderr)

    def test_logits_are_equal_byte_for_byte(self):
        path = GOLDEN / "qwen3moe-q4_k.gguf"
        tokens = json.loads(path.with_suffix(".json").read_text())["reference"][2]["tokens"]
        answers = set()
        for options in [("--nodes", 1), ("--nodes", 2, "--exchange", "shm"), ("--nodes", 2, "--exchange", "zmq"),
                        ("--nodes", 3, "--exchange", "zmq", "--chunk", 7)]:
            with Run(BINARY, "logits", path, "--tokens", " ".join(map(str, tokens)), *options) as run:
                self.finished(run)
                answers.add(run.stdout())
        self.assertEqual(len(answers), 1)

    def test_a_killed_worker_is_one_sentence_and_leaves_nothing(self):
        for rank in (0, 1):
            with Run(BINARY, "run", MODEL, "-p", PROMPT, "-n", 19000, "--ctx", 20000, "--ignore-eos", "--nodes", 2,
                     "--threads-per-node", 1, "--exchange", "zmq", "--seed", 1) as run:
                run.wait_for_output(len(PROMPT) + 200)
                victim = next(pid for pid in run.workers() if f"--rank={rank}" in arguments(pid))
                run.kill(victim)
                self.assertNotEqual(run.finish(), 0)
                errors = [line for line in run.stderr().splitlines() if "error:" in line]
                self.assertEqual(len(errors), 1, run.stderr())
                self.assertRegex(errors[0], rf"worker {rank} \(process {victim}\) .*kill")
                wait_until(lambda: not run.alive(), "all processes end")  # noqa: B023
                self.assertEqual(run.leftovers(), [])

    def test_ctrl_c_ends_everything_without_a_word_of_the_workers(self):
        with Run(BINARY, "run", MODEL, "-p", PROMPT, "-n", 19000, "--ctx", 20000, "--ignore-eos", "--nodes", 3,
                 "--threads-per-node", 1, "--exchange", "zmq", "--seed", 1) as run:
            run.wait_for_output(len(PROMPT) + 200)
            run.interrupt_group()
            self.assertEqual(run.finish(), 130, run.stderr())
            wait_until(lambda: not run.alive(), "all processes end")
            self.assertEqual(run.leftovers(), [])
            self.assertNotIn("error", run.stderr())

    def test_an_unknown_exchange_is_refused(self):
        with Run(BINARY, "run", MODEL, "-p", PROMPT, "--exchange", "carrier-pigeon") as run:
            self.assertEqual(run.finish(), 2)
            self.assertIn("--exchange", run.stderr() + run.stdout())


def arguments(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
