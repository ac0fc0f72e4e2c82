/* Residency (see residency.h). */
#include "src/worker/opencl/residency.h"

#include <stdlib.h>
#include <string.h>

#include "include/divvy/memory.h"
#include "src/worker/opencl/backing.h"
#include "src/worker/opencl/working_set.h"

/* Unused room on the device that the session keeps. */
#define SPARE_BYTES (UINT64_C(32) << 20)
/* Room is requested in parts of this size: one is filled while other sessions evict for the next. */
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
    const struct dvk_runtime *runtime = w->runtime;

    for (uint32_t i = 0; i < w->device_count; i++) {
        TAILQ_INIT(&w->rooms[i].resident);
        w->rooms[i].managed = !w->devices[i]->unified && runtime->lease && runtime->start->devices[i].leased &&
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

cl_int dvk_residency_try(struct dvk_mem *mem)
{
    return dvk_make_vendor(mem);
}

void dvk_residency_tried(struct dvk_mem *mem)
{
    if (mem->root && mem->root->residence != DVK_AWAY)
        return;
    for (; mem; mem = mem->parent)
        dvk_drop_vendor(mem);
}

/* ---- what a command uses ---- */

/* The next request for room is a new question. */
static void enter_phase(struct dvk_room *room, enum dvk_phase phase)
{
    room->phase = phase;
    room->question = DVK_NOT_ASKED;
}

static void start_bringing(struct dvk_room *room, struct dvk_command *c, enum dvk_phase phase)
{
    room->bringing = c;
    room->started_ns = 0; /* divvyd is not told yet; ahead of a grant it need not be */
    enter_phase(room, phase);
}

static void hold(struct dvk_command *c)
{
    for (uint32_t i = 0; i < c->use_count; i++) {
        cl_int error = dvk_make_vendor(c->uses[i].mem);
        if (error != CL_SUCCESS)
            c->refused = error;
        c->uses[i].root->in_use++;
        dvk_use_resident(c->uses[i].root);
    }
    c->holds = true;
}

void dvk_residency_ahead(struct dvk_command *c)
{
    struct dvk_room *room = &c->worker->rooms[c->queue->device->index];
    bool lacking = false;

    if (!room->managed || room->bringing || c->refused || (c->use_count == 0 && !dvk_list_uses(c)))
        return;
    for (uint32_t i = 0; i < c->use_count; i++)
        lacking |= !dvk_is_resident(c->uses[i].root) && c->uses[i].root->content == DVK_CONTENT_ON_HOST;
    if (lacking)
        start_bringing(room, c, DVK_BRINGS_AHEAD);
}

void dvk_residency_submitted(struct dvk_command *c)
{
    for (uint32_t i = 0; i < c->use_count; i++)
        if (c->uses[i].writes)
            c->uses[i].root->content = DVK_CONTENT_ON_DEVICE;
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

/* Drops partially placed objects. If bringing in goes on later, one of them is kept: a large object would otherwise
 * start again after every interruption. */
static void stop_bringing(struct dvk_room *room, bool goes_on)
{
    for (uint32_t i = 0; i < room->wanted.count; i++) {
        struct dvk_mem *root = room->wanted.roots[i];
        if (goes_on && root->residence == DVK_ARRIVING && !room->partly_there) {
            room->partly_there = root;
            root->refs++;
        } else if (root != room->partly_there) {
            dvk_drop_arriving(root);
        }
    }
    dvk_forget_wanted(room);
    room->bringing = NULL;
    room->phase = DVK_BRINGS_NOTHING;
}

static void end_bringing(struct dvk_worker *w, uint32_t device, cl_int refused)
{
    struct dvk_room *room = &w->rooms[device];

    room->bringing->refused = refused;
    stop_bringing(room, refused == CL_SUCCESS);
    dvk_gate_bring(w->runtime, device, false);
    if (room->started_ns)
        dv_memory_in_place(w->runtime->lease, device, dv_now() - room->started_ns);
    atomic_store(&w->runtime->gates_changed, true);
}

bool dvk_residency_admit(struct dvk_command *c)
{
    uint32_t device = c->queue->device->index;
    struct dvk_room *room = &c->worker->rooms[device];
    bool lacking = false;

    bool asked = room->evict_due || atomic_load(&room->evict_in);

    if (!room->managed || c->refused || (c->holds && !(asked && c->node.is_cut)))
        return true;
    if (c->use_count == 0 && !dvk_list_uses(c)) {
        c->refused = CL_OUT_OF_HOST_MEMORY;
        return true;
    }
    /* First evict what other sessions were promised. On a device with several slots, a session that is asked right
     * after its hold could otherwise keep everything by starting the next hold. */
    if (asked)
        return false;
    for (uint32_t i = 0; i < c->use_count; i++)
        lacking |= !dvk_is_resident(c->uses[i].root);
    if (!lacking) {
        if (room->bringing == c)
            end_bringing(c->worker, device, CL_SUCCESS);
        hold(c);
        return true;
    }
    if (room->bringing != c || !c->worker->runtime->gates[device].bringing) {
        start_bringing(room, c, DVK_BRINGS_SET);
        dvk_gate_bring(c->worker->runtime, device, true);
    }
    return false; /* dvk_residency_work brings them in */
}

/* The room is too small for the command at the gate, and other sessions have none to give. Returns whether there is
 * more to do at once. */
static bool make_room_for_itself(struct dvk_worker *w, uint32_t device, const struct dvk_set *set)
{
    struct dvk_room *room = &w->rooms[device];
    uint64_t copied;
    bool more;

    if (room->phase == DVK_BRINGS_SET) { /* perhaps it asked for too much */
        enter_phase(room, DVK_BRINGS_HEAD);
        return true;
    }
    uint64_t freed = dvk_evict_piece(room, set->head_need - (room->room - room->placed), &more, &copied);
    if (freed > 0)
        room->question = DVK_ASKED_BEFORE_EVICTING;
    if (freed > 0 || more)
        return true;
    if (room->question == DVK_ASKED_BEFORE_EVICTING) { /* the rest may be free by now */
        room->question = DVK_NOT_ASKED;
        return true;
    }
    if (w->runtime->gates[device].flight.count > 0)
        return false;                       /* the objects of these commands will be free */
    if (room->phase != DVK_BRINGS_QUEUED) { /* from now on it waits for other sessions, while that can help */
        enter_phase(room, DVK_BRINGS_QUEUED);
        return true;
    }
    end_bringing(w, device, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    return false;
}

/* Whether the newest question has been answered, and whether it was refused. An answer to an older one can come at any
 * time. */
static bool is_answered(const struct dvk_room *room)
{
    return room->question == DVK_NOTHING_ASKED || atomic_load(&room->answered_id) >= room->place_id;
}

static bool is_refused(const struct dvk_room *room)
{
    return room->question != DVK_NOTHING_ASKED && atomic_load(&room->no_room_id) == room->place_id;
}

/* Before the device is granted: brings in as much as there is room for. */
static bool bring_ahead(struct dvk_worker *w, uint32_t device)
{
    struct dvk_room *room = &w->rooms[device];
    struct dvk_set set = dvk_gather(room, room->bringing);
    uint64_t spare = room->room - room->placed;
    bool more = false;

    if (room->question == DVK_NOT_ASKED && set.need > spare) {
        room->question = DVK_ASKED;
        room->place_id = dv_memory_place_ahead(w->runtime->lease, device, set.need - spare);
    }
    if (room->question != DVK_NOT_ASKED && !is_answered(room))
        return false;
    if (set.count == 0 || set.short_of_memory || dvk_bring_piece(w, room, &set, &more) != CL_SUCCESS)
        stop_bringing(room, false);
    else if (!more)
        stop_bringing(room, true);
    return room->bringing != NULL;
}

/* How much room to request for a set that needs more than the spare: a part, but enough for the next object. A queued
 * session requests all at once: it gets nothing until other sessions are done, and then its slice may be over. */
static uint64_t next_part(const struct dvk_room *room, const struct dvk_set *set, uint64_t spare)
{
    uint64_t need = 0;

    if (room->phase == DVK_BRINGS_QUEUED)
        return set->need - spare;
    for (uint32_t i = 0; i < set->count && need < spare + PART_BYTES; i++)
        need += room->set.roots[i]->residence == DVK_ARRIVING ? 0 : room->set.roots[i]->bytes;
    return need - spare;
}

/* Returns whether there is more to do at once. */
static bool bring_in(struct dvk_worker *w, uint32_t device)
{
    struct dvk_room *room = &w->rooms[device];
    bool more;

    bool answered = is_answered(room); /* read before the granted bytes */
    if (atomic_load(&room->granted_in))
        room->room += atomic_exchange(&room->granted_in, 0);
    if (room->phase > DVK_BRINGS_AHEAD && !w->runtime->gates[device].bringing)
        stop_bringing(room, true); /* the session lost the device meanwhile */
    if (!room->bringing)
        return false;
    if (room->phase == DVK_BRINGS_AHEAD)
        return bring_ahead(w, device);
    struct dvk_set set = dvk_gather(room, room->bringing);
    uint64_t spare = room->room - room->placed;
    if (set.short_of_memory) {
        end_bringing(w, device, CL_OUT_OF_HOST_MEMORY);
        return false;
    }
    if (room->question != DVK_NOT_ASKED && answered && set.need > spare && !is_refused(room))
        room->question = DVK_NOT_ASKED; /* for the next part, or because granted room was given up meanwhile */
    if (room->question == DVK_NOT_ASKED && (set.need > spare || set.copies)) {
        /* also without a need for room: divvyd should know where the time goes */
        room->question = set.need > spare ? DVK_ASKED : DVK_NOTHING_ASKED;
        if (!room->started_ns)
            room->started_ns = dv_now();
        room->place_id = dv_memory_place(w->runtime->lease, device, set.need > spare ? next_part(room, &set, spare) : 0,
                                         room->phase == DVK_BRINGS_QUEUED);
    }
    if (set.head_need > spare && is_refused(room))
        return make_room_for_itself(w, device, &set);
    cl_int error = dvk_bring_piece(w, room, &set, &more);
    if (error == CL_SUCCESS && !more && set.arrived < set.head_count)
        return false; /* until the answer comes */
    if (error != CL_SUCCESS || !more)
        end_bringing(w, device, error);
    return more;
}

/* Between two parts of a launch the device is free, and its objects can leave: they come back for the next part. */
static void let_parted_go(struct dvk_worker *w, uint32_t device)
{
    const struct dvk_gate *gate = &w->runtime->gates[device];
    struct dvk_command *c = (struct dvk_command *)TAILQ_FIRST(&gate->waiting);

    if (!c || gate->flight.count > 0 || !c->node.is_cut || !c->holds)
        return;
    for (uint32_t i = 0; i < c->use_count; i++)
        c->uses[i].root->in_use--;
    c->holds = false;
}

/* Gives room back: first unused room, then by eviction. Returns whether there is more to do. */
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
    if (room->phase == DVK_BRINGS_AHEAD || (room->bringing && !w->runtime->gates[device].bringing))
        stop_bringing(room, true);
    let_parted_go(w, device);
    if (room->room - room->placed < room->evict_due)
        dvk_evict_piece(room, room->evict_due - (room->room - room->placed), &more, &copied);
    uint64_t back = room->room - room->placed;
    if (back > room->evict_due)
        back = room->evict_due;
    room->room -= back;
    /* The reporting thread has released the device. The objects of its commands are free as soon as this thread notices
     * their end, even if the device has been granted again by then. */
    const struct dvk_gate *gate = &w->runtime->gates[device];
    bool closed = atomic_load(&gate->flight.closing) == DV_GATE_CLOSED;
    bool soon = !more && gate->flight.count > 0 && (closed || !dv_lease_held(lease, device));
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

/* Evicts all that is on any device. Returns false: some of it cannot be copied. */
bool dvk_residency_evacuate(struct dvk_worker *w)
{
    for (uint32_t i = 0; i < w->device_count; i++) {
        struct dvk_room *room = &w->rooms[i];
        uint64_t copied;
        bool more = room->managed;
        if (more && room->bringing)
            stop_bringing(room, false);
        while (more)
            dvk_evict_piece(room, UINT64_MAX, &more, &copied);
        if (room->managed && !TAILQ_EMPTY(&room->resident))
            return false;
    }
    return true;
}

/* ---- on the lease's thread ---- */

/* Atomic: when the daemon is gone, the main thread answers its own questions, too. */
static void raise_to(_Atomic uint64_t *number, uint64_t id)
{
    uint64_t now = atomic_load(number);

    while (now < id && !atomic_compare_exchange_weak(number, &now, id))
        ;
}

void dvk_residency_placed(struct dvk_worker *w, uint32_t device, uint64_t id, uint64_t bytes, bool placed)
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

void dvk_measure_image(struct dvk_mem *mem)
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
    if (!mem->is_image)
        mem->backing_bytes = mem->bytes;
    if (!initial)
        return CL_SUCCESS;
    if (!dvk_backing_need(mem, NULL))
        return CL_OUT_OF_HOST_MEMORY;
    memcpy(mem->backing, initial, mem->backing_bytes);
    mem->content = DVK_CONTENT_ON_HOST;
    return CL_SUCCESS;
}

/* Keeps some room for the next object. */
static void give_back_spare(struct dvk_worker *w, uint32_t device)
{
    struct dvk_room *room = &w->rooms[device];
    uint64_t spare = room->room - room->placed;

    if (spare <= 2 * SPARE_BYTES || room->bringing) /* objects being brought in need it */
        return;
    room->room -= spare - SPARE_BYTES;
    dv_memory_unplace(w->runtime->lease, device, 0, spare - SPARE_BYTES);
}

void dvk_residency_forget(struct dvk_mem *mem)
{
    if (mem->parent) {
        dvk_drop_vendor(mem);
        LIST_REMOVE(mem, of_root);
        dvk_mem_unref(mem->parent);
        mem->parent = NULL;
    } else {
        dvk_backing_free(mem);
    }
}

void dvk_residency_remove(struct dvk_mem *mem)
{
    struct dvk_runtime *runtime = mem->worker->runtime;
    bool is_root = mem->root == mem;

    if (is_root && room_of(mem)->partly_there == mem)
        dvk_drop_partly_there(room_of(mem));
    else if (is_root)
        dvk_set_residence(mem, DVK_AWAY);
    dvk_residency_forget(mem);
    if (is_root) {
        give_back_spare(mem->worker, mem->device);
        atomic_fetch_sub(&runtime->header->memory_bytes, mem->bytes);
        dvk_mem_uncount(mem);
    }
    mem->error = CL_INVALID_MEM_OBJECT;
    dvk_mem_forget_origin(mem);
    dvk_runtime_upcall(runtime, &(struct dv_upcall){.kind = DV_UPCALL_MEM_GONE, .a = mem->id.value}, true);
}
