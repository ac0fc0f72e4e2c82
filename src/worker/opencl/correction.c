/* Corrected forms of programs (see correction.h). */
#include "src/worker/opencl/correction.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/worker/core/runtime.h"
#include "src/worker/opencl/cut_prelude.h"
#include "src/worker/opencl/executor.h"

/* ---- building ---- */

struct dvk_correction {
    _Atomic uint32_t refs; /* also the thread's that builds it */
    _Atomic int state;     /* enum dvk_correction_state */
    bool begun;
    struct dvk_runtime *runtime;
    cl_program original, corrected;
    char *options;
    cl_uint device_count;
    cl_device_id devices[DV_MAX_DEVICES];
};

struct dvk_correction *dvk_correction_new(struct dvk_runtime *runtime, cl_program original, const char *options,
                                          cl_uint device_count, const cl_device_id *devices)
{
    struct dvk_correction *correction = calloc(1, sizeof *correction);

    if (!correction)
        return NULL;
    correction->options = strdup(options);
    if (!correction->options) {
        free(correction);
        return NULL;
    }
    correction->refs = 1;
    correction->state = DVK_CORRECTION_BUILDING;
    correction->runtime = runtime;
    correction->original = original;
    correction->device_count = device_count;
    memcpy(correction->devices, devices, device_count * sizeof devices[0]);
    clRetainProgram(original);
    return correction;
}

struct dvk_correction *dvk_correction_ref(struct dvk_correction *correction)
{
    if (correction)
        atomic_fetch_add(&correction->refs, 1);
    return correction;
}

void dvk_correction_unref(struct dvk_correction *correction)
{
    if (!correction || atomic_fetch_sub(&correction->refs, 1) > 1)
        return;
    if (correction->corrected)
        clReleaseProgram(correction->corrected);
    clReleaseProgram(correction->original);
    free(correction->options);
    free(correction);
}

cl_program dvk_correction_program(const struct dvk_correction *correction)
{
    return correction->corrected;
}

/* NULL: the vendor does not give the source. */
static cl_program with_prelude(cl_program original)
{
    DV_AUTO_FREE char *source = NULL;
    cl_context context;
    size_t bytes = 0;

    if (clGetProgramInfo(original, CL_PROGRAM_CONTEXT, sizeof context, &context, NULL) != CL_SUCCESS ||
        clGetProgramInfo(original, CL_PROGRAM_SOURCE, 0, NULL, &bytes) != CL_SUCCESS || bytes <= 1 ||
        !(source = malloc(bytes)) || clGetProgramInfo(original, CL_PROGRAM_SOURCE, bytes, source, NULL) != CL_SUCCESS)
        return NULL;
    const char *texts[] = {dvk_cut_prelude, source};
    const size_t lengths[] = {strlen(dvk_cut_prelude), bytes - 1};
    return clCreateProgramWithSource(context, 2, texts, lengths, NULL);
}

static void build(void *argument)
{
    struct dvk_correction *correction = argument;
    enum dvk_correction_state state = DVK_CORRECTION_FAILED;

    correction->corrected = with_prelude(correction->original);
    if (correction->corrected && clBuildProgram(correction->corrected, correction->device_count,
                                                correction->device_count ? correction->devices : NULL,
                                                correction->options, NULL, NULL) == CL_SUCCESS)
        state = DVK_CORRECTION_READY;
    struct dvk_runtime *runtime = correction->runtime;
    atomic_store(&correction->state, state);
    dvk_correction_unref(correction);
    dvk_gates_wake_main(runtime);
}

enum dvk_correction_state dvk_correction_state(struct dvk_correction *correction)
{
    if (!correction->begun) {
        correction->begun = true;
        dvk_correction_ref(correction);
        if (dvk_runtime_call_beside(build, correction) < 0) {
            dvk_correction_unref(correction);
            atomic_store(&correction->state, DVK_CORRECTION_FAILED);
        }
    }
    return (enum dvk_correction_state)atomic_load(&correction->state);
}

enum dvk_correction_state dvk_kernel_correct(struct dvk_kernel *kernel)
{
    char name[1024] = "";
    cl_int error;

    if (kernel->corrected.kernel)
        return DVK_CORRECTION_READY;
    enum dvk_correction_state state =
        kernel->correction ? dvk_correction_state(kernel->correction) : DVK_CORRECTION_FAILED;
    if (state != DVK_CORRECTION_READY)
        return state;
    clGetKernelInfo(kernel->vendor, CL_KERNEL_FUNCTION_NAME, sizeof name - 1, name, NULL);
    cl_kernel vendor = clCreateKernel(dvk_correction_program(kernel->correction), name, &error);
    if (error == CL_SUCCESS && dvk_vendor_kernel_hold(&kernel->corrected, vendor, kernel->arguments->count))
        return DVK_CORRECTION_READY;
    dvk_correction_unref(kernel->correction);
    kernel->correction = NULL;
    return DVK_CORRECTION_FAILED;
}
