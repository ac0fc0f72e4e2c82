/* divvy usage: who used how much device time, from the journal that divvyd keeps. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uthash.h>

#include "src/base/text.h"
#include "src/base/usage_journal.h"
#include "src/cli/cli.h"
#include "src/cli/table.h"
#include "src/cli/values.h"

static const char usage[] =
    "Usage: divvy usage [--since WHEN] [--until WHEN] [--by user|tenant|command] [--dir DIR] [--json]\n"
    "\n"
    "Prints how much device time was used, from the journal that the daemon keeps. Sessions that\n"
    "still run are in it with their use of up to five minutes ago. For operators.\n"
    "\n"
    "  --since WHEN   from then on: a time before now such as 90m, 12h or 7d (the default is 1d),\n"
    "                 or a date such as 2026-11-01 or \"2026-11-01 14:00\"\n"
    "  --until WHEN   up to then, likewise; default: now\n"
    "  --by WHAT      a line for each user, tenant (the default) or command\n"
    "  --dir DIR      the directory of the journal; default: " DV_STATE_SYSTEM "\n"
    "  --json         as a JSON document\n"
    "  --help         print this help\n"
    "\n"
    "Columns: the name, the SESSIONS that used a device, the device TIME they used, the PART of\n"
    "one device over the whole time, and how long they WAITED.\n";

struct usage_options {
    bool json;
    int64_t since, until;
    const char *by, *directory;
};

/* ---- sums ---- */

/* A session, as far as its lines are read. */
struct seen {
    struct {
        uint64_t session;
        int64_t started;
    } key;
    uint64_t used_ms, waited_ms; /* in its last line so far */
    bool is_counted;
    UT_hash_handle hh;
};

struct sum {
    char name[128];
    uint64_t used_ms, waited_ms, sessions;
    UT_hash_handle hh;
};

struct tally {
    const struct usage_options *options;
    struct seen *seen;
    struct sum *sums;
};

static struct seen *find_seen(struct tally *tally, const struct dv_usage_line *line)
{
    struct seen *seen, wanted = {.key = {.session = line->session, .started = line->started_s}};

    HASH_FIND(hh, tally->seen, &wanted.key, sizeof wanted.key, seen);
    if (seen || !(seen = calloc(1, sizeof *seen)))
        return seen;
    seen->key = wanted.key;
    HASH_ADD(hh, tally->seen, key, sizeof seen->key, seen);
    return seen;
}

static struct sum *find_sum(struct tally *tally, const struct dv_usage_line *line)
{
    const char *by = tally->options->by;
    const char *name = strcmp(by, "user") == 0 ? line->user : strcmp(by, "command") == 0 ? line->command : line->tenant;
    struct sum *sum;

    HASH_FIND_STR(tally->sums, name, sum);
    if (sum || !(sum = calloc(1, sizeof *sum)))
        return sum;
    snprintf(sum->name, sizeof sum->name, "%s", name);
    HASH_ADD_STR(tally->sums, name, sum);
    return sum;
}

/* Lines have sums since the session began: what it used since its last line is the difference. */
static void count_line(struct tally *tally, const struct dv_usage_line *line)
{
    struct seen *seen = find_seen(tally, line);
    struct sum *sum = find_sum(tally, line);

    if (!seen || !sum)
        return;
    if (line->time_s > tally->options->since && line->time_s <= tally->options->until) {
        sum->used_ms += line->used_ms > seen->used_ms ? line->used_ms - seen->used_ms : 0;
        sum->waited_ms += line->waited_ms > seen->waited_ms ? line->waited_ms - seen->waited_ms : 0;
        sum->sessions += !seen->is_counted;
        seen->is_counted = true;
    }
    seen->used_ms = line->used_ms;
    seen->waited_ms = line->waited_ms;
}

static int read_file(struct tally *tally, int number)
{
    char path[4096], text[DV_USAGE_LINE_BYTES + 2];
    struct dv_usage_line line;

    snprintf(path, sizeof path, number ? "%s/" DV_USAGE_FILE ".%d" : "%s/" DV_USAGE_FILE, tally->options->directory,
             number);
    FILE *file = fopen(path, "re");
    if (!file && (errno != ENOENT || number == 0)) {
        dv_cli_error("cannot read %s: %s%s", path, strerror(errno),
                     errno == EACCES   ? " (operators can)"
                     : errno == ENOENT ? " (has divvyd run?)"
                                       : "");
        return -1;
    }
    while (file && fgets(text, sizeof text, file))
        if (dv_usage_line_read(text, &line)) /* a line that was cut off is none */
            count_line(tally, &line);
    if (file)
        fclose(file);
    return 0;
}

/* ---- output ---- */

static int by_use(const struct sum *left, const struct sum *right)
{
    return (left->used_ms < right->used_ms) - (left->used_ms > right->used_ms);
}

static double part_of(const struct tally *tally, const struct sum *sum)
{
    int64_t seconds = tally->options->until - tally->options->since;

    return seconds > 0 ? (double)sum->used_ms / 1000.0 / (double)seconds : 0;
}

/* As ISO 8601 has it, like the times of other answers. */
static json_t *time_of(int64_t seconds)
{
    time_t when = (time_t)seconds;
    struct tm utc;
    char text[40] = "";

    if (gmtime_r(&when, &utc))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return json_string(text);
}

static void print_json(const struct tally *tally)
{
    json_t *list = json_array();

    for (const struct sum *sum = tally->sums; sum; sum = sum->hh.next)
        if (sum->sessions)
            json_array_append_new(list,
                                  json_pack("{s:s, s:I, s:f, s:f, s:f}", "name", sum->name, "sessions",
                                            (json_int_t)sum->sessions, "used_s", (double)sum->used_ms / 1e3, "waited_s",
                                            (double)sum->waited_ms / 1e3, "part", part_of(tally, sum)));
    json_t *document =
        json_pack("{s:s, s:o, s:o, s:o}", "by", tally->options->by, "since", time_of(tally->options->since), "until",
                  time_of(tally->options->until), "usage", list);
    json_dumpf(document, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10));
    putchar('\n');
    json_decref(document);
}

static void print_table(const struct tally *tally)
{
    static const bool right[] = {false, true, true, true, true};
    const char *heading[] = {"TENANT", "SESSIONS", "TIME", "PART", "WAITED"};
    struct dv_table table;
    char used[32], waited[32];

    heading[0] = strcmp(tally->options->by, "user") == 0      ? "USER"
                 : strcmp(tally->options->by, "command") == 0 ? "COMMAND"
                                                              : "TENANT";
    dv_table_init(&table, 5, heading, right);
    for (const struct sum *sum = tally->sums; sum; sum = sum->hh.next) {
        if (!sum->sessions)
            continue;
        dv_value_format_brief(used, sizeof used, (double)sum->used_ms / 1e3);
        dv_value_format_brief(waited, sizeof waited, (double)sum->waited_ms / 1e3);
        dv_table_add(&table, "%s", sum->name);
        dv_table_add(&table, "%" PRIu64, sum->sessions);
        dv_table_add(&table, "%s", used);
        dv_table_add(&table, "%.1f%%", 100 * part_of(tally, sum));
        dv_table_add(&table, "%s", waited);
    }
    dv_table_finish(&table);
}

/* ---- the command ---- */

static bool read_date(const char *text, int64_t *when)
{
    static const char *const formats[] = {"%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"};

    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        struct tm local = {.tm_isdst = -1};
        const char *end = strptime(text, formats[i], &local);
        if (end && !*end) {
            *when = mktime(&local);
            return true;
        }
    }
    return false;
}

static int take_when(const char *option, const char *text, int64_t *when)
{
    static const struct {
        char unit;
        int64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 7 * 86400}};
    char *end;
    long long number = strtoll(text, &end, 10);

    for (size_t i = 0; end != text && number >= 0 && number < 1000000 && i < sizeof units / sizeof units[0]; i++)
        if (end[0] == units[i].unit && !end[1]) {
            *when = time(NULL) - number * units[i].seconds;
            return DV_EXIT_OK;
        }
    if (read_date(text, when))
        return DV_EXIT_OK;
    dv_cli_error("%s is a time before now such as 90m, 12h or 7d, or a date such as 2026-11-01, not '%s'.", option,
                 text);
    return DV_EXIT_USAGE;
}

static int parse_options(int argc, char **argv, struct usage_options *options)
{
    static const struct option long_options[] = {{"json", no_argument, NULL, 'j'},
                                                 {"since", required_argument, NULL, 's'},
                                                 {"until", required_argument, NULL, 'u'},
                                                 {"by", required_argument, NULL, 'b'},
                                                 {"dir", required_argument, NULL, 'd'},
                                                 {"help", no_argument, NULL, 'h'},
                                                 {NULL, 0, NULL, 0}};
    int option, code = DV_EXIT_OK;

    opterr = 0;
    while (code == DV_EXIT_OK && (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        if (option == 'j')
            options->json = true;
        else if (option == 's')
            code = take_when("--since", optarg, &options->since);
        else if (option == 'u')
            code = take_when("--until", optarg, &options->until);
        else if (option == 'b')
            options->by = optarg;
        else if (option == 'd')
            options->directory = optarg;
        else
            code = dv_cli_view_option(&(struct dv_cli_view){0}, option, argv, usage);
    }
    if (code == DV_EXIT_OK && strcmp(options->by, "user") != 0 && strcmp(options->by, "tenant") != 0 &&
        strcmp(options->by, "command") != 0) {
        dv_cli_error("--by is user, tenant or command, not '%s'.", options->by);
        code = DV_EXIT_USAGE;
    }
    return code == DV_EXIT_OK ? dv_cli_check_arguments(argc, argv, 0) : code;
}

static void free_tally(struct tally *tally)
{
    struct seen *seen, *next_seen;
    struct sum *sum, *next_sum;

    HASH_ITER (hh, tally->seen, seen, next_seen) {
        HASH_DEL(tally->seen, seen);
        free(seen);
    }
    HASH_ITER (hh, tally->sums, sum, next_sum) {
        HASH_DEL(tally->sums, sum);
        free(sum);
    }
}

int dv_cli_usage(int argc, char **argv)
{
    struct usage_options options = {
        .since = time(NULL) - 86400, .until = time(NULL), .by = "tenant", .directory = DV_STATE_SYSTEM};
    struct tally tally = {.options = &options};
    int code = parse_options(argc, argv, &options);

    if (code != DV_EXIT_OK)
        return code;
    for (int i = DV_USAGE_FILES - 1; i >= 0 && code == DV_EXIT_OK; i--)
        code = read_file(&tally, i) < 0 ? DV_EXIT_FAILED : DV_EXIT_OK;
    HASH_SORT(tally.sums, by_use);
    if (code == DV_EXIT_OK && options.json)
        print_json(&tally);
    else if (code == DV_EXIT_OK)
        print_table(&tally);
    free_tally(&tally);
    return code;
}
