/* Residency (see residency.h). */
#include "src/worker/opencl/residency.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "include/divvy/memory.h"
#include "src/base/log.h"

/* Moved at a time; between two pieces the ring is served. */
#define PIECE_BYTES (UINT64_C(16) << 20)
#define PIECE_OBJECTS 256
/* Room on the device that is kept though nothing is there. */
#define SPARE_BYTES (UINT64_C(32) << 20)
/* Smaller backing memory comes from malloc. */
#define MAP_FROM (UINT64_C(128) << 10)

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
            !w->devices[i]->unified && runtime->lease && runtime->start->devices[i].leased;
    }
}

static struct dvk_room *room_of(const struct dvk_mem *root)
{
    return &root->worker->rooms[root->device];
}

/* ---- host memory ---- */

static uint8_t *new_backing(uint64_t bytes)
{
    if (bytes < MAP_FROM)
        return malloc(bytes);
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void free_backing(struct dvk_mem *root)
{
    if (root->backing && root->backing_bytes < MAP_FROM)
        free(root->backing);
    else if (root->backing)
        munmap(root->backing, root->backing_bytes);
    root->backing = NULL;
    root->backed = false;
}

static bool need_backing(struct dvk_mem *root)
{
    if (!root->backing)
        root->backing = new_backing(root->backing_bytes);
    return root->backing != NULL;
}

/* ---- the vendor's objects ---- */

static cl_mem make_image(const struct dvk_mem *mem, cl_mem parent, cl_int *error)
{
    cl_image_desc desc = mem->make.desc;

    desc.buffer = parent;
    return clCreateImage(mem->make.context->vendor, mem->make.flags, &mem->make.format, &desc, NULL,
                         error);
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
        mem->vendor =
            clCreateBuffer(mem->make.context->vendor, mem->make.flags, mem->bytes, NULL, &error);
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
    room->placed -= root->bytes;
    atomic_store(&root->worker->runtime->header->placed_bytes, room->placed);
}

/* ---- moving ---- */

static cl_command_queue mover(struct dvk_context *context, uint32_t device)
{
    cl_int error;

    for (uint32_t i = 0; i < context->device_count; i++) {
        if (context->devices[i]->index != device)
            continue;
        if (!context->mover)
            context->mover =
                clCreateCommandQueue(context->vendor, context->devices[i]->vendor, 0, &error);
        return context->mover;
    }
    return NULL;
}

/* Moves bytes from `moved` on, as many as a piece has left. Images move whole. */
static cl_int move(struct dvk_mem *root, bool out, uint64_t *budget)
{
    cl_command_queue queue = mover(root->make.context, root->device);
    cl_int error;

    if (!queue)
        return CL_OUT_OF_RESOURCES;
    if (root->is_image) {
        const size_t zero[3] = {0, 0, 0};
        error = out ? clEnqueueReadImage(queue, root->vendor, CL_FALSE, zero, root->region, 0, 0,
                                         root->backing, 0, NULL, NULL)
                    : clEnqueueWriteImage(queue, root->vendor, CL_FALSE, zero, root->region, 0, 0,
                                          root->backing, 0, NULL, NULL);
        root->moved = root->backing_bytes;
        *budget -= *budget < root->backing_bytes ? *budget : root->backing_bytes;
        return error;
    }
    uint64_t bytes = root->bytes - root->moved;
    if (bytes > *budget)
        bytes = *budget;
    uint8_t *host = root->backing + root->moved;
    error = out ? clEnqueueReadBuffer(queue, root->vendor, CL_FALSE, root->moved, bytes, host, 0,
                                      NULL, NULL)
                : clEnqueueWriteBuffer(queue, root->vendor, CL_FALSE, root->moved, bytes, host, 0,
                                       NULL, NULL);
    root->moved += bytes;
    *budget -= bytes;
    return error;
}

/* ---- out ---- */

static bool must_copy_out(const struct dvk_mem *root)
{
    return root->has_content && !root->backed;
}

static bool evictable(const struct dvk_mem *root)
{
    return root->in_use == 0 && !root->wanted && !root->stuck;
}

/* Evicts what was used longest ago, a piece of it, until so many bytes are free. Returns the number
 * of bytes that are; *more: there is something left to evict. */
static uint64_t evict_piece(struct dvk_room *room, uint64_t wanted, bool *more)
{
    struct dvk_mem *batch[PIECE_OBJECTS], *root, *next;
    uint64_t budget = PIECE_BYTES, freed = 0;
    uint32_t count = 0;

    *more = false;
    for (root = TAILQ_FIRST(&room->resident); root && freed < wanted; root = next) {
        next = TAILQ_NEXT(root, in_resident);
        if (!evictable(root))
            continue;
        *more = true;
        if (budget == 0 || count == PIECE_OBJECTS)
            break;
        if (must_copy_out(root) &&
            (!need_backing(root) || move(root, true, &budget) != CL_SUCCESS)) {
            root->stuck = true; /* it cannot leave: the host has no memory, or the vendor refuses */
            root->moved = 0;
            continue;
        }
        batch[count++] = root;
        freed += root->bytes;
    }
    freed = 0;
    for (uint32_t i = 0; i < count; i++) {
        root = batch[i];
        bool copied = must_copy_out(root);
        if (copied && (i == 0 || batch[i - 1]->make.context != root->make.context) &&
            clFinish(root->make.context->mover) != CL_SUCCESS)
            root->stuck = true;
        if (root->stuck || (copied && root->moved < root->backing_bytes))
            continue; /* the rest of it in the next piece */
        root->backed |= copied;
        root->moved = 0;
        unplace(root);
        freed += root->bytes;
    }
    return freed;
}

/* Gives room back: first what is not used, then by eviction. Returns whether more is to be done. */
static bool make_room_for_others(struct dvk_worker *w, uint32_t device)
{
    struct dvk_room *room = &w->rooms[device];
    struct dv_lease *lease = w->runtime->lease;
    bool more = true;

    room->evict_due += atomic_exchange(&room->evict_in, 0);
    if (room->evict_due == 0)
        return false;
    if (room->room - room->placed < room->evict_due)
        evict_piece(room, room->evict_due - (room->room - room->placed), &more);
    uint64_t back = room->room - room->placed;
    if (back > room->evict_due)
        back = room->evict_due;
    room->room -= back;
    room->evict_due = more ? room->evict_due - back : 0;
    if (back || !more)
        dv_memory_unplace(lease, device, back, !more);
    return room->evict_due > 0;
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
    const struct dvw_transfer *transfer = (const void *)c->record;
    bool copies = strncmp(c->info->name, "clEnqueueCopy", strlen("clEnqueueCopy")) == 0;
    bool reads = c->info->submit == dvk_submit_transfer && transfer->direction == DV_FROM_DEVICE;
    bool all = true;

    for (int i = 0; i < DVK_KEPT; i++) /* of a copy the first is the source */
        all &= add_use(c, c->mems[i], !reads && !(copies && i == 0));
    for (uint32_t i = 0; i < c->listed_count; i++)
        all &= add_use(c, c->listed[i], false);
    for (uint32_t i = 0; c->arguments && i < c->arguments->count; i++) {
        struct dvk_mem *mem = c->arguments->list[i].mem;
        all &= add_use(c, mem, mem && !(mem->make.flags & CL_MEM_READ_ONLY) &&
                                   !c->kernel->only_reads[i]);
    }
    return all;
}

static void unmark(struct dvk_command *c)
{
    for (uint32_t i = 0; i < c->use_count; i++)
        c->uses[i].root->wanted = false;
}

/* Marks what is to stay or to come for the command's sake; says how much room that takes. */
static uint64_t mark_wanted(struct dvk_command *c, bool *lacking)
{
    uint64_t bytes = 0;

    *lacking = false;
    unmark(c);
    for (uint32_t i = 0; i < c->use_count; i++) {
        struct dvk_mem *root = c->uses[i].root;
        if (root->wanted)
            continue;
        root->wanted = true;
        *lacking |= !root->resident;
        if (!root->resident && !root->placing)
            bytes += root->bytes;
    }
    return bytes;
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
        TAILQ_REMOVE(&room->resident, root, in_resident);
        TAILQ_INSERT_TAIL(&room->resident, root, in_resident);
    }
    c->holds = true;
}

bool dvk_residency_admit(struct dvk_command *c)
{
    uint32_t device = c->queue->device->index;
    struct dvk_room *room = &c->worker->rooms[device];
    bool lacking;

    if (!room->managed || c->refused || c->holds)
        return true;
    if (c->use_count == 0 && !list_uses(c)) {
        c->refused = CL_OUT_OF_HOST_MEMORY;
        return true;
    }
    mark_wanted(c, &lacking);
    if (!lacking) {
        unmark(c);
        hold(c);
        return true;
    }
    if (room->bringing != c) {
        room->bringing = c;
        room->started_ns = 0;
        room->asked = false;
        c->worker->runtime->gates[device].bringing = true;
    }
    return false; /* dvk_residency_work brings it in */
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

/* Copies a piece of what is lacking. Returns CL_SUCCESS; *more: there is more to copy. */
static cl_int bring_piece(struct dvk_room *room, struct dvk_command *c, bool *more)
{
    uint64_t budget = PIECE_BYTES;
    uint32_t objects = 0;
    cl_int error = CL_SUCCESS;

    *more = false;
    for (uint32_t i = 0; i < c->use_count && !*more && error == CL_SUCCESS; i++) {
        struct dvk_mem *root = c->uses[i].root;
        if (root->resident || root->arrives)
            continue;
        if (budget == 0 || objects++ == PIECE_OBJECTS) {
            *more = true;
            break;
        }
        if (!root->placing) {
            error = make_vendor(root);
            if (error != CL_SUCCESS)
                break;
            root->placing = true;
            root->moved = 0;
            room->placed += root->bytes;
        }
        if (root->backed)
            error = move(root, false, &budget);
        *more = root->backed && root->moved < root->backing_bytes;
        root->arrives = error == CL_SUCCESS && !*more;
    }
    struct dvk_context *context = NULL;
    for (uint32_t i = 0; i < c->use_count; i++) {
        struct dvk_mem *root = c->uses[i].root;
        if ((root->placing && root->backed) && root->make.context != context) {
            context = root->make.context;
            clFinish(context->mover);
        }
        if (!root->arrives)
            continue;
        root->arrives = root->placing = false;
        root->resident = true;
        root->moved = 0;
        TAILQ_INSERT_TAIL(&room->resident, root, in_resident);
    }
    return error;
}

static void end_bringing(struct dvk_worker *w, uint32_t device, cl_int refused)
{
    struct dvk_room *room = &w->rooms[device];

    unmark(room->bringing);
    room->bringing->refused = refused;
    room->bringing = NULL;
    atomic_store(&room->no_room, false);
    w->runtime->gates[device].bringing = false;
    atomic_store(&w->runtime->header->placed_bytes, room->placed);
    if (room->started_ns)
        dv_memory_in_place(w->runtime->lease, device, dv_now() - room->started_ns);
    atomic_store(&w->runtime->gates_changed, true);
}

static bool copies_in(const struct dvk_command *c)
{
    for (uint32_t i = 0; i < c->use_count; i++)
        if (!c->uses[i].root->resident && c->uses[i].root->backed)
            return true;
    return false;
}

/* Returns whether there is more to do at once. */
static bool bring_in(struct dvk_worker *w, uint32_t device)
{
    struct dvk_room *room = &w->rooms[device];
    struct dvk_command *c = room->bringing;
    uint64_t granted = atomic_exchange(&room->granted_in, 0);
    bool lacking, more;

    room->room += granted;
    if (!c)
        return false;
    uint64_t need = mark_wanted(c, &lacking), spare = room->room - room->placed;
    if (!room->asked && (need > spare || copies_in(c))) {
        /* also without a need for room: divvyd should know what the time goes into */
        room->asked = true;
        room->started_ns = dv_now();
        atomic_store(&room->no_room, false);
        dv_memory_place(w->runtime->lease, device, need > spare ? need - spare : 0);
    }
    if (need > spare) {
        if (!atomic_load(&room->no_room))
            return false; /* until the answer comes */
        /* nobody else has anything to give: what this command does not need has to go */
        uint64_t freed = evict_piece(room, need - spare, &more);
        if (freed == 0 && !more && w->runtime->gates[device].in_flight == 0)
            end_bringing(w, device, CL_MEM_OBJECT_ALLOCATION_FAILURE);
        return freed > 0 || more;
    }
    cl_int error = bring_piece(room, c, &more);
    if (error != CL_SUCCESS || !more)
        end_bringing(w, device, error);
    return error == CL_SUCCESS && more;
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

void dvk_residency_placed(struct dvk_worker *w, uint32_t device, uint64_t bytes, bool placed)
{
    if (placed)
        atomic_fetch_add(&w->rooms[device].granted_in, bytes);
    else
        atomic_store(&w->rooms[device].no_room, true);
}

void dvk_residency_evict(struct dvk_worker *w, uint32_t device, uint64_t bytes)
{
    atomic_fetch_add(&w->rooms[device].evict_in, bytes);
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
    if (!need_backing(mem))
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

    if (spare <= 2 * SPARE_BYTES)
        return;
    room->room -= spare - SPARE_BYTES;
    dv_memory_unplace(w->runtime->lease, device, spare - SPARE_BYTES, false);
}

void dvk_residency_remove(struct dvk_mem *mem)
{
    struct dv_runtime *runtime = mem->worker->runtime;

    if (mem->parent) {
        drop_vendor(mem);
        LIST_REMOVE(mem, of_root);
        dvk_mem_unref(mem->parent);
        mem->parent = NULL;
    } else {
        if (mem->resident)
            unplace(mem);
        else if (mem->placing) { /* a command that wanted it was refused meanwhile */
            drop_vendor(mem);
            room_of(mem)->placed -= mem->bytes;
        }
        give_back_spare(mem->worker, mem->device);
        free_backing(mem);
        atomic_fetch_sub(&runtime->header->memory_bytes, mem->bytes);
        if (mem->counted)
            dv_account_drop(runtime, mem->device, mem->bytes);
        mem->counted = false;
    }
    mem->error = CL_INVALID_MEM_OBJECT;
    dv_runtime_upcall(runtime, &(struct dv_upcall){.kind = DV_UPCALL_MEM_GONE, .a = mem->id}, true);
}
