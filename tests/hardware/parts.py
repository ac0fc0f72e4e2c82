"""The parts of a run on a card. Each runs a suite of this repository on the chosen driver, and counts what it says."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

import vendors   # also finds tests/lib
import divvytest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
PYTHON = sys.executable
QUICK_S = 115   # for all parts of a quick run
NO_TIME = "the two minutes of --quick were over"


@dataclass
class Result:
    """passed, missed, failed: counts. not_run: why the part says nothing; it then counts as missed."""
    name: str
    passed: int = 0
    missed: int = 0
    failed: int = 0
    not_run: str = ""
    figures: list = field(default_factory=list)   # lines for the report
    log: str = ""
    seconds: float = 0.0

    def verdict(self):
        if self.not_run:
            return f"not run: {self.not_run}"
        return f"{self.passed} passed, {self.missed} missed, {self.failed} failed"

    def counts(self):
        return (0, 1, 0) if self.not_run else (self.passed, self.missed, self.failed)


@dataclass
class Surroundings:
    """What all parts share."""
    vendor: vendors.Vendor
    directory: pathlib.Path   # that announces the vendor
    work: pathlib.Path
    quick: bool
    began: float = field(default_factory=time.monotonic)

    def seconds_left(self):
        return QUICK_S - (time.monotonic() - self.began) if self.quick else float("inf")

    def environment(self):
        env = {key: value for key, value in os.environ.items() if not key.startswith(("OCL_ICD_", "OPENCL_"))}
        env["DIVVY_BUILD"] = divvytest.build_dir()
        env["DIVVY_TEST_VENDORS"] = str(self.directory)
        env.setdefault("DIVVY_TEST_POCL_CACHE", str(self.work / "kernels"))
        return env

    def is_processor(self):
        return all(device["type"] == "CPU" for device in self.vendor.devices)


class NoTime(Exception):
    """A quick run is over before the suite."""


def run(surroundings, command, limit_s, env=None):
    """Runs a suite to its end. (exit code or None if it took too long, output)"""
    left_s = surroundings.seconds_left()
    path = surroundings.work / "output"
    # to a file: a process that the suite leaves behind could hold a pipe open
    with open(path, "w+", errors="replace") as out:
        child = subprocess.Popen([str(word) for word in command], cwd=SOURCE, stdout=out, stderr=subprocess.STDOUT,
                                 stdin=subprocess.DEVNULL, env={**surroundings.environment(), **(env or {})},
                                 start_new_session=True)
        try:
            code = child.wait(min(limit_s, max(left_s, 0)))
        except subprocess.TimeoutExpired:
            code = None
        except BaseException:
            end_group(child)
            raise
        if code is None:
            end_group(child)
    if code is None and left_s < limit_s:
        raise NoTime
    return code, path.read_text(errors="replace")


def end_group(child):
    """First by SIGTERM, so that a suite ends its daemon."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            child.wait(10)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    child.wait()


def counted(result, code, output, pattern, limit_s):
    """Fills in the counts of the last line that has some. A suite that ends otherwise has failed."""
    result.log = output
    found = re.findall(pattern, output, re.M)
    if found:
        numbers = {word: int(number) for number, word in re.findall(r"([0-9]+) ([a-z]+)", found[-1])}
        result.passed = numbers.get("passed", 0)
        result.missed = numbers.get("missed", 0) + numbers.get("skipped", 0)
        result.failed = sum(numbers.get(word, 0) for word in ("failed", "error", "errors"))
    if code is None:
        result.figures.append(f"ended after {limit_s} s, before it was done")
    if (code != 0 or not found) and result.failed == 0:
        result.failed = 1
    return result


# ---- the vendor's devices, through divvy ----

COMPARED = ["name", "type", "vendor", "compute_units", "memory_bytes", "local_bytes", "work_group_items"]


def devices(surroundings):
    """Whether a program sees the same devices as without divvy. divvyd may put identical ones in another order."""
    result = Result("devices")
    before = {key: os.environ.get(key) for key in ("DIVVY_TEST_VENDORS", "DIVVY_TEST_POCL_CACHE")}
    os.environ.update({key: value for key, value in surroundings.environment().items() if key in before})
    try:
        with divvytest.Daemon() as daemon:
            env = {**daemon.env(), "PYTHONDONTWRITEBYTECODE": "1"}
            platforms, problem = vendors.see(daemon.command([]), env)
            result.log = daemon.log
        bare, bare_problem = vendors.see([], divvytest.bare_env())
    except AssertionError as trouble:
        result.failed = 1
        result.figures = [f"divvyd did not work: {trouble}"]
        return result
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
    compare_devices(result, platforms, problem or bare_problem, [d for p in bare for d in p["devices"]])
    return result


def compare_devices(result, platforms, problem, expected):
    through = [device for platform in platforms for device in platform["devices"]]
    if problem or [platform["name"] for platform in platforms] != ["divvy"]:
        result.failed += 1
        result.figures.append("FAILED a program through divvy sees the platforms "
                              f"{[platform['name'] for platform in platforms]} {problem}".rstrip())
        return
    result.passed += 1
    result.figures.append("ok     a program through divvy sees the platform divvy and no other")
    for number, device in enumerate(expected):
        shown = through[number] if number < len(through) else {}
        wrong = [f"{key}: {device[key]} became {shown.get(key)}" for key in COMPARED if shown.get(key) != device[key]]
        result.passed += not wrong
        result.failed += bool(wrong)
        result.figures.append(f"{'FAILED' if wrong else 'ok    '} device {number}, {device['name']}"
                              + "".join(f"; {text}" for text in wrong))


# ---- piglit ----

QUICK_TESTS = "cl-api-enqueue-*"


def conformance(surroundings):
    result = Result("conformance")
    paths = "unified,discrete" if surroundings.is_processor() and not surroundings.quick else \
        "unified" if surroundings.is_processor() else "discrete"
    extent = ["--only", QUICK_TESTS] if surroundings.quick else ["--short"]
    limit_s = 2 * QUICK_S if surroundings.quick else 3600
    code, output = run(surroundings, [PYTHON, SOURCE / "tests" / "conformance" / "run", *extent, "--paths", paths],
                       limit_s)
    if code == 2:
        result.not_run = last_line(output)
        result.log = output
        return result
    result.figures = output.strip().splitlines()
    return counted(result, code, output, r"^conformance: .* passed.*$", limit_s)


# ---- real programs ----

QUICK_PROGRAMS = "clpeak or ffmpeg"


def programs(surroundings):
    result = Result("programs")
    path = "unified" if surroundings.is_processor() else "discrete"
    chosen = f"same_through_divvy and {path}"
    if surroundings.quick:
        chosen += f" and ({QUICK_PROGRAMS})"
    limit_s = 2 * QUICK_S if surroundings.quick else 7200
    code, output = run(surroundings, [PYTHON, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "tests/apps", "-k",
                                      chosen], limit_s)
    result.figures = [line for line in output.splitlines() if re.match(r"(PASSED|FAILED|ERROR|SKIPPED)\b", line)]
    counted(result, code, output, r"^.*[0-9]+ (?:passed|failed|skipped|error).* in [0-9.]+s.*$", limit_s)
    if code == 0 and not result.passed:
        result.not_run = "no program of tests/apps is installed (tests/apps/packages.txt lists them)"
    return result


# ---- benches ----

def bench(name, words, limit_s):
    """A part that runs bench/run and counts its figures. Beyond its CI bar a figure has failed: the bars are those of
    the machine that divvy is developed on, with PoCL, so look at the figure."""
    def part(surroundings):
        result = Result(name)
        retries_s = 0 if surroundings.quick else limit_s // 2
        code, output = run(surroundings, [PYTHON, SOURCE / ".ci" / "bench", SOURCE / "bench" / "run", *words,
                                          "--quick"], limit_s,
                           {"DIVVY_BENCH_RETRY_UNTIL": str(int(time.time()) + retries_s)})
        result.figures = output.strip().splitlines()
        reason = re.search(r"^bench: (.*)$", output, re.M)
        # with 1 and without figures it could not begin; with 2 one of its programs failed
        if "ended with exit code 1" in output and reason and "divvyd did not" not in output:
            result.not_run = reason[1]
            result.log = output
            return result
        return counted(result, code, output, r"^[a-z]+: [0-9]+ passed, [0-9]+ missed, [0-9]+ failed$", limit_s)
    return part


def last_line(output):
    lines = [line for line in output.splitlines() if line.strip()]
    return re.sub(r"^\w+: cannot run: ", "", lines[-1]) if lines else "it said nothing"


def only(*names):
    return [word for name in names for word in ("--only", name)]


QUICK = {
    "devices": devices, "conformance": conformance, "programs": programs,
    "shares": bench("shares", ["share", *only("weights2to1")], 60),
    "memory": bench("memory", ["memory", *only("small")], 60),
    "overhead": bench("overhead", ["overhead", "--program", "ffmpeg"], 60),
}
FULL = {
    "devices": devices, "conformance": conformance, "programs": programs,
    "shares": bench("shares", ["share", *only("equal2", "equal8", "weights2to1", "limit30", "request50")], 1800),
    "memory": bench("memory", ["memory", *only("fits", "service", "swap", "small")], 3600),
    "overhead": bench("overhead", ["overhead"], 3600),
}


def take(name, surroundings):
    began = time.monotonic()
    try:
        result = (QUICK if surroundings.quick else FULL)[name](surroundings)
    except NoTime:
        result = Result(name, not_run=NO_TIME)
    except OSError as problem:
        result = Result(name, not_run=str(problem))
    result.seconds = time.monotonic() - began
    return result
