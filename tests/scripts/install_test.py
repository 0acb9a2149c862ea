#!/usr/bin/env python3
"""`cmake --install` and the Debian package: what they put where, and that it runs without the source tree.

Usage: install_test.py BUILD_FOLDER (with the program built)
"""
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = None
MODEL = "share/numoe/models/fairy-tales-moe-21m-Q4_K_M.gguf"
FILES = ["bin/numoe", MODEL, "share/doc/numoe/README.md", "share/doc/numoe/copyright", "share/doc/numoe/docs/operations.md",
         "share/doc/numoe/changelog.gz", "share/man/man1/numoe.1.gz", "lib/systemd/system/run-numoe.mount"]
COMPLETIONS = {"bash": "share/bash-completion/completions/numoe", "zsh": "share/zsh/site-functions/_numoe",
               "fish": "share/fish/vendor_completions.d/numoe.fish"}


def output(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)
    if result.returncode != 0:
        raise AssertionError(f"{command}: {result.stdout}{result.stderr}")
    return result.stdout


def skip(test, tool):
    # In the words that scripts/test looks for.
    print(f"[  SKIPPED ] scripts_install_test.{test} ({tool} is not installed)")
    raise unittest.SkipTest(f"{tool} is not installed")


class Installed:
    """What holds of a prefix, however the files came there. Subclasses set `prefix` in setUpClass."""
    prefix = None

    def test_everything_is_there(self):
        for name in FILES + list(COMPLETIONS.values()):
            self.assertTrue((self.prefix / name).is_file(), name)
        self.assertTrue(os.access(self.prefix / "bin/numoe", os.X_OK))
        for unit in list((ROOT / "deploy").glob("*.mount")) + list((ROOT / "deploy").glob("*.service")):
            self.assertEqual((self.prefix / "lib/systemd/system" / unit.name).read_bytes(), unit.read_bytes())

    def test_the_program_runs(self):
        numoe = self.prefix / "bin/numoe"
        self.assertRegex(output(numoe, "--version"), r"^numoe \d+\.\d+\.\d+\n$")
        ids = output(numoe, "tokenize", self.prefix / MODEL, "-p", "Once upon a time").split()
        self.assertGreater(len(ids), 2)
        self.assertEqual(output(numoe, "detokenize", self.prefix / MODEL, *ids), "Once upon a time\n")

    def test_completions_are_those_of_the_program(self):
        for shell, place in COMPLETIONS.items():
            text = (self.prefix / place).read_text(encoding="utf-8")
            self.assertEqual(text, output(self.prefix / "bin/numoe", "completion", shell))
            self.assertIn("--max-tokens".lstrip("-"), text)

    def test_the_manual_names_every_command_and_option(self):
        page = gzip.decompress((self.prefix / "share/man/man1/numoe.1.gz").read_bytes()).decode()
        for word in ("TOKENIZE", "SERVE", r"\-\-max\-tokens", r"\-\-arena\-dir", "EXIT STATUS"):
            self.assertIn(word, page)

    def test_a_chat_opens_nothing_of_the_source_tree(self):
        """Template helper, workers and all: every path that a system call names."""
        if shutil.which("strace") is None:
            skip(type(self).__name__, "strace")
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "calls"
            text = output("strace", "-f", "-qq", "-s", "4096", "-e", "trace=%file", "-o", log, self.prefix / "bin/numoe",
                          "run", self.prefix / MODEL, "-n", "5", "--temp", "0", "--nodes", "2", "--threads-per-node", "1",
                          input="Tell me a story.\n", cwd=folder)
            calls = log.read_text(encoding="utf-8", errors="replace")
        self.assertTrue(text.strip())
        self.assertIn("python3", calls)  # the template was rendered
        self.assertIn(f"{self.prefix}/bin/numoe", calls)
        inside = [line for line in calls.splitlines() if str(ROOT) in line and str(self.prefix) not in line]
        self.assertEqual(inside, [])


class ByCMake(Installed, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.prefix = Path(folder.name) / "prefix"
        output("cmake", "--install", BUILD, "--prefix", cls.prefix)


class ByPackage(Installed, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for tool in ("dpkg-deb", "dpkg-shlibdeps", "file"):
            if shutil.which(tool) is None:
                skip(cls.__name__, tool)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        output("cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", folder.name, cwd=folder.name)
        (cls.package,) = Path(folder.name).glob("*.deb")
        output("dpkg-deb", "-x", cls.package, Path(folder.name) / "root")
        cls.prefix = Path(folder.name) / "root/usr"

    def field(self, name):
        return output("dpkg-deb", "-f", self.package, name).strip()

    def test_the_package_says_what_it_is_and_needs(self):
        self.assertEqual(self.field("Package"), "numoe")
        self.assertIn(self.field("Version"), output(self.prefix / "bin/numoe", "--version"))
        self.assertRegex(self.field("Maintainer"), r"^.+ <\S+@\S+>$")
        self.assertEqual(self.field("Section"), "science")
        depends = self.field("Depends")
        for wanted in (r"\bpython3-jinja2\b", r"\blibc6 \(>=", r"\blibzmq5 \(>=", r"\blibhwloc15 \(>=", r"\blibstdc\+\+6"):
            self.assertRegex(depends, wanted)
        self.assertNotIn("-dev", depends)
        self.assertGreater(len(self.field("Description").splitlines()), 2)

    def test_it_brings_no_configuration_and_no_scripts(self):
        control = subprocess.run(["dpkg-deb", "--ctrl-tarfile", self.package], check=True, capture_output=True).stdout
        names = subprocess.run(["tar", "t"], input=control, check=True, capture_output=True).stdout.decode().split()
        self.assertEqual({Path(name).name for name in names} - {""}, {"control", "md5sums"})

    def test_files_belong_to_root_and_lie_below_usr(self):
        for line in output("dpkg-deb", "-c", self.package).splitlines():
            self.assertRegex(line, r"^[d-]rw[x-]r-[x-]r-[x-] root/root .* \./usr/")

    def test_the_program_is_stripped(self):
        sections = output("readelf", "-SW", self.prefix / "bin/numoe")
        self.assertIsNone(re.search(r"\.debug_|\.symtab", sections))

    def test_lintian_finds_no_error(self):
        if shutil.which("lintian") is None:
            skip("Lintian", "lintian")
        result = subprocess.run(["lintian", "--allow-root", self.package], capture_output=True, text=True, timeout=300)
        self.assertEqual([line for line in result.stdout.splitlines() if line.startswith("E:")], [], result.stdout)


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
