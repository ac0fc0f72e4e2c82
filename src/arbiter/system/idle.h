/* The end of a daemon that no program needs any more. */
#ifndef DVD_SYSTEM_IDLE_H
#define DVD_SYSTEM_IDLE_H

#include <systemd/sd-event.h>

struct dvd_idle {
    sd_event *event;
    unsigned after_s; /* 0: never */
    unsigned holds;   /* sessions, connections and processes for which the daemon stays */
    sd_event_source *timer;
    void (*on_idle)(void *owner);
    void *owner;
};

/* The daemon is idle until the first dvd_idle_hold. */
void dvd_idle_init(struct dvd_idle *idle, sd_event *event, unsigned after_s, void (*on_idle)(void *owner), void *owner);
void dvd_idle_fini(struct dvd_idle *idle);
void dvd_idle_hold(struct dvd_idle *idle);
void dvd_idle_release(struct dvd_idle *idle);

#endif
