"""libdivvy-lease as engineers get it: installed, found by pkg-config, and linked to examples/encoder.c, which shares a
device of its own. The licence files of the encoder are the device's own fence: no program may ever find one locked."""

import glob
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

import pytest

import divvytest

CONFIG = """
devices:
  - name: encoder
    lease-only: yes
    slots: %d
"""
# The beginning of a program in Python that leases the encoder.
CONNECTS = """
import ctypes, sys
class Options(ctypes.Structure):
    _fields_ = [("device", ctypes.c_char_p), ("directory", ctypes.c_char_p), ("without", ctypes.c_int),
                ("reason", ctypes.c_char_p), ("reason_bytes", ctypes.c_size_t)]
lease = ctypes.CDLL(sys.argv[1])
lease.dv_lease_connect.restype = ctypes.c_void_p
mine = ctypes.c_void_p(lease.dv_lease_connect(ctypes.byref(Options(device=b"encoder")), None))
assert mine
"""
WINDOW_S = 2.0
WINDOWS = 5


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The tree that `meson install` leaves, and the environment in which pkg-config finds it."""
    root = str(tmp_path_factory.mktemp("installed"))
    subprocess.run(["meson", "install", "-C", divvytest.build_dir(), "--no-rebuild", "--quiet"], check=True,
                   env={**os.environ, "DESTDIR": root})
    found = glob.glob(root + "/**/divvy-lease.pc", recursive=True)
    assert len(found) == 1, found
    env = {**os.environ, "PKG_CONFIG_SYSROOT_DIR": root, "PKG_CONFIG_PATH": os.path.dirname(found[0])}
    yield root, env
    shutil.rmtree(root)


def flags(installed, *which):
    done = subprocess.run(["pkg-config", *which, "divvy-lease"], env=installed[1], capture_output=True, text=True,
                          check=True)
    return done.stdout.split()


def library(installed):
    return glob.glob(installed[0] + "/**/libdivvy-lease.so.0", recursive=True)[0]


@pytest.fixture(scope="module", params=["c", "c++"])
def encoder(request, installed, tmp_path_factory):
    """examples/encoder.c, compiled from the installed headers alone."""
    path = str(tmp_path_factory.mktemp("encoder") / "encoder")
    compiler = {"c": "gcc", "c++": "g++"}[request.param]
    subprocess.run([compiler, "-x", request.param, "-O2", "-Wall", "-Wextra", "-Werror",
                    os.path.join(divvytest.REPOSITORY, "examples", "encoder.c"), "-x", "none", "-o", path,
                    *flags(installed, "--cflags", "--libs"), "-Wl,-rpath," + os.path.dirname(library(installed))],
                   check=True)
    return path


class Encoders:
    """Programs that encode until they are ended."""

    def __init__(self, daemon, encoder, licences=1):
        self.daemon, self.encoder, self.children = daemon, encoder, []
        self.licences = [os.path.join(daemon.home, "licence.%d" % i) for i in range(licences)]

    def start(self, **share):
        env = {"DIVVY_" + key.upper(): str(value) for key, value in share.items()}
        child = subprocess.Popen([self.encoder, "encoder", *self.licences], env={**self.daemon.env(), **env},
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        divvytest.wait_for(lambda: self.daemon.session_of(child.pid)["state"] != "starting", 20, "it is not served")
        return child

    def finish(self):
        """All end in good order, have encoded something, and never met another with its licence."""
        for child in self.children:
            child.send_signal(signal.SIGTERM)
        for child in self.children:
            out, err = child.communicate(timeout=30)
            assert child.returncode == 0, err
            frames, away = re.match(r"(\d+) frames, .*turned away (\d+) times", out).groups()
            assert int(frames) > 0 and int(away) == 0, out

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate()


def restart(daemon, signum, away_s=0.0):
    daemon.kill(signum)
    time.sleep(away_s)
    daemon.start()   # the keeper has the sockets, which accept connections already
    divvytest.wait_for(lambda: subprocess.run([divvytest.binary("divvy"), "ps"], env=daemon.env(),
                                              capture_output=True).returncode == 0, 20, "divvyd is not back")


def devices(daemon):
    return json.loads(daemon.cli("devices", "--json"))["devices"]


def used_by(daemon, child):
    return daemon.session_of(child.pid)["used_s"]


def share_of(daemon, first, second):
    """The part of the first in what both got, in percent, by the median of some windows."""
    def used():
        """Of both at one moment."""
        listed = {session["tenant_pid"]: session["used_s"] for session in daemon.sessions()}
        return listed[first.pid], listed[second.pid]
    shares, before = [], used()
    for _ in range(WINDOWS):
        time.sleep(WINDOW_S)
        after = used()
        mine, all_ = after[0] - before[0], sum(after) - sum(before)
        shares.append(100 * mine / all_)
        before = after
    return statistics.median(shares)


# ---------------------------------------------------------------------------- what is installed


def test_only_the_public_functions_are_exported(installed):
    path = library(installed)
    table = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", path], capture_output=True,
                           text=True, check=True).stdout
    exported = {line.split()[-1] for line in table.splitlines() if " A " not in line}
    headers = glob.glob(installed[0] + "/**/include/divvy/*.h", recursive=True)
    assert sorted(map(os.path.basename, headers)) == ["lease.h", "memory.h"]
    declared = set()
    for header in headers:
        with open(header) as text:
            declared |= set(re.findall(r"^[a-z].*?\b(dv_\w+)\(", text.read(), re.M))
    assert exported == {name + "@@DIVVY_LEASE_0" for name in declared}


def test_the_library_is_a_guest(installed):
    """It needs the C library only, and stays in memory after dlclose."""
    dynamic = subprocess.run(["readelf", "-dW", library(installed)], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"SONAME.*\[(.*)\]", dynamic) == ["libdivvy-lease.so.0"]
    assert set(re.findall(r"NEEDED.*\[(.*)\]", dynamic)) <= {"libc.so.6", "ld-linux-x86-64.so.2"}
    assert "NODELETE" in dynamic


def test_pkg_config_knows_it(installed):
    assert "-ldivvy-lease" in flags(installed, "--libs")
    assert flags(installed, "--modversion")[0]


# ---------------------------------------------------------------------------- sharing


@pytest.mark.parametrize("first, second, expected", [
    (dict(request=600000), dict(request=400000), 60.0),
    (dict(weight=2), dict(weight=1), 100 * 2 / 3)], ids=["requests", "weights"])
def test_two_tenants_share_the_encoder(encoder, first, second, expected):
    with divvytest.Daemon(CONFIG % 1) as daemon, Encoders(daemon, encoder) as encoders:
        one, two = encoders.start(**first), encoders.start(**second)
        time.sleep(1)
        assert abs(share_of(daemon, one, two) - expected) < 3
        sessions = {one.pid: daemon.session_of(one.pid)["id"], two.pid: daemon.session_of(two.pid)["id"]}
        restart(daemon, signal.SIGKILL, 0.3)
        assert abs(share_of(daemon, one, two) - expected) < 3
        for pid, number in sessions.items():
            assert daemon.session_of(pid)["id"] == number   # the session goes on
        encoders.finish()
        daemon.cli("check")


def test_as_many_at_a_time_as_there_are_slots(encoder):
    with divvytest.Daemon(CONFIG % 2) as daemon, Encoders(daemon, encoder, licences=2) as encoders:
        children = [encoders.start() for _ in range(3)]
        divvytest.wait_for(lambda: sum(s["state"] == "computing" for s in daemon.sessions()) >= 2, 20,
                           "they do not run side by side")
        divvytest.wait_for(lambda: all(used_by(daemon, child) > 0.2 for child in children), 20, "one has no turns")
        encoders.finish()


def test_all_commands_know_the_device(encoder):
    with divvytest.Daemon(CONFIG % 1) as daemon, Encoders(daemon, encoder) as encoders:
        child = encoders.start(limit=500000)
        divvytest.wait_for(lambda: used_by(daemon, child) > 0.5, 20, "it does not run")
        device = devices(daemon)[-1]
        assert (device["name"], device["type"], device["hidden"]) == ("encoder", "lease-only", False)
        assert device["sessions"] == 1
        divvytest.assert_median(lambda: time.sleep(1) or devices(daemon)[-1]["busy_1s_ppm"], 0, 600000)
        session = daemon.session_of(child.pid)
        assert session["worker_pid"] is None and session["command"] == "encoder"
        assert [place["name"] for place in session["devices"]] == ["encoder"]
        assert session["state"] in ("computing", "waiting", "idle")
        assert "encoder" in daemon.cli("explain", str(session["id"]))
        assert "encoder" in daemon.cli("top", "-b", "-n1")
        assert "encoder" in daemon.cli("ps") and "encoder" in daemon.cli("tenants")
        metric = r'divvy_device_busy_seconds_total\{device="%d"\} ([\d.]+)' % device["index"]
        assert float(re.search(metric, daemon.cli("metrics")).group(1)) > 0.2
        daemon.cli("set", str(session["id"]), "--limit", "20%")
        daemon.cli("policy", str(device["index"]), "fair")
        encoders.finish()
        divvytest.wait_for(lambda: not daemon.sessions(), 10, "its session stays")
        daemon.cli("check")
        assert "encoder" in daemon.cli("ps", "--ended")
        assert "encoder" in daemon.cli("usage", "--dir", os.path.join(daemon.home, "state"))


# ---------------------------------------------------------------------------- beside OpenCL


def test_opencl_programs_do_not_see_it(program):
    with divvytest.Daemon(CONFIG % 1) as daemon:
        assert daemon.run([program("compute"), "1", "0"]).returncode == 0
        done = daemon.run([program("compute"), "1", "0"], env={"DIVVY_DEVICES": "encoder"})
        assert done.returncode != 0
        assert "names no offered device" in done.stderr + daemon.log


def test_a_machine_without_opencl(encoder, tmp_path):
    icd = tmp_path / "none.icd"
    icd.write_text("libnone-of-this-name.so\n")
    with divvytest.Daemon(CONFIG % 1 + "vendors: [%s]\n" % icd) as daemon, Encoders(daemon, encoder) as encoders:
        child = encoders.start()
        divvytest.wait_for(lambda: used_by(daemon, child) > 0.2, 20, "it has no turns")
        encoders.finish()


def test_a_reload_adds_and_removes_it(encoder):
    with divvytest.Daemon("") as daemon, Encoders(daemon, encoder) as encoders:
        daemon.cli("devices")
        done = subprocess.run([encoder, "encoder", "licence"], env=daemon.env(), capture_output=True, text=True)
        assert done.returncode == 1 and "'encoder' is no lease-only device here" in done.stderr
        configure(daemon, CONFIG % 1)
        divvytest.wait_for(lambda: "encoder" in daemon.cli("devices"), 20, "the device does not come")
        child = encoders.start()
        configure(daemon, "")
        divvytest.wait_for(lambda: devices(daemon)[1]["hidden"], 20, "the device is still offered")
        used = used_by(daemon, child)
        divvytest.wait_for(lambda: used_by(daemon, child) > used + 0.2, 20, "its session does not go on")
        done = subprocess.run([encoder, "encoder", "licence"], env=daemon.env(), capture_output=True, text=True)
        assert done.returncode == 1 and "'encoder' is no lease-only device here" in done.stderr
        daemon.config_text = ""
        restart(daemon, signal.SIGKILL)
        used = used_by(daemon, child)
        divvytest.wait_for(lambda: used_by(daemon, child) > used + 0.2, 20, "its session does not outlive the restart")
        daemon.config_text = CONFIG % 1
        restart(daemon, signal.SIGUSR1)
        another = encoders.start()
        divvytest.wait_for(lambda: used_by(daemon, another) > 0.1, 20, "a new session has no turns")
        assert [device["name"] for device in devices(daemon)[1:]] == ["encoder"]
        encoders.finish()


def configure(daemon, text):
    with open(os.path.join(daemon.home, "config.yaml"), "w") as out:
        out.write(text)
    daemon.cli("reload")


# ---------------------------------------------------------------------------- memory

# Reserves as many MiB as each argument says, and prints the answers.
RESERVES = CONNECTS + """
for mib in map(int, sys.argv[2:]):
    print(lease.dv_memory_reserve(mine, 0, ctypes.c_uint64(mib << 20)), end=" ", flush=True)
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("capacity, expected", [("64MiB", "0 -12 0 "), (None, "-12 -12 -12 ")])
def test_memory_is_reserved_within_the_quota(installed, capacity, expected):
    config = CONFIG % 1 + ("    capacity: %s\n" % capacity if capacity else "")
    with divvytest.Daemon(config + "tenants:\n  - per: program\n    memory: 50%\n") as daemon:
        child = subprocess.Popen([sys.executable, "-c", RESERVES, library(installed), "20", "20", "12"], text=True,
                                 env=daemon.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout.readline() == expected + "\n"
        assert daemon.session_of(child.pid)["memory_bytes"] == (32 << 20 if capacity else 0)
        daemon.cli("check")
        restart(daemon, signal.SIGKILL)
        assert daemon.session_of(child.pid)["memory_bytes"] == (32 << 20 if capacity else 0)
        daemon.cli("check")
        child.communicate("", timeout=20)


# ---------------------------------------------------------------------------- endings

# A program that keeps the device, says when it has it, and gives it back when told to.
KEEPS = CONNECTS + """
while lease.dv_lease_wait(mine, 0, ctypes.c_uint64(10**11)) == 0:
    print("has it", flush=True)
    if not sys.stdin.readline():
        break
lease.dv_lease_destroy(mine)
"""


def test_who_keeps_it_loses_its_session_and_not_its_process(encoder, installed):
    config = CONFIG % 1 + "deadlines:\n  standard: 3s\n"
    with divvytest.Daemon(config) as daemon, Encoders(daemon, encoder) as encoders:
        keeper = subprocess.Popen([sys.executable, "-c", KEEPS, library(installed)], env=daemon.env(), text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert keeper.stdout.readline() == "has it\n"
        kept = daemon.session_of(keeper.pid)["id"]
        other = encoders.start()
        daemon.await_log("it kept a device for 3.0 s after it was asked to give it back")
        divvytest.wait_for(lambda: used_by(daemon, other) > 0.2, 20, "the other has no turns")
        ended = json.loads(daemon.cli("ps", "--ended", "--json"))["ended"]
        assert [s["id"] for s in ended] == [kept] and "it kept a device" in ended[0]["why"]
        assert keeper.poll() is None
        again = daemon.session_of(keeper.pid)["id"]   # the library has begun another
        assert again != kept
        keeper.stdin.write("\n")   # now its work is complete: it waits for its turn as others do
        keeper.stdin.flush()
        assert keeper.stdout.readline() == "has it\n"
        keeper.stdin.close()
        assert keeper.wait(20) == 0
        keeper.stdout.close()
        encoders.finish()


def test_a_stop_of_divvyd_pauses_programs(encoder):
    """SIGTERM ends all sessions. Nothing is encoded without divvyd, and the next one serves the same programs."""
    with divvytest.Daemon(CONFIG % 1) as daemon, Encoders(daemon, encoder, licences=1) as encoders:
        one, two = encoders.start(), encoders.start()
        daemon.stop()
        time.sleep(1)
        before = [cpu_s(child.pid) for child in (one, two)]
        time.sleep(1)
        assert sum(cpu_s(child.pid) for child in (one, two)) - sum(before) < 0.3
        daemon.start()
        for child in (one, two):
            divvytest.wait_for(lambda: used_by(daemon, child) > 0.2, 20, "it has no turns")
        encoders.finish()


def cpu_s(pid):
    with open("/proc/%d/stat" % pid) as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_many_restarts(encoder):
    with divvytest.Daemon(CONFIG % 1) as daemon, Encoders(daemon, encoder) as encoders:
        children = [encoders.start() for _ in range(2)]
        numbers = [daemon.session_of(child.pid)["id"] for child in children]
        for turn in range(10):
            time.sleep(0.03 * turn)
            restart(daemon, [signal.SIGKILL, signal.SIGUSR1][turn % 2])
        assert [daemon.session_of(child.pid)["id"] for child in children] == numbers
        used = [used_by(daemon, child) for child in children]
        divvytest.wait_for(lambda: all(used_by(daemon, child) > before + 0.2
                                       for child, before in zip(children, used)), 20, "one has no turns")
        encoders.finish()


def test_a_child_does_not_end_its_parents_lease(installed):
    """dv_lease_destroy in a forked child does nothing, and the parent goes on."""
    script = KEEPS.replace("while lease", "import os\n"
                           "child = os.fork()\n"
                           "if child == 0:\n"
                           "    lease.dv_lease_destroy(mine); os._exit(7)\n"
                           "assert os.waitpid(child, 0)[1] == 7 << 8\n"
                           "while lease")
    with divvytest.Daemon(CONFIG % 1) as daemon:
        done = subprocess.run([sys.executable, "-c", script, library(installed)], env=daemon.env(), input="",
                              capture_output=True, text=True, timeout=30)
        assert (done.returncode, done.stdout) == (0, "has it\n"), done.stderr
