/* Tenants and admission (see tenants.h). */
#include "src/arbiter/tenants.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/session.h"
#include "src/arbiter/state.h"
#include "src/base/cleanup.h"
#include "src/base/text.h"

#define PERCENT(ppm) ((double)(ppm) / (DV_PPM / 100.0))

/* ---- whose program it is ---- */

/* What is known of a process when its tenant is looked for. Read once, and only if a rule asks. */
struct suspect {
    const struct dv_session *session;
    gid_t groups[DV_LIMIT_GROUPS];
    size_t group_count;
    bool has_groups, has_cgroups;
    char cgroups[8192]; /* lines "N:CONTROLLERS:PATH" */
};

static bool in_group(struct suspect *suspect, gid_t gid)
{
    if (!suspect->has_groups) {
        socklen_t bytes = sizeof suspect->groups;
        suspect->has_groups = true;
        if (getsockopt(suspect->session->client_fd, SOL_SOCKET, SO_PEERGROUPS, suspect->groups,
                       &bytes) == 0)
            suspect->group_count = bytes / sizeof suspect->groups[0];
    }
    if (suspect->session->gid == gid)
        return true;
    for (size_t i = 0; i < suspect->group_count; i++)
        if (suspect->groups[i] == gid)
            return true;
    return false;
}

static void read_cgroups(struct suspect *suspect)
{
    char path[64];

    if (suspect->has_cgroups)
        return;
    suspect->has_cgroups = true;
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)suspect->session->tenant_pid);
    DV_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t got;
    while (fd >= 0 && (got = read(fd, suspect->cgroups + used,
                                  sizeof suspect->cgroups - 1 - used)) > 0)
        used += (size_t)got;
    suspect->cgroups[used] = '\0';
}

/* Leaves as many components of a path as the pattern has: what a job makes below its own cgroup is
 * still the job. */
static void cut_to_pattern(char *path, const char *pattern)
{
    unsigned components = 0;

    for (const char *at = pattern; *at; at++)
        components += *at == '/' && at[1];
    for (char *at = path; *at; at++)
        if (*at == '/' && components-- == 0) {
            *at = '\0';
            return;
        }
}

/* The end of a path says most; what is cut off still tells it from others. */
static void shorten(const char *path, char *field, size_t bytes)
{
    size_t length = strlen(path);
    uint64_t hash = UINT64_C(14695981039346656037);

    if (length < bytes) {
        dv_text_copy(field, bytes, path);
        return;
    }
    for (const char *at = path; *at; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
    size_t kept = bytes - sizeof "0123456789abcdef...";
    snprintf(field, bytes, "%016llx...%s", (unsigned long long)hash, path + length - kept);
    dv_text_clean(field, bytes);
}

/* The path, of any hierarchy, that matches the pattern (NULL: the first other than the root).
 * Version 2 has the one line "0::PATH". */
static bool find_cgroup(struct suspect *suspect, const char *pattern, char *path, size_t bytes)
{
    char line[DV_LIMIT_PATH];

    read_cgroups(suspect);
    for (const char *at = suspect->cgroups; *at;) {
        size_t length = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        at += length + (at[length] == '\n');
        char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (!second)
            continue;
        char *found = second + 1;
        if (pattern ? fnmatch(pattern, found, 0) != 0 : strcmp(found, "/") == 0)
            continue;
        if (pattern)
            cut_to_pattern(found, pattern);
        shorten(found, path, bytes);
        return true;
    }
    return false;
}

static bool matches(const struct dv_tenant_rule *rule, struct suspect *suspect)
{
    char path[DV_LIMIT_TENANT_NAME];

    return (!rule->user || rule->uid == suspect->session->uid) &&
           (!rule->group || in_group(suspect, rule->gid)) &&
           (!rule->cgroup || find_cgroup(suspect, rule->cgroup, path, sizeof path));
}

/* Names of different kinds cannot be the same, whatever a program calls itself: users have no colon
 * in theirs, cgroups begin with a slash, the others with a word and a colon. */
static void name_tenant(enum dv_tenant_per per, const struct dv_tenant_rule *rule,
                        struct suspect *suspect, char *name, size_t bytes)
{
    const struct dv_session *session = suspect->session;

    if (per == DV_PER_CGROUP && find_cgroup(suspect, rule ? rule->cgroup : NULL, name, bytes))
        return;
    if (per == DV_PER_PROGRAM && session->tenant_pid > 0)
        snprintf(name, bytes, "pid:%d:%s", (int)session->tenant_pid, session->command);
    else if (per == DV_PER_PROGRAM) /* of another pid namespace */
        snprintf(name, bytes, "session:%llu", (unsigned long long)session->id);
    else if (per == DV_PER_GROUP)
        snprintf(name, bytes, "group:%u", (unsigned)(rule && rule->group ? rule->gid : session->gid));
    else if (strspn(session->user, "0123456789") == strlen(session->user))
        snprintf(name, bytes, "uid:%s", session->user); /* digits alone would name a session */
    else
        snprintf(name, bytes, "%s", session->user);
}

bool dv_tenant_is_program(const struct dv_tenant *tenant)
{
    return strncmp(tenant->name, "pid:", 4) == 0 || strncmp(tenant->name, "session:", 8) == 0;
}

/* Without a rule: users are tenants and may not raise themselves; where all programs are one user's,
 * each is a tenant and may ask for anything. */
static void default_terms(const struct dv_arbiter *arbiter, struct dv_tenant_terms *terms)
{
    *terms = (struct dv_tenant_terms){
        .share = {.limit_ppm = DV_PPM, .weight = 1, .class = DV_CLASS_STANDARD},
        .may_weight = 1,
        .may_class = DV_CLASS_STANDARD};
    if (arbiter->options.user) {
        terms->may_request_ppm = DV_PPM;
        terms->may_weight = DV_WEIGHT_MAX;
        terms->may_class = DV_CLASS_LATENCY;
    }
}

static void identify(const struct dv_arbiter *arbiter, const struct dv_session *session, char *name,
                     size_t bytes, struct dv_tenant_terms *terms)
{
    const struct dv_config_file *file = arbiter->config.file;
    struct suspect suspect = {.session = session};

    for (uint64_t i = 0; file && i < file->tenants_count; i++) {
        const struct dv_tenant_rule *rule = &file->tenants[i];
        if (!matches(rule, &suspect))
            continue;
        *terms = rule->terms;
        if (rule->name)
            dv_text_copy(name, bytes, rule->name);
        else
            name_tenant((enum dv_tenant_per)rule->per, rule, &suspect, name, bytes);
        return;
    }
    default_terms(arbiter, terms);
    name_tenant(arbiter->options.user ? DV_PER_PROGRAM : DV_PER_USER, NULL, &suspect, name, bytes);
}

/* ---- what can be promised ---- */

/* The share after a change, or a negative errno with words. */
static int combine(const struct dv_tenant *tenant, const struct dv_share *old,
                   const struct dv_share_wish *wish, bool bounded, struct dv_share *new, char *text,
                   size_t bytes)
{
    const struct dv_tenant_terms *terms = &tenant->terms;

    *new = *old;
    if (wish->has_request)
        new->request_ppm = wish->request_ppm;
    if (wish->has_limit)
        new->limit_ppm = wish->limit_ppm;
    if (wish->has_weight)
        new->weight = wish->weight;
    if (wish->has_class)
        new->class = wish->class;
    text[0] = '\0';
    if (new->request_ppm > new->limit_ppm)
        snprintf(text, bytes,
                 "a request of %g%% is above the limit of %g%%: raise the limit or ask for less",
                 PERCENT(new->request_ppm), PERCENT(new->limit_ppm));
    else if (new->limit_ppm < DV_PPM / 100 || new->limit_ppm > DV_PPM)
        snprintf(text, bytes, "a limit is from 1%% to 100%%");
    else if (new->weight < 1 || new->weight > DV_WEIGHT_MAX)
        snprintf(text, bytes, "a weight is from 1 to %u", DV_WEIGHT_MAX);
    else if (!bounded)
        return 0;
    else if (new->request_ppm > old->request_ppm && new->request_ppm > terms->may_request_ppm)
        snprintf(text, bytes,
                 "tenant %s may request at most %g%% of a device, not %g%%; the operator sets that "
                 "with may-request in divvy.yaml",
                 tenant->name, PERCENT(terms->may_request_ppm), PERCENT(new->request_ppm));
    else if (new->limit_ppm > old->limit_ppm && new->limit_ppm > terms->share.limit_ppm)
        snprintf(text, bytes,
                 "tenant %s is limited to %g%% of a device and cannot have a limit of %g%%; the "
                 "operator sets that with limit in divvy.yaml",
                 tenant->name, PERCENT(terms->share.limit_ppm), PERCENT(new->limit_ppm));
    else if (new->weight > old->weight && new->weight > terms->may_weight)
        snprintf(text, bytes,
                 "tenant %s may have a weight of at most %u, not %u; the operator sets that with "
                 "may-weight in divvy.yaml",
                 tenant->name, terms->may_weight, new->weight);
    else if (new->class < old->class && new->class < terms->may_class)
        snprintf(text, bytes,
                 "tenant %s may not run in class %s, at best in %s; the operator sets that with "
                 "may-class in divvy.yaml",
                 tenant->name, dv_class_word(new->class), dv_class_word(terms->may_class));
    return text[0] ? -EPERM : 0;
}

/* Whether a request fits beside those of the others on a device; if not, says who has them. */
static int check_room(struct dv_arbiter *arbiter, const struct dv_tenant *tenant, uint32_t device,
                      uint32_t request_ppm, char *text, size_t bytes)
{
    const struct dv_tenant *other;
    uint32_t promised = 0;
    char holders[256] = "";
    size_t used = 0;

    for (other = arbiter->tenants; other; other = other->hh.next) {
        const struct dv_tenant_device *there = other->devices[device];
        if (other == tenant || !there || there->policy.share.request_ppm == 0)
            continue;
        promised += there->policy.share.request_ppm;
        if (used < sizeof holders)
            used += (size_t)snprintf(holders + used, sizeof holders - used, "%s%s %g%%",
                                     used ? ", " : "", other->name,
                                     PERCENT(there->policy.share.request_ppm));
    }
    if (request_ppm == 0 || promised + request_ppm <= DV_PPM)
        return 0;
    snprintf(text, bytes,
             "a request of %g%% cannot be kept on %.80s: %g%% of it is promised already (%s). Ask "
             "for at most %g%%, or wait until one of them ends",
             PERCENT(request_ppm), dv_leases_device_name(arbiter, device), PERCENT(promised),
             holders, PERCENT(DV_PPM - promised));
    return -ENOSPC;
}

/* By itself a tenant may give up memory, and take it back up to what it is given. */
static int check_quota(const struct dv_arbiter *arbiter, const struct dv_tenant *tenant,
                       uint32_t device, uint64_t quota, char *text, size_t bytes)
{
    uint64_t most = dv_memory_size_on(arbiter, device, &tenant->terms.memory);
    char size[32];

    if (quota <= most || quota <= tenant->devices[device]->memory.quota)
        return 0;
    dv_text_format_size(size, sizeof size, most);
    snprintf(text, bytes,
             "tenant %s may have at most %s of the memory of %.80s; the operator sets that with "
             "memory in divvy.yaml, or with divvy set",
             tenant->name, size, dv_leases_device_name(arbiter, device));
    return -EPERM;
}

/* What a successor will know. */
static void note_terms(struct dv_tenant *tenant)
{
    const struct dv_tenant_terms *terms = &tenant->terms;
    struct dv_state_tenant *record = tenant->record;

    if (!record)
        return;
    record->set_by_operator = tenant->set_by_operator;
    record->share = dv_state_share_of(&terms->share);
    record->may_request_ppm = terms->may_request_ppm;
    record->may_weight = terms->may_weight;
    record->may_class = terms->may_class;
    record->memory_ppm = terms->memory.ppm;
    record->memory_bytes = terms->memory.bytes;
    record->host_bytes = terms->host_bytes;
}

static void note_left(struct dv_tenant *tenant)
{
    if (tenant->record)
        tenant->record->left_at = tenant->left_at;
}

static void keep(struct dv_arbiter *arbiter, struct dv_tenant *tenant)
{
    static_assert(sizeof tenant->name == sizeof tenant->record->name, "both hold any name");

    tenant->record = dv_state_add(&arbiter->state.tenants);
    if (!tenant->record)
        return;
    memcpy(tenant->record->name, tenant->name, sizeof tenant->name);
    note_terms(tenant);
    dv_state_commit(tenant->record);
}

static void keep_place(struct dv_arbiter *arbiter, struct dv_tenant_device *place, uint32_t device)
{
    struct dv_state *state = &arbiter->state;

    place->record = place->tenant->record ? dv_state_add(&state->places) : NULL;
    if (!place->record)
        return;
    place->record->tenant = dv_state_index(&state->tenants, place->tenant->record);
    place->record->device = device;
    place->record->quota = place->memory.quota;
}

/* The tenant is not on the device any more. */
static void free_place(struct dv_arbiter *arbiter, struct dv_tenant *tenant, uint32_t device)
{
    struct dv_tenant_device *place = tenant->devices[device];

    dv_leases_remove_tenant(arbiter, place, device);
    dv_memory_leave(place);
    dv_state_drop(&arbiter->state.places, place->record);
    free(place);
    tenant->devices[device] = NULL;
}

int dv_tenants_set(struct dv_arbiter *arbiter, struct dv_tenant *tenant, int device,
                   const struct dv_share_wish *wish, bool bounded, char *text, size_t bytes)
{
    struct dv_share shares[DV_MAX_DEVICES];

    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        if (!tenant->devices[i] || (device >= 0 && i != (uint32_t)device))
            continue;
        int status = combine(tenant, &tenant->devices[i]->policy.share, wish, bounded, &shares[i],
                             text, bytes);
        if (status == 0)
            status = check_room(arbiter, tenant, i, shares[i].request_ppm, text, bytes);
        if (status == 0 && wish->has_memory && bounded)
            status = check_quota(arbiter, tenant, i, wish->memory_bytes, text, bytes);
        if (status < 0)
            return status;
    }
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        if (!tenant->devices[i] || (device >= 0 && i != (uint32_t)device))
            continue;
        dv_leases_set_share(arbiter, tenant->devices[i], i, &shares[i]);
        if (wish->has_memory)
            dv_memory_set_quota(tenant->devices[i], wish->memory_bytes);
    }
    if (bounded || device >= 0)
        return 0;
    /* What an operator has lowered on all devices, the tenant cannot raise again. */
    tenant->set_by_operator = true;
    if (wish->has_memory)
        tenant->terms.memory = (struct dv_memory_size){.bytes = wish->memory_bytes};
    if (wish->has_limit && tenant->terms.share.limit_ppm > wish->limit_ppm)
        tenant->terms.share.limit_ppm = wish->limit_ppm;
    if (tenant->terms.share.request_ppm > tenant->terms.share.limit_ppm)
        tenant->terms.share.request_ppm = tenant->terms.share.limit_ppm;
    if (wish->has_request && tenant->terms.may_request_ppm > wish->request_ppm)
        tenant->terms.may_request_ppm = wish->request_ppm;
    if (wish->has_weight && tenant->terms.may_weight > wish->weight)
        tenant->terms.may_weight = wish->weight;
    if (wish->has_class && tenant->terms.may_class < wish->class)
        tenant->terms.may_class = wish->class;
    note_terms(tenant);
    return 0;
}

/* ---- whose sessions a tenant has ---- */

struct dv_member {
    struct {
        const struct dv_tenant *tenant;
        uint64_t uid;
    } key;
    unsigned sessions;
    UT_hash_handle hh;
};

static struct dv_member *find_member(const struct dv_arbiter *arbiter,
                                     const struct dv_tenant *tenant, uid_t uid)
{
    struct dv_member *member, wanted = {.key = {.tenant = tenant, .uid = uid}};

    HASH_FIND(hh, arbiter->members, &wanted.key, sizeof wanted.key, member);
    return member;
}

bool dv_tenant_has_user(const struct dv_arbiter *arbiter, const struct dv_tenant *tenant, uid_t uid)
{
    return find_member(arbiter, tenant, uid) != NULL;
}

/* Without memory the user's sessions are not counted: it does not see its tenant. */
static void count_in(struct dv_arbiter *arbiter, const struct dv_session *session)
{
    struct dv_member *member = find_member(arbiter, session->tenant, session->uid);

    if (!member) {
        member = calloc(1, sizeof *member);
        if (!member)
            return;
        member->key.tenant = session->tenant;
        member->key.uid = session->uid;
        HASH_ADD(hh, arbiter->members, key, sizeof member->key, member);
    }
    member->sessions++;
}

static void count_out(struct dv_arbiter *arbiter, const struct dv_tenant *tenant, uid_t uid)
{
    struct dv_member *member = find_member(arbiter, tenant, uid);

    if (!member || --member->sessions > 0)
        return;
    HASH_DEL(arbiter->members, member);
    free(member);
}

/* ---- coming and going ---- */

static void unlist_gone(struct dv_arbiter *arbiter, struct dv_tenant *tenant)
{
    DL_DELETE2(arbiter->tenants_gone, tenant, prev_gone, next_gone);
    arbiter->tenants_gone_count--;
    tenant->left_at = 0;
    note_left(tenant);
}

static void forget(struct dv_arbiter *arbiter, struct dv_tenant *tenant)
{
    if (tenant->left_at)
        unlist_gone(arbiter, tenant);
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        if (tenant->devices[i])
            free_place(arbiter, tenant, i);
    }
    dv_state_drop(&arbiter->state.tenants, tenant->record);
    dv_listings_tenant_goes(arbiter, tenant);
    HASH_DEL(arbiter->tenants, tenant);
    free(tenant);
}

/* The tenant's first session has come, or its last has gone. */
static void count_present(struct dv_arbiter *arbiter, const struct dv_tenant *tenant, bool comes)
{
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++)
        if (tenant->devices[i])
            arbiter->leases.devices[i].tenants_present += comes ? 1 : -1u;
}

/* The last session has gone. What was promised to it is free for others. */
static void remember(struct dv_arbiter *arbiter, struct dv_tenant *tenant)
{
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        if (!tenant->devices[i])
            continue;
        struct dv_share share = tenant->devices[i]->policy.share;
        share.request_ppm = 0;
        dv_leases_set_share(arbiter, tenant->devices[i], i, &share);
    }
    count_present(arbiter, tenant, false);
    tenant->left_at = dv_now();
    note_left(tenant);
    DL_APPEND2(arbiter->tenants_gone, tenant, prev_gone, next_gone);
    arbiter->tenants_gone_count++;
}

void dv_tenants_forget_gone(struct dv_arbiter *arbiter, bool all)
{
    dv_ns now = dv_now();
    struct dv_tenant *oldest;

    while ((oldest = arbiter->tenants_gone) &&
           (all || arbiter->tenants_gone_count > DV_LIMIT_TENANTS_GONE ||
            now - oldest->left_at > DV_LIMIT_TENANT_MEMORY_US * DV_NS_PER_US))
        forget(arbiter, oldest);
}

static struct dv_tenant *find_or_add(struct dv_arbiter *arbiter, const struct dv_session *session)
{
    char name[DV_LIMIT_TENANT_NAME] = "";
    struct dv_tenant_terms terms;
    struct dv_tenant *tenant;

    identify(arbiter, session, name, sizeof name, &terms);
    HASH_FIND_STR(arbiter->tenants, name, tenant);
    bool created = !tenant;
    if (created) {
        tenant = calloc(1, sizeof *tenant);
        if (!tenant)
            return NULL;
        memcpy(tenant->name, name, sizeof name);
        HASH_ADD_STR(arbiter->tenants, name, tenant);
    }
    if (created || (tenant->config_loads != arbiter->config_loads && !tenant->set_by_operator)) {
        tenant->terms = terms;
        note_terms(tenant);
    }
    if (created)
        keep(arbiter, tenant);
    tenant->config_loads = arbiter->config_loads;
    return tenant;
}

/* Puts the tenant on a device with its usual share. */
static int settle(struct dv_arbiter *arbiter, struct dv_tenant *tenant, uint32_t device)
{
    struct dv_tenant_device *place = calloc(1, sizeof *place);
    if (!place)
        return -ENOMEM;
    place->tenant = tenant;
    place->usage.since = dv_now();
    place->memory.quota = dv_memory_size_on(arbiter, device, &tenant->terms.memory);
    tenant->devices[device] = place;
    keep_place(arbiter, place, device);
    dv_leases_add_tenant(arbiter, place, device, &tenant->terms.share);
    dv_state_commit(place->record);
    return 0;
}

/* Takes back what settle did. */
static void unsettle(struct dv_arbiter *arbiter, struct dv_tenant *tenant, uint32_t devices)
{
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        if (devices >> i & 1)
            free_place(arbiter, tenant, i);
    }
}

/* Whether there is room for what a tenant that is not on the device asks for. Who holds the rest is told
 * to those only who may ask for so much. */
static int check_wish(struct dv_arbiter *arbiter, const struct dv_tenant *tenant, uint32_t device,
                      const struct dv_share_wish *wish, char *text, size_t bytes)
{
    struct dv_share share;
    int status = combine(tenant, &tenant->terms.share, wish, true, &share, text, bytes);

    return status < 0 ? status
                      : check_room(arbiter, tenant, device, share.request_ppm, text, bytes);
}

/* Somebody who was here a moment ago has its usual share again, and its debts: those to a limit that
 * it comes back with as well. */
static int welcome_back(struct dv_arbiter *arbiter, struct dv_tenant *tenant, uint32_t device,
                        const struct dv_share_wish *wish, char *text, size_t bytes)
{
    struct dv_share share = tenant->terms.share;
    int status = check_wish(arbiter, tenant, device, wish, text, bytes);

    if (wish->has_limit && wish->limit_ppm < share.limit_ppm)
        share.limit_ppm = wish->limit_ppm;
    if (share.request_ppm > share.limit_ppm)
        share.request_ppm = share.limit_ppm;
    if (status == 0) {
        dv_leases_set_share(arbiter, tenant->devices[device], device, &share);
        dv_memory_set_quota(tenant->devices[device],
                            dv_memory_size_on(arbiter, device, &tenant->terms.memory));
    }
    return status;
}

int dv_tenants_admit(struct dv_arbiter *arbiter, struct dv_session *session,
                     const struct dv_share_wish *wish, char *text, size_t bytes)
{
    dv_tenants_forget_gone(arbiter, false);
    struct dv_tenant *tenant = find_or_add(arbiter, session);
    uint32_t settled = 0;
    int status = 0;

    if (!tenant) {
        snprintf(text, bytes, "divvyd has no memory for another tenant");
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < session->device_count && status == 0; i++) {
        uint32_t device = session->device_indices[i];
        if (!dv_leases_start_device(arbiter, device))
            continue;
        if (tenant->devices[device]) {
            if (tenant->left_at)
                status = welcome_back(arbiter, tenant, device, wish, text, bytes);
            continue;
        }
        status = check_wish(arbiter, tenant, device, wish, text, bytes);
        if (status == 0)
            status = settle(arbiter, tenant, device);
        if (status == 0)
            settled |= 1u << device;
    }
    if (status == 0 &&
        (wish->has_request || wish->has_limit || wish->has_weight || wish->has_class))
        status = dv_tenants_set(arbiter, tenant, -1, wish, true, text, bytes);
    if (status == -ENOMEM)
        snprintf(text, bytes, "divvyd has no memory for another tenant");
    if (status < 0) {
        if (tenant->sessions == 0 && !tenant->left_at)
            forget(arbiter, tenant);
        else
            unsettle(arbiter, tenant, settled);
        return status;
    }
    if (tenant->left_at)
        unlist_gone(arbiter, tenant);
    if (tenant->sessions++ == 0)
        count_present(arbiter, tenant, true);
    else
        for (uint32_t i = 0; i < DV_MAX_DEVICES; i++)
            arbiter->leases.devices[i].tenants_present += settled >> i & 1;
    session->tenant = tenant;
    count_in(arbiter, session);
    return 0;
}

/* ---- after a restart ---- */

struct dv_tenant *dv_tenants_adopt(struct dv_arbiter *arbiter, struct dv_state_tenant *record,
                                   const struct dv_tenant_terms *terms)
{
    struct dv_tenant *tenant = calloc(1, sizeof *tenant);

    if (!tenant)
        return NULL;
    memcpy(tenant->name, record->name, sizeof tenant->name);
    tenant->terms = *terms;
    tenant->set_by_operator = record->set_by_operator == 1;
    tenant->record = record;
    tenant->config_loads = arbiter->config_loads - 1; /* the configuration may be another one now */
    dv_ns now = dv_now();
    tenant->left_at = record->left_at && record->left_at < now ? record->left_at : now;
    HASH_ADD_STR(arbiter->tenants, name, tenant);
    DL_APPEND2(arbiter->tenants_gone, tenant, prev_gone, next_gone);
    arbiter->tenants_gone_count++;
    return tenant;
}

int dv_tenants_adopt_place(struct dv_arbiter *arbiter, struct dv_tenant *tenant,
                           struct dv_state_place *record, const struct dv_share *share)
{
    struct dv_tenant_device *place = calloc(1, sizeof *place);

    if (!place)
        return -ENOMEM;
    place->tenant = tenant;
    place->usage.since = dv_now();
    place->memory.quota = record->quota;
    tenant->devices[record->device] = place;
    dv_leases_add_tenant(arbiter, place, record->device, share);
    dv_leases_adopt_tenant(arbiter, place, record->device, record);
    return 0;
}

void dv_tenants_readmit(struct dv_arbiter *arbiter, struct dv_session *session,
                        struct dv_tenant *tenant)
{
    session->tenant = tenant;
    count_in(arbiter, session);
    if (tenant->sessions++ > 0)
        return;
    unlist_gone(arbiter, tenant);
    count_present(arbiter, tenant, true);
}

void dv_tenants_leave(struct dv_arbiter *arbiter, struct dv_session *session)
{
    struct dv_tenant *tenant = session->tenant;

    session->tenant = NULL;
    if (tenant)
        count_out(arbiter, tenant, session->uid);
    if (!tenant || --tenant->sessions > 0)
        return;
    remember(arbiter, tenant);
    dv_tenants_forget_gone(arbiter, false);
}
