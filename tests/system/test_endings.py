"""How things end: a killed tenant, a killed worker, a program that leaves without a word, the
daemon itself. One second later nothing may be left."""

import os
import resource
import signal
import subprocess

import pytest

import divvytest

DRIVERS_BYTES = 64 << 20   # of address space: too little for the drivers


def start(daemon, command, **kwargs):
    """Starts a tenant and waits until it says that it is ready."""
    child = daemon.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)
    line = child.stdout.readline()
    if line != "ready\n":
        divvytest.kill_group(child)
        raise AssertionError("not ready: %r %s" % (line, child.stderr.read()))
    return child


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_killed_tenant_leaves_nothing(daemon, program, signum):
    before = divvytest.Leftovers(daemon)
    child = start(daemon, [program("leave"), "hold"])
    session = daemon.session_of(child.pid)
    assert divvytest.is_alive(session["worker_pid"])
    assert session["memory_bytes"] > 0
    child.send_signal(signum)
    child.wait()
    before.assert_gone()
    assert not divvytest.is_alive(session["worker_pid"])
    assert daemon.sessions() == []


def test_killed_while_computing_leaves_nothing(daemon, program):
    """The same in the middle of transfers and kernels, again and again."""
    before = divvytest.Leftovers(daemon)
    for round_number in range(5):
        child = start(daemon, [program("compute"), "1", "60", "8"])
        child.kill()
        child.wait()
        before.assert_gone()


def test_killed_during_start(daemon, program):
    """At moments from before the connection to after the first build."""
    before = divvytest.Leftovers(daemon)
    for delay_ms in (0, 1, 3, 6, 10, 15, 20, 30, 50, 80, 120):
        child = daemon.popen([program("compute"), "1", "60"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            child.wait(timeout=delay_ms / 1000)
        except subprocess.TimeoutExpired:
            pass
        child.kill()
        child.wait()
    before.assert_gone()
    done = daemon.run([program("compute"), "2", "0"])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", ["return", "exit", "_exit", "quick_exit", "thread", "callback"])
def test_leaving_without_release(daemon, program, mode):
    before = divvytest.Leftovers(daemon)
    done = daemon.run([program("leave"), mode], timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr == ""
    before.assert_gone()


def test_abort(daemon, program):
    before = divvytest.Leftovers(daemon)
    done = daemon.run([program("leave"), "abort"], timeout=60)
    assert done.returncode == -signal.SIGABRT
    before.assert_gone()


def test_leaving_while_a_kernel_runs(daemon, program):
    """A kernel that runs for minutes does not keep the worker of a tenant that is gone."""
    before = divvytest.Leftovers(daemon)
    done = daemon.run([program("leave"), "kernel"], timeout=60)
    assert done.returncode == 0, done.stderr
    before.assert_gone()


@pytest.mark.parametrize("mode", ["idle", "finish", "wait", "read", "kernel", "write"])
def test_killed_worker(daemon, program, mode):
    """Every call of its tenant comes back with an error; the tenant lives and ends by itself."""
    before = divvytest.Leftovers(daemon)
    child = start(daemon, [program("lost_worker"), mode], stdin=subprocess.PIPE)
    try:
        session = daemon.session_of(child.pid)
        os.kill(session["worker_pid"], signal.SIGKILL)
        divvytest.wait_for(lambda: not divvytest.is_alive(session["worker_pid"]), divvytest.SOON_S,
                           "the worker does not end")
        try:
            out, err = child.communicate("go\n", timeout=90)
        except subprocess.TimeoutExpired:
            raise AssertionError("the tenant hangs\n" + divvytest.stack_traces(child.pid)) from None
    finally:
        divvytest.kill_group(child)
    assert child.returncode == 0, "code %d\n%s%s" % (child.returncode, out, err)
    before.assert_gone()


def test_stopped_worker_is_nobody_elses_trouble(daemon, program):
    """A worker that stands still holds up its own tenant only."""
    before = divvytest.Leftovers(daemon)
    stuck = start(daemon, [program("compute"), "1", "3600"])
    worker = daemon.session_of(stuck.pid)["worker_pid"]
    os.kill(worker, signal.SIGSTOP)
    try:
        for seed in range(3):
            done = daemon.run([program("compute"), str(seed), "0.5"], timeout=60)
            assert done.returncode == 0, done.stderr
        divvytest.wait_for(lambda: {s["tenant_pid"] for s in daemon.sessions()} == {stuck.pid},
                           divvytest.SOON_S, "sessions of programs that have ended are still listed")
    finally:
        stuck.kill()
        stuck.wait()
    before.assert_gone()


def test_daemon_ends_with_its_workers(daemon, program):
    child = start(daemon, [program("compute"), "1", "3600"])
    worker = daemon.session_of(child.pid)["worker_pid"]
    daemon.stop()
    try:
        divvytest.wait_for(lambda: not divvytest.is_alive(worker) and not daemon.processes(),
                           divvytest.SOON_S, "processes outlive the daemon")
        out, err = child.communicate(timeout=30)
        assert child.returncode == 3 and "opencl error" in err, "code %d %s" % (
            child.returncode, err)
        assert not os.path.exists(os.path.join(daemon.dir, "session.sock"))
    finally:
        divvytest.kill_group(child)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGUSR1])
@pytest.mark.parametrize("path", list(divvytest.DATA_PATHS))
def test_programs_outlive_a_daemon_that_leaves_them(path, program, signum):
    """Without a daemon no session is recalled or granted. A session with a worker waits for the next daemon as long
    as it may, and then goes on, even if it was waiting for its turn."""
    with divvytest.Daemon((divvytest.DATA_PATHS[path] or "") + "restart-within: 1s\n") as daemon:
        outlive(daemon, program, signum)


def outlive(daemon, program, signum):
    children = [start(daemon, [program("compute"), str(seed), "3"]) for seed in range(3)]
    try:
        daemon.kill(signum)
        for child in children:
            out, err = child.communicate(timeout=60)
            assert child.returncode == 0, "code %d\n%s%s" % (child.returncode, out, err)
    finally:
        for child in children:
            divvytest.kill_group(child)


def test_no_daemon_is_no_device(program, tmp_path):
    """With DIVVY_DIR naming a place without a daemon a program fails soon and with a message."""
    env = divvytest.bare_env()
    env.pop("OCL_ICD_VENDORS", None)
    env["DIVVY_DIR"] = str(tmp_path / "nothing")
    done = subprocess.run([divvytest.binary("divvy"), "run", "--", program("compute"), "1", "0"],
                          env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert done.stderr.strip() != ""


def test_a_zygote_that_found_no_memory_for_its_drivers(program):
    """It has no devices to offer, and never will. It is replaced, and programs that start meanwhile wait."""
    with divvytest.Daemon() as daemon:
        assert daemon.run([program("compute"), "1", "0"]).returncode == 0
        launcher = next(pid for pid in daemon.processes() if divvytest.name_of(pid) == "divvy-launcher")
        before = resource.prlimit(launcher, resource.RLIMIT_AS)
        resource.prlimit(launcher, resource.RLIMIT_AS, (DRIVERS_BYTES, before[1]))
        for pid in daemon.processes():
            if divvytest.name_of(pid) == "divvy-zygote":
                os.kill(pid, signal.SIGKILL)
        daemon.await_log("warning: no device:", 20)
        resource.prlimit(launcher, resource.RLIMIT_AS, before)
        done = daemon.run([program("compute"), "1", "0"])
        assert done.returncode == 0, done.stderr
        daemon.await_log("drivers are loaded anew")
