/* A session in the worker: maps the shared memory, watches the tenant, and serves the command ring
 * on the main thread until the tenant is gone. */
#include "src/worker/core/session.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "src/base/cleanup.h"
#include "src/base/fd.h"
#include "src/base/log.h"
#include "src/worker/core/sandbox.h"
#include "src/worker/core/runtime.h"

/* Never enters the vendor's code: it must react while the main thread is deep inside it. */
static void *watch_tenant(void *argument)
{
    struct dvk_runtime *runtime = argument;
    struct pollfd tenant = {.fd = runtime->start->tenant_pidfd, .events = POLLIN};

    for (;;)
        if (poll(&tenant, 1, -1) > 0)
            _exit(0);
    return NULL;
}

_Noreturn void dvk_runtime_abandon(struct dvk_runtime *runtime, const char *reason)
{
    dv_warning("session %llu ended: its client %s", (unsigned long long)runtime->start->session, reason);
    _exit(3);
}

void *dvk_runtime_arena(struct dvk_runtime *runtime, uint64_t offset, uint64_t bytes)
{
    if (offset < DV_SHM_ARENA_OFFSET || offset > runtime->shm_bytes || bytes > runtime->shm_bytes - offset)
        return NULL;
    return runtime->shm + offset;
}

void *dvk_runtime_lend(struct dvk_runtime *runtime, uint64_t offset, uint64_t bytes)
{
    return dvk_runtime_arena(runtime, offset, bytes) ? dvk_guard_open(&runtime->guard, offset, bytes) : NULL;
}

void dvk_runtime_take_back(struct dvk_runtime *runtime, uint64_t offset, uint64_t bytes)
{
    dvk_guard_close(&runtime->guard, offset, bytes);
}

void dvk_runtime_wake_client(struct dvk_runtime *runtime)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&runtime->header->client_asleep, memory_order_relaxed) &&
        atomic_exchange(&runtime->header->client_asleep, 0))
        dv_futex_wake(&runtime->header->client_asleep, 1);
}

/* With the lock held. */
static bool put_upcall(struct dvk_runtime *runtime, const struct dv_upcall *upcall)
{
    struct dv_upcall *ring = (struct dv_upcall *)(runtime->shm + DV_SHM_UPCALL_OFFSET);
    uint64_t used = runtime->upcall_tail - atomic_load(&runtime->header->upcall_head);

    if (used >= DV_SHM_UPCALL_COUNT)
        return false;
    ring[runtime->upcall_tail & (DV_SHM_UPCALL_COUNT - 1)] = *upcall;
    atomic_store(&runtime->header->upcall_tail, ++runtime->upcall_tail);
    return true;
}

/* Returns whether there is something new for the client, which must be woken for it. */
static bool flush_overflow(struct dvk_runtime *runtime)
{
    size_t moved = 0;

    while (moved < runtime->overflow_count && put_upcall(runtime, &runtime->overflow[moved]))
        moved++;
    if (moved) {
        runtime->overflow_count -= moved;
        memmove(runtime->overflow, runtime->overflow + moved, runtime->overflow_count * sizeof *runtime->overflow);
    }
    return moved > 0;
}

/* Never waits for the client: its helper may itself be waiting for us to read the command ring. */
void dvk_runtime_upcall(struct dvk_runtime *runtime, const struct dv_upcall *upcall, bool wake)
{
    pthread_mutex_lock(&runtime->upcall_lock);
    wake |= flush_overflow(runtime);
    if (runtime->overflow_count || !put_upcall(runtime, upcall)) {
        if (runtime->overflow_count == runtime->overflow_capacity) {
            size_t capacity = runtime->overflow_capacity ? runtime->overflow_capacity * 2 : 1024;
            void *grown = realloc(runtime->overflow, capacity * sizeof *runtime->overflow);
            if (!grown)
                dvk_runtime_abandon(runtime, "does not read its upcall ring");
            runtime->overflow = grown;
            runtime->overflow_capacity = capacity;
        }
        runtime->overflow[runtime->overflow_count++] = *upcall;
        wake = true;
        /* the main thread moves the rest when there is room; it may be asleep without knowing of it */
        if (atomic_exchange(&runtime->header->worker_asleep, 0))
            dv_futex_wake(&runtime->header->worker_asleep, 1);
    }
    pthread_mutex_unlock(&runtime->upcall_lock);
    if (wake)
        dvk_runtime_wake_client(runtime);
}

bool dvk_runtime_upcalls_wait(struct dvk_runtime *runtime)
{
    pthread_mutex_lock(&runtime->upcall_lock);
    bool moved = flush_overflow(runtime), waiting = runtime->overflow_count > 0;
    pthread_mutex_unlock(&runtime->upcall_lock);
    if (moved || waiting)
        dvk_runtime_wake_client(runtime);
    return waiting;
}

/* Returns 0, or how long until a gate is to be looked at. */
static uint64_t gates_timeout(const struct dvk_runtime *runtime)
{
    uint64_t due = runtime->lease ? dvk_gates_due_ns(runtime) : 0, now = due ? dv_now() : 0;
    return due == 0 ? 0 : due > now ? due - now : 1;
}

static bool may_sleep(struct dvk_runtime *runtime, const _Atomic bool *over)
{
    bool wanted = over ? atomic_load(over) : atomic_load(&runtime->header->ring_tail) != runtime->ring.head;

    return !wanted && !atomic_load(&runtime->graph.done) && !atomic_load(&runtime->gates_changed);
}

/* Until something happens, such as the end of the call or, without one, a new record. */
static void sleep_until_woken(struct dvk_runtime *runtime, const _Atomic bool *over)
{
    struct dv_shm_header *header = runtime->header;
    struct dvk_graph *graph = &runtime->graph;
    uint64_t timeout = gates_timeout(runtime);

    atomic_store(&graph->asleep, true);
    atomic_store(&header->worker_asleep, 1);
    if (!may_sleep(runtime, over)) {
        atomic_store(&header->worker_asleep, 0);
        atomic_store(&graph->asleep, false);
        return;
    }
    pthread_mutex_unlock(&runtime->submitting);
    /* The tenant can write that word as well: reported commands count, whatever it says. */
    while (atomic_load(&header->worker_asleep) && !atomic_load(&runtime->gates_changed) &&
           !(atomic_load(&graph->attention) && atomic_load(&graph->done))) {
        if (dvk_runtime_upcalls_wait(runtime))
            dv_futex_wait(&header->worker_asleep, 1, DV_NS_PER_MS);
        else if (dv_futex_wait(&header->worker_asleep, 1, timeout) == -ETIMEDOUT) {
            atomic_store(&header->worker_asleep, 0);
            atomic_store(&runtime->gates_changed, true);
        }
    }
    pthread_mutex_lock(&runtime->submitting);
    atomic_store(&graph->asleep, false);
}

/* Does the work beside records. Returns whether there is more at once. */
static bool go_on(struct dvk_runtime *runtime)
{
    const struct dvk_runtime_api *api = runtime->ops;

    if (atomic_load_explicit(&runtime->gates_changed, memory_order_relaxed) &&
        atomic_exchange(&runtime->gates_changed, false)) {
        dvk_gates_wake_soon_if_shared(runtime);
        dvk_gates_serve(runtime);
    }
    if (runtime->fence_due) {
        runtime->fence_due = false;
        dvk_graph_fence(&runtime->graph);
        api->before_sleep(runtime);
    }
    bool reaped = atomic_load_explicit(&runtime->graph.done, memory_order_relaxed) != NULL;
    if (reaped) {
        dvk_graph_reap(&runtime->graph);
        if (runtime->lease)
            dvk_gates_serve(runtime);
    }
    return api->work(runtime) || reaped;
}

static void rest(struct dvk_runtime *runtime, const _Atomic bool *over)
{
    dvk_graph_fence(&runtime->graph);
    runtime->ops->before_sleep(runtime);
    if (runtime->lease)
        dvk_gates_before_sleep(runtime);
    sleep_until_woken(runtime, over);
    dvk_gates_slept(runtime);
}

/* Whether the client has, or can take, all that it was told. */
static bool is_settled(struct dvk_runtime *runtime)
{
    return !dvk_runtime_upcalls_wait(runtime) && dvk_output_is_posted(runtime);
}

static void serve(struct dvk_runtime *runtime)
{
    struct dv_record record;

    for (;;) {
        if (dvk_parking_is_due(runtime))
            dvk_parking_consider(runtime, is_settled(runtime));
        int found = dv_ring_peek(&runtime->ring, &record);
        if (found == -EPROTO)
            dvk_runtime_abandon(runtime, "wrote a malformed record");
        if (found == 0)
            runtime->ops->handle(runtime, &record);
        if (!go_on(runtime) && found == -EAGAIN)
            rest(runtime, NULL);
    }
}

/* ---- long calls ---- */

/* Compilers recurse deeply. Without a limit of the stack, threads get less by default. */
#define LONG_CALL_STACK_BYTES ((size_t)8 << 20)

struct long_call {
    struct dvk_runtime *runtime;
    void (*call)(void *argument);
    void *argument;
    _Atomic bool over;
};

static void *make_call(void *argument)
{
    struct long_call *c = argument;

    c->call(c->argument);
    atomic_store(&c->over, true);
    dvk_gates_wake_main(c->runtime);
    return NULL;
}

static int start_thread(pthread_t *thread, void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    size_t bytes = 0;

    pthread_attr_init(&attributes);
    pthread_attr_getstacksize(&attributes, &bytes);
    if (bytes < LONG_CALL_STACK_BYTES)
        pthread_attr_setstacksize(&attributes, LONG_CALL_STACK_BYTES);
    int error = pthread_create(thread, &attributes, run, argument);
    pthread_attr_destroy(&attributes);
    return error;
}

struct call_beside {
    void (*call)(void *argument);
    void *argument;
};

static void *make_call_beside(void *argument)
{
    struct call_beside c = *(struct call_beside *)argument;

    free(argument);
    c.call(c.argument);
    return NULL;
}

int dvk_runtime_call_beside(void (*call)(void *argument), void *argument)
{
    struct call_beside *c = malloc(sizeof *c);
    pthread_t thread;

    if (!c)
        return -ENOMEM;
    *c = (struct call_beside){.call = call, .argument = argument};
    int error = start_thread(&thread, make_call_beside, c);
    if (error) {
        free(c);
        return -error;
    }
    pthread_detach(thread);
    return 0;
}

void dvk_runtime_take_long(struct dvk_runtime *runtime, void (*call)(void *argument), void *argument)
{
    struct long_call c = {.runtime = runtime, .call = call, .argument = argument};
    pthread_t thread;
    uint64_t began = dv_now();

    atomic_store(&runtime->header->compiling_since, began);
    if (!runtime->lease || start_thread(&thread, make_call, &c) != 0) {
        call(argument);
    } else {
        while (!atomic_load(&c.over))
            if (!go_on(runtime))
                rest(runtime, &c.over);
        pthread_join(thread, NULL);
    }
    atomic_store(&runtime->header->compiling_since, 0);
    dvk_trace_note(runtime, &(struct dvk_traced){.kind = DV_TRACED_COMPILE, .begin_ns = began, .end_ns = dv_now()});
}

static void fail_start(struct dvk_runtime *runtime, const char *text)
{
    dv_error("%s", text);
    snprintf(runtime->header->text, sizeof runtime->header->text, "%s", text);
    atomic_store(&runtime->header->worker_state, DV_WORKER_FAILED);
    dv_futex_wake(&runtime->header->worker_state, INT_MAX);
}

int dvk_worker_session_run(const struct dvk_worker_start *start, const struct dvk_runtime_api *api)
{
    static struct dvk_runtime runtime;
    char text[512] = "";
    pthread_t watcher;

    runtime.start = start;
    runtime.ops = api;
    runtime.shm_bytes = start->shm_bytes;
    if (start->shm_bytes < DV_SHM_BYTES_MIN || start->shm_bytes > DV_SHM_BYTES_MAX)
        return 1;
    runtime.shm = mmap(NULL, start->shm_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, start->shm_fd, 0);
    if (runtime.shm == MAP_FAILED) {
        dv_error("cannot map the session's memory (%llu bytes): %m", (unsigned long long)start->shm_bytes);
        return 1;
    }
    int guarded = dvk_guard_init(&runtime.guard, start->shm_fd, start->shm_bytes);
    if (guarded < 0) {
        dv_error("cannot map the session's memory objects (%llu bytes): %s", (unsigned long long)start->shm_bytes,
                 strerror(-guarded));
        return 1;
    }
    close(start->shm_fd);
    madvise(runtime.shm, start->shm_bytes, MADV_DONTDUMP);
    runtime.header = (struct dv_shm_header *)runtime.shm;
    if (start->follows) {
        int opened = dvk_store_open(&runtime.store, start->store_fd, start->store_bytes);
        close(start->store_fd);
        if (opened < 0) {
            dv_error("cannot map what the session's last worker has left: %s", strerror(-opened));
            return 1;
        }
        runtime.upcall_tail = atomic_load(&runtime.header->upcall_tail); /* it goes on where that one stopped */
    }
    pthread_mutex_init(&runtime.upcall_lock, NULL);
    pthread_mutex_init(&runtime.submitting, NULL);
    pthread_mutex_lock(&runtime.submitting);
    dv_ring_reader_init(&runtime.ring, runtime.shm);
    if (start->follows)
        runtime.ring.head = runtime.ring.tail_seen = atomic_load(&runtime.header->ring_head);
    dvk_life_tie(&runtime);
    if (dvk_sandbox_enter(start->sandbox, start->cache_fd, text, sizeof text) < 0) {
        fail_start(&runtime, text);
        return 1;
    }

    if (pthread_create(&watcher, NULL, watch_tenant, &runtime) != 0 || dvk_output_start(&runtime) < 0) {
        fail_start(&runtime, "the worker could not start its threads");
        return 1;
    }
    dvk_graph_init(&runtime.graph, api->backend, &runtime, runtime.shm);
    if (dvk_gates_start(&runtime) < 0) {
        fail_start(&runtime, "the worker could not start its lease client");
        return 1;
    }
    dvk_accounts_start(&runtime);
    dvk_parking_start(&runtime);
    if (api->init(&runtime, text, sizeof text) < 0 ||
        (start->follows && api->follow(&runtime, text, sizeof text) < 0)) {
        fail_start(&runtime, text);
        return 1;
    }
    if (start->follows && !dvk_parking_may_follow(&runtime))
        return 0;
    atomic_store(&runtime.header->worker_state, DV_WORKER_READY);
    dv_futex_wake(&runtime.header->worker_state, INT_MAX);
    serve(&runtime);
    return 0;
}
