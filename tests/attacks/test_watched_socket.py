"""A program waits for its own lease channel a hundred thousand times, so that each message wakes all of them."""

import contextlib

import divvytest
import innocents
import strangers

WATCHES = (200, 1000)   # this many descriptors, in this many sets

WATCHED = """
import resource, select
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
while True:
    session = lease.Session(Daemon)
    if session.status != 0:
        session.close()
        time.sleep(0.1)
        continue
    copies = [os.dup(session.socket.fileno()) for _ in range(int(sys.argv[3]))]
    sets = [select.epoll() for _ in range(int(sys.argv[4]))]
    for one in sets:
        for copy in copies:
            one.register(copy, select.EPOLLIN | select.EPOLLOUT)
    try:
        while True:
            session.say(lease.WANT)
            session.say(lease.RELEASE, session.granted(200))
    except (AssertionError, OSError, struct.error):   # divvyd has ended the session
        for copy in copies:
            os.close(copy)
        session.close()
        del sets
"""


@contextlib.contextmanager
def watched(daemon):
    with innocents.running([strangers.command(daemon, WATCHED, *WATCHES)]):
        yield


def test_the_session_is_ended():
    with divvytest.Daemon(system=True) as daemon:
        innocents.assert_unharmed(daemon, lambda: watched(daemon), settle_s=3.0)
        assert "as its socket has too many watches; it is terminated" in daemon.log
