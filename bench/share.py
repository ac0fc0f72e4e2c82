"""bench/run share: whether tenants get the share of the device that they are entitled to, computed
from the kernels that really ran."""
import argparse
import math
import os
import pathlib
import statistics
import sys

import harness
from harness import vendorchoice
from sharing import classes, drawing, latency, programs, simulated
from sharing.figures import (AT_LEAST_NONE, AT_MOST_ALL, BASELINES, Figure, parts, print_table)
from sharing.trial import (BIN_NS, NS_PER_MS, NS_PER_S, Place, Side, Tenant, Trial, Work)

SHORT_MS, LONG_MS = 0.333, 5.0
AT_ONCE_PERCENT = 1   # the clocks of two processes differ a little
HELD_OFF_POINTS = 5   # of what divvyd charges, on any machine
WINDOW_BINS = 10   # one second
QUICK_CLASS_ROWS = ["limit30", "request20", "request50", "request40"]

POCL_SETTING = "PoCL with one thread, pinned to core 0"
SETTING = f"""\
The device is {POCL_SETTING}; tenants, divvyd and the other threads of the
workers are on core 1. Each tenant is a user of its own. Shares are computed from the times at
which kernels ran. elastic and fifo are policies of divvyd: fifo grants by arrival, as the
queue of an accelerator does, and knows no shares. bare is without divvy: there Linux takes the core
from one tenant's kernel for another's, which no accelerator does; it is for information, and its
shares are counted in work done."""


class Plan:
    """How long and how often."""

    def __init__(self, quick):
        self.quick = quick
        self.share_s = 4 if quick else 12
        self.share_repetitions = 1 if quick else 2
        self.off_points = 1.0 if quick else 0.5   # a slice of 10 ms is a third of a point of 3 s
        self.attempts = 3   # at a trial in which no other machine has the cores
        self.baseline_s = 2 if quick else 5
        self.trace_s = 12 if quick else 60
        self.busy_s = 0.5 if quick else 3.0
        self.busy_repetitions = 1 if quick else 5
        self.slice_s = 0.5 if quick else 3.0
        self.slice_repetitions = 1 if quick else 2
        self.class_rows = QUICK_CLASS_ROWS if quick else list(classes.CLASS_ROWS)
        self.class_s = 4 if quick else 6
        self.class_repetitions = 1 if quick else 5
        self.idle_s = 4 if quick else 6
        self.hoard_change_s, self.hoard_after_s = (3, 3) if quick else (6, 5)
        self.hoard_requests = [50] if quick else [50, 80]
        self.latency_s = 4 if quick else 8
        self.latency_repetitions = 1 if quick else 5
        self.latency_cases = [(20, 4), (60, 4)] if quick else [(20, 1), (20, 4), (40, 4), (60, 4)]
        self.programs_s = 8 if quick else 30
        self.programs_repetitions = 1 if quick else 3
        self.live_s = 0.6 if quick else 2.0
        self.sim_s = 2 if quick else 8


# ---- shares of tenants that always have work ----

def sliding(times):
    """Part of each window of a second that was used."""
    return [sum(times[i:i + WINDOW_BINS]) / (WINDOW_BINS * BIN_NS)
            for i in range(len(times) - WINDOW_BINS + 1)]


class Shares:
    """Deviation of each tenant's part of the used device time from its entitlement, in points, over the run
    and in windows of a second."""

    def __init__(self, trial):
        entitled = [tenant.entitled for tenant in trial.tenants]
        bins = trial.bins()
        self.run = [100 * share for share in parts([sum(times) for times in bins])]
        self.run_error = max(abs(share - 100 * e) for share, e in zip(self.run, entitled))
        self.held_error = max(abs(100 * (share - e))
                              for share, e in zip(parts(trial.held()), entitled))
        errors = [[] for _ in entitled]
        for first in range(len(bins[0]) - WINDOW_BINS + 1):
            shares = parts([sum(times[first:first + WINDOW_BINS]) for times in bins])
            for index, share in enumerate(shares):
                errors[index].append(abs(100 * (share - entitled[index])))
        self.within_2 = min(100 * sum(e <= 2 for e in of_tenant) / len(of_tenant)
                            for of_tenant in errors)
        self.worst = max(max(of_tenant) for of_tenant in errors)
        self.busy = trial.busy()

    def values(self):
        return [self.within_2, self.run_error, self.worst, self.held_error, self.busy]


def halves(count):
    """Half of the tenants with short kernels, half with long ones, all equal."""
    return [Tenant(f"{'short' if i < count // 2 else 'long'}{i}", 1 / count,
                   Work(SHORT_MS if i < count // 2 else LONG_MS)) for i in range(count)]


def mixed(index):
    return Work(SHORT_MS if index % 2 else LONG_MS)


def one_request(percent):
    return [Tenant("guaranteed", percent / 100, Work(SHORT_MS), request=f"{percent}%")] + [
        Tenant(f"greedy{i}", (1 - percent / 100) / 7, mixed(i)) for i in range(7)]


SHARE_CASES = {
    "equal2": ("2 equal tenants, kernels 0.33 and 5 ms", lambda: halves(2)),
    "equal4": ("4 equal tenants", lambda: halves(4)),
    "equal8": ("8 equal tenants", lambda: halves(8)),
    "weights2to1": ("weights 2 (0.33 ms) and 1 (5 ms)", lambda: [
        Tenant("double", 2 / 3, Work(SHORT_MS), weight=2), Tenant("single", 1 / 3, Work(LONG_MS))]),
    "one66among8": ("request 66 % among 8", lambda: one_request(66)),
    "five_processes": ("5 processes (0.33 ms) against 1 (5 ms)", lambda: [
        Tenant("five", 0.5, [Work(SHORT_MS) for _ in range(5)]),
        Tenant("one", 0.5, Work(LONG_MS))]),
}


# ---- the bench ----

class Bench:
    """A function for each figure or group of figures; it prints its table and returns the rows."""

    def __init__(self, place, plan, plot):
        self.place = place
        self.plan = plan
        self.plot = plot
        self.trials = []   # that the figures to be shown next are taken from

    def trial(self, name, tenants, seconds, **kwargs):
        with Side(self.place, name, tenants) as side:
            return self.trial_on(side, seconds, **kwargs)

    def trial_on(self, side, seconds, **kwargs):
        trial = Trial(side, seconds, **kwargs)
        if side.name not in BASELINES:
            self.trials.append(trial)
        return trial

    @staticmethod
    def disturbed(trial):
        return trial.disturbance.matters()

    def quiet_trial(self, tenants, seconds):
        """Repeats a trial a few times while other machines have the cores; the last one counts."""
        trial = self.trial("elastic", tenants(), seconds)
        for _ in range(self.plan.attempts - 1):
            if not self.disturbed(trial):
                break
            self.trials.remove(trial)
            trial = self.trial("elastic", tenants(), seconds)
        return trial

    def show(self, title, figures):
        """Prints the table, and how quiet the device's core was meanwhile."""
        disturbed = any(map(self.disturbed, self.trials))
        for figure in figures:
            figure.table_disturbed = disturbed
        print_table(title, figures)
        stretches = [trial.stretch() for trial in self.trials]
        print(f"  kernels took {min(stretches):.2f} to {max(stretches):.2f} times as long as "
              "calibrated")
        worst = max((trial.disturbance for trial in self.trials), key=harness.Disturbance.severity)
        print(f"  {worst}")
        self.trials = []
        return figures

    def share_case(self, key):
        label, tenants = SHARE_CASES[key]
        figures = [
            Figure(f"{key}_within2", f"{label}: windows within 2 points", (">=", 99),
                   best=AT_MOST_ALL),
            Figure(f"{key}_off", "  over the run, furthest off", ("<=", self.plan.off_points),
                   "points", best=AT_LEAST_NONE),
            Figure(f"{key}_worst", "  worst window of the worst tenant", None, "points",
                   best=AT_LEAST_NONE),
            # wide, but for any machine
            Figure(f"{key}_held_off", "  over the run, gaps between own kernels included",
                   ("<=", HELD_OFF_POINTS), "points", always=True, best=AT_LEAST_NONE),
            Figure(f"{key}_busy", "  device busy", best=AT_MOST_ALL)]
        at_once = Figure(f"{key}_at_once", "  kernels of two sessions at once, of the time", ("<=", AT_ONCE_PERCENT),
                         best=AT_LEAST_NONE)
        for _ in range(self.plan.share_repetitions):
            trial = self.quiet_trial(tenants, self.plan.share_s)
            shares = Shares(trial)
            for figure, value in zip(figures, shares.values()):
                figure.add(value, self.disturbed(trial))
            at_once.add(trial.at_once(), self.disturbed(trial))
        for name in BASELINES:
            if self.plan.quick and key != "equal2":
                continue   # a quick run shows the baselines once
            beside = Shares(self.trial(name, tenants(), self.plan.baseline_s))
            for figure, value in zip(figures, beside.values()):
                figure.beside[name].append(value)
        figures.append(at_once)
        self.show(key, figures)
        print("  shares, last repetition: " + " ".join(f"{share:.2f}" for share in shares.run))
        return figures

    def limit30(self):
        """Alone on the device, so the share is of the time that passes."""
        share = Figure("limit30_share", "limit 30 %, alone: share of the time", best=AT_MOST_ALL)
        off = Figure("limit30_off", "  off by", ("<=", 1), "points", best=AT_LEAST_NONE)
        worst = Figure("limit30_worst", "  worst window of a second", None, "points",
                       best=AT_LEAST_NONE)
        figures = [off, share, worst]
        for _ in range(self.plan.share_repetitions):
            trial = self.quiet_trial(lambda: [Tenant("limited", 0.3, Work(1.0), limit="30%")],
                                     self.plan.share_s)
            times = trial.bins()[0]
            disturbed = self.disturbed(trial)
            share.add(100 * sum(times) / (len(times) * BIN_NS), disturbed)
            off.add(abs(share.values[-1] - 30), disturbed)
            worst.add(max(abs(100 * used - 30) for used in sliding(times)), disturbed)
        self.show("limit30", figures)
        return figures

    def request50(self):
        share = Figure("request50_share", "request 50 % against 7 greedy tenants", (">=", 49.5),
                       best=AT_MOST_ALL)
        low = Figure("request50_lowest", "  lowest window of a second", best=AT_MOST_ALL)
        for _ in range(self.plan.share_repetitions):
            trial = self.quiet_trial(lambda: one_request(50), self.plan.share_s)
            bins = trial.bins()
            share.add(100 * parts([sum(times) for times in bins])[0], self.disturbed(trial))
            low.add(min(100 * parts([sum(times[i:i + WINDOW_BINS]) for times in bins])[0]
                        for i in range(len(bins[0]) - WINDOW_BINS + 1)), self.disturbed(trial))
        if not self.plan.quick:
            for name in BASELINES:
                bins = self.trial(name, one_request(50), self.plan.baseline_s).bins()
                share.beside[name].append(100 * parts([sum(times) for times in bins])[0])
        self.show("request50", [share, low])
        return [share, low]

    def join_leave(self):
        """Gemini's trace in a minute: A alone is held at its limit of 60 %; with B each has half;
        when C has come every tenant gets its request; when B has left, C is held at its limit of 40 %
        and A takes the rest."""
        end = self.plan.trace_s
        quarter = end / 4
        tenants = [Tenant("A", None, Work(2.0), request="30%", limit="60%"),
                   Tenant("B", None, Work(1.0, quarter, 3 * quarter), request="30%", limit="60%"),
                   Tenant("C", None, Work(3.0, 2 * quarter), request="40%", limit="40%")]
        phases = [(60, 0, 0), (50, 50, 0), (30, 30, 40), (60, 0, 40)]
        trial = self.trial("elastic", tenants, end)
        used = [sliding(times) for times in trial.bins(from_s=0)]
        errors = []
        for number, entitled in enumerate(phases):
            # Windows that begin a second after the change and end before the next.
            first = round((number * quarter + 1) * NS_PER_S / BIN_NS)
            last = round((number + 1) * quarter * NS_PER_S / BIN_NS) - WINDOW_BINS
            # Where tenants are entitled to all of the time, parts are of the kernel time of all. The limit of
            # a tenant that is alone is a part of the elapsed time.
            whole = [sum(parts) if sum(entitled) == 100 else 1
                     for parts in zip(*(times[first:last + 1] for times in used))]
            for index, percent in enumerate(entitled):
                errors += [abs(100 * part / all_parts - percent)
                           for part, all_parts in zip(used[index][first:last + 1], whole)]
        within = Figure("join_leave_within2", "tenants come and go: windows within 2 points",
                        (">=", 99), best=AT_MOST_ALL)
        within.add(100 * sum(error <= 2 for error in errors) / len(errors))
        worst = Figure("join_leave_worst", "  worst window of the worst tenant", None, "points",
                       best=AT_LEAST_NONE)
        worst.add(max(errors))
        self.show("join_leave", [within, worst])
        if self.plot:
            self.draw(used, phases, end)
        return [within, worst]

    def draw(self, used, phases, end):
        quarter = end / 4
        lines = [(name, [((i + WINDOW_BINS) * BIN_NS / NS_PER_S, 100 * part)
                         for i, part in enumerate(parts_of_time)])
                 for name, parts_of_time in zip("ABC", used)]
        entitlements = {name: [(number * quarter, (number + 1) * quarter, entitled[index])
                               for number, entitled in enumerate(phases) if entitled[index]]
                        for index, name in enumerate("ABC")}
        drawing.draw_shares(
            self.plot, "Device time of three tenants that come and go, last second", end, lines,
            entitlements, "dashed: entitled. A: request 30 %, limit 60 %; B: request 30 %, limit "
            "60 %; C: request 40 %, limit 40 %")
        print(f"  drawn: {self.plot}")

    # ---- throughput ----

    def busy(self):
        settle = 0.5
        seconds = self.plan.busy_s

        def measure(side, present):
            trial = self.trial_on(side, seconds + settle, present=present)
            bins = trial.bins(from_s=settle)
            busy_part = sum(sum(times) for times in bins) / (len(bins[0]) * BIN_NS)
            return busy_part, trial.kernels_in(settle, settle + seconds) / seconds

        # The device cannot be busy for more than all of the time.
        two = Figure("busy_two", "2 tenants (1 ms): busy, of what one keeps it busy", (">=", 98),
                     best=AT_MOST_ALL)
        cost = Figure("lease_cost", "1 tenant: busy time lost to leases", ("<=", 1),
                      best=AT_LEAST_NONE)
        eight = Figure("busy_eight", "8 tenants: busy, of what one keeps it busy", (">=", 97),
                       best=AT_MOST_ALL)
        alone = Figure("busy_one", "  1 tenant: device busy", best=AT_MOST_ALL)
        # On a machine that is not ours alone, the same kernel takes longer or shorter from one second to the
        # next. Kernel counts follow that; the part of the time that is used does not.
        rate = Figure("rate_eight", "  8 tenants: kernels a second, of those of one")
        tenants = [Tenant(f"t{i}", 1 / 8, Work(1.0)) for i in range(8)]
        with Side(self.place, "elastic", tenants) as leased, \
                Side(self.place, "none", tenants) as free:
            samples = harness.interleave([(leased, 1), (leased, 2), (leased, 8), (free, 1)],
                                         self.plan.busy_repetitions, lambda which: measure(*which))
        for one, both, all_eight, unleased in zip(*samples):
            two.add(100 * both[0] / one[0], limit=100 / one[0])
            cost.add(100 * (1 - one[0] / unleased[0]), limit=100 * (1 - 1 / unleased[0]))
            eight.add(100 * all_eight[0] / one[0], limit=100 / one[0])
            rate.add(100 * all_eight[1] / one[1])
            alone.add(100 * one[0])
        figures = [two, cost, eight, alone, rate]
        self.show("busy", figures)
        return figures

    def slices(self):
        """The geometric mean of the tenants' device time: it falls when the device idles, and when one tenant
        delays another."""
        lengths = ["learned", "1", "10", "100", "1000"]
        behind = {length: [] for length in lengths}
        rows = []
        for mix, tenants in SLICE_MIXES.items():
            done = {length: [] for length in lengths}
            holds = {length: [] for length in lengths}
            with Side(self.place, "elastic", tenants) as side:
                def measure(length):
                    trial = self.trial_on(
                        side, self.plan.slice_s + 0.5,
                        during=lambda _: side.divvy("policy", "0", "elastic", "--slice", length))
                    bins = trial.bins(from_s=0.5)
                    done[length].append(statistics.geometric_mean(
                        max(sum(times), 1) / (len(times) * BIN_NS) for times in bins))
                    holds[length] += trial.holds_ns()
                harness.interleave(lengths, self.plan.slice_repetitions, measure)
            medians = {length: statistics.median(values) for length, values in done.items()}
            best = max(medians[length] for length in lengths[1:])
            for length in lengths:
                behind[length].append(100 * (1 - medians[length] / best))
            rows.append((mix, [f"{100 * medians[l]:.2f} ({behind[l][-1]:+.1f}; "
                               f"{harness.percentile(holds[l], 0.99) / NS_PER_MS:.1f})"
                               for l in lengths]))
        print("\nslices: device time a tenant, geometric mean, % (behind the best fixed slice, %; "
              "99th percentile of a hold, ms)")
        for mix, cells in [("", lengths)] + rows:
            print(f"  {mix:<12}" + "".join(f"{cell:<22}" for cell in cells).rstrip())
        learned = Figure("slice_learned_behind", "learned slice, worst mix: behind the best fixed",
                         ("<=", 2))
        learned.add(max(behind["learned"]))
        fixed = Figure("slice_fixed_behind", "best of the fixed slices, its worst mix: behind",
                       (">", 2))
        fixed.add(min(max(behind[length]) for length in lengths[1:]))
        self.show("slices", [learned, fixed])
        return [learned, fixed]

    # ---- changes under load ----

    def live(self):
        """The command-line tool makes every change; the time of a change is when the tool has returned."""
        step = self.plan.live_s
        changes = [   # command, then the shares of 'short' and 'long' that it should lead to
            (["set", "short", "--weight", "3"], 75),
            (["set", "long", "--limit", "10%"], 90),
            (["set", "long", "--limit", "100%"], 75),
            (["set", "short", "--weight", "1"], 50),
            (["set", "long", "--class", "batch"], 50),
            (["set", "long", "--request", "70%"], 30),
            (["policy", "0", "fair"], 50),
            (["policy", "0", "elastic"], 30),
        ]
        made = []

        def change(trial):
            for number, (command, share) in enumerate(changes):
                trial.sleep_until(1 + number * step)
                trial.side.divvy(*command)
                made.append((trial.now_s(), share, " ".join(command)))

        tenants = [Tenant("short", None, Work(SHORT_MS)), Tenant("long", None, Work(LONG_MS))]
        seconds = 1 + len(changes) * step
        trial = self.trial("elastic", tenants, seconds, during=change)
        width = 50 * NS_PER_MS
        bins = trial.bins(from_s=0, width_ns=width)
        good = total = 0
        slowest = 0.0
        old = 50
        for number, (at, new, command) in enumerate(made):
            end = made[number + 1][0] if number + 1 < len(made) else seconds
            first = math.ceil((at + 0.1) * NS_PER_S / width)
            seen = []
            while old != new and (first + 4) * width <= (end - 0.05) * NS_PER_S:
                used = [sum(times[first:first + 4]) for times in bins]
                seen.append(100 * parts(used)[0])
                first += 1
            follows = [abs(share - new) < abs(share - old) for share in seen]
            good += sum(follows)
            total += len(follows)
            if False in follows:
                slowest = max(slowest, 100 + 50 * (len(follows) - follows[::-1].index(False)))
            shown = "first windows " + " ".join(f"{s:.0f}" for s in seen[:4]) if seen else ""
            print(f"  {command:<28} {old} -> {new} %  {shown}")
            old = new
        follow = Figure("live_follow", "windows of 200 ms, from 100 ms after a change, that are "
                        "nearer to the new share", (">=", 100), best=AT_MOST_ALL)
        follow.add(100 * good / total)
        usual, around = trial.gaps_ns([at for at, _, _ in made], around_s=0.3)
        gap = Figure("live_gap", "  longest pause of a tenant after a change, beyond the usual",
                     None, "ms", best=AT_LEAST_NONE)
        gap.add(max(0.0, around - usual) / NS_PER_MS)
        kernels = Figure("live_kernels", "kernels run, all with right results", None, "")
        kernels.add(trial.kernel_count)
        self.show("live", [follow, gap, kernels])
        return [follow, gap, kernels]

    # ---- the simulator ----

    def sim(self):
        return simulated.compare(self, {case: SHARE_CASES[case][1] for case in
                                        ("equal4", "weights2to1", "one66among8")})


def burst(kernel_ms, kernels, pause_ms, jitter=20, vary=0):
    return Work(kernel_ms, burst=kernels, pause_ms=pause_ms, jitter=jitter, vary=vary)


# Shapes of the mixes in src/sim/examples/slices-*.yaml.
SLICE_MIXES = {
    "short": [Tenant(f"inference{i}", None, burst(0.5, 4, 7)) for i in range(4)],
    "medium": [Tenant(f"vision{i}", None, burst(1.0, 6, 25)) for i in range(4)],
    "long": [Tenant(f"training{i}", None, burst(2.0, 150, 20)) for i in range(3)],
    "mixed": [Tenant(f"inference{i}", None, burst(0.5, 4, 8)) for i in range(2)]
             + [Tenant(f"vision{i}", None, burst(2.0, 6, 12)) for i in range(2)]
             + [Tenant("training", None, burst(2.0, 150, 10))],
    "irregular": [Tenant(f"simulation{i}", None, burst(0.9, 12, 25, 50, 80)) for i in range(3)]
                 + [Tenant(f"analysis{i}", None, burst(0.3, 10, 15, 50, 50)) for i in range(2)],
}


FIGURES = {key: (lambda bench, key=key: bench.share_case(key)) for key in SHARE_CASES}
FIGURES.update({method.__name__: method for method in (
    Bench.limit30, Bench.request50, classes.classes, classes.idle, classes.hoarding,
    Bench.join_leave, Bench.busy, Bench.slices, latency.latency,
    programs.programs, Bench.live, Bench.sim)})
# Those whose tenants have one process each, so that without root a program can be a tenant.
WITHOUT_USERS = ["equal2", "equal4", "equal8", "weights2to1", "one66among8", "limit30", "request50", "join_leave"]


def setting(has_users):
    text = SETTING if has_users else SETTING.replace("a user of its own", "a program of the same user")
    return text.replace(POCL_SETTING, "that of another driver") if vendorchoice.directory() else text


def main(arguments):
    parser = argparse.ArgumentParser(prog="bench/run share", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short, under 90 s")
    parser.add_argument("--only", action="append", choices=list(FIGURES),
                        help="take only this figure; may be repeated")
    parser.add_argument("--plot", type=pathlib.Path, help="draw join_leave into this SVG file")
    options = parser.parse_args(arguments)
    names = options.only or list(FIGURES)
    has_users = os.geteuid() == 0
    if not has_users and set(names) - set(WITHOUT_USERS):
        sys.exit("bench: the tenants are users of their own, so this must be run by root; without root, "
                 f"take these with --only: {' '.join(WITHOUT_USERS)}")
    print(setting(has_users))
    figures = []
    with harness.Scratch() as scratch:
        place = Place(scratch, has_users)
        bench = Bench(place, Plan(options.quick), options.plot)
        for name in names:
            figures += FIGURES[name](bench)
    # the same label stands below several cases
    return harness.conclude("share", figures, "divvy", name=lambda figure: figure.key)
