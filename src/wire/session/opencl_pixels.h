/* How many bytes a pixel has: the client packs pixels by it, the worker checks bounds by it. */
#ifndef DV_WIRE_SESSION_OPENCL_PIXELS_H
#define DV_WIRE_SESSION_OPENCL_PIXELS_H

#include <CL/cl.h>

static inline size_t dv_pixel_channels(cl_channel_order order)
{
    switch (order) {
    case CL_R:
    case CL_A:
    case CL_Rx:
    case CL_INTENSITY:
    case CL_LUMINANCE:
    case CL_DEPTH:
        return 1;
    case CL_RG:
    case CL_RA:
    case CL_RGx:
        return 2;
    case CL_RGB:
    case CL_RGBx:
    case CL_sRGB:
        return 3;
    default:
        return 4;
    }
}

/* At least: the vendor refuses formats it does not know. */
static inline size_t dv_pixel_bytes(cl_channel_order order, cl_channel_type type)
{
    switch (type) {
    case CL_SNORM_INT8:
    case CL_UNORM_INT8:
    case CL_SIGNED_INT8:
    case CL_UNSIGNED_INT8:
        return dv_pixel_channels(order);
    case CL_SNORM_INT16:
    case CL_UNORM_INT16:
    case CL_SIGNED_INT16:
    case CL_UNSIGNED_INT16:
    case CL_HALF_FLOAT:
        return 2 * dv_pixel_channels(order);
    case CL_UNORM_SHORT_565:
    case CL_UNORM_SHORT_555:
        return 2;
    case CL_UNORM_INT_101010:
    case CL_UNORM_INT_101010_2:
        return 4;
    default:
        return 4 * dv_pixel_channels(order);
    }
}

#endif
