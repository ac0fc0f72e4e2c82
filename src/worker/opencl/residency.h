/* Device memory as a cache over host memory. On time-shared devices with their own memory (unified: no), an object is
 * placed when a command first uses it. When another session needs the room, the object is evicted to host memory, and
 * placed again before its next use.
 *
 * The unit is a root object with its sub-buffers and views. All of this is on the main thread. */
#ifndef DV_WORKER_OPENCL_RESIDENCY_H
#define DV_WORKER_OPENCL_RESIDENCY_H

#include "src/worker/opencl/executor.h"

void dvk_residency_start(struct dvk_worker *w);
/* Whether objects of the context are placed lazily and can be evicted. */
bool dvk_is_managed(const struct dvk_context *context);

/* Adds a new managed object (mem->make says how to make it). initial: its bytes, tightly packed, or NULL. Returns
 * CL_SUCCESS or an error. */
cl_int dvk_residency_add(struct dvk_mem *mem, const void *initial);
/* Makes the vendor's object for a moment, to query it, even if its root (mem->root, NULL if it will be a root itself)
 * is not on the device. */
cl_int dvk_residency_try(struct dvk_mem *mem);
void dvk_residency_tried(struct dvk_mem *mem);
/* The opposite of dvk_residency_add, for an object that was never used. */
void dvk_residency_forget(struct dvk_mem *mem);
/* Frees all memory of an object that is not needed any more and that nothing uses. */
void dvk_residency_remove(struct dvk_mem *mem);

/* Whether all objects of the command are resident. If so, they stay until dvk_residency_done. If not, they are brought
 * in, and then the gate is tried again. A command whose objects can never all be resident passes with c->refused
 * set. */
bool dvk_residency_admit(struct dvk_command *c);
/* Brings in the objects of a command that waits for the device, as far as there is room. */
void dvk_residency_ahead(struct dvk_command *c);
/* The command's writes make the host's copies outdated. */
void dvk_residency_submitted(struct dvk_command *c);
void dvk_residency_done(struct dvk_command *c);

/* Does a piece of the moves that are due. Returns whether more is due at once. */
bool dvk_residency_work(struct dvk_worker *w);

/* Evicts all that is on any device; nothing uses it. Returns false: some of it cannot be copied. */
bool dvk_residency_evacuate(struct dvk_worker *w);
/* Notes the size of an image in the vendor's terms, and tightly packed. */
void dvk_measure_image(struct dvk_mem *mem);

/* divvyd's messages, on the lease's thread. */
void dvk_residency_placed(struct dvk_worker *w, uint32_t device, uint64_t id, uint64_t bytes, bool placed);
void dvk_residency_evict(struct dvk_worker *w, uint32_t device, uint64_t id, uint64_t bytes);

#endif
