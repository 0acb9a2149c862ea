#!/usr/bin/env python3
"""`numoe plan` from the outside: shapes, headers, hosts, JSON, refusals. usage: plan_test.py NUMOE"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

NUMOE = sys.argv.pop(1)
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "models"
SOCKETS = "package:2 [numa(memory=412316860416)] core:32 pu:2"


def plan(*arguments):
    with tempfile.TemporaryDirectory() as state:  # no saved probe
        return subprocess.run([NUMOE, "plan", *map(str, arguments)], capture_output=True, text=True, timeout=120,
                              env=dict(os.environ, XDG_STATE_HOME=state))


class Plan(unittest.TestCase):
    def answer(self, *arguments):
        done = plan(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("\n"), 1)
        return json.loads(done.stdout)

    def test_a_shape_on_another_machine(self):
        done = plan("--shape", "qwen3-235b-a22b", "--type", "Q4_K", "--topology", SOCKETS, "--bandwidth", 250)
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("2 nodes, 31 + 32 threads", "2 x 250 GB/s (given)", "> rows over 2", "2 replicas of one node",
                      "what was assumed", "waits are assumed"):
            self.assertIn(words, done.stdout)

    def test_json_says_the_same(self):
        document = self.answer("--shape", "glm-4.5", "--type", "q4_k", "--topology", SOCKETS, "--bandwidth", "250,200")
        self.assertEqual((document["format"], document["version"]), ("numoe-plan", 1))
        self.assertEqual(document["machine"]["origins"]["read"], "given")
        best = document["candidates"][document["chosen"]]
        self.assertEqual(best["name"], "rows over 2")
        self.assertAlmostEqual(best["ranks"][0]["share"], 250 / 450, places=6)
        self.assertAlmostEqual(1 / best["one"]["decode"], sum(best["decode_seconds"].values()), places=9)
        self.assertTrue(best["fits"])

    def test_what_does_not_fit_is_said(self):
        document = self.answer("--shape", "kimi-k2", "--type", "q8_0", "--topology", SOCKETS)
        self.assertIsNone(document["chosen"])
        self.assertIn("no split fits", document["why"])
        self.assertFalse(any(one["fits"] for one in document["candidates"]))

    def test_a_topology_without_memory_says_nothing_of_room(self):
        done = plan("--shape", "kimi-k2", "--type", "q8_0", "--topology", "package:2 [numa] core:32 pu:2")
        self.assertIn("memory not known", done.stdout)
        self.assertNotIn("DOES NOT FIT", done.stdout)

    def test_the_beginning_of_a_file_is_enough(self):
        model = next(iter(sorted(GOLDEN.glob("*.gguf"))))
        with tempfile.TemporaryDirectory() as folder:
            beginning = Path(folder) / "beginning.gguf"
            whole = model.read_bytes()
            beginning.write_bytes(whole[:len(whole) * 9 // 10])
            refused = subprocess.run([NUMOE, "inspect", beginning], capture_output=True, text=True, timeout=60)
            self.assertIn("incomplete download", refused.stderr)
            some, all_of_it = (self.answer(path, "--topology", SOCKETS) for path in (beginning, model))
        self.assertEqual(some["candidates"], all_of_it["candidates"])

    def test_hosts(self):
        with tempfile.TemporaryDirectory() as folder:
            hosts = Path(folder) / "hosts"
            hosts.write_text(f"[host box]\ntopology = {SOCKETS}\nbandwidth = 250\nlink = 25\nround-trip = 20\ncount = 2\n")
            document = self.answer("--shape", "deepseek-r1-671b", "--type", "q8_0", "--hosts", hosts)
            self.assertEqual([node["host"] for node in document["machine"]["nodes"]],
                             ["box-1", "box-1", "box-2", "box-2"])
            self.assertIn("layers in 2 stages x rows over 2", [one["name"] for one in document["candidates"]])
            hosts.write_text("[host box]\nmemory = 3\n")
            self.assertIn("line 1: host box has no topology", plan("--shape", "kimi-k2", "--hosts", hosts).stderr)

    def test_counts_of_experts_are_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            counts = Path(folder) / "use.json"
            # OLMoE: 16 layers, 64 experts, 8 of them for a token.
            layer = {"choices": [40] * 8 + [0] * 56, "owners": None}
            counts.write_text(json.dumps({"object": "expert_use", "groups": [{"layers": [layer] * 16}]}))
            shape = ("--shape", "olmoe-1b-7b", "--type", "q8_0", "--topology", SOCKETS, "--parallel", 16)
            even, hot = self.answer(*shape), self.answer(*shape, "--expert-use", counts)
            speeds = [{one["name"]: one["all"]["decode"] for one in document["candidates"]} for document in (even, hot)]
            self.assertEqual(speeds[0].keys(), speeds[1].keys())
            for name, speed in speeds[0].items():
                self.assertGreater(speeds[1][name], speed, name)
            self.assertIn("chosen as often as was counted", plan(*shape, "--expert-use", counts).stdout)
            self.assertIn("are not of this model", plan("--shape", "kimi-k2", "--expert-use", counts).stderr)
            self.assertIn("use.json: ", plan(*shape, "--expert-use", Path(folder) / "missing-use.json").stderr)

    def test_this_machine(self):
        document = self.answer("--shape", "olmoe-1b-7b", "--nodes", 2)
        self.assertEqual(len(document["candidates"][0]["ranks"]), 2)
        self.assertEqual(document["machine"]["origins"]["memory"], "given")

    def test_refusals(self):
        for arguments, words in (((), "name either a model file or a shape"),
                                 (("no.gguf", "--shape", "kimi-k2"), "name either a model file or a shape"),
                                 (("no.gguf",), "no.gguf"),
                                 (("--shape", "kimi-k2", "--bandwidth", "fast"), "--bandwidth: 'fast' is not a number"),
                                 (("--shape", "kimi-k2", "--type", "q9"), "q9"),
                                 (("--shape", "kimi-k2", "--hosts", "/nowhere"), "--hosts: cannot read /nowhere"),
                                 (("--shape", "kimi-k2", "--profile", "/nowhere"), "--profile: cannot read /nowhere"),
                                 (("--shape", "kimi-k2", "--topology", SOCKETS, "--replicas", 9), "no such split")):
            done = plan(*arguments)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertIn(words, done.stderr, arguments)


if __name__ == "__main__":
    unittest.main(verbosity=2)
