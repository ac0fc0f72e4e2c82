"""Listings are made while they are sent: sessions and tenants come and go meanwhile, and a reader may be
slow."""
import contextlib
import json
import os
import resource
import socket
import time

import divvytest
import pytest
from leasechannel import RELEASE, WANT, Session

FIRST_UID = 71_000
REMEMBERED = 1024   # tenants without a session: DV_MAX_TENANTS_GONE


@pytest.fixture(autouse=True)
def many_descriptors():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Listing:
    """An answer of the control socket, read piece by piece."""

    def __init__(self, daemon, path, version="1.1"):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.path.join(daemon.dir, "control/control.sock"))
        self.socket.settimeout(30)
        self.socket.send(b"GET %s HTTP/%s\r\nHost: divvyd\r\nConnection: close\r\n\r\n" % (
            path.encode(), version.encode()))
        self.data = b""

    def read_some(self, most):
        self.data += self.socket.recv(most)
        return self.data

    def read_rest(self):
        while (more := self.socket.recv(1 << 16)):
            self.data += more
        self.socket.close()
        head, body = self.data.split(b"\r\n\r\n", 1)
        assert head.split()[1] == b"200", head
        if b"chunked" in head:
            body = join_chunks(body)
        return json.loads(body)


def join_chunks(body):
    text = b""
    while True:
        length, body = body.split(b"\r\n", 1)
        length = int(length, 16)
        if length == 0:
            return text
        text, body = text + body[:length], body[length + 2:]


@contextlib.contextmanager
def crowd(daemon, count, as_user=lambda number: None):
    sessions = []
    try:
        for number in range(count):
            uid = as_user(number)
            if uid is not None:
                os.seteuid(uid)
            try:
                sessions.append(Session(daemon))
            finally:
                os.seteuid(os.getuid())
            assert sessions[-1].status == 0, sessions[-1].text
        yield sessions
    finally:
        for session in sessions:
            session.close()


def many(per="program"):
    return "sessions-per-user: 16384\ntenants:\n  - per: %s\n" % per


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_who_goes_while_sessions_are_listed(version):
    with divvytest.Daemon(many()) as daemon, crowd(daemon, 3000) as sessions:
        listing = Listing(daemon, "/v1/sessions", version)
        listing.read_some(5000)
        time.sleep(0.3)   # divvyd goes on until nothing more fits into the socket
        here = 200 + listing.read_some(1).count(b'"id"')
        for session in sessions[here:2000]:   # where it has got to, and far beyond
            session.close()
        divvytest.wait_for(lambda: len(daemon.sessions()) == 1000 + here, 30,
                           "closed sessions are still there")
        listed = [row["id"] for row in listing.read_rest()["sessions"]]
        assert len(set(listed)) == len(listed)
        stayed = {session.id for session in sessions[:here] + sessions[2000:]}
        assert stayed <= set(listed)
        assert len(listed) < 3000   # it had not gone past those that went


def test_who_comes_while_sessions_are_listed_is_not_waited_for():
    with divvytest.Daemon(many()) as daemon, crowd(daemon, 2000) as sessions:
        listing = Listing(daemon, "/v1/sessions")
        listing.read_some(1000)
        with crowd(daemon, 100):
            listed = {row["id"] for row in listing.read_rest()["sessions"]}
        assert listed == {session.id for session in sessions}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as many users")
def test_tenants_that_are_forgotten_while_they_are_listed():
    with divvytest.Daemon(many("user"), system=True) as daemon, \
            crowd(daemon, REMEMBERED + 1500, lambda number: FIRST_UID + number) as sessions:
        listing = Listing(daemon, "/v1/tenants")
        listing.read_some(5000)
        time.sleep(0.3)
        for session in sessions[100:]:
            session.close()
        divvytest.wait_for(lambda: len(daemon.sessions()) == 100, 30,
                           "closed sessions are still there")
        names = [row["name"] for row in listing.read_rest()["tenants"]]
        assert len(set(names)) == len(names)
        assert {"uid:%d" % (FIRST_UID + number) for number in range(100)} <= set(names)
        assert len(names) < len(sessions)
        rows = json.loads(daemon.cli("tenants", "--json"))["tenants"]
        assert len(rows) == 100 and all(row["devices"] for row in rows)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as many users")
def test_users_see_their_own_rows():
    with divvytest.Daemon(many("user") + "tenants-see-own: yes\n", system=True) as daemon, \
            crowd(daemon, 40, lambda number: FIRST_UID + number % 2) as sessions:
        def ask(path):
            os.seteuid(FIRST_UID)
            try:
                return Listing(daemon, path).read_rest()
            finally:
                os.seteuid(0)

        assert {row["id"] for row in ask("/v1/sessions")["sessions"]} == {
            session.id for session in sessions[::2]}
        assert [(row["name"], row["sessions"]) for row in ask("/v1/tenants")["tenants"]] == [
            ("uid:%d" % FIRST_UID, 20)]
        for session in sessions[::2]:
            session.close()
        divvytest.wait_for(lambda: len(daemon.sessions()) == 20, 10, "closed sessions are still there")
        assert ask("/v1/tenants")["tenants"] == []


def test_grants_go_on_beside_readers_who_stop_reading():
    with divvytest.Daemon(many()) as daemon, crowd(daemon, 2000) as sessions:
        readers = [Listing(daemon, path) for path in ("/v1/sessions", "/v1/tenants", "/v1/devices") * 5]
        for _ in range(50):
            sessions[0].say(WANT)
            sessions[0].say(RELEASE, sessions[0].granted())
        for reader in readers:
            reader.read_rest()
