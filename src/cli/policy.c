/* divvy policy: changes how a device's time is shared, while programs run on it. */
#include <fnmatch.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/values.h"
#include "src/policy/policy.h"

static const char usage[] =
    "Usage: divvy policy DEVICE NAME [OPTIONS]\n"
    "\n"
    "Changes the policy of a device immediately, while programs run on it. The change lasts\n"
    "until the configuration is read again or divvyd ends; to keep it, set it there. For\n"
    "operators.\n"
    "\n"
    "DEVICE is its number, or a pattern such as '*RTX*' that matches the name of one device\n"
    "(see `divvy devices`). NAME is\n"
    "  elastic   guaranteed shares, limits, weights and classes (the one to use)\n"
    "  fair      the tenant with the least device time for its weight is next; weights only\n"
    "  fifo      grants in order of arrival, whatever their length\n"
    "  band      equal shares by credit, with an idle window\n"
    "\n"
    "  --slice TIME   slices of this length: milliseconds, or with a unit such as 500us, up to\n"
    "                 10s; learned (the default): adapted to each program\n"
    "  --json         the daemon's answer as it is, for scripts\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n"
    "\n"
    "Example: divvy policy 0 elastic\n";

#define NAMES "elastic, fair, fifo or band"

struct policy_options {
    struct dv_cli_view view;
    bool has_slice;
    uint64_t slice_ns; /* 0: learned */
    const char *device;
    const char *policy;
};

/* A number alone is milliseconds. */
static bool parse_time(const char *text, uint64_t *ns)
{
    if (dv_text_parse_number(text, DV_SLICE_FIXED_MAX_NS / DV_NS_PER_MS, ns) == 0)
        *ns *= DV_NS_PER_MS;
    else if (dv_text_parse_time(text, ns) < 0)
        return false;
    return *ns >= DV_SLICE_FIXED_MIN_NS && *ns <= DV_SLICE_FIXED_MAX_NS;
}

static int take_slice(struct policy_options *options, const char *text)
{
    options->has_slice = true;
    options->slice_ns = 0;
    if (strcmp(text, "learned") == 0 || parse_time(text, &options->slice_ns))
        return DV_EXIT_OK;
    dv_cli_error("--slice is a time from 100us to 10s, such as 10ms or 10 (milliseconds), or the word "
                 "learned; not '%s'.",
                 text);
    return DV_EXIT_USAGE;
}

static int parse_options(int argc, char **argv, struct policy_options *policy)
{
    static const struct option options[] = {
        DV_CLI_VIEW_OPTIONS, {"slice", required_argument, NULL, 's'}, {NULL, 0, NULL, 0}};
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        int code = option == 's' ? take_slice(policy, optarg) : dv_cli_view_option(&policy->view, option, argv, usage);
        if (code != DV_EXIT_OK)
            return code;
    }
    if (argc - optind < 2) {
        dv_cli_error("%s Example: divvy policy 0 elastic; see `divvy policy --help`.",
                     optind == argc ? "missing DEVICE and NAME." : "missing NAME: " NAMES ".");
        return DV_EXIT_USAGE;
    }
    if (dv_cli_check_arguments(argc, argv, 2) != DV_EXIT_OK)
        return DV_EXIT_USAGE;
    policy->device = argv[optind];
    policy->policy = argv[optind + 1];
    if (dv_policy_by_name(policy->policy))
        return DV_EXIT_OK;
    dv_cli_error("NAME is " NAMES ", not '%s'.", policy->policy);
    return DV_EXIT_USAGE;
}

static void list_devices(const json_t *devices, const char *pattern)
{
    size_t position;
    json_t *device;

    json_array_foreach(devices, position, device)
    {
        const char *name = dv_http_text(device, "name", "");
        if (!pattern || fnmatch(pattern, name, 0) == 0)
            fprintf(stderr, "  %" PRId64 "  %s\n", (int64_t)json_integer_value(json_object_get(device, "index")), name);
    }
}

/* Finds the number of the one device whose name matches the pattern. Returns an exit code. */
static int find_device(const char *daemon_directory, const char *pattern, uint64_t *index)
{
    DV_AUTO_FREE char *body = NULL;
    json_t *document = NULL, *device;
    size_t position, fits = 0;

    int code = dv_http_get(daemon_directory, "/v1/devices", &body, &document);
    if (code != DV_EXIT_OK)
        return code;
    const json_t *devices = json_object_get(document, "devices");
    json_array_foreach(devices, position, device)
    {
        if (fnmatch(pattern, dv_http_text(device, "name", ""), 0) == 0) {
            *index = (uint64_t)json_integer_value(json_object_get(device, "index"));
            fits++;
        }
    }
    if (fits == 0) {
        dv_cli_error("no device's name fits '%s'. A name is given in full or as a pattern in "
                     "quotes, such as '*RTX*'. The devices are:",
                     pattern);
        list_devices(devices, NULL);
    } else if (fits > 1) {
        dv_cli_error("'%s' fits %zu devices. Give the number of one of them:", pattern, fits);
        list_devices(devices, pattern);
    }
    json_decref(document);
    return fits == 1 ? DV_EXIT_OK : DV_EXIT_FAILED;
}

static void print_answer(const json_t *document)
{
    int64_t slice_ns = json_integer_value(json_object_get(document, "slice_ns"));
    int64_t slots = json_integer_value(json_object_get(document, "slots"));
    int64_t sessions = json_integer_value(json_object_get(document, "sessions"));
    char slice[32] = "learned";

    if (slice_ns > 0)
        dv_value_format_duration(slice, sizeof slice, (double)slice_ns / 1e9);
    printf("device %" PRId64 " (%s): policy %s, slices %s, %" PRId64 " slot%s, %" PRId64 " session%s on it\n",
           (int64_t)json_integer_value(json_object_get(document, "index")), dv_http_text(document, "device", "?"),
           dv_http_text(document, "policy", "?"), slice, slots, slots == 1 ? "" : "s", sessions,
           sessions == 1 ? "" : "s");
}

int dv_cli_policy(int argc, char **argv)
{
    struct policy_options policy = {0};
    DV_AUTO_FREE char *path = NULL;
    char slice[48] = "";
    uint64_t index;

    int code = parse_options(argc, argv, &policy);
    if (code == DV_EXIT_OK && dv_text_parse_number(policy.device, UINT32_MAX, &index) < 0)
        code = find_device(policy.view.daemon_directory, policy.device, &index);
    if (code != DV_EXIT_OK)
        return code;
    if (policy.has_slice)
        snprintf(slice, sizeof slice, "&slice_ns=%" PRIu64, policy.slice_ns);
    DV_AUTO_FREE char *name = dv_http_escape(policy.policy);
    if (!name || asprintf(&path, "/v1/devices/%" PRIu64 "/policy?name=%s%s", index, name, slice) < 0) {
        path = NULL;
        dv_cli_error("out of memory");
        return DV_EXIT_FAILED;
    }
    return dv_http_show(&policy.view, "POST", path, print_answer);
}
