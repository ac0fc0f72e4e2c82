/* Images: created by a call, since the client needs the vendor's pitches. */
#include <sys/mman.h>

#include "src/wire/session/opencl_pixels.h"
#include "src/worker/opencl/memory.h"
#include "src/worker/opencl/residency.h"

#define PIXEL_BYTES_MAX 16 /* four channels of 32 bits */

/* How many bytes the vendor reads from the pixels of a new image; UINT64_MAX: too many. */
static uint64_t pixels_bytes(const struct dvw_create_image *m, size_t pixel_bytes)
{
    const uint64_t sizes[] = {m->height, m->depth, m->array_size};
    unsigned __int128 bytes = (unsigned __int128)m->width * pixel_bytes;

    for (int i = 0; i < 3 && bytes <= DV_SHM_BYTES_MAX; i++)
        bytes *= sizes[i] ? sizes[i] : 1;
    return bytes <= DV_SHM_BYTES_MAX ? (uint64_t)bytes : UINT64_MAX;
}

/* The pixels the vendor will read, all of them within the arena; NULL if they are not. */
static void *image_pixels(struct dvk_worker *w, const struct dvw_create_image *m)
{
    uint64_t bytes = pixels_bytes(m, dv_pixel_bytes(m->order, m->data_type));
    return bytes <= DV_SHM_BYTES_MAX ? dvk_runtime_arena(w->runtime, m->data, bytes) : NULL;
}

static void make_unmanaged_image(struct dvk_mem *mem, const struct dvw_create_image *m, const struct dvk_mem *parent,
                                 void *pixels, cl_int *error)
{
    const struct dvk_context *context = mem->make.context;
    cl_image_desc desc = mem->make.desc;
    uint64_t bytes = pixels_bytes(m, PIXEL_BYTES_MAX);
    void *zeros = parent || pixels ? NULL : dvk_fresh_zeros(context, bytes, error);

    if (*error != CL_SUCCESS)
        return;
    desc.buffer = parent ? parent->vendor : NULL;
    mem->vendor = clCreateImage(context->vendor, mem->make.flags | (pixels || zeros ? CL_MEM_COPY_HOST_PTR : 0),
                                &mem->make.format, &desc, zeros ? zeros : pixels, error);
    if (zeros)
        munmap(zeros, bytes);
}

/* The properties of an image that the client gets, in this order. */
struct image_facts {
    uint64_t element_bytes, row_pitch, slice_pitch, bytes;
};

static struct dvk_recipe recipe_of(struct dvk_context *context, const struct dvw_create_image *m)
{
    bool has_parent = m->parent.value != 0;

    return (struct dvk_recipe){
        .context = context,
        .flags = m->flags & DVK_DEVICE_FLAGS,
        .format = {.image_channel_order = m->order, .image_channel_data_type = m->data_type},
        .desc = {.image_type = m->type,
                 .image_width = m->width,
                 .image_height = m->height,
                 .image_depth = m->depth,
                 .image_array_size = m->array_size,
                 .image_row_pitch = has_parent ? m->row_pitch : 0, /* the client handles host pitches */
                 .image_slice_pitch = has_parent ? m->slice_pitch : 0}};
}

static cl_int read_facts(cl_mem image, struct image_facts *facts)
{
    cl_int error = clGetImageInfo(image, CL_IMAGE_ELEMENT_SIZE, sizeof(size_t), &facts->element_bytes, NULL);

    static_assert(sizeof(size_t) == sizeof facts->bytes, "a fact is a size_t");
    if (error == CL_SUCCESS)
        error = clGetImageInfo(image, CL_IMAGE_ROW_PITCH, sizeof(size_t), &facts->row_pitch, NULL);
    if (error == CL_SUCCESS)
        error = clGetImageInfo(image, CL_IMAGE_SLICE_PITCH, sizeof(size_t), &facts->slice_pitch, NULL);
    if (error == CL_SUCCESS)
        error = clGetMemObjectInfo(image, CL_MEM_SIZE, sizeof(size_t), &facts->bytes, NULL);
    return error;
}

/* Makes the vendor's image and reads what the client asks for. A managed image is made only to see whether the
 * vendor accepts it. */
static cl_int make_image(struct dvk_mem *mem, const struct dvw_create_image *m, struct dvk_mem *parent, void *pixels,
                         bool managed, struct image_facts *facts)
{
    cl_int error = CL_SUCCESS;

    if (managed) {
        mem->parent = parent;
        mem->root = parent ? parent->root : NULL;
        error = dvk_residency_try(mem);
    } else {
        make_unmanaged_image(mem, m, parent, pixels, &error);
    }
    if (error == CL_SUCCESS)
        error = read_facts(mem->vendor, facts);
    if (managed)
        dvk_residency_tried(mem);
    mem->element_bytes = facts->element_bytes;
    mem->bytes = parent ? 0 : facts->bytes;
    return error;
}

/* The bytes of a part of another object are not counted again. */
static cl_int count_image(struct dvk_worker *w, struct dvk_mem *mem, const struct dvk_context *context)
{
    if (dvk_account_claim(w->runtime, mem->device, mem->bytes) < 0 || !dvk_mem_count(mem, context, true))
        return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return CL_SUCCESS;
}

int32_t dvk_on_create_image(struct dvk_worker *w, const struct dvw_create_image *m, const uint8_t *tail,
                            size_t tail_bytes, struct dvk_reply *reply)
{
    struct dvk_context *context = dvk_find_context(w, m->context);
    struct dvk_mem *parent = m->parent.value ? dvk_find_mem(w, m->parent) : NULL;
    void *pixels = m->data ? image_pixels(w, m) : NULL;
    struct image_facts facts = {0};

    if (!context)
        return CL_INVALID_CONTEXT;
    if (m->mip_levels || m->samples) /* the library offers none, and they could be neither scrubbed nor moved */
        return CL_INVALID_IMAGE_DESCRIPTOR;
    if (m->parent.value && (!parent || parent->error))
        return CL_INVALID_MEM_OBJECT;
    if (m->data && !pixels)
        return CL_INVALID_VALUE;
    struct dvk_mem *mem = dvk_mem_new(w, m->id);
    if (!mem)
        return CL_OUT_OF_HOST_MEMORY;
    bool managed = parent ? parent->root != NULL : dvk_is_managed(context);
    mem->is_image = true;
    mem->is_part = parent != NULL;
    dvk_mem_set_recipe(mem, recipe_of(context, m));
    cl_int error = make_image(mem, m, parent, pixels, managed, &facts);
    mem->device = dvk_mem_home(context);
    dvk_measure_image(mem);
    if (error == CL_SUCCESS && !parent)
        error = count_image(w, mem, context);
    if (error == CL_SUCCESS && managed)
        error = dvk_residency_add(mem, pixels);
    if (error != CL_SUCCESS) {
        if (mem->vendor && !managed)
            clReleaseMemObject(mem->vendor);
        dvk_mem_uncount(mem);
        dvk_mem_free(mem);
        return error;
    }
    dvk_reply_put(reply, &facts, sizeof facts);
    dvk_mem_set_origin(mem, &m->head.record, parent ? parent->origin : context->origin);
    dvk_mem_keep(w, mem, CL_SUCCESS);
    return CL_SUCCESS;
}
