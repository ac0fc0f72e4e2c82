/* Moving memory objects between the device and the host, a piece at a time. */
#ifndef DV_WORKER_OPENCL_MOVING_H
#define DV_WORKER_OPENCL_MOVING_H

#include "src/worker/opencl/executor.h"

/* The objects to be brought in, in room->set: those of the command at the gate (the head), then those of the commands
 * behind it in its queue. */
struct dvk_set {
    uint32_t count, head_count; /* all; of the command at the gate */
    uint32_t arrived;           /* of them by now */
    uint64_t need, head_need;   /* room that they take */
    bool copies;                /* bytes are copied for some of them */
    bool short_of_memory;
};

static inline bool dvk_is_resident(const struct dvk_mem *root)
{
    return root->residence >= DVK_RESIDENT;
}

/* Makes the vendor's object. Its root must be on the device, or about to be. */
cl_int dvk_make_vendor(struct dvk_mem *mem);
void dvk_drop_vendor(struct dvk_mem *mem);

/* Makes every change of an object's residence. It keeps the list of resident objects and the sum of their bytes. An
 * evicted object loses its vendor's objects. */
void dvk_set_residence(struct dvk_mem *root, enum dvk_residence to);
/* A command uses a resident object: it is evicted last. */
void dvk_use_resident(struct dvk_mem *root);
/* Drops a partially placed object. */
void dvk_drop_arriving(struct dvk_mem *root);
/* The object that was interrupted on its way in is brought in again, or is not needed any more. */
void dvk_forget_partly_there(struct dvk_room *room);
/* Drops it. Its bytes are in host memory, so that costs nothing. Returns how much room that frees. */
uint64_t dvk_drop_partly_there(struct dvk_room *room);
/* Whether bytes are to be written to it when it comes to the device. */
bool dvk_needs_bytes(const struct dvk_mem *root);

/* Evicts a piece of the least recently used objects, until this many bytes are free. Returns the number of bytes freed;
 * *more: there is something left to evict; *copied_out: bytes that left the device. */
uint64_t dvk_evict_piece(struct dvk_room *room, uint64_t wanted, bool *more, uint64_t *copied_out);
/* Brings in a piece of the set. *more: there is room for more of it. */
cl_int dvk_bring_piece(struct dvk_worker *w, struct dvk_room *room, struct dvk_set *set, bool *more);

#endif
