/* Messages between divvyd and its keeper. The keeper holds a copy of the descriptors that sessions need
 * to outlive the daemon, and gives them to the next daemon. SEQPACKET messages of this one form on
 * <runtime directory>/keeper.sock, in host byte order; documented byte by byte in docs/wire.md.
 *
 *   divvyd:  PUT (id, kinds) + descriptors -->   replaces those under this id
 *   divvyd:  DROP (id) ---------------------->
 *   divvyd:  LIST --------------------------->
 *   keeper:  <-------- ITEM (id, kinds) + descriptors    for each
 *   keeper:  <-------- END
 *   divvyd:  QUIT --------------------------->   closes all, and ends
 *
 * A keeper serves one daemon, the one that connected last. */
#ifndef DV_WIRE_RESTART_KEEPER_H
#define DV_WIRE_RESTART_KEEPER_H

#include <assert.h>
#include <stdint.h>

#define DV_KEEPER_MAGIC 0x7065656bu /* "keep" */
#define DV_KEEPER_VERSION 1
#define DV_KEEPER_SOCKET "keeper.sock"

enum dv_keeper_op {
    DV_KEEPER_PUT = 1,
    DV_KEEPER_DROP = 2,
    DV_KEEPER_LIST = 3,
    DV_KEEPER_QUIT = 4,
    DV_KEEPER_ITEM = 16,
    DV_KEEPER_END = 17,
};

/* The kinds of descriptors of an id: bit N of `kinds` says that there is one of kind N, and they are
 * sent in this order. */
enum dv_keeper_kind {
    DV_KEPT_TENANT,  /* pidfd of the tenant's process */
    DV_KEPT_WORKER,  /* pidfd of the worker */
    DV_KEPT_SHM,     /* the session's shared memory */
    DV_KEPT_CHANNEL, /* divvyd's end of the lease channel */
    DV_KEPT_LOG,     /* reading end of the worker's standard error */
    DV_KEPT_CLIENT,  /* the session socket, while the client waits for its worker */
    DV_KEPT_STORE,   /* what its last worker has left */
    DV_KEPT_KINDS,
};
/* The id for the daemon's own descriptors, and their kinds. */
#define DV_KEEPER_DAEMON 0
enum {
    DV_KEPT_SESSION_SOCKET,
    DV_KEPT_CONTROL_SOCKET,
    DV_KEPT_ZYGOTE,
    DV_KEPT_ZYGOTE_SOCKET,
    DV_KEPT_ZYGOTE_LOG,
};

struct dv_keeper_message {
    uint32_t magic;
    uint16_t version;
    uint16_t op; /* enum dv_keeper_op */
    uint64_t id; /* session, or DV_KEEPER_DAEMON */
    uint32_t kinds;
    uint32_t patience_s; /* PUT of DV_KEEPER_DAEMON: how long the keeper waits for the next daemon before
                          * it closes all and ends; 0 otherwise */
};
static_assert(sizeof(struct dv_keeper_message) == 24, "wire");

#endif
