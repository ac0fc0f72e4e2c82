/* The ledger, its clock and its channels (see daemon.h). */
#include "src/sim/daemon.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/text.h"

/* The memory of a device that the workload does not limit. */
#define UNLIMITED_BYTES (DV_MEMORY_BYTES_MAX / 2)

/* ---- time ---- */

/* The start of virtual time on the ledger's clock, where 0 means no time. */
#define EPOCH_NS DV_NS_PER_S

/* The implementation's part of a dv_timer. An event of it can be in the queue when the timer is dropped, so it is
 * reused, and freed only at the end. */
struct dv_sim_timer {
    struct dv_timer *timer; /* NULL: free to be used */
    dv_ns when;             /* 0: the timer is off */
    dv_ns event_at;         /* its event in the queue; 0: none */
    uint64_t generation;    /* of that event */
    struct dv_sim_timer *next, *next_free;
};

static struct dv_engine *engine_of(struct dv_timers *timers)
{
    return (struct dv_engine *)(void *)((char *)timers - offsetof(struct dv_engine, timers));
}

static dv_ns now_of(struct dv_timers *timers)
{
    return EPOCH_NS + engine_of(timers)->now;
}

static struct dv_sim_timer *timer_source(struct dv_engine *engine, struct dv_timer *timer)
{
    struct dv_sim_timer *source = timer->source ? timer->source : engine->timers_free;

    if (timer->source)
        return source;
    if (source) {
        engine->timers_free = source->next_free;
    } else {
        source = calloc(1, sizeof *source);
        if (!source)
            return NULL;
        source->next = engine->timers_all;
        engine->timers_all = source;
    }
    source->timer = timer;
    timer->source = source;
    return source;
}

static void push_timer(struct dv_engine *engine, struct dv_sim_timer *source)
{
    source->event_at = source->when > engine->now ? source->when : engine->now;
    dv_events_push(&engine->events, source->event_at, DV_EVENT_TIMER, source, ++source->generation);
}

static int set_timer(struct dv_timers *timers, struct dv_timer *timer, dv_ns when)
{
    struct dv_engine *engine = engine_of(timers);

    if (when == 0 && !timer->source)
        return 0;
    when = when > EPOCH_NS ? when - EPOCH_NS : when ? 1 : 0;
    struct dv_sim_timer *source = timer_source(engine, timer);
    if (!source) {
        engine->out_of_memory = true;
        return -ENOMEM;
    }
    source->when = when;
    if (when && (!source->event_at || when < source->event_at)) /* a later time is set when that event comes */
        push_timer(engine, source);
    return 0;
}

static void drop_timer(struct dv_timers *timers, struct dv_timer *timer)
{
    struct dv_engine *engine = engine_of(timers);
    struct dv_sim_timer *source = timer->source;

    if (!source)
        return;
    source->timer = timer->source = NULL;
    source->when = source->event_at = 0;
    source->generation++;
    source->next_free = engine->timers_free;
    engine->timers_free = source;
}

static void tell_asked_again(struct dv_engine *engine, const struct dv_timer *timer)
{
    for (unsigned i = 0; i < engine->sim.device_count; i++)
        if (timer == &engine->ledger.devices[i].timer)
            engine->daemon_events->asked_again(engine, &engine->sim.devices[i]);
}

void dv_daemon_timer(struct dv_engine *engine, const struct dv_event *event)
{
    struct dv_sim_timer *source = event->subject;

    if (event->generation != source->generation)
        return;
    source->event_at = 0;
    if (source->when > engine->now) {
        push_timer(engine, source);
    } else if (source->when) {
        source->when = 0;
        tell_asked_again(engine, source->timer);
        source->timer->fired(source->timer->owner);
    }
}

/* ---- from the ledger ---- */

static int on_send(struct dvd_lessee *lessee, const void *message, size_t bytes)
{
    struct dv_engine *engine = lessee->ledger->owner;
    struct dv_sim_session *session = (struct dv_sim_session *)(void *)lessee;
    const union dv_channel_message *m = message;

    (void)bytes;
    if (m->magic == DV_LEASE_MAGIC)
        engine->daemon_events->lease(engine, session, &m->lease);
    else if (m->magic == DV_MEMORY_MAGIC)
        engine->daemon_events->memory(engine, session, &m->memory);
    return 0;
}

static bool on_is_stopped(const struct dvd_lessee *lessee)
{
    (void)lessee;
    return false;
}

static void on_overdue(struct dvd_lessee *lessee, dv_ns deadline, const char *what)
{
    (void)lessee;
    (void)deadline;
    (void)what;
}

static void on_unanswered(struct dvd_lessee *lessee, const struct dvd_device *device, dv_ns since, dv_ns deadline)
{
    (void)lessee;
    (void)device;
    (void)since;
    (void)deadline;
}

static bool on_turned_away(struct dvd_lessee *lessee, const char *reason, const struct dv_lease_message *answer)
{
    (void)lessee;
    (void)reason;
    (void)answer;
    return false;
}

static void on_tenant_freed(void *owner, const struct dvd_tenant *tenant)
{
    (void)owner;
    (void)tenant;
}

static const struct dvd_ledger_events ledger_events = {.send = on_send,
                                                       .is_stopped = on_is_stopped,
                                                       .overdue = on_overdue,
                                                       .unanswered = on_unanswered,
                                                       .turned_away = on_turned_away,
                                                       .tenant_freed = on_tenant_freed};

/* ---- the devices ---- */

static uint64_t host_available(void)
{
    return UINT64_MAX;
}

/* The first device of the same kind. */
static uint32_t group_of(const struct dv_sim *sim, unsigned index)
{
    uint32_t first = 0;

    while (sim->devices[first].spec != sim->devices[index].spec)
        first++;
    return first;
}

static void describe(const struct dv_sim *sim, unsigned index, struct dvd_device_terms *terms)
{
    const struct dv_sim_device *device = &sim->devices[index];
    uint64_t bytes = device->spec->memory_bytes;

    *terms = (struct dvd_device_terms){.is_shared_out = true,
                                       .policy = device->ops,
                                       .slots = device->spec->slot_count,
                                       .slice_ns = device->slice_ns,
                                       .slice_kernels = device->spec->kernel_slice_ns ? DV_SLICE_KERNELS_AUTO
                                                                                      : DV_SLICE_KERNELS_NEVER,
                                       .kernel_slice_ns = device->spec->kernel_slice_ns,
                                       .moving_part_ppm = DV_MOVING_PART_PPM,
                                       .moved_slice_max_ns = DV_MOVED_SLICE_MAX_NS,
                                       .room_patience_ns = DV_ROOM_PATIENCE_NS,
                                       .capacity_bytes = bytes ? bytes : UNLIMITED_BYTES,
                                       .swaps = bytes > 0,
                                       .copies_beside = device->spec->has_copy_engine,
                                       .group = group_of(sim, index)};
    dv_text_copy(terms->name, sizeof terms->name, device->name);
}

void dv_daemon_start(struct dv_engine *engine, const struct dv_daemon_events *events)
{
    struct dv_sim *sim = &engine->sim;
    struct dvd_ledger_terms terms = {.keeps_order = sim->workload->order == DV_DEVICE_ORDER_FIXED};
    struct dvd_device_terms devices[DV_MAX_DEVICES];

    static_assert(DV_SIM_MAX_DEVICES <= DV_MAX_DEVICES, "the ledger knows all devices of a workload");
    engine->daemon_events = events;
    engine->timers = (struct dv_timers){.now = now_of, .set = set_timer, .drop = drop_timer};
    dvd_ledger_init(&engine->ledger, &engine->timers, &engine->state, &ledger_events, engine);
    engine->ledger.read_host_available = host_available;
    dvd_ledger_set_terms(&engine->ledger, &terms);
    for (unsigned i = 0; i < sim->device_count; i++)
        describe(sim, i, &devices[i]);
    dvd_ledger_set_devices(&engine->ledger, devices, sim->device_count);
    for (unsigned i = 0; i < sim->device_count; i++)
        dvd_device_start(&engine->ledger.devices[i]);
}

void dv_daemon_stop(struct dv_engine *engine)
{
    struct dv_sim_timer *source, *next;

    if (!engine->daemon_events)
        return;
    for (unsigned i = 0; i < engine->sim.tenant_count; i++)
        for (unsigned j = 0; j < engine->sim.tenants[i].spec->session_count; j++)
            dv_daemon_leave(&engine->sim.tenants[i].sessions[j]);
    dvd_ledger_fini(&engine->ledger);
    for (source = engine->timers_all; source; source = next) {
        next = source->next;
        free(source);
    }
}

/* ---- sessions ---- */

static void say(struct dv_sim_session *session, const void *message, size_t bytes)
{
    union dv_channel_message m;

    memset(&m, 0, sizeof m);
    memcpy(&m, message, bytes);
    dvd_lessee_take(&session->lessee, &m, (ssize_t)bytes);
}

static void say_lease(struct dv_sim_session *session, enum dv_lease_type type, uint32_t flags)
{
    struct dv_burst burst = dv_burst_report(&session->monitor);
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = (uint16_t)type,
                                 .device = session->device_index,
                                 .flags = flags,
                                 .serial = session->serial,
                                 .kernel_ns = burst.kernel_ns,
                                 .p90_ns = burst.p90_ns,
                                 .last_ns = burst.last_ns,
                                 .busy_ns = session->busy_ns};

    say(session, &m, sizeof m);
}

void dv_daemon_want(struct dv_sim_session *session)
{
    say_lease(session, DV_LEASE_WANT, 0);
}

void dv_daemon_release(struct dv_sim_session *session, bool again)
{
    say_lease(session, DV_LEASE_RELEASE, again ? DV_LEASE_AGAIN : 0);
}

void dv_daemon_memory(struct dv_sim_session *session, enum dv_memory_type type, uint64_t id, uint64_t bytes,
                      uint32_t flags)
{
    struct dv_memory_message m = {.magic = DV_MEMORY_MAGIC,
                                  .version = DV_MEMORY_VERSION,
                                  .type = (uint16_t)type,
                                  .device = session->device_index,
                                  .flags = flags,
                                  .id = id,
                                  .bytes = bytes};

    say(session, &m, sizeof m);
}

/* Devices that the tenant may use, and that can hold the set of one of its sessions. */
static bool is_candidate(const struct dv_sim_device *device, const struct dv_sim_tenant *tenant)
{
    const struct dv_sim_tenant_spec *spec = tenant->spec;

    if (tenant->device)
        return device == tenant->device;
    if (spec->device && strcmp(spec->device, device->name) != 0 && strcmp(spec->device, device->spec->name) != 0)
        return false;
    return !device->spec->memory_bytes || spec->set_bytes <= device->spec->memory_bytes;
}

/* Fills in the session's list of devices. */
static int list_devices(struct dv_engine *engine, struct dv_sim_session *session)
{
    struct dvd_lessee *lessee = &session->lessee;

    for (unsigned i = 0; i < engine->sim.device_count; i++)
        if (is_candidate(&engine->sim.devices[i], session->tenant)) {
            lessee->leased_mask |= UINT64_C(1) << lessee->device_count;
            lessee->devices[lessee->device_count++].number = (uint8_t)i;
        }
    if (!lessee->device_count)
        return -ENOSPC;
    lessee->leases = calloc(lessee->device_count, sizeof *lessee->leases);
    return lessee->leases ? 0 : -ENOMEM;
}

static int join(struct dv_engine *engine, struct dv_sim_session *session, const struct dvd_identity *identity)
{
    static const struct dvd_share_change none;
    struct dvd_lessee *lessee = &session->lessee;
    char reason[512];

    *lessee = (struct dvd_lessee){
        .ledger = &engine->ledger, .id = DVD_SESSION_ID(++engine->last_session_id), .has_worker = true};
    int status = list_devices(engine, session);
    if (status == 0)
        status = dvd_lessee_admit(lessee, identity, &none, reason, sizeof reason);
    if (status < 0) {
        free(lessee->leases);
        lessee->leases = NULL;
        return status;
    }
    while (!lessee->leases[session->device_index]) /* it was admitted on one of them */
        session->device_index++;
    session->tenant->device = &engine->sim.devices[lessee->devices[session->device_index].number];
    say_lease(session, DV_LEASE_JOIN, 0);
    if (session->tenant->spec->set_bytes && session->tenant->device->spec->memory_bytes)
        dv_daemon_memory(session, DV_MEMORY_RESERVE, 0, session->tenant->spec->set_bytes, 0);
    return 0;
}

int dv_daemon_join(struct dv_engine *engine, struct dv_sim_tenant *tenant)
{
    struct dvd_identity identity = {
        .terms = {.share = tenant->spec->share,
                  .memory = {.bytes = DV_MEMORY_BYTES_MAX},
                  .may_request_ppm = DV_PPM,
                  .may_weight = DV_WEIGHT_MAX,
                  .may_class = DV_CLASS_LATENCY,
                  .configured_class = tenant->spec->share.class,
                  .slice_kernels = tenant->spec->whole_kernels ? DV_SLICE_KERNELS_NEVER : DV_SLICE_KERNELS_AUTO}};
    int status = 0;

    snprintf(identity.name, sizeof identity.name, "%u", (unsigned)(tenant - engine->sim.tenants));
    for (unsigned i = 0; status == 0 && i < tenant->spec->session_count; i++)
        status = join(engine, &tenant->sessions[i], &identity);
    for (unsigned i = 0; status < 0 && i < tenant->spec->session_count; i++)
        dv_daemon_leave(&tenant->sessions[i]);
    if (status == 0)
        tenant->device->tenants_placed++;
    return status;
}

void dv_daemon_leave(struct dv_sim_session *session)
{
    if (!session->lessee.leases)
        return;
    dvd_lessee_part(&session->lessee);
    dvd_lessee_leave(&session->lessee);
    free(session->lessee.leases);
    session->lessee.leases = NULL;
}
