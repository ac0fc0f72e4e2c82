/* Shares that an operator has set for good (`divvy set --save`): they override the configuration for tenants of that
 * name, and are kept in a file that divvyd writes itself. */
#ifndef DVD_CONFIG_SAVED_H
#define DVD_CONFIG_SAVED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/arbiter/config/terms.h"

struct dvd_saved_share;

struct dvd_saved {
    int directory_fd; /* -1: nothing can be saved */
    bool is_broken;   /* the file has an error, and nothing is saved before it is corrected */
    bool is_drafted;  /* there is a draft that has not taken the place of the file */
    uint64_t draft;   /* its number */
    struct dvd_saved_share *all;
};

/* Reads the draft in a directory, if it is whole, or the file. One that cannot be read, or with an error, is refused
 * with a message in the log. */
void dvd_saved_open(struct dvd_saved *saved, const char *directory);
void dvd_saved_close(struct dvd_saved *saved);
/* The saved share of a tenant, or NULL. */
const struct dvd_share_change *dvd_saved_find(const struct dvd_saved *saved, const char *tenant);
/* Whether a change can be added to what is saved for a tenant. Returns 0, -ERANGE (the share would make no sense),
 * -EINVAL (no tenant can have the name) or -ENOSPC. */
int dvd_saved_check(const struct dvd_saved *saved, const char *tenant, const struct dvd_share_change *change);
/* Adds it (NULL: forgets all that is saved for the tenant). Returns 0 or a negative errno. */
int dvd_saved_put(struct dvd_saved *saved, const char *tenant, const struct dvd_share_change *change);
/* Writes the draft of a new file. Returns its descriptor, which is the caller's and is to be synced before
 * dvd_saved_commit, or a negative errno: then an earlier draft is as it was. */
int dvd_saved_write(struct dvd_saved *saved);
/* The draft takes the place of the file. */
void dvd_saved_commit(struct dvd_saved *saved);

#endif
