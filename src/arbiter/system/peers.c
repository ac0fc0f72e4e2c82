/* The process at the other end of a socket (see peers.h). */
#include "src/arbiter/system/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/arbiter/config/config.h"
#include "src/arbiter/limits.h"
#include "src/base/cleanup.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* ---- processes ---- */

bool dvd_process_is_alive(int pidfd)
{
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 0;
}

static bool runs_as(pid_t pid, uid_t uid)
{
    char path[64], line[256];
    unsigned effective;
    bool same = false;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Uid: %*u %u", &effective) == 1)
            same = effective == uid;
    if (file)
        fclose(file);
    return same;
}

/* Newer kernels give the process itself. A pid alone could be another process by now: then it has at
 * least the same user. */
static int open_peer(int fd, pid_t pid, uid_t uid)
{
    int pidfd = -1;
    socklen_t bytes = sizeof pidfd;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) == 0) {
        fcntl(pidfd, F_SETFD, FD_CLOEXEC);
        return pidfd;
    }
    if (errno == ENOPROTOOPT && pid > 0)
        pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd >= 0 && !runs_as(pid, uid)) {
        dv_close_fd(&pidfd);
        errno = ESRCH;
    }
    return pidfd;
}

int dvd_peer_open_process(int fd, pid_t pid, uid_t uid)
{
    int pidfd = open_peer(fd, pid, uid);

    if (pidfd >= 0 && !dvd_process_is_alive(pidfd)) { /* another process has its socket now */
        dv_close_fd(&pidfd);
        errno = ESRCH;
    }
    return pidfd;
}

bool dvd_process_is_stopped(pid_t pid)
{
    char path[64], text[512];

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    DV_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (length <= 0)
        return false;
    text[length] = '\0';
    const char *state = strrchr(text, ')'); /* the name before it can contain anything */
    return state && (strncmp(state, ") T", 3) == 0 || strncmp(state, ") t", 3) == 0);
}

/* ---- rights ---- */

bool dvd_peer_is_in_group(int fd, gid_t own_group, gid_t group)
{
    gid_t groups[DV_MAX_GROUPS];
    socklen_t bytes = sizeof groups;

    if (own_group == group)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0)
        return false;
    for (size_t i = 0; i < bytes / sizeof groups[0]; i++)
        if (groups[i] == group)
            return true;
    return false;
}

/* Reads a file of a process in /proc; false when it is empty or does not fit. */
static bool read_of(pid_t pid, const char *name, char *text, size_t bytes)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    DV_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, bytes - 1) : -1;
    text[length > 0 ? length : 0] = '\0';
    return length > 0 && (size_t)length < bytes - 1;
}

/* In a pid namespace below ours it has a second pid. */
static bool is_in_our_pid_namespace(pid_t pid)
{
    char text[4096];
    unsigned ours, below;

    if (pid <= 0 || !read_of(pid, "status", text, sizeof text))
        return false;
    const char *numbers = strstr(text, "\nNSpid:");
    return numbers && sscanf(numbers, "\nNSpid: %u%*[\t]%u", &ours, &below) == 1;
}

/* Reading the namespace itself needs the right to trace every process, which divvyd does not have. A user
 * namespace maps its users to those outside: a process with our map is in ours, or in an equivalent one that
 * root has made. */
static bool has_our_users(pid_t pid)
{
    static const char *const maps[] = {"uid_map", "gid_map"};
    char theirs[4096], ours[4096];

    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        if (!read_of(pid, maps[i], theirs, sizeof theirs) || !read_of(getpid(), maps[i], ours, sizeof ours) ||
            strcmp(theirs, ours) != 0)
            return false;
    return true;
}

bool dvd_peer_is_of_this_machine(int fd, const struct ucred *peer)
{
    if (!is_in_our_pid_namespace(peer->pid) || !has_our_users(peer->pid))
        return false;
    /* checks that the pid is still the peer's */
    DV_AUTO_CLOSE int pidfd = dvd_peer_open_process(fd, peer->pid, peer->uid);
    return pidfd >= 0;
}

bool dvd_peer_is_operator(const struct dvd_config *config, int fd, const struct ucred *peer)
{
    return (peer->uid == 0 || peer->uid == config->owner ||
            (config->has_operator_group && dvd_peer_is_in_group(fd, peer->gid, config->operator_group))) &&
           dvd_peer_is_of_this_machine(fd, peer);
}

/* Workers are members of the groups that drivers need. A user who is no member must not gain their rights
 * through a worker. */
static bool lacks_a_workers_group(const struct dvd_config_file *file, int fd, const struct ucred *peer,
                                  const char **name)
{
    for (uint64_t i = 0; file && i < file->devices_count; i++) {
        const struct dvd_sandbox_rule *rule = file->devices[i].sandbox;
        for (uint64_t j = 0; rule && j < rule->groups_count; j++)
            if (!dvd_peer_is_in_group(fd, peer->gid, rule->gids[j])) {
                *name = rule->groups[j];
                return true;
            }
    }
    return false;
}

int dvd_peer_may_open_sessions(const struct dvd_config *config, int fd, const struct ucred *peer, char *text,
                               size_t bytes)
{
    const char *lacking = NULL;

    if (peer->uid == 0 || peer->uid == config->owner || config->sessions_for == DV_SESSIONS_FOR_ALL)
        return 0;
    if (config->sessions_for == DV_SESSIONS_FOR_GROUP) {
        if (dvd_peer_is_in_group(fd, peer->gid, config->session_group))
            return 0;
        lacking = config->file->session_group;
    } else if (!lacks_a_workers_group(config->file, fd, peer, &lacking)) {
        return 0;
    }
    snprintf(text, bytes,
             "only members of group %s may use the accelerators of this machine; ask the operator to "
             "add you (session-group in divvy.yaml), then log in again",
             lacking);
    return -EACCES;
}
