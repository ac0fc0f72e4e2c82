/* Watching the processes of tenants (see processes.h). */
#include "src/arbiter/session/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/system/peers.h"
#include "src/base/cleanup.h"

/* Handles a few of its sessions in one iteration, because there can be many: while the source is enabled, the
 * end of the process is reported again. The process is freed with its last session. */
static int on_exit_of_process(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dvd_process *process = userdata;
    bool last = false;

    (void)fd;
    (void)events;
    for (int i = 0; i < DV_MAX_ENDS_AT_ONCE && !last; i++) {
        struct dvd_session *session = process->sessions;
        if (!session || session->tenant_gone) { /* so are all others, which wait for their workers to end */
            sd_event_source_set_enabled(source, SD_EVENT_OFF);
            return 0;
        }
        last = !session->next_of_process;
        DL_DELETE2(process->sessions, session, prev_of_process, next_of_process);
        DL_APPEND2(process->sessions, session, prev_of_process, next_of_process);
        process->processes->on_exit(session);
    }
    return 0;
}

static struct dvd_process *find(struct dvd_processes *processes, pid_t pid)
{
    struct dvd_process *process;

    /* While the process with this number lives, no other process gets it. */
    HASH_FIND(hh, processes->table, &pid, sizeof pid, process);
    return process && pid > 0 && dvd_process_is_alive(process->pidfd) ? process : NULL;
}

struct dvd_process *dvd_process_of_peer(struct dvd_processes *processes, int fd, pid_t pid, uid_t uid)
{
    DV_AUTO_CLOSE int pidfd = dvd_peer_open_process(fd, pid, uid);

    if (pidfd < 0)
        return NULL;
    struct dvd_process *process = find(processes, pid);
    if (process)
        return process;
    if (*processes->descriptors_free < DV_PROCESS_DESCRIPTORS) {
        errno = EMFILE;
        return NULL;
    }
    return dvd_process_adopt(processes, pid, &pidfd);
}

struct dvd_process *dvd_process_adopt(struct dvd_processes *processes, pid_t pid, int *pidfd)
{
    struct dvd_process *process = find(processes, pid);

    if (process)
        return process;
    process = calloc(1, sizeof *process);
    if (!process)
        return NULL;
    *process = (struct dvd_process){.processes = processes, .pid = pid, .pidfd = *pidfd};
    int status = sd_event_add_io(processes->event, &process->io, process->pidfd, EPOLLIN, on_exit_of_process, process);
    if (status < 0) {
        free(process);
        errno = -status;
        return NULL;
    }
    *pidfd = -1;
    *processes->descriptors_free -= DV_PROCESS_DESCRIPTORS;
    HASH_ADD(hh, processes->table, pid, sizeof process->pid, process);
    return process;
}

void dvd_process_drop(struct dvd_process *process)
{
    struct dvd_processes *processes = process->processes;

    if (process->sessions)
        return;
    HASH_DEL(processes->table, process);
    process->io = sd_event_source_disable_unref(process->io);
    close(process->pidfd);
    *processes->descriptors_free += DV_PROCESS_DESCRIPTORS;
    free(process);
}

void dvd_process_attach(struct dvd_process *process, struct dvd_session *session)
{
    session->process = process;
    DL_APPEND2(process->sessions, session, prev_of_process, next_of_process);
}

void dvd_process_detach(struct dvd_session *session)
{
    struct dvd_process *process = session->process;

    session->process = NULL;
    DL_DELETE2(process->sessions, session, prev_of_process, next_of_process);
    dvd_process_drop(process);
}
