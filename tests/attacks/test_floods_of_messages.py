"""The many sessions of one user send every kind of message on their lease channels, over and over."""

import contextlib

import pytest

import divvytest
import innocents
import strangers

SESSIONS = 500
CONFIG = """sessions-per-user: 1024
devices:
  - match: "*"
    capacity: 64MiB
    unified: no
deadlines:
  standard: 200ms
"""   # a release may be lost in its own flood, and how long it keeps the device is another matter

FLOOD = """
sessions = [lease.Session(Daemon) for _ in range(int(sys.argv[3]))]
for session in sessions:
    session.socket.setblocking(False)
while True:
    for session in sessions:
        try:
            if sys.argv[4] == "memory":
                session.say_of_memory(lease.PLACE, 1 << 20, flags=lease.AHEAD, number=1)
                session.say_of_memory(lease.PLACE, 1 << 20, number=2)
                session.say_of_memory(lease.KEEPS, 1 << 19, number=1)
                session.say_of_memory(lease.UNPLACE, 1 << 18)
            else:
                session.say(lease.WANT)
                session.say(lease.CANCEL)
                session.say(lease.JOIN, 1)
                session.say(lease.RELEASE, 1)
            while len(data := session.socket.recv(4096)):
                if len(data) == lease.MESSAGE.size and lease.MESSAGE.unpack(data)[2] == lease.GRANT:
                    session.say(lease.RELEASE, lease.MESSAGE.unpack(data)[5])
        except OSError:
            pass
"""


@contextlib.contextmanager
def flood(daemon, kind):
    with innocents.running([strangers.command(daemon, FLOOD, SESSIONS, kind)]):
        yield


@pytest.mark.parametrize("kind", ["memory", "leases"])
def test_floods_of_messages_keep_divvyd_from_nothing(kind):
    with divvytest.Daemon(CONFIG, system=True) as daemon:
        innocents.assert_divvyd_is_idle(daemon, lambda: flood(daemon, kind), settle_s=2)
