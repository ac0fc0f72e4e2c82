"""The scripts of the packages where systemd runs: a machine that qemu boots installs them, upgrades them under a
running program, and purges them. Only with `run --boot` (package qemu-system-x86): qemu computes everything itself, slowly."""

import importlib.machinery
import importlib.util
import os
import re
import shutil

import pytest

import divvytest
import machine as machines
import tree as trees
from machine import NEWER, USED

pytestmark = pytest.mark.skipif(not os.environ.get("DIVVY_INSTALL_BOOT"), reason="run by tests/install/run --boot")

SYSTEM = "systemd-sysv dbus udev kmod linux-image-amd64 initramfs-tools pocl-opencl-icd procps"

# Runs as root in the machine.
INSIDE = """#!/bin/bash
export DEBIAN_FRONTEND=noninteractive
expect() { # expect WHAT COMMAND...
    local what=$1
    shift
    if "$@" >/tmp/said 2>&1; then echo "PASS $what"; else echo "FAIL $what: $*"; cat /tmp/said; fi
}
not() { ! "$@"; }
state() { [ "$(systemctl is-active "$1")" = "$2" ]; }
within() { # within SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@"; do [ "$SECONDS" -lt "$end" ] || return 1; sleep 1; done
}
main_pid() { systemctl show -p MainPID --value divvyd; }

expect "the packages install" dpkg -i /root/packages/*.deb
expect "the session socket is open" state divvyd.socket active
expect "the control socket is open" state divvyd-control.socket active
expect "no port is open" state divvyd-metrics.socket inactive
expect "divvyd waits for the first program" state divvyd.service inactive
expect "the first program starts it" runuser -u ann -- divvy run -- compute 1 0
expect "divvyd runs" state divvyd.service active
expect "containers find the socket" test -S /run/divvy/containers/session.sock
expect "systemctl reload works" systemctl reload divvyd
cp /etc/divvy/divvy.yaml /tmp/kept.yaml
echo "wrong: yes" >>/etc/divvy/divvy.yaml
expect "systemctl reload fails with a wrong file" not systemctl reload divvyd
cp /tmp/kept.yaml /etc/divvy/divvy.yaml

runuser -u ann -- divvy run -- compute 1 @SECONDS@ >/tmp/compute 2>&1 &
program=$!
expect "a program computes" within 120 grep -q ready /tmp/compute
before=$(main_pid)
expect "the newer packages install" dpkg -i /root/newer/*.deb
expect "divvyd was restarted" test "$(main_pid)" != "$before"
expect "it is the newer one" within 60 sh -c 'divvy version | grep -q "divvyd.*@NEWER@"'
expect "it knows the program" sh -c 'divvy ps | grep compute'
expect "the program still runs" kill -0 $program
expect "systemctl restart leaves it running" systemctl restart divvyd.service
wait $program
code=$?
expect "the program ends well" test $code = 0
expect "it was right to its end" grep "^done" /tmp/compute

expect "the packages are removed" dpkg --remove @USED@
expect "no socket is left" not ls /run/divvy/session.sock
expect "no process is left" within 20 not pgrep -f 'divvyd|divvy-(worker|zygote|keeper|launcher)'
expect "the configuration is left" test -e /etc/divvy/divvy.yaml
expect "the packages are purged" dpkg --purge @USED@
expect "no file is left" not ls -d /etc/divvy /run/divvy /var/lib/divvy /var/cache/divvy /etc/cdi
journalctl -u divvyd --no-pager -o cat -n 40
echo "inside: done"
"""
UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/bash /root/inside
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
ExecStopPost=/bin/systemctl --no-block poweroff
[Install]
WantedBy=graphical.target
"""


def boot_of_the_machine_test():
    """The function that boots a tree in qemu."""
    path = os.path.join(divvytest.REPOSITORY, "tests", "machine", "run")
    loader = importlib.machinery.SourceFileLoader("machine_run", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("machine_run", loader))
    loader.exec_module(module)
    return module.boot


def put_together(suite, packages, newer, program):
    root = os.path.join(machines.PLACE, suite, "boot")
    tree = machines.Machine(trees.base(machines.PLACE, suite).copy(root).root, suite, packages)
    tree.apt("update")
    tree.apt("install", *SYSTEM.split())
    tree.install(packages, *USED)                # for what they depend on
    tree.must("dpkg", "--purge", *USED)
    tree.must("useradd", "-m", "ann")
    shutil.copy(program, tree.path("/usr/local/bin"))
    for name, place in (("packages", packages), ("newer", newer)):
        shutil.rmtree(tree.path("/root", name), ignore_errors=True)
        os.makedirs(tree.path("/root", name))
        for file in os.listdir(place):
            if file.endswith(".deb") and file.split("_")[0] in USED:
                shutil.copy(os.path.join(place, file), tree.path("/root", name))
    inside = INSIDE.replace("@NEWER@", NEWER).replace("@USED@", " ".join(USED)).replace("@SECONDS@", "150")
    tree.write("/root/inside", inside)
    tree.write("/etc/systemd/system/inside.service", UNIT)
    tree.write("/etc/fstab", "/dev/vda / ext4 rw 0 1\n")
    tree.must("systemctl", "enable", "inside.service")
    tree.must("systemctl", "set-default", "graphical.target")
    return tree


def test_systemd_installs_upgrades_and_purges(suite, packages, machine):
    newer = trees.packages(machines.PLACE, suite, NEWER)
    tree = put_together(suite, packages, newer, machine.path("/usr/local/bin/compute"))
    said = boot_of_the_machine_test()(os.path.join(machines.PLACE, suite), tree.root)
    assert "inside: done" in said, said[-3000:]
    assert not re.findall(r"FAIL .*", said)
    assert said.count("PASS ") == INSIDE.count("\nexpect ")
