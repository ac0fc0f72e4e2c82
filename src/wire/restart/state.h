/* divvyd's state file, <runtime directory>/state: what the next daemon must know to go on where this one
 * stopped. It is written in place while divvyd runs, so it is there however divvyd ends. It limits what
 * sessions can claim afterwards. In host byte order; documented byte by byte in docs/wire.md.
 *
 *   0                        struct dv_state_header
 *   DV_STATE_TENANTS_AT      tenants
 *   DV_STATE_TENANT_DEVICES_AT       tenants on devices
 *   DV_STATE_SESSIONS_AT     sessions
 *   DV_STATE_LEASES_AT       sessions on devices
 *
 * The file is sparse: only records that were ever used cost memory. A record counts once its first word
 * is 1, which is written last; each number in it can be written without the others. Times are of
 * CLOCK_MONOTONIC, so a file of an earlier boot is invalid. */
#ifndef DV_WIRE_RESTART_STATE_H
#define DV_WIRE_RESTART_STATE_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#include "src/wire/session/handshake.h"

#define DV_STATE_MAGIC UINT64_C(0x6574617473767664) /* "dvvstate" */
/* Also changes with the lease channel: a daemon that speaks another version of it cannot go on with
 * the sessions. */
#define DV_STATE_VERSION 2
#define DV_STATE_NAME "state"

/* The maximum of each: a record without room would be lost, and a device could have two holders. */
#define DV_STATE_TENANTS 20480u
#define DV_STATE_TENANT_DEVICES (DV_STATE_TENANTS * DV_MAX_DEVICES)
#define DV_STATE_SESSIONS 16384u
#define DV_STATE_LEASES (DV_STATE_SESSIONS * DV_MAX_DEVICES)
#define DV_STATE_TENANT_NAME 96 /* bytes, the ending NUL included */
#define DV_STATE_POLICY_NAME 16

struct dv_state_share {
    uint32_t request_ppm, limit_ppm, weight;
    uint32_t class; /* 0 latency, 1 standard, 2 batch, 3 idle */
};
static_assert(sizeof(struct dv_state_share) == 16, "wire");

/* A device whose time is shared out. */
struct dv_state_device {
    uint64_t grants;                   /* serial of the last one */
    uint64_t fair_clock;               /* of its policy */
    uint64_t slice_ns;                 /* as set by an operator; 0: learned */
    char policy[DV_STATE_POLICY_NAME]; /* the same; empty: as configured */
};
static_assert(sizeof(struct dv_state_device) == 40, "wire");

struct dv_state_header {
    uint64_t magic;
    uint32_t version;
    uint32_t device_count;
    char boot[40]; /* the kernel's boot id */
    _Atomic uint64_t last_session;
    uint64_t zygote_identity; /* of its program, environment and drivers: changes with any of them */
    int32_t zygote_pid;
    uint32_t unsandboxed;   /* 1: sandboxes were found to be impossible */
    uint32_t devices_found; /* also those for which there was no room */
    uint32_t reserved;      /* zero */
    struct dv_state_device devices[DV_MAX_DEVICES];
    struct dv_device_report reports[DV_MAX_DEVICES];
};
static_assert(sizeof(struct dv_state_header) == 88 + DV_MAX_DEVICES * (40 + sizeof(struct dv_device_report)), "wire");

struct dv_state_tenant {
    _Atomic uint32_t used;
    uint32_t set_by_operator; /* 1: a configuration does not change its terms any more */
    char name[DV_STATE_TENANT_NAME];
    struct dv_state_share share; /* its terms */
    uint32_t may_request_ppm, may_weight;
    uint16_t may_class;
    uint8_t configured_class; /* plus one; 0: that of its share */
    uint8_t slice_kernels;    /* enum dvd_slice_kernels */
    uint32_t memory_ppm;      /* quota: a part of each device, */
    uint64_t memory_bytes;    /* or bytes; both 0: all of it */
    uint64_t host_bytes;
    uint64_t left_at;              /* since when it has no session; 0: it has */
    struct dv_state_share wish;    /* what its sessions, or an operator, asked for on all devices */
    uint32_t wishes;               /* which parts of it were asked for: enum dv_state_wish */
    uint32_t memory_request_ppm;   /* memory that others do not take from it: a part of each device, */
    uint64_t memory_request_bytes; /* or bytes; both 0: nothing */
};
static_assert(sizeof(struct dv_state_tenant) == 192, "wire");

enum dv_state_wish {
    DV_STATE_WISH_REQUEST = 1,
    DV_STATE_WISH_LIMIT = 2,
    DV_STATE_WISH_WEIGHT = 4,
    DV_STATE_WISH_CLASS = 8,
};

struct dv_state_tenant_device {
    _Atomic uint32_t used;
    uint32_t tenant;             /* index of its record */
    uint32_t device;             /* in the list of devices */
    uint32_t in_demand;          /* 1: one of its sessions waits or holds */
    struct dv_state_share share; /* the request counts only if it is promised */
    uint32_t promised;           /* 1: a session uses the device, so the request is kept */
    uint32_t reserved;           /* zero */
    uint64_t quota, memory_request;
    /* the policy's accounts */
    uint64_t used_ns, slice_ns, fair_time, request_time, limit_time;
    int64_t credit_ns, period_ns;
};
static_assert(sizeof(struct dv_state_tenant_device) == 112, "wire");

struct dv_state_session {
    _Atomic uint32_t used;
    uint32_t api; /* enum dv_api */
    uint64_t id;
    uint32_t uid, gid;
    int32_t tenant_pid;
    int32_t worker_pid; /* 0: none */
    uint32_t tenant;    /* index of its record */
    uint16_t version;   /* of the protocol */
    uint16_t welcomed;  /* 1: its client has been told of it; written after that */
    uint32_t present_as;
    uint32_t device_count;
    uint8_t devices[DV_MAX_DEVICES]; /* in the list of devices */
    uint64_t shm_bytes;
    uint64_t started;     /* by the calendar, in seconds */
    uint64_t started_us;  /* CLOCK_MONOTONIC */
    uint64_t leased_mask; /* of its list: devices whose time was shared out when it began */
    char command[DV_MAX_COMMAND_NAME];
};
static_assert(sizeof(struct dv_state_session) == 144 + DV_MAX_DEVICES, "wire");

/* A session's part of one device. */
struct dv_state_lease {
    _Atomic uint32_t used;
    uint32_t session; /* index of its record */
    uint32_t index;   /* in the session's list of devices */
    uint32_t guaranteed;
    _Atomic uint64_t serial; /* of the grant that it holds; 0: none. Written before the grant is sent */
    uint64_t granted_at, slice_ns, own_ns;
    int64_t charged_ns;
    uint64_t fair_at_grant;
    _Atomic uint64_t reserved, placed; /* raised before divvyd tells the session, lowered after it has told */
    uint64_t used_ns, compile_ns, grants;
    uint32_t in_use;      /* 1: the session has come to use the device; 0: it was admitted there */
    uint32_t promised;    /* 1: the tenant's request is kept because of it */
    uint64_t memory_max;  /* the session's own limit on each device; 0: none */
    uint64_t deadline_ns; /* the session's own deadline; 0: none */
};
static_assert(sizeof(struct dv_state_lease) == 128, "wire");

#define DV_STATE_TENANTS_AT UINT64_C(0x10000)
#define DV_STATE_TENANT_DEVICES_AT (DV_STATE_TENANTS_AT + DV_STATE_TENANTS * sizeof(struct dv_state_tenant))
#define DV_STATE_SESSIONS_AT                                                                                           \
    (DV_STATE_TENANT_DEVICES_AT + DV_STATE_TENANT_DEVICES * sizeof(struct dv_state_tenant_device))
#define DV_STATE_LEASES_AT (DV_STATE_SESSIONS_AT + DV_STATE_SESSIONS * sizeof(struct dv_state_session))
#define DV_STATE_BYTES (DV_STATE_LEASES_AT + DV_STATE_LEASES * sizeof(struct dv_state_lease))
static_assert(sizeof(struct dv_state_header) <= DV_STATE_TENANTS_AT, "wire");

#endif
