/* Two threads of the client. The helper serves the worker's upcalls: host commands whose turn it
 * is, blocks that are free again, events to be told of. The callback thread runs the application's
 * functions, which may take long or call OpenCL. Both block all signals: the application's handlers
 * run on its own threads. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/client/opencl/client.h"

static bool start_thread(void *(*function)(void *), void *argument)
{
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_t attributes;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &attributes, function, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0;
}

/* ---- callbacks ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct dv_job *first, **end;
    bool started;
} callbacks = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void *run_callbacks(void *unused)
{
    for (;;) {
        pthread_mutex_lock(&callbacks.lock);
        while (!callbacks.first)
            pthread_cond_wait(&callbacks.more, &callbacks.lock);
        struct dv_job *job = callbacks.first;
        callbacks.first = job->next;
        if (!callbacks.first)
            callbacks.end = &callbacks.first;
        pthread_mutex_unlock(&callbacks.lock);
        job->run(job);
    }
    return NULL;
}

bool dv_callbacks_start(void)
{
    pthread_mutex_lock(&callbacks.lock);
    if (!callbacks.started)
        callbacks.started = start_thread(run_callbacks, NULL);
    bool started = callbacks.started;
    pthread_mutex_unlock(&callbacks.lock);
    return started;
}

void dv_callback_post(struct dv_job *job, void (*run)(struct dv_job *))
{
    *job = (struct dv_job){.run = run};
    pthread_mutex_lock(&callbacks.lock);
    if (!callbacks.end)
        callbacks.end = &callbacks.first;
    *callbacks.end = job;
    callbacks.end = &job->next;
    if (!callbacks.started) /* in a forked child */
        callbacks.started = start_thread(run_callbacks, NULL);
    pthread_cond_signal(&callbacks.more);
    pthread_mutex_unlock(&callbacks.lock);
}

/* ---- upcalls ---- */

static void tell_context(struct dv_job *job)
{
    struct dv_context_error *error = (struct dv_context_error *)job;

    error->context->notify(error->text, &error->code, sizeof error->code,
                           error->context->notify_user);
    dv_context_unuse(error->context);
    free(error);
}

static void context_failed(struct dv_context *context, cl_int code, const char *what,
                           const char *why)
{
    struct dv_context_error *error = NULL;

    if (!context || !dv_object_try_use(&context->object))
        return;
    if (context->notify && !(error = malloc(sizeof *error)))
        error = atomic_exchange(&context->spare_error, NULL);
    if (!error) {
        dv_context_unuse(context);
        return;
    }
    error->context = context;
    error->code = code;
    snprintf(error->text, sizeof error->text, "divvy: %s%s%s", what, why[0] ? ": " : "", why);
    dv_callback_post(&error->job, tell_context);
}

/* The worker is gone: those who asked to hear of errors do, and so does what waits for an event or for
 * memory that the worker was about to let go. */
static void worker_lost(struct dv_session *s)
{
    char why[sizeof s->header->text];

    memcpy(why, s->header->text, sizeof why); /* the worker could write there, too */
    why[sizeof why - 1] = '\0';
    for (uint32_t id = 1; id <= dv_object_most_id(DV_KIND_CONTEXT); id++) {
        struct dv_context *context = dv_object_by_id(DV_KIND_CONTEXT, id);
        if (context && context->object.session == s)
            context_failed(context, CL_OUT_OF_RESOURCES,
                           "the process that runs this program's commands has ended, and with it all "
                           "of its contexts",
                           why);
    }
    for (uint32_t id = 1; id <= dv_object_most_id(DV_KIND_EVENT); id++) {
        struct dv_event *event = dv_object_by_id(DV_KIND_EVENT, id);
        if (event && event->object.session == s && event->callbacks)
            dv_event_fire_callbacks(event);
    }
    dv_host_give_up(s); /* they use memory, queues and events */
    for (uint32_t id = 1; id <= dv_object_most_id(DV_KIND_MEM); id++) {
        struct dv_mem *mem = dv_object_by_id(DV_KIND_MEM, id);
        if (mem && mem->object.session == s)
            dv_mem_gone(mem);
    }
}

static void serve_upcall(struct dv_session *s, const struct dv_upcall *upcall)
{
    switch (upcall->kind) {
    case DV_UPCALL_EVENT: {
        struct dv_event *event = dv_object_by_id(DV_KIND_EVENT, upcall->a + 1);
        if (event && event->object.session == s)
            dv_event_fire_callbacks(event);
        break;
    }
    case DV_UPCALL_TURN:
        dv_host_ready(s, upcall->a, upcall->b, upcall->c != 0);
        break;
    case DV_UPCALL_MEM_GONE: {
        struct dv_mem *mem = dv_object_by_id(DV_KIND_MEM, upcall->a);
        if (mem && mem->object.session == s)
            dv_mem_gone(mem);
        break;
    }
    case DV_UPCALL_FREE:
        dv_arena_free(&s->arena, upcall->b);
        break;
    case DV_UPCALL_CONTEXT:
        context_failed(dv_object_by_id(DV_KIND_CONTEXT, upcall->a), (cl_int)(int64_t)upcall->b,
                       "a command failed after it was accepted",
                       (cl_int)(int64_t)upcall->b == CL_OUT_OF_RESOURCES ? "out of resources" : "");
        break;
    default:
        break;
    }
}

/* Returns whether there was any. */
static bool serve_upcalls(struct dv_session *s)
{
    struct dv_shm_header *header = s->header;
    struct dv_upcall *ring = (struct dv_upcall *)(s->shm + DV_SHM_UPCALL_OFFSET);
    uint64_t head = atomic_load(&header->upcall_head);
    uint64_t tail = atomic_load(&header->upcall_tail);

    if (head == tail || tail - head > DV_SHM_UPCALL_COUNT)
        return false;
    /* What the application's threads wrote before they sent a message came to us by way of the
     * worker; this pairs with their release so that it holds within this process too. */
    atomic_load_explicit(&header->ring_tail, memory_order_acquire);
    while (head != tail) {
        struct dv_upcall upcall = ring[head & (DV_SHM_UPCALL_COUNT - 1)];
        atomic_store(&header->upcall_head, ++head);
        serve_upcall(s, &upcall);
    }
    dv_host_flush(s);
    return true;
}

_Thread_local bool dv_is_helper;

static void *help(void *argument)
{
    struct dv_session *s = argument;
    struct dv_shm_header *header = s->header;

    dv_is_helper = true;
    while (dv_session_alive(s)) {
        dv_flush_output(s);
        if (serve_upcalls(s))
            continue;
        atomic_store(&header->client_asleep, 1);
        if (atomic_load(&header->upcall_tail) != atomic_load(&header->upcall_head) ||
            atomic_load(&header->output_tail) != atomic_load(&header->output_head)) {
            atomic_store(&header->client_asleep, 0);
            continue;
        }
        dv_session_wait(s, &header->client_asleep, 1);
    }
    worker_lost(s);
    return NULL;
}

bool dv_helper_start(struct dv_session *s)
{
    pthread_mutex_lock(&s->host_lock);
    if (!s->helper_started)
        s->helper_started = start_thread(help, s);
    bool started = s->helper_started;
    pthread_mutex_unlock(&s->host_lock);
    return started;
}

void dv_helper_after_fork(void)
{
    pthread_mutex_init(&callbacks.lock, NULL);
    pthread_cond_init(&callbacks.more, NULL);
    callbacks.first = NULL;
    callbacks.end = NULL;
    callbacks.started = false;
}
