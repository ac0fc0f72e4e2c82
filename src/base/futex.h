/* Futexes on words in memory shared between processes. */
#ifndef DV_BASE_FUTEX_H
#define DV_BASE_FUTEX_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/clock.h"

/* Sleeps while *word == seen. timeout_ns is relative; 0 means no limit.
 * Returns 0 or a negative errno (-EAGAIN: the value differed, -ETIMEDOUT, -EINTR). */
static inline int dv_futex_wait(_Atomic uint32_t *word, uint32_t seen, dv_ns timeout_ns)
{
    struct timespec ts = dv_timespec(timeout_ns);

    if (syscall(SYS_futex, word, FUTEX_WAIT, seen, timeout_ns ? &ts : NULL, NULL, 0) == 0)
        return 0;
    return -errno;
}

static inline void dv_futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}

static inline void dv_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
