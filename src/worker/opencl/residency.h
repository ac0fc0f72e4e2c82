/* Device memory as a cache over host memory. On devices with memory of their own (unified: no) whose
 * time is shared out, an object takes device memory when a command first uses it; when somebody else
 * needs the room, its bytes go to host memory and come back before they are used again.
 *
 * The unit is a root object with its sub-buffers and views. All of this is on the main thread. */
#ifndef DV_WORKER_OPENCL_RESIDENCY_H
#define DV_WORKER_OPENCL_RESIDENCY_H

#include "src/worker/opencl/executor.h"

void dvk_residency_start(struct dvk_worker *w);
/* Whether objects of the context are placed lazily and may be evicted. */
bool dvk_is_managed(const struct dvk_context *context);

/* A managed object has come to be (mem->make says how); initial: its bytes so far, or NULL, tightly
 * packed. Returns CL_SUCCESS or an error. */
cl_int dvk_residency_add(struct dvk_mem *mem, const void *initial);
/* Makes the vendor's object for a moment, to learn of it, also where its root (mem->root, NULL if it
 * will be one itself) is not on the device. */
cl_int dvk_residency_try(struct dvk_mem *mem);
void dvk_residency_tried(struct dvk_mem *mem);
/* The opposite of dvk_residency_add, for an object that was never used. */
void dvk_residency_forget(struct dvk_mem *mem);
/* It is not needed any more and nothing uses it: all of its memory is free again. */
void dvk_residency_remove(struct dvk_mem *mem);

/* Whether all that the command uses is on the device; if so it stays there until
 * dvk_residency_done. If not, it is brought there, and the gate is tried again when it is.
 * A command whose objects can never be there at once passes with c->refused set. */
bool dvk_residency_admit(struct dvk_command *c);
/* The command waits for the device: what it needs is brought there meanwhile, as far as there is
 * room. */
void dvk_residency_ahead(struct dvk_command *c);
/* What the command changes on the device is no longer as the host has it. */
void dvk_residency_submitted(struct dvk_command *c);
void dvk_residency_done(struct dvk_command *c);

/* A piece of the moving that is due. Returns whether more is due at once. */
bool dvk_residency_work(struct dvk_worker *w);

/* What somebody said on the lease's thread. */
void dvk_residency_placed(struct dvk_worker *w, uint32_t device, uint64_t id, uint64_t bytes, bool placed);
void dvk_residency_evict(struct dvk_worker *w, uint32_t device, uint64_t id, uint64_t bytes);

#endif
