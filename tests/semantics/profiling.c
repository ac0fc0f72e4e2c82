/* Profiling: every kind of command has four times in the right order, on one clock, and commands
 * that follow each other have times that do. */
#include "check.h"

#include <time.h>

static const char *const source = "kernel void spin(global uint *data, uint rounds) {\n"
                                  "    uint x = data[get_global_id(0)];\n"
                                  "    for (uint i = 0; i < rounds; i++)\n"
                                  "        x = x * 1664525u + 1013904223u;\n"
                                  "    data[get_global_id(0)] = x;\n"
                                  "}\n";

#define BYTES 65536

struct times {
    cl_ulong queued, submit, start, end, complete;
};

static cl_ulong time_of(cl_event event, cl_profiling_info name)
{
    cl_ulong value = 0;
    size_t size = 0;
    CHECK_CL(clGetEventProfilingInfo(event, name, sizeof value, &value, &size));
    CHECK(size == sizeof value);
    return value;
}

static struct times times_of(cl_event event, const char *name)
{
    struct times times = {time_of(event, CL_PROFILING_COMMAND_QUEUED), time_of(event, CL_PROFILING_COMMAND_SUBMIT),
                          time_of(event, CL_PROFILING_COMMAND_START), time_of(event, CL_PROFILING_COMMAND_END),
                          time_of(event, CL_PROFILING_COMMAND_COMPLETE)};
    if (!CHECK(times.queued > 0 && times.queued <= times.submit && times.submit <= times.start &&
               times.start <= times.end && times.end <= times.complete))
        dv_test_detail("%s: queued %llu, submit +%lld, start +%lld, end +%lld, complete +%lld", name,
                       (unsigned long long)times.queued, (long long)(times.submit - times.queued),
                       (long long)(times.start - times.queued), (long long)(times.end - times.queued),
                       (long long)(times.complete - times.queued));
    return times;
}

static void check_type(cl_event event, cl_command_type expected)
{
    cl_command_type type = 0;
    CHECK_CL(clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    if (expected == CL_COMMAND_TASK)
        CHECK_EXCEPT_POCL(type == expected, "5.11: the command type of clEnqueueTask");
    else if (!CHECK(type == expected))
        dv_test_detail("command type 0x%x, expected 0x%x", type, expected);
}

/* Enqueues one command of each kind and collects the events. */
struct recorded {
    cl_event event;
    cl_command_type type;
    const char *name;
};

static size_t enqueue_all(const struct dv_test *test, cl_command_queue queue, cl_kernel kernel, struct recorded *out)
{
    size_t n = 0;
    cl_int error;
    static unsigned char host[BYTES];
    cl_mem a = dv_test_buffer(test, 0, BYTES, NULL), b = dv_test_buffer(test, 0, BYTES, NULL);
    cl_uint pattern = 5, rounds = 100;
    size_t global = 64, local = 16;
    size_t zero[3] = {0}, region[3] = {64, 16, 1}, pixels[3] = {16, 16, 1};
#define RECORD(call, command, text)                                                                                    \
    do {                                                                                                               \
        out[n] = (struct recorded){NULL, (command), (text)};                                                           \
        CHECK_CL(call);                                                                                                \
        if (out[n].event)                                                                                              \
            n++;                                                                                                       \
        CHECK_CL(clEnqueueBarrierWithWaitList(queue, 0, NULL, NULL));                                                  \
    } while (0)
    RECORD(clEnqueueFillBuffer(queue, a, &pattern, 4, 0, BYTES, 0, NULL, &out[n].event), CL_COMMAND_FILL_BUFFER,
           "fill buffer");
    RECORD(clEnqueueWriteBuffer(queue, b, CL_FALSE, 0, BYTES, host, 0, NULL, &out[n].event), CL_COMMAND_WRITE_BUFFER,
           "write buffer");
    RECORD(clEnqueueCopyBuffer(queue, a, b, 0, 0, 1000, 0, NULL, &out[n].event), CL_COMMAND_COPY_BUFFER, "copy buffer");
    RECORD(clEnqueueReadBuffer(queue, b, CL_FALSE, 0, BYTES, host, 0, NULL, &out[n].event), CL_COMMAND_READ_BUFFER,
           "read buffer");
    RECORD(clEnqueueWriteBufferRect(queue, a, CL_FALSE, zero, zero, region, 0, 0, 0, 0, host, 0, NULL, &out[n].event),
           CL_COMMAND_WRITE_BUFFER_RECT, "write rect");
    RECORD(clEnqueueReadBufferRect(queue, a, CL_FALSE, zero, zero, region, 0, 0, 0, 0, host, 0, NULL, &out[n].event),
           CL_COMMAND_READ_BUFFER_RECT, "read rect");
    RECORD(clEnqueueCopyBufferRect(queue, a, b, zero, zero, region, 0, 0, 0, 0, 0, NULL, &out[n].event),
           CL_COMMAND_COPY_BUFFER_RECT, "copy rect");
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof a, &a));
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof rounds, &rounds));
    RECORD(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, &out[n].event),
           CL_COMMAND_NDRANGE_KERNEL, "kernel");
    RECORD(clEnqueueTask(queue, kernel, 0, NULL, &out[n].event), CL_COMMAND_TASK, "task");
    void *pointer = NULL;
    RECORD(
        (pointer = clEnqueueMapBuffer(queue, a, CL_TRUE, CL_MAP_READ, 0, BYTES, 0, NULL, &out[n].event, &error), error),
        CL_COMMAND_MAP_BUFFER, "map buffer");
    RECORD(clEnqueueUnmapMemObject(queue, a, pointer, 0, NULL, &out[n].event), CL_COMMAND_UNMAP_MEM_OBJECT, "unmap");
    RECORD(clEnqueueMigrateMemObjects(queue, 1, &a, 0, 0, NULL, &out[n].event), CL_COMMAND_MIGRATE_MEM_OBJECTS,
           "migrate");
    RECORD(clEnqueueMarkerWithWaitList(queue, 0, NULL, &out[n].event), CL_COMMAND_MARKER, "marker");
    RECORD(clEnqueueBarrierWithWaitList(queue, 0, NULL, &out[n].event), CL_COMMAND_BARRIER, "barrier");
    cl_bool images = CL_FALSE;
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_IMAGE_SUPPORT, sizeof images, &images, NULL));
    if (images) {
        cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
        cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 16, .image_height = 16};
        cl_mem image = clCreateImage(test->context, 0, &format, &desc, NULL, &error);
        REQUIRE_CL(error);
        cl_mem second = clCreateImage(test->context, 0, &format, &desc, NULL, &error);
        REQUIRE_CL(error);
        cl_uint4 color = {{1, 2, 3, 4}};
        size_t pitch;
        RECORD(clEnqueueFillImage(queue, image, &color, zero, pixels, 0, NULL, &out[n].event), CL_COMMAND_FILL_IMAGE,
               "fill image");
        RECORD(clEnqueueWriteImage(queue, image, CL_FALSE, zero, pixels, 0, 0, host, 0, NULL, &out[n].event),
               CL_COMMAND_WRITE_IMAGE, "write image");
        RECORD(clEnqueueReadImage(queue, image, CL_FALSE, zero, pixels, 0, 0, host, 0, NULL, &out[n].event),
               CL_COMMAND_READ_IMAGE, "read image");
        RECORD(clEnqueueCopyImage(queue, image, second, zero, zero, pixels, 0, NULL, &out[n].event),
               CL_COMMAND_COPY_IMAGE, "copy image");
        RECORD(clEnqueueCopyImageToBuffer(queue, image, a, zero, pixels, 0, 0, NULL, &out[n].event),
               CL_COMMAND_COPY_IMAGE_TO_BUFFER, "image to buffer");
        RECORD(clEnqueueCopyBufferToImage(queue, a, image, 0, zero, pixels, 0, NULL, &out[n].event),
               CL_COMMAND_COPY_BUFFER_TO_IMAGE, "buffer to image");
        RECORD((pointer = clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ, zero, pixels, &pitch, NULL, 0, NULL,
                                            &out[n].event, &error),
                error),
               CL_COMMAND_MAP_IMAGE, "map image");
        CHECK_CL(clEnqueueUnmapMemObject(queue, image, pointer, 0, NULL, NULL));
        CHECK_CL(clReleaseMemObject(image));
        CHECK_CL(clReleaseMemObject(second));
    }
#undef RECORD
    CHECK_CL(clReleaseMemObject(a));
    CHECK_CL(clReleaseMemObject(b));
    return n;
}

static void test_all_commands(const struct dv_test *test, cl_command_queue queue, cl_kernel kernel)
{
    struct recorded recorded[40];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    cl_ulong began = (cl_ulong)now.tv_sec * 1000000000u + (cl_ulong)now.tv_nsec;
    size_t count = enqueue_all(test, queue, kernel, recorded);
    CHECK_CL(clFinish(queue));
    clock_gettime(CLOCK_MONOTONIC, &now);
    cl_ulong ended = (cl_ulong)now.tv_sec * 1000000000u + (cl_ulong)now.tv_nsec;
    struct times previous = {0};
    for (size_t i = 0; i < count; i++) {
        check_type(recorded[i].event, recorded[i].type);
        struct times times = times_of(recorded[i].event, recorded[i].name);
        /* the same clock for all devices that a session may come to; readings of two clocks differ by some time */
        enum { SLACK_NS = 20000 };
        if (!dv_test_on_bare_pocl() &&
            !CHECK(times.queued >= began && times.start + SLACK_NS >= began && times.end <= ended + SLACK_NS))
            dv_test_detail(
                "%s: from %lld ns after the first command to %lld ns before the last's end on CLOCK_MONOTONIC",
                recorded[i].name, (long long)(times.start - began), (long long)(ended - times.end));
        /* A barrier was between them. */
        if (i > 0) {
            if (!CHECK(times.queued >= previous.queued))
                dv_test_detail("%s was queued before its predecessor", recorded[i].name);
            if (!CHECK(times.start >= previous.end))
                dv_test_detail("%s starts %lld ns before the end of %s", recorded[i].name,
                               (long long)(previous.end - times.start), recorded[i - 1].name);
        }
        previous = times;
    }
    for (size_t i = 0; i < count; i++)
        CHECK_CL(clReleaseEvent(recorded[i].event));
}

/* A long kernel takes about as long as the host sees it take; the gate shows between queued and
 * start. */
static void test_durations(const struct dv_test *test, cl_kernel kernel)
{
    dv_test_section("durations");
    cl_uint zeros[64] = {0}, rounds = 3000000;
    cl_mem buffer = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, sizeof zeros, zeros);
    size_t global = 64, local = 16;
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof rounds, &rounds));
    cl_event event;
    double before = dv_test_now_s();
    CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 1, NULL, &global, &local, 0, NULL, &event));
    CHECK_CL(clFinish(test->queue));
    double host = dv_test_now_s() - before;
    struct times times = times_of(event, "long kernel");
    double device = (double)(times.end - times.start) * 1e-9;
    /* Never longer than what the host saw; a good part of it is the kernel. */
    if (!CHECK(device <= host * 1.02 && device >= host * 0.1))
        dv_test_detail("host saw %.6f s, profiling says %.6f s", host, device);
    CHECK_CL(clReleaseEvent(event));

    cl_int error;
    cl_event gate = clCreateUserEvent(test->context, &error);
    REQUIRE_CL(error);
    rounds = 10;
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof rounds, &rounds));
    CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 1, NULL, &global, &local, 1, &gate, &event));
    CHECK_CL(clFlush(test->queue));
    cl_ulong value;
    CHECK_ERROR(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof value, &value, NULL),
                CL_PROFILING_INFO_NOT_AVAILABLE);
    dv_test_sleep_ms(50);
    CHECK_CL(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK_CL(clWaitForEvents(1, &event));
    times = times_of(event, "gated kernel");
    if (!CHECK(times.start - times.queued >= 40000000))
        dv_test_detail("the gate was closed for 50 ms, queued to start is %llu ns",
                       (unsigned long long)(times.start - times.queued));
    CHECK_CL(clReleaseEvent(event));
    CHECK_CL(clReleaseEvent(gate));
    CHECK_CL(clReleaseMemObject(buffer));
}

/* Commands of several queues are on one clock. */
static void test_one_clock(const struct dv_test *test, cl_kernel kernel)
{
    dv_test_section("one clock");
    enum { STEPS = 20 };
    cl_uint zeros[64] = {0}, rounds = 1000;
    cl_mem buffer = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, sizeof zeros, zeros);
    size_t global = 64, local = 16;
    cl_event events[STEPS];
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof rounds, &rounds));
    for (int i = 0; i < STEPS; i++) {
        cl_command_queue queue = i % 2 ? test->queue : test->ooo_queue;
        CHECK_CL(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, i ? 1 : 0, i ? &events[i - 1] : NULL,
                                        &events[i]));
        CHECK_CL(clFlush(queue));
    }
    CHECK_CL(clWaitForEvents(1, &events[STEPS - 1]));
    struct times previous = {0};
    for (int i = 0; i < STEPS; i++) {
        struct times times = times_of(events[i], "step");
        if (!CHECK(times.start >= previous.end))
            dv_test_detail("step %d starts %lld ns too early", i, (long long)(previous.end - times.start));
        previous = times;
        CHECK_CL(clReleaseEvent(events[i]));
    }
    CHECK_CL(clReleaseMemObject(buffer));
}

static void test_without(const struct dv_test *test)
{
    dv_test_section("queue without profiling");
    cl_int error;
    cl_command_queue queue = clCreateCommandQueue(test->context, test->device, 0, &error);
    REQUIRE_CL(error);
    cl_event event;
    cl_ulong value;
    CHECK_CL(clEnqueueMarkerWithWaitList(queue, 0, NULL, &event));
    CHECK_CL(clFinish(queue));
    CHECK_ERROR(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof value, &value, NULL),
                CL_PROFILING_INFO_NOT_AVAILABLE);
    CHECK_CL(clReleaseEvent(event));
    CHECK_CL(clReleaseCommandQueue(queue));

    CHECK_CL(clEnqueueMarkerWithWaitList(test->queue, 0, NULL, &event));
    CHECK_CL(clFinish(test->queue));
    CHECK_ERROR(clGetEventProfilingInfo(event, 0x9999, sizeof value, &value, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, 4, &value, NULL), CL_INVALID_VALUE);
    CHECK_CL(clReleaseEvent(event));
}

/* The host timer, where the platform has one. */
static void test_timer(const struct dv_test *test)
{
    dv_test_section("timer");
    cl_ulong resolution = 0;
    cl_int error =
        clGetPlatformInfo(test->platform, CL_PLATFORM_HOST_TIMER_RESOLUTION, sizeof resolution, &resolution, NULL);
    cl_ulong device = 0, host = 0, again = 0;
    if (error == CL_SUCCESS && resolution > 0) {
        CHECK_CL(clGetDeviceAndHostTimer(test->device, &device, &host));
        CHECK_CL(clGetHostTimer(test->device, &again));
        CHECK(again >= host);
        cl_event event;
        CHECK_CL(clEnqueueMarkerWithWaitList(test->queue, 0, NULL, &event));
        CHECK_CL(clFinish(test->queue));
        struct times times = times_of(event, "marker");
        /* Profiling times are the device timer's. */
        CHECK(times.end >= device && times.end - device < 60000000000u);
        CHECK_CL(clReleaseEvent(event));
    } else {
        CHECK_ERROR(clGetHostTimer(test->device, &again), CL_INVALID_OPERATION);
        CHECK_ERROR(clGetDeviceAndHostTimer(test->device, &device, &host), CL_INVALID_OPERATION);
    }
}

int main(void)
{
    struct dv_test test = dv_test_setup();
    cl_program program = dv_test_build(&test, source, "");
    cl_kernel kernel = dv_test_kernel(program, "spin");
    dv_test_section("all commands, in order");
    test_all_commands(&test, test.queue, kernel);
    test_all_commands(&test, test.queue, kernel);
    dv_test_section("all commands, out of order");
    test_all_commands(&test, test.ooo_queue, kernel);
    test_durations(&test, kernel);
    test_one_clock(&test, kernel);
    test_without(&test);
    test_timer(&test);
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseProgram(program));
    dv_test_teardown(&test);
    return dv_test_result("profiling");
}
