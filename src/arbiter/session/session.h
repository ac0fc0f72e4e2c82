/* A session as divvyd knows it: a program and its worker. It ends when either of them ends. */
#ifndef DVD_SESSION_SESSION_H
#define DVD_SESSION_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <systemd/sd-event.h>
#include <time.h>
#include <uthash.h>

#include "src/arbiter/config/config.h"
#include "src/arbiter/config/saved.h"
#include "src/arbiter/ledger/ledger.h"
#include "src/arbiter/restart/keeper_client.h"
#include "src/arbiter/restart/state.h"
#include "src/arbiter/session/arenas.h"
#include "src/arbiter/session/channels.h"
#include "src/arbiter/session/ends.h"
#include "src/arbiter/session/journal.h"
#include "src/arbiter/session/processes.h"
#include "src/arbiter/system/aside.h"
#include "src/arbiter/system/bells.h"
#include "src/arbiter/system/idle.h"
#include "src/arbiter/workers/devices.h"
#include "src/arbiter/workers/sandbox.h"
#include "src/arbiter/workers/worker_log.h"
#include "src/arbiter/workers/zygote.h"
#include "src/wire/lease/lease.h"
#include "src/wire/session/handshake.h"

struct dvd_session;
struct dvd_sessions;
struct dvd_unread;
struct dvd_user;

enum dvd_session_state {
    DV_SESSION_WAITING, /* for the devices to be known and the zygote to run */
    DV_SESSION_FORKING, /* the zygote has been asked, or will be */
    DV_SESSION_SERVED,  /* has a worker */
    DV_SESSION_PARKED,  /* has none, until its program wants one again */
};

enum dvd_parking {
    DVD_PARK_NOT,
    DVD_PARK_ASKED, /* its worker has been asked to leave all in the store */
    DVD_PARK_DONE,  /* it has, and is being ended */
};

struct dvd_session {
    struct dvd_sessions *sessions;
    struct dvd_lessee lessee;   /* its part of the ledger */
    struct dvd_channel channel; /* its lease channel */
    struct dvd_sandbox sandbox; /* its worker's */
    enum dvd_session_state state;
    enum dvd_parking parking;
    bool request_sent; /* to the zygote */
    bool tenant_gone;
    bool worker_gone;
    bool worker_ended_first; /* its program still ran then */
    bool worker_killed;      /* it did not end with its program */
    bool counted;            /* among its user's sessions */

    gid_t gid;
    pid_t tenant_pid;
    pid_t worker_pid; /* 0: none yet */
    uint64_t zygote_generation;
    uint16_t version; /* of the protocol */
    uint32_t api;
    uint32_t present_as;
    char user[DV_MAX_USER_NAME];
    char command[DV_MAX_COMMAND_NAME];
    time_t started;
    uint64_t started_us;

    struct dvd_share_change change;      /* the share that it asks for */
    uint32_t descriptors;                /* set aside for it */
    char *choice;                        /* devices that the program names; NULL: all */
    bool same_devices;                   /* as an earlier session of the program had them */
    bool lease_only;                     /* its device is a lease-only one */
    struct dv_lease_message late_answer; /* sent once its program can read the reason; type 0: there is none */
    char *refused_tenant;                /* that did not admit it; NULL: it was admitted, or is no tenant's */
    char *turned_away;                   /* why it could not use a device that it wanted; NULL: it could */

    struct dvd_process *process;
    struct dvd_session *prev_of_process, *next_of_process;
    int client_fd; /* -1 once the client has closed it */
    int worker_pidfd;
    int shm_fd;
    uint64_t shm_bytes;
    int store_fd;               /* -1: it was never to be parked */
    bool asked_before;          /* an earlier daemon may have asked its worker to park it */
    int worker_channel_fd;      /* the worker's end of the lease channel, until it has been sent */
    struct dvd_worker_log *log; /* NULL: it has no worker */
    int worker_log_fd;          /* the worker's end, likewise */

    sd_event_source *client_io;
    struct dvd_session *prev_waiting, *next_waiting; /* sessions that wait for devices or the zygote */
    bool in_waiting;
    sd_event_source *worker_io;
    sd_event_source *timer; /* its purpose depends on the state */
    unsigned arena_over;    /* checks in a row that found too much in its shared memory */
    dv_ns traced_until;     /* 0: no operator traces it */
    uint64_t traced_count;  /* of its worker's records that were read */
    bool in_journal;
    uint64_t journal_due_us; /* when its next line is written */
    bool has_line;           /* an earlier daemon may have written it */
    dv_ns journaled_ns;      /* device time in the last line of this daemon */
    struct dvd_session *prev_journal, *next_journal;
    enum dvd_end_kind end_kind;
    char ended_because[DV_MAX_MESSAGE_TEXT]; /* why it ended or was refused; empty: with its program */

    UT_hash_handle hh;
};

struct dvd_session_events {
    void (*freed)(void *owner, const struct dvd_session *session); /* just before it is freed */
    void (*none_left)(void *owner);
    void (*number_changed)(void *owner);
};

/* What parked.c does for the files that it calls. */
struct dvd_session_parking {
    /* The worker of a session has ended. Returns whether it has left all to another one: the session is parked. */
    bool (*worker_left)(struct dvd_session *session);
    /* There is no worker for a parked session. */
    void (*not_resumed)(struct dvd_session *session, const char *why);
    /* A session is about to be freed: tells its program, if it has no worker that could. */
    void (*tell_end)(struct dvd_session *session);
};

/* All sessions, and the parts that they use. */
struct dvd_sessions {
    /* set by the owner */
    sd_event *event;
    const struct dvd_config *config;
    const char *directory;
    struct dvd_ledger *ledger;
    struct dvd_state *state;
    struct dvd_keeper *keeper;
    struct dvd_devices *devices;
    struct dvd_zygote *zygote;
    struct dvd_sandboxes *sandboxes;
    struct dvd_idle *idle;
    struct dvd_saved *saved;   /* shares that operators have set for good; NULL: none */
    uint64_t descriptors_free; /* see DV_WORKER_DESCRIPTORS */
    const struct dvd_session_events *events;
    void *owner;

    bool is_stopping;
    struct dvd_session *all;     /* hash table by id */
    struct dvd_session *waiting; /* those that wait for devices or the zygote; a list */
    sd_event_source *advance;    /* for the next of them */
    struct dvd_processes processes;
    struct dvd_user *users;    /* hash table by number: how many sessions each has */
    struct dvd_unread *unread; /* welcomes of sessions that are over */
    struct dvd_channels channels;
    struct dvd_asides asides;
    struct dvd_bells bells; /* of parked sessions */
    const struct dvd_session_parking *parking;
    struct dvd_arenas arenas;
    uint64_t last_id;
    struct dv_log_limit refusals;
    struct dvd_ends ends;
    struct dvd_journal journal;
};

/* ---- sessions.c ---- */

/* Returns 0 or a negative errno. */
int dvd_sessions_init(struct dvd_sessions *sessions);
/* Forgets all sessions without ending their workers. */
void dvd_sessions_fini(struct dvd_sessions *sessions);

/* ---- start.c ---- */

/* Begins a session for a client that has said a correct hello. Owns the descriptor from here on, also when the session
 * is refused. */
void dvd_session_begin(struct dvd_sessions *sessions, int client_fd, struct dvd_process *process,
                       const struct dv_hello *hello, uint16_t version, const struct ucred *peer);
/* Keeps the reason why a program got no session although its hello was read. */
void dvd_session_note_refusal(struct dvd_sessions *sessions, const struct ucred *peer, const char *why);
/* Starts waiting sessions as far as possible now. */
void dvd_sessions_advance(struct dvd_sessions *sessions);
/* The zygote has ended: the workers that it was asked for are not forked. */
void dvd_sessions_forks_lost(struct dvd_sessions *sessions);
/* Fills the request for a worker. Returns false: the session wants none. The last descriptor is the caller's to close,
 * and may be -1. */
bool dvd_session_fill_fork(struct dvd_session *session, struct dv_zygote_request *request, int fds[DV_ZYGOTE_FDS]);
void dvd_session_fork_sent(struct dvd_session *session);
void dvd_session_forked(struct dvd_session *session, pid_t pid, int pidfd);
void dvd_session_fork_failed(struct dvd_session *session, int error, const char *text);

/* ---- parked.c ---- */

/* Asks the worker to park the session. Returns 0, or a negative errno with the reason. */
int dvd_session_park(struct dvd_session *session, char *text, size_t bytes);
/* Gives a parked session a worker. */
void dvd_session_resume(struct dvd_session *session);

/* ---- restore.c ---- */

/* Goes on with a session of an earlier daemon: its record has been checked, and the descriptors are taken over.
 * Returns 0 or a negative errno. */
int dvd_session_restore(struct dvd_sessions *sessions, struct dv_state_session *record,
                        struct dv_state_lease *const leases[DV_MAX_DEVICES], struct dvd_tenant *tenant,
                        struct dvd_kept *kept);

/* ---- reload.c ---- */

/* What a reload has changed, as lines of text. */
struct dvd_reload {
    bool is_restart; /* the sessions are an earlier daemon's: terms that are the same are not set again */
    unsigned changes;
    char text[8192];
};

/* Gives tenants that have sessions the terms of the configuration. */
void dvd_sessions_apply_config(struct dvd_sessions *sessions, struct dvd_reload *reload);

/* Writes saved shares to their file. Returns 0 or a negative errno. */
int dvd_sessions_save_shares(struct dvd_sessions *sessions);

/* ---- end.c ---- */

/* Terminates its worker, once. */
void dvd_session_end_for(struct dvd_session *session, const char *why);
void dvd_session_worker_exited(struct dvd_session *session, pid_t pid, int status);
/* The zygote has ended: it does not say how workers end. */
void dvd_sessions_exits_lost(struct dvd_sessions *sessions);
/* divvyd ends: waiting clients are refused, workers get the signal. */
void dvd_sessions_stop(struct dvd_sessions *sessions, int signal_number);
/* Forgets all sessions without ending their workers. */
void dvd_sessions_forget(struct dvd_sessions *sessions);

/* ---- session.c ---- */

/* A session's own figures, for display only. They come from its worker, and decide nothing. */
struct dvd_session_figures {
    bool is_ready;
    const char *state;                      /* "starting", "running" or "failed" */
    char command_line[DV_MAX_COMMAND_LINE]; /* as its program says; empty: it does not */
    char name[DV_MAX_SESSION_NAME];         /* that its user gave it; empty: none */
    uint64_t compiling_since;               /* on the clock of dv_now; 0: it does not compile */
    uint64_t commands;
    uint64_t memory_bytes;
    uint64_t reserved_bytes, placed_bytes; /* of divvyd's ledger, as its worker reports */
    uint64_t moved_bytes, moving_ns;       /* moved for lack of room */
    uint64_t device_mask;
    uint32_t kernels[DV_CUT_VERDICTS - 1]; /* that it has made, by verdict, less 1 */
};

/* The name of a local user, or its number. */
void dvd_user_name(uid_t uid, char *name, size_t bytes);
/* How many sessions a user has. */
unsigned dvd_sessions_of_user(const struct dvd_sessions *sessions, uid_t uid);
struct dvd_session *dvd_session_find(const struct dvd_sessions *sessions, struct dvd_session_id id);
void dvd_session_read_figures(const struct dvd_session *session, struct dvd_session_figures *figures);
/* The name of a device by its number in the session's list. */
const char *dvd_session_device_name(const struct dvd_session *session, uint32_t index);
/* Fills the descriptors that the keeper keeps. Returns false: the session is not recorded. */
bool dvd_session_fill_kept(const struct dvd_session *session, int fds[DV_KEPT_KINDS]);
struct dvd_sandbox_processes dvd_session_processes(const struct dvd_session *session);
/* Sends a welcome or a refusal. Returns 0 or a negative errno. */
int dvd_session_send_welcome(int client_fd, uint16_t version, enum dv_welcome_status status, uint64_t session,
                             uint64_t shm_bytes, int shm_fd, const char *text);

/* ---- ledger_events.c ---- */

/* The ledger's events that are about sessions. */
int dvd_session_send(struct dvd_lessee *lessee, const void *message, size_t bytes);
bool dvd_session_is_stopped(const struct dvd_lessee *lessee);
void dvd_session_overdue(struct dvd_lessee *lessee, dv_ns deadline, const char *what);
void dvd_session_unanswered(struct dvd_lessee *lessee, const struct dvd_device *device, dv_ns since, dv_ns deadline);
bool dvd_session_turned_away(struct dvd_lessee *lessee, const char *reason, const struct dv_lease_message *answer);

#endif
