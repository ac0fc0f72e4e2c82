/* Device memory: asks divvyd for the right to allocate, and to be resident. Uses the channel of the
 * lease client (lease.h). The functions can be called from any thread, except from its callbacks.
 * Without a daemon everything is allowed, or nothing where a lease of dv_lease_connect stops without divvyd. */
#ifndef DIVVY_MEMORY_H
#define DIVVY_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dv_lease;

/* Reserves `bytes` more. Waits for the answer. Returns 0 or -ENOMEM. */
int dv_memory_reserve(struct dv_lease *lease, uint32_t device, uint64_t bytes);
/* Returns reserved bytes that are not needed any more. */
void dv_memory_return(struct dv_lease *lease, uint32_t device, uint64_t bytes);

/* The holder of a device begins to bring in the objects of its next work, and asks for `bytes` more room
 * (0: then there is no answer). The callback `placed` gets the answer. The slice does not run meanwhile.
 * in_line: the caller has nothing left that it could evict itself, and waits until others have made room;
 * if they cannot now, it is recalled when others have work, and asks again after its next grant. A newer
 * question replaces an older one. Returns the question's id, which is above those of all earlier ones;
 * the answer can come before it is returned. */
uint64_t dv_memory_place(struct dv_lease *lease, uint32_t device, uint64_t bytes, bool in_line);
/* The same for a session that waits for the device: it gets as much room as is free, and `placed` can
 * report less than was asked for. */
uint64_t dv_memory_place_ahead(struct dv_lease *lease, uint32_t device, uint64_t bytes);
/* The objects are resident, or bringing them in was given up. */
void dv_memory_in_place(struct dv_lease *lease, uint32_t device, uint64_t took_ns);
/* `bytes` of room are not needed any more. evict_id: of the newest `evict` that the caller knows of;
 * 0: it was not asked for them. */
void dv_memory_unplace(struct dv_lease *lease, uint32_t device, uint64_t evict_id, uint64_t bytes);
/* `bytes` of objects to evict have been copied out: the eviction makes progress. */
void dv_memory_moves(struct dv_lease *lease, uint32_t device, uint64_t evict_id, uint64_t bytes);
/* Of the bytes that all `evict` up to this one asked for, `bytes` stay: nothing else can be evicted. */
void dv_memory_keeps(struct dv_lease *lease, uint32_t device, uint64_t evict_id, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
