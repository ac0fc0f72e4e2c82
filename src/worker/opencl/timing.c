/* What is known of how long kernels take. */
#include <stdlib.h>
#include <string.h>

#include "src/base/text.h"
#include "src/worker/opencl/executor.h"

struct dvk_timing *dvk_timing_new(cl_kernel kernel)
{
    struct dvk_timing *timing = calloc(1, sizeof *timing);
    char name[1024] = "";

    if (!timing)
        return NULL;
    timing->refs = 1;
    dvk_pace_init(&timing->pace);
    if (clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name - 1, name, NULL) == CL_SUCCESS)
        dv_text_copy(timing->name, sizeof timing->name, name);
    return timing;
}

void dvk_timing_unref(struct dvk_timing *timing)
{
    if (timing && --timing->refs == 0)
        free(timing);
}

bool dvk_timing_is_new_value(struct dvk_timing *timing, const struct dvk_arguments *arguments)
{
    enum { MOST = sizeof timing->values / sizeof timing->values[0] };
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (uint32_t i = 0; i < arguments->count; i++) {
        const struct dvk_argument *argument = &arguments->list[i];
        for (uint64_t at = 0; argument->value && at < argument->size; at++)
            hash = (hash ^ ((const uint8_t *)argument->value)[at]) * UINT64_C(0x100000001b3);
    }
    for (uint32_t i = 0; i < timing->value_count && i < MOST; i++)
        if (timing->values[i] == hash)
            return false;
    timing->values[timing->value_count++ % MOST] = hash;
    return true;
}

/* PoCL compiles a variant of a kernel for narrower ranges. */
#define WIDE 65535

uint32_t dvk_timing_form(const size_t offset[3], const size_t global[3])
{
    uint32_t form = 0;

    for (int d = 0; d < 3; d++) {
        if (offset[d] != 0)
            form |= DVK_FORM_OFFSET;
        if (global[d] >= WIDE)
            form |= DVK_FORM_WIDE;
    }
    return form;
}

bool dvk_timing_knows(const struct dvk_timing *timing, const size_t local[3], uint32_t form)
{
    enum { MOST = sizeof timing->local_sizes / sizeof timing->local_sizes[0] };
    const size_t wanted[4] = {local[0], local[1], local[2], form};

    for (uint32_t i = 0; i < timing->local_count && i < MOST; i++)
        if (memcmp(timing->local_sizes[i], wanted, sizeof wanted) == 0)
            return true;
    return false;
}

bool dvk_timing_is_new(struct dvk_timing *timing, const size_t local[3], uint32_t form)
{
    enum { MOST = sizeof timing->local_sizes / sizeof timing->local_sizes[0] };
    const size_t new[4] = {local[0], local[1], local[2], form};

    if (dvk_timing_knows(timing, local, form))
        return false;
    memcpy(timing->local_sizes[timing->local_count++ % MOST], new, sizeof new);
    return true;
}
