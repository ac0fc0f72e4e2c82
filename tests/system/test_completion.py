"""Completion knows the commands and options that there are, and the sessions, tenants and devices of now."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

import divvytest

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(os.path.dirname(os.path.dirname(HERE)), "integration", "completion", "divvy.bash")
COMPLETION = "/usr/share/bash-completion/bash_completion"

COMPLETE = """
source %s
source %s
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
_divvy
printf '%%s\\n' "${COMPREPLY[@]}"
""" % (COMPLETION, SCRIPT)


def complete(*words, env=None):
    env = dict(env or os.environ)
    env["PATH"] = "%s:%s" % (os.path.dirname(divvytest.binary("divvy")), env["PATH"])
    done = subprocess.run(["bash", "-c", COMPLETE, "bash", "divvy", *words], capture_output=True, text=True, env=env,
                          timeout=30)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def help_of(*command):
    return subprocess.run([divvytest.binary("divvy"), *command, "--help"], capture_output=True, text=True).stdout


def commands():
    return re.findall(r"^  ([a-z]+)  ", help_of(), re.M)


@pytest.fixture(autouse=True)
def needs_bash_completion():
    if not os.path.exists(COMPLETION):
        pytest.skip("bash-completion is not installed")


def test_all_commands_are_completed():
    assert set(commands()) <= complete("")
    assert complete("do") == {"doctor"}


@pytest.mark.parametrize("command", commands())
def test_all_options_are_completed(command):
    known = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", help_of(command), re.M))
    assert known
    assert known <= complete(command, "-"), command
    assert not complete(command, "--h") ^ {"--help"}


def test_zsh_knows_the_same_commands():
    with open(os.path.join(os.path.dirname(SCRIPT), "_divvy")) as file:
        assert set(commands()) <= set(re.findall(r"^    '([a-z]+):", file.read(), re.M))


def test_sessions_tenants_and_devices(daemon, program):
    child = daemon.popen([program("compute"), "1", "600"], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == "ready\n"
        session = str(daemon.session_of(child.pid)["id"])
        env = daemon.env()
        assert session in complete("explain", "", env=env)
        assert session in complete("end", "", env=env)
        assert complete("set", "--device", "", env=env) == {"0"}
        tenant = daemon.cli("tenants").splitlines()[1].split()[0]
        assert tenant in complete("set", "", env=env)
        assert "0" in complete("policy", "", env=env)
    finally:
        divvytest.kill_group(child)
        child.stdout.close()


def test_without_a_program_there_is_nothing_to_complete(daemon):
    """`divvy tenants` and `divvy ps` then print the devices, and that nobody uses them."""
    env = daemon.env()
    divvytest.wait_for(lambda: daemon.cli("devices").startswith("DEVICE"), 10, "no devices")
    assert daemon.cli("tenants").startswith("device 0 ")
    assert not complete("set", "", env=env)
    assert not complete("end", "", env=env)


BASH = ["bash", "--norc", "--noprofile", "-i"]
SHELLS = {
    "bash": (BASH, "source %s" % SCRIPT),
    "bash with bash-completion": (BASH, "source %s; source %s" % (COMPLETION, SCRIPT)),
    "zsh": (["zsh", "-f", "-i"], "fpath=(%s $fpath); autoload -U compinit; compinit -u -D" % os.path.dirname(SCRIPT)),
}


class Terminal:
    """A shell that somebody types into."""

    def __init__(self, command, env, directory):
        self.screen, slave = pty.openpty()
        self.child = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=directory,
                                      start_new_session=True)
        os.close(slave)
        self.seen = ""

    def type(self, keys):
        os.write(self.screen, keys.encode())

    def read(self, pattern, within):
        """Reads until the pattern matches what was read. Whether it does."""
        deadline = time.monotonic() + within
        while not re.search(pattern, self.seen) and time.monotonic() < deadline:
            if select.select([self.screen], [], [], 0.1)[0]:
                self.seen += os.read(self.screen, 4096).decode(errors="replace")
        return bool(re.search(pattern, self.seen))

    def end(self):
        divvytest.kill_group(self.child)
        os.close(self.screen)


def typed(shell, daemon, directory, line):
    """The arguments of a command line after a TAB at its end."""
    command, setup = SHELLS[shell]
    env = {**daemon.env(), "PATH": "%s:%s" % (os.path.dirname(divvytest.binary("divvy")), os.environ["PATH"]),
           "TERM": "dumb", "HOME": str(directory), "PS1": "", "LC_ALL": "C.UTF-8"}
    terminal = Terminal(command, env, directory)
    try:
        terminal.type(" stty cols 400; %s; echo 'set' 'up'\n" % setup)
        assert terminal.read(r"\nset up", 30), terminal.seen
        terminal.type(line + "\t\x01printf '<%s>' \x05; echo 'the' 'end'\n")
        assert terminal.read(r">the end", 10), terminal.seen
        return re.findall("<(.*?)>", terminal.seen.replace("<%s>", ""))
    finally:
        terminal.end()


@pytest.mark.parametrize("shell", SHELLS)
def test_names_of_tenants_are_completed_and_not_run(daemon, program, tmp_path, shell):
    """A program names itself: what is a command there must not run where somebody presses TAB."""
    if not shutil.which(SHELLS[shell][0][0]):
        pytest.skip("there is no %s" % shell)
    named = tmp_path / "$(touch it) x"
    shutil.copy(program("compute"), named)
    child = daemon.popen([str(named), "1", "600"], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == "ready\n"
        tenant = daemon.session_of(child.pid)["tenant"]
        assert re.fullmatch(r"pid:[0-9]+:\$\(touch it\) x", tenant)
        for begin in ("p", "pid:", tenant.split("$")[0]):
            assert typed(shell, daemon, tmp_path, "divvy set %s" % begin)[:3] == ["divvy", "set", tenant], begin
        assert typed(shell, daemon, tmp_path, "divvy explain ")[2] == str(daemon.session_of(child.pid)["id"])
        assert not (tmp_path / "it").exists()
    finally:
        divvytest.kill_group(child)
        child.stdout.close()


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
