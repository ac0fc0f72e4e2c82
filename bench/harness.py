"""What all benches share: where things are built, a private daemon, the environment that bare and
divvy have in common, statistics of interleaved repetitions, how figures are judged and shown."""
import argparse
import collections
import json
import math
import os
import pathlib
import random
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import bars

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lib"))

import vendorchoice  # noqa: E402  (found through the line above)

# A median that misses its bar by less than its own uncertainty is not called a miss. Minimum and maximum
# allowance, as parts of the bar: bare against bare is no more exact than the minimum, and few or wild
# repetitions excuse no more than the maximum.
MIN_ALLOWANCE, MAX_ALLOWANCE = 0.02, 0.05

# How much better than the theoretical optimum a figure may be: two sides that are measured one after the
# other differ by this much on a quiet machine. Beyond that the measurement is broken.
OPTIMUM_TOLERANCE = 0.03

# Maximum part of a core's time that other machines may take in an undisturbed run, in percent. divvy cannot
# cause that: more load on this machine, of whatever process, is part of what a bench measures.
MAX_STOLEN = 2.0

DISCRETE_CONFIG = 'devices:\n  - match: "*"\n    unified: no\n'


# ---- where things are ----

def build_dir():
    return pathlib.Path(os.environ.get("DIVVY_BUILD", ROOT / "build")).resolve()


def bench_program(name):
    path = build_dir() / "bench" / name
    if not path.exists():
        sys.exit(f"bench: {path} is missing; build first (ninja -C {build_dir()})")
    return str(path)


def divvy_command():
    return str(build_dir() / "src" / "cli" / "divvy")


def argument_parser(name, description):
    parser = argparse.ArgumentParser(prog=f"bench/run {name}", description=description)
    parser.add_argument("--quick", action="store_true", help="few repetitions, minutes at most")
    parser.add_argument("--compare", choices=["divvy", "bare"], default="divvy",
                        help="'bare' puts bare on both sides: a check of the bench itself, every "
                             "ratio must come out near 1.0")
    return parser


# ---- the environment that both sides share ----

class Failure(Exception):
    """A program of a bench did not do its work; the text says which, and what it said."""


class Scratch:
    """A private directory, gone at the end; PoCL's kernel cache is in it unless given."""

    def __init__(self, cache=None):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="divvy-bench-"))
        self.cache = pathlib.Path(cache or self.dir / "pocl-cache")
        self.cache.mkdir(parents=True, exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir, ignore_errors=True)


def vendor_environment(cache, extra=None):
    """For bare programs, and for the daemon, whose workers inherit it. The memory limit is set
    because PoCL otherwise reports whatever the kernel has brought up so far."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("POCL_", "OCL_ICD_", "DIVVY_", "OPENCL_"))}
    env["POCL_CACHE_DIR"] = str(cache)
    env["DIVVY_CACHE"] = str(cache / "divvy")
    env["POCL_MEMORY_LIMIT"] = "4"
    env.update(vendorchoice.environment())
    env.update(extra or {})
    return env


class Arrangement:
    """Which cores the two sides may use. 'free' leaves it to the kernel. 'apart' gives PoCL, the
    device, one thread on core 0, and the application core 1; divvyd and the other threads of its
    workers are not pinned. 'hosts' is the same, but all that is not PoCL's thread is on core 1."""

    DEVICE_CORE, APPLICATION_CORE = 0, 1

    def __init__(self, name, vendor=None):
        self.name = name
        self.vendor = dict(vendor or {})
        self.application_cores = None
        self.daemon_cores = None   # also those of the workers, which inherit them
        if name in ("apart", "hosts"):
            if os.cpu_count() < 2:
                sys.exit("bench: two cores are needed to keep device and host apart")
            self.vendor.update({"POCL_AFFINITY": "1", "POCL_MAX_PTHREAD_COUNT": "1"})
            self.application_cores = {self.APPLICATION_CORE}
        if name == "hosts":
            self.daemon_cores = self.application_cores

    def start_application(self, command, **kwargs):
        return start_on(self.application_cores, command, **kwargs)

    def start_daemon(self, command, **kwargs):
        return start_on(self.daemon_cores, command, **kwargs)


def start_on(cores, command, **kwargs):
    """The child inherits the affinity of this thread; PoCL sets that of its own thread."""
    before = os.sched_getaffinity(0)
    if cores:
        os.sched_setaffinity(0, cores)
    try:
        return subprocess.Popen(command, **kwargs)
    finally:
        os.sched_setaffinity(0, before)


class Daemon:
    """divvyd in a directory of its own, with the vendor's environment."""

    def __init__(self, arrangement, scratch, config=None):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="daemon-", dir=scratch.dir))
        self.log = open(self.dir / "log", "w")
        command = [str(build_dir() / "src" / "arbiter" / "divvyd"), "--user", "--dir",
                   str(self.dir / "run")]
        config = vendorchoice.config(config)
        if config:
            (self.dir / "config.yaml").write_text(config)
            command += ["--config", str(self.dir / "config.yaml")]
        if not os.access(command[0], os.X_OK):
            sys.exit(f"bench: {command[0]} is missing; build first, or try --compare bare")
        self.process = arrangement.start_daemon(
            command, env=dict(vendor_environment(scratch.cache, arrangement.vendor),
                              STATE_DIRECTORY=str(self.dir / "state")),
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self._await_ready()

    def _await_ready(self, seconds=15):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
                try:
                    probe.connect(str(self.dir / "run" / "session.sock"))
                    return
                except OSError as error:
                    if error.errno == 91:   # EPROTOTYPE: it listens, as a stream
                        return
            time.sleep(0.02)
        text = (self.dir / "log").read_text()
        self.stop()
        sys.exit(f"bench: divvyd did not get ready:\n{text}")

    def tenant_environment(self):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("POCL_", "OCL_ICD_", "DIVVY_", "OPENCL_"))}
        env["DIVVY_DIR"] = str(self.dir / "run")
        return env

    def ps(self):
        out = subprocess.run([divvy_command(), "ps", "--json"], env=self.tenant_environment(),
                             capture_output=True, text=True, timeout=20, check=True)
        return json.loads(out.stdout)

    def stop(self):
        end_process(self.process)
        self.log.close()


def last_words(daemon):
    """The end of divvyd's log, for a failure. daemon: None, or an object with a `process` and a log in its
    `dir`."""
    if not daemon or not daemon.process:
        return "without divvyd"
    lines = (daemon.dir / "log").read_text(errors="replace").splitlines()
    state = "runs" if daemon.process.poll() is None else f"ended with {daemon.process.returncode}"
    return "\n".join([f"divvyd {state}; the end of its log:", *lines[-12:]])


def end_process(process):
    """Sends SIGTERM, and then SIGKILL to a process that does not end."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Side:
    """One of the things compared: how a command is started on it."""

    def __init__(self, name, arrangement, environment, prefix=(), daemon=None):
        self.name = name
        self.arrangement = arrangement
        self.environment = environment
        self.prefix = list(prefix)
        self.daemon = daemon

    def popen(self, command, **kwargs):
        return self.arrangement.start_application(self.prefix + command, env=self.environment,
                                                  **kwargs)

    def stop(self):
        if self.daemon:
            self.daemon.stop()


def bare_side(arrangement, scratch, name="bare"):
    return Side(name, arrangement, vendor_environment(scratch.cache, arrangement.vendor))


def divvy_side(arrangement, scratch, name="divvy", config=None):
    daemon = Daemon(arrangement, scratch, config)
    return Side(name, arrangement, daemon.tenant_environment(), [divvy_command(), "run", "--"],
                daemon)


class Instance:
    """A long-living program that takes one measurement for each line it is sent."""

    def __init__(self, side, command):
        self.name = side.name
        self.daemon = side.daemon
        self.errors = tempfile.TemporaryFile()
        self.process = side.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=self.errors)
        self.read_answer(60)

    def read_answer(self, seconds=60):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            self.errors.seek(0)
            text = self.errors.read().decode(errors="replace")
            self.stop()
            raise Failure(f"{self.name}: {'ended' if ready else 'no answer'}: {text.strip()}\n"
                          f"{last_words(self.daemon)}")
        return json.loads(line)

    def say(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass   # read_answer says why it is gone

    def ask(self, command):
        self.say(command)
        return self.read_answer()

    def close_input(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass

    def stop(self):
        self.close_input()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# ---- whether the machine was ours ----

class Disturbance(collections.namedtuple("Disturbance", "stolen")):
    """Time that other machines on the same hardware took from the most affected core, in percent."""

    def severity(self):
        """Above 1: too disturbed to judge."""
        return self.stolen / MAX_STOLEN

    def matters(self):
        return self.severity() > 1

    def __str__(self):
        return f"other machines had {self.stolen:.1f} % of a core's time" + (": DISTURBED" if self.matters() else "")


class Watch:
    """Measures from its creation how much of this machine's cores other machines take."""

    def __init__(self):
        self.before = time.monotonic(), stolen_seconds()

    def disturbance(self):
        then, before = self.before
        percent = 100 / max(time.monotonic() - then, 1e-9)
        return Disturbance(max(percent * (late - early) for late, early in zip(stolen_seconds(), before)))


def stolen_seconds():
    """Stolen time of each core, since the machine started."""
    lines = pathlib.Path("/proc/stat").read_text().splitlines()
    return [int(line.split()[8]) / os.sysconf("SC_CLK_TCK")
            for line in lines if line.startswith("cpu") and line[3].isdigit()]


# ---- statistics ----

def percentile(values, share):
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = math.ceil(position)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def uncertainty_of_median(rounds, resamplings=400):
    """Half the width of the 95 % interval of the median, by resampling whole rounds and values in
    them, for values of one round resemble each other. Seeded: same data, same verdict."""
    if sum(len(values) for values in rounds) < 3:
        return 0.0
    chance = random.Random(1)
    medians = []
    for _ in range(resamplings):
        chosen = chance.choices(rounds, k=len(rounds))
        medians.append(statistics.median(
            value for values in chosen for value in chance.choices(values, k=len(values))))
    return (percentile(medians, 0.975) - percentile(medians, 0.025)) / 2


def interleave(sides, repetitions, take):
    """take(side) for all sides in turn, the order reversed every other time; samples by side."""
    samples = [[] for _ in sides]
    for repetition in range(repetitions):
        order = range(len(sides)) if repetition % 2 == 0 else reversed(range(len(sides)))
        for index in order:
            samples[index].append(take(sides[index]))
    return samples


# ---- figures ----

class Figure:
    """One row of the table. There is one value for each interleaved repetition, kept by rounds; the
    median of all is the figure, unless 'value' gives another. 'bar' is ('>=' or '<=', number) or
    None for information. 'optimum' has the same form: what holds for any way to do the work, so that
    a value beyond it shows a broken measurement. 'strict': judged without allowance."""

    def __init__(self, key, label, bar=None, unit="", value=None, optimum=None, strict=False):
        self.key = key
        self.label = label
        self.bar = bar
        self.ci_bar = bars.ci_bar(key, bar)
        self.unit = unit
        self.given_value = value
        self.optimum = optimum
        self.strict = strict
        self.disturbed = False   # other machines had the cores: they may have slowed down either side
        self.rounds = []
        self.bare = []
        self.other = []

    def add_round(self, values, bare=(), other=()):
        self.rounds.append(values)
        self.bare += bare
        self.other += other

    @property
    def values(self):
        return [value for values in self.rounds for value in values]

    @property
    def value(self):
        return statistics.median(self.values) if self.given_value is None else self.given_value

    def impossible(self, value):
        return bool(self.optimum) and \
            shortfall(value, self.optimum) > OPTIMUM_TOLERANCE * abs(self.optimum[1])

    def verdict(self):
        if any(map(self.impossible, self.values)):
            return "REFUSED"
        if not self.bar:
            return "-"
        number = self.bar[1]
        short = shortfall(self.value, self.bar)
        if self.disturbed:
            return "DISTURBED"
        if short <= 0:
            return "ok"
        uncertainty = uncertainty_of_median(self.rounds) / abs(number)
        allowance = min(max(uncertainty, MIN_ALLOWANCE), MAX_ALLOWANCE)
        if short <= allowance * abs(number) and not self.strict:
            return "ok (noise)"
        return "MISS" if bars.meets(self.value, self.ci_bar) else "FAIL"

    def row(self):
        bar = bars.show(self.bar, self.ci_bar)
        optimum = f"{self.optimum[1]:.4f}" if self.optimum else ""
        spread = f"{percentile(self.values, 0.1):.3f}-{percentile(self.values, 0.9):.3f}"
        return [self.label, show_values(self.bare, self.unit), show_values(self.other, self.unit),
                f"{self.value:.3f}", spread, optimum, bar, self.verdict()]


def shortfall(value, bound):
    """By how much a value fails ('>=' or '<=', number); negative if it does not."""
    relation, number = bound
    return number - value if relation == ">=" else value - number


def show_values(values, unit):
    if not values:
        return ""
    middle, low, high = statistics.median(values), percentile(values, 0.1), percentile(values, 0.9)
    digits = 0 if middle >= 1000 else 1 if middle >= 10 else 2
    return f"{middle:.{digits}f} {unit} ({low:.{digits}f}-{high:.{digits}f})"


def print_table(title, other_name, figures, first_name="bare"):
    rows = [["", f"{first_name} p50 (p10-p90)", f"{other_name} p50 (p10-p90)", "figure", "p10-p90",
             "optimum", "goal (CI bar)", ""]]
    rows += [figure.row() for figure in figures]
    columns = [c for c in range(len(rows[0])) if c == 0 or any(row[c] for row in rows[1:])]
    widths = [max(len(row[column]) for row in rows) for column in columns]
    print(f"\n{title}")
    for row in rows:
        print("  " + "  ".join(row[c].ljust(width) for c, width in zip(columns, widths)).rstrip())


def conclude(bench, figures, compare, name=lambda figure: figure.label):
    """Prints which figures missed, lines for machines, and gives the exit code. A check of the bench itself (bare
    against bare) has no bars to miss. name: what to call a figure that missed. Disturbed figures count as not
    judged, and so do those that are better than possible."""
    missed, failed, disturbed, refused = ([f for f in figures if f.verdict() == verdict]
                                          for verdict in ("MISS", "FAIL", "DISTURBED", "REFUSED"))
    print()
    if compare == "bare":
        print("bare against bare: no bars apply; every ratio should be near 1")
    else:
        for what, those in (("misses its goal", missed + failed), ("not judged, disturbed", disturbed)):
            for figure in those:
                print(f"{what}: {name(figure)}: {figure.value:.3f}, goal {figure.bar[0]} {figure.bar[1]:g}")
        for figure in failed:   # read by .ci/bench
            print(f"beyond its CI bar: {figure.key} {figure.ci_bar[0]} {figure.ci_bar[1]:g}")
        for figure in refused:
            print(f"refused, better than possible: {name(figure)}: "
                  + " ".join(f"{value:.3f}" for value in figure.values))
    judged = sum(1 for f in figures if f.bar and f not in disturbed + refused)
    pairs = " ".join(f"{f.key}={f.value:.4g}" for f in figures)
    print(f"bench={bench} compare={compare} judged={judged} missed={len(missed)} failed={len(failed)} "
          f"disturbed={len(disturbed)} refused={len(refused)} {pairs}")
    if compare == "bare":
        return 0
    return 1 if missed or failed else 3 if disturbed or refused else 0
