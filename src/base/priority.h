/* Threads that hand a device from one holder to the next. While they wait for a core, behind
 * programs that compute, the device is idle. So they are scheduled soon after they wake, where the
 * system allows that. They need little time, and get no larger part of it: newer kernels (6.12)
 * schedule threads with short slices sooner. Other kernels know only nice values, so the caller says
 * how far the thread can be trusted. Threads and processes that they start (a driver's threads,
 * compilers, the zygote) inherit none of it. */
#ifndef DV_BASE_PRIORITY_H
#define DV_BASE_PRIORITY_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/clock.h"

/* Layout as the kernel has it (sched_setattr(2)); the C library has none yet. */
struct dv_sched_attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

/* nice: 0, or less if the thread never works for a tenant for long. soon false: back to normal. */
static inline void dv_priority_wake(bool soon, int nice)
{
    enum { RESET_ON_FORK = 1 };
    struct dv_sched_attr attr = {.size = sizeof attr,
                                 .policy = SCHED_OTHER,
                                 .flags = RESET_ON_FORK,
                                 .nice = nice,
                                 .runtime = soon ? 100 * DV_NS_PER_US : 0};

    if (syscall(SYS_sched_setattr, 0, &attr, 0) == 0)
        return;
    attr.nice = getpriority(PRIO_PROCESS, (id_t)gettid()); /* lower values need privileges */
    syscall(SYS_sched_setattr, 0, &attr, 0);
}

#endif
