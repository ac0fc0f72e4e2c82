"""Runs as root in the machine that `run` boots. Prints PASS or FAIL for each thing that it tries."""
import glob
import os
import pwd
import signal
import subprocess
import sys
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "docs"))
import pages  # noqa: E402
PROGRAMS = os.path.join(SOURCE, "build", "tests", "system", "programs")
WORKERS = "/sys/fs/cgroup/system.slice/divvy-workers.scope/divvy-workers"
CONFIG = "/etc/divvy/divvy.yaml"
SLOW_S = 120   # this machine computes some ten times slower than a real one


def sh(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def run_block(text):
    """Runs a block of the documents in the source tree, as it stands."""
    done = subprocess.run(["sh", "-ec", text], cwd=SOURCE, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-1000:]
    return done.stdout


def of(user, *command, **kwargs):
    entry = pwd.getpwnam(user)
    return subprocess.Popen(command, user=entry.pw_uid, group=entry.pw_gid, text=True, cwd="/",
                            extra_groups=os.getgrouplist(user, entry.pw_gid), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, start_new_session=True, **kwargs)


def said_to(user, *command):
    child = of(user, *command)
    said = child.communicate(timeout=600)[0]
    return child.returncode, said


def computing(user, seconds):
    child = of(user, "divvy", "run", "--", os.path.join(PROGRAMS, "compute"), "1", str(seconds))
    line = child.stdout.readline()
    assert line == "ready\n", line
    return child


def end(child):
    os.killpg(child.pid, signal.SIGKILL)   # `divvy run` and its program
    child.communicate()


def until(condition, what):
    deadline = time.monotonic() + SLOW_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def main_pid():
    return int(sh("systemctl", "show", "-p", "MainPID", "--value", "divvyd").stdout)


def bounds_of(user):
    """What bounds the workers of a user, and how many processes there are."""
    place, = glob.glob(os.path.join(WORKERS, user + ".*"))
    read = lambda name: open(os.path.join(place, name), encoding="ascii").read().split()
    return int(read("memory.max")[0]), int(read("pids.max")[0]), len(read("cgroup.procs"))


def test_the_daemon_runs():
    for unit in ("divvyd", "divvyd.socket", "divvyd-control.socket"):
        assert sh("systemctl", "is-active", unit).stdout == "active\n", unit
    assert sh("stat", "-fc", "%T", "/sys/fs/cgroup").stdout == "cgroup2fs\n"
    assert os.listdir("/run/divvy/containers") == ["session.sock"]


def test_the_filters_of_the_unit_hold():
    with open("/proc/%d/status" % main_pid(), encoding="ascii") as file:
        status = dict(line.split(":\t") for line in file.read().splitlines() if ":\t" in line)
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1"
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0x23, status["CapEff"]   # CHOWN, DAC_OVERRIDE, KILL
    found = sh("systemd-analyze", "security", "--threshold=30", "divvyd.service")
    assert found.returncode == 0, found.stdout[-200:]


def test_workers_are_bounded_through_restarts():
    child = computing("ann", 3 * SLOW_S)
    try:
        memory, processes, count = bounds_of("ann")
        assert 1 << 30 < memory < 4 << 30 and processes == 2048 and count == 1, (memory, processes, count)
        for how in (("restart", "divvyd"), ("reload", "divvyd"), ("kill", "--signal=KILL", "--kill-who=main", "divvyd")):
            before = main_pid()
            assert sh("systemctl", *how).returncode == 0, how
            if how[0] != "reload":
                until(lambda: main_pid() not in (0, before), "no new daemon after " + how[0])
            until(lambda: "compute" in sh("divvy", "ps").stdout, "its session is lost after " + how[0])
            assert bounds_of("ann") == (memory, processes, 1), how
            assert child.poll() is None
        other = computing("ben", 1)
        assert other.wait(SLOW_S) == 0 and bounds_of("ann")[2] == 1
    finally:
        end(child)


def test_a_fork_bomb_is_bounded():
    code, said = said_to("ann", "divvy", "run", "--", os.path.join(PROGRAMS, "evil"), "breed", "5000")
    sent = [int(line.split()[1]) for line in said.splitlines() if line.startswith("sent ")]
    assert code == 0 and sent and sent[0] < 2048, said
    assert said_to("ben", "divvy", "run", "--", os.path.join(PROGRAMS, "compute"), "1", "0")[0] == 0


def test_operators_are_let_in():
    assert said_to("ben", "divvy", "ps")[0] != 0
    sh("usermod", "-aG", "operators", "ben")
    with open(CONFIG, encoding="utf-8") as file:
        text = file.read()
    try:
        with open(CONFIG, "a", encoding="utf-8") as file:
            file.write("operator-group: operators\n")
        assert sh("systemctl", "restart", "divvyd").returncode == 0
        code, said = said_to("ben", "divvy", "ps")
        assert code == 0, said
        assert said_to("ann", "divvy", "ps")[0] != 0
    finally:
        with open(CONFIG, "w", encoding="utf-8") as file:
            file.write(text)
        sh("systemctl", "restart", "divvyd")


def test_attacks_on_this_kernel():
    """With daemons of their own, for what depends on the version of the kernel or of cgroups."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-o",
                           "faulthandler_timeout=%d" % SLOW_S, *(
        os.path.join(SOURCE, "tests", "attacks", "test_%s.py" % name) for name in (
            "descriptors_that_linger", "descriptors_on_every_socket", "jammed_log", "fork_bomb", "capabilities",
            "root_without_a_sandbox"))], timeout=900, check=False)
    assert done.returncode == 0


def test_the_journal_has_the_ends_of_sessions():
    run_block(pages.block_by("journal"))
    said = sh("journalctl", "-u", "divvyd", "DIVVY_TENANT=ben", "-o", "json").stdout
    assert '"DIVVY_DEVICE_S"' in said, said[-500:]


def test_an_upgrade_from_source_leaves_programs_running():
    child = computing("ann", 3 * SLOW_S)
    try:
        before = main_pid()
        assert "divvyd" in run_block(pages.block_by("upgraded-source"))
        assert main_pid() not in (0, before)
        until(lambda: "compute" in sh("divvy", "ps").stdout, "its session is lost")
        assert child.poll() is None
    finally:
        end(child)


def test_systemd_opens_the_port_for_metrics():
    assert "divvy_build_info" in run_block(pages.block_by("port"))
    for how in ("reload", "restart"):
        assert sh("systemctl", how, "divvyd").returncode == 0, how
        found = sh("curl", "-sf", "http://127.0.0.1:9464/metrics")
        assert "divvy_build_info" in found.stdout, (how, found)


def test_nothing_is_left_after_the_end():
    child = computing("ann", SLOW_S)
    assert sh("systemctl", "disable", "--now", "divvyd.socket", "divvyd-control.socket", "divvyd-metrics.socket",
              "divvyd.service").returncode == 0
    end(child)
    until(lambda: not sh("pgrep", "-f", "divvyd|divvy-").stdout, "processes are left")
    until(lambda: not os.path.exists(WORKERS), "the scope is left")


def test_no_program_is_left_after_an_uninstallation():
    run_block(pages.block_by("removed-source"))
    assert not [path for path in ("/usr/bin/divvy", "/usr/sbin/divvyd", "/usr/libexec/divvy/divvy-worker",
                                  "/etc/OpenCL/vendors/divvy.icd") if os.path.exists(path)]
    assert sh("systemctl", "cat", "divvyd").returncode != 0


def main():
    os.environ["DIVVY_BUILD"] = os.path.join(SOURCE, "build")
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            print("PASS %s" % name, flush=True)
        except Exception as error:   # whatever it is, the others are tried
            print("FAIL %s: %r" % (name, error), flush=True)
            print(sh("journalctl", "-u", "divvyd", "--no-pager", "-o", "cat", "-n", "15").stdout, flush=True)
    print("inside: done", flush=True)


if __name__ == "__main__":
    main()
