/* All limits of divvyd in one place: numbers and sizes that come from other processes are
 * compared with these before they are used. */
#ifndef DVD_LIMITS_H
#define DVD_LIMITS_H

#define DV_MS UINT64_C(1000) /* sd-event counts microseconds */
#define DV_S UINT64_C(1000000)

/* Connections that have not said hello yet, or whose hello has not been looked at. */
#define DV_MAX_PENDING 4096
#define DV_MAX_PENDING_PER_UID 1024
#define DV_MAX_ACCEPTS 4          /* in one iteration */
#define DV_REFUSALS_PER_S 20      /* in the log */
#define DV_SHARE_CHANGES_PER_S 10 /* of a tenant, by programs that begin */
#define DV_HELLO_TIMEOUT_US (5 * DV_S)

/* Sessions. The descriptors divvyd may open limit them too: these are set aside for each. */
#define DV_MAX_SESSIONS 16384
#define DV_MAX_SESSIONS_PER_UID 64
#define DV_WORKER_DESCRIPTORS 7  /* a session with a worker */
#define DV_LEASE_DESCRIPTORS 1   /* one without */
#define DV_PROCESS_DESCRIPTORS 2 /* their process, once, and its user */
#define DV_OTHER_DESCRIPTORS 192 /* everything that belongs to no session */

#define DV_MAX_ENDS_AT_ONCE 16 /* sessions of a process that has ended, in one iteration */
/* Sessions that ended or were refused, and for how long divvyd can explain them. */
#define DV_MAX_ENDINGS 1024
#define DV_MAX_ENDINGS_PER_UID 256
#define DV_ENDINGS_KEPT_S 3600
#define DV_JOURNAL_PERIOD_US (300 * DV_S) /* between two lines of a session in the journal of used time */
/* Ends of sessions of one user that have a line of their own there. What more of them used is summed up. */
#define DV_JOURNAL_ENDS_PER_S 0.5
#define DV_JOURNAL_ENDS_BURST 100
#define DV_JOURNAL_SUMS_US (10 * DV_S) /* until a sum is written */
#define DV_MAX_JOURNAL_USERS 1024
#define DV_SHORT_ENDS_PER_S 10 /* lines in the log about sessions of less than a second */
/* How long a session may wait for its worker: devices are probed, the zygote is restarted. */
#define DV_START_TIMEOUT_US (30 * DV_S)
/* A worker whose tenant is gone ends by itself within this time, or is killed. */
#define DV_ORPHAN_TIMEOUT_US (300 * DV_MS)
/* How long a worker may take to park its session, and until another attempt to resume one. */
#define DV_PARK_PATIENCE_US (10 * DV_S)
#define DV_RESUME_PAUSE_US (100 * DV_MS)
/* How long to wait for the zygote to report how a worker ended. */
#define DV_STATUS_TIMEOUT_US (1 * DV_S)
/* From SIGTERM to SIGKILL when divvyd ends. */
#define DV_STOP_TIMEOUT_US (1 * DV_S)
#define DV_STATUS_DELAY_US (1 * DV_S) /* the line for the service manager may be this old */

/* The zygote is restarted at once, then with growing pauses. */
#define DV_ZYGOTE_PAUSE_MIN_US (100 * DV_MS)
#define DV_ZYGOTE_PAUSE_MAX_US (5 * DV_S)
#define DV_MAX_ZYGOTE_REQUESTS (2 * DV_MAX_SESSIONS) /* that wait until it reads */
#define DV_ZYGOTE_HEALTHY_US (10 * DV_S)             /* after this lifetime the next pause is short again */
/* A probe that found nothing is repeated for a new session, but not more often than this; where there were
 * devices before, sessions wait for them and it is repeated sooner. */
#define DV_PROBE_PAUSE_US (5 * DV_S)
#define DV_PROBE_PAUSE_SHORT_US (500 * DV_MS)

/* How long the launcher may take to start a zygote. */
#define DV_LAUNCH_TIMEOUT_US (5 * DV_S)

/* Processes for work that untrusted programs can slow down: how long each may take, how many there are, and how
 * many messages of a closed socket divvyd reads itself. */
#define DV_ASIDE_TIMEOUT_US (200 * DV_MS)
#define DV_MAX_ASIDES 64
#define DV_MAX_UNREAD 64

/* How long systemd may take to answer when it is asked for a scope, which is at the start only. */
#define DV_SCOPE_TIMEOUT_US (5 * DV_S)

/* How long the keeper may take to read or to answer, and how many requests may wait. */
#define DV_KEEPER_TIMEOUT_US (5 * DV_S)
#define DV_MAX_KEEPER_REQUESTS (4 * DV_MAX_SESSIONS)

/* Messages or connections handled before other sources. */
#define DV_MAX_BATCH 64

/* Messages on lease channels of one user in one iteration. */
#define DV_CHANNEL_BATCH 16
/* Processor time that the kernel takes to carry one message. Above the first limit it is charged to the receiver.
 * A session with three messages in a row above the second is terminated. */
#define DV_MESSAGE_COST_USUAL_NS (500 * UINT64_C(1000))
#define DV_MESSAGE_COST_MAX_NS (5 * UINT64_C(1000000))
/* How long divvyd then refuses sessions of its user, and how many such users it remembers. */
#define DV_COSTLY_PAUSE_NS (10 * UINT64_C(1000000000))
#define DV_COSTLY_USERS 16
/* While other users send messages, too, the lease channels of a user have one part in DV_BUDGET_PART of
 * divvyd's processor time, and so have all callers of the control socket together. A user that has spent
 * DV_BUDGET_SPENT_NS waits until its spent time is DV_BUDGET_LEFT_NS below that. A user counts as
 * alone when divvyd has heard no other for DV_ALONE_AFTER_NS. That is longer than most holds of a device,
 * because a user that waits for a grant sends nothing. */
#define DV_BUDGET_PART 10
#define DV_BUDGET_SPENT_NS (2 * UINT64_C(1000000))
#define DV_BUDGET_LEFT_NS (1 * UINT64_C(1000000))
#define DV_ALONE_AFTER_NS (1 * UINT64_C(1000000000))

/* How often divvyd checks how much memory each session shares with its worker, the pause between two
 * parts of such a check, and in how many checks in a row it may be too much. */
#define DV_ARENA_LOOK_US (1 * DV_S)
#define DV_ARENA_STEP_US (20 * DV_MS)
#define DV_ARENA_LOOKS 5
#define DV_ARENA_OTHER_BYTES (UINT64_C(64) << 20) /* of it, for memory that belongs to no object */

#define DV_MAX_CONFIG_BYTES (1u << 20)
#define DV_MAX_DEVICE_RULES 256
#define DV_MAX_TENANT_RULES 4096
#define DV_MAX_HIERARCHIES 64           /* of cgroups that a process is in */
#define DV_MAX_USER_NAME 64             /* bytes, the ending NUL included */
#define DV_MAX_KNOWN_NAMES 256          /* of users, cached */
#define DV_MAX_TENANTS_GONE 1024        /* remembered for a while after their last session */
#define DV_TENANT_MEMORY_US (10 * DV_S) /* and how long */
#define DV_MAX_TENANT_NAME 96           /* bytes, the ending NUL included */
#define DV_MAX_ACCOUNTS 256             /* tenants with counters of their own in metrics */
#define DV_MAX_SLOTS 64                 /* sessions that may keep one device busy at a time */
#define DV_MAX_VENDORS 64
#define DV_MAX_SANDBOX_PATHS 64
#define DV_MAX_SANDBOX_CALLS 64
#define DV_MAX_SANDBOX_IOCTLS 16
#define DV_MAX_ICD_BYTES 4096
#define DV_WORKER_MEMORY_MIN (UINT64_C(64) << 20) /* a worker needs some before it does anything */
#define DV_WORKER_PROCESSES_MIN 16
#define DV_WORKER_PROCESSES_MAX (1u << 20)
/* The default: the sessions that a user may have * (BESIDE + the number of processors), but at least
 * USUAL. */
#define DV_WORKER_PROCESSES_USUAL 2048
#define DV_WORKER_PROCESSES_BESIDE 16
#define DV_MAX_PATH 4096

/* Lines that a worker, and all workers of a tenant, may write into the log, and how often divvyd reads from a worker in
 * an interval. */
#define DV_WORKER_LINES_PER_S 10
#define DV_WORKER_LINES_BURST 500
#define DV_TENANT_LINES_PER_S 50
#define DV_TENANT_LINES_BURST 2000
#define DV_WORKER_READS 8
#define DV_WORKER_READS_US (100 * DV_MS)

/* How often a tenant's compiled kernels are counted while it has sessions, and how many tenants' at
 * once. */
#define DV_TRIM_PAUSE_US (20 * DV_S)
#define DV_TRIM_LOOK_US (5 * DV_S)
#define DV_TRIMS_AT_ONCE 8
#define DV_TRIM_LOST_US (40 * DV_S) /* no answer is expected after this time */

/* Users that workers run as: the maximum in all, and for each user of programs (or sessions-per-user, if
 * that is more). After their sessions end, half of a user's are kept, and all while a quarter of the range
 * is free. */
#define DV_MAX_WORKER_USERS (1u << 20)
#define DV_MAX_WORKER_USERS_PER_UID 64

/* The control socket. */
#define DV_MAX_CONTROL_CONNECTIONS 64
#define DV_MAX_CONTROL_OF_TENANTS 48 /* of those; the rest is for operators */
#define DV_MAX_CONTROL_PER_TENANT 8
#define DV_MAX_CONTROL_QUESTIONS_PER_S 20 /* of a tenant */
#define DV_MAX_CONTROL_QUESTIONS_BURST 100
#define DV_CONTROL_TIMEOUT_S 10
#define DV_METRICS_TIMEOUT_S 5 /* of a connection of the port for metrics, from its beginning */
#define DV_MAX_CONTROL_MEMORY (32u << 10)
/* Callers that are sent the figures again and again, and how often at most. */
#define DV_MAX_WATCHES 16
#define DV_MAX_WATCHES_OF_TENANTS 12 /* of those; the rest is for operators */
#define DV_MAX_WATCHES_PER_TENANT 2
#define DV_WATCH_INTERVAL_MIN_MS 100
#define DV_WATCH_INTERVAL_MAX_MS 60000
#define DV_TRACE_PAUSE_MS 50 /* between two batches of events in a trace */
/* Records of commands that one batch of a trace reads in all, and how often from each session. */
#define DV_TRACE_COMMANDS_MAX 1000
#define DV_TRACE_VISITS_MAX 4
/* How long listings may occupy the event loop in one iteration, plus the time of one row. */
#define DV_LISTING_STEP_NS UINT64_C(200000)
#define DV_MAX_GROUPS 1024 /* supplementary groups of a peer that are looked at */
#define DV_MAX_HOLDS 1024

#endif
