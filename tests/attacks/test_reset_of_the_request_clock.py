"""A tenant changes its request again and again, so that its guarantee would be due anew each time."""

import contextlib
import json
import os
import subprocess
import sys
import time

import divvytest
import leasechannel
from players import ATTACKER, VICTIM, Player, play

CONFIG = """tenants:
  - user: "%d"
    weight: 9
  - user: "%d"
    request: 10%%
    may-request: 10%%
""" % (VICTIM, ATTACKER)
SECONDS = 6
ENTITLED = 0.9
POINTS_MOST = 0.15
CHANGES_PER_S = 10   # that divvyd allows the programs of a tenant
ASKED_MOST = 1000    # times, before the machine is too slow to ask too often

TOGGLE = """import json, sys
library, directory = json.loads(sys.argv[1])
sys.path.insert(0, library)
import leasechannel as lease
class Daemon: dir = directory
while True:
    for request in (100001, 99001):
        lease.Session(Daemon, request=request).close()
"""


@contextlib.contextmanager
def toggling(daemon):
    library = os.path.dirname(os.path.abspath(leasechannel.__file__))
    child = subprocess.Popen([sys.executable, "-c", TOGGLE, json.dumps([library, daemon.dir])],
                             user=ATTACKER, group=ATTACKER, extra_groups=[])
    try:
        yield
    finally:
        child.kill()
        child.wait()


def test_changing_a_request_resets_no_clock():
    with divvytest.Daemon(CONFIG, system=True) as daemon:
        victim = Player(daemon, VICTIM, SECONDS, 0.005)
        attacker = Player(daemon, ATTACKER, SECONDS, 0.005)
        with toggling(daemon):
            had, took = play(victim, attacker)
        both = had["share"] + took["share"]   # the machine's own slowness is neither's
        assert had["share"] / both >= ENTITLED - POINTS_MOST, (had, took)


def test_changes_are_bounded():
    """More than a few changes within a second are refused, and a share that stays is none."""
    with divvytest.Daemon("tenants:\n  - user: root\n    may-request: 10%\n", system=True) as daemon:
        stays = leasechannel.Session(daemon, request=50001)
        has, changes, began, refusals = 50001, 0, time.monotonic(), []
        for i in range(ASKED_MOST):
            wants = (50001, 60001)[i % 2]
            session = leasechannel.Session(daemon, request=wants)
            if session.text:
                assert "wait a second" in session.text, session.text
                assert wants != has, "the share that it has is refused"
                refusals.append(session.text)
            elif wants != has:
                has, changes = wants, changes + 1
            session.close()
            if len(refusals) == 5:
                break
        stays.close()
        lasted = time.monotonic() - began
        assert len(refusals) == 5, "%d changes in %.1f s, none of them refused" % (changes, lasted)
        assert changes <= CHANGES_PER_S * (lasted + 2), lasted   # the first and the last second are parts
