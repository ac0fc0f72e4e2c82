/* Sessions by number or name (see session_name.h). */
#include "src/cli/session_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/base/text.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"

int dv_session_find(const struct dv_cli_view *view, const char *text, uint64_t *session)
{
    DV_AUTO_FREE char *body = NULL;
    json_t *document = NULL, *one;
    unsigned found = 0;
    size_t index;

    if (dv_text_parse_number(text, INT64_MAX, session) == 0)
        return DV_EXIT_OK;
    int code = dv_http_get(view->daemon_directory, "/v1/sessions", &body, &document);
    if (code != DV_EXIT_OK)
        return code;
    json_array_foreach(json_object_get(document, "sessions"), index, one)
    {
        if (text[0] && strcmp(dv_http_text(one, "name", ""), text) == 0) {
            *session = (uint64_t)json_integer_value(json_object_get(one, "id"));
            found++;
        }
    }
    json_decref(document);
    if (found == 1)
        return DV_EXIT_OK;
    if (found > 1)
        dv_cli_error("%u sessions have the name '%s'. `divvy ps` lists their numbers.", found, text);
    else
        dv_cli_error("SESSION is a number, or the name that `divvy run --name` gave a session that runs, not '%s'. "
                     "`divvy ps` lists the sessions.",
                     text);
    return DV_EXIT_USAGE;
}

void dv_session_describe(char *text, size_t bytes, const json_t *session)
{
    const char *line = dv_http_text(session, "command_line", ""), *slash = line;
    const char *name = dv_http_text(session, "name", "");

    for (const char *at = line; *at && *at != ' '; at++)
        if (*at == '/')
            slash = at + 1;
    snprintf(text, bytes, "%s%s%s", name, name[0] ? ": " : "", line[0] ? slash : dv_http_text(session, "command", "?"));
}

int dv_session_ask_each(int argc, char **argv, const char *usage, const char *method, const char *suffix,
                        void (*print)(const json_t *document))
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
        snprintf(path, sizeof path, "/v1/sessions/%" PRIu64 "%s", session, suffix);
        if (dv_http_show(&view, method, path, print) != DV_EXIT_OK)
            code = DV_EXIT_FAILED;
    }
    return code;
}
