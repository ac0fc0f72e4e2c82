/* Accepting clients (see listener.h): the kernel identifies the client, its hello states its request,
 * and each number in the hello is checked here. */
#include "src/arbiter/session/listener.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uthash.h>
#include <utlist.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/system/incoming.h"
#include "src/arbiter/system/peers.h"
#include "src/arbiter/system/sockets.h"
#include "src/arbiter/session/session.h"
#include "src/base/cleanup.h"

struct dvd_pending {
    struct dvd_listener *listener;
    int fd;
    struct ucred peer;
    struct dvd_pending_user *user;
    bool has_said;
    sd_event_source *timer;
    struct dvd_pending *prev, *next;
    struct dvd_pending *prev_said, *next_said;
};

struct dvd_pending_user {
    uid_t uid;
    unsigned count;           /* of its connections that are not a session yet */
    struct dvd_pending *said; /* those whose hello has arrived, oldest first */
    struct dvd_pending_user *prev, *next;
    UT_hash_handle hh;
};

/* ---- connections by user ---- */

/* Returns NULL when memory is short. */
static struct dvd_pending_user *find_or_add_user(struct dvd_listener *listener, uid_t uid)
{
    struct dvd_pending_user *user;

    HASH_FIND(hh, listener->users, &uid, sizeof uid, user);
    if (user)
        return user;
    user = calloc(1, sizeof *user);
    if (!user)
        return NULL;
    user->uid = uid;
    HASH_ADD(hh, listener->users, uid, sizeof user->uid, user);
    return user;
}

static void enlist(struct dvd_listener *listener, struct dvd_pending *pending)
{
    struct dvd_pending_user *user = pending->user;

    pending->has_said = true;
    if (!user->said)
        DL_APPEND(listener->ready, user);
    DL_APPEND2(user->said, pending, prev_said, next_said);
}

static void forget_pending(struct dvd_listener *listener, struct dvd_pending *pending)
{
    struct dvd_pending_user *user = pending->user;

    if (pending->has_said) {
        DL_DELETE2(user->said, pending, prev_said, next_said);
        if (!user->said)
            DL_DELETE(listener->ready, user);
    }
    if (--user->count > 0)
        return;
    HASH_DEL(listener->users, user);
    free(user);
}

/* ---- one connection that has not said hello ---- */

static void pending_destroy(struct dvd_pending *pending)
{
    struct dvd_listener *listener = pending->listener;
    struct dvd_sessions *sessions = listener->sessions;

    DL_DELETE(listener->pending, pending);
    listener->pending_count--;
    forget_pending(listener, pending);
    pending->timer = sd_event_source_disable_unref(pending->timer);
    dvd_incoming_close(&sessions->asides, &pending->fd);
    free(pending);
    dvd_idle_release(sessions->idle);
}

static void refuse(struct dvd_pending *pending, enum dv_welcome_status status, const char *text)
{
    if (dv_log_within(&pending->listener->sessions->refusals, DV_REFUSALS_PER_S))
        dv_warning("process %d of uid %u is refused: %s", pending->peer.pid, (unsigned)pending->peer.uid, text);
    dvd_session_send_welcome(pending->fd, DV_WIRE_VERSION, status, 0, 0, -1, text);
    pending_destroy(pending);
}

/* Of a program that asked for a session: people find the reason later, too. */
static void turn_away(struct dvd_pending *pending, enum dv_welcome_status status, const char *text)
{
    dvd_session_note_refusal(pending->listener->sessions, &pending->peer, text);
    refuse(pending, status, text);
}

/* The newest version both sides speak, 0 when there is none. */
static uint16_t common_version(const struct dv_hello *hello)
{
    uint16_t newest = hello->version < DV_WIRE_VERSION ? hello->version : DV_WIRE_VERSION;

    if (hello->version_oldest > hello->version || newest < hello->version_oldest || newest < DV_WIRE_VERSION_OLDEST)
        return 0;
    return newest;
}

/* Checks each value by itself; whether the tenant may have it is checked later. */
static bool share_makes_sense(const struct dv_hello *hello)
{
    return hello->request <= DV_PPM + 1 && hello->limit <= DV_PPM + 1 && hello->weight <= DV_WEIGHT_MAX &&
           hello->class <= DV_CLASS_COUNT && hello->memory_bytes <= DV_MEMORY_BYTES_MAX &&
           (hello->deadline_ns == 0 ||
            (hello->deadline_ns >= DV_DEADLINE_MIN_NS && hello->deadline_ns <= DV_DEADLINE_MAX_NS));
}

/* Checks the form; whether there are such devices is checked later. */
static bool choice_makes_sense(const struct dv_hello *hello)
{
    return memchr(hello->devices, '\0', sizeof hello->devices) && hello->flags <= DV_HELLO_LEASE_ONLY &&
           (!hello->flags || hello->devices[0]) && (hello->flags != DV_HELLO_LEASE_ONLY || hello->api == DV_API_LEASE);
}

static bool length_makes_sense(const struct dv_hello *hello, ssize_t length)
{
    return hello->version < 2 ? length == DV_HELLO_BYTES_1
                              : length == DV_HELLO_BYTES_2 || length == (ssize_t)sizeof *hello;
}

static void take_hello(struct dvd_pending *pending, const struct dv_hello *hello, ssize_t length)
{
    char text[DV_MAX_MESSAGE_TEXT];

    if (!length_makes_sense(hello, length) || hello->magic != DV_WIRE_MAGIC) {
        turn_away(pending, DV_WELCOME_REFUSED,
                  "the first message is not a divvy hello; is another program using this socket?");
        return;
    }
    uint16_t version = common_version(hello);
    if (version == 0) {
        snprintf(text, sizeof text,
                 "the client library speaks protocol versions %u to %u and divvyd %s speaks %d to "
                 "%d: install the same release of both, then restart divvyd or the program",
                 hello->version_oldest, hello->version, DIVVY_VERSION, DV_WIRE_VERSION_OLDEST, DV_WIRE_VERSION);
        turn_away(pending, DV_WELCOME_VERSION, text);
        return;
    }
    if ((hello->api != DV_API_OPENCL && hello->api != DV_API_LEASE) || hello->present_as > DV_PRESENT_AS_ACCELERATOR ||
        !share_makes_sense(hello) || !choice_makes_sense(hello)) {
        snprintf(text, sizeof text, "the hello asks for something that divvyd %s does not know (api %u, present-as %u)",
                 DIVVY_VERSION, hello->api, hello->present_as);
        turn_away(pending, DV_WELCOME_REFUSED, text);
        return;
    }
    if (dvd_peer_may_open_sessions(pending->listener->sessions->config, pending->fd, &pending->peer, text,
                                   sizeof text) < 0) {
        turn_away(pending, DV_WELCOME_REFUSED, text);
        return;
    }
    struct dvd_process *process =
        dvd_process_of_peer(&pending->listener->sessions->processes, pending->fd, pending->peer.pid, pending->peer.uid);
    if (!process) {
        snprintf(text, sizeof text, "the calling process cannot be identified: %s", strerror(errno));
        turn_away(pending, DV_WELCOME_REFUSED, text);
        return;
    }
    struct dvd_sessions *sessions = pending->listener->sessions;
    struct ucred peer = pending->peer;
    int fd = dv_take_fd(&pending->fd);
    dvd_session_begin(sessions, fd, process, hello, version, &peer);
    pending_destroy(pending);
}

static bool has_left(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void read_hello(struct dvd_pending *pending)
{
    struct dv_hello hello = {0};
    ssize_t length = dvd_incoming_receive(pending->fd, &hello, sizeof hello, MSG_TRUNC);

    if (length <= 0 || has_left(pending->fd))
        pending_destroy(pending);
    else
        take_hello(pending, &hello, length > (ssize_t)sizeof hello ? -EMSGSIZE : length);
}

/* ---- one session at a time ----
 *
 * Starting a session costs far more than accepting a connection. Sessions start one at a time, with other
 * events in between, and never two of one user while another user waits: a user that opens sessions
 * without end delays neither the sessions nor the grants of others. */

static struct dvd_pending *next_pending(struct dvd_listener *listener)
{
    struct dvd_pending_user *user = listener->ready;

    if (!user)
        return NULL;
    DL_DELETE(listener->ready, user);
    DL_APPEND(listener->ready, user);
    return user->said;
}

static int on_next(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_listener *listener = userdata;
    struct dvd_pending *pending = next_pending(listener);

    (void)usec;
    if (pending)
        read_hello(pending);
    if (listener->ready) {
        sd_event_source_set_time_relative(source, 0);
        sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    }
    return 0;
}

/* All connections are one source of the event loop: with a source for each, a thousand hellos at once
 * would all be handled before any other source runs again. */
static int on_hellos(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dvd_listener *listener = userdata;
    struct epoll_event ready[DV_MAX_BATCH];

    (void)source;
    (void)events;
    int count = epoll_wait(fd, ready, DV_MAX_BATCH, 0);
    for (int i = 0; i < count; i++) {
        struct dvd_pending *pending = ready[i].data.ptr;
        epoll_ctl(fd, EPOLL_CTL_DEL, pending->fd, NULL);
        pending->timer = sd_event_source_disable_unref(pending->timer);
        enlist(listener, pending);
    }
    sd_event_source_set_time_relative(listener->next, 0);
    sd_event_source_set_enabled(listener->next, SD_EVENT_ONESHOT);
    return 0;
}

static int on_hello_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source;
    (void)usec;
    refuse(userdata, DV_WELCOME_REFUSED, "no hello came in time");
    return 0;
}

/* ---- the listening socket ---- */

static void add_pending(struct dvd_listener *listener, int accepted_fd)
{
    struct dvd_sessions *sessions = listener->sessions;
    DV_AUTO_CLOSE int fd = accepted_fd;
    struct ucred peer;
    socklen_t bytes = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
        return;
    struct dvd_pending *pending = calloc(1, sizeof *pending);
    struct dvd_pending_user *user = pending ? find_or_add_user(listener, peer.uid) : NULL;
    if (!user) {
        free(pending);
        return;
    }
    unsigned of_user = user->count++;
    unsigned in_all = listener->pending_count;
    *pending = (struct dvd_pending){.listener = listener, .fd = dv_take_fd(&fd), .peer = peer, .user = user};
    DL_APPEND(listener->pending, pending);
    listener->pending_count++;
    dvd_idle_hold(sessions->idle);
    if (of_user >= DV_MAX_PENDING_PER_UID || in_all >= DV_MAX_PENDING) {
        refuse(pending, DV_WELCOME_REFUSED, "too many connections wait to become a session; try again a little later");
        return;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = pending};
    if (epoll_ctl(listener->hellos_fd, EPOLL_CTL_ADD, pending->fd, &event) < 0 ||
        sd_event_add_time_relative(sessions->event, &pending->timer, CLOCK_MONOTONIC, DV_HELLO_TIMEOUT_US, 100 * DV_MS,
                                   on_hello_deadline, pending) < 0)
        pending_destroy(pending);
}

static int on_connection(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dvd_listener *listener = userdata;

    (void)events;
    for (int i = 0, accepted; i < DV_MAX_ACCEPTS; i++) {
        if ((accepted = dvd_socket_accept(source, fd)) < 0)
            break;
        add_pending(listener, accepted);
    }
    return 0;
}

/* The kernel already refuses users that divvyd would refuse. */
void dvd_listener_apply_config(struct dvd_listener *listener)
{
    const struct dvd_sessions *sessions = listener->sessions;
    const struct dvd_config *config = sessions->config;
    bool one_group = config->sessions_for == DV_SESSIONS_FOR_GROUP;
    struct sockaddr_un address;

    if (sessions->config->of_user || dv_rundir_address(&address, sessions->directory, DV_RUNDIR_SESSION_SOCKET) < 0)
        return;
    dvd_socket_let_in(address.sun_path, one_group ? config->session_group : getegid(), one_group ? 0660 : 0666);
}

int dvd_listener_init(struct dvd_listener *listener, int activated_fd)
{
    struct dvd_sessions *sessions = listener->sessions;

    listener->activated = activated_fd >= 0;
    listener->fd = activated_fd >= 0 ? activated_fd : dvd_keeper_take(sessions->keeper, DV_KEPT_SESSION_SOCKET);
    if (listener->fd < 0)
        listener->fd = dvd_socket_open(sessions->directory, DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET, 0600);
    if (listener->fd < 0)
        return listener->fd;
    dvd_incoming_prepare(listener->fd);
    dvd_listener_apply_config(listener);
    int error = sd_event_add_io(sessions->event, &listener->io, listener->fd, EPOLLIN, on_connection, listener);
    if (error >= 0)
        error = sd_event_add_time_relative(sessions->event, &listener->next, CLOCK_MONOTONIC, 0, 1, on_next, listener);
    if (error >= 0) {
        listener->hellos_fd = epoll_create1(EPOLL_CLOEXEC);
        error = listener->hellos_fd < 0 ? -errno
                                        : sd_event_add_io(sessions->event, &listener->hellos, listener->hellos_fd,
                                                          EPOLLIN, on_hellos, listener);
    }
    return error < 0 ? error : 0;
}

void dvd_listener_fini(struct dvd_listener *listener)
{
    const struct dvd_sessions *sessions = listener->sessions;
    struct dvd_pending *pending, *next;
    struct sockaddr_un address;

    listener->io = sd_event_source_disable_unref(listener->io);
    listener->next = sd_event_source_disable_unref(listener->next);
    if (listener->fd >= 0) {
        if (!listener->activated && dv_rundir_address(&address, sessions->directory, DV_RUNDIR_SESSION_SOCKET) == 0)
            unlink(address.sun_path);
        close(listener->fd);
    }
    listener->fd = -1;
    DL_FOREACH_SAFE (listener->pending, pending, next) {
        pending_destroy(pending);
    }
    listener->hellos = sd_event_source_disable_unref(listener->hellos);
    dv_close_fd(&listener->hellos_fd);
}
