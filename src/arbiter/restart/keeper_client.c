/* divvyd's side of the keeper (see keeper.h). Once divvyd serves, nothing here waits for the keeper: what its
 * socket does not take at once is queued as an errand. One that does not read for too long counts as
 * lost. */
#include "src/keeper/keeper.h"
#include "src/arbiter/restart/keeper_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/system/sockets.h"
#include "src/arbiter/system/rights.h"
#include "src/arbiter/session/session.h"
#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/fd.h"

/* ---- the process ---- */

/* No exec: all that it needs is here already, and it is small. */
static _Noreturn void become_keeper(int listen_fd)
{
    sigset_t none;

    setsid();
    prctl(PR_SET_NAME, "divvy-keeper");
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* Whoever waits for the end of the daemon's output must not wait for the keeper. */
    int null_fd = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        dup2(null_fd, fd);
    dup2(listen_fd, STDERR_FILENO + 1);
    syscall(SYS_close_range, STDERR_FILENO + 2, ~0U, 0);
    if (chdir("/") < 0 || dv_rights_keep(DV_RIGHTS_NONE) < 0)
        _exit(1);
    dv_keeper_run(STDERR_FILENO + 1);
    _exit(0);
}

static int connect_keeper(struct dv_arbiter *arbiter)
{
    struct timeval patience = {.tv_sec = DV_LIMIT_KEEPER_US / DV_S};
    int fd = dv_rundir_connect(arbiter->directory, DV_KEEPER_SOCKET, SOCK_SEQPACKET);

    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    }
    return fd;
}

/* Not a child: whose daemon has ended it must go on, and nobody has to wait for its end. */
static int start_keeper(struct dv_arbiter *arbiter)
{
    DV_AUTO_CLOSE int listen_fd =
        dvd_socket_open(arbiter->directory, DV_KEEPER_SOCKET, SOCK_SEQPACKET, 0600);

    if (listen_fd < 0)
        return listen_fd;
    pid_t between = fork();
    if (between < 0)
        return -errno;
    if (between == 0) {
        if (fork() == 0)
            become_keeper(listen_fd);
        _exit(0);
    }
    while (waitpid(between, NULL, 0) < 0 && errno == EINTR)
        ;
    arbiter->keeper.started_us = dv_arbiter_now(arbiter);
    return connect_keeper(arbiter);
}

/* ---- what is put there ---- */

static int say(const struct dv_arbiter *arbiter, enum dv_keeper_op op, uint64_t id,
               const int *by_kind)
{
    const struct dv_keeper *keeper = &arbiter->keeper;
    struct dv_keeper_message m = {
        .magic = DV_KEEPER_MAGIC, .version = DV_KEEPER_VERSION, .op = (uint16_t)op, .id = id};
    int fds[DV_KEPT_KINDS], count = 0;

    if (keeper->fd < 0)
        return -ENOTCONN;
    if (op == DV_KEEPER_PUT && id == DV_KEEPER_DAEMON)
        m.patience_s = (uint32_t)(arbiter->config.restart_ns / DV_NS_PER_S);
    for (int i = 0; by_kind && i < DV_KEPT_KINDS; i++)
        if (by_kind[i] >= 0) {
            m.kinds |= 1u << i;
            fds[count++] = by_kind[i];
        }
    return dv_fd_send(keeper->fd, &m, sizeof m, fds, count);
}

struct dv_keeper_errand {
    enum dv_keeper_op op; /* PUT or DROP */
    uint64_t id;
    struct dv_keeper_errand *prev, *next;
};

static void keeper_lost(struct dv_arbiter *arbiter);
static void replace_or_retry(struct dv_arbiter *arbiter);

static int on_impatience(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source;
    (void)usec;
    keeper_lost(userdata);
    return 0;
}

/* While something waits to be sent: until the keeper reads, but not for ever. */
static int wait_until_it_reads(struct dv_arbiter *arbiter)
{
    struct dv_keeper *keeper = &arbiter->keeper;

    keeper->patience_timer = sd_event_source_disable_unref(keeper->patience_timer);
    int error = sd_event_source_set_io_events(keeper->io, EPOLLIN | (keeper->errands ? EPOLLOUT : 0));
    if (error >= 0 && keeper->errands)
        error = sd_event_add_time_relative(arbiter->event, &keeper->patience_timer, CLOCK_MONOTONIC,
                                           DV_LIMIT_KEEPER_US, 10 * DV_MS, on_impatience, arbiter);
    return error < 0 ? error : 0;
}

/* Returns a negative errno if the keeper is lost. */
static int add_errand(struct dv_arbiter *arbiter, enum dv_keeper_op op, uint64_t id)
{
    struct dv_keeper *keeper = &arbiter->keeper;
    struct dv_keeper_errand *errand =
        keeper->errand_count < DV_LIMIT_KEEPER_ERRANDS ? malloc(sizeof *errand) : NULL;

    if (!errand)
        return -ENOBUFS;
    *errand = (struct dv_keeper_errand){.op = op, .id = id};
    DL_APPEND(keeper->errands, errand);
    return ++keeper->errand_count == 1 ? wait_until_it_reads(arbiter) : 0;
}

static void remove_errand(struct dv_keeper *keeper, struct dv_keeper_errand *errand)
{
    DL_DELETE(keeper->errands, errand);
    keeper->errand_count--;
    free(errand);
}

/* What is said now, or later if it cannot be said now. */
static void tell(struct dv_arbiter *arbiter, enum dv_keeper_op op, uint64_t id, const int *by_kind)
{
    struct dv_keeper *keeper = &arbiter->keeper;

    if (keeper->fd < 0)
        return;
    int error = keeper->errands ? -EAGAIN : say(arbiter, op, id, by_kind);
    if (error == -EAGAIN && keeper->io)
        error = add_errand(arbiter, op, id);
    if (error < 0)
        keeper_lost(arbiter);
}

/* Descriptors by kind. */
static void fill_daemon(const struct dv_arbiter *arbiter, int fds[DV_KEPT_KINDS])
{
    const struct dv_zygote *zygote = &arbiter->zygote;

    for (int i = 0; i < DV_KEPT_KINDS; i++)
        fds[i] = -1;
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

static void fill_session(const struct dv_session *session, int fds[DV_KEPT_KINDS])
{
    for (int i = 0; i < DV_KEPT_KINDS; i++)
        fds[i] = -1;
    fds[DV_KEPT_TENANT] = session->process->pidfd;
    fds[DV_KEPT_WORKER] = session->worker_pidfd;
    fds[DV_KEPT_SHM] = session->shm_fd;
    fds[DV_KEPT_CHANNEL] = session->control_fd;
    fds[DV_KEPT_LOG] = session->log ? session->log->fd : -1;
    fds[DV_KEPT_CLIENT] = session->client_fd;
}

void dv_keeper_put_daemon(struct dv_arbiter *arbiter)
{
    int fds[DV_KEPT_KINDS];

    if (arbiter->stopping)
        return;
    fill_daemon(arbiter, fds);
    tell(arbiter, DV_KEEPER_PUT, DV_KEEPER_DAEMON, fds);
}

void dv_keeper_put_session(struct dv_session *session)
{
    int fds[DV_KEPT_KINDS];

    fill_session(session, fds);
    tell(session->arbiter, DV_KEEPER_PUT, session->lessee.id, fds);
}

void dv_keeper_drop(struct dv_arbiter *arbiter, uint64_t id)
{
    tell(arbiter, DV_KEEPER_DROP, id, NULL);
}

/* What is put is what there is by now; a session that is gone is not put any more. */
static int run_errand(struct dv_arbiter *arbiter, const struct dv_keeper_errand *errand)
{
    const struct dv_session *session = NULL;
    int fds[DV_KEPT_KINDS];

    if (errand->op == DV_KEEPER_DROP)
        return say(arbiter, DV_KEEPER_DROP, errand->id, NULL);
    if (errand->id == DV_KEEPER_DAEMON)
        fill_daemon(arbiter, fds);
    else if ((session = dv_session_find(arbiter, errand->id)) && session->lessee.record)
        fill_session(session, fds);
    else
        return 0;
    return say(arbiter, DV_KEEPER_PUT, errand->id, fds);
}

static void run_errands(struct dv_arbiter *arbiter)
{
    struct dv_keeper *keeper = &arbiter->keeper;
    int error = 0;

    for (int i = 0; i < DV_LIMIT_BATCH && keeper->errands && error == 0; i++) {
        error = run_errand(arbiter, keeper->errands);
        if (error == 0)
            remove_errand(keeper, keeper->errands);
    }
    if (error == 0 || error == -EAGAIN)
        error = wait_until_it_reads(arbiter);
    if (error < 0)
        keeper_lost(arbiter);
}

/* ---- its end ---- */

static void let_go(struct dv_keeper *keeper)
{
    while (keeper->errands)
        remove_errand(keeper, keeper->errands);
    keeper->patience_timer = sd_event_source_disable_unref(keeper->patience_timer);
    keeper->io = sd_event_source_disable_unref(keeper->io);
    dv_close_fd(&keeper->fd);
}

/* Little by little: sessions can be many. */
static void put_everything(struct dv_arbiter *arbiter)
{
    int error = add_errand(arbiter, DV_KEEPER_PUT, DV_KEEPER_DAEMON);

    for (struct dv_session *session = arbiter->sessions; session && error == 0; session = session->hh.next)
        if (session->lessee.record)
            error = add_errand(arbiter, DV_KEEPER_PUT, session->lessee.id);
    if (error < 0)
        keeper_lost(arbiter);
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    (void)source;
    (void)fd;
    if (events & ~(uint32_t)EPOLLOUT)
        keeper_lost(userdata); /* it has nothing to say by itself */
    else
        run_errands(userdata);
    return 0;
}

static int watch(struct dv_arbiter *arbiter)
{
    struct dv_keeper *keeper = &arbiter->keeper;

    if (fcntl(keeper->fd, F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    return sd_event_add_io(arbiter->event, &keeper->io, keeper->fd, EPOLLIN, on_io, arbiter);
}

static int replace(struct dv_arbiter *arbiter)
{
    struct dv_keeper *keeper = &arbiter->keeper;

    keeper->fd = start_keeper(arbiter);
    return keeper->fd < 0 ? keeper->fd : watch(arbiter);
}

static int on_retry(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dv_arbiter *arbiter = userdata;

    (void)source;
    (void)usec;
    if (arbiter->keeper.fd < 0 && !arbiter->stopping)
        replace_or_retry(arbiter);
    return 0;
}

static void retry_later(struct dv_arbiter *arbiter)
{
    struct dv_keeper *keeper = &arbiter->keeper;

    keeper->retry_timer = sd_event_source_disable_unref(keeper->retry_timer);
    if (sd_event_add_time_relative(arbiter->event, &keeper->retry_timer, CLOCK_MONOTONIC,
                                   DV_LIMIT_KEEPER_US, 10 * DV_MS, on_retry, arbiter) < 0)
        dv_error("the keeper cannot be replaced: sessions will not outlive this daemon");
}

static void warn_of_no_keeper(int error)
{
    dv_warning("cannot start a keeper: %s; until there is one, sessions do not outlive this daemon",
               strerror(-error));
}

static void replace_or_retry(struct dv_arbiter *arbiter)
{
    int error = replace(arbiter);

    if (error < 0) {
        let_go(&arbiter->keeper);
        warn_of_no_keeper(error);
        retry_later(arbiter);
        return;
    }
    dv_warning("the keeper has ended or does not answer: there is a new one");
    put_everything(arbiter);
}

/* It has ended, or does not read. One that does so at once is not replaced at once. */
static void keeper_lost(struct dv_arbiter *arbiter)
{
    struct dv_keeper *keeper = &arbiter->keeper;
    bool at_once = dv_arbiter_now(arbiter) - keeper->started_us < DV_LIMIT_KEEPER_US;

    let_go(keeper);
    if (arbiter->stopping)
        return;
    if (at_once)
        retry_later(arbiter);
    else
        replace_or_retry(arbiter);
}

/* ---- what is found there ---- */

static bool add_found(struct dv_keeper *keeper, const struct dv_keeper_message *m, const int *fds,
                      int count)
{
    struct dv_kept *kept;

    HASH_FIND(hh, keeper->found, &m->id, sizeof m->id, kept);
    if (kept || m->kinds >= 1u << DV_KEPT_KINDS || __builtin_popcount(m->kinds) != count)
        return false;
    kept = calloc(1, sizeof *kept);
    if (!kept)
        return false;
    kept->id = m->id;
    for (int i = 0; i < DV_KEPT_KINDS; i++)
        kept->fds[i] = m->kinds & 1u << i ? *fds++ : -1;
    HASH_ADD(hh, keeper->found, id, sizeof kept->id, kept);
    return true;
}

static int list_found(struct dv_arbiter *arbiter)
{
    struct dv_keeper *keeper = &arbiter->keeper;
    int error = say(arbiter, DV_KEEPER_LIST, 0, NULL);

    while (error == 0) {
        struct dv_keeper_message m;
        int fds[DV_KEPT_KINDS], count;
        ssize_t length = dv_fd_receive(keeper->fd, &m, sizeof m, fds, DV_KEPT_KINDS, &count, 0);
        bool sound = length == sizeof m && m.magic == DV_KEEPER_MAGIC &&
                     m.version == DV_KEEPER_VERSION;
        if (sound && m.op == DV_KEEPER_END)
            return 0;
        if (sound && m.op == DV_KEEPER_ITEM && add_found(keeper, &m, fds, count))
            continue;
        while (count > 0)
            close(fds[--count]);
        error = length < 0 ? (int)length : -EPROTO;
    }
    return error;
}

struct dv_kept *dv_keeper_found(struct dv_arbiter *arbiter, uint64_t id)
{
    struct dv_kept *kept;

    HASH_FIND(hh, arbiter->keeper.found, &id, sizeof id, kept);
    return kept;
}

static void close_found(struct dv_keeper *keeper)
{
    struct dv_kept *kept, *next;

    HASH_ITER(hh, keeper->found, kept, next)
    {
        HASH_DEL(keeper->found, kept);
        for (int i = 0; i < DV_KEPT_KINDS; i++)
            dv_close_fd(&kept->fds[i]);
        free(kept);
    }
}

/* The state file does not know of it. If its client still waits to be welcomed, that had not come to
 * pass: it will ask again, and nobody needs the worker. Otherwise the file is lost or spoiled, and the
 * worker goes on without arbitration, as it does without a daemon. */
static void drop_unknown(struct dv_arbiter *arbiter, const struct dv_kept *kept)
{
    struct pollfd client = {.fd = kept->fds[DV_KEPT_CLIENT]};
    bool waits = client.fd >= 0 && poll(&client, 1, 0) == 0;

    if (kept->fds[DV_KEPT_WORKER] >= 0 && waits)
        syscall(SYS_pidfd_send_signal, kept->fds[DV_KEPT_WORKER], SIGKILL, NULL, 0);
    dv_keeper_drop(arbiter, kept->id);
}

void dv_keeper_drop_found(struct dv_arbiter *arbiter)
{
    for (struct dv_kept *kept = arbiter->keeper.found; kept; kept = kept->hh.next)
        if (kept->id != DV_KEEPER_DAEMON && !dv_session_find(arbiter, kept->id))
            drop_unknown(arbiter, kept);
    close_found(&arbiter->keeper);
}

/* ---- life ---- */

void dv_keeper_init(struct dv_keeper *keeper)
{
    *keeper = (struct dv_keeper){.fd = -1};
}

void dv_keeper_start(struct dv_arbiter *arbiter)
{
    struct dv_keeper *keeper = &arbiter->keeper;

    keeper->fd = connect_keeper(arbiter);
    if (keeper->fd >= 0) {
        int error = list_found(arbiter);
        if (error == 0)
            return;
        dv_warning("the keeper of an earlier daemon does not give up what it has (%s): sessions that "
                   "run go on, but nobody arbitrates them",
                   strerror(-error));
        close_found(keeper);
        dv_close_fd(&keeper->fd);
    }
    keeper->fd = start_keeper(arbiter);
    if (keeper->fd < 0) {
        warn_of_no_keeper(keeper->fd);
        keeper->fd = -1;
    }
}

void dv_keeper_watch(struct dv_arbiter *arbiter)
{
    struct dv_keeper *keeper = &arbiter->keeper;

    if (keeper->fd < 0)
        retry_later(arbiter);
    else if (watch(arbiter) < 0)
        dv_warning("cannot watch the keeper");
}

void dv_keeper_quit(struct dv_arbiter *arbiter)
{
    say(arbiter, DV_KEEPER_QUIT, 0, NULL);
    let_go(&arbiter->keeper);
}

void dv_keeper_fini(struct dv_arbiter *arbiter)
{
    arbiter->keeper.retry_timer = sd_event_source_disable_unref(arbiter->keeper.retry_timer);
    close_found(&arbiter->keeper);
    let_go(&arbiter->keeper);
}
