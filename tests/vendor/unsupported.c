/*
 * Entries of the dispatch table that this platform does not offer. Each is callable and says so,
 * because a program that finds an absent entry crashes instead of failing.
 */
#include "vendor.h"

#define UNSUPPORTED(function, ...)                                                                                     \
    cl_int CL_API_CALL function(__VA_ARGS__)                                                                           \
    {                                                                                                                  \
        DV_ENTER();                                                                                                    \
        return CL_INVALID_OPERATION;                                                                                   \
    }

#define UNSUPPORTED_CREATE(type, function, ...)                                                                        \
    type CL_API_CALL function(__VA_ARGS__, cl_int *errcode_ret)                                                        \
    {                                                                                                                  \
        DV_ENTER_CREATE(errcode_ret);                                                                                  \
        return dv_fail(errcode_ret, CL_INVALID_OPERATION);                                                             \
    }

/* OpenCL 1.0, deprecated or optional */
UNSUPPORTED(clSetCommandQueueProperty, cl_command_queue queue, cl_command_queue_properties properties, cl_bool enable,
            cl_command_queue_properties *old_properties)
UNSUPPORTED(clEnqueueNativeKernel, cl_command_queue queue, void(CL_CALLBACK *user_func)(void *), void *args,
            size_t cb_args, cl_uint num_mem_objects, const cl_mem *mem_list, const void **args_mem_loc,
            cl_uint num_events, const cl_event *wait_list, cl_event *event)

/* graphics sharing */
UNSUPPORTED_CREATE(cl_mem, clCreateFromGLBuffer, cl_context context, cl_mem_flags flags, cl_GLuint object)
UNSUPPORTED_CREATE(cl_mem, clCreateFromGLTexture, cl_context context, cl_mem_flags flags, cl_GLenum target,
                   cl_GLint level, cl_GLuint texture)
UNSUPPORTED_CREATE(cl_mem, clCreateFromGLTexture2D, cl_context context, cl_mem_flags flags, cl_GLenum target,
                   cl_GLint level, cl_GLuint texture)
UNSUPPORTED_CREATE(cl_mem, clCreateFromGLTexture3D, cl_context context, cl_mem_flags flags, cl_GLenum target,
                   cl_GLint level, cl_GLuint texture)
UNSUPPORTED_CREATE(cl_mem, clCreateFromGLRenderbuffer, cl_context context, cl_mem_flags flags, cl_GLuint renderbuffer)
UNSUPPORTED_CREATE(cl_event, clCreateEventFromGLsyncKHR, cl_context context, cl_GLsync sync)
UNSUPPORTED(clGetGLObjectInfo, cl_mem object, cl_gl_object_type *type, cl_GLuint *name)
UNSUPPORTED(clGetGLTextureInfo, cl_mem object, cl_gl_texture_info param_name, size_t param_value_size,
            void *param_value, size_t *param_value_size_ret)
UNSUPPORTED(clEnqueueAcquireGLObjects, cl_command_queue queue, cl_uint num_objects, const cl_mem *objects,
            cl_uint num_events, const cl_event *wait_list, cl_event *event)
UNSUPPORTED(clEnqueueReleaseGLObjects, cl_command_queue queue, cl_uint num_objects, const cl_mem *objects,
            cl_uint num_events, const cl_event *wait_list, cl_event *event)
UNSUPPORTED(clGetGLContextInfoKHR, const cl_context_properties *properties, cl_gl_context_info param_name,
            size_t param_value_size, void *param_value, size_t *param_value_size_ret)
UNSUPPORTED_CREATE(cl_mem, clCreateFromEGLImageKHR, cl_context context, CLeglDisplayKHR display, CLeglImageKHR image,
                   cl_mem_flags flags, const cl_egl_image_properties_khr *properties)
UNSUPPORTED_CREATE(cl_event, clCreateEventFromEGLSyncKHR, cl_context context, CLeglSyncKHR sync,
                   CLeglDisplayKHR display)
UNSUPPORTED(clEnqueueAcquireEGLObjectsKHR, cl_command_queue queue, cl_uint num_objects, const cl_mem *objects,
            cl_uint num_events, const cl_event *wait_list, cl_event *event)
UNSUPPORTED(clEnqueueReleaseEGLObjectsKHR, cl_command_queue queue, cl_uint num_objects, const cl_mem *objects,
            cl_uint num_events, const cl_event *wait_list, cl_event *event)

/* device fission as an extension; the core call answers for itself */
UNSUPPORTED(clCreateSubDevicesEXT, cl_device_id device, const cl_device_partition_property_ext *properties,
            cl_uint num_entries, cl_device_id *out_devices, cl_uint *num_devices)
UNSUPPORTED(clRetainDeviceEXT, cl_device_id device)
UNSUPPORTED(clReleaseDeviceEXT, cl_device_id device)

/* OpenCL 2.x: pipes, shared virtual memory, sub-groups, device queues, intermediate language */
UNSUPPORTED_CREATE(cl_mem, clCreatePipe, cl_context context, cl_mem_flags flags, cl_uint packet_size,
                   cl_uint max_packets, const cl_pipe_properties *properties)
UNSUPPORTED(clGetPipeInfo, cl_mem pipe, cl_pipe_info param_name, size_t param_value_size, void *param_value,
            size_t *param_value_size_ret)
UNSUPPORTED(clEnqueueSVMFree, cl_command_queue queue, cl_uint num_pointers, void **pointers,
            void(CL_CALLBACK *free_func)(cl_command_queue, cl_uint, void **, void *), void *user_data,
            cl_uint num_events, const cl_event *wait_list, cl_event *event)
UNSUPPORTED(clEnqueueSVMMemcpy, cl_command_queue queue, cl_bool blocking, void *dst, const void *src, size_t size,
            cl_uint num_events, const cl_event *wait_list, cl_event *event)
UNSUPPORTED(clEnqueueSVMMemFill, cl_command_queue queue, void *pointer, const void *pattern, size_t pattern_size,
            size_t size, cl_uint num_events, const cl_event *wait_list, cl_event *event)
UNSUPPORTED(clEnqueueSVMMap, cl_command_queue queue, cl_bool blocking, cl_map_flags flags, void *pointer, size_t size,
            cl_uint num_events, const cl_event *wait_list, cl_event *event)
UNSUPPORTED(clEnqueueSVMUnmap, cl_command_queue queue, void *pointer, cl_uint num_events, const cl_event *wait_list,
            cl_event *event)
UNSUPPORTED(clEnqueueSVMMigrateMem, cl_command_queue queue, cl_uint num_pointers, const void **pointers,
            const size_t *sizes, cl_mem_migration_flags flags, cl_uint num_events, const cl_event *wait_list,
            cl_event *event)
UNSUPPORTED(clSetKernelArgSVMPointer, cl_kernel kernel, cl_uint index, const void *value)
UNSUPPORTED(clSetKernelExecInfo, cl_kernel kernel, cl_kernel_exec_info param_name, size_t param_value_size,
            const void *param_value)
UNSUPPORTED(clGetKernelSubGroupInfoKHR, cl_kernel kernel, cl_device_id device, cl_kernel_sub_group_info param_name,
            size_t input_value_size, const void *input_value, size_t param_value_size, void *param_value,
            size_t *param_value_size_ret)
UNSUPPORTED(clGetKernelSubGroupInfo, cl_kernel kernel, cl_device_id device, cl_kernel_sub_group_info param_name,
            size_t input_value_size, const void *input_value, size_t param_value_size, void *param_value,
            size_t *param_value_size_ret)
UNSUPPORTED(clSetDefaultDeviceCommandQueue, cl_context context, cl_device_id device, cl_command_queue queue)
UNSUPPORTED_CREATE(cl_program, clCreateProgramWithIL, cl_context context, const void *il, size_t length)
UNSUPPORTED(clSetProgramReleaseCallback, cl_program program, void(CL_CALLBACK *notify)(cl_program, void *),
            void *user_data)
UNSUPPORTED(clSetProgramSpecializationConstant, cl_program program, cl_uint spec_id, size_t spec_size,
            const void *spec_value)

void *CL_API_CALL clSVMAlloc(cl_context context, cl_svm_mem_flags flags, size_t size, cl_uint alignment)
{
    dv_script_enter(__func__);
    return NULL;
}

void CL_API_CALL clSVMFree(cl_context context, void *pointer)
{
    dv_script_enter(__func__);
}
