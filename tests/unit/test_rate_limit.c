/* Connections and questions of users on the control socket. */
#include "src/arbiter/control/rate_limit.h"

#include "src/arbiter/limits.h"
#include "tests/unit/unit.h"

#define SECOND UINT64_C(1000000)

static void a_tenant_has_a_few_connections(void **state)
{
    struct dvd_callers callers = {0};
    struct dvd_caller *mine[DV_MAX_CONTROL_PER_TENANT];

    for (int i = 0; i < DV_MAX_CONTROL_PER_TENANT; i++) {
        assert_true(dvd_callers_have_place(&callers, 7, false));
        mine[i] = dvd_callers_enter(&callers, 7, false);
        assert_non_null(mine[i]);
    }
    assert_false(dvd_callers_have_place(&callers, 7, false));
    assert_true(dvd_callers_have_place(&callers, 8, false));
    assert_true(dvd_callers_have_place(&callers, 7, true)); /* the same user as an operator */
    dvd_callers_leave(&callers, mine[0], 0);
    assert_true(dvd_callers_have_place(&callers, 7, false));
    for (int i = 1; i < DV_MAX_CONTROL_PER_TENANT; i++)
        dvd_callers_leave(&callers, mine[i], 0);
    assert_int_equal(callers.connections, 0);
    assert_null(callers.by_uid);
}

static void tenants_leave_some_to_operators(void **state)
{
    struct dvd_callers callers = {0};
    unsigned entered = 0;

    for (uid_t uid = 1; uid < 1000; uid++)
        if (dvd_callers_have_place(&callers, uid, false)) {
            dvd_callers_enter(&callers, uid, false);
            entered++;
        }
    assert_int_equal(entered, DV_MAX_CONTROL_OF_TENANTS);
    for (; dvd_callers_have_place(&callers, 0, true); entered++)
        dvd_callers_enter(&callers, 0, true);
    assert_int_equal(entered, DV_MAX_CONTROL_CONNECTIONS);
    dvd_callers_fini(&callers);
    assert_null(callers.by_uid);
}

static unsigned ask_often(struct dvd_caller *caller, unsigned times, uint64_t now)
{
    unsigned answered = 0;

    while (times-- > 0)
        answered += dvd_caller_may_ask(caller, now);
    return answered;
}

static void questions_have_a_rate(void **state)
{
    struct dvd_callers callers = {0};
    struct dvd_caller *caller = dvd_callers_enter(&callers, 7, false);
    uint64_t now = 1000 * SECOND;

    assert_int_equal(ask_often(caller, 1000, now), DV_MAX_CONTROL_QUESTIONS_BURST);
    assert_int_equal(ask_often(caller, 1000, now + SECOND), DV_MAX_CONTROL_QUESTIONS_PER_S);
    /* coming back does not renew it, and another has its own */
    dvd_callers_leave(&callers, caller, now + SECOND);
    caller = dvd_callers_enter(&callers, 7, false);
    assert_int_equal(ask_often(caller, 1000, now + SECOND), 0);
    struct dvd_caller *other = dvd_callers_enter(&callers, 8, false);
    assert_int_equal(ask_often(other, 10, now + SECOND), 10);
    struct dvd_caller *root = dvd_callers_enter(&callers, 0, true);
    assert_int_equal(ask_often(root, 10000, now + SECOND), 10000);
    assert_int_equal(ask_often(caller, 1000, now + 3600 * SECOND), DV_MAX_CONTROL_QUESTIONS_BURST);
    dvd_callers_leave(&callers, caller, now + 3600 * SECOND);
    dvd_callers_leave(&callers, other, now + 3600 * SECOND);
    dvd_callers_leave(&callers, root, now + 7200 * SECOND);
    assert_null(callers.by_uid); /* nobody is remembered for ever */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tenant_has_a_few_connections),
        cmocka_unit_test(tenants_leave_some_to_operators),
        cmocka_unit_test(questions_have_a_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
