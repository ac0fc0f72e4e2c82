/* Asking a daemon over its control socket. */
#ifndef DV_CLI_HTTP_H
#define DV_CLI_HTTP_H

#include <jansson.h>
#include <stddef.h>

/* How long commands wait without a byte of an answer. A change that is given up may still be made, and a program that
 * starts is lost, so they wait longer for those. */
#define DV_HTTP_PATIENCE_S 3
#define DV_HTTP_CHANGE_PATIENCE_S 10

/* Sends a request and collects the answer's body, which the caller frees. Returns the HTTP status,
 * or a negative number, and the reason in `error`, when no answer came: -ETIMEDOUT when nothing came for patience_s
 * seconds. */
int dv_http_request(const char *directory, const char *method, const char *path, unsigned patience_s, char **body,
                    char *error, size_t error_bytes);
/* The daemon turns a connection away by an answer before any question, and closes it: often before libcurl, which then
 * only sees a broken connection, has asked. Returns the status with the answer's body, or a negative number. */
int dv_http_read_refusal(const char *directory, char **body);
/* Says that no answer came, from what dv_http_request has returned, and what to do. */
void dv_http_explain(int status, const char *directory, const char *error);

/* For commands: finds a daemon, asks it and reads its answer. On failure says why and returns an
 * exit code other than 0. */
int dv_http_ask(const char *wanted_directory, const char *method, const char *path, char **body, json_t **document);
int dv_http_get(const char *wanted_directory, const char *path, char **body, json_t **document);
/* The same for an answer that is plain text. */
int dv_http_text_of(const char *wanted_directory, const char *path, char **text);
/* The same, and prints the answer: as it is with --json, otherwise by the given function. Returns
 * the command's exit code. */
struct dv_cli_view;
int dv_http_show(const struct dv_cli_view *view, const char *method, const char *path,
                 void (*print)(const json_t *document));

/* Percent-encodes a text for a path or a query. The caller frees the result. */
char *dv_http_escape(const char *text);

/* A text member of a JSON object, or `otherwise` if there is none. */
const char *dv_http_text(const json_t *object, const char *key, const char *otherwise);

#endif
