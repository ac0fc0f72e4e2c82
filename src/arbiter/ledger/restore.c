/* After a restart: devices, tenants and leases as the records of the earlier daemon say. The caller has checked
 * the records. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/arbiter/ledger/private.h"
#include "src/arbiter/restart/state.h"
#include "src/base/text.h"

bool dvd_device_restore(struct dvd_device *device)
{
    const struct dv_state_device *record = &device->ledger->state->header->devices[device->id.number];
    char name[DV_STATE_POLICY_NAME];

    if (device->started)
        return true;
    if (!dvd_device_start(device))
        return false;
    device->grants = record->grants;
    dv_text_copy(name, sizeof name, record->policy);
    const struct dv_policy_ops *ops = dv_policy_by_name(name);
    if (ops) { /* an operator's setting lasts until it is set again or the configuration is loaded */
        device->set_by_operator = true;
        if (ops != device->policy.ops)
            dv_policy_switch(&device->policy, ops, dvd_ledger_now(device->ledger));
        device->policy.fixed_slice_ns = record->slice_ns <= DV_SLICE_FIXED_MAX_NS ? record->slice_ns : 0;
    }
    device->policy.fair_clock = record->fair_clock;
    return true;
}

/* ---- tenants ---- */

struct dvd_tenant *dvd_tenant_restore(struct dvd_ledger *ledger, struct dv_state_tenant *record,
                                      const struct dvd_tenant_terms *terms, const struct dvd_share_change *change,
                                      bool is_shared)
{
    struct dvd_tenant *tenant;
    dv_ns now = dvd_ledger_now(ledger);

    HASH_FIND_STR(ledger->tenants, record->name, tenant);
    if (tenant)
        return NULL; /* two records of one name */
    tenant = calloc(1, sizeof *tenant);
    if (!tenant)
        return NULL;
    tenant->ledger = ledger;
    memcpy(tenant->name, record->name, sizeof tenant->name);
    tenant->terms = *terms;
    tenant->change = *change;
    tenant->set_by_operator = record->set_by_operator == 1;
    tenant->is_shared = is_shared;
    tenant->record = record;
    tenant->terms_version = ledger->terms_version - 1; /* the configuration may be another one now */
    HASH_ADD_STR(ledger->tenants, name, tenant);
    dvd_accounts_enter(ledger->accounts, tenant);
    dvd_tenant_remember(tenant, record->left_at && record->left_at < now ? record->left_at : now);
    return tenant;
}

int dvd_tenant_restore_device(struct dvd_tenant *tenant, struct dvd_device *device,
                              struct dv_state_tenant_device *record, const struct dv_share *share)
{
    struct dvd_tenant_device *there = calloc(1, sizeof *there);
    struct dv_policy_account account = {.used_ns = record->used_ns,
                                        .slice_ns = record->slice_ns,
                                        .fair_time = record->fair_time,
                                        .request_time = record->request_time,
                                        .limit_time = record->limit_time,
                                        .credit_ns = record->credit_ns,
                                        .period_ns = record->period_ns,
                                        .in_demand = record->in_demand};
    struct dv_share in_force = *share;

    if (!there)
        return -ENOMEM;
    there->tenant = tenant;
    there->device = device;
    there->usage.since = dvd_ledger_now(tenant->ledger);
    dvd_accounts_use(tenant, device->id);
    there->memory.quota = record->quota;
    there->share = *share;
    there->memory.request = record->memory_request;
    tenant->devices[device->id.number] = there;
    if (record->promised != 1)
        in_force.request_ppm = 0;
    dvd_device_add_tenant(there, &in_force);
    dv_policy_adopt_tenant(&device->policy, &there->policy, &account, dvd_ledger_now(tenant->ledger));
    there->record = record;
    return 0;
}

void dvd_ledger_restored(struct dvd_ledger *ledger)
{
    for (struct dvd_tenant *tenant = ledger->tenants; tenant; tenant = tenant->hh.next)
        for (uint32_t i = 0; i < DV_MAX_DEVICES; i++)
            if (tenant->devices[i] && !tenant->devices[i]->users)
                dvd_tenant_apply_share(tenant->devices[i]);
}

/* ---- sessions ---- */

static void restore_hold(struct dvd_lease *lease)
{
    const struct dv_state_lease *record = lease->record;
    struct dv_policy_hold hold = {.granted_at = record->granted_at,
                                  .slice_ns = record->slice_ns,
                                  .own_ns = record->own_ns,
                                  .charged_ns = record->charged_ns,
                                  .fair_at_grant = record->fair_at_grant,
                                  .guaranteed = record->guaranteed == 1};

    lease->serial = record->serial;
    dv_policy_adopt_hold(&lease->device->policy, &lease->policy, &hold, dvd_ledger_now(lease->device->ledger));
    lease->changed_at = lease->policy.granted_at;
}

/* Restores a lease where its tenant was restored on the device, too. */
static int restore_lease(struct dvd_lessee *lessee, struct dvd_list_index index, struct dv_state_lease *record)
{
    struct dvd_tenant_device *tenant = lessee->tenant->devices[dvd_lessee_device(lessee, index)->id.number];

    if (!tenant)
        return 0;
    struct dvd_lease *lease = dvd_lease_add(lessee, index, tenant);
    if (!lease)
        return -ENOMEM;
    lessee->memory_max = dvd_min(record->memory_max, DV_MEMORY_BYTES_MAX);
    lessee->deadline_ns = dvd_min(record->deadline_ns, DV_OWN_DEADLINE_MAX_NS);
    lease->in_use = record->in_use == 1;
    lease->promised = record->promised == 1;
    dvd_tenant_count_session(tenant);
    tenant->users += lease->promised;
    lease->used_ns = record->used_ns;
    lease->compile_ns = record->compile_ns;
    lease->grants = record->grants;
    uint64_t reserved = dvd_min(record->reserved, DV_MEMORY_BYTES_MAX);
    uint64_t placed = dvd_min(record->placed, DV_MEMORY_BYTES_MAX);
    dvd_reservations_set(lease, reserved);
    dvd_room_restore(lease, placed);
    lease->record = record;
    dvd_record_memory(lease);
    if (record->serial)
        restore_hold(lease);
    return 0;
}

int dvd_lessee_restore(struct dvd_lessee *lessee, struct dvd_tenant *tenant,
                       struct dv_state_lease *const records[DV_MAX_DEVICES])
{
    int error = 0;

    dvd_tenant_take_in(lessee, tenant, NULL, NULL);
    for (uint32_t i = 0; i < lessee->device_count && error == 0; i++)
        if (records[i] && (lessee->leased_mask >> i & 1))
            error = restore_lease(lessee, DVD_LIST_INDEX(i), records[i]);
    lessee->sync_id = dvd_ledger_now(lessee->ledger);
    lessee->unsynced_mask = lessee->leased_mask;
    return error;
}
