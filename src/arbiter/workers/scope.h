/* A scope of systemd: a cgroup for workers that is not the service's own. With version 2 of cgroups systemd
 * could not start divvyd again in a cgroup that has passed controllers on to those below it, so workers that
 * outlive a daemon have to be elsewhere. */
#ifndef DVD_WORKERS_SCOPE_H
#define DVD_WORKERS_SCOPE_H

#include <stddef.h>
#include <sys/types.h>

/* Makes the scope of this name (NAME.scope), or finds the one that an earlier daemon has made. `member` is a
 * process that moves into it, so that it stays as long as that process. Writes the path of its cgroup from
 * the top of the hierarchy. Returns 0, -ENOENT where systemd does not run, or another negative errno. */
int dvd_scope_open(const char *name, pid_t member, char *path, size_t bytes);

#endif
