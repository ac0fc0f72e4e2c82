"""Helpers for whole-system tests: a private divvyd in a temporary directory, running programs
through it or on the vendor's OpenCL directly, and finding out whether anything was left behind.

Nothing here knows how divvy works inside; it uses the command line, /proc and the file system.
"""

import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

import vendorchoice

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# The two ways data can travel. "unified" is what PoCL gets by default; "discrete" forces the
# copies through the arena that a card with its own memory needs.
DATA_PATHS = {
    "unified": None,
    "discrete": 'devices:\n  - match: "*"\n    unified: no\n',
}

def swapped(capacity):
    """The second path on a device that has less memory than it says, so that programs must swap."""
    return (DATA_PATHS["discrete"] + "    capacity: %s\n" % capacity +
            "tenants:\n  - per: program\n    memory: 4GiB\n")


def cut_kernels(config):
    mode = os.environ.get("DIVVY_TEST_SLICE_KERNELS")
    if not mode or "slice-kernels" in (config or ""):
        return config
    if "\ndevices:" not in "\n" + (config or ""):
        config = (config or "") + 'devices:\n  - match: "*"\n'
    return re.sub(r"^( *)- match: .*$", r"\g<0>\n\1  slice-kernels: " + mode, config, flags=re.M)


# Set for divvyd and inherited by everything it starts, so that processes can be found again even
# when they have been reparented.
MARK = "DIVVY_TEST_MARK"

START_TIMEOUT_S = 20
STOP_TIMEOUT_S = 10
RUN_TIMEOUT_S = 180


def build_dir():
    """The build tree under test: $DIVVY_BUILD, or build/ at the root of the repository."""
    return os.path.abspath(os.environ.get("DIVVY_BUILD") or os.path.join(REPOSITORY, "build"))


def binary(name):
    """Path of one of divvy's own programs or libraries in the build tree."""
    places = {
        "divvyd": "src/arbiter/divvyd",
        "divvy": "src/cli/divvy",
        "divvy-sim": "src/sim/divvy-sim",
        "divvy-worker": "src/worker/divvy-worker",
        "libdivvy-opencl.so": "src/client/opencl/libdivvy-opencl.so",
    }
    return os.path.join(build_dir(), places[name])


def divvy_built():
    return all(os.path.exists(binary(name)) for name in ("divvyd", "divvy", "divvy-worker"))


def cache_dir():
    """Where PoCL keeps compiled kernels: one place for all runs, so that only the first is slow."""
    path = os.environ.get("DIVVY_TEST_POCL_CACHE") or os.path.join(
        tempfile.gettempdir(), "divvy-test-pocl-cache-%d" % os.getuid())
    os.makedirs(path, exist_ok=True)
    return path


def bare_env():
    """Environment for a program that runs on the vendor's OpenCL directly.

    The POCL_ variables are pinned because PoCL otherwise derives what it reports from the state
    of the machine; Daemon uses the same ones, so that both runs can be compared.
    """
    env = {key: value for key, value in os.environ.items()
           if not key.startswith(("DIVVY_", "OCL_ICD_", "OPENCL_"))}
    env.setdefault("POCL_MEMORY_LIMIT", "4")
    env.setdefault("POCL_CACHE_DIR", cache_dir())
    if vendorchoice.directory():
        env.update(vendorchoice.environment())
        return env
    # Only the vendor's own platform: a divvy installed on this machine must not take its place.
    vendor = "/etc/OpenCL/vendors/pocl.icd"
    if os.path.exists(vendor):
        with open(vendor) as icd:
            env["OCL_ICD_VENDORS"] = icd.read().strip()
    return env


def run_bare(cmd, timeout=RUN_TIMEOUT_S, env=None, **kwargs):
    """Runs cmd on the vendor's OpenCL. Returns a CompletedProcess with text output captured."""
    full_env = bare_env()
    full_env.update(env or {})
    return _run(cmd, timeout, full_env, **kwargs)


def _run(cmd, timeout, env, **kwargs):
    if "stdout" not in kwargs and "stderr" not in kwargs and "capture_output" not in kwargs:
        kwargs["capture_output"] = True
    if kwargs.pop("capture_output", False):
        kwargs["stdout"] = kwargs["stderr"] = subprocess.PIPE
    kwargs.setdefault("text", True)
    kwargs.setdefault("start_new_session", True)
    data = kwargs.pop("input", None)
    if data is not None:
        kwargs["stdin"] = subprocess.PIPE
    else:
        kwargs.setdefault("stdin", subprocess.DEVNULL)
    child = subprocess.Popen(cmd, env=env, **kwargs)
    try:
        out, err = child.communicate(data, timeout=timeout)
    except BaseException as reason:
        stacks = stack_traces(child.pid) if isinstance(reason, subprocess.TimeoutExpired) else ""
        kill_group(child)
        if isinstance(reason, subprocess.TimeoutExpired):
            out, err = child.communicate()
            raise AssertionError("no end after %s s: %s\n--- stdout\n%s\n--- stderr\n%s\n%s"
                                 % (timeout, cmd, out, err, stacks)) from None
        raise
    return subprocess.CompletedProcess(cmd, child.returncode, out, err)


def kill_group(child):
    """Ends a process that was started with start_new_session, and its children."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    child.kill()
    child.wait()


def stack_traces(pid):
    """Where the threads of a process are, for the report of a hang. Empty without gdb."""
    if not shutil.which("gdb"):
        return ""
    answer = subprocess.run(
        # a worker sees little of what is installed, but it is installed here
        ["gdb", "-iex", "set sysroot /", "-p", str(pid), "-batch", "-ex", "thread apply all backtrace 14"],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    frames = [line for line in answer.stdout.splitlines() if line.startswith(("#", "Thread"))]
    return "--- stacks of %d\n%s\n" % (pid, "\n".join(frames))


# Where the sanitizers of an instrumented divvyd write what they find, below the daemon's home.
REPORTS = "sanitizer"


def sanitizer_env(home):
    """Settings that make a sanitizer's finding a file, and a leak a finding."""
    common = "log_path=%s:exitcode=99:abort_on_error=0" % os.path.join(home, REPORTS)
    known = os.path.join(REPOSITORY, ".ci", "tsan.supp")
    return {"ASAN_OPTIONS": common + ":detect_leaks=1:detect_stack_use_after_return=1",
            "UBSAN_OPTIONS": common + ":print_stacktrace=1:halt_on_error=1",
            "TSAN_OPTIONS": common + ":second_deadlock_stack=1:suppressions=" + known}


def identity(uid):
    """How subprocess starts a program of this user; 0: of root."""
    return {"user": uid, "group": uid, "extra_groups": []} if uid else {}


class BusyPrograms:
    """Programs that keep the device of a daemon busy. Use it as a context manager, which ends them.

    turns  the path of the program of that name in tests/system/programs
    """

    def __init__(self, daemon, turns):
        self.daemon = daemon
        self.turns = turns
        self.children = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
            child.communicate()

    def start(self, uid=0, rounds=20000, pause_ms=0, seconds=600):
        """Returns the process when it computes."""
        pause = [str(pause_ms)] if pause_ms else []
        child = subprocess.Popen([binary("divvy"), "run", "--", self.turns, str(rounds), str(seconds), *pause],
                                 env=self.daemon.env(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 **identity(uid))
        self.children.append(child)
        assert child.stdout.readline() == "ready\n"
        child.stdin.write("go\n")
        child.stdin.flush()
        return child

    def session(self, *args, **kwargs):
        """The same; returns the number of its session."""
        return self.daemon.session_of(self.start(*args, **kwargs).pid)["id"]


class Daemon:
    """A divvyd of our own in a temporary directory. Use it as a context manager.

    config_text  YAML configuration, or None for the defaults
    env          additions to divvyd's environment (and so to its workers')
    system       it serves every user, as the system's daemon does
    user         number of the user who starts it, if not the one that runs the test

    DIVVY_TEST_DIVVYD names another divvyd to use, say an instrumented one, with the same worker.
    DIVVY_TEST_SLICE_KERNELS, such as "always", is the `slice-kernels` of all device rules.
    """

    def __init__(self, config_text=None, env=None, system=False, user=None):
        self.config_text = config_text
        self.extra_env = dict(env or {})
        self.mark = uuid.uuid4().hex
        # Short, because the path of a Unix socket may have no more than 107 characters.
        self.home = tempfile.mkdtemp(prefix="dv-", dir="/tmp")
        self.dir = os.path.join(self.home, "run")
        self.log_path = os.path.join(self.home, "divvyd.log")
        self.system = system
        self.identity = {}
        if system:
            os.chmod(self.home, 0o755)
        if user is not None:
            self.identity = {"user": user, "group": user, "extra_groups": []}
            os.chown(self.home, user, user)
        self.program = os.environ.get("DIVVY_TEST_DIVVYD") or binary("divvyd")
        self.process = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self._show_log()
            self._clean_up()
            raise
        return self

    def __exit__(self, kind, value, trace):
        died = self.process is not None and self.process.poll() is not None and not self._killed
        if kind is not None or died:
            self._show_log()
        self._end_processes()
        found = self._sanitizer_reports()
        shutil.rmtree(self.home, ignore_errors=True)
        if found:
            print(found, file=sys.stderr)
        if kind is None and died:
            raise AssertionError("divvyd ended by itself with code %s" % self.process.returncode)
        if kind is None and found:
            raise AssertionError("a sanitizer has found something in divvyd: see above")
        return False

    @property
    def pid(self):
        return self.process.pid

    @property
    def log(self):
        with open(self.log_path, errors="replace") as log:
            return log.read()

    def await_log(self, text, within=10, after=0):
        """Waits until divvyd logs a text: it may tell a tenant first and write the log then."""
        wait_for(lambda: text in self.log[after:], within, lambda: self.log[after:])

    def start(self):
        """Starts divvyd and waits until it accepts sessions. Also used to start it again."""
        self._killed = False
        cmd = [self.program, "--dir", self.dir] + ([] if self.system else ["--user"])
        if os.environ.get("DIVVY_TEST_DIVVYD"):
            cmd += ["--worker", binary("divvy-worker")]
        config_text = vendorchoice.config(cut_kernels(self.config_text))
        if config_text is not None:
            config = os.path.join(self.home, "config.yaml")
            with open(config, "w") as out:
                out.write(config_text)
            cmd += ["--config", config]
        env = bare_env()
        env.pop("OCL_ICD_VENDORS", None)
        env.update(vendorchoice.environment())
        env[MARK] = self.mark
        env["DIVVY_CACHE"] = os.path.join(cache_dir(), "divvy")
        env["STATE_DIRECTORY"] = os.path.join(self.home, "state")
        if os.environ.get("DIVVY_TEST_DIVVYD"):
            env.update(sanitizer_env(self.home))
        env.update(self.extra_env)
        with open(self.log_path, "ab") as log:
            begin = log.tell()
            self.process = subprocess.Popen(cmd, env=env, stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, start_new_session=True,
                                            **self.identity)
        deadline = time.monotonic() + START_TIMEOUT_S
        # A keeper has the sockets of an earlier daemon, which accept before this one does.
        while not self._accepts() or not self._is_ready(begin):
            if self.process.poll() is not None:
                raise AssertionError("divvyd ended at once with code %s" % self.process.returncode)
            if time.monotonic() > deadline:
                raise AssertionError("divvyd did not open its socket")
            time.sleep(0.02)

    def _is_ready(self, begin):
        with open(self.log_path, "rb") as log:
            log.seek(begin)
            return b" is ready in " in log.read()

    def _accepts(self):
        for name, kind in (("session.sock", socket.SOCK_SEQPACKET), ("control/control.sock", socket.SOCK_STREAM)):
            with socket.socket(socket.AF_UNIX, kind) as probe:
                try:
                    probe.connect(os.path.join(self.dir, name))
                except OSError:
                    return False
        return True

    def env(self):
        """Environment for tenants of this daemon."""
        env = {key: value for key, value in bare_env().items()
               if not key.startswith(("POCL_", "OCL_ICD_"))}
        env["DIVVY_DIR"] = self.dir
        return env

    def command(self, cmd, present_as=None):
        """The command line that runs cmd through this daemon (with the environment of env())."""
        options = ["--present-as", present_as] if present_as else []
        return [binary("divvy"), "run", *options, "--", *cmd]

    def run(self, cmd, present_as=None, timeout=RUN_TIMEOUT_S, env=None, **kwargs):
        """Runs cmd to its end through `divvy run`. Returns a CompletedProcess, output as text."""
        full_env = self.env()
        full_env.update(env or {})
        return _run(self.command(cmd, present_as), timeout, full_env, **{**self.identity, **kwargs})

    def popen(self, cmd, present_as=None, env=None, **kwargs):
        """Starts cmd through `divvy run` and returns the Popen object. The caller ends it."""
        full_env = self.env()
        full_env.update(env or {})
        kwargs.setdefault("text", True)
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        kwargs.setdefault("start_new_session", True)
        return subprocess.Popen(self.command(cmd, present_as), env=full_env,
                                **{**self.identity, **kwargs})

    def cli(self, *arguments, timeout=30):
        """Runs `divvy ARGUMENTS` against this daemon and returns its standard output."""
        done = _run([binary("divvy"), *arguments], timeout, self.env(), **self.identity)
        assert done.returncode == 0, "divvy %s: code %d\n%s%s" % (
            " ".join(arguments), done.returncode, done.stdout, done.stderr)
        return done.stdout

    def sessions(self):
        """What `divvy ps --json` lists."""
        return json.loads(self.cli("ps", "--json"))["sessions"]

    def compile_kernels(self, turns, rounds=20000):
        """Has kernels compiled, so that no measurement contains it. No session of it is left."""
        done = self.run([turns, str(rounds), "0.1"])
        assert done.returncode == 0, done
        wait_for(lambda: not self.sessions(), 10, "the session that compiles does not end")

    def session_of(self, tenant_pid, within=10):
        """The listed session of a tenant process, waiting for it to appear."""
        return wait_for(lambda: next((s for s in self.sessions()
                                      if s["tenant_pid"] == tenant_pid), None),
                        within, "no session of process %d is listed" % tenant_pid)

    def kill(self, signum=signal.SIGKILL):
        """Ends divvyd itself by a signal (its workers may go on) and waits for it."""
        self._killed = True
        self.process.send_signal(signum)
        self.process.wait(STOP_TIMEOUT_S)

    def stop(self):
        """The regular end: SIGTERM, after which nothing of the daemon may be left."""
        self.kill(signal.SIGTERM)

    def processes(self):
        """Pids of every process that belongs to this daemon, divvyd not included."""
        found = set(descendants(self.pid)) if self.process.poll() is None else set()
        needle = ("%s=%s" % (MARK, self.mark)).encode()
        for pid in all_pids():
            try:
                with open("/proc/%d/environ" % pid, "rb") as environ:
                    if needle in environ.read().split(b"\0"):
                        found.add(pid)
            except OSError:
                pass
        found.discard(self.pid)
        return {pid for pid in found if is_alive(pid)}

    def kill_with_keeper(self):
        """Also kills the keeper, so that the next divvyd takes nothing over."""
        self.process.send_signal(signal.SIGSTOP)  # it would start another keeper
        keeper = self.keeper()
        os.kill(keeper, signal.SIGKILL)
        # until its end it holds the old sockets open, and they would be taken for the next divvyd's
        wait_for(lambda: not is_alive(keeper), 15, "the keeper does not end")
        self.kill(signal.SIGKILL)

    def keeper(self):
        """Pid of the keeper, or None."""
        return next((pid for pid in self.processes() if name_of(pid) == "divvy-keeper"), None)

    def _show_log(self):
        try:
            text = self.log
        except OSError:
            return
        print("--- log of divvyd (%s)\n%s--- end of log" % (self.dir, text[-20000:]),
              file=sys.stderr)

    def _sanitizer_reports(self):
        text = ""
        for name in sorted(os.listdir(self.home)):
            if name.startswith(REPORTS + "."):
                with open(os.path.join(self.home, name), errors="replace") as report:
                    text += report.read()
        return text

    def _clean_up(self):
        self._end_processes()
        shutil.rmtree(self.home, ignore_errors=True)

    def _end_processes(self):
        if self.process is not None:
            if self.process.poll() is None:
                self._killed = True
                self.process.terminate()
                try:
                    self.process.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    print("divvyd did not end after SIGTERM", file=sys.stderr)
                    self.process.kill()
                    self.process.wait()
            for pid in self.processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


# ---------------------------------------------------------------------------- looking at processes

def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat_fields(pid):
    """State and parent of a process, or None when there is none."""
    try:
        with open("/proc/%d/stat" % pid) as stat:
            fields = stat.read().rpartition(")")[2].split()
        return fields[0], int(fields[1])
    except OSError:
        return None


def name_of(pid):
    try:
        with open("/proc/%d/comm" % pid) as comm:
            return comm.read().strip()
    except OSError:
        return ""


def is_alive(pid):
    """True for a process that still runs; a zombie counts as gone."""
    stat = _stat_fields(pid)
    return stat is not None and stat[0] not in "ZX"


def descendants(pid):
    children = {}
    for other in all_pids():
        stat = _stat_fields(other)
        if stat:
            children.setdefault(stat[1], []).append(other)
    found, todo = [], [pid]
    while todo:
        for child in children.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


def zombies_of(pid):
    return [child for child in descendants(pid) if (_stat_fields(child) or "-")[0] == "Z"]


def descriptors(pid):
    """What the descriptors of a process refer to, sorted, without the numbers that differ."""
    targets = []
    try:
        numbers = os.listdir("/proc/%d/fd" % pid)
    except OSError:
        return []
    for fd in numbers:
        try:
            target = os.readlink("/proc/%d/fd/%s" % (pid, fd))
        except OSError:
            continue
        targets.append(target.split(":[")[0] if ":[" in target else target)
    return sorted(targets)


def shared_mappings(pid):
    """Bytes of memfd and /dev/shm memory that a process has mapped."""
    total = 0
    try:
        with open("/proc/%d/maps" % pid) as maps:
            for line in maps:
                if "/memfd:" in line or "/dev/shm/" in line:
                    start, end = line.split()[0].split("-")
                    total += int(end, 16) - int(start, 16)
    except OSError:
        pass
    return total


def files_under(path):
    return sorted(os.path.join(where, name)
                  for where, _, names in os.walk(path) for name in names)


# Processes end within a second; on a shared machine each process involved may be stopped for a while.
SOON_S = 10


def assert_median(measure, low, high, of=3):
    """Fails unless the median of several measurements lies between. Stops measuring when the result is certain."""
    seen = []
    while len(seen) < of:
        seen.append(measure())
        below, above = sum(value <= low for value in seen), sum(value >= high for value in seen)
        if max(below, above, len(seen) - below - above) > of // 2:
            break
    assert low < statistics.median(seen) < high, "not between %s and %s by the median of %s" % (low, high, seen)


def wait_for(condition, within, message):
    """Polls until condition() is true and returns its value; fails after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        late = time.monotonic() > deadline   # when it was asked, however long the answer took
        value = condition()
        if value:
            return value
        if late:
            raise AssertionError(message() if callable(message) else message)
        time.sleep(0.02)


class Leftovers:
    """What a daemon holds at one moment: compare two of them to see whether a session left things.

    Take one when no session is open, run sessions, then call assert_gone().
    """

    def __init__(self, daemon):
        self.daemon = daemon
        wait_for(self._settled, 10, "the daemon's processes have not started")

    def _settled(self):
        """Whether the daemon's own processes have their final names and descriptors."""
        names = set(map(name_of, self.daemon.processes()))
        if "divvy-zygote" not in names or "divvyd" in names:
            return False  # just forked, they still have the parent's name
        keeper = self.daemon.keeper()
        if not keeper or descriptors(keeper).count("socket") < 6:
            return False  # it has not read what it is given to keep: two listeners, the zygote's channel and log
        self.taken = self._take()
        time.sleep(0.05)
        return self._take() == self.taken

    def _take(self):
        daemon = self.daemon
        return {
            "processes": sorted(map(name_of, daemon.processes())),
            "zombies": sorted(zombies_of(daemon.pid)),
            "descriptors of divvyd": descriptors(daemon.pid),
            "descriptors of its keeper": descriptors(daemon.keeper()) if daemon.keeper() else [],
            "shared memory mapped by divvyd": shared_mappings(daemon.pid),
            "files in /dev/shm": sorted(os.listdir("/dev/shm")),
            "files of the daemon": [name for name in files_under(daemon.dir)],
        }

    def differences(self):
        now = self._take()
        report = []
        for what, before in self.taken.items():
            after = now[what]
            if isinstance(before, int):
                if after > before:
                    report.append("%s: %d bytes before, %d after" % (what, before, after))
                continue
            rest = list(before)
            extra = [item for item in after if not (item in rest and not rest.remove(item))]
            if extra:
                report.append("%s: new %s" % (what, extra))
        return report

    def assert_gone(self, within=SOON_S):
        """Fails unless everything new is gone again `within` seconds from now."""
        wait_for(lambda: not self.differences(), within,
                 lambda: "left behind after %s s: %s" % (within, "; ".join(self.differences())))
