/* Lines from workers (see worker_log.h). */
#include "src/arbiter/workers/worker_log.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/arbiter/limits.h"
#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/fd.h"
#include "src/base/log.h"
#include "src/base/text.h"

static bool may_show(struct dvd_worker_log *log)
{
    struct dv_log_bucket *all = log->of_tenant;

    if (!dv_log_fill(&log->own, DV_WORKER_LINES_PER_S, DV_WORKER_LINES_BURST) ||
        (all && !dv_log_fill(all, DV_TENANT_LINES_PER_S, DV_TENANT_LINES_BURST))) {
        log->dropped++;
        return false;
    }
    log->own.left--;
    if (all)
        all->left--;
    return true;
}

static void show_line(struct dvd_worker_log *log)
{
    if (log->length > 0) {
        log->line[log->length] = '\0';
        dv_text_clean(log->line, sizeof log->line);
        dv_text_copy(log->last, sizeof log->last, log->line);
    }
    if (log->length > 0 && may_show(log)) {
        if (log->dropped)
            dv_warning("%s: %llu lines were dropped: it wrote too many", log->name, (unsigned long long)log->dropped);
        log->dropped = 0;
        dv_info("%s: | %s", log->name, log->line);
    }
    log->length = 0;
}

static void take(struct dvd_worker_log *log, const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] == '\n') {
            show_line(log);
            log->skipping = false;
        } else if (!log->skipping) {
            log->line[log->length++] = data[i];
            if (log->length == sizeof log->line - 1) {
                show_line(log);
                log->skipping = true;
            }
        }
    }
}

/* Returns whether there may be more. */
static bool read_some(struct dvd_worker_log *log)
{
    char data[4096];
    ssize_t bytes = recv(log->fd, data, sizeof data, MSG_DONTWAIT);

    if (bytes > 0)
        take(log, data, (size_t)bytes);
    return bytes == sizeof data;
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dvd_worker_log *log = userdata;

    (void)fd;
    read_some(log); /* the rest in later iterations */
    if ((events & EPOLLHUP) && !(events & EPOLLIN))
        sd_event_source_set_enabled(source, SD_EVENT_OFF); /* all writers are gone */
    return 0;
}

void dvd_worker_log_init(struct dvd_worker_log *log, const char *name, struct dv_log_bucket *of_tenant)
{
    *log = (struct dvd_worker_log){.fd = -1, .of_tenant = of_tenant};
    dv_text_copy(log->name, sizeof log->name, name);
}

int dvd_worker_log_adopt(struct dvd_worker_log *log, sd_event *event, int *fd)
{
    dvd_worker_log_close(log);
    log->fd = dv_take_fd(fd);
    int error = sd_event_add_io(event, &log->io, log->fd, EPOLLIN, on_io, log);
    if (error < 0) {
        dvd_worker_log_close(log);
        return error;
    }
    sd_event_source_set_ratelimit(log->io, DV_WORKER_READS_US, DV_WORKER_READS);
    return 0;
}

int dvd_worker_log_open(struct dvd_worker_log *log, sd_event *event)
{
    int ends[2];

    /* Not a pipe: its writers can make readers wait, O_NONBLOCK or not. */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    dv_fd_refuse(ends[0]);
    DV_AUTO_CLOSE int ours = ends[0];
    DV_AUTO_CLOSE int theirs = ends[1];
    int error = dvd_worker_log_adopt(log, event, &ours);
    return error < 0 ? error : dv_take_fd(&theirs);
}

const char *dvd_worker_log_last(struct dvd_worker_log *log)
{
    for (int i = 0; log->fd >= 0 && i < DV_MAX_BATCH && read_some(log); i++)
        ;
    show_line(log);
    return log->last;
}

void dvd_worker_log_close(struct dvd_worker_log *log)
{
    dvd_worker_log_last(log);
    log->io = sd_event_source_disable_unref(log->io);
    if (log->fd >= 0)
        close(log->fd);
    log->fd = -1;
}
