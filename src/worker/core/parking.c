/* Parking a session: this worker leaves all that another one needs to follow it, and ends. */
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/base/log.h"
#include "src/lease/parking.h"
#include "src/worker/core/runtime.h"

/* ---- the life of the session ---- */

/* The kernel marks worker_life when this thread dies (a robust futex whose list entry lives in our
 * private memory), so that the client learns of our death without any descriptor or daemon. */
static struct {
    struct robust_list_head head;
    struct robust_list entry;
} life;

void dvk_life_tie(struct dvk_runtime *runtime)
{
    struct dv_shm_header *header = runtime->header;

    life.entry.next = &life.head.list;
    life.head.list.next = &life.entry;
    life.head.futex_offset = (long)((char *)&header->worker_life - (char *)&life.entry);
    atomic_store(&header->worker_life, (uint32_t)gettid() | FUTEX_WAITERS);
    syscall(SYS_set_robust_list, &life.head, sizeof life.head);
}

/* The end of this worker is no longer the end of the session for its client. */
static void untie_life(struct dvk_runtime *runtime)
{
    life.head.list.next = &life.head.list;
    atomic_store(&runtime->header->worker_life, 0);
}

/* ---- parking ---- */

/* On the lease's thread. */
static void on_park(void *user, int store, uint64_t bytes)
{
    struct dvk_runtime *runtime = user;

    if (store >= 0) {
        atomic_store(&runtime->parking.store_bytes, bytes);
        int unused = atomic_exchange(&runtime->parking.store_fd, store);
        dv_close_fd(&unused);
    }
    atomic_store(&runtime->parking.wanted, store >= 0);
    dvk_gates_wake_main(runtime);
}

void dvk_parking_start(struct dvk_runtime *runtime)
{
    atomic_store(&runtime->parking.store_fd, -1);
    if (runtime->lease)
        dv_lease_can_park(runtime->lease, on_park);
}

static enum dv_park_reason open_store(struct dvk_runtime *runtime)
{
    int fd = atomic_exchange(&runtime->parking.store_fd, -1);
    int error = 0;

    if (!runtime->store.base)
        error = fd < 0 ? -EBADF : dvk_store_open(&runtime->store, fd, atomic_load(&runtime->parking.store_bytes));
    dv_close_fd(&fd);
    return error < 0 ? DV_PARK_NO_STORE : DV_PARK_DONE;
}

static uint64_t store_used(const struct dvk_store *store)
{
    const struct dvk_stored *stored;
    uint64_t bytes = 0;

    TAILQ_FOREACH (stored, &store->taken, in_store)
        bytes += stored->bytes;
    return bytes;
}

/* Whether there is something that the next worker can do at once. The client may wait for it, and rings only for what
 * it sends. */
static bool has_work(const struct dvk_runtime *runtime)
{
    bool works = !TAILQ_EMPTY(&runtime->graph.held) || atomic_load(&runtime->header->ring_tail) != runtime->ring.head;

    for (uint32_t i = 0; i < runtime->start->device_count; i++)
        works |= !TAILQ_EMPTY(&runtime->gates[i].waiting);
    return works;
}

/* The client is told nothing: it waits for answers as before, and rings for the next worker as it does for one that
 * sleeps. divvyd ends this one. */
static _Noreturn void leave(struct dvk_runtime *runtime)
{
    struct dv_shm_header *header = runtime->header;

    atomic_store(&header->worker_state, DV_WORKER_PARKED);
    untie_life(runtime);
    atomic_store(&header->worker_asleep, 1);
    atomic_thread_fence(memory_order_seq_cst);
    if (has_work(runtime))
        atomic_store(&header->worker_asleep, 0);
    for (;;) {
        dv_lease_answer_park(runtime->lease, DV_PARK_DONE, store_used(&runtime->store));
        sleep(1); /* another daemon may not have heard it */
    }
}

/* A daemon that is gone before it has heard of this worker has a successor, which starts another. */
bool dvk_parking_may_follow(struct dvk_runtime *runtime)
{
    if (dv_lease_has_daemon(runtime->lease))
        return true;
    untie_life(runtime);
    return false;
}

bool dvk_parking_is_due(const struct dvk_runtime *runtime)
{
    return atomic_load_explicit(&runtime->parking.wanted, memory_order_relaxed) || runtime->graph.paused;
}

void dvk_parking_consider(struct dvk_runtime *runtime, bool is_settled)
{
    if (!atomic_load(&runtime->parking.wanted)) {
        dvk_graph_pause(&runtime->graph, false);
        atomic_store(&runtime->gates_changed, true);
        return;
    }
    dvk_graph_pause(&runtime->graph, true);
    if (!is_settled || !dvk_graph_is_quiet(&runtime->graph))
        return;
    enum dv_park_reason reason = open_store(runtime);
    if (reason == DV_PARK_DONE)
        reason = runtime->ops->park(runtime);
    if (reason == DV_PARK_DONE)
        leave(runtime);
    atomic_store(&runtime->parking.wanted, false);
    dv_lease_answer_park(runtime->lease, reason, 0);
    dvk_graph_pause(&runtime->graph, false);
    atomic_store(&runtime->gates_changed, true);
}
