/* Which tenant a program belongs to: the first rule of the configuration that matches its process decides. */
#ifndef DVD_SESSION_IDENTITY_H
#define DVD_SESSION_IDENTITY_H

#include "src/arbiter/config/config.h"
#include "src/arbiter/ledger/ledger.h"

/* The process at the other end of a session's socket. */
struct dvd_peer {
    int fd; /* -1: it has closed the socket */
    uid_t uid;
    gid_t gid;
    pid_t pid; /* 0: of another pid namespace */
    uint64_t session;
    const char *user, *command;
};

/* Returns false when a rule refuses the program. */
bool dvd_identity_find(const struct dvd_config *config, const struct dvd_peer *peer, struct dvd_identity *identity);
/* Returns whether a tenant of this name can have several users. */
bool dvd_identity_is_shared(const struct dvd_config *config, const char *name);
/* The name of a tenant by the path of its cgroup, as far as that matches a pattern (NULL: any but the root). Returns
 * false when it does not. */
bool dvd_identity_of_cgroup(const char *path, const char *pattern, char *name, size_t bytes);

#endif
