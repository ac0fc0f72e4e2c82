"""A limited tenant computes on sub-devices, or on both devices of one context, to have more than its limit."""

import json
import time

import pytest

import divvytest

LIMIT = 20.0
POINTS_MOST = 4.0
SECONDS = 4


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
            began, readings = time.monotonic(), [(0, used(daemon))]
            while readings[-1][0] < SECONDS:
                time.sleep(0.02)
                readings.append((time.monotonic() - began, used(daemon)))
            assert child.wait(60) == 0
        finally:
            divvytest.kill_group(child)
            child.stdout.close()
        devices = sorted(readings[-1][1])
        assert devices == ([0, 1] if how == "devices" else [0])
        for device in devices:
            had = [(lasted, seconds.get(device, 0) - readings[0][1].get(device, 0)) for lasted, seconds in readings]
            # time is counted when the device is given back; a stalled machine makes that late
            hold = max(after - before for (_, before), (_, after) in zip(had, had[1:]))
            for lasted, seconds in had:
                assert seconds <= lasted * (LIMIT + POINTS_MOST) / 100 + hold, had
            assert had[-1][1] > had[-1][0] / 100, had
