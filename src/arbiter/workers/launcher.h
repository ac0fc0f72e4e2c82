/* The launcher: a process that does nothing but start zygotes. It is forked before divvyd gives up its
 * rights, and keeps those that a zygote needs, so that divvyd can have another zygote without having them
 * itself. The program that it starts was fixed when it was forked; it reads input of no other process. */
#ifndef DVD_WORKERS_LAUNCHER_H
#define DVD_WORKERS_LAUNCHER_H

#include <stdbool.h>
#include <sys/types.h>

struct dvd_launcher {
    int fd; /* -1: there is none */
    pid_t pid;
};

/* Becomes the process that is wanted: executes it with these descriptors, or ends. */
typedef void dvd_launcher_become(const void *argument, int socket_fd, int log_fd);

/* Returns 0 or a negative errno. */
int dvd_launcher_start(struct dvd_launcher *launcher, dvd_launcher_become *become, const void *argument,
                       bool of_system);
/* Starts one, a child of this process. Returns its pidfd, or a negative errno. */
int dvd_launcher_launch(const struct dvd_launcher *launcher, int socket_fd, int log_fd, pid_t *pid);
void dvd_launcher_stop(struct dvd_launcher *launcher);

#endif
