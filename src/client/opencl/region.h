/* Boxes of bytes and pixels, and copies between memory layouts. */
#ifndef DV_CLIENT_OPENCL_REGION_H
#define DV_CLIENT_OPENCL_REGION_H

#include "src/client/opencl/objects.h"

/* A box of bytes (buffers) or pixels (images) and where it lies in the application's memory. */
struct dvc_region {
    enum dv_shape shape;
    size_t origin[3], size[3];
    size_t row_pitch, slice_pitch;           /* of the buffer, DV_SHAPE_RECT only */
    size_t host_offset;                      /* of the box's first byte */
    size_t host_row_pitch, host_slice_pitch; /* of the application's memory */
    size_t row_bytes;                        /* of one packed row */
    size_t bytes;                            /* of the packed box */
};

cl_int dvc_region_linear(struct dvc_region *r, struct dvc_mem *mem, size_t offset, size_t size);
cl_int dvc_region_rect(struct dvc_region *r, struct dvc_mem *mem, const size_t *buffer_origin,
                       const size_t *host_origin, const size_t *region, size_t row_pitch, size_t slice_pitch,
                       size_t host_row_pitch, size_t host_slice_pitch);
cl_int dvc_region_image(struct dvc_region *r, struct dvc_mem *mem, const size_t *origin, const size_t *region,
                        size_t host_row_pitch, size_t host_slice_pitch);
cl_int dvc_check_image_box(const struct dvc_mem *mem, const size_t *origin, const size_t *region);
/* The bytes of application memory from the box's first to its last. */
size_t dvc_region_host_span(const struct dvc_region *r);
/* Copy between packed memory and the application's. */
void dvc_region_pack(const struct dvc_region *r, void *packed, const void *host);
void dvc_region_unpack(const struct dvc_region *r, const void *packed, void *host);
/* Copy between a buffer's own storage and the application's memory. */
void dvc_region_to_storage(const struct dvc_region *r, uint8_t *storage, const void *host);
void dvc_region_from_storage(const struct dvc_region *r, const uint8_t *storage, void *host);

#endif
