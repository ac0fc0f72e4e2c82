/*
 * The platform, its devices and their contexts: what a program asks first.
 */
#include "vendor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int absent_entry(void)
{
    return CL_INVALID_OPERATION;
}

const cl_icd_dispatch dv_dispatch = {
#define DV_ENTRY(function) .function = function,
#define DV_ENTRY_ABSENT(function) .function = (void *)absent_entry,
#include "entries.h"
#undef DV_ENTRY
};

struct _cl_platform_id dv_platform = {
    .base = {.dispatch = &dv_dispatch, .kind = DV_KIND_PLATFORM},
};

struct _cl_device_id dv_devices[DV_MAX_DEVICES];

__attribute__((constructor)) static void make_devices(void)
{
    for (unsigned i = 0; i < DV_MAX_DEVICES; i++) {
        struct _cl_device_id *device = &dv_devices[i];
        device->base.dispatch = &dv_dispatch;
        device->base.kind = DV_KIND_DEVICE;
        device->base.api_refs = 1;
        device->index = i;
        snprintf(device->name, sizeof device->name, i ? "Scripted device %u" : "Scripted device", i + 1);
    }
}

#define PLATFORM_VERSION "OpenCL 3.0 scripted"
#define DRIVER_VERSION "1.0"

static const cl_name_version platform_extensions[] = {
    {CL_MAKE_VERSION(1, 0, 0), "cl_khr_icd"},
};
static const cl_name_version device_extensions[] = {
    {CL_MAKE_VERSION(1, 0, 0), "cl_khr_byte_addressable_store"},
    {CL_MAKE_VERSION(1, 0, 0), "cl_khr_global_int32_base_atomics"},
    {CL_MAKE_VERSION(1, 0, 0), "cl_khr_global_int32_extended_atomics"},
    {CL_MAKE_VERSION(1, 0, 0), "cl_khr_local_int32_base_atomics"},
    {CL_MAKE_VERSION(1, 0, 0), "cl_khr_local_int32_extended_atomics"},
};
#define DEVICE_EXTENSIONS                                                                                              \
    "cl_khr_byte_addressable_store cl_khr_global_int32_base_atomics "                                                  \
    "cl_khr_global_int32_extended_atomics cl_khr_local_int32_base_atomics "                                            \
    "cl_khr_local_int32_extended_atomics"
static const char *const extension_strings[] = {
    [DV_ADDRESSES_NONE] = DEVICE_EXTENSIONS,
    [DV_ADDRESSES_KHR] = DEVICE_EXTENSIONS " cl_khr_device_uuid cl_khr_pci_bus_info",
    [DV_ADDRESSES_NV] = DEVICE_EXTENSIONS " cl_nv_device_attribute_query",
    [DV_ADDRESSES_AMD] = DEVICE_EXTENSIONS " cl_amd_device_attribute_query",
};

/* Of extensions whose names headers may not have. */
#define PCI_BUS_ID_NV 0x4008
#define PCI_SLOT_ID_NV 0x4009
#define PCI_DOMAIN_ID_NV 0x400A
#define TOPOLOGY_AMD 0x4037

/* ---- platform -------------------------------------------------------------------------------*/

static cl_int list_platforms(cl_uint num_entries, cl_platform_id *platforms, cl_uint *num_platforms)
{
    if (!dv_script_is_valid()) {
        return CL_PLATFORM_NOT_FOUND_KHR;
    }
    if ((num_entries == 0 && platforms != NULL) || (platforms == NULL && num_platforms == NULL)) {
        return CL_INVALID_VALUE;
    }
    if (platforms != NULL) {
        platforms[0] = &dv_platform;
    }
    if (num_platforms != NULL) {
        *num_platforms = 1;
    }
    return CL_SUCCESS;
}

cl_int CL_API_CALL clGetPlatformIDs(cl_uint num_entries, cl_platform_id *platforms, cl_uint *num_platforms)
{
    DV_ENTER();
    return list_platforms(num_entries, platforms, num_platforms);
}

DV_EXPORT cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint num_entries, cl_platform_id *platforms,
                                                    cl_uint *num_platforms)
{
    return list_platforms(num_entries, platforms, num_platforms);
}

DV_EXPORT cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id platform, cl_platform_info param_name,
                                               size_t param_value_size, void *param_value, size_t *param_value_size_ret)
{
    DV_ENTER();
    if (platform != NULL && !dv_object_is(platform, DV_KIND_PLATFORM)) {
        return CL_INVALID_PLATFORM;
    }
    switch (param_name) {
    case CL_PLATFORM_PROFILE:
        return DV_STRING("FULL_PROFILE");
    case CL_PLATFORM_VERSION:
        return DV_STRING(PLATFORM_VERSION);
    case CL_PLATFORM_NAME:
        return DV_STRING("Scripted test platform");
    case CL_PLATFORM_VENDOR:
        return DV_STRING("divvy tests");
    case CL_PLATFORM_EXTENSIONS:
        return DV_STRING("cl_khr_icd");
    case CL_PLATFORM_ICD_SUFFIX_KHR:
        return DV_STRING("DVT");
    case CL_PLATFORM_HOST_TIMER_RESOLUTION:
        return DV_VALUE(cl_ulong, 1);
    case CL_PLATFORM_NUMERIC_VERSION:
        return DV_VALUE(cl_version, CL_MAKE_VERSION(3, 0, 0));
    case CL_PLATFORM_EXTENSIONS_WITH_VERSION:
        return DV_ARRAY(platform_extensions);
    default:
        return CL_INVALID_VALUE;
    }
}

static void *extension_address(const char *name)
{
    if (name == NULL) {
        return NULL;
    }
    if (strcmp(name, "clIcdGetPlatformIDsKHR") == 0) {
        return (void *)clIcdGetPlatformIDsKHR;
    }
    if (strcmp(name, "clGetPlatformInfo") == 0) {
        return (void *)clGetPlatformInfo;
    }
    return NULL;
}

DV_EXPORT void *CL_API_CALL clGetExtensionFunctionAddress(const char *name)
{
    if (dv_script_enter(__func__) != CL_SUCCESS) {
        return NULL;
    }
    return extension_address(name);
}

void *CL_API_CALL clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name)
{
    if (dv_script_enter(__func__) != CL_SUCCESS || !dv_object_is(platform, DV_KIND_PLATFORM)) {
        return NULL;
    }
    return extension_address(name);
}

cl_int CL_API_CALL clUnloadPlatformCompiler(cl_platform_id platform)
{
    DV_ENTER();
    return dv_object_is(platform, DV_KIND_PLATFORM) ? CL_SUCCESS : CL_INVALID_PLATFORM;
}

cl_int CL_API_CALL clUnloadCompiler(void)
{
    DV_ENTER();
    return CL_SUCCESS;
}

/* ---- devices --------------------------------------------------------------------------------*/

static bool type_matches(cl_device_type wanted)
{
    return (wanted & (dv_settings_get()->device_type | CL_DEVICE_TYPE_DEFAULT)) != 0;
}

cl_int CL_API_CALL clGetDeviceIDs(cl_platform_id platform, cl_device_type device_type, cl_uint num_entries,
                                  cl_device_id *devices, cl_uint *num_devices)
{
    DV_ENTER();
    const cl_device_type all_types = CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU |
                                     CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM;
    if (platform != NULL && !dv_object_is(platform, DV_KIND_PLATFORM)) {
        return CL_INVALID_PLATFORM;
    }
    if (device_type != CL_DEVICE_TYPE_ALL && ((device_type & ~all_types) != 0 || device_type == 0)) {
        return CL_INVALID_DEVICE_TYPE;
    }
    if ((num_entries == 0 && devices != NULL) || (devices == NULL && num_devices == NULL)) {
        return CL_INVALID_VALUE;
    }
    if (!type_matches(device_type)) {
        if (num_devices != NULL) {
            *num_devices = 0;
        }
        return CL_DEVICE_NOT_FOUND;
    }
    cl_uint count = device_type == CL_DEVICE_TYPE_DEFAULT ? 1 : dv_settings_get()->devices;
    for (cl_uint i = 0; devices != NULL && i < count && i < num_entries; i++) {
        devices[i] = &dv_devices[i];
    }
    if (num_devices != NULL) {
        *num_devices = count;
    }
    return CL_SUCCESS;
}

/* Device I has the UUID 000102..0e0I and is in slot 3, function 1, of bus 0x10 + I. */
static cl_int answer_address(cl_device_id device, enum dv_addresses addresses, cl_device_info param_name,
                             size_t param_value_size, void *param_value, size_t *param_value_size_ret)
{
    cl_uchar bytes[24] = {1};
    cl_uint bus = 0x10 + device->index;

    if (addresses == DV_ADDRESSES_KHR && param_name == CL_DEVICE_UUID_KHR) {
        for (cl_uchar i = 0; i < CL_UUID_SIZE_KHR; i++) {
            bytes[i] = i;
        }
        bytes[CL_UUID_SIZE_KHR - 1] = (cl_uchar)device->index;
        return DV_BYTES(bytes, CL_UUID_SIZE_KHR);
    }
    if (addresses == DV_ADDRESSES_KHR && param_name == CL_DEVICE_PCI_BUS_INFO_KHR) {
        return DV_ARRAY(((cl_uint[]){2, bus, 3, 1}));
    }
    if (addresses == DV_ADDRESSES_NV && param_name != TOPOLOGY_AMD && param_name < 0x4010 &&
        param_name >= PCI_BUS_ID_NV) {
        return DV_VALUE(cl_uint, param_name == PCI_BUS_ID_NV ? bus : param_name == PCI_SLOT_ID_NV ? 3 << 3 | 1 : 2);
    }
    if (addresses == DV_ADDRESSES_AMD && param_name == TOPOLOGY_AMD) {
        bytes[21] = (cl_uchar)bus;
        bytes[22] = 3;
        bytes[23] = 1;
        return DV_ARRAY(bytes);
    }
    return CL_INVALID_VALUE;
}

cl_int CL_API_CALL clGetDeviceInfo(cl_device_id device, cl_device_info param_name, size_t param_value_size,
                                   void *param_value, size_t *param_value_size_ret)
{
    DV_ENTER();
    if (!dv_object_is(device, DV_KIND_DEVICE)) {
        return CL_INVALID_DEVICE;
    }
    const struct dv_settings *settings = dv_settings_get();
    static const cl_name_version c_versions[] = {
        {CL_MAKE_VERSION(1, 0, 0), "OpenCL C"},
        {CL_MAKE_VERSION(1, 1, 0), "OpenCL C"},
        {CL_MAKE_VERSION(1, 2, 0), "OpenCL C"},
        {CL_MAKE_VERSION(3, 0, 0), "OpenCL C"},
    };
    static const cl_name_version c_features[] = {
        {CL_MAKE_VERSION(3, 0, 0), "__opencl_c_int64"},
        {CL_MAKE_VERSION(3, 0, 0), "__opencl_c_images"},
    };
    static const size_t item_sizes[] = {DV_MAX_WORK_GROUP_SIZE, DV_MAX_WORK_GROUP_SIZE, DV_MAX_WORK_GROUP_SIZE};
    switch (param_name) {
    case CL_DEVICE_TYPE:
        return DV_VALUE(cl_device_type, settings->device_type | (device->index == 0 ? CL_DEVICE_TYPE_DEFAULT : 0));
    case CL_DEVICE_VENDOR_ID:
        return DV_VALUE(cl_uint, 0xd1f7);
    case CL_DEVICE_MAX_COMPUTE_UNITS:
        return DV_VALUE(cl_uint, 1);
    case CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS:
        return DV_VALUE(cl_uint, 3);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
        return DV_ARRAY(item_sizes);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
        return DV_VALUE(size_t, DV_MAX_WORK_GROUP_SIZE);
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR:
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT:
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT:
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG:
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_INT:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT:
        return DV_VALUE(cl_uint, 1);
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE:
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_HALF:
        return DV_VALUE(cl_uint, 0);
    case CL_DEVICE_MAX_CLOCK_FREQUENCY:
        return DV_VALUE(cl_uint, 1000);
    case CL_DEVICE_ADDRESS_BITS:
        return DV_VALUE(cl_uint, 64);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
        return DV_VALUE(cl_ulong, settings->memory_bytes);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
        return DV_VALUE(cl_ulong, settings->memory_bytes / 2);
    case CL_DEVICE_IMAGE_SUPPORT:
        return DV_VALUE(cl_bool, CL_TRUE);
    case CL_DEVICE_MAX_READ_IMAGE_ARGS:
        return DV_VALUE(cl_uint, 128);
    case CL_DEVICE_MAX_WRITE_IMAGE_ARGS:
        return DV_VALUE(cl_uint, 64);
    case CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS:
        return DV_VALUE(cl_uint, 0);
    case CL_DEVICE_IMAGE2D_MAX_WIDTH:
    case CL_DEVICE_IMAGE2D_MAX_HEIGHT:
    case CL_DEVICE_IMAGE3D_MAX_WIDTH:
    case CL_DEVICE_IMAGE3D_MAX_HEIGHT:
    case CL_DEVICE_IMAGE3D_MAX_DEPTH:
        return DV_VALUE(size_t, DV_MAX_IMAGE_EXTENT);
    case CL_DEVICE_IMAGE_MAX_BUFFER_SIZE:
        return DV_VALUE(size_t, 65536);
    case CL_DEVICE_IMAGE_MAX_ARRAY_SIZE:
        return DV_VALUE(size_t, 2048);
    case CL_DEVICE_IMAGE_PITCH_ALIGNMENT:
    case CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT:
        return DV_VALUE(cl_uint, 0);
    case CL_DEVICE_MAX_SAMPLERS:
        return DV_VALUE(cl_uint, 16);
    case CL_DEVICE_MAX_PARAMETER_SIZE:
        return DV_VALUE(size_t, 1024);
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN:
        return DV_VALUE(cl_uint, DV_MEM_ALIGN_BYTES * 8);
    case CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE:
        return DV_VALUE(cl_uint, DV_MEM_ALIGN_BYTES);
    case CL_DEVICE_SINGLE_FP_CONFIG:
        return DV_VALUE(cl_device_fp_config, CL_FP_ROUND_TO_NEAREST | CL_FP_INF_NAN);
    case CL_DEVICE_DOUBLE_FP_CONFIG:
        return DV_VALUE(cl_device_fp_config, 0);
    case CL_DEVICE_GLOBAL_MEM_CACHE_TYPE:
        return DV_VALUE(cl_device_mem_cache_type, CL_NONE);
    case CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE:
        return DV_VALUE(cl_uint, 0);
    case CL_DEVICE_GLOBAL_MEM_CACHE_SIZE:
        return DV_VALUE(cl_ulong, 0);
    case CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE:
        return DV_VALUE(cl_ulong, 65536);
    case CL_DEVICE_MAX_CONSTANT_ARGS:
        return DV_VALUE(cl_uint, 8);
    case CL_DEVICE_LOCAL_MEM_TYPE:
        return DV_VALUE(cl_device_local_mem_type, CL_GLOBAL);
    case CL_DEVICE_LOCAL_MEM_SIZE:
        return DV_VALUE(cl_ulong, 32768);
    case CL_DEVICE_ERROR_CORRECTION_SUPPORT:
        return DV_VALUE(cl_bool, CL_FALSE);
    case CL_DEVICE_HOST_UNIFIED_MEMORY:
        return DV_VALUE(cl_bool, settings->unified);
    case CL_DEVICE_PROFILING_TIMER_RESOLUTION:
        return DV_VALUE(size_t, 1);
    case CL_DEVICE_ENDIAN_LITTLE:
        return DV_VALUE(cl_bool, CL_TRUE);
    case CL_DEVICE_AVAILABLE:
        return DV_VALUE(cl_bool, !dv_device_is_lost());
    case CL_DEVICE_COMPILER_AVAILABLE:
    case CL_DEVICE_LINKER_AVAILABLE:
        return DV_VALUE(cl_bool, CL_TRUE);
    case CL_DEVICE_EXECUTION_CAPABILITIES:
        return DV_VALUE(cl_device_exec_capabilities, CL_EXEC_KERNEL);
    case CL_DEVICE_QUEUE_ON_HOST_PROPERTIES:
        return DV_VALUE(cl_command_queue_properties,
                        CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    case CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES:
        return DV_VALUE(cl_command_queue_properties, 0);
    case CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE:
    case CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE:
    case CL_DEVICE_MAX_ON_DEVICE_QUEUES:
    case CL_DEVICE_MAX_ON_DEVICE_EVENTS:
    case CL_DEVICE_MAX_PIPE_ARGS:
    case CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS:
    case CL_DEVICE_PIPE_MAX_PACKET_SIZE:
    case CL_DEVICE_MAX_NUM_SUB_GROUPS:
    case CL_DEVICE_PREFERRED_PLATFORM_ATOMIC_ALIGNMENT:
    case CL_DEVICE_PREFERRED_GLOBAL_ATOMIC_ALIGNMENT:
    case CL_DEVICE_PREFERRED_LOCAL_ATOMIC_ALIGNMENT:
        return DV_VALUE(cl_uint, 0);
    case CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE:
    case CL_DEVICE_GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE:
        return DV_VALUE(size_t, 0);
    case CL_DEVICE_SVM_CAPABILITIES:
        return DV_VALUE(cl_device_svm_capabilities, 0);
    case CL_DEVICE_BUILT_IN_KERNELS:
    case CL_DEVICE_IL_VERSION:
        return DV_STRING("");
    case CL_DEVICE_ILS_WITH_VERSION:
    case CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION:
        return DV_NOTHING;
    case CL_DEVICE_PLATFORM:
        return DV_VALUE(cl_platform_id, &dv_platform);
    case CL_DEVICE_NAME:
        return DV_STRING(settings->alike ? dv_devices[0].name : device->name);
    case CL_DEVICE_VENDOR:
        return DV_STRING("divvy tests");
    case CL_DRIVER_VERSION:
        return DV_STRING(DRIVER_VERSION);
    case CL_DEVICE_PROFILE:
        return DV_STRING("FULL_PROFILE");
    case CL_DEVICE_VERSION:
        return DV_STRING(PLATFORM_VERSION);
    case CL_DEVICE_OPENCL_C_VERSION:
        return DV_STRING("OpenCL C 1.2 scripted");
    case CL_DEVICE_NUMERIC_VERSION:
        return DV_VALUE(cl_version, CL_MAKE_VERSION(3, 0, 0));
    case CL_DEVICE_OPENCL_C_ALL_VERSIONS:
        return DV_ARRAY(c_versions);
    case CL_DEVICE_OPENCL_C_FEATURES:
        return DV_ARRAY(c_features);
    case CL_DEVICE_EXTENSIONS:
        return DV_STRING(extension_strings[settings->addresses]);
    case CL_DEVICE_EXTENSIONS_WITH_VERSION:
        return DV_ARRAY(device_extensions);
    case CL_DEVICE_PRINTF_BUFFER_SIZE:
        return DV_VALUE(size_t, 1 << 20);
    case CL_DEVICE_PREFERRED_INTEROP_USER_SYNC:
        return DV_VALUE(cl_bool, CL_TRUE);
    case CL_DEVICE_PARENT_DEVICE:
        return DV_VALUE(cl_device_id, NULL);
    case CL_DEVICE_PARTITION_MAX_SUB_DEVICES:
        return DV_VALUE(cl_uint, 0);
    case CL_DEVICE_PARTITION_PROPERTIES:
        return DV_VALUE(cl_device_partition_property, 0);
    case CL_DEVICE_PARTITION_TYPE:
        return DV_NOTHING;
    case CL_DEVICE_PARTITION_AFFINITY_DOMAIN:
        return DV_VALUE(cl_device_affinity_domain, 0);
    case CL_DEVICE_REFERENCE_COUNT:
        return DV_VALUE(cl_uint, 1);
    case CL_DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS:
    case CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT:
    case CL_DEVICE_WORK_GROUP_COLLECTIVE_FUNCTIONS_SUPPORT:
    case CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT:
    case CL_DEVICE_PIPE_SUPPORT:
        return DV_VALUE(cl_bool, CL_FALSE);
    case CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES:
        return DV_VALUE(cl_device_atomic_capabilities,
                        CL_DEVICE_ATOMIC_ORDER_RELAXED | CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP);
    case CL_DEVICE_ATOMIC_FENCE_CAPABILITIES:
        return DV_VALUE(cl_device_atomic_capabilities, CL_DEVICE_ATOMIC_ORDER_RELAXED | CL_DEVICE_ATOMIC_ORDER_ACQ_REL |
                                                           CL_DEVICE_ATOMIC_SCOPE_WORK_GROUP);
    case CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES:
        return DV_VALUE(cl_device_device_enqueue_capabilities, 0);
    case CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
        return DV_VALUE(size_t, 1);
    case CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED:
        return DV_STRING("");
    case CL_DEVICE_UUID_KHR:
    case CL_DEVICE_PCI_BUS_INFO_KHR:
    case PCI_BUS_ID_NV:
    case PCI_SLOT_ID_NV:
    case PCI_DOMAIN_ID_NV:
    case TOPOLOGY_AMD:
        return answer_address(device, settings->addresses, param_name, param_value_size, param_value,
                              param_value_size_ret);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int CL_API_CALL clRetainDevice(cl_device_id device)
{
    DV_ENTER();
    return dv_object_is(device, DV_KIND_DEVICE) ? CL_SUCCESS : CL_INVALID_DEVICE;
}

cl_int CL_API_CALL clReleaseDevice(cl_device_id device)
{
    DV_ENTER();
    return dv_object_is(device, DV_KIND_DEVICE) ? CL_SUCCESS : CL_INVALID_DEVICE;
}

cl_int CL_API_CALL clCreateSubDevices(cl_device_id device, const cl_device_partition_property *properties,
                                      cl_uint num_devices, cl_device_id *out_devices, cl_uint *num_devices_ret)
{
    DV_ENTER();
    if (!dv_object_is(device, DV_KIND_DEVICE)) {
        return CL_INVALID_DEVICE;
    }
    return properties == NULL || properties[0] == 0 ? CL_INVALID_VALUE : CL_DEVICE_PARTITION_FAILED;
}

cl_int CL_API_CALL clGetDeviceAndHostTimer(cl_device_id device, cl_ulong *device_timestamp, cl_ulong *host_timestamp)
{
    DV_ENTER();
    if (!dv_object_is(device, DV_KIND_DEVICE)) {
        return CL_INVALID_DEVICE;
    }
    if (device_timestamp == NULL || host_timestamp == NULL) {
        return CL_INVALID_VALUE;
    }
    *device_timestamp = *host_timestamp = dv_now_ns();
    return CL_SUCCESS;
}

cl_int CL_API_CALL clGetHostTimer(cl_device_id device, cl_ulong *host_timestamp)
{
    DV_ENTER();
    if (!dv_object_is(device, DV_KIND_DEVICE)) {
        return CL_INVALID_DEVICE;
    }
    if (host_timestamp == NULL) {
        return CL_INVALID_VALUE;
    }
    *host_timestamp = dv_now_ns();
    return CL_SUCCESS;
}

/* ---- contexts -------------------------------------------------------------------------------*/

static void destroy_context(struct dv_object *object)
{
    cl_context context = (cl_context)object;
    while (context->destructors != NULL) {
        struct dv_context_callback *callback = context->destructors;
        context->destructors = callback->next;
        callback->notify(context, callback->user_data);
        free(callback);
    }
    pthread_cond_destroy(&context->changed);
    pthread_mutex_destroy(&context->lock);
    free(context->properties);
    free(context);
}

static cl_int check_context_properties(const cl_context_properties *properties)
{
    for (size_t i = 0; properties != NULL && properties[i] != 0; i += 2) {
        switch (properties[i]) {
        case CL_CONTEXT_PLATFORM:
            if (!dv_object_is((const void *)properties[i + 1], DV_KIND_PLATFORM)) {
                return CL_INVALID_PLATFORM;
            }
            break;
        case CL_CONTEXT_INTEROP_USER_SYNC:
            break;
        default:
            return CL_INVALID_PROPERTY;
        }
    }
    return CL_SUCCESS;
}

static cl_context create_context(const cl_context_properties *properties, cl_uint num_devices,
                                 const cl_device_id *devices,
                                 void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user_data,
                                 cl_int *errcode_ret)
{
    cl_int error = check_context_properties(properties);
    if (error != CL_SUCCESS) {
        return dv_fail(errcode_ret, error);
    }
    if (dv_device_is_lost()) {
        return dv_fail(errcode_ret, CL_DEVICE_NOT_AVAILABLE);
    }
    cl_context context = calloc(1, sizeof *context);
    if (context == NULL) {
        return dv_fail(errcode_ret, CL_OUT_OF_HOST_MEMORY);
    }
    dv_object_init(&context->base, DV_KIND_CONTEXT, destroy_context);
    pthread_mutex_init(&context->lock, NULL);
    pthread_cond_init(&context->changed, NULL);
    for (cl_uint i = 0; i < num_devices; i++) {
        if (!dv_context_has_device(context, devices[i])) {
            context->devices[context->num_devices++] = devices[i];
        }
    }
    context->properties = dv_properties_copy(properties, &context->num_properties);
    context->notify = notify;
    context->notify_data = user_data;
    dv_fail(errcode_ret, CL_SUCCESS);
    return context;
}

cl_context CL_API_CALL clCreateContext(const cl_context_properties *properties, cl_uint num_devices,
                                       const cl_device_id *devices,
                                       void(CL_CALLBACK *pfn_notify)(const char *, const void *, size_t, void *),
                                       void *user_data, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    if (devices == NULL || num_devices == 0 || (pfn_notify == NULL && user_data != NULL)) {
        return dv_fail(errcode_ret, CL_INVALID_VALUE);
    }
    for (cl_uint i = 0; i < num_devices; i++) {
        if (!dv_object_is(devices[i], DV_KIND_DEVICE)) {
            return dv_fail(errcode_ret, CL_INVALID_DEVICE);
        }
    }
    return create_context(properties, num_devices, devices, pfn_notify, user_data, errcode_ret);
}

cl_context CL_API_CALL clCreateContextFromType(const cl_context_properties *properties, cl_device_type device_type,
                                               void(CL_CALLBACK *pfn_notify)(const char *, const void *, size_t,
                                                                             void *),
                                               void *user_data, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    if (pfn_notify == NULL && user_data != NULL) {
        return dv_fail(errcode_ret, CL_INVALID_VALUE);
    }
    if (!type_matches(device_type)) {
        return dv_fail(errcode_ret, CL_DEVICE_NOT_FOUND);
    }
    cl_device_id devices[DV_MAX_DEVICES];
    cl_uint count = device_type == CL_DEVICE_TYPE_DEFAULT ? 1 : dv_settings_get()->devices;
    for (cl_uint i = 0; i < count; i++) {
        devices[i] = &dv_devices[i];
    }
    return create_context(properties, count, devices, pfn_notify, user_data, errcode_ret);
}

cl_int CL_API_CALL clRetainContext(cl_context context)
{
    DV_ENTER();
    return dv_object_is(context, DV_KIND_CONTEXT) && dv_object_api_retain(context) ? CL_SUCCESS : CL_INVALID_CONTEXT;
}

cl_int CL_API_CALL clReleaseContext(cl_context context)
{
    DV_ENTER();
    return dv_object_is(context, DV_KIND_CONTEXT) && dv_object_api_release(context) ? CL_SUCCESS : CL_INVALID_CONTEXT;
}

cl_int CL_API_CALL clGetContextInfo(cl_context context, cl_context_info param_name, size_t param_value_size,
                                    void *param_value, size_t *param_value_size_ret)
{
    DV_ENTER();
    if (!dv_object_is(context, DV_KIND_CONTEXT)) {
        return CL_INVALID_CONTEXT;
    }
    switch (param_name) {
    case CL_CONTEXT_REFERENCE_COUNT:
        return DV_VALUE(cl_uint, dv_object_count(context));
    case CL_CONTEXT_NUM_DEVICES:
        return DV_VALUE(cl_uint, context->num_devices);
    case CL_CONTEXT_DEVICES:
        return dv_answer(context->devices, context->num_devices * sizeof(cl_device_id), param_value_size, param_value,
                         param_value_size_ret);
    case CL_CONTEXT_PROPERTIES:
        return dv_answer(context->properties, context->num_properties * sizeof(cl_context_properties), param_value_size,
                         param_value, param_value_size_ret);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int CL_API_CALL clSetContextDestructorCallback(cl_context context, void(CL_CALLBACK *pfn_notify)(cl_context, void *),
                                                  void *user_data)
{
    DV_ENTER();
    if (!dv_object_is(context, DV_KIND_CONTEXT)) {
        return CL_INVALID_CONTEXT;
    }
    if (pfn_notify == NULL) {
        return CL_INVALID_VALUE;
    }
    struct dv_context_callback *callback = malloc(sizeof *callback);
    if (callback == NULL) {
        return CL_OUT_OF_HOST_MEMORY;
    }
    callback->notify = pfn_notify;
    callback->user_data = user_data;
    pthread_mutex_lock(&context->lock);
    callback->next = context->destructors;
    context->destructors = callback;
    pthread_mutex_unlock(&context->lock);
    return CL_SUCCESS;
}
