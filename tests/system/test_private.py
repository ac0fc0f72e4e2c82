"""`divvy run` where no daemon can be reached: it starts a private one, which ends when idle."""

import os
import re
import signal
import socket
import subprocess
import time
import uuid

import pytest

import divvytest

# The private daemon waits a minute for the next program.
IDLE_END_S = 90


@pytest.fixture
def alone(tmp_path):
    """An environment in which neither the system's nor the user's daemon is found."""
    if os.path.exists("/run/divvy/session.sock"):
        pytest.skip("this machine has a system-wide divvyd")
    runtime = tmp_path / "r"
    runtime.mkdir(mode=0o700)
    env = divvytest.bare_env()
    env.pop("OCL_ICD_VENDORS", None)
    env.pop("DIVVY_DIR", None)
    mark = uuid.uuid4().hex
    env.update({"XDG_RUNTIME_DIR": str(runtime), divvytest.MARK: mark})
    yield env
    for pid in marked(mark):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass


def marked(mark):
    """Pids of the processes that carry this mark in their environment."""
    found = []
    needle = ("%s=%s" % (divvytest.MARK, mark)).encode()
    for pid in divvytest.all_pids():
        try:
            with open("/proc/%d/environ" % pid, "rb") as environ:
                if needle in environ.read().split(b"\0") and divvytest.is_alive(pid):
                    found.append(pid)
        except OSError:
            pass
    return found


def divvy_run(env, command, **kwargs):
    return subprocess.run([divvytest.binary("divvy"), "run", "--", *command], env=env,
                          capture_output=True, text=True, timeout=120, **kwargs)


def test_private_daemon(alone, program):
    done = divvy_run(alone, [program("compute"), "1", "0"])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ready\ndone 1\n"
    mark = alone[divvytest.MARK]
    divvytest.wait_for(lambda: not marked(mark), IDLE_END_S, lambda: "still there: %s" % [
        open("/proc/%d/cmdline" % pid).read() for pid in marked(mark)])


def test_private_daemon_of_a_services_program(alone, program, tmp_path):
    """It writes nothing into the directory of the service, and does not speak for it."""
    state, path = tmp_path / "state", str(tmp_path / "notify")
    state.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        service = {**alone, "STATE_DIRECTORY": str(state), "JOURNAL_STREAM": "1:2", "NOTIFY_SOCKET": path}
        done = divvy_run(service, [program("compute"), "1", "0"])
        assert done.returncode == 0, done.stderr
        log = os.path.join(alone["XDG_RUNTIME_DIR"], "divvy", "divvyd.log")
        divvytest.wait_for(lambda: " over: compute " in open(log).read(), 10, "its session does not end")
        assert os.listdir(state) == []
        assert not re.search(r"<\d>", open(log).read())
        with pytest.raises(BlockingIOError):
            manager.recv(4096, socket.MSG_DONTWAIT)


def test_where_the_system_has_its_own_it_is_said_that_another_is_used(alone, tmp_path):
    """A machine on which divvy is installed, and whose divvyd does not run: no share of its configuration applies."""
    if os.geteuid() != 0:
        pytest.skip("needs to mount")
    etc = tmp_path / "etc"
    subprocess.run(["cp", "-a", "/etc", etc], check=True)
    (etc / "divvy").mkdir(exist_ok=True)
    words = "so a daemon of your own is used: shares and quotas of the system do not apply"
    for is_installed in (False, True):   # each with a daemon of its own
        if is_installed:
            (etc / "divvy" / "divvy.yaml").write_text("sessions-per-user: 4\n")
        else:
            (etc / "divvy" / "divvy.yaml").unlink(missing_ok=True)
        env = {**alone, "XDG_RUNTIME_DIR": str(tmp_path / ("r%d" % is_installed))}
        os.mkdir(env["XDG_RUNTIME_DIR"], mode=0o700)
        command = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', str(etc),
                   divvytest.binary("divvy"), "run", "--", "true"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done
        assert (words in done.stderr) == is_installed, done
        assert ("/etc/divvy/divvy.yaml is there" in done.stderr) == is_installed, done


def test_private_daemon_serves_several(alone, program):
    """Programs started at the same time all work, whichever of them started the daemon."""
    children = [subprocess.Popen([divvytest.binary("divvy"), "run", "--", program("compute"),
                                  str(seed), "1"], env=alone, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True) for seed in range(4)]
    for child in children:
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
        assert out.startswith("ready\ndone")


def test_private_daemon_of_a_killed_program(alone, program):
    """The worker of a killed program is gone, the daemon serves on."""
    assert divvy_run(alone, [program("compute"), "1", "0"]).returncode == 0
    mark = alone[divvytest.MARK]
    before = set(marked(mark))
    child = subprocess.Popen([divvytest.binary("divvy"), "run", "--", program("leave"), "hold"],
                             env=alone, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    child.kill()
    child.communicate()
    divvytest.wait_for(lambda: set(marked(mark)) <= before, divvytest.SOON_S,
                       lambda: "left: %s" % (set(marked(mark)) - before))
    assert divvy_run(alone, [program("compute"), "1", "0"]).returncode == 0


def test_private_daemon_that_hangs(alone):
    assert divvy_run(alone, ["true"]).returncode == 0
    daemon, = [pid for pid in marked(alone[divvytest.MARK]) if open("/proc/%d/comm" % pid).read() == "divvyd\n"]
    os.kill(daemon, signal.SIGSTOP)
    began = time.monotonic()
    done = divvy_run(alone, ["true"])
    assert done.returncode == 125 and "runs, but has not answered for 10 s" in done.stderr, done
    assert time.monotonic() - began < 18


def test_private_daemon_that_was_killed(alone, program):
    """Its sockets are still there, kept for the next one, which goes on with its sessions."""
    first = subprocess.Popen([divvytest.binary("divvy"), "run", "--", program("compute"), "1", "36000"],
                             env=alone, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert first.stdout.readline() == "ready\n"
        daemons = [pid for pid in marked(alone[divvytest.MARK])
                   if open("/proc/%d/comm" % pid).read() == "divvyd\n"]
        assert len(daemons) == 1
        os.kill(daemons[0], signal.SIGKILL)
        done = divvy_run(alone, [program("compute"), "2", "0"])
        assert done.returncode == 0, done.stderr
        listed = subprocess.run([divvytest.binary("divvy"), "ps"], env=alone, capture_output=True,
                                text=True, timeout=60)
        assert "compute" in listed.stdout, listed
        first.send_signal(signal.SIGUSR1)
        out, err = first.communicate(timeout=60)
        assert first.returncode == 0, err
    finally:
        first.kill()
        first.wait()
