"""A user sends divvyd a descriptor that takes an hour to close: a TCP socket that waits for its peer."""

import pytest

import divvytest
import innocents
import strangers
from innocents import ATTACKER

LINGER = """
import array, threading
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(1)
tcp = socket.socket()
tcp.connect(listener.getsockname())
peer, _ = listener.accept()
tcp.setblocking(False)
try:
    while True:
        tcp.send(b"x" * 65536)   # which its peer never reads
except BlockingIOError:
    pass
tcp.setblocking(True)
tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
if sys.argv[3] == "channel":
    channel = lease.Session(Daemon).socket
else:
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel.connect(os.path.join(Daemon.dir, "session.sock"))
try:
    channel.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [tcp.fileno()]))])
    # not here: if divvyd has dropped it already, this close is the last one and waits for an hour
    threading.Thread(target=os.close, args=[tcp.detach()], daemon=True).start()
except PermissionError:
    pass   # the kernel refuses it for divvyd
if sys.argv[4] == "unread":
    channel.close()
print("sent", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("then", ["stays", "unread"])
@pytest.mark.parametrize("where", ["channel", "hello"])
def test_divvyd_does_not_wait_for_a_close(where, then):
    with divvytest.Daemon(system=True) as daemon:
        attacker = strangers.start(daemon, ATTACKER, LINGER, where, then)
        try:
            assert attacker.stdout.readline() == "sent\n"
            innocents.assert_answers(daemon)
        finally:
            attacker.kill()
            attacker.communicate()
