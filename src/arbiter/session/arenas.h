/* The memory that each session shares with its worker: its size, and checks that it holds no more than
 * the session has reserved. divvyd keeps its descriptor, so neither side can hide how much it uses. */
#ifndef DVD_SESSION_ARENAS_H
#define DVD_SESSION_ARENAS_H

#include <stdint.h>
#include <systemd/sd-event.h>

struct dvd_sessions;
struct dvd_session;

struct dvd_arenas {
    void (*on_excess)(struct dvd_session *session, const char *why); /* it holds too much, for too long */
    sd_event_source *timer;   /* for the next check; NULL: no session was checked yet */
    struct dvd_session *next; /* to be checked; NULL: a new round begins */
};

/* The size for the shared memory of an admitted session. */
uint64_t dvd_arenas_size(const struct dvd_session *session);
/* Starts the periodic checks: there is a session. */
void dvd_arenas_watch(struct dvd_sessions *sessions);
/* The session is about to be freed. */
void dvd_arenas_session_goes(struct dvd_sessions *sessions, const struct dvd_session *session);
void dvd_arenas_fini(struct dvd_sessions *sessions);

#endif
