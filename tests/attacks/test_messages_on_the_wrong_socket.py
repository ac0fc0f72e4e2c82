"""An OpenCL program speaks of leases and memory on its own socket, where only its worker may."""

import array
import os
import socket

import divvytest
import leasechannel as lease

OPENCL = 1


def test_a_program_does_not_speak_for_its_worker(program):
    with divvytest.Daemon() as daemon:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.settimeout(30)
        client.connect(os.path.join(daemon.dir, "session.sock"))
        client.send(lease.HELLO.pack(lease.MAGIC, 1, 1, OPENCL, 0, 0, 0, 0, 0, 0))
        data, ancillary, _, _ = client.recvmsg(lease.WELCOME.size, socket.CMSG_SPACE(4))
        assert lease.WELCOME.unpack(data)[2] == 0
        try:
            client.send(lease.MESSAGE.pack(lease.LEASE_MAGIC, 1, lease.WANT, 0, 0, 0, *[0] * 7))
            client.send(lease.MEMORY_MESSAGE.pack(lease.MEMORY_MAGIC, lease.MEMORY_VERSION, lease.RESERVE, 0, 0,
                                                  1, 1 << 40))
        except OSError:
            pass   # it has been hung up on
        done = daemon.run([program("compute"), "1", "0"], timeout=60)
        assert done.returncode == 0, done.stderr
        for listed in daemon.sessions():
            assert listed["memory_bytes"] < 1 << 30 and not listed["state"].startswith("waiting")
        for fd in array.array("i", ancillary[0][2]):
            os.close(fd)
        client.close()
