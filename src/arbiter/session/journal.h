/* The journal of used device time (src/base/usage_journal.h): a line for each session every few minutes, and at its
 * end. Sessions of one user that end in quick succession share a line: otherwise a user could push out the lines of all
 * others. */
#ifndef DVD_SESSION_JOURNAL_H
#define DVD_SESSION_JOURNAL_H

#include <systemd/sd-event.h>

#include "src/arbiter/session/journal_file.h"

struct dvd_journal_user;
struct dvd_session;
struct dvd_sessions;

struct dvd_journal {
    struct dvd_journal_file file;
    struct dvd_session *sessions; /* with a line to come, the next one first */
    sd_event_source *timer;
    struct dvd_journal_user *users; /* hash table by number, of those whose sessions have ended; the oldest first */
    sd_event_source *sums_timer;    /* until the next sums of users are written */
};

/* Opens the journal in a directory, which is made if need be; members of the group may read it. Without one (NULL), or
 * when it cannot be opened, nothing is written. */
void dvd_journal_open(struct dvd_sessions *sessions, const char *directory, gid_t readers);
void dvd_journal_close(struct dvd_sessions *sessions);
/* A session begins, and ends: then its last line is written. */
void dvd_journal_enter(struct dvd_session *session);
void dvd_journal_leave(struct dvd_session *session);
/* Writes the sums of sessions that have ended: no later daemon knows of them. */
void dvd_journal_write_sums(struct dvd_journal *journal);

#endif
