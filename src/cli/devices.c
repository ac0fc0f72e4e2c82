/* divvy devices: the devices of a daemon, and warnings about them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/table.h"
#include "src/cli/values.h"

static const char usage[] =
    "Usage: divvy devices [--json] [--daemon DIR]\n"
    "\n"
    "Lists the devices that are shared, and warns of devices that programs can reach without\n"
    "divvy.\n"
    "\n"
    "  --json         the daemon's answer as it is, for scripts\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n"
    "\n"
    "Columns: number, name, type, memory, compute units, whether it computes in the host's\n"
    "memory (unified), the type that programs see, the policy by which its time is shared\n"
    "(none: it is not), how many sessions can hold it at once, the length of their slices, the\n"
    "sessions on it now, its address on the PCI bus and its UUID (unknown: its driver does not\n"
    "say). `divvy run --device` takes number, name, address or UUID.\n";

static void add_policy(struct dv_table *table, const json_t *device)
{
    const char *policy = dv_http_text(device, "policy", "none");
    int64_t slice_ns = json_integer_value(json_object_get(device, "slice_ns"));
    char slice[32] = "learned";

    dv_table_add(table, "%s", policy);
    if (strcmp(policy, "none") == 0) { /* there are no slices */
        dv_table_add(table, "-");
        dv_table_add(table, "-");
        return;
    }
    if (slice_ns > 0)
        dv_value_format_duration(slice, sizeof slice, (double)slice_ns / 1e9);
    dv_table_add(table, "%" PRId64, (int64_t)json_integer_value(json_object_get(device, "slots")));
    dv_table_add(table, "%s", slice);
}

static void add_device(struct dv_table *table, const json_t *device)
{
    const char *type = dv_http_text(device, "type", "?");
    const char *shown_as = dv_http_text(device, "present_as", "as-is");
    char memory[32];

    dv_text_format_size(memory, sizeof memory, (uint64_t)json_integer_value(json_object_get(device, "memory_bytes")));
    dv_table_add(table, "%" PRId64, (int64_t)json_integer_value(json_object_get(device, "index")));
    dv_table_add(table, "%s", dv_http_text(device, "name", "?"));
    dv_table_add(table, "%s", type);
    dv_table_add(table, "%s", memory);
    dv_table_add(table, "%" PRId64, (int64_t)json_integer_value(json_object_get(device, "compute_units")));
    dv_table_add(table, "%s", json_is_true(json_object_get(device, "unified")) ? "yes" : "no");
    if (json_is_true(json_object_get(device, "hidden")))
        dv_table_add(table, "(hidden)");
    else
        dv_table_add(table, "%s", strcmp(shown_as, "as-is") == 0 ? type : shown_as);
    add_policy(table, device);
    dv_table_add(table, "%" PRId64, (int64_t)json_integer_value(json_object_get(device, "sessions")));
    dv_table_add(table, "%s", dv_http_text(device, "pci", "unknown"));
    dv_table_add(table, "%s", dv_http_text(device, "uuid", "unknown"));
}

static bool has_warning(const json_t *device, const json_t *warning)
{
    size_t index;
    json_t *other;

    json_array_foreach(json_object_get(device, "warnings"), index, other)
    {
        if (json_equal(other, warning))
            return true;
    }
    return false;
}

/* Prints a warning once, at the first device that has it, with the numbers of all such devices. */
static void print_warning(const json_t *devices, size_t first, const json_t *warning)
{
    size_t index;
    json_t *device;

    for (index = 0; index < first; index++)
        if (has_warning(json_array_get(devices, index), warning))
            return;
    printf("\nwarning, device ");
    json_array_foreach(devices, index, device)
    {
        if (has_warning(device, warning))
            printf("%s%zu", index == first ? "" : ", ", index);
    }
    printf(": %s\n", json_string_value(warning));
}

static void print_warnings(const json_t *devices)
{
    size_t index, number;
    json_t *device, *warning;

    json_array_foreach(devices, index, device)
    {
        json_array_foreach(json_object_get(device, "warnings"), number, warning)
        {
            if (json_is_string(warning))
                print_warning(devices, index, warning);
        }
    }
}

static void print_table(const json_t *document)
{
    static const char *const heading[] = {"DEVICE", "NAME",  "TYPE",  "MEMORY",   "UNITS", "UNIFIED", "SHOWN-AS",
                                          "POLICY", "SLOTS", "SLICE", "SESSIONS", "PCI",   "UUID"};
    static const bool right[] = {true, false, false, true, true, false, false, false, true, false, true, false, false};
    const json_t *devices = json_object_get(document, "devices");
    struct dv_table table;
    size_t index;
    json_t *device;

    if (json_array_size(devices) == 0) {
        printf("no devices: %s\n", dv_http_text(document, "note", "the daemon gives no reason"));
        return;
    }
    dv_table_init(&table, sizeof heading / sizeof heading[0], heading, right);
    json_array_foreach(devices, index, device) add_device(&table, device);
    dv_table_finish(&table);
    int64_t found = json_integer_value(json_object_get(document, "found"));
    if (found > (int64_t)json_array_size(devices))
        printf("\nThe vendors offer %" PRId64 " devices. divvyd serves the first %zu; the others are not "
               "offered to programs.\n",
               found, json_array_size(devices));
    print_warnings(devices);
}

int dv_cli_devices(int argc, char **argv)
{
    struct dv_cli_view view;

    int code = dv_cli_parse_view(argc, argv, usage, 0, &view);
    return code == DV_EXIT_OK ? dv_http_show(&view, "GET", "/v1/devices", print_table) : code;
}
