/* Tenants: their sessions, their shares on each device, and how long they are remembered. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "src/arbiter/ledger/private.h"
#include "src/arbiter/restart/state.h"

bool dvd_tenant_is_program(const struct dvd_tenant *tenant)
{
    return strncmp(tenant->name, "pid:", 4) == 0 || strncmp(tenant->name, "session:", 8) == 0;
}

/* ---- users ---- */

struct dvd_member {
    struct {
        const struct dvd_tenant *tenant;
        uint64_t uid;
    } key;
    unsigned sessions;
    UT_hash_handle hh;
};

static struct dvd_member *find_member(const struct dvd_tenant *tenant, uid_t uid)
{
    struct dvd_member *member, wanted = {.key = {.tenant = tenant, .uid = uid}};

    HASH_FIND(hh, tenant->ledger->members, &wanted.key, sizeof wanted.key, member);
    return member;
}

bool dvd_tenant_has_user(const struct dvd_tenant *tenant, uid_t uid)
{
    return find_member(tenant, uid) != NULL;
}

/* If memory is short the user's sessions are not counted: the user does not see its tenant. */
void dvd_tenant_count_user(struct dvd_tenant *tenant, uid_t uid)
{
    struct dvd_member *member = find_member(tenant, uid);

    if (!member) {
        member = calloc(1, sizeof *member);
        if (!member)
            return;
        member->key.tenant = tenant;
        member->key.uid = uid;
        HASH_ADD(hh, tenant->ledger->members, key, sizeof member->key, member);
    }
    member->sessions++;
}

static void count_user_out(struct dvd_tenant *tenant, uid_t uid)
{
    struct dvd_member *member = find_member(tenant, uid);

    if (!member || --member->sessions > 0)
        return;
    HASH_DEL(tenant->ledger->members, member);
    free(member);
}

/* ---- on a device ---- */

static void count_present(struct dvd_tenant_device *tenant)
{
    tenant->present_as = tenant->share.class;
    tenant->device->tenants_present++;
    tenant->device->present_of_class[tenant->present_as]++;
}

static void count_absent(struct dvd_tenant_device *tenant)
{
    tenant->device->tenants_present--;
    tenant->device->present_of_class[tenant->present_as]--;
}

void dvd_tenant_apply_share(struct dvd_tenant_device *tenant)
{
    struct dv_share share = tenant->share;

    if (tenant->sessions > 0) {
        count_absent(tenant);
        count_present(tenant);
    }

    if (tenant->users == 0)
        share.request_ppm = 0;
    dvd_device_set_share(tenant, &share);
}

/* Puts the tenant on a device, without its request so far. */
static struct dvd_tenant_device *add_device(struct dvd_tenant *tenant, struct dvd_device *device)
{
    struct dvd_tenant_device *there = calloc(1, sizeof *there);

    if (!there)
        return NULL;
    there->tenant = tenant;
    there->device = device;
    there->usage.since = dvd_ledger_now(tenant->ledger);
    dvd_accounts_use(tenant, device->id);
    there->memory.quota = dvd_device_size(device, &tenant->terms.memory);
    there->share = dvd_share_with(tenant->terms.share, &tenant->change);
    dvd_memory_set_request(there, dvd_memory_request_on(device, &tenant->terms.memory_request));
    tenant->devices[device->id.number] = there;
    dvd_record_add_tenant_device(there);
    struct dv_share share = there->share;
    share.request_ppm = 0;
    dvd_device_add_tenant(there, &share);
    dvd_state_commit(there->record);
    return there;
}

void dvd_tenant_free_device(struct dvd_tenant_device *tenant)
{
    struct dvd_ledger *ledger = tenant->device->ledger;

    dvd_device_remove_tenant(tenant);
    dvd_reservations_drop(tenant);
    dvd_state_drop(&ledger->state->tenant_devices, tenant->record);
    tenant->tenant->devices[tenant->device->id.number] = NULL;
    free(tenant);
}

/* A tenant that has used nothing owes nothing, and need not be remembered. */
static void free_if_unused(struct dvd_tenant_device *tenant)
{
    if (tenant->sessions == 0 && tenant->policy.used_ns == 0)
        dvd_tenant_free_device(tenant);
}

void dvd_tenant_count_session(struct dvd_tenant_device *tenant)
{
    tenant->device->sessions++;
    if (tenant->sessions++ == 0)
        count_present(tenant);
}

int dvd_tenant_promise(struct dvd_tenant_device *tenant, char *text, size_t bytes)
{
    int status = tenant->users ? 0
                               : dvd_check_promises(tenant->device, tenant->tenant, tenant->share.request_ppm,
                                                    tenant->memory.request, text, bytes);

    if (status == 0 && tenant->users++ == 0)
        dvd_tenant_apply_share(tenant);
    return status;
}

struct dvd_tenant_device *dvd_tenant_come(struct dvd_tenant *tenant, struct dvd_device *device, bool promised,
                                          char *text, size_t bytes)
{
    struct dvd_tenant_device *there = tenant->devices[device->id.number];

    if (!there && !(there = add_device(tenant, device))) {
        snprintf(text, bytes, "divvyd has no memory for another tenant");
        return NULL;
    }
    if (promised && dvd_tenant_promise(there, text, bytes) < 0) {
        free_if_unused(there);
        return NULL;
    }
    dvd_tenant_count_session(there);
    return there;
}

void dvd_tenant_go(struct dvd_tenant_device *tenant, bool promised)
{
    if (promised && --tenant->users == 0)
        dvd_tenant_apply_share(tenant);
    tenant->device->sessions--;
    if (--tenant->sessions == 0)
        count_absent(tenant);
    free_if_unused(tenant);
}

/* ---- changes ---- */

static void set_devices(struct dvd_tenant *tenant, const struct dvd_device *device,
                        const struct dvd_share_change *change, const struct dv_share shares[DV_MAX_DEVICES])
{
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        struct dvd_tenant_device *there = tenant->devices[i];
        if (!there || (device && there->device != device))
            continue;
        there->share = shares[i];
        dvd_tenant_apply_share(there);
        if (change->has_memory)
            dvd_memory_set_quota(there, dvd_device_size(there->device, &change->memory));
        if (change->has_memory_request)
            dvd_memory_set_request(there, dvd_memory_request_on(there->device, &change->memory_request));
    }
}

void dvd_terms_apply(struct dvd_tenant_terms *terms, const struct dvd_share_change *change)
{
    terms->share = dvd_share_with(terms->share, change);
    if (terms->share.request_ppm > terms->share.limit_ppm)
        terms->share.request_ppm = terms->share.limit_ppm;
    if (change->has_request)
        terms->may_request_ppm = change->request_ppm;
    if (change->has_weight)
        terms->may_weight = change->weight;
    if (change->has_class)
        terms->may_class = change->class;
    if (change->has_memory)
        terms->memory = change->memory;
    if (change->has_memory_request)
        terms->memory_request = change->memory_request;
}

/* The share that the tenant will have on devices that it is not on yet. */
static int check_usual_share(const struct dvd_tenant *tenant, const struct dvd_share_change *change, bool bounded,
                             char *text, size_t bytes)
{
    struct dv_share usual = dvd_share_with(tenant->terms.share, &tenant->change), share;

    return dvd_check_share(tenant, &usual, change, bounded, &share, text, bytes);
}

int dvd_tenant_set(struct dvd_tenant *tenant, const struct dvd_device *device, const struct dvd_share_change *change,
                   bool bounded, char *text, size_t bytes)
{
    struct dv_share shares[DV_MAX_DEVICES];

    if (bounded && tenant->is_shared) {
        snprintf(text, bytes, "tenant %s has several users: only an operator changes its share", tenant->name);
        return -EPERM;
    }
    int status = dvd_check_devices(tenant, device, change, bounded, shares, text, bytes);
    if (status == 0 && !device)
        status = check_usual_share(tenant, change, bounded, text, bytes);
    if (status < 0)
        return status;
    set_devices(tenant, device, change, shares);
    tenant->set_by_operator |= !bounded;
    if (!device) {
        dvd_share_change_merge(&tenant->change, change);
        if (!bounded) /* it is the share of later sessions, too, and the most that they can ask for */
            dvd_terms_apply(&tenant->terms, change);
    }
    dvd_record_terms(tenant);
    return 0;
}

/* Forgets wishes of the tenant's programs that its terms do not allow any more. */
static void bound_change(struct dvd_share_change *change, const struct dvd_tenant_terms *terms)
{
    change->has_request &=
        change->request_ppm <= terms->may_request_ppm || change->request_ppm <= terms->share.request_ppm;
    change->has_limit &= change->limit_ppm <= terms->share.limit_ppm;
    change->has_weight &= change->weight <= terms->may_weight || change->weight <= terms->share.weight;
    change->has_class &= change->class >= terms->may_class || change->class >= terms->share.class;
    struct dv_share share = dvd_share_with(terms->share, change);
    if (share.request_ppm > share.limit_ppm)
        change->has_request = change->has_limit = false;
}

int dvd_tenant_set_terms(struct dvd_tenant *tenant, const struct dvd_tenant_terms *terms, char *text, size_t bytes)
{
    int status = 0;

    tenant->terms = *terms;
    bound_change(&tenant->change, terms);
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        struct dvd_tenant_device *there = tenant->devices[i];
        if (!there)
            continue;
        uint64_t kept = dvd_memory_request_on(there->device, &terms->memory_request);
        there->share = dvd_share_with(terms->share, &tenant->change);
        if (there->users &&
            dvd_check_promises(there->device, tenant, there->share.request_ppm, kept, text, bytes) < 0) {
            uint64_t left = DV_PPM - dvd_min(dvd_promised_to_others(there->device, tenant), DV_PPM);
            there->share.request_ppm = (uint32_t)dvd_min(there->share.request_ppm, left);
            kept = there->memory.request;
            status = -ENOSPC;
        }
        dvd_tenant_apply_share(there);
        dvd_memory_set_quota(there, dvd_device_size(there->device, &terms->memory));
        dvd_memory_set_request(there, kept);
    }
    dvd_record_terms(tenant);
    return status;
}

void dvd_tenant_is_current(struct dvd_tenant *tenant)
{
    tenant->terms_version = tenant->ledger->terms_version;
    tenant->request_grows = false;
}

/* A tenant that comes back has its usual share, and its debts. */
static void reset_shares(struct dvd_tenant *tenant)
{
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        struct dvd_tenant_device *there = tenant->devices[i];
        if (!there)
            continue;
        there->share = dvd_share_with(tenant->terms.share, &tenant->change);
        dvd_tenant_apply_share(there);
        dvd_memory_set_quota(there, dvd_device_size(there->device, &tenant->terms.memory));
        dvd_memory_set_request(there, dvd_memory_request_on(there->device, &tenant->terms.memory_request));
    }
}

/* ---- coming and going ---- */

static void unlist_gone(struct dvd_tenant *tenant)
{
    DL_DELETE2(tenant->ledger->tenants_gone, tenant, prev_gone, next_gone);
    tenant->ledger->tenants_gone_count--;
    tenant->left_at = 0;
    dvd_record_left(tenant);
}

void dvd_tenant_remember(struct dvd_tenant *tenant, dv_ns left_at)
{
    tenant->left_at = left_at;
    dvd_record_left(tenant);
    DL_APPEND2(tenant->ledger->tenants_gone, tenant, prev_gone, next_gone);
    tenant->ledger->tenants_gone_count++;
}

void dvd_tenant_forget(struct dvd_tenant *tenant)
{
    struct dvd_ledger *ledger = tenant->ledger;

    if (tenant->left_at)
        unlist_gone(tenant);
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++)
        if (tenant->devices[i])
            dvd_tenant_free_device(tenant->devices[i]);
    dvd_state_drop(&ledger->state->tenants, tenant->record);
    ledger->events->tenant_freed(ledger->owner, tenant);
    dvd_accounts_leave(tenant, dvd_ledger_now(ledger));
    HASH_DEL(ledger->tenants, tenant);
    free(tenant);
}

void dvd_tenants_forget_gone(struct dvd_ledger *ledger, bool all)
{
    dv_ns now = dvd_ledger_now(ledger);
    struct dvd_tenant *oldest;

    while ((oldest = ledger->tenants_gone) && (all || ledger->tenants_gone_count > DV_MAX_TENANTS_GONE ||
                                               now - oldest->left_at > DV_TENANT_MEMORY_US * DV_NS_PER_US))
        dvd_tenant_forget(oldest);
}

struct dvd_tenant *dvd_tenant_find_or_add(struct dvd_ledger *ledger, const struct dvd_identity *identity)
{
    struct dvd_tenant *tenant;

    HASH_FIND_STR(ledger->tenants, identity->name, tenant);
    bool is_new = !tenant;
    if (is_new) {
        tenant = calloc(1, sizeof *tenant);
        if (!tenant)
            return NULL;
        tenant->ledger = ledger;
        memcpy(tenant->name, identity->name, sizeof tenant->name);
        HASH_ADD_STR(ledger->tenants, name, tenant);
        dvd_accounts_enter(ledger->accounts, tenant);
    }
    bool may_differ = tenant->sessions == 0 || tenant->terms_version != ledger->terms_version;
    if (is_new || (may_differ && !tenant->set_by_operator)) {
        tenant->terms = identity->terms;
        dvd_record_terms(tenant);
    }
    tenant->is_shared = identity->is_shared;
    if (is_new)
        dvd_record_add_tenant(tenant);
    tenant->terms_version = ledger->terms_version;
    return tenant;
}

void dvd_tenant_note_saved(struct dvd_tenant *tenant, bool was_set)
{
    tenant->set_by_operator = was_set;
    dvd_record_terms(tenant);
}

void dvd_tenant_forget_change(struct dvd_ledger *ledger, const char *name)
{
    struct dvd_tenant *tenant;

    HASH_FIND_STR(ledger->tenants, name, tenant);
    if (tenant && tenant->sessions == 0)
        tenant->set_by_operator = false;
}

void dvd_tenant_take_in(struct dvd_lessee *lessee, struct dvd_tenant *tenant, const struct dvd_share_change *change,
                        const struct dv_share shares[DV_MAX_DEVICES])
{
    if (tenant->left_at)
        unlist_gone(tenant);
    if (change && tenant->sessions == 0) {
        tenant->change = *change;
        reset_shares(tenant);
    } else if (change) {
        dvd_share_change_merge(&tenant->change, change);
        set_devices(tenant, NULL, change, shares);
    }
    tenant->sessions++;
    dvd_record_terms(tenant);
    lessee->tenant = tenant;
    dvd_tenant_count_user(tenant, lessee->uid);
}

void dvd_lessee_leave(struct dvd_lessee *lessee)
{
    struct dvd_tenant *tenant = lessee->tenant;

    lessee->tenant = NULL;
    if (!tenant)
        return;
    count_user_out(tenant, lessee->uid);
    if (--tenant->sessions > 0)
        return;
    dvd_tenant_remember(tenant, dvd_ledger_now(tenant->ledger));
    dvd_tenants_forget_gone(tenant->ledger, false);
}
