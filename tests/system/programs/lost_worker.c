/* A tenant whose worker is killed while it holds objects of every kind, or while it is blocked.
 *
 *     lost_worker idle       prints "ready", waits for a line on standard input, then calls on
 *     lost_worker finish     prints "ready", then blocks in clFinish
 *     lost_worker wait       ... in clWaitForEvents
 *     lost_worker read       ... in a blocking read
 *     lost_worker kernel     ... in clFinish while a kernel runs
 *     lost_worker write      ... in a blocking write, small enough to be taken along, behind a kernel
 *
 * Every call comes back; those that would have needed the worker say so with an error. Nothing that
 * was mapped may vanish under the program. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static const char *const source = "kernel void spin(global uint *data, uint rounds) {\n"
                                  "    uint x = data[get_global_id(0)];\n"
                                  "    for (uint j = 0; j < rounds; j++)\n"
                                  "        for (uint i = 0; i < 1000000; i++)\n"
                                  "            x = x * 1664525u + 1013904223u;\n"
                                  "    data[get_global_id(0)] = x;\n"
                                  "}\n";

#define BYTES ((size_t)4 << 20)

static void CL_CALLBACK on_end(cl_event event, cl_int status, void *data)
{
    (void)event;
    atomic_store((atomic_int *)data, status);
}

static void ready(void)
{
    printf("ready\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "idle";
    /* Each call has to come back; this is the last resort. */
    alarm(60);
    struct dv_test test = dv_test_setup();
    cl_program program = dv_test_build(&test, source, "");
    cl_kernel kernel = dv_test_kernel(program, "spin");
    cl_int error;
    cl_mem buffer = dv_test_buffer(&test, 0, BYTES, NULL);
    cl_mem mapped_buffer = dv_test_buffer(&test, CL_MEM_ALLOC_HOST_PTR, BYTES, NULL);
    unsigned char *mapped = clEnqueueMapBuffer(test.queue, mapped_buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, BYTES,
                                               0, NULL, NULL, &error);
    REQUIRE_CL(error);
    memset(mapped, 0x5c, BYTES);
    unsigned char *host = malloc(BYTES);
    REQUIRE(host);
    memset(host, 1, BYTES);
    cl_event gate = clCreateUserEvent(test.context, &error);
    REQUIRE_CL(error);
    cl_event pending;
    atomic_int seen = 1000;
    cl_uint rounds = strcmp(mode, "kernel") == 0 ? 1000000 : 1;
    size_t one = 1;
    REQUIRE_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    REQUIRE_CL(clSetKernelArg(kernel, 1, sizeof rounds, &rounds));
    REQUIRE_CL(clEnqueueNDRangeKernel(test.ooo_queue, kernel, 1, NULL, &one, &one, rounds > 1 ? 0 : 1,
                                      rounds > 1 ? NULL : &gate, &pending));
    REQUIRE_CL(clSetEventCallback(pending, CL_COMPLETE, on_end, &seen));
    REQUIRE_CL(clFlush(test.ooo_queue));
    if (strcmp(mode, "write") == 0) {
        cl_uint many = 1000000;
        REQUIRE_CL(clSetKernelArg(kernel, 1, sizeof many, &many));
        REQUIRE_CL(clEnqueueNDRangeKernel(test.queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
        REQUIRE_CL(clFlush(test.queue));
    }

    dv_test_section(mode);
    ready();
    if (strcmp(mode, "idle") == 0) {
        char line[16];
        REQUIRE(fgets(line, sizeof line, stdin) != NULL);
    } else if (strcmp(mode, "wait") == 0) {
        CHECK(clWaitForEvents(1, &pending) < 0);
    } else if (strcmp(mode, "read") == 0) {
        CHECK(clEnqueueReadBuffer(test.ooo_queue, buffer, CL_TRUE, 0, BYTES, host, 1, &pending, NULL) < 0);
    } else if (strcmp(mode, "write") == 0) {
        CHECK(clEnqueueWriteBuffer(test.queue, buffer, CL_TRUE, 0, 4096, host, 0, NULL, NULL) < 0);
    } else {
        CHECK(clFinish(test.ooo_queue) < 0);
    }

    /* Waiting commands have ended with an error, and their callbacks were called. */
    for (int i = 0; i < 500 && dv_test_event_status(pending) > CL_COMPLETE; i++)
        dv_test_sleep_ms(10);
    CHECK(dv_test_event_status(pending) < 0);
    CHECK(clWaitForEvents(1, &pending) < 0);
    for (int i = 0; i < 500 && atomic_load(&seen) == 1000; i++)
        dv_test_sleep_ms(10);
    CHECK(atomic_load(&seen) < 0);

    /* Mapped memory is still there. */
    CHECK(mapped[0] == 0x5c && mapped[BYTES - 1] == 0x5c);
    memset(mapped, 0x11, BYTES);

    /* New work is refused, now or through its event; nothing hangs. */
    CHECK(clEnqueueReadBuffer(test.queue, buffer, CL_TRUE, 0, BYTES, host, 0, NULL, NULL) < 0);
    CHECK(clEnqueueWriteBuffer(test.queue, buffer, CL_TRUE, 0, BYTES, host, 0, NULL, NULL) < 0);
    cl_event event = NULL;
    error = clEnqueueNDRangeKernel(test.queue, kernel, 1, NULL, &one, &one, 0, NULL, &event);
    if (error == CL_SUCCESS) {
        CHECK(clWaitForEvents(1, &event) < 0);
        CHECK(dv_test_event_status(event) < 0);
        CHECK_CL(clReleaseEvent(event));
    }
    CHECK(clFinish(test.queue) < 0);
    const char *text = "kernel void other() {}\n";
    cl_program second = clCreateProgramWithSource(test.context, 1, &text, NULL, &error);
    if (second) {
        CHECK(clBuildProgram(second, 1, &test.device, "", NULL, NULL) < 0);
        clReleaseProgram(second);
    }
    void *again = clEnqueueMapBuffer(test.queue, buffer, CL_TRUE, CL_MAP_READ, 0, 64, 0, NULL, NULL, &error);
    CHECK(again == NULL && error < 0);
    cl_context context = clCreateContext(NULL, 1, &test.device, NULL, NULL, &error);
    /* A child has no part of a session, neither of the new one nor of the lost one. */
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        CHECK(dv_test_event_status(pending) < 0);
        CHECK(clWaitForEvents(1, &pending) < 0);
        CHECK(clFinish(test.queue) < 0);
        CHECK(clEnqueueReadBuffer(test.queue, buffer, CL_TRUE, 0, BYTES, host, 0, NULL, NULL) < 0);
        _exit(dv_test_result("lost_worker (child)"));
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    if (context)
        clReleaseContext(context);
    /* The client still answers what it knows by itself. */
    size_t size = 0;
    CHECK_CL(clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof size, &size, NULL));
    CHECK(size == BYTES);
    clSetUserEventStatus(gate, CL_COMPLETE);
    clEnqueueUnmapMemObject(test.queue, mapped_buffer, mapped, 0, NULL, NULL);
    clReleaseEvent(gate);
    clReleaseEvent(pending);
    clReleaseMemObject(buffer);
    clReleaseMemObject(mapped_buffer);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    clReleaseCommandQueue(test.queue);
    clReleaseCommandQueue(test.ooo_queue);
    clReleaseContext(test.context);
    free(host);
    return dv_test_result("lost_worker");
}
