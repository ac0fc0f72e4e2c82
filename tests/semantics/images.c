/* Images and rectangles: random transfers, copies and fills with odd pitches and origins against a
 * host model of each image, images in kernels with samplers, images over buffers, queries. */
#include "check.h"

#include <math.h>

#define MAX_IMAGES 3

struct kind {
    cl_mem_object_type type;
    size_t width, height, depth; /* depth counts the layers of an array */
    const char *name;
};

static const struct kind kinds[] = {
    {CL_MEM_OBJECT_IMAGE1D, 61, 1, 1, "1D"},  {CL_MEM_OBJECT_IMAGE1D_ARRAY, 23, 1, 6, "1D array"},
    {CL_MEM_OBJECT_IMAGE2D, 37, 19, 1, "2D"}, {CL_MEM_OBJECT_IMAGE2D_ARRAY, 17, 9, 5, "2D array"},
    {CL_MEM_OBJECT_IMAGE3D, 11, 13, 7, "3D"},
};

static const struct {
    cl_image_format format;
    size_t bytes;
    enum { COLOR_UINT, COLOR_INT, COLOR_FLOAT } color;
} formats[] = {
    {{CL_RGBA, CL_UNSIGNED_INT8}, 4, COLOR_UINT},   {{CL_RGBA, CL_SIGNED_INT16}, 8, COLOR_INT},
    {{CL_RGBA, CL_FLOAT}, 16, COLOR_FLOAT},         {{CL_R, CL_UNSIGNED_INT32}, 4, COLOR_UINT},
    {{CL_RG, CL_UNSIGNED_INT8}, 2, COLOR_UINT},     {{CL_R, CL_UNSIGNED_INT8}, 1, COLOR_UINT},
    {{CL_RGBA, CL_UNORM_INT8}, 4, COLOR_FLOAT},     {{CL_BGRA, CL_UNORM_INT8}, 4, COLOR_FLOAT},
    {{CL_RGBA, CL_UNSIGNED_INT32}, 16, COLOR_UINT}, {{CL_R, CL_FLOAT}, 4, COLOR_FLOAT},
};

static bool is_1d_array(const struct kind *kind)
{
    return kind->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
}

static void check_bytes(const void *got, const void *expected, size_t size, const char *what)
{
    const unsigned char *a = got, *b = expected;
    if (CHECK(memcmp(a, b, size) == 0))
        return;
    size_t first = 0;
    while (a[first] == b[first])
        first++;
    dv_test_detail("%s: byte %zu of %zu is 0x%02x, expected 0x%02x", what, first, size, a[first], b[first]);
}

/* ------------------------------------------------------------------- a model for each image */

struct model {
    cl_mem image;
    unsigned char *bytes; /* tightly packed */
};

struct box {
    size_t x, y, z, w, h, d;
};

static struct box random_box(uint64_t *random, const struct kind *kind, const struct box *same)
{
    struct box box;
    if (same) {
        box = *same;
    } else {
        box.w = 1 + dv_test_random(random) % kind->width;
        box.h = 1 + dv_test_random(random) % kind->height;
        box.d = 1 + dv_test_random(random) % kind->depth;
    }
    box.x = dv_test_random(random) % (kind->width - box.w + 1);
    box.y = dv_test_random(random) % (kind->height - box.h + 1);
    box.z = dv_test_random(random) % (kind->depth - box.d + 1);
    return box;
}

/* The layers of a 1D array are its second coordinate in the API. */
static void box_to_api(const struct kind *kind, const struct box *box, size_t origin[3], size_t region[3])
{
    origin[0] = box->x;
    region[0] = box->w;
    origin[1] = is_1d_array(kind) ? box->z : box->y;
    region[1] = is_1d_array(kind) ? box->d : box->h;
    origin[2] = is_1d_array(kind) ? 0 : box->z;
    region[2] = is_1d_array(kind) ? 1 : box->d;
}

static unsigned char *model_at(const struct kind *kind, size_t pixel, struct model *model, size_t x, size_t y, size_t z)
{
    return model->bytes + pixel * (x + kind->width * (y + kind->height * z));
}

static size_t image_bytes(const struct kind *kind, size_t pixel)
{
    return pixel * kind->width * kind->height * kind->depth;
}

static cl_mem create_image(const struct dv_test *test, const struct kind *kind, const cl_image_format *format,
                           cl_mem_flags flags, void *host)
{
    cl_image_desc desc = {.image_type = kind->type, .image_width = kind->width};
    if (kind->type == CL_MEM_OBJECT_IMAGE2D || kind->type == CL_MEM_OBJECT_IMAGE2D_ARRAY ||
        kind->type == CL_MEM_OBJECT_IMAGE3D)
        desc.image_height = kind->height;
    if (kind->type == CL_MEM_OBJECT_IMAGE3D)
        desc.image_depth = kind->depth;
    if (kind->type == CL_MEM_OBJECT_IMAGE1D_ARRAY || kind->type == CL_MEM_OBJECT_IMAGE2D_ARRAY)
        desc.image_array_size = kind->depth;
    cl_int error;
    cl_mem image = clCreateImage(test->context, flags, format, &desc, host, &error);
    CHECK_CL(error);
    return image;
}

static bool format_supported(const struct dv_test *test, const struct kind *kind, const cl_image_format *format)
{
    cl_image_format list[512];
    cl_uint count = 0;
    CHECK_CL(clGetSupportedImageFormats(test->context, CL_MEM_READ_WRITE, kind->type, 512, list, &count));
    for (cl_uint i = 0; i < count && i < 512; i++)
        if (memcmp(&list[i], format, sizeof *format) == 0)
            return true;
    return false;
}

/* The bytes of one pixel filled with a colour whose components are all exact in the format. */
static void random_color(uint64_t *random, size_t format, void *color, unsigned char *pixel)
{
    const cl_image_format *f = &formats[format].format;
    cl_uint raw[4];
    cl_float real[4];
    for (int i = 0; i < 4; i++) {
        raw[i] = (cl_uint)dv_test_random(random) & 0x7f;
        real[i] = f->image_channel_data_type == CL_FLOAT ? (cl_float)raw[i] * 0.25f : (cl_float)(raw[i] & 1);
    }
    if (formats[format].color == COLOR_FLOAT)
        memcpy(color, real, sizeof real);
    else
        memcpy(color, raw, sizeof raw);
    int channels = f->image_channel_order == CL_R ? 1 : f->image_channel_order == CL_RG ? 2 : 4;
    size_t each = formats[format].bytes / (size_t)channels;
    for (int i = 0; i < channels; i++) {
        int from = f->image_channel_order == CL_BGRA && i < 3 ? 2 - i : i;
        cl_uint value = raw[from];
        if (f->image_channel_data_type == CL_UNORM_INT8)
            value = raw[from] & 1 ? 255 : 0;
        if (f->image_channel_data_type == CL_FLOAT)
            memcpy(pixel + (size_t)i * each, &real[from], each);
        else
            memcpy(pixel + (size_t)i * each, &value, each); /* little endian */
    }
}

static void check_model(const struct dv_test *test, const struct kind *kind, size_t pixel, struct model *model,
                        const char *what)
{
    struct box all = {0, 0, 0, kind->width, kind->height, kind->depth};
    size_t origin[3], region[3], size = image_bytes(kind, pixel);
    box_to_api(kind, &all, origin, region);
    unsigned char *back = malloc(size);
    REQUIRE(back);
    memset(back, 0x77, size);
    CHECK_CL(clEnqueueReadImage(test->queue, model->image, CL_TRUE, origin, region, 0, 0, back, 0, NULL, NULL));
    check_bytes(back, model->bytes, size, what);
    free(back);
}

static void random_operations(const struct dv_test *test, const struct kind *kind, size_t format, int rounds)
{
    size_t pixel = formats[format].bytes;
    size_t size = image_bytes(kind, pixel);
    uint64_t random = 17 + format * 131 + kind->type;
    struct model models[MAX_IMAGES];
    for (int i = 0; i < MAX_IMAGES; i++) {
        REQUIRE((models[i].bytes = malloc(size)));
        dv_test_random_fill(&random, models[i].bytes, size);
        models[i].image = create_image(test, kind, &formats[format].format, CL_MEM_COPY_HOST_PTR, models[i].bytes);
        REQUIRE(models[i].image);
    }
    size_t buffer_size = size + 64;
    unsigned char *buffer_bytes = malloc(buffer_size), *check = malloc(buffer_size);
    REQUIRE(buffer_bytes && check);
    dv_test_random_fill(&random, buffer_bytes, buffer_size);
    cl_mem buffer = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, buffer_size, buffer_bytes);

    for (int round = 0; round < rounds; round++) {
        struct model *model = &models[dv_test_random(&random) % MAX_IMAGES];
        struct box box = random_box(&random, kind, NULL);
        size_t origin[3], region[3];
        box_to_api(kind, &box, origin, region);
        /* Host pitches: tight (zero), or with some odd number of bytes more. */
        bool tight = dv_test_random(&random) % 2;
        size_t row = box.w * pixel + (tight ? 0 : 1 + dv_test_random(&random) % 13);
        size_t slice = row * box.h + (tight ? 0 : row * (dv_test_random(&random) % 3));
        if (is_1d_array(kind))
            slice = row;
        size_t row_argument = tight ? 0 : row;
        size_t slice_argument = tight || kind->depth == 1 ? 0 : slice;
        size_t host_size = slice * box.d;
        switch (dv_test_random(&random) % 6) {
        case 0:
        case 1: {
            unsigned char *host = malloc(host_size);
            REQUIRE(host);
            bool writing = dv_test_random(&random) % 2;
            dv_test_random_fill(&random, host, host_size);
            memset(check, 0, 1);
            unsigned char *expected = malloc(host_size);
            REQUIRE(expected);
            memcpy(expected, host, host_size);
            if (writing)
                CHECK_CL(clEnqueueWriteImage(test->queue, model->image, dv_test_random(&random) % 2, origin, region,
                                             row_argument, slice_argument, host, 0, NULL, NULL));
            else
                CHECK_CL(clEnqueueReadImage(test->queue, model->image, CL_FALSE, origin, region, row_argument,
                                            slice_argument, host, 0, NULL, NULL));
            CHECK_CL(clFinish(test->queue));
            for (size_t z = 0; z < box.d; z++)
                for (size_t y = 0; y < box.h; y++) {
                    unsigned char *in_model = model_at(kind, pixel, model, box.x, box.y + y, box.z + z);
                    unsigned char *in_host = expected + z * slice + y * row;
                    memcpy(writing ? in_model : in_host, writing ? in_host : in_model, box.w * pixel);
                }
            if (!writing)
                check_bytes(host, expected, host_size, "read with pitches");
            free(host);
            free(expected);
            break;
        }
        case 2: {
            unsigned char color[16], bytes[16] = {0};
            random_color(&random, format, color, bytes);
            CHECK_CL(clEnqueueFillImage(test->queue, model->image, color, origin, region, 0, NULL, NULL));
            for (size_t z = 0; z < box.d; z++)
                for (size_t y = 0; y < box.h; y++)
                    for (size_t x = 0; x < box.w; x++)
                        memcpy(model_at(kind, pixel, model, box.x + x, box.y + y, box.z + z), bytes, pixel);
            break;
        }
        case 3: {
            struct model *to = &models[dv_test_random(&random) % MAX_IMAGES];
            if (to == model)
                to = &models[(size_t)(model - models + 1) % MAX_IMAGES];
            struct box target = random_box(&random, kind, &box);
            size_t to_origin[3], unused[3];
            box_to_api(kind, &target, to_origin, unused);
            CHECK_CL(
                clEnqueueCopyImage(test->queue, model->image, to->image, origin, to_origin, region, 0, NULL, NULL));
            for (size_t z = 0; z < box.d; z++)
                for (size_t y = 0; y < box.h; y++)
                    memcpy(model_at(kind, pixel, to, target.x, target.y + y, target.z + z),
                           model_at(kind, pixel, model, box.x, box.y + y, box.z + z), box.w * pixel);
            break;
        }
        default: {
            bool to_buffer = dv_test_random(&random) % 2;
            size_t tight_size = box.w * box.h * box.d * pixel;
            size_t offset = dv_test_random(&random) % (buffer_size - tight_size + 1);
            if (to_buffer)
                CHECK_CL(clEnqueueCopyImageToBuffer(test->queue, model->image, buffer, origin, region, offset, 0, NULL,
                                                    NULL));
            else
                CHECK_CL(clEnqueueCopyBufferToImage(test->queue, buffer, model->image, offset, origin, region, 0, NULL,
                                                    NULL));
            for (size_t z = 0; z < box.d; z++)
                for (size_t y = 0; y < box.h; y++) {
                    unsigned char *in_model = model_at(kind, pixel, model, box.x, box.y + y, box.z + z);
                    unsigned char *in_buffer = buffer_bytes + offset + box.w * pixel * (y + box.h * z);
                    memcpy(to_buffer ? in_buffer : in_model, to_buffer ? in_model : in_buffer, box.w * pixel);
                }
            break;
        }
        }
    }
    for (int i = 0; i < MAX_IMAGES; i++) {
        check_model(test, kind, pixel, &models[i], kind->name);
        CHECK_CL(clReleaseMemObject(models[i].image));
        free(models[i].bytes);
    }
    CHECK_CL(clEnqueueReadBuffer(test->queue, buffer, CL_TRUE, 0, buffer_size, check, 0, NULL, NULL));
    check_bytes(check, buffer_bytes, buffer_size, "buffer beside the images");
    CHECK_CL(clReleaseMemObject(buffer));
    free(buffer_bytes);
    free(check);
}

/* ------------------------------------------------------------------------------- in kernels */

static const char *const source =
    "kernel void shift2d(read_only image2d_t from, write_only image2d_t to, sampler_t sampler) {\n"
    "    int2 at = (int2)(get_global_id(0), get_global_id(1));\n"
    "    write_imageui(to, at, read_imageui(from, sampler, at + (int2)(1, 2)));\n"
    "}\n"
    "kernel void smooth(read_only image2d_t from, sampler_t sampler, global float4 *to,\n"
    "                   float2 step) {\n"
    "    int x = get_global_id(0), y = get_global_id(1);\n"
    "    float2 at = ((float2)(x, y) + 1.0f) * step;\n"
    "    to[y * get_global_size(0) + x] = read_imagef(from, sampler, at);\n"
    "}\n"
    "kernel void copy3d(read_only image3d_t from, global uint4 *to) {\n"
    "    const sampler_t sampler = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP |\n"
    "                              CLK_FILTER_NEAREST;\n"
    "    int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);\n"
    "    size_t at = x + get_global_size(0) * (y + get_global_size(1) * z);\n"
    "    to[at] = read_imageui(from, sampler, (int4)(x, y, z, 0));\n"
    "}\n"
    "kernel void sizes(read_only image2d_t a, read_only image3d_t b, global int *to) {\n"
    "    to[0] = get_image_width(a);\n"
    "    to[1] = get_image_height(a);\n"
    "    to[2] = get_image_width(b);\n"
    "    to[3] = get_image_height(b);\n"
    "    to[4] = get_image_depth(b);\n"
    "    to[5] = get_image_channel_order(a) == CLK_RGBA;\n"
    "    to[6] = get_image_channel_data_type(a) == CLK_UNSIGNED_INT8;\n"
    "}\n"
    "kernel void layer(read_only image2d_array_t from, int which, global uint4 *to) {\n"
    "    const sampler_t sampler = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE |\n"
    "                              CLK_FILTER_NEAREST;\n"
    "    int x = get_global_id(0), y = get_global_id(1);\n"
    "    to[y * get_global_size(0) + x] = read_imageui(from, sampler, (int4)(x, y, which, 0));\n"
    "}\n";

static const cl_image_format rgba8 = {CL_RGBA, CL_UNSIGNED_INT8};

static cl_sampler create_sampler(const struct dv_test *test, cl_bool normalized, cl_addressing_mode addressing,
                                 cl_filter_mode filter)
{
    cl_int error;
    cl_sampler sampler = clCreateSampler(test->context, normalized, addressing, filter, &error);
    REQUIRE_CL(error);
    return sampler;
}

static void test_kernel_2d(const struct dv_test *test, cl_program program)
{
    dv_test_section("2D image in a kernel");
    enum { W = 32, H = 16 };
    const struct kind kind = {CL_MEM_OBJECT_IMAGE2D, W, H, 1, "2D"};
    unsigned char bytes[W * H * 4], back[W * H * 4];
    uint64_t random = 3;
    dv_test_random_fill(&random, bytes, sizeof bytes);
    cl_mem from = create_image(test, &kind, &rgba8, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes);
    cl_mem to = create_image(test, &kind, &rgba8, CL_MEM_WRITE_ONLY, NULL);
    cl_kernel kernel = dv_test_kernel(program, "shift2d");
    static const cl_addressing_mode modes[] = {CL_ADDRESS_CLAMP, CL_ADDRESS_CLAMP_TO_EDGE};
    for (size_t mode = 0; mode < COUNT_OF(modes); mode++) {
        cl_sampler sampler = create_sampler(test, CL_FALSE, modes[mode], CL_FILTER_NEAREST);
        CHECK_CL(clSetKernelArg(kernel, 0, sizeof from, &from));
        CHECK_CL(clSetKernelArg(kernel, 1, sizeof to, &to));
        CHECK_CL(clSetKernelArg(kernel, 2, sizeof sampler, &sampler));
        size_t global[2] = {W, H}, local[2] = {8, 8}, origin[3] = {0}, region[3] = {W, H, 1};
        CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 2, NULL, global, local, 0, NULL, NULL));
        /* The command holds the sampler. */
        CHECK_CL(clReleaseSampler(sampler));
        CHECK_CL(clEnqueueReadImage(test->queue, to, CL_TRUE, origin, region, 0, 0, back, 0, NULL, NULL));
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) {
                int sx = x + 1, sy = y + 2;
                bool outside = sx >= W || sy >= H;
                if (modes[mode] == CL_ADDRESS_CLAMP_TO_EDGE) {
                    sx = sx < W ? sx : W - 1;
                    sy = sy < H ? sy : H - 1;
                    outside = false;
                }
                static const unsigned char border[4] = {0, 0, 0, 0};
                const unsigned char *expected = outside ? border : bytes + 4 * (sy * W + sx);
                if (!CHECK(memcmp(back + 4 * (y * W + x), expected, 4) == 0)) {
                    dv_test_detail("mode %zu pixel %d,%d", mode, x, y);
                    goto done;
                }
            }
    }
done:
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseMemObject(from));
    CHECK_CL(clReleaseMemObject(to));
}

static void test_linear(const struct dv_test *test, cl_program program)
{
    dv_test_section("linear filter");
    enum { W = 8, H = 4 };
    const struct kind kind = {CL_MEM_OBJECT_IMAGE2D, W, H, 1, "2D"};
    static const cl_image_format format = {CL_RGBA, CL_FLOAT};
    cl_float pixels[W * H][4];
    for (int i = 0; i < W * H; i++)
        for (int c = 0; c < 4; c++)
            pixels[i][c] = (cl_float)(i * 4 + c * 3);
    cl_mem image = create_image(test, &kind, &format, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, pixels);
    cl_mem out = dv_test_buffer(test, 0, sizeof pixels, NULL);
    cl_kernel kernel = dv_test_kernel(program, "smooth");
    for (int normalized = 0; normalized < 2; normalized++) {
        cl_int error;
        cl_sampler_properties properties[] = {CL_SAMPLER_NORMALIZED_COORDS,
                                              (cl_sampler_properties)normalized,
                                              CL_SAMPLER_ADDRESSING_MODE,
                                              CL_ADDRESS_CLAMP_TO_EDGE,
                                              CL_SAMPLER_FILTER_MODE,
                                              CL_FILTER_LINEAR,
                                              0};
        cl_sampler sampler = clCreateSamplerWithProperties(test->context, properties, &error);
        CHECK_CL(error);
        REQUIRE(sampler);
        cl_float2 step = {{normalized ? 1.0f / W : 1.0f, normalized ? 1.0f / H : 1.0f}};
        CHECK_CL(clSetKernelArg(kernel, 0, sizeof image, &image));
        CHECK_CL(clSetKernelArg(kernel, 1, sizeof sampler, &sampler));
        CHECK_CL(clSetKernelArg(kernel, 2, sizeof out, &out));
        CHECK_CL(clSetKernelArg(kernel, 3, sizeof step, &step));
        size_t global[2] = {W - 1, H - 1}, local[2] = {1, 1};
        CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 2, NULL, global, local, 0, NULL, NULL));
        cl_float back[W * H][4];
        CHECK_CL(clEnqueueReadBuffer(test->queue, out, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
        /* Between four pixels: their mean. */
        for (int y = 0; y < H - 1; y++)
            for (int x = 0; x < W - 1; x++)
                for (int c = 0; c < 4; c++) {
                    cl_float mean = (pixels[y * W + x][c] + pixels[y * W + x + 1][c] + pixels[(y + 1) * W + x][c] +
                                     pixels[(y + 1) * W + x + 1][c]) /
                                    4.0f;
                    if (!CHECK(fabsf(back[y * (W - 1) + x][c] - mean) < 0.01f))
                        dv_test_detail("%d,%d: %f, expected %f", x, y, (double)back[y * (W - 1) + x][c], (double)mean);
                }
        CHECK_CL(clReleaseSampler(sampler));
    }
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseMemObject(image));
    CHECK_CL(clReleaseMemObject(out));
}

static void test_kernel_3d_and_array(const struct dv_test *test, cl_program program)
{
    dv_test_section("3D image and array in kernels");
    enum { W = 8, H = 6, D = 5 };
    unsigned char bytes[W * H * D * 4];
    cl_uint back[W * H * D][4];
    uint64_t random = 8;
    dv_test_random_fill(&random, bytes, sizeof bytes);
    const struct kind volume = {CL_MEM_OBJECT_IMAGE3D, W, H, D, "3D"};
    const struct kind layers = {CL_MEM_OBJECT_IMAGE2D_ARRAY, W, H, D, "2D array"};
    const struct kind plane = {CL_MEM_OBJECT_IMAGE2D, 33, 7, 1, "2D"};
    cl_mem out = dv_test_buffer(test, 0, sizeof back, NULL);
    cl_mem image3d = create_image(test, &volume, &rgba8, CL_MEM_COPY_HOST_PTR, bytes);
    cl_mem array = create_image(test, &layers, &rgba8, CL_MEM_COPY_HOST_PTR, bytes);
    cl_mem image2d = create_image(test, &plane, &rgba8, 0, NULL);

    cl_kernel kernel = dv_test_kernel(program, "copy3d");
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof image3d, &image3d));
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof out, &out));
    size_t global[3] = {W, H, D}, local[3] = {1, 1, 1};
    CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 3, NULL, global, local, 0, NULL, NULL));
    CHECK_CL(clEnqueueReadBuffer(test->queue, out, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < W * H * D; i++)
        for (int c = 0; c < 4; c++)
            CHECK(back[i][c] == bytes[i * 4 + c]);
    CHECK_CL(clReleaseKernel(kernel));

    kernel = dv_test_kernel(program, "layer");
    for (cl_int which = 0; which < D; which++) {
        CHECK_CL(clSetKernelArg(kernel, 0, sizeof array, &array));
        CHECK_CL(clSetKernelArg(kernel, 1, sizeof which, &which));
        CHECK_CL(clSetKernelArg(kernel, 2, sizeof out, &out));
        CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 2, NULL, global, local, 0, NULL, NULL));
        CHECK_CL(clEnqueueReadBuffer(test->queue, out, CL_TRUE, 0, W * H * 16, back, 0, NULL, NULL));
        for (int i = 0; i < W * H; i++)
            CHECK(back[i][1] == bytes[(which * W * H + i) * 4 + 1]);
    }
    CHECK_CL(clReleaseKernel(kernel));

    kernel = dv_test_kernel(program, "sizes");
    CHECK_CL(clSetKernelArg(kernel, 0, sizeof image2d, &image2d));
    CHECK_CL(clSetKernelArg(kernel, 1, sizeof image3d, &image3d));
    CHECK_CL(clSetKernelArg(kernel, 2, sizeof out, &out));
    size_t one = 1;
    CHECK_CL(clEnqueueNDRangeKernel(test->queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    cl_int found[7] = {0};
    CHECK_CL(clEnqueueReadBuffer(test->queue, out, CL_TRUE, 0, sizeof found, found, 0, NULL, NULL));
    static const cl_int expected[7] = {33, 7, W, H, D, 1, 1};
    for (int i = 0; i < 7; i++)
        if (!CHECK(found[i] == expected[i]))
            dv_test_detail("size %d: %d, expected %d", i, found[i], expected[i]);
    CHECK_CL(clReleaseKernel(kernel));
    CHECK_CL(clReleaseMemObject(out));
    CHECK_CL(clReleaseMemObject(image3d));
    CHECK_CL(clReleaseMemObject(array));
    CHECK_CL(clReleaseMemObject(image2d));
}

static void test_sampler_queries(const struct dv_test *test)
{
    dv_test_section("samplers");
    cl_sampler sampler = create_sampler(test, CL_TRUE, CL_ADDRESS_REPEAT, CL_FILTER_LINEAR);
    cl_bool normalized = 7;
    cl_addressing_mode addressing = 0;
    cl_filter_mode filter = 0;
    cl_context context = NULL;
    cl_uint references = 0;
    CHECK_CL(clGetSamplerInfo(sampler, CL_SAMPLER_NORMALIZED_COORDS, sizeof normalized, &normalized, NULL));
    CHECK_CL(clGetSamplerInfo(sampler, CL_SAMPLER_ADDRESSING_MODE, sizeof addressing, &addressing, NULL));
    CHECK_CL(clGetSamplerInfo(sampler, CL_SAMPLER_FILTER_MODE, sizeof filter, &filter, NULL));
    CHECK_CL(clGetSamplerInfo(sampler, CL_SAMPLER_CONTEXT, sizeof context, &context, NULL));
    CHECK_CL(clRetainSampler(sampler));
    CHECK_CL(clGetSamplerInfo(sampler, CL_SAMPLER_REFERENCE_COUNT, sizeof references, &references, NULL));
    CHECK(normalized == CL_TRUE && addressing == CL_ADDRESS_REPEAT && filter == CL_FILTER_LINEAR);
    CHECK(context == test->context);
    CHECK(references == 2);
    CHECK_CL(clReleaseSampler(sampler));
    CHECK_CL(clReleaseSampler(sampler));
    cl_int error;
    sampler = clCreateSampler(test->context, CL_FALSE, 0x9999, CL_FILTER_NEAREST, &error);
    CHECK_VENDOR(!sampler && error == CL_INVALID_VALUE, "5.7.1: unknown addressing mode");
    if (sampler)
        CHECK_CL(clReleaseSampler(sampler));
    sampler = clCreateSampler(test->context, CL_FALSE, CL_ADDRESS_NONE, 0x9999, &error);
    CHECK_VENDOR(!sampler && error == CL_INVALID_VALUE, "5.7.1: unknown filter mode");
    if (sampler)
        CHECK_CL(clReleaseSampler(sampler));
    cl_sampler_properties twice[] = {CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, CL_SAMPLER_FILTER_MODE,
                                     CL_FILTER_NEAREST, 0};
    sampler = clCreateSamplerWithProperties(test->context, twice, &error);
    CHECK_VENDOR(!sampler && error == CL_INVALID_VALUE, "5.7.1: the same property name specified more than once");
    if (sampler)
        CHECK_CL(clReleaseSampler(sampler));
}

/* -------------------------------------------------------------------------- images over buffers */

static void test_buffer_image(const struct dv_test *test)
{
    dv_test_section("1D image over a buffer");
    enum { PIXELS = 200 };
    unsigned char bytes[PIXELS * 4], back[PIXELS * 4];
    uint64_t random = 12;
    dv_test_random_fill(&random, bytes, sizeof bytes);
    cl_mem buffer = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, sizeof bytes, bytes);
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = PIXELS, .buffer = buffer};
    cl_int error;
    cl_mem image = clCreateImage(test->context, 0, &rgba8, &desc, NULL, &error);
    if (!CHECK_CL(error)) {
        CHECK_CL(clReleaseMemObject(buffer));
        return;
    }
    cl_mem associated = NULL;
    CHECK_CL(clGetMemObjectInfo(image, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof associated, &associated, NULL));
    CHECK(associated == buffer);
    CHECK_CL(clGetImageInfo(image, CL_IMAGE_BUFFER, sizeof associated, &associated, NULL));
    CHECK(associated == buffer);
    size_t origin[3] = {10, 0, 0}, region[3] = {50, 1, 1};
    dv_test_random_fill(&random, bytes + 40, 200);
    CHECK_CL(clEnqueueWriteImage(test->queue, image, CL_TRUE, origin, region, 0, 0, bytes + 40, 0, NULL, NULL));
    CHECK_CL(clEnqueueReadBuffer(test->queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    check_bytes(back, bytes, sizeof back, "buffer under the image");
    memset(bytes + 100, 0x42, 400);
    CHECK_CL(clEnqueueWriteBuffer(test->queue, buffer, CL_TRUE, 100, 400, bytes + 100, 0, NULL, NULL));
    size_t zero[3] = {0}, all[3] = {PIXELS, 1, 1};
    CHECK_CL(clEnqueueReadImage(test->queue, image, CL_TRUE, zero, all, 0, 0, back, 0, NULL, NULL));
    check_bytes(back, bytes, sizeof back, "image over the buffer");
    /* The image keeps the buffer. */
    CHECK_CL(clReleaseMemObject(buffer));
    CHECK_CL(clEnqueueReadImage(test->queue, image, CL_TRUE, zero, all, 0, 0, back, 0, NULL, NULL));
    check_bytes(back, bytes, sizeof back, "image after its buffer's release");
    CHECK_CL(clReleaseMemObject(image));
}

static void test_info(const struct dv_test *test)
{
    dv_test_section("image queries");
    const struct kind kind = {CL_MEM_OBJECT_IMAGE3D, 10, 20, 5, "3D"};
    cl_mem image = create_image(test, &kind, &rgba8, CL_MEM_READ_ONLY, NULL);
    cl_image_format format = {0, 0};
    size_t value = 0;
    cl_mem_object_type type = 0;
    CHECK_CL(clGetImageInfo(image, CL_IMAGE_FORMAT, sizeof format, &format, NULL));
    CHECK(memcmp(&format, &rgba8, sizeof format) == 0);
    static const struct {
        cl_image_info name;
        size_t expected;
    } numbers[] = {{CL_IMAGE_ELEMENT_SIZE, 4},
                   {CL_IMAGE_WIDTH, 10},
                   {CL_IMAGE_HEIGHT, 20},
                   {CL_IMAGE_DEPTH, 5},
                   {CL_IMAGE_ARRAY_SIZE, 0}};
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        value = 777;
        CHECK_CL(clGetImageInfo(image, numbers[i].name, sizeof value, &value, NULL));
        if (!CHECK(value == numbers[i].expected))
            dv_test_detail("query %zu: %zu, expected %zu", i, value, numbers[i].expected);
    }
    size_t row = 0, slice = 0;
    CHECK_CL(clGetImageInfo(image, CL_IMAGE_ROW_PITCH, sizeof row, &row, NULL));
    CHECK_CL(clGetImageInfo(image, CL_IMAGE_SLICE_PITCH, sizeof slice, &slice, NULL));
    CHECK(row >= 40 && slice >= row * 20);
    CHECK_CL(clGetMemObjectInfo(image, CL_MEM_TYPE, sizeof type, &type, NULL));
    CHECK(type == CL_MEM_OBJECT_IMAGE3D);
    CHECK_CL(clGetMemObjectInfo(image, CL_MEM_SIZE, sizeof value, &value, NULL));
    CHECK(value >= 10 * 20 * 5 * 4);
    CHECK_CL(clReleaseMemObject(image));

    cl_mem buffer = dv_test_buffer(test, 0, 64, NULL);
    CHECK_VENDOR(clGetImageInfo(buffer, CL_IMAGE_WIDTH, sizeof value, &value, NULL) == CL_INVALID_MEM_OBJECT,
                 "5.3.9: not an image object");
    CHECK_CL(clReleaseMemObject(buffer));
}

/* ----------------------------------------------------------------------- rectangles of buffers */

static void test_rect_overlap(const struct dv_test *test)
{
    dv_test_section("rectangles inside one buffer");
    enum { ROW = 40, ROWS = 30, SIZE = ROW * ROWS };
    unsigned char expected[SIZE];
    uint64_t random = 71;
    dv_test_random_fill(&random, expected, SIZE);
    cl_mem buffer = dv_test_buffer(test, CL_MEM_COPY_HOST_PTR, SIZE, expected);
    /* Side by side in the same rows: no overlap although the spans interleave. */
    size_t from[3] = {1, 2, 0}, to[3] = {21, 2, 0}, region[3] = {17, 20, 1};
    CHECK_CL(clEnqueueCopyBufferRect(test->queue, buffer, buffer, from, to, region, ROW, 0, ROW, 0, 0, NULL, NULL));
    for (size_t y = 0; y < 20; y++)
        memcpy(expected + (y + 2) * ROW + 21, expected + (y + 2) * ROW + 1, 17);
    unsigned char back[SIZE];
    CHECK_CL(clEnqueueReadBuffer(test->queue, buffer, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    check_bytes(back, expected, SIZE, "side by side");
    size_t overlapping[3] = {5, 4, 0};
    CHECK_ERROR(
        clEnqueueCopyBufferRect(test->queue, buffer, buffer, from, overlapping, region, ROW, 0, ROW, 0, 0, NULL, NULL),
        CL_MEM_COPY_OVERLAP);
    /* Default pitches are those of the region. */
    size_t zero[3] = {0}, block[3] = {10, 5, 2};
    unsigned char tight[100];
    dv_test_random_fill(&random, tight, sizeof tight);
    CHECK_CL(
        clEnqueueWriteBufferRect(test->queue, buffer, CL_TRUE, zero, zero, block, 0, 0, 0, 0, tight, 0, NULL, NULL));
    memcpy(expected, tight, 100);
    CHECK_CL(clEnqueueReadBuffer(test->queue, buffer, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    check_bytes(back, expected, SIZE, "default pitches");
    /* Errors. */
    size_t beyond[3] = {0, ROWS, 0};
    CHECK_ERROR(clEnqueueReadBufferRect(test->queue, buffer, CL_TRUE, beyond, zero, region, ROW, 0, ROW, 0, back, 0,
                                        NULL, NULL),
                CL_INVALID_VALUE);
    CHECK_ERROR(
        clEnqueueReadBufferRect(test->queue, buffer, CL_TRUE, zero, zero, region, 16, 0, ROW, 0, back, 0, NULL, NULL),
        CL_INVALID_VALUE);
    size_t empty[3] = {0, 1, 1};
    CHECK_ERROR(
        clEnqueueReadBufferRect(test->queue, buffer, CL_TRUE, zero, zero, empty, ROW, 0, ROW, 0, back, 0, NULL, NULL),
        CL_INVALID_VALUE);
    CHECK_ERROR(
        clEnqueueReadBufferRect(test->queue, buffer, CL_TRUE, zero, zero, region, ROW, 0, ROW, 0, NULL, 0, NULL, NULL),
        CL_INVALID_VALUE);
    CHECK_CL(clReleaseMemObject(buffer));
}

static void test_errors(const struct dv_test *test)
{
    dv_test_section("image errors");
    cl_int error;
    const struct kind kind = {CL_MEM_OBJECT_IMAGE2D, 16, 16, 1, "2D"};
    cl_mem image = create_image(test, &kind, &rgba8, 0, NULL);
    cl_mem other = create_image(test, &kind, &formats[2].format, 0, NULL);
    unsigned char bytes[16 * 16 * 16] = {0};
    size_t zero[3] = {0}, all[3] = {16, 16, 1}, wide[3] = {17, 1, 1}, none[3] = {0, 1, 1};
    size_t deep[3] = {1, 1, 2}, corner[3] = {15, 15, 0}, two[3] = {2, 2, 1};
    CHECK_ERROR(clEnqueueReadImage(test->queue, image, CL_TRUE, zero, wide, 0, 0, bytes, 0, NULL, NULL),
                CL_INVALID_VALUE);
    CHECK_VENDOR(clEnqueueReadImage(test->queue, image, CL_TRUE, zero, none, 0, 0, bytes, 0, NULL, NULL) ==
                     CL_INVALID_VALUE,
                 "5.3.3: a region with a zero");
    CHECK_ERROR(clEnqueueReadImage(test->queue, image, CL_TRUE, zero, deep, 0, 0, bytes, 0, NULL, NULL),
                CL_INVALID_VALUE);
    CHECK_ERROR(clEnqueueReadImage(test->queue, image, CL_TRUE, corner, two, 0, 0, bytes, 0, NULL, NULL),
                CL_INVALID_VALUE);
    CHECK_ERROR(clEnqueueWriteImage(test->queue, image, CL_TRUE, zero, all, 0, 0, NULL, 0, NULL, NULL),
                CL_INVALID_VALUE);
    CHECK_ERROR(clEnqueueCopyImage(test->queue, image, other, zero, zero, all, 0, NULL, NULL),
                CL_IMAGE_FORMAT_MISMATCH);
    CHECK_ERROR(clEnqueueCopyImage(test->queue, image, image, zero, zero, two, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
    CHECK_CL(clReleaseMemObject(image));
    CHECK_CL(clReleaseMemObject(other));

    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 0, .image_height = 1};
    CHECK(!clCreateImage(test->context, 0, &rgba8, &desc, NULL, &error));
    CHECK(error != CL_SUCCESS);
    CHECK_VENDOR(error == CL_INVALID_IMAGE_SIZE || error == CL_INVALID_IMAGE_DESCRIPTOR,
                 "5.3.1: image_width must be at least one");
    desc.image_width = (size_t)1 << 30;
    CHECK(!clCreateImage(test->context, 0, &rgba8, &desc, NULL, &error));
    CHECK(error != CL_SUCCESS);
    CHECK_VENDOR(error == CL_INVALID_IMAGE_SIZE, "5.3.1: larger than the device's maximum");
    desc.image_width = 4;
    desc.image_type = 0x4242;
    CHECK(!clCreateImage(test->context, 0, &rgba8, &desc, NULL, &error));
    CHECK(error != CL_SUCCESS);
    CHECK_VENDOR(error == CL_INVALID_IMAGE_DESCRIPTOR, "5.3.1: unknown image type");
    desc.image_type = CL_MEM_OBJECT_IMAGE2D;
    CHECK(!clCreateImage(test->context, 0, &rgba8, NULL, NULL, &error));
    CHECK_ERROR(error, CL_INVALID_IMAGE_DESCRIPTOR);
    CHECK(!clCreateImage(test->context, 0, NULL, &desc, NULL, &error));
    CHECK_ERROR(error, CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
    desc.image_row_pitch = 64;
    image = clCreateImage(test->context, 0, &rgba8, &desc, NULL, &error);
    CHECK_VENDOR(!image && error == CL_INVALID_IMAGE_DESCRIPTOR,
                 "5.3.1.2: the row pitch must be zero without a host pointer");
    if (image)
        CHECK_CL(clReleaseMemObject(image));
    desc.image_row_pitch = 0;
    CHECK(!clCreateImage(test->context, CL_MEM_USE_HOST_PTR, &rgba8, &desc, NULL, &error));
    CHECK_ERROR(error, CL_INVALID_HOST_PTR);
    CHECK(!clCreateImage(test->context, 0, &rgba8, &desc, bytes, &error));
    CHECK_ERROR(error, CL_INVALID_HOST_PTR);
}

int main(void)
{
    struct dv_test test = dv_test_setup();
    cl_bool images = CL_FALSE;
    CHECK_CL(clGetDeviceInfo(test.device, CL_DEVICE_IMAGE_SUPPORT, sizeof images, &images, NULL));
    test_rect_overlap(&test);
    if (images) {
        for (size_t format = 0; format < COUNT_OF(formats); format++)
            for (size_t kind = 0; kind < COUNT_OF(kinds); kind++) {
                char name[80];
                snprintf(name, sizeof name, "%s, format %zu", kinds[kind].name, format);
                dv_test_section(name);
                if (format_supported(&test, &kinds[kind], &formats[format].format))
                    random_operations(&test, &kinds[kind], format, 40);
                else
                    dv_test_skip("format not supported");
            }
        cl_program program = dv_test_build(&test, source, "");
        test_kernel_2d(&test, program);
        test_linear(&test, program);
        test_kernel_3d_and_array(&test, program);
        CHECK_CL(clReleaseProgram(program));
        test_sampler_queries(&test);
        test_buffer_image(&test);
        test_info(&test);
        test_errors(&test);
    } else {
        dv_test_skip("the device has no images");
    }
    dv_test_teardown(&test);
    return dv_test_result("images");
}
