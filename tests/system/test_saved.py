"""Shares that an operator saves outlive sessions, tenants, reloads and divvyd."""

import json
import os
import socket
import subprocess
import sys

import pytest

import divvytest

ANN = 20001
CONFIG = """
tenants-see-own: yes
tenants:
  - user: %d
    name: ann
    weight: 2
    limit: 90%%
""" % ANN


@pytest.fixture
def machine(program):
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    with divvytest.Daemon(CONFIG, system=True) as daemon:
        children = []

        def start():
            child = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE, **divvytest.identity(ANN))
            children.append(child)
            assert child.stdout.readline() == "ready\n"
            return child

        def end():
            for child in children:
                divvytest.kill_group(child)
                child.stdout.close()
            children.clear()
        daemon.begin, daemon.end_programs = start, end
        yield daemon
        end()


def terms(daemon):
    tenants = json.loads(daemon.cli("tenants", "--json"))["tenants"]
    there = next(t for t in tenants if t["name"] == "ann")["devices"][0]
    return there["weight"], there["limit_ppm"]


def whoami(daemon):
    done = subprocess.run([divvytest.binary("divvy"), "whoami", "--json"], env=daemon.env(), capture_output=True,
                          text=True, **divvytest.identity(ANN))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def restart(daemon):
    daemon.end_programs()
    daemon.stop()
    daemon.start()


def test_a_tenant_without_a_session_needs_save(machine):
    done = subprocess.run([divvytest.binary("divvy"), "set", "ann", "--weight", "3"], env=machine.env(),
                          capture_output=True, text=True)
    assert done.returncode == 1 and "no tenant ann with a session" in done.stderr and "--save" in done.stderr


def test_a_saved_share_outlives_the_daemon(machine):
    machine.begin()
    machine.cli("set", "ann", "--weight", "7")
    machine.cli("set", "ann", "--limit", "50%", "--save")
    assert terms(machine) == (7, 500_000)
    machine.await_log("user 0 set tenant ann on all its devices: weight 7 (was 2)")
    machine.await_log("user 0 set tenant ann on all its devices: limit 50% (was 90%)")
    restart(machine)
    assert whoami(machine)["limit_ppm"] == 500_000, "before its first program"
    machine.begin()
    assert terms(machine) == (2, 500_000), "what was not saved is as configured"


def test_a_saved_share_outlives_a_kill(machine):
    machine.begin()
    machine.cli("set", "ann", "--limit", "40%", "--save")
    machine.end_programs()
    machine.kill_with_keeper()
    machine.start()
    machine.begin()
    assert terms(machine) == (2, 400_000)


def test_a_reload_keeps_it_and_forget_takes_it_back(machine):
    machine.begin()
    machine.cli("set", "ann", "--weight", "5", "--save")
    machine.cli("reload")
    assert terms(machine)[0] == 5
    machine.cli("set", "ann", "--forget")
    restart(machine)
    machine.begin()
    assert terms(machine) == (2, 900_000)


def test_several_changes_add_up(machine):
    machine.begin()
    machine.cli("set", "ann", "--weight", "5", "--save")
    machine.cli("set", "ann", "--limit", "30%", "--save")
    restart(machine)
    machine.begin()
    assert terms(machine) == (5, 300_000)


def test_a_share_that_makes_no_sense_is_refused(machine):
    """It would be refused when divvyd starts next, and all saved shares with it."""
    machine.cli("set", "ann", "--limit", "30%", "--save")
    done = subprocess.run([divvytest.binary("divvy"), "set", "ann", "--request", "50%", "--save"], env=machine.env(),
                          capture_output=True, text=True)
    assert done.returncode == 1 and "above its limit" in done.stderr, done
    restart(machine)
    machine.begin()
    assert terms(machine) == (2, 300_000)


def test_a_share_is_saved_for_a_tenant_that_was_just_there(machine):
    machine.begin()
    machine.end_programs()
    divvytest.wait_for(lambda: not json.loads(machine.cli("ps", "--json"))["sessions"], 10, "it has sessions")
    machine.cli("set", "ann", "--limit", "20%", "--save")
    machine.begin()
    assert terms(machine) == (2, 200_000)


@pytest.mark.parametrize("option", ["--save", None])
def test_a_share_is_there_for_the_program_that_follows(machine, option):
    """Weights and limits that rise as well as those that fall."""
    machine.begin()
    machine.cli("set", "ann", "--weight", "7", "--limit", "95%", *([option] if option else []))
    machine.end_programs()
    divvytest.wait_for(lambda: not json.loads(machine.cli("ps", "--json"))["sessions"], 10, "it has sessions")
    machine.begin()
    assert terms(machine) == (7, 950_000)
    said = machine.cli("reload")
    assert ("keeps what `divvy set` gave it" in said) == (option is None), said
    assert terms(machine) == (7, 950_000)


def test_the_log_says_what_memory_was_before(machine):
    machine.begin()
    machine.cli("set", "ann", "--memory", "1GiB")
    machine.cli("set", "ann", "--memory", "512MiB", "--memory-request", "64MiB")
    machine.await_log("memory 512 MiB (was 1.0 GiB), memory-request 64.0 MiB (was 0 B)")


def test_a_tenant_saves_nothing(machine):
    machine.begin()
    done = subprocess.run([divvytest.binary("divvy"), "set", "ann", "--limit", "10%", "--save"], env=machine.env(),
                          capture_output=True, text=True, **divvytest.identity(ANN))
    assert done.returncode == 1 and "operator" in done.stderr
    assert not os.path.exists(os.path.join(machine.home, "state", "saved.json"))


def test_a_name_that_no_tenant_can_have_is_refused(machine):
    """libmicrohttpd decodes the path: a name could end a line of the log, or be no text at all."""
    def save(name):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(os.path.join(machine.dir, "control", "control.sock"))
            connection.sendall(b"POST /v1/tenants/%s/share?weight=3&save=yes HTTP/1.0\r\n\r\n" % name)
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    for name in (b"ann%0Adivvyd:%20forged", b"%ff", b"a%1b[31mnn", b"%e2%80%aenna"):
        answer = save(name)
        assert " 409 " in answer.splitlines()[0] and "no tenant can be named" in answer, (name, answer)
    assert " 200 " in save(b"b%c3%a9n").splitlines()[0]
    path = os.path.join(machine.home, "state", "saved.json")
    divvytest.wait_for(lambda: os.path.exists(path), 10, "nothing is saved")
    with open(path) as file:
        assert json.load(file) == {"tenants": {"b\u00e9n": {"weight": 3}}}
    assert "forged" not in machine.log and "\x1b" not in machine.log


def test_a_broken_file_is_refused_and_kept(machine):
    machine.begin()
    machine.cli("set", "ann", "--weight", "5", "--save")
    machine.end_programs()
    machine.stop()
    path = os.path.join(machine.home, "state", "saved.json")
    with open(path, "w") as file:
        file.write("{\"ann\": {\"weight\": \"heavy\"}}")
    machine.start()
    assert "saved.json" in machine.log
    machine.begin()
    assert terms(machine) == (2, 900_000)
    done = subprocess.run([divvytest.binary("divvy"), "set", "ann", "--weight", "6", "--save"], env=machine.env(),
                          capture_output=True, text=True)
    assert done.returncode == 1 and "saved.json" in done.stderr, done
    with open(path) as file:
        assert "heavy" in file.read()


@pytest.mark.parametrize("name", ["saved.json", "saved.json.new"])
def test_a_file_that_cannot_be_read_is_kept(machine, name):
    machine.cli("set", "ann", "--weight", "5", "--save")
    machine.stop()
    path, elsewhere = os.path.join(machine.home, "state", name), os.path.join(machine.home, "elsewhere")
    os.replace(os.path.join(machine.home, "state", "saved.json"), elsewhere)
    os.symlink(elsewhere, path)
    machine.start()
    assert "%s is ignored: it is a symbolic link" % path in machine.log
    done = subprocess.run([divvytest.binary("divvy"), "set", "ann", "--weight", "6", "--save"], env=machine.env(),
                          capture_output=True, text=True)
    assert done.returncode == 1 and "saved.json" in done.stderr, done
    machine.stop()
    assert os.path.islink(path)
    with open(elsewhere) as file:
        assert json.load(file)["tenants"]["ann"] == {"weight": 5}


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
