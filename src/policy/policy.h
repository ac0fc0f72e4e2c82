/* Policies: who may keep a device busy next, and for how long. Pure code: no sockets, no clock
 * calls, no allocation; the same objects run in divvyd, in tests and in the simulator at virtual
 * time. Includes nothing but src/base/ and this header.
 *
 * Words: a tenant is entitled; its sessions take turns inside its entitlement. A slot is the right
 * of one session at a time to keep the device busy; most devices have one. The caller owns all
 * memory: it embeds a struct dv_policy_tenant in its own record of "tenant on device" and a struct
 * dv_policy_session in its record of a session's lease. */
#ifndef DV_POLICY_POLICY_H
#define DV_POLICY_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/clock.h"

#define DV_PPM 1000000u /* shares are parts per million of the device's time */

/* A slice never lasts longer, so that over one second a share is within two points of what it
 * should be (unless memory is being swapped, when the caller raises it). */
#define DV_SLICE_MIN_NS (2 * DV_NS_PER_MS)
#define DV_SLICE_MAX_NS (15 * DV_NS_PER_MS)

enum dv_class { DV_CLASS_LATENCY, DV_CLASS_STANDARD, DV_CLASS_BATCH };

struct dv_share {
    uint32_t request_ppm; /* guaranteed while there is demand */
    uint32_t limit_ppm;   /* never more; DV_PPM: no limit */
    uint32_t weight;      /* of what is left over, at least 1 */
    enum dv_class class;
};

/* What the burst monitor of a session's front end reports; estimates only. */
struct dv_burst {
    dv_ns kernel_ns;   /* longest recent kernel */
    dv_ns p90_ns;      /* 90th percentile of merged bursts */
    dv_ns last_ns;     /* last burst */
};

/* Why a decision was made, for `divvy explain`. */
enum dv_rule {
    DV_RULE_NONE,
    DV_RULE_ONLY_ONE,     /* nobody else had work */
    DV_RULE_REQUEST,      /* furthest behind its guaranteed share */
    DV_RULE_LEAST_SERVED, /* least device time for its weight */
    DV_RULE_CLASS,        /* its class goes first */
    DV_RULE_ARRIVAL,      /* came first */
    DV_RULE_CREDIT,       /* has credit left */
    DV_RULE_LIMIT,        /* held back: at its limit */
    DV_RULE_BUSY,         /* the device is in use */
};

struct dv_policy;
struct dv_policy_tenant;

/* A node of a binary heap or tree that the policy keeps; callers do not touch it. */
struct dv_policy_node {
    struct dv_policy_node *left, *right, *parent;
    uint64_t key;
    uint64_t tie;
    int balance;
    bool in;
};

/* One session's wish to keep the device busy. */
struct dv_policy_session {
    struct dv_policy_tenant *tenant;
    struct dv_policy_session *next, *prev; /* in the tenant's turn order while waiting */
    bool waiting, holding;
    dv_ns waiting_since;
    dv_ns granted_at, slice_ns; /* while holding */
    struct dv_burst burst;
};

/* A tenant on one device. */
struct dv_policy_tenant {
    struct dv_share share;
    struct dv_policy_session *first_waiting, *last_waiting;
    uint32_t waiting_count, holding_count;
    dv_ns used_ns;  /* charged so far, all its sessions */
    dv_ns slice_ns; /* learned */
    enum dv_rule last_rule;
    /* the policy's own */
    uint64_t fair_time;    /* weighted device time received */
    uint64_t request_time; /* when its guaranteed share is due next */
    uint64_t limit_time;   /* when its limit allows more */
    int64_t credit_ns;
    struct dv_policy_node by_fair, by_request, by_limit;
    uint64_t reserved[8];
};

struct dv_decision {
    struct dv_policy_session *session; /* NULL: nobody may run now */
    dv_ns slice_ns;
    enum dv_rule rule;
    dv_ns ask_again_ns; /* session NULL: somebody at its limit may run at this time; 0: nobody */
};

struct dv_policy_ops {
    const char *name;
    void (*init)(struct dv_policy *policy, dv_ns now);
    /* The tenant's first session began to wait, or its last one stopped. */
    void (*demand_begins)(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now);
    void (*demand_ends)(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now);
    /* Who takes a free slot. Does not change who waits: the caller then calls dv_policy_grant. */
    struct dv_decision (*pick)(struct dv_policy *policy, dv_ns now);
    /* The tenant held a slot for [start, end). */
    void (*charge)(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns start,
                   dv_ns end);
    /* Whether the holder should give back before its slice ends, because of who waits now. */
    bool (*recall)(struct dv_policy *policy, const struct dv_policy_session *holder, dv_ns now);
};

/* A policy at work on one device. */
struct dv_policy {
    const struct dv_policy_ops *ops;
    uint32_t slots, free_slots;
    uint32_t waiting_tenants;
    dv_ns fixed_slice_ns; /* 0: learned */
    uint64_t fair_clock;  /* the least fair_time among tenants with demand, never going back */
    struct dv_policy_node *fair_root, *request_root, *limit_root, *class_root;
    uint64_t reserved[16];
};

extern const struct dv_policy_ops dv_policy_elastic, dv_policy_fair, dv_policy_fifo, dv_policy_band;
const struct dv_policy_ops *dv_policy_by_name(const char *name);

/* ---- what the caller does (policy.c), the same for every policy ---- */

void dv_policy_init(struct dv_policy *policy, const struct dv_policy_ops *ops, uint32_t slots,
                    dv_ns now);
void dv_policy_tenant_init(struct dv_policy_tenant *tenant, const struct dv_share *share);
/* Changes the share of a tenant at once, whatever it is doing. */
void dv_policy_tenant_set(struct dv_policy *policy, struct dv_policy_tenant *tenant,
                          const struct dv_share *share, dv_ns now);
void dv_policy_session_init(struct dv_policy_session *session, struct dv_policy_tenant *tenant);

/* A session wants the device (idempotent). */
void dv_policy_wait(struct dv_policy *policy, struct dv_policy_session *session, dv_ns now);
/* It no longer does (gave up, or died) without having been granted. */
void dv_policy_cancel(struct dv_policy *policy, struct dv_policy_session *session, dv_ns now);
/* The next decision for a free slot; grants it if there is one (session->holding is set). */
struct dv_decision dv_policy_next(struct dv_policy *policy, dv_ns now);
/* The holder gave back (or died) at `now`; charges [granted_at, now). */
void dv_policy_release(struct dv_policy *policy, struct dv_policy_session *session, dv_ns now);
bool dv_policy_should_recall(struct dv_policy *policy, const struct dv_policy_session *holder,
                             dv_ns now);
/* Replaces the policy under running tenants; `tenants` lists all of the device. */
void dv_policy_switch(struct dv_policy *policy, const struct dv_policy_ops *ops,
                      struct dv_policy_tenant *const *tenants, uint32_t count, dv_ns now);

/* What each tenant of the list should get if all of them always had work, in ppm: requests first,
 * the rest by weight, nobody above its limit. O(n log n); for showing and for tests. */
void dv_policy_entitlements(const struct dv_share *shares, uint32_t count, uint32_t *ppm);

#endif
