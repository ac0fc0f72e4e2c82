/* divvy check: compares divvyd's ledger of device memory with the workers. */
#include <stdio.h>
#include <time.h>

#include "src/base/cleanup.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"

static const char usage[] =
    "Usage: divvy check [--json] [--daemon DIR]\n"
    "\n"
    "Checks the daemon's ledger of device memory for consistency, compares it with the figures\n"
    "of each worker, and prints the differences. Messages on their way between a worker and the\n"
    "daemon look like a difference for a moment, so a difference counts when it is seen three\n"
    "times. Exit status: 0 if all agree, 1 if not.\n"
    "\n"
    "  --json         the daemon's answer as it is, for scripts\n"
    "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
    "  --help         print this help\n";

static void print_answer(const json_t *document)
{
    long long differences = json_integer_value(json_object_get(document, "differences"));

    if (differences == 0)
        puts("the ledger agrees with the workers");
    else
        printf("%lld differences\n%s", differences, dv_http_text(document, "text", ""));
}

int dv_cli_check(int argc, char **argv)
{
    enum { TIMES = 3 };
    struct dv_cli_view view;
    int code = dv_cli_parse_view(argc, argv, usage, 0, &view);

    for (int i = 0; code == DV_EXIT_OK && i < TIMES; i++) {
        DV_AUTO_FREE char *body = NULL;
        json_t *document = NULL;
        code = dv_http_get(view.daemon_directory, "/v1/check", &body, &document);
        if (code != DV_EXIT_OK)
            break;
        bool agrees = json_integer_value(json_object_get(document, "differences")) == 0;
        if (agrees || i == TIMES - 1) {
            if (view.json)
                fputs(body, stdout);
            else
                print_answer(document);
            code = agrees ? DV_EXIT_OK : DV_EXIT_FAILED;
            json_decref(document);
            break;
        }
        json_decref(document);
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    }
    return code;
}
