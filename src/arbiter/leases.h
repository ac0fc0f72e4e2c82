/* Leases: who may keep which device busy. Feeds the policy of each device with what sessions ask
 * and sends its decisions; charges hold time on divvyd's own clock. */
#ifndef DV_ARBITER_LEASES_H
#define DV_ARBITER_LEASES_H

#include <systemd/sd-event.h>
#include <uthash.h>

#include "src/policy/policy.h"
#include "src/wire/lease/lease.h"
#include "src/wire/session/handshake.h"

struct dv_arbiter;
struct dv_session;

/* A tenant on a device; exists as long as one of its sessions does. */
struct dv_lease_tenant {
    struct {
        uid_t uid;
        uint32_t device;
    } key;
    struct dv_policy_tenant policy;
    uint32_t sessions;
    UT_hash_handle hh;
};

/* A session's lease on one of its devices. */
struct dv_session_lease {
    struct dv_session *session;
    uint32_t index; /* in the session's list of devices */
    struct dv_lease_tenant *tenant; /* NULL: the device is not leased */
    struct dv_policy_session policy;
    uint64_t serial; /* of the present or last grant */
};

struct dv_lease_device {
    struct dv_arbiter *arbiter;
    uint32_t index;
    bool started;
    struct dv_policy policy;
    uint64_t grants;
    sd_event_source *timer;
};

struct dv_leases {
    struct dv_lease_device devices[DV_MAX_DEVICES];
    struct dv_lease_tenant *tenants;
};

/* A session with a worker: its lease channel is served from here on. Returns 0 or negative errno. */
int dv_leases_join(struct dv_arbiter *arbiter, struct dv_session *session);
/* Its worker is gone, and with it whatever it held. */
void dv_leases_part(struct dv_arbiter *arbiter, struct dv_session *session);
void dv_leases_fini(struct dv_arbiter *arbiter);

#endif
