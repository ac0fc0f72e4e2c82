"""Leases: with a policy on the device, users get equal device time whatever their kernels are like;
with turn-taking alone the one with the longer kernels gets more, as on a device's own queue."""

import os
import subprocess

import pytest

import divvytest

SHORT, LONG = 20000, 300000  # rounds of a loop: kernels 15 times as long
SECONDS = 6


def config(policy, slice):
    # Kernels in slices would be alike.
    return "devices:\n  - match: \"*\"\n    policy: %s\n    slice: %s\n    slice-kernels: never\n" % (policy, slice)


def kernels_done(daemon, program, tenants, seconds):
    """Kernels that each of these tenants runs while all of them keep the device busy: (user, rounds) in, counts out."""
    children = [daemon.popen([program("turns"), str(rounds), str(seconds)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, **divvytest.identity(uid))
                for uid, rounds in tenants]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    done = [int(child.communicate(timeout=120)[0].split()[-1]) for child in children]
    assert all(child.returncode == 0 for child in children)
    return done


def shares(policy, slice, program):
    """Device time of a tenant with short kernels beside one with long ones, in parts. A kernel costs what it costs when
    its tenant is alone: short ones have more of the cost of a launch, and more so on a slow machine."""
    short, long = (20001, SHORT), (20002, LONG)
    with divvytest.Daemon(config(policy, slice), env={"POCL_MAX_PTHREAD_COUNT": "1"}, system=True) as daemon:
        daemon.compile_kernels(program("turns"), SHORT)
        short_alone, = kernels_done(daemon, program, [short], SECONDS / 3)
        beside = kernels_done(daemon, program, [short, long], SECONDS)
        long_alone, = kernels_done(daemon, program, [long], SECONDS / 3)
    time = beside[0] / short_alone, beside[1] / long_alone
    return time[0] / sum(time)


@pytest.fixture(autouse=True)
def others_can_run(program):
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    try:
        subprocess.run([program("turns")], **divvytest.identity(20001))
    except PermissionError:
        pytest.skip("other users cannot reach the build directory")


def test_equal_time_for_unequal_kernels(program):
    # Slices that are long beside a handover, which takes some of each.
    divvytest.assert_median(lambda: shares("elastic", "20ms", program), 0.4, 0.6)


def test_turns_alone_favour_long_kernels(program):
    divvytest.assert_median(lambda: shares("fifo", "200us", program), 0, 0.3)
