/* Time: nanoseconds on a clock that never steps. */
#ifndef DV_BASE_CLOCK_H
#define DV_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

typedef uint64_t dv_ns;

#define DV_NS_PER_US UINT64_C(1000)
#define DV_NS_PER_MS UINT64_C(1000000)
#define DV_NS_PER_S UINT64_C(1000000000)

static inline dv_ns dv_clock_read(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (dv_ns)ts.tv_sec * DV_NS_PER_S + (dv_ns)ts.tv_nsec;
}

static inline struct timespec dv_timespec(dv_ns ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / DV_NS_PER_S), .tv_nsec = (long)(ns % DV_NS_PER_S)};
}

static inline dv_ns dv_now(void)
{
    return dv_clock_read(CLOCK_MONOTONIC);
}

#endif
