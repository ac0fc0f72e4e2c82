"""What a user sets for a program of their own: its name, less memory, a shorter deadline."""

import json
import subprocess
import sys
import time

import pytest

import divvytest

CONFIG = """
devices:
  - match: "*"
    capacity: 256MiB
deadlines:
  standard: 20s
"""


@pytest.fixture
def machine():
    with divvytest.Daemon(CONFIG) as daemon:
        yield daemon


def run(daemon, options, command, **more):
    return subprocess.Popen([divvytest.binary("divvy"), "run", *options, "--", *command], env=daemon.env(), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **more)


def sessions(daemon, *options):
    return json.loads(daemon.cli("ps", "--json", *options))


def test_a_name_is_shown_and_taken(machine, program):
    child = run(machine, ["--name", "training"], [program("compute"), "1", "600"])
    try:
        assert child.stdout.readline() == "ready\n"
        assert sessions(machine)["sessions"][0]["name"] == "training"
        assert "training" in machine.cli("ps")
        assert "training" in machine.cli("explain", "training")
        machine.cli("end", "training")
        deadline = time.monotonic() + 10
        while sessions(machine)["sessions"] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not sessions(machine)["sessions"]
    finally:
        divvytest.kill_group(child)
        child.communicate()


def test_a_name_of_two_sessions_is_refused(machine, program):
    children = [run(machine, ["--name", "twin"], [program("compute"), "1", "600"]) for _ in range(2)]
    try:
        for child in children:
            assert child.stdout.readline() == "ready\n"
        done = subprocess.run([divvytest.binary("divvy"), "end", "twin"], env=machine.env(), capture_output=True,
                              text=True)
        assert done.returncode != 0 and "twin" in done.stderr
        assert len(sessions(machine)["sessions"]) == 2
    finally:
        for child in children:
            divvytest.kill_group(child)
            child.communicate()


@pytest.mark.parametrize("options", [["--name", "12"], ["--name", ""], ["--memory", "2"], ["--memory", "much"],
                                     ["--deadline", "1ms"], ["--deadline", "never"]])
def test_nonsense_is_refused(machine, program, options):
    child = run(machine, options, [program("compute"), "1", "0"])
    _, error = child.communicate(timeout=30)
    assert child.returncode == 125 and options[0] in error


PROGRAM = """
import numpy, pyopencl as cl
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
size = context.devices[0].global_mem_size
held = []
try:
    while True:
        held.append(cl.Buffer(context, cl.mem_flags.READ_WRITE, 8 << 20))
        cl.enqueue_fill_buffer(queue, held[-1], numpy.uint32(1), 0, 8 << 20)
        queue.finish()
except cl.Error:
    pass
print(size >> 20, len(held) * 8)
"""


def test_memory_is_limited(machine):
    def most(*options):
        child = run(machine, options, ["/usr/bin/python3", "-c", PROGRAM])
        out, error = child.communicate(timeout=60)
        assert child.returncode == 0, error
        return [int(word) for word in out.split()]
    size, held = most("--memory", "64MiB")
    assert size == 64 and 48 <= held <= 64
    assert most()[0] == 256
    assert most("--memory", "10GiB")[0] == 256, "it is never raised"


def test_a_shorter_deadline_ends_the_session(machine, program):
    other = None
    child = run(machine, ["--deadline", "1s"], [program("endless")])
    try:
        divvytest.wait_for(lambda: any(s["state"] == "computing" for s in sessions(machine)["sessions"]), 30,
                           "it does not run")
        time.sleep(2)
        assert child.poll() is None, "no other session waits"
        began = time.monotonic()
        other = run(machine, [], [program("turns"), "2000", "0.1"], stdin=subprocess.DEVNULL)
        child.wait(timeout=30)
        assert time.monotonic() - began < 18, "its own deadline counts, and not that of 20 s"
        divvytest.wait_for(lambda: any("1 s" in end["why"] or "1.0 s" in end["why"]
                                       for end in sessions(machine, "--ended")["ended"]), 10,
                           lambda: "not ended by its deadline: %s" % sessions(machine, "--ended"))
    finally:
        for one in (child, other):
            if one:
                divvytest.kill_group(one)
                one.communicate()


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
