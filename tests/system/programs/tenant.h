/* A small computation that the programs of this directory repeat to see that OpenCL still works
 * after what they did to their own process. */
#ifndef DIVVY_TESTS_SYSTEM_TENANT_H
#define DIVVY_TESTS_SYSTEM_TENANT_H

#include "check.h"

struct tenant {
    struct dv_test test;
    cl_program program;
    cl_kernel kernel;
    cl_mem buffer;
};

#define TENANT_WORDS 4096

static inline struct tenant tenant_open(void)
{
    struct tenant tenant = {.test = dv_test_setup()};
    tenant.program = dv_test_build(&tenant.test,
                                   "kernel void add(global uint *data, uint n) { data[get_global_id(0)] += n; }\n", "");
    tenant.kernel = dv_test_kernel(tenant.program, "add");
    tenant.buffer = dv_test_buffer(&tenant.test, 0, TENANT_WORDS * 4, NULL);
    return tenant;
}

/* Writes, computes, reads and maps; every step is checked. */
static inline void tenant_work(struct tenant *tenant)
{
    cl_uint words[TENANT_WORDS], n = 5;
    cl_command_queue queue = tenant->test.queue;
    size_t global = TENANT_WORDS, local = 64;
    for (cl_uint i = 0; i < TENANT_WORDS; i++)
        words[i] = i * 3;
    CHECK_CL(clEnqueueWriteBuffer(queue, tenant->buffer, CL_FALSE, 0, sizeof words, words, 0, NULL, NULL));
    CHECK_CL(clSetKernelArg(tenant->kernel, 0, sizeof tenant->buffer, &tenant->buffer));
    CHECK_CL(clSetKernelArg(tenant->kernel, 1, sizeof n, &n));
    CHECK_CL(clEnqueueNDRangeKernel(queue, tenant->kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    CHECK_CL(clEnqueueReadBuffer(queue, tenant->buffer, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
    size_t wrong = 0;
    for (cl_uint i = 0; i < TENANT_WORDS; i++)
        wrong += words[i] != i * 3 + 5;
    CHECK(wrong == 0);
    cl_int error;
    cl_uint *mapped =
        clEnqueueMapBuffer(queue, tenant->buffer, CL_TRUE, CL_MAP_READ, 0, sizeof words, 0, NULL, NULL, &error);
    CHECK_CL(error);
    if (mapped) {
        CHECK(mapped[7] == 26);
        CHECK_CL(clEnqueueUnmapMemObject(queue, tenant->buffer, mapped, 0, NULL, NULL));
    }
    CHECK_CL(clFinish(queue));
}

static inline void tenant_close(struct tenant *tenant)
{
    CHECK_CL(clReleaseMemObject(tenant->buffer));
    CHECK_CL(clReleaseKernel(tenant->kernel));
    CHECK_CL(clReleaseProgram(tenant->program));
    dv_test_teardown(&tenant->test);
}

#endif
