"""A user connects and hands the connection to another: the session is the connector's, and counts as such."""

import os
import socket

import divvytest
import innocents
import leasechannel as lease
import strangers

CONNECT = """
session = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
session.connect(os.path.join(Daemon.dir, "session.sock"))
socket.send_fds(socket.socket(fileno=int(os.environ["CHANNEL"])), [b"x"], [session.fileno()])
sys.stdin.readline()
"""


def test_a_session_is_whose_process_has_connected():
    with divvytest.Daemon(system=True) as daemon:
        here, there = socket.socketpair()
        child = strangers.start(daemon, innocents.ATTACKER, CONNECT, pass_fds=[there.fileno()],
                                env={**os.environ, "CHANNEL": str(there.fileno())})
        try:
            _, fds, _, _ = socket.recv_fds(here, 1, 1)
            connection = socket.socket(fileno=fds[0])
            connection.settimeout(10)
            connection.send(lease.HELLO.pack(lease.MAGIC, 1, 1, 2, 0, 0, 0, 0, 0, 0))
            assert lease.WELCOME.unpack(connection.recv(lease.WELCOME.size))[2] == 0
            assert [s["uid"] for s in daemon.sessions()] == [innocents.ATTACKER]
        finally:
            child.kill()
            child.wait()
        divvytest.wait_for(lambda: not daemon.sessions(), 10, "the session outlives who has opened it")
        connection.close()
