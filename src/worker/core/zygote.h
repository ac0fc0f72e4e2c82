/* The zygote: the process from which every worker is forked. */
#ifndef DV_WORKER_CORE_ZYGOTE_H
#define DV_WORKER_CORE_ZYGOTE_H

#include <stdbool.h>

struct dvk_runtime_api;

/* Where divvyd puts the zygote's end of their SEQPACKET socket. */
#define DV_ZYGOTE_SOCKET_FD 3

/* A probe that takes longer is ended: a vendor's driver may hang. */
#define DV_ZYGOTE_PROBE_LIMIT_S 20

/* So is a process that removes old compiled kernels, before the next one begins. */
#define DV_ZYGOTE_TRIM_LIMIT_S 15

/* Serves requests on the socket until its other end is closed; workers live on after that. of_system:
 * no worker may run as the zygote's own user or root, whatever is asked for. Returns the process's exit
 * status. In a forked worker it does not return. */
int dvk_zygote_run(int socket_fd, bool of_system, const struct dvk_runtime_api *api);

#endif
