/* Information that only the vendor has. The generated dvk_query knows which parameters may pass:
 * none whose answer holds a vendor's handle. */
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/worker/opencl/executor.h"

/* All binaries of a program: for each device u64 length, the binary, padding to 8 bytes. */
static int32_t program_binaries(struct dvk_worker *w, const struct dvw_query *m, size_t capacity, uint8_t *value,
                                size_t *bytes)
{
    struct dvk_program *program = dvk_find_program(w, m->object);
    size_t lengths[DV_MAX_DEVICES] = {0}, got = 0, total = 0;
    unsigned char *binaries[DV_MAX_DEVICES] = {0};
    cl_int error;

    if (!program)
        return CL_INVALID_PROGRAM;
    error = clGetProgramInfo(program->vendor, CL_PROGRAM_BINARY_SIZES, sizeof lengths, lengths, &got);
    if (error != CL_SUCCESS)
        return error;
    size_t count = got / sizeof lengths[0];
    for (size_t i = 0; i < count; i++)
        total += 8 + dv_record_align(lengths[i]);
    *bytes = total;
    if (capacity < total)
        return CL_SUCCESS; /* the client asks again with enough room */
    for (size_t i = 0, at = 0; i < count; i++) {
        uint64_t length = lengths[i];
        memcpy(value + at, &length, 8);
        binaries[i] = lengths[i] ? value + at + 8 : NULL;
        at += 8 + dv_record_align(lengths[i]);
    }
    return clGetProgramInfo(program->vendor, CL_PROGRAM_BINARIES, count * sizeof binaries[0], binaries, NULL);
}

static int32_t image_formats(struct dvk_worker *w, const struct dvw_query *m, const uint8_t *input, size_t capacity,
                             void *value, size_t *bytes)
{
    struct dvk_context *context = dvk_find_context(w, m->object);
    cl_uint count = 0;
    uint64_t flags;

    if (!context)
        return CL_INVALID_CONTEXT;
    if (m->input_bytes != sizeof flags)
        return CL_INVALID_VALUE;
    memcpy(&flags, input, sizeof flags);
    cl_uint room = (cl_uint)(capacity / sizeof(cl_image_format));
    cl_int error = clGetSupportedImageFormats(context->vendor, flags, m->param, room, room ? value : NULL, &count);
    *bytes = count * sizeof(cl_image_format);
    return error;
}

int32_t dvk_query_by_hand(struct dvk_worker *w, const struct dvw_query *m, const uint8_t *input, size_t capacity,
                          void *value, size_t *bytes)
{
    switch (m->function) {
    case DVW_QUERY_clGetSupportedImageFormats:
        return image_formats(w, m, input, capacity, value, bytes);
    default:
        return CL_INVALID_VALUE;
    }
}

/* Shows the tenant's quota as the device's memory. */
static void show_quota(struct dvk_worker *w, const struct dvw_query *m, struct dvk_reply *reply, size_t bytes)
{
    const struct dvk_device *device = dvk_find_device(w, m->object);
    cl_ulong value;

    if ((m->param != CL_DEVICE_GLOBAL_MEM_SIZE && m->param != CL_DEVICE_MAX_MEM_ALLOC_SIZE) || bytes != sizeof value ||
        reply->capacity < sizeof value || !device)
        return;
    uint64_t quota = w->runtime->start->devices[device->index].memory_bytes;
    memcpy(&value, reply->data, sizeof value);
    if (quota && (value > quota || m->param == CL_DEVICE_GLOBAL_MEM_SIZE))
        value = quota;
    memcpy(reply->data, &value, sizeof value);
}

int32_t dvk_on_query(struct dvk_worker *w, const struct dvw_query *m, const uint8_t *tail, size_t tail_bytes,
                     struct dvk_reply *reply)
{
    size_t bytes = 0;
    int32_t error;

    if (m->input_bytes > tail_bytes)
        return CL_INVALID_VALUE;
    if (m->function == DVW_QUERY_clGetProgramInfo && m->param == CL_PROGRAM_BINARIES) {
        error = program_binaries(w, m, reply->capacity, reply->data, &bytes);
    } else {
        error = dvk_query(w, m, tail, reply->capacity, reply->capacity ? reply->data : NULL, &bytes);
        if (error == CL_INVALID_VALUE && reply->capacity > 0) {
            /* perhaps the room was only too small: the length lets the client tell */
            error = dvk_query(w, m, tail, 0, NULL, &bytes);
        }
    }
    if (error == CL_SUCCESS && m->function == DVW_QUERY_clGetDeviceInfo)
        show_quota(w, m, reply, bytes);
    reply->bytes = bytes;
    return error;
}
