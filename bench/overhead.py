"""bench/run overhead: wall time of real programs through divvy, as a ratio to the bare vendor."""
import importlib.util
import math
import os
import pathlib
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import harness
from harness import Arrangement, Figure

PROGRAMS_FILE = harness.ROOT / "tests" / "apps" / "programs.py"
GEOMEAN_BAR, WORST_BAR = 1.03, 1.10
MEMORY_BAR = 1.01

# The cost of memory management for programs that have enough memory: objects that are placed and could be
# moved, against objects that stay where the driver puts them.
MEMORY_OFF = 'devices:\n  - match: "*"\n    unified: no\n    swap: no\n'
MEMORY_ON = 'devices:\n  - match: "*"\n    unified: no\n'

# Programs, and whether in their long form, that take about one to ten seconds with warm caches.
CHOICE = [
    ("boost-compute", True),
    ("clblast-tuner", False),
    ("clpeak", False),
    ("ffmpeg", False),
    ("hashcat", False),
    ("opencv", True),
    ("openmm", True),
    ("pyopencl", True),
    ("x264", True),
]
REPETITIONS = 7

# A quick run has time for short ones only, and for as many repetitions as fit.
QUICK_CHOICE = [
    ("clblast-test-xaxpy", True),
    ("ffmpeg", False),
    ("opencv", True),
    ("openmm", False),
    ("x264", False),
]
QUICK_REPETITIONS, QUICK_SECONDS = 5, 37


def load_programs():
    """The list of real programs is shared with the tests; it is a file, not an installed module."""
    spec = importlib.util.spec_from_file_location("app_programs", PROGRAMS_FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["app_programs"] = module
    spec.loader.exec_module(module)
    return module


class Runner:
    """Runs one program to its end on one side, in a fresh directory, and times it. Some programs
    want a device of their own kind, so there is a daemon for each kind."""

    def __init__(self, name, apps, scratch, through_divvy, config=None):
        self.name = name
        self.config = config
        self.scratch = scratch
        self.through_divvy = through_divvy
        self.sides = {}
        # A program's own caches hold binaries of one platform: each way has its own.
        self.home = apps.cache_dir() / "home" / ("unified" if through_divvy else "bare")

    def side_for(self, program):
        kind = tuple(sorted(program.device.items()))
        if kind not in self.sides:
            arrangement = Arrangement("free", vendor=program.device)
            self.sides[kind] = \
                harness.divvy_side(arrangement, self.scratch, self.name, self.config) \
                if self.through_divvy else harness.bare_side(arrangement, self.scratch, self.name)
        return self.sides[kind]

    def stop(self):
        for side in self.sides.values():
            side.stop()

    def command(self, program, arguments):
        if not self.through_divvy:
            return arguments
        options = ["--present-as", program.present_as] if program.present_as else []
        return [harness.divvy_command(), "run", *options, "--", *arguments]

    def run(self, program, long, check=False):
        """Seconds from start to end. The inputs are written before, the output checked after."""
        work = pathlib.Path(tempfile.mkdtemp(prefix="divvy-bench-app-"))
        try:
            command = self.command(program, program.command(work, long))
            env = program.environment(work, self.home, bare=not self.through_divvy,
                                      base=self.side_for(program).environment)
            with open(work / "stdout", "w+") as out, open(work / "stderr", "w+") as err:
                start = time.monotonic()
                process = subprocess.Popen(command, cwd=work, env=env, stdin=subprocess.DEVNULL,
                                           stdout=out, stderr=err)
                await_end(process, program.timeout)
                seconds = time.monotonic() - start
            texts = [(work / name).read_text(errors="replace") for name in ("stdout", "stderr")]
            if process.returncode != 0:
                raise harness.Failure(
                    f"{program.name} on {self.name}: exit code {process.returncode}\n"
                    f"{texts[0][-1000:]}\n{texts[1][-1000:]}")
            if check:
                done = subprocess.CompletedProcess(command, 0, *texts)
                program.verify(program.output(work, done), long)
            return seconds
        finally:
            shutil.rmtree(work, ignore_errors=True)


def await_end(process, timeout):
    """Waits without polling: Popen.wait with a timeout would round to steps of up to 50 ms."""
    handle = os.pidfd_open(process.pid)
    try:
        ended, _, _ = select.select([handle], [], [], timeout)
    finally:
        os.close(handle)
    if not ended:
        process.kill()
    process.wait()


def chosen_programs(apps, options):
    chosen = []
    for name, long in QUICK_CHOICE if options.quick else CHOICE:
        if options.program and name not in options.program:
            continue
        program = apps.BY_NAME[name]
        missing = program.missing_packages()
        if missing:
            print(f"left out: {name} (not installed: {' '.join(missing)})")
            continue
        program.prepare()
        chosen.append((program, long))
    return chosen


def measure(runners, chosen, repetitions, deadline):
    """All programs once on both sides make a repetition; the order of the sides alternates. Ends
    early, but not before the second, if another repetition would not fit."""
    seconds = {program.name: ([], []) for program, _ in chosen}
    for repetition in range(repetitions):
        start = time.monotonic()
        for program, long in chosen:
            order = (0, 1) if repetition % 2 == 0 else (1, 0)
            for index in order:
                seconds[program.name][index].append(runners[index].run(program, long))
        end = time.monotonic()
        if repetition > 0 and end + (end - start) > deadline:
            break
    return seconds


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def figures_of(chosen, seconds, of_memory):
    figures = []
    for program, long in chosen:
        bare, other = seconds[program.name]
        figure = Figure(f"overhead_{program.name.replace('-', '_')}",
                        program.name + (" (long)" if long else ""), None, "s")
        figure.add_round([o / b for b, o in zip(bare, other)], bare, other)
        figures.append(figure)
    # The spread of the mean is taken over whole repetitions, that of the worst over its program.
    bar = MEMORY_BAR if of_memory else GEOMEAN_BAR
    geomean = Figure("overhead_geomean", "geometric mean", ("<=", bar),
                     value=geometric_mean([figure.value for figure in figures]))
    geomean.add_round([geometric_mean(values) for values in zip(*(f.values for f in figures))])
    slowest = max(figures, key=lambda figure: figure.value)
    worst = Figure("overhead_worst", f"worst ({slowest.label})", ("<=", WORST_BAR))
    worst.add_round(slowest.values)
    return figures + [geomean, worst]


def main(arguments):
    parser = harness.argument_parser("overhead", __doc__)
    parser.add_argument("--program", action="append", help="only this program; may be repeated")
    parser.add_argument("--repetitions", type=int, help="runs of each program on each side")
    parser.add_argument("--memory", action="store_true",
                        help="divvy with memory management on, as a ratio to divvy with it off")
    options = parser.parse_args(arguments)
    repetitions = options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS)
    deadline = time.monotonic() + QUICK_SECONDS if options.quick else math.inf
    apps = load_programs()
    chosen = chosen_programs(apps, options)
    if not chosen:
        sys.exit("bench: no program to run")
    other_name = "divvy" if options.compare == "divvy" else "bare again"
    cache = chosen[0][0].device_environment()["POCL_CACHE_DIR"]
    with harness.Scratch(cache) as scratch:
        if options.memory:
            other_name = "managed"
            runners = [Runner("not managed", apps, scratch, True, MEMORY_OFF),
                       Runner("managed", apps, scratch, True, MEMORY_ON)]
        else:
            runners = [Runner("bare", apps, scratch, False),
                       Runner(other_name, apps, scratch, options.compare == "divvy")]
        try:
            for program, long in chosen:
                for runner in runners:   # fills the kernel caches; the results must be right
                    runner.run(program, long, check=True)
            watch = harness.Watch()
            seconds = measure(runners, chosen, repetitions, deadline)
            disturbance = watch.disturbance()
        finally:
            for runner in runners:
                runner.stop()
    figures = figures_of(chosen, seconds, options.memory)
    for figure in figures:   # runs of the two sides follow each other, seconds apart
        figure.disturbed = disturbance.matters()
    print(f"While they ran, {disturbance}.")
    harness.print_table("Wall time of whole runs, nothing pinned, kernel caches warm.", other_name,
                        figures)
    return harness.conclude("overhead", figures, options.compare)
