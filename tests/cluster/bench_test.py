#!/usr/bin/env python3
"""`numoe bench` from the outside: formats, fields that agree with each other, refusals; bench/compare.py and models.py.

Usage: bench_test.py path/to/numoe
"""
import csv
import io
import json
import math
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(__import__("pathlib").Path(__file__).resolve().parent))
from processes import MODEL, ROOT  # noqa: E402

BINARY = None
SHORT = ["-p", "64", "-n", "8", "-r", "2"]


def bench(*arguments):
    return subprocess.run([BINARY, "bench", str(MODEL), *map(str, arguments)], capture_output=True, text=True,
                          timeout=300)


class Bench(unittest.TestCase):
    def rows(self, *arguments):
        done = bench("-o", "json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)
        for row in rows:
            tokens = (row["n_prompt"] + row["n_gen"]) * row["n_seq"]
            self.assertEqual(len(row["samples_ns"]), len(row["samples_ts"]))
            for ns, speed in zip(row["samples_ns"], row["samples_ts"]):
                self.assertTrue(math.isclose(speed * ns / 1e9, tokens, rel_tol=1e-6), row)
            mean = sum(row["samples_ts"]) / len(row["samples_ts"])
            self.assertTrue(math.isclose(row["avg_ts"], mean, rel_tol=1e-4), row)
            self.assertGreater(row["ceiling_gb_per_s"], 0)
            for rank in row["ranks"]:
                self.assertGreater(rank["steps"], 0)
                phases = sum(rank[f"{name}_ns"] for name in ("matmul", "attention", "exchange", "barrier"))
                self.assertLessEqual(phases, rank["step_ns"])
                self.assertGreater(rank["matmul_ns"], 0)
                self.assertGreater(rank["weight_bytes"], 0)
        return rows

    def test_two_nodes_and_all_kinds_of_tests(self):
        rows = self.rows(*SHORT, "--nodes", 2, "-t", 1, "-pg", "32,4", "-d", "0,128", "--chunk", 128, "-b", "1,3")
        self.assertEqual([row["test"] for row in rows],
                         ["pp64", "tg8", "tg8 x3", "pp32+tg4", "pp64 @ d128", "tg8 @ d128", "tg8 x3 @ d128",
                          "pp32+tg4 @ d128"])
        for row in rows:
            self.assertEqual((row["n_nodes"], row["n_threads"], len(row["ranks"])), (2, 2, 2))
            self.assertEqual(len(row["samples_ns"]), 2)
        generation = rows[1]
        expected = generation["active_bytes"] * generation["avg_ts"] / 1e9
        self.assertTrue(math.isclose(generation["gb_per_s"], expected, rel_tol=1e-3))
        self.assertTrue(math.isclose(generation["ceiling_share"],
                                     generation["gb_per_s"] / generation["ceiling_gb_per_s"], rel_tol=1e-2))
        # Three sequences choose more experts than one and fewer than three times as many.
        self.assertGreater(rows[2]["step_reads"], 1)
        self.assertLess(rows[2]["step_reads"], 3)
        self.assertEqual(rows[0]["gb_per_s"], 0)

    def test_other_formats_say_the_same(self):
        lines = bench(*SHORT, "-o", "jsonl").stdout.splitlines()
        self.assertEqual([json.loads(line)["test"] for line in lines], ["pp64", "tg8"])
        table = list(csv.DictReader(io.StringIO(bench(*SHORT, "-o", "csv").stdout)))
        self.assertEqual([row["test"] for row in table], ["pp64", "tg8"])
        self.assertGreater(float(table[0]["avg_ts"]), 0)
        done = bench(*SHORT, "-v")
        self.assertIn("± ", done.stdout)
        self.assertIn("rank 0: ", done.stderr)
        self.assertIn(" products, ", done.stderr)

    def test_refusals(self):
        for options, part in ((("-p", 0, "-n", 0), "nothing to measure"), (("-d", 100), "-d 100"),
                              (("-r", 0), "--repetitions"), (("-o", "sql"), "--output"),
                              (("--ctx", 100), "--ctx 100")):
            done = bench(*options)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(part, done.stderr)
            self.assertEqual(done.stdout, "")

    def compare(self, *arguments):
        # The program itself in the place of a peer: as fast as itself.
        peer = f"{sys.executable} {ROOT / 'tests' / 'cluster' / 'bench_peer.py'} {BINARY}"
        done = subprocess.run([sys.executable, str(ROOT / "bench" / "compare.py"), BINARY, str(MODEL), "--rounds", "1",
                               "--peer", f"itself={peer} --chunk 128", "--sweep-peer", f"swept={peer}", "--retries", "0",
                               "--threads", "2", *arguments], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_compare_prints_tables(self):
        text = self.compare("--prompt", "32", "--generated", "8", "--parts", "main,neighbour,batch",
                            "--neighbour-generated", "4", "--batch-generated", "4")
        for part in ("numoe 1x2 / itself", "numoe 2x1 / numoe 1x2", "busy process on CPU", "allowed by what"):
            self.assertIn(part, text)

    def test_compare_measures_depths_and_too_many_threads(self):
        text = self.compare("--parts", "depth,threads", "--depths", "128,256")
        for engine in ("numoe 1x2", "numoe 2x1", "itself", "swept"):
            for test in ("tg32", "pp128"):
                self.assertRegex(text, rf"\| {engine} \| {test} (\| [0-9.]+ \[[^|]*\] ){{2}}\| [0-9.]+ \|")
        self.assertIn("swept f16/f16, flash attention", text)
        self.assertRegex(text, r"\| numoe 1x2, numoe 1x[0-9]+ \| tg32 (\| [0-9.]+ \[[^|]*\] ){2}\| [0-9.]+ \|")
        self.assertRegex(text, r"\| itself \| pp128 \| [0-9.]+ ")

    def test_models_prints_tables_and_reasons(self):
        done = subprocess.run([sys.executable, str(ROOT / "bench" / "models.py"), BINARY, str(MODEL.parent), "--depths",
                               "64,1000", "--generated", "4", "--repetitions", "1", "--threads", "1"],
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\| qwen3moe \| 3 MB \| 64 \| [0-9.]+ ")
        self.assertRegex(done.stdout, r"\| pp64 \| [0-9.]+ \| – \|")
        self.assertIn("depth 1000: the model's context is 512", done.stdout)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
