/* Parking a session: what its worker leaves for the one that follows. */
#ifndef DV_WORKER_OPENCL_PARKING_H
#define DV_WORKER_OPENCL_PARKING_H

#include "src/worker/opencl/executor.h"

/* Leaves all in runtime->store. Nothing runs. */
enum dv_park_reason dvk_park(struct dvk_runtime *runtime);
/* Takes all in again. Returns 0, or a negative errno with words. */
int dvk_follow(struct dvk_runtime *runtime, char *text, size_t text_bytes);

#endif
