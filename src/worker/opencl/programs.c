/* Programs: source, binaries, IL; build, compile and link. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/worker/opencl/executor.h"

/* A private copy of bulk data that the client placed in the arena: it could still change there. */
static uint8_t *copy_bulk(struct dvk_worker *w, uint64_t offset, uint64_t bytes)
{
    const uint8_t *shared = bytes > DV_MAX_PROGRAM_BYTES  ? NULL
                            : !w->follows                 ? dvk_runtime_arena(w->runtime, offset, bytes)
                            : bytes != w->following_bytes ? NULL
                            : bytes                       ? w->following_data
                                                          : (const uint8_t *)"";
    uint8_t *copy = shared ? malloc(bytes + 1) : NULL;

    if (copy) {
        memcpy(copy, shared, bytes);
        copy[bytes] = '\0';
    }
    return copy;
}

static bool read_devices(struct dvk_worker *w, const uint8_t *tail, size_t tail_bytes, uint32_t count,
                         cl_device_id *devices)
{
    if (count > DV_MAX_DEVICES || tail_bytes / 4 < count)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        struct dv_object_id id;
        memcpy(&id, tail + 4 * i, 4);
        struct dvk_device *device = dvk_find_device(w, id);
        if (!device)
            return false;
        devices[i] = device->vendor;
    }
    return true;
}

/* data: for each device u64 length, the binary, padding to 8 bytes. */
static cl_program from_binaries(struct dvk_context *context, const uint8_t *data, uint64_t bytes, uint32_t count,
                                const cl_device_id *devices, cl_int *error)
{
    const unsigned char *binaries[DV_MAX_DEVICES];
    size_t lengths[DV_MAX_DEVICES];
    uint64_t at = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t length;
        if (bytes - at < sizeof length)
            goto malformed;
        memcpy(&length, data + at, sizeof length);
        at += sizeof length;
        if (length > bytes - at)
            goto malformed;
        binaries[i] = data + at;
        lengths[i] = length;
        at += dv_record_align(length);
        if (at > bytes)
            at = bytes;
    }
    return clCreateProgramWithBinary(context->vendor, count, devices, lengths, binaries, NULL, error);
malformed:
    *error = CL_INVALID_VALUE;
    return NULL;
}

void dvk_program_free(struct dvk_program *program)
{
    clReleaseProgram(program->vendor);
    dvk_correction_unref(program->correction);
    dvk_origin_unref(program->origin);
    free(program);
}

int32_t dvk_on_create_program(struct dvk_worker *w, const struct dvw_create_program *m, const uint8_t *tail,
                              size_t tail_bytes, struct dvk_reply *reply)
{
    struct dvk_context *context = dvk_find_context(w, m->context);
    DV_AUTO_FREE uint8_t *data = copy_bulk(w, m->data, m->data_bytes);
    cl_device_id devices[DV_MAX_DEVICES];
    cl_program vendor = NULL;
    struct dvk_verdict verdict = {.kind = DV_CUT_WHOLE, .reason = DV_WHOLE_BINARY};
    bool may_print = true;
    cl_int error = CL_INVALID_VALUE;

    if (!context)
        return CL_INVALID_CONTEXT;
    if (!data)
        return CL_OUT_OF_HOST_MEMORY;
    if (!read_devices(w, tail, tail_bytes, m->device_count, devices))
        return CL_INVALID_DEVICE;
    switch (m->form) {
    case DV_PROGRAM_SOURCE: {
        const char *text = (const char *)data;
        size_t length = m->data_bytes;
        vendor = clCreateProgramWithSource(context->vendor, 1, &text, &length, &error);
        may_print = memmem(data, m->data_bytes, "printf", 6) || memmem(data, m->data_bytes, "#include", 8);
        verdict = dvk_verdict_of_source(text, length);
        break;
    }
    case DV_PROGRAM_BINARY:
        vendor = from_binaries(context, data, m->data_bytes, m->device_count, devices, &error);
        break;
    case DV_PROGRAM_IL:
        vendor = clCreateProgramWithIL(context->vendor, data, m->data_bytes, &error);
        verdict = dvk_verdict_of_il(data, m->data_bytes);
        break;
    case DV_PROGRAM_BUILT_IN:
        vendor =
            clCreateProgramWithBuiltInKernels(context->vendor, m->device_count, devices, (const char *)data, &error);
        break;
    }
    if (error != CL_SUCCESS)
        return error;
    struct dvk_program *program = calloc(1, sizeof *program);
    if (program) {
        *program =
            (struct dvk_program){.vendor = vendor, .context = context, .verdict = verdict, .may_print = may_print};
        error = dvk_put(w, DV_KIND_PROGRAM, m->id, program);
    } else {
        error = CL_OUT_OF_HOST_MEMORY;
    }
    if (error != CL_SUCCESS) {
        clReleaseProgram(vendor);
        free(program);
        return error;
    }
    program->origin = dvk_origin_new(&w->history);
    dvk_kept_needs(dvk_origin_keep(program->origin, &m->head.record, w->runtime->graph.arrivals, data, m->data_bytes),
                   context->origin);
    data = NULL; /* taken over */
    return CL_SUCCESS;
}

static cl_int read_kernel_names(cl_program program, size_t *count, char **names, size_t *bytes)
{
    cl_int error = clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof *count, count, NULL);

    if (error == CL_SUCCESS)
        error = clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, 0, NULL, bytes);
    if (error == CL_SUCCESS && !(*names = calloc(1, *bytes + 1)))
        error = CL_OUT_OF_HOST_MEMORY;
    if (error == CL_SUCCESS)
        error = clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, *bytes, *names, NULL);
    return error;
}

/* Replies to a build. It fails if resources were too short to read the kernels' names. Other errors come from programs
 * without kernels, such as libraries. */
static cl_int put_kernel_names(cl_program program, cl_int build_status, struct dvk_reply *reply)
{
    DV_AUTO_FREE char *names = NULL;
    size_t count = 0, bytes = 0;

    if (build_status == CL_SUCCESS) {
        cl_int error = read_kernel_names(program, &count, &names, &bytes);
        if (error == CL_OUT_OF_RESOURCES || error == CL_OUT_OF_HOST_MEMORY)
            build_status = error;
        if (error != CL_SUCCESS)
            count = bytes = 0;
    }
    struct dv_wire_build answer = {
        .build_status = build_status, .kernel_count = (uint32_t)count, .names_bytes = (uint32_t)bytes};
    dvk_reply_put(reply, &answer, sizeof answer);
    if (bytes)
        dvk_reply_put(reply, names, bytes);
    return build_status;
}

/* What the programs given to compile or link have in common. */
struct others {
    bool may_print;
    struct dvk_verdict verdict;
};

/* Of the builds of a program only the last one counts. data is taken over. */
static void keep_build(struct dvk_worker *w, struct dvk_program *program, const struct dvw_build_program *m,
                       const uint8_t *tail, uint8_t *data)
{
    dvk_origin_forget(program->origin, DVW_OP_BUILD_PROGRAM);
    struct dvk_kept *kept =
        dvk_origin_keep(program->origin, &m->head.record, w->runtime->graph.arrivals, data, m->data_bytes);
    dvk_kept_needs(kept, program->context->origin);
    for (uint32_t i = 0; i < m->header_count; i++) {
        struct dv_object_id id;
        memcpy(&id, tail + 4 * (m->device_count + i), sizeof id);
        const struct dvk_program *other = dvk_find_program(w, id);
        if (other && other != program)
            dvk_kept_needs(kept, other->origin);
    }
}

/* Programs given to compile (as headers) or link (as inputs), by id, behind the device ids. */
static cl_program *read_programs(struct dvk_worker *w, const uint8_t *tail, size_t tail_bytes, uint32_t skip,
                                 uint32_t count, struct others *others)
{
    if (tail_bytes / 4 < (size_t)skip + count)
        return NULL;
    cl_program *list = calloc(count ? count : 1, sizeof *list);
    for (uint32_t i = 0; list && i < count; i++) {
        struct dv_object_id id;
        memcpy(&id, tail + 4 * (skip + i), 4);
        struct dvk_program *program = dvk_find_program(w, id);
        if (!program) {
            free(list);
            return NULL;
        }
        list[i] = program->vendor;
        others->may_print |= program->may_print;
        others->verdict = dvk_verdict_of_both(others->verdict, program->verdict);
    }
    return list;
}

/* Behind the options: header_count names, each ended by NUL. */
static const char **read_header_names(const char *text, uint64_t bytes, uint32_t count)
{
    const char **names = calloc(count ? count : 1, sizeof *names);
    const char *end = text + bytes;

    for (uint32_t i = 0; names && i < count; i++) {
        const char *stop = text < end ? memchr(text, '\0', (size_t)(end - text)) : NULL;
        if (!stop) {
            free(names);
            return NULL;
        }
        names[i] = text;
        text = stop + 1;
    }
    return names;
}

/* A vendor can keep a released kernel for a moment after the worker learns that its last command is complete. It
 * refuses to build until then. The client has made sure that the application has no kernel of the program left. */
static cl_int build_when_free(cl_program program, cl_uint count, const cl_device_id *devices, const char *options)
{
    cl_int error;

    for (int tries = 0; tries < 500; tries++) {
        error = clBuildProgram(program, count, devices, options, NULL, NULL);
        if (error != CL_INVALID_OPERATION)
            break;
        usleep(200);
    }
    return error;
}

struct build {
    uint32_t action;
    cl_program program; /* to be built or compiled, or the result of linking the others */
    cl_context context;
    cl_uint device_count, other_count;
    const cl_device_id *devices;
    const char *options;
    const cl_program *others;
    const char **names;
    cl_int error;
};

static void build(void *argument)
{
    struct build *b = argument;

    if (b->action == DV_LINK)
        b->program = clLinkProgram(b->context, b->device_count, b->devices, b->options, b->other_count, b->others, NULL,
                                   NULL, &b->error);
    else if (b->action == DV_BUILD)
        b->error = build_when_free(b->program, b->device_count, b->devices, b->options);
    else if (b->action == DV_COMPILE)
        b->error = clCompileProgram(b->program, b->device_count, b->devices, b->options, b->other_count,
                                    b->other_count ? b->others : NULL, b->other_count ? b->names : NULL, NULL, NULL);
}

int32_t dvk_on_build_program(struct dvk_worker *w, const struct dvw_build_program *m, const uint8_t *tail,
                             size_t tail_bytes, struct dvk_reply *reply)
{
    DV_AUTO_FREE char *data = (char *)copy_bulk(w, m->data, m->data_bytes);
    struct dvk_program *program = dvk_find_program(w, m->id);
    cl_device_id devices[DV_MAX_DEVICES];
    struct others of_others = {.verdict.kind = DV_CUT_FREE};

    if (!data)
        return CL_OUT_OF_HOST_MEMORY;
    if (!read_devices(w, tail, tail_bytes, m->device_count, devices))
        return CL_INVALID_DEVICE;
    if (m->options_bytes > m->data_bytes || m->header_count > 4096)
        return CL_INVALID_VALUE;
    DV_AUTO_FREE char *options = strndup(data, m->options_bytes);
    DV_AUTO_FREE cl_program *others = read_programs(w, tail, tail_bytes, m->device_count, m->header_count, &of_others);
    if (!options)
        return CL_OUT_OF_HOST_MEMORY;
    if (!others)
        return CL_INVALID_PROGRAM;
    struct build b = {.action = m->action,
                      .options = options,
                      .others = others,
                      .device_count = m->device_count,
                      .other_count = m->header_count,
                      .devices = m->device_count ? devices : NULL,
                      .error = CL_INVALID_VALUE};

    if (program && strstr(options, "printf")) /* the source may use another name for it */
        program->may_print = true;
    if (m->action == DV_LINK) {
        struct dvk_context *context = dvk_find_context(w, m->context);
        if (!context)
            return CL_INVALID_CONTEXT;
        b.context = context->vendor;
        if (of_others.verdict.kind == DV_CUT_CORRECTED) /* it has no source of its own */
            of_others.verdict = (struct dvk_verdict){.kind = DV_CUT_WHOLE, .reason = DV_WHOLE_UNCORRECTED};
        dvk_runtime_take_long(w->runtime, build, &b);
        if (!b.program)
            return b.error;
        if (!(program = calloc(1, sizeof *program))) {
            clReleaseProgram(b.program);
            return CL_OUT_OF_HOST_MEMORY;
        }
        *program = (struct dvk_program){
            .vendor = b.program, .context = context, .verdict = of_others.verdict, .may_print = of_others.may_print};
        if (dvk_put(w, DV_KIND_PROGRAM, m->id, program) != CL_SUCCESS) {
            dvk_program_free(program);
            return CL_OUT_OF_HOST_MEMORY;
        }
        program->origin = dvk_origin_new(&w->history);
        keep_build(w, program, m, tail, (uint8_t *)data);
        data = NULL;
        return put_kernel_names(program->vendor, b.error, reply);
    }
    if (!program)
        return CL_INVALID_PROGRAM;
    b.program = program->vendor;
    /* macros can be given by the options, too */
    program->verdict = dvk_verdict_of_both(program->verdict, dvk_verdict_of_source(options, strlen(options)));
    DV_AUTO_FREE const char **names = NULL;
    if (m->action == DV_COMPILE) {
        names = read_header_names(data + m->options_bytes, m->data_bytes - m->options_bytes, m->header_count);
        if (!names)
            return CL_INVALID_VALUE;
        program->may_print |= of_others.may_print;
        program->verdict = dvk_verdict_of_both(program->verdict, of_others.verdict);
        b.names = names;
    }
    dvk_correction_unref(program->correction); /* of an earlier build, with other options */
    program->correction = NULL;
    dvk_runtime_take_long(w->runtime, build, &b);
    if (m->action == DV_BUILD && b.error == CL_SUCCESS && program->verdict.kind != DV_CUT_WHOLE)
        program->correction = dvk_correction_new(w->runtime, program->vendor, options, m->device_count, devices);
    keep_build(w, program, m, tail, (uint8_t *)data);
    data = NULL;
    return put_kernel_names(program->vendor, b.error, reply);
}
