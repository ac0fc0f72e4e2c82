/* A tenant for a vendor that misbehaves, with the kernels that the scripted vendor of tests/vendor
 * knows.
 *
 *     faults broad [again]   goes once through much of OpenCL; with "again", and if something failed,
 *                            says "again", waits for a line on standard input and starts afresh
 *     faults steady          the same small computation until standard input ends; says "round N"
 *     faults single RULE...  one kernel and one buffer, with rules for the vendor in the source; says
 *                            "event STATUS", "times known" or not, "memory gone" or not
 *     faults hoard           fills the device's memory, gives the device back and hangs in a query to the
 *                            vendor; says "hoarding" before that
 *     faults parting         loses its worker again and again, each time while it releases contexts
 *
 * Each part of the first has objects of its own: an error in one is reported and the next one begins, so
 * that a fault of one call is seen to affect that call only. Exit code 0: all right; 1: a wrong result
 * without a reported error; 3: an OpenCL call failed, and all other results are right. Each error is a line
 * "opencl error NAME in PART: CALL" on standard error. */
#include "check.h"

#include <poll.h>
#include <unistd.h>

#define WORDS ((size_t)1024)
#define BYTES (WORDS * sizeof(cl_uint))
/* Larger than what the worker puts into a vendor's object at its creation. */
#define BIG_WORDS ((size_t)60 << 10)
#define BIG_BYTES (BIG_WORDS * sizeof(cl_uint))
#define BIG_COUNT 6
/* An error is reported by another thread, perhaps a little later than a wrong result. */
#define NEWS_MS 1000
/* By then the contexts of a lost worker have been told. */
#define PARTING_MS 20

static const char *const source = "kernel void add(global uint *to, global const uint *a,\n"
                                  "                global const uint *b) {}\n"
                                  "kernel void inc(global uint *data) {}\n"
                                  "kernel void fill(global uint *data, uint value) {}\n"
                                  "kernel void sum(global uint *to, global const uint *from) {}\n"
                                  "kernel void localsize(global uint *to, local uint *scratch) {}\n"
                                  "kernel void nop_sampled(sampler_t how) {}\n"
                                  "kernel void imagecopy(write_only image2d_t to,\n"
                                  "                      read_only image2d_t from) {}\n"
                                  "kernel void sleep(uint us) {}\n"
                                  "kernel void printf_number(uint number) {}\n";
#define KERNELS 9

struct scene {
    cl_platform_id platform;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue; /* in order, profiling */
    cl_command_queue plain; /* in order */
    cl_command_queue loose; /* out of order, profiling */
    cl_command_queue wild;  /* out of order */
    cl_program program;
};

/* ---- what went wrong ---- */

static const char *part = "start";
static unsigned errors, errors_before_part, wrong;
static atomic_uint told, told_before_part;

static bool note(cl_int error, const char *call)
{
    if (error == CL_SUCCESS)
        return true;
    fprintf(stderr, "opencl error %s in %s: %.60s\n", dv_test_error_name(error), part, call);
    errors++;
    return false;
}

static void CL_CALLBACK on_context_error(const char *text, const void *info, size_t bytes, void *user)
{
    (void)info;
    (void)bytes;
    (void)user;
    fprintf(stderr, "opencl error told to the context: %s\n", text);
    atomic_fetch_add(&told, 1);
}

static bool error_is_known(void)
{
    return errors > errors_before_part || atomic_load(&told) > atomic_load(&told_before_part);
}

/* A wrong result is excused by an error that was reported to the program. */
static void right(bool is_right, const char *what)
{
    if (is_right)
        return;
    for (int i = 0; i < NEWS_MS / 10 && !error_is_known(); i++)
        dv_test_sleep_ms(10);
    fprintf(stderr, "%s in %s: %s\n", error_is_known() ? "spoilt" : "WRONG", part, what);
    if (!error_is_known())
        wrong++;
}

static void begin(const char *name)
{
    part = name;
    errors_before_part = errors;
    atomic_store(&told_before_part, atomic_load(&told));
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if (!note((call), #call))                                                                                      \
            goto out;                                                                                                  \
    } while (0)
/* For calls that give their error through a variable of that name. */
#define MAKE(variable, call)                                                                                           \
    do {                                                                                                               \
        (variable) = (call);                                                                                           \
        if (!note(error, #call))                                                                                       \
            goto out;                                                                                                  \
    } while (0)
#define RIGHT(condition) right((condition), #condition)

static void release_mem(cl_mem mem)
{
    if (mem)
        note(clReleaseMemObject(mem), "clReleaseMemObject");
}

static void release_event(cl_event event)
{
    if (event)
        note(clReleaseEvent(event), "clReleaseEvent");
}

static void release_kernel(cl_kernel kernel)
{
    if (kernel)
        note(clReleaseKernel(kernel), "clReleaseKernel");
}

static void release_program(cl_program program)
{
    if (program)
        note(clReleaseProgram(program), "clReleaseProgram");
}

/* The end of a part: none of its commands is under way any more. */
static void finish(cl_command_queue queue)
{
    note(clFinish(queue), "clFinish");
}

static bool all_are(const cl_uint *data, size_t count, cl_uint value)
{
    for (size_t i = 0; i < count; i++)
        if (data[i] != value)
            return false;
    return true;
}

static bool all_count_from(const cl_uint *data, size_t count, cl_uint first)
{
    for (size_t i = 0; i < count; i++)
        if (data[i] != first + i)
            return false;
    return true;
}

static void count_from(cl_uint *data, size_t count, cl_uint first)
{
    for (size_t i = 0; i < count; i++)
        data[i] = first + (cl_uint)i;
}

/* Later commands of the queue are enqueued while one runs. */
static cl_int keep_busy(cl_command_queue queue, cl_program program)
{
    cl_uint us = 3000;
    size_t one = 1;
    cl_int error;
    cl_kernel kernel = clCreateKernel(program, "sleep", &error);

    if (error != CL_SUCCESS)
        return error;
    error = clSetKernelArg(kernel, 0, sizeof us, &us);
    if (error == CL_SUCCESS)
        error = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
    clReleaseKernel(kernel);
    return error;
}

/* ---- the scene ---- */

/* The scripted vendor has no such devices. */
static const cl_device_partition_property no_parts[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};

static void close_scene(struct scene *s)
{
    cl_uint count;
    cl_command_queue queues[] = {s->queue, s->plain, s->loose, s->wild};
    release_program(s->program);
    for (size_t i = 0; i < COUNT_OF(queues); i++)
        if (queues[i])
            note(clReleaseCommandQueue(queues[i]), "clReleaseCommandQueue");
    /* Releasing a context while it is told of its worker's end is left to "parting". */
    if (s->context &&
        clGetSupportedImageFormats(s->context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count) < 0)
        dv_test_sleep_ms(PARTING_MS);
    if (s->context)
        note(clReleaseContext(s->context), "clReleaseContext");
    /* Whatever the answer, all of the above is done when it comes. */
    if (s->device)
        clCreateSubDevices(s->device, no_parts, 0, NULL, &count);
    *s = (struct scene){0};
}

static bool open_scene(struct scene *s)
{
    const cl_command_queue_properties profiling = CL_QUEUE_PROFILING_ENABLE,
                                      any_order = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    cl_int error;
    *s = (struct scene){0};
    TRY(clGetPlatformIDs(1, &s->platform, NULL));
    TRY(clGetDeviceIDs(s->platform, CL_DEVICE_TYPE_ALL, 1, &s->device, NULL));
    const cl_context_properties of_platform[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)s->platform, 0};
    MAKE(s->context, clCreateContext(of_platform, 1, &s->device, on_context_error, NULL, &error));
    MAKE(s->plain, clCreateCommandQueue(s->context, s->device, 0, &error));
    MAKE(s->queue, clCreateCommandQueue(s->context, s->device, profiling, &error));
    MAKE(s->loose, clCreateCommandQueue(s->context, s->device, profiling | any_order, &error));
    MAKE(s->wild, clCreateCommandQueue(s->context, s->device, any_order, &error));
    const char *text = source;
    MAKE(s->program, clCreateProgramWithSource(s->context, 1, &text, NULL, &error));
    TRY(clBuildProgram(s->program, 1, &s->device, "-cl-kernel-arg-info", NULL, NULL));
    return true;
out:
    close_scene(s);
    return false;
}

/* ---- the parts ---- */

static void ask(struct scene *s)
{
    char text[512];
    cl_uint number = 0;
    cl_ulong memory = 0;
    size_t sizes[3] = {0}, count = 0;
    cl_image_format formats[64];
    cl_device_id device = NULL;

    TRY(clGetPlatformInfo(s->platform, CL_PLATFORM_NAME, sizeof text, text, NULL));
    RIGHT(strncmp(text, "divvy", 5) == 0 || strncmp(text, "Scripted", 8) == 0);
    TRY(clGetDeviceInfo(s->device, CL_DEVICE_NAME, sizeof text, text, NULL));
    TRY(clGetDeviceInfo(s->device, CL_DEVICE_EXTENSIONS, sizeof text, text, NULL));
    TRY(clGetDeviceInfo(s->device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof number, &number, NULL));
    RIGHT(number >= 1);
    TRY(clGetDeviceInfo(s->device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL));
    RIGHT(memory > 0);
    TRY(clGetDeviceInfo(s->device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, NULL));
    RIGHT(sizes[0] > 0);
    TRY(clGetContextInfo(s->context, CL_CONTEXT_DEVICES, sizeof device, &device, NULL));
    RIGHT(device == s->device);
    TRY(clGetSupportedImageFormats(s->context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, COUNT_OF(formats), formats,
                                   &number));
    RIGHT(number > 0);
    TRY(clGetProgramInfo(s->program, CL_PROGRAM_NUM_KERNELS, sizeof count, &count, NULL));
    RIGHT(count == KERNELS);
    /* Not offered: whatever the vendor says, it is an error. */
    RIGHT(clCreateSubDevices(s->device, no_parts, 0, NULL, &number) < 0);
out:;
}

static void use_buffers(struct scene *s)
{
    cl_mem a = NULL, b = NULL, to = NULL, half = NULL, shared = NULL;
    cl_kernel add = NULL;
    cl_event event = NULL;
    cl_uint first[WORDS], second[WORDS], got[WORDS], value = 77;
    static cl_uint lent[WORDS];
    size_t words = WORDS;
    cl_int error;

    count_from(first, WORDS, 100);
    count_from(second, WORDS, 7);
    count_from(lent, WORDS, 1000);
    MAKE(a, clCreateBuffer(s->context, CL_MEM_COPY_HOST_PTR, BYTES, first, &error));
    MAKE(b, clCreateBuffer(s->context, CL_MEM_READ_ONLY, BYTES, NULL, &error));
    MAKE(to, clCreateBuffer(s->context, 0, BYTES, NULL, &error));
    MAKE(shared, clCreateBuffer(s->context, CL_MEM_USE_HOST_PTR, BYTES, lent, &error));
    MAKE(add, clCreateKernel(s->program, "add", &error));

    /* Written while the queue is idle, computed, read by a call that blocks. */
    TRY(clEnqueueWriteBuffer(s->plain, b, CL_TRUE, 0, BYTES, second, 0, NULL, NULL));
    TRY(clSetKernelArg(add, 0, sizeof to, &to));
    TRY(clSetKernelArg(add, 1, sizeof a, &a));
    TRY(clSetKernelArg(add, 2, sizeof b, &b));
    TRY(clEnqueueNDRangeKernel(s->plain, add, 1, NULL, &words, NULL, 0, NULL, NULL));
    TRY(clEnqueueReadBuffer(s->plain, to, CL_TRUE, 0, BYTES, got, 0, NULL, NULL));
    for (size_t i = 0; i < WORDS; i++)
        if (got[i] != first[i] + second[i]) {
            RIGHT(!"sum of two buffers");
            break;
        }

    /* All in a row, the last one with an event. */
    MAKE(half,
         clCreateSubBuffer(to, 0, CL_BUFFER_CREATE_TYPE_REGION, &(cl_buffer_region){BYTES / 2, BYTES / 2}, &error));
    memset(got, 0, sizeof got);
    TRY(keep_busy(s->plain, s->program));
    TRY(clEnqueueFillBuffer(s->plain, half, &value, sizeof value, 0, BYTES / 2, 0, NULL, NULL));
    TRY(clEnqueueWriteBuffer(s->plain, b, CL_FALSE, 0, BYTES, first, 0, NULL, NULL));
    TRY(clEnqueueCopyBuffer(s->plain, b, to, 0, 0, BYTES / 2, 0, NULL, NULL));
    TRY(clEnqueueMigrateMemObjects(s->plain, 1, &to, 0, 0, NULL, NULL));
    TRY(clEnqueueReadBuffer(s->plain, to, CL_FALSE, 0, BYTES, got, 0, NULL, &event));
    TRY(clWaitForEvents(1, &event));
    RIGHT(memcmp(got, first, BYTES / 2) == 0 && all_are(got + WORDS / 2, WORDS / 2, value));

    /* Memory of the application's own, in turn with the device. */
    TRY(clSetKernelArg(add, 1, sizeof shared, &shared));
    TRY(clSetKernelArg(add, 2, sizeof shared, &shared));
    TRY(clEnqueueNDRangeKernel(s->plain, add, 1, NULL, &words, NULL, 0, NULL, NULL));
    TRY(clEnqueueCopyBuffer(s->plain, to, shared, 0, 0, BYTES, 0, NULL, NULL));
    cl_uint *mapped = clEnqueueMapBuffer(s->plain, shared, CL_TRUE, CL_MAP_READ, 0, BYTES, 0, NULL, NULL, &error);
    TRY(error);
    RIGHT(mapped == lent && lent[0] == 2000 && lent[WORDS - 1] == 2 * (1000 + WORDS - 1));
    TRY(clEnqueueUnmapMemObject(s->plain, shared, mapped, 0, NULL, NULL));
out:
    finish(s->plain);
    release_event(event);
    release_mem(half);
    release_mem(a);
    release_mem(b);
    release_mem(to);
    release_mem(shared);
    release_kernel(add);
}

static void map_buffers(struct scene *s)
{
    cl_mem buffer = NULL;
    cl_kernel inc = NULL;
    cl_event event = NULL;
    cl_uint *mapped = NULL, got[WORDS];
    size_t words = WORDS;
    cl_int error;

    MAKE(buffer, clCreateBuffer(s->context, CL_MEM_ALLOC_HOST_PTR, BYTES, NULL, &error));
    MAKE(inc, clCreateKernel(s->program, "inc", &error));
    MAKE(mapped, clEnqueueMapBuffer(s->queue, buffer, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, BYTES, 0, NULL, NULL,
                                    &error));
    count_from(mapped, WORDS, 0);
    TRY(clEnqueueUnmapMemObject(s->queue, buffer, mapped, 0, NULL, NULL));
    TRY(clSetKernelArg(inc, 0, sizeof buffer, &buffer));
    TRY(clEnqueueNDRangeKernel(s->queue, inc, 1, NULL, &words, NULL, 0, NULL, NULL));
    MAKE(mapped,
         clEnqueueMapBuffer(s->queue, buffer, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 0, BYTES, 0, NULL, &event, &error));
    TRY(clWaitForEvents(1, &event));
    RIGHT(all_count_from(mapped, WORDS, 1));
    count_from(mapped, WORDS, 50);
    TRY(clEnqueueUnmapMemObject(s->queue, buffer, mapped, 0, NULL, NULL));
    TRY(clEnqueueReadBuffer(s->queue, buffer, CL_TRUE, 0, BYTES, got, 0, NULL, NULL));
    RIGHT(all_count_from(got, WORDS, 50));
out:
    finish(s->queue);
    release_event(event);
    release_mem(buffer);
    release_kernel(inc);
}

static void use_rectangles(struct scene *s)
{
    enum { SIDE = 32 }; /* of a square of words */
    const size_t row = SIDE * 4, zero[3] = {0}, half[3] = {row / 2, SIDE / 2, 1}, right_half[3] = {row / 2, 0, 0};
    cl_mem from = NULL, to = NULL;
    cl_uint square[SIDE * SIDE], got[SIDE * SIDE], nothing = 0;
    cl_int error;

    count_from(square, SIDE * SIDE, 0);
    MAKE(from, clCreateBuffer(s->context, 0, sizeof square, NULL, &error));
    MAKE(to, clCreateBuffer(s->context, 0, sizeof square, NULL, &error));
    TRY(keep_busy(s->plain, s->program));
    TRY(clEnqueueFillBuffer(s->plain, from, &nothing, 4, 0, sizeof square, 0, NULL, NULL));
    TRY(clEnqueueFillBuffer(s->plain, to, &nothing, 4, 0, sizeof square, 0, NULL, NULL));
    TRY(clEnqueueWriteBufferRect(s->plain, from, CL_FALSE, zero, zero, half, row, 0, row, 0, square, 0, NULL, NULL));
    TRY(clEnqueueCopyBufferRect(s->plain, from, to, zero, right_half, half, row, 0, row, 0, 0, NULL, NULL));
    memset(got, 0xff, sizeof got);
    TRY(clEnqueueReadBufferRect(s->plain, to, CL_TRUE, right_half, right_half, half, row, 0, row, 0, got, 0, NULL,
                                NULL));
    bool same = true;
    for (size_t y = 0; y < SIDE / 2; y++)
        for (size_t x = 0; x < SIDE / 2; x++)
            same = same && got[y * SIDE + SIDE / 2 + x] == square[y * SIDE + x];
    RIGHT(same);
    RIGHT(got[0] == 0xffffffff);
    /* The same once more while the queue is idle. */
    TRY(clEnqueueWriteBufferRect(s->plain, from, CL_TRUE, zero, zero, half, row, 0, row, 0, square, 0, NULL, NULL));
    TRY(clEnqueueReadBuffer(s->plain, from, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL));
    RIGHT(got[1] == 1 && got[SIDE] == SIDE && got[SIDE / 2] == 0);
out:
    finish(s->plain);
    release_mem(from);
    release_mem(to);
}

static void CL_CALLBACK on_end(cl_event event, cl_int status, void *user)
{
    (void)event;
    atomic_store((atomic_int *)user, status);
}

static bool comes(atomic_int *word, int not_yet)
{
    for (int i = 0; i < NEWS_MS && atomic_load(word) == not_yet; i++)
        dv_test_sleep_ms(1);
    return atomic_load(word) != not_yet;
}

/* Across queues, with all that can stand between two commands. */
static void use_events(struct scene *s)
{
    cl_mem one = NULL, two = NULL;
    cl_kernel inc = NULL, add = NULL;
    cl_event gate = NULL, chain[8] = {NULL}, marker = NULL;
    cl_uint data[WORDS], got[WORDS];
    cl_ulong start = 0, end = 0;
    static atomic_int seen; /* may be written after an error has ended this part */
    size_t words = WORDS;
    bool gate_is_set = false;
    cl_int error;

    atomic_store(&seen, 1000);
    count_from(data, WORDS, 10);
    MAKE(one, clCreateBuffer(s->context, 0, BYTES, NULL, &error));
    MAKE(two, clCreateBuffer(s->context, 0, BYTES, NULL, &error));
    MAKE(inc, clCreateKernel(s->program, "inc", &error));
    MAKE(add, clCreateKernel(s->program, "add", &error));
    MAKE(gate, clCreateUserEvent(s->context, &error));
    TRY(clEnqueueWriteBuffer(s->loose, one, CL_FALSE, 0, BYTES, data, 1, &gate, &chain[0]));
    TRY(clSetKernelArg(inc, 0, sizeof one, &one));
    TRY(clEnqueueNDRangeKernel(s->loose, inc, 1, NULL, &words, NULL, 1, &chain[0], &chain[1]));
    TRY(clSetEventCallback(chain[1], CL_COMPLETE, on_end, &seen));
    TRY(clEnqueueBarrierWithWaitList(s->loose, 0, NULL, NULL));
    TRY(clEnqueueCopyBuffer(s->loose, one, two, 0, 0, BYTES, 0, NULL, &chain[2]));
    TRY(clEnqueueMarkerWithWaitList(s->wild, 1, &chain[2], &marker));
    TRY(clSetKernelArg(add, 0, sizeof one, &one));
    TRY(clSetKernelArg(add, 1, sizeof one, &one));
    TRY(clSetKernelArg(add, 2, sizeof two, &two));
    TRY(clEnqueueNDRangeKernel(s->queue, add, 1, NULL, &words, NULL, 1, &marker, &chain[3]));
    TRY(clEnqueueMarkerWithWaitList(s->queue, 0, NULL, &chain[4]));
    TRY(clEnqueueReadBuffer(s->wild, one, CL_FALSE, 0, BYTES, got, 1, &chain[4], &chain[5]));
    TRY(clFlush(s->loose));
    TRY(clFlush(s->queue));
    TRY(clFlush(s->wild));
    TRY(clSetUserEventStatus(gate, CL_COMPLETE));
    gate_is_set = true;
    TRY(clWaitForEvents(1, &chain[5]));
    bool same = true;
    for (size_t i = 0; i < WORDS; i++)
        same = same && got[i] == 2 * (11 + i);
    RIGHT(same);
    RIGHT(comes(&seen, 1000) && atomic_load(&seen) == CL_COMPLETE);
    TRY(clGetEventProfilingInfo(chain[3], CL_PROFILING_COMMAND_START, sizeof start, &start, NULL));
    TRY(clGetEventProfilingInfo(chain[3], CL_PROFILING_COMMAND_END, sizeof end, &end, NULL));
    RIGHT(start > 0 && end >= start);
    TRY(clEnqueueNDRangeKernel(s->wild, inc, 1, NULL, &words, NULL, 0, NULL, &chain[6]));
    TRY(clEnqueueReadBuffer(s->wild, one, CL_TRUE, 0, BYTES, got, 1, &chain[6], &chain[7]));
    RIGHT(got[0] == 23 && got[WORDS - 1] == 2 * (11 + WORDS - 1) + 1);
out:
    if (gate && !gate_is_set)
        clSetUserEventStatus(gate, -1);
    /* Commands that wait for a failed one end with an error, which is not reported again. */
    clFinish(s->loose);
    clFinish(s->queue);
    clFinish(s->wild);
    for (size_t i = 0; i < COUNT_OF(chain); i++)
        release_event(chain[i]);
    release_event(marker);
    release_event(gate);
    release_mem(one);
    release_mem(two);
    release_kernel(inc);
    release_kernel(add);
}

static void use_images(struct scene *s)
{
    enum { WIDE = 32, HIGH = 16, DEEP = 4 };
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc plane = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = WIDE, .image_height = HIGH};
    const cl_image_desc block = {
        .image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = WIDE, .image_height = HIGH, .image_depth = DEEP};
    const size_t zero[3] = {0}, all[3] = {WIDE, HIGH, 1}, cube[3] = {WIDE, HIGH, DEEP};
    cl_mem from = NULL, to = NULL, solid = NULL, buffer = NULL;
    cl_kernel copy = NULL, sampled = NULL;
    cl_sampler sampler = NULL;
    cl_uint pixels[WIDE * HIGH], got[WIDE * HIGH], many[WIDE * HIGH * DEEP], colour[4] = {1, 2, 3, 4};
    size_t items[2] = {WIDE, HIGH}, one = 1, element = 0, bytes = 0, pitch = 0;
    cl_int error;

    count_from(pixels, COUNT_OF(pixels), 5);
    MAKE(from, clCreateImage(s->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &format, &plane, pixels, &error));
    MAKE(to, clCreateImage(s->context, 0, &format, &plane, NULL, &error));
    MAKE(solid, clCreateImage(s->context, 0, &format, &block, NULL, &error));
    MAKE(buffer, clCreateBuffer(s->context, 0, sizeof pixels, NULL, &error));
    MAKE(copy, clCreateKernel(s->program, "imagecopy", &error));
    MAKE(sampled, clCreateKernel(s->program, "nop_sampled", &error));
    MAKE(sampler, clCreateSampler(s->context, CL_FALSE, CL_ADDRESS_NONE, CL_FILTER_NEAREST, &error));
    TRY(clGetImageInfo(from, CL_IMAGE_ELEMENT_SIZE, sizeof element, &element, NULL));
    RIGHT(element == 4);
    TRY(clGetMemObjectInfo(from, CL_MEM_SIZE, sizeof bytes, &bytes, NULL));
    RIGHT(bytes >= sizeof pixels);

    TRY(clSetKernelArg(copy, 0, sizeof to, &to));
    TRY(clSetKernelArg(copy, 1, sizeof from, &from));
    TRY(clEnqueueNDRangeKernel(s->plain, copy, 2, NULL, items, NULL, 0, NULL, NULL));
    TRY(clSetKernelArg(sampled, 0, sizeof sampler, &sampler));
    TRY(clEnqueueNDRangeKernel(s->plain, sampled, 1, NULL, &one, NULL, 0, NULL, NULL));
    memset(got, 0, sizeof got);
    TRY(clEnqueueReadImage(s->plain, to, CL_TRUE, zero, all, 0, 0, got, 0, NULL, NULL));
    RIGHT(memcmp(got, pixels, sizeof pixels) == 0);

    count_from(pixels, COUNT_OF(pixels), 900);
    TRY(clEnqueueWriteImage(s->plain, to, CL_FALSE, zero, all, 0, 0, pixels, 0, NULL, NULL));
    TRY(clEnqueueCopyImageToBuffer(s->plain, to, buffer, zero, all, 0, 0, NULL, NULL));
    TRY(clEnqueueReadBuffer(s->plain, buffer, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL));
    RIGHT(memcmp(got, pixels, sizeof pixels) == 0);

    TRY(clEnqueueFillImage(s->plain, solid, colour, zero, cube, 0, NULL, NULL));
    TRY(clEnqueueCopyImage(s->plain, to, solid, zero, (size_t[]){0, 0, 2}, all, 0, NULL, NULL));
    TRY(clEnqueueCopyBufferToImage(s->plain, buffer, solid, 0, (size_t[]){0, 0, 3}, all, 0, NULL, NULL));
    memset(many, 0, sizeof many);
    TRY(clEnqueueReadImage(s->plain, solid, CL_TRUE, zero, cube, 0, 0, many, 0, NULL, NULL));
    RIGHT(all_are(many, 2 * WIDE * HIGH, 0x04030201));
    RIGHT(memcmp(many + 2 * WIDE * HIGH, pixels, sizeof pixels) == 0);
    RIGHT(memcmp(many + 3 * WIDE * HIGH, pixels, sizeof pixels) == 0);

    cl_uint *mapped = clEnqueueMapImage(s->plain, to, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, zero, all, &pitch, NULL, 0,
                                        NULL, NULL, &error);
    TRY(error);
    RIGHT(mapped[1] == 901);
    mapped[1] = 12345;
    TRY(clEnqueueUnmapMemObject(s->plain, to, mapped, 0, NULL, NULL));
    TRY(clEnqueueReadImage(s->plain, to, CL_TRUE, zero, all, 0, 0, got, 0, NULL, NULL));
    RIGHT(got[0] == 900 && got[1] == 12345);
out:
    finish(s->plain);
    release_mem(from);
    release_mem(to);
    release_mem(solid);
    release_mem(buffer);
    release_kernel(copy);
    release_kernel(sampled);
    if (sampler)
        note(clReleaseSampler(sampler), "clReleaseSampler");
}

static void run_sum(struct scene *s, cl_program program)
{
    cl_mem from = NULL, to = NULL;
    cl_kernel kernel = NULL, twin = NULL;
    cl_uint data[WORDS], got = 0;
    size_t words = WORDS;
    cl_int error;

    for (size_t i = 0; i < WORDS; i++)
        data[i] = 3;
    MAKE(kernel, clCreateKernel(program, "sum", &error));
    MAKE(from, clCreateBuffer(s->context, CL_MEM_COPY_HOST_PTR, BYTES, data, &error));
    MAKE(to, clCreateBuffer(s->context, 0, sizeof got, NULL, &error));
    TRY(clSetKernelArg(kernel, 0, sizeof to, &to));
    TRY(clSetKernelArg(kernel, 1, sizeof from, &from));
    MAKE(twin, clCloneKernel(kernel, &error));
    TRY(clEnqueueNDRangeKernel(s->plain, twin, 1, NULL, &words, &words, 0, NULL, NULL));
    TRY(clEnqueueReadBuffer(s->plain, to, CL_TRUE, 0, sizeof got, &got, 0, NULL, NULL));
    RIGHT(got == 3 * WORDS);
out:
    finish(s->plain);
    release_mem(from);
    release_mem(to);
    release_kernel(kernel);
    release_kernel(twin);
}

static void use_programs(struct scene *s)
{
    const char *text = source, *broken = "#error on purpose\n", *header = "\n";
    cl_program library = NULL, compiled = NULL, linked = NULL, binary = NULL, bad = NULL;
    cl_kernel kernels[KERNELS] = {NULL}, local = NULL;
    cl_mem buffer = NULL;
    unsigned char *bytes = NULL;
    char log[1024] = "";
    cl_uint count = 0, got = 0;
    size_t length = 0, one = 1, group = 0;
    cl_int error;

    MAKE(library, clCreateProgramWithSource(s->context, 1, &header, NULL, &error));
    MAKE(compiled, clCreateProgramWithSource(s->context, 1, &text, NULL, &error));
    const char *name = "nothing.h";
    TRY(clCompileProgram(compiled, 1, &s->device, "", 1, &library, &name, NULL, NULL));
    MAKE(linked, clLinkProgram(s->context, 1, &s->device, "", 1, &compiled, NULL, NULL, &error));
    run_sum(s, linked);
    TRY(clGetProgramInfo(linked, CL_PROGRAM_BINARY_SIZES, sizeof length, &length, NULL));
    RIGHT(length > 0);
    bytes = malloc(length ? length : 1);
    REQUIRE(bytes);
    TRY(clGetProgramInfo(linked, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL));
    MAKE(binary,
         clCreateProgramWithBinary(s->context, 1, &s->device, &length, (const unsigned char **)&bytes, NULL, &error));
    TRY(clBuildProgram(binary, 1, &s->device, "", NULL, NULL));
    run_sum(s, binary);
    TRY(clCreateKernelsInProgram(s->program, COUNT_OF(kernels), kernels, &count));
    RIGHT(count == COUNT_OF(kernels) && kernels[0] && kernels[COUNT_OF(kernels) - 1]);
    TRY(clGetKernelWorkGroupInfo(kernels[0], s->device, CL_KERNEL_WORK_GROUP_SIZE, sizeof group, &group, NULL));
    RIGHT(group > 0);
    MAKE(local, clCreateKernel(s->program, "localsize", &error));
    MAKE(buffer, clCreateBuffer(s->context, 0, sizeof got, NULL, &error));
    TRY(clSetKernelArg(local, 0, sizeof buffer, &buffer));
    TRY(clSetKernelArg(local, 1, 64, NULL));
    TRY(clEnqueueNDRangeKernel(s->plain, local, 1, NULL, &one, &one, 0, NULL, NULL));
    TRY(clEnqueueReadBuffer(s->plain, buffer, CL_TRUE, 0, sizeof got, &got, 0, NULL, NULL));
    RIGHT(got == 64);

    /* These calls are refused in any case, with whatever error. */
    MAKE(bad, clCreateProgramWithSource(s->context, 1, &broken, NULL, &error));
    error = clBuildProgram(bad, 1, &s->device, "", NULL, NULL);
    RIGHT(error < 0);
    TRY(clGetProgramBuildInfo(bad, s->device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL));
    RIGHT(error != CL_BUILD_PROGRAM_FAILURE || log[0] != '\0');
    RIGHT(!clCreateProgramWithIL(s->context, "none", 4, &error) && error < 0);
    RIGHT(!clCreateProgramWithBuiltInKernels(s->context, 1, &s->device, "none", &error) && error < 0);
    RIGHT(clGetKernelSubGroupInfo(kernels[0], s->device, CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE, sizeof one, &one,
                                  sizeof group, &group, NULL) < 0);
out:
    finish(s->plain);
    free(bytes);
    for (size_t i = 0; i < COUNT_OF(kernels); i++)
        release_kernel(kernels[i]);
    release_kernel(local);
    release_mem(buffer);
    release_program(bad);
    release_program(binary);
    release_program(linked);
    release_program(compiled);
    release_program(library);
}

static void CL_CALLBACK on_gone(cl_mem mem, void *user)
{
    (void)mem;
    atomic_store((atomic_int *)user, 1);
}

static void CL_CALLBACK on_built(cl_program program, void *user)
{
    (void)program;
    atomic_store((atomic_int *)user, 1);
}

static void CL_CALLBACK on_context_gone(cl_context context, void *user)
{
    (void)context;
    atomic_store((atomic_int *)user, 1);
}

/* Property lists, a long wait list, an included file, and the callbacks that are not about events. */
static void use_lists(struct scene *s)
{
    enum { MANY = 20 };
    const cl_queue_properties any_order[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 0};
    const cl_sampler_properties nearest[] = {CL_SAMPLER_FILTER_MODE, CL_FILTER_NEAREST, 0};
    const cl_mem_properties none[] = {0};
    static atomic_int built, memory_gone, context_gone; /* may be written after an error, too */
    cl_command_queue queue = NULL;
    cl_sampler sampler = NULL;
    cl_mem buffer = NULL;
    cl_program program = NULL;
    cl_kernel inc = NULL;
    cl_event events[MANY] = {NULL}, all = NULL;
    char attributes[16];
    const char *text = "#include \"inc.h\"\n", *options = "-I " DV_TEST_HEADERS;
    size_t bytes = 0;
    cl_int error;

    TRY(clGetContextInfo(s->context, CL_CONTEXT_PROPERTIES, 0, NULL, &bytes));
    RIGHT(bytes == 3 * sizeof(cl_context_properties));
    TRY(clSetContextDestructorCallback(s->context, on_context_gone, &context_gone));
    MAKE(queue, clCreateCommandQueueWithProperties(s->context, s->device, any_order, &error));
    TRY(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES_ARRAY, 0, NULL, &bytes));
    RIGHT(bytes == sizeof any_order);
    MAKE(sampler, clCreateSamplerWithProperties(s->context, nearest, &error));
    TRY(clGetSamplerInfo(sampler, CL_SAMPLER_PROPERTIES, 0, NULL, &bytes));
    RIGHT(bytes == sizeof nearest);
    MAKE(buffer, clCreateBufferWithProperties(s->context, none, 0, BYTES, NULL, &error));
    TRY(clGetMemObjectInfo(buffer, CL_MEM_PROPERTIES, 0, NULL, &bytes));
    RIGHT(bytes == sizeof none);
    TRY(clSetMemObjectDestructorCallback(buffer, on_gone, &memory_gone));

    MAKE(program, clCreateProgramWithSource(s->context, 1, &text, NULL, &error));
    TRY(clBuildProgram(program, 1, &s->device, options, on_built, &built));
    RIGHT(comes(&built, 0));
    TRY(clGetProgramBuildInfo(program, s->device, CL_PROGRAM_BUILD_OPTIONS, 0, NULL, &bytes));
    RIGHT(bytes == strlen(options) + 1);
    MAKE(inc, clCreateKernel(program, "inc", &error));
    TRY(clGetKernelInfo(inc, CL_KERNEL_FUNCTION_NAME, 0, NULL, &bytes));
    RIGHT(bytes == sizeof "inc");
    TRY(clGetKernelInfo(inc, CL_KERNEL_ATTRIBUTES, sizeof attributes, attributes, NULL));

    for (size_t i = 0; i < MANY; i++)
        TRY(clEnqueueMarkerWithWaitList(queue, 0, NULL, &events[i]));
    TRY(clEnqueueMarkerWithWaitList(queue, MANY, events, &all));
    TRY(clWaitForEvents(1, &all));
    release_mem(buffer);
    buffer = NULL;
    RIGHT(comes(&memory_gone, 0));
out:
    for (size_t i = 0; i < MANY; i++)
        release_event(events[i]);
    release_event(all);
    release_kernel(inc);
    release_program(program);
    release_mem(buffer);
    if (sampler)
        note(clReleaseSampler(sampler), "clReleaseSampler");
    if (queue)
        note(clReleaseCommandQueue(queue), "clReleaseCommandQueue");
}

/* More than the test's device has at once, so that objects have to be evicted and brought back. */
static void use_much_memory(struct scene *s)
{
    cl_mem big[BIG_COUNT] = {NULL};
    cl_kernel inc = NULL;
    cl_uint *data = malloc(BIG_BYTES);
    size_t words = BIG_WORDS;
    cl_int error;

    REQUIRE(data);
    MAKE(inc, clCreateKernel(s->program, "inc", &error));
    for (cl_uint i = 0; i < BIG_COUNT; i++) {
        count_from(data, BIG_WORDS, 1000 * i);
        /* by turns filled at creation and later */
        if (i % 2)
            MAKE(big[i], clCreateBuffer(s->context, 0, BIG_BYTES, NULL, &error));
        else
            MAKE(big[i], clCreateBuffer(s->context, CL_MEM_COPY_HOST_PTR, BIG_BYTES, data, &error));
        if (i % 2)
            TRY(clEnqueueWriteBuffer(s->plain, big[i], CL_FALSE, 0, BIG_BYTES, data, 0, NULL, NULL));
        TRY(clFinish(s->plain)); /* `data` is used again */
    }
    for (int round = 0; round < 2; round++)
        for (cl_uint i = 0; i < BIG_COUNT; i++) {
            TRY(clSetKernelArg(inc, 0, sizeof big[i], &big[i]));
            TRY(clEnqueueNDRangeKernel(s->plain, inc, 1, NULL, &words, NULL, 0, NULL, NULL));
        }
    for (cl_uint i = 0; i < BIG_COUNT; i++) {
        memset(data, 0, BIG_BYTES);
        TRY(clEnqueueReadBuffer(s->plain, big[i], CL_TRUE, 0, BIG_BYTES, data, 0, NULL, NULL));
        right(all_count_from(data, BIG_WORDS, 1000 * i + 2), "many large buffers");
    }
out:
    finish(s->plain);
    for (cl_uint i = 0; i < BIG_COUNT; i++)
        release_mem(big[i]);
    release_kernel(inc);
    free(data);
}

static void print(struct scene *s)
{
    cl_kernel kernel = NULL;
    cl_uint number = 42;
    size_t one = 1;
    cl_int error;

    MAKE(kernel, clCreateKernel(s->program, "printf_number", &error));
    TRY(clSetKernelArg(kernel, 0, sizeof number, &number));
    TRY(clEnqueueNDRangeKernel(s->queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
out:
    finish(s->queue);
    release_kernel(kernel);
}

/* Callbacks come one after the other: when this one has come, so have those about what was before. */
static void hear_all(struct scene *s)
{
    static atomic_int heard;
    cl_event event = NULL;

    atomic_store(&heard, 1000);
    if (clEnqueueMarkerWithWaitList(s->queue, 0, NULL, &event) != CL_SUCCESS)
        return;
    if (clSetEventCallback(event, CL_COMPLETE, on_end, &heard) == CL_SUCCESS)
        comes(&heard, 1000);
    clReleaseEvent(event);
}

static int broad(bool may_begin_anew)
{
    static const struct {
        const char *name;
        void (*run)(struct scene *);
    } parts[] = {{"queries", ask},
                 {"buffers", use_buffers},
                 {"maps", map_buffers},
                 {"rectangles", use_rectangles},
                 {"events", use_events},
                 {"images", use_images},
                 {"programs", use_programs},
                 {"lists", use_lists},
                 {"memory", use_much_memory},
                 {"print", print}};
    struct scene scene;
    cl_platform_id platform;

    if (open_scene(&scene)) {
        for (size_t i = 0; i < COUNT_OF(parts); i++) {
            begin(parts[i].name);
            parts[i].run(&scene);
        }
        begin("end");
        hear_all(&scene);
        close_scene(&scene);
    }
    /* The loader looks for platforms only once in a process. */
    bool failed = errors || atomic_load(&told);
    if (may_begin_anew && failed && clGetPlatformIDs(1, &platform, NULL) == CL_SUCCESS) {
        char line[16];
        unsigned first = errors;
        printf("again\n");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            return 2;
        begin("new context");
        if (open_scene(&scene)) {
            run_sum(&scene, scene.program);
            close_scene(&scene);
        }
        right(errors == first, "a new context");
        printf("anew %s\n", errors == first ? "right" : "wrong");
        if (errors > first)
            wrong++;
    }
    return wrong ? 1 : errors || atomic_load(&told) ? 3 : 0;
}

/* ---- the other tenant ---- */

static bool input_ended(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;

    return poll(&input, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

static int steady(void)
{
    struct scene scene;
    cl_mem one = NULL, two = NULL;
    cl_kernel add = NULL;
    cl_uint *data = malloc(BIG_BYTES);
    size_t words = BIG_WORDS;
    cl_int error;

    REQUIRE(data);
    begin("steady");
    if (!open_scene(&scene))
        return 3;
    MAKE(one, clCreateBuffer(scene.context, 0, BIG_BYTES, NULL, &error));
    MAKE(two, clCreateBuffer(scene.context, 0, BIG_BYTES, NULL, &error));
    MAKE(add, clCreateKernel(scene.program, "add", &error));
    TRY(clSetKernelArg(add, 0, sizeof two, &two));
    TRY(clSetKernelArg(add, 1, sizeof one, &one));
    TRY(clSetKernelArg(add, 2, sizeof one, &one));
    for (cl_uint round = 1; !input_ended(); round++) {
        count_from(data, BIG_WORDS, round);
        TRY(clEnqueueWriteBuffer(scene.plain, one, CL_FALSE, 0, BIG_BYTES, data, 0, NULL, NULL));
        TRY(clEnqueueNDRangeKernel(scene.plain, add, 1, NULL, &words, NULL, 0, NULL, NULL));
        TRY(clEnqueueReadBuffer(scene.plain, two, CL_TRUE, 0, BIG_BYTES, data, 0, NULL, NULL));
        for (size_t i = 0; i < BIG_WORDS; i++)
            if (data[i] != 2 * (round + (cl_uint)i)) {
                right(false, "steady sum");
                goto out;
            }
        printf("round %u\n", round);
        fflush(stdout);
        dv_test_sleep_ms(5); /* others share the processor, too */
    }
    free(data);
    release_mem(one);
    release_mem(two);
    release_kernel(add);
    close_scene(&scene);
    return errors ? 3 : 0;
out:
    return wrong ? 1 : 3;
}

/* ---- one thing at a time ---- */

static int single(int count, char **rules)
{
    struct scene scene;
    cl_mem buffer = NULL;
    cl_program program = NULL;
    cl_kernel inc = NULL;
    cl_event event = NULL;
    cl_int error, status = 0;
    cl_ulong start = 0;
    static atomic_int gone;
    size_t words = WORDS;
    char text[4096] = "kernel void inc(global uint *data) {}\n";
    const char *lines = text;

    for (int i = 0; i < count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "#pragma divvy-vendor %s\n", rules[i]);
    }
    if (!open_scene(&scene))
        return 3;
    MAKE(program, clCreateProgramWithSource(scene.context, 1, &lines, NULL, &error));
    TRY(clBuildProgram(program, 1, &scene.device, "", NULL, NULL));
    MAKE(inc, clCreateKernel(program, "inc", &error));
    MAKE(buffer, clCreateBuffer(scene.context, 0, BYTES, NULL, &error));
    TRY(clSetMemObjectDestructorCallback(buffer, on_gone, &gone));
    TRY(clSetKernelArg(inc, 0, sizeof buffer, &buffer));
    TRY(clEnqueueNDRangeKernel(scene.queue, inc, 1, NULL, &words, NULL, 0, NULL, &event));
    note(clWaitForEvents(1, &event), "clWaitForEvents");
    TRY(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    printf("event %d\n", status);
    clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL);
    printf("times %s\n", start ? "known" : "not known");
    release_event(event);
    release_kernel(inc);
    release_mem(buffer);
    printf("memory %s\n", comes(&gone, 0) ? "gone" : "not gone");
    release_program(program);
    close_scene(&scene);
out:
    return errors || atomic_load(&told) ? 3 : 0;
}

static int hoard(void)
{
    static const char *const text = "#pragma divvy-vendor clGetKernelWorkGroupInfo 1 hang\n"
                                    "kernel void inc(global uint *data) {}\n";
    struct scene scene;
    cl_program program = NULL;
    cl_kernel inc = NULL;
    const char *lines = text;
    size_t words = BIG_WORDS, group;
    cl_int error;

    if (!open_scene(&scene))
        return 3;
    MAKE(program, clCreateProgramWithSource(scene.context, 1, &lines, NULL, &error));
    TRY(clBuildProgram(program, 1, &scene.device, "", NULL, NULL));
    MAKE(inc, clCreateKernel(program, "inc", &error));
    for (int i = 0; i < BIG_COUNT; i++) {
        cl_mem big;
        MAKE(big, clCreateBuffer(scene.context, 0, BIG_BYTES, NULL, &error));
        TRY(clSetKernelArg(inc, 0, sizeof big, &big));
        TRY(clEnqueueNDRangeKernel(scene.plain, inc, 1, NULL, &words, NULL, 0, NULL, NULL));
    }
    TRY(clFinish(scene.plain));
    dv_test_sleep_ms(1500); /* a holder that pauses gives the device back before that */
    printf("hoarding\n");
    fflush(stdout);
    TRY(clGetKernelWorkGroupInfo(inc, scene.device, CL_KERNEL_WORK_GROUP_SIZE, sizeof group, &group, NULL));
out:
    return 3;
}

static void CL_CALLBACK on_parting(const char *text, const void *info, size_t bytes, void *user)
{
    (void)text;
    (void)info;
    (void)bytes;
    (void)user;
}

/* Another thread tells every context of the program that its worker has ended, while this one releases the
 * contexts. */
static int parting(void)
{
    enum { SESSIONS = 30, CONTEXTS = 400 };
    static const char *const deadly = "#pragma divvy-vendor clCreateSampler 1 crash\n"
                                      "kernel void nop() {}\n";
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;

    TRY(clGetPlatformIDs(1, &platform, NULL));
    TRY(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    for (int session = 0; session < SESSIONS; session++) {
        cl_context contexts[CONTEXTS];
        cl_program program;
        const char *text = deadly;
        for (size_t i = 0; i < CONTEXTS; i++)
            MAKE(contexts[i], clCreateContext(NULL, 1, &device, on_parting, NULL, &error));
        MAKE(program, clCreateProgramWithSource(contexts[0], 1, &text, NULL, &error));
        TRY(clBuildProgram(program, 1, &device, "", NULL, NULL));
        RIGHT(!clCreateSampler(contexts[0], CL_FALSE, CL_ADDRESS_NONE, CL_FILTER_NEAREST, &error) && error < 0);
        clReleaseProgram(program);
        usleep((useconds_t)session * 10); /* the two meet at another place each time */
        for (size_t i = 0; i < CONTEXTS; i++)
            clReleaseContext(contexts[i]);
    }
    dv_test_sleep_ms(PARTING_MS);
out:
    return wrong ? 1 : errors ? 3 : 0;
}

int main(int argc, char **argv)
{
    setvbuf(stderr, NULL, _IOLBF, 0);
    if (argc > 1 && strcmp(argv[1], "steady") == 0)
        return steady();
    if (argc > 1 && strcmp(argv[1], "broad") == 0)
        return broad(argc > 2 && strcmp(argv[2], "again") == 0);
    if (argc > 2 && strcmp(argv[1], "single") == 0)
        return single(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "hoard") == 0)
        return hoard();
    if (argc > 1 && strcmp(argv[1], "parting") == 0)
        return parting();
    fprintf(stderr, "usage: faults broad [again] | steady | single RULE... | hoard | parting\n");
    return 2;
}
