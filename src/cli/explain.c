/* divvy explain: what a session waits for, why it was granted the device, and how its tenant's
 * share compares with what it is entitled to. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/table.h"
#include "src/cli/values.h"
#include "src/policy/policy.h"

static const char usage[] =
    "Usage: divvy explain SESSION [--json] [--daemon DIR]\n"
    "\n"
    "Prints for each device what a session (a number from `divvy ps`) does there or waits for,\n"
    "the rule that last granted it the device, and the share that its tenant had.\n"
    "\n"
    "  --json         the daemon's answer as it is, for scripts\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n"
    "\n"
    "ENTITLED is the share that the tenant should have now if it always has work. Over one\n"
    "second its share can be off by BOUND points, because work runs in slices. A tenant that\n"
    "pauses gets less, and a tenant beside others that pause gets more.\n";

static const char *state_words(const char *state)
{
    if (strcmp(state, "holds") == 0)
        return "holds the device";
    if (strcmp(state, "waits") == 0)
        return "waits for the device";
    if (strcmp(state, "idle") == 0)
        return "idle: it has no work for the device";
    return state;
}

static void print_line(const char *label, const char *text)
{
    if (text[0])
        printf("  %-11s %s\n", label, text);
}

static double number_of(const json_t *device, const char *key)
{
    return json_number_value(json_object_get(device, key));
}

static void print_state(const json_t *device)
{
    char since[32], text[160];

    dv_value_format_duration(since, sizeof since, number_of(device, "since_s"));
    snprintf(text, sizeof text, "%s, for %s", state_words(dv_http_text(device, "state", "unknown")), since);
    print_line("state", text);
    print_line("why", dv_http_text(device, "why", ""));
}

static void print_last_slice(const json_t *device)
{
    const char *rule = dv_http_text(device, "rule", "");
    char slice[32];

    if (number_of(device, "grants") == 0) {
        print_line("last grant", "none yet");
        return;
    }
    dv_value_format_duration(slice, sizeof slice, number_of(device, "slice_ms") / 1e3);
    printf("  %-11s %s%sa slice of %s\n", "last grant", rule, rule[0] ? "; " : "", slice);
}

static void print_estimates(const json_t *device)
{
    double compiling_s = number_of(device, "compiling_s");
    char kernel[32], burst[32], compiling[32];

    if (number_of(device, "kernel_ms") > 0 || number_of(device, "burst_ms") > 0) {
        dv_value_format_duration(kernel, sizeof kernel, number_of(device, "kernel_ms") / 1e3);
        dv_value_format_duration(burst, sizeof burst, number_of(device, "burst_ms") / 1e3);
        printf("  %-11s kernels of up to %s, work without a pause for %s\n", "estimates", kernel, burst);
    } else {
        print_line("estimates", "none yet");
    }
    if (compiling_s > 0) {
        dv_value_format_duration(compiling, sizeof compiling, compiling_s);
        printf("  %-11s %s in first launches: charged, but left out of the estimates\n", "compiling", compiling);
    }
}

static void print_memory(const json_t *device)
{
    double moving_s = number_of(device, "moving_s");
    double held_s = number_of(device, "held_s");
    char placed[32], moving[32], most[32];

    if (number_of(device, "placed_bytes") <= 0 && moving_s <= 0)
        return;
    dv_text_format_size(placed, sizeof placed, (uint64_t)number_of(device, "placed_bytes"));
    dv_value_format_duration(moving, sizeof moving, moving_s);
    printf("  %-11s room for %s on the device, %s spent on bringing memory in", "memory", placed, moving);
    if (moving_s > 0 && held_s > 0) { /* the cost for this session, and for others */
        dv_value_format_duration(most, sizeof most, number_of(device, "slice_max_s"));
        printf(", %.0f%% of its time:\n  %-11s so slices are longer, and others wait for up to %s (slice-max)",
               moving_s < held_s ? 100 * moving_s / held_s : 100.0, "", most);
    }
    putchar('\n');
}

static void print_share(const json_t *device)
{
    char request[32], limit[32];

    dv_value_format_share(request, sizeof request, json_integer_value(json_object_get(device, "request_ppm")));
    dv_value_format_share(limit, sizeof limit, json_integer_value(json_object_get(device, "limit_ppm")));
    printf("  %-11s request %s, limit %s, weight %" PRId64 ", class %s\n", "tenant has", request, limit,
           (int64_t)json_integer_value(json_object_get(device, "weight")), dv_http_text(device, "class", "?"));
}

/* Entitlements and bounds are current values, so only the last second is compared with them. */
static void add_window(struct dv_table *table, const char *label, const json_t *device, const char *key, bool is_recent)
{
    const json_t *share = json_object_get(device, key);
    const json_t *entitled = json_object_get(device, "entitled_ppm");
    const json_t *bound = json_object_get(device, "error_bound_ppm");
    const double points = DV_PPM / 100.0;
    char text[32];

    dv_table_add(table, "  %s", label);
    dv_value_format_measured(text, sizeof text, share);
    dv_table_add(table, "%s", text);
    dv_value_format_measured(text, sizeof text, entitled);
    dv_table_add(table, "%s", text);
    if (is_recent && json_is_number(share) && json_is_number(entitled))
        dv_table_add(table, "%+.1f", (json_number_value(share) - json_number_value(entitled)) / points);
    else
        dv_table_add(table, "-");
    if (is_recent && json_is_number(bound))
        dv_table_add(table, "%.1f", json_number_value(bound) / points);
    else
        dv_table_add(table, "-");
}

static void print_windows(const json_t *device)
{
    static const char *const heading[] = {"  OVER THE LAST", "SHARE", "ENTITLED", "DIFFERENCE", "BOUND"};
    static const bool right[] = {false, true, true, true, true};
    struct dv_table table;

    dv_table_init(&table, sizeof heading / sizeof heading[0], heading, right);
    add_window(&table, "1 s", device, "share_1s_ppm", true);
    add_window(&table, "10 s", device, "share_10s_ppm", false);
    add_window(&table, "60 s", device, "share_60s_ppm", false);
    dv_table_finish(&table);
    if (strcmp(dv_http_text(device, "policy", ""), "elastic") != 0)
        puts("  (only the policy elastic enforces entitlements)");
}

static void print_device(const json_t *device)
{
    printf("\ndevice %" PRId64 ": %s, policy %s\n", (int64_t)json_integer_value(json_object_get(device, "index")),
           dv_http_text(device, "device", "?"), dv_http_text(device, "policy", "none"));
    print_state(device);
    print_last_slice(device);
    printf("  %-11s %.0f grants, %.0f of them recalled\n", "so far", number_of(device, "grants"),
           number_of(device, "recalls"));
    print_estimates(device);
    print_memory(device);
    print_share(device);
    putchar('\n');
    print_windows(device);
}

static void print_session(const json_t *document)
{
    const json_t *devices = json_object_get(document, "devices");
    size_t position;
    json_t *device;

    printf("session %" PRId64 ": %s, of the tenant %s\n", (int64_t)json_integer_value(json_object_get(document, "id")),
           dv_http_text(document, "command", "?"), dv_http_text(document, "tenant", "?"));
    if (strcmp(dv_http_text(document, "state", ""), "ended") == 0) {
        print_line("ended", dv_http_text(document, "why", "for an unknown reason"));
        return;
    }
    if (dv_http_text(document, "turned_away", "")[0])
        print_line("refused", dv_http_text(document, "turned_away", ""));
    if (json_array_size(devices) == 0)
        puts("It uses no device whose time is shared: it has created no context yet, or the "
             "policy is none.");
    json_array_foreach(devices, position, device) print_device(device);
}

int dv_cli_explain(int argc, char **argv)
{
    struct dv_cli_view view;
    uint64_t session;
    char path[64];

    int code = dv_cli_parse_view(argc, argv, usage, 1, &view);
    if (code != DV_EXIT_OK)
        return code;
    if (dv_text_parse_number(argv[optind], INT64_MAX, &session) < 0) {
        dv_cli_error("SESSION is a number, not '%s'. `divvy ps` lists the sessions.", argv[optind]);
        return DV_EXIT_USAGE;
    }
    snprintf(path, sizeof path, "/v1/sessions/%" PRIu64 "/explain", session);
    return dv_http_show(&view, "GET", path, print_session);
}
