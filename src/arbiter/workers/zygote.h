/* divvyd's side of the zygote: it is started, restarted, asked to fork workers and to probe. */
#ifndef DVD_WORKERS_ZYGOTE_H
#define DVD_WORKERS_ZYGOTE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "src/arbiter/workers/worker_log.h"
#include "src/wire/session/handshake.h"

struct dv_arbiter;
struct dv_zygote_errand;

struct dv_zygote {
    int fd;              /* -1: not running */
    pid_t pid;           /* 0: ended */
    int pidfd;
    uint64_t generation; /* counts the zygotes started; a worker remembers which was its parent */
    uint64_t started_us;
    uint64_t pause_us; /* before the next restart; 0: at once */
    bool adopted; /* an earlier daemon has started it */
    bool probing;
    bool renewed; /* its end is wanted */
    sd_event_source *io;
    sd_event_source *process;
    sd_event_source *restart_timer;
    struct dv_worker_log log;
    struct dv_zygote_errand *errands; /* requests not sent yet */
    unsigned errand_count;
    uid_t last_uid;                   /* for whom the last worker was asked for */
    struct dv_zygote_answer answer;   /* the one being read */
};

void dv_zygote_init(struct dv_zygote *zygote);
/* Starts the launcher, while divvyd has all its rights and few descriptors. Returns 0 or a negative
 * errno. */
int dv_zygote_prepare(struct dv_arbiter *arbiter);
/* Starts the process. Returns 0 or a negative errno. */
int dv_zygote_start(struct dv_arbiter *arbiter);
/* Of the program, environment and drivers that a zygote started now would have. */
uint64_t dv_zygote_identity(const struct dv_arbiter *arbiter);
/* Goes on with the zygote of an earlier daemon; takes the descriptors over. Returns 0 or a negative
 * errno: it is of no use. */
int dv_zygote_adopt(struct dv_arbiter *arbiter, pid_t pid, int *pidfd, int *socket_fd, int *log_fd);
/* Lets the zygote go by closing its socket; it ends by itself. */
void dv_zygote_stop(struct dv_arbiter *arbiter);
/* Releases everything; kills the process if it has not ended. */
void dv_zygote_fini(struct dv_arbiter *arbiter);

/* Asks for a worker; dv_session_forked or dv_session_fork_failed is the answer. */
int dv_zygote_request_fork(struct dv_arbiter *arbiter, uint64_t session, uid_t uid);
/* Asks to keep a directory of compiled kernels within its limit (dv_cages_next_sweep says which). */
void dv_zygote_request_sweep(struct dv_arbiter *arbiter);
/* Asks for the devices unless that is under way. */
int dv_zygote_request_probe(struct dv_arbiter *arbiter);
/* Another one takes its place, which loads the drivers anew and looks for devices. */
void dv_zygote_renew(struct dv_arbiter *arbiter);

#endif
