#!/usr/bin/env python3
"""The program from the outside: real processes, real shared memory, crashes, and what is left behind.

Usage: demo_test.py path/to/numoe
"""
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from processes import MODEL, Run, files, wait_until  # noqa: E402

BINARY = None
PROMPT = "Once upon a time there was a poor miller who had"
TOLD = len(PROMPT) + 1  # bytes of output when the first token has come: the prompt is repeated first
# From the model's card: what it says greedily, computed by another engine.
STORY_BEGINS = " three sons. The father was very angry, and said:"


def story(*options, tokens=40, **run_options):
    return Run(BINARY, "run", MODEL, "-p", PROMPT, "-n", tokens, "--threads-per-node", 1, *options, **run_options)


def long_story(*options):
    """More tokens than are made before a test is done with it."""
    return story("--nodes", 2, "--seed", 1, "--ignore-eos", "--ctx", 20000, *options, tokens=19000)


class Story(unittest.TestCase):
    def finished(self, run, code=0):
        self.assertEqual(run.finish(), code, run.stderr())
        wait_until(lambda: not run.alive(), "the processes of a finished command end")
        self.assertEqual(run.leftovers(), [])

    def test_the_model_tells_its_story_on_two_nodes(self):
        with story("--nodes", 2, "--temp", 0) as run:
            run.wait_for_output(TOLD)
            self.assertEqual(len(run.workers()), 2)
            self.finished(run)
            self.assertIn(STORY_BEGINS, run.stdout())
            self.assertGreater(len(run.stdout().split()), 20)
            self.assertNotIn("error", run.stderr())

    def test_the_same_story_for_any_nodes_threads_and_instruction_set(self):
        texts = {}
        for options in [("--nodes", 1), ("--nodes", 2), ("--nodes", 3, "--threads-per-node", 2),
                        ("--nodes", 2, "--isa", "scalar"), ("--nodes", 4)]:
            with Run(BINARY, "run", MODEL, "-p", PROMPT, "-n", 40, "--seed", 7, *options) as run:
                self.finished(run)
                texts[options] = run.stdout()
        self.assertEqual(len(set(texts.values())), 1, texts)

    def test_seeds_tell_other_stories_and_a_seed_tells_one(self):
        texts = []
        for seed in (1, 2, 1):
            with story("--nodes", 2, "--seed", seed) as run:
                self.finished(run)
                texts.append(run.stdout())
        self.assertEqual(texts[0], texts[2])
        self.assertNotEqual(texts[0], texts[1])

    def test_statistics_go_beside_the_story(self):
        with story("--nodes", 2, "--temp", 0, "--stats") as run:
            self.finished(run)
            self.assertIn(STORY_BEGINS, run.stdout())
            self.assertRegex(run.stderr(), r"waits")


class Interrupted(unittest.TestCase):
    def gone(self, run):
        wait_until(lambda: not run.alive(), "all processes end")
        wait_until(lambda: not run.leftovers(), f"nothing is left; now {run.leftovers()}")

    def test_ctrl_c_ends_everything(self):
        with long_story() as run:
            run.wait_for_output(TOLD)
            run.interrupt_group()
            code = run.finish()
            self.assertIn(code, (130, -signal.SIGINT), run.stderr())
            self.gone(run)

    def test_a_signal_to_the_command_alone_ends_everything(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number), long_story() as run:
                run.wait_for_output(TOLD)
                run.kill(run.process.pid, number)
                code = run.finish()
                self.assertIn(code, (128 + number, -number), run.stderr())
                self.gone(run)

    def test_ctrl_c_while_loading(self):
        with long_story() as run:
            wait_until(lambda: run.workers() or run.process.poll() is not None, "a worker starts")
            run.interrupt_group()
            self.assertIn(run.finish(), (130, -signal.SIGINT), run.stderr())
            self.gone(run)

    def test_a_reader_that_stops_ends_everything(self):
        with tempfile.TemporaryDirectory() as folder:
            with long_story() as run:
                run.wait_for_output(TOLD)
                run.kill(run.process.pid, signal.SIGTERM)
                run.finish()
                self.gone(run)
            # `numoe run … | head -c 20`, by a shell: the pipe breaks under the command.
            environment = dict(os.environ, XDG_RUNTIME_DIR=folder)
            arena = Path(folder) / "arena"
            arena.mkdir()
            result = subprocess.run(
                ["bash", "-c", 'set -o pipefail; "$@" | head -c 20 >/dev/null', "bash", BINARY, "run", MODEL, "-p",
                 PROMPT, "-n", "19000", "--ctx", "20000", "--nodes", "2", "--threads-per-node", "1", "--ignore-eos",
                 "--arena-dir", arena],
                env=environment, capture_output=True, timeout=60, check=False)
            self.assertNotEqual(result.returncode, 0)
            self.assertEqual([p for p in Path(folder).rglob("*") if not p.is_dir()], [])


class Killed(unittest.TestCase):
    def gone(self, run):
        wait_until(lambda: not run.alive(), "all processes end")
        wait_until(lambda: not run.leftovers(), f"nothing is left; now {run.leftovers()}")

    def assert_clear_error(self, run):
        self.assertGreater(run.finish(), 0, "an exit code, not a signal")
        errors = [line for line in run.stderr().splitlines() if "error" in line]
        self.assertTrue(errors, run.stderr())
        self.assertRegex(" ".join(errors), r"worker|rank")
        self.assertNotIn("CHECK failed", run.stderr())
        self.gone(run)

    def test_kill_9_of_a_worker_is_a_clear_error(self):
        for index in (0, 1):
            with self.subTest(index), long_story() as run:
                run.wait_for_output(TOLD)
                run.kill(run.workers()[index])
                self.assert_clear_error(run)

    def test_kill_9_of_a_worker_while_loading_is_a_clear_error(self):
        with long_story() as run:
            wait_until(lambda: run.workers() or run.process.poll() is not None, "a worker starts")
            run.kill(run.workers()[0])
            self.assert_clear_error(run)

    def test_a_worker_that_was_stopped_first_does_not_hang_the_others(self):
        with long_story() as run:
            run.wait_for_output(TOLD)
            victim = run.workers()[-1]
            run.kill(victim, signal.SIGSTOP)
            run.kill(victim)
            self.assert_clear_error(run)

    def assert_next_run_cleans_up(self, first):
        with story("--nodes", 2, "--temp", 0, arena=first.arena, sockets=first.sockets) as second:
            self.assertEqual(second.finish(), 0, second.stderr())
            self.assertIn(STORY_BEGINS, second.stdout())
            self.assertEqual(second.leftovers(), [])

    def test_kill_9_of_the_command_leaves_no_process_and_no_memory(self):
        """Its sockets nobody can remove; the next command does."""
        with long_story() as run:
            run.wait_for_output(TOLD)
            run.kill(run.process.pid)
            self.assertEqual(run.finish(), -signal.SIGKILL)
            wait_until(lambda: not run.alive(), "all processes end")
            self.assertEqual(files(run.arena), [])
            self.assert_next_run_cleans_up(run)

    def test_after_all_was_killed_at_once_the_next_run_cleans_up(self):
        with long_story() as run:
            wait_until(lambda: run.workers() or run.process.poll() is not None, "a worker starts")
            for pid in run.alive():
                run.kill(pid)
            run.finish()
            wait_until(lambda: not run.alive(), "all processes end")
            self.assert_next_run_cleans_up(run)


class Refused(unittest.TestCase):
    def refusal(self, *arguments, **options):
        """stderr of a command that must end with an error and leave nothing."""
        with Run(BINARY, *arguments, **options) as run:
            self.assertGreater(run.finish(), 0)
            self.assertNotIn("CHECK failed", run.stderr())
            self.assertEqual(run.stdout(), "")
            self.assertEqual(run.leftovers(), [])
            return run.stderr()

    def test_a_missing_model_is_named(self):
        self.assertIn("nosuch.gguf", self.refusal("run", "nosuch.gguf", "-p", "a"))

    def test_a_truncated_model_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "part.gguf"
            part.write_bytes(MODEL.read_bytes()[:1_000_000])
            self.assertIn("part.gguf", self.refusal("run", part, "-p", "a", "--nodes", 2))

    def test_a_bad_option_is_named(self):
        self.assertIn("--nosuch", self.refusal("run", MODEL, "-p", "a", "--nosuch"))
        self.assertIn("top_p", self.refusal("run", MODEL, "-p", "a", "--top-p", "1.5").replace("top-p", "top_p"))

    def test_an_arena_that_is_too_small_is_an_error_with_figures(self):
        if os.geteuid() != 0:
            self.skipTest("mounting a small tmpfs needs root")
        with tempfile.TemporaryDirectory() as folder:
            mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", folder],
                                     capture_output=True, check=False)
            if mounted.returncode != 0:
                self.skipTest("mounting a small tmpfs was refused")
            try:
                message = self.refusal("run", MODEL, "-p", "a", "--nodes", 2, arena=folder)
            finally:
                subprocess.run(["umount", folder], check=True)
            self.assertRegex(message, r"space|full|fit")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)  # tells why a test was skipped
