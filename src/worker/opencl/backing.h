/* Host memory for the bytes of objects that are not on the device. It is pinned, so that the vendor copies from it
 * directly, where a test finds that to be faster. */
#ifndef DV_WORKER_OPENCL_BACKING_H
#define DV_WORKER_OPENCL_BACKING_H

#include <stdbool.h>

#include "src/worker/opencl/executor.h"

/* Smaller backing memory is never in the store, where each takes pages of its own. */
#define DVK_STORED_FROM (UINT64_C(128) << 10)

/* Gives a root its backing if it has none. The queue copies between it and the device; NULL: there is
 * none yet, and the memory is not pinned. Returns false when the host has no memory. */
bool dvk_backing_need(struct dvk_mem *root, cl_command_queue queue);

void dvk_backing_free(struct dvk_mem *root);

#endif
