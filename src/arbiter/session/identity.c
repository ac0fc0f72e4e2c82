/* Which tenant a program belongs to: the first rule of the configuration that matches its process decides. */
#include "src/arbiter/session/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/base/text.h"

/* The facts about a process that decide its tenant. They are read once, and only if a rule asks: there can be
 * thousands of rules, so each is only a comparison or two. */
struct peer_facts {
    const struct dvd_peer *peer;
    gid_t groups[DV_MAX_GROUPS]; /* ascending */
    size_t group_count;
    bool has_groups, has_cgroups;
    char cgroups[8192]; /* lines "N:CONTROLLERS:PATH", each NUL-terminated once it is read */
    const char *paths[DV_MAX_HIERARCHIES];
    size_t path_count;
};

static int compare_groups(const void *left, const void *right)
{
    gid_t a = *(const gid_t *)left, b = *(const gid_t *)right;

    return (a > b) - (a < b);
}

/* For a program that has closed its socket. */
static void read_groups_of_process(struct peer_facts *facts)
{
    char path[64], line[16384];

    snprintf(path, sizeof path, "/proc/%d/status", (int)facts->peer->pid);
    FILE *file = facts->peer->pid > 0 ? fopen(path, "re") : NULL;
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "Groups:", 7) != 0)
            continue;
        char *at = line + 7, *end;
        for (unsigned long gid; facts->group_count < DV_MAX_GROUPS && (gid = strtoul(at, &end, 10), end != at);
             at = end)
            facts->groups[facts->group_count++] = (gid_t)gid;
        break;
    }
    if (file)
        fclose(file);
}

static bool in_group(struct peer_facts *facts, gid_t gid)
{
    if (facts->peer->gid == gid)
        return true;
    if (!facts->has_groups) {
        socklen_t bytes = sizeof facts->groups;
        facts->has_groups = true;
        if (facts->peer->fd < 0)
            read_groups_of_process(facts);
        else if (getsockopt(facts->peer->fd, SOL_SOCKET, SO_PEERGROUPS, facts->groups, &bytes) == 0)
            facts->group_count = bytes / sizeof facts->groups[0];
        qsort(facts->groups, facts->group_count, sizeof facts->groups[0], compare_groups);
    }
    return bsearch(&gid, facts->groups, facts->group_count, sizeof gid, compare_groups);
}

static void find_paths(struct peer_facts *facts)
{
    char *rest = facts->cgroups, *line;

    while ((line = strsep(&rest, "\n")) && facts->path_count < DV_MAX_HIERARCHIES) {
        const char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (second)
            facts->paths[facts->path_count++] = second + 1;
    }
}

static void read_cgroups(struct peer_facts *facts)
{
    char path[64];

    if (facts->has_cgroups)
        return;
    facts->has_cgroups = true;
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)facts->peer->pid);
    DV_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t got;
    while (fd >= 0 && (got = read(fd, facts->cgroups + used, sizeof facts->cgroups - 1 - used)) > 0)
        used += (size_t)got;
    facts->cgroups[used] = '\0';
    find_paths(facts);
}

/* Most rules do not match, which the plain text at the start of their pattern shows at once. */
static bool may_match(const char *pattern, const char *path)
{
    return strncmp(pattern, path, strcspn(pattern, "*?[\\")) == 0;
}

/* Cuts a path to its first part that matches the pattern: cgroups that a job makes below its own are still the job's.
 * A '*' stays within a component. Returns false when no part matches. */
static bool cut_to_match(char *path, const char *pattern)
{
    char *end = path;

    while (*end) {
        end += 1 + strcspn(end + 1, "/");
        char rest = *end;
        *end = '\0';
        if (fnmatch(pattern, path, FNM_PATHNAME) == 0)
            return true;
        *end = rest;
    }
    return false;
}

/* Keeps the end of a path, its most specific part. A digest tells it from other paths, also forged ones. */
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

/* The digits of the container that the first component of a text names, and the kind of container; NULL: it names
 * none. */
static const char *find_container(const char *text, const char **kind)
{
    enum { ID_DIGITS = 64 };
    static const struct {
        const char *prefix, *name;
    } kinds[] = {{"docker-", "docker"},
                 {"libpod-", "podman"},
                 {"cri-containerd-", "containerd"},
                 {"crio-", "crio"},
                 {"", "container"}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i].prefix);
        const char *id = text + length;
        if (strncmp(text, kinds[i].prefix, length) != 0 || strspn(id, "0123456789abcdef") != ID_DIGITS)
            continue;
        const char *end = id + ID_DIGITS;
        end += strncmp(end, ".scope", 6) == 0 ? 6 : 0;
        *kind = kinds[i].name;
        return *end == '/' || *end == '\0' ? id : NULL;
    }
    return NULL;
}

/* Whether the last cgroup of a path is below one of a container, service or scope, which may make cgroups there. */
static bool is_made_by_program(const char *path)
{
    static const char *const ends[] = {".service", ".scope"};
    const char *kind;

    for (const char *at = path + 1, *end; (end = strchr(at, '/')); at = end + 1) {
        if (find_container(at, &kind))
            return true;
        for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
            size_t length = strlen(ends[i]);
            if ((size_t)(end - at) >= length && strncmp(end - length, ends[i], length) == 0)
                return true;
        }
    }
    return false;
}

/* Containers have short names. Only cgroups that the system's services make count: users and programs with cgroups of
 * their own can give those any name. */
static bool name_container(const char *path, char *field, size_t bytes)
{
    enum { SHOWN_DIGITS = 12 };
    static const char *const places[] = {"/docker/", "/system.slice/", "/machine.slice/", "/kubepods/",
                                         "/kubepods.slice/"};
    const char *kind;
    bool is_of_system = false;

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        is_of_system |= strncmp(path, places[i], strlen(places[i])) == 0;
    const char *id = is_of_system ? find_container(strrchr(path, '/') + 1, &kind) : NULL;
    if (!id || is_made_by_program(path))
        return false;
    snprintf(field, bytes, "%s:%.*s", kind, SHOWN_DIGITS, id);
    return true;
}

bool dvd_identity_of_cgroup(const char *path, const char *pattern, char *name, size_t bytes)
{
    char found[DV_MAX_PATH];

    if (pattern ? !may_match(pattern, path) : strcmp(path, "/") == 0)
        return false;
    snprintf(found, sizeof found, "%s", path);
    if (pattern && !cut_to_match(found, pattern))
        return false;
    if (!name_container(found, name, bytes))
        shorten(found, name, bytes);
    return true;
}

/* By the first path of any hierarchy that has a name. Version 2 has the one line "0::PATH". */
static bool find_cgroup(struct peer_facts *facts, const char *pattern, char *name, size_t bytes)
{
    read_cgroups(facts);
    for (size_t i = 0; i < facts->path_count; i++)
        if (dvd_identity_of_cgroup(facts->paths[i], pattern, name, bytes))
            return true;
    return false;
}

static bool matches(const struct dvd_tenant_rule *rule, struct peer_facts *facts)
{
    char path[DV_MAX_TENANT_NAME];

    return (!rule->user || rule->uid == facts->peer->uid) && (!rule->group || in_group(facts, rule->gid)) &&
           (!rule->cgroup || find_cgroup(facts, rule->cgroup, path, sizeof path));
}

/* The first rule that gives a tenant this name, or NULL. */
static const struct dvd_tenant_rule *find_rule(const struct dvd_config_file *file, const char *name)
{
    for (uint64_t i = 0; file && i < file->tenants_count; i++)
        if (file->tenants[i].name && strcmp(file->tenants[i].name, name) == 0)
            return &file->tenants[i];
    return NULL;
}

/* Names of different kinds never collide, whatever a program calls itself: user names have no colon,
 * and a user whose name the configuration gives to a tenant is named by its uid; cgroups begin with a
 * slash, the others with a word and a colon. */
static void name_tenant(const struct dvd_config *config, enum dvd_tenant_per per, const struct dvd_tenant_rule *rule,
                        struct peer_facts *facts, char *name, size_t bytes)
{
    const struct dvd_peer *peer = facts->peer;

    if (per == DV_PER_CGROUP && find_cgroup(facts, rule ? rule->cgroup : NULL, name, bytes))
        return;
    if (per == DV_PER_PROGRAM && peer->pid > 0)
        snprintf(name, bytes, "pid:%d:%s", (int)peer->pid, peer->command);
    else if (per == DV_PER_PROGRAM) /* of another pid namespace */
        snprintf(name, bytes, "session:%llu", (unsigned long long)peer->session);
    else if (per == DV_PER_GROUP)
        snprintf(name, bytes, "group:%u", (unsigned)(rule && rule->group ? rule->gid : peer->gid));
    else if (strspn(peer->user, "0123456789") == strlen(peer->user))
        snprintf(name, bytes, "uid:%s", peer->user); /* digits alone would name a session */
    else if (find_rule(config->file, peer->user))
        snprintf(name, bytes, "uid:%u", (unsigned)peer->uid);
    else
        snprintf(name, bytes, "%s", peer->user);
}

/* Without a rule, users are tenants and may not raise their share; where all programs are one user's, each program
 * is a tenant and may ask for anything. */
static struct dvd_tenant_terms default_terms(bool of_user)
{
    struct dvd_tenant_terms terms = {.share = {.limit_ppm = DV_PPM, .weight = 1, .class = DV_CLASS_STANDARD},
                                     .may_weight = 1,
                                     .may_class = DV_CLASS_STANDARD,
                                     .configured_class = DV_CLASS_STANDARD};

    if (of_user) {
        terms.may_request_ppm = DV_PPM;
        terms.may_weight = DV_WEIGHT_MAX;
        terms.may_class = DV_CLASS_LATENCY;
    }
    return terms;
}

/* Whether only operators change the share of a tenant that this rule names. */
static bool is_shared(const struct dvd_config *config, const struct dvd_tenant_rule *rule)
{
    return !config->of_user && !rule->members_may_change && dvd_tenant_rule_is_for_several(rule);
}

bool dvd_identity_is_shared(const struct dvd_config *config, const char *name)
{
    const struct dvd_tenant_rule *rule = find_rule(config->file, name);

    if (config->of_user)
        return false;
    if (rule)
        return is_shared(config, rule);
    /* of a cgroup or a group; its next session shows what its rule says */
    bool is_one_users =
        strncmp(name, "uid:", 4) == 0 || strncmp(name, "pid:", 4) == 0 || strncmp(name, "session:", 8) == 0;
    return name[0] == '/' || (strchr(name, ':') && !is_one_users);
}

static const struct dvd_tenant_rule *find_match(const struct dvd_config_file *file, struct peer_facts *facts)
{
    for (uint64_t i = 0; file && i < file->tenants_count; i++)
        if (matches(&file->tenants[i], facts))
            return &file->tenants[i];
    return NULL;
}

bool dvd_identity_find(const struct dvd_config *config, const struct dvd_peer *peer, struct dvd_identity *identity)
{
    struct peer_facts facts = {.peer = peer};
    const struct dvd_tenant_rule *rule = find_match(config->file, &facts);
    enum dvd_tenant_per per = !rule && config->of_user ? DV_PER_PROGRAM : DV_PER_USER;

    if (rule && rule->per)
        per = (enum dvd_tenant_per)rule->per;
    if (rule && rule->refuse)
        return false;
    *identity = (struct dvd_identity){.terms = rule ? rule->terms : default_terms(config->of_user),
                                      .is_shared = rule && is_shared(config, rule)};
    if (rule && rule->name)
        dv_text_copy(identity->name, sizeof identity->name, rule->name);
    else
        name_tenant(config, per, rule, &facts, identity->name, sizeof identity->name);
    return true;
}
