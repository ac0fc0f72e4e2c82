/* The lease channel: between divvyd and the worker that keeps a device busy for a tenant (or a front
 * end inside the tenant's process). SEQPACKET messages each way, all of this one form, in host byte
 * order; documented byte by byte in docs/wire.md.
 *
 *   client:  JOIN (serial: its own number) -> JOINED or TURNED_AWAY (the same number)
 *   client:  WANT ----------------------> waiting
 *   divvyd:  <---------------------- GRANT (serial, slice)
 *   divvyd:  <---------------------- RECALL (serial)      another session is to run
 *   divvyd:  <---------------------- EXTEND (serial, slice)   memory has been moved: from now on
 *   client:  RELEASE (serial) ----------> idle, or waiting again with DV_LEASE_AGAIN
 *   client:  CANCEL --------------------> wants no longer
 *   divvyd:  <---------------------- TRACE (slice)        note what is done, for that long; 0: no longer
 *   divvyd:  <---------------------- PARK (slice: bytes of the store) + the store's descriptor
 *   client:  PARKED (slice: bytes used) -> divvyd ends it; or NOT_PARKED (flags: why)
 *   divvyd:  <---------------------- PARK, without a descriptor: no longer
 *
 * A message with an earlier serial is ignored: it crossed another on the way. */
#ifndef DV_WIRE_LEASE_LEASE_H
#define DV_WIRE_LEASE_LEASE_H

#include <assert.h>
#include <stdint.h>

#define DV_LEASE_MAGIC 0x6573616cu /* "lase" */
#define DV_LEASE_VERSION 1

enum dv_lease_type {
    DV_LEASE_WANT = 1,
    DV_LEASE_CANCEL = 2,
    DV_LEASE_RELEASE = 3,
    DV_LEASE_JOIN = 4, /* the program is to use the device, with the share it asked for */
    DV_LEASE_PARKED = 5,
    DV_LEASE_NOT_PARKED = 6, /* flags: enum dv_park_reason */
    DV_LEASE_GRANT = 16,
    DV_LEASE_RECALL = 17,
    DV_LEASE_EXTEND = 18,
    DV_LEASE_JOINED = 19,
    DV_LEASE_TURNED_AWAY = 20, /* the request cannot be kept on this device */
    DV_LEASE_TRACE = 21,       /* of the session as a whole; clients that know nothing of it ignore it */
    DV_LEASE_PARK = 22,        /* likewise: leave all that the next worker needs in the store, and end */
};

/* Why a worker cannot park its session. */
enum dv_park_reason {
    DV_PARK_DONE = 0,
    DV_PARK_NO_MEMORY = 1, /* the worker's memory, or the driver, does not suffice to save all */
    DV_PARK_NO_ROOM = 2,   /* the store is too small */
    DV_PARK_NO_STORE = 3,  /* the store cannot be mapped */
    DV_PARK_REASONS
};

enum dv_lease_flag {
    DV_LEASE_AGAIN = 1,     /* RELEASE: wants the device again at once */
    DV_LEASE_CONTENDED = 2, /* GRANT: others wait, or may soon */
    DV_LEASE_ALONE = 4,     /* GRANT: no other tenant has a session on the device */
};

struct dv_lease_message {
    uint32_t magic;
    uint16_t version;
    uint16_t type;     /* enum dv_lease_type */
    uint32_t device;   /* index in the session's list */
    uint32_t flags;    /* enum dv_lease_flag */
    uint64_t serial;   /* of the grant; JOIN and its answers: the client's number of the question */
    uint64_t slice_ns; /* GRANT, EXTEND: how long work may be submitted; TRACE: how long to trace */
    union {
        uint64_t kernel_ns; /* WANT, RELEASE: longest recent kernel; estimates, never trusted */
        uint64_t part_ns;   /* GRANT: how long parts of kernels should be; 0: kernels stay whole */
    };
    union {
        uint64_t p90_ns;        /* 90th percentile of bursts */
        uint64_t part_cost_ppm; /* GRANT: how much of the time it may cost to cut kernels; 0: no matter */
    };
    uint64_t last_ns;    /* last burst */
    uint64_t busy_ns;    /* RELEASE: how long the device was kept busy */
    uint64_t compile_ns; /* RELEASE: of that, first launches that had to compile */
    uint64_t linger_ns;  /* GRANT, EXTEND: how long it may be kept without work */
};
static_assert(sizeof(struct dv_lease_message) == 80, "wire");

/* As part_ns: as small as can be. */
#define DV_LEASE_PART_SMALLEST 1
/* Larger parts per million are invalid. */
#define DV_LEASE_PPM_MAX 1000000
/* Estimates above this are invalid. */
#define DV_LEASE_ESTIMATE_MAX_NS (UINT64_C(3600) * 1000000000)

#endif
