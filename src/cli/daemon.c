/* Finding and starting daemons (see daemon.h). A private daemon outlives the program it was started
 * for, so it is detached from it in every way: session, parent, descriptors, directory. */
#include "src/cli/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/base/cleanup.h"
#include "src/cli/cli.h"
#include "src/cli/http.h"

#define DV_CONFIG_SYSTEM "/etc/divvy/divvy.yaml"
#define IDLE_EXIT "60" /* seconds */
#define READY_TIMEOUT_MS 30000
#define LOCK_TRIES 300
#define LOCK_PAUSE_US 100000
#define LOG_NAME "divvyd.log"
#define LOG_MAX_BYTES (1 << 20)
#define LOG_TAIL_BYTES 1500
#define READY_FD 3

static bool answers(const char *directory, const char *socket_name, int socket_type, int *error)
{
    int fd = dv_rundir_connect(directory, socket_name, socket_type);

    if (fd < 0) {
        *error = fd;
        return false;
    }
    close(fd);
    return true;
}

static void copy_directory(char directory[DV_RUNDIR_BYTES], const char *from)
{
    snprintf(directory, DV_RUNDIR_BYTES, "%s", from);
}

int dv_daemon_find(const char *wanted, const char *socket_name, int socket_type, char directory[DV_RUNDIR_BYTES])
{
    int error = -ENOENT;

    if (!wanted)
        wanted = secure_getenv("DIVVY_DIR");
    if (wanted && wanted[0]) {
        copy_directory(directory, wanted);
        if (answers(wanted, socket_name, socket_type, &error))
            return 0;
        return error == -ENOENT || error == -ECONNREFUSED ? -EHOSTDOWN : error;
    }
    copy_directory(directory, DV_RUNDIR_SYSTEM);
    if (answers(directory, socket_name, socket_type, &error))
        return 0;
    int system_error = error;
    if (dv_rundir_user(directory, DV_RUNDIR_BYTES) == 0 && dv_rundir_check(directory) == 0 &&
        answers(directory, socket_name, socket_type, &error))
        return 0;
    if (system_error == -EACCES) { /* a daemon runs, but refuses this user */
        copy_directory(directory, DV_RUNDIR_SYSTEM);
        return -EACCES;
    }
    return -ENOENT;
}

/* A daemon that is being restarted is away for less than this. */
#define RESTART_MS 2000

/* Whether the kernel lets only members of a group open sessions, and this user is none. */
static bool find_users(const char *directory, const struct group **group)
{
    char path[DV_RUNDIR_BYTES + 32];
    struct stat info;

    snprintf(path, sizeof path, "%s/%s", directory, DV_RUNDIR_SESSION_SOCKET);
    if (access(path, W_OK) == 0 || errno != EACCES || stat(path, &info) < 0 || info.st_mode & S_IWOTH)
        return false;
    *group = getgrgid(info.st_gid);
    return *group != NULL;
}

void dv_daemon_explain(int error, const char *directory)
{
    const struct group *group;

    if (error == -ENOENT)
        dv_cli_error("no divvyd is running, neither the system's (" DV_RUNDIR_SYSTEM
                     ") nor your own, so there is nothing to show or to change. "
                     "`divvy run -- PROGRAM` starts one for the program; DIVVY_DIR=DIR names one "
                     "that runs elsewhere.");
    else if (error == -EHOSTDOWN)
        dv_cli_error("no divvyd answers in %s, the directory that DIVVY_DIR or --daemon names. Start "
                     "it with `divvyd --user --dir %s`, or leave the directory out to use the "
                     "system's daemon or your own.",
                     directory, directory);
    else if (error == -EPERM)
        dv_cli_error("the daemon in %s is not used: it or its directory belongs neither to root nor to you, "
                     "or others can write to the directory.",
                     directory);
    else if (error == -EACCES && find_users(directory, &group))
        dv_cli_error("the divvyd in %s lets only members of the group %s use its devices (session-group in its "
                     "configuration, or the unit of its socket). Ask the operator to add you to the group, then log "
                     "in again.",
                     directory, group->gr_name);
    else if (error == -EACCES)
        dv_cli_error("the divvyd in %s denies you access. Run this as root or as a member of its "
                     "operator group, or ask the operator to "
                     "set `tenants-see-own: yes` in its configuration.",
                     directory);
    else
        dv_cli_error("cannot reach the divvyd in %s: %s", directory, strerror(-error));
}

/* The note of a daemon that has ended. */
struct note {
    long long ended; /* seconds since 1970 */
    unsigned sessions, wait_s;
};

static bool read_note(const char *directory, struct note *note)
{
    char path[DV_RUNDIR_BYTES + 16];

    snprintf(path, sizeof path, "%s/" DV_RUNDIR_LEFT, directory);
    FILE *file = fopen(path, "re");
    bool is_noted = file && fscanf(file, "%lld %u %u", &note->ended, &note->sessions, &note->wait_s) == 3;
    if (file)
        fclose(file);
    return is_noted;
}

bool dv_daemon_explain_left(const char *directory)
{
    char when[32] = "", until[32] = "";
    struct note note = {0};
    char start[DV_RUNDIR_BYTES + 32];
    bool is_noted = read_note(directory, &note);

    if (strcmp(directory, DV_RUNDIR_SYSTEM) == 0)
        snprintf(start, sizeof start, "systemctl start divvyd");
    else
        snprintf(start, sizeof start, "divvyd --user --dir %s", directory);
    for (int ms = 0; ms < RESTART_MS; ms += 20) {
        if (!is_noted && dv_rundir_is_served(directory))
            return false;
        poll(NULL, 0, 20);
        is_noted = read_note(directory, &note);
    }
    if (!is_noted) {
        dv_cli_error("the divvyd in %s has ended without leaving a note; running programs wait for the next one. Start "
                     "it: %s",
                     directory, start);
        return true;
    }
    time_t at = (time_t)note.ended, last = (time_t)(note.ended + note.wait_s);
    struct tm local;
    if (localtime_r(&at, &local))
        strftime(when, sizeof when, "%H:%M:%S", &local);
    if (localtime_r(&last, &local))
        strftime(until, sizeof until, "%H:%M:%S", &local);
    dv_cli_error("the divvyd in %s ended at %s and left %u program%s running, which wait%s until %s for the next one. "
                 "Start it: %s",
                 directory, when, note.sessions, note.sessions == 1 ? "" : "s", note.sessions == 1 ? "s" : "", until,
                 start);
    return true;
}

int dv_daemon_find_file(const char *const *beside, const char *installed, char *path, size_t bytes)
{
    char self[PATH_MAX];
    char joined[PATH_MAX * 2];
    char resolved[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    if (length > 0) {
        self[length] = '\0';
        *(strrchr(self, '/') + 1) = '\0';
        for (; *beside; beside++) {
            snprintf(joined, sizeof joined, "%s%s", self, *beside);
            if (realpath(joined, resolved) && (size_t)snprintf(path, bytes, "%s", resolved) < bytes)
                return 0;
        }
    }
    if (installed && realpath(installed, resolved) && (size_t)snprintf(path, bytes, "%s", resolved) < bytes)
        return 0;
    return -ENOENT;
}

/* ---- a private daemon ---- */

static int take_start_lock(const char *directory)
{
    char path[DV_RUNDIR_BYTES + 32];

    snprintf(path, sizeof path, "%s/start.lock", directory);
    DV_AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return dv_take_fd(&fd);
        if (errno != EWOULDBLOCK)
            return -errno;
        usleep(LOCK_PAUSE_US);
    }
    return -ETIMEDOUT;
}

static int open_log(const char *directory, char *path, size_t bytes)
{
    struct stat info;

    snprintf(path, bytes, "%s/" LOG_NAME, directory);
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &info) == 0 && info.st_size > LOG_MAX_BYTES && ftruncate(fd, 0) < 0)
        info.st_size = 0; /* a long log is no reason to fail */
    return fd;
}

/* In the grandchild: becomes divvyd. */
static _Noreturn void exec_daemon(const char *program, const char *directory, int log_fd, int ready_fd)
{
    char ready_number[16];
    sigset_t none;

    signal(SIGHUP, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null_fd, STDIN_FILENO);
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    if (ready_fd == READY_FD)
        fcntl(ready_fd, F_SETFD, 0);
    else
        dup2(ready_fd, READY_FD);
    /* A shell that waits for the end of the program's output must not wait for the daemon. */
    syscall(SYS_close_range, READY_FD + 1, ~0U, 0);
    if (chdir("/") < 0)
        _exit(DV_EXIT_OWN);
    snprintf(ready_number, sizeof ready_number, "%d", READY_FD);
    /* They are for the program, or for its service, whose files and whose state are none of the daemon's. */
    unsetenv("DIVVY_DIR");
    unsetenv("STATE_DIRECTORY");
    unsetenv("JOURNAL_STREAM");
    unsetenv("NOTIFY_SOCKET");
    execlp(program, "divvyd", "--user", "--dir", directory, "--idle-exit", IDLE_EXIT, "--ready-fd", ready_number,
           (char *)NULL);
    dprintf(STDERR_FILENO, "divvyd: cannot execute %s: %s\n", program, strerror(errno));
    _exit(DV_EXIT_NOT_FOUND);
}

static void show_log_tail(int log_fd)
{
    char text[LOG_TAIL_BYTES + 1];
    struct stat info;

    if (fstat(log_fd, &info) < 0)
        return;
    off_t start = info.st_size > LOG_TAIL_BYTES ? info.st_size - LOG_TAIL_BYTES : 0;
    ssize_t length = pread(log_fd, text, LOG_TAIL_BYTES, start);
    if (length <= 0)
        return;
    text[length] = '\0';
    const char *first_line = start > 0 && strchr(text, '\n') ? strchr(text, '\n') + 1 : text;
    fputs(first_line, stderr);
}

static bool wait_ready(int ready_fd)
{
    struct pollfd ready = {.fd = ready_fd, .events = POLLIN};
    char byte;

    int count;
    do
        count = poll(&ready, 1, READY_TIMEOUT_MS);
    while (count < 0 && errno == EINTR);
    return count > 0 && read(ready_fd, &byte, 1) == 1;
}

/* Starts the daemon from a child that ends at once: the program that later runs in this process
 * must not have a child that it did not start. */
static int spawn_daemon(const char *directory)
{
    static const char *const beside[] = {"divvyd", "../arbiter/divvyd", "../sbin/divvyd", NULL};
    char program[PATH_MAX];
    char log_path[DV_RUNDIR_BYTES + 32];
    int ready_pipe[2];

    if (dv_daemon_find_file(beside, DIVVY_SBIN "/divvyd", program, sizeof program) < 0)
        snprintf(program, sizeof program, "divvyd"); /* found through PATH */
    DV_AUTO_CLOSE int log_fd = open_log(directory, log_path, sizeof log_path);
    if (log_fd < 0 || pipe2(ready_pipe, O_CLOEXEC) < 0) {
        dv_cli_error("cannot start a daemon of your own in %s: %s", directory, strerror(errno));
        return DV_EXIT_OWN;
    }
    DV_AUTO_CLOSE int ready_fd = ready_pipe[0];
    off_t log_start = lseek(log_fd, 0, SEEK_END);
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() == 0)
            exec_daemon(program, directory, log_fd, ready_pipe[1]);
        _exit(0);
    }
    close(ready_pipe[1]);
    if (child > 0)
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
    if (child > 0 && wait_ready(ready_fd))
        return DV_EXIT_OK;
    dv_cli_error("no divvyd was running and one of your own did not start; its log (%s) says:", log_path);
    if (lseek(log_fd, 0, SEEK_END) > log_start)
        show_log_tail(log_fd);
    else
        fprintf(stderr, "(nothing; is %s the right program?)\n", program);
    return DV_EXIT_OWN;
}

/* The daemon is the user's own and may end when idle: ask it to stay for this process, which is
 * about to become the program. Returns 0, -ETIMEDOUT after a message when it runs but does not answer, or another
 * negative number when there is none (any more). */
static int hold(const char *directory)
{
    DV_AUTO_FREE char *body = NULL;
    char error[256];

    if (!dv_rundir_is_served(directory))
        return -ENOENT;
    int status = dv_http_request(directory, "POST", "/v1/hold", DV_HTTP_CHANGE_PATIENCE_S, &body, error, sizeof error);
    if (status == -ETIMEDOUT)
        dv_http_explain(status, directory, error);
    return status == 200 ? 0 : status == -ETIMEDOUT ? status : -EIO;
}

static int start_own(char directory[DV_RUNDIR_BYTES])
{
    if (dv_rundir_user(directory, DV_RUNDIR_BYTES) < 0) {
        dv_cli_error("the path in XDG_RUNTIME_DIR is too long for sockets");
        return DV_EXIT_OWN;
    }
    int status = dv_rundir_make(directory, 0700);
    if (status < 0) {
        dv_cli_error("no divvyd is running, and one of your own cannot be started in %s: %s", directory,
                     status == -EPERM    ? "the directory belongs to another user"
                     : status == -EACCES ? "other users can write to the directory"
                                         : strerror(-status));
        return DV_EXIT_OWN;
    }
    DV_AUTO_CLOSE int lock_fd = take_start_lock(directory);
    if (lock_fd < 0) {
        dv_cli_error("cannot lock %s/start.lock: %s", directory, strerror(-lock_fd));
        return DV_EXIT_OWN;
    }
    status = hold(directory);
    if (status == 0) /* another program has just started one */
        return DV_EXIT_OK;
    if (status == -ETIMEDOUT)
        return DV_EXIT_OWN;
    int code = spawn_daemon(directory);
    if (code == DV_EXIT_OK && hold(directory) < 0) {
        dv_cli_error("the divvyd that was just started in %s does not answer; see %s/" LOG_NAME, directory, directory);
        code = DV_EXIT_OWN;
    }
    return code;
}

/* A user must not take a daemon of its own for the system's. */
static void warn_of_system(void)
{
    if (access(DV_CONFIG_SYSTEM, F_OK) == 0)
        dv_cli_error("the system's divvyd does not run (" DV_CONFIG_SYSTEM
                     " is there), so a daemon of your own is used: "
                     "shares and quotas of the system do not apply");
}

int dv_daemon_find_or_start(const char *wanted, char directory[DV_RUNDIR_BYTES])
{
    char own[DV_RUNDIR_BYTES];
    int error = dv_daemon_find(wanted, DV_RUNDIR_SESSION_SOCKET, SOCK_SEQPACKET, directory);

    if (error == -ENOENT) {
        warn_of_system();
        return start_own(directory);
    }
    if (error < 0) {
        dv_daemon_explain(error, directory);
        return DV_EXIT_OWN;
    }
    bool is_own = dv_rundir_user(own, sizeof own) == 0 && strcmp(own, directory) == 0;
    int status = is_own ? hold(directory) : 0;
    if (status == -ETIMEDOUT)
        return DV_EXIT_OWN;
    return status < 0 ? start_own(directory) : DV_EXIT_OK; /* it has ended meanwhile */
}
