/* Bells: a word in the memory that a program shares with its worker, which the program sets to 0 when it wants the
 * worker. A parked session has no worker to sleep on the word. A helper process does so, which maps only that page, and
 * tells divvyd which words have changed. The kernel reports no such change through a descriptor, and divvyd waits for
 * no process itself. */
#ifndef DVD_SYSTEM_BELLS_H
#define DVD_SYSTEM_BELLS_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "src/arbiter/ids.h"

struct dvd_bells {
    sd_event *event;
    /* The bell of a session has rung; it is no longer watched. */
    void (*rang)(void *owner, struct dvd_session_id id);
    /* The helper process has ended: no bell is watched. */
    void (*lost)(void *owner);
    void *owner;
    int fd; /* -1: there is no helper process */
    sd_event_source *io;
};

/* Watches a word, which is at this offset of a file that others can change but not shorten, until it is not 1. Starts
 * the helper process if need be. The descriptor stays the caller's. Returns 0 or a negative errno. */
int dvd_bells_watch(struct dvd_bells *bells, struct dvd_session_id id, int file, uint64_t offset);
void dvd_bells_forget(struct dvd_bells *bells, struct dvd_session_id id);
/* The helper process ends. */
void dvd_bells_fini(struct dvd_bells *bells);

#endif
