"""Machines with several devices: on which of them a tenant's request is kept, and who is told what."""

import contextlib
import json
import os
import signal
import subprocess

import pytest

import divvytest
import leasechannel as lease

FOUR = {"POCL_DEVICES": "pthread pthread pthread pthread", "POCL_MAX_PTHREAD_COUNT": "1"}


class Machine:
    """A daemon with several devices, and programs that run until the test ends."""

    def __init__(self, daemon, several, stack):
        self.daemon, self.several, self.stack = daemon, several, stack

    def command(self, *arguments, options=()):
        return [divvytest.binary("divvy"), "run", *options, "--", self.several,
                *map(str, arguments)]

    def run(self, *arguments, options=(), env=None):
        """The lines that the program prints, and its exit code."""
        done = subprocess.run(self.command(*arguments, options=options), text=True, timeout=60,
                              env={**self.daemon.env(), **(env or {})}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.stdout.splitlines(), done.returncode, done.stderr

    def start(self, *arguments, options=()):
        """A program that computes until the test ends. Returns the number of its session."""
        child = subprocess.Popen(self.command(*arguments, 600, options=options), text=True,
                                 env=self.daemon.env(), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE)
        self.stack.callback(lambda: (child.kill(), child.communicate()))
        lines = iter(child.stdout.readline, "")
        said = []
        for line in lines:
            said.append(line)
            if line == "ready\n":
                return self.daemon.session_of(child.pid)["id"]
        raise AssertionError("the program ended: %s" % said)

    def devices_of(self, session):
        """The numbers of the devices that a session is on, with the request that is kept there."""
        answer = json.loads(self.daemon.cli("explain", str(session), "--json"))
        return {d["index"]: d["request_ppm"] for d in answer["devices"]}


@pytest.fixture
def machine(program):
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(divvytest.Daemon(env=FOUR))
        yield Machine(daemon, program("several"), stack)


HALF = ("--request", "60%")


def test_a_device_that_the_program_chooses_takes_the_request_with_it(machine):
    """Where it was admitted and does nothing is free again."""
    for device in (3, 2, 1, 0):
        first = machine.start(device, 0, options=("--request", "100%"))
        (used, request), = machine.devices_of(first).items()
        assert request == 1_000_000
    assert machine.run(0, 0, options=("--request", "1%"))[1] == 125


def test_a_program_that_insists_on_a_full_device_is_told(machine, tmp_path):
    log = tmp_path / "log"
    first = machine.start(0, 0, options=HALF)
    taken = next(iter(machine.devices_of(first)))
    refusals = 0
    for device in range(4):
        lines, code, _ = machine.run(device, 0, options=HALF, env={"DIVVY_LOG": str(log)})
        if code == 0:
            continue
        refusals += 1
        assert lines[-1] == "refused clCreateContext CL_DEVICE_NOT_AVAILABLE"
        told, = [line for line in lines if line.startswith("told ")]
        assert told.startswith("told divvy: a request of 60% cannot be kept on")
        assert "60% of it is promised already" in told
        assert "divvy: no device: a request of 60%" in log.read_text()
        assert "cannot have a device: a request of 60%" in machine.daemon.log
    assert refusals == 1 and machine.devices_of(first) == {taken: 600_000}


def test_a_queue_on_a_full_device_is_refused(machine):
    """The context is of all devices, so it is there already."""
    machine.start(0, 0, options=HALF)
    answers = [machine.run("all", queue, options=HALF) for queue in range(4)]
    refused = [lines for lines, code, _ in answers if code == 3]
    assert [code for _, code, _ in answers].count(0) == 3
    assert refused[0][-1] == "refused clCreateCommandQueue CL_OUT_OF_RESOURCES"
    assert refused[0][-2].startswith("told divvy: a request of 60% cannot be kept on")


def test_sessions_without_requests_are_refused_nowhere(machine):
    for device in range(4):
        machine.start(device, 0, options=("--request", "100%"))
    for device in range(4):
        assert machine.run(device, 0)[1] == 0
    assert machine.run("all", 3)[1] == 0


def test_leases_join_at_their_first_wish(machine):
    first = lease.Session(machine.daemon, request=700_001)
    second = lease.Session(machine.daemon, request=700_001)
    assert first.status == second.status == 0
    for device in range(4):
        first.say(lease.WANT, device=device)
        assert first.hear_of(device)[0] == lease.GRANT
    # one process is one tenant: its requests are no sum
    assert machine.devices_of(first.id) == {d: 700_000 for d in range(4)}
    first.close()
    second.close()


def test_join_is_answered(machine):
    machine.start(2, 0, options=HALF)
    taken = next(iter(machine.devices_of(machine.daemon.sessions()[0]["id"])))
    session = lease.Session(machine.daemon, request=600_001)
    for device in range(4):
        session.say(lease.JOIN, serial=100 + device, device=device)
        kind, serial, _ = session.hear_of(device)
        assert serial == 100 + device
        assert kind == (lease.TURNED_AWAY if device == taken else lease.JOINED)
    assert "cannot be kept" in machine.daemon.cli("explain", str(session.id))
    session.close()


def test_what_an_operator_sets_holds_on_devices_used_later(machine):
    session = lease.Session(machine.daemon)
    session.say(lease.WANT, device=0)
    assert session.hear_of(0)[0] == lease.GRANT
    machine.daemon.cli("set", str(session.id), "--weight", "7", "--request", "20%")
    machine.daemon.kill(signal.SIGKILL)
    machine.daemon.start()
    session.answer_state(4)
    session.say(lease.WANT, device=3)
    divvytest.wait_for(lambda: 3 in machine.devices_of(session.id), 10, "it does not join")
    answer = json.loads(machine.daemon.cli("explain", str(session.id), "--json"))
    assert {d["index"]: (d["weight"], d["request_ppm"]) for d in answer["devices"]} == {
        0: (7, 200_000), 3: (7, 200_000)}
    session.close()
