/* The simulation (see engine.h). Each session is a worker that behaves as divvy's do: it asks when
 * it has something to run, runs one kernel after the other, and gives back when it has no work for
 * longer than it may linger, when the rest of the slice is shorter than a kernel, or when it is
 * recalled. It is charged from grant to release. */
#include "src/sim/daemon.h"
#include "src/sim/memory.h"
#include "src/sim/random.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define PROGRESS_STEPS 200
/* As in divvy's workers: how long a holder lingers while no other session waits, and up to which
 * pause a burst goes on before the first grant says. */
#define LINGER_ALONE_NS (5 * DV_NS_PER_MS)
#define BRIDGE_START_NS (100 * DV_NS_PER_US)

void dv_sim_sample(struct dv_engine *engine, struct dv_samples *samples, dv_ns value)
{
    if (samples->count == samples->capacity) {
        size_t capacity = samples->capacity ? 2 * samples->capacity : 256;
        dv_ns *values = realloc(samples->values, capacity * sizeof *values);
        if (!values) {
            engine->out_of_memory = true;
            return;
        }
        samples->values = values;
        samples->capacity = capacity;
    }
    samples->values[samples->count++] = value;
}

/* ---- the worker ---- */

static void record_hold(struct dv_engine *engine, struct dv_sim_tenant *tenant, dv_ns start, dv_ns end)
{
    unsigned slots = tenant->device->spec->slot_count;

    tenant->device->held_ns += end - start;
    tenant->held_ns += (end - start) / slots;
    while (start < end) {
        size_t bin = start / DV_SIM_BIN_NS;
        dv_ns bin_end = (bin + 1) * DV_SIM_BIN_NS;
        dv_ns stop = end < bin_end ? end : bin_end;
        if (bin < engine->sim.bin_count)
            tenant->bins[bin] += (stop - start) / slots;
        start = stop;
    }
}

static dv_ns vary(struct dv_engine *engine, dv_ns overhead_ns)
{
    double jitter = engine->sim.workload->overhead_jitter;

    if (jitter <= 0)
        return overhead_ns;
    return (dv_ns)((double)overhead_ns * (1 + jitter * (2 * dv_random_part(&engine->random) - 1)));
}

static void give_back(struct dv_engine *engine, struct dv_sim_session *session)
{
    dv_sim_set_state(session, DV_WORKER_RELEASING);
    dv_sim_later(engine, session, vary(engine, engine->sim.workload->release_ns), DV_EVENT_RELEASED);
}

static dv_ns linger_of(const struct dv_sim_session *session)
{
    return dv_pauses_linger(&session->pauses, session->linger_ns, session->short_linger_ns, session->contended);
}

/* How much of the kernel runs next. As in divvy's workers (src/worker/opencl/cut_size.c): a kernel of more than two
 * slices is cut, a short rest runs at once, and a slice ends with the lease's. */
static dv_ns part_of(const struct dv_sim_session *session, dv_ns rest, dv_ns left_ns)
{
    dv_ns part = session->part_ns;

    if (part == 0 || rest <= part + part / 2)
        return rest;
    return left_ns > part / 4 && left_ns < part ? left_ns : part;
}

/* How long the worker expects what runs next to take. */
static dv_ns expected(const struct dv_sim_session *session, dv_ns left_ns)
{
    dv_ns rest = session->rest_ns ? session->rest_ns : session->next_kernel_ns, part = part_of(session, rest, left_ns);

    return part < rest ? part : session->monitor.kernel_estimate_ns;
}

/* With the lease in hand: run, linger, or give back. */
static void go_on(struct dv_engine *engine, struct dv_sim_session *session)
{
    const struct dv_sim_tenant_spec *spec = session->tenant->spec;
    dv_ns left = session->slice_ends > engine->now ? session->slice_ends - engine->now : 0;

    if (session->recalled) {
        give_back(engine, session);
    } else if (!session->arrivals_count) {
        dv_ns keep = spec->keep == DV_KEEP_NOTHING ? 0 : spec->keep == DV_KEEP_SLICE ? left : linger_of(session);
        keep = keep < left ? keep : left;
        if (!keep) {
            give_back(engine, session);
            return;
        }
        dv_sim_set_state(session, DV_WORKER_LINGERING);
        dv_sim_later(engine, session, keep, DV_EVENT_LINGER_END);
    } else if (session->lease_kernels && left < expected(session, left)) {
        give_back(engine, session);
    } else {
        if (session->rest_ns == 0) {
            session->rest_ns = session->next_kernel_ns;
            session->next_kernel_ns = dv_arrivals_kernel(session);
        }
        session->running_ns = part_of(session, session->rest_ns, left);
        session->rest_ns -= session->running_ns;
        dv_sim_set_state(session, DV_WORKER_RUNNING);
        dv_sim_later(engine, session, session->running_ns, DV_EVENT_KERNEL_END);
    }
}

/* A move stops between two pieces. */
static bool must_stop_moving(const struct dv_sim_session *session)
{
    return session->state == DV_WORKER_MOVING && session->memory.copy == DV_COPY_NONE &&
           (session->recalled || dv_sim_memory_is_stuck(session));
}

static void stop_moving(struct dv_engine *engine, struct dv_sim_session *session)
{
    dv_sim_memory_end(engine, session, false);
    give_back(engine, session);
}

/* Moves memory as far as possible: evicts for others, brings the set in, and goes on when it is there. */
static void move(struct dv_engine *engine, struct dv_sim_session *session)
{
    if (must_stop_moving(session))
        stop_moving(engine, session);
    dv_sim_memory_step(engine, session);
    if (session->state == DV_WORKER_MOVING && dv_sim_memory_is_there(session)) {
        dv_sim_memory_end(engine, session, true);
        go_on(engine, session);
        dv_sim_memory_ahead(engine, session->tenant->device);
    } else if (must_stop_moving(session)) {
        stop_moving(engine, session);
    }
}

/* The worker has the grant: its slice runs from now on. */
static void begin_slice(struct dv_engine *engine, struct dv_sim_session *session)
{
    session->slice_ends = engine->now + session->slice_ns;
    if (session->recalled) {
        give_back(engine, session);
    } else if (dv_sim_memory_is_there(session)) {
        go_on(engine, session);
        dv_sim_memory_ahead(engine, session->tenant->device);
    } else {
        dv_sim_set_state(session, DV_WORKER_MOVING);
        dv_sim_memory_begin(engine, session);
        move(engine, session);
    }
}

static void ask(struct dv_engine *engine, struct dv_sim_session *session)
{
    dv_sim_set_state(session, DV_WORKER_WAITING);
    session->asked_at = engine->now;
}

/* ---- messages of the daemon ---- */

/* Called in the middle of a decision: the session reacts in an event. */
static void tell(struct dv_engine *engine, struct dv_sim_session *session)
{
    if (session->told)
        return;
    session->told = true;
    dv_events_push(&engine->events, engine->now, DV_EVENT_TOLD, session, 0);
}

static void on_grant(struct dv_engine *engine, struct dv_sim_session *session, const struct dv_lease_message *m)
{
    session->tenant->device->decisions++;
    dv_livelock_granted(engine, session->tenant);
    session->tenant->slices++;
    dv_sim_sample(engine, &session->tenant->waits, engine->now - session->asked_at);
    session->serial = m->serial;
    session->recalled = false;
    session->granted_at = engine->now;
    session->slice_ns = m->slice_ns;
    session->part_ns = m->part_ns;
    session->bridge_ns = m->linger_ns;
    session->contended = m->flags & DV_LEASE_CONTENDED;
    session->linger_ns = session->contended || m->linger_ns > LINGER_ALONE_NS ? m->linger_ns : LINGER_ALONE_NS;
    session->short_linger_ns = session->linger_ns;
    session->lease_kernels = 0;
    session->busy_ns = 0;
    dv_sim_set_state(session, DV_WORKER_STARTING);
    dv_sim_later(engine, session, vary(engine, engine->sim.workload->grant_ns), DV_EVENT_START);
}

static void on_lease_message(struct dv_engine *engine, struct dv_sim_session *session, const struct dv_lease_message *m)
{
    switch (m->type) {
    case DV_LEASE_GRANT:
        on_grant(engine, session, m);
        break;
    case DV_LEASE_EXTEND:
        session->slice_ends = engine->now + m->slice_ns;
        if (m->linger_ns > session->linger_ns)
            session->linger_ns = m->linger_ns;
        break;
    case DV_LEASE_RECALL:
        session->tenant->recalls++;
        session->recalled = true;
        tell(engine, session);
        break;
    default:
        break;
    }
}

static void on_memory_message(struct dv_engine *engine, struct dv_sim_session *session,
                              const struct dv_memory_message *m)
{
    dv_sim_memory_hear(session, m);
    tell(engine, session);
}

static const struct dv_daemon_events daemon_events = {
    .lease = on_lease_message, .memory = on_memory_message, .asked_again = dv_livelock_asked_again};

/* A holder that computes goes on to the end of its kernel. */
static void on_told(struct dv_engine *engine, struct dv_sim_session *session)
{
    session->told = false;
    if (session->state == DV_WORKER_LINGERING && session->recalled)
        give_back(engine, session);
    move(engine, session);
}

/* ---- events ---- */

static void on_arrival(struct dv_engine *engine, struct dv_sim_session *session)
{
    if (session->state == DV_WORKER_ABSENT)
        return;
    dv_arrivals_add(engine, session);
    dv_arrivals_set_next(engine, session);
    if (session->arrivals_count > 1)
        return;
    dv_ns bridge = session->bridge_ns ? session->bridge_ns : BRIDGE_START_NS;
    if (session->monitor.idle)
        dv_pauses_note(&session->pauses, engine->now - session->monitor.idle_since, bridge);
    dv_burst_work(&session->monitor, engine->now, bridge);
    if (session->state == DV_WORKER_LINGERING) {
        go_on(engine, session);
    } else if (session->state == DV_WORKER_IDLE) {
        ask(engine, session);
        dv_daemon_want(session);
        dv_sim_memory_ahead(engine, session->tenant->device);
    }
}

/* The session ends, and a hold with it. */
static void leave(struct dv_engine *engine, struct dv_sim_session *session)
{
    if (session->state >= DV_WORKER_STARTING)
        record_hold(engine, session->tenant, session->granted_at, engine->now);
    dv_arrivals_abandon(engine, session);
    dv_sim_set_state(session, DV_WORKER_ABSENT);
    dv_sim_memory_forget(session);
    dv_daemon_leave(session);
}

static void on_leave(struct dv_engine *engine, struct dv_sim_tenant *tenant)
{
    struct dv_sim_tenant **link = tenant->device ? &tenant->device->tenants : NULL;

    if (!tenant->present)
        return;
    tenant->present = false;
    tenant->left = true;
    if (engine->now < tenant->leave_ns)
        tenant->leave_ns = engine->now;
    for (unsigned i = 0; i < tenant->spec->session_count; i++)
        leave(engine, &tenant->sessions[i]);
    while (*link != tenant)
        link = &(*link)->next_there;
    *link = tenant->next_there;
}

static void on_kernel_end(struct dv_engine *engine, struct dv_sim_session *session)
{
    struct dv_sim_tenant *tenant = session->tenant;

    dv_livelock_kernel_ended(engine, tenant->device);
    tenant->kernels_ns += session->running_ns;
    tenant->device->kernels_ns += session->running_ns;
    session->lease_kernels++;
    session->busy_ns += session->running_ns;
    dv_burst_kernel(&session->monitor, session->running_ns);
    if (session->rest_ns) {
        go_on(engine, session);
        return;
    }
    tenant->kernels++;
    dv_arrivals_kernel_done(engine, session);
    if (tenant->work_ns && tenant->kernels_ns >= tenant->work_ns)
        on_leave(engine, tenant);
    else
        go_on(engine, session);
}

static void on_released(struct dv_engine *engine, struct dv_sim_session *session)
{
    struct dv_sim_tenant *tenant = session->tenant;

    record_hold(engine, tenant, session->granted_at, engine->now);
    if (engine->now > session->slice_ends)
        tenant->overuse_ns += engine->now - session->slice_ends;
    if (session->arrivals_count)
        ask(engine, session);
    else
        dv_sim_set_state(session, DV_WORKER_IDLE);
    dv_daemon_release(session, session->arrivals_count > 0);
    dv_sim_memory_ahead(engine, tenant->device);
}

static void on_join(struct dv_engine *engine, struct dv_sim_tenant *tenant)
{
    int status = dv_daemon_join(engine, tenant);

    tenant->refused = status < 0;
    engine->out_of_memory |= status == -ENOMEM;
    if (status < 0)
        return;
    tenant->bins = calloc(engine->sim.bin_count, sizeof *tenant->bins);
    if (!tenant->bins) {
        engine->out_of_memory = true;
        return;
    }
    tenant->present = true;
    tenant->next_there = tenant->device->tenants;
    tenant->device->tenants = tenant;
    for (unsigned i = 0; i < tenant->spec->session_count; i++) {
        struct dv_sim_session *session = &tenant->sessions[i];
        session->next_kernel_ns = dv_arrivals_kernel(session);
        dv_sim_set_state(session, DV_WORKER_IDLE);
        dv_arrivals_begin(engine, session);
    }
}

static void on_copied(struct dv_engine *engine, struct dv_sim_session *session)
{
    dv_sim_memory_copied(engine, session);
    move(engine, session);
}

/* An event of a session that is in the state that the event was made for. */
static void handle_session(struct dv_engine *engine, enum dv_event_type type, struct dv_sim_session *session)
{
    switch (type) {
    case DV_EVENT_START:
        begin_slice(engine, session);
        break;
    case DV_EVENT_KERNEL_END:
        on_kernel_end(engine, session);
        break;
    case DV_EVENT_LINGER_END:
        give_back(engine, session);
        break;
    default:
        on_released(engine, session);
        break;
    }
}

static void handle(struct dv_engine *engine, const struct dv_event *event)
{
    struct dv_sim_session *session = event->subject;

    switch (event->type) {
    case DV_EVENT_JOIN:
        on_join(engine, event->subject);
        break;
    case DV_EVENT_LEAVE:
        on_leave(engine, event->subject);
        break;
    case DV_EVENT_ARRIVAL:
        on_arrival(engine, session);
        break;
    case DV_EVENT_TIMER:
        dv_daemon_timer(engine, event);
        break;
    case DV_EVENT_TOLD:
        on_told(engine, session);
        break;
    case DV_EVENT_COPIED:
        if (event->generation == session->memory.copy_number)
            on_copied(engine, session);
        break;
    default:
        if (event->generation == session->generation)
            handle_session(engine, event->type, session);
        break;
    }
}

/* ---- making and running ---- */

static int add_tenant(struct dv_sim *sim, const struct dv_sim_tenant_spec *spec, unsigned copy, dv_ns join_ns)
{
    struct dv_sim_tenant *tenant = &sim->tenants[sim->tenant_count];

    tenant->spec = spec;
    tenant->sessions = calloc(spec->session_count, sizeof *tenant->sessions);
    sim->tenant_count++;
    sim->session_count += spec->session_count;
    if (!tenant->sessions)
        return -ENOMEM;
    if (spec->copy_count > 1)
        snprintf(tenant->name, sizeof tenant->name, "%s-%u", spec->name, copy + 1);
    else
        snprintf(tenant->name, sizeof tenant->name, "%s", spec->name);
    for (unsigned i = 0; i < spec->session_count; i++) {
        tenant->sessions[i].tenant = tenant;
        tenant->sessions[i].random = sim->workload->seed * 1000003 + (uint64_t)sim->tenant_count * 4099 + i;
    }
    tenant->join_ns = join_ns;
    tenant->leave_ns = spec->leave_ns;
    tenant->work_ns = dv_arrivals_work(&tenant->sessions[0]);
    return 0;
}

/* The tenants of one entry, which come at once or one after the other. */
static int add_tenants(struct dv_sim *sim, const struct dv_sim_tenant_spec *spec)
{
    uint64_t random = sim->workload->seed * 999983 + sim->tenant_count;
    dv_ns join_ns = spec->join_ns;

    for (unsigned copy = 0; copy < spec->copy_count; copy++) {
        double mean_ns = (double)spec->join_every_ns / sim->workload->load;
        if (spec->join_every_ns)
            join_ns += (dv_ns)dv_random_exponential(&random, mean_ns);
        if (add_tenant(sim, spec, copy, join_ns) < 0)
            return -ENOMEM;
    }
    return 0;
}

static void add_devices(struct dv_sim *sim, const struct dv_sim_device_spec *spec, const struct dv_policy_ops *ops,
                        dv_ns slice_ns)
{
    for (unsigned copy = 0; copy < spec->copy_count; copy++) {
        struct dv_sim_device *device = &sim->devices[sim->device_count++];
        device->spec = spec;
        if (spec->copy_count > 1)
            snprintf(device->name, sizeof device->name, "%s-%u", spec->name, copy + 1);
        else
            snprintf(device->name, sizeof device->name, "%s", spec->name);
        device->ops = ops ? ops : spec->ops;
        device->slice_ns = slice_ns ? slice_ns : spec->slice_ns;
    }
}

struct dv_sim *dv_sim_create(const struct dv_workload *workload, const struct dv_policy_ops *ops, dv_ns slice_ns)
{
    struct dv_engine *engine = calloc(1, sizeof *engine);
    struct dv_sim *sim = &engine->sim;
    size_t tenants = 0;

    if (!engine)
        return NULL;
    for (uint64_t i = 0; i < workload->tenants_count; i++)
        tenants += workload->tenants[i].copy_count;
    sim->workload = workload;
    engine->random = workload->seed * 999979;
    sim->bin_count = (workload->duration_ns + DV_SIM_BIN_NS - 1) / DV_SIM_BIN_NS;
    sim->devices = calloc(DV_SIM_MAX_DEVICES, sizeof *sim->devices);
    sim->tenants = calloc(tenants, sizeof *sim->tenants);
    if (!sim->devices || !sim->tenants)
        goto failed;
    for (uint64_t i = 0; i < workload->devices_count; i++)
        add_devices(sim, &workload->devices[i], ops, slice_ns);
    for (uint64_t i = 0; i < workload->tenants_count; i++)
        if (add_tenants(sim, &workload->tenants[i]) < 0)
            goto failed;
    dv_daemon_start(engine, &daemon_events);
    return sim;
failed:
    dv_sim_destroy(sim);
    return NULL;
}

/* Holds that are open when time is up count until then. */
static void record_open_holds(struct dv_engine *engine)
{
    for (unsigned i = 0; i < engine->sim.tenant_count; i++) {
        struct dv_sim_tenant *tenant = &engine->sim.tenants[i];
        for (unsigned j = 0; j < tenant->spec->session_count; j++)
            if (tenant->sessions[j].state >= DV_WORKER_STARTING)
                record_hold(engine, tenant, tenant->sessions[j].granted_at, engine->sim.workload->duration_ns);
    }
}

static bool out_of_memory(const struct dv_engine *engine)
{
    return engine->out_of_memory || engine->events.out_of_memory;
}

/* Work that is late and not done when time is up counts in the figures. */
static void abandon_all(struct dv_engine *engine)
{
    for (unsigned i = 0; i < engine->sim.tenant_count; i++)
        for (unsigned j = 0; j < engine->sim.tenants[i].spec->session_count; j++)
            dv_arrivals_abandon(engine, &engine->sim.tenants[i].sessions[j]);
}

/* Tenants that leave make room for those that join at the same time. */
static void push_comings_and_goings(struct dv_engine *engine)
{
    struct dv_sim *sim = &engine->sim;

    for (unsigned i = 0; i < sim->tenant_count; i++)
        if (sim->tenants[i].join_ns < sim->tenants[i].leave_ns && sim->tenants[i].leave_ns < sim->workload->duration_ns)
            dv_events_push(&engine->events, sim->tenants[i].leave_ns, DV_EVENT_LEAVE, &sim->tenants[i], 0);
    for (unsigned i = 0; i < sim->tenant_count; i++)
        if (sim->tenants[i].join_ns < sim->tenants[i].leave_ns)
            dv_events_push(&engine->events, sim->tenants[i].join_ns, DV_EVENT_JOIN, &sim->tenants[i], 0);
}

int dv_sim_run(struct dv_sim *sim, void (*progress)(double part))
{
    struct dv_engine *engine = (struct dv_engine *)(void *)sim;
    dv_ns end = sim->workload->duration_ns;
    dv_ns next_progress = 0;

    push_comings_and_goings(engine);
    while (engine->events.count && !out_of_memory(engine) && !sim->problem[0]) {
        struct dv_event event = dv_events_pop(&engine->events);
        if (event.at >= end)
            break;
        engine->now = event.at;
        if (progress && engine->now >= next_progress) {
            progress((double)engine->now / (double)end);
            next_progress += end / PROGRESS_STEPS;
        }
        handle(engine, &event);
    }
    engine->now = end;
    record_open_holds(engine);
    abandon_all(engine);
    if (progress)
        progress(1);
    return out_of_memory(engine) ? -ENOMEM : sim->problem[0] ? -ELOOP : 0;
}

void dv_sim_destroy(struct dv_sim *sim)
{
    struct dv_engine *engine = (struct dv_engine *)(void *)sim;

    if (!sim)
        return;
    dv_daemon_stop(engine);
    for (unsigned i = 0; sim->tenants && i < sim->tenant_count; i++) {
        struct dv_sim_tenant *tenant = &sim->tenants[i];
        for (unsigned j = 0; tenant->sessions && j < tenant->spec->session_count; j++)
            free(tenant->sessions[j].arrivals);
        free(tenant->sessions);
        free(tenant->bins);
        free(tenant->waits.values);
        free(tenant->latencies.values);
    }
    free(sim->tenants);
    free(sim->devices);
    dv_events_fini(&engine->events);
    free(engine);
}
