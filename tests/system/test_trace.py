"""Timelines and recordings: what is in them agrees with what happened."""

import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

import pytest

import divvytest
from leasechannel import RELEASE, WANT, Session

ANN, BEN, CLEO = 20001, 20002, 20003
TENANTS = ("ann", "ben", "cleo")
CONFIG = """
tenants:
  - user: %d
    name: ann
    weight: %d
  - user: %d
    name: ben
    weight: 1
  - user: %d
    name: cleo
"""


@pytest.fixture
def machine(program):
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    with divvytest.Daemon(CONFIG % (ANN, 2, BEN, CLEO), env={"POCL_MAX_PTHREAD_COUNT": "1"}, system=True) as daemon, \
            divvytest.BusyPrograms(daemon, program("turns")) as programs:
        daemon.compile_kernels(program("turns"))
        daemon.begin = programs.session
        yield daemon


def used(daemon):
    tenants = json.loads(daemon.cli("tenants", "--json"))["tenants"]
    return {t["name"]: t["devices"][0]["used_s"] for t in tenants if t["devices"]}


def test_a_timeline(machine, tmp_path):
    sessions = {machine.begin(ANN): "ann", machine.begin(BEN): "ben"}
    time.sleep(1)
    path = tmp_path / "trace.json"

    def trace():
        assert "events in" in machine.cli("trace", "-o", str(path), "--for", "2s")
        events = json.loads(path.read_text())["traceEvents"]
        return events, sorted((e["ts"], e["ts"] + e["dur"], e["args"]["tenant"]) for e in events
                              if e["ph"] == "X" and e["tid"] == 0)

    def ratio():
        took = {name: sum(end - begin for begin, end, tenant in trace()[1] if tenant == name) for name in ("ann", "ben")}
        return took["ann"] / took["ben"]
    events, holds = trace()
    names = {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert any(name.startswith("device 0 ") for name in names)
    assert {"session %d: turns (%s)" % pair for pair in sessions.items()} <= names
    assert {"session %d runs: turns (%s)" % pair for pair in sessions.items()} <= names
    assert len(holds) > 20
    for (_, end, _), (begin, _, _) in zip(holds, holds[1:]):
        assert begin >= end - 1, "a device of one slot has one holder at a time"
    divvytest.assert_median(ratio, 1.4, 2.9)
    waits = [e for e in events if e["ph"] == "X" and e["name"] == "waits"]
    assert waits and all(e["dur"] > 0 for e in waits)


def kernels_of(events, session):
    track = next(e["tid"] for e in events if e["ph"] == "M" and e["args"]["name"].startswith("session %d runs" % session))
    return sorted((e["ts"], e["ts"] + e["dur"], e["name"]) for e in events if e["ph"] == "X" and e["tid"] == track)


def test_kernels_by_name(machine, tmp_path):
    ann, ben = machine.begin(ANN), machine.begin(BEN)
    time.sleep(0.5)
    path = tmp_path / "trace.json"

    def parts():
        """Of the kernels of each session: the part while it holds the device, and the part of its holds."""
        machine.cli("trace", "-o", str(path), "--for", "2s")
        events = json.loads(path.read_text())["traceEvents"]
        holds = sorted((e["ts"], e["ts"] + e["dur"], e["args"]["session"]) for e in events
                       if e["ph"] == "X" and e["tid"] == 0)
        for session in (ann, ben):
            kernels = [k for k in kernels_of(events, session) if k[2] == "turns"]
            assert len(kernels) > 20
            for (_, end, _), (begin, _, _) in zip(kernels, kernels[1:]):
                assert begin >= end - 1
            busy = sum(end - begin for begin, end, _ in kernels)
            inside = sum(max(0, min(end, e) - max(begin, b)) for begin, end, _ in kernels
                         for b, e, s in holds if s == session)
            yield inside / busy, busy / sum(e - b for b, e, s in holds if s == session)
    seen = [list(parts()) for _ in range(3)]
    for session in (0, 1):
        inside, of_holds = (statistics.median(part) for part in zip(*(one[session] for one in seen)))
        assert inside > 0.8 and 0.5 < of_holds < 1.1, seen
    machine.cli("trace", "-o", str(path), "--for", "1s", "--leases")
    events = json.loads(path.read_text())["traceEvents"]
    assert "holds" in {e["name"] for e in events}
    assert not [e for e in events if e["ph"] == "M" and re.match(r"session \d+ runs", e["args"]["name"])]
    assert "turns" not in {e["name"] for e in events}


@pytest.fixture
def swapping(program, tmp_path):
    """The events of two programs that do not fit on the device together. Their driver takes a second to compile."""
    config = ('devices:\n  - match: "*"\n    unified: no\n    capacity: 64MiB\n'
              "tenants:\n  - per: program\n    memory: 4GiB\n")
    script = "device type gpu\ndevice unified no\nclBuildProgram * delay 1s\n"
    path = tmp_path / "swapping.json"

    def say(child, *words):
        child.stdin.write(" ".join(map(str, words)) + "\n")
        child.stdin.flush()
        assert child.stdout.readline() == "ok\n", words
    with divvytest.Daemon(config, env={
            "DIVVY_VENDORS": os.path.join(divvytest.build_dir(), "tests", "vendor"),
            "DIVVY_VENDOR_SCRIPT": script}) as daemon, contextlib.ExitStack() as stack:
        with recorded(daemon, path, "trace"):
            children = [daemon.popen([program("memory"), "written"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                        for _ in range(2)]
            for child in children:
                stack.callback(divvytest.kill_group, child)
                assert child.stdout.readline().startswith("ready ")
            for number, child in enumerate(children):
                say(child, "alloc", 0, OBJECT_BYTES)
                say(child, "fill", 0, number)
            for _ in range(3):
                for child in children:
                    say(child, "bump", 0)
            for number, child in enumerate(children):
                say(child, "check", 0, number, 3)
            sessions = [daemon.session_of(child.pid)["id"] for child in children]
    return json.loads(path.read_text())["traceEvents"], sessions


OBJECT_BYTES = 48 << 20


def spans_of(events, session, does):
    """Those on the track of what a session does: its names and what else is known of each."""
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    tracks = {tid for tid, name in names.items() if name.startswith("session %d%s: memory " % (session, does))}
    return [e for e in events if e["tid"] in tracks and e["ph"] in "Xi"]


def test_compilations_and_memory(swapping):
    events, sessions = swapping
    for session in sessions:
        compiles = spans_of(events, session, " compiles")
        assert [e["name"] for e in compiles] == ["compile"] and 0.9e6 < compiles[0]["dur"] < 60e6, compiles
        moves = spans_of(events, session, " moves memory")
        for name in ("copy-in", "copy-out"):
            assert sum(e["args"]["bytes"] for e in moves if e["name"] == name) >= OBJECT_BYTES, moves
        assert {e["name"] for e in moves} == {"copy-in", "copy-out"} and all(e["dur"] > 0 for e in moves)
        held = spans_of(events, session, "")
        evictions = [e for e in held if e["name"] == "evict"]
        assert evictions and all(e["ph"] == "i" and 0 < e["args"]["bytes"] <= OBJECT_BYTES for e in evictions)
        brought = [e for e in held if e["name"] == "brings memory"]
        assert brought and any(e["args"]["bytes_on_device"] >= OBJECT_BYTES for e in brought), brought
        assert all(e["ph"] == "X" for e in brought)


def test_commands_of_the_host_by_name(swapping):
    """Those that move data say in which direction."""
    events, sessions = swapping
    for session in sessions:
        names = {e["name"] for e in spans_of(events, session, " runs")}
        assert {"inc", "write", "read"} <= names and "transfer" not in names, names


def test_workers_stop_when_the_trace_ends(machine, tmp_path):
    session = machine.begin(ANN)
    machine.cli("trace", "-o", str(tmp_path / "x"), "--for", "2s")
    worker = json.loads(machine.cli("ps", "--json"))["sessions"][0]["worker_pid"]
    with open("/proc/%d/maps" % worker) as maps:
        begin = next(int(line.split("-")[0], 16) for line in maps if "memfd:divvy" in line)

    def numbers():
        with open("/proc/%d/mem" % worker, "rb") as memory:
            memory.seek(begin + 0x1000 + (11 << 20) + (256 << 20))
            ring = memory.read(32768 * 128)
        return max(int.from_bytes(ring[at:at + 8], "little") for at in range(0, len(ring), 128))
    def has_stopped():
        seen = numbers()
        time.sleep(0.5)
        return seen > 10 and numbers() == seen
    divvytest.wait_for(has_stopped, 6, "the worker goes on")   # by itself it stops after 10 s
    assert session


def test_one_trace_of_commands_at_a_time(machine, tmp_path):
    machine.begin(ANN)
    child = subprocess.Popen(["curl", "-sN", "--unix-socket", os.path.join(machine.dir, "control", "control.sock"),
                              "http://divvyd/v1/trace?commands=yes"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline()
        done = subprocess.run([divvytest.binary("divvy"), "trace", "-o", str(tmp_path / "y"), "--for", "1s"],
                              env=machine.env(), capture_output=True, text=True)
        assert done.returncode == 1 and "another trace is under way" in done.stderr
        machine.cli("trace", "-o", str(tmp_path / "y"), "--for", "300ms", "--leases")
    finally:
        child.kill()
        child.communicate()


def test_only_operators_trace(machine):
    done = subprocess.run([divvytest.binary("divvy"), "trace", "-o", "-"], env=machine.env(), capture_output=True,
                          text=True, **divvytest.identity(BEN))
    assert done.returncode == 1 and "operator" in done.stderr


def test_tracing_ends_with_its_reader(machine, tmp_path):
    machine.begin(ANN)
    child = subprocess.Popen([divvytest.binary("divvy"), "trace", "-o", str(tmp_path / "x"), "--for", "600s"],
                             env=machine.env())
    time.sleep(1)
    child.kill()
    child.wait()
    time.sleep(0.5)
    with open("/proc/%d/status" % machine.pid) as status:
        before = next(line for line in status if line.startswith("VmRSS"))
    assert before
    machine.cli("trace", "-o", str(tmp_path / "y"), "--for", "500ms")
    assert json.loads((tmp_path / "y").read_text())["traceEvents"]


def simulated(path, *options):
    """Each tenant's part of the time that was used."""
    done = subprocess.run([divvytest.binary("divvy-sim"), *options, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    heading = next(row for row in rows if "SHARE" in row)
    place = heading.index("SHARE")
    return parts({row[0]: float(row[place].rstrip("%")) for row in rows if row and row[0] in TENANTS})


def parts(amounts):
    return {name: 100 * amount / sum(amounts.values()) for name, amount in amounts.items()}


def test_a_recording_replayed_gives_the_same_shares(machine, tmp_path):
    machine.begin(ANN)
    machine.begin(BEN)
    machine.begin(BEN, rounds=60000)
    time.sleep(1)
    path, config = tmp_path / "load.yaml", tmp_path / "divvy.yaml"
    config.write_text(CONFIG % (ANN, 1, BEN, CLEO))
    offs, others = [], []
    for _ in range(5):
        before = used(machine)
        machine.cli("record", "-o", str(path), "--for", "5s", timeout=60)
        after = used(machine)
        real = parts({name: after[name] - before[name] for name in after})
        offs.append(abs(simulated(path)["ann"] - real["ann"]))
        others.append(simulated(path, "--config", str(config))["ann"])
    assert statistics.median(offs) < 2, offs
    assert abs(statistics.median(others) - 50) < 3, others


@pytest.mark.long
def test_a_minute_of_mixed_load_replayed(machine, tmp_path):
    """Batch work of two lengths, a program that mostly pauses, one that ends meanwhile and one that begins."""
    machine.begin(ANN)
    machine.begin(BEN, rounds=60000)
    machine.begin(CLEO, rounds=40000, pause_ms=20)
    path, config = tmp_path / "load.yaml", tmp_path / "divvy.yaml"
    config.write_text(CONFIG % (ANN, 2, BEN, CLEO))   # that of the machine
    offs, configured = [], []
    for _ in range(3):
        machine.begin(ANN, rounds=5000, seconds=25)
        time.sleep(1)
        before = used(machine)
        recording = subprocess.Popen([divvytest.binary("divvy"), "record", "-o", str(path), "--for", "60s"],
                                     env=machine.env())
        time.sleep(30)
        machine.begin(BEN, rounds=5000, seconds=20)
        assert recording.wait(60) == 0
        after = used(machine)
        real = parts({name: after[name] - before[name] for name in after})
        for options, off in (((), offs), (("--config", str(config)), configured)):
            again = simulated(path, *options)
            off.append({name: round(again[name] - real[name], 2) for name in real})
        print("really got %s, replayed off by %s, and with the configuration by %s" % (
            {name: round(part, 1) for name, part in real.items()}, offs[-1], configured[-1]))
    for name in offs[0]:
        for off in offs, configured:
            assert abs(statistics.median(one[name] for one in off)) < 2, (offs, configured)


def test_a_program_that_is_alone_is_recorded(machine, tmp_path):
    """It keeps the device without an event."""
    machine.begin(ANN)
    time.sleep(0.5)
    path = tmp_path / "load.yaml"
    def replayed():
        machine.cli("record", "-o", str(path), "--for", "2s")
        done = subprocess.run([divvytest.binary("divvy-sim"), str(path)], capture_output=True, text=True)
        rows = [line.split() for line in done.stdout.splitlines()]
        place = next(row for row in rows if "SHARE" in row).index("SHARE")
        return float(next(row for row in rows if row and row[0] == "ann")[place].rstrip("%"))

    def held_s():
        trace = tmp_path / "trace.json"
        machine.cli("trace", "-o", str(trace), "--for", "2s", "--leases")
        return sum(e["dur"] for e in json.loads(trace.read_text())["traceEvents"]
                   if e["ph"] == "X" and e["tid"] == 0) / 1e6
    divvytest.assert_median(replayed, 60, 101)   # it would be near 0
    divvytest.assert_median(held_s, 1, 2.2)


@contextlib.contextmanager
def recorded(daemon, path, command="record"):
    """Records what is done in its block, or traces it."""
    recording = subprocess.Popen([divvytest.binary("divvy"), command, "-o", str(path), "--for", "600s"],
                                 env=daemon.env(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    def catches_interrupts():
        with open("/proc/%d/status" % recording.pid) as status:
            mask = next(line for line in status if line.startswith("SigCgt"))
        return int(mask.split()[1], 16) >> (signal.SIGINT - 1) & 1
    try:
        divvytest.wait_for(catches_interrupts, 20, "it does not record")   # and connects then
        time.sleep(1)
        yield
        time.sleep(2)   # the last events come a little later
    finally:
        recording.send_signal(signal.SIGINT)
        said = recording.communicate(timeout=60)[1]
    assert (recording.returncode, said) == (0, "")


def tenants_of(path):
    """Their names, with what is said about each."""
    parts_ = re.split(r"^  - name: (.*)$", path.read_text().split("tenants:")[1], flags=re.M)[1:]
    return {json.loads(name): text for name, text in zip(parts_[::2], parts_[1::2])}


def test_programs_that_begin_meanwhile_are_recorded(machine, tmp_path):
    """With the shares of their tenants. Before a program, `divvy run` has a session of its own, of which divvyd keeps
    no name."""
    machine.begin(BEN)
    path = tmp_path / "load.yaml"
    with recorded(machine, path):
        machine.run(["true"])
        machine.begin(ANN)
    tenants = tenants_of(path)
    assert sorted(tenants) == ["ann", "ben"]
    assert "weight: 2\n" in tenants["ann"] and "weight: 1\n" in tenants["ben"]
    assert set(simulated(path)) == {"ann", "ben"}


def test_more_sessions_than_divvyd_keeps_the_names_of(machine, tmp_path):
    path = tmp_path / "load.yaml"
    with recorded(machine, path):
        for _ in range(1100):
            with contextlib.closing(Session(machine)) as session:
                session.say(WANT)
                serial = session.granted()
                time.sleep(0.001)
                session.say(RELEASE, serial)
    tenants = tenants_of(path)
    assert list(tenants) == ["root"]
    assert tenants["root"].count("- ended: true") >= 1100   # the fixture's program may still leave
    simulated(path)


def test_requests_of_tenants_that_were_not_there_at_one_time(program, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    config = (CONFIG % (ANN, 2, BEN, CLEO)).replace("weight: 2", "request: 70%").replace("weight: 1", "request: 60%")
    path = tmp_path / "load.yaml"
    with divvytest.Daemon(config, system=True) as daemon:
        daemon.compile_kernels(program("turns"))
        with recorded(daemon, path):
            for user in ANN, BEN:
                done = daemon.run([program("turns"), "20000", "2.5"], **divvytest.identity(user))
                assert done.returncode == 0, done.stderr
                divvytest.wait_for(lambda: not daemon.sessions(), 10, "its session is still there")
    tenants = tenants_of(path)
    assert "request: 70%\n" in tenants["ann"] and "request: 30%\n" in tenants["ben"], tenants
    simulated(path)


def test_two_cards_of_one_name(program, tmp_path):
    path = tmp_path / "load.yaml"
    with divvytest.Daemon(env={"POCL_DEVICES": "pthread pthread"}) as daemon:
        with recorded(daemon, path):
            assert daemon.run([program("compute"), "1", "0"]).returncode == 0
    names = re.findall(r"^  - name: (.*)$", path.read_text().split("tenants:")[0], re.M)
    assert [json.loads(name)[-3:] for name in names] == [" #0", " #1"]
    simulated(path)


def test_no_recording_is_longer_than_a_simulation(machine):
    done = subprocess.run([divvytest.binary("divvy"), "record", "-o", "-", "--for", "61min"], env=machine.env(),
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "60min" in done.stderr


@pytest.mark.parametrize("command", ["trace", "record"])
def test_a_file_that_cannot_be_written_is_told_at_once(machine, tmp_path, command):
    began = time.monotonic()
    done = subprocess.run([divvytest.binary("divvy"), command, "-o", str(tmp_path / "no" / "file"), "--for", "60s"],
                          env=machine.env(), capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "cannot write" in done.stderr, done
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("command", ["trace", "record"])
def test_a_command_that_fails_leaves_files_as_they_were(machine, tmp_path, command):
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("as it was")
    for path in (new, old):
        done = subprocess.run([divvytest.binary("divvy"), command, "-o", str(path), "--daemon", str(tmp_path)],
                              env=machine.env(), capture_output=True, text=True, timeout=30)
        assert done.returncode == 1, done
    assert not new.exists() and old.read_text() == "as it was"


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
