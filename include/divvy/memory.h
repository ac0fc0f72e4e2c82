/* Device memory: asks divvyd for the right to allocate, and to be resident. Goes over the channel of
 * the lease client (lease.h) and may be called from any thread, except from its callbacks. Without a
 * daemon everything is allowed. */
#ifndef DIVVY_MEMORY_H
#define DIVVY_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct dv_lease;

/* May so much more be allocated? Waits for the answer. Returns 0 or -ENOMEM. */
int dv_memory_reserve(struct dv_lease *lease, uint32_t device, uint64_t bytes);
/* Reserved bytes that are not needed any more. */
void dv_memory_return(struct dv_lease *lease, uint32_t device, uint64_t bytes);

/* The holder of a device begins to bring in what its next work needs, and asks for so much more room
 * (perhaps none); the answer comes to the callback `placed`. Its slice does not run meanwhile. */
void dv_memory_place(struct dv_lease *lease, uint32_t device, uint64_t bytes);
/* The same for somebody who waits for the device: as much room as is free, and `placed` may tell of
 * less than was asked for. */
void dv_memory_place_ahead(struct dv_lease *lease, uint32_t device, uint64_t bytes);
/* It is there, or has been given up. */
void dv_memory_in_place(struct dv_lease *lease, uint32_t device, uint64_t took_ns);
/* So many bytes of room are not needed any more. no_more: there is nothing else to evict. */
void dv_memory_unplace(struct dv_lease *lease, uint32_t device, uint64_t bytes, bool no_more);

#endif
