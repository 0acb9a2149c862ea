#!/usr/bin/env python3
"""Servers that are killed with all their workers, again and again, in memory for little more than one copy of the model.

Usage: leftovers_test.py path/to/numoe

As root it runs in a mount namespace of its own, where it can make file systems; else those tests are skipped.
With NUMOE_FULL=1 there are five times as many deaths.
"""
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from processes import MODEL, ROOT, in_private_mounts, wait_until  # noqa: E402
from serving import Service  # noqa: E402

BINARY = None
DEATHS = 25 if os.environ.get("NUMOE_FULL") == "1" else 5
MAY_MOUNT = False  # in a namespace of our own
PROMPT = "Once upon a time there was a poor miller who had"
GREEDY = {"max_tokens": 12, "temperature": 0}
OTHER_MODEL = ROOT / "tests" / "golden" / "models" / "qwen3moe-q4_k.gguf"
HEADER_STATE, LOADING = 256, 1  # docs/arena-format.md


def weights(arena):
    return sorted(arena.glob("numoe-*/w-*.arena"))


def memory_in(folder):
    """Bytes that files take, also those without a name."""
    space = os.statvfs(folder)
    return (space.f_blocks - space.f_bfree) * space.f_frsize


def is_loading(arena):
    try:
        with open(arena, "rb") as file:
            file.seek(HEADER_STATE)
            state = file.read(4)
    except OSError:
        return False
    return len(state) == 4 and struct.unpack("<I", state)[0] == LOADING


class Leftovers(unittest.TestCase):
    def tmpfs(self, size):
        if not MAY_MOUNT:
            self.skipTest("mounting a file system needs root")
        place = Path(tempfile.mkdtemp(prefix="numoe-test-"))
        self.addCleanup(place.rmdir)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", place], check=False)
        return place

    def serve(self, place, *options, **more):
        # One sequence, so that nearly all of it is weights.
        return Service(BINARY, "--nodes", 2, "--ctx", 128, "--parallel", 1, *options, arena=place, **more)

    def serve_other(self, place):
        return Service(BINARY, "--nodes", 1, "--ctx", 64, "--parallel", 1, arena=place, model=OTHER_MODEL)

    def kill_everything(self, service):
        """The command and its workers, all at the same moment."""
        os.killpg(service.process.pid, signal.SIGKILL)
        service.kill_all()
        service.finish()

    def stop(self, service):
        service.kill(service.process.pid, signal.SIGTERM)
        self.assertEqual(service.finish(), 0, service.stderr())
        wait_until(lambda: not service.alive(), "all processes end")

    def needs(self):
        """What the other server takes, and this one with it."""
        place = self.tmpfs("256m")
        with self.serve_other(place) as other:
            other.wait_ready()
            others = memory_in(place)
            with self.serve(place) as service:
                service.wait_ready()
                both = memory_in(place)
                expected = service.complete(PROMPT, **GREEDY)
        return others, both - others, expected

    # As a pod that crashes again and again while its /dev/shm stays.

    def test_memory_for_a_fifth_more_than_one_copy_is_enough_however_often_all_are_killed(self):
        others, copy, expected = self.needs()
        place = self.tmpfs(others + copy * 12 // 10)
        with self.serve_other(place) as other:
            other.wait_ready()
            [kept] = weights(place)
            before, text = kept.stat(), other.complete("The", **GREEDY)
            most = 0
            for kill in (self.kill_while_it_loads, self.kill_when_ready, self.kill_before_it_has_a_size):
                for _ in range(DEATHS):
                    kill(place, kept, expected)
                    most = max(most, memory_in(place) - others)
                    self.assertLessEqual(most, copy * 11 // 10, kill.__name__)
            with self.serve(place) as last:
                last.wait_ready()
                self.assertEqual(last.complete(PROMPT, **GREEDY), expected)
                self.assertLessEqual(memory_in(place) - others, copy * 11 // 10)
                self.stop(last)
            after = kept.stat()
            self.assertEqual((after.st_ino, after.st_mtime_ns), (before.st_ino, before.st_mtime_ns))
            self.assertEqual(other.complete("The", **GREEDY), text)
            self.assertEqual(weights(place), [kept])
            self.stop(other)
        print(f"   most memory was {most / copy:.2f} of a copy", flush=True)
        self.assertEqual([str(path) for path in place.rglob("*") if path.is_file()], [])

    def own(self, place, kept):
        return [arena for arena in weights(place) if arena != kept]

    def kill_while_it_loads(self, place, kept, _):
        """Until it has died so; what the last one left may be ready, and then there is nothing to load."""
        for _ in range(20):
            for arena in self.own(place, kept):
                arena.unlink()
            with self.serve(place) as service:
                wait_until(lambda: any(map(is_loading, self.own(place, kept))) or service.is_ready(), "it loads")
                self.kill_everything(service)
            if any(map(is_loading, self.own(place, kept))):
                return
        raise AssertionError("20 servers were ready before they could be killed")

    def kill_when_ready(self, place, _, expected):
        with self.serve(place) as service:
            service.wait_ready()
            self.assertEqual(service.complete(PROMPT, **GREEDY), expected)
            self.kill_everything(service)

    def kill_before_it_has_a_size(self, place, kept, expected):
        """A death between creating a file and giving it a size."""
        self.kill_when_ready(place, kept, expected)
        for path in self.own(place, kept) + [kv for kv in place.glob("numoe-*/serve-*/kv.*")
                                             if not self.is_used(kv)]:
            path.write_bytes(b"")

    def is_used(self, path):
        wanted = path.stat()
        locks = Path("/proc/locks").read_text().split()
        return any(word.endswith(f":{wanted.st_ino}") for word in locks)

    # Who lives is known by locks.

    def test_a_number_of_a_process_that_belongs_to_somebody_else_now_is_nobody(self):
        place = Path(tempfile.mkdtemp(prefix="numoe-test-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, place, ignore_errors=True)
        stranger = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(stranger.wait)
        self.addCleanup(stranger.kill)
        with self.serve(place) as first:
            first.wait_ready()
            expected = first.complete(PROMPT, **GREEDY)
            self.kill_everything(first)
            members = sorted(place.glob("numoe-*/serve-*/worker.*"))
            self.assertEqual(len(members), 2)
            for member in members:
                self.assertTrue(member.read_text().isdigit())
                member.write_text(str(stranger.pid))
            with first.next_server() as second:
                second.wait_ready()
                self.assertNotIn("taking over the workers", second.stderr())
                self.assertEqual(second.complete(PROMPT, **GREEDY), expected)
                self.assertIsNone(stranger.poll(), "the stranger lives")
                self.stop(second)
        self.assertIsNone(stranger.poll(), "the stranger lives")
        self.assertEqual([str(path) for path in place.rglob("*") if path.is_file()], [])

    def test_two_starts_at_once_after_a_death_in_the_middle_of_loading(self):
        place = Path(tempfile.mkdtemp(prefix="numoe-test-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, place, ignore_errors=True)
        for _ in range(2):
            self.kill_while_it_loads(place, None, None)
            with self.serve(place) as one, self.serve(place) as other:
                for service in (one, other):
                    service.wait_ready()
                self.assertEqual(one.complete(PROMPT, **GREEDY), other.complete(PROMPT, **GREEDY))
                self.assertEqual(len(weights(place)), 2, "one of each rank")
                self.stop(one)
                self.stop(other)
            self.assertEqual([str(path) for path in place.rglob("*") if path.is_file()], [])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    MAY_MOUNT = in_private_mounts()
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)  # tells why a test was skipped
