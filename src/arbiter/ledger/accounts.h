/* What tenants have used so far, for metrics: counters that outlive the tenant, which divvyd forgets soon after its
 * last session. Their number is bounded: when there are too many, the one whose tenant has been gone longest is added
 * to the account of all others. Programs that are tenants of their own are counted by the program's name. */
#ifndef DVD_LEDGER_ACCOUNTS_H
#define DVD_LEDGER_ACCOUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "src/arbiter/ids.h"
#include "src/arbiter/limits.h"
#include "src/base/clock.h"
#include "src/wire/session/handshake.h"

struct dvd_tenant;

/* On one device. */
struct dvd_account_device {
    bool is_used;
    dv_ns used_ns, waited_ns; /* of holds and waits that are over */
    dv_ns moving_ns;          /* bringing memory in */
    uint64_t grants;
};

struct dvd_account {
    char name[DV_MAX_TENANT_NAME]; /* empty: not in use */
    dv_ns left_at;                 /* when its last tenant was forgotten */
    struct dvd_tenant *tenants;    /* those that are counted here; linked by next_of_account */
    struct dvd_account_device devices[DV_MAX_DEVICES];
};

#define DVD_ACCOUNT_OTHER "other" /* the first of all */

struct dvd_accounts {
    struct dvd_account all[1 + DV_MAX_ACCOUNTS];
};

/* Returns NULL when memory is short: then nothing is counted. */
struct dvd_accounts *dvd_accounts_new(void);
void dvd_accounts_free(struct dvd_accounts *accounts);
/* A tenant begins, and is forgotten. accounts may be NULL. */
void dvd_accounts_enter(struct dvd_accounts *accounts, struct dvd_tenant *tenant);
void dvd_accounts_leave(struct dvd_tenant *tenant, dv_ns now);
/* The tenant begins to use a device. */
void dvd_accounts_use(const struct dvd_tenant *tenant, struct dvd_device_id device);

#endif
