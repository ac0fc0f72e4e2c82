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

#endif
