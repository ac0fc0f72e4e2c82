/* A worker's life for one session: from the fork out of the zygote to its end. */
#ifndef DV_WORKER_CORE_SESSION_H
#define DV_WORKER_CORE_SESSION_H

#include <stddef.h>

#include "src/wire/session/handshake.h"

struct dv_worker_start {
    uint64_t session;
    uint64_t shm_bytes;
    int shm_fd;       /* the session's shared memory; owned by the callee */
    int control_fd;   /* SEQPACKET to divvyd; its end does not end the worker */
    int tenant_pidfd; /* readable when the tenant's process is gone: then the worker ends */
    const struct dv_sandbox_settings *sandbox;
    int cache_fd; /* directory for compiled kernels, -1: none; owned by the callee */
    uint32_t device_count;
    struct dv_device_grant devices[DV_MAX_DEVICES];
};

/* Serves the session until the tenant leaves; returns the process's exit status. Called in the
 * forked child, which has one thread. */
int dv_worker_session_run(const struct dv_worker_start *start);

/* Fills reports about the vendor's devices; initialises the vendor, so it runs in a forked child
 * only. Returns their number or a negative errno, with a reason in words; *found is how many there are,
 * whether there was room for them or not. */
int dv_worker_probe(struct dv_device_report *reports, int capacity, uint32_t *found, char *text,
                    size_t text_bytes);

/* Loads the vendor's libraries without initialising them (the zygote's only preparation), so that
 * forked workers share their pages and start fast. Returns 0 or a negative errno. */
int dv_worker_preload(void);

#endif
