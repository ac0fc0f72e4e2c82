/* Work aside: a helper process makes a call that untrusted programs can slow down, and ends after it. In
 * the kernel a write waits for other writes to the same file, and the last close of a descriptor waits until its
 * file is released. O_NONBLOCK and MSG_DONTWAIT do not change that. */
#ifndef DVD_SYSTEM_ASIDE_H
#define DVD_SYSTEM_ASIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "src/arbiter/ids.h"
#include <systemd/sd-event.h>

struct dvd_aside_job;

struct dvd_asides {
    sd_event *event;
    void *owner;                /* for the jobs' callbacks */
    struct dvd_aside_job *jobs; /* the oldest first */
    unsigned count;             /* includes jobs that have timed out: the kernel may not let their process end yet */
};

/* Runs in the helper process, which has only fd. */
typedef void dvd_aside_work(int fd, const void *data);
/* The work is over. is_done: it has succeeded, and not timed out after DV_ASIDE_TIMEOUT_US. */
typedef void dvd_aside_done(void *owner, struct dvd_session_id id, bool is_done);

/* Begins work on a descriptor, which stays the caller's. data need not live on. done may be NULL. Returns false
 * if no process can be started: the work is left undone, and done is not called. */
bool dvd_aside_start(struct dvd_asides *asides, dvd_aside_work *work, int fd, const void *data, dvd_aside_done *done,
                     struct dvd_session_id id);
/* Kills the processes that still run, and does not wait for them. */
void dvd_asides_fini(struct dvd_asides *asides);

#endif
