"""A session names the serial of another's grant, to take the device from it."""

import divvytest
import leasechannel as lease


def test_only_the_holder_gives_back():
    with divvytest.Daemon() as daemon:
        holder, thief, third = (lease.Session(daemon, own_process=True) for _ in range(3))
        holder.say(lease.WANT)
        serial = holder.granted()
        third.say(lease.WANT)
        for number in range(serial + 3):
            thief.say(lease.RELEASE, number)
            thief.say(lease.RELEASE, number, flags=lease.AGAIN)
        assert third.hear(lease.QUIET_S) is None, "another session gave the device back"
        holder.say(lease.RELEASE, serial)
        while third.hear()[0] != lease.GRANT:
            pass
        for session in (holder, thief, third):
            session.close()
