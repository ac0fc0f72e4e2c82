"""Innocent tenants beside an attack: what they have of a device, and how long they wait for it.

An attack that burns processor time slows all tenants down, as two plain busy loops do. So each attack
is measured beside busy loops, in turns: it may cost the innocents no more than they do.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time

import leasechannel as lease
import strangers

ATTACKER = 4002          # user number of the attacker
INNOCENTS = (4101, 4102)
PHASE_S = 3.0
REPEATS = (3, 4)        # turns, and as many more where those were not enough
POINTS_MOST = 3.0        # of the device that an attack may cost beyond what busy loops cost
LATENCY_FACTOR_MOST = 2.0
LATENCY_NOISE_S = 0.002  # of a p99 on a machine that others use, too

# Takes the device as often as it can, computes for a millisecond, and gives it back.
INNOCENT = """
seconds, session = float(sys.argv[3]), lease.Session(Daemon)
print("ready", flush=True)
sys.stdin.readline()
held, waits, began = 0.0, [], time.monotonic()
while (asked := time.monotonic()) < began + seconds:
    session.say(lease.WANT)
    try:
        serial = session.granted(seconds)
    except AssertionError:
        waits.append(time.monotonic() - asked)
        break
    got = time.monotonic()
    while time.monotonic() < got + 0.001:
        pass
    held += time.monotonic() - got
    session.say(lease.RELEASE, serial)
    waits.append(got - asked)
print(json.dumps({"held": held / (time.monotonic() - began), "waits": waits}))
"""

BUSY_LOOP = "while True: pass"


@contextlib.contextmanager
def running(commands, user=ATTACKER):
    """Processes of a user that run until the block ends. A process that ends before that fails the test."""
    children = []
    with contextlib.ExitStack() as stack:
        for command in commands:
            child = subprocess.Popen(command, user=user, group=user, extra_groups=[],
                                     stdin=subprocess.DEVNULL, start_new_session=True)
            stack.callback(child.wait)
            stack.callback(child.kill)
            children.append(child)
        yield
        assert all(child.poll() is None for child in children), "an attack has ended by itself"


def busy_loops():
    return running([[sys.executable, "-c", BUSY_LOOP]] * 2)


def measure(daemon, seconds=PHASE_S):
    """(part of the device that the innocents have together in %, p99 of their waits in s)."""
    children = []
    try:
        for user in INNOCENTS:
            children.append(strangers.start(daemon, user, INNOCENT, seconds))
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        results = [json.loads(child.communicate(timeout=seconds * 4 + 30)[0]) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    waits = sorted(wait for result in results for wait in result["waits"])
    return 100 * sum(result["held"] for result in results), waits[int(len(waits) * 0.99) - 1]


def assert_unharmed(daemon, attack, settle_s=1.0, seconds=PHASE_S):
    """Fails if an attack costs the innocents more than two busy loops do, by the median of turns (see judge). If a few
    turns say so, more are measured, and all of them count: others may use the machine, too.

    attack  makes a context manager within which the attack goes on
    """
    shares, tails = {"busy loops": [], "attack": []}, {"busy loops": [], "attack": []}
    for repeats in REPEATS:
        for _ in range(repeats):
            for name, beside in (("busy loops", busy_loops), ("attack", attack)):
                with beside():
                    time.sleep(settle_s)
                    share, tail = measure(daemon, seconds)
                shares[name].append(share)
                tails[name].append(tail)
        if not judge(shares, tails):
            return
    raise AssertionError(judge(shares, tails))


def judge(shares, tails):
    """How an attack harmed the innocents, or None."""
    words = "; ".join("beside %s: %s %% of the device, p99 of a grant %s ms" % (
        name, ", ".join("%.1f" % share for share in shares[name]),
        ", ".join("%.2f" % (1e3 * tail) for tail in tails[name])) for name in shares)
    print(words)
    # On few cores a share depends on which processes meet on one, and jumps between two values: medians of the same
    # load differ. So the attack's median is compared with a bad turn beside busy loops, the worst quarter.
    least_share = statistics.quantiles(shares["busy loops"], n=4)[0] - POINTS_MOST
    most_tail = LATENCY_FACTOR_MOST * statistics.quantiles(tails["busy loops"], n=4)[2] + LATENCY_NOISE_S
    unharmed = (statistics.median(shares["attack"]) >= least_share and statistics.median(tails["attack"]) <= most_tail)
    return None if unharmed else words


PROCESSOR_MOST = 30   # % of one processor that divvyd has beside an attack: its tenth, the innocents', what the kernel adds


def processor_seconds(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def assert_divvyd_is_idle(daemon, attack, settle_s=1.0, seconds=1.5, times=5):
    """Fails if an attack keeps divvyd busy while innocents need it, too, by the median of a few measurements. This
    works on a machine that others use, where shares and waits do not."""
    used, shares = [], []
    with attack():
        time.sleep(settle_s)
        for _ in range(times):
            before, began = processor_seconds(daemon.pid), time.monotonic()
            shares.append(measure(daemon, seconds)[0])
            used.append(100 * (processor_seconds(daemon.pid) - before) / (time.monotonic() - began))
    words = "divvyd had %s %% of a processor, innocents %s %% of the device" % tuple(
        ", ".join("%.0f" % value for value in values) for values in (used, shares))
    print(words)
    assert statistics.median(used) < PROCESSOR_MOST, words


ANSWER_S = 1.0   # on a busy machine


def assert_answers(daemon, seconds=3.0):
    """Fails if divvyd stalls: opens sessions, which are granted the device, and leave."""
    longest, began = 0.0, time.monotonic()
    while (asked := time.monotonic()) < began + seconds:
        session = lease.Session(daemon)
        session.say(lease.WANT)
        session.say(lease.RELEASE, session.granted(30))
        session.close()
        longest = max(longest, time.monotonic() - asked)
        time.sleep(0.02)
    assert longest < ANSWER_S, "an answer took %.1f s" % longest
