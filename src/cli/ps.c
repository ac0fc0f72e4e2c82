/* divvy ps: the sessions of a daemon, now or lately. */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/session_name.h"
#include "src/cli/load.h"
#include "src/cli/table.h"
#include "src/cli/values.h"

static const char usage[] =
    "Usage: divvy ps [--ended] [--sort COLUMN] [-o COLUMNS] [--no-trunc] [--json] [--daemon DIR]\n"
    "\n"
    "Lists the programs that use the shared devices now, those that use them most first, after\n"
    "a line for each device. Operators see all programs, others their own.\n"
    "\n"
    "  --ended        the programs that ended, and those that were refused, within the last\n"
    "                 hour, and why\n"
    "  --sort COLUMN  the column to sort by; a minus sign before it reverses the order\n"
    "  -o COLUMNS     only these columns, separated by commas\n"
    "  --no-trunc     print names in full, and command lines up to 255 bytes\n"
    "  --json         the daemon's answer as it is, for scripts\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n"
    "\n"
    "Columns: SESSION number, USER, TENANT whose share it uses, DEVICE number, SHARE of that\n"
    "device's time that the session had over the last second (- where time is not shared), USED\n"
    "device time in all, MEMORY of its objects, STATE, COMMAND; on a wide terminal also PID,\n"
    "COMMANDS that the device has finished for it, and AGE. A session that uses several devices\n"
    "has a line for each. `divvy explain SESSION` prints more about a session.\n";

#define WIDE 120
#define WIDE_ENDED 100
#define WHY_LEAST 32 /* columns of the screen */

struct ps_options {
    struct dv_cli_view view;
    const char *sort, *columns;
    bool ended, no_trunc;
};

/* ---- cells ---- */

/* A row: a session, and one of its devices (NULL: it uses none). */
struct row {
    const json_t *session, *device;
};

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

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void print_id(char *cell, size_t bytes, const struct row *row)
{
    snprintf(cell, bytes, "%.0f", number_of(row->session, "id"));
}

static void print_pid(char *cell, size_t bytes, const struct row *row)
{
    snprintf(cell, bytes, "%.0f", number_of(row->session, "tenant_pid"));
}

static void print_user(char *cell, size_t bytes, const struct row *row)
{
    snprintf(cell, bytes, "%s", user_of(row->session));
}

static void print_tenant(char *cell, size_t bytes, const struct row *row)
{
    snprintf(cell, bytes, "%s", dv_http_text(row->session, "tenant", "-"));
}

static void print_device(char *cell, size_t bytes, const struct row *row)
{
    if (row->device)
        snprintf(cell, bytes, "%.0f", number_of(row->device, "index"));
    else
        snprintf(cell, bytes, "-");
}

static void print_share(char *cell, size_t bytes, const struct row *row)
{
    const json_t *share = json_object_get(row->device, "share_1s_ppm");

    if (json_is_number(share))
        snprintf(cell, bytes, "%.0f%%", json_number_value(share) / 1e4);
    else
        snprintf(cell, bytes, "-");
}

static void print_used(char *cell, size_t bytes, const struct row *row)
{
    const json_t *used = json_object_get(row->device ? row->device : row->session, "used_s");

    if (json_is_number(used))
        dv_value_format_brief(cell, bytes, json_number_value(used));
    else
        snprintf(cell, bytes, "-");
}

static void print_memory(char *cell, size_t bytes, const struct row *row)
{
    dv_text_format_size(cell, bytes, (uint64_t)number_of(row->session, "memory_bytes"));
}

static void print_commands(char *cell, size_t bytes, const struct row *row)
{
    snprintf(cell, bytes, "%.0f", number_of(row->session, "commands"));
}

static void print_age(char *cell, size_t bytes, const struct row *row)
{
    dv_value_format_age(cell, bytes, number_of(row->session, "age_s"));
}

/* How long it waits or compiles says more than that it does. */
static void print_state(char *cell, size_t bytes, const struct row *row)
{
    const char *state = dv_http_text(row->session, "state", "?");
    const json_t *from = row->session;
    char since[32] = "";

    if (row->device && strcmp(state, "compiling") != 0 && json_object_get(row->device, "state")) {
        state = dv_http_text(row->device, "state", "?");
        from = row->device;
    }
    if (strcmp(state, "computing") != 0 && strcmp(state, "running") != 0 && json_object_get(from, "state_s"))
        dv_value_format_brief(since, sizeof since, number_of(from, "state_s"));
    snprintf(cell, bytes, "%s%s%s", state, since[0] ? " " : "", since);
}

static void print_command(char *cell, size_t bytes, const struct row *row)
{
    dv_session_describe(cell, bytes, row->session);
}

static void print_when(char *cell, size_t bytes, const struct row *row)
{
    dv_value_format_clock(cell, bytes, dv_http_text(row->session, "ended", ""));
}

static void print_why(char *cell, size_t bytes, const struct row *row)
{
    snprintf(cell, bytes, "%s", dv_http_text(row->session, "why", ""));
}

/* ---- columns ---- */

static double by_share(const struct row *row)
{
    return number_of(row->device, "share_1s_ppm");
}

static double by_used(const struct row *row)
{
    return number_of(row->device ? row->device : row->session, "used_s");
}

static double by_memory(const struct row *row)
{
    return number_of(row->session, "memory_bytes");
}

static double by_commands(const struct row *row)
{
    return number_of(row->session, "commands");
}

static double by_age(const struct row *row)
{
    return number_of(row->session, "age_s");
}

static double by_id(const struct row *row)
{
    return -number_of(row->session, "id");
}

static const struct column {
    const char *name;
    bool right;
    unsigned cut;   /* to this width, unless --no-trunc is given; 0: not */
    unsigned least; /* it is cut down to this width where the screen is too narrow; 0: not */
    void (*print)(char *cell, size_t bytes, const struct row *row);
    double (*value)(const struct row *row); /* to sort by, the largest first; NULL: by its text */
} columns[] = {
    {"SESSION", true, 0, 0, print_id, by_id},
    {"PID", true, 0, 0, print_pid, NULL},
    {"USER", false, 10, 5, print_user, NULL},
    {"TENANT", false, 14, 7, print_tenant, NULL},
    {"DEVICE", true, 0, 0, print_device, NULL},
    {"SHARE", true, 0, 0, print_share, by_share},
    {"USED", true, 0, 0, print_used, by_used},
    {"MEMORY", true, 0, 0, print_memory, by_memory},
    {"COMMANDS", true, 0, 0, print_commands, by_commands},
    {"AGE", true, 0, 0, print_age, by_age},
    {"STATE", false, 0, 10, print_state, NULL},
    {"ENDED", false, 0, 0, print_when, NULL},
    {"COMMAND", false, 0, 16, print_command, NULL},
    {"WHY", false, 0, 0, print_why, NULL},
};
#define COLUMN_COUNT (sizeof columns / sizeof columns[0])

static const struct column *find_column(const char *name, size_t length)
{
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        if (strlen(columns[i].name) == length && strncasecmp(columns[i].name, name, length) == 0)
            return &columns[i];
    dv_cli_error("there is no column '%.*s'. The columns are SESSION, PID, USER, TENANT, DEVICE, SHARE, USED, MEMORY, "
                 "COMMANDS, AGE, STATE, ENDED, COMMAND and WHY.",
                 (int)length, name);
    return NULL;
}

/* Reads the names of columns. Returns their number, or 0 after a message. */
static size_t choose_columns(const char *names, const struct column *chosen[COLUMN_COUNT])
{
    size_t count = 0;

    while (*names && count < COLUMN_COUNT) {
        size_t length = strcspn(names, ",");
        chosen[count] = find_column(names, length);
        if (!chosen[count++])
            return 0;
        names += length + (names[length] == ',');
    }
    return count;
}

/* ---- rows ---- */

struct rows {
    struct row *all;
    size_t count;
};

static void add_row(struct rows *rows, const json_t *session, const json_t *device)
{
    struct row *longer = realloc(rows->all, (rows->count + 1) * sizeof *longer);

    if (!longer)
        return;
    rows->all = longer;
    rows->all[rows->count++] = (struct row){.session = session, .device = device};
}

static struct rows list_rows(const json_t *sessions)
{
    struct rows rows = {0};
    size_t index, number;
    json_t *session, *device;

    json_array_foreach(sessions, index, session)
    {
        const json_t *devices = json_object_get(session, "devices");
        if (json_array_size(devices) == 0)
            add_row(&rows, session, NULL);
        json_array_foreach(devices, number, device) add_row(&rows, session, device);
    }
    return rows;
}

/* A column to sort by, and whether the order is reversed. */
struct order {
    const struct column *column;
    bool reversed;
};

static int compare(const void *left, const void *right, void *argument)
{
    const struct order *order = argument;
    char a[512], b[512];
    int result;

    if (order->column->value) {
        double more = order->column->value(right) - order->column->value(left);
        result = (more > 0) - (more < 0);
    } else {
        order->column->print(a, sizeof a, left);
        order->column->print(b, sizeof b, right);
        result = strverscmp(a, b);
    }
    if (order->reversed)
        result = -result;
    if (result == 0) /* the same order each time */
        result = (by_id(left) < by_id(right)) - (by_id(left) > by_id(right));
    return result;
}

static int sort_rows(const struct rows *rows, const char *name)
{
    struct order order = {.reversed = name[0] == '-'};

    order.column = find_column(name + order.reversed, strlen(name + order.reversed));
    if (!order.column)
        return DV_EXIT_USAGE;
    if (rows->count)
        qsort_r(rows->all, rows->count, sizeof *rows->all, compare, &order);
    return DV_EXIT_OK;
}

static void print_rows(const struct rows *rows, const struct column *const *chosen, size_t count, bool no_trunc)
{
    const char *heading[COLUMN_COUNT];
    bool right[COLUMN_COUNT];
    unsigned least[COLUMN_COUNT];
    struct dv_table table;
    char cell[1024];

    for (size_t i = 0; i < count; i++) {
        heading[i] = chosen[i]->name;
        right[i] = chosen[i]->right;
        least[i] = chosen[i]->least;
    }
    dv_table_init(&table, count, heading, right);
    table.width = no_trunc ? 0 : dv_screen_width();
    table.least = least;
    table.last_least = chosen[count - 1]->print == print_why ? WHY_LEAST : 0;
    for (size_t i = 0; i < rows->count; i++)
        for (size_t k = 0; k < count; k++) {
            chosen[k]->print(cell, sizeof cell, &rows->all[i]);
            if (chosen[k]->cut && !no_trunc)
                cell[dv_text_fit(cell, chosen[k]->cut)] = '\0';
            dv_table_add(&table, "%s", cell);
        }
    dv_table_finish(&table);
}

/* ---- the command ---- */

static const char *usual_columns(const struct ps_options *ps, size_t devices)
{
    size_t width = dv_screen_width();

    if (ps->ended)
        return width && width < WIDE_ENDED ? "SESSION,USER,COMMAND,ENDED,WHY" : "SESSION,USER,COMMAND,ENDED,USED,WHY";
    if (width >= WIDE)
        return "SESSION,PID,USER,TENANT,DEVICE,SHARE,USED,MEMORY,COMMANDS,AGE,STATE,COMMAND";
    return devices > 1 ? "SESSION,USER,TENANT,DEVICE,SHARE,USED,MEMORY,STATE,COMMAND"
                       : "SESSION,USER,TENANT,SHARE,USED,MEMORY,STATE,COMMAND";
}

static int print_sessions(const struct ps_options *ps, const json_t *sessions, size_t devices)
{
    const struct column *chosen[COLUMN_COUNT];
    size_t count = choose_columns(ps->columns ? ps->columns : usual_columns(ps, devices), chosen);

    if (count == 0)
        return DV_EXIT_USAGE;
    struct rows rows = list_rows(sessions);
    int code = sort_rows(&rows, ps->sort ? ps->sort : ps->ended ? "-SESSION" : "SHARE");
    if (code == DV_EXIT_OK)
        print_rows(&rows, chosen, count, ps->no_trunc);
    free(rows.all);
    return code;
}

static int parse_options(int argc, char **argv, struct ps_options *ps)
{
    static const struct option options[] = {DV_CLI_VIEW_OPTIONS,
                                            {"ended", no_argument, NULL, 'e'},
                                            {"sort", required_argument, NULL, 's'},
                                            {"no-trunc", no_argument, NULL, 'n'},
                                            {NULL, 0, NULL, 0}};
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "ho:", options, NULL)) != -1) {
        if (option == 'e')
            ps->ended = true;
        else if (option == 's')
            ps->sort = optarg;
        else if (option == 'o')
            ps->columns = optarg;
        else if (option == 'n')
            ps->no_trunc = true;
        else if (dv_cli_view_option(&ps->view, option, argv, usage) != DV_EXIT_OK)
            return DV_EXIT_USAGE;
    }
    return dv_cli_check_arguments(argc, argv, 0);
}

static int show_ended(const struct ps_options *ps, const json_t *document)
{
    const json_t *ended = json_object_get(document, "ended");

    if (json_array_size(ended) > 0)
        return print_sessions(ps, ended, 0);
    puts("no program has ended or was refused within the last hour");
    return DV_EXIT_OK;
}

static int show_running(const struct ps_options *ps, const json_t *document)
{
    const json_t *sessions = json_object_get(document, "sessions");
    json_t *load = NULL;
    DV_AUTO_FREE char *body = NULL;

    int code = dv_http_get(ps->view.daemon_directory, "/v1/devices", &body, &load);
    if (code != DV_EXIT_OK)
        return code;
    const json_t *devices = json_object_get(load, "devices");
    if (!ps->columns)
        dv_load_print(devices);
    if (json_array_size(sessions) > 0)
        code = print_sessions(ps, sessions, json_array_size(devices));
    else
        dv_load_print_none(load, "no program of yours uses the shared devices now; those of others do");
    json_decref(load);
    return code;
}

int dv_cli_ps(int argc, char **argv)
{
    struct ps_options ps = {0};
    DV_AUTO_FREE char *body = NULL;
    json_t *document = NULL;

    int code = parse_options(argc, argv, &ps);
    if (code == DV_EXIT_OK)
        code = dv_http_get(ps.view.daemon_directory, ps.ended ? "/v1/ended" : "/v1/sessions", &body, &document);
    if (code != DV_EXIT_OK)
        return code;
    if (ps.view.json)
        fputs(body, stdout);
    else
        code = ps.ended ? show_ended(&ps, document) : show_running(&ps, document);
    json_decref(document);
    return code;
}
