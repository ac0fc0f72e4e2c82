"""Users whom the operator does not want to have the device open sessions all the same."""

import grp
import os

import divvytest
import innocents
import strangers

MEMBER, STRANGER = 4001, innocents.ATTACKER
GROUP = "video"   # every machine has it

HELLO = """
try:
    session = lease.Session(Daemon)
    print(session.status, session.text)
except PermissionError:
    print("not let in")
"""


def say_hello(daemon, user, groups=()):
    """What divvyd answers to a user's hello: "0 " for a session."""
    return strangers.run(daemon, user, HELLO, groups=groups)


def group_number():
    return grp.getgrnam(GROUP).gr_gid


def test_a_worker_brings_nobody_into_a_group():
    """Default: a user who may not open the card's nodes does not get them by way of a worker."""
    config = 'devices:\n  - match: "*"\n    sandbox:\n      groups: [%s]\n' % GROUP
    with divvytest.Daemon(config, system=True) as daemon:
        assert say_hello(daemon, MEMBER, [group_number()]) == "0"
        answer = say_hello(daemon, STRANGER)
        assert "only members of group " + GROUP in answer, answer


def test_an_operator_can_let_everybody_in():
    config = 'session-group: everybody\ndevices:\n  - match: "*"\n    sandbox:\n      groups: [%s]\n' % GROUP
    with divvytest.Daemon(config, system=True) as daemon:
        assert say_hello(daemon, STRANGER) == "0"


def test_sessions_are_for_a_group():
    with divvytest.Daemon("session-group: %s\n" % GROUP, system=True) as daemon:
        assert say_hello(daemon, MEMBER, [group_number()]) == "0"
        assert say_hello(daemon, STRANGER) == "not let in"
        # a socket that the service manager has made admits all users; divvyd does not
        os.chmod(os.path.join(daemon.dir, "session.sock"), 0o666)
        answer = say_hello(daemon, STRANGER)
        assert "only members of group " + GROUP in answer, answer


def test_a_rule_refuses():
    config = "tenants:\n  - user: %d\n    refuse: yes\n" % STRANGER
    with divvytest.Daemon(config, system=True) as daemon:
        assert say_hello(daemon, MEMBER) == "0"
        answer = say_hello(daemon, STRANGER)
        assert "refuse: yes" in answer and "ask the operator" in answer, answer
