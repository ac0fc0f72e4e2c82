/* Device memory on the lease channel, beside leases (lease.h): SEQPACKET messages of this one form, in
 * host byte order; documented byte by byte in docs/wire.md.
 *
 * What a tenant may allocate (its quota) and what is resident on the device are two things. A buffer
 * is reserved when it is created and placed when a command first uses it.
 *
 *   client:  RESERVE (id, bytes) -------> RESERVED or REFUSED (id)
 *   client:  RETURN (bytes) ------------> reserved bytes that it does not need any more
 *   divvyd:  <-------------- CALL_BACK (id)   give back what is reserved and not used
 *   client:  RETURN (id, bytes) --------> at once, also when there is nothing
 *   client:  PLACE (id, bytes) ---------> PLACED, or NO_ROOM: nobody else can make room
 *   client:  IN_PLACE (ns) -------------> all that the next work needs is there; it took so long
 *   client:  UNPLACE (bytes) -----------> resident bytes that are no longer
 *   divvyd:  <-------------- EVICT (bytes)    somebody else needs that much room
 *
 * Whoever goes takes all of it with it. */
#ifndef DV_WIRE_LEASE_MEMORY_H
#define DV_WIRE_LEASE_MEMORY_H

#include <assert.h>
#include <stdint.h>

#define DV_MEMORY_MAGIC 0x6f6d656du /* "memo" */
#define DV_MEMORY_VERSION 1

enum dv_memory_type {
    DV_MEMORY_RESERVE = 1,
    DV_MEMORY_RETURN = 2,
    DV_MEMORY_PLACE = 3,
    DV_MEMORY_UNPLACE = 4,
    DV_MEMORY_IN_PLACE = 5,
    DV_MEMORY_RESERVED = 16,
    DV_MEMORY_REFUSED = 17,
    DV_MEMORY_CALL_BACK = 18,
    DV_MEMORY_PLACED = 19,
    DV_MEMORY_NO_ROOM = 20,
    DV_MEMORY_EVICT = 21,
};

enum dv_memory_flag {
    DV_MEMORY_NO_MORE = 1, /* UNPLACE: there is nothing else to evict */
    DV_MEMORY_AHEAD = 2,   /* PLACE: its turn has not come; as much as there is, nobody is to make room */
};

struct dv_memory_message {
    uint32_t magic;
    uint16_t version;
    uint16_t type;   /* enum dv_memory_type */
    uint32_t device; /* index in the session's list */
    uint32_t flags;  /* enum dv_memory_flag */
    uint64_t id;     /* of the question that an answer belongs to; 0: none */
    uint64_t bytes;  /* IN_PLACE: nanoseconds */
};
static_assert(sizeof(struct dv_memory_message) == 32, "wire");

/* No device has more; larger numbers are nonsense. */
#define DV_MEMORY_BYTES_MOST (UINT64_C(1) << 48)

#endif
