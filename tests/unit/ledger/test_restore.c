/* The ledger over a restart: what a daemon writes while it runs, its successor goes on with. */
#include <errno.h>
#include <unistd.h>

#include "tests/unit/ledger/stage.h"

static struct stage before, after;
static struct peer a, b, old_a, old_b;
static char directory[] = "/tmp/divvy-unit-restore-XXXXXX";
static const struct dvd_share_change nothing;

static void open_state(struct stage *stage, bool expected)
{
    bool inherited;

    assert_int_equal(dvd_state_open(&stage->state, directory, &inherited), 0);
    assert_int_equal(inherited, expected);
}

static int begin(struct stage *stage, struct peer *peer, const struct dvd_identity *identity,
                 const struct dvd_share_change *change)
{
    int status = peer_begin_as(stage, peer, identity, change);

    if (status < 0)
        return status;
    peer->lessee.record = dvd_state_add(&stage->state.sessions);
    peer->lessee.record->id = peer->lessee.id.value;
    peer->lessee.record->tenant = dvd_state_index(&stage->state.tenants, peer->lessee.tenant->record);
    dvd_state_commit(peer->lessee.record);
    dvd_lessee_record(&peer->lessee);
    return 0;
}

/* A new daemon on the same file, without its sessions so far. */
static void restart(void)
{
    stage_start(&after, 1);
    after.now = before.now + DV_NS_PER_S;
    memcpy(after.devices, before.devices, sizeof after.devices);
    stage_set_devices(&after, 1);
    dvd_state_close(&before.state);
    open_state(&after, true);
}

static struct dvd_tenant *restore_tenant(uint32_t index)
{
    struct dv_state_tenant *record = dvd_state_at(&after.state.tenants, index);
    struct dvd_tenant_terms terms = {.may_request_ppm = record->may_request_ppm,
                                     .may_weight = record->may_weight,
                                     .may_class = (enum dv_class)record->may_class,
                                     .configured_class = (enum dv_class)(record->configured_class - 1)};
    struct dvd_share_change change = {.has_request = record->wishes & DV_STATE_WISH_REQUEST,
                                      .request_ppm = record->wish.request_ppm};

    assert_true(dvd_state_share_to(&record->share, &terms.share));
    return dvd_tenant_restore(&after.ledger, record, &terms, &change, false);
}

static void restore_on_device(struct dvd_tenant *tenant, uint32_t place)
{
    struct dv_state_tenant_device *record = dvd_state_at(&after.state.tenant_devices, place);
    struct dv_share share;

    assert_non_null(record);
    assert_true(dvd_state_share_to(&record->share, &share));
    assert_true(dvd_device_restore(&after.ledger.devices[record->device]));
    assert_int_equal(dvd_tenant_restore_device(tenant, &after.ledger.devices[record->device], record, &share), 0);
}

static void restore_session(struct peer *peer, const struct peer *old, struct dvd_tenant *tenant, uint32_t session,
                            uint32_t lease)
{
    struct dv_state_lease *records[DV_MAX_DEVICES] = {dvd_state_at(&after.state.leases, lease)};

    memset(peer, 0, sizeof *peer);
    peer->lessee = (struct dvd_lessee){.ledger = &after.ledger,
                                       .id = old->lessee.id,
                                       .uid = old->lessee.uid,
                                       .has_worker = true,
                                       .device_count = 1,
                                       .leased_mask = 1,
                                       .leases = peer->leases,
                                       .record = dvd_state_at(&after.state.sessions, session)};
    peer->serial = old->serial;
    assert_non_null(peer->lessee.record);
    assert_int_equal(dvd_lessee_restore(&peer->lessee, tenant, records), 0);
    assert_int_equal(dvd_lessee_ask_state(&peer->lessee), 0);
    assert_int_equal(peer->messages[0].sync.magic, DV_SYNC_MAGIC);
    assert_int_equal(peer->messages[0].sync.id, peer->lessee.sync_id);
    forget_messages(peer);
}

static void say_state(struct peer *peer, struct dv_sync_message m)
{
    m.magic = DV_SYNC_MAGIC;
    m.version = DV_SYNC_VERSION;
    m.type = DV_SYNC_STATE;
    m.id = peer->lessee.sync_id;
    say(peer, &m, sizeof m);
}

/* Two tenants, of which the first holds the device, has memory and a request, and was set by an operator. */
static void run_before(void)
{
    struct dvd_identity x = tenant_named("x"), y = tenant_named("y");
    struct dvd_share_change request = {.has_request = true, .request_ppm = DV_PPM / 4};

    strcpy(directory, "/tmp/divvy-unit-restore-XXXXXX");
    assert_non_null(mkdtemp(directory));
    stage_start(&before, 1);
    open_state(&before, false);
    assert_int_equal(begin(&before, &old_a, &x, &request), 0);
    assert_int_equal(begin(&before, &old_b, &y, &nothing), 0);
    before.ledger.devices[0].set_by_operator = true;
    dvd_device_set_policy(&before.ledger.devices[0], dv_policy_by_name("fair"), 20 * MS);
    say_want(&old_a);
    hear_lease(&old_a, DV_LEASE_GRANT);
    say_memory(&old_a, DV_MEMORY_RESERVE, 1, 8 * MIB, 0);
    say_memory(&old_a, DV_MEMORY_PLACE, 1, 8 * MIB, 0);
    say_want(&old_b);
    stage_pass(&before, 5 * MS);
}

static void end(void)
{
    peer_end(&a);
    peer_end(&b);
    stage_end(&after);
    dvd_state_close(&after.state);
    dvd_state_remove(directory);
    rmdir(directory);
    /* the daemon before has ended without a word: its memory is freed for the sake of the leak check */
    before.state = (struct dvd_state){0};
    for (int i = 0; i < 2; i++) {
        struct peer *peer = i ? &old_b : &old_a;
        peer->lessee.record = NULL;
        for (struct dvd_tenant *t = before.ledger.tenants; t; t = t->hh.next) {
            t->record = NULL;
            for (uint32_t d = 0; d < DV_MAX_DEVICES; d++)
                if (t->devices[d])
                    t->devices[d]->record = NULL;
        }
        for (uint32_t d = 0; d < DV_MAX_DEVICES; d++)
            if (peer->leases[d])
                peer->leases[d]->record = NULL;
    }
    peer_end(&old_a);
    peer_end(&old_b);
    stage_end(&before);
}

static void restore_all(void)
{
    restart();
    struct dvd_tenant *x = restore_tenant(0), *y = restore_tenant(1);
    assert_non_null(x);
    assert_non_null(y);
    restore_on_device(x, 0);
    restore_on_device(y, 1);
    restore_session(&a, &old_a, x, 0, 0);
    restore_session(&b, &old_b, y, 1, 1);
    dvd_ledger_restored(&after.ledger);
}

static void a_hold_goes_on(void **state)
{
    const struct dvd_device *device = &after.ledger.devices[0];

    (void)state;
    run_before();
    uint64_t placed = old_a.lessee.leases[0]->memory.placed;
    restore_all();
    assert_string_equal(device->policy.ops->name, "fair");
    assert_int_equal(device->policy.fixed_slice_ns, 20 * MS);
    assert_true(device->set_by_operator);
    assert_int_equal(device->promised_ppm, DV_PPM / 4);
    assert_int_equal(device->memory.placed, placed);
    assert_int_equal(device->memory.reserved, 8 * MIB);
    assert_true(a.lessee.leases[0]->policy.holding);
    assert_int_equal(a.lessee.leases[0]->serial, old_a.serial);
    /* what it says before its answer was meant for the earlier daemon */
    say_release(&a, false);
    assert_true(a.lessee.leases[0]->policy.holding);
    say_state(&a, (struct dv_sync_message){
                      .flags = DV_SYNC_HOLDS, .serial = a.serial, .reserved = 4 * MIB, .placed = placed + MIB});
    hear_lease(&a, DV_LEASE_EXTEND);
    assert_int_equal(device->memory.reserved, 4 * MIB); /* its word counts as far as the record goes */
    assert_int_equal(device->memory.placed, placed);
    say_state(&b, (struct dv_sync_message){.flags = DV_SYNC_WAITS});
    forget_messages(&a);
    say_release(&a, false);
    stage_pass(&after, 10 * MS);
    hear_lease(&b, DV_LEASE_GRANT);
    assert_true(b.serial > old_a.serial);
    end();
}

static void a_grant_that_was_never_heard_of_is_free(void **state)
{
    (void)state;
    run_before();
    restore_all();
    say_state(&a, (struct dv_sync_message){.flags = DV_SYNC_WAITS});
    assert_false(a.lessee.leases[0]->policy.holding && a.lessee.leases[0]->serial == old_a.serial);
    say_state(&b, (struct dv_sync_message){.flags = DV_SYNC_WAITS});
    stage_pass(&after, 10 * MS);
    assert_true(a.count > a.first || b.count > b.first); /* one of them has it */
    end();
}

static void a_grant_that_was_taken_away_is_recalled(void **state)
{
    (void)state;
    run_before();
    restore_all();
    say_state(&b, (struct dv_sync_message){.flags = DV_SYNC_HOLDS, .serial = 99});
    assert_int_equal(hear_lease(&b, DV_LEASE_RECALL)->serial, 99);
    assert_false(b.lessee.leases[0]->policy.holding);
    say_state(&b, (struct dv_sync_message){.flags = DV_SYNC_HOLDS, .serial = 99}); /* it has answered */
    hear_nothing(&b);
    end();
}

static void questions_about_memory_are_asked_again(void **state)
{
    (void)state;
    run_before();
    uint64_t placed = old_a.lessee.leases[0]->memory.placed;
    restore_all();
    say_state(&a, (struct dv_sync_message){.flags = DV_SYNC_HOLDS | DV_SYNC_BRINGS,
                                           .serial = a.serial,
                                           .reserved = 8 * MIB,
                                           .placed = placed,
                                           .asked_id = 5,
                                           .asked = MIB,
                                           .place_id = 6,
                                           .place_bytes = MIB,
                                           .evicting = MIB});
    assert_int_equal(hear_memory(&a, DV_MEMORY_RESERVED)->id, 5);
    assert_int_equal(hear_memory(&a, DV_MEMORY_PLACED)->id, 6);
    say_state(&b, (struct dv_sync_message){.flags = DV_SYNC_WAITS | DV_SYNC_AHEAD, .place_id = 3, .place_bytes = MIB});
    assert_int_equal(hear_memory(&b, DV_MEMORY_PLACED)->id, 3);
    end();
}

static void answers_that_make_no_sense_are_ignored(void **state)
{
    struct dv_sync_message m = {.magic = DV_SYNC_MAGIC, .version = DV_SYNC_VERSION, .type = DV_SYNC_STATE};

    (void)state;
    run_before();
    restore_all();
    say(&a, &m, sizeof m); /* another question's */
    m.id = a.lessee.sync_id;
    m.device = 7;
    say(&a, &m, sizeof m);
    m.device = 0;
    m.version++;
    say(&a, &m, sizeof m);
    m.version--;
    m.type = DV_SYNC_ASK;
    say(&a, &m, sizeof m);
    assert_int_equal(a.lessee.unsynced_mask, 1);
    m.type = DV_SYNC_STATE;
    say(&a, &m, sizeof m);
    assert_int_equal(a.lessee.unsynced_mask, 0);
    assert_int_equal(dvd_lessee_ask_state(&a.lessee), 0); /* nothing is left to ask */
    hear_nothing(&a);
    b.is_full = true;
    assert_int_equal(dvd_lessee_ask_state(&b.lessee), -EAGAIN);
    end();
}

static void the_request_of_a_lost_session_is_free(void **state)
{
    (void)state;
    run_before();
    restart();
    struct dvd_tenant *x = restore_tenant(0), *y = restore_tenant(1);
    restore_on_device(x, 0);
    assert_null(restore_tenant(0)); /* the name is taken */
    restore_on_device(y, 1);
    assert_int_equal(after.ledger.devices[0].promised_ppm, DV_PPM / 4);
    restore_session(&b, &old_b, y, 1, 1);
    dvd_ledger_restored(&after.ledger);
    assert_int_equal(after.ledger.devices[0].promised_ppm, 0);
    assert_int_equal(after.ledger.tenants_gone_count, 1);
    /* and a new session of its tenant begins as ever */
    struct dvd_identity identity = tenant_named("x");
    assert_int_equal(peer_begin_as(&after, &a, &identity, &nothing), 0);
    assert_ptr_equal(a.lessee.tenant, x);
    end();
}

static void a_device_that_is_not_shared_out_any_more_is_not_restored(void **state)
{
    (void)state;
    run_before();
    restart();
    after.devices[0].is_shared_out = false;
    stage_set_devices(&after, 1);
    struct dvd_tenant *x = restore_tenant(0), *y = restore_tenant(1);
    assert_false(dvd_device_restore(&after.ledger.devices[0]));
    restore_session(&a, &old_a, x, 0, 0);
    restore_session(&b, &old_b, y, 1, 1);
    assert_null(a.lessee.leases[0]);
    say_state(&a, (struct dv_sync_message){0}); /* it does not use the device */
    hear_nothing(&a);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hold_goes_on),
        cmocka_unit_test(a_grant_that_was_never_heard_of_is_free),
        cmocka_unit_test(a_grant_that_was_taken_away_is_recalled),
        cmocka_unit_test(questions_about_memory_are_asked_again),
        cmocka_unit_test(answers_that_make_no_sense_are_ignored),
        cmocka_unit_test(the_request_of_a_lost_session_is_free),
        cmocka_unit_test(a_device_that_is_not_shared_out_any_more_is_not_restored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
