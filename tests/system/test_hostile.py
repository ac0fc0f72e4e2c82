"""Hostile peers: clients that misuse their sockets and their shared memory in every way. Other tenants go on
undisturbed."""

import array
import contextlib
import mmap
import os
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time

import divvytest
import pytest
import leasechannel as lease

HEADER_BYTES = 4096
SCRIBBLE_S = 3.0
OPENCL, LEASES = 1, 2


class RawClient:
    """An OpenCL session without a client library: its shared memory is ours to write to."""

    def __init__(self, daemon, fds=()):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(30)
        self.socket.connect(os.path.join(daemon.dir, "session.sock"))
        hello = lease.HELLO.pack(lease.MAGIC, 1, 1, OPENCL, 0, 0, 0, 0, 0, 0)
        self.socket.sendmsg([hello], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                            if fds else [])
        data, ancillary, _, _ = self.socket.recvmsg(lease.WELCOME.size, socket.CMSG_SPACE(4))
        _, _, self.status, self.id, self.shm_bytes, text = lease.WELCOME.unpack(data)
        self.text = text.split(b"\0")[0].decode()
        self.fd = array.array("i", ancillary[0][2])[0] if ancillary else -1

    def map(self, length):
        return mmap.mmap(self.fd, length)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.socket.close()


@pytest.fixture
def daemon():
    with divvytest.Daemon("sessions-per-user: 1024\n") as running:
        yield running


def compute(daemon, program):
    done = daemon.run([program("compute"), "1", "0"], timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("seed", range(4))
def test_scribbling_in_shared_memory_hurts_nobody_else(daemon, program, seed):
    rng = random.Random(seed)
    compute(daemon, program)
    before = divvytest.Leftovers(daemon)
    with contextlib.ExitStack() as stack:
        end = time.monotonic() + SCRIBBLE_S
        while time.monotonic() < end:
            client = stack.enter_context(contextlib.closing(RawClient(daemon)))
            assert client.status == 0, client.text
            memory = stack.enter_context(contextlib.closing(client.map(16 << 20)))
            for _ in range(rng.choice((100, 5000))):
                at = rng.choice((rng.randrange(0, HEADER_BYTES), rng.randrange(0, 16 << 20))) & ~7
                if rng.random() < 0.5:
                    value = rng.choice((0, 1, 8, 64, 4096, 1 << 20, 1 << 32, (1 << 64) - 1,
                                        rng.getrandbits(64)))
                    memory[at:at + 8] = struct.pack("<Q", value)
                else:
                    memory[at:at + 8] = rng.randbytes(8)
        compute(daemon, program)
        daemon.cli("ps")
    # the sessions' process is this one, which does not end: their workers end when it releases them
    for session in daemon.sessions():
        with contextlib.suppress(ProcessLookupError):
            os.kill(session["worker_pid"], 9)
    before.assert_gone()


def test_shared_memory_cannot_be_resized(daemon):
    with contextlib.closing(RawClient(daemon)) as client:
        assert client.status == 0, client.text
        for size in (0, 4096, 1 << 50):
            with pytest.raises(OSError):
                os.ftruncate(client.fd, size)


def test_descriptors_that_nobody_asked_for_are_closed(daemon, program):
    """The kernel does not let them be sent, or divvyd closes the connection that brings them."""
    before = divvytest.descriptors(daemon.pid)
    for _ in range(50):
        with pytest.raises((PermissionError, struct.error, ConnectionResetError)):
            RawClient(daemon, fds=(0, 1, 2))
    assert daemon.sessions() == []
    divvytest.wait_for(lambda: len(divvytest.descriptors(daemon.pid)) <= len(before) + 1, 10,
                       lambda: "%s" % divvytest.descriptors(daemon.pid))


def test_a_socket_of_one_who_has_ended_is_nobodys(daemon):
    """The sender is identified by its process: another process that has the socket afterwards is not the sender."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if pid == 0:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as session:
                session.connect(os.path.join(daemon.dir, "session.sock"))
                socket.send_fds(theirs, [b"x"], [session.fileno()])
            os._exit(0)
        os.waitpid(pid, 0)
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    with socket.socket(fileno=fds[0]) as session:
        session.send(lease.HELLO.pack(lease.MAGIC, 1, 1, LEASES, 0, 0, 0, 0, 0, 0))
        session.settimeout(30)
        _, _, status, _, _, text = lease.WELCOME.unpack(session.recv(lease.WELCOME.size))
    assert status != 0 and b"cannot be identified" in text, text
    assert daemon.sessions() == []


def test_who_floods_and_does_not_listen_holds_up_nobody(program):
    with contextlib.ExitStack() as stack:
        # it gets the device, and does not read the recall
        daemon = stack.enter_context(divvytest.Daemon("deadlines:\n  standard: 200ms\n"))
        flooder = stack.enter_context(contextlib.closing(lease.Session(daemon)))
        flooder.socket.setblocking(False)
        for number in range(20000):
            try:
                flooder.say(lease.WANT if number % 2 else lease.RELEASE, number)
            except BlockingIOError:
                time.sleep(0.001)
        compute(daemon, program)
        other = stack.enter_context(contextlib.closing(lease.Session(daemon)))
        other.say(lease.WANT)
        other.granted()


def test_who_ignores_a_recall_delays_others_by_the_deadline(program):
    with divvytest.Daemon("deadlines:\n  standard: 500ms\n") as daemon:
        with contextlib.ExitStack() as stack:
            deaf, other = (stack.enter_context(contextlib.closing(lease.Session(daemon)))
                           for _ in range(2))
            for _ in range(2):  # a session that was late once has its full time again
                deaf.say(lease.WANT)
                while deaf.hear()[0] != lease.GRANT:
                    pass
                began = time.monotonic()
                other.say(lease.WANT)
                serial = other.granted(within=10)
                assert 0.4 < time.monotonic() - began < 3
                other.say(lease.RELEASE, serial)
            daemon.await_log("the next session gets it")


def test_who_builds_a_program_keeps_no_device(program):
    """Its kernel is over long before the build is, and commands behind it wait for their turns."""
    with divvytest.Daemon(env={
            "DIVVY_VENDORS": os.path.join(divvytest.build_dir(), "tests", "vendor"),
            "DIVVY_VENDOR_SCRIPT": "clBuildProgram 2 delay 10s"}) as daemon:
        child = daemon.popen([program("meanwhile"), "build"], stdout=subprocess.PIPE)
        try:
            assert child.stdout.readline() == "under way\n"
            with contextlib.closing(lease.Session(daemon)) as other:
                for _ in range(3):
                    other.say(lease.WANT)
                    other.say(lease.RELEASE, other.granted(within=5))
            assert child.communicate(timeout=60)[0] == "done\n"
        finally:
            divvytest.kill_group(child)


# Opens sessions as quickly as it can, and does not wait for what becomes of them.
OPENS = """
import socket, sys
sys.path.insert(0, sys.argv[2])
import leasechannel as lease
hello = lease.HELLO.pack(lease.MAGIC, 1, 1, %d, 0, 0, 0, 0, 0, 0)
while True:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        try:
            s.connect(sys.argv[1])
            s.send(hello)
        except OSError:
            pass  # it has been refused already
""" % OPENCL


def median_delay(session, count=200):
    """How long a free device takes to be granted, in seconds."""
    delays = []
    for _ in range(count):
        began = time.monotonic()
        session.say(lease.WANT)
        serial = session.granted(30)
        delays.append(time.monotonic() - began)
        session.say(lease.RELEASE, serial=serial)
        time.sleep(0.005)
    return statistics.median(delays)


def assert_delay_below(session, bar):
    """Other users of the machine may take whole seconds, but not all of them."""
    seen = []
    while len(seen) < 8 and not (seen and seen[-1] < bar):
        seen.append(median_delay(session))
    assert seen[-1] < bar, seen


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_who_opens_sessions_without_end_delays_no_grant(program):
    """Users take turns in starting sessions, one at a time."""
    with divvytest.Daemon("tenants: []\nsessions-per-user: 1024\n", system=True) as daemon, contextlib.ExitStack() as stack:
        session = lease.Session(daemon)
        stack.callback(session.close)
        compute(daemon, program)  # compiles
        alone = median_delay(session)
        for _ in range(8):
            child = subprocess.Popen(
                [sys.executable, "-c", OPENS, os.path.join(daemon.dir, "session.sock"),
                 os.path.dirname(lease.__file__)], user=20002, group=20002, extra_groups=[])
            stack.callback(child.wait)
            stack.callback(child.kill)
        time.sleep(1)
        assert_delay_below(session, alone + 0.003)
        began = time.monotonic()
        compute(daemon, program)  # as root, who is another user than they are
        assert time.monotonic() - began < 30
        assert daemon.log.count("is refused") < 60 * 20, "refusals flood the log"


def say_hello(daemon, uid=0):
    """A lease-only session of that user, whose welcome is not waited for."""
    os.seteuid(uid)
    try:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.settimeout(30)
        client.connect(os.path.join(daemon.dir, "session.sock"))
        client.send(lease.HELLO.pack(lease.MAGIC, 1, 1, LEASES, 0, 0, 0, 0, 0, 0))
        return client
    finally:
        os.seteuid(os.getuid())


def welcomed(client):
    """The session's number; numbers ascend as sessions begin."""
    _, _, status, number, _, text = lease.WELCOME.unpack(client.recv(lease.WELCOME.size))
    client.close()
    assert status == 0, text
    return number


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_every_user_has_its_turn_to_begin_a_session():
    with divvytest.Daemon("sessions-per-user: 16384\n", system=True) as daemon:
        lease.Session(daemon).close()   # the devices are known
        daemon.process.send_signal(signal.SIGSTOP)
        crowd = [say_hello(daemon, 20002 + number % 2) for number in range(600)]
        last = say_hello(daemon, 20004)
        daemon.process.send_signal(signal.SIGCONT)
        begun = [welcomed(client) for client in crowd]
        assert welcomed(last) - min(begun) < 200


def test_all_who_wait_for_the_devices_are_served():
    with divvytest.Daemon("sessions-per-user: 16384\n") as daemon:
        crowd = [say_hello(daemon, os.geteuid()) for _ in range(300)]
        assert len({welcomed(client) for client in crowd}) == 300
        divvytest.wait_for(lambda: not daemon.sessions(), 10, "closed sessions are still there")


# Asks for memory and gives it back on many sessions, as fast as it can.
FLOODS = """
import contextlib, sys, types
sys.path.insert(0, sys.argv[2])
import leasechannel as lease
sessions = [lease.Session(types.SimpleNamespace(dir=sys.argv[1])) for _ in range(256)]
print("ready", flush=True)
while True:
    for session in sessions:
        session.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            session.say_of_memory(lease.RESERVE, 1 << 20, number=1)
            session.say_of_memory(lease.RETURN, 1 << 20)
            session.socket.recv(4096)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_who_floods_from_many_sessions_delays_no_grant():
    """All sessions of a user together are served as often as another user's single one."""
    with divvytest.Daemon("tenants: []\nsessions-per-user: 1024\n", system=True) as daemon, contextlib.ExitStack() as stack:
        for _ in range(3):
            child = stack.enter_context(subprocess.Popen(
                [sys.executable, "-c", FLOODS, daemon.dir, os.path.dirname(lease.__file__)],
                user=20002, group=20002, extra_groups=[], stdout=subprocess.PIPE, text=True))
            stack.callback(child.kill)
            assert child.stdout.readline() == "ready\n"
        session = stack.enter_context(contextlib.closing(lease.Session(daemon)))
        assert_delay_below(session, 0.02)


# Opens ten thousand sessions, keeps those that it gets, and says how many those were.
HOARDS = """
import resource, socket, sys
sys.path.insert(0, sys.argv[2])
import leasechannel as lease
resource.setrlimit(resource.RLIMIT_NOFILE, (12000, 12000))
kept, refusals = [], set()
for _ in range(10000):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(sys.argv[1])
    s.send(lease.HELLO.pack(lease.MAGIC, 1, 1, int(sys.argv[3]), 0, 0, 0, 0, 0, 0))
    _, _, status, _, _, text = lease.WELCOME.unpack(s.recv(lease.WELCOME.size))
    if status == 0:
        kept.append(s)
    else:
        refusals.add(text.split(b"\\0")[0].decode())
print(len(kept), sorted(refusals), flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
@pytest.mark.parametrize("api, most", [(LEASES, 1024), (OPENCL, 8)], ids=["leases", "workers"])
def test_ten_thousand_sessions(program, api, most):
    config = "tenants: []\nsessions-per-user: %d\n" % most
    with divvytest.Daemon(config, system=True) as daemon:
        compute(daemon, program)
        before = divvytest.Leftovers(daemon)
        with subprocess.Popen(
                [sys.executable, "-c", HOARDS, os.path.join(daemon.dir, "session.sock"),
                 os.path.dirname(lease.__file__), str(api)],
                user=20002, group=20002, extra_groups=[], text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE) as child:
            compute(daemon, program)
            count, words = child.stdout.readline().split(None, 1)
            assert int(count) == most and "has %d sessions already" % most in words
            assert words.count("'") == 2, "one reason for all: %s" % words
            compute(daemon, program)
            child.stdin.write("\n")
        before.assert_gone(within=10.0)
        assert daemon.log.count("is refused") < 10000, "refusals flood the log"
