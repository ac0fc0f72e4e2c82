"""Limits of workers that the kernel enforces, in real cgroups of whichever version this machine has."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

import divvytest
from test_memory import Tenant
from test_upgrade import reload

MIB = 1 << 20


def hierarchy(controller):
    """Where the controller's cgroups are, or None."""
    with open("/proc/self/mounts") as mounts:
        for _, place, kind, options, *_ in map(str.split, mounts):
            if kind == "cgroup" and controller in options.split(","):
                return place
            if kind == "cgroup2":
                with open(os.path.join(place, "cgroup.controllers")) as controllers:
                    if controller in controllers.read().split():
                        return place
    return None


def is_writable(place):
    trial = place and os.path.join(place, "divvy-trial-%d" % os.getpid())
    try:
        os.mkdir(trial)
        os.rmdir(trial)
    except (OSError, TypeError):
        return False
    return True


pytestmark = pytest.mark.skipif(
    not (is_writable(hierarchy("memory")) and is_writable(hierarchy("pids"))),
    reason="no cgroup can be made here")


@pytest.fixture
def place():
    name = "divvy-test-%d" % os.getpid()
    yield name
    for controller in ("memory", "pids"):
        for below in ("divvy-workers", ""):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(os.path.join(hierarchy(controller), name, below))


def bounds(place, memory="512MiB", processes=200):
    return "worker-cgroup: %s\nworker-memory: %s\nworker-processes: %d\n" % (place, memory, processes)


def kinds(place, controller):
    workers = os.path.join(hierarchy(controller), place, "divvy-workers")
    return [entry.path for entry in os.scandir(workers) if entry.is_dir()]


def read(*path):
    with open(os.path.join(*path)) as file:
        return file.read().strip()


def bound_of(kind):
    """How much memory a kind of workers may have, whichever version this is."""
    for file in ("memory.max", "memory.limit_in_bytes"):
        if os.path.exists(os.path.join(kind, file)):
            text = read(kind, file)
    return sys.maxsize if text == "max" else int(text)


def restart(daemon):
    """Waits until it has taken over the sessions; connecting is possible before that."""
    daemon.start()
    daemon.await_log("sessions of the previous daemon go on")


@contextlib.contextmanager
def computing(daemon, program, place):
    """The worker of a program that computes; once it is gone, so are the cgroups."""
    child = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == "ready\n"
        yield daemon.sessions()[0]["worker_pid"]
    finally:
        divvytest.kill_group(child)
        child.stdout.close()
    divvytest.wait_for(lambda: not kinds(place, "memory") + kinds(place, "pids"), 10,
                       "cgroups of workers that are gone stay")


@pytest.mark.parametrize("system", [False, True], ids=["own", "system"])
def test_workers_are_in_a_cgroup_of_their_own(program, place, system):
    with divvytest.Daemon(bounds(place), system=system) as daemon:
        with computing(daemon, program, place) as worker:
            for controller in ("memory", "pids"):
                (kind,) = kinds(place, controller)
                assert os.path.basename(kind) == ("root.0" if system else "user.0")
                assert str(worker) in read(kind, "cgroup.procs").split()
            assert bound_of(kinds(place, "memory")[0]) == 512 * MIB
            assert read(kinds(place, "pids")[0], "pids.max") == "200"
            daemon.kill()  # a restart changes nothing about it
            restart(daemon)
            assert str(worker) in read(kinds(place, "memory")[0], "cgroup.procs").split()


def test_who_uses_too_much_memory_is_ended_alone(program, place):
    with divvytest.Daemon(
            bounds(place) + "tenants:\n  - user: 20001\n    name: ann\n  - name: others\n",
            system=True) as daemon, contextlib.ExitStack() as stack:
        ann = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE, user=20001,
                           group=20001, extra_groups=[])
        stack.callback(ann.stdout.close)
        stack.callback(divvytest.kill_group, ann)
        assert ann.stdout.readline() == "ready\n"
        sibling = daemon.popen([program("compute"), "2", "600"], stdout=subprocess.PIPE)
        stack.callback(sibling.stdout.close)
        stack.callback(divvytest.kill_group, sibling)
        assert sibling.stdout.readline() == "ready\n"
        beside = daemon.session_of(sibling.pid)["id"]
        greedy = Tenant(daemon, program)
        session = daemon.session_of(greedy.child.pid)["id"]
        answers = []
        for i in range(8):
            answers += [greedy.ask("alloc", i, 128 * MIB), greedy.ask("fill", i, i)]
        assert answers[:4] == ["ok"] * 4 and answers[-1].startswith("error"), answers
        daemon.await_log("had used up their memory (worker-memory)")
        assert "worker-memory" in daemon.cli("explain", str(session))
        greedy.child.kill()
        greedy.child.communicate()
        sibling.send_signal(signal.SIGUSR1)  # to end in good order, from the same cgroup
        assert sibling.wait(timeout=60) == 0
        daemon.await_log("session %d over: compute" % beside)
        assert ann.poll() is None
        done = daemon.run([program("compute"), "1", "0"])
        assert done.returncode == 0, done.stderr
        divvytest.wait_for(lambda: len(kinds(place, "memory")) == 1, 10, "not ann's alone is left")


def test_who_starts_too_many_processes_is_refused_more(program, place):
    with divvytest.Daemon(bounds(place, processes=64)) as daemon:
        before = divvytest.Leftovers(daemon)
        done = daemon.run([program("evil"), "breed", "100"])
        assert done.returncode == 0, done.stderr
        assert 16 < int(done.stdout.split()[-1]) < 64
        before.assert_gone(within=10)  # its processes have ended with it
        assert daemon.run([program("compute"), "1", "0"]).returncode == 0
    with divvytest.Daemon() as daemon:
        assert daemon.run([program("evil"), "breed", "100"]).stdout.split()[-1] == "100"


def test_a_reload_changes_the_bounds_of_workers_that_run(program, place):
    with divvytest.Daemon("") as daemon:
        with computing(daemon, program, place) as worker:
            for memory, processes in (("512MiB", 200), ("256MiB", 100)):
                reload(daemon, bounds(place, memory, processes), "configuration reloaded")
                (kind,) = kinds(place, "memory")
                assert str(worker) in read(kind, "cgroup.procs").split()
                assert bound_of(kind) == int(memory[:3]) * MIB
                assert read(kinds(place, "pids")[0], "pids.max") == str(processes)
            reload(daemon, "", "configuration reloaded")
            assert bound_of(kind) > 1 << 60
            assert read(kinds(place, "pids")[0], "pids.max") == "max"


def test_a_restart_brings_bounds_to_workers_that_run(program, place):
    with divvytest.Daemon("") as daemon:
        with computing(daemon, program, place) as worker:
            daemon.kill()
            daemon.config_text = bounds(place)
            restart(daemon)
            for controller in ("memory", "pids"):
                (kind,) = kinds(place, controller)
                assert str(worker) in read(kind, "cgroup.procs").split()
            assert bound_of(kinds(place, "memory")[0]) == 512 * MIB


def test_bounds_that_cannot_be_kept_are_not_ignored(program):
    with divvytest.Daemon("worker-memory: 1GiB\nworker-cgroup: no/such/parent\n") as daemon:
        done = daemon.run([program("compute"), "1", "0"])
        assert done.returncode != 0
        daemon.await_log("worker-memory needs a cgroup")
