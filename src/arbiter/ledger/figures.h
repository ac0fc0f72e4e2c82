/* Figures for people: how busy a device is, and what tenants and sessions get of it. Listings, the live view and
 * metrics all read them here, so that they cannot disagree. Present holds are included. */
#ifndef DVD_LEDGER_FIGURES_H
#define DVD_LEDGER_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/clock.h"
#include "src/policy/policy.h"

struct dvd_device;
struct dvd_lease;
struct dvd_tenant_device;

/* Parts of the time over the last 1, 10 and 60 seconds, in parts per million. */
struct dvd_windows {
    uint32_t ppm_1s, ppm_10s, ppm_60s;
};

struct dvd_device_figures {
    bool is_leased;    /* its time is shared out; if not, divvyd knows neither holds nor waits */
    uint32_t sessions; /* that use it */
    uint32_t waiting;  /* of them, those that wait for it */
    struct dvd_windows busy;
    dv_ns held_ns;         /* so far */
    uint64_t grants;       /* so far */
    uint64_t promised_ppm; /* to all tenants */
    uint64_t capacity_bytes, used_bytes;
};

/* A tenant on one device. */
struct dvd_tenant_figures {
    struct dv_share share;
    uint32_t sessions, waiting, holding;
    uint32_t entitled_ppm; /* if it always has work */
    uint32_t bound_ppm;    /* by how much a second can differ from that */
    struct dvd_windows had;
    dv_ns used_ns, waited_ns; /* so far, of all its sessions; of the device's time, so a slot counts as a part of it */
    bool is_at_limit;         /* and waits for that reason */
    uint64_t quota_bytes, kept_bytes;
    uint64_t reserved_bytes, placed_bytes; /* allocated; of that on the device */
};

enum dvd_lease_state {
    DVD_LEASE_IDLE,
    DVD_LEASE_WAITING,
    DVD_LEASE_HOLDING,
    DVD_LEASE_MOVING,  /* holds the device, and brings memory in */
    DVD_LEASE_QUEUED,  /* waits for other sessions to make room on the device */
    DVD_LEASE_UNKNOWN, /* has not said yet what it holds, after a restart */
};

/* A session on one device. */
struct dvd_lease_figures {
    enum dvd_lease_state state;
    dv_ns since_ns; /* how long it is in that state */
    struct dvd_windows had;
    dv_ns used_ns, waited_ns;
    uint64_t placed_bytes;
};

struct dvd_device_figures dvd_device_figures(const struct dvd_device *device);
struct dvd_tenant_figures dvd_tenant_figures(struct dvd_tenant_device *tenant);
/* entitled_ppm alone: the rest takes longer. */
uint32_t dvd_tenant_entitled_ppm(struct dvd_tenant_device *tenant);
struct dvd_lease_figures dvd_lease_figures(const struct dvd_lease *lease);

#endif
