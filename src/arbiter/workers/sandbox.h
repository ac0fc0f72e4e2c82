/* The settings of each worker's sandbox (the sandbox itself: src/worker/core/sandbox.h): the user a worker becomes, its
 * tenant's directory of compiled kernels, the bounds of its cgroup, and the extra needs of drivers. */
#ifndef DVD_WORKERS_SANDBOX_H
#define DVD_WORKERS_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "src/arbiter/config/config.h"
#include "src/arbiter/workers/cgroups.h"
#include "src/arbiter/workers/kernel_cache.h"
#include "src/base/rundir.h"
#include "src/wire/session/handshake.h"

#define DV_SCOPE_BYTES 512

struct dvd_sandbox_events {
    /* There are cgroups where there were none: call dvd_sandbox_bound_again for every worker. */
    void (*bounds_changed)(void *owner);
    /* A directory of compiled kernels is to be trimmed (dvd_kernel_cache_next_trim says which). */
    void (*trim_wanted)(void *owner);
};

struct dvd_sandboxes {
    const struct dvd_config *config;
    const char *directory, *icd_directory;
    pid_t launcher_pid; /* stays in the scope of workers */
    const struct dvd_sandbox_events *events;
    void *owner;
    bool off;                         /* the kernel refused to make sandboxes at the last probe */
    bool probe_unsandboxed;           /* it has just refused: the next probe runs without one */
    char root[DV_RUNDIR_BYTES + 8];   /* where workers assemble their view of the files */
    struct dv_sandbox_settings usual; /* common to all */
    char scope[DV_SCOPE_BYTES];       /* the cgroup that systemd has made for workers; empty: none */
    struct dvd_kernel_caches caches;
    struct dvd_cgroups cgroups;
};

/* The sandbox of one session's worker. The owner embeds it in its record of the session. */
struct dvd_sandbox {
    char *name;                     /* of its directory and cgroup; NULL: the tenant's name is too long for one */
    uid_t uid;                      /* of its program */
    struct dvd_kernel_cache *cache; /* NULL: none */
    bool is_bounded;                /* its worker is in a cgroup of divvyd's, or should be */
    uint64_t starved_before;        /* workers of its kind that the kernel had killed for lack of memory */
};

struct dvd_sandbox_processes {
    pid_t program;
    int program_pidfd, worker_pidfd; /* -1: there is none */
};

/* The first members are set by the owner. Failures are logged, and not fatal. */
void dvd_sandboxes_init(struct dvd_sandboxes *sandboxes, sd_event *event);
void dvd_sandboxes_fini(struct dvd_sandboxes *sandboxes);
/* A configuration was loaded again, and the vendor directory made anew. */
void dvd_sandboxes_apply_config(struct dvd_sandboxes *sandboxes);

void dvd_sandbox_init(struct dvd_sandbox *sandbox, const char *tenant, bool is_program, uid_t uid);
/* Finds the user that a session's worker will run as. Returns 0, or a negative errno with the reason; -ENOTSUP: no
 * worker can be started. */
int dvd_sandbox_admit(struct dvd_sandboxes *sandboxes, struct dvd_sandbox *sandbox, const char *tenant,
                      const char *user, char *text, size_t bytes);
/* Fills the sandbox of a session's worker, or of the probe (NULL). Returns the descriptor of the directory for
 * compiled kernels, which the caller closes, or -1: it has none. */
int dvd_sandbox_fill(struct dvd_sandboxes *sandboxes, struct dvd_sandbox *sandbox,
                     struct dv_sandbox_settings *settings);
/* Bounds a worker, before its program is told of it. Returns 0, or a negative errno with the reason. */
int dvd_sandbox_bound(struct dvd_sandboxes *sandboxes, struct dvd_sandbox *sandbox,
                      const struct dvd_sandbox_processes *processes, char *text, size_t bytes);
/* The same for a worker that runs already: it goes on, bounded or not. */
void dvd_sandbox_bound_again(struct dvd_sandboxes *sandboxes, struct dvd_sandbox *sandbox,
                             const struct dvd_sandbox_processes *processes);
/* A session of an earlier daemon goes on, and its worker with it. */
void dvd_sandbox_restore(struct dvd_sandboxes *sandboxes, struct dvd_sandbox *sandbox,
                         const struct dvd_sandbox_processes *processes);
/* Whether the kernel has killed a worker of its kind for lack of memory since it began. */
bool dvd_sandbox_starved(const struct dvd_sandboxes *sandboxes, const struct dvd_sandbox *sandbox);
/* The session is over. */
void dvd_sandbox_leave(struct dvd_sandboxes *sandboxes, struct dvd_sandbox *sandbox);

/* The kernel refuses to make sandboxes. Returns whether to go on without them. */
bool dvd_sandboxes_impossible(struct dvd_sandboxes *sandboxes, const char *why);
/* A probe has answered, and was in a sandbox unless probe_unsandboxed says otherwise. */
void dvd_sandboxes_probed(struct dvd_sandboxes *sandboxes, bool found_devices);

#endif
