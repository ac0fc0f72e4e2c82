/* How a program begins a session: it finds divvyd, and says what `divvy run` has put into its environment. Part of
 * libraries in a tenant's process, so it neither prints nor ends anything. */
#ifndef DV_HELLO_HELLO_H
#define DV_HELLO_HELLO_H

#include <stddef.h>

#include "src/wire/session/handshake.h"

/* Connects to the session socket in a directory; NULL: of the daemon named by the environment, or the system's, or the
 * user's own. type: flags beside SOCK_SEQPACKET. Returns a socket, or a negative errno when none answers; -EPERM when
 * the one that answers is not trusted. */
int dv_hello_connect(const char *directory, int type);

/* Asks for the share and the limits that the environment names. Returns the bytes of the hello: earlier daemons know no
 * limits. */
size_t dv_hello_wish(struct dv_hello *hello);

#endif
