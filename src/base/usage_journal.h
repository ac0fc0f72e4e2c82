/* The journal of used device time: where it is, and its lines. divvyd appends a line for each session from time to time
 * and at its end; `divvy usage` reads them. */
#ifndef DV_BASE_USAGE_JOURNAL_H
#define DV_BASE_USAGE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DV_STATE_SYSTEM "/var/lib/divvy"
#define DV_USAGE_FILE "usage.log"
#define DV_USAGE_FILES 4 /* usage.log, and usage.log.1 to usage.log.3, which are older */
#define DV_USAGE_FILE_BYTES_MAX (16u << 20)
#define DV_USAGE_LINE_BYTES 512
#define DV_USAGE_VERSION 1

/* Fields of a line, separated by tabs, after its version. Figures are sums since the session began, so that a line that
 * is lost or written twice changes nothing. */
struct dv_usage_line {
    int64_t time_s, started_s; /* since 1970; the start tells sessions of one number apart */
    uint64_t session;
    uint32_t uid;
    bool is_last;
    uint64_t used_ms, waited_ms;
    char user[64], tenant[96], command[64];
};

/* Writes a line with its newline. Returns its bytes, or 0 when it is too long. */
size_t dv_usage_line_write(const struct dv_usage_line *line, char *text, size_t bytes);
/* Reads a line. Returns false when it is none. */
bool dv_usage_line_read(const char *text, struct dv_usage_line *line);

#endif
