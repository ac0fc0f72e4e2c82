"""A program is called by bytes that command a terminal: the operator's screen shows none of them."""

import divvytest
import innocents
import strangers

NAMED = r"""
import ctypes
ctypes.CDLL(None).prctl(15, b"\x1b]0;x\x07\n\x1b[2J", 0, 0, 0)
session = lease.Session(Daemon)
print(session.status, flush=True)
sys.stdin.readline()
"""


def test_names_do_not_command_a_terminal():
    with divvytest.Daemon(system=True) as daemon:
        child = strangers.start(daemon, innocents.ATTACKER, NAMED)
        try:
            assert child.stdout.readline() == "0\n"
            for words in (("ps",), ("tenants",), ("devices",)):
                shown = daemon.cli(*words)
                assert not set(shown) & {chr(code) for code in range(32) if code != 10}, repr(shown)
        finally:
            child.kill()
            child.wait()
        divvytest.wait_for(lambda: not daemon.sessions(), 10, "the session is still there")
        assert "\x1b" not in daemon.log
