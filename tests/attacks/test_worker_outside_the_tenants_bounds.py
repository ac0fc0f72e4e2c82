"""A program that is bounded by its own cgroup has its worker take what it may not."""

import contextlib
import os
import subprocess
import sys

import pytest

import divvytest
from innocents import ATTACKER

sys.path.insert(0, os.path.join(divvytest.REPOSITORY, "tests", "system"))
from test_bounds import hierarchy, is_writable  # noqa: E402

MIB = 1 << 20
MEMORY = 512 * MIB
PROCESSES = 100


@pytest.fixture
def job():
    """A cgroup for a job, as (controller, directory) of each hierarchy."""
    if not (is_writable(hierarchy("memory")) and is_writable(hierarchy("pids"))):
        pytest.skip("no cgroup can be made here")
    places = {controller: os.path.join(hierarchy(controller), "divvy-job-%d" % os.getpid())
              for controller in ("memory", "pids")}
    bounds = {"memory.limit_in_bytes": MEMORY, "memory.max": MEMORY, "pids.max": PROCESSES}
    for place in set(places.values()):
        os.mkdir(place)
        for file, most in bounds.items():
            with contextlib.suppress(FileNotFoundError, PermissionError):
                with open(os.path.join(place, file), "r+") as control:
                    control.write(str(most))
    yield places
    for place in set(places.values()):
        divvytest.wait_for(lambda place=place: not members(place), 10, "the job does not end")
        os.rmdir(place)


def members(place):
    with open(os.path.join(place, "cgroup.procs")) as file:
        return file.read().split()


def run_in(job, daemon, command, **kwargs):
    """A program of the attacker's within the job."""
    def enter():
        for place in set(job.values()):
            with open(os.path.join(place, "cgroup.procs"), "w") as procs:
                procs.write("0")
        os.setgroups([])
        os.setgid(ATTACKER)
        os.setuid(ATTACKER)
    return daemon.popen(command, preexec_fn=enter, stdout=subprocess.PIPE, **kwargs)


def test_the_worker_is_where_its_program_is(program, job):
    with divvytest.Daemon("worker-cgroup: tenant\n", system=True) as daemon:
        child = run_in(job, daemon, [program("compute"), "1", "600"])
        try:
            assert child.stdout.readline() == "ready\n"
            worker = daemon.session_of(child.pid)["worker_pid"]
            for place in job.values():
                assert {str(child.pid), str(worker)} <= set(members(place))
        finally:
            divvytest.kill_group(child)
            child.stdout.close()


def test_a_bounded_program_starts_no_processes_by_its_worker(program, job):
    with divvytest.Daemon("worker-cgroup: tenant\n", system=True) as daemon:
        child = run_in(job, daemon, [program("evil"), "breed", "300"])
        bred = child.communicate(timeout=60)[0].split()
        assert bred and int(bred[-1]) < PROCESSES, bred


def test_every_tenants_workers_are_bounded_by_default(program):
    """Where divvyd has a cgroup; without one it says so."""
    with divvytest.Daemon(system=True) as daemon:
        child = daemon.popen([program("compute"), "1", "600"], user=ATTACKER, group=ATTACKER,
                             extra_groups=[], stdout=subprocess.PIPE)
        try:
            assert child.stdout.readline() == "ready\n"
            worker = daemon.session_of(child.pid)["worker_pid"]
            with open("/proc/%d/cgroup" % worker) as lines:
                kinds = [line for line in lines if "divvy-workers/" in line]
            # with version 2 of cgroups one line is all of them
            assert len(kinds) == 2 or [line for line in kinds if line.startswith("0:")] or \
                "can use up the machine's" in daemon.log, (kinds, daemon.log)
            with open("/proc/%d/limits" % worker) as limits:
                most = next(line.split()[2] for line in limits if line.startswith("Max processes"))
            assert int(most) < 16384
        finally:
            divvytest.kill_group(child)
            child.stdout.close()
