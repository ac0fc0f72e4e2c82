/* divvy set: changes a tenant's share while its programs run. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/share.h"
#include "src/cli/table.h"
#include "src/cli/values.h"

static const char usage[] =
    "Usage: divvy set TENANT|SESSION [OPTIONS]\n"
    "\n"
    "Changes a tenant's share of the devices' time immediately, while its programs run. Options\n"
    "that are not given keep their value. Shares belong to tenants: a session number (see\n"
    "`divvy ps`) stands for the tenant of that session. Operators can change every tenant, other\n"
    "users their own, as far as the daemon's configuration lets them.\n"
    "\n" DV_CLI_SHARE_HELP "  --memory SIZE     how much of the device's memory it may allocate, such as 2GiB or 50%\n"
    "  --memory-request SIZE  how much of that other tenants cannot evict; 0: nothing\n"
    "  --save            for good: also when the tenant's last program has ended, and after a\n"
    "                    restart; for operators\n"
    "  --forget          forget what was saved for the tenant\n"
    "  --device INDEX    on this device only (see `divvy devices`); default: on all\n"
    "  --json            the daemon's answer as it is, for scripts\n"
    "  --daemon DIR      ask the divvyd whose runtime directory is DIR\n"
    "  --help            print this help\n"
    "\n"
    "Examples:\n"
    "  divvy set alice --request 30% --limit 60%\n"
    "  divvy set 7 --class batch\n";

#define SIZE_TEXT 32

struct set_options {
    struct dv_cli_view view;
    struct dv_cli_share share;
    const char *device;
    char memory[SIZE_TEXT], memory_request[SIZE_TEXT]; /* for the daemon; empty: not given */
    const char *whose;
    bool save, forget;
};

/* A size in bytes, or a part of each device's memory such as "50%", as the daemon takes it. Returns 0, or -1 after a
 * message. */
static int take_size(char field[SIZE_TEXT], const char *option, const char *text)
{
    uint64_t bytes;
    uint32_t ppm;
    int status = -EINVAL;

    if (strchr(text, '%')) {
        if (dv_text_parse_share(text, &ppm) == 0) {
            snprintf(field, SIZE_TEXT, "%u.%04u%%25", ppm / 10000, ppm % 10000);
            return 0;
        }
    } else {
        status = dv_text_parse_size(text, &bytes);
    }
    if (status == 0) {
        snprintf(field, SIZE_TEXT, "%" PRIu64, bytes);
        return 0;
    }
    if (status == -EDOM)
        dv_cli_error("%s %s would be %s bytes. Give a unit, such as %s %sGiB.", option, text, text, option, text);
    else
        dv_cli_error("%s is a size such as 512MiB or 2GiB, or a part of the device such as 50%%, not '%s'.", option,
                     text);
    return -1;
}

static int parse_options(int argc, char **argv, struct set_options *set)
{
    static const struct option options[] = {DV_CLI_VIEW_OPTIONS,
                                            DV_CLI_SHARE_OPTIONS,
                                            {"device", required_argument, NULL, 'D'},
                                            {"save", no_argument, NULL, 'S'},
                                            {"forget", no_argument, NULL, 'F'},
                                            {"memory", required_argument, NULL, 'M'},
                                            {"memory-request", required_argument, NULL, 'R'},
                                            {NULL, 0, NULL, 0}};
    uint64_t index;
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        int status = option == 'D' || option == 'S' || option == 'F' ? 0
                     : option == 'M'                                 ? take_size(set->memory, "--memory", optarg)
                     : option == 'R' ? take_size(set->memory_request, "--memory-request", optarg)
                                     : dv_cli_share_option(&set->share, option, optarg);
        if (option == 'D')
            set->device = optarg;
        set->save |= option == 'S';
        set->forget |= option == 'F';
        if (status < 0)
            return DV_EXIT_USAGE;
        if (status > 0 && dv_cli_view_option(&set->view, option, argv, usage) != DV_EXIT_OK)
            return DV_EXIT_USAGE;
    }
    if (optind == argc) {
        dv_cli_error("missing TENANT or SESSION: a tenant's name (see `divvy tenants`) or a session's "
                     "number (see `divvy ps`). Example: divvy set alice --request 30%%");
        return DV_EXIT_USAGE;
    }
    if (dv_cli_check_arguments(argc, argv, 1) != DV_EXIT_OK)
        return DV_EXIT_USAGE;
    set->whose = argv[optind];
    if (!set->whose[0]) {
        dv_cli_error("the tenant's name is empty. `divvy tenants` lists the names.");
        return DV_EXIT_USAGE;
    }
    if (set->device && dv_text_parse_number(set->device, UINT32_MAX, &index) < 0) {
        dv_cli_error("--device is a device's number, not '%s'. `divvy devices` lists the numbers.", set->device);
        return DV_EXIT_USAGE;
    }
    bool is_empty = dv_cli_share_is_empty(&set->share) && !set->memory[0] && !set->memory_request[0];
    if (set->forget && (!is_empty || set->save || set->device)) {
        dv_cli_error("--forget takes no other option that changes a share.");
        return DV_EXIT_USAGE;
    }
    if (is_empty && !set->forget) {
        dv_cli_error("nothing to change: give --request, --limit, --weight, --class, --memory or "
                     "--memory-request. "
                     "Example: "
                     "divvy set %s --weight 2",
                     set->whose);
        return DV_EXIT_USAGE;
    }
    return dv_cli_share_check(&set->share) < 0 ? DV_EXIT_USAGE : DV_EXIT_OK;
}

static void add_amount(FILE *path, const char *name, const struct dv_cli_amount *amount, const char **separator)
{
    if (!amount->from)
        return;
    fprintf(path, "%s%s=%u", *separator, name, amount->value);
    *separator = "&";
}

/* Path and query of the request. The caller frees it; NULL when out of memory. */
static char *compose_path(const struct set_options *set)
{
    char *text = NULL;
    size_t bytes = 0;
    uint64_t session;
    const char *separator = "?";
    DV_AUTO_FREE char *name = dv_http_escape(set->whose);
    FILE *path = open_memstream(&text, &bytes);

    if (!path || !name)
        return NULL;
    bool is_session = dv_text_parse_number(set->whose, UINT64_MAX, &session) != -EINVAL;
    fprintf(path, "/v1/%s/%s/%s", is_session ? "sessions" : "tenants", name, set->forget ? "forget" : "share");
    if (set->save) {
        fprintf(path, "%ssave=yes", separator);
        separator = "&";
    }
    if (set->device) {
        fprintf(path, "%sdevice=%s", separator, set->device);
        separator = "&";
    }
    add_amount(path, "request", &set->share.request, &separator);
    add_amount(path, "limit", &set->share.limit, &separator);
    add_amount(path, "weight", &set->share.weight, &separator);
    if (set->share.class) {
        fprintf(path, "%sclass=%s", separator, set->share.class);
        separator = "&";
    }
    if (set->memory[0]) {
        fprintf(path, "%smemory=%s", separator, set->memory);
        separator = "&";
    }
    if (set->memory_request[0])
        fprintf(path, "%smemory_request=%s", separator, set->memory_request);
    fclose(path);
    return text;
}

static bool says_saved, says_forgotten; /* for the answer */

static void print_table(const json_t *document)
{
    static const char *const heading[] = {"TENANT", "DEVICE", "REQUEST", "LIMIT", "WEIGHT",
                                          "CLASS",  "MEMORY", "KEPT",    "NAME"};
    static const bool right[] = {false, true, true, true, true, false, true, true, false};
    const json_t *devices = json_object_get(document, "devices");
    const char *tenant = dv_http_text(document, "tenant", "?");
    struct dv_table table;
    size_t position;
    json_t *device;

    if (says_forgotten) {
        printf("nothing is saved for tenant %s any more; what it has now lasts until its last program ends\n", tenant);
        return;
    }
    if (json_array_size(devices) == 0) {
        printf("%s uses no device whose time is shared now%s\n", tenant,
               says_saved ? "; it has the share when its next program starts" : "");
        return;
    }
    dv_table_init(&table, sizeof heading / sizeof heading[0], heading, right);
    json_array_foreach(devices, position, device)
    {
        char request[32], limit[32], memory[32], kept[32];
        dv_text_format_size(kept, sizeof kept,
                            (uint64_t)json_integer_value(json_object_get(device, "memory_request_bytes")));
        dv_text_format_size(memory, sizeof memory,
                            (uint64_t)json_integer_value(json_object_get(device, "memory_quota_bytes")));
        dv_value_format_share(request, sizeof request, json_integer_value(json_object_get(device, "request_ppm")));
        dv_value_format_share(limit, sizeof limit, json_integer_value(json_object_get(device, "limit_ppm")));
        dv_table_add(&table, "%s", tenant);
        dv_table_add(&table, "%" PRId64, (int64_t)json_integer_value(json_object_get(device, "index")));
        dv_table_add(&table, "%s", request);
        dv_table_add(&table, "%s", limit);
        dv_table_add(&table, "%" PRId64, (int64_t)json_integer_value(json_object_get(device, "weight")));
        dv_table_add(&table, "%s", dv_http_text(device, "class", "?"));
        dv_table_add(&table, "%s", memory);
        dv_table_add(&table, "%s", kept);
        dv_table_add(&table, "%s", dv_http_text(device, "device", "?"));
    }
    dv_table_finish(&table);
}

int dv_cli_set(int argc, char **argv)
{
    struct set_options set = {0};
    DV_AUTO_FREE char *path = NULL;

    int code = parse_options(argc, argv, &set);
    if (code != DV_EXIT_OK)
        return code;
    path = compose_path(&set);
    if (!path) {
        dv_cli_error("out of memory");
        return DV_EXIT_FAILED;
    }
    says_saved = set.save;
    says_forgotten = set.forget;
    return dv_http_show(&set.view, "POST", path, print_table);
}
