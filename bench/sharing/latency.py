"""Latency of bench/run share: requests of a service at random times beside batch work that always has
more, what that adds to their response, and whether the device stays busy."""
import math
import os
import socket
import statistics
import time

import harness
from sharing.figures import AT_LEAST_NONE, AT_MOST_ALL, BASELINES, Figure
from sharing.trial import BIN_NS, HOST_CORE, NS_PER_MS, NS_PER_S, SETTLE_S, Tenant, Work

REQUEST_MS, BATCH_MS = 2.0, 10.0
ADDED_KERNELS, BUSY_PERCENT, KEEPS_PERCENT = 1.5, 97, 75
JUDGED_LOAD = 20   # percent of the device, of the requests whose response is judged
# Which part of a batch kernel is left when a request comes is chance.
CHANCE_KERNELS = 0.25


def service(load):
    """A class orders only those who are entitled to run, and a load without a hand-over is no
    entitlement for it: a service needs a request that is larger than its load."""
    return Tenant("service", None, Work(REQUEST_MS, rate=load / 100 * 1000 / REQUEST_MS),
                  **{"class": "latency", "request": f"{load + 10}%"})


def batch(count):
    return [Tenant(f"batch{i}", None, Work(BATCH_MS), **{"class": "batch"}) for i in range(count)]


def wake_ups_us():
    """The tenth and the half of the times of a message from the device's core to the hosts' and back, sent
    about as seldom as the holder changes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        ours.close()
        os.sched_setaffinity(0, {HOST_CORE})
        while theirs.recv(1):
            theirs.send(b"!")
        os._exit(0)
    theirs.close()
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {1 - HOST_CORE})
    took = []
    for _ in range(300):
        time.sleep(0.005)
        began = time.monotonic_ns()
        ours.send(b"?")
        ours.recv(1)
        took.append((time.monotonic_ns() - began) / 1e3)
    os.sched_setaffinity(0, before)
    ours.close()
    os.waitpid(child, 0)
    return statistics.quantiles(took, n=10)[0], statistics.median(took)


def p99(responses):
    return harness.percentile(responses, 0.99)


def kernel_part(trial, first):
    """Percent of the time in which kernels of the tenants from `first` on ran."""
    bins = trial.bins()
    return 100 * sum(sum(times) for times in bins[first:]) / (len(bins[0]) * BIN_NS)


def ideal_p99(trial, request_ns, batch_ns):
    """Of the requests of a trial, in ms, on a device that costs nothing to hand over and on which no
    kernel is interrupted: requests go first, and a batch kernel of batch_ns begins whenever none
    waits (0: there is no batch work)."""
    arrivals = sorted(kernel[0] for kernel in trial.logs[0].kernels)
    counted_from = trial.start_ns + SETTLE_S * NS_PER_S
    now, responses = trial.start_ns, []
    for arrival in arrivals:
        idle_ns = max(0, arrival - now)
        now += math.ceil(idle_ns / batch_ns) * batch_ns if batch_ns else idle_ns
        now += request_ns
        if arrival >= counted_from:
            responses.append((now - arrival) / NS_PER_MS)
    return p99(responses)


class Case:
    """A load of the service beside some batch tenants."""

    def __init__(self, load, batches):
        self.load, self.batches = load, batches
        key = f"{batches}" if load == JUDGED_LOAD else f"{batches}_at{load}"
        judged = load == JUDGED_LOAD
        self.added = Figure(
            f"latency_added_{key}", f"load {load} % beside {batches} batch: p99 added, in batch "
            "kernels", ("<=", ADDED_KERNELS) if judged else None, "", best=AT_LEAST_NONE,
            slack=CHANCE_KERNELS)
        self.busy = Figure(f"latency_busy_{key}", "  device busy",
                           (">=", BUSY_PERCENT) if batches > 1 else None, best=AT_MOST_ALL)
        self.keeps = Figure(f"batch_keeps_{key}", "  batch keeps, of its solo rate",
                            (">=", KEEPS_PERCENT) if judged else None, best=AT_MOST_ALL)

    def tenants(self):
        return [service(self.load)] + batch(self.batches)

    def add(self, solo, alone, trial, disturbed):
        request_ns, batch_ns = (statistics.median(log.median_ns() for log in logs)
                                for logs in (trial.logs[:1], trial.logs[1:]))
        measured = p99(trial.responses_ms(0)) - p99(alone.responses_ms(0))
        ideal = ideal_p99(trial, request_ns, batch_ns) - ideal_p99(trial, request_ns, 0)
        self.added.add(measured * NS_PER_MS / batch_ns, disturbed,
                       limit=ideal * NS_PER_MS / batch_ns)
        self.busy.add(trial.busy(), disturbed)
        solo_part = kernel_part(solo, 0)
        self.keeps.add(100 * kernel_part(trial, 1) / solo_part, disturbed,
                       limit=100 * (100 - kernel_part(trial, 0) + kernel_part(trial, 1)) / solo_part)

    def add_beside(self, name, solo, alone, trial):
        self.added.beside[name].append(
            (p99(trial.responses_ms(0)) - p99(alone.responses_ms(0))) / BATCH_MS)
        self.keeps.beside[name].append(100 * kernel_part(trial, 1) / kernel_part(solo, 0))

    def figures(self):
        return [self.added, self.busy, self.keeps]


def latency(bench):
    seconds = bench.plan.latency_s
    cases = [Case(load, batches) for load, batches in bench.plan.latency_cases]
    loads = sorted({case.load for case in cases})
    alone_figures = {load: Figure(f"latency_alone_{load}_p99", f"load {load} % alone: p99 of the "
                                  "response", None, "ms", best=AT_LEAST_NONE) for load in loads}
    mixes = ["solo", *loads, *cases]

    def take(mix):
        tenants = (lambda: batch(1)) if mix == "solo" else mix.tenants if isinstance(mix, Case) \
            else (lambda: [service(mix)])
        return bench.quiet_trial(tenants, seconds)

    samples = dict(zip(mixes, harness.interleave(mixes, bench.plan.latency_repetitions, take)))
    at_once = Figure("latency_at_once", "kernels of two tenants at once, of the time", best=("<=", 0))
    for repetition in range(bench.plan.latency_repetitions):
        solo, *rest = (samples[mix][repetition] for mix in mixes)
        trials = dict(zip(mixes[1:], rest))
        for load, figure in alone_figures.items():
            figure.add(p99(trials[load].responses_ms(0)), bench.disturbed(trials[load]),
                       limit=ideal_p99(trials[load], trials[load].logs[0].median_ns(), 0))
        for case in cases:
            used = [solo, trials[case.load], trials[case]]
            case.add(*used, any(map(bench.disturbed, used)))
        at_once.add(max(trials[case].at_once() for case in cases))
    if not bench.plan.quick:
        for case in (case for case in cases if case.load == JUDGED_LOAD):
            for name in BASELINES:
                case.add_beside(name, samples["solo"][0], samples[case.load][0],
                                bench.trial(name, case.tenants(), seconds))
    figures = bench.show(
        f"latency: requests of {REQUEST_MS:g} ms at random times beside batch kernels of "
        f"{BATCH_MS:g} ms", [*alone_figures.values(),
                             *(figure for case in cases for figure in case.figures()), at_once])
    for case in cases:
        (own, _), (change, change_us) = ([statistics.median(n) for n in zip(*numbers)] for numbers in zip(
            *(trial.idle_gaps() for trial in samples[case])))
        print(f"  load {case.load} % beside {case.batches}: nothing to do between kernels of one tenant "
              f"{own:.1f} % of the time, where the tenant changes {change:.1f} %, {change_us:.0f} us each")
    tenth, half = wake_ups_us()
    print(f"  a change wakes a thread on the other core and one on the device's. A message to a process on the "
          f"other\n  core and its answer do the same, and take {half:.0f} us here, the quickest tenth "
          f"{tenth:.0f}")
    print(f"  repetitions: {bench.plan.latency_repetitions}, mixes in turn, with the same arrivals. "
          "Busy: the smaller of the time in which a kernel ran and of kernels\n  times the median of "
          "their tenant's, by the time that passed; times of kernels as the programs see them.")
    return figures
