"""Sessions that give up their worker and get another: programs notice nothing but the time."""

import contextlib
import subprocess
import threading

import divvytest
import pytest

PATHS = divvytest.DATA_PATHS


def park(daemon, pid, within=10):
    """Returns the session once it is parked."""
    session = daemon.session_of(pid)
    daemon.cli("park", str(session["id"]))
    return divvytest.wait_for(
        lambda: next((s for s in daemon.sessions() if s["id"] == session["id"] and s["state"] == "parked"), None), within,
        "session %d is not parked" % session["id"])


@contextlib.contextmanager
def often(daemon, pid, pause):
    """Parks the session again and again."""
    over = threading.Event()
    count = [0]

    def run():
        while not over.wait(pause):
            found = [s for s in daemon.sessions() if s["tenant_pid"] == pid]
            if found and found[0]["worker_pid"]:
                done = subprocess.run([divvytest.binary("divvy"), "park", str(found[0]["id"])], env=daemon.env(),
                                      capture_output=True, timeout=30)   # it may end meanwhile, or be resumed
                count[0] += done.returncode == 0
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield count
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def waiting(daemon, program):
    """A program with objects of all kinds that does nothing until it is told to; at its end all was right."""
    child = daemon.popen([program("parked")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == "ready\n"
        yield child
        child.stdin.close()
        assert child.wait(30) == 0
    finally:
        divvytest.kill_group(child)
        child.stdout.close()


def go_on(child):
    child.stdin.write("go\n")
    child.stdin.flush()
    assert child.stdout.readline() == "right\n"


@pytest.mark.parametrize("path", list(PATHS))
def test_a_parked_session_goes_on(program, path):
    with divvytest.Daemon(PATHS[path]) as daemon, waiting(daemon, program) as child:
        for _ in range(3):
            worker = daemon.session_of(child.pid)["worker_pid"]
            parked = park(daemon, child.pid)
            assert parked["worker_pid"] is None and not parked["placed_bytes"]
            divvytest.wait_for(lambda: not divvytest.is_alive(worker), 5, "its worker has not ended")
            go_on(child)
            assert daemon.session_of(child.pid)["worker_pid"]


def test_a_parked_session_is_resumed_on_request(program):
    with divvytest.Daemon() as daemon, waiting(daemon, program) as child:
        session = park(daemon, child.pid)
        daemon.cli("resume", str(session["id"]))
        divvytest.wait_for(lambda: daemon.session_of(child.pid)["state"] not in ("parked", "resuming"), 10,
                           "it has no worker")
        go_on(child)


def test_a_parked_session_outlives_its_daemon(program):
    with divvytest.Daemon() as daemon, waiting(daemon, program) as child:
        for _ in range(2):
            park(daemon, child.pid)
            daemon.kill()
            daemon.start()
            assert daemon.session_of(child.pid)["state"] == "parked"
            go_on(child)


def test_a_parked_session_can_be_ended(program):
    with divvytest.Daemon() as daemon:
        child = daemon.popen([program("parked")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert child.stdout.readline() == "ready\n"
            session = park(daemon, child.pid)
            daemon.cli("end", str(session["id"]))
            _, said = child.communicate("go\n", timeout=30)
            assert child.returncode != 0 and "CL_OUT_OF_RESOURCES" in said
            assert not daemon.sessions()
        finally:
            divvytest.kill_group(child)


def test_the_end_of_a_program_ends_its_parked_session(program):
    with divvytest.Daemon() as daemon:
        leftovers = divvytest.Leftovers(daemon)
        child = daemon.popen([program("parked")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert child.stdout.readline() == "ready\n"
            park(daemon, child.pid)
        finally:
            divvytest.kill_group(child)
            child.stdin.close()
            child.stdout.close()
        divvytest.wait_for(lambda: not daemon.sessions(), 10, "its session has not ended")
        del leftovers


@pytest.mark.parametrize("path", list(PATHS))
def test_random_kernels_compute_the_same_while_they_are_parked(program, path):
    command = [program("ranges"), "3", "4", "60"]
    bare = divvytest.run_bare(command, timeout=1200)
    with divvytest.Daemon(PATHS[path]) as daemon:
        child = daemon.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with often(daemon, child.pid, 0.1) as count:
            out, err = child.communicate(timeout=600)
        assert child.returncode == 0, err
        assert out == bare.stdout
        assert count[0] > 3
