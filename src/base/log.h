/* The log of our own processes (daemon and worker). Never linked into a tenant's process. */
#ifndef DV_BASE_LOG_H
#define DV_BASE_LOG_H

#include <stdarg.h>

enum dv_log_level { DV_LOG_ERROR, DV_LOG_WARNING, DV_LOG_INFO, DV_LOG_DEBUG };

/* Messages above this level are dropped. Default: DV_LOG_INFO. */
void dv_log_set_level(enum dv_log_level level);
/* A short word in front of each line, such as "worker 12". Copied. */
void dv_log_set_name(const char *name);
void dv_log(enum dv_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define dv_error(...) dv_log(DV_LOG_ERROR, __VA_ARGS__)
#define dv_warning(...) dv_log(DV_LOG_WARNING, __VA_ARGS__)
#define dv_info(...) dv_log(DV_LOG_INFO, __VA_ARGS__)
#define dv_debug(...) dv_log(DV_LOG_DEBUG, __VA_ARGS__)

#endif
