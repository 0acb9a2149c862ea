"""lab_test.py NUMOE DENY_CALLS SHAPE [SCENARIO…]: boots a machine of that shape and runs its scenarios there.

Exit code 77 and a message where this machine has no QEMU and cannot get it, so that CTest skips the test.
"""
import os
import subprocess
import sys
from pathlib import Path

from scenarios import PROMPT, SHAPES, TOKENS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODEL = ROOT / "models" / "fairy-tales-moe-21m-Q4_K_M.gguf"
SKIPPED = 77
LAB_FAILED = 125  # QEMU crashed: nothing that numoe did


def text_of_the_host(binary):
    """What one node of this machine says, with its own kernels."""
    run = subprocess.run([binary, "run", MODEL, "-p", PROMPT, "--temp", "0", "-n", str(TOKENS), "--nodes", "1"],
                         stdout=subprocess.PIPE, text=True, check=True)
    if not run.stdout.startswith(PROMPT) or len(run.stdout) < len(PROMPT) + TOKENS:
        raise AssertionError(f"an answer that says little: {run.stdout!r}")
    return run.stdout[len(PROMPT):-1]


def main():
    binary, deny_calls, shape = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
    environment = {**os.environ, "NUMOE": binary, "DENY_CALLS": deny_calls, "MODEL": str(MODEL),
                   "EXPECTED": text_of_the_host(binary), "PYTHONDONTWRITEBYTECODE": "1"}
    lab = [ROOT / "scripts" / "numa-lab", *SHAPES[shape]["lab"], "--skip-code", str(SKIPPED), "--timeout", "360", "--",
           sys.executable, HERE / "guest.py", *sys.argv[3:]]
    code = subprocess.run(lab, env=environment, check=False).returncode
    if code == LAB_FAILED:
        print("once more, since the machine died, not what ran on it", flush=True)
        code = subprocess.run(lab, env=environment, check=False).returncode
    if code == SKIPPED:
        print("SKIPPED: scripts/numa-lab cannot be set up here; its own message says why")
    return code


if __name__ == "__main__":
    sys.exit(main())
