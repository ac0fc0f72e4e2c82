/* The helper thread serves the worker's upcalls: host commands that are ready to run, blocks that are free again,
 * events to report. It blocks all signals: the application's handlers run on its own threads. */
#include "src/client/opencl/session.h"

static const struct dvc_upcall_handlers *handlers;

void dvc_helper_set_handlers(const struct dvc_upcall_handlers *given)
{
    handlers = given;
}

static void serve_upcall(struct dvc_session *s, const struct dv_upcall *upcall)
{
    switch (upcall->kind) {
    case DV_UPCALL_EVENT:
        handlers->event_ended(s, upcall->a + 1);
        break;
    case DV_UPCALL_READY:
        handlers->host_ready(s, DV_OBJECT_ID(upcall->a), upcall->b, upcall->c != 0);
        break;
    case DV_UPCALL_MEM_GONE:
        handlers->mem_gone(s, DV_OBJECT_ID(upcall->a));
        break;
    case DV_UPCALL_FREE:
        dvc_arena_free(&s->arena, upcall->b);
        break;
    case DV_UPCALL_CONTEXT:
        handlers->command_failed(s, DV_OBJECT_ID(upcall->a), (cl_int)(int64_t)upcall->b);
        break;
    default:
        break;
    }
}

/* Returns whether there were any. */
static bool serve_upcalls(struct dvc_session *s)
{
    struct dv_shm_header *header = s->header;
    struct dv_upcall *ring = (struct dv_upcall *)(s->shm + DV_SHM_UPCALL_OFFSET);
    uint64_t head = atomic_load(&header->upcall_head);
    uint64_t tail = atomic_load(&header->upcall_tail);

    if (head == tail || tail - head > DV_SHM_UPCALL_COUNT)
        return false;
    /* The application's threads write data before they send a message, and the worker answers with an upcall. This
     * pairs with their release, so that the order holds within this process too. */
    atomic_load_explicit(&header->ring_tail, memory_order_acquire);
    while (head != tail) {
        struct dv_upcall upcall = ring[head & (DV_SHM_UPCALL_COUNT - 1)];
        atomic_store(&header->upcall_head, ++head);
        serve_upcall(s, &upcall);
    }
    handlers->all_served(s);
    return true;
}

static void *help(void *argument)
{
    struct dvc_session *s = argument;
    struct dv_shm_header *header = s->header;

    dvc_is_helper = true;
    while (dvc_session_alive(s)) {
        dvc_flush_output(s);
        if (serve_upcalls(s))
            continue;
        atomic_store(&header->client_asleep, 1);
        if (atomic_load(&header->upcall_tail) != atomic_load(&header->upcall_head) ||
            atomic_load(&header->output_tail) != atomic_load(&header->output_head)) {
            atomic_store(&header->client_asleep, 0);
            continue;
        }
        dvc_session_wait(s, &header->client_asleep, 1);
    }
    handlers->worker_lost(s);
    return NULL;
}

bool dvc_helper_start(struct dvc_session *s)
{
    pthread_mutex_lock(&s->host_lock);
    if (!s->helper_started)
        s->helper_started = dvc_thread_start(help, s);
    bool started = s->helper_started;
    pthread_mutex_unlock(&s->host_lock);
    return started;
}
