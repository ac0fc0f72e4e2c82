"""A tree in which the packages are installed and used."""

import os
import shutil
import signal

import divvytest
import recipes
import tree as trees

PLACE = os.environ.get("DIVVY_INSTALL_PLACE")
SUITES = os.environ.get("DIVVY_INSTALL_SUITES", "bookworm trixie").split()
ALL = ("divvy", "divvyd", "libdivvy-opencl1", "libdivvy-lease0", "libdivvy-dev")
USED = ALL[:3]
# the version that the packages are upgraded to
NEWER = "0.99.0"
# Programs that are copied into the tree: a load, and one that checks its results.
PROGRAMS = ("turns", "compute")
USERS = {"ann": "vision", "ben": "robotics", "eve": "users"}
# Debian's own programs in the tree, besides what the packages ask for.
TOOLS = "pocl-opencl-icd clinfo man-db bash-completion zsh gcc g++ libc6-dev pkgconf"


class Machine(trees.Tree):
    """A tree in which the packages are installed, with a divvyd that the tests start as its unit would."""

    def __init__(self, root, suite, packages):
        super().__init__(root)
        self.suite = suite
        self.packages = packages
        self.daemon = None
        self.log = os.path.join(PLACE, suite, "divvyd.log")

    def put(self, packages, *names):
        """Puts files of packages into /root/packages. Returns their names."""
        shutil.rmtree(self.path("/root/packages"), ignore_errors=True)
        os.makedirs(self.path("/root/packages"))
        files = [file for file in os.listdir(packages) if file.endswith(".deb") and file.split("_")[0] in names]
        assert len(files) == len(names), files
        for file in files:
            shutil.copy(os.path.join(packages, file), self.path("/root/packages"))
        return files

    def install(self, packages, *names):
        """Installs packages by their files."""
        files = self.put(packages, *names)
        return self.apt("install", "--allow-downgrades", *("/root/packages/" + file for file in files))

    def type(self, folder, text):
        """Runs commands of the documents as they stand, in a folder that may be new."""
        os.makedirs(self.path(folder), exist_ok=True)
        return self.must("sh", "-ec", "cd %s\n%s" % (folder, text))

    def unit(self):
        """Lines of the installed divvyd.service, by their key."""
        folder = next(folder for folder in ("/usr/lib", "/lib")
                      if os.path.isfile(self.path(folder, "systemd/system/divvyd.service")))
        text = self.read(folder + "/systemd/system/divvyd.service")
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))

    def start(self):
        unit = self.unit()
        with open(self.log, "ab") as log:
            self.daemon = self.popen("sh", "-c", "umask %s; exec %s" % (unit["UMask"], unit["ExecStart"]), stdout=log,
                                     stderr=log, env={"STATE_DIRECTORY": "/var/lib/divvy", "POCL_MEMORY_LIMIT": "4"})
        divvytest.wait_for(lambda: self.run("divvy", "devices")[0] == 0, 30, self.said)

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def signal(self, name):
        """Sends a signal to divvyd, and waits for its end. unshare has become sh, and sh divvyd."""
        os.kill(self.daemon.pid, getattr(signal, name))
        assert self.daemon.wait(30) == 0, self.said()
        self.daemon = None

    def stop(self):
        if self.daemon and self.daemon.poll() is None:
            self.signal("SIGTERM")

    def tenants(self):
        return self.must("divvy", "tenants", "--json")


def lab_with_a_refused_user():
    return recipes.read()[recipes.LAB].replace("tenants:\n", "tenants:\n  - user: eve\n    refuse: yes\n")
