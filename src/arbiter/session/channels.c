/* Hearing the lease channels (see channels.h).
 *
 * One source for the event loop, because sd-event asks the kernel for everything that is ready before each
 * single call, so n ready sources would cost n times n. Below it an epoll for each user: a user with a
 * thousand channels that are ready stands in line once, and is put off with one call. */
#include "src/arbiter/session/channels.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uthash.h>
#include <utlist.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/system/budget.h"
#include "src/arbiter/system/incoming.h"
#include "src/arbiter/session/session.h"

/* A user with lease channels. */
struct dv_talker {
    uid_t uid;
    int fd; /* an epoll of its channels */
    unsigned channels;
    struct dv_budget budget;
    bool is_paused;
    dv_ns heard_again_at;
    struct dv_talker *prev, *next; /* of those who are paused */
    UT_hash_handle hh;
};

static struct dv_talker *find(const struct dv_channels *channels, uid_t uid)
{
    struct dv_talker *talker;

    HASH_FIND(hh, channels->by_uid, &uid, sizeof uid, talker);
    return talker;
}

static void listen_to(const struct dv_channels *channels, const struct dv_talker *talker, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = talker->uid};
    epoll_ctl(channels->fd, EPOLL_CTL_MOD, talker->fd, &event);
}

/* ---- who has had its part ---- */

static void resume(struct dv_channels *channels, struct dv_talker *talker)
{
    DL_DELETE(channels->paused, talker);
    talker->is_paused = false;
    listen_to(channels, talker, EPOLLIN);
}

static void wait_for_first(struct dv_channels *channels)
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
    struct dv_channels *channels = &((struct dv_arbiter *)userdata)->channels;
    dv_ns now = dv_now();

    (void)source;
    (void)usec;
    while (channels->paused && channels->paused->heard_again_at <= now)
        resume(channels, channels->paused);
    wait_for_first(channels);
    return 0;
}

static int compare_end(const struct dv_talker *a, const struct dv_talker *b)
{
    return (a->heard_again_at > b->heard_again_at) - (a->heard_again_at < b->heard_again_at);
}

static void put_off(struct dv_channels *channels, struct dv_talker *talker, dv_ns until)
{
    talker->is_paused = true;
    talker->heard_again_at = until;
    DL_INSERT_INORDER(channels->paused, talker, compare_end);
    listen_to(channels, talker, 0);
    wait_for_first(channels);
}

/* Whether nobody else has had anything to say of late. */
static bool is_alone(struct dv_channels *channels, uid_t uid, dv_ns now)
{
    if (channels->last_uid != uid)
        channels->other_heard_at = now;
    channels->last_uid = uid;
    channels->heard_at = now;
    return now - channels->other_heard_at > DV_ALONE_AFTER_NS;
}

bool dv_channels_are_quiet(const struct dv_channels *channels, dv_ns now)
{
    return now - channels->heard_at > DV_ALONE_AFTER_NS;
}

static void charge(struct dv_channels *channels, struct dv_talker *talker, dv_ns took)
{
    dv_ns now = dv_now();
    dv_ns pause = dv_budget_spend(&talker->budget, took, is_alone(channels, talker->uid, now), now);

    if (pause && !talker->is_paused)
        put_off(channels, talker, now + pause);
}

/* ---- what one message may cost ----
 *
 * The process that sends to a socket, or receives from it, wakes every waiter of that socket. A program with a
 * hundred thousand epoll watches on its own channel makes each message take milliseconds. */

bool dv_channels_are_costly(const struct dv_channels *channels, uid_t uid, dv_ns now)
{
    for (size_t i = 0; i < DV_COSTLY_USERS; i++)
        if (channels->costly[i].uid == uid && channels->costly[i].until > now)
            return true;
    return false;
}

/* in_a_row counts costly messages of one direction. A single one may be costly because the machine is slow. */
static void note_cost(struct dv_session *session, unsigned *in_a_row, dv_ns took)
{
    enum { PATIENCE = 3 };

    if (took < DV_MESSAGE_COST_MOST_NS)
        *in_a_row = 0;
    else
        ++*in_a_row;
    if (*in_a_row < PATIENCE || session->is_costly)
        return;
    session->is_costly = true;
    dv_warning("session %llu of %s (process %d, %s): a message to or from it takes divvyd %.1f ms, as so many wait "
               "for its socket; it is ended",
               (unsigned long long)session->lessee.id, session->command, (int)session->tenant_pid, session->user,
               (double)took / 1e6);
    struct dv_channels *channels = &session->arbiter->channels;
    channels->costly[channels->costly_next++ % DV_COSTLY_USERS] =
        (struct dv_costly){.uid = session->lessee.uid, .until = dv_now() + DV_COSTLY_PAUSE_NS};
    if (session->api == DV_API_LEASE)
        shutdown(session->control_fd, SHUT_RDWR); /* this is heard as its end */
    else
        dv_session_end_for(session, "messages to it took too long, as too many waited for its socket");
}

int dv_channels_send(struct dv_session *session, const void *data, size_t bytes)
{
    struct dv_channels *channels = &session->arbiter->channels;
    dv_ns began = dv_processor_time();
    int error = send(session->control_fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
    dv_ns took = dv_processor_time() - began;

    if (took > DV_MESSAGE_COST_USUAL_NS && session->lessee.uid != channels->turn_uid) {
        struct dv_talker *talker = find(channels, session->lessee.uid);
        channels->sent_to_others += took;
        if (talker)
            charge(channels, talker, took);
    }
    note_cost(session, &session->costly_sends, took);
    return error;
}

static ssize_t receive(struct dv_session *session, void *data, size_t bytes)
{
    dv_ns began = dv_processor_time();
    ssize_t length = dvd_incoming_receive(session->control_fd, data, bytes, MSG_TRUNC);
    int error = errno;

    note_cost(session, &session->costly_receives, dv_processor_time() - began);
    errno = error;
    return length;
}

/* ---- hearing ---- */

/* What to wait for: EPOLLIN, and EPOLLOUT if something could not be sent. */
static void watch(const struct dv_session *session, uint32_t events)
{
    const struct dv_talker *talker = find(&session->arbiter->channels, session->lessee.uid);
    struct epoll_event event = {.events = events, .data.u64 = session->lessee.id};

    if (talker)
        epoll_ctl(talker->fd, EPOLL_CTL_MOD, session->control_fd, &event);
}

/* Asks a session of an earlier daemon what it holds; if it does not read now, as soon as it does. */
void dv_channels_ask_state(struct dv_session *session)
{
    bool later = dvd_lessee_ask_state(&session->lessee) == -EAGAIN;

    if (later)
        dv_warning("session %llu: lease channel full, grants delayed", (unsigned long long)session->lessee.id);
    watch(session, later ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Takes messages of a session, at most this many. Returns how many there were. The session may be gone then. */
static unsigned hear_session(struct dv_session *session, uint32_t events, unsigned most)
{
    unsigned count = 0;

    if (events & EPOLLOUT)
        dv_channels_ask_state(session);
    for (; count < most; count++) {
        union dv_channel_message m = {0};
        ssize_t bytes = receive(session, &m, sizeof m);
        bool is_over = bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR);
        dvd_lessee_take(&session->lessee, &m, bytes);
        if (is_over) {
            dv_channels_leave(session);
            dv_session_hung_up(session);
            break;
        }
        if (bytes <= 0)
            break;
    }
    return count;
}

/* One turn of a user. What is not heard is still there in the next. */
static void hear(struct dv_arbiter *arbiter, uid_t uid)
{
    enum { OF_SESSION = 8 };
    struct dv_talker *talker = find(&arbiter->channels, uid);
    struct epoll_event ready[DV_CHANNEL_TURN];
    dv_ns began = dv_processor_time();
    unsigned messages = 0;

    arbiter->channels.turn_uid = uid;
    arbiter->channels.sent_to_others = 0;
    int count = talker && !talker->is_paused ? epoll_wait(talker->fd, ready, DV_CHANNEL_TURN, 0) : 0;
    for (int i = 0; i < count && messages < DV_CHANNEL_TURN; i++) {
        /* by number: one may be gone through what another said */
        struct dv_session *session = dv_session_find(arbiter, ready[i].data.u64);
        unsigned left = DV_CHANNEL_TURN - messages;
        if (session && session->in_channels)
            messages += hear_session(session, ready[i].events, left < OF_SESSION ? left : OF_SESSION);
    }
    talker = find(&arbiter->channels, uid); /* its last session may have ended */
    if (talker)
        charge(&arbiter->channels, talker, dv_processor_time() - began - arbiter->channels.sent_to_others);
}

static int on_channels(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dv_arbiter *arbiter = userdata;
    struct epoll_event ready[DV_LIMIT_BATCH];

    (void)source;
    (void)events;
    int count = epoll_wait(fd, ready, DV_LIMIT_BATCH, 0);
    for (int i = 0; i < count; i++)
        hear(arbiter, (uid_t)ready[i].data.u64);
    return 0;
}

/* ---- coming and going ---- */

static void forget(struct dv_channels *channels, struct dv_talker *talker)
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
static struct dv_talker *find_or_add(struct dv_channels *channels, uid_t uid)
{
    struct dv_talker *talker = find(channels, uid);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = uid};

    if (talker)
        return talker;
    talker = calloc(1, sizeof *talker);
    if (!talker)
        return NULL;
    *talker = (struct dv_talker){.uid = uid, .fd = epoll_create1(EPOLL_CLOEXEC), .budget.counted_at = dv_now()};
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

int dv_channels_enter(struct dv_session *session)
{
    struct dv_channels *channels = &session->arbiter->channels;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = session->lessee.id};
    struct dv_talker *talker = find_or_add(channels, session->lessee.uid);

    if (!talker)
        return -errno;
    if (epoll_ctl(talker->fd, EPOLL_CTL_ADD, session->control_fd, &event) < 0) {
        int error = -errno;
        if (talker->channels == 0)
            forget(channels, talker);
        return error;
    }
    talker->channels++;
    session->in_channels = true;
    return 0;
}

void dv_channels_leave(struct dv_session *session)
{
    struct dv_channels *channels = &session->arbiter->channels;

    if (!session->in_channels)
        return;
    struct dv_talker *talker = find(channels, session->lessee.uid);
    session->in_channels = false;
    epoll_ctl(talker->fd, EPOLL_CTL_DEL, session->control_fd, NULL);
    if (--talker->channels == 0)
        forget(channels, talker);
}

int dv_channels_init(struct dv_arbiter *arbiter)
{
    struct dv_channels *channels = &arbiter->channels;

    channels->fd = epoll_create1(EPOLL_CLOEXEC);
    if (channels->fd < 0)
        return -errno;
    int error = sd_event_add_io(arbiter->event, &channels->io, channels->fd, EPOLLIN, on_channels, arbiter);
    if (error >= 0)
        error = sd_event_add_time(arbiter->event, &channels->timer, CLOCK_MONOTONIC, 0, 1, on_time, arbiter);
    if (error >= 0)
        error = sd_event_source_set_enabled(channels->timer, SD_EVENT_OFF);
    if (error < 0)
        dv_channels_fini(arbiter);
    return error < 0 ? error : 0;
}

/* There is no session any more. */
void dv_channels_fini(struct dv_arbiter *arbiter)
{
    struct dv_channels *channels = &arbiter->channels;
    struct dv_talker *talker, *next;

    HASH_ITER (hh, channels->by_uid, talker, next)
        forget(channels, talker);
    channels->timer = sd_event_source_disable_unref(channels->timer);
    if (!channels->io)
        return;
    channels->io = sd_event_source_disable_unref(channels->io);
    close(channels->fd);
}
