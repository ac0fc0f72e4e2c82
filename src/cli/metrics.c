/* divvy metrics: the daemon's metrics, for a collector that reads files. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"

static const char usage[] = "Usage: divvy metrics [-o FILE] [--daemon DIR]\n"
                            "\n"
                            "Prints the daemon's metrics in the text format of Prometheus. For operators.\n"
                            "\n"
                            "  -o FILE        write them to FILE, which is replaced at once and never half written:\n"
                            "                 for the textfile collector of node_exporter\n"
                            "  --daemon DIR   ask the divvyd whose runtime directory is DIR\n"
                            "  --help         print this help\n";

/* Returns 0 or a negative errno. */
static int write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, text, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) /* nothing written without a reason: there is no room */
            return written < 0 ? -errno : -ENOSPC;
        text += written;
        length -= (size_t)written;
    }
    return 0;
}

static int replace_file(const char *path, const char *text)
{
    char draft[PATH_MAX];
    mode_t mask = umask(0);

    umask(mask);
    if ((size_t)snprintf(draft, sizeof draft, "%s.XXXXXX.tmp", path) >= sizeof draft)
        return -ENAMETOOLONG;
    DV_AUTO_CLOSE int fd = mkostemps(draft, sizeof ".tmp" - 1, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int error = fchmod(fd, 0644 & ~mask) < 0 ? -errno : write_all(fd, text, strlen(text));
    if (error == 0 && rename(draft, path) < 0)
        error = -errno;
    if (error < 0)
        unlink(draft);
    return error;
}

int dv_cli_metrics(int argc, char **argv)
{
    static const struct option options[] = {DV_CLI_VIEW_OPTIONS, {NULL, 0, NULL, 0}};
    struct dv_cli_view view = {0};
    const char *path = NULL;
    DV_AUTO_FREE char *text = NULL;
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "ho:", options, NULL)) != -1) {
        if (option == 'o')
            path = optarg;
        else if (dv_cli_view_option(&view, option, argv, usage) != DV_EXIT_OK)
            return DV_EXIT_USAGE;
    }
    int code = dv_cli_check_arguments(argc, argv, 0);
    if (code == DV_EXIT_OK)
        code = dv_http_text_of(view.daemon_directory, "/metrics", &text);
    if (code != DV_EXIT_OK)
        return code;
    if (!path) {
        fputs(text, stdout);
        return DV_EXIT_OK;
    }
    int error = replace_file(path, text);
    if (error < 0)
        dv_cli_error("cannot write %s: %s", path, strerror(-error));
    return error < 0 ? DV_EXIT_FAILED : DV_EXIT_OK;
}
