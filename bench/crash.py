#!/usr/bin/env python3
"""How long do clients wait when a worker, the leader, all workers or the server are killed?

Starts `numoe serve`, lets 16 streams run, kills with SIGKILL, and prints the seconds of the pause until the next token, of
the stream that waits least and of the one that waits longest, medians and largest of the rounds; every text must be that of an undisturbed run. Then, with no
request running, the seconds from the death of a worker until the group answers again, and from the death of the server
until the next one is ready with the same workers.

Usage: crash.py path/to/numoe MODEL [--tokens N] [--rounds N] [--streams N] [--nodes N] [-- OPTION …]
"""
import argparse
import contextlib
import statistics
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "cluster"))
import processes  # noqa: E402
from processes import wait_until  # noqa: E402
from serving import Service  # noqa: E402
from streams import Streams  # noqa: E402

PROMPT = "Once upon a time there was a poor miller who had"
PATIENCE = 3600
CASES = (("follower", (-1,)), ("leader", (0,)), ("all workers", None))


def requests(arguments):
    return [{"prompt": PROMPT, "seed": seed, "temperature": 0.9, "ignore_eos": True, "max_tokens": arguments.tokens}
            for seed in range(arguments.streams)]


def show(what, seconds):
    print(f"{what:<58} {statistics.median(seconds):7.2f} s   largest {max(seconds):7.2f} s   of {len(seconds)}",
          flush=True)


def kill_under_streams(service, arguments, ranks, undisturbed):
    """Seconds of the shortest and of the longest pause of a stream."""
    streams = Streams(service, requests(arguments))
    streams.wait_for(max(3, arguments.tokens // 4))
    workers = service.workers_by_rank()
    moment = time.monotonic()
    for rank in range(len(workers)) if ranks is None else ranks:
        service.kill(workers[rank])
    texts = streams.texts(PATIENCE)
    if texts != undisturbed:
        sys.exit("crash: texts differ from those of an undisturbed run")
    return streams.pauses_after(moment)


def restart_of_a_worker(service):
    workers = service.workers_by_rank()
    begin = time.monotonic()
    service.kill(workers[-1])
    wait_until(lambda: len(service.workers_by_rank()) == len(workers)
               and not set(workers) & set(service.workers()), "the workers are new")
    service.wait_ready()
    service.complete(PROMPT, max_tokens=1)
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("Usage: ")[2].strip())
    parser.add_argument("numoe")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--nodes", type=int, default=2)
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:split])
    options = ("--nodes", arguments.nodes, "--parallel", arguments.streams, "--ctx",
               arguments.tokens + 512, *words[split + 1:])
    processes.SECONDS_MAX = PATIENCE  # loading a large model takes its time
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Service(arguments.numoe, *options, model=arguments.model))
        first.wait_ready()
        print(f"{'first start until ready, loading':<58} {time.monotonic() - begin:7.2f} s")
        undisturbed = Streams(first, requests(arguments)).texts(PATIENCE)
        for what, ranks in CASES if arguments.nodes > 1 else CASES[1:2]:
            waits = []
            for _ in range(arguments.rounds):
                waits.append(kill_under_streams(first, arguments, ranks, undisturbed))
                time.sleep(11)  # so that the next crash does not come soon after this one
            show(f"{what} killed under {arguments.streams} streams: shortest pause", [wait[0] for wait in waits])
            show("  … longest pause of a stream", [wait[1] for wait in waits])
        seconds = []
        for _ in range(arguments.rounds):
            time.sleep(11)
            seconds.append(restart_of_a_worker(first))
        show("idle worker killed: until the group has answered", seconds)
        seconds = []
        server = first
        for _ in range(arguments.rounds):
            server.kill(server.process.pid)
            server.process.wait()
            begin = time.monotonic()
            server = stack.enter_context(first.next_server(arguments.numoe, *options, model=arguments.model))
            server.wait_ready()
            seconds.append(time.monotonic() - begin)
            if server.complete(PROMPT, **{key: value for key, value in requests(arguments)[0].items()
                                          if key != "prompt"}) != undisturbed[0]:
                sys.exit("crash: another text after the server was replaced")
        show("server killed: start of the next one until ready", seconds)


if __name__ == "__main__":
    main()
