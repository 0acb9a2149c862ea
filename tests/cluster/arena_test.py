#!/usr/bin/env python3
"""Arenas of weights from the outside: killed loaders, shared copies, changed files, full memory, lost names.

Usage: arena_test.py path/to/numoe

As root it runs in a mount namespace of its own, where it can make file systems; else those tests are skipped.
"""
import fcntl
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from processes import MODEL, Run, in_private_mounts, wait_until  # noqa: E402
from serving import Service  # noqa: E402

BINARY = None
FULL = os.environ.get("NUMOE_FULL") == "1"
MAY_MOUNT = False  # in a namespace of our own
PROMPT = "Once upon a time there was a poor miller who had"
GREEDY = {"max_tokens": 12, "temperature": 0}
COPY = MODEL.stat().st_size  # about one copy of the weights
HEADER_CONTENT = 112  # docs/arena-format.md
SEED = 20261130


def weights(arena):
    """The files of named weights below an --arena-dir."""
    return sorted(arena.glob("numoe-*/w-*.arena"))


def memory_in(folder):
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if not path.is_dir())


def content_of(arena):
    with open(arena, "rb") as file:
        file.seek(HEADER_CONTENT)
        return struct.unpack("<QQ", file.read(16))


def identity(path):
    """Changes when an arena is made or loaded anew, not when it is attached."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def has_open(pid, path):
    """Whether a process has a file open at this moment."""
    wanted = path.stat()
    for entry in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            status = entry.stat()
        except OSError:
            continue  # closed while we looked
        if (status.st_dev, status.st_ino) == (wanted.st_dev, wanted.st_ino):
            return True
    return False


class Arenas(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="numoe-test-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def serve(self, *options, **more):
        return Service(BINARY, "--nodes", 1, "--ctx", 128, "--parallel", 1, *options,
                       **{"arena": self.folder, **more})

    def shm(self, *arguments, arena=None):
        done = subprocess.run([BINARY, "shm", *arguments, "--arena-dir", arena or self.folder], text=True,
                              capture_output=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    def listing(self):
        return json.loads(self.shm("ls", "--json")[1])

    def stop(self, service, left=()):
        service.kill(service.process.pid, signal.SIGTERM)
        self.assertEqual(service.finish(), 0, service.stderr())
        wait_until(lambda: not service.alive(), "all processes end")
        if service.arena == self.folder:
            self.assertEqual(weights(self.folder), sorted(left), service.stderr())

    def tmpfs(self, *options):
        if not MAY_MOUNT:
            self.skipTest("mounting a file system needs root")
        place = Path(tempfile.mkdtemp(prefix="numoe-test-"))
        mounted = subprocess.run(["mount", "-t", *options, "none", place], check=False, capture_output=True)
        if mounted.returncode != 0:
            place.rmdir()
            self.skipTest(f"mount: {mounted.stderr.decode().strip()}")
        self.addCleanup(place.rmdir)
        self.addCleanup(subprocess.run, ["umount", "-l", place], check=False)
        return place

    def refusal(self, *options, command=("run",), **more):
        run = [*command, MODEL] + (["-p", "x", "-n", 1] if command == ("run",) else ["--port", 0])
        with Run(BINARY, *run, "--ctx", 128, *options, **more) as refused:
            self.assertEqual(refused.finish(), 1, refused.stderr())
            wait_until(lambda: not refused.alive(), "all processes end")
            self.assertNotIn("signal", refused.stderr())
            return refused.stderr()

    # Killed and started again.

    def test_a_start_after_killed_loaders_needs_nobody(self):
        rng = random.Random(SEED)
        with self.serve() as first:
            begin = time.monotonic()
            first.wait_ready()
            loading = max(time.monotonic() - begin, 0.05)
            expected = first.complete(PROMPT, **GREEDY)
            self.stop(first)
        for kill in range(20):
            service = self.serve()
            try:
                service.__enter__()
                time.sleep(rng.random() * loading)  # tidy: allow sleep because any moment will do
                service.kill_all()
            finally:
                service.__exit__()
            self.assertLessEqual(len(weights(self.folder)), 1, f"kill {kill} of seed {SEED}")
            self.assertLess(sum(path.stat().st_blocks * 512 for path in weights(self.folder)), 1.5 * COPY)
        with self.serve() as last:
            last.wait_ready()
            self.assertEqual(last.complete(PROMPT, **GREEDY), expected)
            self.assertEqual(len(weights(self.folder)), 1)
            self.stop(last)
        self.assertLess(memory_in(self.folder), COPY / 10)

    def test_room_for_little_more_than_one_copy_is_enough_after_crashes(self):
        place = self.tmpfs("tmpfs", "-o", f"size={COPY * 14 // 10}")
        other = self.folder / "other.gguf"
        data = bytearray(MODEL.read_bytes())
        data[COPY // 2] ^= 1
        other.write_bytes(data)
        for model, options in ((MODEL, ()), (MODEL, ()), (other, ()), (MODEL, ("--keep-weights",))):
            with self.serve(*options, arena=place, model=model) as service:
                service.wait_ready()
                service.complete(PROMPT, **GREEDY)
                self.assertEqual(len(weights(place)), 1)
                service.kill_all()
        with Run(BINARY, "run", other, "-p", PROMPT, "-n", 2, "--ctx", 128, arena=place) as run:
            # What is ready is of another file and in its way, and somebody asked to keep it.
            self.assertEqual(run.finish(), 1, run.stderr())
            self.assertIn("numoe shm rm", run.stderr())
        self.assertEqual(self.shm("rm", arena=place)[0], 0)
        with Run(BINARY, "run", other, "-p", PROMPT, "-n", 2, "--ctx", 128, arena=place) as run:
            self.assertEqual(run.finish(), 0, run.stderr())

    def test_sealed_weights_survive_the_death_of_all_and_are_not_loaded_again(self):
        with self.serve() as first:
            first.wait_ready()
            expected = first.complete(PROMPT, **GREEDY)
            [arena] = weights(self.folder)
            before = identity(arena)
            first.kill_all()
        with self.serve() as second:
            second.wait_ready()
            self.assertEqual(identity(arena), before)
            self.assertEqual(second.complete(PROMPT, **GREEDY), expected)
            self.stop(second)

    def test_two_servers_share_one_copy_and_the_last_removes_it(self):
        with self.serve() as one, self.serve() as other:
            one.wait_ready()
            other.wait_ready()
            self.assertEqual(one.complete(PROMPT, **GREEDY), other.complete(PROMPT, **GREEDY))
            [arena] = self.listing()["arenas"]
            self.assertEqual(len(arena["pids"]), 2)
            caches = self.listing()["kv"]
            self.assertEqual([(kv["rank"], kv["ranks"], kv["positions"], kv["damage"]) for kv in caches],
                             2 * [(0, 1, 128, "")])
            self.assertEqual(sorted(pid for kv in caches for pid in kv["pids"]), sorted(arena["pids"]))
            self.assertTrue(all(kv["bytes"] > 0 for kv in caches))
            self.assertIn("KV cache", self.shm("ls")[1])
            self.assertEqual((arena["state"], arena["slice"], arena["slices"]), ("ready", 0, 1))
            [path] = weights(self.folder)
            code, _, refusal = self.shm("rm", arena["name"])
            self.assertEqual(code, 1)
            for pid in arena["pids"]:
                self.assertIn(f"process {pid} (numoe worker)", refusal)
            self.stop(one, left=[path])
            text = other.complete(PROMPT, **GREEDY)
            with Run(BINARY, "run", MODEL, "-p", PROMPT, "-n", 12, "--temp", 0, "--nodes", 1, "--ctx", 128,
                     "--threads-per-node", 1, arena=self.folder) as run:
                self.assertEqual(run.finish(), 0, run.stderr())
                self.assertIn(text, run.stdout())
            self.assertEqual(weights(self.folder), [path])
            self.stop(other)

    def test_run_leaves_nothing_and_shares_with_nobody(self):
        with Run(BINARY, "run", MODEL, "-p", PROMPT, "-n", 2, "--ctx", 128, arena=self.folder) as run:
            self.assertEqual(run.finish(), 0, run.stderr())
            self.assertEqual(run.leftovers(), [])

    def test_a_server_that_is_killed_while_its_worker_waits_or_loads_leaves_nothing(self):
        with self.serve("--keep-weights") as first:
            first.wait_ready()
            [arena] = weights(self.folder)
            self.stop(first, left=[arena])
        arena.unlink()
        # As if another process were about to load: a lock on a file without a byte.
        with open(arena, "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with self.serve("--orphan-timeout", 1) as service:
                wait_until(lambda: any(has_open(pid, arena) for pid in service.workers()), "a worker waits")
                service.kill(service.process.pid)
                wait_until(lambda: not service.alive(), "all processes end")
                self.assertEqual(list(self.folder.glob("numoe-*/serve-*")), [])
        arena.unlink()

    # Kept, changed, lost.

    def test_a_changed_file_of_the_same_name_and_size_is_not_reused(self):
        model = self.folder / "model.gguf"
        shutil.copy(MODEL, model)
        times = model.stat().st_atime_ns, model.stat().st_mtime_ns
        with self.serve("--keep-weights", model=model) as first:
            first.wait_ready()
            expected = first.complete(PROMPT, **GREEDY)
            [arena] = weights(self.folder)
            self.stop(first, left=[arena])
        made, content = identity(arena), content_of(arena)
        self.assertNotEqual(content, (0, 0))

        os.utime(model)  # touched: hashed, and the same
        with self.serve("--keep-weights", model=model) as same:
            same.wait_ready()
            self.stop(same, left=[arena])
        self.assertEqual((identity(arena)[0], content_of(arena)), (made[0], content))
        self.assertIn("all checksums", self.shm("verify")[1])

        with open(model, "r+b") as file:  # one bit of a block of experts, and the times put back
            file.seek(COPY // 2)
            byte = file.read(1)[0]
            file.seek(COPY // 2)
            file.write(bytes([byte ^ 1]))
        os.utime(model, ns=times)
        with self.serve("--keep-weights", model=model) as changed:
            changed.wait_ready()
            self.assertNotEqual(content_of(arena), content)
            self.stop(changed, left=[arena])
        self.assertEqual(weights(self.folder), [arena])

        shutil.copy(MODEL, model)
        with self.serve(model=model) as back:
            back.wait_ready()
            self.assertEqual(content_of(arena), content)
            self.assertEqual(back.complete(PROMPT, **GREEDY), expected)
            # Another server of a file with the same shape: the arena in use is left alone.
            other = self.folder / "other.gguf"
            data = bytearray(MODEL.read_bytes())
            data[COPY // 2] ^= 1
            other.write_bytes(data)
            with self.serve(model=other) as neighbour:
                neighbour.wait_ready()
                self.assertEqual(len(weights(self.folder)), 2)
                self.assertEqual(content_of(arena), content)
                self.stop(neighbour, left=[arena])
            self.assertEqual(back.complete(PROMPT, **GREEDY), expected)
            self.stop(back)

    def test_kept_weights_are_attached_listed_verified_and_removed(self):
        with self.serve("--keep-weights") as first:
            first.wait_ready()
            [arena] = weights(self.folder)
            self.stop(first, left=[arena])
        before = identity(arena)
        with self.serve() as second:
            second.wait_ready()
            self.assertEqual(identity(arena), before)
            self.stop(second, left=[arena])  # once kept, it stays
        [listed] = self.listing()["arenas"]
        self.assertEqual((listed["keep"], listed["in_use"], listed["pids"], listed["model"]),
                         (True, False, [], MODEL.name))
        code, text, _ = self.shm("ls")
        self.assertEqual(code, 0)
        for word in ("0 of 1", "ready", "yes", "nobody", MODEL.name):
            self.assertIn(word, text)
        [sound] = json.loads(self.shm("verify", "--json")[1])["arenas"]
        self.assertTrue(sound["sound"] and not sound["misplaced"] and "node 0: 100 %" in sound["nodes"], sound)
        with open(arena, "r+b") as file:
            file.seek(COPY // 2)
            byte = file.read(1)[0]
            file.seek(COPY // 2)
            file.write(bytes([byte ^ 1]))
        code, text, error = self.shm("verify", arena.stem)
        self.assertEqual(code, 1)
        self.assertIn("are damaged", text)
        self.assertIn("1 of 1 arenas", error)
        self.assertEqual(self.shm("rm", "nosuch")[0], 1)
        self.assertEqual(self.shm("rm", arena.name)[0], 0)
        self.assertEqual(weights(self.folder), [])

    def test_zero_length_and_foreign_files_are_replaced(self):
        with self.serve("--keep-weights") as first:
            first.wait_ready()
            [arena] = weights(self.folder)
            self.stop(first, left=[arena])
        for rubbish in (b"", b"not an arena" * 1000, bytes(1 << 20)):
            arena.write_bytes(rubbish)
            with self.serve() as service:
                service.wait_ready()
                self.assertGreater(arena.stat().st_size, COPY / 2)
                self.stop(service)

    def test_names_that_somebody_removes_cost_a_load_and_nothing_else(self):
        with self.serve("--keep-weights") as service:
            service.wait_ready()
            expected = service.complete(PROMPT, **GREEDY)
            for path in [*weights(self.folder), *self.folder.glob("numoe-*/serve-*/kv.*")]:
                path.unlink()  # what logind does when the user's last session ends
            self.assertEqual(service.complete(PROMPT, **GREEDY), expected)
            nameless = self.listing()["nameless"]
            self.assertTrue(any("/w-" in file["path"] for file in nameless), nameless)
            self.assertIn("without a name", self.shm("ls")[1])
            [worker] = service.workers()
            service.kill(worker)
            wait_until(lambda: service.workers() not in ([], [worker]), "another worker")
            service.wait_ready()
            wait_until(lambda: service.is_ready() and "removed by somebody" in service.stderr(), "it says what happened")
            self.assertEqual(service.complete(PROMPT, **GREEDY), expected)
            [arena] = weights(self.folder)
            self.stop(service, left=[arena])

    def test_directories_that_somebody_removes_cost_a_load_and_nothing_else(self):
        with self.serve() as service:
            service.wait_ready()
            expected = service.complete(PROMPT, **GREEDY)
            [worker] = service.workers()
            stream = service.stream(PROMPT, max_tokens=100, ignore_eos=True, seed=1)
            self.assertTrue(stream.next())
            [directory] = self.folder.glob("numoe-*")
            shutil.rmtree(directory)
            whole = stream.read_to_end()
            self.assertTrue(stream.done, "the answer goes on")
            # Longer than workers take to look at their directory.
            for _ in range(10):
                self.assertEqual(service.complete(PROMPT, **GREEDY), expected)
            self.assertEqual(service.workers(), [worker], "it is still the same")
            service.kill(worker)
            wait_until(lambda: service.workers() not in ([], [worker]), "another worker")
            service.wait_ready()
            self.assertEqual(service.complete(PROMPT, max_tokens=100, ignore_eos=True, seed=1), whole)
            self.assertEqual(len(weights(self.folder)), 1)
            self.stop(service)

    def test_names_that_somebody_removes_where_one_copy_fits(self):
        place = self.tmpfs("tmpfs", "-o", f"size={COPY * 14 // 10}")
        with self.serve(arena=place) as service:
            service.wait_ready()
            expected = service.complete(PROMPT, **GREEDY)
            for path in [*weights(place), *place.glob("numoe-*/serve-*/kv.*")]:
                path.unlink()
            [worker] = service.workers()
            service.kill(worker)
            wait_until(lambda: service.workers() not in ([], [worker]), "another worker")
            service.wait_ready()
            self.assertEqual(service.complete(PROMPT, **GREEDY), expected)
            self.assertNotIn("cannot reserve", service.stderr())

    def test_names_that_somebody_removes_and_room_that_is_gone_is_refused_until_there_is_some(self):
        place = self.tmpfs("tmpfs", "-o", f"size={COPY * 14 // 10}")
        with self.serve(arena=place) as service:
            service.wait_ready()
            expected = service.complete(PROMPT, **GREEDY)
            # Until the next start waits for long enough to do all this.
            waits = lambda: "started again in 4 s" in service.stderr()
            dead = []
            while not waits():
                wait_until(lambda dead=dead: waits() or service.is_ready() and service.workers() not in ([], dead),
                           "another worker is ready")
                dead = service.workers()
                for pid in dead:
                    service.kill(pid)
            for path in [*weights(place), *place.glob("numoe-*/serve-*/kv.*")]:
                path.unlink()
            # The server holds the weights until it starts again; somebody else takes the rest.
            filler = os.open(place / "filler", os.O_CREAT | os.O_WRONLY)
            free = os.statvfs(place)
            os.posix_fallocate(filler, 0, free.f_bavail * free.f_frsize)
            os.close(filler)
            wait_until(lambda: "the model needs" in service.stderr(), "it is refused")
            status, page, _ = service.get("/ready")
            self.assertEqual(status, 503)
            self.assertRegex(page["message"], "the model needs .* free of")
            (place / "filler").unlink()
            service.wait_ready()
            self.assertEqual(service.complete(PROMPT, **GREEDY), expected)
            self.stop(service)

    # Memory that is not there.

    def test_a_small_file_system_is_refused_with_its_cure(self):
        place = self.tmpfs("tmpfs", "-o", "size=8m")
        for command in (("run",), ("serve",)):
            text = self.refusal(arena=place, command=command)
            for words in ("the model needs", "MiB weights", "KV cache", "free of 8.0 MiB", "remount,size=",
                          "--shm-size=", "--arena-dir", "--ctx"):
                self.assertIn(words, text)
            self.assertLess(memory_in(place), 4096)

    def test_space_taken_between_plan_and_load_is_an_error_and_leaves_nothing(self):
        with self.serve("--keep-weights") as first:
            first.wait_ready()
            [arena] = weights(self.folder)
            self.stop(first, left=[arena])
        place = self.tmpfs("tmpfs", "-o", "size=64m")
        os.mkdir(place / arena.parent.name, 0o700)
        blocked = place / arena.parent.name / arena.name
        # As if another process were about to load: a lock on a file without a byte.
        with open(blocked, "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with self.serve(arena=place) as service:
                wait_until(lambda: any(has_open(pid, blocked) for pid in service.workers()), "a worker waits")
                filler = os.open(place / "filler", os.O_CREAT | os.O_WRONLY)
                os.posix_fallocate(filler, 0, (60 << 20) - memory_in(place))
                os.close(filler)
                fcntl.flock(lock, fcntl.LOCK_UN)
                self.assertEqual(service.finish(), 1, service.stderr())
                self.assertRegex(service.stderr(), r"cannot reserve \d+ bytes .*: \d+ bytes are free")
                wait_until(lambda: not service.alive(), "all processes end")
        self.assertEqual([path.name for path in place.rglob("*") if path.is_file()], ["filler"])

    def test_huge_pages_that_are_not_there_are_refused(self):
        text = self.refusal("--huge-pages", "2m", arena=self.folder)
        self.assertIn("is no hugetlbfs", text)
        self.assertIn("mount -t hugetlbfs -o pagesize=2M", text)
        place = self.tmpfs("hugetlbfs", "-o", "pagesize=2M")
        pools = list(Path("/sys/devices/system/node").glob("node*/hugepages/hugepages-2048kB/free_hugepages"))
        if sum(int(pool.read_text()) for pool in pools) > 2:
            self.skipTest("this machine has huge pages")
        text = self.refusal("--huge-pages", "2m", arena=place)
        self.assertRegex(text, r"need huge pages of 2 MiB: \d+ (on node 0|in all) where \d free|where \d are free")
        self.assertIn("nr_hugepages", text)
        self.assertEqual([path for path in place.rglob("*") if path.is_file()], [])

    @unittest.skipUnless(FULL, "changes the machine's number of huge pages; NUMOE_FULL=1 runs it")
    def test_huge_pages_are_used_where_there_are_enough(self):
        place = self.tmpfs("hugetlbfs", "-o", "pagesize=2M")
        number = Path("/proc/sys/vm/nr_hugepages")
        before = number.read_text()
        self.addCleanup(number.write_text, before)
        number.write_text(str(int(before) + 24))
        with self.serve("--huge-pages", "2m", "--keep-weights", arena=place) as service:
            service.wait_ready()
            service.complete(PROMPT, **GREEDY)
            [arena] = json.loads(self.shm("ls", "--json", arena=place)[1])["arenas"]
            self.assertEqual(arena["pages"], "2.0 MiB")
            self.stop(service)
        self.assertEqual(self.shm("rm", arena=place)[0], 0)

    def test_a_small_memlock_limit_is_one_warning(self):
        if os.geteuid() != 0 or shutil.which("setpriv") is None or shutil.which("prlimit") is None:
            self.skipTest("needs root, setpriv and prlimit")
        limited = self.folder / "limited"
        limited.write_text(f'#!/bin/sh\nexec prlimit --memlock=65536 setpriv --bounding-set -ipc_lock '
                           f'--inh-caps -ipc_lock {BINARY} "$@"\n')
        limited.chmod(0o755)
        with Service(limited, "--nodes", 1, "--ctx", 128, "--mlock", arena=self.folder) as service:
            service.wait_ready()
            service.complete(PROMPT, **GREEDY)
            self.assertEqual(service.stderr().count("--mlock:"), 1)
            self.assertIn("may lock 64.0 KiB", service.stderr())
            self.stop(service)
        with self.serve("--mlock") as service:
            service.wait_ready()
            self.assertNotIn("--mlock:", service.stderr())
            [worker] = service.workers()
            locked = [line for line in Path(f"/proc/{worker}/status").read_text().splitlines()
                      if line.startswith("VmLck")]
            self.assertGreater(int(locked[0].split()[1]) * 1024, COPY / 2)
            self.stop(service)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    MAY_MOUNT = in_private_mounts()
    BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)  # tells why a test was skipped
