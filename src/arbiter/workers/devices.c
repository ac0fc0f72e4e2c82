/* Devices and the rules that apply to them (see devices.h). */
#include "src/arbiter/workers/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/text.h"

/* The bits of a device's type, as OpenCL numbers them. divvyd shows them, and includes no OpenCL
 * header for it. */
#define TYPE_CPU 2u
#define TYPE_GPU 4u
#define TYPE_ACCELERATOR 8u

static void clean_report(struct dv_device_report *report)
{
    dv_text_clean(report->name, sizeof report->name);
    dv_text_clean(report->vendor, sizeof report->vendor);
    dv_text_clean(report->version, sizeof report->version);
    dv_text_clean(report->driver, sizeof report->driver);
    dv_text_clean(report->platform_name, sizeof report->platform_name);
    dv_text_clean(report->uuid, sizeof report->uuid);
    dv_text_clean(report->pci, sizeof report->pci);
    report->host_unified = report->host_unified != 0;
    report->kind = DV_DEVICE_VENDOR;
}

/* Whether the two devices are interchangeable for a program. */
static bool are_alike(const struct dv_device_report *a, const struct dv_device_report *b)
{
    return a->kind == b->kind && a->platform == b->platform && a->type == b->type &&
           a->compute_units == b->compute_units && strcmp(a->name, b->name) == 0 && strcmp(a->version, b->version) == 0;
}

static void group(struct dvd_devices *devices)
{
    for (uint32_t i = 0; i < devices->count; i++) {
        uint32_t first = 0;
        while (first < i && !are_alike(&devices->reports[first], &devices->reports[i]))
            first++;
        devices->groups[i] = (uint8_t)first;
    }
}

/* The vendors' devices have the numbers that are not those of lease-only ones, in the order of the probe. */
static void number_reports(struct dvd_devices *devices, const struct dv_zygote_answer *answer)
{
    uint32_t taken = 0;

    for (uint32_t i = 0; i < DV_MAX_DEVICES && (i < devices->count || taken < answer->device_count); i++) {
        struct dv_device_report *report = &devices->reports[i];
        if (i < devices->count && report->kind == DV_DEVICE_LEASE_ONLY)
            continue;
        if (taken < answer->device_count) {
            *report = answer->devices[taken++];
            clean_report(report);
        } else {
            report->kind = DV_DEVICE_GONE;
        }
        if (i == devices->count)
            devices->count++;
    }
    while (devices->count > 0 && devices->reports[devices->count - 1].kind == DV_DEVICE_GONE)
        devices->count--;
    devices->vendor_count = taken;
}

bool dvd_devices_take(struct dvd_devices *devices, const struct dv_zygote_answer *answer, uint64_t now_us)
{
    if (answer->device_count > DV_MAX_DEVICES)
        return false;
    devices->known = true;
    devices->probed_us = now_us;
    number_reports(devices, answer); /* running sessions keep the devices that they have */
    devices->found = answer->devices_found;
    devices->had_some |= devices->vendor_count > 0;
    group(devices);
    memcpy(devices->text, answer->text, sizeof devices->text);
    dv_text_clean(devices->text, sizeof devices->text);
    return true;
}

static bool is_lease_only(const struct dv_device_report *report, const char *name)
{
    return report->kind == DV_DEVICE_LEASE_ONLY && strcmp(report->name, name) == 0;
}

void dvd_devices_add_lease_only(struct dvd_devices *devices, const struct dvd_config *config)
{
    const struct dvd_config_file *file = config->file;

    for (uint64_t i = 0; file && i < file->devices_count; i++) {
        const struct dvd_device_rule *rule = &file->devices[i];
        uint32_t number = 0;
        if (!rule->lease_only)
            continue;
        while (number < devices->count && !is_lease_only(&devices->reports[number], rule->name))
            number++;
        if (number < devices->count)
            continue;
        if (number == DV_MAX_DEVICES) {
            dv_error("there is no room for device %s: divvyd serves at most %d devices", rule->name, DV_MAX_DEVICES);
            continue;
        }
        /* without a driver nothing moves its memory, which counts as the host's */
        devices->reports[number] = (struct dv_device_report){.kind = DV_DEVICE_LEASE_ONLY, .host_unified = 1};
        dv_text_copy(devices->reports[number].name, DV_MAX_DEVICE_NAME, rule->name);
        dv_text_copy(devices->reports[number].platform_name, DV_MAX_DEVICE_NAME, "lease-only");
        devices->count++;
        dv_info("device %u: %s (lease-only)", number, rule->name);
    }
    group(devices);
}

void dvd_devices_restored(struct dvd_devices *devices, uint64_t now_us)
{
    devices->vendor_count = 0;
    devices->had_some = false;
    for (uint32_t i = 0; i < devices->count; i++) {
        devices->vendor_count += devices->reports[i].kind == DV_DEVICE_VENDOR;
        devices->had_some |= devices->reports[i].kind != DV_DEVICE_LEASE_ONLY; /* also one that is gone */
    }
    group(devices);
    devices->known = true;
    devices->probed_us = now_us;
}

/* Whether a rule is about a device: it names a lease-only one, or a pattern for the vendors'. */
static bool is_for(const struct dvd_device_rule *rule, uint32_t index, const struct dv_device_report *report)
{
    if (rule->lease_only || report->kind == DV_DEVICE_LEASE_ONLY)
        return rule->lease_only && is_lease_only(report, rule->name);
    return dvd_device_match_is(&rule->matches, index, report, NULL);
}

const struct dvd_device_rule *dvd_devices_rule(const struct dvd_devices *devices, uint32_t index,
                                               const struct dvd_config *config)
{
    const struct dvd_config_file *file = config->file;

    for (uint64_t i = 0; file && i < file->devices_count; i++)
        if (is_for(&file->devices[i], index, &devices->reports[index]))
            return &file->devices[i];
    return NULL;
}

int dvd_devices_policy(const struct dvd_devices *devices, uint32_t index, const struct dvd_config *config)
{
    const struct dvd_device_rule *rule = dvd_devices_rule(devices, index, config);
    return rule ? rule->policy : DV_POLICY_ELASTIC;
}

/* The kernel clears host memory before use; no vendor promises that for the memory of a card. */
static bool is_scrubbed(const struct dv_device_report *report, const struct dvd_device_rule *rule)
{
    return rule && rule->scrub != DV_SCRUB_AUTO ? rule->scrub == DV_SCRUB_YES : !report->host_unified;
}

static bool copies_beside(const struct dv_device_report *report, const struct dvd_device_rule *rule)
{
    return rule && rule->copy_engine != DV_COPY_ENGINE_AUTO ? rule->copy_engine == DV_COPY_ENGINE_YES
                                                            : report->copy_engines > 0;
}

static bool swaps(const struct dv_device_report *report, const struct dvd_device_rule *rule)
{
    bool unified = rule && rule->unified != DV_UNIFIED_AUTO ? rule->unified == DV_UNIFIED_YES : report->host_unified;

    return !unified && !(rule && rule->no_swap);
}

/* Whether new sessions may have it. A lease-only device is offered as long as it is configured. */
static bool is_offered(const struct dv_device_report *report, const struct dvd_device_rule *rule)
{
    return report->kind != DV_DEVICE_GONE && (report->kind == DV_DEVICE_VENDOR || rule) && !(rule && rule->hidden);
}

static void fill_terms(const struct dv_device_report *report, const struct dvd_device_rule *rule,
                       struct dvd_device_terms *terms)
{
    static const struct dvd_device_rule usual;
    const struct dvd_device_rule *given = rule ? rule : &usual;
    /* a device that has sessions stays shared */
    int choice = given->policy == DV_POLICY_NONE ? DV_POLICY_ELASTIC : given->policy;

    *terms = (struct dvd_device_terms){
        .is_shared_out = given->policy != DV_POLICY_NONE,
        .is_hidden = !is_offered(report, rule),
        .policy = dv_policy_by_name(dvd_config_policy_word(choice)),
        .slots = given->slots ? (uint32_t)*given->slots : 1,
        .slice_ns = given->slice_ns,
        .slice_kernels = dvd_device_rule_slices(given),
        .kernel_slice_ns = given->kernel_slice_ns ? given->kernel_slice_ns : DV_KERNEL_SLICE_NS,
        .kernel_slice_cost_ppm = given->kernel_slice_cost_ppm ? given->kernel_slice_cost_ppm : DV_KERNEL_SLICE_COST_PPM,
        .moving_part_ppm = given->swap_part_ppm ? given->swap_part_ppm : DV_MOVING_PART_PPM,
        .moved_slice_max_ns = given->moved_slice_max_ns ? given->moved_slice_max_ns : DV_MOVED_SLICE_MAX_NS,
        .room_patience_ns = given->room_patience_ns ? given->room_patience_ns : DV_ROOM_PATIENCE_NS,
        .capacity_bytes = given->capacity_bytes ? given->capacity_bytes : report->memory_bytes,
        .per_context_bytes = given->per_context_bytes,
        .swaps = swaps(report, rule),
        .copies_beside = copies_beside(report, rule)};
    dv_text_copy(terms->name, sizeof terms->name, given->name ? given->name : report->name);
}

void dvd_devices_terms(const struct dvd_devices *devices, const struct dvd_config *config,
                       struct dvd_device_terms terms[DV_MAX_DEVICES])
{
    for (uint32_t i = 0; i < devices->count; i++) {
        fill_terms(&devices->reports[i], dvd_devices_rule(devices, i, config), &terms[i]);
        terms[i].group = devices->groups[i];
    }
}

/* Whether programs of an API may have it, which need its driver. */
static bool is_for_programs(const struct dvd_devices *devices, uint32_t index, const struct dvd_config *config)
{
    const struct dv_device_report *report = &devices->reports[index];

    return report->kind == DV_DEVICE_VENDOR && is_offered(report, dvd_devices_rule(devices, index, config));
}

/* Adds the offered devices that an item names. Returns false when it names none. */
static bool choose_item(const struct dvd_devices *devices, const struct dvd_config *config, const char *item,
                        bool chosen[DV_MAX_DEVICES])
{
    struct dvd_device_match match = dvd_device_match_parse(item);
    bool any = false;

    for (uint32_t i = 0; i < devices->count; i++) {
        const struct dvd_device_rule *rule = dvd_devices_rule(devices, i, config);
        if (!is_for_programs(devices, i, config) ||
            !dvd_device_match_is(&match, i, &devices->reports[i], rule ? rule->name : NULL))
            continue;
        chosen[i] = any = true;
    }
    return any;
}

uint32_t dvd_devices_choose(const struct dvd_devices *devices, const struct dvd_config *config, const char *choice,
                            struct dvd_device_id ids[DV_MAX_DEVICES], char *text, size_t bytes)
{
    bool chosen[DV_MAX_DEVICES] = {0};
    uint32_t count = 0;

    for (const char *at = choice; at && *at;) {
        char item[DV_MAX_DEVICE_CHOICE];
        size_t length = strcspn(at, ",");
        snprintf(item, sizeof item, "%.*s", (int)length, at);
        if (!choose_item(devices, config, item, chosen)) {
            dv_text_clean(item, sizeof item);
            snprintf(text, bytes, "'%.100s' names no offered device; `divvy devices` lists them", item);
            return 0;
        }
        at += length + (at[length] == ',');
    }
    for (uint32_t i = 0; i < devices->count; i++)
        if (choice ? chosen[i] : is_for_programs(devices, i, config))
            ids[count++].number = (uint8_t)i;
    if (count == 0)
        snprintf(text, bytes, "this machine has no device to offer: %.300s",
                 devices->vendor_count ? "the configuration hides all of them" : devices->text);
    return count;
}

uint32_t dvd_devices_choose_same(const struct dvd_devices *devices, const struct dvd_config *config,
                                 const char *numbers, struct dvd_device_id ids[DV_MAX_DEVICES], char *text,
                                 size_t bytes)
{
    uint32_t count = 0;

    snprintf(text, bytes, "this machine no longer offers the devices that the program has used");
    while (*numbers) {
        char *end;
        unsigned long number = strtoul(numbers, &end, 10);
        if (end == numbers || (*end && *end != ',') || number >= devices->count || count == DV_MAX_DEVICES ||
            !is_for_programs(devices, (uint32_t)number, config))
            return 0;
        for (uint32_t i = 0; i < count; i++)
            if (ids[i].number == number)
                return 0;
        ids[count++].number = (uint8_t)number;
        numbers = *end ? end + 1 : end;
    }
    return count;
}

uint32_t dvd_devices_choose_lease_only(const struct dvd_devices *devices, const struct dvd_config *config,
                                       const char *name, struct dvd_device_id ids[DV_MAX_DEVICES], char *text,
                                       size_t bytes)
{
    char clean[DV_MAX_DEVICE_CHOICE];

    for (uint32_t i = 0; i < devices->count; i++)
        if (is_lease_only(&devices->reports[i], name) &&
            is_offered(&devices->reports[i], dvd_devices_rule(devices, i, config))) {
            ids[0].number = (uint8_t)i;
            return 1;
        }
    dv_text_copy(clean, sizeof clean, name);
    snprintf(text, bytes,
             "'%.100s' is no lease-only device here; `divvy devices` lists them, and divvy.yaml names them", clean);
    return 0;
}

struct dv_device_grant dvd_devices_grant(const struct dvd_devices *devices, uint32_t index,
                                         const struct dvd_config *config, uint32_t present_as)
{
    const struct dv_device_report *report = &devices->reports[index];
    const struct dvd_device_rule *rule = dvd_devices_rule(devices, index, config);
    struct dv_device_grant grant = {.platform = report->platform,
                                    .device = report->device,
                                    .number = index,
                                    .scrubbed = is_scrubbed(report, rule),
                                    .pinned = rule ? (uint32_t)rule->pinned : DV_PINNED_AUTO};

    if (rule) {
        grant.unified = (uint32_t)rule->unified;
        grant.present_as = (uint32_t)rule->present_as;
        if (rule->name)
            dv_text_copy(grant.name, sizeof grant.name, rule->name);
    }
    if (present_as != DV_PRESENT_AS_IS)
        grant.present_as = present_as;
    return grant;
}

const char *dvd_devices_type_word(const struct dv_device_report *report)
{
    if (report->kind == DV_DEVICE_LEASE_ONLY)
        return "lease-only";
    if (report->type & TYPE_GPU)
        return "gpu";
    if (report->type & TYPE_ACCELERATOR)
        return "accelerator";
    return report->type & TYPE_CPU ? "cpu" : "custom";
}

const char *dvd_present_as_word(uint32_t present_as)
{
    static const char *const words[] = {"as-is", "cpu", "gpu", "accelerator"};
    return present_as < sizeof words / sizeof words[0] ? words[present_as] : "as-is";
}
