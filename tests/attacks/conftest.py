"""Attacks that a tenant can run against divvy. Each test plays one attack and fails if it works."""

import os

import pytest

import divvytest


@pytest.fixture(autouse=True)
def as_root():
    """Attackers and innocents are different users, which only root can start."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to start programs of several users")


@pytest.fixture
def program():
    """Path of a program of tests/system/programs by its name."""
    return lambda name: os.path.join(divvytest.build_dir(), "tests", "system", "programs", name)
