/* How kernels are cut: verdicts about programs, sizes of parts, and what a part tells its kernel. */
#include "unit.h"

#include "src/base/clock.h"
#include "src/worker/opencl/cut_prelude.h"
#include "src/worker/opencl/cut_size.h"
#include "src/worker/opencl/cut_verdict.h"

/* ---- verdicts ---- */

static struct dvk_verdict of(const char *source)
{
    return dvk_verdict_of_source(source, strlen(source));
}

static void places_that_offsets_keep_need_no_correction(void **state)
{
    (void)state;
    assert_int_equal(
        of("kernel void k(global int *a) { a[get_global_id(0)] = get_local_id(1) + get_local_size(0); }").kind,
        DV_CUT_FREE);
    assert_int_equal(of("kernel void k(global int *my_get_group_id) { my_get_group_id[0] = 1; }").kind, DV_CUT_FREE);
    assert_int_equal(of("").kind, DV_CUT_FREE);
}

static void places_in_the_range_need_correction(void **state)
{
    static const char *const names[] = {"get_group_id(0)", "get_num_groups (1)", "get_global_size(0)",
                                        "get_global_offset(2)", "get_global_linear_id()"};
    char source[256];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(source, sizeof source, "kernel void k(global int *a) { a[0] = %s; }", names[i]);
        assert_int_equal(of(source).kind, DV_CUT_CORRECTED);
    }
    assert_int_equal(of("#define ID(what) get_ ## what ## _id(0)\n").kind, DV_CUT_CORRECTED);
    assert_int_equal(of("#define SIZE(what) what##_groups\n").kind, DV_CUT_CORRECTED);
    assert_int_equal(of("#define TYPE(n) float##n\n").kind, DV_CUT_FREE);
    assert_int_equal(of("-DGROUP=get_group_id").kind, DV_CUT_CORRECTED);
}

static void groups_that_wait_for_each_other_stay_together(void **state)
{
    static const char *const waits[] = {
        "while (atomic_add(count, 0) < n) { }", "while (atomic_load_explicit(&flag) == 0) x++;", "while (*flag == 0);",
        "while (flag[get_group_id(0) - 1] == 0) ;", "while (atom_or(lock, 0u) != 3) barrier(CLK_LOCAL_MEM_FENCE);"};
    static const char *const goes_on[] = {"do { old = *p; } while (atomic_cmpxchg(p, old, old + 1) != old);",
                                          "while (atomic_xchg(lock, 1));",
                                          "while (i < n) { a[i] = 0; i += step; }",
                                          "while (a[i++] != 0);",
                                          "do { i++; } while (a[i] != 0);",
                                          "meanwhile(a[3]);"};
    char source[256];

    (void)state;
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        snprintf(source, sizeof source, "kernel void k(global int *flag) { %s }", waits[i]);
        assert_int_equal(of(source).kind, DV_CUT_WHOLE);
        assert_int_equal(of(source).reason, DV_WHOLE_GROUPS_WAIT);
    }
    for (size_t i = 0; i < sizeof goes_on / sizeof goes_on[0]; i++) {
        snprintf(source, sizeof source, "kernel void k(global int *a) { %s }", goes_on[i]);
        assert_int_not_equal(of(source).kind, DV_CUT_WHOLE);
    }
    assert_int_equal(of("kernel void k() { enqueue_kernel(q, f, r, b); }").reason, DV_WHOLE_ENQUEUES);
}

/* The texts of programs come from tenants. */
static void any_text_is_judged(void **state)
{
    static const char letters[] = "while(atom_load,0)get_##group_id [*;}{u";
    struct random random = {random_seed()};
    for (int round = 0; round < 20000; round++) {
        size_t bytes = random_next(&random) % 200;
        char *exact = malloc(bytes ? bytes : 1); /* sanitizers see what is read behind it */
        for (size_t i = 0; i < bytes; i++)
            exact[i] = letters[random_next(&random) % (sizeof letters - 1)];
        struct dvk_verdict verdict = dvk_verdict_of_source(exact, bytes);
        assert_in_range(verdict.kind, DV_CUT_FREE, DV_CUT_WHOLE);
        free(exact);
    }
}

static struct dvk_verdict of_module(const uint32_t *words, size_t count)
{
    return dvk_verdict_of_il(words, count * 4);
}

static void modules_are_judged_by_their_built_ins(void **state)
{
    uint32_t module[] = {0x07230203, 0x10000, 0, 9, 0, 4u << 16 | 71, 5, 11, 28}; /* GlobalInvocationId */

    (void)state;
    assert_int_equal(of_module(module, 9).kind, DV_CUT_FREE);
    module[8] = 26; /* WorkgroupId */
    assert_int_equal(of_module(module, 9).reason, DV_WHOLE_IL);
    for (int i = 0; i < 9; i++)
        module[i] = __builtin_bswap32(module[i]);
    assert_int_equal(of_module(module, 9).reason, DV_WHOLE_IL);
    uint32_t loads[] = {0x07230203, 0x10000, 0, 9, 0, 6u << 16 | 227, 1, 2, 3, 4, 5};
    assert_int_equal(of_module(loads, 11).reason, DV_WHOLE_GROUPS_WAIT);
    /* lengths that lead nowhere */
    loads[5] = 227;
    assert_int_equal(of_module(loads, 11).reason, DV_WHOLE_BINARY);
    loads[5] = 0xffffu << 16 | 227;
    assert_int_equal(of_module(loads, 11).reason, DV_WHOLE_BINARY);
    assert_int_equal(of_module(loads, 4).reason, DV_WHOLE_BINARY);
    assert_int_equal(dvk_verdict_of_il("ELF and more bytes than a header", 32).reason, DV_WHOLE_BINARY);
}

/* ---- sizes ---- */

#define PPM_2 20000

static struct dvk_cut_wish wish_for(uint64_t target_ns, uint64_t left)
{
    return (struct dvk_cut_wish){
        .target_ns = target_ns, .cost_ppm = PPM_2, .group_items = 64, .groups_left = left, .units = 1};
}

static void an_unknown_kernel_begins_small_and_grows(void **state)
{
    struct dvk_pace pace;
    struct dvk_cut_wish wish = wish_for(5 * DV_NS_PER_MS, 100000);

    (void)state;
    dvk_pace_init(&pace);
    wish.units = 2;
    assert_int_equal(dvk_cut_groups(&pace, &wish), 2);
    wish.last_groups = 2;
    dvk_pace_note(&pace, 2 * 64, 2 * DV_NS_PER_US); /* 1 us a group: 5000 groups would be right */
    assert_int_equal(dvk_cut_groups(&pace, &wish), 16);
    assert_false(pace.sure);
    wish.last_groups = 500;
    dvk_pace_note(&pace, 500 * 64, 500 * DV_NS_PER_US);
    assert_true(pace.sure);
    assert_int_equal(dvk_cut_groups(&pace, &wish), 5000);
}

static void the_rest_goes_at_once_when_it_is_short(void **state)
{
    struct dvk_pace pace;
    struct dvk_cut_wish wish = wish_for(5 * DV_NS_PER_MS, 7000);

    (void)state;
    dvk_pace_init(&pace);
    dvk_pace_note(&pace, 5000 * 64, 5 * DV_NS_PER_MS);
    assert_int_equal(dvk_cut_groups(&pace, &wish), 7000);
    wish.groups_left = 8000;
    assert_int_equal(dvk_cut_groups(&pace, &wish), 5000);
    wish.odd = true;
    assert_int_equal(dvk_cut_groups(&pace, &wish), 2500);
    wish.slice_ns = 2 * DV_NS_PER_MS; /* what is left of a slice is used */
    assert_int_equal(dvk_cut_groups(&pace, &wish), 2000);
    wish.slice_ns = 1 * DV_NS_PER_MS; /* unless it is hardly worth it */
    assert_int_equal(dvk_cut_groups(&pace, &wish), 2500);
}

static void one_group_is_the_least(void **state)
{
    struct dvk_pace pace;
    struct dvk_cut_wish wish = wish_for(5 * DV_NS_PER_MS, 10);

    (void)state;
    dvk_pace_init(&pace);
    dvk_pace_note(&pace, 64, 100 * DV_NS_PER_MS);
    assert_int_equal(dvk_cut_groups(&pace, &wish), 1);
    wish.target_ns = DVK_CUT_ALWAYS_NS;
    wish.last_groups = 0;
    assert_int_equal(dvk_cut_groups(&pace, &wish), 1);
    wish.last_groups = 4;
    assert_int_equal(dvk_cut_groups(&pace, &wish), 8);
    wish.groups_left = 3;
    assert_int_equal(dvk_cut_groups(&pace, &wish), 3);
}

/* A part that costs 100 us is at least 5 ms long where 2 % may go into that. */
static void parts_are_longer_where_they_cost_more(void **state)
{
    struct dvk_pace pace;

    (void)state;
    dvk_pace_init(&pace);
    for (int i = 0; i < 40; i++) {
        double groups = i % 4 == 1 ? 500 : 1000;
        dvk_pace_note(&pace, groups * 64, (uint64_t)(groups * DV_NS_PER_US) + 100 * DV_NS_PER_US);
    }
    assert_true(pace.launch_ns > 95 * DV_NS_PER_US && pace.launch_ns < 105 * DV_NS_PER_US);
    uint64_t part = dvk_cut_part_ns(&pace, DV_NS_PER_MS, PPM_2);
    assert_true(part > 4750 * DV_NS_PER_US && part < 5250 * DV_NS_PER_US);
    assert_int_equal(dvk_cut_part_ns(&pace, 20 * DV_NS_PER_MS, PPM_2), 20 * DV_NS_PER_MS);
    assert_int_equal(dvk_cut_part_ns(&pace, DV_NS_PER_MS, 0), DV_NS_PER_MS);
    assert_true(dvk_cut_part_ns(&pace, DV_NS_PER_MS, 100) <= 50 * DV_NS_PER_MS);
}

/* Where times vary by a tenth, a part that costs 20 us must not be taken for one that costs a millisecond: parts would
 * grow, and so would what their times vary by. */
static void parts_stay_short_where_times_vary(void **state)
{
    struct random random = {.state = random_seed()};
    struct dvk_pace pace;
    struct dvk_cut_wish wish = wish_for(5 * DV_NS_PER_MS, 100000000);
    uint64_t long_parts = 0, count = 100000;

    (void)state;
    dvk_pace_init(&pace);
    for (uint64_t i = 0; i < count; i++) {
        wish.odd = i % 4 == 1;
        double groups = (double)dvk_cut_groups(&pace, &wish);
        double varies = 0.9 + 0.2 * (double)random_below(&random, 1000) / 1000;
        uint64_t took = (uint64_t)(groups * DV_NS_PER_US * varies) + 20 * DV_NS_PER_US;
        if (random_chance(&random, 1)) /* another program had the processor */
            took += random_below(&random, 10 * DV_NS_PER_MS);
        dvk_pace_note(&pace, groups * 64, took);
        long_parts += groups > 7500;
    }
    assert_true(long_parts < count / 50);
}

/* A compilation in a part, or another program on the processor: parts are short for a while. */
static void one_slow_part_is_forgotten(void **state)
{
    struct dvk_pace pace;

    (void)state;
    dvk_pace_init(&pace);
    for (int i = 0; i < 10; i++)
        dvk_pace_note(&pace, 64000, DV_NS_PER_MS);
    double before = pace.item_ns;
    dvk_pace_note(&pace, 64000, 100 * DV_NS_PER_MS);
    for (int i = 0; i < 15; i++)
        dvk_pace_note(&pace, 64000, DV_NS_PER_MS);
    assert_true(pace.item_ns < 1.2 * before);
}

/* The time of an item can depend on the arguments, and a long launch come after many short ones. */
static void a_slow_launch_counts_at_once_and_for_a_while(void **state)
{
    struct dvk_pace pace;

    (void)state;
    dvk_pace_init(&pace);
    for (int i = 0; i < 100; i++)
        dvk_pace_note(&pace, 1000, 10 * DV_NS_PER_US);
    dvk_pace_note(&pace, 1000, DV_NS_PER_S);
    assert_int_equal(dvk_pace_expects(&pace, 1000), DV_NS_PER_S);
    for (int i = 0; i < 20; i++)
        dvk_pace_note(&pace, 1000, 10 * DV_NS_PER_US);
    assert_true(dvk_pace_expects(&pace, 1000) < DV_NS_PER_MS);
    assert_true(dvk_pace_fears(&pace, 1000) > 100 * DV_NS_PER_MS);
    for (int i = 0; i < 200; i++)
        dvk_pace_note(&pace, 1000, 10 * DV_NS_PER_US);
    assert_true(dvk_pace_fears(&pace, 1000) < 10 * DV_NS_PER_MS);
}

/* ---- what a part tells ---- */

/* As the prelude has it, in C. */
static uint64_t field(const size_t offsets[3], unsigned d, bool of_the_part)
{
    uint64_t told = offsets[0] | (uint64_t)offsets[1] << 16 | (uint64_t)offsets[2] << 32;
    unsigned dims = told & 3, x = told >> 2 & 15, y = told >> 6 & 15;
    unsigned bits = dims == 1 ? (d == 0 ? 23 : 0) : d == 0 ? x : d == 1 ? y : 19 - x - y;
    unsigned shift = dims == 1 ? 2 : 10 + (d > 0 ? x : 0) + (d > 1 ? y : 0);

    return told >> (shift + (of_the_part ? (dims == 1 ? 23 : 19) : 0)) & ((UINT64_C(1) << bits) - 1);
}

static void a_part_tells_the_range_and_its_place(void **state)
{
    (void)state;
    struct random random = {random_seed()};
    for (int round = 0; round < 100000; round++) {
        uint32_t dims = 1 + (uint32_t)random_next(&random) % 3;
        uint64_t groups[3] = {1, 1, 1}, at[3] = {0};
        size_t offsets[3];
        for (uint32_t d = 0; d < dims; d++) {
            groups[d] = 1 + random_next(&random) % (UINT64_C(1) << (random_next(&random) % 24));
            at[d] = random_next(&random) % groups[d];
        }
        if (!dvk_cut_offsets(dims, groups, at, offsets))
            continue;
        for (unsigned d = 0; d < 3; d++) {
            assert_true(offsets[d] <= UINT16_MAX);
            assert_int_equal(field(offsets, d, false) + 1, groups[d]);
            assert_int_equal(field(offsets, d, true), at[d]);
        }
    }
}

static void ranges_that_do_not_fit_are_refused(void **state)
{
    const uint64_t none[3] = {0};
    size_t offsets[3];

    (void)state;
    assert_true(dvk_cut_offsets(1, (uint64_t[]){1 << 23, 1, 1}, none, offsets));
    assert_false(dvk_cut_offsets(1, (uint64_t[]){(1 << 23) + 1, 1, 1}, none, offsets));
    assert_true(dvk_cut_offsets(2, (uint64_t[]){1024, 512, 1}, none, offsets));
    assert_false(dvk_cut_offsets(2, (uint64_t[]){1024, 513, 1}, none, offsets));
    assert_false(dvk_cut_offsets(2, (uint64_t[]){1 << 16, 1, 1}, none, offsets));
    assert_true(dvk_cut_offsets(3, (uint64_t[]){1, 1, 1 << 19}, none, offsets));
    assert_false(dvk_cut_offsets(3, (uint64_t[]){UINT64_MAX, UINT64_MAX, UINT64_MAX}, none, offsets));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_that_offsets_keep_need_no_correction),
        cmocka_unit_test(places_in_the_range_need_correction),
        cmocka_unit_test(groups_that_wait_for_each_other_stay_together),
        cmocka_unit_test(any_text_is_judged),
        cmocka_unit_test(modules_are_judged_by_their_built_ins),
        cmocka_unit_test(an_unknown_kernel_begins_small_and_grows),
        cmocka_unit_test(the_rest_goes_at_once_when_it_is_short),
        cmocka_unit_test(one_group_is_the_least),
        cmocka_unit_test(parts_are_longer_where_they_cost_more),
        cmocka_unit_test(parts_stay_short_where_times_vary),
        cmocka_unit_test(one_slow_part_is_forgotten),
        cmocka_unit_test(a_slow_launch_counts_at_once_and_for_a_while),
        cmocka_unit_test(a_part_tells_the_range_and_its_place),
        cmocka_unit_test(ranges_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
