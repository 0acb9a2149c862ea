#!/usr/bin/env python3
"""How near to the memory's ceiling does each architecture decode, and what do long contexts cost?

Runs `numoe bench` on every GGUF file of a folder, one process per file and depth, and prints tables for
docs/performance.md: what a token reads of the file, tokens a second, GB/s, and their share of a plain read loop on the
same CPUs right before and right after each test.

Usage: models.py path/to/numoe FOLDER|FILE… [--depths 128,8192,32768] [--generated N] [--repetitions N] [--threads T]
                 [--pause SECONDS] [--numoe-options '…'] [--json FILE]

A prompt as long as the first depth is measured up to it and behind the others. A depth that a file's context or this machine's memory
does not allow is left out, with numoe's reason. Only the first part of a split file counts.
"""
import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from compare import machine_text, percent, ratio_text, table  # noqa: E402
from compare_engines import parse_rows  # noqa: E402

TIME_LIMIT = 3600  # seconds of one run


def note(text):
    print(text, file=sys.stderr, flush=True)


def files_of(places):
    """GGUF files in the order they were given, those of folders by name."""
    found = []
    for place in map(Path, places):
        found += sorted(place.glob("*.gguf")) if place.is_dir() else [place]
    later_part = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
    return [file for file in found if not later_part.search(file.name)]


class Model:
    """What a file is, as numoe reads it."""

    def __init__(self, numoe, path):
        done = subprocess.run([numoe, "inspect", path, "--json"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"models: {done.stderr.strip()}")
        told = json.loads(done.stdout)
        self.path, self.name = path, path.name.removesuffix(".gguf")
        self.architecture, self.active_bytes = told["architecture"], told["active_bytes_per_token"]
        self.weight_bytes = told["weight_bytes"]
        self.context = told["metadata"].get(f"{self.architecture}.context_length", 0)
        self.rows, self.reasons = {}, []  # by (what, depth); of depths left out


def measure(arguments, model, depth):
    """Adds the rows of a depth, or the reason why there are none."""
    first = arguments.depths[0]
    if model.context and depth + arguments.generated > model.context:
        model.reasons.append(f"depth {depth}: the model's context is {model.context}")
        return
    at_depth = (0 if depth == first else first, arguments.generated, depth)
    tests = [at_depth, (first, 0, 0)] if depth == first else [at_depth]
    for prompt, generated, behind in tests:
        command = [arguments.numoe, "bench", model.path, "-t", arguments.threads, "-r", arguments.repetitions,
                   "-p", prompt, "-n", generated, "-d", behind, "-o", "json", *arguments.options]
        command = [str(part) for part in command]
        note(f"models: {shlex.join(command)}")
        begin = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            model.reasons.append(f"depth {depth}: not done after {TIME_LIMIT} s")
            return
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
            model.reasons.append(f"depth {depth}: {lines[-1]}")
            return
        for row in parse_rows(done.stdout, command):
            model.rows["pp" if row["n_gen"] == 0 else "tg", depth] = row
        note(f"models: {time.monotonic() - begin:.0f} s")
        time.sleep(arguments.pause)


def spread_text(row):
    """Mean and range of the samples."""
    samples = row["samples_ts"]
    return f"{row['avg_ts']:.1f} [{min(samples):.1f}–{max(samples):.1f}]"


def decode_table(arguments, models):
    rows = []
    for model in models:
        for depth in arguments.depths:
            row = model.rows.get(("tg", depth))
            if row is None:
                continue
            rows.append([model.name, model.architecture, f"{model.active_bytes / 1e6:.0f} MB", str(depth), spread_text(row),
                         f"{row['gb_per_s']:.1f}", f"{row['ceiling_gb_per_s']:.1f}", percent(row["ceiling_share"])])
    return table(["file", "architecture", "read per token", "depth", f"tg{arguments.generated} tok/s", "GB/s",
                  "read ceiling GB/s", "share"], rows)


def depth_table(arguments, models):
    rows = []
    for model in models:
        for what, title in (("tg", f"tg{arguments.generated}"), ("pp", f"pp{arguments.depths[0]}")):
            got = [model.rows.get((what, depth)) for depth in arguments.depths]
            if got[0] is None:
                continue
            speeds = [row["avg_ts"] if row else None for row in got]
            rows.append([model.name, title, *[f"{speed:.1f}" if speed else "–" for speed in speeds],
                         *[ratio_text(speed, speeds[0]) for speed in speeds[1:]]])
    first, *others = arguments.depths
    return table(["file", "test", *[f"@ {depth}" for depth in arguments.depths],
                  *[f"{depth} / {first}" for depth in others]], rows)


def parse_arguments():
    parser = argparse.ArgumentParser(usage=__doc__.partition("Usage: ")[2].partition("\n\n")[0].strip())
    parser.add_argument("numoe")
    parser.add_argument("places", nargs="+")
    parser.add_argument("--depths", default="128", help="positions in the cache, as in 128,8192,32768")
    parser.add_argument("--generated", type=int, default=64)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--pause", type=float, default=0, help="seconds between runs")
    parser.add_argument("--numoe-options", default="", help="of every numoe bench")
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    try:
        arguments.depths = [int(depth) for depth in arguments.depths.split(",")]
    except ValueError:
        parser.error(f"--depths takes numbers, not {arguments.depths}")
    arguments.options = shlex.split(arguments.numoe_options)
    if not os.access(arguments.numoe, os.X_OK):
        parser.error(f"{arguments.numoe} is no program")
    return arguments


def main():
    arguments = parse_arguments()
    begin, machine = time.monotonic(), machine_text()
    models = [Model(arguments.numoe, file) for file in files_of(arguments.places)]
    if not models:
        sys.exit("models: there is no GGUF file")
    for model in models:
        for depth in arguments.depths:
            measure(arguments, model, depth)
    print(f"Machine: {machine}.\n")
    print(f"Command: `{shlex.join(sys.argv)}` ({(time.monotonic() - begin) / 60:.0f} min). Means [least–most] of "
          f"{arguments.repetitions} samples; {arguments.threads} threads.\n")
    print(decode_table(arguments, models))
    print(depth_table(arguments, models))
    for model in models:
        for reason in model.reasons:
            print(f"- {model.name}, {reason}")
    if arguments.json:
        kept = {f"{model.name} {what} {depth}": row for model in models for (what, depth), row in model.rows.items()}
        Path(arguments.json).write_text(json.dumps(kept, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
