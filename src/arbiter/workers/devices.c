/* Devices and the rules that apply to them (see devices.h). */
#include "src/arbiter/workers/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
}

/* Whether the two devices are interchangeable for a program. */
static bool are_alike(const struct dv_device_report *a, const struct dv_device_report *b)
{
    return a->platform == b->platform && a->type == b->type && a->compute_units == b->compute_units &&
           strcmp(a->name, b->name) == 0 && strcmp(a->version, b->version) == 0;
}

void dvd_devices_group(struct dvd_devices *devices)
{
    for (uint32_t i = 0; i < devices->count; i++) {
        uint32_t first = 0;
        while (first < i && !are_alike(&devices->reports[first], &devices->reports[i]))
            first++;
        devices->groups[i] = (uint8_t)first;
    }
}

bool dvd_devices_take(struct dvd_devices *devices, const struct dv_zygote_answer *answer, uint64_t now_us)
{
    if (answer->device_count > DV_MAX_DEVICES)
        return false;
    devices->known = true;
    devices->probed_us = now_us;
    devices->count = answer->device_count;
    devices->found = answer->devices_found;
    devices->had_some |= devices->count > 0;
    /* running sessions keep the devices that they have */
    memcpy(devices->reports, answer->devices, devices->count * sizeof *devices->reports);
    for (uint32_t i = 0; i < devices->count; i++)
        clean_report(&devices->reports[i]);
    dvd_devices_group(devices);
    memcpy(devices->text, answer->text, sizeof devices->text);
    dv_text_clean(devices->text, sizeof devices->text);
    return true;
}

const struct dvd_device_rule *dvd_devices_rule(const struct dvd_devices *devices, uint32_t index,
                                               const struct dvd_config *config)
{
    const struct dvd_config_file *file = config->file;

    for (uint64_t i = 0; file && i < file->devices_count; i++)
        if (dvd_device_match_is(&file->devices[i].matches, index, &devices->reports[index], NULL))
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

static void fill_terms(const struct dv_device_report *report, const struct dvd_device_rule *rule,
                       struct dvd_device_terms *terms)
{
    static const struct dvd_device_rule usual;
    const struct dvd_device_rule *given = rule ? rule : &usual;
    /* a device that has sessions stays shared */
    int choice = given->policy == DV_POLICY_NONE ? DV_POLICY_ELASTIC : given->policy;

    *terms = (struct dvd_device_terms){
        .is_shared_out = given->policy != DV_POLICY_NONE,
        .is_hidden = given->hidden,
        .policy = dv_policy_by_name(dvd_config_policy_word(choice)),
        .slots = given->slots ? (uint32_t)*given->slots : 1,
        .slice_ns = given->slice_ns,
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

static bool is_offered(const struct dvd_devices *devices, uint32_t index, const struct dvd_config *config)
{
    const struct dvd_device_rule *rule = dvd_devices_rule(devices, index, config);
    return !rule || !rule->hidden;
}

/* Adds the offered devices that an item names. Returns false when it names none. */
static bool choose_item(const struct dvd_devices *devices, const struct dvd_config *config, const char *item,
                        bool chosen[DV_MAX_DEVICES])
{
    struct dvd_device_match match = dvd_device_match_parse(item);
    bool any = false;

    for (uint32_t i = 0; i < devices->count; i++) {
        const struct dvd_device_rule *rule = dvd_devices_rule(devices, i, config);
        if (!is_offered(devices, i, config) ||
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
        if (choice ? chosen[i] : is_offered(devices, i, config))
            ids[count++].number = (uint8_t)i;
    if (count == 0)
        snprintf(text, bytes, "this machine has no device to offer: %.300s",
                 devices->count ? "the configuration hides all of them" : devices->text);
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
            !is_offered(devices, (uint32_t)number, config))
            return 0;
        for (uint32_t i = 0; i < count; i++)
            if (ids[i].number == number)
                return 0;
        ids[count++].number = (uint8_t)number;
        numbers = *end ? end + 1 : end;
    }
    return count;
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

const char *dvd_devices_type_word(uint64_t type)
{
    if (type & TYPE_GPU)
        return "gpu";
    if (type & TYPE_ACCELERATOR)
        return "accelerator";
    return type & TYPE_CPU ? "cpu" : "custom";
}

const char *dvd_present_as_word(uint32_t present_as)
{
    static const char *const words[] = {"as-is", "cpu", "gpu", "accelerator"};
    return present_as < sizeof words / sizeof words[0] ? words[present_as] : "as-is";
}
