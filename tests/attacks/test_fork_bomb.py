"""Native code in a worker starts processes without end, under the default configuration."""

import divvytest
from innocents import ATTACKER, INNOCENTS

PROCESSES = 3000


def test_a_fork_bomb_is_bounded_and_others_are_served(program):
    """Bounded by the kernel's limit for the worker's user, and in a cgroup where there is one."""
    with divvytest.Daemon(system=True) as daemon:
        bomb = daemon.run([program("evil"), "breed", str(PROCESSES)], user=ATTACKER, group=ATTACKER,
                          extra_groups=[])
        assert bomb.returncode == 0, bomb.stderr
        assert 64 < int(bomb.stdout.split()[-1]) < 2100, bomb.stdout
        done = daemon.run([program("compute"), "1", "0"], user=INNOCENTS[0], group=INNOCENTS[0],
                          extra_groups=[])
        assert done.returncode == 0, done.stderr
