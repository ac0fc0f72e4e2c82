/* The ledger at virtual time (see stage.h). */
#include "tests/unit/ledger/stage.h"

#include <errno.h>

uint64_t stage_host_available;

/* ---- time ---- */

static struct stage *stage_of(struct dv_timers *timers)
{
    return (struct stage *)timers;
}

static dv_ns stage_now(struct dv_timers *timers)
{
    return stage_of(timers)->now;
}

static void stage_drop(struct dv_timers *timers, struct dv_timer *timer)
{
    struct stage *stage = stage_of(timers);

    for (unsigned i = 0; i < stage->set_count; i++)
        if (stage->set[i].timer == timer)
            stage->set[i--] = stage->set[--stage->set_count];
}

static int stage_set(struct dv_timers *timers, struct dv_timer *timer, dv_ns when)
{
    struct stage *stage = stage_of(timers);

    if (when && stage->no_timers)
        return -ENOMEM;
    stage_drop(timers, timer);
    if (when == 0)
        return 0;
    assert_true(stage->set_count < TIMERS_MAX);
    stage->set[stage->set_count].timer = timer;
    stage->set[stage->set_count++].when = when;
    return 0;
}

void stage_pass(struct stage *stage, dv_ns ns)
{
    dv_ns end = stage->now + ns;

    for (;;) {
        unsigned first = stage->set_count;
        for (unsigned i = 0; i < stage->set_count; i++)
            if (stage->set[i].when <= end && (first == stage->set_count || stage->set[i].when < stage->set[first].when))
                first = i;
        if (first == stage->set_count)
            break;
        struct dv_timer *timer = stage->set[first].timer;
        /* as on the event loop, whose clock has microseconds */
        dv_ns when = stage->set[first].when + DV_NS_PER_US;
        stage->set[first] = stage->set[--stage->set_count];
        if (when > stage->now)
            stage->now = when;
        timer->fired(timer->owner);
    }
    if (end > stage->now)
        stage->now = end;
}

/* ---- events ---- */

static struct peer *peer_of(const struct dvd_lessee *lessee)
{
    return (struct peer *)((char *)lessee - offsetof(struct peer, lessee));
}

static int on_send(struct dvd_lessee *lessee, const void *message, size_t bytes)
{
    struct peer *peer = peer_of(lessee);

    if (peer->is_full)
        return -EAGAIN;
    assert_true(peer->count - peer->first < MESSAGES_MAX && bytes <= sizeof peer->messages[0]);
    memcpy(&peer->messages[peer->count++ % MESSAGES_MAX], message, bytes);
    return 0;
}

static bool on_is_stopped(const struct dvd_lessee *lessee)
{
    return peer_of(lessee)->is_stopped;
}

static void on_overdue(struct dvd_lessee *lessee, dv_ns deadline, const char *what)
{
    struct peer *peer = peer_of(lessee);

    peer->overdue++;
    peer->deadline = deadline;
    snprintf(peer->reason, sizeof peer->reason, "%s", what);
}

static void on_unanswered(struct dvd_lessee *lessee, const struct dvd_device *device, dv_ns since, dv_ns deadline)
{
    struct peer *peer = peer_of(lessee);

    (void)device;
    (void)since;
    peer->unanswered++;
    peer->deadline = deadline;
}

static bool on_turned_away(struct dvd_lessee *lessee, const char *reason, const struct dv_lease_message *answer)
{
    struct peer *peer = peer_of(lessee);

    assert_int_equal(answer->type, DV_LEASE_TURNED_AWAY);
    peer->turned_away++;
    snprintf(peer->reason, sizeof peer->reason, "%s", reason);
    return peer->answers_late;
}

static void on_tenant_freed(void *owner, const struct dvd_tenant *tenant)
{
    struct stage *stage = owner;

    assert_ptr_equal(tenant->ledger, &stage->ledger);
    stage->tenants_freed++;
}

static const struct dvd_ledger_events events = {.send = on_send,
                                                .is_stopped = on_is_stopped,
                                                .overdue = on_overdue,
                                                .unanswered = on_unanswered,
                                                .turned_away = on_turned_away,
                                                .tenant_freed = on_tenant_freed};

/* ---- the stage ---- */

static uint64_t read_host_available(void)
{
    return stage_host_available;
}

void stage_set_devices(struct stage *stage, uint32_t devices)
{
    dvd_ledger_set_devices(&stage->ledger, stage->devices, devices);
}

void stage_start(struct stage *stage, uint32_t devices)
{
    struct dvd_ledger_terms terms = {0};

    memset(stage, 0, sizeof *stage);
    stage->timers = (struct dv_timers){.now = stage_now, .set = stage_set, .drop = stage_drop};
    stage->now = 1000 * DV_NS_PER_S;
    stage_host_available = UINT64_MAX;
    dvd_ledger_init(&stage->ledger, &stage->timers, &stage->state, &events, stage);
    stage->ledger.read_host_available = read_host_available;
    dvd_ledger_set_terms(&stage->ledger, &terms);
    for (uint32_t i = 0; i < devices; i++) {
        stage->devices[i] = (struct dvd_device_terms){.is_shared_out = true,
                                                      .policy = dv_policy_by_name("elastic"),
                                                      .slots = 1,
                                                      .moving_part_ppm = DV_MOVING_PART_PPM,
                                                      .moved_slice_max_ns = DV_MOVED_SLICE_MAX_NS,
                                                      .room_patience_ns = DV_ROOM_PATIENCE_NS,
                                                      .capacity_bytes = 64 * MIB,
                                                      .swaps = true};
        snprintf(stage->devices[i].name, sizeof stage->devices[i].name, "card %u", (unsigned)i);
    }
    stage_set_devices(stage, devices);
}

void stage_end(struct stage *stage)
{
    char text[256];

    assert_int_equal(dvd_ledger_check(&stage->ledger, text, sizeof text), 0);
    dvd_ledger_fini(&stage->ledger);
    assert_null(stage->ledger.tenants);
    assert_null(stage->ledger.members);
    assert_int_equal(stage->set_count, 0);
    for (uint32_t i = 0; i < stage->ledger.device_count; i++) {
        const struct dvd_device *device = &stage->ledger.devices[i];
        assert_int_equal(device->memory.placed, 0);
        assert_int_equal(device->memory.reserved, 0);
        assert_int_equal(device->memory.askers, 0);
        assert_int_equal(device->memory.queued, 0);
        assert_int_equal(device->sessions, 0);
        assert_int_equal(device->tenants_present, 0);
        assert_int_equal(device->promised_ppm, 0);
        assert_null(device->memory.sessions);
    }
}

/* ---- sessions ---- */

struct dvd_identity tenant_named(const char *name)
{
    struct dvd_identity identity = {.terms = {.share = {.limit_ppm = DV_PPM, .weight = 1, .class = DV_CLASS_STANDARD},
                                              .may_request_ppm = DV_PPM,
                                              .may_weight = DV_WEIGHT_MAX,
                                              .may_class = DV_CLASS_LATENCY,
                                              .configured_class = DV_CLASS_STANDARD}};

    snprintf(identity.name, sizeof identity.name, "%s", name);
    return identity;
}

int peer_begin_as(struct stage *stage, struct peer *peer, const struct dvd_identity *identity,
                  const struct dvd_share_change *change)
{
    static uint64_t last_id;

    memset(peer, 0, sizeof *peer);
    peer->lessee = (struct dvd_lessee){.ledger = &stage->ledger,
                                       .id = DVD_SESSION_ID(++last_id),
                                       .uid = 1000,
                                       .has_worker = true,
                                       .device_count = stage->ledger.device_count,
                                       .leases = peer->leases};
    for (uint32_t i = 0; i < stage->ledger.device_count; i++) {
        peer->lessee.devices[i].number = (uint8_t)i;
        if (dvd_device_start(&stage->ledger.devices[i]))
            peer->lessee.leased_mask |= UINT64_C(1) << i;
    }
    int status = dvd_lessee_admit(&peer->lessee, identity, change, peer->text, sizeof peer->text);
    if (status == 0)
        dvd_lessee_record(&peer->lessee);
    return status;
}

int peer_begin(struct stage *stage, struct peer *peer, const char *tenant)
{
    static const struct dvd_share_change none;
    struct dvd_identity identity = tenant_named(tenant);

    return peer_begin_as(stage, peer, &identity, &none);
}

void peer_end(struct peer *peer)
{
    dvd_lessee_part(&peer->lessee);
    dvd_lessee_leave(&peer->lessee);
}

/* ---- messages ---- */

void say(struct peer *peer, const void *message, size_t bytes)
{
    union dv_channel_message m = {0};

    memcpy(&m, message, bytes < sizeof m ? bytes : sizeof m);
    dvd_lessee_take(&peer->lessee, &m, (ssize_t)bytes);
}

void say_lease(struct peer *peer, uint32_t device, enum dv_lease_type type, uint64_t serial, uint32_t flags)
{
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = (uint16_t)type,
                                 .device = device,
                                 .serial = serial,
                                 .flags = flags};

    say(peer, &m, sizeof m);
}

void say_want(struct peer *peer)
{
    say_lease(peer, 0, DV_LEASE_WANT, 0, 0);
}

void say_release(struct peer *peer, bool again)
{
    say_lease(peer, 0, DV_LEASE_RELEASE, peer->serial, again ? DV_LEASE_AGAIN : 0);
}

void say_memory(struct peer *peer, enum dv_memory_type type, uint64_t id, uint64_t bytes, uint32_t flags)
{
    struct dv_memory_message m = {.magic = DV_MEMORY_MAGIC,
                                  .version = DV_MEMORY_VERSION,
                                  .type = (uint16_t)type,
                                  .flags = flags,
                                  .id = id,
                                  .bytes = bytes};

    say(peer, &m, sizeof m);
}

static const union dv_channel_message *next_message(struct peer *peer)
{
    assert_true(peer->first < peer->count);
    return &peer->messages[peer->first++ % MESSAGES_MAX];
}

const struct dv_lease_message *hear_lease(struct peer *peer, enum dv_lease_type type)
{
    const union dv_channel_message *m = next_message(peer);

    assert_int_equal(m->magic, DV_LEASE_MAGIC);
    assert_int_equal(m->lease.type, type);
    if (type == DV_LEASE_GRANT)
        peer->serial = m->lease.serial;
    return &m->lease;
}

const struct dv_memory_message *hear_memory(struct peer *peer, enum dv_memory_type type)
{
    const union dv_channel_message *m = next_message(peer);

    assert_int_equal(m->magic, DV_MEMORY_MAGIC);
    assert_int_equal(m->memory.type, type);
    return &m->memory;
}

void hear_nothing(const struct peer *peer)
{
    assert_int_equal(peer->first, peer->count);
}

void forget_messages(struct peer *peer)
{
    peer->first = peer->count;
}
