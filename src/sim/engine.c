/* The simulation (see engine.h). Each session is a worker that behaves as divvy's do: it asks when
 * it has something to run, runs one kernel after the other, and gives back when it has nothing for
 * longer than it may linger, when what is left of the slice is shorter than a kernel, or when it is
 * recalled. What it is charged for is grant to release. */
#include "src/sim/memory.h"
#include "src/sim/random.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define PROGRESS_STEPS 200
/* As in divvy's workers: how long a holder lingers while no other session waits, and which pause
 * does not end a burst before it is told one. */
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

static void record_hold(struct dv_engine *engine, struct dv_sim_tenant *tenant, dv_ns start,
                        dv_ns end)
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
    dv_sim_later(engine, session, vary(engine, engine->sim.workload->release_ns),
                 DV_EVENT_RELEASED);
}

static dv_ns linger_of(const struct dv_sim_session *session)
{
    return dv_pauses_linger(&session->pauses, session->linger_ns, session->short_linger_ns,
                            session->contended);
}

/* With the lease in hand: run, linger, or give back. */
static void go_on(struct dv_engine *engine, struct dv_sim_session *session)
{
    const struct dv_sim_tenant_spec *spec = session->tenant->spec;
    dv_ns left = session->slice_ends > engine->now ? session->slice_ends - engine->now : 0;

    if (session->lease.recalled || session->leaving) {
        give_back(engine, session);
    } else if (!session->arrivals_count) {
        dv_ns keep = spec->keep == DV_KEEP_NOTHING ? 0
                     : spec->keep == DV_KEEP_SLICE ? left
                                                   : linger_of(session);
        keep = keep < left ? keep : left;
        if (!keep) {
            give_back(engine, session);
            return;
        }
        dv_sim_set_state(session, DV_WORKER_LINGERING);
        dv_sim_later(engine, session, keep, DV_EVENT_LINGER_END);
    } else if (session->lease_kernels && left < session->monitor.kernel_estimate_ns) {
        give_back(engine, session);
    } else {
        session->running_ns = session->next_kernel_ns;
        session->next_kernel_ns = dv_arrivals_kernel(session);
        dv_sim_set_state(session, DV_WORKER_RUNNING);
        dv_sim_later(engine, session, session->running_ns, DV_EVENT_KERNEL_END);
    }
}

/* The worker has the grant: its slice runs from now on. */
static void begin_turn(struct dv_engine *engine, struct dv_sim_session *session)
{
    session->slice_ends = engine->now + session->slice_ns;
    if (session->lease.recalled || session->leaving) {
        give_back(engine, session);
        return;
    }
    if (!dv_sim_memory_bring(engine, session))
        go_on(engine, session);
}

/* A holder that computes goes on to the end of its kernel. */
static void stop_holding(struct dv_engine *engine, struct dv_sim_session *session)
{
    if (session->state == DV_WORKER_LINGERING)
        give_back(engine, session);
    else if (session->state == DV_WORKER_MOVING)
        dv_sim_memory_stop(engine, session);
}

static void recall(struct dv_engine *engine, struct dv_policy_session *lease)
{
    struct dv_sim_session *session = dv_sim_session_of(lease);

    session->tenant->recalls++;
    stop_holding(engine, session);
}

/* Whether the device should come back soon, as divvyd tells the worker with the grant. */
static bool is_contended(const struct dv_policy *policy, const struct dv_sim_session *session)
{
    return policy->waiting_tenants > 0 || session->tenant->spec->share.limit_ppm < DV_PPM;
}

/* What divvyd does after every message. */
static void decide(struct dv_engine *engine, struct dv_sim_device *device)
{
    struct dv_policy *policy = &device->policy;
    struct dv_policy_session *lease;
    struct dv_decision decision;
    dv_ns again;

    while ((decision = dv_policy_next(policy, engine->now)).session) {
        struct dv_sim_session *session = dv_sim_session_of(decision.session);
        device->decisions++;
        dv_livelock_granted(engine, session->tenant);
        session->tenant->slices++;
        dv_sim_sample(engine, &session->tenant->waits,
                      engine->now - decision.session->waiting_since);
        session->slice_ns = decision.slice_ns;
        session->bridge_ns = decision.linger_ns;
        session->contended = is_contended(policy, session);
        session->linger_ns = session->contended                     ? decision.linger_ns
                             : decision.linger_ns > LINGER_ALONE_NS ? decision.linger_ns
                                                                    : LINGER_ALONE_NS;
        session->short_linger_ns = session->linger_ns;
        session->lease_kernels = 0;
        session->busy_ns = 0;
        dv_sim_set_state(session, DV_WORKER_STARTING);
        dv_sim_later(engine, session, vary(engine, engine->sim.workload->grant_ns), DV_EVENT_START);
    }
    while ((lease = dv_policy_recall(policy, engine->now, &again)))
        recall(engine, lease);
    if (decision.ask_again_ns && (!again || decision.ask_again_ns < again))
        again = decision.ask_again_ns;
    if (again && again < engine->now)
        again = engine->now;
    if (again && (!device->poll_at || again < device->poll_at)) {
        device->poll_at = again;
        dv_events_push(&engine->events, again, DV_EVENT_POLL, device, 0);
    }
}

static void ask(struct dv_engine *engine, struct dv_sim_session *session)
{
    dv_sim_set_state(session, DV_WORKER_WAITING);
    dv_policy_wait(&session->tenant->device->policy, &session->lease, engine->now);
}

/* ---- what happens ---- */

static void on_arrival(struct dv_engine *engine, struct dv_sim_session *session)
{
    if (session->leaving || session->state == DV_WORKER_ABSENT)
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
        decide(engine, session->tenant->device);
        dv_sim_memory_ahead(engine, session->tenant->device);
    }
}

static void depart_if_done(struct dv_sim_tenant *tenant)
{
    if (tenant->policy.waiting_count || tenant->policy.holding_count || !tenant->present)
        return;
    tenant->present = false;
    dv_policy_tenant_remove(&tenant->device->policy, &tenant->policy);
    dv_devices_remove(tenant);
}

static void on_leave(struct dv_engine *engine, struct dv_sim_tenant *tenant)
{
    if (!tenant->present || tenant->left)
        return;
    tenant->left = true;
    dv_devices_leave(tenant);
    if (engine->now < tenant->leave_ns)
        tenant->leave_ns = engine->now;
    for (unsigned i = 0; i < tenant->spec->session_count; i++) {
        struct dv_sim_session *session = &tenant->sessions[i];
        dv_arrivals_abandon(engine, session);
        dv_policy_cancel(&tenant->device->policy, &session->lease, engine->now);
        stop_holding(engine, session);
        if (!session->lease.holding)
            dv_sim_memory_forget(engine, session);
    }
    depart_if_done(tenant);
    decide(engine, tenant->device);
}

static void on_kernel_end(struct dv_engine *engine, struct dv_sim_session *session)
{
    struct dv_sim_tenant *tenant = session->tenant;

    dv_livelock_kernel_ended(engine, tenant->device);
    tenant->kernels++;
    tenant->kernels_ns += session->running_ns;
    tenant->device->kernels_ns += session->running_ns;
    session->lease_kernels++;
    session->busy_ns += session->running_ns;
    dv_burst_kernel(&session->monitor, session->running_ns);
    dv_arrivals_kernel_done(engine, session);
    if (tenant->work_ns && tenant->kernels_ns >= tenant->work_ns)
        on_leave(engine, tenant);
    go_on(engine, session);
}

static void on_released(struct dv_engine *engine, struct dv_sim_session *session)
{
    struct dv_sim_tenant *tenant = session->tenant;
    struct dv_policy_session *lease = &session->lease;

    record_hold(engine, tenant, lease->granted_at, engine->now);
    if (engine->now > session->slice_ends)
        tenant->overuse_ns += engine->now - session->slice_ends;
    lease->burst = dv_burst_report(&session->monitor);
    lease->busy_ns = session->arrivals_count ? session->busy_ns : 0;
    dv_policy_release(&tenant->device->policy, lease, engine->now);
    session->memory.used_at = engine->now;
    if (session->leaving) {
        dv_sim_set_state(session, DV_WORKER_ABSENT);
        dv_sim_memory_forget(engine, session);
        depart_if_done(tenant);
    } else if (session->arrivals_count) {
        ask(engine, session);
    } else {
        dv_sim_set_state(session, DV_WORKER_IDLE);
    }
    decide(engine, tenant->device);
    dv_sim_memory_ahead(engine, tenant->device);
}

static void on_moved(struct dv_engine *engine, struct dv_sim_session *session)
{
    dv_sim_memory_is_there(engine, session);
    go_on(engine, session);
    decide(engine, session->tenant->device);
}

static void on_stopped(struct dv_engine *engine, struct dv_sim_session *session)
{
    dv_sim_memory_stopped(engine, session);
    give_back(engine, session);
}

static void on_ahead(struct dv_engine *engine, struct dv_sim_device *device, uint64_t number)
{
    if (number == device->memory.ahead_number && device->memory.ahead)
        dv_sim_memory_ahead_done(engine, device);
}

static void on_join(struct dv_engine *engine, struct dv_sim_tenant *tenant)
{
    if (!dv_devices_admit(engine, tenant)) {
        tenant->refused = true;
        return;
    }
    tenant->bins = calloc(engine->sim.bin_count, sizeof *tenant->bins);
    if (!tenant->bins) {
        engine->out_of_memory = true;
        return;
    }
    tenant->present = true;
    dv_policy_tenant_add(&tenant->device->policy, &tenant->policy, &tenant->spec->share,
                         engine->now);
    for (unsigned i = 0; i < tenant->spec->session_count; i++) {
        struct dv_sim_session *session = &tenant->sessions[i];
        dv_policy_session_init(&session->lease, &tenant->policy);
        dv_sim_memory_join(engine, session);
        session->next_kernel_ns = dv_arrivals_kernel(session);
        dv_sim_set_state(session, DV_WORKER_IDLE);
        dv_arrivals_begin(engine, session);
    }
}

static void on_poll(struct dv_engine *engine, struct dv_sim_device *device)
{
    device->poll_at = 0;
    dv_livelock_asked_again(engine, device);
    decide(engine, device);
}

/* What happens to a session in the state that the event was made for. */
static void handle_session(struct dv_engine *engine, enum dv_event_type type,
                           struct dv_sim_session *session)
{
    switch (type) {
    case DV_EVENT_START:
        begin_turn(engine, session);
        break;
    case DV_EVENT_ROOM:
        dv_sim_memory_has_room(engine, session);
        break;
    case DV_EVENT_MOVED:
        on_moved(engine, session);
        break;
    case DV_EVENT_STOPPED:
        on_stopped(engine, session);
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
    case DV_EVENT_POLL:
        on_poll(engine, event->subject);
        break;
    case DV_EVENT_AHEAD:
        on_ahead(engine, event->subject, event->generation);
        break;
    default:
        if (event->generation == session->generation)
            handle_session(engine, event->type, session);
        break;
    }
}

/* ---- making and running ---- */

static int add_tenant(struct dv_sim *sim, const struct dv_sim_tenant_spec *spec, unsigned copy,
                      dv_ns join_ns)
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
        tenant->sessions[i].random =
            sim->workload->seed * 1000003 + (uint64_t)sim->tenant_count * 4099 + i;
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

static void add_devices(struct dv_sim *sim, const struct dv_sim_device_spec *spec,
                        const struct dv_policy_ops *ops, dv_ns slice_ns)
{
    for (unsigned copy = 0; copy < spec->copy_count; copy++) {
        struct dv_sim_device *device = &sim->devices[sim->device_count++];
        device->spec = spec;
        if (spec->copy_count > 1)
            snprintf(device->name, sizeof device->name, "%s-%u", spec->name, copy + 1);
        else
            snprintf(device->name, sizeof device->name, "%s", spec->name);
        dv_policy_init(&device->policy, ops ? ops : spec->ops, spec->slot_count, 0);
        device->policy.may_run_beside = dv_sim_memory_fits_beside;
        device->policy.fixed_slice_ns = slice_ns ? slice_ns : spec->slice_ns;
    }
}

struct dv_sim *dv_sim_create(const struct dv_workload *workload, const struct dv_policy_ops *ops,
                             dv_ns slice_ns)
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
    return sim;
failed:
    dv_sim_destroy(sim);
    return NULL;
}

/* What is held when time is up counts until then. */
static void record_open_holds(struct dv_engine *engine)
{
    for (unsigned i = 0; i < engine->sim.device_count; i++) {
        struct dv_policy_session *lease = engine->sim.devices[i].policy.holders.first;
        for (; lease; lease = lease->next)
            record_hold(engine, dv_sim_session_of(lease)->tenant, lease->granted_at,
                        engine->sim.workload->duration_ns);
    }
}

static bool out_of_memory(const struct dv_engine *engine)
{
    return engine->out_of_memory || engine->events.out_of_memory;
}

/* Work that is not done when time is up, and late already, is not left out of the figures. */
static void abandon_all(struct dv_engine *engine)
{
    for (unsigned i = 0; i < engine->sim.tenant_count; i++)
        for (unsigned j = 0; j < engine->sim.tenants[i].spec->session_count; j++)
            dv_arrivals_abandon(engine, &engine->sim.tenants[i].sessions[j]);
}

/* What goes at some time makes room for what comes at the same time. */
static void push_comings_and_goings(struct dv_engine *engine)
{
    struct dv_sim *sim = &engine->sim;

    for (unsigned i = 0; i < sim->tenant_count; i++)
        if (sim->tenants[i].join_ns < sim->tenants[i].leave_ns &&
            sim->tenants[i].leave_ns < sim->workload->duration_ns)
            dv_events_push(&engine->events, sim->tenants[i].leave_ns, DV_EVENT_LEAVE,
                           &sim->tenants[i], 0);
    for (unsigned i = 0; i < sim->tenant_count; i++)
        if (sim->tenants[i].join_ns < sim->tenants[i].leave_ns)
            dv_events_push(&engine->events, sim->tenants[i].join_ns, DV_EVENT_JOIN,
                           &sim->tenants[i], 0);
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
