"""Changes while programs run: shares, policies, who may change what, and what users are told.

Work is counted by the commands that workers say they have finished: all tenants that are compared
run kernels of known length, so that it does not depend on divvyd's own accounts of device time."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

import divvytest

ANN, BEN = 20001, 20002
SHORT, LONG = 20000, 300000  # rounds of a loop: kernels 15 times as long
CONFIG = """
tenants-see-own: yes
tenants:
  - user: %d
    name: ann
    may-request: 60%%
    may-weight: 4
    may-class: latency
  - user: %d
    name: ben
""" % (ANN, BEN)


class Live:
    """A daemon with programs that keep its device busy until the test ends."""

    def __init__(self, daemon, turns):
        self.daemon = daemon
        self.turns = turns
        self.children = []

    def start(self, *options, rounds=SHORT, uid=0, env=None):
        """A program that is at work, and the number of its session."""
        child = subprocess.Popen(
            [divvytest.binary("divvy"), "run", *options, "--", self.turns, str(rounds), "600"],
            env={**self.daemon.env(), **(env or {})}, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, **divvytest.identity(uid))
        self.children.append(child)
        assert child.stdout.readline() == "ready\n"
        child.stdin.write("go\n")
        child.stdin.flush()
        return self.daemon.session_of(child.pid)["id"]

    def stop(self):
        for child in self.children:
            child.kill()
            child.communicate()

    def ask(self, *arguments, uid=0, code=0):
        """What `divvy ARGUMENTS` prints: its answer, or its complaint where one is expected."""
        done = subprocess.run([divvytest.binary("divvy"), *arguments], env=self.daemon.env(),
                              text=True, capture_output=True, timeout=60, **divvytest.identity(uid))
        assert done.returncode == code, "divvy %s: code %d\n%s%s" % (
            " ".join(arguments), done.returncode, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def on_device(self, tenant):
        """What `divvy tenants` says of a tenant on the first device."""
        tenants = json.loads(self.ask("tenants", "--json"))["tenants"]
        return next(t for t in tenants if t["name"] == tenant)["devices"][0]

    def work(self, seconds=2, enough=0):
        """Commands finished for each session from now on: in this many seconds, or longer on a busy machine, until
        each has enough of them."""
        def finished():
            return {s["id"]: s["commands"] for s in self.daemon.sessions()}
        before = finished()
        deadline = time.monotonic() + 20
        time.sleep(seconds)
        while True:
            done = {session: count - before[session] for session, count in finished().items()}
            if min(done.values()) >= enough or time.monotonic() > deadline:
                return done
            time.sleep(0.2)

    def assert_part(self, session, other, low, high, rounds=SHORT, other_rounds=SHORT):
        """Fails unless the first session's part of the work of both lies between."""
        def part():
            done = self.work(enough=40)
            mine, its = done[session] * rounds, done[other] * other_rounds
            return mine / (mine + its)
        divvytest.assert_median(part, low, high)


def share_of(device):
    return {key: device[key] for key in ("request_ppm", "limit_ppm", "weight", "class")}


@pytest.fixture
def others_can_run(program):
    if os.geteuid() != 0:
        pytest.skip("needs to become other users")
    try:
        subprocess.run([program("turns")], **divvytest.identity(ANN))
    except PermissionError:
        pytest.skip("other users cannot reach the build directory")


def live_daemon(program, **options):
    return divvytest.Daemon(env={"POCL_MAX_PTHREAD_COUNT": "1"}, **options)


@pytest.fixture
def machine(program, others_can_run):
    """The machine's daemon, with ann and ben as tenants."""
    with live_daemon(program, config_text=CONFIG, system=True) as daemon:
        daemon.compile_kernels(program("turns"), SHORT)
        live = Live(daemon, program("turns"))
        yield live
        live.stop()


@pytest.fixture
def own(program):
    """A user's own daemon, where each program is a tenant."""
    with live_daemon(program) as daemon:
        daemon.compile_kernels(program("turns"), SHORT)
        live = Live(daemon, program("turns"))
        yield live
        live.stop()


# ---------------------------------------------------------------------------- shares take effect

def test_weight_takes_effect_while_programs_run(machine):
    ann, ben = machine.start(uid=ANN), machine.start(uid=BEN)
    machine.assert_part(ann, ben, 0.4, 0.6)
    answer = machine.ask("set", "ann", "--weight", "3")
    assert answer.splitlines()[1].split()[:6] == ["ann", "0", "0%", "100%", "3", "standard"]
    machine.assert_part(ann, ben, 0.65, 0.85)
    answer = json.loads(machine.ask("set", str(ann), "--weight", "1", "--json"))
    assert answer["tenant"] == "ann" and answer["devices"][0]["weight"] == 1
    machine.assert_part(ann, ben, 0.4, 0.6)


def test_request_takes_effect(machine):
    ann, ben = machine.start(uid=ANN), machine.start(uid=BEN)
    machine.ask("set", "ben", "--request", "80%")
    machine.assert_part(ben, ann, 0.7, 0.9)
    assert machine.on_device("ben")["entitled_ppm"] == 800000

    def share_is_right():
        device = machine.on_device("ben")
        return abs(device["share_1s_ppm"] - 800000) < 60000 + device["error_bound_ppm"]
    divvytest.wait_for(share_is_right, 10, "the share that is told is another")


def test_limit_holds_a_lone_tenant_back(machine):
    ann = machine.start(uid=ANN)

    def limited_to_free():
        machine.ask("set", "ann", "--limit", "25%", "--device", "0")
        time.sleep(1)
        limited = machine.work(2)[ann]
        divvytest.wait_for(lambda: machine.on_device("ann")["share_1s_ppm"] < 300000, 10,
                           "the share that is told is above the limit")
        machine.ask("set", "ann", "--limit", "100%")
        time.sleep(0.5)
        return limited / machine.work(2)[ann]
    # Less on a machine that others use: time that they take from a kernel counts against the limit.
    divvytest.assert_median(limited_to_free, 0.08, 0.4)


def test_policy_changes_under_running_programs(machine):
    ann, ben = machine.start(uid=ANN), machine.start(uid=BEN, rounds=LONG)
    lengths = dict(rounds=SHORT, other_rounds=LONG)
    machine.assert_part(ann, ben, 0.4, 0.6, **lengths)
    answer = machine.ask("policy", "*", "fifo", "--slice", "200us")
    assert ": policy fifo, slices 200 us, 1 slot, 2 sessions" in answer
    machine.assert_part(ann, ben, 0, 0.3, **lengths)  # one kernel each in turn favours long ones
    answer = json.loads(machine.ask("policy", "0", "elastic", "--slice", "4", "--json"))
    assert (answer["policy"], answer["slice_ns"]) == ("elastic", 4000000)
    listed = machine.ask("devices", "-v").splitlines()[1].split()
    assert listed[-5:] == ["1", "4.0", "ms", "unknown", "unknown"] and "elastic" in listed
    machine.assert_part(ann, ben, 0.4, 0.6, **lengths)
    assert "slices learned" in machine.ask("policy", "0", "elastic", "--slice", "learned")


def test_a_policy_lasts_until_a_reload_or_the_end_of_divvyd():
    with divvytest.Daemon() as daemon:
        def policies():
            return [device["policy"] for device in json.loads(daemon.cli("devices", "--json"))["devices"]]

        def restart():
            daemon.stop()
            daemon.start()
        divvytest.wait_for(policies, 20, "no devices are found")
        for end in (lambda: daemon.cli("reload"), restart):
            daemon.cli("policy", "0", "fifo")
            assert policies() == ["fifo"]
            end()
            divvytest.wait_for(lambda: policies() == ["elastic"], 20, "the change stays")


def test_the_help_says_how_long_a_policy_lasts():
    said = subprocess.run([divvytest.binary("divvy"), "policy", "--help"], capture_output=True, text=True,
                          check=True).stdout
    lasts = re.search(r"The change lasts([^.;]*)", " ".join(said.split()))[1]
    assert re.search("reload|read again", lasts) and re.search("divvyd('s end| ends)|the end of divvyd", lasts), lasts


# ---------------------------------------------------------------------------- refusals

def test_request_that_does_not_fit_is_refused_with_its_holders(machine):
    machine.start(uid=ANN)
    machine.start(uid=BEN)
    machine.ask("set", "ann", "--request", "60%")
    before = share_of(machine.on_device("ben"))
    complaint = machine.ask("set", "ben", "--request", "50%", "--weight", "7", code=1)
    for words in ("request of 50%", "ann 60%", "at most 40%"):
        assert words in complaint
    assert share_of(machine.on_device("ben")) == before, "a refusal changes nothing"
    machine.ask("set", "ben", "--request", "40%")
    assert machine.on_device("ben")["request_ppm"] == 400000


def test_users_change_their_own_share_within_their_terms(machine):
    machine.start(uid=ANN)
    ben = machine.start(uid=BEN)

    # what ben may not have
    for option, value, words in (("--request", "10%", "may request at most 0%"),
                                 ("--weight", "2", "weight of at most 1"),
                                 ("--class", "latency", "may not run in class latency")):
        complaint = machine.ask("set", "ben", option, value, uid=BEN, code=1)
        assert words in complaint and "divvy.yaml" in complaint
    assert share_of(machine.on_device("ben")) == {
        "request_ppm": 0, "limit_ppm": 1000000, "weight": 1, "class": "standard"}
    # but may lower itself
    machine.ask("set", "ben", "--class", "batch", "--limit", "50%", uid=BEN)
    machine.ask("set", str(ben), "--limit", "70%", uid=BEN)
    assert share_of(machine.on_device("ben")) == {
        "request_ppm": 0, "limit_ppm": 700000, "weight": 1, "class": "batch"}

    # ann may more, up to a point
    machine.ask("set", "ann", "--request", "60%", "--weight", "4", "--class", "latency", uid=ANN)
    assert "at most 60%" in machine.ask("set", "ann", "--request", "61%", uid=ANN, code=1)
    assert share_of(machine.on_device("ann")) == {
        "request_ppm": 600000, "limit_ppm": 1000000, "weight": 4, "class": "latency"}


def test_users_reach_nobody_else(machine):
    ann, ben = machine.start(uid=ANN), machine.start(uid=BEN)
    before = share_of(machine.on_device("ann"))
    assert "no tenant ann" in machine.ask("set", "ann", "--weight", "1", uid=BEN, code=1)
    assert "no session" in machine.ask("set", str(ann), "--weight", "1", uid=BEN, code=1)
    assert "no session" in machine.ask("explain", str(ann), uid=BEN, code=1)
    assert "only operators" in machine.ask("policy", "0", "fifo", uid=BEN, code=1)
    tenants = json.loads(machine.ask("tenants", "--json", uid=BEN))["tenants"]
    assert [t["name"] for t in tenants] == ["ben"]
    assert "ann" not in machine.ask("tenants", uid=BEN)
    assert "tenant ben)" in machine.ask("explain", str(ben), uid=BEN)
    assert share_of(machine.on_device("ann")) == before
    assert json.loads(machine.ask("devices", "--json"))["devices"][0]["policy"] == "elastic"


# Takes all the connections that it gets, or asks as often as it can on one, as another user.
GREEDY = """
import select, socket, sys
def connect():
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    return s
QUESTION = b"GET /v1/version HTTP/1.1\\r\\nHost: divvy\\r\\n\\r\\n"
if sys.argv[2] == "connect":
    those = [connect() for _ in range(100)]
    closed = []
    for s in those:
        if select.select([s], [], [], 0.3 if len(closed) == 0 else 0.05)[0]:
            closed.append(s)
    words = closed[0].recv(1000).decode()
    print(len(those) - len(closed), words.split("error")[-1].strip(), flush=True)
    sys.stdin.readline()
else:
    answers, said = {}, ""
    status = 429
    for _ in range(400):
        if status == 429:   # which is the end of the connection
            connection = connect()
            s = connection.makefile("rb")
        try:
            connection.sendall(QUESTION)
        except BrokenPipeError:   # the answer is there already
            pass
        status = int(s.readline().split()[1])
        answers[status] = answers.get(status, 0) + 1
        length = 0
        while (line := s.readline()) != b"\\r\\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        words = s.read(length).decode()
        said = words if status == 429 else said
    print(answers.get(200, 0), answers.get(429, 0), said.strip(), flush=True)
"""


def greedy(machine, what):
    return subprocess.Popen(
        [sys.executable, "-c", GREEDY, os.path.join(machine.daemon.dir, "control/control.sock"), what],
        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **divvytest.identity(BEN))


def test_a_user_takes_a_few_connections_and_no_more(machine):
    machine.start(uid=ANN)
    with greedy(machine, "connect") as child:
        count, words = child.stdout.readline().split(None, 1)
        assert int(count) == 8 and "too many connections" in words
        assert "too many" in machine.ask("tenants", uid=BEN, code=1)
        assert "too many" in machine.ask("top", "-b", "-n", "1", uid=BEN, code=1)
        assert "ann" in machine.ask("tenants", uid=ANN)
        for _ in range(20):
            assert "ann" in machine.ask("tenants")
        child.stdin.write("\n")

    def answered():
        return subprocess.run([divvytest.binary("divvy"), "tenants"], env=machine.daemon.env(),
                              capture_output=True, timeout=60, **divvytest.identity(BEN)).returncode == 0
    divvytest.wait_for(answered, 10, "the places of closed connections are not free")


def test_a_user_asks_at_a_bounded_rate(machine):
    machine.start(uid=ANN)
    with greedy(machine, "ask") as child:
        answered, refused, words = child.stdout.readline().split(None, 2)
    assert 100 <= int(answered) < 300 and int(answered) + int(refused) == 400, answered
    assert "too many questions" in words
    for _ in range(200):
        assert "ann" in machine.ask("tenants")
    assert "ann" in machine.ask("tenants", uid=ANN)


def test_without_leave_to_ask_users_are_told_whom_to_turn_to(program, others_can_run):
    with live_daemon(program, config_text="devices: []\n", system=True) as daemon:
        complaint = Live(daemon, None).ask("set", "ben", "--weight", "1", uid=BEN, code=1)
        assert "operator" in complaint and "tenants-see-own" in complaint


# ---------------------------------------------------------------------------- explain, tenants, ps

def test_explain_says_who_holds_the_device(machine):
    ann, ben = machine.start(uid=ANN), machine.start(uid=BEN)
    time.sleep(2)

    def waiting():
        device = json.loads(machine.ask("explain", str(ann), "--json"))["devices"][0]
        return device if device["state"] == "waiting" and "tenant ben" in device["because"] else None
    device = divvytest.wait_for(waiting, 20, "ann never waits for ben")
    assert "session %d of tenant ben" % ben in device["because"]
    assert device["grants"] > 10 and device["slice_ms"] > 0 and device["kernel_ms"] > 0
    assert device["of_tenant"]["entitled_ppm"] == 500000

    def told_to_ann():
        time.sleep(0.1)  # users may not ask more often than this
        device = json.loads(machine.ask("explain", str(ann), "--json", uid=ANN))["devices"][0]
        assert "ben" not in device["because"] and "session" not in device["because"]
        return "another tenant has used the device" in device["because"]
    divvytest.wait_for(told_to_ann, 20, "ann is not told of another tenant")

    text = machine.ask("explain", str(ann))
    assert text.startswith("session %d (turns 20000 600, tenant ann) " % ann)
    assert "\n  Because " in text and "\n  Entitled  to 50%" in text and len(text.splitlines()) < 8
    text = machine.ask("explain", "-v", str(ann))
    for label in ("last grant ", "so far ", "estimates ", "tenant has "):
        assert "\n  " + label in text
    rows = [line.split() for line in text.splitlines() if re.match(r"  \d+ s ", line)]
    assert [row[0] for row in rows] == ["1", "10", "60"]
    assert all(row[3] == "50.0%" for row in rows)
    share, difference, bound = float(rows[0][2].rstrip("%")), float(rows[0][4]), float(rows[0][5])
    assert abs(share - 50 - difference) < 0.15 and bound > 0


def test_listings_show_shares(machine):
    ann, ben = machine.start(uid=ANN), machine.start(uid=BEN)

    def shares_are_right():
        tenants = json.loads(machine.ask("tenants", "--json"))["tenants"]  # both at one moment
        shares = [t["devices"][0]["share_1s_ppm"] for t in tenants if t["name"] in ("ann", "ben")]
        return len(shares) == 2 and 900000 < sum(shares) <= 1010000 and min(shares) > 300000
    divvytest.wait_for(shares_are_right, 20, "the shares that are told are not those of two at work")
    load, *rows = machine.ask("ps").splitlines()
    assert load.startswith("device 0 ") and " busy " in load and "2 sessions" in load, load
    rows = [line.split() for line in rows]
    assert rows[0][:4] == ["SESSION", "USER", "TENANT", "SHARE"]
    assert {(row[0], row[2]) for row in rows[1:]} == {(str(ann), "ann"), (str(ben), "ben")}
    assert all(any(cell.endswith("%") for cell in row) for row in rows[1:])
    rows = [line.split() for line in machine.ask("tenants").splitlines()]
    assert [row[0] for row in rows] == ["TENANT", "ann", "ben"]


# ---------------------------------------------------------------------------- divvy run

def test_run_asks_for_a_share(own):
    session = own.start("--request", "30%", "--limit", "60.5%", "--weight", "5",
                        "--class", "latency")
    tenant = json.loads(own.ask("explain", str(session), "--json"))
    assert share_of(tenant["devices"][0]["of_tenant"]) == {
        "request_ppm": 300000, "limit_ppm": 605000, "weight": 5, "class": "latency"}
    # each program is a tenant of its own, and inherits what no option overrides
    session = own.start("--weight", "2", env={"DIVVY_REQUEST": "100000", "DIVVY_WEIGHT": "9",
                                              "DIVVY_LIMIT": ""})
    other = json.loads(own.ask("explain", str(session), "--json"))
    assert other["tenant"] != tenant["tenant"]
    assert share_of(other["devices"][0]["of_tenant"]) == {
        "request_ppm": 100000, "limit_ppm": 1000000, "weight": 2, "class": "standard"}
    assert len(json.loads(own.ask("tenants", "--json"))["tenants"]) == 2, \
        "asking beforehand leaves no tenant behind"


def test_run_is_refused_before_the_program_starts(own, tmp_path):
    own.start("--request", "70%")
    holder = json.loads(own.ask("tenants", "--json"))["tenants"][0]["name"]
    trace = tmp_path / "started"
    complaint = own.ask("run", "--request", "40%", "--", "touch", str(trace), code=125)
    assert "%s 70%%" % holder in complaint and "at most 30%" in complaint
    assert not trace.exists()
    own.ask("run", "--request", "30%", "--", "touch", str(trace))
    assert trace.exists()
    own.stop()
    own.children.clear()
    divvytest.wait_for(lambda: not own.daemon.sessions(), 10, "the session of a dead program stays")
    own.ask("run", "--request", "100%", "--", "true")


def test_run_keeps_to_the_terms_of_its_user(machine):
    complaint = machine.ask("run", "--request", "10%", "--", "true", uid=BEN, code=125)
    assert "tenant ben may request at most 0%" in complaint
    machine.start("--request", "60%", uid=ANN)
    assert machine.on_device("ann")["request_ppm"] == 600000
    assert "at most 60%" in machine.ask("run", "--request", "70%", "--", "true", uid=ANN, code=125)
    # a user that may not ask for it is not told which tenant has it
    complaint = machine.ask("run", "--request", "50%", "--", "true", uid=BEN, code=125)
    assert "tenant ben may request at most 0%" in complaint and "ann" not in complaint


@pytest.mark.parametrize("options, words", [
    (["--request", "0.3"], "such as 30% or 0.5%, not '0.3'"),
    (["--limit", "120%"], "from 0% to 100%"),
    (["--request", "50%", "--limit", "40%"], "limit of 40% (--limit) is below the request of 50%"),
    (["--weight", "0"], "from 1 to 10000"),
    (["--class", "urgent"], "latency, standard, batch or idle, not 'urgent'"),
])
def test_wrong_shares_are_refused_by_the_command_line(options, words, tmp_path):
    nobody = str(tmp_path)  # no daemon is asked
    divvy = divvytest.binary("divvy")
    for command, code in ((["set", "ann", "--daemon", nobody, *options], 2),
                          (["run", "--daemon", nobody, *options, "--", "true"], 125)):
        done = subprocess.run([divvy, *command], text=True, capture_output=True, timeout=60)
        assert done.returncode == code and words in done.stderr


# ---------------------------------------------------------------------------- what is not there

@pytest.mark.parametrize("command, code, words", [
    ("set", 2, "missing TENANT or SESSION"),
    ("set ann", 2, "nothing to change"),
    ("set nobody --weight 2", 1, "there is no tenant nobody"),
    ("set 999 --weight 2", 1, "there is no session 999"),
    ("set 1 --device x --weight 2", 2, "--device is a device's number"),
    ("explain ann", 2, "SESSION is a number"),
    ("explain 999", 1, "there is no session 999"),
    ("policy 0", 2, "missing NAME"),
    ("policy 0 nonsense", 2, "NAME is elastic, fair, fifo or band, not 'nonsense'"),
    ("policy 77 fifo", 1, "there is no such device"),
    ("policy Vega* fifo", 1, "no device's name fits 'Vega*'"),
    ("policy 0 fifo --slice soon", 2, "not 'soon'"),
    ("tenants ann", 2, "unexpected argument: ann"),
])
def test_complaints_say_what_is_wrong(quiet, command, code, words):
    complaint = quiet.ask(*command.split(), code=code)
    assert complaint.startswith("divvy: ") and words in complaint


@pytest.fixture(scope="module")
def quiet():
    """An unused daemon, once for all the tests that only look at complaints."""
    with divvytest.Daemon() as daemon:
        live = Live(daemon, None)
        divvytest.wait_for(lambda: json.loads(live.ask("devices", "--json"))["devices"], 20,
                           "no devices are found")
        yield live


def test_nothing_to_list(quiet):
    assert quiet.ask("tenants").endswith("\nno program uses the shared devices now\n")
