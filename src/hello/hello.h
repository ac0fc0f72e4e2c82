/* How a program begins a session: it finds divvyd, and says what `divvy run` has put into its environment. Part of
 * libraries in a tenant's process, so it neither prints nor ends anything. */
#ifndef DV_HELLO_HELLO_H
#define DV_HELLO_HELLO_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/rundir.h"
#include "src/wire/session/handshake.h"

/* The directories in which divvyd is looked for. */
struct dv_hello_places {
    char first[DV_RUNDIR_BYTES], second[DV_RUNDIR_BYTES];
    bool has_second;
};

/* The one that is named; NULL: that of the environment, or the system's and the user's own. Reads the environment, so
 * threads that the program does not know of must not call it. */
void dv_hello_find(const char *directory, struct dv_hello_places *places);
/* Connects to a session socket. type: flags beside SOCK_SEQPACKET. Returns a socket, or a negative errno when none
 * answers; -EPERM when the one that answers is not trusted. */
int dv_hello_connect_to(const struct dv_hello_places *places, int type);
/* Both. */
int dv_hello_connect(const char *directory, int type);

/* Asks for the share and the limits that the environment names. Returns the bytes of the hello: earlier daemons know no
 * limits. */
size_t dv_hello_wish(struct dv_hello *hello);

#endif
