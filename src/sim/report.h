/* Results of a simulation: shares against entitlements, waits, slices. */
#ifndef DV_SIM_REPORT_H
#define DV_SIM_REPORT_H

#include <stdio.h>

#include "src/sim/engine.h"

#define DV_SIM_WINDOW_NS DV_NS_PER_S

struct dv_sim_row {
    const struct dv_sim_tenant *tenant;
    bool came;          /* false: the simulation ended before */
    double share;       /* of the device, while present */
    double kernels;     /* the part of that in which its kernels ran */
    double entitled;    /* to this share; NAN when it did not always want the device */
    double worst;       /* largest difference between the two in any 1 s window, in parts */
    double within;      /* part of the windows in which they differ by at most 0.02 */
    double least, most; /* share in the worst and the best window */
    double in_sla;      /* part of its requests; NAN: nothing is promised, or none came */
    dv_ns wait_p50, wait_p99, latency_p50, latency_p99;
};

struct dv_sim_report {
    const struct dv_sim *sim;
    struct dv_sim_row *rows; /* one per tenant */
    double useful;           /* part of the time in which kernels ran, mean of the devices' slots */
    double progress;         /* geometric mean over tenants of the time their kernels ran */
    double held;             /* part of the time in which leases were out */
    bool has_sla;            /* a tenant has a target */
    bool has_memory;         /* a device has a size */
};

struct dv_sim_report *dv_report_create(struct dv_sim *sim);
void dv_report_destroy(struct dv_sim_report *report);

void dv_report_print_table(const struct dv_sim_report *report, FILE *out);
/* One line per simulation, for several at different loads: the part of the time in which kernels ran,
 * and the part of the requests done in time, in all and for each entry of the file that has a
 * target. */
void dv_report_print_load_head(const struct dv_workload *workload, FILE *out);
void dv_report_print_load(const struct dv_sim_report *report, FILE *out);
/* One line per tenant and tenth of a second: its share over the second that ends there. */
int dv_report_write_csv(const struct dv_sim_report *report, const char *path);
/* The same as a picture. */
int dv_report_write_svg(const struct dv_sim_report *report, const char *path);

/* The share over the window that ends with this bin. */
double dv_report_window_share(const struct dv_sim *sim, const struct dv_sim_tenant *tenant, size_t end_bin);

/* The share that each tenant of a device that always has work is entitled to, for each time in which the same tenants
 * are there, if that is at least a second. The others are assumed to want what they got. */
void dv_report_each_entitlement(const struct dv_sim_report *report, const struct dv_sim_device *device,
                                void (*take)(void *user, const struct dv_sim_tenant *tenant, dv_ns from, dv_ns to,
                                             double entitled),
                                void *user);

#endif
