/* The simulation: workers with work of random shape, and divvyd's ledger with its policies, at virtual time. */
#ifndef DV_SIM_ENGINE_H
#define DV_SIM_ENGINE_H

#include "src/policy/burst.h"
#include "src/sim/workload.h"

#define DV_SIM_BIN_NS (10 * DV_NS_PER_MS) /* device time is recorded this finely */

struct dv_samples {
    dv_ns *values;
    size_t count, capacity;
};

struct dv_sim_device;
struct dv_sim_session;

struct dv_sim_tenant {
    const struct dv_sim_tenant_spec *spec;
    char name[DV_SIM_MAX_NAME + 16]; /* with the number of a copy */
    struct dv_sim_device *device;    /* NULL: it has not come yet, or was refused */
    struct dv_sim_tenant *next_there;
    struct dv_sim_session *sessions;
    bool present, left, refused;
    dv_ns join_ns, leave_ns; /* it never joins if join_ns is not before leave_ns */
    dv_ns work_ns;           /* of kernels, then it leaves; 0: it stays */
    /* its results */
    dv_ns *bins; /* device time held in each bin; NULL: it has no device */
    dv_ns held_ns, kernels_ns, overuse_ns;
    uint64_t kernels, bursts, slices, recalls;
    struct dv_samples waits;        /* asking to grant */
    struct dv_samples latencies;    /* arrival of a burst to its end */
    uint64_t sla_requests, sla_met; /* bursts that are over or late, and those done in time */
    uint64_t moves, moves_ahead, moved_bytes, evicted_bytes;
    dv_ns moving_ns; /* held the device and moved, or waited for room */
    /* grants since a kernel last ended on the device */
    uint64_t kernel_epoch;
    unsigned idle_grants;
};

struct dv_sim_device {
    const struct dv_sim_device_spec *spec;
    const struct dv_policy_ops *ops;
    dv_ns slice_ns; /* 0: learned */
    char name[DV_SIM_MAX_NAME + 16];
    struct dv_sim_tenant *tenants; /* that are there */
    /* its results */
    unsigned tenants_placed;
    dv_ns kernels_ns, held_ns; /* the sum of its slots */
    uint64_t decisions;
    struct dv_sim_memory {
        uint64_t moves, moved_bytes, evicted_bytes;
        dv_ns moving_ns;
        dv_ns free_at[2];             /* when the next copy in, or out, can begin */
        struct dv_sim_session *ahead; /* whose set is brought in before its grant; NULL: none */
    } memory;
    /* decisions since a kernel last ended, and which kernel that was, and when */
    unsigned idle_decisions;
    uint64_t kernel_epoch;
    dv_ns kernel_at;
};

struct dv_sim {
    const struct dv_workload *workload;
    struct dv_sim_device *devices;
    struct dv_sim_tenant *tenants;
    unsigned device_count, tenant_count;
    unsigned session_count; /* of all tenants */
    size_t bin_count;
    char problem[1024]; /* why the run ended early; empty: it did not */
};

/* NULL: overrides nothing. Returns NULL when memory is short. */
struct dv_sim *dv_sim_create(const struct dv_workload *workload, const struct dv_policy_ops *ops, dv_ns slice_ns);
/* Runs to the end; reports its progress from time to time, if asked to. Returns 0, -ENOMEM, or
 * -ELOOP when a policy decides for ever and no kernel runs: sim->problem says which and when. */
int dv_sim_run(struct dv_sim *sim, void (*progress)(double part));
void dv_sim_destroy(struct dv_sim *sim);

#endif
