/* HTTP over a Unix socket with libcurl (see http.h). */
#include "src/cli/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "src/base/cleanup.h"
#include "src/base/rundir.h"
#include "src/cli/cli.h"
#include "src/cli/daemon.h"

#define TIMEOUT_S 20L
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

int dv_http_request(const char *directory, const char *method, const char *path, char **body, char *error,
                    size_t error_bytes)
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
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, curl_error);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    if (strcmp(method, "POST") == 0) {
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
    }
    CURLcode result = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl);
    if (result != CURLE_OK) {
        snprintf(error, error_bytes, "%s", curl_error[0] ? curl_error : curl_easy_strerror(result));
        free(answer.data);
        return -1;
    }
    *body = answer.data ? answer.data : strdup("");
    return (int)status;
}

/* A daemon of another version may not know the request, and cannot explain that. */
static void explain_version(const char *directory)
{
    DV_AUTO_FREE char *body = NULL;
    char error[256];

    if (dv_http_request(directory, "GET", "/v1/version", &body, error, sizeof error) != 200)
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

int dv_http_ask(const char *wanted_directory, const char *method, const char *path, char **body, json_t **document)
{
    char directory[DV_RUNDIR_BYTES];
    char error[512];

    *body = NULL;
    *document = NULL;
    int found = dv_daemon_find(wanted_directory, DV_RUNDIR_CONTROL_SOCKET, SOCK_STREAM, directory);
    if (found < 0) {
        dv_daemon_explain(found, directory);
        return DV_EXIT_FAILED;
    }
    int status = dv_http_request(directory, method, path, body, error, sizeof error);
    if (status < 0) {
        dv_cli_error("the divvyd in %s did not answer: %s (it closes the connections of a user who has "
                     "too many)",
                     directory, error);
        return DV_EXIT_FAILED;
    }
    *document = json_loads(*body, 0, NULL);
    if (status == 200 && json_is_object(*document))
        return DV_EXIT_OK;
    if (status == 200)
        dv_cli_error("the answer of the divvyd in %s is not JSON", directory);
    else if (status == 403 && strcmp(method, "GET") == 0)
        dv_daemon_explain(-EACCES, directory);
    else
        explain_refusal(directory, status, json_string_value(json_object_get(*document, "error")));
    json_decref(*document);
    *document = NULL;
    free(*body);
    *body = NULL;
    return DV_EXIT_FAILED;
}

int dv_http_get(const char *wanted_directory, const char *path, char **body, json_t **document)
{
    return dv_http_ask(wanted_directory, "GET", path, body, document);
}

int dv_http_show(const struct dv_cli_view *view, const char *method, const char *path,
                 void (*print)(const json_t *document))
{
    DV_AUTO_FREE char *body = NULL;
    json_t *document = NULL;

    int code = dv_http_ask(view->daemon_directory, method, path, &body, &document);
    if (code != DV_EXIT_OK)
        return code;
    if (view->json)
        fputs(body, stdout);
    else
        print(document);
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
