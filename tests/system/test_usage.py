"""divvy usage: the journal of used device time, across restarts of all kinds."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import divvytest
from leasechannel import WANT, Session


def usage(daemon, *options, code=0, env=None):
    done = subprocess.run([divvytest.binary("divvy"), "usage", "--dir", os.path.join(daemon.home, "state"), *options],
                          capture_output=True, text=True, env=env)
    assert done.returncode == code, done
    return done.stdout if code == 0 else done.stderr


def summed(daemon, by="command"):
    return {row["name"]: row for row in json.loads(usage(daemon, "--json", "--by", by))["usage"]}


def start(daemon, program):
    child = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE)
    assert child.stdout.readline() == "ready\n"
    return child


def finish(daemon, child):
    child.send_signal(signal.SIGUSR1)
    assert child.wait(timeout=60) == 0
    child.stdout.close()
    divvytest.wait_for(lambda: not daemon.sessions(), 10, "its session does not end")


def test_what_was_used(program):
    with divvytest.Daemon() as daemon:
        first = start(daemon, program)
        time.sleep(1)
        began, used = time.monotonic(), daemon.sessions()[0]["used_s"]
        finish(daemon, first)
        took = time.monotonic() - began
        row = summed(daemon)["compute"]
        assert row["sessions"] == 1 and used - 0.1 < row["used_s"] < used + took + 0.1
        finish(daemon, start(daemon, program))
        assert summed(daemon)["compute"]["sessions"] == 2
        table = usage(daemon, "--by", "user", "--since", "1h").splitlines()
        assert table[0].split() == ["USER", "SESSIONS", "TIME", "PART", "WAITED"] and len(table) == 2
        assert len(usage(daemon, "--since", "2000-01-01", "--until", "2000-01-02").splitlines()) == 1
        asked = ("--json", "--since", "2000-01-01", "--until", "2000-01-02 12:30")
        document = json.loads(usage(daemon, *asked, env={**os.environ, "TZ": "UTC-2"}))
        assert (document["since"], document["until"]) == ("1999-12-31T22:00:00Z", "2000-01-02T10:30:00Z")
        assert "--since is" in usage(daemon, "--since", "yesterday", code=2)
        assert "--by is" in usage(daemon, "--by", "colour", code=2)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGUSR1])
def test_restarts_lose_and_double_nothing(program, how):
    with divvytest.Daemon() as daemon:
        child = start(daemon, program)
        for _ in range(5):
            time.sleep(0.5)
            daemon.kill(how)
            daemon.start()
            divvytest.wait_for(lambda: len(daemon.sessions()) == 1, 10, "the session is lost")
        began, used = time.monotonic(), daemon.sessions()[0]["used_s"]
        finish(daemon, child)
        took = time.monotonic() - began
        row = summed(daemon)["compute"]
        assert row["sessions"] == 1 and used - 0.2 < row["used_s"] < used + took + 0.1, (used, took, row)


def test_a_restart_loses_no_sum_of_short_sessions():
    """Sessions that end in quick succession share a line, which is written some seconds later."""
    count, hold_s = 130, 0.01
    with divvytest.Daemon() as daemon:
        for _ in range(count):
            with contextlib.closing(Session(daemon)) as session:
                session.say(WANT)
                session.granted()
                time.sleep(hold_s)
        divvytest.wait_for(lambda: not daemon.sessions(), 10, "sessions do not end")
        daemon.kill(signal.SIGUSR1)
        rows = summed(daemon).values()
        assert sum(row["used_s"] for row in rows) > 0.95 * count * hold_s, rows
        assert sum(row["sessions"] for row in rows) < count, "each had a line of its own"


def test_torn_lines_are_no_lines(program):
    with divvytest.Daemon() as daemon:
        finish(daemon, start(daemon, program))
        before = summed(daemon)["compute"]
        with open(os.path.join(daemon.home, "state", "usage.log"), "a") as journal:
            journal.write("1\t%d\t5\t77\t0\t1\t5000\t0\troot\tx\tcompu" % time.time())
        assert summed(daemon)["compute"] == before


def test_the_journal_is_bounded(program):
    """Files are exchanged when they are full, and sums do not suffer as long as the file before is there."""
    with divvytest.Daemon() as daemon:
        finish(daemon, start(daemon, program))
        path = os.path.join(daemon.home, "state", "usage.log")
        line = "1\t%d\t5\t%d\t0\t1\t10\t0\troot\tfiller\tfiller\n"
        with open(path, "a") as journal:
            number = 1 << 40
            while journal.tell() < 16 << 20:
                journal.write("".join(line % (time.time(), number + i) for i in range(10000)))
                number += 10000
        daemon.kill(signal.SIGUSR1)
        daemon.start()   # it looks at the size of the file
        finish(daemon, start(daemon, program))
        assert sorted(os.listdir(os.path.join(daemon.home, "state"))) == ["usage.log", "usage.log.1"]
        finish(daemon, start(daemon, program))
        assert summed(daemon)["compute"]["sessions"] == 3


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
