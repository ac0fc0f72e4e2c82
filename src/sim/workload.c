/* Reading a workload (see workload.h): libcyaml turns the file into structures by a schema;
 * check.c checks the rest. */
#include "src/sim/workload.h"

#include <cyaml/cyaml.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/sim/reader.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define MAX_FILE_BYTES (64 << 20)
#define OPTIONAL_ENUM (CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT)
#define OPTIONAL_POINTER (CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER)
#define OPTIONAL_TEXT(key, structure, member)                                                                          \
    CYAML_FIELD_STRING_PTR(key, OPTIONAL_POINTER, structure, member, 1, DV_SIM_MAX_TEXT)

static const cyaml_strval_t arrival_words[] = {{"always", DV_ARRIVAL_ALWAYS},   {"periodic", DV_ARRIVAL_PERIODIC},
                                               {"poisson", DV_ARRIVAL_POISSON}, {"pareto", DV_ARRIVAL_PARETO},
                                               {"trace", DV_ARRIVAL_TRACE},     {"recorded", DV_ARRIVAL_RECORDED}};
static const cyaml_strval_t lengths_words[] = {{"fixed", DV_LENGTHS_FIXED},
                                               {"uniform", DV_LENGTHS_UNIFORM},
                                               {"lognormal", DV_LENGTHS_LOGNORMAL},
                                               {"pareto", DV_LENGTHS_PARETO}};
/* For bursts and for a tenant's whole work. */
static const cyaml_strval_t sizes_words[] = {{"fixed", DV_LENGTHS_FIXED}, {"pareto", DV_LENGTHS_PARETO}};
static const cyaml_strval_t keep_words[] = {
    {"linger", DV_KEEP_LINGER}, {"nothing", DV_KEEP_NOTHING}, {"slice", DV_KEEP_SLICE}};

static const cyaml_strval_t order_words[] = {{"free", DV_DEVICE_ORDER_FREE}, {"fixed", DV_DEVICE_ORDER_FIXED}};

static const cyaml_schema_value_t trace_schema = {CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 1, DV_SIM_MAX_TEXT)};
static const cyaml_schema_field_t recording_fields[] = {
    CYAML_FIELD_SEQUENCE_COUNT("bursts", CYAML_FLAG_POINTER, struct dv_sim_recording, texts, count, &trace_schema, 0,
                               DV_SIM_MAX_TRACE),
    CYAML_FIELD_BOOL("ended", CYAML_FLAG_OPTIONAL, struct dv_sim_recording, ended), CYAML_FIELD_END};
static const cyaml_schema_value_t recording_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct dv_sim_recording, recording_fields)};
static const cyaml_schema_field_t tenant_fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct dv_sim_tenant_spec, name, 1, DV_SIM_MAX_NAME),
    CYAML_FIELD_STRING_PTR("device", OPTIONAL_POINTER, struct dv_sim_tenant_spec, device, 1, DV_SIM_MAX_NAME),
    OPTIONAL_TEXT("request", struct dv_sim_tenant_spec, request_text),
    OPTIONAL_TEXT("limit", struct dv_sim_tenant_spec, limit_text),
    CYAML_FIELD_UINT_PTR("weight", OPTIONAL_POINTER, struct dv_sim_tenant_spec, weight),
    OPTIONAL_TEXT("class", struct dv_sim_tenant_spec, class_text),
    CYAML_FIELD_UINT_PTR("sessions", OPTIONAL_POINTER, struct dv_sim_tenant_spec, sessions),
    CYAML_FIELD_UINT_PTR("copies", OPTIONAL_POINTER, struct dv_sim_tenant_spec, copies),
    OPTIONAL_TEXT("join", struct dv_sim_tenant_spec, join_text),
    OPTIONAL_TEXT("join-every", struct dv_sim_tenant_spec, join_every_text),
    OPTIONAL_TEXT("leave", struct dv_sim_tenant_spec, leave_text),
    OPTIONAL_TEXT("work", struct dv_sim_tenant_spec, work_text),
    CYAML_FIELD_ENUM("work-lengths", OPTIONAL_ENUM, struct dv_sim_tenant_spec, work_lengths, sizes_words,
                     COUNT(sizes_words)),
    OPTIONAL_TEXT("set", struct dv_sim_tenant_spec, set_text),
    OPTIONAL_TEXT("sla", struct dv_sim_tenant_spec, sla_text),
    CYAML_FIELD_FLOAT_PTR("work-shape", OPTIONAL_POINTER, struct dv_sim_tenant_spec, work_shape),
    CYAML_FIELD_ENUM("arrival", OPTIONAL_ENUM, struct dv_sim_tenant_spec, arrival, arrival_words, COUNT(arrival_words)),
    OPTIONAL_TEXT("period", struct dv_sim_tenant_spec, period_text),
    CYAML_FIELD_FLOAT_PTR("rate", OPTIONAL_POINTER, struct dv_sim_tenant_spec, rate),
    OPTIONAL_TEXT("mean", struct dv_sim_tenant_spec, mean_text),
    CYAML_FIELD_FLOAT_PTR("shape", OPTIONAL_POINTER, struct dv_sim_tenant_spec, shape),
    CYAML_FIELD_SEQUENCE_COUNT("trace", OPTIONAL_POINTER, struct dv_sim_tenant_spec, trace_texts, trace_count,
                               &trace_schema, 1, DV_SIM_MAX_TRACE),
    CYAML_FIELD_SEQUENCE_COUNT("recorded", OPTIONAL_POINTER, struct dv_sim_tenant_spec, recorded, recorded_count,
                               &recording_schema, 1, DV_SIM_MAX_SESSIONS),
    CYAML_FIELD_STRING_PTR("kernel", CYAML_FLAG_POINTER, struct dv_sim_tenant_spec, kernel_text, 1, DV_SIM_MAX_TEXT),
    CYAML_FIELD_ENUM("kernel-lengths", OPTIONAL_ENUM, struct dv_sim_tenant_spec, lengths, lengths_words,
                     COUNT(lengths_words)),
    OPTIONAL_TEXT("kernel-max", struct dv_sim_tenant_spec, kernel_max_text),
    CYAML_FIELD_FLOAT_PTR("kernel-spread", OPTIONAL_POINTER, struct dv_sim_tenant_spec, spread),
    CYAML_FIELD_FLOAT_PTR("kernel-shape", OPTIONAL_POINTER, struct dv_sim_tenant_spec, kernel_shape),
    CYAML_FIELD_UINT_PTR("burst", OPTIONAL_POINTER, struct dv_sim_tenant_spec, burst),
    CYAML_FIELD_ENUM("burst-sizes", OPTIONAL_ENUM, struct dv_sim_tenant_spec, burst_sizes, sizes_words,
                     COUNT(sizes_words)),
    CYAML_FIELD_FLOAT_PTR("burst-shape", OPTIONAL_POINTER, struct dv_sim_tenant_spec, burst_shape),
    CYAML_FIELD_UINT_PTR("burst-max", OPTIONAL_POINTER, struct dv_sim_tenant_spec, burst_most),
    OPTIONAL_TEXT("gap", struct dv_sim_tenant_spec, gap_text),
    OPTIONAL_TEXT("jitter", struct dv_sim_tenant_spec, jitter_text),
    CYAML_FIELD_BOOL("whole-kernels", CYAML_FLAG_OPTIONAL, struct dv_sim_tenant_spec, whole_kernels),
    CYAML_FIELD_ENUM("when-idle-keep", OPTIONAL_ENUM, struct dv_sim_tenant_spec, keep, keep_words, COUNT(keep_words)),
    CYAML_FIELD_END};
static const cyaml_schema_value_t tenant_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct dv_sim_tenant_spec, tenant_fields)};

static const cyaml_schema_field_t device_fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct dv_sim_device_spec, name, 1, DV_SIM_MAX_NAME),
    CYAML_FIELD_UINT_PTR("copies", OPTIONAL_POINTER, struct dv_sim_device_spec, copies),
    CYAML_FIELD_UINT_PTR("slots", OPTIONAL_POINTER, struct dv_sim_device_spec, slots),
    OPTIONAL_TEXT("memory", struct dv_sim_device_spec, memory_text),
    OPTIONAL_TEXT("copy-speed", struct dv_sim_device_spec, copy_text),
    CYAML_FIELD_BOOL("copy-engine", CYAML_FLAG_OPTIONAL, struct dv_sim_device_spec, has_copy_engine),
    OPTIONAL_TEXT("policy", struct dv_sim_device_spec, policy),
    OPTIONAL_TEXT("slice", struct dv_sim_device_spec, slice_text),
    OPTIONAL_TEXT("kernel-slice", struct dv_sim_device_spec, kernel_slice_text),
    CYAML_FIELD_END};
static const cyaml_schema_value_t device_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct dv_sim_device_spec, device_fields)};

static const cyaml_schema_field_t file_fields[] = {
    CYAML_FIELD_STRING_PTR("duration", CYAML_FLAG_POINTER, struct dv_workload, duration_text, 1, DV_SIM_MAX_TEXT),
    CYAML_FIELD_UINT("seed", CYAML_FLAG_OPTIONAL, struct dv_workload, seed),
    CYAML_FIELD_FLOAT_PTR("load", OPTIONAL_POINTER, struct dv_workload, load_given),
    OPTIONAL_TEXT("grant-overhead", struct dv_workload, grant_text),
    OPTIONAL_TEXT("release-overhead", struct dv_workload, release_text),
    OPTIONAL_TEXT("overhead-jitter", struct dv_workload, overhead_jitter_text),
    CYAML_FIELD_SEQUENCE_COUNT("devices", CYAML_FLAG_POINTER, struct dv_workload, devices, devices_count,
                               &device_schema, 1, DV_SIM_MAX_DEVICES),
    CYAML_FIELD_ENUM("device-order", OPTIONAL_ENUM, struct dv_workload, order, order_words, COUNT(order_words)),
    CYAML_FIELD_SEQUENCE_COUNT("tenants", CYAML_FLAG_POINTER, struct dv_workload, tenants, tenants_count,
                               &tenant_schema, 1, DV_SIM_MAX_TENANTS),
    CYAML_FIELD_END};
static const cyaml_schema_value_t file_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct dv_workload, file_fields)};

static void explain(struct dv_sim_reader *reader)
{
    static const char unexpected[] = "Unexpected key: ";
    const char *what = reader->complaint.what;
    int line = reader->complaint.line ? reader->complaint.line : 1;

    if (strncmp(what, "libyaml: ", 9) == 0)
        dv_sim_complain(reader, dv_yaml_find_syntax_error(reader->data), "this is not YAML: %s", what + 9);
    else if (strncmp(what, unexpected, sizeof unexpected - 1) == 0)
        dv_sim_complain(reader, dv_yaml_find_line(reader->data, what + sizeof unexpected - 1, line),
                        "unknown key '%s'; divvy-sim(1) lists the keys", what + sizeof unexpected - 1);
    else if (reader->complaint.keys[0][0])
        dv_sim_complain(reader, line, "in '%s': %s", reader->complaint.keys[0], what);
    else
        dv_sim_complain(reader, line, "%s", what);
}

static int read_file(struct dv_sim_reader *reader)
{
    FILE *file = fopen(reader->path, "re");
    size_t length = 0;

    if (!file)
        return -errno;
    reader->data = malloc(MAX_FILE_BYTES + 1);
    if (reader->data)
        length = fread(reader->data, 1, MAX_FILE_BYTES + 1, file);
    int status = !reader->data ? -ENOMEM : ferror(file) ? -EIO : length > MAX_FILE_BYTES ? -EFBIG : 0;
    if (status == 0)
        reader->data[length] = '\0';
    fclose(file);
    return status;
}

struct dv_workload *dv_workload_load(const char *path, char *error, size_t error_bytes)
{
    struct dv_sim_reader reader = {.path = path, .error = error, .error_bytes = error_bytes};
    const cyaml_config_t settings = dv_yaml_settings(&reader.complaint);
    struct dv_workload *workload = NULL;

    int status = read_file(&reader);
    if (status < 0) {
        snprintf(error, error_bytes, "cannot read %s: %s", path, strerror(-status));
        free(reader.data);
        return NULL;
    }
    cyaml_err_t result = cyaml_load_data((const uint8_t *)reader.data, strlen(reader.data), &settings, &file_schema,
                                         (cyaml_data_t **)&workload, NULL);
    if (result != CYAML_OK) {
        workload = NULL;
        if (!reader.complaint.what[0])
            snprintf(reader.complaint.what, sizeof reader.complaint.what, "%s", cyaml_strerror(result));
        explain(&reader);
    } else if (!workload) {
        dv_sim_complain(&reader, 1, "the file is empty");
    } else if (dv_sim_check(&reader, workload) < 0) {
        dv_workload_free(workload);
        workload = NULL;
    }
    free(reader.data);
    return workload;
}

void dv_workload_free(struct dv_workload *workload)
{
    struct dv_sim_reader reader = {0};
    const cyaml_config_t settings = dv_yaml_settings(&reader.complaint);

    for (uint64_t i = 0; workload && i < workload->tenants_count; i++) {
        free(workload->tenants[i].trace_ns);
        for (uint64_t j = 0; j < workload->tenants[i].recorded_count; j++)
            free(workload->tenants[i].recorded[j].bursts);
    }
    cyaml_free(&settings, &file_schema, workload, 0);
}
