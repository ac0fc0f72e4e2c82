"""The simulator in bench/run share: the same mixes through divvy-sim and through divvyd, with kernels and
hand-overs as they were measured there."""
import re
import statistics
import subprocess

import harness
from sharing.figures import AT_LEAST_NONE, Figure, parts, print_rows
from sharing.trial import BIN_NS, Tenant, Work

STEADY_POINTS, BURSTY_POINTS = 1, 2
BURSTY_S = 5       # at least: a burst of the longest takes most of a second
STEADY_SIM_S = 60
GRANT_PART = 0.6   # of a hand-over, the rest is the release


def burst(kernel_ms, kernels, pause_ms, jitter=20):
    return Work(kernel_ms, burst=kernels, pause_ms=pause_ms, jitter=jitter)


def service(load, request, kernel_ms=2.0):
    return Tenant("service", None, Work(kernel_ms, rate=load / 100 * 1000 / kernel_ms),
                  **{"class": "latency", "request": f"{request}%"})


# Mixes that pause: what each gets depends on when it comes back, not only on its share.
BURSTY = {
    "bursts": lambda: [Tenant(f"short{i}", None, burst(0.5, 4, 7)) for i in range(2)]
    + [Tenant(f"middle{i}", None, burst(2.0, 6, 12)) for i in range(2)]
    + [Tenant("long", None, burst(2.0, 150, 10))],
    "service40": lambda: [service(40, 50)] + [
        Tenant(f"other{i}", None, Work(5.0)) for i in range(2)],
    "service40_bursts": lambda: [service(40, 50)] + [
        Tenant("batch", None, burst(5.0, 20, 30), **{"class": "batch"}),
        Tenant("other", None, burst(1.0, 10, 15))],
}


def hand_overs_us(trial):
    """From the last kernel of one tenant to the first of the next, where both had work: the median,
    and by which part of it an even spread with the same tenth percentile goes either way."""
    kernels = sorted((begun, ended, asked, index) for index, log in enumerate(trial.logs)
                     for asked, begun, ended, _ in log.kernels)
    gaps = [after[0] - before[1] for before, after in zip(kernels, kernels[1:])
            if before[3] != after[3] and after[2] < before[1]]
    if not gaps:
        return 0.0, 0.0
    median, short = statistics.median(gaps), harness.percentile(gaps, 0.1)
    return median / 1000, max(0.0, min(1.0, (1 - short / median) / 0.8))


def describe(tenant, log, start_ns):
    """The tenant as divvy-sim knows it: kernels of the length that they had, requests at the times at
    which they came."""
    work = tenant.works[0]
    words = [f"name: {tenant.name}", f"kernel: {log.median_ns() / 1000:.0f}us"]
    words += [f"{key}: {value}" for key, value in tenant.share.items()]
    if work.burst:
        words += [f"burst: {work.burst}", f"gap: {work.pause_ms}ms", f"jitter: {work.jitter}%"]
    if work.rate:
        times = sorted(max(0, asked - start_ns) // 1000 for asked, *_ in log.kernels)
        words += ["arrival: trace", f"trace: [{', '.join(f'{time}us' for time in times)}]"]
    return "  - {" + ", ".join(words) + "}\n"


class Row:
    """A tenant's line of divvy-sim: percent of the time with its kernels, median response in ms."""

    def __init__(self, text, name):
        line = re.search(rf"^{name} .*$", text, re.M).group(0)
        self.kernels = float(re.findall(r"([0-9.]+)%", line)[-1])
        self.response = float(re.findall(r"([0-9.]+)/ *[0-9.]+", line)[1])


def simulate(bench, name, trial):
    gap_us, jitter = hand_overs_us(trial)
    # Arrivals last as long as the trial; what never ends can go on, which leaves less to chance.
    seconds = trial.seconds if any(t.works[0].rate for t in trial.tenants) else STEADY_SIM_S
    text = (f"duration: {seconds}s\nseed: 1\ngrant-overhead: {gap_us * GRANT_PART:.0f}us\n"
            f"release-overhead: {gap_us * (1 - GRANT_PART):.0f}us\n"
            f"overhead-jitter: {100 * jitter:.0f}%\ndevices:\n  - name: device\ntenants:\n")
    text += "".join(describe(tenant, log, trial.start_ns)
                    for tenant, log in zip(trial.tenants, trial.logs))
    path = bench.place.scratch.dir / f"{name}.yaml"
    path.write_text(text)
    program = harness.build_dir() / "src" / "sim" / "divvy-sim"
    shown = subprocess.run([str(program), str(path)], capture_output=True, text=True, check=True,
                           timeout=60).stdout
    return [Row(shown, tenant.name) for tenant in trial.tenants]


def kernel_parts(trial):
    """Percent of the time in which each tenant's kernels ran."""
    return [100 * sum(times) / (len(times) * BIN_NS) for times in trial.bins()]


def responses(trial):
    """Median time from asking for a request, or a burst, to its end; None where work never ends."""
    times = []
    for index, tenant in enumerate(trial.tenants):
        work = tenant.works[0]
        values = trial.bursts_ms(index) if work.burst else \
            trial.responses_ms(index) if work.rate else []
        times.append(statistics.median(values) if values else None)
    return times


def percents(values):
    return [100 * part for part in parts(values)]


def show_mix(name, trial, real, simulated, rows):
    gap_us, jitter = hand_overs_us(trial)
    print(f"\n  {name}, hand-overs of {gap_us:.0f} us, {100 * jitter:.0f} % more or less")
    lines = [["", "divvyd", "divvy-sim", "divvyd p50", "divvy-sim p50"]]
    for tenant, ours, theirs, response, row in zip(trial.tenants, real, simulated,
                                                   responses(trial), rows):
        times = [f"{response:.2f} ms", f"{row.response:.2f} ms"] if response else ["", ""]
        lines.append([tenant.name, f"{ours:.2f} %", f"{theirs:.2f} %", *times])
    print_rows(lines)


def compare(bench, steady):
    """steady: mixes that never pause, by name; of them the shares count. Of those that pause, the part
    of the time in which kernels ran."""
    off = {True: Figure("sim_off", "shares by divvy-sim and by divvyd: furthest apart",
                        ("<=", STEADY_POINTS), "points", best=AT_LEAST_NONE),
           False: Figure("sim_bursty_off", "  mixes that pause: kernel time, furthest apart",
                         ("<=", BURSTY_POINTS), "points", best=AT_LEAST_NONE)}
    apart = {True: [], False: []}
    response = Figure("sim_response_off", "  their median responses, furthest apart", None, "%",
                      best=AT_LEAST_NONE)
    late = []
    for name, tenants in {**steady, **BURSTY}.items():
        seconds = bench.plan.sim_s if name in steady else max(BURSTY_S, bench.plan.sim_s)
        trial = bench.quiet_trial(tenants, seconds)
        rows = simulate(bench, name, trial)
        real, simulated = kernel_parts(trial), [row.kernels for row in rows]
        if name in steady:
            real, simulated = percents(real), percents(simulated)
        apart[name in steady].append(max(abs(a - b) for a, b in zip(real, simulated)))
        late += [100 * abs(row.response / time - 1)
                 for time, row in zip(responses(trial), rows) if time]
        show_mix(name, trial, real, simulated, rows)
    for kind, figure in off.items():
        figure.add(max(apart[kind]))
    response.add(max(late))
    return bench.show("sim", [*off.values(), response])
