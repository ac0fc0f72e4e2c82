/* Any message of the lease channel, and which kind it is. */
#ifndef DV_WIRE_LEASE_MESSAGE_H
#define DV_WIRE_LEASE_MESSAGE_H

#include <sys/types.h>

#include "src/wire/lease/lease.h"
#include "src/wire/lease/memory.h"
#include "src/wire/lease/sync.h"

union dv_channel_message {
    uint32_t magic; /* the first field of each */
    struct dv_lease_message lease;
    struct dv_memory_message memory;
    struct dv_sync_message sync;
};

/* The magic of a message that was received with this length. 0: there is no such kind, or the
 * length is not that of the kind. */
static inline uint32_t dv_channel_kind(const union dv_channel_message *m, ssize_t bytes)
{
    if ((m->magic == DV_LEASE_MAGIC && bytes == (ssize_t)sizeof m->lease) ||
        (m->magic == DV_MEMORY_MAGIC && bytes == (ssize_t)sizeof m->memory) ||
        (m->magic == DV_SYNC_MAGIC && bytes == (ssize_t)sizeof m->sync))
        return m->magic;
    return 0;
}

#endif
