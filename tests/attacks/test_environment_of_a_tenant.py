"""A tenant has settings for drivers and secrets in its environment: none reaches its worker."""

import contextlib
import os
import sys

import divvytest

sys.path.insert(0, os.path.join(divvytest.REPOSITORY, "tests", "system"))
from test_sandbox import Scene  # noqa: E402


def test_a_worker_has_nothing_of_its_tenants_environment(program):
    """As a driver in the worker sees it: /proc/PID/environ shows only what the zygote began with."""
    with contextlib.ExitStack() as stack:
        results = Scene(stack, system=True).intrude(program, env={"DIVVY_TEST_SECRET": "secret"})
    assert results["find a variable of its tenant's"] is False
