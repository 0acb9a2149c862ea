#!/usr/bin/env python3
"""man_page.py NUMOE: prints the manual page, made of what the program says with --help."""
import re
import subprocess
import sys

HEAD = r""".TH NUMOE 1 "" "{version}" "User Commands"
.SH NAME
numoe \- large mixture-of-experts language models on CPUs
.SH SYNOPSIS
.B numoe
.I COMMAND
.RI [ ARGUMENT ]...
.SH DESCRIPTION
Runs and serves GGUF models with one worker process for each NUMA node. The weights lie in shared memory, once.
"""
FOOT = r""".SH EXIT STATUS
0 success, 2 a wrong command line, 128 + n after signal n, 1 any other error.
.SH FILES
.I /run/numoe
\- a tmpfs with huge pages for the weights; a mount unit for systemd comes with the program.
.br
.I /usr/share/doc/numoe
\- the documentation.
"""


def said(numoe, *arguments):
    return subprocess.run([numoe, *arguments], check=True, capture_output=True, text=True).stdout


def roff(text):
    """Text in which nothing is a command."""
    return re.sub(r"(?m)^([.'])", r"\\&\1", text.replace("\\", r"\e").replace("-", r"\-"))


def entries(text):
    """(names, description) of each line that names an option or argument; what is indented deeper goes on."""
    found = []
    for line in text.splitlines():
        if re.match(r"  \S", line) or line.startswith("--"):
            names, _, description = line.strip().partition("  ")
            found.append([names, description.strip()])
        elif line.startswith("   ") and found:
            found[-1][1] += " " + line.strip()
    return found


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    numoe = sys.argv[1]
    page = HEAD.format(version=said(numoe, "--version").strip())
    for name, description in entries(said(numoe, "--help").split("Subcommands:")[1]):
        page += f".SH {name.upper()}\n.B numoe {name}\n\\- {roff(description.strip())}\n"
        for names, text in entries(said(numoe, name, "--help")):
            page += f".TP\n.B {roff(names)}\n{roff(text) or chr(92) + '&'}\n"
    print(page + FOOT, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
