/* Samplers, and the release of every kind of object. */
#include <stdlib.h>

#include "src/worker/opencl/executor.h"

int32_t dvk_on_create_sampler(struct dvk_worker *w, const struct dvw_create_sampler *m, const uint8_t *tail,
                              size_t tail_bytes, struct dvk_reply *reply)
{
    struct dvk_context *context = dvk_find_context(w, m->context);
    cl_int error;

    if (!context)
        return CL_INVALID_CONTEXT;
    struct dvk_sampler *sampler = calloc(1, sizeof *sampler);
    if (!sampler)
        return CL_OUT_OF_HOST_MEMORY;
    sampler->refs = 1;
    sampler->id = m->id;
    sampler->vendor = clCreateSampler(context->vendor, m->normalized, m->addressing, m->filter, &error);
    if (error == CL_SUCCESS)
        error = dvk_put(w, DV_KIND_SAMPLER, m->id, sampler);
    if (error != CL_SUCCESS) {
        if (sampler->vendor)
            clReleaseSampler(sampler->vendor);
        free(sampler);
        return error;
    }
    sampler->origin = dvk_origin_of_new(w, &m->head.record, context->origin);
    return CL_SUCCESS;
}

static void release_object(struct dvk_worker *w, enum dv_object_kind kind, void *object)
{
    switch (kind) {
    case DV_KIND_MEM:
        dvk_mem_release(object);
        break;
    case DV_KIND_SAMPLER:
        dvk_sampler_unref(object);
        break;
    case DV_KIND_KERNEL:
        dvk_kernel_unref(object);
        break;
    case DV_KIND_PROGRAM:
        dvk_program_free(object);
        break;
    case DV_KIND_QUEUE: {
        struct dvk_queue *queue = object;
        if (dvk_queue_is_idle(queue)) {
            dvk_queue_close(w, queue);
            break;
        }
        queue->next_released = w->released_queues;
        w->released_queues = queue;
        atomic_fetch_add(&w->runtime->graph.attention, 1);
        break;
    }
    case DV_KIND_CONTEXT:
        dvk_context_unref(object);
        break;
    case DV_KIND_DEVICE:
        /* A sub-device is kept as long as the process: PoCL 3.1 crashes now and then when one is
         * released right after its last event. */
        break;
    default:
        break;
    }
}

void dvk_on_release(struct dvk_worker *w, const struct dvw_release *m, const uint8_t *tail, size_t tail_bytes)
{
    if (m->kind <= DV_KIND_NONE || m->kind >= DV_KIND_COUNT)
        return;
    void *object = dvk_take(w, m->kind, m->id);
    if (!object)
        return;
    dvk_origin_note_release(w, m->kind, object, &m->head);
    release_object(w, m->kind, object);
}
