"""A user keeps the control socket busy: with a request that never ends, with questions, or with connections although
it may not ask at all."""

import contextlib
import os
import socket
import sys
import time

import pytest

import divvytest
import innocents

CONNECTIONS = 8

# Each connection sends a body in chunks of one byte, for ever.
ENDLESS = """import os, socket, sys, time
HEAD = b"POST /v1/version HTTP/1.1\\r\\nHost: divvy\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
connections = [None] * int(sys.argv[2])
while True:
    for i, connection in enumerate(connections):
        try:
            if connection is None:
                connection = connections[i] = socket.socket(socket.AF_UNIX)
                connection.setblocking(False)
                connection.connect(sys.argv[1])
                connection.send(HEAD)
            connection.send(b"1\\r\\nx\\r\\n")
        except BlockingIOError:
            pass
        except OSError:
            connection.close()
            connections[i] = None
"""

# Headers byte by byte, then again on a new connection.
DRIPPING = ENDLESS.replace('HEAD)', 'b"GET /v1/version HTTP/1.1\\r\\nX: ")').replace('b"1\\r\\nx\\r\\n"', 'b"x"')

# A question on each connection.
ASKING = ENDLESS.replace("while True:", """while True:
    for _ in range(8):
        try:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.connect(sys.argv[1])
                asking.send(b"GET /v1/sessions HTTP/1.1\\r\\nHost: divvy\\r\\n\\r\\n")
                asking.recv(4096)
        except OSError:
            pass
    continue
""")


@contextlib.contextmanager
def flood(daemon, program):
    control = os.path.join(daemon.dir, "control", "control.sock")
    os.chmod(control, 0o666)   # as a service manager may have made it
    with innocents.running([[sys.executable, "-c", program, control, str(CONNECTIONS)]]):
        yield


@pytest.mark.parametrize("asks, program", [("no", ASKING), ("yes", ENDLESS)], ids=["refused", "endless bodies"])
def test_a_flood_of_the_control_socket_costs_others_nothing(asks, program):
    with divvytest.Daemon("tenants-see-own: %s\n" % asks, system=True) as daemon:
        innocents.assert_unharmed(daemon, lambda: flood(daemon, program), settle_s=0.3, seconds=1.0)


@pytest.mark.parametrize("asks, program", [("no", ENDLESS), ("no", ASKING), ("yes", ENDLESS), ("yes", DRIPPING),
                                           ("yes", ASKING)],
                         ids=["refused, bodies", "refused", "endless bodies", "dripping headers", "questions"])
def test_a_flood_of_the_control_socket_keeps_divvyd_from_nothing(asks, program):
    with divvytest.Daemon("tenants-see-own: %s\n" % asks, system=True) as daemon:
        innocents.assert_divvyd_is_idle(daemon, lambda: flood(daemon, program), settle_s=0.5)


@pytest.mark.parametrize("head", [b"Transfer-Encoding: chunked", b"Content-Length: 1000000000"])
def test_a_request_with_a_body_is_closed_at_once(head):
    with divvytest.Daemon("tenants-see-own: yes\n", system=True) as daemon, \
            socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.path.join(daemon.dir, "control", "control.sock"))
        connection.send(b"POST /v1/version HTTP/1.1\r\nHost: divvy\r\n" + head + b"\r\n\r\n")
        connection.settimeout(5)
        began = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(4096):
                pass
        assert time.monotonic() - began < 3


def test_operators_are_answered_beside_a_flood():
    with divvytest.Daemon("tenants-see-own: yes\n", system=True) as daemon, flood(daemon, DRIPPING):
        time.sleep(0.5)
        began = time.monotonic()
        daemon.cli("ps")
        assert time.monotonic() - began < 5
