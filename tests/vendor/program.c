/*
 * Programs and kernels. A program's source is parsed, not compiled; its binary is the source
 * behind a header.
 */
#include "vendor.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SOURCE_BYTES (4u << 20)

/* A binary is this, one letter for its kind, a newline, and the source. */
static const char binary_magic[] = "divvy-test-vendor-binary ";
#define BINARY_HEADER_BYTES (sizeof binary_magic - 1 + 2)

static char binary_letter(cl_program_binary_type type)
{
    return type == CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT ? 'o' : type == CL_PROGRAM_BINARY_TYPE_LIBRARY ? 'l' : 'e';
}

static bool binary_is_good(const unsigned char *binary, size_t length)
{
    if (binary == NULL || length < BINARY_HEADER_BYTES || length > MAX_SOURCE_BYTES ||
        memcmp(binary, binary_magic, sizeof binary_magic - 1) != 0) {
        return false;
    }
    char letter = (char)binary[sizeof binary_magic - 1];
    return letter == 'o' || letter == 'l' || letter == 'e';
}

/* ---- programs -------------------------------------------------------------------------------*/

static void destroy_program(struct dv_object *object)
{
    cl_program program = (cl_program)object;
    dv_object_unref(program->context);
    pthread_mutex_destroy(&program->lock);
    free(program->source);
    free(program->options);
    free(program->log);
    free(program->signatures);
    free(program);
}

/* Takes over `source`. */
static cl_program create_program(cl_context context, char *source)
{
    cl_program program = calloc(1, sizeof *program);
    if (program == NULL || source == NULL) {
        free(program);
        free(source);
        return NULL;
    }
    dv_object_init(&program->base, DV_KIND_PROGRAM, destroy_program);
    pthread_mutex_init(&program->lock, NULL);
    dv_object_ref(context);
    program->context = context;
    program->num_devices = context->num_devices;
    memcpy(program->devices, context->devices, sizeof program->devices);
    program->source = source;
    for (unsigned i = 0; i < DV_MAX_DEVICES; i++) {
        program->status[i] = CL_BUILD_NONE;
    }
    return program;
}

static bool program_has_device(cl_program program, cl_device_id device)
{
    for (cl_uint i = 0; i < program->num_devices; i++) {
        if (program->devices[i] == device) {
            return true;
        }
    }
    return false;
}

cl_program CL_API_CALL clCreateProgramWithSource(cl_context context, cl_uint count, const char **strings,
                                                 const size_t *lengths, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    if (!dv_object_is(context, DV_KIND_CONTEXT)) {
        return dv_fail(errcode_ret, CL_INVALID_CONTEXT);
    }
    if (count == 0 || strings == NULL) {
        return dv_fail(errcode_ret, CL_INVALID_VALUE);
    }
    size_t total = 0;
    for (cl_uint i = 0; i < count; i++) {
        if (strings[i] == NULL) {
            return dv_fail(errcode_ret, CL_INVALID_VALUE);
        }
        total += lengths != NULL && lengths[i] != 0 ? lengths[i] : strlen(strings[i]);
    }
    char *source = total <= MAX_SOURCE_BYTES ? malloc(total + 1) : NULL;
    size_t used = 0;
    for (cl_uint i = 0; source != NULL && i < count; i++) {
        size_t length = lengths != NULL && lengths[i] != 0 ? lengths[i] : strlen(strings[i]);
        memcpy(source + used, strings[i], length);
        used += length;
    }
    if (source != NULL) {
        source[used] = '\0';
    }
    cl_program program = create_program(context, source);
    dv_fail(errcode_ret, program != NULL ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY);
    return program;
}

cl_program CL_API_CALL clCreateProgramWithBinary(cl_context context, cl_uint num_devices,
                                                 const cl_device_id *device_list, const size_t *lengths,
                                                 const unsigned char **binaries, cl_int *binary_status,
                                                 cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    if (!dv_object_is(context, DV_KIND_CONTEXT)) {
        return dv_fail(errcode_ret, CL_INVALID_CONTEXT);
    }
    if (num_devices == 0 || num_devices > DV_MAX_DEVICES || device_list == NULL || lengths == NULL ||
        binaries == NULL) {
        return dv_fail(errcode_ret, CL_INVALID_VALUE);
    }
    cl_int error = CL_SUCCESS;
    for (cl_uint i = 0; i < num_devices; i++) {
        if (!dv_context_has_device(context, device_list[i])) {
            return dv_fail(errcode_ret, CL_INVALID_DEVICE);
        }
        cl_int status = CL_SUCCESS;
        if (lengths[i] == 0 || binaries[i] == NULL) {
            status = CL_INVALID_VALUE;
        } else if (!binary_is_good(binaries[i], lengths[i])) {
            status = CL_INVALID_BINARY;
        }
        if (binary_status != NULL) {
            binary_status[i] = status;
        }
        error = error == CL_SUCCESS ? status : error;
    }
    if (error != CL_SUCCESS) {
        return dv_fail(errcode_ret, error);
    }
    size_t length = lengths[0] - BINARY_HEADER_BYTES;
    char *source = strndup((const char *)binaries[0] + BINARY_HEADER_BYTES, length);
    cl_program program = create_program(context, source);
    if (program == NULL) {
        return dv_fail(errcode_ret, CL_OUT_OF_HOST_MEMORY);
    }
    program->from_binary = true;
    program->num_devices = num_devices;
    memcpy(program->devices, device_list, num_devices * sizeof device_list[0]);
    char letter = (char)binaries[0][sizeof binary_magic - 1];
    program->binary_type = letter == 'o'   ? CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT
                           : letter == 'l' ? CL_PROGRAM_BINARY_TYPE_LIBRARY
                                           : CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
    dv_fail(errcode_ret, CL_SUCCESS);
    return program;
}

cl_program CL_API_CALL clCreateProgramWithBuiltInKernels(cl_context context, cl_uint num_devices,
                                                         const cl_device_id *device_list, const char *kernel_names,
                                                         cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    /* there are none, so no name can be right */
    return dv_fail(errcode_ret, dv_object_is(context, DV_KIND_CONTEXT) ? CL_INVALID_VALUE : CL_INVALID_CONTEXT);
}

cl_int CL_API_CALL clRetainProgram(cl_program program)
{
    DV_ENTER();
    return dv_object_is(program, DV_KIND_PROGRAM) && dv_object_api_retain(program) ? CL_SUCCESS : CL_INVALID_PROGRAM;
}

cl_int CL_API_CALL clReleaseProgram(cl_program program)
{
    DV_ENTER();
    return dv_object_is(program, DV_KIND_PROGRAM) && dv_object_api_release(program) ? CL_SUCCESS : CL_INVALID_PROGRAM;
}

/* ---- building -------------------------------------------------------------------------------*/

static cl_int check_build(cl_program program, cl_uint num_devices, const cl_device_id *devices, const void *notify,
                          const void *user_data)
{
    if (!dv_object_is(program, DV_KIND_PROGRAM)) {
        return CL_INVALID_PROGRAM;
    }
    if ((num_devices == 0) != (devices == NULL) || (notify == NULL && user_data != NULL)) {
        return CL_INVALID_VALUE;
    }
    for (cl_uint i = 0; i < num_devices; i++) {
        if (!program_has_device(program, devices[i])) {
            return CL_INVALID_DEVICE;
        }
    }
    return dv_device_is_lost() ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

static bool options_are_good(const char *options)
{
    while (options != NULL && isspace((unsigned char)*options)) {
        options++;
    }
    return options == NULL || *options == '\0' || *options == '-';
}

/* Kernels take their ids from the launch, whatever the source says. */
static bool keeps_ids(const char *source, char *message, size_t size)
{
    if (source == NULL || strstr(source, "#define get_global_id") == NULL) {
        return true;
    }
    snprintf(message, size, "kernels of this driver know no other get_global_id");
    return false;
}

/* Parses the source and notes the outcome; the program's lock is held. */
static bool build_locked(cl_program program, cl_uint num_devices, const cl_device_id *devices, const char *options,
                         cl_program_binary_type type, bool take_rules)
{
    char message[512];
    struct dv_signature *signatures = NULL;
    cl_uint count = 0;
    bool good = keeps_ids(program->source, message, sizeof message) &&
                dv_source_parse(program->source, &signatures, &count, message, sizeof message) &&
                (!take_rules || dv_source_take_rules(program->source, message, sizeof message));
    if (num_devices == 0) {
        num_devices = program->num_devices;
        devices = program->devices;
    }
    for (cl_uint i = 0; i < num_devices; i++) {
        program->status[devices[i]->index] = good ? CL_BUILD_SUCCESS : CL_BUILD_ERROR;
    }
    free(program->options);
    program->options = strdup(options != NULL ? options : "");
    free(program->log);
    program->log = good ? NULL : strdup(message);
    free(program->signatures);
    program->signatures = good ? signatures : NULL;
    program->num_signatures = good ? count : 0;
    program->binary_type = good ? type : CL_PROGRAM_BINARY_TYPE_NONE;
    program->has_arg_info = !program->from_binary && options != NULL && strstr(options, "-cl-kernel-arg-info") != NULL;
    if (!good) {
        free(signatures);
    }
    return good;
}

cl_int CL_API_CALL clBuildProgram(cl_program program, cl_uint num_devices, const cl_device_id *device_list,
                                  const char *options, void(CL_CALLBACK *pfn_notify)(cl_program, void *),
                                  void *user_data)
{
    DV_ENTER();
    cl_int error = check_build(program, num_devices, device_list, (void *)pfn_notify, user_data);
    if (error != CL_SUCCESS) {
        return error;
    }
    if (!options_are_good(options)) {
        return CL_INVALID_BUILD_OPTIONS;
    }
    pthread_mutex_lock(&program->lock);
    if (program->attached_kernels > 0) {
        error = CL_INVALID_OPERATION;
    } else if (!build_locked(program, num_devices, device_list, options, CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
                             !program->from_binary)) {
        error = CL_BUILD_PROGRAM_FAILURE;
    }
    pthread_mutex_unlock(&program->lock);
    if (pfn_notify != NULL && error != CL_INVALID_OPERATION) {
        pfn_notify(program, user_data);
    }
    return error;
}

cl_int CL_API_CALL clCompileProgram(cl_program program, cl_uint num_devices, const cl_device_id *device_list,
                                    const char *options, cl_uint num_headers, const cl_program *headers,
                                    const char **header_names, void(CL_CALLBACK *pfn_notify)(cl_program, void *),
                                    void *user_data)
{
    DV_ENTER();
    cl_int error = check_build(program, num_devices, device_list, (void *)pfn_notify, user_data);
    if (error != CL_SUCCESS) {
        return error;
    }
    if ((num_headers == 0) != (headers == NULL) || (num_headers == 0) != (header_names == NULL)) {
        return CL_INVALID_VALUE;
    }
    if (!options_are_good(options)) {
        return CL_INVALID_COMPILER_OPTIONS;
    }
    pthread_mutex_lock(&program->lock);
    if (program->attached_kernels > 0 || program->from_binary) {
        error = CL_INVALID_OPERATION;
    } else if (!build_locked(program, num_devices, device_list, options, CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT,
                             true)) {
        error = CL_COMPILE_PROGRAM_FAILURE;
    }
    pthread_mutex_unlock(&program->lock);
    if (pfn_notify != NULL && error != CL_INVALID_OPERATION) {
        pfn_notify(program, user_data);
    }
    return error;
}

/* The sources of all inputs one behind another; NULL if one of them is not compiled. */
static char *join_sources(cl_uint num_inputs, const cl_program *inputs, bool *have_arg_info, cl_int *error)
{
    *have_arg_info = true;
    char *joined = strdup("");
    for (cl_uint i = 0; joined != NULL && i < num_inputs; i++) {
        pthread_mutex_lock(&inputs[i]->lock);
        bool linkable = inputs[i]->binary_type == CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT ||
                        inputs[i]->binary_type == CL_PROGRAM_BINARY_TYPE_LIBRARY;
        *have_arg_info = *have_arg_info && inputs[i]->has_arg_info;
        pthread_mutex_unlock(&inputs[i]->lock);
        char *longer = NULL;
        if (!linkable) {
            *error = CL_INVALID_OPERATION;
        } else if (asprintf(&longer, "%s%s\n", joined, inputs[i]->source) < 0) {
            longer = NULL;
        }
        free(joined);
        joined = longer;
    }
    return joined;
}

cl_program CL_API_CALL clLinkProgram(cl_context context, cl_uint num_devices, const cl_device_id *device_list,
                                     const char *options, cl_uint num_inputs, const cl_program *inputs,
                                     void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data,
                                     cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    if (!dv_object_is(context, DV_KIND_CONTEXT)) {
        return dv_fail(errcode_ret, CL_INVALID_CONTEXT);
    }
    if ((num_devices == 0) != (device_list == NULL) || num_inputs == 0 || inputs == NULL ||
        (pfn_notify == NULL && user_data != NULL)) {
        return dv_fail(errcode_ret, CL_INVALID_VALUE);
    }
    for (cl_uint i = 0; i < num_devices; i++) {
        if (!dv_context_has_device(context, device_list[i])) {
            return dv_fail(errcode_ret, CL_INVALID_DEVICE);
        }
    }
    for (cl_uint i = 0; i < num_inputs; i++) {
        if (!dv_object_is(inputs[i], DV_KIND_PROGRAM)) {
            return dv_fail(errcode_ret, CL_INVALID_PROGRAM);
        }
    }
    if (!options_are_good(options)) {
        return dv_fail(errcode_ret, CL_INVALID_LINKER_OPTIONS);
    }
    cl_int error = CL_OUT_OF_HOST_MEMORY;
    bool arg_info;
    char *source = join_sources(num_inputs, inputs, &arg_info, &error);
    cl_program program = create_program(context, source);
    if (program == NULL) {
        return dv_fail(errcode_ret, error);
    }
    bool library = options != NULL && strstr(options, "-create-library") != NULL;
    pthread_mutex_lock(&program->lock);
    bool good = build_locked(program, num_devices, device_list, options,
                             library ? CL_PROGRAM_BINARY_TYPE_LIBRARY : CL_PROGRAM_BINARY_TYPE_EXECUTABLE, false);
    program->has_arg_info = arg_info;
    pthread_mutex_unlock(&program->lock);
    dv_fail(errcode_ret, good ? CL_SUCCESS : CL_LINK_PROGRAM_FAILURE);
    if (pfn_notify != NULL) {
        pfn_notify(program, user_data);
    }
    return program;
}

/* ---- queries about programs -----------------------------------------------------------------*/

static size_t binary_bytes(cl_program program, cl_uint device)
{
    return program->status[program->devices[device]->index] == CL_BUILD_SUCCESS || program->from_binary
               ? BINARY_HEADER_BYTES + strlen(program->source)
               : 0;
}

static cl_int answer_binaries(cl_program program, size_t param_value_size, void *param_value,
                              size_t *param_value_size_ret)
{
    size_t needed = program->num_devices * sizeof(unsigned char *);
    if (param_value_size_ret != NULL) {
        *param_value_size_ret = needed;
    }
    if (param_value == NULL) {
        return CL_SUCCESS;
    }
    if (param_value_size < needed) {
        return CL_INVALID_VALUE;
    }
    unsigned char **places = param_value;
    for (cl_uint i = 0; i < program->num_devices; i++) {
        if (places[i] == NULL || binary_bytes(program, i) == 0) {
            continue;
        }
        memcpy(places[i], binary_magic, sizeof binary_magic - 1);
        places[i][sizeof binary_magic - 1] = (unsigned char)binary_letter(program->binary_type);
        places[i][sizeof binary_magic] = '\n';
        memcpy(places[i] + BINARY_HEADER_BYTES, program->source, strlen(program->source));
    }
    return CL_SUCCESS;
}

static bool is_executable(cl_program program)
{
    for (cl_uint i = 0; i < program->num_devices; i++) {
        if (program->status[program->devices[i]->index] == CL_BUILD_SUCCESS &&
            program->binary_type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE) {
            return true;
        }
    }
    return false;
}

static cl_int answer_kernel_names(cl_program program, size_t param_value_size, void *param_value,
                                  size_t *param_value_size_ret)
{
    size_t room = 1;
    for (cl_uint i = 0; i < program->num_signatures; i++) {
        room += strlen(program->signatures[i].name) + 1;
    }
    char *names = calloc(1, room);
    if (names == NULL) {
        return CL_OUT_OF_HOST_MEMORY;
    }
    for (cl_uint i = 0; i < program->num_signatures; i++) {
        strcat(names, i > 0 ? ";" : "");
        strcat(names, program->signatures[i].name);
    }
    cl_int result = DV_STRING(names);
    free(names);
    return result;
}

static cl_int answer_program_info(cl_program program, cl_program_info param_name, size_t param_value_size,
                                  void *param_value, size_t *param_value_size_ret)
{
    switch (param_name) {
    case CL_PROGRAM_REFERENCE_COUNT:
        return DV_VALUE(cl_uint, dv_object_count(program));
    case CL_PROGRAM_CONTEXT:
        return DV_VALUE(cl_context, program->context);
    case CL_PROGRAM_NUM_DEVICES:
        return DV_VALUE(cl_uint, program->num_devices);
    case CL_PROGRAM_DEVICES:
        return DV_BYTES(program->devices, program->num_devices * sizeof(cl_device_id));
    case CL_PROGRAM_SOURCE:
        return DV_STRING(program->from_binary ? "" : program->source);
    case CL_PROGRAM_IL:
        return DV_NOTHING;
    case CL_PROGRAM_BINARY_SIZES: {
        size_t sizes[DV_MAX_DEVICES];
        for (cl_uint i = 0; i < program->num_devices; i++) {
            sizes[i] = binary_bytes(program, i);
        }
        return DV_BYTES(sizes, program->num_devices * sizeof sizes[0]);
    }
    case CL_PROGRAM_BINARIES:
        return answer_binaries(program, param_value_size, param_value, param_value_size_ret);
    case CL_PROGRAM_NUM_KERNELS:
        return is_executable(program) ? DV_VALUE(size_t, program->num_signatures) : CL_INVALID_PROGRAM_EXECUTABLE;
    case CL_PROGRAM_KERNEL_NAMES:
        return is_executable(program)
                   ? answer_kernel_names(program, param_value_size, param_value, param_value_size_ret)
                   : CL_INVALID_PROGRAM_EXECUTABLE;
    case CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT:
    case CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT:
        return DV_VALUE(cl_bool, CL_FALSE);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int CL_API_CALL clGetProgramInfo(cl_program program, cl_program_info param_name, size_t param_value_size,
                                    void *param_value, size_t *param_value_size_ret)
{
    DV_ENTER();
    if (!dv_object_is(program, DV_KIND_PROGRAM)) {
        return CL_INVALID_PROGRAM;
    }
    pthread_mutex_lock(&program->lock);
    cl_int result = answer_program_info(program, param_name, param_value_size, param_value, param_value_size_ret);
    pthread_mutex_unlock(&program->lock);
    return result;
}

static cl_int answer_build_info(cl_program program, cl_device_id device, cl_program_build_info param_name,
                                size_t param_value_size, void *param_value, size_t *param_value_size_ret)
{
    cl_build_status status = program->status[device->index];
    switch (param_name) {
    case CL_PROGRAM_BUILD_STATUS:
        return DV_VALUE(cl_build_status, status);
    case CL_PROGRAM_BUILD_OPTIONS:
        return DV_STRING(program->options != NULL ? program->options : "");
    case CL_PROGRAM_BUILD_LOG:
        return DV_STRING(program->log != NULL ? program->log : "");
    case CL_PROGRAM_BINARY_TYPE:
        return DV_VALUE(cl_program_binary_type, status == CL_BUILD_SUCCESS || program->from_binary
                                                    ? program->binary_type
                                                    : CL_PROGRAM_BINARY_TYPE_NONE);
    case CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE:
        return DV_VALUE(size_t, 0);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int CL_API_CALL clGetProgramBuildInfo(cl_program program, cl_device_id device, cl_program_build_info param_name,
                                         size_t param_value_size, void *param_value, size_t *param_value_size_ret)
{
    DV_ENTER();
    if (!dv_object_is(program, DV_KIND_PROGRAM)) {
        return CL_INVALID_PROGRAM;
    }
    if (!dv_object_is(device, DV_KIND_DEVICE) || !program_has_device(program, device)) {
        return CL_INVALID_DEVICE;
    }
    pthread_mutex_lock(&program->lock);
    cl_int result = answer_build_info(program, device, param_name, param_value_size, param_value, param_value_size_ret);
    pthread_mutex_unlock(&program->lock);
    return result;
}

/* ---- kernels --------------------------------------------------------------------------------*/

static void destroy_kernel(struct dv_object *object)
{
    cl_kernel kernel = (cl_kernel)object;
    pthread_mutex_lock(&kernel->program->lock);
    kernel->program->attached_kernels--;
    pthread_mutex_unlock(&kernel->program->lock);
    dv_object_unref(kernel->program);
    for (unsigned i = 0; i < DV_MAX_KERNEL_ARGS; i++) {
        free(kernel->args[i].value);
    }
    free(kernel);
}

/* The program's lock is held. */
static cl_kernel create_kernel_locked(cl_program program, const struct dv_signature *signature)
{
    cl_kernel kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL) {
        return NULL;
    }
    dv_object_init(&kernel->base, DV_KIND_KERNEL, destroy_kernel);
    dv_object_ref(program);
    program->attached_kernels++;
    kernel->program = program;
    kernel->signature = signature;
    return kernel;
}

cl_kernel CL_API_CALL clCreateKernel(cl_program program, const char *kernel_name, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    if (!dv_object_is(program, DV_KIND_PROGRAM)) {
        return dv_fail(errcode_ret, CL_INVALID_PROGRAM);
    }
    if (kernel_name == NULL) {
        return dv_fail(errcode_ret, CL_INVALID_VALUE);
    }
    pthread_mutex_lock(&program->lock);
    cl_int error = is_executable(program) ? CL_INVALID_KERNEL_NAME : CL_INVALID_PROGRAM_EXECUTABLE;
    cl_kernel kernel = NULL;
    for (cl_uint i = 0; error == CL_INVALID_KERNEL_NAME && i < program->num_signatures; i++) {
        if (strcmp(program->signatures[i].name, kernel_name) == 0) {
            kernel = create_kernel_locked(program, &program->signatures[i]);
            error = kernel != NULL ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
        }
    }
    pthread_mutex_unlock(&program->lock);
    dv_fail(errcode_ret, error);
    return kernel;
}

cl_int CL_API_CALL clCreateKernelsInProgram(cl_program program, cl_uint num_kernels, cl_kernel *kernels,
                                            cl_uint *num_kernels_ret)
{
    DV_ENTER();
    if (!dv_object_is(program, DV_KIND_PROGRAM)) {
        return CL_INVALID_PROGRAM;
    }
    cl_int error = CL_SUCCESS;
    pthread_mutex_lock(&program->lock);
    if (!is_executable(program)) {
        error = CL_INVALID_PROGRAM_EXECUTABLE;
    } else if (kernels != NULL && num_kernels < program->num_signatures) {
        error = CL_INVALID_VALUE;
    }
    for (cl_uint i = 0; error == CL_SUCCESS && kernels != NULL && i < program->num_signatures; i++) {
        kernels[i] = create_kernel_locked(program, &program->signatures[i]);
    }
    if (error == CL_SUCCESS && num_kernels_ret != NULL) {
        *num_kernels_ret = program->num_signatures;
    }
    pthread_mutex_unlock(&program->lock);
    return error;
}

cl_kernel CL_API_CALL clCloneKernel(cl_kernel source, cl_int *errcode_ret)
{
    DV_ENTER_CREATE(errcode_ret);
    if (!dv_object_is(source, DV_KIND_KERNEL)) {
        return dv_fail(errcode_ret, CL_INVALID_KERNEL);
    }
    pthread_mutex_lock(&source->program->lock);
    cl_kernel kernel = create_kernel_locked(source->program, source->signature);
    pthread_mutex_unlock(&source->program->lock);
    for (unsigned i = 0; kernel != NULL && i < DV_MAX_KERNEL_ARGS; i++) {
        kernel->args[i] = source->args[i];
        if (source->args[i].value != NULL) {
            kernel->args[i].value = malloc(source->args[i].size);
            memcpy(kernel->args[i].value, source->args[i].value, source->args[i].size);
        }
    }
    dv_fail(errcode_ret, kernel != NULL ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY);
    return kernel;
}

cl_int CL_API_CALL clRetainKernel(cl_kernel kernel)
{
    DV_ENTER();
    return dv_object_is(kernel, DV_KIND_KERNEL) && dv_object_api_retain(kernel) ? CL_SUCCESS : CL_INVALID_KERNEL;
}

cl_int CL_API_CALL clReleaseKernel(cl_kernel kernel)
{
    DV_ENTER();
    return dv_object_is(kernel, DV_KIND_KERNEL) && dv_object_api_release(kernel) ? CL_SUCCESS : CL_INVALID_KERNEL;
}

static cl_int check_argument(const struct dv_arg_signature *arg, size_t size, const void *value)
{
    void *handle = NULL;
    switch (arg->class) {
    case DV_ARG_LOCAL:
        return value != NULL ? CL_INVALID_ARG_VALUE : size == 0 ? CL_INVALID_ARG_SIZE : CL_SUCCESS;
    case DV_ARG_VALUE:
        if (value == NULL) {
            return CL_INVALID_ARG_VALUE;
        }
        return size == 0 || (arg->value_bytes != 0 && size != arg->value_bytes) ? CL_INVALID_ARG_SIZE : CL_SUCCESS;
    default:
        break;
    }
    if (size != sizeof handle) {
        return CL_INVALID_ARG_SIZE;
    }
    if (value != NULL) {
        memcpy(&handle, value, sizeof handle);
    }
    switch (arg->class) {
    case DV_ARG_SAMPLER:
        return dv_object_is(handle, DV_KIND_SAMPLER) ? CL_SUCCESS : CL_INVALID_SAMPLER;
    case DV_ARG_IMAGE:
        return dv_object_is(handle, DV_KIND_MEM) && dv_mem_is_image(handle) ? CL_SUCCESS : CL_INVALID_MEM_OBJECT;
    default:
        return handle == NULL || (dv_object_is(handle, DV_KIND_MEM) && !dv_mem_is_image(handle))
                   ? CL_SUCCESS
                   : CL_INVALID_MEM_OBJECT;
    }
}

cl_int CL_API_CALL clSetKernelArg(cl_kernel kernel, cl_uint arg_index, size_t arg_size, const void *arg_value)
{
    DV_ENTER();
    if (!dv_object_is(kernel, DV_KIND_KERNEL)) {
        return CL_INVALID_KERNEL;
    }
    if (arg_index >= kernel->signature->num_args) {
        return CL_INVALID_ARG_INDEX;
    }
    const struct dv_arg_signature *signature = &kernel->signature->args[arg_index];
    cl_int error = check_argument(signature, arg_size, arg_value);
    if (error != CL_SUCCESS) {
        return error;
    }
    void *copy = NULL;
    if (signature->class != DV_ARG_LOCAL) {
        copy = calloc(1, arg_size);
        if (copy == NULL) {
            return CL_OUT_OF_HOST_MEMORY;
        }
        if (arg_value != NULL) {
            memcpy(copy, arg_value, arg_size);
        }
    }
    free(kernel->args[arg_index].value);
    kernel->args[arg_index] = (struct dv_arg){.set = true, .size = arg_size, .value = copy};
    return CL_SUCCESS;
}

cl_int CL_API_CALL clGetKernelInfo(cl_kernel kernel, cl_kernel_info param_name, size_t param_value_size,
                                   void *param_value, size_t *param_value_size_ret)
{
    DV_ENTER();
    if (!dv_object_is(kernel, DV_KIND_KERNEL)) {
        return CL_INVALID_KERNEL;
    }
    switch (param_name) {
    case CL_KERNEL_FUNCTION_NAME:
        return DV_STRING(kernel->signature->name);
    case CL_KERNEL_NUM_ARGS:
        return DV_VALUE(cl_uint, kernel->signature->num_args);
    case CL_KERNEL_REFERENCE_COUNT:
        return DV_VALUE(cl_uint, dv_object_count(kernel));
    case CL_KERNEL_CONTEXT:
        return DV_VALUE(cl_context, kernel->program->context);
    case CL_KERNEL_PROGRAM:
        return DV_VALUE(cl_program, kernel->program);
    case CL_KERNEL_ATTRIBUTES:
        return DV_STRING(kernel->program->from_binary ? "" : kernel->signature->attributes);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int CL_API_CALL clGetKernelArgInfo(cl_kernel kernel, cl_uint arg_index, cl_kernel_arg_info param_name,
                                      size_t param_value_size, void *param_value, size_t *param_value_size_ret)
{
    DV_ENTER();
    if (!dv_object_is(kernel, DV_KIND_KERNEL)) {
        return CL_INVALID_KERNEL;
    }
    if (arg_index >= kernel->signature->num_args) {
        return CL_INVALID_ARG_INDEX;
    }
    /* as strict as the standard allows: only what was built with the option tells */
    if (!kernel->program->has_arg_info) {
        return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
    }
    const struct dv_arg_signature *arg = &kernel->signature->args[arg_index];
    switch (param_name) {
    case CL_KERNEL_ARG_ADDRESS_QUALIFIER:
        return DV_VALUE(cl_kernel_arg_address_qualifier, arg->address);
    case CL_KERNEL_ARG_ACCESS_QUALIFIER:
        return DV_VALUE(cl_kernel_arg_access_qualifier, arg->access);
    case CL_KERNEL_ARG_TYPE_NAME:
        return DV_STRING(arg->type_name);
    case CL_KERNEL_ARG_TYPE_QUALIFIER:
        return DV_VALUE(cl_kernel_arg_type_qualifier, arg->type_qualifier);
    case CL_KERNEL_ARG_NAME:
        return DV_STRING(arg->name);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int CL_API_CALL clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info param_name,
                                            size_t param_value_size, void *param_value, size_t *param_value_size_ret)
{
    DV_ENTER();
    if (!dv_object_is(kernel, DV_KIND_KERNEL)) {
        return CL_INVALID_KERNEL;
    }
    if (device == NULL ? kernel->program->num_devices > 1 : !program_has_device(kernel->program, device)) {
        return CL_INVALID_DEVICE;
    }
    cl_ulong local_bytes = 0;
    switch (param_name) {
    case CL_KERNEL_WORK_GROUP_SIZE:
        return DV_VALUE(size_t, DV_MAX_WORK_GROUP_SIZE);
    case CL_KERNEL_COMPILE_WORK_GROUP_SIZE:
        return DV_ARRAY(kernel->signature->required_group);
    case CL_KERNEL_LOCAL_MEM_SIZE:
        for (cl_uint i = 0; i < kernel->signature->num_args; i++) {
            if (kernel->signature->args[i].class == DV_ARG_LOCAL) {
                local_bytes += kernel->args[i].size;
            }
        }
        return DV_VALUE(cl_ulong, local_bytes);
    case CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
        return DV_VALUE(size_t, 1);
    case CL_KERNEL_PRIVATE_MEM_SIZE:
        return DV_VALUE(cl_ulong, 0);
    default:
        return CL_INVALID_VALUE;
    }
}
