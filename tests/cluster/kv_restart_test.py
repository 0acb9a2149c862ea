#!/usr/bin/env python3
"""Workers that are killed leave their KV pools: the next ones compute only what no full block held, with the same text.

Usage: kv_restart_test.py path/to/numoe
"""
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from processes import SECONDS_MAX, wait_until  # noqa: E402
from serving import Service  # noqa: E402
from streams import Streams  # noqa: E402

BINARY = None
BLOCK = 64
PROMPT = "Once upon a time there was a poor miller who had a beautiful daughter. " * 12
TOKENS = 600  # far more than at the kill: a process that got no CPU for a moment is still in time
REQUESTS = [{"prompt": PROMPT, "seed": seed, "temperature": 0.9, "ignore_eos": True, "max_tokens": TOKENS}
            for seed in (1, 2, 2)]


class KeptBlocks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Service(BINARY, "--nodes", 2, "--ctx", 1024, "--parallel", 4) as service:
            service.wait_ready()
            answers = [service.post("/v1/completions", request)[1] for request in REQUESTS]
            cls.texts = [answer["choices"][0]["text"] for answer in answers]
            cls.prompt_tokens = answers[0]["usage"]["prompt_tokens"]
            # One after the other: the same prompt again is found, but for its last position.
            full = (cls.prompt_tokens - 1) // BLOCK
            cls.counted(service, lambda s: s["kv_blocks"]["reused"] >= 2 * full)

    @staticmethod
    def counted(service, enough):
        """The figures of the leader, which are up to a second old: awaited until they are what is said."""
        status = {}

        def is_enough():
            status.update(service.get("/status")[1])
            return status["kv_blocks"]["total"] and not status["kv_blocks"]["used"] and enough(status)
        wait_until(is_enough, "the figures are of now")
        return status

    def disturb(self, rank, prepare=lambda service: None):
        """Kills `rank` when every stream has 70 tokens; returns positions computed by the next group, and blocks found."""
        with Service(BINARY, "--nodes", 2, "--ctx", 1024, "--parallel", 4) as service:
            service.wait_ready()
            streams = Streams(service, REQUESTS)
            streams.wait_for(70)
            prepare(service)
            service.kill(service.workers_by_rank()[rank])
            self.assertEqual(streams.texts(5 * SECONDS_MAX), self.texts)
            # The last tokens of all were computed by the group that came then.
            status = self.counted(service, lambda s: s["steps"]["positions"] >= 3)
            whole = 3 * (self.prompt_tokens + TOKENS - 1)
            wait_until(lambda: self.counted(service, lambda s: True)["steps"]["positions"] +
                       BLOCK * self.counted(service, lambda s: True)["kv_blocks"]["reused"] == whole,
                       "positions that were computed and found make up all")
            status = self.counted(service, lambda s: True)
            self.assertEqual(status["restarts"], 1)
            print(f"rank {rank} killed: {status['steps']['positions']} of {whole} positions computed, "
                  f"{status['kv_blocks']['reused']} blocks found")
            return status["kv_blocks"]["reused"]

    def test_a_follower_is_killed(self):
        self.assertGreaterEqual(self.disturb(1), 3 * ((self.prompt_tokens + 70 - 1) // BLOCK))

    def test_the_leader_is_killed(self):
        self.assertGreaterEqual(self.disturb(0), 3 * ((self.prompt_tokens + 70 - 1) // BLOCK))

    def test_a_pool_that_was_lost_makes_all_start_afresh(self):
        def lose(service):
            pools = list(service.arena.rglob("kv.1"))
            self.assertEqual(len(pools), 1, list(service.arena.rglob("*")))
            pools[0].unlink()
        self.assertEqual(self.disturb(0, lose), 0)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main(verbosity=2)
