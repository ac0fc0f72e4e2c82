/* The other end of a lease channel: what a scripted divvyd hears and says. */
#ifndef DV_TESTS_UNIT_LEASE_PEER_H
#define DV_TESTS_UNIT_LEASE_PEER_H

#include <poll.h>
#include <sys/socket.h>

#include "src/base/clock.h"
#include "src/wire/lease/lease.h"
#include "tests/unit/unit.h"

#define PEER_LIMIT_MS 20000

/* The type of the next message; fails if none comes. */
static inline int peer_hear(int socket)
{
    struct pollfd fd = {.fd = socket, .events = POLLIN};
    struct dv_lease_message m;

    assert_int_equal(poll(&fd, 1, PEER_LIMIT_MS), 1);
    assert_int_equal(recv(socket, &m, sizeof m, 0), sizeof m);
    return m.type;
}

static inline void peer_grant(int socket, uint64_t serial, uint32_t flags, uint64_t linger_ns)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = DV_LEASE_GRANT,
                                 .flags = flags,
                                 .serial = serial,
                                 .slice_ns = 10 * DV_NS_PER_S,
                                 .linger_ns = linger_ns};

    assert_int_equal(send(socket, &m, sizeof m, 0), sizeof m);
}

#endif
