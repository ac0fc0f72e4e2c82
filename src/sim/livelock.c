/* A policy that grants and recalls for ever, or asks to be asked again at once, would keep a
 * simulation at one moment of virtual time. Decisions between which no kernel ends are counted, and
 * the run ends when there are too many. */
#include <stdio.h>

#include "src/sim/private.h"

/* Far more than sound policies need: a grant, a recall and a question for each session. */
#define DECISIONS_MAX 100000
#define DECISIONS_MAX_PER_SESSION 16
#define TENANTS_NAMED 8

static void put_tenants(struct dv_sim *sim, const struct dv_sim_device *device, size_t used)
{
    unsigned named = 0;

    for (unsigned i = 0; i < sim->tenant_count && named <= TENANTS_NAMED; i++) {
        const struct dv_sim_tenant *tenant = &sim->tenants[i];
        if (tenant->device != device || tenant->kernel_epoch != device->kernel_epoch || !tenant->idle_grants ||
            used >= sizeof sim->problem)
            continue;
        const char *comma = named ? ", " : "";
        int length = named == TENANTS_NAMED ? snprintf(sim->problem + used, sizeof sim->problem - used, ", ...")
                                            : snprintf(sim->problem + used, sizeof sim->problem - used,
                                                       "%s'%s' (%u grants)", comma, tenant->name, tenant->idle_grants);
        used += length > 0 ? (size_t)length : 0;
        named++;
    }
    if (!named && used < sizeof sim->problem)
        snprintf(sim->problem + used, sizeof sim->problem - used, "no tenant");
}

static void complain(struct dv_engine *engine, const struct dv_sim_device *device)
{
    struct dv_sim *sim = &engine->sim;
    int used = snprintf(sim->problem, sizeof sim->problem,
                        "policy '%s' on device '%s' decides without end: at %.9f s, after %u "
                        "decisions in %.9f s between which no kernel ran; grants went to ",
                        device->ops->name, device->name, (double)engine->now / 1e9, device->idle_decisions,
                        (double)(engine->now - device->kernel_at) / 1e9);

    put_tenants(sim, device, used > 0 ? (size_t)used : 0);
}

static void count(struct dv_engine *engine, struct dv_sim_device *device)
{
    uint64_t most = DECISIONS_MAX + (uint64_t)DECISIONS_MAX_PER_SESSION * engine->sim.session_count;

    if (++device->idle_decisions > most && !engine->sim.problem[0])
        complain(engine, device);
}

void dv_livelock_granted(struct dv_engine *engine, struct dv_sim_tenant *tenant)
{
    struct dv_sim_device *device = tenant->device;

    if (tenant->kernel_epoch != device->kernel_epoch) {
        tenant->kernel_epoch = device->kernel_epoch;
        tenant->idle_grants = 0;
    }
    tenant->idle_grants++;
    count(engine, device);
}

void dv_livelock_asked_again(struct dv_engine *engine, struct dv_sim_device *device)
{
    count(engine, device);
}

void dv_livelock_kernel_ended(struct dv_engine *engine, struct dv_sim_device *device)
{
    device->idle_decisions = 0;
    device->kernel_epoch++;
    device->kernel_at = engine->now;
}
