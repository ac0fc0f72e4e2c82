"""The reason for every refusal, wait and end, where a person looks for it."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

import divvytest
import leasechannel as lease


def divvy(daemon, *arguments, code=0, env=None, **options):
    done = subprocess.run([divvytest.binary("divvy"), *arguments], env={**daemon.env(), **(env or {})},
                          capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == code, done
    return done


@pytest.fixture
def daemon():
    with divvytest.Daemon("sessions-per-user: 3\n") as daemon:
        yield daemon


def start(daemon, program, *arguments):
    child = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE)
    assert child.stdout.readline() == "ready\n"
    return child


def stop(*children):
    for child in children:
        divvytest.kill_group(child)
        child.stdout.close()


def ended(daemon):
    return {e["id"]: e for e in json.loads(daemon.cli("ps", "--ended", "--json"))["ended"]}


def test_a_refusal_is_shown_on_the_screen(daemon, program, tmp_path):
    """Without any option: a program that would only find no platform is not started."""
    children = [start(daemon, program) for _ in range(3)]
    trace = tmp_path / "started"
    done = divvy(daemon, "run", "--", "touch", str(trace), code=125)
    assert "no device for touch now" in done.stderr and "sessions-per-user" in done.stderr
    assert not trace.exists()
    refusals = [e for e in ended(daemon).values() if e["state"] == "refused"]
    assert refusals and "sessions-per-user" in refusals[-1]["why"]
    said = daemon.cli("explain", str(refusals[-1]["id"]))
    assert "(touch) was refused" in said and "sessions-per-user" in said
    rows = daemon.cli("ps", "--ended", "-o", "COMMAND,WHY").splitlines()
    assert [row.split()[0] for row in rows if "sessions-per-user" in row] == ["touch"], "not divvy"
    daemon.await_log(" of touch ")
    stop(*children)


def test_a_refusal_names_the_tenant(program):
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    config = "tenants:\n  - {user: root, name: early, request: 100%}\n  - {name: late, request: 50%}\n"
    with divvytest.Daemon(config, system=True) as daemon:
        child = start(daemon, program)
        done = subprocess.run([divvytest.binary("divvy"), "run", "--", "true"], env=daemon.env(), capture_output=True,
                              text=True, **divvytest.identity(20001))
        assert done.returncode == 125, done
        refusal = [e for e in ended(daemon).values() if e["state"] == "refused"][-1]
        assert refusal["tenant"] == "late" and "50%" in refusal["why"]
        stop(child)


def test_a_library_of_another_release_leaves_its_reason(daemon):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(os.path.join(daemon.dir, "session.sock"))
        client.send(bytes(544))
        assert client.recv(4096)
    refusal = divvytest.wait_for(lambda: list(ended(daemon).values()), 10, "it is not kept")[-1]
    assert refusal["state"] == "refused" and refusal["command"]
    assert "not a divvy hello" in refusal["why"]
    assert "not a divvy hello" in daemon.cli("explain", str(refusal["id"]))


def suggestion(refusal):
    """The command line that a refusal ends with, if it has one."""
    found = re.search(r"^divvy: to run it now without a guaranteed share: (.*)$", refusal, re.M)
    return found and found[1]


def test_a_request_that_does_not_fit_has_a_way_out(daemon, program):
    """The line that is printed can be typed as it is."""
    holder = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE, env={"DIVVY_REQUEST": "600000"})
    assert holder.stdout.readline() == "ready\n"
    path = {"PATH": "%s:%s" % (os.path.dirname(divvytest.binary("divvy")), os.environ["PATH"])}
    wanted = ("--name", "a b", "--request=50%", "--req", "50%", "--", "printf", "%s.", "it's", "")
    line = suggestion(divvy(daemon, "run", *wanted, code=125).stderr)
    assert line == "divvy run --request 0% --name 'a b' -- printf %s. 'it'\\''s' ''"
    done = subprocess.run(["bash", "-c", line], env={**daemon.env(), **path}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "it's.."), done
    for word in ("x" * 500, "a\tb"):
        assert not suggestion(divvy(daemon, "run", "--request", "50%", "--", "printf", word, code=125).stderr)
    stop(holder)


def test_members_of_a_shared_tenant_get_no_advice_that_does_not_help(program):
    """What they ask for is ignored."""
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    config = ("tenants-see-own: yes\ntenants:\n  - {user: 20001, name: first, may-request: 80%}\n"
              "  - {user: 20002, name: own, may-request: 50%}\n  - {group: 20003, name: team, request: 50%}\n")
    with divvytest.Daemon(config, system=True) as daemon:
        holder = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE, env={"DIVVY_REQUEST": "800000"},
                              **divvytest.identity(20001))
        assert holder.stdout.readline() == "ready\n"
        refused = divvy(daemon, "run", "--", "true", code=125, **divvytest.identity(20003)).stderr
        assert "a request of 50% cannot be kept" in refused and not suggestion(refused)
        refused = divvy(daemon, "run", "--request", "50%", "--", "true", code=125, **divvytest.identity(20002)).stderr
        assert suggestion(refused) == "divvy run --request 0% -- true"
        stop(holder)


def test_a_machine_without_a_driver_says_so(tmp_path):
    with divvytest.Daemon(env={"DIVVY_VENDORS": str(tmp_path)}) as daemon:
        done = divvy(daemon, "run", "--", "true")
        assert "true is started, but finds no device now" in done.stderr


def test_every_end_is_kept(daemon, program):
    orderly = start(daemon, program)
    session = daemon.session_of(orderly.pid)["id"]
    time.sleep(0.5)
    orderly.send_signal(signal.SIGUSR1)
    assert orderly.wait(timeout=60) == 0
    record = divvytest.wait_for(lambda: ended(daemon).get(session), 10, "its end is not kept")
    assert record["state"] == "ended" and record["why"] == "its program ended"
    assert record["commands"] > 0 and record["used_s"] > 0 and record["age_s"] > 0.4
    assert record["started"] <= record["ended"] and record["ended"].endswith("Z")
    daemon.await_log("session %d over: compute of " % session)
    assert "its program ended" in daemon.cli("explain", str(session))

    crashed = start(daemon, program)
    facts = daemon.session_of(crashed.pid)
    os.kill(facts["worker_pid"], signal.SIGKILL)
    record = divvytest.wait_for(lambda: ended(daemon).get(facts["id"]), 10, "its end is not kept")
    assert record["state"] == "crashed" and "its worker was ended by signal 9 (SIGKILL)" in record["why"]

    victim = start(daemon, program)
    facts = daemon.session_of(victim.pid)
    assert "session %d (compute) ended" % facts["id"] in daemon.cli("end", str(facts["id"]))
    record = divvytest.wait_for(lambda: ended(daemon).get(facts["id"]), 10, "its end is not kept")
    assert record["state"] == "terminated" and "divvy end" in record["why"]
    table = daemon.cli("ps", "--ended", "--no-trunc").splitlines()
    assert table[0].split() == ["SESSION", "USER", "COMMAND", "ENDED", "USED", "WHY"] and len(table) >= 4
    stop(orderly, crashed, victim)


def test_ends_of_one_user_leave_those_of_others(program):
    """A user whose sessions end all the time does not push out the records of others."""
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    with divvytest.Daemon("sessions-per-user: 1\n", system=True) as daemon:
        other = daemon.popen([program("compute"), "1", "0"], user=20002, group=20002, extra_groups=[])
        assert other.wait(timeout=60) == 0
        keeper = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE, user=20001, group=20001,
                              extra_groups=[])
        assert keeper.stdout.readline() == "ready\n"
        flood = ("import sys, types; sys.path.insert(0, %r); import leasechannel\n"
                 "for i in range(1500):\n"
                 "    try: leasechannel.Session(types.SimpleNamespace(dir=%r))\n"
                 "    except Exception: pass\n" % (os.path.dirname(divvytest.__file__), daemon.dir))
        subprocess.run([sys.executable, "-c", flood], user=20001, group=20001, extra_groups=[], timeout=120)
        kept = ended(daemon).values()
        assert any(e["uid"] == 20002 for e in kept), "the other user's record is gone"
        assert 0 < sum(e["uid"] == 20001 for e in kept) <= 1024
        stop(keeper)


def test_explain_without_a_number(daemon, program):
    assert "no session waits now" in daemon.cli("explain")
    assert json.loads(daemon.cli("explain", "--json")) == []


def test_compiling_is_a_state(program):
    """A driver can take seconds for it: the session is not idle then."""
    env = {"DIVVY_VENDORS": os.path.join(divvytest.build_dir(), "tests", "vendor"),
           "DIVVY_VENDOR_SCRIPT": "clBuildProgram 1 delay 8s; unknown kernels nop"}
    with divvytest.Daemon(env=env) as daemon:
        child = daemon.popen([program("compute"), "1", "0"], stdout=subprocess.PIPE)
        session, = divvytest.wait_for(lambda: [s["id"] for s in daemon.sessions() if s["state"] == "compiling"], 10,
                                      lambda: daemon.cli("ps"))
        assert re.search(r"^compiling [0-9.]+m?s$", daemon.cli("ps", "-o", "STATE"), re.M)
        said = daemon.cli("explain", str(session))
        assert re.search(r"\) compiles its kernels, for [0-9.]+ m?s\.\n  Because   the driver's compiler", said), said
        assert "no work" not in said and "Entitled" not in said
        device, = json.loads(daemon.cli("explain", str(session), "--json"))["devices"]
        assert device["state"] == "compiling" and 0 < device["state_s"] < 10
        stop(child)


def test_long_times_are_in_seconds(daemon):
    with contextlib.closing(lease.Session(daemon)) as holder, contextlib.closing(lease.Session(daemon)) as other:
        holder.say(lease.WANT)
        serial = holder.granted()
        time.sleep(1.5)
        other.say(lease.WANT)
        divvytest.wait_for(lambda: "has used the device for" in daemon.cli("explain"), 10, "it does not wait")
        said = daemon.cli("explain", str(other.id))
        assert re.search(r"has used the device for [1-9][0-9]?\.[0-9] s(;| and)", said), said
        holder.say(lease.RELEASE, serial)


def test_commands_without_a_daemon(tmp_path):
    for command in (["end", "training"], ["end", "7"], ["ps"]):
        done = subprocess.run([divvytest.binary("divvy"), *command, "--daemon", str(tmp_path)], capture_output=True,
                              text=True)
        assert done.returncode == 1 and "no divvyd answers" in done.stderr, done


def test_a_daemon_that_left_is_explained_at_once(daemon, program):
    child = start(daemon, program)
    daemon.kill(signal.SIGUSR1)
    began = time.monotonic()
    done = divvy(daemon, "ps", code=1)
    assert time.monotonic() - began < 10   # without the note it is 20 s
    assert "left 1 program running, which waits until" in done.stderr
    assert "Start it: divvyd --user --dir %s\n" % daemon.dir in done.stderr
    daemon.start()
    assert len(daemon.sessions()) == 1
    stop(child)


def test_doctor(daemon, program):
    done = divvy(daemon, "doctor")
    assert "a divvyd listens in" in done.stdout and "your programs are served" in done.stdout
    assert done.stdout.endswith("0 faults\n")
    children = [start(daemon, program) for _ in range(3)]
    done = divvy(daemon, "doctor", code=1)
    assert "FAULT your programs would be refused now: " in done.stdout and "1 fault\n" in done.stdout
    stop(*children)
    daemon.kill(signal.SIGKILL)
    assert "has ended" in divvy(daemon, "doctor", code=1).stderr
    daemon.start()


def test_whoami(program):
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    config = ("tenants-see-own: yes\ntenants:\n  - user: 20001\n    name: ann\n    request: 30%\n    may-request: 60%\n"
              "    memory: 64MiB\n")
    with divvytest.Daemon(config, system=True) as daemon:
        divvytest.wait_for(lambda: json.loads(daemon.cli("devices", "--json"))["devices"], 10, "no devices")
        said = divvy(daemon, "whoami", user=20001, group=20001, extra_groups=[]).stdout
        assert "tenant     ann" in said and "request 30%" in said and "may have   request 60%" in said
        assert "sessions   0 of at most" in said and "up to 100% can be requested" in said
        assert "memory: quota 64.0 MiB, used 0 B, left 64.0 MiB" in said
        child = daemon.popen([program("compute"), "1", "600", "16"], stdout=subprocess.PIPE,
                             **divvytest.identity(20001))
        assert child.stdout.readline() == "ready\n"
        device, = json.loads(divvy(daemon, "whoami", "--json", **divvytest.identity(20001)).stdout)["devices"]
        assert device["memory_quota_bytes"] == 64 << 20
        assert 16 << 20 <= device["memory_reserved_bytes"] <= device["memory_quota_bytes"]
        assert "used 0 B" not in divvy(daemon, "whoami", **divvytest.identity(20001)).stdout
        stop(child)
        assert "an operator" in divvy(daemon, "whoami").stdout
    with divvytest.Daemon() as daemon:
        assert "each of your programs is one" in divvy(daemon, "whoami").stdout


@pytest.mark.parametrize("size, words", [("2", "would be 2 bytes"), ("2x", "is a size such as"), ("120%", "is a size")])
def test_sizes_that_are_hardly_meant(daemon, size, words):
    assert words in divvy(daemon, "set", "nobody", "--memory", size, code=2).stderr


def test_tenants_get_advice_that_fits(program):
    if os.geteuid() != 0:
        pytest.skip("needs to become another user")

    def ask(daemon, *command):
        return subprocess.run([divvytest.binary("divvy"), *command], env=daemon.env(), capture_output=True, text=True,
                              user=20001, group=20001, extra_groups=[])
    with divvytest.Daemon("tenants-see-own: yes\n", system=True) as daemon:
        done = ask(daemon, "check")
        assert done.returncode == 1 and "only operators may check the ledger" in done.stderr
        assert "tenants-see-own" not in done.stderr, "it is set"
        assert "divvyd 0." in ask(daemon, "version").stdout
    with divvytest.Daemon(system=True) as daemon:
        done = ask(daemon, "version")
        assert "serves programs; it tells its version to operators only" in done.stdout
        assert "tenants-see-own" in ask(daemon, "ps").stderr


def test_misspelt_commands(daemon):
    assert "Did you mean `divvy tenants`?" in divvy(daemon, "tenant", code=2).stderr
    assert "`divvy --help` lists the commands" in divvy(daemon, "frobnicate", code=2).stderr


def test_a_daemon_that_hangs_is_named(daemon):
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        done = divvy(daemon, "ps", code=1)
        assert "runs, but has not answered for 3 s" in done.stderr and "connections" not in done.stderr
        assert time.monotonic() - began < 8
        command = [divvytest.binary("divvy"), "run", "--", "true"]
        with subprocess.Popen(command, env=daemon.env(), stderr=subprocess.PIPE, text=True) as late:
            assert "has not answered for 3 s; waiting up to 30 s" in late.stderr.readline()
            os.kill(daemon.pid, signal.SIGCONT)
            assert late.wait(timeout=30) == 0
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
