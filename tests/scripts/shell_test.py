#!/usr/bin/env python3
"""The shell scripts parse, explain themselves, refuse what they do not know, and run from any directory."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [ROOT / "scripts" / name for name in ("setup", "demo", "test", "format", "fuzz")]


def run(*command, **options):
    with tempfile.TemporaryDirectory() as elsewhere:
        return subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, timeout=60, **options)


class Shell(unittest.TestCase):
    def test_every_script_parses(self):
        for script in SCRIPTS + [ROOT / "scripts/common.sh", ROOT / ".ci/run"]:
            self.assertEqual(run("bash", "-n", script).stderr, "", script)

    def test_every_script_can_be_started(self):
        for script in SCRIPTS + [ROOT / ".ci/run"]:
            self.assertTrue(os.access(script, os.X_OK), script)

    def test_help_is_the_head_comment_and_nothing_else_happens(self):
        for script in SCRIPTS:
            result = run(script, "--help")
            self.assertEqual(result.returncode, 0, script)
            self.assertIn(f"scripts/{script.name}", result.stdout.splitlines()[0])
            self.assertEqual(result.stderr, "")

    def test_unknown_options_are_refused_by_name(self):
        for name in ("setup", "format", "fuzz"):
            result = run(ROOT / "scripts" / name, "--nosuch")
            self.assertEqual(result.returncode, 1)
            self.assertIn("--nosuch", result.stderr)

    def test_setup_names_what_is_missing_when_it_may_not_install(self):
        """With a dpkg-query that knows no package, no rights and no sudo, one sentence says what to run."""
        with tempfile.TemporaryDirectory() as tools:
            for name, text in (("dpkg-query", "exit 1"), ("id", "echo 1000")):
                tool = Path(tools) / name
                tool.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
                tool.chmod(0o755)
            for name in ("bash", "env", "dirname", "basename", "grep", "sed"):
                found = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
                (Path(tools) / name).symlink_to(found)
            result = run(ROOT / "scripts/setup", env={"PATH": tools})
        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get install cmake", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_what_was_skipped_is_told_with_its_reason(self):
        log = """[ RUN      ] Arena.Full
a_test.cc:9: Skipped
mounting a tmpfs needs root
[  SKIPPED ] Arena.Full (0 ms)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Arena.Full
[  SKIPPED ] completion.Fish (fish is not installed)
test_disk (__main__.Synth.test_disk) ... skipped 'every disk has room'
test_quick (__main__.Synth.test_quick) ... ok
SKIPPED: openai cannot be installed: no network
"""
        with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
            file.write(log)
            file.flush()
            told = run("awk", "-f", ROOT / "scripts/skipped.awk", file.name).stdout
        self.assertEqual(told, "Arena.Full: mounting a tmpfs needs root\n"
                               "completion.Fish: fish is not installed\n"
                               "test_disk: every disk has room\n"
                               "openai cannot be installed: no network\n")


if __name__ == "__main__":
    unittest.main()
