/*
 * An OpenCL layer (OPENCL_LAYERS) for runs without divvy, so that a bare run can be compared with
 * one through it. It does two things, each only if asked by an environment variable:
 *   BARE_LAYER_PRESENT_AS=gpu  CPU devices answer as GPUs, for programs that look for nothing else
 *   BARE_LAYER_COUNT=FILE      FILE holds, as a 64-bit number, how many kernels were launched
 */
#define _GNU_SOURCE
#include <CL/cl.h>
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static const cl_icd_dispatch *target;
static cl_icd_dispatch layer;

/* Mapped from a file, so that the count is right however the program ends. */
static _Atomic uint64_t *launches;

/* What to ask of the driver when the program asks for `type` and CPUs pose as GPUs. */
static cl_device_type real_type(cl_device_type type)
{
    if (type == CL_DEVICE_TYPE_ALL) {
        return type;
    }
    cl_device_type real = type & ~(cl_device_type)(CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU);
    if (type & CL_DEVICE_TYPE_GPU) {
        real |= CL_DEVICE_TYPE_CPU;
    }
    return real;
}

static cl_int CL_API_CALL get_device_ids(cl_platform_id platform, cl_device_type type, cl_uint num_entries,
                                         cl_device_id *devices, cl_uint *num_devices)
{
    if (type == CL_DEVICE_TYPE_CPU) {
        if (num_devices) {
            *num_devices = 0;
        }
        return CL_DEVICE_NOT_FOUND;
    }
    return target->clGetDeviceIDs(platform, real_type(type), num_entries, devices, num_devices);
}

static cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info name, size_t size, void *value,
                                          size_t *size_ret)
{
    cl_int status = target->clGetDeviceInfo(device, name, size, value, size_ret);
    if (status == CL_SUCCESS && name == CL_DEVICE_TYPE && value) {
        cl_device_type type;
        memcpy(&type, value, sizeof(type));
        if (type & CL_DEVICE_TYPE_CPU) {
            type = (type & ~(cl_device_type)CL_DEVICE_TYPE_CPU) | CL_DEVICE_TYPE_GPU;
            memcpy(value, &type, sizeof(type));
        }
    }
    return status;
}

static cl_context CL_API_CALL create_context_from_type(const cl_context_properties *properties, cl_device_type type,
                                                       void(CL_CALLBACK *notify)(const char *, const void *, size_t,
                                                                                 void *),
                                                       void *user_data, cl_int *status)
{
    if (type == CL_DEVICE_TYPE_CPU) {
        if (status) {
            *status = CL_DEVICE_NOT_FOUND;
        }
        return NULL;
    }
    return target->clCreateContextFromType(properties, real_type(type), notify, user_data, status);
}

static cl_int CL_API_CALL enqueue_nd_range_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                                  const size_t *offset, const size_t *global, const size_t *local,
                                                  cl_uint num_waits, const cl_event *waits, cl_event *event)
{
    atomic_fetch_add_explicit(launches, 1, memory_order_relaxed);
    return target->clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, num_waits, waits, event);
}

static cl_int CL_API_CALL enqueue_task(cl_command_queue queue, cl_kernel kernel, cl_uint num_waits,
                                       const cl_event *waits, cl_event *event)
{
    atomic_fetch_add_explicit(launches, 1, memory_order_relaxed);
    return target->clEnqueueTask(queue, kernel, num_waits, waits, event);
}

static bool map_counter(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return false;
    }
    void *memory = MAP_FAILED;
    if (ftruncate(fd, sizeof(*launches)) == 0) {
        memory = mmap(NULL, sizeof(*launches), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (memory == MAP_FAILED) {
        return false;
    }
    launches = memory;
    return true;
}

EXPORT cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void *value, size_t *size_ret)
{
    if (name != CL_LAYER_API_VERSION) {
        return CL_INVALID_VALUE;
    }
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (value) {
        if (size < sizeof(version)) {
            return CL_INVALID_VALUE;
        }
        memcpy(value, &version, sizeof(version));
    }
    if (size_ret) {
        *size_ret = sizeof(version);
    }
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clInitLayer(cl_uint num_entries, const cl_icd_dispatch *target_dispatch,
                                      cl_uint *num_entries_ret, const cl_icd_dispatch **layer_dispatch)
{
    if (num_entries < sizeof(layer) / sizeof(void *)) {
        return CL_INVALID_VALUE;
    }
    target = target_dispatch;
    memcpy(&layer, target, sizeof(layer));

    const char *present_as = getenv("BARE_LAYER_PRESENT_AS");
    if (present_as && strcmp(present_as, "gpu") == 0) {
        layer.clGetDeviceIDs = get_device_ids;
        layer.clGetDeviceInfo = get_device_info;
        layer.clCreateContextFromType = create_context_from_type;
    }
    const char *count = getenv("BARE_LAYER_COUNT");
    if (count) {
        if (!map_counter(count)) {
            return CL_OUT_OF_HOST_MEMORY;
        }
        layer.clEnqueueNDRangeKernel = enqueue_nd_range_kernel;
        layer.clEnqueueTask = enqueue_task;
    }
    *layer_dispatch = &layer;
    *num_entries_ret = sizeof(layer) / sizeof(void *);
    return CL_SUCCESS;
}
