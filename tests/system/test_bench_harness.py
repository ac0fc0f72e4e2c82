"""What the benches believe of the machine: whose CPU time is whose, and when a run is disturbed."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import harness  # noqa: E402
import memory  # noqa: E402

BURN = "import time\nwhile time.process_time() < %g: pass\n"


def run_with_harness(text):
    """In a process of its own: what is seen there is not mixed with pytest's own children."""
    out = subprocess.run([sys.executable, "-c", "import json, os, subprocess, sys, time\n"
                          f"sys.path.insert(0, {str(ROOT / 'bench')!r})\nimport harness\n"
                          f"BURN = {BURN!r}\n" + text],
                         capture_output=True, text=True, timeout=120, check=True)
    return json.loads(out.stdout)


def test_time_of_children_is_own_while_they_run_and_after():
    times = run_with_harness("""
before = harness.own_cpu_seconds()
child = subprocess.Popen([sys.executable, "-c", BURN % 0.6 + "print(flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
running = harness.own_cpu_seconds() - before
child.communicate(b"\\n")
print(json.dumps([running, harness.own_cpu_seconds() - before]))
""")
    assert all(0.5 <= t <= 1.2 for t in times), times


def test_time_of_orphans_stays_own():
    times = run_with_harness("""
harness.Watch()
before = harness.own_cpu_seconds()
reading, writing = os.pipe()
orphan = BURN % 0.6 + f"import os; os.write({writing}, b'.'); time.sleep(60)"
text = f"import subprocess; print(subprocess.Popen([{sys.executable!r}, '-c', {orphan!r}], " \\
       f"pass_fds=[{writing}]).pid)"
parent = subprocess.Popen([sys.executable, "-c", text], pass_fds=[writing], stdout=subprocess.PIPE)
pid = int(parent.stdout.readline())
parent.wait()
os.read(reading, 1)
alive = harness.own_cpu_seconds() - before
os.kill(pid, 9)
time.sleep(0.2)
print(json.dumps([alive, harness.own_cpu_seconds() - before]))
""")
    assert all(0.5 <= t <= 1.5 for t in times), times


def test_time_of_others_is_seen():
    loads = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
             for _ in range(os.cpu_count())]
    try:
        stolen, others, pressure = run_with_harness("""
watch = harness.Watch()
time.sleep(2)
print(json.dumps(watch.disturbance()))
""")
    finally:
        for load in loads:
            load.kill()
            load.wait()
    assert others + stolen > 50


@pytest.mark.parametrize("stolen, others, pressure, matters", [
    (0.0, 0.0, 90.0, False),   # ours wait for each other
    (0.0, 90.0, 1.0, False),   # others have cores that nothing else wants
    (0.0, 90.0, 90.0, True),
    (3.0, 0.0, 0.0, True),
    (0.0, 90.0, None, False),   # no pressure known: stolen time only
    (3.0, 0.0, None, True),
])
def test_what_disturbs(stolen, others, pressure, matters):
    disturbance = harness.Disturbance(stolen, others, pressure)
    assert disturbance.matters() == matters
    assert ("DISTURBED" in str(disturbance)) == matters
    assert ("/proc/pressure" in str(disturbance)) == (pressure is None)


def test_no_pressure_file(monkeypatch, tmp_path):
    monkeypatch.setattr(harness, "PRESSURE_FILE", tmp_path / "missing")
    assert harness.pressure_seconds() is None
    (tmp_path / "missing").write_text("")
    assert harness.pressure_seconds() is None


def figure(values, disturbed=False, **kwargs):
    made = harness.Figure("key", "label", ("<=", 0.62), **kwargs)
    for value in values:
        made.add_round([value])
    made.disturbed = disturbed
    return made


@pytest.mark.parametrize("values, disturbed, verdict", [
    ([0.60, 0.61, 0.70], False, "ok"),
    ([0.60, 0.625, 0.63], False, "MISS"),   # no allowance
    ([0.60, 0.66, 0.70], True, "DISTURBED"),
    ([0.60, 0.61, 0.61], True, "DISTURBED"),   # others may have slowed down the other side
    ([0.55, 0.56, 0.56], False, "ok"),   # better than the optimum by no more than noise
    ([0.295, 0.60, 0.61], False, "REFUSED"),
    ([0.295, 0.30, 0.31], True, "REFUSED"),
])
def test_verdict_beside_an_optimum(values, disturbed, verdict):
    made = figure(values, disturbed, optimum=(">=", 0.5625), strict=True)
    assert made.verdict() == verdict
    assert made.row()[-3:] == ["0.5625", "<= 0.62", verdict]


@pytest.mark.parametrize("values, counts, code", [
    ([0.60], "judged=1 missed=0 disturbed=0 refused=0", 0),
    ([0.80], "judged=1 missed=1 disturbed=0 refused=0", 1),
    ([0.30], "judged=0 missed=0 disturbed=0 refused=1", 3),
])
def test_line_for_machines(values, counts, code, capsys):
    made = figure(values, optimum=(">=", 0.5625), strict=True)
    assert harness.conclude("some", [made], "divvy") == code
    assert f"bench=some compare=divvy {counts} key=" in capsys.readouterr().out


def test_optimum_of_makespans():
    assert memory.optimum_of_two(0.5, 4) == 0.5625
    assert memory.optimum_of_two(0.9, 4) == pytest.approx(0.9125)


# ---- how CI counts figures ----

KEPT = "bench=some compare=divvy judged=9 missed=0 disturbed=0 refused=0 a=1\n", 0
NEAR = ("misses its bar: a: 1.100, bar <= 1\n"
        "bench=some compare=divvy judged=9 missed=1 disturbed=0 refused=0 a=1.1\n", 1)
FAR = ("misses its bar: a: 1.300, bar <= 1\nmisses its bar: b: 0.950, bar >= 1\n"
       "bench=some compare=divvy judged=9 missed=2 disturbed=0 refused=0 a=1.3\n", 1)
UNJUDGED = ("not judged, disturbed: a: 1.300, bar <= 1\n"
            "refused, better than possible: b: 0.100, optimum 0.5000\n"
            "bench=some compare=divvy judged=7 missed=0 disturbed=1 refused=1 a=1.3\n", 3)
CRASH = "Traceback\n", 1
KILLED = KEPT[0], 137


@pytest.mark.parametrize("attempts, totals, code", [
    ([KEPT], "some: 9 passed, 0 failed, 0 skipped", 0),
    ([NEAR], "some: 8 passed, 0 failed, 1 skipped", 0),
    ([UNJUDGED], "some: 7 passed, 0 failed, 2 skipped", 0),
    ([FAR, FAR, FAR], "some: 7 passed, 1 failed, 1 skipped", 1),
    ([FAR, NEAR], "some: 8 passed, 0 failed, 1 skipped", 0),
    ([FAR, UNJUDGED], "some: 7 passed, 0 failed, 2 skipped", 0),
    ([FAR, FAR, KEPT], "some: 9 passed, 0 failed, 0 skipped", 0),
    ([CRASH], "bench: 0 passed, 1 failed", 1),
    ([FAR, CRASH], "bench: 0 passed, 1 failed", 1),
    ([KILLED], "bench: 0 passed, 1 failed", 1),
])
def test_count_of_figures(attempts, totals, code, tmp_path):
    """A command that says one thing after the other stands for the bench."""
    for number, (text, exit_code) in enumerate(attempts):
        (tmp_path / str(number)).write_text(text)
        (tmp_path / f"{number}.code").write_text(str(exit_code))
    fake = tmp_path / "fake"
    fake.write_text(f'#!/bin/sh\ncd {tmp_path}\nn=$(cat next 2>/dev/null || echo 0)\n'
                    'echo $((n + 1)) >next\ncat $n\nexit $(cat $n.code)\n')
    fake.chmod(0o755)
    done = subprocess.run([str(ROOT / ".ci" / "bench"), str(fake)], capture_output=True, text=True,
                          timeout=60)
    assert done.stdout.splitlines()[-1] == totals
    assert done.returncode == code
    assert (tmp_path / "next").read_text().strip() == str(len(attempts))
