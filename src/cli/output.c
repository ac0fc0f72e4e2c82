/* The file of a command (see output.h). */
#include "src/cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "src/cli/cli.h"

static int fail(const struct dv_cli_output *output)
{
    dv_cli_error("cannot write %s: %s", output->path, strerror(errno));
    return DV_EXIT_FAILED;
}

int dv_cli_output_open(struct dv_cli_output *output, const char *path)
{
    *output = (struct dv_cli_output){.path = path};
    if (strcmp(path, "-") == 0) {
        output->file = stdout;
        return DV_EXIT_OK;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    output->is_new = fd >= 0;
    if (fd < 0 && errno == EEXIST)
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail(output);
    output->file = fdopen(fd, "w");
    if (output->file)
        return DV_EXIT_OK;
    int code = fail(output);
    close(fd);
    return code;
}

FILE *dv_cli_output_begin(struct dv_cli_output *output)
{
    /* of a pipe or a terminal there is nothing to cut */
    if (output->file != stdout && ftruncate(fileno(output->file), 0) < 0 && errno != EINVAL) {
        fail(output);
        return NULL;
    }
    return output->file;
}

int dv_cli_output_close(struct dv_cli_output *output, int code)
{
    bool failed = ferror(output->file) != 0;

    if (output->file == stdout)
        failed |= fflush(stdout) != 0;
    else
        failed |= fclose(output->file) != 0;
    if (failed && code == DV_EXIT_OK)
        code = fail(output);
    if (code != DV_EXIT_OK && output->is_new)
        unlink(output->path);
    return code;
}
