"""A limited tenant computes on sub-devices, or on both devices of one context, to have more than its limit."""

import json
import statistics
import time

import pytest

import divvytest

LIMIT = 20.0
POINTS_MOST = 4.0
SECONDS = 3


def used(daemon):
    """Seconds of each device that tenants have had."""
    seconds = {}
    for tenant in json.loads(daemon.cli("tenants", "--json"))["tenants"]:
        for place in tenant["devices"]:
            seconds[place["index"]] = seconds.get(place["index"], 0) + place["used_s"]
    return seconds


@pytest.mark.parametrize("how", ("parts", "devices"))
def test_a_limit_holds_for_parts_and_for_each_device(program, how):
    config = "tenants:\n  - per: program\n    limit: %g%%\n" % LIMIT
    devices = {"POCL_DEVICES": "pthread pthread" if how == "devices" else "pthread"}
    with divvytest.Daemon(config, env=devices) as daemon:
        warm = daemon.run([program("parts"), how, "0.1"])   # compiles
        assert warm.returncode == 0, warm.stdout
        child = daemon.popen([program("parts"), how, str(SECONDS + 2)], stdout=-1)
        try:
            assert child.stdout.readline() == "ready\n"
            time.sleep(0.5)   # what it may have had in advance is paid back
            shares = []
            for _ in range(SECONDS):
                before, began = used(daemon), time.monotonic()
                time.sleep(1)
                after, lasted = used(daemon), time.monotonic() - began
                shares.append(max(100 * (after[i] - before.get(i, 0)) / lasted for i in after))
            assert child.wait(60) == 0
        finally:
            divvytest.kill_group(child)
            child.stdout.close()
        assert statistics.median(shares) <= LIMIT + POINTS_MOST, shares
        assert min(shares) > 1, shares
