"""Classes and guarantees of bench/run share: that a class buys order and not share, that idle work takes
only what is left over, and that a guarantee that was not used is not saved up."""
import statistics

import harness
from sharing.figures import AT_LEAST_NONE, AT_MOST_ALL, Figure, median_and_spread, parts, print_rows
from sharing.trial import NS_PER_MS, NS_PER_S, SETTLE_S, Tenant, Work

KERNEL_MS = 2.0
CLASS_POINTS = 2       # of the share that each tenant should have
CLASS_HELD_POINTS = 5  # of what divvyd charges, on any machine
UNUSED_POINTS = 2      # of the time, that idle work may leave unused
WORDS = {"class_": "class"}   # a word of Python


def always(name, entitled, **share):
    """A tenant that always has work."""
    return Tenant(name, entitled, Work(KERNEL_MS),
                  **{WORDS.get(key, key): value for key, value in share.items()})


def latency(name, entitled, **share):
    return always(name, entitled, class_="latency", **share)


# What each should have: by weight, but no tenant below its request or above its limit; the classes change
# none of it, except that idle work has what the others leave.
CLASS_ROWS = {
    "limit30": ("latency; standard limit 30 %", lambda: [
        latency("L", 0.7), always("S", 0.3, limit="30%")]),
    "request20": ("latency; standard request 20 %, limit 40 %", lambda: [
        latency("L", 0.6), always("G", 0.4, request="20%", limit="40%")]),
    "request50": ("2 latency of weight 10; standard request 50 %", lambda: [
        latency("L1", 0.25, weight=10), latency("L2", 0.25, weight=10),
        always("G", 0.5, request="50%")]),
    "request40": ("2 latency; standard request 40 %; standard limit 10 %", lambda: [
        latency("L1", 0.25), latency("L2", 0.25), always("G", 0.4, request="40%"),
        always("S", 0.1, limit="10%")]),
    "idle_rest": ("standard limit 30 %; idle", lambda: [
        always("S", 0.3, limit="30%"), always("I", 0.7, class_="idle")]),
    "idle_none": ("2 standard; idle", lambda: [
        always("S1", 0.5), always("S2", 0.5), always("I", 0.0, class_="idle")]),
}


class ClassRow:
    """One mix: the shares of its tenants by repetition."""

    def __init__(self, key):
        self.label, self.tenants = CLASS_ROWS[key]
        self.shares = [[] for _ in self.tenants()]
        self.off = Figure(f"class_{key}_off", f"{self.label}: furthest off", ("<=", CLASS_POINTS),
                          "points", best=AT_LEAST_NONE)
        self.held = Figure(f"class_{key}_held_off", "  gaps between own kernels included",
                           ("<=", CLASS_HELD_POINTS), "points", always=True, best=AT_LEAST_NONE)
        self.busy = Figure(f"class_{key}_busy", "  device busy", best=AT_MOST_ALL)

    def add(self, trial, disturbed):
        entitled = [tenant.entitled for tenant in trial.tenants]
        shares = parts([sum(times) for times in trial.bins()])
        for values, share in zip(self.shares, shares):
            values.append(100 * share)
        for figure, of_tenants in ((self.off, shares), (self.held, parts(trial.held()))):
            figure.add(max(abs(100 * (share - part)) for share, part in zip(of_tenants, entitled)),
                       disturbed)
        self.busy.add(trial.busy(), disturbed)

    def figures(self):
        return [self.off, self.held, self.busy]

    def lines(self):
        return [[self.label if index == 0 else "", tenant.name, f"{100 * tenant.entitled:.2f}",
                 *median_and_spread(values)]
                for index, (tenant, values) in enumerate(zip(self.tenants(), self.shares))]


def classes(bench):
    keys = [key for key in CLASS_ROWS if key in bench.plan.class_rows]
    rows = {key: ClassRow(key) for key in keys}

    def take(key):
        trial = bench.quiet_trial(rows[key].tenants, bench.plan.class_s)
        rows[key].add(trial, bench.disturbed(trial))

    harness.interleave(keys, bench.plan.class_repetitions, take)
    figures = bench.show(
        "classes: shares of tenants that always have work",
        [figure for row in rows.values() for figure in row.figures()])
    print(f"  share: kernel time of the tenant by that of all tenants from second {SETTLE_S:g} on; "
          f"repetitions: {bench.plan.class_repetitions}, rows in turn")
    print_rows([["", "tenant", "should, %", "share, %", "min-max"]]
               + [line for row in rows.values() for line in row.lines()])
    return figures


# ---- idle work beside work with pauses ----

BURST, PAUSE_MS, IDLE_KERNEL_MS = 10, 20.0, 5.0


def with_pauses():
    return [Tenant("standard", None, Work(KERNEL_MS, burst=BURST, pause_ms=PAUSE_MS, jitter=20))]


def idle(bench):
    """A standard tenant that works and pauses in turn, alone and with idle work beside it."""
    beside_idle = lambda: with_pauses() + [
        Tenant("idle", None, Work(IDLE_KERNEL_MS), **{"class": "idle"})]
    added = Figure("idle_slows", "standard with pauses; idle: a wake-up takes longer by, in idle "
                   "kernels", ("<=", 1), "", best=AT_LEAST_NONE)
    unused = Figure("idle_unused", "  time in which the device did nothing",
                    ("<=", UNUSED_POINTS), best=AT_LEAST_NONE)
    shares = [Figure("idle_standard", "  time of standard", best=AT_MOST_ALL),
              Figure("idle_idle", "  time of idle; at best all that standard leaves",
                     best=AT_MOST_ALL)]
    alone_of = Figure("idle_alone", "  time of standard alone", best=AT_MOST_ALL)
    seconds = bench.plan.idle_s
    alone, beside = harness.interleave(
        [with_pauses, beside_idle], bench.plan.class_repetitions,
        lambda tenants: bench.quiet_trial(tenants, seconds))
    for one, two in zip(alone, beside):
        disturbed = bench.disturbed(one) or bench.disturbed(two)
        longer = statistics.mean(two.bursts_ms(0)) - statistics.mean(one.bursts_ms(0))
        added.add(longer * NS_PER_MS / two.logs[1].median_ns(), disturbed)
        unused.add(100 - two.busy(), disturbed)
        wall = (seconds - SETTLE_S) * NS_PER_S
        standard, rest = (100 * sum(times) / wall for times in two.bins())
        shares[0].add(standard, disturbed)
        shares[1].add(rest, disturbed, limit=100 - standard)
        alone_of.add(100 * sum(one.bins()[0]) / wall, disturbed)
    figures = bench.show("idle: what others leave", [added, unused, *shares, alone_of])
    print("  A wake-up finds a kernel of the idle tenant at work and waits for its end: half of one "
          "on average, if nothing\n  else delays it. Times are parts of the time that passed; the "
          "device did nothing where no kernel ran.")
    return figures


# ---- hoarding ----

SMALL_MS, GAP_MS = 0.3, 0.5
BOUND_SLICES, SLICE_MS = 2.5, 10.0   # docs/policies.md: the largest deviation in any window


def hoarder(percent, change_s):
    return lambda: [
        Tenant("H", percent / 100, Work(SMALL_MS, burst=1, pause_ms=GAP_MS, steady_s=change_s),
               request=f"{percent}%"),
        Tenant("V", 1 - percent / 100, Work(KERNEL_MS), request=f"{100 - percent}%")]


def hoarding(bench):
    """H uses little of its guarantee, with pauses that are shorter than a slice, and then works without
    any; V always works. What V has in each second after the change."""
    change, after = bench.plan.hoard_change_s, bench.plan.hoard_after_s
    bound = 100 * BOUND_SLICES * SLICE_MS / 1000
    lowest = {percent: Figure(
        f"hoarding_{percent}", f"H request {percent} %, V request {100 - percent} %: V's lowest "
        "second after H's change", (">=", 100 - percent - bound),
        best=("<=", 100 - percent + bound))   # above it H did not work
        for percent in bench.plan.hoard_requests}
    held = {percent: Figure(
        f"hoarding_{percent}_held", "  all of these seconds, gaps between own kernels included",
        (">=", 100 - percent - CLASS_HELD_POINTS), always=True, best=AT_MOST_ALL)
        for percent in lowest}
    seconds = {percent: [[] for _ in range(after + 1)] for percent in lowest}

    def take(percent):
        trial = bench.quiet_trial(hoarder(percent, change), change + after)
        by_second = [100 * share[1] for share in (
            parts([times[0] for times in trial.bins(first, first + 1, NS_PER_S)])
            for first in range(change - 1, change + after))]
        for values, share in zip(seconds[percent], by_second):
            values.append(share)
        lowest[percent].add(min(by_second[1:]), bench.disturbed(trial))
        held[percent].add(100 * parts(trial.held(from_s=change))[1])

    harness.interleave(list(lowest), bench.plan.class_repetitions, take)
    figures = bench.show("hoarding: a guarantee that was not used is not saved up",
                         [figure for pair in zip(lowest.values(), held.values())
                          for figure in pair])
    print(f"  H: kernels of {SMALL_MS} ms with pauses of {GAP_MS} ms for {change} s, then without. V "
          f"always works ({KERNEL_MS:g} ms). Share: V's kernel time by that of\n  both. The bar is V's "
          f"guarantee less {bound:g} points: {BOUND_SLICES} slices of {SLICE_MS:g} ms in a second.")
    print_rows([["V's share, %", "should"] + ["before" if s == 0 else f"second {s}"
                                                  for s in range(after + 1)]]
               + [[f"H {percent} %", f"{100 - percent}"]
                  + [" ".join(median_and_spread(values, 1)) for values in of_case]
                  for percent, of_case in seconds.items()])
    return figures
