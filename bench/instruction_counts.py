#!/usr/bin/env python3
"""bench/instruction_counts.py BUILD [FORMAT ...]: instructions of the products' inner loops, from the compiled code.

For each instruction set and format (without arguments Q4_K and Q8_0), for the tile of one column (decode) and the
widest one (prefill): instructions of the innermost loop that multiplies bytes, per product of a weight and an
activation, and how many of them are products, other vector work, loads and the rest. What a block does once before
and after that loop (scales, mins, sums) is not in it. Prints Markdown. Needs objdump; runs nothing, so it counts for
any CPU.
"""
import re
import subprocess
import sys
from pathlib import Path

ISAS = ["avx2", "avxvnni", "avx512vl", "avx512vnni"]
PRODUCT = re.compile(r"vpdpbusd|vpmaddubsw")


def disassemble(path):
    text = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", path], check=True, capture_output=True,
                          text=True).stdout
    return {m[1]: m[2] for m in re.finditer(r"^[0-9a-f]+ <(.*)>:\n((?:.+\n)*)", text, re.M)}


def instructions(body):
    """[(address, text)] without padding."""
    found = [(int(m[1], 16), m[2]) for m in re.finditer(r"^ *([0-9a-f]+):\t(.*)$", body, re.M)]
    return [(address, text) for address, text in found if not re.match(r"(cs |data16 )*nop", text)]


def inner_loops(code):
    """The innermost loops that multiply bytes, each as its instructions."""
    loops = []
    for address, text in code:
        jump = re.match(r"j\w+ +([0-9a-f]+) ", text)
        if jump and int(jump[1], 16) < address:
            loops.append((int(jump[1], 16), address))
    bodies = {}
    for first, last in loops:
        inner = [t for a, t in code if first <= a <= last]
        holds_another = any(first <= a and b <= last and (a, b) != (first, last) and any(
            PRODUCT.search(t) for at, t in code if a <= at <= b) for a, b in loops)
        if not holds_another and any(PRODUCT.search(t) for t in inner):
            bodies[first] = inner
    return list(bodies.values())


def row(isa, name, loop, columns):
    dots = [t for t in loop if PRODUCT.search(t)]
    products = sum(64 if "%zmm" in t else 32 for t in dots)
    vector = [t for t in loop if t.startswith(("v", "{vex}")) and t not in dots]
    loads = [t for t in vector if re.match(r"v(movdq|pbroadcast|broadcast|movap|movup)\w* +-?(0x)?[0-9a-f]*\(", t)]
    rest = len(loop) - len(dots) - len(vector)
    return (f"| {name} | {isa} | {columns} | {len(loop)} | {products} | {64 * len(loop) / products:.1f} | {len(dots)} | "
            f"{len(vector) - len(loads)} | {len(loads)} | {rest} |")


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        return 2
    objects = Path(sys.argv[1]) / "kernels/CMakeFiles/kernels.dir/isa"
    print("| format | ISA | columns | instructions of the loop | products | per 64 products | of them dots | other vector | "
          "vector loads | rest |\n|---|---|---|---|---|---|---|---|---|---|")
    missing = 0
    for name in sys.argv[2:] or ["Q4_K", "Q8_0"]:
        for isa in ISAS:
            functions = disassemble(objects / f"build_{isa}.cc.o")
            bodies = [body for title, body in functions.items()
                      if "multiply_panel<" in title and re.search(rf"::{name}>", title)]
            loops = sorted((loop for body in bodies for loop in inner_loops(instructions(body))),
                           key=lambda loop: sum(bool(PRODUCT.search(t)) for t in loop))
            if not loops:
                print(f"no loop of {name} in {isa}: is {sys.argv[1]} a release build?", file=sys.stderr)
                missing += 1
                continue
            dots = [sum(bool(PRODUCT.search(t)) for t in loop) for loop in (loops[0], loops[-1])]
            print(row(isa, name, loops[0], 1))
            print(row(isa, name, loops[-1], dots[1] // dots[0]))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
