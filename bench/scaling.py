#!/usr/bin/env python3
"""What would the planner predict for machines on which others have published figures?

Prints the table of docs/scaling.md. Nothing is measured here: every speed of numoe is a prediction, from the bandwidth
that is stated and from kernels and waits that are assumed. The published figures are those of the engines named.

Usage: scaling.py path/to/numoe
"""
import argparse
import json
import subprocess
import sys
from dataclasses import dataclass, field

GRANITE_SNC = "package:2 group:3 [numa] core:43 pu:2"


@dataclass
class Row:
    """One machine and model, and what was published of it."""
    shape: str
    weights: str
    machine: str
    topology: str
    gb_per_s: float  # of a node
    published: str   # decode / prefill, tokens/s
    decode: float    # of these, to compare with
    engine: str
    isa: str = "avx512vnni"
    depth: int = 512
    options: list = field(default_factory=list)


ROWS = (
    Row("deepseek-r1-671b", "q8_0", "2x Xeon 6980P, SNC on", GRANITE_SNC, 188, "14.7 / 543", 14.7, "SGLang INT8", depth=1024),
    Row("deepseek-r1-671b", "q8_0", "1x Xeon 6980P", "package:1 [numa] core:128 pu:2", 555, "7.5 / 79", 7.5, "ik_llama.cpp Q8_0"),
    Row("deepseek-r1-671b", "q4_k", "1x Xeon 6980P", "package:1 [numa] core:128 pu:2", 555, "9.65 / 127", 9.65,
        "ik_llama.cpp Q4_K_R4"),
    Row("deepseek-r1-671b", "q4_k", "2x Xeon 6454S", "package:2 [numa] core:32 pu:2", 245, "13.7 / 286", 13.7,
        "KTransformers, with a GPU"),
    Row("deepseek-r1-671b", "q4_k", "2x EPYC 9135", "package:2 [numa] core:16 pu:2", 490, "17.3 / -", 17.3,
        "KTransformers, with a GPU"),
    Row("deepseek-r1-671b", "q4_k", "2x EPYC 9654", "package:2 [numa] core:96 pu:2", 369, "30 / -", 30,
        "fastllm INT4, with a GPU"),
    Row("kimi-k2", "q4_k", "2x EPYC 9355, NPS4", "package:2 group:4 [numa] core:8 pu:2", 115, "22 / 106", 22,
        "llama.cpp Q4_K_XL, with a GPU"),
    Row("qwen3-235b-a22b", "q8_0", "2x Xeon 6980P, SNC on", GRANITE_SNC, 188, "19.3 / 880", 19.3, "SGLang INT8", depth=1024),
    Row("qwen3-235b-a22b", "q8_0", "2x Xeon Gold 6138", "package:2 [numa] core:20 pu:2", 102, "2.4 / 7.6", 2.4,
        "ik_llama.cpp Q8_0", isa="avx512vl"),
    Row("qwen3-30b-a3b", "q8_0", "2x Xeon Gold 6138", "package:2 [numa] core:20 pu:2", 102, "12.9 / 60", 12.9,
        "ik_llama.cpp Q8_0", isa="avx512vl"),
    Row("gpt-oss-120b", "mxfp4", "1x EPYC 9B14, 44 cores", "package:1 [numa] core:44 pu:2", 369, "49.3 / 206", 49.3,
        "llama.cpp MXFP4"),
    Row("gpt-oss-120b", "mxfp4", "2x EPYC 9654", "package:2 [numa] core:96 pu:2", 369, "-", 0, "none found"),
)


def plan(numoe, row):
    command = [numoe, "plan", "--shape", row.shape, "--type", row.weights, "--topology", row.topology, "--bandwidth",
               row.gb_per_s, "--isa", row.isa, "--depth", row.depth, "--parallel", 1, "--json", *row.options]
    ended = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        sys.exit(f"scaling: {' '.join(map(str, command))}\n{ended.stderr}")
    document = json.loads(ended.stdout)
    return document["candidates"][document["chosen"]]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("Usage: ")[2].strip())
    parser.add_argument("numoe")
    arguments = parser.parse_args()
    print("| model | machine, GB/s a node | plan | predicted decode / prefill | time of a token | published | by | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for row in ROWS:
        best = plan(arguments.numoe, row)
        seconds = best["decode_seconds"]
        total = sum(seconds.values())
        parts = ", ".join(f"{name} {100 * part / total:.0f} %" for name, part in
                          sorted(seconds.items(), key=lambda one: -one[1]) if part / total >= 0.02)
        ratio = f"{best['one']['decode'] / row.decode:.1f}" if row.decode else "-"
        print(f"| {row.shape} {row.weights.upper()} | {row.machine}, {row.gb_per_s:g} | {best['name']} "
              f"| **{best['one']['decode']:.1f}** / {best['one']['prefill']:.0f} | {parts} | {row.published} | {row.engine} "
              f"| {ratio} |")


if __name__ == "__main__":
    main()
