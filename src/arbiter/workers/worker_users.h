/* The numbers of users that workers of root's daemon run as: which are taken. */
#ifndef DVD_WORKERS_WORKER_USERS_H
#define DVD_WORKERS_WORKER_USERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct dvd_worker_users {
    uid_t first;
    uint32_t count; /* numbers that can be given out */
    uint32_t used;
    uint32_t next;   /* where to look first: a returned number is reused as late as possible */
    uint64_t *taken; /* a bit for each */
};

/* Makes all numbers of a range free, at most DV_MAX_WORKER_USERS of them. `users` is all zeros, or was
 * initialized before. Returns 0 or -ENOMEM. */
int dvd_worker_users_init(struct dvd_worker_users *users, uid_t first, uid_t last);
void dvd_worker_users_fini(struct dvd_worker_users *users);

/* Takes any number. Returns false when all are taken. */
bool dvd_worker_users_take(struct dvd_worker_users *users, uid_t *uid);
/* Takes this one. Returns false when it is taken, or not in the range. */
bool dvd_worker_users_take_this(struct dvd_worker_users *users, uid_t uid);
void dvd_worker_users_give_back(struct dvd_worker_users *users, uid_t uid);

#endif
