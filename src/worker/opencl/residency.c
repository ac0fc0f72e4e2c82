/* Residency (see residency.h). */
#include "src/worker/opencl/residency.h"

#include <stdlib.h>
#include <string.h>

#include "include/divvy/memory.h"
#include "src/base/log.h"
#include "src/worker/opencl/backing.h"

/* Moved at a time; between two pieces the ring is served. */
#define PIECE_BYTES (UINT64_C(16) << 20)
#define PIECE_OBJECTS 256
/* Room on the device that is kept though nothing is there. */
#define SPARE_BYTES (UINT64_C(32) << 20)
/* Objects up to this size are made with their bytes in them. */
#define SMALL_BYTES (UINT64_C(64) << 10)
/* What the commands behind the next one need is brought in with it, up to so much. */
#define AHEAD_BYTES (UINT64_C(64) << 20)
#define AHEAD_OBJECTS 4096
/* Room is asked for in such parts: one is brought in while others evict for the next. */
#define PART_BYTES (UINT64_C(64) << 20)

bool dvk_is_managed(const struct dvk_context *context)
{
    /* An object that several devices use is left to the vendor. */
    for (uint32_t i = 1; i < context->device_count; i++)
        if (context->devices[i]->index != context->devices[0]->index)
            return false;
    return context->worker->rooms[context->devices[0]->index].managed;
}

void dvk_residency_start(struct dvk_worker *w)
{
    const struct dv_runtime *runtime = w->runtime;

    for (uint32_t i = 0; i < w->device_count; i++) {
        TAILQ_INIT(&w->rooms[i].resident);
        w->rooms[i].managed =
            !w->devices[i]->unified && runtime->lease && runtime->start->devices[i].leased &&
            runtime->start->devices[i].swapped;
        w->rooms[i].capacity = runtime->start->devices[i].capacity_bytes;
        w->rooms[i].pinned = runtime->start->devices[i].pinned;
    }
}

static struct dvk_room *room_of(const struct dvk_mem *root)
{
    return &root->worker->rooms[root->device];
}

/* ---- the vendor's objects ---- */

static cl_mem make_image(const struct dvk_mem *mem, cl_mem parent, cl_int *error)
{
    cl_image_desc desc = mem->make.desc;

    desc.buffer = parent;
    return clCreateImage(mem->make.context->vendor, mem->make.flags, &mem->make.format, &desc, NULL,
                         error);
}

/* Whether the vendor's object is made with its bytes in it: of a small one copying them in later would
 * cost more than the bytes. */
static bool brings_bytes(const struct dvk_mem *root)
{
    return root->backed && root->bytes <= SMALL_BYTES;
}

/* The root must be on the device. */
static cl_int make_vendor(struct dvk_mem *mem)
{
    cl_int error = CL_SUCCESS;

    if (mem->vendor)
        return CL_SUCCESS;
    if (mem->parent) {
        error = make_vendor(mem->parent);
        if (error != CL_SUCCESS)
            return error;
    }
    cl_mem parent = mem->parent ? mem->parent->vendor : NULL;
    if (mem->is_image) {
        mem->vendor = make_image(mem, parent, &error);
    } else if (mem->parent) {
        cl_buffer_region region = {.origin = mem->make.origin, .size = mem->make.size};
        mem->vendor = clCreateSubBuffer(parent, mem->make.flags, CL_BUFFER_CREATE_TYPE_REGION,
                                        &region, &error);
    } else {
        bool filled = brings_bytes(mem);
        mem->vendor = clCreateBuffer(mem->make.context->vendor,
                                     mem->make.flags | (filled ? CL_MEM_COPY_HOST_PTR : 0),
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

static void drop_vendor(struct dvk_mem *mem)
{
    if (mem->vendor)
        clReleaseMemObject(mem->vendor);
    mem->vendor = NULL;
}

cl_int dvk_residency_try(struct dvk_mem *mem)
{
    return make_vendor(mem);
}

void dvk_residency_tried(struct dvk_mem *mem)
{
    if (mem->root && (mem->root->resident || mem->root->placing))
        return;
    for (; mem; mem = mem->parent)
        drop_vendor(mem);
}

/* How much of the room is taken; `check` compares what all devices have with divvyd's ledger. */
static void count_placed(struct dvk_worker *w, struct dvk_room *room, uint64_t more, uint64_t less)
{
    room->placed += more - less;
    atomic_fetch_add(&w->runtime->header->placed_bytes, more - less);
}

/* The root's place on the device is free again. */
static void unplace(struct dvk_mem *root)
{
    struct dvk_room *room = room_of(root);
    struct dvk_mem *child;

    LIST_FOREACH (child, &root->children, of_root)
        drop_vendor(child);
    drop_vendor(root);
    TAILQ_REMOVE(&room->resident, root, in_resident);
    root->resident = false;
    count_placed(root->worker, room, 0, root->bytes);
}

/* ---- moving ---- */

/* A managed context has one device (and its parts). */
static cl_command_queue mover(struct dvk_context *context)
{
    cl_int error;

    if (!context->mover)
        context->mover = clCreateCommandQueue(context->vendor, context->devices[0]->vendor, 0, &error);
    return context->mover;
}

/* Zeros over what another tenant may have left there. */
static cl_int scrub(cl_command_queue queue, const struct dvk_mem *root, uint64_t bytes, cl_event *arrival)
{
    static const cl_uint zeros[4];
    size_t pattern = (root->moved | bytes) % sizeof zeros ? 1 : sizeof zeros; /* both are multiples */

    if (!root->is_image)
        return clEnqueueFillBuffer(queue, root->vendor, zeros, pattern, root->moved, bytes, 0, NULL,
                                   arrival);
    const size_t origin[3] = {0, 0, 0};
    return clEnqueueFillImage(queue, root->vendor, zeros, origin, root->region, 0, NULL, arrival);
}

/* Moves bytes from `moved` on, as many as a piece has left. Images move whole. The event tells whether
 * they have arrived: clFinish succeeds after a copy that failed, too. */
static cl_int move(struct dvk_mem *root, bool out, uint64_t *budget, cl_event *arrival)
{
    cl_command_queue queue = mover(root->make.context);
    cl_int error;

    if (!queue)
        return CL_OUT_OF_RESOURCES;
    if (root->is_image) {
        const size_t zero[3] = {0, 0, 0};
        error = out ? clEnqueueReadImage(queue, root->vendor, CL_FALSE, zero, root->region, 0, 0,
                                         root->backing, 0, NULL, arrival)
                : root->backed
                    ? clEnqueueWriteImage(queue, root->vendor, CL_FALSE, zero, root->region, 0, 0,
                                          root->backing, 0, NULL, arrival)
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
    error = out ? clEnqueueReadBuffer(queue, root->vendor, CL_FALSE, root->moved, bytes, host, 0,
                                      NULL, arrival)
            : root->backed
                ? clEnqueueWriteBuffer(queue, root->vendor, CL_FALSE, root->moved, bytes, host, 0,
                                       NULL, arrival)
                : scrub(queue, root, bytes, arrival);
    if (error != CL_SUCCESS)
        return error; /* what is kept for later goes on from here */
    root->moved += bytes;
    *budget -= bytes;
    return CL_SUCCESS;
}

/* Of a move whose queue has been finished. */
static cl_int arrived(cl_event arrival)
{
    cl_int status = CL_SUCCESS;
    cl_int error = clGetEventInfo(arrival, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);

    clReleaseEvent(arrival);
    return error != CL_SUCCESS ? error : status < 0 ? status : CL_SUCCESS;
}

static void note_moving(struct dvk_worker *w, uint64_t bytes, uint64_t began)
{
    if (bytes == 0)
        return;
    atomic_fetch_add(&w->runtime->header->moved_bytes, bytes);
    atomic_fetch_add(&w->runtime->header->moving_ns, dv_now() - began);
}

/* ---- out ---- */

static bool must_copy_out(const struct dvk_mem *root)
{
    return root->has_content && !root->backed;
}

static void drop_placing(struct dvk_room *room, struct dvk_mem *root);

/* It is being brought in again, or is not needed any more. */
static void forget_partly_there(struct dvk_room *room)
{
    struct dvk_mem *root = room->partly_there;

    room->partly_there = NULL;
    dvk_mem_unref(root);
}

/* Costs nothing: its bytes are in host memory. Returns how much room that frees. */
static uint64_t drop_partly_there(struct dvk_room *room)
{
    struct dvk_mem *root = room->partly_there;

    if (!root)
        return 0;
    uint64_t bytes = root->placing ? root->bytes : 0;
    drop_placing(room, root);
    forget_partly_there(room);
    return bytes;
}

static bool evictable(const struct dvk_mem *root)
{
    return root->in_use == 0 && !root->wanted && !root->stuck;
}

/* Evicts what was used longest ago, a piece of it, until so many bytes are free. Returns the number
 * of bytes that are; *more: there is something left to evict; *copied_out: so many bytes left the device. */
static uint64_t evict_piece(struct dvk_room *room, uint64_t wanted, bool *more, uint64_t *copied_out)
{
    struct dvk_mem *batch[PIECE_OBJECTS], *root, *next;
    cl_event arrivals[PIECE_OBJECTS];
    uint64_t budget = PIECE_BYTES, began = dv_now(), dropped = drop_partly_there(room);
    uint64_t freed = dropped;
    uint32_t count = 0;

    *more = dropped > 0;
    for (root = TAILQ_FIRST(&room->resident); root && freed < wanted; root = next) {
        next = TAILQ_NEXT(root, in_resident);
        if (!evictable(root))
            continue;
        *more = true;
        if (budget == 0 || count == PIECE_OBJECTS)
            break;
        if (must_copy_out(root) && (!dvk_backing_need(root, mover(root->make.context)) ||
                                    move(root, true, &budget, &arrivals[count]) != CL_SUCCESS)) {
            root->stuck = true; /* it cannot leave: the host has no memory, or the vendor refuses */
            root->moved = 0;
            continue;
        }
        batch[count++] = root;
        freed += root->bytes;
    }
    freed = dropped;
    const struct dvk_context *finished = NULL;
    cl_int finish = CL_SUCCESS;
    for (uint32_t i = 0; i < count; i++) {
        root = batch[i];
        bool copied = must_copy_out(root);
        if (copied && root->make.context != finished) {
            finished = root->make.context;
            finish = clFinish(finished->mover);
        }
        root->stuck = copied && (arrived(arrivals[i]) != CL_SUCCESS || finish != CL_SUCCESS);
        if (root->stuck || (copied && root->moved < root->backing_bytes))
            continue; /* the rest of it in the next piece */
        root->backed |= copied;
        root->moved = 0;
        unplace(root);
        freed += root->bytes;
    }
    *copied_out = PIECE_BYTES - budget;
    if (count)
        note_moving(batch[0]->worker, *copied_out, began);
    return freed;
}

/* ---- what a command uses ---- */

static bool add_use(struct dvk_command *c, struct dvk_mem *mem, bool writes)
{
    if (!mem || !mem->root)
        return true;
    if (c->use_count == c->use_capacity) {
        uint32_t capacity = c->use_capacity ? c->use_capacity * 2 : 8;
        void *grown = realloc(c->uses, capacity * sizeof *c->uses);
        if (!grown)
            return false;
        c->uses = grown;
        c->use_capacity = capacity;
    }
    mem->refs++;
    mem->root->refs++;
    c->uses[c->use_count++] = (struct dvk_use){.mem = mem, .root = mem->root, .writes = writes};
    return true;
}

static bool list_uses(struct dvk_command *c)
{
    bool all = true;

    for (int i = 0; i < DVK_KEPT; i++)
        all &= add_use(c, c->mems[i], c->writes >> i & 1);
    for (uint32_t i = 0; i < c->listed_count; i++)
        all &= add_use(c, c->listed[i], c->info->writes_list);
    for (uint32_t i = 0; c->arguments && i < c->arguments->count; i++) {
        struct dvk_mem *mem = c->arguments->list[i].mem;
        all &= add_use(c, mem, mem && !(mem->make.flags & CL_MEM_READ_ONLY) &&
                                   !c->kernel->parameters[i].only_reads);
    }
    return all;
}

static void hold(struct dvk_command *c)
{
    for (uint32_t i = 0; i < c->use_count; i++) {
        struct dvk_mem *root = c->uses[i].root;
        struct dvk_room *room = room_of(root);
        cl_int error = make_vendor(c->uses[i].mem);
        if (error != CL_SUCCESS)
            c->refused = error;
        root->in_use++;
        root->moved = 0; /* if it was on its way out, that starts anew */
        root->stuck = false;
        TAILQ_REMOVE(&room->resident, root, in_resident);
        TAILQ_INSERT_TAIL(&room->resident, root, in_resident);
    }
    c->holds = true;
}

void dvk_residency_ahead(struct dvk_command *c)
{
    struct dvk_room *room = &c->worker->rooms[c->queue->device->index];
    bool lacking = false;

    if (!room->managed || room->bringing || c->refused || (c->use_count == 0 && !list_uses(c)))
        return;
    for (uint32_t i = 0; i < c->use_count; i++)
        lacking |= !c->uses[i].root->resident && c->uses[i].root->backed;
    if (!lacking)
        return;
    room->bringing = c;
    room->ahead = true;
    room->asked = false;
    room->started_ns = 0; /* of no interest to divvyd */
}

void dvk_residency_submitted(struct dvk_command *c)
{
    for (uint32_t i = 0; i < c->use_count; i++)
        if (c->uses[i].writes) {
            c->uses[i].root->backed = false;
            c->uses[i].root->has_content = true;
        }
}

void dvk_residency_done(struct dvk_command *c)
{
    for (uint32_t i = 0; i < c->use_count; i++) {
        struct dvk_mem *root = c->uses[i].root;
        if (c->holds && --root->in_use == 0 && root->released && root->pins == 0)
            dvk_residency_remove(root);
        dvk_mem_unref(c->uses[i].mem);
        dvk_mem_unref(root);
    }
    free(c->uses);
    c->uses = NULL;
    c->use_count = 0;
}

/* ---- in ---- */

/* What is to be brought in: what the command at the gate needs, then what those behind it in its queue
 * need, as far as that is not much. */
struct set {
    uint32_t count, head_count; /* all; of the command at the gate */
    uint32_t arrived;           /* of them by now */
    uint64_t need, head_need;   /* room that they take */
    bool copies;                /* bytes are copied for some of them */
    bool short_of_memory;
};

static bool append(struct dvk_list *list, struct dvk_mem *root)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : 256;
        void *grown = realloc(list->roots, capacity * sizeof *list->roots);
        if (!grown)
            return false;
        list->roots = grown;
        list->capacity = capacity;
    }
    list->roots[list->count++] = root;
    return true;
}

/* Whatever is wanted is not evicted, and stays known until it is forgotten. */
static void forget_wanted(struct dvk_room *room)
{
    for (uint32_t i = 0; i < room->wanted.count; i++) {
        room->wanted.roots[i]->wanted = false;
        dvk_mem_unref(room->wanted.roots[i]);
    }
    room->wanted.count = 0;
}

/* Whether something is to be written to its new place on the device. */
static bool needs_bytes(const struct dvk_mem *root)
{
    return root->backed || root->make.context->devices[0]->scrubbed;
}

static void add_to_set(struct dvk_room *room, struct set *set, struct dvk_command *c)
{
    set->short_of_memory |= c->use_count == 0 && !list_uses(c);
    for (uint32_t i = 0; i < c->use_count; i++) {
        struct dvk_mem *root = c->uses[i].root;
        if (root->wanted)
            continue;
        if ((!root->resident && !append(&room->set, root)) || !append(&room->wanted, root)) {
            set->short_of_memory = true;
            return;
        }
        root->wanted = true;
        root->refs++;
        if (root == room->partly_there)
            forget_partly_there(room);
        if (root->resident)
            continue;
        set->need += root->placing ? 0 : root->bytes;
        set->copies |= needs_bytes(root);
    }
    set->count = room->set.count;
}

/* What was wanted a moment ago and is not any more, as its command has been given up, does not stay half
 * there. */
static void forget_wanted_before(struct dvk_room *room)
{
    for (uint32_t i = 0; i < room->wanted_before.count; i++) {
        struct dvk_mem *root = room->wanted_before.roots[i];
        if (!root->wanted)
            drop_placing(room, root);
        dvk_mem_unref(root);
    }
    room->wanted_before.count = 0;
}

static struct set gather(struct dvk_room *room, struct dvk_command *c)
{
    struct set set = {0};
    struct dv_node *node = c->node.detached ? NULL : TAILQ_NEXT(&c->node, in_active);
    struct dvk_list before = room->wanted;

    room->wanted = room->wanted_before;
    room->wanted_before = before;
    for (uint32_t i = 0; i < before.count; i++)
        before.roots[i]->wanted = false;
    room->set.count = 0;
    add_to_set(room, &set, c);
    set.head_count = set.count;
    set.head_need = set.need;
    uint64_t most = set.head_need + (room->capacity / 4 < AHEAD_BYTES ? room->capacity / 4 : AHEAD_BYTES);
    for (; node && !room->head_only && set.need < most && room->wanted.count < AHEAD_OBJECTS;
         node = TAILQ_NEXT(node, in_active))
        if (node->runs_on == DV_RUNS_ON_DEVICE && !node->doomed)
            add_to_set(room, &set, (struct dvk_command *)node);
    forget_wanted_before(room);
    return set;
}

/* Moves of a piece that have not been looked at, all in one context. */
struct moves {
    struct dvk_context *context;
    cl_event arrivals[PIECE_OBJECTS];
    uint32_t count;
};

/* Makes one of the set on the device, as far as the piece reaches. Returns CL_SUCCESS, or an error. */
static cl_int bring_one(struct dvk_room *room, struct dvk_mem *root, uint64_t *budget, struct moves *moves)
{
    if (!root->placing) {
        root->moved = 0;
        cl_int error = make_vendor(root);
        if (error != CL_SUCCESS)
            return error;
        root->placing = true;
        count_placed(root->worker, room, root->bytes, 0);
        *budget -= root->moved < *budget ? root->moved : *budget;
    }
    if (needs_bytes(root) && root->moved < root->backing_bytes) {
        cl_int error = move(root, false, budget, &moves->arrivals[moves->count]);
        if (error != CL_SUCCESS)
            return error;
        moves->context = root->make.context;
        moves->count++;
    }
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

/* What is there only in part, or perhaps not at all, is not there. */
static void drop_placing(struct dvk_room *room, struct dvk_mem *root)
{
    struct dvk_mem *child;

    if (!root->placing)
        return;
    LIST_FOREACH (child, &root->children, of_root) /* views made meanwhile are of what goes now */
        drop_vendor(child);
    drop_vendor(root);
    root->placing = false;
    root->moved = 0;
    count_placed(root->worker, room, 0, root->bytes);
}

static void settle_in(struct dvk_room *room, struct dvk_mem *root)
{
    root->placing = false;
    root->resident = true;
    root->moved = 0;
    TAILQ_INSERT_TAIL(&room->resident, root, in_resident);
}

/* Brings in a piece of the set. *more: there is more of it that there is room for. */
static cl_int bring_piece(struct dvk_worker *w, struct dvk_room *room, struct set *set, bool *more)
{
    uint64_t budget = PIECE_BYTES, began = dv_now();
    uint32_t count = 0;
    cl_int error = CL_SUCCESS, moved = CL_SUCCESS;
    bool full = false;
    struct moves moves;

    moves.count = 0;
    *more = false;
    while (count < set->count && count < PIECE_OBJECTS && budget > 0 && error == CL_SUCCESS) {
        struct dvk_mem *root = room->set.roots[count];
        full = !root->placing && root->bytes > room->room - room->placed;
        if (full) /* room for it comes later, or not at all if it is one behind the head */
            break;
        if (moves.count && moves.context != root->make.context)
            moved = finish_moves(&moves);
        if (moved != CL_SUCCESS)
            break;
        error = bring_one(room, root, &budget, &moves);
        if (error != CL_SUCCESS || (needs_bytes(root) && root->moved < root->backing_bytes))
            break;
        count++;
    }
    if (moved == CL_SUCCESS)
        moved = finish_moves(&moves);
    if (moved != CL_SUCCESS) {
        error = moved;
        for (uint32_t i = 0; i < set->count; i++)
            drop_placing(room, room->set.roots[i]);
        count = 0;
    }
    for (uint32_t i = 0; i < count; i++)
        settle_in(room, room->set.roots[i]);
    set->arrived = count;
    note_moving(w, PIECE_BYTES - budget, began);
    if (moved != CL_SUCCESS && !room->ahead && set->count > set->head_count) {
        room->head_only = *more = true; /* perhaps only what comes behind it did not arrive */
        return CL_SUCCESS;
    }
    if (error != CL_SUCCESS && count >= set->head_count)
        return CL_SUCCESS; /* it will be seen when it is that command's turn */
    *more = error == CL_SUCCESS && !full && count < set->count &&
            (count < set->head_count || count == PIECE_OBJECTS || budget == 0);
    return error;
}

/* What is there only in part is kept if it goes on later, of one object: a large one would otherwise
 * begin anew after every interruption. */
static void stop_bringing(struct dvk_room *room, bool goes_on)
{
    for (uint32_t i = 0; i < room->wanted.count; i++) {
        struct dvk_mem *root = room->wanted.roots[i];
        if (goes_on && root->placing && !room->partly_there) {
            room->partly_there = root;
            root->refs++;
        } else if (root != room->partly_there) {
            drop_placing(room, root);
        }
    }
    forget_wanted(room);
    room->bringing = NULL;
    room->head_only = room->lacks_less = room->in_line = room->ahead = false;
}

static void end_bringing(struct dvk_worker *w, uint32_t device, cl_int refused)
{
    struct dvk_room *room = &w->rooms[device];

    room->bringing->refused = refused;
    stop_bringing(room, refused == CL_SUCCESS);
    w->runtime->gates[device].bringing = false;
    if (room->started_ns)
        dv_memory_in_place(w->runtime->lease, device, dv_now() - room->started_ns);
    atomic_store(&w->runtime->gates_changed, true);
}

bool dvk_residency_admit(struct dvk_command *c)
{
    uint32_t device = c->queue->device->index;
    struct dvk_room *room = &c->worker->rooms[device];
    bool lacking = false;

    if (!room->managed || c->refused || c->holds)
        return true;
    if (c->use_count == 0 && !list_uses(c)) {
        c->refused = CL_OUT_OF_HOST_MEMORY;
        return true;
    }
    /* What others were promised leaves first. Where several sessions hold the device at once, one that
     * is asked right after its turn could otherwise keep everything by beginning the next. */
    if (room->evict_due || atomic_load(&room->evict_in))
        return false;
    for (uint32_t i = 0; i < c->use_count; i++)
        lacking |= !c->uses[i].root->resident;
    if (!lacking) {
        if (room->bringing == c)
            end_bringing(c->worker, device, CL_SUCCESS);
        hold(c);
        return true;
    }
    if (room->bringing != c || !c->worker->runtime->gates[device].bringing) {
        room->bringing = c;
        room->started_ns = 0;
        room->asked = room->head_only = room->lacks_less = room->in_line = room->ahead = false;
        c->worker->runtime->gates[device].bringing = true;
    }
    return false; /* dvk_residency_work brings it in */
}

/* The room is too small for the command at the gate, and nobody else has any to give. Returns whether
 * there is more to do at once. */
static bool make_room_for_itself(struct dvk_worker *w, uint32_t device, const struct set *set)
{
    struct dvk_room *room = &w->rooms[device];
    uint64_t copied;
    bool more;

    if (!room->head_only) { /* asked for too much, perhaps */
        room->head_only = true;
        room->asked = false;
        return true;
    }
    uint64_t freed = evict_piece(room, set->head_need - (room->room - room->placed), &more, &copied);
    room->lacks_less |= freed > 0;
    if (freed > 0 || more)
        return true;
    if (room->lacks_less) { /* the rest may be free for everybody */
        room->asked = room->lacks_less = false;
        return true;
    }
    if (w->runtime->gates[device].in_flight > 0)
        return false; /* what they use will be free */
    if (!room->in_line) { /* from now on it waits for others, as long as that can help */
        room->in_line = true;
        room->asked = false;
        return true;
    }
    end_bringing(w, device, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    return false;
}

/* Whether the newest question has been answered, and whether that was with no. An answer to an older one
 * may come at any time. */
static bool is_answered(const struct dvk_room *room)
{
    return room->no_answer || atomic_load(&room->answered_id) >= room->place_id;
}

static bool is_refused(const struct dvk_room *room)
{
    return !room->no_answer && atomic_load(&room->no_room_id) == room->place_id;
}

/* Before the device is ours: as much as there is room for. */
static bool bring_ahead(struct dvk_worker *w, uint32_t device)
{
    struct dvk_room *room = &w->rooms[device];
    struct set set = gather(room, room->bringing);
    uint64_t spare = room->room - room->placed;
    bool more = false;

    if (!room->asked && set.need > spare) {
        room->asked = true;
        room->no_answer = false;
        room->place_id = dv_memory_place_ahead(w->runtime->lease, device, set.need - spare);
    }
    if (room->asked && !is_answered(room))
        return false;
    if (set.count == 0 || set.short_of_memory || bring_piece(w, room, &set, &more) != CL_SUCCESS)
        stop_bringing(room, false);
    else if (!more)
        stop_bringing(room, true);
    return room->bringing != NULL;
}

/* How much room to ask for, of a set that needs more than the spare: a part, but enough for the next
 * object. A session in line asks for all at once: it gets nothing until others are done, and then its
 * turn may be over. */
static uint64_t next_part(const struct dvk_room *room, const struct set *set, uint64_t spare)
{
    uint64_t need = 0;

    if (room->in_line)
        return set->need - spare;
    for (uint32_t i = 0; i < set->count && need < spare + PART_BYTES; i++)
        need += room->set.roots[i]->placing ? 0 : room->set.roots[i]->bytes;
    return need - spare;
}

/* Returns whether there is more to do at once. */
static bool bring_in(struct dvk_worker *w, uint32_t device)
{
    struct dvk_room *room = &w->rooms[device];
    bool more;

    bool answered = is_answered(room); /* before what was said is looked at */
    if (atomic_load(&room->granted_in))
        room->room += atomic_exchange(&room->granted_in, 0);
    if (room->bringing && !room->ahead && !w->runtime->gates[device].bringing)
        stop_bringing(room, true); /* the device was taken away meanwhile */
    if (!room->bringing)
        return false;
    if (room->ahead)
        return bring_ahead(w, device);
    struct set set = gather(room, room->bringing);
    uint64_t spare = room->room - room->placed;
    if (set.short_of_memory) {
        end_bringing(w, device, CL_OUT_OF_HOST_MEMORY);
        return false;
    }
    if (room->asked && answered && set.need > spare && !is_refused(room))
        room->asked = false; /* for the next part; or what was granted has been given up meanwhile */
    if (!room->asked && (set.need > spare || set.copies)) {
        /* also without a need for room: divvyd should know what the time goes into */
        room->asked = true;
        if (!room->started_ns)
            room->started_ns = dv_now();
        room->no_answer = set.need <= spare;
        room->place_id = dv_memory_place(w->runtime->lease, device,
                                         room->no_answer ? 0 : next_part(room, &set, spare), room->in_line);
    }
    if (set.head_need > spare && is_refused(room))
        return make_room_for_itself(w, device, &set);
    cl_int error = bring_piece(w, room, &set, &more);
    if (error == CL_SUCCESS && !more && set.arrived < set.head_count)
        return false; /* until the answer comes */
    if (error != CL_SUCCESS || !more)
        end_bringing(w, device, error);
    return more;
}

/* Gives room back: first what is not used, then by eviction. Returns whether more is to be done. */
static bool make_room_for_others(struct dvk_worker *w, uint32_t device)
{
    struct dvk_room *room = &w->rooms[device];
    struct dv_lease *lease = w->runtime->lease;
    uint64_t copied = 0;
    bool more = true;

    if (atomic_load(&room->evict_in)) {
        room->evict_id = atomic_load(&room->evict_in_id); /* first: it must not be newer than the bytes */
        room->evict_due += atomic_exchange(&room->evict_in, 0);
    }
    if (room->evict_due == 0)
        return false;
    if (room->ahead || (room->bringing && !w->runtime->gates[device].bringing))
        stop_bringing(room, true);
    if (room->room - room->placed < room->evict_due)
        evict_piece(room, room->evict_due - (room->room - room->placed), &more, &copied);
    uint64_t back = room->room - room->placed;
    if (back > room->evict_due)
        back = room->evict_due;
    room->room -= back;
    /* The device was given back by the thread that reports: what those commands used is free as soon as
     * their end is noticed here, also when the device has been granted again by then. */
    const struct dv_gate *gate = &w->runtime->gates[device];
    bool closed = atomic_load(&gate->closing) == DV_GATE_CLOSED;
    bool soon = !more && gate->in_flight > 0 && (closed || !dv_lease_held(lease, device));
    room->evict_due -= back;
    if (back)
        dv_memory_unplace(lease, device, room->evict_id, back);
    else if (copied)
        dv_memory_moves(lease, device, room->evict_id, copied);
    if (!more && !soon) {
        dv_memory_keeps(lease, device, room->evict_id, room->evict_due);
        room->evict_due = 0;
    }
    if (room->evict_due == 0) /* commands at the gate waited for that */
        atomic_store(&w->runtime->gates_changed, true);
    return more && room->evict_due > 0;
}

bool dvk_residency_work(struct dvk_worker *w)
{
    bool more = false;

    for (uint32_t i = 0; i < w->device_count; i++) {
        if (!w->rooms[i].managed)
            continue;
        more |= make_room_for_others(w, i);
        more |= bring_in(w, i);
    }
    return more;
}

/* ---- on the lease's thread ---- */

/* When the daemon is gone the main thread answers itself, too. */
static void raise_to(_Atomic uint64_t *number, uint64_t id)
{
    uint64_t now = atomic_load(number);

    while (now < id && !atomic_compare_exchange_weak(number, &now, id))
        ;
}

void dvk_residency_placed(struct dvk_worker *w, uint32_t device, uint64_t id, uint64_t bytes,
                          bool placed)
{
    struct dvk_room *room = &w->rooms[device];

    if (placed)
        atomic_fetch_add(&room->granted_in, bytes);
    else
        raise_to(&room->no_room_id, id);
    raise_to(&room->answered_id, id);
}

void dvk_residency_evict(struct dvk_worker *w, uint32_t device, uint64_t id, uint64_t bytes)
{
    atomic_fetch_add(&w->rooms[device].evict_in, bytes);
    atomic_store(&w->rooms[device].evict_in_id, id);
}

/* ---- coming and going ---- */

/* The size of an image in vendor's terms, and tightly packed. */
static void measure_image(struct dvk_mem *mem)
{
    const cl_image_desc *desc = &mem->make.desc;
    bool lines = desc->image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY;

    mem->region[0] = desc->image_width;
    mem->region[1] = lines ? desc->image_array_size : desc->image_height ? desc->image_height : 1;
    mem->region[2] = desc->image_type == CL_MEM_OBJECT_IMAGE2D_ARRAY ? desc->image_array_size
                     : desc->image_type == CL_MEM_OBJECT_IMAGE3D     ? desc->image_depth
                                                                     : 1;
    if (desc->image_type == CL_MEM_OBJECT_IMAGE1D)
        mem->region[1] = 1;
    mem->backing_bytes = mem->element_bytes * mem->region[0] * mem->region[1] * mem->region[2];
}

cl_int dvk_residency_add(struct dvk_mem *mem, const void *initial)
{
    mem->root = mem->parent ? mem->parent->root : mem;
    if (mem->parent) {
        mem->parent->refs++;
        LIST_INSERT_HEAD(&mem->root->children, mem, of_root);
        return CL_SUCCESS;
    }
    LIST_INIT(&mem->children);
    if (mem->is_image)
        measure_image(mem);
    else
        mem->backing_bytes = mem->bytes;
    if (!initial)
        return CL_SUCCESS;
    if (!dvk_backing_need(mem, NULL))
        return CL_OUT_OF_HOST_MEMORY;
    memcpy(mem->backing, initial, mem->backing_bytes);
    mem->backed = mem->has_content = true;
    return CL_SUCCESS;
}

/* Some room is kept for the next object. */
static void give_back_spare(struct dvk_worker *w, uint32_t device)
{
    struct dvk_room *room = &w->rooms[device];
    uint64_t spare = room->room - room->placed;

    if (spare <= 2 * SPARE_BYTES || room->bringing) /* what is being brought in needs it */
        return;
    room->room -= spare - SPARE_BYTES;
    dv_memory_unplace(w->runtime->lease, device, 0, spare - SPARE_BYTES);
}

void dvk_residency_forget(struct dvk_mem *mem)
{
    if (mem->parent) {
        drop_vendor(mem);
        LIST_REMOVE(mem, of_root);
        dvk_mem_unref(mem->parent);
        mem->parent = NULL;
    } else {
        dvk_backing_free(mem);
    }
}

void dvk_residency_remove(struct dvk_mem *mem)
{
    struct dv_runtime *runtime = mem->worker->runtime;
    bool is_root = mem->root == mem;

    if (is_root && mem->resident)
        unplace(mem);
    else if (is_root && room_of(mem)->partly_there == mem)
        drop_partly_there(room_of(mem));
    else if (is_root)
        drop_placing(room_of(mem), mem);
    dvk_residency_forget(mem);
    if (is_root) {
        give_back_spare(mem->worker, mem->device);
        atomic_fetch_sub(&runtime->header->memory_bytes, mem->bytes);
        dvk_mem_uncount(mem);
    }
    mem->error = CL_INVALID_MEM_OBJECT;
    dv_runtime_upcall(runtime, &(struct dv_upcall){.kind = DV_UPCALL_MEM_GONE, .a = mem->id}, true);
}
