"""bench/run sched: performance of the daemon alone: ten thousand sessions over real sockets, a
thousand of them waiting at any time, eight devices. No vendor computes anything, except the OpenCL
programs that run beside the crowd."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import harness
from harness import Arrangement, Daemon, Figure, Instance, Side, vendorchoice

SESSIONS, WAITING = 10_000, 1_000
CROWDS = 8                        # processes that hold the sessions
TENANTS, FIRST_UID = 100, 70_000  # users, who need not exist
DEVICES = 8
OPENCL_PROGRAMS = 64

# One thread a device: the machine's cores are shared by all of them and by everything else here.
VENDOR = {"POCL_DEVICES": " ".join(["pthread"] * DEVICES), "POCL_MAX_PTHREAD_COUNT": "1"}
GROUPS = ["load", "beside", "endings"]


class Plan:
    def __init__(self, quick):
        self.repetitions = 8 if quick else 30
        self.run_ms = 300 if quick else 500
        self.paced_ms = 1500 if quick else 5000
        self.beside = 2 if quick else 6
        self.beside_seconds = 0 if quick else 5


def tenants_are_users():
    """Only root can act as many users. Otherwise each process of the crowd is a tenant."""
    return os.geteuid() == 0


def config():
    per = "user" if tenants_are_users() else "program"
    return ('devices:\n  - match: "*"\n    policy: elastic\n'
            f'tenants:\n  - per: {per}\nsessions-per-user: 16384\n')


class SystemDaemon(Daemon):
    """divvyd that serves all users, if we are root."""

    def __init__(self, arrangement, scratch):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="daemon-", dir=scratch.dir))
        self.log = open(self.dir / "log", "w")
        (self.dir / "config.yaml").write_text(vendorchoice.config(config()))
        command = [str(harness.build_dir() / "src" / "arbiter" / "divvyd"), "--dir",
                   str(self.dir / "run"), "--config", str(self.dir / "config.yaml"),
                   "--log-level", "warning"]
        if tenants_are_users():
            for directory in (scratch.dir, self.dir):
                directory.chmod(0o711)   # the way to the socket
        else:
            command.append("--user")
        if not os.access(command[0], os.X_OK):
            sys.exit(f"bench: {command[0]} is missing; build first")
        self.process = subprocess.Popen(
            command, env=harness.vendor_environment(scratch.cache, arrangement.vendor),
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self._await_ready()
        self.await_devices()

    def ask(self, *command):
        out = subprocess.run([harness.divvy_command(), *command, "--json"],
                             env=self.tenant_environment(), capture_output=True, text=True,
                             timeout=60, check=True)
        return json.loads(out.stdout)

    def await_devices(self, count=DEVICES):
        deadline = time.monotonic() + 20
        while len(self.ask("devices")["devices"]) != count:
            if time.monotonic() > deadline:
                sys.exit(f"bench: divvyd does not show {count} devices")
            time.sleep(0.05)

    def session_count(self):
        return len(self.ask("ps")["sessions"])

    def await_descriptors(self, most, seconds=30):
        """Seconds until divvyd has at most this many descriptors open. Looks from outside: asking for the
        sessions would keep divvyd busy."""
        start = time.monotonic()
        while self.descriptors() > most and time.monotonic() - start < seconds:
            time.sleep(0.005)
        return time.monotonic() - start

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def pss_kib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
        raise harness.Failure("no Pss of divvyd")

    def cpu_seconds(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        user, system = text.rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class Crowd:
    """All lease-only sessions, spread over several processes that are asked together."""

    def __init__(self, daemon, scratch, sessions=SESSIONS):
        clocks = tempfile.NamedTemporaryFile(dir=scratch.dir, delete=False)
        clocks.close()
        side = Side("crowd", Arrangement("free"), daemon.tenant_environment())
        uids = TENANTS if tenants_are_users() else 0
        self.members = []
        start = time.monotonic()
        for number in range(CROWDS):
            self.members.append(Member(side, [
                harness.bench_program("bench-sched"), "crowd",
                str(daemon.dir / "run" / "session.sock"), str(sessions // CROWDS), str(number),
                str(FIRST_UID), str(uids), clocks.name]))
        try:
            self.answers()
        except BaseException:
            self.stop()
            raise
        self.connect_seconds = time.monotonic() - start

    def begin(self, hold_us, ms=0, first_device=0, active=WAITING):
        for member in self.members:
            member.say(f"run {active // CROWDS} {first_device} {DEVICES - first_device} "
                       f"{hold_us} {ms}")

    def end(self):
        """The answers of the programs that still live."""
        for member in self.members:
            member.say("stop")
        return self.answers()

    def answers(self):
        return [member.read_answer(120) for member in self.members]

    def run(self, hold_us, ms, active=WAITING):
        self.begin(hold_us, ms, active=active)
        return self.answers()

    def kill(self, members):
        for member in members:
            member.process.send_signal(signal.SIGKILL)
            self.members.remove(member)
        for member in members:
            member.process.wait()

    def stop(self):
        for member in self.members:
            member.close_input()
        for member in self.members:
            member.stop()
        self.members = []


class Member(Instance):
    """An instance that does not wait until it is ready, so that others can be started beside it."""

    def __init__(self, side, command):
        self.name = side.name
        self.errors = tempfile.TemporaryFile()
        self.process = side.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=self.errors)


def rate(answers):
    return sum(answer["grants"] * 1e9 / answer["ns"] for answer in answers)


def handovers_us(answers):
    return [ns / 1000 for answer in answers for ns in answer["handover_ns"]]


def figure(key, label, values, bar=None, bare=(), other=(), unit=""):
    made = Figure(key, label, bar, unit)
    made.add_round(list(values), list(bare), list(other))
    return made


def single(key, label, value, bar=None):
    return figure(key, label, [value], bar)


class NoneOf(Figure):
    """A count of events that must not happen: no noise excuses them."""

    def __init__(self, key, label, count):
        super().__init__(key, label, ("<=", 0))
        self.add_round([count])

    def verdict(self):
        return "FAIL" if self.value > 0 else "ok"


# ---- load ----

class Load:
    """Memory, decisions and rates, all with the whole crowd connected."""

    def __init__(self, plan, daemon, crowd, empty_kib, yardstick):
        self.plan = plan
        self.daemon = daemon
        self.crowd = crowd
        self.empty_kib = empty_kib
        self.yardstick = yardstick
        self.stuck = 0

    def figures(self):
        paced = self.paced()
        rates = self.rates()
        return self.decisions() + self.memory() + rates + paced + [
            NoneOf("stuck", "sessions that were never granted again", self.stuck)]

    def run(self, hold_us, ms):
        answers = self.crowd.run(hold_us, ms)
        self.stuck += sum(answer["stuck"] for answer in answers)
        return answers

    def paced(self):
        """Turns of a millisecond, so that neither daemon nor crowd lacks processor time."""
        cpu = self.daemon.cpu_seconds()
        answers = self.run(1000, self.plan.paced_ms)
        cpu = self.daemon.cpu_seconds() - cpu
        handovers = handovers_us(answers)
        seconds = max(answer["ns"] + answer["drain_ns"] for answer in answers) / 1e9
        return [figure("handover_p50_us", "holds of 1 ms: release to the next holder's grant, us",
                       handovers),
                single("handover_p99_us", "  99th percentile, us",
                       harness.percentile(handovers, 0.99)),
                single("paced_rate", "  grants a second", rate(answers)),
                single("paced_cpu", "  divvyd's part of one core", cpu / seconds)]

    def rates(self):
        def take(side):
            if side == "crowd":
                answers = self.run(0, self.plan.run_ms)
                self.handovers += handovers_us(answers)
                return rate(answers) / 1000
            answer = self.yardstick.ask(f"run {self.plan.run_ms}")
            return answer["round_trips"] * 1e6 / answer["ns"]

        self.handovers = []
        bare, other = harness.interleave(["pingpong", "crowd"], self.plan.repetitions, take)
        return [figure("grant_rate", "holds of no length: grants a second, by bare round trips",
                       [o / b for b, o in zip(bare, other)], None, bare, other, "k/s"),
                figure("saturated_handover_p50_us", "  release to the next holder's grant, us",
                       self.handovers)]

    def decisions(self):
        """divvyd's own account of all decisions since its start."""
        devices = [device for device in self.daemon.ask("devices")["devices"]
                   if device.get("decisions")]
        if not devices:
            raise harness.Failure("divvyd tells nothing about its decisions")
        return [single("decision_p99_us", "decision, p99, of the worst device, us",
                       max(device["decision_p99_us"] for device in devices), ("<=", 50)),
                figure("decision_p50_us", "  median of each device, us",
                       [device["decision_p50_us"] for device in devices])]

    def memory(self):
        return [single("session_kib", "divvyd's memory a session, KiB",
                       (self.daemon.pss_kib() - self.empty_kib) / SESSIONS, ("<=", 8)),
                single("connect_rate", "  sessions opened a second, k/s",
                       SESSIONS / self.crowd.connect_seconds / 1000)]


# ---- OpenCL programs beside the crowd ----

class Programs:
    """Several OpenCL programs at once, which check their own results."""

    def __init__(self, daemon):
        self.side = Side("divvy", Arrangement("free"), daemon.tenant_environment(),
                         [harness.divvy_command(), "run", "--"], daemon)
        self.program = str(harness.build_dir() / "tests" / "system" / "programs" / "compute")

    def run(self, seconds, count=OPENCL_PROGRAMS):
        """Wall time of all, and the rounds that they computed. Each runs for this many seconds; with 0 it
        computes a single round."""
        start = time.monotonic()
        children = [self.side.popen([self.program, str(number), str(seconds)],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    for number in range(count)]
        try:
            rounds = sum(rounds_of(child) for child in children)
        finally:
            for child in children:
                child.kill()
                child.wait()
        return time.monotonic() - start, rounds


def rounds_of(child):
    """The rounds that the program computed, all of them correct."""
    out, err = child.communicate(timeout=300)
    words = out.split()
    if child.returncode != 0 or words[:2] != ["ready", "done"]:
        raise harness.Failure(f"an OpenCL program failed: code {child.returncode}, {out!r}, "
                              f"{err.strip()}")
    return int(words[2])


def beside(plan, crowded, crowd, quiet):
    """The same programs at a daemon with the crowd and at one without. The crowd holds the
    other devices for 5 ms at a time: on the same one it would rightly take device time from the programs.
    """
    def take(daemon, seconds):
        if daemon is not crowded:
            return Programs(daemon).run(seconds)
        crowd.begin(5000, first_device=1)
        try:
            return Programs(daemon).run(seconds)
        finally:
            stuck.extend(answer["stuck"] for answer in crowd.end())

    stuck = []
    # One program fills the kernel cache: PoCL fails when many do that at once.
    Programs(quiet).run(0, count=1)
    without, with_crowd = harness.interleave([quiet, crowded], plan.beside,
                                             lambda daemon: take(daemon, 0)[0])
    figures = [figure("beside_time",
                      f"{OPENCL_PROGRAMS} OpenCL programs: time beside the crowd, by without",
                      [o / b for b, o in zip(without, with_crowd)], ("<=", 1.1), without,
                      with_crowd, "s")]
    if plan.beside_seconds:
        without, with_crowd = harness.interleave(
            [quiet, crowded], plan.beside, lambda daemon: take(daemon, plan.beside_seconds)[1])
        figures.append(figure("beside_rate", "  and the rounds they compute",
                              [o / b for b, o in zip(without, with_crowd)], (">=", 0.9), without,
                              with_crowd))
    return figures + [NoneOf("beside_stuck", "  sessions of the crowd never granted again",
                             sum(stuck))]


# ---- endings ----

def endings(daemon, crowd, scratch, empty_kib, empty_descriptors):
    """Half of the crowd is killed in the middle of its holds, then the rest leaves, then all come
    again."""
    full_kib = daemon.pss_kib()
    crowd.begin(1000)
    time.sleep(0.5)
    half = CROWDS // 2
    survivors = SESSIONS - half * (SESSIONS // CROWDS)
    crowd.kill(crowd.members[:half])
    # one for each session, one for each program, and for each user the epoll set of its channels
    users = TENANTS if tenants_are_users() else 1
    half_gone = daemon.await_descriptors(empty_descriptors + survivors + half + users)
    time.sleep(0.5)
    answers = crowd.end()
    left_over = daemon.session_count() - survivors
    crowd.stop()
    all_gone = daemon.await_descriptors(empty_descriptors)
    left_over += daemon.session_count()
    time.sleep(0.2)   # for the connection just used
    descriptors = daemon.descriptors() - empty_descriptors
    left_kib = daemon.pss_kib()
    again = Crowd(daemon, scratch)
    again_kib = daemon.pss_kib()
    again.stop()
    crowd_kib = max(full_kib - empty_kib, 1)
    return [single("endings_half_s", "half is killed: divvyd has let go of them within, s",
                   half_gone, ("<=", 1)),
            single("endings_gap_s", "  longest time in which a survivor saw no grant, s",
                   max(answer["gap_ns"] for answer in answers) / 1e9, ("<=", 1)),
            NoneOf("endings_stuck", "  survivors never granted again",
                   sum(answer["stuck"] for answer in answers)),
            single("endings_all_s", "the rest leaves: divvyd has let go of them within, s",
                   all_gone, ("<=", 1)),
            NoneOf("endings_sessions", "  sessions left over", left_over),
            NoneOf("endings_descriptors", "  descriptors left open", descriptors),
            single("endings_memory", "  memory kept, as a part of the crowd's",
                   (left_kib - empty_kib) / crowd_kib),
            single("endings_again", "all come again: memory, by that of the first time",
                   (again_kib - empty_kib) / crowd_kib, ("<=", 1.1))]


# ---- putting it together ----

def against_itself(plan, scratch):
    side = harness.bare_side(Arrangement("free"), scratch)
    instances = [Instance(side, [harness.bench_program("bench-sched"), "pingpong"])
                 for _ in range(2)]

    def take(instance):
        answer = instance.ask(f"run {plan.run_ms}")
        return answer["round_trips"] * 1e6 / answer["ns"]

    bare, other = harness.interleave(instances, plan.repetitions, take)
    for instance in instances:
        instance.stop()
    return [figure("grant_rate", "round trips a second", [o / b for b, o in zip(bare, other)], None,
                   bare, other, "k/s")]


def emptiness(daemon, scratch):
    """Memory of a fresh divvyd, and descriptors of one that has served before: descriptors opened on first
    use are no leak."""
    pss_kib, descriptors = daemon.pss_kib(), daemon.descriptors()
    few = Crowd(daemon, scratch, CROWDS)
    few.run(0, 50, active=CROWDS)
    few.stop()
    daemon.await_descriptors(descriptors, seconds=0.5)
    return pss_kib, daemon.descriptors()


def measure(plan, wanted, scratch):
    arrangement = Arrangement("free", VENDOR)
    stoppable = []
    figures = []
    try:
        crowded = SystemDaemon(arrangement, scratch)
        stoppable.append(crowded)
        empty = emptiness(crowded, scratch)
        crowd = Crowd(crowded, scratch)
        stoppable.insert(0, crowd)
        if "load" in wanted:
            yardstick = Instance(harness.bare_side(Arrangement("free"), scratch),
                                 [harness.bench_program("bench-sched"), "pingpong"])
            stoppable.insert(0, yardstick)
            figures += Load(plan, crowded, crowd, empty[0], yardstick).figures()
        if "beside" in wanted:
            quiet = SystemDaemon(arrangement, scratch)
            stoppable.append(quiet)
            figures += beside(plan, crowded, crowd, quiet)
        if "endings" in wanted:
            figures += endings(crowded, crowd, scratch, *empty)
    finally:
        for thing in stoppable:
            thing.stop()
    return figures


def main(arguments):
    parser = harness.argument_parser("sched", __doc__)
    parser.add_argument("--only", action="append", choices=GROUPS,
                        help="take only this group of figures; may be repeated")
    options = parser.parse_args(arguments)
    plan = Plan(options.quick)
    with harness.Scratch() as scratch:
        if options.compare == "bare":
            figures = against_itself(plan, scratch)
        else:
            figures = measure(plan, options.only or GROUPS, scratch)
    tenants = TENANTS if tenants_are_users() else f"{CROWDS} (not run as root)"
    title = (f"{SESSIONS:,} lease-only sessions, {WAITING:,} waiting at any time; "
             f"tenants: {tenants}; devices: {DEVICES}.")
    if options.compare == "bare":
        harness.print_table("A bare socket against itself.", "bare again", figures)
    else:
        harness.print_table(title, "divvy", figures)
    return harness.conclude("sched", figures, options.compare)
