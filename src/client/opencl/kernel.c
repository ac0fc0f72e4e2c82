/* Kernels. Their signatures arrive at creation, so arguments are checked and sent without waiting. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/client/opencl/objects.h"
#include "src/wire/session/opencl_arguments.h"

/* reqd_work_group_size(X,Y,Z) among the attributes */
static void read_required_local(struct dvc_kernel *kernel)
{
    const char *found = strstr(kernel->attributes, "reqd_work_group_size");
    unsigned long size[3];

    if (found && sscanf(found, "reqd_work_group_size ( %lu , %lu , %lu", &size[0], &size[1], &size[2]) == 3)
        for (int i = 0; i < 3; i++)
            kernel->required_local[i] = size[i];
}

static struct dvc_kernel *new_kernel(struct dvc_program *program, const char *name)
{
    struct dvc_kernel *kernel = dvc_object_create(DV_KIND_KERNEL, program->object.session);

    if (!kernel)
        return NULL;
    kernel->program = program;
    kernel->name = strdup(name);
    if (!kernel->name) {
        dvc_object_free(&kernel->object);
        return NULL;
    }
    pthread_mutex_init(&kernel->lock, NULL);
    dvc_object_use(&program->object);
    atomic_fetch_add(&program->kernels, 1);
    return kernel;
}

/* Returns false when memory is short. */
static bool keep_signature(struct dvc_kernel *kernel, const char *attributes, size_t attributes_most,
                           const struct dv_wire_argument *arguments, cl_uint count)
{
    kernel->attributes = strndup(attributes, attributes_most);
    kernel->arguments = malloc((count ? count : 1) * sizeof *arguments);
    kernel->is_set = calloc(count ? count : 1, sizeof *kernel->is_set);
    if (!kernel->attributes || !kernel->arguments || !kernel->is_set)
        return false;
    memcpy(kernel->arguments, arguments, count * sizeof *arguments);
    for (cl_uint i = 0; i < count; i++) { /* a kernel may have overwritten the worker's memory */
        kernel->arguments[i].type_name[sizeof arguments->type_name - 1] = '\0';
        kernel->arguments[i].name[sizeof arguments->name - 1] = '\0';
    }
    kernel->argument_count = count;
    read_required_local(kernel);
    return true;
}

static void kernel_destroy(struct dvc_kernel *kernel)
{
    struct dvc_program *program = kernel->program;

    free(kernel->name);
    free(kernel->attributes);
    free(kernel->arguments);
    free(kernel->is_set);
    dvc_object_free(&kernel->object);
    atomic_fetch_sub(&program->kernels, 1);
    dvc_program_unuse(program);
}

static struct dvc_kernel *make_kernel(struct dvc_program *program, const char *name, cl_int *error)
{
    struct dvc_session *s = program->object.session;
    struct dvw_create_kernel message = {.program = program->object.id, .name_bytes = (uint32_t)strlen(name)};
    size_t room = sizeof(struct dv_wire_kernel) + 64 * sizeof(struct dv_wire_argument), bytes = 0;
    DV_AUTO_FREE uint8_t *answer =
        malloc(sizeof(struct dv_wire_kernel) + DV_MAX_ARGUMENTS * sizeof(struct dv_wire_argument));
    struct dvc_kernel *kernel = answer ? new_kernel(program, name) : NULL;

    if (!kernel) {
        *error = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    message.id = kernel->object.id;
    if (strlen(name) > 32768) {
        *error = CL_INVALID_KERNEL_NAME;
    } else {
        room = sizeof(struct dv_wire_kernel) + DV_MAX_ARGUMENTS * sizeof(struct dv_wire_argument);
        *error =
            dvc_call(s, DVW_OP_CREATE_KERNEL, &message.head, sizeof message, name, strlen(name), answer, room, &bytes);
    }
    const struct dv_wire_kernel *facts = (const void *)answer;
    if (*error == CL_SUCCESS && (bytes < sizeof *facts || facts->argument_count > DV_MAX_ARGUMENTS ||
                                 bytes < sizeof *facts + facts->argument_count * sizeof(struct dv_wire_argument)))
        *error = CL_OUT_OF_RESOURCES;
    if (*error != CL_SUCCESS) {
        kernel_destroy(kernel);
        return NULL;
    }
    if (!keep_signature(kernel, facts->attributes, sizeof facts->attributes,
                        (const struct dv_wire_argument *)(facts + 1), facts->argument_count)) {
        *error = CL_OUT_OF_HOST_MEMORY;
        dvc_kernel_release(kernel); /* in the worker, too */
        return NULL;
    }
    kernel->has_info = facts->has_info;
    return kernel;
}

cl_kernel CL_API_CALL dvc_clCreateKernel(cl_program program, const char *kernel_name, cl_int *errcode_ret)
{
    struct dvc_program *p = dvc_program_of(program);
    struct dvc_kernel *kernel = NULL;
    cl_int error = CL_SUCCESS;

    if (!p)
        error = CL_INVALID_PROGRAM;
    else if (!kernel_name)
        error = CL_INVALID_VALUE;
    else if (!p->built)
        error = CL_INVALID_PROGRAM_EXECUTABLE;
    else
        kernel = make_kernel(p, kernel_name, &error);
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_kernel)kernel;
}

cl_int CL_API_CALL dvc_clCreateKernelsInProgram(cl_program program, cl_uint num_kernels, cl_kernel *kernels,
                                                cl_uint *num_kernels_ret)
{
    struct dvc_program *p = dvc_program_of(program);
    cl_int error = CL_SUCCESS;
    cl_uint made = 0;

    if (!p)
        return CL_INVALID_PROGRAM;
    if (!p->built)
        return CL_INVALID_PROGRAM_EXECUTABLE;
    if (kernels && num_kernels < p->kernel_count)
        return CL_INVALID_VALUE;
    if (num_kernels_ret)
        *num_kernels_ret = (cl_uint)p->kernel_count;
    if (!kernels)
        return CL_SUCCESS;
    DV_AUTO_FREE char *names = strdup(p->kernel_names);
    if (!names)
        return CL_OUT_OF_HOST_MEMORY;
    char *rest = names;
    for (char *name; made < num_kernels && (name = strsep(&rest, ";")) && *name && error == CL_SUCCESS;) {
        struct dvc_kernel *kernel = make_kernel(p, name, &error);
        if (kernel)
            kernels[made++] = (cl_kernel)kernel;
    }
    while (error != CL_SUCCESS && made > 0)
        dvc_kernel_release((struct dvc_kernel *)kernels[--made]);
    return error;
}

cl_kernel CL_API_CALL dvc_clCloneKernel(cl_kernel source_kernel, cl_int *errcode_ret)
{
    struct dvc_kernel *source = dvc_kernel_of(source_kernel);
    struct dvc_kernel *kernel = NULL;
    cl_int error = CL_INVALID_KERNEL;

    if (source) {
        kernel = new_kernel(source->program, source->name);
        error = kernel ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    }
    if (kernel) {
        struct dvw_clone_kernel message = {.id = kernel->object.id, .source = source->object.id};
        error = CL_OUT_OF_HOST_MEMORY;
        if (keep_signature(kernel, source->attributes, strlen(source->attributes), source->arguments,
                           source->argument_count))
            error = dvc_call(source->object.session, DVW_OP_CLONE_KERNEL, &message.head, sizeof message, NULL, 0, NULL,
                             0, NULL);
        if (error == CL_SUCCESS)
            memcpy(kernel->is_set, source->is_set, source->argument_count);
        kernel->has_info = source->has_info;
        if (error != CL_SUCCESS) {
            kernel_destroy(kernel);
            kernel = NULL;
        }
    }
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_kernel)kernel;
}

cl_int dvc_kernel_retain(struct dvc_kernel *kernel)
{
    atomic_fetch_add(&kernel->object.count, 1);
    return CL_SUCCESS;
}

cl_int dvc_kernel_release(struct dvc_kernel *kernel)
{
    struct dvw_release message = {.kind = DV_KIND_KERNEL, .id = kernel->object.id};

    if (dvc_object_refs(&kernel->object) == 0)
        return CL_INVALID_KERNEL;
    if (atomic_fetch_sub(&kernel->object.count, 1) != 1)
        return CL_SUCCESS;
    dvc_send(kernel->object.session, DVW_OP_RELEASE, &message.head, sizeof message, NULL, 0);
    kernel_destroy(kernel);
    return CL_SUCCESS;
}

/* ---- arguments ---- */

/* The size of a value of an OpenCL C type, or 0 if the name is not known. */
static size_t type_bytes(const char *type)
{
    static const struct {
        const char *name;
        size_t bytes;
    } scalars[] = {{"char", 1}, {"uchar", 1}, {"short", 2}, {"ushort", 2}, {"half", 2},  {"int", 4},
                   {"uint", 4}, {"float", 4}, {"long", 8},  {"ulong", 8},  {"double", 8}};
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++) {
        size_t length = strlen(scalars[i].name);
        if (strncmp(type, scalars[i].name, length) != 0)
            continue;
        if (type[length] == '\0')
            return scalars[i].bytes;
        if (isdigit((unsigned char)type[length])) {
            char *end;
            unsigned long width = strtoul(type + length, &end, 10);
            if (*end != '\0') /* such as int8_t, which a program may have defined */
                continue;
            if (width == 2 || width == 4 || width == 8 || width == 16)
                return scalars[i].bytes * width;
            if (width == 3)
                return scalars[i].bytes * 4;
        }
    }
    return 0;
}

struct argument {
    struct dvw_set_argument message;
    const void *value;
    size_t value_bytes;
};

static cl_int as_mem(struct dvc_kernel *kernel, struct argument *a, size_t size, const void *value)
{
    if (size != sizeof(cl_mem))
        return CL_INVALID_ARG_SIZE;
    cl_mem handle = NULL;
    if (value)
        memcpy(&handle, value, sizeof handle);
    a->message.form = DV_ARGUMENT_MEM;
    if (!handle)
        return CL_SUCCESS;
    struct dvc_mem *mem = dvc_mem_of(handle);
    if (!mem || mem->context != kernel->program->context)
        return CL_INVALID_MEM_OBJECT;
    a->message.object = mem->object.id;
    return CL_SUCCESS;
}

static cl_int as_sampler(struct dvc_kernel *kernel, struct argument *a, size_t size, const void *value)
{
    if (!value)
        return CL_INVALID_SAMPLER;
    if (size != sizeof(cl_sampler))
        return CL_INVALID_ARG_SIZE;
    cl_sampler handle;
    memcpy(&handle, value, sizeof handle);
    struct dvc_sampler *sampler = dvc_sampler_of(handle);
    if (!sampler || sampler->context != kernel->program->context)
        return CL_INVALID_SAMPLER;
    a->message.form = DV_ARGUMENT_SAMPLER;
    a->message.object = sampler->object.id;
    return CL_SUCCESS;
}

static cl_int as_value(struct argument *a, size_t size, const void *value)
{
    if (size > DV_MAX_ARGUMENT_BYTES)
        return CL_INVALID_ARG_SIZE;
    a->message.form = DV_ARGUMENT_VALUE;
    a->value = value;
    a->value_bytes = size;
    return CL_SUCCESS;
}

/* Without a signature (a program binary), eight bytes that match a live handle count as that handle. */
static cl_int guess(struct dvc_kernel *kernel, struct argument *a, size_t size, const void *value)
{
    if (!value) {
        a->message.form = DV_ARGUMENT_LOCAL;
        return size ? CL_SUCCESS : CL_INVALID_ARG_SIZE;
    }
    if (size == sizeof(void *)) {
        void *handle;
        memcpy(&handle, value, sizeof handle);
        if (dvc_mem_of(handle))
            return as_mem(kernel, a, size, value);
        if (dvc_sampler_of(handle))
            return as_sampler(kernel, a, size, value);
    }
    return as_value(a, size, value);
}

static cl_int as_image(struct dvc_kernel *kernel, struct argument *a, size_t size, const void *value)
{
    cl_mem handle = NULL;

    if (value && size == sizeof handle)
        memcpy(&handle, value, sizeof handle);
    if (size == sizeof handle && !dvc_image_of(handle))
        return value ? CL_INVALID_MEM_OBJECT : CL_INVALID_ARG_VALUE;
    return as_mem(kernel, a, size, value);
}

static cl_int by_signature(struct dvc_kernel *kernel, const struct dv_wire_argument *info, struct argument *a,
                           size_t size, const void *value)
{
    switch (dv_argument_form_of(info)) {
    case DV_ARGUMENT_LOCAL:
        if (value)
            return CL_INVALID_ARG_VALUE;
        if (size == 0)
            return CL_INVALID_ARG_SIZE;
        a->message.form = DV_ARGUMENT_LOCAL;
        return CL_SUCCESS;
    case DV_ARGUMENT_SAMPLER:
        return as_sampler(kernel, a, size, value);
    case DV_ARGUMENT_MEM:
        return (dv_argument_is_image(info) ? as_image : as_mem)(kernel, a, size, value);
    default:
        break;
    }
    if (!value)
        return CL_INVALID_ARG_VALUE;
    size_t expected = type_bytes(info->type_name);
    if (size == 0 || (expected && size != expected))
        return CL_INVALID_ARG_SIZE;
    return as_value(a, size, value);
}

cl_int CL_API_CALL dvc_clSetKernelArg(cl_kernel kernel, cl_uint arg_index, size_t arg_size, const void *arg_value)
{
    struct dvc_kernel *k = dvc_kernel_of(kernel);
    struct argument a = {.value = NULL};
    cl_int error;

    if (!k)
        return CL_INVALID_KERNEL;
    if (arg_index >= k->argument_count)
        return CL_INVALID_ARG_INDEX;
    a.message.kernel = k->object.id;
    a.message.index = arg_index;
    a.message.size = arg_size;
    if (k->arguments[arg_index].address == DV_ARGUMENT_UNKNOWN)
        error = guess(k, &a, arg_size, arg_value);
    else
        error = by_signature(k, &k->arguments[arg_index], &a, arg_size, arg_value);
    if (error != CL_SUCCESS)
        return error;
    error = dvc_send(k->object.session, DVW_OP_SET_ARGUMENT, &a.message.head, sizeof a.message, a.value, a.value_bytes);
    if (error == CL_SUCCESS)
        k->is_set[arg_index] = true;
    return error;
}

/* ---- information ---- */

cl_int CL_API_CALL dvc_clGetKernelArgInfo(cl_kernel kernel, cl_uint arg_index, cl_kernel_arg_info param_name,
                                          size_t param_value_size, void *param_value, size_t *param_value_size_ret)
{
    struct dvc_kernel *k = dvc_kernel_of(kernel);

    if (!k)
        return CL_INVALID_KERNEL;
    if (arg_index >= k->argument_count)
        return CL_INVALID_ARG_INDEX;
    const struct dv_wire_argument *info = &k->arguments[arg_index];
    if (info->address == DV_ARGUMENT_UNKNOWN || !dvc_program_tells_arguments(k->program))
        return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
    cl_kernel_arg_address_qualifier address = info->address;
    cl_kernel_arg_access_qualifier access = info->access;
    cl_kernel_arg_type_qualifier qualifier = info->type_qualifier;
    switch (param_name) {
    case CL_KERNEL_ARG_ADDRESS_QUALIFIER:
        return dvc_info_bytes(&address, sizeof address, param_value_size, param_value, param_value_size_ret);
    case CL_KERNEL_ARG_ACCESS_QUALIFIER:
        return dvc_info_bytes(&access, sizeof access, param_value_size, param_value, param_value_size_ret);
    case CL_KERNEL_ARG_TYPE_QUALIFIER:
        return dvc_info_bytes(&qualifier, sizeof qualifier, param_value_size, param_value, param_value_size_ret);
    case CL_KERNEL_ARG_TYPE_NAME:
        return dvc_info_text(info->type_name, param_value_size, param_value, param_value_size_ret);
    case CL_KERNEL_ARG_NAME:
        return dvc_info_text(info->name, param_value_size, param_value, param_value_size_ret);
    default:
        return CL_INVALID_VALUE;
    }
}

/* The device may be omitted if the program has only one. */
static cl_int device_of_kernel(struct dvc_kernel *kernel, cl_device_id device, struct dv_object_id *id)
{
    struct dvc_device *d = device ? dvc_device_of(device) : NULL;

    if (!device && kernel->program->device_count == 1)
        d = kernel->program->devices[0];
    if (!d)
        return CL_INVALID_DEVICE;
    for (cl_uint i = 0; i < kernel->program->device_count; i++)
        if (kernel->program->devices[i] == d) {
            *id = d->object.id;
            return CL_SUCCESS;
        }
    return CL_INVALID_DEVICE;
}

cl_int CL_API_CALL dvc_clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device,
                                                cl_kernel_work_group_info param_name, size_t param_value_size,
                                                void *param_value, size_t *param_value_size_ret)
{
    struct dvc_kernel *k = dvc_kernel_of(kernel);
    struct dv_object_id id = {0};

    if (!k)
        return CL_INVALID_KERNEL;
    cl_int error = device_of_kernel(k, device, &id);
    if (error != CL_SUCCESS)
        return error;
    return dvc_query(k->object.session, DVW_QUERY_clGetKernelWorkGroupInfo, k->object.id, id, param_name, NULL, 0,
                     param_value_size, param_value, param_value_size_ret);
}

cl_int CL_API_CALL dvc_clGetKernelSubGroupInfo(cl_kernel kernel, cl_device_id device,
                                               cl_kernel_sub_group_info param_name, size_t input_value_size,
                                               const void *input_value, size_t param_value_size, void *param_value,
                                               size_t *param_value_size_ret)
{
    struct dvc_kernel *k = dvc_kernel_of(kernel);
    struct dv_object_id id = {0};

    if (!k)
        return CL_INVALID_KERNEL;
    cl_int error = device_of_kernel(k, device, &id);
    if (error != CL_SUCCESS)
        return error;
    if (input_value_size && !input_value)
        return CL_INVALID_VALUE;
    return dvc_query(k->object.session, DVW_QUERY_clGetKernelSubGroupInfo, k->object.id, id, param_name, input_value,
                     input_value ? input_value_size : 0, param_value_size, param_value, param_value_size_ret);
}

cl_int CL_API_CALL dvc_clGetKernelSubGroupInfoKHR(cl_kernel in_kernel, cl_device_id in_device,
                                                  cl_kernel_sub_group_info param_name, size_t input_value_size,
                                                  const void *input_value, size_t param_value_size, void *param_value,
                                                  size_t *param_value_size_ret)
{
    return dvc_clGetKernelSubGroupInfo(in_kernel, in_device, param_name, input_value_size, input_value,
                                       param_value_size, param_value, param_value_size_ret);
}
