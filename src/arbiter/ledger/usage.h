/* How much of a device's time a tenant had lately: sums over the last 1, 10 and 60 seconds. */
#ifndef DVD_LEDGER_USAGE_H
#define DVD_LEDGER_USAGE_H

#include <stdint.h>

#include "src/base/clock.h"

#define DVD_USAGE_FINE 12   /* buckets of 100 ms: the last second, the one under way, one to spare */
#define DVD_USAGE_COARSE 62 /* buckets of 1 s */

/* Rings of buckets; each bucket holds the microseconds that fell into its span. */
struct dvd_usage {
    dv_ns since;                         /* windows do not reach further back */
    uint64_t fine_newest, coarse_newest; /* numbers of the newest buckets since the clock's zero */
    uint32_t fine[DVD_USAGE_FINE], coarse[DVD_USAGE_COARSE];
};

/* Device time from `from` to `to` was the tenant's; times do not go back by more than a hold. */
void dvd_usage_add(struct dvd_usage *usage, dv_ns from, dv_ns to);
/* The part, in parts per million, of the window that ends at `now` (and begins at `since` if that is
 * later); window_s is 1 to 60. */
uint32_t dvd_usage_ppm(const struct dvd_usage *usage, unsigned window_s, dv_ns now);

#endif
