/* The arbiter: divvyd's one context object, which every other part of the daemon hangs from. */
#ifndef DVD_ARBITER_H
#define DVD_ARBITER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "src/arbiter/session/arenas.h"
#include "src/arbiter/system/aside.h"
#include "src/arbiter/workers/sandbox.h"
#include "src/arbiter/session/channels.h"
#include "src/arbiter/config/config.h"
#include "src/arbiter/control/server.h"
#include "src/arbiter/workers/devices.h"
#include "src/arbiter/restart/keeper_client.h"
#include "src/arbiter/workers/launcher.h"
#include "src/arbiter/ledger/ledger.h"
#include "src/arbiter/session/listener.h"
#include "src/arbiter/restart/state.h"
#include "src/arbiter/system/timers.h"
#include "src/arbiter/workers/zygote.h"
#include "src/base/log.h"
#include "src/base/rundir.h"

struct dv_session;
struct dv_process;
struct dv_user;

struct dv_options {
    bool user;               /* no root: everything belongs to the calling user */
    const char *directory;   /* NULL: the usual one */
    const char *config_path; /* NULL: the usual one */
    const char *worker_path; /* NULL: look for it */
    unsigned idle_exit_s;    /* 0: never */
    int ready_fd;            /* -1: none */
    enum dv_log_level log_level;
};

struct dv_arbiter {
    sd_event *event;
    struct dv_options options;
    struct dv_config config;
    const char *config_path;
    bool config_must_exist;
    uid_t owner;

    char directory[DV_RUNDIR_BYTES];
    bool made_directory;
    int lock_fd;
    char vendors_directory[DV_RUNDIR_BYTES + 16];
    char worker_path[4096];

    struct dv_devices devices;
    struct dv_state state;
    bool inherited; /* the state is that of an earlier daemon */
    struct dv_keeper keeper;
    struct dv_launcher launcher;
    struct dv_zygote zygote;
    struct dv_cages cages;
    struct dv_listener listener;
    struct dv_control control;
    struct dv_channels channels;
    struct dvd_asides asides;
    struct dv_unread *unread; /* welcomes of sessions that are over */
    struct dvd_event_timers timers;
    struct dvd_ledger ledger;
    struct dv_arenas arenas;

    struct dv_session *sessions; /* hash table by id */
    struct dv_session *waiting;  /* of these, which wait for devices or the zygote; a list */
    sd_event_source *advance;    /* for the next of them */
    struct dv_process *processes; /* hash table by number */
    struct dv_user *users;        /* hash table by number: how many sessions each has */
    uint64_t last_session;
    struct dv_log_limit refusals;
    struct dv_ending *endings; /* DV_LIMIT_ENDINGS of them, the next one at ending_count modulo that;
                                * NULL: none yet */
    uint64_t ending_count;
    uint64_t descriptors_free; /* for sessions, see DV_WORKER_DESCRIPTORS */

    bool stopping;
    bool leave_workers;
    sd_event_source *stop_timer;
    sd_event_source *idle_timer;
};

/* Sets everything up: directory, configuration, sockets, zygote. Returns 0 or a negative errno
 * after having logged why. dv_arbiter_fini is due in both cases. */
int dv_arbiter_init(struct dv_arbiter *arbiter, const struct dv_options *options);
/* Serves until a signal or idleness ends it. Returns the process's exit status. */
int dv_arbiter_run(struct dv_arbiter *arbiter);
void dv_arbiter_fini(struct dv_arbiter *arbiter);

/* Begins an orderly end; with leave_workers running sessions go on, and wait for the next daemon. */
void dv_arbiter_stop(struct dv_arbiter *arbiter, bool leave_workers);
/* The list of devices, or what the configuration says of them, has changed. */
void dv_arbiter_devices_changed(struct dv_arbiter *arbiter);
/* To be called whenever something that keeps the daemon busy may have come or gone. */
void dv_arbiter_check_idle(struct dv_arbiter *arbiter);
/* Monotonic time in microseconds. */
uint64_t dv_arbiter_now(const struct dv_arbiter *arbiter);

#endif
