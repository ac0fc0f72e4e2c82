/* Directories of compiled kernels, one for each user of each tenant, and the users that workers run as. */
#ifndef DVD_WORKERS_KERNEL_CACHE_H
#define DVD_WORKERS_KERNEL_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "src/arbiter/config/config.h"
#include "src/arbiter/workers/worker_users.h"
#include "src/wire/session/handshake.h"

#define DVD_CACHE_NAME_BYTES 224 /* of a directory without its number */

struct dvd_cache_owner;
struct dvd_kernel_cache;

struct dvd_kernel_caches {
    sd_event *event;
    const struct dvd_config *config;
    bool has_users;                    /* workers run as users of their own; false: as divvyd's user */
    void (*request_trim)(void *owner); /* a directory is to be trimmed: see dvd_kernel_cache_next_trim */
    void *owner;
    int fd;                         /* directory of all tenants' directories, -1: none */
    struct dvd_kernel_cache *table; /* hash table by name */
    struct dvd_cache_owner *owners; /* hash table by number: users of programs */
    struct dvd_worker_users users;
    uid_t users_last;              /* the last of their range */
    struct dvd_kernel_cache *idle; /* without sessions, the least recently used first */
    /* Work for the trimmer, in the order in which it is due: directories that are written to or are to be removed;
     * those that have not been measured since divvyd started; and those that are being trimmed. */
    struct dvd_kernel_cache *trim_soon, *trim_later, *trimmed_now;
    uint64_t last_trim; /* number of the last request */
    uint64_t bytes;     /* of all directories that were measured */
    sd_event_source *trim_timer;
};

/* After the configuration was loaded. */
void dvd_kernel_caches_apply_config(struct dvd_kernel_caches *caches);
/* Finds or makes the directory of all directories. Failures are logged, and not fatal. */
void dvd_kernel_caches_open(struct dvd_kernel_caches *caches);
void dvd_kernel_caches_fini(struct dvd_kernel_caches *caches);

/* Finds the directory of this name for a session that begins, and enters it. Returns NULL with the reason. */
struct dvd_kernel_cache *dvd_kernel_cache_admit(struct dvd_kernel_caches *caches, const char *name, uid_t uid,
                                                const char *user, char *text, size_t bytes);
/* Returns NULL when there is no number for it. */
struct dvd_kernel_cache *dvd_kernel_cache_find(struct dvd_kernel_caches *caches, const char *name);
/* A session starts, or stops, using it. */
void dvd_kernel_cache_enter(struct dvd_kernel_caches *caches, struct dvd_kernel_cache *cache);
void dvd_kernel_cache_leave(struct dvd_kernel_caches *caches, struct dvd_kernel_cache *cache);
/* Returns a descriptor, which the caller closes, or -1. */
int dvd_kernel_cache_open(struct dvd_kernel_caches *caches, const struct dvd_kernel_cache *cache);
/* The user of workers with this directory, or without one (NULL). */
void dvd_kernel_cache_fill_user(const struct dvd_kernel_caches *caches, const struct dvd_kernel_cache *cache,
                                struct dv_sandbox_settings *sandbox);

/* Fills the request for the next directory that may have become too large, or is to be removed. Returns its
 * descriptor, which the caller closes, or -1: there is none. */
int dvd_kernel_cache_next_trim(struct dvd_kernel_caches *caches, struct dv_zygote_request *request);
/* The result of a trim, and how many bytes are left. */
void dvd_kernel_cache_trimmed(struct dvd_kernel_caches *caches, uint64_t number, int status, uint64_t bytes);

#endif
