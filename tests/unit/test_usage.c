/* Shares over sliding windows, and percentiles of durations. */
#include "src/arbiter/ledger/histogram.h"
#include "src/arbiter/ledger/usage.h"

#include <string.h>

#include "tests/unit/unit.h"

#define MS DV_NS_PER_MS
#define S DV_NS_PER_S

static void assert_near(uint32_t ppm, uint32_t wanted, uint32_t tolerance)
{
    assert_in_range(ppm, wanted > tolerance ? wanted - tolerance : 0, wanted + tolerance);
}

static void half_of_the_time_is_half_in_each_window(void **state)
{
    struct dvd_usage usage = {0};
    dv_ns now = 1000 * S;

    for (int i = 0; i < 70 * 50; i++, now += 20 * MS)
        dvd_usage_add(&usage, now, now + 10 * MS);
    assert_near(dvd_usage_ppm(&usage, 1, now), 500000, 15000);
    assert_near(dvd_usage_ppm(&usage, 10, now), 500000, 5000);
    assert_near(dvd_usage_ppm(&usage, 60, now), 500000, 5000);
}

static void what_is_over_is_forgotten(void **state)
{
    struct dvd_usage usage = {0};
    dv_ns now = 1000 * S;

    dvd_usage_add(&usage, now - S, now);
    assert_near(dvd_usage_ppm(&usage, 1, now), 1000000, 1000);
    assert_near(dvd_usage_ppm(&usage, 1, now + S / 2), 500000, 10000);
    assert_int_equal(dvd_usage_ppm(&usage, 1, now + 2 * S), 0);
    assert_near(dvd_usage_ppm(&usage, 10, now + 5 * S), 100000, 2000);
    assert_int_equal(dvd_usage_ppm(&usage, 60, now + 62 * S), 0);
    dvd_usage_add(&usage, now + 500 * S, now + 500 * S + 10 * MS); /* the rings went round */
    assert_near(dvd_usage_ppm(&usage, 1, now + 500 * S + 10 * MS), 10000, 1000);
}

static void a_long_hold_is_spread_over_its_time(void **state)
{
    struct dvd_usage usage = {0};
    dv_ns now = 1000 * S;

    dvd_usage_add(&usage, now - 30 * S, now);
    assert_near(dvd_usage_ppm(&usage, 1, now), 1000000, 1000);
    assert_near(dvd_usage_ppm(&usage, 10, now), 1000000, 1000);
    assert_near(dvd_usage_ppm(&usage, 60, now), 500000, 1000);
}

static void percentiles_are_rounded_up_a_little(void **state)
{
    struct dvd_histogram durations = {0};

    assert_int_equal(dvd_histogram_percentile(&durations, 99), 0);
    for (dv_ns i = 1; i <= 1000; i++)
        dvd_histogram_add(&durations, i * 1000);
    assert_in_range(dvd_histogram_percentile(&durations, 50), 500000, 600000);
    assert_in_range(dvd_histogram_percentile(&durations, 99), 990000, 1200000);
    for (dv_ns took = 0; took < 100; took++) {
        struct dvd_histogram one = {0};
        dvd_histogram_add(&one, took);
        assert_in_range(dvd_histogram_percentile(&one, 100), took, took + took / 4 + 1);
    }
    dvd_histogram_add(&durations, UINT64_MAX); /* stays inside the table */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_of_the_time_is_half_in_each_window),
        cmocka_unit_test(what_is_over_is_forgotten),
        cmocka_unit_test(a_long_hold_is_spread_over_its_time),
        cmocka_unit_test(percentiles_are_rounded_up_a_little),
    };
    return cmocka_run_group_tests_name("usage", tests, NULL, NULL);
}
