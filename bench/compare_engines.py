"""What bench/compare.py measures: numoe and other engines' programs, how each is asked, and one run of one."""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
CHUNK = 128  # positions of the prompts of depth and threads, one step
TIME_LIMIT = 900  # seconds of one run


def fail(text):
    sys.exit(f"compare: {text}")


def note(text):
    print(text, file=sys.stderr, flush=True)


def parse_rows(text, command):
    begin = text.find("[")
    try:
        rows = json.loads(text[begin:]) if begin >= 0 else []
    except json.JSONDecodeError as error:
        fail(f"{shlex.join(command)} gave no JSON: {error}")
    if not rows:
        fail(f"{shlex.join(command)} measured nothing")
    return rows


class Test:
    """Prompt and generated tokens, each a sample of its own, behind `depth` positions."""

    def __init__(self, prompt=0, generated=0, depth=0, sequences=1):
        self.prompt, self.generated, self.depth, self.sequences = prompt, generated, depth, sequences


class Numoe:
    """`numoe bench` with some placement."""

    is_numoe = True
    merged = False  # whether what it measured may be on stderr

    def __init__(self, name, command):
        self.name, self.command, self.version = name, command, ""

    def arguments(self, model, test):
        # Prompts begin where a step has ended.
        chunk = ["--chunk", str(CHUNK)] if test.prompt and test.depth and "--chunk" not in self.command else []
        return [*self.command[:2], model, *self.command[2:], *chunk, "-o", "json", "-r", "1", "-p", str(test.prompt),
                "-n", str(test.generated), "-d", str(test.depth), "-b", str(test.sequences)]

    def rows(self, text, command):
        return parse_rows(text, command)


class Peer(Numoe):
    """A llama-bench. Some know no depth: those generate behind a prompt that is not timed (-gp)."""

    is_numoe = False

    def __init__(self, name, command):
        super().__init__(name, command)
        self.knows_depth = None

    def arguments(self, model, test):
        if test.depth and self.knows_depth is None:
            done = subprocess.run([*self.command, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  check=False, timeout=60)
            self.knows_depth = "--n-depth" in done.stdout
        if not test.depth:
            tests = ["-p", test.prompt, "-n", test.generated]
        elif self.knows_depth:
            tests = ["-p", test.prompt, "-n", test.generated, "-d", test.depth]
        else:
            tests = ["-p", 0, "-n", 0, "-gp", f"{test.depth},{test.generated}"]
        return [*self.command, "-m", model, "-o", "json", "-r", "1", *map(str, tests)]


class Sweep(Numoe):
    """A llama-sweep-bench: at 0, N, 2 N, … positions it generates, takes that back, and reads a prompt of N."""

    is_numoe = False
    merged = True

    def arguments(self, model, test):
        if test.depth % test.prompt:
            fail(f"a llama-sweep-bench measures at multiples of {test.prompt}, not at {test.depth}")
        # Two rows: at 0, and at the depth.
        return [*self.command, "-m", os.path.abspath(model), "-c", str(test.depth + test.prompt), "-ub", str(test.prompt),
                "-n", str(test.generated), "--sweep-stride", str(test.depth // test.prompt), "--output-format", "jsonl",
                "-ctk", "f16", "-ctv", "f16", "-fa", "on"]

    def rows(self, text, command):
        rows = []
        for line in re.findall(r"^\{.*\"n_kv\":.*\}$", text, re.MULTILINE):
            row = json.loads(line)
            both = {"n_depth": row["n_kv"], "type_k": "f16", "type_v": "f16", "flash_attn": row["flash_attn"]}
            rows += [{**both, "n_prompt": row["pp"], "n_gen": 0, "avg_ts": row["speed_pp"]},
                     {**both, "n_prompt": 0, "n_gen": row["tg"], "avg_ts": row["speed_tg"]}]
        return rows


def busy_ticks():
    """Of all CPUs, without what a hypervisor took."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    user, nice, system, _, _, irq, softirq, _ = fields
    return user + nice + system + irq + softirq


class Run:
    """The samples of one process, and how many CPUs others used meanwhile."""

    def __init__(self, engine, model, test, own_foreign=0.0):
        command = engine.arguments(model, test)
        before, begin, children = busy_ticks(), time.monotonic(), os.times()
        try:
            # Some leave logs where they are started.
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(command, stdout=subprocess.PIPE, cwd=folder if engine.merged else None,
                                      stderr=subprocess.STDOUT if engine.merged else subprocess.PIPE, text=True,
                                      check=False, timeout=TIME_LIMIT)
        except (OSError, subprocess.TimeoutExpired) as error:
            fail(f"{shlex.join(command)}: {error}")
        seconds = time.monotonic() - begin
        after, now = busy_ticks(), os.times()
        own = now.children_user + now.children_system - children.children_user - children.children_system
        self.foreign = max(0.0, ((after - before) / CLOCK_TICKS - own) / seconds - own_foreign)
        if done.returncode != 0:
            said = done.stdout if engine.merged else done.stderr
            fail(f"{shlex.join(command)} ended with {done.returncode}:\n{said[-2000:]}")
        self.rows = [row for row in engine.rows(done.stdout, command) if row.get("n_depth", test.depth) == test.depth]
        if not self.rows:
            fail(f"{shlex.join(command)} measured nothing behind {test.depth} positions:\n{done.stdout[-2000:]}")
        engine.version = str(self.rows[0].get("build_commit", ""))

    def row(self, wants_prompt):
        for row in self.rows:
            # A peer's "generate behind a prompt" has both numbers and times the tokens only.
            if (row["n_gen"] == 0) == wants_prompt:
                return row
        return None


def named_command(option, text):
    name, equals, command = text.partition("=")
    words = shlex.split(command)
    if not equals or not words:
        fail(f"{option} takes NAME='COMMAND …', not {text}")
    # Not everything is started where we are.
    words[0] = os.path.abspath(shutil.which(words[0]) or fail(f"{option} {name}: {words[0]} is no program"))
    return name, words
