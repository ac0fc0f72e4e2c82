/* HTTP over a Unix socket with libcurl (see http.h). */
#include "src/cli/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "src/base/cleanup.h"
#include "src/base/rundir.h"
#include "src/cli/cli.h"
#include "src/cli/daemon.h"
#include "src/cli/table.h"

#define TIMEOUT_S 20L /* for the whole answer */
#define REFUSAL_MS 300
#define MAX_BODY_BYTES (64u << 20)

struct answer {
    char *data;
    size_t length;
};

static size_t take_data(char *data, size_t size, size_t count, void *userdata)
{
    struct answer *answer = userdata;
    size_t bytes = size * count;

    if (answer->length + bytes > MAX_BODY_BYTES)
        return 0;
    char *longer = realloc(answer->data, answer->length + bytes + 1);
    if (!longer)
        return 0;
    memcpy(longer + answer->length, data, bytes);
    answer->data = longer;
    answer->length += bytes;
    longer[answer->length] = '\0';
    return bytes;
}

int dv_http_read_refusal(const char *directory, char **body)
{
    char answer[1024];
    size_t used = 0;
    ssize_t got;
    int status;
    DV_AUTO_CLOSE int fd = dv_rundir_connect(directory, DV_RUNDIR_CONTROL_SOCKET, SOCK_STREAM);
    struct pollfd input = {.fd = fd, .events = POLLIN};

    while (fd >= 0 && used + 1 < sizeof answer && poll(&input, 1, REFUSAL_MS) > 0 &&
           (got = recv(fd, answer + used, sizeof answer - used - 1, 0)) > 0)
        used += (size_t)got;
    answer[used] = '\0';
    const char *text = strstr(answer, "\r\n\r\n");
    if (!text || sscanf(answer, "HTTP/1.1 %d", &status) != 1)
        return -1;
    *body = strdup(text + strlen("\r\n\r\n"));
    return *body ? status : -1;
}

int dv_http_request(const char *directory, const char *method, const char *path, unsigned patience_s, char **body,
                    char *error, size_t error_bytes)
{
    struct answer answer = {0};
    char curl_error[CURL_ERROR_SIZE] = "";
    DV_AUTO_FREE char *url = NULL;
    struct sockaddr_un address;
    long status = 0;

    *body = NULL;
    if (dv_rundir_address(&address, directory, DV_RUNDIR_CONTROL_SOCKET) < 0) {
        snprintf(error, error_bytes, "the directory's name is too long");
        return -1;
    }
    curl_global_init(CURL_GLOBAL_NOTHING); /* plain HTTP: no encryption to set up */
    CURL *curl = curl_easy_init();
    if (!curl) {
        snprintf(error, error_bytes, "libcurl does not start");
        return -1;
    }
    if (asprintf(&url, "http://divvyd%s", path) < 0)
        url = NULL;
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L); /* a tenant may be called ".." */
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, address.sun_path);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)patience_s);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, curl_error);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    if (strcmp(method, "POST") == 0) {
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
    } else {
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    }
    CURLcode result = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl);
    if (result != CURLE_OK) {
        if (result == CURLE_OPERATION_TIMEDOUT)
            snprintf(error, error_bytes, "%s for %u s", answer.length ? "has not gone on" : "has not answered",
                     patience_s);
        else
            snprintf(error, error_bytes, "%s", curl_error[0] ? curl_error : curl_easy_strerror(result));
        free(answer.data);
        return result == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : dv_http_read_refusal(directory, body);
    }
    *body = answer.data ? answer.data : strdup("");
    return (int)status;
}

/* A daemon of another version may not know the request, and cannot explain that. */
static void explain_version(const char *directory)
{
    DV_AUTO_FREE char *body = NULL;
    char error[256];

    if (dv_http_request(directory, "GET", "/v1/version", DV_HTTP_PATIENCE_S, &body, error, sizeof error) != 200)
        return;
    json_t *document = json_loads(body, 0, NULL);
    const char *version = dv_http_text(document, "version", "unknown");
    if (strcmp(version, DIVVY_VERSION) != 0)
        dv_cli_error("that divvyd has version %s and this program has " DIVVY_VERSION
                     "; restart divvyd if it should be newer.",
                     version);
    json_decref(document);
}

static void explain_refusal(const char *directory, int status, const char *reason)
{
    if (reason)
        dv_cli_error("%s (answer of the divvyd in %s)", reason, directory);
    else
        dv_cli_error("the divvyd in %s refuses without a reason (HTTP %d)", directory, status);
    if (status == 404 || status == 405)
        explain_version(directory);
}

void dv_http_explain(int status, const char *directory, const char *error)
{
    if (status == -ETIMEDOUT)
        dv_cli_error("the divvyd in %s runs, but %s. It is stopped, or has too much to do: try again, see its log, or "
                     "restart it.",
                     directory, error);
    else
        dv_cli_error("the divvyd in %s did not answer: %s. Try again; its log may say more.", directory, error);
}

/* Finds a daemon and asks it. Returns the status of HTTP, or a negative number after a message. */
static int ask(const char *wanted_directory, const char *method, const char *path, char directory[DV_RUNDIR_BYTES],
               char **body)
{
    unsigned patience_s = strcmp(method, "GET") == 0 ? DV_HTTP_PATIENCE_S : DV_HTTP_CHANGE_PATIENCE_S;
    char error[512];

    *body = NULL;
    int found = dv_daemon_find(wanted_directory, DV_RUNDIR_CONTROL_SOCKET, SOCK_STREAM, directory);
    if (found < 0) {
        dv_daemon_explain(found, directory);
        return -1;
    }
    if (dv_daemon_explain_left(directory))
        return -1;
    int status = dv_http_request(directory, method, path, patience_s, body, error, sizeof error);
    if (status < 0 && !dv_daemon_explain_left(directory))
        dv_http_explain(status, directory, error);
    return status;
}

int dv_http_ask(const char *wanted_directory, const char *method, const char *path, char **body, json_t **document)
{
    char directory[DV_RUNDIR_BYTES];
    int status = ask(wanted_directory, method, path, directory, body);

    *document = status < 0 ? NULL : json_loads(*body, 0, NULL);
    if (status == 200 && json_is_object(*document))
        return DV_EXIT_OK;
    if (status == 200)
        dv_cli_error("the answer of the divvyd in %s is not JSON", directory);
    else if (status > 0)
        explain_refusal(directory, status, json_string_value(json_object_get(*document, "error")));
    json_decref(*document);
    *document = NULL;
    free(*body);
    *body = NULL;
    return DV_EXIT_FAILED;
}

int dv_http_text_of(const char *wanted_directory, const char *path, char **text)
{
    char directory[DV_RUNDIR_BYTES];
    int status = ask(wanted_directory, "GET", path, directory, text);

    if (status == 200)
        return DV_EXIT_OK;
    if (status > 0) {
        json_t *document = json_loads(*text, 0, NULL);
        explain_refusal(directory, status, json_string_value(json_object_get(document, "error")));
        json_decref(document);
    }
    free(*text);
    *text = NULL;
    return DV_EXIT_FAILED;
}

int dv_http_get(const char *wanted_directory, const char *path, char **body, json_t **document)
{
    return dv_http_ask(wanted_directory, "GET", path, body, document);
}

/* The answer with texts that this terminal can show. */
static json_t *make_plain(json_t *document)
{
    DV_AUTO_FREE char *text = dv_screen_is_unicode() ? NULL : json_dumps(document, JSON_COMPACT);

    if (!text)
        return document;
    dv_screen_make_plain(text);
    json_t *plain = json_loads(text, 0, NULL);
    if (!plain)
        return document;
    json_decref(document);
    return plain;
}

int dv_http_show(const struct dv_cli_view *view, const char *method, const char *path,
                 void (*print)(const json_t *document))
{
    DV_AUTO_FREE char *body = NULL;
    json_t *document = NULL;

    int code = dv_http_ask(view->daemon_directory, method, path, &body, &document);
    if (code != DV_EXIT_OK)
        return code;
    if (view->json) {
        fputs(body, stdout);
    } else {
        document = make_plain(document);
        print(document);
    }
    json_decref(document);
    return DV_EXIT_OK;
}

char *dv_http_escape(const char *text)
{
    char *escaped = curl_easy_escape(NULL, text, 0);
    char *copy = strdup(escaped ? escaped : "");

    curl_free(escaped);
    return copy;
}

const char *dv_http_text(const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : otherwise;
}
