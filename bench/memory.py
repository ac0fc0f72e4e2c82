"""bench/run memory: programs that together need more memory than the device has. The device is PoCL
with one thread, pinned to core 0, told to behave as one with memory of its own (unified: no) and with
a capacity that the head of the table names; the programs' own work is on core 1. All copies are real:
an evicted object is copied to host memory of its worker and released. Memory of a card needs no page
faults: what PoCL frees stays with the worker for its next object."""
import json
import statistics
import subprocess
import time

import harness
from harness import Arrangement, Daemon, Figure, Instance, Side

MIB = 1 << 20
# settings of the workers' allocator: freed pages are used again, as those of a card's memory are
CARD_MEMORY = {"MALLOC_CONF": "dirty_decay_ms:-1,oversize_threshold:0"}
FIXED_SLICE = "10ms"
# Makespans are measured for an operator who wants throughput: a device phase may be one slice.
LONG_TURNS = "10s"
# If a program alone holds the device this much longer than at its fastest, other programs slow the core down
# without any counter showing it: on the same physical core, or in the same memory.
STRETCH_MOST = 1.05
SMALL_BUFFERS = 100_000
SMALL_REPETITIONS = 5
GROUPS = ["phases", "fits", "crowd", "crowd_hosts", "service", "swap", "small"]
CROWD = [0.2, 0.3, 0.4, 0.5, 0.5, 0.6, 0.3, 0.2]   # device phases of eight programs, of 1 each
FITS_PERCENT = 86   # of the device's memory: the crowd that fits, with which the others are compared
# percent of the device's memory: minimum throughput, as a part of that of the crowd that fits
CROWD_BARS = {115: 0.95, 130: 0.93, 150: 0.88}
SERVICE_CAPACITY, SERVICE_SET = 256 * MIB, 32 * MIB
FITTING_BATCH, LARGE_BATCH = 208 * MIB, 248 * MIB   # the first fits beside the service
SERVICE_BUFFER = 8 * MIB   # of both
REQUESTS_PER_S = 5
BATCH_ROUND_S = 0.1   # of work that the batch tenant submits before it waits
PATIENCE_S = 1800


class Plan:
    def __init__(self, quick):
        self.capacity = (64 if quick else 512) * MIB
        self.buffer = self.capacity // 16
        self.large_set = 13 * self.buffer   # 81 % of the device
        self.small_set = 6 * self.buffer    # two of them fit
        # no cache holds it
        self.swap_set = max(self.large_set, 104 * MIB)
        self.phase_s = 1.0 if quick else 8.0   # device and host phase together
        self.rounds = 4   # fewer would make the optimum worse, see optimum_of_two
        self.fixed_rounds = 1
        self.warm_rounds = 1   # until slices are learned and host memory is there
        self.repetitions = 3
        self.retakes = 2 if quick else 8   # of disturbed repetitions, in all
        self.fits = 2 if quick else 5
        self.fits_s = 0.4 if quick else 1.0
        self.crowd_s = 0.25 if quick else 1.0
        self.crowd_rounds = 4 if quick else 6
        self.crowd_percents = (130,) if quick else tuple(CROWD_BARS)
        self.requests = 20 if quick else 50
        self.small_buffers = 20_000 if quick else SMALL_BUFFERS


def config(capacity, slice_text=None, swap=True, slice_max=None):
    text = f'devices:\n  - match: "*"\n    unified: no\n    capacity: {capacity}\n'
    if slice_max:
        text += f"    slice-max: {slice_max}\n"
    if slice_text:
        text += f"    slice: {slice_text}\n"
    if not swap:
        text += "    swap: no\n"
    return text


def optimum_of_two(device_part, rounds):
    """The makespan of two such programs, as a part of running them one after the other, if moving memory took
    no time. The resource that both need more of, device or host core, is idle only while one program has its
    other phase at the very beginning or end."""
    longer = max(device_part, 1 - device_part)
    return (2 * rounds * longer + 1 - longer) / (2 * rounds)


class Bench:
    def __init__(self, plan, scratch):
        self.plan = plan
        self.scratch = scratch
        self.arrangement = Arrangement("apart", CARD_MEMORY)
        self.program = str(harness.build_dir() / "bench" / "bench-memory")
        self.figures = []
        self.fastest = {}   # device time of programs alone
        self.stretch = 0.0   # the worst
        self.disturbances = []   # of all repetitions that count
        self.retakes_left = plan.retakes
        side = self.side(self.config())
        self.calibrate(side)   # fills the kernel cache
        # the fastest of several, since whatever else runs on a core only slows it down
        self.pass_ns, self.unit_ns = map(min, zip(*(self.calibrate(side) for _ in range(5))))
        side.daemon.stop()

    def config(self, capacity=None, **kwargs):
        return config(capacity or self.plan.capacity, **kwargs)

    def side(self, text):
        return self.side_of(Daemon(self.arrangement, self.scratch, text))

    def side_of(self, daemon, *options):
        """Programs are started with these options of divvy run. Each is a tenant of its own."""
        return Side("divvy", self.arrangement, daemon.tenant_environment(),
                    [harness.divvy_command(), "run", *options, "--"], daemon)

    def calibrate(self, side):
        process = side.popen([self.program, "calibrate", str(self.plan.buffer)], stdout=subprocess.PIPE)
        text, _ = process.communicate(timeout=120)
        answer = json.loads(text)
        return answer["pass_ns"], max(answer["unit_ns"], 1)

    def stretch_of(self, side):
        """How much longer a pass takes now than at its fastest."""
        now = self.calibrate(side)[0]
        self.pass_ns = min(self.pass_ns, now)
        return now / self.pass_ns

    def work(self, device_s, host_s, rounds, memory=None, own_core=False):
        """A program's arguments: how long it takes on the device and on the host in each round, if alone.
        own_core: as if it had a core of its own, which leaves the time to other programs on core 1."""
        memory = memory or self.plan.large_set
        buffers = memory // self.plan.buffer
        host = ["--sleep", str(round(host_s * 1e6))] if own_core else \
            ["--host", str(round(host_s * 1e9 / self.unit_ns))]
        return ["phases", "--set", str(memory), "--buffers", str(buffers),
                "--passes", str(max(1, round(device_s * 1e9 / self.pass_ns))), *host,
                "--rounds", str(rounds)]

    def run(self, side, works):
        """Starts all programs together and returns their answers."""
        programs = [Instance(side, [self.program] + work) for work in works]
        try:
            for program in programs:
                program.say("go")
            return [program.read_answer(PATIENCE_S) for program in programs]
        finally:
            for program in programs:
                program.stop()

    def together(self, side, works):
        """Seconds until the last of them is done."""
        answers = self.run(side, works)
        begun = min(a["ended_ns"] - a["wall_ns"] for a in answers)
        return (max(a["ended_ns"] for a in answers) - begun) / 1e9

    def alone(self, side, work):
        """Seconds, and how much longer it held the device than at its fastest."""
        answer, = self.run(side, [work])
        fastest = self.fastest[tuple(work)] = min(answer["device_ns"],
                                                  self.fastest.get(tuple(work), answer["device_ns"]))
        return answer["wall_ns"] / 1e9, answer["device_ns"] / fastest

    def add(self, key, label, value, bar=None, bare=(), other=(), unit=""):
        figure = Figure(key, label, bar, unit)
        figure.add_round([value], list(bare), list(other))
        self.figures.append(figure)

    def makespan(self, figure, text, works, repetitions):
        """One after the other and together, in turn."""
        side = self.side(text)
        for _ in range(repetitions):
            self.add_repetition(figure, side, works)
        side.daemon.stop()
        self.figures.append(figure)

    def add_repetition(self, figure, side, works):
        """One alone, both together, the other alone: slow changes of the machine then affect both sides."""
        def take():
            first, stretch = self.alone(side, works[0])
            together = self.together(side, works)
            second, stretch_then = self.alone(side, works[1])
            return first + second, together, max(stretch, stretch_then)
        (serial, together, stretch), disturbed = self.quiet(
            take, lambda taken: figure.impossible(taken[1] / taken[0]) or taken[2] > STRETCH_MOST)
        figure.disturbed |= disturbed or stretch > STRETCH_MOST
        self.stretch = max(self.stretch, stretch)
        figure.add_round([together / serial], [serial], [together])

    def quiet(self, take, impossible=lambda taken: False):
        """The result of take(), and whether other machines had the cores meanwhile. A disturbed or impossible
        result is taken again as long as the run has retakes left: a short disturbance of one side may be too
        small for the counters."""
        while True:
            watch = harness.Watch()
            taken = take()
            disturbance = watch.disturbance()
            if self.retakes_left == 0 or not (disturbance.matters() or impossible(taken)):
                self.disturbances.append(disturbance)
                return taken, disturbance.matters()
            self.retakes_left -= 1

    # ---- groups ----

    def phases(self):
        plan = self.plan
        for key, device_part, bar in (("5050", 0.5, 0.62), ("9010", 0.9, 0.93)):
            def works(rounds):
                return [self.work(plan.phase_s * device_part, plan.phase_s * (1 - device_part),
                                  rounds) + ["--warm", str(plan.warm_rounds)]] * 2
            name = f"device:host {key[:2]}/{key[2:]}"
            self.makespan(
                Figure(f"makespan_{key}", f"{name}: two programs together, of one after the other",
                       ("<=", bar), "s", optimum=(">=", optimum_of_two(device_part, plan.rounds)),
                       strict=True),
                self.config(slice_max=LONG_TURNS), works(plan.rounds), plan.repetitions)
            self.makespan(
                Figure(f"fixed_{key}", f"  the same with fixed slices of {FIXED_SLICE}", unit="s"),
                self.config(slice_text=FIXED_SLICE), works(plan.fixed_rounds), 1)

        moved = 2 * (2 * plan.large_set - plan.capacity)   # by each change of the holder, at least
        self.add("makespan_moving", "  what moving adds at the speed of memcpy into warm pages",
                 (2 * plan.rounds - 1) * moved / self.memcpy_speeds(plan.large_set)[1] / 1e9
                 / (2 * plan.rounds * plan.phase_s))

    def fits(self):
        figure = Figure("fits", "programs that fit together, of memory management off",
                        ("<=", 1.03), "s")
        works = [self.work(self.plan.fits_s, self.plan.fits_s, 2, self.plan.small_set)] * 2
        managed, plain = self.side(self.config()), self.side(self.config(swap=False))
        for _ in range(self.plan.fits):
            (off, on), disturbed = self.quiet(
                lambda: (self.together(plain, works), self.together(managed, works)))
            figure.disturbed |= disturbed
            figure.add_round([on / off], [off], [on])
        managed.daemon.stop()
        plain.daemon.stop()
        self.figures.append(figure)

    def crowd_works(self, memory, own_core):
        plan = self.plan
        return [self.work(plan.crowd_s * part, plan.crowd_s * (1 - part), plan.crowd_rounds, memory,
                          own_core) for part in CROWD]

    def crowd(self):
        """Eight programs with device and host phases of different lengths, all hosts on one core. The busier
        of the two cores, by the programs' times alone, bounds the throughput."""
        memory = self.plan.capacity // 4   # of each
        works = self.crowd_works(memory, own_core=False)
        for percent in self.plan.crowd_percents:
            side = self.side(self.config(memory * len(CROWD) * 100 // percent))
            alone = [answer for work in works for answer in self.run(side, [work])]
            made = self.together(side, works)
            side.daemon.stop()
            serial = sum(a["wall_ns"] for a in alone) / 1e9
            busier = max(sum(a[key] for a in alone) / 1e9 for key in ("device_ns", "host_ns"))
            figure = Figure(f"crowd_{percent}", f"eight programs on one host core, {percent} % of "
                            "memory: throughput, of one after the other", unit="s",
                            optimum=("<=", serial / busier))
            figure.add_round([serial / made], [serial], [made])
            self.figures.append(figure)

    def crowd_hosts(self):
        """The same eight with a host core each: their host phases sleep. In sequence they would take the sum
        of their phases, and the device alone bounds the throughput."""
        plan = self.plan
        memory = plan.capacity // 4
        works = self.crowd_works(memory, own_core=True)
        serial = plan.crowd_s * plan.crowd_rounds * len(CROWD)
        best = 1 / (sum(CROWD) / len(CROWD))
        percents = (FITS_PERCENT, *plan.crowd_percents)
        sides = {p: self.side(self.config(memory * len(CROWD) * 100 // p)) for p in percents}
        took = {p: [] for p in percents}
        disturbed = False

        def take():
            seconds, stretches = zip(*((self.together(side, works), self.stretch_of(side))
                                       for side in sides.values()))
            return seconds, max(stretches)
        for _ in range(plan.repetitions):
            (seconds, stretch), badly = self.quiet(
                take, lambda taken: serial / min(taken[0]) > best * (1 + harness.OPTIMUM_TOLERANCE)
                or taken[1] > STRETCH_MOST)
            disturbed |= badly or stretch > STRETCH_MOST
            self.stretch = max(self.stretch, stretch)
            for percent, one in zip(percents, seconds):
                took[percent].append(one)
        for side in sides.values():
            side.daemon.stop()
        fits = Figure(f"crowd_hosts_{FITS_PERCENT}", f"eight programs with a host core each, "
                      f"{FITS_PERCENT} % of memory: throughput", unit="s", optimum=("<=", best))
        for seconds in took[FITS_PERCENT]:
            fits.add_round([serial / seconds], [serial], [seconds])
        self.figures.append(fits)
        for percent in plan.crowd_percents:
            figure = Figure(f"crowd_hosts_{percent}", f"  {percent} % of memory: throughput, of that",
                            (">=", CROWD_BARS[percent]), "s", optimum=("<=", best / fits.value),
                            strict=True)
            for fitting, seconds in zip(took[FITS_PERCENT], took[percent]):
                figure.add_round([fitting / seconds], [serial], [seconds])
            figure.disturbed = disturbed
            self.figures.append(figure)

    def responses(self, daemon, batch_set=None):
        """The median response time in milliseconds, beside a batch tenant or alone, and the batch tenant's
        rate."""
        service = Instance(
            self.side_of(daemon, "--request", "30%", "--class", "latency"),
            [self.program, "serve", "--set", str(SERVICE_SET),
             "--buffers", str(SERVICE_SET // SERVICE_BUFFER), "--every", str(10**6 // REQUESTS_PER_S),
             "--requests", str(self.plan.requests)])
        batch = None
        rate = 0.0
        try:
            if batch_set:
                passes = BATCH_ROUND_S * 1e9 / (self.pass_ns * SERVICE_BUFFER / self.plan.buffer)
                batch = Instance(
                    self.side_of(daemon, "--class", "batch"),
                    [self.program, "phases", "--set", str(batch_set),
                     "--buffers", str(batch_set // SERVICE_BUFFER),
                     "--passes", str(max(1, round(passes))), "--rounds", "0"])
                batch.say("go")
            took = service.ask("go")["took_ns"]
            if batch:
                done = batch.ask("end")   # an answer says that all of its results are right
                rate = done["rounds"] / done["wall_ns"] * 1e9
            return statistics.median(took) / 1e6, rate
        finally:
            service.stop()
            if batch:
                batch.stop()

    def service(self):
        """A service whose memory is needed five times a second, beside a batch tenant."""
        plan = self.plan
        daemon = Daemon(self.arrangement, self.scratch, self.config(SERVICE_CAPACITY))
        name = "requests of a latency service: p50"
        alone = Figure("service_alone", f"{name} alone, ms", unit="ms")
        fits = Figure("service_fits", "  beside a batch tenant that fits, of alone", unit="ms")
        large = Figure("service_large", "  beside one that does not, of beside one that fits",
                       ("<=", 1.5), "ms", strict=True)
        batch = Figure("service_batch", "  what the latter gets done, of the one that fits")
        for _ in range(plan.repetitions):
            taken, disturbed = self.quiet(lambda: [
                self.responses(daemon, batch_set)
                for batch_set in (None, FITTING_BATCH, LARGE_BATCH)])
            (alone_ms, _), (fits_ms, fits_rate), (large_ms, large_rate) = taken
            large.disturbed |= disturbed
            alone.add_round([alone_ms])
            fits.add_round([fits_ms / alone_ms], [alone_ms], [fits_ms])
            large.add_round([large_ms / fits_ms], [fits_ms], [large_ms])
            batch.add_round([large_rate / fits_rate])
        daemon.stop()
        self.figures += [alone, fits, large, batch]

    def memcpy_speeds(self, size):
        """GB/s into pages that the process has never touched, and into the same once more."""
        out = subprocess.run([self.program, "copy", str(size)], capture_output=True, text=True,
                             timeout=60, check=True)
        took = json.loads(out.stdout)
        return size / took["fresh_ns"], size / took["warm_ns"]

    def moving_speed(self, size):
        """GB/s at which the memory of two programs that do not fit together is moved."""
        side = self.side(self.config(size * 16 // 13))
        programs = [Instance(side, [self.program] + self.work(0.3, 0.3, self.plan.rounds, size))
                    for _ in range(2)]
        for program in programs:
            program.say("go")
        moved = seconds = 0
        while any(p.process.poll() is None for p in programs):
            sessions = side.daemon.ps()["sessions"]
            now = sum(s["moved_bytes"] for s in sessions), sum(s["moving_s"] for s in sessions)
            if now[0] >= moved:
                moved, seconds = now
            if len(sessions) < 2:
                break
            time.sleep(0.2)
        for program in programs:
            program.read_answer(PATIENCE_S)
            program.stop()
        side.daemon.stop()
        return moved / max(seconds, 1e-9) / 1e9

    def swap(self):
        """Judged by memcpy into fresh pages of the usual 4 KiB, which a program gets when it allocates.
        divvy's own copies lie in huge pages, which are used again. memcpy into warm pages, which has no page
        faults either, shows how much of the hardware's speed is used."""
        size = self.plan.swap_set

        def take():
            before = [self.memcpy_speeds(size) for _ in range(3)]
            speed = self.moving_speed(size)
            return speed, before + [self.memcpy_speeds(size) for _ in range(3)]
        (speed, copies), disturbed = self.quiet(take)
        fresh, warm = (list(speeds) for speeds in zip(*copies))
        for key, label, yardstick, bar in (
                ("swap_bandwidth", "moving memory, of memcpy into fresh 4 KiB pages (judged)", fresh,
                 (">=", 0.8)),
                ("swap_of_warm", "  of memcpy into warm pages (not judged)", warm, None)):
            figure = Figure(key, label, bar, "GB/s")
            figure.add_round([speed / statistics.median(yardstick)], yardstick, [speed])
            figure.disturbed = disturbed
            self.figures.append(figure)

    def small(self):
        """Many small buffers that are evicted for another program and come back."""
        count = self.plan.small_buffers
        side = self.side(self.config(capacity=count * 4096 + 16 * MIB))
        other = self.work(0.01, 0, 1, count * 4096 // self.plan.buffer * self.plan.buffer)
        many = Instance(side, [self.program, "small", str(count), "4096"])
        many.ask("go")
        many.ask("go")   # the first run of this kernel
        figure = Figure("small_cost_us",
                        f"{count:,} buffers of 4 KiB evicted and brought back: us each", ("<=", 5.0),
                        optimum=(">=", 0.0))

        def take():
            there = many.ask("go")   # all are on the device
            self.together(side, [other])
            return there, many.ask("go")
        for _ in range(SMALL_REPETITIONS):
            (there, back), disturbed = self.quiet(
                take, lambda taken: taken[1]["used_ns"] < taken[0]["used_ns"])
            figure.disturbed |= disturbed
            figure.add_round([(back["used_ns"] - there["used_ns"]) / count / 1e3])
        many.stop()
        side.daemon.stop()
        self.figures.append(figure)
        self.add("small_made_us", "  creating them: us each", back["made_ns"] / count / 1e3)


def main(arguments):
    parser = harness.argument_parser("memory", __doc__)
    parser.add_argument("--only", action="append", choices=GROUPS,
                        help="take only this group of figures; may be repeated")
    options = parser.parse_args(arguments)
    with harness.Scratch() as scratch:
        bench = Bench(Plan(options.quick), scratch)
        for group in options.only or GROUPS:
            getattr(bench, group)()
    harness.print_table(f"The device has {bench.plan.capacity // MIB} MiB; programs that do not fit "
                        f"together have {bench.plan.large_set // MIB} MiB each.", "measured", bench.figures,
                        first_name="compared with")
    if bench.disturbances:
        worst = max(bench.disturbances, key=harness.Disturbance.severity)
        print(f"\n  in the most disturbed repetition {worst}")
    if bench.stretch:
        print(f"  a program alone had the device at most {bench.stretch:.2f} times as long as another time")
    # the same label stands below two cases
    return harness.conclude("memory", bench.figures, options.compare, name=lambda figure: figure.key)
