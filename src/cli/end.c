/* divvy end: ends sessions. */
#include <inttypes.h>
#include <stdio.h>

#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/session_name.h"

static const char usage[] =
    "Usage: divvy end SESSION... [--json] [--daemon DIR]\n"
    "\n"
    "Ends sessions (numbers or names from `divvy ps`): the worker of each is terminated, and its memory on\n"
    "the devices is free. The program goes on; its OpenCL calls fail until it creates a new\n"
    "context. Operators can end every session, others their own.\n"
    "\n"
    "  --json         the daemon's answer as it is, for scripts\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n";

static void print_answer(const json_t *document)
{
    printf("session %" PRId64 " (%s) ended\n", (int64_t)json_integer_value(json_object_get(document, "id")),
           dv_http_text(document, "command", "?"));
}

int dv_cli_end(int argc, char **argv)
{
    static const struct option options[] = {DV_CLI_VIEW_OPTIONS, {NULL, 0, NULL, 0}};
    struct dv_cli_view view = {0};
    int option, code = DV_EXIT_OK;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1)
        if (dv_cli_view_option(&view, option, argv, usage) != DV_EXIT_OK)
            return DV_EXIT_USAGE;
    if (optind == argc) {
        dv_cli_error("missing SESSION: a number or name from `divvy ps`");
        return DV_EXIT_USAGE;
    }
    for (int i = optind; i < argc; i++) {
        uint64_t session;
        char path[64];
        int found = dv_session_find(&view, argv[i], &session);
        if (found != DV_EXIT_OK)
            return found;
        snprintf(path, sizeof path, "/v1/sessions/%" PRIu64, session);
        if (dv_http_show(&view, "DELETE", path, print_answer) != DV_EXIT_OK)
            code = DV_EXIT_FAILED;
    }
    return code;
}
