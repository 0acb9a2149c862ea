#!/usr/bin/env python3
"""A server of several replicas: answers as of one node, one replica lost while the others answer on, all taken over.

Usage: replicas_test.py path/to/numoe path/to/scripted_numoe
"""
import signal
import sys
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from processes import MODEL, SECONDS_MAX, Run, wait_until  # noqa: E402
from serving import Service  # noqa: E402
from streams import Streams  # noqa: E402

BINARY = SCRIPTED = None
PROMPTS = ["Once upon a time there was a poor miller who had",
           "In the deep forest lived an old woman with her three daughters, and the eldest of them",
           "The king"]
TWO = ("--strategy", "replicas", "--nodes", 2, "--ctx", 1024, "--parallel", 16)


def requests(count=16, tokens=300):
    return [{"prompt": PROMPTS[seed % len(PROMPTS)], "seed": seed, "temperature": 0.9, "ignore_eos": True,
             "max_tokens": tokens} for seed in range(count)]


def groups(service):
    """Of GET /status, by number."""
    return service.get("/status")[1]["groups"]


def pids(service):
    """Of the workers, [groups][ranks]."""
    ranks = service.get("/status")[1]["ranks"]
    return [[rank["pid"] for rank in ranks if rank["group"] == group]
            for group in range(1 + max(rank["group"] for rank in ranks))]


def wait_all_ready(service):
    service.wait_ready()
    wait_until(lambda: all(group["status"] == "ready" for group in groups(service)), "all replicas are ready")


def weight_files(service):
    return sorted(path.name for path in service.arena.rglob("w-*.arena"))


class Replicas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Service(BINARY, "--nodes", 1, "--ctx", 1024, "--parallel", 16) as service:
            service.wait_ready()
            cls.undisturbed = Streams(service, requests()).texts(5 * SECONDS_MAX)

    def start(self, *options, **run_options):
        service = Service(BINARY, *(options or TWO), **run_options).__enter__()
        self.addCleanup(service.__exit__)
        wait_all_ready(service)
        return service

    def stop(self, service, others=()):
        service.kill(service.process.pid, signal.SIGTERM)
        self.assertEqual(service.finish(), 0, service.stderr())
        wait_until(lambda: not service.leftovers() and not any(other.alive() for other in others),
                   f"nothing is left; now {service.leftovers()}")

    def test_texts_are_those_of_one_node_and_both_replicas_work(self):
        service = self.start()
        self.assertIn("plan: 2 replicas of one node", service.stderr())
        self.assertEqual(service.get("/ready")[1]["groups"], {"ready": 2, "total": 2})
        self.assertEqual(len(weight_files(service)), 1, "simulated nodes are one in truth and share the weights")
        self.assertEqual(Streams(service, requests()).texts(5 * SECONDS_MAX), self.undisturbed)
        wait_until(lambda: all(group["requests"] == 0 for group in groups(service)), "all are done")
        wait_until(lambda: min(group["steps"]["positions"] for group in groups(service)) > 100, "both have worked")
        with Run(BINARY, "status", "--port", service.port, "--placement") as status:
            self.assertEqual(status.finish(), 0, status.stderr())
            self.assertRegex(status.stdout(), r"replica +requests")
            self.assertIn("replica 1: placement of memory", status.stdout())
        self.stop(service)

    def test_several_on_a_node_share_its_weights_and_several_nodes_may_be_one_replica(self):
        few = requests(4, 20)
        with Service(BINARY, "--nodes", 1, "--ctx", 1024) as one:
            one.wait_ready()
            texts = Streams(one, few).texts()
        for options, arenas in ((("--nodes", 1, "--replicas", 2), 1), (("--nodes", 4, "--replicas", 2), 2)):
            service = self.start(*options, "--ctx", 1024)
            self.assertEqual(len(groups(service)), 2)
            self.assertEqual(len(weight_files(service)), arenas)
            self.assertEqual(Streams(service, few).texts(), texts)
            self.stop(service)

    def test_numbers_that_do_not_go_together_are_refused(self):
        with Run(BINARY, "serve", MODEL, "--port", 0, "--nodes", 3, "--replicas", 2) as run:
            self.assertNotEqual(run.finish(), 0)
            self.assertIn("--replicas 2 does not go with 3 nodes", run.stderr())

    def test_a_lost_replica_comes_back_while_the_other_one_answers_on(self):
        service = self.start()
        streams = Streams(service, requests())
        streams.wait_for(3)
        workers = pids(service)
        moment = time.monotonic()
        service.kill(workers[0][0])
        states = []
        wait_until(lambda: states.append(service.get("/ready")[0]) or groups(service)[0]["restarts"] == 1,
                   "it is ready again")
        self.assertEqual(set(states), {200})
        self.assertEqual(streams.texts(5 * SECONDS_MAX), self.undisturbed)
        least, most = streams.pauses_after(moment)
        print(f"one of two replicas killed: the shortest pause is {least:.2f} s, the longest {most:.2f} s")
        self.assertEqual(groups(service)[1]["restarts"], 0)
        self.assertEqual(pids(service)[1], workers[1])
        self.stop(service)

    def test_a_replica_that_stays_away_leaves_its_requests_to_the_others(self):
        # So slow to load that whoever kills it comes in time.
        service = Service(SCRIPTED, *TWO, environment={"NUMOE_SCRIPT": "load_ms=1500 step_us=20000"}).__enter__()
        self.addCleanup(service.__exit__)
        wait_all_ready(service)
        request = {"prompt": PROMPTS[0], "seed": 1, "max_tokens": 300, "ignore_eos": True}
        # Alone, it is in the first one.
        streams = Streams(service, [request])
        streams.wait_for(3)
        self.assertEqual([group["requests"] for group in groups(service)], [1, 0])
        other = set(pids(service)[1])

        def moved():
            for pid in set(service.workers()) - other:
                service.kill(pid)
            return groups(service)[1]["requests"] == 1
        wait_until(moved, "the other one goes on with it")
        self.assertEqual(service.get("/ready")[0], 200)
        self.assertEqual(service.get("/ready")[1]["groups"], {"ready": 1, "total": 2})
        text = streams.texts()[0]
        self.assertEqual(service.complete(**request), text)
        wait_all_ready(service)
        self.stop(service)

    def test_the_next_server_takes_all_replicas_over(self):
        first = self.start()
        request = requests(1)[0]
        workers = pids(first)
        first.kill(first.process.pid)
        first.process.wait(SECONDS_MAX)
        second = first.next_server().__enter__()
        self.addCleanup(second.__exit__)
        wait_all_ready(second)
        self.assertEqual(pids(second), workers)
        self.assertEqual(second.complete(**request), self.undisturbed[0])
        # One of them is lost together with the server: the other one is taken over all the same.
        second.kill(second.process.pid)
        second.kill(workers[1][0])
        second.process.wait(SECONDS_MAX)
        third = first.next_server().__enter__()
        self.addCleanup(third.__exit__)
        wait_all_ready(third)
        self.assertEqual(pids(third)[0], workers[0])
        self.assertNotEqual(pids(third)[1], workers[1])
        self.assertEqual(third.complete(**request), self.undisturbed[0])
        self.stop(third, others=(first,))

    def test_all_that_runs_is_answered_before_the_end(self):
        service = self.start()
        streams = Streams(service, requests(6))
        streams.wait_for(2)
        self.assertEqual([group["requests"] for group in groups(service)], [3, 3])
        service.kill(service.process.pid, signal.SIGTERM)
        self.assertEqual(streams.texts(), self.undisturbed[:6])
        self.assertEqual(service.finish(), 0, service.stderr())
        wait_until(lambda: not service.leftovers(), f"nothing is left; now {service.leftovers()}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    BINARY, SCRIPTED = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main(verbosity=2)
