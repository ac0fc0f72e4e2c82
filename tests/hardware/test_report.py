"""tests/hardware/run with PoCL in the place of a card: the report has its parts and counts, tells of what could not be
run, and says nothing of whose machine it is."""

import os
import pathlib
import pwd
import re
import socket
import subprocess
import sys
import time

import pytest

import divvytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import parts  # noqa: E402
import scrub  # noqa: E402
import vendors  # noqa: E402

SECRET = "hunter2-but-longer"
QUICK_S = 150   # two minutes for the parts, and what comes before and after them


def run(tmp_path, *options, env=None, timeout=300, **kwargs):
    report = tmp_path / "report.md"
    full_env = {**os.environ, "DIVVY_BUILD": divvytest.build_dir(), "SECRET_TOKEN": SECRET, **(env or {})}
    done = subprocess.run([str(HERE / "run"), "--output", str(report), *options], env=full_env, capture_output=True,
                          text=True, timeout=timeout, cwd=tmp_path, **kwargs)
    return done, report.read_text() if report.exists() else ""


def first_counts(text):
    line = next(line for line in text.splitlines() if " passed, " in line)
    return tuple(map(int, re.fullmatch(r"([0-9]+) passed, ([0-9]+) missed, ([0-9]+) failed", line).groups()))


def assert_nothing_private(text):
    assert SECRET not in text
    assert socket.gethostname() not in text
    assert os.path.expanduser("~") + "/" not in text
    assert divvytest.REPOSITORY not in text


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """One quick run of everything, for several tests."""
    began = time.monotonic()
    done, report = run(tmp_path_factory.mktemp("hardware"), "--quick")
    return done, report, time.monotonic() - began


def test_a_quick_run_has_all_parts(quick):
    done, report, _ = quick
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = report.splitlines()
    passed, missed, failed = first_counts(report)
    assert lines[2] == "%d passed, %d missed, %d failed" % (passed, missed, failed) == done.stdout.splitlines()[-1]
    assert passed > 0 and done.returncode == (1 if failed else 0)
    heads = [line for line in lines if line.startswith("#")]
    wanted = ["# divvy on an accelerator", "## Machine", "## divvy", "## Driver", "## Device 0",
              *("## Part " + name for name in parts.QUICK), "# Ends of the logs"]
    assert [head for head in heads if head in wanted] == wanted
    assert "Portable Computing Language" in report


def test_what_does_not_depend_on_the_machines_speed_passes(quick):
    _, report, _ = quick
    assert re.search(r"^\| devices \| [2-9] passed, 0 missed, 0 failed ", report, re.M), report
    assert not re.search(r"^\| (devices|conformance|programs) \| .* [1-9][0-9]* failed ", report, re.M), report
    for name in ("shares", "memory", "overhead"):   # figures were taken, or the part says why not
        assert re.search(r"^\| %s \| (not run: \S|[0-9]+ passed)" % name, report, re.M), report


def test_a_quick_run_is_short(quick):
    assert quick[2] < QUICK_S, quick[0].stdout


def test_nothing_private_is_in_it(quick):
    assert_nothing_private(quick[1])


def test_without_root(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs to become another user")
    os.chmod(tmp_path, 0o777)
    for folder in tmp_path.parents:
        if folder != pathlib.Path("/") and folder.owner() == pwd.getpwuid(os.getuid()).pw_name:
            os.chmod(folder, os.stat(folder).st_mode | 0o111)
    home = tmp_path / "home"
    home.mkdir(mode=0o777)
    os.chmod(home, 0o777)
    done, report = run(tmp_path, "--quick", "--only", "devices", "--only", "shares",
                       env={"HOME": str(home), "USER": "ordinaryperson", "DIVVY_TEST_CACHE": str(home / "cache"),
                            "DIVVY_TEST_POCL_CACHE": str(home / "pocl"), "DIVVY_PIGLIT": str(home / "piglit")},
                       user=20077, group=20077, extra_groups=[])
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "| run as | an ordinary user |" in report
    assert re.search(r"^\| devices \| [2-9] passed, 0 missed, 0 failed ", report, re.M), report
    assert re.search(r"^\| shares \| [0-9]+ passed", report, re.M), report
    assert "ordinaryperson" not in report
    assert_nothing_private(report)


def test_a_part_that_cannot_run_says_why_and_does_not_pass(tmp_path):
    done, report = run(tmp_path, "--quick", "--only", "conformance", env={"DIVVY_PIGLIT": str(tmp_path / "nowhere")})
    assert re.search(r"^\| conformance \| not run: no tests in .*fetch first \|", report, re.M), report
    assert first_counts(report) == (0, 1, 0) and done.returncode == 1


def test_a_failure_is_counted(tmp_path):
    """A worker that cannot be started: every part that needs one fails."""
    fake = tmp_path / "build" / "src"
    for name in ("arbiter/divvyd", "cli/divvy", "worker/divvy-worker"):
        (fake / name).parent.mkdir(parents=True, exist_ok=True)
        (fake / name).write_text("#!/bin/sh\nexit 3\n")
        (fake / name).chmod(0o755)
    done, report = run(tmp_path, "--quick", "--only", "devices", env={"DIVVY_BUILD": str(tmp_path / "build")})
    assert first_counts(report) == (0, 0, 1) and done.returncode == 1, report
    assert "divvyd ended at once with code 3" in report


def test_a_device_node_is_given_to_the_sandbox(tmp_path):
    """divvyd accepts what the run writes into its configuration."""
    done, report = run(tmp_path, "--quick", "--only", "devices", "--node", "/dev/null")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "## Device nodes" in report and "/dev/null: crw-rw-rw-" in report


def test_a_node_with_a_group(tmp_path):
    """Workers of root's daemon are put into the group that opens it."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    node = tmp_path / "node"
    node.touch()
    os.chown(node, 0, 20078)
    assert vendors.sandbox([str(node)]) == "{paths: [%s], groups: [20078]}" % node
    done, report = run(tmp_path, "--quick", "--only", "devices", "--only", "shares", "--node", str(node))
    assert re.search(r"^\| devices \| 2 passed, 0 missed, 0 failed ", report, re.M), done.stdout + report
    assert re.search(r"^\| shares \| [1-9][0-9]* passed", report, re.M), report   # tenants are users outside the group


def test_a_quick_run_that_takes_too_long_does_not_pass(tmp_path):
    surroundings = parts.Surroundings(None, tmp_path, tmp_path, quick=True, began=time.monotonic() - parts.QUICK_S + 1)
    with pytest.raises(parts.NoTime):
        parts.run(surroundings, ["sleep", "30"], 60)
    surroundings.began = time.monotonic()
    assert parts.run(surroundings, ["sleep", "30"], 1)[0] is None


def test_without_a_driver_it_says_so(tmp_path):
    (tmp_path / "none").mkdir()
    done, report = run(tmp_path, "--vendor", "no such card")
    assert done.returncode == 2 and not report
    assert "no driver with a device is called 'no such card'" in done.stderr and "pocl" in done.stderr


def test_drivers_are_listed(tmp_path):
    done, _ = run(tmp_path, "--list", env={"OCL_ICD_VENDORS": str(tmp_path / "nothing-here.icd")})
    assert re.search(r"^pocl: .* \(CPU\)$", done.stdout, re.M), done.stdout + done.stderr


# ---- the choice of a driver ----

def test_a_card_is_preferred(tmp_path):
    """The scripted vendor plays a card beside PoCL."""
    card = pathlib.Path(divvytest.build_dir()) / "tests" / "vendor" / "divvy-test-vendor.icd"
    done, report = run(tmp_path, "--quick", "--only", "devices",
                       env={"OCL_ICD_VENDORS": str(card), "DIVVY_VENDOR_SCRIPT": "device type gpu"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Used: divvy-test-vendor, the first driver that has a GPU." in report and "\n- pocl: " in report
    assert first_counts(report) == (2, 0, 0) and "| type | GPU |" in report


def test_a_driver_that_crashes_is_reported_and_not_taken(tmp_path):
    card = pathlib.Path(divvytest.build_dir()) / "tests" / "vendor" / "divvy-test-vendor.icd"
    done, report = run(tmp_path, "--quick", "--only", "devices",
                       env={"OCL_ICD_VENDORS": str(card), "DIVVY_VENDOR_SCRIPT": "clGetDeviceIDs * exit 3"})
    assert done.returncode == 0 and "Used: pocl, no driver has a GPU" in report, done.stdout + done.stderr
    assert "- divvy-test-vendor: no device: exit code 3" in report


def vendor(name, *types):
    return vendors.Vendor(name, f"/usr/lib/lib{name}.so", [{"name": name, "vendor": "v", "version": "1", "devices": [
        {"name": f"{name} {kind}", "type": kind} for kind in types]}])


def test_a_gpu_comes_first():
    found = [vendor("empty"), vendor("cpu", "CPU"), vendor("card", "GPU"), vendor("other", "GPU")]
    chosen, why = vendors.choose(found, None)
    assert chosen.name == "card" and why == "the first driver that has a GPU"
    assert vendors.choose(found, "OTHER")[0].name == "other"


def test_without_a_gpu_any_device_is_taken_and_it_says_so():
    chosen, why = vendors.choose([vendor("empty"), vendor("cpu", "CPU")], None)
    assert chosen.name == "cpu" and why.startswith("no driver has a GPU")
    with pytest.raises(vendors.CannotRun):
        vendors.choose([vendor("empty")], None)


def test_divvys_own_driver_is_not_taken(tmp_path, monkeypatch):
    (tmp_path / "divvy.icd").write_text("/usr/lib/libdivvy-opencl.so\n")
    (tmp_path / "card.icd").write_text("libcard.so\n")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    assert ("card", "libcard.so") in vendors.announced()
    assert not any("divvy" in library for _, library in vendors.announced())


# ---- what is private ----

def test_scrubbing(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/srv/people/ada")
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setenv("API_KEY", "0123456789abcdef")
    monkeypatch.setattr(socket, "gethostname", lambda: "analytical.engine.example")
    scrubber = scrub.Scrubber("/srv/people/ada/divvy", "/srv/people/ada/divvy/build", tmp_path)
    text = ("/srv/people/ada/divvy/src/x.c /srv/people/ada/divvy/build/y /srv/people/ada/notes ada@mail.example\n"
            "session 3 of ada on analytical, analytical.engine.example, key 0123456789abcdef\n"
            "GPU-12345678-1234-1234-1234-123456789abc 00:1a:2b:3c:4d:5e /home/byron/poem radar canada\n")
    clean = scrubber.scrub(text)
    assert clean == ("SOURCE/src/x.c BUILD/y HOME/notes MAIL\n"
                     "session 3 of USER on HOST, HOST, key $API_KEY\n"
                     "GPU-UUID MAC HOME/poem radar canada\n")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
