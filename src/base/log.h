/* The log of our own processes (daemon and worker). Never linked into a tenant's process. */
#ifndef DV_BASE_LOG_H
#define DV_BASE_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

enum dv_log_level { DV_LOG_ERROR, DV_LOG_WARNING, DV_LOG_INFO, DV_LOG_DEBUG };

/* Messages above this level are dropped. Default: DV_LOG_INFO. */
void dv_log_set_level(enum dv_log_level level);
/* A short word in front of each line, such as "worker 12". Copied. */
void dv_log_set_name(const char *name);
void dv_log(enum dv_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For messages that others can cause at will: at most lines_per_s, and before the next line the number of
 * those that were left out. */
struct dv_log_limit {
    uint64_t second;
    unsigned lines, left_out;
};
bool dv_log_within(struct dv_log_limit *limit, unsigned lines_per_s);

/* A number of lines that may come at once, filled up again as time goes by. */
struct dv_log_bucket {
    double left;
    uint64_t filled_us; /* 0: never, so it is full */
};
/* Fills it up. Returns whether a line is left; the caller takes it. */
bool dv_log_fill(struct dv_log_bucket *lines, double per_s, unsigned most);

#define dv_error(...) dv_log(DV_LOG_ERROR, __VA_ARGS__)
#define dv_warning(...) dv_log(DV_LOG_WARNING, __VA_ARGS__)
#define dv_info(...) dv_log(DV_LOG_INFO, __VA_ARGS__)
#define dv_debug(...) dv_log(DV_LOG_DEBUG, __VA_ARGS__)

#endif
