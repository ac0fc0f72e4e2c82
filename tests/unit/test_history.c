/* What a session's history keeps, and for how long. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "src/worker/core/history.h"

struct message {
    struct dv_record head;
    uint64_t value;
};

static const struct dv_record *message(uint16_t op, uint64_t value)
{
    static struct message m;

    m = (struct message){.head = {.bytes = sizeof m, .op = op}, .value = value};
    return &m.head;
}

static struct dvk_kept *keep(struct dvk_origin *origin, uint16_t op, uint64_t value)
{
    return dvk_origin_keep(origin, message(op, value), 0, NULL, 0);
}

/* The values of all messages, in order, as decimal digits. */
static uint64_t values(const struct dvk_history *history)
{
    const struct dvk_kept *kept;
    uint64_t sum = 0, count = 0;

    TAILQ_FOREACH (kept, &history->kept, in_history) {
        sum = sum * 10 + ((const struct message *)kept->message)->value;
        count++;
    }
    assert_int_equal(count, history->count);
    return sum;
}

static void test_messages_are_in_the_order_in_which_they_came(void **state)
{
    struct dvk_history history;
    (void)state;

    dvk_history_init(&history);
    struct dvk_origin *a = dvk_origin_new(&history), *b = dvk_origin_new(&history);
    keep(a, 1, 1);
    keep(b, 1, 2);
    keep(a, 2, 3);
    assert_int_equal(values(&history), 123);
    dvk_origin_unref(b);
    assert_int_equal(values(&history), 13);
    dvk_origin_unref(a);
    assert_int_equal(values(&history), 0);
    assert_false(history.is_incomplete);
}

static void test_a_newer_message_replaces_those_of_its_kind(void **state)
{
    struct dvk_history history;
    (void)state;

    dvk_history_init(&history);
    struct dvk_origin *a = dvk_origin_new(&history);
    keep(a, 1, 1);
    keep(a, 2, 2);
    keep(a, 2, 3);
    keep(a, 3, 4);
    dvk_origin_forget(a, 2);
    assert_int_equal(values(&history), 14);
    keep(a, 2, 5);
    assert_int_equal(values(&history), 145);
    dvk_origin_forget(a, 1); /* the first, too */
    assert_int_equal(values(&history), 45);
    dvk_origin_forget(a, 2); /* and the last */
    keep(a, 2, 6);
    assert_int_equal(values(&history), 46);
    dvk_origin_unref(a);
    assert_int_equal(values(&history), 0);
}

static void test_what_is_needed_stays_after_its_release(void **state)
{
    struct dvk_history history;
    (void)state;

    dvk_history_init(&history);
    struct dvk_origin *input = dvk_origin_new(&history), *linked = dvk_origin_new(&history);
    keep(input, 1, 1);
    struct dvk_kept *link = keep(linked, 2, 2);
    dvk_kept_needs(link, input);
    keep(input, 3, 3); /* its release */
    dvk_origin_unref(input);
    struct dvk_origin *same_id = dvk_origin_new(&history);
    keep(same_id, 1, 4);
    assert_int_equal(values(&history), 1234);
    dvk_origin_unref(linked);
    assert_int_equal(values(&history), 4);
    dvk_origin_unref(same_id);
}

static void test_a_replaced_message_needs_nothing_more(void **state)
{
    struct dvk_history history;
    (void)state;

    dvk_history_init(&history);
    struct dvk_origin *header = dvk_origin_new(&history), *program = dvk_origin_new(&history);
    keep(header, 1, 1);
    dvk_kept_needs(keep(program, 2, 2), header);
    dvk_origin_unref(header);
    assert_int_equal(values(&history), 12);
    dvk_origin_forget(program, 2);
    assert_int_equal(values(&history), 0);
    dvk_origin_unref(program);
}

static void test_data_is_kept_with_its_message(void **state)
{
    struct dvk_history history;
    char *text = strdup("kernel void k() {}");
    (void)state;

    dvk_history_init(&history);
    struct dvk_origin *program = dvk_origin_new(&history);
    const struct dvk_kept *kept = dvk_origin_keep(program, message(1, 7), 5, text, strlen(text));
    assert_non_null(kept);
    assert_int_equal(kept->arrival, 5);
    assert_int_equal(kept->data_bytes, 18);
    assert_string_equal((const char *)kept->data, "kernel void k() {}");
    dvk_origin_unref(program); /* frees it, as sanitizers see */
}

static void test_without_memory_the_history_says_so(void **state)
{
    struct dvk_history history;
    (void)state;

    dvk_history_init(&history);
    /* an origin that could not be made */
    assert_null(dvk_origin_keep(NULL, message(1, 1), 0, malloc(1), 1));
    dvk_kept_needs(NULL, NULL);
    dvk_origin_forget(NULL, 1);
    dvk_origin_unref(NULL);
    assert_int_equal(values(&history), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_are_in_the_order_in_which_they_came),
        cmocka_unit_test(test_a_newer_message_replaces_those_of_its_kind),
        cmocka_unit_test(test_what_is_needed_stays_after_its_release),
        cmocka_unit_test(test_a_replaced_message_needs_nothing_more),
        cmocka_unit_test(test_data_is_kept_with_its_message),
        cmocka_unit_test(test_without_memory_the_history_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
