/* The log: one line per message on stderr, written with a single write(2) so that lines of several
 * processes do not mix. With a journal behind stderr the <N> prefix carries the priority. */
#include "src/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum dv_log_level log_level = DV_LOG_INFO;
static char log_name[48] = "divvy";

void dv_log_set_level(enum dv_log_level level)
{
    log_level = level;
}

void dv_log_set_name(const char *name)
{
    snprintf(log_name, sizeof log_name, "%s", name);
}

void dv_log(enum dv_log_level level, const char *format, ...)
{
    static const char *const priority[] = {"<3>", "<4>", "<6>", "<7>"};
    static const char *const word[] = {"error: ", "warning: ", "", ""};
    char line[1024];

    if (level > log_level)
        return;

    int used =
        snprintf(line, sizeof line, "%s%s: %s", getenv("JOURNAL_STREAM") ? priority[level] : "", log_name, word[level]);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);

    size_t length = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, length);
    (void)written; /* an error cannot be reported anywhere */
}

bool dv_log_within(struct dv_log_limit *limit, unsigned lines_per_s)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((uint64_t)now.tv_sec != limit->second) {
        unsigned left_out = limit->left_out;
        *limit = (struct dv_log_limit){.second = (uint64_t)now.tv_sec};
        if (left_out)
            dv_warning("(%u lines like the next one were left out)", left_out);
    }
    bool within = limit->lines++ < lines_per_s;
    limit->left_out += !within;
    return within;
}
