/* divvy reload: has the daemon read its configuration again. */
#include <stdio.h>

#include "src/cli/cli.h"
#include "src/cli/http.h"

static const char usage[] =
    "Usage: divvy reload [--json] [--daemon DIR]\n"
    "\n"
    "Has the daemon read its configuration again, and prints what that changes for programs that\n"
    "run. If the file has an error, the old configuration stays in force, the error is printed,\n"
    "and the exit status is 1. `divvyd --check FILE` checks a file beforehand. For operators.\n"
    "\n"
    "  --json         the daemon's answer as it is, for scripts\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n";

static void print_answer(const json_t *document)
{
    const json_t *lines = json_object_get(document, "lines");
    const char *warning = dv_http_text(document, "warning", "");
    size_t index;
    json_t *line;

    if (json_array_size(lines) == 0)
        puts("configuration reloaded; nothing changes for programs that run");
    json_array_foreach(lines, index, line) puts(json_string_value(line));
    if (warning[0]) {
        fflush(stdout);
        fprintf(stderr, "warning: %s\n", warning);
    }
}

int dv_cli_reload(int argc, char **argv)
{
    struct dv_cli_view view;
    int code = dv_cli_parse_view(argc, argv, usage, 0, &view);

    return code == DV_EXIT_OK ? dv_http_show(&view, "POST", "/v1/reload", print_answer) : code;
}
