/* Maps: the application works on the bytes of a memory object in its own memory or in the arena. */
#include <stdlib.h>

#include "src/client/opencl/transfer.h"

static void list_map(struct dvc_mem *mem, struct dvc_map *map)
{
    pthread_mutex_lock(&mem->lock);
    map->next = mem->maps;
    mem->maps = map;
    pthread_mutex_unlock(&mem->lock);
}

static struct dvc_map *add_map(struct dvc_mem *mem, void *pointer, cl_map_flags flags, const struct dvc_region *region,
                               uint64_t arena)
{
    struct dvc_map *map = calloc(1, sizeof *map);
    struct dvc_region *copy = malloc(sizeof *copy);

    if (!map || !copy) {
        free(map);
        free(copy);
        return NULL;
    }
    *copy = *region;
    *map = (struct dvc_map){.pointer = pointer, .flags = flags, .region = copy, .arena = arena};
    list_map(mem, map);
    return map;
}

static struct dvc_map *take_map(struct dvc_mem *mem, const void *pointer)
{
    struct dvc_map *map = NULL;

    pthread_mutex_lock(&mem->lock);
    for (struct dvc_map **link = &mem->maps; *link; link = &(*link)->next)
        if ((*link)->pointer == pointer) {
            map = *link;
            *link = map->next;
            break;
        }
    pthread_mutex_unlock(&mem->lock);
    return map;
}

static void free_map(struct dvc_map *map)
{
    free(map->region);
    free(map);
}

/* A command that moves no bytes. It completes when it is ready. */
static cl_int mark(struct dvc_queue *queue, cl_command_type command, uint64_t free_block, bool blocking, cl_uint count,
                   const cl_event *list, cl_event *event_ret)
{
    struct dvw_marker message = {.arena = free_block};
    struct dvc_event *event = NULL;
    cl_int error = CL_SUCCESS;

    if (!dvc_session_alive(queue->object.session))
        return CL_OUT_OF_RESOURCES;
    if ((event_ret || blocking) && !(event = dvc_event_create(queue->context, queue, command)))
        return CL_OUT_OF_HOST_MEMORY;
    message.explicit = 1; /* an ordinary command, not a barrier in an out-of-order queue */
    pthread_mutex_lock(&queue->lock);
    if (!free_block && !dvc_waits_pending(count, list) && dvc_queue_idle(queue)) {
        if (event)
            dvc_event_complete_here(event, dv_now());
        pthread_mutex_unlock(&queue->lock);
        if (blocking)
            dvc_flush_output(queue->object.session);
    } else {
        error = dvc_enqueue_locked(queue, DVW_OP_MARKER, &message.head, sizeof message, NULL, 0, count, list, event);
        pthread_mutex_unlock(&queue->lock);
        if (error == CL_SUCCESS && blocking)
            error = dvc_event_wait(event) < 0 ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : CL_SUCCESS;
    }
    if (error == CL_SUCCESS && event_ret)
        *event_ret = (cl_event)event;
    else if (event)
        dvc_event_release(event);
    return error;
}

/* Moves the device's bytes into a block of the arena, or back. */
static cl_int move_block(struct dvc_queue *queue, cl_command_type command, struct dvc_mem *mem,
                         enum dv_direction direction, const struct dvc_region *r, uint64_t block, bool blocking,
                         cl_uint count, const cl_event *list, cl_event *event_ret)
{
    struct dvw_transfer m;
    cl_event event = NULL;

    dvc_fill_transfer(&m, mem, direction, r);
    m.arena = block;
    m.free_after = direction == DV_TO_DEVICE;
    cl_int error = dvc_enqueue(queue, DVW_OP_TRANSFER, &m.head, sizeof m, NULL, 0, command, count, list,
                               event_ret || blocking ? &event : NULL);
    if (error == CL_SUCCESS && blocking)
        error =
            dvc_event_wait((struct dvc_event *)event) < 0 ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : CL_SUCCESS;
    if (error == CL_SUCCESS && event_ret)
        *event_ret = event;
    else if (event)
        dvc_event_release((struct dvc_event *)event);
    return error;
}

static cl_int map_region(struct dvc_queue *queue, struct dvc_mem *mem, cl_command_type command, struct dvc_region *r,
                         cl_map_flags flags, bool blocking, cl_uint count, const cl_event *list, cl_event *event,
                         void **pointer)
{
    struct dvc_session *s = queue->object.session;
    bool wants_content = !(flags & CL_MAP_WRITE_INVALIDATE_REGION);
    uint64_t block = 0;
    cl_int error;

    if (!dvc_session_alive(s))
        return CL_OUT_OF_RESOURCES;
    if (mem->host_ptr) {
        *pointer = (uint8_t *)mem->host_ptr + r->host_offset;
    } else if (dvc_has_storage(mem)) {
        *pointer = (uint8_t *)dvc_arena_pointer(s, mem->arena) + r->origin[0];
    } else {
        block = dvc_arena_alloc(&s->arena, r->bytes);
        if (!block)
            return CL_MAP_FAILURE;
        *pointer = dvc_arena_pointer(s, block);
    }
    if (!add_map(mem, *pointer, flags, r, block)) {
        if (block)
            dvc_arena_free(&s->arena, block);
        return CL_OUT_OF_HOST_MEMORY;
    }
    if (!wants_content || (!mem->host_ptr && !block))
        error = mark(queue, command, 0, blocking, count, list, event);
    else if (mem->host_ptr)
        error = dvc_transfer(&(struct dvc_transfer){.queue = queue,
                                                    .direction = DV_FROM_DEVICE,
                                                    .mem = mem,
                                                    .region = r,
                                                    .host = mem->host_ptr,
                                                    .blocking = blocking,
                                                    .wait_count = count,
                                                    .waits = list},
                             command, event);
    else
        error = move_block(queue, command, mem, DV_FROM_DEVICE, r, block, blocking, count, list, event);
    if (error != CL_SUCCESS) {
        free_map(take_map(mem, *pointer));
        if (block)
            dvc_arena_free(&s->arena, block);
    }
    return error;
}

static cl_int check_map(struct dvc_queue *queue, struct dvc_mem *mem, cl_map_flags flags, cl_uint count,
                        const cl_event *list)
{
    const cl_map_flags known = CL_MAP_READ | CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;

    if (flags & ~known || ((flags & CL_MAP_WRITE_INVALIDATE_REGION) && (flags & (CL_MAP_READ | CL_MAP_WRITE))))
        return CL_INVALID_VALUE;
    cl_mem_flags forbidden = 0;
    if (flags & CL_MAP_READ)
        forbidden |= DV_NO_READ;
    if (flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION))
        forbidden |= DV_NO_WRITE;
    return dvc_check_transfer(queue, mem, forbidden, queue, count, list);
}

void *CL_API_CALL dvc_clEnqueueMapBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_map,
                                         cl_map_flags map_flags, size_t offset, size_t size,
                                         cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                         cl_event *event, cl_int *errcode_ret)
{
    struct dvc_queue *queue = dvc_queue_of(command_queue);
    struct dvc_mem *mem = dvc_buffer_of(buffer);
    struct dvc_region region;
    void *pointer = NULL;
    cl_int error;

    if (!queue)
        error = CL_INVALID_COMMAND_QUEUE;
    else if (!mem)
        error = CL_INVALID_MEM_OBJECT;
    else
        error = check_map(queue, mem, map_flags, num_events_in_wait_list, event_wait_list);
    if (error == CL_SUCCESS)
        error = size == 0 ? CL_INVALID_VALUE : dvc_region_linear(&region, mem, offset, size);
    if (error == CL_SUCCESS) {
        if (mem->host_ptr)
            region.host_offset = offset;
        error = map_region(queue, mem, CL_COMMAND_MAP_BUFFER, &region, map_flags, blocking_map, num_events_in_wait_list,
                           event_wait_list, event, &pointer);
    }
    if (errcode_ret)
        *errcode_ret = error;
    return error == CL_SUCCESS ? pointer : NULL;
}

void *CL_API_CALL dvc_clEnqueueMapImage(cl_command_queue command_queue, cl_mem image, cl_bool blocking_map,
                                        cl_map_flags map_flags, const size_t *origin, const size_t *region,
                                        size_t *image_row_pitch, size_t *image_slice_pitch,
                                        cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                        cl_event *event, cl_int *errcode_ret)
{
    struct dvc_queue *queue = dvc_queue_of(command_queue);
    struct dvc_mem *mem = dvc_image_of(image);
    struct dvc_region box;
    void *pointer = NULL;
    cl_int error;

    if (!queue)
        error = CL_INVALID_COMMAND_QUEUE;
    else if (!mem)
        error = CL_INVALID_MEM_OBJECT;
    else
        error = check_map(queue, mem, map_flags, num_events_in_wait_list, event_wait_list);
    bool sliced = mem && mem->desc.image_type != CL_MEM_OBJECT_IMAGE2D &&
                  mem->desc.image_type != CL_MEM_OBJECT_IMAGE1D && mem->desc.image_type != CL_MEM_OBJECT_IMAGE1D_BUFFER;
    if (error == CL_SUCCESS && (!image_row_pitch || (sliced && !image_slice_pitch)))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = dvc_region_image(&box, mem, origin, region, 0, 0);
    if (error == CL_SUCCESS) {
        if (mem->host_ptr) { /* the application's own layout */
            bool lines = mem->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
            box.host_row_pitch = lines ? mem->slice_pitch : mem->row_pitch;
            box.host_slice_pitch = mem->slice_pitch;
            box.host_offset =
                origin[0] * mem->element_bytes + origin[1] * box.host_row_pitch + origin[2] * mem->slice_pitch;
        }
        error = map_region(queue, mem, CL_COMMAND_MAP_IMAGE, &box, map_flags, blocking_map, num_events_in_wait_list,
                           event_wait_list, event, &pointer);
    }
    if (error == CL_SUCCESS) {
        bool lines = mem->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
        *image_row_pitch = mem->host_ptr ? mem->row_pitch : box.row_bytes;
        if (image_slice_pitch)
            *image_slice_pitch = !sliced         ? 0
                                 : mem->host_ptr ? mem->slice_pitch
                                 : lines         ? box.row_bytes
                                                 : box.row_bytes * region[1];
    }
    if (errcode_ret)
        *errcode_ret = error;
    return error == CL_SUCCESS ? pointer : NULL;
}

cl_int CL_API_CALL dvc_clEnqueueUnmapMemObject(cl_command_queue command_queue, cl_mem memobj, void *mapped_ptr,
                                               cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                               cl_event *event)
{
    struct dvc_queue *queue = dvc_queue_of(command_queue);
    struct dvc_mem *mem = dvc_mem_of(memobj);

    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!mem)
        return CL_INVALID_MEM_OBJECT;
    if (mem->context != queue->context)
        return CL_INVALID_CONTEXT;
    cl_int error = dvc_check_waits(queue->context, num_events_in_wait_list, event_wait_list);
    if (error != CL_SUCCESS)
        return error;
    if (!dvc_session_alive(queue->object.session))
        return CL_OUT_OF_RESOURCES;
    struct dvc_map *map = mapped_ptr ? take_map(mem, mapped_ptr) : NULL;
    if (!map)
        return CL_INVALID_VALUE;
    bool wrote = map->flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION);
    if (wrote && mem->host_ptr)
        error = dvc_transfer(&(struct dvc_transfer){.queue = queue,
                                                    .direction = DV_TO_DEVICE,
                                                    .mem = mem,
                                                    .region = map->region,
                                                    .host = mem->host_ptr,
                                                    .blocking = false,
                                                    .wait_count = num_events_in_wait_list,
                                                    .waits = event_wait_list},
                             CL_COMMAND_UNMAP_MEM_OBJECT, event);
    else if (wrote && map->arena)
        error = move_block(queue, CL_COMMAND_UNMAP_MEM_OBJECT, mem, DV_TO_DEVICE, map->region, map->arena, false,
                           num_events_in_wait_list, event_wait_list, event);
    else
        error = mark(queue, CL_COMMAND_UNMAP_MEM_OBJECT, map->arena, false, num_events_in_wait_list, event_wait_list,
                     event);
    if (error == CL_SUCCESS)
        free_map(map);
    else
        list_map(mem, map); /* it is still mapped */
    return error;
}
