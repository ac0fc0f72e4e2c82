"""Sessions without a worker, as a front end in a tenant's own process uses them."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import divvytest
import pytest
from leasechannel import (AGAIN, CANCEL, GRANT, QUIET_S, RECALL, RELEASE, WANT, Session)


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
    assert first.hear()[0] == RECALL   # so the other's request has arrived
    first.say(RELEASE, serial, AGAIN)
    other = second.granted()
    second.say(RELEASE, other)
    assert first.granted() not in (serial, other)


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
    assert first.hear()[0] == RECALL   # their requests have arrived
    time.sleep(QUIET_S)   # no answer shows that this one has
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
    for nonsense in (dict(magic=7), dict(version=2), dict(device=64), dict(device=0xFFFFFFFF)):
        first.say(WANT, **nonsense)
    for kind in (0, 5, GRANT, RECALL, 0xFFFF):
        first.say(kind)
    first.socket.send(b"short")
    first.socket.send(b"\0" * 1000)
    first.say(RELEASE, 1)
    assert first.hear(QUIET_S) is None
    second.say(WANT)
    second.granted()


# within its slice, and for longer: then it is recalled, too late
@pytest.mark.parametrize("hold_s", [0.005, 0.03])
def test_a_limit_holds_back_who_is_alone(daemon, session, hold_s):
    limited = session(limit=100_001)
    began, held, over = time.monotonic(), 0.0, False
    while True:
        limited.say(WANT)
        serial = limited.granted(60)
        at = time.monotonic()
        if over:   # what was held before has been waited for
            break
        time.sleep(hold_s)
        held += time.monotonic() - at
        limited.say(RELEASE, serial)
        over = time.monotonic() - began > 2
    assert held / (at - began) < 0.15
    # divvyd counts from the grant that it sends, which may be heard late
    charged = json.loads(daemon.cli("explain", str(limited.id), "--json"))["devices"][0]["used_s"]
    assert charged / (at - began) > 0.05


def test_leaving_does_not_shed_a_limit(daemon):
    """A session that comes back at once finds its limit as it left it."""
    began, held, over = time.monotonic(), 0.0, False
    while not over:
        over = time.monotonic() - began > 2   # what was held before is still waited for
        with contextlib.closing(Session(daemon, limit=100_001)) as limited:
            limited.say(WANT)
            limited.granted(60)
            at = time.monotonic()
            if not over:
                time.sleep(0.02)
                held += time.monotonic() - at
    assert held / (at - began) < 0.2


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
               "import leasechannel as t, types, time\n"
               "s = t.Session(types.SimpleNamespace(dir=sys.argv[1])); s.say(t.WANT)\n"
               "print(s.granted(), flush=True); time.sleep(600)")
    here = os.path.dirname(os.path.abspath(__file__))
    child = subprocess.Popen([sys.executable, "-c", program, daemon.dir,
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


def test_sessions_end_where_no_time_is_shared_out():
    """`divvy run` opens and closes such a session before it starts a program."""
    with divvytest.Daemon('devices:\n  - match: "*"\n    policy: none\n') as daemon:
        began = time.monotonic()
        assert daemon.run(["true"]).returncode == 0
        assert time.monotonic() - began < 10
        session = Session(daemon)
        assert len(daemon.sessions()) == 1
        daemon.kill(signal.SIGUSR1)
        daemon.start()
        session.close()
        divvytest.wait_for(lambda: not daemon.sessions(), 10, "a session is kept whose socket is closed")


def test_thousand_sessions_leave_nothing():
    with divvytest.Daemon("sessions-per-user: 1024\n") as daemon:
        before = divvytest.Leftovers(daemon)
        sessions = [Session(daemon) for _ in range(1000)]
        assert all(one.status == 0 for one in sessions)
        for one in sessions:
            one.say(WANT)
        for one in sessions:
            one.close()
        before.assert_gone()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to choose its groups")
def test_the_right_one_of_thousands_of_rules():
    with open("/proc/self/cgroup") as lines:
        path = lines.readline().strip().split(":", 2)[2]
    others = "".join("  - cgroup: \"/elsewhere/%d/*\"\n    name: c%d\n" % (i, i) for i in range(1000))
    others += "".join("  - group: %d\n    name: g%d\n" % (30000 + i, i) for i in range(1000))
    rules = ("tenants:\n" + others + "  - group: 29001\n    name: theirs\n"
             "  - cgroup: \"%s\"\n    name: ours\n" % path)
    before = os.getgroups()
    with divvytest.Daemon(rules, system=True) as daemon:
        try:
            for groups, tenant in (([], "ours"), ([29002, 29001, 29000], "theirs"),
                                   ([29001, 30999], "g999"), ([29000, 29002], "ours")):
                os.setgroups(groups)
                with contextlib.closing(Session(daemon)):
                    assert [row["tenant"] for row in daemon.sessions()] == [tenant]
                divvytest.wait_for(lambda: not daemon.sessions(), 10, "the session stays")
        finally:
            os.setgroups(before)
