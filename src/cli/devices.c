/* divvy devices: the devices of a daemon, how busy they are, and warnings about them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/table.h"
#include "src/cli/values.h"

static const char usage[] =
    "Usage: divvy devices [-v] [--json] [--daemon DIR]\n"
    "\n"
    "Lists the devices that are shared, and how busy they are.\n"
    "\n"
    "  -v, --verbose  more columns\n"
    "  --json         the daemon's answer as it is, for scripts\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n"
    "\n"
    "Columns: DEVICE number, NAME, the part of the last second (BUSY-1s) and of the last minute\n"
    "(BUSY-60s) in which programs held it (- where its time is not shared), MEMORY in use and in\n"
    "all, SESSIONS on it, sessions that are WAITING for it, and the POLICY by which its time is\n"
    "shared (none: it is not). With -v: TYPE, compute UNITS, whether it computes in the host's\n"
    "memory (UNIFIED), the type that programs see (SHOWN-AS), how many sessions can hold it at\n"
    "once (SLOTS), the length of their SLICEs, its address on the PCI bus and its UUID (unknown:\n"
    "its driver does not say). `divvy run --device` takes number, name, address or UUID.\n";

static double number_of(const json_t *device, const char *key)
{
    return json_number_value(json_object_get(device, key));
}

static void add_part(struct dv_table *table, const json_t *ppm)
{
    if (json_is_number(ppm))
        dv_table_add(table, "%.0f%%", json_number_value(ppm) / 1e4);
    else
        dv_table_add(table, "-");
}

static void add_load(struct dv_table *table, const json_t *device)
{
    char memory[64];

    dv_value_format_part(memory, sizeof memory, (uint64_t)number_of(device, "memory_used_bytes"),
                         (uint64_t)number_of(device, "memory_bytes"));
    dv_table_add(table, "%.0f", number_of(device, "index"));
    dv_table_add(table, "%s", dv_http_text(device, "name", "?"));
    add_part(table, json_object_get(device, "busy_1s_ppm"));
    add_part(table, json_object_get(device, "busy_60s_ppm"));
    dv_table_add(table, "%s", memory);
    dv_table_add(table, "%.0f", number_of(device, "sessions"));
    dv_table_add(table, "%.0f", number_of(device, "waiting"));
    dv_table_add(table, "%s", dv_http_text(device, "policy", "none"));
}

static void add_slices(struct dv_table *table, const json_t *device)
{
    double slice_ns = number_of(device, "slice_ns");
    char slice[32] = "learned";

    if (strcmp(dv_http_text(device, "policy", "none"), "none") == 0) { /* there are no slices */
        dv_table_add(table, "-");
        dv_table_add(table, "-");
        return;
    }
    if (slice_ns > 0)
        dv_value_format_duration(slice, sizeof slice, slice_ns / 1e9);
    dv_table_add(table, "%.0f", number_of(device, "slots"));
    dv_table_add(table, "%s", slice);
}

static void add_details(struct dv_table *table, const json_t *device)
{
    const char *type = dv_http_text(device, "type", "?");
    const char *shown_as = dv_http_text(device, "present_as", "as-is");

    dv_table_add(table, "%s", type);
    dv_table_add(table, "%.0f", number_of(device, "compute_units"));
    dv_table_add(table, "%s", json_is_true(json_object_get(device, "unified")) ? "yes" : "no");
    if (json_is_true(json_object_get(device, "hidden")))
        dv_table_add(table, "(hidden)");
    else
        dv_table_add(table, "%s", strcmp(shown_as, "as-is") == 0 ? type : shown_as);
    add_slices(table, device);
    dv_table_add(table, "%s", dv_http_text(device, "pci", "unknown"));
    dv_table_add(table, "%s", dv_http_text(device, "uuid", "unknown"));
}

static void print_table(const json_t *devices, bool verbose)
{
    enum { FEW = 8 };
    static const char *const heading[] = {"DEVICE",  "NAME",   "BUSY-1s", "BUSY-60s", "MEMORY",  "SESSIONS",
                                          "WAITING", "POLICY", "TYPE",    "UNITS",    "UNIFIED", "SHOWN-AS",
                                          "SLOTS",   "SLICE",  "PCI",     "UUID"};
    static const bool right[] = {true,  false, true,  true,  true, true,  true,  false,
                                 false, true,  false, false, true, false, false, false};
    struct dv_table table;
    size_t index;
    json_t *device;

    dv_table_init(&table, verbose ? sizeof heading / sizeof heading[0] : FEW, heading, right);
    json_array_foreach(devices, index, device)
    {
        add_load(&table, device);
        if (verbose)
            add_details(&table, device);
    }
    dv_table_finish(&table);
}

static void print_notes(const json_t *document)
{
    const json_t *devices = json_object_get(document, "devices");
    double found = number_of(document, "found");
    size_t index;
    json_t *warning;

    if (found > (double)json_array_size(devices))
        printf("\nThe vendors offer %.0f devices. divvyd serves the first %zu; the others are not offered to "
               "programs.\n",
               found, json_array_size(devices));
    json_array_foreach(json_object_get(document, "warnings"), index, warning)
    {
        fprintf(stderr, "warning: %s\n", json_is_string(warning) ? json_string_value(warning) : "?");
    }
}

static void print_devices(const json_t *document, bool verbose)
{
    const json_t *devices = json_object_get(document, "devices");

    if (json_array_size(devices) == 0) {
        printf("no devices: %s\n", dv_http_text(document, "note", "the daemon gives no reason"));
        return;
    }
    print_table(devices, verbose);
    fflush(stdout);
    print_notes(document);
}

static void print_few(const json_t *document)
{
    print_devices(document, false);
}

static void print_all(const json_t *document)
{
    print_devices(document, true);
}

int dv_cli_devices(int argc, char **argv)
{
    struct dv_cli_view view;
    bool verbose;

    if (dv_cli_parse_verbose(argc, argv, usage, &view, &verbose) != DV_EXIT_OK)
        return DV_EXIT_USAGE;
    int code = dv_cli_check_arguments(argc, argv, 0);
    return code == DV_EXIT_OK ? dv_http_show(&view, "GET", "/v1/devices", verbose ? print_all : print_few) : code;
}
