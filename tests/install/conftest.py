"""For each version of Debian: the packages are built, a fresh tree gets them, and the tests use that tree one after the
other."""

import os
import shutil
import time

import pytest

import divvytest
import machine as machines
import tree as trees
from machine import PLACE, PROGRAMS, SUITES, TOOLS, USERS


def pytest_collection_modifyitems(items):
    if not PLACE:
        for item in items:
            if "tests/install" in str(item.fspath):
                item.add_marker(pytest.mark.skip(reason="run by tests/install/run"))


@pytest.fixture(scope="session", params=SUITES)
def suite(request):
    return request.param


@pytest.fixture(scope="session")
def packages(suite):
    return trees.packages(PLACE, suite)


@pytest.fixture(scope="session")
def machine(suite, packages):
    """Debian with the tools, not yet with the packages."""
    start = time.monotonic()
    root = os.path.join(PLACE, suite, "machine")
    made = machines.Machine(trees.base(PLACE, suite).copy(root).root, suite, packages)
    # commands of the documents would also install what packages recommend: here only what is asked for
    made.write("/etc/apt/apt.conf.d/90lean", 'APT::Install-Recommends "false";\n')
    made.apt("update")
    made.apt("install", *TOOLS.split())
    for name, group in USERS.items():
        if group != "users":
            made.must("groupadd", group)
        made.must("useradd", "-m", "-s", "/bin/bash", "-G", group, name)
    build = trees.build(PLACE, suite)
    for name in PROGRAMS:
        build.must("cc", "-O1", "-DCL_TARGET_OPENCL_VERSION=300", "-D_GNU_SOURCE", "-I/build/divvy",
                   "-I/build/divvy/tests/semantics", "-o", "/build/" + name,
                   "/build/divvy/tests/system/programs/%s.c" % name, "/build/divvy/tests/semantics/check.c",
                   "-lOpenCL", "-lm")
        shutil.copy(build.path("/build", name), made.path("/usr/local/bin"))
    made.before = made.files()
    print("%s was ready after %.0f s" % (suite, time.monotonic() - start))
    yield made
    made.stop()


@pytest.fixture
def children():
    """A list of programs that are ended after the test."""
    started = []
    yield started
    for child in started:
        divvytest.kill_group(child)
