"""A worker waits until the operator mounts something below a directory that it sees: nothing of it must
come into its sandbox. All of it happens in a mount namespace of the test's own."""

import os
import subprocess

import divvytest

PLACE = "/usr/local/later"


def test_what_is_mounted_later_stays_outside(program):
    daemon = divvytest.Daemon(system=True)
    real, daemon.program = daemon.program, os.path.join(daemon.home, "divvyd")
    with open(daemon.program, "w") as out:
        out.write('#!/bin/sh\nexec unshare --mount sh -ec \'mount --make-rshared /\n'
                  'mount -t tmpfs tmpfs /usr/local\nmkdir %s\nexec "$0" "$@"\' "%s" "$@"\n'
                  % (PLACE, real))
    os.chmod(daemon.program, 0o755)
    with daemon:
        child = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE)
        try:
            assert child.stdout.readline() == "ready\n"
            worker = daemon.session_of(child.pid)["worker_pid"]
            subprocess.run(["nsenter", "--mount", "--target", str(daemon.pid), "mount", "-t", "tmpfs",
                            "-o", "mode=1777", "tmpfs", PLACE], check=True)
            with open("/proc/%d/mountinfo" % daemon.pid) as outside:
                assert " %s " % PLACE in outside.read()
            with open("/proc/%d/mountinfo" % worker) as inside:
                mounts = inside.read()
            assert " /usr/local " in mounts, "what was there before is there"
            assert " %s " % PLACE not in mounts
            assert "shared:" not in mounts and "master:" not in mounts, mounts
        finally:
            divvytest.kill_group(child)
            child.stdout.close()
