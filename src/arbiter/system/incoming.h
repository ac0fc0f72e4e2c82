/* Sockets that untrusted programs send to. A message can carry descriptors, and the process that closes the last
 * copy of one waits for the close: an hour for a TCP socket that lingers, longer for a file of a FUSE server that
 * does not answer. divvyd wants none and receives none. */
#ifndef DVD_SYSTEM_INCOMING_H
#define DVD_SYSTEM_INCOMING_H

#include <stddef.h>
#include <sys/types.h>

struct dvd_asides;

/* Has the kernel refuse messages with descriptors, for this socket and those that it accepts: Linux 6.16 and
 * later. Before that dvd_incoming_receive and dvd_incoming_close do it. */
void dvd_incoming_prepare(int fd);

/* Receives what recv(2) would, without waiting. -1 with EPERM: the message carries descriptors
 * and is still queued; close the socket. */
ssize_t dvd_incoming_receive(int fd, void *data, size_t bytes, int flags);

/* Closes a socket together with the messages that are still queued in it. */
void dvd_incoming_close(struct dvd_asides *asides, int *fd);

#endif
