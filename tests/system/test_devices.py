"""Machines with several devices: which of them keeps a tenant's request, and which programs are told what."""

import contextlib
import json
import os
import signal
import subprocess

import pytest

import divvytest
import leasechannel as lease

FOUR = {"POCL_DEVICES": "pthread pthread pthread pthread", "POCL_MAX_PTHREAD_COUNT": "1"}


class Machine:
    """A daemon with several devices, and programs that run until the test ends."""

    def __init__(self, daemon, several, stack):
        self.daemon, self.several, self.stack = daemon, several, stack

    def command(self, *arguments, options=()):
        return [divvytest.binary("divvy"), "run", *options, "--", self.several,
                *map(str, arguments)]

    def run(self, *arguments, options=(), env=None):
        """The lines that the program prints, and its exit code."""
        done = subprocess.run(self.command(*arguments, options=options), text=True, timeout=60,
                              env={**self.daemon.env(), **(env or {})}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.stdout.splitlines(), done.returncode, done.stderr

    def start(self, *arguments, options=()):
        """A program that computes until the test ends. Returns the number of its session."""
        child = subprocess.Popen(self.command(*arguments, 600, options=options), text=True,
                                 env=self.daemon.env(), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE)
        self.stack.callback(lambda: (child.kill(), child.communicate()))
        lines = iter(child.stdout.readline, "")
        said = []
        for line in lines:
            said.append(line)
            if line == "ready\n":
                return self.daemon.session_of(child.pid)["id"]
        raise AssertionError("the program ended: %s" % said)

    def settle(self, sessions):
        """Waits until programs that have ended are gone from the daemon's books, too."""
        divvytest.wait_for(lambda: len(self.daemon.sessions()) == sessions, 10, "sessions do not end")

    def devices_of(self, session):
        """The numbers of the devices that a session is on, with the request that is kept there."""
        answer = json.loads(self.daemon.cli("explain", str(session), "--json"))
        return {d["index"]: d["of_tenant"]["request_ppm"] for d in answer["devices"]}


@pytest.fixture
def machine(program):
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(divvytest.Daemon(env=FOUR))
        yield Machine(daemon, program("several"), stack)


HALF = ("--request", "60%")


def test_requests_are_kept_where_sessions_are(machine):
    """Each fits on a device of its own: none is refused before all four are taken."""
    used = []
    for _ in range(4):
        (device, request), = machine.devices_of(machine.start(0, 0, options=HALF)).items()
        assert request == 600_000
        used.append(device)
    assert sorted(used) == [0, 1, 2, 3]
    lines, code, complaint = machine.run(0, 0, options=HALF)
    assert code == 125 and not lines
    assert "a request of 60% cannot be kept on" in complaint
    assert "The other 3 devices cannot keep it either" in complaint
    machine.start(0, 0, options=("--request", "40%"))


def test_a_device_that_the_program_chooses_takes_the_request_with_it(machine):
    """The device where it was admitted, but which it does not use, is free again."""
    for device in (3, 2, 1, 0):
        first = machine.start(device, 0, options=("--request", "100%"))
        (used, request), = machine.devices_of(first).items()
        assert request == 1_000_000
    assert machine.run(0, 0, options=("--request", "1%"))[1] == 125


def test_a_program_that_insists_on_a_full_device_is_told(machine, tmp_path):
    log = tmp_path / "log"
    first = machine.start(0, 0, options=HALF)
    taken = next(iter(machine.devices_of(first)))
    refusals = 0
    for device in range(4):
        machine.settle(1)
        lines, code, _ = machine.run(device, 0, options=HALF, env={"DIVVY_LOG": str(log)})
        if code == 0:
            continue
        refusals += 1
        assert lines[-1] == "refused clCreateContext CL_DEVICE_NOT_AVAILABLE"
        told, = [line for line in lines if line.startswith("told ")]
        assert told.startswith("told divvy: a request of 60% cannot be kept on")
        assert "60% of it is promised already" in told
        assert "divvy: no device: a request of 60%" in log.read_text()
        machine.daemon.await_log("cannot have a device: a request of 60%")
    assert refusals == 1 and machine.devices_of(first) == {taken: 600_000}


def test_a_context_of_all_devices_uses_those_with_queues(machine):
    first = machine.start("all", 2, options=HALF)
    second = machine.start("all", 1, options=HALF)
    promised = [next(d for d, r in machine.devices_of(s).items() if r) for s in (first, second)]
    assert promised[0] != promised[1]
    third = machine.start(0, 0, options=HALF)
    fourth = machine.start(0, 0, options=HALF)
    full = [next(d for d, r in machine.devices_of(s).items() if r)
            for s in (first, second, third, fourth)]
    assert sorted(full) == [0, 1, 2, 3]


def test_a_queue_on_a_full_device_is_refused(machine):
    """The context is of all devices, so it exists already."""
    machine.start(0, 0, options=HALF)
    answers = []
    for queue in range(4):
        machine.settle(1)
        answers.append(machine.run("all", queue, options=HALF))
    refused = [lines for lines, code, _ in answers if code == 3]
    assert [code for _, code, _ in answers].count(0) == 3
    assert refused[0][-1] == "refused clCreateCommandQueue CL_OUT_OF_RESOURCES"
    assert refused[0][-2].startswith("told divvy: a request of 60% cannot be kept on")


def test_sessions_without_requests_are_refused_nowhere(machine):
    for _ in range(4):
        machine.start(0, 0, options=("--request", "100%"))
    for device in range(4):
        assert machine.run(device, 0)[1] == 0
    assert machine.run("all", 3)[1] == 0


def test_requests_survive_a_restart(machine):
    """Requests, and the devices that programs were admitted to but do not use, are as before."""
    sessions = [machine.start(device, 0, options=HALF) for device in (1, 1)]
    idle = lease.Session(machine.daemon, request=600_001)   # uses nothing so far
    before = [machine.devices_of(s) for s in (*sessions, idle.id)]
    machine.daemon.kill(signal.SIGKILL)
    machine.daemon.start()
    divvytest.wait_for(lambda: len(machine.daemon.sessions()) == 3, 10, "sessions are lost")
    assert [machine.devices_of(s) for s in (*sessions, idle.id)] == before
    idle.answer_state(4)
    machine.start(0, 0, options=HALF)
    assert machine.run(0, 0, options=HALF)[1] == 125
    free = next(d for d in range(4) if all(d not in b for b in before))
    unused = next(iter(before[2]))
    idle.say(lease.WANT, device=free)   # taken meanwhile, so it runs there without its request
    assert idle.hear_of(free)[0] == lease.GRANT
    assert machine.devices_of(idle.id) == {unused: 600_000, free: 0}
    idle.close()


def test_leases_join_at_their_first_wish(machine):
    first = lease.Session(machine.daemon, request=700_001)
    second = lease.Session(machine.daemon, request=700_001)
    assert first.status == second.status == 0
    for device in range(4):
        first.say(lease.WANT, device=device)
        assert first.hear_of(device)[0] == lease.GRANT
    # one process is one tenant: its requests are not added up
    assert machine.devices_of(first.id) == {d: 700_000 for d in range(4)}
    first.close()
    second.close()


def test_join_is_answered(machine):
    machine.start(2, 0, options=HALF)
    taken = next(iter(machine.devices_of(machine.daemon.sessions()[0]["id"])))
    session = lease.Session(machine.daemon, request=600_001)
    for device in range(4):
        session.say(lease.JOIN, serial=100 + device, device=device)
        kind, serial, _ = session.hear_of(device)
        assert serial == 100 + device
        assert kind == (lease.TURNED_AWAY if device == taken else lease.JOINED)
    assert "cannot be kept" in machine.daemon.cli("explain", str(session.id))
    session.close()


def test_what_an_operator_sets_holds_on_devices_used_later(machine):
    session = lease.Session(machine.daemon)
    session.say(lease.WANT, device=0)
    assert session.hear_of(0)[0] == lease.GRANT
    machine.daemon.cli("set", str(session.id), "--weight", "7", "--request", "20%")
    machine.daemon.kill(signal.SIGKILL)
    machine.daemon.start()
    session.answer_state(4)
    session.say(lease.WANT, device=3)
    divvytest.wait_for(lambda: 3 in machine.devices_of(session.id), 10, "it does not join")
    answer = json.loads(machine.daemon.cli("explain", str(session.id), "--json"))
    assert {d["index"]: (d["of_tenant"]["weight"], d["of_tenant"]["request_ppm"]) for d in answer["devices"]} == {
        0: (7, 200_000), 3: (7, 200_000)}
    session.close()


# ---- in which order ----


def test_programs_spread_out(machine):
    """Each takes the first device that it sees, which is an unused one."""
    sessions = [machine.start(0, 0) for _ in range(8)]
    used = [d for s in sessions for d in machine.devices_of(s)]
    assert sorted(used[:4]) == [0, 1, 2, 3] and sorted(used) == sorted(2 * [0, 1, 2, 3])


def test_programs_that_start_together_spread_out(machine):
    """The first device is taken when a session begins, not when its program comes to use it."""
    for _ in range(3):
        children = [subprocess.Popen(machine.command(0, 0, 1, options=HALF), text=True,
                                     env=machine.daemon.env(), stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE) for _ in range(4)]
        for child in children:
            out, _ = child.communicate(timeout=60)
            assert child.returncode == 0, out
        machine.settle(0)


def test_guarantees_count_more_than_numbers(machine):
    """A program can expect the part of a device that is not promised, divided by the sessions that share it."""
    first = machine.start(0, 0, options=("--request", "90%"))
    taken = next(iter(machine.devices_of(first)))
    for _ in range(6):
        assert taken not in machine.devices_of(machine.start(0, 0))


def test_memory_counts(machine):
    """No program is sent to a device whose memory is reserved."""
    with contextlib.closing(lease.Session(machine.daemon)) as large:
        devices = json.loads(machine.daemon.cli("devices", "--json"))["devices"]
        large.say_of_memory(lease.RESERVE, devices[0]["memory_bytes"] * 15 // 16, number=1)
        assert large.hear_of_memory()[0] == 16
        for _ in range(6):
            assert 0 not in machine.devices_of(machine.start(0, 0))


def test_the_vendors_order(program):
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(divvytest.Daemon("device-order: fixed\n", env=FOUR))
        machine = Machine(daemon, program("several"), stack)
        for _ in range(3):
            assert machine.devices_of(machine.start(0, 0, options=("--request", "30%"))) == {0: 300_000}
        # the program takes the first device itself: the one where it was admitted does not matter
        lines, code, _ = machine.run(0, 0, options=("--request", "30%"))
        assert code == 3 and lines[-1] == "refused clCreateContext CL_DEVICE_NOT_AVAILABLE"
        assert machine.devices_of(machine.start(1, 0, options=("--request", "30%"))) == {1: 300_000}


def test_a_child_sees_the_devices_of_its_parent(machine, program):
    """Handles of devices are inherited: each means the same device in the child's own session."""
    machine.start(0, 0)
    parent = machine.daemon.popen([program("lineage"), "2"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
    machine.stack.callback(lambda: (divvytest.kill_group(parent), parent.communicate()))
    assert parent.stdout.readline() == "parent\n"
    device, = machine.devices_of(machine.daemon.session_of(parent.pid)["id"])
    for _ in range(2):   # a new program would see another order
        machine.start(0, 0, options=("--request", "30%"))
    parent.stdin.write("go\n")
    parent.stdin.flush()
    child = int(parent.stdout.readline().split()[1])
    assert list(machine.devices_of(machine.daemon.session_of(child)["id"])) == [device]


@pytest.mark.parametrize("devices, flags", [
    ("0,0", 1), ("0,4", 1), ("x", 1), ("0,,1", 1), ("99999999999999999999", 1), ("", 1), ("0", 2)])
def test_lists_of_devices_that_make_no_sense(machine, devices, flags):
    with contextlib.closing(lease.Session(machine.daemon, devices=devices, flags=flags)) as refused:
        assert refused.status in (2, 3) and refused.text
    assert lease.Session(machine.daemon).status == 0


# ---- which devices ----


ALIKE = 'devices 4; device names alike; device type gpu; unknown kernels nop; device addresses '
UUID = "00010203-0405-0607-0809-0a0b0c0d0e%02x"


def scripted(script):
    return {"DIVVY_VENDORS": os.path.join(divvytest.build_dir(), "tests", "vendor"),
            "DIVVY_VENDOR_SCRIPT": script}


def listed(daemon):
    def look():
        return json.loads(daemon.cli("devices", "--json"))["devices"]
    return divvytest.wait_for(look, 10, "no devices")


@pytest.mark.parametrize("addresses, uuids, domain", [("khr", True, 2), ("nv", False, 2), ("amd", False, 0)])
def test_cards_of_one_name_are_told_apart(addresses, uuids, domain):
    with divvytest.Daemon(env=scripted(ALIKE + addresses)) as daemon:
        devices = listed(daemon)
        assert [d["pci"] for d in devices] == ["%04x:%02x:03.1" % (domain, 0x10 + i) for i in range(4)]
        assert [d["uuid"] for d in devices] == [UUID % i if uuids else "unknown" for i in range(4)]
        assert devices[2]["pci"] in daemon.cli("devices", "-v")


def test_what_a_vendor_does_not_say_is_unknown(machine):
    assert machine.run(0, 0)[1] == 0
    assert [(d["uuid"], d["pci"]) for d in listed(machine.daemon)] == 4 * [("unknown", "unknown")]


@pytest.mark.parametrize("match, device", [
    ("3", 3), ("0002:12:03.1", 2), (UUID % 1, 1), ("GPU-" + (UUID % 0).upper(), 0)])
def test_a_rule_for_one_card_of_several(match, device):
    config = 'devices:\n  - match: %s\n    name: Mine\n  - match: "*"\n    hidden: yes\n' % match
    with divvytest.Daemon(config, env=scripted(ALIKE + "khr")) as daemon:
        devices = listed(daemon)
        assert [d["name"] for d in devices if not d["hidden"]] == ["Mine"]
        assert devices[device]["name"] == "Mine"


@pytest.mark.parametrize("which, devices", [
    (["2"], [2]), (["0", "3"], [0, 3]), (["0,3"], [0, 3]), (["3,0", "3"], [0, 3]),
    (["0002:11:03.1"], [1]), (["2:11:3.1", UUID % 2], [1, 2]), (["Scripted*"], [0, 1, 2, 3]),
    (["Own"], [1])])
def test_a_program_sees_the_devices_that_are_named(program, which, devices):
    config = 'device-order: fixed\ndevices:\n  - match: 1\n    name: Own\n'
    options = [word for one in which for word in ("--device", one)]
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(divvytest.Daemon(config, env=scripted(ALIKE + "khr")))
        machine = Machine(daemon, program("several"), stack)
        lines, _, said = machine.run(99, 0, options=options)
        assert lines == ["devices %d" % len(devices)], said
        with contextlib.closing(lease.Session(daemon, devices=",".join(which))) as session:
            for number in range(4):   # it is told nothing of those that it has not chosen
                session.say(lease.JOIN, serial=7, device=number)
                if number in devices:
                    assert session.hear_of(number)[0] == lease.JOINED
            session.say(lease.JOIN, serial=8, device=devices[-1])
            assert session.hear_of(devices[-1])[:2] == (lease.JOINED, 8)


def test_the_device_that_a_program_is_given_is_the_one_that_it_uses(machine):
    for device in (2, 0, 3):
        session = machine.start(0, 0, options=("--device", str(device), "--request", "50%"))
        assert machine.devices_of(session) == {device: 500_000}
    lines, code, complaint = machine.run(0, 0, options=("--device", "2", "--request", "60%"))
    assert code == 125 and "50% of it is promised already" in complaint and not lines
    assert "The other" not in complaint


@pytest.mark.parametrize("which", ["4", "99999", "nothing*", "0000:01:00.0", UUID % 0, ","])
def test_a_device_that_is_not_there(machine, which):
    lines, code, complaint = machine.run(0, 0, options=("--device", which))
    assert code == 125 and not lines
    assert "names no offered device" in complaint and "`divvy devices` lists them" in complaint


def test_hidden_devices_cannot_be_named(program):
    config = "devices:\n  - match: 1\n    hidden: yes\n"
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(divvytest.Daemon(config, env=FOUR))
        machine = Machine(daemon, program("several"), stack)
        assert machine.run(0, 0, options=("--device", "1"))[1] == 125
        assert machine.run(99, 0, options=("--device", "*"))[0] == ["devices 3"]


def test_programs_of_a_program_see_the_same(machine):
    inner = machine.command(99, 0)
    done = machine.daemon.run(inner, env={"DIVVY_DEVICES": "1,2"})
    assert done.stdout == "devices 2\n", done
    done = machine.daemon.run(machine.command(99, 0, options=("--device", "0")),
                              env={"DIVVY_DEVICES": "1,2"})
    assert done.stdout == "devices 1\n", done


def test_too_many_words_for_devices(machine):
    options = [word for _ in range(60) for word in ("--device", "0002:11:03.1")]
    code, complaint = machine.run(0, 0, options=options)[1:]
    assert code == 125 and "too many" in complaint
    code, complaint = machine.run(0, 0, options=("--device", ""))[1:]
    assert code == 125 and "names no device" in complaint


# ---- how many ----


def test_sixty_four_devices(program):
    """All are offered, and a session can hold all of them."""
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(divvytest.Daemon(env=scripted("devices 64; device names alike")))
        machine = Machine(daemon, program("several"), stack)
        assert machine.run(99, 0)[0] == ["devices 64"]
        assert len(listed(daemon)) == 64 and "divvyd serves" not in daemon.log
        session = stack.enter_context(contextlib.closing(lease.Session(daemon, request=500_001)))
        for device in range(64):
            session.say(lease.WANT, device=device)
            assert session.hear_of(device)[0] == lease.GRANT
        assert machine.devices_of(session.id) == {device: 500_000 for device in range(64)}
        assert machine.run(99, 0, options=("--request", "51%"))[1] == 125
        assert machine.run(99, 0, options=("--request", "50%"))[0] == ["devices 64"]


def test_sixty_four_real_devices(program):
    """The last one computes, with memory that is counted."""
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(divvytest.Daemon(
            divvytest.DATA_PATHS["discrete"], env={**FOUR, "POCL_DEVICES": " ".join(64 * ["pthread"])}))
        machine = Machine(daemon, program("several"), stack)
        for device in (0, 15, 16, 62):
            session = machine.start(device, 0, options=("--request", "50%"))
            (used, request), = machine.devices_of(session).items()
            assert request == 500_000
        assert machine.run(63, 0)[0] == ["devices 64", "ready"]
        assert machine.run("all", 63)[0] == ["devices 64", "ready"]
        daemon.kill(signal.SIGKILL)
        daemon.start()
        divvytest.wait_for(lambda: len(daemon.sessions()) == 4, 10, "sessions are lost")
        assert machine.devices_of(session) == {used: 500_000}
        assert machine.run(63, 0)[0] == ["devices 64", "ready"]
        assert json.loads(daemon.cli("check", "--json"))["differences"] == 0


def test_more_devices_than_can_be_served(program):
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(divvytest.Daemon(env=scripted("devices 80; unknown kernels nop")))
        machine = Machine(daemon, program("several"), stack)
        assert machine.run(99, 0)[0] == ["devices 64"]
        words = "The vendors offer 80 devices. divvyd serves the first 64"
        daemon.await_log("the vendors offer 80 devices, and divvyd serves the first 64")
        assert words in daemon.cli("devices")
        daemon.kill(signal.SIGKILL)
        daemon.start()
        assert words in daemon.cli("devices")
        assert machine.run(0, 0, options=("--device", "64"))[1] == 125


# ---- several at a time ----


SLOTS = """devices:
  - match: "*"
    unified: no
    capacity: 64MiB
    slots: 2
tenants:
  - per: program
    memory: 4GiB
"""
MIB = 1 << 20


@pytest.fixture
def two_slots():
    with divvytest.Daemon(SLOTS, env={"POCL_MAX_PTHREAD_COUNT": "1"}) as daemon:
        yield daemon


def reserving(stack, daemon, mib):
    session = stack.enter_context(contextlib.closing(lease.Session(daemon)))
    session.say_of_memory(lease.RESERVE, mib * MIB, number=1)
    assert session.hear_of_memory()[0] == 16
    return session


def test_sets_that_fit_together_run_together(two_slots):
    with contextlib.ExitStack() as stack:
        sessions = [reserving(stack, two_slots, mib) for mib in (40, 24, 1)]
        held = []
        for session in sessions[:2]:
            session.say(lease.WANT)
            held.append(session.granted())
        sessions[2].say(lease.WANT)
        assert sessions[2].hear(lease.QUIET_S) is None   # there are two slots
        sessions[0].say(lease.RELEASE, held[0])
        sessions[2].granted()


def test_sets_that_do_not_fit_take_turns(two_slots):
    with contextlib.ExitStack() as stack:
        first, second, small = [reserving(stack, two_slots, mib) for mib in (40, 25, 1)]
        first.say(lease.WANT)
        held = first.granted()
        second.say(lease.WANT)
        assert first.hear()[0] == lease.RECALL   # though a slot is free
        small.say(lease.WANT)
        assert small.hear(lease.QUIET_S) is None   # nor does it go before the second
        assert second.hear(lease.QUIET_S) is None
        why = json.loads(two_slots.cli("explain", str(second.id), "--json"))["devices"][0]["because"]
        assert "does not fit beside" in why
        first.say(lease.RELEASE, held)
        second.granted()
        small.granted()   # beside it


def test_a_set_is_what_was_there_in_the_last_hold(two_slots):
    """It uses little of its allocated memory, which is known once it has held the device."""
    with contextlib.ExitStack() as stack:
        first, second = [reserving(stack, two_slots, 60) for _ in range(2)]
        for session in (first, second):
            session.say(lease.WANT)
            held = session.granted()
            session.say_of_memory(lease.PLACE, 8 * MIB)
            assert session.hear_of_memory()[0] == lease.PLACED
            session.say_of_memory(5, 0)   # it is there
            session.say(lease.RELEASE, held)
        first.hear(lease.QUIET_S), second.hear(lease.QUIET_S)
        for session in (first, second):
            session.say(lease.WANT)
            while session.hear()[0] != lease.GRANT:
                pass


@pytest.mark.parametrize("mib", [24, 40, 60])
def test_programs_on_two_slots(two_slots, program, mib):
    """No command fails, whether the sets of two programs fit together or not."""
    children = [two_slots.popen([program("compute"), str(seed), "3", str(mib)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE) for seed in range(3)]
    for child in children:
        out, error = child.communicate(timeout=120)
        assert child.returncode == 0, (out, error)
