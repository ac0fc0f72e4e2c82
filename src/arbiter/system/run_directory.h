/* The runtime directory of a daemon, and the lock that keeps a second daemon out of it. */
#ifndef DVD_SYSTEM_RUN_DIRECTORY_H
#define DVD_SYSTEM_RUN_DIRECTORY_H

#include <stdbool.h>

#include "src/base/rundir.h"

struct dvd_run_directory {
    char path[DV_RUNDIR_BYTES];
    int lock_fd; /* -1: it is not locked */
};

/* Finds or makes the directory, and locks it. given: NULL for the usual one of the system, or of a user. Returns 0 or a
 * negative errno after having logged why. */
int dvd_run_directory_open(struct dvd_run_directory *directory, const char *given, bool of_user);
/* Gives up the lock. The files of the directory are removed unless a next daemon needs them. */
void dvd_run_directory_close(struct dvd_run_directory *directory, bool keep_files);

#endif
