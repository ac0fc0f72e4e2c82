"""A limited tenant computes on sub-devices, or on both devices of one context, to have more than its limit."""

import json
import time

import pytest

import divvytest

LIMIT = 20.0
POINTS_MOST = 4.0
SECONDS = (3, 6)   # a kernel of any length is paid back within these


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
        child = daemon.popen([program("parts"), how, str(SECONDS[1] + 1)], stdout=-1)
        try:
            assert child.stdout.readline() == "ready\n"
            time.sleep(0.5)   # what it may have had in advance is paid back
            before, began = used(daemon), time.monotonic()
            time.sleep(SECONDS[0])
            shares = {}   # of all the time so far, again and again
            while time.monotonic() - began < SECONDS[1]:
                for device, seconds in used(daemon).items():
                    share = 100 * (seconds - before.get(device, 0)) / (time.monotonic() - began)
                    shares.setdefault(device, []).append(share)
                time.sleep(0.02)
            assert child.wait(60) == 0
        finally:
            divvytest.kill_group(child)
            child.stdout.close()
        assert len(shares) == (2 if how == "devices" else 1)
        for seen in shares.values():   # it has the least just before it has the device again
            assert 1 < min(seen) <= LIMIT + POINTS_MOST, seen
