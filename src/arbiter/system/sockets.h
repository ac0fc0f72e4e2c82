/* Listening sockets in the runtime directory. */
#ifndef DVD_SYSTEM_SOCKETS_H
#define DVD_SYSTEM_SOCKETS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

/* Makes a listening Unix socket with this file mode. Returns the descriptor or a negative errno. */
int dvd_socket_open(const char *directory, const char *name, int type, unsigned mode);
/* A listening TCP socket on 127.0.0.1, or a negative errno. */
int dvd_socket_open_loopback(uint16_t port);
/* Whether a socket is a Unix socket, whose peer the kernel identifies. */
bool dvd_socket_is_local(int fd);
/* Gives a socket or its directory to a group, with these permissions; warns where that fails. */
void dvd_socket_let_in(const char *path, gid_t group, mode_t mode);
/* Returns the next connection of a listening source, or -1. Without a descriptor for it the socket stays readable:
 * the source is slowed down, so that the loop does not spin. */
int dvd_socket_accept(sd_event_source *source, int fd);

#endif
