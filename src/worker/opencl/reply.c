/* Answers to the client's calls, in shared memory. */
#include <limits.h>
#include <string.h>

#include "src/worker/opencl/executor.h"

struct dv_reply *dvk_find_reply(struct dvk_worker *w, uint64_t offset, uint64_t bytes)
{
    struct dv_reply *block = dvk_runtime_arena(w->runtime, offset, sizeof *block + bytes);

    /* An atomic access across two cache lines would stall the whole machine. */
    if (!block || offset % alignof(struct dv_reply))
        dvk_runtime_abandon(w->runtime, "named a reply outside its arena");
    return block;
}

void dvk_send_reply(struct dv_reply *block, int32_t status)
{
    block->status = status;
    if (atomic_exchange(&block->state, DV_REPLY_DONE) == DV_REPLY_SLEEPING)
        dv_futex_wake(&block->state, INT_MAX);
}

void dvk_reply_put(struct dvk_reply *reply, const void *data, size_t bytes)
{
    if (reply->bytes < reply->capacity) {
        size_t room = reply->capacity - reply->bytes;
        memcpy(reply->data + reply->bytes, data, bytes < room ? bytes : room);
    }
    reply->bytes += bytes;
}
