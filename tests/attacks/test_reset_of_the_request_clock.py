"""A tenant changes its request again and again, so that its guarantee would be due anew each time."""

import contextlib
import json
import os
import subprocess
import sys

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
        texts = []
        for i in range(30):
            session = leasechannel.Session(daemon, request=(50001, 60001)[i % 2])
            texts.append(session.text)
            session.close()
        refused = [text for text in texts if text]
        assert refused and all("wait a second" in text for text in refused), texts
        # ten changes; of the others every second one asks for what there is
        assert 18 <= len(texts) - len(refused) <= 24, len(refused)
        stays.close()
