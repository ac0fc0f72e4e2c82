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
