/* The control socket: HTTP with JSON answers, for operators and for tenants that ask about themselves. */
#ifndef DVD_CONTROL_SERVER_H
#define DVD_CONTROL_SERVER_H

#include <stdbool.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "src/arbiter/control/listings.h"
#include "src/arbiter/control/rate_limit.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/system/budget.h"

struct MHD_Daemon;
struct dvd_hold;

struct dvd_control_events {
    /* Reads the configuration again. Returns 0 with what has changed, or a negative errno with the reason. */
    int (*reload)(void *owner, struct dvd_reload *reload);
};

/* A connection of the port for metrics. */
struct dvd_port_connection {
    int fd;
    dv_ns began; /* 0: there is none */
};

struct dvd_control {
    /* set by the owner */
    const struct dvd_control_events *events;
    void *owner;
    sd_event *event;
    const struct dvd_config *config;
    const char *directory, *icd_directory;
    struct dvd_ledger *ledger;
    struct dvd_sessions *sessions;
    struct dvd_devices *devices;
    struct dvd_keeper *keeper;
    struct dvd_idle *idle;

    struct MHD_Daemon *http;
    int fd;
    bool activated; /* handed over by the service manager, which keeps the file */
    sd_event_source *listening;
    int metrics_fd; /* a TCP socket of this machine; -1: none */
    uint16_t metrics_port;
    bool metrics_activated; /* handed over by the service manager */
    sd_event_source *metrics_listening;
    struct dvd_port_connection on_port[DV_MAX_CONTROL_PER_TENANT]; /* all callers of the port are one */
    sd_event_source *io;
    sd_event_source *timer;
    struct dvd_budget budget;
    struct dvd_callers callers;
    struct dvd_listings listings;
    struct dvd_hold *holds; /* processes that keep an idle daemon from ending */
    unsigned hold_count;
};

/* Makes the socket (or takes the given one, unless it is -1). Returns 0 or a negative errno. */
int dvd_control_init(struct dvd_control *control, int activated_fd);
void dvd_control_fini(struct dvd_control *control);
/* Serves metrics on a listening TCP socket, which it takes over. */
void dvd_control_listen_metrics(struct dvd_control *control, int fd);
/* After a reload: the port for metrics, and the socket's mode and group, follow the configuration. */
void dvd_control_apply_config(struct dvd_control *control);

#endif
