#!/usr/bin/python3
"""divvy-sim by its command line: what workload files can say, and what is reported of them.

usage: test_sim.py DIVVY-SIM EXAMPLES-DIRECTORY
"""
import pathlib
import subprocess
import sys
import tempfile

SIM, EXAMPLES = sys.argv[1], pathlib.Path(sys.argv[2])
TIMEOUT_S = 60
failures = []


def start(text, *options):
    """The finished process of divvy-sim with this workload; the suite must not hang with it."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        return subprocess.run([SIM, *options, file.name], capture_output=True, text=True,
                              timeout=TIMEOUT_S)


def check(what, holds, detail=""):
    print(f"{'ok' if holds else 'WRONG':5} {what}{': ' if detail != '' else ''}{detail}")
    if not holds:
        failures.append(what)


def near(what, value, expected, tolerance):
    check(what, abs(value - expected) <= tolerance,
          f"{value:.3f}, expected {expected:g} within {tolerance:g}")


# ---- it always ends ----

def ends_whatever_the_policy_does():
    """Two latency tenants of great weight beside a guarantee, and no overheads."""
    for policy in "elastic", "fair", "fifo", "band":
        done = start("duration: 5s\ndevices: [{name: gpu0}]\ntenants:\n"
                     "  - {name: L1, class: latency, weight: 10, kernel: 2ms}\n"
                     "  - {name: L2, class: latency, weight: 10, kernel: 2ms}\n"
                     "  - {name: G, request: 50%, kernel: 2ms}\n", "--policy", policy)
        at_fault = done.returncode == 1 and f"policy '{policy}' on device 'gpu0'" in done.stderr
        check(f"{policy}: ends, or says why not", done.returncode == 0 or at_fault,
              done.stderr.strip())


ends_whatever_the_policy_does()
sys.exit(1 if failures else 0)
