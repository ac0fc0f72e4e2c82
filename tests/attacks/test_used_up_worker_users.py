"""A user exhausts the users that workers run as, and fills the disk with their directories."""

import contextlib
import os
import statistics
import subprocess
import time

import pytest

import divvytest
import leasechannel as lease
from innocents import ATTACKER, INNOCENTS

FIRST, LAST = 1879048192, 1879113727   # worker-users by default
START_CPU_S = 1.0
PROMPT_S = 10.0
GRANT_MOST_S = 0.5


@pytest.fixture
def caches():
    """A directory that the system's daemon and its workers can reach; in memory, for it is large."""
    with contextlib.ExitStack() as stack:
        path = subprocess.run(["mktemp", "-d", "/dev/shm/dv-caches-XXXXXX"], capture_output=True, text=True,
                              check=True).stdout.strip()
        stack.callback(subprocess.run, ["rm", "-rf", path], check=True)
        os.chmod(path, 0o711)
        yield path


def fill(caches, numbers, owner=None):
    """A directory for each number, of as many users of programs."""
    for i, number in enumerate(numbers):
        path = os.path.join(caches, "%d-%d.%d" % (number, i, owner or 100000 + i))
        os.mkdir(path, 0o700)
        os.chown(path, number, number)


def cpu_s(pid):
    with open("/proc/%d/stat" % pid) as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compute(daemon, program, user, **kwargs):
    return daemon.popen([program("compute"), "1", "600"], user=user, group=user, extra_groups=[],
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)


def test_all_numbers_are_taken_at_the_start(program, caches):
    fill(caches, range(FIRST, LAST))
    with divvytest.Daemon(system=True, env={"DIVVY_CACHE": caches}) as daemon:
        began = cpu_s(daemon.pid)
        assert began < START_CPU_S
        session, waits = lease.Session(daemon), []
        child = compute(daemon, program, INNOCENTS[0])
        try:
            begun = time.monotonic()
            while time.monotonic() < begun + 2:
                asked = time.monotonic()
                session.say(lease.WANT)
                serial = session.granted(120)
                waits.append(time.monotonic() - asked)
                session.say(lease.RELEASE, serial)
                time.sleep(0.01)
            print("%.2f s of processor time until it is ready; grants after at most %.1f ms" % (
                began, 1e3 * max(waits)))
            assert statistics.median(waits) < GRANT_MOST_S / 10 and max(waits) < GRANT_MOST_S
            # refused while all are taken, served as soon as one is free: either at once
            divvytest.wait_for(lambda: child.poll() is not None or daemon.sessions()[1:], PROMPT_S,
                               "a session of a new user is neither served nor refused")
        finally:
            session.close()
            divvytest.kill_group(child)
            child.communicate()
        divvytest.wait_for(lambda: len(os.listdir(caches)) < LAST - FIRST - 100, 20, "no number becomes free")
        done = daemon.run(["clinfo", "-l"], user=INNOCENTS[1], group=INNOCENTS[1], extra_groups=[])
        assert "divvy" in done.stdout, done.stderr


def test_nobody_shares_a_worker_user(program, caches):
    """With more users than numbers the last ones are refused, and served once another has left."""
    config = "worker-users: 1879048192-1879048195\n"   # the probe has one, and the last is reserved
    with divvytest.Daemon(config, system=True, env={"DIVVY_CACHE": caches}) as daemon, \
            contextlib.ExitStack() as stack:
        children = []
        for user in (4101, 4102):
            child = compute(daemon, program, user)
            stack.callback(child.communicate)
            stack.callback(divvytest.kill_group, child)
            assert child.stdout.readline() == "ready\n"
            children.append(child)
        numbers = {name.split("-")[0] for name in os.listdir(caches)}
        assert len(numbers) == 3, numbers
        refused = daemon.run([program("compute"), "1", "0"], user=4105, group=4105, extra_groups=[])
        assert refused.returncode != 0
        assert "worker-users" in refused.stderr + daemon.log
        divvytest.kill_group(children[0])
        divvytest.wait_for(lambda: "divvy" in daemon.run(["clinfo", "-l"], user=4105, group=4105,
                                                         extra_groups=[]).stdout, PROMPT_S,
                           "the number of a user that has left is not used again")
        assert not [name for name in os.listdir(caches) if name.endswith(".4101")]


def test_all_directories_together_are_bounded(caches):
    """Unused directories are removed, the least recently used first."""
    fill(caches, range(FIRST, FIRST + 3))
    for i in range(3):
        path = os.path.join(caches, "%d-%d.%d" % (FIRST + i, i, 100000 + i), "kernels")
        with open(path, "wb") as file:
            file.write(b"x" * (3 << 20))
        os.chown(path, FIRST + i, FIRST + i)
        os.chmod(os.path.dirname(path), 0)   # a tenant may shut its own
        time.sleep(1.1)
    with divvytest.Daemon("cache-size: 4MiB\ncaches-size: 8MiB\n", system=True,
                          env={"DIVVY_CACHE": caches}) as daemon:
        divvytest.wait_for(lambda: len([name for name in os.listdir(caches) if ".1000" in name]) == 2,
                           20, lambda: "none is removed: %s" % os.listdir(caches))
        assert not [name for name in os.listdir(caches) if name.endswith("-0.100000")]
        done = daemon.run(["clinfo", "-l"], user=ATTACKER, group=ATTACKER, extra_groups=[])
        assert "divvy" in done.stdout, done.stderr
