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
    return dv_session_ask_each(argc, argv, usage, "DELETE", "", print_answer);
}
