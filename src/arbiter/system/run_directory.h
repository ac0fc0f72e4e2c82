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
/* Puts the session socket, which has to be there, into the directory for containers, under a second name. */
void dvd_run_directory_offer_containers(const struct dvd_run_directory *directory);
/* Notes for people who look for the daemon that it has left this many sessions running, which wait for the next one. */
void dvd_run_directory_note_left(const struct dvd_run_directory *directory, unsigned sessions, unsigned wait_s);
/* Gives up the lock. The files of the directory are removed unless a next daemon needs them. */
void dvd_run_directory_close(struct dvd_run_directory *directory, bool keep_files);

#endif
