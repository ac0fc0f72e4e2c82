/* The command graph's rules, one by one, through the fake backend. */
#include "unit.h"

#include <time.h>

#include "graph_fake.h"
#include "src/base/futex.h"

enum { IN_ORDER, IN_ORDER_2, OUT_OF_ORDER, OUT_OF_ORDER_2, QUEUES };

struct table {
    struct fake fake;
    struct dvk_graph_queue queues[QUEUES];
    uint64_t numbers[QUEUES];
};

/* What a command is to be. */
struct want {
    enum dvk_runs_on runs_on;
    uint32_t event;
    bool everything, barrier, by_helper, lane;
    int32_t plan;    /* what the vendor ends it with */
    int32_t refusal; /* what the vendor answers to its submission */
    uint32_t wait_count;
    const uint32_t *waits;
};

#define WAIT(...)                                                                                                      \
    .waits = (const uint32_t[]){__VA_ARGS__}, .wait_count = sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)
#define ADD(table, queue, ...) add(table, queue, (struct want){__VA_ARGS__})

static int set_up_sized(void **state, uint32_t capacity)
{
    struct table *t = calloc(1, sizeof *t);
    fake_init(&t->fake, capacity);
    for (uint32_t i = 0; i < QUEUES; i++)
        assert_int_equal(dvk_graph_queue_init(&t->fake.graph, &t->queues[i], i + 1, i == IN_ORDER || i == IN_ORDER_2),
                         0);
    *state = t;
    return 0;
}

static int set_up(void **state)
{
    return set_up_sized(state, 1024);
}

static int tear_down(void **state)
{
    struct table *t = *state;
    fake_fini(&t->fake);
    free(t);
    return 0;
}

static uint32_t add(struct table *t, int queue, struct want want)
{
    struct fake_command *c = fake_command(&t->fake, &t->queues[queue], want.runs_on);
    struct fake_trace *trace = &t->fake.traces[c->id];
    uint32_t id = c->id;

    trace->plan = want.plan;
    trace->refusal = want.refusal;
    c->node.event = want.event;
    c->node.everything = want.everything;
    c->node.barrier = want.barrier;
    c->node.by_helper = want.by_helper;
    if (want.lane) {
        c->node.detached = true;
        c->node.stream = &t->queues[queue].lane;
    } else {
        c->node.number = ++t->numbers[queue];
    }
    if (want.event)
        atomic_store(&fake_event_slot(&t->fake, want.event)->status, 3);
    dvk_graph_add(&t->fake.graph, &c->node, want.waits, want.wait_count);
    return id;
}

static uint32_t add_user_event(struct table *t, uint32_t event)
{
    struct fake_command *c = fake_command(&t->fake, NULL, DV_RUNS_NOWHERE);
    c->node.event = event;
    atomic_store(&fake_event_slot(&t->fake, event)->status, 2);
    assert_int_equal(dvk_graph_add_user_event(&t->fake.graph, &c->node), 0);
    return c->id;
}

static void set_user_event(struct table *t, uint32_t event, int32_t status)
{
    struct dvk_node *node = dvk_graph_event_node(&t->fake.graph, event);
    assert_non_null(node);
    dvk_graph_finish(&t->fake.graph, node, status);
}

static void finish_host(struct table *t, uint32_t id, int32_t status)
{
    struct dvk_node *node = &t->fake.traces[id].command->node;
    assert_ptr_equal(dvk_graph_find(node->queue, node->number), node);
    assert_true(dvk_graph_is_ready(node));
    dvk_graph_finish(&t->fake.graph, node, status);
}

static bool submitted(struct table *t, uint32_t id)
{
    return t->fake.traces[id].submitted != 0;
}

static bool turned(struct table *t, uint32_t id)
{
    return t->fake.traces[id].turned != 0;
}

static bool visible(struct table *t, uint32_t id)
{
    return atomic_load(&t->fake.traces[id].visible) != 0;
}

static int32_t status_of(struct table *t, uint32_t event)
{
    return atomic_load(&fake_event_slot(&t->fake, event)->status);
}

static uint64_t completed(struct table *t, int queue)
{
    return atomic_load(&t->queues[queue].slot->completed);
}

static void complete(struct table *t, uint32_t id)
{
    fake_complete(&t->fake, id);
    dvk_graph_reap(&t->fake.graph);
}

/* ---- order within a queue ---- */

static void an_in_order_queue_hands_everything_over_at_once(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER), b = ADD(t, IN_ORDER), c = ADD(t, IN_ORDER);
    assert_int_equal(t->fake.submissions, 3);
    assert_int_equal(t->fake.order[0], a);
    assert_int_equal(t->fake.order[1], b);
    assert_int_equal(t->fake.order[2], c);
    assert_int_equal(t->fake.traces[b].wait_count, 0); /* the stream keeps the order */
    fake_drain(&t->fake);
    assert_int_equal(completed(t, IN_ORDER), 3);
}

static void an_out_of_order_queue_waits_for_wait_lists_only(void **state)
{
    struct table *t = *state;
    add_user_event(t, 1);
    uint32_t a = ADD(t, OUT_OF_ORDER, WAIT(1));
    uint32_t b = ADD(t, OUT_OF_ORDER);
    assert_false(submitted(t, a));
    assert_true(submitted(t, b));
    complete(t, b);
    assert_int_equal(completed(t, OUT_OF_ORDER), 0); /* the first one is not complete */
    set_user_event(t, 1, 0);
    assert_true(submitted(t, a));
    complete(t, a);
    assert_int_equal(completed(t, OUT_OF_ORDER), 2);
}

static void an_in_order_queue_stays_behind_a_blocked_command(void **state)
{
    struct table *t = *state;
    add_user_event(t, 1);
    uint32_t a = ADD(t, IN_ORDER, WAIT(1));
    uint32_t b = ADD(t, IN_ORDER), c = ADD(t, IN_ORDER);
    uint32_t other = ADD(t, IN_ORDER_2);
    assert_false(submitted(t, a) || submitted(t, b) || submitted(t, c));
    assert_true(submitted(t, other));
    set_user_event(t, 1, 0);
    assert_int_equal(t->fake.order[1], a);
    assert_int_equal(t->fake.order[2], b);
    assert_int_equal(t->fake.order[3], c);
    fake_drain(&t->fake);
    assert_int_equal(completed(t, IN_ORDER), 3);
}

static void the_oldest_blocked_command_is_known(void **state)
{
    struct table *t = *state;
    add_user_event(t, 1);
    add_user_event(t, 2);
    assert_true(dvk_graph_oldest_blocked(&t->fake.graph) == UINT64_MAX);
    ADD(t, IN_ORDER);
    ADD(t, OUT_OF_ORDER, WAIT(1)); /* the second to arrive */
    ADD(t, OUT_OF_ORDER_2, WAIT(2));
    assert_int_equal(dvk_graph_oldest_blocked(&t->fake.graph), 2);
    set_user_event(t, 1, 0);
    assert_int_equal(dvk_graph_oldest_blocked(&t->fake.graph), 3);
    set_user_event(t, 2, 0);
    fake_drain(&t->fake);
}

/* ---- markers and barriers ---- */

static void a_marker_waits_for_everything_before_it(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, OUT_OF_ORDER), b = ADD(t, OUT_OF_ORDER);
    uint32_t marker = ADD(t, OUT_OF_ORDER, .runs_on = DV_RUNS_NOWHERE, .everything = true, .event = 5);
    uint32_t later = ADD(t, OUT_OF_ORDER);
    assert_true(submitted(t, later)); /* a marker holds nothing back */
    complete(t, a);
    assert_int_equal(status_of(t, 5), 3);
    complete(t, b);
    assert_int_equal(status_of(t, 5), 0);
    assert_true(visible(t, marker));
    assert_int_equal(completed(t, OUT_OF_ORDER), 3);
    complete(t, later);
    assert_int_equal(completed(t, OUT_OF_ORDER), 4);
}

static void a_marker_with_a_list_waits_for_the_list_only(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, OUT_OF_ORDER, .event = 1), b = ADD(t, OUT_OF_ORDER);
    ADD(t, OUT_OF_ORDER, .runs_on = DV_RUNS_NOWHERE, .event = 5, WAIT(1));
    complete(t, a);
    assert_int_equal(status_of(t, 5), 0);
    assert_int_equal(completed(t, OUT_OF_ORDER), 1);
    complete(t, b);
    assert_int_equal(completed(t, OUT_OF_ORDER), 3);
}

static void a_barrier_holds_later_commands_back(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, OUT_OF_ORDER);
    ADD(t, OUT_OF_ORDER, .runs_on = DV_RUNS_NOWHERE, .everything = true, .barrier = true);
    uint32_t b = ADD(t, OUT_OF_ORDER), c = ADD(t, OUT_OF_ORDER);
    uint32_t other = ADD(t, OUT_OF_ORDER_2);
    assert_false(submitted(t, b) || submitted(t, c));
    assert_true(submitted(t, other));
    complete(t, a);
    assert_true(submitted(t, b) && submitted(t, c));
    fake_drain(&t->fake);
    uint32_t d = ADD(t, OUT_OF_ORDER); /* the barrier is over */
    assert_true(submitted(t, d));
    fake_drain(&t->fake);
}

static void a_barrier_with_a_list_waits_for_the_list_only(void **state)
{
    struct table *t = *state;
    add_user_event(t, 1);
    uint32_t a = ADD(t, OUT_OF_ORDER);
    ADD(t, OUT_OF_ORDER, .runs_on = DV_RUNS_NOWHERE, .barrier = true, WAIT(1));
    uint32_t b = ADD(t, OUT_OF_ORDER);
    assert_false(submitted(t, b));
    set_user_event(t, 1, 0);
    assert_true(submitted(t, b)); /* though a still runs */
    complete(t, a);
    complete(t, b);
}

static void barriers_follow_each_other(void **state)
{
    struct table *t = *state;
    add_user_event(t, 1);
    add_user_event(t, 2);
    ADD(t, OUT_OF_ORDER, .runs_on = DV_RUNS_NOWHERE, .barrier = true, WAIT(1));
    ADD(t, OUT_OF_ORDER, .runs_on = DV_RUNS_NOWHERE, .barrier = true, WAIT(2));
    uint32_t a = ADD(t, OUT_OF_ORDER);
    set_user_event(t, 2, 0);
    assert_false(submitted(t, a)); /* the second barrier is behind the first */
    set_user_event(t, 1, 0);
    assert_true(submitted(t, a));
    complete(t, a);
}

static void a_barrier_of_the_vendor_is_ordered_by_the_stream(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, OUT_OF_ORDER);
    uint32_t barrier = ADD(t, OUT_OF_ORDER, .everything = true, .barrier = true);
    uint32_t b = ADD(t, OUT_OF_ORDER);
    assert_true(submitted(t, a) && submitted(t, barrier) && submitted(t, b));
    assert_false(fake_may_execute(&t->fake, b));
    fake_drain(&t->fake);
    assert_int_equal(completed(t, OUT_OF_ORDER), 3);
}

/* ---- wait lists ---- */

static void a_wait_list_across_queues_goes_to_the_vendor(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER, .event = 1);
    uint32_t b = ADD(t, IN_ORDER_2, WAIT(1));
    assert_true(submitted(t, b));
    assert_int_equal(t->fake.traces[b].wait_count, 1);
    assert_int_equal(t->fake.traces[b].waits[0], a);
    assert_false(fake_may_execute(&t->fake, b));
    complete(t, a);
    complete(t, b);
}

static void a_blocked_dependency_is_followed_when_it_is_submitted(void **state)
{
    struct table *t = *state;
    add_user_event(t, 9);
    uint32_t a = ADD(t, IN_ORDER, .event = 1, WAIT(9));
    uint32_t b = ADD(t, IN_ORDER_2, WAIT(1));
    assert_false(submitted(t, b));
    set_user_event(t, 9, 0);
    assert_true(submitted(t, a) && submitted(t, b));
    assert_int_equal(t->fake.traces[b].wait_count, 1);
    assert_int_equal(t->fake.traces[b].waits[0], a);
    fake_drain(&t->fake);
}

static void the_vendor_never_waits_for_user_events_or_the_host(void **state)
{
    struct table *t = *state;
    add_user_event(t, 1);
    uint32_t host = ADD(t, OUT_OF_ORDER, .runs_on = DV_RUNS_ON_HOST, .event = 2);
    uint32_t a = ADD(t, IN_ORDER, WAIT(1, 2));
    assert_true(turned(t, host));
    assert_false(submitted(t, a));
    finish_host(t, host, 0);
    assert_false(submitted(t, a));
    set_user_event(t, 1, 0);
    assert_true(submitted(t, a));
    assert_int_equal(t->fake.traces[a].wait_count, 0);
    fake_drain(&t->fake);
}

static void a_complete_event_need_not_be_waited_for(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER, .event = 1);
    complete(t, a);
    uint32_t b = ADD(t, IN_ORDER_2, WAIT(1, 1, 1));
    assert_true(submitted(t, b));
    assert_int_equal(t->fake.traces[b].wait_count, 0);
    complete(t, b);
}

static void an_event_given_several_times_counts_once_it_is_complete(void **state)
{
    struct table *t = *state;
    add_user_event(t, 1);
    uint32_t a = ADD(t, OUT_OF_ORDER, WAIT(1, 1, 1));
    assert_false(submitted(t, a));
    set_user_event(t, 1, 0);
    assert_true(submitted(t, a));
    complete(t, a);
}

static void an_event_that_cannot_be_fails_the_command(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, OUT_OF_ORDER, .event = 1, WAIT(0));
    uint32_t b = ADD(t, OUT_OF_ORDER, .event = 2, WAIT(DV_SHM_EVENT_COUNT + 1));
    uint32_t c = ADD(t, OUT_OF_ORDER, .event = 3, WAIT(UINT32_MAX));
    assert_false(submitted(t, a) || submitted(t, b) || submitted(t, c));
    for (uint32_t event = 1; event <= 3; event++)
        assert_int_equal(status_of(t, event), DV_STATUS_DEPENDENCY_FAILED);
}

/* An event's slot may be used again as soon as its completion is visible, before it is reaped. */
static void a_slot_used_again_before_reaping_names_the_new_command(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER, .event = 1);
    fake_complete(&t->fake, a);
    assert_int_equal(status_of(t, 1), 0);
    add_user_event(t, 1);
    dvk_graph_reap(&t->fake.graph);
    uint32_t b = ADD(t, IN_ORDER_2, WAIT(1));
    assert_false(submitted(t, b)); /* it waits for the new user event */
    set_user_event(t, 1, 0);
    assert_true(submitted(t, b));
    complete(t, b);
}

static void a_user_event_outside_the_slots_is_refused(void **state)
{
    struct table *t = *state;
    struct dvk_node node = {.event = DV_SHM_EVENT_COUNT + 1};
    assert_int_equal(dvk_graph_add_user_event(&t->fake.graph, &node), -EINVAL);
    node.event = 0;
    assert_int_equal(dvk_graph_add_user_event(&t->fake.graph, &node), -EINVAL);
    struct dvk_graph_queue queue;
    assert_int_equal(dvk_graph_queue_init(&t->fake.graph, &queue, DV_SHM_QUEUE_COUNT, true), -EINVAL);
}

/* ---- failure ---- */

static void failure_spreads_through_wait_lists(void **state)
{
    struct table *t = *state;
    add_user_event(t, 1);
    uint32_t a = ADD(t, OUT_OF_ORDER, .event = 2, WAIT(1));
    uint32_t b = ADD(t, IN_ORDER, .event = 3, WAIT(2));
    uint32_t host = ADD(t, OUT_OF_ORDER, .runs_on = DV_RUNS_ON_HOST, .event = 4, WAIT(3));
    uint32_t marker = ADD(t, OUT_OF_ORDER, .runs_on = DV_RUNS_NOWHERE, .event = 5, WAIT(4));
    set_user_event(t, 1, -77);
    assert_int_equal(status_of(t, 1), -77);
    for (uint32_t event = 2; event <= 5; event++)
        assert_int_equal(status_of(t, event), DV_STATUS_DEPENDENCY_FAILED);
    assert_false(submitted(t, a) || submitted(t, b) || turned(t, host));
    assert_true(visible(t, marker));
    assert_int_equal(t->fake.traces[a].failures, 1);
    assert_int_equal(t->fake.traces[a].failure, DV_STATUS_DEPENDENCY_FAILED);
    assert_int_equal(completed(t, OUT_OF_ORDER), 3);
    assert_int_equal(completed(t, IN_ORDER), 1);
}

static void failure_does_not_spread_through_queue_order(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER, .event = 1, .plan = -5);
    uint32_t b = ADD(t, IN_ORDER, .event = 2);
    uint32_t host = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST, .event = 3);
    complete(t, a);
    assert_int_equal(status_of(t, 1), -5);
    assert_int_equal(t->fake.traces[a].failure, -5);
    complete(t, b);
    assert_int_equal(status_of(t, 2), 0);
    assert_true(turned(t, host));
    finish_host(t, host, -6);
    assert_int_equal(status_of(t, 3), -6);
    uint32_t c = ADD(t, IN_ORDER, .event = 4);
    complete(t, c);
    assert_int_equal(status_of(t, 4), 0);
    uint32_t d = ADD(t, OUT_OF_ORDER, .plan = -5);
    uint32_t marker = ADD(t, OUT_OF_ORDER, .runs_on = DV_RUNS_NOWHERE, .everything = true, .event = 5);
    complete(t, d);
    assert_true(visible(t, marker));
    assert_int_equal(status_of(t, 5), 0);
}

static void a_failed_event_fails_those_that_come_later(void **state)
{
    struct table *t = *state;
    add_user_event(t, 1);
    set_user_event(t, 1, -1);
    uint32_t a = ADD(t, IN_ORDER, .event = 2, WAIT(1));
    assert_false(submitted(t, a));
    assert_int_equal(status_of(t, 2), DV_STATUS_DEPENDENCY_FAILED);
}

/* The dependency was only submitted when the command became ready for it, and fails while the
 * command still waits for something else. */
static void a_dependency_that_fails_after_its_submission_still_counts(void **state)
{
    struct table *t = *state;
    add_user_event(t, 1);
    uint32_t a = ADD(t, IN_ORDER, .event = 2, .plan = -5);
    uint32_t b = ADD(t, IN_ORDER_2, .event = 3, WAIT(2, 1));
    complete(t, a);
    set_user_event(t, 1, 0);
    assert_false(submitted(t, b));
    assert_int_equal(status_of(t, 3), DV_STATUS_DEPENDENCY_FAILED);
}

static void the_vendor_spreads_failure_through_its_wait_list(void **state)
{
    struct table *t = *state;
    ADD(t, IN_ORDER, .event = 1, .plan = -5);
    ADD(t, IN_ORDER_2, .event = 2, WAIT(1));
    ADD(t, IN_ORDER, .event = 3, WAIT(1)); /* on the same stream */
    fake_drain(&t->fake);
    assert_int_equal(status_of(t, 1), -5);
    assert_int_equal(status_of(t, 2), DV_STATUS_DEPENDENCY_FAILED);
    assert_int_equal(status_of(t, 3), DV_STATUS_DEPENDENCY_FAILED);
}

static void a_refused_submission_ends_with_its_error(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER, .event = 1, .refusal = -4);
    assert_int_equal(status_of(t, 1), -4);
    assert_int_equal(t->fake.traces[a].failure, -4);
    uint32_t b = ADD(t, IN_ORDER, .event = 2);
    complete(t, b);
    assert_int_equal(status_of(t, 2), 0);
    assert_int_equal(completed(t, IN_ORDER), 2);
}

/* `completed` promises that every command up to a number is complete. */
static void a_doomed_command_ends_in_its_queue_s_order(void **state)
{
    struct table *t = *state;
    add_user_event(t, 1);
    set_user_event(t, 1, -1);
    uint32_t a = ADD(t, IN_ORDER);
    ADD(t, IN_ORDER, .event = 2, WAIT(1));
    assert_int_equal(completed(t, IN_ORDER), 0); /* a still runs */
    complete(t, a);
    fake_drain(&t->fake);
    assert_int_equal(completed(t, IN_ORDER), 2);
    assert_int_equal(status_of(t, 2), DV_STATUS_DEPENDENCY_FAILED);
}

static void a_refused_command_ends_in_its_queue_s_order(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER);
    ADD(t, IN_ORDER, .event = 2, .refusal = -4);
    uint32_t c = ADD(t, IN_ORDER, .event = 3);
    assert_int_equal(completed(t, IN_ORDER), 0);
    complete(t, a);
    fake_drain(&t->fake);
    assert_int_equal(status_of(t, 2), -4);
    assert_int_equal(status_of(t, 3), 0);
    assert_true(visible(t, c));
    assert_int_equal(completed(t, IN_ORDER), 3);
}

static void a_doomed_host_command_does_not_overtake_the_helper(void **state)
{
    struct table *t = *state;
    add_user_event(t, 1);
    set_user_event(t, 1, -1);
    uint32_t a = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST, .by_helper = true);
    ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST, .by_helper = true, .event = 2, WAIT(1));
    assert_true(turned(t, a));
    assert_int_equal(completed(t, IN_ORDER), 0); /* the helper has not done a yet */
    finish_host(t, a, 0);
    assert_int_equal(completed(t, IN_ORDER), 2);
    assert_int_equal(status_of(t, 2), DV_STATUS_DEPENDENCY_FAILED);
}

/* A vendor that cannot even mark the end of a stream tells nothing more of what is in it. */
static void a_refused_fence_fails_what_nobody_will_report(void **state)
{
    struct table *t = *state;
    uint32_t first = ADD(t, IN_ORDER, .event = 1);
    t->fake.more = true;
    uint32_t a = ADD(t, IN_ORDER), b = ADD(t, IN_ORDER);
    t->fake.fence_refusal = -5;
    dvk_graph_fence(&t->fake.graph);
    dvk_graph_reap(&t->fake.graph);
    assert_int_equal(completed(t, IN_ORDER), 0); /* the first will be reported, so it is awaited */
    complete(t, first);
    assert_int_equal(status_of(t, 1), 0);
    assert_int_equal(t->fake.traces[a].failure, -5);
    assert_int_equal(t->fake.traces[b].failure, -5);
    assert_int_equal(completed(t, IN_ORDER), 3);
}

static void a_fence_that_fails_says_nothing_of_later_commands(void **state)
{
    struct table *t = *state;
    t->fake.more = true;
    uint32_t a = ADD(t, IN_ORDER, .plan = -5);
    t->fake.fence_plan = -14; /* a vendor may spread failure along its queue */
    dvk_graph_fence(&t->fake.graph);
    uint32_t fence = t->fake.order[1];
    t->fake.fence_plan = 0;
    uint32_t later = ADD(t, IN_ORDER);
    complete(t, a);
    complete(t, fence);
    assert_int_equal(completed(t, IN_ORDER), 1); /* the last one still runs */
    assert_int_equal(t->fake.traces[later].failures, 0);
    fake_drain(&t->fake);
    assert_int_equal(completed(t, IN_ORDER), 2);
    assert_int_equal(t->fake.traces[later].failures, 0);
}

/* ---- host commands ---- */

static void a_host_command_has_its_turn_when_all_before_it_is_complete(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER);
    uint32_t host = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST, .event = 1);
    uint32_t b = ADD(t, IN_ORDER);
    assert_false(turned(t, host) || submitted(t, b));
    complete(t, a);
    assert_true(turned(t, host));
    assert_false(submitted(t, b));
    assert_int_equal(completed(t, IN_ORDER), 1);
    finish_host(t, host, 0);
    assert_int_equal(completed(t, IN_ORDER), 2);
    assert_int_equal(status_of(t, 1), 0);
    assert_true(submitted(t, b));
    complete(t, b);
}

static void a_host_command_behind_an_unreported_one_comes_with_the_fence(void **state)
{
    struct table *t = *state;
    t->fake.more = true;
    uint32_t a = ADD(t, IN_ORDER);
    assert_false(t->fake.traces[a].reports);
    uint32_t host = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST);
    dvk_graph_fence(&t->fake.graph);
    assert_int_equal(t->fake.fences, 1);
    fake_drain(&t->fake);
    assert_true(turned(t, host));
    finish_host(t, host, 0);
}

static void helper_commands_are_given_without_waiting_for_each_other(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER);
    uint32_t h1 = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST, .by_helper = true);
    uint32_t h2 = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST, .by_helper = true);
    uint32_t own = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST);
    assert_int_equal(t->fake.turns, 0);
    complete(t, a);
    assert_int_equal(t->fake.turns, 2);
    assert_true(t->fake.traces[h1].turned < t->fake.traces[h2].turned);
    assert_false(turned(t, own)); /* not the helper's: it waits for their end */
    finish_host(t, h1, 0);
    assert_false(turned(t, own));
    assert_int_equal(completed(t, IN_ORDER), 2);
    finish_host(t, h2, 0);
    assert_true(turned(t, own));
    finish_host(t, own, 0);
}

static void the_helper_has_its_turn_before_the_main_thread_knows(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER);
    uint32_t h1 = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST, .by_helper = true);
    uint32_t h2 = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST, .by_helper = true);
    fake_complete(&t->fake, a); /* reported, not reaped */
    assert_true(turned(t, h1));
    assert_false(turned(t, h2));
    finish_host(t, h1, 0);
    assert_int_equal(completed(t, IN_ORDER), 1); /* not before the main thread knows of both */
    dvk_graph_reap(&t->fake.graph);
    assert_int_equal(t->fake.turns, 2); /* the first not a second time */
    assert_int_equal(completed(t, IN_ORDER), 2);
    finish_host(t, h2, 0);
    assert_int_equal(completed(t, IN_ORDER), 3);
}

static void no_early_turn_while_something_else_is_waited_for(void **state)
{
    struct table *t = *state;
    uint32_t other = ADD(t, IN_ORDER_2, .event = 1);
    uint32_t a = ADD(t, IN_ORDER);
    uint32_t host = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST, .by_helper = true, WAIT(1));
    fake_complete(&t->fake, a);
    dvk_graph_reap(&t->fake.graph);
    assert_false(turned(t, host));
    complete(t, other);
    assert_true(turned(t, host));
    finish_host(t, host, 0);
}

static void those_that_waited_together_are_reported_together(void **state)
{
    struct table *t = *state;
    struct fake_command *user = fake_command(&t->fake, NULL, DV_RUNS_NOWHERE);
    uint32_t ids[10];

    user->node.event = 1;
    atomic_store(&t->fake.traces[user->id].visible, 0);
    assert_int_equal(dvk_graph_add_user_event(&t->fake.graph, &user->node), 0);
    ids[0] = ADD(t, IN_ORDER, WAIT(1));
    for (int i = 1; i < 10; i++)
        ids[i] = ADD(t, IN_ORDER);
    dvk_graph_finish(&t->fake.graph, &user->node, 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(t->fake.traces[ids[i]].reports, i == 9);
    fake_drain(&t->fake);
    assert_int_equal(completed(t, IN_ORDER), 10);
}

static void a_helper_command_waits_for_listed_helper_commands(void **state)
{
    struct table *t = *state;
    uint32_t h1 = ADD(t, OUT_OF_ORDER, .runs_on = DV_RUNS_ON_HOST, .by_helper = true, .event = 1);
    uint32_t h2 = ADD(t, OUT_OF_ORDER, .runs_on = DV_RUNS_ON_HOST, .by_helper = true, WAIT(1));
    assert_false(turned(t, h2)); /* it must know whether the first failed */
    finish_host(t, h1, 0);
    assert_true(turned(t, h2));
    finish_host(t, h2, 0);
}

static void commands_are_found_by_number(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST);
    ADD(t, IN_ORDER);
    assert_ptr_equal(dvk_graph_find(&t->queues[IN_ORDER], 1), t->fake.traces[a].command);
    assert_null(dvk_graph_find(&t->queues[IN_ORDER], 3));
    assert_null(dvk_graph_find(&t->queues[IN_ORDER_2], 1));
    finish_host(t, a, 0);
    assert_null(dvk_graph_find(&t->queues[IN_ORDER], 1));
    fake_drain(&t->fake);
}

/* ---- lanes ---- */

static void a_lane_runs_beside_its_queue(void **state)
{
    struct table *t = *state;
    uint32_t host = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST);
    uint32_t blocked = ADD(t, IN_ORDER);
    uint32_t lane = ADD(t, IN_ORDER, .lane = true, .event = 7);
    assert_true(submitted(t, lane));
    assert_true(t->fake.traces[lane].reports);
    assert_false(submitted(t, blocked));
    complete(t, lane);
    assert_int_equal(status_of(t, 7), 0);
    assert_int_equal(completed(t, IN_ORDER), 0); /* not part of the queue's order */
    uint64_t before = atomic_load(&t->fake.graph.shm->commands);
    finish_host(t, host, 0);
    assert_int_equal(atomic_load(&t->fake.graph.shm->commands), before + 1);
    assert_int_equal(completed(t, IN_ORDER), 1);
    complete(t, blocked);
}

static void a_failed_lane_command_fails_alone(void **state)
{
    struct table *t = *state;
    uint32_t lane = ADD(t, IN_ORDER, .lane = true, .event = 7, .refusal = -5);
    assert_int_equal(status_of(t, 7), -5);
    assert_false(submitted(t, lane));
    assert_int_equal(completed(t, IN_ORDER), 0);
    uint32_t a = ADD(t, IN_ORDER);
    complete(t, a);
    assert_int_equal(completed(t, IN_ORDER), 1);
}

/* ---- reports ---- */

static void only_the_last_of_a_batch_is_reported(void **state)
{
    struct table *t = *state;
    uint32_t ids[10];
    for (int i = 0; i < 10; i++) {
        t->fake.more = i < 9;
        ids[i] = ADD(t, IN_ORDER);
    }
    for (int i = 0; i < 10; i++)
        assert_int_equal(t->fake.traces[ids[i]].reports, i == 9);
    for (int i = 0; i < 10; i++)
        fake_execute(&t->fake, ids[i]);
    fake_report(&t->fake, ids[9]);
    assert_int_equal(completed(t, IN_ORDER), 10); /* before the main thread has reaped */
    assert_int_equal(atomic_load(&t->queues[IN_ORDER].slot->progress), 1);
    dvk_graph_reap(&t->fake.graph);
    assert_int_equal(atomic_load(&t->fake.graph.shm->commands), 10);
    dvk_graph_fence(&t->fake.graph);
    assert_int_equal(t->fake.fences, 0);
}

static void a_report_comes_at_the_latest_after_so_many(void **state)
{
    struct table *t = *state;
    uint32_t unreported = 0;
    t->fake.more = true;
    for (int i = 0; i < 5 * DV_MAX_UNREPORTED; i++) {
        uint32_t id = ADD(t, IN_ORDER);
        unreported = t->fake.traces[id].reports ? 0 : unreported + 1;
        assert_true(unreported <= DV_MAX_UNREPORTED);
    }
    fake_drain(&t->fake);
    assert_int_equal(completed(t, IN_ORDER), 5 * DV_MAX_UNREPORTED);
}

static void what_somebody_waits_for_is_reported(void **state)
{
    struct table *t = *state;
    t->fake.more = true;
    assert_true(t->fake.traces[ADD(t, IN_ORDER, .event = 1)].reports);
    assert_true(t->fake.traces[ADD(t, OUT_OF_ORDER)].reports);
    assert_true(t->fake.traces[ADD(t, IN_ORDER, .lane = true)].reports);
    add_user_event(t, 9);
    uint32_t blocked = ADD(t, IN_ORDER, WAIT(9));
    uint32_t host = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST);
    set_user_event(t, 9, 0);
    assert_true(t->fake.traces[blocked].reports); /* the host command waits for its end */
    fake_drain(&t->fake);
    finish_host(t, host, 0);
}

static void the_fence_reports_what_is_in_flight(void **state)
{
    struct table *t = *state;
    t->fake.more = true;
    for (int i = 0; i < 3; i++)
        ADD(t, IN_ORDER);
    ADD(t, IN_ORDER_2);
    dvk_graph_fence(&t->fake.graph);
    assert_int_equal(t->fake.fences, 2); /* one a stream */
    dvk_graph_fence(&t->fake.graph);
    assert_int_equal(t->fake.fences, 2); /* nothing new to fence */
    for (uint32_t i = 0; i < t->fake.submissions; i++)
        fake_complete(&t->fake, t->fake.order[i]);
    assert_int_equal(completed(t, IN_ORDER), 3); /* told by the fence, before reaping */
    assert_int_equal(completed(t, IN_ORDER_2), 1);
    dvk_graph_reap(&t->fake.graph);
    assert_int_equal(atomic_load(&t->fake.graph.shm->commands), 4); /* fences do not count */
}

static void no_fence_to_be_had_leaves_everything_in_flight(void **state)
{
    struct table *t = *state;
    t->fake.more = true;
    uint32_t a = ADD(t, IN_ORDER);
    t->fake.no_fence = true;
    dvk_graph_fence(&t->fake.graph);
    assert_false(visible(t, a));
    t->fake.no_fence = false;
    fake_drain(&t->fake);
    assert_true(visible(t, a));
}

static void reports_may_come_in_any_order(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER, .event = 1);
    t->fake.more = true;
    uint32_t b = ADD(t, IN_ORDER);
    uint32_t c = ADD(t, IN_ORDER, .event = 2);
    fake_execute(&t->fake, a);
    fake_execute(&t->fake, b);
    fake_execute(&t->fake, c);
    fake_report(&t->fake, c);
    dvk_graph_reap(&t->fake.graph);
    assert_true(visible(t, b) && visible(t, c));
    assert_false(visible(t, a));
    fake_report(&t->fake, a);
    dvk_graph_reap(&t->fake.graph);
    assert_int_equal(completed(t, IN_ORDER), 3);
    assert_int_equal(status_of(t, 1), 0);
}

/* ---- what the client sees ---- */

static void a_notified_event_makes_an_upcall(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER, .event = 12);
    uint32_t b = ADD(t, IN_ORDER, .event = 13);
    atomic_store(&fake_event_slot(&t->fake, 13)->notify, 1);
    complete(t, a);
    assert_int_equal(t->fake.notified, 0);
    complete(t, b);
    assert_int_equal(t->fake.notified, 1);
    assert_int_equal(t->fake.last_notified, 12); /* the slot, counted from 0 */
}

static void the_main_thread_is_woken_only_if_it_is_needed(void **state)
{
    struct table *t = *state;
    _Atomic uint32_t *asleep = &t->fake.graph.shm->worker_asleep;
    _Atomic bool *really = &t->fake.graph.asleep;
    uint32_t a = ADD(t, IN_ORDER);
    atomic_store(really, true);
    atomic_store(asleep, 1);
    fake_complete(&t->fake, a);
    assert_int_equal(atomic_load(asleep), 1); /* nobody waits for it to reap */
    assert_true(atomic_load(really));
    dvk_graph_reap(&t->fake.graph);
    uint32_t b = ADD(t, IN_ORDER);
    uint32_t host = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST);
    fake_complete(&t->fake, b);
    assert_int_equal(atomic_load(asleep), 0);
    assert_false(atomic_load(really));
    dvk_graph_reap(&t->fake.graph);
    finish_host(t, host, 0);
    atomic_store(really, true);
    atomic_store(asleep, 1);
    uint32_t c = ADD(t, OUT_OF_ORDER); /* its queue's progress is told by the main thread */
    fake_complete(&t->fake, c);
    assert_int_equal(atomic_load(asleep), 0);
    dvk_graph_reap(&t->fake.graph);
    atomic_store(really, true); /* the tenant has written that it is awake */
    uint32_t d = ADD(t, OUT_OF_ORDER);
    fake_complete(&t->fake, d);
    assert_false(atomic_load(really));
    dvk_graph_reap(&t->fake.graph);
}

static void *sleep_on_progress(void *argument)
{
    struct dv_shm_queue *slot = argument;
    atomic_fetch_add(&slot->waiters, 1);
    while (atomic_load(&slot->completed) < 1) {
        uint32_t seen = atomic_load(&slot->progress);
        if (atomic_load(&slot->completed) < 1 && dv_futex_wait(&slot->progress, seen, 10 * DV_NS_PER_S) == -ETIMEDOUT)
            return (void *)1;
    }
    return NULL;
}

static void *sleep_on_event(void *argument)
{
    struct dv_shm_event *slot = argument;
    int32_t status;
    atomic_fetch_add(&slot->waiters, 1);
    while ((status = atomic_load(&slot->status)) > 0)
        if (dv_futex_wait((_Atomic uint32_t *)&slot->status, (uint32_t)status, 10 * DV_NS_PER_S) == -ETIMEDOUT)
            return (void *)1;
    return NULL;
}

static void sleepers_are_woken(void **state)
{
    struct table *t = *state;
    pthread_t on_queue, on_event;
    void *queue_late, *event_late;
    uint32_t a = ADD(t, IN_ORDER, .event = 1);
    struct dv_shm_queue *queue_slot = t->queues[IN_ORDER].slot;
    struct dv_shm_event *event_slot = fake_event_slot(&t->fake, 1);
    pthread_create(&on_queue, NULL, sleep_on_progress, queue_slot);
    pthread_create(&on_event, NULL, sleep_on_event, event_slot);
    while (!atomic_load(&queue_slot->waiters) || !atomic_load(&event_slot->waiters))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* most likely asleep by now */
    complete(t, a);
    pthread_join(on_queue, &queue_late);
    pthread_join(on_event, &event_late);
    assert_null(queue_late);
    assert_null(event_late);
}

/* ---- many ---- */

#define MANY (UNDER_SANITIZER ? 50000u : 1000000u)

static int set_up_many(void **state)
{
    return set_up_sized(state, MANY + 16);
}

/* A program may keep a chain of commands going for ever, each waiting for the one before. What is
 * finished must not pile up behind what is not, and letting go of it must not need a deep stack. */
static void a_long_chain_of_events_leaves_nothing_behind(void **state)
{
    struct table *t = *state;
    uint32_t alive_most = 0, destroyed = 0, finished = 0;

    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t wait = i % 512 ? i % 512 : 512, event = i % 512 + 1;
        add(t, i % 2 ? IN_ORDER : IN_ORDER_2, (struct want){.event = event, .waits = &wait, .wait_count = i > 0});
        if (i < 8)
            continue;
        fake_execute(&t->fake, t->fake.order[finished]);
        fake_report(&t->fake, t->fake.order[finished]);
        finished++;
        dvk_graph_reap(&t->fake.graph);
        while (t->fake.traces[destroyed + 1].destroyed)
            destroyed++;
        uint32_t alive = t->fake.count - destroyed;
        alive_most = alive > alive_most ? alive : alive_most;
        if (alive > 1000)
            break;
    }
    while (finished < t->fake.submissions) {
        fake_execute(&t->fake, t->fake.order[finished]);
        fake_report(&t->fake, t->fake.order[finished]);
        finished++;
    }
    dvk_graph_reap(&t->fake.graph);
    if (alive_most > 16)
        fail_msg("%u commands were kept though at most 9 were not finished", alive_most);
}

/* The same chain all in flight at once. */
static void a_long_chain_in_flight_is_let_go_of(void **state)
{
    struct table *t = *state;
    for (uint32_t i = 1; i <= MANY; i++) {
        uint32_t wait = i - 1;
        add(t, i % 2 ? IN_ORDER : IN_ORDER_2, (struct want){.event = i, .waits = &wait, .wait_count = i > 1});
    }
    assert_int_equal(t->fake.submissions, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        fake_execute(&t->fake, t->fake.order[i]);
        fake_report(&t->fake, t->fake.order[i]);
    }
    dvk_graph_reap(&t->fake.graph);
    assert_int_equal(completed(t, IN_ORDER), MANY / 2);
}

/* Blocked commands of an in-order queue that all become ready at once. */
static void a_long_blocked_queue_is_let_loose(void **state)
{
    struct table *t = *state;
    add_user_event(t, 1);
    uint32_t first = ADD(t, IN_ORDER, WAIT(1));
    for (uint32_t i = 1; i < MANY / 2; i++)
        ADD(t, IN_ORDER);
    assert_int_equal(t->fake.submissions, 0);
    set_user_event(t, 1, 0);
    assert_int_equal(t->fake.submissions, MANY / 2);
    for (uint32_t i = 0; i < t->fake.submissions; i++) {
        assert_int_equal(t->fake.order[i], first + i);
        fake_execute(&t->fake, t->fake.order[i]);
        if (t->fake.traces[t->fake.order[i]].reports)
            fake_report(&t->fake, t->fake.order[i]);
    }
    dvk_graph_reap(&t->fake.graph);
    assert_int_equal(completed(t, IN_ORDER), MANY / 2);
}

/* ---- pausing ---- */

static void a_paused_graph_starts_nothing(void **state)
{
    struct table *t = *state;
    uint32_t a = ADD(t, IN_ORDER);
    dvk_graph_pause(&t->fake.graph, true);
    uint32_t b = ADD(t, IN_ORDER), c = ADD(t, OUT_OF_ORDER);
    uint32_t host = ADD(t, OUT_OF_ORDER, .runs_on = DV_RUNS_ON_HOST);
    assert_false(dvk_graph_is_quiet(&t->fake.graph)); /* the first one runs */
    complete(t, a);
    assert_true(dvk_graph_is_quiet(&t->fake.graph));
    assert_false(submitted(t, b) || submitted(t, c) || turned(t, host));
    dvk_graph_pause(&t->fake.graph, false);
    assert_true(submitted(t, b) && submitted(t, c) && turned(t, host));
    assert_false(dvk_graph_is_quiet(&t->fake.graph));
    finish_host(t, host, 0);
    fake_drain(&t->fake);
    assert_true(dvk_graph_is_quiet(&t->fake.graph));
    assert_int_equal(completed(t, IN_ORDER), 2);
    assert_int_equal(completed(t, OUT_OF_ORDER), 2);
}

static void what_has_started_goes_on_while_it_is_paused(void **state)
{
    struct table *t = *state;
    uint32_t host = ADD(t, IN_ORDER, .runs_on = DV_RUNS_ON_HOST);
    assert_true(turned(t, host));
    dvk_graph_pause(&t->fake.graph, true);
    assert_false(dvk_graph_is_quiet(&t->fake.graph));
    uint32_t transfer = ADD(t, IN_ORDER, .lane = true); /* of the client, for the host command */
    assert_true(submitted(t, transfer));
    complete(t, transfer);
    assert_false(dvk_graph_is_quiet(&t->fake.graph));
    finish_host(t, host, 0);
    assert_true(dvk_graph_is_quiet(&t->fake.graph));
    dvk_graph_pause(&t->fake.graph, false);
}

static void what_has_not_ended_is_listed_in_the_order_of_arrival(void **state)
{
    struct table *t = *state;
    struct dvk_node **list;
    add_user_event(t, 1);
    dvk_graph_pause(&t->fake.graph, true);
    uint32_t ids[] = {ADD(t, OUT_OF_ORDER, WAIT(1)), ADD(t, IN_ORDER), ADD(t, OUT_OF_ORDER), ADD(t, IN_ORDER, WAIT(1))};
    assert_int_equal(dvk_graph_list(&t->fake.graph, &list), 4);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(list[i], &t->fake.traces[ids[i]].command->node);
    free(list);
    dvk_graph_pause(&t->fake.graph, false);
    set_user_event(t, 1, 0);
    fake_drain(&t->fake);
    assert_int_equal(dvk_graph_list(&t->fake.graph, &list), 0);
    free(list);
}

static void an_event_that_failed_under_another_worker_fails_what_waits_for_it(void **state)
{
    struct table *t = *state;
    dvk_graph_note_failed(&t->fake.graph, 4, -5);
    dvk_graph_note_failed(&t->fake.graph, UINT32_MAX, -5); /* there is no such event */
    uint32_t a = ADD(t, OUT_OF_ORDER, WAIT(4), .event = 5);
    assert_false(submitted(t, a));
    assert_int_equal(status_of(t, 5), DV_STATUS_DEPENDENCY_FAILED);
}

int main(void)
{
#define GRAPH_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
#define MANY_TEST(function) cmocka_unit_test_setup_teardown(function, set_up_many, tear_down)
    const struct CMUnitTest tests[] = {
        GRAPH_TEST(an_in_order_queue_hands_everything_over_at_once),
        GRAPH_TEST(an_out_of_order_queue_waits_for_wait_lists_only),
        GRAPH_TEST(an_in_order_queue_stays_behind_a_blocked_command),
        GRAPH_TEST(the_oldest_blocked_command_is_known),
        GRAPH_TEST(a_marker_waits_for_everything_before_it),
        GRAPH_TEST(a_marker_with_a_list_waits_for_the_list_only),
        GRAPH_TEST(a_barrier_holds_later_commands_back),
        GRAPH_TEST(a_barrier_with_a_list_waits_for_the_list_only),
        GRAPH_TEST(barriers_follow_each_other),
        GRAPH_TEST(a_barrier_of_the_vendor_is_ordered_by_the_stream),
        GRAPH_TEST(a_wait_list_across_queues_goes_to_the_vendor),
        GRAPH_TEST(a_blocked_dependency_is_followed_when_it_is_submitted),
        GRAPH_TEST(the_vendor_never_waits_for_user_events_or_the_host),
        GRAPH_TEST(a_complete_event_need_not_be_waited_for),
        GRAPH_TEST(an_event_given_several_times_counts_once_it_is_complete),
        GRAPH_TEST(an_event_that_cannot_be_fails_the_command),
        GRAPH_TEST(a_slot_used_again_before_reaping_names_the_new_command),
        GRAPH_TEST(a_user_event_outside_the_slots_is_refused),
        GRAPH_TEST(failure_spreads_through_wait_lists),
        GRAPH_TEST(failure_does_not_spread_through_queue_order),
        GRAPH_TEST(a_failed_event_fails_those_that_come_later),
        GRAPH_TEST(a_dependency_that_fails_after_its_submission_still_counts),
        GRAPH_TEST(the_vendor_spreads_failure_through_its_wait_list),
        GRAPH_TEST(a_refused_submission_ends_with_its_error),
        GRAPH_TEST(a_doomed_command_ends_in_its_queue_s_order),
        GRAPH_TEST(a_refused_command_ends_in_its_queue_s_order),
        GRAPH_TEST(a_doomed_host_command_does_not_overtake_the_helper),
        GRAPH_TEST(a_refused_fence_fails_what_nobody_will_report),
        GRAPH_TEST(a_fence_that_fails_says_nothing_of_later_commands),
        GRAPH_TEST(a_host_command_has_its_turn_when_all_before_it_is_complete),
        GRAPH_TEST(a_host_command_behind_an_unreported_one_comes_with_the_fence),
        GRAPH_TEST(helper_commands_are_given_without_waiting_for_each_other),
        GRAPH_TEST(the_helper_has_its_turn_before_the_main_thread_knows),
        GRAPH_TEST(no_early_turn_while_something_else_is_waited_for),
        GRAPH_TEST(those_that_waited_together_are_reported_together),
        GRAPH_TEST(a_helper_command_waits_for_listed_helper_commands),
        GRAPH_TEST(commands_are_found_by_number),
        GRAPH_TEST(a_lane_runs_beside_its_queue),
        GRAPH_TEST(a_failed_lane_command_fails_alone),
        GRAPH_TEST(only_the_last_of_a_batch_is_reported),
        GRAPH_TEST(a_report_comes_at_the_latest_after_so_many),
        GRAPH_TEST(what_somebody_waits_for_is_reported),
        GRAPH_TEST(the_fence_reports_what_is_in_flight),
        GRAPH_TEST(no_fence_to_be_had_leaves_everything_in_flight),
        GRAPH_TEST(reports_may_come_in_any_order),
        GRAPH_TEST(a_notified_event_makes_an_upcall),
        GRAPH_TEST(the_main_thread_is_woken_only_if_it_is_needed),
        GRAPH_TEST(sleepers_are_woken),
        GRAPH_TEST(a_paused_graph_starts_nothing),
        GRAPH_TEST(what_has_started_goes_on_while_it_is_paused),
        GRAPH_TEST(what_has_not_ended_is_listed_in_the_order_of_arrival),
        GRAPH_TEST(an_event_that_failed_under_another_worker_fails_what_waits_for_it),
        MANY_TEST(a_long_chain_of_events_leaves_nothing_behind),
        MANY_TEST(a_long_chain_in_flight_is_let_go_of),
        MANY_TEST(a_long_blocked_queue_is_let_loose),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
