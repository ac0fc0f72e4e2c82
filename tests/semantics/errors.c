/* Wrong use: NULL handles, handles of the wrong kind or of another context, bad sizes, flags,
 * offsets and wait lists. Each call answers with the error of the standard, has no effect, and the
 * objects involved stay usable. */
#include "check.h"

static struct dv_test test;
static cl_context other_context;
static cl_command_queue other_queue;
static cl_mem buffer, other_buffer, image;
static cl_program program;
static cl_kernel kernel;
static cl_event event, other_event;
static cl_sampler sampler;
static unsigned char host[4096];

#define SIZE ((size_t)1024)

/* Calls that return a handle: none comes, and the error is this one. */
#define CHECK_NO_HANDLE(expression, expected)                                                                          \
    do {                                                                                                               \
        cl_int error = 12345;                                                                                          \
        CHECK((expression) == NULL);                                                                                   \
        CHECK_ERROR(error, (expected));                                                                                \
    } while (0)

static void set_up(void)
{
    cl_int error;
    test = dv_test_setup();
    other_context = clCreateContext(NULL, 1, &test.device, NULL, NULL, &error);
    REQUIRE_CL(error);
    other_queue = clCreateCommandQueue(other_context, test.device, 0, &error);
    REQUIRE_CL(error);
    buffer = dv_test_buffer(&test, 0, SIZE, NULL);
    other_buffer = clCreateBuffer(other_context, 0, SIZE, NULL, &error);
    REQUIRE_CL(error);
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
    image = clCreateImage(test.context, 0, &format, &desc, NULL, &error);
    REQUIRE_CL(error);
    program = dv_test_build(&test, "kernel void take(global int *p, int n) { p[0] = n; }\n", "");
    kernel = dv_test_kernel(program, "take");
    sampler = clCreateSampler(test.context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &error);
    REQUIRE_CL(error);
    REQUIRE_CL(clEnqueueMarkerWithWaitList(test.queue, 0, NULL, &event));
    REQUIRE_CL(clFinish(test.queue));
    REQUIRE_CL(clEnqueueMarkerWithWaitList(other_queue, 0, NULL, &other_event));
    REQUIRE_CL(clFinish(other_queue));
}

/* The loader itself answers these, or hands them on; either way they must not crash. */
static void test_null_handles(void)
{
    dv_test_section("NULL handles");
    cl_uint count;
    size_t size, global = 1;
    CHECK_ERROR(clRetainContext(NULL), CL_INVALID_CONTEXT);
    CHECK_ERROR(clReleaseContext(NULL), CL_INVALID_CONTEXT);
    CHECK_ERROR(clGetContextInfo(NULL, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, &size), CL_INVALID_CONTEXT);
    CHECK_ERROR(clRetainCommandQueue(NULL), CL_INVALID_COMMAND_QUEUE);
    CHECK_ERROR(clReleaseCommandQueue(NULL), CL_INVALID_COMMAND_QUEUE);
    CHECK_ERROR(clFlush(NULL), CL_INVALID_COMMAND_QUEUE);
    CHECK_ERROR(clFinish(NULL), CL_INVALID_COMMAND_QUEUE);
    CHECK_ERROR(clRetainMemObject(NULL), CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clReleaseMemObject(NULL), CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clGetMemObjectInfo(NULL, CL_MEM_SIZE, sizeof size, &size, NULL), CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clGetImageInfo(NULL, CL_IMAGE_WIDTH, sizeof size, &size, NULL), CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clRetainSampler(NULL), CL_INVALID_SAMPLER);
    CHECK_ERROR(clReleaseSampler(NULL), CL_INVALID_SAMPLER);
    CHECK_ERROR(clRetainProgram(NULL), CL_INVALID_PROGRAM);
    CHECK_ERROR(clReleaseProgram(NULL), CL_INVALID_PROGRAM);
    CHECK_ERROR(clBuildProgram(NULL, 0, NULL, "", NULL, NULL), CL_INVALID_PROGRAM);
    CHECK_ERROR(clRetainKernel(NULL), CL_INVALID_KERNEL);
    CHECK_ERROR(clReleaseKernel(NULL), CL_INVALID_KERNEL);
    CHECK_ERROR(clSetKernelArg(NULL, 0, sizeof count, &count), CL_INVALID_KERNEL);
    CHECK_ERROR(clRetainEvent(NULL), CL_INVALID_EVENT);
    CHECK_ERROR(clReleaseEvent(NULL), CL_INVALID_EVENT);
    CHECK_ERROR(clSetUserEventStatus(NULL, CL_COMPLETE), CL_INVALID_EVENT);
    CHECK_ERROR(clRetainDevice(NULL), CL_INVALID_DEVICE);
    CHECK_ERROR(clReleaseDevice(NULL), CL_INVALID_DEVICE);
    CHECK_ERROR(clGetDeviceInfo(NULL, CL_DEVICE_TYPE, sizeof size, &size, NULL), CL_INVALID_DEVICE);
    CHECK_NO_HANDLE(clCreateBuffer(NULL, 0, SIZE, NULL, &error), CL_INVALID_CONTEXT);
    CHECK_NO_HANDLE(clCreateUserEvent(NULL, &error), CL_INVALID_CONTEXT);
    CHECK_NO_HANDLE(clCreateCommandQueue(NULL, test.device, 0, &error), CL_INVALID_CONTEXT);
    CHECK_NO_HANDLE(clCreateCommandQueue(test.context, NULL, 0, &error), CL_INVALID_DEVICE);
    CHECK_NO_HANDLE(clCreateKernel(NULL, "take", &error), CL_INVALID_PROGRAM);
    CHECK_ERROR(clEnqueueReadBuffer(NULL, buffer, CL_TRUE, 0, 4, host, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    CHECK_ERROR(clEnqueueReadBuffer(test.queue, NULL, CL_TRUE, 0, 4, host, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clEnqueueWriteBuffer(test.queue, NULL, CL_TRUE, 0, 4, host, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clEnqueueCopyBuffer(test.queue, buffer, NULL, 0, 0, 4, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clEnqueueCopyBuffer(test.queue, NULL, buffer, 0, 0, 4, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clEnqueueFillBuffer(test.queue, NULL, host, 1, 0, 4, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    if (!dv_test_pocl_dies("5.10: crash when the kernel is NULL"))
        CHECK_ERROR(clEnqueueNDRangeKernel(test.queue, NULL, 1, NULL, &global, NULL, 0, NULL, NULL), CL_INVALID_KERNEL);
    CHECK_ERROR(clEnqueueUnmapMemObject(test.queue, NULL, host, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
}

/* A handle of another kind, where the loader's dispatch still works. */
static void test_wrong_kinds(void)
{
    dv_test_section("handles of another kind");
    if (dv_test_pocl_dies("2.1: handles are taken for what they are said to be"))
        return;
    cl_uint count;
    size_t size;
    CHECK_ERROR(clRetainContext((cl_context)test.queue), CL_INVALID_CONTEXT);
    CHECK_ERROR(clReleaseContext((cl_context)buffer), CL_INVALID_CONTEXT);
    CHECK_ERROR(clGetContextInfo((cl_context)event, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL),
                CL_INVALID_CONTEXT);
    CHECK_ERROR(clFinish((cl_command_queue)test.context), CL_INVALID_COMMAND_QUEUE);
    CHECK_ERROR(clReleaseCommandQueue((cl_command_queue)event), CL_INVALID_COMMAND_QUEUE);
    CHECK_ERROR(clReleaseMemObject((cl_mem)test.queue), CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clGetMemObjectInfo((cl_mem)program, CL_MEM_SIZE, sizeof size, &size, NULL), CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clReleaseProgram((cl_program)kernel), CL_INVALID_PROGRAM);
    CHECK_ERROR(clReleaseKernel((cl_kernel)program), CL_INVALID_KERNEL);
    CHECK_ERROR(clReleaseEvent((cl_event)buffer), CL_INVALID_EVENT);
    CHECK_ERROR(clReleaseSampler((cl_sampler)buffer), CL_INVALID_SAMPLER);
    CHECK_ERROR(clEnqueueReadBuffer(test.queue, (cl_mem)kernel, CL_TRUE, 0, 4, host, 0, NULL, NULL),
                CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clEnqueueReadBuffer((cl_command_queue)buffer, buffer, CL_TRUE, 0, 4, host, 0, NULL, NULL),
                CL_INVALID_COMMAND_QUEUE);
    cl_event not_an_event = (cl_event)buffer;
    CHECK_ERROR(clWaitForEvents(1, &not_an_event), CL_INVALID_EVENT);
    CHECK_ERROR(clEnqueueMarkerWithWaitList(test.queue, 1, &not_an_event, NULL), CL_INVALID_EVENT_WAIT_LIST);
    cl_mem not_a_buffer = (cl_mem)sampler;
    CHECK_ERROR(clSetKernelArg(kernel, 0, sizeof not_a_buffer, &not_a_buffer), CL_INVALID_MEM_OBJECT);
    CHECK_NO_HANDLE(clCreateBuffer((cl_context)test.queue, 0, SIZE, NULL, &error), CL_INVALID_CONTEXT);
    CHECK_NO_HANDLE(clCreateKernel((cl_program)kernel, "take", &error), CL_INVALID_PROGRAM);
}

/* Images where buffers belong, and the other way round. */
static void test_image_or_buffer(void)
{
    dv_test_section("image or buffer");
    size_t zero[3] = {0}, region[3] = {4, 4, 1}, pitch;
    CHECK_ERROR(clEnqueueReadImage(test.queue, buffer, CL_TRUE, zero, region, 0, 0, host, 0, NULL, NULL),
                CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clEnqueueWriteImage(test.queue, buffer, CL_TRUE, zero, region, 0, 0, host, 0, NULL, NULL),
                CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clEnqueueCopyImage(test.queue, image, buffer, zero, zero, region, 0, NULL, NULL),
                CL_INVALID_MEM_OBJECT);
    CHECK_NO_HANDLE(
        clEnqueueMapImage(test.queue, buffer, CL_TRUE, CL_MAP_READ, zero, region, &pitch, NULL, 0, NULL, NULL, &error),
        CL_INVALID_MEM_OBJECT);
    CHECK_EXCEPT_POCL(clEnqueueReadBuffer(test.queue, image, CL_TRUE, 0, 4, host, 0, NULL, NULL) ==
                          CL_INVALID_MEM_OBJECT,
                      "5.2.2: not a buffer object");
    CHECK_EXCEPT_POCL(clEnqueueWriteBuffer(test.queue, image, CL_TRUE, 0, 4, host, 0, NULL, NULL) ==
                          CL_INVALID_MEM_OBJECT,
                      "5.2.2: not a buffer object");
    CHECK_ERROR(clEnqueueFillBuffer(test.queue, image, host, 1, 0, 4, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    CHECK_ERROR(clEnqueueCopyBuffer(test.queue, buffer, image, 0, 0, 4, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    cl_buffer_region part = {0, 16};
    CHECK_NO_HANDLE(clCreateSubBuffer(image, 0, CL_BUFFER_CREATE_TYPE_REGION, &part, &error), CL_INVALID_MEM_OBJECT);
    CHECK_NO_HANDLE(clEnqueueMapBuffer(test.queue, image, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &error),
                    CL_INVALID_MEM_OBJECT);
}

static void test_other_context(void)
{
    dv_test_section("handles of another context");
    size_t global = 1;
    CHECK_ERROR(clEnqueueReadBuffer(test.queue, other_buffer, CL_TRUE, 0, 4, host, 0, NULL, NULL), CL_INVALID_CONTEXT);
    CHECK_ERROR(clEnqueueWriteBuffer(test.queue, other_buffer, CL_TRUE, 0, 4, host, 0, NULL, NULL), CL_INVALID_CONTEXT);
    CHECK_ERROR(clEnqueueCopyBuffer(test.queue, buffer, other_buffer, 0, 0, 4, 0, NULL, NULL), CL_INVALID_CONTEXT);
    CHECK_ERROR(clEnqueueFillBuffer(test.queue, other_buffer, host, 1, 0, 4, 0, NULL, NULL), CL_INVALID_CONTEXT);
    CHECK_ERROR(clEnqueueReadBuffer(test.queue, buffer, CL_TRUE, 0, 4, host, 1, &other_event, NULL),
                CL_INVALID_CONTEXT);
    CHECK_ERROR(clEnqueueMarkerWithWaitList(test.queue, 1, &other_event, NULL), CL_INVALID_CONTEXT);
    CHECK_ERROR(clEnqueueBarrierWithWaitList(test.queue, 1, &other_event, NULL), CL_INVALID_CONTEXT);
    CHECK_NO_HANDLE(clEnqueueMapBuffer(test.queue, other_buffer, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &error),
                    CL_INVALID_CONTEXT);
    cl_event both[2] = {event, other_event};
    CHECK_ERROR(clWaitForEvents(2, both), CL_INVALID_CONTEXT);
    cl_int n = 1;
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof n, &n));
    CHECK_ERROR(clEnqueueNDRangeKernel(other_queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL), CL_INVALID_CONTEXT);
}

static void test_wait_lists(void)
{
    dv_test_section("wait lists");
    cl_event none = NULL, made = (cl_event)&none;
    CHECK_ERROR(clEnqueueReadBuffer(test.queue, buffer, CL_TRUE, 0, 4, host, 1, NULL, NULL),
                CL_INVALID_EVENT_WAIT_LIST);
    CHECK_ERROR(clEnqueueReadBuffer(test.queue, buffer, CL_TRUE, 0, 4, host, 0, &event, NULL),
                CL_INVALID_EVENT_WAIT_LIST);
    CHECK_ERROR(clEnqueueReadBuffer(test.queue, buffer, CL_TRUE, 0, 4, host, 1, &none, &made),
                CL_INVALID_EVENT_WAIT_LIST);
    CHECK_ERROR(clEnqueueMarkerWithWaitList(test.queue, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    CHECK_ERROR(clEnqueueBarrierWithWaitList(test.queue, 0, &event, NULL), CL_INVALID_EVENT_WAIT_LIST);
    CHECK_ERROR(clEnqueueCopyBuffer(test.queue, buffer, buffer, 0, 512, 4, 1, &none, NULL), CL_INVALID_EVENT_WAIT_LIST);
    CHECK_NO_HANDLE(clEnqueueMapBuffer(test.queue, buffer, CL_TRUE, CL_MAP_READ, 0, 4, 1, NULL, NULL, &error),
                    CL_INVALID_EVENT_WAIT_LIST);
    CHECK_ERROR(clWaitForEvents(0, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clWaitForEvents(0, &event), CL_INVALID_VALUE);
    CHECK_ERROR(clWaitForEvents(1, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clWaitForEvents(1, &none), CL_INVALID_EVENT);
}

static void test_buffers(void)
{
    dv_test_section("buffers");
    CHECK_NO_HANDLE(clCreateBuffer(test.context, 0, 0, NULL, &error), CL_INVALID_BUFFER_SIZE);
    CHECK_NO_HANDLE(clCreateBuffer(test.context, CL_MEM_USE_HOST_PTR, SIZE, NULL, &error), CL_INVALID_HOST_PTR);
    CHECK_NO_HANDLE(clCreateBuffer(test.context, CL_MEM_COPY_HOST_PTR, SIZE, NULL, &error), CL_INVALID_HOST_PTR);
    CHECK_NO_HANDLE(clCreateBuffer(test.context, 0, SIZE, host, &error), CL_INVALID_HOST_PTR);
    static const cl_mem_flags wrong[] = {
        CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY,          CL_MEM_READ_WRITE | CL_MEM_READ_ONLY,
        CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY,         CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR,
        CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR,   CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY,
        CL_MEM_HOST_NO_ACCESS | CL_MEM_HOST_READ_ONLY, 1u << 30,
    };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        cl_int error;
        void *pointer = wrong[i] & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) ? host : NULL;
        cl_mem made = clCreateBuffer(test.context, wrong[i], SIZE, pointer, &error);
        bool refused = CHECK(!made);
        refused &= CHECK_ERROR(error, CL_INVALID_VALUE);
        if (!refused)
            dv_test_detail("flags 0x%llx", (unsigned long long)wrong[i]);
        if (made)
            CHECK_CL(clReleaseMemObject(made));
    }
    /* Access the host has denied itself. */
    cl_mem write_only = dv_test_buffer(&test, CL_MEM_HOST_WRITE_ONLY, SIZE, NULL);
    cl_mem read_only = dv_test_buffer(&test, CL_MEM_HOST_READ_ONLY, SIZE, NULL);
    cl_mem closed = dv_test_buffer(&test, CL_MEM_HOST_NO_ACCESS, SIZE, NULL);
    CHECK_ERROR(clEnqueueReadBuffer(test.queue, write_only, CL_TRUE, 0, 4, host, 0, NULL, NULL), CL_INVALID_OPERATION);
    CHECK_ERROR(clEnqueueReadBuffer(test.queue, closed, CL_TRUE, 0, 4, host, 0, NULL, NULL), CL_INVALID_OPERATION);
    CHECK_ERROR(clEnqueueWriteBuffer(test.queue, read_only, CL_TRUE, 0, 4, host, 0, NULL, NULL), CL_INVALID_OPERATION);
    CHECK_ERROR(clEnqueueWriteBuffer(test.queue, closed, CL_TRUE, 0, 4, host, 0, NULL, NULL), CL_INVALID_OPERATION);
    CHECK_CL(clEnqueueWriteBuffer(test.queue, write_only, CL_TRUE, 0, 4, host, 0, NULL, NULL));
    CHECK_CL(clEnqueueReadBuffer(test.queue, read_only, CL_TRUE, 0, 4, host, 0, NULL, NULL));
    CHECK_CL(clEnqueueCopyBuffer(test.queue, write_only, closed, 0, 0, SIZE, 0, NULL, NULL));
    CHECK_CL(clFinish(test.queue));
    CHECK_CL(clReleaseMemObject(write_only));
    CHECK_CL(clReleaseMemObject(read_only));
    CHECK_CL(clReleaseMemObject(closed));
    /* The default of the access flags. */
    cl_mem_flags flags = 99;
    cl_mem plain = dv_test_buffer(&test, 0, SIZE, NULL);
    CHECK_CL(clGetMemObjectInfo(plain, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
    CHECK(flags == CL_MEM_READ_WRITE || flags == 0);
    CHECK_CL(clReleaseMemObject(plain));
}

static void test_ranges(void)
{
    dv_test_section("ranges");
    static const struct {
        size_t offset, size;
    } wrong[] = {{0, SIZE + 1}, {SIZE, 1}, {1, SIZE}, {SIZE_MAX, 1}, {1, SIZE_MAX}, {SIZE + 1, 4}};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        size_t offset = wrong[i].offset, size = wrong[i].size;
        bool good = CHECK_ERROR(clEnqueueReadBuffer(test.queue, buffer, CL_TRUE, offset, size, host, 0, NULL, NULL),
                                CL_INVALID_VALUE);
        good &= CHECK_ERROR(clEnqueueWriteBuffer(test.queue, buffer, CL_TRUE, offset, size, host, 0, NULL, NULL),
                            CL_INVALID_VALUE);
        good &= CHECK_ERROR(clEnqueueFillBuffer(test.queue, buffer, host, 1, offset, size, 0, NULL, NULL),
                            CL_INVALID_VALUE);
        good &= CHECK_ERROR(clEnqueueCopyBuffer(test.queue, buffer, buffer, offset, 0, size, 0, NULL, NULL),
                            CL_INVALID_VALUE);
        good &= CHECK_ERROR(clEnqueueCopyBuffer(test.queue, buffer, buffer, 0, offset, size, 0, NULL, NULL),
                            CL_INVALID_VALUE);
        if (!good)
            dv_test_detail("offset %zu, size %zu", offset, size);
    }
    CHECK_ERROR(clEnqueueReadBuffer(test.queue, buffer, CL_TRUE, 0, 4, NULL, 0, NULL, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clEnqueueWriteBuffer(test.queue, buffer, CL_TRUE, 0, 4, NULL, 0, NULL, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clEnqueueCopyBuffer(test.queue, buffer, buffer, 0, 10, 20, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
    CHECK_CL(clEnqueueCopyBuffer(test.queue, buffer, buffer, 0, 20, 20, 0, NULL, NULL));
    /* Patterns. */
    CHECK_ERROR(clEnqueueFillBuffer(test.queue, buffer, NULL, 4, 0, 16, 0, NULL, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clEnqueueFillBuffer(test.queue, buffer, host, 0, 0, 16, 0, NULL, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clEnqueueFillBuffer(test.queue, buffer, host, 3, 0, 15, 0, NULL, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clEnqueueFillBuffer(test.queue, buffer, host, 256, 0, 256, 0, NULL, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clEnqueueFillBuffer(test.queue, buffer, host, 4, 2, 16, 0, NULL, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clEnqueueFillBuffer(test.queue, buffer, host, 4, 0, 15, 0, NULL, NULL), CL_INVALID_VALUE);
}

/* Transfers of nothing: an error before OpenCL 2.1, allowed since; in no case a hang or a crash. */
static void test_nothing(void)
{
    dv_test_section("empty transfers");
    cl_event done = NULL;
    cl_int error = clEnqueueReadBuffer(test.queue, buffer, CL_TRUE, 0, 0, host, 0, NULL, &done);
    CHECK(error == CL_SUCCESS || error == CL_INVALID_VALUE);
    if (done) {
        CHECK_CL(clWaitForEvents(1, &done));
        CHECK_CL(clReleaseEvent(done));
    }
    error = clEnqueueWriteBuffer(test.queue, buffer, CL_TRUE, 0, 0, host, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS || error == CL_INVALID_VALUE);
    error = clEnqueueCopyBuffer(test.queue, buffer, buffer, 0, 512, 0, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS || error == CL_INVALID_VALUE);
    error = clEnqueueFillBuffer(test.queue, buffer, host, 4, 0, 0, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS || error == CL_INVALID_VALUE);
    CHECK_CL(clFinish(test.queue));
}

static void test_kernel_arguments(void)
{
    dv_test_section("kernel arguments");
    cl_int n = 1;
    CHECK_ERROR(clSetKernelArg(kernel, 2, sizeof n, &n), CL_INVALID_ARG_INDEX);
    CHECK_ERROR(clSetKernelArg(kernel, 1, 8, host), CL_INVALID_ARG_SIZE);
    CHECK_ERROR(clSetKernelArg(kernel, 1, 0, &n), CL_INVALID_ARG_SIZE);
    CHECK_ERROR(clSetKernelArg(kernel, 1, sizeof n, NULL), CL_INVALID_ARG_VALUE);
    CHECK_ERROR(clSetKernelArg(kernel, 0, 3, host), CL_INVALID_ARG_SIZE);
    /* The errors changed nothing. */
    size_t one = 1;
    cl_int back = 0;
    n = 4321;
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof n, &n));
    CHECK_ERROR(clSetKernelArg(kernel, 1, 8, host), CL_INVALID_ARG_SIZE);
    CHECK_CL(clEnqueueNDRangeKernel(test.queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    CHECK_CL(clEnqueueReadBuffer(test.queue, buffer, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    CHECK(back == 4321);
}

/* No event is made by a call that fails, and no error code is needed. */
static void test_outputs(void)
{
    dv_test_section("outputs");
    cl_mem made = clCreateBuffer(test.context, 0, SIZE, NULL, NULL);
    CHECK(made != NULL);
    CHECK_CL(clReleaseMemObject(made));
    CHECK(clCreateBuffer(test.context, 0, 0, NULL, NULL) == NULL);
    CHECK(clCreateKernel(program, "no such kernel", NULL) == NULL);
    CHECK(clCreateUserEvent(NULL, NULL) == NULL);
    CHECK(clEnqueueMapBuffer(test.queue, buffer, CL_TRUE, CL_MAP_READ, 0, 0, 0, NULL, NULL, NULL) == NULL);
    cl_kernel another = clCreateKernel(program, "take", NULL);
    CHECK(another != NULL);
    CHECK_CL(clReleaseKernel(another));
    cl_event marker = clCreateUserEvent(test.context, NULL);
    CHECK(marker != NULL);
    CHECK_CL(clSetUserEventStatus(marker, CL_COMPLETE));
    CHECK_CL(clReleaseEvent(marker));
    CHECK_ERROR(clGetPlatformIDs(0, NULL, NULL), CL_INVALID_VALUE);
    cl_platform_id platforms[2];
    CHECK_ERROR(clGetPlatformIDs(0, platforms, NULL), CL_INVALID_VALUE);
    cl_uint count = 0;
    CHECK_CL(clGetPlatformIDs(0, NULL, &count));
    CHECK(count >= 1);
    CHECK_ERROR(clEnqueueMigrateMemObjects(test.queue, 0, NULL, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clEnqueueMigrateMemObjects(test.queue, 1, &buffer, 1u << 20, 0, NULL, NULL), CL_INVALID_VALUE);
}

/* Reference counts: what is released once too few still works, and use of a handle while others
 * hold the object is legal. */
static void test_references(void)
{
    dv_test_section("references");
    cl_mem counted = dv_test_buffer(&test, 0, SIZE, NULL);
    cl_uint count = 0;
    for (cl_uint i = 1; i < 10; i++) {
        CHECK_CL(clGetMemObjectInfo(counted, CL_MEM_REFERENCE_COUNT, sizeof count, &count, NULL));
        CHECK(count == i);
        CHECK_CL(clRetainMemObject(counted));
    }
    for (int i = 0; i < 9; i++)
        CHECK_CL(clReleaseMemObject(counted));
    cl_uint word = 0x12345678, back = 0;
    CHECK_CL(clEnqueueWriteBuffer(test.queue, counted, CL_TRUE, 0, 4, &word, 0, NULL, NULL));
    CHECK_CL(clEnqueueReadBuffer(test.queue, counted, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    CHECK(back == word);
    CHECK_CL(clReleaseMemObject(counted));

    /* The application's only reference goes while commands still use everything. */
    cl_int error;
    cl_command_queue queue = clCreateCommandQueue(test.context, test.device, 0, &error);
    REQUIRE_CL(error);
    cl_mem passing = dv_test_buffer(&test, 0, SIZE, NULL);
    cl_event done;
    static unsigned char out[SIZE];
    unsigned char pattern = 0x6b;
    CHECK_CL(clEnqueueFillBuffer(queue, passing, &pattern, 1, 0, SIZE, 0, NULL, NULL));
    CHECK_CL(clEnqueueReadBuffer(queue, passing, CL_FALSE, 0, SIZE, out, 0, NULL, &done));
    CHECK_CL(clReleaseMemObject(passing));
    CHECK_CL(clReleaseCommandQueue(queue));
    CHECK_CL(clWaitForEvents(1, &done));
    CHECK(out[0] == 0x6b && out[SIZE - 1] == 0x6b);
    CHECK_CL(clReleaseEvent(done));
}

/* After all that, everything still works. */
static void test_still_good(void)
{
    dv_test_section("afterwards");
    size_t one = 1;
    cl_int n = 77, back = 0;
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof n, &n));
    CHECK_CL(clEnqueueNDRangeKernel(test.queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    CHECK_CL(clEnqueueReadBuffer(test.queue, buffer, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    CHECK(back == 77);
}

int main(void)
{
    set_up();
    test_null_handles();
    test_wrong_kinds();
    test_image_or_buffer();
    test_other_context();
    test_wait_lists();
    test_buffers();
    test_ranges();
    test_nothing();
    test_kernel_arguments();
    test_outputs();
    test_references();
    test_still_good();
    CHECK_CL(clReleaseSampler(sampler));
    CHECK_CL(clReleaseEvent(event));
    CHECK_CL(clReleaseEvent(other_event));
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseProgram(program));
    CHECK_CL(clReleaseMemObject(buffer));
    CHECK_CL(clReleaseMemObject(other_buffer));
    CHECK_CL(clReleaseMemObject(image));
    CHECK_CL(clReleaseCommandQueue(other_queue));
    CHECK_CL(clReleaseContext(other_context));
    dv_test_teardown(&test);
    return dv_test_result("errors");
}
