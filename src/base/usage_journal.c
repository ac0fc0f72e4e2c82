/* Lines of the journal of used device time (see usage_journal.h). */
#include "src/base/usage_journal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

size_t dv_usage_line_write(const struct dv_usage_line *line, char *text, size_t bytes)
{
    int length =
        snprintf(text, bytes,
                 "%d\t%" PRId64 "\t%" PRId64 "\t%" PRIu64 "\t%" PRIu32 "\t%d\t%" PRIu64 "\t%" PRIu64 "\t%s\t%s\t%s\n",
                 DV_USAGE_VERSION, line->time_s, line->started_s, line->session, line->uid, line->is_last,
                 line->used_ms, line->waited_ms, line->user, line->tenant, line->command);

    return length > 0 && (size_t)length < bytes ? (size_t)length : 0;
}

/* Copies the text up to the next tab or the end of the line. Returns what follows, or NULL. */
static const char *take_text(const char *from, char *field, size_t bytes)
{
    size_t length = strcspn(from, "\t\n");

    if (length >= bytes)
        return NULL;
    memcpy(field, from, length);
    field[length] = '\0';
    return from[length] ? from + length + 1 : from + length;
}

bool dv_usage_line_read(const char *text, struct dv_usage_line *line)
{
    int version, is_last, used = 0;
    const char *last = strrchr(text, '\t');

    *line = (struct dv_usage_line){0};
    if (sscanf(text, "%d\t%" SCNd64 "\t%" SCNd64 "\t%" SCNu64 "\t%" SCNu32 "\t%d\t%" SCNu64 "\t%" SCNu64 "\t%n",
               &version, &line->time_s, &line->started_s, &line->session, &line->uid, &is_last, &line->used_ms,
               &line->waited_ms, &used) != 8 ||
        version != DV_USAGE_VERSION || is_last < 0 || is_last > 1 || used == 0 || !strchr(text, '\n'))
        return false;
    line->is_last = is_last != 0;
    text += used;
    return (text = take_text(text, line->user, sizeof line->user)) &&
           (text = take_text(text, line->tenant, sizeof line->tenant)) && text == last + 1 &&
           take_text(text, line->command, sizeof line->command);
}
