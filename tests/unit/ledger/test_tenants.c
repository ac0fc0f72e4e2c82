/* Tenants and admission: who is let in, with which share, and what an operator or a tenant may change. */
#include <errno.h>

#include "tests/unit/ledger/stage.h"

static struct stage stage;
static struct peer a, b, c;
static char text[512];
static const struct dvd_share_change nothing;

#define PERCENT(n) ((n) * (DV_PPM / 100))

static const struct dv_share *share_of(const struct peer *peer)
{
    return &peer->lessee.leases[0]->tenant->policy.share;
}

static void a_share_is_the_terms_and_what_was_asked_for(void **state)
{
    struct dvd_identity identity = tenant_named("x");
    struct dvd_share_change change = {.has_request = true,
                                      .request_ppm = PERCENT(20),
                                      .has_limit = true,
                                      .limit_ppm = PERCENT(50),
                                      .has_weight = true,
                                      .weight = 3,
                                      .has_class = true,
                                      .class = DV_CLASS_LATENCY};

    (void)state;
    stage_start(&stage, 1);
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &change), 0);
    assert_int_equal(share_of(&a)->request_ppm, PERCENT(20));
    assert_int_equal(share_of(&a)->limit_ppm, PERCENT(50));
    assert_int_equal(share_of(&a)->weight, 3);
    assert_int_equal(share_of(&a)->class, DV_CLASS_LATENCY);
    /* a second session changes the share of both */
    struct dvd_share_change more = {.has_request = true, .request_ppm = PERCENT(30)};
    assert_int_equal(peer_begin_as(&stage, &b, &identity, &more), 0);
    assert_int_equal(share_of(&a)->request_ppm, PERCENT(30));
    assert_int_equal(share_of(&a)->weight, 3);
    assert_int_equal(stage.ledger.devices[0].promised_ppm, PERCENT(30));
    peer_end(&a);
    peer_end(&b);
    assert_int_equal(stage.ledger.devices[0].promised_ppm, 0);
    stage_end(&stage);
}

static void refused(const struct dvd_identity *identity, const struct dvd_share_change *change, int status,
                    const char *words)
{
    assert_int_equal(peer_begin_as(&stage, &c, identity, change), status);
    assert_non_null(strstr(c.text, words));
    assert_null(c.lessee.tenant);
}

static void what_the_terms_do_not_allow_is_refused(void **state)
{
    struct dvd_identity identity = tenant_named("x");
    struct dvd_share_change change = {.has_request = true, .request_ppm = PERCENT(30)};

    (void)state;
    stage_start(&stage, 1);
    identity.terms.may_request_ppm = PERCENT(20);
    identity.terms.may_weight = 2;
    identity.terms.may_class = DV_CLASS_STANDARD;
    identity.terms.share.limit_ppm = PERCENT(60);
    refused(&identity, &change, -EPERM, "may-request");
    change = (struct dvd_share_change){.has_limit = true, .limit_ppm = PERCENT(70)};
    refused(&identity, &change, -EPERM, "cannot have a limit of 70%");
    change = (struct dvd_share_change){.has_weight = true, .weight = 3};
    refused(&identity, &change, -EPERM, "may-weight");
    change = (struct dvd_share_change){.has_class = true, .class = DV_CLASS_LATENCY};
    refused(&identity, &change, -EPERM, "may not run in class latency");
    change = (struct dvd_share_change){.has_weight = true, .weight = 0};
    refused(&identity, &change, -EPERM, "a weight is from 1");
    change = (struct dvd_share_change){.has_limit = true, .limit_ppm = DV_PPM / 1000};
    refused(&identity, &change, -EPERM, "a limit is from 1%");
    change = (struct dvd_share_change){
        .has_request = true, .request_ppm = PERCENT(20), .has_limit = true, .limit_ppm = PERCENT(10)};
    refused(&identity, &change, -EPERM, "is above the limit");
    assert_int_equal(stage.tenants_freed, 7); /* none of them is remembered */
    stage_end(&stage);
}

static void requests_are_promised_until_the_device_is_full(void **state)
{
    struct dvd_identity x = tenant_named("x"), y = tenant_named("y"), z = tenant_named("z");
    struct dvd_share_change change = {.has_request = true, .request_ppm = PERCENT(60)};

    (void)state;
    stage_start(&stage, 1);
    assert_int_equal(peer_begin_as(&stage, &a, &x, &change), 0);
    refused(&y, &change, -ENOSPC, "60% of it is promised already (x 60%). Ask for at most 40%");
    change.request_ppm = PERCENT(40);
    assert_int_equal(peer_begin_as(&stage, &b, &y, &change), 0);
    change.request_ppm = PERCENT(1);
    refused(&z, &change, -ENOSPC, "x 60%, y 40%");
    /* nor can one of them raise its own */
    struct dvd_share_change more = {.has_request = true, .request_ppm = PERCENT(41)};
    assert_int_equal(dvd_tenant_set(b.lessee.tenant, NULL, &more, false, text, sizeof text), -ENOSPC);
    peer_end(&a);
    assert_int_equal(dvd_tenant_set(b.lessee.tenant, NULL, &more, false, text, sizeof text), 0);
    assert_int_equal(share_of(&b)->request_ppm, PERCENT(41));
    peer_end(&b);
    stage_end(&stage);
}

static void a_session_finds_the_device_that_can_keep_its_request(void **state)
{
    struct dvd_identity x = tenant_named("x"), y = tenant_named("y");
    struct dvd_share_change change = {.has_request = true, .request_ppm = PERCENT(80)};

    (void)state;
    stage_start(&stage, 2);
    stage.devices[1].group = 1; /* of another kind */
    stage_set_devices(&stage, 2);
    assert_int_equal(peer_begin_as(&stage, &a, &x, &change), 0);
    assert_int_equal(a.lessee.devices[0].number, 0);
    assert_int_equal(peer_begin_as(&stage, &b, &y, &change), 0);
    assert_int_equal(b.lessee.devices[0].number, 1);
    struct dvd_identity z = tenant_named("z");
    refused(&z, &change, -ENOSPC, ". The other 1 devices cannot keep it either");
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

/* By group, then by free memory, then by sessions; unless the order is the vendor's. */
static void devices_are_ordered_by_what_they_have_to_give(void **state)
{
    (void)state;
    stage_start(&stage, 3);
    stage.devices[0].group = 1;
    stage_set_devices(&stage, 3);
    peer_begin(&stage, &a, "a");
    assert_int_equal(a.lessee.devices[0].number, 1);
    peer_begin(&stage, &b, "b");
    assert_int_equal(b.lessee.devices[0].number, 2); /* a is on the first */
    say_memory(&b, DV_MEMORY_RESERVE, 1, 60 * MIB, 0);
    hear_memory(&b, DV_MEMORY_RESERVED);
    peer_begin(&stage, &c, "c");
    assert_int_equal(c.lessee.devices[0].number, 1); /* b's is almost full */
    peer_end(&c);
    stage.ledger.terms.keeps_order = true;
    peer_begin(&stage, &c, "c");
    assert_int_equal(c.lessee.devices[0].number, 0);
    peer_end(&c);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

static void a_session_without_a_leased_device_is_admitted(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    stage.devices[0].is_shared_out = false;
    stage_set_devices(&stage, 1);
    assert_int_equal(peer_begin(&stage, &a, "a"), 0);
    assert_null(a.lessee.leases[0]);
    peer_end(&a);
    stage_end(&stage);
}

/* ---- several users ---- */

static void users_of_a_shared_tenant_do_not_change_its_share(void **state)
{
    struct dvd_identity identity = tenant_named("group");
    struct dvd_share_change change = {.has_weight = true, .weight = 5};

    (void)state;
    stage_start(&stage, 1);
    identity.is_shared = true;
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &change), 0);
    assert_true(a.lessee.change_ignored);
    assert_int_equal(share_of(&a)->weight, 1);
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &change, true, text, sizeof text), -EPERM);
    assert_non_null(strstr(text, "has several users"));
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &change, false, text, sizeof text), 0);
    assert_int_equal(share_of(&a)->weight, 5);
    assert_int_equal(peer_begin_as(&stage, &b, &identity, &nothing), 0);
    assert_false(b.lessee.change_ignored);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

static void a_tenant_knows_its_users(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "group");
    peer_begin(&stage, &b, "group");
    const struct dvd_tenant *tenant = a.lessee.tenant;
    assert_true(dvd_tenant_has_user(tenant, 1000));
    assert_false(dvd_tenant_has_user(tenant, 1001));
    peer_end(&a);
    assert_true(dvd_tenant_has_user(tenant, 1000));
    peer_end(&b);
    assert_false(dvd_tenant_has_user(tenant, 1000));
    stage_end(&stage);
}

static void programs_are_told_from_users_by_their_names(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "pid:7:python");
    peer_begin(&stage, &b, "session:7");
    peer_begin(&stage, &c, "ann");
    assert_true(dvd_tenant_is_program(a.lessee.tenant));
    assert_true(dvd_tenant_is_program(b.lessee.tenant));
    assert_false(dvd_tenant_is_program(c.lessee.tenant));
    peer_end(&a);
    peer_end(&b);
    peer_end(&c);
    stage_end(&stage);
}

/* ---- changes ---- */

static void an_operator_lowers_what_the_tenant_may_have(void **state)
{
    struct dvd_identity identity = tenant_named("x");
    struct dvd_share_change change = {.has_request = true,
                                      .request_ppm = PERCENT(5),
                                      .has_limit = true,
                                      .limit_ppm = PERCENT(10),
                                      .has_weight = true,
                                      .weight = 2,
                                      .has_class = true,
                                      .class = DV_CLASS_BATCH,
                                      .has_memory = true,
                                      .memory = {.bytes = 8 * MIB},
                                      .has_memory_request = true,
                                      .memory_request = {.bytes = 4 * MIB}};

    (void)state;
    stage_start(&stage, 1);
    identity.terms.share.request_ppm = PERCENT(20);
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &nothing), 0);
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &change, false, text, sizeof text), 0);
    const struct dvd_tenant_terms *terms = &a.lessee.tenant->terms;
    assert_int_equal(terms->may_request_ppm, PERCENT(5));
    assert_int_equal(terms->share.limit_ppm, PERCENT(10));
    assert_int_equal(terms->share.request_ppm, PERCENT(5));
    assert_int_equal(terms->may_weight, 2);
    assert_int_equal(terms->may_class, DV_CLASS_BATCH);
    assert_int_equal(terms->configured_class, DV_CLASS_STANDARD); /* for its deadline */
    assert_int_equal(a.lessee.leases[0]->tenant->memory.quota, 8 * MIB);
    assert_int_equal(a.lessee.leases[0]->tenant->memory.request, 4 * MIB);
    /* the tenant cannot raise it again, but lower it and take it back */
    struct dvd_share_change own = {.has_weight = true, .weight = 3};
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &own, true, text, sizeof text), -EPERM);
    own = (struct dvd_share_change){.has_memory = true, .memory = {.bytes = 9 * MIB}};
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &own, true, text, sizeof text), -EPERM);
    assert_non_null(strstr(text, "may have at most 8"));
    own = (struct dvd_share_change){.has_memory_request = true, .memory_request = {.bytes = 5 * MIB}};
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &own, true, text, sizeof text), -EPERM);
    assert_non_null(strstr(text, "may keep at most 4"));
    own = (struct dvd_share_change){.has_memory = true, .memory = {.bytes = 2 * MIB}};
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &own, true, text, sizeof text), 0);
    assert_int_equal(a.lessee.leases[0]->tenant->memory.request, 2 * MIB); /* never above the quota */
    own.memory.bytes = 8 * MIB;
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &own, true, text, sizeof text), 0);
    /* a reload does not change what the operator has set */
    dvd_ledger_set_terms(&stage.ledger, &stage.ledger.terms);
    assert_int_equal(peer_begin_as(&stage, &b, &identity, &nothing), 0);
    assert_int_equal(a.lessee.tenant->terms.may_weight, 2);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

/* What it asks for on no device would be its share on the next one. */
static void a_tenant_on_no_device_raises_nothing(void **state)
{
    struct dvd_identity identity = tenant_named("x");
    struct dvd_share_change change = {.has_weight = true, .weight = 10000};

    (void)state;
    stage_start(&stage, 1);
    stage.devices[0].is_shared_out = false;
    stage_set_devices(&stage, 1);
    identity.terms.may_weight = 1;
    identity.terms.share.limit_ppm = PERCENT(50);
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &nothing), 0);
    assert_null(a.lessee.leases[0]);
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &change, true, text, sizeof text), -EPERM);
    change = (struct dvd_share_change){.has_limit = true, .limit_ppm = PERCENT(100)};
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &change, true, text, sizeof text), -EPERM);
    change.limit_ppm = 0;
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &change, false, text, sizeof text), -EPERM);
    change.limit_ppm = PERCENT(20);
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &change, true, text, sizeof text), 0);
    peer_end(&a);
    stage_end(&stage);
}

/* Its terms may have changed since its last session ended. */
static void a_tenant_that_was_just_there_has_its_terms_anew(void **state)
{
    struct dvd_identity identity = tenant_named("x");
    struct dvd_share_change change = {.has_weight = true, .weight = 7};

    (void)state;
    stage_start(&stage, 1);
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &nothing), 0);
    peer_end(&a);
    identity.terms.share.limit_ppm = PERCENT(30);
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &nothing), 0);
    assert_int_equal(share_of(&a)->limit_ppm, PERCENT(30));
    /* what an operator has set stays, until it is forgotten */
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &change, false, text, sizeof text), 0);
    dvd_tenant_forget_change(&stage.ledger, "x");
    peer_end(&a);
    identity.terms.share.limit_ppm = PERCENT(40);
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &nothing), 0);
    assert_int_equal(share_of(&a)->limit_ppm, PERCENT(30));
    peer_end(&a);
    dvd_tenant_forget_change(&stage.ledger, "x");
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &nothing), 0);
    assert_int_equal(share_of(&a)->limit_ppm, PERCENT(40));
    peer_end(&a);
    stage_end(&stage);
}

static void time_that_it_waited_in_vain_is_counted(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "a");
    peer_begin(&stage, &b, "b");
    say_want(&a);
    say_want(&b);
    stage_pass(&stage, 50 * MS);
    forget_messages(&a);
    forget_messages(&b);
    peer_end(&b);
    assert_true(b.lessee.waited_ns >= 50 * MS);
    peer_end(&a);
    assert_int_equal(a.lessee.waited_ns, 0);
    stage_end(&stage);
}

/* A program chooses its name. */
static void programs_are_counted_apart_from_tenants_of_their_name(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "vision");
    peer_begin(&stage, &b, "pid:7:vision");
    peer_begin(&stage, &c, "pid:8:vision");
    assert_string_equal(a.lessee.tenant->account->name, "vision");
    assert_string_equal(b.lessee.tenant->account->name, "program:vision");
    assert_ptr_equal(b.lessee.tenant->account, c.lessee.tenant->account);
    peer_end(&c);
    peer_begin(&stage, &c, "pid:9:other");
    assert_string_equal(c.lessee.tenant->account->name, "program:other");
    peer_end(&c);
    peer_begin(&stage, &c, "session:9");
    assert_string_equal(c.lessee.tenant->account->name, DVD_ACCOUNT_OTHER);
    peer_end(&a);
    peer_end(&b);
    peer_end(&c);
    stage_end(&stage);
}

/* More tenants than have counters of their own. */
enum { CROWD = 300 };
static struct peer crowd[CROWD];

static struct dvd_account_device sum_of_accounts(unsigned *accounts)
{
    const struct dvd_accounts *all = stage.ledger.accounts;
    struct dvd_account_device sum = {0};

    *accounts = 0;
    for (size_t i = 0; i < sizeof all->all / sizeof all->all[0]; i++) {
        const struct dvd_account_device *there = &all->all[i].devices[0];
        *accounts += all->all[i].name[0] != '\0';
        sum.used_ns += there->used_ns;
        sum.waited_ns += there->waited_ns;
        sum.moving_ns += there->moving_ns;
        sum.grants += there->grants;
    }
    return sum;
}

static void counters_of_tenants_that_are_gone_are_added_up(void **state)
{
    const unsigned folded = CROWD - DV_MAX_ACCOUNTS;
    dv_ns used_by_folded = 0;
    unsigned accounts;

    (void)state;
    stage_start(&stage, 1);
    for (unsigned i = 0; i < CROWD; i++) { /* one after the other: each is forgotten when the next one begins */
        char name[32];
        snprintf(name, sizeof name, "tenant %u", i);
        if (i == folded)
            used_by_folded = stage.ledger.devices[0].held_ns;
        assert_int_equal(peer_begin(&stage, &a, name), 0);
        say_want(&a);
        hear_lease(&a, DV_LEASE_GRANT);
        stage_pass(&stage, (1 + i % 7) * MS);
        say_release(&a, false);
        struct dvd_account_device *there = &a.lessee.tenant->account->devices[0];
        assert_string_equal(a.lessee.tenant->account->name, name);
        there->waited_ns += 3;
        there->moving_ns += 5;
        peer_end(&a);
        stage_pass(&stage, (DV_TENANT_MEMORY_US + 1) * DV_NS_PER_US);
    }
    struct dvd_account_device sum = sum_of_accounts(&accounts);
    assert_int_equal(accounts, 1 + DV_MAX_ACCOUNTS);
    assert_int_equal(sum.used_ns, stage.ledger.devices[0].held_ns);
    assert_int_equal(sum.waited_ns, 3 * CROWD);
    assert_int_equal(sum.moving_ns, 5 * CROWD);
    assert_int_equal(sum.grants, CROWD);
    /* those that have been gone longest are no account any more */
    const struct dvd_account *other = &stage.ledger.accounts->all[0];
    assert_string_equal(other->name, DVD_ACCOUNT_OTHER);
    assert_true(other->devices[0].is_used && used_by_folded > 0);
    assert_int_equal(other->devices[0].used_ns, used_by_folded);
    assert_int_equal(other->devices[0].waited_ns, 3 * folded);
    assert_int_equal(other->devices[0].moving_ns, 5 * folded);
    assert_int_equal(other->devices[0].grants, folded);
    stage_end(&stage);
}

static void tenants_beyond_the_bound_are_counted_together(void **state)
{
    unsigned accounts, own = 0;

    (void)state;
    stage_start(&stage, 1);
    for (unsigned i = 0; i < CROWD; i++) { /* all at one time: no account is free for another */
        char name[32];
        snprintf(name, sizeof name, "tenant %u", i);
        assert_int_equal(peer_begin(&stage, &crowd[i], name), 0);
        own += strcmp(crowd[i].lessee.tenant->account->name, name) == 0;
    }
    assert_int_equal(own, DV_MAX_ACCOUNTS);
    for (unsigned i = DV_MAX_ACCOUNTS; i < CROWD; i++)
        assert_ptr_equal(crowd[i].lessee.tenant->account, &stage.ledger.accounts->all[0]);
    for (unsigned i = 0; i < CROWD; i++) {
        say_want(&crowd[i]);
        hear_lease(&crowd[i], DV_LEASE_GRANT);
        stage_pass(&stage, MS);
        say_release(&crowd[i], false);
    }
    struct dvd_account_device sum = sum_of_accounts(&accounts);
    assert_int_equal(accounts, 1 + DV_MAX_ACCOUNTS);
    assert_int_equal(sum.grants, CROWD);
    assert_int_equal(sum.used_ns, CROWD * MS);
    assert_int_equal(stage.ledger.accounts->all[0].devices[0].used_ns, (CROWD - DV_MAX_ACCOUNTS) * MS);
    for (unsigned i = 0; i < CROWD; i++)
        peer_end(&crowd[i]);
    stage_end(&stage);
}

static void one_device_can_be_changed_alone(void **state)
{
    struct dvd_share_change change = {.has_weight = true, .weight = 7};

    (void)state;
    stage_start(&stage, 2);
    stage.ledger.terms.keeps_order = true;
    peer_begin(&stage, &a, "x");
    say_lease(&a, 0, DV_LEASE_JOIN, 1, 0);
    say_lease(&a, 1, DV_LEASE_JOIN, 2, 0);
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, &stage.ledger.devices[1], &change, false, text, sizeof text), 0);
    assert_int_equal(a.lessee.leases[0]->tenant->share.weight, 1);
    assert_int_equal(a.lessee.leases[1]->tenant->share.weight, 7);
    assert_true(a.lessee.tenant->set_by_operator);
    peer_end(&a);
    stage_end(&stage);
}

static void memory_requests_are_promised_until_the_device_is_full(void **state)
{
    struct dvd_identity x = tenant_named("x"), y = tenant_named("y");

    (void)state;
    stage_start(&stage, 1);
    x.terms.memory_request.bytes = 40 * MIB;
    y.terms.memory_request.ppm = DV_PPM / 2;
    assert_int_equal(peer_begin_as(&stage, &a, &x, &nothing), 0);
    refused(&y, &nothing, -ENOSPC, "a memory-request of 32");
    assert_non_null(strstr(c.text, "(x 40"));
    y.terms.memory_request.ppm = DV_PPM / 4;
    assert_int_equal(peer_begin_as(&stage, &b, &y, &nothing), 0);
    struct dvd_share_change change = {.has_memory_request = true, .memory_request = {.bytes = 50 * MIB}};
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &change, false, text, sizeof text), -ENOSPC);
    /* where nothing is moved, nothing is promised */
    stage.devices[0].swaps = false;
    stage_set_devices(&stage, 1);
    assert_int_equal(dvd_tenant_set(a.lessee.tenant, NULL, &change, false, text, sizeof text), 0);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

static void programs_change_a_share_only_so_often(void **state)
{
    struct dvd_identity identity = tenant_named("x");
    struct dvd_share_change change = {.has_weight = true};
    int status = 0;

    (void)state;
    stage_start(&stage, 1);
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &nothing), 0);
    for (int i = 0; i <= 2 * DV_SHARE_CHANGES_PER_S && status == 0; i++) {
        change.weight = 2 + i % 2;
        status = peer_begin_as(&stage, &b, &identity, &change);
        if (status == 0)
            peer_end(&b);
    }
    assert_int_equal(status, -EBUSY);
    assert_non_null(strstr(b.text, "within a second"));
    assert_int_equal(peer_begin_as(&stage, &b, &identity, &nothing), 0); /* the share that it has */
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

/* ---- coming back ---- */

static void a_tenant_that_comes_back_has_its_debts_and_its_usual_share(void **state)
{
    struct dvd_identity identity = tenant_named("x");
    struct dvd_share_change change = {.has_weight = true, .weight = 9};

    (void)state;
    stage_start(&stage, 1);
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &change), 0);
    say_want(&a);
    hear_lease(&a, DV_LEASE_GRANT);
    stage_pass(&stage, DV_NS_PER_S);
    peer_end(&a);
    stage_pass(&stage, DV_NS_PER_S);
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &nothing), 0);
    assert_int_equal(share_of(&a)->weight, 1);
    assert_true(a.lessee.leases[0]->tenant->policy.used_ns >= DV_NS_PER_S);
    peer_end(&a);
    stage_pass(&stage, (DV_TENANT_MEMORY_US + 1) * DV_NS_PER_US);
    assert_int_equal(peer_begin(&stage, &b, "y"), 0); /* which forgets it */
    assert_int_equal(stage.tenants_freed, 1);
    peer_end(&b);
    stage_end(&stage);
}

static void a_tenant_that_has_used_nothing_leaves_nothing_on_the_device(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "x");
    const struct dvd_tenant *tenant = a.lessee.tenant;
    peer_end(&a);
    assert_null(tenant->devices[0]);
    stage_end(&stage);
}

static void only_so_many_tenants_are_remembered(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    for (unsigned i = 0; i < DV_MAX_TENANTS_GONE + 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "tenant %u", i);
        assert_int_equal(peer_begin(&stage, &a, name), 0);
        peer_end(&a);
    }
    assert_int_equal(stage.ledger.tenants_gone_count, DV_MAX_TENANTS_GONE);
    assert_int_equal(stage.tenants_freed, 10);
    stage_end(&stage);
}

static void a_reload_changes_terms_when_the_next_session_begins(void **state)
{
    struct dvd_identity identity = tenant_named("x");

    (void)state;
    stage_start(&stage, 1);
    assert_int_equal(peer_begin_as(&stage, &a, &identity, &nothing), 0);
    identity.terms.may_weight = 4;
    assert_int_equal(peer_begin_as(&stage, &b, &identity, &nothing), 0);
    assert_int_equal(a.lessee.tenant->terms.may_weight, DV_WEIGHT_MAX); /* there was no reload */
    peer_end(&b);
    dvd_ledger_set_terms(&stage.ledger, &stage.ledger.terms);
    assert_int_equal(peer_begin_as(&stage, &b, &identity, &nothing), 0);
    assert_int_equal(a.lessee.tenant->terms.may_weight, 4);
    peer_end(&a);
    peer_end(&b);
    stage_end(&stage);
}

static void the_ledger_finds_its_own_mistakes(void **state)
{
    (void)state;
    stage_start(&stage, 1);
    peer_begin(&stage, &a, "x");
    say_memory(&a, DV_MEMORY_RESERVE, 1, MIB, 0);
    text[0] = '\0';
    assert_int_equal(dvd_lessee_check(&a.lessee, MIB, 0, text, sizeof text), 0);
    assert_int_equal(dvd_lessee_check(&a.lessee, 0, MIB, text, sizeof text), 2);
    assert_non_null(strstr(text, "reserved bytes of session"));
    assert_non_null(strstr(text, "bytes on devices"));
    a.lessee.leases[0]->tenant->memory.reserved++;
    assert_int_equal(dvd_ledger_check(&stage.ledger, text, sizeof text), 1);
    assert_non_null(strstr(text, "reserved bytes of x"));
    a.lessee.leases[0]->tenant->memory.reserved--;
    peer_end(&a);
    stage_end(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_is_the_terms_and_what_was_asked_for),
        cmocka_unit_test(what_the_terms_do_not_allow_is_refused),
        cmocka_unit_test(requests_are_promised_until_the_device_is_full),
        cmocka_unit_test(a_session_finds_the_device_that_can_keep_its_request),
        cmocka_unit_test(devices_are_ordered_by_what_they_have_to_give),
        cmocka_unit_test(a_session_without_a_leased_device_is_admitted),
        cmocka_unit_test(users_of_a_shared_tenant_do_not_change_its_share),
        cmocka_unit_test(a_tenant_knows_its_users),
        cmocka_unit_test(programs_are_told_from_users_by_their_names),
        cmocka_unit_test(an_operator_lowers_what_the_tenant_may_have),
        cmocka_unit_test(a_tenant_on_no_device_raises_nothing),
        cmocka_unit_test(a_tenant_that_was_just_there_has_its_terms_anew),
        cmocka_unit_test(time_that_it_waited_in_vain_is_counted),
        cmocka_unit_test(programs_are_counted_apart_from_tenants_of_their_name),
        cmocka_unit_test(counters_of_tenants_that_are_gone_are_added_up),
        cmocka_unit_test(tenants_beyond_the_bound_are_counted_together),
        cmocka_unit_test(one_device_can_be_changed_alone),
        cmocka_unit_test(memory_requests_are_promised_until_the_device_is_full),
        cmocka_unit_test(programs_change_a_share_only_so_often),
        cmocka_unit_test(a_tenant_that_comes_back_has_its_debts_and_its_usual_share),
        cmocka_unit_test(a_tenant_that_has_used_nothing_leaves_nothing_on_the_device),
        cmocka_unit_test(only_so_many_tenants_are_remembered),
        cmocka_unit_test(a_reload_changes_terms_when_the_next_session_begins),
        cmocka_unit_test(the_ledger_finds_its_own_mistakes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
