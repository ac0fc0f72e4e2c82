/* The session socket: where clients connect and say hello. Its clients are only tenants. */
#ifndef DVD_SESSION_LISTENER_H
#define DVD_SESSION_LISTENER_H

#include <stdbool.h>
#include <systemd/sd-event.h>

struct dvd_sessions;
struct dvd_pending;
struct dvd_pending_user;

struct dvd_listener {
    struct dvd_sessions *sessions; /* set by the owner */
    int fd;                        /* -1: closed */
    bool activated;                /* handed over by the service manager, which keeps the file */
    sd_event_source *io;
    struct dvd_pending *pending; /* connections that are not a session yet */
    unsigned pending_count;
    int hellos_fd; /* an epoll of those whose hello has not come */
    sd_event_source *hellos;
    struct dvd_pending_user *users; /* hash table by number: their users */
    struct dvd_pending_user *ready; /* those with a hello that has arrived, in round-robin order */
    sd_event_source *next;          /* for the next of them */
};

/* Which users the session socket lets in, after the configuration has changed. */
void dvd_listener_apply_config(struct dvd_listener *listener);
/* Makes the socket (or takes the given one, unless it is -1). Returns 0 or a negative errno. */
int dvd_listener_init(struct dvd_listener *listener, int activated_fd);
/* Closes the socket, removes its file and drops the pending connections. */
void dvd_listener_fini(struct dvd_listener *listener);

#endif
