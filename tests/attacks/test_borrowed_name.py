"""A user is called as a configured tenant is, or makes tenants by making cgroups."""

import os
import pwd
import subprocess
import sys
import tempfile

import divvytest
import leasechannel as lease


def test_a_user_called_like_a_tenant_is_not_a_member_of_it():
    user = next(entry for entry in pwd.getpwall() if entry.pw_uid not in (0, os.getuid()))
    config = ("tenants:\n  - group: 4100\n    name: %s\n    request: 50%%\n    class: latency\n"
              % user.pw_name)
    with divvytest.Daemon(config, system=True) as daemon:
        child = subprocess.Popen(
            [sys.executable, "-c", lease.CONNECT_AND_STAY, os.path.dirname(lease.__file__), daemon.dir],
            user=user.pw_uid, group=user.pw_gid, extra_groups=[], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout.readline() == "0\n"
            session = next(s for s in daemon.sessions() if s["tenant_pid"] == child.pid)
        finally:
            child.kill()
            child.wait()
        assert session["tenant"] == "uid:%d" % user.pw_uid


def refused(text):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(text)
        config.flush()
        directory = tempfile.mkdtemp(prefix="dv-", dir="/tmp")
        done = subprocess.run([divvytest.binary("divvyd"), "--user", "--dir", directory, "--config",
                               config.name], capture_output=True, text=True, timeout=30)
        os.rmdir(directory)
    assert done.returncode != 0
    return done.stderr


def test_cgroups_are_tenants_only_by_a_pattern():
    assert "per: cgroup needs a pattern" in refused("tenants:\n  - per: cgroup\n")


def test_names_that_divvyd_gives_are_not_for_configuration():
    for name in ('"uid:7"', "/slurm", '"7"'):
        assert "cannot be called" in refused("tenants:\n  - name: %s\n" % name)
