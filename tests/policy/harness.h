/* A small world at virtual time around one policy: tenants that always want the device or come and
 * go, random kernels, holders that obey a recall within one kernel. It records who held when, and
 * checks after every step that the policy's books are in order. */
#ifndef DV_TESTS_POLICY_HARNESS_H
#define DV_TESTS_POLICY_HARNESS_H

#include "tests/unit/unit.h"

#include "src/policy/policy.h"

#define MAX_TENANTS 24
#define MAX_SESSIONS 4
#define BIN_NS DV_NS_PER_MS
#define MAX_BINS 610000 /* ten minutes; what a run does not reach costs nothing */

enum phase { PHASE_OFF, PHASE_IDLE, PHASE_WAITING, PHASE_STARTING, PHASE_RUNNING };

struct actor { /* a session */
    struct dv_policy_session lease;
    struct peer *peer;
    enum phase phase;
    dv_ns next_at;      /* end of idling, of the way of a grant, or of the running kernel */
    unsigned work_left; /* kernels; counts only for those who come and go */
};

struct peer { /* a tenant */
    struct dv_policy_tenant tenant;
    struct dv_share share;
    unsigned sessions;
    dv_ns kernel_min, kernel_max;
    dv_ns burst_ns;           /* what it reports; 0: the length of its last hold */
    bool always;              /* wants the device all the time */
    dv_ns idle_min, idle_max; /* otherwise: pauses this long */
    unsigned burst_max;       /* and bursts of up to so many kernels */
    struct actor actors[MAX_SESSIONS];
    dv_ns held_in[MAX_BINS];         /* per bin */
    bool idle_in[MAX_BINS];          /* it had no work at some time in this bin */
    dv_ns held_before[MAX_BINS + 1]; /* sums, once the run is over */
    uint32_t idle_before[MAX_BINS + 1];
    dv_ns idle_since;                 /* while none of its sessions waits or holds */
    dv_ns longest_wait, longest_hold; /* waits count while they last, too */
    uint64_t grants;
};

struct world {
    struct dv_policy policy;
    struct peer peers[MAX_TENANTS];
    unsigned count;
    struct random random;
    dv_ns now, poll_at;
    dv_ns grant_delay_max;   /* a grant takes up to this long to reach the session */
    dv_ns idle_while_wanted; /* time in which a slot was free though somebody without limit waited */
    dv_ns longest_slice, longest_kernel;
    uint64_t waits, grants, fingerprint;
    /* called after every step, if set: changes things */
    void (*meddle)(struct world *world);
    dv_ns next_meddling;
};

struct world *world_create(const struct dv_policy_ops *ops, uint32_t slots, uint64_t seed);
struct peer *world_add(struct world *world, struct dv_share share, dv_ns kernel_min, dv_ns kernel_max);
void world_run(struct world *world, dv_ns until);
void world_destroy(struct world *world);

/* The share of one tenant in the window of `bins` that begins at `first`, of what world_run recorded. */
double world_share(const struct peer *peer, size_t first, size_t bins);

extern uint64_t world_total_waits; /* of all worlds so far */

#endif
