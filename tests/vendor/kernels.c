/*
 * What kernels do. Their bodies are never read: the first part of the name says it, as listed in
 * README.md. Element-wise kernels treat buffers as arrays of 32-bit unsigned integers and stay
 * inside them whatever the global size is.
 */
#include "vendor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct dv_behaviour {
    const char *prefix;
    const char *takes; /* b buffer, u 32-bit value, v any value, l local memory, i image */
    cl_int (*run)(const struct dv_launch *launch);
};

void dv_rect_copy(struct dv_rect dst, struct dv_rect src, size_t row_bytes, size_t height, size_t depth)
{
    for (size_t z = 0; z < depth; z++) {
        for (size_t y = 0; y < height; y++) {
            memmove(dst.base + z * dst.slice_pitch + y * dst.row_pitch,
                    src.base + z * src.slice_pitch + y * src.row_pitch, row_bytes);
        }
    }
}

/* ---- arguments ------------------------------------------------------------------------------*/

static cl_mem mem_argument(const struct dv_launch *launch, unsigned index)
{
    cl_mem mem = NULL;
    memcpy(&mem, launch->args[index].value, sizeof mem);
    return mem;
}

static uint32_t uint_argument(const struct dv_launch *launch, unsigned index)
{
    uint32_t value = 0;
    memcpy(&value, launch->args[index].value, sizeof value);
    return value;
}

/* Memory of the application may lie at any address, hence no plain loads and stores. */
static uint32_t load(cl_mem mem, size_t index)
{
    uint32_t value;
    memcpy(&value, mem->data + index * sizeof value, sizeof value);
    return value;
}

static void store(cl_mem mem, size_t index, uint32_t value)
{
    memcpy(mem->data + index * sizeof value, &value, sizeof value);
}

static bool holds(cl_mem mem, size_t index)
{
    return mem != NULL && index < mem->size / sizeof(uint32_t);
}

/* Work items are numbered through all dimensions, from the first dimension's offset on. */
#define FOR_EACH_ITEM(launch, i)                                                                                       \
    for (size_t i = (launch)->offset[0], end_ = i + (launch)->global[0] * (launch)->global[1] * (launch)->global[2];   \
         i < end_; i++)

/* ---- behaviours -----------------------------------------------------------------------------*/

static cl_int run_nop(const struct dv_launch *launch)
{
    return CL_COMPLETE;
}

static cl_int run_fill(const struct dv_launch *launch)
{
    cl_mem buffer = mem_argument(launch, 0);
    uint32_t value = uint_argument(launch, 1);
    FOR_EACH_ITEM(launch, i)
    {
        if (!holds(buffer, i)) {
            break;
        }
        store(buffer, i, value);
    }
    return CL_COMPLETE;
}

static cl_int run_iota(const struct dv_launch *launch)
{
    cl_mem buffer = mem_argument(launch, 0);
    FOR_EACH_ITEM(launch, i)
    {
        if (!holds(buffer, i)) {
            break;
        }
        store(buffer, i, (uint32_t)i);
    }
    return CL_COMPLETE;
}

static cl_int run_inc(const struct dv_launch *launch)
{
    cl_mem buffer = mem_argument(launch, 0);
    FOR_EACH_ITEM(launch, i)
    {
        if (!holds(buffer, i)) {
            break;
        }
        store(buffer, i, load(buffer, i) + 1);
    }
    return CL_COMPLETE;
}

static cl_int run_add(const struct dv_launch *launch)
{
    cl_mem dst = mem_argument(launch, 0);
    cl_mem a = mem_argument(launch, 1);
    cl_mem b = mem_argument(launch, 2);
    FOR_EACH_ITEM(launch, i)
    {
        if (!holds(dst, i) || !holds(a, i) || !holds(b, i)) {
            break;
        }
        store(dst, i, load(a, i) + load(b, i));
    }
    return CL_COMPLETE;
}

static cl_int run_copy(const struct dv_launch *launch)
{
    cl_mem dst = mem_argument(launch, 0);
    cl_mem src = mem_argument(launch, 1);
    FOR_EACH_ITEM(launch, i)
    {
        if (!holds(dst, i) || !holds(src, i)) {
            break;
        }
        store(dst, i, load(src, i));
    }
    return CL_COMPLETE;
}

static cl_int run_sum(const struct dv_launch *launch)
{
    cl_mem dst = mem_argument(launch, 0);
    cl_mem src = mem_argument(launch, 1);
    uint32_t total = 0;
    FOR_EACH_ITEM(launch, i)
    {
        if (!holds(src, i)) {
            break;
        }
        total += load(src, i);
    }
    if (holds(dst, 0)) {
        store(dst, 0, total);
    }
    return CL_COMPLETE;
}

/* The bytes of a value argument, so that a test sees what arrived. */
static cl_int run_value(const struct dv_launch *launch)
{
    cl_mem dst = mem_argument(launch, 0);
    const struct dv_arg *value = &launch->args[1];
    if (dst != NULL) {
        memcpy(dst->data, value->value, value->size < dst->size ? value->size : dst->size);
    }
    return CL_COMPLETE;
}

/* The size of a local memory argument, for the same reason. */
static cl_int run_localsize(const struct dv_launch *launch)
{
    cl_mem dst = mem_argument(launch, 0);
    if (holds(dst, 0)) {
        store(dst, 0, (uint32_t)launch->args[1].size);
    }
    return CL_COMPLETE;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static cl_int run_imagecopy(const struct dv_launch *launch)
{
    cl_mem dst = mem_argument(launch, 0);
    cl_mem src = mem_argument(launch, 1);
    if (dst == NULL || src == NULL || dst->element_bytes != src->element_bytes) {
        return CL_INVALID_IMAGE_SIZE;
    }
    size_t to[3], from[3];
    const size_t zero[3] = {0, 0, 0};
    dv_image_extent(dst, to);
    dv_image_extent(src, from);
    dv_rect_copy(dv_image_rect(dst, zero), dv_image_rect(src, zero), smaller(to[0], from[0]) * dst->element_bytes,
                 smaller(to[1], from[1]), smaller(to[2], from[2]));
    return CL_COMPLETE;
}

/* Between an image and a buffer that holds its rows without gaps. */
static cl_int move_image(cl_mem image, cl_mem buffer, bool to_image)
{
    if (image == NULL || buffer == NULL) {
        return CL_INVALID_MEM_OBJECT;
    }
    size_t extent[3];
    const size_t zero[3] = {0, 0, 0};
    dv_image_extent(image, extent);
    size_t row = extent[0] * image->element_bytes;
    struct dv_rect packed = {buffer->data, row, row * extent[1]};
    if (row * extent[1] * extent[2] > buffer->size) {
        return CL_INVALID_BUFFER_SIZE;
    }
    struct dv_rect inside = dv_image_rect(image, zero);
    dv_rect_copy(to_image ? inside : packed, to_image ? packed : inside, row, extent[1], extent[2]);
    return CL_COMPLETE;
}

static cl_int run_imageread(const struct dv_launch *launch)
{
    return move_image(mem_argument(launch, 1), mem_argument(launch, 0), false);
}

static cl_int run_imagewrite(const struct dv_launch *launch)
{
    return move_image(mem_argument(launch, 0), mem_argument(launch, 1), true);
}

static cl_int run_spin(const struct dv_launch *launch)
{
    cl_ulong end = dv_now_ns() + (cl_ulong)uint_argument(launch, 0) * 1000;
    while (dv_now_ns() < end) {
    }
    return CL_COMPLETE;
}

static cl_int run_sleep(const struct dv_launch *launch)
{
    uint32_t us = uint_argument(launch, 0);
    struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
    return CL_COMPLETE;
}

static cl_int run_printf(const struct dv_launch *launch)
{
    const struct dv_signature *signature = launch->signature;
    bool has_number =
        signature->num_args > 0 && signature->args[0].class == DV_ARG_VALUE && launch->args[0].size == sizeof(uint32_t);
    if (has_number) {
        dprintf(STDOUT_FILENO, "%s %u\n", signature->name, uint_argument(launch, 0));
    } else {
        dprintf(STDOUT_FILENO, "%s\n", signature->name);
    }
    return CL_COMPLETE;
}

static cl_int run_crash(const struct dv_launch *launch)
{
    raise(SIGSEGV);
    abort(); /* a handler came back: a crash does not */
}

static cl_int run_hang(const struct dv_launch *launch)
{
    while (pause() == -1) { /* it never returns anything else */
    }
    return CL_COMPLETE;
}

static cl_int run_fail(const struct dv_launch *launch)
{
    return CL_OUT_OF_RESOURCES;
}

static const struct dv_behaviour behaviours[] = {
    {"nop", "", run_nop},
    {"fill", "bu", run_fill},
    {"iota", "b", run_iota},
    {"inc", "b", run_inc},
    {"add", "bbb", run_add},
    {"copy", "bb", run_copy},
    {"sum", "bb", run_sum},
    {"value", "bv", run_value},
    {"localsize", "bl", run_localsize},
    {"imagecopy", "ii", run_imagecopy},
    {"imageread", "bi", run_imageread},
    {"imagewrite", "ib", run_imagewrite},
    {"spin", "u", run_spin},
    {"sleep", "u", run_sleep},
    {"printf", "", run_printf},
    {"crash", "", run_crash},
    {"hang", "", run_hang},
    {"fail", "", run_fail},
};

static bool argument_fits(const struct dv_arg_signature *arg, char wanted)
{
    switch (wanted) {
    case 'b':
        return arg->class == DV_ARG_BUFFER;
    case 'u':
        return arg->class == DV_ARG_VALUE && arg->value_bytes == sizeof(uint32_t);
    case 'v':
        return arg->class == DV_ARG_VALUE;
    case 'l':
        return arg->class == DV_ARG_LOCAL;
    default:
        return arg->class == DV_ARG_IMAGE;
    }
}

const struct dv_behaviour *dv_behaviour_find(const struct dv_signature *signature, char *message, size_t message_size)
{
    for (size_t i = 0; i < sizeof behaviours / sizeof behaviours[0]; i++) {
        const struct dv_behaviour *behaviour = &behaviours[i];
        size_t length = strlen(behaviour->prefix);
        char next = signature->name[length < strlen(signature->name) ? length : 0];
        bool ends = strlen(signature->name) == length || next == '_' || (next >= '0' && next <= '9');
        if (strncmp(signature->name, behaviour->prefix, length) != 0 || !ends) {
            continue;
        }
        for (unsigned a = 0; behaviour->takes[a] != '\0'; a++) {
            if (a >= signature->num_args || !argument_fits(&signature->args[a], behaviour->takes[a])) {
                snprintf(message, message_size, "<source>: error: kernel %s: argument %u is not what '%s' takes (%s)",
                         signature->name, a, behaviour->prefix, behaviour->takes);
                return NULL;
            }
        }
        return behaviour;
    }
    if (dv_settings_get()->unknown_kernels_are_nop) {
        return &behaviours[0];
    }
    snprintf(message, message_size, "<source>: error: no behaviour for a kernel named %s", signature->name);
    return NULL;
}

cl_int dv_behaviour_run(const struct dv_launch *launch)
{
    return launch->signature->behaviour->run(launch);
}
