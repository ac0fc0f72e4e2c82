/* The library's entry points: the symbols that the ICD loader looks up, functions by name, and the tables that connect
 * the client's parts. */
#include <string.h>

#include "src/client/opencl/enqueue.h"
#include "src/client/opencl/upcalls.h"

/* ---- connecting the parts ---- */

static void after_fork(void)
{
    dvc_platforms_after_fork();
    dvc_callbacks_after_fork();
}

static const struct dvc_session_events session_events = {
    .known_devices = dvc_platforms_list, .opened = dvc_platforms_init, .forked = after_fork};

static void connect_parts(void)
{
    dvc_log_open();
    dvc_object_set_dispatch(dvc_log_enabled() ? &dvc_dispatch_logged : &dvc_dispatch);
    dvc_session_set_events(&session_events);
    dvc_helper_set_handlers(&dvc_upcalls);
}

/* ---- functions by name ---- */

/* Every program calls this first. */
static cl_int CL_API_CALL icd_get_platform_ids(cl_uint num_entries, cl_platform_id *platforms, cl_uint *num_platforms)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, connect_parts);
    return dvc_clGetPlatformIDs(num_entries, platforms, num_platforms);
}

static void *extension_function(const char *name)
{
    if (!name)
        return NULL;
    if (strcmp(name, "clIcdGetPlatformIDsKHR") == 0)
        return (void *)icd_get_platform_ids;
    if (strcmp(name, "clGetKernelSubGroupInfoKHR") == 0)
        return (void *)dvc_clGetKernelSubGroupInfoKHR;
    if (strcmp(name, "clCreateProgramWithILKHR") == 0)
        return (void *)dvc_clCreateProgramWithIL;
    return NULL;
}

void *CL_API_CALL dvc_clGetExtensionFunctionAddress(const char *func_name)
{
    return extension_function(func_name);
}

void *CL_API_CALL dvc_clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *func_name)
{
    return dvc_platform_of(platform) ? extension_function(func_name) : NULL;
}

cl_int CL_API_CALL dvc_clEnqueueTask(cl_command_queue command_queue, cl_kernel kernel, cl_uint num_events_in_wait_list,
                                     const cl_event *event_wait_list, cl_event *event)
{
    const size_t one = 1;
    cl_int error = dvc_clEnqueueNDRangeKernel(command_queue, kernel, 1, NULL, &one, &one, num_events_in_wait_list,
                                              event_wait_list, event);
    if (error == CL_SUCCESS && event)
        ((struct dvc_event *)*event)->command = CL_COMMAND_TASK;
    return error;
}

/* ---- symbols that the ICD loader looks up ---- */

#define EXPORT __attribute__((visibility("default")))

EXPORT void *CL_API_CALL clGetExtensionFunctionAddress(const char *func_name)
{
    if (func_name && strcmp(func_name, "clGetPlatformInfo") == 0)
        return (void *)dvc_clGetPlatformInfo;
    return extension_function(func_name);
}

EXPORT cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint num_entries, cl_platform_id *platforms, cl_uint *num_platforms)
{
    return icd_get_platform_ids(num_entries, platforms, num_platforms);
}
