"""The files of a checkout as tidy sees them, and what a finding is."""
import os
import re
from dataclasses import dataclass
from pathlib import Path

CODE = (".h", ".cc")
TEXT = CODE + (".py", ".sh", ".md", ".txt", ".cmake", ".proto", ".json", ".yml")
SKIPPED_FOLDERS = {".git", "__pycache__"}


@dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    rule: str
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def strip_comments_and_strings(text):
    """C++ text with comments and the insides of literals blanked, line breaks and columns kept."""
    pattern = re.compile(
        r'R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"'  # raw string
        r'|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # not the separator of 1'000
        r"|//[^\n]*|/\*.*?\*/",
        re.DOTALL)

    def blank(match):
        whole = match.group(0)
        if whole.startswith('"') and _is_include(text, match.start()):
            return whole
        return re.sub(r"[^\n]", " ", whole)

    return pattern.sub(blank, text)


def _is_include(text, position):
    start = text.rfind("\n", 0, position) + 1
    return text[start:position].lstrip().startswith("#include")


class Tree:
    """Reads every text file once."""

    def __init__(self, root):
        self.root = Path(root)
        self.paths = sorted(self._walk())
        self.text = {p: (self.root / p).read_text(encoding="utf-8", errors="replace")
                     for p in self.paths if p.endswith(TEXT) or self._is_script(p)}
        self.lines = {p: t.split("\n") for p, t in self.text.items()}
        self.code = {p: strip_comments_and_strings(t) for p, t in self.text.items()
                     if p.endswith(CODE)}

    def _walk(self):
        for folder, names, files in os.walk(self.root):
            relative = Path(folder).relative_to(self.root)
            at_root = relative == Path(".")
            names[:] = [n for n in names if n not in SKIPPED_FOLDERS
                        and not (at_root and (n == "build" or n.startswith("build-")))]
            for file in files:
                yield (relative / file).as_posix()

    def _is_script(self, path):
        if Path(path).suffix or Path(path).name.startswith("."):
            return False
        with open(self.root / path, "rb") as file:
            return file.read(2) == b"#!"

    def folder(self, path):
        """First part of the path, "" for files at the root."""
        return path.split("/")[0] if "/" in path else ""

    def code_lines(self, path):
        """(number, line) of C++ without comments and literals."""
        return enumerate(self.code[path].split("\n"), 1)

    def excused(self, finding):
        lines = self.lines.get(finding.path, [])
        if not 1 <= finding.line <= len(lines):
            return False
        return re.search(rf"tidy: allow {finding.rule} because \S", lines[finding.line - 1]) is not None
