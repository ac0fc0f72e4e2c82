/* Objects of the session: created and released by messages, found by the client's ids. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "src/base/cleanup.h"
#include "src/base/log.h"
#include "src/wire/session/opencl_pixels.h"
#include "src/worker/opencl/executor.h"
#include "src/worker/opencl/residency.h"

/* ---- tables ---- */

void *dvk_find(struct dvk_worker *w, enum dv_object_kind kind, uint32_t id)
{
    const struct dvk_table *table = &w->tables[kind];
    return id < table->capacity ? table->slots[id] : NULL;
}

int dvk_put(struct dvk_worker *w, enum dv_object_kind kind, uint32_t id, void *object)
{
    struct dvk_table *table = &w->tables[kind];

    if (id == 0 || id >= DV_MAX_OBJECT_ID)
        return CL_INVALID_VALUE;
    if (id >= table->capacity) {
        uint32_t capacity = table->capacity ? table->capacity : 64;
        while (capacity <= id)
            capacity *= 2;
        void **grown = realloc(table->slots, capacity * sizeof *grown);
        if (!grown)
            return CL_OUT_OF_HOST_MEMORY;
        memset(grown + table->capacity, 0, (capacity - table->capacity) * sizeof *grown);
        table->slots = grown;
        table->capacity = capacity;
    }
    if (table->slots[id])
        return CL_INVALID_VALUE; /* the client named two objects alike */
    table->slots[id] = object;
    return CL_SUCCESS;
}

void *dvk_take(struct dvk_worker *w, enum dv_object_kind kind, uint32_t id)
{
    void *object = dvk_find(w, kind, id);
    if (object)
        w->tables[kind].slots[id] = NULL;
    return object;
}

/* ---- devices ---- */

int32_t dvk_on_list_devices(struct dvk_worker *w, const struct dvw_list_devices *m,
                            const uint8_t *tail, size_t tail_bytes, struct dvk_reply *reply)
{
    struct dv_wire_device list[DV_MAX_DEVICES];

    memset(list, 0, sizeof list);
    for (uint32_t i = 0; i < w->device_count; i++) {
        struct dvk_device *device = w->devices[i];
        cl_ulong max_alloc = 0;
        cl_uint align_bits = 0;
        clGetDeviceInfo(device->vendor, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof max_alloc, &max_alloc,
                        NULL);
        uint64_t quota = w->runtime->start->devices[i].memory_bytes;
        if (quota && max_alloc > quota)
            max_alloc = quota;
        clGetDeviceInfo(device->vendor, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof align_bits,
                        &align_bits, NULL);
        list[i] = (struct dv_wire_device){.id = i + 1,
                                          .platform = device->platform_index,
                                          .type = device->type,
                                          .unified = device->unified,
                                          .number = w->runtime->start->devices[i].number,
                                          .max_alloc_bytes = max_alloc,
                                          .base_align = align_bits / 8};
        snprintf(list[i].name, sizeof list[i].name, "%s", device->name);
        clGetPlatformInfo(device->platform, CL_PLATFORM_NAME, sizeof list[i].platform_name - 1,
                          list[i].platform_name, NULL);
    }
    dvk_reply_put(reply, list, w->device_count * sizeof list[0]);
    return CL_SUCCESS;
}

int32_t dvk_on_create_sub_devices(struct dvk_worker *w, const struct dvw_create_sub_devices *m,
                                  const uint8_t *tail, size_t tail_bytes, struct dvk_reply *reply)
{
    enum { MOST = 64 };
    struct dvk_device *device = dvk_find_device(w, m->device);
    cl_device_partition_property properties[MOST];
    cl_device_id made[MOST];
    cl_uint count = 0;

    if (!device)
        return CL_INVALID_DEVICE;
    if (m->property_count == 0 || m->property_count > MOST || m->id_count > MOST ||
        tail_bytes < 8ull * m->property_count + 4ull * m->id_count)
        return CL_INVALID_VALUE;
    for (uint32_t i = 0; i < m->property_count; i++) {
        uint64_t value;
        memcpy(&value, tail + 8 * i, 8);
        properties[i] = (cl_device_partition_property)value;
    }
    if (properties[m->property_count - 1] != 0)
        return CL_INVALID_VALUE;
    cl_int error = clCreateSubDevices(device->vendor, properties, 0, NULL, &count);
    if (error == CL_SUCCESS && count > MOST)
        error = CL_OUT_OF_RESOURCES;
    if (error != CL_SUCCESS || m->id_count == 0) {
        dvk_reply_put(reply, &count, sizeof count);
        return error;
    }
    if (m->id_count < count)
        return CL_INVALID_VALUE;
    error = clCreateSubDevices(device->vendor, properties, count, made, &count);
    if (error != CL_SUCCESS)
        return error;
    for (cl_uint i = 0; i < count; i++) {
        struct dvk_device *sub = calloc(1, sizeof *sub);
        uint32_t id;
        memcpy(&id, tail + 8 * m->property_count + 4 * i, sizeof id);
        if (sub) {
            *sub = *device;
            sub->vendor = made[i];
            sub->is_sub = true;
        }
        if (!sub || dvk_put(w, DV_KIND_DEVICE, id, sub) != CL_SUCCESS) {
            free(sub);
            return CL_OUT_OF_HOST_MEMORY;
        }
    }
    dvk_reply_put(reply, &count, sizeof count);
    return CL_SUCCESS;
}

/* ---- contexts and queues ---- */

#define FREED_SOON_BYTES (UINT64_C(1) << 20)

static void CL_CALLBACK context_error(const char *text, const void *info, size_t bytes, void *user)
{
    struct dvk_context *context = user;
    dv_warning("vendor: %s", text ? text : "error");
    dv_runtime_upcall(context->worker->runtime,
                      &(struct dv_upcall){.kind = DV_UPCALL_CONTEXT,
                                          .a = context->id,
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

/* Never freed, for the vendor's callbacks and commands that end late may still name it. */
static void idle_context(struct dvk_worker *w, struct dvk_context *context)
{
    context->next_idle = w->idle_contexts;
    w->idle_contexts = context;
}

/* What the vendor itself keeps on the device for a context, as configured. */
static cl_int count_context(struct dvk_context *context)
{
    struct dv_runtime *runtime = context->worker->runtime;

    for (uint32_t i = 0; i < context->device_count; i++) {
        uint32_t device = context->devices[i]->index;
        uint64_t bytes = runtime->start->devices[device].per_context_bytes;
        if (bytes == 0)
            continue;
        if (dv_account_claim(runtime, device, bytes) < 0 ||
            !dv_account_use(runtime, device, bytes, true))
            return CL_OUT_OF_RESOURCES;
        context->counted_bytes[i] = bytes;
    }
    return CL_SUCCESS;
}

/* Whether the tenant's request can be kept on a device that the program comes to use. */
static cl_int join_device(struct dvk_worker *w, const struct dvk_device *device)
{
    struct dv_runtime *runtime = w->runtime;

    if (!runtime->lease || !runtime->start->devices[device->index].leased)
        return CL_SUCCESS;
    return dv_lease_join(runtime->lease, device->index) < 0 ? CL_DEVICE_NOT_AVAILABLE : CL_SUCCESS;
}

/* A context of one device is made to use that. Of several a program often uses one only, and that is
 * known when it makes a queue. */
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
            dv_account_drop(context->worker->runtime, context->devices[i]->index,
                            context->counted_bytes[i]);
    idle_context(context->worker, context);
}

/* The client may release a context that its objects still need. */
static void unref_context(struct dvk_context *context)
{
    if (context && --context->refs == 0)
        close_context(context);
}

int32_t dvk_on_create_context(struct dvk_worker *w, const struct dvw_create_context *m,
                              const uint8_t *tail, size_t tail_bytes, struct dvk_reply *reply)
{
    cl_device_id devices[DV_MAX_DEVICES];
    struct dvk_context *context;
    cl_int error;

    if (m->device_count == 0 || m->device_count > DV_MAX_DEVICES ||
        tail_bytes / 4 < m->device_count)
        return CL_INVALID_VALUE;
    context = new_context(w);
    if (!context)
        return CL_OUT_OF_HOST_MEMORY;
    context->refs = 1;
    context->worker = w;
    context->id = m->id;
    context->device_count = m->device_count;
    for (uint32_t i = 0; i < m->device_count; i++) {
        uint32_t id;
        memcpy(&id, tail + 4 * i, 4);
        context->devices[i] = dvk_find_device(w, id);
        if (!context->devices[i] || context->devices[i]->platform != context->devices[0]->platform) {
            idle_context(w, context);
            return CL_INVALID_DEVICE;
        }
        devices[i] = context->devices[i]->vendor;
    }
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                          (cl_context_properties)context->devices[0]->platform, 0};
    error = join_context(context);
    if (error == CL_SUCCESS)
        error = count_context(context);
    if (error == CL_SUCCESS)
        context->vendor =
            clCreateContext(properties, m->device_count, devices, context_error, context, &error);
    if (error == CL_SUCCESS)
        error = dvk_put(w, DV_KIND_CONTEXT, m->id, context);
    if (error != CL_SUCCESS) {
        close_context(context);
        return error;
    }
    for (uint32_t i = 0; i < m->device_count; i++)
        atomic_fetch_or(&w->runtime->header->device_mask,
                        UINT64_C(1) << context->devices[i]->index);
    return CL_SUCCESS;
}

int32_t dvk_on_create_queue(struct dvk_worker *w, const struct dvw_create_queue *m,
                            const uint8_t *tail, size_t tail_bytes, struct dvk_reply *reply)
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
    /* The graph keeps out-of-order queues itself; the vendor's queue runs what it is given in the
     * order given, so a command never needs an event to follow its predecessor. */
    queue->vendor = clCreateCommandQueue(context->vendor, device->vendor,
                                         m->profiling ? CL_QUEUE_PROFILING_ENABLE : 0, &error);
    if (error == CL_SUCCESS &&
        dv_graph_queue_init(&w->runtime->graph, &queue->graph, m->id, !m->out_of_order) < 0)
        error = CL_OUT_OF_RESOURCES;
    if (error == CL_SUCCESS)
        error = dvk_put(w, DV_KIND_QUEUE, m->id, queue);
    if (error != CL_SUCCESS) {
        if (queue->vendor)
            clReleaseCommandQueue(queue->vendor);
        dv_graph_queue_fini(&w->runtime->graph, &queue->graph);
        free(queue);
        return error;
    }
    context->refs++;
    atomic_store(&queue->graph.slot->completed, 0);
    if (w->runtime->start->devices[device->index].leased)
        queue->graph.gate = &w->runtime->gates[device->index];
    uint64_t offset = m->profiling ? dvk_clock_offset(queue->vendor) : 0;
    dvk_reply_put(reply, &offset, sizeof offset);
    return CL_SUCCESS;
}

static void close_queue(struct dvk_worker *w, struct dvk_queue *queue)
{
    dv_graph_queue_fini(&w->runtime->graph, &queue->graph);
    clReleaseCommandQueue(queue->vendor);
    if (queue->lane)
        clReleaseCommandQueue(queue->lane);
    unref_context(queue->context);
    free(queue);
}

static bool queue_is_idle(const struct dvk_queue *queue)
{
    return TAILQ_EMPTY(&queue->graph.active) && queue->graph.detached == 0 &&
           TAILQ_EMPTY(&queue->graph.main.flight) && TAILQ_EMPTY(&queue->graph.lane.flight);
}

void dvk_close_released_queues(struct dvk_worker *w)
{
    for (struct dvk_queue **link = &w->released_queues; *link;) {
        struct dvk_queue *queue = *link;
        if (!queue_is_idle(queue)) {
            link = &queue->next_released;
            continue;
        }
        *link = queue->next_released;
        atomic_fetch_sub(&w->runtime->graph.attention, 1);
        close_queue(w, queue);
    }
}

/* ---- memory ---- */

/* Objects are counted against the first device of their context. */
static uint32_t home_of(const struct dvk_context *context)
{
    return context->devices[0]->index;
}

static bool count_mem(struct dvk_mem *mem, const struct dvk_context *context, bool claimed)
{
    mem->device = home_of(context);
    mem->counted = dv_account_use(mem->worker->runtime, mem->device, mem->bytes, claimed);
    return mem->counted;
}

void dvk_mem_uncount(struct dvk_mem *mem)
{
    if (mem->counted)
        dv_account_drop(mem->worker->runtime, mem->device, mem->bytes);
    mem->counted = false;
}

/* Nothing of the vendor's uses its bytes any more. */
static void take_back_storage(struct dvk_mem *mem)
{
    if (mem->lent)
        dv_runtime_take_back(mem->worker->runtime, mem->lent, mem->bytes);
    mem->lent = 0;
}

static void CL_CALLBACK mem_gone(cl_mem vendor, void *user)
{
    struct dvk_mem *mem = user;
    take_back_storage(mem); /* before the client hears of it, and puts another object there */
    atomic_fetch_sub(&mem->worker->runtime->header->memory_bytes, mem->bytes);
    dvk_mem_uncount(mem); /* first: whoever hears of it may ask for the same bytes again */
    dv_runtime_upcall(mem->worker->runtime,
                      &(struct dv_upcall){.kind = DV_UPCALL_MEM_GONE, .a = mem->id}, true);
    free(mem);
}

/* The vendor's callback outlives our record of the object, so it has a copy of its own. */
static void tell_when_gone(struct dvk_mem *mem)
{
    struct dvk_mem *copy = malloc(sizeof *copy);
    if (!copy)
        return;
    *copy = *mem;
    mem->told_by_vendor =
        clSetMemObjectDestructorCallback(mem->vendor, mem_gone, copy) == CL_SUCCESS;
    if (!mem->told_by_vendor)
        free(copy);
}

int32_t dvk_on_claim_memory(struct dvk_worker *w, const struct dvw_claim_memory *m,
                            const uint8_t *tail, size_t tail_bytes, struct dvk_reply *reply)
{
    const struct dvk_context *context = dvk_find_context(w, m->context);

    if (!context)
        return CL_INVALID_CONTEXT;
    if (m->bytes > DV_SHM_BYTES_MAX)
        return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return dv_account_claim(w->runtime, home_of(context), m->bytes) < 0
               ? CL_MEM_OBJECT_ALLOCATION_FAILURE
               : CL_SUCCESS;
}

static struct dvk_mem *new_mem(struct dvk_worker *w, uint32_t id)
{
    struct dvk_mem *mem = calloc(1, sizeof *mem);
    if (!mem)
        return NULL;
    mem->refs = 1;
    mem->id = id;
    mem->worker = w;
    return mem;
}

/* How it is made, in a context that stays as long as the object's record. */
static void set_recipe(struct dvk_mem *mem, struct dvk_recipe recipe)
{
    mem->make = recipe;
    recipe.context->refs++;
}

static void free_mem(struct dvk_mem *mem)
{
    unref_context(mem->make.context);
    free(mem);
}

/* Puts the object in its table even when creation failed: commands that use it then fail with the
 * reason, as creation itself needed no answer. */
static void keep_mem(struct dvk_worker *w, struct dvk_mem *mem, cl_int error)
{
    cl_int kept = dvk_put(w, DV_KIND_MEM, mem->id, mem);

    mem->error = error;
    if (error != CL_SUCCESS || kept != CL_SUCCESS) {
        if (mem->root)
            dvk_residency_forget(mem);
        else if (mem->vendor)
            clReleaseMemObject(mem->vendor);
        mem->root = NULL;
        mem->vendor = NULL;
        take_back_storage(mem);
        dvk_mem_uncount(mem);
        if (kept != CL_SUCCESS)
            free_mem(mem);
        return;
    }
    atomic_fetch_add(&w->runtime->header->memory_bytes, mem->bytes);
    if (!mem->root)
        tell_when_gone(mem);
}

/* What the host may do with an object is the client's business; our own transfers do it all. */
#define DVK_DEVICE_FLAGS                                                                           \
    (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY | CL_MEM_KERNEL_READ_AND_WRITE)

/* Zeros that a fresh object is made with where another tenant may have left something; NULL: nothing is
 * to be hidden, or it cannot be (*error). What is managed is scrubbed when it gets its place. */
static void *fresh_zeros(const struct dvk_context *context, uint64_t bytes, cl_int *error)
{
    bool scrubbed = false;

    for (uint32_t i = 0; i < context->device_count; i++)
        scrubbed |= context->devices[i]->scrubbed;
    if (!scrubbed || bytes == 0) /* which the vendor refuses */
        return NULL;
    if (bytes > DV_SHM_BYTES_MAX) {
        *error = CL_INVALID_VALUE;
        return NULL;
    }
    void *zeros =
        mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED) {
        *error = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    return zeros;
}

/* An object that the vendor keeps for as long as it lives. */
static void make_unmanaged_buffer(struct dvk_mem *mem, struct dvk_context *context, cl_mem_flags flags,
                                  void *storage, bool initial, cl_int *error)
{
    void *zeros = storage ? NULL : fresh_zeros(context, mem->bytes, error);

    if (*error != CL_SUCCESS)
        return;
    flags |= initial || zeros ? CL_MEM_COPY_HOST_PTR : storage ? CL_MEM_USE_HOST_PTR : 0;
    mem->vendor =
        clCreateBuffer(context->vendor, flags, mem->bytes, zeros ? zeros : storage, error);
    if (zeros)
        munmap(zeros, mem->bytes);
}

void dvk_on_create_buffer(struct dvk_worker *w, const struct dvw_create_buffer *m,
                          const uint8_t *tail, size_t tail_bytes)
{
    struct dvk_context *context = dvk_find_context(w, m->context);
    struct dvk_mem *mem = new_mem(w, m->id);
    cl_int error = CL_SUCCESS;
    void *storage = NULL;
    cl_mem_flags flags = m->flags & DVK_DEVICE_FLAGS;

    if (!mem)
        return;
    mem->bytes = m->size;
    if (!context)
        error = CL_INVALID_CONTEXT;
    else if (m->arena && !(storage = dv_runtime_arena(w->runtime, m->arena, m->size)))
        error = CL_INVALID_VALUE;
    else if (!count_mem(mem, context, m->claimed)) /* the client should not have sent it */
        error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    else if (dvk_is_managed(context) && (!storage || m->initial)) {
        set_recipe(mem, (struct dvk_recipe){.context = context, .flags = flags});
        error = dvk_residency_add(mem, storage);
    } else if (storage && !m->initial &&
               !(storage = dv_runtime_lend(w->runtime, m->arena, m->size))) {
        error = CL_OUT_OF_HOST_MEMORY;
    } else {
        mem->lent = storage && !m->initial ? m->arena : 0;
        make_unmanaged_buffer(mem, context, flags, storage, m->initial, &error);
    }
    if (m->initial) /* a little memory is not worth waking anybody for */
        dv_runtime_upcall(w->runtime, &(struct dv_upcall){.kind = DV_UPCALL_FREE, .b = m->arena},
                          m->size >= FREED_SOON_BYTES);
    keep_mem(w, mem, error);
}

void dvk_on_create_sub_buffer(struct dvk_worker *w, const struct dvw_create_sub_buffer *m,
                              const uint8_t *tail, size_t tail_bytes)
{
    struct dvk_mem *parent = dvk_find_mem(w, m->parent);
    struct dvk_mem *mem = new_mem(w, m->id);
    cl_buffer_region region = {.origin = m->origin, .size = m->size};
    cl_mem_flags flags = m->flags & DVK_DEVICE_FLAGS;
    cl_int error = CL_INVALID_MEM_OBJECT;

    if (!mem)
        return;
    if (parent && !parent->error && parent->root && !parent->is_image && !parent->parent) {
        set_recipe(mem, (struct dvk_recipe){.context = parent->make.context,
                                            .flags = flags,
                                            .origin = m->origin,
                                            .size = m->size});
        mem->device = parent->device;
        mem->parent = parent;
        error = m->origin > parent->bytes || m->size > parent->bytes - m->origin
                    ? CL_INVALID_VALUE
                    : dvk_residency_add(mem, NULL);
    } else if (parent && parent->vendor && !parent->is_image) {
        mem->vendor = clCreateSubBuffer(parent->vendor, flags, CL_BUFFER_CREATE_TYPE_REGION, &region,
                                        &error);
    }
    keep_mem(w, mem, error);
}

#define PIXEL_BYTES_MOST 16 /* four channels of 32 bits */

/* How many bytes the vendor reads from the pixels of a new image; UINT64_MAX: too many. */
static uint64_t pixels_bytes(const struct dvw_create_image *m, size_t pixel_bytes)
{
    const uint64_t sizes[] = {m->height, m->depth, m->array_size};
    unsigned __int128 bytes = (unsigned __int128)m->width * pixel_bytes;

    for (int i = 0; i < 3 && bytes <= DV_SHM_BYTES_MAX; i++)
        bytes *= sizes[i] ? sizes[i] : 1;
    return bytes <= DV_SHM_BYTES_MAX ? (uint64_t)bytes : UINT64_MAX;
}

/* The pixels the vendor will read, all of them within the arena; NULL if they are not. */
static void *image_pixels(struct dvk_worker *w, const struct dvw_create_image *m)
{
    uint64_t bytes = pixels_bytes(m, dv_pixel_bytes(m->order, m->data_type));
    return bytes <= DV_SHM_BYTES_MAX ? dv_runtime_arena(w->runtime, m->data, bytes) : NULL;
}

static void make_unmanaged_image(struct dvk_mem *mem, const struct dvw_create_image *m,
                                 const struct dvk_mem *parent, void *pixels, cl_int *error)
{
    const struct dvk_context *context = mem->make.context;
    cl_image_desc desc = mem->make.desc;
    uint64_t bytes = pixels_bytes(m, PIXEL_BYTES_MOST);
    void *zeros = parent || pixels ? NULL : fresh_zeros(context, bytes, error);

    if (*error != CL_SUCCESS)
        return;
    desc.buffer = parent ? parent->vendor : NULL;
    mem->vendor = clCreateImage(context->vendor,
                                mem->make.flags | (pixels || zeros ? CL_MEM_COPY_HOST_PTR : 0),
                                &mem->make.format, &desc, zeros ? zeros : pixels, error);
    if (zeros)
        munmap(zeros, bytes);
}

int32_t dvk_on_create_image(struct dvk_worker *w, const struct dvw_create_image *m,
                            const uint8_t *tail, size_t tail_bytes, struct dvk_reply *reply)
{
    struct dvk_context *context = dvk_find_context(w, m->context);
    struct dvk_mem *parent = m->parent ? dvk_find_mem(w, m->parent) : NULL;
    cl_image_format format = {.image_channel_order = m->order, .image_channel_data_type = m->data_type};
    cl_image_desc desc = {.image_type = m->type,
                          .image_width = m->width,
                          .image_height = m->height,
                          .image_depth = m->depth,
                          .image_array_size = m->array_size,
                          .image_row_pitch = m->row_pitch,
                          .image_slice_pitch = m->slice_pitch};
    cl_int error = CL_SUCCESS;

    if (!context)
        return CL_INVALID_CONTEXT;
    if (m->mip_levels || m->samples) /* the library offers none, and nobody would scrub or move them */
        return CL_INVALID_IMAGE_DESCRIPTOR;
    if (m->parent && (!parent || parent->error))
        return CL_INVALID_MEM_OBJECT;
    if (!parent)
        desc.image_row_pitch = desc.image_slice_pitch = 0; /* host pitches are the client's */
    bool managed = parent ? parent->root != NULL : dvk_is_managed(context);
    struct dvk_mem *mem = new_mem(w, m->id);
    if (!mem)
        return CL_OUT_OF_HOST_MEMORY;
    mem->is_image = true;
    void *pixels = m->data ? image_pixels(w, m) : NULL;
    if (m->data && !pixels) {
        free(mem);
        return CL_INVALID_VALUE;
    }
    set_recipe(mem, (struct dvk_recipe){.context = context,
                                        .flags = m->flags & DVK_DEVICE_FLAGS,
                                        .format = format,
                                        .desc = desc});
    if (managed) {
        mem->parent = parent;
        mem->root = parent ? parent->root : NULL;
        error = dvk_residency_try(mem);
    } else {
        make_unmanaged_image(mem, m, parent, pixels, &error);
    }
    if (error != CL_SUCCESS) {
        if (managed)
            dvk_residency_tried(mem);
        free_mem(mem);
        return error;
    }
    size_t facts[3] = {0, 0, 0}; /* element size, row pitch, slice pitch */
    size_t bytes = 0;
    error = clGetImageInfo(mem->vendor, CL_IMAGE_ELEMENT_SIZE, sizeof(size_t), &facts[0], NULL);
    if (error == CL_SUCCESS)
        error = clGetImageInfo(mem->vendor, CL_IMAGE_ROW_PITCH, sizeof(size_t), &facts[1], NULL);
    if (error == CL_SUCCESS)
        error = clGetImageInfo(mem->vendor, CL_IMAGE_SLICE_PITCH, sizeof(size_t), &facts[2], NULL);
    if (error == CL_SUCCESS)
        error = clGetMemObjectInfo(mem->vendor, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    mem->element_bytes = facts[0];
    mem->bytes = parent ? 0 : bytes;
    if (managed) /* from here on its vendor's object comes and goes */
        dvk_residency_tried(mem);
    mem->device = home_of(context);
    if (error == CL_SUCCESS && !parent &&
        (dv_account_claim(w->runtime, home_of(context), bytes) < 0 ||
         !count_mem(mem, context, true)))
        error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    if (error == CL_SUCCESS && managed)
        error = dvk_residency_add(mem, pixels);
    if (error != CL_SUCCESS) {
        if (mem->vendor && !managed)
            clReleaseMemObject(mem->vendor);
        dvk_mem_uncount(mem);
        free_mem(mem);
        return error;
    }
    uint64_t answer[4] = {facts[0], facts[1], facts[2], bytes};
    dvk_reply_put(reply, answer, sizeof answer);
    keep_mem(w, mem, CL_SUCCESS);
    return CL_SUCCESS;
}

int32_t dvk_on_create_sampler(struct dvk_worker *w, const struct dvw_create_sampler *m,
                              const uint8_t *tail, size_t tail_bytes, struct dvk_reply *reply)
{
    struct dvk_context *context = dvk_find_context(w, m->context);
    cl_int error;

    if (!context)
        return CL_INVALID_CONTEXT;
    struct dvk_sampler *sampler = calloc(1, sizeof *sampler);
    if (!sampler)
        return CL_OUT_OF_HOST_MEMORY;
    sampler->refs = 1;
    sampler->vendor =
        clCreateSampler(context->vendor, m->normalized, m->addressing, m->filter, &error);
    if (error == CL_SUCCESS)
        error = dvk_put(w, DV_KIND_SAMPLER, m->id, sampler);
    if (error != CL_SUCCESS) {
        if (sampler->vendor)
            clReleaseSampler(sampler->vendor);
        free(sampler);
    }
    return error;
}

/* ---- endings ---- */

void dvk_mem_unref(struct dvk_mem *mem)
{
    if (mem && --mem->refs == 0)
        free_mem(mem);
}

static void release_vendor_mem(struct dvk_mem *mem)
{
    if (mem->root) {
        if (mem->in_use == 0) /* otherwise with the last command that uses it */
            dvk_residency_remove(mem);
        return;
    }
    bool told = mem->vendor && mem->told_by_vendor;
    if (mem->vendor) {
        if (!told) { /* nobody else will say so: when nothing can use it any more */
            dvk_finish(mem->worker);
            atomic_fetch_sub(&mem->worker->runtime->header->memory_bytes, mem->bytes);
            dvk_mem_uncount(mem);
        }
        clReleaseMemObject(mem->vendor);
        mem->vendor = NULL;
        if (!told)
            take_back_storage(mem);
    }
    if (!told)
        dv_runtime_upcall(mem->worker->runtime,
                          &(struct dv_upcall){.kind = DV_UPCALL_MEM_GONE, .a = mem->id}, true);
    mem->error = CL_INVALID_MEM_OBJECT;
}

void dvk_mem_unpin(struct dvk_mem *mem)
{
    if (--mem->pins == 0 && mem->released)
        release_vendor_mem(mem);
    dvk_mem_unref(mem);
}

void dvk_sampler_unref(struct dvk_sampler *sampler)
{
    if (!sampler || --sampler->refs > 0)
        return;
    clReleaseSampler(sampler->vendor);
    free(sampler);
}

void dvk_kernel_unref(struct dvk_kernel *kernel)
{
    if (--kernel->refs > 0)
        return;
    clReleaseKernel(kernel->vendor);
    dvk_timing_unref(kernel->timing);
    dvk_arguments_unref(kernel->arguments);
    free(kernel->applied);
    free(kernel->applied_made);
    free(kernel->parameters);
    free(kernel);
}

static void release_object(struct dvk_worker *w, enum dv_object_kind kind, void *object)
{
    switch (kind) {
    case DV_KIND_MEM: {
        struct dvk_mem *mem = object;
        mem->released = true;
        if (mem->pins == 0)
            release_vendor_mem(mem);
        dvk_mem_unref(mem);
        break;
    }
    case DV_KIND_SAMPLER:
        dvk_sampler_unref(object);
        break;
    case DV_KIND_KERNEL:
        dvk_kernel_unref(object);
        break;
    case DV_KIND_PROGRAM:
        clReleaseProgram(((struct dvk_program *)object)->vendor);
        free(object);
        break;
    case DV_KIND_QUEUE: {
        struct dvk_queue *queue = object;
        if (queue_is_idle(queue)) {
            close_queue(w, queue);
            break;
        }
        queue->next_released = w->released_queues;
        w->released_queues = queue;
        atomic_fetch_add(&w->runtime->graph.attention, 1);
        break;
    }
    case DV_KIND_CONTEXT:
        unref_context(object);
        break;
    case DV_KIND_DEVICE:
        /* A sub-device is kept as long as the process: PoCL 3.1 crashes now and then when one is
         * released right after its last event. */
        break;
    default:
        break;
    }
}

void dvk_on_release(struct dvk_worker *w, const struct dvw_release *m, const uint8_t *tail,
                    size_t tail_bytes)
{
    if (m->kind <= DV_KIND_NONE || m->kind >= DV_KIND_COUNT)
        return;
    void *object = dvk_take(w, m->kind, m->id);
    if (object)
        release_object(w, m->kind, object);
}
