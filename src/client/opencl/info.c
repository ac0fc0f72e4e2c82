/* Answers to information queries. */
#include <string.h>

#include "src/client/opencl/objects.h"

cl_int dvc_info_bytes(const void *value, size_t bytes, size_t room, void *into, size_t *bytes_ret)
{
    if (into && room < bytes)
        return CL_INVALID_VALUE;
    if (into && bytes)
        memcpy(into, value, bytes);
    if (bytes_ret)
        *bytes_ret = bytes;
    return CL_SUCCESS;
}

cl_int dvc_info_text(const char *text, size_t room, void *into, size_t *bytes_ret)
{
    if (!text)
        text = "";
    return dvc_info_bytes(text, strlen(text) + 1, room, into, bytes_ret);
}

cl_int dvc_query(struct dvc_session *s, uint32_t function, struct dv_object_id object, struct dv_object_id device,
                 cl_uint param, const void *input, size_t input_bytes, size_t room, void *into, size_t *bytes_ret)
{
    struct dvw_query message = {
        .function = function, .object = object, .device = device, .param = param, .input_bytes = (uint32_t)input_bytes};
    size_t bytes = 0;

    if (input_bytes > DV_MAX_RECORD_BYTES / 2)
        return CL_INVALID_VALUE;
    const size_t most = (size_t)64 << 20; /* no answer is larger, whatever size the caller claims */
    if (!into)
        room = 0;
    if (room > most)
        room = most;
    cl_int error = dvc_call(s, DVW_OP_QUERY, &message.head, sizeof message, input, input_bytes, into, room, &bytes);
    if (error != CL_SUCCESS)
        return error;
    if (into && bytes > room)
        return CL_INVALID_VALUE;
    if (bytes_ret)
        *bytes_ret = bytes;
    return CL_SUCCESS;
}
