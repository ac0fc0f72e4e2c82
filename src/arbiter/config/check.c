/* Values of divvy.yaml that its schema cannot express. */
#include "src/arbiter/config/check.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/arbiter/limits.h"
#include "src/base/text.h"
#include "src/wire/lease/memory.h"
#include "src/wire/session/shm.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- values with a range ---- */

/* How a value is written. */
enum kind { SIZE, TIME, SHARE, NUMBER };

/* A key whose value lies between two bounds. Offsets: of the text (for a number: of a pointer to it) in the
 * structure that the file is read into, and of the value in the structure that divvyd uses. */
struct range {
    const char *key;
    enum kind kind;
    uint64_t min, max;
    size_t text, value;
};

#define IN_RULE(key, kind, min, max, text, value)                                                                      \
    {                                                                                                                  \
        key, kind, min, max, offsetof(struct dvd_device_rule, text), offsetof(struct dvd_device_rule, value)           \
    }
#define IN_FILE(key, kind, min, max, text, value)                                                                      \
    {                                                                                                                  \
        key, kind, min, max, offsetof(struct dvd_config_file, text), offsetof(struct dvd_config, value)                \
    }
static const struct range rule_ranges[] = {
    IN_RULE("capacity", SIZE, UINT64_C(4) << 10, DV_MEMORY_BYTES_MAX, capacity, capacity_bytes),
    IN_RULE("swap-part", SHARE, DV_PPM / 100, DV_PPM / 2, swap_part, swap_part_ppm),
    IN_RULE("slice-max", TIME, DV_MOVED_SLICE_LIMIT_MIN_NS, DV_MOVED_SLICE_LIMIT_MAX_NS, slice_max, moved_slice_max_ns),
    IN_RULE("kernel-slice", TIME, 100 * DV_NS_PER_US, DV_NS_PER_S, kernel_slice, kernel_slice_ns),
    IN_RULE("kernel-slice-cost", SHARE, DV_PPM / 1000, DV_PPM / 2, kernel_slice_cost, kernel_slice_cost_ppm),
    IN_RULE("room-patience", TIME, DV_DEADLINE_MIN_NS, DV_DEADLINE_MAX_NS, room_patience, room_patience_ns),
    IN_RULE("per-context", SIZE, 0, DV_MEMORY_BYTES_MAX, per_context, per_context_bytes),
};
static const struct range file_ranges[] = {
    IN_FILE("worker-memory", SIZE, DV_WORKER_MEMORY_MIN, DV_MEMORY_BYTES_MAX, worker_memory, worker_memory_bytes),
    IN_FILE("worker-processes", NUMBER, DV_WORKER_PROCESSES_MIN, DV_WORKER_PROCESSES_MAX, worker_processes,
            worker_processes),
    IN_FILE("cache-size", SIZE, DV_CACHE_BYTES_MIN, DV_MEMORY_BYTES_MAX, cache_size, cache_bytes),
    IN_FILE("restart-within", TIME, DV_RESTART_MIN_NS, DV_RESTART_MAX_NS, restart_within, restart_ns),
};

static bool parse(enum kind kind, const char *text, uint64_t *value)
{
    uint32_t ppm = 0;
    int status = kind == SIZE   ? dv_text_parse_size(text, value)
                 : kind == TIME ? dv_text_parse_time(text, value)
                                : dv_text_parse_share(text, &ppm);

    if (kind == SHARE)
        *value = ppm;
    return status == 0;
}

/* Reads the value of a key, if the file has it, from one structure into another. */
static int read_range(const struct dvd_position *position, const struct range *range, const void *from, void *into)
{
    const void *given = *(const void *const *)((const char *)from + range->text);
    char number[24];
    const char *text = given;
    uint64_t value = 0;

    if (!given)
        return 0;
    if (range->kind == NUMBER) {
        value = *(const uint64_t *)given;
        snprintf(number, sizeof number, "%llu", (unsigned long long)value);
        text = number;
    } else if (!parse(range->kind, text, &value)) {
        return dvd_config_wrong(position, range->key, text);
    }
    if (value < range->min || value > range->max)
        return dvd_config_wrong(position, range->key, text);
    if (range->kind == SHARE)
        *(uint32_t *)((char *)into + range->value) = (uint32_t)value;
    else
        *(uint64_t *)((char *)into + range->value) = value;
    return 0;
}

static int read_ranges(const struct dvd_position *position, const struct range *ranges, size_t count, const void *from,
                       void *into)
{
    int status = 0;

    for (size_t i = 0; i < count && status == 0; i++)
        status = read_range(position, &ranges[i], from, into);
    return status;
}

/* ---- who may do what ---- */

static int find_group(const struct dvd_position *position, const char *key, const char *name, gid_t *gid)
{
    const struct group *group = getgrnam(name);

    if (!group) {
        snprintf(position->error, position->error_bytes,
                 "%s:%d: %s: there is no group '%s' on this machine; expected %s", position->path,
                 dv_yaml_find_line(position->data, key, 1), key, name, dvd_config_hint(key));
        return -EINVAL;
    }
    *gid = group->gr_gid;
    return 0;
}

static int check_groups(struct dvd_config *config, struct dvd_position position)
{
    const struct dvd_config_file *file = config->file;
    int status = 0;

    if (file->operator_group) {
        status = find_group(&position, "operator-group", file->operator_group, &config->operator_group);
        config->has_operator_group = status == 0;
    }
    if (status < 0 || !file->session_group)
        return status;
    if (strcmp(file->session_group, DV_CONFIG_EVERYBODY) == 0) {
        config->sessions_for = DV_SESSIONS_FOR_ALL;
        return 0;
    }
    config->sessions_for = DV_SESSIONS_FOR_GROUP;
    return find_group(&position, "session-group", file->session_group, &config->session_group);
}

static int check_lease_sessions(struct dvd_config *config, struct dvd_position position)
{
    const char *who = config->file->lease_sessions;

    if (!who || strcmp(who, "yes") == 0 || strcmp(who, "true") == 0)
        return 0;
    if (strcmp(who, "no") == 0 || strcmp(who, "false") == 0) {
        config->lease_sessions = DV_LEASE_SESSIONS_NONE;
        return 0;
    }
    config->lease_sessions = DV_LEASE_SESSIONS_OF_GROUP;
    return find_group(&position, "lease-sessions", who, &config->lease_group);
}

/* ---- tenants ---- */

static int read_share(const struct dvd_position *position, const char *key, const char *text, uint32_t least,
                      uint32_t *ppm)
{
    if (!text)
        return 0;
    if (dv_text_parse_share(text, ppm) < 0 || *ppm < least)
        return dvd_config_wrong(position, key, text);
    return 0;
}

static int read_weight(const struct dvd_position *position, const char *key, const uint64_t *number, uint32_t *weight)
{
    char text[24];

    if (!number)
        return 0;
    snprintf(text, sizeof text, "%llu", (unsigned long long)*number);
    if (*number < 1 || *number > DV_WEIGHT_MAX)
        return dvd_config_wrong(position, key, text);
    *weight = (uint32_t)*number;
    return 0;
}

static bool read_number(const char *text, unsigned *number)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    *number = (unsigned)value;
    return *end == '\0' && *text != '-' && value < UINT32_MAX;
}

static int find_people(const struct dvd_position *position, struct dvd_tenant_rule *rule)
{
    const struct passwd *user = rule->user ? getpwnam(rule->user) : NULL;
    const struct group *group = rule->group ? getgrnam(rule->group) : NULL;

    if (user)
        rule->uid = user->pw_uid;
    else if (rule->user && !read_number(rule->user, &rule->uid))
        return dvd_config_wrong(position, "user", rule->user);
    if (group)
        rule->gid = group->gr_gid;
    else if (rule->group && !read_number(rule->group, &rule->gid))
        return dvd_config_wrong(position, "group", rule->group);
    return 0;
}

static int read_memory(const struct dvd_position *position, const char *key, const char *text,
                       struct dvd_memory_size *size)
{
    if (!text)
        return 0;
    if (strchr(text, '%')
            ? dv_text_parse_share(text, &size->ppm) == 0 && size->ppm > 0
            : dv_text_parse_size(text, &size->bytes) == 0 && size->bytes > 0 && size->bytes <= DV_MEMORY_BYTES_MAX)
        return 0;
    return dvd_config_wrong(position, key, text);
}

/* A request for a group can be meant for all of it, and counts for each of its users. */
static bool makes_many_of_group(const struct dvd_tenant_rule *rule)
{
    bool has_request = (rule->request && strspn(rule->request, "0%") != strlen(rule->request)) || rule->memory_request;

    return rule->group && !rule->user && !rule->name && rule->per == DV_PER_DEFAULT && has_request;
}

/* The names that divvyd gives tenants itself begin with a slash, or a word and a colon, see name_tenant in
 * identity.c, and a number is a session. A configured name like one of those would be ambiguous. Without a
 * pattern, users who can make cgroups could make tenants. */
static int check_identity(const struct dvd_position *position, const struct dvd_tenant_rule *rule)
{
    if (rule->name &&
        (rule->name[0] == '/' || strchr(rule->name, ':') || strspn(rule->name, "0123456789") == strlen(rule->name))) {
        snprintf(position->error, position->error_bytes,
                 "%s:%d: a tenant cannot be called '%s'; expected a name without a colon, that does "
                 "not begin with a slash and is not a number",
                 position->path, dv_yaml_find_line(position->data, "name", position->line), rule->name);
        return -EINVAL;
    }
    if (rule->per == DV_PER_CGROUP && !rule->name && !rule->cgroup) {
        snprintf(position->error, position->error_bytes,
                 "%s:%d: per: cgroup needs a pattern, or every user could make tenants by making "
                 "cgroups; expected for example cgroup: \"/slurm/uid_*/job_*\" beside it",
                 position->path, dv_yaml_find_line(position->data, "per", position->line));
        return -EINVAL;
    }
    /* Elsewhere users can make cgroups of any name. */
    if (rule->cgroup && rule->cgroup[0] != '/')
        return dvd_config_wrong(position, "cgroup", rule->cgroup);
    if (makes_many_of_group(rule)) {
        snprintf(position->error, position->error_bytes,
                 "%s:%d: \"group: %s\" with a request makes a tenant of each of its users, each with %s; expected "
                 "\"name: %s\" for one tenant of all of them, or \"per: user\" for one tenant each",
                 position->path, dv_yaml_find_line(position->data, "group", position->line), rule->group,
                 rule->request ? rule->request : rule->memory_request, rule->group);
        return -EINVAL;
    }
    return 0;
}

static int check_tenant(const struct dvd_position *position, struct dvd_tenant_rule *rule)
{
    struct dvd_tenant_terms *terms = &rule->terms;

    *terms = (struct dvd_tenant_terms){
        .share = {.limit_ppm = DV_PPM,
                  .weight = 1,
                  .class = rule->class ? (enum dv_class)(rule->class - 1) : DV_CLASS_STANDARD},
        .slice_kernels =
            rule->slice_kernels ? (enum dvd_slice_kernels)(rule->slice_kernels - 1) : DV_SLICE_KERNELS_AUTO};
    terms->configured_class = terms->share.class;
    int status = check_identity(position, rule);
    if (status == 0)
        status = find_people(position, rule);
    if (status == 0)
        status = read_share(position, "request", rule->request, 0, &terms->share.request_ppm);
    if (status == 0)
        status = read_share(position, "limit", rule->limit, DV_PPM / 100, &terms->share.limit_ppm);
    if (status == 0)
        status = read_weight(position, "weight", rule->weight, &terms->share.weight);
    if (status == 0)
        status = read_memory(position, "memory", rule->memory, &terms->memory);
    if (status == 0)
        status = read_memory(position, "memory-request", rule->memory_request, &terms->memory_request);
    if (status == 0 && rule->host_memory &&
        (dv_text_parse_size(rule->host_memory, &terms->host_bytes) < 0 || terms->host_bytes == 0 ||
         terms->host_bytes > DV_MEMORY_BYTES_MAX))
        status = dvd_config_wrong(position, "host-memory", rule->host_memory);
    terms->may_request_ppm = terms->share.request_ppm;
    terms->may_weight = terms->share.weight;
    terms->may_class = rule->may_class ? (enum dv_class)(rule->may_class - 1) : terms->share.class;
    if (status == 0)
        status = read_share(position, "may-request", rule->may_request, 0, &terms->may_request_ppm);
    if (status == 0)
        status = read_weight(position, "may-weight", rule->may_weight, &terms->may_weight);
    if (status == 0 && terms->share.request_ppm > terms->share.limit_ppm) {
        snprintf(position->error, position->error_bytes,
                 "%s:%d: the request of %s is above the limit of %s; expected at most the limit", position->path,
                 dv_yaml_find_line(position->data, "request", position->line), rule->request, rule->limit);
        status = -EINVAL;
    }
    return status;
}

/* The first rule that gives a tenant this rule's name. */
static bool is_first_of_name(const struct dvd_config_file *file, uint64_t index)
{
    for (uint64_t i = 0; i < index; i++)
        if (file->tenants[i].name && strcmp(file->tenants[i].name, file->tenants[index].name) == 0)
            return false;
    return true;
}

/* Adds to what is allowed and hardly meant. */
static void warn(struct dvd_config *config, const char *format, ...)
{
    size_t used = strlen(config->warning);
    va_list args;

    if (used)
        used += (size_t)snprintf(config->warning + used, sizeof config->warning - used, "; ");
    if (used >= sizeof config->warning)
        return;
    va_start(args, format);
    vsnprintf(config->warning + used, sizeof config->warning - used, format, args);
    va_end(args);
}

/* Programs may raise the share of their tenant only where the tenant is one user's, or the rule lets its members. */
static void find_idle_permissions(struct dvd_config *config)
{
    const struct dvd_config_file *file = config->file;

    for (uint64_t i = 0; i < file->tenants_count; i++) {
        const struct dvd_tenant_rule *rule = &file->tenants[i];
        if (!dvd_tenant_rule_is_for_several(rule) || rule->members_may_change ||
            (!rule->may_request && !rule->may_weight && !rule->may_class))
            continue;
        warn(config,
             "tenant rule %llu: may-request, may-weight and may-class have no effect on a tenant of several users "
             "without "
             "\"members-may-change: yes\"",
             (unsigned long long)i + 1);
        return;
    }
}

/* Requests of tenants that exist once each. More than 100 % can be meant on a machine with several devices. */
static void add_up_requests(struct dvd_config *config)
{
    const struct dvd_config_file *file = config->file;
    uint64_t sum = 0;
    unsigned count = 0;

    for (uint64_t i = 0; i < file->tenants_count; i++) {
        const struct dvd_tenant_rule *rule = &file->tenants[i];
        bool is_one = rule->name ? is_first_of_name(file, i) : rule->user != NULL;
        if (!is_one || rule->terms.share.request_ppm == 0 || rule->refuse)
            continue;
        sum += rule->terms.share.request_ppm;
        count++;
    }
    if (sum > DV_PPM)
        warn(config,
             "the requests of %u tenants add up to %g%%: a device can keep 100%%, so programs of some tenants are "
             "refused while all others run",
             count, (double)sum / (DV_PPM / 100.0));
}

static int check_tenants(struct dvd_config *config, struct dvd_position position)
{
    position.line = dv_yaml_find_line(position.data, "tenants:", 1);
    for (uint64_t i = 0; i < config->file->tenants_count; i++) {
        position.line = dv_yaml_find_line(position.data, "- ", position.line + 1); /* of the rule, roughly */
        int status = check_tenant(&position, &config->file->tenants[i]);
        if (status < 0)
            return status;
    }
    add_up_requests(config);
    find_idle_permissions(config);
    return 0;
}

/* ---- workers ---- */

/* The ioctl requests of known drivers, by the letter that their numbers have in common. */
#define OF_LETTER(letter)                                                                                              \
    {                                                                                                                  \
        .mask = 0xff00, .bits = (uint32_t)(letter) << 8                                                                \
    }
static const struct {
    const char *beginning;
    struct dv_sandbox_ioctl requests[3]; /* mask 0 ends them */
} known_nodes[] = {
    {"/dev/nvidia-uvm", {{UINT32_MAX ^ 0xff, 0}, {UINT32_MAX, 0x30000001}, {UINT32_MAX, 0x30000002}}},
    {"/dev/nvidia", {OF_LETTER('F')}},
    {"/dev/dri", {OF_LETTER('d'), OF_LETTER('b'), OF_LETTER('>')}}, /* also of buffers and fences */
    {"/dev/accel", {OF_LETTER('d')}},
    {"/dev/kfd", {OF_LETTER('K')}},
    {"/dev/null", {{0}}},
    {"/dev/zero", {{0}}},
    {"/dev/full", {{0}}},
    {"/dev/random", {{0}}},
    {"/dev/urandom", {{0}}},
    {"/dev/shm/", {{0}}},
};

static void add_request(struct dvd_sandbox_rule *rule, struct dv_sandbox_ioctl request)
{
    for (uint32_t i = 0; i < rule->request_count; i++)
        if (rule->requests[i].mask == request.mask && rule->requests[i].bits == request.bits)
            return;
    if (rule->request_count < DV_MAX_SANDBOX_IOCTLS)
        rule->requests[rule->request_count++] = request;
}

/* False: the needs of the node's driver are unknown. */
static bool add_known_requests(struct dvd_sandbox_rule *rule, const char *path)
{
    for (size_t i = 0; i < COUNT(known_nodes); i++) {
        if (strncmp(path, known_nodes[i].beginning, strlen(known_nodes[i].beginning)) != 0)
            continue;
        for (int j = 0; j < 3 && known_nodes[i].requests[j].mask; j++)
            add_request(rule, known_nodes[i].requests[j]);
        return true;
    }
    return strncmp(path, "/dev", 4) != 0 || (path[4] && path[4] != '/');
}

static int check_ioctls(const struct dvd_position *position, struct dvd_sandbox_rule *rule)
{
    for (uint64_t i = 0; i < rule->ioctls_count; i++) {
        const char *word = rule->ioctls[i];
        char *end;
        unsigned long number = strtoul(word, &end, 0);
        if (strcmp(word, "all") == 0)
            add_request(rule, (struct dv_sandbox_ioctl){0});
        else if (word[0] && !word[1] && !(word[0] >= '0' && word[0] <= '9'))
            add_request(rule, (struct dv_sandbox_ioctl)OF_LETTER((unsigned char)word[0]));
        else if (word[0] >= '0' && word[0] <= '9' && !*end && number <= UINT32_MAX)
            add_request(rule, (struct dv_sandbox_ioctl){UINT32_MAX, (uint32_t)number});
        else
            return dvd_config_wrong(position, "ioctls", word);
    }
    for (uint64_t i = 0; rule->ioctls_count == 0 && i < rule->paths_count; i++) {
        if (add_known_requests(rule, rule->paths[i]))
            continue;
        snprintf(position->error, position->error_bytes,
                 "%s:%d: it is not known which ioctl requests the driver of '%s' makes; name them with "
                 "`ioctls` beside `paths`: %s",
                 position->path, dv_yaml_find_line(position->data, rule->paths[i], position->line), rule->paths[i],
                 dvd_config_hint("ioctls"));
        return -EINVAL;
    }
    return 0;
}

/* Calls by which processes share memory, semaphores and queues by name: workers have no namespace of their own
 * for those, as no worker can make such a call. */
static bool reaches_others(const char *call)
{
    static const char *const families[] = {"shm", "sem", "msg", "mq_", "ipc"};

    for (size_t i = 0; i < COUNT(families); i++)
        if (strncmp(call, families[i], strlen(families[i])) == 0)
            return true;
    return false;
}

static int check_sandbox(const struct dvd_position *position, struct dvd_sandbox_rule *rule)
{
    for (uint64_t i = 0; i < rule->calls_count; i++)
        if (reaches_others(rule->calls[i]))
            return dvd_config_wrong(position, "calls", rule->calls[i]);
    for (uint64_t i = 0; i < rule->paths_count; i++)
        if (rule->paths[i][0] != '/' || strstr(rule->paths[i], "/.."))
            return dvd_config_wrong(position, "paths", rule->paths[i]);
    for (uint64_t i = 0; i < rule->groups_count; i++) {
        const struct group *group = getgrnam(rule->groups[i]);
        if (group)
            rule->gids[i] = group->gr_gid;
        else if (!read_number(rule->groups[i], &rule->gids[i]))
            return dvd_config_wrong(position, "groups", rule->groups[i]);
    }
    return check_ioctls(position, rule);
}

static int check_worker_users(struct dvd_config *config, const struct dvd_position *position)
{
    const char *text = config->file->worker_users;
    unsigned long first, last;
    char rest;

    if (!text)
        return 0;
    if (sscanf(text, "%10lu-%10lu%c", &first, &last, &rest) != 2 || first < 1 || last <= first || last >= UINT32_MAX)
        return dvd_config_wrong(position, "worker-users", text);
    config->worker_uid_first = (uid_t)first;
    config->worker_uid_last = (uid_t)last;
    return 0;
}

static int check_workers(struct dvd_config *config, struct dvd_position position)
{
    const struct dvd_config_file *file = config->file;

    config->sandbox = file->sandbox;
    if (read_ranges(&position, file_ranges, COUNT(file_ranges), file, config) < 0)
        return -EINVAL;
    if (file->worker_cgroup && strstr(file->worker_cgroup, ".."))
        return dvd_config_wrong(&position, "worker-cgroup", file->worker_cgroup);
    config->tenants_cgroup = file->worker_cgroup && strcmp(file->worker_cgroup, "tenant") == 0;
    if (config->tenants_cgroup && (file->worker_memory || file->worker_processes)) {
        snprintf(position.error, position.error_bytes,
                 "%s:%d: with 'worker-cgroup: tenant' the program's own cgroup limits its worker; expected no "
                 "worker-memory and no worker-processes",
                 position.path, dv_yaml_find_line(position.data, "worker-cgroup", 1));
        return -EINVAL;
    }
    const struct range caches =
        IN_FILE("caches-size", SIZE, config->cache_bytes, DV_MEMORY_BYTES_MAX, caches_size, caches_bytes);
    if (read_range(&position, &caches, file, config) < 0)
        return -EINVAL;
    return check_worker_users(config, &position);
}

static int check_sandboxes(struct dvd_config *config, struct dvd_position position)
{
    for (uint64_t i = 0; i < config->file->devices_count; i++) {
        if (!config->file->devices[i].sandbox)
            continue;
        position.line = dv_yaml_find_line(position.data, "sandbox", position.line + 1);
        int status = check_sandbox(&position, config->file->devices[i].sandbox);
        if (status < 0)
            return status;
    }
    return 0;
}

/* ---- the rest ---- */

static int check_arena(struct dvd_config *config, struct dvd_position position)
{
    const char *text = config->file->arena;
    char least[32], most[32];

    if (!text)
        return 0;
    int status = dv_text_parse_size(text, &config->arena_bytes);
    if (status == 0 && config->arena_bytes <= DV_SHM_BYTES_MAX)
        config->arena_bytes = (config->arena_bytes + DV_PAGE - 1) / DV_PAGE * DV_PAGE;
    if (status == 0 && config->arena_bytes >= DV_SHM_BYTES_MIN && config->arena_bytes <= DV_SHM_BYTES_MAX)
        return 0;
    dv_text_format_size(least, sizeof least, DV_SHM_BYTES_MIN);
    dv_text_format_size(most, sizeof most, DV_SHM_BYTES_MAX);
    snprintf(position.error, position.error_bytes, "%s:%d: arena is '%s'; expected a size from %s to %s, such as 16GiB",
             position.path, dv_yaml_find_line(position.data, "arena", 1), text, least, most);
    return -EINVAL;
}

static int check_slices(struct dvd_config *config, struct dvd_position position)
{

    for (uint64_t i = 0; i < config->file->devices_count; i++) {
        struct dvd_device_rule *rule = &config->file->devices[i];
        if (!rule->slice)
            continue;
        position.line = dv_yaml_find_line(position.data, "slice", position.line + 1);
        if (strcmp(rule->slice, "learned") != 0 &&
            (dv_text_parse_time(rule->slice, &rule->slice_ns) < 0 || rule->slice_ns < DV_SLICE_FIXED_MIN_NS ||
             rule->slice_ns > DV_SLICE_FIXED_MAX_NS))
            return dvd_config_wrong(&position, "slice", rule->slice);
    }
    return 0;
}

/* Keys that are about a driver. */
static bool needs_driver(const struct dvd_device_rule *rule)
{
    return rule->match || rule->unified || rule->present_as || rule->policy == DV_POLICY_NONE || rule->scrub ||
           rule->slice_kernels || rule->kernel_slice || rule->kernel_slice_cost || rule->copy_engine || rule->pinned ||
           rule->no_swap || rule->swap_part || rule->slice_max || rule->per_context || rule->sandbox;
}

static bool is_first_lease_only(const struct dvd_config_file *file, uint64_t index)
{
    for (uint64_t i = 0; i < index; i++)
        if (file->devices[i].lease_only && strcmp(file->devices[i].name, file->devices[index].name) == 0)
            return false;
    return true;
}

/* Names are shown to people, and compared as they are shown. */
static bool is_clean(const char *name)
{
    char shown[DV_MAX_DEVICE_NAME];

    dv_text_copy(shown, sizeof shown, name);
    return strcmp(shown, name) == 0;
}

/* What a rule is about: devices of a vendor by a pattern, or one lease-only device by its name. */
static int check_subject(const struct dvd_config_file *file, uint64_t index, const struct dvd_position *position)
{
    const struct dvd_device_rule *rule = &file->devices[index];
    const char *wrong = NULL;

    if (!rule->lease_only && !rule->match)
        wrong = "a rule for devices lacks 'match'; expected a pattern for their names, such as \"*\", or name and "
                "lease-only: yes for a device without a driver";
    else if (rule->lease_only && !rule->name)
        wrong = "a lease-only device has no name; expected one, by which programs ask for it";
    else if (rule->lease_only && !is_clean(rule->name))
        wrong = "the name of a lease-only device has characters that cannot be shown; expected plain text";
    else if (rule->lease_only && needs_driver(rule))
        wrong = "a lease-only device has no driver; expected beside name and lease-only only policy (not none), slots, "
                "slice, capacity, room-patience and hidden";
    else if (rule->lease_only && !is_first_lease_only(file, index))
        wrong = "there is another lease-only device of this name; expected one rule for each";
    if (!wrong)
        return 0;
    snprintf(position->error, position->error_bytes, "%s:%d: %s", position->path, position->line, wrong);
    return -EINVAL;
}

static int check_devices(struct dvd_config *config, struct dvd_position position)
{
    for (uint64_t i = 0; i < config->file->devices_count; i++) {
        struct dvd_device_rule *rule = &config->file->devices[i];
        const char *first = rule->match ? rule->match : rule->name ? rule->name : "- ";
        position.line = dv_yaml_find_line(position.data, first, position.line + 1);
        int status = check_subject(config->file, i, &position);
        if (status < 0)
            return status;
        if (rule->match)
            rule->matches = dvd_device_match_parse(rule->match);
        status = read_ranges(&position, rule_ranges, COUNT(rule_ranges), rule, rule);
        if (status < 0)
            return status;
    }
    return 0;
}

static int check_deadlines(struct dvd_config *config, struct dvd_position position)
{
    const struct dvd_deadlines *given = config->file->deadlines;
    const char *const texts[DV_CLASS_COUNT] = {[DV_CLASS_LATENCY] = given ? given->latency : NULL,
                                               [DV_CLASS_STANDARD] = given ? given->standard : NULL,
                                               [DV_CLASS_BATCH] = given ? given->batch : NULL,
                                               [DV_CLASS_IDLE] = given ? given->idle : NULL};

    position.line = dv_yaml_find_line(position.data, "deadlines", 1);
    for (int i = 0; i < DV_CLASS_COUNT; i++)
        if (texts[i] && strcmp(texts[i], "none") == 0)
            config->deadline_ns[i] = DV_DEADLINE_NONE;
        else if (texts[i] &&
                 (dv_text_parse_time(texts[i], &config->deadline_ns[i]) < 0 ||
                  config->deadline_ns[i] < DV_DEADLINE_MIN_NS || config->deadline_ns[i] > DV_DEADLINE_MAX_NS))
            return dvd_config_wrong(&position, dv_class_word((enum dv_class)i), texts[i]);
    return 0;
}

static int check_vendors(struct dvd_config *config, struct dvd_position position)
{
    const struct dvd_config_file *file = config->file;

    for (uint64_t i = 0; i < file->vendors_count; i++) {
        if (file->vendors[i][0] == '/')
            continue;
        snprintf(position.error, position.error_bytes,
                 "%s:%d: vendors: '%s' is not an absolute path; expected the full path of an .icd file", position.path,
                 dv_yaml_find_line(position.data, file->vendors[i], 1), file->vendors[i]);
        return -EINVAL;
    }
    return 0;
}

static int check_slots(struct dvd_config *config, struct dvd_position position)
{
    for (uint64_t i = 0; i < config->file->devices_count; i++) {
        const uint64_t *slots = config->file->devices[i].slots;
        if (slots)
            position.line = dv_yaml_find_line(position.data, "slots", position.line + 1);
        if (!slots || (*slots >= 1 && *slots <= DV_MAX_SLOTS))
            continue;
        snprintf(position.error, position.error_bytes, "%s:%d: slots is %llu; expected %s", position.path,
                 position.line, (unsigned long long)*slots, dvd_config_hint("slots"));
        return -EINVAL;
    }
    return 0;
}

static int check_sessions(struct dvd_config *config, struct dvd_position position)
{
    const uint64_t *given = config->file->sessions_per_user;

    config->devices_fixed = config->file->device_order == DV_ORDER_FIXED;
    if (!given)
        return 0;
    if (*given < 1 || *given > DV_MAX_SESSIONS) {
        snprintf(position.error, position.error_bytes, "%s:%d: sessions-per-user is %llu; expected %s", position.path,
                 dv_yaml_find_line(position.data, "sessions-per-user", 1), (unsigned long long)*given,
                 dvd_config_hint("sessions-per-user"));
        return -EINVAL;
    }
    config->sessions_per_user = (unsigned)*given;
    return 0;
}

static int check_metrics(struct dvd_config *config, struct dvd_position position)
{
    const uint64_t *port = config->file->metrics_port;
    char text[24];

    if (!port)
        return 0;
    snprintf(text, sizeof text, "%llu", (unsigned long long)*port);
    if (*port < 1024 || *port > UINT16_MAX)
        return dvd_config_wrong(&position, "metrics-port", text);
    config->metrics_port = (uint16_t)*port;
    return 0;
}

int dvd_config_check(struct dvd_config *config, const struct dvd_position *position)
{
    static int (*const checks[])(struct dvd_config * config, struct dvd_position position) = {
        check_arena,     check_groups,    check_slices,         check_devices, check_workers,
        check_sandboxes, check_deadlines, check_lease_sessions, check_tenants, check_vendors,
        check_slots,     check_sessions,  check_metrics};

    for (size_t i = 0; i < COUNT(checks); i++)
        if (checks[i](config, *position) < 0)
            return -EINVAL;
    return 0;
}
