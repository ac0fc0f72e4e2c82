/* How large the next part of a cut kernel should be, from what its earlier parts took. Pure code: it reads no clock and
 * calls no driver. */
#ifndef DV_WORKER_OPENCL_CUT_SIZE_H
#define DV_WORKER_OPENCL_CUT_SIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "src/wire/lease/lease.h"

/* Parts as small as a work-group, whatever they cost: for tests of what cutting changes. */
#define DVK_CUT_ALWAYS_NS DV_LEASE_PART_SMALLEST

/* What is known of a kernel's speed. */
struct dvk_pace {
    double item_ns;      /* for each work item; 0: not known */
    double slow_item_ns; /* of the slowest recent launches: what arguments can make of it */
    bool sure;           /* a part that was long enough has been measured */
    /* sums over recent launches and parts, older ones count less */
    double weight, items, ns, items_squared, items_ns, ns_squared;
    double launch_ns; /* what a part costs beyond its items, at least; negative: not known */
};

/* The part that is asked for. */
struct dvk_cut_wish {
    uint64_t target_ns;   /* how long it should be */
    uint64_t slice_ns;    /* how long it can be, to end within the slice; 0: no matter */
    uint32_t cost_ppm;    /* how much of the time cutting may cost */
    double group_items;   /* work items of a group */
    uint64_t groups_left; /* that are not handed over */
    uint64_t last_groups; /* of the part before; 0: it is the first */
    uint32_t units;       /* groups that the device runs at the same time */
    bool odd;             /* it is to be smaller, so that the cost of a part can be told from that of its items */
};

void dvk_pace_init(struct dvk_pace *pace);
/* A part, or a whole launch, of so many items took so long. */
void dvk_pace_note(struct dvk_pace *pace, double items, uint64_t took_ns);
/* How long a part is to be, so that cutting costs no more than it may. */
uint64_t dvk_cut_part_ns(const struct dvk_pace *pace, uint64_t target_ns, uint32_t cost_ppm);
/* How long a kernel has to be to be cut. */
uint64_t dvk_cut_worth_ns(const struct dvk_pace *pace, uint64_t target_ns, uint32_t cost_ppm);
/* How many groups the next part has: at least one, at most all that are left. */
uint64_t dvk_cut_groups(const struct dvk_pace *pace, const struct dvk_cut_wish *wish);
/* How long so many items will take, as far as known; 0: not known. */
uint64_t dvk_pace_expects(const struct dvk_pace *pace, double items);
/* How long they can take, to judge by the recent launches. */
uint64_t dvk_pace_fears(const struct dvk_pace *pace, double items);

#endif
