/* The lease channels of all sessions, as one source of the event loop. Users are served in round-robin order, each with
 * a bounded part of divvyd's time: a user with many busy sessions does not delay other users. */
#ifndef DVD_SESSION_CHANNELS_H
#define DVD_SESSION_CHANNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>
#include <uthash.h>

#include "src/arbiter/ids.h"
#include "src/arbiter/limits.h"
#include "src/base/clock.h"
#include "src/wire/lease/message.h"

struct dvd_talker;

/* One session's. The owner embeds it in its record of the session. */
struct dvd_channel {
    struct dvd_channels *channels;
    struct dvd_session_id id;
    uid_t uid;
    int fd;        /* -1: none. The owner's */
    bool is_heard; /* between dvd_channel_enter and dvd_channel_leave */
    bool is_costly;
    unsigned costly_sends, costly_receives; /* in a row: they took longer than DV_MESSAGE_COST_MAX_NS */
    UT_hash_handle hh;
};

struct dvd_channel_events {
    /* The channel may be gone when this returns. */
    void (*message)(struct dvd_channel *channel, const union dv_channel_message *message, ssize_t bytes);
    void (*writable)(struct dvd_channel *channel); /* after dvd_channel_await_room */
    void (*hung_up)(struct dvd_channel *channel);  /* it is not heard any more */
    /* Its messages take divvyd too long: its socket has too many watches. */
    void (*costly)(struct dvd_channel *channel, dv_ns took);
};

struct dvd_channels {
    const struct dvd_channel_events *events;
    struct dvd_channel *by_id;
    int fd; /* an epoll of the users' epolls, each of which has that user's channels */
    sd_event_source *io;
    struct dvd_talker *by_uid;
    struct dvd_talker *paused; /* users that have used up their part; the first to be heard again comes first */
    sd_event_source *timer;    /* for the first of those */
    uid_t last_uid;            /* of the user that was heard last */
    dv_ns heard_at;            /* when that was */
    dv_ns other_heard_at;      /* when last_uid last changed */
    dv_ns sent_to_others;      /* time that sending to other users took, while serving this one */
    uid_t served_uid;
    struct dvd_costly {
        uid_t uid;
        dv_ns until;
    } costly[DV_COSTLY_USERS]; /* users with sessions terminated for costly messages; the oldest is replaced */
    unsigned costly_next;
};

int dvd_channels_init(struct dvd_channels *channels, sd_event *event, const struct dvd_channel_events *events);
/* No channel is left. */
void dvd_channels_fini(struct dvd_channels *channels);

/* Messages of the channel are events from here on. Returns 0 or a negative errno. */
int dvd_channel_enter(struct dvd_channels *channels, struct dvd_channel *channel);
void dvd_channel_leave(struct dvd_channel *channel);
/* Whether to wait until the channel takes another message. */
void dvd_channel_await_room(const struct dvd_channel *channel, bool awaits);

/* Sends without waiting. The time that it takes is charged to the receiver, not to the user whose message has led to
 * it. Returns 0 or a negative errno. */
int dvd_channel_send(struct dvd_channel *channel, const void *data, size_t bytes);
/* The same with a descriptor, or -1. */
int dvd_channel_send_fd(struct dvd_channel *channel, const void *data, size_t bytes, int fd);

/* Whether this user had a session of late whose messages cost too much. */
bool dvd_channels_are_costly(const struct dvd_channels *channels, uid_t uid, dv_ns now);
/* Whether no user has sent a message of late. */
bool dvd_channels_are_quiet(const struct dvd_channels *channels, dv_ns now);

#endif
