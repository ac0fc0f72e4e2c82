/* The shared memory of a session, mapped by its client and its worker. divvyd reads figures of its first
 * page when it lists sessions.
 *
 *   0                    struct dv_shm_header
 *   DV_SHM_RING_OFFSET   command ring: client -> worker, variable records
 *   DV_SHM_UPCALL_OFFSET upcall ring: worker -> client, fixed records
 *   DV_SHM_OUTPUT_OFFSET bytes that kernels printed: worker -> client
 *   DV_SHM_QUEUE_OFFSET  one slot per command queue
 *   DV_SHM_EVENT_OFFSET  one slot per event
 *   DV_SHM_TRACE_OFFSET  commands that ended, while divvyd traces the session
 *   DV_SHM_KERNEL_OFFSET the kernels that the session has made, for `divvy explain`
 *   DV_SHM_ARENA_OFFSET  the arena, to the end: buffers, mapped regions, replies, staging
 *
 * The file is sparse and sealed against resizing: only touched pages cost memory. Each side copies
 * what the other can still change before it checks it. Documented byte by byte in docs/wire.md. */
#ifndef DV_WIRE_SESSION_SHM_H
#define DV_WIRE_SESSION_SHM_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define DV_PAGE 4096u

#define DV_SHM_RING_OFFSET UINT64_C(0x1000)
#define DV_SHM_RING_BYTES (UINT64_C(4) << 20) /* a power of two */
#define DV_SHM_UPCALL_OFFSET (DV_SHM_RING_OFFSET + DV_SHM_RING_BYTES)
#define DV_SHM_UPCALL_COUNT UINT64_C(65536) /* a power of two */
#define DV_SHM_UPCALL_BYTES (DV_SHM_UPCALL_COUNT * 32)
#define DV_SHM_OUTPUT_OFFSET (DV_SHM_UPCALL_OFFSET + DV_SHM_UPCALL_BYTES)
#define DV_SHM_OUTPUT_BYTES (UINT64_C(1) << 20) /* a power of two */
/* The maximum output that a worker has made and the client has not taken: the ring, the rest that the worker
 * keeps, and the pipe that the driver writes to. */
#define DV_OUTPUT_KEPT_MAX (UINT64_C(64) << 20)
#define DV_OUTPUT_AHEAD_MAX (DV_SHM_OUTPUT_BYTES + DV_OUTPUT_KEPT_MAX + (UINT64_C(2) << 20))
#define DV_SHM_QUEUE_OFFSET (DV_SHM_OUTPUT_OFFSET + DV_SHM_OUTPUT_BYTES)
#define DV_SHM_QUEUE_COUNT UINT64_C(65536)
#define DV_SHM_QUEUE_BYTES (DV_SHM_QUEUE_COUNT * 64)
#define DV_SHM_EVENT_OFFSET (DV_SHM_QUEUE_OFFSET + DV_SHM_QUEUE_BYTES)
#define DV_SHM_EVENT_COUNT (UINT64_C(4) << 20)
#define DV_SHM_EVENT_BYTES (DV_SHM_EVENT_COUNT * 64)
#define DV_SHM_TRACE_OFFSET (DV_SHM_EVENT_OFFSET + DV_SHM_EVENT_BYTES)
#define DV_SHM_TRACE_COUNT UINT64_C(32768) /* a power of two */
#define DV_SHM_TRACE_BYTES (DV_SHM_TRACE_COUNT * 128)
#define DV_SHM_KERNEL_OFFSET (DV_SHM_TRACE_OFFSET + DV_SHM_TRACE_BYTES)
#define DV_SHM_KERNEL_COUNT UINT64_C(1024)
#define DV_SHM_KERNEL_BYTES (DV_SHM_KERNEL_COUNT * 128)
#define DV_SHM_ARENA_OFFSET ((DV_SHM_EVENT_OFFSET + DV_SHM_EVENT_BYTES + 0xffffff) & ~UINT64_C(0xffffff))
static_assert(DV_SHM_KERNEL_OFFSET + DV_SHM_KERNEL_BYTES <= DV_SHM_ARENA_OFFSET, "wire");
#define DV_SHM_BYTES_MIN (DV_SHM_ARENA_OFFSET + (UINT64_C(64) << 20))
#define DV_SHM_BYTES_MAX (UINT64_C(1) << 44)

/* Blocks of the arena up to this size share pages. A larger one has pages of its own, and behind them
 * an unused one. */
#define DV_ARENA_SMALL_MAX (UINT64_C(2) << 10)
#define DV_ARENA_GUARD_BYTES DV_PAGE
/* This much freed memory of the arena stays backed, so that the next buffer needs no page faults; or as
 * much as the largest block so far, up to the maximum, for a program that maps one large buffer again
 * and again. */
#define DV_ARENA_WARM_MIN (UINT64_C(256) << 20)
#define DV_ARENA_WARM_MAX (UINT64_C(1) << 30)

/* No record of the command ring is longer; larger data goes through the arena. */
#define DV_MAX_RECORD_BYTES (DV_SHM_RING_BYTES / 4)

enum dv_worker_state {
    DV_WORKER_STARTING = 0,
    DV_WORKER_READY = 1,
    DV_WORKER_FAILED = 2,
    DV_WORKER_PARKED = 3, /* and another one follows */
};

/* A device without memory accounting. */
#define DV_CREDIT_UNLIMITED UINT64_MAX

/* Set in worker_life by the kernel when the worker's main thread is gone (a robust futex). */
#define DV_LIFE_DIED 0x40000000u

#define DV_CACHE_LINE 64

#define DV_MAX_COMMAND_LINE 256
#define DV_MAX_SESSION_NAME 64

/* Whether a kernel can go to the device in parts. */
enum dv_cut_verdict {
    DV_CUT_FREE = 1,      /* as it is */
    DV_CUT_CORRECTED = 2, /* in a form that computes the launch's group ids and sizes from a part's */
    DV_CUT_WHOLE = 3,     /* not */
    DV_CUT_VERDICTS
};

#define DV_SHM_CREDITS 16 /* all that version 1 has */
#define DV_SHM_CREDITS_MORE 48

struct dv_shm_header {
    /* written once, by divvyd before any other process sees the memory */
    uint32_t magic;
    uint32_t version;
    uint64_t session;
    uint64_t bytes;
    uint8_t pad0[40];

    /* written by the client */
    _Atomic uint64_t ring_tail;     /* bytes ever written to the command ring */
    _Atomic uint64_t upcall_head;   /* upcalls ever taken */
    _Atomic uint64_t output_head;   /* output bytes ever taken */
    _Atomic uint32_t client_asleep; /* futex: 1 while the client's helper sleeps */
    _Atomic uint32_t ring_waiting;  /* futex: 1 while a client thread waits for room in the ring */
    uint8_t pad1[32];

    /* written by the worker */
    _Atomic uint64_t ring_head;     /* bytes of the command ring ever consumed */
    _Atomic uint64_t upcall_tail;   /* upcalls ever posted */
    _Atomic uint64_t output_tail;   /* output bytes ever posted */
    _Atomic uint32_t worker_asleep; /* futex: 1 while the worker sleeps for commands */
    _Atomic uint32_t worker_state;  /* futex; enum dv_worker_state */
    _Atomic uint64_t output_made;   /* output bytes ever made; those that are not posted come later */
    uint8_t pad2[24];

    _Atomic uint32_t worker_life; /* futex: thread id of the worker; the kernel adds DV_LIFE_DIED */
    uint32_t pad3;
    /* for `divvy ps`, written by the worker, never trusted */
    _Atomic uint64_t commands;        /* device commands finished */
    _Atomic uint64_t memory_bytes;    /* bytes of the session's memory objects */
    _Atomic uint64_t device_mask;     /* devices with a context, bit = index in the session's list */
    _Atomic uint64_t compiling_since; /* CLOCK_MONOTONIC in ns, when the call began that compiles now; 0: none does */
    uint8_t pad4[24];

    char text[512]; /* why the worker failed, when worker_state says so */

    /* Bytes of objects that may be created on each device without asking: the worker adds, both take.
     * The worker keeps an account of its own. */
    _Atomic uint64_t credit[DV_SHM_CREDITS]; /* of the first; see dv_shm_credit */
    _Atomic uint64_t reserved_bytes;         /* all that the worker has reserved at divvyd, as it says */
    _Atomic uint64_t placed_bytes;           /* all that it has on devices, as it says */
    _Atomic uint64_t moved_bytes;            /* copied to devices and back for lack of room, so far */
    _Atomic uint64_t moving_ns;              /* the time that took */
    /* from version 2 on */
    _Atomic uint64_t credit_more[DV_SHM_CREDITS_MORE]; /* of the other devices */
    /* Written once by the client, for `divvy ps`: its command line, a NUL after each argument, cut to this length. */
    char command_line[DV_MAX_COMMAND_LINE];
    char name[DV_MAX_SESSION_NAME]; /* that its user gave the session; likewise */
    /* Kernels that the session has made, by verdict (enum dv_cut_verdict, less 1); written by the worker, never
     * trusted.
     */
    _Atomic uint32_t kernels[DV_CUT_VERDICTS - 1];
    uint32_t pad5;
};

static inline _Atomic uint64_t *dv_shm_credit(struct dv_shm_header *header, uint32_t device)
{
    return device < DV_SHM_CREDITS ? &header->credit[device] : &header->credit_more[device - DV_SHM_CREDITS];
}
static_assert(offsetof(struct dv_shm_header, ring_tail) == 64, "wire");
static_assert(offsetof(struct dv_shm_header, ring_head) == 128, "wire");
static_assert(offsetof(struct dv_shm_header, worker_life) == 192, "wire");
static_assert(offsetof(struct dv_shm_header, text) == 256, "wire");
static_assert(offsetof(struct dv_shm_header, credit) == 768, "wire");
static_assert(offsetof(struct dv_shm_header, reserved_bytes) == 896, "wire");
static_assert(offsetof(struct dv_shm_header, credit_more) == 928, "wire");
static_assert(offsetof(struct dv_shm_header, command_line) == 1312, "wire");
static_assert(offsetof(struct dv_shm_header, kernels) == 1312 + DV_MAX_COMMAND_LINE + DV_MAX_SESSION_NAME, "wire");
static_assert(sizeof(struct dv_shm_header) == offsetof(struct dv_shm_header, kernels) + 16, "wire");
static_assert(sizeof(struct dv_shm_header) <= DV_PAGE, "wire");

/* A command queue's progress. Commands of a queue are numbered from 1 in the order enqueued. */
struct dv_shm_queue {
    _Atomic uint64_t completed; /* every command up to this number is complete */
    _Atomic uint32_t progress;  /* futex: changes when `completed` does */
    _Atomic uint32_t waiters;   /* client threads asleep on `progress` */
    _Atomic uint64_t wake_at;   /* the lowest number that one of them waits for; 0: any */
    uint8_t pad[40];
};
static_assert(sizeof(struct dv_shm_queue) == 64, "wire");

/* An event's state. Status values are OpenCL's: 3 queued, 2 submitted, 1 running, 0 complete,
 * negative failed. Times are on CLOCK_MONOTONIC, in nanoseconds. */
struct dv_shm_event {
    _Atomic int32_t status;   /* futex */
    _Atomic uint32_t waiters; /* client threads asleep on `status` */
    _Atomic uint32_t notify;  /* the client wants an upcall when the event is complete */
    uint32_t pad0;
    _Atomic uint64_t queued_ns;
    _Atomic uint64_t submit_ns;
    _Atomic uint64_t start_ns;
    _Atomic uint64_t end_ns;
    uint8_t pad1[16];
};
static_assert(sizeof(struct dv_shm_event) == 64, "wire");

enum dv_traced_kind {
    DV_TRACED_KERNEL = 1,
    DV_TRACED_COMMAND = 2, /* any other: a copy, a fill, a marker */
    DV_TRACED_COMPILE = 3, /* a program is built, beside the device */
    DV_TRACED_BRING = 4,   /* memory is copied to the device */
    DV_TRACED_EVICT = 5,   /* and from it */
    DV_TRACED_KINDS
};

#define DV_MAX_TRACED_NAME 72

/* Something that the worker has done, or several alike that ended together. Record n, counted from 1, is at n - 1
 * modulo DV_SHM_TRACE_COUNT. Times are on CLOCK_MONOTONIC, in nanoseconds. */
struct dv_shm_traced {
    _Atomic uint64_t number; /* 0 while the record is written */
    uint64_t begin_ns, end_ns;
    uint64_t bytes; /* of memory that was moved */
    uint32_t count; /* of commands */
    uint32_t device;
    uint32_t kind;                 /* enum dv_traced_kind */
    uint8_t verdict;               /* of a kernel: enum dv_cut_verdict; 0: not known */
    uint8_t reason;                /* of a kernel that cannot be cut: enum dv_whole_reason */
    uint16_t is_part;              /* 1: a part of a launch */
    char name[DV_MAX_TRACED_NAME]; /* of the kernel or command; ends with a NUL */
    uint8_t pad1[8];
};
static_assert(sizeof(struct dv_shm_traced) == 128, "wire");

/* Why a kernel goes to the device as a whole. */
enum dv_whole_reason {
    DV_WHOLE_NO_REASON = 0,
    DV_WHOLE_BINARY = 1,      /* the program is a binary, or built in */
    DV_WHOLE_IL = 2,          /* SPIR-V that uses group ids or sizes of the launch */
    DV_WHOLE_GROUPS_WAIT = 3, /* groups wait for each other */
    DV_WHOLE_ENQUEUES = 4,    /* it enqueues kernels */
    DV_WHOLE_UNCORRECTED = 5, /* the driver does not build the corrected form */
    DV_WHOLE_RANGE = 6, /* the corrected form does not serve the range: it is uneven, very large, or has an offset */
    DV_WHOLE_SINGLE_GROUP = 7, /* the launch has one work-group */
    DV_WHOLE_REFUSED = 8,      /* the driver refused a part */
    DV_WHOLE_REASONS
};

/* A kernel that the session has made, for `divvy explain`: number n, counted from 1, is at n - 1. More are not listed.
 */
struct dv_shm_kernel {
    _Atomic uint32_t verdict; /* enum dv_cut_verdict; 0: there is no such kernel */
    _Atomic uint32_t reason;  /* enum dv_whole_reason, of the last launch that was not cut */
    _Atomic uint64_t launches;
    _Atomic uint64_t cut_launches; /* of those, launches in parts */
    _Atomic uint64_t parts;        /* of all of these */
    char name[DV_MAX_TRACED_NAME]; /* ends with a NUL */
    uint8_t pad[24];
};
static_assert(sizeof(struct dv_shm_kernel) == 128, "wire");

enum dv_upcall_kind {
    DV_UPCALL_EVENT = 1,    /* a: event slot whose status changed and that had `notify` set */
    DV_UPCALL_READY = 2,    /* a: queue, b: number of a host command that is next; c: 1 when it
                             * ended without running */
    DV_UPCALL_MEM_GONE = 3, /* a: id of a memory object the worker has let go */
    DV_UPCALL_FREE = 4,     /* b: arena offset of a staging block that is free again */
    DV_UPCALL_CONTEXT = 5,  /* a: context id, b: error code; something went wrong late */
    DV_UPCALL_OUTPUT = 6,   /* kernels printed something */
};

struct dv_upcall {
    uint32_t kind; /* enum dv_upcall_kind */
    uint32_t a;
    uint64_t b;
    uint64_t c;
    uint64_t reserved;
};
static_assert(sizeof(struct dv_upcall) == 32, "wire");

#endif
