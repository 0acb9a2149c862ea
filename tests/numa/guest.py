"""guest.py SHAPE: runs the scenarios of a shape inside the guest; exit code 1 if one fails.

The environment has NUMOE, MODEL, EXPECTED (the text that the host computed) and DENY_CALLS, the program of that name.
"""
import faulthandler
import os
import sys
import time
import traceback

from scenarios import SHAPES, Lab

SCENARIO_SECONDS_MAX = 240  # a scenario that hangs ends the run, and says where, before the lab's own timeout


def main():
    lab = Lab(os.environ["NUMOE"], os.environ["MODEL"], os.environ["EXPECTED"], os.environ["DENY_CALLS"])
    only = sys.argv[2:]
    failed = 0
    for scenario in SHAPES[sys.argv[1]]["scenarios"]:
        name = scenario.__name__
        if only and name not in only:
            continue
        begin = time.monotonic()
        faulthandler.dump_traceback_later(SCENARIO_SECONDS_MAX, exit=True)
        try:
            scenario(lab)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        else:
            print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        faulthandler.cancel_dump_traceback_later()
    print(f"{failed} failed, up {float(open('/proc/uptime').read().split()[0]):.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
