/* The arguments of kernels: references to them and to kernels, and setting them in the vendor's kernels. */
#include <stdlib.h>
#include <string.h>

#include "src/worker/opencl/executor.h"

struct dvk_arguments *dvk_arguments_new(uint32_t count)
{
    struct dvk_arguments *arguments = calloc(1, sizeof *arguments + count * sizeof arguments->list[0]);
    if (arguments) {
        arguments->refs = 1;
        arguments->count = count;
    }
    return arguments;
}

void dvk_argument_clear(struct dvk_argument *argument)
{
    dvk_mem_unref(argument->mem);
    dvk_sampler_unref(argument->sampler);
    free(argument->value);
    *argument = (struct dvk_argument){0};
}

void dvk_arguments_unref(struct dvk_arguments *arguments)
{
    if (!arguments || --arguments->refs > 0)
        return;
    for (uint32_t i = 0; i < arguments->count; i++)
        dvk_argument_clear(&arguments->list[i]);
    free(arguments);
}

void dvk_arguments_pin(struct dvk_arguments *arguments)
{
    for (uint32_t i = 0; i < arguments->count; i++)
        if (arguments->list[i].mem) {
            arguments->list[i].mem->pins++;
            arguments->list[i].mem->refs++;
        }
}

void dvk_arguments_unpin(struct dvk_arguments *arguments)
{
    for (uint32_t i = 0; i < arguments->count; i++)
        if (arguments->list[i].mem)
            dvk_mem_unpin(arguments->list[i].mem);
}

struct dvk_arguments *dvk_arguments_copy(const struct dvk_arguments *from)
{
    struct dvk_arguments *copy = dvk_arguments_new(from->count);

    for (uint32_t i = 0; copy && i < from->count; i++) {
        copy->list[i] = from->list[i];
        if (copy->list[i].mem)
            copy->list[i].mem->refs++;
        if (copy->list[i].sampler)
            copy->list[i].sampler->refs++;
        if (from->list[i].value) {
            copy->list[i].value = malloc(from->list[i].size);
            if (!copy->list[i].value) {
                copy->list[i].form = 0;
                dvk_arguments_unref(copy);
                return NULL;
            }
            memcpy(copy->list[i].value, from->list[i].value, from->list[i].size);
        }
    }
    return copy;
}

static cl_int apply_argument(cl_kernel kernel, uint32_t index, const struct dvk_argument *argument)
{
    switch (argument->form) {
    case DV_ARGUMENT_VALUE:
        return clSetKernelArg(kernel, index, argument->size, argument->value);
    case DV_ARGUMENT_LOCAL:
        return clSetKernelArg(kernel, index, argument->size, NULL);
    case DV_ARGUMENT_MEM:
        if (!argument->mem)
            return clSetKernelArg(kernel, index, sizeof(cl_mem), NULL);
        if (!argument->mem->vendor)
            return argument->mem->error ? argument->mem->error : CL_INVALID_MEM_OBJECT;
        return clSetKernelArg(kernel, index, sizeof(cl_mem), &argument->mem->vendor);
    case DV_ARGUMENT_SAMPLER:
        return clSetKernelArg(kernel, index, sizeof(cl_sampler), &argument->sampler->vendor);
    default:
        return CL_INVALID_KERNEL_ARGS;
    }
}

cl_int dvk_arguments_apply(struct dvk_vendor_kernel *kernel, const struct dvk_arguments *arguments)
{
    for (uint32_t i = 0; i < arguments->count; i++) {
        const struct dvk_argument *argument = &arguments->list[i];
        uint64_t made = argument->mem ? argument->mem->made : 0;
        if (kernel->applied[i] == argument->version && argument->form && kernel->applied_made[i] == made)
            continue;
        cl_int error = apply_argument(kernel->kernel, i, argument);
        kernel->applied[i] = error == CL_SUCCESS ? argument->version : 0;
        kernel->applied_made[i] = made;
        if (error != CL_SUCCESS)
            return error;
    }
    return CL_SUCCESS;
}

void dvk_sampler_unref(struct dvk_sampler *sampler)
{
    if (!sampler || --sampler->refs > 0)
        return;
    clReleaseSampler(sampler->vendor);
    dvk_origin_unref(sampler->origin);
    free(sampler);
}

static void free_vendor_kernel(struct dvk_vendor_kernel *kernel)
{
    if (kernel->kernel)
        clReleaseKernel(kernel->kernel);
    free(kernel->applied);
    free(kernel->applied_made);
}

bool dvk_vendor_kernel_hold(struct dvk_vendor_kernel *held, cl_kernel vendor, cl_uint count)
{
    held->kernel = vendor;
    held->applied = calloc(count ? count : 1, sizeof *held->applied);
    held->applied_made = calloc(count ? count : 1, sizeof *held->applied_made);
    if (held->applied && held->applied_made)
        return true;
    free_vendor_kernel(held);
    *held = (struct dvk_vendor_kernel){0};
    return false;
}

void dvk_kernel_unref(struct dvk_kernel *kernel)
{
    if (--kernel->refs > 0)
        return;
    free_vendor_kernel(&kernel->as_is);
    free_vendor_kernel(&kernel->corrected);
    dvk_correction_unref(kernel->correction);
    dvk_timing_unref(kernel->timing);
    dvk_arguments_unref(kernel->arguments);
    dvk_origin_unref(kernel->origin);
    free(kernel->parameters);
    free(kernel);
}
