/* Device memory: reservations within quotas, room on the device, evictions, and sessions that do not answer. */
#include "tests/unit/ledger/stage.h"

static struct stage stage;
static struct peer a, b, c, d;
static char text[512];
static const struct dvd_share_change nothing;

static struct dvd_device *device(void)
{
    return &stage.ledger.devices[0];
}

/* ---- reservations ---- */

static void a_reservation_within_the_quota_is_granted(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "a");
    say_memory(&a, DV_MEMORY_RESERVE, 5, 10 * MIB, 0);
    const struct dv_memory_message *m = hear_memory(&a, DV_MEMORY_RESERVED);
    assert_true(m->id == 5 && m->bytes == 10 * MIB);
    assert_int_equal(device()->memory.reserved, 10 * MIB);
    say_memory(&a, DV_MEMORY_RESERVE, 6, 0, 0); /* makes no sense */
    say_memory(&a, DV_MEMORY_RETURN, 0, 4 * MIB, 0);
    assert_int_equal(device()->memory.reserved, 6 * MIB);
    say_memory(&a, DV_MEMORY_RETURN, 0, 100 * MIB, 0); /* more than it has */
    assert_int_equal(device()->memory.reserved, 0);
    hear_nothing(&a);
    say_memory(&a, DV_MEMORY_RESERVE, 7, DV_MEMORY_BYTES_MAX + 1, 0);
    assert_int_equal(hear_memory(&a, DV_MEMORY_REFUSED)->id, 7);
    say_memory(&a, DV_MEMORY_RETURN, 0, UINT64_MAX, 0);
    say_memory(&a, 99, 1, 1, 0);
    say_memory(&a, DV_MEMORY_RESERVE, 8, 65 * MIB, 0); /* above the quota, so nothing can help */
    assert_int_equal(hear_memory(&a, DV_MEMORY_REFUSED)->id, 8);
    peer_end(&a);
    stage_end(&stage);
}

static void messages_about_memory_are_checked(void **state)
{
    struct dv_memory_message m = {.magic = DV_MEMORY_MAGIC, .version = 99, .type = DV_MEMORY_RESERVE, .bytes = MIB};

    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "a");
    say(&a, &m, sizeof m);
    m.version = DV_MEMORY_VERSION;
    m.device = 1;
    say(&a, &m, sizeof m);
    hear_nothing(&a);
    peer_end(&a);
    stage_end(&stage);
}

static void sessions_return_unused_bytes_to_one_that_asks(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "x");
    peer_begin(&stage, &b, "x");
    say_memory(&a, DV_MEMORY_RESERVE, 1, 60 * MIB, 0);
    hear_memory(&a, DV_MEMORY_RESERVED);
    say_memory(&b, DV_MEMORY_RESERVE, 1, 20 * MIB, 0);
    uint64_t call = hear_memory(&a, DV_MEMORY_CALL_BACK)->id;
    hear_nothing(&b);
    say_memory(&b, DV_MEMORY_RESERVE, 2, MIB, 0); /* it waits for the first */
    say_memory(&a, DV_MEMORY_RETURN, call, 30 * MIB, 0);
    assert_int_equal(hear_memory(&b, DV_MEMORY_RESERVED)->bytes, 20 * MIB);
    hear_nothing(&b);
    /* it does not fit even so */
    say_memory(&b, DV_MEMORY_RESERVE, 3, 40 * MIB, 0);
    stage_pass(&stage, 10 * MS);
    say_memory(&a, DV_MEMORY_RETURN, hear_memory(&a, DV_MEMORY_CALL_BACK)->id, 0, 0);
    assert_int_equal(hear_memory(&b, DV_MEMORY_REFUSED)->id, 3);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

static void a_session_that_does_not_answer_is_not_waited_for(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "x");
    peer_begin(&stage, &b, "x");
    say_memory(&a, DV_MEMORY_RESERVE, 1, 60 * MIB, 0);
    say_memory(&b, DV_MEMORY_RESERVE, 1, 20 * MIB, 0);
    stage_pass(&stage, 50 * MS);
    hear_nothing(&b);
    stage_pass(&stage, 100 * MS);
    hear_memory(&b, DV_MEMORY_REFUSED);
    /* one that leaves owes nothing */
    say_memory(&b, DV_MEMORY_RESERVE, 2, 20 * MIB, 0);
    stage_pass(&stage, 10 * MS);
    peer_end(&a);
    hear_memory(&b, DV_MEMORY_RESERVED);
    peer_end(&b);
    stage_end(&stage);
}

static void two_that_ask_at_once_are_both_called(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "x");
    peer_begin(&stage, &b, "x");
    say_memory(&a, DV_MEMORY_RESERVE, 1, 40 * MIB, 0);
    say_memory(&b, DV_MEMORY_RESERVE, 1, 20 * MIB, 0);
    forget_messages(&a);
    forget_messages(&b);
    say_memory(&a, DV_MEMORY_RESERVE, 2, 10 * MIB, 0); /* asks b */
    hear_memory(&b, DV_MEMORY_CALL_BACK);
    say_memory(&b, DV_MEMORY_RESERVE, 2, 8 * MIB, 0); /* waits for the next round */
    say_memory(&b, DV_MEMORY_RETURN, 1, 10 * MIB, 0);
    hear_memory(&a, DV_MEMORY_RESERVED);
    stage_pass(&stage, 50 * MS);
    hear_memory(&a, DV_MEMORY_CALL_BACK);
    say_memory(&a, DV_MEMORY_RETURN, 1, 20 * MIB, 0);
    hear_memory(&b, DV_MEMORY_RESERVED);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

/* A round asks a batch of sessions in each step. */
static void a_crowd_is_asked_in_steps(void **state)
{
    enum { CROWD = 200 };
    static struct peer crowd[CROWD];

    (void)state;
    stage_start(&stage, 1);
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(peer_begin(&stage, &crowd[i], "x"), 0);
        say_memory(&crowd[i], DV_MEMORY_RESERVE, 1, MIB / 4, 0);
        hear_memory(&crowd[i], DV_MEMORY_RESERVED);
    }
    peer_begin(&stage, &a, "x");
    say_memory(&a, DV_MEMORY_RESERVE, 1, 60 * MIB, 0);
    int asked = 0;
    for (int i = 0; i < CROWD; i++)
        asked += crowd[i].first < crowd[i].count;
    assert_int_equal(asked, DV_MAX_BATCH);
    stage_pass(&stage, 10 * MS);
    for (int i = 0; i < CROWD; i++) {
        hear_memory(&crowd[i], DV_MEMORY_CALL_BACK);
        say_memory(&crowd[i], DV_MEMORY_RETURN, 1, MIB / 4, 0);
    }
    stage_pass(&stage, 200 * MS);
    hear_memory(&a, DV_MEMORY_RESERVED);
    /* and all of them wait at once */
    for (int i = 0; i < CROWD; i++) {
        forget_messages(&crowd[i]);
        say_memory(&crowd[i], DV_MEMORY_RESERVE, 2, 32 * MIB, 0);
    }
    stage_pass(&stage, DV_NS_PER_S);
    for (int i = 0; i < CROWD; i++) {
        hear_memory(&crowd[i], DV_MEMORY_REFUSED);
        peer_end(&crowd[i]);
    }
    peer_end(&a);
    stage_end(&stage);
}

static void what_the_host_cannot_keep_is_refused(void **state)
{
    struct dvd_identity identity = tenant_named("x");

    (void)state;
    stage_start(&stage, 1);
    stage_host_available = 130 * MIB; /* of which 128 are left to the host */
    identity.terms.host_bytes = 8 * MIB;
    identity.terms.memory.bytes = 1024 * MIB;
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &nothing), 0);
    say_memory(&a, DV_MEMORY_RESERVE, 1, 4 * MIB, 0);
    stage_pass(&stage, DV_NS_PER_S);
    hear_memory(&a, DV_MEMORY_REFUSED);
    say_memory(&a, DV_MEMORY_RESERVE, 2, MIB / 2, 0); /* little is always granted */
    hear_memory(&a, DV_MEMORY_RESERVED);
    stage_host_available = 1024 * MIB;
    stage_pass(&stage, DV_NS_PER_S);
    say_memory(&a, DV_MEMORY_RESERVE, 3, 80 * MIB, 0); /* beyond the device and its part of the host */
    stage_pass(&stage, DV_NS_PER_S);
    hear_memory(&a, DV_MEMORY_REFUSED);
    say_memory(&a, DV_MEMORY_RESERVE, 4, 70 * MIB, 0);
    hear_memory(&a, DV_MEMORY_RESERVED);
    peer_end(&a);
    stage_end(&stage);
}

/* ---- room ---- */

static void hold(struct peer *peer)
{
    say_want(peer);
    stage_pass(&stage, 10 * MS);
    hear_lease(peer, DV_LEASE_GRANT);
}

static void give_back(struct peer *peer)
{
    say_release(peer, false);
    stage_pass(&stage, 10 * MS);
    forget_messages(peer);
}

/* Brings memory onto the device in a turn of its own. */
static void bring(struct peer *peer, uint64_t bytes)
{
    hold(peer);
    say_memory(peer, DV_MEMORY_PLACE, ++peer->next_id, bytes, 0);
    assert_true(hear_memory(peer, DV_MEMORY_PLACED)->bytes >= bytes);
    say_memory(peer, DV_MEMORY_IN_PLACE, 0, 0, 0);
    hear_lease(peer, DV_LEASE_EXTEND);
    give_back(peer);
}

static void start(const char *tenant_a, const char *tenant_b)
{
    stage_start(&stage, 1);
    assert_int_equal(peer_begin(&stage, &a, tenant_a), 0);
    assert_int_equal(peer_begin(&stage, &b, tenant_b), 0);
}

static void end(void)
{
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

static void a_holder_gets_room_and_a_little_more(void **state)
{
    (void)state;
    start("a", "b");
    say_memory(&a, DV_MEMORY_PLACE, 1, 8 * MIB, 0); /* without the device */
    hear_nothing(&a);
    say_memory(&a, DV_MEMORY_IN_PLACE, 0, 0, 0);
    hold(&a);
    say_memory(&a, DV_MEMORY_PLACE, 2, 8 * MIB, 0);
    const struct dv_memory_message *m = hear_memory(&a, DV_MEMORY_PLACED);
    assert_int_equal(m->id, 2);
    assert_int_equal(m->bytes, 8 * MIB + 7 * MIB); /* an eighth of what is left */
    say_memory(&a, DV_MEMORY_IN_PLACE, 0, 0, 0);
    hear_lease(&a, DV_LEASE_EXTEND);
    say_memory(&a, DV_MEMORY_UNPLACE, 0, 3 * MIB, 0);
    assert_int_equal(device()->memory.placed, 12 * MIB);
    assert_ptr_equal(device()->memory.sessions, a.lessee.leases[0]);
    say_memory(&a, DV_MEMORY_UNPLACE, 0, 100 * MIB, 0);
    assert_null(device()->memory.sessions);
    end();
}

static void idle_sessions_evict_for_the_holder(void **state)
{
    (void)state;
    start("a", "b");
    bring(&a, 60 * MIB);
    hold(&b);
    say_memory(&b, DV_MEMORY_PLACE, 1, 20 * MIB, 0);
    const struct dv_memory_message *m = hear_memory(&a, DV_MEMORY_EVICT);
    uint64_t lacks = a.lessee.leases[0]->memory.placed + 20 * MIB - 64 * MIB;
    assert_int_equal(m->bytes, lacks);
    hear_nothing(&b);
    say_memory(&a, DV_MEMORY_UNPLACE, m->id, lacks, 0);
    hear_memory(&b, DV_MEMORY_PLACED);
    assert_true(a.lessee.leases[0]->memory.away > 0);
    end();
}

static void a_request_protects_memory_from_others(void **state)
{
    struct dvd_identity identity = tenant_named("a");

    (void)state;
    stage_start(&stage, 1);
    identity.terms.memory_request.bytes = 50 * MIB;
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &nothing), 0);
    assert_int_equal(peer_begin(&stage, &b, "b"), 0);
    bring(&a, 60 * MIB);
    uint64_t has = a.lessee.leases[0]->memory.placed;
    hold(&b);
    say_memory(&b, DV_MEMORY_PLACE, 1, 40 * MIB, 0);
    assert_int_equal(hear_memory(&a, DV_MEMORY_EVICT)->bytes, has - 50 * MIB);
    say_memory(&a, DV_MEMORY_UNPLACE, 0, has - 50 * MIB, 0);
    hear_memory(&b, DV_MEMORY_NO_ROOM); /* the rest stays */
    end();
}

static void a_session_that_keeps_is_not_asked_again_in_its_turn(void **state)
{
    (void)state;
    start("a", "b");
    bring(&a, 60 * MIB);
    hold(&b);
    say_memory(&b, DV_MEMORY_PLACE, 1, 20 * MIB, 0);
    const struct dv_memory_message *m = hear_memory(&a, DV_MEMORY_EVICT);
    uint64_t id = m->id, bytes = m->bytes;
    say_memory(&a, DV_MEMORY_KEEPS, id - 1, 0, 0); /* an older question */
    assert_false(a.lessee.leases[0]->memory.keeps);
    say_memory(&a, DV_MEMORY_KEEPS, id, bytes, 0);
    hear_memory(&b, DV_MEMORY_NO_ROOM);
    assert_true(a.lessee.leases[0]->memory.keeps);
    say_memory(&b, DV_MEMORY_PLACE, 2, 20 * MIB, 0);
    hear_memory(&b, DV_MEMORY_NO_ROOM);
    /* in line it waits until the other can evict again, and is asked now and then */
    say_memory(&b, DV_MEMORY_PLACE, 3, 20 * MIB, DV_MEMORY_WAITS);
    hear_nothing(&b);
    assert_true(b.lessee.leases[0]->memory.is_queued);
    assert_int_equal(device()->memory.queued, 1);
    stage_pass(&stage, 150 * MS);
    m = hear_memory(&a, DV_MEMORY_EVICT);
    say_memory(&a, DV_MEMORY_MOVES, m->id, m->bytes / 2, 0);
    say_memory(&a, DV_MEMORY_MOVES, m->id, UINT64_C(1) << 40, 0); /* more than it has */
    say_memory(&a, DV_MEMORY_MOVES, m->id, 1, 0);
    say_memory(&a, DV_MEMORY_UNPLACE, m->id, m->bytes, 0);
    hear_memory(&b, DV_MEMORY_PLACED);
    end();
}

static void kept_memory_ends_the_wait_after_the_patience(void **state)
{
    (void)state;
    start("a", "b");
    stage.devices[0].room_patience_ns = DV_NS_PER_S;
    stage_set_devices(&stage, 1);
    bring(&a, 60 * MIB);
    hold(&b);
    say_memory(&b, DV_MEMORY_PLACE, 1, 20 * MIB, DV_MEMORY_WAITS);
    for (int i = 0; i < 100 && b.first == b.count; i++) {
        while (a.first < a.count)
            say_memory(&a, DV_MEMORY_KEEPS, hear_memory(&a, DV_MEMORY_EVICT)->id, 64 * MIB, 0);
        stage_pass(&stage, 50 * MS);
    }
    hear_memory(&b, DV_MEMORY_NO_ROOM);
    assert_int_equal(device()->memory.queued, 0);
    end();
}

static void a_silent_session_is_passed_over(void **state)
{
    (void)state;
    start("a", "b");
    bring(&a, 60 * MIB);
    hold(&b);
    say_memory(&b, DV_MEMORY_PLACE, 1, 20 * MIB, 0);
    hear_memory(&a, DV_MEMORY_EVICT);
    stage_pass(&stage, 1900 * MS);
    while (b.first < b.count) /* it is recalled? no other waits */
        hear_lease(&b, DV_LEASE_RECALL);
    stage_pass(&stage, 200 * MS);
    hear_memory(&b, DV_MEMORY_NO_ROOM);
    assert_true(a.lessee.leases[0]->memory.is_silent);
    assert_int_equal(a.lessee.leases[0]->memory.late, 1);
    say_memory(&a, DV_MEMORY_UNPLACE, 0, MIB, 0); /* it speaks again */
    assert_false(a.lessee.leases[0]->memory.is_silent);
    assert_int_equal(a.overdue, 0);
    end();
}

/* Evicting in tiny steps does not count as progress. */
static void progress_is_measured_in_bytes(void **state)
{
    (void)state;
    start("a", "b");
    bring(&a, 60 * MIB);
    hold(&b);
    say_memory(&b, DV_MEMORY_PLACE, 1, 20 * MIB, 0);
    for (int i = 0; i < 25 && b.first == b.count; i++) {
        say_memory(&a, DV_MEMORY_UNPLACE, 0, 4096, 0);
        stage_pass(&stage, 100 * MS);
    }
    hear_memory(&b, DV_MEMORY_NO_ROOM);
    end();
}

static void set_deadlines(dv_ns time, dv_ns memory)
{
    struct dvd_ledger_terms terms = {0};

    for (int i = 0; i < DV_CLASS_COUNT; i++) {
        terms.deadline_ns[i] = time;
        terms.memory_deadline_ns[i] = memory;
    }
    dvd_ledger_set_terms(&stage.ledger, &terms);
}

static void with_a_deadline_a_silent_session_is_ended(void **state)
{
    (void)state;
    start("a", "b");
    set_deadlines(DV_NS_PER_S, DV_NS_PER_S);
    bring(&a, 60 * MIB);
    hold(&b);
    say_memory(&b, DV_MEMORY_PLACE, 1, 20 * MIB, 0);
    stage_pass(&stage, 1100 * MS);
    assert_true(a.overdue > 0);
    assert_string_equal(a.reason, "memory of a device");
    hear_nothing(&b);
    peer_end(&a);
    hear_memory(&b, DV_MEMORY_PLACED);
    peer_end(&b);
    stage_end(&stage);
}

static void a_program_loses_its_memory_in_the_ledger(void **state)
{
    (void)state;
    start("a", "b");
    set_deadlines(DV_NS_PER_S, DV_NS_PER_S);
    a.lessee.has_worker = false;
    hold(&a);
    say_memory(&a, DV_MEMORY_PLACE, 1, 60 * MIB, 0);
    hear_memory(&a, DV_MEMORY_PLACED);
    give_back(&a);
    hold(&b);
    say_memory(&b, DV_MEMORY_PLACE, 1, 20 * MIB, 0);
    stage_pass(&stage, 1100 * MS);
    assert_int_equal(a.overdue, 1);
    hear_memory(&b, DV_MEMORY_PLACED);
    assert_int_equal(a.lessee.leases[0]->memory.placed, 0);
    end();
}

static void memory_beyond_a_fair_part_is_reclaimed(void **state)
{
    (void)state;
    start("a", "b");
    a.lessee.has_worker = false;
    hold(&a);
    say_memory(&a, DV_MEMORY_PLACE, 1, 60 * MIB, 0);
    hear_memory(&a, DV_MEMORY_PLACED);
    give_back(&a);
    hold(&b);
    for (int i = 0; i < 40 && a.overdue == 0; i++) { /* it always answers that it keeps all */
        say_memory(&b, DV_MEMORY_PLACE, (uint64_t)i + 1, 20 * MIB, 0);
        while (a.first < a.count)
            say_memory(&a, DV_MEMORY_KEEPS, hear_memory(&a, DV_MEMORY_EVICT)->id, 64 * MIB, 0);
        stage_pass(&stage, 100 * MS);
    }
    assert_int_equal(a.overdue, 1);
    assert_true(a.lessee.leases[0]->tenant->memory.hoards);
    assert_int_equal(a.lessee.leases[0]->memory.placed, 0);
    /* and it gets no room ahead of its turn from now on */
    say_memory(&a, DV_MEMORY_PLACE, 9, MIB, DV_MEMORY_AHEAD);
    hear_memory(&a, DV_MEMORY_NO_ROOM);
    end();
}

static void a_worker_that_overstays_is_ended(void **state)
{
    (void)state;
    start("a", "b");
    set_deadlines(DV_NS_PER_S, 0);
    bring(&a, 60 * MIB);
    hold(&b);
    for (int i = 0; i < 40 && a.overdue == 0; i++) {
        say_memory(&b, DV_MEMORY_PLACE, (uint64_t)i + 1, 20 * MIB, 0);
        while (a.first < a.count)
            say_memory(&a, DV_MEMORY_KEEPS, hear_memory(&a, DV_MEMORY_EVICT)->id, 64 * MIB, 0);
        stage_pass(&stage, 100 * MS);
    }
    assert_true(a.overdue > 0);
    assert_true(a.lessee.leases[0]->memory.placed > 0); /* until it ends */
    end();
}

static void sessions_of_one_tenant_share_its_quota(void **state)
{
    struct dvd_identity identity = tenant_named("x");

    (void)state;
    stage_start(&stage, 1);
    identity.terms.memory.bytes = 20 * MIB;
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &nothing), 0);
    assert_int_equal(peer_begin_as(&stage, &b, &identity, &nothing), 0);
    assert_int_equal(peer_begin(&stage, &c, "other"), 0);
    bring(&c, 16 * MIB);
    bring(&a, 16 * MIB);
    hold(&b);
    say_memory(&b, DV_MEMORY_PLACE, 1, 16 * MIB, 0);
    hear_memory(&a, DV_MEMORY_EVICT); /* its own tenant's, although the device has room */
    hear_nothing(&c);
    say_memory(&a, DV_MEMORY_UNPLACE, 0, 20 * MIB, 0);
    hear_memory(&b, DV_MEMORY_PLACED);
    give_back(&b);
    /* a smaller quota evicts the rest */
    struct dvd_share_change change = {.has_memory = true, .memory = {.bytes = 4 * MIB}};
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &change, false, text, sizeof text), 0);
    assert_true(hear_memory(&b, DV_MEMORY_EVICT)->bytes >= 12 * MIB);
    /* also what a holder cannot evict now, when it gives the device back */
    hold(&b);
    say_memory(&b, DV_MEMORY_KEEPS, b.lessee.leases[0]->memory.evict_id, 64 * MIB, 0);
    say_release(&b, false);
    hear_memory(&b, DV_MEMORY_EVICT);
    peer_end(&a);
    peer_end(&b);
    peer_end(&c);
    stage_end(&stage);
}

static void lower_classes_evict_first(void **state)
{
    struct dvd_share_change latency = {.has_class = true, .class = DV_CLASS_LATENCY};
    struct dvd_share_change batch = {.has_class = true, .class = DV_CLASS_BATCH};
    struct dvd_identity x = tenant_named("x"), y = tenant_named("y"), z = tenant_named("z");

    (void)state;
    stage_start(&stage, 1);
    assert_int_equal(peer_begin_as(&stage, &a, &x, &latency), 0);
    assert_int_equal(peer_begin_as(&stage, &b, &y, &batch), 0);
    assert_int_equal(peer_begin_as(&stage, &c, &z, &nothing), 0);
    bring(&a, 20 * MIB);
    bring(&b, 20 * MIB);
    hold(&c);
    say_memory(&c, DV_MEMORY_PLACE, 1, 30 * MIB, 0);
    hear_memory(&b, DV_MEMORY_EVICT);
    hear_nothing(&a);
    say_memory(&b, DV_MEMORY_UNPLACE, 0, 64 * MIB, 0);
    while (c.first < c.count && c.messages[c.first % MESSAGES_MAX].memory.type != DV_MEMORY_NO_ROOM)
        hear_memory(&c, DV_MEMORY_PLACED);
    /* a better class evicts only as a last resort */
    say_memory(&c, DV_MEMORY_PLACE, 2, 60 * MIB - c.lessee.leases[0]->memory.placed, DV_MEMORY_WAITS);
    hear_memory(&a, DV_MEMORY_EVICT);
    peer_end(&a);
    peer_end(&b);
    peer_end(&c);
    stage_end(&stage);
}

/* ---- ahead of a turn ---- */

static void a_waiting_session_gets_free_room_ahead(void **state)
{
    (void)state;
    start("a", "b");
    hold(&a);
    say_want(&b);
    say_memory(&b, DV_MEMORY_PLACE, 1, 10 * MIB, DV_MEMORY_AHEAD);
    assert_int_equal(hear_memory(&b, DV_MEMORY_PLACED)->bytes, 10 * MIB);
    say_memory(&b, DV_MEMORY_PLACE, 2, 100 * MIB, DV_MEMORY_AHEAD);
    assert_int_equal(hear_memory(&b, DV_MEMORY_PLACED)->bytes, 54 * MIB); /* all there is */
    say_memory(&b, DV_MEMORY_PLACE, 3, MIB, DV_MEMORY_AHEAD);
    hear_memory(&b, DV_MEMORY_NO_ROOM);
    end();
}

static void idle_sessions_evict_ahead_of_a_turn(void **state)
{
    (void)state;
    start("a", "b");
    stage.devices[0].copies_beside = true;
    stage_set_devices(&stage, 1);
    assert_int_equal(peer_begin(&stage, &c, "c"), 0);
    bring(&c, 50 * MIB);
    uint64_t has = c.lessee.leases[0]->memory.placed;
    stage_pass(&stage, 2 * DV_NS_PER_S); /* it is idle */
    hold(&a);
    say_want(&b);
    say_memory(&b, DV_MEMORY_PLACE, 1, 40 * MIB, DV_MEMORY_AHEAD);
    hear_nothing(&b);
    const struct dv_memory_message *m = hear_memory(&c, DV_MEMORY_EVICT);
    assert_int_equal(m->bytes, 40 * MIB - (64 * MIB - has));
    say_memory(&c, DV_MEMORY_UNPLACE, m->id, m->bytes, 0);
    assert_int_equal(hear_memory(&b, DV_MEMORY_PLACED)->bytes, 40 * MIB);
    /* a holder that needs the room comes first */
    say_memory(&b, DV_MEMORY_UNPLACE, 0, 40 * MIB, 0);
    say_memory(&b, DV_MEMORY_PLACE, 2, 64 * MIB, DV_MEMORY_AHEAD);
    hear_memory(&c, DV_MEMORY_EVICT);
    say_memory(&a, DV_MEMORY_PLACE, 1, 60 * MIB, 0);
    hear_memory(&b, DV_MEMORY_NO_ROOM);
    /* and the session that leaves is forgotten */
    say_memory(&b, DV_MEMORY_PLACE, 3, 64 * MIB, DV_MEMORY_AHEAD);
    peer_end(&b);
    assert_null(device()->memory.ahead);
    peer_end(&a);
    peer_end(&c);
    stage_end(&stage);
}

/* ---- moving ---- */

static void a_turn_is_longer_for_what_was_moved(void **state)
{
    (void)state;
    start("a", "b");
    hold(&a);
    say_memory(&a, DV_MEMORY_PLACE, 1, 50 * MIB, 0);
    hear_memory(&a, DV_MEMORY_PLACED);
    stage_pass(&stage, 100 * MS);
    say_memory(&a, DV_MEMORY_IN_PLACE, 0, UINT64_C(1) << 40, 0); /* its own word does not count */
    hear_lease(&a, DV_LEASE_EXTEND);
    assert_true(a.lessee.leases[0]->memory.moved_ns <= 100 * MS);
    assert_true(a.lessee.leases[0]->memory.moved_ns > 0);
    /* nothing counts where nothing moves */
    stage.devices[0].swaps = false;
    stage_set_devices(&stage, 1);
    dv_ns moved = a.lessee.leases[0]->memory.moved_ns;
    say_memory(&a, DV_MEMORY_PLACE, 2, MIB, 0);
    stage_pass(&stage, 100 * MS);
    say_memory(&a, DV_MEMORY_IN_PLACE, 0, 0, 0);
    assert_int_equal(a.lessee.leases[0]->memory.moved_ns, moved);
    end();
}

static void a_holder_that_leaves_makes_room(void **state)
{
    (void)state;
    start("a", "b");
    stage.devices[0].slots = 2;
    stage_set_devices(&stage, 1);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
    stage_start(&stage, 1);
    stage.devices[0].slots = 2;
    stage_set_devices(&stage, 1);
    peer_begin(&stage, &a, "a");
    peer_begin(&stage, &b, "b");
    hold(&a);
    say_memory(&a, DV_MEMORY_PLACE, 1, 60 * MIB, 0);
    hear_memory(&a, DV_MEMORY_PLACED);
    hold(&b);
    say_memory(&b, DV_MEMORY_PLACE, 1, 20 * MIB, 0); /* a holds, and cannot be asked */
    hear_memory(&b, DV_MEMORY_NO_ROOM);
    say_memory(&b, DV_MEMORY_PLACE, 2, 20 * MIB, DV_MEMORY_WAITS);
    hear_nothing(&b);
    peer_end(&a);
    hear_memory(&b, DV_MEMORY_PLACED);
    peer_end(&b);
    stage_end(&stage);
}

/* Two sessions hold a device together only if their memory fits. */
static void sessions_run_beside_each_other_if_they_fit(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    stage.devices[0].slots = 2;
    stage_set_devices(&stage, 1);
    peer_begin(&stage, &a, "a");
    peer_begin(&stage, &b, "b");
    peer_begin(&stage, &c, "a");
    say_memory(&a, DV_MEMORY_RESERVE, 1, 40 * MIB, 0);
    say_memory(&b, DV_MEMORY_RESERVE, 1, 40 * MIB, 0);
    forget_messages(&a);
    forget_messages(&b);
    say_want(&a);
    hear_lease(&a, DV_LEASE_GRANT);
    say_want(&b);
    hear_nothing(&b); /* 80 MiB do not fit */
    say_memory(&b, DV_MEMORY_RETURN, 0, 20 * MIB, 0);
    say_want(&b);
    hear_lease(&b, DV_LEASE_GRANT);
    say_release(&b, false);
    say_memory(&c, DV_MEMORY_RESERVE, 1, 30 * MIB, 0); /* beyond the quota that it shares with a */
    stage_pass(&stage, DV_NS_PER_S);
    hear_memory(&c, DV_MEMORY_REFUSED);
    peer_end(&a);
    peer_end(&b);
    peer_end(&c);
    stage_end(&stage);
}

static void without_timers_evictions_are_not_waited_for(void **state)
{
    (void)state;
    start("a", "b");
    bring(&a, 60 * MIB);
    hold(&b);
    dv_log_set_level(DV_LOG_ERROR);
    stage.no_timers = true;
    say_memory(&b, DV_MEMORY_PLACE, 1, 20 * MIB, 0);
    hear_memory(&a, DV_MEMORY_EVICT);
    assert_true(a.lessee.leases[0]->memory.is_silent);
    say_memory(&a, DV_MEMORY_UNPLACE, 0, 64 * MIB, 0);
    hear_memory(&b, DV_MEMORY_PLACED);
    say_memory(&b, DV_MEMORY_RESERVE, 1, 60 * MIB, 0);
    hear_memory(&b, DV_MEMORY_RESERVED);
    peer_begin(&stage, &d, "b");
    say_memory(&d, DV_MEMORY_RESERVE, 1, 60 * MIB, 0);
    say_memory(&b, DV_MEMORY_RETURN, 1, 60 * MIB, 0);
    hear_memory(&d, DV_MEMORY_RESERVED);
    stage.no_timers = false;
    peer_end(&d);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reservation_within_the_quota_is_granted),
        cmocka_unit_test(messages_about_memory_are_checked),
        cmocka_unit_test(sessions_return_unused_bytes_to_one_that_asks),
        cmocka_unit_test(a_session_that_does_not_answer_is_not_waited_for),
        cmocka_unit_test(two_that_ask_at_once_are_both_called),
        cmocka_unit_test(a_crowd_is_asked_in_steps),
        cmocka_unit_test(what_the_host_cannot_keep_is_refused),
        cmocka_unit_test(a_holder_gets_room_and_a_little_more),
        cmocka_unit_test(idle_sessions_evict_for_the_holder),
        cmocka_unit_test(a_request_protects_memory_from_others),
        cmocka_unit_test(a_session_that_keeps_is_not_asked_again_in_its_turn),
        cmocka_unit_test(kept_memory_ends_the_wait_after_the_patience),
        cmocka_unit_test(a_silent_session_is_passed_over),
        cmocka_unit_test(progress_is_measured_in_bytes),
        cmocka_unit_test(with_a_deadline_a_silent_session_is_ended),
        cmocka_unit_test(a_program_loses_its_memory_in_the_ledger),
        cmocka_unit_test(memory_beyond_a_fair_part_is_reclaimed),
        cmocka_unit_test(a_worker_that_overstays_is_ended),
        cmocka_unit_test(sessions_of_one_tenant_share_its_quota),
        cmocka_unit_test(lower_classes_evict_first),
        cmocka_unit_test(a_waiting_session_gets_free_room_ahead),
        cmocka_unit_test(idle_sessions_evict_ahead_of_a_turn),
        cmocka_unit_test(a_turn_is_longer_for_what_was_moved),
        cmocka_unit_test(a_holder_that_leaves_makes_room),
        cmocka_unit_test(sessions_run_beside_each_other_if_they_fit),
        cmocka_unit_test(without_timers_evictions_are_not_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
