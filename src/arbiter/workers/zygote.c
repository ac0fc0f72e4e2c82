/* The zygote as divvyd sees it (see zygote.h). Nothing here waits: requests that the socket does not
 * take at once are queued, at most one for each session and one probe. */
#include "src/arbiter/workers/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/workers/icd_directory.h"
#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/fd.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/worker/core/zygote.h"

struct dvd_zygote_request {
    enum dv_zygote_op op;
    struct dvd_session_id session; /* of a fork */
    uid_t uid;                     /* of the session */
    struct dvd_zygote_request *prev, *next;
};

static int on_restart(sd_event_source *source, uint64_t usec, void *userdata);

static uint64_t now_us(void)
{
    return dv_now() / DV_NS_PER_US;
}

static void signal_zygote(const struct dvd_zygote *zygote, int number)
{
    if (zygote->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, zygote->pidfd, number, NULL, 0);
}

/* ---- starting the process ---- */

static bool begins_with_one_of(const char *entry, const char *const *beginnings)
{
    for (; *beginnings; beginnings++)
        if (strncmp(entry, *beginnings, strlen(*beginnings)) == 0)
            return true;
    return false;
}

/* Whether a variable reaches workers, where a tenant's native code can read it: search paths, language,
 * and settings of drivers and their tools. Settings of a tenant's client library and of divvyd do
 * not. */
static bool is_for_workers(const char *entry)
{
    static const char *const ours[] = {"PATH=",         "LANG=",    "LC_",
                                       "TZ=",           "LD_",      "POCL_",
                                       "CUDA_",         "NVIDIA_",  "HSA_",
                                       "ROC",           "AMD_",     "GPU_",
                                       "HIP_",          "NEO",      "ZE_",
                                       "ONEAPI_",       "SYCL_",    "IGC_",
                                       "MESA_",         "RUSTICL_", "GALLIUM_",
                                       "CL_",           "OCL_",     "OMP_",
                                       "ASAN_",         "UBSAN_",   "TSAN_",
                                       "LSAN_",         "MALLOC_",  "GLIBC_",
                                       "DIVVY_VENDOR_", "HOME=",    "XDG_CACHE_HOME=",
                                       "DIVVY_TEST_",   NULL};
    static const char *const not_ours[] = {"OCL_ICD_", NULL};

    return begins_with_one_of(entry, ours) && !begins_with_one_of(entry, not_ours);
}

/* The environment of zygote and workers; one allocation holds it all. */
static char **build_environment(const struct dvd_zygote *zygote)
{
    size_t count = 0;
    size_t text_bytes = 64 + strlen(zygote->icd_directory);

    while (environ[count])
        count++;
    char **variables = malloc((count + 2) * sizeof *variables + text_bytes);
    if (!variables)
        return NULL;
    char *text = (char *)(variables + count + 2);
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        if (is_for_workers(environ[i]))
            variables[used++] = environ[i];
    variables[used++] = text;
    sprintf(text, "OCL_ICD_VENDORS=%s", zygote->icd_directory);
    variables[used] = NULL;
    return variables;
}

/* In a process that the launcher has forked. */
static void exec_zygote(const void *argument, int socket_fd, int log_fd)
{
    const struct dvd_zygote *zygote = argument;
    char *const arguments[] = {(char *)"divvy-worker", (char *)(zygote->of_user ? "--zygote" : "--system-zygote"),
                               NULL};
    char *const *environment = build_environment(zygote);
    sigset_t none;

    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* A terminal's interrupt is for divvyd, which ends its workers in order. No setsid: the kernel
     * would weigh all workers together against all tenants. */
    setpgid(0, 0);
    /* If one of its workers is stopped when divvyd ends, the kernel sends SIGHUP to the whole group. */
    signal(SIGHUP, SIG_IGN);

    int null_fd = open("/dev/null", O_RDONLY);
    if (null_fd >= 0)
        dup2(null_fd, STDIN_FILENO);
    dup2(log_fd, STDERR_FILENO);
    dup2(log_fd, STDOUT_FILENO); /* the output of drivers belongs in the log */
    if (socket_fd == DV_ZYGOTE_SOCKET_FD)
        fcntl(socket_fd, F_SETFD, 0);
    else
        dup2(socket_fd, DV_ZYGOTE_SOCKET_FD);
    syscall(SYS_close_range, DV_ZYGOTE_SOCKET_FD + 1, ~0U, 0);
    if (environment)
        execve(zygote->worker_path, arguments, environment);
    dv_error("cannot execute %s: %s", zygote->worker_path, strerror(errno));
    _exit(127);
}

/* ---- when it ends ---- */

/* Only its parent knows how a process ended, and that may have been an earlier daemon. */
static void describe_status(char *text, size_t bytes, int pidfd)
{
    siginfo_t info = {0};

    if (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0) {
        snprintf(text, bytes, "cause unknown");
        return;
    }
    const char *name = info.si_code == CLD_EXITED ? NULL : sigabbrev_np(info.si_status);
    if (info.si_code == CLD_EXITED)
        snprintf(text, bytes, "exit code %d", info.si_status);
    else
        snprintf(text, bytes, "signal %d (SIG%s)", info.si_status, name ? name : "?");
}

static void schedule_restart(struct dvd_zygote *zygote)
{
    uint64_t lived_us = now_us() - zygote->started_us;

    if (lived_us >= DV_ZYGOTE_HEALTHY_US)
        zygote->pause_us = 0;
    uint64_t pause_us = zygote->pause_us;
    zygote->pause_us = pause_us ? pause_us * 2 : DV_ZYGOTE_PAUSE_MIN_US;
    if (zygote->pause_us > DV_ZYGOTE_PAUSE_MAX_US)
        zygote->pause_us = DV_ZYGOTE_PAUSE_MAX_US;
    zygote->restart_timer = sd_event_source_disable_unref(zygote->restart_timer);
    int error = sd_event_add_time_relative(zygote->event, &zygote->restart_timer, CLOCK_MONOTONIC, pause_us, 1 * DV_MS,
                                           on_restart, zygote);
    if (error < 0)
        dv_error("cannot restart the zygote: %s", strerror(-error));
}

static void drop_socket(struct dvd_zygote *zygote)
{
    zygote->io = sd_event_source_disable_unref(zygote->io);
    if (zygote->fd >= 0)
        close(zygote->fd);
    zygote->fd = -1;
    zygote->probing = false;
}

/* Both the end of the socket and the end of the process lead here, in either order. */
static void zygote_lost(struct dvd_zygote *zygote)
{
    drop_socket(zygote);
    zygote->events->lost(zygote->owner);
}

static int on_end(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dvd_zygote *zygote = userdata;
    char how[64];

    (void)source;
    (void)events;
    describe_status(how, sizeof how, fd);
    zygote->pid = 0;
    zygote->process = sd_event_source_disable_unref(zygote->process);
    dv_close_fd(&zygote->pidfd);
    if (zygote->is_stopping) {
        drop_socket(zygote);
        zygote->events->ended(zygote->owner);
        return 0;
    }
    if (!zygote->renewed)
        dv_error("the zygote has ended (%s); it is started again, running sessions go on", how);
    zygote->renewed = false;
    zygote_lost(zygote);
    schedule_restart(zygote);
    return 0;
}

static int on_restart(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_zygote *zygote = userdata;

    (void)source;
    (void)usec;
    if (zygote->is_stopping || zygote->fd >= 0)
        return 0;
    int error = dvd_zygote_start(zygote);
    if (error < 0) {
        dv_error("cannot start the zygote: %s%s", strerror(-error),
                 error == -EPIPE ? "; the process that starts it is gone: restart divvyd, running "
                                   "programs go on"
                                 : "");
        schedule_restart(zygote);
        return 0;
    }
    zygote->events->started(zygote->owner);
    return 0;
}

/* ---- requests ---- */

/* Fills a request and its descriptors. Returns how many these are, or -1: the request has become pointless. The
 * caller closes *to_close. */
static int fill(struct dvd_zygote *zygote, const struct dvd_zygote_request *wanted, struct dv_zygote_request *request,
                int fds[DV_ZYGOTE_FDS], int *to_close)
{
    struct dvd_sandboxes *sandboxes = zygote->sandboxes;

    switch (wanted->op) {
    case DV_ZYGOTE_FORK:
        if (!zygote->events->fill_fork(zygote->owner, wanted->session, request, fds))
            return -1;
        *to_close = fds[4];
        if (fds[5] < 0)
            return fds[4] < 0 ? 4 : 5;
        if (fds[4] >= 0)
            return 6;
        fds[4] = fds[5];
        return 5;
    case DV_ZYGOTE_TRIM:
        *to_close = fds[0] = dvd_kernel_cache_next_trim(&sandboxes->caches, request);
        fds[1] = sandboxes->caches.fd;
        if (fds[0] < 0)
            return -1;
        return request->op == DV_ZYGOTE_REMOVE ? 2 : 1;
    default:
        *to_close = fds[0] = dvd_sandbox_fill(sandboxes, NULL, &request->sandbox);
        return fds[0] < 0 ? 0 : 1;
    }
}

/* Sends a request. Returns 0 when it is done with, also where it has become pointless; -EAGAIN when the socket is
 * full. */
static int send_request(struct dvd_zygote *zygote, const struct dvd_zygote_request *wanted)
{
    struct dv_zygote_request request = {.magic = DV_WIRE_MAGIC, .op = (uint32_t)wanted->op};
    int fds[DV_ZYGOTE_FDS] = {-1, -1, -1, -1, -1, -1};
    DV_AUTO_CLOSE int to_close = -1;
    int fd_count = fill(zygote, wanted, &request, fds, &to_close);

    if (fd_count < 0)
        return 0;
    int error = dv_fd_send(zygote->fd, &request, dv_zygote_request_bytes(&request), fds, fd_count);
    if (error == 0 && wanted->op == DV_ZYGOTE_FORK)
        zygote->events->fork_sent(zygote->owner, wanted->session);
    if (error == 0 || error == -EAGAIN)
        return error;
    if (error == -EPIPE || error == -ECONNRESET)
        return -EAGAIN; /* its end is noticed elsewhere; the request is for its successor */
    dv_error("cannot ask the zygote: %s", strerror(-error));
    if (wanted->op == DV_ZYGOTE_FORK)
        zygote->events->fork_failed(zygote->owner, wanted->session, error, "the request could not be sent");
    else if (wanted->op == DV_ZYGOTE_PROBE)
        zygote->probing = false;
    return 0;
}

/* Never two of one user in a row while another waits. */
static struct dvd_zygote_request *next_request(const struct dvd_zygote *zygote)
{
    struct dvd_zygote_request *request;

    DL_FOREACH (zygote->requests, request)
        if (request->op != DV_ZYGOTE_FORK || request->uid != zygote->last_uid)
            return request;
    return zygote->requests;
}

static void send_requests(struct dvd_zygote *zygote)
{

    while (zygote->requests) {
        struct dvd_zygote_request *request = next_request(zygote);
        if (send_request(zygote, request) == -EAGAIN)
            break;
        if (request->op == DV_ZYGOTE_FORK)
            zygote->last_uid = request->uid;
        DL_DELETE(zygote->requests, request);
        zygote->request_count--;
        free(request);
    }
    if (zygote->io)
        sd_event_source_set_io_events(zygote->io, EPOLLIN | (zygote->requests ? EPOLLOUT : 0));
}

static int add_request(struct dvd_zygote *zygote, enum dv_zygote_op op, struct dvd_session_id session, uid_t uid)
{
    struct dvd_zygote_request *request =
        zygote->request_count < DV_MAX_ZYGOTE_REQUESTS ? malloc(sizeof *request) : NULL;

    if (!request)
        return -ENOMEM;
    zygote->request_count++;
    *request = (struct dvd_zygote_request){.op = op, .session = session, .uid = uid};
    DL_APPEND(zygote->requests, request);
    if (zygote->fd >= 0)
        send_requests(zygote);
    return 0;
}

int dvd_zygote_request_fork(struct dvd_zygote *zygote, struct dvd_session_id session, uid_t uid)
{
    return add_request(zygote, DV_ZYGOTE_FORK, session, uid);
}

void dvd_zygote_request_trim(struct dvd_zygote *zygote)
{
    if (zygote->fd >= 0)
        add_request(zygote, DV_ZYGOTE_TRIM, DVD_SESSION_ID(0), 0);
}

int dvd_zygote_request_probe(struct dvd_zygote *zygote)
{
    if (zygote->probing || zygote->fd < 0)
        return 0; /* a new zygote begins with a probe */
    int error = add_request(zygote, DV_ZYGOTE_PROBE, DVD_SESSION_ID(0), 0);
    if (error == 0)
        zygote->probing = true;
    return error;
}

/* Another zygote takes its place, which loads the drivers anew and looks for devices. */
static void renew(struct dvd_zygote *zygote)
{
    dv_info("no device was found: drivers are loaded anew");
    zygote->renewed = true;
    drop_socket(zygote);
    signal_zygote(zygote, SIGKILL); /* and at its end the next one is started */
}

bool dvd_zygote_is_ready(const struct dvd_zygote *zygote)
{
    const struct dvd_devices *devices = zygote->devices;

    if (zygote->fd < 0)
        return false;
    return (devices->known && devices->vendor_count > 0) || (!zygote->probing && !devices->had_some);
}

void dvd_zygote_refresh_devices(struct dvd_zygote *zygote)
{
    const struct dvd_devices *devices = zygote->devices;
    uint64_t pause_us = devices->had_some ? DV_PROBE_PAUSE_SHORT_US : DV_PROBE_PAUSE_US;

    if (zygote->fd < 0 || zygote->probing || (devices->known && devices->vendor_count > 0))
        return;
    if (!devices->known)
        dvd_zygote_request_probe(zygote);
    else if (now_us() - devices->probed_us >= pause_us)
        /* A driver may have come or become ready since the last probe, or there was no memory to load it. */
        renew(zygote);
}

/* ---- answers ---- */

static bool is_pidfd(int fd)
{
    return syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0 || errno == ESRCH || errno == EPERM;
}

static void take_forked(struct dvd_zygote *zygote, int *pidfd)
{
    const struct dv_zygote_answer *answer = &zygote->answer;

    if (*pidfd < 0 || !is_pidfd(*pidfd) || answer->pid <= 0) {
        dv_error("the zygote's answer for session %llu lacks a process: ignored", (unsigned long long)answer->session);
        zygote->events->fork_failed(zygote->owner, DVD_SESSION_ID(answer->session), -EPROTO,
                                    "the zygote named no process");
        return;
    }
    zygote->events->forked(zygote->owner, DVD_SESSION_ID(answer->session), answer->pid, pidfd);
    if (*pidfd >= 0) /* its program has left meanwhile */
        syscall(SYS_pidfd_send_signal, *pidfd, SIGKILL, NULL, 0);
}

static int on_look_again(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_zygote *zygote = userdata;

    (void)source;
    (void)usec;
    zygote->events->look_again(zygote->owner);
    return 0;
}

static void look_again(struct dvd_zygote *zygote)
{
    sd_event_source **timer = &zygote->restart_timer; /* the zygote runs, so this timer is free */

    *timer = sd_event_source_disable_unref(*timer);
    int error = sd_event_add_time_relative(zygote->event, timer, CLOCK_MONOTONIC, DV_PROBE_PAUSE_SHORT_US, 1 * DV_MS,
                                           on_look_again, zygote);
    if (error < 0) {
        dv_error("cannot set the timer for the next probe, probing now: %s", strerror(-error));
        zygote->events->look_again(zygote->owner);
    }
}

static void log_devices(const struct dvd_devices *devices)
{
    for (uint32_t i = 0; i < devices->count; i++)
        if (devices->reports[i].kind == DV_DEVICE_VENDOR)
            dv_info("device %u: %s (%s)", i, devices->reports[i].name, devices->reports[i].platform_name);
    if (devices->found > devices->vendor_count)
        dv_warning(
            "the vendors offer %u devices, and divvyd serves the first %u: the others are not offered to programs",
            devices->found, devices->vendor_count);
    if (devices->vendor_count == 0)
        dv_warning("no device: %s", devices->text);
}

static void take_probed(struct dvd_zygote *zygote)
{
    struct dvd_devices *devices = zygote->devices;

    zygote->probing = false;
    if (zygote->answer.unsandboxed && dvd_sandboxes_impossible(zygote->sandboxes, zygote->answer.text)) {
        dvd_zygote_request_probe(zygote);
        return;
    }
    dvd_sandboxes_probed(zygote->sandboxes, zygote->answer.device_count > 0);
    if (!dvd_devices_take(devices, &zygote->answer, now_us())) {
        dv_error("invalid answer from the probe: ignored");
        return;
    }
    log_devices(devices);
    if (devices->vendor_count == 0 && devices->had_some)
        look_again(zygote);
    zygote->events->probed(zygote->owner);
}

static void take_answer(struct dvd_zygote *zygote, int *pidfd)
{
    struct dv_zygote_answer *answer = &zygote->answer;

    dv_text_clean(answer->text, sizeof answer->text);
    switch (answer->event) {
    case DV_ZYGOTE_FORKED:
        take_forked(zygote, pidfd);
        return;
    case DV_ZYGOTE_FAILED:
        zygote->events->fork_failed(zygote->owner, DVD_SESSION_ID(answer->session), answer->status, answer->text);
        return;
    case DV_ZYGOTE_EXITED:
        zygote->events->exited(zygote->owner, DVD_SESSION_ID(answer->session), answer->pid, answer->status);
        return;
    case DV_ZYGOTE_PROBED:
        take_probed(zygote);
        return;
    case DV_ZYGOTE_TRIMMED:
        dvd_kernel_cache_trimmed(&zygote->sandboxes->caches, answer->session, answer->status,
                                 (uint64_t)answer->trimmed_kib << 10);
        return;
    default:
        dv_error("unknown event %u from the zygote: ignored", answer->event);
    }
}

/* Returns false when there is nothing more to read for now. */
static bool receive_answer(struct dvd_zygote *zygote)
{
    DV_AUTO_CLOSE int pidfd = -1;
    int fd_count;
    ssize_t length =
        dv_fd_receive(zygote->fd, &zygote->answer, sizeof zygote->answer, &pidfd, 1, &fd_count, MSG_DONTWAIT);

    if (fd_count == 0)
        pidfd = -1;
    if (length == -EAGAIN)
        return false;
    if (length == 0 || (length < 0 && length != -EMSGSIZE)) {
        zygote_lost(zygote); /* the end of the process is reported separately, and restarts it */
        if (!zygote->is_stopping)
            signal_zygote(zygote, SIGTERM);
        return false;
    }
    if (length < (ssize_t)offsetof(struct dv_zygote_answer, devices) || zygote->answer.magic != DV_WIRE_MAGIC ||
        zygote->answer.device_count > DV_MAX_DEVICES || (size_t)length != dv_zygote_answer_bytes(&zygote->answer)) {
        dv_error("a message of %zd bytes is no zygote message: ignored", length);
        return true;
    }
    take_answer(zygote, &pidfd);
    return zygote->fd >= 0;
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dvd_zygote *zygote = userdata;

    (void)source;
    (void)fd;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        for (int i = 0; i < DV_MAX_BATCH && receive_answer(zygote); i++)
            ;
    if (zygote->fd >= 0 && (events & EPOLLOUT))
        send_requests(zygote);
    return 0;
}

/* ---- life ---- */

void dvd_zygote_init(struct dvd_zygote *zygote)
{
    zygote->fd = zygote->pidfd = -1;
    zygote->launcher.fd = -1;
    dvd_worker_log_init(&zygote->log, "zygote", NULL);
}

/* Takes both descriptors over, if it succeeds. */
static int watch_zygote(struct dvd_zygote *zygote, pid_t pid, int *pidfd, int *socket_fd)
{

    int error = sd_event_add_io(zygote->event, &zygote->process, *pidfd, EPOLLIN, on_end, zygote);
    if (error >= 0)
        error = sd_event_add_io(zygote->event, &zygote->io, *socket_fd, EPOLLIN, on_io, zygote);
    if (error < 0) {
        zygote->process = sd_event_source_disable_unref(zygote->process);
        return error;
    }
    zygote->pid = pid;
    zygote->pidfd = dv_take_fd(pidfd);
    zygote->fd = dv_take_fd(socket_fd);
    zygote->generation++;
    zygote->started_us = now_us();
    zygote->probing = false;
    return 0;
}

int dvd_zygote_prepare(struct dvd_zygote *zygote)
{
    return dvd_launcher_start(&zygote->launcher, exec_zygote, zygote, !zygote->of_user);
}

int dvd_zygote_start(struct dvd_zygote *zygote)
{
    DV_AUTO_CLOSE int theirs = -1;
    DV_AUTO_CLOSE int ours = -1;
    DV_AUTO_CLOSE int log_fd = -1;
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    ours = pair[0];
    theirs = pair[1];
    if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    log_fd = dvd_worker_log_open(&zygote->log, zygote->event);
    if (log_fd < 0)
        return log_fd;

    DV_AUTO_CLOSE int pidfd = dvd_launcher_launch(&zygote->launcher, theirs, log_fd, &pid);
    if (pidfd < 0)
        return pidfd;
    int error = watch_zygote(zygote, pid, &pidfd, &ours);
    if (error < 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return error;
    }
    dv_debug("zygote %d started from %s", pid, zygote->worker_path);
    return dvd_zygote_request_probe(zygote);
}

/* ---- the zygote of an earlier daemon ---- */

static void mix(uint64_t *hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *hash = (*hash ^ ((const uint8_t *)data)[i]) * UINT64_C(1099511628211);
}

static void mix_file(uint64_t *hash, const char *path)
{
    struct stat info = {0};

    if (path && stat(path, &info) == 0) {
        mix(hash, &info.st_dev, sizeof info.st_dev);
        mix(hash, &info.st_ino, sizeof info.st_ino);
        mix(hash, &info.st_size, sizeof info.st_size);
        mix(hash, &info.st_mtim, sizeof info.st_mtim);
    }
    mix(hash, "", 1);
}

static void mix_text(uint64_t *hash, const char *path)
{
    DV_AUTO_CLOSE int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    char data[4096];
    ssize_t length;

    while (fd >= 0 && (length = read(fd, data, sizeof data)) > 0)
        mix(hash, data, (size_t)length);
    mix(hash, "", 1);
}

uint64_t dvd_zygote_identity(const struct dvd_zygote *zygote)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    DV_AUTO_FREE char **environment = build_environment(zygote);

    mix(&hash, DIVVY_VERSION, sizeof DIVVY_VERSION);
    mix(&hash, zygote->worker_path, strlen(zygote->worker_path) + 1);
    mix_file(&hash, zygote->worker_path);
    mix_text(&hash, zygote->config_path); /* it may name drivers */
    mix_file(&hash, DV_VENDORS_PUBLIC);
    mix_file(&hash, "/etc/ld.so.cache"); /* a new driver: the zygote has loaded the old one */
    const char *vendors = getenv("DIVVY_VENDORS");
    mix(&hash, vendors ? vendors : "", vendors ? strlen(vendors) : 0);
    for (size_t i = 0; environment && environment[i]; i++)
        mix(&hash, environment[i], strlen(environment[i]) + 1);
    return hash;
}

int dvd_zygote_adopt(struct dvd_zygote *zygote, pid_t pid, int *pidfd, int *socket_fd, int *log_fd)
{
    struct pollfd ended = {.fd = *pidfd, .events = POLLIN};

    if (pid <= 0 || *pidfd < 0 || *socket_fd < 0 || *log_fd < 0 || !is_pidfd(*pidfd) || poll(&ended, 1, 0) != 0)
        return -ESRCH;
    int error = dvd_worker_log_adopt(&zygote->log, zygote->event, log_fd);
    if (error == 0)
        error = watch_zygote(zygote, pid, pidfd, socket_fd);
    zygote->adopted = error >= 0;
    return error;
}

void dvd_zygote_stop(struct dvd_zygote *zygote)
{
    zygote->is_stopping = true;
    drop_socket(zygote);
}

void dvd_zygote_fini(struct dvd_zygote *zygote)
{
    struct dvd_zygote_request *request, *next;

    drop_socket(zygote);
    dvd_worker_log_close(&zygote->log);
    zygote->process = sd_event_source_disable_unref(zygote->process);
    zygote->restart_timer = sd_event_source_disable_unref(zygote->restart_timer);
    if (zygote->pid > 0) {
        struct pollfd ended = {.fd = zygote->pidfd, .events = POLLIN};
        signal_zygote(zygote, SIGKILL);
        poll(&ended, 1, DV_STOP_TIMEOUT_US / DV_MS);
        waitid(P_PIDFD, (id_t)zygote->pidfd, &(siginfo_t){0}, WEXITED | WNOHANG);
        zygote->pid = 0;
    }
    dv_close_fd(&zygote->pidfd);
    DL_FOREACH_SAFE (zygote->requests, request, next) {
        DL_DELETE(zygote->requests, request);
        free(request);
    }
}
