/* What each worker's cage looks like (the cage itself: src/worker/core/cage.h): the user a worker
 * becomes, its tenant's directory of compiled kernels, and what drivers need besides the usual. */
#ifndef DVD_WORKERS_SANDBOX_H
#define DVD_WORKERS_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "src/arbiter/workers/cgroups.h"
#include "src/arbiter/config/config.h"
#include "src/arbiter/workers/worker_users.h"
#include "src/base/rundir.h"
#include "src/wire/session/handshake.h"

struct dv_arbiter;
struct dv_session;
struct dv_kernel_cache;

#define DV_SCOPE_BYTES 512

struct dv_cages {
    bool off;       /* the kernel refused to make them when devices were last looked for */
    bool probe_uncaged; /* so it has just said: the next look at the devices is without one */
    bool only_one_user; /* "root" of a user namespace that knows no other: it is a user's daemon */
    char root[DV_RUNDIR_BYTES + 8]; /* where workers put their view of the files together */
    struct dv_cage usual; /* what all have in common */
    char scope[DV_SCOPE_BYTES]; /* the cgroup that systemd has made for workers; empty: none */
    int caches_fd;  /* directory of all tenants' directories, -1: none */
    struct dv_kernel_cache *caches; /* hash table by name */
    struct dv_cache_owner *owners;  /* hash table by number: users of programs */
    struct dv_worker_users users;
    uid_t users_last; /* of the range that they are of */
    struct dv_kernel_cache *idle; /* those without sessions, the least recently used first */
    /* Work for the sweeper, what is due first at the beginning: directories that are written to or are to
     * be removed; those that have not been measured since divvyd's start; and what it works at. */
    struct dv_kernel_cache *sweep_soon, *sweep_later, *swept_now;
    uint64_t last_sweep; /* number of the last request */
    uint64_t bytes;      /* of all directories that were measured */
    sd_event_source *sweep_timer;
    struct dv_cgroups cgroups;
};

/* Finds or makes directories. What is missing is said in the log, and is not fatal. */
void dv_cages_init(struct dv_arbiter *arbiter);
void dv_cages_fini(struct dv_arbiter *arbiter);
/* A configuration was loaded again, and the vendor directory made anew. */
void dv_cages_apply_config(struct dv_arbiter *arbiter);

/* Finds the user that a session's worker will run as. Returns 0, or a negative errno with words: it can have
 * none. */
int dv_cages_admit(struct dv_session *session, char *text, size_t bytes);
/* Fills the cage of a session's worker, or of the probe (NULL). Returns the descriptor of the
 * directory for compiled kernels, which the caller closes, or -1: it has none, or no cage. */
int dv_cages_fill(struct dv_arbiter *arbiter, struct dv_session *session, struct dv_cage *cage);
/* A session of an earlier daemon goes on, and its worker with it. */
void dv_cages_rejoin(struct dv_session *session);
/* Its worker is bounded from here on, before its program hears of it. Returns 0, or a negative errno with
 * words. */
int dv_cages_bound(struct dv_session *session, char *text, size_t bytes);
/* Whether its worker has been ended because workers of its kind had no memory left. */
bool dv_cages_starved(const struct dv_session *session);
/* The session is over. */
void dv_cages_leave(struct dv_session *session);
/* The next directory in which kernels may have become too many, or that is to be removed: fills the
 * request, and returns its descriptor, which the caller closes, or -1: there is none. */
int dv_cages_next_sweep(struct dv_arbiter *arbiter, struct dv_zygote_request *request);
/* What became of it, and how many bytes are left. */
void dv_cages_swept(struct dv_arbiter *arbiter, uint64_t number, int status, uint64_t bytes);
/* Whether the configuration says what it must where workers may run without a cage. */
bool dv_cages_may_be_off(const struct dv_arbiter *arbiter, const struct dv_config *config, char *error,
                         size_t error_bytes);
/* The kernel refuses to make cages. Returns whether to go on without them. */
bool dv_cages_impossible(struct dv_arbiter *arbiter, const char *why);
/* A probe has answered, and was in a cage unless probe_uncaged says otherwise. */
void dv_cages_probed(struct dv_arbiter *arbiter, bool found_devices);

#endif
