/* The lease client beside a scripted divvyd at the other end of its socket. */
#include "include/divvy/lease.h"

#include <stdatomic.h>
#include <unistd.h>

#include "src/wire/lease/memory.h"
#include "src/wire/lease/sync.h"
#include "tests/unit/lease_peer.h"

#define BRIDGE_NS (1 * DV_NS_PER_MS) /* a longer gap is a pause */
#define ENOUGH 16                    /* gaps after which a session is known */

struct stage {
    int divvyd;
    struct dv_lease *lease;
    uint64_t serial;
    _Atomic unsigned grants;
};

static void granted(void *user, uint32_t device)
{
    struct stage *stage = user;

    (void)device;
    atomic_fetch_add(&stage->grants, 1);
}

static void recalled(void *user, uint32_t device)
{
    (void)user;
    (void)device;
}

static void look(void *user)
{
    (void)user;
}

static void open_stage(struct stage *stage)
{
    struct dv_lease_callbacks callbacks = {.granted = granted, .recalled = recalled, .look = look, .user = stage};
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    *stage = (struct stage){.divvyd = ends[0]};
    stage->lease = dv_lease_create(ends[1], 1, &callbacks);
    assert_non_null(stage->lease);
}

static void close_stage(struct stage *stage)
{
    dv_lease_destroy(stage->lease);
    close(stage->divvyd);
}

static void grant(struct stage *stage, uint32_t flags, uint64_t linger_ns)
{
    unsigned before = atomic_load(&stage->grants);

    peer_grant(stage->divvyd, ++stage->serial, flags, linger_ns);
    while (atomic_load(&stage->grants) == before)
        usleep(100);
}

/* Asks, is granted, and runs something. */
static void run(struct stage *stage, uint32_t flags, uint64_t linger_ns)
{
    dv_lease_want(stage->lease, 0);
    assert_int_equal(peer_hear(stage->divvyd), DV_LEASE_WANT);
    grant(stage, flags, linger_ns);
}

/* The first of them lingers, as nothing is known of it. */
static void pause_often(struct stage *stage)
{
    for (int i = 0; i < ENOUGH; i++) {
        run(stage, DV_LEASE_CONTENDED, BRIDGE_NS);
        dv_lease_drained(stage->lease, 0, false);
        assert_int_equal(peer_hear(stage->divvyd), DV_LEASE_RELEASE);
        usleep(2 * BRIDGE_NS / 1000);
    }
}

static void a_session_that_pauses_gives_back_at_once(void **state)
{
    struct stage stage;

    open_stage(&stage);
    run(&stage, DV_LEASE_CONTENDED, BRIDGE_NS);
    assert_false(dv_lease_pauses(stage.lease, 0));
    dv_lease_drained(stage.lease, 0, false);
    assert_int_equal(peer_hear(stage.divvyd), DV_LEASE_RELEASE);

    pause_often(&stage);
    run(&stage, DV_LEASE_CONTENDED, BRIDGE_NS);
    assert_true(dv_lease_pauses(stage.lease, 0));
    dv_lease_drained(stage.lease, 0, false);
    assert_false(dv_lease_held(stage.lease, 0)); /* by this call, not later by the lease's thread */
    assert_int_equal(peer_hear(stage.divvyd), DV_LEASE_RELEASE);
    close_stage(&stage);
}

static void it_keeps_what_nobody_waits_for(void **state)
{
    struct stage stage;

    open_stage(&stage);
    pause_often(&stage);
    run(&stage, 0, DV_NS_PER_S);
    assert_false(dv_lease_pauses(stage.lease, 0));
    dv_lease_drained(stage.lease, 0, false);
    assert_true(dv_lease_held(stage.lease, 0));
    close_stage(&stage);
}

static void a_burst_is_not_a_pause(void **state)
{
    struct stage stage;

    open_stage(&stage);
    run(&stage, DV_LEASE_CONTENDED, BRIDGE_NS);
    for (int i = 0; i < ENOUGH; i++) {
        dv_lease_drained(stage.lease, 0, false);
        dv_lease_want(stage.lease, 0);
    }
    assert_false(dv_lease_pauses(stage.lease, 0));
    close_stage(&stage);
}

/* A message is what its first field says, and of that kind's length. */
static void messages_of_another_length_or_kind_are_none(void **state)
{
    struct stage stage;
    struct {
        struct dv_sync_message m;
        uint64_t more;
    } ask = {.m = {.magic = DV_SYNC_MAGIC, .version = DV_SYNC_VERSION, .type = DV_SYNC_ASK, .id = 7}};
    struct dv_lease_message wrong = {.magic = DV_MEMORY_MAGIC,
                                     .version = DV_LEASE_VERSION,
                                     .type = DV_LEASE_GRANT,
                                     .serial = 3,
                                     .slice_ns = DV_NS_PER_S};
    struct dv_sync_message answer;

    open_stage(&stage);
    assert_int_equal(send(stage.divvyd, &ask, sizeof ask, 0), sizeof ask);
    assert_int_equal(send(stage.divvyd, &ask, 3, 0), 3);
    assert_int_equal(send(stage.divvyd, &wrong, sizeof wrong, 0), sizeof wrong);
    wrong.magic = DV_LEASE_MAGIC;
    assert_int_equal(send(stage.divvyd, &wrong, sizeof wrong - 8, 0), sizeof wrong - 8);
    ask.m.id = 8;
    assert_int_equal(send(stage.divvyd, &ask.m, sizeof ask.m, 0), sizeof ask.m);
    assert_int_equal(recv(stage.divvyd, &answer, sizeof answer, 0), sizeof answer);
    assert_int_equal(answer.id, 8); /* the first that is one */
    assert_int_equal(atomic_load(&stage.grants), 0);
    assert_false(dv_lease_held(stage.lease, 0));
    close_stage(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_that_pauses_gives_back_at_once),
        cmocka_unit_test(it_keeps_what_nobody_waits_for),
        cmocka_unit_test(a_burst_is_not_a_pause),
        cmocka_unit_test(messages_of_another_length_or_kind_are_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
