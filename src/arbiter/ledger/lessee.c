/* Sessions: which devices a session uses, and the messages of its lease channel. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/arbiter/ledger/private.h"
#include "src/arbiter/restart/state.h"

/* ---- coming to a device, and leaving it ---- */

static bool has(uint64_t mask, struct dvd_list_index index)
{
    return mask >> index.at & 1;
}

struct dvd_lease *dvd_lease_add(struct dvd_lessee *lessee, struct dvd_list_index index,
                                struct dvd_tenant_device *tenant)
{
    struct dvd_lease *lease = calloc(1, sizeof *lease);

    if (!lease)
        return NULL;
    lease->lessee = lessee;
    lease->device = tenant->device;
    lease->tenant = tenant;
    lease->index = index;
    lease->changed_at = lease->usage.since = dvd_ledger_now(lessee->ledger);
    lessee->leases[index.at] = lease;
    dv_policy_session_init(&lease->policy, &tenant->policy);
    dvd_reservations_join(lease);
    return lease;
}

static int come(struct dvd_lessee *lessee, struct dvd_list_index index, bool promised, char *text, size_t bytes)
{
    struct dvd_device *device = dvd_lessee_device(lessee, index);

    dvd_device_start_anyway(device);
    struct dvd_tenant_device *tenant = dvd_tenant_come(lessee->tenant, device, promised, text, bytes);
    if (!tenant)
        return -ENOSPC;
    struct dvd_lease *lease = dvd_lease_add(lessee, index, tenant);
    if (!lease) {
        dvd_tenant_go(tenant, promised);
        snprintf(text, bytes, "divvyd has no memory for another session on a device");
        return -ENOMEM;
    }
    lease->promised = promised;
    dvd_record_add_lease(lease);
    return 0;
}

static void leave(struct dvd_lease *lease)
{
    struct dvd_lessee *lessee = lease->lessee;
    struct dvd_device *device = lease->device;
    bool was_involved = lease->policy.holding || lease->policy.waiting;

    if (lease->policy.waiting)
        dvd_lease_waited(lease, dvd_ledger_now(device->ledger));
    dvd_reservations_part(lease);
    dvd_room_part(lease);
    if (lease->policy.holding)
        dvd_lease_release(lease);
    else
        dv_policy_cancel(&device->policy, &lease->policy, dvd_ledger_now(device->ledger));
    dvd_state_drop(&lessee->ledger->state->leases, lease->record);
    dvd_trace_note(lease, DVD_TRACE_LEAVE, 0, 0);
    lessee->used_ns += lease->used_ns;
    lessee->waited_ns += lease->waited_ns;
    lessee->leases[lease->index.at] = NULL;
    dvd_tenant_go(lease->tenant, lease->promised);
    free(lease);
    if (was_involved)
        dvd_device_dispatch(device);
}

/* Leaves the device that the session was admitted on and has not used. */
static void leave_unused(struct dvd_lessee *lessee)
{
    for (uint32_t i = 0; i < lessee->device_count; i++)
        if (lessee->leases[i] && !lessee->leases[i]->in_use)
            leave(lessee->leases[i]);
}

/* The session uses a device. promised: the tenant's request is to hold there, and the session is refused if it
 * does not fit. Returns 0, or a negative errno with the reason; then nothing has changed. */
static int use(struct dvd_lessee *lessee, struct dvd_list_index index, bool promised, char *text, size_t bytes)
{
    struct dvd_lease *lease = lessee->leases[index.at];
    int status = 0;

    if (!lease)
        status = come(lessee, index, promised, text, bytes);
    else if (promised && !lease->promised)
        status = dvd_tenant_promise(lease->tenant, text, bytes);
    if (status < 0)
        return status;
    lease = lessee->leases[index.at];
    lease->in_use = true;
    lease->promised |= promised;
    dvd_record_use(lease);
    if (promised)
        leave_unused(lessee);
    return 0;
}

void dvd_lessee_record(struct dvd_lessee *lessee)
{
    for (uint32_t i = 0; i < lessee->device_count; i++)
        if (lessee->leases[i])
            dvd_record_add_lease(lessee->leases[i]);
}

void dvd_lessee_part(struct dvd_lessee *lessee)
{
    for (uint32_t i = 0; lessee->leases && i < lessee->device_count; i++)
        if (lessee->leases[i])
            leave(lessee->leases[i]);
}

/* ---- admission ---- */

/* Puts the session's devices into this order, unless its program numbers them itself. */
static void arrange(struct dvd_lessee *lessee, struct dvd_list_index order[DV_MAX_DEVICES])
{
    struct dvd_device_id devices[DV_MAX_DEVICES];
    uint64_t leased = lessee->leased_mask;

    if (lessee->keeps_order)
        return;
    memcpy(devices, lessee->devices, sizeof devices);
    lessee->leased_mask = 0;
    for (uint32_t i = 0; i < lessee->device_count; i++) {
        lessee->devices[i] = devices[order[i].at];
        lessee->leased_mask |= (uint64_t)has(leased, order[i]) << i;
        order[i].at = i;
    }
}

/* Orders the devices of a session that begins, and finds the first that can keep its tenant's request. Returns
 * its index in the session's list; device_count: no device is leased; or a negative errno with the reason. */
static int find_first_device(struct dvd_lessee *lessee, const struct dvd_tenant *tenant, uint32_t request_ppm,
                             char *text, size_t bytes)
{
    struct dvd_list_index order[DV_MAX_DEVICES];
    unsigned full = 0;
    char other[512] = ""; /* only the first device's reason is reported */

    dvd_placement_order(lessee, tenant, request_ppm, order);
    arrange(lessee, order);
    for (uint32_t i = 0; i < lessee->device_count; i++) {
        const struct dvd_device *device = dvd_lessee_device(lessee, order[i]);
        if (!has(lessee->leased_mask, order[i]))
            continue;
        if (dvd_check_promises(device, tenant, request_ppm,
                               dvd_memory_request_on(device, &tenant->terms.memory_request), full ? other : text,
                               full ? sizeof other : bytes) == 0)
            return (int)order[i].at;
        full++;
    }
    if (full > 1) {
        size_t used = strlen(text);
        snprintf(text + used, bytes - used, ". The other %u devices cannot keep it either", full - 1);
    }
    return full ? -ENOSPC : (int)lessee->device_count;
}

/* The share of the tenant before a session of it begins. */
static struct dv_share usual_share(const struct dvd_tenant *tenant)
{
    return tenant->sessions ? dvd_share_with(tenant->terms.share, &tenant->change) : tenant->terms.share;
}

/* Limits how often programs of a tenant change its share: each change costs divvyd time, and reorders the
 * tenants of the device. */
static int check_rate(struct dvd_tenant *tenant, const struct dvd_share_change *change, char *text, size_t bytes)
{
    struct dv_share had = dvd_share_with(tenant->terms.share, &tenant->change);
    struct dv_share wanted = dvd_share_with(usual_share(tenant), change);

    bool is_same = wanted.request_ppm == had.request_ppm && wanted.limit_ppm == had.limit_ppm &&
                   wanted.weight == had.weight && wanted.class == had.class;
    if (is_same || dv_log_within(&tenant->changes, DV_SHARE_CHANGES_PER_S))
        return 0;
    tenant->changes.left_out = 0; /* no lines are left out */
    snprintf(text, bytes,
             "programs of tenant %s have asked for another share more than %d times within a second; wait a second, or "
             "ask for its current share",
             tenant->name, DV_SHARE_CHANGES_PER_S);
    return -EBUSY;
}

static int check_change(struct dvd_tenant *tenant, const struct dvd_share_change *change,
                        struct dv_share shares[DV_MAX_DEVICES], char *text, size_t bytes)
{
    struct dv_share usual = usual_share(tenant), share;
    int status = check_rate(tenant, change, text, bytes);

    if (status == 0)
        status = dvd_check_share(tenant, &usual, change, true, &share, text, bytes);
    if (status == 0 && tenant->sessions)
        status = dvd_check_devices(tenant, NULL, change, true, shares, text, bytes);
    return status;
}

static bool is_empty(const struct dvd_share_change *change)
{
    return !change->has_request && !change->has_limit && !change->has_weight && !change->has_class;
}

int dvd_lessee_admit(struct dvd_lessee *lessee, const struct dvd_identity *identity,
                     const struct dvd_share_change *change, char *text, size_t bytes)
{
    static const struct dvd_share_change none;
    struct dv_share shares[DV_MAX_DEVICES];
    int first = 0;

    dvd_tenants_forget_gone(lessee->ledger, false);
    struct dvd_tenant *tenant = dvd_tenant_find_or_add(lessee->ledger, identity);
    if (!tenant) {
        snprintf(text, bytes, "divvyd has no memory for another tenant");
        return -ENOMEM;
    }
    lessee->change_ignored = tenant->is_shared && !is_empty(change);
    if (tenant->is_shared)
        change = &none;
    int status = check_change(tenant, change, shares, text, bytes);
    if (status == 0) {
        struct dv_share share = dvd_share_with(usual_share(tenant), change);
        first = find_first_device(lessee, tenant, share.request_ppm, text, bytes);
        status = first < 0 ? first : 0;
    }
    if (status < 0) {
        if (tenant->sessions == 0 && !tenant->left_at)
            dvd_tenant_forget(tenant);
        return status;
    }
    dvd_tenant_take_in(lessee, tenant, change, shares);
    if ((uint32_t)first < lessee->device_count)
        status = come(lessee, DVD_LIST_INDEX((uint32_t)first), true, text, bytes);
    if (status < 0)
        dvd_lessee_leave(lessee);
    return status;
}

/* ---- messages ---- */

static uint64_t plausible(uint64_t ns)
{
    return dvd_min(ns, DV_LEASE_ESTIMATE_MAX_NS);
}

/* Whether to accept a session's message about a device. Messages before its DV_SYNC_STATE were meant for an
 * earlier daemon. */
static bool may_speak(const struct dvd_lessee *lessee, struct dvd_list_index index)
{
    return index.at < lessee->device_count && has(lessee->leased_mask, index) && !has(lessee->unsynced_mask, index);
}

/* A program asks to use a device, and can do something else if refused. */
static void take_join(struct dvd_lessee *lessee, const struct dv_lease_message *asked)
{
    const struct dvd_ledger_events *events = lessee->ledger->events;
    char text[DV_MAX_MESSAGE_TEXT];
    struct dv_lease_message m = {.magic = DV_LEASE_MAGIC,
                                 .version = DV_LEASE_VERSION,
                                 .type = DV_LEASE_JOINED,
                                 .device = asked->device,
                                 .serial = asked->serial};

    if (use(lessee, DVD_LIST_INDEX(asked->device), true, text, sizeof text) < 0) {
        m.type = DV_LEASE_TURNED_AWAY;
        if (events->turned_away(lessee, text, &m))
            return;
    }
    events->send(lessee, &m, sizeof m);
}

/* The lease of a session that uses a device without having asked whether it may: it is accepted, with its
 * tenant's request if that can be kept. works: it has work for the device, and not only memory. NULL: divvyd has
 * no memory for it. */
static struct dvd_lease *lease_in_use(struct dvd_lessee *lessee, struct dvd_list_index index, bool works)
{
    struct dvd_lease *lease = lessee->leases[index.at];
    char text[DV_MAX_MESSAGE_TEXT];

    if (lease && lease->in_use && (lease->promised || lease->unpromised || !works))
        return lease;
    if (works && use(lessee, index, true, text, sizeof text) == 0)
        return lessee->leases[index.at];
    if (use(lessee, index, false, text, sizeof text) < 0)
        return NULL;
    lessee->leases[index.at]->unpromised |= works;
    return lessee->leases[index.at];
}

static void take_want(struct dvd_lease *lease)
{
    dv_ns now = dvd_ledger_now(lease->device->ledger);

    if (!lease->policy.waiting && !lease->policy.holding) {
        lease->changed_at = now;
        dvd_trace_note(lease, DVD_TRACE_WAIT, 0, 0);
    }
    dv_policy_wait(&lease->device->policy, &lease->policy, now);
    dvd_record_account(lease->tenant);
}

static void take_release(struct dvd_lease *lease, const struct dv_lease_message *m)
{
    bool wants_again = m->flags & DV_LEASE_AGAIN;

    /* A release of a grant that was taken away has no effect, but the wish for another grant counts. */
    if (lease->policy.holding && m->serial == lease->serial) {
        lease->compile_ns += plausible(m->compile_ns);
        lease->policy.busy_ns = wants_again ? plausible(m->busy_ns) : 0;
        lease->wants_again = wants_again;
        dvd_lease_release(lease);
        lease->wants_again = false;
    }
    if (wants_again)
        dv_policy_wait(&lease->device->policy, &lease->policy, dvd_ledger_now(lease->device->ledger));
}

static void take_lease_message(struct dvd_lessee *lessee, const struct dv_lease_message *m)
{
    if (m->version != DV_LEASE_VERSION || !may_speak(lessee, DVD_LIST_INDEX(m->device)))
        return;
    if (m->type == DV_LEASE_JOIN) {
        take_join(lessee, m);
        return;
    }
    struct dvd_lease *lease =
        m->type == DV_LEASE_WANT ? lease_in_use(lessee, DVD_LIST_INDEX(m->device), true) : lessee->leases[m->device];
    if (!lease)
        return;
    struct dvd_device *device = lease->device;
    uint64_t grants = device->grants;
    dv_ns began = dvd_ledger_now(lessee->ledger);

    lease->policy.burst.kernel_ns = plausible(m->kernel_ns);
    lease->policy.burst.p90_ns = plausible(m->p90_ns);
    lease->policy.burst.last_ns = plausible(m->last_ns);
    switch (m->type) {
    case DV_LEASE_WANT:
        take_want(lease);
        break;
    case DV_LEASE_CANCEL:
        if (lease->policy.waiting) {
            dvd_lease_waited(lease, began);
            dvd_trace_note(lease, DVD_TRACE_CANCEL, 0, 0);
        }
        dv_policy_cancel(&device->policy, &lease->policy, began);
        break;
    case DV_LEASE_RELEASE:
        take_release(lease, m);
        break;
    default:
        return;
    }
    dvd_device_dispatch(device);
    if (device->grants != grants)
        dvd_histogram_add(&device->decisions, dvd_ledger_now(lessee->ledger) - began);
}

static void take_memory_message(struct dvd_lessee *lessee, const struct dv_memory_message *m)
{
    if (m->version != DV_MEMORY_VERSION || !may_speak(lessee, DVD_LIST_INDEX(m->device)))
        return;
    struct dvd_lease *lease = lease_in_use(lessee, DVD_LIST_INDEX(m->device), false);
    if (lease)
        dvd_memory_take(lease, m);
}

/* ---- after a restart ---- */

/* Compares the grant that the session reports with the ledger's. */
static void sync_hold(struct dvd_lease *lease, const struct dv_sync_message *m)
{
    bool says_so = m->flags & DV_SYNC_HOLDS;
    bool holds = says_so && lease->policy.holding && m->serial == lease->serial;

    if (lease->policy.holding && !holds)
        dvd_lease_release(lease); /* it never received that grant, or has released it */
    if (holds && !(m->flags & DV_SYNC_BRINGS)) {
        struct dv_decision rest = dv_policy_rest(&lease->policy, dvd_ledger_now(lease->device->ledger));
        dvd_lease_send(lease, DV_LEASE_EXTEND, 0, &rest);
    }
    if (says_so && !holds) { /* that grant was taken away meanwhile */
        lease->serial = m->serial;
        dvd_lease_send(lease, DV_LEASE_RECALL, 0, NULL);
        lease->serial = 0;
    }
}

/* Takes over the hold and the waits that it reports, as far as its record agrees. */
static void take_state(struct dvd_lessee *lessee, const struct dv_sync_message *m)
{
    if (m->version != DV_SYNC_VERSION || m->type != DV_SYNC_STATE || m->device >= lessee->device_count ||
        !(lessee->unsynced_mask >> m->device & 1) || m->id != lessee->sync_id)
        return; /* an answer to an earlier daemon, or not to us */
    lessee->unsynced_mask &= ~(UINT64_C(1) << m->device);
    struct dvd_lease *lease = lessee->leases[m->device];
    bool works = m->flags & (DV_SYNC_HOLDS | DV_SYNC_WAITS);
    if (works || m->reserved || m->placed || m->asked || m->place_bytes)
        lease = lease_in_use(lessee, DVD_LIST_INDEX(m->device), works);
    if (!lease)
        return; /* it does not use the device */
    sync_hold(lease, m);
    if (m->flags & DV_SYNC_WAITS)
        dv_policy_wait(&lease->device->policy, &lease->policy, dvd_ledger_now(lessee->ledger));
    dvd_record_account(lease->tenant);
    dvd_memory_sync(lease, m);
    dvd_device_dispatch(lease->device);
}

void dvd_lessee_take(struct dvd_lessee *lessee, const union dv_channel_message *message, ssize_t bytes)
{
    switch (dv_channel_kind(message, bytes)) {
    case DV_LEASE_MAGIC:
        take_lease_message(lessee, &message->lease);
        break;
    case DV_MEMORY_MAGIC:
        take_memory_message(lessee, &message->memory);
        break;
    case DV_SYNC_MAGIC:
        take_state(lessee, &message->sync);
        break;
    default:
        break;
    }
}

int dvd_lessee_ask_state(struct dvd_lessee *lessee)
{
    struct dv_sync_message m = {
        .magic = DV_SYNC_MAGIC, .version = DV_SYNC_VERSION, .type = DV_SYNC_ASK, .id = lessee->sync_id};

    return lessee->unsynced_mask ? lessee->ledger->events->send(lessee, &m, sizeof m) : 0;
}
