/* What the client must answer at once when a command is enqueued, without a session. */
#include "unit.h"

#include "src/client/opencl/enqueue.h"

#define ROOT_BYTES 2048

struct scene {
    struct dvc_context context, other_context;
    struct dvc_device device;
    struct dvc_queue queue;
    struct dvc_program program;
    struct dvc_kernel kernel;
    struct dvc_mem root, low, high, odd, foreign; /* three sub-buffers of the root */
};

static struct dvc_mem buffer(struct dvc_context *context, struct dvc_mem *parent, size_t origin, size_t bytes)
{
    return (struct dvc_mem){
        .context = context, .type = CL_MEM_OBJECT_BUFFER, .parent = parent, .origin = origin, .size = bytes};
}

static int set_up(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    s->device.max_group = 256;
    s->device.base_align = 128;
    for (int i = 0; i < 3; i++)
        s->device.max_items[i] = 128;
    s->queue.context = &s->context;
    s->queue.device = &s->device;
    s->program.context = &s->context;
    s->kernel.program = &s->program;
    s->root = buffer(&s->context, NULL, 0, ROOT_BYTES);
    s->low = buffer(&s->context, &s->root, 128, 1024);
    s->high = buffer(&s->context, &s->root, 640, 1280);
    s->odd = buffer(&s->context, &s->root, 200, 512);
    s->foreign = buffer(&s->other_context, NULL, 0, ROOT_BYTES);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

/* ---- copies of buffers ---- */

static void copies_stay_inside_their_buffers(void **state)
{
    struct scene *s = *state;
    struct dvc_mem other = buffer(&s->context, NULL, 0, 100);
#define COPY(src, dst, from, to, size) dvc_check_copy_buffer(&s->queue, src, dst, from, to, size)
    assert_int_equal(COPY(&s->root, &other, 0, 0, 100), CL_SUCCESS);
    assert_int_equal(COPY(&s->root, &other, ROOT_BYTES - 100, 0, 100), CL_SUCCESS);
    assert_int_equal(COPY(&s->root, &other, ROOT_BYTES - 99, 0, 100), CL_INVALID_VALUE);
    assert_int_equal(COPY(&s->root, &other, 0, 1, 100), CL_INVALID_VALUE);
    assert_int_equal(COPY(&s->root, &other, 0, 0, 0), CL_INVALID_VALUE);
    assert_int_equal(COPY(&s->root, &other, 0, 0, SIZE_MAX), CL_INVALID_VALUE);
    assert_int_equal(COPY(&s->root, &other, SIZE_MAX, 0, 2), CL_INVALID_VALUE);
    assert_int_equal(COPY(&s->root, &other, 0, SIZE_MAX - 10, 50), CL_INVALID_VALUE);
    assert_int_equal(COPY(&s->root, &s->foreign, 0, 0, 10), CL_INVALID_CONTEXT);
    assert_int_equal(COPY(&s->foreign, &s->root, 0, 0, 10), CL_INVALID_CONTEXT);
    assert_int_equal(COPY(&s->odd, &other, 0, 0, 10), CL_MISALIGNED_SUB_BUFFER_OFFSET);
    assert_int_equal(COPY(&other, &s->odd, 0, 0, 10), CL_MISALIGNED_SUB_BUFFER_OFFSET);
}

static size_t start_of(const struct dvc_mem *mem)
{
    return mem->parent ? mem->origin : 0;
}

static void linear_overlap_is_found_exactly(void **state)
{
    struct scene *s = *state;
    struct random r = {random_seed()};
    struct dvc_mem *mems[] = {&s->root, &s->low, &s->high};
    int overlaps = 0;
    for (int i = 0; i < 20000; i++) {
        struct dvc_mem *src = mems[random_below(&r, 3)], *dst = mems[random_below(&r, 3)];
        size_t size = 1 + random_below(&r, 300);
        size_t from = random_below(&r, src->size - size + 1), to = random_below(&r, dst->size - size + 1);
        size_t a = start_of(src) + from, b = start_of(dst) + to;
        bool overlap = a < b + size && b < a + size;
        overlaps += overlap;
        assert_int_equal(COPY(src, dst, from, to, size), overlap ? CL_MEM_COPY_OVERLAP : CL_SUCCESS);
    }
    assert_true(overlaps > 1000 && overlaps < 19000);
}

struct box {
    size_t origin[3], row, slice;
};

static void mark(uint8_t *bytes, const struct dvc_mem *mem, const struct box *box, const size_t *size, uint8_t with)
{
    for (size_t z = 0; z < size[2]; z++)
        for (size_t y = 0; y < size[1]; y++)
            for (size_t x = 0; x < size[0]; x++)
                bytes[start_of(mem) + (box->origin[2] + z) * box->slice + (box->origin[1] + y) * box->row +
                      box->origin[0] + x] |= with;
}

static bool fits(const struct dvc_mem *mem, const struct box *box, const size_t *size)
{
    return (box->origin[2] + size[2] - 1) * box->slice + (box->origin[1] + size[1] - 1) * box->row + box->origin[0] +
               size[0] <=
           mem->size;
}

/* Every byte counted, with pitches and origins that need not look like rows and columns. */
static void rectangular_overlap_is_found_exactly(void **state)
{
    struct scene *s = *state;
    struct random r = {random_seed() + 1};
    struct dvc_mem *mems[] = {&s->root, &s->low, &s->high};
    int overlaps = 0, apart = 0;
    for (int i = 0; i < 60000; i++) {
        struct dvc_mem *src = mems[random_below(&r, 3)], *dst = mems[random_below(&r, 3)];
        size_t size[3] = {1 + random_below(&r, 12), 1 + random_below(&r, 5), 1 + random_below(&r, 4)};
        struct box a = {.row = size[0] + random_below(&r, 20)};
        a.slice = a.row * (size[1] + random_below(&r, 4));
        struct box b = {.row = a.row, .slice = a.slice};
        if (src != dst && random_chance(&r, 30)) {
            b.row = size[0] + random_below(&r, 20);
            b.slice = b.row * (size[1] + random_below(&r, 4));
        }
        for (int k = 0; k < 3; k++) {
            a.origin[k] = random_below(&r, k ? 4 : 40);
            b.origin[k] = random_below(&r, k ? 4 : 40);
        }
        if (!fits(src, &a, size) || !fits(dst, &b, size))
            continue;
        uint8_t bytes[ROOT_BYTES] = {0};
        bool overlap = false;
        mark(bytes, src, &a, size, 1);
        mark(bytes, dst, &b, size, 2);
        for (size_t k = 0; k < sizeof bytes; k++)
            overlap |= bytes[k] == 3;
        overlaps += overlap;
        apart += !overlap;
        cl_int result =
            dvc_check_copy_buffer_rect(&s->queue, src, dst, a.origin, b.origin, size, a.row, a.slice, b.row, b.slice);
        if (result != (overlap ? CL_MEM_COPY_OVERLAP : CL_SUCCESS))
            fail_msg("case %d: overlap %d but answer %d", i, overlap, result);
    }
    assert_true(overlaps > 5000 && apart > 5000);
}

static void rectangular_copies_are_checked(void **state)
{
    struct scene *s = *state;
    const size_t zero[3] = {0}, size[3] = {8, 4, 2}, far[3] = {0, 0, SIZE_MAX}, two[3] = {8, 1, 2};
    struct dvc_mem other = buffer(&s->context, NULL, 0, 64);
#define RECT(src, dst, a, b, r, ...) dvc_check_copy_buffer_rect(&s->queue, src, dst, a, b, r, __VA_ARGS__)
    assert_int_equal(RECT(&s->root, &other, zero, zero, size, 0, 0, 0, 0), CL_SUCCESS);
    assert_int_equal(RECT(&s->root, &other, NULL, zero, size, 0, 0, 0, 0), CL_INVALID_VALUE);
    assert_int_equal(RECT(&s->root, &other, zero, NULL, size, 0, 0, 0, 0), CL_INVALID_VALUE);
    assert_int_equal(RECT(&s->root, &other, zero, zero, NULL, 0, 0, 0, 0), CL_INVALID_VALUE);
    assert_int_equal(RECT(&s->root, &other, zero, zero, size, 0, 0, 9, 0), CL_INVALID_VALUE);
    assert_int_equal(RECT(&s->root, &other, far, zero, two, 0, 0, 0, 0), CL_INVALID_VALUE);
    assert_int_equal(RECT(&s->root, &other, zero, far, two, 0, 0, 0, 0), CL_INVALID_VALUE);
    assert_int_equal(RECT(&s->root, &s->foreign, zero, zero, size, 0, 0, 0, 0), CL_INVALID_CONTEXT);
    assert_int_equal(RECT(&s->root, &s->root, zero, zero, size, 8, 0, 9, 0), CL_INVALID_VALUE);
    assert_int_equal(RECT(&s->odd, &other, zero, zero, size, 0, 0, 0, 0), CL_MISALIGNED_SUB_BUFFER_OFFSET);
    assert_int_equal(RECT(&other, &s->odd, zero, zero, size, 0, 0, 0, 0), CL_MISALIGNED_SUB_BUFFER_OFFSET);
}

/* ---- fills ---- */

static void fills_are_checked(void **state)
{
    struct scene *s = *state;
    const char pattern[128] = {0};
#define FILL(mem, p, p_size, offset, size) dvc_check_fill_buffer(&s->queue, mem, p, p_size, offset, size)
    for (size_t bytes = 1; bytes <= 128; bytes *= 2)
        assert_int_equal(FILL(&s->root, pattern, bytes, bytes, 2 * bytes), CL_SUCCESS);
    assert_int_equal(FILL(&s->root, NULL, 4, 0, 64), CL_INVALID_VALUE);
    assert_int_equal(FILL(&s->root, pattern, 0, 0, 64), CL_INVALID_VALUE);
    assert_int_equal(FILL(&s->root, pattern, 3, 0, 63), CL_INVALID_VALUE);
    assert_int_equal(FILL(&s->root, pattern, 256, 0, 512), CL_INVALID_VALUE);
    assert_int_equal(FILL(&s->root, pattern, 8, 4, 64), CL_INVALID_VALUE);
    assert_int_equal(FILL(&s->root, pattern, 8, 0, 60), CL_INVALID_VALUE);
    assert_int_equal(FILL(&s->root, pattern, 8, ROOT_BYTES, 8), CL_INVALID_VALUE);
    assert_int_equal(FILL(&s->root, pattern, 8, SIZE_MAX - 7, 16), CL_INVALID_VALUE);
    assert_int_equal(FILL(&s->root, pattern, 8, 8, SIZE_MAX - 7), CL_INVALID_VALUE);
    assert_int_equal(FILL(&s->foreign, pattern, 8, 0, 8), CL_INVALID_CONTEXT);
    assert_int_equal(FILL(&s->odd, pattern, 8, 0, 8), CL_MISALIGNED_SUB_BUFFER_OFFSET);
}

/* ---- images ---- */

static void image_copies_are_checked(void **state)
{
    struct scene *s = *state;
    struct dvc_mem image = {.context = &s->context, .type = CL_MEM_OBJECT_IMAGE2D, .element_bytes = 4};
    image.desc.image_width = 16;
    image.desc.image_height = 16;
    struct dvc_mem other = image, different = image;
    different.format.image_channel_order = CL_RGBA;
    const size_t zero[3] = {0}, size[3] = {8, 8, 1}, beside[3] = {8, 0, 0}, below[3] = {0, 8, 0}, half[3] = {4, 4, 0},
                 outside[3] = {9, 0, 0};
#define IMAGE(src, dst, a, b) dvc_check_copy_image(&s->queue, src, dst, a, b, size)
    assert_int_equal(IMAGE(&image, &other, zero, zero), CL_SUCCESS);
    assert_int_equal(IMAGE(&image, &different, zero, zero), CL_IMAGE_FORMAT_MISMATCH);
    assert_int_equal(IMAGE(&image, &image, zero, beside), CL_SUCCESS);
    assert_int_equal(IMAGE(&image, &image, below, zero), CL_SUCCESS);
    assert_int_equal(IMAGE(&image, &image, zero, half), CL_MEM_COPY_OVERLAP);
    assert_int_equal(IMAGE(&image, &image, zero, zero), CL_MEM_COPY_OVERLAP);
    assert_int_equal(IMAGE(&image, &other, outside, zero), CL_INVALID_VALUE);
    assert_int_equal(IMAGE(&image, &other, zero, outside), CL_INVALID_VALUE);
#define TO_BUFFER(offset) dvc_check_copy_image_to_buffer(&s->queue, &image, &s->root, zero, size, offset)
#define TO_IMAGE(offset) dvc_check_copy_buffer_to_image(&s->queue, &s->root, &image, offset, zero, size)
    assert_int_equal(TO_BUFFER(ROOT_BYTES - 256), CL_SUCCESS); /* 8 * 8 * 4 bytes */
    assert_int_equal(TO_BUFFER(ROOT_BYTES - 255), CL_INVALID_VALUE);
    assert_int_equal(TO_BUFFER(SIZE_MAX - 100), CL_INVALID_VALUE);
    assert_int_equal(TO_IMAGE(ROOT_BYTES - 256), CL_SUCCESS);
    assert_int_equal(TO_IMAGE(ROOT_BYTES - 255), CL_INVALID_VALUE);
    assert_int_equal(dvc_check_fill_image(&s->queue, &image, NULL, zero, size), CL_INVALID_VALUE);
    assert_int_equal(dvc_check_fill_image(&s->queue, &image, zero, zero, size), CL_SUCCESS);
    assert_int_equal(dvc_check_fill_image(&s->queue, &image, zero, outside, size), CL_INVALID_VALUE);
}

/* ---- kernels ---- */

static void ranges_are_checked(void **state)
{
    struct scene *s = *state;
    const size_t global[3] = {256, 256, 256}, local[3] = {4, 4, 4}, none[3] = {256, 0, 256};
    const size_t wide[3] = {129, 1, 1}, many[3] = {64, 8, 1}, odd[3] = {100, 1, 1};
    const size_t enormous[3] = {(size_t)1 << 32, (size_t)1 << 32, 1};
    const size_t late[3] = {SIZE_MAX - 256, 0, 0}, too_late[3] = {SIZE_MAX - 255, 0, 0};
#define RANGE(dims, o, g, l) dvc_check_ndrange(&s->queue, &s->kernel, dims, o, g, l)
    assert_int_equal(RANGE(3, NULL, global, local), CL_SUCCESS);
    assert_int_equal(RANGE(3, NULL, global, NULL), CL_SUCCESS);
    assert_int_equal(RANGE(0, NULL, global, local), CL_INVALID_WORK_DIMENSION);
    assert_int_equal(RANGE(4, NULL, global, local), CL_INVALID_WORK_DIMENSION);
    assert_int_equal(RANGE(UINT32_MAX, NULL, global, local), CL_INVALID_WORK_DIMENSION);
    assert_int_equal(RANGE(1, NULL, NULL, NULL), CL_INVALID_GLOBAL_WORK_SIZE);
    assert_int_equal(RANGE(3, NULL, none, NULL), CL_INVALID_GLOBAL_WORK_SIZE);
    assert_int_equal(RANGE(1, NULL, none, NULL), CL_SUCCESS); /* only the first counts */
    assert_int_equal(RANGE(1, late, global, NULL), CL_SUCCESS);
    assert_int_equal(RANGE(1, too_late, global, NULL), CL_INVALID_GLOBAL_OFFSET);
    assert_int_equal(RANGE(3, NULL, global, none), CL_INVALID_WORK_ITEM_SIZE);
    assert_int_equal(RANGE(1, NULL, global, wide), CL_INVALID_WORK_ITEM_SIZE);
    assert_int_equal(RANGE(2, NULL, global, many), CL_INVALID_WORK_GROUP_SIZE);
    assert_int_equal(RANGE(1, NULL, global, odd), CL_INVALID_WORK_GROUP_SIZE);
    s->device.non_uniform = true;
    assert_int_equal(RANGE(1, NULL, global, odd), CL_SUCCESS);
    memset(s->device.max_items, 0, sizeof s->device.max_items); /* the device did not say */
    assert_int_equal(RANGE(3, NULL, enormous, enormous), CL_INVALID_WORK_GROUP_SIZE);
    s->kernel.required_local[0] = 8;
    s->kernel.required_local[1] = s->kernel.required_local[2] = 1;
    assert_int_equal(RANGE(1, NULL, global, local), CL_INVALID_WORK_GROUP_SIZE);
    assert_int_equal(RANGE(1, NULL, global, (const size_t[]){8}), CL_SUCCESS);
    assert_int_equal(RANGE(1, NULL, global, NULL), CL_INVALID_WORK_GROUP_SIZE);
}

static void a_kernel_needs_all_its_arguments(void **state)
{
    struct scene *s = *state;
    bool set[3] = {true, false, true};
    const size_t global[1] = {16};
    s->kernel.argument_count = 3;
    s->kernel.is_set = set;
    assert_int_equal(RANGE(1, NULL, global, NULL), CL_INVALID_KERNEL_ARGS);
    set[1] = true;
    assert_int_equal(RANGE(1, NULL, global, NULL), CL_SUCCESS);
    s->program.context = &s->other_context;
    assert_int_equal(RANGE(1, NULL, global, NULL), CL_INVALID_CONTEXT);
}

/* ---- lists ---- */

static void wait_lists_are_checked(void **state)
{
    struct scene *s = *state;
    struct dvc_event *event = dvc_object_create(DV_KIND_EVENT, NULL);
    struct dvc_event *foreign = dvc_object_create(DV_KIND_EVENT, NULL);
    struct dvc_mem *no_event = dvc_object_create(DV_KIND_MEM, NULL);
    event->context = &s->context;
    foreign->context = &s->other_context;
    cl_event good[] = {(cl_event)event, (cl_event)event}, mixed[] = {(cl_event)event, (cl_event)foreign};
    cl_event wrong[] = {(cl_event)event, (cl_event)no_event}, null[] = {NULL};
    assert_int_equal(dvc_check_waits(&s->context, 0, NULL), CL_SUCCESS);
    assert_int_equal(dvc_check_waits(&s->context, 2, good), CL_SUCCESS);
    assert_int_equal(dvc_check_waits(&s->context, 0, good), CL_INVALID_EVENT_WAIT_LIST);
    assert_int_equal(dvc_check_waits(&s->context, 1, NULL), CL_INVALID_EVENT_WAIT_LIST);
    assert_int_equal(dvc_check_waits(&s->context, 2, mixed), CL_INVALID_CONTEXT);
    assert_int_equal(dvc_check_waits(&s->context, 2, wrong), CL_INVALID_EVENT_WAIT_LIST);
    assert_int_equal(dvc_check_waits(&s->context, 1, null), CL_INVALID_EVENT_WAIT_LIST);
    dvc_object_free(&event->object);
    assert_int_equal(dvc_check_waits(&s->context, 2, good), CL_INVALID_EVENT_WAIT_LIST);
    dvc_object_free(&foreign->object);
    dvc_object_free(&no_event->object);
}

static void migrations_are_checked(void **state)
{
    struct scene *s = *state;
    struct dvc_mem *mem = dvc_object_create(DV_KIND_MEM, NULL), *foreign = dvc_object_create(DV_KIND_MEM, NULL);
    mem->context = &s->context;
    foreign->context = &s->other_context;
    cl_mem good[] = {(cl_mem)mem}, bad[] = {(cl_mem)mem, (cl_mem)foreign}, null[] = {NULL};
    assert_int_equal(dvc_check_migrate(&s->queue, 1, good, CL_MIGRATE_MEM_OBJECT_HOST), CL_SUCCESS);
    assert_int_equal(dvc_check_migrate(&s->queue, 0, good, 0), CL_INVALID_VALUE);
    assert_int_equal(dvc_check_migrate(&s->queue, 1, NULL, 0), CL_INVALID_VALUE);
    assert_int_equal(dvc_check_migrate(&s->queue, 1, good, 1 << 10), CL_INVALID_VALUE);
    assert_int_equal(dvc_check_migrate(&s->queue, 2, bad, 0), CL_INVALID_CONTEXT);
    assert_int_equal(dvc_check_migrate(&s->queue, 1, null, 0), CL_INVALID_MEM_OBJECT);
    dvc_object_free(&mem->object);
    dvc_object_free(&foreign->object);
}

int main(void)
{
#define CHECK_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CHECK_TEST(copies_stay_inside_their_buffers),
        CHECK_TEST(linear_overlap_is_found_exactly),
        CHECK_TEST(rectangular_overlap_is_found_exactly),
        CHECK_TEST(rectangular_copies_are_checked),
        CHECK_TEST(fills_are_checked),
        CHECK_TEST(image_copies_are_checked),
        CHECK_TEST(ranges_are_checked),
        CHECK_TEST(a_kernel_needs_all_its_arguments),
        CHECK_TEST(wait_lists_are_checked),
        CHECK_TEST(migrations_are_checked),
    };
    print_message("seed %llu\n", (unsigned long long)random_seed());
    return cmocka_run_group_tests_name("checks", tests, NULL, NULL);
}
