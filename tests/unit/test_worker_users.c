/* Numbers of worker users: none is given out twice, all are given out, and those given back come last. */
#include "src/arbiter/workers/worker_users.h"

#include "src/arbiter/limits.h"
#include "tests/unit/unit.h"

enum { FIRST = 1000, COUNT = 200 };

static void each_number_once(void **state)
{
    struct dvd_worker_users users = {0};
    bool seen[COUNT] = {false};
    uid_t uid;

    (void)state;
    assert_int_equal(dvd_worker_users_init(&users, FIRST, FIRST + COUNT - 1), 0);
    assert_true(dvd_worker_users_take_this(&users, FIRST + 70));
    assert_false(dvd_worker_users_take_this(&users, FIRST + 70));
    assert_false(dvd_worker_users_take_this(&users, FIRST - 1));
    assert_false(dvd_worker_users_take_this(&users, FIRST + COUNT));
    for (int i = 1; i < COUNT; i++) {
        assert_true(dvd_worker_users_take(&users, &uid));
        assert_in_range(uid, FIRST, FIRST + COUNT - 1);
        assert_false(seen[uid - FIRST]);
        seen[uid - FIRST] = true;
    }
    assert_false(seen[70]);
    assert_false(dvd_worker_users_take(&users, &uid));
    dvd_worker_users_fini(&users);
}

static void what_is_given_back_is_free(void **state)
{
    struct dvd_worker_users users = {0};
    uid_t first, uid;

    (void)state;
    assert_int_equal(dvd_worker_users_init(&users, FIRST, FIRST + COUNT - 1), 0);
    assert_true(dvd_worker_users_take(&users, &first));
    dvd_worker_users_give_back(&users, first);
    dvd_worker_users_give_back(&users, first);     /* again: nothing happens */
    dvd_worker_users_give_back(&users, FIRST - 1); /* nor for one that is not ours */
    assert_int_equal(users.used, 0);
    for (int i = 0; i < COUNT; i++) {
        assert_true(dvd_worker_users_take(&users, &uid));
        assert_true(i == COUNT - 1 || uid != first); /* it rests as long as there are others */
    }
    assert_int_equal(uid, first);
    dvd_worker_users_fini(&users);
}

static void a_vast_range_is_cut(void **state)
{
    struct dvd_worker_users users = {0};
    uid_t uid;

    (void)state;
    assert_false(dvd_worker_users_take(&users, &uid)); /* of none there is none */
    assert_int_equal(dvd_worker_users_init(&users, 1, UINT32_MAX - 1), 0);
    assert_int_equal(users.count, DV_MAX_WORKER_USERS);
    for (unsigned i = 0; i < DV_MAX_WORKER_USERS; i++)
        assert_true(dvd_worker_users_take(&users, &uid));
    assert_false(dvd_worker_users_take(&users, &uid));
    dvd_worker_users_fini(&users);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_once),
        cmocka_unit_test(what_is_given_back_is_free),
        cmocka_unit_test(a_vast_range_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
