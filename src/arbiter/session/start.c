/* From a program's hello to a worker that serves it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/system/incoming.h"
#include "src/arbiter/system/peers.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/session/identity.h"
#include "src/arbiter/session/private.h"
#include "src/arbiter/restart/state.h"
#include "src/base/cleanup.h"
#include "src/base/text.h"
#include "src/wire/session/shm.h"

/* ---- who it is ---- */

/* Names by number, as long as the file that they are from does not change: it can be long. */
static struct known_name {
    bool known;
    uid_t uid;
    struct timespec changed;
    char name[DV_LIMIT_USER_NAME];
} known_names[DV_LIMIT_KNOWN_NAMES];

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

/* From the file, never from a name service: divvyd would wait for that, and everybody for divvyd. */
void dv_session_find_user(uid_t uid, char *name, size_t bytes)
{
    struct known_name *known = &known_names[uid % DV_LIMIT_KNOWN_NAMES];
    struct stat file = {0};

    (void)stat("/etc/passwd", &file);
    if (!known->known || known->uid != uid || known->changed.tv_sec != file.st_mtim.tv_sec ||
        known->changed.tv_nsec != file.st_mtim.tv_nsec) {
        *known = (struct known_name){.known = true, .uid = uid, .changed = file.st_mtim};
        read_user(uid, known->name, sizeof known->name);
    }
    dv_text_copy(name, bytes, known->name);
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

/* ---- getting a worker ---- */

/* Sealed against resizing before anybody else sees it. */
static int make_shared_memory(struct dv_session *session)
{
    struct dv_shm_header header = {.magic = DV_WIRE_MAGIC,
                                   .version = session->version,
                                   .session = session->lessee.id,
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
    dvd_incoming_prepare(session->control_fd);
    return fcntl(session->control_fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int open_log(struct dv_session *session)
{
    int error = dv_session_make_log(session);

    if (error < 0)
        return error;
    session->worker_log_fd = dv_worker_log_open(session->log, session->arbiter->event);
    return session->worker_log_fd < 0 ? session->worker_log_fd : 0;
}

/* Numbers are those of `divvy devices`, hidden ones too; the session may speak of those it has chosen. */
static void number_as_listed(struct dv_session *session)
{
    uint64_t leased = 0;

    for (uint32_t i = 0; i < session->lessee.device_count; i++)
        leased |= (session->lessee.leased_mask >> i & 1) << session->lessee.device_indices[i];
    session->lessee.leased_mask = leased;
    session->lessee.device_count = session->arbiter->devices.count;
    for (uint32_t i = 0; i < session->lessee.device_count; i++)
        session->lessee.device_indices[i] = (uint8_t)i;
}

/* Returns 0, or a negative errno with words. */
static int choose_devices(struct dv_session *session, char *text, size_t bytes)
{
    struct dv_arbiter *arbiter = session->arbiter;
    const struct dv_devices *devices = &arbiter->devices;

    session->lessee.device_count =
        session->same_devices
            ? dv_devices_choose_same(devices, &arbiter->config, session->choice,
                                     session->lessee.device_indices, text, bytes)
            : dv_devices_choose(devices, &arbiter->config, session->choice,
                                session->lessee.device_indices, text, bytes);
    if (session->lessee.device_count == 0)
        return -ENODEV;
    if (session->version == 1 && session->lessee.device_count > DV_MAX_DEVICES_1)
        session->lessee.device_count = DV_MAX_DEVICES_1;
    for (uint32_t i = 0; i < session->lessee.device_count; i++)
        if (dvd_device_start(&arbiter->ledger.devices[session->lessee.device_indices[i]]))
            session->lessee.leased_mask |= UINT64_C(1) << i;
    if (session->api == DV_API_LEASE)
        number_as_listed(session);
    session->lessee.leases = calloc(session->lessee.device_count, sizeof(struct dvd_lease *));
    if (!session->lessee.leases) {
        snprintf(text, bytes, "divvyd has no memory for another session");
        return -ENOMEM;
    }
    return 0;
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
    /* A driver may have come or become ready since the last look, or there was no memory to load
     * it. */
    else if (!arbiter->zygote.probing && dv_arbiter_now(arbiter) - devices->probed_us >= pause_us)
        dv_zygote_renew(arbiter);
    return arbiter->zygote.probing || arbiter->zygote.fd < 0 || devices->had_some;
}

int dv_session_welcome(struct dv_session *session)
{
    bool lease_only = session->api == DV_API_LEASE;
    int error = dv_session_send_welcome(lease_only ? session->control_fd : session->client_fd,
                                        session->version, DV_WELCOME_OK, session->lessee.id,
                                        session->shm_bytes, session->shm_fd,
                                        session->lessee.change_ignored
                                            ? "what was asked of its share is ignored, for its tenant "
                                              "has several users: the operator sets it"
                                            : "");

    if (error >= 0 && session->lessee.record)
        session->lessee.record->welcomed = 1;
    return error;
}

/* From now on the session may ask for its devices. Returns 0 or a negative errno. */
static int join_channels(struct dv_session *session)
{
    dvd_lessee_record(&session->lessee);
    return session->lessee.leased_mask ? dv_channels_enter(session) : 0;
}

/* A session without a worker: its own socket is its lease channel from here on. */
static void serve_leases_only(struct dv_session *session)
{
    session->client_io = sd_event_source_disable_unref(session->client_io);
    session->timer = sd_event_source_disable_unref(session->timer);
    session->state = DV_SESSION_SERVED;
    session->control_fd = session->client_fd;
    session->client_fd = -1;
    dv_session_keep(session);
    int error = join_channels(session);
    if (error >= 0)
        error = dv_session_welcome(session);
    if (error < 0) {
        dv_warning("session %llu: cannot welcome %s (process %d): %s", ID(session),
                   session->command, session->tenant_pid, strerror(-error));
        dv_session_destroy(session);
    }
}

/* Whether it may have a session without a worker. */
static bool may_lease_only(const struct dv_session *session)
{
    const struct dv_config *config = &session->arbiter->config;

    if (config->lease_sessions != DV_LEASE_SESSIONS_OF_GROUP)
        return config->lease_sessions == DV_LEASE_SESSIONS_ALL;
    return dvd_peer_is_in_group(session->client_fd, session->gid, config->lease_group);
}

static void wait_for_devices(struct dv_session *session)
{
    if (!session->in_waiting)
        DL_APPEND2(session->arbiter->waiting, session, prev_waiting, next_waiting);
    session->in_waiting = true;
}

void dv_session_leave_waiting(struct dv_session *session)
{
    if (session->in_waiting)
        DL_DELETE2(session->arbiter->waiting, session, prev_waiting, next_waiting);
    session->in_waiting = false;
}

static int admit(struct dv_session *session, char *text, size_t bytes)
{
    struct dv_arbiter *arbiter = session->arbiter;
    struct dvd_peer peer = {.fd = session->client_fd,
                            .uid = session->lessee.uid,
                            .gid = session->gid,
                            .pid = session->tenant_pid,
                            .session = session->lessee.id,
                            .user = session->user,
                            .command = session->command};
    struct dvd_identity identity;

    if (!dvd_identity_find(&arbiter->config, &peer, &identity)) {
        snprintf(text, bytes,
                 "the operator does not let programs of user %s use the accelerators here (a tenant rule with refuse: "
                 "yes in divvy.yaml); ask the operator",
                 session->user);
        return -EACCES;
    }
    int status = dvd_lessee_admit(&session->lessee, &identity, &session->change, text, bytes);
    if (status == 0 && session->lessee.change_ignored && dv_log_within(&arbiter->refusals, DV_REFUSALS_PER_S))
        dv_info("session %llu (%s): what it asks of its share is ignored, for tenant %s has several users", ID(session),
                session->user, identity.name);
    return status;
}

static void start_worker(struct dv_session *session)
{
    struct dv_arbiter *arbiter = session->arbiter;
    char text[DV_MAX_MESSAGE_TEXT];

    if (devices_must_be_awaited(arbiter)) {
        wait_for_devices(session);
        return;
    }
    dv_session_leave_waiting(session);
    int chosen = choose_devices(session, text, sizeof text);
    if (chosen < 0) {
        /* what the program itself has named is told it before it starts */
        dv_session_refuse(session,
                          chosen == -ENODEV && !session->choice ? DV_WELCOME_NO_WORKER
                                                                : DV_WELCOME_REFUSED,
                          text);
        return;
    }
    if (admit(session, text, sizeof text) < 0) {
        dv_session_refuse(session, DV_WELCOME_REFUSED, text);
        return;
    }
    if (session->api == DV_API_LEASE) {
        /* `divvy run` asks in this way whether a program would be refused; that is answered by now */
        if (may_lease_only(session))
            serve_leases_only(session);
        else
            dv_session_refuse(session, DV_WELCOME_NO_WORKER,
                              "the operator allows this user no sessions without a worker "
                              "(lease-sessions in divvy.yaml)");
        return;
    }
    if (arbiter->cages.cgroups.why_not[0]) {
        dv_session_refuse(session, DV_WELCOME_NO_WORKER, arbiter->cages.cgroups.why_not);
        return;
    }
    if (dv_cages_admit(session, text, sizeof text) < 0) {
        dv_session_refuse(session, DV_WELCOME_REFUSED, text);
        return;
    }
    session->shm_bytes = dv_arenas_size(session);
    int error = make_shared_memory(session);
    dv_arenas_watch(arbiter);
    if (error == 0)
        error = make_control_channel(session);
    if (error == 0)
        error = open_log(session);
    session->state = DV_SESSION_FORKING;
    if (error == 0)
        error = dv_zygote_request_fork(arbiter, session->lessee.id, session->lessee.uid);
    if (error < 0) {
        snprintf(text, sizeof text, "shared memory for the session could not be made: %s",
                 strerror(-error));
        dv_session_refuse(session, DV_WELCOME_NO_WORKER, text);
    }
}

static void arm_advance(struct dv_arbiter *arbiter);

/* One at a time: whoever else waits for divvyd has its turn between two. */
static int on_advance(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dv_arbiter *arbiter = userdata;
    struct dv_session *first = arbiter->waiting;

    (void)source;
    (void)usec;
    if (!first || devices_must_be_awaited(arbiter))
        return 0;
    start_worker(first);
    if (arbiter->waiting)
        arm_advance(arbiter);
    return 0;
}

static void arm_advance(struct dv_arbiter *arbiter)
{
    int error = 0;

    if (!arbiter->advance)
        error = sd_event_add_time_relative(arbiter->event, &arbiter->advance, CLOCK_MONOTONIC, 0, 1,
                                           on_advance, arbiter);
    if (error >= 0)
        error = sd_event_source_set_time_relative(arbiter->advance, 0);
    if (error >= 0)
        error = sd_event_source_set_enabled(arbiter->advance, SD_EVENT_ONESHOT);
    if (error < 0)
        dv_error("cannot go on with sessions that wait: %s", strerror(-error));
}

void dv_sessions_advance(struct dv_arbiter *arbiter)
{
    if (arbiter->waiting)
        arm_advance(arbiter);
}

/* ---- hello ---- */

static int on_start_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dv_session *session = userdata;

    (void)source;
    (void)usec;
    dv_session_refuse(session, DV_WELCOME_NO_WORKER,
                      session->arbiter->zygote.fd < 0
                          ? "the process that starts workers does not run; see divvyd's log"
                      : session->state == DV_SESSION_WAITING
                          ? "the machine's devices did not answer in time; see divvyd's log"
                          : "no worker could be started in time; see divvyd's log");
    return 0;
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
    *session = (struct dv_session){.lessee = {.ledger = &arbiter->ledger,
                                              .id = id,
                                              .uid = peer->uid,
                                              .has_worker = hello->api != DV_API_LEASE,
                                              .keeps_order = hello->api == DV_API_LEASE ||
                                                             hello->flags & DV_HELLO_SAME_DEVICES},
                                   .arbiter = arbiter,
                                   .state = DV_SESSION_WAITING,
                                   .gid = peer->gid,
                                   .tenant_pid = peer->pid,
                                   .version = version,
                                   .api = hello->api,
                                   .present_as = hello->present_as,
                                   .change = change_of(hello),
                                   .same_devices = hello->flags & DV_HELLO_SAME_DEVICES,
                                   .started = time(NULL),
                                   .started_us = dv_arbiter_now(arbiter),
                                   .client_fd = client_fd,
                                   .worker_pidfd = -1,
                                   .shm_fd = -1,
                                   .control_fd = -1,
                                   .worker_control_fd = -1,
                                   .worker_log_fd = -1};
    dv_process_attach(process, session);
    dv_session_find_user(peer->uid, session->user, sizeof session->user);
    find_command(peer->pid, session->command, sizeof session->command);
    unsigned of_user = dv_session_count(arbiter, peer->uid, true);
    session->counted = of_user != UINT_MAX;
    unsigned in_all = HASH_COUNT(arbiter->sessions);
    HASH_ADD(hh, arbiter->sessions, lessee.id, sizeof session->lessee.id, session);
    dv_arbiter_check_idle(arbiter);

    uint32_t descriptors =
        hello->api == DV_API_LEASE ? DV_LEASE_DESCRIPTORS : DV_WORKER_DESCRIPTORS;
    bool full = in_all >= DV_LIMIT_SESSIONS || descriptors > arbiter->descriptors_free;
    if (dv_channels_are_costly(&arbiter->channels, session->lessee.uid, dv_now())) {
        dv_session_refuse(session, DV_WELCOME_REFUSED,
                          "a session of this user was ended because its messages took divvyd too long; try again in "
                          "ten seconds");
        return;
    }
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
        dv_session_refuse(session, DV_WELCOME_REFUSED, text);
        return;
    }
    session->descriptors = descriptors;
    arbiter->descriptors_free -= descriptors;
    if (hello->devices[0] && !(session->choice = strdup(hello->devices))) {
        dv_session_refuse(session, DV_WELCOME_REFUSED, "divvyd has no memory for another session");
        return;
    }
    if (dv_session_watch_client(session) < 0) {
        dv_session_refuse(session, DV_WELCOME_REFUSED, "divvyd is out of resources; see its log");
        return;
    }
    dv_session_set_timer(session, DV_LIMIT_START_US, on_start_deadline);
    start_worker(session);
}

/* ---- the zygote forks it ---- */

static struct dv_device_grant fill_grant(const struct dv_session *session, uint32_t index)
{
    const struct dv_arbiter *arbiter = session->arbiter;
    uint32_t device = session->lessee.device_indices[index];
    struct dv_device_grant grant =
        dv_devices_grant(&arbiter->devices, device, &arbiter->config, session->present_as);

    grant.leased = session->lessee.leased_mask >> index & 1;
    if (!grant.leased)
        return grant;
    const struct dvd_tenant_device *place = session->lessee.tenant->devices[device];
    const struct dv_device_rule *rule =
        dv_devices_rule(&arbiter->devices, device, &arbiter->config);
    grant.memory_bytes = place ? place->memory.quota
                               : dvd_device_size(&arbiter->ledger.devices[device], &session->lessee.tenant->terms.memory);
    grant.capacity_bytes = arbiter->ledger.devices[device].terms.capacity_bytes;
    grant.swapped = !(rule && rule->no_swap);
    grant.per_context_bytes = arbiter->ledger.devices[device].terms.per_context_bytes;
    return grant;
}

bool dv_session_fill_request(struct dv_session *session, struct dv_zygote_request *request,
                             int fds[5])
{
    if (session->state != DV_SESSION_FORKING || session->request_sent)
        return false;
    request->session = session->lessee.id;
    request->shm_bytes = session->shm_bytes;
    request->device_count = session->lessee.device_count;
    request->api = session->api;
    for (uint32_t i = 0; i < session->lessee.device_count; i++)
        request->devices[i] = fill_grant(session, i);
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
    char text[DV_MAX_MESSAGE_TEXT] = "";
    session->state = DV_SESSION_SERVED;
    session->worker_pid = pid;
    session->worker_pidfd = pidfd;
    session->timer = sd_event_source_disable_unref(session->timer);
    dv_session_keep(session);
    int error = dv_session_watch_worker(session);
    if (error >= 0) {
        error = dv_cages_bound(session, text, sizeof text);
        if (error < 0 && text[0])
            dv_session_send_welcome(session->client_fd, session->version, DV_WELCOME_NO_WORKER, session->lessee.id, 0, -1,
                                    text);
    }
    if (error >= 0)
        error = join_channels(session);
    if (error >= 0)
        error = dv_session_welcome(session);
    if (error < 0) {
        /* Without its welcome the client knows no session: nobody will use this worker. */
        dv_warning("session %llu: cannot welcome %s (process %d): %s", ID(session),
                   session->command, session->tenant_pid, text[0] ? text : strerror(-error));
        dv_session_signal_worker(session, SIGKILL);
        dv_session_drop_client(session);
        if (!session->worker_io) /* nothing else would end the session */
            dv_session_destroy(session);
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
    dv_session_refuse(session, DV_WELCOME_NO_WORKER, reason);
}
