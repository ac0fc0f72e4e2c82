/* Enqueueing: from a checked command to a record in the ring, and the checks themselves. */
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/client/opencl/enqueue.h"
#include "src/client/opencl/region.h"

#define SPIN_NS (20 * DV_NS_PER_US)

bool dvc_waits_pending(cl_uint count, const cl_event *list)
{
    for (cl_uint i = 0; i < count; i++)
        if (atomic_load_explicit(&dvc_event_of(list[i])->slot->status, memory_order_acquire) != CL_COMPLETE)
            return true;
    return false;
}

bool dvc_queue_idle(struct dvc_queue *queue)
{
    return atomic_load_explicit(&queue->slot->completed, memory_order_acquire) >= queue->enqueued;
}

void dvc_queue_wait(struct dvc_queue *queue, uint64_t number)
{
    struct dvc_session *s = queue->object.session;
    struct dv_shm_queue *slot = queue->slot;
    dv_ns start = 0;

    for (unsigned round = 0;; round++) {
        if (atomic_load_explicit(&slot->completed, memory_order_acquire) >= number)
            return;
        dv_cpu_relax();
        if (round % 64 == 63) {
            dv_ns now = dv_now();
            if (!start)
                start = now;
            else if (now - start > SPIN_NS)
                break;
        }
    }
    atomic_fetch_add(&slot->waiters, 1);
    for (;;) {
        uint32_t progress = atomic_load(&slot->progress);
        if (atomic_load(&slot->completed) >= number || !dvc_session_alive(s))
            break;
        uint64_t at = atomic_load(&slot->wake_at);
        while ((at == 0 || at > number) && !atomic_compare_exchange_weak(&slot->wake_at, &at, number))
            ;
        if (atomic_load(&slot->completed) >= number) /* the worker may have read wake_at earlier */
            break;
        dvc_session_wait(s, &slot->progress, progress);
    }
    atomic_fetch_sub(&slot->waiters, 1);
}

cl_int dvc_enqueue_locked(struct dvc_queue *queue, uint16_t op, struct dv_queue_head *message, size_t bytes,
                          const void *tail, size_t tail_bytes, cl_uint wait_count, const cl_event *waits,
                          struct dvc_event *event)
{
    struct dvc_session *s = queue->object.session;
    uint32_t few[16];
    DV_AUTO_FREE uint32_t *many = NULL;
    uint32_t *ids = few, id_count = 0;

    if (wait_count > 16) {
        ids = many = malloc(wait_count * sizeof *many);
        if (!many)
            return CL_OUT_OF_HOST_MEMORY;
    }
    for (cl_uint i = 0; i < wait_count; i++) {
        struct dvc_event *wait = dvc_event_of(waits[i]);
        /* skip completed events; failed ones must reach the worker */
        if (atomic_load_explicit(&wait->slot->status, memory_order_acquire) != CL_COMPLETE)
            ids[id_count++] = wait->object.id.value;
    }
    size_t front = dv_record_align(bytes + tail_bytes);
    size_t total = front + dv_record_align(id_count * sizeof *ids);
    if (total > DV_MAX_RECORD_BYTES)
        return CL_OUT_OF_RESOURCES;
    message->record.bytes = (uint32_t)total;
    message->record.op = op;
    message->queue = queue->object.id;
    message->event = event ? event->object.id.value : 0;
    message->wait_count = id_count;
    message->number = queue->enqueued + 1;
    if (event)
        event->number = message->number;

    pthread_mutex_lock(&s->ring_lock);
    uint8_t *room = dvc_session_alive(s) ? dvc_ring_room(s, total) : NULL;
    if (room) {
        memcpy(room, message, bytes);
        if (tail_bytes)
            memcpy(room + bytes, tail, tail_bytes);
        if (id_count)
            memcpy(room + front, ids, id_count * sizeof *ids);
        atomic_store_explicit(&queue->enqueued, message->number, memory_order_relaxed);
        dv_ring_publish(&s->ring, total);
    }
    pthread_mutex_unlock(&s->ring_lock);
    if (!room) {
        dvc_session_check(s);
        return CL_OUT_OF_RESOURCES;
    }
    if (id_count)
        queue->gated_until = queue->enqueued;
    return CL_SUCCESS;
}

cl_int dvc_enqueue(struct dvc_queue *queue, uint16_t op, struct dv_queue_head *message, size_t bytes, const void *tail,
                   size_t tail_bytes, cl_command_type command, cl_uint wait_count, const cl_event *waits,
                   cl_event *event)
{
    struct dvc_event *made = NULL;

    if (!dvc_session_alive(queue->object.session))
        return CL_OUT_OF_RESOURCES;
    if (event && !(made = dvc_event_create(queue->context, queue, command)))
        return CL_OUT_OF_HOST_MEMORY;
    pthread_mutex_lock(&queue->lock);
    cl_int error = dvc_enqueue_locked(queue, op, message, bytes, tail, tail_bytes, wait_count, waits, made);
    pthread_mutex_unlock(&queue->lock);
    if (error == CL_SUCCESS && event)
        *event = (cl_event)made;
    else if (made) {
        atomic_store(&made->slot->status, error);
        dvc_event_release(made);
    }
    return error;
}

/* ---- markers and barriers ---- */

static cl_int enqueue_marker(cl_command_queue command_queue, bool barrier, cl_uint count, const cl_event *list,
                             cl_event *event)
{
    struct dvc_queue *queue = dvc_queue_of(command_queue);
    struct dvw_marker message = {.barrier = barrier, .explicit = count > 0};

    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    cl_int error = dvc_check_waits(queue->context, count, list);
    if (error != CL_SUCCESS)
        return error;
    return dvc_enqueue(queue, DVW_OP_MARKER, &message.head, sizeof message, NULL, 0,
                       barrier ? CL_COMMAND_BARRIER : CL_COMMAND_MARKER, count, list, event);
}

cl_int CL_API_CALL dvc_clEnqueueMarkerWithWaitList(cl_command_queue command_queue, cl_uint num_events_in_wait_list,
                                                   const cl_event *event_wait_list, cl_event *event)
{
    return enqueue_marker(command_queue, false, num_events_in_wait_list, event_wait_list, event);
}

cl_int CL_API_CALL dvc_clEnqueueBarrierWithWaitList(cl_command_queue command_queue, cl_uint num_events_in_wait_list,
                                                    const cl_event *event_wait_list, cl_event *event)
{
    return enqueue_marker(command_queue, true, num_events_in_wait_list, event_wait_list, event);
}

cl_int CL_API_CALL dvc_clEnqueueMarker(cl_command_queue command_queue, cl_event *event)
{
    if (!event)
        return dvc_queue_of(command_queue) ? CL_INVALID_VALUE : CL_INVALID_COMMAND_QUEUE;
    return enqueue_marker(command_queue, false, 0, NULL, event);
}

cl_int CL_API_CALL dvc_clEnqueueBarrier(cl_command_queue command_queue)
{
    return enqueue_marker(command_queue, true, 0, NULL, NULL);
}

cl_int CL_API_CALL dvc_clEnqueueWaitForEvents(cl_command_queue command_queue, cl_uint num_events,
                                              const cl_event *event_list)
{
    struct dvc_queue *queue = dvc_queue_of(command_queue);

    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (num_events == 0 || !event_list)
        return CL_INVALID_VALUE;
    if (num_events > DV_MAX_WAITS)
        return CL_OUT_OF_RESOURCES;
    for (cl_uint i = 0; i < num_events; i++) {
        struct dvc_event *event = dvc_event_of(event_list[i]);
        if (!event)
            return CL_INVALID_EVENT;
        if (event->context != queue->context)
            return CL_INVALID_CONTEXT;
    }
    return enqueue_marker(command_queue, true, num_events, event_list, NULL);
}

cl_int CL_API_CALL dvc_clFlush(cl_command_queue command_queue)
{
    struct dvc_queue *queue = dvc_queue_of(command_queue);

    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    return dvc_session_check(queue->object.session) ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
}

cl_int CL_API_CALL dvc_clFinish(cl_command_queue command_queue)
{
    struct dvc_queue *queue = dvc_queue_of(command_queue);

    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    struct dvc_session *s = queue->object.session;
    if (!dvc_session_alive(s))
        return CL_OUT_OF_RESOURCES;
    pthread_mutex_lock(&queue->lock);
    uint64_t last = queue->enqueued;
    pthread_mutex_unlock(&queue->lock);
    dvc_queue_wait(queue, last);
    if (!dvc_session_alive(s))
        return CL_OUT_OF_RESOURCES;
    dvc_flush_output(s);
    return CL_SUCCESS;
}

/* ---- checks ---- */

cl_int dvc_check_ndrange(struct dvc_queue *queue, struct dvc_kernel *kernel, cl_uint dims, const size_t *offset,
                         const size_t *global, const size_t *local)
{
    size_t group = 1;

    if (kernel->program->context != queue->context)
        return CL_INVALID_CONTEXT;
    if (dims < 1 || dims > 3)
        return CL_INVALID_WORK_DIMENSION;
    if (!global) /* an empty range since OpenCL 2.1; no supported device accepts it */
        return CL_INVALID_GLOBAL_WORK_SIZE;
    for (cl_uint i = 0; i < dims; i++) {
        if (global[i] == 0)
            return CL_INVALID_GLOBAL_WORK_SIZE;
        if (offset && offset[i] > SIZE_MAX - global[i])
            return CL_INVALID_GLOBAL_OFFSET;
    }
    for (cl_uint i = 0; i < kernel->argument_count; i++)
        if (!kernel->is_set[i])
            return CL_INVALID_KERNEL_ARGS;
    const size_t most = queue->device->max_group, *item_most = queue->device->max_items;
    for (cl_uint i = 0; local && i < dims; i++) {
        if (local[i] == 0)
            return CL_INVALID_WORK_GROUP_SIZE;
        if (item_most[i] && local[i] > item_most[i])
            return CL_INVALID_WORK_ITEM_SIZE;
        group *= local[i];
        if (most && group > most)
            return CL_INVALID_WORK_GROUP_SIZE;
        if (global[i] % local[i] && !queue->device->non_uniform)
            return CL_INVALID_WORK_GROUP_SIZE;
        if (kernel->required_local[i] && local[i] != kernel->required_local[i])
            return CL_INVALID_WORK_GROUP_SIZE;
    }
    if (!local && kernel->required_local[0])
        return CL_INVALID_WORK_GROUP_SIZE;
    return CL_SUCCESS;
}

static bool inside(size_t offset, size_t size, size_t limit)
{
    return offset <= limit && size <= limit - offset;
}

static bool overlap(size_t a, size_t b, size_t size)
{
    return a < b + size && b < a + size;
}

/* A sub-buffer must start where the device can address it. */
static cl_int check_alignment(struct dvc_queue *queue, struct dvc_mem *mem)
{
    if (mem->parent && mem->type == CL_MEM_OBJECT_BUFFER && queue->device->base_align &&
        mem->origin % queue->device->base_align)
        return CL_MISALIGNED_SUB_BUFFER_OFFSET;
    return CL_SUCCESS;
}

/* The root buffer and the object's start in it: sub-buffers of one parent can overlap. */
static struct dvc_mem *root_of(struct dvc_mem *mem, size_t *start)
{
    *start = 0;
    if (mem->parent && mem->type == CL_MEM_OBJECT_BUFFER) {
        *start = mem->origin;
        return mem->parent;
    }
    return mem;
}

cl_int dvc_check_copy_buffer(struct dvc_queue *queue, struct dvc_mem *src, struct dvc_mem *dst, size_t src_offset,
                             size_t dst_offset, size_t size)
{
    size_t src_start, dst_start;

    if (src->context != queue->context || dst->context != queue->context)
        return CL_INVALID_CONTEXT;
    if (size == 0 || !inside(src_offset, size, src->size) || !inside(dst_offset, size, dst->size))
        return CL_INVALID_VALUE;
    if (check_alignment(queue, src) || check_alignment(queue, dst))
        return CL_MISALIGNED_SUB_BUFFER_OFFSET;
    if (root_of(src, &src_start) == root_of(dst, &dst_start) &&
        overlap(src_start + src_offset, dst_start + dst_offset, size))
        return CL_MEM_COPY_OVERLAP;
    return CL_SUCCESS;
}

static size_t first_byte(const struct dvc_region *r, size_t start)
{
    return start + r->origin[2] * r->slice_pitch + r->origin[1] * r->row_pitch + r->origin[0];
}

static size_t span(const struct dvc_region *r)
{
    return (r->size[2] - 1) * r->slice_pitch + (r->size[1] - 1) * r->row_pitch + r->size[0];
}

/* Whether any row of the box starting at `start` shares a byte with [from, from + bytes). */
static bool row_meets_box(size_t from, size_t bytes, const struct dvc_region *r, size_t start)
{
    for (size_t z = 0; z < r->size[2]; z++) {
        size_t slice = start + z * r->slice_pitch;
        if (slice >= from + bytes)
            break;
        size_t y = from > slice + r->size[0] ? (from - slice - r->size[0]) / r->row_pitch : 0;
        for (; y < r->size[1] && slice + y * r->row_pitch < from + bytes; y++)
            if (from < slice + y * r->row_pitch + r->size[0])
                return true;
    }
    return false;
}

/* Boxes of one root buffer. */
static bool boxes_overlap(const struct dvc_region *a, size_t a_root, const struct dvc_region *b, size_t b_root)
{
    size_t a0 = first_byte(a, a_root), b0 = first_byte(b, b_root);

    if (a0 >= b0 + span(b) || b0 >= a0 + span(a))
        return false;
    for (size_t z = 0; z < a->size[2]; z++)
        for (size_t y = 0; y < a->size[1]; y++)
            if (row_meets_box(a0 + z * a->slice_pitch + y * a->row_pitch, a->size[0], b, b0))
                return true;
    return false;
}

cl_int dvc_check_copy_buffer_rect(struct dvc_queue *queue, struct dvc_mem *src, struct dvc_mem *dst,
                                  const size_t *src_origin, const size_t *dst_origin, const size_t *region,
                                  size_t src_row_pitch, size_t src_slice_pitch, size_t dst_row_pitch,
                                  size_t dst_slice_pitch)
{
    static const size_t zero[3];
    struct dvc_region a, b;
    size_t src_start, dst_start;

    if (src->context != queue->context || dst->context != queue->context)
        return CL_INVALID_CONTEXT;
    if (!src_origin || !dst_origin || !region)
        return CL_INVALID_VALUE;
    cl_int error = dvc_region_rect(&a, src, src_origin, zero, region, src_row_pitch, src_slice_pitch, 0, 0);
    if (error == CL_SUCCESS)
        error = dvc_region_rect(&b, dst, dst_origin, zero, region, dst_row_pitch, dst_slice_pitch, 0, 0);
    if (error != CL_SUCCESS)
        return error;
    if (check_alignment(queue, src) || check_alignment(queue, dst))
        return CL_MISALIGNED_SUB_BUFFER_OFFSET;
    if (root_of(src, &src_start) != root_of(dst, &dst_start))
        return CL_SUCCESS;
    if (src == dst && (a.row_pitch != b.row_pitch || a.slice_pitch != b.slice_pitch))
        return CL_INVALID_VALUE;
    return boxes_overlap(&a, src_start, &b, dst_start) ? CL_MEM_COPY_OVERLAP : CL_SUCCESS;
}

cl_int dvc_check_copy_image(struct dvc_queue *queue, struct dvc_mem *src, struct dvc_mem *dst, const size_t *src_origin,
                            const size_t *dst_origin, const size_t *region)
{
    if (src->context != queue->context || dst->context != queue->context)
        return CL_INVALID_CONTEXT;
    if (src->format.image_channel_order != dst->format.image_channel_order ||
        src->format.image_channel_data_type != dst->format.image_channel_data_type)
        return CL_IMAGE_FORMAT_MISMATCH;
    cl_int error = dvc_check_image_box(src, src_origin, region);
    if (error == CL_SUCCESS)
        error = dvc_check_image_box(dst, dst_origin, region);
    if (error == CL_SUCCESS && src == dst && overlap(src_origin[0], dst_origin[0], region[0]) &&
        overlap(src_origin[1], dst_origin[1], region[1]) && overlap(src_origin[2], dst_origin[2], region[2]))
        error = CL_MEM_COPY_OVERLAP;
    return error;
}

static cl_int check_image_and_buffer(struct dvc_queue *queue, struct dvc_mem *image, struct dvc_mem *buffer,
                                     const size_t *origin, const size_t *region, size_t offset)
{
    if (image->context != queue->context || buffer->context != queue->context)
        return CL_INVALID_CONTEXT;
    cl_int error = dvc_check_image_box(image, origin, region);
    if (error != CL_SUCCESS)
        return error;
    if (!inside(offset, region[0] * region[1] * region[2] * image->element_bytes, buffer->size))
        return CL_INVALID_VALUE;
    return check_alignment(queue, buffer);
}

cl_int dvc_check_copy_image_to_buffer(struct dvc_queue *queue, struct dvc_mem *image, struct dvc_mem *buffer,
                                      const size_t *origin, const size_t *region, size_t offset)
{
    return check_image_and_buffer(queue, image, buffer, origin, region, offset);
}

cl_int dvc_check_copy_buffer_to_image(struct dvc_queue *queue, struct dvc_mem *buffer, struct dvc_mem *image,
                                      size_t offset, const size_t *origin, const size_t *region)
{
    return check_image_and_buffer(queue, image, buffer, origin, region, offset);
}

cl_int dvc_check_fill_buffer(struct dvc_queue *queue, struct dvc_mem *buffer, const void *pattern, size_t pattern_size,
                             size_t offset, size_t size)
{
    if (buffer->context != queue->context)
        return CL_INVALID_CONTEXT;
    if (!pattern || pattern_size == 0 || pattern_size > 128 || (pattern_size & (pattern_size - 1)) ||
        offset % pattern_size || size % pattern_size || !inside(offset, size, buffer->size))
        return CL_INVALID_VALUE;
    return check_alignment(queue, buffer);
}

cl_int dvc_check_fill_image(struct dvc_queue *queue, struct dvc_mem *image, const void *color, const size_t *origin,
                            const size_t *region)
{
    if (image->context != queue->context)
        return CL_INVALID_CONTEXT;
    if (!color)
        return CL_INVALID_VALUE;
    return dvc_check_image_box(image, origin, region);
}

cl_int dvc_check_migrate(struct dvc_queue *queue, cl_uint count, const cl_mem *list, cl_mem_migration_flags flags)
{
    if (count == 0 || !list || count > 4096 ||
        flags & ~(cl_mem_migration_flags)(CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED))
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < count; i++) {
        struct dvc_mem *mem = dvc_mem_of(list[i]);
        if (!mem)
            return CL_INVALID_MEM_OBJECT;
        if (mem->context != queue->context)
            return CL_INVALID_CONTEXT;
    }
    return CL_SUCCESS;
}
