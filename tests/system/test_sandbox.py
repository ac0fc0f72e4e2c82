"""The worker's sandbox: native code in a worker reaches nothing but its own tenant's things.

The intruder is tests/vendor/intrude.c: the scripted vendor, loaded by workers like any driver, tries
out what a worker must not do and says what became of it in divvyd's log.
"""

import contextlib
import ctypes
import os
import re
import shutil
import socket
import subprocess
import tempfile

import pytest

import divvytest

NOBODY = 65534
ATTEMPTS, OWN = 102, 12
# No machine keeps an ordinary user from these; some machines do from the others.
FREE_TO_USERS = (
    "read a file in a home directory", "list a home directory", "read /etc/passwd",
    "read another tenant's compiled kernels", "list all tenants' caches", "find divvyd's sockets",
    "write to the vendor directory", "use another's shared memory file",
    "fill more than its scratch space", "see other processes", "signal its tenant's process",
    "signal its tenant by the descriptor it holds", "signal divvyd", "open its tenant's process",
    "be traced", "gain rights from a program it runs", "connect to a server on this machine",
    "send datagrams", "ask the kernel about networks", "connect to divvyd's control socket",
    "connect to divvyd's session socket", "connect to a socket without a path",
    "use another's System V memory", "make a message queue", "change how programs run",
    "run a program from its scratch space", "lock a file that all see", "be dumpable",
    "be dumpable by a longer number", "ask a device for what no rule names",
    "lead a session, with a share of the processors")
WORKER_UIDS = range(1879048192, 1879113728)

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be several users")


def readable_by_nobody(path):
    return subprocess.run(["test", "-x", path], user=NOBODY, group=NOBODY, extra_groups=[]
                          ).returncode == 0


@contextlib.contextmanager
def system_v_memory():
    """The key of a segment that all users may use."""
    libc, create, remove = ctypes.CDLL(None, use_errno=True), 0o1000, 0
    segment = libc.shmget(os.getpid(), 4096, create | 0o666)
    assert segment >= 0, os.strerror(ctypes.get_errno())
    try:
        yield os.getpid()
    finally:
        libc.shmctl(segment, remove, None)


def wrap(daemon, lines):
    """Has a script start the daemon's program: lines of shell, with $DIVVYD for the command."""
    command = '"%s" "$@"' % daemon.program
    daemon.program = os.path.join(daemon.home, "divvyd")
    with open(daemon.program, "w") as out:
        out.write("#!/bin/sh\n" + lines.replace("$DIVVYD", command))
    os.chmod(daemon.program, 0o755)


class Scene:
    """A daemon with the scripted vendor, and around it everything an intruder might want."""

    def __init__(self, stack, config="", system=False, user=None):
        self.place = tempfile.mkdtemp(prefix="dv-sandbox-", dir="/tmp")
        stack.callback(shutil.rmtree, self.place, ignore_errors=True)
        os.chmod(self.place, 0o755)
        owner = user if user is not None else os.geteuid()
        home, caches = (os.path.join(self.place, name) for name in ("home", "caches"))
        for directory in (home, caches, os.path.join(caches, "1879100000-other.7")):
            os.makedirs(directory)
            os.chmod(directory, 0o755)
            os.chown(directory, owner, owner)
        self.cache = os.path.join(caches, "1879100000-other.7", "kernel")
        for path in (os.path.join(home, "secret"), self.cache):
            with open(path, "w") as out:
                out.write("secret\n")
        shm = os.path.join("/dev/shm", os.path.basename(self.place))
        with open(shm, "w") as out:
            out.write("secret\n")
        stack.callback(os.unlink, shm)

        server = stack.enter_context(contextlib.closing(socket.create_server(("127.0.0.1", 0))))
        abstract = stack.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX)))
        abstract.bind("\0" + os.path.basename(self.place))
        abstract.listen()
        bystander = subprocess.Popen(["sleep", "600"], user=owner, group=owner, extra_groups=[])
        stack.callback(bystander.wait)
        stack.callback(bystander.kill)

        self.daemon = divvytest.Daemon("cache-size: 32MiB\n" + config, system=system, user=user)
        prey = {"home": home, "cache": self.cache, "caches": caches, "shm": shm,
                "dir": self.daemon.dir, "tcp": server.getsockname()[1],
                "abstract": os.path.basename(self.place), "tenant": bystander.pid,
                "sysv": stack.enter_context(system_v_memory())}
        self.daemon.extra_env.update({
            "DIVVY_CACHE": caches,
            "DIVVY_VENDORS": os.path.join(divvytest.build_dir(), "tests", "vendor"),
            "DIVVY_VENDOR_SCRIPT": "clCreateContext 1 intrude",
            "DIVVY_VENDOR_PREY": ";".join("%s=%s" % pair for pair in prey.items())})
        wrap(self.daemon, 'DIVVY_VENDOR_PREY="$DIVVY_VENDOR_PREY;daemon=$$" exec $DIVVYD\n')
        self.caches = caches
        stack.enter_context(self.daemon)

    def intrude(self, program, **kwargs):
        """What became of each attempt: {name: True when it was allowed}."""
        done = self.daemon.run([program("compute"), "1", "0"], **kwargs)
        divvytest.wait_for(lambda: "intruder: done" in self.daemon.log, 20,
                           lambda: "the intruder did not come in: %s%s" % (done.stdout, done.stderr))
        assert all(re.match(r"(\S+ \S+ )?divvyd: session \d+: \| ", line) for line in self.daemon.log.splitlines()
                   if "intruder" in line), "a worker writes into divvyd's own log"
        found = re.findall(r"intruder: (.*): (ALLOWED|refused \(.*\))$", self.daemon.log, re.M)
        return {name: result == "ALLOWED" for name, result in found}


@pytest.fixture
def scene():
    with contextlib.ExitStack() as stack:
        yield lambda **kwargs: Scene(stack, **kwargs)


def assert_sandboxd(results):
    attempts = {name: allowed for name, allowed in results.items() if not name.startswith("own: ")}
    own = {name: allowed for name, allowed in results.items() if name.startswith("own: ")}
    assert not [name for name, allowed in attempts.items() if allowed], "were allowed"
    assert not [name for name, allowed in own.items() if not allowed], "were refused"
    assert (len(attempts), len(own)) == (ATTEMPTS, OWN)


@root_only
@pytest.mark.parametrize("system", [True, False], ids=["system", "user"])
def test_a_worker_of_roots_daemon_reaches_nothing(scene, program, system):
    assert_sandboxd(scene(system=system).intrude(program))


@root_only
def test_a_worker_of_a_users_daemon_reaches_nothing(scene, program):
    if not readable_by_nobody(divvytest.binary("divvyd")):
        pytest.skip("the build tree is not for everybody")
    assert_sandboxd(scene(user=NOBODY).intrude(program))


@root_only
def test_without_a_sandbox_the_intruder_succeeds(scene, program):
    """So that the others cannot pass for the wrong reason."""
    if not readable_by_nobody(divvytest.binary("divvyd")):
        pytest.skip("the build tree is not for everybody")
    unsandboxed = scene(user=NOBODY, config="sandbox: no\n")
    results = unsandboxed.intrude(program)
    unsandboxed.daemon.await_log("WITHOUT a sandbox")
    assert not [name for name in FREE_TO_USERS if not results[name]], "were refused"


@root_only
@pytest.mark.parametrize("rule", ["paths: [/dev/nvidia0]", "ioctls: [F]", "ioctls: [0x8008462a]",
                                  "ioctls: [all]"])
def test_a_device_rule_opens_the_way_to_its_driver(scene, program, rule):
    config = 'devices:\n  - match: "*"\n    sandbox:\n      %s\n' % rule
    results = scene(system=True, config=config).intrude(program)
    assert results["ask a device for what no rule names"]
    assert results["type into a terminal"] == ("all" in rule)


@root_only
def test_without_a_cache_kernels_run_from_the_scratch_space(program, tmp_path):
    (tmp_path / "file").write_text("in the way\n")
    with divvytest.Daemon(system=True, env={"DIVVY_CACHE": str(tmp_path / "file")}) as daemon:
        done = daemon.run([program("compute"), "1", "0"])
        assert done.returncode == 0, done.stderr
        daemon.await_log("every program is compiled anew")


@root_only
def test_tenants_have_caches_and_users_of_their_own(program, tmp_path):
    os.chmod(tmp_path, 0o755)
    caches = tmp_path / "caches"
    with divvytest.Daemon(system=True, env={"DIVVY_CACHE": str(caches)}) as daemon:
        for uid in (NOBODY, 1234, 1234):
            done = daemon.run([program("compute"), "1", "0"], user=uid, group=uid, extra_groups=[])
            assert done.returncode == 0, done.stderr
    names = {path.name.split("-", 1)[1]: path.stat() for path in caches.iterdir()}
    assert set(names) == {"nobody.65534", "uid%3a1234.1234", "probe"}
    owners = {info.st_uid for info in names.values()}
    assert len(owners) == 3 and all(owner in WORKER_UIDS for owner in owners)
    assert all(info.st_mode & 0o777 == 0o700 for info in names.values())
    assert all(any(path.rglob("*.so")) for path in caches.iterdir() if "probe" not in path.name)


@root_only
@pytest.mark.parametrize("user", [None, NOBODY], ids=["root", "nobody"])
def test_compiled_kernels_stay_within_their_limit(program, tmp_path, user):
    """The oldest go first, and nothing but the directory's own files goes."""
    if user and not readable_by_nobody(divvytest.binary("divvyd")):
        pytest.skip("the build tree is not for everybody")
    for directory in (tmp_path.parent.parent, tmp_path.parent, tmp_path):
        os.chmod(directory, 0o777)
    outside = tmp_path / "outside"
    outside.write_bytes(bytes(1 << 20))
    with divvytest.Daemon("cache-size: 4MiB\n", user=user,
                          env={"DIVVY_CACHE": str(tmp_path / "c")}) as daemon:
        tenant = daemon.popen([program("compute"), "1", "60000"], stdout=subprocess.PIPE)
        assert tenant.stdout.readline() == "ready\n"
        cache = next(path for path in (tmp_path / "c").iterdir() if "user" in path.name)
        for number in range(8):
            made = cache / "a" / ("%d" % number)
            made.parent.mkdir(exist_ok=True)
            made.write_bytes(bytes(1 << 20))
            os.utime(made, (number, number))
            for path in (made.parent, made):
                os.chown(path, cache.stat().st_uid, cache.stat().st_gid)
        (cache / "a" / "link").symlink_to(outside)
        (cache / "up").symlink_to("..")

        def size():
            total = 0
            for path in cache.rglob("*"):
                with contextlib.suppress(FileNotFoundError):  # it has just been removed
                    total += path.lstat().st_blocks * 512
            return total
        divvytest.wait_for(lambda: size() <= 4 << 20, 40, lambda: "still %d bytes" % size())
        assert (cache / "a" / "7").exists() and not (cache / "a" / "0").exists()
        assert outside.stat().st_size == 1 << 20
        tenant.kill()
        tenant.wait()
        tenant.stdout.close()


@pytest.mark.parametrize("relative", [False, True])
def test_a_program_includes_its_own_files(program, tmp_path, relative):
    """Read by the program's own process; the worker sees none of its files."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "first.h").write_text('#pragma once\n  # include "sub/second.h"\n'
                                      "#define VALUE (SECOND + OFFSET)\n")
    # guarded, and including itself, its twin and the first again
    for name in ("second", "third"):
        (tmp_path / "sub" / (name + ".h")).write_text(
            '#ifndef IN_%s\n#define IN_%s\n#include "../first.h"\n#include "third.h"\n'
            '#include "second.h"\n#include "third.h"\n#define %s 40\n#endif\n'
            % (name, name, name.upper()))
    command = [program("includes"), "." if relative else str(tmp_path)]
    bare = divvytest.run_bare(command, cwd=tmp_path)
    with divvytest.Daemon() as daemon:
        done = daemon.run(command, cwd=tmp_path)
        assert (done.stdout, done.returncode) == (bare.stdout, bare.returncode) == ("42\n", 0)
        (tmp_path / "first.h").write_text("#error not for you\n")
        done = daemon.run(command, cwd=tmp_path)
        assert done.returncode == 1 and "not for you" in done.stdout
        assert "first.h:1" in done.stdout


@pytest.mark.parametrize("text", [
    "#ifdef NEVER\n#include \"value.h\"\n#else\n#include \"value.h\"\n#endif\n",
    "#ifdef NEVER\n#include \"value.h\"\n#endif\n#include \"value.h\"\n#include \"value.h\"\n",
    "/* of old:\n#include \"gone.h\"\n*/\n#include \"value.h\"\n",
    "#include \"value.h\" /* that\n#include \"gone.h\"\n*/\n",
    "constant char quoted[] = \"/*\"; // /*\n#include \"value.h\"\n",
], ids=["either way", "not the first time", "in a comment", "before a comment", "after a quotation"])
def test_only_the_compiler_knows_what_is_included(program, tmp_path, text):
    (tmp_path / "first.h").write_text("#pragma once\n" + text)
    (tmp_path / "value.h").write_text("#pragma once\nconstant int value = 42;\n#define VALUE value\n")
    (tmp_path / "gone.h").write_text("*/ #error this is a comment's\n")
    command = [program("includes"), str(tmp_path)]
    bare = divvytest.run_bare(command)
    with divvytest.Daemon() as daemon:
        done = daemon.run(command)
        assert (done.stdout, done.returncode) == (bare.stdout, bare.returncode) == ("42\n", 0)


@root_only
@pytest.mark.parametrize("include", ['#include "%s/secret.h"', "#include <secret.h>"],
                         ids=["by path", "by directory"])
def test_a_program_includes_nobody_elses_files(program, tmp_path, include):
    """Its worker is started by root's daemon, which may read them."""
    if not readable_by_nobody(divvytest.binary("divvyd")):
        pytest.skip("the build tree is not for everybody")
    for directory in (tmp_path.parent.parent, tmp_path.parent, tmp_path):
        os.chmod(directory, 0o755)
    (tmp_path / "secret.h").write_text("#define VALUE 1234567\n#warning the secret\n")
    (tmp_path / "first.h").write_text(include.replace("%s", str(tmp_path)) + "\n")
    command = [program("includes"), str(tmp_path)]
    with divvytest.Daemon(system=True) as daemon:
        def build():
            return daemon.run(command, user=NOBODY, group=NOBODY, extra_groups=[])
        done = build()
        assert (done.stdout, done.returncode) == ("1234567\n", 0), "while it may be read"
        os.chmod(tmp_path / "secret.h", 0o600)
        done = build()
        assert done.returncode == 1 and "secret.h" in done.stdout, done.stdout
        assert "the secret" not in done.stdout and "1234567" not in done.stdout


def impossible(config, **kwargs):
    """A daemon of root's for which the kernel makes no namespaces."""
    daemon = divvytest.Daemon(config, **kwargs)
    wrap(daemon, "exec setpriv --bounding-set -sys_admin $DIVVYD\n")
    return daemon


def test_root_of_a_namespace_with_one_user_is_a_user(program):
    """It can become no other user, and has only one user's rights."""
    daemon = divvytest.Daemon("sandbox: yes\n")
    wrap(daemon, "exec unshare --user --map-root-user $DIVVYD\n")
    with daemon:
        done = daemon.run([program("compute"), "1", "0"])
        assert done.returncode == 0, done.stderr


@root_only
@pytest.mark.parametrize("system", [True, False], ids=["system", "user"])
def test_a_sandbox_that_cannot_be_is_said(program, system):
    with impossible("sandbox: if-possible\nallow-unsandboxed-workers: yes\n", system=system) as daemon:
        done = daemon.run([program("compute"), "1", "0"])
        assert done.returncode == 0, done.stderr
        daemon.await_log("WITHOUT a sandbox")


@root_only
def test_no_worker_without_the_sandbox_that_is_demanded(program):
    with impossible("sandbox: yes\n") as daemon:
        done = daemon.run([program("compute"), "1", "0"])
        assert done.returncode != 0
        daemon.await_log("workers cannot be sandboxed: ")
