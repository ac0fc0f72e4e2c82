"""What all pytest suites share: the helper library on the path and a limit on the time of a test.

The limit is the last line of defence against a hang in the test itself; programs under test have
limits of their own. DIVVY_TEST_TIMEOUT changes it (seconds).
"""

import faulthandler
import os
import signal
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

TEST_TIMEOUT_S = int(os.environ.get("DIVVY_TEST_TIMEOUT", "900"))


@pytest.fixture(autouse=True)
def test_time_limit(request):
    def on_alarm(signum, frame):
        faulthandler.dump_traceback(file=sys.__stderr__)
        raise TimeoutError("%s took longer than %d s" % (request.node.nodeid, TEST_TIMEOUT_S))

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(TEST_TIMEOUT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pytest_configure(config):
    config.addinivalue_line("markers", "long: belongs to the long form (DIVVY_LONG) only")


def pytest_collection_modifyitems(config, items):
    """Tests of the long form are not part of the short one, and so are not skipped either."""
    if os.environ.get("DIVVY_LONG", "0") not in ("", "0"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
