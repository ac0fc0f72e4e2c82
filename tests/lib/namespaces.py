"""Processes in a user namespace of their own, as in a container."""

import shlex

# The number that the namespace's root has outside. The machine's root has no number inside.
OUTSIDE = 100000


def as_ordinary_user(command):
    """A command line that runs the command as user 1000 of a new user namespace, once map_users was called."""
    return ["unshare", "--user", "--keep-caps", "sh", "-c", "echo; read answer; exec setpriv --reuid=1000 --regid=1000 "
            "--clear-groups --inh-caps=-all " + shlex.join(command)]


def map_users(child):
    """child: a Popen object with pipes for input and output in text mode, whose program has become as_ordinary_user."""
    line = child.stdout.readline()
    assert line == "\n", line + child.stdout.read()
    for name in ("uid_map", "gid_map"):
        with open("/proc/%d/%s" % (child.pid, name), "w", encoding="ascii") as file:
            file.write("0 %d 65536\n" % OUTSIDE)
    child.stdin.write("go\n")
    child.stdin.flush()
