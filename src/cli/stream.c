/* Answers that do not end (see stream.h). */
#include "src/cli/stream.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/rundir.h"
#include "src/cli/http.h"

#define MAX_LINE_BYTES (64u << 20)
#define PATIENCE_MS 3000u

struct dv_stream {
    char directory[DV_RUNDIR_BYTES];
    CURLM *multi;
    CURL *easy;
    void (*take)(void *user, const json_t *line);
    void *user;
    char *line; /* the received part of the next one */
    size_t length, capacity;
    bool has_taken; /* lines, since dv_stream_wait began */
    bool has_begun; /* something has come */
    unsigned interval_ms;
    dv_ns silence; /* waited since something came */
    char error[CURL_ERROR_SIZE + 64];
};

static void take_line(struct dv_stream *stream)
{
    json_t *line = json_loadb(stream->line, stream->length, 0, NULL);
    const char *error = json_string_value(json_object_get(line, "error"));

    stream->length = 0;
    if (error)
        snprintf(stream->error, sizeof stream->error, "%s", error);
    else if (line)
        stream->take(stream->user, line);
    stream->has_taken = true;
    json_decref(line);
}

static bool append(struct dv_stream *stream, const char *data, size_t bytes)
{
    if (stream->length + bytes > MAX_LINE_BYTES)
        return false;
    if (stream->length + bytes > stream->capacity) {
        size_t capacity = 2 * (stream->length + bytes);
        char *longer = realloc(stream->line, capacity);
        if (!longer)
            return false;
        stream->line = longer;
        stream->capacity = capacity;
    }
    memcpy(stream->line + stream->length, data, bytes);
    stream->length += bytes;
    return true;
}

static size_t take_data(char *data, size_t size, size_t count, void *userdata)
{
    struct dv_stream *stream = userdata;
    size_t bytes = size * count, used = 0;

    stream->has_begun = true;
    stream->silence = 0;
    while (used < bytes) {
        const char *end = memchr(data + used, '\n', bytes - used);
        size_t piece = end ? (size_t)(end - (data + used)) : bytes - used;
        if (!append(stream, data + used, piece))
            return 0;
        used += piece + (end != NULL);
        if (end)
            take_line(stream);
    }
    return bytes;
}

struct dv_stream *dv_stream_open(const char *directory, const char *path, unsigned interval_ms,
                                 void (*take)(void *user, const json_t *line), void *user)
{
    struct dv_stream *stream = calloc(1, sizeof *stream);
    struct sockaddr_un address;
    char url[256];

    if (!stream || dv_rundir_address(&address, directory, DV_RUNDIR_CONTROL_SOCKET) < 0) {
        free(stream);
        return NULL;
    }
    snprintf(stream->directory, sizeof stream->directory, "%s", directory);
    stream->take = take;
    stream->user = user;
    stream->interval_ms = interval_ms;
    curl_global_init(CURL_GLOBAL_NOTHING);
    stream->multi = curl_multi_init();
    stream->easy = curl_easy_init();
    if (!stream->multi || !stream->easy) {
        dv_stream_close(stream);
        return NULL;
    }
    snprintf(url, sizeof url, "http://divvyd%s", path);
    curl_easy_setopt(stream->easy, CURLOPT_URL, url);
    curl_easy_setopt(stream->easy, CURLOPT_UNIX_SOCKET_PATH, address.sun_path);
    curl_easy_setopt(stream->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(stream->easy, CURLOPT_PROTOCOLS_STR, "http");
    curl_easy_setopt(stream->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(stream->easy, CURLOPT_WRITEFUNCTION, take_data);
    curl_easy_setopt(stream->easy, CURLOPT_WRITEDATA, stream);
    curl_multi_add_handle(stream->multi, stream->easy);
    return stream;
}

/* How long nothing may come. */
static dv_ns patience(const struct dv_stream *stream)
{
    if (stream->has_begun && !stream->interval_ms)
        return UINT64_MAX;
    return (PATIENCE_MS + (stream->has_begun ? stream->interval_ms : 0)) * DV_NS_PER_MS;
}

/* Waits for data or input. Only time spent in here counts as silence, and not more than was meant: this process may
 * have been stopped meanwhile. */
static void wait_for_data(struct dv_stream *stream, int input_fd, int timeout_ms)
{
    struct curl_waitfd input = {.fd = input_fd, .events = CURL_WAIT_POLLIN};
    dv_ns left = patience(stream) - stream->silence, most = (dv_ns)timeout_ms * DV_NS_PER_MS;

    if (most > left)
        most = left;
    dv_ns began = dv_now();
    curl_multi_poll(stream->multi, &input, input_fd >= 0, (int)(most / DV_NS_PER_MS) + 1, NULL);
    dv_ns waited = dv_now() - began;
    stream->silence += waited < most ? waited : most;
}

static void explain_silence(struct dv_stream *stream)
{
    snprintf(stream->error, sizeof stream->error,
             "it runs, but has not answered for %.1f s. It is stopped, or has too much to do: see its log, or restart "
             "it",
             (double)stream->silence / DV_NS_PER_S);
}

static void explain_end(struct dv_stream *stream, CURLcode result)
{
    DV_AUTO_FREE char *body = NULL;
    bool is_refused = !stream->has_begun && dv_http_read_refusal(stream->directory, &body) > 0;
    json_t *answer = is_refused ? json_loads(body, 0, NULL) : NULL;

    snprintf(stream->error, sizeof stream->error, "%s",
             dv_http_text(answer, "error",
                          result == CURLE_OK ? "the daemon has closed the connection" : curl_easy_strerror(result)));
    json_decref(answer);
}

bool dv_stream_wait(struct dv_stream *stream, int input_fd, int timeout_ms)
{
    int running = 0, left;

    stream->has_taken = false;
    curl_multi_perform(stream->multi, &running);
    if (running && !stream->has_taken) {
        wait_for_data(stream, input_fd, timeout_ms);
        curl_multi_perform(stream->multi, &running);
    }
    if (running && stream->silence >= patience(stream)) {
        explain_silence(stream);
        return false;
    }
    CURLMsg *message = curl_multi_info_read(stream->multi, &left);
    if (message && !stream->error[0])
        explain_end(stream, message->data.result);
    return running;
}

const char *dv_stream_error(const struct dv_stream *stream)
{
    return stream->error;
}

void dv_stream_close(struct dv_stream *stream)
{
    if (!stream)
        return;
    if (stream->easy && stream->multi)
        curl_multi_remove_handle(stream->multi, stream->easy);
    if (stream->easy)
        curl_easy_cleanup(stream->easy);
    if (stream->multi)
        curl_multi_cleanup(stream->multi);
    free(stream->line);
    free(stream);
}
