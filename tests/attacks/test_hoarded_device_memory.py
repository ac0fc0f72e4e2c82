"""One user claims all memory of a device without ever holding it, and says that it can give nothing up."""

import os
import sys
import time

import pytest

import divvytest
import strangers
from innocents import ATTACKER, INNOCENTS

sys.path.insert(0, os.path.join(divvytest.REPOSITORY, "tests", "system"))
from test_memory import Tenant  # noqa: E402

MIB = 1 << 20
PROMPT_S = 8.0

# Claims all there is, again and again, and answers each EVICT with "nothing else".
HOARDER = """
sessions = [lease.Session(Daemon) for _ in range(4)]
for session in sessions:
    session.say_of_memory(lease.PLACE, 1 << 40, lease.AHEAD, number=1)
print("ready", flush=True)
while True:
    for session in sessions:
        heard = session.hear_of_memory(0.01)
        if heard and heard[0] == lease.EVICT:
            session.say_of_memory(lease.KEEPS, heard[1], number=session.number)
        session.say_of_memory(lease.PLACE, 1 << 40, lease.AHEAD, number=2)
"""


@pytest.fixture
def hoarded():
    """A device with memory of its own, of which a hoarder has all."""
    with divvytest.Daemon('devices:\n  - match: "*"\n    unified: no\n', system=True) as daemon:
        hoarder = strangers.start(daemon, ATTACKER, HOARDER)
        try:
            assert hoarder.stdout.readline() == "ready\n"
            time.sleep(0.5)
            yield daemon
        finally:
            hoarder.kill()
            hoarder.communicate()


def test_others_have_room_beside_a_hoarder(hoarded, program):
    user = {"user": INNOCENTS[0], "group": INNOCENTS[0], "extra_groups": []}
    for size in (64, 256 * MIB):
        tenant = Tenant(hoarded, program, **user)
        began = time.monotonic()
        assert tenant.ask("alloc", 0, size) == "ok"
        assert tenant.ask("fill", 0, 1) == "ok"
        took = time.monotonic() - began
        tenant.child.kill()
        tenant.child.communicate()
        assert took < PROMPT_S, "%d bytes: %.1f s" % (size, took)
