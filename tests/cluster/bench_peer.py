#!/usr/bin/env python3
"""Looks like llama-bench to bench/compare.py: the model comes with -m. With --sweep-stride it looks like
llama-sweep-bench. Usage: bench_peer.py path/to/numoe OPTION …"""
import json
import os
import subprocess
import sys


def taken(name):
    """The value of an option, which is removed."""
    at = options.index(name)
    value = options[at + 1]
    del options[at:at + 2]
    return value


def sweep(command):
    """Rows at 0, stride, 2 x stride … steps; stderr is where they go."""
    context, step, stride = (int(taken(name)) for name in ("-c", "-ub", "--sweep-stride"))
    if [taken(name) for name in ("--output-format", "-ctk", "-ctv", "-fa")] != ["jsonl", "f16", "f16", "on"]:
        sys.exit("bench_peer: other options were expected")
    depths = range(0, context, step * stride)
    done = subprocess.run([*command, *options, "-p", str(step), "-d", ",".join(map(str, depths)), "--chunk", str(step),
                           "-r", "1", "-o", "json"], stdout=subprocess.PIPE, check=True)
    rows = json.loads(done.stdout)
    print("{ not a row }", file=sys.stderr)
    for depth in depths:
        prompt, tokens = (row for row in rows if row["n_depth"] == depth)
        print(json.dumps({"flash_attn": 1, "pp": prompt["n_prompt"], "tg": tokens["n_gen"], "n_kv": depth,
                          "speed_pp": prompt["avg_ts"], "speed_tg": tokens["avg_ts"]}), file=sys.stderr)


options = sys.argv[2:]
model = [taken("-m")] if "-m" in options else []
bench = [sys.argv[1], "bench", *model]
if "--sweep-stride" in options:
    sweep(bench)
else:
    os.execv(bench[0], [*bench, *options])
