"""Shares of real programs in bench/run share: unmodified programs of tests/apps run side by side, again and
again, and what divvyd charges them is compared with what their tenants should have."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import harness
import overhead
from sharing.figures import (AT_LEAST_NONE, Figure, median_and_spread, parts, print_rows,
                             print_table)
from sharing.trial import FIRST_UID, Place, Side

PROGRAM_POINTS = 2
LOOK_S = 0.5
PATIENCE = 10   # times as long as all have to have work
FIRST_GID = FIRST_UID   # tenants are groups here: all are one user, whose compiled kernels are kept


class ProgramTenant:
    """A group with its share and the programs, (name, long) each, that it runs again and again."""

    def __init__(self, name, entitled, programs, **share):
        self.name = name
        self.entitled = entitled
        self.programs = programs
        self.share = share

    def rule(self, number):
        words = [f'group: "{number}"', f'name: "{self.name}"']
        words += [f"{key}: {value}" for key, value in self.share.items()]
        return "  - {" + ", ".join(words) + "}\n"


# Two of each: while one starts or looks at results, the other has work.
HASHCAT, CLPEAK = [("hashcat", True)] * 2, [("clpeak", False)] * 2

MIXES = {
    "weights": ("hashcat of weight 2; clpeak", [
        ProgramTenant("hashcat", 2 / 3, HASHCAT, weight=2),
        ProgramTenant("clpeak", 1 / 3, CLPEAK)]),
    "limit": ("hashcat limit 30 %; clpeak", [
        ProgramTenant("hashcat", 0.3, HASHCAT, limit="30%"),
        ProgramTenant("clpeak", 0.7, CLPEAK)]),
}


class Loop(threading.Thread):
    """Runs one program again and again, each time in a fresh directory, and checks what it gives."""

    def __init__(self, side, home, gid, program, long):
        super().__init__(daemon=True)
        self.side, self.home, self.gid = side, home, gid
        self.program, self.long = program, long
        self.runs = 0
        self.error = None
        self.ending = threading.Event()
        self.process = None
        self.lock = threading.Lock()   # of the process and the wish to end

    def run(self):
        try:
            while not self.ending.is_set():
                self.run_once()
        except Exception as error:   # of any kind: the other thread shows it
            self.error = error

    def run_once(self):
        work = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=self.side.dir))
        try:
            done = self.await_end(work, self.program.command(work, self.long))
            if self.ending.is_set():
                return
            if done.returncode:
                raise harness.Failure(f"{self.program.name}: exit code {done.returncode}\n"
                                      f"{done.stdout[-1000:]}\n{done.stderr[-1000:]}")
            self.program.verify(self.program.output(work, done), self.long)
            self.runs += 1
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def await_end(self, work, arguments):
        options = ["--present-as", self.program.present_as] if self.program.present_as else []
        command = ["setpriv", f"--regid={self.gid}", "--clear-groups", harness.divvy_command(),
                   "run", *options, "--", *arguments]
        env = self.program.environment(work, self.home, bare=False, base=self.side.environment())
        with open(work / "stdout", "w+") as out, open(work / "stderr", "w+") as err:
            with self.lock:
                if self.ending.is_set():
                    return None
                self.process = self.side.place.start(
                    command, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    start_new_session=True)
            self.process.wait()
        texts = [(work / name).read_text(errors="replace") for name in ("stdout", "stderr")]
        return subprocess.CompletedProcess(command, self.process.returncode, *texts)

    def stop(self):
        with self.lock:
            self.ending.set()
            if self.process and self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        if self.ident:
            self.join(30)


class Window:
    """What divvyd charges the tenants of a side while all of them have work. It counts seconds at whose
    begin and end divvyd says of every tenant that it is entitled to what it should have, which it
    says of those only who have had work within the last second."""

    def __init__(self, tenants):
        self.tenants = tenants
        self.seconds = 0.0
        self.charged = {tenant.name: 0.0 for tenant in tenants}
        self.before = None   # of the last question, if all had work

    def look(self, side):
        now = time.monotonic()
        answer = json.loads(side.divvy("tenants", "--json"))["tenants"]
        found = {tenant["name"]: tenant["devices"][0] for tenant in answer if tenant["devices"]}
        if not all(tenant.name in found and abs(
                found[tenant.name]["entitled_ppm"] / 1e6 - tenant.entitled) < 0.001
                for tenant in self.tenants):
            self.before = None
            return
        used = {name: device["used_s"] for name, device in found.items()}
        if self.before:
            then, used_then = self.before
            self.seconds += now - then
            for name in self.charged:
                self.charged[name] += used[name] - used_then[name]
        self.before = now, used

    def shares(self):
        return parts([self.charged[tenant.name] for tenant in self.tenants])


def home_of(apps, copy):
    """hashcat runs once in a home: each copy of a program has one with all that the first has."""
    first, home = (apps.cache_dir() / "home" / f"share{number}" for number in (0, copy))
    if copy and first.exists():
        shutil.copytree(first, home, dirs_exist_ok=True)
    return home


def watch_programs(place, apps, tenants, seconds):
    """Runs the programs of all tenants until all have had work for this time."""
    window = Window(tenants)
    watch = harness.Watch()
    with Side(place, "elastic", tenants) as side:
        loops = [Loop(side, home_of(apps, copy), FIRST_GID + number, apps.BY_NAME[name], long)
                 for number, tenant in enumerate(tenants)
                 for copy, (name, long) in enumerate(tenant.programs)]
        try:
            for loop in loops:
                loop.start()
            deadline = time.monotonic() + PATIENCE * seconds
            while window.seconds < seconds and time.monotonic() < deadline:
                time.sleep(LOOK_S)
                window.look(side)
                for loop in loops:
                    if loop.error:
                        raise loop.error
        finally:
            for loop in loops:
                loop.stop()
        window.runs = sum(loop.runs for loop in loops)
    window.disturbance = watch.disturbance()
    return window


def warm_up(place, apps, names):
    """Each once and by itself: its kernels are compiled then, which divvyd charges, too."""
    with Side(place, "elastic", [ProgramTenant("alone", 1, [])]) as side:
        for name in sorted(names):
            apps.BY_NAME[name].prepare()
            Loop(side, home_of(apps, 0), FIRST_GID, apps.BY_NAME[name], False).run_once()


def programs(bench):
    """hashcat searches without a pause; clpeak launches kernels and waits for each."""
    apps = overhead.load_programs()
    names = {name for _, tenants in MIXES.values() for tenant in tenants
             for name, _ in tenant.programs}
    missing = [package for name in names for package in apps.BY_NAME[name].missing_packages()]
    if missing:
        print(f"\nprograms: left out (not installed: {' '.join(missing)})")
        return []
    figures = {key: Figure(f"programs_{key}_off", f"{label}: furthest off",
                           ("<=", PROGRAM_POINTS), "points", best=AT_LEAST_NONE)
               for key, (label, _) in MIXES.items()}
    windows = {key: [] for key in MIXES}
    with harness.Scratch(apps.cache_dir() / "pocl") as scratch:
        place = Place(scratch)
        warm_up(place, apps, names)

        def take(key):
            window = watch_programs(place, apps, MIXES[key][1], bench.plan.programs_s)
            if window.seconds < bench.plan.programs_s:
                raise harness.Failure(f"{key}: all programs had work for {window.seconds:.0f} s only")
            windows[key].append(window)
            figures[key].add(max(abs(100 * (share - tenant.entitled)) for share, tenant
                                 in zip(window.shares(), window.tenants)),
                             window.disturbance.matters())

        harness.interleave(list(MIXES), bench.plan.programs_repetitions, take)
    print_table("programs: shares of real programs, as divvyd charges them",
                list(figures.values()))
    everything = [window for of_mix in windows.values() for window in of_mix]
    worst = max((window.disturbance for window in everything), key=harness.Disturbance.severity)
    print(f"  {worst}")
    print(f"  charged: device time from grant to release by that of all tenants, over "
          f"{bench.plan.programs_s} s in which all had work; repetitions: "
          f"{bench.plan.programs_repetitions}; runs that ended and were right: "
          f"{sum(window.runs for window in everything)}")
    print_rows([["", "tenant", "should, %", "charged, %", "min-max"]] + [
        [label if number == 0 else "", tenant.name, f"{100 * tenant.entitled:.2f}",
         *median_and_spread([100 * window.shares()[number] for window in windows[key]])]
        for key, (label, tenants) in MIXES.items() for number, tenant in enumerate(tenants)])
    return list(figures.values())
