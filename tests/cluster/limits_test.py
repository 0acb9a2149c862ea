#!/usr/bin/env python3
"""Limits that others set around the program: CPU quota, memory of a cgroup, memory that ranks do not share.

Usage: limits_test.py path/to/numoe path/to/private_memory.so

Needs root, for cgroups and mount namespaces; what cannot be set up is skipped.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from processes import MODEL, SECONDS_MAX, Run, in_private_mounts, wait_until  # noqa: E402
from serving import Service  # noqa: E402

BINARY = PRIVATE_MEMORY = None
MAY_MOUNT = False  # in a namespace of our own
PROMPT = "Once upon a time there was a poor miller who had"
GREEDY = {"max_tokens": 12, "temperature": 0}
PERIOD = 100_000  # of a quota, in µs
MIB = 1 << 20


class Cgroup:
    """A group with a service in it, in version 1 or 2 of cgroups; a skip where there can be none."""

    # What version 1 calls the limits of version 2.
    MEMORY_FILES = {False: "memory.limit_in_bytes", True: "memory.max"}

    def __init__(self, case, controller):
        root = Path("/sys/fs/cgroup")
        self.second = (root / "cgroup.controllers").exists()
        self.folder = (root if self.second else root / controller) / f"numoe-test-{os.getpid()}"
        try:
            if self.second:
                (root / "cgroup.subtree_control").write_text(f"+{controller}")
            self.folder.mkdir()
            case.addCleanup(self._remove, self.folder)
            if self.second:
                (self.folder / "cgroup.subtree_control").write_text(f"+{controller}")
            self.service = self.folder / "service"
            self.service.mkdir()
            case.addCleanup(self._remove, self.service)
        except OSError as error:
            case.skipTest(f"no cgroup for {controller}: {error}")
        self.prefix = ["sh", "-c", f'echo $$ >"{self.service}/cgroup.procs" && exec "$@"', "sh"]

    def _remove(self, folder):
        def is_gone():
            try:
                folder.rmdir()
            except OSError:
                return not folder.exists()  # of a process that still ends
            return True
        wait_until(is_gone, f"{folder} is empty")

    def grant_cpus(self, cpus):
        """To the service's parent."""
        quota = int(cpus * PERIOD)
        if self.second:
            (self.folder / "cpu.max").write_text(f"{quota} {PERIOD}")
        else:
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD))
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota))

    def grant_memory(self, amount):
        (self.folder / self.MEMORY_FILES[self.second]).write_text(str(amount))

    def throttled(self):
        """How often the group was stopped, of how many periods in which it ran."""
        fields = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        return int(fields["nr_throttled"]), int(fields["nr_periods"])


def command(*arguments, prefix):
    return subprocess.run([*prefix, BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS_MAX,
                          check=False)


class Quota(unittest.TestCase):
    """1.5 CPUs of time, granted to the parent of the group that the server is in."""

    def setUp(self):
        self.group = Cgroup(self, "cpu")
        self.group.grant_cpus(1.5)
        whole = command("topology", "--json", prefix=())
        ranks = json.loads(whole.stdout)["ranks"]
        if sum(len(rank["cpus"]) for rank in ranks) < 2:
            self.skipTest("one core is no more than the quota")

    def test_serve_keeps_it_and_is_not_stopped_and_doctor_tells_when_it_is(self):
        with Service(BINARY, "--threads-per-node", 0, "--ctx", 4096, prefix=self.group.prefix) as service:
            service.wait_ready()
            self.assertRegex(service.stderr(), r"the cgroup grants 1\.5 CPUs of time: 1 of \d+ compute threads")
            self.assertEqual(len(pinned(service.workers())), 1)
            self.assertLessEqual(self.stops_while_decoding(service), 0.05)
            finding = self.quota_by_doctor()
            self.assertIn("the cgroup grants 1.5 CPUs of time", finding["found"])
            self.assertRegex(finding["found"], r"throttled in \d+ of \d+ periods")
            self.assertIn("at most 1 compute thread is used", finding["why"])
            # The same numbers when it does hurt.
            self.group.grant_cpus(0.2)
            self.assertGreater(self.stops_while_decoding(service), 0.2)
            finding = self.quota_by_doctor()
            self.assertEqual(finding["level"], "warning")
            self.assertIn("0.2 CPUs", finding["found"])
            self.assertIn("cpuset", finding["cure"])
            self.group.grant_cpus(1.5)

    def stops_while_decoding(self, service):
        """The share of periods in which the group was stopped."""
        before = self.group.throttled()
        while self.group.throttled()[1] - before[1] < 20:
            service.complete(PROMPT, max_tokens=1000, ignore_eos=True, seed=1)
        throttled, periods = (now - then for now, then in zip(self.group.throttled(), before))
        print(f"   stopped in {throttled} of {periods} periods", flush=True)
        return throttled / periods

    def quota_by_doctor(self):
        report = json.loads(command("doctor", "--json", prefix=self.group.prefix).stdout)
        return next(own for own in report["findings"] if own["id"] == "cpu_quota")

    def test_plan_and_topology_tell_it_too_and_more_threads_are_a_warning(self):
        told = r"the cgroup grants 1\.5 CPUs of time: 1 of \d+ compute threads"
        for subcommand in (("plan", MODEL), ("topology",)):
            asked = command(*subcommand, prefix=self.group.prefix)
            self.assertEqual(asked.returncode, 0, asked.stderr)
            self.assertRegex(asked.stdout + asked.stderr, told)
            self.assertIn("1 thread", asked.stdout)
            above = command(*subcommand, "--threads-per-node", 2, prefix=self.group.prefix)
            self.assertRegex(above.stdout + above.stderr, r"oversubscribed: \d+ threads, but the cgroup grants 1\.5 CPUs")
        with Service(BINARY, "--threads-per-node", 2, prefix=self.group.prefix) as service:
            wait_until(lambda: "but the cgroup grants 1.5 CPUs of time" in service.stderr(), "serve warns")

    def test_an_affinity_and_the_quota_are_two_limits(self):
        cpu = max(os.sched_getaffinity(0))
        narrow = ["taskset", "-c", str(cpu), *self.group.prefix]
        for cpus, prefix in ((1.5, narrow), (0.5, self.group.prefix)):
            self.group.grant_cpus(cpus)
            report = json.loads(command("topology", "--json", prefix=prefix).stdout)
            self.assertEqual([len(rank["cpus"]) for rank in report["ranks"]], [1], report)
            if prefix is narrow:
                self.assertEqual(report["ranks"][0]["cpus"], [cpu])


def pinned(pids):
    """The CPUs on which threads are that may run nowhere else."""
    found = set()
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            cpus = re.search(r"^Cpus_allowed_list:\s*(\S+)$", (task / "status").read_text(), re.M)[1]
            if cpus.isdigit():
                found.add(int(cpus))
    return found


class Memory(unittest.TestCase):
    """A model that needs 60 % of what the cgroup may use."""

    OPTIONS = ("--nodes", 1, "--threads-per-node", 1, "--ctx", 98304)

    def setUp(self):
        self.group = Cgroup(self, "memory")
        with self.run_in((), self.tmpfs("size=1m")) as run:
            run.finish()
            [need] = re.findall(r"the model needs (\d+)\.\d MiB", run.stderr())
        self.need = int(need) * MIB

    def run_in(self, prefix, arena):
        return Run(BINARY, "run", MODEL, "-p", "x", "-n", 1, *self.OPTIONS, prefix=prefix, arena=arena)

    def tmpfs(self, options):
        if not MAY_MOUNT:
            self.skipTest("mounting a file system needs root")
        place = Path(tempfile.mkdtemp(prefix="numoe-test-"))
        self.addCleanup(place.rmdir)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", place], check=False)
        return place

    def refused(self, arena):
        with self.run_in(self.group.prefix, arena) as run:
            self.assertEqual(run.finish(), 1, run.stderr())
            wait_until(lambda: not run.alive(), "all processes end")
            self.assertNotIn("signal", run.stderr())
            self.assertEqual([path for path in arena.rglob("*") if path.is_file()], [])
            return run.stderr()

    def test_half_of_it_as_a_tmpfs_is_refused(self):
        self.group.grant_memory(self.need * 10 // 6)
        text = self.refused(self.tmpfs(f"size={self.need * 5 // 6}"))
        self.assertRegex(text, r"the model needs .* MiB in .* MiB free of .* MiB")
        for words in ("remount,size=", "--shm-size=", "--arena-dir", "--ctx"):
            self.assertIn(words, text)

    def test_no_more_than_the_cgroup_leaves_is_refused_with_its_limit(self):
        self.group.grant_memory(self.need + MIB)
        text = self.refused(self.tmpfs(f"size={self.need * 2}"))
        self.assertRegex(text, r"the model needs .*limit of .* leaves .*" + Cgroup.MEMORY_FILES[True])
        self.assertIn("docker run --memory", text)

    def test_enough_serves_and_nobody_is_killed(self):
        self.group.grant_memory(self.need * 10 // 6)
        with self.run_in(self.group.prefix, self.tmpfs(f"size={self.need * 2}")) as run:
            self.assertEqual(run.finish(), 0, run.stderr())
            self.assertEqual(run.leftovers(), [])


class PrivateMemory(unittest.TestCase):
    """Each rank in a mount and IPC namespace of its own, over the same sockets."""

    def test_ranks_that_do_not_see_each_others_memory_take_zmq_and_say_so(self):
        text, errors = self.told()
        self.assertIn("exchange:  shm", errors)
        apart, errors = self.told(private=True)
        self.assertEqual(apart, text)
        self.assertIn("exchange:  zmq", errors)
        warnings = [line for line in errors.splitlines() if "warning" in line and "share memory" in line]
        self.assertEqual(len(warnings), 1, errors)
        for words in ("ranks 0 and 1 do not share memory", "exchanging over ZeroMQ", "--arena-dir", "--ipc=host"):
            self.assertIn(words, warnings[0])
        _, errors = self.told("--exchange", "shm", private=True, code=1)
        self.assertIn("--exchange shm: ranks 0 and 1 do not share memory", errors)

    def told(self, *options, private=False, code=0):
        if private and not MAY_MOUNT:
            self.skipTest("mount namespaces need root")
        with tempfile.TemporaryDirectory(prefix="numoe-test-", dir="/dev/shm") as folder:
            # Only a sanitizer minds that it is not the first library.
            sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
            environment = {"LD_PRELOAD": PRIVATE_MEMORY, "PRIVATE_MEMORY": folder, "ASAN_OPTIONS": sanitizer}
            with Run(BINARY, "run", MODEL, "-p", PROMPT, "-n", 20, "--temp", 0, "--nodes", 2, "--threads-per-node", 1,
                     "--stats", *options, arena=folder, environment=environment if private else None) as run:
                self.assertEqual(run.finish(), code, run.stderr())
                wait_until(lambda: not run.alive(), "all processes end")
                self.assertEqual(run.leftovers(), [])
                return run.stdout(), run.stderr()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    MAY_MOUNT = in_private_mounts()
    BINARY, PRIVATE_MEMORY = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main(verbosity=2)  # tells why a test was skipped
