/* Which device a tenant goes to when it comes. Its guarantee is admitted on that device alone; a
 * tenant that fits on none is refused. */
#include <string.h>

#include "src/sim/private.h"

/* A device with less of its memory free than this part is full: programs on it would swap. */
#define ROOMY_PART 8

static bool is_candidate(const struct dv_sim_device *device, const struct dv_sim_tenant_spec *spec)
{
    return !spec->device || strcmp(spec->device, device->name) == 0 ||
           strcmp(spec->device, device->spec->name) == 0;
}

static uint64_t free_bytes(const struct dv_sim_device *device)
{
    uint64_t bytes = device->spec->memory_bytes;
    return bytes > device->set_bytes ? bytes - device->set_bytes : 0;
}

static bool fits(const struct dv_sim_device *device, const struct dv_sim_tenant_spec *spec)
{
    if (device->spec->memory_bytes && spec->set_bytes > device->spec->memory_bytes)
        return false;
    return is_candidate(device, spec) && device->requested_ppm + spec->share.request_ppm <= DV_PPM;
}

/* Little of its memory is free. */
static bool is_crowded(const struct dv_sim_device *device)
{
    return device->spec->memory_bytes &&
           free_bytes(device) < device->spec->memory_bytes / ROOMY_PART;
}

/* Of its time, that one more session may expect. */
static uint64_t share_left(const struct dv_sim_device *device)
{
    return (DV_PPM - device->requested_ppm) / (device->session_count + 1);
}

/* As divvyd orders the devices of a session. Another kind comes first only if none of this fits. */
static bool goes_before(const struct dv_sim_device *a, const struct dv_sim_device *b)
{
    if (a->spec != b->spec)
        return a->spec < b->spec;
    if (is_crowded(a) != is_crowded(b))
        return is_crowded(b);
    if (share_left(a) != share_left(b))
        return share_left(a) > share_left(b);
    return free_bytes(a) > free_bytes(b);
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
            (engine->sim.workload->order == DV_DEVICE_ORDER_FREE && goes_before(device, best)))
            best = device;
    }
    if (!best)
        return false;
    best->requested_ppm += spec->share.request_ppm;
    best->session_count += spec->session_count;
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
    tenant->device->session_count -= tenant->spec->session_count;
    tenant->device->set_bytes -= tenant->spec->set_bytes * tenant->spec->session_count;
}

void dv_devices_remove(struct dv_sim_tenant *tenant)
{
    struct dv_sim_tenant **place = &tenant->device->tenants;

    while (*place != tenant)
        place = &(*place)->next_there;
    *place = tenant->next_there;
}
