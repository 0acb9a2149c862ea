#!/usr/bin/env python3
"""How long does loading take, warm and cold, against `cat` and against another engine; what does it hold; how soon is it
back?

Everything is measured in turn within a round, so that whatever else the machine does meets all. Warm: the file is read
once more before each sample. Cold: it is taken out of the page cache before each sample. `ready` is the time from the
start of `numoe serve` until it answers /ready with 200. A virtual machine may give free memory back to its host and pay
for it later; so before each sample as much memory as a load takes is touched and freed.

Usage: load.py path/to/numoe MODEL [--arena-dir DIR] [--peer path/to/llama-cli] [--rounds N] [--nodes N] [--threads N]
"""
import argparse
import mmap
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "cluster"))
from processes import Run, wait_until  # noqa: E402
from serving import Service  # noqa: E402

PROMPT = "Once upon a time"
CONTEXT = ("--ctx", 256)  # a small KV cache: this is about weights
PARALLEL = ("--parallel", 1)


def processor():
    names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return names[0] if names else platform.machine()


def mount_of(folder):
    """The file system that holds a folder, as /proc/mounts tells it."""
    best = ("", "")
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        words = line.split()
        inside = folder == Path(words[1]) or Path(words[1]) in folder.parents
        if inside and len(words[1]) >= len(best[0]):
            best = (words[1], f"{words[2]} on {words[1]} ({words[3]})")
    return best[1]


def evict(path):
    """Takes the file out of the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_bytes(path):
    """Bytes of the file in the page cache, -1 if nobody says."""
    try:
        told = subprocess.run(["fincore", "-b", "-n", "-o", "RES", path], capture_output=True, text=True, check=True)
        return int(told.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return -1


def touch_memory(size):
    """Takes that much memory, in huge pages if it gets them, and gives it back."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for offset in range(0, size, 4096):
            memory[offset] = 1


def seconds_of(command):
    begin = time.monotonic()
    with open(os.devnull, "wb") as nothing:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=nothing, stderr=subprocess.PIPE, check=False)
    seconds = time.monotonic() - begin
    if run.returncode != 0:
        sys.exit(f"load.py: {' '.join(command)}\n{run.stderr.decode(errors='replace')}")
    return seconds


def meminfo():
    """Bytes of shared memory and of hugetlbfs pages in the system."""
    text = Path("/proc/meminfo").read_text(encoding="utf-8")
    value = {name: int(number) for name, number in re.findall(r"^(\w+): +(\d+)", text, re.MULTILINE)}
    return (value["Shmem"] + (value["HugePages_Total"] - value["HugePages_Free"]) * value["Hugepagesize"]) * 1024


def anonymous(pid):
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"^RssAnon:\s+(\d+)", status, re.MULTILINE)
    return int(found.group(1)) * 1024 if found else 0


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.arena = Path(tempfile.mkdtemp(prefix="numoe-bench-", dir=arguments.arena_dir))
        self.shape = ("--nodes", arguments.nodes, "--threads-per-node", arguments.threads)
        self.samples = {}

    def add(self, name, seconds):
        self.samples.setdefault(name, []).append(seconds)

    def service(self, *options):
        arguments = self.arguments
        return Service(arguments.numoe, *self.shape, *CONTEXT, *PARALLEL, *options, model=arguments.model,
                       arena=self.arena)

    def seconds_until_ready(self, *options):
        """Starts a server, stops it in order."""
        begin = time.monotonic()
        with self.service(*options) as service:
            service.wait_ready()
            seconds = time.monotonic() - begin
            service.process.send_signal(signal.SIGTERM)
            if service.finish() != 0:
                sys.exit(f"load.py: the server did not end well\n{service.stderr()}")
        return seconds

    def seconds_of_first_token(self):
        begin = time.monotonic()
        with Run(self.arguments.numoe, "run", self.arguments.model, "-p", PROMPT, "-n", 1, "--temp", 0, *self.shape,
                 *CONTEXT, arena=self.arena) as run:
            if run.finish() != 0:
                sys.exit(f"load.py: {run.stderr()}")
        return time.monotonic() - begin

    def cat(self):
        return seconds_of(["cat", str(self.arguments.model)])

    def prepare(self, warm):
        """The file in the page cache or out of it, and memory at hand."""
        if warm:
            self.cat()
        else:
            evict(self.arguments.model)
        touch_memory(self.arguments.model.stat().st_size + (1 << 29))

    def warm_round(self):
        self.prepare(warm=True)
        self.add("cat, warm", self.cat())
        self.prepare(warm=True)
        self.add("ready, warm", self.seconds_until_ready())
        if self.arguments.peer:
            self.prepare(warm=True)
            self.add("first token, warm", self.seconds_of_first_token())
            self.prepare(warm=True)
            threads = str(self.arguments.nodes * self.arguments.threads)
            self.add("peer's first token, warm", seconds_of([
                self.arguments.peer, "-m", str(self.arguments.model), "-rtr", "-t", threads, "-c", "256", "-p",
                PROMPT, "-n", "1", "--temp", "0", "--no-warmup"]))

    def cold_round(self):
        self.prepare(warm=False)
        self.add("cat, cold", self.cat())
        self.prepare(warm=False)
        self.add("ready, cold", self.seconds_until_ready())
        return cached_bytes(self.arguments.model)

    def peak(self):
        """The most memory at any moment of a start, from an own run: to look costs time."""
        base, most = meminfo(), 0
        with self.service() as service:
            while not service.is_ready():
                most = max(most, meminfo() - base + sum(anonymous(pid) for pid in service.alive()))
                time.sleep(0.01)
            most = max(most, meminfo() - base + sum(anonymous(pid) for pid in service.alive()))
            service.process.send_signal(signal.SIGTERM)
            service.finish()
        return most

    def comebacks(self):
        """A second server on weights that were kept, then a killed worker of it."""
        self.seconds_until_ready("--keep-weights")
        for _ in range(self.arguments.rounds):
            self.add("second server ready", self.seconds_until_ready("--keep-weights"))
        for _ in range(self.arguments.rounds):
            with self.service("--keep-weights") as service:
                service.wait_ready()
                service.complete(PROMPT, max_tokens=1)
                victim = service.workers_by_rank()[-1]
                service.kill(victim)
                begin = time.monotonic()
                body = {"prompt": PROMPT, "max_tokens": 1}
                wait_until(lambda: victim not in service.alive(), "the worker is dead")
                wait_until(lambda: service.post("/v1/completions", body)[0] == 200, "it answers again")
                self.add("answers after kill -9 of a worker", time.monotonic() - begin)
                service.process.send_signal(signal.SIGTERM)
                service.finish()

    def ratio(self, name, base):
        a, b = self.samples[name], self.samples[base]
        print(f"{name} / {base}: {statistics.median(a) / statistics.median(b):.2f}; "
              f"lowest against lowest {min(a) / min(b):.2f}")

    def report(self):
        print("| seconds | median (lowest … highest) |\n|---|---|")
        for name, seconds in self.samples.items():
            print(f"| {name} | {statistics.median(seconds):.2f} ({min(seconds):.2f} … {max(seconds):.2f}) |")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("Usage: ")[2].strip())
    parser.add_argument("numoe")
    parser.add_argument("model", type=lambda path: Path(path).resolve())
    parser.add_argument("--arena-dir", type=Path, default="/run/numoe" if os.path.ismount("/run/numoe") else "/dev/shm")
    parser.add_argument("--peer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    size = arguments.model.stat().st_size
    print(f"{processor()}, {os.cpu_count()} CPUs, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    print(f"weights in {mount_of(arguments.arena_dir)}, file in {mount_of(arguments.model.parent)}, {size} bytes")
    print(" ".join(map(str, sys.argv)), flush=True)
    bench = Bench(arguments)
    try:
        bench.seconds_until_ready()  # what happens once: libraries are read, memory is compacted
        for _ in range(arguments.rounds):
            bench.warm_round()
        left = max(bench.cold_round() for _ in range(arguments.rounds))
        peak = bench.peak()
        bench.comebacks()
        bench.report()
        bench.ratio("ready, warm", "cat, warm")
        if arguments.peer:
            bench.ratio("first token, warm", "peer's first token, warm")
        bench.ratio("ready, cold", "cat, cold")
        print(f"in the page cache after a cold load: {left} bytes of the file")
        print(f"peak of anonymous, shared and huge memory: {peak} bytes, {peak / size:.3f} times the file")
    finally:
        shutil.rmtree(bench.arena, ignore_errors=True)


if __name__ == "__main__":
    main()
