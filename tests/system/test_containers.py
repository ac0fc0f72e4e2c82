"""Containers: what the CDI file mounts is enough for a program, and is no more than it needs. A mount namespace, with
and without a user namespace, stands for the container; tests/install tries the same in a tree of its own."""

import os
import shlex
import signal
import socket
import stat
import subprocess

import pytest
import yaml

import divvytest
import namespaces

CDI = os.path.join(divvytest.REPOSITORY, "integration", "cdi", "divvy.yaml")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root's daemon")


@pytest.fixture
def daemon():
    with divvytest.Daemon(system=True) as daemon:
        yield daemon


def containers(daemon):
    return os.path.join(daemon.dir, "containers")


def in_container(command, before, user_namespace):
    """Runs a command with an empty /run, after some lines of shell. Like a container it has a mount namespace, and
    perhaps a user namespace, in which it is an ordinary user. Returns its exit code and what it said."""
    command = namespaces.as_ordinary_user(command) if user_namespace else command
    script = "set -e\nmount -t tmpfs none /run\n%s\nexec %s" % (before, shlex.join(command))
    child = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", script], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if user_namespace:
        namespaces.map_users(child)
    said = child.communicate(timeout=120)[0]
    return child.returncode, said


def mount_directory(daemon):
    return "mkdir /run/divvy; mount --bind -o ro %s /run/divvy" % shlex.quote(containers(daemon))


def computing(program):
    return ["env", "OCL_ICD_VENDORS=" + divvytest.binary("libdivvy-opencl.so"), program("compute"), "1", "0"]


def test_the_cdi_file_has_the_form_of_the_specification():
    """As the specification of CDI 0.3.0 wants it, with nothing that only a later version has."""
    with open(CDI, encoding="utf-8") as file:
        spec = yaml.safe_load(file)
    assert set(spec) == {"cdiVersion", "kind", "devices"}
    assert spec["cdiVersion"] == "0.3.0" and spec["kind"] == "divvy.org/accel"
    device, = spec["devices"]
    assert set(device) == {"name", "containerEdits"} and device["name"] == "all"
    assert set(device["containerEdits"]) == {"mounts"}
    for mount in device["containerEdits"]["mounts"]:
        assert set(mount) == {"hostPath", "containerPath", "options"}
        assert mount["hostPath"].startswith("/") and mount["containerPath"].startswith("/")
        assert {"ro", "nosuid", "nodev", "bind"} <= set(mount["options"])
    targets = [mount["containerPath"] for mount in device["containerEdits"]["mounts"]]
    assert targets[0] == "/run/divvy" and targets[2] == "/etc/OpenCL/vendors/divvy.icd"


def test_the_directory_has_the_socket_and_nothing_else(daemon):
    assert os.listdir(containers(daemon)) == ["session.sock"]
    found = os.stat(os.path.join(containers(daemon), "session.sock"))
    assert stat.S_ISSOCK(found.st_mode) and os.path.samestat(found, os.stat(os.path.join(daemon.dir, "session.sock")))
    assert os.stat(containers(daemon)).st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("user_namespace", [False, True])
def test_a_program_in_a_container_computes(daemon, program, user_namespace):
    code, said = in_container(computing(program), mount_directory(daemon), user_namespace)
    assert code == 0 and "done" in said, said


def test_a_mounted_socket_alone_is_refused_in_a_user_namespace(daemon, program):
    """The reason why the directory is mounted. The container's root owns the directory that is made for the mount."""
    before = ("mkdir /run/divvy; chown %d /run/divvy; : >/run/divvy/session.sock; mount --bind %s "
              "/run/divvy/session.sock" % (namespaces.OUTSIDE, shlex.quote(os.path.join(daemon.dir, "session.sock"))))
    code, said = in_container(computing(program), before, True)
    assert code == 3 and "-1001 in clGetPlatformIDs" in said, said   # no platform


def test_running_containers_find_the_socket_of_the_next_daemon(daemon):
    """The directory stays, and the socket in it is replaced."""
    first = os.stat(os.path.join(containers(daemon), "session.sock"))
    held = os.open(containers(daemon), os.O_PATH | os.O_DIRECTORY)
    try:
        daemon.kill_with_keeper()   # which would keep the socket
        daemon.start()
        assert not os.path.samestat(first, os.stat("session.sock", dir_fd=held))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect("/proc/self/fd/%d/session.sock" % held)
        assert os.listdir("/proc/self/fd/%d" % held) == ["session.sock"]
    finally:
        os.close(held)


def test_restarts_keep_the_socket(daemon, program):
    for number in (signal.SIGUSR1, signal.SIGKILL):
        os.kill(daemon.pid, number)
        daemon.process.wait(10)
        daemon.start()
    code, said = in_container(computing(program), mount_directory(daemon), False)
    assert code == 0, said


def test_nothing_is_left_at_the_end(daemon):
    subprocess.run(["kill", "-TERM", str(daemon.pid)], check=True)
    assert daemon.process.wait(10) == 0
    assert not os.path.exists(daemon.dir)
    daemon.start()


def test_a_private_daemon_has_no_such_directory():
    with divvytest.Daemon() as daemon:
        assert not os.path.exists(containers(daemon))
