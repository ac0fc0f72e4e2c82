/* Where a daemon lives: its runtime directory, the sockets in it and the ways to reach them. Used
 * by the daemon, the command line and the client library, so it neither logs nor exits. */
#ifndef DV_BASE_RUNDIR_H
#define DV_BASE_RUNDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#define DV_RUNDIR_SYSTEM "/run/divvy"
#define DV_RUNDIR_SESSION_SOCKET "session.sock"
/* In a directory of its own: the session socket can be passed on, to a container say, without this one. */
#define DV_RUNDIR_CONTROL "control"
#define DV_RUNDIR_CONTROL_SOCKET DV_RUNDIR_CONTROL "/control.sock"
/* Has the session socket under a second name, and nothing else. Containers get this directory in place of the runtime
 * directory, in which their root could reach the keeper and the state. */
#define DV_RUNDIR_CONTAINERS "containers"
/* A Unix socket's path has at most 107 characters, so a longer directory is of no use. */
#define DV_RUNDIR_BYTES sizeof(((struct sockaddr_un *)NULL)->sun_path)

/* Names the calling user's own directory: $XDG_RUNTIME_DIR/divvy where that directory is really the
 * user's, else /tmp/divvy-UID. Creates nothing. Returns 0 or -ENAMETOOLONG. */
int dv_rundir_user(char *path, size_t bytes);

/* Makes the directory if there is none, then checks it (see dv_rundir_check). Returns 1 when it was
 * made, 0 when it was there, or a negative errno. */
int dv_rundir_make(const char *path, mode_t mode);

/* Whether only its owner can change the directory, and the owner is the calling user. Returns 0, -EPERM
 * when it is another user's, -EACCES when others may write to it, -ENOTDIR, or what lstat says. */
int dv_rundir_check(const char *path);

/* The address of a socket in a directory. Returns 0 or -ENAMETOOLONG. */
int dv_rundir_address(struct sockaddr_un *address, const char *directory, const char *name);

/* A connected close-on-exec socket of the given type, or a negative errno: -EPERM when the directory, or
 * the process that serves it, is neither root's nor the calling user's, or others may write there. */
int dv_rundir_connect(const char *directory, const char *name, int type);

/* Locked as long as a divvyd runs in the directory. */
#define DV_RUNDIR_LOCK "divvyd.lock"
/* Written by a divvyd that left its sessions running for the next one, for people who look for it: the second at which
 * it ended, how many sessions, and how many seconds they wait. */
#define DV_RUNDIR_LEFT "divvyd.left"
/* False when no divvyd runs there: its sockets may still be there, kept for the next one. True also when
 * the caller cannot find out. */
bool dv_rundir_is_served(const char *directory);

#endif
