/* Shares and policies of a divvy.yaml for a workload: "what if divvyd had this configuration". */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "src/arbiter/config/config.h"
#include "src/sim/workload.h"

/* The first rule for a tenant of this name: one that names it, one for a user of that name, or one for everybody. Who
 * is in a group or a cgroup is not known here. */
static const struct dvd_tenant_rule *find_rule(const struct dvd_config_file *file, const char *name)
{
    for (uint64_t i = 0; file && i < file->tenants_count; i++) {
        const struct dvd_tenant_rule *rule = &file->tenants[i];
        const char *who = rule->name ? rule->name : rule->user;
        bool is_for_all = !who && !rule->group && !rule->cgroup;
        if (is_for_all || (who && strcmp(who, name) == 0))
            return rule->refuse ? NULL : rule; /* to be refused is nothing that a workload can show */
    }
    return NULL;
}

/* Devices of one name are recorded with their numbers, such as "Card #1". */
static void cut_number(char *name)
{
    char *mark = strrchr(name, '#');

    if (mark && mark > name + 1 && mark[-1] == ' ' && mark[1] && !mark[1 + strspn(mark + 1, "0123456789")])
        mark[-1] = '\0';
}

/* A device is recorded by the name that divvyd shows: the vendor's, or the one that a rule gives it. */
static bool is_for(const struct dvd_device_rule *rule, uint32_t number, const char *full_name)
{
    struct dv_device_report report = {0};
    char name[DV_SIM_MAX_NAME + 1];

    snprintf(name, sizeof name, "%s", full_name);
    cut_number(name);
    if (rule->name && (strcmp(rule->name, full_name) == 0 || strcmp(rule->name, name) == 0))
        return true;
    snprintf(report.name, sizeof report.name, "%.*s", (int)sizeof report.name - 1, full_name);
    return !rule->lease_only && dvd_device_match_is(&rule->matches, number, &report, name);
}

static void apply_device(struct dv_sim_device_spec *device, uint32_t number, const struct dvd_config *config)
{
    const struct dvd_config_file *file = config->file;

    for (uint64_t i = 0; file && i < file->devices_count; i++) {
        const struct dvd_device_rule *rule = &file->devices[i];
        if (!is_for(rule, number, device->name))
            continue;
        if (rule->policy != DV_POLICY_NONE)
            device->ops = dv_policy_by_name(dvd_config_policy_word(rule->policy));
        device->slice_ns = rule->slice_ns;
        device->kernel_slice_ns = dvd_device_rule_slices(rule) == DV_SLICE_KERNELS_NEVER ? 0
                                  : rule->kernel_slice_ns                                ? rule->kernel_slice_ns
                                                                                         : DV_KERNEL_SLICE_NS;
        if (rule->slots)
            device->slot_count = (unsigned)*rule->slots;
        if (rule->capacity_bytes)
            device->memory_bytes = rule->capacity_bytes;
        return;
    }
}

int dv_workload_apply_config(struct dv_workload *workload, const char *path, char *error, size_t error_bytes)
{
    struct dvd_config config;

    if (dvd_config_load(&config, path, true, error, error_bytes) < 0)
        return -EINVAL;
    for (uint64_t i = 0; i < workload->devices_count; i++)
        apply_device(&workload->devices[i], (uint32_t)i, &config);
    for (uint64_t i = 0; i < workload->tenants_count; i++) {
        const struct dvd_tenant_rule *rule = find_rule(config.file, workload->tenants[i].name);
        if (!rule)
            continue;
        workload->tenants[i].share = rule->terms.share;
        workload->tenants[i].whole_kernels |= rule->terms.slice_kernels == DV_SLICE_KERNELS_NEVER;
    }
    dvd_config_fini(&config);
    return 0;
}
