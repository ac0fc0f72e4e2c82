"""A tenant has settings for drivers and the dynamic linker in its environment: none reaches its worker."""

import divvytest


def test_a_worker_has_nothing_of_its_tenants_environment(program):
    with divvytest.Daemon(system=True) as daemon:
        child = daemon.popen([program("compute"), "1", "36000", "4"], stdout=-1, user=4002, group=4002,
                             extra_groups=[], env={"LD_PRELOAD": "/tmp/none.so", "POCL_DEVICES": "basic",
                                                   "TOKEN": "secret"})
        try:
            assert child.stdout.readline() == "ready\n"
            worker = daemon.session_of(child.pid)["worker_pid"]
            with open("/proc/%d/environ" % worker, "rb") as environ:
                text = environ.read()
            assert b"none.so" not in text and b"secret" not in text and b"basic" not in text
        finally:
            divvytest.kill_group(child)
            child.communicate()
