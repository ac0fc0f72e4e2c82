"""divvyd is restarted under running tenants: killed, asked to leave, or in the middle of anything. Programs
do not notice: calls wait, results are right, shares and memory are those of before."""

import json
import os
import signal
import socket
import struct
import subprocess
import time

import pytest

import divvytest
import leasechannel

READY_S = 60
SIGNALS = [signal.SIGKILL, signal.SIGUSR1]
SYNC_MAGIC, SYNC_STATE, SYNC_WAITS = 0x636E7973, 1, 2  # src/wire/lease/sync.h
SYNC = struct.Struct("=IHHIIQ8Q")
MIB = 1 << 20


def start_tenants(daemon, program, count, mib="4"):
    children = [daemon.popen([program("compute"), str(i), "36000", mib], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE) for i in range(count)]
    for child in children:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
    return children


def finish(children):
    """All end in good order with right results; returns their rounds."""
    for child in children:
        child.send_signal(signal.SIGUSR1)
    rounds = []
    for child in children:
        out, err = child.communicate(timeout=READY_S)
        assert child.returncode == 0, (child.returncode, out, err)
        rounds.append(int(out.split()[1]))
    return rounds


def restart(daemon, signum, away_s=0.0):
    daemon.kill(signum)
    time.sleep(away_s)
    daemon.start()


def end(children):
    for child in children:
        if child.poll() is None:
            child.kill()
        child.communicate()


def lasting(daemon):
    """Processes that outlive divvyd: each divvyd has a launcher of its own."""
    return {pid for pid in daemon.processes() if divvytest.name_of(pid) != "divvy-launcher"}


@pytest.mark.parametrize("signum", SIGNALS, ids=["killed", "asked"])
def test_sessions_go_on(daemon, program, signum):
    children = start_tenants(daemon, program, 4)
    try:
        before = {s["id"]: s for s in daemon.sessions()}
        everybody = lasting(daemon) & lasting(daemon)   # without short-lived processes
        for _ in range(3):
            restart(daemon, signum, 0.3)
            after = {s["id"]: s for s in daemon.sessions()}
            assert after.keys() == before.keys()
            for number, session in after.items():
                for field in ("tenant_pid", "worker_pid", "tenant", "command"):
                    assert session[field] == before[number][field]
        daemon.cli("check")
        divvytest.wait_for(lambda: lasting(daemon) == everybody, 10,
                           "zygote and keeper are not those of before")
        # they are arbitrated as before: all of them get on
        grants = {n: lease_grants(daemon, n) for n in before}
        time.sleep(1)
        for number in before:
            divvytest.wait_for(lambda: lease_grants(daemon, number) > grants[number], 20,
                               "session %d has no turns" % number)
        assert all(rounds > 10 for rounds in finish(children))
        divvytest.wait_for(lambda: not daemon.sessions(), 20, "sessions are left")
        daemon.cli("check")
    finally:
        end(children)


def lease_grants(daemon, session):
    told = json.loads(daemon.cli("explain", str(session), "--json"))
    return sum(device["grants"] for device in told["devices"])


@pytest.mark.parametrize("signum", SIGNALS, ids=["killed", "asked"])
def test_who_comes_meanwhile_waits(daemon, program, signum):
    children = start_tenants(daemon, program, 1)
    try:
        daemon.kill(signum)
        late = daemon.popen([program("compute"), "9", "1", "1"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
        children.append(late)
        time.sleep(1)
        assert late.poll() is None, late.communicate()
        daemon.start()
        out, err = late.communicate(timeout=READY_S)
        assert late.returncode == 0, (out, err)
        finish(children[:1])
    finally:
        end(children)


def test_many_restarts_while_programs_come_and_go(daemon, program):
    """At whatever step a daemon is cut off, the program concerned does not notice."""
    children = start_tenants(daemon, program, 2)
    coming = []
    try:
        for turn in range(30):
            coming.append(daemon.popen([program("compute"), str(100 + turn), "0.3", "1"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            time.sleep(0.005 * turn)
            restart(daemon, SIGNALS[turn % 2])
        for child in coming:
            out, err = child.communicate(timeout=READY_S)
            assert child.returncode == 0, (child.returncode, out, err)
        divvytest.wait_for(lambda: len(daemon.sessions()) == 2, 20,
                           lambda: "sessions are left: %s" % daemon.sessions())
        finish(children)
        divvytest.wait_for(lambda: not daemon.sessions(), 20, "sessions are left")
        daemon.cli("check")
        divvytest.wait_for(lambda: len(lasting(daemon)) <= 2, 20,
                           lambda: "processes are left: %s" % [
                               divvytest.name_of(pid) for pid in daemon.processes()])
    finally:
        end(children + coming)


def test_what_an_operator_has_set_lasts(daemon, program):
    children = start_tenants(daemon, program, 2)
    try:
        session = daemon.sessions()[0]
        daemon.cli("set", session["tenant"], "--limit", "40%", "--weight", "3")
        daemon.cli("policy", "0", "fair")
        restart(daemon, signal.SIGKILL)
        told = daemon.cli("tenants")
        line = next(line for line in told.splitlines() if session["tenant"] in line)
        assert "40%" in line and " 3 " in line, told
        assert "fair" in daemon.cli("devices")
        finish(children)
    finally:
        end(children)


def test_without_keeper_sessions_go_on_alone(daemon, program):
    """When the keeper is killed as well, programs go on, without arbitration."""
    children = start_tenants(daemon, program, 2)
    try:
        daemon.kill_with_keeper()
        daemon.start()
        assert daemon.sessions() == []
        assert all(rounds > 1 for rounds in finish(children))
    finally:
        end(children)


def test_a_new_keeper_is_as_good(daemon, program):
    children = start_tenants(daemon, program, 2)
    try:
        for _ in range(2):   # also one that ends at once, a little later
            old = daemon.keeper()
            os.kill(old, signal.SIGKILL)
            divvytest.wait_for(lambda: daemon.keeper() not in (old, None), 15, "no new keeper")
            daemon.sessions()   # it has everything when this is answered
        restart(daemon, signal.SIGKILL)
        assert len(daemon.sessions()) == 2
        finish(children)
    finally:
        end(children)


def test_another_build_starts_its_own_zygote(daemon, program):
    children = start_tenants(daemon, program, 2)
    try:
        before = {s["worker_pid"] for s in daemon.sessions()}
        daemon.extra_env["POCL_UNKNOWN"] = "1"   # the same to the zygote as another program
        restart(daemon, signal.SIGKILL)
        assert {s["worker_pid"] for s in daemon.sessions()} == before
        done = daemon.run([program("compute"), "5", "0.1", "1"])
        assert done.returncode == 0, done.stderr
        divvytest.wait_for(lambda: [divvytest.name_of(pid) for pid in daemon.processes()].count(
            "divvy-zygote") == 1, 10, "the old zygote goes on")
        finish(children)
        divvytest.wait_for(lambda: not daemon.sessions(), 20, "sessions are left")
    finally:
        end(children)


def test_the_keeper_is_for_divvyd_alone(program):
    """Another user cannot connect; a process of the same user is not heard while there is a daemon."""
    with divvytest.Daemon(system=True) as daemon:
        children = start_tenants(daemon, program, 1)
        try:
            path = os.path.join(daemon.dir, "keeper.sock")
            asks = ("import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
                    "s.connect(%r)" % path)
            done = subprocess.run(["/usr/bin/python3", "-c", asks], user=65534, group=65534,
                                  extra_groups=[], capture_output=True, text=True, timeout=20)
            assert "PermissionError" in done.stderr, done.stderr
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
                other.connect(path)
                # magic, version, list
                other.send(bytes.fromhex("6b656570 0100 0300") + bytes(16))
                other.settimeout(1)
                with pytest.raises(TimeoutError):
                    other.recv(100)
            restart(daemon, signal.SIGKILL)
            assert len(daemon.sessions()) == 1
            finish(children)
        finally:
            end(children)


def test_a_state_file_that_was_spoiled(daemon, program):
    """Its contents are checked: nonsense is ignored, and the session concerned goes on alone."""
    children = start_tenants(daemon, program, 2)
    try:
        daemon.kill(signal.SIGKILL)
        with open(os.path.join(daemon.dir, "state"), "r+b") as state:
            state.seek(0x4000)
            some = bytearray(state.read(1 << 16))
            for i in range(0, len(some), 5):
                some[i] ^= 0x5a
            state.seek(0x4000)
            state.write(some)
        daemon.start()
        daemon.sessions()
        daemon.cli("check")
        done = daemon.run([program("compute"), "5", "0.1", "1"])
        assert done.returncode == 0, done.stderr
        finish(children)
    finally:
        end(children)


def test_who_does_not_read_is_asked_later(daemon):
    """A session whose channel is full when divvyd comes back is asked what it holds once it reads."""
    session = leasechannel.Session(daemon)
    assert session.status == 0, session.text
    session.say(leasechannel.WANT)
    first = session.granted()
    for serial in range(first, first + 3000):  # each is answered with a grant that the session does not read
        session.say(leasechannel.RELEASE, serial=serial)
        session.say(leasechannel.WANT)
    restart(daemon, signal.SIGKILL)
    daemon.await_log("lease channel full, grants delayed")
    say_state(session, SYNC_WAITS)
    assert session.hear()[0] == leasechannel.GRANT
    session.close()


def say_state(session, flags=0, placed=0, evicting=0):
    """Answers the question of the daemon that has come, as soon as it is there."""
    session.socket.settimeout(10)
    while True:
        data = session.socket.recv(4096)
        assert data, "divvyd has hung up"
        if len(data) == SYNC.size and SYNC.unpack(data)[0] == SYNC_MAGIC:
            break
    magic, version, _, _, _, asked, *_ = SYNC.unpack(data)
    session.socket.send(SYNC.pack(magic, version, SYNC_STATE, 0, flags, asked, 0, 0, placed, 0, 0, 0, 0,
                                  evicting))


def test_an_answer_to_the_earlier_daemon_is_none_to_the_next():
    """A session that was asked to evict before the restart is not asked again; but its answer that it keeps the
    memory went to the earlier daemon."""
    text = 'devices:\n  - match: "*"\n    unified: no\n    capacity: 16MiB\n'
    with divvytest.Daemon(text) as daemon:
        has_all, wants = leasechannel.Session(daemon), leasechannel.Session(daemon)
        has_all.say_of_memory(leasechannel.PLACE, 16 * MIB, leasechannel.AHEAD, number=1)
        assert has_all.hear_of_memory() == (leasechannel.PLACED, 16 * MIB)
        wants.say(leasechannel.WANT)
        wants.granted()
        wants.say_of_memory(leasechannel.PLACE, 12 * MIB, number=1)
        assert has_all.hear_of_memory() == (leasechannel.EVICT, 12 * MIB)
        before = has_all.number
        restart(daemon, signal.SIGKILL)
        say_state(has_all, placed=16 * MIB, evicting=12 * MIB)
        say_state(wants, SYNC_WAITS)
        wants.granted()
        wants.say_of_memory(leasechannel.PLACE, 12 * MIB, number=2)
        assert has_all.hear_of_memory(leasechannel.QUIET_S) is None
        has_all.say_of_memory(leasechannel.KEEPS, 12 * MIB, number=before)
        assert has_all.hear_of_memory() == (leasechannel.EVICT, 12 * MIB)
        assert has_all.number > before
        has_all.say_of_memory(leasechannel.UNPLACE, 12 * MIB, number=has_all.number)
        assert (wants.hear_of_memory()[0], wants.number) == (leasechannel.PLACED, 2)
        has_all.close()
        wants.close()
