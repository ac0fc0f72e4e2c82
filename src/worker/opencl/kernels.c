/* Kernels and their arguments. The worker keeps its own table of arguments and sets in the vendor's kernel only those
 * that changed, so vendor handles can change underneath. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/wire/session/opencl_arguments.h"
#include "src/worker/opencl/executor.h"

void dvk_on_set_argument(struct dvk_worker *w, const struct dvw_set_argument *m, const uint8_t *tail, size_t tail_bytes)
{
    struct dvk_kernel *kernel = dvk_find_kernel(w, m->kernel);
    struct dvk_argument argument = {.form = m->form, .size = m->size};

    if (!kernel || m->index >= kernel->arguments->count || m->size > DV_MAX_ARGUMENT_BYTES * 1024ull)
        return;
    uint32_t form = kernel->parameters[m->index].form;
    if (form && form != m->form) /* a vendor would take any bytes for the handle of an object */
        return;
    switch (m->form) {
    case DV_ARGUMENT_VALUE:
        if (m->size > tail_bytes || m->size > DV_MAX_ARGUMENT_BYTES ||
            !(argument.value = malloc(m->size ? m->size : 1)))
            return;
        memcpy(argument.value, tail, m->size);
        break;
    case DV_ARGUMENT_MEM:
        argument.mem = m->object.value ? dvk_find_mem(w, m->object) : NULL;
        if (argument.mem)
            argument.mem->refs++;
        else if (m->object.value)
            argument.form = 0;
        break;
    case DV_ARGUMENT_SAMPLER:
        argument.sampler = dvk_find_sampler(w, m->object);
        if (!argument.sampler)
            argument.form = 0;
        else
            argument.sampler->refs++;
        break;
    case DV_ARGUMENT_LOCAL:
        break;
    default:
        return;
    }
    if (kernel->arguments->refs > 1) { /* a command still needs the old ones */
        struct dvk_arguments *copy = dvk_arguments_copy(kernel->arguments);
        if (!copy) {
            dvk_argument_clear(&argument);
            return;
        }
        dvk_arguments_unref(kernel->arguments);
        kernel->arguments = copy;
    }
    dvk_argument_clear(&kernel->arguments->list[m->index]);
    argument.version = ++kernel->versions;
    kernel->arguments->list[m->index] = argument;
}

static void copy_text(char *into, size_t room, const char *text)
{
    size_t length = strnlen(text, room - 1);
    memcpy(into, text, length);
    into[length] = '\0';
}

/* Describes a kernel to the client, and stores what the worker needs later. */
static void describe(struct dvk_kernel *described, struct dvk_reply *reply)
{
    cl_kernel kernel = described->vendor;
    cl_uint count = described->arguments->count;
    struct dv_wire_kernel answer = {.argument_count = count, .has_info = 1};
    DV_AUTO_FREE struct dv_wire_argument *list = calloc(count ? count : 1, sizeof *list);
    char attributes[4096] = "";

    if (!list)
        return;
    if (clGetKernelInfo(kernel, CL_KERNEL_ATTRIBUTES, sizeof attributes - 1, attributes, NULL) == CL_SUCCESS)
        copy_text(answer.attributes, sizeof answer.attributes, attributes);
    for (cl_uint i = 0; i < count; i++) {
        cl_kernel_arg_address_qualifier address = 0;
        cl_kernel_arg_access_qualifier access = 0;
        cl_kernel_arg_type_qualifier qualifier = 0;
        char text[4096] = "";
        list[i].address = list[i].access = DV_ARGUMENT_UNKNOWN;
        if (clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address, NULL) !=
            CL_SUCCESS) {
            answer.has_info = 0;
            continue;
        }
        clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ACCESS_QUALIFIER, sizeof access, &access, NULL);
        clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof qualifier, &qualifier, NULL);
        list[i].address = address;
        list[i].access = access;
        list[i].type_qualifier = qualifier;
        described->parameters[i].only_reads = address == CL_KERNEL_ARG_ADDRESS_CONSTANT ||
                                              access == CL_KERNEL_ARG_ACCESS_READ_ONLY ||
                                              qualifier & CL_KERNEL_ARG_TYPE_CONST;
        if (clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_TYPE_NAME, sizeof text - 1, text, NULL) == CL_SUCCESS)
            copy_text(list[i].type_name, sizeof list[i].type_name, text);
        memset(text, 0, sizeof text);
        if (clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_NAME, sizeof text - 1, text, NULL) == CL_SUCCESS)
            copy_text(list[i].name, sizeof list[i].name, text);
    }
    for (cl_uint i = 0; answer.has_info && i < count; i++) /* else the client has to guess */
        described->parameters[i].form = dv_argument_form_of(&list[i]);
    dvk_reply_put(reply, &answer, sizeof answer);
    dvk_reply_put(reply, list, count * sizeof *list);
}

/* The first kernels of a session are listed for `divvy explain`. */
static void list_kernel(struct dvk_worker *w, struct dvk_kernel *kernel)
{
    struct dv_shm_kernel *list = (struct dv_shm_kernel *)(w->runtime->shm + DV_SHM_KERNEL_OFFSET);
    char name[1024] = "";

    clGetKernelInfo(kernel->vendor, CL_KERNEL_FUNCTION_NAME, sizeof name - 1, name, NULL);
    /* programs make kernels again and again: those of one name that have the same verdict are one to people */
    for (uint32_t i = 0; i < w->kernels_listed; i++)
        if (strncmp(list[i].name, name, sizeof list[i].name - 1) == 0 && list[i].verdict == kernel->verdict.kind) {
            kernel->listed = &list[i];
            return;
        }
    atomic_fetch_add(&w->runtime->header->kernels[kernel->verdict.kind - 1], 1);
    if (w->kernels_listed == DV_SHM_KERNEL_COUNT)
        return;
    kernel->listed = &list[w->kernels_listed++];
    copy_text(kernel->listed->name, sizeof kernel->listed->name, name);
    atomic_store(&kernel->listed->reason, kernel->verdict.reason);
    atomic_store(&kernel->listed->verdict, kernel->verdict.kind);
}

/* Takes the vendor's kernel over, also if it fails. */
static cl_int keep_kernel(struct dvk_worker *w, struct dv_object_id id, cl_kernel vendor,
                          struct dvk_arguments *arguments, struct dvk_kernel **kept)
{
    struct dvk_kernel *kernel = calloc(1, sizeof *kernel);
    cl_uint count = 0;
    cl_int error = clGetKernelInfo(vendor, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL);

    if (!kernel) {
        clReleaseKernel(vendor);
        return CL_OUT_OF_HOST_MEMORY;
    }
    if (error == CL_SUCCESS && count > DV_MAX_ARGUMENTS)
        error = CL_OUT_OF_RESOURCES;
    kernel->refs = 1;
    kernel->vendor = vendor;
    bool all = dvk_vendor_kernel_hold(&kernel->as_is, vendor, count);
    if (error == CL_SUCCESS) {
        kernel->arguments = arguments ? dvk_arguments_copy(arguments) : dvk_arguments_new(count);
        kernel->parameters = calloc(count ? count : 1, sizeof *kernel->parameters);
        for (cl_uint i = 0; arguments && kernel->arguments && i < count; i++)
            kernel->arguments->list[i].version = ++kernel->versions;
        if (!all || !kernel->arguments || !kernel->parameters)
            error = CL_OUT_OF_HOST_MEMORY;
    }
    if (error == CL_SUCCESS)
        error = dvk_put(w, DV_KIND_KERNEL, id, kernel);
    if (error != CL_SUCCESS) {
        dvk_kernel_unref(kernel);
        return error;
    }
    *kept = kernel;
    return CL_SUCCESS;
}

int32_t dvk_on_create_kernel(struct dvk_worker *w, const struct dvw_create_kernel *m, const uint8_t *tail,
                             size_t tail_bytes, struct dvk_reply *reply)
{
    struct dvk_program *program = dvk_find_program(w, m->program);
    struct dvk_kernel *kernel;
    cl_int error;

    if (!program)
        return CL_INVALID_PROGRAM;
    if (m->name_bytes > tail_bytes)
        return CL_INVALID_VALUE;
    DV_AUTO_FREE char *name = strndup((const char *)tail, m->name_bytes);
    if (!name)
        return CL_OUT_OF_HOST_MEMORY;
    cl_kernel vendor = clCreateKernel(program->vendor, name, &error);
    if (error != CL_SUCCESS)
        return error;
    error = keep_kernel(w, m->id, vendor, NULL, &kernel);
    if (error != CL_SUCCESS)
        return error;
    kernel->origin = dvk_origin_of_new(w, &m->head.record, program->origin);
    kernel->may_print = program->may_print;
    kernel->verdict = program->verdict;
    kernel->correction = dvk_correction_ref(program->correction);
    list_kernel(w, kernel);
    describe(kernel, reply);
    return CL_SUCCESS;
}

int32_t dvk_on_clone_kernel(struct dvk_worker *w, const struct dvw_clone_kernel *m, const uint8_t *tail,
                            size_t tail_bytes, struct dvk_reply *reply)
{
    struct dvk_kernel *source = dvk_find_kernel(w, m->source);
    struct dvk_kernel *kernel;
    cl_int error;

    if (!source)
        return CL_INVALID_KERNEL;
    dvk_arguments_apply(&source->as_is, source->arguments); /* only those that are set; others may be missing */
    cl_kernel vendor = clCloneKernel(source->vendor, &error);
    if (error != CL_SUCCESS)
        return error;
    error = keep_kernel(w, m->id, vendor, source->arguments, &kernel);
    if (error != CL_SUCCESS)
        return error;
    kernel->origin = dvk_origin_of_clone(w, source, m->id);
    kernel->may_print = source->may_print;
    kernel->verdict = source->verdict;
    kernel->correction = dvk_correction_ref(source->correction);
    kernel->listed = source->listed;
    memcpy(kernel->parameters, source->parameters, source->arguments->count * sizeof *source->parameters);
    return CL_SUCCESS;
}

/* The command's time counts for the kernel, unless it may include compilation. */
static void note_timing(struct dvk_command *c, struct dvk_kernel *kernel, const struct dvw_clEnqueueNDRangeKernel *m)
{
    size_t local[3] = {0}, offset[3] = {0}, global[3] = {0};
    struct dvk_timing *timing = kernel->timing;

    if (!timing && !(timing = kernel->timing = dvk_timing_new(kernel->vendor)))
        return;
    c->items = 1;
    for (uint32_t i = 0; i < m->work_dim; i++) {
        global[i] = m->has_global_work_size ? m->global_work_size[i] : 1;
        local[i] = m->has_local_work_size ? m->local_work_size[i] : 0;
        offset[i] = m->has_global_work_offset ? m->global_work_offset[i] : 0;
        c->items *= (double)global[i];
    }
    timing->verdict = kernel->verdict;
    c->compiles = dvk_timing_is_new(timing, local, dvk_timing_form(offset, global));
    timing->refs++;
    c->timing = timing;
}

int32_t dvk_resolve_clEnqueueNDRangeKernel(struct dvk_worker *w, struct dvk_command *c)
{
    const struct dvw_clEnqueueNDRangeKernel *m = (const void *)c->record;
    struct dvk_kernel *kernel = dvk_find_kernel(w, m->kernel);

    if (!kernel)
        return CL_INVALID_KERNEL;
    if (m->work_dim < 1 || m->work_dim > 3)
        return CL_INVALID_WORK_DIMENSION;
    /* a released object is not placed any more, and perhaps neither is its parent */
    for (uint32_t i = 0; i < kernel->arguments->count; i++) {
        const struct dvk_mem *mem = kernel->arguments->list[i].mem;
        if (mem && mem->root && (mem->released || !dvk_mem_is_usable(mem)))
            return CL_INVALID_MEM_OBJECT;
    }
    c->kernel = kernel;
    kernel->refs++;
    if (c->queue->graph.gate)
        note_timing(c, kernel, m);
    c->may_print = kernel->may_print;
    c->arguments = kernel->arguments;
    c->arguments->refs++;
    if (c->timing)
        c->is_new = dvk_timing_is_new_value(c->timing, c->arguments);
    dvk_arguments_pin(c->arguments);
    return CL_SUCCESS;
}

int32_t dvk_submit_clEnqueueNDRangeKernel(struct dvk_worker *w, struct dvk_command *c)
{
    const struct dvw_clEnqueueNDRangeKernel *m = (const void *)c->record;
    const size_t *offset = (const size_t *)m->global_work_offset;
    const size_t *global = (const size_t *)m->global_work_size;
    const size_t *local = (const size_t *)m->local_work_size;

    if (c->kernel->listed)
        atomic_fetch_add_explicit(&c->kernel->listed->launches, 1, memory_order_relaxed);
    if (dvk_cut_is_begun(c))
        return dvk_cut_submit_rest(c);
    cl_int error = dvk_arguments_apply(&c->kernel->as_is, c->arguments);
    if (error != CL_SUCCESS)
        return error;
    return clEnqueueNDRangeKernel(dvk_command_queue(c), c->kernel->vendor, m->work_dim,
                                  m->has_global_work_offset ? offset : NULL, m->has_global_work_size ? global : NULL,
                                  m->has_local_work_size ? local : NULL, c->wait_count, c->waits, dvk_command_event(c));
}
