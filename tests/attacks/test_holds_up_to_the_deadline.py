"""A tenant keeps each grant for almost as long as the deadline allows. It pays excess time back."""

import pytest

import divvytest
from players import ATTACKER, VICTIM, Player, play

CONFIG = "deadlines:\n  standard: 1500ms\n"
HOLD_S = 0.9
SECONDS = 12
SHARE_MOST = 0.58   # of two equal tenants; the rounds are few, and a turn more or less counts


@pytest.mark.parametrize("pause", [0, 0.003], ids=["stays", "leaves"])
def test_long_holds_bring_no_more(pause):
    """The tenant stays queued, or leaves the device for a moment, after each hold."""
    with divvytest.Daemon(CONFIG, system=True) as daemon:
        victim = Player(daemon, VICTIM, SECONDS, 0.005)
        attacker = Player(daemon, ATTACKER, SECONDS, HOLD_S, pause=pause, again=not pause)
        had, took = play(victim, attacker)
        assert took["share of rounds"] <= SHARE_MOST, (had, took)
        assert "it kept a device" not in daemon.log


def test_long_holds_do_not_take_every_moment():
    """Beside a program that waits for each kernel, and so asks again only after it has given back."""
    with divvytest.Daemon(CONFIG, system=True) as daemon:
        victim = Player(daemon, VICTIM, SECONDS, 0.005, again=False)
        attacker = Player(daemon, ATTACKER, SECONDS, HOLD_S)
        had, took = play(victim, attacker)
        assert took["share"] <= 0.88 and had["share"] >= 0.1, (had, took)
