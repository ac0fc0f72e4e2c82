/* Code for all phases of a session (see session.h); the phases are in start.c, restore.c and end.c. Only the pidfds
 * of the two processes decide liveness: a client can close its socket, a child can inherit it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sockios.h>
#include <malloc.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/session/identity.h"
#include "src/arbiter/session/private.h"
#include "src/arbiter/system/incoming.h"
#include "src/base/cleanup.h"
#include "src/base/fd.h"
#include "src/base/text.h"
#include "src/wire/session/shm.h"

/* ---- its user ---- */

struct dvd_user {
    uid_t uid;
    unsigned sessions;
    UT_hash_handle hh;
};

/* Counts a session of a user in or out; returns how many it had before, or UINT_MAX when memory is short. */
static unsigned count_session(struct dvd_sessions *sessions, uid_t uid, bool in)
{
    struct dvd_user *user;

    HASH_FIND(hh, sessions->users, &uid, sizeof uid, user);
    if (!user && in) {
        user = calloc(1, sizeof *user);
        if (!user)
            return UINT_MAX;
        user->uid = uid;
        HASH_ADD(hh, sessions->users, uid, sizeof user->uid, user);
    }
    if (!user)
        return 0;
    unsigned before = user->sessions;
    user->sessions += in ? 1 : -1u;
    if (user->sessions == 0) {
        HASH_DEL(sessions->users, user);
        free(user);
    }
    return before;
}

/* User names by number, valid while the file that they are from does not change: it can be long. */
static struct known_name {
    bool known;
    uid_t uid;
    struct timespec changed;
    char name[DV_MAX_USER_NAME];
} known_names[DV_MAX_KNOWN_NAMES];

static void read_user(uid_t uid, char *name, size_t bytes)
{
    FILE *file = fopen("/etc/passwd", "re");
    const struct passwd *entry = NULL;

    while (file && (entry = fgetpwent(file)) && entry->pw_uid != uid)
        ;
    if (entry)
        dv_text_copy(name, bytes, entry->pw_name);
    else
        snprintf(name, bytes, "%u", (unsigned)uid);
    if (file)
        fclose(file);
}

/* From the file, never from a name service: the event loop would wait for that. */
void dvd_user_name(uid_t uid, char *name, size_t bytes)
{
    struct known_name *known = &known_names[uid % DV_MAX_KNOWN_NAMES];
    struct stat file = {0};

    (void)stat("/etc/passwd", &file);
    if (!known->known || known->uid != uid || known->changed.tv_sec != file.st_mtim.tv_sec ||
        known->changed.tv_nsec != file.st_mtim.tv_nsec) {
        *known = (struct known_name){.known = true, .uid = uid, .changed = file.st_mtim};
        read_user(uid, known->name, sizeof known->name);
    }
    dv_text_copy(name, bytes, known->name);
}

struct dvd_session *dvd_session_find(const struct dvd_sessions *sessions, struct dvd_session_id id)
{
    struct dvd_session *session;

    HASH_FIND(hh, sessions->all, &id, sizeof id, session);
    return session;
}

const char *dvd_session_device_name(const struct dvd_session *session, uint32_t index)
{
    return session->sessions->ledger->devices[session->lessee.devices[index].number].terms.name;
}

/* ---- one session ---- */

struct dvd_session *dvd_session_new(struct dvd_sessions *sessions, struct dvd_process *process,
                                    const struct dvd_session_origin *origin)
{
    struct dvd_session *session = calloc(1, sizeof *session);
    bool has_worker = origin->api != DV_API_LEASE;

    if (!session) {
        dvd_process_drop(process);
        return NULL;
    }
    *session = (struct dvd_session){
        .sessions = sessions,
        .lessee = {.ledger = sessions->ledger, .id = origin->id, .uid = origin->uid, .has_worker = has_worker},
        .channel = {.channels = &sessions->channels, .id = origin->id, .uid = origin->uid, .fd = -1},
        .gid = origin->gid,
        .tenant_pid = origin->pid,
        .version = origin->version,
        .api = origin->api,
        .present_as = origin->present_as,
        .started = origin->started,
        .started_us = origin->started_us,
        .client_fd = -1,
        .worker_pidfd = -1,
        .shm_fd = -1,
        .store_fd = -1,
        .worker_channel_fd = -1,
        .worker_log_fd = -1};
    dvd_process_attach(process, session);
    dvd_user_name(origin->uid, session->user, sizeof session->user);
    session->counted = count_session(sessions, origin->uid, true) != UINT_MAX;
    HASH_ADD(hh, sessions->all, lessee.id, sizeof session->lessee.id, session);
    sessions->events->number_changed(sessions->owner);
    dvd_idle_hold(sessions->idle);
    dvd_journal_enter(session);
    return session;
}

unsigned dvd_sessions_of_user(const struct dvd_sessions *sessions, uid_t uid)
{
    const struct dvd_user *user;

    HASH_FIND(hh, sessions->users, &uid, sizeof uid, user);
    return user ? user->sessions : 0;
}

bool dvd_session_take_descriptors(struct dvd_session *session)
{
    struct dvd_sessions *sessions = session->sessions;
    uint32_t wanted = session->lessee.has_worker ? DV_WORKER_DESCRIPTORS : DV_LEASE_DESCRIPTORS;

    session->descriptors = wanted < sessions->descriptors_free ? wanted : (uint32_t)sessions->descriptors_free;
    sessions->descriptors_free -= session->descriptors;
    return session->descriptors == wanted;
}

bool dvd_session_make_leases(struct dvd_session *session)
{
    session->lessee.leases = calloc(session->lessee.device_count, sizeof(struct dvd_lease *));
    return session->lessee.leases != NULL;
}

bool dvd_session_identify(const struct dvd_session *session, struct dvd_identity *identity)
{
    struct dvd_peer peer = {.fd = session->client_fd,
                            .uid = session->lessee.uid,
                            .gid = session->gid,
                            .pid = session->tenant_pid,
                            .session = session->lessee.id.value,
                            .user = session->user,
                            .command = session->command};

    if (!dvd_identity_find(session->sessions->config, &peer, identity))
        return false;
    const struct dvd_share_change *saved =
        session->sessions->saved ? dvd_saved_find(session->sessions->saved, identity->name) : NULL;
    if (saved)
        dvd_terms_apply(&identity->terms, saved);
    return true;
}

/* ---- its processes ---- */

int dvd_session_signal_worker(const struct dvd_session *session, int number)
{
    if (session->worker_pidfd < 0)
        return -ESRCH;
    return syscall(SYS_pidfd_send_signal, session->worker_pidfd, number, NULL, 0) < 0 ? -errno : 0;
}

/* The unread welcome of a session that is over. The kernel counts its descriptor as divvyd's until the client
 * reads it or closes its socket, and bounds how many divvyd may have in flight. So the welcome still counts as a
 * session of its user. */
struct dvd_unread {
    struct dvd_sessions *sessions;
    int fd;
    uid_t uid;
    sd_event_source *io;
    struct dvd_unread *prev, *next;
};

static bool is_unread(int fd)
{
    int bytes = 0;

    return fd >= 0 && ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

static void forget_unread(struct dvd_unread *unread)
{
    DL_DELETE(unread->sessions->unread, unread);
    count_session(unread->sessions, unread->uid, false);
    unread->io = sd_event_source_disable_unref(unread->io);
    dvd_incoming_close(&unread->sessions->asides, &unread->fd);
    free(unread);
}

static int on_unread(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    (void)source;
    if ((events & (EPOLLHUP | EPOLLERR)) || !is_unread(fd))
        forget_unread(userdata);
    return 0;
}

static void keep_unread(struct dvd_session *session)
{
    struct dvd_sessions *sessions = session->sessions;
    struct dvd_unread *unread = sessions->is_stopping ? NULL : calloc(1, sizeof *unread);

    if (!unread)
        return;
    *unread = (struct dvd_unread){.sessions = sessions, .fd = session->client_fd, .uid = session->lessee.uid};
    if (sd_event_add_io(sessions->event, &unread->io, unread->fd, EPOLLIN | EPOLLOUT | EPOLLET, on_unread, unread) <
            0 ||
        count_session(sessions, unread->uid, true) == UINT_MAX) {
        sd_event_source_disable_unref(unread->io);
        free(unread);
        return;
    }
    session->client_fd = -1;
    DL_APPEND(sessions->unread, unread);
}

void dvd_sessions_forget_unread(struct dvd_sessions *sessions)
{
    struct dvd_unread *unread, *next;

    DL_FOREACH_SAFE (sessions->unread, unread, next)
        forget_unread(unread);
}

void dvd_session_drop_client(struct dvd_session *session)
{
    session->client_io = sd_event_source_disable_unref(session->client_io);
    if (session->counted && session->shm_fd >= 0 && is_unread(session->client_fd))
        keep_unread(session);
    dvd_incoming_close(&session->sessions->asides, &session->client_fd);
}

void dvd_session_set_timer(struct dvd_session *session, uint64_t delay_us, sd_event_time_handler_t handler)
{
    session->timer = sd_event_source_disable_unref(session->timer);
    int error = sd_event_add_time_relative(session->sessions->event, &session->timer, CLOCK_MONOTONIC, delay_us,
                                           1 * DV_MS, handler, session);
    if (error < 0)
        dv_error("session %llu: cannot set a timer: %s", ID(session), strerror(-error));
}

int dvd_session_send_welcome(int client_fd, uint16_t version, enum dv_welcome_status status, uint64_t session,
                             uint64_t shm_bytes, int shm_fd, const char *text)
{
    struct dv_welcome welcome = {.magic = DV_WIRE_MAGIC,
                                 .version = version,
                                 .status = (uint16_t)status,
                                 .session = session,
                                 .shm_bytes = shm_bytes};

    snprintf(welcome.text, sizeof welcome.text, "%s", text);
    return dv_fd_send(client_fd, &welcome, sizeof welcome, &shm_fd, shm_fd >= 0 ? 1 : 0);
}

void dvd_session_refuse(struct dvd_session *session, enum dv_welcome_status status, const char *text)
{
    if (dv_log_within(&session->sessions->refusals, DV_REFUSALS_PER_S))
        dv_warning("session %llu of %s (process %d, %s) is refused: %s", ID(session), session->command,
                   session->tenant_pid, session->user, text);
    if (session->client_fd >= 0)
        dvd_session_send_welcome(session->client_fd, session->version, status, session->lessee.id.value, 0, -1, text);
    session->sessions->parking->tell_end(session);
    session->end_kind = status == DV_WELCOME_NO_LEASE ? DVD_END_ORDERLY : DVD_END_REFUSED;
    dv_text_copy(session->ended_because, sizeof session->ended_because, text);
    dvd_session_free(session);
}

int dvd_session_make_log(struct dvd_session *session)
{
    char name[32];

    session->log = malloc(sizeof *session->log);
    if (!session->log)
        return -ENOMEM;
    snprintf(name, sizeof name, "session %llu", ID(session));
    dvd_worker_log_init(session->log, name, session->lessee.tenant ? &session->lessee.tenant->log_lines : NULL);
    return 0;
}

/* ---- its end ---- */

void dvd_session_enter_waiting(struct dvd_session *session)
{
    if (!session->in_waiting)
        DL_APPEND2(session->sessions->waiting, session, prev_waiting, next_waiting);
    session->in_waiting = true;
}

void dvd_session_leave_waiting(struct dvd_session *session)
{
    if (session->in_waiting)
        DL_DELETE2(session->sessions->waiting, session, prev_waiting, next_waiting);
    session->in_waiting = false;
}

/* Leaves all that it is part of. */
static void leave_all(struct dvd_session *session)
{
    struct dvd_sessions *sessions = session->sessions;

    sessions->events->freed(sessions->owner, session);
    dvd_arenas_session_goes(sessions, session);
    dvd_session_leave_waiting(session);
    if (session->state == DV_SESSION_PARKED)
        dvd_bells_forget(&sessions->bells, session->lessee.id);
    HASH_DEL(sessions->all, session);
    dvd_channel_leave(&session->channel);
    dvd_lessee_part(&session->lessee);
    dvd_sandbox_leave(sessions->sandboxes, &session->sandbox);
}

static void close_all(struct dvd_session *session)
{
    struct dvd_sessions *sessions = session->sessions;

    dvd_session_drop_client(session);
    session->worker_io = sd_event_source_disable_unref(session->worker_io);
    session->timer = sd_event_source_disable_unref(session->timer);
    dv_close_fd(&session->worker_pidfd);
    dv_close_fd(&session->shm_fd);
    dv_close_fd(&session->store_fd);
    dvd_incoming_close(&sessions->asides, &session->channel.fd);
    dv_close_fd(&session->worker_channel_fd);
    dv_close_fd(&session->worker_log_fd);
}

void dvd_session_free(struct dvd_session *session)
{
    struct dvd_sessions *sessions = session->sessions;
    bool is_recorded = session->lessee.record;

    leave_all(session);
    dvd_journal_leave(session);
    if (is_recorded)
        dvd_state_drop(&sessions->state->sessions, session->lessee.record);
    if (session->log)
        dvd_worker_log_close(session->log);
    if (!sessions->is_stopping)
        dvd_ends_note(&sessions->ends, session);
    free(session->log);
    dvd_lessee_leave(&session->lessee);
    close_all(session);
    if (is_recorded) /* after closing its descriptors: the keeper frees its memory, however large */
        dvd_keeper_drop(sessions->keeper, session->lessee.id.value);
    dvd_process_detach(session);
    if (session->counted)
        count_session(sessions, session->lessee.uid, false);
    sessions->descriptors_free += session->descriptors;
    free(session->lessee.leases);
    free(session->turned_away);
    free(session->refused_tenant);
    free(session->choice);
    free(session);
    dvd_idle_release(sessions->idle);
    sessions->events->number_changed(sessions->owner);
    if (sessions->all)
        return;
    malloc_trim(0); /* many sessions may have ended: return their memory */
    sessions->events->none_left(sessions->owner);
}

/* ---- messages to its program ---- */

static void write_text(int fd, const void *text)
{
    if (pwrite(fd, text, sizeof((struct dv_shm_header *)0)->text, offsetof(struct dv_shm_header, text)) < 0)
        _exit(1);
}

bool dvd_session_tell(const struct dvd_session *session, const char *text, dvd_aside_done *done)
{
    char shown[sizeof((struct dv_shm_header *)0)->text] = "";

    dv_text_copy(shown, sizeof shown, text);
    return session->shm_fd >= 0 &&
           dvd_aside_start(&session->sessions->asides, write_text, session->shm_fd, shown, done, session->lessee.id);
}

/* ---- figures ---- */

void dvd_session_read_figures(const struct dvd_session *session, struct dvd_session_figures *figures)
{
    struct dv_shm_header header;

    *figures = (struct dvd_session_figures){.state = "starting"};
    /* without a worker there are no other figures than the ledger's */
    if (!session->lessee.has_worker && session->state == DV_SESSION_SERVED)
        *figures = (struct dvd_session_figures){.is_ready = true,
                                                .state = "running",
                                                .memory_bytes = session->lessee.reserved,
                                                .reserved_bytes = session->lessee.reserved};
    /* The header's page exists in every session's file, so reading it needs no mapping. */
    if (session->shm_fd < 0 || pread(session->shm_fd, &header, sizeof header, 0) != (ssize_t)sizeof header)
        return;
    uint32_t state = header.worker_state;
    figures->is_ready = state == DV_WORKER_READY;
    if (figures->is_ready)
        figures->state = "running";
    else if (state == DV_WORKER_FAILED)
        figures->state = "failed";
    if (session->state == DV_SESSION_PARKED)
        figures->state = "parked";
    else if (state == DV_WORKER_PARKED)
        figures->state = session->state == DV_SESSION_SERVED && session->parking ? "parking" : "resuming";
    figures->commands = header.commands;
    figures->memory_bytes = header.memory_bytes;
    figures->reserved_bytes = header.reserved_bytes;
    figures->placed_bytes = header.placed_bytes;
    figures->moved_bytes = header.moved_bytes;
    figures->moving_ns = header.moving_ns;
    figures->device_mask = header.device_mask;
    figures->compiling_since = header.compiling_since;
    for (int i = 0; i < DV_CUT_VERDICTS - 1; i++)
        figures->kernels[i] = header.kernels[i];
    header.name[sizeof header.name - 1] = '\0';
    dv_text_copy(figures->name, sizeof figures->name, header.name);
    dv_text_join(figures->command_line, sizeof figures->command_line, header.command_line, sizeof header.command_line);
}

bool dvd_session_fill_kept(const struct dvd_session *session, int fds[DV_KEPT_KINDS])
{
    fds[DV_KEPT_TENANT] = session->process->pidfd;
    fds[DV_KEPT_WORKER] = session->worker_pidfd;
    fds[DV_KEPT_SHM] = session->shm_fd;
    fds[DV_KEPT_CHANNEL] = session->channel.fd;
    fds[DV_KEPT_LOG] = session->log ? session->log->fd : -1;
    fds[DV_KEPT_CLIENT] = session->client_fd;
    fds[DV_KEPT_STORE] = session->store_fd;
    return session->lessee.record != NULL;
}

struct dvd_sandbox_processes dvd_session_processes(const struct dvd_session *session)
{
    return (struct dvd_sandbox_processes){.program = session->tenant_pid,
                                          .program_pidfd = session->process->pidfd,
                                          .worker_pidfd = session->worker_gone ? -1 : session->worker_pidfd};
}
