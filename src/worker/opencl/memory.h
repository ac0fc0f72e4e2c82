/* What the makers of buffers and of images share. */
#ifndef DV_WORKER_OPENCL_MEMORY_H
#define DV_WORKER_OPENCL_MEMORY_H

#include "src/worker/opencl/executor.h"

/* What the host may do with an object is the client's business; our own transfers do it all. */
#define DVK_DEVICE_FLAGS (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY | CL_MEM_KERNEL_READ_AND_WRITE)

/* Puts the object in its table even when creation failed: commands that use it then fail with the
 * reason, as creation itself needed no answer. */
void dvk_mem_keep(struct dvk_worker *w, struct dvk_mem *mem, cl_int error);
/* Zeros that a fresh object is made with where another tenant may have left something; NULL: nothing is
 * to be hidden, or it cannot be (*error). Managed objects are scrubbed when they are placed. */
void *dvk_fresh_zeros(const struct dvk_context *context, uint64_t bytes, cl_int *error);

#endif
