/* Tenants and admission (see tenants.h). */
#include "src/arbiter/ledger/tenants.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/ledger/placement.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/restart/state.h"
#include "src/base/cleanup.h"
#include "src/base/text.h"

#define PERCENT(ppm) ((double)(ppm) / (DV_PPM / 100.0))

/* ---- whose program it is ---- */

/* What is known of a process when its tenant is looked for. Read once, and only if a rule asks: there
 * may be thousands of rules, so each is only a comparison or two. */
struct suspect {
    const struct dv_session *session;
    gid_t groups[DV_LIMIT_GROUPS]; /* ascending */
    size_t group_count;
    bool has_groups, has_cgroups;
    char cgroups[8192]; /* lines "N:CONTROLLERS:PATH", each with an end of its own once it is read */
    const char *paths[DV_LIMIT_HIERARCHIES];
    size_t path_count;
};

static int compare_groups(const void *left, const void *right)
{
    gid_t a = *(const gid_t *)left, b = *(const gid_t *)right;

    return (a > b) - (a < b);
}

static bool in_group(struct suspect *suspect, gid_t gid)
{
    if (suspect->session->gid == gid)
        return true;
    if (!suspect->has_groups) {
        socklen_t bytes = sizeof suspect->groups;
        suspect->has_groups = true;
        if (getsockopt(suspect->session->client_fd, SOL_SOCKET, SO_PEERGROUPS, suspect->groups,
                       &bytes) == 0)
            suspect->group_count = bytes / sizeof suspect->groups[0];
        qsort(suspect->groups, suspect->group_count, sizeof suspect->groups[0], compare_groups);
    }
    return bsearch(&gid, suspect->groups, suspect->group_count, sizeof gid, compare_groups);
}

static void find_paths(struct suspect *suspect)
{
    char *rest = suspect->cgroups, *line;

    while ((line = strsep(&rest, "\n")) && suspect->path_count < DV_LIMIT_HIERARCHIES) {
        const char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (second)
            suspect->paths[suspect->path_count++] = second + 1;
    }
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
    find_paths(suspect);
}

/* Most rules are about others, as the plain text that their pattern begins with says at once. */
static bool matches_path(const char *pattern, const char *path)
{
    size_t plain = strcspn(pattern, "*?[\\");

    return strncmp(pattern, path, plain) == 0 && fnmatch(pattern, path, 0) == 0;
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

/* The end of a path says most; a digest tells it from others, also from those that somebody makes up. */
static void shorten(const char *path, char *field, size_t bytes)
{
    enum { DIGEST_BYTES = 16 };
    char digest[SHA256_DIGEST_STRING_LENGTH];
    size_t length = strlen(path);

    if (length < bytes) {
        dv_text_copy(field, bytes, path);
        return;
    }
    SHA256Data((const uint8_t *)path, length, digest);
    size_t kept = bytes - (2 * DIGEST_BYTES + sizeof "...");
    snprintf(field, bytes, "%.*s...%s", 2 * DIGEST_BYTES, digest, path + length - kept);
    dv_text_clean(field, bytes);
}

/* The path, of any hierarchy, that matches the pattern (NULL: the first other than the root).
 * Version 2 has the one line "0::PATH". */
static bool find_cgroup(struct suspect *suspect, const char *pattern, char *path, size_t bytes)
{
    char found[DV_LIMIT_PATH];

    read_cgroups(suspect);
    for (size_t i = 0; i < suspect->path_count; i++) {
        if (pattern ? !matches_path(pattern, suspect->paths[i])
                    : strcmp(suspect->paths[i], "/") == 0)
            continue;
        snprintf(found, sizeof found, "%s", suspect->paths[i]);
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

/* The first rule that gives a tenant this name, or NULL. */
static const struct dv_tenant_rule *find_rule(const struct dv_config_file *file, const char *name)
{
    for (uint64_t i = 0; file && i < file->tenants_count; i++)
        if (file->tenants[i].name && strcmp(file->tenants[i].name, name) == 0)
            return &file->tenants[i];
    return NULL;
}

/* Names of different kinds cannot be the same, whatever a program calls itself: users have no colon
 * in theirs, and one that the configuration gives to a tenant is not theirs; cgroups begin with a slash,
 * the others with a word and a colon. */
static void name_tenant(enum dv_tenant_per per, const struct dv_tenant_rule *rule,
                        struct suspect *suspect, char *name, size_t bytes)
{
    const struct dv_session *session = suspect->session;
    const struct dv_config_file *file = session->arbiter->config.file;

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
    else if (find_rule(file, session->user))
        snprintf(name, bytes, "uid:%u", (unsigned)session->uid);
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

/* Whether programs of more than one user may belong to a tenant that this rule names. */
static bool is_of_several(const struct dv_arbiter *arbiter, const struct dv_tenant_rule *rule)
{
    if (arbiter->options.user || rule->user)
        return false;
    return rule->name || rule->per == DV_PER_GROUP || rule->per == DV_PER_CGROUP;
}

/* False when a rule refuses the program. */
static bool identify(const struct dv_arbiter *arbiter, const struct dv_session *session, char *name,
                     size_t bytes, struct dv_tenant_terms *terms, bool *of_several)
{
    const struct dv_config_file *file = arbiter->config.file;
    struct suspect suspect = {.session = session};

    for (uint64_t i = 0; file && i < file->tenants_count; i++) {
        const struct dv_tenant_rule *rule = &file->tenants[i];
        if (!matches(rule, &suspect))
            continue;
        if (rule->refuse)
            return false;
        *terms = rule->terms;
        *of_several = is_of_several(arbiter, rule);
        if (rule->name)
            dv_text_copy(name, bytes, rule->name);
        else
            name_tenant((enum dv_tenant_per)rule->per, rule, &suspect, name, bytes);
        return true;
    }
    default_terms(arbiter, terms);
    *of_several = false;
    name_tenant(arbiter->options.user ? DV_PER_PROGRAM : DV_PER_USER, NULL, &suspect, name, bytes);
    return true;
}

/* ---- what can be promised ---- */

/* What a wish makes of a share. */
static struct dv_share overlay(struct dv_share share, const struct dv_share_wish *wish)
{
    if (wish->has_request)
        share.request_ppm = wish->request_ppm;
    if (wish->has_limit)
        share.limit_ppm = wish->limit_ppm;
    if (wish->has_weight)
        share.weight = wish->weight;
    if (wish->has_class)
        share.class = wish->class;
    return share;
}

/* Wishes for shares; what somebody may allocate is set for each device. */
static void merge(struct dv_share_wish *wish, const struct dv_share_wish *later)
{
    struct dv_share share = {.request_ppm = wish->request_ppm,
                             .limit_ppm = wish->limit_ppm,
                             .weight = wish->weight,
                             .class = wish->class};

    share = overlay(share, later);
    wish->request_ppm = share.request_ppm;
    wish->limit_ppm = share.limit_ppm;
    wish->weight = share.weight;
    wish->class = share.class;
    wish->has_request |= later->has_request;
    wish->has_limit |= later->has_limit;
    wish->has_weight |= later->has_weight;
    wish->has_class |= later->has_class;
}

/* The share after a change, or a negative errno with words. */
static int combine(const struct dv_tenant *tenant, const struct dv_share *old,
                   const struct dv_share_wish *wish, bool bounded, struct dv_share *new, char *text,
                   size_t bytes)
{
    const struct dv_tenant_terms *terms = &tenant->terms;

    *new = overlay(*old, wish);
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

/* Who has requests on a device, for a refusal. */
static void name_holders(const struct dv_arbiter *arbiter, const struct dv_tenant *tenant,
                         uint32_t device, char *text, size_t bytes)
{
    enum { LOOKED_AT_MOST = 1024 }; /* a refusal must not cost more than an admission */
    const struct dv_tenant *other = arbiter->tenants;
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; other && i < LOOKED_AT_MOST && used < bytes; i++, other = other->hh.next) {
        const struct dv_tenant_device *there = other->devices[device];
        if (other == tenant || !there || there->policy.share.request_ppm == 0)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s %g%%", used ? ", " : "",
                                 other->name, PERCENT(there->policy.share.request_ppm));
    }
}

uint64_t dv_tenants_promised_to_others(const struct dv_arbiter *arbiter,
                                       const struct dv_tenant *tenant, uint32_t device)
{
    const struct dv_tenant_device *place = tenant->devices[device];

    return arbiter->leases.devices[device].promised_ppm -
           (place ? place->policy.share.request_ppm : 0);
}

/* Whether a request fits beside those of the others on a device; if not, says who has them. */
static int check_room(const struct dv_arbiter *arbiter, const struct dv_tenant *tenant,
                      uint32_t device, uint32_t request_ppm, char *text, size_t bytes)
{
    uint64_t promised = dv_tenants_promised_to_others(arbiter, tenant, device);
    char holders[256];

    if (request_ppm == 0 || promised + request_ppm <= DV_PPM)
        return 0;
    name_holders(arbiter, tenant, device, holders, sizeof holders);
    snprintf(text, bytes,
             "a request of %g%% cannot be kept on %.80s: %g%% of it is promised already (%s). Ask "
             "for at most %g%%, or wait until one of them ends",
             PERCENT(request_ppm), dv_leases_device_name(arbiter, device), PERCENT(promised),
             holders, PERCENT(DV_PPM - promised));
    return -ENOSPC;
}

/* Whether bytes that stay fit beside those of the others on a device; if not, says who has them. Where
 * nothing is ever moved, nothing is promised either. */
static int check_memory_room(const struct dv_arbiter *arbiter, const struct dv_tenant *tenant,
                             uint32_t device, uint64_t request, char *text, size_t bytes)
{
    uint64_t capacity = dv_memory_capacity(arbiter, device), promised = 0;
    char holders[256] = "", size[32], asked[32], had[32], left[32];
    size_t used = 0;

    if (request == 0 || !dv_devices_swaps(&arbiter->devices, device, &arbiter->config))
        return 0;
    for (const struct dv_tenant *other = arbiter->tenants; other; other = other->hh.next) {
        const struct dv_tenant_device *there = other->devices[device];
        if (other == tenant || !there || there->users == 0 || there->memory.request == 0)
            continue;
        promised += there->memory.request;
        if (used >= sizeof holders)
            continue;
        dv_text_format_size(size, sizeof size, there->memory.request);
        used += (size_t)snprintf(holders + used, sizeof holders - used, "%s%s %s", used ? ", " : "",
                                 other->name, size);
    }
    if (promised <= capacity && request <= capacity - promised)
        return 0;
    dv_text_format_size(asked, sizeof asked, request);
    dv_text_format_size(had, sizeof had, promised);
    dv_text_format_size(left, sizeof left, promised < capacity ? capacity - promised : 0);
    snprintf(text, bytes,
             "a memory-request of %s cannot be kept on %.80s: %s of it is promised already (%s). Ask "
             "for at most %s, or wait until one of them ends",
             asked, dv_leases_device_name(arbiter, device), had, used ? holders : "none", left);
    return -ENOSPC;
}

static int check_promises(const struct dv_arbiter *arbiter, const struct dv_tenant *tenant,
                          uint32_t device, uint32_t request_ppm, uint64_t memory_request, char *text,
                          size_t bytes)
{
    int status = check_room(arbiter, tenant, device, request_ppm, text, bytes);

    return status < 0 ? status
                      : check_memory_room(arbiter, tenant, device, memory_request, text, bytes);
}

/* By itself a tenant may have less memory that stays, and take it back up to what it is given. */
static int check_may_keep(const struct dv_arbiter *arbiter, const struct dv_tenant *tenant,
                          uint32_t device, uint64_t request, char *text, size_t bytes)
{
    uint64_t most = dv_memory_request_on(arbiter, device, &tenant->terms.memory_request);
    char size[32];

    if (request <= most || request <= tenant->devices[device]->memory.request)
        return 0;
    dv_text_format_size(size, sizeof size, most);
    snprintf(text, bytes,
             "tenant %s may keep at most %s of the memory of %.80s; the operator sets that with "
             "memory-request in divvy.yaml, or with divvy set",
             tenant->name, size, dv_leases_device_name(arbiter, device));
    return -EPERM;
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
    record->memory_request_ppm = terms->memory_request.ppm;
    record->memory_request_bytes = terms->memory_request.bytes;
    record->host_bytes = terms->host_bytes;
    const struct dv_share_wish *wish = &tenant->wish;
    record->wish = (struct dv_state_share){.request_ppm = wish->request_ppm,
                                           .limit_ppm = wish->limit_ppm,
                                           .weight = wish->weight,
                                           .class = wish->class};
    record->wishes = (wish->has_request ? DV_STATE_WISH_REQUEST : 0) |
                     (wish->has_limit ? DV_STATE_WISH_LIMIT : 0) |
                     (wish->has_weight ? DV_STATE_WISH_WEIGHT : 0) |
                     (wish->has_class ? DV_STATE_WISH_CLASS : 0);
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
    place->record->memory_request = place->memory.request;
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

/* Puts the share of a place into force: the request only while a session uses the device. */
static void apply_share(struct dv_arbiter *arbiter, struct dv_tenant_device *place, uint32_t device)
{
    struct dv_share share = place->share;

    if (place->users == 0)
        share.request_ppm = 0;
    dv_leases_set_share(arbiter, place, device, &share);
}

/* What its places will be like with a wish, and whether that can be promised. */
static int check_places(struct dv_arbiter *arbiter, struct dv_tenant *tenant, int device,
                        const struct dv_share_wish *wish, bool bounded,
                        struct dv_share shares[DV_MAX_DEVICES], char *text, size_t bytes)
{
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        const struct dv_tenant_device *place = tenant->devices[i];
        if (!place || (device >= 0 && i != (uint32_t)device))
            continue;
        int status = combine(tenant, &place->share, wish, bounded, &shares[i], text, bytes);
        if (status == 0 && place->users)
            status = check_room(arbiter, tenant, i, shares[i].request_ppm, text, bytes);
        if (status == 0 && wish->has_memory && bounded)
            status = check_quota(arbiter, tenant, i, wish->memory_bytes, text, bytes);
        if (status == 0 && wish->has_memory_request && bounded)
            status = check_may_keep(arbiter, tenant, i, wish->memory_request_bytes, text, bytes);
        if (status == 0 && wish->has_memory_request && place->users)
            status = check_memory_room(arbiter, tenant, i, wish->memory_request_bytes, text, bytes);
        if (status < 0)
            return status;
    }
    return 0;
}

static void set_places(struct dv_arbiter *arbiter, struct dv_tenant *tenant, int device,
                       const struct dv_share_wish *wish,
                       const struct dv_share shares[DV_MAX_DEVICES])
{
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        struct dv_tenant_device *place = tenant->devices[i];
        if (!place || (device >= 0 && i != (uint32_t)device))
            continue;
        place->share = shares[i];
        apply_share(arbiter, place, i);
        if (wish->has_memory)
            dv_memory_set_quota(place, wish->memory_bytes);
        if (wish->has_memory_request)
            dv_memory_set_request(place, wish->memory_request_bytes);
    }
}

int dv_tenants_set(struct dv_arbiter *arbiter, struct dv_tenant *tenant, int device,
                   const struct dv_share_wish *wish, bool bounded, char *text, size_t bytes)
{
    struct dv_share shares[DV_MAX_DEVICES];

    if (bounded && tenant->of_several) {
        snprintf(text, bytes, "tenant %s has several users: only an operator changes its share",
                 tenant->name);
        return -EPERM;
    }
    int status = check_places(arbiter, tenant, device, wish, bounded, shares, text, bytes);
    if (status < 0)
        return status;
    set_places(arbiter, tenant, device, wish, shares);
    if (device < 0) {
        merge(&tenant->wish, wish);
        note_terms(tenant);
    }
    if (bounded || device >= 0)
        return 0;
    /* What an operator has lowered on all devices, the tenant cannot raise again. */
    tenant->set_by_operator = true;
    if (wish->has_memory)
        tenant->terms.memory = (struct dv_memory_size){.bytes = wish->memory_bytes};
    if (wish->has_memory_request)
        tenant->terms.memory_request = (struct dv_memory_size){.bytes = wish->memory_request_bytes};
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

/* The last session has gone, and its places are without requests. */
static void remember(struct dv_arbiter *arbiter, struct dv_tenant *tenant)
{
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

/* NULL with words: no tenant's session. */
static struct dv_tenant *find_or_add(struct dv_arbiter *arbiter, const struct dv_session *session,
                                     char *text, size_t bytes)
{
    char name[DV_LIMIT_TENANT_NAME] = "";
    struct dv_tenant_terms terms;
    struct dv_tenant *tenant;
    bool of_several;

    if (!identify(arbiter, session, name, sizeof name, &terms, &of_several)) {
        snprintf(text, bytes,
                 "the operator does not let programs of user %s use the accelerators here (a tenant rule "
                 "with refuse: yes in divvy.yaml); ask the operator",
                 session->user);
        return NULL;
    }
    snprintf(text, bytes, "divvyd has no memory for another tenant");
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
    tenant->of_several = of_several;
    if (created)
        keep(arbiter, tenant);
    tenant->config_loads = arbiter->config_loads;
    return tenant;
}

/* Puts the tenant on a device, without its request so far. */
static struct dv_tenant_device *settle(struct dv_arbiter *arbiter, struct dv_tenant *tenant,
                                       uint32_t device)
{
    struct dv_tenant_device *place = calloc(1, sizeof *place);
    if (!place)
        return NULL;
    place->tenant = tenant;
    place->usage.since = dv_now();
    place->memory.quota = dv_memory_size_on(arbiter, device, &tenant->terms.memory);
    place->share = overlay(tenant->terms.share, &tenant->wish);
    dv_memory_set_request(place, dv_memory_request_on(arbiter, device, &tenant->terms.memory_request));
    tenant->devices[device] = place;
    keep_place(arbiter, place, device);
    struct dv_share share = place->share;
    share.request_ppm = 0;
    dv_leases_add_tenant(arbiter, place, device, &share);
    dv_state_commit(place->record);
    return place;
}

/* Whoever has used nothing owes nothing, and need not be remembered. */
static void free_unused_place(struct dv_arbiter *arbiter, struct dv_tenant_device *place,
                              uint32_t device)
{
    if (place->sessions == 0 && place->policy.used_ns == 0)
        free_place(arbiter, place->tenant, device);
}

static void count_session(struct dv_arbiter *arbiter, struct dv_tenant_device *place,
                          uint32_t device)
{
    arbiter->leases.devices[device].sessions++;
    if (place->sessions++ == 0)
        arbiter->leases.devices[device].tenants_present++;
}

int dv_tenants_promise(struct dv_arbiter *arbiter, struct dv_tenant_device *place, uint32_t device,
                       char *text, size_t bytes)
{
    int status = place->users ? 0
                              : check_promises(arbiter, place->tenant, device, place->share.request_ppm,
                                               place->memory.request, text, bytes);

    if (status == 0 && place->users++ == 0)
        apply_share(arbiter, place, device);
    return status;
}

struct dv_tenant_device *dv_tenants_come(struct dv_arbiter *arbiter, struct dv_tenant *tenant,
                                         uint32_t device, bool promised, char *text, size_t bytes)
{
    struct dv_tenant_device *place = tenant->devices[device];

    if (!place && !(place = settle(arbiter, tenant, device))) {
        snprintf(text, bytes, "divvyd has no memory for another tenant");
        return NULL;
    }
    if (promised && dv_tenants_promise(arbiter, place, device, text, bytes) < 0) {
        free_unused_place(arbiter, place, device);
        return NULL;
    }
    count_session(arbiter, place, device);
    return place;
}

void dv_tenants_go(struct dv_arbiter *arbiter, struct dv_tenant_device *place, uint32_t device,
                   bool promised)
{
    if (promised && --place->users == 0)
        apply_share(arbiter, place, device);
    arbiter->leases.devices[device].sessions--;
    if (--place->sessions == 0)
        arbiter->leases.devices[device].tenants_present--;
    free_unused_place(arbiter, place, device);
}

/* A tenant without a session has its usual share when it comes back, and its debts. */
static void reset_shares(struct dv_arbiter *arbiter, struct dv_tenant *tenant)
{
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        struct dv_tenant_device *place = tenant->devices[i];
        if (!place)
            continue;
        place->share = overlay(tenant->terms.share, &tenant->wish);
        apply_share(arbiter, place, i);
        dv_memory_set_quota(place, dv_memory_size_on(arbiter, i, &tenant->terms.memory));
        dv_memory_set_request(place, dv_memory_request_on(arbiter, i, &tenant->terms.memory_request));
    }
}

/* The session sees its devices in this order. A front end's own session numbers them as `divvy devices`
 * does, whatever the order. */
static void arrange(struct dv_session *session, uint8_t order[DV_MAX_DEVICES])
{
    uint8_t devices[DV_MAX_DEVICES];
    uint64_t leased = session->leased_mask;

    if (session->api == DV_API_LEASE || session->same_devices)
        return;
    memcpy(devices, session->device_indices, sizeof devices);
    session->leased_mask = 0;
    for (uint32_t i = 0; i < session->device_count; i++) {
        session->device_indices[i] = devices[order[i]];
        session->leased_mask |= (leased >> order[i] & 1) << i;
        order[i] = (uint8_t)i;
    }
}

/* Orders the devices of a session that begins, and finds the first that can keep what its tenant will
 * request there. Returns its index in the session's list; device_count: no device is leased; or a
 * negative errno with words. */
static int find_first_device(struct dv_arbiter *arbiter, struct dv_session *session,
                             const struct dv_tenant *tenant, uint32_t request_ppm, char *text,
                             size_t bytes)
{
    uint8_t order[DV_MAX_DEVICES];
    unsigned full = 0;
    char other[512] = ""; /* the words of the first device are told */

    dv_placement_order(arbiter, session, tenant, request_ppm, order);
    arrange(session, order);
    for (uint32_t i = 0; i < session->device_count; i++) {
        uint32_t device = session->device_indices[order[i]];
        if (!(session->leased_mask >> order[i] & 1))
            continue;
        if (check_promises(arbiter, tenant, device, request_ppm,
                           dv_memory_request_on(arbiter, device, &tenant->terms.memory_request),
                           full ? other : text, full ? sizeof other : bytes) == 0)
            return order[i];
        full++;
    }
    if (full > 1) {
        size_t used = strlen(text);
        snprintf(text + used, bytes - used, ". The other %u devices cannot keep it either",
                 full - 1);
    }
    return full ? -ENOSPC : (int)session->device_count;
}

/* Whether the tenant may have what a session of it wishes, on the devices that it uses. */
static int check_wish(struct dv_arbiter *arbiter, struct dv_tenant *tenant,
                      const struct dv_share_wish *wish, struct dv_share shares[DV_MAX_DEVICES],
                      char *text, size_t bytes)
{
    struct dv_share usual = tenant->terms.share, share;

    if (tenant->sessions)
        usual = overlay(usual, &tenant->wish);
    int status = combine(tenant, &usual, wish, true, &share, text, bytes);
    if (status == 0 && tenant->sessions)
        status = check_places(arbiter, tenant, -1, wish, true, shares, text, bytes);
    return status;
}

/* Whether the tenant has had its share changed by programs too often of late: each change costs divvyd
 * time, and those who share the device a new order. */
static int check_rate(struct dv_tenant *tenant, const struct dv_share_wish *wish, char *text, size_t bytes)
{
    struct dv_share had = overlay(tenant->terms.share, &tenant->wish);
    struct dv_share wanted = overlay(tenant->sessions ? had : tenant->terms.share, wish);

    bool same = wanted.request_ppm == had.request_ppm && wanted.limit_ppm == had.limit_ppm &&
                wanted.weight == had.weight && wanted.class == had.class;
    if (same || dv_log_within(&tenant->changes, DV_SHARE_CHANGES_PER_S))
        return 0;
    tenant->changes.left_out = 0; /* no lines are left out */
    snprintf(text, bytes,
             "programs of tenant %s have asked for another share more than %d times within a second; wait "
             "a second, or ask for the share that it has",
             tenant->name, DV_SHARE_CHANGES_PER_S);
    return -EBUSY;
}

static bool is_empty(const struct dv_share_wish *wish)
{
    return !wish->has_request && !wish->has_limit && !wish->has_weight && !wish->has_class;
}

/* The session is the tenant's from here on. */
static void take_in(struct dv_arbiter *arbiter, struct dv_tenant *tenant,
                    const struct dv_share_wish *wish, const struct dv_share shares[DV_MAX_DEVICES])
{
    if (tenant->left_at)
        unlist_gone(arbiter, tenant);
    if (tenant->sessions++ == 0) {
        tenant->wish = *wish;
        reset_shares(arbiter, tenant);
    } else {
        merge(&tenant->wish, wish);
        set_places(arbiter, tenant, -1, wish, shares);
    }
    note_terms(tenant);
}

int dv_tenants_admit(struct dv_arbiter *arbiter, struct dv_session *session,
                     const struct dv_share_wish *wish, char *text, size_t bytes)
{
    struct dv_share shares[DV_MAX_DEVICES], usual;
    int first = 0;

    dv_tenants_forget_gone(arbiter, false);
    struct dv_tenant *tenant = find_or_add(arbiter, session, text, bytes);
    if (!tenant)
        return -EACCES;
    static const struct dv_share_wish none;
    session->wish_ignored = tenant->of_several && !is_empty(wish);
    if (tenant->of_several)
        wish = &none;
    int status = check_rate(tenant, wish, text, bytes);
    if (status == 0)
        status = check_wish(arbiter, tenant, wish, shares, text, bytes);
    if (status == 0) {
        usual = tenant->terms.share;
        if (tenant->sessions)
            usual = overlay(usual, &tenant->wish);
        first = find_first_device(arbiter, session, tenant, overlay(usual, wish).request_ppm, text,
                                  bytes);
        status = first < 0 ? first : 0;
    }
    if (status < 0) {
        if (tenant->sessions == 0 && !tenant->left_at)
            forget(arbiter, tenant);
        return status;
    }
    take_in(arbiter, tenant, wish, shares);
    session->tenant = tenant;
    count_in(arbiter, session);
    if (session->wish_ignored && dv_log_within(&arbiter->refusals, DV_REFUSALS_PER_S))
        dv_info("session %llu (%s): what it asks of its share is ignored, for tenant %s has several users",
                (unsigned long long)session->id, session->user, tenant->name);
    if ((uint32_t)first < session->device_count)
        status = dv_leases_admit(session, (uint32_t)first, text, bytes);
    if (status < 0)
        dv_tenants_leave(arbiter, session);
    return status;
}

/* ---- after a restart ---- */

/* The same as is_of_several, of a tenant of which only its name is known. */
static bool is_name_of_several(const struct dv_arbiter *arbiter, const char *name)
{
    const struct dv_tenant_rule *rule = find_rule(arbiter->config.file, name);

    if (arbiter->options.user)
        return false;
    if (rule)
        return is_of_several(arbiter, rule);
    return name[0] == '/' || strncmp(name, "group:", 6) == 0;
}

struct dv_tenant *dv_tenants_adopt(struct dv_arbiter *arbiter, struct dv_state_tenant *record,
                                   const struct dv_tenant_terms *terms,
                                   const struct dv_share_wish *wish)
{
    struct dv_tenant *tenant = calloc(1, sizeof *tenant);

    if (!tenant)
        return NULL;
    memcpy(tenant->name, record->name, sizeof tenant->name);
    tenant->terms = *terms;
    tenant->wish = *wish;
    tenant->set_by_operator = record->set_by_operator == 1;
    tenant->of_several = is_name_of_several(arbiter, tenant->name);
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
    place->share = *share;
    place->memory.request = record->memory_request;
    tenant->devices[record->device] = place;
    struct dv_share in_force = *share;
    if (record->promised != 1)
        in_force.request_ppm = 0;
    dv_leases_add_tenant(arbiter, place, record->device, &in_force);
    dv_leases_adopt_tenant(arbiter, place, record->device, record);
    return 0;
}

void dv_tenants_readmit(struct dv_arbiter *arbiter, struct dv_session *session,
                        struct dv_tenant *tenant)
{
    session->tenant = tenant;
    count_in(arbiter, session);
    if (tenant->sessions++ == 0)
        unlist_gone(arbiter, tenant);
}

void dv_tenants_come_again(struct dv_arbiter *arbiter, struct dv_tenant_device *place,
                           uint32_t device, bool promised)
{
    count_session(arbiter, place, device);
    place->users += promised;
}

void dv_tenants_adopted(struct dv_arbiter *arbiter)
{
    for (struct dv_tenant *tenant = arbiter->tenants; tenant; tenant = tenant->hh.next)
        for (uint32_t i = 0; i < DV_MAX_DEVICES; i++)
            if (tenant->devices[i] && !tenant->devices[i]->users)
                apply_share(arbiter, tenant->devices[i], i);
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
