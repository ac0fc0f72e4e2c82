/* A lot of everything: deep queues, many live objects and events, long wait lists, big buffers, a
 * flood of callbacks. OpenCL sets no limit to any of them, so an implementation with bounded queues
 * inside has to wait or grow, never to fail or to lock up. */
#include "check.h"

#include <errno.h>
#include <semaphore.h>
#include <time.h>

static const char *const source =
    "kernel void add(global uint *data, uint value) { data[get_global_id(0)] += value; }\n";

static bool wait_semaphore(sem_t *semaphore, int seconds)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += seconds;
    int result;
    while ((result = sem_timedwait(semaphore, &limit)) != 0 && errno == EINTR)
        ;
    return result == 0;
}

static cl_event make_gate(const struct dv_test *test)
{
    cl_int error;
    cl_event gate = clCreateUserEvent(test->context, &error);
    REQUIRE_CL(error);
    return gate;
}

static cl_uint read_word(const struct dv_test *test, cl_mem buffer, size_t index)
{
    cl_uint word = 0xdeadbeef;
    CHECK_CL(clEnqueueReadBuffer(test->queue, buffer, CL_TRUE, index * 4, 4, &word, 0, NULL, NULL));
    return word;
}

static cl_mem make_words(const struct dv_test *test, size_t count)
{
    cl_mem buffer = dv_test_buffer(test, 0, count * 4, NULL);
    cl_uint zero = 0;
    CHECK_CL(clEnqueueFillBuffer(test->queue, buffer, &zero, 4, 0, count * 4, 0, NULL, NULL));
    CHECK_CL(clFinish(test->queue));
    return buffer;
}

/* How many commands wait for one event: more than fit into any ring of divvy. PoCL's time for them
 * grows with a power of their number. */
static cl_uint many(void)
{
    return dv_test_on_bare_pocl() ? 1000 : 100000;
}

/* More commands behind one gate than any ring holds, then all of them in order. */
static void test_deep_queue(const struct dv_test *test, cl_kernel kernel)
{
    dv_test_section("deep queue");
    enum { COMMANDS = 60000 };
    cl_mem buffer = make_words(test, 64);
    cl_event gate = make_gate(test);
    static cl_uint values[COMMANDS / 4];
    size_t one = 1;
    CHECK_CL(clEnqueueBarrierWithWaitList(test->queue, 1, &gate, NULL));
    cl_uint expected = 0;
    for (cl_uint i = 0; i < COMMANDS; i++) {
        if (i % 4 == 3) {
            /* Word 1 is written over and over; the last value stays. */
            values[i / 4] = i;
            if (!CHECK_CL(clEnqueueWriteBuffer(test->queue, buffer, CL_FALSE, 4, 4, &values[i / 4], 0, NULL, NULL)))
                break;
        } else {
            cl_uint value = i % 7;
            CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
            CHECK_CL(clSetKernelArg(kernel, 1, sizeof value, &value));
            if (!CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL)))
                break;
            expected += value;
        }
    }
    CHECK_CL(clFlush(test->queue));
    CHECK_CL(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK_CL(clFinish(test->queue));
    CHECK(read_word(test, buffer, 0) == expected);
    CHECK(read_word(test, buffer, 1) == COMMANDS - 1);
    CHECK_CL(clReleaseEvent(gate));
    CHECK_CL(clReleaseMemObject(buffer));
}

/* Every event is kept, and all of them are in one wait list and one clWaitForEvents. */
static void test_many_events(const struct dv_test *test)
{
    dv_test_section("many events");
    const cl_uint count = many(), listed = count / 5;
    cl_event *events = calloc(count, sizeof *events);
    REQUIRE(events);
    cl_event gate = make_gate(test);
    for (cl_uint i = 0; i < count; i++)
        REQUIRE_CL(clEnqueueMarkerWithWaitList(test->ooo_queue, 1, &gate, &events[i]));
    cl_event after;
    CHECK_CL(clEnqueueMarkerWithWaitList(test->queue, listed, events, &after));
    CHECK_CL(clFlush(test->ooo_queue));
    CHECK_CL(clFlush(test->queue));
    CHECK(dv_test_event_status(after) > CL_COMPLETE);
    CHECK_CL(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK_CL(clWaitForEvents(1, &after));
    CHECK_CL(clWaitForEvents(count, events));
    for (cl_uint i = 0; i < count; i++) {
        CHECK(dv_test_event_status(events[i]) == CL_COMPLETE);
        CHECK_CL(clReleaseEvent(events[i]));
    }
    CHECK_CL(clReleaseEvent(after));
    CHECK_CL(clReleaseEvent(gate));
    free(events);
}

static void test_many_buffers(const struct dv_test *test)
{
    dv_test_section("many buffers");
    enum { BUFFERS = 20000, ROUNDS = 50000 };
    cl_mem *buffers = calloc(BUFFERS, sizeof *buffers);
    REQUIRE(buffers);
    for (cl_uint i = 0; i < BUFFERS; i++) {
        buffers[i] = dv_test_buffer(test, 0, 1024, NULL);
        CHECK_CL(clEnqueueWriteBuffer(test->queue, buffers[i], CL_FALSE, 0, 4, &i, 0, NULL, NULL));
        CHECK_CL(clFinish(test->queue));
    }
    for (cl_uint i = 0; i < BUFFERS; i += 97)
        CHECK(read_word(test, buffers[i], 0) == i);
    for (cl_uint i = 0; i < BUFFERS; i++)
        CHECK_CL(clReleaseMemObject(buffers[i]));
    free(buffers);
    /* One after the other, each used once: what is released is really given back. */
    cl_uint wrong = 0;
    for (cl_uint i = 0; i < ROUNDS; i++) {
        size_t size = 64 + (i % 100) * 40000;
        cl_mem buffer = dv_test_buffer(test, 0, size, NULL);
        if (i % 50 == 0) {
            CHECK_CL(clEnqueueWriteBuffer(test->queue, buffer, CL_FALSE, size - 4, 4, &i, 0, NULL, NULL));
            wrong += read_word(test, buffer, size / 4 - 1) != i;
        }
        CHECK_CL(clReleaseMemObject(buffer));
    }
    CHECK(wrong == 0);
}

/* Buffers near the device's maximum, transfers far bigger than any bounce buffer. */
static void test_big_buffer(const struct dv_test *test)
{
    dv_test_section("big buffer");
    cl_ulong most = 0;
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL));
    cl_int error;
    cl_mem biggest = clCreateBuffer(test->context, 0, (size_t)most, NULL, &error);
    CHECK_CL(error);
    if (biggest) {
        /* Only its ends are touched. */
        cl_uint first = 11, last = 22, back = 0;
        size_t end = (size_t)most / 4 * 4 - 4;
        CHECK_CL(clEnqueueWriteBuffer(test->queue, biggest, CL_TRUE, 0, 4, &first, 0, NULL, NULL));
        CHECK_CL(clEnqueueWriteBuffer(test->queue, biggest, CL_TRUE, end, 4, &last, 0, NULL, NULL));
        CHECK_CL(clEnqueueReadBuffer(test->queue, biggest, CL_TRUE, end, 4, &back, 0, NULL, NULL));
        CHECK(back == 22);
        CHECK_CL(clEnqueueReadBuffer(test->queue, biggest, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
        CHECK(back == 11);
        CHECK_CL(clReleaseMemObject(biggest));
    }
    size_t size = (size_t)192 << 20;
    if (size > most)
        size = (size_t)most;
    cl_mem buffer = dv_test_buffer(test, 0, size, NULL);
    uint64_t *out = malloc(size), *in = calloc(1, size);
    REQUIRE(out && in);
    for (size_t i = 0; i < size / 8; i++)
        out[i] = i * 0x9e3779b97f4a7c15u;
    CHECK_CL(clEnqueueWriteBuffer(test->queue, buffer, CL_FALSE, 0, size, out, 0, NULL, NULL));
    CHECK_CL(clEnqueueReadBuffer(test->queue, buffer, CL_FALSE, 0, size, in, 0, NULL, NULL));
    CHECK_CL(clFinish(test->queue));
    CHECK(memcmp(in, out, size) == 0);
    uint64_t *mapped =
        clEnqueueMapBuffer(test->queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, size, 0, NULL, NULL, &error);
    CHECK_CL(error);
    REQUIRE(mapped);
    CHECK(memcmp(mapped, out, size) == 0);
    mapped[size / 8 - 1] = 5;
    CHECK_CL(clEnqueueUnmapMemObject(test->queue, buffer, mapped, 0, NULL, NULL));
    CHECK(read_word(test, buffer, size / 4 - 2) == 5);
    CHECK_CL(clReleaseMemObject(buffer));
    free(out);
    free(in);
}

/* More than the device says it has: refused in an orderly way or not at all, and afterwards there
 * is room again. */
static void test_too_much(const struct dv_test *test)
{
    dv_test_section("more than there is");
    enum { BUFFERS = 64 };
    cl_ulong most = 0;
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL));
    cl_mem buffers[BUFFERS];
    int count = 0;
    for (; count < BUFFERS; count++) {
        cl_int error;
        buffers[count] = clCreateBuffer(test->context, 0, (size_t)most, NULL, &error);
        if (!buffers[count]) {
            CHECK(error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_RESOURCES ||
                  error == CL_OUT_OF_HOST_MEMORY);
            break;
        }
        CHECK_CL(error);
    }
    CHECK(count >= 1);
    for (int i = 0; i < count; i++)
        CHECK_CL(clReleaseMemObject(buffers[i]));
    cl_mem buffer = make_words(test, 1 << 20);
    CHECK(read_word(test, buffer, (1 << 20) - 1) == 0);
    CHECK_CL(clReleaseMemObject(buffer));
}

/* Callbacks by the hundred thousand. The first one holds them all up and enqueues a lot itself,
 * while the others pile up behind it. */
struct flood {
    const struct dv_test *test;
    atomic_int called, errors, first;
    int expected; /* and as many are enqueued from the first */
    sem_t done;
};

static void CL_CALLBACK on_flood(cl_event event, cl_int status, void *data)
{
    struct flood *flood = data;
    (void)event;
    if (status != CL_COMPLETE)
        atomic_fetch_add(&flood->errors, 1);
    if (atomic_exchange(&flood->first, 0)) {
        dv_test_sleep_ms(300);
        for (int i = 0; i < flood->expected; i++)
            if (clEnqueueMarkerWithWaitList(flood->test->queue, 0, NULL, NULL) != CL_SUCCESS)
                atomic_fetch_add(&flood->errors, 1);
        clFlush(flood->test->queue);
    }
    if (atomic_fetch_add(&flood->called, 1) + 1 == flood->expected)
        sem_post(&flood->done);
}

static void test_callback_flood(const struct dv_test *test)
{
    dv_test_section("flood of callbacks");
    static struct flood flood; /* outlives a callback that comes too late */
    flood = (struct flood){.test = test, .first = 1, .expected = (int)many()};
    sem_init(&flood.done, 0, 0);
    cl_event gate = make_gate(test);
    for (int i = 0; i < flood.expected; i++) {
        cl_event event;
        REQUIRE_CL(clEnqueueMarkerWithWaitList(test->ooo_queue, 1, &gate, &event));
        CHECK_CL(clSetEventCallback(event, CL_COMPLETE, on_flood, &flood));
        CHECK_CL(clReleaseEvent(event));
    }
    CHECK_CL(clFlush(test->ooo_queue));
    CHECK_CL(clSetUserEventStatus(gate, CL_COMPLETE));
    if (!CHECK(wait_semaphore(&flood.done, 60))) {
        dv_test_detail("%d of %d callbacks", atomic_load(&flood.called), flood.expected);
        dv_test_give_up(__FILE__, __LINE__, "callbacks are missing");
    }
    CHECK(atomic_load(&flood.errors) == 0);
    CHECK_CL(clFinish(test->queue));
    CHECK_CL(clFinish(test->ooo_queue));
    CHECK_CL(clReleaseEvent(gate));
}

/* Many programs, kernels, queues and contexts alive at once. */
static void test_many_others(const struct dv_test *test, cl_program program)
{
    dv_test_section("many kernels, programs, queues");
    enum { KERNELS = 3000, PROGRAMS = 500, QUEUES = 500 };
    static cl_kernel kernels[KERNELS];
    static cl_program programs[PROGRAMS];
    static cl_command_queue queues[QUEUES];
    cl_int error;
    cl_mem buffer = make_words(test, 4);
    size_t one = 1;
    for (cl_uint i = 0; i < KERNELS; i++) {
        kernels[i] = dv_test_kernel(program, "add");
        CHECK_CL(clSetKernelArg(kernels[i], 0, sizeof buffer, &buffer));
        CHECK_CL(clSetKernelArg(kernels[i], 1, sizeof i, &i));
    }
    for (int i = 0; i < PROGRAMS; i++) {
        const char *text = source;
        programs[i] = clCreateProgramWithSource(test->context, 1, &text, NULL, &error);
        CHECK_CL(error);
    }
    for (int i = 0; i < QUEUES; i++) {
        queues[i] = clCreateCommandQueue(test->context, test->device, 0, &error);
        CHECK_CL(error);
    }
    for (int i = 0; i < KERNELS; i++)
        CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernels[i], 1, NULL, &one, &one, 0, NULL, NULL));
    CHECK(read_word(test, buffer, 0) == (cl_uint)KERNELS * (KERNELS - 1) / 2);
    for (int i = 0; i < QUEUES; i++) {
        CHECK_CL(clEnqueueNDRangeKernel(queues[i], kernels[1], 1, NULL, &one, &one, 0, NULL, NULL));
        CHECK_CL(clFinish(queues[i]));
    }
    CHECK(read_word(test, buffer, 0) == (cl_uint)KERNELS * (KERNELS - 1) / 2 + QUEUES);
    for (int i = 0; i < KERNELS; i++)
        CHECK_CL(clReleaseKernel(kernels[i]));
    for (int i = 0; i < PROGRAMS; i++)
        CHECK_CL(clReleaseProgram(programs[i]));
    for (int i = 0; i < QUEUES; i++)
        CHECK_CL(clReleaseCommandQueue(queues[i]));
    CHECK_CL(clReleaseMemObject(buffer));
}

/* A source of several MiB, mostly comment. */
static void test_long_source(const struct dv_test *test)
{
    dv_test_section("long source");
    size_t size = (size_t)5 << 20;
    char *text = malloc(size + 200);
    REQUIRE(text);
    memset(text, ' ', size);
    memcpy(text, "/*", 2);
    for (size_t i = 100; i < size; i += 100)
        text[i] = '\n';
    strcpy(text + size, "*/\nkernel void tail(global int *out) { out[0] = 12; }\n");
    cl_program program = dv_test_build(test, text, "");
    size_t reported = 0;
    CHECK_CL(clGetProgramInfo(program, CL_PROGRAM_SOURCE, 0, NULL, &reported));
    CHECK(reported == strlen(text) + 1);
    char *back = malloc(reported);
    REQUIRE(back);
    CHECK_CL(clGetProgramInfo(program, CL_PROGRAM_SOURCE, reported, back, NULL));
    CHECK(strcmp(back, text) == 0);
    cl_kernel kernel = dv_test_kernel(program, "tail");
    cl_mem buffer = make_words(test, 1);
    size_t one = 1;
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    CHECK(read_word(test, buffer, 0) == 12);
    CHECK_CL(clReleaseMemObject(buffer));
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseProgram(program));
    free(back);
    free(text);
}

int main(void)
{
    struct dv_test test = dv_test_setup();
    cl_program program = dv_test_build(&test, source, "");
    cl_kernel kernel = dv_test_kernel(program, "add");
    test_deep_queue(&test, kernel);
    test_many_events(&test);
    test_many_buffers(&test);
    test_big_buffer(&test);
    test_too_much(&test);
    test_many_others(&test, program);
    test_long_source(&test);
    test_callback_flood(&test);
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseProgram(program));
    dv_test_teardown(&test);
    return dv_test_result("limits");
}
