/* Device memory on the lease channel, beside leases (lease.h): SEQPACKET messages of this one form, in
 * host byte order; documented byte by byte in docs/wire.md.
 *
 * A tenant's quota (how much it may allocate) and its resident memory are two things. A buffer
 * is reserved when it is created and placed when a command first uses it.
 *
 *   client:  RESERVE (id, bytes) -------> RESERVED or REFUSED (id)
 *   client:  RETURN (bytes) ------------> reserved bytes that it does not need any more
 *   divvyd:  <-------------- CALL_BACK (id)   give back reserved bytes that are not used
 *   client:  RETURN (id, bytes) --------> at once, also when there is nothing
 *   client:  PLACE (id, bytes) ---------> PLACED or NO_ROOM (id)
 *   client:  IN_PLACE (ns) -------------> all that the next work needs is there; it took ns
 *   divvyd:  <-------------- EVICT (id, bytes)    others need that much more room
 *   client:  UNPLACE (id, bytes) -------> bytes that are no longer resident
 *   client:  MOVES (id, bytes) ---------> bytes copied out of what is to leave
 *   client:  KEEPS (id, bytes) ---------> bytes of the EVICTs that do not leave now
 *
 * PLACE. A session has one question for each device. The client chooses its number, above all earlier
 * ones; a newer question replaces an older one, which then gets no answer. The room that PLACED grants
 * counts whatever its number is; as an answer, PLACED and NO_ROOM count only for the question that they
 * name. A client first asks for all that would be good to have. After NO_ROOM it asks for what its next
 * command needs. Then it evicts what it can spare itself, and only then it asks with WAITS. From then on
 * it waits in line. The answer is NO_ROOM only when its resident bytes and the request exceed the device
 * or its tenant's quota, or when the sessions that have the room have been asked and have kept it for
 * longer than the device's `room-patience`. A client in line that is recalled gives the device back, and
 * asks anew under its next grant.
 *
 * EVICT. Every EVICT has a number above those of all earlier ones, also of an earlier daemon (numbers
 * are times of CLOCK_MONOTONIC). Bytes add up: each EVICT asks for its bytes beside those of earlier ones.
 * An answer names the newest EVICT that the client had received when it made the answer; an UNPLACE
 * without an EVICT names 0. Bytes of an UNPLACE always count. KEEPS subtracts its bytes from those asked
 * for. divvyd believes that the session cannot give more only when KEEPS names the newest EVICT, and the
 * session has neither given the device back nor been granted room since that was sent. MOVES shows that
 * a large object is on its way: time in which bytes move does not make a session late. It counts for as
 * many bytes as the session has on the device, and they do not count again when they are unplaced.
 *
 * All of it ends with the session. */
#ifndef DV_WIRE_LEASE_MEMORY_H
#define DV_WIRE_LEASE_MEMORY_H

#include <assert.h>
#include <stdint.h>

#define DV_MEMORY_MAGIC 0x6f6d656du /* "memo" */
#define DV_MEMORY_VERSION 2

enum dv_memory_type {
    DV_MEMORY_RESERVE = 1,
    DV_MEMORY_RETURN = 2,
    DV_MEMORY_PLACE = 3,
    DV_MEMORY_UNPLACE = 4,
    DV_MEMORY_IN_PLACE = 5,
    DV_MEMORY_MOVES = 6,
    DV_MEMORY_KEEPS = 7,
    DV_MEMORY_RESERVED = 16,
    DV_MEMORY_REFUSED = 17,
    DV_MEMORY_CALL_BACK = 18,
    DV_MEMORY_PLACED = 19,
    DV_MEMORY_NO_ROOM = 20,
    DV_MEMORY_EVICT = 21,
};

enum dv_memory_flag {
    /* PLACE: */
    DV_MEMORY_AHEAD = 2, /* before its grant: only free room, no session is to evict for it */
    DV_MEMORY_WAITS = 4, /* it has nothing left that it could evict itself, and waits in line */
};

struct dv_memory_message {
    uint32_t magic;
    uint16_t version;
    uint16_t type;   /* enum dv_memory_type */
    uint32_t device; /* index in the session's list */
    uint32_t flags;  /* enum dv_memory_flag */
    uint64_t id;     /* of the question, and of the question that an answer belongs to; 0: none */
    uint64_t bytes;  /* IN_PLACE: nanoseconds */
};
static_assert(sizeof(struct dv_memory_message) == 32, "wire");

/* No device has more; larger numbers are invalid. */
#define DV_MEMORY_BYTES_MAX (UINT64_C(1) << 48)

#endif
