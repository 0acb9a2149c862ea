#!/usr/bin/env python3
"""Ctrl-C did not end a command that waited for a slow pipe: signals were blocked while it read.

Usage: blocking_input_test.py path/to/numoe
"""
import os
import signal
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))
from processes import MODEL, Run, wait_until  # noqa: E402

BINARY = None


def waits(pid):
    """Whether a process sleeps with SIGINT blocked: it has read its options and the model and wants its input."""
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    except OSError:
        return False
    return status["State"].split()[0] == "S" and bool(int(status["SigBlk"], 16) & (1 << (signal.SIGINT - 1)))


class BlockingInput(unittest.TestCase):
    def ends_by(self, run, number):
        wait_until(lambda: waits(run.process.pid), "it waits for its input")
        run.kill(run.process.pid, number)
        self.assertEqual(run.finish(), 128 + number, run.stderr())
        self.assertEqual(run.leftovers(), [])

    def test_of_a_pipe_that_nobody_writes_to(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                reader, writer = os.pipe()
                try:
                    with Run(BINARY, "tokenize", MODEL, stdin=reader) as run:
                        self.ends_by(run, number)
                finally:
                    os.close(reader)
                    os.close(writer)

    def test_of_a_fifo_that_nobody_opens(self):
        with tempfile.TemporaryDirectory() as folder:
            fifo = Path(folder) / "fifo"
            os.mkfifo(fifo)
            with Run(BINARY, "perplexity", MODEL, "-f", fifo) as run:
                self.ends_by(run, signal.SIGINT)

    def test_a_fifo_is_read_to_its_end(self):
        with tempfile.TemporaryDirectory() as folder:
            fifo = Path(folder) / "fifo"
            os.mkfifo(fifo)
            with Run(BINARY, "perplexity", MODEL, "-f", fifo, "--ctx", 8) as run:
                with open(fifo, "w", encoding="ascii") as out:
                    out.write("Once upon a time ")
                    out.flush()
                    out.write("there was a poor miller who had three sons. " * 4)
                self.assertEqual(run.finish(), 0, run.stderr())
                self.assertRegex(run.stdout(), r"^perplexity \d")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    BINARY = sys.argv.pop(1)
    unittest.main()
