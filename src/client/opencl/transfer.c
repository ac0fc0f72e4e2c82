/* Chooses how the bytes of a read or a write move.
 *
 * Where a buffer's storage is shared memory and nothing is pending, the client copies by itself, without a message to
 * the worker. A small write into a busy queue is captured: its bytes travel with the command, or wait in the arena.
 * Everything else is a host command: the worker reports when it is ready, and then the caller (if it blocks) or the
 * helper moves the bytes. */
#include "src/client/opencl/transfer.h"

#define DIRECT_MAX ((size_t)1 << 20)          /* a non-blocking call copies no more than this by itself */
#define INLINE_MAX ((size_t)1 << 10)          /* travels in the ring */
#define STAGE_MAX ((size_t)2 << 20)           /* waits in the arena */
#define STAGE_BLOCKING_MAX ((size_t)64 << 10) /* a blocking call waits anyway and stages no more */
/* This many consecutive writes in a busy queue are captured. The others wait for the helper, which then copies them all
 * together and only once. */
#define CAPTURED_IN_A_ROW 2
/* A blocking call checks this often whether a dependency has failed. */
#define DEPENDENCY_LOOK_NS (5 * DV_NS_PER_MS)

enum way {
    MOVE_NOW, /* everything before is complete */
    CAPTURE,  /* copy the bytes now; the device gets them when the command is ready */
    LEAVE_TO_HELPER,
    AWAIT_QUEUE,    /* then move, or run as a host command if other threads enqueued meanwhile */
    RUN_WHEN_READY, /* a host command that the caller runs */
};

/* ---- choosing ---- */

/* Whether the memory is a mapped region, which the device may still be about to fill. */
static bool is_mapped(const struct dvc_session *s, const uint8_t *from)
{
    return from >= s->shm && from < s->shm + s->shm_bytes;
}

/* Room for a captured write; 0: none now. */
static uint64_t stage(struct dvc_session *s, size_t bytes)
{
    pthread_mutex_lock(&s->staging_lock);
    if (!s->staging.base)
        s->staging.base = dvc_arena_alloc(&s->arena, DV_STAGING_BYTES);
    uint64_t flag = dvc_staging_take(&s->staging, s->shm, bytes);
    pthread_mutex_unlock(&s->staging_lock);
    return flag;
}

/* *flag: room for the bytes, unless they travel in the ring. */
static bool can_capture(const struct dvc_transfer *t, bool direct, uint64_t *flag)
{
    struct dvc_queue *queue = t->queue;
    struct dvc_session *s = queue->object.session;
    size_t bytes = t->region->bytes;

    if (t->direction != DV_TO_DEVICE || bytes > (t->blocking ? STAGE_BLOCKING_MAX : STAGE_MAX) ||
        (direct && !t->blocking && queue->writes_in_a_row >= CAPTURED_IN_A_ROW))
        return false;
    if (atomic_load(&queue->slot->completed) < queue->gated_until || is_mapped(s, t->host) ||
        dvc_host_awaits_read(s, t->host + t->region->host_offset, dvc_region_host_span(t->region)))
        return false;
    return bytes <= INLINE_MAX || (*flag = stage(s, bytes));
}

/* With the queue's lock held. */
static enum way choose_way(const struct dvc_transfer *t, uint64_t *flag)
{
    bool direct = dvc_has_storage(t->mem), pending = dvc_waits_pending(t->wait_count, t->waits);
    size_t bytes = t->region->bytes;
    bool small_write = t->direction == DV_TO_DEVICE && bytes <= STAGE_BLOCKING_MAX;
    bool at_once = direct ? t->blocking || bytes <= DIRECT_MAX : t->blocking && !small_write;

    if (!pending && at_once && dvc_queue_idle(t->queue))
        return MOVE_NOW;
    if (!pending && can_capture(t, direct, flag))
        return CAPTURE;
    if (!t->blocking)
        return LEAVE_TO_HELPER;
    return !pending && t->queue->in_order ? AWAIT_QUEUE : RUN_WHEN_READY;
}

/* ---- the ways, with the queue's lock held ---- */

static cl_int move_now(const struct dvc_transfer *t)
{
    cl_ulong start = t->event ? dv_now() : 0;
    cl_int error = dvc_move(t->queue, t->mem, t->direction, t->region, t->host);

    if (t->event && error == CL_SUCCESS)
        dvc_event_complete_here(t->event, start);
    return error;
}

static cl_int capture(const struct dvc_transfer *t, uint64_t flag)
{
    const struct dvc_region *r = t->region;
    struct dvw_transfer m;

    dvc_fill_transfer(&m, t->mem, DV_TO_DEVICE, r);
    if (r->bytes <= INLINE_MAX) {
        uint8_t packed[INLINE_MAX];
        const uint8_t *data = t->host + r->host_offset;
        if (r->shape != DV_SHAPE_LINEAR) {
            dvc_region_pack(r, packed, t->host);
            data = packed;
        }
        m.bytes_inline = 1;
        return dvc_enqueue_locked(t->queue, DVW_OP_TRANSFER, &m.head, sizeof m, data, r->bytes, 0, NULL, t->event);
    }
    m.flag = flag;
    m.arena = flag + DV_STAGING_FLAG_BYTES;
    dvc_region_pack(r, dvc_arena_pointer(t->queue->object.session, m.arena), t->host);
    return dvc_enqueue_locked(t->queue, DVW_OP_TRANSFER, &m.head, sizeof m, NULL, 0, 0, NULL, t->event);
}

/* A host command that the caller waits for. */
struct own_command {
    uint64_t block; /* of the arena, for the reply */
    struct dv_reply *reply;
    struct dvc_event *end; /* reports a failed dependency, after which the command never becomes ready */
};

static cl_int enqueue_own(const struct dvc_transfer *t, struct own_command *own)
{
    struct dvc_session *s = t->queue->object.session;
    struct dvw_host message = {0};

    own->block = dvc_arena_alloc(&s->arena, sizeof(struct dv_reply));
    if (!own->block)
        return CL_OUT_OF_HOST_MEMORY;
    message.reply = own->block;
    own->reply = dvc_arena_pointer(s, own->block);
    atomic_store(&own->reply->state, DV_REPLY_PENDING);
    own->end = t->event ? t->event : dvc_event_create(t->queue->context, t->queue, 0);
    return own->end ? dvc_enqueue_locked(t->queue, DVW_OP_HOST, &message.head, sizeof message, NULL, 0, t->wait_count,
                                         t->waits, own->end)
                    : CL_OUT_OF_HOST_MEMORY;
}

/* ---- the ways, after the lock was released ---- */

/* Waits until the command is ready, or will never be. */
static void await_ready(const struct dvc_transfer *t, const struct own_command *own)
{
    struct dvc_session *s = t->queue->object.session;
    struct dv_reply *reply = own->reply;

    while (atomic_load(&reply->state) != DV_REPLY_DONE && dvc_session_alive(s) &&
           atomic_load(&own->end->slot->status) >= 0) {
        uint32_t state = DV_REPLY_PENDING;
        if (t->wait_count == 0) {
            dvc_wait_reply(s, reply);
            continue;
        }
        atomic_compare_exchange_strong(&reply->state, &state, DV_REPLY_SLEEPING);
        if (state != DV_REPLY_DONE)
            dv_futex_wait(&reply->state, DV_REPLY_SLEEPING, DEPENDENCY_LOOK_NS);
        dvc_session_check(s);
    }
}

static cl_int run_own(const struct dvc_transfer *t, const struct own_command *own, uint64_t number)
{
    struct dvc_session *s = t->queue->object.session;

    await_ready(t, own);
    if (!dvc_session_alive(s))
        return CL_OUT_OF_RESOURCES;
    if (atomic_load(&own->reply->state) != DV_REPLY_DONE)
        return CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    cl_ulong start = dv_now();
    cl_int error = dvc_move(t->queue, t->mem, t->direction, t->region, t->host);
    dvc_host_stamp(t->event, start);
    dvc_host_tell_done(s, t->queue->object.id, number, number, error);
    if (t->event)
        dvc_event_wait(t->event);
    return error;
}

static void end_own(const struct dvc_transfer *t, const struct own_command *own)
{
    struct dvc_session *s = t->queue->object.session;

    if (own->end && own->end != t->event)
        dvc_event_release(own->end);
    if (own->block && dvc_session_alive(s))
        dvc_arena_free(&s->arena, own->block);
}

static cl_int wait_for_captured(const struct dvc_transfer *t, uint64_t number)
{
    cl_int error = CL_SUCCESS;

    if (!t->event)
        dvc_queue_wait(t->queue, number);
    else
        error = dvc_event_wait(t->event);
    return dvc_session_alive(t->queue->object.session) ? error : CL_OUT_OF_RESOURCES;
}

/* ---- the whole transfer ---- */

static void count_writes(struct dvc_queue *queue, enum dv_direction direction)
{
    if (queue->last_write == queue->enqueued && direction == DV_TO_DEVICE)
        queue->writes_in_a_row++;
    else
        queue->writes_in_a_row = 0;
}

/* Waits for the commands before it, without the lock. Returns how to continue. */
static enum way await_queue(struct dvc_queue *queue)
{
    struct dvc_session *s = queue->object.session;
    uint64_t last = queue->enqueued;

    pthread_mutex_unlock(&queue->lock);
    dvc_queue_wait(queue, last);
    dvc_flush_output(s);
    pthread_mutex_lock(&queue->lock);
    return dvc_session_alive(s) && dvc_queue_idle(queue) ? MOVE_NOW : RUN_WHEN_READY;
}

static cl_int run(const struct dvc_transfer *t)
{
    struct dvc_queue *queue = t->queue;
    struct own_command own = {0};
    uint64_t flag = 0;
    cl_int error;

    pthread_mutex_lock(&queue->lock);
    count_writes(queue, t->direction);
    enum way way = choose_way(t, &flag);
    if (way == AWAIT_QUEUE)
        way = await_queue(queue);
    switch (way) {
    case MOVE_NOW:
        error = move_now(t);
        break;
    case CAPTURE:
        error = capture(t, flag);
        break;
    case LEAVE_TO_HELPER:
        error = dvc_host_enqueue(t);
        break;
    default:
        error = enqueue_own(t, &own);
        break;
    }
    uint64_t number = queue->enqueued;
    pthread_mutex_unlock(&queue->lock);
    /* other queues may rely on the bytes being there when a blocking call returns */
    if (error == CL_SUCCESS && way == CAPTURE && t->blocking)
        error = wait_for_captured(t, number);
    else if (error == CL_SUCCESS && way == RUN_WHEN_READY)
        error = run_own(t, &own, number);
    end_own(t, &own);
    return error;
}

cl_int dvc_transfer(struct dvc_transfer *t, cl_command_type command, cl_event *event_ret)
{
    struct dvc_queue *queue = t->queue;
    struct dvc_session *s = queue->object.session;

    if (!dvc_session_alive(s))
        return CL_OUT_OF_RESOURCES;
    if (event_ret && !(t->event = dvc_event_create(queue->context, queue, command)))
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = run(t);
    if (error == CL_SUCCESS && t->blocking)
        dvc_flush_output(s); /* the commands before it have completed, and the caller now knows it */
    if (t->direction == DV_TO_DEVICE)
        queue->last_write = queue->enqueued;
    if (error == CL_SUCCESS && event_ret) {
        *event_ret = (cl_event)t->event;
    } else if (t->event) {
        if (atomic_load(&t->event->slot->status) > 0)
            atomic_store(&t->event->slot->status, CL_OUT_OF_RESOURCES);
        dvc_event_release(t->event);
    }
    return error;
}
