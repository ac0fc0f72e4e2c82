/* Placement (see placement.h). */
#include "src/arbiter/ledger/placement.h"

#include <stdlib.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/ledger/tenants.h"

/* A device with less of its memory free than this part is full: programs on it would swap. */
#define ROOMY_PART 8

struct candidate {
    uint8_t index;          /* in the session's list */
    bool full;              /* the request cannot be kept on it */
    uint8_t group;          /* of devices that are alike */
    bool crowded;           /* little of its memory is free */
    uint64_t share_ppm;     /* of its time that one more session may expect */
    uint64_t memory_bytes;  /* that are not reserved */
};

static struct candidate describe(const struct dv_arbiter *arbiter, const struct dv_session *session,
                                 const struct dv_tenant *tenant, uint32_t request_ppm,
                                 uint32_t index)
{
    uint32_t device = session->device_indices[index];
    const struct dv_lease_device *there = &arbiter->leases.devices[device];
    uint64_t capacity = dv_memory_capacity(arbiter, device);
    uint64_t reserved = there->memory.reserved;
    uint64_t promised = dv_tenants_promised_to_others(arbiter, tenant, device);
    struct candidate candidate = {.index = (uint8_t)index,
                                  .full = promised + request_ppm > DV_PPM,
                                  .group = arbiter->devices.groups[device],
                                  .memory_bytes = capacity > reserved ? capacity - reserved : 0};

    candidate.crowded = candidate.memory_bytes < capacity / ROOMY_PART;
    candidate.share_ppm = (DV_PPM - promised) / (there->sessions + 1);
    return candidate;
}

/* A device of another kind comes first only where a request can be kept on no other: a program that is
 * meant for the first kind should not find itself on the second because that is idle. */
static int compare(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->full != y->full)
        return x->full - y->full;
    if (x->group != y->group)
        return x->group - y->group;
    if (x->crowded != y->crowded)
        return x->crowded - y->crowded;
    if (x->share_ppm != y->share_ppm)
        return x->share_ppm > y->share_ppm ? -1 : 1;
    if (x->memory_bytes != y->memory_bytes)
        return x->memory_bytes > y->memory_bytes ? -1 : 1;
    return x->index - y->index;
}

void dv_placement_order(const struct dv_arbiter *arbiter, const struct dv_session *session,
                        const struct dv_tenant *tenant, uint32_t request_ppm,
                        uint8_t order[DV_MAX_DEVICES])
{
    struct candidate candidates[DV_MAX_DEVICES];

    for (uint32_t i = 0; i < session->device_count; i++)
        candidates[i] = describe(arbiter, session, tenant, request_ppm, i);
    if (!arbiter->config.devices_fixed)
        qsort(candidates, session->device_count, sizeof candidates[0], compare);
    for (uint32_t i = 0; i < session->device_count; i++)
        order[i] = candidates[i].index;
}
