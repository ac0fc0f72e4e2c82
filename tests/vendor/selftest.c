/*
 * Tests of the scripted vendor itself: that it is an honest OpenCL platform, and that it does what
 * scripts say. Built twice, on the vendor's objects and on the system's OpenCL loader. Every case
 * runs in a process of its own, because a script belongs to a process. Output is TAP.
 */
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#endif
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CASE_SECONDS 60

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: not true: %s\n", __FILE__, __LINE__, __func__, #condition);                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_INT(expression, expected)                                                                                \
    do {                                                                                                               \
        long long got_ = (long long)(expression), want_ = (long long)(expected);                                       \
        if (got_ != want_) {                                                                                           \
            fprintf(stderr, "%s:%d: %s: %s is %lld, not %lld\n", __FILE__, __LINE__, __func__, #expression, got_,      \
                    want_);                                                                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define OK(expression) CHECK_INT(expression, CL_SUCCESS)

static const char kernel_source[] =
    "// __kernel void in_a_comment(void)\n"
    "/* kernel void nor_here(int x) {} */\n"
    "#define MAKE(name) \\\n kernel void name##_made(int) {}\n"
    "__kernel void nop(void) {}\n"
    "__kernel void fill_a(__global uint *buf, uint value) { buf[get_global_id(0)] = value; }\n"
    "kernel void iota(global uint* restrict buf) {}\n"
    "kernel void inc(global uint *buf) {}\n"
    "kernel void add(global uint *dst, const global uint *a, constant uint *b) {}\n"
    "kernel void copy(global uint *dst, global const volatile uint *src) {}\n"
    "kernel void sum(global uint *dst, global uint *src) {}\n"
    "struct pair { int a; float b; };\n"
    "kernel void value_4(global float *dst, float4 v) {}\n"
    "kernel void value_s(global uchar *dst, struct pair p) {}\n"
    "kernel void localsize(global uint *dst, local float *scratch) {}\n"
    "kernel void imagecopy(write_only image2d_t dst, read_only image2d_t src, sampler_t s) {}\n"
    "kernel void imageread_a(global uint *dst, __read_only image2d_t img) {}\n"
    "kernel void imagewrite_a(write_only image2d_t img, global uint *src) {}\n"
    "kernel void spin(unsigned int us) {}\n"
    "kernel void sleep_a(uint us) {}\n"
    "kernel void printf_hello(uint number) { printf(\"kernel void bad(\"); }\n"
    "kernel void crash(void) {}\n"
    "kernel void hang(void) {}\n"
    "kernel void fail(void) {}\n"
    "__attribute__((reqd_work_group_size(1, 1, 1)))\n"
    "__kernel __attribute__((reqd_work_group_size(4, 2, 1))) void nop_grouped(void) {}\n"
    "kernel void nop_declared_only(int a);\n";

static cl_platform_id platform;
static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_program program;

static cl_program build(const char *source, const char *options)
{
    cl_int error;
    cl_program built = clCreateProgramWithSource(context, 1, &source, NULL, &error);
    OK(error);
    OK(clBuildProgram(built, 0, NULL, options, NULL, NULL));
    return built;
}

static void set_up_devices(void)
{
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
}

static cl_command_queue make_queue(cl_command_queue_properties properties)
{
    cl_int error;
    cl_queue_properties list[] = {CL_QUEUE_PROPERTIES, properties, 0};
    cl_command_queue made = clCreateCommandQueueWithProperties(context, device, list, &error);
    OK(error);
    return made;
}

static void set_up(void)
{
    cl_int error;
    set_up_devices();
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    OK(error);
    queue = make_queue(CL_QUEUE_PROFILING_ENABLE);
    program = build(kernel_source, "-cl-kernel-arg-info");
}

static void tear_down(void)
{
    OK(clFinish(queue));
    OK(clReleaseProgram(program));
    OK(clReleaseCommandQueue(queue));
    OK(clReleaseContext(context));
}

static cl_kernel kernel_of(const char *name)
{
    cl_int error;
    cl_kernel kernel = clCreateKernel(program, name, &error);
    OK(error);
    return kernel;
}

static cl_mem buffer_of(size_t bytes)
{
    cl_int error;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    OK(error);
    return buffer;
}

static cl_int launch_on(cl_command_queue where, cl_kernel kernel, size_t items, cl_uint num_waits,
                        const cl_event *waits, cl_event *event)
{
    return clEnqueueNDRangeKernel(where, kernel, 1, NULL, &items, NULL, num_waits, waits, event);
}

static cl_int launch(cl_kernel kernel, size_t items, cl_event *event)
{
    return launch_on(queue, kernel, items, 0, NULL, event);
}

static void set_mem(cl_kernel kernel, cl_uint index, cl_mem mem)
{
    OK(clSetKernelArg(kernel, index, sizeof mem, &mem));
}

static void set_uint(cl_kernel kernel, cl_uint index, cl_uint value)
{
    OK(clSetKernelArg(kernel, index, sizeof value, &value));
}

static cl_int status_of(cl_event event)
{
    cl_int status;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    return status;
}

static cl_uint read_uint(cl_mem buffer, size_t index)
{
    cl_uint value = 0;
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, index * sizeof value, sizeof value, &value, 0, NULL, NULL));
    return value;
}

static void sleep_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static double now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

/* Callbacks may come late: the standard promises no moment. */
static void wait_for_count(atomic_int *count, int expected)
{
    for (int i = 0; i < 2000 && atomic_load(count) < expected; i++) {
        sleep_ms(5);
    }
    CHECK_INT(atomic_load(count), expected);
}

/* ---- an honest platform ---------------------------------------------------------------------*/

static void test_platform(void)
{
    set_up_devices();
    char text[256];
    OK(clGetPlatformInfo(platform, CL_PLATFORM_EXTENSIONS, sizeof text, text, NULL));
    CHECK(strstr(text, "cl_khr_icd") != NULL);
    OK(clGetPlatformInfo(platform, CL_PLATFORM_ICD_SUFFIX_KHR, sizeof text, text, NULL));
    CHECK(strcmp(text, "DVT") == 0);
    OK(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof text, text, NULL));
    CHECK(strcmp(text, "Scripted device") == 0);
    OK(clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof text, text, NULL));
    CHECK(strncmp(text, "OpenCL 3.0 ", 11) == 0);
    cl_device_type type;
    OK(clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, NULL));
    CHECK((type & CL_DEVICE_TYPE_CPU) != 0);
    CHECK_INT(clGetDeviceIDs(platform, CL_DEVICE_TYPE_GPU, 1, &device, NULL), CL_DEVICE_NOT_FOUND);
    cl_uint count = 0;
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &count));
    CHECK_INT(count, 1);
    /* every parameter of the core standard must be answered */
    for (cl_device_info info = CL_DEVICE_TYPE; info <= 0x1072; info++) {
        bool unused =
            info == 0x1033 /* half precision, an extension */ || info == 0x105F || (info >= 0x106A && info <= 0x106E);
        size_t size = SIZE_MAX;
        CHECK_INT(clGetDeviceInfo(device, info, 0, NULL, &size), unused ? CL_INVALID_VALUE : CL_SUCCESS);
        CHECK(unused || size <= 4096);
    }
    CHECK_INT(clGetDeviceInfo(device, CL_DEVICE_NAME, 1, text, NULL), CL_INVALID_VALUE);
    cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    CHECK_INT(clCreateSubDevices(device, equally, 1, &device, NULL), CL_DEVICE_PARTITION_FAILED);
}

static void test_table_is_full(void)
{
    set_up_devices();
    /* the ICD protocol: the first word of a handle is the dispatch table */
    void **table = *(void ***)platform;
    for (size_t i = 0; i < sizeof(cl_icd_dispatch) / sizeof(void *); i++) {
        CHECK(table[i] != NULL);
    }
    CHECK(*(void ***)device == table);
}

static void test_unsupported(void)
{
    set_up();
    cl_int error = CL_SUCCESS;
    CHECK(clCreatePipe(context, 0, 4, 4, NULL, &error) == NULL);
    CHECK_INT(error, CL_INVALID_OPERATION);
    CHECK(clCreateProgramWithIL(context, "x", 1, &error) == NULL);
    CHECK_INT(error, CL_INVALID_OPERATION);
    CHECK(clSVMAlloc(context, CL_MEM_READ_WRITE, 64, 0) == NULL);
    clSVMFree(context, NULL);
    CHECK_INT(clEnqueueSVMMemcpy(queue, CL_TRUE, &error, &error, 0, 0, NULL, NULL), CL_INVALID_OPERATION);
    CHECK_INT(clEnqueueNativeKernel(queue, NULL, NULL, 0, 0, NULL, NULL, 0, NULL, NULL), CL_INVALID_OPERATION);
    tear_down();
}

static void test_bad_arguments(void)
{
    set_up();
    cl_int error = CL_SUCCESS;
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = kernel_of("fill_a");
    char bytes[128];
    CHECK(clCreateContext(NULL, 0, NULL, NULL, NULL, &error) == NULL);
    CHECK_INT(error, CL_INVALID_VALUE);
    CHECK(clCreateBuffer(context, 0, 0, NULL, &error) == NULL);
    CHECK_INT(error, CL_INVALID_BUFFER_SIZE);
    CHECK(clCreateBuffer(context, CL_MEM_USE_HOST_PTR, 8, NULL, &error) == NULL);
    CHECK_INT(error, CL_INVALID_HOST_PTR);
    CHECK(clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 8, NULL, &error) == NULL);
    CHECK_INT(error, CL_INVALID_VALUE);
    CHECK_INT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 60, 8, bytes, 0, NULL, NULL), CL_INVALID_VALUE);
    CHECK_INT(clEnqueueReadBuffer(queue, NULL, CL_TRUE, 0, 8, bytes, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    CHECK_INT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 8, NULL, 0, NULL, NULL), CL_INVALID_VALUE);
    CHECK_INT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 8, bytes, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    CHECK_INT(clEnqueueCopyBuffer(queue, buffer, buffer, 0, 8, 16, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
    CHECK_INT(launch(kernel, 1, NULL), CL_INVALID_KERNEL_ARGS);
    CHECK_INT(clSetKernelArg(kernel, 2, 4, bytes), CL_INVALID_ARG_INDEX);
    CHECK_INT(clSetKernelArg(kernel, 0, 4, bytes), CL_INVALID_ARG_SIZE);
    CHECK_INT(clSetKernelArg(kernel, 1, 8, bytes), CL_INVALID_ARG_SIZE);
    cl_mem wrong = (cl_mem)kernel;
    CHECK_INT(clSetKernelArg(kernel, 0, sizeof wrong, &wrong), CL_INVALID_MEM_OBJECT);
    set_mem(kernel, 0, buffer);
    set_uint(kernel, 1, 7);
    size_t items = 6, group = 4;
    CHECK_INT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &group, 0, NULL, NULL),
              CL_INVALID_WORK_GROUP_SIZE);
    CHECK_INT(clEnqueueNDRangeKernel(queue, kernel, 4, NULL, &items, NULL, 0, NULL, NULL), CL_INVALID_WORK_DIMENSION);
    CHECK(clCreateKernel(program, "absent", &error) == NULL);
    CHECK_INT(error, CL_INVALID_KERNEL_NAME);
    CHECK_INT(clWaitForEvents(0, NULL), CL_INVALID_VALUE);
    cl_event event = clCreateUserEvent(context, &error);
    OK(error);
    CHECK_INT(clSetUserEventStatus(event, CL_RUNNING), CL_INVALID_VALUE);
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    CHECK_INT(clSetUserEventStatus(event, CL_COMPLETE), CL_INVALID_OPERATION);
    OK(clReleaseEvent(event));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    tear_down();
}

static void CL_CALLBACK count_mem_end(cl_mem mem, void *count)
{
    atomic_fetch_add((atomic_int *)count, 1);
}

static void CL_CALLBACK count_context_end(cl_context ended, void *count)
{
    atomic_fetch_add((atomic_int *)count, 1);
}

static void test_references(void)
{
    set_up();
    static atomic_int mem_ends, context_ends; /* outlive this function, as callbacks may */
    OK(clSetContextDestructorCallback(context, count_context_end, &context_ends));
    cl_mem buffer = buffer_of(64);
    cl_uint count;
    OK(clSetMemObjectDestructorCallback(buffer, count_mem_end, &mem_ends));
    OK(clRetainMemObject(buffer));
    OK(clGetMemObjectInfo(buffer, CL_MEM_REFERENCE_COUNT, sizeof count, &count, NULL));
    CHECK_INT(count, 2);
    OK(clReleaseMemObject(buffer));
    /* a command in flight keeps the object, and does not show in its count */
    cl_int error;
    cl_event gate = clCreateUserEvent(context, &error);
    OK(clEnqueueFillBuffer(queue, buffer, "abcd", 4, 0, 64, 1, &gate, NULL));
    OK(clGetMemObjectInfo(buffer, CL_MEM_REFERENCE_COUNT, sizeof count, &count, NULL));
    CHECK_INT(count, 1);
    OK(clReleaseMemObject(buffer));
    CHECK_INT(atomic_load(&mem_ends), 0);
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(queue));
    wait_for_count(&mem_ends, 1);
    OK(clReleaseEvent(gate));
    tear_down();
    wait_for_count(&context_ends, 1); /* the queue's thread holds the context until it ends */
}

static void test_buffers(void)
{
    set_up();
    unsigned char out[256], in[256];
    for (int i = 0; i < 256; i++) {
        in[i] = (unsigned char)i;
    }
    cl_mem a = buffer_of(256), b = buffer_of(256);
    OK(clEnqueueWriteBuffer(queue, a, CL_FALSE, 0, 256, in, 0, NULL, NULL));
    OK(clEnqueueCopyBuffer(queue, a, b, 16, 0, 100, 0, NULL, NULL));
    OK(clEnqueueFillBuffer(queue, b, "xy", 2, 100, 6, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, b, CL_TRUE, 0, 106, out, 0, NULL, NULL));
    CHECK(memcmp(out, in + 16, 100) == 0 && memcmp(out + 100, "xyxyxy", 6) == 0);

    /* 4x3x2 bytes from (1,1,1) of a 8x4x... box into a tight one */
    const size_t buffer_origin[] = {1, 1, 1}, host_origin[] = {0, 0, 0}, region[] = {4, 3, 2};
    OK(clEnqueueReadBufferRect(queue, a, CL_TRUE, buffer_origin, host_origin, region, 8, 32, 4, 12, out, 0, NULL,
                               NULL));
    CHECK_INT(out[0], 1 + 8 + 32);
    CHECK_INT(out[12 + 4 * 2 + 3], 1 + 3 + 8 * 3 + 32 * 2);
    memset(out, 0xee, sizeof out);
    OK(clEnqueueWriteBufferRect(queue, b, CL_TRUE, buffer_origin, host_origin, region, 8, 32, 4, 12, in, 0, NULL,
                                NULL));
    OK(clEnqueueCopyBufferRect(queue, b, a, buffer_origin, host_origin, region, 8, 32, 0, 0, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, a, CL_TRUE, 0, 24, out, 0, NULL, NULL));
    CHECK(memcmp(out, in, 24) == 0);
    const size_t too_far[] = {0, 0, 7};
    CHECK_INT(
        clEnqueueReadBufferRect(queue, a, CL_TRUE, too_far, host_origin, region, 8, 32, 4, 12, out, 0, NULL, NULL),
        CL_INVALID_VALUE);

    cl_int error;
    cl_buffer_region part = {128, 64};
    cl_mem sub = clCreateSubBuffer(a, 0, CL_BUFFER_CREATE_TYPE_REGION, &part, &error);
    OK(error);
    OK(clEnqueueWriteBuffer(queue, sub, CL_TRUE, 8, 4, "sub!", 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, a, CL_TRUE, 136, 4, out, 0, NULL, NULL));
    CHECK(memcmp(out, "sub!", 4) == 0);
    cl_mem parent;
    OK(clGetMemObjectInfo(sub, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL));
    CHECK(parent == a);
    part.origin = 100;
    CHECK(clCreateSubBuffer(a, 0, CL_BUFFER_CREATE_TYPE_REGION, &part, &error) == NULL);
    CHECK_INT(error, CL_MISALIGNED_SUB_BUFFER_OFFSET);

    OK(clEnqueueMigrateMemObjects(queue, 2, (cl_mem[]){a, sub}, 0, 0, NULL, NULL));
    OK(clReleaseMemObject(a)); /* the sub-buffer keeps it */
    OK(clEnqueueReadBuffer(queue, sub, CL_TRUE, 8, 4, out, 0, NULL, NULL));
    CHECK(memcmp(out, "sub!", 4) == 0);
    OK(clReleaseMemObject(sub));
    OK(clReleaseMemObject(b));
    tear_down();
}

static void test_host_pointer(void)
{
    set_up();
    cl_int error;
    cl_uint own[16] = {0};
    cl_mem buffer = clCreateBuffer(context, CL_MEM_USE_HOST_PTR, sizeof own, own, &error);
    OK(error);
    cl_kernel inc = kernel_of("inc");
    set_mem(inc, 0, buffer);
    OK(launch(inc, 16, NULL));
    cl_uint *mapped =
        clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 4, 8, 0, NULL, NULL, &error);
    OK(error);
    CHECK(mapped == own + 1); /* in place, as the standard demands */
    CHECK_INT(own[1], 1);
    mapped[0] = 41;
    cl_uint maps;
    OK(clGetMemObjectInfo(buffer, CL_MEM_MAP_COUNT, sizeof maps, &maps, NULL));
    CHECK_INT(maps, 1);
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    CHECK_INT(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL), CL_INVALID_VALUE);
    OK(launch(inc, 16, NULL));
    CHECK_INT(read_uint(buffer, 1), 42);
    OK(clReleaseKernel(inc));
    OK(clReleaseMemObject(buffer));
    cl_uint first[4] = {5, 6, 7, 8};
    buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof first, first, &error);
    OK(error);
    first[2] = 0;
    CHECK_INT(read_uint(buffer, 2), 7);
    OK(clReleaseMemObject(buffer));
    tear_down();
}

/* Also run with maps that are copies, where only the map and unmap commands move the data. */
static void test_maps(void)
{
    set_up();
    cl_int error;
    cl_mem buffer = buffer_of(64);
    cl_kernel iota = kernel_of("iota");
    set_mem(iota, 0, buffer);
    OK(launch(iota, 16, NULL));
    cl_event done;
    cl_uint *mapped =
        clEnqueueMapBuffer(queue, buffer, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 8, 16, 0, NULL, &done, &error);
    OK(error);
    OK(clWaitForEvents(1, &done));
    OK(clReleaseEvent(done));
    CHECK_INT(mapped[0], 2);
    CHECK_INT(mapped[3], 5);
    mapped[3] = 55;
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    CHECK_INT(read_uint(buffer, 5), 55);

    cl_image_format format = {CL_R, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = 5, .image_height = 4, .image_depth = 3};
    cl_mem image = clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &error);
    OK(error);
    const size_t zero[] = {0, 0, 0}, whole[] = {5, 4, 3};
    const size_t origin[] = {1, 1, 1}, region[] = {3, 2, 2};
    unsigned char bytes[60];
    for (int i = 0; i < 60; i++) {
        bytes[i] = (unsigned char)i;
    }
    OK(clEnqueueWriteImage(queue, image, CL_TRUE, zero, whole, 0, 0, bytes, 0, NULL, NULL));
    size_t row, slice;
    unsigned char *pixels = clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, origin, region, &row,
                                              &slice, 0, NULL, NULL, &error);
    OK(error);
    CHECK_INT(pixels[0], 1 + 5 + 20);
    CHECK_INT(pixels[slice + row + 2], 3 + 5 * 2 + 20 * 2);
    pixels[slice + row + 2] = 200;
    OK(clEnqueueUnmapMemObject(queue, image, pixels, 0, NULL, NULL));
    OK(clEnqueueReadImage(queue, image, CL_TRUE, zero, whole, 0, 0, bytes, 0, NULL, NULL));
    CHECK_INT(bytes[3 + 5 * 2 + 20 * 2], 200);
    CHECK_INT(bytes[3 + 5 * 2 + 20 * 2 + 1], 3 + 5 * 2 + 20 * 2 + 1);
    OK(clReleaseMemObject(image));
    OK(clReleaseKernel(iota));
    OK(clReleaseMemObject(buffer));
    tear_down();
}

/* What the application would see if it looked into a copied map before the map is done. */
static void test_early_look_into_map(void)
{
    set_up();
    cl_int error;
    cl_mem buffer = buffer_of(4);
    cl_event gate = clCreateUserEvent(context, &error);
    OK(clEnqueueFillBuffer(queue, buffer, "good", 4, 0, 4, 0, NULL, NULL));
    char *mapped = clEnqueueMapBuffer(queue, buffer, CL_FALSE, CL_MAP_READ, 0, 4, 1, &gate, NULL, &error);
    OK(error);
    CHECK(memcmp(mapped, "good", 4) != 0);
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(queue));
    CHECK(memcmp(mapped, "good", 4) == 0);
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    OK(clReleaseEvent(gate));
    OK(clReleaseMemObject(buffer));
    tear_down();
}

static cl_mem image_of(cl_mem_object_type type, cl_channel_order order, cl_channel_type channel, size_t width,
                       size_t height, size_t depth_or_layers)
{
    cl_int error;
    cl_image_format format = {order, channel};
    cl_image_desc desc = {.image_type = type,
                          .image_width = width,
                          .image_height = height,
                          .image_depth = depth_or_layers,
                          .image_array_size = depth_or_layers};
    cl_mem image = clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &error);
    OK(error);
    return image;
}

static void test_images(void)
{
    set_up();
    const size_t zero[] = {0, 0, 0};
    unsigned char in[240], out[240];
    for (int i = 0; i < 240; i++) {
        in[i] = (unsigned char)(i * 7);
    }
    static const struct {
        cl_mem_object_type type;
        size_t region[3];
    } shapes[] = {
        {CL_MEM_OBJECT_IMAGE1D, {60, 1, 1}},       {CL_MEM_OBJECT_IMAGE2D, {10, 6, 1}},
        {CL_MEM_OBJECT_IMAGE3D, {5, 4, 3}},        {CL_MEM_OBJECT_IMAGE2D_ARRAY, {5, 4, 3}},
        {CL_MEM_OBJECT_IMAGE1D_ARRAY, {20, 3, 1}},
    };
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const size_t *region = shapes[s].region;
        bool lines = shapes[s].type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
        cl_mem image =
            image_of(shapes[s].type, CL_RGBA, CL_UNSIGNED_INT8, region[0], region[1], lines ? region[1] : region[2]);
        cl_mem other =
            image_of(shapes[s].type, CL_RGBA, CL_UNSIGNED_INT8, region[0], region[1], lines ? region[1] : region[2]);
        cl_mem buffer = buffer_of(256);
        OK(clEnqueueWriteImage(queue, image, CL_FALSE, zero, region, 0, 0, in, 0, NULL, NULL));
        OK(clEnqueueCopyImage(queue, image, other, zero, zero, region, 0, NULL, NULL));
        OK(clEnqueueCopyImageToBuffer(queue, other, buffer, zero, region, 16, 0, NULL, NULL));
        OK(clEnqueueFillBuffer(queue, buffer, "....", 4, 16, 4, 0, NULL, NULL));
        OK(clEnqueueCopyBufferToImage(queue, buffer, image, 16, zero, region, 0, NULL, NULL));
        OK(clEnqueueReadImage(queue, image, CL_TRUE, zero, region, 0, 0, out, 0, NULL, NULL));
        CHECK(memcmp(out, "....", 4) == 0 && memcmp(out + 4, in + 4, 236) == 0);
        const size_t beyond[] = {region[0], 0, 0};
        CHECK_INT(clEnqueueReadImage(queue, image, CL_TRUE, beyond, region, 0, 0, out, 0, NULL, NULL),
                  CL_INVALID_VALUE);
        OK(clReleaseMemObject(buffer));
        OK(clReleaseMemObject(other));
        OK(clReleaseMemObject(image));
    }

    const size_t whole[] = {2, 2, 1}, corner[] = {1, 1, 0}, one[] = {1, 1, 1};
    const cl_float color[] = {1.0f, 0.5f, 0.0f, 2.0f};
    cl_mem bgra = image_of(CL_MEM_OBJECT_IMAGE2D, CL_BGRA, CL_UNORM_INT8, 2, 2, 0);
    OK(clEnqueueFillImage(queue, bgra, color, zero, whole, 0, NULL, NULL));
    OK(clEnqueueReadImage(queue, bgra, CL_TRUE, corner, one, 0, 0, out, 0, NULL, NULL));
    CHECK(out[0] == 0 && out[1] == 128 && out[2] == 255 && out[3] == 255);
    cl_mem half = image_of(CL_MEM_OBJECT_IMAGE2D, CL_RG, CL_HALF_FLOAT, 2, 2, 0);
    OK(clEnqueueFillImage(queue, half, color, corner, one, 0, NULL, NULL));
    OK(clEnqueueReadImage(queue, half, CL_TRUE, corner, one, 0, 0, out, 0, NULL, NULL));
    CHECK(memcmp(out, "\x00\x3c\x00\x38", 4) == 0);

    size_t value;
    OK(clGetImageInfo(half, CL_IMAGE_ELEMENT_SIZE, sizeof value, &value, NULL));
    CHECK_INT(value, 4);
    OK(clGetImageInfo(half, CL_IMAGE_SLICE_PITCH, sizeof value, &value, NULL));
    CHECK_INT(value, 0);
    cl_uint formats;
    OK(clGetSupportedImageFormats(context, 0, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &formats));
    CHECK(formats > 10);

    /* an image on a buffer shows the buffer's bytes */
    cl_int error;
    cl_mem under = buffer_of(64);
    OK(clEnqueueFillBuffer(queue, under, "ABCD", 4, 0, 64, 0, NULL, NULL));
    cl_image_format format = {CL_R, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 64, .mem_object = under};
    cl_mem view = clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &error);
    OK(error);
    const size_t third[] = {2, 0, 0}, four[] = {4, 1, 1};
    OK(clEnqueueReadImage(queue, view, CL_TRUE, third, four, 0, 0, out, 0, NULL, NULL));
    CHECK(memcmp(out, "CDAB", 4) == 0);
    OK(clReleaseMemObject(under));
    OK(clReleaseMemObject(view));
    OK(clReleaseMemObject(half));
    OK(clReleaseMemObject(bgra));

    cl_sampler sampler = clCreateSampler(context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &error);
    OK(error);
    cl_mem src = image_of(CL_MEM_OBJECT_IMAGE2D, CL_R, CL_UNSIGNED_INT32, 3, 2, 0);
    cl_mem dst = image_of(CL_MEM_OBJECT_IMAGE2D, CL_R, CL_UNSIGNED_INT32, 3, 2, 0);
    cl_mem numbers = buffer_of(24), result = buffer_of(24);
    cl_kernel iota = kernel_of("iota"), to_image = kernel_of("imagewrite_a"), copy = kernel_of("imagecopy"),
              from_image = kernel_of("imageread_a");
    set_mem(iota, 0, numbers);
    set_mem(to_image, 0, src);
    set_mem(to_image, 1, numbers);
    set_mem(copy, 0, dst);
    set_mem(copy, 1, src);
    OK(clSetKernelArg(copy, 2, sizeof sampler, &sampler));
    CHECK_INT(clSetKernelArg(copy, 2, sizeof src, &src), CL_INVALID_SAMPLER);
    set_mem(from_image, 0, result);
    set_mem(from_image, 1, dst);
    OK(launch(iota, 6, NULL));
    OK(launch(to_image, 6, NULL));
    OK(launch(copy, 6, NULL));
    OK(launch(from_image, 6, NULL));
    CHECK_INT(read_uint(result, 5), 5);
    OK(clReleaseKernel(iota));
    OK(clReleaseKernel(to_image));
    OK(clReleaseKernel(copy));
    OK(clReleaseKernel(from_image));
    OK(clReleaseMemObject(src));
    OK(clReleaseMemObject(dst));
    OK(clReleaseMemObject(numbers));
    OK(clReleaseMemObject(result));
    OK(clReleaseSampler(sampler));
    tear_down();
}

static void check_arg(cl_kernel kernel, cl_uint index, const char *type, const char *name,
                      cl_kernel_arg_address_qualifier address, cl_kernel_arg_type_qualifier qualifier)
{
    char text[64];
    OK(clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_TYPE_NAME, sizeof text, text, NULL));
    CHECK(strcmp(text, type) == 0);
    OK(clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_NAME, sizeof text, text, NULL));
    CHECK(strcmp(text, name) == 0);
    cl_kernel_arg_address_qualifier got_address;
    OK(clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof got_address, &got_address, NULL));
    CHECK_INT(got_address, address);
    cl_kernel_arg_type_qualifier got_qualifier;
    OK(clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof got_qualifier, &got_qualifier, NULL));
    CHECK_INT(got_qualifier, qualifier);
}

static void CL_CALLBACK note_build(cl_program built, void *flag)
{
    atomic_fetch_add((atomic_int *)flag, 1);
}

static void test_programs(void)
{
    set_up();
    cl_int error;
    cl_kernel kernel = kernel_of("add");
    check_arg(kernel, 0, "uint*", "dst", CL_KERNEL_ARG_ADDRESS_GLOBAL, 0);
    check_arg(kernel, 1, "uint*", "a", CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_TYPE_CONST);
    check_arg(kernel, 2, "uint*", "b", CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_TYPE_CONST);
    OK(clReleaseKernel(kernel));
    kernel = kernel_of("spin");
    check_arg(kernel, 0, "uint", "us", CL_KERNEL_ARG_ADDRESS_PRIVATE, 0);
    OK(clReleaseKernel(kernel));
    kernel = kernel_of("value_s");
    check_arg(kernel, 1, "struct pair", "p", CL_KERNEL_ARG_ADDRESS_PRIVATE, 0);
    OK(clReleaseKernel(kernel));
    kernel = kernel_of("imagecopy");
    check_arg(kernel, 0, "image2d_t", "dst", CL_KERNEL_ARG_ADDRESS_GLOBAL, 0);
    check_arg(kernel, 2, "sampler_t", "s", CL_KERNEL_ARG_ADDRESS_PRIVATE, 0);
    cl_kernel_arg_access_qualifier access;
    OK(clGetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_ACCESS_QUALIFIER, sizeof access, &access, NULL));
    CHECK_INT(access, CL_KERNEL_ARG_ACCESS_WRITE_ONLY);
    OK(clReleaseKernel(kernel));
    kernel = kernel_of("nop_grouped");
    size_t group[3];
    OK(clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof group, group, NULL));
    CHECK(group[0] == 4 && group[1] == 2 && group[2] == 1);
    CHECK_INT(launch(kernel, 8, NULL), CL_INVALID_WORK_GROUP_SIZE);
    OK(clReleaseKernel(kernel));

    char names[1024];
    OK(clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof names, names, NULL));
    CHECK(strncmp(names, "nop;fill_a;iota;", 16) == 0);
    CHECK(strstr(names, "comment") == NULL && strstr(names, "here") == NULL && strstr(names, "declared") == NULL &&
          strstr(names, "bad") == NULL);
    size_t num_kernels;
    OK(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof num_kernels, &num_kernels, NULL));
    cl_kernel kernels[64];
    cl_uint created;
    OK(clCreateKernelsInProgram(program, 64, kernels, &created));
    CHECK_INT(created, num_kernels);
    CHECK_INT(clBuildProgram(program, 0, NULL, NULL, NULL, NULL), CL_INVALID_OPERATION);
    for (cl_uint i = 0; i < created; i++) {
        OK(clReleaseKernel(kernels[i]));
    }

    /* a failing build has a log that names the place */
    const char *bad = "kernel void nop(void) {}\n\n#error this is wrong\n";
    cl_program failing = clCreateProgramWithSource(context, 1, &bad, NULL, &error);
    static atomic_int notified;
    CHECK_INT(clBuildProgram(failing, 1, &device, "-DX", note_build, &notified), CL_BUILD_PROGRAM_FAILURE);
    wait_for_count(&notified, 1);
    char log[512];
    OK(clGetProgramBuildInfo(failing, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL));
    CHECK(strstr(log, ":3: error: #error this is wrong") != NULL);
    cl_build_status status;
    OK(clGetProgramBuildInfo(failing, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
    CHECK_INT(status, CL_BUILD_ERROR);
    CHECK(clCreateKernel(failing, "nop", &error) == NULL);
    CHECK_INT(error, CL_INVALID_PROGRAM_EXECUTABLE);
    OK(clReleaseProgram(failing));
    const char *unknown = "kernel void frobnicate(void) {}";
    failing = clCreateProgramWithSource(context, 1, &unknown, NULL, &error);
    CHECK_INT(clBuildProgram(failing, 0, NULL, NULL, NULL, NULL), CL_BUILD_PROGRAM_FAILURE);
    OK(clReleaseProgram(failing));

    cl_program plain = build("kernel void inc(global uint *b) {}", NULL);
    size_t size;
    OK(clGetProgramInfo(plain, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    unsigned char *binary = malloc(size);
    OK(clGetProgramInfo(plain, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    cl_int binary_status;
    cl_program loaded =
        clCreateProgramWithBinary(context, 1, &device, &size, (const unsigned char **)&binary, &binary_status, &error);
    OK(error);
    OK(clBuildProgram(loaded, 0, NULL, NULL, NULL, NULL));
    kernel = clCreateKernel(loaded, "inc", &error);
    OK(error);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(loaded));
    binary[0] ^= 1;
    CHECK(clCreateProgramWithBinary(context, 1, &device, &size, (const unsigned char **)&binary, &binary_status,
                                    &error) == NULL);
    CHECK_INT(error, CL_INVALID_BINARY);
    free(binary);
    OK(clReleaseProgram(plain));

    const char *parts[] = {"kernel void nop_a(void) {}", "kernel void nop_b(void) {}"};
    cl_program objects[2];
    for (int i = 0; i < 2; i++) {
        objects[i] = clCreateProgramWithSource(context, 1, &parts[i], NULL, &error);
        OK(clCompileProgram(objects[i], 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
    }
    cl_program linked = clLinkProgram(context, 0, NULL, NULL, 2, objects, NULL, NULL, &error);
    OK(error);
    OK(clGetProgramInfo(linked, CL_PROGRAM_KERNEL_NAMES, sizeof names, names, NULL));
    CHECK(strcmp(names, "nop_a;nop_b") == 0);
    OK(clReleaseProgram(linked));
    OK(clReleaseProgram(objects[0]));
    OK(clReleaseProgram(objects[1]));
    tear_down();
}

static void expect_no_arg_info(cl_program built)
{
    cl_int error;
    char name[64];
    cl_kernel kernel = clCreateKernel(built, "inc", &error);
    OK(error);
    CHECK_INT(clGetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_NAME, sizeof name, name, NULL),
              CL_KERNEL_ARG_INFO_NOT_AVAILABLE);
    OK(clReleaseKernel(kernel));
}

/* Stricter than the standard demands: without the option, and from a binary, nothing is told. */
static void test_arg_info_is_strict(void)
{
    set_up();
    cl_int error;
    cl_program plain = build("kernel void inc(global uint *b) {}", NULL);
    expect_no_arg_info(plain);
    size_t size;
    OK(clGetProgramInfo(plain, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    unsigned char *binary = malloc(size);
    OK(clGetProgramInfo(plain, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    cl_program loaded =
        clCreateProgramWithBinary(context, 1, &device, &size, (const unsigned char **)&binary, NULL, &error);
    OK(error);
    OK(clBuildProgram(loaded, 0, NULL, "-cl-kernel-arg-info", NULL, NULL));
    expect_no_arg_info(loaded);
    free(binary);
    OK(clReleaseProgram(loaded));
    OK(clReleaseProgram(plain));
    tear_down();
}

static void test_kernels(void)
{
    set_up();
    cl_mem a = buffer_of(64), b = buffer_of(64), c = buffer_of(64);
    cl_kernel fill = kernel_of("fill_a"), iota = kernel_of("iota"), inc = kernel_of("inc"), add = kernel_of("add"),
              copy = kernel_of("copy"), sum = kernel_of("sum");
    set_mem(fill, 0, a);
    set_uint(fill, 1, 100);
    set_mem(iota, 0, b);
    set_mem(inc, 0, b);
    set_mem(add, 0, c);
    set_mem(add, 1, a);
    set_mem(add, 2, b);
    OK(launch(fill, 16, NULL));
    OK(launch(iota, 1000, NULL)); /* stays inside the buffer */
    OK(launch(inc, 16, NULL));
    OK(launch(add, 16, NULL));
    CHECK_INT(read_uint(c, 15), 100 + 15 + 1);
    set_uint(fill, 1, 9); /* the next launch's argument, not that of those before */
    const size_t offset = 4, items = 2;
    OK(clEnqueueNDRangeKernel(queue, fill, 1, &offset, &items, NULL, 0, NULL, NULL));
    CHECK_INT(read_uint(a, 3), 100);
    CHECK_INT(read_uint(a, 4), 9);
    CHECK_INT(read_uint(a, 5), 9);
    CHECK_INT(read_uint(a, 6), 100);
    set_mem(copy, 0, b);
    set_mem(copy, 1, a);
    OK(launch(copy, 16, NULL));
    set_mem(sum, 0, c);
    set_mem(sum, 1, b);
    OK(launch(sum, 16, NULL));
    CHECK_INT(read_uint(c, 0), 14 * 100 + 2 * 9);
    set_mem(inc, 0, NULL);
    OK(launch(inc, 16, NULL)); /* a NULL buffer has no elements */

    cl_kernel value = kernel_of("value_4");
    const cl_float4 vector = {{1.5f, 2.5f, 3.5f, 4.5f}};
    cl_float4 back;
    set_mem(value, 0, a);
    OK(clSetKernelArg(value, 1, sizeof vector, &vector));
    OK(launch(value, 1, NULL));
    OK(clEnqueueReadBuffer(queue, a, CL_TRUE, 0, sizeof back, &back, 0, NULL, NULL));
    CHECK(memcmp(&back, &vector, sizeof back) == 0);
    cl_kernel twin;
    cl_int error;
    twin = clCloneKernel(value, &error);
    OK(error);
    set_mem(value, 0, b);
    OK(launch(twin, 1, NULL));
    OK(clReleaseKernel(twin));
    cl_kernel local = kernel_of("localsize");
    set_mem(local, 0, a);
    CHECK_INT(clSetKernelArg(local, 1, 4, &vector), CL_INVALID_ARG_VALUE);
    OK(clSetKernelArg(local, 1, 300, NULL));
    OK(launch(local, 1, NULL));
    CHECK_INT(read_uint(a, 0), 300);

    cl_kernel spin = kernel_of("spin"), sleeper = kernel_of("sleep_a");
    set_uint(spin, 0, 20000);
    set_uint(sleeper, 0, 20000);
    cl_event events[2];
    OK(launch(spin, 1, &events[0]));
    OK(clEnqueueTask(queue, sleeper, 0, NULL, &events[1]));
    OK(clWaitForEvents(2, events));
    for (int i = 0; i < 2; i++) {
        cl_ulong at[4];
        for (cl_uint p = 0; p < 4; p++) {
            OK(clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_QUEUED + p, sizeof at[p], &at[p], NULL));
        }
        CHECK(at[0] <= at[1] && at[1] <= at[2] && at[2] <= at[3]);
        CHECK(at[3] - at[2] >= 20000000);
        OK(clReleaseEvent(events[i]));
    }
    cl_kernel all[] = {fill, iota, inc, add, copy, sum, value, local, spin, sleeper};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        OK(clReleaseKernel(all[i]));
    }
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
    OK(clReleaseMemObject(c));
    tear_down();
}

static void test_printf(void)
{
    set_up();
    int ends[2];
    CHECK(pipe(ends) == 0);
    int saved = dup(STDOUT_FILENO);
    CHECK(dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO);
    cl_kernel kernel = kernel_of("printf_hello");
    set_uint(kernel, 0, 42);
    OK(launch(kernel, 1, NULL));
    OK(clFinish(queue));
    CHECK(dup2(saved, STDOUT_FILENO) == STDOUT_FILENO);
    char text[64] = "";
    CHECK(read(ends[0], text, sizeof text - 1) > 0);
    CHECK(strcmp(text, "printf_hello 42\n") == 0);
    OK(clReleaseKernel(kernel));
    tear_down();
}

struct told {
    atomic_int calls;
    atomic_int status;
};

static void CL_CALLBACK note_event(cl_event event, cl_int status, void *data)
{
    struct told *told = data;
    atomic_store(&told->status, status);
    atomic_fetch_add(&told->calls, 1);
}

static void wait_for_calls(struct told *told, int calls)
{
    wait_for_count(&told->calls, calls);
}

static void CL_CALLBACK note_context(const char *message, const void *info, size_t size, void *data)
{
    struct told *told = data;
    atomic_fetch_add(&told->calls, 1);
}

static void test_events(void)
{
    static struct told submitted, complete, failed, context_errors;
    set_up_devices();
    cl_int error;
    context = clCreateContext(NULL, 1, &device, note_context, &context_errors, &error);
    OK(error);
    queue = make_queue(CL_QUEUE_PROFILING_ENABLE);
    program = build(kernel_source, "-cl-kernel-arg-info");
    cl_kernel nop = kernel_of("nop"), fail = kernel_of("fail");

    cl_event gate = clCreateUserEvent(context, &error), done;
    OK(launch_on(queue, nop, 1, 1, &gate, &done));
    OK(clSetEventCallback(done, CL_SUBMITTED, note_event, &submitted));
    OK(clSetEventCallback(done, CL_COMPLETE, note_event, &complete));
    OK(clFlush(queue));
    sleep_ms(20);
    CHECK_INT(status_of(done), CL_QUEUED);
    CHECK_INT(atomic_load(&complete.calls), 0);
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &done));
    CHECK_INT(status_of(done), CL_COMPLETE);
    wait_for_calls(&submitted, 1);
    wait_for_calls(&complete, 1);
    CHECK_INT(atomic_load(&complete.status), CL_COMPLETE);
    OK(clSetEventCallback(done, CL_COMPLETE, note_event, &complete));
    wait_for_calls(&complete, 2); /* at once, for it is complete already */
    OK(clReleaseEvent(done));
    OK(clReleaseEvent(gate));

    /* a failed kernel fails what waits for it, and tells the context */
    cl_event bad, after;
    OK(launch(fail, 1, &bad));
    OK(launch_on(queue, nop, 1, 1, &bad, &after));
    OK(clSetEventCallback(after, CL_COMPLETE, note_event, &failed));
    CHECK_INT(clWaitForEvents(1, &after), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    CHECK_INT(status_of(bad), CL_OUT_OF_RESOURCES);
    CHECK_INT(status_of(after), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    wait_for_calls(&failed, 1);
    CHECK_INT(atomic_load(&failed.status), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    CHECK(atomic_load(&context_errors.calls) >= 1);
    cl_ulong time;
    CHECK_INT(clGetEventProfilingInfo(bad, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL),
              CL_PROFILING_INFO_NOT_AVAILABLE);
    OK(clReleaseEvent(bad));
    OK(clReleaseEvent(after));
    OK(launch(nop, 1, &done)); /* the queue itself goes on */
    OK(clWaitForEvents(1, &done));
    OK(clReleaseEvent(done));

    gate = clCreateUserEvent(context, &error);
    OK(launch_on(queue, nop, 1, 1, &gate, &after));
    OK(clSetUserEventStatus(gate, -7));
    CHECK_INT(clWaitForEvents(1, &after), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    CHECK_INT(clWaitForEvents(1, &gate), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(clReleaseEvent(after));
    OK(clReleaseEvent(gate));
    OK(clReleaseKernel(nop));
    OK(clReleaseKernel(fail));
    tear_down();
}

static void test_out_of_order(void)
{
    set_up();
    cl_int error;
    cl_command_queue any = make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_kernel nop = kernel_of("nop");
    cl_event gate = clCreateUserEvent(context, &error);
    cl_event first, second, marker, third;
    OK(launch_on(any, nop, 1, 1, &gate, &first));
    OK(launch_on(any, nop, 1, 0, NULL, &second));
    OK(clWaitForEvents(1, &second)); /* overtakes the first */
    CHECK_INT(status_of(first), CL_QUEUED);
    OK(clEnqueueMarkerWithWaitList(any, 0, NULL, &marker));
    OK(clEnqueueBarrierWithWaitList(any, 0, NULL, NULL));
    OK(launch_on(any, nop, 1, 0, NULL, &third));
    OK(clFlush(any));
    sleep_ms(20);
    CHECK_INT(status_of(marker), CL_QUEUED);
    CHECK_INT(status_of(third), CL_QUEUED);
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(any));
    CHECK_INT(status_of(marker), CL_COMPLETE);
    CHECK_INT(status_of(third), CL_COMPLETE);
    OK(clReleaseEvent(first));
    OK(clReleaseEvent(second));
    OK(clReleaseEvent(marker));
    OK(clReleaseEvent(third));
    OK(clReleaseEvent(gate));
    OK(clReleaseKernel(nop));
    OK(clReleaseCommandQueue(any));
    tear_down();
}

#define THREADS 4
#define ROUNDS 60

/* Each thread its own queue and buffer, everything else shared; events cross between threads. */
static _Atomic(cl_event) baton;

static void *work_in_thread(void *argument)
{
    bool any_order = (intptr_t)argument % 2 != 0;
    cl_command_queue own = make_queue(any_order ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0);
    cl_mem buffer = buffer_of(1024);
    cl_kernel inc = kernel_of("inc");
    static struct told told;
    set_mem(inc, 0, buffer);
    OK(clEnqueueFillBuffer(own, buffer, "\0\0\0\0", 4, 0, 1024, 0, NULL, NULL));
    OK(clFinish(own));
    for (int round = 0; round < ROUNDS; round++) {
        cl_event other = atomic_exchange(&baton, NULL);
        cl_event done;
        OK(launch_on(own, inc, 256, other != NULL, other != NULL ? &other : NULL, &done));
        OK(clSetEventCallback(done, CL_COMPLETE, note_event, &told));
        OK(clFlush(own));
        if (other != NULL) {
            OK(clReleaseEvent(other));
        }
        OK(clWaitForEvents(1, &done)); /* the next increment must see this one */
        other = atomic_exchange(&baton, done);
        if (other != NULL) {
            OK(clReleaseEvent(other));
        }
    }
    cl_uint value;
    OK(clEnqueueReadBuffer(own, buffer, CL_TRUE, 1020, 4, &value, 0, NULL, NULL));
    CHECK_INT(value, ROUNDS);
    OK(clReleaseKernel(inc));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(own));
    return NULL;
}

/* All threads write to one queue, without waiting, each to its own part of a buffer. */
#define WRITES 400
#define PART 4096

struct writer {
    cl_command_queue queue;
    cl_mem buffer;
    unsigned number;
};

static void *write_in_thread(void *argument)
{
    const struct writer *w = argument;
    unsigned char bytes[PART];
    for (int i = 0; i < WRITES; i++) {
        memset(bytes, (int)(w->number + (unsigned)i), sizeof bytes);
        cl_event done;
        OK(clEnqueueWriteBuffer(w->queue, w->buffer, CL_FALSE, (size_t)w->number * PART, PART, bytes, 0, NULL, &done));
        OK(clWaitForEvents(1, &done));
        OK(clReleaseEvent(done));
    }
    return NULL;
}

static void test_writing_threads(void)
{
    set_up();
    cl_command_queue shared = make_queue(0);
    cl_mem buffer = buffer_of(THREADS * PART);
    pthread_t threads[THREADS];
    struct writer writers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        writers[i] = (struct writer){shared, buffer, i};
        CHECK(pthread_create(&threads[i], NULL, write_in_thread, &writers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        unsigned char last;
        OK(clEnqueueReadBuffer(shared, buffer, CL_TRUE, (size_t)(i + 1) * PART - 1, 1, &last, 0, NULL, NULL));
        CHECK_INT(last, (unsigned char)(i + WRITES - 1));
    }
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(shared));
    tear_down();
}

static void test_threads(void)
{
    set_up();
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work_in_thread, (void *)i) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    cl_event last = atomic_exchange(&baton, NULL);
    if (last != NULL) {
        OK(clReleaseEvent(last));
    }
    tear_down();
}

/* ---- scripts --------------------------------------------------------------------------------*/

static void test_return_nth(void)
{
    set_up();
    cl_kernel nop = kernel_of("nop");
    for (int i = 1; i <= 8; i++) {
        /* the script: 3 return -5, 5-6 return -4, 8+ return -36 */
        cl_int expected = i == 3 ? -5 : i == 5 || i == 6 ? -4 : i >= 8 ? -36 : CL_SUCCESS;
        CHECK_INT(launch(nop, 1, NULL), expected);
    }
    OK(clReleaseKernel(nop));
    tear_down();
}

static void test_return_always(void)
{
    set_up();
    cl_int error;
    for (int i = 0; i < 3; i++) {
        CHECK(clCreateBuffer(context, 0, 64, NULL, &error) == NULL);
        CHECK_INT(error, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    }
    tear_down();
}

static void test_percent(void)
{
    set_up();
    int failures = 0;
    cl_kernel nop = kernel_of("nop");
    for (int i = 0; i < 1000; i++) {
        failures += launch(nop, 1, NULL) == -5;
    }
    CHECK(failures > 220 && failures < 380); /* 30 % */
    OK(clReleaseKernel(nop));
    tear_down();
}

static void test_delay_of_call(void)
{
    set_up();
    double before = now_ms();
    OK(clFlush(queue));
    CHECK(now_ms() - before < 1500);
    before = now_ms();
    OK(clFlush(queue));
    CHECK(now_ms() - before >= 2000);
    tear_down();
}

static atomic_int hang_stage;

static void *finish_in_thread(void *argument)
{
    atomic_store(&hang_stage, 1);
    clFinish(queue);
    atomic_store(&hang_stage, 2);
    return NULL;
}

static void expect_hang_of_finish(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, finish_in_thread, NULL) == 0);
    while (atomic_load(&hang_stage) == 0) {
        sleep_ms(1);
    }
    sleep_ms(300);
    CHECK_INT(atomic_load(&hang_stage), 1);
    _exit(0);
}

static void test_hang_of_call(void)
{
    set_up();
    expect_hang_of_finish();
}

static void test_hang_of_kernel(void)
{
    set_up();
    OK(launch(kernel_of("hang"), 1, NULL));
    /* another queue is not held up */
    cl_command_queue other = make_queue(0);
    OK(launch_on(other, kernel_of("nop"), 1, 0, NULL, NULL));
    OK(clFinish(other));
    expect_hang_of_finish();
}

static void test_hang_of_completion(void)
{
    set_up();
    OK(launch(kernel_of("nop"), 1, NULL));
    OK(clFinish(queue));
    OK(launch(kernel_of("nop"), 1, NULL));
    expect_hang_of_finish();
}

static void test_crash_of_call(void)
{
    set_up(); /* its program is the second one built */
    exit(1);
}

static void test_crash_of_kernel(void)
{
    set_up();
    OK(launch(kernel_of("crash"), 1, NULL));
    clFinish(queue);
    exit(1);
}

static void test_runs_to_end(void)
{
    set_up();
    OK(launch(kernel_of("nop"), 1, NULL));
    clFinish(queue);
    exit(1); /* only reached when the script did not do its work */
}

static void test_words(void)
{
    set_up();
    int ends[2];
    CHECK(pipe(ends) == 0);
    int saved = dup(STDERR_FILENO);
    CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    clFinish(queue);
    clFinish(queue);
    clFinish(queue);
    CHECK(dup2(saved, STDERR_FILENO) == STDERR_FILENO);
    close(saved);
    close(ends[1]);
    char text[64] = "";
    ssize_t bytes = read(ends[0], text, sizeof text - 1);
    CHECK(bytes > 0);
    CHECK(strcmp(text, "two-words\n") == 0);
    close(ends[0]);
    tear_down();
}

static void test_late_completion(void)
{
    set_up();
    cl_kernel nop = kernel_of("nop");
    cl_event events[2];
    double before = now_ms();
    OK(launch(nop, 1, &events[0]));
    OK(launch(nop, 1, &events[1]));
    OK(clWaitForEvents(1, &events[1]));
    CHECK(now_ms() - before >= 2000);
    cl_ulong start, end;
    OK(clGetEventProfilingInfo(events[1], CL_PROFILING_COMMAND_START, sizeof start, &start, NULL));
    OK(clGetEventProfilingInfo(events[1], CL_PROFILING_COMMAND_END, sizeof end, &end, NULL));
    CHECK(end - start < 1500000000); /* the news was late, not the end */
    OK(clReleaseEvent(events[0]));
    OK(clReleaseEvent(events[1]));
    OK(clReleaseKernel(nop));
    tear_down();
}

static void test_failed_completion(void)
{
    set_up();
    cl_mem buffer = buffer_of(16);
    cl_uint value = 5;
    /* the script fails the second read, and only that */
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    CHECK_INT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL), -5);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    OK(clReleaseMemObject(buffer));
    tear_down();
}

static void check_lost(void)
{
    cl_int error;
    cl_bool available;
    CHECK_INT(launch(kernel_of("nop"), 1, NULL), CL_OUT_OF_RESOURCES);
    CHECK_INT(clFinish(queue), CL_OUT_OF_RESOURCES);
    CHECK(clCreateBuffer(context, 0, 64, NULL, &error) == NULL);
    CHECK_INT(error, CL_OUT_OF_RESOURCES);
    CHECK(clCreateContext(NULL, 1, &device, NULL, NULL, &error) == NULL);
    CHECK_INT(error, CL_DEVICE_NOT_AVAILABLE);
    OK(clGetDeviceInfo(device, CL_DEVICE_AVAILABLE, sizeof available, &available, NULL));
    CHECK_INT(available, CL_FALSE);
}

static void test_lost_after_commands(void)
{
    set_up();
    cl_kernel nop = kernel_of("nop");
    cl_event events[4];
    cl_int error;
    cl_event gate = clCreateUserEvent(context, &error);
    for (int i = 0; i < 4; i++) {
        OK(launch_on(queue, nop, 1, 1, &gate, &events[i]));
    }
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    CHECK_INT(clWaitForEvents(4, events), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(status_of(events[i]), i < 3 ? CL_COMPLETE : CL_OUT_OF_RESOURCES);
        OK(clReleaseEvent(events[i]));
    }
    OK(clReleaseEvent(gate));
    check_lost();
    OK(clReleaseKernel(nop)); /* releases and queries still work */
    OK(clReleaseCommandQueue(queue));
    _exit(0);
}

static void test_lost_after_time(void)
{
    set_up();
    OK(launch(kernel_of("nop"), 1, NULL));
    sleep_ms(1100);
    check_lost();
    _exit(0);
}

static void test_rule_in_source(void)
{
    set_up();
    cl_int error;
    cl_kernel nop = kernel_of("nop");
    OK(launch(nop, 1, NULL));
    cl_program with_rule = build("#pragma divvy-vendor clEnqueueNDRangeKernel 2 return -5\n"
                                 "kernel void nop(void) {}\n",
                                 NULL);
    OK(launch(nop, 1, NULL));
    CHECK_INT(launch(nop, 1, NULL), -5);
    OK(launch(nop, 1, NULL));
    OK(clReleaseProgram(with_rule));
    const char *wrong = "#pragma divvy-vendor clFinnish 1 hang\nkernel void nop(void) {}\n";
    with_rule = clCreateProgramWithSource(context, 1, &wrong, NULL, &error);
    CHECK_INT(clBuildProgram(with_rule, 0, NULL, NULL, NULL, NULL), CL_BUILD_PROGRAM_FAILURE);
    OK(clReleaseProgram(with_rule));
    OK(clReleaseKernel(nop));
    tear_down();
}

static void test_settings(void)
{
    set_up();
    cl_device_id devices[4];
    cl_uint count;
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_GPU, 4, devices, &count));
    CHECK_INT(count, 2);
    cl_ulong memory;
    OK(clGetDeviceInfo(devices[1], CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL));
    CHECK_INT(memory, 1 << 20);
    cl_bool unified;
    OK(clGetDeviceInfo(device, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof unified, &unified, NULL));
    CHECK_INT(unified, CL_FALSE);
    /* the memory is not only reported */
    cl_int error;
    cl_mem half = buffer_of(512 << 10), other = buffer_of(512 << 10);
    CHECK(clCreateBuffer(context, 0, 4096, NULL, &error) == NULL);
    CHECK_INT(error, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    OK(clReleaseMemObject(half));
    half = buffer_of(4096);
    OK(clReleaseMemObject(half));
    OK(clReleaseMemObject(other));
    cl_program unknown = build("kernel void frobnicate(global int *a) {}", NULL);
    OK(clReleaseProgram(unknown));
    tear_down();
}

static void test_two_devices(void)
{
    cl_int error;
    cl_device_id devices[2];
    set_up_devices();
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 2, devices, NULL));
    context = clCreateContext(NULL, 2, devices, NULL, NULL, &error);
    OK(error);
    queue = make_queue(0);
    device = devices[1];
    cl_command_queue second = make_queue(0);
    const char *source = kernel_source;
    program = clCreateProgramWithSource(context, 1, &source, NULL, &error);
    OK(clBuildProgram(program, 1, devices, NULL, NULL, NULL));
    cl_kernel inc = kernel_of("inc");
    cl_mem buffer = buffer_of(16);
    set_mem(inc, 0, buffer);
    OK(clEnqueueFillBuffer(second, buffer, "\0\0\0\0", 4, 0, 16, 0, NULL, NULL));
    OK(clFinish(second));
    OK(launch(inc, 4, NULL));
    CHECK_INT(launch_on(second, inc, 4, 0, NULL, NULL), CL_INVALID_PROGRAM_EXECUTABLE);
    CHECK_INT(read_uint(buffer, 3), 1);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseKernel(inc));
    OK(clReleaseCommandQueue(second));
    tear_down();
}

static void test_flush_required(void)
{
    set_up();
    cl_kernel nop = kernel_of("nop");
    cl_event done;
    OK(launch(nop, 1, &done));
    sleep_ms(50);
    CHECK_INT(status_of(done), CL_QUEUED);
    OK(clFlush(queue));
    for (int i = 0; i < 2000 && status_of(done) != CL_COMPLETE; i++) {
        sleep_ms(5);
    }
    CHECK_INT(status_of(done), CL_COMPLETE);
    OK(clReleaseEvent(done));
    OK(clReleaseKernel(nop));
    tear_down();
}

static void test_newest_first(void)
{
    set_up();
    cl_int error;
    cl_command_queue any = make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_event gate = clCreateUserEvent(context, &error);
    cl_kernel fill = kernel_of("fill_a");
    cl_mem buffer = buffer_of(4);
    set_mem(fill, 0, buffer);
    for (cl_uint i = 1; i <= 3; i++) {
        set_uint(fill, 1, i);
        OK(launch_on(any, fill, 1, 1, &gate, NULL));
    }
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(any));
    CHECK_INT(read_uint(buffer, 0), 1); /* the first enqueued ran last */
    OK(clReleaseEvent(gate));
    OK(clReleaseKernel(fill));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(any));
    tear_down();
}

static void test_bad_script(void)
{
    cl_uint count = 0;
    CHECK(clGetPlatformIDs(1, &platform, &count) != CL_SUCCESS || count == 0);
}

static void test_script_file(void)
{
    /* a process cannot change its own script, so this one starts another */
    char path[] = "/tmp/divvy-vendor-script-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK(dprintf(fd, "# a comment\n\n  clEnqueueNDRangeKernel 3 return -5 # another\n"
                      "clEnqueueNDRangeKernel 5-6 return -4\n"
                      "clEnqueueNDRangeKernel 8+ return -36\n") > 0);
    close(fd);
    setenv("DIVVY_VENDOR_SCRIPT", path, 1);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "vendor-selftest", "return_nth", NULL);
        _exit(127);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    unlink(path);
    CHECK_INT(status, 0);
}

static void test_log(void)
{
    char path[] = "/tmp/divvy-vendor-log-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    setenv("DIVVY_VENDOR_LOG", path, 1);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "vendor-selftest", "buffers", NULL);
        _exit(127);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    static char text[65536];
    CHECK(read(fd, text, sizeof text - 1) > 0);
    unlink(path);
    CHECK(strstr(text, " call clEnqueueCopyBufferRect 0\n") != NULL);
    CHECK(strstr(text, " complete clEnqueueCopyBufferRect 0\n") != NULL);
}

/* ---- running the cases ----------------------------------------------------------------------*/

struct test_case {
    const char *name;
    void (*run)(void);
    const char *script;
    int signal; /* that must end it */
    int code;   /* that it must exit with */
};

#define RETURNS                                                                                                        \
    "clEnqueueNDRangeKernel 3 return -5;"                                                                              \
    "clEnqueueNDRangeKernel 5-6 return -4;"                                                                            \
    "clEnqueueNDRangeKernel 8+ return -36"

static const struct test_case cases[] = {
    {"platform", test_platform, NULL, 0, 0},
    {"table_is_full", test_table_is_full, NULL, 0, 0},
    {"unsupported", test_unsupported, NULL, 0, 0},
    {"bad_arguments", test_bad_arguments, NULL, 0, 0},
    {"references", test_references, NULL, 0, 0},
    {"buffers", test_buffers, NULL, 0, 0},
    {"host_pointer", test_host_pointer, NULL, 0, 0},
    {"maps", test_maps, NULL, 0, 0},
    {"images", test_images, NULL, 0, 0},
    {"programs", test_programs, NULL, 0, 0},
    {"arg_info_is_strict", test_arg_info_is_strict, NULL, 0, 0},
    {"kernels", test_kernels, NULL, 0, 0},
    {"printf", test_printf, NULL, 0, 0},
    {"events", test_events, NULL, 0, 0},
    {"out_of_order", test_out_of_order, NULL, 0, 0},
    {"threads", test_threads, NULL, 0, 0},
    {"writing_threads", test_writing_threads, NULL, 0, 0},
    {"return_nth", test_return_nth, RETURNS, 0, 0},
    {"return_always", test_return_always, "clCreateBuffer * return -4", 0, 0},
    {"percent", test_percent, "seed 7\nclEnqueueNDRangeKernel 30% return -5", 0, 0},
    {"delay_of_call", test_delay_of_call, "clFlush 2 delay 2s", 0, 0},
    {"hang_of_call", test_hang_of_call, "clFinish 1 hang", 0, 0},
    {"hang_of_kernel", test_hang_of_kernel, NULL, 0, 0},
    {"hang_of_completion", test_hang_of_completion, "complete 2 hang", 0, 0},
    {"crash_of_call", test_crash_of_call, "clBuildProgram 1 crash", SIGSEGV, 0},
    {"crash_of_any_call", test_crash_of_call, "call 5 crash", SIGSEGV, 0},
    {"crash_of_kernel", test_crash_of_kernel, NULL, SIGSEGV, 0},
    {"crash_of_completion", test_runs_to_end, "complete clEnqueueNDRangeKernel 1 crash", SIGSEGV, 0},
    {"abort", test_runs_to_end, "clEnqueueNDRangeKernel 1 abort", SIGABRT, 0},
    {"exit", test_runs_to_end, "clEnqueueNDRangeKernel 1 exit 41", 0, 41},
    {"say", test_words, "clFinish 2 say two-words", 0, 0},
    {"late_completion", test_late_completion, "complete 2 delay 2s", 0, 0},
    {"failed_completion", test_failed_completion, "complete clEnqueueReadBuffer 2 status -5", 0, 0},
    {"lost_after_commands", test_lost_after_commands, "device lost after 3", 0, 0},
    {"lost_after_time", test_lost_after_time, "device lost after 1s", 0, 0},
    {"rule_in_source", test_rule_in_source, NULL, 0, 0},
    {"settings", test_settings,
     "devices 2; device type gpu; device memory 1MiB; device unified no; unknown kernels nop", 0, 0},
    {"two_devices", test_two_devices, "devices 2", 0, 0},
    {"flush_required", test_flush_required, "flush required", 0, 0},
    {"newest_first", test_newest_first, "order newest", 0, 0},
    {"maps_copied", test_maps, "maps copied", 0, 0},
    {"early_look_into_map", test_early_look_into_map, "maps copied", 0, 0},
    {"bad_function_name", test_bad_script, "clFinnish 1 hang", 0, 0},
    {"bad_action", test_bad_script, "clFinish 1 explode", 0, 0},
    {"positive_return", test_bad_script, "clFinish 1 return 0", 0, 0},
    {"say_nothing", test_bad_script, "clFinish 1 say", 0, 0},
    {"script_file", test_script_file, NULL, 0, 0},
    {"log", test_log, NULL, 0, 0},
};
#define NUM_CASES (sizeof cases / sizeof cases[0])

/* A sanitizer must let the wanted crash happen instead of reporting it. */
static void allow_crash(const char *variable)
{
    const char *options = getenv(variable);
    char with[512];
    snprintf(with, sizeof with, "%s:handle_segv=0:handle_abort=0", options != NULL ? options : "");
    setenv(variable, with, 1);
}

static bool run_case(const struct test_case *test)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (test->script != NULL) {
            setenv("DIVVY_VENDOR_SCRIPT", test->script, 1);
        } else {
            unsetenv("DIVVY_VENDOR_SCRIPT");
        }
        if (test->signal != 0) {
            allow_crash("ASAN_OPTIONS");
            allow_crash("TSAN_OPTIONS");
        }
        alarm(CASE_SECONDS); /* survives exec, and ends a case that hangs unasked */
        execl("/proc/self/exe", "vendor-selftest", test->name, NULL);
        _exit(127);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return false;
    }
    bool good = test->signal != 0 ? WIFSIGNALED(status) && WTERMSIG(status) == test->signal
                                  : WIFEXITED(status) && WEXITSTATUS(status) == test->code;
    if (!good) {
        printf("# %s ended with wait status 0x%x\n", test->name, (unsigned)status);
    }
    return good;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; argc > 1 && i < NUM_CASES; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    }
    if (argc > 1) {
        fprintf(stderr, "no case is called %s\n", argv[1]);
        return 2;
    }
    printf("1..%zu\n", NUM_CASES);
    int failures = 0;
    for (size_t i = 0; i < NUM_CASES; i++) {
        bool good = run_case(&cases[i]);
        printf("%s %zu - %s\n", good ? "ok" : "not ok", i + 1, cases[i].name);
        failures += !good;
    }
    return failures > 0;
}
