"""Kernels that go to the device in slices: the same results as bare, nothing to be noticed but the wait of others."""

import json
import os
import re
import signal
import subprocess
import time

import divvytest
import pytest

LAUNCHES = 2000 if os.environ.get("DIVVY_LONG") else 60
PROGRAMS = 50 if os.environ.get("DIVVY_LONG") else 4
ALWAYS = 'devices:\n  - match: "*"\n    slice-kernels: always\n'


def always(path):
    text = divvytest.DATA_PATHS[path]
    return text + "    slice-kernels: always\n" if text else ALWAYS


def kernels(daemon, pid):
    session = daemon.session_of(pid)
    text = daemon.cli("explain", str(session["id"]), "-v", "--json")
    return json.loads(text)["kernel_list"]


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
    with divvytest.Daemon(ALWAYS) as daemon:
        child = daemon.popen([program("compute"), "1", "20"], stdout=subprocess.PIPE)
        assert child.stdout.readline() == "ready\n"
        (kernel,) = kernels(daemon, child.pid)
        assert kernel["name"] == "advance" and kernel["verdict"] == "free"
        assert 0 < kernel["in_parts"] <= kernel["launches"] and kernel["parts"] > kernel["in_parts"]
        shown = daemon.cli("explain", str(daemon.session_of(child.pid)["id"]), "-v")
        assert re.search(r"advance +as it is +\d+ +\d+ +\d+", shown), shown
        child.send_signal(signal.SIGUSR1)
        assert child.wait(timeout=20) == 0
        child.stdout.close()


def test_a_trace_shows_slices(program, tmp_path):
    with divvytest.Daemon(ALWAYS) as daemon:
        child = daemon.popen([program("compute"), "1", "30"], stdout=subprocess.PIPE)
        assert child.stdout.readline() == "ready\n"
        daemon.cli("trace", "-o", str(tmp_path / "trace.json"), "--for", "1s")
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        kernels = [event for event in events if event["name"] == "advance"]
        assert len(kernels) > 10
        assert all(kernel["args"]["slice"] and kernel["args"]["sliceable"] == "free" for kernel in kernels)
        child.send_signal(signal.SIGUSR1)
        assert child.wait(timeout=20) == 0
        child.stdout.close()


def test_a_reload_decides_for_running_programs(program):
    with divvytest.Daemon(ALWAYS) as daemon:
        child = daemon.popen([program("compute"), "1", "30"], stdout=subprocess.PIPE)
        assert child.stdout.readline() == "ready\n"
        with open(os.path.join(daemon.home, "config.yaml"), "w") as config:
            config.write(ALWAYS.replace("always", "never"))
        daemon.cli("reload")
        time.sleep(0.5)   # the grant before is over
        before = kernels(daemon, child.pid)[0]
        time.sleep(0.5)
        after = kernels(daemon, child.pid)[0]
        assert after["launches"] > before["launches"] and after["in_parts"] == before["in_parts"]
        child.send_signal(signal.SIGUSR1)
        assert child.wait(timeout=20) == 0
        child.stdout.close()


def test_slices_go_on_after_restarts(program):
    with divvytest.Daemon(ALWAYS) as daemon:
        child = daemon.popen([program("compute"), "1", "30"], stdout=subprocess.PIPE)
        assert child.stdout.readline() == "ready\n"
        for _ in range(5):
            daemon.kill()
            daemon.start()
            time.sleep(0.2)
        child.send_signal(signal.SIGUSR1)
        assert child.wait(timeout=20) == 0   # all its results were right
        child.stdout.close()
