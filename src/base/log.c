/* The log: one line per message on stderr, written with a single write(2) so that lines of several
 * processes do not mix. With a journal behind stderr the <N> prefix carries the priority. */
#include "src/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"

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

/* The journal and terminals need no time; a file does. */
static bool writes_file(void)
{
    static int is_file = -1; /* not known yet */
    struct stat info;

    if (is_file < 0)
        is_file = fstat(STDERR_FILENO, &info) == 0 && S_ISREG(info.st_mode);
    return is_file;
}

static size_t put_time(char *line, size_t bytes)
{
    struct timespec now;
    struct tm local;

    clock_gettime(CLOCK_REALTIME, &now);
    if (!localtime_r(&now.tv_sec, &local))
        return 0;
    size_t used = strftime(line, bytes, "%Y-%m-%d %H:%M:%S", &local);
    return used + (size_t)snprintf(line + used, bytes - used, ".%03ld ", now.tv_nsec / 1000000);
}

void dv_log(enum dv_log_level level, const char *format, ...)
{
    static const char *const priority[] = {"<3>", "<4>", "<6>", "<7>"};
    static const char *const word[] = {"error: ", "warning: ", "", ""};
    char line[1024];

    if (level > log_level)
        return;

    size_t used = writes_file() ? put_time(line, sizeof line) : 0;
    used += (size_t)snprintf(line + used, sizeof line - used, "%s%s: %s",
                             getenv("JOURNAL_STREAM") ? priority[level] : "", log_name, word[level]);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + used, sizeof line - used - 1, format, args);
    va_end(args);

    size_t length = used + (more > 0 ? (size_t)more : 0);
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

bool dv_log_fill(struct dv_log_bucket *lines, double per_s, unsigned most)
{
    uint64_t now = dv_now() / DV_NS_PER_US;

    lines->left += (double)(now - lines->filled_us) * per_s / 1e6;
    if (lines->left > most || lines->filled_us == 0)
        lines->left = most;
    lines->filled_us = now;
    return lines->left >= 1;
}
