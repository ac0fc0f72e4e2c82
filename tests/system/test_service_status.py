"""What divvyd tells the service manager, and tracers."""

import os
import re
import socket
import subprocess
import sys
import tempfile
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


def test_lines_of_a_log_file_have_a_time(program):
    """To the millisecond, of the machine's clock. A pipe gets none: what reads it has a clock of its own."""
    stamp = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d{3}) divvy")
    began = time.time()
    with divvytest.Daemon() as daemon:
        assert daemon.run([program("compute"), "1", "0"]).returncode == 0
        daemon.await_log("over: compute of ")
        lines = daemon.log.splitlines()
        ended = time.time()
    ours = [line for line in lines if re.search(r"\bdivvyd: ", line)]
    stamps = [stamp.match(line) for line in ours]
    assert len(ours) > 2 and all(stamps), ours
    times = [time.mktime(time.strptime(found[1], "%Y-%m-%d %H:%M:%S")) + int(found[2]) / 1000 for found in stamps]
    assert times == sorted(times) and began - 0.01 <= times[0] and times[-1] <= ended + 0.01
    wrong = os.path.join(tempfile.gettempdir(), "there", "is", "no", "file")
    with tempfile.TemporaryFile("w+") as file:
        command = [divvytest.binary("divvyd"), "--user", "--config", wrong]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert subprocess.run(command, stdout=file, stderr=file, timeout=30).returncode == done.returncode != 0
        file.seek(0)
        text = file.read()
    assert done.stderr.startswith("divvy") and stamp.match(text) and text[24:] == done.stderr, (text, done.stderr)


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
