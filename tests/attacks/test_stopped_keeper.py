"""divvyd's own helpers are stopped: grants go on, and everything else does once the helpers run again."""

import contextlib
import os
import signal
import time

import pytest

import divvytest
import innocents
import leasechannel as lease
import strangers

# Sessions that come and go: the keeper is told of each.
COMING_AND_GOING = """
while True:
    lease.Session(Daemon).close()
    time.sleep(0.001)
"""
LONGEST_WAIT_S = 1.0   # on a busy machine; a daemon that waits for its keeper waits for 5 s


def helper(daemon, name):
    if name == "divvy-keeper":
        return daemon.keeper()
    return next(pid for pid in daemon.processes() if divvytest.name_of(pid) == name)


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def coming_and_going(daemon):
    return innocents.running([strangers.command(daemon, COMING_AND_GOING)])


def longest_wait(daemon, seconds):
    session, longest = lease.Session(daemon), 0
    began = time.monotonic()
    while (asked := time.monotonic()) < began + seconds:
        session.say(lease.WANT)
        session.say(lease.RELEASE, session.granted(30))
        longest = max(longest, time.monotonic() - asked)
        time.sleep(0.005)
    session.close()
    return longest


@pytest.mark.parametrize("name", ["divvy-keeper", "divvy-zygote"])
def test_nobody_waits_for_a_helper_that_stands_still(name):
    with divvytest.Daemon(system=True) as daemon:
        divvytest.wait_for(daemon.keeper, 10, "no keeper")
        divvytest.wait_for(lambda: "divvy-zygote" in map(divvytest.name_of, daemon.processes()), 10, "no zygote")
        lease.Session(daemon).close()   # its devices are known
        pid = helper(daemon, name)
        with stopped(pid), coming_and_going(daemon):
            assert longest_wait(daemon, 7.0) < LONGEST_WAIT_S   # longer than divvyd's timeout
            if name == "divvy-keeper":
                daemon.await_log("the keeper has ended or does not answer: there is a new one")


def test_who_restarts_after_a_keeper_stood_still_loses_nobody():
    with divvytest.Daemon(system=True) as daemon:
        divvytest.wait_for(daemon.keeper, 10, "no keeper")
        early = lease.Session(daemon)
        with stopped(daemon.keeper()), coming_and_going(daemon):
            time.sleep(2)
            late = lease.Session(daemon)
        time.sleep(0.5)
        daemon.kill()
        daemon.start()
        for session in (early, late):
            session.answer_state(1)
            session.say(lease.WANT)
            session.say(lease.RELEASE, session.granted())
            session.close()
