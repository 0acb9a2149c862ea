"""What is shown of pages and of ways to read a model, in a real NUMA kernel: scenarios of scenarios.py. Runs in the
guest, as root."""
import contextlib
import ctypes
import glob
import json
import os
import re
import shutil
import subprocess

import memory
from server import SECONDS_MAX, Server, equal, read, workers

SHMEM_ENABLED = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
HUGE = 2 << 20
PUNCH_HOLE, KEEP_SIZE = 2, 1  # linux/falloc.h


def write(path, value):
    with open(path, "w") as file:
        file.write(value)


@contextlib.contextmanager
def shmem_enabled(word):
    before = re.search(r"\[(\w+)\]", read(SHMEM_ENABLED))[1]
    write(SHMEM_ENABLED, word)
    try:
        yield
    finally:
        write(SHMEM_ENABLED, before)


@contextlib.contextmanager
def mounted(kind, options):
    place = f"/tmp/numoe-{kind}"
    os.makedirs(place, exist_ok=True)
    subprocess.run(["mount", "-t", kind, "-o", options, "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def doctor(lab, finding):
    report = json.loads(subprocess.run([lab.binary, "doctor", "--json", "--arena-dir", "/dev/shm"],
                                       capture_output=True, text=True, timeout=SECONDS_MAX, check=False).stdout)
    return next(own for own in report["findings"] if own["id"] == finding)


def page_row(lab, server):
    """What `numoe status --placement` says of pages, rank by rank."""
    table = subprocess.run([lab.binary, "status", "--placement", "--port", str(server.port)], capture_output=True,
                           text=True, timeout=SECONDS_MAX, check=True).stdout
    return re.split(r"\s{2,}", re.search(r"^\s+pages\s+(.*)$", table, re.M)[1].strip())


def expect_in_place(lab, server):
    for rank in lab.placement(server):
        equal(rank["misplaced_percent"], 0, f"misplaced of rank {rank['rank']}")


# ---------------------------------------------------------------- page sizes, where two nodes have CPUs

def small_whatever_the_kernel_says(lab):
    """Files in /dev/shm go by its mount, which says nothing, and not by these words; doctor names the file."""
    for word in ("never", "advise", "always"):
        with shmem_enabled(word):
            finding = doctor(lab, "shmem_enabled")
            equal(f"[{word}] in {SHMEM_ENABLED}" in finding["found"], True, finding["found"])
            equal("huge=within_size" in finding["cure"], True, finding["cure"])
    with shmem_enabled("always"), lab.serve() as server:
        expect_in_place(lab, server)
        equal(page_row(lab, server), ["4.0 KiB", "4.0 KiB"], "pages")
        server.await_text("in pages of 4 KiB, which read about a quarter slower")


def huge_and_mixed_are_told_for_each_node(lab):
    with mounted("tmpfs", "huge=within_size,mode=1777") as place, shmem_enabled("never"):
        with lab.serve(arena=place) as server:
            expect_in_place(lab, server)
            equal(page_row(lab, server), ["huge", "huge"], "pages")
            # As where memory has no more huge pages in one piece: one of them is taken apart, behind the weights.
            [arena] = glob.glob(f"{place}/numoe-*/w-*1of2*.arena")
            size = os.stat(arena).st_size
            punch_hole(arena, size - 4096, 4096)
            row = page_row(lab, server)
            equal(re.sub(r"[\d.]+ %", "N %", " ".join(row)), "huge mixed, N % huge", "pages with one taken apart")
            first, second = (rank["huge_page_bytes"] for rank in lab.placement(server))
            equal((first % HUGE, second), (0, size - HUGE), "bytes in huge pages")
            lab.check_output(server)


def punch_hole(path, offset, length):
    libc = ctypes.CDLL(None, use_errno=True)
    file = os.open(path, os.O_RDWR)
    try:
        if libc.fallocate(file, PUNCH_HOLE | KEEP_SIZE, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
            raise OSError(ctypes.get_errno(), "fallocate", path)
    finally:
        os.close(file)


def too_few_huge_pages_on_one_node(lab):
    """Refused with the count of that node, and served after the line that cures it."""
    pools = [f"/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages" for node in (0, 1)]
    try:
        for pool, pages in zip(pools, (8, 1), strict=True):
            write(pool, str(pages))
            equal(int(read(pool)), pages, pool)
        with mounted("hugetlbfs", "pagesize=2M") as place:
            options = ("--strategy", "rows", "--huge-pages", "2m")
            refused = subprocess.run([lab.binary, "serve", lab.model, "--port", "0", "--ctx", "256", "--arena-dir", place,
                                      *options], capture_output=True, text=True, timeout=SECONDS_MAX)
            equal(refused.returncode, 1, f"exit code, where it says {refused.stderr}")
            cure = re.search(r"huge pages of 2 MiB: (\d+) on node 1 where 1 are free.*echo (\d+) > (/sys/\S+)",
                             refused.stderr)
            equal(cure is not None, True, f"a refusal with its numbers: {refused.stderr}")
            equal((int(cure[2]), cure[3].rstrip(";,.'")), (int(cure[1]), pools[1]), "the cure")
            equal(glob.glob(f"{place}/numoe-*/*"), [], "what is left")
            write(pools[1], cure[2])
            with lab.serve("--huge-pages", "2m", arena=place) as server:
                equal([rank["page_bytes"] for rank in lab.placement(server)], [HUGE, HUGE], "pages")
                expect_in_place(lab, server)
                lab.check_output(server)
    finally:
        for pool in pools:
            write(pool, "0")


# ---------------------------------------------------------------- ways to read, on four nodes of one CPU

def from_the_page_cache_or_from_a_file_system_in_memory(lab):
    """Where a first load reads past the page cache (`four_nodes`, the first one of its kernel): the same placement."""
    with open(lab.model, "rb") as file:
        while file.read(1 << 20):
            pass
    expect_ranks_on_four_nodes(lab, lab.model)
    copy = "/dev/shm/model.gguf"
    shutil.copy(lab.model, copy)
    try:
        expect_ranks_on_four_nodes(lab, copy)
    finally:
        os.unlink(copy)


def expect_ranks_on_four_nodes(lab, model):
    with Server(lab.binary, model, "--strategy", "rows") as server:
        lab.check_output(server)
        expect_in_place(lab, server)
        for node, worker in enumerate(workers()):
            [weights] = memory.mappings(worker.pid)[("weights", None)]
            equal(set(weights.mapped_on()), {node}, f"nodes of the weights of rank {worker.rank} by numa_maps")
        equal(len(workers()), 4, "ranks")
