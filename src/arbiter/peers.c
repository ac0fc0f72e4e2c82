/* Who is at the other end of a socket (see peers.h). */
#include "src/arbiter/peers.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/bounds.h"
#include "src/arbiter/processes.h"
#include "src/base/cleanup.h"

bool dv_peer_is_in_group(int fd, const struct ucred *peer, gid_t group)
{
    gid_t groups[DV_LIMIT_GROUPS];
    socklen_t bytes = sizeof groups;

    if (peer->gid == group)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0)
        return false;
    for (size_t i = 0; i < bytes / sizeof groups[0]; i++)
        if (groups[i] == group)
            return true;
    return false;
}

static bool shares_namespace(pid_t pid, const char *kind)
{
    char path[64], own_path[64];
    struct stat theirs, ours;

    snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, kind);
    snprintf(own_path, sizeof own_path, "/proc/self/ns/%s", kind);
    return stat(path, &theirs) == 0 && stat(own_path, &ours) == 0 && theirs.st_dev == ours.st_dev &&
           theirs.st_ino == ours.st_ino;
}

bool dv_peer_is_of_this_machine(int fd, const struct ucred *peer)
{
    if (peer->pid <= 0 || !shares_namespace(peer->pid, "user") || !shares_namespace(peer->pid, "pid"))
        return false;
    /* the number was the peer's all the time */
    DV_AUTO_CLOSE int pidfd = dv_process_open_peer(fd, peer->pid, peer->uid);
    return pidfd >= 0;
}

bool dv_peer_is_operator(const struct dv_arbiter *arbiter, int fd, const struct ucred *peer)
{
    const struct dv_config *config = &arbiter->config;

    return (peer->uid == 0 || peer->uid == arbiter->owner ||
            (config->has_operator_group && dv_peer_is_in_group(fd, peer, config->operator_group))) &&
           dv_peer_is_of_this_machine(fd, peer);
}

/* Workers are members of the groups that drivers need. Whoever is not must not become one by way of a
 * worker. */
static bool lacks_a_workers_group(const struct dv_config_file *file, int fd, const struct ucred *peer,
                                  const char **name)
{
    for (uint64_t i = 0; file && i < file->devices_count; i++) {
        const struct dv_cage_rule *rule = file->devices[i].cage;
        for (uint64_t j = 0; rule && j < rule->groups_count; j++)
            if (!dv_peer_is_in_group(fd, peer, rule->gids[j])) {
                *name = rule->groups[j];
                return true;
            }
    }
    return false;
}

int dv_peer_may_open_sessions(const struct dv_arbiter *arbiter, int fd, const struct ucred *peer,
                              char *text, size_t bytes)
{
    const struct dv_config *config = &arbiter->config;
    const char *lacking = NULL;

    if (peer->uid == 0 || peer->uid == arbiter->owner || config->sessions_for == DV_SESSIONS_FOR_ALL)
        return 0;
    if (config->sessions_for == DV_SESSIONS_FOR_GROUP) {
        if (dv_peer_is_in_group(fd, peer, config->session_group))
            return 0;
        lacking = config->file->session_group;
    } else if (!lacks_a_workers_group(config->file, fd, peer, &lacking)) {
        return 0;
    }
    snprintf(text, bytes,
             "only members of group %s may use the accelerators of this machine; ask the operator to "
             "make you one (session-group in divvy.yaml), then log in again",
             lacking);
    return -EACCES;
}
