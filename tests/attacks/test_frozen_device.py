"""A session takes the device and never gives it back: others go on after the deadline, and the log says why."""

import json
import os
import time

import divvytest
import leasechannel
from players import ATTACKER, VICTIM


def session_of(user, daemon, group=None):
    os.setegid(group or user)
    os.seteuid(user)
    try:
        return leasechannel.Session(daemon)
    finally:
        os.seteuid(0)
        os.setegid(0)


def warnings(daemon):
    return " ".join(json.loads(daemon.cli("devices", "--json"))["warnings"])


def freeze(daemon):
    attacker = session_of(ATTACKER, daemon)
    attacker.say(leasechannel.WANT)
    attacker.granted()
    return attacker


def test_others_go_on_after_the_deadline():
    with divvytest.Daemon("deadlines:\n  standard: 1s\n", system=True) as daemon:
        attacker = freeze(daemon)
        victim = session_of(VICTIM, daemon)
        for _ in range(3):   # and each time it takes the device again
            victim.say(leasechannel.WANT)
            began = time.monotonic()
            serial = victim.granted(10)
            assert time.monotonic() - began < 4
            attacker.say(leasechannel.WANT)
            victim.say(leasechannel.RELEASE, serial)
            time.sleep(0.1)
        daemon.await_log("it kept a device for 1.0 s after it was asked to give it back")
        attacker.close()
        victim.close()


def test_the_system_daemon_has_deadlines():
    """Without any configuration: the operator is told after 10 s, and when the session loses the device."""
    with divvytest.Daemon(system=True) as daemon:
        attacker = freeze(daemon)
        victim = session_of(VICTIM, daemon)
        victim.say(leasechannel.WANT)
        daemon.await_log("while others wait: it loses the device after 60.0 s", within=20)
        assert "was asked to give it back" in warnings(daemon)
        assert victim.hear(0.1) is None
        attacker.close()
        victim.granted()
        assert "was asked to give it back" not in warnings(daemon)
        victim.close()


def test_the_latency_class_has_a_shorter_deadline():
    with divvytest.Daemon('tenants:\n  - user: "%d"\n    class: latency\n' % ATTACKER, system=True) as daemon:
        attacker = freeze(daemon)
        victim = session_of(VICTIM, daemon)
        victim.say(leasechannel.WANT)
        began = time.monotonic()
        victim.granted(30)
        assert 9 < time.monotonic() - began < 14
        daemon.await_log("it kept a device for 10.0 s")
        attacker.close()
        victim.close()


def test_sessions_without_a_worker_can_be_refused(program):
    with divvytest.Daemon("lease-sessions: no\n", system=True) as daemon:
        refused = session_of(ATTACKER, daemon)
        assert refused.status != 0 and "lease-sessions" in refused.text
        refused.close()
        assert daemon.run([program("compute"), "1", "0"]).returncode == 0
    with divvytest.Daemon("lease-sessions: daemon\n", system=True) as daemon:
        refused, member = session_of(ATTACKER, daemon), session_of(VICTIM, daemon, group=1)
        assert refused.status != 0 and member.status == 0, (refused.text, member.text)
        refused.close()
        member.close()
