/* Ways to end a program that has released nothing: with work in flight, memory mapped, a user event
 * that never comes, callbacks outstanding.
 *
 *     leave return | exit | _exit | quick_exit | thread | callback | abort | kernel | hold
 *
 * "callback" calls exit from an event callback, "kernel" leaves while a long kernel runs, "hold"
 * prints "ready" and waits to be killed. */
#include "tenant.h"

#include <pthread.h>
#include <unistd.h>

static void CL_CALLBACK exit_here(cl_event event, cl_int status, void *data)
{
    (void)event;
    (void)status;
    (void)data;
    exit(0);
}

static void CL_CALLBACK do_nothing(cl_event event, cl_int status, void *data)
{
    (void)event;
    (void)status;
    (void)data;
}

static void *exit_in_thread(void *unused)
{
    exit(0);
    return unused;
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 1);
    const char *mode = argv[1];
    alarm(60);
    struct tenant tenant = tenant_open();
    tenant_work(&tenant);
    cl_int error;
    size_t big = (size_t)32 << 20;
    static unsigned char host[1 << 20];
    cl_mem mapped = dv_test_buffer(&tenant.test, CL_MEM_ALLOC_HOST_PTR, big, NULL);
    unsigned char *pointer =
        clEnqueueMapBuffer(tenant.test.queue, mapped, CL_TRUE, CL_MAP_WRITE, 0, big, 0, NULL, NULL, &error);
    REQUIRE_CL(error);
    memset(pointer, 1, big);
    cl_mem plain = dv_test_buffer(&tenant.test, 0, sizeof host, NULL);
    cl_event gate = clCreateUserEvent(tenant.test.context, &error);
    REQUIRE_CL(error);
    cl_event gated, free_event;
    REQUIRE_CL(clEnqueueWriteBuffer(tenant.test.ooo_queue, plain, CL_FALSE, 0, sizeof host, host, 1, &gate, &gated));
    REQUIRE_CL(clEnqueueReadBuffer(tenant.test.ooo_queue, plain, CL_FALSE, 0, sizeof host, host, 1, &gated, NULL));
    REQUIRE_CL(clSetEventCallback(gated, CL_COMPLETE, do_nothing, NULL));
    REQUIRE_CL(clFlush(tenant.test.ooo_queue));
    for (int i = 0; i < 50; i++)
        REQUIRE_CL(clEnqueueReadBuffer(tenant.test.queue, plain, CL_FALSE, 0, sizeof host, host, 0, NULL, &free_event));

    if (strcmp(mode, "hold") == 0) {
        printf("ready\n");
        fflush(stdout);
        for (;;)
            pause();
    }
    if (strcmp(mode, "kernel") == 0) {
        cl_program program = dv_test_build(&tenant.test,
                                           "kernel void spin(global uint *data) {\n"
                                           "    uint x = data[0];\n"
                                           "    for (ulong i = 0; i < 20000000000ul; i++)\n"
                                           "        x = x * 1664525u + 1013904223u + (x >> 7);\n"
                                           "    data[0] = x;\n"
                                           "}\n",
                                           "");
        cl_kernel kernel = dv_test_kernel(program, "spin");
        size_t one = 1;
        REQUIRE_CL(clSetKernelArg(kernel, 0, sizeof plain, &plain));
        REQUIRE_CL(clEnqueueNDRangeKernel(tenant.test.queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
        REQUIRE_CL(clFlush(tenant.test.queue));
        dv_test_sleep_ms(100);
        _exit(0);
    }
    if (strcmp(mode, "exit") == 0)
        exit(0);
    if (strcmp(mode, "_exit") == 0)
        _exit(0);
    if (strcmp(mode, "quick_exit") == 0)
        quick_exit(0);
    if (strcmp(mode, "abort") == 0)
        abort();
    if (strcmp(mode, "callback") == 0) {
        REQUIRE_CL(clSetEventCallback(free_event, CL_COMPLETE, exit_here, NULL));
        REQUIRE_CL(clFlush(tenant.test.queue));
        for (;;)
            pause();
    }
    if (strcmp(mode, "thread") == 0) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, exit_in_thread, NULL) == 0);
        for (;;)
            pause();
    }
    return 0;
}
