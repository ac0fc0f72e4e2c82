"""Many sessions at once: each gets its own correct results, and the end of one, however it comes, does not affect the
others."""

import os
import random
import signal
import subprocess
import time

import divvytest

SESSIONS = int(os.environ.get("DIVVY_TEST_SESSIONS", "64"))


class Tenants:
    """A crowd of compute programs, each with a seed of its own."""

    def __init__(self, daemon, program, count, seconds):
        """They compute until finish(), and then for this many seconds more."""
        self.daemon = daemon
        self.seconds = seconds
        self.children = []
        try:
            for number in range(count):
                self.children.append(daemon.popen(
                    [program("compute"), str(number), "3600"],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            for child in self.children:
                line = child.stdout.readline()
                assert line == "ready\n", "tenant %d: %r %s" % (
                    child.pid, line, child.stderr.read() if line == "" else "")
        except BaseException:
            self.kill()
            raise

    def kill(self):
        for child in self.children:
            divvytest.kill_group(child)

    def finish(self, timeout=300):
        """Output and exit code of each, in order."""
        results = []
        time.sleep(self.seconds)
        try:
            for child in self.children:
                if child.poll() is None:
                    child.send_signal(signal.SIGUSR1)
            for child in self.children:
                out, err = child.communicate(timeout=timeout)
                results.append((child.returncode, out, err))
        finally:
            self.kill()
        return results


def assert_all_right(results):
    wrong = [(number, result) for number, result in enumerate(results)
             if result is not None and (result[0] != 0 or not result[1].startswith("done"))]
    assert not wrong, "%d of %d tenants: %s" % (len(wrong), len(results), wrong[:3])


def test_many_sessions(daemon, program):
    before = divvytest.Leftovers(daemon)
    tenants = Tenants(daemon, program, SESSIONS, seconds=3)
    try:
        sessions = daemon.sessions()
        assert len(sessions) == SESSIONS
        assert {s["tenant_pid"] for s in sessions} == {c.pid for c in tenants.children}
        workers = {s["worker_pid"] for s in sessions}
        assert len(workers) == SESSIONS, "each session has a worker of its own"
        assert all(divvytest.is_alive(pid) for pid in workers)
        assert all(s["uid"] == os.getuid() for s in sessions)
        divvytest.wait_for(lambda: all(s["commands"] > 0 for s in daemon.sessions()), 10,
                           "some have computed, and nobody counted it")
    finally:
        results = tenants.finish()
    assert_all_right(results)
    before.assert_gone()
    assert daemon.sessions() == []


def test_killed_workers_among_many(daemon, program):
    """The tenants of killed workers get an OpenCL error; all others stay right."""
    before = divvytest.Leftovers(daemon)
    tenants = Tenants(daemon, program, SESSIONS, seconds=3)
    try:
        sessions = daemon.sessions()
        victims = random.Random(5).sample(sessions, 1 if SESSIONS < 8 else 4)
        for victim in victims:
            os.kill(victim["worker_pid"], signal.SIGKILL)
    finally:
        results = tenants.finish()
    victim_pids = {victim["tenant_pid"] for victim in victims}
    for number, child in enumerate(tenants.children):
        if child.pid in victim_pids:
            code, _, err = results[number]
            assert code == 3 and "opencl error" in err, "victim: code %d, %s" % (code, err)
            results[number] = None
    assert_all_right(results)
    before.assert_gone()


def test_killed_tenants_among_many(daemon, program):
    before = divvytest.Leftovers(daemon)
    tenants = Tenants(daemon, program, SESSIONS, seconds=3)
    try:
        sessions = {s["tenant_pid"]: s for s in daemon.sessions()}
        victims = random.Random(6).sample(range(SESSIONS), 1 if SESSIONS < 8 else 8)
        for number in victims:
            tenants.children[number].kill()
            tenants.children[number].wait()
        dead = [sessions[tenants.children[number].pid]["worker_pid"] for number in victims]
        divvytest.wait_for(lambda: not any(divvytest.is_alive(pid) for pid in dead),
                           divvytest.SOON_S, "workers outlive their tenants")
    finally:
        results = tenants.finish()
    for number in victims:
        results[number] = None
    assert_all_right(results)
    before.assert_gone()


def test_sessions_come_and_go(daemon, program):
    """Hundreds of short sessions one after the other leave the daemon as it was."""
    before = divvytest.Leftovers(daemon)
    for _ in range(50):
        children = [daemon.popen([program("compute"), str(number), "0"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                    for number in range(4)]
        for child in children:
            out, err = child.communicate(timeout=60)
            assert child.returncode == 0, err
            assert out.startswith("ready\ndone")
    before.assert_gone()
