/* Output of kernels and of the host on one stdout: what a kernel printed is there before the host
 * sees its command complete, so the two never change places. The test compares all bytes with
 * those of a run on the bare vendor; this program prints and nothing else. */
#include "check.h"

static const char *const source =
    "kernel void tell(int number) {\n"
    "    printf(\"tell %d of %d\\n\", number, (int)get_global_size(0));\n"
    "}\n"
    "kernel void speak(int number, float x) {\n"
    "    printf(\"speak %d: %5.2f %x %s|%c|%%|%v4hld\\n\", number, x, number * 255, \"text\",\n"
    "           'z', (int4)(number, 2, 3, 4));\n"
    "}\n"
    "kernel void no_newline(int number) { printf(\"<%d>\", number); }\n"
    "kernel void much(int lines) {\n"
    "    for (int i = 0; i < lines; i++)\n"
    "        printf(\"line %d of a longer output that fills pipes and buffers\\n\", i);\n"
    "}\n";

static void launch(const struct dv_test *test, cl_kernel kernel)
{
    size_t one = 1;
    REQUIRE_CL(clEnqueueNDRangeKernel(test->queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
}

int main(void)
{
    struct dv_test test = dv_test_setup();
    cl_program program = dv_test_build(&test, source, "");
    cl_kernel tell = dv_test_kernel(program, "tell"), speak = dv_test_kernel(program, "speak");
    cl_kernel no_newline = dv_test_kernel(program, "no_newline");
    cl_kernel much = dv_test_kernel(program, "much");
    printf("host begins\n");
    fflush(stdout);
    for (cl_int i = 0; i < 20; i++) {
        cl_float x = (cl_float)i / 4.0f;
        REQUIRE_CL(clSetKernelArg(tell, 0, sizeof i, &i));
        launch(&test, tell);
        REQUIRE_CL(clFinish(test.queue));
        printf("host after tell %d\n", i);
        fflush(stdout);
        REQUIRE_CL(clSetKernelArg(speak, 0, sizeof i, &i));
        REQUIRE_CL(clSetKernelArg(speak, 1, sizeof x, &x));
        REQUIRE_CL(clSetKernelArg(no_newline, 0, sizeof i, &i));
        launch(&test, speak);
        launch(&test, no_newline);
        REQUIRE_CL(clFinish(test.queue));
        printf("host after speak %d\n", i);
        fflush(stdout);
    }
    /* By another name, which only the options tell. */
    cl_program other = dv_test_build(&test, "kernel void alias(void) { SAY(\"alias\\n\"); }\n", "-DSAY=printf");
    cl_kernel alias = dv_test_kernel(other, "alias");
    for (int i = 0; i < 50; i++) {
        launch(&test, alias);
        REQUIRE_CL(clFinish(test.queue));
        printf("host after alias\n");
        fflush(stdout);
    }
    REQUIRE_CL(clReleaseKernel(alias));
    REQUIRE_CL(clReleaseProgram(other));
    /* By waiting for an event, and by a blocking read. */
    cl_event event;
    size_t one = 1;
    cl_int lines = 40000;
    REQUIRE_CL(clSetKernelArg(much, 0, sizeof lines, &lines));
    REQUIRE_CL(clEnqueueNDRangeKernel(test.queue, much, 1, NULL, &one, &one, 0, NULL, &event));
    REQUIRE_CL(clWaitForEvents(1, &event));
    REQUIRE_CL(clReleaseEvent(event));
    printf("host after much\n");
    fflush(stdout);
    cl_mem buffer = dv_test_buffer(&test, 0, 4, NULL);
    cl_int number = 99;
    REQUIRE_CL(clEnqueueWriteBuffer(test.queue, buffer, CL_TRUE, 0, 4, &number, 0, NULL, NULL));
    REQUIRE_CL(clSetKernelArg(tell, 0, sizeof number, &number));
    launch(&test, tell);
    REQUIRE_CL(clEnqueueReadBuffer(test.queue, buffer, CL_TRUE, 0, 4, &number, 0, NULL, NULL));
    printf("host after read\n");
    fflush(stdout);
    /* By polling. */
    number = 100;
    REQUIRE_CL(clSetKernelArg(tell, 0, sizeof number, &number));
    REQUIRE_CL(clEnqueueNDRangeKernel(test.queue, tell, 1, NULL, &one, &one, 0, NULL, &event));
    REQUIRE_CL(clFlush(test.queue));
    while (dv_test_event_status(event) != CL_COMPLETE)
        ;
    printf("host after polling\n");
    fflush(stdout);
    REQUIRE_CL(clReleaseEvent(event));
    REQUIRE_CL(clReleaseMemObject(buffer));
    REQUIRE_CL(clReleaseKernel(tell));
    REQUIRE_CL(clReleaseKernel(speak));
    REQUIRE_CL(clReleaseKernel(no_newline));
    REQUIRE_CL(clReleaseKernel(much));
    REQUIRE_CL(clReleaseProgram(program));
    REQUIRE_CL(clReleaseCommandQueue(test.queue));
    REQUIRE_CL(clReleaseCommandQueue(test.ooo_queue));
    REQUIRE_CL(clReleaseContext(test.context));
    return 0;
}
