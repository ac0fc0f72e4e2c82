/* Error messages about divvy.yaml: the line, the reason, and the expected value. */
#include "src/arbiter/config/messages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "src/arbiter/config/config.h"
#include "src/arbiter/config/schema.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* The expected values, by key. */
static const struct {
    const char *key;
    const char *expected;
} hints[] = {
    {"devices",
     "a list of rules, each with \"match: PATTERN\", or with \"name: NAME\" and \"lease-only: yes\", at most 256"},
    {"match", "a pattern for device names of at most 127 characters, such as \"*\", or a number, UUID or PCI address"},
    {"name", "a device name of at most 127 characters"},
    {"lease-only", "yes or no"},
    {"unified", "yes, no or auto"},
    {"present-as", "as-is, cpu, gpu or accelerator"},
    {"policy", "none, elastic, fair, fifo or band"},
    {"slots", "a number from 1 to 64"},
    {"slice", "learned, or a time from 100us to 10s, such as 10ms"},
    {"slice-kernels", "auto, never or always"},
    {"kernel-slice-cost", "a part of the time from 0.1% to 50%"},
    {"kernel-slice", "a time from 100us to 1s, such as 5ms"},
    {"scrub", "yes, no or auto"},
    {"copy-engine", "yes, no or auto"},
    {"pinned", "yes, no or auto"},
    {"swap", "yes or no"},
    {"swap-part", "a part of the time from 1% to 50%"},
    {"slice-max", "a time from 10ms to 60s, such as 2s"},
    {"room-patience", "a time from 100ms to 86400s, such as 30s"},
    {"capacity", "a size from 4KiB to 256TiB, such as 8GiB"},
    {"per-context", "a size of at most 256TiB, such as 64MiB"},
    {"host-memory", "a size such as 4GiB"},
    {"memory-request", "a size such as 2GiB, or a part of the device such as 50%"},
    {"memory", "a size such as 2GiB, or a part of the device such as 50%"},
    {"hidden", "yes or no"},
    {"arena", "a size such as 16GiB"},
    {"vendors", "a list of 1 to 64 paths of .icd files"},
    {"operator-group", "the name of a group"},
    {"session-group", "the name of a group, or " DV_CONFIG_EVERYBODY},
    {"refuse", "yes or no"},
    {"tenants-see-own", "yes or no"},
    {"sandbox", "yes, no or if-possible; in a device rule a mapping of paths, groups, calls and ioctls"},
    {"allow-unsandboxed-workers", "yes or no"},
    {"paths", "a list of at most 64 absolute paths"},
    {"groups", "a list of at most 8 names or numbers of groups"},
    {"calls", "a list of at most 64 names of system calls, none of System V or POSIX memory, semaphores and queues"},
    {"ioctls", "a list of at most 16 letters or numbers of requests, or [all]"},
    {"deadlines", "some of latency, standard, batch and idle, each with a time such as 30s, or none"},
    {"latency", "none, or a time from 100ms to 86400s, such as 30s"},
    {"standard", "none, or a time from 100ms to 86400s, such as 30s"},
    {"batch", "none, or a time from 100ms to 86400s, such as 30s"},
    {"idle", "none, or a time from 100ms to 86400s, such as 30s"},
    {"lease-sessions", "yes, no or the name of a group"},
    {"cache-size", "a size from 1MiB to 256TiB, such as 1GiB"},
    {"caches-size", "a size from 1MiB to 256TiB, not below cache-size, such as 10GiB"},
    {"metrics-port", "a number from 1024 to 65535"},
    {"restart-within", "a time from 1s to 3600s, such as 60s"},
    {"worker-memory", "a size from 64MiB on, such as 8GiB"},
    {"worker-processes", "a number from 16 to 1048576"},
    {"worker-cgroup", "the name of a cgroup, such as divvy, or tenant"},
    {"worker-users", "FIRST-LAST, two different numbers of users from 1 on, such as 1879048192-1879113727"},
    {"sessions-per-user", "a number from 1 to 16384"},
    {"device-order", "free or fixed"},
    {"tenants", "a list of rules, each with some of user, group, cgroup, request, limit ..."},
    {"user", "the name or number of a user"},
    {"group", "the name or number of a group"},
    {"cgroup", "a pattern for cgroup paths that begins with a slash, such as \"/slurm/uid_*/job_*\""},
    {"per", "user, group, cgroup or program"},
    {"request", "a share from 0% to 100%"},
    {"limit", "a share from 1% to 100%"},
    {"may-request", "a share from 0% to 100%"},
    {"weight", "a number from 1 to 10000"},
    {"may-weight", "a number from 1 to 10000"},
    {"class", DV_CLASS_WORDS},
    {"may-class", DV_CLASS_WORDS},
    {"members-may-change", "yes or no"},
};

const char *dvd_config_hint(const char *key)
{
    for (size_t i = 0; i < COUNT(hints); i++)
        if (strcmp(hints[i].key, key) == 0)
            return hints[i].expected;
    return NULL;
}

static void list_keys(char *list, size_t bytes, const cyaml_schema_field_t *fields)
{
    size_t used = 0;

    list[0] = '\0';
    for (; fields->key && used < bytes; fields++)
        used += (size_t)snprintf(list + used, bytes - used, "%s%s", used ? ", " : "", fields->key);
}

/* libcyaml's messages begin with the error; the rest, if any, is the key or value. */
static const char *rest_after(const char *what, const char *beginning)
{
    size_t length = strlen(beginning);
    return strncmp(what, beginning, length) == 0 ? what + length : NULL;
}

/* Describes the error in plain words, and sets the key whose expected values are shown. */
static void put_plainly(struct dv_yaml_complaint *complaint, char *text, size_t bytes)
{
    const char *what = complaint->what;
    const char *rest;

    if ((rest = rest_after(what, "Invalid ENUM value: ")))
        snprintf(text, bytes, "'%s' cannot be '%.60s'", complaint->keys[0], rest);
    else if ((rest = rest_after(what, "Invalid uint64_t value: "))) /* in quotes already */
        snprintf(text, bytes, "'%s' cannot be %.60s", complaint->keys[0], rest);
    else if ((rest = rest_after(what, "Missing required mapping field: "))) {
        snprintf(text, bytes, "a device rule lacks '%.60s'", rest);
        snprintf(complaint->keys[0], sizeof complaint->keys[0], "%.63s", rest);
    } else if (rest_after(what, "STRING length > "))
        snprintf(text, bytes, "the value of '%s' is too long", complaint->keys[0]);
    else if (rest_after(what, "STRING length < "))
        snprintf(text, bytes, "the value of '%s' is empty", complaint->keys[0]);
    else if (rest_after(what, "Excessive entries"))
        snprintf(text, bytes, "the list has too many entries");
    else if (rest_after(what, "Insufficient entries"))
        snprintf(text, bytes, "the list has too few entries");
    else if (rest_after(what, "Expecting ") && complaint->keys[0][0])
        snprintf(text, bytes, "'%s' has a value of the wrong kind", complaint->keys[0]);
    else if (rest_after(what, "Expecting MAPPING"))
        snprintf(text, bytes, "this is not a list of keys with values");
    else
        snprintf(text, bytes, "%s", what);
}

/* The part of the file that a complaint is about, innermost first. */
static const struct {
    const char *key, *words;
    const cyaml_schema_field_t *fields;
} parts[] = {
    {"deadlines", " among the deadlines", dvd_deadline_fields},
    {"sandbox", " in a device's sandbox", dvd_sandbox_fields},
    {"devices", " in a device rule", dvd_device_fields},
    {"tenants", " in a tenant rule", dvd_tenant_fields},
};

void dvd_config_explain(struct dv_yaml_complaint *complaint, const char *path, const char *data, char *error,
                        size_t error_bytes)
{
    int line = complaint->line ? complaint->line : 1;
    const char *rest;
    char text[512];

    if ((rest = rest_after(complaint->what, "libyaml: "))) {
        snprintf(error, error_bytes, "%s:%d: this is not YAML: %s", path, dv_yaml_find_syntax_error(data), rest);
        return;
    }
    if ((rest = rest_after(complaint->what, "Unexpected key: "))) {
        /* libcyaml gives the line where it began to look for a key, not the key's own */
        size_t part = 0;
        while (part < COUNT(parts) && !dv_yaml_is_in(complaint, parts[part].key))
            part++;
        list_keys(text, sizeof text, part < COUNT(parts) ? parts[part].fields : dvd_file_fields);
        snprintf(error, error_bytes, "%s:%d: unknown key '%s'%s; expected one of: %s", path,
                 dv_yaml_find_line(data, rest, line), rest, part < COUNT(parts) ? parts[part].words : "", text);
        return;
    }
    if ((rest = rest_after(complaint->what, "Mapping field already seen: "))) {
        snprintf(error, error_bytes, "%s:%d: '%s' is given twice", path, dv_yaml_find_line(data, rest, line + 1), rest);
        return;
    }
    put_plainly(complaint, text, sizeof text);
    const char *hint = dvd_config_hint(complaint->keys[0]);
    snprintf(error, error_bytes, "%s:%d: %s%s%s", path, line, text, hint ? "; expected " : "", hint ? hint : "");
}

int dvd_config_wrong(const struct dvd_position *position, const char *key, const char *value)
{
    const char *hint = dvd_config_hint(key);

    snprintf(position->error, position->error_bytes, "%s:%d: %s is '%s'; expected %s", position->path,
             dv_yaml_find_line(position->data, key, position->line), key, value, hint ? hint : "something else");
    return -EINVAL;
}
