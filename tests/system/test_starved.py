"""A program that has no memory left hears of it from OpenCL: the client library in its process neither
crashes it nor leaves it waiting nor gives it wrong results.

The tenant is `faults broad` on the scripted vendor (tests/vendor), with tests/system/programs/starve.c
preloaded. A first run tells from which places the library asks for memory and threads, and how often;
then at each place the first request fails, and one in the middle. With DIVVY_TEST_LONG=1 every single
request does.
"""

import concurrent.futures
import os
import subprocess

import pytest

import divvytest

LONG = bool(os.environ.get("DIVVY_TEST_LONG"))

AT_ONCE = 4
PROGRAM_LIMIT_S = 60
MOMENTS = 12


class Stage:
    """A daemon on the scripted vendor, and the tenant."""

    def __init__(self, daemon, directory):
        self.daemon, self.directory = daemon, directory
        self.programs = os.path.join(divvytest.build_dir(), "tests", "system", "programs")

    def run(self, **starve):
        env = {"STARVE_" + name.upper(): str(value) for name, value in starve.items()}
        env["LD_PRELOAD"] = os.path.join(self.programs, "libstarve.so")
        return self.daemon.run([os.path.join(self.programs, "faults"), "broad"],
                               timeout=PROGRAM_LIMIT_S, env=env)

    def survey(self):
        """The places of a run's requests, in their order."""
        path = os.path.join(self.directory, "requests")
        done = self.run(list=path)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        with open(path) as requests:
            return requests.read().split()

    def complaint(self, starve):
        """The complaint about a run, or None. A run may succeed: the caller can do without, or did not ask this
        time."""
        try:
            done = self.run(**starve)
        except AssertionError as no_end:
            return "--- %s\n%s" % (starve, no_end)
        if done.returncode in (0, 3):
            return None
        return "--- %s %s: code %d\n%s" % (
            starve, self.source_of(starve.get("place")), done.returncode, done.stderr)

    @staticmethod
    def source_of(place):
        """The line in the source that a place belongs to."""
        if not place:
            return ""
        library = os.path.join(divvytest.build_dir(), "src", "client", "opencl", "libdivvy-opencl.so")
        said = subprocess.run(["addr2line", "-f", "-s", "-e", library, "%x" % (int(place, 16) - 1)],
                              capture_output=True, text=True, timeout=30)
        return said.stdout.replace("\n", " ")


@pytest.fixture(scope="module", params=list(divvytest.DATA_PATHS))
def stage(request, tmp_path_factory):
    vendors = os.path.join(divvytest.build_dir(), "tests", "vendor")
    with divvytest.Daemon(divvytest.DATA_PATHS[request.param],
                          env={"DIVVY_VENDORS": vendors}) as daemon:
        yield Stage(daemon, tmp_path_factory.mktemp("starved"))


def run_all(stage, cases):
    """Runs cases side by side. Fails with the stories of all that went wrong."""
    before = divvytest.Leftovers(stage.daemon)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        complaints = [words for words in pool.map(stage.complaint, cases) if words]
    before.assert_gone()
    assert stage.daemon.sessions() == []
    assert not complaints, "%d complaints about %d cases:\n%s" % (
        len(complaints), len(cases), "\n".join(complaints))


def test_a_request_fails(stage):
    requests = stage.survey()
    cases = []
    for place in sorted(set(requests)):
        count = requests.count(place)
        numbers = range(1, count + 1) if LONG else {1, (count + 1) // 2}
        cases += [{"place": place, "at": number} for number in numbers]
    assert len(set(requests)) > 30 and len(cases) > 30
    run_all(stage, cases)


def test_all_requests_fail_from_some_moment_on(stage):
    count = len(stage.survey())
    run_all(stage, [{"at": at, "on": 1} for at in range(1, count + 1, 1 if LONG else count // MOMENTS)])
