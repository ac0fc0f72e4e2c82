"""Trials of bench/run share: tenants at work on one device, and the kernels that ran."""
import array
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import harness
from harness import vendorchoice

HOST_CORE = 1   # PoCL's one thread pins itself to core 0
FIRST_UID = 20001   # tenants are users; numbers need no entry in /etc/passwd
NS_PER_MS, NS_PER_S = 1_000_000, 1_000_000_000
BIN_NS = 100 * NS_PER_MS   # windows slide by so much
SETTLE_S = 1.0   # tenants begin together and nothing is known of them: not counted


# ---- tenants and what they do ----

class Work:
    """What one process of a tenant does, see bench-share.c."""

    def __init__(self, kernel_ms, from_s=0.0, until_s=None, vary=0, burst=0, pause_ms=0.0,
                 jitter=0, rate=0.0, steady_s=None, groups=1, depth=None):
        self.kernel_ms = kernel_ms
        self.from_s = from_s
        self.until_s = until_s   # None: to the end of the trial
        self.vary = vary
        self.burst = burst
        self.pause_ms = pause_ms
        self.jitter = jitter
        self.rate = rate
        self.steady_s = steady_s   # from then on no pauses
        self.groups = groups
        self.depth = depth   # None: a queue of some 40 ms

    def command(self, round_ns, seconds, seed, log):
        # A queue of some 40 ms: no session releases the device because its own host was late.
        depth = self.depth or max(8, min(256, round(40 / self.kernel_ms)))
        until = seconds if self.until_s is None else self.until_s
        command = [harness.bench_program("bench-share"), "tenant",
                   "--rounds", str(round(self.kernel_ms * NS_PER_MS / round_ns)),
                   "--groups", str(self.groups), "--depth", str(depth), "--from", str(round(self.from_s * 1000)),
                   "--until", str(round(until * 1000)), "--seed", str(seed), "--log", log]
        if self.vary:
            command += ["--vary", str(self.vary)]
        if self.burst:
            command += ["--burst", str(self.burst), "--pause", str(round(self.pause_ms * 1000)),
                        "--jitter", str(self.jitter)]
        if self.steady_s is not None:
            command += ["--steady", str(round(self.steady_s * 1000))]
        if self.rate:
            command += ["--rate", str(self.rate)]
        return command


class Tenant:
    """A user with its share (request, limit, weight, class as in divvy.yaml) and its processes."""

    def __init__(self, name, entitled, works, **share):
        self.name = name
        self.entitled = entitled   # a part of 1, or None where nothing is promised
        self.works = works if isinstance(works, list) else [works]
        self.share = share

    def rule(self, uid):
        words = [f'user: "{uid}"', f'name: "{self.name}"']
        words += [f"{key}: {value}" for key, value in self.share.items()]
        return "  - {" + ", ".join(words) + "}\n"

    def run_options(self):
        """The same share as options of divvy run, where each program is a tenant."""
        return [word for key, value in self.share.items() for word in (f"--{key}", str(value))]


class Log:
    """The kernels of one tenant: when each was asked for, began, ended, and was seen to be over."""

    def __init__(self, paths, kernel_ns=None):
        self.kernels = []
        for path in paths:
            numbers = array.array("Q")
            numbers.frombytes(pathlib.Path(path).read_bytes())
            self.kernels += zip(numbers[0::4], numbers[1::4], numbers[2::4], numbers[3::4])
        self.kernel_ns = kernel_ns   # given: what a kernel counts, however long it took

    def bins(self, start_ns, count, width_ns=BIN_NS):
        """Device time in each of `count` bins from start_ns."""
        bins = [0.0] * count
        end_ns = start_ns + count * width_ns
        for _, begun, ended, _ in self.kernels:
            if ended <= start_ns or begun >= end_ns:
                continue
            scale = self.kernel_ns / (ended - begun) if self.kernel_ns else 1.0
            first = max(0, (begun - start_ns) // width_ns)
            last = min(count - 1, (ended - 1 - start_ns) // width_ns)
            for index in range(first, last + 1):
                low = start_ns + index * width_ns
                bins[index] += (min(ended, low + width_ns) - max(begun, low)) * scale
        return bins

    def median_ns(self):
        return int(statistics.median(ended - begun for _, begun, ended, _ in self.kernels))


# ---- where trials run ----

class Place:
    """Device and hosts on cores of their own, a warm kernel cache, how long a round takes. Tenants are users, if
    has_users, and else programs of this user."""

    def __init__(self, scratch, has_users=True):
        if has_users and os.geteuid() != 0:
            sys.exit("bench: the tenants are users of their own, so this must be run by root")
        self.has_users = has_users
        if os.cpu_count() < 2:
            sys.exit("bench: two cores are needed to keep device and hosts apart")
        self.scratch = scratch
        # Tenants and their workers are other users than the one who made these.
        os.chmod(scratch.dir, 0o755)
        os.chmod(scratch.cache, 0o777)
        self.vendor = harness.vendor_environment(
            scratch.cache, {"POCL_AFFINITY": "1", "POCL_MAX_PTHREAD_COUNT": "1"})
        self.round_ns = self.calibrate()

    def start(self, command, **kwargs):
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {HOST_CORE})
        try:
            return subprocess.Popen(command, **kwargs)
        finally:
            os.sched_setaffinity(0, before)

    def calibrate(self):
        """The fastest of several, since whatever else runs on the core only slows it down."""
        times = []
        for _ in range(3):
            process = self.start([harness.bench_program("bench-share"), "calibrate"],
                                 env=self.vendor, stdout=subprocess.PIPE)
            text, _ = process.communicate(timeout=60)
            times.append(json.loads(text)["round_ns"])
        return min(times)


class Side:
    """One of elastic, fifo, none (policies of divvyd) or bare, for one set of tenants."""

    def __init__(self, place, name, tenants, device=""):
        """device: more keys of the device's rule, in YAML's flow style."""
        self.place = place
        self.name = name
        self.device = device
        self.tenants = tenants
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=place.scratch.dir))
        os.chmod(self.dir, 0o777)
        self.process = None
        if name != "bare":
            self.start_daemon()

    def start_daemon(self):
        config = f'devices:\n  - {{match: "*", policy: {self.name}{", " + self.device if self.device else ""}}}\n'
        if self.place.has_users:
            config += "tenants:\n" + "".join(tenant.rule(FIRST_UID + i) for i, tenant in enumerate(self.tenants))
        (self.dir / "divvy.yaml").write_text(vendorchoice.config(config))
        self.log = open(self.dir / "log", "a")
        self.launch()

    def launch(self):
        self.process = self.place.start(
            [str(harness.build_dir() / "src" / "arbiter" / "divvyd"), "--dir",
             str(self.dir / "run"), "--config", str(self.dir / "divvy.yaml"),
             *([] if self.place.has_users else ["--user"])],
            env=self.place.vendor, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 15
        while not (self.dir / "run" / "session.sock").exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"bench: divvyd did not get ready:\n{(self.dir / 'log').read_text()}")
            time.sleep(0.02)

    def restart(self, signal_number):
        """The daemon ends by this signal, and the next one goes on with the sessions."""
        self.process.send_signal(signal_number)
        self.process.wait(20)
        self.launch()

    def environment(self):
        if self.name == "bare":
            return self.place.vendor
        return dict({k: v for k, v in self.place.vendor.items() if not k.startswith("POCL_")},
                    DIVVY_DIR=str(self.dir / "run"))

    def run_command(self, tenant_index):
        """How a program of this tenant is started."""
        uid = FIRST_UID + tenant_index
        if not self.place.has_users:
            return [harness.divvy_command(), "run", *self.tenants[tenant_index].run_options(), "--"]
        return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", harness.divvy_command(), "run", "--"]

    def divvy(self, *arguments, timeout_s=20):
        """The command-line tool, as the operator; returns when the command has returned."""
        done = subprocess.run([harness.divvy_command(), *arguments], env=self.environment(),
                              capture_output=True, text=True, timeout=timeout_s)
        if done.returncode:
            raise harness.Failure(f"divvy {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def stop(self):
        if not self.process:
            return
        harness.end_process(self.process)
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Process:
    """A running bench-share."""

    def __init__(self, side, tenant_index, work, seconds, seed):
        self.side = side
        self.log = str(side.dir / f"kernels-{tenant_index}-{seed}")
        command = []
        if side.name != "bare":   # bare knows no tenants, and its kernel cache is the caller's
            command = side.run_command(tenant_index)
        command += work.command(side.place.round_ns, seconds, seed, self.log)
        self.errors = tempfile.TemporaryFile()
        self.process = side.place.start(command, env=side.environment(), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            text = self.errors.read().decode(errors="replace").strip()
            raise harness.Failure(f"a tenant ended with {self.process.returncode}: {text}\n"
                                  f"{harness.last_words(self.side)}")
        return json.loads(line)

    def begin(self, start_ns):
        self.process.stdin.write(b"%d\n" % start_ns)
        self.process.stdin.flush()

    def finish(self):
        answer = self.answer()
        if answer["wrong"]:
            raise harness.Failure(f"{answer['wrong']} of {answer['kernels']} results are wrong")
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            raise harness.Failure("a tenant has its results, but does not end\n"
                                  f"{harness.last_words(self.side)}") from None
        if code:
            raise harness.Failure(f"a tenant has its results, and ended with {code}\n"
                                  f"{harness.last_words(self.side)}")
        return answer["kernels"]

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(OSError):
                pipe.close()


class Trial:
    """All tenants of a side at work for some seconds, and their kernels."""

    def __init__(self, side, seconds, present=None, during=None):
        """present: how many of the tenants take part (None: all). during(trial) runs meanwhile; it
        may sleep and change things."""
        self.side = side
        self.seconds = seconds
        self.tenants = side.tenants[:present]
        watch = harness.Watch()
        processes = []
        try:
            # The first process of each tenant fills the tenant's kernel cache alone: the others do not compile
            # the same kernel into an empty cache at once.
            for is_first in True, False:
                begun = len(processes)
                for index, work in self.works(is_first):
                    processes.append((index, Process(side, index, work, seconds, len(processes) + 1)))
                for _, process in processes[begun:]:
                    process.answer()
            self.start_ns = time.monotonic_ns() + 300 * NS_PER_MS
            for _, process in processes:
                process.begin(self.start_ns)
            if during:
                during(self)
            self.kernel_count = sum(process.finish() for _, process in processes)
            self.disturbance = watch.disturbance()
            self.logs = []
            for index, tenant in enumerate(self.tenants):
                nominal = tenant.works[0].kernel_ms * NS_PER_MS if side.name == "bare" else None
                self.logs.append(Log([p.log for i, p in processes if i == index], nominal))
        finally:
            for _, process in processes:
                process.stop()

    def works(self, is_first):
        """The first work of each tenant, or all others, each with the tenant's index."""
        return [(index, work) for index, tenant in enumerate(self.tenants)
                for work in (tenant.works[:1] if is_first else tenant.works[1:])]

    def stretch(self):
        """How much longer than calibrated the kernels of the tenant that suffered most took, by their
        median: what others took of the device's core. About 1 on a quiet machine. One long stall
        does not change it."""
        stretches = [log.median_ns() / (tenant.works[0].kernel_ms * NS_PER_MS)
                     for tenant, log in zip(self.tenants, self.logs) if log.kernels]
        return max(stretches, default=1.0)

    def clipped(self, from_s, until_s):
        """(begun, ended, how long it took, tenant) of the kernels that ran between these times."""
        begin, end = (self.start_ns + int(s * NS_PER_S) for s in (from_s, until_s))
        return sorted((max(begun, begin), min(ended, end), ended - begun, index)
                      for index, log in enumerate(self.logs)
                      for _, begun, ended, _ in log.kernels if ended > begin and begun < end)

    def busy(self, from_s=SETTLE_S, until_s=None):
        """Percent of the time in which the device worked: the smaller of the time in which a kernel ran
        (two at once count once) and of kernels times the median time of their tenant's. A kernel that
        others kept from its core makes the first longer, and the device did nothing meanwhile."""
        until_s = self.seconds if until_s is None else until_s
        medians = [log.median_ns() if log.kernels else 0 for log in self.logs]
        covered = work = last_end = 0
        for begun, ended, took, index in self.clipped(from_s, until_s):
            covered += max(0, ended - max(begun, last_end))
            last_end = max(last_end, ended)
            work += (ended - begun) / took * medians[index] if took else 0
        return 100 * min(covered, work) / ((until_s - from_s) * NS_PER_S)

    def idle_gaps(self, from_s=SETTLE_S):
        """Between two kernels, of one tenant and of two: percent of the time, and the median in us."""
        kernels = self.clipped(from_s, self.seconds)
        for change in (False, True):
            gaps = [max(0, after[0] - before[1]) for before, after in zip(kernels, kernels[1:])
                    if (before[3] != after[3]) == change]
            yield (100 * sum(gaps) / ((self.seconds - from_s) * NS_PER_S),
                   statistics.median(gaps or [0]) / 1000)

    def at_once(self, from_s=SETTLE_S):
        """Percent of the time in which the kernels of two tenants ran: none on a device with one slot."""
        kernels = self.clipped(from_s, self.seconds)
        total = sum(ended - begun for begun, ended, _, _ in kernels)
        covered = last_end = 0
        for begun, ended, _, _ in kernels:
            covered += max(0, ended - max(begun, last_end))
            last_end = max(last_end, ended)
        return 100 * (total - covered) / ((self.seconds - from_s) * NS_PER_S)

    def held(self, from_s=SETTLE_S):
        """Device time by tenant with the gaps between two kernels of the same tenant counted as
        its own: divvyd charges a lease from grant to release."""
        begin, end = (self.start_ns + int(s * NS_PER_S) for s in (from_s, self.seconds))
        kernels = sorted((begun, ended, index) for index, log in enumerate(self.logs)
                         for _, begun, ended, _ in log.kernels if begin <= begun < end)
        times = [0] * len(self.logs)
        for kernel, following in zip(kernels, kernels[1:]):
            own_next = following[2] == kernel[2]
            times[kernel[2]] += (following[0] if own_next else kernel[1]) - kernel[0]
        return times

    def sleep_until(self, seconds):
        time.sleep(max(0.0, (self.start_ns - time.monotonic_ns()) / NS_PER_S + seconds))

    def bins(self, from_s=SETTLE_S, until_s=None, width_ns=BIN_NS):
        """Device time by tenant and bin."""
        until = self.seconds if until_s is None else until_s
        count = int(round((until - from_s) * NS_PER_S)) // width_ns
        start = self.start_ns + int(from_s * NS_PER_S)
        return [log.bins(start, count, width_ns) for log in self.logs]

    def now_s(self):
        return (time.monotonic_ns() - self.start_ns) / NS_PER_S

    def kernels_in(self, from_s, until_s):
        """How many kernels of all tenants ended in that time."""
        begin, end = (self.start_ns + int(s * NS_PER_S) for s in (from_s, until_s))
        return sum(begin <= kernel[2] < end for log in self.logs for kernel in log.kernels)

    def bursts_ms(self, tenant, from_s=SETTLE_S):
        """From each wake-up of a tenant that sends bursts to the moment it saw the last kernel end."""
        begin = self.start_ns + int(from_s * NS_PER_S)
        count = self.tenants[tenant].works[0].burst
        kernels = self.logs[tenant].kernels
        return [(kernels[first + count - 1][3] - kernels[first][0]) / NS_PER_MS
                for first in range(0, len(kernels) - count + 1, count)
                if kernels[first][0] >= begin]

    def responses_ms(self, tenant, from_s=SETTLE_S):
        """From arrival to the moment the application saw the end."""
        begin = self.start_ns + int(from_s * NS_PER_S)
        return [(seen - asked) / NS_PER_MS for asked, _, _, seen in self.logs[tenant].kernels
                if asked >= begin]

    def holds_ns(self, from_s=0.5):
        """How long each tenant had the device before another's kernel ran."""
        begin = self.start_ns + int(from_s * NS_PER_S)
        kernels = sorted((begun, ended, index) for index, log in enumerate(self.logs)
                         for _, begun, ended, _ in log.kernels if begun >= begin)
        holds = []
        for begun, ended, index in kernels:
            if holds and holds[-1][2] == index:
                holds[-1][1] = ended
            else:
                holds.append([begun, ended, index])
        return [ended - begun for begun, ended, _ in holds] or [0]

    def gaps_ns(self, moments_s, around_s):
        """The longest time between two kernels of a tenant: away from the given moments, and in
        the given time after one of them; of the tenant for which these differ most."""
        moments = [self.start_ns + int(s * NS_PER_S) for s in moments_s]
        until = int(around_s * NS_PER_S)
        end = self.start_ns + int(self.seconds * NS_PER_S)
        pairs = []
        for log in self.logs:
            ends = sorted(kernel[2] for kernel in log.kernels
                          if self.start_ns + NS_PER_S // 2 <= kernel[2] < end)
            longest = [0, 0]
            for before, after in zip(ends, ends[1:]):
                changed = any(before <= m + until and after >= m for m in moments)
                longest[changed] = max(longest[changed], after - before)
            pairs.append(longest)
        return max(pairs, key=lambda pair: pair[1] - pair[0])
