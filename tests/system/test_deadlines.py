"""Deadlines: a session that keeps a device others wait for is ended, if the configuration says so."""

import subprocess
import time

import divvytest
import pytest

DEADLINE = "deadlines:\n  standard: 1s\n"


@pytest.fixture
def endless(program):
    """Starts a program whose kernel never ends, and ends it after the test."""
    started = []

    def start(daemon):
        tenant = daemon.popen([program("endless")], stdout=subprocess.PIPE)
        started.append(tenant)
        assert tenant.stdout.readline() == "running\n"
        divvytest.wait_for(lambda: any(s["state"] == "computing" for s in daemon.sessions()), 10,
                           "it does not run")
        time.sleep(0.5)  # its kernel is compiled and begins
        return tenant
    yield start
    for tenant in started:
        divvytest.kill_group(tenant)
        tenant.stdout.close()


def test_an_endless_kernel_is_ended_when_others_wait(program, endless):
    with divvytest.Daemon(DEADLINE) as daemon:
        tenant = endless(daemon)
        session = daemon.sessions()[0]["id"]
        time.sleep(2)
        assert tenant.poll() is None, "nobody waited for it"
        began = time.monotonic()
        done = daemon.run([program("compute"), "1", "0"], timeout=60)
        assert done.returncode == 0, done.stderr
        assert 0.9 < time.monotonic() - began < 15
        words = tenant.stdout.read()
        assert tenant.wait(timeout=20) == 0
        assert "finish 0" not in words
        reason = "it kept a device for 1.0 s after it was asked to give it back"
        assert "callback divvy: " in words and reason in words, words
        daemon.await_log(reason)
        assert reason in daemon.cli("explain", str(session))


def test_without_a_deadline_nobody_is_ended(program, endless):
    with divvytest.Daemon() as daemon:
        tenant = endless(daemon)
        waiting = daemon.popen([program("compute"), "1", "0"], stdout=subprocess.PIPE)
        time.sleep(4)
        assert tenant.poll() is None and waiting.poll() is None
        divvytest.kill_group(tenant)
        assert waiting.wait(timeout=30) == 0
        waiting.stdout.close()


def test_a_lower_class_sheds_no_deadline(program, endless):
    with divvytest.Daemon(DEADLINE) as daemon:
        tenant = endless(daemon)
        daemon.cli("set", str(daemon.session_of(tenant.pid)["id"]), "--class", "batch")
        done = daemon.run([program("compute"), "1", "0"], timeout=60)
        assert done.returncode == 0, done.stderr
        daemon.await_log("it kept a device for 1.0 s")


def test_deadlines_are_of_a_class(program, endless):
    with divvytest.Daemon("deadlines:\n  batch: 100ms\n") as daemon:
        tenant = endless(daemon)
        waiting = daemon.popen([program("compute"), "1", "0"], stdout=subprocess.PIPE)
        time.sleep(2)
        assert tenant.poll() is None and waiting.poll() is None
        daemon.cli("set", str(daemon.session_of(tenant.pid)["id"]), "--class", "batch")
        assert waiting.wait(timeout=30) == 0
        waiting.stdout.close()
