/* How long something took: a histogram with four buckets per octave of nanoseconds. */
#ifndef DVD_LEDGER_HISTOGRAM_H
#define DVD_LEDGER_HISTOGRAM_H

#include <stdint.h>

#include "src/base/clock.h"

#define DVD_HISTOGRAM_BUCKETS 128

struct dvd_histogram {
    uint64_t count;
    uint32_t buckets[DVD_HISTOGRAM_BUCKETS];
};

void dvd_histogram_add(struct dvd_histogram *histogram, dv_ns took);
/* The duration that `percent` of them did not exceed, rounded up by at most a fifth. */
dv_ns dvd_histogram_percentile(const struct dvd_histogram *histogram, unsigned percent);

#endif
