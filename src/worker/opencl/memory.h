/* Shared by the code that creates buffers and images. */
#ifndef DV_WORKER_OPENCL_MEMORY_H
#define DV_WORKER_OPENCL_MEMORY_H

#include "src/worker/opencl/executor.h"

/* The client enforces the host's access to an object. The worker's own transfers need all access. */
#define DVK_DEVICE_FLAGS (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY | CL_MEM_KERNEL_READ_AND_WRITE)

/* Puts the object in its table even when creation failed: commands that use it then fail with the error, because
 * creation itself has no reply. */
void dvk_mem_keep(struct dvk_worker *w, struct dvk_mem *mem, cl_int error);
/* Zeros to initialise a fresh object where another tenant may have left data. NULL: nothing must be hidden, or it
 * cannot be (*error). Managed objects are scrubbed when they are placed. */
void *dvk_fresh_zeros(const struct dvk_context *context, uint64_t bytes, cl_int *error);

#endif
