/* Each rule of each policy on its own, at hand-picked times. */
#include "tests/unit/unit.h"

#include "src/policy/pauses.h"
#include "src/policy/burst.h"
#include "src/policy/order.h"

#define MS DV_NS_PER_MS
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* A device with up to eight tenants of one session each; the last one has two. */
struct stage {
    struct dv_policy policy;
    struct dv_policy_tenant tenants[8];
    struct dv_policy_session sessions[9];
    dv_ns now;
};

static const struct dv_share plain = {0, DV_PPM, 1, DV_CLASS_STANDARD};

static void set_stage(struct stage *stage, const struct dv_policy_ops *ops, uint32_t slots)
{
    *stage = (struct stage){.now = 1000 * MS};
    dv_policy_init(&stage->policy, ops, slots, stage->now);
    stage->policy.fixed_slice_ns = 10 * MS;
    for (unsigned i = 0; i < 8; i++) {
        dv_policy_tenant_add(&stage->policy, &stage->tenants[i], &plain, stage->now);
        dv_policy_session_init(&stage->sessions[i], &stage->tenants[i]);
    }
    dv_policy_session_init(&stage->sessions[8], &stage->tenants[7]);
}

static void share(struct stage *stage, unsigned who, struct dv_share value)
{
    dv_policy_tenant_set(&stage->policy, &stage->tenants[who], &value, stage->now);
}

static void wait_for(struct stage *stage, unsigned who)
{
    dv_policy_wait(&stage->policy, &stage->sessions[who], stage->now);
}

/* Grants one slot and returns to whom; -1: to nobody. */
static int grant(struct stage *stage, enum dv_rule rule)
{
    struct dv_decision decision = dv_policy_next(&stage->policy, stage->now);

    assert_int_equal(decision.rule, rule);
    return decision.session ? (int)(decision.session - stage->sessions) : -1;
}

/* Holds for a while, gives back, and wants it again. */
static void hold_again(struct stage *stage, int who, dv_ns ns)
{
    stage->now += ns;
    dv_policy_release(&stage->policy, &stage->sessions[who], stage->now);
    wait_for(stage, (unsigned)who);
}

static void hold(struct stage *stage, int who, dv_ns ns)
{
    stage->now += ns;
    dv_policy_release(&stage->policy, &stage->sessions[who], stage->now);
}

/* ---- what all share ---- */

static void test_names(void **state)
{
    (void)state;
    assert_ptr_equal(dv_policy_by_name("elastic"), &dv_policy_elastic);
    assert_ptr_equal(dv_policy_by_name("band"), &dv_policy_band);
    assert_null(dv_policy_by_name("lottery"));
    assert_string_equal(dv_rule_text(DV_RULE_LIMIT), "all waiting tenants are at their limits");
}

static void test_slots(void **state)
{
    struct stage stage;

    (void)state;
    set_stage(&stage, &dv_policy_fifo, 2);
    assert_int_equal(grant(&stage, DV_RULE_NONE), -1);
    for (unsigned i = 0; i < 3; i++)
        wait_for(&stage, i);
    assert_int_equal(grant(&stage, DV_RULE_ARRIVAL), 0);
    assert_int_equal(grant(&stage, DV_RULE_ARRIVAL), 1);
    assert_int_equal(grant(&stage, DV_RULE_BUSY), -1);
    hold(&stage, 1, 5 * MS);
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 2);
    hold(&stage, 0, 5 * MS);
    /* with two slots, ten milliseconds of one are five of the device */
    assert_int_equal(stage.tenants[0].used_ns, 5 * MS);
}

static void test_sessions_take_turns(void **state)
{
    struct stage stage;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    wait_for(&stage, 7);
    wait_for(&stage, 8);
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 7);
    hold_again(&stage, 7, 10 * MS);
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 8);
    hold_again(&stage, 8, 10 * MS);
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 7);
    assert_int_equal(stage.tenants[7].used_ns, 20 * MS);
}

/* By time, not by grant: long turns do not win inside a tenant. */
static void test_sessions_share_by_time(void **state)
{
    struct stage stage;
    dv_ns had[2] = {0};

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    wait_for(&stage, 7);
    wait_for(&stage, 8);
    for (unsigned i = 0; i < 500; i++) {
        int who = grant(&stage, DV_RULE_ONLY_ONE);
        dv_ns turn = who == 7 ? 20 * MS : 2 * MS;
        had[who - 7] += turn;
        hold_again(&stage, who, turn);
    }
    assert_in_range(had[0], had[1] - 20 * MS, had[1] + 20 * MS);
    /* one that paused begins where the other is */
    dv_policy_cancel(&stage.policy, &stage.sessions[8], stage.now);
    for (unsigned i = 0; i < 100; i++)
        hold_again(&stage, grant(&stage, DV_RULE_ONLY_ONE), 10 * MS);
    wait_for(&stage, 8);
    unsigned turns = 0;
    for (unsigned i = 0; i < 20; i++) {
        int who = grant(&stage, DV_RULE_ONLY_ONE);
        turns += who == 8;
        hold_again(&stage, who, 10 * MS);
    }
    assert_in_range(turns, 9, 11);
}

static void test_cancel_and_death(void **state)
{
    struct stage stage;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    wait_for(&stage, 0);
    wait_for(&stage, 1);
    dv_policy_cancel(&stage.policy, &stage.sessions[0], stage.now);
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 1);
    hold(&stage, 1, MS); /* a holder that dies is released */
    dv_policy_release(&stage.policy, &stage.sessions[1], stage.now);
    assert_int_equal(stage.policy.free_slots, 1);
    assert_int_equal(grant(&stage, DV_RULE_NONE), -1);
    for (unsigned i = 0; i < 8; i++)
        dv_policy_tenant_remove(&stage.policy, &stage.tenants[i]);
    assert_null(stage.policy.tenants);
}

/* ---- elastic ---- */

static void test_request_first(void **state)
{
    struct stage stage;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    share(&stage, 1, (struct dv_share){500000, DV_PPM, 1, DV_CLASS_STANDARD});
    wait_for(&stage, 0);
    wait_for(&stage, 1);
    assert_int_equal(grant(&stage, DV_RULE_REQUEST), 1);
    hold_again(&stage, 1, 10 * MS); /* due again 20 ms after it began */
    assert_int_equal(grant(&stage, DV_RULE_LEAST_SERVED), 0);
    hold_again(&stage, 0, 10 * MS);
    assert_int_equal(grant(&stage, DV_RULE_REQUEST), 1);
}

static void test_earliest_deadline(void **state)
{
    struct stage stage;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    share(&stage, 0, (struct dv_share){10000, DV_PPM, 1, DV_CLASS_STANDARD});
    share(&stage, 1, (struct dv_share){600000, DV_PPM, 1, DV_CLASS_STANDARD});
    wait_for(&stage, 0);
    wait_for(&stage, 1);
    /* both are due, but 60 % cannot wait for 1 % */
    assert_int_equal(grant(&stage, DV_RULE_REQUEST), 1);
    hold_again(&stage, 1, 8 * MS); /* due again 13.3 ms after it began */
    assert_int_equal(grant(&stage, DV_RULE_REQUEST), 0);
    hold_again(&stage, 0, MS / 10); /* due again after 10 ms, but with a second's time */
    wait_for(&stage, 2);
    int third = grant(&stage, DV_RULE_LEAST_SERVED);
    assert_int_equal(third, 2);
    hold(&stage, third, 20 * MS);
    assert_int_equal(grant(&stage, DV_RULE_REQUEST), 1);
}

static void test_least_served_by_weight(void **state)
{
    struct stage stage;
    unsigned turns[2] = {0};

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    share(&stage, 0, (struct dv_share){0, DV_PPM, 3, DV_CLASS_STANDARD});
    wait_for(&stage, 0);
    wait_for(&stage, 1);
    for (unsigned i = 0; i < 400; i++) {
        int who = grant(&stage, DV_RULE_LEAST_SERVED);
        turns[who]++;
        hold_again(&stage, who, 10 * MS);
    }
    assert_in_range(turns[0], 298, 302);
}

static void test_overuse_is_paid_back(void **state)
{
    struct stage stage;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    wait_for(&stage, 0);
    wait_for(&stage, 1);
    assert_int_equal(grant(&stage, DV_RULE_LEAST_SERVED), 0);
    hold_again(&stage, 0, 50 * MS); /* instead of 10 */
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(grant(&stage, DV_RULE_LEAST_SERVED), 1);
        hold_again(&stage, 1, 11 * MS);
    }
    assert_int_equal(grant(&stage, DV_RULE_LEAST_SERVED), 1);
    hold_again(&stage, 1, 7 * MS); /* 51 in all */
    assert_int_equal(grant(&stage, DV_RULE_LEAST_SERVED), 0);
}

static void test_nothing_hoarded(void **state)
{
    struct stage stage;
    unsigned turns[2] = {0};

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    share(&stage, 1, (struct dv_share){200000, DV_PPM, 1, DV_CLASS_STANDARD});
    wait_for(&stage, 0);
    for (unsigned i = 0; i < 100; i++) { /* a second alone */
        assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 0);
        hold_again(&stage, 0, 10 * MS);
    }
    wait_for(&stage, 1); /* neither its weight nor its request was saved up */
    for (unsigned i = 0; i < 10; i++) {
        struct dv_decision decision = dv_policy_next(&stage.policy, stage.now);
        int who = (int)(decision.session - stage.sessions);
        turns[who]++;
        hold_again(&stage, who, 10 * MS);
    }
    assert_in_range(turns[0], 4, 6);
}

static void test_not_punished_after_others_left(void **state)
{
    struct stage stage;
    unsigned turns[8] = {0};

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    share(&stage, 0, (struct dv_share){400000, DV_PPM, 1, DV_CLASS_STANDARD});
    for (unsigned i = 0; i < 8; i++)
        wait_for(&stage, i);
    for (unsigned i = 0; i < 400; i++) { /* 40 % by request, where its weight gives 12.5 % */
        int who = (int)(dv_policy_next(&stage.policy, stage.now).session - stage.sessions);
        hold_again(&stage, who, 10 * MS);
    }
    for (unsigned i = 2; i < 8; i++)
        dv_policy_cancel(&stage.policy, &stage.sessions[i], stage.now);
    for (unsigned i = 0; i < 40; i++) {
        int who = (int)(dv_policy_next(&stage.policy, stage.now).session - stage.sessions);
        turns[who]++;
        hold_again(&stage, who, 10 * MS);
    }
    assert_in_range(turns[0], 17, 22);
}

static void test_limit_idles(void **state)
{
    struct stage stage;
    dv_ns start, used = 0;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    share(&stage, 0, (struct dv_share){0, 300000, 1, DV_CLASS_STANDARD});
    wait_for(&stage, 0);
    start = stage.now;
    while (stage.now < start + DV_NS_PER_S) {
        struct dv_decision decision = dv_policy_next(&stage.policy, stage.now);
        if (decision.session) {
            hold_again(&stage, 0, 5 * MS);
            used += 5 * MS;
            continue;
        }
        assert_int_equal(decision.rule, DV_RULE_LIMIT);
        assert_true(decision.ask_again_ns > stage.now);
        stage.now = decision.ask_again_ns;
    }
    assert_in_range(used, 290 * MS, 310 * MS);
    /* it does not stand in the way of others meanwhile */
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 0);
    hold_again(&stage, 0, 5 * MS);
    wait_for(&stage, 1);
    assert_int_equal(grant(&stage, DV_RULE_LEAST_SERVED), 1);
}

static void test_latency_goes_first_within_entitlement(void **state)
{
    struct stage stage;
    unsigned in_a_row = 0;
    dv_ns again;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    share(&stage, 0, (struct dv_share){0, DV_PPM, 1, DV_CLASS_BATCH});
    share(&stage, 1, (struct dv_share){0, DV_PPM, 1, DV_CLASS_STANDARD});
    share(&stage, 2, (struct dv_share){0, DV_PPM, 1, DV_CLASS_LATENCY});
    wait_for(&stage, 0);
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 0);
    wait_for(&stage, 1);
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again)); /* standard waits its turn */
    wait_for(&stage, 2);
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again)); /* not at the same moment */
    assert_int_equal(again, stage.now + MS / 10);
    stage.now = again;
    assert_ptr_equal(dv_policy_recall(&stage.policy, stage.now, &again), &stage.sessions[0]);
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again)); /* once is enough */
    hold_again(&stage, 0, MS);
    for (unsigned i = 0; i < 2; i++) { /* requests come in clusters: one hold ahead of its share */
        assert_int_equal(grant(&stage, DV_RULE_CLASS), 2);
        hold_again(&stage, 2, 10 * MS);
    }
    /* beyond that it is one of many */
    for (; in_a_row < 10; in_a_row++) {
        struct dv_decision decision = dv_policy_next(&stage.policy, stage.now);
        if (decision.session == &stage.sessions[2])
            break;
        hold_again(&stage, (int)(decision.session - stage.sessions), 10 * MS);
    }
    assert_in_range(in_a_row, 1, 3);
}

static void test_standard_before_batch(void **state)
{
    struct stage stage;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    share(&stage, 0, (struct dv_share){0, DV_PPM, 1, DV_CLASS_BATCH});
    wait_for(&stage, 0);
    wait_for(&stage, 1);
    assert_int_equal(grant(&stage, DV_RULE_LEAST_SERVED), 1);
    hold_again(&stage, 1, 10 * MS);
    assert_int_equal(grant(&stage, DV_RULE_LEAST_SERVED), 0); /* its share is its own */
}

static void test_latency_takes_only_the_slots_it_needs(void **state)
{
    struct stage stage;
    dv_ns again;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 4);
    for (unsigned i = 0; i < 4; i++) {
        share(&stage, i, (struct dv_share){0, DV_PPM, 1, i < 2 ? DV_CLASS_STANDARD : DV_CLASS_BATCH});
        wait_for(&stage, i);
        dv_policy_next(&stage.policy, stage.now);
    }
    for (unsigned i = 4; i < 6; i++) {
        share(&stage, i, (struct dv_share){0, DV_PPM, 1, DV_CLASS_LATENCY});
        stage.sessions[i].learned_ns = 8 * MS; /* both done by one slot within the 20 ms aimed at */
        wait_for(&stage, i);
    }
    stage.now += MS / 10;
    struct dv_policy_session *first = dv_policy_recall(&stage.policy, stage.now, &again);
    assert_ptr_equal(first, &stage.sessions[3]); /* batch, and the last to have begun */
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again));
    stage.policy.latency_target_ns = 8 * MS;
    assert_ptr_equal(dv_policy_recall(&stage.policy, stage.now, &again), &stage.sessions[2]);
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again));
}

/* The seventh is large. */
static bool all_but_the_seventh(const struct dv_policy *policy, const struct dv_policy_session *session)
{
    return session != &((const struct stage *)policy)->sessions[6];
}

/* Nobody goes before it, or small ones could keep a large one waiting without end. */
static void test_who_does_not_fit_beside_others_is_next(void **state)
{
    struct stage stage;
    dv_ns again;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 2);
    stage.policy.may_run_beside = all_but_the_seventh;
    wait_for(&stage, 0);
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 0);
    wait_for(&stage, 6);
    stage.now += MS; /* those who come later have had as little, and are behind it */
    wait_for(&stage, 1);
    assert_int_equal(grant(&stage, DV_RULE_CROWDED), -1);
    stage.now += 20 * MS; /* the holder's turn is over */
    assert_ptr_equal(dv_policy_recall(&stage.policy, stage.now, &again), &stage.sessions[0]);
    hold_again(&stage, 0, MS);
    assert_int_equal(grant(&stage, DV_RULE_LEAST_SERVED), 6); /* there is no holder */
    assert_int_equal(grant(&stage, DV_RULE_LEAST_SERVED), 1); /* these fit beside it */
}

static void test_pauses_that_are_worth_waiting_for(void **state)
{
    struct dv_pauses pauses = {0};

    (void)state;
    assert_int_equal(dv_pauses_linger(&pauses, MS, MS, true), MS); /* nothing is known */
    for (int i = 0; i < 20; i++)                                   /* one pause after four short gaps */
        dv_pauses_note(&pauses, i % 5 == 4 ? 100 * MS : MS / 10, MS);
    assert_int_equal(dv_pauses_linger(&pauses, MS, MS, true), MS);
    assert_int_equal(dv_pauses_linger(&pauses, 40 * MS, MS, true), MS); /* it would not come back in time */
    for (int i = 0; i < 20; i++)
        dv_pauses_note(&pauses, 20 * MS, MS);
    assert_int_equal(dv_pauses_linger(&pauses, MS, MS, true), 0);
    assert_int_equal(dv_pauses_linger(&pauses, MS, MS, false), MS);          /* nobody waits */
    assert_int_equal(dv_pauses_linger(&pauses, 40 * MS, MS, true), 40 * MS); /* moving would cost more */
    for (int i = 0; i < 5; i++)
        dv_pauses_note(&pauses, MS / 10, MS);
    assert_int_equal(dv_pauses_linger(&pauses, MS, MS, true), MS);
}

static void test_alone_until_somebody_comes(void **state)
{
    struct stage stage;
    dv_ns again, began;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    stage.policy.fixed_slice_ns = 0;
    wait_for(&stage, 0);
    struct dv_decision decision = dv_policy_next(&stage.policy, stage.now);
    began = stage.now;
    assert_int_equal(decision.slice_ns, DV_SLICE_ALONE_NS);
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again));
    assert_int_equal(again, 0);
    stage.now += MS;
    wait_for(&stage, 1);
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again)); /* its turn is its own */
    assert_int_equal(again, began + DV_SLICE_START_NS);
    stage.now = again;
    assert_ptr_equal(dv_policy_recall(&stage.policy, stage.now, &again), &stage.sessions[0]);
}

/* Two want the device, with learned slices; returns which has it. */
static int one_of_two(struct stage *stage)
{
    set_stage(stage, &dv_policy_elastic, 1);
    stage->policy.fixed_slice_ns = 0;
    wait_for(stage, 0);
    wait_for(stage, 1);
    return grant(stage, DV_RULE_LEAST_SERVED);
}

static void test_nobody_is_recalled_while_it_brings_memory_in(void **state)
{
    struct stage stage;
    dv_ns again;

    (void)state;
    int who = one_of_two(&stage);
    struct dv_policy_session *holder = &stage.sessions[who];
    stage.policy.moved_slice_max_ns = DV_MOVED_SLICE_LIMIT_MAX_NS;
    dv_policy_moves(holder, DV_MOVING_MAX_NS, stage.now);
    stage.now += 300 * MS;
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again));
    assert_int_equal(again, stage.now - 300 * MS + DV_MOVING_MAX_NS); /* that would be too long */
    struct dv_decision decision = dv_policy_moved(&stage.policy, holder, 300 * MS, stage.now);
    assert_ptr_equal(decision.session, holder);
    assert_int_equal(decision.slice_ns, 19 * 300 * MS); /* moving is 5 % of all */
    assert_int_equal(decision.linger_ns, 300 * MS);
    stage.now += 19 * 300 * MS;
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again));
    stage.now += 2 * MS;
    assert_ptr_equal(dv_policy_recall(&stage.policy, stage.now, &again), holder);
    assert_null(dv_policy_moved(&stage.policy, holder, 300 * MS, stage.now).session);
    dv_policy_release(&stage.policy, holder, stage.now);

    /* The next one has all it needs: its turn is short again. */
    who = grant(&stage, DV_RULE_ONLY_ONE);
    assert_true(stage.sessions[who].own_ns <= DV_SLICE_MAX_NS);
}

static void test_moving_again_and_again_is_no_way_to_stay(void **state)
{
    struct stage stage;
    dv_ns again;

    (void)state;
    int who = one_of_two(&stage);
    struct dv_policy_session *holder = &stage.sessions[who];
    dv_ns began = stage.now;
    while (!holder->recalled && stage.now - began < 200 * DV_NS_PER_S) {
        dv_policy_moves(holder, DV_MOVING_MAX_NS, stage.now);
        stage.now += MS / 10; /* next to nothing, 500 times a second */
        dv_policy_moved(&stage.policy, holder, MS / 10, stage.now);
        stage.now += 2 * MS;
        dv_policy_recall(&stage.policy, stage.now, &again);
    }
    assert_true(holder->recalled); /* moving is 5 % of all that time: so far it may go on */
    assert_true(stage.now - began <= DV_HOLD_MOVING_MAX_NS + 10 * MS);

    dv_policy_release(&stage.policy, holder, stage.now);
    wait_for(&stage, (unsigned)who);
    who = grant(&stage, DV_RULE_LEAST_SERVED);
    holder = &stage.sessions[who];
    for (began = stage.now; !holder->recalled && stage.now - began < 200 * DV_NS_PER_S;) {
        dv_policy_moves(holder, DV_MOVING_MAX_NS, stage.now); /* it never says that it is done */
        stage.now += DV_NS_PER_S;
        dv_policy_recall(&stage.policy, stage.now, &again);
    }
    assert_true(stage.now - began <= DV_MOVING_MAX_NS + DV_NS_PER_S);
}

/* Moving should be worth it; and a burst that is little longer than that is not cut. */
static void test_turns_are_worth_what_was_moved(void **state)
{
    const struct dv_burst burst = {.kernel_ns = MS, .p90_ns = 2400 * MS, .last_ns = 2400 * MS};
    struct stage stage;

    (void)state;
    for (int known = 0; known < 2; known++) {
        set_stage(&stage, &dv_policy_elastic, 1);
        stage.policy.fixed_slice_ns = 0;
        stage.policy.moved_slice_max_ns = DV_MOVED_SLICE_LIMIT_MAX_NS;
        if (known)
            stage.sessions[0].burst = stage.sessions[1].burst = burst;
        wait_for(&stage, 0);
        wait_for(&stage, 1);
        struct dv_policy_session *holder = &stage.sessions[grant(&stage, DV_RULE_LEAST_SERVED)];
        dv_policy_moves(holder, DV_MOVING_MAX_NS, stage.now);
        stage.now += 100 * MS;
        dv_policy_moved(&stage.policy, holder, 100 * MS, stage.now);
        if (known) /* all of it, and 5 % */
            assert_in_range(holder->own_ns, 2600 * MS, 2640 * MS);
        else /* nineteen parts of twenty */
            assert_in_range(holder->own_ns, 1990 * MS, 2010 * MS);
    }
}

static void test_a_turn_for_which_memory_was_moved_has_an_end(void **state)
{
    static const struct {
        dv_ns moved_ns, own_ns;
    } cases[] = {{300 * MS, DV_MOVED_SLICE_MAX_NS}, {5 * DV_NS_PER_S, 5 * DV_NS_PER_S}};
    struct stage stage;

    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dv_policy_session *holder = &stage.sessions[one_of_two(&stage)];
        dv_policy_moves(holder, DV_MOVING_MAX_NS, stage.now);
        stage.now += cases[i].moved_ns;
        struct dv_decision decision = dv_policy_moved(&stage.policy, holder, cases[i].moved_ns, stage.now);
        assert_int_equal(decision.slice_ns, cases[i].own_ns);
    }
}

static void test_latency_work_interrupts_moving(void **state)
{
    struct stage stage;
    dv_ns again;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    share(&stage, 2, (struct dv_share){0, DV_PPM, 1, DV_CLASS_LATENCY});
    wait_for(&stage, 0);
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 0);
    dv_policy_moves(&stage.sessions[0], DV_MOVING_MAX_NS, stage.now);
    stage.now += 20 * MS;
    wait_for(&stage, 1);
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again));
    wait_for(&stage, 2);
    assert_ptr_equal(dv_policy_recall(&stage.policy, stage.now, &again), &stage.sessions[0]);
}

/* Two hold the device and each has the room that the other waits for: the later one steps aside. */
static void test_holders_in_line_for_room(void **state)
{
    struct stage stage;
    dv_ns again;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 2);
    wait_for(&stage, 0);
    wait_for(&stage, 1);
    assert_int_equal(grant(&stage, DV_RULE_LEAST_SERVED), 0);
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 1);
    stage.now += 50 * MS; /* nobody minds */
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again));
    dv_policy_in_line(&stage.policy, &stage.sessions[1], true, stage.now);
    assert_ptr_equal(dv_policy_recall(&stage.policy, stage.now, &again), &stage.sessions[0]);
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again));
    hold_again(&stage, 0, 0);
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 0);
    stage.now += MS;
    dv_policy_in_line(&stage.policy, &stage.sessions[0], true, stage.now);
    assert_ptr_equal(dv_policy_recall(&stage.policy, stage.now, &again), &stage.sessions[0]);
    dv_policy_release(&stage.policy, &stage.sessions[0], stage.now);
    dv_policy_release(&stage.policy, &stage.sessions[1], stage.now);
    assert_int_equal(stage.policy.in_line, 0);
}

static void test_a_fixed_slice_begins_when_memory_is_there(void **state)
{
    struct stage stage;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    wait_for(&stage, 0);
    wait_for(&stage, 1);
    int who = grant(&stage, DV_RULE_LEAST_SERVED);
    dv_policy_moves(&stage.sessions[who], DV_MOVING_MAX_NS, stage.now);
    stage.now += 300 * MS;
    struct dv_decision decision = dv_policy_moved(&stage.policy, &stage.sessions[who], 300 * MS, stage.now);
    assert_int_equal(decision.slice_ns, 10 * MS);
}

static void test_overdue_holders_are_recalled(void **state)
{
    struct stage stage;
    dv_ns again, began;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    began = stage.now;
    wait_for(&stage, 0);
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 0);
    stage.now += 50 * MS; /* nobody minds */
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again));
    assert_int_equal(again, 0);
    wait_for(&stage, 1);
    assert_ptr_equal(dv_policy_recall(&stage.policy, stage.now, &again), &stage.sessions[0]);
    hold(&stage, 0, 0);
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 1);
    hold(&stage, 1, MS);
    /* a limit is kept even if nobody waits */
    share(&stage, 2, (struct dv_share){0, 300000, 1, DV_CLASS_STANDARD});
    wait_for(&stage, 2);
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 2);
    assert_null(dv_policy_recall(&stage.policy, stage.now, &again));
    assert_in_range(again, stage.now + 10 * MS, stage.now + 12 * MS);
    stage.now = again;
    assert_ptr_equal(dv_policy_recall(&stage.policy, stage.now, &again), &stage.sessions[2]);
    assert_true(stage.now > began);
}

static void test_share_and_policy_change_while_waiting(void **state)
{
    struct stage stage;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    for (unsigned i = 0; i < 3; i++, stage.now += MS)
        wait_for(&stage, i);
    share(&stage, 2, (struct dv_share){900000, DV_PPM, 1, DV_CLASS_STANDARD});
    assert_int_equal(grant(&stage, DV_RULE_REQUEST), 2);
    dv_policy_switch(&stage.policy, &dv_policy_fifo, stage.now);
    hold_again(&stage, 2, 10 * MS);
    assert_int_equal(grant(&stage, DV_RULE_ARRIVAL), 0);
    dv_policy_switch(&stage.policy, &dv_policy_fair, stage.now);
    hold_again(&stage, 0, 10 * MS);
    assert_int_not_equal(grant(&stage, DV_RULE_LEAST_SERVED), 0);
}

/* ---- the others ---- */

static void test_fair_ignores_requests(void **state)
{
    struct stage stage;
    unsigned turns[2] = {0};

    (void)state;
    set_stage(&stage, &dv_policy_fair, 1);
    share(&stage, 0, (struct dv_share){900000, DV_PPM, 1, DV_CLASS_LATENCY});
    share(&stage, 1, (struct dv_share){0, DV_PPM, 2, DV_CLASS_BATCH});
    wait_for(&stage, 0);
    wait_for(&stage, 1);
    for (unsigned i = 0; i < 300; i++) {
        int who = grant(&stage, DV_RULE_LEAST_SERVED);
        turns[who]++;
        hold_again(&stage, who, 10 * MS);
    }
    assert_in_range(turns[1], 198, 202);
}

static void test_fifo_favours_the_long(void **state)
{
    struct stage stage;

    (void)state;
    set_stage(&stage, &dv_policy_fifo, 1);
    wait_for(&stage, 0);
    wait_for(&stage, 1);
    for (unsigned i = 0; i < 100; i++) {
        int who = grant(&stage, DV_RULE_ARRIVAL);
        assert_int_equal(who, i % 2);
        hold_again(&stage, who, who ? 15 * MS : MS);
    }
    assert_int_equal(stage.tenants[1].used_ns, 15 * stage.tenants[0].used_ns);
}

static void test_band_idle_window(void **state)
{
    struct stage stage;

    (void)state;
    set_stage(&stage, &dv_policy_band, 1);
    wait_for(&stage, 0);
    wait_for(&stage, 1);
    int first = grant(&stage, DV_RULE_CREDIT);
    hold_again(&stage, first, 30 * MS);
    int second = grant(&stage, DV_RULE_CREDIT);
    assert_int_not_equal(first, second);
    hold(&stage, second, MS); /* under-served, and about to come back */
    dv_ns since = stage.now;
    struct dv_decision decision = dv_policy_next(&stage.policy, stage.now);
    assert_null(decision.session);
    assert_int_equal(decision.rule, DV_RULE_IDLE_WINDOW);
    assert_int_equal(decision.ask_again_ns, since + 500 * DV_NS_PER_US);
    stage.now += 100 * DV_NS_PER_US;
    wait_for(&stage, (unsigned)second);
    assert_int_equal(grant(&stage, DV_RULE_CREDIT), second);
    hold(&stage, second, MS);
    assert_int_equal(grant(&stage, DV_RULE_IDLE_WINDOW), -1);
    stage.now += 500 * DV_NS_PER_US; /* it did not come: the other goes on */
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), first);
}

/* ---- entitlements, slices, bursts ---- */

static void test_entitlements(void **state)
{
    const struct dv_share shares[] = {{660000, DV_PPM, 1, DV_CLASS_STANDARD},
                                      {0, DV_PPM, 3, DV_CLASS_STANDARD},
                                      {0, 50000, 5, DV_CLASS_STANDARD},
                                      {0, DV_PPM, 1, DV_CLASS_BATCH}};
    uint32_t ppm[COUNT(shares)];

    (void)state;
    dv_policy_entitlements(shares, COUNT(shares), ppm);
    assert_in_range(ppm[0], 660000, 660000);
    assert_in_range(ppm[1], 217490, 217500); /* three quarters of what is left */
    assert_in_range(ppm[2], 50000, 50000);
    assert_in_range(ppm[3], 72490, 72500);
    dv_policy_entitlements(&shares[2], 1, ppm);
    assert_int_equal(ppm[0], 50000);
}

static dv_ns learned(struct stage *stage, dv_ns burst, dv_ns kernel)
{
    struct dv_policy_session *session = &stage->sessions[0];
    dv_ns slice = 0;

    session->learned_ns = 0;
    session->burst = (struct dv_burst){.kernel_ns = kernel, .p90_ns = burst, .last_ns = burst};
    for (unsigned i = 0; i < 20; i++)
        slice = dv_slice_learn(&stage->policy, session);
    return slice;
}

static void test_slice(void **state)
{
    struct stage stage;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    assert_int_equal(learned(&stage, 3 * MS, MS), 10 * MS); /* fixed */
    stage.policy.fixed_slice_ns = 0;
    assert_int_equal(learned(&stage, 0, 0), DV_SLICE_START_NS);
    assert_int_equal(learned(&stage, MS / 10, MS / 10), DV_SLICE_MIN_NS);
    assert_in_range(learned(&stage, 6 * MS, MS), 6 * MS, 7 * MS);  /* the whole burst */
    assert_in_range(learned(&stage, 12 * MS, MS), 6 * MS, 7 * MS); /* in two parts */
    assert_in_range(learned(&stage, 900 * MS, MS), 9 * MS, DV_SLICE_MAX_NS);
    assert_int_equal(learned(&stage, 900 * MS, 30 * MS), 30 * MS);                 /* a kernel must fit */
    assert_int_equal(learned(&stage, 900 * MS, 900 * MS), DV_SLICE_KERNEL_MAX_NS); /* is it true? */
    share(&stage, 0, (struct dv_share){0, 300000, 1, DV_CLASS_STANDARD});
    assert_true(learned(&stage, 900 * MS, MS) <= DV_SLICE_LIMITED_NS);
    assert_true(dv_slice_linger(&stage.sessions[0]) <= MS);
}

/* A holder that is recalled with work left; the rest of its hold is the cost of changing it. */
static void hold_at_a_cost(struct stage *stage, dv_ns cost)
{
    int who = (int)(dv_policy_next(&stage->policy, stage->now).session - stage->sessions);
    struct dv_policy_session *session = &stage->sessions[who];

    session->burst = (struct dv_burst){.kernel_ns = MS, .p90_ns = 900 * MS, .last_ns = 900 * MS};
    session->busy_ns = session->own_ns - cost;
    hold_again(stage, who, session->own_ns);
}

/* A session whose memory is away lets others go first, for a second at most. */
static void test_resident_first(void **state)
{
    struct stage stage;
    dv_ns began;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    for (unsigned i = 0; i < 3; i++)
        wait_for(&stage, i);
    began = stage.now;
    dv_policy_set_away(&stage.policy, &stage.sessions[0], true, stage.now);
    while (stage.now < began + DV_AWAY_WAITS_NS) { /* the other two share by weight */
        struct dv_decision decision = dv_policy_next(&stage.policy, stage.now);
        int who = (int)(decision.session - stage.sessions);
        assert_int_not_equal(who, 0);
        hold_again(&stage, who, 10 * MS);
    }
    int64_t lead = (int64_t)(stage.tenants[1].used_ns - stage.tenants[2].used_ns);
    assert_in_range(lead + 10 * (int64_t)MS, 0, 20 * MS);
    assert_int_equal(grant(&stage, DV_RULE_LEAST_SERVED), 0);
    dv_policy_set_away(&stage.policy, &stage.sessions[0], false, stage.now); /* it has come */
    hold_again(&stage, 0, 10 * MS);
    assert_int_equal(grant(&stage, DV_RULE_LEAST_SERVED), 0); /* it is behind */
    hold(&stage, 0, 10 * MS);

    /* no tenant goes before the guarantee of another for that */
    share(&stage, 3, (struct dv_share){300000, DV_PPM, 1, DV_CLASS_STANDARD});
    dv_policy_set_away(&stage.policy, &stage.sessions[3], true, stage.now);
    wait_for(&stage, 3);
    assert_int_equal(grant(&stage, DV_RULE_REQUEST), 3);
    hold(&stage, 3, 10 * MS);

    /* the same among sessions of one tenant */
    dv_policy_cancel(&stage.policy, &stage.sessions[1], stage.now);
    dv_policy_cancel(&stage.policy, &stage.sessions[2], stage.now);
    dv_policy_set_away(&stage.policy, &stage.sessions[7], true, stage.now);
    wait_for(&stage, 7);
    wait_for(&stage, 8);
    began = stage.now;
    while (stage.now < began + DV_AWAY_WAITS_NS) {
        assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 8);
        hold_again(&stage, 8, 10 * MS);
    }
    assert_int_equal(grant(&stage, DV_RULE_ONLY_ONE), 7);
}

/* Turns are as long as a hand-over demands: at most 2 % of them. */
static void test_turns_follow_the_cost_of_handing_over(void **state)
{
    struct stage stage;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    stage.policy.fixed_slice_ns = 0;
    wait_for(&stage, 0);
    wait_for(&stage, 1);
    for (unsigned i = 0; i < 2000; i++)
        hold_at_a_cost(&stage, MS / 20);
    assert_in_range(stage.sessions[0].own_ns, 9 * MS, DV_SLICE_MAX_NS);
    for (unsigned i = 0; i < 2000; i++) /* a card whose contexts are dear to change */
        hold_at_a_cost(&stage, MS);
    assert_in_range(stage.policy.hand_over_ns, 9 * MS / 10, 11 * MS / 10);
    assert_in_range(stage.sessions[0].own_ns, 40 * MS, 55 * MS);
    for (unsigned i = 0; i < 2000; i++) /* gaps between kernels have no effect */
        hold_at_a_cost(&stage, i % 4 ? stage.sessions[0].own_ns / 2 : MS);
    assert_in_range(stage.policy.hand_over_ns, 9 * MS / 10, 12 * MS / 10);
    for (unsigned i = 0; i < 20000; i++) /* nor do turns grow without end if there is nothing else */
        hold_at_a_cost(&stage, stage.sessions[0].own_ns / 2);
    assert_true(dv_slice_max(&stage.policy) <= DV_SLICE_DEAR_MAX_NS);
    for (unsigned i = 0; i < 2000; i++)
        hold_at_a_cost(&stage, MS / 20);
    assert_in_range(stage.sessions[0].own_ns, 9 * MS, DV_SLICE_MAX_NS);
}

static void test_burst_monitor(void **state)
{
    struct dv_burst_monitor monitor = {0};
    dv_ns now = 0;

    (void)state;
    for (unsigned burst = 0; burst < 20; burst++) {
        dv_burst_work(&monitor, now, MS / 10);
        for (unsigned kernel = 0; kernel < 3; kernel++) {
            dv_burst_kernel(&monitor, burst == 19 ? 3 * MS : 2 * MS);
            now += 2 * MS;
        }
        dv_burst_idle(&monitor, now);
        now += MS / 20; /* too short to matter */
        dv_burst_work(&monitor, now, MS / 10);
        dv_burst_kernel(&monitor, MS);
        dv_burst_idle(&monitor, now);
        now += 10 * MS;
    }
    dv_burst_work(&monitor, now, MS / 10);
    struct dv_burst report = dv_burst_report(&monitor);
    assert_int_equal(report.p90_ns, 7 * MS + MS / 20);
    assert_int_equal(report.last_ns, 10 * MS + MS / 20);
    assert_in_range(report.kernel_ns, 2 * MS, 3 * MS);
    for (unsigned kernel = 0; kernel < 50; kernel++) /* one that does not end */
        dv_burst_kernel(&monitor, MS);
    assert_int_equal(dv_burst_report(&monitor).p90_ns, 50 * MS);
    dv_burst_kernel(&monitor, 30 * MS); /* counts at once, and is forgotten within the burst */
    assert_int_equal(dv_burst_report(&monitor).kernel_ns, 30 * MS);
    for (unsigned kernel = 0; kernel < 200; kernel++)
        dv_burst_kernel(&monitor, MS);
    assert_true(dv_burst_report(&monitor).kernel_ns < 2 * MS);
}

/* ---- what a decision costs ---- */

static uint64_t comparisons_of(const struct dv_policy *policy)
{
    uint64_t sum = policy->by_other.comparisons;

    for (int i = 0; i < DV_REQUEST_LINES; i++)
        sum += policy->by_request[i].ahead.comparisons + policy->by_request[i].ready.comparisons;
    for (int i = 0; i < DV_CLASS_COUNT; i++)
        sum += policy->by_fair[i].ahead.comparisons + policy->by_fair[i].ready.comparisons;
    return sum;
}

/* Comparisons for each turn (release, wait, decide) with so many tenants waiting. */
static double cost(const struct dv_policy_ops *ops, unsigned count)
{
    const unsigned turns = 20000;
    struct dv_policy_tenant *tenants = calloc(count, sizeof *tenants);
    struct dv_policy_session *sessions = calloc(count, sizeof *sessions);
    struct random random = {7};
    struct dv_policy policy;
    dv_ns now = 0;

    dv_policy_init(&policy, ops, 1, now);
    for (unsigned i = 0; i < count; i++) {
        struct dv_share value = {i % 2 ? DV_PPM / 2 / count : 0, i % 3 ? DV_PPM : DV_PPM / 2, 1 + i % 7,
                                 (enum dv_class)(i % DV_CLASS_COUNT)};
        dv_policy_tenant_add(&policy, &tenants[i], &value, now);
        dv_policy_session_init(&sessions[i], &tenants[i]);
        dv_policy_wait(&policy, &sessions[i], now);
    }
    uint64_t before = comparisons_of(&policy);
    for (unsigned i = 0; i < turns; i++) {
        struct dv_decision decision = dv_policy_next(&policy, now);
        if (!decision.session) {
            now = decision.ask_again_ns;
            continue;
        }
        now += MS + random_below(&random, 10 * MS);
        dv_policy_release(&policy, decision.session, now);
        dv_policy_wait(&policy, decision.session, now);
    }
    double each = (double)(comparisons_of(&policy) - before) / turns;
    free(tenants);
    free(sessions);
    return each;
}

static void test_cost_grows_as_the_logarithm(void **state)
{
    const struct dv_policy_ops *const policies[] = {&dv_policy_elastic, &dv_policy_fair, &dv_policy_fifo};

    (void)state;
    for (unsigned i = 0; i < COUNT(policies); i++) {
        double few = cost(policies[i], 10), many = cost(policies[i], 10000);
        print_message("%s: %.1f comparisons a turn with 10 tenants, %.1f with 10,000\n", policies[i]->name, few, many);
        /* log2(10000) / log2(10) is 4; linear cost would be 1000 times as much */
        assert_true(many <= 8 * few + 20);
    }
}

/* ---- a daemon that is restarted ---- */

#define CROWD 16

/* As the daemon and its successor: what is kept goes into a policy that knows nothing yet. The holder
 * holds on; the others say that they wait a moment later, in any order. */
static void restart(struct dv_policy *policy, struct dv_policy_tenant tenants[CROWD],
                    struct dv_policy_session sessions[CROWD], dv_ns *now, unsigned *random)
{
    struct dv_policy_account accounts[CROWD];
    struct dv_policy_hold holds[CROWD];
    struct dv_share shares[CROWD];
    bool held[CROWD];
    uint64_t clock = policy->fair_clock;

    for (int i = 0; i < CROWD; i++) {
        accounts[i] = dv_policy_account(&tenants[i]);
        holds[i] = dv_policy_hold(&sessions[i]);
        shares[i] = tenants[i].share;
        held[i] = sessions[i].holding;
    }
    *now += 5 * MS; /* while there is no daemon */
    dv_policy_init(policy, &dv_policy_elastic, 1, *now);
    policy->fair_clock = clock;
    for (int i = 0; i < CROWD; i++) {
        dv_policy_tenant_add(policy, &tenants[i], &shares[i], *now);
        dv_policy_adopt_tenant(policy, &tenants[i], &accounts[i], *now);
        dv_policy_session_init(&sessions[i], &tenants[i]);
        if (held[i])
            dv_policy_adopt_hold(policy, &sessions[i], &holds[i], *now);
    }
    unsigned first = (unsigned)rand_r(random);
    for (unsigned i = 0; i < CROWD; i++) {
        *now += MS / 8;
        dv_policy_wait(policy, &sessions[(first + i) % CROWD], *now);
    }
}

/* Over many restarts everybody has what it is entitled to: no account is forgotten, no hold is charged
 * twice or not at all. */
static void test_restarts_change_no_share(void **state)
{
    static const struct dv_share shares[CROWD] = {
        {250000, DV_PPM, 1, DV_CLASS_STANDARD}, {100000, DV_PPM, 1, DV_CLASS_STANDARD},
        {0, 20000, 1, DV_CLASS_STANDARD},       {0, DV_PPM, 3, DV_CLASS_STANDARD},
        {0, DV_PPM, 3, DV_CLASS_STANDARD},      {0, DV_PPM, 2, DV_CLASS_STANDARD},
        {0, DV_PPM, 2, DV_CLASS_STANDARD},      {0, DV_PPM, 2, DV_CLASS_STANDARD},
        {0, DV_PPM, 2, DV_CLASS_STANDARD},      {0, DV_PPM, 1, DV_CLASS_STANDARD},
        {0, DV_PPM, 1, DV_CLASS_STANDARD},      {0, DV_PPM, 1, DV_CLASS_STANDARD},
        {0, DV_PPM, 1, DV_CLASS_STANDARD},      {0, DV_PPM, 1, DV_CLASS_STANDARD},
        {0, DV_PPM, 1, DV_CLASS_STANDARD},      {0, DV_PPM, 1, DV_CLASS_STANDARD}};
    struct dv_policy policy;
    struct dv_policy_tenant tenants[CROWD];
    struct dv_policy_session sessions[CROWD];
    dv_ns had[CROWD] = {0}, total = 0, now = 1000 * MS, next = now + 300 * MS;
    uint32_t entitled[CROWD];
    unsigned random = 7, restarts = 0;

    (void)state;
    dv_policy_init(&policy, &dv_policy_elastic, 1, now);
    for (int i = 0; i < CROWD; i++) {
        dv_policy_tenant_add(&policy, &tenants[i], &shares[i], now);
        dv_policy_session_init(&sessions[i], &tenants[i]);
        dv_policy_wait(&policy, &sessions[i], now);
    }
    while (restarts < 500) {
        struct dv_decision decision = dv_policy_next(&policy, now);
        if (!decision.session) {
            now = decision.ask_again_ns;
            continue;
        }
        dv_ns begun = now;
        long who = decision.session - sessions;
        now += decision.slice_ns / 2 + (dv_ns)rand_r(&random) % decision.slice_ns / 2;
        if (now >= next) {
            restart(&policy, tenants, sessions, &now, &random);
            next = now + (dv_ns)rand_r(&random) % (1000 * MS);
            restarts++;
        }
        had[who] += now - begun;
        total += now - begun;
        dv_policy_release(&policy, &sessions[who], now);
        dv_policy_wait(&policy, &sessions[who], now);
    }
    dv_policy_entitlements(shares, CROWD, entitled);
    for (int i = 0; i < CROWD; i++) {
        int64_t ppm = (int64_t)((double)had[i] * DV_PPM / (double)total);
        assert_in_range(ppm + 5000, entitled[i], entitled[i] + 10000); /* half a point */
    }
}

/* What comes from a file is not believed. */
static void test_adopted_nonsense_is_bounded(void **state)
{
    struct stage stage;
    struct dv_policy_account account;
    struct dv_policy_hold hold;

    (void)state;
    set_stage(&stage, &dv_policy_elastic, 1);
    memset(&account, 0x7f, sizeof account);
    memset(&hold, 0xee, sizeof hold);
    hold.guaranteed = account.in_demand = true;
    dv_policy_adopt_tenant(&stage.policy, &stage.tenants[0], &account, stage.now);
    dv_policy_adopt_hold(&stage.policy, &stage.sessions[0], &hold, stage.now);
    dv_policy_adopt_hold(&stage.policy, &stage.sessions[1], &hold, stage.now); /* one too many */
    assert_int_equal(stage.policy.free_slots, 0);
    wait_for(&stage, 2);
    assert_int_equal(grant(&stage, DV_RULE_BUSY), -1);
    hold_again(&stage, 0, 10 * MS);
    assert_int_equal(grant(&stage, DV_RULE_BUSY), -1);
    hold_again(&stage, 1, 10 * MS);
    assert_int_equal(stage.policy.free_slots, 1);
    for (int i = 0; i < 20; i++) {
        struct dv_decision decision = dv_policy_next(&stage.policy, stage.now);
        assert_non_null(decision.session);
        hold_again(&stage, (int)(decision.session - stage.sessions), 10 * MS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_sessions_take_turns),
        cmocka_unit_test(test_sessions_share_by_time),
        cmocka_unit_test(test_cancel_and_death),
        cmocka_unit_test(test_request_first),
        cmocka_unit_test(test_earliest_deadline),
        cmocka_unit_test(test_least_served_by_weight),
        cmocka_unit_test(test_overuse_is_paid_back),
        cmocka_unit_test(test_nothing_hoarded),
        cmocka_unit_test(test_not_punished_after_others_left),
        cmocka_unit_test(test_limit_idles),
        cmocka_unit_test(test_latency_goes_first_within_entitlement),
        cmocka_unit_test(test_standard_before_batch),
        cmocka_unit_test(test_latency_takes_only_the_slots_it_needs),
        cmocka_unit_test(test_who_does_not_fit_beside_others_is_next),
        cmocka_unit_test(test_pauses_that_are_worth_waiting_for),
        cmocka_unit_test(test_alone_until_somebody_comes),
        cmocka_unit_test(test_nobody_is_recalled_while_it_brings_memory_in),
        cmocka_unit_test(test_moving_again_and_again_is_no_way_to_stay),
        cmocka_unit_test(test_turns_are_worth_what_was_moved),
        cmocka_unit_test(test_a_turn_for_which_memory_was_moved_has_an_end),
        cmocka_unit_test(test_latency_work_interrupts_moving),
        cmocka_unit_test(test_holders_in_line_for_room),
        cmocka_unit_test(test_a_fixed_slice_begins_when_memory_is_there),
        cmocka_unit_test(test_overdue_holders_are_recalled),
        cmocka_unit_test(test_share_and_policy_change_while_waiting),
        cmocka_unit_test(test_fair_ignores_requests),
        cmocka_unit_test(test_fifo_favours_the_long),
        cmocka_unit_test(test_band_idle_window),
        cmocka_unit_test(test_entitlements),
        cmocka_unit_test(test_slice),
        cmocka_unit_test(test_resident_first),
        cmocka_unit_test(test_turns_follow_the_cost_of_handing_over),
        cmocka_unit_test(test_burst_monitor),
        cmocka_unit_test(test_cost_grows_as_the_logarithm),
        cmocka_unit_test(test_restarts_change_no_share),
        cmocka_unit_test(test_adopted_nonsense_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
