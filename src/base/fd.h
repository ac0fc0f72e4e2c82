/* Descriptors across sockets: one message with the descriptors that travel beside it. */
#ifndef DV_BASE_FD_H
#define DV_BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define DV_MAX_FDS_PER_MESSAGE 8

/* Sends one SEQPACKET message with descriptors. Returns 0 or a negative errno. */
int dv_fd_send(int socket, const void *data, size_t bytes, const int *fds, int fd_count);

/* Receives one message. Fills up to fd_capacity descriptors (close-on-exec; the surplus is closed)
 * and their number. Returns the message's length, 0 at the peer's end, or a negative errno
 * (-EMSGSIZE when the message was longer than the buffer: it is dropped whole). */
ssize_t dv_fd_receive(int socket, void *data, size_t bytes, int *fds, int fd_capacity, int *fd_count, int flags);

/* Has the kernel refuse messages with descriptors that are sent to this socket, and to those that it accepts.
 * Linux before 6.16 cannot: false. */
bool dv_fd_refuse(int socket);

#endif
