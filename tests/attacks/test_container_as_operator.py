"""Root of a container, to whom the runtime directory was mounted, gives orders to divvyd."""

import os
import subprocess

import divvytest
import leasechannel as lease

SOCKET = ("control", "control.sock")


def order(daemon, *unshare):
    """The HTTP status of an operator's order, given in other namespaces."""
    done = subprocess.run(
        [*unshare, "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST", "--unix-socket",
         os.path.join(daemon.dir, *SOCKET), "http://divvyd/v1/devices/0/policy?name=fifo"],
        capture_output=True, text=True, timeout=30)
    return done.stdout


def test_root_of_a_container_is_no_operator():
    with divvytest.Daemon("tenants-see-own: yes\n", system=True) as daemon:
        lease.Session(daemon).close()   # the device is known
        assert order(daemon, "unshare", "--pid", "--fork", "--mount-proc") == "403"
        assert order(daemon, "unshare", "--user", "--map-root-user") == "403"
        assert order(daemon) == "200"


def test_the_control_socket_is_in_a_directory_of_its_own():
    """So the session socket can be handed on without it; by default only operators get into it."""
    with divvytest.Daemon(system=True) as daemon:
        assert "control.sock" not in os.listdir(daemon.dir)
        assert os.stat(os.path.join(daemon.dir, "control")).st_mode & 0o777 == 0o750
        assert os.stat(os.path.join(daemon.dir, *SOCKET)).st_mode & 0o777 == 0o660
