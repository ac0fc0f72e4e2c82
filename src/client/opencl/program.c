/* Programs. Their texts and binaries go through the arena; building waits for the worker. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/client/opencl/objects.h"

/* Added to every build so that kernels' signatures are known; hidden from queries. */
#define ARGUMENT_INFO "-cl-kernel-arg-info"

static struct dvc_program *new_program(struct dvc_context *context, cl_uint device_count,
                                       struct dvc_device *const *devices)
{
    struct dvc_program *program = dvc_object_create(DV_KIND_PROGRAM, context->object.session);

    if (!program)
        return NULL;
    program->context = context;
    program->device_count = device_count;
    program->devices = malloc(device_count * sizeof *devices);
    program->builds = calloc(device_count, sizeof *program->builds);
    if (!program->devices || !program->builds) {
        free(program->devices);
        free(program->builds);
        dvc_object_free(&program->object);
        return NULL;
    }
    memcpy(program->devices, devices, device_count * sizeof *devices);
    dvc_object_use(&context->object);
    return program;
}

static void program_destroy(struct dvc_program *program)
{
    struct dvc_context *context = program->context;

    for (cl_uint i = 0; i < program->device_count; i++)
        free(program->builds[i].options);
    free(program->builds);
    free(program->devices);
    free(program->source);
    free(program->il);
    free(program->kernel_names);
    dvc_object_free(&program->object);
    dvc_context_unuse(context);
}

static void program_released(struct dvc_program *program)
{
    struct dvw_release message = {.kind = DV_KIND_PROGRAM, .id = program->object.id};
    dvc_send(program->object.session, DVW_OP_RELEASE, &message.head, sizeof message, NULL, 0);
    program_destroy(program);
}

cl_int dvc_program_retain(struct dvc_program *program)
{
    atomic_fetch_add(&program->object.count, 1);
    return CL_SUCCESS;
}

void dvc_program_unuse(struct dvc_program *program)
{
    if (atomic_fetch_sub(&program->object.count, DV_COUNT_USE) == DV_COUNT_USE)
        program_released(program);
}

cl_int dvc_program_release(struct dvc_program *program)
{
    if (dvc_object_refs(&program->object) == 0)
        return CL_INVALID_PROGRAM;
    if (atomic_fetch_sub(&program->object.count, 1) == 1)
        program_released(program);
    return CL_SUCCESS;
}

/* ---- creation ---- */

/* Returns 0 when there is no room, or the session is dead: a forked child does not have its memory. */
static uint64_t put_bulk(struct dvc_session *s, const void *data, size_t bytes)
{
    if (!dvc_session_alive(s))
        return 0;
    uint64_t block = dvc_arena_alloc(&s->arena, bytes);
    if (block && bytes)
        memcpy(dvc_arena_pointer(s, block), data, bytes);
    return block;
}

static cl_int why_not(struct dvc_session *s)
{
    return dvc_session_alive(s) ? CL_OUT_OF_HOST_MEMORY : CL_OUT_OF_RESOURCES;
}

static struct dvc_program *make_program(struct dvc_context *context, enum dv_program_form form, const void *data,
                                        size_t bytes, cl_uint device_count, struct dvc_device *const *devices,
                                        bool name_devices, cl_int *error)
{
    struct dvc_session *s = context->object.session;
    struct dvc_program *program = new_program(context, device_count, devices);
    struct dv_object_id ids[DV_MAX_DEVICES];

    if (!program) {
        *error = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    struct dvw_create_program message = {.id = program->object.id,
                                         .context = context->object.id,
                                         .form = form,
                                         .device_count = name_devices ? device_count : 0,
                                         .data_bytes = bytes};
    for (cl_uint i = 0; i < device_count; i++)
        ids[i] = devices[i]->object.id;
    message.data = put_bulk(s, data, bytes);
    *error = why_not(s);
    if (message.data && bytes <= DV_MAX_PROGRAM_BYTES)
        *error = dvc_call(s, DVW_OP_CREATE_PROGRAM, &message.head, sizeof message, ids, message.device_count * 4, NULL,
                          0, NULL);
    if (message.data && dvc_session_alive(s))
        dvc_arena_free(&s->arena, message.data);
    if (*error != CL_SUCCESS) {
        program_destroy(program);
        return NULL;
    }
    return program;
}

cl_program CL_API_CALL dvc_clCreateProgramWithSource(cl_context context, cl_uint count, const char **strings,
                                                     const size_t *lengths, cl_int *errcode_ret)
{
    struct dvc_context *c = dvc_context_of(context);
    struct dvc_program *program = NULL;
    cl_int error = CL_SUCCESS;
    size_t total = 0;

    if (!c)
        error = CL_INVALID_CONTEXT;
    else if (count == 0 || !strings)
        error = CL_INVALID_VALUE;
    for (cl_uint i = 0; error == CL_SUCCESS && i < count; i++) {
        if (!strings[i])
            error = CL_INVALID_VALUE;
        else
            total += lengths && lengths[i] ? lengths[i] : strlen(strings[i]);
    }
    if (error == CL_SUCCESS) {
        char *source = malloc(total + 1);
        size_t at = 0;
        for (cl_uint i = 0; source && i < count; i++) {
            size_t length = lengths && lengths[i] ? lengths[i] : strlen(strings[i]);
            memcpy(source + at, strings[i], length);
            at += length;
        }
        if (source) {
            source[total] = '\0';
            program = make_program(c, DV_PROGRAM_SOURCE, source, total, c->device_count, c->devices, false, &error);
        } else {
            error = CL_OUT_OF_HOST_MEMORY;
        }
        if (program)
            program->source = source;
        else
            free(source);
    }
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_program)program;
}

/* Reads a list of devices, which must all belong to the context. */
static cl_int read_devices(const struct dvc_context *context, cl_uint count, const cl_device_id *list,
                           struct dvc_device **devices)
{
    for (cl_uint i = 0; i < count; i++) {
        bool belongs = false;
        devices[i] = dvc_device_of(list[i]);
        for (cl_uint k = 0; devices[i] && k < context->device_count; k++)
            belongs |= context->devices[k] == devices[i];
        if (!belongs)
            return CL_INVALID_DEVICE;
    }
    return CL_SUCCESS;
}

cl_program CL_API_CALL dvc_clCreateProgramWithBinary(cl_context context, cl_uint num_devices,
                                                     const cl_device_id *device_list, const size_t *lengths,
                                                     const unsigned char **binaries, cl_int *binary_status,
                                                     cl_int *errcode_ret)
{
    struct dvc_context *c = dvc_context_of(context);
    struct dvc_device *devices[DV_MAX_DEVICES];
    struct dvc_program *program = NULL;
    cl_int error = CL_SUCCESS;
    size_t total = 0;

    if (!c)
        error = CL_INVALID_CONTEXT;
    else if (num_devices == 0 || num_devices > DV_MAX_DEVICES || !device_list || !lengths || !binaries)
        error = CL_INVALID_VALUE;
    else
        error = read_devices(c, num_devices, device_list, devices);
    for (cl_uint i = 0; error == CL_SUCCESS && i < num_devices; i++) {
        bool bad = lengths[i] == 0 || !binaries[i];
        if (binary_status)
            binary_status[i] = bad ? CL_INVALID_VALUE : CL_SUCCESS;
        if (bad)
            error = CL_INVALID_VALUE;
        total += 8 + dv_record_align(lengths[i]);
    }
    if (error == CL_SUCCESS) {
        DV_AUTO_FREE uint8_t *data = calloc(1, total);
        size_t at = 0;
        for (cl_uint i = 0; data && i < num_devices; i++) {
            uint64_t length = lengths[i];
            memcpy(data + at, &length, 8);
            memcpy(data + at + 8, binaries[i], length);
            at += 8 + dv_record_align(length);
        }
        error = CL_OUT_OF_HOST_MEMORY;
        if (data)
            program = make_program(c, DV_PROGRAM_BINARY, data, total, num_devices, devices, true, &error);
        for (cl_uint i = 0; error != CL_SUCCESS && binary_status && i < num_devices; i++)
            binary_status[i] = CL_INVALID_BINARY;
    }
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_program)program;
}

cl_program CL_API_CALL dvc_clCreateProgramWithBuiltInKernels(cl_context context, cl_uint num_devices,
                                                             const cl_device_id *device_list, const char *kernel_names,
                                                             cl_int *errcode_ret)
{
    struct dvc_context *c = dvc_context_of(context);
    struct dvc_device *devices[DV_MAX_DEVICES];
    struct dvc_program *program = NULL;
    cl_int error = CL_SUCCESS;

    if (!c)
        error = CL_INVALID_CONTEXT;
    else if (num_devices == 0 || num_devices > DV_MAX_DEVICES || !device_list || !kernel_names)
        error = CL_INVALID_VALUE;
    else
        error = read_devices(c, num_devices, device_list, devices);
    if (error == CL_SUCCESS)
        program = make_program(c, DV_PROGRAM_BUILT_IN, kernel_names, strlen(kernel_names), num_devices, devices, true,
                               &error);
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_program)program;
}

cl_program CL_API_CALL dvc_clCreateProgramWithIL(cl_context context, const void *il, size_t length, cl_int *errcode_ret)
{
    struct dvc_context *c = dvc_context_of(context);
    struct dvc_program *program = NULL;
    void *copy = NULL;
    cl_int error = CL_SUCCESS;

    if (!c)
        error = CL_INVALID_CONTEXT;
    else if (!il || length == 0)
        error = CL_INVALID_VALUE;
    else if (!(copy = malloc(length)))
        error = CL_OUT_OF_HOST_MEMORY;
    else
        program = make_program(c, DV_PROGRAM_IL, il, length, c->device_count, c->devices, false, &error);
    if (program) {
        memcpy(copy, il, length);
        program->il = copy;
        program->il_bytes = length;
    } else {
        free(copy);
    }
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_program)program;
}

/* ---- building ---- */

/* The worker has another working directory, so relative include paths get the application's as a prefix. They stay
 * relative if the source includes nothing: the vendor's kernel cache is keyed by the text of the options. */
static char *absolute_options(const char *options, const char *source)
{
    bool rewrite = !source || strstr(source, "include");
    char here[PATH_MAX];
    size_t room = strlen(options) + strlen(ARGUMENT_INFO) + 2;

    for (const char *at = options; (at = strstr(at, "-I")); at += 2)
        room += PATH_MAX;
    char *out = malloc(room);
    size_t used = 0;
    if (!out)
        return NULL;
    const char *at = options;
    while (*at) {
        bool starts = at == options || at[-1] == ' ' || at[-1] == '\t';
        if (rewrite && starts && at[0] == '-' && at[1] == 'I') {
            out[used++] = *at++;
            out[used++] = *at++;
            while (*at == ' ')
                out[used++] = *at++;
            if (*at == '"')
                out[used++] = *at++;
            if (*at && *at != '/' && getcwd(here, sizeof here) && !strpbrk(here, " \"")) {
                used += (size_t)sprintf(out + used, "%s/", here);
            }
            continue;
        }
        out[used++] = *at++;
    }
    out[used] = '\0';
    return out;
}

bool dvc_program_tells_arguments(const struct dvc_program *program)
{
    for (cl_uint i = 0; i < program->device_count; i++)
        if (program->builds[i].options && strstr(program->builds[i].options, ARGUMENT_INFO))
            return true;
    return program->linked;
}

struct build_done {
    struct dvc_job job; /* first */
    struct dvc_program *program;
    void(CL_CALLBACK *notify)(cl_program, void *);
    void *user;
};

static void tell_built(struct dvc_job *job)
{
    struct build_done *done = (struct build_done *)job;

    done->notify((cl_program)done->program, done->user);
    dvc_program_unuse(done->program);
    free(done);
}

struct build {
    enum dv_build_action action;
    struct dvc_program *program;
    struct dvc_context *context;
    cl_uint device_count; /* 0: all of the program's */
    struct dvc_device **devices;
    const char *options;
    cl_uint other_count;
    struct dvc_program **others;
    const char **names; /* of headers, or NULL */
};

/* The worker cannot see the application's files: included files are sent with the source. */
static cl_int send_source(struct dvc_program *program, const struct build *b, const char *options)
{
    struct dvc_session *s = program->object.session;
    struct dvw_release release = {.kind = DV_KIND_PROGRAM, .id = program->object.id};
    struct dvw_create_program create = {
        .id = program->object.id, .context = program->context->object.id, .form = DV_PROGRAM_SOURCE};

    if (b->action == DV_LINK || !program->source || !strstr(program->source, "include"))
        return CL_SUCCESS;
    DV_AUTO_FREE char *text = NULL;
    cl_int error = dvc_source_with_includes(program->source, options, b->names, b->other_count, &text);
    if (error != CL_SUCCESS || (!text && !program->expanded))
        return error;
    const char *source = text ? text : program->source;
    create.data_bytes = strlen(source);
    create.data = put_bulk(s, source, create.data_bytes);
    if (!create.data)
        return CL_OUT_OF_HOST_MEMORY;
    error = dvc_send(s, DVW_OP_RELEASE, &release.head, sizeof release, NULL, 0);
    if (error == CL_SUCCESS)
        error = dvc_call(s, DVW_OP_CREATE_PROGRAM, &create.head, sizeof create, NULL, 0, NULL, 0, NULL);
    if (dvc_session_alive(s))
        dvc_arena_free(&s->arena, create.data);
    program->expanded = text || error != CL_SUCCESS; /* after an error, send the source again */
    return error;
}

/* Joins the options and the names of the headers in one block, which goes with the message. */
static char *join_options(const struct build *b, const char *options, size_t *options_bytes, size_t *bytes)
{
    const char *info = b->action == DV_LINK || strstr(options, ARGUMENT_INFO) ? "" : " " ARGUMENT_INFO;

    *options_bytes = *bytes = strlen(options) + strlen(info);
    for (cl_uint i = 0; b->names && i < b->other_count; i++)
        *bytes += strlen(b->names[i]) + 1;
    char *data = calloc(1, *bytes + 1);
    if (!data)
        return NULL;
    char *at = stpcpy(stpcpy(data, options), info);
    for (cl_uint i = 0; b->names && i < b->other_count; i++)
        at = stpcpy(at, b->names[i]) + 1;
    return data;
}

/* Devices, then headers or programs to link. */
static struct dv_object_id *list_ids(const struct build *b, size_t *bytes)
{
    struct dv_object_id *ids = malloc((b->device_count + b->other_count + 1) * sizeof *ids);

    *bytes = (b->device_count + b->other_count) * sizeof *ids;
    for (cl_uint i = 0; ids && i < b->device_count; i++)
        ids[i] = b->devices[i]->object.id;
    for (cl_uint i = 0; ids && i < b->other_count; i++)
        ids[b->device_count + i] = b->others[i]->object.id;
    return ids;
}

/* Reads the names of the kernels from the answer, which ends with a NUL. */
static cl_int take_kernel_names(struct dvc_program *program, const uint8_t *answer)
{
    const struct dv_wire_build *facts = (const void *)answer;

    free(program->kernel_names);
    program->kernel_names = strdup((const char *)(facts + 1));
    program->kernel_count = facts->kernel_count;
    program->built = program->kernel_names != NULL;
    return program->built ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

static cl_int run_build(const struct build *b)
{
    enum { ANSWER_MAX = 256 << 10 };
    struct dvc_program *program = b->program;
    struct dvc_session *s = program->object.session;
    size_t options_bytes = 0, data_bytes = 0, ids_bytes = 0, bytes = 0;
    DV_AUTO_FREE char *given = absolute_options(b->options ? b->options : "", program->source);

    if (!given)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = send_source(program, b, given);
    if (error != CL_SUCCESS)
        return error;
    DV_AUTO_FREE char *data = join_options(b, given, &options_bytes, &data_bytes);
    DV_AUTO_FREE struct dv_object_id *ids = list_ids(b, &ids_bytes);
    DV_AUTO_FREE uint8_t *answer = malloc(ANSWER_MAX + 1);
    if (!data || !ids || !answer)
        return CL_OUT_OF_HOST_MEMORY;
    struct dvw_build_program message = {.id = program->object.id,
                                        .device_count = b->device_count,
                                        .options_bytes = (uint32_t)options_bytes,
                                        .action = b->action,
                                        .header_count = b->other_count,
                                        .context = b->context->object.id,
                                        .data_bytes = data_bytes,
                                        .data = put_bulk(s, data, data_bytes)};
    if (!message.data)
        return why_not(s);
    error =
        dvc_call(s, DVW_OP_BUILD_PROGRAM, &message.head, sizeof message, ids, ids_bytes, answer, ANSWER_MAX, &bytes);
    if (dvc_session_alive(s))
        dvc_arena_free(&s->arena, message.data);
    program->told_sizes = program->built = false;
    if (error != CL_SUCCESS || bytes < sizeof(struct dv_wire_build) || b->action == DV_COMPILE)
        return error;
    answer[bytes < ANSWER_MAX ? bytes : ANSWER_MAX] = '\0';
    return take_kernel_names(program, answer);
}

static cl_int note_options(struct dvc_program *program, const struct build *b)
{
    for (cl_uint i = 0; i < program->device_count; i++) {
        bool listed = b->device_count == 0;
        for (cl_uint k = 0; k < b->device_count; k++)
            listed |= b->devices[k] == program->devices[i];
        if (!listed)
            continue;
        char *options = strdup(b->options ? b->options : "");
        if (!options)
            return CL_OUT_OF_HOST_MEMORY;
        free(program->builds[i].options);
        program->builds[i].options = options;
        program->builds[i].tried = true;
    }
    return CL_SUCCESS;
}

/* Notifies the application once the build has been tried, whatever the result. */
static cl_int build_and_tell(const struct build *b, void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
    struct build_done *done = NULL;

    if (notify && !(dvc_callbacks_start() && (done = malloc(sizeof *done))))
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = note_options(b->program, b);
    bool tried = error == CL_SUCCESS;
    if (tried)
        error = run_build(b);
    if (b->action == DV_LINK) /* other link errors leave no program to report */
        tried = error == CL_SUCCESS || error == CL_LINK_PROGRAM_FAILURE;
    if (!tried) {
        free(done);
    } else if (done) {
        done->program = b->program;
        done->notify = notify;
        done->user = user;
        dvc_object_use(&b->program->object);
        dvc_callback_post(&done->job, tell_built);
    }
    return error;
}

static cl_int check_device_list(const struct dvc_program *program, cl_uint count, const cl_device_id *list,
                                struct dvc_device **devices)
{
    if ((count == 0) != (list == NULL) || count > DV_MAX_DEVICES)
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < count; i++) {
        bool belongs = false;
        devices[i] = dvc_device_of(list[i]);
        for (cl_uint k = 0; devices[i] && k < program->device_count; k++)
            belongs |= program->devices[k] == devices[i];
        if (!belongs)
            return CL_INVALID_DEVICE;
    }
    return CL_SUCCESS;
}

cl_int CL_API_CALL dvc_clBuildProgram(cl_program program, cl_uint num_devices, const cl_device_id *device_list,
                                      const char *options, void(CL_CALLBACK *pfn_notify)(cl_program, void *),
                                      void *user_data)
{
    struct dvc_program *p = dvc_program_of(program);
    struct dvc_device *devices[DV_MAX_DEVICES];

    if (!p)
        return CL_INVALID_PROGRAM;
    if (!pfn_notify && user_data)
        return CL_INVALID_VALUE;
    cl_int error = check_device_list(p, num_devices, device_list, devices);
    if (error != CL_SUCCESS)
        return error;
    if (atomic_load(&p->kernels))
        return CL_INVALID_OPERATION;
    struct build b = {.action = DV_BUILD,
                      .program = p,
                      .context = p->context,
                      .device_count = num_devices,
                      .devices = devices,
                      .options = options};
    return build_and_tell(&b, pfn_notify, user_data);
}

cl_int CL_API_CALL dvc_clCompileProgram(cl_program program, cl_uint num_devices, const cl_device_id *device_list,
                                        const char *options, cl_uint num_input_headers, const cl_program *input_headers,
                                        const char **header_include_names,
                                        void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data)
{
    struct dvc_program *p = dvc_program_of(program);
    struct dvc_device *devices[DV_MAX_DEVICES];

    if (!p)
        return CL_INVALID_PROGRAM;
    if ((!pfn_notify && user_data) || (num_input_headers == 0) != (input_headers == NULL) ||
        (num_input_headers == 0) != (header_include_names == NULL) || num_input_headers > 4096)
        return CL_INVALID_VALUE;
    cl_int error = check_device_list(p, num_devices, device_list, devices);
    if (error != CL_SUCCESS)
        return error;
    if (atomic_load(&p->kernels) || (!p->source && !p->il))
        return CL_INVALID_OPERATION;
    DV_AUTO_FREE struct dvc_program **others = calloc(num_input_headers ? num_input_headers : 1, sizeof *others);
    if (!others)
        return CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < num_input_headers; i++) {
        others[i] = dvc_program_of(input_headers[i]);
        if (!others[i])
            return CL_INVALID_PROGRAM;
        if (!header_include_names[i])
            return CL_INVALID_VALUE;
    }
    struct build b = {.action = DV_COMPILE,
                      .program = p,
                      .context = p->context,
                      .device_count = num_devices,
                      .devices = devices,
                      .options = options,
                      .other_count = num_input_headers,
                      .others = others,
                      .names = header_include_names};
    return build_and_tell(&b, pfn_notify, user_data);
}

cl_program CL_API_CALL dvc_clLinkProgram(cl_context context, cl_uint num_devices, const cl_device_id *device_list,
                                         const char *options, cl_uint num_input_programs,
                                         const cl_program *input_programs,
                                         void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data,
                                         cl_int *errcode_ret)
{
    struct dvc_context *c = dvc_context_of(context);
    struct dvc_device *devices[DV_MAX_DEVICES];
    DV_AUTO_FREE struct dvc_program **inputs = NULL;
    struct dvc_program *program = NULL;
    cl_int error = CL_SUCCESS;

    if (!c)
        error = CL_INVALID_CONTEXT;
    else if ((num_devices == 0) != (device_list == NULL) || num_devices > DV_MAX_DEVICES || num_input_programs == 0 ||
             !input_programs || num_input_programs > 4096 || (!pfn_notify && user_data))
        error = CL_INVALID_VALUE;
    else
        error = read_devices(c, num_devices, device_list, devices);
    if (error == CL_SUCCESS && !(inputs = calloc(num_input_programs, sizeof *inputs)))
        error = CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; error == CL_SUCCESS && i < num_input_programs; i++) {
        inputs[i] = dvc_program_of(input_programs[i]);
        if (!inputs[i])
            error = CL_INVALID_PROGRAM;
    }
    if (error == CL_SUCCESS) {
        program = num_devices ? new_program(c, num_devices, devices) : new_program(c, c->device_count, c->devices);
        error = program ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    }
    if (error == CL_SUCCESS) {
        program->linked = true;
        struct build b = {.action = DV_LINK,
                          .program = program,
                          .context = c,
                          .device_count = num_devices,
                          .devices = devices,
                          .options = options,
                          .other_count = num_input_programs,
                          .others = inputs};
        error = build_and_tell(&b, pfn_notify, user_data);
        /* a failed link keeps the program only for its log */
        if (error != CL_SUCCESS && error != CL_LINK_PROGRAM_FAILURE) {
            program_released(program); /* the worker may have linked it anyway */
            program = NULL;
        }
    }
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_program)program;
}

/* ---- information ---- */

static cl_int program_binaries(struct dvc_program *p, cl_program_info what, size_t room, void *into, size_t *bytes_ret)
{
    struct dvc_session *s = p->object.session;
    size_t sizes[DV_MAX_DEVICES] = {0}, bytes = 0;

    cl_int error = dvc_query(s, DVW_QUERY_clGetProgramInfo, p->object.id, DV_OBJECT_ID(0), CL_PROGRAM_BINARY_SIZES,
                             NULL, 0, sizeof sizes, sizes, &bytes);
    if (error != CL_SUCCESS)
        return error;
    size_t count = bytes / sizeof sizes[0];
    for (size_t i = 0; i < count; i++)
        if (sizes[i] > DV_MAX_PROGRAM_BYTES)
            return CL_OUT_OF_RESOURCES;
    if (what == CL_PROGRAM_BINARY_SIZES) {
        memcpy(p->binary_bytes, sizes, sizeof p->binary_bytes);
        p->told_sizes = true;
        return dvc_info_bytes(sizes, bytes, room, into, bytes_ret);
    }
    if (bytes_ret)
        *bytes_ret = count * sizeof(unsigned char *);
    if (!into)
        return CL_SUCCESS;
    if (room < count * sizeof(unsigned char *))
        return CL_INVALID_VALUE;
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        if (p->told_sizes && sizes[i] > p->binary_bytes[i]) /* the application has room for the size reported before */
            return CL_OUT_OF_RESOURCES;
        total += 8 + dv_record_align(sizes[i]);
    }
    DV_AUTO_FREE uint8_t *data = malloc(total ? total : 1);
    if (!data)
        return CL_OUT_OF_HOST_MEMORY;
    error = dvc_query(s, DVW_QUERY_clGetProgramInfo, p->object.id, DV_OBJECT_ID(0), CL_PROGRAM_BINARIES, NULL, 0, total,
                      data, &bytes);
    if (error != CL_SUCCESS || bytes != total)
        return error != CL_SUCCESS ? error : CL_OUT_OF_RESOURCES;
    unsigned char **pointers = into;
    for (size_t i = 0, at = 0; i < count; i++) {
        if (pointers[i] && sizes[i])
            memcpy(pointers[i], data + at + 8, sizes[i]);
        at += 8 + dv_record_align(sizes[i]);
    }
    return CL_SUCCESS;
}

cl_int CL_API_CALL dvc_clGetProgramInfo(cl_program program, cl_program_info param_name, size_t param_value_size,
                                        void *param_value, size_t *param_value_size_ret)
{
    struct dvc_program *p = dvc_program_of(program);

    if (!p)
        return CL_INVALID_PROGRAM;
    cl_uint refs = dvc_object_refs(&p->object);
    cl_context context = dvc_handle(p->context);
    cl_bool none = CL_FALSE;
    switch (param_name) {
    case CL_PROGRAM_REFERENCE_COUNT:
        return dvc_info_bytes(&refs, sizeof refs, param_value_size, param_value, param_value_size_ret);
    case CL_PROGRAM_CONTEXT:
        return dvc_info_bytes(&context, sizeof context, param_value_size, param_value, param_value_size_ret);
    case CL_PROGRAM_NUM_DEVICES:
        return dvc_info_bytes(&p->device_count, sizeof p->device_count, param_value_size, param_value,
                              param_value_size_ret);
    case CL_PROGRAM_DEVICES:
        return dvc_info_bytes(p->devices, p->device_count * sizeof(cl_device_id), param_value_size, param_value,
                              param_value_size_ret);
    case CL_PROGRAM_SOURCE:
        return dvc_info_text(p->source, param_value_size, param_value, param_value_size_ret);
    case CL_PROGRAM_IL:
        return dvc_info_bytes(p->il, p->il_bytes, param_value_size, param_value, param_value_size_ret);
    case CL_PROGRAM_BINARY_SIZES:
    case CL_PROGRAM_BINARIES:
        return program_binaries(p, param_name, param_value_size, param_value, param_value_size_ret);
    case CL_PROGRAM_NUM_KERNELS:
        if (!p->built)
            return CL_INVALID_PROGRAM_EXECUTABLE;
        return dvc_info_bytes(&p->kernel_count, sizeof p->kernel_count, param_value_size, param_value,
                              param_value_size_ret);
    case CL_PROGRAM_KERNEL_NAMES:
        if (!p->built)
            return CL_INVALID_PROGRAM_EXECUTABLE;
        return dvc_info_text(p->kernel_names, param_value_size, param_value, param_value_size_ret);
    case CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT:
    case CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT:
        return dvc_info_bytes(&none, sizeof none, param_value_size, param_value, param_value_size_ret);
    default:
        return CL_INVALID_VALUE;
    }
}

cl_int CL_API_CALL dvc_clGetProgramBuildInfo(cl_program program, cl_device_id device, cl_program_build_info param_name,
                                             size_t param_value_size, void *param_value, size_t *param_value_size_ret)
{
    struct dvc_program *p = dvc_program_of(program);
    struct dvc_device *d = dvc_device_of(device);
    cl_uint index = 0;

    if (!p)
        return CL_INVALID_PROGRAM;
    while (index < p->device_count && p->devices[index] != d)
        index++;
    if (!d || index == p->device_count)
        return CL_INVALID_DEVICE;
    if (param_name == CL_PROGRAM_BUILD_OPTIONS)
        return dvc_info_text(p->builds[index].options, param_value_size, param_value, param_value_size_ret);
    return dvc_query(p->object.session, DVW_QUERY_clGetProgramBuildInfo, p->object.id, d->object.id, param_name, NULL,
                     0, param_value_size, param_value, param_value_size_ret);
}
