/* After divvyd has been restarted, on the lease channel beside leases and memory (lease.h, memory.h):
 * the new daemon asks every session what it holds and what it waits for. SEQPACKET messages of this one
 * form, in host byte order; documented byte by byte in docs/wire.md.
 *
 *   divvyd:  <---------------------- ASK (id)
 *   client:  STATE (id, device, ...) --->   one for each device, at once
 *
 * The channel is the same as before, so earlier messages of both sides are read earlier. Messages of a
 * client before its answer were meant for the daemon that is gone: the answer alone counts. */
#ifndef DV_WIRE_LEASE_SYNC_H
#define DV_WIRE_LEASE_SYNC_H

#include <assert.h>
#include <stdint.h>

#define DV_SYNC_MAGIC 0x636e7973u /* "sync" */
#define DV_SYNC_VERSION 2

enum dv_sync_type {
    DV_SYNC_STATE = 1,
    DV_SYNC_ASK = 16,
};

enum dv_sync_flag {
    DV_SYNC_HOLDS = 1,    /* has the device, by the grant `serial` */
    DV_SYNC_WAITS = 2,    /* wants it */
    DV_SYNC_BRINGS = 4,   /* holds it and brings memory in */
    DV_SYNC_AHEAD = 8,    /* place_bytes were asked for before a grant */
    DV_SYNC_IN_LINE = 16, /* it waits in line for them (memory.h) */
};

struct dv_sync_message {
    uint32_t magic;
    uint16_t version;
    uint16_t type;   /* enum dv_sync_type */
    uint32_t device; /* STATE: index in the session's list */
    uint32_t flags;  /* STATE: enum dv_sync_flag */
    uint64_t id;     /* of the question, and so of the answer */
    uint64_t serial;
    uint64_t reserved;    /* bytes that it has reserved */
    uint64_t placed;      /* room on the device that it has */
    uint64_t asked_id;    /* the reservation that it waits for; 0: none */
    uint64_t asked;       /* how many bytes */
    uint64_t place_bytes; /* room that it waits for; 0: none */
    uint64_t place_id;    /* of that question */
    uint64_t evicting;    /* bytes that it was asked to evict and has not so far */
};
static_assert(sizeof(struct dv_sync_message) == 88, "wire");

#endif
