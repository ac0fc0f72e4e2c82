/* The call log: DIVVY_LOG=FILE. */
#include "src/client/opencl/session.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *log_path;

void dvc_log_open(void)
{
    const char *path = secure_getenv("DIVVY_LOG");
    if (path && *path && !log_path)
        log_path = strdup(path);
}

bool dvc_log_enabled(void)
{
    return log_path != NULL;
}

/* Opens the file for each line. That is slow, but the library keeps no descriptors, and the application can close
 * any. */
void dvc_log_call(const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (length < 0)
        return;
    if ((size_t)length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    int fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    ssize_t written = write(fd, line, (size_t)length);
    (void)written;
    close(fd);
}
