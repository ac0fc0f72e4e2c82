/* Which form a kernel's argument has to have by its signature: one rule for both sides. */
#ifndef DV_WIRE_SESSION_OPENCL_ARGUMENTS_H
#define DV_WIRE_SESSION_OPENCL_ARGUMENTS_H

#include <CL/cl.h>
#include <stdbool.h>
#include <string.h>

#include "src/wire/session/opencl_replies.h"

/* image2d_t, image1d_array_t and the like; a program's own types may have similar names. */
static inline bool dv_argument_is_image(const struct dv_wire_argument *info)
{
    const char *name = info->type_name;
    size_t length = strnlen(name, sizeof info->type_name);

    return length >= strlen("image1d_t") && strncmp(name, "image", strlen("image")) == 0 && name[5] >= '1' &&
           name[5] <= '3' && name[6] == 'd' && name[7] == '_' && name[length - 2] == '_' && name[length - 1] == 't';
}

static inline enum dv_argument_form dv_argument_form_of(const struct dv_wire_argument *info)
{
    size_t length = strnlen(info->type_name, sizeof info->type_name);

    if (info->address == CL_KERNEL_ARG_ADDRESS_LOCAL)
        return DV_ARGUMENT_LOCAL;
    if (strncmp(info->type_name, "sampler_t", strlen("sampler_t")) == 0)
        return DV_ARGUMENT_SAMPLER;
    if (dv_argument_is_image(info) || info->address == CL_KERNEL_ARG_ADDRESS_GLOBAL ||
        info->address == CL_KERNEL_ARG_ADDRESS_CONSTANT || (length && info->type_name[length - 1] == '*'))
        return DV_ARGUMENT_MEM;
    return DV_ARGUMENT_VALUE;
}

#endif
