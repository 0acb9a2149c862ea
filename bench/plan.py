#!/usr/bin/env python3
"""Does a plan come true? Predicted against measured speed of synthetic models on this machine, on one node and on two.

    probe, file A on 1 and 2 nodes, probe, file B on 1 and 2 nodes, probe, …

Every file is measured by `numoe bench` between two probes of the machine, and predicted by `numoe plan` from both; the
prediction is the mean. No constant of the planner comes from these files: all figures are those of the probes. Where
there is only one node, two are simulated. Leave the machine alone meanwhile: it takes some ten minutes.

Usage: plan.py path/to/numoe FOLDER [--repetitions N] [--quick]
FOLDER keeps the files (some 12 GB) for the next run.
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

# Shape, type, layers. Two shapes and two types, each with both.
FILES = (("olmoe-1b-7b", "q4_k", 8), ("olmoe-1b-7b", "q8_0", 6), ("qwen3-30b-a3b", "q4_k", 6), ("qwen3-30b-a3b", "q8_0", 4))
NODES = (1, 2)
PROMPT, GENERATED = 512, 64
BOUNDS = {"decode": 0.20, "prefill": 0.30}


def processor():
    names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return names[0] if names else platform.machine()


def run(*command):
    """What a command writes to standard output."""
    ended = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           check=False)
    if ended.returncode != 0:
        sys.exit(f"plan: {' '.join(map(str, command))}\n{ended.stderr}")
    return ended.stdout


class Machine:
    """Probes of this machine, kept as files for `numoe plan --profile`."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.count = 0

    def probe(self):
        path = self.arguments.folder / f"probe-{self.count}.json"
        self.count += 1
        began = time.monotonic()
        options = ["--quick"] if self.arguments.quick else []
        text = run(self.arguments.numoe, "probe", "--json", *options)
        path.write_text(text, encoding="utf-8")
        profile = json.loads(text)
        own = [one["gb_per_s"]["median"] for one in profile["bandwidth"] if one["traffic"] == "read" and
               one["pages"] == "huge" and one["reader_node"] == one["memory_node"]]
        print(f"probe {path.name}: reads {max(own, default=0):.1f} GB/s, measuring threads had "
              f"{100 * profile['cpu_share']:.0f} % of their CPUs, {time.monotonic() - began:.0f} s", flush=True)
        return path


def synthetic(arguments, shape, weights, layers):
    path = arguments.folder / f"{shape}-{weights}-{layers}.gguf"
    if not path.exists():
        run(arguments.numoe, "synth", shape, path, "--type", weights, "--layers", layers)
    return path


def predicted(arguments, path, nodes, profile):
    """Speeds as they are measured: generation right behind the prompt's beginning, a prompt from its beginning on."""
    def plan(depth):
        text = run(arguments.numoe, "plan", path, "--profile", profile, "--strategy", "rows", "--replicas", 1, "--nodes",
                   nodes, "--parallel", 1, "--depth", depth, "--json")
        document = json.loads(text)
        return document["candidates"][document["chosen"] or 0]["one"]
    return {"decode": plan(GENERATED // 2)["decode"], "prefill": plan(PROMPT)["prefill"]}


def measured(arguments, path, nodes):
    text = run(arguments.numoe, "bench", path, "--nodes", nodes, "--strategy", "rows", "-p", PROMPT, "-n", GENERATED, "-r",
               arguments.repetitions, "-o", "jsonl")
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    medians = {("prefill" if row["n_prompt"] else "decode"): statistics.median(row["samples_ts"]) for row in rows}
    spread = max(max(row["samples_ts"]) / min(row["samples_ts"]) for row in rows)
    return medians, spread


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("Usage: ")[2].strip())
    parser.add_argument("numoe")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="short probes, to try the program itself")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    files = [(shape, weights, synthetic(arguments, shape, weights, layers)) for shape, weights, layers in FILES]
    print(f"{processor()}, {os.cpu_count()} CPUs, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    machine = Machine(arguments)
    rows, before = [], machine.probe()
    for shape, weights, path in files:
        speeds = {nodes: measured(arguments, path, nodes) for nodes in NODES}
        after = machine.probe()
        for nodes, (medians, spread) in speeds.items():
            both = [predicted(arguments, path, nodes, profile) for profile in (before, after)]
            for what, bound in BOUNDS.items():
                prediction = statistics.mean(one[what] for one in both)
                rows.append((shape, weights, nodes, what, prediction, medians[what], prediction / medians[what] - 1, bound,
                             spread))
        before = after
    print("\n| model | weights | nodes | what | predicted | measured | off by | bound | samples differ by |")
    print("|---|---|---|---|---|---|---|---|---|")
    for shape, weights, nodes, what, prediction, speed, off, bound, spread in rows:
        mark = "" if abs(off) <= bound else " **outside**"
        print(f"| {shape} | {weights} | {nodes} | {what} | {prediction:.1f} | {speed:.1f} | {100 * off:+.0f} %{mark} "
              f"| {100 * bound:.0f} % | {100 * (spread - 1):.0f} % |")
    outside = sum(abs(row[6]) > row[7] for row in rows)
    print(f"\n{len(rows) - outside} of {len(rows)} predictions within their bounds")


if __name__ == "__main__":
    main()
