/* The process at the other end of a socket, as the kernel says: its groups, its namespaces, and whether it
 * may open sessions at all. */
#ifndef DVD_SYSTEM_PEERS_H
#define DVD_SYSTEM_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

struct dvd_config;

/* A descriptor of the process at the other end of a connected socket. pid and uid: as the kernel gives them. -1 with
 * errno set when it cannot be identified or has ended. */
int dvd_peer_open_process(int fd, pid_t pid, uid_t uid);
bool dvd_process_is_alive(int pidfd);
/* Stopped by a signal or a debugger, as the kernel says. */
bool dvd_process_is_stopped(pid_t pid);

/* own_group: of its credentials. */
bool dvd_peer_is_in_group(int fd, gid_t own_group, gid_t group);

/* Whether it is in divvyd's own pid namespace and has divvyd's map of users: root of a container is not root
 * here. False when that is unknown. */
bool dvd_peer_is_of_this_machine(int fd, const struct ucred *peer);

/* Root, the owner of divvyd and members of the operators' group, unless they are in a container. */
bool dvd_peer_is_operator(const struct dvd_config *config, int fd, const struct ucred *peer);

/* Whether it may open sessions. Returns 0, or -EACCES with the reason. */
int dvd_peer_may_open_sessions(const struct dvd_config *config, int fd, const struct ucred *peer, char *text,
                               size_t bytes);

#endif
