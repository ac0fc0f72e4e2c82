/* The launcher's loop, and divvyd's side of it (see launcher.h). */
#include "src/arbiter/workers/launcher.h"

#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/system/rights.h"
#include "src/base/cleanup.h"
#include "src/base/fd.h"

enum { FD_SOCKET, FD_LOG, FD_COUNT };

/* A child of divvyd, not of the launcher, so that divvyd learns how its zygote ends. */
static pid_t fork_sibling(void)
{
    return (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
}

static _Noreturn void run(int fd, dvd_launcher_become *become, const void *argument, bool of_system)
{
    uint32_t wish;
    int fds[FD_COUNT], count;

    setpgid(0, 0); /* a terminal's interrupt is for divvyd */
    signal(SIGHUP, SIG_IGN);
    prctl(PR_SET_NAME, "divvy-launcher");
    if (fd != STDERR_FILENO + 1)
        fd = dup2(fd, STDERR_FILENO + 1);
    syscall(SYS_close_range, STDERR_FILENO + 2, ~0U, 0);
    /* "root" of a user's namespace needs more rights to make another one, and has none outside */
    if (fd < 0 || (of_system && dvd_rights_keep(DV_RIGHTS_LAUNCHER) < 0))
        _exit(1);
    while (dv_fd_receive(fd, &wish, sizeof wish, fds, FD_COUNT, &count, 0) > 0) {
        int32_t pid = count == FD_COUNT ? fork_sibling() : -1;
        if (pid == 0) {
            become(argument, fds[FD_SOCKET], fds[FD_LOG]);
            _exit(127);
        }
        if (pid < 0)
            pid = count == FD_COUNT ? -errno : -EPROTO;
        while (count > 0)
            close(fds[--count]);
        DV_AUTO_CLOSE int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
        dv_fd_send(fd, &pid, sizeof pid, &pidfd, pidfd >= 0 ? 1 : 0);
    }
    _exit(0);
}

int dvd_launcher_start(struct dvd_launcher *launcher, dvd_launcher_become *become, const void *argument, bool of_system)
{
    struct timeval patience = {.tv_sec = DV_LAUNCH_TIMEOUT_US / DV_S};
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    DV_AUTO_CLOSE int ours = pair[0];
    DV_AUTO_CLOSE int theirs = pair[1];
    setsockopt(ours, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        run(theirs, become, argument, of_system);
    *launcher = (struct dvd_launcher){.fd = dv_take_fd(&ours), .pid = pid};
    return 0;
}

int dvd_launcher_launch(const struct dvd_launcher *launcher, int socket_fd, int log_fd, pid_t *pid)
{
    const int fds[FD_COUNT] = {[FD_SOCKET] = socket_fd, [FD_LOG] = log_fd};
    uint32_t wish = 1;
    int32_t answer;
    int pidfd = -1, count = 0;

    int error = dv_fd_send(launcher->fd, &wish, sizeof wish, fds, FD_COUNT);
    if (error < 0)
        return error;
    ssize_t length = dv_fd_receive(launcher->fd, &answer, sizeof answer, &pidfd, 1, &count, 0);
    if (length != sizeof answer)
        return length < 0 ? (int)length : -EPIPE; /* it is gone; only a restart of divvyd helps */
    if (answer > 0 && count == 0) {
        kill(answer, SIGKILL);
        waitpid(answer, NULL, 0);
        return -EMFILE;
    }
    *pid = answer;
    return answer > 0 ? pidfd : answer;
}

void dvd_launcher_stop(struct dvd_launcher *launcher)
{
    if (launcher->fd < 0)
        return;
    dv_close_fd(&launcher->fd);
    waitpid(launcher->pid, NULL, 0);
}
