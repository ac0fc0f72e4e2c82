"""Leases: with a policy on the device, users get equal device time whatever their kernels are like;
with turn-taking alone the one with the longer kernels gets more, as on a device's own queue."""

import os
import subprocess

import pytest

import divvytest

SHORT, LONG = 20000, 300000  # rounds of a loop: kernels 15 times as long
SECONDS = 6


def config(policy):
    return "devices:\n  - match: \"*\"\n    policy: %s\n" % policy


def shares(policy, program):
    """Kernel rounds done for a tenant with short kernels and one with long ones, in parts."""
    with divvytest.Daemon(config(policy), env={"POCL_MAX_PTHREAD_COUNT": "1"}, system=True) as daemon:
        daemon.run([program("turns"), str(SHORT), "0.2"])  # compiles
        children = []
        for uid, rounds in ((20001, SHORT), (20002, LONG)):
            children.append(daemon.popen(
                [program("turns"), str(rounds), str(SECONDS)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, user=uid, group=uid, extra_groups=[]))
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        done = [int(child.communicate(timeout=120)[0].split()[-1]) for child in children]
        assert all(child.returncode == 0 for child in children)
    work = done[0] * SHORT, done[1] * LONG
    return work[0] / sum(work)


@pytest.fixture(autouse=True)
def others_can_run(program):
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    try:
        subprocess.run([program("turns")], user=20001, group=20001, extra_groups=[])
    except PermissionError:
        pytest.skip("other users cannot reach the build directory")


def test_equal_time_for_unequal_kernels(program):
    divvytest.assert_median(lambda: shares("elastic", program), 0.4, 0.6)


def test_turns_alone_favour_long_kernels(program):
    share = shares("fifo", program)
    assert share < 0.35, "short kernels got %.2f of the device" % share
