/* divvy version: this program's version and the daemon's. */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "src/base/cleanup.h"
#include "src/cli/cli.h"
#include "src/cli/daemon.h"
#include "src/cli/http.h"

static const char usage[] = "Usage: divvy version [--json] [--daemon DIR]\n"
                            "\n"
                            "Prints the version of this program and of the daemon that it would use, if one runs.\n"
                            "\n"
                            "  --json         as a JSON document\n"
                            "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
                            "  --help         print this help\n";

int dv_cli_version(int argc, char **argv)
{
    struct dv_cli_view view;
    DV_AUTO_FREE char *body = NULL;
    json_t *document = NULL;
    char directory[DV_RUNDIR_BYTES];

    int code = dv_cli_parse_view(argc, argv, usage, 0, &view);
    if (code != DV_EXIT_OK)
        return code;
    int error = dv_daemon_find(view.daemon_directory, DV_RUNDIR_CONTROL_SOCKET, SOCK_STREAM, directory);
    if (error == 0)
        code = dv_http_get(directory, "/v1/version", &body, &document);
    if (view.json) {
        json_t *answer = json_pack("{s:s, s:o?}", "divvy", DIVVY_VERSION, "divvyd", document);
        json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(answer);
        return code;
    }
    printf("divvy %s\n", DIVVY_VERSION);
    if (document)
        printf("divvyd %s in %s\n", json_string_value(json_object_get(document, "version")), directory);
    else if (error == -EACCES)
        printf("divvyd in %s serves programs; it tells its version to operators only\n", directory);
    else if (error < 0)
        printf("divvyd: no daemon answers\n");
    json_decref(document);
    return code;
}
