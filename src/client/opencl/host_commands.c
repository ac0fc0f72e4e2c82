/* Host commands that the helper runs: the worker says when one is ready, then the helper moves the bytes. */
#include <stdlib.h>

#include "src/client/opencl/transfer.h"

#define DONE_TOGETHER_BYTES ((size_t)512 << 10) /* bytes of host commands reported in one message */
#define DONE_TOGETHER 32u                       /* and their maximum number */

/* A host command for the helper. */
struct dvc_host_job {
    struct dvc_host_job *next;
    struct dvc_queue *queue;
    struct dvc_mem *mem;
    struct dvc_event *event; /* or NULL */
    uint64_t number;
    enum dv_direction direction;
    struct dvc_region region;
    uint8_t *host;
};

void dvc_host_stamp(struct dvc_event *event, cl_ulong start)
{
    if (!event || !(event->queue->properties & CL_QUEUE_PROFILING_ENABLE))
        return;
    atomic_store(&event->slot->submit_ns, start);
    atomic_store(&event->slot->start_ns, start);
    atomic_store(&event->slot->end_ns, dv_now());
}

void dvc_host_tell_done(struct dvc_session *s, struct dv_object_id queue_id, uint64_t first, uint64_t last,
                        cl_int status)
{
    struct dvw_host_done message = {.queue = queue_id, .first = first, .last = last, .status = status};
    dvc_send(s, DVW_OP_HOST_DONE, &message.head, sizeof message, NULL, 0);
}

void dvc_host_flush(struct dvc_session *s)
{
    if (s->done.queue_id.value == 0)
        return;
    dvc_host_tell_done(s, s->done.queue_id, s->done.first, s->done.last, CL_SUCCESS);
    s->done.queue_id = DV_OBJECT_ID(0);
}

/* Consecutive small commands are reported together. */
static void note_done(struct dvc_session *s, const struct dvc_host_job *job, cl_int status)
{
    struct dv_object_id queue_id = job->queue->object.id;

    if (s->done.queue_id.value != queue_id.value || s->done.last + 1 != job->number ||
        s->done.bytes > DONE_TOGETHER_BYTES || s->done.last - s->done.first + 1 >= DONE_TOGETHER)
        dvc_host_flush(s);
    if (status != CL_SUCCESS) {
        dvc_host_flush(s);
        dvc_host_tell_done(s, queue_id, job->number, job->number, status);
        return;
    }
    if (s->done.queue_id.value == 0) {
        s->done.queue_id = queue_id;
        s->done.first = job->number;
        s->done.bytes = 0;
    }
    s->done.last = job->number;
    s->done.bytes += job->region.bytes;
}

static void unlink_job(struct dvc_session *s, struct dvc_host_job **link)
{
    struct dvc_host_job *job = *link;

    *link = job->next;
    if (!job->next)
        s->host_jobs_end = link;
}

/* Returns whether the job was listed. If not, another thread has taken it. */
static bool unlist_job(struct dvc_session *s, const struct dvc_host_job *job)
{
    struct dvc_host_job **link = &s->host_jobs;

    pthread_mutex_lock(&s->host_lock);
    while (*link && *link != job)
        link = &(*link)->next;
    bool found = *link;
    if (found)
        unlink_job(s, link);
    pthread_mutex_unlock(&s->host_lock);
    return found;
}

static void free_job(struct dvc_host_job *job)
{
    if (job->event)
        dvc_event_unuse(job->event);
    dvc_mem_unuse(job->mem);
    dvc_queue_unuse(job->queue);
    free(job);
}

void dvc_host_ready(struct dvc_session *s, struct dv_object_id queue_id, uint64_t number, bool cancelled)
{
    struct dvc_host_job **link, *job = NULL;

    pthread_mutex_lock(&s->host_lock);
    for (link = &s->host_jobs; *link; link = &(*link)->next)
        if ((*link)->queue->object.id.value == queue_id.value && (*link)->number == number)
            break;
    /* A read stays listed until its bytes have landed: writes look for it there. */
    if ((job = *link) && (job->direction == DV_TO_DEVICE || cancelled))
        unlink_job(s, link);
    pthread_mutex_unlock(&s->host_lock);
    if (job && cancelled)
        free_job(job);
    if (!job || cancelled)
        return;
    cl_ulong start = job->event ? dv_now() : 0;
    cl_int status = dvc_move(job->queue, job->mem, job->direction, &job->region, job->host);
    dvc_host_stamp(job->event, start);
    if (job->direction == DV_FROM_DEVICE)
        unlist_job(s, job);
    note_done(s, job, status);
    free_job(job);
}

void dvc_host_give_up(struct dvc_session *s)
{
    pthread_mutex_lock(&s->host_lock);
    struct dvc_host_job *job = s->host_jobs, *next;
    s->host_jobs = NULL;
    s->host_jobs_end = &s->host_jobs;
    pthread_mutex_unlock(&s->host_lock);
    for (; job; job = next) {
        next = job->next;
        free_job(job);
    }
}

/* Whether a pending read will still write into this memory. */
bool dvc_host_awaits_read(struct dvc_session *s, const uint8_t *from, size_t bytes)
{
    bool found = false;

    pthread_mutex_lock(&s->host_lock);
    for (struct dvc_host_job *job = s->host_jobs; job && !found; job = job->next) {
        const uint8_t *start = job->host + job->region.host_offset;
        found = job->direction == DV_FROM_DEVICE && from < start + dvc_region_host_span(&job->region) &&
                start < from + bytes;
    }
    pthread_mutex_unlock(&s->host_lock);
    return found;
}

cl_int dvc_host_enqueue(const struct dvc_transfer *t)
{
    struct dvc_queue *queue = t->queue;
    struct dvc_session *s = queue->object.session;
    struct dvw_host message = {.by_helper = 1};
    struct dvc_host_job *job = malloc(sizeof *job);

    if (!job)
        return CL_OUT_OF_HOST_MEMORY;
    *job = (struct dvc_host_job){.queue = queue,
                                 .mem = t->mem,
                                 .event = t->event,
                                 .number = queue->enqueued + 1,
                                 .direction = t->direction,
                                 .region = *t->region,
                                 .host = t->host};
    dvc_object_use(&queue->object);
    dvc_object_use(&t->mem->object);
    if (t->event)
        dvc_object_use(&t->event->object);
    pthread_mutex_lock(&s->host_lock);
    *s->host_jobs_end = job;
    s->host_jobs_end = &job->next;
    pthread_mutex_unlock(&s->host_lock);
    cl_int error = dvc_enqueue_locked(queue, DVW_OP_HOST, &message.head, sizeof message, NULL, 0, t->wait_count,
                                      t->waits, t->event);
    /* the worker has not received it; the caller still has its objects */
    if (error != CL_SUCCESS && unlist_job(s, job))
        free_job(job);
    return error;
}
