/* Memory objects and samplers: creation, information, release. */
#include <stdlib.h>
#include <string.h>

#include "src/client/opencl/region.h"
#include "src/wire/session/opencl_pixels.h"

#define DEVICE_ACCESS (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY)
#define HOST_POINTER (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)
#define HOST_ACCESS (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)

/* Buffers of this size and more start 256 bytes into a page: copies of many megabytes between two
 * page-aligned places collide in the caches. */
#define OFFSET_FROM ((size_t)64 << 10)
#define OFFSET_BYTES 256

static bool more_than_one(cl_mem_flags bits)
{
    return bits & (bits - 1);
}

static cl_int check_flags(cl_mem_flags flags, const void *host_ptr)
{
    if (flags & ~(cl_mem_flags)(DEVICE_ACCESS | HOST_POINTER | HOST_ACCESS | CL_MEM_KERNEL_READ_AND_WRITE) ||
        more_than_one(flags & DEVICE_ACCESS) || more_than_one(flags & HOST_ACCESS) ||
        (flags & CL_MEM_USE_HOST_PTR && flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)))
        return CL_INVALID_VALUE;
    if ((host_ptr != NULL) != !!(flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)))
        return CL_INVALID_HOST_PTR;
    return CL_SUCCESS;
}

static cl_int keep_properties(struct dvc_mem *mem, const cl_mem_properties *properties)
{
    if (!properties)
        return CL_SUCCESS;
    if (properties[0] != 0)
        return CL_INVALID_PROPERTY; /* no property is supported */
    mem->properties = calloc(1, sizeof *properties);
    mem->property_count = 1;
    return mem->properties ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

static struct dvc_mem *new_mem(struct dvc_context *context, cl_mem_object_type type, cl_mem_flags flags)
{
    struct dvc_mem *mem = dvc_object_create(DV_KIND_MEM, context->object.session);

    if (!mem)
        return NULL;
    mem->context = context;
    mem->type = type;
    mem->flags = flags & DEVICE_ACCESS ? flags : flags | CL_MEM_READ_WRITE;
    pthread_mutex_init(&mem->lock, NULL);
    dvc_object_use(&context->object);
    return mem;
}

/* For objects that the worker does not know. */
static void drop_mem(struct dvc_mem *mem)
{
    struct dvc_context *context = mem->context;

    if (mem->arena_block)
        dvc_arena_free(&mem->object.session->arena, mem->arena_block);
    if (mem->parent)
        dvc_mem_unuse(mem->parent);
    free(mem->properties);
    dvc_object_free(&mem->object);
    dvc_context_unuse(context);
}

/* ---- buffers ---- */

/* A released buffer's memory is free only when the worker has released it too. A program that creates and releases
 * buffers in a loop must not run far ahead of the worker. But the program can itself keep a buffer in use (a user
 * event), so it never waits long. */
#define RELEASING_MAX (UINT64_C(512) << 20)
#define PATIENCE_NS (20 * DV_NS_PER_MS)
#define LAST_PATIENCE_NS (2 * DV_NS_PER_S)

static void wait_for_releases(struct dvc_session *s, uint64_t down_to, dv_ns patience_ns)
{
    dv_ns start = dv_now(), passed;

    for (;;) {
        uint32_t gone = atomic_load(&s->gone);
        if (atomic_load(&s->releasing_bytes) <= down_to || !dvc_session_alive(s) ||
            (passed = dv_now() - start) >= patience_ns)
            return;
        dv_futex_wait(&s->gone, gone, patience_ns - passed);
    }
}

static uint64_t alloc_storage(struct dvc_session *s, uint64_t bytes)
{
    if (atomic_load_explicit(&s->releasing_bytes, memory_order_relaxed) > RELEASING_MAX)
        wait_for_releases(s, RELEASING_MAX / 2, PATIENCE_NS);
    bool releasing = atomic_load(&s->releasing_bytes) > 0;
    uint64_t block = dvc_arena_alloc(&s->arena, bytes);
    if (!block && releasing) {
        wait_for_releases(s, 0, LAST_PATIENCE_NS);
        block = dvc_arena_alloc(&s->arena, bytes);
    }
    return block;
}

/* Small objects are charged to the credit in shared memory. */
static bool take_credit(struct dvc_session *s, uint32_t device, uint64_t bytes)
{
    _Atomic uint64_t *credit = dv_shm_credit(s->header, device);
    uint64_t seen = atomic_load(credit);

    do {
        if (seen == DV_CREDIT_UNLIMITED)
            return true;
        if (seen < bytes)
            return false;
    } while (!atomic_compare_exchange_weak(credit, &seen, seen - bytes));
    return true;
}

/* A call that takes memory of the tenant's quota. Released objects count until the worker has freed them. */
static cl_int call_for_memory(struct dvc_session *s, uint16_t op, struct dv_call_head *head, size_t bytes, void *answer,
                              size_t answer_bytes)
{
    bool releasing = atomic_load(&s->releasing_bytes) > 0; /* read first: it can drop to 0 meanwhile */
    cl_int error = dvc_call(s, op, head, bytes, NULL, 0, answer, answer_bytes, NULL);

    if (error == CL_MEM_OBJECT_ALLOCATION_FAILURE && releasing) {
        wait_for_releases(s, 0, LAST_PATIENCE_NS);
        error = dvc_call(s, op, head, bytes, NULL, 0, answer, answer_bytes, NULL);
    }
    return error;
}

/* Reserves a buffer's bytes in the tenant's quota. */
static cl_int claim(struct dvc_context *context, uint64_t bytes, uint32_t *claimed)
{
    struct dvc_session *s = context->object.session;
    struct dvw_claim_memory message = {.context = context->object.id, .bytes = bytes};

    *claimed = 0;
    if (take_credit(s, context->devices[0]->index, bytes))
        return CL_SUCCESS;
    *claimed = 1;
    return call_for_memory(s, DVW_OP_CLAIM_MEMORY, &message.head, sizeof message, NULL, 0);
}

static cl_int create_storage(struct dvc_mem *mem, const void *host_ptr)
{
    struct dvc_session *s = mem->object.session;
    struct dvw_create_buffer message = {
        .id = mem->object.id, .context = mem->context->object.id, .flags = mem->flags, .size = mem->size};
    bool unified = mem->context->unified;

    if (unified || host_ptr) {
        size_t extra = mem->size >= OFFSET_FROM ? OFFSET_BYTES : 0;
        uint64_t block = alloc_storage(s, mem->size + extra);
        if (!block)
            return CL_MEM_OBJECT_ALLOCATION_FAILURE;
        message.arena = block + (unified ? extra : 0);
        message.initial = !unified;
        if (unified) {
            mem->arena_block = block;
            mem->arena = message.arena;
        }
    }
    cl_int error = claim(mem->context, mem->size, &message.claimed);
    if (error == CL_SUCCESS && host_ptr) /* only now: a session may not use much more than it has reserved */
        memcpy(dvc_arena_pointer(s, message.arena), host_ptr, mem->size);
    if (error == CL_SUCCESS)
        error = dvc_send(s, DVW_OP_CREATE_BUFFER, &message.head, sizeof message, NULL, 0);
    if (error != CL_SUCCESS && message.initial && dvc_session_alive(s))
        dvc_arena_free(&s->arena, message.arena);
    return error;
}

static cl_mem create_buffer(cl_context context, const cl_mem_properties *properties, cl_mem_flags flags, size_t size,
                            void *host_ptr, cl_int *errcode_ret)
{
    struct dvc_context *c = dvc_context_of(context);
    struct dvc_mem *mem = NULL;
    cl_int error;

    if (!c)
        error = CL_INVALID_CONTEXT;
    else
        error = check_flags(flags, host_ptr);
    if (error == CL_SUCCESS && (size == 0 || size > c->max_alloc_bytes))
        error = CL_INVALID_BUFFER_SIZE;
    if (error == CL_SUCCESS && !dvc_session_alive(c->object.session))
        error = CL_OUT_OF_RESOURCES;
    if (error == CL_SUCCESS && !(mem = new_mem(c, CL_MEM_OBJECT_BUFFER, flags)))
        error = CL_OUT_OF_HOST_MEMORY;
    if (error == CL_SUCCESS)
        error = keep_properties(mem, properties);
    if (error == CL_SUCCESS) {
        mem->size = size;
        mem->host_ptr = flags & CL_MEM_USE_HOST_PTR ? host_ptr : NULL;
        error = create_storage(mem, host_ptr);
    }
    if (error != CL_SUCCESS && mem) {
        drop_mem(mem);
        mem = NULL;
    }
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_mem)mem;
}

cl_mem CL_API_CALL dvc_clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host_ptr,
                                      cl_int *errcode_ret)
{
    return create_buffer(context, NULL, flags, size, host_ptr, errcode_ret);
}

cl_mem CL_API_CALL dvc_clCreateBufferWithProperties(cl_context context, const cl_mem_properties *properties,
                                                    cl_mem_flags flags, size_t size, void *host_ptr,
                                                    cl_int *errcode_ret)
{
    return create_buffer(context, properties, flags, size, host_ptr, errcode_ret);
}

static cl_int check_sub_flags(const struct dvc_mem *parent, cl_mem_flags *flags)
{
    cl_mem_flags of = parent->flags;

    if (*flags & ~(cl_mem_flags)(DEVICE_ACCESS | HOST_ACCESS) || more_than_one(*flags & DEVICE_ACCESS) ||
        more_than_one(*flags & HOST_ACCESS) ||
        (of & CL_MEM_WRITE_ONLY && *flags & (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY)) ||
        (of & CL_MEM_READ_ONLY && *flags & (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY)) ||
        (of & CL_MEM_HOST_WRITE_ONLY && *flags & CL_MEM_HOST_READ_ONLY) ||
        (of & CL_MEM_HOST_READ_ONLY && *flags & CL_MEM_HOST_WRITE_ONLY) ||
        (of & CL_MEM_HOST_NO_ACCESS && *flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY)))
        return CL_INVALID_VALUE;
    if (!(*flags & DEVICE_ACCESS))
        *flags |= of & DEVICE_ACCESS;
    if (!(*flags & HOST_ACCESS))
        *flags |= of & HOST_ACCESS;
    *flags |= of & HOST_POINTER;
    return CL_SUCCESS;
}

/* Some device of the context must be able to address it. */
static bool aligned_for_some(const struct dvc_context *context, size_t origin)
{
    for (cl_uint i = 0; i < context->device_count; i++)
        if (!context->devices[i]->base_align || origin % context->devices[i]->base_align == 0)
            return true;
    return false;
}

cl_mem CL_API_CALL dvc_clCreateSubBuffer(cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type buffer_create_type,
                                         const void *buffer_create_info, cl_int *errcode_ret)
{
    struct dvc_mem *parent = dvc_buffer_of(buffer);
    const cl_buffer_region *region = buffer_create_info;
    struct dvc_mem *mem = NULL;
    cl_int error;

    if (!parent || parent->parent)
        error = CL_INVALID_MEM_OBJECT;
    else if (buffer_create_type != CL_BUFFER_CREATE_TYPE_REGION || !region)
        error = CL_INVALID_VALUE;
    else
        error = check_sub_flags(parent, &flags);
    if (error == CL_SUCCESS && (region->origin > parent->size || region->size > parent->size - region->origin))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS && region->size == 0)
        error = CL_INVALID_BUFFER_SIZE;
    if (error == CL_SUCCESS && !aligned_for_some(parent->context, region->origin))
        error = CL_MISALIGNED_SUB_BUFFER_OFFSET;
    if (error == CL_SUCCESS && !(mem = new_mem(parent->context, CL_MEM_OBJECT_BUFFER, flags)))
        error = CL_OUT_OF_HOST_MEMORY;
    if (error == CL_SUCCESS) {
        mem->size = region->size;
        mem->origin = region->origin;
        mem->parent = parent;
        dvc_object_use(&parent->object);
        mem->host_ptr = parent->host_ptr ? (char *)parent->host_ptr + region->origin : NULL;
        mem->arena = parent->arena ? parent->arena + region->origin : 0;
        struct dvw_create_sub_buffer message = {.id = mem->object.id,
                                                .parent = parent->object.id,
                                                .flags = flags,
                                                .origin = region->origin,
                                                .size = region->size};
        error = dvc_send(mem->object.session, DVW_OP_CREATE_SUB_BUFFER, &message.head, sizeof message, NULL, 0);
    }
    if (error != CL_SUCCESS && mem) {
        drop_mem(mem);
        mem = NULL;
    }
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_mem)mem;
}

/* ---- images ---- */

static size_t pixel_bytes(const cl_image_format *format)
{
    return dv_pixel_bytes(format->image_channel_order, format->image_channel_data_type);
}

static size_t or_one(size_t value)
{
    return value ? value : 1;
}

static cl_int check_image_desc(const cl_image_desc *desc, const cl_image_format *format, const void *host_ptr,
                               size_t *row_pitch, size_t *slice_pitch)
{
    size_t row = desc->image_width * pixel_bytes(format);
    bool lines = desc->image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    bool sliced = desc->image_type == CL_MEM_OBJECT_IMAGE3D || desc->image_type == CL_MEM_OBJECT_IMAGE2D_ARRAY || lines;

    if (desc->num_mip_levels || desc->num_samples || desc->image_width == 0)
        return CL_INVALID_IMAGE_DESCRIPTOR;
    if (!desc->buffer && !host_ptr && (desc->image_row_pitch || desc->image_slice_pitch))
        return CL_INVALID_IMAGE_DESCRIPTOR;
    *row_pitch = desc->image_row_pitch ? desc->image_row_pitch : row;
    if (*row_pitch < row)
        return CL_INVALID_IMAGE_DESCRIPTOR;
    size_t slice = lines ? *row_pitch : *row_pitch * or_one(desc->image_height);
    *slice_pitch = !sliced ? 0 : desc->image_slice_pitch ? desc->image_slice_pitch : slice;
    if (sliced && *slice_pitch < slice)
        return CL_INVALID_IMAGE_DESCRIPTOR;
    return CL_SUCCESS;
}

/* The application's pixels, tightly packed in the arena. */
static uint64_t pack_pixels(struct dvc_session *s, const struct dvc_mem *mem, const void *host_ptr, size_t row_pitch,
                            size_t slice_pitch)
{
    bool lines = mem->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    bool two = mem->type == CL_MEM_OBJECT_IMAGE2D || mem->type == CL_MEM_OBJECT_IMAGE2D_ARRAY ||
               mem->type == CL_MEM_OBJECT_IMAGE3D;
    struct dvc_region r = {.shape = DV_SHAPE_IMAGE,
                           .size = {mem->desc.image_width, 1, 1},
                           .host_row_pitch = lines ? slice_pitch : row_pitch,
                           .host_slice_pitch = slice_pitch};
    if (two)
        r.size[1] = mem->desc.image_height;
    if (lines)
        r.size[1] = mem->desc.image_array_size;
    if (mem->type == CL_MEM_OBJECT_IMAGE3D)
        r.size[2] = mem->desc.image_depth;
    if (mem->type == CL_MEM_OBJECT_IMAGE2D_ARRAY)
        r.size[2] = mem->desc.image_array_size;
    if (__builtin_mul_overflow(mem->desc.image_width, pixel_bytes(&mem->format), &r.row_bytes) ||
        __builtin_mul_overflow(r.row_bytes, r.size[1], &r.bytes) ||
        __builtin_mul_overflow(r.bytes, r.size[2], &r.bytes) || r.bytes > mem->context->max_alloc_bytes)
        return 0; /* larger than any image, and perhaps than the application's memory */
    uint64_t block = dvc_arena_alloc(&s->arena, r.bytes);
    if (block)
        dvc_region_pack(&r, dvc_arena_pointer(s, block), host_ptr);
    return block;
}

static cl_int make_image(struct dvc_mem *mem, void *host_ptr, size_t row_pitch, size_t slice_pitch)
{
    struct dvc_session *s = mem->object.session;
    const cl_image_desc *d = &mem->desc;
    struct dvw_create_image message = {.id = mem->object.id,
                                       .context = mem->context->object.id,
                                       .flags = mem->flags,
                                       .order = mem->format.image_channel_order,
                                       .data_type = mem->format.image_channel_data_type,
                                       .type = d->image_type,
                                       .parent = mem->parent ? mem->parent->object.id : DV_OBJECT_ID(0),
                                       .width = d->image_width,
                                       .height = d->image_height,
                                       .depth = d->image_depth,
                                       .array_size = d->image_array_size,
                                       .row_pitch = d->image_row_pitch,
                                       .slice_pitch = d->image_slice_pitch};
    uint64_t facts[4] = {0};

    if (!dvc_session_alive(s)) /* a forked child does not have the arena */
        return CL_OUT_OF_RESOURCES;
    if (host_ptr && !(message.data = pack_pixels(s, mem, host_ptr, row_pitch, slice_pitch)))
        return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    cl_int error = call_for_memory(s, DVW_OP_CREATE_IMAGE, &message.head, sizeof message, facts, sizeof facts);
    if (message.data && dvc_session_alive(s))
        dvc_arena_free(&s->arena, message.data);
    if (error != CL_SUCCESS)
        return error;
    if (facts[0] != pixel_bytes(&mem->format)) /* row sizes in the application's memory are computed from it */
        return CL_IMAGE_FORMAT_NOT_SUPPORTED;
    mem->element_bytes = facts[0];
    mem->row_pitch = host_ptr ? row_pitch : facts[1];
    mem->slice_pitch = host_ptr ? slice_pitch : facts[2];
    mem->size = facts[3];
    return CL_SUCCESS;
}

static cl_mem create_image(cl_context context, const cl_mem_properties *properties, cl_mem_flags flags,
                           const cl_image_format *format, const cl_image_desc *desc, void *host_ptr,
                           cl_int *errcode_ret)
{
    struct dvc_context *c = dvc_context_of(context);
    struct dvc_mem *mem = NULL, *parent = NULL;
    size_t row_pitch = 0, slice_pitch = 0;
    cl_int error = CL_SUCCESS;

    if (!c)
        error = CL_INVALID_CONTEXT;
    else if (!format)
        error = CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
    else if (!desc)
        error = CL_INVALID_IMAGE_DESCRIPTOR;
    if (error == CL_SUCCESS && desc->buffer) {
        parent = dvc_mem_of(desc->buffer);
        if (!parent)
            error = CL_INVALID_IMAGE_DESCRIPTOR;
        else if (parent->context != c)
            error = CL_INVALID_CONTEXT;
        else if (!(flags & DEVICE_ACCESS))
            flags |= parent->flags & DEVICE_ACCESS;
        if (error == CL_SUCCESS && host_ptr)
            error = CL_INVALID_HOST_PTR;
    }
    if (error == CL_SUCCESS)
        error = check_flags(flags, host_ptr);
    if (error == CL_SUCCESS)
        error = check_image_desc(desc, format, host_ptr, &row_pitch, &slice_pitch);
    if (error == CL_SUCCESS && !(mem = new_mem(c, desc->image_type, flags)))
        error = CL_OUT_OF_HOST_MEMORY;
    if (error == CL_SUCCESS)
        error = keep_properties(mem, properties);
    if (error == CL_SUCCESS) {
        mem->format = *format;
        mem->desc = *desc;
        /* dimensions that the type lacks read as 0 */
        if (desc->image_type == CL_MEM_OBJECT_IMAGE1D || desc->image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER ||
            desc->image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
            mem->desc.image_height = 0;
        if (desc->image_type != CL_MEM_OBJECT_IMAGE3D)
            mem->desc.image_depth = 0;
        if (desc->image_type != CL_MEM_OBJECT_IMAGE1D_ARRAY && desc->image_type != CL_MEM_OBJECT_IMAGE2D_ARRAY)
            mem->desc.image_array_size = 0;
        if (parent) {
            mem->parent = parent;
            dvc_object_use(&parent->object);
        }
        mem->host_ptr = flags & CL_MEM_USE_HOST_PTR ? host_ptr : NULL;
        error = make_image(mem, host_ptr, row_pitch, slice_pitch);
    }
    if (error != CL_SUCCESS && mem) {
        drop_mem(mem);
        mem = NULL;
    }
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_mem)mem;
}

cl_mem CL_API_CALL dvc_clCreateImage(cl_context context, cl_mem_flags flags, const cl_image_format *image_format,
                                     const cl_image_desc *image_desc, void *host_ptr, cl_int *errcode_ret)
{
    return create_image(context, NULL, flags, image_format, image_desc, host_ptr, errcode_ret);
}

cl_mem CL_API_CALL dvc_clCreateImageWithProperties(cl_context context, const cl_mem_properties *properties,
                                                   cl_mem_flags flags, const cl_image_format *image_format,
                                                   const cl_image_desc *image_desc, void *host_ptr, cl_int *errcode_ret)
{
    return create_image(context, properties, flags, image_format, image_desc, host_ptr, errcode_ret);
}

/* The functions from before OpenCL 1.2 return a different error for wrong sizes. */
static cl_mem create_image_old(cl_context context, cl_mem_flags flags, const cl_image_format *format,
                               const cl_image_desc *desc, void *host_ptr, cl_int *errcode_ret)
{
    cl_int error;
    cl_mem image = create_image(context, NULL, flags, format, desc, host_ptr, &error);

    if (error == CL_INVALID_IMAGE_DESCRIPTOR)
        error = CL_INVALID_IMAGE_SIZE;
    if (errcode_ret)
        *errcode_ret = error;
    return image;
}

cl_mem CL_API_CALL dvc_clCreateImage2D(cl_context context, cl_mem_flags flags, const cl_image_format *image_format,
                                       size_t image_width, size_t image_height, size_t image_row_pitch, void *host_ptr,
                                       cl_int *errcode_ret)
{
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D,
                          .image_width = image_width,
                          .image_height = image_height,
                          .image_row_pitch = image_row_pitch};
    if (image_height == 0)
        desc.image_width = 0; /* refused with the same error */
    return create_image_old(context, flags, image_format, &desc, host_ptr, errcode_ret);
}

cl_mem CL_API_CALL dvc_clCreateImage3D(cl_context context, cl_mem_flags flags, const cl_image_format *image_format,
                                       size_t image_width, size_t image_height, size_t image_depth,
                                       size_t image_row_pitch, size_t image_slice_pitch, void *host_ptr,
                                       cl_int *errcode_ret)
{
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE3D,
                          .image_width = image_width,
                          .image_height = image_height,
                          .image_depth = image_depth,
                          .image_row_pitch = image_row_pitch,
                          .image_slice_pitch = image_slice_pitch};
    if (image_height == 0 || image_depth == 0)
        desc.image_width = 0;
    return create_image_old(context, flags, image_format, &desc, host_ptr, errcode_ret);
}

cl_int CL_API_CALL dvc_clGetSupportedImageFormats(cl_context context, cl_mem_flags flags, cl_mem_object_type image_type,
                                                  cl_uint num_entries, cl_image_format *image_formats,
                                                  cl_uint *num_image_formats)
{
    struct dvc_context *c = dvc_context_of(context);
    cl_image_format list[512];
    uint64_t wire_flags = flags;
    size_t bytes = 0;

    if (!c)
        return CL_INVALID_CONTEXT;
    if (num_entries == 0 && image_formats)
        return CL_INVALID_VALUE;
    if (flags & ~(cl_mem_flags)(DEVICE_ACCESS | HOST_POINTER | HOST_ACCESS | CL_MEM_KERNEL_READ_AND_WRITE))
        return CL_INVALID_VALUE;
    cl_int error = dvc_query(c->object.session, DVW_QUERY_clGetSupportedImageFormats, c->object.id, DV_OBJECT_ID(0),
                             image_type, &wire_flags, sizeof wire_flags, sizeof list, list, &bytes);
    if (error != CL_SUCCESS)
        return error;
    cl_uint count = (cl_uint)(bytes / sizeof list[0]);
    if (image_formats)
        memcpy(image_formats, list, (count < num_entries ? count : num_entries) * sizeof list[0]);
    if (num_image_formats)
        *num_image_formats = count;
    return CL_SUCCESS;
}

/* ---- information ---- */

void *dvc_mem_reported_host_ptr(const struct dvc_mem *mem)
{
    return mem->host_ptr;
}

cl_uint dvc_mem_map_count(struct dvc_mem *mem)
{
    cl_uint count = 0;

    pthread_mutex_lock(&mem->lock);
    for (struct dvc_map *map = mem->maps; map; map = map->next)
        count++;
    pthread_mutex_unlock(&mem->lock);
    return count;
}

struct dv_object_id *dvc_ids_of_mem(cl_uint count, const cl_mem *list)
{
    struct dv_object_id *ids = malloc((count ? count : 1) * sizeof *ids);

    for (cl_uint i = 0; ids && i < count; i++)
        ids[i] = ((struct dvc_mem *)list[i])->object.id;
    return ids;
}

/* ---- release ---- */

cl_int dvc_mem_retain(struct dvc_mem *mem)
{
    atomic_fetch_add(&mem->object.count, 1);
    return CL_SUCCESS;
}

/* Tells the worker. dvc_mem_gone does the rest when the worker has released the object. */
static void mem_released(struct dvc_mem *mem)
{
    struct dvw_release message = {.kind = DV_KIND_MEM, .id = mem->object.id};

    if (!mem->parent)
        atomic_fetch_add(&mem->object.session->releasing_bytes, mem->size);
    atomic_store(&mem->releasing, true); /* before the send, which can find the worker gone */
    if (dvc_send(mem->object.session, DVW_OP_RELEASE, &message.head, sizeof message, NULL, 0) != CL_SUCCESS)
        dvc_mem_gone(mem);
}

void dvc_mem_unuse(struct dvc_mem *mem)
{
    if (atomic_fetch_sub(&mem->object.count, DV_COUNT_USE) == DV_COUNT_USE)
        mem_released(mem);
}

cl_int dvc_mem_release(struct dvc_mem *mem)
{
    if (dvc_object_refs(&mem->object) == 0)
        return CL_INVALID_MEM_OBJECT;
    if (atomic_fetch_sub(&mem->object.count, 1) == 1)
        mem_released(mem);
    return CL_SUCCESS;
}

static void finish_mem(struct dvc_job *job)
{
    struct dvc_mem *mem = (struct dvc_mem *)((char *)job - offsetof(struct dvc_mem, finishing));

    while (mem->destructors) {
        struct dvc_mem_callback *callback = mem->destructors;
        mem->destructors = callback->next;
        callback->function((cl_mem)mem, callback->user);
        free(callback);
    }
    while (mem->maps) {
        struct dvc_map *map = mem->maps;
        mem->maps = map->next;
        if (map->arena && dvc_session_alive(mem->object.session))
            dvc_arena_free(&mem->object.session->arena, map->arena);
        free(map->region);
        free(map);
    }
    drop_mem(mem);
}

void dvc_mem_gone(struct dvc_mem *mem)
{
    struct dvc_session *s = mem->object.session;

    if (!atomic_exchange(&mem->releasing, false))
        return; /* another thread was first, or the worker reported it without a request */
    uint64_t bytes = mem->parent ? 0 : mem->size;
    if (!dvc_session_alive(mem->object.session))
        mem->arena_block = 0;
    if (mem->destructors)
        dvc_callback_post(&mem->finishing, finish_mem);
    else
        finish_mem(&mem->finishing);
    atomic_fetch_sub(&s->releasing_bytes, bytes); /* only now is the memory free */
    atomic_fetch_add(&s->gone, 1);
    dv_futex_wake(&s->gone, INT_MAX);
}

cl_int CL_API_CALL dvc_clSetMemObjectDestructorCallback(cl_mem memobj, void(CL_CALLBACK *pfn_notify)(cl_mem, void *),
                                                        void *user_data)
{
    struct dvc_mem *mem = dvc_mem_of(memobj);

    if (!mem)
        return CL_INVALID_MEM_OBJECT;
    if (!pfn_notify)
        return CL_INVALID_VALUE;
    struct dvc_mem_callback *callback = dvc_callbacks_start() ? malloc(sizeof *callback) : NULL;
    if (!callback)
        return CL_OUT_OF_HOST_MEMORY;
    pthread_mutex_lock(&mem->lock);
    *callback = (struct dvc_mem_callback){mem->destructors, pfn_notify, user_data};
    mem->destructors = callback; /* called in the reverse order of registering */
    pthread_mutex_unlock(&mem->lock);
    return CL_SUCCESS;
}

/* ---- samplers ---- */

static cl_sampler create_sampler(cl_context context, cl_bool normalized, cl_addressing_mode addressing,
                                 cl_filter_mode filter, const cl_sampler_properties *properties, size_t property_count,
                                 cl_int *errcode_ret)
{
    struct dvc_context *c = dvc_context_of(context);
    struct dvc_sampler *sampler = NULL;
    cl_int error = CL_SUCCESS;

    if (!c)
        error = CL_INVALID_CONTEXT;
    else if (normalized > CL_TRUE || addressing < CL_ADDRESS_NONE || addressing > CL_ADDRESS_MIRRORED_REPEAT ||
             filter < CL_FILTER_NEAREST || filter > CL_FILTER_LINEAR)
        error = CL_INVALID_VALUE;
    else if (!(sampler = dvc_object_create(DV_KIND_SAMPLER, c->object.session)))
        error = CL_OUT_OF_HOST_MEMORY;
    if (error == CL_SUCCESS && property_count) {
        sampler->properties = malloc(property_count * sizeof *properties);
        sampler->property_count = property_count;
        if (sampler->properties)
            memcpy(sampler->properties, properties, property_count * sizeof *properties);
        else
            error = CL_OUT_OF_HOST_MEMORY;
    }
    if (error == CL_SUCCESS) {
        struct dvw_create_sampler message = {.id = sampler->object.id,
                                             .context = c->object.id,
                                             .normalized = normalized,
                                             .addressing = addressing,
                                             .filter = filter};
        error =
            dvc_call(c->object.session, DVW_OP_CREATE_SAMPLER, &message.head, sizeof message, NULL, 0, NULL, 0, NULL);
    }
    if (error == CL_SUCCESS) {
        dvc_object_use(&c->object);
        sampler->context = c;
        sampler->normalized = normalized;
        sampler->addressing = addressing;
        sampler->filter = filter;
    } else if (sampler) {
        free(sampler->properties);
        dvc_object_free(&sampler->object);
        sampler = NULL;
    }
    if (errcode_ret)
        *errcode_ret = error;
    return (cl_sampler)sampler;
}

cl_sampler CL_API_CALL dvc_clCreateSampler(cl_context context, cl_bool normalized_coords,
                                           cl_addressing_mode addressing_mode, cl_filter_mode filter_mode,
                                           cl_int *errcode_ret)
{
    return create_sampler(context, normalized_coords, addressing_mode, filter_mode, NULL, 0, errcode_ret);
}

cl_sampler CL_API_CALL dvc_clCreateSamplerWithProperties(cl_context context,
                                                         const cl_sampler_properties *sampler_properties,
                                                         cl_int *errcode_ret)
{
    cl_bool normalized = CL_TRUE;
    cl_addressing_mode addressing = CL_ADDRESS_CLAMP;
    cl_filter_mode filter = CL_FILTER_NEAREST;
    size_t count = 0;
    cl_int error = dvc_context_of(context) ? CL_SUCCESS : CL_INVALID_CONTEXT;

    for (; error == CL_SUCCESS && sampler_properties && sampler_properties[count]; count += 2) {
        for (size_t earlier = 0; earlier < count; earlier += 2)
            if (sampler_properties[earlier] == sampler_properties[count])
                error = CL_INVALID_VALUE;
        switch (sampler_properties[count]) {
        case CL_SAMPLER_NORMALIZED_COORDS:
            normalized = (cl_bool)sampler_properties[count + 1];
            break;
        case CL_SAMPLER_ADDRESSING_MODE:
            addressing = (cl_addressing_mode)sampler_properties[count + 1];
            break;
        case CL_SAMPLER_FILTER_MODE:
            filter = (cl_filter_mode)sampler_properties[count + 1];
            break;
        default:
            error = CL_INVALID_VALUE;
        }
    }
    if (error == CL_SUCCESS)
        return create_sampler(context, normalized, addressing, filter, sampler_properties,
                              sampler_properties ? count + 1 : 0, errcode_ret);
    if (errcode_ret)
        *errcode_ret = error;
    return NULL;
}

cl_int dvc_sampler_retain(struct dvc_sampler *sampler)
{
    atomic_fetch_add(&sampler->object.count, 1);
    return CL_SUCCESS;
}

cl_int dvc_sampler_release(struct dvc_sampler *sampler)
{
    struct dvc_context *context = sampler->context;
    struct dvw_release message = {.kind = DV_KIND_SAMPLER, .id = sampler->object.id};

    if (dvc_object_refs(&sampler->object) == 0)
        return CL_INVALID_SAMPLER;
    if (atomic_fetch_sub(&sampler->object.count, 1) != 1)
        return CL_SUCCESS;
    dvc_send(sampler->object.session, DVW_OP_RELEASE, &message.head, sizeof message, NULL, 0);
    free(sampler->properties);
    dvc_object_free(&sampler->object);
    dvc_context_unuse(context);
    return CL_SUCCESS;
}
