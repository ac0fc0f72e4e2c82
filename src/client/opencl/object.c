/* The records behind handles. Each kind has its own range of address space, which is never unmapped. So any pointer can
 * be checked safely, and a released handle still leads the loader to divvy's dispatch table, whose functions report it
 * as invalid. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "src/client/opencl/objects.h"

#define ALIGNED(bytes) (((bytes) + 63) & ~(size_t)63)

struct stretch {
    size_t object_bytes;
    size_t capacity;
    char *base;
    _Atomic size_t used;
    struct dvc_object *free_first; /* oldest first, so that a handle is not reused soon */
    struct dvc_object *free_last;
    size_t free_count;
    pthread_mutex_t lock;
};

#define REUSE_AFTER 64 /* freed objects kept before one is reused */

static struct stretch stretches[DV_KIND_COUNT] = {
    [DV_KIND_PLATFORM] = {ALIGNED(sizeof(struct dvc_platform)), 64},
    [DV_KIND_DEVICE] = {ALIGNED(sizeof(struct dvc_device)), 65536},
    [DV_KIND_CONTEXT] = {ALIGNED(sizeof(struct dvc_context)), 1 << 20},
    [DV_KIND_QUEUE] = {ALIGNED(sizeof(struct dvc_queue)), DV_SHM_QUEUE_COUNT - 1},
    [DV_KIND_MEM] = {ALIGNED(sizeof(struct dvc_mem)), 4 << 20},
    [DV_KIND_SAMPLER] = {ALIGNED(sizeof(struct dvc_sampler)), 1 << 20},
    [DV_KIND_PROGRAM] = {ALIGNED(sizeof(struct dvc_program)), 1 << 20},
    [DV_KIND_KERNEL] = {ALIGNED(sizeof(struct dvc_kernel)), 1 << 20},
    [DV_KIND_EVENT] = {ALIGNED(sizeof(struct dvc_event)), DV_SHM_EVENT_COUNT - 1},
};
static pthread_once_t stretches_made = PTHREAD_ONCE_INIT;

static void make_stretches(void)
{
    for (int kind = 1; kind < DV_KIND_COUNT; kind++) {
        struct stretch *s = &stretches[kind];
        pthread_mutex_init(&s->lock, NULL);
        void *memory = MAP_FAILED;
        while (s->capacity >= 64) { /* smaller where the address space is limited */
            memory = mmap(NULL, s->object_bytes * s->capacity, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (memory != MAP_FAILED)
                break;
            s->capacity /= 4;
        }
        s->base = memory == MAP_FAILED ? NULL : memory;
        if (!s->base)
            s->capacity = 0;
    }
}

/* An event or queue whose last command still runs cannot be reused: the worker still writes to the slot of the same
 * number. */
static bool rests_enough(enum dv_object_kind kind, struct dvc_object *object)
{
    if (!dvc_session_alive(object->session))
        return true;
    if (kind == DV_KIND_EVENT)
        return atomic_load(&((struct dvc_event *)object)->slot->status) <= 0;
    if (kind == DV_KIND_QUEUE)
        return atomic_load(&((struct dvc_queue *)object)->slot->completed) >= ((struct dvc_queue *)object)->enqueued;
    return true;
}

static struct dvc_object *take_free(enum dv_object_kind kind, struct stretch *s)
{
    if (s->free_count <= REUSE_AFTER)
        return NULL;
    for (int tries = 0; tries < 8 && s->free_first; tries++) {
        struct dvc_object *object = s->free_first;
        s->free_first = object->next_free;
        if (!s->free_first)
            s->free_last = NULL;
        if (rests_enough(kind, object)) {
            s->free_count--;
            return object;
        }
        object->next_free = NULL; /* to the end of the line */
        if (s->free_last)
            s->free_last->next_free = object;
        else
            s->free_first = object;
        s->free_last = object;
    }
    return NULL;
}

static const struct _cl_icd_dispatch *dispatch;

void dvc_object_set_dispatch(const struct _cl_icd_dispatch *given)
{
    dispatch = given;
}

void *dvc_object_create(enum dv_object_kind kind, struct dvc_session *session)
{
    struct stretch *s = &stretches[kind];
    uint32_t id;

    pthread_once(&stretches_made, make_stretches);
    pthread_mutex_lock(&s->lock);
    struct dvc_object *object = take_free(kind, s);
    if (object) {
        id = object->id.value;
    } else {
        size_t used = atomic_load(&s->used);
        if (used == s->capacity) {
            pthread_mutex_unlock(&s->lock);
            return NULL;
        }
        object = (struct dvc_object *)(s->base + used * s->object_bytes);
        id = (uint32_t)used + 1;
        atomic_store(&s->used, used + 1);
    }
    pthread_mutex_unlock(&s->lock);
    memset((char *)object + sizeof *object, 0, s->object_bytes - sizeof *object);
    object->dispatch = dispatch;
    object->id = DV_OBJECT_ID(id);
    object->session = session;
    object->next_free = NULL;
    atomic_store(&object->count, 1);
    atomic_store(&object->kind, kind);
    return object;
}

void dvc_object_free(struct dvc_object *object)
{
    struct stretch *s = &stretches[atomic_load(&object->kind)];

    atomic_store(&object->kind, DV_KIND_NONE);
    object->next_free = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->free_last)
        s->free_last->next_free = object;
    else
        s->free_first = object;
    s->free_last = object;
    s->free_count++;
    pthread_mutex_unlock(&s->lock);
}

void *dvc_object_find(enum dv_object_kind kind, const void *handle)
{
    struct stretch *s = &stretches[kind];
    size_t offset = (size_t)((const char *)handle - s->base);

    if (!s->base || (const char *)handle < s->base ||
        offset >= atomic_load_explicit(&s->used, memory_order_relaxed) * s->object_bytes || offset % s->object_bytes)
        return NULL;
    struct dvc_object *object = (struct dvc_object *)(s->base + offset);
    return atomic_load_explicit(&object->kind, memory_order_acquire) == kind ? object : NULL;
}

uint32_t dvc_object_most_id(enum dv_object_kind kind)
{
    return (uint32_t)atomic_load(&stretches[kind].used);
}

void *dvc_object_by_id(enum dv_object_kind kind, struct dv_object_id id)
{
    struct stretch *s = &stretches[kind];

    if (id.value == 0 || id.value > atomic_load(&s->used))
        return NULL;
    return dvc_object_find(kind, s->base + (size_t)(id.value - 1) * s->object_bytes);
}

void dvc_object_after_fork(void)
{
    for (int kind = 1; kind < DV_KIND_COUNT; kind++)
        pthread_mutex_init(&stretches[kind].lock, NULL);
}
