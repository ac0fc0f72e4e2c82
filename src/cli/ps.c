/* divvy ps: the sessions of a daemon. */
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/cleanup.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/table.h"
#include "src/cli/values.h"

static const char usage[] =
    "Usage: divvy ps [--json] [--daemon DIR]\n"
    "\n"
    "Lists the programs that use the shared devices now. Operators see all of them, others\n"
    "their own.\n"
    "\n"
    "  --json         the daemon's answer as it is, for scripts\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n"
    "\n"
    "Columns: session number, the program's process, its user, the tenant whose share it uses,\n"
    "its name, the device it works on (- before its first context), the part of the device's\n"
    "time it had over the last second (- where time is not shared), the size of its memory\n"
    "objects, the commands the device has finished for it, how long it has been connected, and\n"
    "its state. `divvy explain SESSION` prints more about a session.\n";

/* The daemon knows only local users; those of a directory service are looked up here. */
static const char *user_of(const json_t *session)
{
    const char *name = dv_http_text(session, "user", "?");
    char *end;

    unsigned long uid = strtoul(name, &end, 10);
    if (*name == '\0' || *end)
        return name;
    const struct passwd *entry = getpwuid((uid_t)uid);
    return entry ? entry->pw_name : name;
}

static void add_session(struct dv_table *table, const json_t *session)
{
    char memory[32], age[32], share[32];

    dv_text_format_size(memory, sizeof memory, (uint64_t)json_integer_value(json_object_get(session, "memory_bytes")));
    dv_value_format_age(age, sizeof age, json_number_value(json_object_get(session, "age_s")));
    dv_value_format_measured(share, sizeof share, json_object_get(session, "share_1s_ppm"));
    dv_table_add(table, "%" PRId64, (int64_t)json_integer_value(json_object_get(session, "id")));
    dv_table_add(table, "%" PRId64, (int64_t)json_integer_value(json_object_get(session, "tenant_pid")));
    dv_table_add(table, "%s", user_of(session));
    dv_table_add(table, "%s", dv_http_text(session, "tenant", "-"));
    dv_table_add(table, "%s", dv_http_text(session, "command", "?"));
    dv_table_add(table, "%s", dv_http_text(session, "device", "-"));
    dv_table_add(table, "%s", share);
    dv_table_add(table, "%s", memory);
    dv_table_add(table, "%" PRId64, (int64_t)json_integer_value(json_object_get(session, "commands")));
    dv_table_add(table, "%s", age);
    dv_table_add(table, "%s", dv_http_text(session, "state", "?"));
}

static void print_table(const json_t *document)
{
    static const char *const heading[] = {"SESSION", "PID",    "USER",     "TENANT", "COMMAND", "DEVICE",
                                          "SHARE",   "MEMORY", "COMMANDS", "AGE",    "STATE"};
    static const bool right[] = {true, true, false, false, false, false, true, true, true, true, false};
    const json_t *sessions = json_object_get(document, "sessions");
    struct dv_table table;
    size_t index;
    json_t *session;

    if (json_array_size(sessions) == 0) {
        puts("no sessions: no program uses the shared devices now");
        return;
    }
    dv_table_init(&table, sizeof heading / sizeof heading[0], heading, right);
    json_array_foreach(sessions, index, session) add_session(&table, session);
    dv_table_finish(&table);
}

int dv_cli_ps(int argc, char **argv)
{
    struct dv_cli_view view;

    int code = dv_cli_parse_view(argc, argv, usage, 0, &view);
    return code == DV_EXIT_OK ? dv_http_show(&view, "GET", "/v1/sessions", print_table) : code;
}
