"""Another user listens where the client library looks for the user's own daemon."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

import divvytest
import innocents

VICTIM = 4001

# Listens in the victim's directory, writes down what comes, and never answers as divvyd would.
IMPOSTOR = """import os, socket, sys
folder, report = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
os.chmod(folder, 0o755)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(os.path.join(folder, "session.sock"))
os.chmod(os.path.join(folder, "session.sock"), 0o666)
listener.listen(8)
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    if connection.recv(4096):
        open(report, "a").write("a program said hello\\n")
    connection.close()
"""


@pytest.fixture
def home():
    path = tempfile.mkdtemp(prefix="dv-", dir="/tmp")
    os.chmod(path, 0o777)
    yield path
    shutil.rmtree(path)


def impostor(folder, report, user=innocents.ATTACKER):
    child = subprocess.Popen([sys.executable, "-c", IMPOSTOR, folder, report], user=user, group=user,
                             extra_groups=[], text=True, stdout=subprocess.PIPE)
    assert child.stdout.readline() == "listening\n"
    return child


def run_victim(program, user=VICTIM, timeout=60, **environment):
    """A program that finds divvy by its .icd file, as one does without `divvy run`."""
    env = {"PATH": os.environ["PATH"], "OCL_ICD_VENDORS": divvytest.binary("libdivvy-opencl.so"),
           **environment}
    return subprocess.run([program("compute"), "1", "0"], env=env, user=user, group=user,
                          extra_groups=[], capture_output=True, text=True, timeout=timeout)


@pytest.mark.skipif(os.path.exists("/run/divvy/session.sock"), reason="a daemon of the system runs here")
def test_an_impostor_in_tmp_is_not_spoken_to(program, home):
    """Any user can make /tmp/divvy-UID first."""
    folder, report = "/tmp/divvy-%d" % VICTIM, os.path.join(home, "report")
    shutil.rmtree(folder, ignore_errors=True)
    child = impostor(folder, report)
    try:
        run_victim(program)
    finally:
        child.kill()
        child.wait()
        shutil.rmtree(folder)
    assert not os.path.exists(report), "a program has said hello to another user's daemon"


def test_a_named_directory_of_another_user_is_not_spoken_to(program, home):
    folder, report = os.path.join(home, "d"), os.path.join(home, "report")
    log = os.path.join(home, "log")
    child = impostor(folder, report)
    try:
        run_victim(program, DIVVY_DIR=folder, DIVVY_LOG=log)
    finally:
        child.kill()
        child.wait()
    assert not os.path.exists(report), "a program has said hello to another user's daemon"
    assert "neither root nor this user owns it" in open(log).read()


def test_a_directory_that_others_may_write_to_is_not_spoken_to(program, home):
    folder, report = os.path.join(home, "d"), os.path.join(home, "report")
    child = impostor(folder, report)
    os.chown(folder, VICTIM, VICTIM)
    os.chmod(folder, 0o777)
    try:
        run_victim(program, DIVVY_DIR=folder)
    finally:
        child.kill()
        child.wait()
    assert not os.path.exists(report), "a program has said hello to another user's daemon"


def says_hello(program, home, user=VICTIM):
    """Whether a program speaks to a directory that its user could trust. It would wait for an answer."""
    folder, report = os.path.join(home, "d"), os.path.join(home, "report")
    child = impostor(folder, report, user=VICTIM)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            run_victim(program, user=user, timeout=5, DIVVY_DIR=folder)
        return os.path.exists(report)
    finally:
        child.kill()
        child.wait()
        shutil.rmtree(folder)


def test_a_directory_of_its_own_is_spoken_to(program, home):
    """So that the tests above would notice a message."""
    assert says_hello(program, home)


def test_a_program_with_more_rights_believes_no_environment(program, home):
    """It belongs to the victim and runs with the victim's rights, whichever user starts it and names the directory."""
    privileged = os.path.join(home, "privileged")
    shutil.copy(program("compute"), privileged)
    os.chown(privileged, VICTIM, VICTIM)
    os.chmod(privileged, 0o4755)
    assert not says_hello(lambda name: privileged, home, user=innocents.ATTACKER)
    os.chmod(privileged, 0o755)
    assert says_hello(lambda name: privileged, home)
