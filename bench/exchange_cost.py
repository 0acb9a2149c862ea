#!/usr/bin/env python3
"""What does a token cost more when ranks exchange over ZeroMQ instead of shared memory?

Runs the program with both settings in turn, so that whatever else the machine does meets both, and compares medians.
The text of all runs must be the same.

Usage: exchange_cost.py path/to/numoe MODEL [--tokens N] [--rounds N] [--nodes N] [--threads N] [-- OPTION …]
"""
import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile

PROMPT = "Once upon a time there was a poor miller who had"
EXCHANGES = ("shm", "zmq")


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = re.findall(r"^model name\s*: (.*)$", file.read(), re.MULTILINE)
    return names[0] if names else platform.machine()


def command(arguments, exchange):
    return [arguments.numoe, "run", arguments.model, "-p", PROMPT, "-n", str(arguments.tokens), "--temp", "0",
            "--ignore-eos", "--nodes", str(arguments.nodes), "--threads-per-node", str(arguments.threads), "--stats",
            "--exchange", exchange, *arguments.options]


def measure(arguments, exchange):
    """(text, milliseconds a token, of these waiting) of the decode steps of one run."""
    with tempfile.TemporaryFile() as out:
        run = subprocess.run(command(arguments, exchange), stdout=out, stderr=subprocess.PIPE, text=True, check=False)
        out.seek(0)
        text = out.read()
    speed = re.search(r"^generated: +\d+ tokens, ([0-9.]+) tok/s", run.stderr, re.MULTILINE)
    share = re.search(r"^waits: .*, ([0-9.]+) % of the time", run.stderr, re.MULTILINE)
    taken = re.search(r"^exchange: +(\w+)", run.stderr, re.MULTILINE)
    if run.returncode != 0 or not (speed and share and taken) or taken.group(1) != exchange:
        sys.exit(f"exchange_cost: {' '.join(command(arguments, exchange))}\n{run.stderr}")
    token_ms = 1000 / float(speed.group(1))
    return text, token_ms, token_ms * float(share.group(1)) / 100


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("Usage: ")[2].strip())
    parser.add_argument("numoe")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    print(f"{processor()}, {os.cpu_count()} CPUs, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    print(" ".join(command(arguments, "…")), flush=True)
    texts, tokens, waits = set(), {e: [] for e in EXCHANGES}, {e: [] for e in EXCHANGES}
    for number in range(arguments.rounds):
        for exchange in EXCHANGES if number % 2 == 0 else EXCHANGES[::-1]:
            text, token_ms, wait_ms = measure(arguments, exchange)
            texts.add(text)
            tokens[exchange].append(token_ms)
            waits[exchange].append(wait_ms)
    if len(texts) != 1:
        sys.exit("exchange_cost: the exchanges tell different texts")
    print("| exchange | ms a token, median (lowest … highest) | of these waiting |\n|---|---|---|")
    for exchange in EXCHANGES:
        ms = tokens[exchange]
        print(f"| {exchange} | {statistics.median(ms):.3f} ({min(ms):.3f} … {max(ms):.3f}) "
              f"| {statistics.median(waits[exchange]):.3f} |")
    shm, zmq = (statistics.median(tokens[e]) for e in EXCHANGES)
    lowest = min(tokens["zmq"]) / min(tokens["shm"])
    print(f"a token over zmq takes {zmq / shm:.2f} times as long as over shm, {zmq - shm:.3f} ms more; "
          f"lowest against lowest {lowest:.2f} times")


if __name__ == "__main__":
    main()
