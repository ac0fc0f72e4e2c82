"""A program writes to its shared memory without end, so that every other writer waits for it."""

import os

import divvytest
import innocents
import strangers
from innocents import ATTACKER

QUOTA = "tenants: [{memory: 64MiB}]\n"

# Each write has the file to itself for as long as a gigabyte takes.
WRITERS = """
import threading
sys.path.insert(0, sys.argv[3])
from test_hostile import RawClient
client = RawClient(Daemon)
data = memoryview(bytearray(2 << 20))
def write():
    while True:
        os.pwritev(client.fd, [data] * 512, 64 << 20)
for _ in range(12):
    threading.Thread(target=write, daemon=True).start()
print("writes", flush=True)
time.sleep(1000)
"""


def test_divvyd_waits_for_no_writer():
    """Nor when it tells the program why its session ends."""
    with divvytest.Daemon(QUOTA, system=True) as daemon:
        attacker = strangers.start(daemon, ATTACKER, WRITERS,
                                   os.path.join(divvytest.REPOSITORY, "tests", "system"))
        try:
            assert attacker.stdout.readline() == "writes\n"
            innocents.assert_answers(daemon, seconds=9)
            assert "the memory that it shares with its program has taken" in daemon.log
        finally:
            attacker.kill()
            attacker.communicate()


# Makes the kernel give it gigabytes, which a process has to free.
FILL = """
sys.path.insert(0, sys.argv[3])
from test_hostile import RawClient
while True:
    client = RawClient(Daemon)
    os.posix_fallocate(client.fd, 0, 3 << 30)
    client.close()
    print("filled", flush=True)
"""


def test_divvyd_does_not_free_the_memory_of_sessions():
    with divvytest.Daemon(system=True) as daemon:
        attacker = strangers.start(daemon, ATTACKER, FILL,
                                   os.path.join(divvytest.REPOSITORY, "tests", "system"))
        try:
            assert attacker.stdout.readline() == "filled\n"
            before = innocents.processor_seconds(daemon.pid)
            for _ in range(3):
                assert attacker.stdout.readline() == "filled\n"
            assert innocents.processor_seconds(daemon.pid) - before < 0.3   # some 0.5 s if it freed them
        finally:
            attacker.kill()
            attacker.communicate()
