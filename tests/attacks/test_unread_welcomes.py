"""A user never reads its welcomes. The kernel counts the descriptors in them as divvyd's, and bounds them."""


import divvytest
import strangers
from innocents import ATTACKER

DESCRIPTORS = 512   # that divvyd may have, in flight or not
ROUNDS = 560
SESSIONS_PER_USER = 64

# Its child opens a session and is gone: the session is over, and the welcome is still there.
UNREAD = """
import select
path, kept, refused = os.path.join(Daemon.dir, "session.sock"), [], 0
hello = lease.HELLO_2.pack(lease.MAGIC, 2, 2, 1, 0, 0, 0, 0, 0, 0, b"")
for _ in range(int(sys.argv[3])):
    welcome = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        welcome.connect(path)
        welcome.send(hello)
        select.select([welcome], [], [], 30)
        os._exit(0)
    os.waitpid(child, 0)
    data, rights, _, _ = welcome.recvmsg(4096, 64, socket.MSG_PEEK)
    refused += not rights
    for _, _, descriptor in rights:
        os.close(struct.unpack("i", descriptor)[0])
    kept.append(welcome)
    if refused == 8:
        break
    time.sleep(0.01)
print(len(kept), refused, flush=True)
sys.stdin.readline()
for welcome in kept:
    welcome.close()
print("closed", flush=True)
sys.stdin.readline()
"""


def test_others_still_get_workers(program, tmp_path):
    start = tmp_path / "divvyd"
    start.write_text('#!/bin/sh\nulimit -n %d\nexec "%s" "$@"\n' % (DESCRIPTORS, divvytest.binary("divvyd")))
    start.chmod(0o755)
    daemon = divvytest.Daemon(system=True)
    daemon.program = str(start)
    with daemon:
        attacker = strangers.start(daemon, ATTACKER, UNREAD, ROUNDS)
        try:
            kept, refused = map(int, attacker.stdout.readline().split())
            assert refused and kept - refused <= SESSIONS_PER_USER, (kept, refused)
            assert daemon.run([program("compute"), "1", "0"]).returncode == 0
            # once they are gone the attacker may have sessions again
            attacker.stdin.write("\n")
            attacker.stdin.flush()
            assert attacker.stdout.readline() == "closed\n"
            divvytest.wait_for(lambda: daemon.run([program("compute"), "1", "0"], user=ATTACKER, group=ATTACKER,
                                                  extra_groups=[]).returncode == 0, 20, "no session any more")
        finally:
            attacker.kill()
            attacker.communicate()
