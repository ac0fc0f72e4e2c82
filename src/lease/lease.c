/* The lease client (see include/divvy/lease.h): a state for each device, its burst monitor, and one
 * thread that reads divvyd's messages and gives back what is no longer used. */
#include "include/divvy/lease.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/cleanup.h"
#include "src/base/fd.h"
#include "src/base/priority.h"
#include "src/lease/channel.h"
#include "src/wire/lease/lease.h"

/* How long an uncontended holder may keep an idle device: a program that runs one small kernel after
 * another then asks once. A recall ends that at once. */
#define LINGER_ALONE_NS (5 * DV_NS_PER_MS)
/* Gaps up to this belong to a burst, before the first grant. */
#define LINGER_START_NS (100 * DV_NS_PER_US)

/* ---- sending, with the lock held ---- */

static void send_message(struct dv_lease *lease, uint32_t index, enum dv_lease_type type, uint32_t flags)
{
    struct device *d = &lease->devices[index];
    struct dv_burst burst = dv_burst_report(&d->monitor);
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = (uint16_t)type,
                                 .device = index,
                                 .flags = flags,
                                 .serial = d->serial,
                                 .kernel_ns = burst.kernel_ns,
                                 .p90_ns = burst.p90_ns,
                                 .last_ns = burst.last_ns,
                                 .busy_ns = d->busy_ns,
                                 .compile_ns = d->compile_ns};
    if (lease->socket >= 0)
        send(lease->socket, &m, sizeof m, MSG_NOSIGNAL);
}

/* Without divvyd the device is granted to no other session: use it. */
static void keep(struct device *d)
{
    d->idle_since = 0;
    atomic_store(&d->contended, false);
    atomic_store(&d->alone, true);
    atomic_store(&d->slice_end_ns, UINT64_MAX);
    atomic_store(&d->state, GRANTED);
}

void dv_lease_send_join(struct dv_lease *lease)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = DV_LEASE_JOIN,
                                 .device = lease->join_device,
                                 .serial = lease->join_id};

    send(lease->socket, &m, sizeof m, MSG_NOSIGNAL);
}

void dv_lease_send_want(struct dv_lease *lease, uint32_t index)
{
    send_message(lease, index, DV_LEASE_WANT, 0);
}

void dv_lease_give_back(struct dv_lease *lease, uint32_t index)
{
    struct device *d = &lease->devices[index];

    if (lease->uncoordinated) {
        keep(d);
        return;
    }
    if (!d->lost)
        send_message(lease, index, DV_LEASE_RELEASE, d->wanted ? DV_LEASE_AGAIN : 0);
    else if (d->wanted)
        dv_lease_send_want(lease, index);
    d->lost = false;
    d->busy_ns = d->compile_ns = 0;
    d->idle_since = 0;
    d->brings = false;
    atomic_store(&d->state, d->wanted ? WAITING : IDLE);
}

/* ---- the thread ---- */

static void take_grant(struct device *d, const struct dv_lease_message *m)
{
    bool contended = m->flags & DV_LEASE_CONTENDED;

    atomic_store(&d->contended, contended);
    atomic_store(&d->alone, (m->flags & DV_LEASE_ALONE) != 0);
    atomic_store(&d->serial, m->serial);
    atomic_store(&d->part_ns, m->part_ns);
    atomic_store(&d->part_cost_ppm, m->part_cost_ppm <= DV_LEASE_PPM_MAX ? (uint32_t)m->part_cost_ppm : 0);
    d->idle_since = 0;
    d->bridge_ns = m->linger_ns;
    d->linger_ns = contended || m->linger_ns > LINGER_ALONE_NS ? m->linger_ns : LINGER_ALONE_NS;
    d->short_linger_ns = d->linger_ns;
    atomic_store(&d->slice_end_ns, dv_now() + m->slice_ns);
    atomic_store(&d->state, GRANTED);
}

/* With the lock held. */
static void take_join_answer(struct dv_lease *lease, const struct dv_lease_message *m)
{
    if (!lease->join_pending || m->serial != lease->join_id || m->device != lease->join_device)
        return;
    lease->join_pending = false;
    lease->join_refused = m->type == DV_LEASE_TURNED_AWAY;
    pthread_cond_broadcast(&lease->answered);
}

static void handle(struct dv_lease *lease, const struct dv_lease_message *m, int *fd)
{
    struct device *d;
    bool granted = false, recalled = false;

    if (m->version != DV_LEASE_VERSION || m->device >= lease->device_count)
        return;
    if (m->type == DV_LEASE_PARK) {
        if (lease->on_park)
            lease->on_park(lease->callbacks.user, dv_take_fd(fd), m->slice_ns);
        return;
    }
    if (m->type == DV_LEASE_TRACE) {
        if (lease->callbacks.traced)
            lease->callbacks.traced(lease->callbacks.user, m->slice_ns ? dv_now() + m->slice_ns : 0);
        return;
    }
    d = &lease->devices[m->device];
    pthread_mutex_lock(&lease->lock);
    int state = atomic_load(&d->state);
    if (m->type == DV_LEASE_JOINED || m->type == DV_LEASE_TURNED_AWAY) {
        take_join_answer(lease, m);
    } else if (m->type == DV_LEASE_GRANT && state == WAITING) {
        take_grant(d, m);
        if (!d->wanted) /* the work has gone meanwhile */
            d->idle_since = dv_now();
        granted = true;
        pthread_cond_broadcast(&lease->answered);
    } else if (m->type == DV_LEASE_GRANT && state == IDLE) {
        atomic_store(&d->serial, m->serial); /* crossed our CANCEL: nothing to run */
        d->wanted = false;
        dv_lease_give_back(lease, m->device);
    } else if (m->type == DV_LEASE_EXTEND && m->serial == d->serial && state == GRANTED) {
        d->linger_ns = m->linger_ns > d->linger_ns ? m->linger_ns : d->linger_ns;
        atomic_store(&d->slice_end_ns, dv_now() + m->slice_ns);
    } else if (m->type == DV_LEASE_RECALL && m->serial == d->serial && state == GRANTED) {
        atomic_store(&d->state, RECALLED);
        atomic_store(&d->contended, true);
        atomic_store(&d->alone, false);
        if (d->idle_since)
            dv_lease_give_back(lease, m->device);
        else
            recalled = true;
    }
    pthread_mutex_unlock(&lease->lock);
    if (granted && lease->callbacks.granted)
        lease->callbacks.granted(lease->callbacks.user, m->device);
    if (recalled && lease->callbacks.recalled)
        lease->callbacks.recalled(lease->callbacks.user, m->device);
}

void dv_lease_go_on_alone(struct dv_lease *lease)
{
    pthread_mutex_lock(&lease->lock);
    if (lease->socket >= 0)
        close(lease->socket);
    lease->socket = -1;
    lease->uncoordinated = true;
    for (uint32_t i = 0; i < lease->device_count; i++)
        keep(&lease->devices[i]);
    pthread_mutex_unlock(&lease->lock);
    dv_memory_daemon_gone(lease);
    for (uint32_t i = 0; i < lease->device_count && lease->callbacks.granted; i++)
        lease->callbacks.granted(lease->callbacks.user, i);
}

/* When an idle holder has to give back: at the end of its linger time or slice. */
static uint64_t keeps_until(const struct device *d)
{
    uint64_t end = atomic_load(&d->slice_end_ns);
    uint64_t linger = dv_pauses_linger(&d->pauses, d->linger_ns, d->short_linger_ns, atomic_load(&d->contended));

    return d->idle_since + linger < end ? d->idle_since + linger : end;
}

/* Gives back devices that have been idle for long enough. Returns when to look again. */
static uint64_t keep_time(struct dv_lease *lease)
{
    uint64_t now = dv_now(), next = UINT64_MAX;
    bool looks = false;

    pthread_mutex_lock(&lease->lock);
    for (uint32_t i = 0; lease->socket >= 0 && i < lease->device_count; i++) {
        struct device *d = &lease->devices[i];
        if (atomic_load(&d->state) != GRANTED)
            continue;
        if (!d->idle_since) {
            if (!atomic_load(&d->contended)) {
                looks = true;
                next = now + LINGER_ALONE_NS < next ? now + LINGER_ALONE_NS : next;
            }
            continue;
        }
        uint64_t until = keeps_until(d);
        if (now >= until)
            dv_lease_give_back(lease, i);
        else if (until < next)
            next = until;
    }
    lease->next_look_ns = next;
    pthread_mutex_unlock(&lease->lock);
    if (looks && lease->callbacks.look)
        lease->callbacks.look(lease->callbacks.user);
    return next == UINT64_MAX ? UINT64_MAX : next - now;
}

static void take_message(struct dv_lease *lease)
{
    union dv_channel_message m = {0};
    int fd = -1, count;
    ssize_t bytes = dv_fd_receive(lease->socket, &m, sizeof m, &fd, 1, &count, MSG_DONTWAIT);

    if (bytes == 0 || (bytes < 0 && bytes != -EAGAIN && bytes != -EMSGSIZE)) {
        if (lease->home)
            lease->home->lost(lease);
        else
            dv_lease_go_on_alone(lease);
        return;
    }
    switch (dv_channel_kind(&m, bytes)) {
    case DV_LEASE_MAGIC:
        handle(lease, &m.lease, &fd);
        break;
    case DV_MEMORY_MAGIC:
        dv_memory_handle(lease, &m.memory);
        break;
    case DV_SYNC_MAGIC:
        dv_sync_handle(lease, &m.sync);
        break;
    default:
        break;
    }
    dv_close_fd(&fd);
}

static void *serve(void *argument)
{
    struct dv_lease *lease = argument;

    dv_priority_wake(true, -10);
    if (lease->home && lease->socket < 0)
        lease->home->lost(lease);
    while (!atomic_load(&lease->ending)) {
        struct pollfd fds[2] = {{.fd = lease->socket, .events = POLLIN}, {.fd = lease->wake, .events = POLLIN}};
        uint64_t left = keep_time(lease);
        struct timespec timeout = dv_timespec(left);
        if (ppoll(fds, 2, left == UINT64_MAX ? NULL : &timeout, NULL) < 0)
            continue;
        if (fds[1].revents) {
            uint64_t count;
            ssize_t got = read(lease->wake, &count, sizeof count);
            (void)got;
        }
        if (fds[0].revents)
            take_message(lease);
    }
    return NULL;
}

/* ---- parking ---- */

void dv_lease_can_park(struct dv_lease *lease, dv_lease_on_park *on_park)
{
    lease->on_park = on_park;
}

bool dv_lease_has_daemon(struct dv_lease *lease)
{
    pthread_mutex_lock(&lease->lock);
    bool has = lease->socket >= 0;
    pthread_mutex_unlock(&lease->lock);
    return has;
}

void dv_lease_answer_park(struct dv_lease *lease, enum dv_park_reason reason, uint64_t bytes)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = reason == DV_PARK_DONE ? DV_LEASE_PARKED : DV_LEASE_NOT_PARKED,
                                 .flags = reason,
                                 .slice_ns = bytes};

    pthread_mutex_lock(&lease->lock);
    if (lease->socket >= 0)
        send(lease->socket, &m, sizeof m, MSG_NOSIGNAL);
    pthread_mutex_unlock(&lease->lock);
}

/* ---- calls for front ends ---- */

static void forget(struct dv_lease *lease)
{
    if (lease->socket >= 0) {
        shutdown(lease->socket, SHUT_RDWR); /* forked children have copies, which would keep the session */
        close(lease->socket);
    }
    if (lease->wake >= 0)
        close(lease->wake);
    pthread_mutex_destroy(&lease->lock);
    pthread_mutex_destroy(&lease->asking);
    pthread_cond_destroy(&lease->answered);
    free(lease->home);
    free(lease);
}

struct dv_lease *dv_lease_start(int socket, uint32_t device_count, const struct dv_lease_callbacks *callbacks,
                                struct dv_lease_home *home)
{
    struct dv_lease *lease = calloc(1, sizeof *lease + device_count * sizeof lease->devices[0]);
    sigset_t all, before;

    if (!lease) {
        if (socket >= 0)
            close(socket);
        free(home);
        return NULL;
    }
    if (callbacks)
        lease->callbacks = *callbacks;
    lease->socket = socket;
    lease->home = home;
    lease->process = getpid();
    lease->uncoordinated = socket < 0 && !home;
    lease->device_count = device_count;
    lease->next_look_ns = UINT64_MAX;
    for (uint32_t i = 0; i < device_count; i++) {
        lease->devices[i].bridge_ns = LINGER_START_NS;
        if (lease->uncoordinated)
            keep(&lease->devices[i]);
    }
    lease->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&lease->lock, NULL);
    pthread_mutex_init(&lease->asking, NULL);
    pthread_cond_init(&lease->answered, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = lease->wake < 0 ? EMFILE : pthread_create(&lease->thread, NULL, serve, lease);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        forget(lease);
        return NULL;
    }
    return lease;
}

struct dv_lease *dv_lease_create(int socket, uint32_t device_count, const struct dv_lease_callbacks *callbacks)
{
    return dv_lease_start(socket, device_count, callbacks, NULL);
}

static void wake_thread(struct dv_lease *lease)
{
    uint64_t one = 1;
    ssize_t put = write(lease->wake, &one, sizeof one);
    (void)put;
}

void dv_lease_destroy(struct dv_lease *lease)
{
    if (!lease || getpid() != lease->process) /* a forked child has no such thread */
        return;
    atomic_store(&lease->ending, true);
    wake_thread(lease);
    pthread_join(lease->thread, NULL);
    forget(lease);
}

int dv_lease_join(struct dv_lease *lease, uint32_t device)
{
    bool refused = false;

    pthread_mutex_lock(&lease->asking);
    pthread_mutex_lock(&lease->lock);
    if (!lease->devices[device].joined && lease->socket >= 0) {
        lease->join_id++;
        lease->join_device = device;
        lease->join_pending = true;
        lease->join_refused = false;
        dv_lease_send_join(lease);
        while (lease->join_pending && lease->socket >= 0)
            pthread_cond_wait(&lease->answered, &lease->lock);
        refused = lease->join_refused;
        lease->join_pending = false;
        lease->devices[device].joined = !refused;
    }
    pthread_mutex_unlock(&lease->lock);
    pthread_mutex_unlock(&lease->asking);
    return refused ? -EBUSY : 0;
}

uint64_t dv_lease_end_ns(const struct dv_lease *lease, uint32_t device)
{
    const struct device *d = &lease->devices[device];

    if (atomic_load_explicit(&d->state, memory_order_acquire) != GRANTED)
        return 0;
    return atomic_load_explicit(&d->slice_end_ns, memory_order_relaxed);
}

bool dv_lease_open(const struct dv_lease *lease, uint32_t device)
{
    return dv_now() < dv_lease_end_ns(lease, device);
}

bool dv_lease_held(const struct dv_lease *lease, uint32_t device)
{
    int state = atomic_load(&lease->devices[device].state);
    return state == GRANTED || state == RECALLED;
}

bool dv_lease_alone(const struct dv_lease *lease, uint32_t device)
{
    return atomic_load_explicit(&lease->devices[device].alone, memory_order_relaxed);
}

uint64_t dv_lease_part_ns(const struct dv_lease *lease, uint32_t device)
{
    return atomic_load_explicit(&lease->devices[device].part_ns, memory_order_relaxed);
}

uint32_t dv_lease_part_cost_ppm(const struct dv_lease *lease, uint32_t device)
{
    return atomic_load_explicit(&lease->devices[device].part_cost_ppm, memory_order_relaxed);
}

bool dv_lease_contended(const struct dv_lease *lease, uint32_t device)
{
    return atomic_load_explicit(&lease->devices[device].contended, memory_order_relaxed);
}

uint64_t dv_lease_serial(const struct dv_lease *lease, uint32_t device)
{
    return atomic_load_explicit(&lease->devices[device].serial, memory_order_relaxed);
}

bool dv_lease_want(struct dv_lease *lease, uint32_t device)
{
    struct device *d = &lease->devices[device];
    bool asks = false;

    pthread_mutex_lock(&lease->lock);
    if (!d->wanted) {
        uint64_t now = dv_now();
        dv_burst_work(&d->monitor, now, d->bridge_ns);
        if (d->went_idle_ns)
            dv_pauses_note(&d->pauses, now - d->went_idle_ns, d->bridge_ns);
    }
    d->wanted = true;
    d->idle_since = 0;
    if (atomic_load(&d->state) == IDLE) {
        atomic_store(&d->state, WAITING);
        dv_lease_send_want(lease, device);
        asks = true;
    }
    pthread_mutex_unlock(&lease->lock);
    return asks;
}

int dv_lease_wait(struct dv_lease *lease, uint32_t device, uint64_t timeout_ns)
{
    uint64_t now = dv_now(), until = timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX;
    struct timespec deadline = dv_timespec(until < INT64_MAX ? until : INT64_MAX);
    int error = 0;

    dv_lease_want(lease, device);
    pthread_mutex_lock(&lease->lock);
    while (!dv_lease_open(lease, device) && error != ETIMEDOUT) {
        if (dv_lease_held(lease, device)) /* recalled, or the slice is over */
            dv_lease_give_back(lease, device);
        else
            error = pthread_cond_clockwait(&lease->answered, &lease->lock, CLOCK_MONOTONIC, &deadline);
    }
    bool open = dv_lease_open(lease, device);
    pthread_mutex_unlock(&lease->lock);
    return open ? 0 : -ETIMEDOUT;
}

void dv_lease_drained(struct dv_lease *lease, uint32_t device, bool more)
{
    struct device *d = &lease->devices[device];
    uint64_t now = dv_now();
    bool wake = false;

    pthread_mutex_lock(&lease->lock);
    if (d->wanted && !more) {
        dv_burst_idle(&d->monitor, now);
        d->went_idle_ns = now;
    }
    d->wanted = more;
    int state = atomic_load(&d->state);
    if (state == RECALLED || (state == GRANTED && now >= atomic_load(&d->slice_end_ns))) {
        dv_lease_give_back(lease, device);
    } else if (state == GRANTED && !more && !d->idle_since) {
        d->idle_since = now;
        uint64_t until = keeps_until(d);
        if (now >= until)
            dv_lease_give_back(lease, device);
        else /* a look that is too early finds the next by itself: one wake-up for many pauses */
            wake = lease->socket >= 0 && until < lease->next_look_ns;
    }
    pthread_mutex_unlock(&lease->lock);
    if (wake)
        wake_thread(lease);
}

bool dv_lease_pauses(struct dv_lease *lease, uint32_t device)
{
    struct device *d = &lease->devices[device];

    if (!dv_lease_contended(lease, device))
        return false;
    pthread_mutex_lock(&lease->lock);
    bool pauses = dv_pauses_linger(&d->pauses, d->linger_ns, d->short_linger_ns, true) == 0;
    pthread_mutex_unlock(&lease->lock);
    return pauses;
}

void dv_lease_yield(struct dv_lease *lease, uint32_t device)
{
    struct device *d = &lease->devices[device];

    pthread_mutex_lock(&lease->lock);
    d->wanted = true;
    int state = atomic_load(&d->state);
    if (state == RECALLED || state == GRANTED)
        dv_lease_give_back(lease, device);
    pthread_mutex_unlock(&lease->lock);
}

void dv_lease_ran(struct dv_lease *lease, uint32_t device, const struct dv_lease_work *work)
{
    struct device *d = &lease->devices[device];

    pthread_mutex_lock(&lease->lock);
    d->busy_ns += work->took_ns;
    d->compile_ns += work->compile_ns;
    if (work->took_ns > work->compile_ns)
        dv_burst_kernels(&d->monitor, work->took_ns - work->compile_ns, work->longest_ns);
    pthread_mutex_unlock(&lease->lock);
}
