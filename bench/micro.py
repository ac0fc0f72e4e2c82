"""bench/run micro: the cost of single OpenCL operations through divvy, as ratios to the bare vendor
measured at the same time."""
import json
import pathlib
import statistics
import subprocess

import harness
from harness import Arrangement, Figure, Instance

KIB, MIB = 1024, 1024 * 1024
TRANSFER_SIZES = [4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB]
BUSY_SIZES = [4 * KIB, 64 * KIB, MIB, 16 * MIB]
BUSY_KERNEL_NS = 3_000_000
IDLE_SESSIONS = 64
# earlier sessions may still be ending
CONFIG = f"sessions-per-user: {2 * IDLE_SESSIONS}\n"

ARRANGEMENTS = {
    "apart": "apart: PoCL is one thread on core 0, the application is on core 1, in bare and divvy "
             "alike; divvyd and\nthe rest of the worker are not pinned. Judged here, because an "
             "accelerator does not compute on the cores of\nits host, and because unpinned runs "
             "fall into one of several placements by chance.",
    "hosts": "hosts: as apart, but all of divvy is on core 1 with the application: a core for the "
             "device, one for the hosts.\nThe rate of launches is judged here too.",
    "free": "free: nothing is pinned, PoCL has a thread on each core. Start-up and idle sessions "
            "are judged here; the rest is\nfor information.",
}
TIMED_GROUPS = ["kernels", "latency", "transfers", "maps", "busy"]
PROCESS_GROUPS = ["startup", "idle"]


class Plan:
    """Amounts of work. A repetition is one sample of every side. A round is a fresh set of instances, because
    an instance keeps the placement of its memory and threads for its life."""

    def __init__(self, quick):
        self.rounds = 4 if quick else 10
        self.burst = 15 if quick else 25
        self.latency = 8 if quick else 12
        self.single = 3 if quick else 5
        self.small = 6 if quick else 12
        self.large = 3 if quick else 5
        self.busy = 3 if quick else 5
        self.startup = 10 if quick else 40
        # A quick run takes a group only where it is judged.
        self.only_judged = quick

    def wants(self, group, arrangement):
        return judged_in(group, arrangement) or (
            not self.only_judged and group in TIMED_GROUPS)

    def transfers(self, size):
        """Repetitions a round, and how many transfers one repetition holds."""
        if size >= 256 * MIB:
            return self.large, 1
        # Enough in a row to see the caches warm: the other sides have just used them.
        return self.small, 7 if size >= 16 * MIB else 16 if size >= MIB else 50


def judged_in(group, arrangement):
    if group == "kernels":
        return arrangement in ("apart", "hosts")
    return arrangement == ("apart" if group in TIMED_GROUPS else "free")


def size_name(size):
    return f"{size // MIB}M" if size >= MIB else f"{size // KIB}k"


class Bench:
    """All figures of one arrangement."""

    def __init__(self, plan, compare, arrangement, scratch, with_discrete):
        self.plan = plan
        self.compare = compare
        self.arrangement = arrangement
        self.figures = {}
        self.program = harness.bench_program("bench-micro")
        self.bare_side = harness.bare_side(arrangement, scratch)
        self.discrete_side = None
        self.instances = []
        if compare == "bare":
            self.other_side = harness.bare_side(arrangement, scratch, "bare again")
        else:
            self.other_side = harness.divvy_side(arrangement, scratch, config=CONFIG)
            if with_discrete:
                self.discrete_side = harness.divvy_side(
                    arrangement, scratch, "unified: no", harness.DISCRETE_CONFIG)

    def start_instances(self):
        """The first instance of a side also fills the kernel cache (through divvy the build options
        may differ, so each side must)."""
        self.instances = []
        self.bare = self.start(self.bare_side, "serve")
        self.other = self.start(self.other_side, "serve")
        self.discrete = self.start(self.discrete_side, "serve") if self.discrete_side else None
        second_core = [] if self.arrangement.name == "free" else ["0"]
        self.futex = self.start(self.bare_side, "futex", *second_core)

    def start(self, side, *arguments):
        instance = Instance(side, [self.program, *arguments])
        self.instances.append(instance)
        return instance

    def stop_instances(self):
        for instance in self.instances:
            instance.stop()
        self.instances = []

    def stop(self):
        self.stop_instances()
        for side in (self.other_side, self.discrete_side):
            if side:
                side.stop()

    def add(self, group, key, label, ratios, bar=None, bare=(), other=(), unit=""):
        judged = judged_in(group, self.arrangement.name)
        if not judged or self.arrangement.name == "hosts":
            key = f"{key}_{self.arrangement.name}"
        if not judged:
            bar = None
        figure = self.figures.setdefault(key, Figure(key, label, bar, unit))
        figure.add_round(ratios, bare, other)

    def take(self, repetitions, command, sides=None):
        return harness.interleave(sides or [self.bare, self.other], repetitions,
                                  lambda instance: instance.ask(command))

    # ---- groups of figures; each call is one round ----

    def kernels(self):
        for command, key, name, bar in (
                ("burst", "empty", "1,000 empty kernels", 0.9),
                ("wide", "wide", "1,000 kernels of 65,536 items", 0.95)):
            bare, other = self.take(self.plan.burst, f"{command} 1000")
            costs = [[sample["enqueue_ns"] for sample in side] for side in (bare, other)]
            rates = [[sample["per_second"] / 1000 for sample in side] for side in (bare, other)]
            self.add("kernels", f"enqueue_{key}", f"{name}: enqueue, cost a call",
                     [o / b for b, o in zip(*costs)], ("<=", 0.5) if key == "empty" else None,
                     costs[0], costs[1], "ns")
            self.add("kernels", f"rate_{key}", f"{name}, then finish: rate",
                     [o / b for b, o in zip(*rates)], (">=", bar), rates[0], rates[1], "k/s")

    def latency(self):
        bare, other = self.take(self.plan.single, "single 20")
        values = [[sample["ns"] / 1000 for sample in side] for side in (bare, other)]
        self.add("latency", "enqueue_idle", "single enqueue on an idle queue: cost",
                 [o / b for b, o in zip(*values)], None, values[0], values[1], "us")

        bare, other, futex = self.take(self.plan.latency, "latency 200",
                                       [self.bare, self.other, self.futex])
        values = [[sample["ns"] / 1000 for sample in side] for side in (bare, other, futex)]
        self.add("latency", "finish_added", "enqueue + finish: added, in futex round trips",
                 [(o - b) / f for b, o, f in zip(*values)], ("<=", 1.0), values[0], values[1], "us")
        self.add("latency", "futex_us", "  one futex round trip between two processes, us",
                 values[2])

    def transfers(self):
        sides = [self.bare, self.other] + ([self.discrete] if self.discrete else [])
        for size in TRANSFER_SIZES:
            repetitions, count = self.plan.transfers(size)
            for direction in ("write", "read"):
                self.take(1, f"{direction} {size} 1", sides)   # makes the buffers, touches them
                samples = self.take(repetitions, f"{direction} {size} {count}", sides)
                speeds = [[size / sample["ns"] for sample in side] for side in samples]
                self.add_transfer(direction, size, "", "", 1.0, speeds[0], speeds[1])
                if self.discrete:
                    self.add_transfer(direction, size, "discrete_", "unified: no, ", 0.5,
                                      speeds[0], speeds[2])

    def add_transfer(self, direction, size, key, label, bar, bare, other):
        self.add("transfers", f"{key}{direction}_{size_name(size)}",
                 f"{label}blocking {direction} {size_name(size)}: bandwidth",
                 [o / b for b, o in zip(bare, other)], (">=", bar), bare, other, "GB/s")

    def maps(self):
        medians = []
        for size in TRANSFER_SIZES:
            self.take(1, f"map {size} 1")
            bare, other = self.take(self.plan.small, f"map {size} 50")
            values = [[sample["ns"] / 1000 for sample in side] for side in (bare, other)]
            medians.append(statistics.median(values[1]))
            self.add("maps", f"map_{size_name(size)}",
                     f"map + unmap + finish {size_name(size)}: time",
                     [o / b for b, o in zip(*values)], ("<=", 1.0), values[0], values[1], "us")
        # Independent of size: copying 256 MiB would take thousands of times what 4 KiB take.
        self.add("maps", "map_256M_to_4k", "  a map of 256M, in maps of 4k",
                 [medians[-1] / medians[0]], ("<=", 2.0))

    def calibrated_rounds(self):
        """Rounds of the spin kernel that keep the bare device busy for some milliseconds; the same
        number is then given to both sides."""
        rounds = 500
        times = [self.bare.ask(f"spin {rounds}")["ns"] for _ in range(5)]
        return max(1, round(rounds * BUSY_KERNEL_NS / statistics.median(times)))

    def busy(self):
        rounds = self.calibrated_rounds()
        for size in BUSY_SIZES:
            self.take(1, f"busy {size} {rounds}")
            bare, other = self.take(self.plan.busy, f"busy {size} {rounds}")
            speeds = [[busy_speed(sample) for sample in side] for side in (bare, other)]
            self.add("busy", f"busy_write_{size_name(size)}",
                     f"busy queue, non-blocking writes {size_name(size)}: bandwidth",
                     [o / b for b, o in zip(*speeds)], (">=", 0.8), speeds[0], speeds[1], "GB/s")

    # ---- groups that start processes; called once ----

    def startup(self):
        def fresh(side):
            process = side.popen([self.program, "startup"], stdout=subprocess.PIPE)
            text, _ = process.communicate(timeout=60)
            return json.loads(text)

        sides = [self.bare_side, self.other_side]
        harness.interleave(sides, 1, fresh)   # fills the kernel cache
        bare, other = harness.interleave(sides, self.plan.startup, fresh)
        for field, key, label, bar in (
                ("queue_ns", "start_queue", "first platform query to usable queue: time",
                 ("<=", 1.0)),
                ("kernel_ns", "start_kernel", "  and to the first finished kernel: time", None)):
            values = [[sample[field] / 1e6 for sample in side] for side in (bare, other)]
            self.add("startup", key, label, [o / b for b, o in zip(*values)], bar,
                     values[0], values[1], "ms")

    def idle(self):
        who = "worker" if self.compare == "divvy" else "bare process"
        for until, what in (("queue", "a queue"), ("kernel", "a finished kernel")):
            sizes = self.idle_sizes(until)
            self.add("idle", f"idle_{until}_mib",
                     f"{IDLE_SESSIONS} idle sessions with {what}: PSS of the largest {who}, MiB",
                     [max(sizes)], ("<=", 6.0))
            self.add("idle", f"idle_{until}_median_mib", "  and of all of them, MiB", sizes)

    def idle_sizes(self, until):
        before = set(self.worker_pids([]))
        sessions = []
        try:
            for _ in range(IDLE_SESSIONS):
                sessions.append(Instance(self.other_side, [self.program, "idle", until]))
            pids = [pid for pid in self.worker_pids(sessions) if pid not in before]
            if len(pids) != IDLE_SESSIONS:
                raise harness.Failure(f"{len(pids)} workers for {IDLE_SESSIONS} sessions")
            return [pss_mib(pid) for pid in pids]
        finally:
            for session in sessions:
                session.close_input()
            for session in sessions:
                session.stop()

    def worker_pids(self, sessions):
        if self.compare == "bare":
            return [session.process.pid for session in sessions]
        return [session["worker_pid"] for session in self.other_side.daemon.ps()["sessions"]]


def busy_speed(sample):
    """Bytes by the time that the writes add to the kernel's own. Copies that overlap with the
    kernel may add nothing, or less than the kernel's jitter: a floor keeps that finite."""
    added = max(sample["total_ns"] - sample["alone_ns"], 0.05 * sample["alone_ns"])
    return sample["bytes"] / added


def pss_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise harness.Failure(f"no Pss of process {pid}")


def run_arrangement(name, plan, options, scratch):
    wanted = [group for group in TIMED_GROUPS + PROCESS_GROUPS
              if plan.wants(group, name) and (not options.only or group in options.only)]
    if not wanted:
        return []
    bench = Bench(plan, options.compare, Arrangement(name), scratch,
                  with_discrete=name == "apart" and "transfers" in wanted)
    timed = [group for group in TIMED_GROUPS if group in wanted]
    try:
        for _ in range(plan.rounds if timed else 0):
            bench.start_instances()
            for group in timed:
                getattr(bench, group)()
            bench.stop_instances()
        for group in PROCESS_GROUPS:
            if group in wanted:
                getattr(bench, group)()
    finally:
        bench.stop()
    figures = list(bench.figures.values())
    harness.print_table(ARRANGEMENTS[name], bench.other_side.name, figures)
    return figures


def main(arguments):
    parser = harness.argument_parser("micro", __doc__)
    parser.add_argument("--only", action="append", choices=TIMED_GROUPS + PROCESS_GROUPS,
                        help="take only this group of figures; may be repeated")
    parser.add_argument("--arrangement", action="append", choices=list(ARRANGEMENTS),
                        help="take figures only in this arrangement, also those judged in the "
                             "other; may be repeated")
    options = parser.parse_args(arguments)
    plan = Plan(options.quick)
    if options.arrangement:
        plan.only_judged = False
    figures = []
    with harness.Scratch() as scratch:
        for name in options.arrangement or ARRANGEMENTS:
            figures += run_arrangement(name, plan, options, scratch)
    return harness.conclude("micro", figures, options.compare)
