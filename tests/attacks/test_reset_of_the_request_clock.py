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
REFUSED = 5          # changes, then it is seen
ASKED_MOST = 1000    # times: a machine that is slower cannot ask too often

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
        both = had["share"] + took["share"]   # slowness of the machine counts for neither
        assert had["share"] / both >= ENTITLED - POINTS_MOST, (had, took)


def test_changes_are_bounded():
    """More than a few changes within a second are refused. A request for the same share is not a change."""
    with divvytest.Daemon("tenants:\n  - user: root\n    may-request: 10%\n", system=True) as daemon:
        began = time.monotonic()
        stays = leasechannel.Session(daemon, request=50001)
        has, changes, refused = 50001, 1, 0
        for i in range(ASKED_MOST):
            wants = (50001, 60001)[i % 2]
            session = leasechannel.Session(daemon, request=wants)
            if session.text:
                assert "wait a second" in session.text, session.text
                assert wants != has, "the share that it has is refused"
                refused += 1
            elif wants != has:
                has, changes = wants, changes + 1
            session.close()
            if refused == REFUSED:
                break
        stays.close()
        seconds = int(time.monotonic()) - int(began) + 1   # of divvyd's clock, each with its own changes
        assert refused == REFUSED, "%d of %d changes refused in %d s" % (refused, changes, seconds)
        assert CHANGES_PER_S <= changes <= CHANGES_PER_S * seconds
