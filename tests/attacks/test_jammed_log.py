"""Native code in a worker keeps the lock of what it writes its log to: divvyd reads it all the same."""

import subprocess

import divvytest
import innocents
from innocents import ATTACKER


def test_divvyd_waits_for_no_log(program):
    with divvytest.Daemon("deadlines:\n  standard: 1s\n", system=True) as daemon:
        child = daemon.popen([program("evil"), "jam", "20"], user=ATTACKER, group=ATTACKER, extra_groups=[],
                             stdout=subprocess.PIPE)
        try:
            assert child.stdout.readline() == "ready\n"
            daemon.await_log("xxxx")
            innocents.assert_answers(daemon)
        finally:
            divvytest.kill_group(child)
            child.communicate()
