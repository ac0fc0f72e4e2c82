/* Putting divvyd together, its signals, and its end (see arbiter.h). */
#include "src/arbiter/arbiter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "src/arbiter/restart/restore_all.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/system/rights.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/ledger/ledger.h"
#include "src/arbiter/workers/icd_directory.h"
#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/priority.h"

#define LOCK_TRIES 30 /* an earlier daemon may be about to end */
#define LOCK_PAUSE_US 100000

uint64_t dv_arbiter_now(const struct dv_arbiter *arbiter)
{
    (void)arbiter;
    return dv_now() / DV_NS_PER_US;
}

/* ---- idleness and the end ---- */

static int on_idle(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dv_arbiter *arbiter = userdata;

    (void)source;
    (void)usec;
    dv_info("no session for %u s: ending", arbiter->options.idle_exit_s);
    dv_arbiter_stop(arbiter, false);
    return 0;
}

/* All sessions are gone: let the zygote go, whose end ends the loop. */
static void finish_stop(struct dv_arbiter *arbiter)
{
    dv_keeper_quit(arbiter); /* which has a copy of its socket */
    dv_zygote_stop(arbiter);
    if (arbiter->zygote.pid == 0)
        sd_event_exit(arbiter->event, 0);
}

void dv_arbiter_check_idle(struct dv_arbiter *arbiter)
{
    bool idle = !arbiter->sessions && arbiter->listener.pending_count == 0 &&
                arbiter->control.hold_count == 0;

    if (arbiter->stopping) {
        if (!arbiter->sessions)
            finish_stop(arbiter);
        return;
    }
    if (arbiter->options.idle_exit_s == 0)
        return;
    if (!idle) {
        arbiter->idle_timer = sd_event_source_disable_unref(arbiter->idle_timer);
        return;
    }
    if (arbiter->idle_timer)
        return;
    int error = sd_event_add_time_relative(arbiter->event, &arbiter->idle_timer, CLOCK_MONOTONIC,
                                           arbiter->options.idle_exit_s * DV_S, 10 * DV_MS, on_idle,
                                           arbiter);
    if (error < 0) /* it is tried again when the next session has gone */
        dv_error("cannot wait for idleness: %s", strerror(-error));
}

static void start_stop_timer(struct dv_arbiter *arbiter);

static int on_stop_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dv_arbiter *arbiter = userdata;

    (void)source;
    (void)usec;
    if (arbiter->sessions) {
        dv_warning("%u workers did not end when asked: killed", HASH_COUNT(arbiter->sessions));
        start_stop_timer(arbiter); /* for the zygote, which is next */
        dv_sessions_stop(arbiter, SIGKILL);
        dv_sessions_forget(arbiter);
        return 0;
    }
    sd_event_exit(arbiter->event, 0); /* the zygote does not end: it is killed at the very end */
    return 0;
}

static void start_stop_timer(struct dv_arbiter *arbiter)
{
    arbiter->stop_timer = sd_event_source_disable_unref(arbiter->stop_timer);
    int error = sd_event_add_time_relative(arbiter->event, &arbiter->stop_timer, CLOCK_MONOTONIC,
                                           DV_LIMIT_STOP_US, 10 * DV_MS, on_stop_deadline, arbiter);
    if (error < 0)
        sd_event_exit(arbiter->event, 1);
}

void dv_arbiter_stop(struct dv_arbiter *arbiter, bool leave_workers)
{
    if (arbiter->stopping)
        return;
    arbiter->leave_workers = leave_workers;
    sd_notify(0, "STOPPING=1");
    if (leave_workers) { /* all that the next daemon needs is where it will look for it */
        arbiter->stopping = true;
        sd_event_exit(arbiter->event, 0);
        return;
    }
    dv_listener_fini(arbiter);
    dv_control_fini(arbiter);
    arbiter->idle_timer = sd_event_source_disable_unref(arbiter->idle_timer);
    arbiter->stopping = true;
    start_stop_timer(arbiter);
    dv_sessions_stop(arbiter, SIGTERM);
    dv_arbiter_check_idle(arbiter);
}

/* ---- signals ---- */

static int on_end_signal(sd_event_source *source, const struct signalfd_siginfo *info,
                         void *userdata)
{
    struct dv_arbiter *arbiter = userdata;
    bool leave_workers = info->ssi_signo == SIGUSR1;

    (void)source;
    dv_info("ending on signal %s%s", sigabbrev_np((int)info->ssi_signo),
            leave_workers ? "; running sessions go on and wait for the next divvyd"
                          : " with all workers");
    dv_arbiter_stop(arbiter, leave_workers);
    return 0;
}

static int read_config(const struct dv_arbiter *arbiter, struct dv_config *config, char *error,
                       size_t error_bytes)
{
    int status = dv_config_load(config, arbiter->config_path, arbiter->config_must_exist, error,
                                error_bytes);
    config->of_user = arbiter->options.user;
    config->owner = arbiter->owner;

    if (status == 0 && !dv_cages_may_be_off(arbiter, config, error, error_bytes)) {
        dv_config_fini(config);
        return -EINVAL;
    }
    return status;
}

/* ---- the ledger ---- */

static void on_tenant_freed(void *owner, const struct dvd_tenant *tenant)
{
    dv_listings_tenant_goes(owner, tenant);
}

static const struct dvd_ledger_events ledger_events = {.send = dv_session_send,
                                                       .is_stopped = dv_session_is_stopped,
                                                       .overdue = dv_session_overdue,
                                                       .unanswered = dv_session_unanswered,
                                                       .turned_away = dv_session_turned_away,
                                                       .tenant_freed = on_tenant_freed};

void dv_arbiter_devices_changed(struct dv_arbiter *arbiter)
{
    struct dv_device_terms terms[DV_MAX_DEVICES];

    dv_devices_terms(&arbiter->devices, &arbiter->config, terms);
    dvd_ledger_set_devices(&arbiter->ledger, terms, arbiter->devices.count);
}

static void apply_ledger_terms(struct dv_arbiter *arbiter)
{
    struct dv_ledger_terms terms = dv_config_ledger_terms(&arbiter->config);

    dvd_ledger_set_terms(&arbiter->ledger, &terms);
}

static void init_ledger(struct dv_arbiter *arbiter)
{
    arbiter->asides = (struct dvd_asides){.event = arbiter->event, .owner = arbiter};
    dvd_event_timers_init(&arbiter->timers, arbiter->event);
    dvd_ledger_init(&arbiter->ledger, &arbiter->timers.timers, &arbiter->state, &ledger_events, arbiter);
    apply_ledger_terms(arbiter);
}

static int on_reload_signal(sd_event_source *source, const struct signalfd_siginfo *info,
                            void *userdata)
{
    struct dv_arbiter *arbiter = userdata;
    struct dv_config config;
    char error[1024];

    (void)source;
    (void)info;
    if (arbiter->stopping)
        return 0;
    if (read_config(arbiter, &config, error, sizeof error) < 0) {
        dv_error("the configuration is not reloaded, the old one stays in force: %s", error);
        return 0;
    }
    dv_config_fini(&arbiter->config);
    arbiter->config = config;
    dv_arbiter_devices_changed(arbiter);
    apply_ledger_terms(arbiter);
    dv_control_apply_config(arbiter);
    dv_listener_apply_config(arbiter);
    dvd_ledger_apply_device_terms(&arbiter->ledger);
    if (dv_vendors_prepare(arbiter->vendors_directory, &arbiter->config, error, sizeof error) < 0)
        dv_error("%s", error);
    dv_cages_apply_config(arbiter);
    dv_zygote_request_probe(arbiter); /* the drivers may be others now */
    dv_keeper_put_daemon(arbiter);
    dv_info("configuration reloaded");
    return 0;
}

static int watch_signals(struct dv_arbiter *arbiter)
{
    static const int ending[] = {SIGTERM, SIGINT, SIGUSR1};
    sigset_t blocked;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD); /* sd-event wants it so, for the zygote */
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

/* ---- the runtime directory ---- */

static int choose_directory(struct dv_arbiter *arbiter)
{
    const struct dv_options *options = &arbiter->options;
    int length;

    if (!options->directory && options->user)
        return dv_rundir_user(arbiter->directory, sizeof arbiter->directory);
    const char *directory = options->directory ? options->directory : DV_RUNDIR_SYSTEM;
    if (directory[0] == '/') {
        length = snprintf(arbiter->directory, sizeof arbiter->directory, "%s", directory);
    } else { /* absolute, for it goes into the workers' environment */
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here))
            return -errno;
        length = snprintf(arbiter->directory, sizeof arbiter->directory, "%s/%s", here, directory);
    }
    if (length < 0 || (size_t)length + sizeof "/" DV_RUNDIR_CONTROL_SOCKET > DV_RUNDIR_BYTES)
        return -ENAMETOOLONG;
    return 0;
}

static int make_directory(struct dv_arbiter *arbiter)
{
    int status = choose_directory(arbiter);
    if (status < 0) {
        dv_error("cannot use the directory %s: its name is too long for sockets (at most %zu "
                 "characters); choose a shorter one with --dir",
                 arbiter->options.directory ? arbiter->options.directory : "",
                 DV_RUNDIR_BYTES - sizeof "/" DV_RUNDIR_CONTROL_SOCKET);
        return status;
    }
    status = dv_rundir_make(arbiter->directory, arbiter->options.user ? 0700 : 0755);
    if (status == -EPERM)
        dv_error("cannot use %s: it belongs to another user; choose another one with --dir",
                 arbiter->directory);
    else if (status == -EACCES)
        dv_error("cannot use %s: other users may write to it, or you may not; take that right away "
                 "(chmod go-w) or choose another one with --dir",
                 arbiter->directory);
    else if (status < 0)
        dv_error("cannot make %s: %s; choose another one with --dir", arbiter->directory,
                 strerror(-status));
    arbiter->made_directory = status == 1;
    return status < 0 ? status : 0;
}

/* The file may be removed by the daemon that held it, so the lock counts only while the name still
 * leads to the file that is locked. */
static int try_lock(const char *path)
{
    DV_AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat ours, named;

    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -errno;
    if (fstat(fd, &ours) < 0 || stat(path, &named) < 0 || ours.st_ino != named.st_ino)
        return -EWOULDBLOCK;
    return dv_take_fd(&fd);
}

static int lock_directory(struct dv_arbiter *arbiter)
{
    char path[DV_RUNDIR_BYTES + 16];
    int fd = -EWOULDBLOCK;

    snprintf(path, sizeof path, "%s/" DV_RUNDIR_LOCK, arbiter->directory);
    for (int i = 0; i < LOCK_TRIES && fd == -EWOULDBLOCK; i++) {
        if (i > 0)
            usleep(LOCK_PAUSE_US);
        fd = try_lock(path);
    }
    if (fd == -EWOULDBLOCK)
        dv_error("another divvyd runs in %s; end that one first or choose another directory with "
                 "--dir",
                 arbiter->directory);
    else if (fd < 0)
        dv_error("cannot lock %s: %s", path, strerror(-fd));
    arbiter->lock_fd = fd < 0 ? -1 : fd;
    return fd < 0 ? fd : 0;
}

static void release_directory(struct dv_arbiter *arbiter)
{
    char path[DV_RUNDIR_BYTES + 16];
    struct sockaddr_un keeper;

    if (arbiter->lock_fd < 0)
        return; /* not ours */
    if (arbiter->leave_workers) { /* which need them, and so does the next daemon */
        dv_close_fd(&arbiter->lock_fd);
        return;
    }
    dv_cages_fini(arbiter);
    dv_vendors_remove(arbiter->vendors_directory);
    dv_state_remove(arbiter->directory);
    if (dv_rundir_address(&keeper, arbiter->directory, DV_KEEPER_SOCKET) == 0)
        unlink(keeper.sun_path);
    snprintf(path, sizeof path, "%s/" DV_RUNDIR_CONTROL, arbiter->directory);
    rmdir(path);
    snprintf(path, sizeof path, "%s/" DV_RUNDIR_LOCK, arbiter->directory);
    unlink(path);
    rmdir(arbiter->directory); /* stays if others keep files in it */
    close(arbiter->lock_fd);
    arbiter->lock_fd = -1;
}

/* ---- the rest of the setup ---- */

static int load_config(struct dv_arbiter *arbiter)
{
    char error[1024];

    arbiter->config_must_exist = arbiter->options.config_path != NULL;
    arbiter->config_path = arbiter->options.config_path;
    if (!arbiter->config_path && !arbiter->options.user)
        arbiter->config_path = DV_CONFIG_SYSTEM;
    int status = read_config(arbiter, &arbiter->config, error, sizeof error);
    if (status < 0)
        dv_error("%s", error);
    return status;
}

/* Installed beside each other, in a build tree, or in the place the build was made for. */
static int find_worker(struct dv_arbiter *arbiter)
{
    static const char *const beside[] = {"divvy-worker", "../worker/divvy-worker"};
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    if (arbiter->options.worker_path) {
        if (!realpath(arbiter->options.worker_path, arbiter->worker_path) ||
            access(arbiter->worker_path, X_OK) < 0) {
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
            int used = snprintf(arbiter->worker_path, sizeof arbiter->worker_path, "%s%s", self,
                                beside[i]);
            if ((size_t)used < sizeof arbiter->worker_path &&
                access(arbiter->worker_path, X_OK) == 0)
                return 0;
        }
    }
    snprintf(arbiter->worker_path, sizeof arbiter->worker_path, "%s/divvy-worker", DIVVY_LIBEXEC);
    if (access(arbiter->worker_path, X_OK) == 0)
        return 0;
    dv_error(
        "cannot find the program divvy-worker, neither beside divvyd nor in %s: reinstall divvy "
        "or name it with --worker",
        DIVVY_LIBEXEC);
    return -ENOENT;
}

static void raise_descriptor_limit(struct dv_arbiter *arbiter)
{
    struct rlimit limit;

    arbiter->descriptors_free = DV_LIMIT_SESSIONS * (DV_WORKER_DESCRIPTORS + DV_PROCESS_DESCRIPTORS);
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    rlim_t before = limit.rlim_cur; /* the launcher, and so the workers, stay with that */
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        limit.rlim_cur = before;
    uint64_t left = limit.rlim_cur > DV_OTHER_DESCRIPTORS + DV_WORKER_DESCRIPTORS
                        ? limit.rlim_cur - DV_OTHER_DESCRIPTORS
                        : DV_WORKER_DESCRIPTORS;
    if (left < arbiter->descriptors_free)
        arbiter->descriptors_free = left;
    dv_debug("at most %llu sessions with workers, because at most %llu descriptors may be open "
             "(ulimit -n)",
             (unsigned long long)(arbiter->descriptors_free / (DV_WORKER_DESCRIPTORS + DV_PROCESS_DESCRIPTORS)),
             (unsigned long long)limit.rlim_cur);
}

/* Sockets from a service manager, told apart by their type; -1 where there is none. */
static int take_activated(int *session_fd, int *control_fd)
{
    *session_fd = *control_fd = -1;
    int count = sd_listen_fds(1);
    if (count < 0)
        return count;
    for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + count; fd++) {
        int flags = fcntl(fd, F_GETFL);
        if (sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) > 0 && *session_fd < 0) {
            *session_fd = fd;
        } else if (sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) > 0 && *control_fd < 0) {
            *control_fd = fd;
        } else {
            dv_error(
                "the service manager passed a socket that is neither a sequential-packet nor a "
                "stream listener, or a second one of its kind");
            return -EINVAL;
        }
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    }
    return 0;
}

static int open_sockets(struct dv_arbiter *arbiter)
{
    int session_fd, control_fd;
    int error = take_activated(&session_fd, &control_fd);

    if (error < 0)
        return error;
    error = dv_control_init(arbiter, control_fd);
    if (error < 0) {
        dv_error("cannot open the control socket in %s: %s", arbiter->directory, strerror(-error));
        return error;
    }
    error = dv_listener_init(arbiter, session_fd);
    if (error < 0)
        dv_error("cannot open the session socket in %s: %s", arbiter->directory, strerror(-error));
    return error;
}

static int prepare_zygote(struct dv_arbiter *arbiter)
{
    char error[1024];

    int count =
        dv_vendors_prepare(arbiter->vendors_directory, &arbiter->config, error, sizeof error);
    if (count < 0) {
        dv_error("%s", error);
        return count;
    }
    if (count == 0)
        dv_warning("no OpenCL driver is announced in " DV_VENDORS_PUBLIC
                   " or by the configuration: there will be no device");
    dv_cages_init(arbiter);
    int status = dv_adopt_zygote(arbiter) ? 0 : dv_zygote_start(arbiter);
    if (status < 0)
        dv_error("cannot start %s: %s", arbiter->worker_path, strerror(-status));
    return status;
}

static int start_launcher(struct dv_arbiter *arbiter)
{
    snprintf(arbiter->vendors_directory, sizeof arbiter->vendors_directory, "%s/vendors",
             arbiter->directory);
    int status = dv_zygote_prepare(arbiter);
    if (status < 0)
        dv_error("cannot start the process that starts zygotes: %s", strerror(-status));
    return status;
}

/* All that needs more has been done, or is the launcher's and the zygote's. */
static int give_up_rights(void)
{
    dv_priority_wake(true, -10);
    int status = dv_rights_keep(DV_RIGHTS_DAEMON);
    if (status < 0)
        dv_error("cannot give up the rights that divvyd does not need: %s", strerror(-status));
    return status;
}

static int adopt_sessions(struct dv_arbiter *arbiter)
{
    int error = dv_channels_init(arbiter);

    if (error < 0)
        dv_error("cannot watch lease channels: %s", strerror(-error));
    else
        dv_adopt_sessions(arbiter);
    return error;
}

static void tell_ready(struct dv_arbiter *arbiter)
{
    if (arbiter->options.ready_fd >= 0) {
        if (write(arbiter->options.ready_fd, "1", 1) < 0)
            dv_warning("cannot tell readiness: %s", strerror(errno));
        close(arbiter->options.ready_fd);
        arbiter->options.ready_fd = -1;
    }
    sd_notify(0, "READY=1");
    dv_info("divvyd %s is ready in %s", DIVVY_VERSION, arbiter->directory);
}

int dv_arbiter_init(struct dv_arbiter *arbiter, const struct dv_options *options)
{
    *arbiter = (struct dv_arbiter){
        .options = *options, .lock_fd = -1, .owner = geteuid(), .cages.caches_fd = -1};
    arbiter->listener.fd = arbiter->listener.hellos_fd = -1;
    arbiter->control.fd = -1;
    arbiter->launcher.fd = -1;
    dv_zygote_init(&arbiter->zygote);
    dv_keeper_init(&arbiter->keeper);

    if (!options->user && geteuid() != 0) {
        dv_error(
            "the system's daemon must be started by root; for a daemon of your own use --user");
        return -EPERM;
    }
    int error = load_config(arbiter);
    if (error == 0)
        error = find_worker(arbiter);
    if (error == 0)
        error = make_directory(arbiter);
    if (error == 0)
        error = lock_directory(arbiter);
    if (error == 0)
        error = start_launcher(arbiter);
    if (error < 0)
        return error;
    raise_descriptor_limit(arbiter);
    error = sd_event_new(&arbiter->event);
    if (error >= 0)
        error = watch_signals(arbiter);
    if (error < 0) {
        dv_error("cannot set up the event loop: %s", strerror(-error));
        return error;
    }
    init_ledger(arbiter);
    dv_adopt_begin(arbiter);
    error = prepare_zygote(arbiter);
    if (error == 0)
        error = adopt_sessions(arbiter);
    if (error == 0)
        error = open_sockets(arbiter);
    if (error < 0)
        return error;
    dv_keeper_put_daemon(arbiter);
    dv_keeper_drop_found(arbiter);
    dv_keeper_watch(arbiter);
    dv_arbiter_check_idle(arbiter);
    error = give_up_rights();
    if (error == 0)
        tell_ready(arbiter);
    return error;
}

int dv_arbiter_run(struct dv_arbiter *arbiter)
{
    int status = sd_event_loop(arbiter->event);
    if (status < 0)
        dv_error("the event loop failed: %s", strerror(-status));
    return status == 0 ? 0 : 1;
}

void dv_arbiter_fini(struct dv_arbiter *arbiter)
{
    arbiter->stopping = true;
    if (arbiter->leave_workers) { /* nothing is taken from anybody */
        sd_event_unref(arbiter->event);
        release_directory(arbiter);
        return;
    }
    if (arbiter->event) {
        dv_listener_fini(arbiter);
        dv_control_fini(arbiter);
        dv_sessions_forget(arbiter);
        dv_sessions_forget_unread(arbiter);
        dvd_asides_fini(&arbiter->asides);
        dvd_tenants_forget_gone(&arbiter->ledger, true);
        dv_arenas_fini(arbiter);
        dvd_ledger_fini(&arbiter->ledger);
        dv_channels_fini(arbiter);
        dv_zygote_fini(arbiter);
        dv_keeper_quit(arbiter);
        dv_keeper_fini(arbiter);
    }
    dv_launcher_stop(&arbiter->launcher);
    dv_state_close(&arbiter->state);
    arbiter->stop_timer = sd_event_source_disable_unref(arbiter->stop_timer);
    arbiter->idle_timer = sd_event_source_disable_unref(arbiter->idle_timer);
    arbiter->advance = sd_event_source_disable_unref(arbiter->advance);
    sd_event_unref(arbiter->event);
    release_directory(arbiter);
    free(arbiter->endings);
    dv_config_fini(&arbiter->config);
    dv_log(DV_LOG_DEBUG, "ended");
}
