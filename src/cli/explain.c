/* divvy explain: what a session waits for, why it was granted the device, and how its tenant's
 * share compares with what it is entitled to. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/session_name.h"
#include "src/cli/table.h"
#include "src/cli/values.h"
#include "src/policy/policy.h"

static const char usage[] =
    "Usage: divvy explain [SESSION] [-v] [--json] [--daemon DIR]\n"
    "\n"
    "Prints what a session (a number or name from `divvy ps`) does or waits for on each device, and why;\n"
    "or how it ended, within the last hour. Without SESSION: the same for the sessions that wait\n"
    "now.\n"
    "\n"
    "  -v, --verbose  also grants, estimates, memory, and the shares of its tenant\n"
    "  --json         the daemon's answer as it is, for scripts; without SESSION, an array of answers\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n"
    "\n"
    "With -v, ENTITLED is the share that the tenant should have now if it always has work. Over\n"
    "one second its share can be off by BOUND points, because work runs in slices. A tenant that\n"
    "pauses gets less, and a tenant beside others that pause gets more.\n";

static bool verbose;

static void print_line(const char *label, const char *text)
{
    if (text[0])
        printf("  %-11s %s\n", label, text);
}

static double number_of(const json_t *device, const char *key)
{
    return json_number_value(json_object_get(device, key));
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
    double held_s = number_of(device, "used_s");
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

/* ---- one session ---- */

static const char *words_for(const char *state)
{
    static const struct {
        const char *state, *words;
    } all[] = {{"computing", "uses"},
               {"waiting", "waits for"},
               {"moving memory", "brings memory to"},
               {"waiting for memory", "waits for memory of"},
               {"idle", "has no work for"},
               {"recovering", "is asked what it holds of"}};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(state, all[i].state) == 0)
            return all[i].words;
    return state;
}

/* Breaks a text into lines behind its label. */
static void print_reason(const char *label, const char *text)
{
    enum { WIDTH = 100, INDENT = 12 };
    size_t column = INDENT;

    if (!text[0])
        return;
    printf("  %-*s", INDENT - 2, label);
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column + word > WIDTH && column > INDENT) {
            printf("\n%*s", INDENT, "");
            column = INDENT;
        }
        printf("%.*s%s", (int)word, text, text[word] ? " " : "");
        column += word + 1;
        text += word + (text[word] == ' ');
    }
    putchar('\n');
}

static bool is_in(const json_t *device, const char *state)
{
    return strcmp(dv_http_text(device, "state", ""), state) == 0;
}

static bool compiles(const json_t *device)
{
    return is_in(device, "compiling");
}

static void print_entitled(const json_t *device)
{
    const json_t *tenant = json_object_get(device, "of_tenant");
    double entitled = number_of(tenant, "entitled_ppm") / 1e4, had = number_of(tenant, "share_10s_ppm") / 1e4;
    char text[256];

    if (strcmp(dv_http_text(tenant, "policy", ""), "elastic") != 0 || is_in(device, "idle") || compiles(device))
        return;
    snprintf(text, sizeof text, "to %.0f%%; its tenant got %.0f%% of the last 10 s.%s", entitled, had,
             is_in(device, "waiting") && had + 1 < entitled ? " The rest is owed, and is paid back." : "");
    print_reason("Entitled", text);
}

static void print_details(const json_t *device)
{
    const json_t *tenant = json_object_get(device, "of_tenant");

    print_last_slice(device);
    printf("  %-11s %.0f grants, %.0f of them recalled\n", "so far", number_of(device, "grants"),
           number_of(device, "recalls"));
    print_estimates(device);
    print_memory(device);
    print_share(tenant);
    putchar('\n');
    print_windows(tenant);
    putchar('\n');
}

/* Which kernels can go to the device in parts, so that others need not wait for their end. */
static void print_kernels(const json_t *document)
{
    static const char *const heading[] = {"  KERNEL", "SLICED", "LAUNCHES", "IN SLICES", "SLICES", "WHOLE BECAUSE"};
    static const bool right[] = {false, false, true, true, true, false};
    const json_t *kernels = json_object_get(document, "kernel_list"), *kernel;
    struct dv_table table;
    size_t position;

    if (json_array_size(kernels) == 0)
        return;
    dv_table_init(&table, sizeof heading / sizeof heading[0], heading, right);
    json_array_foreach(kernels, position, kernel)
    {
        const char *verdict = dv_http_text(kernel, "verdict", "?");
        dv_table_add(&table, "  %s", dv_http_text(kernel, "name", "?"));
        dv_table_add(&table, "%s",
                     strcmp(verdict, "free") == 0    ? "as it is"
                     : strcmp(verdict, "whole") == 0 ? "never"
                                                     : verdict);
        dv_table_add(&table, "%.0f", number_of(kernel, "launches"));
        dv_table_add(&table, "%.0f", number_of(kernel, "in_parts"));
        dv_table_add(&table, "%.0f", number_of(kernel, "parts"));
        dv_table_add(&table, "%s", dv_http_text(kernel, "whole_because", ""));
    }
    dv_table_finish(&table);
    putchar('\n');
}

/* "session 7 (python3 train.py, tenant ann)": the command says too little of a script. A session that was refused has
 * no tenant. */
static void print_who(const json_t *document)
{
    enum { COLUMNS = 40 };
    const char *tenant = dv_http_text(document, "tenant", "?");
    char text[512];

    dv_session_describe(text, sizeof text, document);
    size_t shown = dv_text_fit(text, COLUMNS);
    printf("session %.0f (%.*s%s%s%s)", number_of(document, "id"), (int)shown, text, text[shown] ? "..." : "",
           tenant[0] ? ", tenant " : "", tenant);
}

static void print_device(const json_t *document, const json_t *device)
{
    char since[32];

    dv_value_format_duration(since, sizeof since, number_of(device, "state_s"));
    print_who(document);
    if (compiles(device)) /* it is not known for which of its devices */
        printf(" compiles its kernels, for %s.\n", since);
    else
        printf(" %s device %.0f, \"%s\", for %s.\n", words_for(dv_http_text(device, "state", "?")),
               number_of(device, "index"), dv_http_text(device, "name", "?"), since);
    print_reason("Because", dv_http_text(device, "because", ""));
    print_entitled(device);
    print_reason("To change", dv_http_text(device, "to_change", ""));
    if (verbose)
        print_details(device);
}

static void print_end(const json_t *document)
{
    char when[32];

    dv_value_format_clock(when, sizeof when, dv_http_text(document, "ended", ""));
    print_who(document);
    printf(" %s at %s: %s.\n", strcmp(dv_http_text(document, "state", ""), "refused") == 0 ? "was refused" : "ended",
           when, dv_http_text(document, "why", "for an unknown reason"));
}

static void print_session(const json_t *document)
{
    const json_t *devices = json_object_get(document, "devices");
    bool has_compiled = false;
    size_t position;
    json_t *device;

    if (json_object_get(document, "ended")) {
        print_end(document);
        return;
    }
    print_line("refused", dv_http_text(document, "turned_away", ""));
    if (json_array_size(devices) == 0) {
        print_who(document);
        printf(": %s. It uses no device whose time is shared: it has created no context yet, or the policy is none.\n",
               dv_http_text(document, "state", "?"));
    }
    json_array_foreach(devices, position, device)
    {
        if (!compiles(device) || !has_compiled || verbose) /* once is enough */
            print_device(document, device);
        has_compiled |= compiles(device);
    }
    if (verbose)
        print_kernels(document);
}

/* ---- the command ---- */

static int explain(const struct dv_cli_view *view, uint64_t session)
{
    char path[64];

    snprintf(path, sizeof path, "/v1/sessions/%" PRIu64 "/explain", session);
    return dv_http_show(view, "GET", path, print_session);
}

static bool is_waiting(const json_t *state)
{
    return strncmp(dv_http_text(state, "state", ""), "waiting", 7) == 0;
}

/* A session of several devices may compute on one and wait for another. */
static bool waits_for_any(const json_t *session)
{
    size_t index;
    json_t *device;

    json_array_foreach(json_object_get(session, "devices"), index, device)
    {
        if (is_waiting(device))
            return true;
    }
    return is_waiting(session);
}

static int explain_waiting(const struct dv_cli_view *view)
{
    DV_AUTO_FREE char *body = NULL;
    json_t *document = NULL, *session;
    unsigned count = 0;
    size_t index;

    int code = dv_http_get(view->daemon_directory, "/v1/sessions", &body, &document);
    if (code != DV_EXIT_OK)
        return code;
    if (view->json)
        putchar('[');
    json_array_foreach(json_object_get(document, "sessions"), index, session)
    {
        if (code != DV_EXIT_OK || !waits_for_any(session))
            continue;
        if (view->json && count)
            putchar(',');
        code = explain(view, (uint64_t)json_integer_value(json_object_get(session, "id")));
        count++;
    }
    if (view->json)
        puts("]");
    else if (code == DV_EXIT_OK && count == 0)
        puts("no session waits now");
    json_decref(document);
    return code;
}

int dv_cli_explain(int argc, char **argv)
{
    struct dv_cli_view view;
    uint64_t session;

    if (dv_cli_parse_verbose(argc, argv, usage, &view, &verbose) != DV_EXIT_OK)
        return DV_EXIT_USAGE;
    if (optind == argc)
        return explain_waiting(&view);
    if (dv_cli_check_arguments(argc, argv, 1) != DV_EXIT_OK)
        return DV_EXIT_USAGE;
    int code = dv_session_find(&view, argv[optind], &session);
    return code == DV_EXIT_OK ? explain(&view, session) : code;
}
