"""Where the blocks of the documents are run: a shell for each page, on a machine that looks as the page assumes.

The shell has mounts and processes of its own. /etc, /usr and /var are copies that nothing outside sees, so a block may
make users, move drivers and write configurations. Nothing of it is left in the end.

    tree      a source tree that has been built, as README.md and the tutorial assume
    machine   divvy is installed, and divvyd runs as the system's daemon, as the operator's guide assumes

There is no service manager here: `systemctl` is a script that starts, stops and restarts divvyd as the unit does.
"""

import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time

import divvytest
import pages

BLOCK_S = 240
SCREEN_S = 30
COMPUTES_S = 60

SETUP = r"""
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$STAGE/layers"
for part in etc usr var; do
    mkdir -p "$STAGE/layers/$part/upper" "$STAGE/layers/$part/work"
    layer=$STAGE/layers/$part
    mount -t overlay overlay -o "lowerdir=/$part,upperdir=$layer/upper,workdir=$layer/work" "/$part"
done
mount -t tmpfs -o mode=755 tmpfs /run
"""

# What `ninja install` and the unit do, as far as pages can tell.
INSTALL = r"""
rm -rf /etc/divvy /var/lib/divvy /var/cache/divvy
ln -sf "$BUILD/src/cli/divvy" /usr/bin/divvy
ln -sf "$BUILD/src/sim/divvy-sim" /usr/bin/divvy-sim
ln -sf "$BUILD/src/arbiter/divvyd" /usr/sbin/divvyd
install -D -m 644 "$BUILD/src/client/opencl/vendors/divvy.icd" /usr/share/divvy/vendors/divvy.icd
install -D -m 644 "$REPOSITORY/integration/divvy.yaml" /etc/divvy/divvy.yaml
install -m 644 /usr/share/divvy/vendors/divvy.icd /etc/OpenCL/vendors/divvy.icd
mkdir -p /var/lib/prometheus/node-exporter
for group in ml render; do groupadd -f "$group"; done
for user in alice web guest; do id "$user" >/dev/null 2>&1 || useradd "$user"; done
gpasswd -a guest render
install -m 755 "$STAGE/systemctl" /usr/local/bin/systemctl
systemctl start divvyd
"""

SYSTEMCTL = r"""#!/bin/bash
# Stands for systemd: does to divvyd what its unit says.
pid() { pgrep -x divvyd | head -1; }
ended() { for _ in $(seq 100); do [ -n "$(pid)" ] || return 0; sleep 0.1; done; echo "divvyd does not end"; exit 1; }
start() {
    [ -z "$(pid)" ] || return 0
    STATE_DIRECTORY=/var/lib/divvy setsid divvyd </dev/null >>/var/log/divvyd.log 2>&1 &
    for _ in $(seq 200); do divvy version 2>/dev/null | grep -q 'divvyd .*[0-9]' && return 0; sleep 0.1; done
    tail /var/log/divvyd.log
    exit 1
}
action=$1
shift
case "$action $*" in
"daemon-reload "*) ;;
"reload "*divvyd*) kill -HUP "$(pid)" ;;
"restart "*divvyd*) [ -z "$(pid)" ] || kill -USR1 "$(pid)"; ended; start ;;
"start "*divvyd* | "enable --now "*divvyd*) start ;;
"stop "*divvyd* | "disable --now "*divvyd*) [ -z "$(pid)" ] || kill -TERM "$(pid)"; ended ;;
"status "*divvyd*) [ -n "$(pid)" ] ;;
*) echo "systemctl of the stage does not know: $action $*" >&2; exit 1 ;;
esac
"""


# The packages have to be here already: this says which are not.
APT = r"""#!/bin/bash
[ "$1" = install ] || exit 0
shift
for word in "$@"; do
    case $word in -*) ;; *) dpkg-query -W "$word" >/dev/null || exit 1 ;; esac
done
"""


class Stage:
    """A shell that runs blocks one after another. Use it as a context manager."""

    def __init__(self, kind):
        self.kind = kind
        self.home = tempfile.mkdtemp(prefix="dv-docs-", dir="/tmp")
        os.chmod(self.home, 0o755)
        self.count = 0
        self.process = None

    def __enter__(self):
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_):
        self._close()

    def _open(self):
        for name in ("layers", "work", "run", "bin", "tmp"):
            os.mkdir(os.path.join(self.home, name))
        self._write("systemctl", SYSTEMCTL)
        self._write("bin/apt-get", APT)
        self._make_programs()
        env = {key: value for key, value in os.environ.items()
               if not key.startswith(("DIVVY_", "OCL_ICD_", "OPENCL_", "XDG_"))}
        env.update(STAGE=self.home, BUILD=divvytest.build_dir(), REPOSITORY=pages.REPOSITORY, HOME=self.home,
                   TMPDIR=os.path.join(self.home, "tmp"),
                   XDG_RUNTIME_DIR=os.path.join(self.home, "run"), POCL_MEMORY_LIMIT="4", POCL_MAX_PTHREAD_COUNT="1",
                   EDITOR="true", COLUMNS="80", LC_ALL="C.UTF-8",
                   # as if the lease library were installed
                   PKG_CONFIG_PATH=os.path.join(divvytest.build_dir(), "meson-uninstalled"),
                   LD_LIBRARY_PATH=os.path.join(divvytest.build_dir(), "src/lease"),
                   CPATH=os.path.join(pages.REPOSITORY, "include"),
                   PATH="%s/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" % self.home)
        os.chmod(env["XDG_RUNTIME_DIR"], 0o700)
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "--noprofile", "--norc"],
            env=env, cwd=os.path.join(self.home, "work"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True)
        self.run(SETUP)
        if self.kind == "machine":
            self.run(INSTALL)
        else:
            self.run('cd "$STAGE/tree"')

    def _write(self, name, script):
        path = os.path.join(self.home, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(script)
        os.chmod(path, 0o755)

    def _make_programs(self):
        """Programs that pages speak of, and the source tree with its build."""
        busy = os.path.join(self.home, "bin", "busy")
        subprocess.run(["cc", "-O1", "-o", busy, os.path.join(pages.REPOSITORY, "examples/busy.c"), "-lOpenCL"],
                       check=True)
        for place in ("bin/hashcat", "work/serve", "work/train"):
            self._write(place, "#!/bin/sh\nexec %s 0.5\n" % busy)
        for name in ("divvy", "divvyd", "divvy-sim"):
            os.symlink(divvytest.binary(name), os.path.join(self.home, "bin", name))
        tree = os.path.join(self.home, "tree")
        os.mkdir(tree)
        listed = subprocess.run(["git", "-C", pages.REPOSITORY, "ls-files"], capture_output=True, text=True,
                                check=True).stdout.splitlines()
        for name in {path.split("/")[0] for path in listed}:
            os.symlink(os.path.join(pages.REPOSITORY, name), os.path.join(tree, name))
        os.symlink(divvytest.build_dir(), os.path.join(tree, "build"))

    def _close(self):
        if self.process is not None:
            divvytest.kill_group(self.process)   # `unshare` takes all processes of the stage with it
            self.process.stdin.close()
            self.process.stdout.close()
        shutil.rmtree(self.home, ignore_errors=True)

    # ---- commands ----

    def run(self, text, status=0, within=BLOCK_S):
        """Runs lines in the shell of the page. Each has to succeed, if the status is 0. Returns what they print."""
        self.count += 1
        script, out = (os.path.join(self.home, "%d.%s" % (self.count, kind)) for kind in ("sh", "out"))
        with open(script, "w", encoding="utf-8") as file:
            file.write(text)
        begin, end = ("set -e", "set +e") if status == 0 else ("", "")
        self.process.stdin.write("%s\n. %s >%s 2>&1 </dev/null\ncode=$?\n%s\necho done $code\n"
                                 % (begin, script, out, end))
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], within)
        said = self.process.stdout.readline() if ready else ""
        with open(out, encoding="utf-8", errors="replace") as file:
            printed = file.read()
        assert ready, "no end after %d s:\n%s\n--- printed\n%s" % (within, text, printed)
        assert said == "done %d\n" % status, "it failed (%s):\n%s\n--- printed\n%s%s" % (
            said.strip() or "the shell ended", text, printed, self._log())
        return printed

    def _log(self):
        try:
            with open("/proc/%d/root/var/log/divvyd.log" % self._inner(), encoding="utf-8", errors="replace") as file:
                return "--- log of divvyd\n" + file.read()[-4000:]
        except (OSError, IndexError):
            return ""

    def _inner(self):
        return divvytest.descendants(self.process.pid)[0]

    def stays(self, text):
        """The same for lines whose last command goes on."""
        self.run("{\n%s\n} &\nsleep 4\nkill -0 $!\n" % text)

    def screen(self, command):
        """Runs a command in a terminal, looks at its picture, and presses q."""
        tmux = "tmux -S $STAGE/tmux -f /dev/null"
        self.run("%s new-session -d -x 80 -y 24 '%s; echo code $?; sleep 60'" % (tmux, command.strip()))

        def until(pattern):
            deadline = time.monotonic() + SCREEN_S
            while True:
                picture = self.run("%s capture-pane -p" % tmux)
                if re.search(pattern, picture, re.M):
                    return picture
                assert time.monotonic() < deadline, "the screen does not show %s:\n%s" % (pattern, picture)
                time.sleep(0.3)
        picture = until("^DEVICE / TENANT")
        self.run("%s send-keys q" % tmux)
        until("^code 0")
        self.run("%s kill-server" % tmux)
        return picture

    # ---- what blocks speak of ----

    def answer(self, *arguments):
        return json.loads(self.run("divvy %s --json" % " ".join(arguments)))

    def running(self, tenants):
        """Starts programs of tenants: of a member of the group of that name, or else of the user."""
        for name in tenants.split():
            if any(session["tenant"] == name for session in self.answer("ps")["sessions"]):
                continue
            user = name + "-1" if self.run("getent group %s || true" % name) and not \
                self.run("getent passwd %s || true" % name) else name
            self.run("id %s >/dev/null 2>&1 || useradd %s %s" % (user, "-G " + name if user != name else "", user))
            self.run("(cd / && exec setpriv --reuid=%s --regid=%s --init-groups env HOME=/tmp divvy run -- busy 900) &"
                     % (user, user))
            divvytest.wait_for(lambda: any(session["tenant"] == name and session["used_s"] > 0.5
                                           for session in self.answer("ps")["sessions"]), COMPUTES_S,
                               "no program of %s computes" % name)

    def stand_in(self, kind):
        """What a word of a block stands for."""
        if kind == "SESSION":
            if self.kind == "machine":
                self.running("alice")
            return str(self.answer("ps")["sessions"][-1]["id"])
        if kind == "DIVVYD":
            return self.run("pgrep -x divvyd | head -1").strip()
        if kind == "PROCESS":
            return "self"
        return kind

    def configure(self, text):
        """Puts a part of a configuration into that of the stage's daemon, in place of the keys that it has."""
        import yaml   # Debian's; only pages with configurations need it
        path = "/proc/%d/root/etc/divvy/divvy.yaml" % self._inner()
        with open(path, encoding="utf-8") as file:
            whole = yaml.safe_load(file) or {}
        whole.update(yaml.safe_load(text))
        with open(path, "w", encoding="utf-8") as file:
            yaml.safe_dump(whole, file, sort_keys=False)
