#!/usr/bin/env python3
"""How often experts are chosen: counted by a server, shown, and taken to balance whole experts.

Usage: experts_test.py path/to/numoe
"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from processes import MODEL, ROOT, SECONDS_MAX, Run, wait_until  # noqa: E402
from serving import Service  # noqa: E402

BINARY = None
PROMPT = "Once upon a time there was a poor miller who had"
LAYERS, EXPERTS, USED = 6, 16, 2  # of the demo model
EXPERTS_2 = ("--strategy", "experts", "--nodes", 2)


class ExpertUse(unittest.TestCase):
    def counted(self, service, positions):
        """The counts, once they are of so many positions."""
        def all_told():
            groups = service.get("/experts")[1]["groups"]
            layers = groups[0]["layers"] if groups else []
            return len(layers) == LAYERS and all(sum(own["choices"]) >= positions * USED for own in layers)
        wait_until(all_told, "the counts are of the last step")
        return service.get("/experts")[1]

    def run_numoe(self, *arguments, code=0):
        with Run(BINARY, *arguments) as run:
            self.assertEqual(run.finish(), code, run.stderr())
            return run.stdout(), run.stderr()

    def story(self, *options, code=0):
        return self.run_numoe("run", MODEL, "-p", PROMPT, "-n", 30, "--seed", 5, *options, code=code)

    def status(self, service, *options):
        return subprocess.run([BINARY, "status", "--url", service.url, *options], text=True, check=True,
                              timeout=SECONDS_MAX, capture_output=True).stdout

    def test_counts_are_shown_and_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            counts = Path(folder) / "use.json"
            with Service(BINARY, *EXPERTS_2) as service:
                service.wait_ready()
                reply = service.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 20, "ignore_eos": True})
                usage = reply[1]["usage"]
                # The last token is not computed again.
                positions = usage["prompt_tokens"] + usage["completion_tokens"] - 1
                use = self.counted(service, positions)
                for layer in use["groups"][0]["layers"]:
                    self.assertEqual(len(layer["choices"]), EXPERTS)
                    self.assertEqual(sum(layer["choices"]), positions * USED)
                    self.assertEqual(sorted(layer["owners"]), [0] * (EXPERTS // 2) + [1] * (EXPERTS // 2))
                counts.write_text(self.status(service, "--experts", "--json"))
                self.assertEqual(json.loads(counts.read_text()), use)
                table = self.status(service, "--experts")
                self.assertIn("most used", table)
                self.assertIn(f"{max(use['groups'][0]['layers'][0]['choices'])}"[:1], table)
            text, _ = self.story("--nodes", 1)
            for options in (EXPERTS_2, (*EXPERTS_2, "--exchange", "zmq"), ("--strategy", "experts", "--nodes", 3)):
                other, stats = self.story(*options, "--expert-use", counts, "--stats")
                self.assertEqual(other, text, options)
                self.assertRegex(stats, r"(?m)^experts: +most used is \d+ of layer \d")
                self.assertIn("experts are dealt out by their counted use", stats)
                self.assertRegex(stats, r"rank 1: .*whole experts of layer 0: \d")
            other, stats = self.story("--nodes", 2, "--expert-use", counts, "--stats")  # the planner may choose
            self.assertEqual(other, text)
            self.assertIn("the counts of --expert-use are in this prediction; no rank has whole experts", stats)

    def test_rows_are_counted_alike(self):
        def choices(*options):
            with Service(BINARY, *options) as service:
                service.wait_ready()
                usage = service.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 12, "seed": 3,
                                                         "ignore_eos": True})[1]["usage"]
                use = self.counted(service, usage["prompt_tokens"] + usage["completion_tokens"] - 1)
                return [layer["choices"] for layer in use["groups"][0]["layers"]]
        want = choices("--nodes", 1)
        self.assertEqual(choices(*EXPERTS_2), want)
        self.assertEqual(choices("--strategy", "layers", "--nodes", 2), want)

    def test_bad_files_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "use.json"
            layer = {"layer": 0, "choices": [1] * EXPERTS, "owners": None}
            for content, sentence in (
                    ("{", "use.json"),
                    ("[]", "this is not what numoe status --experts --json prints"),
                    (json.dumps({"object": "expert_use", "groups": []}), "it has no group"),
                    (json.dumps({"object": "expert_use", "groups": [{"layers": [layer] * 5}]}),
                     "are not of this model"),
                    (json.dumps({"object": "expert_use", "groups": [{"layers": [{**layer, "choices": [-1]}]}]}),
                     "choices holds -1")):
                path.write_text(content)
                _, stderr = self.story(*EXPERTS_2, "--expert-use", path, code=1)
                self.assertIn(sentence, stderr)
            path.write_text(json.dumps({"object": "expert_use", "groups": [{"layers": [layer] * LAYERS}]}))
            _, stderr = self.story("--strategy", "rows", "--nodes", 2, "--expert-use", path, code=1)
            self.assertIn("only --strategy experts gives whole experts to ranks", stderr)
            _, stderr = self.story(*EXPERTS_2, "--expert-use", Path(folder) / "missing.json", code=1)
            self.assertIn("missing.json", stderr)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
