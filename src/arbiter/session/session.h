/* A session as divvyd knows it: one tenant's process, its worker, and what ends when either ends.
 */
#ifndef DVD_SESSION_SESSION_H
#define DVD_SESSION_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <systemd/sd-event.h>
#include <time.h>
#include <uthash.h>

#include "src/arbiter/system/aside.h"
#include "src/arbiter/ledger/ledger.h"
#include "src/arbiter/session/processes.h"
#include "src/arbiter/workers/worker_log.h"
#include "src/wire/lease/lease.h"
#include "src/wire/session/handshake.h"

struct dv_arbiter;
struct dv_kernel_cache;
struct dv_kept;
struct dv_state_lease;
struct dv_state_session;

enum dv_session_state {
    DV_SESSION_WAITING, /* for the devices to be known and the zygote to run */
    DV_SESSION_FORKING, /* the zygote has been asked, or will be */
    DV_SESSION_SERVED,  /* has a worker */
};

struct dv_session {
    struct dvd_lessee lessee; /* its part of the ledger */
    struct dv_arbiter *arbiter;
    enum dv_session_state state;
    bool request_sent; /* to the zygote */
    bool tenant_gone;
    bool worker_gone;
    bool counted; /* among its user's sessions */

    gid_t gid;
    pid_t tenant_pid;
    pid_t worker_pid; /* 0: none yet */
    uint64_t zygote_generation;
    uint16_t version; /* of the protocol */
    uint32_t api;
    uint32_t present_as;
    char user[DV_LIMIT_USER_NAME];
    char command[DV_MAX_COMMAND_NAME];
    time_t started;
    uint64_t started_us;

    struct dvd_share_change change; /* what it asks of its share */
    uint32_t descriptors; /* set aside for it */

    char *choice;       /* devices that the program names; NULL: all */
    bool same_devices;  /* as an earlier session of the program had them */
    unsigned costly_sends, costly_receives; /* in a row: they took longer than DV_MESSAGE_COST_MOST_NS */
    bool is_costly; /* it is ended for that */
    struct dv_lease_message late_answer; /* sent once its program can read the reason; type 0: there is none */
    char *turned_away;      /* why it could not have a device that it wanted to use; NULL: it could */

    struct dv_kernel_cache *cache; /* NULL: it has no worker, or no cage */
    bool bounded;                  /* its worker is in a cgroup of ours, or should be */
    uint64_t starved_before;       /* see dv_cages_starved */
    struct dv_process *process;
    struct dv_session *prev_of_process, *next_of_process;
    int client_fd; /* -1 once the client has closed it */
    int worker_pidfd;
    int shm_fd;
    uint64_t shm_bytes;
    int control_fd;        /* our end */
    int worker_control_fd; /* the worker's end, until it has been sent */
    struct dv_worker_log *log; /* NULL: it has no worker */
    int worker_log_fd;         /* the worker's end, likewise */

    sd_event_source *client_io;
    bool in_channels; /* its lease channel is listened to */
    struct dv_session *prev_waiting, *next_waiting; /* those that wait for devices or the zygote */
    bool in_waiting;
    sd_event_source *worker_io;
    sd_event_source *timer; /* what for depends on the state */
    unsigned arena_over; /* looks in a row that found too much in its shared memory */
    char ended_because[192]; /* divvyd has ended its worker; empty: it has not */

    UT_hash_handle hh;
};

/* What is shown of a session's own figures. They come from its worker and are believed by nobody.
 */
struct dv_session_figures {
    const char *state; /* "starting", "running" or "failed" */
    uint64_t commands;
    uint64_t memory_bytes;
    uint64_t reserved_bytes, placed_bytes; /* what its worker has of divvyd's ledger, as it says */
    uint64_t moved_bytes, moving_ns;       /* what it has moved for lack of room */
    uint64_t device_mask;
};

/* Begins a session for a client that has said a correct hello. Owns the descriptor from here on,
 * also when the session is refused. */
void dv_session_begin(struct dv_arbiter *arbiter, int client_fd, struct dv_process *process,
                      const struct dv_hello *hello, uint16_t version, const struct ucred *peer);
/* Goes on with a session of an earlier daemon: what the state file says of it has been checked, and the
 * descriptors are taken over. Returns 0 or a negative errno. */
int dv_session_adopt(struct dv_arbiter *arbiter, struct dv_state_session *record,
                     struct dv_state_lease *const leases[DV_MAX_DEVICES], struct dvd_tenant *tenant,
                     struct dv_kept *kept);
/* A session that divvyd had to end, for those who ask later. */
struct dv_ending {
    uint64_t id;
    uid_t uid;
    time_t when;
    char tenant[DV_LIMIT_TENANT_NAME];
    char command[DV_MAX_COMMAND_NAME];
    char why[192];
};

/* The session around the ledger's part of it. */
struct dv_session *dv_session_of(const struct dvd_lessee *lessee);
/* The ledger's events that are about sessions. */
int dv_session_send(struct dvd_lessee *lessee, const void *message, size_t bytes);
bool dv_session_is_stopped(const struct dvd_lessee *lessee);
void dv_session_overdue(struct dvd_lessee *lessee, dv_ns deadline, const char *what);
void dv_session_unanswered(struct dvd_lessee *lessee, const struct dvd_device *device, dv_ns since, dv_ns deadline);
bool dv_session_turned_away(struct dvd_lessee *lessee, const char *reason, const struct dv_lease_message *answer);
/* Its worker is ended for another reason, once. */
void dv_session_end_for(struct dv_session *session, const char *why);
const struct dv_ending *dv_session_find_ending(const struct dv_arbiter *arbiter, uint64_t id);

/* Its process has ended. */
void dv_session_tenant_gone(struct dv_session *session);
/* Nobody is at the other end of its lease channel any more. */
void dv_session_hung_up(struct dv_session *session);
/* The name of a device by its number in the session's list. */
const char *dv_session_device_name(const struct dv_session *session, uint32_t index);

/* Closes the sockets with unread welcomes of sessions that are over. */
void dv_sessions_forget_unread(struct dv_arbiter *arbiter);

/* Tells its program something, in words, where its library looks for them: in the shared memory. Others may write
 * there and make it slow, so divvyd itself does not; done is called when it has been written, or will not be. False:
 * it is not told. */
bool dv_session_tell(const struct dv_session *session, const char *text, dvd_aside_done *done);

struct dv_session *dv_session_find(struct dv_arbiter *arbiter, uint64_t id);
void dv_session_read_figures(const struct dv_session *session, struct dv_session_figures *figures);

/* Sends a welcome or a refusal. Returns 0 or a negative errno. */
int dv_session_send_welcome(int client_fd, uint16_t version, enum dv_welcome_status status,
                            uint64_t session, uint64_t shm_bytes, int shm_fd, const char *text);

/* For the zygote's side: the request of a session that still wants a worker (false: it does not),
 * then what became of it. The last descriptor is the caller's to close; it may be -1. */
bool dv_session_fill_request(struct dv_session *session, struct dv_zygote_request *request,
                             int fds[5]);
void dv_session_request_sent(struct dv_session *session);
void dv_session_forked(struct dv_session *session, pid_t pid, int pidfd);
void dv_session_fork_failed(struct dv_session *session, int error, const char *text);
void dv_session_worker_exited(struct dv_session *session, pid_t pid, int status);

/* Starts the sessions that were waiting, as far as that is possible now. */
void dv_sessions_advance(struct dv_arbiter *arbiter);
void dv_sessions_zygote_lost(struct dv_arbiter *arbiter);
/* divvyd ends: waiting clients are refused, workers get the signal. */
void dv_sessions_stop(struct dv_arbiter *arbiter, int signal_number);
/* Forgets all sessions without ending their workers. */
void dv_sessions_forget(struct dv_arbiter *arbiter);

#endif
