/* The time of a device: grants, recalls, releases, deadlines, and what a session may say. */
#include "tests/unit/ledger/stage.h"

static struct stage stage;
static struct peer a, b, c;

static struct dvd_device *device(uint32_t index)
{
    return &stage.ledger.devices[index];
}

/* ---- grants ---- */

static void a_session_alone_is_granted_at_once(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    assert_int_equal(peer_begin(&stage, &a, "a"), 0);
    say_want(&a);
    const struct dv_lease_message *grant = hear_lease(&a, DV_LEASE_GRANT);
    assert_int_equal(grant->flags, DV_LEASE_ALONE);
    assert_true(grant->slice_ns > 0 && grant->serial == 1);
    say_want(&a); /* it has it */
    hear_nothing(&a);
    stage_pass(&stage, 10 * MS);
    say_release(&a, false);
    hear_nothing(&a);
    assert_int_equal(a.lessee.leases[0]->used_ns, 10 * MS);
    assert_int_equal(device(0)->decisions.count, 1);
    peer_end(&a);
    stage_end(&stage);
}

static void the_next_is_granted_when_the_first_gives_back(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "a");
    peer_begin(&stage, &b, "b");
    say_want(&a);
    assert_int_equal(hear_lease(&a, DV_LEASE_GRANT)->flags, 0);
    say_want(&b);
    hear_nothing(&b);
    stage_pass(&stage, 300 * MS);
    assert_int_equal(hear_lease(&a, DV_LEASE_RECALL)->serial, a.serial);
    assert_int_equal(a.lessee.leases[0]->recalls, 1);
    say_release(&a, true);
    assert_int_equal(hear_lease(&b, DV_LEASE_GRANT)->flags & DV_LEASE_CONTENDED, DV_LEASE_CONTENDED);
    hear_nothing(&a);
    stage_pass(&stage, 5 * MS);
    say_release(&b, false);
    stage_pass(&stage, 5 * MS); /* b has had less, and may be back at once */
    hear_lease(&a, DV_LEASE_GRANT);
    peer_end(&a); /* while it holds */
    peer_end(&b);
    stage_end(&stage);
}

static void a_waiting_session_can_cancel_or_leave(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "a");
    peer_begin(&stage, &b, "b");
    peer_begin(&stage, &c, "c");
    say_want(&a);
    hear_lease(&a, DV_LEASE_GRANT);
    say_want(&b);
    say_want(&c);
    say_lease(&b, 0, DV_LEASE_CANCEL, 0, 0);
    peer_end(&c);
    say_release(&a, false);
    hear_nothing(&b);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

static void two_slots_hold_two_sessions(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    stage.devices[0].slots = 2;
    stage_set_devices(&stage, 1);
    peer_begin(&stage, &a, "a");
    peer_begin(&stage, &b, "b");
    peer_begin(&stage, &c, "c");
    say_want(&a);
    say_want(&b);
    say_want(&c);
    hear_lease(&a, DV_LEASE_GRANT);
    hear_lease(&b, DV_LEASE_GRANT);
    hear_nothing(&c);
    say_release(&b, false);
    hear_lease(&c, DV_LEASE_GRANT);
    peer_end(&a);
    peer_end(&b);
    peer_end(&c);
    stage_end(&stage);
}

/* Half of a slot's time is a quarter of two slots' time. */
static void usage_counts_the_slots(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    stage.devices[0].slots = 2;
    stage_set_devices(&stage, 1);
    peer_begin(&stage, &a, "a");
    for (int i = 0; i < 10; i++) {
        say_want(&a);
        hear_lease(&a, DV_LEASE_GRANT);
        stage_pass(&stage, 50 * MS);
        say_release(&a, false);
        stage_pass(&stage, 50 * MS);
    }
    struct dvd_tenant_device *tenant = a.lessee.leases[0]->tenant;
    assert_in_range(dvd_tenant_figures(tenant).had.ppm_1s, 225000, 275000);
    say_want(&a); /* and the present hold counts */
    hear_lease(&a, DV_LEASE_GRANT);
    stage_pass(&stage, 1000 * MS);
    assert_in_range(dvd_tenant_figures(tenant).had.ppm_1s, 475000, 525000);
    peer_end(&a);
    stage_end(&stage);
}

/* A counter never goes back: at its end a hold counts as much as just before. */
static void used_time_is_the_same_before_and_after_a_release(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    stage.devices[0].slots = 2;
    stage_set_devices(&stage, 1);
    peer_begin(&stage, &a, "a");
    struct dvd_tenant_device *tenant = a.lessee.leases[0]->tenant;
    dv_ns before = 0;
    for (int i = 1; i <= 3; i++) {
        say_want(&a);
        hear_lease(&a, DV_LEASE_GRANT);
        assert_int_equal(dvd_tenant_figures(tenant).used_ns, before);
        stage_pass(&stage, DV_NS_PER_S);
        dv_ns held = dvd_tenant_figures(tenant).used_ns;
        assert_int_equal(held, i * 500 * MS); /* one of two slots */
        assert_int_equal(dvd_lease_figures(a.lessee.leases[0]).used_ns, held);
        say_release(&a, false);
        before = dvd_tenant_figures(tenant).used_ns;
        assert_int_equal(before, held);
        assert_int_equal(dvd_lease_figures(a.lessee.leases[0]).used_ns, held);
        stage_pass(&stage, 10 * MS);
    }
    peer_end(&a);
    stage_end(&stage);
}

/* Slices and holds can be longer than the second in which shares are compared, as where memory is moved. */
static void a_share_is_off_by_at_most_the_whole(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "a");
    struct dvd_tenant_device *tenant = a.lessee.leases[0]->tenant;
    assert_in_range(dvd_tenant_figures(tenant).bound_ppm, 1, DV_PPM);
    say_want(&a);
    hear_lease(&a, DV_LEASE_GRANT);
    stage_pass(&stage, 10 * DV_NS_PER_S);
    say_release(&a, false);
    assert_true(dv_policy_error_bound(0, device(0)->policy.longest_hold_ns) > DV_NS_PER_S);
    assert_int_equal(dvd_tenant_figures(tenant).bound_ppm, DV_PPM);
    peer_end(&a);
    stage_end(&stage);
}

static void sessions_of_one_tenant_share_its_part(void **state)
{
    (void)state;
    dv_ns held[3] = {0};
    struct peer *peers[] = {&a, &b, &c};

    stage_start(&stage, 1);
    peer_begin(&stage, &a, "one");
    peer_begin(&stage, &b, "two");
    peer_begin(&stage, &c, "two");
    for (int i = 0; i < 3; i++)
        say_want(peers[i]);
    for (int turn = 0; turn < 400; turn++)
        for (int i = 0; i < 3; i++) {
            if (peers[i]->first == peers[i]->count)
                continue;
            hear_lease(peers[i], DV_LEASE_GRANT);
            stage_pass(&stage, 5 * MS);
            forget_messages(peers[i]);
            held[i] += 5 * MS;
            say_release(peers[i], true);
        }
    assert_in_range(held[0] * 100 / (held[0] + held[1] + held[2]), 47, 53);
    assert_in_range(held[1] * 100 / (held[1] + held[2]), 45, 55);
    for (int i = 0; i < 3; i++)
        peer_end(peers[i]);
    stage_end(&stage);
}

/* ---- what may not be believed ---- */

static void messages_of_the_past_or_of_other_devices_are_ignored(void **state)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC, .version = DV_LEASE_VERSION + 1, .type = DV_LEASE_WANT};

    (void)state;
    stage_start(&stage, 2);
    stage.devices[1].is_hidden = true;
    stage_set_devices(&stage, 2);
    stage.ledger.terms.keeps_order = true;
    peer_begin(&stage, &a, "a");
    peer_begin(&stage, &b, "b");
    say(&a, &m, sizeof m);
    say(&a, &m, 4);
    m.version = DV_LEASE_VERSION;
    m.magic = 0;
    say(&a, &m, sizeof m);
    say_lease(&a, 1, DV_LEASE_WANT, 0, 0); /* its time is not shared out */
    say_lease(&a, DV_MAX_DEVICES, DV_LEASE_WANT, 0, 0);
    say_lease(&a, UINT32_MAX, DV_LEASE_WANT, 0, 0);
    say_lease(&a, 0, DV_LEASE_GRANT, 0, 0);
    say_lease(&a, 0, DV_LEASE_RELEASE, 0, 0);
    hear_nothing(&a);
    say_want(&a);
    hear_lease(&a, DV_LEASE_GRANT);
    say_want(&b);
    say_lease(&a, 0, DV_LEASE_RELEASE, a.serial + 1, 0);
    hear_nothing(&b);
    say_release(&a, false);
    hear_lease(&b, DV_LEASE_GRANT);
    say_release(&a, true); /* the second time only its wish for another counts */
    hear_nothing(&a);
    say_release(&b, false);
    stage_pass(&stage, 5 * MS);
    hear_lease(&a, DV_LEASE_GRANT);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

static void a_release_before_any_use_is_ignored(void **state)
{
    (void)state;
    stage_start(&stage, 2);
    peer_begin(&stage, &a, "a");
    say_lease(&a, 1, DV_LEASE_RELEASE, 1, DV_LEASE_AGAIN);
    assert_null(a.lessee.leases[1]);
    peer_end(&a);
    stage_end(&stage);
}

static void estimates_are_bounded(void **state)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = DV_LEASE_WANT,
                                 .kernel_ns = UINT64_MAX,
                                 .p90_ns = 7,
                                 .last_ns = UINT64_MAX};

    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "a");
    say(&a, &m, sizeof m);
    const struct dv_burst *burst = &a.lessee.leases[0]->policy.burst;
    assert_int_equal(burst->kernel_ns, DV_LEASE_ESTIMATE_MAX_NS);
    assert_int_equal(burst->p90_ns, 7);
    hear_lease(&a, DV_LEASE_GRANT);
    m.type = DV_LEASE_RELEASE;
    m.serial = a.serial;
    m.compile_ns = m.busy_ns = UINT64_MAX;
    m.flags = DV_LEASE_AGAIN;
    say(&a, &m, sizeof m);
    assert_int_equal(a.lessee.leases[0]->compile_ns, DV_LEASE_ESTIMATE_MAX_NS);
    peer_end(&a);
    stage_end(&stage);
}

/* ---- holders that do not give back ---- */

static void set_deadline(dv_ns deadline, dv_ns for_memory)
{
    struct dvd_ledger_terms terms = {0};

    for (int i = 0; i < DV_CLASS_COUNT; i++) {
        terms.deadline_ns[i] = deadline;
        terms.memory_deadline_ns[i] = for_memory;
    }
    dvd_ledger_set_terms(&stage.ledger, &terms);
}

static void hold_and_be_recalled(struct peer *holder, struct peer *waiter)
{
    peer_begin(&stage, holder, "a");
    peer_begin(&stage, waiter, "b");
    say_want(holder);
    hear_lease(holder, DV_LEASE_GRANT);
    say_want(waiter);
    stage_pass(&stage, 300 * MS);
    hear_lease(holder, DV_LEASE_RECALL);
}

static void an_overdue_worker_is_ended(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    set_deadline(DV_NS_PER_S, 0);
    hold_and_be_recalled(&a, &b);
    stage_pass(&stage, 2 * DV_NS_PER_S);
    assert_true(a.overdue >= 1);
    assert_string_equal(a.reason, "a device");
    assert_int_equal(a.deadline, DV_NS_PER_S);
    hear_nothing(&b); /* the device comes back with the worker's end */
    peer_end(&a);
    hear_lease(&b, DV_LEASE_GRANT);
    peer_end(&b);
    stage_end(&stage);
}

static void the_device_is_taken_from_an_overdue_program(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    set_deadline(DV_NS_PER_S, 0);
    peer_begin(&stage, &a, "a");
    a.lessee.has_worker = false;
    peer_begin(&stage, &b, "b");
    say_want(&a);
    hear_lease(&a, DV_LEASE_GRANT);
    say_want(&b);
    stage_pass(&stage, 2 * DV_NS_PER_S);
    assert_int_equal(a.overdue, 1);
    hear_lease(&b, DV_LEASE_GRANT);
    hear_lease(&a, DV_LEASE_RECALL);
    say_release(&a, false); /* of a grant that was taken away */
    hear_nothing(&a);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

static void a_deadline_runs_only_while_others_wait(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    set_deadline(DV_NS_PER_S, 0);
    hold_and_be_recalled(&a, &b);
    stage_pass(&stage, DV_NS_PER_S / 2);
    say_lease(&b, 0, DV_LEASE_CANCEL, 0, 0);
    stage_pass(&stage, 5 * DV_NS_PER_S);
    assert_int_equal(a.overdue, 0);
    say_want(&b);
    stage_pass(&stage, DV_NS_PER_S / 2);
    assert_int_equal(a.overdue, 0); /* it begins anew */
    stage_pass(&stage, DV_NS_PER_S);
    assert_true(a.overdue > 0);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

/* A lower class than the configured one brings no later deadline, whether the tenant or an operator chose it. */
static void the_shorter_deadline_of_two_classes_counts(void **state)
{
    bool by_operator = *state != NULL;
    struct dvd_ledger_terms terms = {.deadline_ns = {[DV_CLASS_STANDARD] = DV_NS_PER_S}};
    struct dvd_share_change change = {.has_class = true, .class = DV_CLASS_IDLE}, none = {0};
    struct dvd_identity identity = tenant_named("a");
    char text[DV_MAX_MESSAGE_TEXT];

    stage_start(&stage, 1);
    dvd_ledger_set_terms(&stage.ledger, &terms);
    assert_int_equal(peer_begin_as(&stage, &a, &identity, by_operator ? &none : &change), 0);
    if (by_operator)
        assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &change, false, text, sizeof text), 0);
    peer_begin(&stage, &b, "b");
    say_want(&a);
    hear_lease(&a, DV_LEASE_GRANT);
    say_want(&b);
    stage_pass(&stage, 2 * DV_NS_PER_S);
    assert_true(a.overdue > 0);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

/* Of a grant to a session that begins now, of a tenant with these terms. */
static uint64_t part_of_grant(struct peer *peer, const char *name, enum dv_class class,
                              enum dvd_slice_kernels slice_kernels)
{
    struct dvd_identity identity = tenant_named(name);
    struct dvd_share_change none = {0};

    identity.terms.share.class = class;
    identity.terms.slice_kernels = slice_kernels;
    assert_int_equal(peer_begin_as(&stage, peer, &identity, &none), 0);
    say_want(peer);
    uint64_t part = hear_lease(peer, DV_LEASE_GRANT)->part_ns;
    say_release(peer, 0);
    return part;
}

/* Kernels are cut finer beside a latency tenant, and coarser without other tenants. */
static void grants_say_how_long_parts_are(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    stage.devices[0].kernel_slice_ns = 5 * DV_NS_PER_MS;
    stage.devices[0].kernel_slice_cost_ppm = 20000;
    stage_set_devices(&stage, 1);
    dvd_ledger_apply_device_terms(&stage.ledger);
    assert_int_equal(part_of_grant(&a, "a", DV_CLASS_BATCH, DV_SLICE_KERNELS_AUTO), 20 * DV_NS_PER_MS);
    assert_int_equal(part_of_grant(&b, "b", DV_CLASS_LATENCY, DV_SLICE_KERNELS_AUTO), 5 * DV_NS_PER_MS);
    assert_int_equal(part_of_grant(&c, "c", DV_CLASS_BATCH, DV_SLICE_KERNELS_AUTO), DV_NS_PER_MS);
    peer_end(&b);
    say_want(&c);
    const struct dv_lease_message *grant = hear_lease(&c, DV_LEASE_GRANT);
    assert_int_equal(grant->part_ns, 5 * DV_NS_PER_MS);
    assert_int_equal(grant->part_cost_ppm, 20000);
    say_release(&c, 0);
    peer_end(&c);
    assert_int_equal(part_of_grant(&b, "never", DV_CLASS_BATCH, DV_SLICE_KERNELS_NEVER), 0);
    peer_end(&b);
    assert_int_equal(part_of_grant(&b, "always", DV_CLASS_BATCH, DV_SLICE_KERNELS_ALWAYS), DV_LEASE_PART_SMALLEST);
    peer_end(&b);
    stage.devices[0].slice_kernels = DV_SLICE_KERNELS_NEVER;
    stage_set_devices(&stage, 1);
    dvd_ledger_apply_device_terms(&stage.ledger);
    assert_int_equal(part_of_grant(&b, "b", DV_CLASS_BATCH, DV_SLICE_KERNELS_ALWAYS), 0);
    peer_end(&b);
    peer_end(&a);
    stage_end(&stage);
}

static void a_stopped_holder_loses_the_device(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    hold_and_be_recalled(&a, &b);
    stage_pass(&stage, 500 * MS);
    hear_nothing(&b); /* a long kernel */
    a.is_stopped = true;
    stage_pass(&stage, 500 * MS);
    hear_lease(&b, DV_LEASE_GRANT);
    a.is_stopped = false;
    say_release(&a, true);
    say_release(&b, false);
    stage_pass(&stage, 5 * MS);
    hear_lease(&a, DV_LEASE_GRANT);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

static void an_unanswered_recall_is_reported_once(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    hold_and_be_recalled(&a, &b);
    assert_int_equal(dvd_device_unanswered(device(0)), 0);
    stage_pass(&stage, 11 * DV_NS_PER_S);
    assert_true(dvd_device_unanswered(device(0)) >= 10 * DV_NS_PER_S);
    assert_int_equal(a.unanswered, 1);
    assert_int_equal(a.deadline, 0);
    stage_pass(&stage, 30 * DV_NS_PER_S);
    assert_int_equal(a.unanswered, 1);
    say_lease(&b, 0, DV_LEASE_CANCEL, 0, 0);
    assert_int_equal(dvd_device_unanswered(device(0)), 0); /* no tenant waits */
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

static void without_timers_messages_still_decide(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    dv_log_set_level(DV_LOG_ERROR);
    stage.no_timers = true;
    peer_begin(&stage, &a, "a");
    peer_begin(&stage, &b, "b");
    say_want(&a);
    hear_lease(&a, DV_LEASE_GRANT);
    say_want(&b);
    stage_pass(&stage, DV_NS_PER_S);
    say_want(&b); /* any message looks again */
    hear_lease(&a, DV_LEASE_RECALL);
    peer_end(&a);
    hear_lease(&b, DV_LEASE_GRANT);
    peer_end(&b);
    stage_end(&stage);
}

/* ---- using a device ---- */

static void a_session_may_turn_to_another_device(void **state)
{
    (void)state;
    stage_start(&stage, 2);
    peer_begin(&stage, &a, "a");
    assert_non_null(a.lessee.leases[0]);
    assert_false(a.lessee.leases[0]->in_use);
    say_lease(&a, 1, DV_LEASE_JOIN, 7, 0);
    assert_int_equal(hear_lease(&a, DV_LEASE_JOINED)->serial, 7);
    assert_null(a.lessee.leases[0]); /* it was only expected there */
    assert_true(a.lessee.leases[1]->in_use && a.lessee.leases[1]->promised);
    say_lease(&a, 1, DV_LEASE_JOIN, 8, 0);
    assert_int_equal(hear_lease(&a, DV_LEASE_JOINED)->serial, 8);
    peer_end(&a);
    stage_end(&stage);
}

static struct dvd_share_change request_of(uint32_t percent)
{
    return (struct dvd_share_change){.has_request = true, .request_ppm = percent * (DV_PPM / 100)};
}

static void a_request_that_does_not_fit_is_turned_away(void **state)
{
    struct dvd_share_change most = request_of(80);
    struct dvd_identity x = tenant_named("x"), y = tenant_named("y");

    (void)state;
    stage_start(&stage, 2);
    assert_int_equal(peer_begin_as(&stage, &a, &x, &most), 0);
    assert_int_equal(peer_begin_as(&stage, &b, &y, &most), 0); /* on the other device */
    uint32_t other = b.lessee.devices[0].number == a.lessee.devices[0].number ? 0 : 1;
    say_lease(&b, other, DV_LEASE_JOIN, 1, 0);
    assert_int_equal(hear_lease(&b, DV_LEASE_TURNED_AWAY)->serial, 1);
    assert_int_equal(b.turned_away, 1);
    assert_non_null(strstr(b.reason, "x 80%"));
    b.answers_late = true;
    say_lease(&b, other, DV_LEASE_JOIN, 2, 0);
    hear_nothing(&b); /* the owner answers */
    /* a session that does not ask works there without the request */
    say_lease(&b, other, DV_LEASE_WANT, 0, 0);
    hear_lease(&b, DV_LEASE_GRANT);
    assert_true(b.lessee.leases[other]->unpromised && !b.lessee.leases[other]->promised);
    say_lease(&b, other, DV_LEASE_RELEASE, b.serial, 0);
    /* and has it as soon as it fits */
    peer_end(&a);
    say_lease(&b, other, DV_LEASE_JOIN, 3, 0);
    hear_lease(&b, DV_LEASE_JOINED);
    assert_true(b.lessee.leases[other]->promised);
    peer_end(&b);
    stage_end(&stage);
}

static void memory_alone_does_not_promise_anything(void **state)
{
    struct dvd_share_change most = request_of(80);
    struct dvd_identity x = tenant_named("x");

    (void)state;
    stage_start(&stage, 2);
    assert_int_equal(peer_begin_as(&stage, &a, &x, &most), 0);
    struct dv_memory_message m = {.magic = DV_MEMORY_MAGIC,
                                  .version = DV_MEMORY_VERSION,
                                  .type = DV_MEMORY_RESERVE,
                                  .device = 1,
                                  .id = 1,
                                  .bytes = MIB};
    say(&a, &m, sizeof m);
    hear_memory(&a, DV_MEMORY_RESERVED);
    assert_int_equal(device(a.lessee.devices[1].number)->promised_ppm, 0);
    assert_int_equal(device(a.lessee.devices[0].number)->promised_ppm, 800000);
    say_lease(&a, 1, DV_LEASE_WANT, 0, 0); /* work does */
    hear_lease(&a, DV_LEASE_GRANT);
    assert_int_equal(device(a.lessee.devices[1].number)->promised_ppm, 800000);
    peer_end(&a);
    stage_end(&stage);
}

/* ---- policies ---- */

static void a_policy_changes_under_load(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "a");
    peer_begin(&stage, &b, "b");
    say_want(&a);
    say_want(&b);
    hear_lease(&a, DV_LEASE_GRANT);
    device(0)->set_by_operator = true;
    dvd_device_set_policy(device(0), dv_policy_by_name("fifo"), 20 * MS);
    assert_string_equal(device(0)->policy.ops->name, "fifo");
    say_release(&a, true);
    assert_int_equal(hear_lease(&b, DV_LEASE_GRANT)->slice_ns, 20 * MS);
    stage.devices[0].policy = dv_policy_by_name("fair");
    stage_set_devices(&stage, 1);
    dvd_ledger_apply_device_terms(&stage.ledger);
    assert_string_equal(device(0)->policy.ops->name, "fair");
    assert_false(device(0)->set_by_operator);
    assert_int_equal(device(0)->policy.fixed_slice_ns, 0);
    stage.devices[0].is_shared_out = false; /* sessions that run go on to share it */
    stage_set_devices(&stage, 1);
    dvd_ledger_apply_device_terms(&stage.ledger);
    say_release(&b, false);
    hear_lease(&a, DV_LEASE_GRANT);
    assert_false(dvd_device_start(device(0)));
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

static void devices_that_are_gone_keep_their_sessions(void **state)
{
    (void)state;
    stage_start(&stage, 2);
    peer_begin(&stage, &a, "a");
    say_lease(&a, 1, DV_LEASE_WANT, 0, 0);
    hear_lease(&a, DV_LEASE_GRANT);
    uint32_t index = a.lessee.devices[1].number;
    stage_set_devices(&stage, 0);
    assert_string_equal(device(index)->terms.name, "a device that is gone");
    say_lease(&a, 1, DV_LEASE_RELEASE, a.serial, DV_LEASE_AGAIN);
    hear_lease(&a, DV_LEASE_GRANT);
    peer_end(&a);
    stage_end(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_alone_is_granted_at_once),
        cmocka_unit_test(the_next_is_granted_when_the_first_gives_back),
        cmocka_unit_test(a_waiting_session_can_cancel_or_leave),
        cmocka_unit_test(two_slots_hold_two_sessions),
        cmocka_unit_test(usage_counts_the_slots),
        cmocka_unit_test(used_time_is_the_same_before_and_after_a_release),
        cmocka_unit_test(a_share_is_off_by_at_most_the_whole),
        cmocka_unit_test(sessions_of_one_tenant_share_its_part),
        cmocka_unit_test(messages_of_the_past_or_of_other_devices_are_ignored),
        cmocka_unit_test(a_release_before_any_use_is_ignored),
        cmocka_unit_test(estimates_are_bounded),
        cmocka_unit_test(an_overdue_worker_is_ended),
        cmocka_unit_test(the_device_is_taken_from_an_overdue_program),
        cmocka_unit_test(grants_say_how_long_parts_are),
        cmocka_unit_test(a_deadline_runs_only_while_others_wait),
        cmocka_unit_test(the_shorter_deadline_of_two_classes_counts),
        cmocka_unit_test_prestate(the_shorter_deadline_of_two_classes_counts, &stage),
        cmocka_unit_test(a_stopped_holder_loses_the_device),
        cmocka_unit_test(an_unanswered_recall_is_reported_once),
        cmocka_unit_test(without_timers_messages_still_decide),
        cmocka_unit_test(a_session_may_turn_to_another_device),
        cmocka_unit_test(a_request_that_does_not_fit_is_turned_away),
        cmocka_unit_test(memory_alone_does_not_promise_anything),
        cmocka_unit_test(a_policy_changes_under_load),
        cmocka_unit_test(devices_that_are_gone_keep_their_sessions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
