/* The life of sessions (see session.h). Liveness is the two processes' pidfds and nothing else: a
 * client may close its socket, a child may inherit it. */
#include "src/arbiter/session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/bounds.h"
#include "src/arbiter/keeper.h"
#include "src/arbiter/state.h"
#include "src/base/cleanup.h"
#include "src/base/clock.h"
#include "src/base/fd.h"
#include "src/base/text.h"
#include "src/wire/session/shm.h"

/* Wide enough for %llu of an id. */
#define ID(session) ((unsigned long long)(session)->id)

static void session_start_worker(struct dv_session *session);

/* ---- small parts ---- */

struct dv_user {
    uid_t uid;
    unsigned sessions;
    UT_hash_handle hh;
};

/* Counts a session of a user in or out; returns how many it had before, or UINT_MAX when memory is
 * short. */
static unsigned count_session(struct dv_arbiter *arbiter, uid_t uid, bool in)
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

static int signal_worker(const struct dv_session *session, int number)
{
    if (session->worker_pidfd < 0)
        return -ESRCH;
    return syscall(SYS_pidfd_send_signal, session->worker_pidfd, number, NULL, 0) < 0 ? -errno : 0;
}

static void drop_client(struct dv_session *session)
{
    session->client_io = sd_event_source_disable_unref(session->client_io);
    dv_close_fd(&session->client_fd);
}

static void session_destroy(struct dv_session *session)
{
    struct dv_arbiter *arbiter = session->arbiter;

    HASH_DEL(arbiter->sessions, session);
    dv_leases_part(arbiter, session);
    if (session->record) {
        dv_state_drop(&arbiter->state.sessions, session->record);
        dv_keeper_drop(arbiter, session->id);
    }
    dv_cages_leave(session);
    dv_tenants_leave(arbiter, session);
    drop_client(session);
    session->worker_io = sd_event_source_disable_unref(session->worker_io);
    session->timer = sd_event_source_disable_unref(session->timer);
    dv_close_fd(&session->worker_pidfd);
    dv_close_fd(&session->shm_fd);
    dv_close_fd(&session->control_fd);
    dv_close_fd(&session->worker_control_fd);
    dv_close_fd(&session->worker_log_fd);
    if (session->log)
        dv_worker_log_close(session->log);
    free(session->log);
    dv_process_detach(session);
    if (session->counted)
        count_session(arbiter, session->uid, false);
    arbiter->descriptors_free += session->descriptors;
    free(session->grants);
    free(session->leases);
    free(session);
    if (!arbiter->sessions)
        malloc_trim(0); /* a crowd has left: its memory goes back */
    dv_arbiter_check_idle(arbiter);
}

static void set_timer(struct dv_session *session, uint64_t delay_us,
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

/* Ends a session that has no worker, telling the client why. */
static void session_refuse(struct dv_session *session, enum dv_welcome_status status,
                           const char *text)
{
    if (dv_log_within(&session->arbiter->refusals, DV_REFUSALS_PER_S))
        dv_warning("session %llu of %s (process %d, %s) is refused: %s", ID(session), session->command,
                   session->tenant_pid, session->user, text);
    if (session->client_fd >= 0)
        dv_session_send_welcome(session->client_fd, session->version, status, session->id, 0, -1,
                                text);
    session_destroy(session);
}

struct dv_session *dv_session_find(struct dv_arbiter *arbiter, uint64_t id)
{
    struct dv_session *session;

    HASH_FIND(hh, arbiter->sessions, &id, sizeof id, session);
    return session;
}

/* ---- the worker's end ---- */

static void note_ending(struct dv_session *session)
{
    struct dv_arbiter *arbiter = session->arbiter;

    if (!arbiter->endings)
        arbiter->endings = calloc(DV_LIMIT_ENDINGS, sizeof *arbiter->endings);
    if (!arbiter->endings)
        return;
    struct dv_ending *ending = &arbiter->endings[arbiter->ending_count++ % DV_LIMIT_ENDINGS];
    *ending = (struct dv_ending){.id = session->id, .uid = session->uid, .when = time(NULL)};
    dv_text_copy(ending->tenant, sizeof ending->tenant, session->tenant->name);
    dv_text_copy(ending->command, sizeof ending->command, session->command);
    dv_text_copy(ending->why, sizeof ending->why, session->ended_because);
}

/* The signal that ended it, or 0. */
static int ending_signal(int status)
{
    return WIFSIGNALED(status)                          ? WTERMSIG(status)
           : WEXITSTATUS(status) > DV_CAGE_SIGNAL_BASE ? WEXITSTATUS(status) - DV_CAGE_SIGNAL_BASE
                                                       : 0;
}

static void describe_end(char *text, size_t bytes, int status)
{
    int number = ending_signal(status);

    if (number) {
        const char *name = sigabbrev_np(number);
        snprintf(text, bytes, "was ended by signal %d (SIG%s)", number, name ? name : "?");
    } else {
        snprintf(text, bytes, "ended with code %d", WEXITSTATUS(status));
    }
}

/* The session is over: its worker is gone, and so is what it held. */
static void session_end(struct dv_session *session, const char *how, bool orderly)
{
    char text[DV_MAX_MESSAGE_TEXT];

    if (session->ended_because[0])
        dv_warning("session %llu of %s (process %d): worker %d was ended: %s", ID(session),
                   session->command, session->tenant_pid, session->worker_pid,
                   session->ended_because);
    else if (session->tenant_gone)
        dv_info("session %llu of %s (process %d) is over; worker %d %s", ID(session),
                session->command, session->tenant_pid, session->worker_pid, how);
    else
        dv_log(orderly || session->arbiter->stopping ? DV_LOG_INFO : DV_LOG_WARNING,
               "session %llu of %s (process %d): worker %d %s while its program runs", ID(session),
               session->command, session->tenant_pid, session->worker_pid, how);
    if (session->client_fd >= 0 && !session->tenant_gone) {
        snprintf(text, sizeof text,
                 "the worker of this session %s; divvyd's log may say more, and a new start of the "
                 "program gets a new worker",
                 how);
        dv_session_send_welcome(session->client_fd, session->version, DV_WELCOME_GONE, session->id,
                                0, -1, text);
    }
    session_destroy(session);
}

static int on_no_status(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source;
    (void)usec;
    session_end(userdata, "has ended", true);
    return 0;
}

static int on_worker_gone(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dv_session *session = userdata;

    (void)source;
    (void)fd;
    (void)events;
    session->worker_gone = true;
    dv_leases_part(session->arbiter, session);
    session->worker_io = sd_event_source_disable_unref(session->worker_io);
    /* Only its parent knows how a process ended. */
    if (session->arbiter->zygote.fd >= 0 &&
        session->zygote_generation == session->arbiter->zygote.generation)
        set_timer(session, DV_LIMIT_STATUS_US, on_no_status);
    else
        session_end(session, "has ended", true);
    return 0;
}

void dv_session_worker_exited(struct dv_session *session, pid_t pid, int status)
{
    char how[64];

    if (session->state != DV_SESSION_SERVED || session->worker_pid != pid)
        return;
    describe_end(how, sizeof how, status);
    if (!session->ended_because[0] && ending_signal(status) == SIGKILL && dv_cages_starved(session)) {
        snprintf(session->ended_because, sizeof session->ended_because,
                 "the workers of its tenant and user had used up their memory (worker-memory)");
        note_ending(session);
    }
    session_end(session, how, WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- ended by divvyd ---- */

const struct dv_ending *dv_session_find_ending(const struct dv_arbiter *arbiter, uint64_t id)
{
    for (uint64_t i = 0; i < arbiter->ending_count && i < DV_LIMIT_ENDINGS; i++)
        if (arbiter->endings[i].id == id)
            return &arbiter->endings[i];
    return NULL;
}

void dv_session_overdue(struct dv_session *session, enum dv_class class, const char *kept)
{
    uint64_t deadline_ns = session->arbiter->config.deadline_ns[class];

    if (session->ended_because[0])
        return;
    snprintf(session->ended_because, sizeof session->ended_because,
             "it kept %s for %.1f s after it was asked to give it back, while others waited (deadline "
             "of the class %s)",
             kept, (double)deadline_ns / (double)DV_NS_PER_S, dv_class_word(class));
    note_ending(session);
    if (session->api == DV_API_LEASE) {
        dv_warning("session %llu of %s (process %d): %s; the device goes to the next", ID(session),
                   session->command, session->tenant_pid, session->ended_because);
        return;
    }
    /* where its program's library finds it; what it finds there is not trusted */
    if (pwrite(session->shm_fd, session->ended_because, sizeof session->ended_because,
               offsetof(struct dv_shm_header, text)) < 0)
        dv_warning("session %llu: cannot say why it is ended: %s", ID(session), strerror(errno));
    signal_worker(session, SIGKILL);
}

/* ---- the tenant's end ---- */

static int on_orphan_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dv_session *session = userdata;

    (void)source;
    (void)usec;
    dv_warning("session %llu: worker %d did not end with its program, it is killed", ID(session),
               session->worker_pid);
    signal_worker(session, SIGKILL);
    return 0;
}

static void session_orphaned(struct dv_session *session)
{
    if (session->state == DV_SESSION_SERVED && !session->worker_gone)
        set_timer(session, DV_LIMIT_ORPHAN_US, on_orphan_deadline);
}

void dv_session_tenant_gone(struct dv_session *session)
{
    session->tenant_gone = true;
    drop_client(session);
    if (session->state == DV_SESSION_SERVED && session->api != DV_API_LEASE) {
        session_orphaned(session);
        return;
    }
    dv_debug("session %llu: its program has left", ID(session));
    session_destroy(session); /* a worker that is forked after all is killed on arrival */
}

void dv_session_hung_up(struct dv_session *session)
{
    if (session->api == DV_API_LEASE)
        session_destroy(session);
    /* otherwise the worker's pidfd tells the rest */
}

/* After hello a client only listens: whatever it does on its socket now, divvyd closes its end. A
 * client that leaves before it has its worker wants no session. */
static int on_client_io(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct dv_session *session = userdata;

    (void)source;
    (void)fd;
    (void)events;
    drop_client(session);
    if (session->state != DV_SESSION_SERVED)
        session_destroy(session);
    return 0;
}

/* ---- the beginning ---- */

/* The name of a user in the local file only: the loop must not wait for a directory service. */
static void find_user_name(uid_t uid, char *name, size_t bytes)
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

static void find_command(pid_t pid, char *command, size_t bytes)
{
    char path[64];

    snprintf(command, bytes, "?");
    if (pid <= 0) /* not visible from here, as in another pid namespace */
        return;
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    DV_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, command, bytes - 1) : -1;
    if (length <= 0)
        return;
    command[length] = '\0';
    command[strcspn(command, "\n")] = '\0';
    dv_text_clean(command, bytes);
}


static int on_start_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dv_session *session = userdata;

    (void)source;
    (void)usec;
    session_refuse(session, DV_WELCOME_NO_WORKER,
                   session->arbiter->zygote.fd < 0
                       ? "the process that starts workers does not run; see divvyd's log"
                   : session->state == DV_SESSION_WAITING
                       ? "the machine's devices did not answer in time; see divvyd's log"
                       : "no worker could be started in time; see divvyd's log");
    return 0;
}

static int watch(struct dv_session *session, sd_event_source **source, int fd,
                 sd_event_io_handler_t handler)
{
    return sd_event_add_io(session->arbiter->event, source, fd, EPOLLIN, handler, session);
}

static struct dv_share_wish wish_of(const struct dv_hello *hello)
{
    return (struct dv_share_wish){.has_request = hello->request != 0,
                                  .has_limit = hello->limit != 0,
                                  .has_weight = hello->weight != 0,
                                  .has_class = hello->class != 0,
                                  .request_ppm = hello->request - 1,
                                  .limit_ppm = hello->limit - 1,
                                  .weight = hello->weight,
                                  .class = (enum dv_class)(hello->class - 1)};
}

void dv_session_begin(struct dv_arbiter *arbiter, int client_fd, struct dv_process *process,
                      const struct dv_hello *hello, uint16_t version, const struct ucred *peer)
{
    struct dv_session *session = calloc(1, sizeof *session);

    if (!session) {
        dv_error("no memory for a session");
        close(client_fd);
        dv_process_drop(process);
        return;
    }
    uint64_t id = ++arbiter->last_session;
    if (arbiter->state.header)
        atomic_store(&arbiter->state.header->last_session, id);
    *session = (struct dv_session){.id = id,
                                   .arbiter = arbiter,
                                   .state = DV_SESSION_WAITING,
                                   .uid = peer->uid,
                                   .gid = peer->gid,
                                   .tenant_pid = peer->pid,
                                   .version = version,
                                   .api = hello->api,
                                   .present_as = hello->present_as,
                                   .wish = wish_of(hello),
                                   .started = time(NULL),
                                   .started_us = dv_arbiter_now(arbiter),
                                   .client_fd = client_fd,
                                   .worker_pidfd = -1,
                                   .shm_fd = -1,
                                   .control_fd = -1,
                                   .worker_control_fd = -1,
                                   .worker_log_fd = -1};
    dv_process_attach(process, session);
    find_user_name(peer->uid, session->user, sizeof session->user);
    find_command(peer->pid, session->command, sizeof session->command);
    unsigned of_user = count_session(arbiter, peer->uid, true);
    session->counted = of_user != UINT_MAX;
    unsigned in_all = HASH_COUNT(arbiter->sessions);
    HASH_ADD(hh, arbiter->sessions, id, sizeof session->id, session);
    dv_arbiter_check_idle(arbiter);

    uint32_t descriptors =
        hello->api == DV_API_LEASE ? DV_LEASE_DESCRIPTORS : DV_WORKER_DESCRIPTORS;
    bool full = in_all >= DV_LIMIT_SESSIONS || descriptors > arbiter->descriptors_free;
    if (of_user >= arbiter->config.sessions_per_user || full) {
        char text[DV_MAX_MESSAGE_TEXT];
        if (full)
            snprintf(
                text, sizeof text,
                "this machine serves %u sessions already, the most it can; wait until one ends",
                in_all);
        else
            snprintf(text, sizeof text,
                     "user %s has %u sessions already, the most that are allowed "
                     "(sessions-per-user); wait until one ends, or ask the operator",
                     session->user, of_user);
        session_refuse(session, DV_WELCOME_REFUSED, text);
        return;
    }
    session->descriptors = descriptors;
    arbiter->descriptors_free -= descriptors;
    if (watch(session, &session->client_io, client_fd, on_client_io) < 0) {
        session_refuse(session, DV_WELCOME_REFUSED, "divvyd is out of resources; see its log");
        return;
    }
    set_timer(session, DV_LIMIT_START_US, on_start_deadline);
    session_start_worker(session);
}

/* ---- getting a worker ---- */

/* Sealed against resizing before anybody else sees it. */
static int make_shared_memory(struct dv_session *session)
{
    struct dv_shm_header header = {.magic = DV_WIRE_MAGIC,
                                   .version = session->version,
                                   .session = session->id,
                                   .bytes = session->shm_bytes};
    char name[32];

    snprintf(name, sizeof name, "divvy-%llu", ID(session));
    session->shm_fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (session->shm_fd < 0 || ftruncate(session->shm_fd, (off_t)session->shm_bytes) < 0)
        return -errno;
    ssize_t first_fields = (ssize_t)offsetof(struct dv_shm_header, ring_tail);
    if (pwrite(session->shm_fd, &header, (size_t)first_fields, 0) != first_fields)
        return -EIO;
    if (fcntl(session->shm_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return -errno;
    return 0;
}

static int make_control_channel(struct dv_session *session)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    session->control_fd = pair[0];
    session->worker_control_fd = pair[1];
    return fcntl(session->control_fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int make_log(struct dv_session *session)
{
    char name[32];

    session->log = malloc(sizeof *session->log);
    if (!session->log)
        return -ENOMEM;
    dv_worker_log_init(session->log);
    snprintf(name, sizeof name, "session %llu", ID(session));
    session->worker_log_fd = dv_worker_log_open(session->log, session->arbiter->event, name);
    return session->worker_log_fd < 0 ? session->worker_log_fd : 0;
}

/* Returns 0 or a negative errno. */
static int choose_devices(struct dv_session *session)
{
    struct dv_arbiter *arbiter = session->arbiter;
    struct dv_device_grant grants[DV_MAX_DEVICES];

    session->device_count =
        dv_devices_grant(&arbiter->devices, &arbiter->config, session->present_as, grants,
                         session->device_indices);
    if (session->device_count == 0)
        return 0;
    if (session->api == DV_API_LEASE) { /* numbers are those of `divvy devices`, hidden ones too */
        session->device_count = arbiter->devices.count;
        for (uint32_t i = 0; i < session->device_count; i++)
            session->device_indices[i] = (uint8_t)i;
    }
    session->leases = calloc(session->device_count, sizeof *session->leases);
    if (session->api != DV_API_LEASE) {
        session->grants = calloc(session->device_count, sizeof *session->grants);
        if (session->grants)
            memcpy(session->grants, grants, session->device_count * sizeof *session->grants);
    }
    return session->leases && (session->grants || session->api == DV_API_LEASE) ? 0 : -ENOMEM;
}

const char *dv_session_device_name(const struct dv_session *session, uint32_t index)
{
    if (session->grants && session->grants[index].name[0])
        return session->grants[index].name;
    return dv_leases_device_name(session->arbiter, session->device_indices[index]);
}

static bool devices_must_be_awaited(struct dv_arbiter *arbiter)
{
    const struct dv_devices *devices = &arbiter->devices;
    uint64_t pause_us = devices->had_some ? DV_PROBE_PAUSE_SHORT_US : DV_PROBE_PAUSE_US;

    if (arbiter->zygote.fd < 0)
        return true;
    if (devices->known && devices->count > 0)
        return false;
    if (!arbiter->zygote.probing && !devices->known)
        dv_zygote_request_probe(arbiter);
    /* A driver may have come or become ready since the last look, or there was no memory to load it. */
    else if (!arbiter->zygote.probing &&
             dv_arbiter_now(arbiter) - devices->probed_us >= pause_us)
        dv_zygote_renew(arbiter);
    return arbiter->zygote.probing || arbiter->zygote.fd < 0 || devices->had_some;
}

/* ---- over a restart ---- */

/* Before its client is welcomed, the keeper has its descriptors and the state file knows of it. */
static void session_keep(struct dv_session *session)
{
    struct dv_arbiter *arbiter = session->arbiter;
    struct dv_state_session *record =
        session->tenant->record ? dv_state_add(&arbiter->state.sessions) : NULL;

    if (!record) {
        dv_debug("session %llu will not outlive this daemon", ID(session));
        return;
    }
    record->api = session->api;
    record->id = session->id;
    record->uid = session->uid;
    record->gid = session->gid;
    record->tenant_pid = session->tenant_pid;
    record->worker_pid = session->worker_pid;
    record->tenant = dv_state_index(&arbiter->state.tenants, session->tenant->record);
    record->version = session->version;
    record->present_as = session->present_as;
    record->device_count = session->device_count;
    memcpy(record->devices, session->device_indices, sizeof record->devices);
    record->shm_bytes = session->shm_bytes;
    record->started = (uint64_t)session->started;
    record->started_us = session->started_us;
    memcpy(record->command, session->command, sizeof record->command);
    session->record = record;
    dv_keeper_put_session(session);
    dv_state_commit(record);
}

/* A daemon that is cut off right after this, before it has noted it, has a successor that does it again:
 * who has been welcomed already does not mind. */
static int welcome(struct dv_session *session)
{
    bool lease_only = session->api == DV_API_LEASE;
    int error = dv_session_send_welcome(lease_only ? session->control_fd : session->client_fd,
                                        session->version, DV_WELCOME_OK, session->id,
                                        session->shm_bytes, session->shm_fd, "");

    if (error >= 0 && session->record)
        session->record->welcomed = 1;
    return error;
}

static int adopt_log(struct dv_session *session, int *fd)
{
    char name[32];

    session->log = malloc(sizeof *session->log);
    if (!session->log)
        return -ENOMEM;
    dv_worker_log_init(session->log);
    snprintf(name, sizeof name, "session %llu", ID(session));
    return dv_worker_log_adopt(session->log, session->arbiter->event, name, fd);
}

/* What a new session does in dv_session_begin and session_start_worker. */
static struct dv_session *rebuild(struct dv_arbiter *arbiter, struct dv_state_session *record,
                                  struct dv_process *process)
{
    struct dv_session *session = calloc(1, sizeof *session);

    if (!session)
        return NULL;
    *session = (struct dv_session){.id = record->id,
                                   .arbiter = arbiter,
                                   .state = DV_SESSION_SERVED,
                                   .request_sent = true,
                                   .uid = record->uid,
                                   .gid = record->gid,
                                   .tenant_pid = record->tenant_pid,
                                   .worker_pid = record->worker_pid,
                                   .version = record->version,
                                   .api = record->api,
                                   .present_as = record->present_as,
                                   .started = (time_t)record->started,
                                   .started_us = record->started_us,
                                   .device_count = record->device_count,
                                   .shm_bytes = record->shm_bytes,
                                   .record = record,
                                   .client_fd = -1,
                                   .worker_pidfd = -1,
                                   .shm_fd = -1,
                                   .control_fd = -1,
                                   .worker_control_fd = -1,
                                   .worker_log_fd = -1};
    session->leases = calloc(record->device_count, sizeof *session->leases);
    if (!session->leases) {
        free(session);
        return NULL;
    }
    memcpy(session->device_indices, record->devices, sizeof session->device_indices);
    memcpy(session->command, record->command, sizeof session->command);
    find_user_name(session->uid, session->user, sizeof session->user);
    dv_process_attach(process, session);
    session->counted = count_session(arbiter, session->uid, true) != UINT_MAX;
    session->descriptors =
        session->api == DV_API_LEASE ? DV_LEASE_DESCRIPTORS : DV_WORKER_DESCRIPTORS;
    if (session->descriptors > arbiter->descriptors_free)
        session->descriptors = (uint32_t)arbiter->descriptors_free;
    arbiter->descriptors_free -= session->descriptors;
    HASH_ADD(hh, arbiter->sessions, id, sizeof session->id, session);
    return session;
}

int dv_session_adopt(struct dv_arbiter *arbiter, struct dv_state_session *record,
                     struct dv_state_lease *const leases[DV_MAX_DEVICES], struct dv_tenant *tenant,
                     struct dv_kept *kept)
{
    struct dv_process *process =
        dv_process_adopt(arbiter, record->tenant_pid, &kept->fds[DV_KEPT_TENANT]);
    struct dv_session *session = process ? rebuild(arbiter, record, process) : NULL;
    int error = 0;

    if (!session) {
        if (process)
            dv_process_drop(process);
        return -ENOMEM;
    }
    dv_tenants_readmit(arbiter, session, tenant);
    session->control_fd = dv_take_fd(&kept->fds[DV_KEPT_CHANNEL]);
    if (session->api != DV_API_LEASE) {
        session->zygote_generation = arbiter->zygote.adopted ? arbiter->zygote.generation : 0;
        session->worker_pidfd = dv_take_fd(&kept->fds[DV_KEPT_WORKER]);
        session->shm_fd = dv_take_fd(&kept->fds[DV_KEPT_SHM]);
        session->client_fd = dv_take_fd(&kept->fds[DV_KEPT_CLIENT]);
        dv_cages_rejoin(session);
        error = adopt_log(session, &kept->fds[DV_KEPT_LOG]);
        if (error >= 0)
            error = watch(session, &session->worker_io, session->worker_pidfd, on_worker_gone);
        if (error >= 0 && session->client_fd >= 0)
            error = watch(session, &session->client_io, session->client_fd, on_client_io);
    }
    if (error >= 0)
        error = dv_leases_rejoin(arbiter, session, leases);
    if (error < 0) { /* nobody would know of its worker any more */
        signal_worker(session, SIGKILL);
        session_destroy(session);
        return error;
    }
    if (!record->welcomed && (session->client_fd >= 0 || session->api == DV_API_LEASE))
        welcome(session);
    return 0;
}

/* A session without a worker: its own socket is its lease channel from here on. */
static void serve_leases_only(struct dv_session *session)
{
    session->client_io = sd_event_source_disable_unref(session->client_io);
    session->timer = sd_event_source_disable_unref(session->timer);
    session->state = DV_SESSION_SERVED;
    session->control_fd = session->client_fd;
    session->client_fd = -1;
    session_keep(session);
    int error = dv_leases_join(session->arbiter, session);
    if (error >= 0)
        error = welcome(session);
    if (error < 0) {
        dv_warning("session %llu: cannot welcome %s (process %d): %s", ID(session),
                   session->command, session->tenant_pid, strerror(-error));
        session_destroy(session);
    }
}

static void session_start_worker(struct dv_session *session)
{
    struct dv_arbiter *arbiter = session->arbiter;
    char text[DV_MAX_MESSAGE_TEXT];

    if (devices_must_be_awaited(arbiter))
        return;
    if (choose_devices(session) < 0) {
        session_refuse(session, DV_WELCOME_REFUSED, "divvyd has no memory for another session");
        return;
    }
    if (session->device_count == 0) {
        snprintf(text, sizeof text, "this machine has no device to offer: %.300s",
                 arbiter->devices.count ? "the configuration hides all of them"
                                        : arbiter->devices.text);
        session_refuse(session, DV_WELCOME_NO_WORKER, text);
        return;
    }
    if (dv_tenants_admit(arbiter, session, &session->wish, text, sizeof text) < 0) {
        session_refuse(session, DV_WELCOME_REFUSED, text);
        return;
    }
    if (session->api == DV_API_LEASE) {
        serve_leases_only(session);
        return;
    }
    if (arbiter->cages.cgroups.why_not[0]) {
        session_refuse(session, DV_WELCOME_NO_WORKER, arbiter->cages.cgroups.why_not);
        return;
    }
    session->shm_bytes = arbiter->config.arena_bytes;
    int error = make_shared_memory(session);
    if (error == 0)
        error = make_control_channel(session);
    if (error == 0)
        error = make_log(session);
    session->state = DV_SESSION_FORKING;
    if (error == 0)
        error = dv_zygote_request_fork(arbiter, session->id, session->uid);
    if (error < 0) {
        snprintf(text, sizeof text, "shared memory for the session could not be made: %s",
                 strerror(-error));
        session_refuse(session, DV_WELCOME_NO_WORKER, text);
    }
}

void dv_sessions_advance(struct dv_arbiter *arbiter)
{
    struct dv_session *session, *next;

    HASH_ITER(hh, arbiter->sessions, session, next)
    {
        if (session->state == DV_SESSION_WAITING)
            session_start_worker(session);
    }
}

bool dv_session_fill_request(struct dv_session *session, struct dv_zygote_request *request,
                             int fds[5])
{
    if (session->state != DV_SESSION_FORKING || session->request_sent)
        return false;
    request->session = session->id;
    request->shm_bytes = session->shm_bytes;
    request->device_count = session->device_count;
    request->api = session->api;
    memcpy(request->devices, session->grants, session->device_count * sizeof *session->grants);
    for (uint32_t i = 0; i < session->device_count; i++) {
        uint32_t device = session->device_indices[i];
        const struct dv_tenant_device *place = session->tenant->devices[device];
        if (!place)
            continue;
        request->devices[i].memory_bytes = place->memory.quota;
        request->devices[i].capacity_bytes = dv_memory_capacity(session->arbiter, device);
        const struct dv_device_rule *rule =
            dv_devices_rule(&session->arbiter->devices, device, &session->arbiter->config);
        request->devices[i].swapped = !(rule && rule->no_swap);
        request->devices[i].per_context_bytes = dv_memory_per_context(session->arbiter, device);
    }
    fds[0] = session->shm_fd;
    fds[1] = session->worker_control_fd;
    fds[2] = session->process->pidfd;
    fds[3] = session->worker_log_fd;
    fds[4] = dv_cages_fill(session->arbiter, session, &request->cage);
    return true;
}

void dv_session_request_sent(struct dv_session *session)
{
    session->request_sent = true;
    session->zygote_generation = session->arbiter->zygote.generation;
    dv_close_fd(&session->worker_control_fd);
    dv_close_fd(&session->worker_log_fd);
}

void dv_session_forked(struct dv_session *session, pid_t pid, int pidfd)
{
    if (session->state != DV_SESSION_FORKING) {
        dv_error("session %llu has a worker already: the second is killed", ID(session));
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
        close(pidfd);
        return;
    }
    session->state = DV_SESSION_SERVED;
    session->worker_pid = pid;
    session->worker_pidfd = pidfd;
    session->timer = sd_event_source_disable_unref(session->timer);
    session_keep(session);
    int error = watch(session, &session->worker_io, pidfd, on_worker_gone);
    if (error >= 0)
        error = dv_cages_bound(session);
    if (error >= 0)
        error = dv_leases_join(session->arbiter, session);
    if (error >= 0)
        error = welcome(session);
    if (error < 0) {
        /* Without its welcome the client knows no session: nobody will use this worker. */
        dv_warning("session %llu: cannot welcome %s (process %d): %s", ID(session),
                   session->command, session->tenant_pid, strerror(-error));
        signal_worker(session, SIGKILL);
        drop_client(session);
        if (!session->worker_io) /* nothing else would end the session */
            session_destroy(session);
        return;
    }
    dv_info("session %llu: %s (process %d, %s) is served by worker %d", ID(session),
            session->command, session->tenant_pid, session->user, pid);
}

void dv_session_fork_failed(struct dv_session *session, int error, const char *text)
{
    char reason[DV_MAX_MESSAGE_TEXT];

    if (session->state != DV_SESSION_FORKING)
        return;
    if (text[0])
        snprintf(reason, sizeof reason, "no worker could be started: %.400s", text);
    else
        snprintf(reason, sizeof reason, "no worker could be started: %s",
                 strerror(error < 0 ? -error : EIO));
    session_refuse(session, DV_WELCOME_NO_WORKER, reason);
}

void dv_sessions_zygote_lost(struct dv_arbiter *arbiter)
{
    struct dv_session *session, *next;

    HASH_ITER(hh, arbiter->sessions, session, next)
    {
        if (session->state == DV_SESSION_FORKING && session->request_sent)
            dv_session_fork_failed(session, 0,
                                   "the process that starts workers has ended; it is started "
                                   "again, so try once more");
        else if (session->state == DV_SESSION_SERVED && session->worker_gone)
            session_end(session, "has ended", true); /* nobody is left to say how */
    }
}

/* ---- the daemon's end ---- */

void dv_sessions_stop(struct dv_arbiter *arbiter, int signal_number)
{
    struct dv_session *session, *next;

    HASH_ITER(hh, arbiter->sessions, session, next)
    {
        if (session->state == DV_SESSION_SERVED && session->api == DV_API_LEASE)
            session_destroy(session);
        else if (session->state == DV_SESSION_SERVED)
            signal_worker(session, signal_number);
        else
            session_refuse(session, DV_WELCOME_REFUSED, "divvyd is ending");
    }
}

void dv_sessions_forget(struct dv_arbiter *arbiter)
{
    struct dv_session *session, *next;

    HASH_ITER(hh, arbiter->sessions, session, next)
    {
        session_destroy(session);
    }
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
