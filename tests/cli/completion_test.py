#!/usr/bin/env python3
"""Completion in real shells: what `numoe completion SHELL` prints offers what `numoe --help` knows.

Usage: completion_test.py path/to/numoe
"""
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
BINARY = None
BASH = r"""
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_numoe
printf '%s\n' "${COMPREPLY[@]}"
"""
FISH = "source $argv[1]; complete -C $argv[2]"


def output(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
    if result.returncode != 0:
        raise AssertionError(f"{command}: {result.stderr}")
    return result.stdout


def commands():
    """Names of the subcommands, from the help."""
    listed = output(BINARY, "--help").split("Subcommands:")[1]
    return re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE)


def long_options(command):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", "\n".join(
        line.split()[0] for line in output(BINARY, command, "--help").splitlines() if line.lstrip().startswith("-"))))


class Completion:
    """One shell; `offered` gives the words that it offers after the last of `words`."""
    SHELL = None

    @classmethod
    def setUpClass(cls):
        if shutil.which(cls.SHELL) is None:
            # In the words that scripts/test looks for.
            print(f"[  SKIPPED ] cli_completion_test.{cls.__name__} ({cls.SHELL} is not installed)")
            raise unittest.SkipTest(f"{cls.SHELL} is not installed")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.script = self.folder / "script"
        self.script.write_text(output(BINARY, "completion", self.SHELL), encoding="utf-8")
        files = self.folder / "files"
        files.mkdir()
        for name in ("a.gguf", "b.txt", "c d.gguf"):
            (files / name).touch()
        (files / "sub").mkdir()

    def files_offered(self, *words):
        """Files are told with or without their folder, escaped or not, depending on the shell."""
        words = list(words)
        words[-1] = f"{self.folder}/files/{words[-1]}"
        return {Path(word.replace("\\", "").rstrip("/")).name for word in self.offered(*words)}

    def test_subcommands_but_not_the_one_that_only_the_program_calls(self):
        known = commands()
        self.assertIn("run", known)
        self.assertLessEqual(set(known), self.offered(""))
        self.assertNotIn("worker", self.offered(""))
        self.assertEqual(self.offered("tok"), {"tokenize"})

    def test_every_option_of_every_subcommand(self):
        for command in commands():
            options = long_options(command)
            self.assertIn("--help", options)
            offered = {word.rstrip("=") for word in self.offered(command, "--")}
            self.assertEqual({word for word in offered if word.startswith("--")}, options, command)

    def test_choices_are_offered(self):
        self.assertEqual(self.offered("run", "m", "--kv-type", ""), {"f16", "f32", "q8_0"})
        self.assertEqual(self.offered("logits", "--exchange", "z"), {"zmq"})
        self.assertEqual(self.offered("completion", ""), {"bash", "zsh", "fish"})
        self.assertIn("olmoe-1b-7b", self.offered("synth", "--layers", "3", "olm"))

    def test_nothing_is_offered_for_numbers_and_text(self):
        for words in (("run", "m", "--nodes", ""), ("serve", "m", "--port", ""), ("tokenize", "m", "-p", "")):
            self.assertEqual(self.offered(*words), set(), words)

    def test_models_are_gguf_files_and_folders_first(self):
        offered = self.files_offered("inspect", "")
        self.assertLessEqual({"a.gguf", "c d.gguf", "sub"}, offered)
        self.assertEqual(self.files_offered("run", "a"), {"a.gguf"})
        self.assertEqual(self.files_offered("run", "b"), {"b.txt"})

    def test_other_files_and_folders(self):
        self.assertLessEqual({"a.gguf", "b.txt", "sub"}, self.files_offered("perplexity", "m", "--file", ""))
        self.assertLessEqual({"b.txt"}, self.files_offered("synth", "olmoe-1b-7b", ""))
        self.assertEqual(self.files_offered("run", "m", "--arena-dir", ""), {"sub"})


class Bash(Completion, unittest.TestCase):
    SHELL = "bash"

    def offered(self, *words):
        text = output("bash", "--norc", "-c", BASH, "bash", self.script, "numoe", *words)
        return {word for word in text.splitlines() if word}

    def test_a_value_behind_an_equals_sign(self):
        self.assertEqual(self.offered("run", "m", "--kv-type", "=", "f3"), {"f32"})
        self.assertEqual(self.offered("run", "m", "--kv-type", "="), {"f16", "f32", "q8_0"})
        self.assertIn("olmoe-1b-7b", self.offered("synth", "--layers", "=", "3", "olm"))


class Zsh(Completion, unittest.TestCase):
    SHELL = "zsh"

    def offered(self, *words):
        text = output("zsh", "-f", HERE / "completion_zsh.zsh", self.script, " ".join(("numoe",) + words))
        return set(text.splitlines())

    def test_nothing_is_offered_for_numbers_and_text(self):
        self.assertEqual(self.offered("run", "m", "--nodes", ""), set())


class Fish(Completion, unittest.TestCase):
    SHELL = "fish"

    def offered(self, *words):
        home = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin", "TERM": "dumb"}
        text = output("fish", "--no-config", "-c", FISH, self.script, " ".join(("numoe",) + words), env=home)
        return {line.split("\t")[0] for line in text.splitlines()}


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
