#!/usr/bin/env python3
"""`numoe probe` from the outside: a report, JSON, --save, refusals, Ctrl-C. usage: probe_test.py NUMOE"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

NUMOE = sys.argv.pop(1)
TINY = ["--quick", "--mib", "4"]


def run(*arguments, state=None, **more):
    environment = dict(os.environ, **({"XDG_STATE_HOME": state} if state else {}))
    return subprocess.run([NUMOE, "probe", *arguments], capture_output=True, text=True, timeout=120,
                          env=environment, **more)


class Probe(unittest.TestCase):
    def test_json_is_one_object_and_saved_as_printed(self):
        with tempfile.TemporaryDirectory() as state:
            done = run("--json", "--save", *TINY, state=state + "/new")
            self.assertEqual(done.returncode, 0, done.stderr)
            profile = json.loads(done.stdout)
            self.assertEqual((profile["format"], profile["version"]), ("numoe-machine-profile", 2))
            path = f"{state}/new/numoe/probe-{profile['fingerprint']}.json"
            self.assertIn(path, done.stderr)
            with open(path) as saved:
                self.assertEqual(saved.read(), done.stdout)
            self.assertEqual(os.listdir(os.path.dirname(path)), [os.path.basename(path)])
            allowed = os.sched_getaffinity(0)
            for line in profile["lines"]:
                self.assertLessEqual({line["cpu_a"], line["cpu_b"]}, allowed)
            for figure in profile["bandwidth"]:
                self.assertGreater(figure["gb_per_s"]["min"], 0)
                self.assertGreaterEqual(figure["gb_per_s"]["samples"], 3)
            sizes = [one["gather_bytes"] for one in profile["exchanges"]]
            self.assertIn(256, sizes)
            self.assertIn(256 * 1024, sizes)

    def test_report_is_for_people(self):
        done = run(*TINY)
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("Machine", "Read bandwidth", "Latency", "cache line", "gather of 256 KiB", "Kernels (", "61 mem"):
            self.assertIn(words, done.stdout)
        self.assertIn("measuring", done.stderr)

    def test_ranks_and_threads_are_obeyed(self):
        done = run("--json", "--nodes", "3", "--threads-per-node", "1", *TINY)
        self.assertEqual(done.returncode, 0, done.stderr)
        last = json.loads(done.stdout)["exchanges"][-1]
        self.assertEqual((last["ranks"], last["threads"]), (3, 1))

    def test_a_directory_that_cannot_be_used_is_told_before_measuring(self):
        with tempfile.NamedTemporaryFile() as file:
            done = run("--save", *TINY, state=file.name)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stdout, "")
            self.assertIn(file.name, done.stderr)
            self.assertNotIn("measuring", done.stderr)

    def test_too_much_memory_is_refused(self):
        done = run("--mib", "1000000")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--mib", done.stderr)

    def test_signals_end_it(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with tempfile.TemporaryDirectory() as state:
                child = subprocess.Popen([NUMOE, "probe", "--save"], stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True,
                                         env=dict(os.environ, XDG_STATE_HOME=state))
                line = child.stderr.readline()  # it has begun to measure
                self.assertIn("measuring", line)
                child.send_signal(number)
                out, _ = child.communicate(timeout=30)
                self.assertEqual(child.returncode, 128 + number)
                self.assertEqual(out, "")
                self.assertEqual(os.listdir(state + "/numoe"), [])


if __name__ == "__main__":
    unittest.main()
