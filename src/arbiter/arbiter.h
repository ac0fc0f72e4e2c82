/* The arbiter: divvyd's one context object. It owns all parts, and connects their events. */
#ifndef DVD_ARBITER_H
#define DVD_ARBITER_H

#include <stdbool.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "src/arbiter/config/config.h"
#include "src/arbiter/control/server.h"
#include "src/arbiter/ledger/ledger.h"
#include "src/arbiter/restart/keeper_client.h"
#include "src/arbiter/restart/state.h"
#include "src/arbiter/session/listener.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/system/idle.h"
#include "src/arbiter/system/run_directory.h"
#include "src/arbiter/system/timers.h"
#include "src/arbiter/workers/devices.h"
#include "src/arbiter/workers/sandbox.h"
#include "src/arbiter/workers/zygote.h"
#include "src/base/log.h"

struct dvd_options {
    bool user;                   /* no root: everything belongs to the calling user */
    const char *directory;       /* NULL: the default */
    const char *config_path;     /* NULL: the default */
    const char *state_directory; /* NULL: the default */
    const char *worker_path;     /* NULL: look for it */
    unsigned idle_exit_s;        /* 0: never */
    int ready_fd;                /* -1: none */
    enum dv_log_level log_level;
};

/* Only arbiter.c, reload.c, restore.c and tests know more than one part. */
struct dvd_arbiter {
    struct dvd_options options;
    sd_event *event;
    struct dvd_config config;
    struct dvd_saved saved;
    const char *config_path;
    bool config_must_exist;
    struct dvd_run_directory directory;
    char icd_directory[DV_RUNDIR_BYTES + 16];
    char worker_path[4096];

    struct dvd_state state;
    bool is_restart; /* the state is that of an earlier daemon */
    struct dvd_keeper keeper;
    struct dvd_devices devices;
    struct dvd_sandboxes sandboxes;
    struct dvd_zygote zygote;
    struct dvd_event_timers timers;
    struct dvd_ledger ledger;
    struct dvd_idle idle;
    struct dvd_sessions sessions;
    struct dvd_listener listener;
    struct dvd_control control;

    sd_event_source *status_timer; /* NULL: no service manager wants to know */
    bool is_stopping;
    bool leaves_workers;
    sd_event_source *stop_timer;
};

/* Sets everything up: directory, configuration, sockets, zygote. Returns 0 or a negative errno
 * after having logged why. Call dvd_arbiter_fini in both cases. */
int dvd_arbiter_init(struct dvd_arbiter *arbiter, const struct dvd_options *options);
/* Serves until a signal or idleness ends it. Returns the process's exit status. */
int dvd_arbiter_run(struct dvd_arbiter *arbiter);
void dvd_arbiter_fini(struct dvd_arbiter *arbiter);

/* Reads the configuration. Returns 0, or a negative errno after having logged why. */
int dvd_arbiter_load_config(struct dvd_arbiter *arbiter);
/* The configuration can have changed since an earlier daemon read it: gives its tenants the present one. */
void dvd_arbiter_apply_to_restored(struct dvd_arbiter *arbiter);
/* Reads it again and applies it, or leaves all as it is. Returns 0 with what has changed, or a negative errno with the
 * reason. */
int dvd_arbiter_reload(struct dvd_arbiter *arbiter, struct dvd_reload *reload);
/* The ledger's part of the configuration has changed. */
void dvd_arbiter_terms_changed(struct dvd_arbiter *arbiter);
/* Begins an orderly end; with leave_workers, running sessions go on and wait for the next daemon. */
void dvd_arbiter_stop(struct dvd_arbiter *arbiter, bool leave_workers);
/* Restores the state of an earlier daemon. */
void dvd_arbiter_restore(struct dvd_arbiter *arbiter);
/* Goes on with the zygote of an earlier daemon. Returns false if there is none, or it differs from a new one. */
bool dvd_arbiter_restore_zygote(struct dvd_arbiter *arbiter);
/* The list of devices, or what the configuration says of them, has changed. */
void dvd_arbiter_devices_changed(struct dvd_arbiter *arbiter);

#endif
