/* A session of an earlier daemon goes on. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "src/arbiter/session/private.h"
#include "src/arbiter/system/incoming.h"
#include "src/base/cleanup.h"

static struct dvd_session *rebuild(struct dvd_sessions *sessions, struct dv_state_session *record,
                                   struct dvd_process *process)
{
    struct dvd_session_origin origin = {.id = DVD_SESSION_ID(record->id),
                                        .uid = record->uid,
                                        .gid = record->gid,
                                        .pid = record->tenant_pid,
                                        .version = record->version,
                                        .api = record->api,
                                        .present_as = record->present_as,
                                        .started = (time_t)record->started,
                                        .started_us = record->started_us};
    struct dvd_session *session = dvd_session_new(sessions, process, &origin);

    if (!session)
        return NULL;
    session->state = DV_SESSION_SERVED;
    session->request_sent = true;
    session->has_line = true; /* perhaps not, but in a sum, what it has a line for already would count twice */
    session->worker_pid = record->worker_pid;
    session->shm_bytes = record->shm_bytes;
    session->lessee.device_count = record->device_count;
    session->lessee.leased_mask = record->leased_mask;
    session->lessee.record = record;
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++)
        session->lessee.devices[i].number = record->devices[i];
    /* Such a session has that device alone. Others without a worker list all devices, leased or not. */
    session->lease_only =
        record->device_count == 1 && sessions->devices->reports[record->devices[0]].kind == DV_DEVICE_LEASE_ONLY;
    memcpy(session->command, record->command, sizeof session->command);
    (void)dvd_session_take_descriptors(session); /* it goes on even if there are fewer now */
    return session;
}

static int restore_parked(struct dvd_session *session, struct dvd_kept *kept)
{
    session->shm_fd = dv_take_fd(&kept->fds[DV_KEPT_SHM]);
    session->store_fd = dv_take_fd(&kept->fds[DV_KEPT_STORE]);
    session->request_sent = false;
    session->lessee.unsynced_mask = 0; /* there is no worker to say anything */
    dvd_session_goes_on_parked(session);
    return 0;
}

static int restore_worker(struct dvd_session *session, struct dvd_kept *kept)
{
    struct dvd_sessions *sessions = session->sessions;
    const struct dvd_tenant *tenant = session->lessee.tenant;

    session->zygote_generation = sessions->zygote->adopted ? sessions->zygote->generation : 0;
    session->worker_pidfd = dv_take_fd(&kept->fds[DV_KEPT_WORKER]);
    session->shm_fd = dv_take_fd(&kept->fds[DV_KEPT_SHM]);
    session->store_fd = dv_take_fd(&kept->fds[DV_KEPT_STORE]);
    session->asked_before = session->store_fd >= 0;
    session->client_fd = dv_take_fd(&kept->fds[DV_KEPT_CLIENT]);
    if (session->client_fd >= 0) /* a daemon of an earlier release may have accepted it */
        dvd_incoming_prepare(session->client_fd);
    struct dvd_sandbox_processes processes = dvd_session_processes(session);
    dvd_sandbox_init(&session->sandbox, tenant->name, dvd_tenant_is_program(tenant), session->lessee.uid);
    dvd_sandbox_restore(sessions->sandboxes, &session->sandbox, &processes);
    int error = dvd_session_make_log(session);
    if (error >= 0)
        error = dvd_worker_log_adopt(session->log, sessions->event, &kept->fds[DV_KEPT_LOG]);
    if (error >= 0)
        error = dvd_session_watch_worker(session);
    if (error >= 0 && session->client_fd >= 0)
        error = dvd_session_watch_client(session);
    return error;
}

static int rejoin_channel(struct dvd_session *session)
{
    int error = dvd_session_enter_channel(session);

    if (error == 0 && session->lessee.leased_mask)
        dvd_session_ask_state(session);
    return error;
}

int dvd_session_restore(struct dvd_sessions *sessions, struct dv_state_session *record,
                        struct dv_state_lease *const leases[DV_MAX_DEVICES], struct dvd_tenant *tenant,
                        struct dvd_kept *kept)
{
    struct dvd_process *process =
        dvd_process_adopt(&sessions->processes, record->tenant_pid, &kept->fds[DV_KEPT_TENANT]);
    struct dvd_session *session = process ? rebuild(sessions, record, process) : NULL;

    if (!session)
        return -ENOMEM;
    bool is_parked = session->lessee.has_worker && !record->worker_pid;
    session->channel.fd = dv_take_fd(&kept->fds[DV_KEPT_CHANNEL]);
    if (session->channel.fd >= 0)
        dvd_incoming_prepare(session->channel.fd);
    int error = dvd_session_make_leases(session) ? dvd_lessee_restore(&session->lessee, tenant, leases) : -ENOMEM;
    if (error >= 0 && session->lessee.has_worker)
        error = is_parked ? restore_parked(session, kept) : restore_worker(session, kept);
    if (error >= 0 && !is_parked)
        error = rejoin_channel(session);
    if (error < 0) { /* no daemon would know of its worker any more */
        dvd_session_signal_worker(session, SIGKILL);
        dvd_session_free(session);
        return error;
    }
    dvd_arenas_watch(sessions);
    if (!record->welcomed && (session->client_fd >= 0 || !session->lessee.has_worker))
        dvd_session_welcome(session);
    return 0;
}
