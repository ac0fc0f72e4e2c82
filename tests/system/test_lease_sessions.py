"""The lease channel, spoken by hand: sessions without a worker, as a front end in a tenant's own
process uses them. Messages are those of src/wire/lease/lease.h."""
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time

import divvytest
import pytest

HELLO = struct.Struct("=IHHIIIIHHI")
WELCOME = struct.Struct("=IHHQQ512s")
MESSAGE = struct.Struct("=IHHIIQQQQQQQQ")
MAGIC, LEASE_MAGIC = 0x79767664, 0x6573616C
WANT, CANCEL, RELEASE, GRANT, RECALL = 1, 2, 3, 16, 17
AGAIN, CONTENDED = 1, 2
PROMPT_S = 5.0   # what should come at once comes within this, on a busy machine too
QUIET_S = 0.3    # what should not come has not come by then


class Session:
    """A lease-only session on device 0."""

    def __init__(self, daemon, request=0, limit=0, weight=0, latency_class=0):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(os.path.join(daemon.dir, "session.sock"))
        self.socket.send(HELLO.pack(MAGIC, 1, 1, 2, 0, request, limit, weight, latency_class, 0))
        self.socket.settimeout(30)   # the daemon may still look for its devices
        _, _, self.status, self.id, _, text = WELCOME.unpack(self.socket.recv(WELCOME.size))
        self.text = text.split(b"\0")[0].decode()

    def say(self, kind, serial=0, flags=0, device=0, magic=LEASE_MAGIC, version=1):
        self.socket.send(MESSAGE.pack(magic, version, kind, device, flags, serial, *[0] * 7))

    def hear(self, within=PROMPT_S):
        """(kind, serial, slice in ns), or None when nothing comes."""
        self.socket.settimeout(within)
        try:
            data = self.socket.recv(4096)
        except TimeoutError:
            return None
        magic, version, kind, device, flags, serial, slice_ns, *_ = MESSAGE.unpack(data)
        assert (magic, version, device) == (LEASE_MAGIC, 1, 0)
        return kind, serial, slice_ns

    def granted(self, within=PROMPT_S):
        answer = self.hear(within)
        assert answer and answer[0] == GRANT, answer
        return answer[1]

    def close(self):
        self.socket.close()


@pytest.fixture
def daemon():
    with divvytest.Daemon() as running:
        yield running


@pytest.fixture
def session(daemon):
    with contextlib.ExitStack() as stack:
        yield lambda **share: stack.enter_context(contextlib.closing(Session(daemon, **share)))


def test_one_after_the_other(session):
    first, second = session(), session()
    first.say(WANT)
    serial = first.granted()
    second.say(WANT)
    assert first.hear()[0] == RECALL   # it had been alone, with a long slice
    assert second.hear(QUIET_S) is None
    first.say(RELEASE, serial)
    second_serial = second.granted()
    assert second_serial != serial
    assert first.hear(QUIET_S) is None


def test_again_is_a_wish_at_once(session):
    first, second = session(), session()
    first.say(WANT)
    serial = first.granted()
    second.say(WANT)
    assert first.hear()[0] == RECALL   # so the other's wish has arrived
    first.say(RELEASE, serial, AGAIN)
    other = second.granted()
    second.say(RELEASE, other)
    while (answer := first.hear())[0] == RECALL:
        pass
    assert answer[0] == GRANT and answer[1] not in (serial, other)


def test_a_holder_that_hangs_up_blocks_nobody(session):
    first, second = session(), session()
    first.say(WANT)
    first.granted()
    second.say(WANT)
    first.close()
    second.granted()


def test_a_cancelled_wish_is_not_granted(session):
    first, second, third = session(), session(), session()
    first.say(WANT)
    serial = first.granted()
    second.say(WANT)
    third.say(WANT)
    second.say(CANCEL)
    time.sleep(QUIET_S)   # nothing tells that it has arrived
    first.say(RELEASE, serial)
    third.granted()
    assert second.hear(QUIET_S) is None


def test_serials_of_the_past_count_for_nothing(session):
    first, second = session(), session()
    first.say(WANT)
    old = first.granted()
    first.say(RELEASE, old)
    first.say(WANT)
    new = first.granted()
    second.say(WANT)
    first.say(RELEASE, old)
    first.say(RELEASE, new + 1000)
    assert first.hear()[0] == RECALL
    assert second.hear(QUIET_S) is None
    first.say(RELEASE, new)
    second.granted()


def test_nonsense_is_ignored(session):
    first, second = session(), session()
    for nonsense in (dict(magic=7), dict(version=2), dict(device=16), dict(device=0xFFFFFFFF)):
        first.say(WANT, **nonsense)
    for kind in (0, 4, GRANT, RECALL, 0xFFFF):
        first.say(kind)
    first.socket.send(b"short")
    first.socket.send(b"\0" * 1000)
    first.say(RELEASE, 1)
    assert first.hear(QUIET_S) is None
    second.say(WANT)
    second.granted()


def test_a_limit_holds_back_who_is_alone(session):
    limited = session(limit=100_001)
    began, held = time.monotonic(), 0.0
    while time.monotonic() - began < 2:
        limited.say(WANT)
        serial = limited.granted()
        at = time.monotonic()
        time.sleep(0.005)
        limited.say(RELEASE, serial)
        held += time.monotonic() - at
    assert 0.05 < held / (time.monotonic() - began) < 0.15


def test_leaving_does_not_shed_a_limit(daemon):
    """Who comes back at once finds its limit as it left it."""
    began, held = time.monotonic(), 0.0
    while time.monotonic() - began < 2:
        with contextlib.closing(Session(daemon, limit=100_001)) as limited:
            limited.say(WANT)
            limited.granted()
            at = time.monotonic()
            time.sleep(0.02)
            held += time.monotonic() - at
    assert held / (time.monotonic() - began) < 0.2


def test_what_cannot_be_promised_is_refused(session):
    # each process is a tenant of its own here, and all of these are one process: no sum to exceed
    assert session(request=600_001).status == 0
    refused = session(request=500_001, limit=400_001)
    assert refused.status == 2 and "above the limit" in refused.text
    assert session(request=0xFFFFFFFF).status == 2
    assert session(weight=20000).status == 2
    assert session(latency_class=9).status == 2


def holder_program(daemon):
    """Another process that holds the device until it is killed."""
    program = ("import sys; sys.path[:0] = sys.argv[2:]\n"
               "import test_lease_sessions as t, types, time\n"
               "s = t.Session(types.SimpleNamespace(dir=sys.argv[1])); s.say(t.WANT)\n"
               "print(s.granted(), flush=True); time.sleep(600)")
    here = os.path.dirname(os.path.abspath(__file__))
    child = subprocess.Popen([sys.executable, "-c", program, daemon.dir, here,
                              os.path.join(here, "..", "lib")], stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    return child


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_stopped_holder_blocks_nobody(daemon, session, signum):
    child = holder_program(daemon)
    try:
        child.send_signal(signum)
        waiting = session()
        waiting.say(WANT)
        waiting.granted()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_thousand_sessions_leave_nothing(daemon):
    before = divvytest.Leftovers(daemon)
    sessions = [Session(daemon) for _ in range(1000)]
    assert all(one.status == 0 for one in sessions)
    for one in sessions:
        one.say(WANT)
    for one in sessions:
        one.close()
    before.assert_gone(within=2.0)
