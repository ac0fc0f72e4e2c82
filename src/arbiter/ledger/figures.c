/* Figures for people (see figures.h). */
#include "src/arbiter/ledger/figures.h"

#include "src/arbiter/ledger/private.h"

/* Adds a hold that is under way. */
static dv_ns add_hold(struct dvd_usage *usage, const struct dv_policy *policy, const struct dv_policy_session *holder,
                      dv_ns now)
{
    dv_ns held = now - holder->granted_at;

    dvd_usage_add(usage, now - held / policy->slots, now);
    return held;
}

static struct dvd_windows read_windows(const struct dvd_usage *usage, dv_ns now)
{
    return (struct dvd_windows){.ppm_1s = dvd_usage_ppm(usage, 1, now),
                                .ppm_10s = dvd_usage_ppm(usage, 10, now),
                                .ppm_60s = dvd_usage_ppm(usage, 60, now)};
}

/* ---- devices ---- */

struct dvd_device_figures dvd_device_figures(const struct dvd_device *device)
{
    const struct dv_policy *policy = &device->policy;
    dv_ns now = dvd_ledger_now(device->ledger);
    struct dvd_device_figures figures = {.is_leased = device->started,
                                         .sessions = device->sessions,
                                         .waiting = policy->waiting_sessions,
                                         .held_ns = device->held_ns,
                                         .grants = device->grants,
                                         .promised_ppm = device->promised_ppm,
                                         .capacity_bytes = device->terms.capacity_bytes};
    struct dvd_usage usage = device->usage;

    for (const struct dv_policy_session *s = policy->holders.first; s; s = s->next)
        figures.held_ns += add_hold(&usage, policy, s, now);
    figures.busy = read_windows(&usage, now);
    /* Without swapping, objects have their place from their creation on. */
    figures.used_bytes = device->terms.swaps ? device->memory.placed : device->memory.reserved;
    return figures;
}

/* ---- tenants ---- */

uint32_t dvd_tenant_entitled_ppm(struct dvd_tenant_device *tenant)
{
    struct dvd_entitlements *entitlements = &tenant->device->entitlements;
    dv_ns now = dvd_ledger_now(tenant->device->ledger);

    if (dvd_entitlements_renew(entitlements, &tenant->device->policy, now) < 0)
        return 0;
    return dvd_entitlements_ppm(entitlements, &tenant->policy.share, dvd_entitlements_counts(&tenant->policy, now));
}

struct dvd_tenant_figures dvd_tenant_figures(struct dvd_tenant_device *tenant)
{
    const struct dv_policy *policy = &tenant->device->policy;
    dv_ns now = dvd_ledger_now(tenant->device->ledger);
    struct dvd_tenant_figures figures = {.share = tenant->policy.share,
                                         .sessions = tenant->sessions,
                                         .waiting = tenant->policy.waiting_count,
                                         .holding = tenant->policy.holding_count,
                                         .used_ns = tenant->policy.used_ns,
                                         .waited_ns = tenant->waited_ns,
                                         .entitled_ppm = dvd_tenant_entitled_ppm(tenant),
                                         .is_at_limit = dv_policy_held_back(policy, &tenant->policy, now) != 0,
                                         .quota_bytes = tenant->memory.quota,
                                         .kept_bytes = tenant->memory.request,
                                         .reserved_bytes = tenant->memory.reserved,
                                         .placed_bytes = tenant->memory.placed};
    struct dvd_usage usage = tenant->usage;

    for (const struct dv_policy_session *s = figures.holding ? policy->holders.first : NULL; s; s = s->next)
        if (s->tenant == &tenant->policy)
            figures.used_ns += add_hold(&usage, policy, s, now) / policy->slots;
    figures.had = read_windows(&usage, now);
    dv_ns bound = dv_policy_error_bound(tenant->device->entitlements.longest_slice_ns, policy->longest_hold_ns);
    figures.bound_ppm = (uint32_t)dvd_min(bound / (DV_NS_PER_S / DV_PPM), DV_PPM);
    return figures;
}

/* ---- sessions ---- */

static enum dvd_lease_state state_of(const struct dvd_lease *lease)
{
    if (lease->lessee->unsynced_mask >> lease->index.at & 1)
        return DVD_LEASE_UNKNOWN;
    if (lease->memory.is_queued)
        return DVD_LEASE_QUEUED;
    if (lease->policy.holding)
        return lease->policy.moving ? DVD_LEASE_MOVING : DVD_LEASE_HOLDING;
    return lease->policy.waiting ? DVD_LEASE_WAITING : DVD_LEASE_IDLE;
}

struct dvd_lease_figures dvd_lease_figures(const struct dvd_lease *lease)
{
    const struct dv_policy *policy = &lease->device->policy;
    dv_ns now = dvd_ledger_now(lease->device->ledger);
    struct dvd_lease_figures figures = {.state = state_of(lease),
                                        .used_ns = lease->used_ns,
                                        .waited_ns = lease->waited_ns,
                                        .placed_bytes = lease->memory.placed};
    struct dvd_usage usage = lease->usage;
    dv_ns since = lease->changed_at;

    if (lease->policy.holding)
        figures.used_ns += add_hold(&usage, policy, &lease->policy, now) / policy->slots;
    if (lease->policy.waiting) {
        since = lease->policy.waiting_since;
        figures.waited_ns += now - since;
    }
    if (figures.state == DVD_LEASE_MOVING)
        since = lease->policy.moving_since;
    figures.since_ns = now > since ? now - since : 0;
    figures.had = read_windows(&usage, now);
    return figures;
}
