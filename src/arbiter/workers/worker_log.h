/* The standard error of the zygote and of workers. They have no access to divvyd's own log: each has a
 * socket that brings its lines here, where they are cleaned, marked with its name, and counted, so that
 * none can forge an entry, fill a disk, or delay another. */
#ifndef DVD_WORKERS_WORKER_LOG_H
#define DVD_WORKERS_WORKER_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "src/base/log.h"

#define DV_WORKER_LINE_BYTES 1024
#define DV_WORKER_LAST_BYTES 160

struct dvd_worker_log {
    int fd;        /* -1: none */
    char name[32]; /* of the writer */
    sd_event_source *io;
    char line[DV_WORKER_LINE_BYTES]; /* the received part of the next one */
    size_t length;
    bool skipping;                        /* the rest of a line that was too long */
    struct dv_log_bucket own, *of_tenant; /* NULL: it is no tenant's */
    uint64_t dropped;                     /* lines since the last that was shown */
    char last[DV_WORKER_LAST_BYTES];      /* the end of the last line */
};

/* `name` is the writer's; `of_tenant` counts the lines of all its tenant's workers, and outlives the
 * log. */
void dvd_worker_log_init(struct dvd_worker_log *log, const char *name, struct dv_log_bucket *of_tenant);
/* Begins to read a new socket. Returns its end for writing, which the caller closes, or a negative
 * errno. */
int dvd_worker_log_open(struct dvd_worker_log *log, sd_event *event);
/* Begins to read the socket that an earlier daemon read, and takes its end over. Returns 0 or a negative
 * errno. */
int dvd_worker_log_adopt(struct dvd_worker_log *log, sd_event *event, int *fd);
/* The last line that the writer has written, as far as it was received. */
const char *dvd_worker_log_last(struct dvd_worker_log *log);
/* Shows the received lines and stops. */
void dvd_worker_log_close(struct dvd_worker_log *log);

#endif
