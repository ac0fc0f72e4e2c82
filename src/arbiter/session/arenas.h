/* The memory that each session shares with its worker: how large it is made, and that it holds no more
 * than the session has reserved. divvyd keeps its descriptor, so neither side can hide what it takes. */
#ifndef DVD_SESSION_ARENAS_H
#define DVD_SESSION_ARENAS_H

#include <stdint.h>
#include <systemd/sd-event.h>

struct dvd_sessions;
struct dvd_session;

struct dvd_arenas {
    void (*on_excess)(struct dvd_session *session, const char *why); /* it holds too much, for too long */
    sd_event_source *timer; /* for the next look; NULL: no session was looked at yet */
    struct dvd_session *next; /* to be looked at; NULL: a new round begins */
};

/* How large the shared memory of a session is to be that has been admitted. */
uint64_t dvd_arenas_size(const struct dvd_session *session);
/* There is a session to look at now and then. */
void dvd_arenas_watch(struct dvd_sessions *sessions);
/* It goes. */
void dvd_arenas_session_goes(struct dvd_sessions *sessions, const struct dvd_session *session);
void dvd_arenas_fini(struct dvd_sessions *sessions);

#endif
