"""After a restart a session tells the next divvyd of more than it was given."""

import random

import divvytest
import leasechannel as lease

ALL_FLAGS = 0xffffffff
# One that claims to hold the device is asked to give it back as any holder is.
CONFIG = "deadlines:\n  standard: 500ms\n"


def lie(session, rng):
    """Answers the question for its state with numbers that the daemon before never gave."""
    session.socket.settimeout(lease.PROMPT_S)
    while len(asked := session.socket.recv(4096)) != lease.SYNC_MESSAGE.size:
        pass
    number = lease.SYNC_MESSAGE.unpack(asked)[5]
    for device in range(2):
        numbers = [rng.choice((0, 1, 1 << 20, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)) for _ in range(8)]
        flags = rng.choice((0, 1, 2, 3, 15, 255, ALL_FLAGS))
        session.socket.send(lease.SYNC_MESSAGE.pack(lease.SYNC_MAGIC, lease.SYNC_VERSION, lease.STATE,
                                                    device, flags, number, *numbers))


def test_a_liar_gets_nothing_by_a_restart():
    rng = random.Random(7)
    with divvytest.Daemon(CONFIG) as daemon:
        for _ in range(4):
            honest, liar = (lease.Session(daemon, own_process=True) for _ in range(2))
            honest.say_of_memory(lease.RESERVE, 1 << 20, number=1)
            assert honest.hear_of_memory()[0] == lease.RESERVED
            daemon.kill()
            daemon.start()
            lie(liar, rng)
            honest.answer_state(1)
            honest.say(lease.WANT)
            honest.given_back.clear()
            divvytest.wait_for(lambda: (honest.hear(1) or (0,))[0] == lease.GRANT, 20,
                               "a liar keeps the device from others")
            tenants = {s["id"]: s for s in daemon.sessions()}
            # what it says that it has asked for is reserved now, as far as its quota goes
            assert tenants[liar.id]["memory_bytes"] <= 1 << 20
            daemon.cli("check")
            honest.close()
            liar.close()
            divvytest.wait_for(lambda: not daemon.sessions(), 10, "sessions are left")
