"""The figures that people see: of sessions, tenants and devices, and how they are shown."""

import json
import os
import subprocess
import sys
import time

import pytest

import divvytest

ANN, BEN = 20001, 20002
KERNEL = 20000  # rounds of a loop
CONFIG = """
tenants-see-own: yes
devices:
  - match: "*"
    capacity: 1GiB
tenants:
  - user: %d
    name: ann
  - user: %d
    name: ben
""" % (ANN, BEN)


class Machine(divvytest.BusyPrograms):
    """A daemon with programs that keep its device busy."""

    def ask(self, *arguments, uid=0, code=0, columns=None):
        env = self.daemon.env()
        if columns:
            env = {**env, "COLUMNS": str(columns)}
        done = subprocess.run([divvytest.binary("divvy"), *arguments], env=env, text=True, capture_output=True,
                              timeout=60, **divvytest.identity(uid))
        assert done.returncode == code, done
        return done.stdout if code == 0 else done.stderr

    def device(self, uid=0):
        return json.loads(self.ask("devices", "--json", uid=uid))["devices"][0]


@pytest.fixture
def machine(program):
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    with divvytest.Daemon(CONFIG, env={"POCL_MAX_PTHREAD_COUNT": "1"}, system=True) as daemon:
        daemon.compile_kernels(program("turns"), KERNEL)
        with Machine(daemon, program("turns")) as machine:
            yield machine


def test_each_session_has_its_own_share(machine):
    """Two sessions of one tenant have half of its share each."""
    first, second = machine.session(ANN), machine.session(ANN)
    time.sleep(2)

    def shares(key):
        listed = {s["id"]: s["devices"][0][key] / 1e4 for s in machine.daemon.sessions()}
        a, b = listed[first], listed[second]
        assert a + b < 103, (a, b)
        return a, b

    def difference():
        # Of ten seconds: on a machine that others use, one second is not alike for both.
        time.sleep(2)
        a, b = shares("share_10s_ppm")
        return abs(a - b)

    def together():
        time.sleep(0.5)
        return sum(shares("share_1s_ppm"))
    divvytest.assert_median(difference, 0, 25)
    divvytest.assert_median(together, 85, 103)


def test_used_time_grows_during_a_hold(machine):
    """A tenant alone keeps the device for seconds: what it used is not known at its end only."""
    machine.session(ANN)
    time.sleep(1)

    def used():
        tenant = next(t for t in json.loads(machine.ask("tenants", "--json"))["tenants"] if t["sessions"])
        return tenant["devices"][0]["used_s"]
    before = used()
    time.sleep(1)
    assert used() - before > 0.5
    session, = machine.daemon.sessions()
    assert session["used_s"] > 1 and session["state"] in ("computing", "idle", "waiting")


def test_a_device_shows_how_busy_it_is(machine):
    divvytest.wait_for(lambda: machine.device()["busy_1s_ppm"] < 100_000, 10, "an idle device counts as busy")
    machine.session(ANN)
    machine.session(BEN)

    def busy():
        time.sleep(0.5)
        return machine.device()["busy_1s_ppm"] / 1e4
    time.sleep(1)
    divvytest.assert_median(busy, 85, 101)
    device = machine.device()
    assert device["sessions"] == 2 and device["waiting"] in (0, 1)
    assert device["memory_bytes"] == 1 << 30, "the configured capacity"
    heading, row = machine.ask("devices").splitlines()[:2]
    assert heading.split() == ["DEVICE", "NAME", "BUSY-1s", "BUSY-60s", "MEMORY", "SESSIONS", "WAITING", "POLICY"]
    assert "/1.0 GiB" in row


def test_a_tenant_is_told_that_others_are_at_work(machine):
    assert "no program uses the shared devices now" in machine.ask("ps", uid=BEN)
    machine.session(ANN)
    time.sleep(1)
    text = machine.ask("ps", uid=BEN)
    assert "no program of yours uses the shared devices now; those of others do" in text
    assert "1 session" in text.splitlines()[0]
    text = machine.ask("tenants", uid=BEN)
    assert "no tenant of yours has a program on the shared devices now; those of others have" in text
    assert text.startswith("device 0") and "busy" in text.splitlines()[0]
    assert machine.device(uid=BEN)["sessions"] == 1 and machine.device(uid=BEN)["busy_1s_ppm"] > 500_000


def test_configured_tenants_are_listed_without_sessions(machine):
    tenants = {t["name"]: t for t in json.loads(machine.daemon.cli("tenants", "--json"))["tenants"]}
    idle = {name: t for name, t in tenants.items() if t["sessions"] == 0}
    assert idle and all(t["devices"] == [] and t["weight"] >= 1 for t in idle.values()), tenants
    rows = [line.split() for line in machine.daemon.cli("tenants").splitlines()]
    assert [row[1] for row in rows if row[0] in idle] == ["0"] * len(idle)


def test_ps_fits_a_terminal(machine):
    for uid in (ANN, BEN):
        machine.session(uid)
    for line in machine.ask("ps", columns=80).splitlines():
        assert len(line) <= 80, line
    wide = machine.ask("ps", columns=160).splitlines()[1].split()
    assert {"PID", "COMMANDS", "AGE", "DEVICE"} <= set(wide)
    assert "PID" not in machine.ask("ps", columns=80)


def test_ps_sorts_and_chooses_columns(machine):
    sessions = [str(machine.session(uid)) for uid in (ANN, BEN, ANN)]

    def numbers(*options):
        return [line.split()[0] for line in machine.ask("ps", "-o", "SESSION,TENANT", *options).splitlines()[1:]]
    assert numbers("--sort", "SESSION") == sessions
    assert numbers("--sort", "-session") == sessions[::-1]
    assert numbers("--sort", "tenant") == [sessions[0], sessions[2], sessions[1]]
    assert "no column 'NONE'" in machine.ask("ps", "-o", "NONE", code=2)
    assert "no column 'NONE'" in machine.ask("ps", "--sort", "NONE", code=2)


def test_commands_are_shown_with_their_arguments(machine):
    session = machine.session(ANN)
    listed = next(s for s in machine.daemon.sessions() if s["id"] == session)
    assert listed["command_line"].endswith("/turns %d 600" % KERNEL)
    assert listed["command"] == "turns"
    assert "turns %d 600" % KERNEL in machine.ask("ps", "--no-trunc")


def test_output_that_cannot_be_written_is_a_failure(machine):
    with open("/dev/full", "w") as full:
        done = subprocess.run([divvytest.binary("divvy"), "ps"], env=machine.daemon.env(), stdout=full,
                              stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "cannot write" in done.stderr


def test_numbers_are_rounded(machine):
    machine.session(ANN)
    text = machine.ask("ps", "--json")
    assert not any(len(number) > 16 for number in text.replace(",", " ").replace("}", " ").split(":")
                   if number.replace(".", "").isdigit())


def control(daemon, method, path):
    """The status and the answer of divvyd's control socket."""
    done = subprocess.run(["curl", "-s", "-X", method, "-w", "\n%{http_code}", "--unix-socket",
                           os.path.join(daemon.dir, "control", "control.sock"), "http://divvyd" + path],
                          capture_output=True, text=True, check=True)
    body, status = done.stdout.rsplit("\n", 1)
    return int(status), json.loads(body)


def test_single_things_can_be_asked_for(machine):
    session = machine.session(ANN)
    assert control(machine.daemon, "GET", "/v1/healthz") == (200, {"status": "ok"})
    status, answer = control(machine.daemon, "GET", "/v1/sessions/%d" % session)
    assert status == 200 and answer["id"] == session
    status, answer = control(machine.daemon, "GET", "/v1/tenants/ann")
    assert status == 200 and answer["name"] == "ann" and answer["sessions"] == 1
    status, answer = control(machine.daemon, "GET", "/v1/devices/0")
    assert status == 200 and answer["index"] == 0 and answer["sessions"] == 1
    status, answer = control(machine.daemon, "GET", "/v1/tenants/ben")
    assert status == 200 and answer["name"] == "ben" and answer["sessions"] == 0, "it is configured"
    status, answer = control(machine.daemon, "PUT", "/v1/sessions/%d" % session)
    assert status == 405 and answer["error"] == "use GET or DELETE"
    for path in ("/v1/sessions/99999", "/v1/tenants/eve", "/v1/devices/9", "/v1/nothing"):
        assert control(machine.daemon, "GET", path)[0] == 404
    assert control(machine.daemon, "POST", "/v1/healthz")[0] == 405


def test_one_device_counts_sessions_as_the_list_does(program):
    """Where time is not shared out, a session counts on the devices that it has a context on."""
    config = 'devices:\n  - match: "*"\n    policy: none\n'
    with divvytest.Daemon(config, env={"POCL_DEVICES": "pthread pthread"}) as daemon:
        child = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout.readline() == "ready\n"
            listed = control(daemon, "GET", "/v1/devices")[1]["devices"]
            assert sorted(device["sessions"] for device in listed) == [0, 1]
            for device in listed:
                status, alone = control(daemon, "GET", "/v1/devices/%d" % device["index"])
                assert status == 200 and alone["sessions"] == device["sessions"]
        finally:
            divvytest.kill_group(child)
            child.stdout.close()


def test_unknown_arguments_are_refused(machine):
    session = machine.session(ANN)
    status, answer = control(machine.daemon, "POST", "/v1/sessions/%d/share?limt=500000" % session)
    assert status == 400 and "limt" in answer["error"] and "limit" in answer["error"]
    assert control(machine.daemon, "GET", "/v1/sessions?user=ann")[0] == 400
    assert control(machine.daemon, "POST", "/v1/sessions/%d/share?limit=500000" % session)[0] == 200


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
