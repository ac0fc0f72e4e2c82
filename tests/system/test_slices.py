"""Kernels that go to the device in slices: the same results as bare, nothing to be noticed but the wait of others."""

import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import time

import divvytest
import pytest

LAUNCHES = 2000 if os.environ.get("DIVVY_LONG") else 60
PROGRAMS = 50 if os.environ.get("DIVVY_LONG") else 4
ALWAYS = 'devices:\n  - match: "*"\n    slice-kernels: always\n'
# What a system's daemon does by default with programs of two users, for two programs of one.
TENANTS = "tenants:\n  - per: program\n    memory: 1GiB\n"


def always(path):
    text = divvytest.DATA_PATHS[path]
    return text + "    slice-kernels: always\n" if text else ALWAYS


def kernels(daemon, pid):
    session = daemon.session_of(pid)
    text = daemon.cli("explain", str(session["id"]), "-v", "--json")
    return json.loads(text)["kernel_list"]


@contextlib.contextmanager
def running(daemon, command):
    """A program that computes; its results must be right at its end."""
    child = daemon.popen(command, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == "ready\n"
        yield child
        if command[0].endswith("compute"):
            child.send_signal(signal.SIGUSR1)
        said, _ = child.communicate(timeout=60)
        assert child.returncode == 0, said
    finally:
        divvytest.kill_group(child)
        child.stdout.close()


# ---- every kernel ----

@pytest.mark.parametrize("path", list(divvytest.DATA_PATHS))
@pytest.mark.parametrize("seed", ["1", "2"])
def test_random_kernels_compute_the_same_in_slices(program, path, seed):
    command = [program("ranges"), seed, str(PROGRAMS), str(LAUNCHES)]
    bare = divvytest.run_bare(command, timeout=1200)
    assert bare.returncode == 0, bare.stderr
    with divvytest.Daemon(always(path)) as daemon:
        sliced = daemon.run(command, timeout=1200)
        assert sliced.returncode == 0, sliced.stderr
        assert sliced.stdout == bare.stdout
        ended = divvytest.wait_for(lambda: json.loads(daemon.cli("ps", "--ended", "--json"))["ended"], 10,
                                   "its end is not known")[0]
        assert ended["kernels"]["corrected"] > 0 and ended["kernels"]["whole"] == 0


def test_explain_shows_which_kernels_are_sliced(program):
    with divvytest.Daemon(ALWAYS) as daemon, running(daemon, [program("compute"), "1", "20"]) as child:
        (kernel,) = kernels(daemon, child.pid)
        assert kernel["name"] == "advance" and kernel["verdict"] == "free"
        assert 0 < kernel["in_parts"] <= kernel["launches"] and kernel["parts"] > kernel["in_parts"]
        shown = daemon.cli("explain", str(daemon.session_of(child.pid)["id"]), "-v")
        assert re.search(r"advance +as it is +\d+ +\d+ +\d+", shown), shown


def test_a_trace_shows_slices(program, tmp_path):
    with divvytest.Daemon(ALWAYS) as daemon, running(daemon, [program("compute"), "1", "30"]):
        daemon.cli("trace", "-o", str(tmp_path / "trace.json"), "--for", "1s")
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        seen = [event for event in events if event["name"] == "advance"]
        assert len(seen) > 10
        assert all(kernel["args"]["slice"] and kernel["args"]["sliceable"] == "free" for kernel in seen)


@pytest.mark.parametrize("path", list(divvytest.DATA_PATHS))
def test_profiles_of_slices_do_not_count_the_time_of_a_compiler(program, path):
    """A driver may compile a kernel again for the second slice. Programs that tune themselves by profiles, such as
    hashcat, would refuse a kernel that takes so long."""
    with divvytest.Daemon(always(path)) as daemon:
        done = daemon.run([program("lasting"), "measure"])
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = ([float(ms) for ms in line.split()] for line in done.stdout.splitlines()[:2])
    assert first[0] > 500, "no compiler was waited for"
    assert first[1] < 100 and second[1] < 100


def test_a_reload_decides_for_running_programs(program):
    with divvytest.Daemon(ALWAYS) as daemon, running(daemon, [program("compute"), "1", "30"]) as child:
        with open(os.path.join(daemon.home, "config.yaml"), "w") as config:
            config.write(ALWAYS.replace("always", "never"))
        daemon.cli("reload")
        time.sleep(0.5)   # the grant before is over
        before = kernels(daemon, child.pid)[0]
        time.sleep(0.5)
        after = kernels(daemon, child.pid)[0]
        assert after["launches"] > before["launches"] and after["in_parts"] == before["in_parts"]


def test_slices_go_on_after_restarts(program):
    with divvytest.Daemon(ALWAYS) as daemon, running(daemon, [program("compute"), "1", "30"]):
        for _ in range(5):
            daemon.kill()
            daemon.start()
            time.sleep(0.2)


# ---- long kernels, by default ----

@pytest.fixture(params=list(divvytest.DATA_PATHS))
def shared(request, program):
    """A daemon with its defaults, and a neighbour that wants the device all the time."""
    with divvytest.Daemon((divvytest.DATA_PATHS[request.param] or "") + TENANTS) as daemon, \
            running(daemon, [program("compute"), "7", "600"]) as neighbour:
        daemon.neighbour = neighbour
        yield daemon


def holds_ms(daemon, path, pid):
    """How long a program held the device at a time, in a second."""
    session = daemon.session_of(pid)["id"]
    daemon.cli("trace", "-o", str(path), "--for", "1s", "--leases")
    return [event["dur"] / 1000 for event in json.loads(path.read_text())["traceEvents"]
            if event["ph"] == "X" and event["tid"] == 0 and event["args"]["session"] == session]


def test_others_do_not_wait_for_the_end_of_a_kernel(shared, program, tmp_path):
    with running(shared, [program("lasting"), "run", "4"]) as child:
        seen = holds_ms(shared, tmp_path / "trace.json", child.pid)
        (kernel,) = kernels(shared, child.pid)
        assert kernel["verdict"] == "corrected" and kernel["in_parts"] > 0
        assert statistics.median(seen) < 60, "a kernel takes 300 ms"


def test_events_order_and_objects_of_sliced_launches(shared, program):
    done = shared.run([program("lasting"), "order"])
    assert done.returncode == 0, done.stdout + done.stderr
    ended = divvytest.wait_for(lambda: json.loads(shared.cli("ps", "--ended", "--json"))["ended"], 10,
                               "its end is not known")[0]
    assert ended["kernels"]["corrected"] >= 1


def test_a_sliced_kernel_prints_each_line_once(shared, program):
    bare = divvytest.run_bare([program("lasting"), "print"])
    done = shared.run([program("lasting"), "print"])
    assert (bare.returncode, done.returncode) == (0, 0), done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(bare.stdout.splitlines())


def test_long_kernels_go_on_after_restarts_of_the_daemon(shared, program):
    with running(shared, [program("lasting"), "run", "3"]) as child:
        for _ in range(5):
            shared.kill()
            time.sleep(0.1)   # a launch has slices left to run
            shared.start()
            time.sleep(0.3)
        assert kernels(shared, child.pid)[0]["in_parts"] > 0


def test_memory_can_go_between_two_slices(program, tmp_path):
    """Each of two programs needs more than half of the device's memory for a launch of 300 ms."""
    config = ('devices:\n  - match: "*"\n    unified: no\n    capacity: 64MiB\n    slice-max: 50ms\n'
              "    swap-part: 50%\n" + TENANTS)
    command = [program("lasting"), "run", "4", "40"]
    with divvytest.Daemon(config) as daemon, running(daemon, command) as one, running(daemon, command) as other:
        for child in one, other:
            assert statistics.median(holds_ms(daemon, tmp_path / "trace.json", child.pid)) < 200
            assert kernels(daemon, child.pid)[0]["in_parts"] > 0
