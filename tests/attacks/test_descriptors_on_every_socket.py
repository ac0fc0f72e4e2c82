"""Messages that bring descriptors along, on sockets where none are expected: divvyd keeps none of them."""

import array
import os
import socket

import divvytest
import leasechannel as lease


def bring(channel, data, along):
    """Whether the message could be sent: the kernel may refuse it, and divvyd may hang up on the sender."""
    try:
        channel.sendmsg([data], along)
        return True
    except (PermissionError, BrokenPipeError, ConnectionResetError):
        return False


def test_no_descriptor_stays():
    with divvytest.Daemon() as daemon:
        session = lease.Session(daemon)
        before = len(divvytest.descriptors(daemon.pid))
        fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
        along = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        want = lease.MESSAGE.pack(lease.LEASE_MAGIC, 1, lease.WANT, 0, 0, 0, *[0] * 7)
        memory = lease.MEMORY_MESSAGE.pack(lease.MEMORY_MAGIC, lease.MEMORY_VERSION, lease.RESERVE, 0, 0, 1, 1)
        for _ in range(50):
            bring(session.socket, want, along)
            bring(session.socket, memory, along)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.connect(os.path.join(daemon.dir, "control", "control.sock"))
            if bring(control, b"GET /v1/version HTTP/1.1\r\nHost: divvyd\r\n\r\n", along):
                assert b"200 OK" in control.recv(4096)
        for fd in fds:
            os.close(fd)
        divvytest.wait_for(lambda: len(divvytest.descriptors(daemon.pid)) <= before, 10,
                           "divvyd keeps descriptors that it did not ask for")
        session.close()
        assert lease.Session(daemon).status == 0
