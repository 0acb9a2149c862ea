#!/usr/bin/env python3
"""Bytes of weights that a decoded token reads, computed from another engine's log, beside what numoe says.

Usage: peer_active_bytes.py LOG [NUMOE MODEL]

LOG is what ik_llama.cpp or llama.cpp printed while it loaded MODEL with LLAMA_TRACE=1, which lists every tensor:
  LLAMA_TRACE=1 llama-cli -m MODEL -p Once -n 4 --no-warmup >LOG 2>&1
With NUMOE and MODEL, `numoe inspect --json MODEL` must give the same number, else the exit code is 1.
Counted: all dense tensors, of expert tensors the share that the engine says it uses, one row of the embedding.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

# Bytes and weights of a block, from ggml's published type table.
BLOCKS = {"f32": (4, 1), "f16": (2, 1), "bf16": (2, 1), "q4_0": (18, 32), "q4_1": (20, 32), "q5_0": (22, 32),
          "q5_1": (24, 32), "q8_0": (34, 32), "q2_K": (84, 256), "q3_K": (110, 256), "q4_K": (144, 256),
          "q5_K": (176, 256), "q6_K": (210, 256), "iq4_nl": (18, 32), "iq4_xs": (136, 256), "mxfp4": (17, 32),
          "iq1_s": (50, 256), "iq1_m": (56, 256), "iq2_xxs": (66, 256), "iq2_xs": (74, 256), "iq2_s": (82, 256),
          "iq3_xxs": (98, 256), "iq3_s": (110, 256)}
TENSOR = re.compile(r"- tensor\s+\d+, split\s+\d+:\s+(\S+)\s+(\S+)\s+\[([^\]]*)\]")


def number(log, name):
    found = re.search(rf"{name}\s*=\s*(\d+)", log)
    if not found:
        sys.exit(f"the log does not say {name}")
    return int(found.group(1))


def main(arguments):
    if len(arguments) not in (1, 3):
        sys.exit(__doc__.strip())
    log = Path(arguments[0]).read_text(encoding="utf-8", errors="replace")
    experts, used = number(log, "n_expert"), number(log, "n_expert_used")
    total = active = 0
    names = set()
    for name, kind, shape in TENSOR.findall(log):
        if name in names:  # some versions list twice
            continue
        names.add(name)
        lengths = [int(length) for length in shape.split(",")]
        block_bytes, block_weights = BLOCKS[kind]
        rows = lengths[1] * lengths[2] * lengths[3]
        size = lengths[0] // block_weights * block_bytes * rows
        total += size
        if "_exps." in name:
            size = size // experts * used
        elif name == "token_embd.weight":
            size //= rows
        active += size
    if not names:
        sys.exit("the log lists no tensors; was LLAMA_TRACE=1 set?")
    print(f"peer:  {len(names)} tensors, {total} bytes, {used} of {experts} experts: {active} bytes per token")
    if len(arguments) == 1:
        return 0
    report = json.loads(subprocess.run([arguments[1], "inspect", "--json", arguments[2]], check=True,
                                       capture_output=True).stdout)
    print(f"numoe: {len(report['tensors'])} tensors, {report['weight_bytes']} bytes: "
          f"{report['active_bytes_per_token']} bytes per token")
    return 0 if (total, active) == (report["weight_bytes"], report["active_bytes_per_token"]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
