/* How a session begins: messages between client, divvyd, the zygote and a new worker.
 * All are single SEQPACKET messages in host byte order (both ends are on one machine); every
 * structure is documented byte by byte in docs/wire.md and checked by the assertions below. */
#ifndef DV_WIRE_SESSION_HANDSHAKE_H
#define DV_WIRE_SESSION_HANDSHAKE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define DV_WIRE_MAGIC 0x79767664u /* "dvvy" */
/* A daemon serves its own version and the one before it. */
#define DV_WIRE_VERSION 2
#define DV_WIRE_VERSION_OLDEST 1

#define DV_SHARE_WHOLE 1000000 /* shares of a device's time are parts per million */

#define DV_MAX_DEVICES 64       /* devices that divvyd knows, and offers to one session */
#define DV_MAX_DEVICES_1 16     /* the same in version 1 */
#define DV_MAX_DEVICE_NAME 128  /* bytes, the ending NUL included */
#define DV_DEVICE_UUID_BYTES 40 /* 36 digits and dashes, and a NUL */
#define DV_DEVICE_PCI_BYTES 24
#define DV_MAX_DEVICE_CHOICE 512 /* devices that a program names, NUL included */
#define DV_MAX_MESSAGE_TEXT 512  /* a refusal in words, NUL included */
#define DV_MAX_COMMAND_NAME 64   /* a tenant's program name, NUL included */

/* The purpose of a session. DV_API_LEASE: no worker; the session socket itself is the lease channel
 * (src/wire/lease/lease.h) of a front end that computes in the tenant's own process, on all devices
 * that divvyd offers, numbered as `divvy devices` shows them, or on one lease-only device. */
enum dv_api { DV_API_OPENCL = 1, DV_API_LEASE = 2 };

/* How a device is shown to programs that look only for one type. */
enum dv_present_as {
    DV_PRESENT_AS_IS = 0,
    DV_PRESENT_AS_CPU = 1,
    DV_PRESENT_AS_GPU = 2,
    DV_PRESENT_AS_ACCELERATOR = 3,
};

/* client -> divvyd, first message on the session socket */
struct dv_hello {
    uint32_t magic;
    uint16_t version;        /* newest version the client speaks */
    uint16_t version_oldest; /* oldest version the client speaks */
    uint32_t api;            /* enum dv_api */
    uint32_t present_as;     /* enum dv_present_as, DV_PRESENT_AS_IS: as configured */
    /* A share other than the tenant's usual one; 0: as configured. Request and limit are parts per
     * million plus one, the class is enum dv_class plus one. */
    uint32_t request;
    uint32_t limit;
    uint16_t weight;
    uint16_t class;
    uint32_t flags; /* enum dv_hello_flag; zero in version 1, which ends here */
    /* Which of the machine's devices the session is to have: numbers, UUIDs, PCI addresses or patterns for
     * names, as `divvy devices` shows them, with commas between them. Empty: all. */
    char devices[DV_MAX_DEVICE_CHOICE];
    /* The message may end here. Limits that a program sets itself; 0: none. */
    uint64_t memory_bytes; /* that it may allocate on each device */
    uint64_t deadline_ns;  /* to give a device back */
};
#define DV_HELLO_BYTES_1 32                          /* of version 1 */
#define DV_HELLO_BYTES_2 (32 + DV_MAX_DEVICE_CHOICE) /* without limits of its own */
static_assert(offsetof(struct dv_hello, memory_bytes) == DV_HELLO_BYTES_2, "wire");
static_assert(sizeof(struct dv_hello) == DV_HELLO_BYTES_2 + 16, "wire");

enum dv_hello_flag {
    /* These devices in this order, or none: an earlier session of the program had them like that. */
    DV_HELLO_SAME_DEVICES = 1,
    /* DV_API_LEASE: `devices` is the name of one lease-only device, which is number 0 of the session. */
    DV_HELLO_LEASE_ONLY = 2,
};

/* What is behind a device. */
enum dv_device_kind {
    DV_DEVICE_VENDOR = 0,
    DV_DEVICE_LEASE_ONLY = 1, /* no driver: programs that know the device themselves lease it */
    DV_DEVICE_GONE = 2,       /* the vendor has it no longer; its number stays with it */
};

enum dv_welcome_status {
    DV_WELCOME_OK = 0,
    DV_WELCOME_VERSION = 1,   /* no common version */
    DV_WELCOME_REFUSED = 2,   /* not admitted; text says why */
    DV_WELCOME_NO_WORKER = 3, /* a worker could not be started; text says why */
    DV_WELCOME_GONE = 4,      /* second message only: the worker ended before it was ready */
    DV_WELCOME_NO_LEASE = 5,  /* DV_API_LEASE only: the user may have sessions, but none without a worker */
};

/* divvyd -> client. With DV_WELCOME_OK it carries one descriptor: the session's shared memory,
 * sealed against resizing. The client may close socket and descriptor once the shared header says
 * that the worker is ready; until then divvyd sends a second message if the worker ends. */
struct dv_welcome {
    uint32_t magic;
    uint16_t version; /* the version spoken from here on */
    uint16_t status;  /* enum dv_welcome_status */
    uint64_t session;
    uint64_t shm_bytes;
    char text[DV_MAX_MESSAGE_TEXT]; /* empty when all is well */
};
static_assert(sizeof(struct dv_welcome) == 24 + DV_MAX_MESSAGE_TEXT, "wire");

/* The probe's report to divvyd on one vendor device. */
struct dv_device_report {
    uint32_t platform;     /* index of the vendor platform */
    uint32_t device;       /* index within it */
    uint64_t type;         /* vendor's device type bits */
    uint64_t memory_bytes; /* global memory */
    uint32_t compute_units;
    uint32_t host_unified; /* 1: the device computes in host memory */
    char name[DV_MAX_DEVICE_NAME];
    char vendor[DV_MAX_DEVICE_NAME];
    char version[DV_MAX_DEVICE_NAME];
    char driver[DV_MAX_DEVICE_NAME];
    char platform_name[DV_MAX_DEVICE_NAME];
    char uuid[DV_DEVICE_UUID_BYTES]; /* 8-4-4-4-12 digits; empty: the vendor does not say */
    char pci[DV_DEVICE_PCI_BYTES];   /* its address on the bus, as DV_PCI_FORMAT; likewise */
    uint32_t copy_engines;           /* that copy while it computes; 0: none, or the vendor does not say */
    uint32_t kind;                   /* enum dv_device_kind; 0 in a probe's report */
};
static_assert(sizeof(struct dv_device_report) == 104 + 5 * DV_MAX_DEVICE_NAME, "wire");
#define DV_PCI_FORMAT "%04x:%02x:%02x.%x" /* domain, bus, device, function */

enum dv_unified { DV_UNIFIED_AUTO = 0, DV_UNIFIED_YES = 1, DV_UNIFIED_NO = 2 };
enum dv_pinned { DV_PINNED_AUTO = 0, DV_PINNED_YES = 1, DV_PINNED_NO = 2 };

/* One device that a session may use, as configured. */
struct dv_device_grant {
    uint32_t platform;
    uint32_t device;
    uint32_t unified;              /* enum dv_unified */
    uint32_t present_as;           /* enum dv_present_as */
    uint32_t leased;               /* 1: its time is shared out by leases */
    uint32_t swapped;              /* 1: memory that does not fit goes to the host */
    uint64_t memory_bytes;         /* what the tenant may allocate on it; 0: as much as the vendor has */
    uint64_t capacity_bytes;       /* its memory for all tenants; 0: as much as the vendor says */
    uint64_t per_context_bytes;    /* assumed cost of each context */
    uint32_t scrubbed;             /* 1: fresh memory is filled with zeros before a program sees it */
    uint32_t number;               /* as `divvy devices` shows it */
    uint32_t pinned;               /* enum dv_pinned: where evicted bytes go in host memory */
    uint32_t reserved;             /* zero */
    char name[DV_MAX_DEVICE_NAME]; /* shown instead of the vendor's name unless empty */
};
static_assert(sizeof(struct dv_device_grant) == 64 + DV_MAX_DEVICE_NAME, "wire");

#define DV_ZYGOTE_FDS 6 /* with a request */

#define DV_SANDBOX_GROUPS_MAX 8
#define DV_SANDBOX_ROOT_BYTES 128
#define DV_SANDBOX_PATHS_BYTES 4096
#define DV_SANDBOX_CALLS_BYTES 1024
#define DV_SANDBOX_IOCTLS_MAX 64

/* Requests of ioctl(2) that equal `bits` under the mask. Mask 0: all. */
struct dv_sandbox_ioctl {
    uint32_t mask, bits;
};

/* The sandbox that a worker or probe enters before it touches the vendor (src/worker/core/sandbox.h).
 * paths and calls are lists of strings, each with its NUL, and end with an empty one. */
struct dv_sandbox_settings {
    uint32_t on;  /* 0: no sandbox, only its user, groups and limits */
    uint32_t uid; /* user of the worker; DV_SANDBOX_SAME_USER: that of the zygote */
    uint32_t gid;
    uint32_t group_count; /* at most DV_SANDBOX_GROUPS_MAX */
    uint32_t groups[DV_SANDBOX_GROUPS_MAX];
    char root[DV_SANDBOX_ROOT_BYTES];   /* directory in which its view of the files is built */
    char paths[DV_SANDBOX_PATHS_BYTES]; /* files it sees besides those of every worker */
    char calls[DV_SANDBOX_CALLS_BYTES]; /* system calls it may make besides those of every worker */
    uint64_t file_bytes;                /* no file that it writes becomes longer */
    uint64_t processes;                 /* processes and threads of its user, where that is a worker user */
    uint32_t ioctl_count;               /* at most DV_SANDBOX_IOCTLS_MAX */
    uint32_t reserved;                  /* zero */
    struct dv_sandbox_ioctl ioctls[DV_SANDBOX_IOCTLS_MAX]; /* besides those of every worker */
};
#define DV_SANDBOX_SAME_USER UINT32_MAX
/* A sandboxed process is the first of its pid namespace, for which the kernel ignores signals that it does
 * not handle. Where a signal from outside would end it, it exits with this plus the number. */
#define DV_SANDBOX_SIGNAL_BASE 128
static_assert(sizeof(struct dv_sandbox_settings) == 48 + DV_SANDBOX_ROOT_BYTES + DV_SANDBOX_PATHS_BYTES +
                                                        DV_SANDBOX_CALLS_BYTES + 24 +
                                                        DV_SANDBOX_IOCTLS_MAX * sizeof(struct dv_sandbox_ioctl),
              "wire");

enum dv_zygote_op {
    /* divvyd -> zygote; descriptors: shared memory, control socket, tenant's pidfd, what becomes the
     * worker's standard error, with a sandbox the directory of the tenant's compiled kernels, and with store_bytes
     * the session's store (parked.h), in which an earlier worker has left what this one needs */
    DV_ZYGOTE_FORK = 1,
    DV_ZYGOTE_PROBE = 2, /* divvyd -> zygote; descriptor: the directory likewise */
    /* divvyd -> zygote; descriptor: the directory, in which at most sandbox.file_bytes may stay. `session` is
     * a number that the answer repeats */
    DV_ZYGOTE_TRIM = 3,
    /* divvyd -> zygote; descriptors: the directory, which is to be removed, and the one that it is in;
     * sandbox.paths is its name there. `session` likewise */
    DV_ZYGOTE_REMOVE = 4,
};

struct dv_zygote_request {
    uint32_t magic;
    uint32_t op; /* enum dv_zygote_op */
    uint64_t session;
    uint64_t shm_bytes;
    uint64_t store_bytes;  /* 0: no worker was before it */
    uint32_t device_count; /* at most DV_MAX_DEVICES */
    uint32_t api;          /* enum dv_api */
    struct dv_sandbox_settings sandbox;
    struct dv_device_grant devices[DV_MAX_DEVICES]; /* the message ends with the last that counts */
};
static_assert(sizeof(struct dv_zygote_request) ==
                  40 + DV_MAX_DEVICES * sizeof(struct dv_device_grant) + sizeof(struct dv_sandbox_settings),
              "wire");

static inline size_t dv_zygote_request_bytes(const struct dv_zygote_request *request)
{
    return offsetof(struct dv_zygote_request, devices) + request->device_count * sizeof request->devices[0];
}

enum dv_zygote_event {
    DV_ZYGOTE_FORKED = 1,  /* one descriptor: the worker's pidfd */
    DV_ZYGOTE_FAILED = 2,  /* status: negative errno */
    DV_ZYGOTE_EXITED = 3,  /* status: as from waitpid(2) */
    DV_ZYGOTE_PROBED = 4,  /* the device list; empty with text when nothing was found */
    DV_ZYGOTE_TRIMMED = 5, /* a directory was trimmed or removed; status: 0 or a negative errno */
};

/* zygote -> divvyd */
struct dv_zygote_answer {
    uint32_t magic;
    uint32_t event; /* enum dv_zygote_event */
    uint64_t session;
    int32_t pid;
    int32_t status;
    uint32_t device_count;
    uint32_t unsandboxed;   /* DV_ZYGOTE_PROBED: 1: the kernel refuses to make a sandbox, and text says why */
    uint32_t devices_found; /* DV_ZYGOTE_PROBED: those beyond DV_MAX_DEVICES are not reported */
    uint32_t trimmed_kib;   /* DV_ZYGOTE_TRIMMED: what is left in the directory */
    char text[DV_MAX_MESSAGE_TEXT];
    struct dv_device_report devices[DV_MAX_DEVICES]; /* the message ends with the last that counts */
};
static_assert(sizeof(struct dv_zygote_answer) ==
                  40 + DV_MAX_MESSAGE_TEXT + DV_MAX_DEVICES * sizeof(struct dv_device_report),
              "wire");

static inline size_t dv_zygote_answer_bytes(const struct dv_zygote_answer *answer)
{
    return offsetof(struct dv_zygote_answer, devices) + answer->device_count * sizeof answer->devices[0];
}

#endif
