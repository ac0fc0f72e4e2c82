/* Sessions by number, or by the name that `divvy run --name` gave them. */
#ifndef DV_CLI_SESSION_NAME_H
#define DV_CLI_SESSION_NAME_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct dv_cli_view;

/* What a session runs: its command line without the directory of the program, behind its name if it has one. */
void dv_session_describe(char *text, size_t bytes, const json_t *session);

/* Finds the number of a session. Returns an exit code other than 0 after a message. */
int dv_session_find(const struct dv_cli_view *view, const char *text, uint64_t *session);

/* A command that takes sessions: makes the request for each, on its path with `suffix` behind it, and shows the
 * answers. Returns an exit code. */
int dv_session_ask_each(int argc, char **argv, const char *usage, const char *method, const char *suffix,
                        void (*print)(const json_t *document));

#endif
