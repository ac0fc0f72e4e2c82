/* divvyd's side of the keeper (src/keeper/keeper.h): what a successor will need is put there, and taken
 * from there by one that comes after another daemon. */
#ifndef DVD_RESTART_KEEPER_CLIENT_H
#define DVD_RESTART_KEEPER_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>
#include <uthash.h>

#include "src/wire/restart/keeper.h"

struct dv_arbiter;
struct dv_session;

/* What an earlier daemon has left under one id. */
struct dv_kept {
    uint64_t id;
    int fds[DV_KEPT_KINDS]; /* by kind; -1: none */
    UT_hash_handle hh;
};

struct dv_keeper_errand;

struct dv_keeper {
    int fd; /* -1: there is none; sessions end with the daemon then */
    sd_event_source *io; /* NULL: the daemon has not begun to serve, and waits for the keeper */
    struct dv_keeper_errand *errands; /* what it could not be told at once, oldest first */
    unsigned errand_count;
    sd_event_source *patience_timer; /* for one that does not read */
    sd_event_source *retry_timer;
    uint64_t started_us;
    struct dv_kept *found; /* hash table by id, until it is taken over or dropped */
};

void dv_keeper_init(struct dv_keeper *keeper);
/* Finds the keeper that is there, and all that it has, or starts one. That there is none is no reason
 * not to serve. */
void dv_keeper_start(struct dv_arbiter *arbiter);
/* From here on the keeper is watched, and replaced should it end. */
void dv_keeper_watch(struct dv_arbiter *arbiter);
/* NULL: it has nothing of that id. */
struct dv_kept *dv_keeper_found(struct dv_arbiter *arbiter, uint64_t id);
/* Whatever was found and not taken: closed here and there. A worker that nobody knows is ended. */
void dv_keeper_drop_found(struct dv_arbiter *arbiter);

/* Listening sockets and zygote, as they are now. */
void dv_keeper_put_daemon(struct dv_arbiter *arbiter);
void dv_keeper_put_session(struct dv_session *session);
void dv_keeper_drop(struct dv_arbiter *arbiter, uint64_t id);

/* The daemon ends for good: nothing is kept. */
void dv_keeper_quit(struct dv_arbiter *arbiter);
/* Lets go of the keeper, which goes on. */
void dv_keeper_fini(struct dv_arbiter *arbiter);

#endif
