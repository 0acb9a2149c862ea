"""`numoe serve` for tests: started on a free port, spoken to by plain HTTP."""
import http.client
import json
import re
import socket

from processes import MODEL, SECONDS_MAX, Run, wait_until


class Service(Run):
    """A server that listens; wait_ready() says when the model is loaded."""

    def __init__(self, binary, *options, model=MODEL, port=0, **run_options):
        threads = () if "--threads-per-node" in options else ("--threads-per-node", 1)
        super().__init__(binary, "serve", model, "--port", port, *threads, *options, **run_options)
        self.options = (binary, *options)
        self.port = None

    def __enter__(self):
        wait_until(lambda: self._find_port() or self.process.poll() is not None, "the server listens")
        if self.port is None:
            self.finish()
            raise AssertionError(f"no server: {self.stderr()}")
        return self

    def _find_port(self):
        found = re.search(r"listening on http://(\S+):(\d+)\n", self.stderr())
        if found:
            self.port = int(found.group(2))
        return found

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def get(self, path, headers=None):
        """(status, body as JSON, headers)"""
        return self.request("GET", path, None, headers)

    def post(self, path, body, headers=None):
        return self.request("POST", path, json.dumps(body), headers)

    def request(self, method, path, body, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_MAX)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read()), reply.headers
        finally:
            connection.close()

    def next_server(self, *options, **run_options):
        """Another server in the same places and on the same port; by default with the same options."""
        return Service(*(options or self.options), port=self.port, arena=self.arena, sockets=self.sockets,
                       **run_options)

    def is_ready(self):
        return self.get("/ready")[0] == 200

    def wait_ready(self):
        wait_until(lambda: self.process.poll() is not None or self.is_ready(), "the model is loaded")
        if self.process.poll() is not None:
            raise AssertionError(self.stderr())

    def complete(self, prompt, **fields):
        status, body, _ = self.post("/v1/completions", {"prompt": prompt, **fields})
        if status != 200:
            raise AssertionError(f"{status}: {body}")
        return body["choices"][0]["text"]

    def stream(self, prompt, **fields):
        return Stream(self.port, "/v1/completions", {"prompt": prompt, "stream": True, **fields})


class Stream:
    """Server-sent events while they come."""

    def __init__(self, port, path, body):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        self._socket = self.connection.sock
        self.reply = self.connection.getresponse()
        self.status = self.reply.status
        self.text = ""
        self.done = False  # [DONE] has come
        self.error = None  # the object of an error event

    def next(self):
        """Reads up to the next event with data; False at the end."""
        while line := self._line():
            if not line.startswith(b"data: "):
                continue
            data = line[6:].strip()
            if data == b"[DONE]":
                self.done = True
                continue
            event = json.loads(data)
            self.error = event.get("error", self.error)
            for choice in event.get("choices", []):
                self.text += choice.get("text") or choice.get("delta", {}).get("content") or ""
            return True
        return False

    def _line(self):
        try:
            return self.reply.readline()
        except (http.client.IncompleteRead, ConnectionError):
            return b""  # the server went without the end of the body

    def read_to_end(self):
        while self.next():
            pass
        self.connection.close()
        return self.text

    def leave(self):
        """Closes the connection in the middle."""
        self.reply.close()
        self._socket.shutdown(socket.SHUT_RDWR)
        self.connection.close()
