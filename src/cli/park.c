/* divvy park, divvy resume: sessions give up their worker, and get one again. */
#include <inttypes.h>
#include <stdio.h>

#include "src/cli/cli.h"
#include "src/cli/http.h"
#include "src/cli/session_name.h"

static const char park_usage[] =
    "Usage: divvy park SESSION... [--json] [--daemon DIR]\n"
    "\n"
    "Parks sessions (numbers or names from `divvy ps`): when the commands that run have ended, the worker\n"
    "saves the session's memory on the devices to host memory, and ends. The program notices nothing: its\n"
    "session gets a worker again as soon as it wants one. Operators can park every session, others their own.\n"
    "\n"
    "  --json         the daemon's answer as it is, for scripts\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n";

static const char resume_usage[] =
    "Usage: divvy resume SESSION... [--json] [--daemon DIR]\n"
    "\n"
    "Gives parked sessions (numbers or names from `divvy ps`) a worker before their programs want one.\n"
    "\n"
    "  --json         the daemon's answer as it is, for scripts\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n";

static void print_parked(const json_t *document)
{
    printf("session %" PRId64 " (%s) is being parked; `divvy ps` shows when it is\n",
           (int64_t)json_integer_value(json_object_get(document, "id")), dv_http_text(document, "command", "?"));
}

static void print_resumed(const json_t *document)
{
    printf("session %" PRId64 " (%s) gets a worker\n", (int64_t)json_integer_value(json_object_get(document, "id")),
           dv_http_text(document, "command", "?"));
}

static int ask(int argc, char **argv, const char *usage, const char *what, void (*print)(const json_t *document))
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
        snprintf(path, sizeof path, "/v1/sessions/%" PRIu64 "/%s", session, what);
        if (dv_http_show(&view, "POST", path, print) != DV_EXIT_OK)
            code = DV_EXIT_FAILED;
    }
    return code;
}

int dv_cli_park(int argc, char **argv)
{
    return ask(argc, argv, park_usage, "park", print_parked);
}

int dv_cli_resume(int argc, char **argv)
{
    return ask(argc, argv, resume_usage, "resume", print_resumed);
}
