/* Tenants: whom a program belongs to, what share of each device that tenant has, and whether what it
 * asks for can be promised. Shares belong to a tenant on a device; its sessions take turns inside. */
#ifndef DVD_LEDGER_TENANTS_H
#define DVD_LEDGER_TENANTS_H

#include <uthash.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/config/config.h"
#include "src/arbiter/ledger/memory.h"
#include "src/arbiter/ledger/usage.h"
#include "src/arbiter/workers/worker_log.h"
#include "src/base/log.h"
#include "src/policy/policy.h"
#include "src/wire/session/handshake.h"

struct dv_arbiter;
struct dv_session;
struct dv_state_place;
struct dv_state_tenant;

/* A tenant on one leased device. Its request is promised while a session uses the device: the policy's
 * share is without it otherwise. */
struct dv_tenant_device {
    struct dv_policy_tenant policy;
    struct dv_share share; /* with the request */
    uint32_t sessions;     /* on the device */
    uint32_t users;        /* of these, those for which the request is promised */
    struct dv_tenant *tenant;
    struct dv_usage usage;
    struct dv_tenant_memory memory;
    struct dv_state_place *record; /* NULL: not kept */
};

/* A change of a share: only what is given changes. */
struct dv_share_wish {
    bool has_request, has_limit, has_weight, has_class, has_memory, has_memory_request;
    uint32_t request_ppm, limit_ppm, weight;
    enum dv_class class;
    uint64_t memory_bytes, memory_request_bytes;
};

/* Exists as long as one of its sessions does and for a while after that, so that nobody gets rid of
 * its limit, or of what it had too much, by leaving and coming back. */
struct dv_tenant {
    char name[DV_LIMIT_TENANT_NAME];
    struct dv_tenant_terms terms; /* as configured, or as an operator has set them since */
    uint32_t config_loads;        /* which configuration they come from */
    bool set_by_operator;         /* a reload does not change them any more */
    bool of_several;              /* it is not one user's: none of them changes the share of all */
    struct dv_log_limit changes;  /* of its share, by its sessions */
    uint32_t sessions;
    dv_ns left_at;                       /* sessions 0: since when */
    struct dv_tenant *prev_gone, *next_gone; /* those with no session, oldest first */
    struct dv_share_wish wish; /* of its sessions, and what was set since, for all its devices */
    struct dv_tenant_device *devices[DV_MAX_DEVICES]; /* by divvyd's index; NULL: it is not there */
    struct dv_state_tenant *record; /* NULL: not kept */
    struct dv_lines lines;          /* in the log, of all its workers */
    UT_hash_handle hh;
};

/* Finds the tenant of a session whose devices are chosen, and admits the session with the share that
 * it wishes on the first of its devices that can keep it. Returns 0, or a negative errno with words for
 * the tenant. */
int dv_tenants_admit(struct dv_arbiter *arbiter, struct dv_session *session,
                     const struct dv_share_wish *wish, char *text, size_t bytes);
/* Whether the tenant is one program alone, and so comes and goes with it. */
bool dv_tenant_is_program(const struct dv_tenant *tenant);
void dv_tenants_leave(struct dv_arbiter *arbiter, struct dv_session *session);
/* Whether at least one of its sessions is the user's. */
bool dv_tenant_has_user(const struct dv_arbiter *arbiter, const struct dv_tenant *tenant, uid_t uid);

/* What is promised on a device to other tenants. */
uint64_t dv_tenants_promised_to_others(const struct dv_arbiter *arbiter,
                                       const struct dv_tenant *tenant, uint32_t device);

/* One of its sessions comes to a device, with the tenant's request or without: returns the tenant's
 * place there, or NULL with words. Then one that came without it asks for it. Then one goes. */
struct dv_tenant_device *dv_tenants_come(struct dv_arbiter *arbiter, struct dv_tenant *tenant,
                                         uint32_t device, bool promised, char *text, size_t bytes);
int dv_tenants_promise(struct dv_arbiter *arbiter, struct dv_tenant_device *place, uint32_t device,
                       char *text, size_t bytes);
void dv_tenants_go(struct dv_arbiter *arbiter, struct dv_tenant_device *place, uint32_t device,
                   bool promised);

/* After a restart: a tenant of an earlier daemon, without a session so far; its place on a device; a
 * session of it. What the records say has been checked. Return NULL, or a negative errno, when there is
 * no memory for it. */
struct dv_tenant *dv_tenants_adopt(struct dv_arbiter *arbiter, struct dv_state_tenant *record,
                                   const struct dv_tenant_terms *terms,
                                   const struct dv_share_wish *wish);
int dv_tenants_adopt_place(struct dv_arbiter *arbiter, struct dv_tenant *tenant,
                           struct dv_state_place *record, const struct dv_share *share);
void dv_tenants_readmit(struct dv_arbiter *arbiter, struct dv_session *session,
                        struct dv_tenant *tenant);
/* A session of the tenant that was on the device is there again. */
void dv_tenants_come_again(struct dv_arbiter *arbiter, struct dv_tenant_device *place,
                           uint32_t device, bool promised);
/* All sessions have come back: what was promised to others is free. */
void dv_tenants_adopted(struct dv_arbiter *arbiter);

/* Forgets those who have had no session for a while, or all who have none. */
void dv_tenants_forget_gone(struct dv_arbiter *arbiter, bool all);

/* Changes the share of a tenant on one device (or all its devices: device -1) at once. bounded: only
 * as far as the tenant's terms allow. Returns 0, or a negative errno with words; then nothing has
 * changed. */
int dv_tenants_set(struct dv_arbiter *arbiter, struct dv_tenant *tenant, int device,
                   const struct dv_share_wish *wish, bool bounded, char *text, size_t bytes);

#endif
