/* The simulation (see engine.h). Each session is a worker that behaves as divvy's do: it asks when
 * it has something to run, runs one kernel after the other, and gives back when it has nothing for
 * longer than it may linger, when what is left of the slice is shorter than a kernel, or when it is
 * recalled. What it is charged for is grant to release. */
#include "src/sim/engine.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PROGRESS_STEPS 200

enum worker_state { ABSENT, IDLE, WAITING, STARTING, RUNNING, LINGERING, RELEASING };

enum event_type {
    EVENT_JOIN,
    EVENT_LEAVE,
    EVENT_ARRIVAL,
    EVENT_START,
    EVENT_KERNEL_END,
    EVENT_LINGER_END,
    EVENT_RELEASED,
    EVENT_POLL
};

struct event {
    dv_ns at;
    uint64_t order; /* of events at one time, the older first: the same seed gives the same run */
    enum event_type type;
    void *subject;
    uint64_t generation; /* stale when the session has moved on */
};

struct dv_sim_session {
    struct dv_policy_session lease;
    struct dv_sim_tenant *tenant;
    uint64_t random;
    enum worker_state state;
    uint64_t generation;
    bool leaving;
    dv_ns *arrivals; /* of bursts not yet done, in a ring */
    size_t arrivals_first, arrivals_count, arrivals_capacity;
    uint64_t trace_next;
    unsigned kernels_left; /* of the first burst */
    dv_ns next_kernel_ns;
    dv_ns running_ns;
    dv_ns slice_ends, linger_ns;
    unsigned lease_kernels;
    struct dv_burst_monitor monitor;
};

/* The simulation with what only this file knows. */
struct engine {
    struct dv_sim sim;
    struct event *events; /* a binary heap */
    size_t event_count, event_capacity;
    uint64_t event_order;
    dv_ns now;
    bool out_of_memory;
};

/* ---- random numbers, a stream of its own for each session ---- */

static uint64_t random_bits(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double random_part(uint64_t *state) /* above 0, at most 1 */
{
    return (double)((random_bits(state) >> 11) + 1) / 9007199254740992.0;
}

static double random_normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(random_part(state)));
    return radius * cos(2 * 3.14159265358979323846 * random_part(state));
}

static dv_ns random_kernel(struct dv_sim_session *session)
{
    const struct dv_sim_tenant_spec *spec = session->tenant->spec;
    double ns = (double)spec->kernel_ns;

    if (spec->lengths == DV_LENGTHS_UNIFORM)
        ns += random_part(&session->random) * (double)(spec->kernel_max_ns - spec->kernel_ns);
    else if (spec->lengths == DV_LENGTHS_LOGNORMAL) /* `kernel` is the median */
        ns *= exp(spec->sigma * random_normal(&session->random));
    if (spec->kernel_max_ns && ns > (double)spec->kernel_max_ns)
        ns = (double)spec->kernel_max_ns;
    return ns < 1 ? 1 : (dv_ns)ns;
}

static dv_ns random_around(struct dv_sim_session *session, dv_ns ns)
{
    double part = session->tenant->spec->jitter * (2 * random_part(&session->random) - 1);
    return (dv_ns)((double)ns * (1 + part));
}

/* ---- events ---- */

static bool earlier(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(struct engine *engine, dv_ns at, enum event_type type, void *subject,
                 uint64_t generation)
{
    if (engine->event_count == engine->event_capacity) {
        size_t capacity = engine->event_capacity ? 2 * engine->event_capacity : 1024;
        struct event *events = realloc(engine->events, capacity * sizeof *events);
        if (!events) {
            engine->out_of_memory = true;
            return;
        }
        engine->events = events;
        engine->event_capacity = capacity;
    }
    struct event event = {at, engine->event_order++, type, subject, generation};
    size_t place = engine->event_count++;
    while (place && earlier(&event, &engine->events[(place - 1) / 2])) {
        engine->events[place] = engine->events[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    engine->events[place] = event;
}

static struct event pop(struct engine *engine)
{
    struct event first = engine->events[0];
    struct event last = engine->events[--engine->event_count];
    size_t place = 0;

    for (;;) {
        size_t child = 2 * place + 1;
        if (child >= engine->event_count)
            break;
        if (child + 1 < engine->event_count &&
            earlier(&engine->events[child + 1], &engine->events[child]))
            child++;
        if (!earlier(&engine->events[child], &last))
            break;
        engine->events[place] = engine->events[child];
        place = child;
    }
    if (engine->event_count)
        engine->events[place] = last;
    return first;
}

static void later(struct engine *engine, struct dv_sim_session *session, dv_ns delay,
                  enum event_type type)
{
    push(engine, engine->now + delay, type, session, session->generation);
}

static void sample(struct engine *engine, struct dv_samples *samples, dv_ns value)
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

static void set_state(struct dv_sim_session *session, enum worker_state state)
{
    session->state = state;
    session->generation++;
}

static void record_hold(struct engine *engine, struct dv_sim_tenant *tenant, dv_ns start, dv_ns end)
{
    unsigned slots = tenant->device->spec->slot_count;

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

static void give_back(struct engine *engine, struct dv_sim_session *session)
{
    set_state(session, RELEASING);
    later(engine, session, engine->sim.workload->release_ns, EVENT_RELEASED);
}

/* With the lease in hand: run, linger, or give back. */
static void go_on(struct engine *engine, struct dv_sim_session *session)
{
    const struct dv_sim_tenant_spec *spec = session->tenant->spec;
    dv_ns left = session->slice_ends > engine->now ? session->slice_ends - engine->now : 0;

    if (session->lease.recalled || session->leaving) {
        give_back(engine, session);
    } else if (!session->arrivals_count) {
        dv_ns keep = spec->keep == DV_KEEP_NOTHING ? 0
                     : spec->keep == DV_KEEP_SLICE ? left
                                                   : session->linger_ns;
        keep = keep < left ? keep : left;
        if (!keep) {
            give_back(engine, session);
            return;
        }
        set_state(session, LINGERING);
        later(engine, session, keep, EVENT_LINGER_END);
    } else if (session->lease_kernels && left < session->monitor.kernel_estimate_ns) {
        give_back(engine, session);
    } else {
        session->running_ns = session->next_kernel_ns;
        session->next_kernel_ns = random_kernel(session);
        set_state(session, RUNNING);
        later(engine, session, session->running_ns, EVENT_KERNEL_END);
    }
}

static void recall(struct engine *engine, struct dv_policy_session *lease)
{
    struct dv_sim_session *session = (struct dv_sim_session *)(void *)lease;

    session->tenant->recalls++;
    if (session->state == LINGERING)
        give_back(engine, session);
}

/* What divvyd does after every message. */
static void decide(struct engine *engine, struct dv_sim_device *device)
{
    struct dv_policy *policy = &device->policy;
    struct dv_policy_session *lease;
    struct dv_decision decision;
    dv_ns again;

    while ((decision = dv_policy_next(policy, engine->now)).session) {
        struct dv_sim_session *session = (struct dv_sim_session *)(void *)decision.session;
        device->decisions++;
        session->tenant->slices++;
        sample(engine, &session->tenant->waits, engine->now - decision.session->waiting_since);
        session->slice_ends = engine->now + decision.slice_ns;
        session->linger_ns = decision.linger_ns;
        session->lease_kernels = 0;
        set_state(session, STARTING);
        later(engine, session, engine->sim.workload->grant_ns, EVENT_START);
    }
    while ((lease = dv_policy_recall(policy, engine->now, &again)))
        recall(engine, lease);
    if (decision.ask_again_ns && (!again || decision.ask_again_ns < again))
        again = decision.ask_again_ns;
    if (again && (!device->poll_at || again < device->poll_at)) {
        device->poll_at = again;
        push(engine, again, EVENT_POLL, device, 0);
    }
}

static void ask(struct engine *engine, struct dv_sim_session *session)
{
    set_state(session, WAITING);
    dv_policy_wait(&session->tenant->device->policy, &session->lease, engine->now);
}

/* ---- work ---- */

static void add_burst(struct engine *engine, struct dv_sim_session *session)
{
    if (session->arrivals_count == session->arrivals_capacity) {
        size_t capacity = session->arrivals_capacity ? 2 * session->arrivals_capacity : 8;
        dv_ns *arrivals = malloc(capacity * sizeof *arrivals);
        if (!arrivals) {
            engine->out_of_memory = true;
            return;
        }
        for (size_t i = 0; i < session->arrivals_count; i++)
            arrivals[i] =
                session->arrivals[(session->arrivals_first + i) % session->arrivals_capacity];
        free(session->arrivals);
        session->arrivals = arrivals;
        session->arrivals_first = 0;
        session->arrivals_capacity = capacity;
    }
    size_t place =
        (session->arrivals_first + session->arrivals_count++) % session->arrivals_capacity;
    session->arrivals[place] = engine->now;
    if (session->arrivals_count == 1)
        session->kernels_left = session->tenant->spec->burst_kernels;
}

static void set_next_arrival(struct engine *engine, struct dv_sim_session *session)
{
    const struct dv_sim_tenant_spec *spec = session->tenant->spec;
    dv_ns delay = 0;

    switch (spec->arrival) {
    case DV_ARRIVAL_ALWAYS:
        return; /* when the burst is done */
    case DV_ARRIVAL_PERIODIC:
        delay = random_around(session, spec->period_ns);
        break;
    case DV_ARRIVAL_POISSON:
        delay = (dv_ns)(-log(random_part(&session->random)) / spec->rate_per_s * 1e9);
        break;
    case DV_ARRIVAL_TRACE:
        if (session->trace_next == spec->trace_count)
            return;
        dv_ns at = spec->join_ns + spec->trace_ns[session->trace_next++];
        delay = at > engine->now ? at - engine->now : 0;
        break;
    }
    push(engine, engine->now + delay, EVENT_ARRIVAL, session, 0);
}

static void on_arrival(struct engine *engine, struct dv_sim_session *session)
{
    if (session->leaving || session->state == ABSENT)
        return;
    add_burst(engine, session);
    set_next_arrival(engine, session);
    if (session->arrivals_count > 1)
        return;
    dv_burst_work(&session->monitor, engine->now,
                  session->linger_ns ? session->linger_ns : 100 * DV_NS_PER_US);
    if (session->state == LINGERING) {
        go_on(engine, session);
    } else if (session->state == IDLE) {
        ask(engine, session);
        decide(engine, session->tenant->device);
    }
}

static void end_burst(struct engine *engine, struct dv_sim_session *session)
{
    struct dv_sim_tenant *tenant = session->tenant;

    tenant->bursts++;
    sample(engine, &tenant->latencies, engine->now - session->arrivals[session->arrivals_first]);
    session->arrivals_first = (session->arrivals_first + 1) % session->arrivals_capacity;
    session->arrivals_count--;
    session->kernels_left = tenant->spec->burst_kernels;
    if (tenant->spec->arrival != DV_ARRIVAL_ALWAYS) {
        ;
    } else if (tenant->spec->gap_ns == 0) {
        add_burst(engine, session);
    } else {
        push(engine, engine->now + random_around(session, tenant->spec->gap_ns), EVENT_ARRIVAL,
             session, 0);
    }
    if (!session->arrivals_count)
        dv_burst_idle(&session->monitor, engine->now);
}

static void on_kernel_end(struct engine *engine, struct dv_sim_session *session)
{
    struct dv_sim_tenant *tenant = session->tenant;

    tenant->kernels++;
    tenant->kernels_ns += session->running_ns;
    session->lease_kernels++;
    dv_burst_kernel(&session->monitor, session->running_ns);
    if (--session->kernels_left == 0)
        end_burst(engine, session);
    go_on(engine, session);
}

static void depart_if_done(struct dv_sim_tenant *tenant)
{
    if (tenant->policy.waiting_count || tenant->policy.holding_count || !tenant->present)
        return;
    tenant->present = false;
    dv_policy_tenant_remove(&tenant->device->policy, &tenant->policy);
}

static void on_released(struct engine *engine, struct dv_sim_session *session)
{
    struct dv_sim_tenant *tenant = session->tenant;
    struct dv_policy_session *lease = &session->lease;

    record_hold(engine, tenant, lease->granted_at, engine->now);
    if (engine->now > session->slice_ends)
        tenant->overuse_ns += engine->now - session->slice_ends;
    lease->burst = dv_burst_report(&session->monitor);
    dv_policy_release(&tenant->device->policy, lease, engine->now);
    if (session->leaving) {
        set_state(session, ABSENT);
        depart_if_done(tenant);
    } else if (session->arrivals_count) {
        ask(engine, session);
    } else {
        set_state(session, IDLE);
    }
    decide(engine, tenant->device);
}

static void on_join(struct engine *engine, struct dv_sim_tenant *tenant)
{
    tenant->present = true;
    dv_policy_tenant_add(&tenant->device->policy, &tenant->policy, &tenant->spec->share,
                         engine->now);
    for (unsigned i = 0; i < tenant->spec->session_count; i++) {
        struct dv_sim_session *session = &tenant->sessions[i];
        dv_policy_session_init(&session->lease, &tenant->policy);
        session->next_kernel_ns = random_kernel(session);
        set_state(session, IDLE);
        if (tenant->spec->arrival == DV_ARRIVAL_ALWAYS)
            push(engine, engine->now, EVENT_ARRIVAL, session, 0);
        else
            set_next_arrival(engine, session);
    }
}

static void on_leave(struct engine *engine, struct dv_sim_tenant *tenant)
{
    for (unsigned i = 0; i < tenant->spec->session_count; i++) {
        struct dv_sim_session *session = &tenant->sessions[i];
        session->leaving = true;
        dv_policy_cancel(&tenant->device->policy, &session->lease, engine->now);
        if (session->state == LINGERING)
            give_back(engine, session);
    }
    depart_if_done(tenant);
    decide(engine, tenant->device);
}

static void handle(struct engine *engine, const struct event *event)
{
    struct dv_sim_session *session = event->subject;

    switch (event->type) {
    case EVENT_JOIN:
        on_join(engine, event->subject);
        return;
    case EVENT_LEAVE:
        on_leave(engine, event->subject);
        return;
    case EVENT_ARRIVAL:
        on_arrival(engine, session);
        return;
    case EVENT_POLL:
        ((struct dv_sim_device *)event->subject)->poll_at = 0;
        decide(engine, event->subject);
        return;
    default:
        break;
    }
    if (event->generation != session->generation)
        return;
    if (event->type == EVENT_START)
        go_on(engine, session);
    else if (event->type == EVENT_KERNEL_END)
        on_kernel_end(engine, session);
    else if (event->type == EVENT_LINGER_END)
        give_back(engine, session);
    else
        on_released(engine, session);
}

/* ---- making and running ---- */

static int add_tenant(struct dv_sim *sim, const struct dv_sim_tenant_spec *spec, unsigned copy)
{
    struct dv_sim_tenant *tenant = &sim->tenants[sim->tenant_count];

    tenant->spec = spec;
    tenant->device = &sim->devices[spec->device_index];
    tenant->bins = calloc(sim->bin_count, sizeof *tenant->bins);
    tenant->sessions = calloc(spec->session_count, sizeof *tenant->sessions);
    sim->tenant_count++;
    if (!tenant->bins || !tenant->sessions)
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
    return 0;
}

struct dv_sim *dv_sim_create(const struct dv_workload *workload, const struct dv_policy_ops *ops,
                             dv_ns slice_ns)
{
    struct engine *engine = calloc(1, sizeof *engine);
    struct dv_sim *sim = &engine->sim;
    size_t tenants = 0;

    if (!engine)
        return NULL;
    for (uint64_t i = 0; i < workload->tenants_count; i++)
        tenants += workload->tenants[i].copy_count;
    sim->workload = workload;
    sim->bin_count = (workload->duration_ns + DV_SIM_BIN_NS - 1) / DV_SIM_BIN_NS;
    sim->devices = calloc(workload->devices_count, sizeof *sim->devices);
    sim->tenants = calloc(tenants, sizeof *sim->tenants);
    if (!sim->devices || !sim->tenants)
        goto failed;
    sim->device_count = (unsigned)workload->devices_count;
    for (unsigned i = 0; i < sim->device_count; i++) {
        struct dv_sim_device *device = &sim->devices[i];
        device->spec = &workload->devices[i];
        dv_policy_init(&device->policy, ops ? ops : device->spec->ops, device->spec->slot_count, 0);
        device->policy.fixed_slice_ns = slice_ns ? slice_ns : device->spec->slice_ns;
    }
    for (uint64_t i = 0; i < workload->tenants_count; i++)
        for (unsigned copy = 0; copy < workload->tenants[i].copy_count; copy++)
            if (add_tenant(sim, &workload->tenants[i], copy) < 0)
                goto failed;
    return sim;
failed:
    dv_sim_destroy(sim);
    return NULL;
}

/* What is held when time is up counts until then. */
static void record_open_holds(struct engine *engine)
{
    for (unsigned i = 0; i < engine->sim.device_count; i++) {
        struct dv_policy_session *lease = engine->sim.devices[i].policy.holders.first;
        for (; lease; lease = lease->next)
            record_hold(engine, ((struct dv_sim_session *)(void *)lease)->tenant, lease->granted_at,
                        engine->sim.workload->duration_ns);
    }
}

int dv_sim_run(struct dv_sim *sim, void (*progress)(double part))
{
    struct engine *engine = (struct engine *)(void *)sim;
    dv_ns end = sim->workload->duration_ns;
    dv_ns next_progress = 0;

    for (unsigned i = 0; i < sim->tenant_count; i++) {
        const struct dv_sim_tenant_spec *spec = sim->tenants[i].spec;
        push(engine, spec->join_ns, EVENT_JOIN, &sim->tenants[i], 0);
        if (spec->leave_ns < end)
            push(engine, spec->leave_ns, EVENT_LEAVE, &sim->tenants[i], 0);
    }
    while (engine->event_count && !engine->out_of_memory) {
        struct event event = pop(engine);
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
    if (progress)
        progress(1);
    return engine->out_of_memory ? -ENOMEM : 0;
}

void dv_sim_destroy(struct dv_sim *sim)
{
    struct engine *engine = (struct engine *)(void *)sim;

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
    free(engine->events);
    free(engine);
}
