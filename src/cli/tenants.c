/* divvy tenants: the tenants, the shares they are entitled to and those they get. */
#include <inttypes.h>
#include <stdio.h>

#include "src/base/cleanup.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/load.h"
#include "src/cli/table.h"
#include "src/cli/values.h"

static const char usage[] =
    "Usage: divvy tenants [--json] [--daemon DIR]\n"
    "\n"
    "Lists the tenants, among which the devices' time is shared. Unless the daemon's\n"
    "configuration says otherwise, each user is a tenant; with a daemon of your own, each\n"
    "program is. Operators see all of them, others their own.\n"
    "\n"
    "  --json         the daemon's answer as it is, for scripts\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n"
    "\n"
    "Columns: name, sessions, the device's number, its guaranteed share (request), its maximum\n"
    "share (limit), its weight for the rest and its class; the share it is entitled to now, the\n"
    "share it had over the last 1, 10 and 60 seconds, and the total device time it has used;\n"
    "the memory that its programs have reserved, its quota, and how much memory other tenants\n"
    "cannot evict (kept). `divvy set` changes request, limit, weight, class, quota and kept\n"
    "memory.\n";

static void add_share(struct dv_table *table, const json_t *of)
{
    char request[32], limit[32];

    dv_value_format_share(request, sizeof request, json_integer_value(json_object_get(of, "request_ppm")));
    dv_value_format_share(limit, sizeof limit, json_integer_value(json_object_get(of, "limit_ppm")));
    dv_table_add(table, "%s", request);
    dv_table_add(table, "%s", limit);
    dv_table_add(table, "%" PRId64, (int64_t)json_integer_value(json_object_get(of, "weight")));
    dv_table_add(table, "%s", dv_http_text(of, "class", "?"));
}

static void add_device(struct dv_table *table, const json_t *device)
{
    static const char *const measured[] = {"entitled_ppm", "share_1s_ppm", "share_10s_ppm", "share_60s_ppm"};
    static const char *const sizes[] = {"memory_reserved_bytes", "memory_quota_bytes", "memory_request_bytes"};
    char share[32], used[32];

    dv_table_add(table, "%" PRId64, (int64_t)json_integer_value(json_object_get(device, "index")));
    add_share(table, device);
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        dv_value_format_measured(share, sizeof share, json_object_get(device, measured[i]));
        dv_table_add(table, "%s", share);
    }
    dv_value_format_brief(used, sizeof used, json_number_value(json_object_get(device, "used_s")));
    dv_table_add(table, "%s", used);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char size[32];
        dv_text_format_size(size, sizeof size, (uint64_t)json_integer_value(json_object_get(device, sizes[i])));
        dv_table_add(table, "%s", size);
    }
}

/* A row for each device of the tenant, or one without a device. */
static void add_tenant(struct dv_table *table, const json_t *tenant)
{
    const json_t *devices = json_object_get(tenant, "devices");
    size_t count = json_array_size(devices);

    for (size_t row = 0; row < (count ? count : 1); row++) {
        dv_table_add(table, "%s", dv_http_text(tenant, "name", "?"));
        dv_table_add(table, "%" PRId64, (int64_t)json_integer_value(json_object_get(tenant, "sessions")));
        if (count) {
            add_device(table, json_array_get(devices, row));
            continue;
        }
        size_t cell = 2;
        if (json_object_get(tenant, "weight")) { /* it has no session, and its share is as configured */
            dv_table_add(table, "-");
            add_share(table, tenant);
            cell = 7;
        }
        for (; cell < table->columns; cell++)
            dv_table_add(table, "-");
    }
}

static void print_table(const json_t *document)
{
    static const char *const heading[] = {"TENANT", "SESSIONS", "DEVICE",   "REQUEST", "LIMIT",
                                          "WEIGHT", "CLASS",    "ENTITLED", "1s",      "10s",
                                          "60s",    "USED",     "MEMORY",   "QUOTA",   "KEPT"};
    static const bool right[] = {false, true, true, true, true, true, false, true,
                                 true,  true, true, true, true, true, true};
    const json_t *tenants = json_object_get(document, "tenants");
    struct dv_table table;
    size_t position;
    json_t *tenant;

    dv_table_init(&table, sizeof heading / sizeof heading[0], heading, right);
    json_array_foreach(tenants, position, tenant) add_tenant(&table, tenant);
    dv_table_finish(&table);
}

static int show_none(const struct dv_cli_view *view)
{
    DV_AUTO_FREE char *body = NULL;
    json_t *load = NULL;

    int code = dv_http_get(view->daemon_directory, "/v1/devices", &body, &load);
    if (code != DV_EXIT_OK)
        return code;
    dv_load_print(json_object_get(load, "devices"));
    dv_load_print_none(load, "no tenant of yours has a program on the shared devices now; those of others have");
    json_decref(load);
    return DV_EXIT_OK;
}

int dv_cli_tenants(int argc, char **argv)
{
    struct dv_cli_view view;
    DV_AUTO_FREE char *body = NULL;
    json_t *document = NULL;

    int code = dv_cli_parse_view(argc, argv, usage, 0, &view);
    if (code == DV_EXIT_OK)
        code = dv_http_get(view.daemon_directory, "/v1/tenants", &body, &document);
    if (code != DV_EXIT_OK)
        return code;
    if (view.json)
        fputs(body, stdout);
    else if (json_array_size(json_object_get(document, "tenants")) == 0)
        code = show_none(&view);
    else
        print_table(document);
    json_decref(document);
    return code;
}
