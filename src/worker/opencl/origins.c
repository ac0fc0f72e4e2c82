/* What made the objects of the session: see history.h. */
#include <stdlib.h>
#include <string.h>

#include "src/worker/opencl/executor.h"

struct dvk_origin *dvk_origin_of_new(struct dvk_worker *w, const struct dv_record *message, struct dvk_origin *from)
{
    struct dvk_origin *origin = dvk_origin_new(&w->history);

    dvk_kept_needs(dvk_origin_keep(origin, message, w->runtime->graph.arrivals, NULL, 0), from);
    return origin;
}

void dvk_mem_set_origin(struct dvk_mem *mem, const struct dv_record *message, struct dvk_origin *from)
{
    mem->origin = dvk_origin_of_new(mem->worker, message, from);
    if (mem->origin)
        mem->origin->object = mem;
}

/* The source may be gone when it is needed: the copy is made like it. Its arguments are kept elsewhere. */
struct dvk_origin *dvk_origin_of_clone(struct dvk_worker *w, const struct dvk_kernel *source, struct dv_object_id id)
{
    const struct dvk_kept *made = source->origin ? STAILQ_FIRST(&source->origin->kept) : NULL;

    if (!made) {
        w->history.is_incomplete = true;
        return NULL;
    }
    const struct dvw_create_kernel *old = (const void *)made->message;
    struct dvw_create_kernel *message = malloc(old->head.record.bytes);
    if (!message) {
        w->history.is_incomplete = true;
        return NULL;
    }
    memcpy(message, old, old->head.record.bytes);
    message->id = id;
    struct dvk_origin *origin = dvk_origin_of_new(w, &message->head.record, made->needs ? made->needs[0] : NULL);
    free(message);
    return origin;
}

static struct dvk_origin *origin_of(enum dv_object_kind kind, void *object)
{
    switch (kind) {
    case DV_KIND_CONTEXT:
        return ((struct dvk_context *)object)->origin;
    case DV_KIND_QUEUE:
        return ((struct dvk_queue *)object)->origin;
    case DV_KIND_MEM:
        return ((struct dvk_mem *)object)->origin;
    case DV_KIND_SAMPLER:
        return ((struct dvk_sampler *)object)->origin;
    case DV_KIND_PROGRAM:
        return ((struct dvk_program *)object)->origin;
    case DV_KIND_KERNEL:
        return ((struct dvk_kernel *)object)->origin;
    default:
        return NULL;
    }
}

void dvk_origin_note_release(struct dvk_worker *w, enum dv_object_kind kind, void *object,
                             const struct dv_record *message)
{
    struct dvk_origin *origin = origin_of(kind, object);

    if (origin)
        dvk_origin_keep(origin, message, w->runtime->graph.arrivals, NULL, 0);
}
