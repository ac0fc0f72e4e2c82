/* divvy: chooses the sub-command, one file each. */
#include <getopt.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/cli/cli.h"

static const char usage[] =
    "Usage: divvy COMMAND [OPTIONS]\n"
    "\n"
    "divvy shares the accelerators of this machine among programs. Put `divvy run --` in\n"
    "front of an OpenCL program and it runs as before, side by side with others.\n"
    "\n"
    "Commands:\n"
    "  run       run a program on the shared devices\n"
    "  ps        list the programs that use them now\n"
    "  devices   list the devices\n"
    "  version   print the versions of divvy and of the daemon\n"
    "\n"
    "Try it:  divvy run -- clinfo\n"
    "Help:    divvy COMMAND --help, and the manual: man divvy\n";

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {{"run", dv_cli_run},
                {"ps", dv_cli_ps},
                {"devices", dv_cli_devices},
                {"version", dv_cli_version}};

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

int dv_cli_parse_view(int argc, char **argv, const char *command_usage, struct dv_cli_view *view)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"daemon", required_argument, NULL, 'd'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int option;

    *view = (struct dv_cli_view){0};
    opterr = 0;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'j':
            view->json = true;
            break;
        case 'd':
            view->daemon_directory = optarg;
            break;
        case 'h':
            fputs(command_usage, stdout);
            exit(DV_EXIT_OK);
        default:
            dv_cli_error("unknown option or missing value: %s. See `divvy %s --help`.",
                         argv[optind - 1], argv[0]);
            return DV_EXIT_USAGE;
        }
    }
    if (optind < argc) {
        dv_cli_error("unexpected argument: %s. See `divvy %s --help`.", argv[optind], argv[0]);
        return DV_EXIT_USAGE;
    }
    return DV_EXIT_OK;
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, "");
    if (argc < 2) {
        fputs(usage, stderr);
        return DV_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
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
    dv_cli_error("there is no command '%s'. The commands are run, ps, devices and version; see "
                 "`divvy --help`.",
                 argv[1]);
    return DV_EXIT_USAGE;
}
