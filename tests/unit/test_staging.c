/* Staging of captured writes: blocks under way never overlap, whatever order they are taken in. */
#include "unit.h"

#include <stdatomic.h>

#include "src/client/opencl/staging.h"

#define BASE UINT64_C(4096)
#define KIB UINT64_C(1024)

struct stage {
    struct dvc_staging staging;
    uint8_t *shm;
};

static int set_up(void **state)
{
    struct stage *s = calloc(1, sizeof *s);
    s->shm = sparse_memory(BASE + DV_STAGING_BYTES);
    s->staging.base = BASE;
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct stage *s = *state;
    munmap(s->shm, BASE + DV_STAGING_BYTES);
    free(s);
    return 0;
}

static uint64_t take(struct stage *s, uint64_t bytes)
{
    return dvc_staging_take(&s->staging, s->shm, bytes);
}

static _Atomic uint32_t *flag_of(struct stage *s, uint64_t flag)
{
    return (_Atomic uint32_t *)(s->shm + flag);
}

static void nothing_is_given_before_there_is_memory(void **state)
{
    struct stage *s = *state;
    s->staging.base = 0;
    assert_int_equal(take(s, 64), 0);
}

static void a_block_is_flagged_until_it_is_taken(void **state)
{
    struct stage *s = *state;
    uint64_t a = take(s, 100), b = take(s, 100);
    assert_int_equal(a, BASE);
    assert_true(b >= a + DV_STAGING_FLAG_BYTES + 100);
    assert_int_equal(b % DV_STAGING_FLAG_BYTES, 0);
    assert_int_equal(atomic_load(flag_of(s, a)), 1);
    atomic_store(flag_of(s, b), 0); /* the second is taken first: nothing is reclaimed yet */
    uint64_t c = take(s, 100);
    assert_true(c > b);
    atomic_store(flag_of(s, a), 0);
    atomic_store(flag_of(s, c), 0);
    assert_int_equal(take(s, 100), BASE); /* all taken: from the start again */
}

static void too_large_a_block_is_refused(void **state)
{
    struct stage *s = *state;
    assert_int_equal(take(s, DV_STAGING_BYTES), 0);
    assert_int_equal(take(s, DV_STAGING_BYTES / 2), 0);
    assert_int_not_equal(take(s, DV_STAGING_BYTES / 2 - DV_STAGING_FLAG_BYTES), 0);
}

static void a_full_stage_refuses_until_the_oldest_is_taken(void **state)
{
    struct stage *s = *state;
    const uint64_t bytes = 1024 * KIB - DV_STAGING_FLAG_BYTES;
    uint64_t flags[DV_STAGING_BYTES / (1024 * KIB)];
    const size_t count = sizeof flags / sizeof flags[0];
    for (size_t i = 0; i < count; i++)
        assert_int_equal(flags[i] = take(s, bytes), BASE + i * 1024 * KIB);
    assert_int_equal(take(s, 1), 0);
    atomic_store(flag_of(s, flags[1]), 0);
    assert_int_equal(take(s, 1), 0); /* the oldest is still under way */
    atomic_store(flag_of(s, flags[0]), 0);
    assert_int_equal(take(s, bytes), flags[0]);
    assert_int_equal(take(s, bytes), flags[1]);
    assert_int_equal(take(s, 1), 0);
}

static void there_is_an_end_to_the_number_of_blocks(void **state)
{
    struct stage *s = *state;
    uint64_t first = take(s, 1);
    for (uint32_t i = 1; i < DV_STAGING_BLOCKS; i++)
        assert_int_not_equal(take(s, 1), 0);
    assert_int_equal(take(s, 1), 0);
    atomic_store(flag_of(s, first), 0);
    assert_int_not_equal(take(s, 1), 0);
    assert_int_equal(take(s, 1), 0);
}

static void random_blocks_never_overlap(void **state)
{
    struct stage *s = *state;
    struct random r = {random_seed()};
    struct {
        uint64_t flag, end;
    } live[64];
    size_t count = 0;
    uint64_t given = 0, refused = 0, wrapped = 0, last = 0;
    for (int round = 0; round < 60000; round++) {
        if (count < 64 && random_chance(&r, 55)) {
            uint64_t bytes = 1 + random_below(&r, random_chance(&r, 50) ? 2048 * KIB : 20 * KIB);
            uint64_t flag = take(s, bytes);
            if (!flag) {
                refused++;
                continue;
            }
            uint64_t end = flag + DV_STAGING_FLAG_BYTES + bytes;
            assert_true(flag >= BASE && end <= BASE + DV_STAGING_BYTES);
            for (size_t i = 0; i < count; i++)
                assert_true(end <= live[i].flag || live[i].end <= flag);
            given++;
            wrapped += flag < last;
            last = flag;
            live[count].flag = flag;
            live[count++].end = end;
        } else if (count) { /* mostly in the order given out, as commands run */
            size_t at = random_chance(&r, 70) ? 0 : random_below(&r, count);
            atomic_store(flag_of(s, live[at].flag), 0);
            memmove(live + at, live + at + 1, (--count - at) * sizeof live[0]);
        }
    }
    assert_true(given > 10000 && refused > 100 && wrapped > 100);
}

int main(void)
{
#define STAGING_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        STAGING_TEST(nothing_is_given_before_there_is_memory),
        STAGING_TEST(a_block_is_flagged_until_it_is_taken),
        STAGING_TEST(too_large_a_block_is_refused),
        STAGING_TEST(a_full_stage_refuses_until_the_oldest_is_taken),
        STAGING_TEST(there_is_an_end_to_the_number_of_blocks),
        STAGING_TEST(random_blocks_never_overlap),
    };
    print_message("seed %llu\n", (unsigned long long)random_seed());
    return cmocka_run_group_tests_name("staging", tests, NULL, NULL);
}
