"""bench/run scale: grant latency while an operator lists: ten thousand sessions of a thousand tenants on 16
devices, a thousand of them waiting at any time, and `divvy ps`, `divvy tenants` and `divvy devices`
in a loop. No vendor computes anything."""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import harness
import sched
from harness import Arrangement, Side
from sched import figure, single

SESSIONS, WAITING, TENANTS, DEVICES = 10_000, 1_000, 1_000, 16
HOLD_US = 2000
DAEMON_CORE, CROWD_CORE = 0, 1
LISTINGS = ["tenants", "ps", "devices"]

VENDOR = {"POCL_DEVICES": " ".join(["pthread"] * DEVICES), "POCL_MAX_PTHREAD_COUNT": "1"}


class Plan:
    def __init__(self, quick):
        self.repetitions = 5 if quick else 15
        self.run_ms = 2500 if quick else 5000


def give_core(pid, core):
    """Gives a process a core of its own, with priority over all that runs there, where permitted: the bench
    measures how long grants wait for divvyd, not for a core."""
    os.sched_setaffinity(pid, {core})
    try:
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pass


class ScaleDaemon(sched.SystemDaemon):
    def __init__(self, scratch):
        super().__init__(Arrangement("free", VENDOR), scratch)
        give_core(self.process.pid, DAEMON_CORE)

    def await_devices(self, count=DEVICES):
        super().await_devices(count)


class ScaleCrowd(sched.Crowd):
    """All sessions in one process."""

    def __init__(self, daemon, scratch):
        clocks = tempfile.NamedTemporaryFile(dir=scratch.dir, delete=False)
        clocks.close()
        side = Side("crowd", Arrangement("apart"), daemon.tenant_environment())
        tenants = TENANTS if sched.tenants_are_users() else 0
        self.members = [sched.Member(side, [
            harness.bench_program("bench-sched"), "crowd",
            str(daemon.dir / "run" / "session.sock"), str(SESSIONS), "0", str(sched.FIRST_UID),
            str(tenants), clocks.name])]
        try:
            self.answers()
        except BaseException:
            self.stop()
            raise
        give_core(self.members[0].process.pid, CROWD_CORE)

    def take_turns(self, ms):
        return self.members[0].ask(f"run {WAITING} 0 {DEVICES} {HOLD_US} {ms}")


class Onlooker:
    """Asks for one listing after the other, with the time that the crowd's core has left over."""

    def __init__(self, daemon):
        self.environment = daemon.tenant_environment()
        self.seconds = {listing: [] for listing in LISTINGS}
        self.stopping = threading.Event()
        self.problem = None
        self.thread = threading.Thread(target=self.look)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()

    def look(self):
        number = 0
        while not self.stopping.is_set() and not self.problem:
            self.ask(LISTINGS[number % len(LISTINGS)])
            number += 1

    def ask(self, listing):
        start = time.monotonic()
        child = subprocess.Popen([harness.divvy_command(), listing, "--json"],
                                 env=self.environment, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True, preexec_fn=step_aside)
        errors = child.communicate(timeout=60)[1]
        if child.returncode != 0:
            self.problem = f"divvy {listing}: {errors.strip()}"
        self.seconds[listing].append(time.monotonic() - start)


def step_aside():
    os.sched_setaffinity(0, {CROWD_CORE})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def measure(plan, scratch):
    figures, stuck, problems = [], [], []
    seconds = {listing: [] for listing in LISTINGS}

    def take(watched):
        onlooker = Onlooker(daemon)
        if watched:
            with onlooker:
                answer = crowd.take_turns(plan.run_ms)
            problems.extend([onlooker.problem] if onlooker.problem else [])
            for listing in LISTINGS:
                seconds[listing].extend(onlooker.seconds[listing])
        else:
            answer = crowd.take_turns(plan.run_ms)
        stuck.append(answer["stuck"])
        return answer

    daemon = ScaleDaemon(scratch)
    crowd = None
    try:
        empty_kib = daemon.pss_kib()
        crowd = ScaleCrowd(daemon, scratch)
        crowd.take_turns(plan.run_ms)
        full_kib = daemon.pss_kib()
        alone, watched = harness.interleave([False, True], plan.repetitions, take)
        if problems:
            raise harness.Failure(problems[0])
        figures += delays(alone, watched)
        figures += decisions(daemon)
        figures += [single("session_bytes", "divvyd's memory a session, bytes",
                           (full_kib - empty_kib) * 1024 / SESSIONS, ("<=", 8192))]
        figures += [figure(f"{listing}_s", f"divvy {listing} --json, beside the crowd, s",
                           seconds[listing]) for listing in LISTINGS if seconds[listing]]
        figures += [sched.NoneOf("stuck", "sessions that were never granted again", sum(stuck))]
    finally:
        if crowd:
            crowd.stop()
        daemon.stop()
    return figures


def delays(alone, watched):
    worst_alone = [answer["longest_handover_ns"] / 1e6 for answer in alone]
    worst_watched = [answer["longest_handover_ns"] / 1e6 for answer in watched]
    p99_alone, p99_watched = ([harness.percentile(answer["handover_ns"], 0.99) / 1e6
                               for answer in answers] for answers in (alone, watched))
    return [figure("worst_added_ms", "latest grant, beyond that without an observer, ms",
                   [w - a for a, w in zip(worst_alone, worst_watched)], ("<=", 2), worst_alone,
                   worst_watched, "ms"),
            figure("p99_added_ms", "  99th percentile, ms",
                   [w - a for a, w in zip(p99_alone, p99_watched)], None, p99_alone, p99_watched,
                   "ms")]


def decisions(daemon):
    devices = daemon.ask("devices")["devices"]
    return [single("decision_p99_us", "decision, p99, of the worst device, us",
                   max(device["decision_p99_us"] for device in devices), ("<=", 50))]


def main(arguments):
    parser = harness.argument_parser("scale", __doc__)
    options = parser.parse_args(arguments)
    if options.compare == "bare":
        sys.exit("bench: nothing here has a bare side")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with harness.Scratch() as scratch:
        figures = measure(Plan(options.quick), scratch)
    tenants = f"{TENANTS:,}" if sched.tenants_are_users() else "1 (not run as root)"
    harness.print_table(f"{SESSIONS:,} lease-only sessions, {WAITING:,} waiting at any time; tenants: "
                        f"{tenants}; devices: {DEVICES}.", "looked at", figures)
    return harness.conclude("scale", figures, options.compare)
