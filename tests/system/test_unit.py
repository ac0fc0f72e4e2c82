"""The shipped unit: the rights that it leaves divvyd are enough."""

import configparser
import os
import re
import shlex

import pytest

import divvytest

UNIT = os.path.join(divvytest.REPOSITORY, "integration", "systemd", "divvyd.service")


@pytest.mark.skipif(os.geteuid() != 0, reason="the unit is for root's daemon")
def test_the_units_rights_are_enough(program, tmp_path):
    """Programs are served, and directories of compiled kernels are made, given away and removed."""
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.read(UNIT)
    service = unit["Service"]
    rights = ["+" + name.removeprefix("CAP_").lower() for name in service["CapabilityBoundingSet"].split()]
    start = tmp_path / "divvyd"
    start.write_text("#!/bin/sh\numask %s\nexec setpriv --bounding-set=-all,%s --inh-caps=-all --no-new-privs %s \"$@\"\n"
                     % (service["UMask"], ",".join(rights), shlex.quote(divvytest.binary("divvyd"))))
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


def test_the_sample_configuration_is_one():
    """As it is, and with every line that could be one."""
    with open(os.path.join(divvytest.REPOSITORY, "integration", "divvy.yaml")) as file:
        text = file.read()
    keys = [line[2:] for line in text.splitlines()
            if re.match(r"# (sessions-per|worker-[mpu]|cache|tenants-see)[a-z-]*: ", line)]
    assert len(keys) == 7, keys
    for config in (text, "\n".join(keys) + "\n"):
        with divvytest.Daemon(config):
            pass
