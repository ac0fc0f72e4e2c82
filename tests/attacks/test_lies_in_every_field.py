"""Sessions lie in every field of every message of the lease channel. The honest keep their share."""

import contextlib
import random
import statistics
import time

import divvytest
import innocents
import strangers
from players import ATTACKER, VICTIM, Player, play

CONFIG = """deadlines:
  standard: 500ms
sessions-per-user: 64
devices:
  - match: "*"
    unified: no
    capacity: 8GiB
    slots: 1
tenants:
  - user: "%d"
    request: 60%%
""" % VICTIM
SECONDS = 4
HOLD_S = 0.04

# Keeps grants like an honest tenant with kernels of up to twice HOLD_S; in between it says anything.
LIAR = """
import random, select
dice, hold, lies = random.Random(int(sys.argv[3])), float(sys.argv[4]), sys.argv[5] == "lies"
NUMBERS = [0, 1, 2, 3, 4, 7, 64, 65, 1 << 20, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
class Liar:
    def __init__(self):
        self.session = lease.Session(Daemon)
        self.session.socket.setblocking(False)
        self.serial, self.until, self.number = 0, None, 0
        self.say(lease.MESSAGE, lease.LEASE_MAGIC, 1, lease.WANT, 0, 0, 0)
    def say(self, form, *fields):
        fields = [*fields, *[0] * 20]
        count = len(form.unpack(bytes(form.size)))
        self.session.socket.send(form.pack(*fields[:count]))
    def field(self, bits):
        value = dice.choice([dice.choice(NUMBERS), self.serial, self.number, dice.getrandbits(64),
                             dice.getrandbits(32), time.monotonic_ns()])
        return value & ((1 << bits) - 1)
    def lie(self):
        magic, version, form = dice.choice([(lease.LEASE_MAGIC, 1, lease.MESSAGE)] * 4 +
                                           [(lease.MEMORY_MAGIC, 2, lease.MEMORY_MESSAGE)] * 4 +
                                           [(lease.SYNC_MAGIC, lease.SYNC_VERSION, lease.SYNC_MESSAGE)])
        kind = dice.choice([*range(1, 8), self.field(16)])
        numbers = len(form.unpack(bytes(form.size))) - 5
        self.say(form, magic, version, kind, dice.choice([0, 0, 0, self.field(32)]), self.field(32),
                 *[self.field(64) for _ in range(numbers)])
    def hear(self):
        data = self.session.socket.recv(4096)
        if not data:
            raise ConnectionResetError
        magic, _, kind, *_ = struct.unpack_from("=IHH", data)
        if magic == lease.LEASE_MAGIC and kind == lease.GRANT:
            self.serial = lease.MESSAGE.unpack(data)[5]
            self.until = time.monotonic() + dice.uniform(0, 2 * hold)
        if magic == lease.MEMORY_MAGIC:
            self.number = lease.MEMORY_MESSAGE.unpack(data)[5]
    def act(self):
        if self.until and time.monotonic() > self.until:
            self.until = None
            self.say(lease.MESSAGE, lease.LEASE_MAGIC, 1, lease.RELEASE, 0, lease.AGAIN, self.serial)
        if lies:
            self.lie()
            self.say(lease.MESSAGE, lease.LEASE_MAGIC, 1, lease.WANT, 0, 0, 0)
liars = [Liar() for _ in range(6)]
while True:
    readable, _, _ = select.select([liar.session.socket for liar in liars], [], [], 0.002)
    for i, liar in enumerate(liars):
        try:
            if liar.session.socket in readable:
                liar.hear()
            liar.act()
        except BlockingIOError:
            pass
        except OSError:   # divvyd ends a session that lies too much
            liar.session.close()
            liars[i] = Liar()
"""


def share_beside(daemon, how, seed):
    beside = innocents.busy_loops() if how == "truth" else contextlib.nullcontext()
    with innocents.running([strangers.command(daemon, LIAR, seed, HOLD_S, how)], user=ATTACKER), beside:
        time.sleep(0.5)
        return 100 * play(Player(daemon, VICTIM, SECONDS, 0.005))[0]["share"]


def test_lies_bring_no_share():
    """Beside liars, an honest tenant has the same share as beside tenants that keep the device as long and run two
    busy loops."""
    seed = random.randrange(1 << 32)
    shares = {"truth": [], "lies": []}
    with divvytest.Daemon(CONFIG, system=True) as daemon:
        for repeats in innocents.REPEATS:
            for _ in range(repeats):
                for how, had in shares.items():
                    had.append(share_beside(daemon, how, seed + len(had)))
            words = "seed %d: %s" % (seed, shares)
            median = {how: statistics.median(had) for how, had in shares.items()}
            if median["lies"] >= median["truth"] - innocents.POINTS_MOST:
                break
    print(words)
    assert median["truth"] > 50, words
    assert median["lies"] >= median["truth"] - innocents.POINTS_MOST, words
