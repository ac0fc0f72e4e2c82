/* What a configuration means, in words: which users each rule matches, and what they get. */
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "src/arbiter/config/config.h"
#include "src/base/text.h"

#define PERCENT(ppm) ((double)(ppm) / (DV_PPM / 100.0))
#define NAMED_MAX 8

/* ---- which users ---- */

static bool is_member(const struct group *group, const char *user)
{
    for (char **member = group ? group->gr_mem : NULL; member && *member; member++)
        if (strcmp(*member, user) == 0)
            return true;
    return false;
}

static bool matches(const struct dvd_tenant_rule *rule, const struct group *group, const struct passwd *user)
{
    return (!rule->user || rule->uid == user->pw_uid) &&
           (!rule->group || rule->gid == user->pw_gid || is_member(group, user->pw_name));
}

/* Names the local users that a rule matches. Programs can also have a group without its user being a member. */
static void print_users(FILE *out, const struct dvd_tenant_rule *rule)
{
    const struct group *group = rule->group ? getgrgid(rule->gid) : NULL;
    const struct passwd *user;
    unsigned count = 0;

    if (!rule->user && !rule->group) {
        fprintf(out, rule->cgroup ? "programs of all users" : "all users");
        return;
    }
    setpwent();
    while ((user = getpwent()))
        if (matches(rule, group, user) && count++ < NAMED_MAX)
            fprintf(out, "%s%s", count > 1 ? ", " : "", user->pw_name);
    endpwent();
    if (count > NAMED_MAX)
        fprintf(out, " and %u more", count - NAMED_MAX);
    if (count == 0)
        fprintf(out, "no local user");
}

/* ---- what they get ---- */

static void print_memory(FILE *out, const char *label, const struct dvd_memory_size *size)
{
    char text[32];

    if (size->ppm) {
        fprintf(out, ", %s %g%%", label, PERCENT(size->ppm));
    } else if (size->bytes) {
        dv_text_format_size(text, sizeof text, size->bytes);
        fprintf(out, ", %s %s", label, text);
    }
}

static void print_tenant(FILE *out, const struct dvd_tenant_rule *rule)
{
    static const char *const each[] = {[DV_PER_DEFAULT] = "user",
                                       [DV_PER_USER] = "user",
                                       [DV_PER_GROUP] = "group",
                                       [DV_PER_CGROUP] = "cgroup",
                                       [DV_PER_PROGRAM] = "program"};
    const struct dvd_tenant_terms *terms = &rule->terms;

    if (rule->refuse) {
        fprintf(out, "refused\n");
        return;
    }
    if (rule->name)
        fprintf(out, "one tenant, %s", rule->name);
    else
        fprintf(out, "a tenant for each %s", each[rule->per]);
    fprintf(out, ": request %g%%, limit %g%%, weight %u, class %s", PERCENT(terms->share.request_ppm),
            PERCENT(terms->share.limit_ppm), terms->share.weight, dv_class_word(terms->share.class));
    print_memory(out, "memory", &terms->memory);
    print_memory(out, "memory-request", &terms->memory_request);
    putc('\n', out);
}

/* A rule that leaves no program over for the rules behind it. */
static bool matches_all(const struct dvd_tenant_rule *rule)
{
    return !rule->user && !rule->group && !rule->cgroup;
}

void dvd_config_describe(const struct dvd_config *config, FILE *out)
{
    const struct dvd_config_file *file = config->file;
    uint64_t last = 0; /* the number of the rule that matches all programs; 0: none */

    for (uint64_t i = 0; file && i < file->devices_count; i++)
        if (file->devices[i].lease_only)
            fprintf(out, "lease-only device %s: sessions that hold it at a time: %llu\n", file->devices[i].name,
                    file->devices[i].slots ? (unsigned long long)*file->devices[i].slots : 1);
    for (uint64_t i = 0; file && i < file->tenants_count; i++) {
        const struct dvd_tenant_rule *rule = &file->tenants[i];
        fprintf(out, "tenant rule %llu ", (unsigned long long)i + 1);
        if (last) {
            fprintf(out, "never applies: rule %llu matches all programs\n", (unsigned long long)last);
            continue;
        }
        fprintf(out, "matches ");
        print_users(out, rule);
        if (rule->cgroup)
            fprintf(out, " in cgroups %s", rule->cgroup);
        fprintf(out, ": ");
        print_tenant(out, rule);
        last = matches_all(rule) ? i + 1 : 0;
    }
    if (!last)
        fprintf(out, "%s programs: a tenant for each %s, without a request\n",
                file && file->tenants_count ? "all other" : "all", config->of_user ? "program" : "user");
    if (config->warning[0])
        fprintf(out, "warning: %s\n", config->warning);
}
