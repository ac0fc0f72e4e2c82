/* divvyd's configuration: read from YAML into structures, and accepted or refused as a whole. */
#ifndef DVD_CONFIG_CONFIG_H
#define DVD_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/config/device_match.h"
#include "src/arbiter/config/terms.h"
#include "src/policy/policy.h"
#include "src/wire/session/handshake.h"

#define DV_CONFIG_SYSTEM "/etc/divvy/divvy.yaml"

enum dvd_tenant_per { DV_PER_DEFAULT, DV_PER_USER, DV_PER_GROUP, DV_PER_CGROUP, DV_PER_PROGRAM };

/* A driver's needs in the sandbox of its workers besides those of every worker. */
struct dvd_sandbox_rule {
    char **paths; /* shown read-only; device nodes work as usual */
    uint64_t paths_count;
    char **groups; /* that the worker is a member of */
    uint64_t groups_count;
    char **calls; /* names of system calls */
    uint64_t calls_count;
    gid_t gids[DV_SANDBOX_GROUPS_MAX]; /* of the groups */
    char **ioctls;                     /* of its device nodes: letters, numbers or "all"; none: by the nodes' names */
    uint64_t ioctls_count;
    struct dv_sandbox_ioctl requests[DV_MAX_SANDBOX_IOCTLS]; /* parsed */
    uint32_t request_count;
};

enum dvd_scrub { DV_SCRUB_AUTO = DV_UNIFIED_AUTO, DV_SCRUB_YES = DV_UNIFIED_YES, DV_SCRUB_NO = DV_UNIFIED_NO };
enum dvd_copy_engine {
    DV_COPY_ENGINE_AUTO = DV_UNIFIED_AUTO,
    DV_COPY_ENGINE_YES = DV_UNIFIED_YES,
    DV_COPY_ENGINE_NO = DV_UNIFIED_NO,
};

/* How to offer the devices whose name matches, or a lease-only device. The first rule that matches a device decides. */
struct dvd_device_rule {
    char *match;                     /* glob on the device's name; NULL: of a lease-only device */
    char *name;                      /* shown instead of the vendor's name; NULL: the vendor's */
    int lease_only;                  /* there is such a device, and no driver for it */
    int unified;                     /* enum dv_unified */
    int present_as;                  /* enum dv_present_as */
    int hidden;                      /* not offered to sessions */
    int policy;                      /* enum dvd_policy_choice */
    uint64_t *slots;                 /* NULL: one */
    int scrub;                       /* enum dvd_scrub */
    int copy_engine;                 /* enum dvd_copy_engine */
    int pinned;                      /* enum dv_pinned */
    int no_swap;                     /* objects stay where the driver puts them */
    char *swap_part;                 /* "5%": of the time, for moving memory; NULL: 5% */
    uint32_t swap_part_ppm;          /* parsed; 0: absent */
    struct dvd_device_match matches; /* `match`, parsed */
    char *slice_max;                 /* "2s": of slices that are longer because memory was moved; NULL: 2s */
    uint64_t moved_slice_max_ns;     /* parsed; 0: absent */
    char *room_patience;             /* "30s": how long sessions may keep room from others; NULL: 30s */
    uint64_t room_patience_ns;       /* parsed; 0: absent */
    char *capacity;                  /* "8GiB": of its memory; NULL: what the vendor reports */
    char *per_context;               /* device memory that the vendor needs for each context; NULL: nothing */
    uint64_t capacity_bytes, per_context_bytes; /* parsed; 0: absent */
    struct dvd_sandbox_rule *sandbox;           /* NULL: no additional needs */
    int slice_kernels;                          /* enum dvd_slice_kernels plus one; 0: absent */
    char *kernel_slice;                         /* "5ms": of parts of long kernels; NULL: 5ms */
    uint64_t kernel_slice_ns;                   /* parsed; 0: absent */
    char *kernel_slice_cost;                    /* "2%": of the time, for cutting kernels; NULL: 2% */
    uint32_t kernel_slice_cost_ppm;             /* parsed; 0: absent */
    char *slice;                                /* "learned", or a time such as "10ms"; NULL: learned */
    uint64_t slice_ns;                          /* parsed; 0: learned */
};

/* The tenant that a program belongs to, and its terms. The first rule that matches a program
 * decides; all of user, group and cgroup that are given must match. */
struct dvd_tenant_rule {
    char *user;                          /* name or number */
    char *group;                         /* name or number */
    char *cgroup;                        /* glob on the path of a process's cgroup */
    char *name;                          /* all that match are one tenant; NULL: one for each `per` */
    int refuse;                          /* they are refused a session */
    int per;                             /* enum dvd_tenant_per */
    char *request, *limit, *may_request; /* "30%" */
    char *memory_request;                /* "2GiB" or "50%" that others cannot take; NULL: nothing */
    char *memory;                        /* "2GiB" or "50%" of a device; NULL: all of it */
    char *host_memory;                   /* "4GiB" for bytes beyond a device's memory; NULL: no own limit */
    uint64_t *weight, *may_weight;
    int class, may_class; /* enum dv_class plus one; 0: absent */
    int members_may_change;
    int slice_kernels; /* enum dvd_slice_kernels plus one; 0: absent */
    /* parsed */
    uid_t uid;
    gid_t gid;
    struct dvd_tenant_terms terms;
};

static inline enum dvd_slice_kernels dvd_device_rule_slices(const struct dvd_device_rule *rule)
{
    return rule->slice_kernels ? (enum dvd_slice_kernels)(rule->slice_kernels - 1) : DV_SLICE_KERNELS_USUAL;
}

/* Whether programs of more than one user can belong to a tenant that this rule names. */
static inline bool dvd_tenant_rule_is_for_several(const struct dvd_tenant_rule *rule)
{
    return !rule->user && (rule->name || rule->per == DV_PER_GROUP || rule->per == DV_PER_CGROUP);
}

/* The file's contents, as the schema lays them out. Absent keys are zero. */
struct dvd_config_file {
    struct dvd_device_rule *devices;
    uint64_t devices_count;
    struct dvd_tenant_rule *tenants;
    uint64_t tenants_count;
    char *arena;
    char **vendors;
    uint64_t vendors_count;
    char *operator_group;
    char *session_group;
    int tenants_see_own;
    uint64_t *sessions_per_user;     /* NULL: absent */
    int device_order;                /* enum dv_device_order */
    int sandbox;                     /* enum dvd_sandbox_choice */
    int allow_unsandboxed;           /* of the system's daemon: `sandbox` may be no or if-possible */
    char *cache_size;                /* "1GiB" */
    char *caches_size;               /* "10GiB": of all tenants together */
    char *worker_users;              /* "FIRST-LAST" */
    char *worker_memory;             /* "8GiB": of the host, for all workers of a tenant's user; NULL: the default */
    uint64_t *worker_processes;      /* the same for processes and threads */
    char *worker_cgroup;             /* where those bounds are kept; NULL: below divvyd's own; "tenant" */
    struct dvd_deadlines *deadlines; /* NULL: the defaults */
    char *lease_sessions;            /* "yes", "no" or the name of a group; NULL: yes */
    char *restart_within;            /* "60s" */
    uint64_t *metrics_port;          /* of TCP on this machine; NULL: none */
};

/* How long a session of a class may keep a device after a recall. */
struct dvd_deadlines {
    char *latency, *standard, *batch, *idle; /* "30s" or "none"; NULL: the default */
};

enum dvd_sandbox_choice {
    DV_SANDBOX_BY_MODE, /* yes for the system's daemon, if-possible for a user's own */
    DV_SANDBOX_YES,
    DV_SANDBOX_NO,
    DV_SANDBOX_IF_POSSIBLE,
};

/* Which users may open sessions. */
enum dvd_sessions_for {
    DV_SESSIONS_FOR_WORKERS_GROUPS, /* the default: members of the groups that workers are put into */
    DV_SESSIONS_FOR_GROUP,
    DV_SESSIONS_FOR_ALL,
};
#define DV_CONFIG_EVERYBODY "everybody"

/* Which users may have a session without a worker. */
enum dvd_lease_sessions { DV_LEASE_SESSIONS_ALL, DV_LEASE_SESSIONS_NONE, DV_LEASE_SESSIONS_OF_GROUP };

enum dv_device_order {
    DV_ORDER_FREE,  /* the default: the least loaded first */
    DV_ORDER_FIXED, /* as the vendors list them */
};

enum dvd_policy_choice {
    DV_POLICY_ELASTIC, /* the default */
    DV_POLICY_NONE,    /* its time is not shared out */
    DV_POLICY_FAIR,
    DV_POLICY_FIFO,
    DV_POLICY_BAND,
};

#define DV_CONFIG_WARNING_BYTES 512

struct dvd_config {
    struct dvd_config_file *file; /* NULL: all defaults */
    bool of_user;                 /* of a user's own daemon: all programs are that user's */
    uid_t owner;                  /* of the daemon */
    uint64_t arena_bytes;
    unsigned sessions_per_user;
    bool devices_fixed; /* every session sees devices in the vendors' order */
    bool has_operator_group;
    gid_t operator_group;
    enum dvd_sessions_for sessions_for;
    gid_t session_group;
    int sandbox;                                    /* enum dvd_sandbox_choice */
    uint64_t worker_memory_bytes, worker_processes; /* of all workers of a tenant's user */
    bool tenants_cgroup;                            /* workers go into the cgroup of their program instead */
    uint64_t cache_bytes;                           /* of compiled kernels that a tenant may keep */
    uint64_t caches_bytes;                          /* of all tenants; 0: the default */
    uid_t worker_uid_first, worker_uid_last;        /* of workers, when divvyd runs as root */
    uint64_t deadline_ns[DV_CLASS_COUNT]; /* 0: not given, DV_DEADLINE_NONE: none. See dvd_config_ledger_terms */
    int lease_sessions;                   /* enum dvd_lease_sessions */
    gid_t lease_group;
    uint16_t metrics_port;                 /* 0: none */
    uint64_t restart_ns;                   /* how long sessions wait for the next daemon, if this one leaves them */
    char warning[DV_CONFIG_WARNING_BYTES]; /* about settings that are allowed and hardly meant; empty: none */
};

/* Above all user numbers that systemd and distributions use. */
#define DV_WORKER_UID_FIRST 1879048192u
#define DV_WORKER_UID_LAST 1879113727u
#define DV_CACHE_BYTES_USUAL (UINT64_C(1) << 30)
#define DV_CACHES_BYTES_USUAL (UINT64_C(10) << 30) /* or a tenth of the file system, if that is less */
#define DV_DEADLINE_MIN_NS (100 * DV_NS_PER_MS)
#define DV_DEADLINE_MAX_NS (86400 * DV_NS_PER_S)
#define DV_DEADLINE_NONE UINT64_MAX
/* Of the system's daemon, for devices. */
#define DV_DEADLINE_USUAL_NS (60 * DV_NS_PER_S)
#define DV_DEADLINE_USUAL_LATENCY_NS (10 * DV_NS_PER_S)
#define DV_RESTART_USUAL_NS (60 * DV_NS_PER_S)
#define DV_RESTART_MIN_NS (1 * DV_NS_PER_S)
#define DV_RESTART_MAX_NS (3600 * DV_NS_PER_S)
#define DV_CACHE_BYTES_MIN (UINT64_C(1) << 20)

/* Loads and checks a file. With must_exist false a missing file means the defaults. Returns 0, or a
 * negative errno with a message that names file, line and what was expected. */
int dvd_config_load(struct dvd_config *config, const char *path, bool must_exist, char *error, size_t error_bytes);
const char *dvd_config_policy_word(int policy);
const char *dvd_slice_kernels_word(enum dvd_slice_kernels mode);
/* Completes a configuration for the daemon of a user, or of the system, that runs as `owner`. Returns 0, or -EINVAL
 * with a message: a key that it needs there is absent. */
int dvd_config_set_mode(struct dvd_config *config, const char *path, bool of_user, uid_t owner, char *error,
                        size_t error_bytes);
/* The group whose members may see and change everything. */
static inline gid_t dvd_config_operators(const struct dvd_config *config)
{
    return config->has_operator_group ? config->operator_group : getegid();
}
/* The terms for the ledger. */
struct dvd_ledger_terms dvd_config_ledger_terms(const struct dvd_config *config);
/* Prints which users each rule matches, and what they get. */
void dvd_config_describe(const struct dvd_config *config, FILE *out);
void dvd_config_fini(struct dvd_config *config);

#endif
