/* A worker's life for one session: from the fork out of the zygote to its end. */
#ifndef DV_WORKER_CORE_SESSION_H
#define DV_WORKER_CORE_SESSION_H

#include <stdbool.h>
#include <stddef.h>

#include "src/wire/session/handshake.h"

struct dvk_runtime_api;

struct dvk_worker_start {
    uint64_t session;
    uint64_t shm_bytes;
    int shm_fd;       /* the session's shared memory; owned by the callee */
    int control_fd;   /* SEQPACKET to divvyd; its end does not end the worker */
    int tenant_pidfd; /* readable when the tenant's process is gone: then the worker ends */
    const struct dv_sandbox_settings *sandbox;
    int cache_fd; /* directory for compiled kernels, -1: none; owned by the callee */
    int store_fd; /* the session's store, -1: it has none; owned by the callee */
    uint64_t store_bytes;
    bool follows; /* another worker, and there is something in the store */
    uint32_t device_count;
    struct dv_device_grant devices[DV_MAX_DEVICES];
};

/* Serves the session until the tenant leaves; returns the process's exit status. Called in the
 * forked child, which has one thread. */
int dvk_worker_session_run(const struct dvk_worker_start *start, const struct dvk_runtime_api *api);

#endif
