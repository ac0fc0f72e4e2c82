/* divvy: chooses the sub-command, one file each. */
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/cli/cli.h"
#include "src/cli/table.h"

static const char usage[] = "Usage: divvy COMMAND [OPTIONS]\n"
                            "\n"
                            "divvy shares the accelerators of this machine among programs. Put `divvy run --` in\n"
                            "front of an OpenCL program and it runs as before, side by side with others.\n"
                            "\n"
                            "Commands:\n"
                            "  run       run a program on the shared devices\n"
                            "  ps        list the programs that use them, now or lately\n"
                            "  top       show devices, tenants and programs live\n"
                            "  devices   list the devices and how busy they are\n"
                            "  tenants   list the tenants and their shares of the devices\n"
                            "  explain   print what a program waits for, and why\n"
                            "  whoami    print your tenant, and what it may ask for\n"
                            "  doctor    look for what keeps your programs from the devices\n"
                            "  end       end sessions\n"
                            "  park      take sessions from their devices until their programs go on\n"
                            "  resume    give parked sessions a worker again\n"
                            "  set       change a tenant's share of the devices' time\n"
                            "  policy    change how a device's time is shared\n"
                            "  usage     print how much device time was used, and by whom\n"
                            "  trace     write a timeline of the devices for Perfetto\n"
                            "  record    record the work of all sessions, for divvy-sim\n"
                            "  metrics   print metrics for Prometheus\n"
                            "  reload    have the daemon read its configuration again\n"
                            "  check     compare the daemon's ledger of memory with the workers\n"
                            "  version   print the versions of divvy and of the daemon\n"
                            "\n"
                            "Try it:  divvy run -- clinfo\n"
                            "Help:    divvy COMMAND --help, and the manual: man divvy\n";

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", dv_cli_run},         {"ps", dv_cli_ps},           {"top", dv_cli_top},       {"devices", dv_cli_devices},
    {"tenants", dv_cli_tenants}, {"explain", dv_cli_explain}, {"whoami", dv_cli_whoami}, {"doctor", dv_cli_doctor},
    {"end", dv_cli_end},         {"park", dv_cli_park},       {"resume", dv_cli_resume}, {"set", dv_cli_set},
    {"policy", dv_cli_policy},   {"usage", dv_cli_usage},     {"trace", dv_cli_trace},   {"record", dv_cli_record},
    {"metrics", dv_cli_metrics}, {"reload", dv_cli_reload},   {"check", dv_cli_check},   {"version", dv_cli_version}};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

void dv_cli_error(const char *format, ...)
{
    DV_AUTO_FREE char *text = NULL;
    va_list args;

    fflush(stdout);
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    if (text)
        dv_screen_make_plain(text);
    fprintf(stderr, "divvy: %s\n", text ? text : "out of memory");
}

int dv_cli_check_output(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    dv_cli_error("cannot write the output: %s", strerror(errno));
    return code == DV_EXIT_OK ? DV_EXIT_FAILED : code;
}

int dv_cli_view_option(struct dv_cli_view *view, int option, char **argv, const char *command_usage)
{
    switch (option) {
    case 'j':
        view->json = true;
        return DV_EXIT_OK;
    case 'Y':
        view->daemon_directory = optarg;
        return DV_EXIT_OK;
    case 'h':
        fputs(command_usage, stdout);
        exit(dv_cli_check_output(DV_EXIT_OK));
    default:
        dv_cli_error("unknown option or missing value: %s. See `divvy %s --help`.", argv[optind - 1], argv[0]);
        return DV_EXIT_USAGE;
    }
}

int dv_cli_check_arguments(int argc, char **argv, int arguments)
{
    int given = argc - optind;

    if (given > arguments)
        dv_cli_error("unexpected argument: %s. See `divvy %s --help`.", argv[optind + arguments], argv[0]);
    else if (given < arguments)
        dv_cli_error("`divvy %s` needs %s%s. See `divvy %s --help`.", argv[0],
                     given            ? "one more argument"
                     : arguments == 1 ? "an argument"
                                      : "arguments",
                     given ? "" : " and got none", argv[0]);
    return given == arguments ? DV_EXIT_OK : DV_EXIT_USAGE;
}

int dv_cli_parse_view(int argc, char **argv, const char *command_usage, int arguments, struct dv_cli_view *view)
{
    static const struct option options[] = {DV_CLI_VIEW_OPTIONS, {NULL, 0, NULL, 0}};
    int option;

    *view = (struct dv_cli_view){0};
    opterr = 0;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        int code = dv_cli_view_option(view, option, argv, command_usage);
        if (code != DV_EXIT_OK)
            return code;
    }
    return dv_cli_check_arguments(argc, argv, arguments);
}

int dv_cli_parse_verbose(int argc, char **argv, const char *command_usage, struct dv_cli_view *view, bool *verbose)
{
    static const struct option options[] = {
        DV_CLI_VIEW_OPTIONS, {"verbose", no_argument, NULL, 'v'}, {NULL, 0, NULL, 0}};
    int option;

    *view = (struct dv_cli_view){0};
    *verbose = false;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "hv", options, NULL)) != -1) {
        if (option == 'v')
            *verbose = true;
        else if (dv_cli_view_option(view, option, argv, command_usage) != DV_EXIT_OK)
            return DV_EXIT_USAGE;
    }
    return DV_EXIT_OK;
}

/* How many letters have to be changed, added or removed to make one word of the other. Short words only. */
static unsigned distance(const char *a, const char *b)
{
    enum { MOST = 16 };
    unsigned row[MOST + 1], length = (unsigned)strlen(b);

    if (strlen(a) > MOST || length > MOST)
        return UINT_MAX;
    for (unsigned j = 0; j <= length; j++)
        row[j] = j;
    for (unsigned i = 1; a[i - 1]; i++) {
        unsigned before = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= length; j++) {
            unsigned changed = before + (a[i - 1] != b[j - 1]), added = row[j] + 1, removed = row[j - 1] + 1;
            before = row[j];
            row[j] = changed < added ? changed : added;
            row[j] = row[j] < removed ? row[j] : removed;
        }
    }
    return row[length];
}

static void explain_unknown(const char *word)
{
    const char *nearest = NULL;
    unsigned best = 3;

    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (distance(word, commands[i].name) < best) {
            best = distance(word, commands[i].name);
            nearest = commands[i].name;
        }
    if (nearest)
        dv_cli_error("there is no command '%s'. Did you mean `divvy %s`?", word, nearest);
    else
        dv_cli_error("there is no command '%s'; `divvy --help` lists the commands.", word);
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, "");
    if (argc < 2) {
        fputs(usage, stderr);
        return DV_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        fputs(usage, stdout);
        return dv_cli_check_output(DV_EXIT_OK);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("divvy %s\n", DIVVY_VERSION);
        return dv_cli_check_output(DV_EXIT_OK);
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return dv_cli_check_output(commands[i].run(argc - 1, argv + 1));
    explain_unknown(argv[1]);
    return DV_EXIT_USAGE;
}
