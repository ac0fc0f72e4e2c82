/* Leases: who may keep which device busy. Feeds the policy of each device with what sessions ask
 * and sends its decisions; charges hold time on divvyd's own clock. */
#ifndef DVD_LEDGER_LEASES_H
#define DVD_LEDGER_LEASES_H

#include <systemd/sd-event.h>

#include "src/arbiter/ledger/beside.h"
#include "src/arbiter/ledger/entitlements.h"
#include "src/arbiter/ledger/memory.h"
#include "src/arbiter/ledger/usage.h"
#include "src/policy/policy.h"
#include "src/wire/lease/lease.h"
#include "src/wire/session/handshake.h"

struct dv_arbiter;
struct dv_session;
struct dv_tenant_device;
struct dv_state_lease;
struct dv_state_place;

/* A session's lease on one of its devices. */
struct dv_session_lease {
    struct dv_session *session;
    struct dv_tenant_device *tenant;
    struct dv_policy_session policy;
    uint32_t index; /* in the session's list of devices */
    uint32_t recalls;
    dv_ns recalled_at; /* the present grant; 0: it is not recalled */
    bool told_of;      /* the log says that it does not answer that recall */
    dv_ns overdue_at;  /* when its worker is ended, if it has not given back; 0: nobody waits for it */
    uint64_t serial; /* of the present or last grant */
    bool in_use;      /* false: the session was admitted here and may still turn to another device */
    bool promised;    /* the tenant's request counts on this device because of it */
    bool unpromised;  /* it works here without the request, which did not fit when it came */
    struct dv_state_lease *record; /* NULL: not kept */
    uint64_t grants;
    dv_ns changed_at;          /* began to wait, hold or be idle */
    struct dv_session_memory memory;
    struct dv_working_set set;
    dv_ns used_ns, compile_ns; /* held so far; of that compiling, as its worker says */
};

struct dv_lease_device {
    struct dv_arbiter *arbiter;
    uint32_t index;
    bool started;
    uint32_t tenants_present; /* with a session */
    uint32_t sessions;        /* of all of them */
    uint64_t promised_ppm;    /* the sum of all requests in force */
    struct dv_policy policy;
    struct dv_device_memory memory;
    uint64_t grants;
    bool set_by_operator; /* its policy */
    struct dv_durations decisions; /* from a message to the grant that it led to */
    sd_event_source *timer;
    struct dv_entitled entitled; /* what is shown of its tenants' shares */
};

struct dv_leases {
    uint64_t host_available; /* bytes of memory, when it was looked up */
    dv_ns host_looked_at;
    struct dv_lease_device devices[DV_MAX_DEVICES];
};

/* Puts a session on one of its devices, as its tenant's terms say. promised: the tenant's request is to
 * hold there, and the session is refused if it does not fit; otherwise the session comes without it.
 * Returns 0, or a negative errno with words; then nothing has changed. */
int dv_leases_use(struct dv_session *session, uint32_t index, bool promised, char *text,
                  size_t bytes);
/* The same for a session that begins, on the device that it is expected to use: with the request, and
 * until it uses another one instead. */
int dv_leases_admit(struct dv_session *session, uint32_t index, char *text, size_t bytes);
/* A session that may talk about leases from here on, over its control_fd. Returns 0 or a negative
 * errno. */
int dv_leases_join(struct dv_arbiter *arbiter, struct dv_session *session);
/* The same for a session of an earlier daemon, with what the state file says of each of its leases
 * (NULL: nothing): its holds go on, and it is asked what has become of them. */
int dv_leases_rejoin(struct dv_arbiter *arbiter, struct dv_session *session,
                     struct dv_state_lease *const records[DV_MAX_DEVICES]);
/* Takes a device into service as an earlier daemon left it. Returns false when its time is not shared
 * out any more. */
bool dv_leases_adopt_device(struct dv_arbiter *arbiter, uint32_t device);
void dv_leases_adopt_tenant(struct dv_arbiter *arbiter, struct dv_tenant_device *tenant,
                            uint32_t device, struct dv_state_place *record);
/* What a session says on its channel, at most so many messages; events are those of epoll. Returns how many
 * there were. It may be gone after that. */
unsigned dv_leases_hear(struct dv_session *session, uint32_t events, unsigned most);
/* It is gone, and with it whatever it held. */
void dv_leases_part(struct dv_arbiter *arbiter, struct dv_session *session);
void dv_leases_fini(struct dv_arbiter *arbiter);

/* Takes a leased device into service, once. Returns false when its time is not shared out. */
bool dv_leases_start_device(struct dv_arbiter *arbiter, uint32_t device);
const char *dv_leases_device_name(const struct dv_arbiter *arbiter, uint32_t device);
/* Changes the policy of a device at once: everybody keeps what it holds and its place in line.
 * slice_ns: 0 for learned slices. */
void dv_leases_set_policy(struct dv_arbiter *arbiter, uint32_t device,
                          const struct dv_policy_ops *ops, dv_ns slice_ns);
/* After a reload: devices follow the new configuration where it differs. */
void dv_leases_apply_config(struct dv_arbiter *arbiter);

/* A tenant on a device: comes, changes, goes when it has no session any more. */
void dv_leases_add_tenant(struct dv_arbiter *arbiter, struct dv_tenant_device *tenant,
                          uint32_t device, const struct dv_share *share);
void dv_leases_set_share(struct dv_arbiter *arbiter, struct dv_tenant_device *tenant,
                         uint32_t device, const struct dv_share *share);
void dv_leases_remove_tenant(struct dv_arbiter *arbiter, struct dv_tenant_device *tenant,
                             uint32_t device);

/* What a tenant had of the device in the last window_s (1, 10 or 60) seconds, in parts per million,
 * holds under way included. */
uint32_t dv_leases_share_ppm(const struct dv_arbiter *arbiter,
                             const struct dv_tenant_device *tenant, uint32_t device,
                             unsigned window_s);

/* How long it may keep the device, or memory of it, after it was asked to give it back while others wait for
 * it; 0: for ever. For memory only what the configuration says counts. */
dv_ns dv_lease_deadline(const struct dv_session_lease *lease);
dv_ns dv_lease_memory_deadline(const struct dv_session_lease *lease);
/* For how long a holder of the device has not answered a recall that others wait for; 0: not for long. */
dv_ns dv_leases_unanswered(const struct dv_lease_device *device);
/* The device of a session's lease. */
struct dv_lease_device *dv_lease_device_of(const struct dv_session_lease *lease);
/* Something has changed that decides who keeps the device: it is looked at soon. */
void dv_leases_look_again(struct dv_lease_device *device);
/* The holder has moved memory for so long: its slice begins anew, and accordingly longer. */
void dv_leases_moved(struct dv_session_lease *lease, dv_ns took_ns);
/* The record around a policy's session. */
struct dv_session_lease *dv_lease_of(struct dv_policy_session *policy);

#endif
