/* Histograms of durations (see histogram.h). */
#include "src/arbiter/ledger/histogram.h"

static unsigned bucket_of(dv_ns took)
{
    if (took < 4)
        return (unsigned)took;
    unsigned octave = 63 - (unsigned)__builtin_clzll(took);
    unsigned bucket = octave * 4 + (unsigned)(took >> (octave - 2) & 3) - 4;
    return bucket < DVD_HISTOGRAM_BUCKETS ? bucket : DVD_HISTOGRAM_BUCKETS - 1;
}

static dv_ns upper_edge(unsigned bucket)
{
    if (bucket < 4)
        return bucket;
    unsigned octave = bucket / 4 + 1;
    return ((UINT64_C(1) << octave) | ((dv_ns)(bucket % 4) << (octave - 2))) + (UINT64_C(1) << (octave - 2)) - 1;
}

void dvd_histogram_add(struct dvd_histogram *histogram, dv_ns took)
{
    histogram->count++;
    histogram->buckets[bucket_of(took)]++;
}

dv_ns dvd_histogram_percentile(const struct dvd_histogram *histogram, unsigned percent)
{
    uint64_t wanted = (histogram->count * percent + 99) / 100, seen = 0;

    for (unsigned i = 0; i < DVD_HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= wanted && seen > 0)
            return upper_edge(i);
    }
    return 0;
}
