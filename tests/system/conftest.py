"""Fixtures of the system tests: daemons on both data paths and the programs of this directory."""

import os

import pytest

import divvytest


def pytest_collection_modifyitems(items):
    if os.environ.get("DIVVY_TEST_BARE_ONLY"):
        for item in items:
            if "system" in str(item.fspath):
                item.add_marker(pytest.mark.skip(reason="DIVVY_TEST_BARE_ONLY is set"))


@pytest.fixture
def program():
    """Path of a program of tests/system/programs by its name."""
    return lambda name: os.path.join(divvytest.build_dir(), "tests", "system", "programs", name)


@pytest.fixture(params=list(divvytest.DATA_PATHS))
def daemon(request):
    """A fresh daemon for one test; once for each data path."""
    config = (divvytest.DATA_PATHS[request.param] or "") + "sessions-per-user: 1024\n"   # for crowds
    with divvytest.Daemon(config) as daemon:
        yield daemon
