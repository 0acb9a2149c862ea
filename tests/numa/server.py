"""`numoe serve` in the guest: started in a cgroup or under numactl, asked, looked at from outside."""
import glob
import http.client
import json
import os
import re
import subprocess
import tempfile
import time

SECONDS_MAX = 120  # emulation on a crowded machine


def wait_until(condition, what):
    end = time.monotonic() + SECONDS_MAX
    while not (result := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"after {SECONDS_MAX} s not true: {what}")
        time.sleep(0.02)  # tidy: allow sleep because it only spaces the polls
    return result


def equal(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: {found!r}, not {wanted!r}")


def read(path):
    with open(path) as file:
        return file.read()


def numbers(text):
    """{0, 1, 8} of "0-1,8"."""
    parts = [part.split("-") for part in text.strip().split(",") if part]
    return {number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)}


class Cgroup:
    """A group below the root; its parents' controllers are switched on for it."""

    def __init__(self, path, **files):
        self.directory = f"/sys/fs/cgroup/{path}"
        parent = os.path.dirname(self.directory)
        os.makedirs(parent, exist_ok=True)
        above = "/sys/fs/cgroup"
        for part in [""] + os.path.relpath(parent, above).split("/"):
            above = os.path.normpath(os.path.join(above, part))
            with open(f"{above}/cgroup.subtree_control", "w") as control:
                control.write("+cpuset +cpu +memory")
        os.makedirs(self.directory, exist_ok=True)
        for name, value in files.items():
            self.set(name.replace("_", "."), value)

    def set(self, name, value):
        with open(f"{self.directory}/{name}", "w") as file:
            file.write(value)

    def enter(self):
        self.set("cgroup.procs", str(os.getpid()))

    def events(self, name):
        """Of memory, with what happened below it."""
        return int(re.search(rf"^{name} (\d+)$", read(f"{self.directory}/memory.events"), re.M)[1])

    def stat(self, name):
        return int(re.search(rf"^{name} (\d+)$", read(f"{self.directory}/cpu.stat"), re.M)[1])


class Worker:
    def __init__(self, pid, rank):
        self.pid, self.rank = pid, rank

    def thread_cpus(self):
        """The CPUs that each thread may run on, but for those in which ZeroMQ waits for the broker."""
        found = []
        for path in glob.glob(f"/proc/{self.pid}/task/*/status"):
            status = read(path)
            cpus = numbers(re.search(r"^Cpus_allowed_list:\s*(.*)$", status, re.M)[1])
            if len(cpus) == 1 or not status.startswith("Name:\tZMQbg"):
                found.append(cpus)
        return found


def workers():
    """Of all servers of this kernel, which has one at a time."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = read(path).split("\0")
        except OSError:
            continue  # has ended
        if "worker" not in words[1:2]:
            continue
        rank = next((int(word.split("=")[1]) for word in words if word.startswith("--rank=")), None)
        if rank is not None:
            found.append(Worker(int(path.split("/")[2]), rank))
    return sorted(found, key=lambda worker: worker.rank)


class Server:
    def __init__(self, binary, model, *options, prefix=(), cgroup=None, variables=None, arena="/dev/shm"):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log", dir="/dev/shm")
        command = [*prefix, binary, "serve", model, "--port", "0", "--ctx", "256", "--arena-dir", arena, *options]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log,
            env={**os.environ, **(variables or {})}, preexec_fn=cgroup.enter if cgroup else None)

    def __enter__(self):
        self.port = int(self.await_text(r"listening on http://\S+:(\d+)\n")[1])
        self.await_text(r"the model is ready")
        return self

    def __exit__(self, failure, *_):
        if failure:
            print(f"the server said:\n{self.messages()}", flush=True)
        self.process.terminate()
        try:
            self.process.wait(SECONDS_MAX)
            wait_until(lambda: not workers(), "its workers have ended")
        finally:
            self.process.kill()
            for worker in workers():
                os.kill(worker.pid, 9)

    def messages(self):
        return read(self.log.name)

    def await_text(self, pattern):
        def look():
            found = re.search(pattern, self.messages())
            if not found and self.process.poll() is not None:
                raise AssertionError(f"the server has ended: {self.messages()}")
            return found
        return wait_until(look, f"the server says {pattern}: {self.messages()}")

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_MAX)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def complete(self, prompt, count):
        status, body = self.request("POST", "/v1/completions",
                                    {"prompt": prompt, "max_tokens": count, "temperature": 0})
        if status != 200:
            raise AssertionError(f"{status}: {body}")
        return json.loads(body)["choices"][0]["text"]
