"""bench/run observe: what it costs to look at divvyd: throughput of 64 sessions while `divvy top`, `divvy trace` and
scrapes of its metrics run, what tracing costs while it is off, and how long a scrape keeps divvyd busy."""
import contextlib
import http.client
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import harness
import scale
import sched
from harness import Arrangement
from sched import figure, single
from sharing.trial import HOST_CORE, Place, Side, Tenant, Trial, Work

TENANTS, PROCESSES = 8, 8   # 64 sessions
KERNEL_MS = 1.0
FIRST_WINDOW_S = 1.5        # until all sessions compute
SETTLE_S = 0.3              # between two windows: what was begun in one ends
SCRAPE_S = 1.0
MAX_UNCERTAINTY = 0.02      # of the ratio of rates: beyond it other programs had the cores, and it says nothing

CROWD_SESSIONS, CROWD_WAITING, CROWD_TENANTS = 1_000, 200, 200
CROWD_DEVICES = 7           # of 8: the number of tenants is no multiple of it, so each is on five devices
HOLD_US = 2000
SCRAPES = 40
GROUPS = ["throughput", "off", "scrape"]


class Plan:
    def __init__(self, quick):
        self.pairs = 4 if quick else 15
        self.window_s = 4.0
        self.repetitions = 5 if quick else 15
        self.run_ms = 3000 if quick else 5000
        self.grants = 2000 if quick else 20_000   # whose instructions are counted


# ---- looking ----

class Connection(http.client.HTTPConnection):
    """HTTP on divvyd's control socket."""

    def __init__(self, directory):
        super().__init__("divvyd", timeout=30)
        self.path = str(pathlib.Path(directory) / "control" / "control.sock")

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def scrape(directory):
    with contextlib.closing(Connection(directory)) as connection:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
    if answer.status != 200:
        raise harness.Failure(f"a scrape was answered with {answer.status}: {text[:200]}")
    return text


class Scraper:
    """Scrapes once a second, as Prometheus would, in a thread on one core."""

    def __init__(self, directory, core, aside=False):
        self.directory = directory
        self.core = core
        self.aside = aside   # runs only if its core has nothing else to do
        self.count = 0
        self.cpu_s = 0.0
        self.problem = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()
        if self.problem:
            raise harness.Failure(f"scraping: {self.problem}")

    def work(self):
        os.sched_setaffinity(0, {self.core})
        if self.aside:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        due = time.monotonic()
        try:
            while not self.stopping.wait(max(0.0, due - time.monotonic())):
                scrape(self.directory)
                self.count += 1
                due += SCRAPE_S
        except (OSError, http.client.HTTPException, harness.Failure) as problem:
            self.problem = problem
        self.cpu_s = time.thread_time()


class Onlookers:
    """`divvy top`, `divvy trace` and a scraper together, for one window."""

    def __init__(self, side, seconds):
        self.side = side
        self.top_log = side.dir / "top"
        self.trace = side.dir / "trace.json"
        self.cpu_s = 0.0   # of the two commands and of the scraper's thread
        self.scraper = Scraper(side.dir / "run", HOST_CORE)
        self.trace_s = seconds - 1   # the rest is for writing the file

    def start(self, arguments, out):
        return self.side.place.start([harness.divvy_command(), *arguments], env=self.side.environment(), stdout=out,
                                     stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def __enter__(self):
        with open(self.top_log, "w") as out:
            self.top = self.start(["top", "-b"], out)
        self.tracing = self.start(["trace", "-o", str(self.trace), "--for", f"{self.trace_s:g}s"], subprocess.DEVNULL)
        self.scraper.__enter__()
        return self

    def __exit__(self, kind, *_):
        self.top.send_signal(signal.SIGINT)
        before = os.times()
        try:
            self.scraper.__exit__()
        finally:
            for child in (self.top, self.tracing):
                try:
                    child.wait(20)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
        after = os.times()   # has grown by the children that were waited for
        self.cpu_s = self.scraper.cpu_s + after.children_user + after.children_system \
            - before.children_user - before.children_system
        if kind is None:
            self.check()

    def check(self):
        """All three have really seen something."""
        pictures = self.top_log.read_text(errors="replace").count("DEVICE / TENANT")
        events = self.trace.read_text(errors="replace").count('"ph":"X"') if self.trace.exists() else 0
        if pictures < 2 or events < 50 or self.scraper.count < 2:
            raise harness.Failure(f"the onlookers saw little: {pictures} pictures of top, {events} events of the "
                                  f"trace, {self.scraper.count} scrapes")


# ---- throughput of 64 sessions ----

class Windows:
    """Windows of one trial, by turns without onlookers and with them, and in the reverse order the next time."""

    def __init__(self, plan):
        self.plan = plan
        self.pairs = []   # of begin times: (unwatched, watched), seconds after the trial's start
        self.cpu = ([], [])          # divvyd's, as a part of a core
        self.onlookers_cpu = []

    def seconds(self):
        return FIRST_WINDOW_S + 2 * self.plan.pairs * (self.plan.window_s + SETTLE_S)

    def __call__(self, trial):
        begin = FIRST_WINDOW_S
        for number in range(self.plan.pairs):
            order = (False, True) if number % 2 == 0 else (True, False)
            begins = {}
            for watched in order:
                trial.sleep_until(begin)
                begins[watched] = begin
                before = process_ns(trial.side.process.pid)
                with Onlookers(trial.side, self.plan.window_s) if watched else contextlib.nullcontext() as onlookers:
                    trial.sleep_until(begin + self.plan.window_s)
                if watched:
                    self.onlookers_cpu.append(onlookers.cpu_s / self.plan.window_s)
                self.cpu[watched].append((process_ns(trial.side.process.pid) - before) / 1e9 / self.plan.window_s)
                begin = max(begin + self.plan.window_s, trial.now_s()) + SETTLE_S
            self.pairs.append((begins[False], begins[True]))


def process_ns(pid):
    """Processor time of a process, all threads: the clock that clock_getcpuclockid(3) gives."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def throughput(plan, scratch):
    tenants = [Tenant(f"t{i}", 1 / TENANTS, [Work(KERNEL_MS) for _ in range(PROCESSES)]) for i in range(TENANTS)]
    windows = Windows(plan)
    with Side(Place(scratch), "elastic", tenants) as side:
        # a window waits for its onlookers to end, so the trial can take a little longer than planned
        trial = Trial(side, windows.seconds() + 1.0 * plan.pairs, during=windows)
    rates = [[trial.kernels_in(begin, begin + plan.window_s) / plan.window_s for begin in begins]
             for begins in zip(*windows.pairs)]
    busy = [[trial.busy(begin, begin + plan.window_s) for begin in begins] for begins in zip(*windows.pairs)]
    made = [figure("watched_rate", "64 sessions: kernels a second while watched, by not watched",
                   [w / n for n, w in zip(*rates)], (">=", 0.99), *rates, "1/s"),
            figure("watched_busy", "  and the time in which the device was busy", [w / n for n, w in zip(*busy)], None,
                   *busy, "%"),
            figure("watched_cpu", "  divvyd's part of a core, more than not watched",
                   [w - n for n, w in zip(*windows.cpu)], None, *windows.cpu, ""),
            figure("onlookers_cpu", "  the onlookers' own part of a core", windows.onlookers_cpu)]
    made[0].strict = True
    made[0].disturbed = trial.disturbance.matters() or \
        harness.uncertainty_of_median(made[0].rounds) > MAX_UNCERTAINTY
    print(f"\n{trial.kernel_count} kernels of {TENANTS * PROCESSES} sessions, all results right; {trial.disturbance}")
    return made


# ---- tracing that is off ----

def instructions(program, grants):
    """How many instructions a program of the ledger executes, by callgrind."""
    done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                           harness.bench_program(program[0]), str(grants), *program[1:]],
                          capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    found = re.search(r"Collected : ([0-9]+)", done.stderr)
    if done.returncode != 0 or not found:
        raise harness.Failure(f"{program[0]} below valgrind: {done.stderr.strip()[-500:]}")
    return int(found[1])


def off(plan, _):
    """Instructions that the ledger executes for a grant, compiled without tracing, with it, and while one traces."""
    if not shutil.which("valgrind"):
        print("left out: what tracing costs while it is off (package valgrind)")
        return []
    # the difference of two runs is without what comes before the first grant
    without, idle, active = ((instructions(program, 2 * plan.grants) - instructions(program, plan.grants)) / plan.grants
                             for program in (["bench-ledger-untraced"], ["bench-ledger"], ["bench-ledger", "trace"]))
    return [single("off_part", "tracing is off: the ledger's instructions for a grant, more than without it, %",
                   100 * (idle / without - 1), ("<=", 0.5)),
            single("off_instructions", "  that is, instructions", idle - without),
            single("on_instructions", "  while one traces", active - without),
            single("grant_instructions", "  of all that it executes for a grant", without)]


# ---- scrapes ----

class ObservedDaemon(sched.SystemDaemon):
    def __init__(self, scratch):
        super().__init__(Arrangement("free", sched.VENDOR), scratch)
        scale.give_core(self.process.pid, scale.DAEMON_CORE)


class ObservedCrowd(sched.Crowd):
    """Sessions of many users in one process, without workers."""

    def __init__(self, daemon, scratch, sessions, tenants):
        clocks = tempfile.NamedTemporaryFile(dir=scratch.dir, delete=False)
        clocks.close()
        side = harness.Side("crowd", Arrangement("apart"), daemon.tenant_environment())
        self.members = [sched.Member(side, [
            harness.bench_program("bench-sched"), "crowd", str(daemon.dir / "run" / "session.sock"), str(sessions),
            "0", str(sched.FIRST_UID), str(tenants), clocks.name])]
        try:
            self.answers()
        except BaseException:
            self.stop()
            raise

    def take_turns(self, ms, waiting, hold_us):
        return self.members[0].ask(f"run {waiting} 0 {CROWD_DEVICES} {hold_us} {ms}")


def scrape_times(daemon):
    """divvyd's processor time for each of some scrapes, in ms, while no session does anything."""
    times = []
    for _ in range(SCRAPES):
        time.sleep(0.25)   # entitlements are prepared anew after 200 ms
        before = process_ns(daemon.process.pid)
        text = scrape(daemon.dir / "run")
        time.sleep(0.01)   # until the connection is closed
        times.append((process_ns(daemon.process.pid) - before) / 1e6)
    tenants = set(re.findall(r'^divvy_tenant_sessions\{.*tenant="([^"]*)"\}', text, re.M))
    if len(tenants) != CROWD_TENANTS:
        raise harness.Failure(f"a scrape has {len(tenants)} tenants, not {CROWD_TENANTS}")
    return times, len(text)


def scrapes(plan, scratch):
    if not sched.tenants_are_users():
        sys.exit("bench: the tenants are users of their own, so this must be run by root")
    daemon = ObservedDaemon(scratch)
    crowd = None
    counts, stuck = [], []

    def take(watched):
        if not watched:
            answer = crowd.take_turns(plan.run_ms, CROWD_WAITING, HOLD_US)
        else:
            with Scraper(daemon.dir / "run", scale.CROWD_CORE, aside=True) as scraper:
                answer = crowd.take_turns(plan.run_ms, CROWD_WAITING, HOLD_US)
            counts.append(scraper.count)
        stuck.append(answer["stuck"])
        return harness.percentile(answer["handover_ns"], 0.99) / 1e3

    try:
        crowd = ObservedCrowd(daemon, scratch, CROWD_SESSIONS, CROWD_TENANTS)
        scale.give_core(crowd.members[0].process.pid, scale.CROWD_CORE)
        for _ in range(CROWD_SESSIONS // CROWD_WAITING):   # until all have held a device
            crowd.take_turns(300, CROWD_WAITING, HOLD_US)
        alone, watched = harness.interleave([False, True], plan.repetitions, take)
        times, size = scrape_times(daemon)
    finally:
        if crowd:
            crowd.stop()
        daemon.stop()
    if sum(counts) < plan.repetitions * plan.run_ms / 1000 / 2:
        raise harness.Failure(f"{sum(counts)} scrapes, too few")
    print(f"\n{sum(counts)} scrapes beside {len(alone)} runs; a scrape has {size // 1024} KiB")
    return [figure("scrape_ms", "a scrape: divvyd's processor time, ms", times, ("<=", 20)),
            single("scrape_worst_ms", "  the longest", max(times), ("<=", 20)),
            figure("scraped_p99_us", "a scrape every second: p99 of a release until the next grant, added, us",
                   [w - a for a, w in zip(alone, watched)], ("<=", 100), alone, watched, "us"),
            sched.NoneOf("stuck", "sessions that were never granted again", sum(stuck))]


# ---- putting it together ----

def main(arguments):
    parser = harness.argument_parser("observe", __doc__)
    parser.add_argument("--only", action="append", choices=GROUPS,
                        help="take only this group of figures; may be repeated")
    options = parser.parse_args(arguments)
    if options.compare == "bare":
        sys.exit("bench: nothing here has a bare side")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    plan = Plan(options.quick)
    figures = []
    with harness.Scratch() as scratch:
        for group, take in zip(GROUPS, (throughput, off, scrapes)):
            if not options.only or group in options.only:
                figures += take(plan, scratch)
    harness.print_table(f"{TENANTS * PROCESSES} sessions that compute; {CROWD_SESSIONS:,} lease-only sessions of "
                        f"{CROWD_TENANTS} tenants on {CROWD_DEVICES} devices.", "watched", figures,
                        first_name="not watched")
    return harness.conclude("observe", figures, options.compare)
