"""The shipped unit: the rights that it leaves divvyd are enough."""

import configparser
import os
import re
import shlex
import shutil
import subprocess

import pytest

import divvytest

UNIT = os.path.join(divvytest.REPOSITORY, "integration", "systemd", "divvyd.service")


def read_unit():
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.read(UNIT)
    return unit["Service"]


def with_rights(service):
    """The command that leaves a program the unit's rights."""
    rights = ["+" + name.removeprefix("CAP_").lower() for name in service["CapabilityBoundingSet"].split()]
    return ["setpriv", "--bounding-set=-all,%s" % ",".join(rights), "--inh-caps=-all", "--no-new-privs"]


@pytest.mark.skipif(os.geteuid() != 0, reason="the unit is for root's daemon")
def test_the_units_rights_are_enough(program, tmp_path):
    """Programs are served, and directories of compiled kernels are made, given away and removed."""
    service = read_unit()
    start = tmp_path / "divvyd"
    start.write_text("#!/bin/sh\numask %s\nexec %s %s \"$@\"\n" % (
        service["UMask"], shlex.join(with_rights(service)), shlex.quote(divvytest.binary("divvyd"))))
    start.chmod(0o755)
    for directory in (tmp_path, *tmp_path.parents[:2]):
        directory.chmod(0o711)
    caches = tmp_path / "caches"
    daemon = divvytest.Daemon("worker-users: 1879048192-1879048196\n", system=True,
                              env={"DIVVY_CACHE": str(caches)})
    daemon.program = str(start)
    with daemon:
        for user in range(4101, 4105):
            done = daemon.run([program("compute"), "1", "0"], user=user, group=user, extra_groups=[])
            assert done.returncode == 0, done.stderr
        divvytest.wait_for(lambda: not [name for name in os.listdir(caches) if name.endswith(".4101")], 10,
                           "a directory is not removed")


@pytest.mark.skipif(os.geteuid() != 0, reason="the unit is for root's daemon")
@pytest.mark.parametrize("divvy", [divvytest.binary("divvy"), "/missing/divvy"])
def test_a_reload_reports_a_wrong_file(divvy):
    """With the unit's rights, without a network and with a file system that is read-only, as systemd runs it."""
    service = read_unit()
    command = [part.replace("$$", "$") for part in shlex.split(service["ExecReload"])]
    with divvytest.Daemon("sessions-per-user: 7\n", system=True) as daemon:
        command[-1] = command[-1].replace("/usr/bin/divvy", divvy)
        script = "mount -o remount,bind,ro /; exec %s" % shlex.join([*with_rights(service), *command])

        def reload():
            return subprocess.run(["unshare", "--mount", "--net", "/bin/sh", "-c", script], capture_output=True,
                                  text=True, timeout=60, env={**daemon.env(), "MAINPID": str(daemon.pid)})
        done = reload()
        assert done.returncode == 0, done
        daemon.await_log("configuration")
        with open(os.path.join(daemon.home, "config.yaml"), "a", encoding="utf-8") as file:
            file.write("wrong: yes\n")
        done = reload()
        assert (done.returncode != 0) == os.path.exists(divvy), done
        assert not os.path.exists(divvy) or "config.yaml:2: " in done.stderr, done
        daemon.await_log("config.yaml:2: ")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")
def test_every_point_left_open_is_explained():
    """Each right that `systemd-analyze security` finds is named in a comment of the unit."""
    said = subprocess.run(["systemd-analyze", "security", "--no-pager", "--offline=true", UNIT], capture_output=True,
                          text=True, timeout=60, check=False, env={**os.environ, "LANG": "C.UTF-8"}).stdout
    left = re.findall(r"^\S+ +([A-Z]\S*?=\S*) .* 0\.[0-9]+ *$", said, re.M)
    assert len(left) > 10, said
    with open(UNIT, encoding="utf-8") as file:
        text = file.read()
    comments = "".join(line for line in text.splitlines(True) if line.startswith("#"))
    given = re.search(r"^CapabilityBoundingSet=(.*)$", text, re.M)[1].split()
    words = {name for name in given} | {
        re.sub(r"^SystemCallFilter=~|=.*$", "", point) + ("=" if not point.startswith("SystemCallFilter") else "")
        for point in left if not point.startswith("CapabilityBoundingSet")}
    assert not {word for word in words if word not in comments}
