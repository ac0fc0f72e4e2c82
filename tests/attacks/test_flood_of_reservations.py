"""One user's many sessions ask for more memory than there is, over and over."""

import contextlib

import divvytest
import innocents
import strangers

SESSIONS = 1000
ALL_TOGETHER = 64 << 20   # of the device's memory: each asks for what the others have
NEVER = 1 << 40           # more than any device has
CONFIG = """sessions-per-user: 1024
devices:
  - match: "*"
    capacity: 64MiB
"""

FLOOD = """
sessions = []
for _ in range(int(sys.argv[3])):
    try:
        session = lease.Session(Daemon)
    except OSError:
        break
    if session.status != 0:
        break
    session.socket.setblocking(False)
    session.say_of_memory(lease.RESERVE, 4096, number=1)
    sessions.append(session)
number = 2
while sessions:
    for session in sessions:
        number += 1
        try:
            session.say_of_memory(lease.RETURN, 0, number=1)
            session.say_of_memory(lease.RESERVE, int(sys.argv[4 + number % 2]), number=number)
            while True:
                session.socket.recv(4096)
        except OSError:
            pass
"""


@contextlib.contextmanager
def flood(daemon):
    with innocents.running([strangers.command(daemon, FLOOD, SESSIONS, NEVER, ALL_TOGETHER)]):
        yield


def test_a_flood_of_reservations_costs_others_nothing():
    with divvytest.Daemon(CONFIG, system=True) as daemon:
        innocents.assert_unharmed(daemon, lambda: flood(daemon), settle_s=2, seconds=2.0)


def test_a_flood_of_reservations_keeps_divvyd_from_nothing():
    with divvytest.Daemon(CONFIG, system=True) as daemon:
        innocents.assert_divvyd_is_idle(daemon, lambda: flood(daemon), settle_s=3)
