"""bench/run long: kernels that take much longer than a slice, beside requests of a service, beside each other, and
alone: what slicing them gives the others, and what it costs."""
import argparse
import json
import os
import pathlib
import re
import sys

import harness
from sharing import latency
from sharing.trial import NS_PER_MS, NS_PER_S, SETTLE_S, Place, Side, Tenant, Trial, Work

REQUEST_LOAD = 20
SHARES_FROM_S = 3   # the kernels are known
US_PER_BIN = 100_000
TRACK = re.compile(r"session \d+ runs: .* \((\w+)\)$")
ADDED_MS, KEEPS, ALONE_COST, SHORT_COST = 5, 0.95, 1.02, 1.01
SETTING = """\
The device is PoCL with one thread, pinned to core 0; tenants, divvyd and the other threads of the workers are on core
1. Kernels have 16 to 1024 work-groups. never and auto are slice-kernels of the device: with never, a kernel that runs is
waited for. Requests take 2 ms of the device, come at random times and need 20 % of it."""


class Plan:
    def __init__(self, quick):
        self.beside = [(1000, 1), (10, 4)] if quick else [(1000, 1), (1000, 4), (10, 1), (10, 4)]
        self.beside_s = 10 if quick else 24
        self.repetitions = 1 if quick else 3
        self.alone_ms = [1, 10, 1000] if quick else [1, 10, 100, 1000, 10_000]
        self.alone_kernels = 3 if quick else 5
        self.shares = [4] if quick else [2, 4, 8]
        self.shares_s = 12 if quick else 40


def slicing(mode):
    return f"slice-kernels: {mode}"


def kernels(kernel_ms):
    """Every work-group writes a value that is checked, so that short kernels, of which there are many, have fewer."""
    return Work(kernel_ms, groups=min(1024, max(16, 8 * kernel_ms)), depth=2 if kernel_ms > 100 else None)


def batch(kernel_ms, count):
    return [Tenant(f"batch{i}", None, kernels(kernel_ms), **{"class": "batch"}) for i in range(count)]


def responses(trial):
    """Of the service, once its neighbours' first kernels are known."""
    return trial.responses_ms(0, from_s=SETTLE_S)


class Bench:
    def __init__(self, place, plan):
        self.place = place
        self.plan = plan
        self.watch = harness.Watch()

    def trial(self, tenants, seconds, mode, **kwargs):
        with Side(self.place, "elastic", tenants, slicing(mode)) as side:
            return Trial(side, seconds, **kwargs)

    def finish(self, title, figures):
        disturbance = self.watch.disturbance()
        for figure in figures:
            figure.disturbed = disturbance.matters()
        harness.print_table(title, "auto", figures, "never")
        print(f"  {disturbance}")
        sys.stdout.flush()
        self.watch = harness.Watch()
        return figures

    # ---- beside a service ----

    def beside(self):
        service = latency.service(REQUEST_LOAD)
        figures = []
        for kernel_ms, count in self.plan.beside:
            key, label = f"{kernel_ms}_{count}", f"beside {count} x kernels of {kernel_ms} ms"
            added = harness.Figure(f"long_added_{key}", f"{label}: p99 of a response beyond that alone", ("<=", ADDED_MS),
                                   "ms", strict=True)
            keeps = harness.Figure(f"long_keeps_{key}", "  rate of the kernels at the same device time", (">=", KEEPS))
            for _ in range(self.plan.repetitions):
                alone = latency.p99(responses(self.trial([service], self.plan.beside_s, "auto")))
                tenants = [service] + batch(kernel_ms, count)
                whole, sliced = (self.trial(tenants, self.plan.beside_s, mode) for mode in ("never", "auto"))
                added.add_round([latency.p99(responses(sliced)) - alone], [latency.p99(responses(whole))],
                                [latency.p99(responses(sliced))])
                if count == 1:
                    solo = self.trial(batch(kernel_ms, 1), self.plan.beside_s, "never")
                    keeps.add_round([rate(sliced, 1) * solo.logs[0].median_ns() / NS_PER_S])
            figures += [added, keeps] if count == 1 else [added]
        return self.finish("a service of 2 ms requests beside long kernels: p99 of its response", figures)

    # ---- alone ----

    def alone(self):
        """The time of a kernel that is known to be long, on two daemons in turn."""
        figures = []
        for kernel_ms in self.plan.alone_ms:
            figure = harness.Figure(f"long_alone_{kernel_ms}", f"kernels of {kernel_ms} ms alone: sliced by whole",
                                    ("<=", ALONE_COST if kernel_ms >= 10 else SHORT_COST), "ms")
            seconds = SETTLE_S + max(2, self.plan.alone_kernels * kernel_ms / 1000 + 1)
            for _ in range(self.plan.repetitions + 1):
                times = [self.trial(batch(kernel_ms, 1), seconds, mode).logs[0].median_ns() / NS_PER_MS
                         for mode in ("never", "auto")]
                figure.add_round([times[1] / times[0]], times[:1], times[1:])
            figures.append(figure)
        return self.finish("alone on the device: the time of a kernel", figures)

    # ---- shares ----

    def shares(self):
        """Of the device time of slices and kernels that a timeline shows, over windows of a second, ten each second."""
        figures = []
        for count in self.plan.shares:
            lengths = [1000, 100, 1]
            tenants = [Tenant(f"t{i}", 1 / count, kernels(lengths[i % 3])) for i in range(count)]
            within = harness.Figure(f"long_shares_{count}", f"{count} tenants, kernels of 1 s, 100 ms, 1 ms: windows of "
                                    "a second within 2 points", (">=", 99), "%")
            for _ in range(self.plan.repetitions):
                whole, sliced = (self.within(tenants, mode) for mode in ("never", "auto"))
                within.add_round([sliced], [whole], [sliced])
            figures.append(within)
        return self.finish("shares of equal tenants", figures)

    def within(self, tenants, mode):
        """Percent of the windows of the tenant that is off most often."""
        path = pathlib.Path(self.place.scratch.dir) / "timeline.json"

        def during(trial):
            trial.sleep_until(SHARES_FROM_S)
            trial.side.divvy("trace", "-o", str(path), "--for", f"{self.plan.shares_s}s",
                             timeout_s=self.plan.shares_s + 20)

        self.trial(tenants, SHARES_FROM_S + self.plan.shares_s + 0.5, mode, during=during)
        bins = device_time(json.loads(path.read_text())["traceEvents"], [tenant.name for tenant in tenants],
                           self.plan.shares_s)
        path.unlink()
        right = [0] * len(tenants)
        ends = range(10, len(bins[0]) + 1)
        for end in ends:
            used = [sum(of_tenant[end - 10:end]) for of_tenant in bins]
            for index, tenant in enumerate(tenants):
                right[index] += abs(used[index] / sum(used) - tenant.entitled) <= 0.02
        return 100 * min(right) / len(ends)


def device_time(events, names, seconds):
    """By tenant and tenth of a second."""
    tracks = {}
    for event in events:
        track = TRACK.match(event["args"].get("name", "")) if event["ph"] == "M" else None
        if track:
            tracks[event["tid"]] = names.index(track.group(1))
    ran = [(event["ts"], event["dur"], tracks[event["tid"]]) for event in events
           if event["ph"] == "X" and event["tid"] in tracks]
    start = min(begun for begun, _, _ in ran)
    bins = [[0.0] * (10 * seconds - 1) for _ in names]
    for begun, took, tenant in ran:
        for index in range(int((begun - start) // US_PER_BIN), int((begun + took - start) // US_PER_BIN) + 1):
            if index < len(bins[tenant]):
                low = start + index * US_PER_BIN
                bins[tenant][index] += max(0, min(begun + took, low + US_PER_BIN) - max(begun, low))
    return bins


def rate(trial, tenant):
    """Kernels of a tenant for each second of the device that the service, tenant 0, left."""
    ends = sorted(kernel[2] for kernel in trial.logs[tenant].kernels
                  if kernel[2] > trial.start_ns + SETTLE_S * NS_PER_S)
    if len(ends) < 2:
        return 0.0
    used = sum(min(kernel[2], ends[-1]) - max(kernel[1], ends[0]) for kernel in trial.logs[0].kernels
               if kernel[2] > ends[0] and kernel[1] < ends[-1])
    return (len(ends) - 1) * NS_PER_S / (ends[-1] - ends[0] - used)


FIGURES = {method.__name__: method for method in (Bench.beside, Bench.alone, Bench.shares)}


def main(arguments):
    parser = argparse.ArgumentParser(prog="bench/run long", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repetitions, minutes at most")
    parser.add_argument("--only", action="append", choices=list(FIGURES), help="only these; may be repeated")
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        sys.exit("bench: the tenants are users of their own, so this must be run by root")
    print(SETTING)
    with harness.Scratch() as scratch:
        bench = Bench(Place(scratch), Plan(options.quick))
        figures = [figure for name in options.only or FIGURES for figure in FIGURES[name](bench)]
    return harness.conclude("long", figures, "divvy", name=lambda figure: figure.key)
