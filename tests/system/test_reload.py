"""A new configuration reaches tenants that run, says what it changes, and fails loudly."""

import json
import os
import signal
import subprocess
import sys

import pytest

import divvytest

ANN, BEN = 20001, 20002
SHARES = """
tenants-see-own: yes
tenants:
  - user: %d
    name: ann
    request: %%s
    weight: %%d
  - user: %d
    name: ben
    request: %%s
""" % (ANN, BEN)


@pytest.fixture
def machine(program):
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    with divvytest.Daemon(SHARES % ("40%", 1, "20%"), system=True) as daemon:
        children = []

        def start(uid):
            child = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE, **divvytest.identity(uid))
            children.append(child)
            assert child.stdout.readline() == "ready\n"
            return child
        daemon.start_program = start
        yield daemon
        for child in children:
            divvytest.kill_group(child)
            child.stdout.close()


def configure(daemon, text):
    with open(os.path.join(daemon.home, "config.yaml"), "w") as file:
        file.write(text)


def reload(daemon, code=0):
    done = subprocess.run([divvytest.binary("divvy"), "reload"], env=daemon.env(), capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == code, done
    return done.stdout if code == 0 else done.stderr


def share(daemon, tenant):
    tenants = json.loads(daemon.cli("tenants", "--json"))["tenants"]
    there = next(t for t in tenants if t["name"] == tenant)["devices"][0]
    return there["request_ppm"], there["weight"]


def test_running_tenants_follow(machine):
    machine.start_program(ANN)
    machine.start_program(BEN)
    assert share(machine, "ann") == (400_000, 1) and share(machine, "ben") == (200_000, 1)
    configure(machine, SHARES % ("70%", 3, "30%"))
    said = reload(machine)
    assert "tenant ann: request 70%, was 40%" in said and "tenant ann: weight 3, was 1" in said, said
    assert "tenant ben: request 30%, was 20%" in said
    assert share(machine, "ann") == (700_000, 3) and share(machine, "ben") == (300_000, 1)
    assert "nothing changes for programs that run" in reload(machine)


def test_a_file_that_changed_before_a_restart_applies(machine):
    machine.start_program(ANN)
    machine.start_program(BEN)
    machine.kill(signal.SIGUSR1)
    machine.config_text = SHARES % ("70%", 3, "30%")
    machine.start()
    machine.await_log("tenant ann: request 70%, was 40%")
    assert share(machine, "ann") == (700_000, 3) and share(machine, "ben") == (300_000, 1)
    assert "nothing changes for programs that run" in reload(machine)


def test_a_restart_keeps_what_a_user_set_on_one_device(machine):
    machine.start_program(ANN)
    done = subprocess.run([divvytest.binary("divvy"), "set", "ann", "--device", "0", "--request", "10%"],
                          env=machine.env(), capture_output=True, text=True, **divvytest.identity(ANN))
    assert done.returncode == 0, done.stderr
    machine.kill(signal.SIGUSR1)
    machine.start()
    assert share(machine, "ann") == (100_000, 1)


def test_members_change_a_shared_tenant_where_they_may(program):
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    rule = "tenants-see-own: yes\ntenants:\n  - name: team\n    limit: 80%%\n    members-may-change: %s\n"

    def lower(daemon):
        return subprocess.run([divvytest.binary("divvy"), "set", "team", "--limit", "50%"], env=daemon.env(),
                              capture_output=True, text=True, **divvytest.identity(ANN))
    with divvytest.Daemon(rule % "no", system=True) as daemon:
        child = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE, **divvytest.identity(ANN))
        assert child.stdout.readline() == "ready\n"
        done = lower(daemon)
        assert done.returncode == 1 and "only an operator" in done.stderr, done
        daemon.config_text = rule % "yes"
        configure(daemon, daemon.config_text)
        reload(daemon)
        assert lower(daemon).returncode == 0
        daemon.kill(signal.SIGUSR1)
        daemon.start()
        assert lower(daemon).returncode == 0, "also after a restart"
        divvytest.kill_group(child)
        child.stdout.close()


def test_one_request_falls_so_that_another_fits(machine):
    """The order of tenants does not matter: requests that fall are lowered first."""
    machine.start_program(ANN)
    machine.start_program(BEN)
    for ann, ben in (("5%", "90%"), ("90%", "5%"), ("10%", "80%")):
        configure(machine, SHARES % (ann, 1, ben))
        assert "cannot be kept" not in reload(machine)
        assert share(machine, "ann")[0] == int(ann[:-1]) * 10_000
        assert share(machine, "ben")[0] == int(ben[:-1]) * 10_000


def test_requests_that_do_not_fit_are_lowered_and_named(machine):
    machine.start_program(ANN)
    machine.start_program(BEN)
    configure(machine, SHARES % ("80%", 1, "60%"))
    done = subprocess.run([divvytest.binary("divvy"), "reload"], env=machine.env(), capture_output=True, text=True)
    assert done.returncode == 0 and "cannot be kept" in done.stdout
    assert "add up to 140%" in done.stderr, "the configuration promises more than there is"
    assert share(machine, "ann")[0] + share(machine, "ben")[0] <= 1_000_000


def test_an_error_is_shown_and_changes_nothing(machine):
    machine.start_program(ANN)
    configure(machine, SHARES % ("70%", 1, "30%") + "nonsense: yes\n")
    said = reload(machine, code=1)
    assert "config.yaml:" in said and "nonsense" in said
    assert share(machine, "ann") == (400_000, 1)


def test_a_share_that_an_operator_set_stays(machine):
    machine.start_program(ANN)
    machine.cli("set", "ann", "--weight", "7")
    configure(machine, SHARES % ("10%", 2, "10%"))
    assert "tenant ann keeps what `divvy set` gave it" in reload(machine)
    assert share(machine, "ann")[1] == 7


def test_a_tenant_that_was_just_there_is_told_what_it_would_get_now(machine):
    machine.run(["clinfo", "-l"])
    configure(machine, "tenants:\n  - limit: 40%\n")
    reload(machine)
    assert "limit 40%" in machine.cli("whoami")


def test_programs_of_another_tenant_by_now_keep_theirs(machine):
    machine.start_program(ANN)
    configure(machine, "tenants:\n  - user: %d\n    name: eve\n    request: 10%%\n" % ANN)
    assert "later ones belong to tenant eve" in reload(machine)
    assert share(machine, "ann") == (400_000, 1)
    configure(machine, "tenants:\n  - user: %d\n    refuse: yes\n" % ANN)
    assert "later ones are refused" in reload(machine)


def test_a_file_is_checked_before_it_is_used(tmp_path):
    def check(text):
        path = tmp_path / "divvy.yaml"
        path.write_text(text)
        return subprocess.run([divvytest.binary("divvyd"), "--check", path], capture_output=True, text=True)
    done = check("tenants:\n  - user: root\n    name: lab\n    request: 60%\n  - group: root\n    per: user\n")
    assert done.returncode == 0, done.stderr
    assert "tenant rule 1 matches root: one tenant, lab: request 60%" in done.stdout
    assert "a tenant for each user" in done.stdout
    done = check("tenants:\n  - group: root\n    request: 60%\n")
    assert done.returncode == 1
    assert '"group: root" with a request makes a tenant of each of its users' in done.stderr
    assert '"name: root"' in done.stderr and '"per: user"' in done.stderr
    done = check("tenants:\n  - cgroup: \"*job_*\"\n    per: cgroup\n")
    assert done.returncode == 1 and "begins with a slash" in done.stderr
    done = check("tenants:\n  - name: a\n    user: root\n    request: 60%\n  - name: b\n    user: daemon\n"
                 "    request: 50%\n")
    assert done.returncode == 0 and "add up to 110%" in done.stdout


def test_a_rule_behind_one_for_all_programs_is_said_never_to_apply(tmp_path):
    path = tmp_path / "divvy.yaml"
    path.write_text("tenants:\n  - user: root\n  - limit: 40%\n  - user: daemon\n    limit: 50%\n")
    said = subprocess.run([divvytest.binary("divvyd"), "--check", path], capture_output=True, text=True,
                          check=True).stdout.splitlines()
    assert said[1].startswith("tenant rule 2 matches all users: a tenant for each user: request 0%, limit 40%"), said
    assert said[2:] == ["tenant rule 3 never applies: rule 2 matches all programs"]
    path.write_text("tenants:\n  - user: root\n")
    said = subprocess.run([divvytest.binary("divvyd"), "--check", path], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == "all other programs: a tenant for each user, without a request"


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
