"""What divvyd tells the service manager, and tracers."""

import os
import socket
import subprocess
import sys
import time

import pytest

import divvytest


def test_the_status_line_follows_the_sessions(program, tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(path)
        notify.settimeout(0.2)
        heard = []

        def hears(text):
            deadline = time.monotonic() + 15
            while time.monotonic() < deadline:
                try:
                    heard.append(notify.recv(4096).decode())
                except TimeoutError:
                    pass
                if any(text in message for message in heard):
                    heard.clear()
                    return True
            return False
        with divvytest.Daemon(env={"NOTIFY_SOCKET": path}) as daemon:
            assert hears("READY=1")
            child = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE)
            try:
                assert child.stdout.readline() == "ready\n"
                assert hears("STATUS=1 session on 1 device"), heard
            finally:
                divvytest.kill_group(child)
                child.stdout.close()
            assert hears("STATUS=0 sessions on 1 device"), heard


@pytest.mark.parametrize("is_journal", [True, False])
def test_the_journal_is_the_one_behind_standard_error(program, is_journal):
    """Who ends goes to the journal with figures, and into a log which is none without them."""
    daemon = divvytest.Daemon()
    with open(daemon.log_path, "ab") as log:
        facts = os.fstat(log.fileno())
    daemon.extra_env["JOURNAL_STREAM"] = "%d:%d" % (facts.st_dev, facts.st_ino + (not is_journal))
    with daemon:
        assert daemon.run([program("compute"), "1", "0"]).returncode == 0
        divvytest.wait_for(lambda: "compute" in daemon.cli("ps", "--ended"), 10, "its session does not end")
        if is_journal:
            assert " over: compute " not in daemon.log
        else:
            daemon.await_log(" over: compute ")


@pytest.mark.parametrize("name, probes", [("divvyd", {"grant", "recall", "release", "evict"}),
                                          ("divvy-worker", {"submit", "complete"})])
def test_probes_for_tracers(name, probes):
    if not os.path.exists("/usr/include/x86_64-linux-gnu/sys/sdt.h") and not os.path.exists("/usr/include/sys/sdt.h"):
        pytest.skip("built without sys/sdt.h")
    notes = subprocess.run(["readelf", "-n", divvytest.binary(name)], capture_output=True, text=True).stdout
    found = {line.split()[-1] for line in notes.splitlines() if line.strip().startswith("Name:")}
    assert probes <= found and notes.count("Provider: divvy") >= len(probes), found


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
