/* The zygote's loop: fork a worker or a probe when divvyd asks, tell divvyd when a child has ended.
 * It has a single thread and never initialises the vendor's driver, so that a child starts with a
 * clean process that has the libraries already loaded. */
#include "src/worker/core/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/base/fd.h"
#include "src/base/log.h"
#include "src/worker/core/runtime.h"
#include "src/worker/core/sandbox.h"
#include "src/worker/core/session.h"
#include "src/worker/core/cache_trim.h"

enum { FD_SHM, FD_CONTROL, FD_TENANT, FD_LOG, FD_CACHE, FD_STORE, FD_COUNT }; /* FD_CACHE can be missing */

/* A child that has not been reaped yet, so that its end can be told by session. */
struct child {
    pid_t pid;
    uint64_t session;
};

struct zygote {
    const struct dvk_runtime_api *api;
    int socket_fd;
    int signal_fd;
    bool of_system;   /* see dvk_zygote_run */
    pid_t probe_pid;  /* 0: none is running */
    bool probe_again; /* asked for while one was running, with: */
    struct dv_sandbox_settings next_sandbox;
    int next_cache_fd;
    struct child *children;
    size_t child_count;
    size_t child_capacity;
    struct dv_zygote_answer answer; /* large, so not on the stack */
};

/* Blocks while divvyd is busy: it always reads in the end, or its socket closes. */
static bool send_answer(struct zygote *zygote, int pidfd)
{
    zygote->answer.magic = DV_WIRE_MAGIC;
    int error = dv_fd_send(zygote->socket_fd, &zygote->answer, dv_zygote_answer_bytes(&zygote->answer), &pidfd,
                           pidfd >= 0 ? 1 : 0);
    if (error < 0 && error != -EPIPE)
        dv_error("cannot answer divvyd: %s", strerror(-error));
    return error >= 0;
}

static void answer_failure(struct zygote *zygote, uint64_t session, int error, const char *text)
{
    zygote->answer = (struct dv_zygote_answer){.event = DV_ZYGOTE_FAILED, .session = session, .status = error};
    snprintf(zygote->answer.text, sizeof zygote->answer.text, "%s", text);
    send_answer(zygote, -1);
}

static void answer_probe_failure(struct zygote *zygote, const char *text, bool unsandboxed)
{
    zygote->answer = (struct dv_zygote_answer){.event = DV_ZYGOTE_PROBED, .unsandboxed = unsandboxed};
    snprintf(zygote->answer.text, sizeof zygote->answer.text, "%s", text);
    send_answer(zygote, -1);
}

/* Undoes the settings of the zygote in a freshly forked child. */
static void become_child(const char *name)
{
    sigset_t none;

    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL); /* fails harmlessly for the few that cannot change */
    signal(SIGPIPE, SIG_IGN);    /* the reader of its log may end before it does */
    signal(SIGHUP, SIG_IGN);     /* divvyd may end while another worker is stopped */
    /* A signal or a priority for a process group reaches its members in all pid namespaces. */
    setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_NAME, name);
    dv_log_set_name(name);

    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd >= 0) {
        dup2(null_fd, STDIN_FILENO);
        close(null_fd);
    }
}

/* The report of the process between zygote and worker to the zygote. */
struct fork_report {
    pid_t pid; /* or a negative errno */
    char text[DV_MAX_MESSAGE_TEXT - 64];
};

/* Forks a child; with a sandbox as the first of a pid namespace, which takes a process in between. It
 * is the zygote's child all the same, because the zygote adopts orphans. Returns as fork(2), or a
 * negative errno with words. */
static pid_t fork_child(const struct dv_sandbox_settings *sandbox, char *text, size_t bytes)
{
    struct fork_report report = {.pid = -EIO};
    int ends[2];

    if (!sandbox->on) {
        pid_t pid = fork();
        if (pid < 0)
            snprintf(text, bytes, "cannot fork: %s", strerror(errno));
        return pid < 0 ? -errno : pid;
    }
    if (pipe2(ends, O_CLOEXEC) < 0) {
        snprintf(text, bytes, "cannot make a pipe: %s", strerror(errno));
        return -errno;
    }
    pid_t between = fork();
    if (between < 0) {
        report.pid = -errno;
        snprintf(report.text, sizeof report.text, "cannot fork: %s", strerror(errno));
    }
    if (between == 0) {
        report.pid = dvk_sandbox_leave_host(sandbox, report.text, sizeof report.text);
        if (report.pid == 0) {
            report.pid = fork();
            if (report.pid == 0) {
                close(ends[0]);
                close(ends[1]);
                return 0;
            }
            if (report.pid < 0) {
                report.pid = -errno;
                snprintf(report.text, sizeof report.text, "cannot fork: %s", strerror(errno));
            }
        }
        _exit(write(ends[1], &report, sizeof report) == sizeof report ? 0 : 1);
    }
    close(ends[1]);
    if (between > 0 && read(ends[0], &report, sizeof report) != sizeof report)
        report = (struct fork_report){.pid = -EIO};
    close(ends[0]);
    if (between > 0)
        waitpid(between, NULL, 0);
    if (report.pid < 0)
        snprintf(text, bytes, "%s", report.text[0] ? report.text : "the process that makes a worker's sandbox failed");
    return report.pid;
}

static _Noreturn void run_worker(struct zygote *zygote, const struct dv_zygote_request *request, const int *fds)
{
    char name[16]; /* as long as the kernel keeps */
    struct dvk_worker_start start = {.session = request->session,
                                     .shm_bytes = request->shm_bytes,
                                     .shm_fd = fds[FD_SHM],
                                     .control_fd = fds[FD_CONTROL],
                                     .tenant_pidfd = fds[FD_TENANT],
                                     .sandbox = &request->sandbox,
                                     .cache_fd = fds[FD_CACHE],
                                     .store_fd = fds[FD_STORE],
                                     .store_bytes = request->store_bytes,
                                     .follows = request->store_bytes != 0,
                                     .device_count = request->device_count};

    dup2(fds[FD_LOG], STDERR_FILENO);
    dup2(fds[FD_LOG], STDOUT_FILENO);
    close(fds[FD_LOG]);
    close(zygote->socket_fd);
    close(zygote->signal_fd);
    dv_close_fd(&zygote->next_cache_fd); /* of a probe that is to follow */
    memcpy(start.devices, request->devices, sizeof start.devices);
    snprintf(name, sizeof name, "divvy-w%llu", (unsigned long long)request->session);
    become_child(name);
    _exit(dvk_worker_session_run(&start, zygote->api));
}

/* Not 0: a driver may end the process with that. */
#define PROBE_HAS_ANSWERED 64

static _Noreturn void run_probe(struct zygote *zygote, const struct dv_sandbox_settings *sandbox, int cache_fd)
{
    struct dv_zygote_answer *answer = &zygote->answer;

    close(zygote->signal_fd);
    become_child("divvy-probe");
    alarm(DV_ZYGOTE_PROBE_LIMIT_S);
    *answer = (struct dv_zygote_answer){.event = DV_ZYGOTE_PROBED};
    answer->status = dvk_sandbox_enter(sandbox, cache_fd, answer->text, sizeof answer->text);
    if (answer->status < 0) {
        answer->unsandboxed = sandbox->on && dvk_sandbox_is_refused(answer->status);
        _exit(send_answer(zygote, -1) ? PROBE_HAS_ANSWERED : 1);
    }
    int count =
        zygote->api->probe(answer->devices, DV_MAX_DEVICES, &answer->devices_found, answer->text, sizeof answer->text);
    answer->status = count < 0 ? count : 0;
    answer->device_count = count < 0 ? 0 : (uint32_t)count;
    if (count <= 0 && !answer->text[0])
        snprintf(answer->text, sizeof answer->text, "%s",
                 count < 0 ? strerror(-count) : "the vendors' drivers offer no device");
    _exit(send_answer(zygote, -1) ? PROBE_HAS_ANSWERED : 1);
}

static bool reserve_child(struct zygote *zygote)
{
    if (zygote->child_count < zygote->child_capacity)
        return true;
    size_t capacity = zygote->child_capacity ? zygote->child_capacity * 2 : 64;
    struct child *children = realloc(zygote->children, capacity * sizeof *children);
    if (!children)
        return false;
    zygote->children = children;
    zygote->child_capacity = capacity;
    return true;
}

static void fork_worker(struct zygote *zygote, const struct dv_zygote_request *request, const int *fds)
{
    char text[DV_MAX_MESSAGE_TEXT - 64] = "";

    if (!reserve_child(zygote)) {
        answer_failure(zygote, request->session, -ENOMEM, "no memory for a new worker");
        return;
    }
    pid_t pid = fork_child(&request->sandbox, text, sizeof text);
    if (pid < 0) {
        answer_failure(zygote, request->session, pid, text);
        return;
    }
    if (pid == 0)
        run_worker(zygote, request, fds);

    zygote->children[zygote->child_count++] = (struct child){pid, request->session};
    /* Safe against reuse of the number: only this process can reap the child. */
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) {
        int error = -errno;
        kill(pid, SIGKILL);
        snprintf(text, sizeof text, "cannot watch a new worker: %s", strerror(-error));
        answer_failure(zygote, request->session, error, text);
        return;
    }
    zygote->answer = (struct dv_zygote_answer){.event = DV_ZYGOTE_FORKED, .session = request->session, .pid = pid};
    send_answer(zygote, pidfd);
    close(pidfd);
}

/* Owns the descriptor. */
static void fork_probe(struct zygote *zygote, const struct dv_sandbox_settings *sandbox, int cache_fd)
{
    char text[DV_MAX_MESSAGE_TEXT - 64] = "";

    if (zygote->probe_pid > 0) { /* the running one may have answered already */
        if (zygote->probe_again)
            dv_close_fd(&zygote->next_cache_fd);
        zygote->probe_again = true;
        zygote->next_sandbox = *sandbox;
        zygote->next_cache_fd = cache_fd;
        return;
    }
    pid_t pid = fork_child(sandbox, text, sizeof text);
    if (pid == 0)
        run_probe(zygote, sandbox, cache_fd);
    dv_close_fd(&cache_fd);
    if (pid < 0)
        answer_probe_failure(zygote, text, sandbox->on && dvk_sandbox_is_refused(pid));
    else
        zygote->probe_pid = pid;
}

/* ---- trimming compiled kernels ---- */

/* As the worker user whose directory it is. Returns 0 or a negative errno. */
static int trim_as_user(const struct dv_sandbox_settings *sandbox, int directory_fd, bool all, uint64_t *left)
{
    char text[256];
    int error = sandbox->uid == DV_SANDBOX_SAME_USER ? 0 : dvk_sandbox_become_user(sandbox, text, sizeof text);

    if (error < 0)
        dv_error("cannot trim compiled kernels: %s", text);
    else if (all)
        dvk_cache_empty(directory_fd);
    else
        *left = dvk_cache_trim(directory_fd, sandbox->file_bytes);
    return error;
}

/* The contents are removed as the worker user, the directory itself as divvyd's user, which made it. */
static int remove_directory(const struct dv_sandbox_settings *sandbox, int directory_fd, int parent_fd)
{
    struct stat wanted, found;
    pid_t pid = fork();

    if (pid == 0) {
        alarm(DV_ZYGOTE_TRIM_LIMIT_S);
        _exit(trim_as_user(sandbox, directory_fd, true, NULL) < 0);
    }
    if (pid < 0)
        return -errno;
    waitpid(pid, NULL, 0);
    if (fstat(directory_fd, &wanted) < 0 || fstatat(parent_fd, sandbox->paths, &found, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (wanted.st_dev != found.st_dev || wanted.st_ino != found.st_ino)
        return -ESTALE;
    return unlinkat(parent_fd, sandbox->paths, AT_REMOVEDIR) < 0 ? -errno : 0;
}

#define TRIMMER_NICE 10 /* programs come first */

/* In a process of its own, which answers by itself: a directory can be as large as its tenant likes. One
 * that takes too long is ended without an answer; files that it has removed by then stay removed. */
static void fork_trimmer(struct zygote *zygote, const struct dv_zygote_request *request, const int *fds)
{
    struct dv_zygote_answer *answer = &zygote->answer;
    bool removes = request->op == DV_ZYGOTE_REMOVE;
    uint64_t left = 0;

    if (fork() != 0)
        return;
    close(zygote->signal_fd);
    become_child("divvy-trim");
    alarm(removes ? DV_ZYGOTE_TRIM_LIMIT_S + 2 : DV_ZYGOTE_TRIM_LIMIT_S);
    setpriority(PRIO_PROCESS, 0, TRIMMER_NICE);
    *answer = (struct dv_zygote_answer){.event = DV_ZYGOTE_TRIMMED, .session = request->session};
    answer->status = removes ? remove_directory(&request->sandbox, fds[0], fds[1])
                             : trim_as_user(&request->sandbox, fds[0], false, &left);
    answer->trimmed_kib = left >> 10 < UINT32_MAX ? (uint32_t)(left >> 10) : UINT32_MAX;
    _exit(send_answer(zygote, -1) ? 0 : 1);
}

static bool names_one_entry(const struct dv_sandbox_settings *sandbox)
{
    return sandbox->paths[0] && memchr(sandbox->paths, '\0', sizeof sandbox->paths) && !strchr(sandbox->paths, '/');
}

static bool may_be(const struct zygote *zygote, const struct dv_sandbox_settings *sandbox)
{
    return !zygote->of_system || (sandbox->uid != 0 && sandbox->gid != 0 && sandbox->uid != DV_SANDBOX_SAME_USER &&
                                  sandbox->gid != DV_SANDBOX_SAME_USER);
}

/* Returns false when divvyd is gone. */
static bool serve_request(struct zygote *zygote)
{
    struct dv_zygote_request request = {0};
    int fds[FD_COUNT] = {-1, -1, -1, -1, -1, -1};
    int fd_count;
    ssize_t length = dv_fd_receive(zygote->socket_fd, &request, sizeof request, fds, FD_COUNT, &fd_count, 0);

    if (length == 0 || length == -ECONNRESET)
        return false;
    if (length < 0) {
        dv_error("cannot read a request: %s", strerror((int)-length));
        return length == -EMSGSIZE;
    }
    if (length < (ssize_t)offsetof(struct dv_zygote_request, devices) || request.magic != DV_WIRE_MAGIC ||
        request.device_count > DV_MAX_DEVICES || (size_t)length != dv_zygote_request_bytes(&request))
        dv_error("ignored an invalid request of %zd bytes", length);
    else if (!dvk_sandbox_is_sound(&request.sandbox) || !may_be(zygote, &request.sandbox))
        answer_failure(zygote, request.session, -EPROTO, "invalid sandbox settings");
    else if (request.op == DV_ZYGOTE_PROBE)
        fork_probe(zygote, &request.sandbox, fd_count ? dv_take_fd(&fds[0]) : -1);
    else if ((request.op == DV_ZYGOTE_TRIM && fd_count == 1) ||
             (request.op == DV_ZYGOTE_REMOVE && fd_count == 2 && names_one_entry(&request.sandbox)))
        fork_trimmer(zygote, &request, fds);
    else if (request.op != DV_ZYGOTE_FORK || fd_count < FD_CACHE + (request.store_bytes != 0))
        answer_failure(zygote, request.session, -EPROTO, "invalid request");
    else {
        if (request.store_bytes && fd_count == FD_STORE) /* there is no cache */
            fds[FD_STORE] = dv_take_fd(&fds[FD_CACHE]);
        fork_worker(zygote, &request, fds);
    }
    for (int i = 0; i < FD_COUNT; i++)
        dv_close_fd(&fds[i]);
    return true;
}

static void tell_probe_end(struct zygote *zygote, int status)
{
    char text[128];

    if (WIFEXITED(status) && WEXITSTATUS(status) == PROBE_HAS_ANSWERED)
        return;
    int sandboxed_signal = WIFEXITED(status) ? WEXITSTATUS(status) - DV_SANDBOX_SIGNAL_BASE : 0;
    if (sandboxed_signal == SIGALRM || (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM))
        snprintf(text, sizeof text, "the vendor's driver did not list its devices within %d s",
                 DV_ZYGOTE_PROBE_LIMIT_S);
    else if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "the vendor's driver crashed (SIG%s) while listing its devices",
                 sigabbrev_np(WTERMSIG(status)) ? sigabbrev_np(WTERMSIG(status)) : "?");
    else
        snprintf(text, sizeof text, "the vendor's driver ended the process (code %d) while listing its devices",
                 WEXITSTATUS(status));
    answer_probe_failure(zygote, text, false);
}

static void tell_worker_end(struct zygote *zygote, pid_t pid, int status)
{
    for (size_t i = 0; i < zygote->child_count; i++) {
        if (zygote->children[i].pid != pid)
            continue;
        zygote->answer = (struct dv_zygote_answer){
            .event = DV_ZYGOTE_EXITED, .session = zygote->children[i].session, .pid = pid, .status = status};
        zygote->children[i] = zygote->children[--zygote->child_count];
        send_answer(zygote, -1);
        return;
    }
}

static void reap_children(struct zygote *zygote)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;

    while (read(zygote->signal_fd, &info, sizeof info) > 0)
        ; /* one signal may stand for several children */
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != zygote->probe_pid) {
            tell_worker_end(zygote, pid, status);
            continue;
        }
        tell_probe_end(zygote, status);
        zygote->probe_pid = 0;
        if (zygote->probe_again) {
            zygote->probe_again = false;
            fork_probe(zygote, &zygote->next_sandbox, dv_take_fd(&zygote->next_cache_fd));
        }
    }
}

static int open_signals(void)
{
    sigset_t child_signal;

    sigemptyset(&child_signal);
    sigaddset(&child_signal, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &child_signal, NULL) < 0)
        return -errno;
    int fd = signalfd(-1, &child_signal, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

int dvk_zygote_run(int socket_fd, bool of_system, const struct dvk_runtime_api *api)
{
    static struct zygote zygote;

    dv_log_set_name("zygote");
    prctl(PR_SET_NAME, "divvy-zygote");
    fcntl(socket_fd, F_SETFD, FD_CLOEXEC);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* see fork_child */
    zygote.api = api;
    zygote.next_cache_fd = -1;
    zygote.socket_fd = socket_fd;
    zygote.of_system = of_system;
    zygote.signal_fd = open_signals();
    if (zygote.signal_fd < 0) {
        dv_error("cannot watch for the end of workers: %s", strerror(-zygote.signal_fd));
        return 1;
    }
    int error = api->preload();
    if (error < 0) /* workers then load the libraries themselves, or say why they cannot */
        dv_warning("cannot load the vendors' libraries ahead of time: %s", strerror(-error));

    for (;;) {
        struct pollfd ready[] = {{.fd = zygote.socket_fd, .events = POLLIN},
                                 {.fd = zygote.signal_fd, .events = POLLIN}};
        if (poll(ready, 2, -1) < 0 && errno != EINTR) {
            dv_error("cannot wait for requests: %s", strerror(errno));
            return 1;
        }
        if (ready[1].revents)
            reap_children(&zygote);
        if (ready[0].revents && !serve_request(&zygote))
            return 0;
    }
}
