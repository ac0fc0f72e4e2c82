/* Properties that must hold whatever happens: over random tenants, kernels of 0.1 to 20 ms, joins,
 * leaves and changes, at virtual time. DIVVY_TEST_SEED repeats or varies a run. */
#include "tests/policy/harness.h"

#include <math.h>

#define MS DV_NS_PER_MS
#define WINDOW_BINS (DV_NS_PER_S / BIN_NS)
#define LEAST_WAITS 1000000
#define IN_TEN_SECONDS 0.0075 /* a share may be off by this part of the device */

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
                        void (*check)(const struct world *world, size_t first, void *context), void *context)
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
            fail_msg("tenant %u of %u: %.4f in the window at %zu ms, entitled to %.4f (+-%.4f)", i, world->count, share,
                     first, (double)bound->ppm[i] / DV_PPM, bound->allowed);
    }
    assert_true(sum <= 1.000001);
    if (bound->full)
        assert_true(sum >= 0.999);
}

static void backlogged(const struct dv_policy_ops *ops, uint64_t seed, bool requests, bool limits, double *worst)
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
            share.limit_ppm = share.request_ppm + (uint32_t)random_between(random, 50000, DV_PPM - share.request_ppm);
        if (share.limit_ppm > DV_PPM)
            share.limit_ppm = DV_PPM;
        shares[i] = share;
        add_random_kernels(world, share);
    }
    world_run(world, 12 * DV_NS_PER_S);
    dv_policy_entitlements(shares, count, bound.ppm);
    bound.allowed = (double)dv_policy_error_bound(world->longest_slice, world->longest_kernel) / DV_NS_PER_S;
    each_window(world, 1000, check_bound, &bound);
    assert_int_equal(world->idle_while_wanted, 0);
    for (unsigned i = 0; i < count; i++) { /* nothing adds up in the long run */
        double off = world_share(&world->peers[i], 1500, 10000) - (double)bound.ppm[i] / DV_PPM;
        if (fabs(off) > IN_TEN_SECONDS)
            fail_msg("tenant %u of %u: off by %.5f in ten seconds, entitled to %.4f (+-%.5f)", i, count, off,
                     (double)bound.ppm[i] / DV_PPM, IN_TEN_SECONDS);
    }
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

/* The same with short kernels in long bursts: turns many kernels long. */
static void test_backlogged_short_kernels(void **state)
{
    (void)state;
    for (unsigned run = 0; run < 60; run++) {
        struct world *world = world_create(&dv_policy_elastic, 1, random_seed() + 3000 + run);
        struct random *random = &world->random;
        unsigned count = 2 + (unsigned)random_below(random, 9);
        struct dv_share shares[MAX_TENANTS];
        struct bound bound = {.full = true};
        uint32_t left = DV_PPM;

        for (unsigned i = 0; i < count; i++) {
            shares[i] = (struct dv_share){
                .limit_ppm = DV_PPM, .weight = 1 + (uint32_t)random_below(random, 20), .class = DV_CLASS_STANDARD};
            if (random_chance(random, 30))
                shares[i].request_ppm = (uint32_t)random_below(random, left / 2 + 1);
            left -= shares[i].request_ppm;
            struct peer *peer = world_add(world, shares[i], MS / 10, MS / 2);
            peer->burst_ns = 1000 * MS;
        }
        world_run(world, 12 * DV_NS_PER_S);
        dv_policy_entitlements(shares, count, bound.ppm);
        assert_true(world->longest_slice <= DV_SLICE_MAX_NS);
        bound.allowed = 0.02;
        each_window(world, 1000, check_bound, &bound);
        world_destroy(world);
    }
}

/* ---- requests and limits among tenants that come and go ---- */

struct promise {
    unsigned who;
    double at_least, at_most;
};

static void check_promise(const struct world *world, size_t first, void *context)
{
    const struct promise *promise = context;
    double share = world_share(&world->peers[promise->who], first, WINDOW_BINS);

    if (share < promise->at_least || share > promise->at_most)
        fail_msg("%.4f in the window at %zu ms, promised %.4f to %.4f", share, first, promise->at_least,
                 promise->at_most);
}

/* Others that come and go at random, of all sizes. */
static void add_crowd(struct world *world, unsigned count, uint32_t requests_ppm)
{
    struct random *random = &world->random;

    for (unsigned i = 0; i < count; i++) {
        struct dv_share share = {.request_ppm = random_chance(random, 30) ? requests_ppm / count : 0,
                                 .limit_ppm = DV_PPM,
                                 .weight = 1 + (uint32_t)random_below(random, 10),
                                 .class = DV_CLASS_STANDARD};
        add_random_kernels(world, share);
        struct peer *peer = &world->peers[world->count - 1];
        peer->always = random_chance(random, 30);
        peer->sessions = 1 + (unsigned)random_below(random, MAX_SESSIONS);
        peer->idle_max = random_between(random, MS / 2, 300 * MS);
        peer->burst_max = 1 + (unsigned)random_below(random, 40);
    }
}

static void test_request_kept(void **state)
{
    (void)state;
    for (unsigned run = 0; run < 60; run++) {
        struct world *world = world_create(&dv_policy_elastic, 1, random_seed() + 4000 + run);
        uint32_t request = 100000 + (uint32_t)random_below(&world->random, 700000);
        struct dv_share share = {request, DV_PPM, 1, DV_CLASS_STANDARD};
        add_random_kernels(world, share);
        add_crowd(world, 1 + (unsigned)random_below(&world->random, 10), DV_PPM - request);
        world_run(world, 12 * DV_NS_PER_S);
        double slack = (double)dv_policy_error_bound(world->longest_slice, world->longest_kernel) / DV_NS_PER_S;
        struct promise promise = {0, (double)request / DV_PPM - slack, 1};
        each_window(world, 0, check_promise, &promise);
        assert_int_equal(world->idle_while_wanted, 0);
        world_destroy(world);
    }
}

static void test_limit_kept(void **state)
{
    (void)state;
    for (unsigned run = 0; run < 60; run++) {
        struct world *world = world_create(&dv_policy_elastic, 1, random_seed() + 5000 + run);
        uint32_t limit = 50000 + (uint32_t)random_below(&world->random, 900000);
        struct dv_share share = {0, limit, 1 + (uint32_t)random_below(&world->random, 50), DV_CLASS_STANDARD};
        add_random_kernels(world, share);
        world->peers[0].sessions = 1 + (unsigned)random_below(&world->random, MAX_SESSIONS);
        add_crowd(world, (unsigned)random_below(&world->random, 8), 0);
        world_run(world, 12 * DV_NS_PER_S);
        /* one turn under way, and what it may make up for: a hold that it waited for */
        dv_ns waited = world->longest_kernel > DV_SLICE_MAX_NS ? world->longest_kernel : DV_SLICE_MAX_NS;
        double slack = (double)(world->peers[0].longest_hold + waited) / DV_NS_PER_S;
        /* alone, handing over is not counted: at most a hundredth */
        struct promise promise = {0, 0, (double)limit / DV_PPM * 1.0102 + slack};
        each_window(world, 0, check_promise, &promise);
        world_destroy(world);
    }
}

/* Even the smallest weight, even batch work beside latency work, is served again and again. */
static void test_no_starvation(void **state)
{
    (void)state;
    for (unsigned run = 0; run < 60; run++) {
        struct world *world = world_create(&dv_policy_elastic, 1, random_seed() + 6000 + run);
        struct random *random = &world->random;
        unsigned count = 2 + (unsigned)random_below(random, 10);
        double weights = 0;

        for (unsigned i = 0; i < count; i++) {
            struct dv_share share = {.limit_ppm = DV_PPM,
                                     .weight = 1 + (uint32_t)random_below(random, 10),
                                     .class = (enum dv_class)random_below(random, 3)};
            if (i == 0)
                share = (struct dv_share){
                    .limit_ppm = random_chance(random, 50) ? DV_PPM : 100000, .weight = 1, .class = DV_CLASS_BATCH};
            weights += share.weight;
            add_random_kernels(world, share);
            world->peers[i].always = i == 0 || random_chance(random, 70);
            world->peers[i].idle_max = 20 * MS;
            world->peers[i].burst_max = 10;
        }
        world_run(world, 20 * DV_NS_PER_S);
        dv_ns hold = world->longest_slice + world->longest_kernel;
        for (unsigned i = 0; i < count; i++) {
            const struct peer *peer = &world->peers[i];
            double round = (double)hold * (weights / peer->share.weight + 2 * count);
            assert_true(peer->grants > 0);
            if ((double)peer->longest_wait > round && peer->share.limit_ppm == DV_PPM)
                fail_msg("tenant %u waited %.0f ms, a round is %.0f ms", i, (double)peer->longest_wait / 1e6,
                         round / 1e6);
        }
        world_destroy(world);
    }
}

/* ---- the same seed, the same run ---- */

static uint64_t fingerprint(uint64_t seed, const struct dv_policy_ops *ops)
{
    struct world *world = world_create(ops, 1 + (uint32_t)(seed % 3), seed);
    add_crowd(world, 12, 500000);
    world_run(world, 3 * DV_NS_PER_S);
    uint64_t result = world->fingerprint;
    assert_true(world->grants > 100);
    world_destroy(world);
    return result;
}

static const struct dv_policy_ops *const all_policies[] = {&dv_policy_elastic, &dv_policy_fair, &dv_policy_fifo,
                                                           &dv_policy_band};

static void test_deterministic(void **state)
{
    (void)state;
    for (unsigned p = 0; p < 4; p++)
        for (uint64_t seed = random_seed() + 7000; seed < random_seed() + 7005; seed++) {
            assert_int_equal(fingerprint(seed, all_policies[p]), fingerprint(seed, all_policies[p]));
            assert_int_not_equal(fingerprint(seed, all_policies[p]), fingerprint(seed + 100, all_policies[p]));
        }
}

/* ---- changes under way ---- */

static void change_something(struct world *world)
{
    struct random *random = &world->random;
    struct peer *peer = &world->peers[random_below(random, world->count)];
    struct actor *actor = &peer->actors[random_below(random, peer->sessions)];
    struct dv_share share = {.limit_ppm = (uint32_t)random_between(random, 100000, DV_PPM),
                             .weight = 1 + (uint32_t)random_below(random, DV_WEIGHT_MAX),
                             .class = (enum dv_class)random_below(random, 3)};

    world->next_meddling = world->now + random_below(random, 20 * MS);
    share.request_ppm = (uint32_t)random_below(random, share.limit_ppm / world->count + 1);
    switch (random_below(random, 4)) {
    case 0:
        dv_policy_switch(&world->policy, all_policies[random_below(random, 4)], world->now);
        break;
    case 1: /* a waiting one gives up, and comes again later */
        dv_policy_cancel(&world->policy, &actor->lease, world->now);
        dv_policy_cancel(&world->policy, &actor->lease, world->now);
        if (actor->phase == PHASE_WAITING) {
            actor->phase = PHASE_IDLE;
            actor->next_at = world->now + 1 + random_below(random, 5 * MS);
        }
        break;
    default:
        dv_policy_tenant_set(&world->policy, &peer->tenant, &share, world->now);
    }
}

/* Whatever is changed, nobody who waits is forgotten: the books are checked after every step, and
 * at the end everybody is served. */
static void test_live_changes(void **state)
{
    (void)state;
    for (unsigned run = 0; run < 100; run++) {
        uint64_t seed = random_seed() + 8000 + run;
        struct world *world = world_create(all_policies[run % 4], 1 + run % 3, seed);
        uint64_t grants[MAX_TENANTS];

        add_crowd(world, 2 + (unsigned)random_below(&world->random, 15), 0);
        world->meddle = change_something;
        world_run(world, 10 * DV_NS_PER_S);
        world->meddle = NULL;
        dv_policy_switch(&world->policy, all_policies[run % 2], world->now);
        for (unsigned i = 0; i < world->count; i++) {
            struct dv_share equal = {0, DV_PPM, 1, DV_CLASS_STANDARD};
            dv_policy_tenant_set(&world->policy, &world->peers[i].tenant, &equal, world->now);
            grants[i] = world->peers[i].grants;
        }
        world_run(world, 16 * DV_NS_PER_S);
        for (unsigned i = 0; i < world->count; i++)
            assert_true(world->peers[i].grants > grants[i]);
        world_destroy(world);
    }
}

static void test_enough_arrivals(void **state)
{
    (void)state;
    print_message("%llu arrivals\n", (unsigned long long)world_total_waits);
    assert_true(world_total_waits >= LEAST_WAITS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backlogged_by_weight),   cmocka_unit_test(test_backlogged_with_requests),
        cmocka_unit_test(test_backlogged_with_limits), cmocka_unit_test(test_backlogged_short_kernels),
        cmocka_unit_test(test_request_kept),           cmocka_unit_test(test_limit_kept),
        cmocka_unit_test(test_no_starvation),          cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_live_changes),           cmocka_unit_test(test_enough_arrivals),
    };
    print_message("seed %llu\n", (unsigned long long)random_seed());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
