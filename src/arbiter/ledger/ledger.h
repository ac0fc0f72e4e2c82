/* The ledger: the tenants of each device, their shares of its time, the leases of their sessions, and the
 * memory that each of them has there. It takes the messages of lease channels, and sends its decisions through
 * struct dvd_ledger_events. It knows no process, socket or configuration file, and uses the clock of its owner,
 * so that tests and divvy-sim run it in virtual time. */
#ifndef DVD_LEDGER_LEDGER_H
#define DVD_LEDGER_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uthash.h>

#include "src/arbiter/ledger/accounts.h"
#include "src/arbiter/ledger/entitlements.h"
#include "src/arbiter/ledger/figures.h"
#include "src/arbiter/ledger/histogram.h"
#include "src/arbiter/ledger/memory.h"
#include "src/arbiter/ledger/trace.h"
#include "src/arbiter/ledger/usage.h"
#include "src/arbiter/config/terms.h"
#include "src/arbiter/limits.h"
#include "src/base/log.h"
#include "src/base/timers.h"
#include "src/policy/policy.h"
#include "src/wire/lease/message.h"
#include "src/wire/session/handshake.h"

struct dvd_state;
struct dv_state_lease;
struct dv_state_tenant_device;
struct dv_state_session;
struct dv_state_tenant;
struct dvd_ledger;
struct dvd_lessee;
struct dvd_member;
struct dvd_tenant;

/* ---- tenants ---- */

/* A tenant on one device. */
struct dvd_tenant_device {
    struct dv_policy_tenant policy; /* its share is without the request while users is 0 */
    struct dv_share share;          /* with the request */
    uint32_t sessions;              /* on the device */
    enum dv_class present_as;       /* the class under which the device counts it as present */
    uint32_t users;                 /* sessions for which the request is promised */
    struct dvd_tenant *tenant;
    struct dvd_device *device;
    struct dvd_usage usage;
    dv_ns waited_ns; /* by all its sessions, until they were granted the device */
    struct dvd_tenant_memory memory;
    struct dv_state_tenant_device *record; /* NULL: not recorded */
};

/* A tenant exists while it has a session and for a while afterwards, so that it cannot get rid of its limit or
 * of overuse by leaving and coming back. */
struct dvd_tenant {
    struct dvd_ledger *ledger;
    char name[DV_MAX_TENANT_NAME];
    struct dvd_tenant_terms terms;  /* as configured, or as an operator has set them since */
    uint32_t terms_version;         /* of the ledger when these terms were taken */
    bool set_by_operator;           /* a reload does not change the terms */
    bool is_shared;                 /* by several users, and none of them may change its share */
    bool request_grows;             /* with the configuration that is read now */
    struct dv_log_limit changes;    /* of its share, by its sessions */
    struct dv_log_bucket log_lines; /* of all its workers */
    uint32_t sessions;
    dv_ns left_at;                            /* when the last session ended */
    struct dvd_tenant *prev_gone, *next_gone; /* tenants without a session, oldest first */
    struct dvd_account *account;              /* NULL: it is not counted */
    struct dvd_tenant *prev_of_account, *next_of_account;
    struct dvd_share_change change; /* what its sessions asked for and what was set since, for all devices */
    struct dvd_tenant_device *devices[DV_MAX_DEVICES]; /* NULL: it is not on that device */
    struct dv_state_tenant *record;                    /* NULL: not recorded */
    UT_hash_handle hh;
};

/* The tenant that a program belongs to. */
struct dvd_identity {
    char name[DV_MAX_TENANT_NAME];
    struct dvd_tenant_terms terms;
    bool is_shared;
};

/* ---- leases ---- */

/* A session's lease on one of its devices. */
struct dvd_lease {
    struct dvd_lessee *lessee;
    struct dvd_device *device;
    struct dvd_tenant_device *tenant;
    struct dv_policy_session policy;
    struct dvd_list_index index;
    uint32_t recalls;
    dv_ns recalled_at;             /* the present grant; 0: it is not recalled */
    bool is_reported;              /* the log says that it does not answer that recall */
    dv_ns overdue_at;              /* when the deadline ends; 0: it does not run */
    uint64_t serial;               /* of the present or last grant */
    bool wants_again;              /* it releases the device although it has more work */
    bool in_use;                   /* false: the session was admitted here and may still use another device instead */
    bool promised;                 /* the tenant's request counts on this device because of it */
    bool unpromised;               /* the request did not fit when the session came */
    struct dv_state_lease *record; /* NULL: not recorded */
    uint64_t grants;
    dv_ns changed_at; /* when it began to wait, to hold or to be idle */
    struct dvd_lease_memory memory;
    struct dvd_working_set set;
    struct dvd_usage usage;
    dv_ns used_ns;    /* of the device's time so far */
    dv_ns compile_ns; /* of its holds so far, as its worker reports */
    dv_ns waited_ns;  /* so far, until it was granted the device */
};

/* A session as the ledger knows it. The owner embeds it in its own record of the session. */
struct dvd_lessee {
    struct dvd_ledger *ledger;
    struct dvd_session_id id;
    uid_t uid;
    bool has_worker;           /* false: divvyd cannot terminate its process */
    bool keeps_order;          /* its devices are not reordered */
    struct dvd_tenant *tenant; /* NULL: it is not admitted */
    bool change_ignored;       /* its tenant is shared, so its wish for a share does not count */
    uint32_t device_count;
    struct dvd_device_id devices[DV_MAX_DEVICES]; /* its list */
    uint64_t leased_mask;                         /* of its list: devices whose time is shared out */
    struct dvd_lease **leases;                    /* device_count of them; NULL: it does not use that device */
    uint64_t memory_max;                          /* that it may allocate on each device; 0: as much as its tenant */
    dv_ns deadline_ns;                            /* its own, to give a device back; 0: that of its class */
    dv_ns used_ns, waited_ns;                     /* on devices that it has left */
    uint64_t reserved, reserved_peak;             /* bytes on all its devices */
    uint64_t sync_id;                             /* of divvyd's question about its holds, after a restart */
    uint64_t unsynced_mask;                       /* of its list: devices for which it has not answered */
    struct dv_state_session *record;              /* NULL: not recorded */
};

struct dvd_device {
    struct dvd_ledger *ledger;
    struct dvd_device_id id;
    struct dvd_device_terms terms;
    bool started;
    uint32_t tenants_present; /* with a session */
    uint32_t present_of_class[DV_CLASS_COUNT];
    uint32_t sessions;     /* of all of them */
    uint64_t promised_ppm; /* the sum of all requests in force */
    struct dv_policy policy;
    struct dvd_device_memory memory;
    uint64_t grants;
    struct dvd_usage usage;         /* of all tenants */
    dv_ns held_ns;                  /* by all of them so far */
    bool set_by_operator;           /* its policy */
    struct dvd_histogram decisions; /* from a message to the grant that follows */
    struct dv_timer timer;
    struct dvd_entitlements entitlements; /* of its tenants, for listings */
};

/* ---- the whole ---- */

struct dvd_ledger_events {
    /* Sends a message to a session without waiting. Returns 0 or a negative errno. */
    int (*send)(struct dvd_lessee *lessee, const void *message, size_t bytes);
    /* Returns whether the process that holds the device is stopped by a signal or a debugger. */
    bool (*is_stopped)(const struct dvd_lessee *lessee);
    /* The session has kept `what` ("a device") beyond its deadline while others waited. */
    void (*overdue)(struct dvd_lessee *lessee, dv_ns deadline, const char *what);
    /* The session has not answered a recall for a long time while others wait. deadline 0: it has none. */
    void (*unanswered)(struct dvd_lessee *lessee, const struct dvd_device *device, dv_ns since, dv_ns deadline);
    /* The session may not use a device. Returns true if the owner sends the answer itself, later. */
    bool (*turned_away)(struct dvd_lessee *lessee, const char *reason, const struct dv_lease_message *answer);
    /* The tenant is about to be freed. */
    void (*tenant_freed)(void *owner, const struct dvd_tenant *tenant);
};

struct dvd_ledger {
    struct dv_timers *timers;
    const struct dvd_ledger_events *events;
    void *owner;
    struct dvd_state *state; /* of records for the next daemon */
    struct dvd_ledger_terms terms;
    uint32_t terms_version; /* how often the terms were set */
    uint32_t device_count;
    struct dvd_device devices[DV_MAX_DEVICES];
    uint64_t host_available; /* bytes of memory, when it was looked up */
    dv_ns host_looked_at;
    uint64_t (*read_host_available)(void);
    struct dvd_tenant *tenants;      /* hash table by name */
    struct dvd_member *members;      /* hash table: which users have sessions of which tenants */
    struct dvd_tenant *tenants_gone; /* tenants without a session; a list */
    unsigned tenants_gone_count;
    struct dvd_accounts *accounts; /* NULL: memory was short */
    struct dvd_trace trace;
};

void dvd_ledger_init(struct dvd_ledger *ledger, struct dv_timers *timers, struct dvd_state *state,
                     const struct dvd_ledger_events *events, void *owner);
/* No session is left. */
void dvd_ledger_fini(struct dvd_ledger *ledger);

/* The device at an index of the session's list. */
static inline struct dvd_device *dvd_lessee_device(const struct dvd_lessee *lessee, struct dvd_list_index index)
{
    return &lessee->ledger->devices[lessee->devices[index.at].number];
}

static inline dv_ns dvd_ledger_now(const struct dvd_ledger *ledger)
{
    return ledger->timers->now(ledger->timers);
}

/* After a probe: the devices, as the configuration presents them. Sessions on devices that are gone continue. */
void dvd_ledger_set_devices(struct dvd_ledger *ledger, const struct dvd_device_terms *terms, uint32_t count);
/* After the configuration was loaded: devices follow it at once, tenants by dvd_tenant_set_terms or when their next
 * session begins. */
void dvd_ledger_set_terms(struct dvd_ledger *ledger, const struct dvd_ledger_terms *terms);
void dvd_ledger_apply_device_terms(struct dvd_ledger *ledger);

/* ---- sessions ---- */

/* Admits a session to its tenant, with the share that it asks for, on the first of its devices that can keep
 * it. Returns 0, or a negative errno with the reason. */
int dvd_lessee_admit(struct dvd_lessee *lessee, const struct dvd_identity *identity,
                     const struct dvd_share_change *change, char *text, size_t bytes);
/* Writes records for its leases. From now on it may send messages. */
void dvd_lessee_record(struct dvd_lessee *lessee);
/* Handles a message of its lease channel. Its contents are not trusted. */
void dvd_lessee_take(struct dvd_lessee *lessee, const union dv_channel_message *message, ssize_t bytes);
/* Gives up all that it holds. It stays a session of its tenant. */
void dvd_lessee_part(struct dvd_lessee *lessee);
/* The session is over. */
void dvd_lessee_leave(struct dvd_lessee *lessee);

/* Starts to share out the time of a device, once. Returns false when its time is not shared out. */
bool dvd_device_start(struct dvd_device *device);
/* Changes the policy at once: holders keep holding, waiters keep waiting. slice_ns 0: learned slices. */
void dvd_device_set_policy(struct dvd_device *device, const struct dv_policy_ops *ops, dv_ns slice_ns);
/* The lease around a policy's session. */
struct dvd_lease *dvd_lease_of(struct dv_policy_session *policy);
/* How long a holder has not answered a recall that others wait for; 0: not for long. */
dv_ns dvd_device_unanswered(const struct dvd_device *device);
/* A configured size in bytes, on a device. */
uint64_t dvd_device_size(const struct dvd_device *device, const struct dvd_memory_size *size);

/* ---- tenants ---- */

/* Returns whether the tenant is a single program, and so comes and goes with it. */
bool dvd_tenant_is_program(const struct dvd_tenant *tenant);
/* Returns whether at least one of its sessions is the user's. */
bool dvd_tenant_has_user(const struct dvd_tenant *tenant, uid_t uid);
/* Puts what is given by a change into a tenant's terms. The tenant cannot raise it by itself. */
void dvd_terms_apply(struct dvd_tenant_terms *terms, const struct dvd_share_change *change);
/* Changes the share of a tenant on one device, or on all its devices if that is NULL, at once. bounded: only as
 * far as the tenant's terms allow. Returns 0, or a negative errno with the reason; then nothing has changed. */
int dvd_tenant_set(struct dvd_tenant *tenant, const struct dvd_device *device, const struct dvd_share_change *change,
                   bool bounded, char *text, size_t bytes);
/* What an operator has just set was saved, so a reload gives it again, too. was_set: there were other changes before.
 */
void dvd_tenant_note_saved(struct dvd_tenant *tenant, bool was_set);
/* A tenant that has no session has its terms anew when it comes, also after an operator had changed its share. */
void dvd_tenant_forget_change(struct dvd_ledger *ledger, const char *name);
/* Sets what the configuration gives a tenant, at once. A request that does not fit beside those of others is lowered to
 * what does; then returns -ENOSPC with the reason. */
int dvd_tenant_set_terms(struct dvd_tenant *tenant, const struct dvd_tenant_terms *terms, char *text, size_t bytes);
/* The tenant's terms are those of the ledger's present configuration. */
void dvd_tenant_is_current(struct dvd_tenant *tenant);
/* Forgets tenants that have had no session for a while, or all without one. */
void dvd_tenants_forget_gone(struct dvd_ledger *ledger, bool all);

/* ---- after a restart ---- */

/* All records have been checked. These return NULL, false or a negative errno when there is no memory. */
bool dvd_device_restore(struct dvd_device *device);
struct dvd_tenant *dvd_tenant_restore(struct dvd_ledger *ledger, struct dv_state_tenant *record,
                                      const struct dvd_tenant_terms *terms, const struct dvd_share_change *change,
                                      bool is_shared);
int dvd_tenant_restore_device(struct dvd_tenant *tenant, struct dvd_device *device,
                              struct dv_state_tenant_device *record, const struct dv_share *share);
/* records: for each of its devices, or NULL. Its holds go on. */
int dvd_lessee_restore(struct dvd_lessee *lessee, struct dvd_tenant *tenant,
                       struct dv_state_lease *const records[DV_MAX_DEVICES]);
/* Asks it what it holds. Returns 0, or a negative errno: then call this again when the session reads. */
int dvd_lessee_ask_state(struct dvd_lessee *lessee);
/* All sessions are restored: frees the requests of sessions that are gone. */
void dvd_ledger_restored(struct dvd_ledger *ledger);

/* ---- checking ---- */

/* Compares the sums of the ledger with its parts. Returns the number of differences, and describes the first. */
unsigned dvd_ledger_check(const struct dvd_ledger *ledger, char *text, size_t bytes);
/* The same for one session and its worker's own figures. Appends to the text. */
unsigned dvd_lessee_check(const struct dvd_lessee *lessee, uint64_t reserved, uint64_t placed, char *text,
                          size_t bytes);

#endif
