"""Real numoe processes for tests: started with marks by which all of a run's traces can be found again."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "fairy-tales-moe-21m-Q4_K_M.gguf"
MARK = "NUMOE_TEST_MARK"
SECONDS_MAX = 60  # a backstop against hangs, far above what anything here takes


def wait_until(condition, what):
    """Polls what no file descriptor announces, such as the state of /proc."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {SECONDS_MAX} s in vain: {what}")
        time.sleep(0.01)  # tidy: allow sleep because it only spaces the polls


def in_private_mounts():
    """Starts this program anew where it may mount what nobody else sees. True there; False where that takes rights that
    are missing here."""
    inside = "--inside"
    if inside in sys.argv:
        sys.argv.remove(inside)
        return True
    if os.geteuid() == 0 and shutil.which("unshare"):
        if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0:
            os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv, inside])
    return False


def files(folder):
    return [str(path) for path in sorted(folder.rglob("*")) if not path.is_dir()]


class Run:
    """One command and everything it starts: own session, arena directory, socket directory, mark in the environment.

    Use as a context manager; on leaving, whatever is still alive is killed.
    """

    def __init__(self, binary, *arguments, arena=None, sockets=None, stdin=subprocess.DEVNULL,
                 environment=None, prefix=()):
        self.mark = uuid.uuid4().hex
        self._folder = tempfile.TemporaryDirectory(prefix="numoe-test-")
        self.folder = Path(self._folder.name)
        self.sockets = Path(sockets or self.folder / "sockets")
        self.sockets.mkdir(mode=0o700, exist_ok=True)
        self._arena_folder = None
        if arena is None:
            shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            self._arena_folder = tempfile.TemporaryDirectory(prefix="numoe-test-", dir=shared)
            arena = self._arena_folder.name
        self.arena = Path(arena)
        environment = dict(os.environ, XDG_RUNTIME_DIR=str(self.sockets), **(environment or {}))
        environment[MARK] = self.mark
        command = [str(binary), *map(str, arguments)]
        if command[1:2] in (["run"], ["serve"]):
            command += ["--arena-dir", str(self.arena)]
        self.process = subprocess.Popen([*prefix, *command], env=environment, stdin=stdin, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, start_new_session=True)
        self.out = bytearray()
        self.err = bytearray()
        self._changed = threading.Condition()
        self._readers = [threading.Thread(target=self._read, args=pair, daemon=True)
                         for pair in ((self.process.stdout, self.out), (self.process.stderr, self.err))]
        for reader in self._readers:
            reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill_all()
        self.process.wait(SECONDS_MAX)
        for reader in self._readers:
            reader.join(SECONDS_MAX)
        self._folder.cleanup()
        if self._arena_folder:
            self._arena_folder.cleanup()

    def _read(self, stream, into):
        while piece := os.read(stream.fileno(), 65536):
            with self._changed:
                into += piece
                self._changed.notify_all()
        stream.close()
        with self._changed:
            self._changed.notify_all()

    def wait_for_output(self, count):
        """Returns when at least `count` bytes of the answer have arrived."""
        with self._changed:
            arrived = self._changed.wait_for(
                lambda: len(self.out) >= count or not self._readers[0].is_alive(), SECONDS_MAX)
        if not arrived or len(self.out) < count:
            raise AssertionError(f"{len(self.out)} bytes of output, waiting for {count}; stderr: {self.stderr()}")

    def finish(self):
        """Waits for the command and for the end of its output; the exit code."""
        code = self.process.wait(SECONDS_MAX)
        for reader in self._readers:
            reader.join(SECONDS_MAX)
        return code

    def stdout(self):
        return self.out.decode("utf-8")

    def stderr(self):
        return self.err.decode("utf-8", errors="replace")

    def alive(self):
        """Pids that carry the mark and are no zombies, this command's own included."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if self.mark.encode() in (entry / "environ").read_bytes():
                    if (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                        found.append(int(entry.name))
            except OSError:
                pass  # it ended while we looked
        return sorted(found)

    def workers(self):
        return [pid for pid in self.alive() if pid != self.process.pid]

    def workers_by_rank(self):
        """Pids of the workers that there are, rank 0 first."""
        ranks = {}
        for pid in self.workers():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            ranks.update({int(word[7:]): pid for word in words if word.startswith("--rank=")})
        return [ranks[rank] for rank in sorted(ranks)]

    def kill(self, pid, number=signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def kill_all(self):
        """Again and again: one may be started while we look, and would wait for another server."""
        while pids := self.alive():
            for pid in pids:
                self.kill(pid)

    def interrupt_group(self):
        """As a terminal does on Ctrl-C: the signal goes to every process in the foreground."""
        os.killpg(self.process.pid, signal.SIGINT)

    def leftovers(self):
        """What a finished run left: processes, files in shared memory, sockets, and folders of runs and instances.

        Other empty folders are no leftovers."""
        folders = [str(path) for place in (self.arena, self.sockets) for path in sorted(place.rglob("*"))
                   if path.is_dir() and path.name.startswith(("run-", "serve-", "group-"))]
        return [f"process {pid}" for pid in self.alive()] + files(self.arena) + files(self.sockets) + folders
