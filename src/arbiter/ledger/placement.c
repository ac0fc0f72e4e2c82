/* The order in which a session sees its devices: programs mostly take the first, so the least loaded device
 * comes first. */
#include <stdlib.h>

#include "src/arbiter/ledger/private.h"

/* A device with less than 1/ROOMY_PART of its memory free is crowded: programs would swap. */
#define ROOMY_PART 8

struct candidate {
    struct dvd_list_index index;
    bool is_full;          /* the request cannot be kept on it */
    uint32_t group;        /* of devices that are alike */
    bool is_crowded;       /* little of its memory is free */
    uint64_t share_ppm;    /* of its time that one more session may expect */
    uint64_t memory_bytes; /* that are not reserved */
};

static struct candidate describe(const struct dvd_lessee *lessee, const struct dvd_tenant *tenant, uint32_t request_ppm,
                                 struct dvd_list_index index)
{
    const struct dvd_device *device = dvd_lessee_device(lessee, index);
    uint64_t promised = dvd_promised_to_others(device, tenant);
    struct candidate candidate = {.index = index,
                                  .is_full = promised + request_ppm > DV_PPM,
                                  .group = device->terms.group,
                                  .memory_bytes = dvd_excess(device->terms.capacity_bytes, 0, device->memory.reserved)};

    candidate.is_crowded = candidate.memory_bytes < device->terms.capacity_bytes / ROOMY_PART;
    candidate.share_ppm = (DV_PPM - promised) / (device->sessions + 1);
    return candidate;
}

/* A device of another kind comes first only if no other can keep the request: a program that is meant for the
 * first kind should not run on the second just because that is idle. */
static int compare(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->is_full != y->is_full)
        return x->is_full - y->is_full;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->is_crowded != y->is_crowded)
        return x->is_crowded - y->is_crowded;
    if (x->share_ppm != y->share_ppm)
        return x->share_ppm > y->share_ppm ? -1 : 1;
    if (x->memory_bytes != y->memory_bytes)
        return x->memory_bytes > y->memory_bytes ? -1 : 1;
    return x->index.at < y->index.at ? -1 : x->index.at > y->index.at;
}

void dvd_placement_order(const struct dvd_lessee *lessee, const struct dvd_tenant *tenant, uint32_t request_ppm,
                         struct dvd_list_index order[DV_MAX_DEVICES])
{
    struct candidate candidates[DV_MAX_DEVICES];

    for (uint32_t i = 0; i < lessee->device_count; i++)
        candidates[i] = describe(lessee, tenant, request_ppm, DVD_LIST_INDEX(i));
    if (!lessee->ledger->terms.keeps_order)
        qsort(candidates, lessee->device_count, sizeof candidates[0], compare);
    for (uint32_t i = 0; i < lessee->device_count; i++)
        order[i] = candidates[i].index;
}
