/* Checking a workload (see reader.h): times, parts and sizes are texts in the file. */
#include "src/sim/reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/text.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define MAX_DURATION_NS (3600 * DV_NS_PER_S)
#define MAX_BURST 1000000
#define DEFAULT_SHAPE 1.5
#define MAX_SHAPE 10.0
#define DEFAULT_COPY_BYTES_PER_S (UINT64_C(8) << 30)

/* The line of the key in the entry of that name. */
static int find_key(const struct dv_sim_reader *reader, const char *name, const char *key)
{
    char text[DV_SIM_MAX_TEXT + 2];
    int from = 1;

    if (name) {
        from = dv_yaml_find_line(reader->data, "name:", 1);
        for (int line = from, before = 0; line != before;) {
            int named = dv_yaml_find_line(reader->data, name, line);
            int with_key = dv_yaml_find_line(reader->data, "name:", line);
            from = named;
            if (named == with_key)
                break;
            before = line;
            line = with_key + 1;
        }
    }
    snprintf(text, sizeof text, "%s:", key);
    return dv_yaml_find_line(reader->data, text, from);
}

int dv_sim_complain(struct dv_sim_reader *reader, int line, const char *format, ...)
{
    int used = snprintf(reader->error, reader->error_bytes, "%s:%d: ", reader->path, line);
    va_list args;

    if (used >= 0 && (size_t)used < reader->error_bytes) {
        va_start(args, format);
        vsnprintf(reader->error + used, reader->error_bytes - (size_t)used, format, args);
        va_end(args);
    }
    return -EINVAL;
}

int dv_sim_parse_duration(const char *text, dv_ns *ns)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 6e10}};
    char *end;
    double value = strtod(text, &end);

    if (end == text || !(value >= 0) || value > 1e12)
        return -EINVAL;
    end += strspn(end, " ");
    if (value == 0 && !*end) {
        *ns = 0;
        return 0;
    }
    for (size_t i = 0; i < COUNT(units); i++)
        if (strcmp(end, units[i].name) == 0 && value * units[i].ns <= 1e16) {
            *ns = (dv_ns)(value * units[i].ns + 0.5);
            return 0;
        }
    return -EINVAL;
}

static int take_duration(struct dv_sim_reader *reader, const char *name, const char *key, const char *text, dv_ns *ns)
{
    if (!text || dv_sim_parse_duration(text, ns) == 0)
        return 0;
    return dv_sim_complain(reader, find_key(reader, name, key),
                           "'%s' cannot be '%s'; expected a time such as 250us, 15ms or 60s", key, text);
}

static int take_percent(struct dv_sim_reader *reader, const char *name, const char *key, const char *text, double most,
                        double *part)
{
    char *end;

    if (!text)
        return 0;
    double value = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0 && value >= 0 && value <= most) {
        *part = value / 100;
        return 0;
    }
    return dv_sim_complain(reader, find_key(reader, name, key), "'%s' cannot be '%s'; expected a part such as 30%%",
                           key, text);
}

static int take_number(struct dv_sim_reader *reader, const char *name, const char *key, const uint64_t *value,
                       unsigned most, unsigned *number)
{
    if (!value)
        return 0;
    if (*value >= 1 && *value <= most) {
        *number = (unsigned)*value;
        return 0;
    }
    return dv_sim_complain(reader, find_key(reader, name, key), "'%s' cannot be %llu; expected a number from 1 to %u",
                           key, (unsigned long long)*value, most);
}

static int take_size(struct dv_sim_reader *reader, const char *name, const char *key, const char *text, uint64_t *bytes)
{
    if (!text || (dv_text_parse_size(text, bytes) == 0 && *bytes > 0 && *bytes <= DV_SIM_MAX_BYTES))
        return 0;
    return dv_sim_complain(reader, find_key(reader, name, key),
                           "'%s' cannot be '%s'; expected a size such as 512MiB or 8GiB", key, text);
}

static int check_device(struct dv_sim_reader *reader, struct dv_sim_device_spec *device)
{
    device->slot_count = device->copy_count = 1;
    device->copy_bytes_per_s = DEFAULT_COPY_BYTES_PER_S;
    device->ops = dv_policy_by_name(device->policy ? device->policy : "elastic");
    if (!device->ops)
        return dv_sim_complain(reader, find_key(reader, device->name, "policy"),
                               "there is no policy '%s'; expected elastic, fair, fifo or band", device->policy);
    if (take_number(reader, device->name, "slots", device->slots, 256, &device->slot_count) < 0 ||
        take_number(reader, device->name, "copies", device->copies, DV_SIM_MAX_DEVICES, &device->copy_count) < 0 ||
        take_size(reader, device->name, "memory", device->memory_text, &device->memory_bytes) < 0 ||
        take_size(reader, device->name, "copy-speed", device->copy_text, &device->copy_bytes_per_s) < 0)
        return -EINVAL;
    if (take_duration(reader, device->name, "kernel-slice", device->kernel_slice_text, &device->kernel_slice_ns) < 0)
        return -EINVAL;
    return take_duration(reader, device->name, "slice", device->slice_text, &device->slice_ns);
}

static int take_class(struct dv_sim_reader *reader, const struct dv_sim_tenant_spec *tenant, enum dv_class *class)
{
    *class = DV_CLASS_STANDARD;
    if (!tenant->class_text || dv_class_by_word(tenant->class_text, class))
        return 0;
    return dv_sim_complain(reader, find_key(reader, tenant->name, "class"),
                           "there is no class '%s'; expected " DV_CLASS_WORDS, tenant->class_text);
}

/* The shape of a Pareto distribution: the smaller, the heavier its tail. At 1 it has no mean any more. */
static int take_shape(struct dv_sim_reader *reader, const char *name, const char *key, const double *value,
                      double *shape)
{
    *shape = value ? *value : DEFAULT_SHAPE;
    if (*shape > 1 && *shape <= MAX_SHAPE)
        return 0;
    return dv_sim_complain(reader, find_key(reader, name, key),
                           "'%s' cannot be %g; expected a number above 1, at most %g", key, *shape, MAX_SHAPE);
}

static int check_share(struct dv_sim_reader *reader, struct dv_sim_tenant_spec *tenant)
{
    double request = 0, limit = 1;
    unsigned weight = 1;
    enum dv_class class;

    if (take_class(reader, tenant, &class) < 0 ||
        take_percent(reader, tenant->name, "request", tenant->request_text, 100, &request) < 0 ||
        take_percent(reader, tenant->name, "limit", tenant->limit_text, 100, &limit) < 0 ||
        take_number(reader, tenant->name, "weight", tenant->weight, DV_WEIGHT_MAX, &weight) < 0)
        return -EINVAL;
    if (request > limit)
        return dv_sim_complain(reader, find_key(reader, tenant->name, "request"),
                               "tenant '%s' requests more than its limit", tenant->name);
    if (limit == 0)
        return dv_sim_complain(reader, find_key(reader, tenant->name, "limit"),
                               "tenant '%s' could never run with a limit of 0%%", tenant->name);
    tenant->share = (struct dv_share){.request_ppm = (uint32_t)(request * DV_PPM + 0.5),
                                      .limit_ppm = (uint32_t)(limit * DV_PPM + 0.5),
                                      .weight = weight,
                                      .class = class};
    return 0;
}

static int check_trace(struct dv_sim_reader *reader, struct dv_sim_tenant_spec *tenant)
{
    if (tenant->arrival != DV_ARRIVAL_TRACE)
        return 0;
    if (!tenant->trace_count)
        return dv_sim_complain(reader, find_key(reader, tenant->name, "arrival"),
                               "tenant '%s' has arrival 'trace' and no list 'trace'", tenant->name);
    tenant->trace_ns = calloc(tenant->trace_count, sizeof *tenant->trace_ns);
    if (!tenant->trace_ns)
        return dv_sim_complain(reader, 1, "out of memory");
    for (uint64_t i = 0; i < tenant->trace_count; i++) {
        if (take_duration(reader, tenant->name, "trace", tenant->trace_texts[i], &tenant->trace_ns[i]) < 0)
            return -EINVAL;
        if (i && tenant->trace_ns[i] < tenant->trace_ns[i - 1])
            return dv_sim_complain(reader, find_key(reader, tenant->name, "trace"),
                                   "the times of 'trace' must not go back ('%s')", tenant->trace_texts[i]);
    }
    return 0;
}

/* "GAP WORK KERNEL": three times. */
static int read_burst(struct dv_sim_reader *reader, const char *name, const char *text, struct dv_sim_burst *burst)
{
    char gap[32], work[32], kernel[32], rest;

    if (sscanf(text, "%31s %31s %31s %c", gap, work, kernel, &rest) != 3 ||
        dv_sim_parse_duration(gap, &burst->gap_ns) < 0 || dv_sim_parse_duration(work, &burst->work_ns) < 0 ||
        dv_sim_parse_duration(kernel, &burst->kernel_ns) < 0 || burst->kernel_ns < 100 || burst->work_ns < 100)
        return dv_sim_complain(
            reader, find_key(reader, name, "recorded"),
            "a burst of 'recorded' cannot be '%s'; expected GAP WORK KERNEL, such as \"2ms 10ms 1ms\"", text);
    return 0;
}

static int check_recorded(struct dv_sim_reader *reader, struct dv_sim_tenant_spec *tenant)
{
    if (tenant->arrival != DV_ARRIVAL_RECORDED)
        return 0;
    if (!tenant->recorded_count || tenant->sessions)
        return dv_sim_complain(
            reader, find_key(reader, tenant->name, "arrival"),
            "tenant '%s' has arrival 'recorded', which needs a list 'recorded' with an entry for each "
            "session, and no 'sessions'",
            tenant->name);
    tenant->session_count = (unsigned)tenant->recorded_count;
    for (uint64_t i = 0; i < tenant->recorded_count; i++) {
        struct dv_sim_recording *recording = &tenant->recorded[i];
        recording->bursts = calloc(recording->count ? recording->count : 1, sizeof *recording->bursts);
        if (!recording->bursts)
            return dv_sim_complain(reader, 1, "out of memory");
        for (uint64_t j = 0; j < recording->count; j++)
            if (read_burst(reader, tenant->name, recording->texts[j], &recording->bursts[j]) < 0)
                return -EINVAL;
    }
    return 0;
}

static int check_tails(struct dv_sim_reader *reader, struct dv_sim_tenant_spec *tenant)
{
    const char *name = tenant->name;

    if (take_shape(reader, name, "shape", tenant->shape, &tenant->arrival_tail) < 0 ||
        take_shape(reader, name, "kernel-shape", tenant->kernel_shape, &tenant->kernel_tail) < 0 ||
        take_shape(reader, name, "burst-shape", tenant->burst_shape, &tenant->burst_tail) < 0 ||
        take_shape(reader, name, "work-shape", tenant->work_shape, &tenant->work_tail) < 0)
        return -EINVAL;
    return 0;
}

static int check_arrival(struct dv_sim_reader *reader, struct dv_sim_tenant_spec *tenant)
{
    const char *name = tenant->name;

    tenant->rate_per_s = tenant->rate ? *tenant->rate : 0;
    if (take_duration(reader, name, "gap", tenant->gap_text, &tenant->gap_ns) < 0 ||
        take_duration(reader, name, "period", tenant->period_text, &tenant->period_ns) < 0 ||
        take_duration(reader, name, "sla", tenant->sla_text, &tenant->sla_ns) < 0 ||
        take_duration(reader, name, "mean", tenant->mean_text, &tenant->mean_ns) < 0 ||
        take_percent(reader, name, "jitter", tenant->jitter_text, 100, &tenant->jitter) < 0)
        return -EINVAL;
    if (tenant->arrival == DV_ARRIVAL_PERIODIC && tenant->period_ns < 1000)
        return dv_sim_complain(reader, find_key(reader, name, "arrival"),
                               "periodic arrival needs a 'period' of at least 1us");
    if (tenant->arrival == DV_ARRIVAL_PARETO && tenant->mean_ns < 1000)
        return dv_sim_complain(reader, find_key(reader, name, "arrival"),
                               "pareto arrival needs a 'mean' of at least 1us");
    if (tenant->arrival == DV_ARRIVAL_POISSON && !(tenant->rate_per_s > 0 && tenant->rate_per_s <= 1e6))
        return dv_sim_complain(reader, find_key(reader, name, "arrival"),
                               "poisson arrival needs a 'rate' per second above 0, at most "
                               "1000000");
    return check_trace(reader, tenant);
}

static int check_work(struct dv_sim_reader *reader, struct dv_sim_tenant_spec *tenant)
{
    const char *name = tenant->name;

    tenant->sigma = tenant->spread ? *tenant->spread : 0.25;
    tenant->burst_kernels = 1;
    tenant->burst_max = MAX_BURST;
    if (take_duration(reader, name, "kernel", tenant->kernel_text, &tenant->kernel_ns) < 0 ||
        take_duration(reader, name, "kernel-max", tenant->kernel_max_text, &tenant->kernel_max_ns) < 0 ||
        take_number(reader, name, "burst", tenant->burst, MAX_BURST, &tenant->burst_kernels) < 0 ||
        take_number(reader, name, "burst-max", tenant->burst_most, MAX_BURST, &tenant->burst_max) < 0 ||
        take_size(reader, name, "set", tenant->set_text, &tenant->set_bytes) < 0 ||
        take_duration(reader, name, "work", tenant->work_text, &tenant->work_ns) < 0)
        return -EINVAL;
    if (tenant->kernel_ns < 100)
        return dv_sim_complain(reader, find_key(reader, name, "kernel"), "a kernel takes at least 100ns");
    if (tenant->lengths == DV_LENGTHS_UNIFORM && tenant->kernel_max_ns < tenant->kernel_ns)
        return dv_sim_complain(reader, find_key(reader, name, "kernel-lengths"),
                               "uniform lengths need a 'kernel-max' that is not below 'kernel'");
    if (!(tenant->sigma >= 0 && tenant->sigma <= 3))
        return dv_sim_complain(reader, find_key(reader, name, "kernel-spread"),
                               "'kernel-spread' is the sigma of the logarithm; expected 0 to 3");
    return check_tails(reader, tenant);
}

/* "gpu" is any of the copies of the entry "gpu", "gpu-2" the second one. */
static bool names_device(const char *text, const struct dv_sim_device_spec *device)
{
    size_t length = strlen(device->name);
    uint64_t number;

    if (strncmp(text, device->name, length) != 0)
        return false;
    if (!text[length])
        return true;
    return device->copy_count > 1 && text[length] == '-' &&
           dv_text_parse_number(text + length + 1, device->copy_count, &number) == 0 && number > 0;
}

static int check_binding(struct dv_sim_reader *reader, const struct dv_workload *workload,
                         const struct dv_sim_tenant_spec *tenant)
{
    if (!tenant->device)
        return 0;
    for (uint64_t i = 0; i < workload->devices_count; i++)
        if (names_device(tenant->device, &workload->devices[i]))
            return 0;
    return dv_sim_complain(reader, find_key(reader, tenant->name, "device"), "there is no device '%s'", tenant->device);
}

/* The one device of all copies of the tenant, if they join at the time that the file gives; NULL: not
 * known in advance. */
static const struct dv_sim_device_spec *only_device(const struct dv_workload *workload,
                                                    const struct dv_sim_tenant_spec *tenant)
{
    const struct dv_sim_device_spec *found = NULL;

    if (tenant->join_every_ns || (!tenant->device && workload->devices_count > 1))
        return NULL;
    for (uint64_t i = 0; i < workload->devices_count && !found; i++)
        if (!tenant->device || strcmp(tenant->device, workload->devices[i].name) == 0)
            found = &workload->devices[i];
    return found && found->copy_count == 1 ? found : NULL;
}

static int check_tenant(struct dv_sim_reader *reader, const struct dv_workload *workload,
                        struct dv_sim_tenant_spec *tenant)
{
    tenant->session_count = tenant->copy_count = 1;
    tenant->leave_ns = workload->duration_ns;
    if (check_share(reader, tenant) < 0 || check_work(reader, tenant) < 0 || check_arrival(reader, tenant) < 0 ||
        take_number(reader, tenant->name, "sessions", tenant->sessions, DV_SIM_MAX_SESSIONS, &tenant->session_count) <
            0 ||
        take_number(reader, tenant->name, "copies", tenant->copies, DV_SIM_MAX_TENANTS, &tenant->copy_count) < 0 ||
        take_duration(reader, tenant->name, "join", tenant->join_text, &tenant->join_ns) < 0 ||
        take_duration(reader, tenant->name, "join-every", tenant->join_every_text, &tenant->join_every_ns) < 0 ||
        take_duration(reader, tenant->name, "leave", tenant->leave_text, &tenant->leave_ns) < 0 ||
        check_recorded(reader, tenant) < 0)
        return -EINVAL;
    if (tenant->leave_ns > workload->duration_ns)
        tenant->leave_ns = workload->duration_ns;
    if (tenant->join_ns >= tenant->leave_ns)
        return dv_sim_complain(reader, find_key(reader, tenant->name, "join"),
                               "tenant '%s' leaves (or the simulation ends) before it joins", tenant->name);
    return check_binding(reader, workload, tenant);
}

/* As at admission: the requests at one time must not exceed the device. Tenants that are placed when they
 * come, and do not fit, are refused then. */
static int check_requests(struct dv_sim_reader *reader, const struct dv_workload *workload)
{
    for (uint64_t i = 0; i < workload->tenants_count; i++) {
        const struct dv_sim_tenant_spec *at = &workload->tenants[i];
        const struct dv_sim_device_spec *device = only_device(workload, at);
        uint64_t sum = 0;
        for (uint64_t j = 0; device && j < workload->tenants_count; j++) {
            const struct dv_sim_tenant_spec *other = &workload->tenants[j];
            if (only_device(workload, other) == device && other->join_ns <= at->join_ns &&
                at->join_ns < other->leave_ns)
                sum += (uint64_t)other->share.request_ppm * other->copy_count;
        }
        if (sum > DV_PPM)
            return dv_sim_complain(reader, find_key(reader, at->name, "request"),
                                   "with tenant '%s' requests add up to %.1f%% of the device", at->name,
                                   (double)sum / 1e4);
    }
    return 0;
}

static int check_devices(struct dv_sim_reader *reader, struct dv_workload *workload)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < workload->devices_count; i++) {
        if (check_device(reader, &workload->devices[i]) < 0)
            return -EINVAL;
        count += workload->devices[i].copy_count;
    }
    if (count > DV_SIM_MAX_DEVICES)
        return dv_sim_complain(reader, find_key(reader, NULL, "devices"),
                               "there are %llu devices; at most %d can be simulated", (unsigned long long)count,
                               DV_SIM_MAX_DEVICES);
    return 0;
}

int dv_sim_check(struct dv_sim_reader *reader, struct dv_workload *workload)
{
    if (take_duration(reader, NULL, "duration", workload->duration_text, &workload->duration_ns) < 0 ||
        take_duration(reader, NULL, "grant-overhead", workload->grant_text, &workload->grant_ns) < 0 ||
        take_duration(reader, NULL, "release-overhead", workload->release_text, &workload->release_ns) < 0 ||
        take_percent(reader, NULL, "overhead-jitter", workload->overhead_jitter_text, 100, &workload->overhead_jitter) <
            0)
        return -EINVAL;
    if (workload->duration_ns == 0 || workload->duration_ns > MAX_DURATION_NS)
        return dv_sim_complain(reader, find_key(reader, NULL, "duration"),
                               "'duration' cannot be '%s'; expected at most 60min", workload->duration_text);
    workload->load = workload->load_given ? *workload->load_given : 1;
    if (!(workload->load > 0 && workload->load <= DV_SIM_MAX_LOAD))
        return dv_sim_complain(reader, find_key(reader, NULL, "load"),
                               "'load' cannot be %g; expected a number above 0, at most %g", workload->load,
                               DV_SIM_MAX_LOAD);
    if (check_devices(reader, workload) < 0)
        return -EINVAL;
    for (uint64_t i = 0; i < workload->tenants_count; i++)
        if (check_tenant(reader, workload, &workload->tenants[i]) < 0)
            return -EINVAL;
    return check_requests(reader, workload);
}
