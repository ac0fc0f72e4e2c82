/* What a worker leaves in the session's store for the one that follows it. The store is a file in memory of its own,
 * which divvyd makes when the session is parked for the first time; the client does not have it.
 *
 *   0          struct dv_parked_head
 *   ...        contents of memory objects, in pages of their own
 *   head.at    entries, one after the other, to head.at + head.bytes
 *
 * An entry is a struct dv_parked_entry, then `message_bytes` bytes, then `data_bytes` bytes, each padded to 8. The
 * follower takes them in from the first to the last. It checks them as it checks what a client sends. Documented byte
 * by byte in docs/wire.md. */
#ifndef DV_WIRE_SESSION_PARKED_H
#define DV_WIRE_SESSION_PARKED_H

#include <assert.h>
#include <stdint.h>

#define DV_PARKED_MAGIC 0x6b726170u /* "park" */
#define DV_PARKED_VERSION 1

#define DV_PARKED_BYTES_MAX (UINT64_C(4) << 30) /* of the entries */

struct dv_parked_head {
    uint32_t magic;
    uint32_t version;
    uint64_t at, bytes; /* of the entries */
    uint64_t entries;
    uint64_t reserved[4]; /* zero */
};
static_assert(sizeof(struct dv_parked_head) == 64, "wire");

enum dv_parked_kind {
    DV_PARKED_MESSAGE = 1, /* a record of the command ring; data: what it names in the arena otherwise */
    DV_PARKED_CONTENT = 2, /* of memory object `id`: the data, or what is in the store at `at` */
    DV_PARKED_FAILED = 3,  /* event `id` ended with `status` */
    DV_PARKED_ACCOUNT = 4, /* of device `id`: `at` bytes the client has taken, `value` it has claimed, for objects
                              that it will create */
    DV_PARKED_KINDS
};

struct dv_parked_entry {
    uint32_t kind; /* enum dv_parked_kind */
    uint32_t id;
    int32_t status;
    uint32_t message_bytes;
    uint64_t data_bytes;
    uint64_t at;
    uint64_t value;
};
static_assert(sizeof(struct dv_parked_entry) == 40, "wire");

#endif
