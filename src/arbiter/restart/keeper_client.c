/* divvyd's side of the keeper (see keeper_client.h). Once divvyd serves, nothing here waits for the keeper: messages
 * that its socket does not take at once are queued as requests. A keeper that does not read for too long
 * counts as lost. */
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

#include "src/arbiter/limits.h"
#include "src/arbiter/system/sockets.h"
#include "src/arbiter/system/rights.h"
#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/fd.h"
#include "src/base/log.h"
#include "src/base/rundir.h"

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
    /* A process that waits for the end of the daemon's output must not wait for the keeper. */
    int null_fd = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        dup2(null_fd, fd);
    dup2(listen_fd, STDERR_FILENO + 1);
    syscall(SYS_close_range, STDERR_FILENO + 2, ~0U, 0);
    if (chdir("/") < 0 || dvd_rights_keep(DV_RIGHTS_NONE) < 0)
        _exit(1);
    dv_keeper_run(STDERR_FILENO + 1);
    _exit(0);
}

static int connect_keeper(struct dvd_keeper *keeper)
{
    struct timeval patience = {.tv_sec = DV_KEEPER_TIMEOUT_US / DV_S};
    int fd = dv_rundir_connect(keeper->directory, DV_KEEPER_SOCKET, SOCK_SEQPACKET);

    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    }
    return fd;
}

/* Not a child: it outlives its daemon, and no process has to wait for its end. */
static int start_keeper(struct dvd_keeper *keeper)
{
    DV_AUTO_CLOSE int listen_fd = dvd_socket_open(keeper->directory, DV_KEEPER_SOCKET, SOCK_SEQPACKET, 0600);

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
    keeper->started_us = dv_now() / DV_NS_PER_US;
    return connect_keeper(keeper);
}

/* ---- storing descriptors ---- */

static int say(const struct dvd_keeper *keeper, enum dv_keeper_op op, uint64_t id, const int *by_kind)
{
    struct dv_keeper_message m = {.magic = DV_KEEPER_MAGIC, .version = DV_KEEPER_VERSION, .op = (uint16_t)op, .id = id};
    int fds[DV_KEPT_KINDS], count = 0;

    if (keeper->fd < 0)
        return -ENOTCONN;
    if (op == DV_KEEPER_PUT && id == DV_KEEPER_DAEMON)
        m.patience_s = (uint32_t)(*keeper->patience_ns / DV_NS_PER_S);
    for (int i = 0; by_kind && i < DV_KEPT_KINDS; i++)
        if (by_kind[i] >= 0) {
            m.kinds |= 1u << i;
            fds[count++] = by_kind[i];
        }
    return dv_fd_send(keeper->fd, &m, sizeof m, fds, count);
}

struct dvd_keeper_request {
    enum dv_keeper_op op; /* PUT or DROP */
    uint64_t id;
    struct dvd_keeper_request *prev, *next;
};

static void keeper_lost(struct dvd_keeper *keeper);
static void replace_or_retry(struct dvd_keeper *keeper);

static int on_impatience(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source;
    (void)usec;
    keeper_lost(userdata);
    return 0;
}

/* While requests are queued, waits until the keeper reads, but not for ever. */
static int wait_until_it_reads(struct dvd_keeper *keeper)
{

    keeper->patience_timer = sd_event_source_disable_unref(keeper->patience_timer);
    int error = sd_event_source_set_io_events(keeper->io, EPOLLIN | (keeper->requests ? EPOLLOUT : 0));
    if (error >= 0 && keeper->requests)
        error = sd_event_add_time_relative(keeper->event, &keeper->patience_timer, CLOCK_MONOTONIC,
                                           DV_KEEPER_TIMEOUT_US, 10 * DV_MS, on_impatience, keeper);
    return error < 0 ? error : 0;
}

/* Returns a negative errno if the keeper is lost. */
static int add_request(struct dvd_keeper *keeper, enum dv_keeper_op op, uint64_t id)
{
    struct dvd_keeper_request *request =
        keeper->request_count < DV_MAX_KEEPER_REQUESTS ? malloc(sizeof *request) : NULL;

    if (!request)
        return -ENOBUFS;
    *request = (struct dvd_keeper_request){.op = op, .id = id};
    DL_APPEND(keeper->requests, request);
    return ++keeper->request_count == 1 ? wait_until_it_reads(keeper) : 0;
}

static void remove_request(struct dvd_keeper *keeper, struct dvd_keeper_request *request)
{
    DL_DELETE(keeper->requests, request);
    keeper->request_count--;
    free(request);
}

/* Sends a message now, or queues it if the socket is full. */
static void tell(struct dvd_keeper *keeper, enum dv_keeper_op op, uint64_t id, const int *by_kind)
{

    if (keeper->fd < 0)
        return;
    int error = keeper->requests ? -EAGAIN : say(keeper, op, id, by_kind);
    if (error == -EAGAIN && keeper->io)
        error = add_request(keeper, op, id);
    if (error < 0)
        keeper_lost(keeper);
}

static void clear(int fds[DV_KEPT_KINDS])
{
    for (int i = 0; i < DV_KEPT_KINDS; i++)
        fds[i] = -1;
}

void dvd_keeper_put(struct dvd_keeper *keeper, uint64_t id)
{
    int fds[DV_KEPT_KINDS];

    clear(fds);
    if (!keeper->is_ending && keeper->events->fill(keeper->owner, id, fds))
        tell(keeper, DV_KEEPER_PUT, id, fds);
}

void dvd_keeper_drop(struct dvd_keeper *keeper, uint64_t id)
{
    tell(keeper, DV_KEEPER_DROP, id, NULL);
}

/* Puts the current descriptors; a session that is gone is not put any more. */
static int run_request(struct dvd_keeper *keeper, const struct dvd_keeper_request *request)
{
    int fds[DV_KEPT_KINDS];

    if (request->op == DV_KEEPER_DROP)
        return say(keeper, DV_KEEPER_DROP, request->id, NULL);
    clear(fds);
    if (!keeper->events->fill(keeper->owner, request->id, fds))
        return 0;
    return say(keeper, DV_KEEPER_PUT, request->id, fds);
}

static void run_requests(struct dvd_keeper *keeper)
{
    int error = 0;

    for (int i = 0; i < DV_MAX_BATCH && keeper->requests && error == 0; i++) {
        error = run_request(keeper, keeper->requests);
        if (error == 0)
            remove_request(keeper, keeper->requests);
    }
    if (error == 0 || error == -EAGAIN)
        error = wait_until_it_reads(keeper);
    if (error < 0)
        keeper_lost(keeper);
}

/* ---- its end ---- */

static void let_go(struct dvd_keeper *keeper)
{
    while (keeper->requests)
        remove_request(keeper, keeper->requests);
    keeper->patience_timer = sd_event_source_disable_unref(keeper->patience_timer);
    keeper->io = sd_event_source_disable_unref(keeper->io);
    dv_close_fd(&keeper->fd);
}

/* Queues the first request. Others queue behind it and are sent in batches: there can be many sessions. */
static void put_everything(struct dvd_keeper *keeper)
{
    if (add_request(keeper, DV_KEEPER_PUT, DV_KEEPER_DAEMON) < 0)
        keeper_lost(keeper);
    else
        keeper->events->put_all(keeper->owner);
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    (void)source;
    (void)fd;
    if (events & ~(uint32_t)EPOLLOUT)
        keeper_lost(userdata); /* the keeper sends nothing by itself */
    else
        run_requests(userdata);
    return 0;
}

static int watch(struct dvd_keeper *keeper)
{

    if (fcntl(keeper->fd, F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    return sd_event_add_io(keeper->event, &keeper->io, keeper->fd, EPOLLIN, on_io, keeper);
}

static int replace(struct dvd_keeper *keeper)
{

    keeper->fd = start_keeper(keeper);
    return keeper->fd < 0 ? keeper->fd : watch(keeper);
}

static int on_retry(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_keeper *keeper = userdata;

    (void)source;
    (void)usec;
    if (keeper->fd < 0 && !keeper->is_ending)
        replace_or_retry(keeper);
    return 0;
}

static void retry_later(struct dvd_keeper *keeper)
{

    keeper->retry_timer = sd_event_source_disable_unref(keeper->retry_timer);
    if (sd_event_add_time_relative(keeper->event, &keeper->retry_timer, CLOCK_MONOTONIC, DV_KEEPER_TIMEOUT_US,
                                   10 * DV_MS, on_retry, keeper) < 0)
        dv_error("the keeper cannot be replaced: sessions will not outlive this daemon");
}

static void warn_of_no_keeper(int error)
{
    dv_warning("cannot start a keeper: %s; until there is one, sessions do not outlive this daemon", strerror(-error));
}

static void replace_or_retry(struct dvd_keeper *keeper)
{
    int error = replace(keeper);

    if (error < 0) {
        let_go(keeper);
        warn_of_no_keeper(error);
        retry_later(keeper);
        return;
    }
    dv_warning("the keeper has ended or does not answer: there is a new one");
    put_everything(keeper);
}

/* The keeper has ended, or does not read. If that is soon after its start, it is replaced later. */
static void keeper_lost(struct dvd_keeper *keeper)
{
    bool at_once = dv_now() / DV_NS_PER_US - keeper->started_us < DV_KEEPER_TIMEOUT_US;

    let_go(keeper);
    if (keeper->is_ending)
        return;
    if (at_once)
        retry_later(keeper);
    else
        replace_or_retry(keeper);
}

/* ---- descriptors of an earlier daemon ---- */

static bool add_found(struct dvd_keeper *keeper, const struct dv_keeper_message *m, const int *fds, int count)
{
    struct dvd_kept *kept;

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

static int list_found(struct dvd_keeper *keeper)
{
    int error = say(keeper, DV_KEEPER_LIST, 0, NULL);

    while (error == 0) {
        struct dv_keeper_message m;
        int fds[DV_KEPT_KINDS], count;
        ssize_t length = dv_fd_receive(keeper->fd, &m, sizeof m, fds, DV_KEPT_KINDS, &count, 0);
        bool sound = length == sizeof m && m.magic == DV_KEEPER_MAGIC && m.version == DV_KEEPER_VERSION;
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

struct dvd_kept *dvd_keeper_found(struct dvd_keeper *keeper, uint64_t id)
{
    struct dvd_kept *kept;

    HASH_FIND(hh, keeper->found, &id, sizeof id, kept);
    return kept;
}

int dvd_keeper_take(struct dvd_keeper *keeper, int kind)
{
    struct dvd_kept *kept = dvd_keeper_found(keeper, DV_KEEPER_DAEMON);
    return kept ? dv_take_fd(&kept->fds[kind]) : -1;
}

static void close_found(struct dvd_keeper *keeper)
{
    struct dvd_kept *kept, *next;

    HASH_ITER (hh, keeper->found, kept, next) {
        HASH_DEL(keeper->found, kept);
        for (int i = 0; i < DV_KEPT_KINDS; i++)
            dv_close_fd(&kept->fds[i]);
        free(kept);
    }
}

/* The state file has no record of it. If its client still waits for its welcome, the session had not
 * begun: the client will ask again, and needs no worker now. Otherwise the file is lost or damaged, and
 * the worker goes on without arbitration, as it does without a daemon. */
static void drop_unknown(struct dvd_keeper *keeper, const struct dvd_kept *kept)
{
    struct pollfd client = {.fd = kept->fds[DV_KEPT_CLIENT]};
    bool waits = client.fd >= 0 && poll(&client, 1, 0) == 0;

    if (kept->fds[DV_KEPT_WORKER] >= 0 && waits)
        syscall(SYS_pidfd_send_signal, kept->fds[DV_KEPT_WORKER], SIGKILL, NULL, 0);
    dvd_keeper_drop(keeper, kept->id);
}

void dvd_keeper_drop_found(struct dvd_keeper *keeper)
{
    for (struct dvd_kept *kept = keeper->found; kept; kept = kept->hh.next)
        if (kept->id != DV_KEEPER_DAEMON && !keeper->events->is_known(keeper->owner, kept->id))
            drop_unknown(keeper, kept);
    close_found(keeper);
}

/* ---- life ---- */

void dvd_keeper_init(struct dvd_keeper *keeper)
{
    keeper->fd = -1;
}

void dvd_keeper_start(struct dvd_keeper *keeper)
{

    keeper->fd = connect_keeper(keeper);
    if (keeper->fd >= 0) {
        int error = list_found(keeper);
        if (error == 0)
            return;
        dv_warning("the keeper of an earlier daemon does not hand over its descriptors (%s): running "
                   "sessions go on without arbitration",
                   strerror(-error));
        close_found(keeper);
        dv_close_fd(&keeper->fd);
    }
    keeper->fd = start_keeper(keeper);
    if (keeper->fd < 0) {
        warn_of_no_keeper(keeper->fd);
        keeper->fd = -1;
    }
}

void dvd_keeper_watch(struct dvd_keeper *keeper)
{

    if (keeper->fd < 0)
        retry_later(keeper);
    else if (watch(keeper) < 0)
        dv_warning("cannot watch the keeper");
}

void dvd_keeper_quit(struct dvd_keeper *keeper)
{
    keeper->is_ending = true;
    say(keeper, DV_KEEPER_QUIT, 0, NULL);
    let_go(keeper);
}

void dvd_keeper_fini(struct dvd_keeper *keeper)
{
    keeper->retry_timer = sd_event_source_disable_unref(keeper->retry_timer);
    close_found(keeper);
    let_go(keeper);
}
