#!/usr/bin/env python3
"""All strategies with real processes: the same words and numbers as one node, also when workers die.

Usage: strategies_test.py path/to/numoe
"""
import json
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from processes import MODEL, ROOT, SECONDS_MAX, Run, wait_until  # noqa: E402
from serving import Service  # noqa: E402
from streams import Streams  # noqa: E402

BINARY = None
PROMPT = "Once upon a time there was a poor miller who had"
GOLDEN = ROOT / "tests" / "golden" / "models"
LAYERS = ("--strategy", "layers", "--nodes", 2)
STAGES = ("--strategy", "layers", "--nodes", 4, "--stages", 2, "--threads-per-node", 1)
EXPERTS = ("--strategy", "experts", "--nodes", 2)
ZMQ = ("--exchange", "zmq")


class Strategies(unittest.TestCase):
    def output(self, *arguments):
        with Run(BINARY, *arguments) as run:
            self.assertEqual(run.finish(), 0, run.stderr())
            wait_until(lambda: not run.alive(), "the processes of a finished command end")
            self.assertEqual(run.leftovers(), [])
            return run.stdout()

    def test_stories_are_equal(self):
        def told(*options):
            return self.output("run", MODEL, "-p", PROMPT, "-n", 30, "--seed", 5, *options)

        text = told("--nodes", 1)
        for options in (LAYERS, (*LAYERS, *ZMQ), STAGES, (*STAGES, *ZMQ), EXPERTS, (*EXPERTS, *ZMQ)):
            self.assertEqual(told(*options), text, options)

    def test_fewer_threads_may_decode(self):
        story = ("run", MODEL, "-p", PROMPT, "-n", 30, "--seed", 5)
        text = self.output(*story, "--nodes", 1)
        for nodes in (1, 2):
            with Run(BINARY, *story, "--nodes", nodes, "--threads-per-node", 3, "--decode-threads", 1, "--stats") as run:
                self.assertEqual(run.finish(), 0, run.stderr())
                self.assertEqual(run.stdout(), text)
                self.assertEqual(run.stderr().count(", 1 threads in the last step"), nodes, run.stderr())
                self.assertIn("3 (1 decode)", run.stderr())

    def test_logits_are_equal_byte_for_byte(self):
        for name in ("llama4-f16", "deepseek2-v3-mla-f16"):
            path = GOLDEN / f"{name}.gguf"
            tokens = json.loads(path.with_suffix(".json").read_text())["reference"][2]["tokens"]
            answers = set()
            for options in (("--nodes", 1), LAYERS, (*STAGES, "--chunk", 7), (*LAYERS, *ZMQ), EXPERTS):
                answers.add(self.output("logits", path, "--tokens", " ".join(map(str, tokens)), *options))
            self.assertEqual(len(answers), 1, name)

    def test_killed_workers_of_both_stages_cost_nothing(self):
        requests = [{"prompt": PROMPT, "seed": seed, "temperature": 0.9, "ignore_eos": True, "max_tokens": 60}
                    for seed in range(4)]
        size = ("--ctx", 1024, "--parallel", 4)
        with Service(BINARY, "--nodes", 1, *size) as service:
            service.wait_ready()
            undisturbed = Streams(service, requests).texts(10 * SECONDS_MAX)
        with Service(BINARY, *LAYERS, *size) as service:
            service.wait_ready()
            streams = Streams(service, requests)
            seen = 3
            for rank in (1, 0):
                streams.wait_for(seen)
                wait_until(lambda: len(service.workers_by_rank()) == 2, "both workers run")
                workers = service.workers_by_rank()
                service.kill(workers[rank])
                wait_until(lambda: not set(workers) & set(service.alive()), "the old ones end")  # noqa: B023
                service.wait_ready()
                seen = max(len(events) for events in streams.events) + 2
            self.assertEqual(streams.texts(10 * SECONDS_MAX), undisturbed)
            self.assertNotIn("CHECK failed", service.stderr())

    def test_more_stages_than_layers_are_refused(self):
        with Run(BINARY, "logits", GOLDEN / "qwen3moe-q4_k.gguf", "--tokens", "1", "--strategy", "layers",
                 "--nodes", 3) as run:
            self.assertNotEqual(run.finish(), 0)
            self.assertIn("1 to 2 stages", run.stderr())


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
