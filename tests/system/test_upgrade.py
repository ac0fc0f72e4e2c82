"""Clients and daemons of different releases, and configurations that change while programs run."""

import json
import os
import signal
import socket
import subprocess
import threading

import pytest

import divvytest
import leasechannel as lease

OPENCL, VERSION = 1, 2  # src/wire/session/handshake.h
OK, OTHER_VERSION = 0, 1


def hello(directory, newest, oldest):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(30)
        client.connect(os.path.join(directory, "session.sock"))
        fields = lease.MAGIC, newest, oldest, OPENCL, 0, 0, 0, 0, 0, 0
        client.send(lease.HELLO.pack(*fields) if newest < 2 else lease.HELLO_2.pack(*fields, b""))
        _, version, status, _, _, text = lease.WELCOME.unpack(client.recv(lease.WELCOME.size))
        return version, status, text.split(b"\0")[0].decode()


@pytest.mark.parametrize("newest, oldest", [(VERSION, VERSION), (VERSION + 6, VERSION), (VERSION, 0)])
def test_a_client_that_knows_our_version_is_served(newest, oldest):
    with divvytest.Daemon() as daemon:
        version, status, text = hello(daemon.dir, newest, oldest)
        assert (version, status, text) == (VERSION, OK, "")


def test_a_client_of_the_release_before_is_served():
    with divvytest.Daemon() as daemon:
        version, status, text = hello(daemon.dir, VERSION - 1, VERSION - 1)
        assert (version, status, text) == (VERSION - 1, OK, "")


@pytest.mark.parametrize("newest, oldest", [(0, 0), (VERSION + 6, VERSION + 1), (VERSION, VERSION + 1)])
def test_another_client_is_told_what_to_do(newest, oldest):
    with divvytest.Daemon() as daemon:
        _, status, text = hello(daemon.dir, newest, oldest)
        assert status == OTHER_VERSION
        assert "versions %d to %d" % (oldest, newest) in text and "install the same release" in text
        daemon.await_log(text)


def serve_as(directory, answer):
    """A daemon of another release: reads one hello and answers with these bytes."""
    os.makedirs(directory)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(os.path.join(directory, "session.sock"))
    listening.listen()
    listening.settimeout(30)

    def serve():
        client, _ = listening.accept()
        with client:
            client.recv(4096)
            client.send(answer)
    thread = threading.Thread(target=serve)
    thread.start()
    return listening, thread


@pytest.mark.parametrize("answer, words", [
    (lease.WELCOME.pack(lease.MAGIC, VERSION + 1, OTHER_VERSION, 0, 0, b"install the same release of both"),
     "install the same release of both"),
    (lease.WELCOME.pack(lease.MAGIC, VERSION + 1, OK, 1, 1 << 30, b""), "is it from another release?"),
    (b"what is this?", "is it from another release?"),
], ids=["refused", "newer", "nonsense"])
def test_a_program_under_a_newer_daemon(tmp_path, answer, words):
    """It finds no device, goes on without, and the library's log says why."""
    directory, log = str(tmp_path / "run"), tmp_path / "log"
    listening, thread = serve_as(directory, answer)
    with divvytest.Daemon() as daemon:  # for what `divvy run` sets
        env = daemon.env()
        command = daemon.command(["env", "DIVVY_DIR=" + directory, "DIVVY_LOG=%s" % log, "clinfo", "-l"])
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    thread.join()
    listening.close()
    assert done.returncode in (0, 1) and "Device" not in done.stdout, done
    assert words in log.read_text()


# ---- configurations ----


def reload(daemon, text, expect):
    before = len(daemon.log)
    with open(os.path.join(daemon.home, "config.yaml"), "w") as config:
        config.write(text)
    os.kill(daemon.pid, signal.SIGHUP)
    daemon.await_log(expect, after=before)
    return daemon.log[before:]


FIRST = """devices:
  - match: "*"
    capacity: 64MiB
tenants:
  - name: first
    weight: 3
"""


def test_a_configuration_is_taken_whole_or_not_at_all(program):
    """Programs go on under the old one; a mistake anywhere, also after what is right, changes nothing."""
    with divvytest.Daemon(FIRST) as daemon:
        child = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE)
        try:
            assert child.stdout.readline() == "ready\n"
            for mistake, words in [("sessions-per-user: none\n", "sessions-per-user"),
                                   ("nonsense: [\n", "config.yaml:"),
                                   ("deadlines:\n  batch: 1ns\n", "expected"),
                                   ("worker-processes: 3\n", "a number from 16")]:
                said = reload(daemon, FIRST.replace("first", "other").replace("64MiB", "1GiB") + mistake,
                              "the configuration is not reloaded, the old one stays in force")
                assert words in said
                assert [t["name"] for t in tenants(daemon)] == ["first"]
                assert daemon.run([program("compute"), "1", "0"]).returncode == 0
                assert [t["name"] for t in tenants(daemon)] == ["first"]
            reload(daemon, FIRST.replace("first", "other"), "configuration reloaded")
            second = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE)
            try:
                assert second.stdout.readline() == "ready\n"
                assert {t["name"] for t in tenants(daemon)} == {"first", "other"}
            finally:
                divvytest.kill_group(second)
                second.stdout.close()
            assert child.poll() is None
        finally:
            divvytest.kill_group(child)
            child.stdout.close()


def tenants(daemon):
    return json.loads(daemon.cli("tenants", "--json"))["tenants"]
