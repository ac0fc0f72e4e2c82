/* Moving memory objects between the device and the host (see moving.h). */
#include "src/worker/opencl/moving.h"

#include "src/worker/opencl/backing.h"

/* The limits of a piece. The ring is served between two pieces. */
#define PIECE_BYTES (UINT64_C(16) << 20)
#define PIECE_OBJECTS 256
/* Objects up to this size are made with their bytes in them. */
#define SMALL_BYTES (UINT64_C(64) << 10)

/* ---- the vendor's objects ---- */

static cl_mem make_image(const struct dvk_mem *mem, cl_mem parent, cl_int *error)
{
    cl_image_desc desc = mem->make.desc;

    desc.buffer = parent;
    return clCreateImage(mem->make.context->vendor, mem->make.flags, &mem->make.format, &desc, NULL, error);
}

/* Whether the vendor's object is made with its bytes in it. For a small one, a later copy would cost more than the
 * bytes. */
static bool brings_bytes(const struct dvk_mem *root)
{
    return root->content == DVK_CONTENT_ON_HOST && root->bytes <= SMALL_BYTES;
}

/* The root must be on the device. */
cl_int dvk_make_vendor(struct dvk_mem *mem)
{
    cl_int error = CL_SUCCESS;

    if (mem->vendor)
        return CL_SUCCESS;
    if (mem->parent) {
        error = dvk_make_vendor(mem->parent);
        if (error != CL_SUCCESS)
            return error;
    }
    cl_mem parent = mem->parent ? mem->parent->vendor : NULL;
    if (mem->is_image) {
        mem->vendor = make_image(mem, parent, &error);
    } else if (mem->parent) {
        cl_buffer_region region = {.origin = mem->make.origin, .size = mem->make.size};
        mem->vendor = clCreateSubBuffer(parent, mem->make.flags, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
    } else {
        bool filled = brings_bytes(mem);
        mem->vendor = clCreateBuffer(mem->make.context->vendor, mem->make.flags | (filled ? CL_MEM_COPY_HOST_PTR : 0),
                                     mem->bytes, filled ? mem->backing : NULL, &error);
        if (filled)
            mem->moved = mem->bytes;
    }
    if (error != CL_SUCCESS)
        mem->vendor = NULL;
    else
        mem->made = ++mem->worker->made;
    return error;
}

void dvk_drop_vendor(struct dvk_mem *mem)
{
    if (mem->vendor)
        clReleaseMemObject(mem->vendor);
    mem->vendor = NULL;
}

/* ---- where an object is ---- */

static struct dvk_room *room_of(const struct dvk_mem *root)
{
    return &root->worker->rooms[root->device];
}

static void drop_views(struct dvk_mem *root)
{
    struct dvk_mem *child;

    LIST_FOREACH (child, &root->children, of_root)
        dvk_drop_vendor(child);
    dvk_drop_vendor(root);
}

/* How much of the room is taken; `check` compares the sum of all devices with divvyd's ledger. */
static void count_placed(struct dvk_worker *w, struct dvk_room *room, uint64_t more, uint64_t less)
{
    room->placed += more - less;
    atomic_fetch_add(&w->runtime->header->placed_bytes, more - less);
}

void dvk_set_residence(struct dvk_mem *root, enum dvk_residence to)
{
    struct dvk_room *room = room_of(root);
    enum dvk_residence from = root->residence;

    if (from == to)
        return;
    root->residence = to;
    if (to == DVK_AWAY)
        drop_views(root);
    if (from < DVK_RESIDENT && to >= DVK_RESIDENT)
        TAILQ_INSERT_TAIL(&room->resident, root, in_resident);
    else if (from >= DVK_RESIDENT && to < DVK_RESIDENT)
        TAILQ_REMOVE(&room->resident, root, in_resident);
    if (from == DVK_AWAY)
        count_placed(root->worker, room, root->bytes, 0);
    else if (to == DVK_AWAY)
        count_placed(root->worker, room, 0, root->bytes);
    if (to != DVK_ARRIVING)
        root->moved = 0;
}

void dvk_use_resident(struct dvk_mem *root)
{
    struct dvk_room *room = room_of(root);

    dvk_set_residence(root, DVK_RESIDENT);
    root->moved = 0; /* an eviction under way starts again */
    TAILQ_REMOVE(&room->resident, root, in_resident);
    TAILQ_INSERT_TAIL(&room->resident, root, in_resident);
}

void dvk_drop_arriving(struct dvk_mem *root)
{
    if (root->residence == DVK_ARRIVING)
        dvk_set_residence(root, DVK_AWAY);
}

/* It is being brought in again, or is not needed any more. */
void dvk_forget_partly_there(struct dvk_room *room)
{
    struct dvk_mem *root = room->partly_there;

    room->partly_there = NULL;
    dvk_mem_unref(root);
}

/* Costs nothing: its bytes are in host memory. Returns how much room that frees. */
uint64_t dvk_drop_partly_there(struct dvk_room *room)
{
    struct dvk_mem *root = room->partly_there;

    if (!root)
        return 0;
    uint64_t bytes = root->residence == DVK_ARRIVING ? root->bytes : 0;
    dvk_drop_arriving(root);
    dvk_forget_partly_there(room);
    return bytes;
}

/* ---- copies ---- */

/* A managed context has one device (and its parts). */
static cl_command_queue mover(struct dvk_context *context)
{
    cl_int error;

    if (!context->mover)
        context->mover = clCreateCommandQueue(context->vendor, context->devices[0]->vendor, 0, &error);
    return context->mover;
}

/* Writes zeros over data that another tenant may have left there. */
static cl_int scrub(cl_command_queue queue, const struct dvk_mem *root, uint64_t bytes, cl_event *arrival)
{
    static const cl_uint zeros[4];
    size_t pattern = (root->moved | bytes) % sizeof zeros ? 1 : sizeof zeros; /* both are multiples */

    if (!root->is_image)
        return clEnqueueFillBuffer(queue, root->vendor, zeros, pattern, root->moved, bytes, 0, NULL, arrival);
    const size_t origin[3] = {0, 0, 0};
    return clEnqueueFillImage(queue, root->vendor, zeros, origin, root->region, 0, NULL, arrival);
}

/* Moves bytes from `moved` on, up to the budget of the piece. Images move whole. The event tells whether they have
 * arrived: clFinish also succeeds after a failed copy. */
static cl_int move(struct dvk_mem *root, bool out, uint64_t *budget, cl_event *arrival)
{
    cl_command_queue queue = mover(root->make.context);
    cl_int error;

    if (!queue)
        return CL_OUT_OF_RESOURCES;
    if (root->is_image) {
        const size_t zero[3] = {0, 0, 0};
        error = out ? clEnqueueReadImage(queue, root->vendor, CL_FALSE, zero, root->region, 0, 0, root->backing, 0,
                                         NULL, arrival)
                : root->content == DVK_CONTENT_ON_HOST
                    ? clEnqueueWriteImage(queue, root->vendor, CL_FALSE, zero, root->region, 0, 0, root->backing, 0,
                                          NULL, arrival)
                    : scrub(queue, root, root->bytes, arrival);
        if (error != CL_SUCCESS)
            return error;
        root->moved = root->backing_bytes;
        *budget -= *budget < root->backing_bytes ? *budget : root->backing_bytes;
        return CL_SUCCESS;
    }
    uint64_t bytes = root->bytes - root->moved;
    if (bytes > *budget)
        bytes = *budget;
    uint8_t *host = root->backing ? root->backing + root->moved : NULL;
    error = out ? clEnqueueReadBuffer(queue, root->vendor, CL_FALSE, root->moved, bytes, host, 0, NULL, arrival)
            : root->content == DVK_CONTENT_ON_HOST
                ? clEnqueueWriteBuffer(queue, root->vendor, CL_FALSE, root->moved, bytes, host, 0, NULL, arrival)
                : scrub(queue, root, bytes, arrival);
    if (error != CL_SUCCESS)
        return error; /* a later move resumes here */
    root->moved += bytes;
    *budget -= bytes;
    return CL_SUCCESS;
}

/* The result of a move whose queue has been finished. */
static cl_int arrived(cl_event arrival)
{
    cl_int status = CL_SUCCESS;
    cl_int error = clGetEventInfo(arrival, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);

    clReleaseEvent(arrival);
    return error != CL_SUCCESS ? error : status < 0 ? status : CL_SUCCESS;
}

static void note_moving(struct dvk_worker *w, uint32_t device, bool out, uint64_t bytes, uint64_t began)
{
    uint64_t now = dv_now();

    if (bytes == 0)
        return;
    atomic_fetch_add(&w->runtime->header->moved_bytes, bytes);
    atomic_fetch_add(&w->runtime->header->moving_ns, now - began);
    dvk_trace_note(w->runtime, &(struct dvk_traced){.kind = out ? DV_TRACED_EVICT : DV_TRACED_BRING,
                                                    .device = device,
                                                    .begin_ns = began,
                                                    .end_ns = now,
                                                    .bytes = bytes});
}

/* ---- out ---- */

static bool must_copy_out(const struct dvk_mem *root)
{
    return root->content == DVK_CONTENT_ON_DEVICE;
}

static bool is_evictable(const struct dvk_mem *root)
{
    return root->residence == DVK_RESIDENT && root->in_use == 0 && !root->wanted;
}

/* Objects that a piece evicts, and the copies of those that need one. */
struct evictions {
    struct dvk_mem *roots[PIECE_OBJECTS];
    cl_event arrivals[PIECE_OBJECTS];
    uint32_t count;
    uint64_t budget; /* bytes that may still be copied */
};

/* Begins to evict an object, or a part of it. */
static void begin_eviction(struct evictions *evictions, struct dvk_mem *root)
{
    uint32_t count = evictions->count;

    if (must_copy_out(root) && (!dvk_backing_need(root, mover(root->make.context)) ||
                                move(root, true, &evictions->budget, &evictions->arrivals[count]) != CL_SUCCESS)) {
        dvk_set_residence(root, DVK_STUCK); /* the host has no memory, or the vendor refuses */
        return;
    }
    evictions->roots[evictions->count++] = root;
}

/* Begins to evict the least recently used objects, until this many bytes will be free. Returns whether there is
 * anything to evict. */
static bool begin_evictions(struct dvk_room *room, uint64_t wanted, struct evictions *evictions)
{
    struct dvk_mem *root, *next;
    uint64_t freed = 0;
    bool any = false;

    for (root = TAILQ_FIRST(&room->resident); root && freed < wanted; root = next) {
        next = TAILQ_NEXT(root, in_resident);
        if (!is_evictable(root))
            continue;
        any = true;
        if (evictions->budget == 0 || evictions->count == PIECE_OBJECTS)
            break;
        begin_eviction(evictions, root);
        freed += root->residence == DVK_RESIDENT ? root->bytes : 0;
    }
    return any;
}

/* Waits for the copies. Returns the number of bytes freed. */
static uint64_t finish_evictions(struct evictions *evictions)
{
    const struct dvk_context *finished = NULL;
    cl_int finish = CL_SUCCESS;
    uint64_t freed = 0;

    for (uint32_t i = 0; i < evictions->count; i++) {
        struct dvk_mem *root = evictions->roots[i];
        bool copied = must_copy_out(root);
        if (copied && root->make.context != finished) {
            finished = root->make.context;
            finish = clFinish(finished->mover);
        }
        if (copied && (arrived(evictions->arrivals[i]) != CL_SUCCESS || finish != CL_SUCCESS)) {
            dvk_set_residence(root, DVK_STUCK);
            continue;
        }
        if (copied && root->moved < root->backing_bytes)
            continue; /* the rest of it in the next piece */
        if (copied)
            root->content = DVK_CONTENT_ON_HOST;
        dvk_set_residence(root, DVK_AWAY);
        freed += root->bytes;
    }
    return freed;
}

uint64_t dvk_evict_piece(struct dvk_room *room, uint64_t wanted, bool *more, uint64_t *copied_out)
{
    struct evictions evictions;
    uint64_t began = dv_now(), dropped = dvk_drop_partly_there(room);

    evictions.count = 0;
    evictions.budget = PIECE_BYTES;
    bool any = begin_evictions(room, wanted > dropped ? wanted - dropped : 0, &evictions);
    uint64_t freed = finish_evictions(&evictions);
    *more = any || dropped > 0;
    *copied_out = PIECE_BYTES - evictions.budget;
    if (evictions.count)
        note_moving(evictions.roots[0]->worker, evictions.roots[0]->device, true, *copied_out, began);
    return dropped + freed;
}

/* ---- in ---- */

bool dvk_needs_bytes(const struct dvk_mem *root)
{
    return root->content == DVK_CONTENT_ON_HOST || root->make.context->devices[0]->scrubbed;
}

/* Copies of a piece that have not been checked, all in one context. */
struct moves {
    struct dvk_context *context;
    cl_event arrivals[PIECE_OBJECTS];
    uint32_t count;
};

static bool is_complete(const struct dvk_mem *root)
{
    return !dvk_needs_bytes(root) || root->moved >= root->backing_bytes;
}

/* Makes one object on the device, as far as the piece reaches. Returns CL_SUCCESS, or an error. */
static cl_int bring_one(struct dvk_mem *root, uint64_t *budget, struct moves *moves)
{
    if (root->residence == DVK_AWAY) {
        root->moved = 0;
        cl_int error = dvk_make_vendor(root);
        if (error != CL_SUCCESS)
            return error;
        dvk_set_residence(root, DVK_ARRIVING);
        *budget -= root->moved < *budget ? root->moved : *budget;
    }
    if (is_complete(root))
        return CL_SUCCESS;
    cl_int error = move(root, false, budget, &moves->arrivals[moves->count]);
    if (error != CL_SUCCESS)
        return error;
    moves->context = root->make.context;
    moves->count++;
    return CL_SUCCESS;
}

static cl_int finish_moves(struct moves *moves)
{
    cl_int error = moves->count ? clFinish(moves->context->mover) : CL_SUCCESS;

    for (uint32_t i = 0; i < moves->count; i++) {
        cl_int status = arrived(moves->arrivals[i]);
        error = error == CL_SUCCESS ? status : error;
    }
    moves->count = 0;
    return error;
}

/* The progress of a piece. */
struct piece {
    uint64_t budget; /* bytes that may still be copied */
    uint32_t count;  /* objects that are complete */
    bool full;       /* no room for the next one yet; or never, if it is behind the head */
    cl_int error;    /* of the vendor, for the next object */
    cl_int moved;    /* of the copies */
};

static void bring_objects(const struct dvk_room *room, const struct dvk_set *set, struct piece *piece)
{
    struct moves moves;

    moves.count = 0;
    while (piece->count < set->count && piece->count < PIECE_OBJECTS && piece->budget > 0) {
        struct dvk_mem *root = room->set.roots[piece->count];
        piece->full = root->residence == DVK_AWAY && root->bytes > room->room - room->placed;
        if (piece->full)
            break;
        if (moves.count && moves.context != root->make.context)
            piece->moved = finish_moves(&moves);
        if (piece->moved != CL_SUCCESS)
            return;
        piece->error = bring_one(root, &piece->budget, &moves);
        if (piece->error != CL_SUCCESS || !is_complete(root))
            break;
        piece->count++;
    }
    piece->moved = finish_moves(&moves);
}

cl_int dvk_bring_piece(struct dvk_worker *w, struct dvk_room *room, struct dvk_set *set, bool *more)
{
    struct piece piece = {.budget = PIECE_BYTES};
    uint64_t began = dv_now();

    bring_objects(room, set, &piece);
    if (piece.moved != CL_SUCCESS) {
        for (uint32_t i = 0; i < set->count; i++)
            dvk_drop_arriving(room->set.roots[i]);
        piece.count = 0;
        piece.error = piece.moved;
    }
    for (uint32_t i = 0; i < piece.count; i++)
        dvk_set_residence(room->set.roots[i], DVK_RESIDENT);
    set->arrived = piece.count;
    note_moving(w, (uint32_t)(room - w->rooms), false, PIECE_BYTES - piece.budget, began);
    *more = false;
    if (piece.moved != CL_SUCCESS && room->phase != DVK_BRINGS_AHEAD && set->count > set->head_count) {
        room->phase = room->phase == DVK_BRINGS_SET ? DVK_BRINGS_HEAD : room->phase;
        *more = true; /* perhaps only objects of the commands behind it did not arrive */
        return CL_SUCCESS;
    }
    if (piece.error != CL_SUCCESS && piece.count >= set->head_count)
        return CL_SUCCESS; /* the command that needs that object will see the error */
    *more = piece.error == CL_SUCCESS && !piece.full && piece.count < set->count &&
            (piece.count < set->head_count || piece.count == PIECE_OBJECTS || piece.budget == 0);
    return piece.error;
}
