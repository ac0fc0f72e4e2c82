/* Events: their state is in shared memory, published by the worker. */
#include <stdlib.h>
#include <string.h>

#include "src/client/opencl/enqueue.h"

#define SPIN_NS (20 * DV_NS_PER_US)

struct dvc_event *dvc_event_create(struct dvc_context *context, struct dvc_queue *queue, cl_command_type command)
{
    struct dvc_session *s = context->object.session;
    struct dvc_event *event = dvc_session_alive(s) ? dvc_object_create(DV_KIND_EVENT, s) : NULL;

    if (!event)
        return NULL;
    event->context = context;
    event->queue = queue;
    event->command = command;
    event->slot = (struct dv_shm_event *)(s->shm + DV_SHM_EVENT_OFFSET) + (event->object.id.value - 1);
    pthread_mutex_init(&event->lock, NULL);
    dvc_object_use(&context->object);
    atomic_store(&event->slot->notify, 0);
    atomic_store(&event->slot->waiters, 0);
    atomic_store(&event->slot->queued_ns, 0);
    atomic_store(&event->slot->submit_ns, 0);
    atomic_store(&event->slot->start_ns, 0);
    atomic_store(&event->slot->end_ns, 0);
    if (queue) {
        dvc_object_use(&queue->object);
        if (queue->properties & CL_QUEUE_PROFILING_ENABLE)
            atomic_store(&event->slot->queued_ns, dv_now());
    }
    atomic_store(&event->slot->status, queue ? CL_QUEUED : CL_SUBMITTED);
    return event;
}

static void event_destroy(struct dvc_event *event)
{
    struct dvc_context *context = event->context;
    struct dvc_queue *queue = event->queue;

    if (!queue && !event->user_set) { /* it can no longer be set: the worker must not wait for it */
        struct dvw_set_user_event message = {.event = event->object.id.value,
                                             .status = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST};
        dvc_send(event->object.session, DVW_OP_SET_USER_EVENT, &message.head, sizeof message, NULL, 0);
    }
    dvc_object_free(&event->object);
    if (queue)
        dvc_queue_unuse(queue);
    dvc_context_unuse(context);
}

cl_int dvc_event_retain(struct dvc_event *event)
{
    atomic_fetch_add(&event->object.count, 1);
    return CL_SUCCESS;
}

void dvc_event_unuse(struct dvc_event *event)
{
    if (atomic_fetch_sub(&event->object.count, DV_COUNT_USE) == DV_COUNT_USE)
        event_destroy(event);
}

cl_int dvc_event_release(struct dvc_event *event)
{
    if (dvc_object_refs(&event->object) == 0)
        return CL_INVALID_EVENT;
    if (atomic_fetch_sub(&event->object.count, 1) == 1)
        event_destroy(event);
    return CL_SUCCESS;
}

static cl_int wait_final(struct dvc_event *event)
{
    struct dvc_session *s = event->object.session;
    dv_ns start = 0;
    cl_int status;

    for (unsigned round = 0;; round++) {
        status = atomic_load_explicit(&event->slot->status, memory_order_acquire);
        if (status <= 0)
            return status;
        dv_cpu_relax();
        if (round % 64 == 63) {
            dv_ns now = dv_now();
            if (!start)
                start = now;
            else if (now - start > SPIN_NS)
                break;
        }
    }
    atomic_fetch_add(&event->slot->waiters, 1);
    while ((status = atomic_load(&event->slot->status)) > 0 && dvc_session_alive(s))
        dvc_session_wait(s, (_Atomic uint32_t *)&event->slot->status, (uint32_t)status);
    atomic_fetch_sub(&event->slot->waiters, 1);
    return status > 0 ? CL_OUT_OF_RESOURCES : status;
}

cl_int dvc_event_status(struct dvc_event *event)
{
    struct dvc_session *s = event->object.session;

    if (atomic_load_explicit(&s->forked, memory_order_relaxed))
        return CL_OUT_OF_RESOURCES;
    cl_int status = atomic_load_explicit(&event->slot->status, memory_order_acquire);
    if (status > 0 && event->queue && event->queue->in_order && event->number &&
        atomic_load(&event->queue->slot->completed) >= event->number)
        status = wait_final(event); /* its queue has completed it: the status follows in moments */
    if (status > 0 && !dvc_session_check(s))
        return CL_OUT_OF_RESOURCES;
    if (status <= 0)
        dvc_flush_output(s);
    return status;
}

cl_int dvc_event_wait(struct dvc_event *event)
{
    struct dvc_session *s = event->object.session;

    if (atomic_load_explicit(&s->forked, memory_order_relaxed))
        return CL_OUT_OF_RESOURCES;
    cl_int status = wait_final(event);
    dvc_flush_output(s);
    return status;
}

void dvc_event_complete_here(struct dvc_event *event, cl_ulong start_ns)
{
    struct dv_shm_event *slot = event->slot;

    if (event->queue && event->queue->properties & CL_QUEUE_PROFILING_ENABLE) {
        atomic_store(&slot->submit_ns, start_ns);
        atomic_store(&slot->start_ns, start_ns);
        atomic_store(&slot->end_ns, dv_now());
    }
    atomic_store(&slot->status, CL_COMPLETE);
}

cl_int dvc_event_check_profiling(struct dvc_event *event)
{
    if (!event->queue || !(event->queue->properties & CL_QUEUE_PROFILING_ENABLE) ||
        dvc_event_status(event) != CL_COMPLETE)
        return CL_PROFILING_INFO_NOT_AVAILABLE;
    return CL_SUCCESS;
}

cl_int dvc_check_waits(struct dvc_context *context, cl_uint count, const cl_event *list)
{
    if ((count == 0) != (list == NULL))
        return CL_INVALID_EVENT_WAIT_LIST;
    if (count > DV_MAX_WAITS)
        return CL_OUT_OF_RESOURCES;
    for (cl_uint i = 0; i < count; i++) {
        struct dvc_event *event = dvc_event_of(list[i]);
        if (!event)
            return CL_INVALID_EVENT_WAIT_LIST;
        if (event->context != context)
            return CL_INVALID_CONTEXT;
    }
    return CL_SUCCESS;
}

cl_int CL_API_CALL dvc_clWaitForEvents(cl_uint num_events, const cl_event *event_list)
{
    struct dvc_context *context = NULL;
    cl_int result = CL_SUCCESS;

    if (num_events == 0 || !event_list)
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < num_events; i++) {
        struct dvc_event *event = dvc_event_of(event_list[i]);
        if (!event)
            return CL_INVALID_EVENT;
        if (context && event->context != context)
            return CL_INVALID_CONTEXT;
        context = event->context;
    }
    for (cl_uint i = 0; i < num_events; i++) {
        struct dvc_event *event = dvc_event_of(event_list[i]);
        if (!event) /* another thread has released it meanwhile */
            result = CL_INVALID_EVENT;
        else if (dvc_event_wait(event) < 0)
            result = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    }
    return result;
}

/* ---- user events ---- */

cl_event CL_API_CALL dvc_clCreateUserEvent(cl_context context, cl_int *errcode_ret)
{
    struct dvc_context *c = dvc_context_of(context);
    struct dvc_event *event = NULL;
    cl_int error = CL_INVALID_CONTEXT;

    if (c) {
        event = dvc_event_create(c, NULL, CL_COMMAND_USER);
        error = event ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
    }
    if (event) {
        struct dvw_create_user_event message = {.event = event->object.id.value, .context = c->object.id};
        error = dvc_send(c->object.session, DVW_OP_CREATE_USER_EVENT, &message.head, sizeof message, NULL, 0);
        if (error != CL_SUCCESS) {
            dvc_event_release(event);
            event = NULL;
        }
    }
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_event)event;
}

cl_int CL_API_CALL dvc_clSetUserEventStatus(cl_event event, cl_int execution_status)
{
    struct dvc_event *e = dvc_event_of(event);

    if (!e || e->queue)
        return CL_INVALID_EVENT;
    if (execution_status > CL_COMPLETE)
        return CL_INVALID_VALUE;
    pthread_mutex_lock(&e->lock);
    bool was_set = e->user_set;
    e->user_set = true;
    pthread_mutex_unlock(&e->lock);
    if (was_set)
        return CL_INVALID_OPERATION;
    struct dvw_set_user_event message = {.event = e->object.id.value, .status = execution_status};
    cl_int error = dvc_send(e->object.session, DVW_OP_SET_USER_EVENT, &message.head, sizeof message, NULL, 0);
    if (error == CL_SUCCESS)
        wait_final(e); /* so that later queries see the new status */
    return error;
}

/* ---- callbacks ---- */

static void run_callback(struct dvc_job *job)
{
    struct dvc_event_callback *c = (struct dvc_event_callback *)job;

    c->function((cl_event)c->event, c->status, c->user);
    dvc_event_unuse(c->event); /* the use that registering took */
    free(c);
}

void dvc_event_fire_callbacks(struct dvc_event *event)
{
    cl_int status = dvc_event_status(event);
    struct dvc_event_callback *due = NULL, **due_end = &due;

    pthread_mutex_lock(&event->lock);
    for (struct dvc_event_callback **link = &event->callbacks; *link;) {
        struct dvc_event_callback *c = *link;
        if (status > c->when) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        /* report an error, or the requested state, which has been passed */
        c->status = status < 0 ? status : c->when;
        c->next = NULL;
        *due_end = c;
        due_end = &c->next;
    }
    pthread_mutex_unlock(&event->lock);
    while (due) {
        struct dvc_event_callback *c = due;
        due = c->next;
        dvc_callback_post(&c->job, run_callback); /* c may be freed from here on */
    }
}

cl_int CL_API_CALL dvc_clSetEventCallback(cl_event event, cl_int command_exec_callback_type,
                                          void(CL_CALLBACK *pfn_notify)(cl_event, cl_int, void *), void *user_data)
{
    struct dvc_event *e = dvc_event_of(event);

    if (!e)
        return CL_INVALID_EVENT;
    if (!pfn_notify || command_exec_callback_type < CL_COMPLETE || command_exec_callback_type > CL_SUBMITTED)
        return CL_INVALID_VALUE;
    if (atomic_load_explicit(&e->object.session->forked, memory_order_relaxed))
        return CL_OUT_OF_RESOURCES;
    struct dvc_event_callback *c = dvc_callbacks_start() ? malloc(sizeof *c) : NULL;
    if (!c)
        return CL_OUT_OF_HOST_MEMORY;
    *c = (struct dvc_event_callback){
        .event = e, .when = command_exec_callback_type, .function = pfn_notify, .user = user_data};
    pthread_mutex_lock(&e->lock);
    struct dvc_event_callback **end = &e->callbacks;
    while (*end)
        end = &(*end)->next;
    *end = c;
    dvc_object_use(&e->object);
    pthread_mutex_unlock(&e->lock);
    atomic_store(&e->slot->notify, 1);
    if (dvc_event_status(e) <= command_exec_callback_type)
        dvc_event_fire_callbacks(e);
    return CL_SUCCESS;
}
