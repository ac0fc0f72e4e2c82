/* The zygote as divvyd sees it (see zygote.h). Nothing here waits: what the socket does not take at
 * once is queued as an errand, at most one for each session and one probe. */
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

#include "src/arbiter/restart/restore_all.h"
#include "src/arbiter/arbiter.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/workers/icd_directory.h"
#include "src/base/cleanup.h"
#include "src/base/fd.h"
#include "src/base/text.h"
#include "src/worker/core/zygote.h"

struct dv_zygote_errand {
    enum dv_zygote_op op;
    uint64_t session;
    uid_t uid; /* whose it is */
    struct dv_zygote_errand *prev, *next;
};

static int on_restart(sd_event_source *source, uint64_t usec, void *userdata);

static void signal_zygote(const struct dv_zygote *zygote, int number)
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

/* What reaches a worker, where a tenant's native code can read it: how programs find each other and
 * speak, and what drivers and their tools are told by variables. Not among it: what speaks to a
 * tenant's client library or belongs to divvyd. */
static bool is_for_workers(const char *entry)
{
    static const char *const ours[] = {
        "PATH=",  "LANG=",  "LC_",       "TZ=",        "LD_",      "POCL_",  "CUDA_", "NVIDIA_",
        "HSA_",   "ROC",    "AMD_",      "GPU_",       "HIP_",     "NEO",    "ZE_",   "ONEAPI_",
        "SYCL_",  "IGC_",   "MESA_",     "RUSTICL_",   "GALLIUM_", "CL_",    "OCL_",  "OMP_",
        "ASAN_",  "UBSAN_", "TSAN_",     "LSAN_",      "MALLOC_",  "GLIBC_", "DIVVY_VENDOR_",
        "HOME=",  "XDG_CACHE_HOME=", "DIVVY_TEST_", NULL};
    static const char *const not_ours[] = {"OCL_ICD_", NULL};

    return begins_with_one_of(entry, ours) && !begins_with_one_of(entry, not_ours);
}

/* The environment of zygote and workers; one allocation holds it all. */
static char **build_environment(const struct dv_arbiter *arbiter)
{
    size_t count = 0;
    size_t text_bytes = 64 + sizeof arbiter->vendors_directory;

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
    sprintf(text, "OCL_ICD_VENDORS=%s", arbiter->vendors_directory);
    variables[used] = NULL;
    return variables;
}

/* In a process that the launcher has forked. */
static void exec_zygote(const void *argument, int socket_fd, int log_fd)
{
    const struct dv_arbiter *arbiter = argument;
    char *const arguments[] = {(char *)"divvy-worker",
                               (char *)(arbiter->options.user ? "--zygote" : "--system-zygote"), NULL};
    char *const *environment = build_environment(arbiter);
    sigset_t none;

    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* A terminal's interrupt is for divvyd, which ends its workers in order. Not a session of its
     * own: the kernel would weigh all workers together against all tenants. */
    setpgid(0, 0);
    /* Were one of its workers stopped when divvyd ends, the kernel would hang up all of the group. */
    signal(SIGHUP, SIG_IGN);

    int null_fd = open("/dev/null", O_RDONLY);
    if (null_fd >= 0)
        dup2(null_fd, STDIN_FILENO);
    dup2(log_fd, STDERR_FILENO);
    dup2(log_fd, STDOUT_FILENO); /* what a driver prints belongs in the log */
    if (socket_fd == DV_ZYGOTE_SOCKET_FD)
        fcntl(socket_fd, F_SETFD, 0);
    else
        dup2(socket_fd, DV_ZYGOTE_SOCKET_FD);
    syscall(SYS_close_range, DV_ZYGOTE_SOCKET_FD + 1, ~0U, 0);
    if (environment)
        execve(arbiter->worker_path, arguments, environment);
    dv_error("cannot execute %s: %s", arbiter->worker_path, strerror(errno));
    _exit(127);
}

/* ---- when it ends ---- */

/* Only its parent knows how a process ended, and that may have been an earlier daemon. */
static void describe_status(char *text, size_t bytes, int pidfd)
{
    siginfo_t info = {0};

    if (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0) {
        snprintf(text, bytes, "how is not known");
        return;
    }
    const char *name = info.si_code == CLD_EXITED ? NULL : sigabbrev_np(info.si_status);
    if (info.si_code == CLD_EXITED)
        snprintf(text, bytes, "exit code %d", info.si_status);
    else
        snprintf(text, bytes, "signal %d (SIG%s)", info.si_status, name ? name : "?");
}

static void schedule_restart(struct dv_arbiter *arbiter)
{
    struct dv_zygote *zygote = &arbiter->zygote;
    uint64_t lived_us = dv_arbiter_now(arbiter) - zygote->started_us;

    if (lived_us >= DV_ZYGOTE_HEALTHY_US)
        zygote->pause_us = 0;
    uint64_t pause_us = zygote->pause_us;
    zygote->pause_us = pause_us ? pause_us * 2 : DV_ZYGOTE_PAUSE_MIN_US;
    if (zygote->pause_us > DV_ZYGOTE_PAUSE_MAX_US)
        zygote->pause_us = DV_ZYGOTE_PAUSE_MAX_US;
    zygote->restart_timer = sd_event_source_disable_unref(zygote->restart_timer);
    int error = sd_event_add_time_relative(arbiter->event, &zygote->restart_timer, CLOCK_MONOTONIC,
                                           pause_us, 1 * DV_MS, on_restart, arbiter);
    if (error < 0)
        dv_error("cannot restart the zygote: %s", strerror(-error));
}

static void drop_socket(struct dv_zygote *zygote)
{
    zygote->io = sd_event_source_disable_unref(zygote->io);
    if (zygote->fd >= 0)
        close(zygote->fd);
    zygote->fd = -1;
    zygote->probing = false;
}

/* Both the end of the socket and the end of the process lead here, in either order. */
static void zygote_lost(struct dv_arbiter *arbiter)
{
    drop_socket(&arbiter->zygote);
    dv_sessions_zygote_lost(arbiter);
}

static int on_end(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dv_arbiter *arbiter = userdata;
    struct dv_zygote *zygote = &arbiter->zygote;
    char how[64];

    (void)source;
    (void)events;
    describe_status(how, sizeof how, fd);
    zygote->pid = 0;
    zygote->process = sd_event_source_disable_unref(zygote->process);
    dv_close_fd(&zygote->pidfd);
    if (arbiter->stopping) {
        drop_socket(zygote);
        sd_event_exit(arbiter->event, 0);
        return 0;
    }
    if (!zygote->renewed)
        dv_error("the zygote has ended (%s); it is started again, running sessions go on", how);
    zygote->renewed = false;
    zygote_lost(arbiter);
    schedule_restart(arbiter);
    return 0;
}

static int on_restart(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dv_arbiter *arbiter = userdata;

    (void)source;
    (void)usec;
    if (arbiter->stopping || arbiter->zygote.fd >= 0)
        return 0;
    int error = dv_zygote_start(arbiter);
    if (error < 0) {
        dv_error("cannot start the zygote: %s%s", strerror(-error),
                 error == -EPIPE ? "; the process that starts it is gone: restart divvyd, running "
                                   "programs go on"
                                 : "");
        schedule_restart(arbiter);
        return 0;
    }
    dv_keeper_put_daemon(arbiter);
    dv_sessions_advance(arbiter);
    return 0;
}

/* ---- requests ---- */

/* Sends one errand. Returns 0 when it is done with, also where it has become pointless; -EAGAIN
 * when the socket is full. */
static int send_errand(struct dv_arbiter *arbiter, const struct dv_zygote_errand *errand)
{
    struct dv_zygote_request request = {.magic = DV_WIRE_MAGIC, .op = (uint32_t)errand->op};
    int fds[5] = {-1, -1, -1, -1, -1};
    int fd_count = 0;
    struct dv_session *session = NULL;
    DV_AUTO_CLOSE int cache_fd = -1;

    if (errand->op == DV_ZYGOTE_FORK) {
        session = dv_session_find(arbiter, errand->session);
        if (!session || !dv_session_fill_request(session, &request, fds))
            return 0;
        cache_fd = fds[4];
        fd_count = cache_fd < 0 ? 4 : 5;
    } else if (errand->op == DV_ZYGOTE_SWEEP) {
        cache_fd = fds[0] = dv_cages_next_sweep(arbiter, &request);
        fds[1] = arbiter->cages.caches_fd;
        fd_count = request.op == DV_ZYGOTE_REMOVE ? 2 : 1;
        if (cache_fd < 0)
            return 0;
    } else {
        cache_fd = fds[0] = dv_cages_fill(arbiter, NULL, &request.cage);
        fd_count = cache_fd < 0 ? 0 : 1;
    }
    int error = dv_fd_send(arbiter->zygote.fd, &request, dv_zygote_request_bytes(&request), fds,
                           fd_count);
    if (error == 0 || error == -EAGAIN) {
        if (error == 0 && session)
            dv_session_request_sent(session);
        return error;
    }
    if (error == -EPIPE || error == -ECONNRESET)
        return -EAGAIN; /* its end is noticed elsewhere; the errand is for its successor */
    dv_error("cannot ask the zygote: %s", strerror(-error));
    if (session)
        dv_session_fork_failed(session, error, "the request could not be sent");
    else if (errand->op == DV_ZYGOTE_PROBE)
        arbiter->zygote.probing = false;
    return 0;
}

/* Never two of one user while another waits. */
static struct dv_zygote_errand *next_errand(const struct dv_zygote *zygote)
{
    struct dv_zygote_errand *errand;

    DL_FOREACH (zygote->errands, errand)
        if (errand->op != DV_ZYGOTE_FORK || errand->uid != zygote->last_uid)
            return errand;
    return zygote->errands;
}

static void send_errands(struct dv_arbiter *arbiter)
{
    struct dv_zygote *zygote = &arbiter->zygote;

    while (zygote->errands) {
        struct dv_zygote_errand *errand = next_errand(zygote);
        if (send_errand(arbiter, errand) == -EAGAIN)
            break;
        if (errand->op == DV_ZYGOTE_FORK)
            zygote->last_uid = errand->uid;
        DL_DELETE(zygote->errands, errand);
        zygote->errand_count--;
        free(errand);
    }
    if (zygote->io)
        sd_event_source_set_io_events(zygote->io, EPOLLIN | (zygote->errands ? EPOLLOUT : 0));
}

static int add_errand(struct dv_arbiter *arbiter, enum dv_zygote_op op, uint64_t session, uid_t uid)
{
    struct dv_zygote *zygote = &arbiter->zygote;
    struct dv_zygote_errand *errand =
        zygote->errand_count < DV_LIMIT_ZYGOTE_ERRANDS ? malloc(sizeof *errand) : NULL;

    if (!errand)
        return -ENOMEM;
    zygote->errand_count++;
    *errand = (struct dv_zygote_errand){.op = op, .session = session, .uid = uid};
    DL_APPEND(zygote->errands, errand);
    if (zygote->fd >= 0)
        send_errands(arbiter);
    return 0;
}

int dv_zygote_request_fork(struct dv_arbiter *arbiter, uint64_t session, uid_t uid)
{
    return add_errand(arbiter, DV_ZYGOTE_FORK, session, uid);
}

void dv_zygote_request_sweep(struct dv_arbiter *arbiter)
{
    if (arbiter->zygote.fd >= 0)
        add_errand(arbiter, DV_ZYGOTE_SWEEP, 0, 0);
}

int dv_zygote_request_probe(struct dv_arbiter *arbiter)
{
    if (arbiter->zygote.probing || arbiter->zygote.fd < 0)
        return 0; /* a new zygote begins with a probe */
    int error = add_errand(arbiter, DV_ZYGOTE_PROBE, 0, 0);
    if (error == 0)
        arbiter->zygote.probing = true;
    return error;
}

void dv_zygote_renew(struct dv_arbiter *arbiter)
{
    dv_info("no device was found: drivers are loaded anew");
    arbiter->zygote.renewed = true;
    drop_socket(&arbiter->zygote);
    signal_zygote(&arbiter->zygote, SIGKILL); /* and at its end the next one is started */
}

/* ---- answers ---- */

static bool is_pidfd(int fd)
{
    return syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0 || errno == ESRCH || errno == EPERM;
}

static void take_forked(struct dv_arbiter *arbiter, struct dv_session *session, int *pidfd)
{
    const struct dv_zygote_answer *answer = &arbiter->zygote.answer;

    if (*pidfd < 0 || !is_pidfd(*pidfd) || answer->pid <= 0) {
        dv_error("the zygote's answer for session %llu lacks a process: ignored",
                 (unsigned long long)answer->session);
        if (session)
            dv_session_fork_failed(session, -EPROTO, "the zygote named no process");
        return;
    }
    if (!session) { /* its tenant has left meanwhile */
        syscall(SYS_pidfd_send_signal, *pidfd, SIGKILL, NULL, 0);
        return;
    }
    dv_session_forked(session, answer->pid, dv_take_fd(pidfd));
}

static int on_look_again(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source;
    (void)usec;
    dv_sessions_advance(userdata); /* if any waits for a device */
    return 0;
}

static void look_again(struct dv_arbiter *arbiter)
{
    sd_event_source **timer = &arbiter->zygote.restart_timer; /* it runs, so that is free */

    *timer = sd_event_source_disable_unref(*timer);
    int error = sd_event_add_time_relative(arbiter->event, timer, CLOCK_MONOTONIC, DV_PROBE_PAUSE_SHORT_US,
                                           1 * DV_MS, on_look_again, arbiter);
    if (error < 0) {
        dv_error("cannot look for devices later, so now: %s", strerror(-error));
        dv_sessions_advance(arbiter);
    }
}

static void take_probed(struct dv_arbiter *arbiter)
{
    arbiter->zygote.probing = false;
    if (arbiter->zygote.answer.uncaged && dv_cages_impossible(arbiter, arbiter->zygote.answer.text)) {
        dv_zygote_request_probe(arbiter);
        return;
    }
    dv_cages_probed(arbiter, arbiter->zygote.answer.device_count > 0);
    if (!dv_devices_take(&arbiter->devices, &arbiter->zygote.answer, dv_arbiter_now(arbiter))) {
        dv_error("the probe's answer makes no sense: ignored");
        return;
    }
    dv_arbiter_devices_changed(arbiter);
    for (uint32_t i = 0; i < arbiter->devices.count; i++)
        dv_info("device %u: %s (%s)", i, arbiter->devices.reports[i].name,
                arbiter->devices.reports[i].platform_name);
    if (arbiter->devices.found > arbiter->devices.count)
        dv_warning("the vendors offer %u devices, and divvyd serves the first %u: the others are not "
                   "offered to programs",
                   arbiter->devices.found, arbiter->devices.count);
    if (arbiter->devices.count == 0)
        dv_warning("no device: %s", arbiter->devices.text);
    if (arbiter->devices.count == 0 && arbiter->devices.had_some)
        look_again(arbiter);
    dv_adopt_note_devices(arbiter);
    dv_sessions_advance(arbiter);
}

static void take_answer(struct dv_arbiter *arbiter, int *pidfd)
{
    struct dv_zygote_answer *answer = &arbiter->zygote.answer;
    struct dv_session *session = dv_session_find(arbiter, answer->session);

    dv_text_clean(answer->text, sizeof answer->text);
    switch (answer->event) {
    case DV_ZYGOTE_FORKED:
        take_forked(arbiter, session, pidfd);
        return;
    case DV_ZYGOTE_FAILED:
        if (session)
            dv_session_fork_failed(session, answer->status, answer->text);
        return;
    case DV_ZYGOTE_EXITED:
        if (session)
            dv_session_worker_exited(session, answer->pid, answer->status);
        return;
    case DV_ZYGOTE_PROBED:
        take_probed(arbiter);
        return;
    case DV_ZYGOTE_SWEPT:
        dv_cages_swept(arbiter, answer->session, answer->status, (uint64_t)answer->swept_kib << 10);
        return;
    default:
        dv_error("the zygote speaks of an unknown event %u: ignored", answer->event);
    }
}

/* Returns false when there is nothing more to read for now. */
static bool receive_answer(struct dv_arbiter *arbiter)
{
    struct dv_zygote *zygote = &arbiter->zygote;
    DV_AUTO_CLOSE int pidfd = -1;
    int fd_count;
    ssize_t length = dv_fd_receive(zygote->fd, &zygote->answer, sizeof zygote->answer, &pidfd, 1,
                                   &fd_count, MSG_DONTWAIT);

    if (fd_count == 0)
        pidfd = -1;
    if (length == -EAGAIN)
        return false;
    if (length == 0 || (length < 0 && length != -EMSGSIZE)) {
        zygote_lost(arbiter); /* the end of the process is reported apart, and restarts it */
        if (!arbiter->stopping)
            signal_zygote(zygote, SIGTERM);
        return false;
    }
    if (length < (ssize_t)offsetof(struct dv_zygote_answer, devices) ||
        zygote->answer.magic != DV_WIRE_MAGIC || zygote->answer.device_count > DV_MAX_DEVICES ||
        (size_t)length != dv_zygote_answer_bytes(&zygote->answer)) {
        dv_error("a message of %zd bytes is none of the zygote's: ignored", length);
        return true;
    }
    take_answer(arbiter, &pidfd);
    return zygote->fd >= 0;
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dv_arbiter *arbiter = userdata;

    (void)source;
    (void)fd;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        for (int i = 0; i < DV_LIMIT_BATCH && receive_answer(arbiter); i++)
            ;
    if (arbiter->zygote.fd >= 0 && (events & EPOLLOUT))
        send_errands(arbiter);
    return 0;
}

/* ---- life ---- */

void dv_zygote_init(struct dv_zygote *zygote)
{
    *zygote = (struct dv_zygote){.fd = -1, .pidfd = -1};
    dv_worker_log_init(&zygote->log, "zygote", NULL);
}

/* Takes both descriptors over, if it succeeds. */
static int watch_zygote(struct dv_arbiter *arbiter, pid_t pid, int *pidfd, int *socket_fd)
{
    struct dv_zygote *zygote = &arbiter->zygote;

    int error = sd_event_add_io(arbiter->event, &zygote->process, *pidfd, EPOLLIN, on_end, arbiter);
    if (error >= 0)
        error = sd_event_add_io(arbiter->event, &zygote->io, *socket_fd, EPOLLIN, on_io, arbiter);
    if (error < 0) {
        zygote->process = sd_event_source_disable_unref(zygote->process);
        return error;
    }
    zygote->pid = pid;
    zygote->pidfd = dv_take_fd(pidfd);
    zygote->fd = dv_take_fd(socket_fd);
    zygote->generation++;
    zygote->started_us = dv_arbiter_now(arbiter);
    zygote->probing = false;
    return 0;
}

int dv_zygote_prepare(struct dv_arbiter *arbiter)
{
    return dv_launcher_start(&arbiter->launcher, exec_zygote, arbiter, !arbiter->options.user);
}

int dv_zygote_start(struct dv_arbiter *arbiter)
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
    log_fd = dv_worker_log_open(&arbiter->zygote.log, arbiter->event);
    if (log_fd < 0)
        return log_fd;

    DV_AUTO_CLOSE int pidfd = dv_launcher_launch(&arbiter->launcher, theirs, log_fd, &pid);
    if (pidfd < 0)
        return pidfd;
    int error = watch_zygote(arbiter, pid, &pidfd, &ours);
    if (error < 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return error;
    }
    dv_debug("zygote %d started from %s", pid, arbiter->worker_path);
    return dv_zygote_request_probe(arbiter);
}

/* ---- that of an earlier daemon ---- */

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

uint64_t dv_zygote_identity(const struct dv_arbiter *arbiter)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    DV_AUTO_FREE char **environment = build_environment(arbiter);

    mix(&hash, DIVVY_VERSION, sizeof DIVVY_VERSION);
    mix(&hash, arbiter->worker_path, strlen(arbiter->worker_path) + 1);
    mix_file(&hash, arbiter->worker_path);
    mix_text(&hash, arbiter->config_path); /* it may name drivers */
    mix_file(&hash, DV_VENDORS_PUBLIC);
    const char *vendors = getenv("DIVVY_VENDORS");
    mix(&hash, vendors ? vendors : "", vendors ? strlen(vendors) : 0);
    for (size_t i = 0; environment && environment[i]; i++)
        mix(&hash, environment[i], strlen(environment[i]) + 1);
    return hash;
}

int dv_zygote_adopt(struct dv_arbiter *arbiter, pid_t pid, int *pidfd, int *socket_fd, int *log_fd)
{
    struct dv_zygote *zygote = &arbiter->zygote;
    struct pollfd ended = {.fd = *pidfd, .events = POLLIN};

    if (pid <= 0 || *pidfd < 0 || *socket_fd < 0 || *log_fd < 0 || !is_pidfd(*pidfd) ||
        poll(&ended, 1, 0) != 0)
        return -ESRCH;
    int error = dv_worker_log_adopt(&zygote->log, arbiter->event, log_fd);
    if (error == 0)
        error = watch_zygote(arbiter, pid, pidfd, socket_fd);
    zygote->adopted = error >= 0;
    return error;
}

void dv_zygote_stop(struct dv_arbiter *arbiter)
{
    drop_socket(&arbiter->zygote);
}

void dv_zygote_fini(struct dv_arbiter *arbiter)
{
    struct dv_zygote *zygote = &arbiter->zygote;
    struct dv_zygote_errand *errand, *next;

    drop_socket(zygote);
    dv_worker_log_close(&zygote->log);
    zygote->process = sd_event_source_disable_unref(zygote->process);
    zygote->restart_timer = sd_event_source_disable_unref(zygote->restart_timer);
    if (zygote->pid > 0) {
        struct pollfd ended = {.fd = zygote->pidfd, .events = POLLIN};
        signal_zygote(zygote, SIGKILL);
        poll(&ended, 1, DV_LIMIT_STOP_US / DV_MS);
        waitid(P_PIDFD, (id_t)zygote->pidfd, &(siginfo_t){0}, WEXITED | WNOHANG);
        zygote->pid = 0;
    }
    dv_close_fd(&zygote->pidfd);
    DL_FOREACH_SAFE(zygote->errands, errand, next)
    {
        DL_DELETE(zygote->errands, errand);
        free(errand);
    }
}
