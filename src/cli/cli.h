/* divvy, the command line: what its sub-commands share. */
#ifndef DV_CLI_CLI_H
#define DV_CLI_CLI_H

#include <getopt.h>
#include <stdbool.h>

#include "src/base/rundir.h"

/* The last three as env(1): divvy itself failed, the program cannot be executed, was not found. */
enum {
    DV_EXIT_OK = 0,
    DV_EXIT_FAILED = 1,
    DV_EXIT_USAGE = 2,
    DV_EXIT_OWN = 125,
    DV_EXIT_NOT_EXECUTABLE = 126,
    DV_EXIT_NOT_FOUND = 127
};

int dv_cli_run(int argc, char **argv);
int dv_cli_ps(int argc, char **argv);
int dv_cli_tenants(int argc, char **argv);
int dv_cli_check(int argc, char **argv);
int dv_cli_devices(int argc, char **argv);
int dv_cli_explain(int argc, char **argv);
int dv_cli_set(int argc, char **argv);
int dv_cli_policy(int argc, char **argv);
int dv_cli_top(int argc, char **argv);
int dv_cli_trace(int argc, char **argv);
int dv_cli_usage(int argc, char **argv);
int dv_cli_version(int argc, char **argv);
int dv_cli_doctor(int argc, char **argv);
int dv_cli_end(int argc, char **argv);
int dv_cli_park(int argc, char **argv);
int dv_cli_resume(int argc, char **argv);
int dv_cli_metrics(int argc, char **argv);
int dv_cli_record(int argc, char **argv);
int dv_cli_reload(int argc, char **argv);
int dv_cli_whoami(int argc, char **argv);

/* One line on stderr, "divvy: ...", with what happened, why, and what to do. */
void dv_cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes out what is printed. Returns the exit code, after a message another one than 0 if it could not be written: an
 * answer that could not be written was not given. */
int dv_cli_check_output(int code);

/* Options of the commands that ask the daemon: --json, --daemon DIR and --help (which exits). */
struct dv_cli_view {
    bool json;
    const char *daemon_directory;
};
/* clang-format off */
#define DV_CLI_VIEW_OPTIONS                      \
    {"json", no_argument, NULL, 'j'},            \
    {"daemon", required_argument, NULL, 'Y'},    \
    {"help", no_argument, NULL, 'h'}
/* clang-format on */
/* For commands with options of their own: takes one of these, and refuses unknown options. Returns
 * DV_EXIT_OK or DV_EXIT_USAGE after a message. */
int dv_cli_view_option(struct dv_cli_view *view, int option, char **argv, const char *usage);
/* For commands whose only other option is -v: reads all options. Returns the same. */
int dv_cli_parse_verbose(int argc, char **argv, const char *usage, struct dv_cli_view *view, bool *verbose);
/* For commands without options of their own and with this number of arguments, which then begin at
 * argv[optind]. Returns the same. */
int dv_cli_parse_view(int argc, char **argv, const char *usage, int arguments, struct dv_cli_view *view);
/* Checks the number of arguments. Returns the same. */
int dv_cli_check_arguments(int argc, char **argv, int arguments);

#endif
