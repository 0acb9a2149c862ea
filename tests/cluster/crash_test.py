#!/usr/bin/env python3
"""Workers and servers that are killed or stand still: answers go on with the same text, nothing is left behind.

Usage: crash_test.py path/to/numoe path/to/scripted_numoe
With NUMOE_FULL=1 the streams are as long as in docs/operations.md (16 of 1,000 tokens).
"""
import os
import re
import signal
import sys
import threading
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from processes import SECONDS_MAX, wait_until  # noqa: E402
from serving import Service  # noqa: E402
from streams import Streams  # noqa: E402

BINARY = SCRIPTED = None
FULL = os.environ.get("NUMOE_FULL") == "1"
TOKENS = 1000 if FULL else 80
PROMPTS = ["Once upon a time there was a poor miller who had",
           "In the deep forest lived an old woman with her three daughters, and the eldest of them",
           "The king"]
# More tokens than are made before a test is done with it.
ENDLESS = {"max_tokens": 3000, "ignore_eos": True, "seed": 1}


def requests(count=16, tokens=None):
    return [{"prompt": PROMPTS[seed % len(PROMPTS)], "seed": seed, "temperature": 0.9, "ignore_eos": True,
             "max_tokens": tokens or TOKENS} for seed in range(count)]


def expect_end(case, service, code=0, alive=()):
    """The server has ended and left nothing."""
    case.assertEqual(service.finish(), code, service.stderr())
    wait_until(lambda: not service.leftovers(), f"nothing is left; now {service.leftovers()}")
    for pid in alive:
        wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"process {pid} ends")
    case.assertNotIn("CHECK failed", service.stderr())


def stop(case, service, alive=()):
    service.kill(service.process.pid, signal.SIGTERM)
    expect_end(case, service, alive=alive)


def all_ranks(service, count):
    wait_until(lambda: len(service.workers_by_rank()) == count, f"{count} workers run")
    return service.workers_by_rank()


def wait_for_new_workers(service, before):
    """Until none of those is left and the group is ready again."""
    wait_until(lambda: not set(before) & set(service.alive()), "they are gone")
    wait_until(lambda: len(set(service.workers_by_rank()) - set(before)) == len(before), "there are new ones")
    service.wait_ready()


class KilledWorkers(unittest.TestCase):
    """A server of two ranks for each test, since crashes that come soon after each other wait."""

    OPTIONS = ("--nodes", 2, "--ctx", 4096, "--parallel", 16)

    @classmethod
    def setUpClass(cls):
        with Service(BINARY, *cls.OPTIONS) as service:
            service.wait_ready()
            cls.undisturbed = Streams(service, requests()).texts(10 * SECONDS_MAX)
            stop(cls(), service)

    def setUp(self):
        self.service = Service(BINARY, *self.OPTIONS).__enter__()
        self.addCleanup(self.service.__exit__)
        self.service.wait_ready()

    def disturb(self, what, *kills):
        """Runs the streams; each of `kills` names the ranks to kill, the next when all streams move again."""
        streams = Streams(self.service, requests())
        seen = 3
        for ranks in kills:
            streams.wait_for(seen)
            workers = all_ranks(self.service, 2)
            moment = time.monotonic()
            for rank in ranks:
                self.service.kill(workers[rank])
            wait_for_new_workers(self.service, workers)
            streams.wait_for(seen := max(len(events) for events in streams.events) + 2)
            least, most = streams.pauses_after(moment)
            print(f"{what}: the shortest pause is {least:.2f} s, the longest {most:.2f} s")
        self.assertEqual(streams.texts(10 * SECONDS_MAX), self.undisturbed)
        stop(self, self.service)

    def test_a_follower(self):
        self.disturb("follower killed", [1])

    def test_the_leader(self):
        self.disturb("leader killed", [0])

    def test_twice_in_a_row(self):
        self.disturb("killed twice", [1], [0])

    def test_all_workers(self):
        self.disturb("all workers killed", [0, 1])

    def test_while_a_long_prompt_is_read(self):
        request = {"prompt": "Once upon a time " * 700, "seed": 5, "max_tokens": 10, "ignore_eos": True}
        whole = self.service.complete(**request)
        streams = Streams(self.service, [request])
        workers = all_ranks(self.service, 2)
        time.sleep(0.2)  # tidy: allow sleep because any moment will do, and this is one in the middle
        self.service.kill(workers[1])
        self.assertEqual(streams.texts(), [whole])
        stop(self, self.service)

    def test_clients_that_leave_while_there_is_no_group_are_forgotten(self):
        streams = [self.service.stream(PROMPTS[0], **ENDLESS) for _ in range(3)]
        for stream in streams:
            self.assertTrue(stream.next())
        workers = all_ranks(self.service, 2)
        for pid in workers:
            self.service.kill(pid)
        for stream in streams:
            stream.leave()
        wait_for_new_workers(self.service, workers)
        self.assertEqual(self.service.complete(**requests()[0]), self.undisturbed[0])
        stop(self, self.service)

    def test_meanwhile_others_are_told_to_wait(self):
        """Kills what is started again until the next start waits."""
        def kill_all():
            for pid in self.service.workers():
                self.service.kill(pid)
            return re.search("started again in [124] s", self.service.stderr())

        stream = self.service.stream(PROMPTS[0], **ENDLESS)
        self.assertTrue(stream.next())
        wait_until(kill_all, "the next start waits")
        self.assertEqual(self.service.get("/ready")[0], 503)
        status, _, headers = self.service.post("/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 1})
        self.assertEqual(status, 503)
        self.assertIn("Retry-After", headers)
        self.assertEqual(self.service.get("/live")[0], 200)
        self.service.wait_ready()
        stream.leave()
        stop(self, self.service)


class Hangs(unittest.TestCase):
    """A process that stands still is found, and the group starts again."""

    def stalled(self, service, victim, request, before=1):
        """Stops that rank when the stream has got `before` events; the text at the end."""
        pages = []
        stream = Streams(service, [request])
        stream.wait_for(before)
        workers = all_ranks(service, 2)
        service.kill(workers[victim], signal.SIGSTOP)

        def moved():
            pages.append((service.request("GET", "/live", None)[0], service.get("/ready")[0]))
            return not set(workers) & set(service.alive())

        wait_until(moved, "the workers are replaced")
        text = stream.texts()[0]
        self.assertIn("has said nothing for", service.stderr())
        self.assertTrue(all(page == (200, 200) for page in pages[:3]), pages[:3])
        service.wait_ready()
        self.assertEqual(service.get("/live")[0], 200)
        return text

    def test_one_rank_or_the_leader_while_tokens_come_and_while_a_prompt_is_read(self):
        # Steps so short that a busy machine finishes one in far less than the bound.
        with Service(BINARY, "--nodes", 2, "--ctx", 4096, "--hang-timeout", 3, "--chunk", 16) as service:
            service.wait_ready()
            decode = {"prompt": PROMPTS[0], "max_tokens": 200, "seed": 3, "ignore_eos": True}
            prefill = {"prompt": "Once upon a time " * 700, "max_tokens": 3, "seed": 3, "ignore_eos": True}
            expected = {id(request): service.complete(**request) for request in (decode, prefill)}
            for victim in (0, 1):
                self.assertEqual(self.stalled(service, victim, decode), expected[id(decode)])
            self.assertEqual(self.stalled(service, 1, prefill, before=0), expected[id(prefill)])
            stop(self, service)

    def test_a_leader_that_is_silent_is_told_before_it_is_given_up(self):
        with Service(BINARY, "--nodes", 2, "--ctx", 4096, "--hang-timeout", 100, "--chunk", 16) as service:
            service.wait_ready()
            request = {"prompt": PROMPTS[0], "max_tokens": 200, "seed": 3, "ignore_eos": True}
            whole = service.complete(**request)
            stream = Streams(service, [request])
            stream.wait_for(1)
            leader = all_ranks(service, 2)[0]
            service.kill(leader, signal.SIGSTOP)
            wait_until(lambda: not service.is_ready(), "/ready tells")
            status, page, headers = service.get("/ready")
            self.assertEqual((status, page["status"]), (503, "silent"))
            self.assertRegex(page["message"], r"worker 0 .*stopped by a signal.* has said nothing for \d+ s")
            self.assertIn("Retry-After", headers)
            self.assertEqual(service.get("/live")[0], 200, "it can still start the workers again")
            service.kill(leader, signal.SIGCONT)
            self.assertEqual(stream.texts(), [whole])
            service.wait_ready()
            self.assertEqual(all_ranks(service, 2)[0], leader, "the same process")
            stop(self, service)

    def test_a_leader_that_was_stopped_while_idle(self):
        with Service(BINARY, "--nodes", 2, "--hang-timeout", 2) as service:
            service.wait_ready()
            request = requests(1, 20)[0]
            whole = service.complete(**request)
            for victim in (0, 1):
                workers = all_ranks(service, 2)
                service.kill(workers[victim], signal.SIGSTOP)
                self.assertEqual((service.get("/live")[0], service.get("/ready")[0]), (200, 200))
                self.assertEqual(service.complete(**request), whole)
                self.assertFalse(set(workers) & set(service.alive()))
            stop(self, service)

    def test_standing_still_again_and_again_is_told_by_live(self):
        """A leader that stops in its first step, each time: /live says so until it is given up."""
        with Service(BINARY, "--nodes", 1, "--hang-timeout", 1) as service:
            service.wait_ready()
            stop_all = threading.Event()

            def freeze():
                while not stop_all.is_set():
                    for pid in service.workers():
                        service.kill(pid, signal.SIGSTOP)
                    time.sleep(0.02)  # tidy: allow sleep because it only spaces the looks
            service.kill(all_ranks(service, 1)[0], signal.SIGSTOP)
            stream = Streams(service, [requests(1, 20)[0]])
            freezing = threading.Thread(target=freeze)
            freezing.start()
            try:
                wait_until(lambda: service.request("GET", "/live", None)[0] == 503, "/live tells")
                self.assertEqual(service.request("GET", "/ready", None)[0], 503)
            finally:
                stop_all.set()
                freezing.join()
            for pid in service.workers():
                service.kill(pid, signal.SIGKILL)
            stream.texts()
            wait_until(lambda: service.get("/live")[0] == 200, "it moves again")
            stop(self, service)

    def test_probes_by_head(self):
        with scripted("load_forever=1") as service:
            self.assertEqual(self.head(service, "/live"), 200)
            self.assertEqual(self.head(service, "/ready"), 503)
            stop(self, service)

    def head(self, service, path):
        import http.client
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=SECONDS_MAX)
        connection.request("HEAD", path)
        reply = connection.getresponse()
        self.assertEqual(reply.read(), b"")
        connection.close()
        return reply.status


class KilledServers(unittest.TestCase):
    OPTIONS = ("--nodes", 2, "--ctx", 2048)

    def start_next(self, first):
        service = first.next_server().__enter__()
        self.addCleanup(service.__exit__)
        return service

    def kill_server(self, service):
        service.kill(service.process.pid)
        self.assertEqual(service.process.wait(SECONDS_MAX), -signal.SIGKILL)

    def test_the_next_one_takes_the_workers_over(self):
        with Service(BINARY, *self.OPTIONS) as first:
            first.wait_ready()
            request = requests(1, 40)[0]
            whole = first.complete(**request)
            running = first.stream(PROMPTS[0], **ENDLESS)
            self.assertTrue(running.next())
            workers = all_ranks(first, 2)
            for again in range(2):
                self.kill_server(first if again == 0 else second)
                self.assertEqual(first.workers_by_rank(), workers, "they stay")
                begin = time.monotonic()
                second = self.start_next(first)
                second.wait_ready()
                print(f"server killed: the next one is ready after {time.monotonic() - begin:.2f} s")
                self.assertIn("taking over the workers", second.stderr())
                self.assertEqual(second.complete(**request), whole)
                self.assertEqual(first.workers_by_rank(), workers, "the same processes")
                self.assertEqual(second.workers(), [], "and no others")
            # They are watched, though they are nobody's children.
            stream = Streams(second, [requests(1, 60)[0]])
            stream.wait_for(3)
            second.kill(workers[1])
            stream.texts()
            self.assertFalse(set(workers) & set(first.alive()))
            stop(self, second, alive=workers)
            running.connection.close()

    def test_workers_that_load_are_taken_over_and_their_load_is_used(self):
        with scripted("load_ms=4000") as first:
            wait_until(lambda: self.loading(first), "it loads")
            workers = all_ranks(first, 2)
            self.kill_server(first)
            second = self.start_next(first)
            seen = []
            wait_until(lambda: seen.append(self.loading(second)) or second.is_ready(), "it is ready")
            self.assertEqual(first.workers_by_rank(), workers, second.stderr())
            self.assertEqual(second.workers(), [])
            self.assertTrue(any(0 < percent < 100 for percent in seen if percent), "how far they are is told")
            stop(self, second, alive=workers)

    def loading(self, service):
        """How far it has come, in percent; None if it does not say."""
        return service.get("/ready")[1].get("progress", {}).get("percent")

    def test_workers_without_a_server_go_and_leave_nothing(self):
        with Service(BINARY, *self.OPTIONS, "--orphan-timeout", 1) as service:
            service.wait_ready()
            workers = all_ranks(service, 2)
            self.kill_server(service)
            expect_end(self, service, -signal.SIGKILL, alive=workers)

    def test_workers_that_load_without_a_server_go_and_leave_nothing(self):
        with scripted("load_ms=600000", "--orphan-timeout", 1) as service:
            wait_until(lambda: self.loading(service) is not None, "it loads")
            workers = all_ranks(service, 2)
            self.kill_server(service)
            expect_end(self, service, -signal.SIGKILL, alive=workers)

    def test_workers_that_load_end_when_they_are_told_to(self):
        with scripted("load_ms=600000") as service:
            wait_until(lambda: self.loading(service) is not None, "it loads")
            workers = all_ranks(service, 2)
            stop(self, service, alive=workers)
        with scripted("load_ms=600000") as service:
            wait_until(lambda: self.loading(service) is not None, "it loads")
            workers = all_ranks(service, 2)
            self.kill_server(service)
            for pid in workers:
                service.kill(pid, signal.SIGTERM)
            wait_until(lambda: not service.alive(), "they end")
            with service.next_server() as second:
                second.wait_ready()
                stop(self, second)

    def test_workers_with_other_options_are_replaced(self):
        with Service(BINARY, *self.OPTIONS) as first:
            first.wait_ready()
            workers = all_ranks(first, 2)
            self.kill_server(first)
            with first.next_server(BINARY, *self.OPTIONS, "--isa", "avx2") as second:
                second.wait_ready()
                wait_until(lambda: not first.alive(), "the old ones are gone")
                self.assertIn("were ended", second.stderr())
                self.assertFalse(set(workers) & set(second.workers()))
                stop(self, second, alive=workers)

    def test_a_group_that_has_lost_a_rank_is_replaced(self):
        with Service(BINARY, *self.OPTIONS) as first:
            first.wait_ready()
            workers = all_ranks(first, 2)
            self.kill_server(first)
            first.kill(workers[1])
            with first.next_server() as second:
                second.wait_ready()
                wait_until(lambda: not first.alive(), "the old one is gone")
                stop(self, second, alive=workers)

    def test_workers_that_do_not_answer_are_replaced(self):
        with Service(BINARY, *self.OPTIONS) as first:
            first.wait_ready()
            workers = all_ranks(first, 2)
            self.kill_server(first)
            first.kill(workers[0], signal.SIGSTOP)
            with first.next_server() as second:
                second.wait_ready()
                self.assertIn("did not answer", second.stderr())
                wait_until(lambda: not first.alive(), "the old ones are gone")
                stop(self, second, alive=workers)

    def test_kill_9_of_everything_five_times_in_a_row(self):
        with Service(BINARY, *self.OPTIONS) as first:
            first.wait_ready()
            request = requests(1, 30)[0]
            whole = first.complete(**request)
            copy = self.bytes_in(first.arena)
            service = first
            for attempt in range(5):
                service.kill_all()
                service.finish()
                service = self.start_next(first)
                if attempt % 2 == 0:
                    service.wait_ready()
                    self.assertEqual(service.complete(**request), whole)
                    self.assertLessEqual(self.bytes_in(first.arena), 1.1 * copy)
            service.wait_ready()
            self.assertEqual(service.complete(**request), whole)
            stop(self, service)

    def bytes_in(self, folder):
        return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())

    def test_two_servers_of_one_model_share_the_weights(self):
        with Service(BINARY, *self.OPTIONS) as first:
            first.wait_ready()
            request = requests(1, 30)[0]
            whole = first.complete(**request)
            arenas = sorted(first.arena.rglob("w-*"))
            self.assertEqual(len(arenas), 2)
            with Service(BINARY, *self.OPTIONS, arena=first.arena, sockets=first.sockets) as second:
                second.wait_ready()
                self.assertEqual(sorted(first.arena.rglob("w-*")), arenas)
                self.assertEqual(second.complete(**request), whole)
                self.assertEqual(sorted(path.name[-2:] for path in first.arena.rglob("serve-*")), [".0", ".1"])
                first.kill(first.process.pid, signal.SIGTERM)
                self.assertEqual(first.finish(), 0, first.stderr())
                wait_until(lambda: not first.alive(), "the first one ends")
                self.assertEqual(second.complete(**request), whole)
                stop(self, second)

    def test_kept_weights_stay_and_nothing_else(self):
        with Service(BINARY, *self.OPTIONS, "--keep-weights") as first:
            first.wait_ready()
            first.kill(first.process.pid, signal.SIGTERM)
            self.assertEqual(first.finish(), 0, first.stderr())
            left = first.leftovers()
            self.assertEqual(len(left), 2, left)
            self.assertTrue(all("/w-" in path for path in left), left)
            with first.next_server(BINARY, *self.OPTIONS) as second:
                second.wait_ready()
                second.kill(second.process.pid, signal.SIGTERM)
                self.assertEqual(second.finish(), 0, second.stderr())
            self.assertEqual(first.leftovers(), left)


def scripted(script, *options):
    return Service(SCRIPTED, "--nodes", 2, *options, environment={"NUMOE_SCRIPT": script})


class Poison(unittest.TestCase):
    def test_a_request_that_brings_workers_down_fails_alone(self):
        with scripted("crash_at_token=99 step_us=300", "--parallel", 8) as service:
            service.wait_ready()
            fields = [{"prompt": [5, 6, 7 + seed], "seed": seed, "max_tokens": 300, "ignore_eos": True,
                       "logit_bias": {"99": -100}} for seed in range(4)]
            undisturbed = Streams(service, fields).texts()
            streams = Streams(service, fields)
            streams.wait_for(5)
            status, body, _ = service.post("/v1/completions", {"prompt": [5, 99, 7], "max_tokens": 3})
            self.assertEqual(status, 500, body)
            self.assertIn("crash", body["error"]["message"])
            self.assertEqual(streams.texts(), undisturbed)
            self.assertEqual(len(re.findall("was killed by signal 6", service.stderr())), 3)
            stop(self, service)

    def test_workers_that_crash_at_every_start_are_given_up(self):
        with scripted("crash_in_load=1") as service:
            expect_end(self, service, 1)
            self.assertRegex(service.stderr(), r"error: worker \d \(process \d+\) was killed by signal 6")


class Draining(unittest.TestCase):
    def test_answers_go_on_after_a_crash_while_the_server_ends(self):
        with Service(BINARY, "--nodes", 2) as service:
            service.wait_ready()
            request = requests(1, 300)[0]
            whole = service.complete(**request)
            streams = Streams(service, [request])
            streams.wait_for(3)
            service.kill(service.process.pid, signal.SIGTERM)
            wait_until(lambda: "a second signal ends at once" in service.stderr(), "it drains")
            service.kill(all_ranks(service, 2)[1])
            self.assertEqual(streams.texts(), [whole])
            expect_end(self, service)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    BINARY, SCRIPTED = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main(verbosity=2)  # tells why a test was skipped
