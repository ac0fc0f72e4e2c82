/* divvy: chooses the sub-command, one file each. */
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/cli/cli.h"

static const char usage[] = "Usage: divvy COMMAND [OPTIONS]\n"
                            "\n"
                            "divvy shares the accelerators of this machine among programs. Put `divvy run --` in\n"
                            "front of an OpenCL program and it runs as before, side by side with others.\n"
                            "\n"
                            "Commands:\n"
                            "  run       run a program on the shared devices\n"
                            "  ps        list the programs that use them now\n"
                            "  tenants   list the tenants and their shares of the devices\n"
                            "  devices   list the devices\n"
                            "  explain   print what a program waits for, and why\n"
                            "  set       change a tenant's share of the devices' time\n"
                            "  policy    change how a device's time is shared\n"
                            "  check     compare the daemon's ledger of memory with the workers\n"
                            "  version   print the versions of divvy and of the daemon\n"
                            "\n"
                            "Try it:  divvy run -- clinfo\n"
                            "Help:    divvy COMMAND --help, and the manual: man divvy\n";

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {{"run", dv_cli_run},         {"ps", dv_cli_ps},           {"tenants", dv_cli_tenants},
                {"devices", dv_cli_devices}, {"explain", dv_cli_explain}, {"set", dv_cli_set},
                {"policy", dv_cli_policy},   {"check", dv_cli_check},     {"version", dv_cli_version}};

void dv_cli_error(const char *format, ...)
{
    va_list args;

    fflush(stdout);
    fputs("divvy: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

int dv_cli_view_option(struct dv_cli_view *view, int option, char **argv, const char *command_usage)
{
    switch (option) {
    case 'j':
        view->json = true;
        return DV_EXIT_OK;
    case 'd':
        view->daemon_directory = optarg;
        return DV_EXIT_OK;
    case 'h':
        fputs(command_usage, stdout);
        exit(DV_EXIT_OK);
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

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, "");
    if (argc < 2) {
        fputs(usage, stderr);
        return DV_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        fputs(usage, stdout);
        return DV_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("divvy %s\n", DIVVY_VERSION);
        return DV_EXIT_OK;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    dv_cli_error("there is no command '%s'. The commands are run, ps, tenants, devices, explain, "
                 "set, policy, check and version; see `divvy --help`.",
                 argv[1]);
    return DV_EXIT_USAGE;
}
