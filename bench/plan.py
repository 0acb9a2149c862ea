#!/usr/bin/env python3
"""Does a plan come true? Predicted against measured speed of synthetic models on this machine, on one node and on two.

    probe, file A on 1 and 2 nodes, probe, file B on 1 and 2 nodes, probe, …

Every file is measured by `numoe bench` between two probes of the machine, a few times, and each time predicted by `numoe
plan` from both probes; the prediction is the mean. What memory gives can halve within a minute on a rented machine, so the
bandwidth is that of the read loop that `numoe bench` runs right before and right after each sample; kernels and waits are
those of the probes. No constant of the planner comes from these files. Where there is only one node, two are simulated.
Leave the machine alone meanwhile: it takes some ten minutes.

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
from dataclasses import dataclass
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


@dataclass
class Sample:
    speed: float  # tokens a second
    reads: float  # GB/s of a read loop on all nodes, right before and right after


def predicted(arguments, path, nodes, profile, what, reads):
    """As it is measured: generation right behind the prompt's beginning, a prompt from its beginning on."""
    text = run(arguments.numoe, "plan", path, "--profile", profile, "--strategy", "rows", "--replicas", 1, "--nodes", nodes,
               "--parallel", 1, "--depth", GENERATED // 2 if what == "decode" else PROMPT, "--bandwidth",
               f"{reads / nodes:.3f}", "--json")
    document = json.loads(text)
    return document["candidates"][document["chosen"] or 0]["one"][what]


def measured(arguments, path, nodes):
    """{"decode" or "prefill": samples}; each by a process of its own, which reads right before and after."""
    samples = {what: [] for what in BOUNDS}
    for _ in range(arguments.repetitions):
        text = run(arguments.numoe, "bench", path, "--nodes", nodes, "--strategy", "rows", "-p", PROMPT, "-n", GENERATED,
                   "-r", 1, "-o", "jsonl")
        for row in (json.loads(line) for line in text.splitlines() if line.startswith("{")):
            samples["prefill" if row["n_prompt"] else "decode"].append(Sample(row["avg_ts"], row["ceiling_gb_per_s"]))
    return samples


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
        for nodes, samples in speeds.items():
            for what, bound in BOUNDS.items():
                pairs = [(statistics.mean(predicted(arguments, path, nodes, profile, what, sample.reads)
                                          for profile in (before, after)), sample) for sample in samples[what]]
                rows.append((shape, weights, nodes, what, pairs, bound,
                             statistics.median(prediction / sample.speed for prediction, sample in pairs) - 1))
        before = after
    print("\n| model | weights | nodes | what | reads GB/s | predicted | measured | off by, median | bound |")
    print("|---|---|---|---|---|---|---|---|---|")
    for shape, weights, nodes, what, pairs, bound, off in rows:
        reads = [sample.reads for _, sample in pairs]
        mark = "" if abs(off) <= bound else " **outside**"
        print(f"| {shape} | {weights} | {nodes} | {what} | {min(reads):.0f}-{max(reads):.0f} "
              f"| {statistics.median(prediction for prediction, _ in pairs):.1f} "
              f"| {statistics.median(sample.speed for _, sample in pairs):.1f} | {100 * off:+.0f} %{mark} | {100 * bound:.0f} % |")
    outside = sum(abs(off) > bound for *_, bound, off in rows)
    print(f"\n{len(rows) - outside} of {len(rows)} predictions within their bounds")


if __name__ == "__main__":
    main()
