"""Programs connect, ask and vanish without a pause while divvyd is killed and started. At whatever moment a takeover
happens, nothing is left of them, and an honest session goes on."""

import contextlib

import divvytest
import innocents
import leasechannel as lease
import strangers

STORM = """
import random
sessions = []
while True:
    try:
        session = lease.Session(Daemon)
        session.socket.setblocking(False)
        for kind in random.choices((lease.WANT, lease.JOIN, lease.CANCEL, lease.RELEASE), k=3):
            session.say(kind, random.randrange(4))
        session.say_of_memory(lease.RESERVE, random.randrange(1 << 30), number=1)
        sessions.append(session)
    except (OSError, struct.error):
        time.sleep(0.005)
    if len(sessions) > 8:
        sessions.pop(random.randrange(len(sessions))).close()
"""

# They do not give back what they are granted.
CONFIG = "deadlines:\n  standard: 500ms\n"


def granted(session):
    message = session.hear(1)
    return message if message and message[0] == lease.GRANT else None


def test_nothing_is_left_of_a_storm():
    with divvytest.Daemon(CONFIG, system=True) as daemon, contextlib.ExitStack() as stack:
        honest = lease.Session(daemon)
        stack.callback(honest.close)
        for _ in range(2):
            child = strangers.start(daemon, innocents.ATTACKER, STORM)
            stack.callback(child.wait)
            stack.callback(child.kill)
        for _ in range(5):
            daemon.kill()
            daemon.start()
            honest.answer_state(1)
            honest.say(lease.WANT)
            # a recall of the last grant can have crossed its release
            grant = divvytest.wait_for(lambda: granted(honest), 30,
                                       "an honest session waits for ever after a restart")
            honest.say(lease.RELEASE, grant[1])
        stack.pop_all().close()
        divvytest.wait_for(lambda: not daemon.sessions(), 20, lambda: str(daemon.sessions()))
        daemon.cli("check")   # fails if the ledger is wrong
