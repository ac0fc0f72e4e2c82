/* What all of a session's life needs (see session.h); its parts are session_begin.c, session_keep.c
 * and session_end.c. Liveness is the two processes' pidfds and nothing else: a client may close its
 * socket, a child may inherit it. */
#include "src/arbiter/session/session.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/system/incoming.h"
#include "src/arbiter/restart/keeper_client.h"
#include "src/arbiter/session/private.h"
#include "src/arbiter/restart/state.h"
#include "src/base/cleanup.h"
#include "src/base/fd.h"
#include "src/base/text.h"
#include "src/wire/session/shm.h"

struct dv_user {
    uid_t uid;
    unsigned sessions;
    UT_hash_handle hh;
};

unsigned dv_session_count(struct dv_arbiter *arbiter, uid_t uid, bool in)
{
    struct dv_user *user;

    HASH_FIND(hh, arbiter->users, &uid, sizeof uid, user);
    if (!user && in) {
        user = calloc(1, sizeof *user);
        if (!user)
            return UINT_MAX;
        user->uid = uid;
        HASH_ADD(hh, arbiter->users, uid, sizeof user->uid, user);
    }
    if (!user)
        return 0;
    unsigned before = user->sessions;
    user->sessions += in ? 1 : -1u;
    if (user->sessions == 0) {
        HASH_DEL(arbiter->users, user);
        free(user);
    }
    return before;
}

struct dv_session *dv_session_find(struct dv_arbiter *arbiter, uint64_t id)
{
    struct dv_session *session;

    HASH_FIND(hh, arbiter->sessions, &id, sizeof id, session);
    return session;
}

const char *dv_session_device_name(const struct dv_session *session, uint32_t index)
{
    return session->arbiter->ledger.devices[session->lessee.device_indices[index]].terms.name;
}

/* ---- its processes ---- */

int dv_session_signal_worker(const struct dv_session *session, int number)
{
    if (session->worker_pidfd < 0)
        return -ESRCH;
    return syscall(SYS_pidfd_send_signal, session->worker_pidfd, number, NULL, 0) < 0 ? -errno : 0;
}

/* The unread welcome of a session that is over. The kernel counts its descriptor as divvyd's until the client
 * reads it or closes its socket, and bounds how many divvyd may have in flight. So the welcome still counts as a
 * session of its user. */
struct dv_unread {
    struct dv_arbiter *arbiter;
    int fd;
    uid_t uid;
    sd_event_source *io;
    struct dv_unread *prev, *next;
};

static bool is_unread(int fd)
{
    int bytes = 0;

    return fd >= 0 && ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

static void forget_unread(struct dv_unread *unread)
{
    DL_DELETE(unread->arbiter->unread, unread);
    dv_session_count(unread->arbiter, unread->uid, false);
    unread->io = sd_event_source_disable_unref(unread->io);
    dvd_incoming_close(&unread->arbiter->asides, &unread->fd);
    free(unread);
}

static int on_unread(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    (void)source;
    if ((events & (EPOLLHUP | EPOLLERR)) || !is_unread(fd))
        forget_unread(userdata);
    return 0;
}

static void keep_unread(struct dv_session *session)
{
    struct dv_arbiter *arbiter = session->arbiter;
    struct dv_unread *unread = arbiter->stopping ? NULL : calloc(1, sizeof *unread);

    if (!unread)
        return;
    *unread = (struct dv_unread){.arbiter = arbiter, .fd = session->client_fd, .uid = session->lessee.uid};
    if (sd_event_add_io(arbiter->event, &unread->io, unread->fd, EPOLLIN | EPOLLOUT | EPOLLET, on_unread,
                        unread) < 0 ||
        dv_session_count(arbiter, unread->uid, true) == UINT_MAX) {
        sd_event_source_disable_unref(unread->io);
        free(unread);
        return;
    }
    session->client_fd = -1;
    DL_APPEND(arbiter->unread, unread);
}

void dv_sessions_forget_unread(struct dv_arbiter *arbiter)
{
    struct dv_unread *unread, *next;

    DL_FOREACH_SAFE (arbiter->unread, unread, next)
        forget_unread(unread);
}

void dv_session_drop_client(struct dv_session *session)
{
    session->client_io = sd_event_source_disable_unref(session->client_io);
    if (session->counted && session->shm_fd >= 0 && is_unread(session->client_fd))
        keep_unread(session);
    dvd_incoming_close(&session->arbiter->asides, &session->client_fd);
}

void dv_session_set_timer(struct dv_session *session, uint64_t delay_us,
                          sd_event_time_handler_t handler)
{
    session->timer = sd_event_source_disable_unref(session->timer);
    int error = sd_event_add_time_relative(session->arbiter->event, &session->timer,
                                           CLOCK_MONOTONIC, delay_us, 1 * DV_MS, handler, session);
    if (error < 0)
        dv_error("session %llu: cannot set a timer: %s", ID(session), strerror(-error));
}

int dv_session_send_welcome(int client_fd, uint16_t version, enum dv_welcome_status status,
                            uint64_t session, uint64_t shm_bytes, int shm_fd, const char *text)
{
    struct dv_welcome welcome = {.magic = DV_WIRE_MAGIC,
                                 .version = version,
                                 .status = (uint16_t)status,
                                 .session = session,
                                 .shm_bytes = shm_bytes};

    snprintf(welcome.text, sizeof welcome.text, "%s", text);
    return dv_fd_send(client_fd, &welcome, sizeof welcome, &shm_fd, shm_fd >= 0 ? 1 : 0);
}

void dv_session_refuse(struct dv_session *session, enum dv_welcome_status status, const char *text)
{
    if (dv_log_within(&session->arbiter->refusals, DV_REFUSALS_PER_S))
        dv_warning("session %llu of %s (process %d, %s) is refused: %s", ID(session),
                   session->command, session->tenant_pid, session->user, text);
    if (session->client_fd >= 0)
        dv_session_send_welcome(session->client_fd, session->version, status, session->lessee.id, 0, -1,
                                text);
    dv_session_destroy(session);
}

int dv_session_make_log(struct dv_session *session)
{
    char name[32];

    session->log = malloc(sizeof *session->log);
    if (!session->log)
        return -ENOMEM;
    snprintf(name, sizeof name, "session %llu", ID(session));
    dv_worker_log_init(session->log, name, session->lessee.tenant ? &session->lessee.tenant->log_lines : NULL);
    return 0;
}

/* ---- its end ---- */

void dv_session_destroy(struct dv_session *session)
{
    struct dv_arbiter *arbiter = session->arbiter;

    dv_listings_session_goes(arbiter, session);
    dv_arenas_session_goes(arbiter, session);
    dv_session_leave_waiting(session);
    HASH_DEL(arbiter->sessions, session);
    dv_channels_leave(session);
    dvd_lessee_part(&session->lessee);
    bool kept = session->lessee.record;
    if (kept)
        dv_state_drop(&arbiter->state.sessions, session->lessee.record);
    dv_cages_leave(session);
    if (session->log)
        dv_worker_log_close(session->log);
    free(session->log);
    dvd_lessee_leave(&session->lessee);
    dv_session_drop_client(session);
    session->worker_io = sd_event_source_disable_unref(session->worker_io);
    session->timer = sd_event_source_disable_unref(session->timer);
    dv_close_fd(&session->worker_pidfd);
    dv_close_fd(&session->shm_fd);
    dvd_incoming_close(&arbiter->asides, &session->control_fd);
    dv_close_fd(&session->worker_control_fd);
    dv_close_fd(&session->worker_log_fd);
    if (kept) /* after all of its descriptors: the keeper frees its memory, however much that is */
        dv_keeper_drop(arbiter, session->lessee.id);
    dv_process_detach(session);
    if (session->counted)
        dv_session_count(arbiter, session->lessee.uid, false);
    arbiter->descriptors_free += session->descriptors;
    free(session->lessee.leases);
    free(session->turned_away);
    free(session->choice);
    free(session);
    if (!arbiter->sessions)
        malloc_trim(0); /* a crowd has left: its memory goes back */
    dv_arbiter_check_idle(arbiter);
}

/* ---- what its program is told ---- */

static void write_text(int fd, const void *text)
{
    if (pwrite(fd, text, sizeof((struct dv_shm_header *)0)->text, offsetof(struct dv_shm_header, text)) < 0)
        _exit(1);
}

bool dv_session_tell(const struct dv_session *session, const char *text, dvd_aside_done *done)
{
    char shown[sizeof((struct dv_shm_header *)0)->text] = "";

    dv_text_copy(shown, sizeof shown, text);
    return session->shm_fd >= 0 &&
           dvd_aside_start(&session->arbiter->asides, write_text, session->shm_fd, shown, done, session->lessee.id);
}

/* ---- what is shown ---- */

void dv_session_read_figures(const struct dv_session *session, struct dv_session_figures *figures)
{
    struct dv_shm_header header;

    *figures = (struct dv_session_figures){.state = "starting"};
    /* The header's page exists in every session's file, so reading it needs no mapping. */
    if (session->shm_fd < 0 ||
        pread(session->shm_fd, &header, sizeof header, 0) != (ssize_t)sizeof header)
        return;
    uint32_t state = header.worker_state;
    if (state == DV_WORKER_READY)
        figures->state = "running";
    else if (state == DV_WORKER_FAILED)
        figures->state = "failed";
    figures->commands = header.commands;
    figures->memory_bytes = header.memory_bytes;
    figures->reserved_bytes = header.reserved_bytes;
    figures->placed_bytes = header.placed_bytes;
    figures->moved_bytes = header.moved_bytes;
    figures->moving_ns = header.moving_ns;
    figures->device_mask = header.device_mask;
}
