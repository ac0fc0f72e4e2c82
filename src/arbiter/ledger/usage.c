/* Shares over sliding windows (see usage.h). */
#include "src/arbiter/ledger/usage.h"

#include <stdbool.h>

#define FINE_NS (100 * DV_NS_PER_MS)
#define COARSE_NS DV_NS_PER_S

/* Makes bucket number `wanted` the newest, with nothing in those that it passes over. */
static void advance(uint32_t *buckets, unsigned count, uint64_t *newest, uint64_t wanted)
{
    if (wanted <= *newest)
        return;
    uint64_t first = wanted - *newest >= count ? wanted - count + 1 : *newest + 1;
    for (uint64_t i = first; i <= wanted; i++)
        buckets[i % count] = 0;
    *newest = wanted;
}

static void add(uint32_t *buckets, unsigned count, uint64_t *newest, dv_ns span, dv_ns from, dv_ns to)
{
    advance(buckets, count, newest, to / span);
    uint64_t oldest = *newest >= count - 1 ? *newest - (count - 1) : 0;
    for (uint64_t i = from / span > oldest ? from / span : oldest; i <= to / span; i++) {
        dv_ns begin = i * span > from ? i * span : from;
        dv_ns end = (i + 1) * span < to ? (i + 1) * span : to;
        if (end > begin)
            buckets[i % count] += (uint32_t)((end - begin) / DV_NS_PER_US);
    }
}

void dvd_usage_add(struct dvd_usage *usage, dv_ns from, dv_ns to)
{
    if (to <= from)
        return;
    add(usage->fine, DVD_USAGE_FINE, &usage->fine_newest, FINE_NS, from, to);
    add(usage->coarse, DVD_USAGE_COARSE, &usage->coarse_newest, COARSE_NS, from, to);
}

/* Buckets count in full; the oldest, if the window covers it in part, in proportion. */
static uint64_t sum(const uint32_t *buckets, unsigned count, uint64_t newest, dv_ns span, dv_ns from, dv_ns to)
{
    uint64_t oldest = newest >= count - 1 ? newest - (count - 1) : 0;
    uint64_t total_us = 0;

    for (uint64_t i = from / span > oldest ? from / span : oldest; i <= newest && i <= to / span; i++) {
        uint64_t us = buckets[i % count];
        if (i * span < from)
            us = us * ((i + 1) * span - from) / span;
        total_us += us;
    }
    return total_us;
}

uint32_t dvd_usage_ppm(const struct dvd_usage *usage, unsigned window_s, dv_ns now)
{
    dv_ns window = window_s * DV_NS_PER_S;
    dv_ns from = now > window ? now - window : 0;
    if (from < usage->since)
        from = usage->since;
    if (now < from + FINE_NS) /* a shorter time counts as this long */
        from = now > FINE_NS ? now - FINE_NS : 0;
    uint64_t us = window_s == 1 ? sum(usage->fine, DVD_USAGE_FINE, usage->fine_newest, FINE_NS, from, now)
                                : sum(usage->coarse, DVD_USAGE_COARSE, usage->coarse_newest, COARSE_NS, from, now);
    uint64_t ppm = us * 1000 * 1000000 / (now - from);
    return ppm > 1000000 ? 1000000 : (uint32_t)ppm; /* the oldest bucket counts in proportion */
}
