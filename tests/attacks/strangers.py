"""Programs of other users: a few lines of Python that run as a given user and print the result."""

import os
import subprocess
import sys

import leasechannel as lease

PRELUDE = """import json, os, socket, struct, sys, time
sys.path.insert(0, sys.argv[1])
import leasechannel as lease
class Daemon: dir = sys.argv[2]
"""


def command(daemon, code, *arguments):
    """The command line that runs the lines; their arguments begin with sys.argv[3]."""
    return [sys.executable, "-c", PRELUDE + code, os.path.dirname(lease.__file__), daemon.dir,
            *map(str, arguments)]


def start(daemon, user, code, *arguments, groups=(), **kwargs):
    return subprocess.Popen(command(daemon, code, *arguments), user=user, group=user,
                            extra_groups=list(groups), text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, **kwargs)


def run(daemon, user, code, timeout=60, **kwargs):
    """Returns what it prints."""
    child = start(daemon, user, code, **kwargs)
    try:
        said = child.communicate(timeout=timeout)[0].strip()
        assert child.returncode == 0, "the attack did not come to its end: %s" % said
        return said
    finally:
        child.kill()
        child.wait()
