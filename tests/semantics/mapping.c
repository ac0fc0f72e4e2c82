/* Maps of buffers, sub-buffers and images: what the pointer shows, where it points, what arrives on
 * the device, and how many there are. */
#include "check.h"

#define BYTES 65536

static const char *const source = "kernel void double_it(global uchar *data) { data[get_global_id(0)] *= 2; }\n"
                                  "kernel void copy(global const uchar *from, global uchar *to) {\n"
                                  "    to[get_global_id(0)] = from[get_global_id(0)];\n"
                                  "}\n";

static cl_kernel double_kernel, copy_kernel;

static cl_uint map_count(cl_mem memory)
{
    cl_uint count = 99;
    CHECK_CL(clGetMemObjectInfo(memory, CL_MEM_MAP_COUNT, sizeof count, &count, NULL));
    return count;
}

static void *map(const struct dv_test *test, cl_mem buffer, cl_map_flags flags, size_t offset, size_t size)
{
    cl_int error;
    void *pointer = clEnqueueMapBuffer(test->queue, buffer, CL_TRUE, flags, offset, size, 0, NULL, NULL, &error);
    CHECK_CL(error);
    REQUIRE(pointer);
    return pointer;
}

static void unmap(const struct dv_test *test, cl_mem memory, void *pointer)
{
    cl_event event;
    CHECK_CL(clEnqueueUnmapMemObject(test->queue, memory, pointer, 0, NULL, &event));
    CHECK_CL(clWaitForEvents(1, &event));
    CHECK_CL(clReleaseEvent(event));
}

static void run_double(const struct dv_test *test, cl_mem buffer, size_t size)
{
    size_t local = size % 64 ? 1 : 64;
    CHECK_CL(clSetKernelArg(double_kernel, 0, sizeof buffer, &buffer));
    CHECK_CL(clEnqueueNDRangeKernel(test->queue, double_kernel, 1, NULL, &size, &local, 0, NULL, NULL));
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

static void check_buffer(const struct dv_test *test, cl_mem buffer, const void *expected, size_t size, const char *what)
{
    unsigned char *back = malloc(size);
    REQUIRE(back);
    CHECK_CL(clEnqueueReadBuffer(test->queue, buffer, CL_TRUE, 0, size, back, 0, NULL, NULL));
    check_bytes(back, expected, size, what);
    free(back);
}

static void test_buffer(const struct dv_test *test, cl_mem_flags flags, const char *name)
{
    dv_test_section(name);
    bool uses_host = flags & CL_MEM_USE_HOST_PTR;
    unsigned char *host = NULL, expected[BYTES];
    uint64_t random = 42;
    dv_test_random_fill(&random, expected, sizeof expected);
    REQUIRE(posix_memalign((void **)&host, 4096, BYTES) == 0);
    memcpy(host, expected, BYTES);
    cl_mem buffer =
        dv_test_buffer(test, flags, BYTES, flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) ? host : NULL);
    if (!(flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)))
        CHECK_CL(clEnqueueWriteBuffer(test->queue, buffer, CL_TRUE, 0, BYTES, expected, 0, NULL, NULL));
    if (!uses_host)
        memset(host, 0, BYTES);
    CHECK(map_count(buffer) == 0);

    /* Overlapping maps for reading. */
    unsigned char *whole = map(test, buffer, CL_MAP_READ, 0, BYTES);
    CHECK((uintptr_t)whole % 64 == 0);
    unsigned char *part = map(test, buffer, CL_MAP_READ, 1001, 30000);
    unsigned char *again = map(test, buffer, CL_MAP_READ, 1001, 30000);
    CHECK(map_count(buffer) == 3);
    check_bytes(whole, expected, BYTES, "whole map");
    check_bytes(part, expected + 1001, 30000, "part");
    check_bytes(again, expected + 1001, 30000, "same part again");
    if (uses_host) {
        CHECK(whole == host);
        CHECK(part == host + 1001);
        CHECK(again == host + 1001);
    }
    unmap(test, buffer, part);
    CHECK(map_count(buffer) == 2);
    check_bytes(again, expected + 1001, 30000, "after unmap of another");
    check_bytes(whole, expected, BYTES, "after unmap of another");
    /* Kernels may read what is mapped for reading. */
    cl_mem copy = dv_test_buffer(test, 0, BYTES, NULL);
    size_t global = BYTES, local = 64;
    CHECK_CL(clSetKernelArg(copy_kernel, 0, sizeof buffer, &buffer));
    CHECK_CL(clSetKernelArg(copy_kernel, 1, sizeof copy, &copy));
    CHECK_CL(clEnqueueNDRangeKernel(test->queue, copy_kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    check_buffer(test, copy, expected, BYTES, "copied while mapped");
    CHECK_CL(clReleaseMemObject(copy));
    unmap(test, buffer, whole);
    unmap(test, buffer, again);
    CHECK(map_count(buffer) == 0);
    check_buffer(test, buffer, expected, BYTES, "after maps for reading");

    /* Written bytes reach kernels, the others stay. */
    part = map(test, buffer, CL_MAP_WRITE, 100, 5000);
    check_bytes(part, expected + 100, 5000, "map for writing shows the contents");
    memset(part + 10, 0x11, 4000);
    memset(expected + 110, 0x11, 4000);
    unmap(test, buffer, part);
    run_double(test, buffer, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        expected[i] = (unsigned char)(expected[i] * 2);
    whole = map(test, buffer, CL_MAP_READ | CL_MAP_WRITE, 0, BYTES);
    check_bytes(whole, expected, BYTES, "after the kernel");
    if (uses_host)
        CHECK(whole == host);
    for (size_t i = 0; i < BYTES; i += 3)
        whole[i] = expected[i] = (unsigned char)i;
    unmap(test, buffer, whole);
    check_buffer(test, buffer, expected, BYTES, "after read-write map");

    /* Invalidation: only the mapped region is given up. */
    part = map(test, buffer, CL_MAP_WRITE_INVALIDATE_REGION, 7, 12345);
    dv_test_random_fill(&random, expected + 7, 12345);
    memcpy(part, expected + 7, 12345);
    unmap(test, buffer, part);
    check_buffer(test, buffer, expected, BYTES, "after invalidating map");

    /* Two disjoint maps for writing at once. */
    unsigned char *low = map(test, buffer, CL_MAP_WRITE, 0, 4096);
    unsigned char *high = map(test, buffer, CL_MAP_WRITE, 4096, 4096);
    memset(low, 0xaa, 4096);
    memset(high, 0xbb, 4096);
    memset(expected, 0xaa, 4096);
    memset(expected + 4096, 0xbb, 4096);
    unmap(test, buffer, high);
    check_bytes(low, expected, 4096, "still mapped");
    unmap(test, buffer, low);
    check_buffer(test, buffer, expected, BYTES, "after two maps for writing");

    /* Every transfer sees what a map wrote, and a map sees every transfer. */
    cl_uint pattern = 0x01020304;
    CHECK_CL(clEnqueueFillBuffer(test->queue, buffer, &pattern, 4, 0, 8192, 0, NULL, NULL));
    for (size_t i = 0; i < 2048; i++)
        memcpy(expected + 4 * i, &pattern, 4);
    CHECK_CL(clEnqueueCopyBuffer(test->queue, buffer, buffer, 0, 16384, 8192, 0, NULL, NULL));
    memcpy(expected + 16384, expected, 8192);
    CHECK_CL(clEnqueueWriteBuffer(test->queue, buffer, CL_FALSE, 30001, 3, "xyz", 0, NULL, NULL));
    memcpy(expected + 30001, "xyz", 3);
    whole = map(test, buffer, CL_MAP_READ, 0, BYTES);
    check_bytes(whole, expected, BYTES, "after transfers");
    unmap(test, buffer, whole);

    /* Mapped on one queue, unmapped on another; not blocking, ordered by events. */
    cl_event mapped, unmapped;
    cl_int error;
    part = clEnqueueMapBuffer(test->ooo_queue, buffer, CL_FALSE, CL_MAP_WRITE, 9, 99, 0, NULL, &mapped, &error);
    CHECK_CL(error);
    CHECK_CL(clFlush(test->ooo_queue));
    CHECK_CL(clWaitForEvents(1, &mapped));
    check_bytes(part, expected + 9, 99, "non-blocking map");
    memset(part, 0xcd, 99);
    memset(expected + 9, 0xcd, 99);
    CHECK_CL(clEnqueueUnmapMemObject(test->queue, buffer, part, 1, &mapped, &unmapped));
    CHECK_CL(clFinish(test->queue));
    CHECK(dv_test_event_status(unmapped) == CL_COMPLETE);
    CHECK_CL(clReleaseEvent(mapped));
    CHECK_CL(clReleaseEvent(unmapped));
    check_buffer(test, buffer, expected, BYTES, "unmapped on another queue");
    CHECK(map_count(buffer) == 0);

    CHECK_CL(clReleaseMemObject(buffer));
    free(host);
}

static void test_errors(const struct dv_test *test)
{
    dv_test_section("map errors");
    cl_int error;
    cl_mem buffer = dv_test_buffer(test, 0, 1000, NULL);
    cl_mem other = dv_test_buffer(test, 0, 1000, NULL);
    static const struct {
        cl_map_flags flags;
        size_t offset, size;
    } wrong[] = {
        {CL_MAP_READ, 0, 0},
        {CL_MAP_READ, 0, 1001},
        {CL_MAP_READ, 1000, 1},
        {CL_MAP_READ, 1, 1000},
        {CL_MAP_READ, SIZE_MAX, 2},
        {CL_MAP_READ, 2, SIZE_MAX},
        {CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION, 0, 10},
        {CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION, 0, 10},
        {1u << 20, 0, 10},
    };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        error = 12345;
        void *pointer = clEnqueueMapBuffer(test->queue, buffer, CL_TRUE, wrong[i].flags, wrong[i].offset, wrong[i].size,
                                           0, NULL, NULL, &error);
        if (wrong[i].size == 10) {
            CHECK_EXCEPT_POCL(!pointer && error == CL_INVALID_VALUE,
                              "5.2.4: map_flags that do not go together, or unknown ones");
        } else {
            bool refused = CHECK(pointer == NULL);
            refused &= CHECK_ERROR(error, CL_INVALID_VALUE);
            if (!refused)
                dv_test_detail("case %zu", i);
        }
        if (pointer)
            unmap(test, buffer, pointer);
    }
    CHECK(map_count(buffer) == 0);
    char stack[10];
    CHECK_ERROR(clEnqueueUnmapMemObject(test->queue, buffer, stack, 0, NULL, NULL), CL_INVALID_VALUE);
    CHECK_ERROR(clEnqueueUnmapMemObject(test->queue, buffer, NULL, 0, NULL, NULL), CL_INVALID_VALUE);
    void *pointer = map(test, buffer, CL_MAP_READ, 0, 1000);
    CHECK_ERROR(clEnqueueUnmapMemObject(test->queue, other, pointer, 0, NULL, NULL), CL_INVALID_VALUE);
    unmap(test, buffer, pointer);
    CHECK_ERROR(clEnqueueUnmapMemObject(test->queue, buffer, pointer, 0, NULL, NULL), CL_INVALID_VALUE);

    static const struct {
        cl_mem_flags memory;
        cl_map_flags map;
        bool allowed;
    } access[] = {
        {CL_MEM_HOST_NO_ACCESS, CL_MAP_READ, false},
        {CL_MEM_HOST_NO_ACCESS, CL_MAP_WRITE, false},
        {CL_MEM_HOST_NO_ACCESS, CL_MAP_WRITE_INVALIDATE_REGION, false},
        {CL_MEM_HOST_WRITE_ONLY, CL_MAP_READ, false},
        {CL_MEM_HOST_WRITE_ONLY, CL_MAP_WRITE, true},
        {CL_MEM_HOST_WRITE_ONLY, CL_MAP_WRITE_INVALIDATE_REGION, true},
        {CL_MEM_HOST_READ_ONLY, CL_MAP_READ, true},
        {CL_MEM_HOST_READ_ONLY, CL_MAP_WRITE, false},
        {CL_MEM_HOST_READ_ONLY, CL_MAP_WRITE_INVALIDATE_REGION, false},
    };
    for (size_t i = 0; i < COUNT_OF(access); i++) {
        cl_mem limited = dv_test_buffer(test, access[i].memory, 1000, NULL);
        pointer = clEnqueueMapBuffer(test->queue, limited, CL_TRUE, access[i].map, 0, 10, 0, NULL, NULL, &error);
        if (!CHECK_ERROR(error, access[i].allowed ? CL_SUCCESS : CL_INVALID_OPERATION))
            dv_test_detail("case %zu", i);
        if (pointer)
            unmap(test, limited, pointer);
        CHECK_CL(clReleaseMemObject(limited));
    }
    CHECK_CL(clReleaseMemObject(buffer));
    CHECK_CL(clReleaseMemObject(other));
}

static void test_sub_buffers(const struct dv_test *test, cl_mem_flags flags, const char *name)
{
    dv_test_section(name);
    cl_uint align_bits = 0;
    CHECK_CL(clGetDeviceInfo(test->device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof align_bits, &align_bits, NULL));
    size_t align = align_bits / 8;
    size_t size = 16 * align;
    unsigned char *expected = malloc(size), *host = NULL;
    REQUIRE(expected && posix_memalign((void **)&host, 4096, size) == 0);
    uint64_t random = 77;
    dv_test_random_fill(&random, expected, size);
    memcpy(host, expected, size);
    cl_int error;
    cl_mem parent = dv_test_buffer(test, flags, size, host);
    cl_buffer_region regions[2] = {{2 * align, 6 * align}, {4 * align, 8 * align}};
    cl_mem children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &regions[i], &error);
        REQUIRE_CL(error);
        size_t value = 0;
        cl_mem associated = NULL;
        CHECK_CL(clGetMemObjectInfo(children[i], CL_MEM_SIZE, sizeof value, &value, NULL));
        CHECK(value == regions[i].size);
        CHECK_CL(clGetMemObjectInfo(children[i], CL_MEM_OFFSET, sizeof value, &value, NULL));
        CHECK(value == regions[i].origin);
        CHECK_CL(clGetMemObjectInfo(children[i], CL_MEM_ASSOCIATED_MEMOBJECT, sizeof associated, &associated, NULL));
        CHECK(associated == parent);
    }

    /* Written through one child, seen by the parent and, where they overlap, by the other child. */
    unsigned char *pointer = map(test, children[0], CL_MAP_READ | CL_MAP_WRITE, align, 3 * align);
    check_bytes(pointer, expected + 3 * align, 3 * align, "map of a sub-buffer");
    if (flags & CL_MEM_USE_HOST_PTR)
        CHECK(pointer == host + 3 * align);
    CHECK_EXCEPT_POCL(map_count(children[0]) == 1,
                      "5.5.5 CL_MEM_MAP_COUNT: the map is counted with the object it was made of");
    memset(pointer, 0x77, 3 * align);
    memset(expected + 3 * align, 0x77, 3 * align);
    unmap(test, children[0], pointer);
    CHECK(map_count(children[0]) == 0);
    check_buffer(test, parent, expected, size, "parent after map of a child");
    check_buffer(test, children[1], expected + regions[1].origin, regions[1].size, "other child");

    /* Kernels on overlapping children, one after the other. */
    run_double(test, children[0], regions[0].size);
    for (size_t i = 0; i < regions[0].size; i++)
        expected[regions[0].origin + i] = (unsigned char)(expected[regions[0].origin + i] * 2);
    run_double(test, children[1], regions[1].size);
    for (size_t i = 0; i < regions[1].size; i++)
        expected[regions[1].origin + i] = (unsigned char)(expected[regions[1].origin + i] * 2);
    check_buffer(test, parent, expected, size, "parent after kernels on children");

    /* Copy between the children, write to one, fill the other. */
    CHECK_CL(clEnqueueCopyBuffer(test->queue, children[0], children[1], 0, 6 * align, align, 0, NULL, NULL));
    memcpy(expected + 10 * align, expected + 2 * align, align);
    CHECK_CL(clEnqueueWriteBuffer(test->queue, children[1], CL_TRUE, 1, 5, "hello", 0, NULL, NULL));
    memcpy(expected + 4 * align + 1, "hello", 5);
    cl_ushort pattern = 0x4142;
    CHECK_CL(clEnqueueFillBuffer(test->queue, children[0], &pattern, 2, 0, align, 0, NULL, NULL));
    for (size_t i = 0; i < align; i += 2)
        memcpy(expected + 2 * align + i, &pattern, 2);
    pointer = map(test, parent, CL_MAP_READ, 0, size);
    check_bytes(pointer, expected, size, "map of the parent");
    if (flags & CL_MEM_USE_HOST_PTR)
        CHECK(pointer == host);
    unmap(test, parent, pointer);

    /* Errors. */
    cl_buffer_region wrong = {0, size + 1};
    CHECK(!clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &wrong, &error));
    CHECK_ERROR(error, CL_INVALID_VALUE);
    wrong = (cl_buffer_region){0, 0};
    CHECK(!clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &wrong, &error));
    CHECK_ERROR(error, CL_INVALID_BUFFER_SIZE);
    wrong = (cl_buffer_region){1, 8};
    CHECK(!clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &wrong, &error));
    CHECK_ERROR(error, CL_MISALIGNED_SUB_BUFFER_OFFSET);
    wrong = (cl_buffer_region){0, align};
    CHECK(!clCreateSubBuffer(children[0], 0, CL_BUFFER_CREATE_TYPE_REGION, &wrong, &error));
    CHECK_ERROR(error, CL_INVALID_MEM_OBJECT);
    CHECK(!clCreateSubBuffer(parent, CL_MEM_COPY_HOST_PTR, CL_BUFFER_CREATE_TYPE_REGION, &wrong, &error));
    CHECK_ERROR(error, CL_INVALID_VALUE);
    CHECK(!clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, NULL, &error));
    CHECK_ERROR(error, CL_INVALID_VALUE);
    CHECK(!clCreateSubBuffer(parent, 0, 0x1234, &wrong, &error));
    CHECK_ERROR(error, CL_INVALID_VALUE);

    /* The parent's own handle goes first. */
    CHECK_CL(clReleaseMemObject(parent));
    check_buffer(test, children[0], expected + regions[0].origin, regions[0].size, "orphan");
    CHECK_CL(clReleaseMemObject(children[0]));
    CHECK_CL(clReleaseMemObject(children[1]));
    free(expected);
    free(host);
}

/* ------------------------------------------------------------------------------ maps of images */

struct layout {
    cl_mem_object_type type;
    size_t width, height, depth, array;
};

static size_t rows_of(const struct layout *layout)
{
    return layout->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 1 : layout->height ? layout->height : 1;
}

static size_t slices_of(const struct layout *layout)
{
    return layout->type == CL_MEM_OBJECT_IMAGE3D ? layout->depth : layout->array ? layout->array : 1;
}

/* Region and origin in the form the API wants: in a 1D array the slice is the second coordinate. */
static void to_api(const struct layout *layout, size_t x, size_t y, size_t z, size_t out[3])
{
    out[0] = x;
    out[1] = layout->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? z : y;
    out[2] = layout->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 0 : z;
}

static void test_image(const struct dv_test *test, const struct layout *layout, bool use_host, const char *name)
{
    dv_test_section(name);
    enum { PIXEL = 4 };
    size_t rows = rows_of(layout), slices = slices_of(layout);
    size_t host_row = use_host ? (layout->width + 3) * PIXEL : layout->width * PIXEL;
    size_t host_slice = host_row * (use_host && slices > 1 ? rows + 1 : rows);
    size_t size = host_slice * slices;
    unsigned char *host = NULL, *expected = malloc(size);
    REQUIRE(expected && posix_memalign((void **)&host, 4096, size) == 0);
    uint64_t random = size;
    dv_test_random_fill(&random, expected, size);
    memcpy(host, expected, size);
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = layout->type,
                          .image_width = layout->width,
                          .image_height = layout->height,
                          .image_depth = layout->depth,
                          .image_array_size = layout->array};
    if (use_host) {
        bool one_row = layout->type == CL_MEM_OBJECT_IMAGE1D;
        desc.image_row_pitch = one_row ? 0 : host_row;
        desc.image_slice_pitch = slices > 1 ? host_slice : 0;
        if (layout->type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
            desc.image_slice_pitch = host_slice = host_row;
    }
    cl_int error;
    cl_mem image = clCreateImage(test->context, use_host ? CL_MEM_USE_HOST_PTR : CL_MEM_COPY_HOST_PTR, &format, &desc,
                                 host, &error);
    if (!CHECK_CL(error)) {
        free(host);
        free(expected);
        return;
    }

    /* A region away from the border where there is room, for reading. */
    size_t x = layout->width > 2 ? 1 : 0, y = rows > 2 ? 1 : 0, z = slices > 2 ? 1 : 0;
    size_t w = layout->width - 2 * x, h = rows - 2 * y, d = slices - 2 * z;
    size_t origin[3], region[3];
    to_api(layout, x, y, z, origin);
    to_api(layout, w, h, d, region);
    if (layout->type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
        region[2] = 1;
    bool has_slices = slices > 1 || layout->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ||
                      layout->type == CL_MEM_OBJECT_IMAGE2D_ARRAY || layout->type == CL_MEM_OBJECT_IMAGE3D;
    size_t row_pitch = 0, slice_pitch = 12345;
    unsigned char *pointer = clEnqueueMapImage(test->queue, image, CL_TRUE, CL_MAP_READ, origin, region, &row_pitch,
                                               has_slices ? &slice_pitch : NULL, 0, NULL, NULL, &error);
    CHECK_CL(error);
    REQUIRE(pointer);
    CHECK(map_count(image) == 1);
    CHECK(row_pitch >= w * PIXEL);
    if (has_slices)
        CHECK(slice_pitch >= row_pitch);
    size_t map_slice = has_slices ? slice_pitch : 0;
    size_t expected_start = x * PIXEL + y * host_row + z * host_slice;
    for (size_t k = 0; k < d; k++)
        for (size_t j = 0; j < h; j++)
            check_bytes(pointer + k * map_slice + j * row_pitch,
                        expected + expected_start + k * host_slice + j * host_row, w * PIXEL, "mapped row");
    if (use_host) {
        CHECK(pointer == host + expected_start);
        if (h > 1)
            CHECK(row_pitch == host_row);
    }
    /* A second map while the first is there, of one pixel. */
    size_t one[3] = {1, 1, 1};
    size_t row_pitch_2 = 0, slice_pitch_2 = 0;
    unsigned char *pixel = clEnqueueMapImage(test->queue, image, CL_TRUE, CL_MAP_READ, origin, one, &row_pitch_2,
                                             &slice_pitch_2, 0, NULL, NULL, &error);
    CHECK_CL(error);
    if (pixel) {
        check_bytes(pixel, expected + expected_start, PIXEL, "one pixel");
        unmap(test, image, pixel);
    }
    if (!has_slices)
        CHECK_VENDOR(slice_pitch_2 == 0, "5.3.8: slice pitch of an image without slices is zero");
    unmap(test, image, pointer);
    CHECK(map_count(image) == 0);

    /* For writing, then read back by a transfer. */
    pointer = clEnqueueMapImage(test->queue, image, CL_TRUE, CL_MAP_WRITE, origin, region, &row_pitch,
                                has_slices ? &slice_pitch : NULL, 0, NULL, NULL, &error);
    CHECK_CL(error);
    REQUIRE(pointer);
    map_slice = has_slices ? slice_pitch : 0;
    for (size_t k = 0; k < d; k++)
        for (size_t j = 0; j < h; j++) {
            unsigned char *row = expected + expected_start + k * host_slice + j * host_row;
            dv_test_random_fill(&random, row, w * PIXEL);
            memcpy(pointer + k * map_slice + j * row_pitch, row, w * PIXEL);
        }
    unmap(test, image, pointer);
    size_t all[3], zero[3] = {0, 0, 0};
    to_api(layout, layout->width, rows, slices, all);
    if (layout->type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
        all[2] = 1;
    size_t tight_row = layout->width * PIXEL, tight_slice = tight_row * rows;
    unsigned char *back = calloc(1, tight_slice * slices);
    REQUIRE(back);
    CHECK_CL(clEnqueueReadImage(test->queue, image, CL_TRUE, zero, all, 0, 0, back, 0, NULL, NULL));
    for (size_t k = 0; k < slices; k++)
        for (size_t j = 0; j < rows; j++)
            check_bytes(back + k * tight_slice + j * tight_row, expected + k * host_slice + j * host_row, tight_row,
                        "row after unmap");

    /* Errors. */
    size_t beyond[3];
    to_api(layout, layout->width, rows, slices, beyond);
    CHECK(!clEnqueueMapImage(test->queue, image, CL_TRUE, CL_MAP_READ, beyond, one, &row_pitch, &slice_pitch, 0, NULL,
                             NULL, &error));
    CHECK_ERROR(error, CL_INVALID_VALUE);
    CHECK(!clEnqueueMapImage(test->queue, image, CL_TRUE, CL_MAP_READ, zero, one, NULL, &slice_pitch, 0, NULL, NULL,
                             &error));
    CHECK_ERROR(error, CL_INVALID_VALUE);
    if (has_slices) {
        CHECK(!clEnqueueMapImage(test->queue, image, CL_TRUE, CL_MAP_READ, zero, one, &row_pitch, NULL, 0, NULL, NULL,
                                 &error));
        CHECK_ERROR(error, CL_INVALID_VALUE);
    }
    CHECK_CL(clReleaseMemObject(image));
    free(back);
    free(expected);
    free(host);
}

/* Maps too big for any bounce buffer to be taken for granted, and many at once. */
static void test_big_and_many(const struct dv_test *test)
{
    dv_test_section("big map");
    size_t size = (size_t)48 << 20;
    cl_mem buffer = dv_test_buffer(test, CL_MEM_ALLOC_HOST_PTR, size, NULL);
    cl_uint *words = map(test, buffer, CL_MAP_WRITE_INVALIDATE_REGION, 0, size);
    for (size_t i = 0; i < size / 4; i++)
        words[i] = (cl_uint)(i * 2654435761u);
    unmap(test, buffer, words);
    words = map(test, buffer, CL_MAP_READ, 0, size);
    size_t wrong = 0;
    for (size_t i = 0; i < size / 4; i++)
        wrong += words[i] != (cl_uint)(i * 2654435761u);
    CHECK(wrong == 0);
    unmap(test, buffer, words);
    CHECK_CL(clReleaseMemObject(buffer));

    dv_test_section("many maps");
    enum { MAPS = 200 };
    unsigned char *pointers[MAPS];
    buffer = dv_test_buffer(test, 0, MAPS * 100, NULL);
    unsigned char zero = 0;
    CHECK_CL(clEnqueueFillBuffer(test->queue, buffer, &zero, 1, 0, MAPS * 100, 0, NULL, NULL));
    for (size_t i = 0; i < MAPS; i++) {
        pointers[i] = map(test, buffer, CL_MAP_WRITE, i * 100, 50);
        memset(pointers[i], (int)i + 1, 50);
    }
    CHECK(map_count(buffer) == MAPS);
    for (size_t i = 0; i < MAPS; i++)
        unmap(test, buffer, pointers[(i * 77) % MAPS]);
    CHECK(map_count(buffer) == 0);
    static unsigned char back[MAPS * 100];
    CHECK_CL(clEnqueueReadBuffer(test->queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (size_t i = 0; i < sizeof back; i++)
        CHECK(back[i] == (i % 100 < 50 ? (unsigned char)(i / 100 + 1) : 0));
    CHECK_CL(clReleaseMemObject(buffer));
}

/* CL_MEM_USE_HOST_PTR of odd alignment and size: the pointer still is the application's. */
static void test_odd_host_pointer(const struct dv_test *test)
{
    dv_test_section("odd host pointer");
    unsigned char *block = malloc(10000);
    REQUIRE(block);
    memset(block, 0x3c, 10000);
    for (size_t shift = 0; shift < 200; shift += 61) {
        size_t size = 4001 + shift;
        unsigned char *host = block + shift;
        cl_mem buffer = dv_test_buffer(test, CL_MEM_USE_HOST_PTR, size, host);
        void *reported = NULL;
        CHECK_CL(clGetMemObjectInfo(buffer, CL_MEM_HOST_PTR, sizeof reported, &reported, NULL));
        CHECK(reported == host);
        unsigned char *pointer = map(test, buffer, CL_MAP_READ | CL_MAP_WRITE, 3, size - 5);
        CHECK(pointer == host + 3);
        for (size_t i = 0; i < size - 5; i++)
            pointer[i] = (unsigned char)(i + shift);
        unmap(test, buffer, pointer);
        run_double(test, buffer, size);
        pointer = map(test, buffer, CL_MAP_READ, 0, size);
        CHECK(pointer == host);
        for (size_t i = 3; i < size - 2; i++)
            CHECK(pointer[i] == (unsigned char)(2 * (i - 3 + shift)));
        unmap(test, buffer, pointer);
        CHECK_CL(clReleaseMemObject(buffer));
        memset(block, 0x3c, 10000);
    }
    free(block);
}

int main(void)
{
    struct dv_test test = dv_test_setup();
    cl_program program = dv_test_build(&test, source, "");
    double_kernel = dv_test_kernel(program, "double_it");
    copy_kernel = dv_test_kernel(program, "copy");
    test_buffer(&test, 0, "plain buffer");
    test_buffer(&test, CL_MEM_COPY_HOST_PTR, "buffer, copied host memory");
    test_buffer(&test, CL_MEM_ALLOC_HOST_PTR, "buffer, allocated host memory");
    test_buffer(&test, CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR, "buffer, alloc and copy");
    test_buffer(&test, CL_MEM_USE_HOST_PTR, "buffer, used host memory");
    test_errors(&test);
    test_sub_buffers(&test, CL_MEM_COPY_HOST_PTR, "sub-buffers");
    test_sub_buffers(&test, CL_MEM_USE_HOST_PTR, "sub-buffers, used host memory");
    static const struct layout layouts[] = {
        {CL_MEM_OBJECT_IMAGE1D, 37, 0, 0, 0},       {CL_MEM_OBJECT_IMAGE2D, 33, 17, 0, 0},
        {CL_MEM_OBJECT_IMAGE2D, 1, 1, 0, 0},        {CL_MEM_OBJECT_IMAGE3D, 13, 11, 7, 0},
        {CL_MEM_OBJECT_IMAGE1D_ARRAY, 19, 0, 0, 5}, {CL_MEM_OBJECT_IMAGE2D_ARRAY, 21, 9, 0, 4},
        {CL_MEM_OBJECT_IMAGE2D, 640, 480, 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(layouts); i++)
        for (int use_host = 0; use_host < 2; use_host++) {
            char name[80];
            snprintf(name, sizeof name, "image %zu (type 0x%x)%s", i, layouts[i].type,
                     use_host ? ", used host memory" : "");
            test_image(&test, &layouts[i], use_host, name);
        }
    test_big_and_many(&test);
    test_odd_host_pointer(&test);
    CHECK_CL(clReleaseKernel(double_kernel));
    CHECK_CL(clReleaseKernel(copy_kernel));
    CHECK_CL(clReleaseProgram(program));
    dv_test_teardown(&test);
    return dv_test_result("mapping");
}
