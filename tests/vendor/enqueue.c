/*
 * The clEnqueue functions: each checks its arguments, turns them into a command and hands it to
 * the queue.
 */
#include "vendor.h"

#include <CL/cl_half.h>

#include <stdlib.h>
#include <string.h>

/* Ends an enqueue function: hands over a good command, throws a bad one away. */
static cl_int submit(struct dv_command *command, cl_int error, cl_bool blocking, cl_event *event_ret)
{
    if (error != CL_SUCCESS) {
        dv_command_destroy(command);
        return error;
    }
    return dv_command_enqueue(command, blocking, event_ret);
}

/* ---- checks ---------------------------------------------------------------------------------*/

enum host_use { HOST_NOT, HOST_READS, HOST_WRITES };

static cl_int take_mem(struct dv_command *command, cl_mem mem, bool image, enum host_use use)
{
    if (!dv_object_is(mem, DV_KIND_MEM) || dv_mem_is_image(mem) != image) {
        return CL_INVALID_MEM_OBJECT;
    }
    if (mem->context != command->queue->context) {
        return CL_INVALID_CONTEXT;
    }
    if ((use == HOST_READS && (mem->flags & (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS))) ||
        (use == HOST_WRITES && (mem->flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)))) {
        return CL_INVALID_OPERATION;
    }
    dv_command_keep(command, mem);
    return CL_SUCCESS;
}

static cl_int check_range(cl_mem mem, size_t offset, size_t size)
{
    return size == 0 || offset > mem->size || size > mem->size - offset ? CL_INVALID_VALUE : CL_SUCCESS;
}

static void set_line(struct dv_command *command, enum dv_operation operation, void *dst, const void *src, size_t size)
{
    command->operation = operation;
    command->dst = (struct dv_rect){.base = dst};
    command->src = (struct dv_rect){.base = (char *)src};
    command->row_bytes = size;
    command->height = command->depth = 1;
}

/* Fills in pitches that were left out and checks the others. */
static cl_int fix_pitches(const size_t region[3], size_t *row, size_t *slice)
{
    if (*row == 0) {
        *row = region[0];
    }
    size_t tight;
    if (*row < region[0] || __builtin_mul_overflow(*row, region[1], &tight)) {
        return CL_INVALID_VALUE;
    }
    if (*slice == 0) {
        *slice = tight;
    }
    return *slice < tight || *slice % *row != 0 ? CL_INVALID_VALUE : CL_SUCCESS;
}

/* Byte offset of a rectangle's first byte, and the end of its last; false on overflow. */
static bool rect_span(const size_t origin[3], const size_t region[3], size_t row, size_t slice, size_t *start,
                      size_t *end)
{
    size_t z, y, last_z, last_y;
    return !__builtin_mul_overflow(origin[2], slice, &z) && !__builtin_mul_overflow(origin[1], row, &y) &&
           !__builtin_mul_overflow(region[2] - 1, slice, &last_z) &&
           !__builtin_mul_overflow(region[1] - 1, row, &last_y) && !__builtin_add_overflow(z, y, start) &&
           !__builtin_add_overflow(*start, origin[0], start) && !__builtin_add_overflow(*start, last_z, end) &&
           !__builtin_add_overflow(*end, last_y, end) && !__builtin_add_overflow(*end, region[0], end);
}

static bool region_is_empty(const size_t region[3])
{
    return region[0] == 0 || region[1] == 0 || region[2] == 0;
}

/* A rectangle in memory of `limit` bytes (SIZE_MAX: the application's, not known). */
static cl_int make_rect(char *base, size_t limit, const size_t origin[3], const size_t region[3], size_t row,
                        size_t slice, struct dv_rect *rect)
{
    size_t start, end;
    cl_int error = fix_pitches(region, &row, &slice);
    if (error != CL_SUCCESS || !rect_span(origin, region, row, slice, &start, &end) || end > limit) {
        return CL_INVALID_VALUE;
    }
    *rect = (struct dv_rect){base + start, row, slice};
    return CL_SUCCESS;
}

static void set_region(struct dv_command *command, enum dv_operation operation, const size_t region[3],
                       size_t element_bytes)
{
    command->operation = operation;
    command->row_bytes = region[0] * element_bytes;
    command->height = region[1];
    command->depth = region[2];
}

static cl_int check_image_region(cl_mem image, const size_t *origin, const size_t *region)
{
    if (origin == NULL || region == NULL || region_is_empty(region)) {
        return CL_INVALID_VALUE;
    }
    size_t extent[3];
    dv_image_extent(image, extent);
    for (int i = 0; i < 3; i++) {
        if (origin[i] > extent[i] || region[i] > extent[i] - origin[i]) {
            return CL_INVALID_VALUE;
        }
    }
    return CL_SUCCESS;
}

/* ---- buffers --------------------------------------------------------------------------------*/

cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                                       size_t size, void *ptr, cl_uint num_waits, const cl_event *waits,
                                       cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command = dv_command_create(__func__, queue, CL_COMMAND_READ_BUFFER, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = take_mem(command, buffer, false, HOST_READS);
    if (error == CL_SUCCESS) {
        error = ptr == NULL ? CL_INVALID_VALUE : check_range(buffer, offset, size);
    }
    if (error == CL_SUCCESS) {
        set_line(command, DV_OP_COPY, ptr, buffer->data + offset, size);
    }
    return submit(command, error, blocking, event);
}

cl_int CL_API_CALL clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                                        size_t size, const void *ptr, cl_uint num_waits, const cl_event *waits,
                                        cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command = dv_command_create(__func__, queue, CL_COMMAND_WRITE_BUFFER, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = take_mem(command, buffer, false, HOST_WRITES);
    if (error == CL_SUCCESS) {
        error = ptr == NULL ? CL_INVALID_VALUE : check_range(buffer, offset, size);
    }
    if (error == CL_SUCCESS) {
        set_line(command, DV_OP_COPY, buffer->data + offset, ptr, size);
    }
    return submit(command, error, blocking, event);
}

/* Between a buffer and the application's memory, one as good as the other. */
static cl_int set_buffer_rect(struct dv_command *command, cl_mem buffer, bool to_buffer, const size_t *buffer_origin,
                              const size_t *host_origin, const size_t *region, size_t buffer_row, size_t buffer_slice,
                              size_t host_row, size_t host_slice, char *ptr)
{
    if (buffer_origin == NULL || host_origin == NULL || region == NULL || ptr == NULL || region_is_empty(region)) {
        return CL_INVALID_VALUE;
    }
    struct dv_rect inside, outside;
    if (make_rect(buffer->data, buffer->size, buffer_origin, region, buffer_row, buffer_slice, &inside) != CL_SUCCESS ||
        make_rect(ptr, SIZE_MAX, host_origin, region, host_row, host_slice, &outside) != CL_SUCCESS) {
        return CL_INVALID_VALUE;
    }
    command->dst = to_buffer ? inside : outside;
    command->src = to_buffer ? outside : inside;
    set_region(command, DV_OP_COPY, region, 1);
    return CL_SUCCESS;
}

cl_int CL_API_CALL clEnqueueReadBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                           const size_t *buffer_origin, const size_t *host_origin, const size_t *region,
                                           size_t buffer_row, size_t buffer_slice, size_t host_row, size_t host_slice,
                                           void *ptr, cl_uint num_waits, const cl_event *waits, cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command =
        dv_command_create(__func__, queue, CL_COMMAND_READ_BUFFER_RECT, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = take_mem(command, buffer, false, HOST_READS);
    if (error == CL_SUCCESS) {
        error = set_buffer_rect(command, buffer, false, buffer_origin, host_origin, region, buffer_row, buffer_slice,
                                host_row, host_slice, ptr);
    }
    return submit(command, error, blocking, event);
}

cl_int CL_API_CALL clEnqueueWriteBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                            const size_t *buffer_origin, const size_t *host_origin,
                                            const size_t *region, size_t buffer_row, size_t buffer_slice,
                                            size_t host_row, size_t host_slice, const void *ptr, cl_uint num_waits,
                                            const cl_event *waits, cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command =
        dv_command_create(__func__, queue, CL_COMMAND_WRITE_BUFFER_RECT, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = take_mem(command, buffer, false, HOST_WRITES);
    if (error == CL_SUCCESS) {
        error = set_buffer_rect(command, buffer, true, buffer_origin, host_origin, region, buffer_row, buffer_slice,
                                host_row, host_slice, (char *)ptr);
    }
    return submit(command, error, blocking, event);
}

cl_int CL_API_CALL clEnqueueCopyBuffer(cl_command_queue queue, cl_mem src, cl_mem dst, size_t src_offset,
                                       size_t dst_offset, size_t size, cl_uint num_waits, const cl_event *waits,
                                       cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command = dv_command_create(__func__, queue, CL_COMMAND_COPY_BUFFER, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = take_mem(command, src, false, HOST_NOT);
    if (error == CL_SUCCESS) {
        error = take_mem(command, dst, false, HOST_NOT);
    }
    if (error == CL_SUCCESS) {
        error = check_range(src, src_offset, size);
    }
    if (error == CL_SUCCESS) {
        error = check_range(dst, dst_offset, size);
    }
    if (error == CL_SUCCESS) {
        uintptr_t from = (uintptr_t)src->data + src_offset;
        uintptr_t to = (uintptr_t)dst->data + dst_offset;
        if (from < to + size && to < from + size) {
            error = CL_MEM_COPY_OVERLAP;
        }
        set_line(command, DV_OP_COPY, dst->data + dst_offset, src->data + src_offset, size);
    }
    return submit(command, error, CL_FALSE, event);
}

cl_int CL_API_CALL clEnqueueCopyBufferRect(cl_command_queue queue, cl_mem src, cl_mem dst, const size_t *src_origin,
                                           const size_t *dst_origin, const size_t *region, size_t src_row,
                                           size_t src_slice, size_t dst_row, size_t dst_slice, cl_uint num_waits,
                                           const cl_event *waits, cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command =
        dv_command_create(__func__, queue, CL_COMMAND_COPY_BUFFER_RECT, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = take_mem(command, src, false, HOST_NOT);
    if (error == CL_SUCCESS) {
        error = take_mem(command, dst, false, HOST_NOT);
    }
    if (error == CL_SUCCESS &&
        (src_origin == NULL || dst_origin == NULL || region == NULL || region_is_empty(region) ||
         make_rect(src->data, src->size, src_origin, region, src_row, src_slice, &command->src) != CL_SUCCESS ||
         make_rect(dst->data, dst->size, dst_origin, region, dst_row, dst_slice, &command->dst) != CL_SUCCESS)) {
        error = CL_INVALID_VALUE;
    }
    if (error == CL_SUCCESS) {
        set_region(command, DV_OP_COPY, region, 1);
    }
    return submit(command, error, CL_FALSE, event);
}

cl_int CL_API_CALL clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void *pattern, size_t pattern_size,
                                       size_t offset, size_t size, cl_uint num_waits, const cl_event *waits,
                                       cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command = dv_command_create(__func__, queue, CL_COMMAND_FILL_BUFFER, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = take_mem(command, buffer, false, HOST_NOT);
    if (error == CL_SUCCESS) {
        bool power_of_two = pattern_size != 0 && (pattern_size & (pattern_size - 1)) == 0;
        bool good = pattern != NULL && power_of_two && pattern_size <= DV_MAX_FILL_PATTERN &&
                    offset % pattern_size == 0 && size % pattern_size == 0;
        error = good ? check_range(buffer, offset, size) : CL_INVALID_VALUE;
    }
    if (error == CL_SUCCESS) {
        memcpy(command->pattern, pattern, pattern_size);
        command->pattern_bytes = pattern_size;
        set_line(command, DV_OP_FILL, buffer->data + offset, NULL, size);
    }
    return submit(command, error, CL_FALSE, event);
}

/* ---- images ---------------------------------------------------------------------------------*/

/* The application's side of an image transfer. */
static cl_int host_image_rect(cl_mem image, const size_t region[3], size_t row, size_t slice, char *ptr,
                              struct dv_rect *rect)
{
    size_t tight_row = region[0] * image->element_bytes;
    if (ptr == NULL || (row != 0 && row < tight_row)) {
        return CL_INVALID_VALUE;
    }
    row = row != 0 ? row : tight_row;
    bool layered_lines = image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    size_t tight_slice = layered_lines ? row : row * region[1];
    if (slice != 0 && slice < tight_slice) {
        return CL_INVALID_VALUE;
    }
    slice = slice != 0 ? slice : tight_slice;
    *rect = (struct dv_rect){ptr, layered_lines ? slice : row, slice};
    return CL_SUCCESS;
}

static cl_int set_image_transfer(struct dv_command *command, cl_mem image, bool to_image, const size_t *origin,
                                 const size_t *region, size_t row, size_t slice, char *ptr)
{
    cl_int error = take_mem(command, image, true, to_image ? HOST_WRITES : HOST_READS);
    struct dv_rect outside = {0};
    if (error == CL_SUCCESS) {
        error = check_image_region(image, origin, region);
    }
    if (error == CL_SUCCESS) {
        error = host_image_rect(image, region, row, slice, ptr, &outside);
    }
    if (error == CL_SUCCESS) {
        struct dv_rect inside = dv_image_rect(image, origin);
        command->dst = to_image ? inside : outside;
        command->src = to_image ? outside : inside;
        set_region(command, DV_OP_COPY, region, image->element_bytes);
    }
    return error;
}

cl_int CL_API_CALL clEnqueueReadImage(cl_command_queue queue, cl_mem image, cl_bool blocking, const size_t *origin,
                                      const size_t *region, size_t row_pitch, size_t slice_pitch, void *ptr,
                                      cl_uint num_waits, const cl_event *waits, cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command = dv_command_create(__func__, queue, CL_COMMAND_READ_IMAGE, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = set_image_transfer(command, image, false, origin, region, row_pitch, slice_pitch, ptr);
    return submit(command, error, blocking, event);
}

cl_int CL_API_CALL clEnqueueWriteImage(cl_command_queue queue, cl_mem image, cl_bool blocking, const size_t *origin,
                                       const size_t *region, size_t row_pitch, size_t slice_pitch, const void *ptr,
                                       cl_uint num_waits, const cl_event *waits, cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command = dv_command_create(__func__, queue, CL_COMMAND_WRITE_IMAGE, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = set_image_transfer(command, image, true, origin, region, row_pitch, slice_pitch, (char *)ptr);
    return submit(command, error, blocking, event);
}

cl_int CL_API_CALL clEnqueueCopyImage(cl_command_queue queue, cl_mem src, cl_mem dst, const size_t *src_origin,
                                      const size_t *dst_origin, const size_t *region, cl_uint num_waits,
                                      const cl_event *waits, cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command = dv_command_create(__func__, queue, CL_COMMAND_COPY_IMAGE, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = take_mem(command, src, true, HOST_NOT);
    if (error == CL_SUCCESS) {
        error = take_mem(command, dst, true, HOST_NOT);
    }
    if (error == CL_SUCCESS && memcmp(&src->format, &dst->format, sizeof src->format) != 0) {
        error = CL_IMAGE_FORMAT_MISMATCH;
    }
    if (error == CL_SUCCESS) {
        error = check_image_region(src, src_origin, region);
    }
    if (error == CL_SUCCESS) {
        error = check_image_region(dst, dst_origin, region);
    }
    if (error == CL_SUCCESS) {
        command->src = dv_image_rect(src, src_origin);
        command->dst = dv_image_rect(dst, dst_origin);
        set_region(command, DV_OP_COPY, region, src->element_bytes);
    }
    return submit(command, error, CL_FALSE, event);
}

static cl_int set_image_and_buffer(struct dv_command *command, cl_mem image, cl_mem buffer, bool to_image,
                                   const size_t *origin, const size_t *region, size_t offset)
{
    cl_int error = take_mem(command, image, true, HOST_NOT);
    if (error == CL_SUCCESS) {
        error = take_mem(command, buffer, false, HOST_NOT);
    }
    if (error == CL_SUCCESS) {
        error = check_image_region(image, origin, region);
    }
    if (error != CL_SUCCESS) {
        return error;
    }
    size_t row = region[0] * image->element_bytes;
    error = check_range(buffer, offset, row * region[1] * region[2]);
    if (error != CL_SUCCESS) {
        return error;
    }
    struct dv_rect packed = {buffer->data + offset, row, row * region[1]};
    struct dv_rect inside = dv_image_rect(image, origin);
    command->dst = to_image ? inside : packed;
    command->src = to_image ? packed : inside;
    set_region(command, DV_OP_COPY, region, image->element_bytes);
    return CL_SUCCESS;
}

cl_int CL_API_CALL clEnqueueCopyImageToBuffer(cl_command_queue queue, cl_mem image, cl_mem buffer, const size_t *origin,
                                              const size_t *region, size_t offset, cl_uint num_waits,
                                              const cl_event *waits, cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command =
        dv_command_create(__func__, queue, CL_COMMAND_COPY_IMAGE_TO_BUFFER, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = set_image_and_buffer(command, image, buffer, false, origin, region, offset);
    return submit(command, error, CL_FALSE, event);
}

cl_int CL_API_CALL clEnqueueCopyBufferToImage(cl_command_queue queue, cl_mem buffer, cl_mem image, size_t offset,
                                              const size_t *origin, const size_t *region, cl_uint num_waits,
                                              const cl_event *waits, cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command =
        dv_command_create(__func__, queue, CL_COMMAND_COPY_BUFFER_TO_IMAGE, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = set_image_and_buffer(command, image, buffer, true, origin, region, offset);
    return submit(command, error, CL_FALSE, event);
}

/* Stores one channel of a fill colour in the image's format; returns its size. */
static size_t pack_channel(cl_channel_type type, const void *color, unsigned channel, unsigned char *out)
{
    cl_float real;
    cl_int whole;
    memcpy(&real, (const char *)color + channel * sizeof real, sizeof real);
    memcpy(&whole, (const char *)color + channel * sizeof whole, sizeof whole);
    cl_float low = type == CL_SNORM_INT8 || type == CL_SNORM_INT16 ? -1.0f : 0.0f;
    cl_float clamped = real < low ? low : real > 1.0f ? 1.0f : real;
#define PACK(ctype, value)                                                                                             \
    do {                                                                                                               \
        ctype packed_ = (ctype)(value);                                                                                \
        memcpy(out, &packed_, sizeof packed_);                                                                         \
        return sizeof packed_;                                                                                         \
    } while (0)
#define ROUND(value) ((value) < 0 ? (value)-0.5f : (value) + 0.5f)
    switch (type) {
    case CL_UNORM_INT8:
        PACK(cl_uchar, ROUND(clamped * 255.0f));
    case CL_UNORM_INT16:
        PACK(cl_ushort, ROUND(clamped * 65535.0f));
    case CL_SNORM_INT8:
        PACK(cl_char, ROUND(clamped * 127.0f));
    case CL_SNORM_INT16:
        PACK(cl_short, ROUND(clamped * 32767.0f));
    case CL_SIGNED_INT8:
    case CL_UNSIGNED_INT8:
        PACK(cl_uchar, whole);
    case CL_SIGNED_INT16:
    case CL_UNSIGNED_INT16:
        PACK(cl_ushort, whole);
    case CL_HALF_FLOAT:
        PACK(cl_half, cl_half_from_float(real, CL_HALF_RTE));
    default: /* 32-bit integers and floats are stored as they are */
        PACK(cl_int, whole);
    }
#undef PACK
#undef ROUND
}

static size_t pack_color(const cl_image_format *format, const void *color, unsigned char *out)
{
    static const unsigned char rgba[] = {0, 1, 2, 3}, bgra[] = {2, 1, 0, 3};
    const unsigned char *order = format->image_channel_order == CL_BGRA ? bgra : rgba;
    unsigned channels = format->image_channel_order == CL_R ? 1 : format->image_channel_order == CL_RG ? 2 : 4;
    size_t used = 0;
    for (unsigned i = 0; i < channels; i++) {
        used += pack_channel(format->image_channel_data_type, color, order[i], out + used);
    }
    return used;
}

cl_int CL_API_CALL clEnqueueFillImage(cl_command_queue queue, cl_mem image, const void *color, const size_t *origin,
                                      const size_t *region, cl_uint num_waits, const cl_event *waits, cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command = dv_command_create(__func__, queue, CL_COMMAND_FILL_IMAGE, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = take_mem(command, image, true, HOST_NOT);
    if (error == CL_SUCCESS) {
        error = color == NULL ? CL_INVALID_VALUE : check_image_region(image, origin, region);
    }
    if (error == CL_SUCCESS) {
        command->pattern_bytes = pack_color(&image->format, color, command->pattern);
        command->dst = dv_image_rect(image, origin);
        set_region(command, DV_OP_FILL, region, image->element_bytes);
    }
    return submit(command, error, CL_FALSE, event);
}

/* ---- maps -----------------------------------------------------------------------------------*/

static cl_int check_map_flags(cl_mem mem, cl_map_flags flags)
{
    const cl_map_flags writes = CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
    if ((flags & ~(CL_MAP_READ | writes)) != 0 ||
        ((flags & CL_MAP_WRITE_INVALIDATE_REGION) != 0 && (flags & (CL_MAP_READ | CL_MAP_WRITE)) != 0)) {
        return CL_INVALID_VALUE;
    }
    bool refused = (mem->flags & CL_MEM_HOST_NO_ACCESS) != 0 ||
                   ((flags & CL_MAP_READ) != 0 && (mem->flags & CL_MEM_HOST_WRITE_ONLY) != 0) ||
                   ((flags & writes) != 0 && (mem->flags & CL_MEM_HOST_READ_ONLY) != 0);
    return refused ? CL_INVALID_OPERATION : CL_SUCCESS;
}

/* Notes a map of `storage` and sets the command to do it; NULL if memory is short. */
static struct dv_mapping *make_mapping(struct dv_command *command, cl_mem mem, struct dv_rect storage, size_t row_bytes,
                                       size_t height, size_t depth, cl_map_flags flags)
{
    struct dv_mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL) {
        return NULL;
    }
    mapping->storage = storage.base;
    mapping->storage_row_pitch = storage.row_pitch;
    mapping->storage_slice_pitch = storage.slice_pitch;
    mapping->row_bytes = row_bytes;
    mapping->height = height;
    mapping->depth = depth;
    mapping->flags = flags;
    mapping->pointer = storage.base;
    mapping->pointer_row_pitch = storage.row_pitch;
    mapping->pointer_slice_pitch = storage.slice_pitch;
    /* a map of the application's own memory must be that memory, as the standard says */
    if (dv_settings_get()->maps_copied && (mem->flags & CL_MEM_USE_HOST_PTR) == 0) {
        mapping->staging = malloc(row_bytes * height * depth);
        if (mapping->staging == NULL) {
            free(mapping);
            return NULL;
        }
        memset(mapping->staging, 0x5c, row_bytes * height * depth);
        mapping->pointer = mapping->staging;
        mapping->pointer_row_pitch = row_bytes;
        mapping->pointer_slice_pitch = row_bytes * height;
        if ((flags & CL_MAP_WRITE_INVALIDATE_REGION) == 0) {
            command->operation = DV_OP_COPY;
            command->src = storage;
            command->dst = (struct dv_rect){mapping->pointer, mapping->pointer_row_pitch, mapping->pointer_slice_pitch};
            command->row_bytes = row_bytes;
            command->height = height;
            command->depth = depth;
        }
    }
    pthread_mutex_lock(&mem->lock);
    mapping->next = mem->mappings;
    mem->mappings = mapping;
    pthread_mutex_unlock(&mem->lock);
    return mapping;
}

/* Takes the mapping at this address out of the object's list. */
static struct dv_mapping *take_mapping(cl_mem mem, const void *pointer)
{
    struct dv_mapping *found = NULL;
    pthread_mutex_lock(&mem->lock);
    for (struct dv_mapping **place = &mem->mappings; *place != NULL; place = &(*place)->next) {
        if ((*place)->pointer == pointer) {
            found = *place;
            *place = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&mem->lock);
    return found;
}

/* Ends a map function: the pointer, or NULL when the blocking map failed. */
static void *submit_map(struct dv_command *command, cl_mem mem, struct dv_mapping *mapping, cl_bool blocking,
                        cl_event *event, cl_int *errcode_ret)
{
    char *pointer = mapping->pointer;
    dv_object_ref(mem);
    cl_int error = submit(command, CL_SUCCESS, blocking, event);
    if (error != CL_SUCCESS) {
        struct dv_mapping *failed = take_mapping(mem, pointer);
        if (failed != NULL) {
            free(failed->staging);
            free(failed);
        }
        pointer = NULL;
    }
    dv_object_unref(mem);
    dv_fail(errcode_ret, error);
    return pointer;
}

void *CL_API_CALL clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_map_flags flags,
                                     size_t offset, size_t size, cl_uint num_waits, const cl_event *waits,
                                     cl_event *event, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    cl_int error;
    struct dv_command *command = dv_command_create(__func__, queue, CL_COMMAND_MAP_BUFFER, num_waits, waits, &error);
    if (command == NULL) {
        return dv_fail(errcode_ret, error);
    }
    error = take_mem(command, buffer, false, HOST_NOT);
    if (error == CL_SUCCESS) {
        error = check_map_flags(buffer, flags);
    }
    if (error == CL_SUCCESS) {
        error = check_range(buffer, offset, size);
    }
    struct dv_mapping *mapping = NULL;
    if (error == CL_SUCCESS) {
        mapping = make_mapping(command, buffer, (struct dv_rect){.base = buffer->data + offset}, size, 1, 1, flags);
        error = mapping != NULL ? CL_SUCCESS : CL_MAP_FAILURE;
    }
    if (error != CL_SUCCESS) {
        dv_command_destroy(command);
        return dv_fail(errcode_ret, error);
    }
    return submit_map(command, buffer, mapping, blocking, event, errcode_ret);
}

void *CL_API_CALL clEnqueueMapImage(cl_command_queue queue, cl_mem image, cl_bool blocking, cl_map_flags flags,
                                    const size_t *origin, const size_t *region, size_t *row_pitch, size_t *slice_pitch,
                                    cl_uint num_waits, const cl_event *waits, cl_event *event, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    cl_int error;
    struct dv_command *command = dv_command_create(__func__, queue, CL_COMMAND_MAP_IMAGE, num_waits, waits, &error);
    if (command == NULL) {
        return dv_fail(errcode_ret, error);
    }
    error = take_mem(command, image, true, HOST_NOT);
    if (error == CL_SUCCESS) {
        error = check_map_flags(image, flags);
    }
    if (error == CL_SUCCESS) {
        error = row_pitch == NULL ? CL_INVALID_VALUE : check_image_region(image, origin, region);
    }
    bool sliced =
        error == CL_SUCCESS && (image->type == CL_MEM_OBJECT_IMAGE3D || image->type == CL_MEM_OBJECT_IMAGE2D_ARRAY ||
                                image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY);
    if (sliced && slice_pitch == NULL) {
        error = CL_INVALID_VALUE;
    }
    struct dv_mapping *mapping = NULL;
    if (error == CL_SUCCESS) {
        mapping = make_mapping(command, image, dv_image_rect(image, origin), region[0] * image->element_bytes,
                               region[1], region[2], flags);
        error = mapping != NULL ? CL_SUCCESS : CL_MAP_FAILURE;
    }
    if (error != CL_SUCCESS) {
        dv_command_destroy(command);
        return dv_fail(errcode_ret, error);
    }
    /* a 1D array's layers are the second dimension here, and slices to the application */
    bool layered_lines = image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    *row_pitch = layered_lines && mapping->staging == NULL ? image->row_pitch : mapping->pointer_row_pitch;
    if (slice_pitch != NULL) {
        *slice_pitch = !sliced ? 0 : layered_lines ? mapping->pointer_row_pitch : mapping->pointer_slice_pitch;
    }
    return submit_map(command, image, mapping, blocking, event, errcode_ret);
}

cl_int CL_API_CALL clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem mem, void *pointer, cl_uint num_waits,
                                           const cl_event *waits, cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command =
        dv_command_create(__func__, queue, CL_COMMAND_UNMAP_MEM_OBJECT, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error =
        dv_object_is(mem, DV_KIND_MEM) ? take_mem(command, mem, dv_mem_is_image(mem), HOST_NOT) : CL_INVALID_MEM_OBJECT;
    if (error == CL_SUCCESS) {
        struct dv_mapping *mapping = take_mapping(mem, pointer);
        error = mapping != NULL ? CL_SUCCESS : CL_INVALID_VALUE;
        command->mapping = mapping;
        if (mapping != NULL && mapping->staging != NULL && (mapping->flags & ~CL_MAP_READ) != 0) {
            command->operation = DV_OP_UNMAP;
            command->dst = (struct dv_rect){mapping->storage, mapping->storage_row_pitch, mapping->storage_slice_pitch};
            command->src = (struct dv_rect){mapping->pointer, mapping->pointer_row_pitch, mapping->pointer_slice_pitch};
            command->row_bytes = mapping->row_bytes;
            command->height = mapping->height;
            command->depth = mapping->depth;
        }
    }
    return submit(command, error, CL_FALSE, event);
}

cl_int CL_API_CALL clEnqueueMigrateMemObjects(cl_command_queue queue, cl_uint num_objects, const cl_mem *objects,
                                              cl_mem_migration_flags flags, cl_uint num_waits, const cl_event *waits,
                                              cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command =
        dv_command_create(__func__, queue, CL_COMMAND_MIGRATE_MEM_OBJECTS, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    const cl_mem_migration_flags known = CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
    if (num_objects == 0 || objects == NULL || (flags & ~known) != 0) {
        error = CL_INVALID_VALUE;
    } else {
        command->more_objects = calloc(num_objects, sizeof objects[0]);
        error = command->more_objects != NULL ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    }
    for (cl_uint i = 0; error == CL_SUCCESS && i < num_objects; i++) {
        if (!dv_object_is(objects[i], DV_KIND_MEM)) {
            error = CL_INVALID_MEM_OBJECT;
        } else if (objects[i]->context != queue->context) {
            error = CL_INVALID_CONTEXT;
        } else {
            dv_object_ref(objects[i]);
            command->more_objects[command->num_more_objects++] = objects[i];
        }
    }
    return submit(command, error, CL_FALSE, event);
}

/* ---- kernels --------------------------------------------------------------------------------*/

static cl_int set_range(struct dv_command *command, cl_uint work_dim, const size_t *offset, const size_t *global)
{
    if (work_dim < 1 || work_dim > 3) {
        return CL_INVALID_WORK_DIMENSION;
    }
    size_t items = 1;
    for (cl_uint i = 0; i < 3; i++) {
        size_t size = i < work_dim && global != NULL ? global[i] : (global == NULL ? 0 : 1);
        size_t first = i < work_dim && offset != NULL ? offset[i] : 0;
        if (size > SIZE_MAX - first || __builtin_mul_overflow(items, size, &items)) {
            return CL_INVALID_GLOBAL_OFFSET;
        }
        command->launch.global[i] = size;
        command->launch.offset[i] = first;
    }
    return CL_SUCCESS;
}

static cl_int check_groups(const struct dv_command *command, cl_uint work_dim, const size_t *local)
{
    const size_t *required = command->launch.signature->required_group;
    if (local == NULL) {
        return required[0] != 0 ? CL_INVALID_WORK_GROUP_SIZE : CL_SUCCESS;
    }
    size_t product = 1;
    for (cl_uint i = 0; i < work_dim; i++) {
        if (local[i] > DV_MAX_WORK_GROUP_SIZE) {
            return CL_INVALID_WORK_ITEM_SIZE;
        }
        if (local[i] == 0 || command->launch.global[i] % local[i] != 0 ||
            (required[0] != 0 && local[i] != required[i])) {
            return CL_INVALID_WORK_GROUP_SIZE;
        }
        product *= local[i];
    }
    return product > DV_MAX_WORK_GROUP_SIZE ? CL_INVALID_WORK_GROUP_SIZE : CL_SUCCESS;
}

/* The arguments as they are now: the kernel may be given others for its next launch. */
static cl_int capture_arguments(struct dv_command *command, cl_kernel kernel)
{
    const struct dv_signature *signature = kernel->signature;
    for (cl_uint i = 0; i < signature->num_args; i++) {
        if (!kernel->args[i].set) {
            return CL_INVALID_KERNEL_ARGS;
        }
    }
    for (cl_uint i = 0; i < signature->num_args; i++) {
        const struct dv_arg *from = &kernel->args[i];
        struct dv_arg *to = &command->launch.args[i];
        *to = (struct dv_arg){.set = true, .size = from->size};
        if (from->value == NULL) {
            continue;
        }
        to->value = malloc(from->size);
        if (to->value == NULL) {
            return CL_OUT_OF_HOST_MEMORY;
        }
        memcpy(to->value, from->value, from->size);
        if (signature->args[i].class != DV_ARG_VALUE) {
            struct dv_object *object = NULL;
            memcpy(&object, to->value, sizeof object);
            if (object != NULL) {
                dv_command_keep(command, object);
            }
        }
    }
    return CL_SUCCESS;
}

static bool is_built_for(cl_program program, cl_device_id device)
{
    pthread_mutex_lock(&program->lock);
    bool built = program->status[device->index] == CL_BUILD_SUCCESS;
    pthread_mutex_unlock(&program->lock);
    return built;
}

static cl_int set_launch(struct dv_command *command, cl_kernel kernel, cl_uint work_dim, const size_t *offset,
                         const size_t *global, const size_t *local)
{
    if (!dv_object_is(kernel, DV_KIND_KERNEL)) {
        return CL_INVALID_KERNEL;
    }
    if (kernel->program->context != command->queue->context) {
        return CL_INVALID_CONTEXT;
    }
    if (!is_built_for(kernel->program, command->queue->device)) {
        return CL_INVALID_PROGRAM_EXECUTABLE;
    }
    dv_command_keep(command, kernel);
    command->operation = DV_OP_KERNEL;
    command->launch.signature = kernel->signature;
    cl_int error = set_range(command, work_dim, offset, global);
    if (error == CL_SUCCESS) {
        error = check_groups(command, work_dim, local);
    }
    return error == CL_SUCCESS ? capture_arguments(command, kernel) : error;
}

cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint work_dim,
                                          const size_t *offset, const size_t *global, const size_t *local,
                                          cl_uint num_waits, const cl_event *waits, cl_event *event)
{
    DV_ENTER();
    cl_int error;
    struct dv_command *command =
        dv_command_create(__func__, queue, CL_COMMAND_NDRANGE_KERNEL, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = set_launch(command, kernel, work_dim, offset, global, local);
    return submit(command, error, CL_FALSE, event);
}

cl_int CL_API_CALL clEnqueueTask(cl_command_queue queue, cl_kernel kernel, cl_uint num_waits, const cl_event *waits,
                                 cl_event *event)
{
    DV_ENTER();
    const size_t one = 1;
    cl_int error;
    struct dv_command *command = dv_command_create(__func__, queue, CL_COMMAND_TASK, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    error = set_launch(command, kernel, 1, NULL, &one, &one);
    return submit(command, error, CL_FALSE, event);
}

/* ---- markers and barriers -------------------------------------------------------------------*/

static cl_int enqueue_fence(const char *function, cl_command_queue queue, cl_command_type type, bool barrier,
                            cl_uint num_waits, const cl_event *waits, cl_event *event)
{
    cl_int error;
    struct dv_command *command = dv_command_create(function, queue, type, num_waits, waits, &error);
    if (command == NULL) {
        return error;
    }
    command->after_all_before = num_waits == 0;
    command->before_all_after = barrier;
    return submit(command, CL_SUCCESS, CL_FALSE, event);
}

cl_int CL_API_CALL clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint num_waits, const cl_event *waits,
                                               cl_event *event)
{
    DV_ENTER();
    return enqueue_fence(__func__, queue, CL_COMMAND_MARKER, false, num_waits, waits, event);
}

cl_int CL_API_CALL clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint num_waits, const cl_event *waits,
                                                cl_event *event)
{
    DV_ENTER();
    return enqueue_fence(__func__, queue, CL_COMMAND_BARRIER, true, num_waits, waits, event);
}

cl_int CL_API_CALL clEnqueueMarker(cl_command_queue queue, cl_event *event)
{
    DV_ENTER();
    if (event == NULL) {
        return CL_INVALID_VALUE;
    }
    return enqueue_fence(__func__, queue, CL_COMMAND_MARKER, false, 0, NULL, event);
}

cl_int CL_API_CALL clEnqueueBarrier(cl_command_queue queue)
{
    DV_ENTER();
    return enqueue_fence(__func__, queue, CL_COMMAND_BARRIER, true, 0, NULL, NULL);
}

cl_int CL_API_CALL clEnqueueWaitForEvents(cl_command_queue queue, cl_uint num_events, const cl_event *events)
{
    DV_ENTER();
    if (num_events == 0 || events == NULL) {
        return CL_INVALID_VALUE;
    }
    return enqueue_fence(__func__, queue, CL_COMMAND_BARRIER, true, num_events, events, NULL);
}
