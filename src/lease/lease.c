/* The lease client (see include/divvy/lease.h): one thread that reads divvyd's messages and keeps
 * time, a state for each device, and the burst monitor. */
#include "include/divvy/lease.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/wire/lease/lease.h"

/* An idle holder whom nobody waits behind keeps the lease this long, so that a program that runs
 * one small kernel after another asks once. */
#define LINGER_NS (1 * DV_NS_PER_MS)
#define BURSTS 32 /* remembered for the percentile */

enum state { IDLE, WAITING, GRANTED, RECALLED };

struct device {
    _Atomic int state;
    _Atomic uint64_t slice_end_ns; /* UINT64_MAX: until recalled */
    uint64_t serial;
    bool contended;
    bool wanted;         /* there is work */
    uint64_t idle_since; /* 0: not idle */
    uint64_t bursts[BURSTS];
    uint32_t burst_count;
    uint64_t last_burst_ns, kernel_ns, busy_ns;
};

struct dv_lease {
    struct dv_lease_callbacks callbacks;
    int socket;
    int wake; /* eventfd: the thread has a new deadline */
    pthread_mutex_t lock;
    pthread_t thread;
    _Atomic bool ending;
    uint32_t device_count;
    struct device devices[];
};

/* ---- estimates ---- */

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t percentile90(const struct device *d)
{
    uint64_t sorted[BURSTS];
    uint32_t count = d->burst_count < BURSTS ? d->burst_count : BURSTS;

    if (count == 0)
        return 0;
    memcpy(sorted, d->bursts, count * sizeof sorted[0]);
    qsort(sorted, count, sizeof sorted[0], compare_ns);
    return sorted[(count - 1) * 9 / 10];
}

/* ---- sending, with the lock held ---- */

static void send_message(struct dv_lease *lease, uint32_t index, enum dv_lease_type type,
                         uint32_t flags)
{
    struct device *d = &lease->devices[index];
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = (uint16_t)type,
                                 .device = index,
                                 .flags = flags,
                                 .serial = d->serial,
                                 .kernel_ns = d->kernel_ns,
                                 .p90_ns = percentile90(d),
                                 .last_ns = d->last_burst_ns,
                                 .busy_ns = d->busy_ns};
    if (lease->socket >= 0)
        send(lease->socket, &m, sizeof m, MSG_NOSIGNAL);
}

static void give_back(struct dv_lease *lease, uint32_t index)
{
    struct device *d = &lease->devices[index];

    send_message(lease, index, DV_LEASE_RELEASE, d->wanted ? DV_LEASE_AGAIN : 0);
    d->busy_ns = 0;
    d->idle_since = 0;
    atomic_store(&d->state, d->wanted ? WAITING : IDLE);
}

/* ---- the thread ---- */

static void handle(struct dv_lease *lease, const struct dv_lease_message *m)
{
    struct device *d;
    bool granted = false, recalled = false;

    if (m->magic != DV_LEASE_MAGIC || m->version != DV_LEASE_VERSION ||
        m->device >= lease->device_count)
        return;
    d = &lease->devices[m->device];
    pthread_mutex_lock(&lease->lock);
    int state = atomic_load(&d->state);
    if (m->type == DV_LEASE_GRANT && state == WAITING) {
        d->serial = m->serial;
        d->contended = m->flags & DV_LEASE_CONTENDED;
        d->idle_since = 0;
        atomic_store(&d->slice_end_ns, d->contended ? dv_now() + m->slice_ns : UINT64_MAX);
        atomic_store(&d->state, GRANTED);
        granted = true;
    } else if (m->type == DV_LEASE_GRANT && state == IDLE) {
        d->serial = m->serial; /* crossed our CANCEL: nothing to run */
        d->wanted = false;
        give_back(lease, m->device);
    } else if (m->type == DV_LEASE_RECALL && m->serial == d->serial && state == GRANTED) {
        d->contended = true;
        atomic_store(&d->state, RECALLED);
        if (d->idle_since)
            give_back(lease, m->device);
        else
            recalled = true;
    }
    pthread_mutex_unlock(&lease->lock);
    if (granted)
        lease->callbacks.granted(lease->callbacks.user, m->device);
    if (recalled)
        lease->callbacks.recalled(lease->callbacks.user, m->device);
}

/* Acts on what is due by time and returns the nanoseconds until the next deadline, or UINT64_MAX. */
static uint64_t keep_time(struct dv_lease *lease)
{
    uint64_t now = dv_now(), next = UINT64_MAX;

    pthread_mutex_lock(&lease->lock);
    for (uint32_t i = 0; i < lease->device_count; i++) {
        struct device *d = &lease->devices[i];
        if (atomic_load(&d->state) != GRANTED || !d->idle_since)
            continue;
        if (now >= d->idle_since + LINGER_NS)
            give_back(lease, i);
        else if (d->idle_since + LINGER_NS - now < next)
            next = d->idle_since + LINGER_NS - now;
    }
    pthread_mutex_unlock(&lease->lock);
    return next;
}

static void *serve(void *argument)
{
    struct dv_lease *lease = argument;

    while (!atomic_load(&lease->ending)) {
        struct pollfd fds[2] = {{.fd = lease->socket, .events = POLLIN},
                                {.fd = lease->wake, .events = POLLIN}};
        uint64_t left = keep_time(lease);
        struct timespec timeout = {.tv_sec = (time_t)(left / DV_NS_PER_S),
                                   .tv_nsec = (long)(left % DV_NS_PER_S)};
        if (ppoll(fds, 2, left == UINT64_MAX ? NULL : &timeout, NULL) < 0)
            continue;
        if (fds[1].revents) {
            uint64_t count;
            ssize_t got = read(lease->wake, &count, sizeof count);
            (void)got;
        }
        if (fds[0].revents) {
            struct dv_lease_message m;
            ssize_t bytes = recv(lease->socket, &m, sizeof m, MSG_DONTWAIT);
            if (bytes == sizeof m)
                handle(lease, &m);
            else if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) {
                pthread_mutex_lock(&lease->lock);
                close(lease->socket); /* the daemon is gone: go on with what is held */
                lease->socket = -1;
                pthread_mutex_unlock(&lease->lock);
            }
        }
    }
    return NULL;
}

/* ---- what front ends call ---- */

struct dv_lease *dv_lease_create(int socket, uint32_t device_count,
                                 const struct dv_lease_callbacks *callbacks)
{
    struct dv_lease *lease = calloc(1, sizeof *lease + device_count * sizeof lease->devices[0]);
    sigset_t all, before;

    if (!lease)
        return NULL;
    lease->callbacks = *callbacks;
    lease->socket = socket;
    lease->device_count = device_count;
    lease->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&lease->lock, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = lease->wake < 0 ? EMFILE : pthread_create(&lease->thread, NULL, serve, lease);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        if (lease->wake >= 0)
            close(lease->wake);
        free(lease);
        return NULL;
    }
    return lease;
}

static void wake_thread(struct dv_lease *lease)
{
    uint64_t one = 1;
    ssize_t put = write(lease->wake, &one, sizeof one);
    (void)put;
}

void dv_lease_destroy(struct dv_lease *lease)
{
    atomic_store(&lease->ending, true);
    wake_thread(lease);
    pthread_join(lease->thread, NULL);
    if (lease->socket >= 0)
        close(lease->socket);
    close(lease->wake);
    pthread_mutex_destroy(&lease->lock);
    free(lease);
}

bool dv_lease_open(const struct dv_lease *lease, uint32_t device)
{
    const struct device *d = &lease->devices[device];

    if (atomic_load_explicit(&d->state, memory_order_acquire) != GRANTED)
        return false;
    uint64_t end = atomic_load_explicit(&d->slice_end_ns, memory_order_relaxed);
    return end == UINT64_MAX || dv_now() < end;
}

bool dv_lease_held(const struct dv_lease *lease, uint32_t device)
{
    int state = atomic_load(&lease->devices[device].state);
    return state == GRANTED || state == RECALLED;
}

uint64_t dv_lease_left_ns(const struct dv_lease *lease, uint32_t device)
{
    const struct device *d = &lease->devices[device];
    uint64_t end = atomic_load(&d->slice_end_ns);

    if (atomic_load(&d->state) != GRANTED)
        return 0;
    if (end == UINT64_MAX)
        return UINT64_MAX;
    uint64_t now = dv_now();
    return now < end ? end - now : 0;
}

void dv_lease_want(struct dv_lease *lease, uint32_t device)
{
    struct device *d = &lease->devices[device];

    pthread_mutex_lock(&lease->lock);
    d->wanted = true;
    d->idle_since = 0;
    if (atomic_load(&d->state) == IDLE) {
        atomic_store(&d->state, WAITING);
        send_message(lease, device, DV_LEASE_WANT, 0);
    }
    pthread_mutex_unlock(&lease->lock);
}

void dv_lease_drained(struct dv_lease *lease, uint32_t device, bool more)
{
    struct device *d = &lease->devices[device];
    bool deadline = false;

    pthread_mutex_lock(&lease->lock);
    d->wanted = more;
    int state = atomic_load(&d->state);
    if (state == RECALLED || (state == GRANTED && dv_now() >= atomic_load(&d->slice_end_ns)))
        give_back(lease, device);
    else if (state == GRANTED && !more && d->contended)
        give_back(lease, device);
    else if (state == GRANTED && !more && !d->idle_since) {
        d->idle_since = dv_now();
        deadline = true;
    }
    pthread_mutex_unlock(&lease->lock);
    if (deadline)
        wake_thread(lease);
}

void dv_lease_burst(struct dv_lease *lease, uint32_t device, uint64_t begin_ns, uint64_t end_ns)
{
    struct device *d = &lease->devices[device];
    uint64_t took = end_ns > begin_ns ? end_ns - begin_ns : 0;

    pthread_mutex_lock(&lease->lock);
    d->bursts[d->burst_count++ % BURSTS] = took;
    d->last_burst_ns = took;
    d->busy_ns += took;
    pthread_mutex_unlock(&lease->lock);
}

void dv_lease_kernel(struct dv_lease *lease, uint32_t device, uint64_t took_ns, bool compiling)
{
    struct device *d = &lease->devices[device];

    if (compiling)
        return;
    pthread_mutex_lock(&lease->lock);
    /* the longest of late: a long one counts at once and fades slowly */
    d->kernel_ns = took_ns > d->kernel_ns ? took_ns : d->kernel_ns - (d->kernel_ns - took_ns) / 16;
    pthread_mutex_unlock(&lease->lock);
}
