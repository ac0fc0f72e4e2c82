/* The lease channels of all sessions, as one source of the event loop. Each user is heard in turns and has a
 * bounded part of divvyd's time: a user with many busy sessions does not delay other users. */
#ifndef DVD_SESSION_CHANNELS_H
#define DVD_SESSION_CHANNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "src/arbiter/limits.h"
#include "src/base/clock.h"

struct dv_arbiter;
struct dv_session;
struct dv_talker;

struct dv_channels {
    int fd; /* an epoll of the users' epolls, each of which has that user's channels */
    sd_event_source *io;
    struct dv_talker *by_uid;
    struct dv_talker *paused; /* have had their part for now; who is heard again first comes first */
    sd_event_source *timer;   /* for the first of those */
    uid_t last_uid;           /* who was heard last */
    dv_ns heard_at;           /* when that was */
    dv_ns other_heard_at;     /* when somebody else was before */
    dv_ns sent_to_others;     /* of the turn of now: time that sending to other users took */
    uid_t turn_uid;
    struct dv_costly {
        uid_t uid;
        dv_ns until;
    } costly[DV_COSTLY_USERS]; /* users whose sessions were ended for what their messages cost; the oldest is replaced */
    unsigned costly_next;
};

int dv_channels_init(struct dv_arbiter *arbiter);
void dv_channels_fini(struct dv_arbiter *arbiter);

/* From here on what comes through a session's control_fd is given to the ledger. Returns 0 or a negative
 * errno. */
int dv_channels_enter(struct dv_session *session);
void dv_channels_leave(struct dv_session *session);
/* Asks a session of an earlier daemon what it holds. */
void dv_channels_ask_state(struct dv_session *session);

/* Says something on a session's channel, without waiting. What that takes is its user's, not of the one whose
 * message has led to it. Returns 0 or a negative errno. */
int dv_channels_send(struct dv_session *session, const void *data, size_t bytes);

/* Whether this user had a session of late whose messages cost too much. */
bool dv_channels_are_costly(const struct dv_channels *channels, uid_t uid, dv_ns now);

/* Whether nobody has said anything of late. */
bool dv_channels_are_quiet(const struct dv_channels *channels, dv_ns now);

#endif
