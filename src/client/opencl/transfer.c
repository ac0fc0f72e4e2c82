/* Moving bytes between the application's memory and memory objects: reads, writes, maps.
 *
 * Where a buffer's storage is shared memory and nothing is pending, the client copies by itself and
 * the worker hears nothing. A small write into a busy queue is captured: its bytes travel with the
 * command, or wait in the arena. Everything else is a host command: the worker says when its turn
 * has come, and then the caller (if it blocks) or the helper moves the bytes. */
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/client/opencl/transfer.h"

#define DIRECT_MOST ((size_t)1 << 20)  /* a non-blocking call copies no more than this by itself */
#define INLINE_MOST ((size_t)1 << 10)  /* rides in the ring */
#define STAGE_MOST ((size_t)2 << 20)   /* waits in the arena */
#define STAGE_BLOCKING_MOST ((size_t)64 << 10) /* a caller that waits anyway stages no more */
/* Through the arena at a time, and how many of them under way: small enough to stay in the caches,
 * enough to hide the hand-overs. */
#define PIECE_LEAST ((size_t)256 << 10)
#define PIECE_MOST ((size_t)1 << 20)
#define PIECES 4
#define DONE_TOGETHER_BYTES ((size_t)512 << 10) /* of host commands told of in one message */
#define DONE_TOGETHER 32u                       /* and how many of them */
/* Of writes that follow each other in a busy queue so many are captured; the others wait for the
 * helper, which then copies them all in one go and only once. */
#define CAPTURED_IN_A_ROW 2

/* A host command for the helper. */
struct dv_host_job {
    struct dv_host_job *next;
    struct dv_queue *queue;
    struct dv_mem *mem;
    struct dv_event *event; /* or NULL */
    uint64_t number;
    enum dv_direction direction;
    struct dv_region region;
    uint8_t *host;
};

static bool has_storage(const struct dv_mem *mem)
{
    return mem->arena != 0 && mem->type == CL_MEM_OBJECT_BUFFER;
}

/* ---- moving, once nothing stands in the way ---- */

static void fill_transfer(struct dvw_transfer *m, const struct dv_mem *mem,
                          enum dv_direction direction, const struct dv_region *r)
{
    memset(m, 0, sizeof *m);
    m->mem = mem->object.id;
    m->direction = direction;
    m->shape = r->shape;
    m->row_pitch = r->row_pitch;
    m->slice_pitch = r->slice_pitch;
    m->bytes = r->bytes;
    for (int i = 0; i < 3; i++) {
        m->origin[i] = r->origin[i];
        m->region[i] = r->size[i];
    }
}

/* A transfer beside the queue's order, for a command whose turn it is. */
static cl_int send_lane(struct dv_queue *queue, const struct dv_mem *mem,
                        enum dv_direction direction, const struct dv_region *r, uint64_t arena,
                        struct dv_event *event)
{
    struct dv_session *s = queue->object.session;
    struct dvw_transfer m;

    fill_transfer(&m, mem, direction, r);
    m.arena = arena;
    m.lane = 1;
    m.head.queue = queue->object.id;
    m.head.event = event->object.id;
    atomic_store(&event->slot->status, CL_QUEUED);
    return dv_send(s, DVW_OP_TRANSFER, &m.head.record, sizeof m, NULL, 0);
}

/* Cuts a region into pieces of at most `most` bytes (or single rows); returns false at the end. */
struct cutter {
    const struct dv_region *whole;
    size_t most;
    size_t at[3];
};

static bool cut(struct cutter *c, struct dv_region *piece)
{
    const struct dv_region *r = c->whole;

    *piece = *r;
    if (r->shape == DV_SHAPE_LINEAR) {
        if (c->at[0] >= r->bytes)
            return false;
        size_t bytes = r->bytes - c->at[0] < c->most ? r->bytes - c->at[0] : c->most;
        piece->origin[0] += c->at[0];
        piece->host_offset += c->at[0];
        piece->size[0] = piece->row_bytes = piece->bytes = bytes;
        c->at[0] += bytes;
        return true;
    }
    if (c->at[2] >= r->size[2])
        return false;
    size_t slice_bytes = r->row_bytes * r->size[1];
    size_t rows = r->size[1] - c->at[1], slices = 1;
    if (c->at[1] == 0 && slice_bytes <= c->most) {
        slices = c->most / slice_bytes;
        if (slices > r->size[2] - c->at[2])
            slices = r->size[2] - c->at[2];
    } else if (rows * r->row_bytes > c->most) {
        rows = c->most / r->row_bytes;
        rows = rows ? rows : 1;
    }
    piece->origin[1] += c->at[1];
    piece->origin[2] += c->at[2];
    piece->host_offset += c->at[1] * r->host_row_pitch + c->at[2] * r->host_slice_pitch;
    piece->size[1] = rows;
    piece->size[2] = slices;
    piece->bytes = r->row_bytes * rows * slices;
    c->at[1] += rows;
    if (c->at[1] >= r->size[1]) {
        c->at[1] = 0;
        c->at[2] += slices;
    }
    return true;
}

/* Through the arena, several pieces under way: some are copied while the device moves others. */
static cl_int pump(struct dv_queue *queue, struct dv_mem *mem, enum dv_direction direction,
                   const struct dv_region *r, uint8_t *host)
{
    struct dv_session *s = queue->object.session;
    size_t most = r->bytes / PIECES;
    most = most < PIECE_LEAST ? PIECE_LEAST : most > PIECE_MOST ? PIECE_MOST : most & ~(size_t)63;
    struct cutter cutter = {.whole = r, .most = most};
    struct dv_event *events[PIECES] = {NULL};
    struct dv_region pieces[PIECES];
    size_t piece_bytes = r->bytes < most ? r->bytes : most;
    cl_int error = CL_SUCCESS;

    if (r->shape != DV_SHAPE_LINEAR && piece_bytes < r->row_bytes)
        piece_bytes = r->row_bytes;
    unsigned count = r->bytes > piece_bytes ? PIECES : 1;
    uint64_t block = dv_arena_alloc(&s->arena, piece_bytes * count);
    if (!block)
        return CL_OUT_OF_HOST_MEMORY;
    for (unsigned i = 0; i < count; i++) {
        events[i] = dv_event_create(queue->context, queue, 0);
        if (!events[i])
            error = CL_OUT_OF_HOST_MEMORY;
        else
            atomic_store(&events[i]->slot->status, CL_COMPLETE);
    }
    unsigned sent = 0, landed = 0;
    bool more = true;
    while (error == CL_SUCCESS && (more || landed < sent)) {
        unsigned at = sent % count;
        if (more && sent - landed < count && (more = cut(&cutter, &pieces[at]))) {
            uint64_t offset = block + at * piece_bytes;
            if (direction == DV_TO_DEVICE)
                dv_region_pack(&pieces[at], dv_arena_pointer(s, offset), host);
            error = send_lane(queue, mem, direction, &pieces[at], offset, events[at]);
            sent += error == CL_SUCCESS;
        } else if (landed < sent) {
            at = landed++ % count;
            error = dv_event_wait(events[at]);
            if (error == CL_SUCCESS && direction == DV_FROM_DEVICE)
                dv_region_unpack(&pieces[at], dv_arena_pointer(s, block + at * piece_bytes), host);
        }
    }
    while (landed < sent) /* after an error: the device must be done with the block */
        dv_event_wait(events[landed++ % count]);
    for (unsigned i = 0; i < count; i++)
        if (events[i])
            dv_event_release(events[i]);
    if (dv_session_alive(s))
        dv_arena_free(&s->arena, block);
    return error;
}

static cl_int move(struct dv_queue *queue, struct dv_mem *mem, enum dv_direction direction,
                   const struct dv_region *r, uint8_t *host)
{
    if (!has_storage(mem))
        return pump(queue, mem, direction, r, host);
    uint8_t *storage = dv_arena_pointer(queue->object.session, mem->arena);
    if (direction == DV_TO_DEVICE)
        dv_region_to_storage(r, storage, host);
    else
        dv_region_from_storage(r, storage, host);
    return CL_SUCCESS;
}

/* ---- host commands ---- */

static void stamp(struct dv_event *event, cl_ulong start)
{
    if (!event || !(event->queue->properties & CL_QUEUE_PROFILING_ENABLE))
        return;
    atomic_store(&event->slot->submit_ns, start);
    atomic_store(&event->slot->start_ns, start);
    atomic_store(&event->slot->end_ns, dv_queue_time(event->queue));
}

static void tell_done(struct dv_session *s, uint32_t queue_id, uint64_t first, uint64_t last,
                      cl_int status)
{
    struct dvw_host_done message = {
        .queue = queue_id, .first = first, .last = last, .status = status};
    dv_send(s, DVW_OP_HOST_DONE, &message.head, sizeof message, NULL, 0);
}

void dv_host_flush(struct dv_session *s)
{
    if (s->done.queue_id == 0)
        return;
    tell_done(s, s->done.queue_id, s->done.first, s->done.last, CL_SUCCESS);
    s->done.queue_id = 0;
}

/* Small commands that follow each other are told of together. */
static void note_done(struct dv_session *s, const struct dv_host_job *job, cl_int status)
{
    uint32_t queue_id = job->queue->object.id;

    if (s->done.queue_id != queue_id || s->done.last + 1 != job->number ||
        s->done.bytes > DONE_TOGETHER_BYTES || s->done.last - s->done.first + 1 >= DONE_TOGETHER)
        dv_host_flush(s);
    if (status != CL_SUCCESS) {
        dv_host_flush(s);
        tell_done(s, queue_id, job->number, job->number, status);
        return;
    }
    if (s->done.queue_id == 0) {
        s->done.queue_id = queue_id;
        s->done.first = job->number;
        s->done.bytes = 0;
    }
    s->done.last = job->number;
    s->done.bytes += job->region.bytes;
}

static void unlink_job(struct dv_session *s, struct dv_host_job **link)
{
    struct dv_host_job *job = *link;

    *link = job->next;
    if (!job->next)
        s->host_jobs_end = link;
}

/* Returns whether it was listed: otherwise somebody else has it. */
static bool unlist_job(struct dv_session *s, const struct dv_host_job *job)
{
    struct dv_host_job **link = &s->host_jobs;

    pthread_mutex_lock(&s->host_lock);
    while (*link && *link != job)
        link = &(*link)->next;
    bool found = *link;
    if (found)
        unlink_job(s, link);
    pthread_mutex_unlock(&s->host_lock);
    return found;
}

static void free_job(struct dv_host_job *job)
{
    if (job->event)
        dv_event_unuse(job->event);
    dv_mem_unuse(job->mem);
    dv_queue_unuse(job->queue);
    free(job);
}

void dv_host_ready(struct dv_session *s, uint32_t queue_id, uint64_t number, bool cancelled)
{
    struct dv_host_job **link, *job = NULL;

    pthread_mutex_lock(&s->host_lock);
    for (link = &s->host_jobs; *link; link = &(*link)->next)
        if ((*link)->queue->object.id == queue_id && (*link)->number == number)
            break;
    /* A read stays listed until its bytes have landed: writes look for it there. */
    if ((job = *link) && (job->direction == DV_TO_DEVICE || cancelled))
        unlink_job(s, link);
    pthread_mutex_unlock(&s->host_lock);
    if (job && cancelled)
        free_job(job);
    if (!job || cancelled)
        return;
    cl_ulong start = job->event ? dv_queue_time(job->queue) : 0;
    cl_int status = move(job->queue, job->mem, job->direction, &job->region, job->host);
    stamp(job->event, start);
    if (job->direction == DV_FROM_DEVICE)
        unlist_job(s, job);
    note_done(s, job, status);
    free_job(job);
}

void dv_host_give_up(struct dv_session *s)
{
    pthread_mutex_lock(&s->host_lock);
    struct dv_host_job *job = s->host_jobs, *next;
    s->host_jobs = NULL;
    s->host_jobs_end = &s->host_jobs;
    pthread_mutex_unlock(&s->host_lock);
    for (; job; job = next) {
        next = job->next;
        free_job(job);
    }
}

/* Whether the memory is a mapped region, which the device may still be about to fill. */
static bool is_mapped(const struct dv_session *s, const uint8_t *from)
{
    return from >= s->shm && from < s->shm + s->shm_bytes;
}

/* Whether a pending read will still write into this memory. */
static bool awaits_read(struct dv_session *s, const uint8_t *from, size_t bytes)
{
    bool found = false;

    pthread_mutex_lock(&s->host_lock);
    for (struct dv_host_job *job = s->host_jobs; job && !found; job = job->next) {
        const uint8_t *start = job->host + job->region.host_offset;
        found = job->direction == DV_FROM_DEVICE && from < start + dv_region_host_span(&job->region) &&
                start < from + bytes;
    }
    pthread_mutex_unlock(&s->host_lock);
    return found;
}

/* With the queue's lock held. */
static cl_int enqueue_for_helper(struct dv_queue *queue, struct dv_mem *mem,
                                 enum dv_direction direction, const struct dv_region *r,
                                 uint8_t *host, cl_uint wait_count, const cl_event *waits,
                                 struct dv_event *event)
{
    struct dv_session *s = queue->object.session;
    struct dvw_host message = {.by_helper = 1};
    struct dv_host_job *job = malloc(sizeof *job);

    if (!job)
        return CL_OUT_OF_HOST_MEMORY;
    *job = (struct dv_host_job){.queue = queue,
                                .mem = mem,
                                .event = event,
                                .number = queue->enqueued + 1,
                                .direction = direction,
                                .region = *r,
                                .host = host};
    dv_object_use(&queue->object);
    dv_object_use(&mem->object);
    if (event)
        dv_object_use(&event->object);
    pthread_mutex_lock(&s->host_lock);
    *s->host_jobs_end = job;
    s->host_jobs_end = &job->next;
    pthread_mutex_unlock(&s->host_lock);
    cl_int error = dv_enqueue_locked(queue, DVW_OP_HOST, &message.head, sizeof message, NULL, 0,
                                     wait_count, waits, event);
    /* the worker never heard of it; the caller still has its objects */
    if (error != CL_SUCCESS && unlist_job(s, job))
        free_job(job);
    return error;
}

/* Takes the queue's lock held and gives it back released. */
static cl_int run_when_ready(struct dv_queue *queue, struct dv_mem *mem, enum dv_direction direction,
                          const struct dv_region *r, uint8_t *host, cl_uint wait_count,
                          const cl_event *waits, struct dv_event *event)
{
    struct dv_session *s = queue->object.session;
    uint64_t block = dv_arena_alloc(&s->arena, sizeof(struct dv_reply));
    struct dvw_host message = {.reply = block};
    struct dv_reply *reply = dv_arena_pointer(s, block);

    if (!block) {
        pthread_mutex_unlock(&queue->lock);
        return CL_OUT_OF_HOST_MEMORY;
    }
    atomic_store(&reply->state, DV_REPLY_PENDING);
    /* an event of our own tells when a failed dependency ends the command without a turn */
    struct dv_event *end = event ? event : dv_event_create(queue->context, queue, 0);
    cl_int error = end ? dv_enqueue_locked(queue, DVW_OP_HOST, &message.head, sizeof message, NULL,
                                           0, wait_count, waits, end)
                       : CL_OUT_OF_HOST_MEMORY;
    uint64_t number = queue->enqueued;
    pthread_mutex_unlock(&queue->lock);
    if (error == CL_SUCCESS) {
        while (atomic_load(&reply->state) != DV_REPLY_DONE && dv_session_alive(s) &&
               atomic_load(&end->slot->status) >= 0) {
            uint32_t state = DV_REPLY_PENDING;
            if (wait_count == 0) {
                dv_wait_reply(s, reply);
            } else {
                atomic_compare_exchange_strong(&reply->state, &state, DV_REPLY_SLEEPING);
                if (state != DV_REPLY_DONE) /* now and then look whether a dependency failed */
                    dv_futex_wait(&reply->state, DV_REPLY_SLEEPING, 5 * DV_NS_PER_MS);
                dv_session_check(s);
            }
        }
        if (!dv_session_alive(s)) {
            error = CL_OUT_OF_RESOURCES;
        } else if (atomic_load(&reply->state) == DV_REPLY_DONE) {
            cl_ulong start = dv_queue_time(queue);
            error = move(queue, mem, direction, r, host);
            stamp(event, start);
            tell_done(s, queue->object.id, number, number, error);
            if (event)
                dv_event_wait(event);
        } else {
            error = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        }
    }
    if (end && end != event)
        dv_event_release(end);
    if (dv_session_alive(s))
        dv_arena_free(&s->arena, block);
    return error;
}

/* Room for a captured write; 0: none now. */
static uint64_t stage(struct dv_session *s, size_t bytes)
{
    pthread_mutex_lock(&s->staging_lock);
    if (!s->staging.base)
        s->staging.base = dv_arena_alloc(&s->arena, DV_STAGING_BYTES);
    uint64_t flag = dv_staging_take(&s->staging, s->shm, bytes);
    pthread_mutex_unlock(&s->staging_lock);
    return flag;
}

/* With the queue's lock held: the bytes are copied now and written when the command's turn comes. */
static cl_int capture(struct dv_queue *queue, struct dv_mem *mem, const struct dv_region *r,
                      const uint8_t *host, uint64_t flag, struct dv_event *event)
{
    struct dv_session *s = queue->object.session;
    struct dvw_transfer m;

    fill_transfer(&m, mem, DV_TO_DEVICE, r);
    if (r->bytes <= INLINE_MOST) {
        uint8_t packed[INLINE_MOST];
        const uint8_t *data = host + r->host_offset;
        if (r->shape != DV_SHAPE_LINEAR) {
            dv_region_pack(r, packed, host);
            data = packed;
        }
        m.bytes_inline = 1;
        return dv_enqueue_locked(queue, DVW_OP_TRANSFER, &m.head, sizeof m, data, r->bytes, 0, NULL,
                                 event);
    }
    m.flag = flag;
    m.arena = flag + DV_STAGING_FLAG_BYTES;
    dv_region_pack(r, dv_arena_pointer(s, m.arena), host);
    return dv_enqueue_locked(queue, DVW_OP_TRANSFER, &m.head, sizeof m, NULL, 0, 0, NULL, event);
}

/* With the queue's lock held: everything before is complete, so move at once. */
static cl_int move_now(struct dv_queue *queue, struct dv_mem *mem, enum dv_direction direction,
                       const struct dv_region *r, uint8_t *host, struct dv_event *event)
{
    cl_ulong start = event ? dv_queue_time(queue) : 0;
    cl_int error = move(queue, mem, direction, r, host);

    if (event && error == CL_SUCCESS)
        dv_event_complete_here(event, start);
    return error;
}

static cl_int wait_for_captured(struct dv_queue *queue, uint64_t number, struct dv_event *event)
{
    cl_int error = CL_SUCCESS;

    if (!event)
        dv_queue_wait(queue, number);
    else
        error = dv_event_wait(event);
    return dv_session_alive(queue->object.session) ? error : CL_OUT_OF_RESOURCES;
}

static cl_int transfer(struct dv_queue *queue, cl_command_type command, enum dv_direction direction,
                       struct dv_mem *mem, const struct dv_region *r, void *host, bool blocking,
                       cl_uint wait_count, const cl_event *waits, cl_event *event_ret)
{
    struct dv_session *s = queue->object.session;
    struct dv_event *event = NULL;
    cl_int error;

    if (!dv_session_alive(s))
        return CL_OUT_OF_RESOURCES;
    if (event_ret && !(event = dv_event_create(queue->context, queue, command)))
        return CL_OUT_OF_HOST_MEMORY;
    bool direct = has_storage(mem);
    bool small_write =
        direction == DV_TO_DEVICE && r->bytes <= (blocking ? STAGE_BLOCKING_MOST : STAGE_MOST);
    uint64_t flag = 0;

    pthread_mutex_lock(&queue->lock);
    if (queue->last_write == queue->enqueued && direction == DV_TO_DEVICE)
        queue->writes_in_a_row++;
    else
        queue->writes_in_a_row = 0;
    if (direct && !blocking && queue->writes_in_a_row >= CAPTURED_IN_A_ROW)
        small_write = false;
    bool pending = dv_waits_pending(wait_count, waits);
    bool at_once = direct ? blocking || r->bytes <= DIRECT_MOST : blocking && !small_write;
    if (!pending && at_once && dv_queue_idle(queue)) {
        error = move_now(queue, mem, direction, r, host, event);
        pthread_mutex_unlock(&queue->lock);
    } else if (!pending && small_write &&
               atomic_load(&queue->slot->completed) >= queue->gated_until &&
               !is_mapped(s, host) &&
               !awaits_read(s, (uint8_t *)host + r->host_offset, dv_region_host_span(r)) &&
               (r->bytes <= INLINE_MOST || (flag = stage(s, r->bytes)))) {
        error = capture(queue, mem, r, host, flag, event);
        uint64_t number = queue->enqueued;
        pthread_mutex_unlock(&queue->lock);
        /* other queues may rely on the bytes being there when a blocking call returns */
        if (error == CL_SUCCESS && blocking)
            error = wait_for_captured(queue, number, event);
    } else if (!blocking) {
        error = enqueue_for_helper(queue, mem, direction, r, host, wait_count, waits, event);
        pthread_mutex_unlock(&queue->lock);
    } else {
        bool done = false;
        if (!pending && queue->in_order) {
            uint64_t last = queue->enqueued;
            pthread_mutex_unlock(&queue->lock);
            dv_queue_wait(queue, last);
            dv_flush_output(s);
            pthread_mutex_lock(&queue->lock);
            if (dv_session_alive(s) && dv_queue_idle(queue)) {
                error = move_now(queue, mem, direction, r, host, event);
                pthread_mutex_unlock(&queue->lock);
                done = true;
            }
        }
        if (!done)
            error = run_when_ready(queue, mem, direction, r, host, wait_count, waits, event);
    }
    if (error == CL_SUCCESS && blocking)
        dv_flush_output(s); /* what came before has completed, and the caller now knows it */
    if (direction == DV_TO_DEVICE)
        queue->last_write = queue->enqueued;
    if (error == CL_SUCCESS && event_ret) {
        *event_ret = (cl_event)event;
    } else if (event) {
        if (atomic_load(&event->slot->status) > 0)
            atomic_store(&event->slot->status, CL_OUT_OF_RESOURCES);
        dv_event_release(event);
    }
    return error;
}

/* ---- reads and writes ---- */

static cl_int check(struct dv_queue *queue, struct dv_mem *mem, cl_mem_flags forbidden, void *host,
                    cl_uint wait_count, const cl_event *waits)
{
    if (mem->context != queue->context)
        return CL_INVALID_CONTEXT;
    if (!host)
        return CL_INVALID_VALUE;
    cl_int error = dv_check_waits(queue->context, wait_count, waits);
    if (error != CL_SUCCESS)
        return error;
    if (mem->flags & forbidden)
        return CL_INVALID_OPERATION;
    if (mem->parent && mem->type == CL_MEM_OBJECT_BUFFER && queue->device->base_align &&
        mem->origin % queue->device->base_align)
        return CL_MISALIGNED_SUB_BUFFER_OFFSET;
    return CL_SUCCESS;
}

#define NO_READ (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS)
#define NO_WRITE (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)

static cl_int buffer_linear(cl_command_queue command_queue, cl_command_type command,
                            enum dv_direction direction, cl_mem buffer, cl_bool blocking,
                            size_t offset, size_t size, void *ptr, cl_uint count,
                            const cl_event *list, cl_event *event)
{
    struct dv_queue *queue = dv_queue_of(command_queue);
    struct dv_mem *mem = dv_buffer_of(buffer);
    struct dv_region region;

    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!mem)
        return CL_INVALID_MEM_OBJECT;
    cl_int error =
        check(queue, mem, direction == DV_TO_DEVICE ? NO_WRITE : NO_READ, ptr, count, list);
    if (error == CL_SUCCESS)
        error = size == 0 ? CL_INVALID_VALUE : dv_region_linear(&region, mem, offset, size);
    if (error != CL_SUCCESS)
        return error;
    return transfer(queue, command, direction, mem, &region, ptr, blocking, count, list, event);
}

cl_int CL_API_CALL dvc_clEnqueueReadBuffer(cl_command_queue command_queue, cl_mem buffer,
                                           cl_bool blocking_read, size_t offset, size_t size,
                                           void *ptr, cl_uint num_events_in_wait_list,
                                           const cl_event *event_wait_list, cl_event *event)
{
    return buffer_linear(command_queue, CL_COMMAND_READ_BUFFER, DV_FROM_DEVICE, buffer,
                         blocking_read, offset, size, ptr, num_events_in_wait_list, event_wait_list,
                         event);
}

cl_int CL_API_CALL dvc_clEnqueueWriteBuffer(cl_command_queue command_queue, cl_mem buffer,
                                            cl_bool blocking_write, size_t offset, size_t size,
                                            const void *ptr, cl_uint num_events_in_wait_list,
                                            const cl_event *event_wait_list, cl_event *event)
{
    return buffer_linear(command_queue, CL_COMMAND_WRITE_BUFFER, DV_TO_DEVICE, buffer,
                         blocking_write, offset, size, (void *)ptr, num_events_in_wait_list,
                         event_wait_list, event);
}

static cl_int buffer_rect(cl_command_queue command_queue, cl_command_type command,
                          enum dv_direction direction, cl_mem buffer, cl_bool blocking,
                          const size_t *buffer_origin, const size_t *host_origin,
                          const size_t *size, size_t row_pitch, size_t slice_pitch,
                          size_t host_row_pitch, size_t host_slice_pitch, void *ptr, cl_uint count,
                          const cl_event *list, cl_event *event)
{
    struct dv_queue *queue = dv_queue_of(command_queue);
    struct dv_mem *mem = dv_buffer_of(buffer);
    struct dv_region region;

    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!mem)
        return CL_INVALID_MEM_OBJECT;
    cl_int error =
        check(queue, mem, direction == DV_TO_DEVICE ? NO_WRITE : NO_READ, ptr, count, list);
    if (error == CL_SUCCESS)
        error = dv_region_rect(&region, mem, buffer_origin, host_origin, size, row_pitch,
                               slice_pitch, host_row_pitch, host_slice_pitch);
    if (error != CL_SUCCESS)
        return error;
    return transfer(queue, command, direction, mem, &region, ptr, blocking, count, list, event);
}

cl_int CL_API_CALL dvc_clEnqueueReadBufferRect(
    cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_read,
    const size_t *buffer_origin, const size_t *host_origin, const size_t *region,
    size_t buffer_row_pitch, size_t buffer_slice_pitch, size_t host_row_pitch,
    size_t host_slice_pitch, void *ptr, cl_uint num_events_in_wait_list,
    const cl_event *event_wait_list, cl_event *event)
{
    return buffer_rect(command_queue, CL_COMMAND_READ_BUFFER_RECT, DV_FROM_DEVICE, buffer,
                       blocking_read, buffer_origin, host_origin, region, buffer_row_pitch,
                       buffer_slice_pitch, host_row_pitch, host_slice_pitch, ptr,
                       num_events_in_wait_list, event_wait_list, event);
}

cl_int CL_API_CALL dvc_clEnqueueWriteBufferRect(
    cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_write,
    const size_t *buffer_origin, const size_t *host_origin, const size_t *region,
    size_t buffer_row_pitch, size_t buffer_slice_pitch, size_t host_row_pitch,
    size_t host_slice_pitch, const void *ptr, cl_uint num_events_in_wait_list,
    const cl_event *event_wait_list, cl_event *event)
{
    return buffer_rect(command_queue, CL_COMMAND_WRITE_BUFFER_RECT, DV_TO_DEVICE, buffer,
                       blocking_write, buffer_origin, host_origin, region, buffer_row_pitch,
                       buffer_slice_pitch, host_row_pitch, host_slice_pitch, (void *)ptr,
                       num_events_in_wait_list, event_wait_list, event);
}

static cl_int image_box(cl_command_queue command_queue, cl_command_type command,
                        enum dv_direction direction, cl_mem image, cl_bool blocking,
                        const size_t *origin, const size_t *size, size_t row_pitch,
                        size_t slice_pitch, void *ptr, cl_uint count, const cl_event *list,
                        cl_event *event)
{
    struct dv_queue *queue = dv_queue_of(command_queue);
    struct dv_mem *mem = dv_image_of(image);
    struct dv_region region;

    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!mem)
        return CL_INVALID_MEM_OBJECT;
    cl_int error =
        check(queue, mem, direction == DV_TO_DEVICE ? NO_WRITE : NO_READ, ptr, count, list);
    if (error == CL_SUCCESS)
        error = dv_region_image(&region, mem, origin, size, row_pitch, slice_pitch);
    if (error != CL_SUCCESS)
        return error;
    return transfer(queue, command, direction, mem, &region, ptr, blocking, count, list, event);
}

cl_int CL_API_CALL dvc_clEnqueueReadImage(cl_command_queue command_queue, cl_mem image,
                                          cl_bool blocking_read, const size_t *origin,
                                          const size_t *region, size_t row_pitch,
                                          size_t slice_pitch, void *ptr,
                                          cl_uint num_events_in_wait_list,
                                          const cl_event *event_wait_list, cl_event *event)
{
    return image_box(command_queue, CL_COMMAND_READ_IMAGE, DV_FROM_DEVICE, image, blocking_read,
                     origin, region, row_pitch, slice_pitch, ptr, num_events_in_wait_list,
                     event_wait_list, event);
}

cl_int CL_API_CALL dvc_clEnqueueWriteImage(cl_command_queue command_queue, cl_mem image,
                                           cl_bool blocking_write, const size_t *origin,
                                           const size_t *region, size_t input_row_pitch,
                                           size_t input_slice_pitch, const void *ptr,
                                           cl_uint num_events_in_wait_list,
                                           const cl_event *event_wait_list, cl_event *event)
{
    return image_box(command_queue, CL_COMMAND_WRITE_IMAGE, DV_TO_DEVICE, image, blocking_write,
                     origin, region, input_row_pitch, input_slice_pitch, (void *)ptr,
                     num_events_in_wait_list, event_wait_list, event);
}

/* ---- maps ---- */

static void list_map(struct dv_mem *mem, struct dv_map *map)
{
    pthread_mutex_lock(&mem->lock);
    map->next = mem->maps;
    mem->maps = map;
    pthread_mutex_unlock(&mem->lock);
}

static struct dv_map *add_map(struct dv_mem *mem, void *pointer, cl_map_flags flags,
                              const struct dv_region *region, uint64_t arena)
{
    struct dv_map *map = calloc(1, sizeof *map);
    struct dv_region *copy = malloc(sizeof *copy);

    if (!map || !copy) {
        free(map);
        free(copy);
        return NULL;
    }
    *copy = *region;
    *map = (struct dv_map){.pointer = pointer, .flags = flags, .region = copy, .arena = arena};
    list_map(mem, map);
    return map;
}

static struct dv_map *take_map(struct dv_mem *mem, const void *pointer)
{
    struct dv_map *map = NULL;

    pthread_mutex_lock(&mem->lock);
    for (struct dv_map **link = &mem->maps; *link; link = &(*link)->next)
        if ((*link)->pointer == pointer) {
            map = *link;
            *link = map->next;
            break;
        }
    pthread_mutex_unlock(&mem->lock);
    return map;
}

static void free_map(struct dv_map *map)
{
    free(map->region);
    free(map);
}

/* A command that moves no bytes: done when its turn comes. */
static cl_int mark(struct dv_queue *queue, cl_command_type command, uint64_t free_block,
                   bool blocking, cl_uint count, const cl_event *list, cl_event *event_ret)
{
    struct dvw_marker message = {.arena = free_block};
    struct dv_event *event = NULL;
    cl_int error = CL_SUCCESS;

    if (!dv_session_alive(queue->object.session))
        return CL_OUT_OF_RESOURCES;
    if ((event_ret || blocking) && !(event = dv_event_create(queue->context, queue, command)))
        return CL_OUT_OF_HOST_MEMORY;
    message.explicit = 1; /* a command like any other: no barrier for an out-of-order queue */
    pthread_mutex_lock(&queue->lock);
    if (!free_block && !dv_waits_pending(count, list) && dv_queue_idle(queue)) {
        if (event)
            dv_event_complete_here(event, dv_queue_time(queue));
        pthread_mutex_unlock(&queue->lock);
        if (blocking)
            dv_flush_output(queue->object.session);
    } else {
        error = dv_enqueue_locked(queue, DVW_OP_MARKER, &message.head, sizeof message, NULL, 0,
                                  count, list, event);
        pthread_mutex_unlock(&queue->lock);
        if (error == CL_SUCCESS && blocking)
            error = dv_event_wait(event) < 0 ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
                                             : CL_SUCCESS;
    }
    if (error == CL_SUCCESS && event_ret)
        *event_ret = (cl_event)event;
    else if (event)
        dv_event_release(event);
    return error;
}

/* The device's bytes into a block of the arena, or from it back. */
static cl_int move_block(struct dv_queue *queue, cl_command_type command, struct dv_mem *mem,
                         enum dv_direction direction, const struct dv_region *r, uint64_t block,
                         bool blocking, cl_uint count, const cl_event *list, cl_event *event_ret)
{
    struct dvw_transfer m;
    cl_event event = NULL;

    fill_transfer(&m, mem, direction, r);
    m.arena = block;
    m.free_after = direction == DV_TO_DEVICE;
    cl_int error = dv_enqueue(queue, DVW_OP_TRANSFER, &m.head, sizeof m, NULL, 0, command, count,
                              list, event_ret || blocking ? &event : NULL);
    if (error == CL_SUCCESS && blocking)
        error = dv_event_wait((struct dv_event *)event) < 0
                    ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
                    : CL_SUCCESS;
    if (error == CL_SUCCESS && event_ret)
        *event_ret = event;
    else if (event)
        dv_event_release((struct dv_event *)event);
    return error;
}

static cl_int map_region(struct dv_queue *queue, struct dv_mem *mem, cl_command_type command,
                         struct dv_region *r, cl_map_flags flags, bool blocking, cl_uint count,
                         const cl_event *list, cl_event *event, void **pointer)
{
    struct dv_session *s = queue->object.session;
    bool wants_content = !(flags & CL_MAP_WRITE_INVALIDATE_REGION);
    uint64_t block = 0;
    cl_int error;

    if (!dv_session_alive(s))
        return CL_OUT_OF_RESOURCES;
    if (mem->host_ptr) {
        *pointer = (uint8_t *)mem->host_ptr + r->host_offset;
    } else if (has_storage(mem)) {
        *pointer = (uint8_t *)dv_arena_pointer(s, mem->arena) + r->origin[0];
    } else {
        block = dv_arena_alloc(&s->arena, r->bytes);
        if (!block)
            return CL_MAP_FAILURE;
        *pointer = dv_arena_pointer(s, block);
    }
    if (!add_map(mem, *pointer, flags, r, block)) {
        if (block)
            dv_arena_free(&s->arena, block);
        return CL_OUT_OF_HOST_MEMORY;
    }
    if (!wants_content || (!mem->host_ptr && !block))
        error = mark(queue, command, 0, blocking, count, list, event);
    else if (mem->host_ptr)
        error = transfer(queue, command, DV_FROM_DEVICE, mem, r, mem->host_ptr, blocking, count,
                         list, event);
    else
        error = move_block(queue, command, mem, DV_FROM_DEVICE, r, block, blocking, count, list,
                           event);
    if (error != CL_SUCCESS) {
        free_map(take_map(mem, *pointer));
        if (block)
            dv_arena_free(&s->arena, block);
    }
    return error;
}

static cl_int check_map(struct dv_queue *queue, struct dv_mem *mem, cl_map_flags flags,
                        cl_uint count, const cl_event *list)
{
    const cl_map_flags known = CL_MAP_READ | CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;

    if (flags & ~known || ((flags & CL_MAP_WRITE_INVALIDATE_REGION) &&
                           (flags & (CL_MAP_READ | CL_MAP_WRITE))))
        return CL_INVALID_VALUE;
    cl_mem_flags forbidden = 0;
    if (flags & CL_MAP_READ)
        forbidden |= NO_READ;
    if (flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION))
        forbidden |= NO_WRITE;
    return check(queue, mem, forbidden, queue, count, list);
}

void *CL_API_CALL dvc_clEnqueueMapBuffer(cl_command_queue command_queue, cl_mem buffer,
                                         cl_bool blocking_map, cl_map_flags map_flags, size_t offset,
                                         size_t size, cl_uint num_events_in_wait_list,
                                         const cl_event *event_wait_list, cl_event *event,
                                         cl_int *errcode_ret)
{
    struct dv_queue *queue = dv_queue_of(command_queue);
    struct dv_mem *mem = dv_buffer_of(buffer);
    struct dv_region region;
    void *pointer = NULL;
    cl_int error;

    if (!queue)
        error = CL_INVALID_COMMAND_QUEUE;
    else if (!mem)
        error = CL_INVALID_MEM_OBJECT;
    else
        error = check_map(queue, mem, map_flags, num_events_in_wait_list, event_wait_list);
    if (error == CL_SUCCESS)
        error = size == 0 ? CL_INVALID_VALUE : dv_region_linear(&region, mem, offset, size);
    if (error == CL_SUCCESS) {
        if (mem->host_ptr)
            region.host_offset = offset;
        error = map_region(queue, mem, CL_COMMAND_MAP_BUFFER, &region, map_flags, blocking_map,
                           num_events_in_wait_list, event_wait_list, event, &pointer);
    }
    if (errcode_ret)
        *errcode_ret = error;
    return error == CL_SUCCESS ? pointer : NULL;
}

void *CL_API_CALL dvc_clEnqueueMapImage(cl_command_queue command_queue, cl_mem image,
                                        cl_bool blocking_map, cl_map_flags map_flags,
                                        const size_t *origin, const size_t *region,
                                        size_t *image_row_pitch, size_t *image_slice_pitch,
                                        cl_uint num_events_in_wait_list,
                                        const cl_event *event_wait_list, cl_event *event,
                                        cl_int *errcode_ret)
{
    struct dv_queue *queue = dv_queue_of(command_queue);
    struct dv_mem *mem = dv_image_of(image);
    struct dv_region box;
    void *pointer = NULL;
    cl_int error;

    if (!queue)
        error = CL_INVALID_COMMAND_QUEUE;
    else if (!mem)
        error = CL_INVALID_MEM_OBJECT;
    else
        error = check_map(queue, mem, map_flags, num_events_in_wait_list, event_wait_list);
    bool sliced = mem && mem->desc.image_type != CL_MEM_OBJECT_IMAGE2D &&
                  mem->desc.image_type != CL_MEM_OBJECT_IMAGE1D &&
                  mem->desc.image_type != CL_MEM_OBJECT_IMAGE1D_BUFFER;
    if (error == CL_SUCCESS && (!image_row_pitch || (sliced && !image_slice_pitch)))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = dv_region_image(&box, mem, origin, region, 0, 0);
    if (error == CL_SUCCESS) {
        if (mem->host_ptr) { /* the application's own layout */
            bool lines = mem->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
            box.host_row_pitch = lines ? mem->slice_pitch : mem->row_pitch;
            box.host_slice_pitch = mem->slice_pitch;
            box.host_offset = origin[0] * mem->element_bytes + origin[1] * box.host_row_pitch +
                              origin[2] * mem->slice_pitch;
        }
        error = map_region(queue, mem, CL_COMMAND_MAP_IMAGE, &box, map_flags, blocking_map,
                           num_events_in_wait_list, event_wait_list, event, &pointer);
    }
    if (error == CL_SUCCESS) {
        bool lines = mem->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
        *image_row_pitch = mem->host_ptr ? mem->row_pitch : box.row_bytes;
        if (image_slice_pitch)
            *image_slice_pitch = !sliced        ? 0
                                 : mem->host_ptr ? mem->slice_pitch
                                 : lines         ? box.row_bytes
                                                 : box.row_bytes * region[1];
    }
    if (errcode_ret)
        *errcode_ret = error;
    return error == CL_SUCCESS ? pointer : NULL;
}

cl_int CL_API_CALL dvc_clEnqueueUnmapMemObject(cl_command_queue command_queue, cl_mem memobj,
                                               void *mapped_ptr, cl_uint num_events_in_wait_list,
                                               const cl_event *event_wait_list, cl_event *event)
{
    struct dv_queue *queue = dv_queue_of(command_queue);
    struct dv_mem *mem = dv_mem_of(memobj);

    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!mem)
        return CL_INVALID_MEM_OBJECT;
    if (mem->context != queue->context)
        return CL_INVALID_CONTEXT;
    cl_int error = dv_check_waits(queue->context, num_events_in_wait_list, event_wait_list);
    if (error != CL_SUCCESS)
        return error;
    if (!dv_session_alive(queue->object.session))
        return CL_OUT_OF_RESOURCES;
    struct dv_map *map = mapped_ptr ? take_map(mem, mapped_ptr) : NULL;
    if (!map)
        return CL_INVALID_VALUE;
    bool wrote = map->flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION);
    if (wrote && mem->host_ptr)
        error = transfer(queue, CL_COMMAND_UNMAP_MEM_OBJECT, DV_TO_DEVICE, mem, map->region,
                         mem->host_ptr, false, num_events_in_wait_list, event_wait_list, event);
    else if (wrote && map->arena)
        error = move_block(queue, CL_COMMAND_UNMAP_MEM_OBJECT, mem, DV_TO_DEVICE, map->region,
                           map->arena, false, num_events_in_wait_list, event_wait_list, event);
    else
        error = mark(queue, CL_COMMAND_UNMAP_MEM_OBJECT, map->arena, false, num_events_in_wait_list,
                     event_wait_list, event);
    if (error == CL_SUCCESS)
        free_map(map);
    else
        list_map(mem, map); /* it is still mapped */
    return error;
}
