/* Which device a tenant goes to when it comes. Its guarantee is admitted on that device alone; a
 * tenant that fits on none is refused. */
#include <string.h>

#include "src/sim/private.h"

static bool is_candidate(const struct dv_sim_device *device, const struct dv_sim_tenant_spec *spec)
{
    return !spec->device || strcmp(spec->device, device->name) == 0 ||
           strcmp(spec->device, device->spec->name) == 0;
}

static bool fits(const struct dv_sim_device *device, const struct dv_sim_tenant_spec *spec)
{
    if (device->spec->memory_bytes && spec->set_bytes > device->spec->memory_bytes)
        return false;
    return is_candidate(device, spec) && device->requested_ppm + spec->share.request_ppm <= DV_PPM;
}

static uint64_t free_bytes(const struct dv_sim_device *device)
{
    uint64_t bytes = device->spec->memory_bytes;
    return bytes > device->set_bytes ? bytes - device->set_bytes : 0;
}

/* More free guarantee, then more memory that no set needs, then less weight to share with. */
static bool is_freer(const struct dv_sim_device *a, const struct dv_sim_device *b)
{
    if (a->requested_ppm != b->requested_ppm)
        return a->requested_ppm < b->requested_ppm;
    if (free_bytes(a) != free_bytes(b))
        return free_bytes(a) > free_bytes(b);
    return a->weight < b->weight;
}

bool dv_devices_admit(struct dv_engine *engine, struct dv_sim_tenant *tenant)
{
    const struct dv_sim_tenant_spec *spec = tenant->spec;
    struct dv_sim_device *best = NULL;

    for (unsigned i = 0; i < engine->sim.device_count; i++) {
        struct dv_sim_device *device = &engine->sim.devices[i];
        if (!fits(device, spec))
            continue;
        if (!best ||
            (engine->sim.workload->placement == DV_PLACEMENT_MOST_FREE && is_freer(device, best)))
            best = device;
    }
    if (!best)
        return false;
    best->requested_ppm += spec->share.request_ppm;
    best->weight += spec->share.weight;
    best->set_bytes += spec->set_bytes * spec->session_count;
    best->tenants_placed++;
    tenant->device = best;
    tenant->next_there = best->tenants;
    best->tenants = tenant;
    return true;
}

void dv_devices_leave(struct dv_sim_tenant *tenant)
{
    tenant->device->requested_ppm -= tenant->spec->share.request_ppm;
    tenant->device->weight -= tenant->spec->share.weight;
    tenant->device->set_bytes -= tenant->spec->set_bytes * tenant->spec->session_count;
}

void dv_devices_remove(struct dv_sim_tenant *tenant)
{
    struct dv_sim_tenant **place = &tenant->device->tenants;

    while (*place != tenant)
        place = &(*place)->next_there;
    *place = tenant->next_there;
}
