/* The burst monitor: derives estimates for the policy from the starts and ends of a session's
 * kernels. A burst is work without a long pause: it ends when the session has nothing to run for
 * longer than the holder may linger. Losing the device in the middle does not end it. */
#ifndef DV_POLICY_BURST_H
#define DV_POLICY_BURST_H

#include "src/policy/policy.h"

#define DV_BURST_HISTORY 16

struct dv_burst_monitor {
    dv_ns bursts[DV_BURST_HISTORY]; /* the last ones, in a ring */
    unsigned count;                 /* of bursts so far */
    dv_ns open_ns;                  /* device time of the burst under way */
    dv_ns longest_ns;               /* longest kernel: rises at once and falls slowly */
    bool idle;
    dv_ns idle_since;
    dv_ns kernel_estimate_ns; /* typical length of a kernel; 0: unknown */
};

/* A kernel ran for length_ns. Leave out a first launch that had to compile. */
void dv_burst_kernel(struct dv_burst_monitor *monitor, dv_ns length_ns);
/* Several kernels ran for length_ns in all. */
void dv_burst_kernels(struct dv_burst_monitor *monitor, dv_ns length_ns, dv_ns longest_ns);
/* The session has nothing more to run, or has work again. Gaps up to bridge_ns belong to the burst. */
void dv_burst_idle(struct dv_burst_monitor *monitor, dv_ns now);
void dv_burst_work(struct dv_burst_monitor *monitor, dv_ns now, dv_ns bridge_ns);
/* The report. A burst under way counts once it is longer than the last complete one. */
struct dv_burst dv_burst_report(const struct dv_burst_monitor *monitor);

#endif
