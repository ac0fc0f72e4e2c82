"""A tenant that may ask about itself asks about others, and tries to change them."""

import os

import divvytest
import strangers

VICTIM, CURIOUS = 4001, 4002

OPEN = """
session = lease.Session(Daemon)
print(session.id, flush=True)
sys.stdin.readline()
"""
ASK = r"""
def ask(method, path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        control.settimeout(10)
        control.connect(os.path.join(Daemon.dir, "control", "control.sock"))
        control.sendall(("%s %s HTTP/1.0\r\nHost: divvyd\r\n\r\n" % (method, path)).encode())
        answer = b""
        while piece := control.recv(65536):
            answer += piece
    return answer.decode()
own = lease.Session(Daemon)
number, name = os.environ["SESSION"], "uid:4001"
for method, path in (("GET", "/v1/sessions/%s/explain" % number),
                     ("POST", "/v1/sessions/%s/share?limit=10000" % number),
                     ("POST", "/v1/tenants/%s/share?limit=10000" % name),
                     ("POST", "/v1/tenants/uid%3A4001/share?limit=10000"),
                     ("POST", "/v1/tenants/uid:4001%00x/share?limit=10000"),
                     ("POST", "/v1/tenants/../tenants/uid:4001/share?limit=10000"),
                     ("POST", "/v1/devices/0/policy?name=fifo"), ("GET", "/v1/check"), ("POST", "/v1/hold")):
    status = ask(method, path).split()[1]
    if status not in ("403", "404", "405"):
        print("answered", method, path, status)
for path in ("/v1/sessions", "/v1/tenants"):
    if name in ask("GET", path) or '"uid":4001' in ask("GET", path).replace(" ", ""):
        print("listed in", path)
"""


def test_a_tenant_learns_and_changes_nothing_of_others():
    with divvytest.Daemon("tenants-see-own: yes\n", system=True) as daemon:
        victim = strangers.start(daemon, VICTIM, OPEN)
        try:
            number = victim.stdout.readline().strip()
            assert strangers.run(daemon, CURIOUS, ASK, env={**os.environ, "SESSION": number}) == ""
        finally:
            victim.kill()
            victim.wait()
