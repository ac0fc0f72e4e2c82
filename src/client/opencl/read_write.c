/* Reads and writes of buffers and images. */
#include "src/client/opencl/transfer.h"

cl_int dvc_check_transfer(struct dvc_queue *queue, struct dvc_mem *mem, cl_mem_flags forbidden, const void *host,
                          cl_uint wait_count, const cl_event *waits)
{
    if (mem->context != queue->context)
        return CL_INVALID_CONTEXT;
    if (!host)
        return CL_INVALID_VALUE;
    cl_int error = dvc_check_waits(queue->context, wait_count, waits);
    if (error != CL_SUCCESS)
        return error;
    if (mem->flags & forbidden)
        return CL_INVALID_OPERATION;
    if (mem->parent && mem->type == CL_MEM_OBJECT_BUFFER && queue->device->base_align &&
        mem->origin % queue->device->base_align)
        return CL_MISALIGNED_SUB_BUFFER_OFFSET;
    return CL_SUCCESS;
}

static cl_int buffer_linear(cl_command_queue command_queue, cl_command_type command, enum dv_direction direction,
                            cl_mem buffer, cl_bool blocking, size_t offset, size_t size, void *ptr, cl_uint count,
                            const cl_event *list, cl_event *event)
{
    struct dvc_queue *queue = dvc_queue_of(command_queue);
    struct dvc_mem *mem = dvc_buffer_of(buffer);
    struct dvc_region region;

    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!mem)
        return CL_INVALID_MEM_OBJECT;
    cl_int error =
        dvc_check_transfer(queue, mem, direction == DV_TO_DEVICE ? DV_NO_WRITE : DV_NO_READ, ptr, count, list);
    if (error == CL_SUCCESS)
        error = size == 0 ? CL_INVALID_VALUE : dvc_region_linear(&region, mem, offset, size);
    if (error != CL_SUCCESS)
        return error;
    return dvc_transfer(&(struct dvc_transfer){.queue = queue,
                                               .direction = direction,
                                               .mem = mem,
                                               .region = &region,
                                               .host = ptr,
                                               .blocking = blocking,
                                               .wait_count = count,
                                               .waits = list},
                        command, event);
}

cl_int CL_API_CALL dvc_clEnqueueReadBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_read,
                                           size_t offset, size_t size, void *ptr, cl_uint num_events_in_wait_list,
                                           const cl_event *event_wait_list, cl_event *event)
{
    return buffer_linear(command_queue, CL_COMMAND_READ_BUFFER, DV_FROM_DEVICE, buffer, blocking_read, offset, size,
                         ptr, num_events_in_wait_list, event_wait_list, event);
}

cl_int CL_API_CALL dvc_clEnqueueWriteBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_write,
                                            size_t offset, size_t size, const void *ptr,
                                            cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                            cl_event *event)
{
    return buffer_linear(command_queue, CL_COMMAND_WRITE_BUFFER, DV_TO_DEVICE, buffer, blocking_write, offset, size,
                         (void *)ptr, num_events_in_wait_list, event_wait_list, event);
}

static cl_int buffer_rect(cl_command_queue command_queue, cl_command_type command, enum dv_direction direction,
                          cl_mem buffer, cl_bool blocking, const size_t *buffer_origin, const size_t *host_origin,
                          const size_t *size, size_t row_pitch, size_t slice_pitch, size_t host_row_pitch,
                          size_t host_slice_pitch, void *ptr, cl_uint count, const cl_event *list, cl_event *event)
{
    struct dvc_queue *queue = dvc_queue_of(command_queue);
    struct dvc_mem *mem = dvc_buffer_of(buffer);
    struct dvc_region region;

    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!mem)
        return CL_INVALID_MEM_OBJECT;
    cl_int error =
        dvc_check_transfer(queue, mem, direction == DV_TO_DEVICE ? DV_NO_WRITE : DV_NO_READ, ptr, count, list);
    if (error == CL_SUCCESS)
        error = dvc_region_rect(&region, mem, buffer_origin, host_origin, size, row_pitch, slice_pitch, host_row_pitch,
                                host_slice_pitch);
    if (error != CL_SUCCESS)
        return error;
    return dvc_transfer(&(struct dvc_transfer){.queue = queue,
                                               .direction = direction,
                                               .mem = mem,
                                               .region = &region,
                                               .host = ptr,
                                               .blocking = blocking,
                                               .wait_count = count,
                                               .waits = list},
                        command, event);
}

cl_int CL_API_CALL dvc_clEnqueueReadBufferRect(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_read,
                                               const size_t *buffer_origin, const size_t *host_origin,
                                               const size_t *region, size_t buffer_row_pitch, size_t buffer_slice_pitch,
                                               size_t host_row_pitch, size_t host_slice_pitch, void *ptr,
                                               cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                               cl_event *event)
{
    return buffer_rect(command_queue, CL_COMMAND_READ_BUFFER_RECT, DV_FROM_DEVICE, buffer, blocking_read, buffer_origin,
                       host_origin, region, buffer_row_pitch, buffer_slice_pitch, host_row_pitch, host_slice_pitch, ptr,
                       num_events_in_wait_list, event_wait_list, event);
}

cl_int CL_API_CALL dvc_clEnqueueWriteBufferRect(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_write,
                                                const size_t *buffer_origin, const size_t *host_origin,
                                                const size_t *region, size_t buffer_row_pitch,
                                                size_t buffer_slice_pitch, size_t host_row_pitch,
                                                size_t host_slice_pitch, const void *ptr,
                                                cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                                cl_event *event)
{
    return buffer_rect(command_queue, CL_COMMAND_WRITE_BUFFER_RECT, DV_TO_DEVICE, buffer, blocking_write, buffer_origin,
                       host_origin, region, buffer_row_pitch, buffer_slice_pitch, host_row_pitch, host_slice_pitch,
                       (void *)ptr, num_events_in_wait_list, event_wait_list, event);
}

static cl_int image_box(cl_command_queue command_queue, cl_command_type command, enum dv_direction direction,
                        cl_mem image, cl_bool blocking, const size_t *origin, const size_t *size, size_t row_pitch,
                        size_t slice_pitch, void *ptr, cl_uint count, const cl_event *list, cl_event *event)
{
    struct dvc_queue *queue = dvc_queue_of(command_queue);
    struct dvc_mem *mem = dvc_image_of(image);
    struct dvc_region region;

    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!mem)
        return CL_INVALID_MEM_OBJECT;
    cl_int error =
        dvc_check_transfer(queue, mem, direction == DV_TO_DEVICE ? DV_NO_WRITE : DV_NO_READ, ptr, count, list);
    if (error == CL_SUCCESS)
        error = dvc_region_image(&region, mem, origin, size, row_pitch, slice_pitch);
    if (error != CL_SUCCESS)
        return error;
    return dvc_transfer(&(struct dvc_transfer){.queue = queue,
                                               .direction = direction,
                                               .mem = mem,
                                               .region = &region,
                                               .host = ptr,
                                               .blocking = blocking,
                                               .wait_count = count,
                                               .waits = list},
                        command, event);
}

cl_int CL_API_CALL dvc_clEnqueueReadImage(cl_command_queue command_queue, cl_mem image, cl_bool blocking_read,
                                          const size_t *origin, const size_t *region, size_t row_pitch,
                                          size_t slice_pitch, void *ptr, cl_uint num_events_in_wait_list,
                                          const cl_event *event_wait_list, cl_event *event)
{
    return image_box(command_queue, CL_COMMAND_READ_IMAGE, DV_FROM_DEVICE, image, blocking_read, origin, region,
                     row_pitch, slice_pitch, ptr, num_events_in_wait_list, event_wait_list, event);
}

cl_int CL_API_CALL dvc_clEnqueueWriteImage(cl_command_queue command_queue, cl_mem image, cl_bool blocking_write,
                                           const size_t *origin, const size_t *region, size_t input_row_pitch,
                                           size_t input_slice_pitch, const void *ptr, cl_uint num_events_in_wait_list,
                                           const cl_event *event_wait_list, cl_event *event)
{
    return image_box(command_queue, CL_COMMAND_WRITE_IMAGE, DV_TO_DEVICE, image, blocking_write, origin, region,
                     input_row_pitch, input_slice_pitch, (void *)ptr, num_events_in_wait_list, event_wait_list, event);
}
