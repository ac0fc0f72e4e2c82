"""One of several users of a tenant asks for less with its hello: the others keep what they have."""

import contextlib
import json
import os
import subprocess

import divvytest
import leasechannel
from players import ATTACKER, VICTIM

GROUP = 4100
CONFIG = """tenants:
  - name: team
    group: "%d"
    request: 50%%
tenants-see-own: yes
""" % GROUP


@contextlib.contextmanager
def member(user):
    os.setegid(GROUP)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def share(daemon):
    team, = [t for t in json.loads(daemon.cli("tenants", "--json"))["tenants"] if t["name"] == "team"]
    return {key: team["devices"][0][key] for key in ("request_ppm", "limit_ppm", "class")}


def test_a_member_does_not_throttle_its_tenant():
    with divvytest.Daemon(CONFIG, system=True) as daemon:
        with member(VICTIM):
            victim = leasechannel.Session(daemon)
        victim.say(leasechannel.WANT)
        victim.granted()
        before = share(daemon)
        assert before == {"request_ppm": 500000, "limit_ppm": 1000000, "class": "standard"}
        with member(ATTACKER):
            attacker = leasechannel.Session(daemon, request=1, limit=10001, latency_class=3)
        assert share(daemon) == before
        assert attacker.status == 0 and "several users" in attacker.text
        done = subprocess.run([divvytest.binary("divvy"), "set", "team", "--limit", "1%", "--daemon",
                               daemon.dir], user=ATTACKER, group=GROUP, extra_groups=[],
                              capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0 and "only an operator" in done.stderr, done
        assert share(daemon) == before
        attacker.close()
        victim.close()


def test_a_user_alone_asks_for_itself():
    with divvytest.Daemon(system=True) as daemon:
        session = leasechannel.Session(daemon, limit=100001)
        assert (session.status, session.text) == (0, "")
        tenant, = json.loads(daemon.cli("tenants", "--json"))["tenants"]
        assert tenant["devices"][0]["limit_ppm"] == 100000
        session.close()
