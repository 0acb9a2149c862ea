#!/usr/bin/env python3
"""What GET and HEAD of /live and /ready say in every state: loading, reading a long prompt, hung, idle.

Usage: probes_test.py path/to/numoe path/to/scripted_numoe
With NUMOE_FULL=1 each state lasts longer, and idling ten minutes.
"""
import http.client
import json
import os
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
LOAD_MS = 60_000 if FULL else 3_000
PROMPT_TOKENS = 2_000 if FULL else 900  # of slow arithmetic
IDLE_SECONDS = 600 if FULL else 12  # longer than a silence that is told
SECONDS_STATE_MAX = 600  # a backstop against hangs, with a sanitizer on a crowded machine
EVERYTHING = [(method, path) for path in ("/live", "/ready") for method in ("GET", "HEAD")]


def ask(service, method, path):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=SECONDS_MAX)
    try:
        connection.request(method, path)
        reply = connection.getresponse()
        body = reply.read()
    finally:
        connection.close()
    if bool(body) != (method == "GET"):
        raise AssertionError(f"{method} {path}: {body}")
    return reply.status


class Probes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """A server that idles while the others are tested."""
        cls.idle = Service(BINARY, "--nodes", 2, "--hang-timeout", 1).__enter__()
        cls.addClassCleanup(cls.idle.__exit__)
        cls.idle.wait_ready()
        cls.idle_workers = cls.idle.workers_by_rank()
        cls.idle_answers = []
        end = time.monotonic() + IDLE_SECONDS
        cls.watcher = threading.Thread(target=cls.watch_idle, args=[end], daemon=True)
        cls.watcher.start()

    @classmethod
    def watch_idle(cls, end):
        while time.monotonic() < end:
            cls.idle_answers.append(tuple(ask(cls.idle, *what) for what in EVERYTHING))
            time.sleep(0.2)  # tidy: allow sleep because it only spaces the looks

    def watch(self, service, is_over):
        """Asks again and again; [(live by GET, live by HEAD, ready by GET, ready by HEAD)] of times at which the
        state was the same before and after."""
        answers = []
        deadline = time.monotonic() + SECONDS_STATE_MAX
        while not is_over():
            self.assertLess(time.monotonic(), deadline, answers[-1:])
            answer = tuple(ask(service, *what) for what in EVERYTHING)
            if not is_over():
                answers.append(answer)
            time.sleep(0.02)  # tidy: allow sleep because it only spaces the looks
        return answers

    def expect(self, answers, live, ready, at_least=5):
        self.assertGreaterEqual(len(answers), at_least)
        self.assertEqual(set(answers), {(live, live, ready, ready)})

    def test_a_long_load_is_live_and_not_ready(self):
        with Service(SCRIPTED, "--nodes", 2, environment={"NUMOE_SCRIPT": f"load_ms={LOAD_MS}"}) as service:
            answers = self.watch(service, lambda: "the model is ready" in service.stderr())
            # It may have become ready while we asked.
            while answers and answers[-1] != (200, 200, 503, 503):
                answers.pop()
            self.expect(answers, live=200, ready=503)
            wait_until(lambda: ask(service, "HEAD", "/ready") == 200, "/ready tells by HEAD")
            self.assertEqual(ask(service, "GET", "/ready"), 200)

    def test_a_long_prompt_is_live_and_ready(self):
        with Service(BINARY, "--nodes", 2, "--isa", "reference", "--ctx", 4096, "--parallel", 1,
                     "--chunk", 128) as service:
            service.wait_ready()
            statuses = []

            def read():
                request = {"prompt": [5 + i % 900 for i in range(PROMPT_TOKENS)], "max_tokens": 1}
                connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=SECONDS_STATE_MAX)
                connection.request("POST", "/v1/completions", json.dumps(request), {"Content-Type": "application/json"})
                statuses.append(connection.getresponse().status)
                connection.close()
            reader = threading.Thread(target=read)
            reader.start()
            answers = self.watch(service, lambda: not reader.is_alive())
            self.expect(answers, live=200, ready=200)
            self.assertEqual(statuses, [200])

    def test_a_leader_that_hangs_is_not_ready_and_is_replaced(self):
        with Service(BINARY, "--nodes", 2, "--hang-timeout", 6, "--chunk", 16, "--ctx", 1024) as service:
            service.wait_ready()
            request = {"prompt": "The king", "max_tokens": 300, "seed": 3, "ignore_eos": True}
            whole = service.complete(**request)
            stream = Streams(service, [request])
            stream.wait_for(1)
            leader = service.workers_by_rank()[0]
            service.kill(leader, signal.SIGSTOP)
            answers = self.watch(service, lambda: leader not in service.alive())
            # First it is only silent, for half of the bound.
            self.assertEqual({answer[:2] for answer in answers if answer[2] == 200}, {(200, 200)})
            silent = [answer for answer in answers if answer[2:] == (503, 503)]
            self.assertGreaterEqual(len(silent), 5, answers)
            self.assertEqual(stream.texts(), [whole])
            wait_until(lambda: ask(service, "HEAD", "/ready") == 200, "the group is ready again")
            self.assertEqual([ask(service, *what) for what in EVERYTHING], [200] * 4)

    def test_with_nothing_to_do_it_stays_live_and_ready(self):
        """The last one: it began with the first one."""
        self.watcher.join(IDLE_SECONDS + SECONDS_MAX)
        self.assertFalse(self.watcher.is_alive())
        self.expect(self.idle_answers, live=200, ready=200)
        self.assertEqual(self.idle.workers_by_rank(), self.idle_workers, "the same processes")
        self.idle.complete("The king", max_tokens=2)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    BINARY, SCRIPTED = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main(verbosity=2)  # tells why a test was skipped
