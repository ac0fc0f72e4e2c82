/* divvyd's side of the keeper (src/keeper/keeper.h): stores descriptors for a successor, and takes those
 * of an earlier daemon. */
#ifndef DVD_RESTART_KEEPER_CLIENT_H
#define DVD_RESTART_KEEPER_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>
#include <uthash.h>

#include "src/wire/restart/keeper.h"

/* The descriptors that an earlier daemon has left under one id. */
struct dvd_kept {
    uint64_t id;
    int fds[DV_KEPT_KINDS]; /* by kind; -1: none */
    UT_hash_handle hh;
};

struct dvd_keeper_events {
    /* Fills the descriptors of the daemon (DV_KEEPER_DAEMON) or of a session. Returns false: there is no such session,
     * or it is not recorded. */
    bool (*fill)(void *owner, uint64_t id, int fds[DV_KEPT_KINDS]);
    bool (*is_known)(void *owner, uint64_t session);
    /* A new keeper has nothing: call dvd_keeper_put for every session that is recorded. */
    void (*put_all)(void *owner);
};

struct dvd_keeper_request;

struct dvd_keeper {
    /* set by the owner */
    sd_event *event;
    const char *directory;
    const uint64_t *patience_ns; /* how long it waits for the next daemon */
    const struct dvd_keeper_events *events;
    void *owner;

    bool is_ending;
    int fd;                              /* -1: there is none; sessions end with the daemon then */
    sd_event_source *io;                 /* NULL: the daemon has not begun to serve, and waits for the keeper */
    struct dvd_keeper_request *requests; /* not sent yet, oldest first */
    unsigned request_count;
    sd_event_source *patience_timer; /* for a keeper that does not read */
    sd_event_source *retry_timer;
    uint64_t started_us;
    struct dvd_kept *found; /* hash table by id, until it is taken over or dropped */
};

void dvd_keeper_init(struct dvd_keeper *keeper);
/* Finds a running keeper, and all that it has, or starts one. divvyd serves without a keeper, too. */
void dvd_keeper_start(struct dvd_keeper *keeper);
/* From here on the keeper is watched, and replaced if it ends. */
void dvd_keeper_watch(struct dvd_keeper *keeper);
/* NULL: it has nothing of that id. */
struct dvd_kept *dvd_keeper_found(struct dvd_keeper *keeper, uint64_t id);
/* One of the daemon's descriptors (enum in src/wire/restart/keeper.h), or -1. */
int dvd_keeper_take(struct dvd_keeper *keeper, int kind);
/* Closes descriptors that were found and not taken, here and in the keeper. Kills an unknown worker whose client
 * still waits for its welcome. */
void dvd_keeper_drop_found(struct dvd_keeper *keeper);

/* Stores the current descriptors of a session, or of the daemon. */
void dvd_keeper_put(struct dvd_keeper *keeper, uint64_t id);
void dvd_keeper_drop(struct dvd_keeper *keeper, uint64_t id);

/* The daemon ends for good: nothing is kept. */
void dvd_keeper_quit(struct dvd_keeper *keeper);
/* Lets go of the keeper, which goes on. */
void dvd_keeper_fini(struct dvd_keeper *keeper);

#endif
