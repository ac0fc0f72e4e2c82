/* divvyd's configuration: read from YAML into structures, checked as a whole or refused as a whole.
 */
#ifndef DV_ARBITER_CONFIG_H
#define DV_ARBITER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DV_CONFIG_SYSTEM "/etc/divvy/divvy.yaml"

/* How to offer the devices whose name matches. The first rule that matches a device decides. */
struct dv_device_rule {
    char *match;    /* glob on the device's name */
    char *name;     /* shown instead of the vendor's name; NULL: the vendor's */
    int unified;    /* enum dv_unified */
    int present_as; /* enum dv_present_as */
    int hidden;     /* not offered to anybody */
    int policy;     /* enum dv_policy_choice */
    uint64_t *slots; /* NULL: one */
};

/* The file's contents, as the schema lays them out. Absent keys are zero. */
struct dv_config_file {
    struct dv_device_rule *devices;
    uint64_t devices_count;
    char *arena;
    char **vendors;
    uint64_t vendors_count;
    char *operator_group;
    int tenants_see_own;
    uint64_t *sessions_per_user; /* NULL: absent */
};

enum dv_policy_choice {
    DV_POLICY_NONE, /* its time is not shared out */
    DV_POLICY_ELASTIC,
    DV_POLICY_FAIR,
    DV_POLICY_FIFO,
    DV_POLICY_BAND,
};

struct dv_config {
    struct dv_config_file *file; /* NULL: all defaults */
    uint64_t arena_bytes;
    unsigned sessions_per_user;
    bool has_operator_group;
    gid_t operator_group;
};

/* Loads and checks a file. With must_exist false a missing file means the defaults. Returns 0, or a
 * negative errno with a message that names file, line and what was expected. */
int dv_config_load(struct dv_config *config, const char *path, bool must_exist, char *error,
                   size_t error_bytes);
const char *dv_config_policy_word(int policy);
void dv_config_fini(struct dv_config *config);

#endif
