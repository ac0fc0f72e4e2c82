/* What the zygote or a worker writes to its standard error. They have no access to divvyd's own log: a
 * socket of its own brings each one's lines here, where they are cleaned, marked as its, and counted, so
 * that none can forge an entry, fill a disk, or hold another up. */
#ifndef DVD_WORKERS_WORKER_LOG_H
#define DVD_WORKERS_WORKER_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "src/base/log.h"

#define DV_WORKER_LINE_BYTES 1024

struct dvd_worker_log {
    int fd; /* -1: none */
    char name[32]; /* whose they are */
    sd_event_source *io;
    char line[DV_WORKER_LINE_BYTES]; /* what has come of the next one */
    size_t length;
    bool skipping;       /* the rest of a line that was too long */
    struct dv_log_bucket own, *of_tenant; /* NULL: it is no tenant's */
    uint64_t dropped; /* lines since the last that was shown */
};

/* `name` is whose lines they are; `of_tenant` counts those of all its tenant's workers, and outlives the
 * log. */
void dvd_worker_log_init(struct dvd_worker_log *log, const char *name, struct dv_log_bucket *of_tenant);
/* Begins to read a new socket of somebody. Returns its end for writing, which the caller closes, or a negative
 * errno. */
int dvd_worker_log_open(struct dvd_worker_log *log, sd_event *event);
/* Begins to read the socket that an earlier daemon read, and takes its end over. Returns 0 or a negative
 * errno. */
int dvd_worker_log_adopt(struct dvd_worker_log *log, sd_event *event, int *fd);
/* Shows what has come and stops. */
void dvd_worker_log_close(struct dvd_worker_log *log);

#endif
