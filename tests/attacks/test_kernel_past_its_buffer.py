"""A kernel, or a program, that writes past its buffer into the memory shared with the worker."""

import glob
import os
import subprocess

import pytest

from divvytest import Daemon

QUOTA = "tenants: [{memory: 64MiB}]\n"


def shared_bytes(daemon):
    """What the sessions' shared memory takes of the host, as the descriptors that divvyd holds say."""
    seen = {}
    for path in glob.glob(f"/proc/{daemon.pid}/fd/*"):
        try:
            if "/memfd:divvy-" in os.readlink(path):
                info = os.stat(path)
                seen[info.st_ino] = info.st_blocks * 512
        except OSError:
            pass
    return sum(seen.values())


def overrun(daemon, program, *arguments):
    child = daemon.popen([program("overrun"), *arguments], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    said = [child.stdout.readline().split() for _ in range(2)]
    assert [line[:1] for line in said] == [["finish"], ["changed"]], said
    return child, said[0][1], int(said[1][1])


@pytest.mark.parametrize("way", ["kernel", "before"])
def test_kernel_faults_and_changes_no_other_buffer(program, way):
    with Daemon() as daemon:
        before = shared_bytes(daemon)
        child, error, changed = overrun(daemon, program, way, "1536")
        taken = shared_bytes(daemon) - before
        child.communicate("\n", timeout=30)
        assert changed == 0
        assert error != "CL_SUCCESS"
        assert taken < 64 << 20, f"the kernel has made {taken >> 20} MiB of memory"
        daemon.await_log("was ended by signal 11")


def test_shared_memory_beyond_what_is_reserved_ends_the_session(program):
    with Daemon(QUOTA) as daemon:
        child, error, changed = overrun(daemon, program, "host", "900")
        assert (error, changed) == ("CL_SUCCESS", 0)
        assert shared_bytes(daemon) > 800 << 20
        daemon.await_log("the memory that it shares with its program has taken", within=30)
        said, _ = child.communicate("\n", timeout=30)
        assert "after CL_SUCCESS" not in said


def test_a_program_within_its_quota_stays(program):
    """Just below what ends a session, for as long as that takes."""
    with Daemon(QUOTA) as daemon:
        child, _, _ = overrun(daemon, program, "host", "100")
        try:
            child.wait(8)
        except subprocess.TimeoutExpired:
            pass
        said, _ = child.communicate("\n", timeout=30)
        assert "after CL_SUCCESS" in said
