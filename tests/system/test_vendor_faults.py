"""A driver that fails, crashes, hangs, comes late or loses its device affects only the tenant in
whose worker it runs.

The driver is the scripted vendor (tests/vendor). The tenant is `faults broad`, which goes through much
of OpenCL. Runs without faults tell which functions of the vendor its worker calls, and how often; then
every one of them is made to go wrong in every way, one process for each case. Beside them all the time
`faults steady`, whose worker has a driver without faults, computes and has to go on.

By default one call of each function goes wrong, in the middle. With DIVVY_TEST_LONG=1 every single call
does.
"""

import concurrent.futures
import contextlib
import fcntl
import glob
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import pytest

import divvytest
import leasechannel

LONG = bool(os.environ.get("DIVVY_TEST_LONG"))

AT_ONCE = 4
HANGING_AT_ONCE = 12  # they do nothing

PROGRAM_LIMIT_S = 20
INNOCENT_LIMIT_S = 15
# For tenants that are made to hang, and for the others, which must never need it. The innocent tenant is of the class
# without a deadline.
DEADLINES = "deadlines:\n  batch: 300ms\n  standard: 3s\n"
OVERDUE = "it kept a device for"
OTHERS_WAIT = "the other tenant does not go on"
LATE = "60ms"
# Differs from divvy's own error for a lost worker (-5).
ERROR = -6
LOST = -5

# Behaviour that drivers may have and PoCL does not: see tests/vendor/README.md.
SETTINGS = "flush required\nmaps copied\n"

PATHS = {
    # kernels go in slices, each a call that can fail
    "unified": "    slice-kernels: always\n",
    # less than the tenants use, so that objects leave the device and come back, through pinned memory
    "swapped": "    unified: no\n    capacity: 2MiB\n    pinned: yes\n",
    # a tenant that hangs keeps its memory on the device: there is enough for all
    "roomy": "    unified: no\n",
}

# The worker gets and gives back pinned memory by these; if it gets none it takes other memory.
OF_HOST_MEMORY = {"clEnqueueMapBuffer", "clEnqueueUnmapMemObject"}

# The worker's calls that never reach the vendor: the loader answers by itself.
OF_THE_LOADER = {"clGetPlatformIDs"}

class Case:
    """One run of the tenant with one fault, and what became of it."""

    def __init__(self, kind, function, number, rule):
        self.kind, self.function, self.number = kind, function, number
        self.pattern, self.rule = rule, rule.format(function, number)
        self.start_over()

    def first(self):
        """The same fault in the first call, which is in every run."""
        return Case(self.kind, self.function, 1, self.pattern)

    def start_over(self):
        self.code = None  # no end
        self.out = self.err = self.log = ""
        self.waited = False

    @property
    def took_place(self):
        if self.kind == "lost":
            return re.search(r"^\d+ complete \w+ %d$" % LOST, self.log, re.M) is not None
        return re.search(r"^\d+ scripted-\w+ %s " % self.function, self.log, re.M) is not None

    def story(self, complaint):
        return "--- %s: %s: code %s\n%s%s" % (self.rule, complaint, self.code, self.out, self.err)


class Innocent:
    """The tenant beside the others, and how many rounds it has finished."""

    def __init__(self, daemon, program):
        self.child = daemon.popen([program("faults"), "steady"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env={"DIVVY_CLASS": "latency"})
        self.rounds = 0
        self.longest_s = 0.0
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        last = time.monotonic()
        for line in self.child.stdout:
            now = time.monotonic()
            with self._changed:
                if self.rounds:
                    self.longest_s = max(self.longest_s, now - last)
                self.rounds = int(line.split()[1])
                self._changed.notify_all()
            last = now
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def goes_on(self):
        """True once it has begun and finished a round from now on."""
        with self._changed:
            goal = self.rounds + 2
            self._changed.wait_for(lambda: self.rounds >= goal or self._ended, INNOCENT_LIMIT_S)
            return self.rounds >= goal

    def close(self):
        divvytest.kill_group(self.child)
        self._reader.join()
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def end(self):
        """In good order: its code and its complaints."""
        self.child.stdin.close()
        code = self.child.wait(PROGRAM_LIMIT_S)
        return code, self.child.stderr.read()


class Stage:
    """A daemon on the scripted vendor, and the innocent tenant on it.

    A worker reads its script, and opens its log, when its driver begins. Both names lead through the
    link `current`, so that each worker has its own though the environment is the same for all. In the
    sandbox the directory is read-only; a log that is a pipe can be written all the same.
    """

    def __init__(self, stack, config):
        self._stack = stack
        self.place = tempfile.mkdtemp(prefix="dv-faults-", dir="/tmp")
        stack.callback(shutil.rmtree, self.place, ignore_errors=True)
        os.chmod(self.place, 0o755)
        self._made = 0
        self._lock = threading.Lock()  # of the link
        self._quiet = os.path.join(self.place, "quiet")
        self._write_script(self._quiet, "")
        os.symlink("/dev/null", os.path.join(self._quiet, "log"))
        self._point_to(self._quiet)
        current = os.path.join(self.place, "current")
        config = ('devices:\n  - match: "*"\n    sandbox:\n      paths: [%s]\n%s'
                  "tenants:\n  - per: program\n    may-class: latency\n    memory: 64MiB\n%s"
                  % (self.place, config, DEADLINES))
        self.daemon = stack.enter_context(divvytest.Daemon(config, env={
            "DIVVY_VENDORS": os.path.join(divvytest.build_dir(), "tests", "vendor"),
            "DIVVY_VENDOR_SCRIPT": os.path.join(current, "script"),
            "DIVVY_VENDOR_LOG": os.path.join(current, "log")}))
        # what the daemon needs once there was a session is no leftover
        done = self.daemon.run([self.program("faults"), "broad"], timeout=PROGRAM_LIMIT_S)
        assert done.returncode == 0, done.stderr
        divvytest.wait_for(lambda: self.daemon.sessions() == [], 5, "the first session does not end")
        self.empty = divvytest.Leftovers(self.daemon)

    def add_innocent(self):
        self.innocent = Innocent(self.daemon, self.program)
        self._stack.callback(self.innocent.close)
        assert self.innocent.goes_on(), "the innocent tenant does not run"
        self.before = divvytest.Leftovers(self.daemon)
        self.calls, self.completions, self.order = self.survey()

    @staticmethod
    def program(name):
        return os.path.join(divvytest.build_dir(), "tests", "system", "programs", name)

    # ---- scripts and logs ----

    @staticmethod
    def _write_script(directory, rule):
        os.mkdir(directory)
        os.chmod(directory, 0o755)
        path = os.path.join(directory, "script")
        with open(path, "w") as script:
            script.write(SETTINGS + rule + "\n")
        os.chmod(path, 0o644)

    def _make(self, rule):
        """A directory with a script and a log. Also returns the log's reading end."""
        self._made += 1
        directory = os.path.join(self.place, str(self._made))
        self._write_script(directory, rule)
        log = os.path.join(directory, "log")
        os.mkfifo(log)
        os.chmod(log, 0o666)
        reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)  # more than any run writes
        return directory, reader

    def _point_to(self, directory):
        link = os.path.join(self.place, "next")
        os.symlink(os.path.basename(directory), link)
        os.rename(link, os.path.join(self.place, "current"))

    def _start(self, rule, arguments=(), env=None):
        """Starts a tenant and waits until its worker's driver has read its script."""
        with self._lock:
            directory, log = self._make(rule)
            self._point_to(directory)
            child = self.daemon.popen([self.program("faults"), "broad", *arguments],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, env=env)
            poller = select.poll()
            poller.register(log, select.POLLIN)
            deadline = time.monotonic() + PROGRAM_LIMIT_S
            while not poller.poll(50) and child.poll() is None and time.monotonic() < deadline:
                pass
            self._point_to(self._quiet)
            return child, log

    @staticmethod
    def _read_log(log):
        text = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                more = os.read(log, 1 << 20)
                if not more:
                    break
                text += more
        return text.decode()

    def survey(self):
        """The calls in runs without faults: the maximum number of calls of each function and of commands of each, and
        the functions of one run's commands in the order in which they ended."""
        calls, completions, order = {}, {}, []
        for _ in range(3):  # the calls depend a little on which thread is faster
            case = self.run(Case("none", "", 0, ""))
            assert case.code == 0 and case.out == "printf_number 42\n", case.story("without a fault")
            lines = [line.split() for line in case.log.splitlines()]
            assert not [line for line in lines if line[1] == "complete" and line[3] != "0"]
            order = [function for _, what, function, _ in lines if what == "complete"]
            for counts, what in ((calls, "call"), (completions, "complete")):
                names = [function for _, said, function, _ in lines if said == what]
                for function in names:
                    counts[function] = max(counts.get(function, 0), names.count(function))
        return calls, completions, order

    # ---- running a case ----

    def _hear(self, child, case):
        """The program's words until it ends or the time is over."""
        try:
            case.out, case.err = child.communicate(timeout=PROGRAM_LIMIT_S)
            case.code = child.returncode
        except subprocess.TimeoutExpired:
            stacks = self._stacks(child)
            divvytest.kill_group(child)
            case.out, case.err = child.communicate()
            case.err += stacks

    def _stacks(self, child):
        """Of a program that does not end, and of its worker."""
        pids = [session["worker_pid"] for session in self.daemon.sessions()
                if session["tenant_pid"] == child.pid]
        return "".join(divvytest.stack_traces(pid) for pid in [child.pid, *pids])

    def run(self, case):
        child, log = self._start(case.rule)
        self._hear(child, case)
        case.log = self._read_log(log)
        os.close(log)
        return case

    def run_again(self, case):
        """A run at whose end the program makes a new context, for which it gets a worker without
        faults."""
        child, log = self._start(case.rule, ["again"])
        first, deadline = b"", time.monotonic() + PROGRAM_LIMIT_S
        while not first.endswith(b"again\n") and select.select(
                [child.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
            more = os.read(child.stdout.fileno(), 4096)
            if not more:
                break
            first += more
        if first.endswith(b"again\n"):
            with self._lock:  # no faults are current meanwhile
                with contextlib.suppress(BrokenPipeError):  # its code will tell
                    child.stdin.write("go\n")
                    child.stdin.flush()
                self._hear(child, case)
        else:
            self._hear(child, case)
        case.out = first.decode() + case.out
        case.log = self._read_log(log)
        os.close(log)
        return case

    def run_hanging(self, case):
        """Until it ends, or until it waits while the other tenant goes on, which cannot go on without the device."""
        child, log = self._start(case.rule, env={"DIVVY_CLASS": "batch"})
        deadline = time.monotonic() + PROGRAM_LIMIT_S
        while child.poll() is None and not case.took_place and time.monotonic() < deadline:
            time.sleep(0.02)
            case.log += self._read_log(log)
        if child.poll() is None and not case.took_place:
            case.err = "neither the call nor an end\n" + self._stacks(child)
        if child.poll() is None and not self.innocent.goes_on():
            case.err += OTHERS_WAIT + "\n"
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.2)
        case.waited = child.poll() is None
        if case.waited:
            divvytest.kill_group(child)
        case.out, words = child.communicate()
        case.code = child.returncode
        case.err += words
        case.log += self._read_log(log)
        os.close(log)
        if case.code and not case.took_place:   # its callback may have had no time to say why
            deadline = time.monotonic() + 2
            while OVERDUE not in case.err and time.monotonic() < deadline:
                time.sleep(0.02)
                case.err += "".join(line for line in self.daemon.log.splitlines()
                                    if "(process %d): worker" % child.pid in line and OVERDUE in line)
        return case

    def run_all(self, cases, run, judge, at_once=AT_ONCE):
        """Runs cases side by side. Fails with the stories of all that the judge finds wrong."""
        missed = []

        def one(case):
            for _ in range(5 if case.number == 1 else 2):
                case.start_over()
                run(case)
                if case.took_place:
                    wrong = judge(case)
                    return wrong and case.story(wrong)
                # a deadline this short can come too early on a busy machine
                if case.code != 0 and not (case.kind == "hang" and OVERDUE in case.err):
                    return case.story("it did not take place, and went wrong all the same")
            if case.number == 1:
                return case.story("it did not take place")
            # not every later call comes in every run
            missed.append(case.rule)
            return None if LONG else one(case.first())

        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            complaints = [words for words in pool.map(one, cases) if words]
        if not self.innocent.goes_on():
            complaints.append(OTHERS_WAIT)
        complaints += self.left_over()
        assert cases and not complaints, "%d complaints about %d cases:\n%s" % (
            len(complaints), len(cases), "\n".join(complaints))
        assert len(missed) <= len(cases) / 5, "did not take place: %s" % missed
        print("%d cases; the other tenant: %d rounds, the longest %.2f s" % (
            len(cases), self.innocent.rounds, self.innocent.longest_s))

    def left_over(self):
        """Complaints about what is there besides the innocent tenant."""
        try:
            self.before.assert_gone()
            pids = [session["tenant_pid"] for session in self.daemon.sessions()]
            assert pids == [self.innocent.child.pid], "sessions of %s" % pids
            self.daemon.cli("check")
        except AssertionError as reason:
            return [str(reason)]
        return []


@pytest.fixture(scope="module")
def stages():
    """The stage of a path, made when first asked for."""
    made = {}
    with contextlib.ExitStack() as stack:
        def get(path):
            if path not in made:
                made[path] = Stage(stack, PATHS[path])
                made[path].add_innocent()
            return made[path]
        yield get


def cases_of(kind, counts, *rules):
    """Of each function the calls that are to go wrong, with the rules by turns."""
    cases = []
    for function, count in sorted(counts.items()):
        some = {1, (count + 1) // 2} if len(rules) > 1 else {(count + 1) // 2}
        numbers = range(1, count + 1) if LONG else sorted(some)
        for at, number in enumerate(numbers):
            cases.append(Case(kind, function, number, rules[at % len(rules)]))
    return cases


every_path = pytest.mark.parametrize("path", ["unified", "swapped"])
hanging_path = pytest.mark.parametrize("path", ["unified", "roomy"])


# ---- looking for devices ----

def test_a_driver_that_ends_the_process_politely():
    """It is not waited for: programs hear that there is no device."""
    with divvytest.Daemon(env={
            "DIVVY_VENDORS": os.path.join(divvytest.build_dir(), "tests", "vendor"),
            "DIVVY_VENDOR_SCRIPT": "clGetDeviceIDs * exit 0"}) as daemon:
        done = daemon.run([Stage.program("faults"), "broad"], timeout=PROGRAM_LIMIT_S)
        assert done.returncode == 3 and "in start: " in done.stderr, (done.returncode, done.stderr)
        daemon.await_log("ended the process (code 0) while listing its devices")


def test_the_last_words_of_a_driver_are_kept():
    """Where a person looks for the reason of an end."""
    script = "clBuildProgram 1 say ECC-error; clBuildProgram 1 say giving-up; clBuildProgram 1 abort"
    with divvytest.Daemon(env={
            "DIVVY_VENDORS": os.path.join(divvytest.build_dir(), "tests", "vendor"),
            "DIVVY_VENDOR_SCRIPT": script}) as daemon:
        done = daemon.run([Stage.program("faults"), "broad"], timeout=PROGRAM_LIMIT_S)
        assert done.returncode == 3, (done.returncode, done.stderr)

        def crashed():
            ended = json.loads(daemon.cli("ps", "--ended", "--json"))["ended"]
            return next((end for end in ended if end["state"] == "crashed"), None)
        end = divvytest.wait_for(crashed, 15, lambda: daemon.cli("ps", "--ended", "--json"))
        assert end["why"] == ("its worker was ended by signal 6 (SIGABRT) before its program ended; "
                              'the worker\'s last words: "giving-up"')
        assert end["why"] in " ".join(daemon.cli("explain", str(end["id"])).split())
        daemon.await_log("session %d: | ECC-error\n" % end["id"])


@pytest.fixture
def script():
    """A script that workers can read."""
    with tempfile.TemporaryDirectory(prefix="dv-faults-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        path = pathlib.Path(place) / "script"
        path.write_text("")
        yield path


def test_who_runs_goes_on_when_no_device_is_found_any_more(script):
    """The driver lists nothing at the moment. Running programs keep the devices that it listed before, even under a
    restarted divvyd, which looks again for new programs."""
    text = 'devices:\n  - match: "*"\n    unified: no\n    sandbox:\n      paths: [%s]\n' % script.parent
    with divvytest.Daemon(text, env={
            "DIVVY_VENDORS": os.path.join(divvytest.build_dir(), "tests", "vendor"),
            "DIVVY_VENDOR_SCRIPT": str(script)}) as daemon:
        with contextlib.closing(Innocent(daemon, Stage.program)) as program, \
                contextlib.closing(leasechannel.Session(daemon)) as session:
            assert program.goes_on()
            script.write_text("clGetDeviceIDs * return -1\n")
            os.kill(daemon.pid, signal.SIGHUP)
            daemon.await_log("no device: ", PROGRAM_LIMIT_S)
            session.say(leasechannel.WANT)
            session.granted()
            session.say_of_memory(leasechannel.PLACE, 1 << 20)
            assert session.hear_of_memory()[0] == leasechannel.PLACED
            session.close()
            worker = daemon.session_of(program.child.pid)["worker_pid"]
            daemon.kill()
            daemon.start()
            divvytest.wait_for(lambda: daemon.sessions(), PROGRAM_LIMIT_S, "the session is given up")
            assert daemon.session_of(program.child.pid)["worker_pid"] == worker
            assert program.goes_on()
            script.write_text("")
            done = daemon.run([Stage.program("faults"), "broad"], timeout=2 * PROGRAM_LIMIT_S)
            assert done.returncode == 0, done.stderr


# ---- what must hold ----

def ends_well(case):
    """With an error or with right results, in time and by itself."""
    if case.code is None or OVERDUE in case.err:
        return "no end"
    if case.code < 0:
        return "the program crashed"
    return None if case.code in (0, 3) else "neither right nor an error"


def ends_with_error(case):
    return ends_well(case) or (None if case.code == 3 else "nobody told the program")


def ends_right(case):
    return ends_well(case) or (None if case.code == 0 else "not right")


def may_begin_anew(case):
    """Unless it never began: the loader looks for platforms only once in a process."""
    anew = case.code == 0 or "anew right" in case.out or "in start: clGetPlatformIDs" in case.err
    return ends_well(case) or (None if anew else "no new context")


def hurts_nobody(case):
    if OTHERS_WAIT in case.err:
        return "others suffer"
    return None if case.waited or case.code in (0, 3) else "neither right nor an error"


# ---- the tests ----

def test_every_call_of_the_worker_is_tried(stages):
    """So that this file stays complete when the worker learns a new call."""
    files = glob.glob(os.path.join(divvytest.REPOSITORY, "src", "worker", "opencl", "*.c"))
    files.append(os.path.join(divvytest.build_dir(), "api", "opencl", "opencl_worker.c"))
    called = set()
    for name in files:
        with open(name) as source:
            called |= set(re.findall(r"\b(cl[A-Z]\w+)\(", source.read()))
    tried = {function for path in PATHS for function in stages(path).calls}
    assert len(called) > 50 and called - tried == OF_THE_LOADER


@every_path
def test_a_call_that_fails(stages, path):
    stage = stages(path)
    cases = cases_of("error", stage.calls, "{} {} return %d" % ERROR)
    stage.run_all(cases, stage.run, ends_well)


def test_no_copy_that_fails_is_taken_for_done(stages):
    """Each of the copies by which objects are evicted and brought back."""
    stage = stages("swapped")
    cases = [Case("error", function, number, "{} {} return %d" % ERROR)
             for function in ("clEnqueueReadBuffer", "clEnqueueWriteBuffer")
             for number in range(1, stage.calls[function] + 1)]
    stage.run_all(cases, stage.run, ends_well)


@every_path
def test_a_call_that_crashes(stages, path):
    """The program hears of it, and may begin anew."""
    stage = stages(path)
    cases = cases_of("crash", stage.calls, "{} {} crash", "{} {} abort", "{} {} exit 0")
    stage.run_all(cases, stage.run_again, may_begin_anew)


@hanging_path
def test_a_call_that_hangs(stages, path):
    """A session that keeps the device is ended; one that does not may wait, until it is killed."""
    stage = stages(path)
    cases = cases_of("hang", stage.calls, "{} {} hang")
    stage.run_all(cases, stage.run_hanging, hurts_nobody, HANGING_AT_ONCE)


@every_path
def test_a_command_that_is_late(stages, path):
    stage = stages(path)
    cases = cases_of("late", stage.completions, "complete {} {} delay %s" % LATE)
    stage.run_all(cases, stage.run, ends_right)


@every_path
def test_a_command_that_fails(stages, path):
    stage = stages(path)
    cases = cases_of("failed", stage.completions, "complete {} {} status %d" % ERROR)
    stage.run_all(cases, stage.run, lambda case: (
        ends_well(case) if case.function in OF_HOST_MEMORY else ends_with_error(case)))


@every_path
def test_a_command_that_crashes(stages, path):
    stage = stages(path)
    cases = cases_of("crash", stage.completions, "complete {} {} crash", "complete {} {} abort")
    stage.run_all(cases, stage.run_again, may_begin_anew)


@hanging_path
def test_a_command_that_never_ends(stages, path):
    stage = stages(path)
    cases = cases_of("hang", stage.completions, "complete {} {} hang")
    stage.run_all(cases, stage.run_hanging, hurts_nobody, HANGING_AT_ONCE)


@every_path
def test_a_lost_device(stages, path):
    """From some command on everything fails; from the first of each function on, or from any."""
    stage = stages(path)
    last = max(at for at, function in enumerate(stage.order) if function not in OF_HOST_MEMORY)
    moments = range(last + 1) if LONG else sorted(
        {stage.order.index(function) for function in set(stage.order[:last + 1])})
    cases = [Case("lost", "", 1, "device lost after %d" % moment) for moment in moments]
    stage.run_all(cases, stage.run, ends_with_error)


def test_the_status_of_a_command_without_a_callback(stages):
    done = run_single(stages("unified"), "clSetEventCallback * return %d" % ERROR,
                      "complete clEnqueueNDRangeKernel 1 status %d" % ERROR)
    assert "event %d\n" % ERROR in done.stdout


@pytest.mark.parametrize("rule", ["clReleaseKernel 1 return %d" % ERROR,
                                  "clSetMemObjectDestructorCallback 1 return %d" % ERROR,
                                  "clReleaseMemObject 1 crash"])
def test_released_memory_is_told_of(stages, rule):
    """The destructor's callback comes, and the tenant's quota gets its bytes back."""
    done = run_single(stages("unified"), rule)
    assert "event 0\n" in done.stdout and "memory gone\n" in done.stdout, done.stdout + done.stderr


def run_single(stage, *rules):
    done = stage.daemon.run([stage.program("faults"), "single", *rules], timeout=PROGRAM_LIMIT_S)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert stage.left_over() == []
    return done


def test_contexts_are_released_while_they_are_told_of_an_end(stages):
    stage = stages("unified")
    for _ in range(3):
        done = stage.daemon.run([stage.program("faults"), "parting"], timeout=60)
        assert done.returncode == 0, "code %d\n%s" % (done.returncode, done.stderr[-2000:])


def test_memory_of_a_tenant_that_hangs():
    """It does not hold the device, but its memory there is in the way of others."""
    with contextlib.ExitStack() as stack:
        # room for two of a program's large objects and a half: the first takes two
        stage = Stage(stack, "    unified: no\n    capacity: 640KiB\n")
        child = stage.daemon.popen([stage.program("faults"), "hoard"], stdout=subprocess.PIPE)
        stack.callback(child.stdout.close)
        stack.callback(divvytest.kill_group, child)
        assert child.stdout.readline() == "hoarding\n"
        done = stage.daemon.run([stage.program("faults"), "broad"], timeout=60)
        assert done.returncode == 0, done.stderr
        stage.daemon.await_log("it kept memory of a device for 3.0 s")
        divvytest.kill_group(child)
        stage.empty.assert_gone()


@pytest.mark.parametrize("path", list(PATHS))
def test_afterwards_nothing_is_left(stages, path):
    """Runs last: all of the above happened on one daemon, beside one tenant that goes on."""
    stage = stages(path)
    code, words = stage.innocent.end()
    assert code == 0, words
    stage.empty.assert_gone()
    assert stage.daemon.sessions() == []
    stage.daemon.cli("check")
