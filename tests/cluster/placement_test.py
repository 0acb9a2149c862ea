"""placement_test.py NUMOE SCRIPTED_NUMOE DENY_CALLS: status, placement and doctor from the outside, with and without rights.

SCRIPTED_NUMOE is the program with a scripted model; DENY_CALLS runs a command under a seccomp filter.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from processes import MARK, MODEL, SECONDS_MAX, Run, wait_until
from serving import Service

PROMPT = "Once upon a time"
CURE = "--cap-add SYS_NICE"


def command(*arguments, prefix=()):
    """(exit code, stdout, stderr) of a command that asks and ends."""
    run = subprocess.run([*prefix, BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS_MAX,
                         env={key: value for key, value in os.environ.items() if key != MARK}, check=False)
    return run.returncode, run.stdout, run.stderr


def deny(which):
    """The prefix of a command that may not make these calls; a skip where no filter can be set."""
    probe = subprocess.run([DENY_CALLS, which, "/bin/true"], capture_output=True, text=True, check=False)
    if probe.returncode == 125:
        raise unittest.SkipTest(f"no seccomp filter: {probe.stderr.strip()}")
    return [DENY_CALLS, which]


def denied(which, *options):
    """A server that may not make these calls."""
    return Service(BINARY, *options, prefix=deny(which))


def warnings(service):
    return [line for line in service.stderr().splitlines() if ": warning: " in line]


def told(service):
    """The table that the server prints after it is ready."""
    wait_until(lambda: "\n  misplaced" in service.stderr(), "the placement is told")
    return service.stderr()


class Status(unittest.TestCase):
    def test_status_and_placement_as_text_and_json(self):
        with Service(BINARY, "--nodes", 2) as service:
            service.wait_ready()
            table = told(service)
            self.assertIn("the nodes are simulated", table)
            self.assertNotIn("should lie on node", table)
            text = service.complete(PROMPT, max_tokens=8, temperature=0)
            code, out, err = command("status", "--url", service.url)
            self.assertEqual((code, err), (0, ""))
            self.assertIn(f"at {service.url}: ready", out)
            for pid in service.workers():
                self.assertIn(str(pid), out)
            code, out, _ = command("status", "--placement", "--port", service.port)
            self.assertEqual(code, 0)
            self.assertIn("experts", out)
            code, out, _ = command("status", "--placement", "--json", "--url", service.url)
            self.assertEqual(code, 0)
            both = json.loads(out)
            self.assertEqual(both["status"]["status"], "ready")
            self.assertEqual(both["status"]["restarts"], 0)
            ranks = both["placement"]["ranks"]
            self.assertEqual([rank["rank"] for rank in ranks], [0, 1])
            for rank in ranks:
                self.assertIsNone(rank["node"])
                self.check_whole(rank)
            # Too small to be split: one rank has it.
            self.assertIn("router", [own["name"] for rank in ranks for own in rank["classes"]])
            self.assertEqual(service.complete(PROMPT, max_tokens=8, temperature=0), text)

    def check_whole(self, rank):
        """Every class is there, in memory, and looked at page by page."""
        classes = {own["name"]: own for own in rank["classes"]}
        for name in ("experts", "attention", "norms", "embedding", "output", "KV cache", "exchange"):
            self.assertGreater(classes[name]["bytes"], 0, name)
        for name, own in classes.items():
            self.assertEqual(sum(own["bytes_on_node"].values()), own["bytes"], name)
            self.assertEqual((own["bytes_absent"], own["bytes_asked"]), (0, own["bytes"]), name)

    def test_a_single_rank_on_a_real_node_is_bound_there(self):
        with Service(BINARY, "--nodes", 1) as service:
            service.wait_ready()
            rank = service.get("/placement")[1]["ranks"][0]
            self.assertIsNotNone(rank["node"])
            self.assertEqual(rank["source"], "move_pages")
            self.assertEqual(rank["misplaced_percent"], 0)

    def test_misplaced_memory_is_one_warning_with_the_cure(self):
        with Service(SCRIPTED, "--nodes", 2, environment={"NUMOE_SCRIPT": "misplaced_bytes=250000"}) as service:
            service.wait_ready()
            told(service)
            wait_until(lambda: "25.0 % of experts on node 1" in service.stderr(), "the warning")
            lines = [line for line in warnings(service) if "should lie on node 0" in line]
            self.assertEqual(len(lines), 2, "one for each rank")
            code, out, err = command("status", "--placement", "--url", service.url)
            self.assertEqual(code, 0)
            self.assertIn("25.0 % elsewhere", out)
            self.assertIn("Free memory on node 0", err)

    def test_keys_are_asked_for_and_sent(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = Path(folder) / "keys"
            keys.write_text("# of the lab\n  secret \nother\n")
            keys.chmod(0o600)
            with Service(SCRIPTED, "--nodes", 1, "--api-key-file", keys) as service:
                for path in ("/status", "/placement"):
                    self.assertEqual(service.get(path)[0], 401)
                code, out, err = command("status", "--url", service.url)
                self.assertEqual((code, out), (1, ""))
                self.assertIn("--api-key-file", err)
                self.assertNotIn("secret", err)
                code, out, _ = command("status", "--url", service.url, "--api-key-file", keys)
                self.assertEqual(code, 0)
                self.assertIn("answers", out)

    def test_a_server_that_is_not_there_or_still_loads(self):
        code, out, err = command("status", "--port", 1)
        self.assertEqual((code, out), (1, ""))
        self.assertIn("no server answers at http://127.0.0.1:1", err)
        self.assertEqual(command("status", "--url", "https://localhost")[0], 1)
        with Service(SCRIPTED, "--nodes", 2, environment={"NUMOE_SCRIPT": "load_forever=1"}) as service:
            code, out, _ = command("status", "--url", service.url)
            self.assertEqual(code, 0)
            self.assertIn("Loading model", out)
            code, out, err = command("status", "--placement", "--url", service.url)
            self.assertEqual((code, out), (1, ""))
            self.assertIn("Loading model", err)

    def test_restarts_are_counted_and_new_processes_named(self):
        with Service(SCRIPTED, "--nodes", 2) as service:
            service.wait_ready()
            before = {rank["pid"] for rank in service.get("/status")[1]["ranks"]}
            self.assertEqual(before, set(service.workers()))
            service.kill(min(before))
            wait_until(lambda: service.get("/status")[1]["restarts"] == 1, "the workers are back")
            after = {rank["pid"] for rank in service.get("/status")[1]["ranks"]}
            self.assertFalse(before & after)
            self.assertEqual(service.get("/placement")[0], 200)


class WithoutRights(unittest.TestCase):
    """As in containers: the calls about memory policies fail with EPERM."""

    def test_all_denied_serves_warns_once_and_knows_by_numa_maps(self):
        with denied("all", "--nodes", 1) as service:
            service.wait_ready()
            table = told(service)
            self.assertIn("by numa_maps, whole mappings", table)
            lines = [line for line in warnings(service) if "mbind" in line or CURE in line]
            self.assertEqual(len(lines), 1, lines)
            self.assertIn("EPERM", lines[0])
            self.assertIn(CURE, lines[0])
            rank = service.get("/placement")[1]["ranks"][0]
            self.assertEqual(rank["source"], "numa_maps")
            self.assertEqual(rank["misplaced_percent"], 0)
            self.assertEqual({own["name"] for own in rank["classes"]}, {"weights", "KV cache", "exchange"})
            for own in rank["classes"]:
                self.assertGreaterEqual(sum(own["bytes_on_node"].values()), own["bytes"], own["name"])
            text = service.complete(PROMPT, max_tokens=8, temperature=0)
        with Service(BINARY, "--nodes", 1) as service:
            service.wait_ready()
            self.assertEqual(service.complete(PROMPT, max_tokens=8, temperature=0), text)

    def test_only_move_pages_denied_costs_the_page_by_page_view_and_no_warning(self):
        with denied("move_pages", "--nodes", 1) as service:
            service.wait_ready()
            self.assertIn("by numa_maps", told(service))
            self.assertFalse([line for line in warnings(service) if CURE in line])
            self.assertEqual(service.get("/placement")[1]["ranks"][0]["misplaced_percent"], 0)

    def test_strict_placement_refuses(self):
        with Run(BINARY, "serve", MODEL, "--port", 0, "--nodes", 1, "--strict-placement", prefix=deny("all")) as run:
            self.assertEqual(run.finish(), 1)
            self.assertIn("EPERM", run.stderr())
            self.assertIn(CURE, run.stderr())
            self.assertEqual(run.leftovers(), [])

    def test_doctor_names_the_right_that_is_missing(self):
        for which, cure in (("all", CURE), ("move_pages", "seccomp")):
            code, out, _ = command("doctor", "--json", prefix=deny(which))
            self.assertEqual(code, 0)
            rights = next(own for own in json.loads(out)["findings"] if own["id"] == "call_rights")
            self.assertIn("move_pages denied (EPERM)", rights["found"])
            self.assertEqual("mbind denied" in rights["found"], which == "all")
            self.assertIn(cure, rights["cure"])


class Doctor(unittest.TestCase):
    def test_every_finding_as_text_and_json(self):
        code, out, err = command("doctor")
        self.assertEqual((code, err), (0, ""))
        code, text, _ = command("doctor", "--json")
        self.assertEqual(code, 0)
        report = json.loads(text)
        ids = [own["id"] for own in report["findings"]]
        self.assertEqual(len(ids), len(set(ids)))
        for name in ("numa_balancing", "transparent_huge_pages", "shmem_enabled", "cpu_governor", "memlock", "swap",
                     "max_map_count", "arena_directory", "arena_mounts", "remove_ipc", "cpu_quota", "call_rights",
                     "cpuset", "hugetlb_pools", "zone_reclaim_mode", "overcommit", "container", "memory"):
            self.assertIn(name, ids)
            self.assertIn(f" {name}: ", out)
        for own in report["findings"]:
            self.assertTrue(own["found"], own)
            if own["level"] in ("warning", "problem"):
                self.assertTrue(own["why"] and own["cure"], own)

    def test_a_place_for_weights_that_is_none_is_a_problem(self):
        code, out, err = command("doctor", "--arena-dir", "/nonexistent/place")
        self.assertEqual(code, 1)
        self.assertRegex(out, r"problem +arena_directory: .*/nonexistent/place")
        self.assertIn("1 problem keeps numoe from serving", err)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__.strip())
    BINARY, SCRIPTED, DENY_CALLS = (sys.argv.pop(1) for _ in range(3))
    unittest.main(verbosity=2)  # tells why a test was skipped
