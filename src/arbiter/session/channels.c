/* Receiving from the lease channels (see channels.h).
 *
 * They are one source of the event loop: sd-event asks the kernel for all ready sources before each call,
 * so n ready sources would cost n times n. Below it each user has an epoll: a user with a thousand ready
 * channels is queued once, and is paused with one call. */
#include "src/arbiter/session/channels.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uthash.h>
#include <utlist.h>

#include "src/arbiter/limits.h"
#include "src/base/fd.h"
#include "src/arbiter/system/budget.h"
#include "src/arbiter/system/incoming.h"

/* A user with lease channels. */
struct dvd_talker {
    uid_t uid;
    int fd; /* an epoll of its channels */
    unsigned channels;
    struct dvd_budget budget;
    bool is_paused;
    dv_ns heard_again_at;
    struct dvd_talker *prev, *next; /* among the paused users */
    UT_hash_handle hh;
};

static struct dvd_talker *find(const struct dvd_channels *channels, uid_t uid)
{
    struct dvd_talker *talker;

    HASH_FIND(hh, channels->by_uid, &uid, sizeof uid, talker);
    return talker;
}

static void listen_to(const struct dvd_channels *channels, const struct dvd_talker *talker, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = talker->uid};
    epoll_ctl(channels->fd, EPOLL_CTL_MOD, talker->fd, &event);
}

/* ---- users that have used up their part ---- */

static void resume(struct dvd_channels *channels, struct dvd_talker *talker)
{
    DL_DELETE(channels->paused, talker);
    talker->is_paused = false;
    listen_to(channels, talker, EPOLLIN);
}

static void wait_for_first(struct dvd_channels *channels)
{
    if (!channels->paused) {
        sd_event_source_set_enabled(channels->timer, SD_EVENT_OFF);
        return;
    }
    sd_event_source_set_time(channels->timer, channels->paused->heard_again_at / DV_NS_PER_US + 1);
    sd_event_source_set_enabled(channels->timer, SD_EVENT_ONESHOT);
}

static int on_time(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_channels *channels = userdata;
    dv_ns now = dv_now();

    (void)source;
    (void)usec;
    while (channels->paused && channels->paused->heard_again_at <= now)
        resume(channels, channels->paused);
    wait_for_first(channels);
    return 0;
}

static int compare_end(const struct dvd_talker *a, const struct dvd_talker *b)
{
    return (a->heard_again_at > b->heard_again_at) - (a->heard_again_at < b->heard_again_at);
}

static void put_off(struct dvd_channels *channels, struct dvd_talker *talker, dv_ns until)
{
    talker->is_paused = true;
    talker->heard_again_at = until;
    DL_INSERT_INORDER(channels->paused, talker, compare_end);
    listen_to(channels, talker, 0);
    wait_for_first(channels);
}

/* Whether no other user has sent a message of late. */
static bool is_alone(struct dvd_channels *channels, uid_t uid, dv_ns now)
{
    if (channels->last_uid != uid)
        channels->other_heard_at = now;
    channels->last_uid = uid;
    channels->heard_at = now;
    return now - channels->other_heard_at > DV_ALONE_AFTER_NS;
}

bool dvd_channels_are_quiet(const struct dvd_channels *channels, dv_ns now)
{
    return now - channels->heard_at > DV_ALONE_AFTER_NS;
}

static void charge(struct dvd_channels *channels, struct dvd_talker *talker, dv_ns took)
{
    dv_ns now = dv_now();
    dv_ns pause = dvd_budget_spend(&talker->budget, took, is_alone(channels, talker->uid, now), now);

    if (pause && !talker->is_paused)
        put_off(channels, talker, now + pause);
}

/* ---- the cost of one message ----
 *
 * The process that sends to a socket, or receives from it, wakes every waiter of that socket. A program with a
 * hundred thousand epoll watches on its own channel makes each message take milliseconds. */

bool dvd_channels_are_costly(const struct dvd_channels *channels, uid_t uid, dv_ns now)
{
    for (size_t i = 0; i < DV_COSTLY_USERS; i++)
        if (channels->costly[i].uid == uid && channels->costly[i].until > now)
            return true;
    return false;
}

/* in_a_row counts costly messages of one direction. A single one may be costly because the machine is slow. */
static void note_cost(struct dvd_channel *channel, unsigned *in_a_row, dv_ns took)
{
    enum { PATIENCE = 3 };
    struct dvd_channels *channels = channel->channels;

    if (took < DV_MESSAGE_COST_MAX_NS)
        *in_a_row = 0;
    else
        ++*in_a_row;
    if (*in_a_row < PATIENCE || channel->is_costly)
        return;
    channel->is_costly = true;
    channels->costly[channels->costly_next++ % DV_COSTLY_USERS] =
        (struct dvd_costly){.uid = channel->uid, .until = dv_now() + DV_COSTLY_PAUSE_NS};
    channels->events->costly(channel, took);
}

int dvd_channel_send(struct dvd_channel *channel, const void *data, size_t bytes)
{
    return dvd_channel_send_fd(channel, data, bytes, -1);
}

int dvd_channel_send_fd(struct dvd_channel *channel, const void *data, size_t bytes, int fd)
{
    struct dvd_channels *channels = channel->channels;
    dv_ns began = dvd_processor_time();
    int error = dv_fd_send(channel->fd, data, bytes, &fd, fd >= 0); /* the socket does not block */
    dv_ns took = dvd_processor_time() - began;

    if (took > DV_MESSAGE_COST_USUAL_NS && channel->uid != channels->served_uid) {
        struct dvd_talker *talker = find(channels, channel->uid);
        channels->sent_to_others += took;
        if (talker)
            charge(channels, talker, took);
    }
    note_cost(channel, &channel->costly_sends, took);
    return error;
}

/* ---- receiving ---- */

/* Handles at most `most` messages of a channel. Returns how many there were. It may have freed the channel. */
static unsigned hear_channel(struct dvd_channels *channels, struct dvd_session_id id, uint32_t events, unsigned most)
{
    struct dvd_channel *channel = NULL;
    unsigned count = 0;

    for (; count < most; count++) {
        union dv_channel_message m = {0};
        /* by id: its last message may have ended it */
        HASH_FIND(hh, channels->by_id, &id, sizeof id, channel);
        if (!channel)
            break;
        if (count == 0 && events & EPOLLOUT)
            channels->events->writable(channel);
        dv_ns began = dvd_processor_time();
        ssize_t bytes = dvd_incoming_receive(channel->fd, &m, sizeof m, MSG_TRUNC);
        bool is_over = bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR);
        note_cost(channel, &channel->costly_receives, dvd_processor_time() - began);
        if (is_over) {
            dvd_channel_leave(channel);
            channels->events->hung_up(channel);
            break;
        }
        if (bytes <= 0)
            break;
        channels->events->message(channel, &m, bytes);
    }
    return count;
}

/* Serves a user once. Messages that are left are read the next time. */
static void hear(struct dvd_channels *channels, uid_t uid)
{
    enum { OF_CHANNEL = 8 };
    struct dvd_talker *talker = find(channels, uid);
    struct epoll_event ready[DV_CHANNEL_BATCH];
    dv_ns began = dvd_processor_time();
    unsigned messages = 0;

    channels->served_uid = uid;
    channels->sent_to_others = 0;
    int count = talker && !talker->is_paused ? epoll_wait(talker->fd, ready, DV_CHANNEL_BATCH, 0) : 0;
    for (int i = 0; i < count && messages < DV_CHANNEL_BATCH; i++) {
        unsigned left = DV_CHANNEL_BATCH - messages;
        messages += hear_channel(channels, DVD_SESSION_ID(ready[i].data.u64), ready[i].events,
                                 left < OF_CHANNEL ? left : OF_CHANNEL);
    }
    talker = find(channels, uid); /* its last channel may be gone */
    if (talker)
        charge(channels, talker, dvd_processor_time() - began - channels->sent_to_others);
}

static int on_channels(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct epoll_event ready[DV_MAX_BATCH];

    (void)source;
    (void)events;
    int count = epoll_wait(fd, ready, DV_MAX_BATCH, 0);
    for (int i = 0; i < count; i++)
        hear(userdata, (uid_t)ready[i].data.u64);
    return 0;
}

/* ---- coming and going ---- */

static void forget(struct dvd_channels *channels, struct dvd_talker *talker)
{
    HASH_DEL(channels->by_uid, talker);
    if (talker->is_paused) {
        DL_DELETE(channels->paused, talker);
        wait_for_first(channels);
    }
    close(talker->fd);
    free(talker);
}

/* Returns NULL with errno. */
static struct dvd_talker *find_or_add(struct dvd_channels *channels, uid_t uid)
{
    struct dvd_talker *talker = find(channels, uid);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = uid};

    if (talker)
        return talker;
    talker = calloc(1, sizeof *talker);
    if (!talker)
        return NULL;
    *talker = (struct dvd_talker){.uid = uid, .fd = epoll_create1(EPOLL_CLOEXEC), .budget.counted_at = dv_now()};
    if (talker->fd < 0 || epoll_ctl(channels->fd, EPOLL_CTL_ADD, talker->fd, &event) < 0) {
        int error = errno;
        if (talker->fd >= 0)
            close(talker->fd);
        free(talker);
        errno = error;
        return NULL;
    }
    HASH_ADD(hh, channels->by_uid, uid, sizeof talker->uid, talker);
    return talker;
}

int dvd_channel_enter(struct dvd_channels *channels, struct dvd_channel *channel)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = channel->id.value};
    struct dvd_talker *talker = find_or_add(channels, channel->uid);

    if (!talker)
        return -errno;
    if (epoll_ctl(talker->fd, EPOLL_CTL_ADD, channel->fd, &event) < 0) {
        int error = -errno;
        if (talker->channels == 0)
            forget(channels, talker);
        return error;
    }
    talker->channels++;
    channel->is_heard = true;
    HASH_ADD(hh, channels->by_id, id, sizeof channel->id, channel);
    return 0;
}

void dvd_channel_leave(struct dvd_channel *channel)
{
    struct dvd_channels *channels = channel->channels;

    if (!channel->is_heard)
        return;
    struct dvd_talker *talker = find(channels, channel->uid);
    channel->is_heard = false;
    HASH_DEL(channels->by_id, channel);
    epoll_ctl(talker->fd, EPOLL_CTL_DEL, channel->fd, NULL);
    if (--talker->channels == 0)
        forget(channels, talker);
}

void dvd_channel_await_room(const struct dvd_channel *channel, bool awaits)
{
    const struct dvd_talker *talker = find(channel->channels, channel->uid);
    struct epoll_event event = {.events = awaits ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.u64 = channel->id.value};

    if (talker)
        epoll_ctl(talker->fd, EPOLL_CTL_MOD, channel->fd, &event);
}

int dvd_channels_init(struct dvd_channels *channels, sd_event *event, const struct dvd_channel_events *events)
{
    *channels = (struct dvd_channels){.events = events, .fd = epoll_create1(EPOLL_CLOEXEC)};
    if (channels->fd < 0)
        return -errno;
    int error = sd_event_add_io(event, &channels->io, channels->fd, EPOLLIN, on_channels, channels);
    if (error >= 0)
        error = sd_event_add_time(event, &channels->timer, CLOCK_MONOTONIC, 0, 1, on_time, channels);
    if (error >= 0)
        error = sd_event_source_set_enabled(channels->timer, SD_EVENT_OFF);
    if (error < 0)
        dvd_channels_fini(channels);
    return error < 0 ? error : 0;
}

void dvd_channels_fini(struct dvd_channels *channels)
{
    struct dvd_talker *talker, *next;

    HASH_ITER (hh, channels->by_uid, talker, next)
        forget(channels, talker);
    channels->timer = sd_event_source_disable_unref(channels->timer);
    if (!channels->io)
        return;
    channels->io = sd_event_source_disable_unref(channels->io);
    close(channels->fd);
}
