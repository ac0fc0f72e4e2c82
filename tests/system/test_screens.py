"""What the commands print for answers that are given: on narrow screens, for texts that tenants chose, at corners."""

import json
import subprocess
import sys

import pytest

import cannedanswers
import divvytest


def divvy(daemon, *arguments, code=0, columns=None, env=None):
    more = {"COLUMNS": str(columns)} if columns else {}
    done = subprocess.run([divvytest.binary("divvy"), *arguments], env={**daemon.env(), **more, **(env or {})},
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == code, done
    return done


def session(number, **more):
    return {"id": number, "user": "ann", "tenant": "ann", "command": "python3",
            "command_line": "/usr/bin/python3 train.py", "state": "idle", "state_s": 1.0, "used_s": 0.5,
            "memory_bytes": 1 << 20, "devices": [], **more}


DEVICES = {"devices": [{"index": i, "name": "card", "sessions": 1, "waiting": 0, "busy_1s_ppm": 500000,
                        "memory_used_bytes": 1 << 20, "memory_bytes": 1 << 30} for i in range(2)]}


def test_ps_fits_a_narrow_screen():
    waits = session(1234567, user="annabelle-of-the-lab", tenant="department-of-physics", devices=[
        {"index": 0, "state": "waiting for memory", "state_s": 0.118, "share_1s_ppm": 0, "used_s": 0.9999}])
    with cannedanswers.CannedAnswers({"/v1/sessions": {"sessions": [waits]}, "/v1/devices": DEVICES}) as daemon:
        lines = divvy(daemon, "ps", columns=80).stdout.splitlines()
        assert all(len(line) <= 80 for line in lines), lines
        assert "waiting f" in lines[-1] and "python3 " in lines[-1] and " 1.0s " in lines[-1]
        assert "waiting for memory 118ms" in divvy(daemon, "ps", columns=160).stdout
        assert "waiting for memory 118ms" in divvy(daemon, "ps", "--no-trunc", columns=80).stdout


def test_reasons_of_ends_have_room():
    why = "its worker was ended by signal 9 (SIGKILL)"
    ended = session(7, ended="2026-11-01T12:00:00Z", why=why, command_line="/usr/bin/python3 " + 20 * "--option=value ")
    with cannedanswers.CannedAnswers({"/v1/ended": {"ended": [ended]}}) as daemon:
        lines = divvy(daemon, "ps", "--ended", columns=80).stdout.splitlines()
        assert all(len(line) <= 80 for line in lines), lines
        assert why[:20] in lines[-1] and "python3 --option" in lines[-1]
        assert why in divvy(daemon, "ps", "--ended", "--no-trunc", columns=80).stdout
        full = divvy(daemon, "ps", "--ended").stdout   # for a pipe
        assert why in full and full.count("--option=value") == 20


def test_waiting_on_one_device_of_two_is_waiting():
    there = [{"index": 0, "name": "card", "state": "computing", "state_s": 1.0},
             {"index": 1, "name": "card", "state": "waiting", "state_s": 1.0}]
    both = [session(7, state="computing", devices=there), session(8, state="waiting", devices=there[1:])]
    answers = {"/v1/sessions": {"sessions": [*both, session(9)]}, "/v1/sessions/7/explain": both[0],
               "/v1/sessions/8/explain": both[1]}
    with cannedanswers.CannedAnswers(answers) as daemon:
        said = divvy(daemon, "explain").stdout
        assert "session 7 (python3 train.py, tenant ann) waits for device 1" in said and "session 8" in said
        assert "session 9" not in said
        assert [answer["id"] for answer in json.loads(divvy(daemon, "explain", "--json").stdout)] == [7, 8]


def test_only_what_the_locale_has_is_shown():
    strange = session(7, tenant="änn", command_line="/bin/zäh 日本", devices=[
        {"index": 0, "name": "Kärtchen", "state": "idle", "state_s": 1.0, "because": "größer"}])
    answers = {"/v1/sessions": {"sessions": [strange]}, "/v1/sessions/7/explain": strange, "/v1/devices": DEVICES,
               "/v1/watch": [{"time_s": 1, "devices": [{"index": 0, "name": "Kärtchen", "sessions": 1}], "tenants": [
                   {"name": "änn", "devices": [{"index": 0, "sessions": 1}]}], "sessions": [strange]}]}
    commands = (["ps"], ["explain", "7"], ["top", "-b", "-n", "1"])
    with cannedanswers.CannedAnswers(answers) as daemon:
        for command in commands:
            shown = divvy(daemon, *command, env={"LC_ALL": "C"}).stdout
            assert shown.isascii() and "z?h ??" in shown and "?nn" in shown, shown
            assert "zäh 日本" in divvy(daemon, *command).stdout
        assert "zäh" in divvy(daemon, "ps", "--json", env={"LC_ALL": "C"}).stdout
        refused = divvy(daemon, "explain", "zäh", code=2, env={"LC_ALL": "C"}).stderr
        assert "'z?h'" in refused


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["ps", "--help"], ["run", "--help"]])
def test_help_that_cannot_be_written_is_a_failure(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run([divvytest.binary("divvy"), *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == (125 if arguments[0] == "run" else 1) and "cannot write" in done.stderr


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
