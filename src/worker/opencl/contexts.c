/* Contexts and queues: created by messages, closed when nothing uses them any more. */
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/worker/opencl/executor.h"

static void CL_CALLBACK context_error(const char *text, const void *info, size_t bytes, void *user)
{
    struct dvk_context *context = user;
    dv_warning("vendor: %s", text ? text : "error");
    dvk_runtime_upcall(context->worker->runtime,
                       &(struct dv_upcall){.kind = DV_UPCALL_CONTEXT,
                                           .a = context->id.value,
                                           .b = (uint64_t)(int64_t)CL_OUT_OF_RESOURCES},
                       true);
}

static struct dvk_context *new_context(struct dvk_worker *w)
{
    struct dvk_context *context = w->idle_contexts;

    if (!context)
        return calloc(1, sizeof *context);
    w->idle_contexts = context->next_idle;
    *context = (struct dvk_context){0};
    return context;
}

/* A context is never freed: the vendor's callbacks and commands that end late may still refer to it. */
static void idle_context(struct dvk_worker *w, struct dvk_context *context)
{
    context->next_idle = w->idle_contexts;
    w->idle_contexts = context;
}

/* Counts the memory that the vendor itself keeps on the device for a context, as configured. */
static cl_int count_context(struct dvk_context *context)
{
    struct dvk_runtime *runtime = context->worker->runtime;

    for (uint32_t i = 0; i < context->device_count; i++) {
        uint32_t device = context->devices[i]->index;
        uint64_t bytes = runtime->start->devices[device].per_context_bytes;
        if (bytes == 0)
            continue;
        if (dvk_account_claim(runtime, device, bytes) < 0 || !dvk_account_use(runtime, device, bytes, true))
            return CL_OUT_OF_RESOURCES;
        context->counted_bytes[i] = bytes;
    }
    return CL_SUCCESS;
}

/* Whether the tenant's request can be guaranteed on a device that the program starts to use. */
static cl_int join_device(struct dvk_worker *w, const struct dvk_device *device)
{
    struct dvk_runtime *runtime = w->runtime;

    if (!runtime->lease || !runtime->start->devices[device->index].leased)
        return CL_SUCCESS;
    return dv_lease_join(runtime->lease, device->index) < 0 ? CL_DEVICE_NOT_AVAILABLE : CL_SUCCESS;
}

/* A context of one device will use that device. With several devices, a program often uses only one, which is known
 * when it creates a queue. */
static cl_int join_context(struct dvk_context *context)
{
    for (uint32_t i = 1; i < context->device_count; i++)
        if (context->devices[i]->index != context->devices[0]->index)
            return CL_SUCCESS;
    return join_device(context->worker, context->devices[0]);
}

static void close_context(struct dvk_context *context)
{
    if (context->mover)
        clReleaseCommandQueue(context->mover);
    if (context->vendor)
        clReleaseContext(context->vendor);
    for (uint32_t i = 0; i < context->device_count; i++)
        if (context->counted_bytes[i])
            dvk_account_drop(context->worker->runtime, context->devices[i]->index, context->counted_bytes[i]);
    dvk_origin_unref(context->origin);
    context->origin = NULL;
    idle_context(context->worker, context);
}

/* The client may release a context that its objects still need. */
void dvk_context_unref(struct dvk_context *context)
{
    if (context && --context->refs == 0)
        close_context(context);
}

int32_t dvk_on_create_context(struct dvk_worker *w, const struct dvw_create_context *m, const uint8_t *tail,
                              size_t tail_bytes, struct dvk_reply *reply)
{
    cl_device_id devices[DV_MAX_DEVICES];
    struct dvk_context *context;
    cl_int error;

    if (m->device_count == 0 || m->device_count > DV_MAX_DEVICES || tail_bytes / 4 < m->device_count)
        return CL_INVALID_VALUE;
    context = new_context(w);
    if (!context)
        return CL_OUT_OF_HOST_MEMORY;
    context->refs = 1;
    context->worker = w;
    context->id = m->id;
    context->device_count = m->device_count;
    for (uint32_t i = 0; i < m->device_count; i++) {
        struct dv_object_id id;
        memcpy(&id, tail + 4 * i, 4);
        context->devices[i] = dvk_find_device(w, id);
        if (!context->devices[i] || context->devices[i]->platform != context->devices[0]->platform) {
            idle_context(w, context);
            return CL_INVALID_DEVICE;
        }
        devices[i] = context->devices[i]->vendor;
    }
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)context->devices[0]->platform, 0};
    error = join_context(context);
    if (error == CL_SUCCESS)
        error = count_context(context);
    if (error == CL_SUCCESS)
        context->vendor = clCreateContext(properties, m->device_count, devices, context_error, context, &error);
    if (error == CL_SUCCESS)
        error = dvk_put(w, DV_KIND_CONTEXT, m->id, context);
    if (error != CL_SUCCESS) {
        close_context(context);
        return error;
    }
    context->origin = dvk_origin_of_new(w, &m->head.record, NULL);
    for (uint32_t i = 0; i < m->device_count; i++)
        atomic_fetch_or(&w->runtime->header->device_mask, UINT64_C(1) << context->devices[i]->index);
    return CL_SUCCESS;
}

int32_t dvk_on_create_queue(struct dvk_worker *w, const struct dvw_create_queue *m, const uint8_t *tail,
                            size_t tail_bytes, struct dvk_reply *reply)
{
    struct dvk_context *context = dvk_find_context(w, m->context);
    struct dvk_device *device = dvk_find_device(w, m->device);
    struct dvk_queue *queue;
    cl_int error;

    if (!context)
        return CL_INVALID_CONTEXT;
    if (!device)
        return CL_INVALID_DEVICE;
    error = join_device(w, device);
    if (error != CL_SUCCESS)
        return error;
    queue = calloc(1, sizeof *queue);
    if (!queue)
        return CL_OUT_OF_HOST_MEMORY;
    queue->id = m->id;
    queue->context = context;
    queue->device = device;
    queue->profiling = m->profiling;
    /* The graph implements out-of-order queues. The vendor's queue runs its commands in the order given, so a command
     * never needs an event to follow its predecessor. */
    queue->vendor =
        clCreateCommandQueue(context->vendor, device->vendor, m->profiling ? CL_QUEUE_PROFILING_ENABLE : 0, &error);
    if (error == CL_SUCCESS &&
        dvk_graph_queue_init(&w->runtime->graph, &queue->graph, m->id.value, !m->out_of_order) < 0)
        error = CL_OUT_OF_RESOURCES;
    if (error == CL_SUCCESS)
        error = dvk_put(w, DV_KIND_QUEUE, m->id, queue);
    if (error != CL_SUCCESS) {
        if (queue->vendor)
            clReleaseCommandQueue(queue->vendor);
        dvk_graph_queue_fini(&w->runtime->graph, &queue->graph);
        free(queue);
        return error;
    }
    context->refs++;
    queue->origin = dvk_origin_of_new(w, &m->head.record, context->origin);
    if (!w->follows)
        atomic_store(&queue->graph.slot->completed, 0);
    if (w->runtime->start->devices[device->index].leased)
        queue->graph.gate = &w->runtime->gates[device->index];
    queue->clock_offset_ns = m->profiling ? dvk_clock_offset(queue->vendor) : 0;
    return CL_SUCCESS;
}

void dvk_queue_close(struct dvk_worker *w, struct dvk_queue *queue)
{
    dvk_graph_queue_fini(&w->runtime->graph, &queue->graph);
    clReleaseCommandQueue(queue->vendor);
    if (queue->lane)
        clReleaseCommandQueue(queue->lane);
    dvk_context_unref(queue->context);
    dvk_origin_unref(queue->origin);
    free(queue);
}

bool dvk_queue_is_idle(const struct dvk_queue *queue)
{
    return TAILQ_EMPTY(&queue->graph.active) && queue->graph.detached == 0 && TAILQ_EMPTY(&queue->graph.main.flight) &&
           TAILQ_EMPTY(&queue->graph.lane.flight);
}

void dvk_close_released_queues(struct dvk_worker *w)
{
    for (struct dvk_queue **link = &w->released_queues; *link;) {
        struct dvk_queue *queue = *link;
        if (!dvk_queue_is_idle(queue)) {
            link = &queue->next_released;
            continue;
        }
        *link = queue->next_released;
        atomic_fetch_sub(&w->runtime->graph.attention, 1);
        dvk_queue_close(w, queue);
    }
}
