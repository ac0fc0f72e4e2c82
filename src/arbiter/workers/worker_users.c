/* Which numbers of worker users are taken (see worker_users.h): a bit for each, read 64 at a time. */
#include "src/arbiter/workers/worker_users.h"

#include <errno.h>
#include <stdlib.h>

#include "src/arbiter/limits.h"

#define BITS 64

int dvd_worker_users_init(struct dvd_worker_users *users, uid_t first, uid_t last)
{
    uint64_t count = (uint64_t)last - first + 1;

    dvd_worker_users_fini(users);
    if (count > DV_MAX_WORKER_USERS)
        count = DV_MAX_WORKER_USERS;
    users->taken = calloc((count + BITS - 1) / BITS, sizeof *users->taken);
    if (!users->taken)
        return -ENOMEM;
    users->first = first;
    users->count = (uint32_t)count;
    return 0;
}

void dvd_worker_users_fini(struct dvd_worker_users *users)
{
    free(users->taken);
    *users = (struct dvd_worker_users){0};
}

static bool is_in_range(const struct dvd_worker_users *users, uid_t uid)
{
    return uid >= users->first && uid - users->first < users->count;
}

bool dvd_worker_users_take_this(struct dvd_worker_users *users, uid_t uid)
{
    uint32_t at = uid - users->first;

    if (!is_in_range(users, uid) || users->taken[at / BITS] >> at % BITS & 1)
        return false;
    users->taken[at / BITS] |= UINT64_C(1) << at % BITS;
    users->used++;
    return true;
}

bool dvd_worker_users_take(struct dvd_worker_users *users, uid_t *uid)
{
    if (users->used == users->count)
        return false;
    for (uint32_t at = users->next;; at = (at + 1) % users->count) {
        if (at % BITS == 0 && users->taken[at / BITS] == UINT64_MAX) {
            at += BITS - 1; /* all of these are taken */
            continue;
        }
        *uid = users->first + at;
        if (dvd_worker_users_take_this(users, *uid)) {
            users->next = (at + 1) % users->count;
            return true;
        }
    }
}

void dvd_worker_users_give_back(struct dvd_worker_users *users, uid_t uid)
{
    uint32_t at = uid - users->first;

    if (!is_in_range(users, uid) || !(users->taken[at / BITS] >> at % BITS & 1))
        return;
    users->taken[at / BITS] &= ~(UINT64_C(1) << at % BITS);
    users->used--;
}
