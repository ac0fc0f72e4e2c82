/* Whether a kernel can go to the device in parts, judged by its program. Pure code. */
#ifndef DV_WORKER_OPENCL_CUT_VERDICT_H
#define DV_WORKER_OPENCL_CUT_VERDICT_H

#include <stddef.h>

#include "src/wire/session/shm.h"

struct dvk_verdict {
    enum dv_cut_verdict kind;
    enum dv_whole_reason reason; /* of DV_CUT_WHOLE */
};

/* Of a program in OpenCL C; text need not end with a NUL. */
struct dvk_verdict dvk_verdict_of_source(const char *text, size_t bytes);
/* Of a module in SPIR-V, in either byte order. */
struct dvk_verdict dvk_verdict_of_il(const void *module, size_t bytes);
/* Of a program that both are part of. */
struct dvk_verdict dvk_verdict_of_both(struct dvk_verdict a, struct dvk_verdict b);

#endif
