"""The lease channel, spoken by hand: sessions without a worker, as a front end in a tenant's own
process uses them. Messages are those of src/wire/lease/lease.h and memory.h."""
import os
import socket
import struct
import subprocess
import sys

HELLO = struct.Struct("=IHHIIIIHHI")   # of version 1
HELLO_2 = struct.Struct("=IHHIIIIHHI512s")
WELCOME = struct.Struct("=IHHQQ512s")
MESSAGE = struct.Struct("=IHHIIQQQQQQQQ")
MEMORY_MESSAGE = struct.Struct("=IHHIIQQ")
MAGIC, LEASE_MAGIC, MEMORY_MAGIC = 0x79767664, 0x6573616C, 0x6F6D656D
WANT, CANCEL, RELEASE, JOIN, GRANT, RECALL, JOINED, TURNED_AWAY = 1, 2, 3, 4, 16, 17, 19, 20
SYNC_MESSAGE = struct.Struct("=IHHIIQQQQQQQQQ")
SYNC_MAGIC, SYNC_VERSION, STATE, ASK = 0x636E7973, 2, 1, 16
AGAIN, CONTENDED = 1, 2
RESERVE, RETURN, PLACE, UNPLACE, IN_PLACE, MOVES, KEEPS = range(1, 8)   # of memory
RESERVED, REFUSED, CALL_BACK, PLACED, NO_ROOM, EVICT = range(16, 22)
AHEAD, WAITS = 2, 4
MEMORY_VERSION = 2
PROMPT_S = 5.0   # what should come at once comes within this, on a busy machine too
QUIET_S = 0.3    # what should not come has not come by then


# A program that connects, hands the connection on, and stays.
CONNECT = """import signal, socket, sys
session = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
session.connect(sys.argv[1])
socket.send_fds(socket.socket(fileno=0), [b"x"], [session.fileno()])
signal.pause()
"""


class Session:
    """A lease-only session on device 0; with own_process that of another program, and so of another
    tenant where each program is one."""

    def __init__(self, daemon, request=0, limit=0, weight=0, latency_class=0, devices="", flags=0,
                 own_process=False):
        path = os.path.join(daemon.dir, "session.sock")
        self.process = None
        if own_process:
            self._connect_elsewhere(path)
        else:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.socket.connect(path)
        self.socket.send(HELLO_2.pack(MAGIC, 2, 2, 2, 0, request, limit, weight, latency_class, flags,
                                      devices.encode()))
        self.socket.settimeout(30)   # the daemon may still look for its devices
        _, _, self.status, self.id, _, text = WELCOME.unpack(self.socket.recv(WELCOME.size))
        self.text = text.split(b"\0")[0].decode()
        self.given_back = set()
        self.number = 0

    def _connect_elsewhere(self, path):
        here, there = socket.socketpair()
        self.process = subprocess.Popen([sys.executable, "-c", CONNECT, path], stdin=there)
        there.close()
        with here:
            _, descriptors, _, _ = socket.recv_fds(here, 1, 1)
        self.socket = socket.socket(fileno=descriptors[0])

    def say(self, kind, serial=0, flags=0, device=0, magic=LEASE_MAGIC, version=1):
        if kind == RELEASE:
            self.given_back.add(serial)
        self.socket.send(MESSAGE.pack(magic, version, kind, device, flags, serial, *[0] * 7))

    def say_of_memory(self, kind, bytes_, flags=0, number=0):
        self.socket.send(MEMORY_MESSAGE.pack(MEMORY_MAGIC, MEMORY_VERSION, kind, 0, flags, number, bytes_))

    def hear(self, within=PROMPT_S):
        """(kind, serial, slice in ns), or None when nothing comes."""
        return self.hear_of(0, within)

    def hear_of(self, wanted, within=PROMPT_S):
        """The same about another device than the first. A new daemon's question is answered."""
        self.socket.settimeout(within)
        try:
            data = self.socket.recv(4096)
            while len(data) == SYNC_MESSAGE.size:
                self.answer_state(64, data)
                data = self.socket.recv(4096)
        except TimeoutError:
            return None
        magic, version, kind, device, flags, serial, slice_ns, *_ = MESSAGE.unpack(data)
        assert (magic, version, device) == (LEASE_MAGIC, 1, wanted)
        return kind, serial, slice_ns

    def answer_state(self, devices, asked=None):
        """Tells a new daemon that it holds nothing and waits for nothing."""
        if asked is None:
            self.socket.settimeout(PROMPT_S)
            while len(asked := self.socket.recv(4096)) != SYNC_MESSAGE.size:
                pass
        magic, _, kind, _, _, number, *_ = SYNC_MESSAGE.unpack(asked)
        assert (magic, kind) == (SYNC_MAGIC, ASK)
        for device in range(devices):
            self.socket.send(SYNC_MESSAGE.pack(SYNC_MAGIC, SYNC_VERSION, STATE, device, 0, number, *[0] * 8))

    def hear_of_memory(self, within=PROMPT_S):
        """(kind, bytes), or None; what it hears of leases is passed over. `number` is then the message's."""
        self.socket.settimeout(within)
        try:
            while len(data := self.socket.recv(4096)) != MEMORY_MESSAGE.size:
                pass
        except TimeoutError:
            return None
        _, _, kind, _, _, self.number, bytes_ = MEMORY_MESSAGE.unpack(data)
        return kind, bytes_

    def granted(self, within=PROMPT_S):
        """The grant's serial. A recall may have crossed the release that it asks for."""
        answer = self.hear(within)
        while answer and answer[0] == RECALL and answer[1] in self.given_back:
            answer = self.hear(within)
        assert answer and answer[0] == GRANT, answer
        return answer[1]

    def close(self):
        self.socket.close()
        if self.process:
            self.process.kill()
            self.process.wait()
