"""divvy top, on a real terminal (tmux) and as plain text."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

import pytest

import cannedanswers
import divvytest

ANN, BEN = 20001, 20002
CONFIG = """
tenants-see-own: yes
tenants:
  - user: %d
    name: ann
    request: 60%%
  - user: %d
    name: ben
    limit: 80%%
""" % (ANN, BEN)


class Terminal:
    """A program in a terminal of 80 columns and 24 lines."""

    def __init__(self, daemon, *arguments, env=None, uid=0, columns=80, term=None):
        self.socket = tempfile.mktemp(prefix="dv-tmux-", dir="/tmp")   # a server that ends still answers at its own
        self.identity = divvytest.identity(uid)
        words = " ".join([divvytest.binary("divvy"), *arguments])
        if term:   # tmux sets its own in the environment
            words = "TERM=%s %s" % (term, words)
        self.tmux("new-session", "-d", "-x", str(columns), "-y", "24", words + "; echo code $?; sleep 600",
                  env={**os.environ, **daemon.env(), "LC_ALL": "C.UTF-8", "TERM": "xterm", **(env or {})})

    def tmux(self, *arguments, env=None):
        return subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", *arguments], env=env or os.environ,
                              capture_output=True, text=True, check=True, **self.identity).stdout

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def screen(self, colours=False):
        return self.tmux("capture-pane", "-p", *(["-e"] if colours else []))

    def until(self, pattern, within=15):
        def seen():
            text = self.screen()
            return text if re.search(pattern, text, re.M) else None
        return divvytest.wait_for(seen, within, "the screen does not show " + pattern)

    def close(self):
        self.tmux("kill-server")


@pytest.fixture
def machine(program):
    if os.geteuid() != 0 or not shutil.which("tmux"):
        pytest.skip("needs to become other users, and tmux")
    with divvytest.Daemon(CONFIG, env={"POCL_MAX_PTHREAD_COUNT": "1"}, system=True) as daemon, \
            divvytest.BusyPrograms(daemon, program("turns")) as programs:
        daemon.compile_kernels(program("turns"))
        daemon.begin = programs.session
        yield daemon


@pytest.fixture
def terminal(machine):
    opened = []

    def start(*arguments, **options):
        opened.append(Terminal(machine, *arguments, **options))
        return opened[-1]
    yield start
    for one in opened:
        one.close()


def test_plain_text_for_scripts(machine):
    session = machine.begin(ANN)
    machine.begin(BEN)
    time.sleep(1)
    lines = machine.cli("top", "-b", "-n", "2", "-d", "0.3").splitlines()
    pictures = [i for i, line in enumerate(lines) if line.startswith("divvy ")]
    assert len(pictures) == 2 and "1 device, 2 sessions" in lines[pictures[1]]
    rows = lines[pictures[1] + 2:]
    assert rows[0].startswith("0 ") and "mem [" in rows[0]
    ann = next(row for row in rows if row.startswith("  ann "))
    bar = ann[ann.index("["):ann.index("]") + 1]
    assert "R" in bar and len(bar) == 14
    assert "L" in next(row for row in rows if row.startswith("  ben "))
    assert any(row.startswith("    %d turns 20000" % session) for row in rows)
    assert all(len(line) <= 80 for line in lines)
    assert not [line for line in lines if "\x1b" in line]


def test_the_screen_follows(machine, terminal):
    top = terminal("top", "-d", "0.3")
    top.until(r"^divvy  .*0 sessions")
    session = machine.begin(ANN)
    picture = top.until(r"^    %d turns" % session)
    assert all(len(line) <= 80 for line in picture.splitlines())
    assert re.search(r"^  ann +\d+% \[", picture, re.M)
    machine.begin(BEN)
    top.until(r"2 sessions")
    top.keys("q")
    top.until(r"^code 0")


def test_keys(machine, terminal):
    session = machine.begin(ANN)
    other = machine.begin(BEN)
    top = terminal("top", "-d", "0.3")
    top.until(r"^    %d turns" % session)
    top.keys("s")
    top.until(r"by memory")
    top.keys("t")
    divvytest.wait_for(lambda: "turns" not in top.screen(), 10, "sessions are not hidden")
    top.keys("t")
    top.until(r"^    %d turns" % other)
    top.keys("/")
    top.keys("ann", "Enter")
    divvytest.wait_for(lambda: "  ben " not in top.screen(), 10, "ben is not filtered out")
    top.keys("j", "j")
    top.keys("e")
    top.until(r"^session %d: .*turns" % session)
    top.keys("Space")
    top.until(r"^divvy  ")
    top.keys("l")
    top.until(r"limit, such as 40%, of tenant ann")
    top.keys("70%", "Enter")
    top.until(r"limit of tenant ann is 70% now")
    tenant = json.loads(machine.cli("tenants", "--json"))["tenants"][0]
    assert tenant["devices"][0]["limit_ppm"] == 700_000
    top.keys("c")
    top.until(r"class .*of tenant ann")
    top.keys("nonsense", "Enter")
    top.until(r"class is latency, standard, batch or idle")
    top.keys("c")
    top.until(r"class .*of tenant ann")
    top.keys("batch", "Enter")
    top.until(r"class of tenant ann is batch now")
    tenant = json.loads(machine.cli("tenants", "--json"))["tenants"][0]
    assert (tenant["name"], tenant["devices"][0]["class"]) == ("ann", "batch")
    top.keys("x")
    top.until(r"end session %d" % session)
    top.keys("y", "Enter")
    divvytest.wait_for(lambda: [s["id"] for s in machine.sessions()] == [other], 10, "it is not ended")


def test_without_colours(machine, terminal):
    machine.begin(ANN)
    plain = terminal("top", "-d", "0.3", env={"NO_COLOR": "1"})
    plain.until(r"^    \d+ turns")
    assert not re.search(r"\x1b\[3[0-7]m", plain.screen(colours=True))


def test_a_tenant_sees_its_own_and_the_device(machine, terminal):
    machine.begin(ANN)
    machine.begin(BEN)
    top = terminal("top", "-d", "0.3", uid=BEN)
    text = top.until(r"^  ben ")
    assert "2 sessions" in text.splitlines()[0] and "ann" not in text
    lines = subprocess.run([divvytest.binary("divvy"), "top", "-b", "-n", "1"], env=machine.env(), capture_output=True,
                           text=True, **divvytest.identity(BEN)).stdout
    assert "  ben " in lines and "ann" not in lines


def test_users_leave_places_for_operators(machine):
    """Each user may watch twice; together they do not take all places."""
    socket = os.path.join(machine.dir, "control", "control.sock")
    command = ["curl", "-sN", "--unix-socket", socket, "http://divvyd/v1/watch?interval_ms=60000"]
    watchers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **divvytest.identity(uid))
                for uid in range(20100, 20108) for _ in range(2)]
    lines = [json.loads(watcher.stdout.readline()) for watcher in watchers]
    assert sum("devices" in line for line in lines) == 12
    assert machine.cli("top", "-b", "-n", "1")
    for watcher in watchers:
        watcher.kill()
        watcher.communicate()


def test_watchers_lose_their_rights_with_a_reload(machine):
    socket = os.path.join(machine.dir, "control", "control.sock")
    command = ["curl", "-sN", "--unix-socket", socket, "http://divvyd/v1/watch?interval_ms=60000"]
    watchers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **divvytest.identity(uid))
                for uid in (BEN, 0)]
    for watcher in watchers:
        assert json.loads(watcher.stdout.readline())["devices"]
    with open(os.path.join(machine.home, "config.yaml"), "w") as file:
        file.write(CONFIG.replace("tenants-see-own: yes", "tenants-see-own: no"))
    machine.cli("reload")
    watchers[0].communicate(timeout=10)
    assert watchers[1].poll() is None
    watchers[1].kill()
    watchers[1].communicate()


def test_a_daemon_that_hangs_is_an_error(machine, terminal):
    command = [divvytest.binary("divvy"), "top", "-b", "-d", "0.3"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=machine.env(), **pipes) as late:
        for _ in range(2):
            late.stdout.readline()
        screen = terminal("top", "-d", "0.3")
        screen.until(r"^divvy  ")
        os.kill(machine.pid, signal.SIGSTOP)
        try:
            done = subprocess.run([*command, "-n", "1"], env=machine.env(), capture_output=True, text=True, timeout=20)
            assert done.returncode == 1 and "has not answered for 3" in done.stderr and "restart" in done.stderr
            assert "has not answered for 3" in late.communicate(timeout=20)[1]
            assert late.returncode == 1
            screen.until(r"^code 1", 20)
        finally:
            os.kill(machine.pid, signal.SIGCONT)


def picture(time_s, **more):
    """What a daemon with two devices sends, and what belongs to a session on both."""
    shared = {"share_1s_ppm": 1000000, "state": "waiting", "state_s": 1.0, "placed_bytes": 1 << 20}
    return {"time_s": time_s,
            "devices": [{"index": i, "name": "card", "sessions": 1, "waiting": 1, "swap": True, "busy_1s_ppm": 1000000,
                         "memory_bytes": 1 << 30, "memory_used_bytes": 1 << 20} for i in range(2)],
            "tenants": [{"name": "ann", "devices": [
                {"index": i, "sessions": 1, "waiting": 1, "share_1s_ppm": 1000000, "memory_reserved_bytes": 2 << 20,
                 "memory_placed_bytes": 1 << 20} for i in range(2)]}],
            "sessions": [{"id": 7, "tenant": "ann", "command": "turns", "memory_bytes": 4 << 20,
                          "devices": [{"index": i, **shared} for i in range(2)]}], **more}


def test_a_session_on_two_devices():
    with cannedanswers.CannedAnswers({"/v1/watch": [picture(1)]}) as daemon:
        done = subprocess.run([divvytest.binary("divvy"), "top", "-b", "-n", "1"], env=daemon.env(), timeout=20,
                              capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert "2 devices, 1 session, 1 waiting" in lines[0]
    rows = [line for line in lines if line.startswith("    7 turns")]
    assert len(rows) == 2 and all(re.search(r"1.0M +- waiting", row) for row in rows), rows
    assert all(re.search(r"1.0M +1.0M ", line) for line in lines if line.startswith("  ann")), "of 2 MiB allocated"


@pytest.mark.parametrize("step, passed", [(0.1, 3), (0.5, 15), (1.0, 30)])
def test_the_last_minute_has_sixty_seconds(step, passed):
    """Thirty pictures, of which each tells the share of one second."""
    with cannedanswers.CannedAnswers({"/v1/watch": [picture(100 + i * step) for i in range(30)]}) as daemon:
        daemon.INTERVAL_S = 0.02
        done = subprocess.run([divvytest.binary("divvy"), "top", "-b", "-n", "30"], timeout=30, text=True,
                              capture_output=True, check=True, env={**daemon.env(), "COLUMNS": "200"})
    last = [line for line in done.stdout.splitlines() if line.startswith("  ann")][-1]
    minute = re.search("█*$", last).group()
    assert abs(len(minute) - (7 + 30) * passed / 60) <= 3, last


BECAUSE = "session 9 of tenant ben has used the device for 6.2 ms; tenants that wait: 1"


def waiting(because=BECAUSE):
    there = {"index": 0, "state": "waiting", "state_s": 1.0, "because": because}
    return picture(1, sessions=[{"id": 7, "tenant": "ann", "command": "turns", "devices": [there]}])


@pytest.mark.parametrize("columns, shown", [(80, None), (119, None), (120, 29), (160, 59), (200, len(BECAUSE))])
def test_wide_screens_say_why_a_session_waits(columns, shown):
    with cannedanswers.CannedAnswers({"/v1/watch": [waiting()]}) as daemon:
        done = subprocess.run([divvytest.binary("divvy"), "top", "-b", "-n", "1"], timeout=20, text=True,
                              capture_output=True, check=True, env={**daemon.env(), "COLUMNS": str(columns)})
    heading = done.stdout.splitlines()[1]
    row = next(line for line in done.stdout.splitlines() if line.startswith("    7 turns"))
    assert all(len(line) <= columns for line in done.stdout.splitlines())
    if shown is None:
        assert "BECAUSE" not in heading and "session 9" not in row
    else:
        assert row[heading.index("BECAUSE"):] == BECAUSE[:shown].rstrip()


def test_the_last_line_says_why_the_selected_session_waits(canned):
    top, _ = canned({"/v1/watch": [waiting()]})
    top.until("q quit")
    top.keys("j", "j")
    top.until("^because session 9 of tenant ben has used")
    top.keys("k")
    top.until("q quit")


def test_watchers_hear_why_sessions_wait(machine):
    """Of others' tenants only operators hear."""
    machine.begin(ANN)
    machine.begin(BEN)

    def reasons(uid):
        command = ["curl", "-sN", "--max-time", "3", "--unix-socket", machine.dir + "/control/control.sock",
                   "http://divvyd/v1/watch?interval_ms=100"]
        lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, **divvytest.identity(uid)).stdout
        devices = [device for line in lines.splitlines()[:-1] for session in json.loads(line)["sessions"]
                   for device in session["devices"]]
        assert all(("because" in device) == device["state"].startswith("waiting") for device in devices)
        return {device["because"] for device in devices if "because" in device}
    assert any("of tenant ben has used the device" in text for text in reasons(0))
    own = reasons(ANN)
    assert any("another tenant has used the device" in text for text in own)
    assert not any("ben" in text for text in own)


LONG = "machine.slice/" + "department-of-physics/" * 2 + "job-%d"


@pytest.fixture
def canned():
    """A terminal on answers that are given."""
    opened = []

    def start(answers, *arguments, **options):
        daemon = cannedanswers.CannedAnswers(answers)
        daemon.__enter__()
        opened.append((Terminal(daemon, "top", "-d", "0.1", *arguments, **options), daemon))
        return opened[-1]
    yield start
    for top, daemon in opened:
        top.close()
        daemon.__exit__()


def of_long_names(order):
    """Tenants whose names differ at the end only, in an order."""
    tenants = [{"name": LONG % number, "devices": [{"index": 0, "sessions": 1, "share_1s_ppm": 10 ** 5 * (9 - place)}]}
               for place, number in enumerate(order)]
    return picture(1, tenants=tenants, sessions=[], devices=[{"index": 0, "name": "card", "sessions": 2}])


def test_tenants_with_long_names_are_told_apart(canned):
    share = "/v1/tenants/%s/share" % urllib.parse.quote(LONG % 2, safe="")
    pictures = [of_long_names((1, 2))]
    top, daemon = canned({"/v1/watch": pictures, share: {}}, columns=200)
    top.until("job-2")
    top.keys("j", "j")
    time.sleep(0.5)
    top.keys("l")
    top.until(r"limit, such as 40%, of tenant .*job-2:")
    pictures.append(of_long_names((2, 1)))
    top.until(r"job-2 (.|\n)*job-1 ")
    top.keys("70%", "Enter")
    divvytest.wait_for(lambda: [p for m, p in daemon.asked if m == "POST" and p.startswith(share)], 10, daemon.asked)
    top.until("job-2 is 70% now")


def test_prompts_show_the_ends_of_long_names(canned):
    top, _ = canned({"/v1/watch": [of_long_names((1, 2))]})
    top.until("card")
    top.keys("j", "j", "c")
    top.until(r"class .* of tenant \.\.\.\S*job-2:$")
    top.keys("x" * 60)
    top.until(r"^\.\.\..*: x{31}$")


@pytest.mark.parametrize("keys", ["l", "h", "/"])
def test_prompts_stop_nothing(canned, keys):
    pictures = [picture(1)]
    top, daemon = canned({"/v1/watch": pictures})
    top.until("card")
    top.keys("j", keys)
    top.until("press a key" if keys == "h" else "limit, such|show tenants")
    if keys != "h":
        pictures.append({**picture(2), "devices": [{"index": 0, "name": "another card"}]})
        top.until("another card")
        top.keys("ü", "BSpace", "4")
        top.until(": 4 *$")
        top.keys("Escape")
        top.until("q quit")
        top.keys(keys)
        top.until("limit, such|show tenants")
    top.keys("C-c")
    top.until(r"^code 0")


def test_a_prompt_notices_that_the_daemon_hangs(machine, terminal):
    top = terminal("top", "-d", "0.3")
    top.until(r"^divvy  ")
    top.keys("/")
    top.until("show tenants")
    os.kill(machine.pid, signal.SIGSTOP)
    try:
        top.until(r"^code 1", 20)
    finally:
        os.kill(machine.pid, signal.SIGCONT)


def test_explanations_are_wrapped(canned):
    because = " ".join("word%d" % i for i in range(40))
    answers = {"/v1/watch": [picture(1)], "/v1/sessions/7/explain": {
        "command": "turns", "user": "ann", "tenant": "ann",
        "devices": [{"name": "card", "state": "waiting", "state_s": 1.0, "because": because}]}}
    top, _ = canned(answers)
    top.until("7 turns")
    top.keys("j", "j", "e")
    text = top.until("word39")
    assert "because word0" in text and because.split() == re.findall(r"word\d+", text)


def test_a_terminal_without_colours(canned):
    """What is selected is still seen."""
    colour, reverse = r"\x1b\[(\d+;)*3[0-7]m", r"\x1b\[(\d+;)*7m"
    shown = {}
    for term in ("screen", "vt100"):
        top, _ = canned({"/v1/watch": [picture(1)]}, term=term)
        text = top.until("7 turns")
        assert "1.0M" in text and "waiting" in text and "q quit" in text
        shown[term] = top.screen(colours=True)
        top.keys("q")
        top.until(r"^code 0")
    assert re.search(colour, shown["screen"]) and not re.search(colour, shown["vt100"])
    assert all(re.search(reverse, text) for text in shown.values())


def of_figures():
    """Three tenants, with a session each, which differ in all by which they can be sorted."""
    tenants, sessions = [], []
    for number, (name, share, memory, used, command) in enumerate([
            ("ann", 100000, 20 << 20, 10, "train"), ("ben", 500000, 10 << 20, 20, "render"),
            ("cleo", 300000, 30 << 20, 30, "solve")]):
        there = {"index": 0, "share_1s_ppm": share, "used_s": used}
        tenants.append({"name": name, "devices": [{**there, "sessions": 1, "memory_reserved_bytes": memory}]})
        sessions.append({"id": 7 + number, "tenant": name, "command": command, "memory_bytes": memory,
                         "devices": [{**there, "state": "idle", "state_s": 1.0}]})
    return picture(1, tenants=tenants, sessions=sessions, devices=[{"index": 0, "name": "card", "sessions": 3}])


def batch(*options, code=0):
    """The first line and those of tenants and sessions."""
    with cannedanswers.CannedAnswers({"/v1/watch": [of_figures()]}) as daemon:
        done = subprocess.run([divvytest.binary("divvy"), "top", "-b", "-n", "1", *options], env=daemon.env(),
                              timeout=20, capture_output=True, text=True)
    assert done.returncode == code, done
    if code:
        return done.stderr
    lines = done.stdout.splitlines()
    return lines[0], [line.split()[:2] for line in lines[3:]]


@pytest.mark.parametrize("column, order", [("share", "ben cleo ann"), ("memory", "cleo ann ben"),
                                           ("used", "cleo ben ann"), ("name", "ann ben cleo")])
def test_sorted_from_the_beginning(canned, column, order):
    title, rows = batch("--sort", column)
    assert title.endswith(" by " + column)
    assert [row[0] for row in rows if not row[0].isdigit()] == order.split()
    top, _ = canned({"/v1/watch": [of_figures()]}, "--sort", column)
    names = re.findall(r"^  (ann|ben|cleo) ", top.until(r" by %s\b(.|\n)*solve" % column), re.M)
    assert names == order.split()


def test_share_is_the_usual_order():
    assert batch()[1] == batch("--sort", "share")[1]
    assert "--sort is share, memory, used or name, not 'colour'" in batch("--sort", "colour", code=2)


@pytest.mark.parametrize("text, left", [("BEN", "ben 8"), ("OLV", "cleo 9"), ("ann", "ann 7"), ("nobody", "")])
def test_filtered_from_the_beginning(canned, text, left):
    """By the names of tenants and by commands, in whatever case."""
    title, rows = batch("--filter", text)
    assert title.endswith(", filter " + text)
    assert [row[0] for row in rows] == left.split(), rows
    top, _ = canned({"/v1/watch": [of_figures()]}, "--filter", text)
    shown = top.until("filter %s(.|\n)*card" % text)
    assert re.findall(r"^ {2,4}(ann|ben|cleo|[789]) ", shown, re.M) == left.split()


def test_an_input_at_its_end_is_left_alone(canned):
    top, daemon = canned({"/v1/watch": [picture(1)]}, "</dev/null")
    top.until("card")
    time.sleep(0.5)
    shell = int(top.tmux("list-panes", "-F", "#{pane_pid}"))
    child, = [pid for pid in divvytest.descendants(shell) if divvytest.name_of(pid) == "divvy"]

    def used():
        return sum(int(field) for field in open("/proc/%d/stat" % child).read().rsplit(")", 1)[1].split()[11:13])
    before = used()
    time.sleep(2)
    assert used() - before < 50, "of 200 hundredths of a second"


def test_output_that_cannot_be_written_ends_it():
    with cannedanswers.CannedAnswers({"/v1/watch": [picture(1)]}) as daemon:
        command = [divvytest.binary("divvy"), "top", "-b", "-d", "0.1"]
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, env=daemon.env(), stdout=full, stderr=subprocess.PIPE, text=True, timeout=10)
        assert done.returncode == 1 and "cannot write the output: No space left" in done.stderr
        with subprocess.Popen(command, env=daemon.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              restore_signals=False) as top:   # SIGPIPE stays ignored
            top.stdout.readline()
            top.stdout.close()
            assert top.wait(timeout=10) == 1 and "Broken pipe" in top.stderr.read()


def test_watchers_are_bounded(machine):
    socket = os.path.join(machine.dir, "control", "control.sock")
    command = ["curl", "-sN", "--unix-socket", socket, "http://divvyd/v1/watch?interval_ms=100"]
    watchers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **divvytest.identity(BEN))
                for _ in range(2)]
    for watcher in watchers:
        assert json.loads(watcher.stdout.readline())["devices"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=20, **divvytest.identity(BEN))
    assert "too many callers watch" in refused.stdout
    own = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert all(json.loads(own.stdout.readline())["devices"] for _ in range(5))
    own.kill()
    own.communicate()
    for watcher in watchers:
        watcher.kill()
        watcher.communicate()
    divvytest.wait_for(lambda: "devices" in subprocess.run(
        [*command, "--max-time", "0.5"], capture_output=True, text=True, **divvytest.identity(BEN)).stdout, 10,
        "the places of closed connections are not free")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
