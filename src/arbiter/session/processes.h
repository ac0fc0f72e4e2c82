/* The processes that sessions belong to, one pidfd each however many sessions a process has. */
#ifndef DVD_SESSION_PROCESSES_H
#define DVD_SESSION_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>
#include <uthash.h>

struct dvd_session;

struct dvd_processes {
    sd_event *event;
    uint64_t *descriptors_free;                   /* of the daemon, for sessions */
    void (*on_exit)(struct dvd_session *session); /* the process of this session has ended */
    struct dvd_process *table;                    /* hash table by number */
};

struct dvd_process {
    struct dvd_processes *processes;
    pid_t pid;
    int pidfd;
    sd_event_source *io;
    struct dvd_session *sessions; /* linked by their next_of_process */
    UT_hash_handle hh;
};

/* The process at the other end of a connected socket, watched from here on. Returns NULL with errno
 * set when it cannot be identified. Every call must be followed by dvd_process_drop or
 * dvd_process_attach. */
struct dvd_process *dvd_process_of_peer(struct dvd_processes *processes, int fd, pid_t pid, uid_t uid);
/* The same for a process whose descriptor is known; takes it over. */
struct dvd_process *dvd_process_adopt(struct dvd_processes *processes, pid_t pid, int *pidfd);
/* Forgets a process that has no session. */
void dvd_process_drop(struct dvd_process *process);

void dvd_process_attach(struct dvd_process *process, struct dvd_session *session);
/* The process is forgotten with its last session. */
void dvd_process_detach(struct dvd_session *session);

#endif
