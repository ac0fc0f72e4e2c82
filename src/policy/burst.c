/* The burst monitor (see burst.h). */
#include "src/policy/burst.h"

/* The estimate of a kernel's length follows the last one by a quarter. */
#define ESTIMATE_PART 4
/* The longest length loses this part of its excess over the last one. */
#define FORGET_PART 32

void dv_burst_kernels(struct dv_burst_monitor *monitor, dv_ns length_ns, dv_ns longest_ns)
{
    dv_ns estimate = monitor->kernel_estimate_ns;

    monitor->open_ns += length_ns;
    if (longest_ns >= monitor->longest_ns)
        monitor->longest_ns = longest_ns;
    else
        monitor->longest_ns -= (monitor->longest_ns - longest_ns) / FORGET_PART;
    monitor->kernel_estimate_ns = estimate ? (estimate * (ESTIMATE_PART - 1) + longest_ns) / ESTIMATE_PART : longest_ns;
}

void dv_burst_kernel(struct dv_burst_monitor *monitor, dv_ns length_ns)
{
    dv_burst_kernels(monitor, length_ns, length_ns);
}

void dv_burst_idle(struct dv_burst_monitor *monitor, dv_ns now)
{
    monitor->idle = true;
    monitor->idle_since = now;
}

void dv_burst_work(struct dv_burst_monitor *monitor, dv_ns now, dv_ns bridge_ns)
{
    dv_ns gap = monitor->idle ? now - monitor->idle_since : 0;

    monitor->idle = false;
    if (gap <= bridge_ns) {
        monitor->open_ns += monitor->open_ns ? gap : 0;
        return;
    }
    if (!monitor->open_ns)
        return;
    monitor->bursts[monitor->count % DV_BURST_HISTORY] = monitor->open_ns;
    monitor->count++;
    monitor->open_ns = 0;
}

static dv_ns percentile_90(const dv_ns *values, unsigned count)
{
    dv_ns sorted[DV_BURST_HISTORY];

    if (count == 0)
        return 0;
    for (unsigned i = 0; i < count; i++) {
        unsigned index = i;
        for (; index > 0 && sorted[index - 1] > values[i]; index--)
            sorted[index] = sorted[index - 1];
        sorted[index] = values[i];
    }
    return sorted[(count * 9 + 9) / 10 - 1];
}

struct dv_burst dv_burst_report(const struct dv_burst_monitor *monitor)
{
    unsigned count = monitor->count < DV_BURST_HISTORY ? monitor->count : DV_BURST_HISTORY;
    struct dv_burst report = {.kernel_ns = monitor->longest_ns};

    if (count)
        report.last_ns = monitor->bursts[(monitor->count - 1) % DV_BURST_HISTORY];
    report.p90_ns = percentile_90(monitor->bursts, count);
    if (monitor->open_ns > report.p90_ns) /* already longer than nearly all complete ones */
        report.last_ns = report.p90_ns = monitor->open_ns;
    return report;
}
