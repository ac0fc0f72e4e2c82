"""A tenant wants root's rights: it makes divvyd believe that workers cannot be sandboxed, and finds out what
native code in a worker without a sandbox may do."""

import contextlib
import os
import resource
import signal
import subprocess

import pytest

import divvytest

ATTACKER, INNOCENT = 4002, 4101
WORKER_UIDS = range(1879048192, 1879113728)
ALLOWED = "allow-unsandboxed-workers: yes\n"
PIDS = "/sys/fs/cgroup/pids"  # version 1; with version 2 the other way to make it fail must do


def status_of(pid):
    with open("/proc/%d/status" % pid) as status:
        return {key: value.split() for key, value in (line.split(":", 1) for line in status)}


@contextlib.contextmanager
def computing(daemon, program, uid):
    """The worker of a program that has compiled its kernel and computes."""
    child = daemon.popen([program("compute"), "1", "600"], user=uid, group=uid, extra_groups=[],
                         stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == "ready\n", daemon.log
        yield daemon.session_of(child.pid)["worker_pid"]
    finally:
        divvytest.kill_group(child)
        child.stdout.close()


def assert_powerless(worker):
    status = status_of(worker)
    assert all(int(uid) in WORKER_UIDS for uid in status["Uid"] + status["Gid"]), status["Uid"]
    assert status["Groups"] == [] or all(int(gid) in WORKER_UIDS for gid in status["Groups"])
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[capabilities][0], 16) == 0, (capabilities, status[capabilities])
    assert status["NoNewPrivs"] == ["1"]


def is_sandboxd(worker):
    return os.readlink("/proc/%d/ns/pid" % worker) != os.readlink("/proc/self/ns/pid")


def probe(daemon):
    after = len(daemon.log)
    daemon.process.send_signal(signal.SIGHUP)
    daemon.await_log("configuration reloaded", after=after)


def test_code_without_a_sandbox_is_not_roots(program, tmp_path):
    for directory in (tmp_path.parent.parent, tmp_path.parent, tmp_path):
        os.chmod(directory, 0o700)  # the worker's user cannot reach it from above
    with divvytest.Daemon("sandbox: no\n" + ALLOWED, system=True,
                          env={"DIVVY_CACHE": str(tmp_path / "caches")}) as daemon:
        with computing(daemon, program, INNOCENT) as worker:
            assert not is_sandboxd(worker)
            assert_powerless(worker)
    kept = [path for path in (tmp_path / "caches").rglob("*.so") if str(INNOCENT) in str(path)]
    assert kept and all(path.stat().st_uid in WORKER_UIDS for path in kept)


def test_no_sandbox_needs_a_word_more():
    """An operator who switches sandboxes off for all users' programs must allow it with a second setting."""
    for choice in ("no", "if-possible"):
        daemon = divvytest.Daemon("sandbox: %s\n" % choice, system=True)
        with pytest.raises(AssertionError, match="ended at once"), daemon:
            pass
    with divvytest.Daemon("sandbox: no\n"):  # a user's own
        pass


def test_lack_of_descriptors_switches_no_sandbox_off(program):
    with divvytest.Daemon("sandbox: if-possible\n" + ALLOWED, system=True) as daemon:
        with computing(daemon, program, INNOCENT) as worker:
            assert is_sandboxd(worker)
        zygote = next(pid for pid in daemon.processes() if divvytest.name_of(pid) == "divvy-zygote")
        before = resource.prlimit(zygote, resource.RLIMIT_NOFILE)
        resource.prlimit(zygote, resource.RLIMIT_NOFILE, (7, before[1]))
        probe(daemon)
        daemon.await_log("no device: ")
        resource.prlimit(zygote, resource.RLIMIT_NOFILE, before)
        with computing(daemon, program, INNOCENT) as worker:
            assert is_sandboxd(worker)
            assert_powerless(worker)
        assert "WITHOUT a sandbox" not in daemon.log


def join(group):
    with open(os.path.join(group, "cgroup.procs"), "w") as procs:
        procs.write(str(os.getpid()))


def removed(group):
    """Whether a cgroup is gone with all that divvyd has made below it."""
    try:
        for where, names, _ in os.walk(group, topdown=False):
            os.rmdir(where)
    except OSError:
        pass
    return not os.path.exists(group)


@pytest.mark.skipif(not os.access(PIDS, os.W_OK), reason="no pids cgroup of version 1")
def test_a_fork_bomb_switches_no_sandbox_off(program):
    group = os.path.join(PIDS, "divvy-test-bomb-%d" % os.getpid())
    with open("/proc/self/cgroup") as lines:
        before = PIDS + next(line.strip().split(":")[2] for line in lines if ":pids:" in line)
    os.mkdir(group)
    try:
        join(group)   # divvyd and all its workers are in it, or below it
        with divvytest.Daemon("sandbox: if-possible\n" + ALLOWED, system=True) as daemon:
            join(before)
            with computing(daemon, program, INNOCENT):
                pass
            with open(os.path.join(group, "pids.max"), "w") as most:
                most.write("60")
            bomb = daemon.popen([program("evil"), "breed", "100"], user=ATTACKER, group=ATTACKER,
                                extra_groups=[], stdout=subprocess.PIPE)
            assert bomb.stdout.readline() == "ready\n"
            assert 0 < int(bomb.stdout.readline().split()[1]) < 100
            probe(daemon)
            bomb.communicate(timeout=20)  # it ends, and all its processes with it
            with computing(daemon, program, INNOCENT) as worker:
                assert is_sandboxd(worker)
                assert_powerless(worker)
            assert "WITHOUT a sandbox" not in daemon.log
    finally:
        join(before)
        divvytest.wait_for(lambda: removed(group), 20, "the cgroup stays in use")
