/* What the control socket answers step by step: divvyd itself in the test's process (tests/fuzz/stage.h). */
#include <stdio.h>
#include <string.h>

#include "src/arbiter/control/metrics.h"
#include "src/arbiter/ledger/private.h"
#include "tests/fuzz/stage.h"
#include "tests/unit/unit.h"

static int start(void **state)
{
    (void)state;
    stage_start();
    return 0;
}

static int end(void **state)
{
    (void)state;
    dvd_arbiter_fini(&stage);
    return 0;
}

/* ---- metrics ---- */

#define MANY 100

static struct dvd_tenant *tenants[MANY];

static void leave_device(struct dvd_tenant *tenant)
{
    tenant->devices[0]->policy.used_ns = 1; /* so it is remembered */
    dvd_tenant_go(tenant->devices[0], false);
}

/* The tenant that is looked at next is forgotten. */
static void lose_the_next(struct dvd_metrics_place *place)
{
    for (int i = 0; i < MANY; i++)
        if (tenants[i] == place->tenant) {
            leave_device(tenants[i]);
            dvd_metrics_tenant_goes(place, tenants[i]);
            dvd_tenant_forget(tenants[i]);
            tenants[i] = NULL;
            return;
        }
    fail();
}

/* Programs of one name are added up, as far as they are there, a few in each step. */
static void a_sample_of_many_tenants_is_made_in_steps(void **state)
{
    struct dvd_metrics_place place = {0};
    char line[1024], text[DV_MAX_MESSAGE_TEXT];
    unsigned steps = 0, right = 0;

    (void)state;
    assert_true(dvd_device_start(&stage.ledger.devices[0]));
    for (int i = 0; i < MANY; i++) {
        struct dvd_identity identity = {.terms.share = {.limit_ppm = DV_PPM, .weight = 1, .class = DV_CLASS_STANDARD}};
        snprintf(identity.name, sizeof identity.name, "pid:%d:many", i + 1);
        tenants[i] = dvd_tenant_find_or_add(&stage.ledger, &identity);
        assert_non_null(tenants[i]);
        assert_non_null(dvd_tenant_come(tenants[i], &stage.ledger.devices[0], false, text, sizeof text));
    }
    leave_device(tenants[0]);
    while (dvd_metrics_next(&stage.control, &place, line, sizeof line)) {
        if (place.tenant && steps++ == 0)
            lose_the_next(&place);
        right += strcmp(line, "divvy_tenant_sessions{device=\"0\",tenant=\"program:many\"} 98\n") == 0;
        right += strcmp(line, "divvy_tenant_limit_ratio{device=\"0\",tenant=\"program:many\"} 98.000000\n") == 0;
    }
    assert_int_equal(right, 2);
    assert_true(steps > 5);
    for (int i = 0; i < MANY; i++) {
        if (!tenants[i])
            continue;
        if (tenants[i]->devices[0]->sessions)
            leave_device(tenants[i]);
        dvd_tenant_forget(tenants[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_of_many_tenants_is_made_in_steps),
    };

    return cmocka_run_group_tests(tests, start, end);
}
