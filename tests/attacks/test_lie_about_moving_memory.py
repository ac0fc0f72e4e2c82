"""A session says that it brings in memory for its turn, to have a longer one."""

import os
import time

import divvytest
import leasechannel
from players import ATTACKER, VICTIM

CONFIG = 'devices:\n  - match: "*"\n    unified: no\n    capacity: 8GiB\n    slots: 1\ndeadlines:\n  standard: 3s\n'
BYTES = 4 << 30
TURN_MOST_S = 1.0   # a turn is 10 ms; the machine may be busy


def session_of(user, daemon):
    os.seteuid(user)
    try:
        return leasechannel.Session(daemon)
    finally:
        os.seteuid(0)


def lie_in_a_turn(attacker, victim):
    """Returns how long it had the device before it was recalled, and the longest turn it was promised."""
    attacker.say(leasechannel.WANT)
    attacker.granted()
    began, longest, said = time.monotonic(), 0, False
    attacker.say_of_memory(leasechannel.PLACE, BYTES)
    attacker.say_of_memory(leasechannel.PLACE, 0)
    victim.say(leasechannel.WANT)
    while time.monotonic() < began + 15:
        attacker.socket.settimeout(2.0)
        try:
            data = attacker.socket.recv(4096)
        except TimeoutError:   # it says that it has brought the memory in, at last
            if not said:
                attacker.say_of_memory(leasechannel.IN_PLACE, 0)
            said = True
            continue
        if len(data) != leasechannel.MESSAGE.size:
            continue
        _, _, kind, _, _, _, slice_ns, *_ = leasechannel.MESSAGE.unpack(data)
        if kind == leasechannel.RECALL:
            break
        longest = max(longest, slice_ns / 1e9)
    return time.monotonic() - began, longest


def test_a_lie_brings_no_longer_turn():
    with divvytest.Daemon(CONFIG, system=True) as daemon:
        attacker, victim = session_of(ATTACKER, daemon), session_of(VICTIM, daemon)
        times = []
        for _ in range(3):
            had, promised = lie_in_a_turn(attacker, victim)
            times.append((had, promised))
            attacker.close()
            victim.say(leasechannel.RELEASE, victim.granted())
            attacker = session_of(ATTACKER, daemon)
        had, promised = sorted(times)[1]
        assert had < TURN_MOST_S and promised < TURN_MOST_S, times
        attacker.close()
        victim.close()
