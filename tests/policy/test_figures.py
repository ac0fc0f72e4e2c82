#!/usr/bin/python3
"""The figures that docs/policies.md states, from divvy-sim and its examples.

usage: test_figures.py DIVVY-SIM EXAMPLES-DIRECTORY
"""
import pathlib
import re
import subprocess
import sys

FIXED = ["1ms", "2ms", "3ms", "5ms", "7ms", "10ms", "15ms", "20ms", "50ms", "100ms", "1s"]
SIM, EXAMPLES = sys.argv[1], pathlib.Path(sys.argv[2])
failures = []


def run(example, *options):
    """The rows by tenant, and the geometric mean of what tenants got done."""
    command = [SIM, *options, str(EXAMPLES / f"{example}.yaml")]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = {}
    for line in text.splitlines()[1:-1]:
        name, kind, rest = line.split(maxsplit=2)
        entitled, share, *more = rest.replace("points", "").replace("/", " ").replace("%", "").split()
        rows[name] = {"class": kind, "share": float(share)}
        if entitled != "-":
            rows[name].update(entitled=float(entitled), worst=abs(float(more[0])),
                              within=float(more[1]))
        rows[name]["latency_p99"] = float(more[5])
    return rows, float(re.search(r"\(([0-9.]+)% a tenant", text).group(1))


def expect(what, value, low, high):
    verdict = "ok" if low <= value <= high else "WRONG"
    print(f"{verdict:5} {what}: {value:.3f}, expected {low:g} to {high:g}")
    if verdict != "ok":
        failures.append(what)


def shares_are_kept(example):
    for name, row in run(example)[0].items():
        expect(f"{example}: {name}, off over the run", abs(row["share"] - row["entitled"]), 0, 0.5)
        expect(f"{example}: {name}, seconds within two points", row["within"], 99, 100)


def learned_slices():
    behind = {slice_: 0 for slice_ in FIXED}
    for path in sorted(EXAMPLES.glob("slices-*.yaml")):
        learned = run(path.stem)[1]
        fixed = {slice_: run(path.stem, "--slice", slice_)[1] for slice_ in FIXED}
        best = max(fixed.values())
        expect(f"{path.stem}: learned behind the best fixed slice, %", 100 * (1 - learned / best),
               -100, 2)
        for slice_, done in fixed.items():
            behind[slice_] = max(behind[slice_], 100 * (1 - done / best), 100 * (1 - done / learned))
    for slice_, worst in behind.items():
        expect(f"always {slice_}: behind the best on some mix, %", worst, 2, 100)


for size in 2, 4, 8:
    shares_are_kept(f"equal-{size}")
    shares_are_kept(f"short-long-{size}")
for example in "weights-2-1", "two-thirds-of-eight", "request-half", "join-leave":
    shares_are_kept(example)
limited = run("limit-alone")[0]["limited"]
expect("limit 30 %, alone", limited["share"], 29, 31)
expect("limit 30 %, alone: worst second, points", limited["worst"], 0, 2)
expect("request 50 % against seven", run("request-half")[0]["guaranteed"]["share"], 49.5, 51)
beside, alone = run("latency-batch")[0], run("latency-alone")[0]
expect("latency p99 beside batch kernels of 8 ms", beside["service"]["latency_p99"], 0,
       alone["service"]["latency_p99"] + 1.5 * 8)
expect("batch beside latency work", beside["training"]["share"], 75, 100)
long = run("long-kernels")[0]
for name in "long", "medium", "short":
    expect(f"kernels of 1 s, 100 ms and 1 ms in slices: {name}, worst second, points", long[name]["worst"], 0, 2)
expect("latency p99 beside sliced kernels of 1 s", long["service"]["latency_p99"], 0, 12)
# what elastic is better than: turns by arrival give long kernels nearly everything
expect("fifo, short kernel against long",
       run("short-long-2", "--policy", "fifo", "--slice", "1ms")[0]["short"]["share"], 0, 15)
learned_slices()
sys.exit(1 if failures else 0)
