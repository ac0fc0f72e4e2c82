"""Native code in a worker signals its process group, and lowers its priority: process groups reach across
pid namespaces, so it must have one of its own."""

import os
import signal
import subprocess

import pytest

import divvytest

NOBODY = 65534


@pytest.mark.parametrize("kind", [{"system": True}, {"user": NOBODY}], ids=["system", "user"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_group_reaches_nobody_else(program, kind, number):
    with divvytest.Daemon(**kind) as daemon:
        sibling = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE)
        try:
            assert sibling.stdout.readline() == "ready\n"
            session = daemon.session_of(sibling.pid)
            worker, others = session["worker_pid"], daemon.processes()
            nice = os.getpriority(os.PRIO_PROCESS, worker)
            done = daemon.run([program("evil"), "group", str(int(number))])
            if "sent 1" not in done.stdout:   # it was in its own group, too; it cannot change its priority
                daemon.await_log("was ended by signal %d" % number)
            assert others <= daemon.processes(), daemon.log
            assert os.getpriority(os.PRIO_PROCESS, worker) == nice
            assert daemon.session_of(sibling.pid)["id"] == session["id"]
            assert "zygote has ended" not in daemon.log
            sibling.send_signal(signal.SIGUSR1)
            assert sibling.wait(60) == 0
        finally:
            divvytest.kill_group(sibling)
            sibling.stdout.close()
