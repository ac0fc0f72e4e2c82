/* Putting divvyd together, its signals, and its end (see arbiter.h). */
#include "src/arbiter/arbiter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/restart/restore_all.h"
#include "src/arbiter/system/rights.h"
#include "src/arbiter/workers/icd_directory.h"
#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/priority.h"
#include "src/base/usage_journal.h"

/* ---- the end ---- */

static void on_idle(void *owner)
{
    struct dvd_arbiter *arbiter = owner;

    dv_info("no session for %u s: ending", arbiter->options.idle_exit_s);
    dvd_arbiter_stop(arbiter, false);
}

/* All sessions are gone: stop the zygote. When it has ended, the event loop ends. */
static void finish_stop(struct dvd_arbiter *arbiter)
{
    dvd_keeper_quit(&arbiter->keeper); /* it has a copy of the zygote's socket */
    dvd_zygote_stop(&arbiter->zygote);
    if (arbiter->zygote.pid == 0)
        sd_event_exit(arbiter->event, 0);
}

static void start_stop_timer(struct dvd_arbiter *arbiter);

static int on_stop_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_arbiter *arbiter = userdata;

    (void)source;
    (void)usec;
    if (arbiter->sessions.all) {
        dv_warning("%u workers did not end when asked: killed", HASH_COUNT(arbiter->sessions.all));
        start_stop_timer(arbiter); /* for the zygote, which is next */
        dvd_sessions_stop(&arbiter->sessions, SIGKILL);
        dvd_sessions_forget(&arbiter->sessions);
        return 0;
    }
    sd_event_exit(arbiter->event, 0); /* the zygote does not end: it is killed at the very end */
    return 0;
}

static void start_stop_timer(struct dvd_arbiter *arbiter)
{
    arbiter->stop_timer = sd_event_source_disable_unref(arbiter->stop_timer);
    int error = sd_event_add_time_relative(arbiter->event, &arbiter->stop_timer, CLOCK_MONOTONIC, DV_STOP_TIMEOUT_US,
                                           10 * DV_MS, on_stop_deadline, arbiter);
    if (error < 0)
        sd_event_exit(arbiter->event, 1);
}

void dvd_arbiter_stop(struct dvd_arbiter *arbiter, bool leave_workers)
{
    if (arbiter->is_stopping)
        return;
    arbiter->is_stopping = arbiter->sessions.is_stopping = arbiter->zygote.is_stopping = arbiter->keeper.is_ending =
        true;
    arbiter->leaves_workers = leave_workers;
    sd_notify(0, "STOPPING=1");
    if (leave_workers) { /* the state file and the keeper have all that the next daemon needs */
        sd_event_exit(arbiter->event, 0);
        return;
    }
    dvd_listener_fini(&arbiter->listener);
    dvd_control_fini(&arbiter->control);
    dvd_idle_fini(&arbiter->idle);
    start_stop_timer(arbiter);
    if (arbiter->sessions.all)
        dvd_sessions_stop(&arbiter->sessions, SIGTERM);
    else
        finish_stop(arbiter);
}

/* ---- the ledger ---- */

static void on_tenant_freed(void *owner, const struct dvd_tenant *tenant)
{
    struct dvd_arbiter *arbiter = owner;

    dvd_listings_tenant_goes(&arbiter->control, tenant);
}

static const struct dvd_ledger_events ledger_events = {.send = dvd_session_send,
                                                       .is_stopped = dvd_session_is_stopped,
                                                       .overdue = dvd_session_overdue,
                                                       .unanswered = dvd_session_unanswered,
                                                       .turned_away = dvd_session_turned_away,
                                                       .tenant_freed = on_tenant_freed};

void dvd_arbiter_devices_changed(struct dvd_arbiter *arbiter)
{
    struct dvd_device_terms terms[DV_MAX_DEVICES];

    dvd_devices_terms(&arbiter->devices, &arbiter->config, terms);
    dvd_ledger_set_devices(&arbiter->ledger, terms, arbiter->devices.count);
}

/* ---- sessions ---- */

static void on_session_freed(void *owner, const struct dvd_session *session)
{
    struct dvd_arbiter *arbiter = owner;

    dvd_listings_session_goes(&arbiter->control, session);
}

static void on_no_session_left(void *owner)
{
    struct dvd_arbiter *arbiter = owner;

    if (arbiter->is_stopping)
        finish_stop(arbiter);
}

/* The line that `systemctl status` shows. */
static int on_status_due(sd_event_source *source, uint64_t usec, void *userdata)
{
    const struct dvd_arbiter *arbiter = userdata;
    unsigned sessions = HASH_COUNT(arbiter->sessions.all), devices = arbiter->devices.count;

    (void)source;
    (void)usec;
    sd_notifyf(0, "STATUS=%u session%s on %u device%s", sessions, sessions == 1 ? "" : "s", devices,
               devices == 1 ? "" : "s");
    return 0;
}

/* Sessions come and go many times a second. */
static void on_number_changed(void *owner)
{
    struct dvd_arbiter *arbiter = owner;
    int enabled = SD_EVENT_OFF;

    if (!arbiter->status_timer ||
        (sd_event_source_get_enabled(arbiter->status_timer, &enabled) >= 0 && enabled != SD_EVENT_OFF))
        return;
    sd_event_source_set_time_relative(arbiter->status_timer, DV_STATUS_DELAY_US);
    sd_event_source_set_enabled(arbiter->status_timer, SD_EVENT_ONESHOT);
}

static const struct dvd_session_events session_events = {
    .freed = on_session_freed, .none_left = on_no_session_left, .number_changed = on_number_changed};

/* ---- the keeper ---- */

static void fill_daemon(const struct dvd_arbiter *arbiter, int fds[DV_KEPT_KINDS])
{
    const struct dvd_zygote *zygote = &arbiter->zygote;

    if (!arbiter->listener.activated) /* the service manager keeps those */
        fds[DV_KEPT_SESSION_SOCKET] = arbiter->listener.fd;
    if (!arbiter->control.activated)
        fds[DV_KEPT_CONTROL_SOCKET] = arbiter->control.fd;
    if (zygote->fd < 0)
        return;
    fds[DV_KEPT_ZYGOTE] = zygote->pidfd;
    fds[DV_KEPT_ZYGOTE_SOCKET] = zygote->fd;
    fds[DV_KEPT_ZYGOTE_LOG] = zygote->log.fd;
}

static bool on_fill_kept(void *owner, uint64_t id, int fds[DV_KEPT_KINDS])
{
    struct dvd_arbiter *arbiter = owner;
    const struct dvd_session *session =
        id == DV_KEEPER_DAEMON ? NULL : dvd_session_find(&arbiter->sessions, DVD_SESSION_ID(id));

    if (id == DV_KEEPER_DAEMON)
        fill_daemon(arbiter, fds);
    return id == DV_KEEPER_DAEMON || (session && dvd_session_fill_kept(session, fds));
}

static bool on_is_known(void *owner, uint64_t session)
{
    struct dvd_arbiter *arbiter = owner;

    return dvd_session_find(&arbiter->sessions, DVD_SESSION_ID(session)) != NULL;
}

static void on_put_all(void *owner)
{
    struct dvd_arbiter *arbiter = owner;

    for (struct dvd_session *session = arbiter->sessions.all; session; session = session->hh.next)
        dvd_keeper_put(&arbiter->keeper, session->lessee.id.value);
}

static const struct dvd_keeper_events keeper_events = {
    .fill = on_fill_kept, .is_known = on_is_known, .put_all = on_put_all};

/* ---- sandboxes ---- */

static void on_bounds_changed(void *owner)
{
    struct dvd_arbiter *arbiter = owner;

    for (struct dvd_session *session = arbiter->sessions.all; session; session = session->hh.next) {
        struct dvd_sandbox_processes processes = dvd_session_processes(session);
        dvd_sandbox_bound_again(&arbiter->sandboxes, &session->sandbox, &processes);
    }
}

static void on_trim_wanted(void *owner)
{
    struct dvd_arbiter *arbiter = owner;

    dvd_zygote_request_trim(&arbiter->zygote);
}

static const struct dvd_sandbox_events sandbox_events = {.bounds_changed = on_bounds_changed,
                                                         .trim_wanted = on_trim_wanted};

/* ---- the zygote ---- */

static struct dvd_session *find_session(void *owner, struct dvd_session_id id)
{
    return dvd_session_find(&((struct dvd_arbiter *)owner)->sessions, id);
}

static bool on_fill_fork(void *owner, struct dvd_session_id id, struct dv_zygote_request *request,
                         int fds[DV_ZYGOTE_FDS])
{
    struct dvd_session *session = find_session(owner, id);

    return session && dvd_session_fill_fork(session, request, fds);
}

static void on_fork_sent(void *owner, struct dvd_session_id id)
{
    struct dvd_session *session = find_session(owner, id);

    if (session)
        dvd_session_fork_sent(session);
}

static void on_forked(void *owner, struct dvd_session_id id, pid_t pid, int *pidfd)
{
    struct dvd_session *session = find_session(owner, id);

    if (session)
        dvd_session_forked(session, pid, dv_take_fd(pidfd));
}

static void on_fork_failed(void *owner, struct dvd_session_id id, int error, const char *text)
{
    struct dvd_session *session = find_session(owner, id);

    if (session)
        dvd_session_fork_failed(session, error, text);
}

static void on_exited(void *owner, struct dvd_session_id id, pid_t pid, int status)
{
    struct dvd_session *session = find_session(owner, id);

    if (session)
        dvd_session_worker_exited(session, pid, status);
}

/* For the next daemon. The identity is 0 while the list is written: a daemon that finds 0 starts its own zygote. */
static void note_devices(struct dvd_arbiter *arbiter)
{
    struct dv_state_header *header = arbiter->state.header;
    const struct dvd_devices *devices = &arbiter->devices;

    if (!header)
        return;
    header->zygote_identity = 0;
    dvd_restore_note_devices(&arbiter->state, devices->reports, devices->count, devices->found);
    header->unsandboxed = arbiter->sandboxes.off;
    header->zygote_pid = arbiter->zygote.pid;
    /* if no device was found, the next daemon looks again */
    header->zygote_identity = devices->vendor_count ? dvd_zygote_identity(&arbiter->zygote) : 0;
}

static void on_probed(void *owner)
{
    struct dvd_arbiter *arbiter = owner;

    dvd_devices_add_lease_only(&arbiter->devices, &arbiter->config);
    dvd_arbiter_devices_changed(arbiter);
    note_devices(arbiter);
    dvd_sessions_advance(&arbiter->sessions);
}

static void on_look_again(void *owner)
{
    dvd_sessions_advance(&((struct dvd_arbiter *)owner)->sessions);
}

static void on_zygote_lost(void *owner)
{
    struct dvd_arbiter *arbiter = owner;

    dvd_sessions_forks_lost(&arbiter->sessions);
    dvd_sessions_exits_lost(&arbiter->sessions);
}

static void on_zygote_started(void *owner)
{
    struct dvd_arbiter *arbiter = owner;

    dvd_keeper_put(&arbiter->keeper, DV_KEEPER_DAEMON);
    dvd_sessions_advance(&arbiter->sessions);
}

static void on_zygote_ended(void *owner)
{
    sd_event_exit(((struct dvd_arbiter *)owner)->event, 0);
}

static const struct dvd_zygote_events zygote_events = {.fill_fork = on_fill_fork,
                                                       .fork_sent = on_fork_sent,
                                                       .forked = on_forked,
                                                       .fork_failed = on_fork_failed,
                                                       .exited = on_exited,
                                                       .probed = on_probed,
                                                       .look_again = on_look_again,
                                                       .lost = on_zygote_lost,
                                                       .started = on_zygote_started,
                                                       .ended = on_zygote_ended};

/* ---- signals ---- */

static int on_end_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
    struct dvd_arbiter *arbiter = userdata;
    bool leave_workers = info->ssi_signo == SIGUSR1;

    (void)source;
    dv_info("ending on signal %s%s", sigabbrev_np((int)info->ssi_signo),
            leave_workers ? "; running sessions go on and wait for the next divvyd" : " with all workers");
    dvd_arbiter_stop(arbiter, leave_workers);
    return 0;
}

static int on_reload_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
    struct dvd_reload reload;

    (void)source;
    (void)info;
    dvd_arbiter_reload(userdata, &reload);
    return 0;
}

static int on_reload(void *owner, struct dvd_reload *reload)
{
    return dvd_arbiter_reload(owner, reload);
}

static const struct dvd_control_events control_events = {.reload = on_reload};

static int watch_signals(struct dvd_arbiter *arbiter)
{
    static const int ending[] = {SIGTERM, SIGINT, SIGUSR1};
    sigset_t blocked;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD); /* sd-event requires it, for the zygote */
    sigaddset(&blocked, SIGHUP);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++)
        sigaddset(&blocked, ending[i]);
    if (sigprocmask(SIG_BLOCK, &blocked, NULL) < 0)
        return -errno;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++) {
        int error = sd_event_add_signal(arbiter->event, NULL, ending[i], on_end_signal, arbiter);
        if (error < 0)
            return error;
    }
    int error = sd_event_add_signal(arbiter->event, NULL, SIGHUP, on_reload_signal, arbiter);
    return error < 0 ? error : 0;
}

/* ---- the rest of the setup ---- */

/* Looks beside divvyd, in a build tree, and in the place the build was made for. */
static int find_worker(struct dvd_arbiter *arbiter)
{
    static const char *const beside[] = {"divvy-worker", "../worker/divvy-worker"};
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    if (arbiter->options.worker_path) {
        if (!realpath(arbiter->options.worker_path, arbiter->worker_path) || access(arbiter->worker_path, X_OK) < 0) {
            int error = -errno;
            dv_error("cannot execute %s: %s", arbiter->options.worker_path, strerror(-error));
            return error;
        }
        return 0;
    }
    if (length > 0) {
        self[length] = '\0';
        *(strrchr(self, '/') + 1) = '\0';
        for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
            int used = snprintf(arbiter->worker_path, sizeof arbiter->worker_path, "%s%s", self, beside[i]);
            if ((size_t)used < sizeof arbiter->worker_path && access(arbiter->worker_path, X_OK) == 0)
                return 0;
        }
    }
    snprintf(arbiter->worker_path, sizeof arbiter->worker_path, "%s/divvy-worker", DIVVY_LIBEXEC);
    if (access(arbiter->worker_path, X_OK) == 0)
        return 0;
    dv_error("cannot find the program divvy-worker, neither beside divvyd nor in %s: reinstall divvy "
             "or name it with --worker",
             DIVVY_LIBEXEC);
    return -ENOENT;
}

static void raise_descriptor_limit(struct dvd_arbiter *arbiter)
{
    struct rlimit limit;

    arbiter->sessions.descriptors_free = DV_MAX_SESSIONS * (DV_WORKER_DESCRIPTORS + DV_PROCESS_DESCRIPTORS);
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    rlim_t before = limit.rlim_cur; /* the launcher, and so the workers, keep this limit */
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        limit.rlim_cur = before;
    uint64_t left = limit.rlim_cur > DV_OTHER_DESCRIPTORS + DV_WORKER_DESCRIPTORS
                        ? limit.rlim_cur - DV_OTHER_DESCRIPTORS
                        : DV_WORKER_DESCRIPTORS;
    if (left < arbiter->sessions.descriptors_free)
        arbiter->sessions.descriptors_free = left;
    dv_debug(
        "at most %llu sessions with workers, because at most %llu descriptors may be open "
        "(ulimit -n)",
        (unsigned long long)(arbiter->sessions.descriptors_free / (DV_WORKER_DESCRIPTORS + DV_PROCESS_DESCRIPTORS)),
        (unsigned long long)limit.rlim_cur);
}

/* Sockets from a service manager, told apart by their type; -1 where there is none. */
static int take_activated(int *session_fd, int *control_fd, int *metrics_fd)
{
    *session_fd = *control_fd = *metrics_fd = -1;
    int count = sd_listen_fds(1);
    if (count < 0)
        return count;
    for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + count; fd++) {
        int flags = fcntl(fd, F_GETFL);
        if (sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) > 0 && *session_fd < 0) {
            *session_fd = fd;
        } else if (sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) > 0 && *control_fd < 0) {
            *control_fd = fd;
        } else if (sd_is_socket_inet(fd, AF_UNSPEC, SOCK_STREAM, 1, 0) > 0 && *metrics_fd < 0) {
            *metrics_fd = fd;
        } else {
            dv_error("the service manager passed a socket that is neither a sequential-packet nor a "
                     "stream listener, or a second one of its kind");
            return -EINVAL;
        }
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    }
    return 0;
}

static int open_sockets(struct dvd_arbiter *arbiter)
{
    int session_fd, control_fd, metrics_fd;
    int error = take_activated(&session_fd, &control_fd, &metrics_fd);

    if (error < 0)
        return error;
    arbiter->control.metrics_activated = metrics_fd >= 0;
    if (metrics_fd >= 0)
        dvd_control_listen_metrics(&arbiter->control, metrics_fd);
    error = dvd_control_init(&arbiter->control, control_fd);
    if (error < 0) {
        dv_error("cannot open the control socket in %s: %s", arbiter->directory.path, strerror(-error));
        return error;
    }
    error = dvd_listener_init(&arbiter->listener, session_fd);
    if (error < 0)
        dv_error("cannot open the session socket in %s: %s", arbiter->directory.path, strerror(-error));
    else if (!arbiter->options.user)
        dvd_run_directory_offer_containers(&arbiter->directory);
    return error;
}

static int prepare_zygote(struct dvd_arbiter *arbiter)
{
    char error[1024];
    int count = dvd_vendors_prepare(arbiter->icd_directory, &arbiter->config, error, sizeof error);

    if (count < 0) {
        dv_error("%s", error);
        return count;
    }
    if (count == 0)
        dv_warning("no OpenCL driver is announced in " DV_VENDORS_PUBLIC
                   " or by the configuration: there will be no device");
    dvd_sandboxes_init(&arbiter->sandboxes, arbiter->event);
    int status = dvd_arbiter_restore_zygote(arbiter) ? 0 : dvd_zygote_start(&arbiter->zygote);
    if (status < 0)
        dv_error("cannot start %s: %s", arbiter->worker_path, strerror(-status));
    return status;
}

static int start_launcher(struct dvd_arbiter *arbiter)
{
    snprintf(arbiter->icd_directory, sizeof arbiter->icd_directory, "%s/vendors", arbiter->directory.path);
    int status = dvd_zygote_prepare(&arbiter->zygote);
    if (status < 0)
        dv_error("cannot start the process that starts zygotes: %s", strerror(-status));
    arbiter->sandboxes.launcher_pid = arbiter->zygote.launcher.pid;
    return status;
}

/* All work that needs more rights is done, or is left to the launcher and the zygote. */
static int give_up_rights(void)
{
    dv_priority_wake(true, -10);
    int status = dvd_rights_keep(DV_RIGHTS_DAEMON);
    if (status < 0)
        dv_error("cannot give up the rights that divvyd does not need: %s", strerror(-status));
    return status;
}

static void tell_ready(struct dvd_arbiter *arbiter)
{
    if (arbiter->options.ready_fd >= 0) {
        if (write(arbiter->options.ready_fd, "1", 1) < 0)
            dv_warning("cannot report readiness: %s", strerror(errno));
        close(arbiter->options.ready_fd);
        arbiter->options.ready_fd = -1;
    }
    sd_notify(0, "READY=1");
    if (getenv("NOTIFY_SOCKET") && sd_event_add_time_relative(arbiter->event, &arbiter->status_timer, CLOCK_MONOTONIC,
                                                              0, DV_STATUS_DELAY_US, on_status_due, arbiter) < 0)
        dv_debug("no line for `systemctl status`");
    dv_info("divvyd %s is ready in %s", DIVVY_VERSION, arbiter->directory.path);
}

/* Connects all parts, and initializes those that need no event loop. */
static void init_parts(struct dvd_arbiter *arbiter, const struct dvd_options *options)
{
    *arbiter = (struct dvd_arbiter){.options = *options,
                                    .directory.lock_fd = -1,
                                    .keeper = {.directory = arbiter->directory.path,
                                               .patience_ns = &arbiter->config.restart_ns,
                                               .events = &keeper_events,
                                               .owner = arbiter},
                                    .sandboxes = {.config = &arbiter->config,
                                                  .directory = arbiter->directory.path,
                                                  .icd_directory = arbiter->icd_directory,
                                                  .events = &sandbox_events,
                                                  .owner = arbiter},
                                    .zygote = {.of_user = options->user,
                                               .worker_path = arbiter->worker_path,
                                               .icd_directory = arbiter->icd_directory,
                                               .devices = &arbiter->devices,
                                               .sandboxes = &arbiter->sandboxes,
                                               .events = &zygote_events,
                                               .owner = arbiter},
                                    .saved = {.directory_fd = -1},
                                    .sessions = {.config = &arbiter->config,
                                                 .saved = &arbiter->saved,
                                                 .directory = arbiter->directory.path,
                                                 .ledger = &arbiter->ledger,
                                                 .state = &arbiter->state,
                                                 .keeper = &arbiter->keeper,
                                                 .devices = &arbiter->devices,
                                                 .zygote = &arbiter->zygote,
                                                 .sandboxes = &arbiter->sandboxes,
                                                 .idle = &arbiter->idle,
                                                 .events = &session_events,
                                                 .owner = arbiter},
                                    .listener = {.sessions = &arbiter->sessions, .fd = -1, .hellos_fd = -1},
                                    .control = {.config = &arbiter->config,
                                                .directory = arbiter->directory.path,
                                                .icd_directory = arbiter->icd_directory,
                                                .ledger = &arbiter->ledger,
                                                .sessions = &arbiter->sessions,
                                                .devices = &arbiter->devices,
                                                .keeper = &arbiter->keeper,
                                                .idle = &arbiter->idle,
                                                .events = &control_events,
                                                .owner = arbiter,
                                                .fd = -1,
                                                .metrics_fd = -1}};
    dvd_zygote_init(&arbiter->zygote);
    dvd_keeper_init(&arbiter->keeper);
}

/* The service manager names a directory; a user's own daemon has none otherwise. */
static void open_state_directory(struct dvd_arbiter *arbiter)
{
    const char *directory = arbiter->options.state_directory;

    if (!directory)
        directory = getenv("STATE_DIRECTORY");
    if (!directory && !arbiter->options.user)
        directory = DV_STATE_SYSTEM;
    dvd_journal_open(&arbiter->sessions, directory, dvd_config_operators(&arbiter->config));
    dvd_saved_open(&arbiter->saved, directory);
}

/* Initializes the parts that need the event loop. */
static int start_parts(struct dvd_arbiter *arbiter)
{
    int error = sd_event_new(&arbiter->event);

    if (error >= 0)
        error = watch_signals(arbiter);
    if (error < 0) {
        dv_error("cannot set up the event loop: %s", strerror(-error));
        return error;
    }
    arbiter->keeper.event = arbiter->zygote.event = arbiter->sessions.event = arbiter->control.event = arbiter->event;
    dvd_idle_init(&arbiter->idle, arbiter->event, arbiter->options.idle_exit_s, on_idle, arbiter);
    dvd_event_timers_init(&arbiter->timers, arbiter->event);
    dvd_ledger_init(&arbiter->ledger, &arbiter->timers.timers, &arbiter->state, &ledger_events, arbiter);
    dvd_arbiter_terms_changed(arbiter);
    error = dvd_sessions_init(&arbiter->sessions);
    if (error < 0)
        dv_error("cannot watch lease channels: %s", strerror(-error));
    else
        open_state_directory(arbiter);
    return error;
}

static void open_state(struct dvd_arbiter *arbiter)
{
    int error = dvd_state_open(&arbiter->state, arbiter->directory.path, &arbiter->is_restart);

    if (error < 0)
        dv_warning("cannot keep a state file in %s: %s; sessions will not outlive this daemon", arbiter->directory.path,
                   strerror(-error));
    dvd_keeper_start(&arbiter->keeper);
    if (arbiter->is_restart)
        arbiter->sessions.last_id = atomic_load(&arbiter->state.header->last_session);
}

int dvd_arbiter_init(struct dvd_arbiter *arbiter, const struct dvd_options *options)
{
    init_parts(arbiter, options);
    if (!options->user && geteuid() != 0) {
        dv_error("the system's daemon must be started by root; for a daemon of your own use --user");
        return -EPERM;
    }
    int error = dvd_arbiter_load_config(arbiter);
    if (error == 0)
        error = find_worker(arbiter);
    if (error == 0)
        error = dvd_run_directory_open(&arbiter->directory, options->directory, options->user);
    if (error == 0)
        error = start_launcher(arbiter);
    if (error < 0)
        return error;
    raise_descriptor_limit(arbiter);
    error = start_parts(arbiter);
    if (error < 0)
        return error;
    open_state(arbiter);
    error = prepare_zygote(arbiter);
    if (error < 0)
        return error;
    dvd_arbiter_restore(arbiter);
    dvd_arbiter_apply_to_restored(arbiter);
    error = open_sockets(arbiter);
    if (error < 0)
        return error;
    dvd_keeper_put(&arbiter->keeper, DV_KEEPER_DAEMON);
    dvd_keeper_drop_found(&arbiter->keeper);
    dvd_keeper_watch(&arbiter->keeper);
    error = give_up_rights();
    if (error == 0)
        tell_ready(arbiter);
    return error;
}

int dvd_arbiter_run(struct dvd_arbiter *arbiter)
{
    int status = sd_event_loop(arbiter->event);
    if (status < 0)
        dv_error("the event loop failed: %s", strerror(-status));
    return status == 0 ? 0 : 1;
}

static void remove_files(struct dvd_arbiter *arbiter)
{
    if (arbiter->directory.lock_fd < 0)
        return; /* they are another daemon's */
    dvd_sandboxes_fini(&arbiter->sandboxes);
    dvd_vendors_remove(arbiter->icd_directory);
    dvd_state_remove(arbiter->directory.path);
}

void dvd_arbiter_fini(struct dvd_arbiter *arbiter)
{
    arbiter->is_stopping = arbiter->zygote.is_stopping = arbiter->keeper.is_ending = true;
    if (arbiter->leaves_workers) { /* no session loses anything */
        dvd_journal_write_sums(&arbiter->sessions.journal);
        dvd_run_directory_note_left(&arbiter->directory, HASH_COUNT(arbiter->sessions.all),
                                    (unsigned)(arbiter->config.restart_ns / DV_NS_PER_S));
        sd_event_unref(arbiter->event);
        dvd_run_directory_close(&arbiter->directory, true);
        return;
    }
    if (arbiter->event) {
        dvd_listener_fini(&arbiter->listener);
        dvd_control_fini(&arbiter->control);
        dvd_sessions_fini(&arbiter->sessions);
        dvd_ledger_fini(&arbiter->ledger);
        dvd_zygote_fini(&arbiter->zygote);
        dvd_keeper_quit(&arbiter->keeper);
        dvd_keeper_fini(&arbiter->keeper);
        dvd_idle_fini(&arbiter->idle);
    }
    dvd_saved_close(&arbiter->saved);
    dvd_launcher_stop(&arbiter->zygote.launcher);
    dvd_state_close(&arbiter->state);
    arbiter->status_timer = sd_event_source_disable_unref(arbiter->status_timer);
    arbiter->stop_timer = sd_event_source_disable_unref(arbiter->stop_timer);
    sd_event_unref(arbiter->event);
    remove_files(arbiter);
    dvd_run_directory_close(&arbiter->directory, false);
    dvd_config_fini(&arbiter->config);
    dv_log(DV_LOG_DEBUG, "ended");
}
