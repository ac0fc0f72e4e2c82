/* Reading the configuration (see config.h): libcyaml reads the file into structures by a schema.
 * The rest is checked here. */
#include "src/arbiter/config/config.h"

#include <cyaml/cyaml.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "src/arbiter/limits.h"
#include "src/base/cleanup.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/yaml_complaint.h"
#include "src/wire/lease/memory.h"
#include "src/wire/session/handshake.h"
#include "src/wire/session/shm.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define GIB (UINT64_C(1) << 30)

/* libcyaml takes any word for true where a boolean is expected, so yes and no are enumerations. */
static const cyaml_strval_t yes_no[] = {{"no", 0}, {"yes", 1}, {"false", 0}, {"true", 1}};
static const cyaml_strval_t swap_words[] = {{"yes", 0}, {"no", 1}, {"true", 0}, {"false", 1}};
/* of unified, scrub, copy-engine and pinned, which have the same numbers */
static const cyaml_strval_t auto_words[] = {{"auto", DV_UNIFIED_AUTO},
                                            {"yes", DV_UNIFIED_YES},
                                            {"no", DV_UNIFIED_NO},
                                            {"true", DV_UNIFIED_YES},
                                            {"false", DV_UNIFIED_NO}};
static const cyaml_strval_t present_as_words[] = {{"as-is", DV_PRESENT_AS_IS},
                                                  {"cpu", DV_PRESENT_AS_CPU},
                                                  {"gpu", DV_PRESENT_AS_GPU},
                                                  {"accelerator", DV_PRESENT_AS_ACCELERATOR}};

static const cyaml_strval_t policy_words[] = {{"none", DV_POLICY_NONE},
                                              {"elastic", DV_POLICY_ELASTIC},
                                              {"fair", DV_POLICY_FAIR},
                                              {"fifo", DV_POLICY_FIFO},
                                              {"band", DV_POLICY_BAND}};

const char *dvd_config_policy_word(int policy)
{
    for (size_t i = 0; i < COUNT(policy_words); i++)
        if (policy_words[i].val == policy)
            return policy_words[i].str;
    return "none";
}

#define OPTIONAL_ENUM (CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT)
#define OPTIONAL_POINTER (CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER)

static const cyaml_schema_value_t path_schema = {CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 1, DV_MAX_PATH - 1)};
static const cyaml_schema_value_t word_schema = {CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 1, 64)};

static const cyaml_schema_field_t sandbox_fields[] = {
    CYAML_FIELD_SEQUENCE_COUNT("paths", OPTIONAL_POINTER, struct dvd_sandbox_rule, paths, paths_count, &path_schema, 0,
                               DV_MAX_SANDBOX_PATHS),
    CYAML_FIELD_SEQUENCE_COUNT("groups", OPTIONAL_POINTER, struct dvd_sandbox_rule, groups, groups_count, &word_schema,
                               0, DV_SANDBOX_GROUPS_MAX),
    CYAML_FIELD_SEQUENCE_COUNT("calls", OPTIONAL_POINTER, struct dvd_sandbox_rule, calls, calls_count, &word_schema, 0,
                               DV_MAX_SANDBOX_CALLS),
    CYAML_FIELD_SEQUENCE_COUNT("ioctls", OPTIONAL_POINTER, struct dvd_sandbox_rule, ioctls, ioctls_count, &word_schema,
                               1, DV_MAX_SANDBOX_IOCTLS),
    CYAML_FIELD_END};

static const cyaml_schema_field_t device_fields[] = {
    CYAML_FIELD_STRING_PTR("match", CYAML_FLAG_POINTER, struct dvd_device_rule, match, 1, DV_MAX_DEVICE_NAME - 1),
    CYAML_FIELD_STRING_PTR("name", OPTIONAL_POINTER, struct dvd_device_rule, name, 1, DV_MAX_DEVICE_NAME - 1),
    CYAML_FIELD_ENUM("unified", OPTIONAL_ENUM, struct dvd_device_rule, unified, auto_words, COUNT(auto_words)),
    CYAML_FIELD_ENUM("present-as", OPTIONAL_ENUM, struct dvd_device_rule, present_as, present_as_words,
                     COUNT(present_as_words)),
    CYAML_FIELD_ENUM("policy", OPTIONAL_ENUM, struct dvd_device_rule, policy, policy_words, COUNT(policy_words)),
    CYAML_FIELD_UINT_PTR("slots", OPTIONAL_POINTER, struct dvd_device_rule, slots),
    CYAML_FIELD_ENUM("scrub", OPTIONAL_ENUM, struct dvd_device_rule, scrub, auto_words, COUNT(auto_words)),
    CYAML_FIELD_ENUM("copy-engine", OPTIONAL_ENUM, struct dvd_device_rule, copy_engine, auto_words, COUNT(auto_words)),
    CYAML_FIELD_ENUM("pinned", OPTIONAL_ENUM, struct dvd_device_rule, pinned, auto_words, COUNT(auto_words)),
    CYAML_FIELD_ENUM("swap", OPTIONAL_ENUM, struct dvd_device_rule, no_swap, swap_words, COUNT(swap_words)),
    CYAML_FIELD_STRING_PTR("swap-part", OPTIONAL_POINTER, struct dvd_device_rule, swap_part, 1, 16),
    CYAML_FIELD_STRING_PTR("slice-max", OPTIONAL_POINTER, struct dvd_device_rule, slice_max, 1, 16),
    CYAML_FIELD_STRING_PTR("room-patience", OPTIONAL_POINTER, struct dvd_device_rule, room_patience, 1, 16),
    CYAML_FIELD_STRING_PTR("capacity", OPTIONAL_POINTER, struct dvd_device_rule, capacity, 1, 32),
    CYAML_FIELD_STRING_PTR("per-context", OPTIONAL_POINTER, struct dvd_device_rule, per_context, 1, 32),
    CYAML_FIELD_STRING_PTR("slice", OPTIONAL_POINTER, struct dvd_device_rule, slice, 1, 16),
    CYAML_FIELD_ENUM("hidden", OPTIONAL_ENUM, struct dvd_device_rule, hidden, yes_no, COUNT(yes_no)),
    CYAML_FIELD_MAPPING_PTR("sandbox", OPTIONAL_POINTER, struct dvd_device_rule, sandbox, sandbox_fields),
    CYAML_FIELD_END};
static const cyaml_strval_t order_words[] = {{"free", DV_ORDER_FREE}, {"fixed", DV_ORDER_FIXED}};
static const cyaml_strval_t per_words[] = {
    {"user", DV_PER_USER}, {"group", DV_PER_GROUP}, {"cgroup", DV_PER_CGROUP}, {"program", DV_PER_PROGRAM}};
static const cyaml_strval_t class_words[] = {{"latency", DV_CLASS_LATENCY + 1},
                                             {"standard", DV_CLASS_STANDARD + 1},
                                             {"batch", DV_CLASS_BATCH + 1},
                                             {"idle", DV_CLASS_IDLE + 1}};
#define SHARE_TEXT_MAX 16
#define CAPACITY_LEAST (UINT64_C(4) << 10)

static const cyaml_schema_field_t tenant_fields[] = {
    CYAML_FIELD_STRING_PTR("user", OPTIONAL_POINTER, struct dvd_tenant_rule, user, 1, 64),
    CYAML_FIELD_STRING_PTR("group", OPTIONAL_POINTER, struct dvd_tenant_rule, group, 1, 64),
    CYAML_FIELD_STRING_PTR("cgroup", OPTIONAL_POINTER, struct dvd_tenant_rule, cgroup, 1, DV_MAX_PATH - 1),
    CYAML_FIELD_STRING_PTR("name", OPTIONAL_POINTER, struct dvd_tenant_rule, name, 1, DV_MAX_TENANT_NAME - 1),
    CYAML_FIELD_ENUM("refuse", OPTIONAL_ENUM, struct dvd_tenant_rule, refuse, yes_no, COUNT(yes_no)),
    CYAML_FIELD_ENUM("per", OPTIONAL_ENUM, struct dvd_tenant_rule, per, per_words, COUNT(per_words)),
    CYAML_FIELD_STRING_PTR("request", OPTIONAL_POINTER, struct dvd_tenant_rule, request, 1, SHARE_TEXT_MAX),
    CYAML_FIELD_STRING_PTR("limit", OPTIONAL_POINTER, struct dvd_tenant_rule, limit, 1, SHARE_TEXT_MAX),
    CYAML_FIELD_STRING_PTR("memory", OPTIONAL_POINTER, struct dvd_tenant_rule, memory, 1, 32),
    CYAML_FIELD_STRING_PTR("memory-request", OPTIONAL_POINTER, struct dvd_tenant_rule, memory_request, 1, 32),
    CYAML_FIELD_STRING_PTR("host-memory", OPTIONAL_POINTER, struct dvd_tenant_rule, host_memory, 1, 32),
    CYAML_FIELD_UINT_PTR("weight", OPTIONAL_POINTER, struct dvd_tenant_rule, weight),
    CYAML_FIELD_ENUM("class", OPTIONAL_ENUM, struct dvd_tenant_rule, class, class_words, COUNT(class_words)),
    CYAML_FIELD_STRING_PTR("may-request", OPTIONAL_POINTER, struct dvd_tenant_rule, may_request, 1, SHARE_TEXT_MAX),
    CYAML_FIELD_UINT_PTR("may-weight", OPTIONAL_POINTER, struct dvd_tenant_rule, may_weight),
    CYAML_FIELD_ENUM("may-class", OPTIONAL_ENUM, struct dvd_tenant_rule, may_class, class_words, COUNT(class_words)),
    CYAML_FIELD_END};
static const cyaml_schema_value_t tenant_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct dvd_tenant_rule, tenant_fields)};
static const cyaml_schema_value_t device_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct dvd_device_rule, device_fields)};
static const cyaml_strval_t sandbox_words[] = {{"yes", DV_SANDBOX_YES},
                                               {"no", DV_SANDBOX_NO},
                                               {"true", DV_SANDBOX_YES},
                                               {"false", DV_SANDBOX_NO},
                                               {"if-possible", DV_SANDBOX_IF_POSSIBLE}};

static const cyaml_schema_field_t deadline_fields[] = {
    CYAML_FIELD_STRING_PTR("latency", OPTIONAL_POINTER, struct dvd_deadlines, latency, 1, 16),
    CYAML_FIELD_STRING_PTR("standard", OPTIONAL_POINTER, struct dvd_deadlines, standard, 1, 16),
    CYAML_FIELD_STRING_PTR("batch", OPTIONAL_POINTER, struct dvd_deadlines, batch, 1, 16),
    CYAML_FIELD_STRING_PTR("idle", OPTIONAL_POINTER, struct dvd_deadlines, idle, 1, 16), CYAML_FIELD_END};

static const cyaml_schema_field_t file_fields[] = {
    CYAML_FIELD_SEQUENCE_COUNT("devices", OPTIONAL_POINTER, struct dvd_config_file, devices, devices_count,
                               &device_schema, 0, DV_MAX_DEVICE_RULES),
    CYAML_FIELD_SEQUENCE_COUNT("tenants", OPTIONAL_POINTER, struct dvd_config_file, tenants, tenants_count,
                               &tenant_schema, 0, DV_MAX_TENANT_RULES),
    CYAML_FIELD_STRING_PTR("arena", OPTIONAL_POINTER, struct dvd_config_file, arena, 1, 32),
    CYAML_FIELD_SEQUENCE_COUNT("vendors", OPTIONAL_POINTER, struct dvd_config_file, vendors, vendors_count,
                               &path_schema, 1, DV_MAX_VENDORS),
    CYAML_FIELD_STRING_PTR("operator-group", OPTIONAL_POINTER, struct dvd_config_file, operator_group, 1, 64),
    CYAML_FIELD_STRING_PTR("session-group", OPTIONAL_POINTER, struct dvd_config_file, session_group, 1, 64),
    CYAML_FIELD_ENUM("tenants-see-own", OPTIONAL_ENUM, struct dvd_config_file, tenants_see_own, yes_no, COUNT(yes_no)),
    CYAML_FIELD_UINT_PTR("sessions-per-user", OPTIONAL_POINTER, struct dvd_config_file, sessions_per_user),
    CYAML_FIELD_ENUM("device-order", OPTIONAL_ENUM, struct dvd_config_file, device_order, order_words,
                     COUNT(order_words)),
    CYAML_FIELD_ENUM("sandbox", OPTIONAL_ENUM, struct dvd_config_file, sandbox, sandbox_words, COUNT(sandbox_words)),
    CYAML_FIELD_ENUM("allow-unsandboxed-workers", OPTIONAL_ENUM, struct dvd_config_file, allow_unsandboxed, yes_no,
                     COUNT(yes_no)),
    CYAML_FIELD_MAPPING_PTR("deadlines", OPTIONAL_POINTER, struct dvd_config_file, deadlines, deadline_fields),
    CYAML_FIELD_STRING_PTR("lease-sessions", OPTIONAL_POINTER, struct dvd_config_file, lease_sessions, 1, 64),
    CYAML_FIELD_STRING_PTR("cache-size", OPTIONAL_POINTER, struct dvd_config_file, cache_size, 1, 32),
    CYAML_FIELD_STRING_PTR("caches-size", OPTIONAL_POINTER, struct dvd_config_file, caches_size, 1, 32),
    CYAML_FIELD_STRING_PTR("restart-within", OPTIONAL_POINTER, struct dvd_config_file, restart_within, 1, 16),
    CYAML_FIELD_STRING_PTR("worker-memory", OPTIONAL_POINTER, struct dvd_config_file, worker_memory, 1, 32),
    CYAML_FIELD_UINT_PTR("worker-processes", OPTIONAL_POINTER, struct dvd_config_file, worker_processes),
    CYAML_FIELD_STRING_PTR("worker-cgroup", OPTIONAL_POINTER, struct dvd_config_file, worker_cgroup, 1,
                           DV_MAX_PATH - 1),
    CYAML_FIELD_STRING_PTR("worker-users", OPTIONAL_POINTER, struct dvd_config_file, worker_users, 1, 32),
    CYAML_FIELD_END};
static const cyaml_schema_value_t file_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct dvd_config_file, file_fields)};

/* The expected values, by key. */
static const struct {
    const char *key;
    const char *expected;
} hints[] = {
    {"devices", "a list of rules, each starting with \"- match: PATTERN\", at most 256"},
    {"match", "a pattern for device names of at most 127 characters, such as \"*\", or a number, UUID or PCI address"},
    {"name", "a device name of at most 127 characters"},
    {"unified", "yes, no or auto"},
    {"present-as", "as-is, cpu, gpu or accelerator"},
    {"policy", "none, elastic, fair, fifo or band"},
    {"slots", "a number from 1 to 64"},
    {"slice", "learned, or a time from 100us to 10s, such as 10ms"},
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
    {"cgroup", "a pattern for cgroup paths, such as \"/slurm/*\""},
    {"per", "user, group, cgroup or program"},
    {"request", "a share from 0% to 100%"},
    {"limit", "a share from 1% to 100%"},
    {"may-request", "a share from 0% to 100%"},
    {"weight", "a number from 1 to 10000"},
    {"may-weight", "a number from 1 to 10000"},
    {"class", DV_CLASS_WORDS},
    {"may-class", DV_CLASS_WORDS},
};

static const char *hint_for(const char *key)
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

/* Says in plain words what is wrong, and sets the key whose hint helps. */
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
    {"deadlines", " among the deadlines", deadline_fields},
    {"sandbox", " in a device's sandbox", sandbox_fields},
    {"devices", " in a device rule", device_fields},
    {"tenants", " in a tenant rule", tenant_fields},
};

static void explain(struct dv_yaml_complaint *complaint, const char *path, const char *data, char *error,
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
        list_keys(text, sizeof text, part < COUNT(parts) ? parts[part].fields : file_fields);
        snprintf(error, error_bytes, "%s:%d: unknown key '%s'%s; expected one of: %s", path,
                 dv_yaml_find_line(data, rest, line), rest, part < COUNT(parts) ? parts[part].words : "", text);
        return;
    }
    if ((rest = rest_after(complaint->what, "Mapping field already seen: "))) {
        snprintf(error, error_bytes, "%s:%d: '%s' is given twice", path, dv_yaml_find_line(data, rest, line + 1), rest);
        return;
    }
    put_plainly(complaint, text, sizeof text);
    const char *hint = hint_for(complaint->keys[0]);
    snprintf(error, error_bytes, "%s:%d: %s%s%s", path, line, text, hint ? "; expected " : "", hint ? hint : "");
}

static uint64_t machine_memory(void)
{
    struct sysinfo info;

    return sysinfo(&info) == 0 ? (uint64_t)info.totalram * info.mem_unit : 8 * GIB;
}

static uint64_t default_arena(void)
{
    uint64_t ram = machine_memory();

    /* Sparse memory costs nothing until it is touched, so it can be more than the machine has. */
    uint64_t bytes = (2 * ram + GIB - 1) / GIB * GIB;
    if (bytes < DV_SHM_BYTES_MIN)
        bytes = GIB;
    return bytes > DV_SHM_BYTES_MAX ? DV_SHM_BYTES_MAX : bytes;
}

/* A worker of a CPU device has a thread for each processor. */
static uint64_t default_processes(unsigned sessions)
{
    uint64_t count = (uint64_t)sessions * ((uint64_t)get_nprocs() + DV_WORKER_PROCESSES_BESIDE);

    if (count < DV_WORKER_PROCESSES_USUAL)
        return DV_WORKER_PROCESSES_USUAL;
    return count > DV_WORKER_PROCESSES_MAX ? DV_WORKER_PROCESSES_MAX : count;
}

/* For absent keys. */
static void fill_defaults(struct dvd_config *config)
{
    if (!config->worker_memory_bytes)
        config->worker_memory_bytes = machine_memory() / 4 * 3;
    if (!config->worker_processes)
        config->worker_processes = default_processes(config->sessions_per_user);
}

static int check_arena(struct dvd_config *config, const char *path, const char *data, char *error, size_t error_bytes)
{
    const char *text = config->file->arena;
    char least[32], most[32];

    int status = dv_text_parse_size(text, &config->arena_bytes);
    if (status == 0 && config->arena_bytes <= DV_SHM_BYTES_MAX)
        config->arena_bytes = (config->arena_bytes + DV_PAGE - 1) / DV_PAGE * DV_PAGE;
    if (status == 0 && config->arena_bytes >= DV_SHM_BYTES_MIN && config->arena_bytes <= DV_SHM_BYTES_MAX)
        return 0;
    dv_text_format_size(least, sizeof least, DV_SHM_BYTES_MIN);
    dv_text_format_size(most, sizeof most, DV_SHM_BYTES_MAX);
    snprintf(error, error_bytes, "%s:%d: arena is '%s'; expected a size from %s to %s, such as 16GiB", path,
             dv_yaml_find_line(data, "arena", 1), text, least, most);
    return -EINVAL;
}

static int find_group(const char *key, const char *name, const char *path, const char *data, gid_t *gid, char *error,
                      size_t error_bytes)
{
    const struct group *group = getgrnam(name);

    if (!group) {
        snprintf(error, error_bytes, "%s:%d: %s: there is no group '%s' on this machine; expected %s", path,
                 dv_yaml_find_line(data, key, 1), key, name, hint_for(key));
        return -EINVAL;
    }
    *gid = group->gr_gid;
    return 0;
}

static int check_groups(struct dvd_config *config, const char *path, const char *data, char *error, size_t error_bytes)
{
    const struct dvd_config_file *file = config->file;
    int status = 0;

    if (file->operator_group) {
        status =
            find_group("operator-group", file->operator_group, path, data, &config->operator_group, error, error_bytes);
        config->has_operator_group = status == 0;
    }
    if (status < 0 || !file->session_group)
        return status;
    if (strcmp(file->session_group, DV_CONFIG_EVERYBODY) == 0) {
        config->sessions_for = DV_SESSIONS_FOR_ALL;
        return 0;
    }
    config->sessions_for = DV_SESSIONS_FOR_GROUP;
    return find_group("session-group", file->session_group, path, data, &config->session_group, error, error_bytes);
}

/* ---- tenants ---- */

/* Where in the file a wrong value is. */
struct position {
    const char *path, *data;
    int line; /* from here on */
    char *error;
    size_t error_bytes;
};

static int wrong(const struct position *position, const char *key, const char *value)
{
    const char *hint = hint_for(key);

    snprintf(position->error, position->error_bytes, "%s:%d: %s is '%s'; expected %s", position->path,
             dv_yaml_find_line(position->data, key, position->line), key, value, hint ? hint : "something else");
    return -EINVAL;
}

static int read_share(const struct position *position, const char *key, const char *text, uint32_t least, uint32_t *ppm)
{
    if (!text)
        return 0;
    if (dv_text_parse_share(text, ppm) < 0 || *ppm < least)
        return wrong(position, key, text);
    return 0;
}

static int read_weight(const struct position *position, const char *key, const uint64_t *number, uint32_t *weight)
{
    char text[24];

    if (!number)
        return 0;
    snprintf(text, sizeof text, "%llu", (unsigned long long)*number);
    if (*number < 1 || *number > DV_WEIGHT_MAX)
        return wrong(position, key, text);
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

static int find_people(const struct position *position, struct dvd_tenant_rule *rule)
{
    const struct passwd *user = rule->user ? getpwnam(rule->user) : NULL;
    const struct group *group = rule->group ? getgrnam(rule->group) : NULL;

    if (user)
        rule->uid = user->pw_uid;
    else if (rule->user && !read_number(rule->user, &rule->uid))
        return wrong(position, "user", rule->user);
    if (group)
        rule->gid = group->gr_gid;
    else if (rule->group && !read_number(rule->group, &rule->gid))
        return wrong(position, "group", rule->group);
    return 0;
}

static int read_memory(const struct position *position, const char *key, const char *text, struct dvd_memory_size *size)
{
    if (!text)
        return 0;
    if (strchr(text, '%')
            ? dv_text_parse_share(text, &size->ppm) == 0 && size->ppm > 0
            : dv_text_parse_size(text, &size->bytes) == 0 && size->bytes > 0 && size->bytes <= DV_MEMORY_BYTES_MAX)
        return 0;
    return wrong(position, key, text);
}

/* The names that divvyd gives tenants itself begin with a slash, or a word and a colon, see name_tenant in
 * identity.c, and a number is a session. A configured name like one of those would be ambiguous. Without a
 * pattern, users who can make cgroups could make tenants. */
static int check_identity(const struct position *position, const struct dvd_tenant_rule *rule)
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
    return 0;
}

static int check_tenant(const struct position *position, struct dvd_tenant_rule *rule)
{
    struct dvd_tenant_terms *terms = &rule->terms;

    *terms = (struct dvd_tenant_terms){
        .share = {.limit_ppm = DV_PPM,
                  .weight = 1,
                  .class = rule->class ? (enum dv_class)(rule->class - 1) : DV_CLASS_STANDARD}};
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
        status = wrong(position, "host-memory", rule->host_memory);
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

static int check_memory(struct dvd_config *config, const char *path, const char *data, char *error, size_t error_bytes)
{
    struct position position = {.path = path, .data = data, .error = error, .error_bytes = error_bytes};

    for (uint64_t i = 0; i < config->file->devices_count; i++) {
        struct dvd_device_rule *rule = &config->file->devices[i];
        position.line = dv_yaml_find_line(data, rule->match, position.line + 1);
        rule->matches = dvd_device_match_parse(rule->match);
        if (rule->capacity && (dv_text_parse_size(rule->capacity, &rule->capacity_bytes) < 0 ||
                               rule->capacity_bytes < CAPACITY_LEAST || rule->capacity_bytes > DV_MEMORY_BYTES_MAX))
            return wrong(&position, "capacity", rule->capacity);
        if (rule->swap_part && (dv_text_parse_share(rule->swap_part, &rule->swap_part_ppm) < 0 ||
                                rule->swap_part_ppm < DV_PPM / 100 || rule->swap_part_ppm > DV_PPM / 2))
            return wrong(&position, "swap-part", rule->swap_part);
        if (rule->slice_max && (dv_text_parse_time(rule->slice_max, &rule->moved_slice_max_ns) < 0 ||
                                rule->moved_slice_max_ns < DV_MOVED_SLICE_LIMIT_MIN_NS ||
                                rule->moved_slice_max_ns > DV_MOVED_SLICE_LIMIT_MAX_NS))
            return wrong(&position, "slice-max", rule->slice_max);
        if (rule->room_patience &&
            (dv_text_parse_time(rule->room_patience, &rule->room_patience_ns) < 0 ||
             rule->room_patience_ns < DV_DEADLINE_MIN_NS || rule->room_patience_ns > DV_DEADLINE_MAX_NS))
            return wrong(&position, "room-patience", rule->room_patience);
        if (rule->per_context && (dv_text_parse_size(rule->per_context, &rule->per_context_bytes) < 0 ||
                                  rule->per_context_bytes > DV_MEMORY_BYTES_MAX))
            return wrong(&position, "per-context", rule->per_context);
    }
    return 0;
}

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

static int check_ioctls(const struct position *position, struct dvd_sandbox_rule *rule)
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
            return wrong(position, "ioctls", word);
    }
    for (uint64_t i = 0; rule->ioctls_count == 0 && i < rule->paths_count; i++) {
        if (add_known_requests(rule, rule->paths[i]))
            continue;
        snprintf(position->error, position->error_bytes,
                 "%s:%d: it is not known which ioctl requests the driver of '%s' makes; name them with "
                 "`ioctls` beside `paths`: %s",
                 position->path, dv_yaml_find_line(position->data, rule->paths[i], position->line), rule->paths[i],
                 hint_for("ioctls"));
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

static int check_sandbox(const struct position *position, struct dvd_sandbox_rule *rule)
{
    for (uint64_t i = 0; i < rule->calls_count; i++)
        if (reaches_others(rule->calls[i]))
            return wrong(position, "calls", rule->calls[i]);
    for (uint64_t i = 0; i < rule->paths_count; i++)
        if (rule->paths[i][0] != '/' || strstr(rule->paths[i], "/.."))
            return wrong(position, "paths", rule->paths[i]);
    for (uint64_t i = 0; i < rule->groups_count; i++) {
        const struct group *group = getgrnam(rule->groups[i]);
        if (group)
            rule->gids[i] = group->gr_gid;
        else if (!read_number(rule->groups[i], &rule->gids[i]))
            return wrong(position, "groups", rule->groups[i]);
    }
    return check_ioctls(position, rule);
}

static int check_sandboxes(struct dvd_config *config, const char *path, const char *data, char *error,
                           size_t error_bytes)
{
    struct position position = {.path = path, .data = data, .error = error, .error_bytes = error_bytes};
    const struct dvd_config_file *file = config->file;
    unsigned long first, last;
    char rest;

    config->sandbox = file->sandbox;
    if (file->worker_memory &&
        (dv_text_parse_size(file->worker_memory, &config->worker_memory_bytes) < 0 ||
         config->worker_memory_bytes < DV_WORKER_MEMORY_MIN || config->worker_memory_bytes > DV_MEMORY_BYTES_MAX))
        return wrong(&position, "worker-memory", file->worker_memory);
    if (file->worker_processes &&
        (*file->worker_processes < DV_WORKER_PROCESSES_MIN || *file->worker_processes > DV_WORKER_PROCESSES_MAX)) {
        char text[24];
        snprintf(text, sizeof text, "%llu", (unsigned long long)*file->worker_processes);
        return wrong(&position, "worker-processes", text);
    }
    if (file->worker_processes)
        config->worker_processes = *file->worker_processes;
    if (file->worker_cgroup && strstr(file->worker_cgroup, ".."))
        return wrong(&position, "worker-cgroup", file->worker_cgroup);
    config->tenants_cgroup = file->worker_cgroup && strcmp(file->worker_cgroup, "tenant") == 0;
    if (config->tenants_cgroup && (file->worker_memory || file->worker_processes)) {
        snprintf(error, error_bytes,
                 "%s:%d: with 'worker-cgroup: tenant' the program's own cgroup limits its worker; expected no "
                 "worker-memory and no worker-processes",
                 path, dv_yaml_find_line(data, "worker-cgroup", 1));
        return -EINVAL;
    }
    if (file->cache_size && (dv_text_parse_size(file->cache_size, &config->cache_bytes) < 0 ||
                             config->cache_bytes < DV_CACHE_BYTES_MIN || config->cache_bytes > DV_MEMORY_BYTES_MAX))
        return wrong(&position, "cache-size", file->cache_size);
    if (file->caches_size && (dv_text_parse_size(file->caches_size, &config->caches_bytes) < 0 ||
                              config->caches_bytes < config->cache_bytes || config->caches_bytes > DV_MEMORY_BYTES_MAX))
        return wrong(&position, "caches-size", file->caches_size);
    if (file->worker_users) {
        if (sscanf(file->worker_users, "%10lu-%10lu%c", &first, &last, &rest) != 2 || first < 1 || last <= first ||
            last >= UINT32_MAX)
            return wrong(&position, "worker-users", file->worker_users);
        config->worker_uid_first = (uid_t)first;
        config->worker_uid_last = (uid_t)last;
    }
    for (uint64_t i = 0; i < file->devices_count; i++) {
        if (!file->devices[i].sandbox)
            continue;
        position.line = dv_yaml_find_line(data, "sandbox", position.line + 1);
        int status = check_sandbox(&position, file->devices[i].sandbox);
        if (status < 0)
            return status;
    }
    return 0;
}

static int check_deadlines(struct dvd_config *config, const char *path, const char *data, char *error,
                           size_t error_bytes)
{
    const struct dvd_deadlines *given = config->file->deadlines;
    struct position position = {.path = path,
                                .data = data,
                                .line = dv_yaml_find_line(data, "deadlines", 1),
                                .error = error,
                                .error_bytes = error_bytes};
    const char *const texts[DV_CLASS_COUNT] = {[DV_CLASS_LATENCY] = given ? given->latency : NULL,
                                               [DV_CLASS_STANDARD] = given ? given->standard : NULL,
                                               [DV_CLASS_BATCH] = given ? given->batch : NULL,
                                               [DV_CLASS_IDLE] = given ? given->idle : NULL};

    for (int i = 0; i < DV_CLASS_COUNT; i++)
        if (texts[i] && strcmp(texts[i], "none") == 0)
            config->deadline_ns[i] = DV_DEADLINE_NONE;
        else if (texts[i] &&
                 (dv_text_parse_time(texts[i], &config->deadline_ns[i]) < 0 ||
                  config->deadline_ns[i] < DV_DEADLINE_MIN_NS || config->deadline_ns[i] > DV_DEADLINE_MAX_NS))
            return wrong(&position, dv_class_word((enum dv_class)i), texts[i]);
    return 0;
}

static int check_lease_sessions(struct dvd_config *config, const char *path, const char *data, char *error,
                                size_t error_bytes)
{
    const char *who = config->file->lease_sessions;

    if (!who || strcmp(who, "yes") == 0 || strcmp(who, "true") == 0)
        return 0;
    if (strcmp(who, "no") == 0 || strcmp(who, "false") == 0) {
        config->lease_sessions = DV_LEASE_SESSIONS_NONE;
        return 0;
    }
    config->lease_sessions = DV_LEASE_SESSIONS_OF_GROUP;
    return find_group("lease-sessions", who, path, data, &config->lease_group, error, error_bytes);
}

static int check_restart(struct dvd_config *config, const char *path, const char *data, char *error, size_t error_bytes)
{
    struct position position = {.path = path, .data = data, .error = error, .error_bytes = error_bytes};
    const char *text = config->file->restart_within;

    if (text && (dv_text_parse_time(text, &config->restart_ns) < 0 || config->restart_ns < DV_RESTART_MIN_NS ||
                 config->restart_ns > DV_RESTART_MAX_NS))
        return wrong(&position, "restart-within", text);
    return 0;
}

static int check_slices(struct dvd_config *config, const char *path, const char *data, char *error, size_t error_bytes)
{
    struct position position = {.path = path, .data = data, .error = error, .error_bytes = error_bytes};

    for (uint64_t i = 0; i < config->file->devices_count; i++) {
        struct dvd_device_rule *rule = &config->file->devices[i];
        if (!rule->slice)
            continue;
        position.line = dv_yaml_find_line(data, "slice", position.line + 1);
        if (strcmp(rule->slice, "learned") != 0 &&
            (dv_text_parse_time(rule->slice, &rule->slice_ns) < 0 || rule->slice_ns < DV_SLICE_FIXED_MIN_NS ||
             rule->slice_ns > DV_SLICE_FIXED_MAX_NS))
            return wrong(&position, "slice", rule->slice);
    }
    return 0;
}

static int check_tenants(struct dvd_config *config, const char *path, const char *data, char *error, size_t error_bytes)
{
    struct position position = {.path = path,
                                .data = data,
                                .line = dv_yaml_find_line(data, "tenants:", 1),
                                .error = error,
                                .error_bytes = error_bytes};

    for (uint64_t i = 0; i < config->file->tenants_count; i++) {
        position.line = dv_yaml_find_line(data, "- ", position.line + 1); /* of the rule, roughly */
        int status = check_tenant(&position, &config->file->tenants[i]);
        if (status < 0)
            return status;
    }
    return 0;
}

/* All that the schema cannot express. */
static int check_values(struct dvd_config *config, const char *path, const char *data, char *error, size_t error_bytes)
{
    struct dvd_config_file *file = config->file;

    if (file->arena && check_arena(config, path, data, error, error_bytes) < 0)
        return -EINVAL;
    if (check_groups(config, path, data, error, error_bytes) < 0 ||
        check_slices(config, path, data, error, error_bytes) < 0 ||
        check_memory(config, path, data, error, error_bytes) < 0 ||
        check_sandboxes(config, path, data, error, error_bytes) < 0 ||
        check_deadlines(config, path, data, error, error_bytes) < 0 ||
        check_lease_sessions(config, path, data, error, error_bytes) < 0 ||
        check_restart(config, path, data, error, error_bytes) < 0 ||
        check_tenants(config, path, data, error, error_bytes) < 0)
        return -EINVAL;
    for (uint64_t i = 0; i < file->vendors_count; i++) {
        if (file->vendors[i][0] == '/')
            continue;
        snprintf(error, error_bytes,
                 "%s:%d: vendors: '%s' is not an absolute path; expected the full path of an .icd "
                 "file",
                 path, dv_yaml_find_line(data, file->vendors[i], 1), file->vendors[i]);
        return -EINVAL;
    }
    int line = 0; /* of the rule's slots */
    for (uint64_t i = 0; i < file->devices_count; i++) {
        const uint64_t *slots = file->devices[i].slots;
        if (slots)
            line = dv_yaml_find_line(data, "slots", line + 1);
        if (!slots || (*slots >= 1 && *slots <= DV_MAX_SLOTS))
            continue;
        snprintf(error, error_bytes, "%s:%d: slots is %llu; expected a number from 1 to %d", path, line,
                 (unsigned long long)*slots, DV_MAX_SLOTS);
        return -EINVAL;
    }
    config->devices_fixed = file->device_order == DV_ORDER_FIXED;
    if (!file->sessions_per_user)
        return 0;
    if (*file->sessions_per_user < 1 || *file->sessions_per_user > DV_MAX_SESSIONS) {
        snprintf(error, error_bytes, "%s:%d: sessions-per-user is %llu; expected a number from 1 to %d", path,
                 dv_yaml_find_line(data, "sessions-per-user", 1), (unsigned long long)*file->sessions_per_user,
                 DV_MAX_SESSIONS);
        return -EINVAL;
    }
    config->sessions_per_user = (unsigned)*file->sessions_per_user;
    return 0;
}

/* The whole file as text. */
static int read_file(const char *path, char **data)
{
    DV_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;

    if (fd < 0 || fstat(fd, &info) < 0)
        return -errno;
    if (!S_ISREG(info.st_mode))
        return -EINVAL;
    if (info.st_size > DV_MAX_CONFIG_BYTES)
        return -EFBIG;
    DV_AUTO_FREE char *text = malloc((size_t)info.st_size + 1);
    if (!text)
        return -ENOMEM;
    ssize_t length = read(fd, text, (size_t)info.st_size);
    if (length < 0)
        return -errno;
    text[length] = '\0';
    *data = text;
    text = NULL;
    return 0;
}

int dvd_config_load(struct dvd_config *config, const char *path, bool must_exist, char *error, size_t error_bytes)
{
    DV_AUTO_FREE char *data = NULL;
    struct dv_yaml_complaint complaint = {0};
    const cyaml_config_t settings = dv_yaml_settings(&complaint);

    *config = (struct dvd_config){.arena_bytes = default_arena(),
                                  .sessions_per_user = DV_MAX_SESSIONS_PER_UID,
                                  .cache_bytes = DV_CACHE_BYTES_USUAL,
                                  .restart_ns = DV_RESTART_USUAL_NS,
                                  .worker_uid_first = DV_WORKER_UID_FIRST,
                                  .worker_uid_last = DV_WORKER_UID_LAST};
    fill_defaults(config);
    int status = path ? read_file(path, &data) : 0;
    if (!path || (status == -ENOENT && !must_exist))
        return 0;
    if (!data) {
        snprintf(error, error_bytes, "cannot read the configuration %s: %s", path,
                 status == -EINVAL ? "it is not a regular file" : strerror(-status));
        return status;
    }
    cyaml_err_t result = cyaml_load_data((const uint8_t *)data, strlen(data), &settings, &file_schema,
                                         (cyaml_data_t **)&config->file, NULL);
    if (result != CYAML_OK) {
        config->file = NULL;
        if (!complaint.what[0])
            snprintf(complaint.what, sizeof complaint.what, "%s", cyaml_strerror(result));
        explain(&complaint, path, data, error, error_bytes);
        return -EINVAL;
    }
    if (!config->file) /* nothing but comments */
        return 0;
    config->worker_memory_bytes = config->worker_processes = 0;
    status = check_values(config, path, data, error, error_bytes);
    fill_defaults(config);
    if (status < 0)
        dvd_config_fini(config);
    return status;
}

int dvd_config_set_mode(struct dvd_config *config, const char *path, bool of_user, uid_t owner, char *error,
                        size_t error_bytes)
{
    bool is_accepted = of_user || (config->file && config->file->allow_unsandboxed);

    config->of_user = of_user;
    config->owner = owner;
    if (config->sandbox == DV_SANDBOX_BY_MODE)
        config->sandbox = of_user ? DV_SANDBOX_IF_POSSIBLE : DV_SANDBOX_YES;
    if (is_accepted || config->sandbox == DV_SANDBOX_YES)
        return 0;
    snprintf(error, error_bytes,
             "%s: with `sandbox: %s` programs can run native code on this machine, restricted only by file "
             "permissions; leave out `sandbox`, or accept this with `allow-unsandboxed-workers: yes`",
             path, config->sandbox == DV_SANDBOX_NO ? "no" : "if-possible");
    return -EINVAL;
}

static dv_ns usual_deadline(enum dv_class class)
{
    return class == DV_CLASS_LATENCY ? DV_DEADLINE_USUAL_LATENCY_NS : DV_DEADLINE_USUAL_NS;
}

/* A user's own daemon has no deadline by default: that user can end the programs. */
struct dvd_ledger_terms dvd_config_ledger_terms(const struct dvd_config *config)
{
    struct dvd_ledger_terms terms = {.keeps_order = config->devices_fixed};

    for (int class = 0; class < DV_CLASS_COUNT; class ++) {
        dv_ns given = config->deadline_ns[class];
        terms.memory_deadline_ns[class] = given == DV_DEADLINE_NONE ? 0 : given;
        terms.deadline_ns[class] =
            given || config->of_user ? terms.memory_deadline_ns[class] : usual_deadline((enum dv_class) class);
    }
    return terms;
}

void dvd_config_fini(struct dvd_config *config)
{
    struct dv_yaml_complaint complaint = {0};
    const cyaml_config_t settings = dv_yaml_settings(&complaint);

    if (config->file)
        cyaml_free(&settings, &file_schema, config->file, 0);
    config->file = NULL;
}
