#!/usr/bin/env python3
"""numoe synth from the outside: what it refuses, what Ctrl-C leaves, and that its files run.

Usage: synth_test.py path/to/numoe path/to/tiny_synth
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
from processes import MODEL, Run, wait_until  # noqa: E402

BINARY = TINY_SYNTH = None


class Synth(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="numoe-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "model.gguf"

    def synth(self, *arguments, preset="olmoe-1b-7b", path=None):
        return subprocess.run([BINARY, "synth", preset, str(path or self.path), *map(str, arguments)],
                              capture_output=True, text=True, timeout=300)

    def names(self):
        return sorted(os.listdir(self.folder))


class Refused(Synth):
    def refused(self, run, *words, code=1):
        self.assertEqual(run.returncode, code, run.stderr)
        self.assertEqual(len(run.stderr.strip().split("\n")), 1, run.stderr)
        for word in words:
            self.assertIn(word, run.stderr)

    def test_other_shapes_architectures_types_and_layers(self):
        self.refused(self.synth(preset="olmoe-9b"), "olmoe-1b-7b", "qwen3-30b-a3b", code=2)
        self.refused(self.synth("--arch", "qwen3moe"), "'qwen3moe'", "olmoe, llama")
        self.refused(self.synth("--type", "q4_k_m"), "'q4_k_m'", "q4_k", "q8_0", "mxfp4")
        self.refused(self.synth("--layers", 17), "16 layers", "17")
        self.assertEqual(self.names(), [])

    def test_an_existing_file_without_force(self):
        self.path.write_text("precious")
        self.refused(self.synth("--layers", 1), "model.gguf exists", "--force")
        self.assertEqual(self.path.read_text(), "precious")
        self.assertEqual(self.names(), ["model.gguf"])

    def test_files_without_a_vocabulary(self):
        self.refused(self.synth("--vocab", self.folder / "none.gguf"), "none.gguf")
        (self.folder / "text.gguf").write_text("no model")
        self.refused(self.synth("--vocab", self.folder / "text.gguf"), "text.gguf")

    def test_a_disk_that_is_too_small(self):
        need = 120_000_000_000
        folders = [f for f in (self.folder, Path("/dev/shm")) if f.is_dir() and shutil.disk_usage(f).free < need]
        if not folders:
            self.skipTest("every disk here has room for 120 GB")
        path = folders[0] / f"numoe-test-{os.getpid()}.gguf"
        before = os.listdir(folders[0])
        self.refused(self.synth("--type", "f32", preset="qwen3-30b-a3b", path=path), str(path), "bytes", "free")
        self.assertEqual([n for n in os.listdir(folders[0]) if n not in before and path.name in n], [])


class Interrupted(Synth):
    def test_signals_leave_nothing(self):
        if shutil.disk_usage(self.folder).free < 5_000_000_000:
            self.skipTest("writing 4 GB needs 5 GB of room")
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(number), Run(BINARY, "synth", "olmoe-1b-7b", self.path) as run:
                wait_until(lambda: self.names(), "the file is begun")
                self.assertNotIn("model.gguf", self.names())
                run.process.send_signal(number)
                self.assertEqual(run.finish(), code, run.stderr())
                self.assertNotIn("error", run.stderr())
                self.assertEqual(self.names(), [])


class Written(Synth):
    def story(self, path, *options):
        with Run(BINARY, "run", path, "-p", "Once upon a time", "-n", 8, "--temp", 0, "--ignore-eos", *options) as run:
            self.assertEqual(run.finish(), 0, run.stderr())
            self.assertEqual(run.leftovers(), [])
            return run.stdout()

    def test_a_preset_is_written_named_and_run(self):
        self.path.write_text("in the way")
        run = self.synth("--layers", 1, "--type", "q2_k", "--force")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("MB/s", run.stderr)
        self.assertEqual(self.names(), ["model.gguf"])
        report = json.loads(subprocess.run([BINARY, "inspect", "--json", self.path], check=True,
                                           capture_output=True).stdout)
        self.assertEqual(report["architecture"], "olmoe")
        self.assertIn("OLMoE-1B-7B", report["name"])
        self.assertEqual(report["vocabulary"], 50304)
        self.assertEqual({"F32", "Q2_K", "Q6_K"}, set(report["formats"]))
        self.assertIn(f"{report['active_bytes_per_token']} bytes read per decoded token", run.stderr)
        self.assertGreater(len(self.story(self.path, "--nodes", 2)), len("Once upon a time") + 1)

    def test_tiny_ones_run_the_same_on_any_nodes(self):
        for architecture in ("olmoe", "llama", "qwen3moe"):
            for kind in ("q4_k", "q8_0", "mxfp4"):
                with self.subTest(architecture=architecture, type=kind):
                    path = self.folder / f"{architecture}-{kind}.gguf"
                    subprocess.run([TINY_SYNTH, architecture, kind, MODEL, path], check=True)
                    stories = {self.story(path, "--nodes", nodes) for nodes in (1, 2)}
                    self.assertEqual(len(stories), 1, stories)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    BINARY, TINY_SYNTH = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main(verbosity=2)  # tells why a test was skipped
