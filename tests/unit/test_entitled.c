/* Entitlements as they are prepared for listings, against dv_policy_entitlements. */
#include "src/arbiter/ledger/entitlements.h"

#include "tests/unit/unit.h"

enum { MOST = 200 };

static struct dv_share random_share(struct random *r, uint32_t count)
{
    struct dv_share share = {.limit_ppm = DV_PPM,
                             .weight = (uint32_t)(1 + random_below(r, random_chance(r, 50) ? 3 : DV_WEIGHT_MAX)),
                             .class = (enum dv_class)random_below(r, DV_CLASS_COUNT)};

    if (random_chance(r, 40))
        share.limit_ppm = (uint32_t)(DV_PPM / 100 + random_below(r, DV_PPM - DV_PPM / 100 + 1));
    if (random_chance(r, 40)) /* all requests together fit, as divvyd sees to it */
        share.request_ppm = (uint32_t)random_below(r, DV_PPM / count + 1);
    if (share.request_ppm > share.limit_ppm)
        share.request_ppm = share.limit_ppm;
    return share;
}

static void assert_alike(uint32_t ppm, uint32_t wanted)
{
    assert_in_range(ppm, wanted ? wanted - 1 : 0, wanted + 1);
}

static void prepared_entitlements_are_those_of_the_policy(void **state)
{
    struct random r = {random_seed()};
    struct dvd_entitlements entitled = {0};
    struct dv_share shares[MOST];
    uint32_t ppm[MOST];

    (void)state;
    printf("seed %llu\n", (unsigned long long)r.state);
    for (int round = 0; round < 2000; round++) {
        uint32_t count = (uint32_t)(1 + random_below(&r, random_chance(&r, 50) ? 5 : MOST));
        for (uint32_t i = 0; i < count; i++)
            shares[i] = random_share(&r, count);
        dv_policy_entitlements(shares, count, ppm);
        assert_int_equal(dvd_entitlements_make(&entitled, shares, count), 0);
        for (uint32_t i = 0; i < count; i++)
            assert_alike(dvd_entitlements_ppm(&entitled, &shares[i], true), ppm[i]);
        /* and the last as one who has no work now */
        assert_int_equal(dvd_entitlements_make(&entitled, shares, count - 1), 0);
        assert_alike(dvd_entitlements_ppm(&entitled, &shares[count - 1], false), ppm[count - 1]);
    }
    dvd_entitlements_fini(&entitled);
}

static void a_device_is_looked_at_anew_when_it_was_long_ago(void **state)
{
    struct dv_share share = {.limit_ppm = DV_PPM, .weight = 1, .class = DV_CLASS_STANDARD};
    struct dv_policy_tenant tenants[2];
    struct dvd_entitlements entitled = {0};
    struct dv_policy policy;
    dv_ns now = dv_now();

    (void)state;
    dv_policy_init(&policy, &dv_policy_elastic, 1, now);
    for (int i = 0; i < 2; i++)
        dv_policy_tenant_add(&policy, &tenants[i], &share, now);
    tenants[0].in_demand = true;
    assert_int_equal(dvd_entitlements_renew(&entitled, &policy, now), 0);
    assert_alike(dvd_entitlements_ppm(&entitled, &share, true), DV_PPM);
    assert_alike(dvd_entitlements_ppm(&entitled, &share, false), DV_PPM / 2);
    tenants[1].in_demand = true;
    entitled.took_ns = 1000;
    assert_int_equal(dvd_entitlements_renew(&entitled, &policy, now + 1), 0);
    assert_alike(dvd_entitlements_ppm(&entitled, &share, true), DV_PPM);
    assert_int_equal(dvd_entitlements_renew(&entitled, &policy, now + DV_NS_PER_MS), 0);
    assert_alike(dvd_entitlements_ppm(&entitled, &share, true), DV_PPM / 2);
    tenants[1].in_demand = false;
    entitled.took_ns = DV_NS_PER_S; /* however long it takes */
    assert_int_equal(dvd_entitlements_renew(&entitled, &policy, now + DV_NS_PER_S), 0);
    assert_alike(dvd_entitlements_ppm(&entitled, &share, true), DV_PPM);
    dvd_entitlements_fini(&entitled);
}

static void tenants_count_while_they_have_work_and_for_a_second_after_it(void **state)
{
    struct dv_policy_tenant tenant = {.used_ns = 1, .demand_ended_at = 5 * DV_NS_PER_S};

    (void)state;
    assert_true(dvd_entitlements_counts(&tenant, 5 * DV_NS_PER_S + DV_NS_PER_S / 2));
    assert_false(dvd_entitlements_counts(&tenant, 7 * DV_NS_PER_S));
    tenant.in_demand = true;
    assert_true(dvd_entitlements_counts(&tenant, 7 * DV_NS_PER_S));
    tenant = (struct dv_policy_tenant){0}; /* it has never had any */
    assert_false(dvd_entitlements_counts(&tenant, DV_NS_PER_S / 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prepared_entitlements_are_those_of_the_policy),
        cmocka_unit_test(a_device_is_looked_at_anew_when_it_was_long_ago),
        cmocka_unit_test(tenants_count_while_they_have_work_and_for_a_second_after_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
