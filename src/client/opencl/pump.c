/* Moves the bytes of a command that is ready to run: through the arena in pieces, or in the storage that a buffer
 * shares with its device. */
#include <string.h>

#include "src/client/opencl/transfer.h"

/* Size of a piece, and number of pieces in flight: small enough to stay in the caches, enough to hide the
 * hand-overs. */
#define PIECE_MIN ((size_t)256 << 10)
#define PIECE_MAX ((size_t)1 << 20)
#define PIECES 4

bool dvc_has_storage(const struct dvc_mem *mem)
{
    return mem->arena != 0 && mem->type == CL_MEM_OBJECT_BUFFER;
}

void dvc_fill_transfer(struct dvw_transfer *m, const struct dvc_mem *mem, enum dv_direction direction,
                       const struct dvc_region *r)
{
    memset(m, 0, sizeof *m);
    m->mem = mem->object.id;
    m->direction = direction;
    m->shape = r->shape;
    m->row_pitch = r->row_pitch;
    m->slice_pitch = r->slice_pitch;
    m->bytes = r->bytes;
    for (int i = 0; i < 3; i++) {
        m->origin[i] = r->origin[i];
        m->region[i] = r->size[i];
    }
}

/* Sends a transfer outside the queue's order, for a command that is ready to run. */
static cl_int send_lane(struct dvc_queue *queue, const struct dvc_mem *mem, enum dv_direction direction,
                        const struct dvc_region *r, uint64_t arena, struct dvc_event *event)
{
    struct dvc_session *s = queue->object.session;
    struct dvw_transfer m;

    dvc_fill_transfer(&m, mem, direction, r);
    m.arena = arena;
    m.lane = 1;
    m.head.queue = queue->object.id;
    m.head.event = event->object.id.value;
    atomic_store(&event->slot->status, CL_QUEUED);
    return dvc_send(s, DVW_OP_TRANSFER, &m.head.record, sizeof m, NULL, 0);
}

/* Cuts a region into pieces of at most `most` bytes (or single rows); returns false at the end. */
struct cutter {
    const struct dvc_region *whole;
    size_t most;
    size_t at[3];
};

static bool cut(struct cutter *c, struct dvc_region *piece)
{
    const struct dvc_region *r = c->whole;

    *piece = *r;
    if (r->shape == DV_SHAPE_LINEAR) {
        if (c->at[0] >= r->bytes)
            return false;
        size_t bytes = r->bytes - c->at[0] < c->most ? r->bytes - c->at[0] : c->most;
        piece->origin[0] += c->at[0];
        piece->host_offset += c->at[0];
        piece->size[0] = piece->row_bytes = piece->bytes = bytes;
        c->at[0] += bytes;
        return true;
    }
    if (c->at[2] >= r->size[2])
        return false;
    size_t slice_bytes = r->row_bytes * r->size[1];
    size_t rows = r->size[1] - c->at[1], slices = 1;
    if (c->at[1] == 0 && slice_bytes <= c->most) {
        slices = c->most / slice_bytes;
        if (slices > r->size[2] - c->at[2])
            slices = r->size[2] - c->at[2];
    } else if (rows * r->row_bytes > c->most) {
        rows = c->most / r->row_bytes;
        rows = rows ? rows : 1;
    }
    piece->origin[1] += c->at[1];
    piece->origin[2] += c->at[2];
    piece->host_offset += c->at[1] * r->host_row_pitch + c->at[2] * r->host_slice_pitch;
    piece->size[1] = rows;
    piece->size[2] = slices;
    piece->bytes = r->row_bytes * rows * slices;
    c->at[1] += rows;
    if (c->at[1] >= r->size[1]) {
        c->at[1] = 0;
        c->at[2] += slices;
    }
    return true;
}

/* Keeps several pieces in flight through the arena: some are copied while the device moves others. */
static cl_int pump(struct dvc_queue *queue, struct dvc_mem *mem, enum dv_direction direction,
                   const struct dvc_region *r, uint8_t *host)
{
    struct dvc_session *s = queue->object.session;
    size_t most = r->bytes / PIECES;
    most = most < PIECE_MIN ? PIECE_MIN : most > PIECE_MAX ? PIECE_MAX : most & ~(size_t)63;
    struct cutter cutter = {.whole = r, .most = most};
    struct dvc_event *events[PIECES] = {NULL};
    struct dvc_region pieces[PIECES];
    size_t piece_bytes = r->bytes < most ? r->bytes : most;
    cl_int error = CL_SUCCESS;

    if (r->shape != DV_SHAPE_LINEAR && piece_bytes < r->row_bytes)
        piece_bytes = r->row_bytes;
    unsigned count = r->bytes > piece_bytes ? PIECES : 1;
    uint64_t block = dvc_arena_alloc(&s->arena, piece_bytes * count);
    if (!block)
        return CL_OUT_OF_HOST_MEMORY;
    for (unsigned i = 0; i < count; i++) {
        events[i] = dvc_event_create(queue->context, queue, 0);
        if (!events[i])
            error = CL_OUT_OF_HOST_MEMORY;
        else
            atomic_store(&events[i]->slot->status, CL_COMPLETE);
    }
    unsigned sent = 0, landed = 0;
    bool more = true;
    while (error == CL_SUCCESS && (more || landed < sent)) {
        unsigned at = sent % count;
        if (more && sent - landed < count && (more = cut(&cutter, &pieces[at]))) {
            uint64_t offset = block + at * piece_bytes;
            if (direction == DV_TO_DEVICE)
                dvc_region_pack(&pieces[at], dvc_arena_pointer(s, offset), host);
            error = send_lane(queue, mem, direction, &pieces[at], offset, events[at]);
            sent += error == CL_SUCCESS;
        } else if (landed < sent) {
            at = landed++ % count;
            error = dvc_event_wait(events[at]);
            if (error == CL_SUCCESS && direction == DV_FROM_DEVICE)
                dvc_region_unpack(&pieces[at], dvc_arena_pointer(s, block + at * piece_bytes), host);
        }
    }
    while (landed < sent) /* after an error: the device must be done with the block */
        dvc_event_wait(events[landed++ % count]);
    for (unsigned i = 0; i < count; i++)
        if (events[i])
            dvc_event_release(events[i]);
    if (dvc_session_alive(s))
        dvc_arena_free(&s->arena, block);
    return error;
}

cl_int dvc_move(struct dvc_queue *queue, struct dvc_mem *mem, enum dv_direction direction, const struct dvc_region *r,
                uint8_t *host)
{
    if (!dvc_has_storage(mem))
        return pump(queue, mem, direction, r, host);
    uint8_t *storage = dvc_arena_pointer(queue->object.session, mem->arena);
    if (direction == DV_TO_DEVICE)
        dvc_region_to_storage(r, storage, host);
    else
        dvc_region_from_storage(r, storage, host);
    return CL_SUCCESS;
}
