/* The schema of divvy.yaml, by which libcyaml reads the file into the structures of config.h. */
#include "src/arbiter/config/schema.h"

#include "src/arbiter/config/config.h"
#include "src/arbiter/limits.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

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

static const cyaml_strval_t slice_kernels_words[] = {{"auto", DV_SLICE_KERNELS_AUTO + 1},
                                                     {"never", DV_SLICE_KERNELS_NEVER + 1},
                                                     {"always", DV_SLICE_KERNELS_ALWAYS + 1}};

static const cyaml_strval_t policy_words[] = {{"none", DV_POLICY_NONE},
                                              {"elastic", DV_POLICY_ELASTIC},
                                              {"fair", DV_POLICY_FAIR},
                                              {"fifo", DV_POLICY_FIFO},
                                              {"band", DV_POLICY_BAND}};

const char *dvd_slice_kernels_word(enum dvd_slice_kernels mode)
{
    for (size_t i = 0; i < COUNT(slice_kernels_words); i++)
        if (slice_kernels_words[i].val == (int64_t)mode + 1)
            return slice_kernels_words[i].str;
    return "auto";
}

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

const cyaml_schema_field_t dvd_sandbox_fields[] = {
    CYAML_FIELD_SEQUENCE_COUNT("paths", OPTIONAL_POINTER, struct dvd_sandbox_rule, paths, paths_count, &path_schema, 0,
                               DV_MAX_SANDBOX_PATHS),
    CYAML_FIELD_SEQUENCE_COUNT("groups", OPTIONAL_POINTER, struct dvd_sandbox_rule, groups, groups_count, &word_schema,
                               0, DV_SANDBOX_GROUPS_MAX),
    CYAML_FIELD_SEQUENCE_COUNT("calls", OPTIONAL_POINTER, struct dvd_sandbox_rule, calls, calls_count, &word_schema, 0,
                               DV_MAX_SANDBOX_CALLS),
    CYAML_FIELD_SEQUENCE_COUNT("ioctls", OPTIONAL_POINTER, struct dvd_sandbox_rule, ioctls, ioctls_count, &word_schema,
                               1, DV_MAX_SANDBOX_IOCTLS),
    CYAML_FIELD_END};

const cyaml_schema_field_t dvd_device_fields[] = {
    CYAML_FIELD_STRING_PTR("match", OPTIONAL_POINTER, struct dvd_device_rule, match, 1, DV_MAX_DEVICE_NAME - 1),
    CYAML_FIELD_STRING_PTR("name", OPTIONAL_POINTER, struct dvd_device_rule, name, 1, DV_MAX_DEVICE_NAME - 1),
    CYAML_FIELD_ENUM("lease-only", OPTIONAL_ENUM, struct dvd_device_rule, lease_only, yes_no, COUNT(yes_no)),
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
    CYAML_FIELD_ENUM("slice-kernels", OPTIONAL_ENUM, struct dvd_device_rule, slice_kernels, slice_kernels_words,
                     COUNT(slice_kernels_words)),
    CYAML_FIELD_STRING_PTR("kernel-slice", OPTIONAL_POINTER, struct dvd_device_rule, kernel_slice, 1, 16),
    CYAML_FIELD_STRING_PTR("kernel-slice-cost", OPTIONAL_POINTER, struct dvd_device_rule, kernel_slice_cost, 1, 16),
    CYAML_FIELD_ENUM("hidden", OPTIONAL_ENUM, struct dvd_device_rule, hidden, yes_no, COUNT(yes_no)),
    CYAML_FIELD_MAPPING_PTR("sandbox", OPTIONAL_POINTER, struct dvd_device_rule, sandbox, dvd_sandbox_fields),
    CYAML_FIELD_END};
static const cyaml_strval_t order_words[] = {{"free", DV_ORDER_FREE}, {"fixed", DV_ORDER_FIXED}};
static const cyaml_strval_t per_words[] = {
    {"user", DV_PER_USER}, {"group", DV_PER_GROUP}, {"cgroup", DV_PER_CGROUP}, {"program", DV_PER_PROGRAM}};
static const cyaml_strval_t class_words[] = {{"latency", DV_CLASS_LATENCY + 1},
                                             {"standard", DV_CLASS_STANDARD + 1},
                                             {"batch", DV_CLASS_BATCH + 1},
                                             {"idle", DV_CLASS_IDLE + 1}};
#define SHARE_TEXT_MAX 16

const cyaml_schema_field_t dvd_tenant_fields[] = {
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
    CYAML_FIELD_ENUM("members-may-change", OPTIONAL_ENUM, struct dvd_tenant_rule, members_may_change, yes_no,
                     COUNT(yes_no)),
    CYAML_FIELD_ENUM("slice-kernels", OPTIONAL_ENUM, struct dvd_tenant_rule, slice_kernels, slice_kernels_words,
                     COUNT(slice_kernels_words)),
    CYAML_FIELD_END};
static const cyaml_schema_value_t tenant_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct dvd_tenant_rule, dvd_tenant_fields)};
static const cyaml_schema_value_t device_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct dvd_device_rule, dvd_device_fields)};
static const cyaml_strval_t sandbox_words[] = {{"yes", DV_SANDBOX_YES},
                                               {"no", DV_SANDBOX_NO},
                                               {"true", DV_SANDBOX_YES},
                                               {"false", DV_SANDBOX_NO},
                                               {"if-possible", DV_SANDBOX_IF_POSSIBLE}};

const cyaml_schema_field_t dvd_deadline_fields[] = {
    CYAML_FIELD_STRING_PTR("latency", OPTIONAL_POINTER, struct dvd_deadlines, latency, 1, 16),
    CYAML_FIELD_STRING_PTR("standard", OPTIONAL_POINTER, struct dvd_deadlines, standard, 1, 16),
    CYAML_FIELD_STRING_PTR("batch", OPTIONAL_POINTER, struct dvd_deadlines, batch, 1, 16),
    CYAML_FIELD_STRING_PTR("idle", OPTIONAL_POINTER, struct dvd_deadlines, idle, 1, 16), CYAML_FIELD_END};

const cyaml_schema_field_t dvd_file_fields[] = {
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
    CYAML_FIELD_MAPPING_PTR("deadlines", OPTIONAL_POINTER, struct dvd_config_file, deadlines, dvd_deadline_fields),
    CYAML_FIELD_STRING_PTR("lease-sessions", OPTIONAL_POINTER, struct dvd_config_file, lease_sessions, 1, 64),
    CYAML_FIELD_STRING_PTR("cache-size", OPTIONAL_POINTER, struct dvd_config_file, cache_size, 1, 32),
    CYAML_FIELD_STRING_PTR("caches-size", OPTIONAL_POINTER, struct dvd_config_file, caches_size, 1, 32),
    CYAML_FIELD_UINT_PTR("metrics-port", OPTIONAL_POINTER, struct dvd_config_file, metrics_port),
    CYAML_FIELD_STRING_PTR("restart-within", OPTIONAL_POINTER, struct dvd_config_file, restart_within, 1, 16),
    CYAML_FIELD_STRING_PTR("worker-memory", OPTIONAL_POINTER, struct dvd_config_file, worker_memory, 1, 32),
    CYAML_FIELD_UINT_PTR("worker-processes", OPTIONAL_POINTER, struct dvd_config_file, worker_processes),
    CYAML_FIELD_STRING_PTR("worker-cgroup", OPTIONAL_POINTER, struct dvd_config_file, worker_cgroup, 1,
                           DV_MAX_PATH - 1),
    CYAML_FIELD_STRING_PTR("worker-users", OPTIONAL_POINTER, struct dvd_config_file, worker_users, 1, 32),
    CYAML_FIELD_END};
const cyaml_schema_value_t dvd_file_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct dvd_config_file, dvd_file_fields)};
