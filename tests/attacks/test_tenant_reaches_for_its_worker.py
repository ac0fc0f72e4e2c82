"""A tenant cannot read, trace or signal its own worker: the worker runs as another user."""

import os

import divvytest
import strangers

REACH = """
worker, failed = int(os.environ["WORKER"]), []
for name in ("mem", "environ", "maps"):
    try:
        open("/proc/%d/%s" % (worker, name), "rb").read(1)
        failed.append(name)
    except OSError:
        pass
try:
    os.listdir("/proc/%d/fd" % worker)
    failed.append("fd")
except OSError:
    pass
for signum in (0, 9, 19):
    try:
        os.kill(worker, signum)
        failed.append("signal %d" % signum)
    except PermissionError:
        pass
import ctypes
if ctypes.CDLL(None).ptrace(16, worker, 0, 0) == 0:
    failed.append("ptrace")
print(",".join(failed))
"""


def test_a_tenant_does_not_get_at_its_worker(program):
    with divvytest.Daemon(system=True) as daemon:
        child = daemon.popen([program("compute"), "1", "36000", "4"], stdout=-1, user=4002, group=4002,
                             extra_groups=[])
        try:
            assert child.stdout.readline() == "ready\n"
            worker = daemon.session_of(child.pid)["worker_pid"]
            assert strangers.run(daemon, 4002, REACH, env={**os.environ, "WORKER": str(worker)}) == ""
            assert daemon.session_of(child.pid)["worker_pid"] == worker
        finally:
            divvytest.kill_group(child)
            child.communicate()
