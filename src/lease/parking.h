/* Parking, in the worker's lease client. */
#ifndef DV_LEASE_PARKING_H
#define DV_LEASE_PARKING_H

#include <stdint.h>

#include "include/divvy/lease.h"
#include "src/wire/lease/lease.h"

/* On the lease's thread: the session is to be parked in a store of so many bytes, whose descriptor it takes over; -1:
 * no longer. */
typedef void dv_lease_on_park(void *user, int store, uint64_t bytes);

/* From now on the session can be parked. */
void dv_lease_can_park(struct dv_lease *lease, dv_lease_on_park *on_park);
/* Whether there is a divvyd at the other end. */
bool dv_lease_has_daemon(struct dv_lease *lease);
/* Tells divvyd that the session is parked, or why it is not. */
void dv_lease_answer_park(struct dv_lease *lease, enum dv_park_reason reason, uint64_t bytes);

#endif
