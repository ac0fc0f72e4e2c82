/* Queries: every parameter of every clGet*Info can be asked for its size alone, answers with
 * exactly that size, refuses a value that is too small, and writes not one byte more. */
#include "check.h"

typedef cl_int (*query)(const void *object, const void *other, cl_uint name, size_t size, void *value,
                        size_t *size_ret);

/* The ways to ask, brought to one form. */
#define QUERY(function, type)                                                                                          \
    static cl_int query_##function(const void *object, const void *other, cl_uint name, size_t size, void *value,      \
                                   size_t *size_ret)                                                                   \
    {                                                                                                                  \
        (void)other;                                                                                                   \
        return function((type)(uintptr_t)object, name, size, value, size_ret);                                         \
    }
QUERY(clGetPlatformInfo, cl_platform_id)
QUERY(clGetDeviceInfo, cl_device_id)
QUERY(clGetContextInfo, cl_context)
QUERY(clGetCommandQueueInfo, cl_command_queue)
QUERY(clGetMemObjectInfo, cl_mem)
QUERY(clGetImageInfo, cl_mem)
QUERY(clGetSamplerInfo, cl_sampler)
QUERY(clGetProgramInfo, cl_program)
QUERY(clGetKernelInfo, cl_kernel)
QUERY(clGetEventInfo, cl_event)
QUERY(clGetEventProfilingInfo, cl_event)

static cl_int query_build(const void *object, const void *other, cl_uint name, size_t size, void *value,
                          size_t *size_ret)
{
    return clGetProgramBuildInfo((cl_program)(uintptr_t)object, (cl_device_id)(uintptr_t)other, name, size, value,
                                 size_ret);
}

static cl_int query_work_group(const void *object, const void *other, cl_uint name, size_t size, void *value,
                               size_t *size_ret)
{
    return clGetKernelWorkGroupInfo((cl_kernel)(uintptr_t)object, (cl_device_id)(uintptr_t)other, name, size, value,
                                    size_ret);
}

static cl_int query_argument(const void *object, const void *other, cl_uint name, size_t size, void *value,
                             size_t *size_ret)
{
    (void)other;
    return clGetKernelArgInfo((cl_kernel)(uintptr_t)object, 0, name, size, value, size_ret);
}

/* What is known of a parameter; a size of zero means that it varies (strings and lists). */
struct parameter {
    cl_uint name;
    size_t size;
    const char *text;
};

#define P(name, type)                                                                                                  \
    {                                                                                                                  \
        name, sizeof(type), #name                                                                                      \
    }
#define VARIES(name)                                                                                                   \
    {                                                                                                                  \
        name, 0, #name                                                                                                 \
    }

static void check_query(query ask, const void *object, const void *other, const char *function,
                        const struct parameter *parameter)
{
    size_t size = SIZE_MAX;
    cl_int error = ask(object, other, parameter->name, 0, NULL, &size);
    if (!CHECK_CL(error) || !CHECK(size != SIZE_MAX)) {
        dv_test_detail("%s(%s): size only", function, parameter->text);
        return;
    }
    if (parameter->size && !CHECK(size == parameter->size))
        dv_test_detail("%s(%s) has %zu bytes, expected %zu", function, parameter->text, size, parameter->size);
    if (parameter->name == CL_PROGRAM_BINARIES)
        return; /* its value is a list of pointers that the caller fills in */
    enum { GUARD = 16 };
    unsigned char *value = malloc(size + GUARD);
    REQUIRE(value);
    memset(value, 0xc7, size + GUARD);
    size_t again = SIZE_MAX;
    error = ask(object, other, parameter->name, size, value, &again);
    bool same = CHECK_CL(error);
    same &= CHECK(again == size);
    if (!same)
        dv_test_detail("%s(%s): exact size %zu, then %zu", function, parameter->text, size, again);
    for (size_t i = 0; i < GUARD; i++)
        if (!CHECK(value[size + i] == 0xc7)) {
            dv_test_detail("%s(%s) wrote beyond its size", function, parameter->text);
            break;
        }
    /* More room than needed, and no interest in the size. */
    memset(value, 0xc7, size + GUARD);
    CHECK_CL(ask(object, other, parameter->name, size + GUARD, value, NULL));
    if (size > 0) {
        error = ask(object, other, parameter->name, size - 1, value, NULL);
        if (!CHECK_ERROR(error, CL_INVALID_VALUE))
            dv_test_detail("%s(%s) with one byte too few", function, parameter->text);
    }
    free(value);
}

static void check_queries(query ask, const void *object, const void *other, const char *function,
                          const struct parameter *parameters, size_t count)
{
    dv_test_section(function);
    for (size_t i = 0; i < count; i++)
        check_query(ask, object, other, function, &parameters[i]);
    unsigned char value[64];
    size_t size;
    CHECK_ERROR(ask(object, other, 0x7fff1234, sizeof value, value, &size), CL_INVALID_VALUE);
    CHECK_ERROR(ask(object, other, 0, sizeof value, value, &size), CL_INVALID_VALUE);
}

static const struct parameter platform_parameters[] = {
    VARIES(CL_PLATFORM_PROFILE),
    VARIES(CL_PLATFORM_VERSION),
    VARIES(CL_PLATFORM_NAME),
    VARIES(CL_PLATFORM_VENDOR),
    VARIES(CL_PLATFORM_EXTENSIONS),
    P(CL_PLATFORM_HOST_TIMER_RESOLUTION, cl_ulong),
    P(CL_PLATFORM_NUMERIC_VERSION, cl_version),
    VARIES(CL_PLATFORM_EXTENSIONS_WITH_VERSION),
};

static const struct parameter device_parameters[] = {
    P(CL_DEVICE_TYPE, cl_device_type),
    P(CL_DEVICE_VENDOR_ID, cl_uint),
    P(CL_DEVICE_MAX_COMPUTE_UNITS, cl_uint),
    P(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, cl_uint),
    VARIES(CL_DEVICE_MAX_WORK_ITEM_SIZES),
    P(CL_DEVICE_MAX_WORK_GROUP_SIZE, size_t),
    P(CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR, cl_uint),
    P(CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT, cl_uint),
    P(CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT, cl_uint),
    P(CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG, cl_uint),
    P(CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, cl_uint),
    P(CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE, cl_uint),
    P(CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF, cl_uint),
    P(CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR, cl_uint),
    P(CL_DEVICE_NATIVE_VECTOR_WIDTH_INT, cl_uint),
    P(CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, cl_uint),
    P(CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE, cl_uint),
    P(CL_DEVICE_MAX_CLOCK_FREQUENCY, cl_uint),
    P(CL_DEVICE_ADDRESS_BITS, cl_uint),
    P(CL_DEVICE_MAX_MEM_ALLOC_SIZE, cl_ulong),
    P(CL_DEVICE_IMAGE_SUPPORT, cl_bool),
    P(CL_DEVICE_MAX_READ_IMAGE_ARGS, cl_uint),
    P(CL_DEVICE_MAX_WRITE_IMAGE_ARGS, cl_uint),
    P(CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS, cl_uint),
    VARIES(CL_DEVICE_IL_VERSION),
    P(CL_DEVICE_IMAGE2D_MAX_WIDTH, size_t),
    P(CL_DEVICE_IMAGE2D_MAX_HEIGHT, size_t),
    P(CL_DEVICE_IMAGE3D_MAX_WIDTH, size_t),
    P(CL_DEVICE_IMAGE3D_MAX_HEIGHT, size_t),
    P(CL_DEVICE_IMAGE3D_MAX_DEPTH, size_t),
    P(CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, size_t),
    P(CL_DEVICE_IMAGE_MAX_ARRAY_SIZE, size_t),
    P(CL_DEVICE_MAX_SAMPLERS, cl_uint),
    P(CL_DEVICE_IMAGE_PITCH_ALIGNMENT, cl_uint),
    P(CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT, cl_uint),
    P(CL_DEVICE_MAX_PIPE_ARGS, cl_uint),
    P(CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS, cl_uint),
    P(CL_DEVICE_PIPE_MAX_PACKET_SIZE, cl_uint),
    P(CL_DEVICE_MAX_PARAMETER_SIZE, size_t),
    P(CL_DEVICE_MEM_BASE_ADDR_ALIGN, cl_uint),
    P(CL_DEVICE_SINGLE_FP_CONFIG, cl_device_fp_config),
    P(CL_DEVICE_DOUBLE_FP_CONFIG, cl_device_fp_config),
    P(CL_DEVICE_GLOBAL_MEM_CACHE_TYPE, cl_device_mem_cache_type),
    P(CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE, cl_uint),
    P(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, cl_ulong),
    P(CL_DEVICE_GLOBAL_MEM_SIZE, cl_ulong),
    P(CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE, cl_ulong),
    P(CL_DEVICE_MAX_CONSTANT_ARGS, cl_uint),
    P(CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE, size_t),
    P(CL_DEVICE_GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE, size_t),
    P(CL_DEVICE_LOCAL_MEM_TYPE, cl_device_local_mem_type),
    P(CL_DEVICE_LOCAL_MEM_SIZE, cl_ulong),
    P(CL_DEVICE_ERROR_CORRECTION_SUPPORT, cl_bool),
    P(CL_DEVICE_HOST_UNIFIED_MEMORY, cl_bool),
    P(CL_DEVICE_PROFILING_TIMER_RESOLUTION, size_t),
    P(CL_DEVICE_ENDIAN_LITTLE, cl_bool),
    P(CL_DEVICE_AVAILABLE, cl_bool),
    P(CL_DEVICE_COMPILER_AVAILABLE, cl_bool),
    P(CL_DEVICE_LINKER_AVAILABLE, cl_bool),
    P(CL_DEVICE_EXECUTION_CAPABILITIES, cl_device_exec_capabilities),
    P(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, cl_command_queue_properties),
    P(CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES, cl_command_queue_properties),
    P(CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE, cl_uint),
    P(CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE, cl_uint),
    P(CL_DEVICE_MAX_ON_DEVICE_QUEUES, cl_uint),
    P(CL_DEVICE_MAX_ON_DEVICE_EVENTS, cl_uint),
    VARIES(CL_DEVICE_BUILT_IN_KERNELS),
    P(CL_DEVICE_PLATFORM, cl_platform_id),
    VARIES(CL_DEVICE_NAME),
    VARIES(CL_DEVICE_VENDOR),
    VARIES(CL_DRIVER_VERSION),
    VARIES(CL_DEVICE_PROFILE),
    VARIES(CL_DEVICE_VERSION),
    P(CL_DEVICE_NUMERIC_VERSION, cl_version),
    VARIES(CL_DEVICE_OPENCL_C_VERSION),
    VARIES(CL_DEVICE_OPENCL_C_ALL_VERSIONS),
    VARIES(CL_DEVICE_OPENCL_C_FEATURES),
    VARIES(CL_DEVICE_EXTENSIONS),
    VARIES(CL_DEVICE_EXTENSIONS_WITH_VERSION),
    VARIES(CL_DEVICE_ILS_WITH_VERSION),
    VARIES(CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION),
    P(CL_DEVICE_PRINTF_BUFFER_SIZE, size_t),
    P(CL_DEVICE_PREFERRED_INTEROP_USER_SYNC, cl_bool),
    P(CL_DEVICE_PARENT_DEVICE, cl_device_id),
    P(CL_DEVICE_PARTITION_MAX_SUB_DEVICES, cl_uint),
    VARIES(CL_DEVICE_PARTITION_PROPERTIES),
    P(CL_DEVICE_PARTITION_AFFINITY_DOMAIN, cl_device_affinity_domain),
    VARIES(CL_DEVICE_PARTITION_TYPE),
    P(CL_DEVICE_REFERENCE_COUNT, cl_uint),
    P(CL_DEVICE_SVM_CAPABILITIES, cl_device_svm_capabilities),
    P(CL_DEVICE_PREFERRED_PLATFORM_ATOMIC_ALIGNMENT, cl_uint),
    P(CL_DEVICE_PREFERRED_GLOBAL_ATOMIC_ALIGNMENT, cl_uint),
    P(CL_DEVICE_PREFERRED_LOCAL_ATOMIC_ALIGNMENT, cl_uint),
    P(CL_DEVICE_MAX_NUM_SUB_GROUPS, cl_uint),
    P(CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS, cl_bool),
    P(CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES, cl_device_atomic_capabilities),
    P(CL_DEVICE_ATOMIC_FENCE_CAPABILITIES, cl_device_atomic_capabilities),
    P(CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT, cl_bool),
    P(CL_DEVICE_WORK_GROUP_COLLECTIVE_FUNCTIONS_SUPPORT, cl_bool),
    P(CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT, cl_bool),
    /* A bit field of eight bytes by 4.2; PoCL 3.1 answers with four. */
    VARIES(CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES),
    P(CL_DEVICE_PIPE_SUPPORT, cl_bool),
    P(CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, size_t),
    VARIES(CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED),
};

static const struct parameter context_parameters[] = {
    P(CL_CONTEXT_REFERENCE_COUNT, cl_uint),
    P(CL_CONTEXT_NUM_DEVICES, cl_uint),
    P(CL_CONTEXT_DEVICES, cl_device_id),
    VARIES(CL_CONTEXT_PROPERTIES),
};

static const struct parameter queue_parameters[] = {
    P(CL_QUEUE_CONTEXT, cl_context),      P(CL_QUEUE_DEVICE, cl_device_id),
    P(CL_QUEUE_REFERENCE_COUNT, cl_uint), P(CL_QUEUE_PROPERTIES, cl_command_queue_properties),
    VARIES(CL_QUEUE_PROPERTIES_ARRAY),
};

static const struct parameter memory_parameters[] = {
    P(CL_MEM_TYPE, cl_mem_object_type),
    P(CL_MEM_FLAGS, cl_mem_flags),
    P(CL_MEM_SIZE, size_t),
    P(CL_MEM_HOST_PTR, void *),
    P(CL_MEM_MAP_COUNT, cl_uint),
    P(CL_MEM_REFERENCE_COUNT, cl_uint),
    P(CL_MEM_CONTEXT, cl_context),
    P(CL_MEM_ASSOCIATED_MEMOBJECT, cl_mem),
    P(CL_MEM_OFFSET, size_t),
    P(CL_MEM_USES_SVM_POINTER, cl_bool),
    VARIES(CL_MEM_PROPERTIES),
};

static const struct parameter image_parameters[] = {
    P(CL_IMAGE_FORMAT, cl_image_format), P(CL_IMAGE_ELEMENT_SIZE, size_t), P(CL_IMAGE_ROW_PITCH, size_t),
    P(CL_IMAGE_SLICE_PITCH, size_t),     P(CL_IMAGE_WIDTH, size_t),        P(CL_IMAGE_HEIGHT, size_t),
    P(CL_IMAGE_DEPTH, size_t),           P(CL_IMAGE_ARRAY_SIZE, size_t),   P(CL_IMAGE_BUFFER, cl_mem),
    P(CL_IMAGE_NUM_MIP_LEVELS, cl_uint), P(CL_IMAGE_NUM_SAMPLES, cl_uint),
};

static const struct parameter sampler_parameters[] = {
    P(CL_SAMPLER_REFERENCE_COUNT, cl_uint),    P(CL_SAMPLER_CONTEXT, cl_context),
    P(CL_SAMPLER_NORMALIZED_COORDS, cl_bool),  P(CL_SAMPLER_ADDRESSING_MODE, cl_addressing_mode),
    P(CL_SAMPLER_FILTER_MODE, cl_filter_mode), VARIES(CL_SAMPLER_PROPERTIES),
};

static const struct parameter program_parameters[] = {
    P(CL_PROGRAM_REFERENCE_COUNT, cl_uint),
    P(CL_PROGRAM_CONTEXT, cl_context),
    P(CL_PROGRAM_NUM_DEVICES, cl_uint),
    P(CL_PROGRAM_DEVICES, cl_device_id),
    VARIES(CL_PROGRAM_SOURCE),
    VARIES(CL_PROGRAM_IL),
    P(CL_PROGRAM_BINARY_SIZES, size_t),
    P(CL_PROGRAM_BINARIES, unsigned char *),
    P(CL_PROGRAM_NUM_KERNELS, size_t),
    VARIES(CL_PROGRAM_KERNEL_NAMES),
    P(CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT, cl_bool),
    P(CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT, cl_bool),
};

static const struct parameter build_parameters[] = {
    P(CL_PROGRAM_BUILD_STATUS, cl_build_status),
    VARIES(CL_PROGRAM_BUILD_OPTIONS),
    VARIES(CL_PROGRAM_BUILD_LOG),
    P(CL_PROGRAM_BINARY_TYPE, cl_program_binary_type),
    P(CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, size_t),
};

static const struct parameter kernel_parameters[] = {
    VARIES(CL_KERNEL_FUNCTION_NAME),  P(CL_KERNEL_NUM_ARGS, cl_uint),   P(CL_KERNEL_REFERENCE_COUNT, cl_uint),
    P(CL_KERNEL_CONTEXT, cl_context), P(CL_KERNEL_PROGRAM, cl_program), VARIES(CL_KERNEL_ATTRIBUTES),
};

static const struct parameter work_group_parameters[] = {
    P(CL_KERNEL_WORK_GROUP_SIZE, size_t),    P(CL_KERNEL_COMPILE_WORK_GROUP_SIZE, size_t[3]),
    P(CL_KERNEL_LOCAL_MEM_SIZE, cl_ulong),   P(CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, size_t),
    P(CL_KERNEL_PRIVATE_MEM_SIZE, cl_ulong),
};

static const struct parameter argument_parameters[] = {
    P(CL_KERNEL_ARG_ADDRESS_QUALIFIER, cl_kernel_arg_address_qualifier),
    P(CL_KERNEL_ARG_ACCESS_QUALIFIER, cl_kernel_arg_access_qualifier),
    VARIES(CL_KERNEL_ARG_TYPE_NAME),
    VARIES(CL_KERNEL_ARG_NAME),
    P(CL_KERNEL_ARG_TYPE_QUALIFIER, cl_kernel_arg_type_qualifier),
};

static const struct parameter event_parameters[] = {
    P(CL_EVENT_COMMAND_QUEUE, cl_command_queue), P(CL_EVENT_CONTEXT, cl_context),
    P(CL_EVENT_COMMAND_TYPE, cl_command_type),   P(CL_EVENT_COMMAND_EXECUTION_STATUS, cl_int),
    P(CL_EVENT_REFERENCE_COUNT, cl_uint),
};

static const struct parameter profiling_parameters[] = {
    P(CL_PROFILING_COMMAND_QUEUED, cl_ulong),   P(CL_PROFILING_COMMAND_SUBMIT, cl_ulong),
    P(CL_PROFILING_COMMAND_START, cl_ulong),    P(CL_PROFILING_COMMAND_END, cl_ulong),
    P(CL_PROFILING_COMMAND_COMPLETE, cl_ulong),
};

/* What is said twice agrees, and what bounds something bounds it. */
static void test_consistency(const struct dv_test *test)
{
    dv_test_section("consistency");
    cl_ulong memory = 0, allocation = 0;
    cl_uint dimensions = 0;
    size_t sizes[8] = {0}, group = 0;
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL));
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof allocation, &allocation, NULL));
    CHECK(allocation > 0 && allocation <= memory);
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, sizeof dimensions, &dimensions, NULL));
    CHECK(dimensions >= 3 && dimensions <= 8);
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, NULL));
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof group, &group, NULL));
    CHECK(sizes[0] >= 1 && sizes[1] >= 1 && sizes[2] >= 1 && group >= 1);
    cl_platform_id platform = NULL;
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL));
    CHECK(platform == test->platform);
    char version[256] = "";
    CHECK_CL(clGetPlatformInfo(test->platform, CL_PLATFORM_VERSION, sizeof version, version, NULL));
    CHECK(strncmp(version, "OpenCL ", 7) == 0);
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_VERSION, sizeof version, version, NULL));
    CHECK(strncmp(version, "OpenCL ", 7) == 0);

    /* An allocation over the limit is refused at once or by the first command. */
    cl_int error;
    cl_mem buffer = clCreateBuffer(test->context, 0, (size_t)allocation + 1, NULL, &error);
    CHECK(!buffer);
    CHECK_ERROR(error, CL_INVALID_BUFFER_SIZE);

    cl_device_svm_capabilities svm = 0;
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL));
    void *shared = clSVMAlloc(test->context, CL_MEM_READ_WRITE, 4096, 0);
    CHECK(svm ? shared != NULL : shared == NULL);
    if (shared)
        clSVMFree(test->context, shared);
    cl_device_exec_capabilities execution = 0;
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof execution, &execution, NULL));
    CHECK(execution & CL_EXEC_KERNEL);
    if (!(execution & CL_EXEC_NATIVE_KERNEL))
        CHECK_ERROR(clEnqueueNativeKernel(test->queue, (void(CL_CALLBACK *)(void *))free, NULL, 0, 0, NULL, NULL, 0,
                                          NULL, NULL),
                    CL_INVALID_OPERATION);
}

int main(void)
{
    struct dv_test test = dv_test_setup();
    cl_int error;
    cl_program program =
        dv_test_build(&test, "kernel void nothing(global int *first, int second) {}\n", "-cl-kernel-arg-info");
    cl_kernel kernel = dv_test_kernel(program, "nothing");
    cl_mem buffer = dv_test_buffer(&test, 0, 100, NULL);
    cl_sampler sampler = clCreateSampler(test.context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &error);
    REQUIRE_CL(error);
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
    cl_mem image = clCreateImage(test.context, 0, &format, &desc, NULL, &error);
    REQUIRE_CL(error);
    cl_event event;
    REQUIRE_CL(clEnqueueMarkerWithWaitList(test.queue, 0, NULL, &event));
    REQUIRE_CL(clFinish(test.queue));

#define ALL(ask, object, other, function, parameters)                                                                  \
    check_queries((ask), (object), (other), (function), (parameters), COUNT_OF(parameters))
    ALL(query_clGetPlatformInfo, test.platform, NULL, "clGetPlatformInfo", platform_parameters);
    ALL(query_clGetDeviceInfo, test.device, NULL, "clGetDeviceInfo", device_parameters);
    ALL(query_clGetContextInfo, test.context, NULL, "clGetContextInfo", context_parameters);
    ALL(query_clGetCommandQueueInfo, test.queue, NULL, "clGetCommandQueueInfo", queue_parameters);
    ALL(query_clGetMemObjectInfo, buffer, NULL, "clGetMemObjectInfo", memory_parameters);
    ALL(query_clGetMemObjectInfo, image, NULL, "clGetMemObjectInfo of an image", memory_parameters);
    ALL(query_clGetImageInfo, image, NULL, "clGetImageInfo", image_parameters);
    ALL(query_clGetSamplerInfo, sampler, NULL, "clGetSamplerInfo", sampler_parameters);
    ALL(query_clGetProgramInfo, program, NULL, "clGetProgramInfo", program_parameters);
    ALL(query_build, program, test.device, "clGetProgramBuildInfo", build_parameters);
    ALL(query_clGetKernelInfo, kernel, NULL, "clGetKernelInfo", kernel_parameters);
    ALL(query_work_group, kernel, test.device, "clGetKernelWorkGroupInfo", work_group_parameters);
    ALL(query_argument, kernel, NULL, "clGetKernelArgInfo", argument_parameters);
    ALL(query_clGetEventInfo, event, NULL, "clGetEventInfo", event_parameters);
    ALL(query_clGetEventProfilingInfo, event, NULL, "clGetEventProfilingInfo", profiling_parameters);
    test_consistency(&test);

    CHECK_CL(clReleaseEvent(event));
    CHECK_CL(clReleaseMemObject(buffer));
    CHECK_CL(clReleaseMemObject(image));
    CHECK_CL(clReleaseSampler(sampler));
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseProgram(program));
    dv_test_teardown(&test);
    return dv_test_result("info");
}
