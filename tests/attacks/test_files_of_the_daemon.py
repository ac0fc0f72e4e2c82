"""A user reaches for what the system's daemon keeps in its runtime directory: the state of all sessions,
the descriptors in the keeper, the lock that says that a daemon runs."""

import divvytest
import innocents
import strangers

REACH = """
import fcntl
for name in sorted(os.listdir(Daemon.dir)):
    path = os.path.join(Daemon.dir, name)
    for mode in (os.O_RDONLY, os.O_RDWR):
        try:
            fd = os.open(path, mode | os.O_NOFOLLOW)
        except OSError:
            continue
        if not os.path.isdir(path):
            print("opened", name)
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        if name == "session.sock":
            continue
        try:
            socket.socket(socket.AF_UNIX, kind).connect(path)
            print("connected to", name)
        except OSError:
            pass
for name in ("x", "session.sock", "state", "control/x"):
    try:
        os.unlink(os.path.join(Daemon.dir, name))
        print("removed", name)
    except OSError:
        pass
    try:
        os.close(os.open(os.path.join(Daemon.dir, name + "2"), os.O_CREAT | os.O_WRONLY))
        print("made", name)
    except OSError:
        pass
"""


def test_nothing_but_the_session_socket_is_reached():
    with divvytest.Daemon(system=True) as daemon:
        assert strangers.run(daemon, innocents.ATTACKER, REACH) == ""
