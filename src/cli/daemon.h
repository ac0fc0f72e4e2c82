/* Finding the daemon to talk to, and starting a private one where there is none. */
#ifndef DV_CLI_DAEMON_H
#define DV_CLI_DAEMON_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/rundir.h"

/* Finds a daemon whose named socket answers: only in `wanted` or $DIVVY_DIR if given, else the
 * system's, else the user's own. Returns 0 with the directory, or a negative errno: -ENOENT when
 * none runs; otherwise `directory` is that of the daemon that could not be reached. */
int dv_daemon_find(const char *wanted, const char *socket_name, int socket_type, char directory[DV_RUNDIR_BYTES]);

/* Like dv_daemon_find, for a program to be run; starts the user's own daemon if none
 * answers. Returns 0 or an exit code after a message. */
int dv_daemon_find_or_start(const char *wanted, char directory[DV_RUNDIR_BYTES]);

/* Says why no daemon could be reached and what to do. */
void dv_daemon_explain(int error, const char *directory);

/* If no daemon runs in the directory although its sockets are there, says since when, what waits for the next one, and
 * what to do. Returns whether that is so. */
bool dv_daemon_explain_left(const char *directory);

/* Finds a file beside this program, in a build tree relative to it, or at its installed place.
 * Returns 0 with an absolute path or -ENOENT. */
int dv_daemon_find_file(const char *const *beside, const char *installed, char *path, size_t bytes);

#endif
