/* Properties that must hold whatever happens: over random tenants, kernels of 0.1 to 20 ms, joins,
 * leaves and changes, at virtual time. DIVVY_TEST_SEED repeats or varies a run. */
#include "tests/policy/harness.h"

#include <math.h>

#define MS DV_NS_PER_MS
#define WINDOW_BINS (DV_NS_PER_S / BIN_NS)
#define LEAST_WAITS 1000000

static dv_ns random_between(struct random *random, dv_ns low, dv_ns high)
{
    return low + random_below(random, high - low + 1);
}

static void add_random_kernels(struct world *world, struct dv_share share)
{
    dv_ns low = random_between(&world->random, MS / 10, 10 * MS);
    dv_ns high = random_between(&world->random, low, random_chance(&world->random, 50) ? low : 20 * MS);

    world_add(world, share, low, high > low ? high : low);
}

/* Calls check(share over the window) for windows all over the run. */
static void each_window(const struct world *world, size_t from_bin,
                        void (*check)(const struct world *world, size_t first, void *context),
                        void *context)
{
    size_t end = world->now / BIN_NS - 200; /* holds under way are not recorded yet */

    for (size_t first = from_bin; first + WINDOW_BINS < end; first += 7)
        check(world, first, context);
}

/* ---- backlogged tenants get what they are entitled to ---- */

struct bound {
    uint32_t ppm[MAX_TENANTS];
    double allowed; /* difference as part of the window */
    double worst;
    bool full; /* the device must never idle */
};

static void check_bound(const struct world *world, size_t first, void *context)
{
    struct bound *bound = context;
    double sum = 0;

    for (unsigned i = 0; i < world->count; i++) {
        double share = world_share(&world->peers[i], first, WINDOW_BINS);
        double off = fabs(share - (double)bound->ppm[i] / DV_PPM);
        sum += share;
        if (off / bound->allowed > bound->worst)
            bound->worst = off / bound->allowed;
        if (off > bound->allowed)
            fail_msg("tenant %u of %u: %.4f in the window at %zu ms, entitled to %.4f (+-%.4f)", i,
                     world->count, share, first, (double)bound->ppm[i] / DV_PPM, bound->allowed);
    }
    assert_true(sum <= 1.000001);
    if (bound->full)
        assert_true(sum >= 0.999);
}

static void backlogged(const struct dv_policy_ops *ops, uint64_t seed, bool requests, bool limits,
                       double *worst)
{
    struct world *world = world_create(ops, 1, seed);
    struct random *random = &world->random;
    unsigned count = 2 + (unsigned)random_below(random, 9);
    uint32_t left = DV_PPM;
    struct dv_share shares[MAX_TENANTS];
    struct bound bound = {.full = true};

    for (unsigned i = 0; i < count; i++) {
        struct dv_share share = {.limit_ppm = DV_PPM, .class = DV_CLASS_STANDARD};
        share.weight = 1 + (uint32_t)random_below(random, random_chance(random, 30) ? 50 : 4);
        if (requests && random_chance(random, 50)) {
            share.request_ppm = (uint32_t)random_below(random, left / 2 + 1);
            left -= share.request_ppm;
        }
        if (limits && i && random_chance(random, 40)) /* the first one can take what is left */
            share.limit_ppm = share.request_ppm +
                              (uint32_t)random_between(random, 50000, DV_PPM - share.request_ppm);
        if (share.limit_ppm > DV_PPM)
            share.limit_ppm = DV_PPM;
        shares[i] = share;
        add_random_kernels(world, share);
    }
    world_run(world, 12 * DV_NS_PER_S);
    dv_policy_entitlements(shares, count, bound.ppm);
    bound.allowed = (double)dv_policy_error_bound(world->longest_slice, world->longest_kernel) /
                    DV_NS_PER_S;
    each_window(world, 1000, check_bound, &bound);
    assert_int_equal(world->idle_while_wanted, 0);
    if (bound.worst > *worst)
        *worst = bound.worst;
    world_destroy(world);
}

static void test_backlogged_by_weight(void **state)
{
    double worst = 0;

    (void)state;
    for (unsigned i = 0; i < 60; i++)
        backlogged(&dv_policy_elastic, random_seed() + i, false, false, &worst);
    print_message("worst 1 s window: %.2f of the bound\n", worst);
}

static void test_backlogged_with_requests(void **state)
{
    double worst = 0;

    (void)state;
    for (unsigned i = 0; i < 60; i++)
        backlogged(&dv_policy_elastic, random_seed() + 1000 + i, true, false, &worst);
    print_message("worst 1 s window: %.2f of the bound\n", worst);
}

static void test_backlogged_with_limits(void **state)
{
    double worst = 0;

    (void)state;
    for (unsigned i = 0; i < 60; i++)
        backlogged(&dv_policy_elastic, random_seed() + 2000 + i, true, true, &worst);
    print_message("worst 1 s window: %.2f of the bound\n", worst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backlogged_by_weight),
        cmocka_unit_test(test_backlogged_with_requests),
        cmocka_unit_test(test_backlogged_with_limits),
    };
    print_message("seed %llu\n", (unsigned long long)random_seed());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
