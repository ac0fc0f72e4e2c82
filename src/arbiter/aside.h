/* Work aside: what a stranger can make take as long as it likes is done by a process of its own, which ends
 * with it. The kernel has a writer wait for others that write to the same file, and whoever lets a descriptor
 * go wait for what that takes; it does so however a call is made. */
#ifndef DV_ARBITER_ASIDE_H
#define DV_ARBITER_ASIDE_H

#include <stdbool.h>
#include <stdint.h>

struct dv_arbiter;
struct dv_aside_job;

struct dv_asides {
    struct dv_aside_job *jobs; /* the oldest first */
    unsigned count; /* also of those that nobody waits for: the kernel may not let them end */
};

/* In the process of its own: fd is all that it has. */
typedef void dv_aside_work(int fd, const void *data);
/* It has ended, or has taken DV_LIMIT_ASIDE_US and is not waited for any longer. */
typedef void dv_aside_done(struct dv_arbiter *arbiter, uint64_t id);

/* Begins work on a descriptor, which stays the caller's. data need not live on. done may be NULL. Returns false
 * if no process can be had: the work is left undone, and done is not called. */
bool dv_aside_start(struct dv_arbiter *arbiter, dv_aside_work *work, int fd, const void *data,
                    dv_aside_done *done, uint64_t id);
/* Nobody waits for what is still being done. */
void dv_asides_fini(struct dv_arbiter *arbiter);

#endif
