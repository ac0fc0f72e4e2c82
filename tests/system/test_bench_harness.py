"""When a run of a bench is disturbed, and how its figures are judged and counted."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import bars  # noqa: E402
import harness  # noqa: E402
import memory  # noqa: E402


def run_with_harness(text):
    """In a process of its own: what is seen there is not mixed with pytest's own children."""
    out = subprocess.run([sys.executable, "-c", "import json, os, subprocess, sys, time\n"
                          f"sys.path.insert(0, {str(ROOT / 'bench')!r})\nimport harness\n" + text],
                         capture_output=True, text=True, timeout=120, check=True)
    return json.loads(out.stdout)


@pytest.mark.parametrize("stolen, matters", [(0.0, False), (1.9, False), (3.0, True)])
def test_what_disturbs(stolen, matters):
    disturbance = harness.Disturbance(stolen)
    assert disturbance.matters() == matters
    assert ("DISTURBED" in str(disturbance)) == matters


def test_load_of_this_machine_does_not_disturb():
    """Whatever divvy itself could cause is part of what is measured."""
    loads = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
    try:
        stolen, = run_with_harness("""
watch = harness.Watch()
time.sleep(1)
print(json.dumps(watch.disturbance()))
""")
    finally:
        for load in loads:
            load.kill()
            load.wait()
    before, after = harness.stolen_seconds(), harness.stolen_seconds()
    assert len(before) == os.cpu_count() and all(late >= early for early, late in zip(before, after))
    assert 0 <= stolen <= 100


def figure(values, disturbed=False, **kwargs):
    made = harness.Figure("makespan_key", "label", ("<=", 0.62), **kwargs)
    for value in values:
        made.add_round([value])
    made.disturbed = disturbed
    return made


@pytest.mark.parametrize("values, disturbed, verdict", [
    ([0.60, 0.61, 0.70], False, "ok"),
    ([0.60, 0.625, 0.63], False, "MISS"),   # no allowance
    ([0.60, 1.2, 1.3], False, "FAIL"),
    ([0.60, 0.66, 0.70], True, "DISTURBED"),
    ([0.60, 0.61, 0.61], True, "DISTURBED"),   # others may have slowed down the other side
    ([0.55, 0.56, 0.56], False, "ok"),   # better than the optimum by no more than noise
    ([0.295, 0.60, 0.61], False, "REFUSED"),
    ([0.295, 0.30, 0.31], True, "REFUSED"),
])
def test_verdict_beside_an_optimum(values, disturbed, verdict):
    made = figure(values, disturbed, optimum=(">=", 0.5625), strict=True)
    assert made.verdict() == verdict
    assert made.row()[-3:] == ["0.5625", "<= 0.62 (1.1)", verdict]


@pytest.mark.parametrize("values, counts, code", [
    ([0.60], "judged=1 missed=0 failed=0 disturbed=0 refused=0", 0),
    ([0.80], "judged=1 missed=1 failed=0 disturbed=0 refused=0", 1),
    ([1.20], "judged=1 missed=0 failed=1 disturbed=0 refused=0", 1),
    ([0.30], "judged=0 missed=0 failed=0 disturbed=0 refused=1", 3),
])
def test_line_for_machines(values, counts, code, capsys):
    made = figure(values, optimum=(">=", 0.5625), strict=True)
    assert harness.conclude("some", [made], "divvy") == code
    assert f"bench=some compare=divvy {counts} makespan_key=" in capsys.readouterr().out


def test_every_goal_has_a_ci_bar():
    """A bar that fails CI is further off than the goal."""
    with pytest.raises(KeyError):
        bars.ci_bar("unheard_of", (">=", 1))
    assert bars.ci_bar("unheard_of", None) is None
    assert bars.ci_bar("equal2_within2", (">=", 99)) == (">=", 75)
    assert bars.ci_bar("equal2_held_off", ("<=", 5)) == ("<=", 6.25)


def test_optimum_of_makespans():
    assert memory.optimum_of_two(0.5, 4) == 0.5625
    assert memory.optimum_of_two(0.9, 4) == pytest.approx(0.9125)


# ---- how CI counts figures ----

def said(judged, missed=0, failed=0, disturbed=0, refused=0, a=1.0):
    beyond = "beyond its CI bar: a <= 1.25\n" * failed
    return (f"{beyond}bench=some compare=divvy judged={judged} missed={missed} failed={failed} "
            f"disturbed={disturbed} refused={refused} a={a}\n"), 1 if missed or failed else 3 if disturbed else 0


KEPT = said(9)
NEAR = said(9, missed=1, a=1.1)
FAR = said(9, missed=1, failed=1, a=1.3)
UNJUDGED = said(7, disturbed=1, refused=1, a=1.3)
CRASH = "Traceback\n", 1
KILLED = KEPT[0], 137


@pytest.mark.parametrize("attempts, totals, code", [
    ([KEPT], "some: 9 passed, 0 missed, 0 failed", 0),
    ([NEAR], "some: 8 passed, 1 missed, 0 failed", 0),
    ([UNJUDGED], "some: 7 passed, 2 missed, 0 failed", 0),
    ([FAR, FAR, FAR], "some: 7 passed, 1 missed, 1 failed", 1),
    ([FAR, KEPT, FAR], "some: 7 passed, 1 missed, 1 failed", 1),   # by the median, not by the best
    ([FAR, NEAR, KEPT], "some: 7 passed, 2 missed, 0 failed", 0),
    ([CRASH], "bench: 0 passed, 0 missed, 1 failed", 1),
    ([FAR, CRASH], "bench: 0 passed, 0 missed, 1 failed", 1),
    ([KILLED], "bench: 0 passed, 0 missed, 1 failed", 1),
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
