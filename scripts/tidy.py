#!/usr/bin/env python3
"""scripts/tidy.py [ROOT]: the part of docs/STYLE.md that a machine can check. Exit code 1 on any finding.

Prints one line per finding, `path:line: rule: what is wrong and what to do instead`. A line may be excused by a
comment on it, `tidy: allow RULE because …`. The rules are in tidy_text.py (words, lengths) and tidy_tree.py (who
includes whom, what is built, what is described); tests/scripts/tidy_test.py tries each on a tree that breaks it.
"""
import sys
from pathlib import Path

import tidy_text
import tidy_tree
from tidy_files import Tree


def check(root):
    """All findings of a tree, sorted by place."""
    tree = Tree(root)
    findings = []
    for rule in tidy_text.RULES + tidy_tree.RULES:
        findings += rule(tree)
    return sorted(f for f in findings if not tree.excused(f))


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 2
    root = Path(sys.argv[1]) if len(sys.argv) == 2 else Path(__file__).resolve().parent.parent
    findings = check(root)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
