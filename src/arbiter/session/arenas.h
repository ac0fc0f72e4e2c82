/* The memory that each session shares with its worker: how large it is made, and that it holds no more
 * than the session has reserved. divvyd keeps its descriptor, so neither side can hide what it takes. */
#ifndef DVD_SESSION_ARENAS_H
#define DVD_SESSION_ARENAS_H

#include <stdint.h>
#include <systemd/sd-event.h>

struct dv_arbiter;
struct dv_session;

struct dv_arenas {
    sd_event_source *timer; /* for the next look; NULL: no session was looked at yet */
    struct dv_session *next; /* to be looked at; NULL: a new round begins */
};

/* How large the shared memory of a session is to be that has been admitted. */
uint64_t dv_arenas_size(const struct dv_session *session);
/* There is a session to look at now and then. */
void dv_arenas_watch(struct dv_arbiter *arbiter);
/* It goes. */
void dv_arenas_session_goes(struct dv_arbiter *arbiter, const struct dv_session *session);
void dv_arenas_fini(struct dv_arbiter *arbiter);

#endif
