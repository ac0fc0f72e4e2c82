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

int dv_cli_park(int argc, char **argv)
{
    return dv_session_ask_each(argc, argv, park_usage, "POST", "/park", print_parked);
}

int dv_cli_resume(int argc, char **argv)
{
    return dv_session_ask_each(argc, argv, resume_usage, "POST", "/resume", print_resumed);
}
