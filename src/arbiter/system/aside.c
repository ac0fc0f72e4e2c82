/* Helper processes (see aside.h). */
#include "src/arbiter/system/aside.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/limits.h"
#include "src/base/cleanup.h"
#include "src/base/log.h"

struct dvd_aside_job {
    struct dvd_asides *asides;
    pid_t pid;
    int pidfd;
    sd_event_source *io, *timer;
    dvd_aside_done *done;
    struct dvd_session_id id;
    struct dvd_aside_job *prev, *next;
};

static void forget(struct dvd_aside_job *job)
{
    struct dvd_asides *asides = job->asides;

    DL_DELETE(asides->jobs, job);
    asides->count--;
    job->io = sd_event_source_disable_unref(job->io);
    job->timer = sd_event_source_disable_unref(job->timer);
    dv_close_fd(&job->pidfd);
    free(job);
}

static void tell_done(struct dvd_aside_job *job, bool is_done)
{
    dvd_aside_done *done = job->done;

    job->done = NULL;
    if (done)
        done(job->asides->owner, job->id, is_done);
}

static int on_end(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dvd_aside_job *job = userdata;

    (void)source;
    (void)fd;
    (void)events;
    int status = 1;
    waitpid(job->pid, &status, WNOHANG);
    tell_done(job, status == 0);
    forget(job);
    return 0;
}

/* The signal ends most waits, but not one for a lock: the job counts as over, and its process is reaped
 * when it ends. */
static int on_impatience(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_aside_job *job = userdata;

    (void)source;
    (void)usec;
    kill(job->pid, SIGKILL);
    tell_done(job, false);
    return 0;
}

static _Noreturn void run(dvd_aside_work *work, int fd, const void *data)
{
    prctl(PR_SET_NAME, "divvy-aside");
    signal(SIGPIPE, SIG_IGN);
    fd = dup2(fd, STDERR_FILENO + 1);
    syscall(SYS_close_range, STDERR_FILENO + 2, ~0U, 0);
    work(fd, data);
    _exit(0);
}

static int watch(struct dvd_aside_job *job)
{
    sd_event *event = job->asides->event;

    job->pidfd = (int)syscall(SYS_pidfd_open, job->pid, 0);
    if (job->pidfd < 0)
        return -errno;
    int error = sd_event_add_io(event, &job->io, job->pidfd, EPOLLIN, on_end, job);
    if (error >= 0)
        error = sd_event_add_time_relative(event, &job->timer, CLOCK_MONOTONIC, DV_ASIDE_TIMEOUT_US, DV_MS,
                                           on_impatience, job);
    return error;
}

bool dvd_aside_start(struct dvd_asides *asides, dvd_aside_work *work, int fd, const void *data, dvd_aside_done *done,
                     struct dvd_session_id id)
{
    struct dvd_aside_job *job = asides->count < DV_MAX_ASIDES ? calloc(1, sizeof *job) : NULL;

    if (!job)
        return false;
    *job = (struct dvd_aside_job){.asides = asides, .pidfd = -1, .done = done, .id = id};
    DL_APPEND(asides->jobs, job);
    asides->count++;
    job->pid = fork();
    if (job->pid == 0)
        run(work, fd, data);
    int error = job->pid < 0 ? -errno : watch(job);
    if (error >= 0)
        return true;
    dv_warning("cannot start a helper process: %s", strerror(-error));
    if (job->pid > 0) { /* it has only begun, so it can end */
        kill(job->pid, SIGKILL);
        waitpid(job->pid, NULL, 0);
    }
    forget(job);
    return false;
}

void dvd_asides_fini(struct dvd_asides *asides)
{
    struct dvd_aside_job *job, *next;

    DL_FOREACH_SAFE (asides->jobs, job, next) {
        kill(job->pid, SIGKILL);
        waitpid(job->pid, NULL, WNOHANG);
        forget(job);
    }
}
