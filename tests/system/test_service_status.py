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
