"""Real programs give the same results through divvy as without it.

Each program of programs.py runs once without divvy; that run is the reference. It then runs
through divvy in both data paths (of one library's programs some in one only). With DIVVY_LONG all
run in both, and again without divvy, which shows that the comparison holds of the program itself.
Every run must really have launched kernels: a program that quietly fell back to its own CPU code fails
here even if its numbers are right.
"""

import collections
import copy
import dataclasses
import json
import os
import struct
import threading

import pytest

import divvytest
import vendorchoice
from programs import BY_NAME, PROGRAMS, cache_dir

LONG = os.environ.get("DIVVY_LONG", "0") not in ("", "0")
REQUIRE_ALL = os.environ.get("DIVVY_REQUIRE_APPS", "0") not in ("", "0")

KERNEL_LAUNCHES = ("clEnqueueNDRangeKernel", "clEnqueueTask")

# How much memory the device has when programs are to swap: less than they have, and more than the
# largest of their commands needs. Of the others (hashcat, clpeak, clblast, clfft, openmm) one command
# uses nearly all that the program has.
SWAP_CAPACITY = {"pyopencl": "128MiB", "opencv": "24MiB", "ffmpeg": "4MiB", "x264": "32MiB",
                 "ufo": "16MiB", "boost-compute": "32MiB", "viennacl": "4MiB", "vkfft": "16MiB"}
# Left to the long form: another program of the same library is in the short one.
SIBLINGS = {"clblast-test-xdot", "clblast-test-xgemv", "clblast-test-xtrsv", "starpu-block",
            "starpu-variable", "starpu-incrementer"}
only_long = pytest.mark.long   # see tests/conftest.py

every_program = pytest.mark.parametrize(
    "program", [program for program in PROGRAMS if LONG or program.name not in SIBLINGS],
    ids=lambda program: program.name)


def skip_if_missing(program):
    missing = program.missing_packages()
    if missing and REQUIRE_ALL:
        pytest.fail(f"not installed: {' '.join(missing)}")
    if missing:
        pytest.skip(f"not installed: {' '.join(missing)}")


def home_of(mode):
    """Programs keep compiled kernels of their own; those of one way must not serve another."""
    home = cache_dir() / "home" / mode
    home.mkdir(parents=True, exist_ok=True)
    return home


def finish_run(program, work, done):
    report = f"code {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
    assert done.returncode == 0, report[-20000:]
    result = program.output(work, done)
    program.verify(result, LONG)
    return result


def run_bare(program, work):
    """Returns what the program gave and how many kernels it launched."""
    program.prepare()
    count_file = work / "launches"
    env = program.environment(work, home_of("bare"), bare=True, launch_count=count_file,
                              base=divvytest.bare_env())
    command = program.command(work, LONG)
    done = divvytest.run_bare(command, timeout=program.timeout, env=env, cwd=work,
                              errors="replace")
    result = finish_run(program, work, done)
    assert count_file.exists(), "the program never loaded OpenCL"
    launches, = struct.unpack("<Q", count_file.read_bytes())
    assert launches > 0, "the program launched no kernel"
    return result, launches


class Moved:
    """How many bytes sessions have moved between device and host memory, as far as seen."""

    def __init__(self, daemon):
        self.daemon, self.bytes, self.over = daemon, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        while not self.over.wait(0.02):
            self.bytes = max([self.bytes] + [s["moved_bytes"] for s in self.daemon.sessions()])

    def end(self):
        self.over.set()
        self.thread.join()
        return self.bytes


# Of the programs so far: how many kernels can go to the device in slices, by verdict.
coverage = {}


def note_coverage(program, daemon):
    for session in json.loads(daemon.cli("ps", "--ended", "--json"))["ended"]:
        counts = coverage.setdefault(program.name, collections.Counter())
        counts.update(session["kernels"])


def run_through_divvy(program, work, path):
    log = work / "calls.log"
    config = divvytest.swapped(SWAP_CAPACITY[program.name]) \
        if path == "swapped" else divvytest.DATA_PATHS[path]
    with divvytest.Daemon(config, env=program.device_environment()) as daemon:
        program.prepare()
        env = program.environment(work, home_of(path), bare=False, base={})
        env["DIVVY_LOG"] = str(log)
        command = program.command(work, LONG)
        moved = Moved(daemon) if path == "swapped" else None
        try:
            done = daemon.run(command, present_as=program.present_as, timeout=program.timeout,
                              env=env, cwd=work, errors="replace")
        finally:
            moved = moved.end() if moved else None
        result = finish_run(program, work, done)
        assert moved != 0, "the program never had to swap"
        divvytest.wait_for(lambda: not daemon.sessions(), 5,
                           "the program has ended, its session has not")
        note_coverage(program, daemon)
    assert log.exists(), "the program made no OpenCL call through divvy"
    with open(log, errors="replace") as lines:
        launches = sum(line.startswith(KERNEL_LAUNCHES) for line in lines)
    assert launches > 0, "the program launched no kernel through divvy"
    return result, launches


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """reference(program) is the first bare run's (result, launches); it is run only once, or again."""
    runs = {}

    def get(program, again=False):
        skip_if_missing(program)
        if again or program.name not in runs:
            try:
                runs[program.name] = run_bare(program, tmp_path_factory.mktemp("reference"))
            except Exception as reason:
                runs[program.name] = reason
        if isinstance(runs[program.name], Exception) and vendorchoice.directory():
            pytest.skip(f"{program.name} fails on this driver without divvy, too")
        if isinstance(runs[program.name], Exception):
            raise AssertionError(f"no reference: {program.name} fails without divvy") \
                from runs[program.name]
        return runs[program.name]

    return get


def assert_same(program, expected, actual):
    program.compare(expected[0], actual[0])
    if program.same_launches:
        assert actual[1] == expected[1], \
            f"{expected[1]} kernel launches became {actual[1]}"


def are_same(program, expected, actual):
    try:
        assert_same(program, expected, actual)
    except AssertionError:
        return False
    return True


def spoiled(value):
    """A value of the same kind that is wrong in one place, as a lost or stale write would be."""
    value = copy.copy(value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 1.5 + 1
    if isinstance(value, str):
        return value + "?"
    if len(value) == 0:
        return [1]
    largest = max(range(len(value)), key=lambda i: abs(value[i])) \
        if isinstance(value[0], float) else len(value) - 1
    value[largest] = 0.0 if isinstance(value[0], float) else spoiled(value[largest])
    return value


@only_long  # of the programs it is known by now
@every_program
def test_bare_runs_agree(program, reference, tmp_path):
    expected = reference(program)
    assert_same(program, expected, run_bare(program, tmp_path))


@every_program
def test_comparison_notices_a_spoiled_result(program, reference):
    result, _ = reference(program)
    for key in result:
        wrong = dict(result)
        wrong[key] = spoiled(result[key])
        with pytest.raises(AssertionError):
            program.compare(result, wrong)


@every_program
@pytest.mark.parametrize("path", [*divvytest.DATA_PATHS, pytest.param("swapped", marks=only_long)])
def test_same_through_divvy(program, path, reference, tmp_path):
    if path == "swapped" and program.name not in SWAP_CAPACITY:
        pytest.skip("one of its commands uses nearly all of its memory")
    expected = reference(program)
    actual = run_through_divvy(program, tmp_path, path)
    try:
        assert_same(program, expected, actual)
    except AssertionError:
        # Once in some hundred bare runs x264 gives another bitstream than in all others.
        again = reference(program, again=True)
        if vendorchoice.directory() and not are_same(program, expected, again):
            pytest.skip(f"two runs of {program.name} on this driver without divvy differ")
        assert_same(program, again, actual)


@only_long
def test_most_kernels_can_be_sliced():
    """Of the programs that ran before."""
    if not coverage:
        pytest.skip("no program ran before")
    total = collections.Counter()
    print("%-24s %6s %10s %6s" % ("kernels of", "free", "corrected", "whole"))
    for name, counts in sorted(coverage.items()):
        total.update(counts)
        print("%-24s %6d %10d %6d" % (name, counts["free"], counts["corrected"], counts["whole"]))
    part = 1 - total["whole"] / sum(total.values())
    print("%-24s %6d %10d %6d: %.1f %% can be sliced"
          % ("all", total["free"], total["corrected"], total["whole"], 100 * part))
    assert part >= 0.9


def test_fallback_is_noticed(tmp_path):
    """x264 encodes without OpenCL when it sees no GPU, and ends well: that must not pass."""
    x264 = BY_NAME["x264"]
    skip_if_missing(x264)
    without_gpu = dataclasses.replace(x264, present_as=None)
    with pytest.raises(AssertionError, match="fell back"):
        run_bare(without_gpu, tmp_path)
    unchecked = dataclasses.replace(without_gpu, verify=lambda result, long: None)
    with pytest.raises(AssertionError, match="launched no kernel"):
        run_bare(unchecked, tmp_path)
