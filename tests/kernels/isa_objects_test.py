#!/usr/bin/env python3
"""isa_objects_test.py NM OBJDUMP OBJECT...: reads the objects compiled for one instruction set as linker and CPU do.

1. Nothing may be taken from them that another object could define, too: such a function would be called on machines
   that cannot run it. So they define their table and templates over their own vocabulary, nothing else.
2. The functions of the table hold the instructions that the table is named after, and none of a wider set: a forced
   instruction set is the one that runs.
"""
import re
import subprocess
import sys
from typing import NamedTuple


class Isa(NamedTuple):
    table: str
    vocabulary: str  # part of the name of every template
    has: str         # in every product of int8
    never: str       # anywhere in the object


ISAS = {
    "avx2": Isa("kernels::isa::kAvx2Ops", "isa::Avx2", r"vpmaddubsw .*%ymm", r"vpdpbusd|%zmm|%ymm(1[6-9]|[23]\d)"),
    "avxvnni": Isa("kernels::isa::kAvxVnniOps", "isa::Vnni256<kernels::isa::Vex>", r"\{vex\} vpdpbusd .*%ymm",
                   r"%zmm|%ymm(1[6-9]|[23]\d)|%k[0-7]"),
    "avx512vl": Isa("kernels::isa::kAvx512VlOps", "isa::Vnni256<kernels::isa::Evex>", r"(?<!\} )vpdpbusd .*%ymm",
                    r"\{vex\}|vp\w+ .*%zmm"),
    "avx512vnni": Isa("kernels::isa::kAvx512VnniOps", "isa::Avx512Vnni", r"vpdpbusd .*\{1to16\},%zmm",
                      r"\{vex\}|vpdpbusd .*%ymm"),
}
INT8_FORMATS = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4", "IQ4_NL", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def foreign_symbols(isa, symbols):
    """Lines of nm -C for what others could take from the object, but must not."""
    found = []
    for line in symbols.splitlines():
        kind, _, name = line[17:].partition(" ")
        local = kind.islower() and kind not in "uvw"
        if kind == "U" or local or not name or name == isa.table:
            continue
        if kind in "WVu" and isa.vocabulary in name:
            continue
        found.append(line)
    return found


def functions(code):
    """Name -> instructions, of objdump -d -C."""
    return {m[1]: m[2] for m in re.finditer(r"^[0-9a-f]+ <(.*)>:\n((?:.+\n)*)", code, re.M)}


def problems(name, symbols, code):
    isa = ISAS[name]
    found = [f"{name}: not its own: {line}" for line in foreign_symbols(isa, symbols)]
    if isa.table not in symbols:
        found.append(f"{name}: no {isa.table}: the check looks at something else")
    for line in code.splitlines():
        if re.search(isa.never, line):
            found.append(f"{name}: cannot run where it is chosen: {line.strip()}")
            break
    for layout in INT8_FORMATS:
        bodies = [text for title, text in functions(code).items()
                  if isa.vocabulary in title and f"<kernels::{layout}>" in title and "multiply_panel" in title]
        if not bodies or not all(re.search(isa.has, text) for text in bodies):
            found.append(f"{name}: the product of {layout} does not use the instructions it is named after")
    return found


def main():
    nm, objdump, objects = sys.argv[1], sys.argv[2], sys.argv[3:]
    seen, texts, found = set(), {}, []
    for path in objects:
        match = re.search(r"/build_(\w+)\.cc\.o", path)
        if match and match[1] in ISAS:
            name = match[1]
            seen.add(name)
            texts[name] = run(nm, "-C", path), run(objdump, "-d", "-C", "--no-show-raw-insn", path)
            found += problems(name, *texts[name])
    for name in sorted(set(ISAS) - seen):
        found.append(f"{name}: no object of that name")
    # The checks find what they are for: each object, taken for another one, fails.
    for name in seen:
        for other in seen - {name}:
            if not problems(name, *texts[other]):
                found.append(f"the object of {other} passes as {name}: the checks see nothing")
    for line in found:
        print(line)
    print(f"{len(seen)} objects, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
