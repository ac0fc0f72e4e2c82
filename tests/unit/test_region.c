/* Boxes of bytes and pixels: what is accepted, and that packing moves the right bytes. */
#include "unit.h"

#include "src/client/opencl/region.h"

#define BUFFER_BYTES 65536

static struct dvc_mem buffer_of(size_t bytes)
{
    return (struct dvc_mem){.type = CL_MEM_OBJECT_BUFFER, .size = bytes};
}

static struct dvc_mem image_of(cl_mem_object_type type, size_t width, size_t height, size_t depth, size_t layers,
                               size_t element_bytes)
{
    struct dvc_mem mem = {.type = type, .element_bytes = element_bytes};
    mem.desc.image_width = width;
    mem.desc.image_height = height;
    mem.desc.image_depth = depth;
    mem.desc.image_array_size = layers;
    return mem;
}

static void fill(uint8_t *memory, size_t bytes, struct random *r)
{
    for (size_t i = 0; i < bytes; i++)
        memory[i] = (uint8_t)random_next(r);
}

/* ---- linear ---- */

static void a_linear_region_stays_inside_its_buffer(void **state)
{
    struct dvc_mem mem = buffer_of(1000);
    struct dvc_region r;
    assert_int_equal(dvc_region_linear(&r, &mem, 0, 1000), CL_SUCCESS);
    assert_int_equal(r.bytes, 1000);
    assert_int_equal(dvc_region_linear(&r, &mem, 999, 1), CL_SUCCESS);
    assert_int_equal(dvc_region_linear(&r, &mem, 999, 2), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_linear(&r, &mem, 1001, 0), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_linear(&r, &mem, SIZE_MAX, 2), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_linear(&r, &mem, 2, SIZE_MAX), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_linear(&r, &mem, SIZE_MAX, SIZE_MAX), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_linear(&r, &mem, SIZE_MAX - 500, 502), CL_INVALID_VALUE);
}

static void linear_regions_are_copied_whole(void **state)
{
    struct dvc_mem mem = buffer_of(64);
    struct dvc_region r;
    uint8_t storage[64] = {0}, host[16], back[16], packed[16];
    struct random random = {1};
    fill(host, sizeof host, &random);
    assert_int_equal(dvc_region_linear(&r, &mem, 20, 16), CL_SUCCESS);
    dvc_region_to_storage(&r, storage, host);
    for (size_t i = 0; i < sizeof storage; i++)
        assert_int_equal(storage[i], i >= 20 && i < 36 ? host[i - 20] : 0);
    dvc_region_from_storage(&r, storage, back);
    assert_memory_equal(back, host, sizeof host);
    dvc_region_pack(&r, packed, host);
    assert_memory_equal(packed, host, sizeof host);
    memset(back, 0, sizeof back);
    dvc_region_unpack(&r, packed, back);
    assert_memory_equal(back, host, sizeof host);
    assert_int_equal(dvc_region_host_span(&r), 16);
}

/* ---- rectangles ---- */

struct rect {
    size_t origin[3], host_origin[3], size[3];
    size_t row, slice, host_row, host_slice; /* as given: 0 means tight */
};

static cl_int make(struct dvc_region *r, struct dvc_mem *mem, const struct rect *rect)
{
    return dvc_region_rect(r, mem, rect->origin, rect->host_origin, rect->size, rect->row, rect->slice, rect->host_row,
                           rect->host_slice);
}

static size_t pick_pitch(struct random *r, size_t least, size_t step)
{
    switch (random_below(r, 3)) {
    case 0:
        return 0;
    case 1:
        return least;
    default:
        return least + step * random_below(r, 4);
    }
}

static struct rect random_rect(struct random *r)
{
    struct rect rect;
    for (int i = 0; i < 3; i++) {
        rect.size[i] = 1 + random_below(r, i ? 6 : 24);
        rect.origin[i] = random_below(r, 4);
        rect.host_origin[i] = random_below(r, 4);
    }
    rect.row = pick_pitch(r, rect.size[0], 1);
    rect.slice = pick_pitch(r, rect.size[1] * (rect.row ? rect.row : rect.size[0]), rect.row ? rect.row : rect.size[0]);
    rect.host_row = pick_pitch(r, rect.size[0], 1);
    rect.host_slice = pick_pitch(r, rect.size[1] * (rect.host_row ? rect.host_row : rect.size[0]),
                                 rect.host_row ? rect.host_row : rect.size[0]);
    return rect;
}

static size_t at(const size_t *origin, size_t x, size_t y, size_t z, size_t row, size_t slice)
{
    return (origin[2] + z) * slice + (origin[1] + y) * row + origin[0] + x;
}

static void random_rectangles_move_the_right_bytes(void **state)
{
    struct random random = {random_seed()};
    uint8_t *storage = malloc(BUFFER_BYTES), *host = malloc(BUFFER_BYTES), *expected = malloc(BUFFER_BYTES),
            *result = malloc(BUFFER_BYTES), *packed = malloc(BUFFER_BYTES);
    for (int round = 0; round < 3000; round++) {
        struct rect rect = random_rect(&random);
        struct dvc_mem mem = buffer_of(BUFFER_BYTES);
        struct dvc_region r;
        size_t row = rect.row ? rect.row : rect.size[0];
        size_t slice = rect.slice ? rect.slice : row * rect.size[1];
        size_t host_row = rect.host_row ? rect.host_row : rect.size[0];
        size_t host_slice = rect.host_slice ? rect.host_slice : host_row * rect.size[1];
        const size_t zero[3] = {0};
        size_t tight = rect.size[0], tight_slice = rect.size[0] * rect.size[1];

        assert_int_equal(make(&r, &mem, &rect), CL_SUCCESS);
        assert_int_equal(r.bytes, rect.size[0] * rect.size[1] * rect.size[2]);
        assert_int_equal(dvc_region_host_span(&r),
                         at(zero, rect.size[0] - 1, rect.size[1] - 1, rect.size[2] - 1, host_row, host_slice) + 1);
        fill(storage, BUFFER_BYTES, &random);
        fill(host, BUFFER_BYTES, &random);

        memcpy(expected, storage, BUFFER_BYTES); /* to storage */
        memcpy(result, storage, BUFFER_BYTES);
        for (size_t z = 0; z < rect.size[2]; z++)
            for (size_t y = 0; y < rect.size[1]; y++)
                for (size_t x = 0; x < rect.size[0]; x++)
                    expected[at(rect.origin, x, y, z, row, slice)] =
                        host[at(rect.host_origin, x, y, z, host_row, host_slice)];
        dvc_region_to_storage(&r, result, host);
        assert_memory_equal(result, expected, BUFFER_BYTES);

        memcpy(expected, host, BUFFER_BYTES); /* from storage */
        memcpy(result, host, BUFFER_BYTES);
        for (size_t z = 0; z < rect.size[2]; z++)
            for (size_t y = 0; y < rect.size[1]; y++)
                for (size_t x = 0; x < rect.size[0]; x++)
                    expected[at(rect.host_origin, x, y, z, host_row, host_slice)] =
                        storage[at(rect.origin, x, y, z, row, slice)];
        dvc_region_from_storage(&r, storage, result);
        assert_memory_equal(result, expected, BUFFER_BYTES);

        memset(packed, 0xaa, BUFFER_BYTES); /* pack */
        memset(expected, 0xaa, BUFFER_BYTES);
        for (size_t z = 0; z < rect.size[2]; z++)
            for (size_t y = 0; y < rect.size[1]; y++)
                for (size_t x = 0; x < rect.size[0]; x++)
                    expected[at(zero, x, y, z, tight, tight_slice)] =
                        host[at(rect.host_origin, x, y, z, host_row, host_slice)];
        dvc_region_pack(&r, packed, host);
        assert_memory_equal(packed, expected, BUFFER_BYTES);

        memset(result, 0x55, BUFFER_BYTES); /* unpack */
        memset(expected, 0x55, BUFFER_BYTES);
        for (size_t z = 0; z < rect.size[2]; z++)
            for (size_t y = 0; y < rect.size[1]; y++)
                for (size_t x = 0; x < rect.size[0]; x++)
                    expected[at(rect.host_origin, x, y, z, host_row, host_slice)] =
                        packed[at(zero, x, y, z, tight, tight_slice)];
        dvc_region_unpack(&r, packed, result);
        assert_memory_equal(result, expected, BUFFER_BYTES);
    }
    free(storage);
    free(host);
    free(expected);
    free(result);
    free(packed);
}

/* The last byte decides, neither more nor less. */
static void a_rectangle_may_end_with_its_buffer_and_not_after(void **state)
{
    struct random random = {random_seed() + 5};
    for (int round = 0; round < 3000; round++) {
        struct rect rect = random_rect(&random);
        struct dvc_region r;
        size_t row = rect.row ? rect.row : rect.size[0];
        size_t slice = rect.slice ? rect.slice : row * rect.size[1];
        size_t end = at(rect.origin, rect.size[0] - 1, rect.size[1] - 1, rect.size[2] - 1, row, slice) + 1;
        struct dvc_mem mem = buffer_of(end);
        assert_int_equal(make(&r, &mem, &rect), CL_SUCCESS);
        mem.size = end - 1;
        assert_int_equal(make(&r, &mem, &rect), CL_INVALID_VALUE);
    }
}

static void rectangles_that_make_no_sense_are_refused(void **state)
{
    struct dvc_mem mem = buffer_of(BUFFER_BYTES);
    struct dvc_region r;
    const size_t zero[3] = {0}, size[3] = {8, 4, 2};
    assert_int_equal(dvc_region_rect(&r, &mem, NULL, zero, size, 0, 0, 0, 0), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_rect(&r, &mem, zero, NULL, size, 0, 0, 0, 0), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_rect(&r, &mem, zero, zero, NULL, 0, 0, 0, 0), CL_INVALID_VALUE);
    for (int i = 0; i < 3; i++) {
        size_t empty[3] = {8, 4, 2};
        empty[i] = 0;
        assert_int_equal(dvc_region_rect(&r, &mem, zero, zero, empty, 0, 0, 0, 0), CL_INVALID_VALUE);
    }
    assert_int_equal(dvc_region_rect(&r, &mem, zero, zero, size, 7, 0, 0, 0), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_rect(&r, &mem, zero, zero, size, 0, 31, 0, 0), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_rect(&r, &mem, zero, zero, size, 0, 33, 0, 0), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_rect(&r, &mem, zero, zero, size, 0, 0, 7, 0), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_rect(&r, &mem, zero, zero, size, 0, 0, 0, 31), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_rect(&r, &mem, zero, zero, size, 8, 32, 8, 32), CL_SUCCESS);
}

/* Numbers chosen so that sums or products wrap around to something that looks fine. */
static void rectangles_that_wrap_around_are_refused(void **state)
{
    const size_t half = SIZE_MAX / 2 + 1, quarter = half / 2;
    const struct rect rects[] = {
        {.origin = {0, 0, SIZE_MAX}, .size = {8, 1, 2}},
        {.origin = {0, SIZE_MAX, 0}, .size = {8, 2, 1}},
        {.origin = {SIZE_MAX, 0, 0}, .size = {8, 1, 1}},
        {.origin = {SIZE_MAX - 3, 0, 0}, .size = {8, 1, 1}},
        {.origin = {0, 0, 0}, .size = {SIZE_MAX, 1, 1}},
        {.origin = {0, 0, 0}, .size = {1, SIZE_MAX, 1}},
        {.origin = {0, 0, 0}, .size = {1, 1, SIZE_MAX}},
        {.origin = {0, 0, 0}, .size = {half, 2, 1}},
        {.origin = {0, 0, 0}, .size = {half, 2, 2}},
        {.origin = {0, 0, 0}, .size = {(size_t)1 << 32, (size_t)1 << 32, 1}},
        {.origin = {0, 0, 0}, .size = {(size_t)1 << 22, (size_t)1 << 21, (size_t)1 << 21}},
        {.origin = {0, 2, SIZE_MAX}, .size = {1, 1, 1}, .row = SIZE_MAX, .slice = SIZE_MAX},
        {.origin = {0, 3, SIZE_MAX - 1}, .size = {1, 1, 2}, .row = SIZE_MAX, .slice = SIZE_MAX},
        {.origin = {0, 0, 0}, .size = {1, 2, 1}, .row = half},
        {.origin = {0, 0, 0}, .size = {1, 4, 1}, .row = quarter},
        {.origin = {0, 0, 1}, .size = {1, 4, 1}, .row = quarter},
        {.origin = {0, 0, 0}, .size = {1, 1, 2}, .slice = SIZE_MAX},
        {.origin = {0, 0, 2}, .size = {1, 1, 1}, .slice = half},
        {.origin = {0, 2, 0}, .size = {1, 1, 1}, .row = half},
        {.origin = {8, half, half}, .size = {8, 1, 1}, .row = 16, .slice = 16},
    };
    struct dvc_mem mem = buffer_of(BUFFER_BYTES);
    struct dvc_region r;
    for (size_t i = 0; i < sizeof rects / sizeof rects[0]; i++)
        if (make(&r, &mem, &rects[i]) != CL_INVALID_VALUE)
            fail_msg("rectangle %zu was accepted", i);
}

/* Whatever was accepted lies inside the buffer, byte for byte. */
static void extreme_rectangles_are_inside_or_refused(void **state)
{
    struct random random = {random_seed() + 9};
    const size_t extremes[] = {0,
                               1,
                               2,
                               3,
                               7,
                               8,
                               255,
                               4096,
                               BUFFER_BYTES - 1,
                               BUFFER_BYTES,
                               (size_t)1 << 31,
                               (size_t)1 << 32,
                               (size_t)1 << 46,
                               ((size_t)1 << 46) + 1,
                               SIZE_MAX / 2,
                               SIZE_MAX / 2 + 1,
                               SIZE_MAX - 7,
                               SIZE_MAX - 1,
                               SIZE_MAX};
    const size_t count = sizeof extremes / sizeof extremes[0];
    int accepted = 0;
    for (int round = 0; round < 200000; round++) {
        struct rect rect;
        size_t *numbers[] = {
            &rect.origin[0],      &rect.origin[1], &rect.origin[2], &rect.host_origin[0], &rect.host_origin[1],
            &rect.host_origin[2], &rect.size[0],   &rect.size[1],   &rect.size[2],        &rect.row,
            &rect.slice,          &rect.host_row,  &rect.host_slice};
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
            *numbers[i] = random_chance(&random, 60) ? extremes[random_below(&random, 6)]
                                                     : extremes[random_below(&random, count)];
        struct dvc_mem mem = buffer_of(BUFFER_BYTES);
        struct dvc_region r;
        if (make(&r, &mem, &rect) != CL_SUCCESS)
            continue;
        accepted++;
        /* with every factor small on its own, the sum below cannot wrap */
        for (int i = 0; i < 3; i++) {
            assert_true(rect.size[i] <= BUFFER_BYTES);
            assert_true(rect.origin[i] <= BUFFER_BYTES);
        }
        unsigned __int128 last = (unsigned __int128)(rect.origin[2] + rect.size[2] - 1) * r.slice_pitch +
                                 (unsigned __int128)(rect.origin[1] + rect.size[1] - 1) * r.row_pitch + rect.origin[0] +
                                 rect.size[0];
        assert_true(last <= BUFFER_BYTES);
        assert_true((unsigned __int128)r.row_pitch * rect.size[1] <= r.slice_pitch);
        assert_true((unsigned __int128)r.host_row_pitch * rect.size[1] <= r.host_slice_pitch);
        assert_true(r.row_pitch >= rect.size[0] && r.host_row_pitch >= rect.size[0]);
    }
    assert_true(accepted > 50);
}

/* ---- images ---- */

static void image_boxes_stay_inside(void **state)
{
    struct dvc_mem one = image_of(CL_MEM_OBJECT_IMAGE1D, 10, 0, 0, 0, 4);
    struct dvc_mem lines = image_of(CL_MEM_OBJECT_IMAGE1D_ARRAY, 10, 0, 0, 5, 4);
    struct dvc_mem two = image_of(CL_MEM_OBJECT_IMAGE2D, 10, 8, 0, 0, 4);
    struct dvc_mem layers = image_of(CL_MEM_OBJECT_IMAGE2D_ARRAY, 10, 8, 0, 3, 4);
    struct dvc_mem three = image_of(CL_MEM_OBJECT_IMAGE3D, 10, 8, 6, 0, 4);
    struct dvc_mem *images[] = {&one, &lines, &two, &layers, &three};
    const size_t extents[][3] = {{10, 1, 1}, {10, 5, 1}, {10, 8, 1}, {10, 8, 3}, {10, 8, 6}};
    for (int i = 0; i < 5; i++)
        for (int axis = 0; axis < 3; axis++) {
            size_t origin[3] = {0}, size[3] = {1, 1, 1};
            size_t extent = extents[i][axis];
            assert_int_equal(dvc_check_image_box(images[i], origin, extents[i]), CL_SUCCESS);
            origin[axis] = extent - 1;
            assert_int_equal(dvc_check_image_box(images[i], origin, size), CL_SUCCESS);
            size[axis] = 2;
            assert_int_equal(dvc_check_image_box(images[i], origin, size), CL_INVALID_VALUE);
            size[axis] = SIZE_MAX;
            assert_int_equal(dvc_check_image_box(images[i], origin, size), CL_INVALID_VALUE);
            size[axis] = 0;
            assert_int_equal(dvc_check_image_box(images[i], origin, size), CL_INVALID_VALUE);
            origin[axis] = SIZE_MAX;
            size[axis] = 2;
            assert_int_equal(dvc_check_image_box(images[i], origin, size), CL_INVALID_VALUE);
        }
    assert_int_equal(dvc_check_image_box(&two, NULL, extents[2]), CL_INVALID_VALUE);
    assert_int_equal(dvc_check_image_box(&two, extents[2], NULL), CL_INVALID_VALUE);
}

static void image_pitches_are_checked(void **state)
{
    struct dvc_mem two = image_of(CL_MEM_OBJECT_IMAGE2D, 10, 8, 0, 0, 4);
    struct dvc_mem three = image_of(CL_MEM_OBJECT_IMAGE3D, 10, 8, 6, 0, 4);
    struct dvc_mem lines = image_of(CL_MEM_OBJECT_IMAGE1D_ARRAY, 10, 0, 0, 5, 4);
    const size_t zero[3] = {0}, flat[3] = {10, 8, 1}, deep[3] = {10, 8, 6}, array[3] = {10, 5, 1};
    struct dvc_region r;
    assert_int_equal(dvc_region_image(&r, &two, zero, flat, 0, 0), CL_SUCCESS);
    assert_int_equal(r.host_row_pitch, 40);
    assert_int_equal(dvc_region_image(&r, &two, zero, flat, 39, 0), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_image(&r, &two, zero, flat, 64, 0), CL_SUCCESS);
    assert_int_equal(dvc_region_image(&r, &two, zero, flat, 0, 320), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_image(&r, &two, zero, flat, SIZE_MAX, 0), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_image(&r, &three, zero, deep, 0, 319), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_image(&r, &three, zero, deep, 0, 320), CL_SUCCESS);
    assert_int_equal(dvc_region_image(&r, &three, zero, deep, 64, 320), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_image(&r, &three, zero, deep, SIZE_MAX / 8 + 1, 0), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_image(&r, &three, zero, deep, 0, SIZE_MAX), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_image(&r, &lines, zero, array, 0, 39), CL_INVALID_VALUE);
    assert_int_equal(dvc_region_image(&r, &lines, zero, array, 0, 48), CL_SUCCESS);
    assert_int_equal(r.host_row_pitch, 48); /* its lines are one slice pitch apart */
}

static void random_images_move_the_right_pixels(void **state)
{
    struct random random = {random_seed() + 3};
    uint8_t *host = malloc(BUFFER_BYTES), *packed = malloc(BUFFER_BYTES), *expected = malloc(BUFFER_BYTES),
            *result = malloc(BUFFER_BYTES);
    const cl_mem_object_type types[] = {CL_MEM_OBJECT_IMAGE1D,        CL_MEM_OBJECT_IMAGE1D_ARRAY,
                                        CL_MEM_OBJECT_IMAGE1D_BUFFER, CL_MEM_OBJECT_IMAGE2D,
                                        CL_MEM_OBJECT_IMAGE2D_ARRAY,  CL_MEM_OBJECT_IMAGE3D};
    for (int round = 0; round < 3000; round++) {
        cl_mem_object_type type = types[random_below(&random, 6)];
        size_t element = (size_t)1 << random_below(&random, 5);
        struct dvc_mem mem = image_of(type, 12, 6, 5, 4, element);
        bool lines = type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
        bool planes = type == CL_MEM_OBJECT_IMAGE2D_ARRAY || type == CL_MEM_OBJECT_IMAGE3D;
        size_t limits[3] = {12,
                            lines                                     ? 4
                            : type == CL_MEM_OBJECT_IMAGE2D || planes ? 6
                                                                      : 1,
                            type == CL_MEM_OBJECT_IMAGE3D ? 5
                            : planes                      ? 4
                                                          : 1};
        size_t origin[3], size[3];
        for (int i = 0; i < 3; i++) {
            size[i] = 1 + random_below(&random, limits[i]);
            origin[i] = random_below(&random, limits[i] - size[i] + 1);
        }
        size_t row = size[0] * element;
        size_t host_row = pick_pitch(&random, row, 3);
        size_t real_row = host_row ? host_row : row;
        size_t host_slice = lines    ? pick_pitch(&random, real_row, 5)
                            : planes ? pick_pitch(&random, real_row * size[1], 7)
                                     : 0;
        size_t line_step = lines && host_slice ? host_slice : real_row;
        size_t plane_step = planes && host_slice ? host_slice : real_row * size[1];
        struct dvc_region r;
        assert_int_equal(dvc_region_image(&r, &mem, origin, size, host_row, host_slice), CL_SUCCESS);
        assert_int_equal(r.bytes, row * size[1] * size[2]);
        fill(host, BUFFER_BYTES, &random);
        memset(packed, 0xaa, BUFFER_BYTES);
        memset(expected, 0xaa, BUFFER_BYTES);
        for (size_t z = 0; z < size[2]; z++)
            for (size_t y = 0; y < size[1]; y++)
                memcpy(expected + (z * size[1] + y) * row, host + z * plane_step + y * line_step, row);
        dvc_region_pack(&r, packed, host);
        assert_memory_equal(packed, expected, BUFFER_BYTES);
        memset(result, 0x55, BUFFER_BYTES);
        memset(expected, 0x55, BUFFER_BYTES);
        for (size_t z = 0; z < size[2]; z++)
            for (size_t y = 0; y < size[1]; y++)
                memcpy(expected + z * plane_step + y * line_step, packed + (z * size[1] + y) * row, row);
        dvc_region_unpack(&r, packed, result);
        assert_memory_equal(result, expected, BUFFER_BYTES);
    }
    free(host);
    free(packed);
    free(expected);
    free(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_linear_region_stays_inside_its_buffer),
        cmocka_unit_test(linear_regions_are_copied_whole),
        cmocka_unit_test(random_rectangles_move_the_right_bytes),
        cmocka_unit_test(a_rectangle_may_end_with_its_buffer_and_not_after),
        cmocka_unit_test(rectangles_that_make_no_sense_are_refused),
        cmocka_unit_test(rectangles_that_wrap_around_are_refused),
        cmocka_unit_test(extreme_rectangles_are_inside_or_refused),
        cmocka_unit_test(image_boxes_stay_inside),
        cmocka_unit_test(image_pitches_are_checked),
        cmocka_unit_test(random_images_move_the_right_pixels),
    };
    print_message("seed %llu\n", (unsigned long long)random_seed());
    return cmocka_run_group_tests_name("region", tests, NULL, NULL);
}
