"""bench/run restarts: divvyd is restarted repeatedly, by SIGKILL or by request, under sixteen tenants that
always have work. All results must be right, no call may fail, and over the whole run every tenant must have
had its entitlement."""
import argparse
import json
import random
import signal
import statistics
import time

import harness
from share import Figure, parts, print_table
from sharing.trial import Place, Side, Tenant, Trial, Work

SETTING = """\
The device is PoCL with one thread, pinned to core 0; tenants, divvyd and the other threads of the
workers are on core 1. Each tenant is a user of its own. Shares are computed from the times at
which kernels ran."""

KERNEL_MS = 1.0
# request, limit, weight
SHARES = [(25, 100, 1), (10, 100, 1), (0, 2, 1), (0, 100, 3), (0, 100, 3), (0, 100, 2), (0, 100, 2),
          (0, 100, 2), (0, 100, 2), (0, 100, 1), (0, 100, 1), (0, 100, 1), (0, 100, 1), (0, 100, 1),
          (0, 100, 1), (0, 100, 1)]


def entitlements(shares):
    """By weight, but no tenant below its request or above its limit."""
    fixed = {}
    while True:
        left = 100 - sum(fixed.values())
        weights = sum(weight for i, (_, _, weight) in enumerate(shares) if i not in fixed)
        found = {i: left * weight / weights for i, (_, _, weight) in enumerate(shares)
                 if i not in fixed}
        above = {i: shares[i][1] for i, part in found.items() if part > shares[i][1]}
        below = {i: shares[i][0] for i, part in found.items() if part < shares[i][0]}
        if not above and not below:
            return [(fixed | found)[i] / 100 for i in range(len(shares))]
        fixed |= below or above


def tenants():
    return [Tenant(f"t{i:02}", entitled, Work(KERNEL_MS), request=f"{request}%", limit=f"{limit}%",
                   weight=weight)
            for i, ((request, limit, weight), entitled)
            in enumerate(zip(SHARES, entitlements(SHARES)))]


class Restarts:
    def __init__(self, side, count, seconds, seed):
        self.side = side
        self.count = count
        self.seconds = seconds
        self.rng = random.Random(seed)
        self.done = {signal.SIGKILL: 0, signal.SIGUSR1: 0}

    def __call__(self, trial):
        """Restarts at random moments of the trial, also before a daemon is ready."""
        moments = sorted(self.rng.uniform(1, self.seconds - 2) for _ in range(self.count))
        for moment in moments:
            trial.sleep_until(moment)
            how = self.rng.choice(list(self.done))
            self.side.restart(how)
            self.done[how] += 1


def measure(place, count, seconds, seed):
    # One slice in a hundred is 1 point of a share: the run has to be long enough for that
    with Side(place, "elastic", tenants()) as side:
        restarts = Restarts(side, count, seconds, seed)
        began = time.monotonic()
        trial = Trial(side, seconds, during=restarts)
        took = time.monotonic() - began
        deadline = time.monotonic() + 20
        while json.loads(side.divvy("ps", "--json"))["sessions"] and time.monotonic() < deadline:
            time.sleep(0.1)
        left = len(json.loads(side.divvy("ps", "--json"))["sessions"])
        side.divvy("check")
        shares = [100 * part for part in parts([sum(times) for times in trial.bins()])]
        print(f"\n{sum(restarts.done.values())} restarts in {took:.0f} s "
              f"({restarts.done[signal.SIGKILL]} killed, {restarts.done[signal.SIGUSR1]} asked), "
              f"{trial.kernel_count} kernels, all results right; {trial.disturbance}")
        print("  tenant  entitled   had")
        for tenant, share in zip(trial.tenants, shares):
            print(f"  {tenant.name}     {100 * tenant.entitled:6.2f} % {share:6.2f} %")
        return [abs(share - 100 * tenant.entitled)
                for tenant, share in zip(trial.tenants, shares)], left, trial.disturbance


def main(arguments):
    parser = argparse.ArgumentParser(prog="bench/run restarts", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="40 restarts in 20 seconds")
    parser.add_argument("--restarts", type=int, default=500)
    parser.add_argument("--seconds", type=float, help="how long the run is; default: half a second each")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    count = 40 if options.quick else options.restarts
    print(SETTING)
    # a slice of 10 ms is a point of a second: in a short run the deviation is larger
    bar = 3.0 if options.quick else 1.0
    worst = Figure("restarts.worst", "furthest from its entitlement", ("<=", bar), "points")
    mean = Figure("restarts.mean", "mean of all", None, "points")
    left = Figure("restarts.left", "sessions left over", ("<=", 0), "")
    with harness.Scratch() as scratch:
        errors, sessions, disturbance = measure(Place(scratch), count, options.seconds or count / 2,
                                                options.seed)
    worst.add(max(errors), disturbance.matters())
    mean.add(statistics.mean(errors))
    left.add(sessions)
    print_table(f"{count} restarts of divvyd under 16 tenants", [worst, mean, left])
    return harness.conclude("restarts", [worst, mean, left], "divvy", name=lambda figure: figure.key)
