/* From a program's hello to a worker that serves it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/limits.h"
#include "src/arbiter/session/identity.h"
#include "src/arbiter/session/private.h"
#include "src/arbiter/system/incoming.h"
#include "src/arbiter/system/peers.h"
#include "src/base/cleanup.h"
#include "src/base/text.h"
#include "src/wire/session/shm.h"

/* ---- getting a worker ---- */

/* Sealed against resizing before another process sees it. */
static int make_shared_memory(struct dvd_session *session)
{
    struct dv_shm_header header = {.magic = DV_WIRE_MAGIC,
                                   .version = session->version,
                                   .session = session->lessee.id.value,
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

static int make_channel(struct dvd_session *session)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    session->channel.fd = pair[0];
    session->worker_channel_fd = pair[1];
    dvd_incoming_prepare(session->channel.fd);
    return fcntl(session->channel.fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int open_log(struct dvd_session *session)
{
    int error = dvd_session_make_log(session);

    if (error < 0)
        return error;
    session->worker_log_fd = dvd_worker_log_open(session->log, session->sessions->event);
    return session->worker_log_fd < 0 ? session->worker_log_fd : 0;
}

/* Numbers devices as `divvy devices` does, hidden ones too; the session may use those that it has chosen. */
static void number_as_listed(struct dvd_session *session)
{
    uint64_t leased = 0;

    for (uint32_t i = 0; i < session->lessee.device_count; i++)
        leased |= (session->lessee.leased_mask >> i & 1) << session->lessee.devices[i].number;
    session->lessee.leased_mask = leased;
    session->lessee.device_count = session->sessions->devices->count;
    for (uint32_t i = 0; i < session->lessee.device_count; i++)
        session->lessee.devices[i].number = (uint8_t)i;
}

/* Returns 0, or a negative errno with the reason. */
static int choose_devices(struct dvd_session *session, char *text, size_t bytes)
{
    struct dvd_sessions *sessions = session->sessions;
    const struct dvd_devices *devices = sessions->devices;

    session->lessee.device_count =
        session->lease_only ? dvd_devices_choose_lease_only(devices, sessions->config, session->choice,
                                                            session->lessee.devices, text, bytes)
        : session->same_devices
            ? dvd_devices_choose_same(devices, sessions->config, session->choice, session->lessee.devices, text, bytes)
            : dvd_devices_choose(devices, sessions->config, session->choice, session->lessee.devices, text, bytes);
    if (session->lessee.device_count == 0)
        return -ENODEV;
    if (session->version == 1 && session->lessee.device_count > DV_MAX_DEVICES_1)
        session->lessee.device_count = DV_MAX_DEVICES_1;
    for (uint32_t i = 0; i < session->lessee.device_count; i++)
        if (dvd_device_start(dvd_lessee_device(&session->lessee, DVD_LIST_INDEX(i))))
            session->lessee.leased_mask |= UINT64_C(1) << i;
    if (session->api == DV_API_LEASE && !session->lease_only)
        number_as_listed(session);
    if (!dvd_session_make_leases(session)) {
        snprintf(text, bytes, "divvyd has no memory for another session");
        return -ENOMEM;
    }
    return 0;
}

/* From now on the session may ask for its devices. Returns 0 or a negative errno. */
static int join_channel(struct dvd_session *session)
{
    dvd_lessee_record(&session->lessee);
    return dvd_session_enter_channel(session);
}

/* A session without a worker: its own socket is its lease channel from here on. */
static void serve_leases_only(struct dvd_session *session)
{
    session->client_io = sd_event_source_disable_unref(session->client_io);
    session->timer = sd_event_source_disable_unref(session->timer);
    session->state = DV_SESSION_SERVED;
    session->channel.fd = session->client_fd;
    session->client_fd = -1;
    dvd_session_record(session);
    int error = join_channel(session);
    if (error >= 0)
        error = dvd_session_welcome(session);
    if (error < 0) {
        dv_warning("session %llu: cannot welcome %s (process %d): %s", ID(session), session->command,
                   session->tenant_pid, strerror(-error));
        dvd_session_free(session);
    }
}

/* Whether it may have a session without a worker. On a lease-only device there is no other. */
static bool may_lease_only(const struct dvd_session *session)
{
    const struct dvd_config *config = session->sessions->config;

    if (session->lease_only)
        return true;
    if (config->lease_sessions != DV_LEASE_SESSIONS_OF_GROUP)
        return config->lease_sessions == DV_LEASE_SESSIONS_ALL;
    return dvd_peer_is_in_group(session->client_fd, session->gid, config->lease_group);
}

static int admit(struct dvd_session *session, char *text, size_t bytes)
{
    struct dvd_sessions *sessions = session->sessions;
    struct dvd_identity identity;

    if (!dvd_session_identify(session, &identity)) {
        snprintf(text, bytes,
                 "the operator does not let programs of user %s use the accelerators here (a tenant rule with refuse: "
                 "yes in divvy.yaml); ask the operator",
                 session->user);
        return -EACCES;
    }
    int status = dvd_lessee_admit(&session->lessee, &identity, &session->change, text, bytes);
    if (status < 0)
        session->refused_tenant = strdup(identity.name);
    if (status == 0 && session->lessee.change_ignored && dv_log_within(&sessions->refusals, DV_REFUSALS_PER_S))
        dv_info("session %llu (%s): the requested share is ignored because tenant %s has several users", ID(session),
                session->user, identity.name);
    return status;
}

/* Prepares a worker, and asks for it. Returns 0, or a negative errno. */
static int prepare_worker(struct dvd_session *session)
{
    struct dvd_sessions *sessions = session->sessions;

    session->shm_bytes = dvd_arenas_size(session);
    int error = make_shared_memory(session);
    dvd_arenas_watch(sessions);
    if (error == 0)
        error = make_channel(session);
    if (error == 0)
        error = open_log(session);
    session->state = DV_SESSION_FORKING;
    return error < 0 ? error : dvd_zygote_request_fork(sessions->zygote, session->lessee.id, session->lessee.uid);
}

/* Whether there can be a worker for the session. Returns 0, or a negative errno with the reason. */
static int admit_worker(struct dvd_session *session, enum dv_welcome_status *status, char *text, size_t bytes)
{
    const struct dvd_tenant *tenant = session->lessee.tenant;

    dvd_sandbox_init(&session->sandbox, tenant->name, dvd_tenant_is_program(tenant), session->lessee.uid);
    int error =
        dvd_sandbox_admit(session->sessions->sandboxes, &session->sandbox, tenant->name, session->user, text, bytes);
    *status = error == -ENOTSUP ? DV_WELCOME_NO_WORKER : DV_WELCOME_REFUSED;
    return error;
}

/* The memory that it shares with its program stays as it is. */
static int prepare_another(struct dvd_session *session)
{
    int error = make_channel(session);

    if (error == 0)
        error = open_log(session);
    session->state = DV_SESSION_FORKING;
    return error < 0 ? error
                     : dvd_zygote_request_fork(session->sessions->zygote, session->lessee.id, session->lessee.uid);
}

void dvd_session_drop_worker_parts(struct dvd_session *session)
{
    dvd_incoming_close(&session->sessions->asides, &session->channel.fd);
    dv_close_fd(&session->worker_channel_fd);
    dv_close_fd(&session->worker_log_fd);
    if (session->log)
        dvd_worker_log_close(session->log);
    free(session->log);
    session->log = NULL;
    dvd_sandbox_leave(session->sessions->sandboxes, &session->sandbox);
}

int dvd_session_start_again(struct dvd_session *session)
{
    enum dv_welcome_status status;
    char text[DV_MAX_MESSAGE_TEXT];

    if (!dvd_zygote_is_ready(session->sessions->zygote))
        return -EAGAIN;
    if (admit_worker(session, &status, text, sizeof text) < 0) {
        dv_warning("session %llu of %s (process %d) stays parked: %s", ID(session), session->command,
                   session->tenant_pid, text);
        return -EAGAIN;
    }
    int error = prepare_another(session);
    if (error < 0) {
        dvd_session_drop_worker_parts(session);
        session->state = DV_SESSION_PARKED;
    }
    return error;
}

static void start_worker(struct dvd_session *session)
{
    enum dv_welcome_status status;
    char text[DV_MAX_MESSAGE_TEXT];

    if (admit_worker(session, &status, text, sizeof text) < 0) {
        dvd_session_refuse(session, status, text);
        return;
    }
    int error = prepare_worker(session);
    if (error < 0) {
        snprintf(text, sizeof text, "shared memory for the session could not be made: %s", strerror(-error));
        dvd_session_refuse(session, DV_WELCOME_NO_WORKER, text);
    }
}

/* Looks for devices, if it has to. A lease-only device needs no driver, and so no zygote. */
static bool is_ready(const struct dvd_session *session)
{
    const struct dvd_sessions *sessions = session->sessions;

    if (session->lease_only && sessions->devices->known)
        return true;
    dvd_zygote_refresh_devices(sessions->zygote);
    return dvd_zygote_is_ready(sessions->zygote);
}

static void start(struct dvd_session *session)
{
    enum dv_welcome_status status;
    char text[DV_MAX_MESSAGE_TEXT];

    if (!is_ready(session)) {
        dvd_session_enter_waiting(session);
        return;
    }
    dvd_session_leave_waiting(session);
    int chosen = choose_devices(session, text, sizeof text);
    if (chosen < 0) {
        /* a program that names devices is refused before it starts */
        dvd_session_refuse(session, chosen == -ENODEV && !session->choice ? DV_WELCOME_NO_WORKER : DV_WELCOME_REFUSED,
                           text);
        return;
    }
    if (admit(session, text, sizeof text) < 0) {
        dvd_session_refuse(session, DV_WELCOME_REFUSED, text);
        return;
    }
    if (session->lessee.has_worker)
        start_worker(session);
    else if (may_lease_only(session))
        serve_leases_only(session);
    else if (admit_worker(session, &status, text, sizeof text) < 0)
        dvd_session_refuse(session, status, text);
    else /* `divvy run` asks this way whether a program would be refused: here it would not be */
        dvd_session_refuse(session, DV_WELCOME_NO_LEASE,
                           "the operator allows this user no sessions without a worker (lease-sessions in divvy.yaml)");
}

/* ---- sessions that wait ---- */

static void arm_advance(struct dvd_sessions *sessions);

/* One at a time: other events are handled between two. */
static int on_advance(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_sessions *sessions = userdata;
    struct dvd_session *first;

    (void)source;
    (void)usec;
    DL_FOREACH2 (sessions->waiting, first, next_waiting)
        if (is_ready(first))
            break;
    if (!first)
        return 0;
    start(first);
    if (sessions->waiting)
        arm_advance(sessions);
    return 0;
}

static void arm_advance(struct dvd_sessions *sessions)
{
    int error = 0;

    if (!sessions->advance)
        error = sd_event_add_time_relative(sessions->event, &sessions->advance, CLOCK_MONOTONIC, 0, 1, on_advance,
                                           sessions);
    if (error >= 0)
        error = sd_event_source_set_time_relative(sessions->advance, 0);
    if (error >= 0)
        error = sd_event_source_set_enabled(sessions->advance, SD_EVENT_ONESHOT);
    if (error < 0)
        dv_error("cannot start waiting sessions: %s", strerror(-error));
}

void dvd_sessions_advance(struct dvd_sessions *sessions)
{
    if (sessions->waiting)
        arm_advance(sessions);
}

/* ---- hello ---- */

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

static struct dvd_share_change change_of(const struct dv_hello *hello)
{
    return (struct dvd_share_change){.has_request = hello->request != 0,
                                     .has_limit = hello->limit != 0,
                                     .has_weight = hello->weight != 0,
                                     .has_class = hello->class != 0,
                                     .request_ppm = hello->request - 1,
                                     .limit_ppm = hello->limit - 1,
                                     .weight = hello->weight,
                                     .class = (enum dv_class)(hello->class - 1)};
}

static int on_start_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_session *session = userdata;

    (void)source;
    (void)usec;
    dvd_session_refuse(
        session, DV_WELCOME_NO_WORKER,
        session->sessions->zygote->fd < 0      ? "the process that starts workers is not running; see divvyd's log"
        : session->state == DV_SESSION_WAITING ? "the machine's devices did not answer in time; see divvyd's log"
                                               : "no worker could be started in time; see divvyd's log");
    return 0;
}

/* Whether there is room for one more session. Fills in the reason otherwise. */
static bool has_room(struct dvd_session *session, unsigned of_user, char *text, size_t bytes)
{
    struct dvd_sessions *sessions = session->sessions;
    unsigned others = HASH_COUNT(sessions->all) - 1;

    if (dvd_channels_are_costly(&sessions->channels, session->lessee.uid, dv_now()))
        snprintf(text, bytes,
                 "a session of this user was terminated because its messages took divvyd too long; try again in ten "
                 "seconds");
    else if (others >= DV_MAX_SESSIONS || !dvd_session_take_descriptors(session))
        snprintf(text, bytes, "this machine serves %u sessions already, its maximum; wait until one ends", others);
    else if (of_user >= sessions->config->sessions_per_user)
        snprintf(text, bytes,
                 "user %s has %u sessions already, the maximum (sessions-per-user); wait until one ends, or ask the "
                 "operator",
                 session->user, of_user);
    else
        return true;
    return false;
}

static struct dvd_session_id next_id(struct dvd_sessions *sessions)
{
    uint64_t id = ++sessions->last_id;

    if (sessions->state->header)
        atomic_store(&sessions->state->header->last_session, id);
    return DVD_SESSION_ID(id);
}

void dvd_session_note_refusal(struct dvd_sessions *sessions, const struct ucred *peer, const char *why)
{
    struct dvd_end_record end = {.id = next_id(sessions), .uid = peer->uid, .pid = peer->pid};

    dvd_user_name(peer->uid, end.user, sizeof end.user);
    find_command(peer->pid, end.command, sizeof end.command);
    dv_text_copy(end.why, sizeof end.why, why);
    dvd_ends_note_refusal(&sessions->ends, &end);
}

void dvd_session_begin(struct dvd_sessions *sessions, int client_fd, struct dvd_process *process,
                       const struct dv_hello *hello, uint16_t version, const struct ucred *peer)
{
    struct dvd_session_origin origin = {.id = next_id(sessions),
                                        .uid = peer->uid,
                                        .gid = peer->gid,
                                        .pid = peer->pid,
                                        .version = version,
                                        .api = hello->api,
                                        .present_as = hello->present_as,
                                        .started = time(NULL),
                                        .started_us = dv_now() / DV_NS_PER_US};
    unsigned of_user = dvd_sessions_of_user(sessions, peer->uid);
    struct dvd_session *session = dvd_session_new(sessions, process, &origin);
    char text[DV_MAX_MESSAGE_TEXT];

    if (!session) {
        dv_error("no memory for a session");
        close(client_fd);
        return;
    }
    session->client_fd = client_fd;
    session->change = change_of(hello);
    session->lessee.memory_max = hello->memory_bytes;
    session->lessee.deadline_ns = hello->deadline_ns;
    session->same_devices = hello->flags == DV_HELLO_SAME_DEVICES;
    session->lease_only = hello->flags == DV_HELLO_LEASE_ONLY;
    session->lessee.keeps_order = !session->lessee.has_worker || session->same_devices;
    find_command(peer->pid, session->command, sizeof session->command);
    if (!has_room(session, of_user, text, sizeof text)) {
        dvd_session_refuse(session, DV_WELCOME_REFUSED, text);
        return;
    }
    if (hello->devices[0] && !(session->choice = strdup(hello->devices))) {
        dvd_session_refuse(session, DV_WELCOME_REFUSED, "divvyd has no memory for another session");
        return;
    }
    if (dvd_session_watch_client(session) < 0) {
        dvd_session_refuse(session, DV_WELCOME_REFUSED, "divvyd is out of resources; see its log");
        return;
    }
    dvd_session_set_timer(session, DV_START_TIMEOUT_US, on_start_deadline);
    start(session);
}

/* ---- the zygote forks it ---- */

static struct dv_device_grant fill_grant(const struct dvd_session *session, uint32_t index)
{
    const struct dvd_sessions *sessions = session->sessions;
    uint32_t device = session->lessee.devices[index].number;
    struct dv_device_grant grant = dvd_devices_grant(sessions->devices, device, sessions->config, session->present_as);

    grant.leased = session->lessee.leased_mask >> index & 1;
    if (!grant.leased)
        return grant;
    const struct dvd_tenant_device *there = session->lessee.tenant->devices[device];
    const struct dvd_device_rule *rule = dvd_devices_rule(sessions->devices, device, sessions->config);
    grant.memory_bytes =
        there ? there->memory.quota
              : dvd_device_size(&sessions->ledger->devices[device], &session->lessee.tenant->terms.memory);
    if (session->lessee.memory_max && session->lessee.memory_max < grant.memory_bytes)
        grant.memory_bytes = session->lessee.memory_max;
    grant.capacity_bytes = sessions->ledger->devices[device].terms.capacity_bytes;
    grant.swapped = !(rule && rule->no_swap);
    grant.per_context_bytes = sessions->ledger->devices[device].terms.per_context_bytes;
    return grant;
}

bool dvd_session_fill_fork(struct dvd_session *session, struct dv_zygote_request *request, int fds[DV_ZYGOTE_FDS])
{
    if (session->state != DV_SESSION_FORKING || session->request_sent)
        return false;
    request->session = session->lessee.id.value;
    request->shm_bytes = session->shm_bytes;
    request->device_count = session->lessee.device_count;
    request->api = session->api;
    for (uint32_t i = 0; i < session->lessee.device_count; i++)
        request->devices[i] = fill_grant(session, i);
    fds[0] = session->shm_fd;
    fds[1] = session->worker_channel_fd;
    fds[2] = session->process->pidfd;
    fds[3] = session->worker_log_fd;
    fds[4] = dvd_sandbox_fill(session->sessions->sandboxes, &session->sandbox, &request->sandbox);
    if (session->store_fd >= 0) {
        request->store_bytes = session->shm_bytes;
        fds[5] = session->store_fd;
    }
    return true;
}

void dvd_session_fork_sent(struct dvd_session *session)
{
    session->request_sent = true;
    session->zygote_generation = session->sessions->zygote->generation;
    dv_close_fd(&session->worker_channel_fd);
    dv_close_fd(&session->worker_log_fd);
}

/* Bounds the worker. Tells its client if that is not possible. */
static int bound_worker(struct dvd_session *session, char *text, size_t bytes)
{
    struct dvd_sandbox_processes processes = dvd_session_processes(session);
    int error = dvd_sandbox_bound(session->sessions->sandboxes, &session->sandbox, &processes, text, bytes);

    if (error < 0 && text[0])
        dvd_session_send_welcome(session->client_fd, session->version, DV_WELCOME_NO_WORKER, session->lessee.id.value,
                                 0, -1, text);
    return error;
}

void dvd_session_forked(struct dvd_session *session, pid_t pid, int pidfd)
{
    if (session->state != DV_SESSION_FORKING) {
        dv_error("session %llu has a worker already: the second is killed", ID(session));
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
        close(pidfd);
        return;
    }
    char text[DV_MAX_MESSAGE_TEXT] = "";
    session->state = DV_SESSION_SERVED;
    session->worker_pid = pid;
    session->worker_pidfd = pidfd;
    session->timer = sd_event_source_disable_unref(session->timer);
    dvd_session_record(session);
    int error = dvd_session_watch_worker(session);
    if (error >= 0)
        error = bound_worker(session, text, sizeof text);
    if (error >= 0)
        error = join_channel(session);
    if (error >= 0 && session->store_fd < 0) /* otherwise it had another worker */
        error = dvd_session_welcome(session);
    if (error < 0) {
        /* Without its welcome the client knows no session: no program will use this worker. */
        dv_warning("session %llu: cannot welcome %s (process %d): %s", ID(session), session->command,
                   session->tenant_pid, text[0] ? text : strerror(-error));
        dvd_session_signal_worker(session, SIGKILL);
        dvd_session_drop_client(session);
        if (!session->worker_io) /* nothing else would end the session */
            dvd_session_free(session);
        return;
    }
    dv_info("session %llu: %s (process %d, %s) is served by worker %d", ID(session), session->command,
            session->tenant_pid, session->user, pid);
}

void dvd_session_fork_failed(struct dvd_session *session, int error, const char *text)
{
    char reason[DV_MAX_MESSAGE_TEXT];

    if (session->state != DV_SESSION_FORKING)
        return;
    if (text[0])
        snprintf(reason, sizeof reason, "no worker could be started: %.400s", text);
    else
        snprintf(reason, sizeof reason, "no worker could be started: %s", strerror(error < 0 ? -error : EIO));
    if (session->store_fd >= 0) {
        session->sessions->parking->not_resumed(session, reason);
        return;
    }
    dvd_session_refuse(session, DV_WELCOME_NO_WORKER, reason);
}

void dvd_sessions_forks_lost(struct dvd_sessions *sessions)
{
    struct dvd_session *session, *next;

    HASH_ITER (hh, sessions->all, session, next)
        if (session->state == DV_SESSION_FORKING && session->request_sent)
            dvd_session_fork_failed(session, 0,
                                    "the process that starts workers has ended and is restarted: try again");
}
