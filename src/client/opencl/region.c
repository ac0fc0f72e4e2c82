/* Boxes of bytes and pixels: checks, and copying between packed and pitched memory. */
#include <string.h>

#include "src/client/opencl/region.h"

cl_int dvc_region_linear(struct dvc_region *r, struct dvc_mem *mem, size_t offset, size_t size)
{
    if (offset > mem->size || size > mem->size - offset)
        return CL_INVALID_VALUE;
    *r = (struct dvc_region){
        .shape = DV_SHAPE_LINEAR, .origin = {offset, 0, 0}, .size = {size, 1, 1}, .row_bytes = size, .bytes = size};
    return CL_SUCCESS;
}

/* No coordinate or pitch is larger: sums and products of two of them cannot wrap. */
#define COORDINATE_MAX ((size_t)1 << 46)

static bool too_large(const size_t *three)
{
    return three[0] > COORDINATE_MAX || three[1] > COORDINATE_MAX || three[2] > COORDINATE_MAX;
}

static cl_int fix_pitches(const size_t *region, size_t *row_pitch, size_t *slice_pitch)
{
    if (*row_pitch == 0)
        *row_pitch = region[0];
    if (*row_pitch < region[0] || *row_pitch > COORDINATE_MAX || *slice_pitch > COORDINATE_MAX)
        return CL_INVALID_VALUE;
    unsigned __int128 slice = (unsigned __int128)region[1] * *row_pitch;
    if (slice > COORDINATE_MAX)
        return CL_INVALID_VALUE;
    if (*slice_pitch == 0)
        *slice_pitch = (size_t)slice;
    if (*slice_pitch < slice || *slice_pitch % *row_pitch)
        return CL_INVALID_VALUE;
    return CL_SUCCESS;
}

cl_int dvc_region_rect(struct dvc_region *r, struct dvc_mem *mem, const size_t *buffer_origin,
                       const size_t *host_origin, const size_t *region, size_t row_pitch, size_t slice_pitch,
                       size_t host_row_pitch, size_t host_slice_pitch)
{
    if (!buffer_origin || !host_origin || !region || !region[0] || !region[1] || !region[2])
        return CL_INVALID_VALUE;
    if (too_large(buffer_origin) || too_large(host_origin) || too_large(region))
        return CL_INVALID_VALUE;
    if (fix_pitches(region, &row_pitch, &slice_pitch) || fix_pitches(region, &host_row_pitch, &host_slice_pitch))
        return CL_INVALID_VALUE;
    unsigned __int128 last = (unsigned __int128)(buffer_origin[2] + region[2] - 1) * slice_pitch +
                             (unsigned __int128)(buffer_origin[1] + region[1] - 1) * row_pitch + buffer_origin[0] +
                             region[0];
    if (last > mem->size)
        return CL_INVALID_VALUE;
    *r = (struct dvc_region){.shape = DV_SHAPE_RECT,
                             .row_pitch = row_pitch,
                             .slice_pitch = slice_pitch,
                             .host_offset =
                                 host_origin[2] * host_slice_pitch + host_origin[1] * host_row_pitch + host_origin[0],
                             .host_row_pitch = host_row_pitch,
                             .host_slice_pitch = host_slice_pitch,
                             .row_bytes = region[0],
                             .bytes = region[0] * region[1] * region[2]};
    memcpy(r->origin, buffer_origin, sizeof r->origin);
    memcpy(r->size, region, sizeof r->size);
    return CL_SUCCESS;
}

/* An image's extent in each of the three coordinates that commands use. */
static void image_extent(const struct dvc_mem *mem, size_t extent[3])
{
    extent[0] = mem->desc.image_width;
    extent[1] = extent[2] = 1;
    switch (mem->type) {
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
        extent[1] = mem->desc.image_array_size;
        break;
    case CL_MEM_OBJECT_IMAGE2D:
        extent[1] = mem->desc.image_height;
        break;
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
        extent[1] = mem->desc.image_height;
        extent[2] = mem->desc.image_array_size;
        break;
    case CL_MEM_OBJECT_IMAGE3D:
        extent[1] = mem->desc.image_height;
        extent[2] = mem->desc.image_depth;
        break;
    default:
        break;
    }
}

cl_int dvc_check_image_box(const struct dvc_mem *mem, const size_t *origin, const size_t *region)
{
    size_t extent[3];

    if (!origin || !region)
        return CL_INVALID_VALUE;
    image_extent(mem, extent);
    for (int i = 0; i < 3; i++)
        if (region[i] == 0 || origin[i] > extent[i] || region[i] > extent[i] - origin[i])
            return CL_INVALID_VALUE;
    return CL_SUCCESS;
}

cl_int dvc_region_image(struct dvc_region *r, struct dvc_mem *mem, const size_t *origin, const size_t *region,
                        size_t host_row_pitch, size_t host_slice_pitch)
{
    cl_int error = dvc_check_image_box(mem, origin, region);
    if (error != CL_SUCCESS)
        return error;
    if (host_row_pitch > COORDINATE_MAX || host_slice_pitch > COORDINATE_MAX)
        return CL_INVALID_VALUE;
    size_t row = region[0] * mem->element_bytes;
    bool sliced = mem->type == CL_MEM_OBJECT_IMAGE1D_ARRAY || mem->type == CL_MEM_OBJECT_IMAGE2D_ARRAY ||
                  mem->type == CL_MEM_OBJECT_IMAGE3D;
    if (host_row_pitch == 0)
        host_row_pitch = row;
    if (host_row_pitch < row || (host_slice_pitch && !sliced))
        return CL_INVALID_VALUE;
    /* a 1D array has its lines one slice pitch apart */
    if (mem->type == CL_MEM_OBJECT_IMAGE1D_ARRAY) {
        if (host_slice_pitch == 0)
            host_slice_pitch = host_row_pitch;
        if (host_slice_pitch < host_row_pitch)
            return CL_INVALID_VALUE;
        host_row_pitch = host_slice_pitch;
        host_slice_pitch = host_row_pitch * region[1];
    } else {
        if (host_slice_pitch == 0)
            host_slice_pitch = host_row_pitch * region[1];
        if (host_slice_pitch < host_row_pitch * region[1])
            return CL_INVALID_VALUE;
    }
    *r = (struct dvc_region){.shape = DV_SHAPE_IMAGE,
                             .host_row_pitch = host_row_pitch,
                             .host_slice_pitch = host_slice_pitch,
                             .row_bytes = row,
                             .bytes = row * region[1] * region[2]};
    memcpy(r->origin, origin, sizeof r->origin);
    memcpy(r->size, region, sizeof r->size);
    return CL_SUCCESS;
}

size_t dvc_region_host_span(const struct dvc_region *r)
{
    if (r->shape == DV_SHAPE_LINEAR)
        return r->bytes;
    return (r->size[2] - 1) * r->host_slice_pitch + (r->size[1] - 1) * r->host_row_pitch + r->row_bytes;
}

static void copy_box(uint8_t *to, size_t to_row, size_t to_slice, const uint8_t *from, size_t from_row,
                     size_t from_slice, const struct dvc_region *r)
{
    size_t slice_bytes = r->row_bytes * r->size[1];

    if (to_row == r->row_bytes && from_row == r->row_bytes && to_slice == slice_bytes && from_slice == slice_bytes) {
        memcpy(to, from, r->bytes);
        return;
    }
    for (size_t z = 0; z < r->size[2]; z++)
        for (size_t y = 0; y < r->size[1]; y++)
            memcpy(to + z * to_slice + y * to_row, from + z * from_slice + y * from_row, r->row_bytes);
}

void dvc_region_pack(const struct dvc_region *r, void *packed, const void *host)
{
    const uint8_t *from = (const uint8_t *)host + r->host_offset;
    if (r->shape == DV_SHAPE_LINEAR)
        memcpy(packed, from, r->bytes);
    else
        copy_box(packed, r->row_bytes, r->row_bytes * r->size[1], from, r->host_row_pitch, r->host_slice_pitch, r);
}

void dvc_region_unpack(const struct dvc_region *r, const void *packed, void *host)
{
    uint8_t *to = (uint8_t *)host + r->host_offset;
    if (r->shape == DV_SHAPE_LINEAR)
        memcpy(to, packed, r->bytes);
    else
        copy_box(to, r->host_row_pitch, r->host_slice_pitch, packed, r->row_bytes, r->row_bytes * r->size[1], r);
}

static size_t storage_offset(const struct dvc_region *r)
{
    return r->origin[2] * r->slice_pitch + r->origin[1] * r->row_pitch + r->origin[0];
}

void dvc_region_to_storage(const struct dvc_region *r, uint8_t *storage, const void *host)
{
    const uint8_t *from = (const uint8_t *)host + r->host_offset;
    if (r->shape == DV_SHAPE_LINEAR)
        memcpy(storage + r->origin[0], from, r->bytes);
    else
        copy_box(storage + storage_offset(r), r->row_pitch, r->slice_pitch, from, r->host_row_pitch,
                 r->host_slice_pitch, r);
}

void dvc_region_from_storage(const struct dvc_region *r, const uint8_t *storage, void *host)
{
    uint8_t *to = (uint8_t *)host + r->host_offset;
    if (r->shape == DV_SHAPE_LINEAR)
        memcpy(to, storage + r->origin[0], r->bytes);
    else
        copy_box(to, r->host_row_pitch, r->host_slice_pitch, storage + storage_offset(r), r->row_pitch, r->slice_pitch,
                 r);
}
