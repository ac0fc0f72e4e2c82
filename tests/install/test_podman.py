"""Containers of podman get the shared devices by the installed CDI file. Their images have an OpenCL loader and clinfo,
and nothing of divvy. podman makes no cgroups here, because there is no service manager to ask."""

import os

import pytest

import machine as machines
import tree as trees

IMAGE = "/srv/image"
USER_NAMESPACE = ["--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536"]


@pytest.fixture(scope="module")
def image(suite):
    """A tree that stands for an image."""
    root = os.path.join(machines.PLACE, suite, "image")
    if not os.path.exists(root):
        image = trees.base(machines.PLACE, suite).copy(root)
        image.apt("update")
        image.apt("install", "clinfo", "ocl-icd-libopencl1")
    return root


@pytest.fixture(scope="module")
def host(suite, packages, image):
    """A machine with podman and a divvyd."""
    root = os.path.join(machines.PLACE, suite, "podman")
    host = machines.Machine(trees.base(machines.PLACE, suite).copy(root).root, suite, packages)
    host.apt("update")
    host.apt("install", "pocl-opencl-icd", "podman", "crun")
    host.install(packages, "divvyd", "divvy", "libdivvy-opencl1")
    os.makedirs(host.path(IMAGE))
    host.start()
    yield host
    host.stop()


def in_container(host, image, options, *command):
    """Returns the exit code of a container, and what it said."""
    return host.run("sh", "-c", 'mount -t cgroup2 none /sys/fs/cgroup && exec "$@"', "sh", "podman", "--runtime",
                    "crun", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "run", "--rm", "--network", "none",
                    "--cgroups", "disabled", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", *options,
                    "--rootfs", IMAGE, *command, before="mount --bind '%s' '%s'\n" % (image, host.path(IMAGE)),
                    timeout=120)


@pytest.mark.parametrize("options", [[], USER_NAMESPACE, USER_NAMESPACE + ["--user", "1000"]],
                         ids=["root", "user-namespace", "user-of-a-namespace"])
def test_a_container_uses_the_devices(host, image, options):
    code, said = in_container(host, image, [*options, "--device", "divvy.org/accel=all"], "clinfo", "-l")
    assert code == 0 and "Platform #0: divvy" in said and "Device #0" in said, said + host.said()


@pytest.mark.parametrize("options", [[], USER_NAMESPACE], ids=["root", "user-namespace"])
def test_a_container_gets_the_session_socket_and_nothing_else(host, image, options):
    options = [*options, "--device", "divvy.org/accel=all"]
    code, said = in_container(host, image, options, "find", "/run/divvy")
    assert code == 0 and said.split() == ["/run/divvy", "/run/divvy/session.sock"], said
    code, said = in_container(host, image, options, "touch", "/run/divvy/x")
    assert code != 0 and "Read-only file system" in said, said
    assert not in_container(host, image, options, "sh", "-c", "ls /dev/dri /dev/kfd 2>/dev/null")[1]


def test_a_container_without_the_device_finds_none(host, image):
    assert "divvy" not in in_container(host, image, [], "clinfo", "-l")[1]


def test_the_mounts_by_hand_do_the_same(host, image):
    """As docs/containers.md gives them."""
    library = host.read("/usr/share/divvy/vendors/divvy.icd").strip()
    options = ["-v", "/run/divvy/containers:/run/divvy:ro", "-v", "%s:%s:ro" % (library, library), "-v",
               "/usr/share/divvy/vendors/divvy.icd:/etc/OpenCL/vendors/divvy.icd:ro"]
    code, said = in_container(host, image, options, "clinfo", "-l")
    assert code == 0 and "Platform #0: divvy" in said, said
