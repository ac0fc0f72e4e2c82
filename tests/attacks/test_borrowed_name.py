"""A user has the name of a configured tenant, or makes tenants by making cgroups."""

import os
import pwd
import subprocess
import tempfile

import divvytest
import strangers

# Opens a session, says what divvyd answered, and stays.
STAY = """
session = lease.Session(Daemon)
print(session.status, flush=True)
sys.stdin.readline()
"""


def test_a_user_called_like_a_tenant_is_not_a_member_of_it():
    user = next(entry for entry in pwd.getpwall() if entry.pw_uid not in (0, os.getuid()))
    config = ("tenants:\n  - group: 4100\n    name: %s\n    request: 50%%\n    class: latency\n"
              % user.pw_name)
    with divvytest.Daemon(config, system=True) as daemon:
        child = strangers.start(daemon, user.pw_uid, STAY)
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
