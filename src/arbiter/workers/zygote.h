/* divvyd's side of the zygote: starts and restarts it, and asks it to fork workers and to probe. */
#ifndef DVD_WORKERS_ZYGOTE_H
#define DVD_WORKERS_ZYGOTE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "src/arbiter/workers/devices.h"
#include "src/arbiter/workers/launcher.h"
#include "src/arbiter/workers/sandbox.h"
#include "src/arbiter/workers/worker_log.h"
#include "src/wire/session/handshake.h"

struct dvd_zygote_request;

struct dvd_zygote_events {
    /* Fills the request for a session's worker, and its descriptors. The caller closes the last one, which may be
     * -1. Returns false: the session wants none any more. */
    bool (*fill_fork)(void *owner, struct dvd_session_id session, struct dv_zygote_request *request,
                      int fds[DV_ZYGOTE_FDS]);
    void (*fork_sent)(void *owner, struct dvd_session_id session);
    /* The session, if it is still there, takes the descriptor. */
    void (*forked)(void *owner, struct dvd_session_id session, pid_t pid, int *pidfd);
    void (*fork_failed)(void *owner, struct dvd_session_id session, int error, const char *text);
    void (*exited)(void *owner, struct dvd_session_id session, pid_t pid, int status);
    void (*probed)(void *owner);     /* there is a new list of devices */
    void (*look_again)(void *owner); /* there was no device: sessions that wait for one may try again */
    void (*lost)(void *owner);       /* the zygote has ended, and reports no more on its workers */
    void (*started)(void *owner);    /* there is a new one */
    void (*ended)(void *owner);      /* after dvd_zygote_stop */
};

struct dvd_zygote {
    /* set by the owner */
    sd_event *event;
    bool of_user;
    const char *worker_path, *icd_directory, *config_path;
    struct dvd_devices *devices;
    struct dvd_sandboxes *sandboxes;
    const struct dvd_zygote_events *events;
    void *owner;

    struct dvd_launcher launcher;
    int fd;    /* -1: not running */
    pid_t pid; /* 0: ended */
    int pidfd;
    uint64_t generation; /* counts the zygotes started; a worker remembers which was its parent */
    uint64_t started_us;
    uint64_t pause_us; /* before the next restart; 0: at once */
    bool adopted;      /* an earlier daemon has started it */
    bool probing;
    bool renewed; /* its end is intended */
    bool is_stopping;
    sd_event_source *io;
    sd_event_source *process;
    sd_event_source *restart_timer;
    struct dvd_worker_log log;
    struct dvd_zygote_request *requests; /* not sent yet */
    unsigned request_count;
    uid_t last_uid;                 /* of the last request for a worker */
    struct dv_zygote_answer answer; /* the one being read */
};

void dvd_zygote_init(struct dvd_zygote *zygote);
/* Starts the launcher, while divvyd has all its rights and few descriptors. Returns 0 or a negative
 * errno. */
int dvd_zygote_prepare(struct dvd_zygote *zygote);
/* Starts the process. Returns 0 or a negative errno. */
int dvd_zygote_start(struct dvd_zygote *zygote);
/* A hash of the program, environment and drivers that a zygote started now would have. */
uint64_t dvd_zygote_identity(const struct dvd_zygote *zygote);
/* Goes on with the zygote of an earlier daemon; takes the descriptors over. Returns 0 or a negative
 * errno: it is not usable. */
int dvd_zygote_adopt(struct dvd_zygote *zygote, pid_t pid, int *pidfd, int *socket_fd, int *log_fd);
/* Lets the zygote go by closing its socket; it ends by itself. */
void dvd_zygote_stop(struct dvd_zygote *zygote);
/* Releases everything; kills the process if it has not ended. */
void dvd_zygote_fini(struct dvd_zygote *zygote);

/* Asks for a worker; the event forked or fork_failed is the answer. */
int dvd_zygote_request_fork(struct dvd_zygote *zygote, struct dvd_session_id session, uid_t uid);
/* Asks to keep a directory of compiled kernels within its limit (dvd_kernel_cache_next_trim says which). */
void dvd_zygote_request_trim(struct dvd_zygote *zygote);
/* Asks for the devices unless that is under way. */
int dvd_zygote_request_probe(struct dvd_zygote *zygote);
/* Whether sessions can begin: the zygote runs, and its devices are known, or there is none. */
bool dvd_zygote_is_ready(const struct dvd_zygote *zygote);
/* Looks for devices again, if there is none and the last look was some time ago. */
void dvd_zygote_refresh_devices(struct dvd_zygote *zygote);

#endif
