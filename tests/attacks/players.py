"""Tenants that play a part on the lease channel, each a process of a user of its own."""

import json
import os
import subprocess
import sys

VICTIM, ATTACKER = 4001, 4002

# Takes the device again and again and keeps it for a while each time, whatever it is told meanwhile.
PLAYER = """import json, sys, time
library, directory, hello, hold, pause, again, seconds = json.loads(sys.argv[1])
sys.path.insert(0, library)
import leasechannel as lease
class Daemon: dir = directory
session = lease.Session(Daemon, **hello)
assert session.status == 0, session.text
print("ready", flush=True)
sys.stdin.readline()
grants, held, longest = [], 0.0, 0.0
session.say(lease.WANT)
asked = began = time.monotonic()
while time.monotonic() < began + seconds:
    try:
        serial = session.granted(seconds)
    except AssertionError:
        break
    got = time.monotonic()
    grants.append(got)
    longest = max(longest, got - asked)
    while time.monotonic() < got + hold:
        time.sleep(max(0, min(hold, got + hold - time.monotonic())))
    held += time.monotonic() - got
    session.say(lease.RELEASE, serial, flags=lease.AGAIN if again else 0)
    if pause:
        time.sleep(pause)
    asked = time.monotonic()
    if not again:
        session.say(lease.WANT)
longest = max(longest, time.monotonic() - asked)
# from grant to grant, so that no part of a cycle counts
rounds = (grants[-1] - grants[0]) if len(grants) > 1 else 0
print(json.dumps({"share": held / (time.monotonic() - began), "longest wait": longest,
                  "share of rounds": (len(grants) - 1) * hold / rounds if rounds else 1.0,
                  "grants": len(grants)}))
"""


class Player:
    """hold and pause are in seconds; again: it has more work when it gives back."""

    def __init__(self, daemon, user, seconds, hold, pause=0, again=True, groups=(), **hello):
        library = os.path.dirname(os.path.abspath(sys.modules["leasechannel"].__file__))
        part = json.dumps([library, daemon.dir, hello, hold, pause, again, seconds])
        self.seconds = seconds
        self.process = subprocess.Popen([sys.executable, "-c", PLAYER, part], user=user, group=user,
                                        extra_groups=list(groups), text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)


def play(*players):
    """What each of them had, once all have played at the same time."""
    try:
        for player in players:
            assert player.process.stdout.readline() == "ready\n"
        for player in players:
            player.process.stdin.write("go\n")
            player.process.stdin.flush()
        return [json.loads(player.process.communicate(timeout=3 * player.seconds + 30)[0])
                for player in players]
    finally:
        for player in players:
            player.process.kill()
            player.process.wait()
