/* The terms of the configuration, in numbers: of a tenant, of a device, and of all. The ledger knows no more of
 * the configuration than this. */
#ifndef DVD_CONFIG_TERMS_H
#define DVD_CONFIG_TERMS_H

#include <stdbool.h>
#include <stdint.h>

#include "src/arbiter/ids.h"
#include "src/policy/policy.h"
#include "src/wire/session/handshake.h"

/* Bytes, or a part of a device's memory; both 0: all of it. */
struct dvd_memory_size {
    uint64_t bytes;
    uint32_t ppm;
};

/* Whether long kernels go to a device in parts, so that others need not wait for their end. */
enum dvd_slice_kernels {
    DV_SLICE_KERNELS_AUTO = 0, /* where that shortens a wait */
    DV_SLICE_KERNELS_NEVER = 1,
    DV_SLICE_KERNELS_ALWAYS = 2, /* all of them, in parts as small as a work-group: for tests */
    DV_SLICE_KERNELS_COUNT
};
#define DV_SLICE_KERNELS_USUAL DV_SLICE_KERNELS_AUTO

/* A tenant's share and memory, and how far it may raise them. */
struct dvd_tenant_terms {
    struct dv_share share;
    struct dvd_memory_size memory;         /* its quota on each device */
    struct dvd_memory_size memory_request; /* that others cannot take; both 0: nothing */
    uint64_t host_bytes;                   /* beyond the device's memory, on the host; 0: no limit */
    uint32_t may_request_ppm;
    uint32_t may_weight;
    enum dv_class may_class;
    enum dv_class configured_class; /* another class of its share does not make its deadline longer */
    enum dvd_slice_kernels slice_kernels;
};

/* A change of a share. Values that are not given stay as they are. */
struct dvd_share_change {
    bool has_request, has_limit, has_weight, has_class, has_memory, has_memory_request;
    uint32_t request_ppm, limit_ppm, weight;
    enum dv_class class;
    struct dvd_memory_size memory, memory_request;
};

/* A share after a change. */
static inline struct dv_share dvd_share_with(struct dv_share share, const struct dvd_share_change *change)
{
    if (change->has_request)
        share.request_ppm = change->request_ppm;
    if (change->has_limit)
        share.limit_ppm = change->limit_ppm;
    if (change->has_weight)
        share.weight = change->weight;
    if (change->has_class)
        share.class = change->class;
    return share;
}

/* Adds a later change of the share to one. Memory is not part of it. */
static inline void dvd_share_change_merge(struct dvd_share_change *change, const struct dvd_share_change *later)
{
    struct dv_share share = {.request_ppm = change->request_ppm,
                             .limit_ppm = change->limit_ppm,
                             .weight = change->weight,
                             .class = change->class};

    share = dvd_share_with(share, later);
    change->request_ppm = share.request_ppm;
    change->limit_ppm = share.limit_ppm;
    change->weight = share.weight;
    change->class = share.class;
    change->has_request |= later->has_request;
    change->has_limit |= later->has_limit;
    change->has_weight |= later->has_weight;
    change->has_class |= later->has_class;
}

/* The maximum deadline that a session can set itself. */
#define DV_OWN_DEADLINE_MAX_NS (86400 * DV_NS_PER_S)
/* How long parts of kernels are beside other tenants, and how much of the time cutting may cost, by default. */
#define DV_KERNEL_SLICE_NS (5 * DV_NS_PER_MS)
#define DV_KERNEL_SLICE_COST_PPM (DV_PPM / 50)
/* How long sessions may keep room from one that is queued for it, by default. */
#define DV_ROOM_PATIENCE_NS (30 * DV_NS_PER_S)

/* A device: the vendor's report with the configuration applied. */
struct dvd_device_terms {
    char name[DV_MAX_DEVICE_NAME];
    bool is_shared_out;                 /* its time */
    bool is_hidden;                     /* from sessions that begin */
    const struct dv_policy_ops *policy; /* that of the configuration, or the default */
    uint32_t slots;
    dv_ns slice_ns; /* 0: learned */
    enum dvd_slice_kernels slice_kernels;
    dv_ns kernel_slice_ns;          /* of parts of kernels */
    uint32_t kernel_slice_cost_ppm; /* of the time, for cutting */
    uint32_t moving_part_ppm;
    dv_ns moved_slice_max_ns;
    dv_ns room_patience_ns; /* how long sessions may keep room from a queued one; then that one is refused */
    uint64_t capacity_bytes, per_context_bytes;
    bool swaps;         /* objects move between the device's memory and the host's */
    bool copies_beside; /* it copies while it computes */
    uint32_t group;     /* the first device that this one is like */
};

struct dvd_ledger_terms {
    bool keeps_order;                         /* sessions see devices in the vendors' order */
    dv_ns deadline_ns[DV_CLASS_COUNT];        /* to give a device back; 0: none */
    dv_ns memory_deadline_ns[DV_CLASS_COUNT]; /* to give memory back; 0: none */
};

#endif
