/* A workload: the input of a simulation, read from a YAML file. */
#ifndef DV_SIM_WORKLOAD_H
#define DV_SIM_WORKLOAD_H

#include <stddef.h>

#include "src/policy/policy.h"

#define DV_SIM_MAX_DEVICES 64
#define DV_SIM_MAX_TENANTS 20000
#define DV_SIM_MAX_SESSIONS 16384
#define DV_SIM_MAX_TRACE 100000
#define DV_SIM_MAX_NAME 144 /* bytes: those of a device of divvyd with a number behind it */
#define DV_SIM_MAX_BYTES (UINT64_C(1) << 50)

enum dv_arrival {
    DV_ARRIVAL_ALWAYS,
    DV_ARRIVAL_PERIODIC,
    DV_ARRIVAL_POISSON,
    DV_ARRIVAL_PARETO,
    DV_ARRIVAL_TRACE,
    DV_ARRIVAL_RECORDED,
};
enum dv_lengths { DV_LENGTHS_FIXED, DV_LENGTHS_UNIFORM, DV_LENGTHS_LOGNORMAL, DV_LENGTHS_PARETO };
/* The device for a tenant that the file does not bind to one: the one with the most left, or the
 * first. */
enum dv_sim_device_order { DV_DEVICE_ORDER_FREE, DV_DEVICE_ORDER_FIXED };
/* How a worker treats its grant when it has nothing to run. */
enum dv_keep { DV_KEEP_LINGER, DV_KEEP_NOTHING, DV_KEEP_SLICE };

/* A burst of a recording: it begins `gap` after the end of the one before, and computes for `work` in kernels of about
 * this length. */
struct dv_sim_burst {
    dv_ns gap_ns, work_ns, kernel_ns;
};
/* What one session did. */
struct dv_sim_recording {
    char **texts; /* "GAP WORK KERNEL" */
    uint64_t count;
    bool ended; /* it has no more work after these; otherwise it goes on like that */
    struct dv_sim_burst *bursts;
};

/* A tenant as the file gives it, then as the simulation uses it. */
struct dv_sim_tenant_spec {
    char *name, *device;
    char *request_text, *limit_text;
    char *class_text; /* NULL: standard */
    char *join_text, *leave_text, *join_every_text;
    char *mean_text, *work_text, *sla_text, *set_text;
    char *period_text, *kernel_text, *kernel_max_text, *gap_text, *jitter_text;
    char **trace_texts;
    uint64_t trace_count;
    struct dv_sim_recording *recorded; /* one for each session */
    uint64_t recorded_count;
    enum dv_arrival arrival;
    enum dv_lengths lengths, burst_sizes, work_lengths;
    enum dv_keep keep;
    bool whole_kernels; /* they cannot be sliced, or its rule says so */
    uint64_t *weight, *sessions, *copies, *burst, *burst_most;
    double *rate, *spread, *shape, *kernel_shape, *burst_shape, *work_shape;

    struct dv_share share;
    dv_ns join_ns, leave_ns, period_ns, kernel_ns, kernel_max_ns, gap_ns;
    double jitter; /* part of gap and period by which they vary either way */
    dv_ns *trace_ns;
    dv_ns join_every_ns; /* mean time between two copies; 0: all come at once */
    dv_ns mean_ns;       /* between two bursts */
    dv_ns work_ns;       /* of kernels, then it leaves; 0: it stays */
    uint64_t set_bytes;  /* of each session, on the device while it computes */
    dv_ns sla_ns;        /* from the arrival of a burst to its end; 0: nothing is promised */
    unsigned session_count, copy_count, burst_kernels, burst_max;
    double rate_per_s, sigma;
    double arrival_tail, kernel_tail, burst_tail, work_tail; /* shapes of Pareto distributions */
};

struct dv_sim_device_spec {
    char *name, *policy, *slice_text, *kernel_slice_text, *memory_text, *copy_text;
    uint64_t *slots, *copies;

    const struct dv_policy_ops *ops;
    dv_ns slice_ns;
    dv_ns kernel_slice_ns; /* of kernels; 0: they stay whole */
    uint64_t memory_bytes; /* 0: unlimited */
    uint64_t copy_bytes_per_s;
    bool has_copy_engine;
    unsigned slot_count, copy_count;
};

struct dv_workload {
    char *duration_text, *grant_text, *release_text, *overhead_jitter_text;
    uint64_t seed;
    double *load_given;
    struct dv_sim_device_spec *devices;
    uint64_t devices_count;
    enum dv_sim_device_order order;
    struct dv_sim_tenant_spec *tenants;
    uint64_t tenants_count;

    dv_ns duration_ns, grant_ns, release_ns;
    double overhead_jitter; /* part by which the two overheads vary either way */
    double load;            /* arrivals come this many times as often as the file says */
};

#define DV_SIM_MAX_LOAD 1000.0

/* Returns the workload, or NULL with a message "file:line: what is wrong" in error. */
struct dv_workload *dv_workload_load(const char *path, char *error, size_t error_bytes);
/* Gives the workload's tenants and devices the shares and policies that a divvy.yaml has for them, by name. Returns 0,
 * or -EINVAL with a message. */
int dv_workload_apply_config(struct dv_workload *workload, const char *path, char *error, size_t error_bytes);
void dv_workload_free(struct dv_workload *workload);

/* "250us", "1.5ms", "60s". Returns 0 or -EINVAL. */
int dv_sim_parse_duration(const char *text, dv_ns *ns);

#endif
