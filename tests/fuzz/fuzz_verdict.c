/* Whether a program's kernels can be cut, judged by its text or its SPIR-V: any bytes get a verdict. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/worker/opencl/cut_verdict.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct dvk_verdict check(struct dvk_verdict verdict)
{
    assert(verdict.kind == DV_CUT_FREE || verdict.kind == DV_CUT_CORRECTED || verdict.kind == DV_CUT_WHOLE);
    assert((verdict.kind == DV_CUT_WHOLE) == (verdict.reason != DV_WHOLE_NO_REASON));
    assert(verdict.reason < DV_WHOLE_REASONS);
    return verdict;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    /* Of its own size, so that a byte read behind it is noticed; a module is read at any address. */
    char *copy = malloc(bytes + 1);

    if (!copy)
        return 0;
    memcpy(copy + 1, data, bytes);
    struct dvk_verdict source = check(dvk_verdict_of_source(copy + 1, bytes));
    struct dvk_verdict il = check(dvk_verdict_of_il(copy + 1, bytes));
    check(dvk_verdict_of_both(source, il));
    free(copy);
    return 0;
}
