"""Kernels that are native code and do as they like in their worker: others keep their results, their share
and their secrets."""
import contextlib
import re
import signal
import subprocess
import threading
import time

import leasechannel as lease
import pytest

import divvytest

DEADLINE_S = 0.5
# the longest turn of a session that is alone, and the delay that a busy machine adds
SLICE_S, LATE_S = 0.2, 5.0


@pytest.fixture(params=list(divvytest.DATA_PATHS))
def daemon(request):
    config = (divvytest.DATA_PATHS[request.param] or "") + "deadlines:\n  standard: 500ms\n"
    with divvytest.Daemon(config) as daemon:
        daemon.devices = daemon.cli("devices")   # they are known, and the zygote is there
        yield daemon


@contextlib.contextmanager
def innocents(daemon, program, count=2):
    """They compute meanwhile, and all their results must be right."""
    children = [daemon.popen([program("compute"), str(i), "36000", "4"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE) for i in range(count)]
    try:
        for child in children:
            assert child.stdout.readline() == "ready\n", child.stderr.read()
        yield
        for child in children:
            child.send_signal(signal.SIGUSR1)
        for child in children:
            out, err = child.communicate(timeout=60)
            assert child.returncode == 0, (child.returncode, out, err)
            assert int(out.split()[1]) > 10
    finally:
        for child in children:
            child.kill()
            child.communicate()


@contextlib.contextmanager
def evil(daemon, program, *arguments):
    child = daemon.popen([program("evil"), *arguments], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    try:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        yield child
    finally:
        divvytest.kill_group(child)
        child.communicate()


def commands_of(daemon, pid):
    return next((s["commands"] for s in daemon.sessions() if s["tenant_pid"] == pid), 0)


def assert_nothing_left(daemon, before):
    divvytest.wait_for(lambda: not daemon.sessions(), 20, "sessions are left")
    daemon.cli("check")
    before.assert_gone()


def test_false_reports(daemon, program):
    """Nonsense on the lease channel, from the worker itself: grants, releases and memory that are not
    its own. A new daemon is lied to as well."""
    before = divvytest.Leftovers(daemon)
    with innocents(daemon, program):
        with contextlib.ExitStack() as stack:
            liars = [stack.enter_context(evil(daemon, program, "lie", str(seed), "36000"))
                     for seed in range(3)]
            # a session's first lie may also end it, or make it wait for ever
            said = []
            for liar in liars:
                threading.Thread(target=lambda out=liar.stdout: said.append(out.readline()),
                                 daemon=True).start()
            divvytest.wait_for(lambda: "lied\n" in said, 30, lambda: "no lie was told: %s" % said)
            for _ in range(3):
                time.sleep(1.5)
                waits_for_the_device(daemon)
                daemon.kill(signal.SIGKILL)
                daemon.start()
    assert_nothing_left(daemon, before)


def waits_for_the_device(daemon):
    """A new session gets the device within a slice, a kernel and the deadline."""
    with contextlib.closing(lease.Session(daemon)) as probe:
        assert probe.status == 0, probe.text
        probe.say(lease.WANT)
        began = time.monotonic()
        serial = probe.granted(within=30)
        waited = time.monotonic() - began
        probe.say(lease.RELEASE, serial)
    # several wait before it, each with a turn
    assert waited < 5 * SLICE_S + DEADLINE_S + LATE_S, waited


def test_wild_writes(daemon, program):
    """A kernel that writes over all memory it finds kills its own worker. Other tenants' memory keeps its contents:
    they check it all the time."""
    before = divvytest.Leftovers(daemon)
    with innocents(daemon, program):
        for _ in range(3):
            with evil(daemon, program, "wild") as child:
                # its own results do not matter then
                divvytest.wait_for(lambda: not any(s["tenant_pid"] == child.pid
                                                   for s in daemon.sessions()), 60,
                                   "it did no harm")
        # its program may have failed first, because of the contents of the memory they share
        assert re.search("worker [0-9]+ (was ended by signal|ended with code [1-9])", daemon.log)
        assert len([s for s in daemon.sessions() if s["command"] == "compute"]) == 2
    assert_nothing_left(daemon, before)


def test_a_kernel_that_keeps_the_device(daemon, program):
    """A session that does not give the device back is ended after the deadline, so others wait for a slice and the
    deadline."""
    before = divvytest.Leftovers(daemon)
    with evil(daemon, program, "hoard", "60") as child:
        session = daemon.session_of(child.pid)
        divvytest.wait_for(lambda: " uses device" in daemon.cli("explain", str(session["id"])), 20,
                           "it does not hold the device")
        time.sleep(0.5)
        with contextlib.closing(lease.Session(daemon)) as probe:
            probe.say(lease.WANT)
            began = time.monotonic()
            probe.granted(within=30)
            waited = time.monotonic() - began
            assert waited < SLICE_S + DEADLINE_S + LATE_S, waited
        assert child.wait(20) == 3, child.communicate()
    daemon.await_log("was terminated: it kept a device")
    assert_nothing_left(daemon, before)
