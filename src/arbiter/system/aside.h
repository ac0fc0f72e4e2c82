/* Work aside: a call whose length a stranger can decide is made by a process of its own, which ends with it. In
 * the kernel a write waits for other writes to the same file, and the last close of a descriptor waits for
 * whatever that takes. O_NONBLOCK and MSG_DONTWAIT do not change that. */
#ifndef DVD_SYSTEM_ASIDE_H
#define DVD_SYSTEM_ASIDE_H

#include <stdbool.h>
#include <stdint.h>

struct dv_arbiter;
struct dv_aside_job;

struct dv_asides {
    struct dv_aside_job *jobs; /* the oldest first */
    unsigned count; /* includes jobs that have timed out: the kernel may not let their process end yet */
};

/* In the process of its own: fd is all that it has. */
typedef void dv_aside_work(int fd, const void *data);
/* It has ended, or has taken DV_LIMIT_ASIDE_US and is not waited for any longer. */
typedef void dv_aside_done(struct dv_arbiter *arbiter, uint64_t id);

/* Begins work on a descriptor, which stays the caller's. data need not live on. done may be NULL. Returns false
 * if no process can be had: the work is left undone, and done is not called. */
bool dv_aside_start(struct dv_arbiter *arbiter, dv_aside_work *work, int fd, const void *data,
                    dv_aside_done *done, uint64_t id);
/* Kills the processes that still run, and does not wait for them. */
void dv_asides_fini(struct dv_arbiter *arbiter);

#endif
