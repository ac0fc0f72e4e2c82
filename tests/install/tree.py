"""Trees of Debian, made with debootstrap, and commands that run in them.

A command gets a mount namespace in which the tree is the root. So its mounts end with it, and a worker can make its
sandbox as on a machine. Processes and users are the machine's. There is no service manager.
"""

import os
import shlex
import shutil
import subprocess
import sys

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(REPOSITORY, "tests", "docs"))
import pages  # noqa: E402

COMMAND_S = 1800

# The tree's /run, /tmp and /var are directories of the tree, so all its commands see the same. /sys is without the
# machine's cgroups, which are none of its business.
ENTER = """set -e
mount --rbind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --rbind /dev dev
mount --bind /sys sys
pivot_root . mnt
umount -l /mnt
cd /
shift
exec "$@"
"""


def archive():
    return [os.environ["DIVVY_DEBIAN"]] if "DIVVY_DEBIAN" in os.environ else []


def command_in(root, command, before=""):
    """The command line that runs a command in the tree, after some lines of shell that still see the machine."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", before + ENTER, "enter", root, *command]


ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8",
               "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", "TERM": "dumb", "MANPAGER": "cat",
               **{name: value for name, value in os.environ.items() if name.endswith("_proxy")}}


class Tree:
    def __init__(self, root):
        self.root = root

    def path(self, *names):
        return os.path.join(self.root, *(name.lstrip("/") for name in names))

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def popen(self, *command, user=None, before="", **kwargs):
        if user:
            command = ("runuser", "-u", user, "--", *command)
        environment = {**ENVIRONMENT, **kwargs.pop("env", {})}
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(command_in(self.root, command, before), env=environment, text=True,
                                start_new_session=True, **kwargs)

    def run(self, *command, timeout=COMMAND_S, **kwargs):
        """Runs a command to its end. Returns its exit code and what it said on both its outputs."""
        child = self.popen(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **kwargs)
        try:
            said = child.communicate(timeout=timeout)[0]
        except BaseException:
            child.kill()
            child.communicate()
            raise
        return child.returncode, said

    def must(self, *command, **kwargs):
        code, said = self.run(*command, **kwargs)
        assert code == 0, "%s: code %d\n%s" % (shlex.join(command), code, said)
        return said

    def apt(self, *arguments):
        return self.must("apt-get", "-y", "-q", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confdef",
                         "-o", "Dpkg::Options::=--force-confold", *arguments)

    def files(self):
        """Everything in the tree but what the package manager and tools keep for themselves."""
        own = ("/var/lib/dpkg", "/var/lib/apt", "/var/cache", "/var/log", "/tmp", "/root", "/home", "/proc", "/sys",
               "/dev", "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/subuid-", "/etc/subgid-",
               "/etc/ld.so.cache", "/run/systemd/systemd-units-load")
        found = set()
        for where, folders, names in os.walk(self.root):
            inside = "/" + os.path.relpath(where, self.root) if where != self.root else ""
            folders[:] = [name for name in folders if inside + "/" + name not in own]
            found |= {inside + "/" + name for name in folders + names}
        return {path for path in found if path not in own and "__pycache__" not in path}

    def copy(self, root):
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["cp", "-a", "--reflink=auto", self.root, root], check=True)
        return Tree(root)


def base(place, suite):
    """A minimal Debian with systemd, as every Debian has it, though it does not run. It is kept in the place."""
    root = os.path.join(place, suite, "base")
    done = os.path.join(place, suite, "base.done")
    if not os.path.exists(done):
        shutil.rmtree(root, ignore_errors=True)
        os.makedirs(root)
        subprocess.run(["debootstrap", "--variant=minbase", "--include=systemd", suite, root, *archive()], check=True,
                       stdout=subprocess.DEVNULL)
        shutil.copy("/etc/resolv.conf", os.path.join(root, "etc"))
        open(done, "w").close()
    return Tree(root)


def build(place, suite):
    """A tree with what the packages need to be built, and lintian. It is kept in the place."""
    tree = Tree(os.path.join(place, suite, "build"))
    if not os.path.exists(tree.root):
        tree = base(place, suite).copy(tree.root)
        tree.apt("update")
        tree.apt("install", "build-essential", "fakeroot", "lintian")
    return tree


def copy_source(tree, folder, version):
    """Puts the source of this repository into a tree, with another version if one is given."""
    target = tree.path(folder)
    shutil.rmtree(os.path.dirname(target), ignore_errors=True)
    os.makedirs(target)
    listed = subprocess.run(["git", "-C", REPOSITORY, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            check=True, capture_output=True).stdout
    names = [name for name in listed.split(b"\0") if name and os.path.lexists(os.path.join(REPOSITORY.encode(), name))]
    packed = subprocess.run(["tar", "-C", REPOSITORY, "--null", "-T", "-", "-c"], check=True, capture_output=True,
                            input=b"\0".join(names)).stdout
    subprocess.run(["tar", "-C", target, "--no-same-owner", "-x"], check=True, input=packed)
    if version:
        old = tree.read(folder + "/debian/changelog")
        entry = old.split("\n -- ")
        tree.write(folder + "/debian/changelog", "divvy (%s) unstable; urgency=medium\n\n  * For a test.\n\n -- %s\n%s"
                   % (version, entry[1].split("\n")[0], old))
        now = subprocess.run(["sed", "-n", "s/^  version : '\\(.*\\)',/\\1/p", os.path.join(target, "meson.build")],
                             check=True, capture_output=True, text=True).stdout.strip()
        subprocess.run(["sed", "-i", "s/^  version : '%s'/  version : '%s'/" % (now, version),
                        os.path.join(target, "meson.build")], check=True)


def commands():
    """What README.md says: the commands that build the packages, the one that installs them, and the one that looks."""
    *build_them, install, look = pages.block_by("packages").splitlines()
    return "\n".join(build_them), install, look


def packages(place, suite, version=None):
    """Builds the packages in their tree, as README.md says. Returns the directory that they are in."""
    target = os.path.join(place, suite, "packages" + (version or ""))
    if os.environ.get("DIVVY_INSTALL_REUSE") and os.path.exists(target):
        return target
    tree = build(place, suite)
    copy_source(tree, "/build/divvy", version)
    tree.apt("update")
    code, said = tree.run("sh", "-ec", "cd /build/divvy\n" + commands()[0])
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    with open(os.path.join(target, "build.log"), "w", encoding="utf-8") as log:
        log.write(said)
    if code != 0:
        shutil.rmtree(target)
    assert code == 0, said[-6000:]
    for name in os.listdir(tree.path("/build")):
        if name.endswith((".deb", ".changes", ".buildinfo")):
            shutil.copy(tree.path("/build", name), target)
    return target
