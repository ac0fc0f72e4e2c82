/* The work of sessions: bursts of kernels that arrive always, periodically, at random, or at times
 * from a list. */
#include <math.h>
#include <stdlib.h>

#include "src/sim/private.h"
#include "src/sim/random.h"

/* A heavy tail has no maximum, a simulation needs one. */
#define LONGEST_NS 1e16

static dv_ns whole_ns(double ns)
{
    return ns < LONGEST_NS ? (dv_ns)ns : (dv_ns)LONGEST_NS;
}

/* The burst of a recording that runs, or comes next. */
static const struct dv_sim_burst *recorded_burst(const struct dv_sim_session *session)
{
    const struct dv_sim_tenant *tenant = session->tenant;
    const struct dv_sim_recording *recording =
        tenant->spec->arrival == DV_ARRIVAL_RECORDED ? &tenant->spec->recorded[session - tenant->sessions] : NULL;

    return recording && session->trace_next && session->trace_next <= recording->count
               ? &recording->bursts[session->trace_next - 1]
               : NULL;
}

static unsigned recorded_kernels(const struct dv_sim_burst *burst)
{
    uint64_t count = (burst->work_ns + burst->kernel_ns - 1) / burst->kernel_ns;

    return count < 1 ? 1 : count < 1000000 ? (unsigned)count : 1000000;
}

dv_ns dv_arrivals_kernel(struct dv_sim_session *session)
{
    const struct dv_sim_tenant_spec *spec = session->tenant->spec;
    const struct dv_sim_burst *burst = recorded_burst(session);
    double ns = (double)spec->kernel_ns;

    if (burst)
        return burst->work_ns / recorded_kernels(burst);
    if (spec->lengths == DV_LENGTHS_UNIFORM)
        ns += dv_random_part(&session->random) * (double)(spec->kernel_max_ns - spec->kernel_ns);
    else if (spec->lengths == DV_LENGTHS_LOGNORMAL) /* `kernel` is the median */
        ns *= exp(spec->sigma * dv_random_normal(&session->random));
    else if (spec->lengths == DV_LENGTHS_PARETO)
        ns = dv_random_pareto(&session->random, ns, spec->kernel_tail);
    if (spec->kernel_max_ns && ns > (double)spec->kernel_max_ns)
        ns = (double)spec->kernel_max_ns;
    return ns < 1 ? 1 : whole_ns(ns);
}

static unsigned random_burst(struct dv_sim_session *session)
{
    const struct dv_sim_tenant_spec *spec = session->tenant->spec;

    if (recorded_burst(session))
        return recorded_kernels(recorded_burst(session));
    if (spec->burst_sizes == DV_LENGTHS_FIXED)
        return spec->burst_kernels;
    double kernels = 0.5 + dv_random_pareto(&session->random, spec->burst_kernels, spec->burst_tail);
    return kernels < 1 ? 1 : kernels < spec->burst_max ? (unsigned)kernels : spec->burst_max;
}

dv_ns dv_arrivals_work(struct dv_sim_session *session)
{
    const struct dv_sim_tenant_spec *spec = session->tenant->spec;

    if (spec->work_lengths == DV_LENGTHS_FIXED)
        return spec->work_ns;
    return 1 + whole_ns(dv_random_pareto(&session->random, (double)spec->work_ns, spec->work_tail));
}

static dv_ns random_around(struct dv_sim_session *session, dv_ns ns)
{
    double part = session->tenant->spec->jitter * (2 * dv_random_part(&session->random) - 1);
    return (dv_ns)((double)ns * (1 + part));
}

static bool grow(struct dv_sim_session *session)
{
    size_t capacity = session->arrivals_capacity ? 2 * session->arrivals_capacity : 8;
    dv_ns *arrivals = malloc(capacity * sizeof *arrivals);

    if (!arrivals)
        return false;
    for (size_t i = 0; i < session->arrivals_count; i++)
        arrivals[i] = session->arrivals[(session->arrivals_first + i) % session->arrivals_capacity];
    free(session->arrivals);
    session->arrivals = arrivals;
    session->arrivals_first = 0;
    session->arrivals_capacity = capacity;
    return true;
}

void dv_arrivals_add(struct dv_engine *engine, struct dv_sim_session *session)
{
    if (session->arrivals_count == session->arrivals_capacity && !grow(session)) {
        engine->out_of_memory = true;
        return;
    }
    size_t index = (session->arrivals_first + session->arrivals_count++) % session->arrivals_capacity;
    session->arrivals[index] = engine->now;
    if (session->arrivals_count == 1)
        session->kernels_left = random_burst(session);
    if (recorded_burst(session))
        session->next_kernel_ns = dv_arrivals_kernel(session);
}

static void push_arrival(struct dv_engine *engine, struct dv_sim_session *session, dv_ns delay_ns)
{
    dv_events_push(&engine->events, engine->now + delay_ns, DV_EVENT_ARRIVAL, session, 0);
}

void dv_arrivals_set_next(struct dv_engine *engine, struct dv_sim_session *session)
{
    const struct dv_sim_tenant_spec *spec = session->tenant->spec;
    double load = engine->sim.workload->load;
    dv_ns delay = 0;

    switch (spec->arrival) {
    case DV_ARRIVAL_ALWAYS:
    case DV_ARRIVAL_RECORDED:
        return; /* when the burst is done */
    case DV_ARRIVAL_PERIODIC:
        delay = whole_ns((double)random_around(session, spec->period_ns) / load);
        break;
    case DV_ARRIVAL_POISSON:
        delay = whole_ns(dv_random_exponential(&session->random, 1e9 / spec->rate_per_s / load));
        break;
    case DV_ARRIVAL_PARETO:
        delay = whole_ns(dv_random_pareto(&session->random, (double)spec->mean_ns / load, spec->arrival_tail));
        break;
    case DV_ARRIVAL_TRACE:
        if (session->trace_next == spec->trace_count)
            return;
        dv_ns at = session->tenant->join_ns + whole_ns((double)spec->trace_ns[session->trace_next++] / load);
        delay = at > engine->now ? at - engine->now : 0;
        break;
    }
    push_arrival(engine, session, delay);
}

/* A recording goes on after the end of its burst, whenever that is. */
static void push_recorded(struct dv_engine *engine, struct dv_sim_session *session)
{
    const struct dv_sim_recording *recording = &session->tenant->spec->recorded[session - session->tenant->sessions];
    bool repeats = session->trace_next == recording->count && recording->count > 0 && !recording->ended;

    session->trace_next = repeats ? 1 : session->trace_next + 1;
    if (repeats) /* the gap of the first is that from the beginning of the recording */
        push_arrival(engine, session, recording->bursts[recording->count > 1].gap_ns);
    else if (recorded_burst(session))
        push_arrival(engine, session, recorded_burst(session)->gap_ns);
}

void dv_arrivals_begin(struct dv_engine *engine, struct dv_sim_session *session)
{
    if (session->tenant->spec->arrival == DV_ARRIVAL_RECORDED)
        push_recorded(engine, session);
    else if (session->tenant->spec->arrival == DV_ARRIVAL_ALWAYS)
        push_arrival(engine, session, 0);
    else
        dv_arrivals_set_next(engine, session);
}

static void count_for_sla(struct dv_sim_session *session, dv_ns latency_ns)
{
    struct dv_sim_tenant *tenant = session->tenant;

    if (!tenant->spec->sla_ns || session->abandoned)
        return;
    tenant->sla_requests++;
    tenant->sla_met += latency_ns <= tenant->spec->sla_ns;
}

void dv_arrivals_abandon(struct dv_engine *engine, struct dv_sim_session *session)
{
    for (size_t i = 0; i < session->arrivals_count; i++) {
        dv_ns age_ns = engine->now - session->arrivals[(session->arrivals_first + i) % session->arrivals_capacity];
        if (age_ns > session->tenant->spec->sla_ns)
            count_for_sla(session, age_ns);
    }
    session->abandoned = true;
}

static void end_burst(struct dv_engine *engine, struct dv_sim_session *session)
{
    struct dv_sim_tenant *tenant = session->tenant;
    const struct dv_sim_tenant_spec *spec = tenant->spec;
    dv_ns arrived = session->arrivals[session->arrivals_first];

    tenant->bursts++;
    dv_sim_sample(engine, &tenant->latencies, engine->now - arrived);
    count_for_sla(session, engine->now - arrived);
    session->arrivals_first = (session->arrivals_first + 1) % session->arrivals_capacity;
    session->arrivals_count--;
    if (session->arrivals_count)
        session->kernels_left = random_burst(session);
    if (spec->arrival == DV_ARRIVAL_ALWAYS && spec->gap_ns == 0)
        dv_arrivals_add(engine, session);
    else if (spec->arrival == DV_ARRIVAL_ALWAYS)
        push_arrival(engine, session, random_around(session, spec->gap_ns));
    else if (spec->arrival == DV_ARRIVAL_RECORDED)
        push_recorded(engine, session);
    if (!session->arrivals_count)
        dv_burst_idle(&session->monitor, engine->now);
}

void dv_arrivals_kernel_done(struct dv_engine *engine, struct dv_sim_session *session)
{
    if (--session->kernels_left == 0)
        end_burst(engine, session);
}
