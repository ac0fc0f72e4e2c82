/* A lease that finds divvyd by itself (see include/divvy/lease.h): it begins a session on a lease-only device, and the
 * next one when that is lost. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/fd.h"
#include "src/base/rundir.h"
#include "src/hello/hello.h"
#include "src/lease/channel.h"

/* How long divvyd may take to welcome a session. It may be restarted meanwhile, or look for its devices. */
#define WELCOME_NS (60 * DV_NS_PER_S)
/* Between two attempts: from the first to the longest. */
#define PAUSE_NS (20 * DV_NS_PER_MS)
#define PAUSE_MAX_NS (2 * DV_NS_PER_S)
/* How long there must be no divvyd before the device is used without it. A stop and a start take less. */
#define ALONE_AFTER_NS (3 * DV_NS_PER_S)

struct home {
    struct dv_lease_home base; /* first: the lease frees it */
    bool goes_on_alone;
    struct dv_hello_places places;
    size_t hello_bytes;
    struct dv_hello hello;
};

/* ---- one session ---- */

/* Waits until the socket has something to read. wake: a descriptor that ends the wait, or -1. */
static int await(int fd, int wake, uint64_t timeout_ns)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = wake, .events = POLLIN}};
    uint64_t end = dv_now() + timeout_ns;
    int count;

    do { /* signals of the program, of an interval timer say, do not end the wait */
        uint64_t now = dv_now();
        struct timespec timeout = dv_timespec(end > now ? end - now : 0);
        count = ppoll(fds, 2, &timeout, NULL);
    } while (count < 0 && errno == EINTR);
    if (count < 0)
        return -errno;
    if (fds[1].revents) {
        uint64_t woken;
        ssize_t got = read(wake, &woken, sizeof woken);
        (void)got;
        return -ECANCELED;
    }
    return count > 0 ? 0 : -ETIMEDOUT;
}

static int take_welcome(int fd, struct dv_welcome *welcome)
{
    ssize_t bytes = recv(fd, welcome, sizeof *welcome, MSG_TRUNC);

    if (bytes <= 0)
        return bytes < 0 ? -errno : -ECONNRESET;
    if (bytes != sizeof *welcome || welcome->magic != DV_WIRE_MAGIC)
        return -EPROTO;
    if (welcome->status != DV_WELCOME_OK)
        return welcome->status == DV_WELCOME_VERSION ? -EPROTO : -EACCES;
    return fcntl(fd, F_SETFL, 0) < 0 ? -errno : 0; /* from here on messages are not lost when divvyd is slow */
}

/* Returns the socket of a session, or a negative errno: -EACCES when divvyd refuses it; the welcome says why. */
static int begin(const struct home *home, int wake, struct dv_welcome *welcome)
{
    DV_AUTO_CLOSE int fd = dv_hello_connect_to(&home->places, SOCK_NONBLOCK);

    if (fd < 0)
        return fd;
    int error = dv_fd_send(fd, &home->hello, home->hello_bytes, NULL, 0);
    if (error == 0)
        error = await(fd, wake, WELCOME_NS);
    if (error == 0)
        error = take_welcome(fd, welcome);
    return error < 0 ? error : dv_take_fd(&fd);
}

static bool is_absent(int error)
{
    return error == -ENOENT || error == -ECONNREFUSED || error == -ENOTDIR;
}

/* ---- the next session, on the lease's thread ---- */

/* The session is over, or use without divvyd: what is held is drained and not released, and reserved memory is gone. */
static void lose(struct dv_lease *lease)
{
    const struct dv_lease_callbacks *callbacks = &lease->callbacks;
    struct device *d = &lease->devices[DV_LEASE_DEVICE];
    bool recalled = false;

    pthread_mutex_lock(&lease->lock);
    bool had_any = lease->socket >= 0 || lease->uncoordinated;
    dv_close_fd(&lease->socket);
    lease->uncoordinated = false;
    if (dv_lease_held(lease, DV_LEASE_DEVICE)) {
        recalled = atomic_exchange(&d->state, RECALLED) == GRANTED;
        atomic_store(&d->contended, true);
        atomic_store(&d->alone, false);
        d->lost = true;
        if (d->idle_since || !d->wanted) { /* nothing runs */
            dv_lease_give_back(lease, DV_LEASE_DEVICE);
            recalled = false;
        }
    }
    uint64_t asked = d->place_asked, id = d->place_id;
    d->reserved = d->placed = d->evicting = d->place_asked = 0;
    d->brings = false;
    if (lease->memory_bytes) {
        lease->memory_answer_id = lease->memory_id;
        lease->memory_granted = false;
        lease->memory_bytes = 0;
    }
    lease->join_pending = false;
    pthread_cond_broadcast(&lease->answered);
    pthread_mutex_unlock(&lease->lock);
    if (recalled && callbacks->recalled)
        callbacks->recalled(callbacks->user, DV_LEASE_DEVICE);
    if (asked && callbacks->placed)
        callbacks->placed(callbacks->user, DV_LEASE_DEVICE, id, asked, false);
    if (had_any && callbacks->lost)
        callbacks->lost(callbacks->user);
}

static void resume(struct dv_lease *lease, int fd)
{
    pthread_mutex_lock(&lease->lock);
    lease->socket = fd;
    if (atomic_load(&lease->devices[DV_LEASE_DEVICE].state) == WAITING)
        dv_lease_send_want(lease, DV_LEASE_DEVICE);
    pthread_mutex_unlock(&lease->lock);
}

static void on_lost(struct dv_lease *lease)
{
    const struct home *home = (const struct home *)lease->home;
    uint64_t since = dv_now(), pause_ns = PAUSE_NS;
    struct dv_welcome welcome;

    lose(lease);
    while (!atomic_load(&lease->ending)) {
        int fd = begin(home, lease->wake, &welcome);
        if (fd >= 0) {
            if (lease->uncoordinated)
                lose(lease);
            resume(lease, fd);
            return;
        }
        if (home->goes_on_alone && !lease->uncoordinated && is_absent(fd) && dv_now() - since >= ALONE_AFTER_NS)
            dv_lease_go_on_alone(lease);
        if (atomic_load(&lease->ending)) /* the wait for the welcome has taken the wake-up that said so */
            return;
        await(-1, lease->wake, pause_ns);
        pause_ns = 2 * pause_ns < PAUSE_MAX_NS ? 2 * pause_ns : PAUSE_MAX_NS;
    }
}

/* ---- the first session ---- */

static const char *words_for(int error)
{
    switch (error) {
    case -ENOENT:
    case -ENOTDIR:
    case -ECONNREFUSED:
        return "no divvyd answers";
    case -EPERM:
        return "a daemon is ignored: neither root nor this user owns it, or others can write to its directory";
    case -EACCES:
        return "divvyd does not let this user open sessions";
    case -EPROTO:
        return "divvyd is of another release";
    case -ENOMEM:
        return "there is no memory, descriptor or thread left for it";
    default:
        return strerrordesc_np(-error);
    }
}

static void explain(const struct dv_lease_options *options, int error, const struct dv_welcome *welcome)
{
    bool told = welcome->magic == DV_WIRE_MAGIC && welcome->status != DV_WELCOME_OK;

    if (options->reason && options->reason_bytes)
        snprintf(options->reason, options->reason_bytes, "%.*s",
                 told ? (int)strnlen(welcome->text, sizeof welcome->text) : INT_MAX,
                 told ? welcome->text : words_for(error));
}

static struct home *make_home(const struct dv_lease_options *options)
{
    struct home *home = calloc(1, sizeof *home);

    if (!home)
        return NULL;
    home->base.lost = on_lost;
    home->goes_on_alone = options->without_divvyd == DV_LEASE_GOES_ON;
    dv_hello_find(options->directory, &home->places);
    home->hello = (struct dv_hello){.magic = DV_WIRE_MAGIC,
                                    .version = DV_WIRE_VERSION,
                                    .version_oldest = 2, /* the first that can name a device */
                                    .api = DV_API_LEASE,
                                    .flags = DV_HELLO_LEASE_ONLY};
    snprintf(home->hello.devices, sizeof home->hello.devices, "%s", options->device);
    home->hello_bytes = dv_hello_wish(&home->hello);
    return home;
}

/* A restarting divvyd drops sessions that it has not welcomed, and its successor listens on the same socket. */
static int begin_first(const struct home *home, struct dv_welcome *welcome)
{
    uint64_t start = dv_now();

    for (;;) {
        int fd = begin(home, -1, welcome);
        if ((fd != -ECONNRESET && fd != -EPIPE && fd != -EAGAIN && fd != -EINTR) || dv_now() - start > WELCOME_NS)
            return fd;
        await(-1, -1, PAUSE_NS);
    }
}

static bool are_sound(const struct dv_lease_options *options)
{
    return options && options->device && options->device[0] && strlen(options->device) < DV_MAX_DEVICE_NAME &&
           options->without_divvyd <= DV_LEASE_GOES_ON &&
           (!options->directory || strlen(options->directory) < DV_RUNDIR_BYTES);
}

struct dv_lease *dv_lease_connect(const struct dv_lease_options *options, const struct dv_lease_callbacks *callbacks)
{
    struct dv_welcome welcome = {0};
    struct dv_lease *lease = NULL;

    if (!are_sound(options)) {
        errno = EINVAL;
        return NULL;
    }
    struct home *home = make_home(options);
    int fd = home ? begin_first(home, &welcome) : -ENOMEM;
    int error = fd;
    if (fd >= 0 || (home && home->goes_on_alone && is_absent(fd))) {
        lease = dv_lease_start(fd < 0 ? -1 : fd, 1, callbacks, &home->base);
        error = -ENOMEM;
    } else {
        free(home);
    }
    if (!lease) {
        explain(options, error, &welcome);
        errno = -error;
    }
    return lease;
}
