"""Runs each program of this directory on the bare vendor and through divvy on both data paths.

The bare run shows that the programs themselves are right. DIVVY_TEST_BARE_ONLY=1 leaves the others
out; DIVVY_TEST_LONG=1 runs thousands of random graphs instead of hundreds.
"""

import os

import pytest

import divvytest

PROGRAMS = [
    "callbacks",
    "devices",
    "errors",
    "graphs",
    "host_overlap",
    "images",
    "info",
    "limits",
    "mapping",
    "profiling",
    "programs",
    "threads",
    "user_events",
]

WAYS = ["bare"]
if not os.environ.get("DIVVY_TEST_BARE_ONLY"):
    WAYS += list(divvytest.DATA_PATHS)

PROGRAM_TIMEOUT_S = 240
LONG = bool(os.environ.get("DIVVY_TEST_LONG"))

# The lines that the programs themselves write to standard error; see check.c.
OWN_LINES = ("FAIL ", "DEVIATION ", "SKIP ", "     ", "section ")


def program_path(name):
    return os.path.join(divvytest.build_dir(), "tests", "semantics", name)


@pytest.fixture(scope="module", params=WAYS)
def way(request):
    """A function that runs a command, bare or through a daemon of this data path."""
    if request.param == "bare":
        yield request.param, divvytest.run_bare
        return
    with divvytest.Daemon(divvytest.DATA_PATHS[request.param]) as daemon:
        before = divvytest.Leftovers(daemon)
        yield request.param, daemon.run
        before.assert_gone()


def run(way, command, **kwargs):
    name, runner = way
    done = runner(command, timeout=PROGRAM_TIMEOUT_S * (5 if LONG else 1), **kwargs)
    print(done.stdout[-20000:])
    print(done.stderr[-20000:])
    assert done.returncode == 0, "%s on %s: code %d\n%s" % (
        os.path.basename(command[0]), name, done.returncode, done.stderr[-6000:])
    return done


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(way, program):
    arguments = ["1", "5000"] if LONG and program == "graphs" else []
    done = run(way, [program_path(program), *arguments])
    assert ", 0 failed," in done.stdout.splitlines()[-1]
    if way[0] != "bare":
        # The library is a guest in the program and prints nothing of its own.
        strangers = [line for line in done.stderr.splitlines()
                     if line and not line.startswith(OWN_LINES)]
        assert not strangers


def test_printf(way):
    """What kernels print comes out byte for byte as on the bare vendor, in its place."""
    expected = divvytest.run_bare([program_path("printf_order")])
    assert expected.returncode == 0
    assert "tell 19 of 1\nhost after tell 19\n" in expected.stdout
    done = run(way, [program_path("printf_order")])
    assert done.stdout == expected.stdout


def test_printf_to_file(way, tmp_path):
    expected = divvytest.run_bare([program_path("printf_order")])
    target = tmp_path / "output"
    with open(target, "wb") as out:
        name, runner = way
        done = runner([program_path("printf_order")], stdout=out, stderr=None)
    assert done.returncode == 0
    assert target.read_text() == expected.stdout
