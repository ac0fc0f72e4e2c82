"""An attacker that takes over one of divvy's processes finds few of root's rights there: the lists below are those of
docs/security.md."""

import os
import re
import signal
import socket
import struct
import subprocess

import pytest

import divvytest

# linux/capability.h
NUMBERS = {"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_KILL": 5, "CAP_SETGID": 6,
           "CAP_SETUID": 7, "CAP_SETPCAP": 8, "CAP_SYS_ADMIN": 21}
LAUNCHER = {"CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL"}
EXPECTED = {"divvyd": {"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL"},
            "divvy-launcher": LAUNCHER, "divvy-zygote": LAUNCHER, "divvy-keeper": set()}


def capabilities(pid, which):
    with open("/proc/%d/status" % pid) as status:
        mask = int(re.search(r"^%s:\s*(\w+)" % which, status.read(), re.M)[1], 16)
    return {name for name, number in NUMBERS.items() if mask & 1 << number} | {
        number for number in range(64) if mask & 1 << number and number not in NUMBERS.values()}


def processes(daemon):
    # the oldest of each name: a child of the zygote keeps that name, and has all rights in its own sandbox
    names = {divvytest.name_of(pid): pid for pid in sorted(daemon.processes(), reverse=True)}
    return {"divvyd": daemon.pid, **{name: names.get(name) for name in EXPECTED if name != "divvyd"}}


def assert_few_rights(daemon):
    divvytest.wait_for(lambda: all(processes(daemon).values()), 10, lambda: str(processes(daemon)))
    for name, pid in processes(daemon).items():
        for which in ("CapEff", "CapPrm"):
            assert capabilities(pid, which) == EXPECTED[name], (name, which)
        for which in ("CapInh", "CapAmb"):
            assert capabilities(pid, which) == set(), (name, which)
        # a later keeper cannot narrow it; the next line shows that it gains nothing by executing a program
        most = EXPECTED[name] if name != "divvy-keeper" else EXPECTED["divvyd"]
        assert capabilities(pid, "CapBnd") <= most, name
        with open("/proc/%d/status" % pid) as status:
            assert ("NoNewPrivs:\t1" in status.read()) == (name in ("divvyd", "divvy-keeper")), name


def assert_serves(daemon, program):
    child = daemon.popen([program("compute"), "1", "600"], user=4101, group=4101, extra_groups=[],
                         stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == "ready\n", daemon.log
        worker = daemon.session_of(child.pid)["worker_pid"]
        for which in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"):
            assert capabilities(worker, which) == set(), which
    finally:
        divvytest.kill_group(child)
        child.stdout.close()
    divvytest.wait_for(lambda: not divvytest.is_alive(worker), 10, "divvyd cannot end the worker")


def test_each_process_has_the_rights_it_needs(program):
    with divvytest.Daemon("cache-size: 64MiB\n", system=True) as daemon:
        assert_serves(daemon, program)
        assert_few_rights(daemon)
        os.kill(processes(daemon)["divvy-zygote"], signal.SIGKILL)  # which divvyd could not start itself
        daemon.await_log("the zygote has ended (signal 9 (SIGKILL))")
        assert_serves(daemon, program)
        assert_few_rights(daemon)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.await_log("configuration reloaded")
        os.kill(processes(daemon)["divvy-keeper"], signal.SIGKILL)
        assert_serves(daemon, program)
        assert_few_rights(daemon)
        daemon.kill(signal.SIGUSR1)
        daemon.start()
        assert_serves(daemon, program)
        assert_few_rights(daemon)


def test_the_documented_lists_are_these():
    with open(os.path.join(divvytest.REPOSITORY, "docs", "security.md")) as page:
        rows = dict(re.findall(r"^\| `(divvy[-a-z]*)` \| (.*?) \|", page.read(), re.M))
    assert {name: set(re.findall(r"CAP_\w+", rows[name])) for name in EXPECTED} == EXPECTED


def test_a_users_daemon_has_none(program):
    with divvytest.Daemon(user=65534) as daemon:
        divvytest.wait_for(lambda: all(processes(daemon).values()), 10, "not all processes are there")
        for pid in processes(daemon).values():
            assert capabilities(pid, "CapEff") == capabilities(pid, "CapPrm") == set()


MAGIC = 0x79767664  # docs/wire.md
PROBE, FAILED, PROBED = 2, 2, 4
SAME_USER = 0xffffffff


@pytest.mark.parametrize("user, group, event", [
    (0, 4101, FAILED), (4101, 0, FAILED), (SAME_USER, SAME_USER, FAILED), (4101, 4101, PROBED)])
def test_the_systems_zygote_makes_no_root(user, group, event):
    """Not even for a divvyd that an attacker has taken over."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    request = struct.pack("<IIQQQII", MAGIC, PROBE, 0, 0, 0, 0, 0) + struct.pack(
        "<IIII32s128s5656x", 0, user, group, 0, b"", b"/")
    with ours, subprocess.Popen(
            [divvytest.binary("divvy-worker"), "--system-zygote"], env=divvytest.bare_env(),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[3],
            preexec_fn=lambda: os.dup2(theirs.fileno(), 3)) as zygote:
        try:
            theirs.close()
            ours.settimeout(30)
            ours.send(request)
            assert struct.unpack_from("<II", ours.recv(1 << 16)) == (MAGIC, event)
        finally:
            zygote.kill()
