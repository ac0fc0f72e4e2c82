"""What bench/run share makes of the times of kernels: figures with made-up values, and trials with
made-up logs."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import harness  # noqa: E402
from sharing import latency  # noqa: E402
from sharing.figures import Figure  # noqa: E402
from sharing.trial import NS_PER_MS, Log, Tenant, Trial, Work  # noqa: E402


def made_figure(values, bar=(">=", 97), best=("<=", 100), disturbed=None):
    figure = Figure("busy_eight", "a figure", bar, best=best)
    for index, value in enumerate(values):
        figure.add(value, disturbed[index] if disturbed else None)
    return figure


def made_trial(kernel_ms, *kernels_of_tenants, seconds=2):
    """kernels: (begun, ended) in ms after the start; asked for when they begin."""
    trial = Trial.__new__(Trial)
    trial.start_ns, trial.seconds = 10**12, seconds
    trial.tenants = [Tenant(f"t{i}", None, Work(kernel_ms)) for i in range(len(kernels_of_tenants))]
    trial.logs = []
    for kernels in kernels_of_tenants:
        log = Log([])
        for begun, ended in kernels:
            begun, ended = (trial.start_ns + round(t * NS_PER_MS) for t in (begun, ended))
            log.kernels.append((begun, begun, ended, ended))
        trial.logs.append(log)
    return trial


def back_to_back(kernel_ms, from_ms, until_ms):
    count = round((until_ms - from_ms) / kernel_ms)
    return [(from_ms + i * kernel_ms, from_ms + (i + 1) * kernel_ms) for i in range(count)]


# ---- figures ----

def test_better_than_theory_is_not_believed():
    assert made_figure([98, 99, 99]).verdict() == "ok"
    assert made_figure([98, 99, 101]).verdict() == "REFUSED"
    assert made_figure([0.3, -0.5], ("<=", 1), (">=", 0)).verdict() == "REFUSED"
    assert made_figure([101], bar=None).verdict() == "REFUSED"


def test_better_than_theory_is_not_counted_as_passed(capsys):
    assert harness.conclude("share", [made_figure([101])], "divvy") == 3
    assert " judged=0 missed=0 failed=0 disturbed=0 refused=1 " in capsys.readouterr().out


def test_better_than_theory_on_a_disturbed_machine_is_not_judged():
    assert made_figure([99, 99, 101], disturbed=[False, False, True]).verdict() == "DISTURBED"
    assert made_figure([99, 101, 101], disturbed=[False, False, True]).verdict() == "REFUSED"
    assert made_figure([101], bar=None, disturbed=[True]).verdict() == "-"


def test_what_theory_allows_may_follow_from_the_repetition():
    figure = Figure("busy_two", "of what one keeps it busy", (">=", 98), best=("<=", 100))
    figure.add(102, limit=100 / 0.95)
    assert figure.verdict() == "ok"
    figure.add(107, limit=100 / 0.95)
    assert figure.verdict() == "REFUSED"


@pytest.mark.parametrize("disturbed, verdict", [
    ([False] * 5, "MISS"), ([True, True, False, False, False], "MISS"),
    ([True, True, True, False, False], "DISTURBED")])
def test_the_median_counts_while_most_repetitions_were_ours(disturbed, verdict):
    assert made_figure([90] * 5, disturbed=disturbed).verdict() == verdict
    assert made_figure([99] * 5, disturbed=disturbed).verdict() == "ok"


def test_a_figure_for_any_machine_is_judged_on_a_disturbed_one():
    figure = Figure("equal2_held_off", "gaps included", ("<=", 5), always=True)
    figure.add(30, disturbed=True)
    assert figure.verdict() == "FAIL"


# ---- trials ----

def test_busy_counts_two_kernels_at_once_once():
    trial = made_trial(10, back_to_back(10, 1000, 2000), back_to_back(10, 1000, 1500))
    assert trial.busy() == pytest.approx(100)
    assert trial.at_once() == pytest.approx(50)


def test_a_stalled_kernel_does_not_make_the_device_busy():
    kernels = back_to_back(10, 1000, 1500) + [(1500, 2000)]
    assert made_trial(10, kernels).busy() == pytest.approx(51)


def test_busy_counts_the_part_of_a_kernel_that_lies_inside():
    assert made_trial(100, [(950, 1050), (1950, 2050)]).busy() == pytest.approx(10)


def test_one_stall_does_not_spoil_the_stretch():
    kernels = back_to_back(10, 0, 1000) + [(1000, 2000)]
    assert made_trial(10, kernels).stretch() == pytest.approx(1)
    assert made_trial(5, kernels).stretch() == pytest.approx(2)


def test_a_burst_lasts_from_its_wake_up_to_its_last_kernel():
    trial = made_trial(10, [(1000, 1010), (1010, 1025), (1100, 1110), (1110, 1120)])
    trial.tenants[0].works[0].burst = 2
    assert trial.bursts_ms(0) == pytest.approx([25, 20])


# ---- latency ----

def test_ideal_responses_wait_for_one_kernel_and_for_earlier_requests():
    arrivals = [(1000.5 + 100 * i, 1001) for i in range(10)]   # 9.5 ms of a batch kernel are left
    trial = made_trial(2, arrivals)
    assert latency.ideal_p99(trial, 2 * NS_PER_MS, 10 * NS_PER_MS) == pytest.approx(11.5)
    assert latency.ideal_p99(trial, 2 * NS_PER_MS, 0) == pytest.approx(2)
    two_at_once = made_trial(2, [(1000, 1001)] * 2)
    assert latency.ideal_p99(two_at_once, 2 * NS_PER_MS, 0) == pytest.approx(4, abs=0.1)
