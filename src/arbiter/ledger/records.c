/* Records of the ledger in the state file, for the next daemon. A record may be NULL: then the session or tenant
 * does not outlive this daemon. */
#include <stdatomic.h>
#include <string.h>

#include "src/arbiter/ledger/private.h"
#include "src/arbiter/restart/state.h"
#include "src/base/text.h"

/* ---- leases ---- */

void dvd_record_add_lease(struct dvd_lease *lease)
{
    struct dvd_lessee *lessee = lease->lessee;
    struct dvd_state *state = lessee->ledger->state;

    lease->record = lessee->record ? dvd_state_add(&state->leases) : NULL;
    if (!lease->record)
        return;
    lease->record->session = dvd_state_index(&state->sessions, lessee->record);
    lease->record->index = lease->index.at;
    lease->record->memory_max = lessee->memory_max;
    lease->record->deadline_ns = lessee->deadline_ns;
    dvd_record_use(lease);
    dvd_state_commit(lease->record);
}

/* A hold begins. Written before the grant is sent. */
void dvd_record_hold(struct dvd_lease *lease)
{
    struct dv_policy_hold hold = dv_policy_hold(&lease->policy);
    struct dv_state_lease *record = lease->record;

    dvd_record_account(lease->tenant);
    if (!record)
        return;
    record->granted_at = hold.granted_at;
    record->slice_ns = hold.slice_ns;
    record->own_ns = hold.own_ns;
    record->charged_ns = hold.charged_ns;
    record->fair_at_grant = hold.fair_at_grant;
    record->guaranteed = hold.guaranteed;
    record->grants = lease->grants;
    atomic_store_explicit(&record->serial, lease->serial, memory_order_release);
}

void dvd_record_release(struct dvd_lease *lease)
{
    if (lease->record) {
        atomic_store_explicit(&lease->record->serial, 0, memory_order_release);
        lease->record->used_ns = lease->used_ns;
        lease->record->compile_ns = lease->compile_ns;
    }
    dvd_record_account(lease->tenant);
}

void dvd_record_slice(struct dvd_lease *lease)
{
    if (!lease->record)
        return;
    lease->record->slice_ns = lease->policy.slice_ns;
    lease->record->own_ns = lease->policy.own_ns;
}

void dvd_record_use(struct dvd_lease *lease)
{
    if (!lease->record)
        return;
    lease->record->in_use = lease->in_use;
    lease->record->promised = lease->promised;
}

void dvd_record_memory(struct dvd_lease *lease)
{
    if (!lease->record)
        return;
    atomic_store_explicit(&lease->record->reserved, lease->memory.reserved, memory_order_relaxed);
    atomic_store_explicit(&lease->record->placed, lease->memory.placed, memory_order_relaxed);
}

/* ---- tenants ---- */

void dvd_record_add_tenant(struct dvd_tenant *tenant)
{
    static_assert(sizeof tenant->name == sizeof tenant->record->name, "both hold any name");

    tenant->record = dvd_state_add(&tenant->ledger->state->tenants);
    if (!tenant->record)
        return;
    memcpy(tenant->record->name, tenant->name, sizeof tenant->name);
    dvd_record_terms(tenant);
    dvd_state_commit(tenant->record);
}

void dvd_record_terms(struct dvd_tenant *tenant)
{
    const struct dvd_tenant_terms *terms = &tenant->terms;
    const struct dvd_share_change *change = &tenant->change;
    struct dv_state_tenant *record = tenant->record;

    if (!record)
        return;
    record->set_by_operator = tenant->set_by_operator;
    record->share = dvd_state_share_of(&terms->share);
    record->may_request_ppm = terms->may_request_ppm;
    record->may_weight = terms->may_weight;
    record->may_class = (uint16_t)terms->may_class;
    record->configured_class = (uint8_t)(terms->configured_class + 1);
    record->slice_kernels = (uint8_t)terms->slice_kernels;
    record->memory_ppm = terms->memory.ppm;
    record->memory_bytes = terms->memory.bytes;
    record->memory_request_ppm = terms->memory_request.ppm;
    record->memory_request_bytes = terms->memory_request.bytes;
    record->host_bytes = terms->host_bytes;
    record->wish = (struct dv_state_share){.request_ppm = change->request_ppm,
                                           .limit_ppm = change->limit_ppm,
                                           .weight = change->weight,
                                           .class = change->class};
    record->wishes = (change->has_request ? DV_STATE_WISH_REQUEST : 0) | (change->has_limit ? DV_STATE_WISH_LIMIT : 0) |
                     (change->has_weight ? DV_STATE_WISH_WEIGHT : 0) | (change->has_class ? DV_STATE_WISH_CLASS : 0);
}

void dvd_record_left(struct dvd_tenant *tenant)
{
    if (tenant->record)
        tenant->record->left_at = tenant->left_at;
}

/* The caller commits it. */
void dvd_record_add_tenant_device(struct dvd_tenant_device *tenant)
{
    struct dvd_state *state = tenant->tenant->ledger->state;

    tenant->record = tenant->tenant->record ? dvd_state_add(&state->tenant_devices) : NULL;
    if (!tenant->record)
        return;
    tenant->record->tenant = dvd_state_index(&state->tenants, tenant->tenant->record);
    tenant->record->device = tenant->device->id.number;
    dvd_record_quota(tenant);
}

void dvd_record_quota(struct dvd_tenant_device *tenant)
{
    if (!tenant->record)
        return;
    tenant->record->quota = tenant->memory.quota;
    tenant->record->memory_request = tenant->memory.request;
}

void dvd_record_account(struct dvd_tenant_device *tenant)
{
    struct dv_policy_account account = dv_policy_account(&tenant->policy);
    struct dv_state_tenant_device *record = tenant->record;

    if (!record)
        return;
    record->used_ns = account.used_ns;
    record->slice_ns = account.slice_ns;
    record->fair_time = account.fair_time;
    record->request_time = account.request_time;
    record->limit_time = account.limit_time;
    record->credit_ns = account.credit_ns;
    record->period_ns = account.period_ns;
    record->in_demand = account.in_demand;
}

void dvd_record_share(struct dvd_tenant_device *tenant)
{
    if (tenant->record) {
        tenant->record->share = dvd_state_share_of(&tenant->share);
        tenant->record->promised = tenant->users > 0;
    }
    dvd_record_account(tenant);
}

/* ---- devices ---- */

static struct dv_state_device *record_of(const struct dvd_device *device)
{
    struct dv_state_header *header = device->ledger->state->header;
    return header ? &header->devices[device->id.number] : NULL;
}

void dvd_record_grants(const struct dvd_device *device)
{
    struct dv_state_device *record = record_of(device);

    if (!record)
        return;
    record->grants = device->grants;
    record->fair_clock = device->policy.fair_clock;
}

void dvd_record_policy(const struct dvd_device *device)
{
    struct dv_state_device *record = record_of(device);

    if (!record)
        return;
    record->slice_ns = device->policy.fixed_slice_ns;
    dv_text_copy(record->policy, sizeof record->policy, device->set_by_operator ? device->policy.ops->name : "");
}
