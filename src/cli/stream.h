/* Answers of the daemon that do not end, such as GET /v1/watch: a line of JSON each, read without blocking. */
#ifndef DV_CLI_STREAM_H
#define DV_CLI_STREAM_H

#include <jansson.h>
#include <stdbool.h>

struct dv_stream;

/* Begins to ask the daemon in the directory, which is to send a line each interval; 0: when it has something to say.
 * take is called for each line while dv_stream_wait runs. NULL when out of memory. */
struct dv_stream *dv_stream_open(const char *directory, const char *path, unsigned interval_ms,
                                 void (*take)(void *user, const json_t *line), void *user);
/* Waits for lines, or for input on a descriptor (-1: none), up to this long. Returns false when the connection has
 * ended, or nothing has come for 3 s longer than it should; dv_stream_error says why. */
bool dv_stream_wait(struct dv_stream *stream, int input_fd, int timeout_ms);
const char *dv_stream_error(const struct dv_stream *stream);
void dv_stream_close(struct dv_stream *stream);

#endif
