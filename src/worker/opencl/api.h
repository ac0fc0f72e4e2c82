/* OpenCL, as called by the core of a worker. */
#ifndef DV_WORKER_OPENCL_API_H
#define DV_WORKER_OPENCL_API_H

#include "src/worker/core/runtime.h"

extern const struct dvk_runtime_api dvk_opencl;

#endif
