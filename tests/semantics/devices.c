/* Devices and contexts: sub-devices made equally and by counts, contexts and queues on them, what a
 * context says about itself, extension functions. */
#include "check.h"

static const char *const source =
    "kernel void count(global uint *data) { data[get_global_id(0)] += get_global_id(0); }\n";

static cl_uint device_uint(cl_device_id device, cl_device_info name)
{
    cl_uint value = 0;
    CHECK_CL(clGetDeviceInfo(device, name, sizeof value, &value, NULL));
    return value;
}

/* A whole small computation on one device, in a context of its own. */
static void work_on(const struct dv_test *test, cl_device_id device)
{
    cl_int error;
    struct dv_test own = *test;
    own.device = device;
    own.context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    REQUIRE_CL(error);
    own.queue = clCreateCommandQueue(own.context, device, 0, &error);
    REQUIRE_CL(error);
    cl_program program = dv_test_build(&own, source, "");
    cl_kernel kernel = dv_test_kernel(program, "count");
    cl_uint words[256] = {0};
    cl_mem buffer = dv_test_buffer(&own, CL_MEM_COPY_HOST_PTR, sizeof words, words);
    size_t global = 256, local = 16;
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    for (int i = 0; i < 3; i++)
        CHECK_CL(clEnqueueNDRangeKernel(own.queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    CHECK_CL(clEnqueueReadBuffer(own.queue, buffer, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
    for (cl_uint i = 0; i < 256; i++)
        CHECK(words[i] == 3 * i);
    cl_device_id of_queue = NULL;
    CHECK_CL(clGetCommandQueueInfo(own.queue, CL_QUEUE_DEVICE, sizeof of_queue, &of_queue, NULL));
    CHECK(of_queue == device);
    CHECK_CL(clReleaseMemObject(buffer));
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseProgram(program));
    CHECK_CL(clReleaseCommandQueue(own.queue));
    CHECK_CL(clReleaseContext(own.context));
}

static void check_sub_device(const struct dv_test *test, cl_device_id sub, cl_uint units)
{
    cl_device_id parent = NULL;
    CHECK(device_uint(sub, CL_DEVICE_MAX_COMPUTE_UNITS) == units);
    CHECK_CL(clGetDeviceInfo(sub, CL_DEVICE_PARENT_DEVICE, sizeof parent, &parent, NULL));
    CHECK(parent == test->device);
    CHECK(device_uint(sub, CL_DEVICE_REFERENCE_COUNT) == 1);
    CHECK_CL(clRetainDevice(sub));
    CHECK_VENDOR(device_uint(sub, CL_DEVICE_REFERENCE_COUNT) == 2, "4.3: the reference count of a sub-device");
    CHECK_CL(clReleaseDevice(sub));
    cl_device_type type = 0, parent_type = 0;
    CHECK_CL(clGetDeviceInfo(sub, CL_DEVICE_TYPE, sizeof type, &type, NULL));
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_TYPE, sizeof parent_type, &parent_type, NULL));
    CHECK(type == parent_type);
    char name[256] = "", parent_name[256] = "";
    CHECK_CL(clGetDeviceInfo(sub, CL_DEVICE_NAME, sizeof name, name, NULL));
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_NAME, sizeof parent_name, parent_name, NULL));
    CHECK(strcmp(name, parent_name) == 0);
    cl_platform_id platform = NULL;
    CHECK_CL(clGetDeviceInfo(sub, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL));
    CHECK(platform == test->platform);
}

/* PoCL 3.1 looks at the device of an event shortly after it has reported the event complete; a
 * sub-device released in that moment is gone under its threads. */
static void let_vendor_rest(void)
{
    dv_test_sleep_ms(50);
}

static void test_partition(const struct dv_test *test)
{
    dv_test_section("sub-devices");
    cl_device_partition_property properties[8] = {0};
    size_t size = 0;
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_PARTITION_PROPERTIES, sizeof properties, properties, &size));
    bool equally = false, by_counts = false;
    for (size_t i = 0; i < size / sizeof properties[0]; i++) {
        equally |= properties[i] == CL_DEVICE_PARTITION_EQUALLY;
        by_counts |= properties[i] == CL_DEVICE_PARTITION_BY_COUNTS;
    }
    cl_uint units = device_uint(test->device, CL_DEVICE_MAX_COMPUTE_UNITS);
    cl_device_id parent = (cl_device_id)1;
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_PARENT_DEVICE, sizeof parent, &parent, NULL));
    CHECK(parent == NULL);
    cl_device_id subs[64] = {0};
    cl_uint count = 0;
    if (equally && units >= 2 && units <= 64) {
        cl_device_partition_property request[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
        CHECK_CL(clCreateSubDevices(test->device, request, 0, NULL, &count));
        CHECK(count == units);
        CHECK_ERROR(clCreateSubDevices(test->device, request, 1, subs, NULL), CL_INVALID_VALUE);
        CHECK_CL(clCreateSubDevices(test->device, request, 64, subs, &count));
        CHECK(count == units);
        for (cl_uint i = 0; i < count; i++) {
            check_sub_device(test, subs[i], 1);
            for (cl_uint j = 0; j < i; j++)
                CHECK(subs[i] != subs[j]);
        }
        work_on(test, subs[0]);
        work_on(test, subs[count - 1]);

        /* One context on several sub-devices; a buffer is the same for all of them. */
        cl_int error;
        cl_context context = clCreateContext(NULL, 2, subs, NULL, NULL, &error);
        CHECK_CL(error);
        cl_command_queue a = clCreateCommandQueue(context, subs[0], 0, &error);
        CHECK_CL(error);
        cl_command_queue b = clCreateCommandQueue(context, subs[1], 0, &error);
        CHECK_CL(error);
        cl_uint value = 0, back = 0;
        cl_mem buffer = clCreateBuffer(context, 0, 4, NULL, &error);
        CHECK_CL(error);
        for (int i = 0; i < 10; i++) {
            value = (cl_uint)i * 7;
            CHECK_CL(clEnqueueWriteBuffer(a, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
            CHECK_CL(clEnqueueReadBuffer(b, buffer, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
            CHECK(back == value);
        }
        const char *text = source;
        cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
        CHECK_CL(error);
        CHECK_CL(clBuildProgram(program, 0, NULL, "", NULL, NULL));
        cl_uint devices = 0;
        CHECK_CL(clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof devices, &devices, NULL));
        CHECK_VENDOR(devices == 2, "5.8.7: the devices of the context, sub-devices included");
        cl_kernel kernel = dv_test_kernel(program, "count");
        size_t global = 256, local = 16;
        cl_uint words[256] = {0};
        cl_mem shared = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof words, words, &error);
        CHECK_CL(error);
        CHECK_CL(clSetKernelArg(kernel, 0, sizeof shared, &shared));
        cl_event first;
        CHECK_CL(clEnqueueNDRangeKernel(a, kernel, 1, NULL, &global, &local, 0, NULL, &first));
        CHECK_CL(clFlush(a));
        CHECK_CL(clEnqueueNDRangeKernel(b, kernel, 1, NULL, &global, &local, 1, &first, NULL));
        CHECK_CL(clEnqueueReadBuffer(b, shared, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
        for (cl_uint i = 0; i < 256; i++)
            CHECK(words[i] == 2 * i);
        CHECK_CL(clReleaseEvent(first));
        CHECK_CL(clReleaseKernel(kernel));
        CHECK_CL(clReleaseProgram(program));
        CHECK_CL(clReleaseMemObject(buffer));
        CHECK_CL(clReleaseMemObject(shared));
        /* A queue on a device that is not in the context. */
        cl_command_queue wrong = clCreateCommandQueue(test->context, subs[0], 0, &error);
        CHECK_VENDOR(!wrong && error == CL_INVALID_DEVICE,
                     "5.1: a sub-device that was not given when the context was made");
        if (wrong)
            CHECK_CL(clReleaseCommandQueue(wrong));
        CHECK_CL(clReleaseCommandQueue(a));
        CHECK_CL(clReleaseCommandQueue(b));
        CHECK_CL(clReleaseContext(context));
        let_vendor_rest();
        for (cl_uint i = 0; i < count; i++)
            CHECK_CL(clReleaseDevice(subs[i]));
        cl_device_partition_property too_big[] = {CL_DEVICE_PARTITION_EQUALLY, (cl_device_partition_property)units + 1,
                                                  0};
        CHECK(clCreateSubDevices(test->device, too_big, 64, subs, &count) != CL_SUCCESS);
    } else {
        dv_test_skip("not partitionable equally");
    }
    if (by_counts && units >= 2 && units <= 64) {
        cl_device_partition_property request[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1,
                                                  (cl_device_partition_property)units - 1,
                                                  CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
        CHECK_CL(clCreateSubDevices(test->device, request, 64, subs, &count));
        CHECK(count == 2);
        check_sub_device(test, subs[0], 1);
        check_sub_device(test, subs[1], units - 1);
        work_on(test, subs[1]);
        size_t type_size = 0;
        cl_device_partition_property type[8] = {0};
        CHECK_CL(clGetDeviceInfo(subs[0], CL_DEVICE_PARTITION_TYPE, sizeof type, type, &type_size));
        CHECK_VENDOR(type_size >= 4 * sizeof type[0] && type[0] == CL_DEVICE_PARTITION_BY_COUNTS && type[1] == 1,
                     "4.2: CL_DEVICE_PARTITION_TYPE returns the properties of clCreateSubDevices");
        let_vendor_rest();
        CHECK_CL(clReleaseDevice(subs[0]));
        CHECK_CL(clReleaseDevice(subs[1]));
        cl_device_partition_property too_many[] = {CL_DEVICE_PARTITION_BY_COUNTS, (cl_device_partition_property)units,
                                                   (cl_device_partition_property)units,
                                                   CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
        CHECK_ERROR(clCreateSubDevices(test->device, too_many, 64, subs, &count), CL_INVALID_DEVICE_PARTITION_COUNT);
    } else {
        dv_test_skip("not partitionable by counts");
    }
    cl_device_partition_property unknown[] = {0x7777, 1, 0};
    CHECK_ERROR(clCreateSubDevices(test->device, unknown, 64, subs, &count), CL_INVALID_VALUE);
    CHECK_ERROR(clCreateSubDevices(test->device, NULL, 64, subs, &count), CL_INVALID_VALUE);
    /* A root device takes retain and release as no more than a check. */
    CHECK_CL(clRetainDevice(test->device));
    CHECK_CL(clReleaseDevice(test->device));
    CHECK_CL(clReleaseDevice(test->device));
    CHECK(device_uint(test->device, CL_DEVICE_REFERENCE_COUNT) == 1);
}

static void test_contexts(const struct dv_test *test)
{
    dv_test_section("contexts");
    cl_int error;
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)test->platform, 0};
    cl_context context = clCreateContextFromType(properties, CL_DEVICE_TYPE_ALL, NULL, NULL, &error);
    CHECK_CL(error);
    REQUIRE(context);
    cl_uint count = 0;
    cl_device_id devices[16] = {0};
    size_t size = 0;
    CHECK_CL(clGetContextInfo(context, CL_CONTEXT_NUM_DEVICES, sizeof count, &count, NULL));
    CHECK_CL(clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof devices, devices, &size));
    CHECK(size == count * sizeof devices[0]);
    CHECK(devices[0] == test->device);
    cl_context_properties back[8] = {0};
    CHECK_CL(clGetContextInfo(context, CL_CONTEXT_PROPERTIES, sizeof back, back, &size));
    CHECK(size == sizeof properties && memcmp(back, properties, size) == 0);
    CHECK_CL(clReleaseContext(context));

    context = clCreateContext(NULL, 1, &test->device, NULL, NULL, &error);
    CHECK_CL(error);
    CHECK_CL(clGetContextInfo(context, CL_CONTEXT_PROPERTIES, sizeof back, back, &size));
    CHECK(size == 0);
    CHECK_CL(clReleaseContext(context));

    cl_context_properties unknown[] = {0x12345, 0, 0};
    CHECK(!clCreateContext(unknown, 1, &test->device, NULL, NULL, &error));
    CHECK_ERROR(error, CL_INVALID_PROPERTY);
    cl_context_properties twice[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)test->platform, CL_CONTEXT_PLATFORM,
                                     (cl_context_properties)test->platform, 0};
    context = clCreateContext(twice, 1, &test->device, NULL, NULL, &error);
    CHECK_VENDOR(!context && error == CL_INVALID_PROPERTY, "4.4: the same property twice");
    if (context)
        CHECK_CL(clReleaseContext(context));
    CHECK(!clCreateContext(NULL, 0, &test->device, NULL, NULL, &error));
    CHECK_ERROR(error, CL_INVALID_VALUE);
    CHECK(!clCreateContext(NULL, 1, NULL, NULL, NULL, &error));
    CHECK_ERROR(error, CL_INVALID_VALUE);
    context = clCreateContextFromType(properties, CL_DEVICE_TYPE_CUSTOM, NULL, NULL, &error);
    CHECK_ERROR(error, CL_DEVICE_NOT_FOUND);
    CHECK_EXCEPT_POCL(!context, "4.4: NULL together with an error");

    CHECK_ERROR(clGetDeviceIDs(test->platform, CL_DEVICE_TYPE_CUSTOM, 0, NULL, &count), CL_DEVICE_NOT_FOUND);
    CHECK_VENDOR(clGetDeviceIDs(test->platform, 0x40000000, 0, NULL, &count) == CL_INVALID_DEVICE_TYPE,
                 "4.2: a device type that is not valid");
    CHECK_ERROR(clGetDeviceIDs(test->platform, CL_DEVICE_TYPE_ALL, 0, devices, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clGetDeviceIDs(test->platform, CL_DEVICE_TYPE_ALL, 0, NULL, NULL), CL_INVALID_VALUE);
    CHECK_CL(clGetDeviceIDs(test->platform, CL_DEVICE_TYPE_DEFAULT, 1, devices, &count));
    CHECK(count == 1);

    /* Many contexts, each independent. */
    cl_context many[40];
    for (size_t i = 0; i < COUNT_OF(many); i++) {
        many[i] = clCreateContext(NULL, 1, &test->device, NULL, NULL, &error);
        CHECK_CL(error);
    }
    for (size_t i = 0; i < COUNT_OF(many); i++)
        CHECK_CL(clReleaseContext(many[i]));
}

static void test_queues(const struct dv_test *test)
{
    dv_test_section("queues");
    cl_int error;
    cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES,
                                        CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE, 0};
    cl_command_queue queue = clCreateCommandQueueWithProperties(test->context, test->device, properties, &error);
    CHECK_CL(error);
    REQUIRE(queue);
    cl_command_queue_properties bits = 0;
    cl_context context = NULL;
    cl_uint count = 0;
    cl_device_id device = NULL;
    CHECK_CL(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof bits, &bits, NULL));
    CHECK(bits == properties[1]);
    CHECK_CL(clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL));
    CHECK(context == test->context);
    CHECK_CL(clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL));
    CHECK(device == test->device);
    CHECK_CL(clRetainCommandQueue(queue));
    CHECK_CL(clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof count, &count, NULL));
    CHECK(count == 2);
    CHECK_CL(clReleaseCommandQueue(queue));
    CHECK_CL(clReleaseCommandQueue(queue));
    queue = clCreateCommandQueueWithProperties(test->context, test->device, NULL, &error);
    CHECK_CL(error);
    CHECK_CL(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof bits, &bits, NULL));
    CHECK(bits == 0);
    CHECK_CL(clReleaseCommandQueue(queue));
    CHECK(!clCreateCommandQueue(test->context, test->device, 1u << 20, &error));
    CHECK(error == CL_INVALID_VALUE || error == CL_INVALID_QUEUE_PROPERTIES);
    cl_queue_properties unknown[] = {0x5555, 1, 0};
    CHECK(!clCreateCommandQueueWithProperties(test->context, test->device, unknown, &error));
    CHECK(error == CL_INVALID_VALUE || error == CL_INVALID_QUEUE_PROPERTIES);

    /* Many queues at once. */
    cl_command_queue many[100];
    for (size_t i = 0; i < COUNT_OF(many); i++) {
        many[i] = clCreateCommandQueue(test->context, test->device, 0, &error);
        REQUIRE_CL(error);
        CHECK_CL(clEnqueueMarkerWithWaitList(many[i], 0, NULL, NULL));
    }
    for (size_t i = 0; i < COUNT_OF(many); i++) {
        CHECK_CL(clFinish(many[i]));
        CHECK_CL(clReleaseCommandQueue(many[i]));
    }
}

static void test_extension_functions(const struct dv_test *test)
{
    dv_test_section("extension functions");
    CHECK(!clGetExtensionFunctionAddressForPlatform(test->platform, "clNoSuchFunctionKHR"));
    CHECK(!clGetExtensionFunctionAddress("clNoSuchFunctionKHR"));
    size_t size = 0;
    CHECK_CL(clGetPlatformInfo(test->platform, CL_PLATFORM_EXTENSIONS, 0, NULL, &size));
    char *extensions = calloc(1, size + 1);
    REQUIRE(extensions);
    CHECK_CL(clGetPlatformInfo(test->platform, CL_PLATFORM_EXTENSIONS, size, extensions, NULL));
    CHECK(strstr(extensions, "cl_khr_icd") != NULL);
    /* Announced extensions can be used. */
    typedef cl_int(CL_API_CALL * icd_get)(cl_uint, cl_platform_id *, cl_uint *);
    icd_get get = (icd_get)clGetExtensionFunctionAddressForPlatform(test->platform, "clIcdGetPlatformIDsKHR");
    cl_uint count = 0;
    if (CHECK(get != NULL)) {
        CHECK_CL(get(0, NULL, &count));
        CHECK(count >= 1);
    }
    free(extensions);
    size = 0;
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_EXTENSIONS, 0, NULL, &size));
    extensions = calloc(1, size + 1);
    REQUIRE(extensions);
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_EXTENSIONS, size, extensions, NULL));
    if (strstr(extensions, "cl_khr_command_buffer"))
        CHECK(clGetExtensionFunctionAddressForPlatform(test->platform, "clCreateCommandBufferKHR") != NULL);
    if (strstr(extensions, "cl_ext_device_fission"))
        CHECK(clGetExtensionFunctionAddressForPlatform(test->platform, "clCreateSubDevicesEXT") != NULL);
    free(extensions);
}

int main(void)
{
    struct dv_test test = dv_test_setup();
    test_partition(&test);
    test_contexts(&test);
    test_queues(&test);
    test_extension_functions(&test);
    dv_test_teardown(&test);
    return dv_test_result("devices");
}
