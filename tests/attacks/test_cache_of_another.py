"""Another user was first to make directories where compiled kernels are kept: its own, or links."""

import os
import shutil
import tempfile

import divvytest
import innocents


def test_a_directory_of_another_is_not_used(program):
    caches = tempfile.mkdtemp(prefix="dv-cache-", dir="/tmp")
    os.chmod(caches, 0o711)
    target = os.path.join(caches, "target")
    os.mkdir(target)
    os.chown(target, innocents.ATTACKER, innocents.ATTACKER)
    first = 1879048192
    for number in range(first, first + 8):
        os.symlink(target, os.path.join(caches, "%d-user.4001" % number))
        own = os.path.join(caches, "%d-uid%%3a4001.4001" % number)
        os.mkdir(own)
        os.chown(own, innocents.ATTACKER, innocents.ATTACKER)
    try:
        with divvytest.Daemon(system=True, env={"DIVVY_CACHE": caches}) as daemon:
            done = daemon.run([program("compute"), "1", "0"], timeout=90, user=4001, group=4001,
                              extra_groups=[])
            assert done.returncode == 0, done.stderr
            assert os.listdir(target) == [], "kernels were compiled into another user's directory"
            for name in os.listdir(caches):
                if "4001.4001" in name and os.stat(os.path.join(caches, name)).st_uid == innocents.ATTACKER:
                    assert os.listdir(os.path.join(caches, name)) == []
    finally:
        shutil.rmtree(caches)
