#!/usr/bin/env python3
"""`numoe serve` from the outside: real workers, real HTTP, crashes, and what is left behind.

Usage: serve_test.py path/to/numoe path/to/scripted_numoe
"""
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from processes import MODEL, SECONDS_MAX, Run, wait_until  # noqa: E402
from serving import Service, Stream  # noqa: E402

BINARY = SCRIPTED = None
PROMPT = "Once upon a time there was a poor miller who had"
# From the model's card: what it says greedily, computed by another engine.
STORY_BEGINS = " three sons. The father was very angry, and said:"
GREEDY = {"max_tokens": 40, "temperature": 0}
# More tokens than are made before a test is done with it.
ENDLESS = {"max_tokens": 19000, "ignore_eos": True, "seed": 1}


def ended(case, service, code=0):
    case.assertEqual(service.finish(), code, service.stderr())
    wait_until(lambda: not service.alive(), "all processes end")
    wait_until(lambda: not service.leftovers(), f"nothing is left; now {service.leftovers()}")
    case.assertNotIn("CHECK failed", service.stderr())


def stop(case, service):
    service.kill(service.process.pid, signal.SIGTERM)
    ended(case, service)


class Serving(unittest.TestCase):
    """One server for all that leaves it as it was."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service(BINARY, "--nodes", 2, "--ctx", 4096, "--log-requests").__enter__()
        cls.service.wait_ready()

    @classmethod
    def tearDownClass(cls):
        try:
            stop(cls(), cls.service)
        finally:
            cls.service.__exit__()

    def curl(self, *arguments):
        if shutil.which("curl") is None:
            self.skipTest("curl is not installed")
        return subprocess.run(["curl", "-sS", "--max-time", str(SECONDS_MAX), *arguments],
                              check=True, capture_output=True, text=True).stdout

    def test_curl_gets_a_completion_and_a_stream(self):
        url = self.service.url + "/v1/completions"
        request = {"prompt": PROMPT, **GREEDY}
        plain = json.loads(self.curl(url, "-H", "Content-Type: application/json", "-d", json.dumps(request)))
        text = plain["choices"][0]["text"]
        self.assertTrue(text.startswith(STORY_BEGINS), text)
        self.assertEqual(plain["usage"]["completion_tokens"], 40)
        streamed = self.curl("-N", url, "-H", "Content-Type: application/json",
                             "-d", json.dumps({**request, "stream": True}))
        self.assertTrue(streamed.endswith("data: [DONE]\n\n"), streamed[-100:])
        events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
        self.assertEqual("".join(event["choices"][0]["text"] for event in events), text)

    def test_curl_sends_large_bodies_without_waiting(self):
        """Above 1 MB it asks first (Expect: 100-continue)."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as body:
            json.dump({"prompt": PROMPT, **GREEDY, "user": "x" * 1_300_000}, body)
            body.flush()
            said = self.curl("-v", "--expect100-timeout", str(SECONDS_MAX), self.service.url + "/v1/completions",
                             "-H", "Content-Type: application/json", "-H", "Expect: 100-continue",
                             "-d", "@" + body.name)
        self.assertTrue(json.loads(said)["choices"][0]["text"].startswith(STORY_BEGINS))

    def test_a_chat_is_answered(self):
        status, body, _ = self.service.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 20, "temperature": 0})
        self.assertEqual(status, 200, body)
        text = body["choices"][0]["message"]["content"]
        stream = Stream(self.service.port, "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 20, "temperature": 0,
            "stream": True})
        self.assertEqual(stream.read_to_end(), text)
        self.assertTrue(stream.done)

    def test_streams_at_once_equal_what_each_gets_alone(self):
        fields = [{"max_tokens": 40, "seed": seed, "temperature": 0.9} for seed in range(6)]
        alone = [self.service.complete(PROMPT, **field) for field in fields]
        self.assertEqual(len(set(alone)), len(alone))
        together = [None] * len(fields)

        def read(index):
            together[index] = self.service.stream(PROMPT, **fields[index]).read_to_end()

        threads = [threading.Thread(target=read, args=(index,)) for index in range(len(fields))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS_MAX)
        self.assertEqual(together, alone)

    def test_a_long_prompt_does_not_stop_another_stream(self):
        """131,072 letters in one word: hard for tokenizers, too long for the context."""
        stream = self.service.stream(PROMPT, **ENDLESS | {"max_tokens": 3000})
        self.assertTrue(stream.next())
        answers = []
        asking = threading.Thread(target=lambda: answers.append(self.service.post(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": "Z" * 131_072}]})))
        asking.start()
        events = 0
        while asking.is_alive() and stream.next():
            events += 1
        asking.join(SECONDS_MAX)
        status, body, _ = answers[0]
        self.assertEqual(status, 400, body)
        self.assertEqual(body["error"]["code"], "context_length_exceeded")
        self.assertGreater(events, 0)
        self.assertTrue(stream.next(), "and it still goes on")
        stream.leave()

    def test_a_prompt_up_to_the_context_is_taken_and_above_it_refused(self):
        ids = [100] * 4096
        for count, expected in ((4095, 200), (4096, 400), (4097, 400)):
            for streams in (False, True):
                status, body, _ = (self.service.post("/v1/completions", {"prompt": ids[:count], "max_tokens": 1})
                                   if not streams else self._stream_status(ids[:count]))
                self.assertEqual(status, expected, (count, body))
                if expected == 400:
                    self.assertEqual(body["error"]["code"], "context_length_exceeded")
                    self.assertIn("4096", body["error"]["message"])

    def _stream_status(self, ids):
        stream = self.service.stream(ids, max_tokens=1)
        if stream.status != 200:
            body = json.loads(stream.reply.read())
            stream.connection.close()
            return stream.status, body, None
        stream.read_to_end()
        return stream.status, None, None

    def test_a_generation_that_reaches_the_context_ends_with_length(self):
        status, body, _ = self.service.post("/v1/completions", {
            "prompt": [100] * 4090, "max_tokens": 1000, "ignore_eos": True})
        self.assertEqual(status, 200)
        self.assertEqual(body["choices"][0]["finish_reason"], "length")
        # The last token needs no place: nothing follows it.
        self.assertEqual(body["usage"]["total_tokens"], 4097)

    def test_the_model_is_listed(self):
        status, body, _ = self.service.get("/v1/models")
        self.assertEqual((status, [model["id"] for model in body["data"]]), (200, [MODEL.stem]))
        self.assertEqual(self.service.get("/v1/models/" + MODEL.stem)[1]["meta"]["context_length"], 4096)

    def test_requests_are_logged_with_their_id(self):
        self.service.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 3, "ignore_eos": True},
                          {"X-Request-Id": "log-me"})
        wait_until(lambda: "log-me" in self.service.stderr(), "the line is written")
        self.assertRegex(self.service.stderr(), r"info: log-me POST /v1/completions 200 \d+\+3 tokens \d+ ms\n")


class Places(unittest.TestCase):
    """How many answers there is room for."""

    def test_clients_that_leave_make_room_and_a_full_queue_says_so(self):
        with Service(BINARY, "--nodes", 1, "--ctx", 20000, "--parallel", 1, "--queue", 1) as service:
            service.wait_ready()
            running = service.stream(PROMPT, **ENDLESS)
            self.assertTrue(running.next())
            waiting = socket.create_connection(("127.0.0.1", service.port))
            body = json.dumps({"prompt": PROMPT, **ENDLESS})
            waiting.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
                            f"\r\n\r\n{body}".encode())

            def refused():
                status, answer, headers = service.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 1})
                return status == 429 and answer["error"]["code"] == "queue_full" and "Retry-After" in headers

            wait_until(refused, "the queue is full")
            waiting.close()
            running.leave()
            # Both have left: one place to run, one to wait, and both take a request again.
            texts = []
            for _ in range(2):
                wait_until(lambda: self._completed(service, texts), "there is room again")
            self.assertTrue(all(text.startswith(STORY_BEGINS) for text in texts))
            stop(self, service)

    def _completed(self, service, texts):
        status, body, _ = service.post("/v1/completions", {"prompt": PROMPT, **GREEDY})
        if status == 200:
            texts.append(body["choices"][0]["text"])
        return status == 200


class Starting(unittest.TestCase):
    """Before there is a group for the first time; crash_test.py has what happens to it later."""

    def test_a_worker_that_cannot_load_is_one_sentence(self):
        with scripted("load_error=1") as service:
            self.assertEqual(service.finish(), 1)
            self.assertIn("the scripted memory is full", service.stderr())
            ended(self, service, 1)

    def test_while_loading_the_port_answers_and_says_so(self):
        with scripted("load_forever=1") as service:
            wait_until(lambda: service.get("/ready")[1].get("progress", {}).get("percent") == 50, "one of two is loaded")
            self.assertEqual(service.get("/live")[0], 200)
            self.assertEqual(service.get("/health")[1]["error"]["message"], "Loading model")
            status, body, headers = service.post("/v1/completions", {"prompt": PROMPT})
            self.assertEqual((status, body["error"]["code"]), (503, "model_not_ready"))
            self.assertIn("Retry-After", headers)
            stop(self, service)

    def test_a_group_that_dies_again_and_again_before_it_is_ready_is_given_up(self):
        with scripted("load_forever=1") as service:
            for attempt in range(3):
                wait_until(lambda: len(service.workers()) == 2, "both workers run")
                workers = service.workers()
                service.kill(workers[0])
                wait_until(lambda: not set(workers) & set(service.alive()), "the group is taken down")
            ended(self, service, 1)
            self.assertIn("started again in 1 s", service.stderr())


def scripted(script):
    return Service(SCRIPTED, "--nodes", 2, environment={"NUMOE_SCRIPT": script})


class Ending(unittest.TestCase):
    def test_sigterm_lets_running_answers_end(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Service(BINARY, "--nodes", 2) as service:
                service.wait_ready()
                whole = service.complete(PROMPT, max_tokens=300, seed=3, ignore_eos=True)
                stream = service.stream(PROMPT, max_tokens=300, seed=3, ignore_eos=True)
                self.assertTrue(stream.next())
                service.kill(service.process.pid, number)
                self.assertEqual(stream.read_to_end(), whole)
                self.assertTrue(stream.done)
                ended(self, service)

    def test_answers_that_do_not_end_in_time_are_told(self):
        with Service(BINARY, "--nodes", 1, "--ctx", 20000, "--drain-timeout", 1) as service:
            service.wait_ready()
            stream = service.stream(PROMPT, **ENDLESS)
            self.assertTrue(stream.next())
            service.kill(service.process.pid, signal.SIGTERM)
            stream.read_to_end()
            self.assertFalse(stream.done)
            self.assertIn("told to end", stream.error["message"])
            ended(self, service)

    def test_a_second_signal_ends_at_once(self):
        with Service(BINARY, "--nodes", 2, "--ctx", 20000) as service:
            service.wait_ready()
            stream = service.stream(PROMPT, **ENDLESS)
            self.assertTrue(stream.next())
            service.kill(service.process.pid, signal.SIGTERM)
            wait_until(lambda: "a second signal ends at once" in service.stderr(), "it drains")
            service.kill(service.process.pid, signal.SIGTERM)
            stream.read_to_end()
            self.assertFalse(stream.done)
            ended(self, service, 128 + signal.SIGTERM)


class Refused(unittest.TestCase):
    def refusal(self, *arguments):
        with Run(BINARY, "serve", *arguments) as run:
            self.assertIn(run.finish(), (1, 2))
            self.assertNotIn("CHECK failed", run.stderr())
            self.assertEqual(run.leftovers(), [])
            return run.stderr()

    def test_what_cannot_be_served_is_one_sentence(self):
        self.assertIn("nosuch.gguf", self.refusal("nosuch.gguf", "--port", 0))
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "part.gguf"
            part.write_bytes(MODEL.read_bytes()[:1_000_000])
            self.assertIn("part.gguf", self.refusal(part, "--port", 0))
            keys = Path(folder) / "keys"
            keys.write_text("secret\n")
            keys.chmod(0o644)
            self.assertIn("chmod 600", self.refusal(MODEL, "--port", 0, "--api-key-file", keys))
            keys.chmod(0o600)
            keys.write_text("# none\n")
            self.assertIn("no key", self.refusal(MODEL, "--port", 0, "--api-key-file", keys))
        self.assertIn("--api-key-file", self.refusal(MODEL, "--port", 0, "--host", "0.0.0.0"))
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.assertIn(f"port {port}", self.refusal(MODEL, "--port", port))

    def test_keys_open_other_addresses(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = Path(folder) / "keys"
            keys.write_text("secret\n")
            keys.chmod(0o600)
            with Service(SCRIPTED, "--nodes", 1, "--host", "0.0.0.0", "--api-key-file", keys) as service:
                self.assertEqual(service.get("/live", {"Host": "gpu.example"})[0], 200)
                self.assertEqual(service.get("/v1/models")[0], 401)
                self.assertEqual(service.get("/v1/models", {"Authorization": "Bearer secret"})[0], 200)
                stop(self, service)

    def test_a_config_file_gives_options_and_the_command_line_comes_first(self):
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "numoe.toml"
            config.write_text('[serve]\nalias = "tales"\nctx = 128\nnodes = 1\n')
            with Service(SCRIPTED, "--config", config, "--ctx", 256) as service:
                service.wait_ready()
                model = service.get("/v1/models")[1]["data"][0]
                self.assertEqual((model["id"], model["meta"]["context_length"]), ("tales", 256))
                stop(self, service)
            config.write_text("[serve]\nnosuch = 1\n")
            self.assertIn("nosuch", self.refusal(MODEL, "--config", config))
            self.assertIn("missing.toml", self.refusal(MODEL, "--config", Path(folder) / "missing.toml"))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    BINARY, SCRIPTED = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main(verbosity=2)  # tells why a test was skipped
