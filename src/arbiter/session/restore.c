/* A session over a restart of divvyd: what is put down of it, and how the next daemon goes on with
 * it. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/system/incoming.h"
#include "src/arbiter/restart/keeper_client.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/session/private.h"
#include "src/arbiter/restart/state.h"
#include "src/base/cleanup.h"

void dv_session_keep(struct dv_session *session)
{
    struct dv_arbiter *arbiter = session->arbiter;
    struct dv_state_session *record =
        session->lessee.tenant->record ? dv_state_add(&arbiter->state.sessions) : NULL;

    if (!record) {
        dv_debug("session %llu will not outlive this daemon", ID(session));
        return;
    }
    record->api = session->api;
    record->id = session->lessee.id;
    record->uid = session->lessee.uid;
    record->gid = session->gid;
    record->tenant_pid = session->tenant_pid;
    record->worker_pid = session->worker_pid;
    record->tenant = dv_state_index(&arbiter->state.tenants, session->lessee.tenant->record);
    record->version = session->version;
    record->present_as = session->present_as;
    record->device_count = session->lessee.device_count;
    memcpy(record->devices, session->lessee.device_indices, sizeof record->devices);
    record->shm_bytes = session->shm_bytes;
    record->started = (uint64_t)session->started;
    record->started_us = session->started_us;
    record->leased_mask = session->lessee.leased_mask;
    memcpy(record->command, session->command, sizeof record->command);
    session->lessee.record = record;
    dv_keeper_put_session(session);
    dv_state_commit(record);
}

/* What a new session does in dv_session_begin and start_worker. */
static struct dv_session *rebuild(struct dv_arbiter *arbiter, struct dv_state_session *record,
                                  struct dv_process *process)
{
    struct dv_session *session = calloc(1, sizeof *session);

    if (!session)
        return NULL;
    *session = (struct dv_session){.lessee = {.ledger = &arbiter->ledger,
                                              .id = record->id,
                                              .uid = record->uid,
                                              .has_worker = record->api != DV_API_LEASE,
                                              .device_count = record->device_count,
                                              .leased_mask = record->leased_mask,
                                              .record = record},
                                   .arbiter = arbiter,
                                   .state = DV_SESSION_SERVED,
                                   .request_sent = true,
                                   .gid = record->gid,
                                   .tenant_pid = record->tenant_pid,
                                   .worker_pid = record->worker_pid,
                                   .version = record->version,
                                   .api = record->api,
                                   .present_as = record->present_as,
                                   .started = (time_t)record->started,
                                   .started_us = record->started_us,
                                   .shm_bytes = record->shm_bytes,
                                   .client_fd = -1,
                                   .worker_pidfd = -1,
                                   .shm_fd = -1,
                                   .control_fd = -1,
                                   .worker_control_fd = -1,
                                   .worker_log_fd = -1};
    session->lessee.leases = calloc(record->device_count, sizeof(struct dvd_lease *));
    if (!session->lessee.leases) {
        free(session);
        return NULL;
    }
    memcpy(session->lessee.device_indices, record->devices, sizeof session->lessee.device_indices);
    memcpy(session->command, record->command, sizeof session->command);
    dv_session_find_user(session->lessee.uid, session->user, sizeof session->user);
    dv_process_attach(process, session);
    session->counted = dv_session_count(arbiter, session->lessee.uid, true) != UINT_MAX;
    session->descriptors =
        session->api == DV_API_LEASE ? DV_LEASE_DESCRIPTORS : DV_WORKER_DESCRIPTORS;
    if (session->descriptors > arbiter->descriptors_free)
        session->descriptors = (uint32_t)arbiter->descriptors_free;
    arbiter->descriptors_free -= session->descriptors;
    HASH_ADD(hh, arbiter->sessions, lessee.id, sizeof session->lessee.id, session);
    return session;
}

static int rejoin_channels(struct dv_session *session)
{
    int error = session->lessee.leased_mask ? dv_channels_enter(session) : 0;

    if (error == 0 && session->lessee.leased_mask)
        dv_channels_ask_state(session);
    return error;
}

int dv_session_adopt(struct dv_arbiter *arbiter, struct dv_state_session *record,
                     struct dv_state_lease *const leases[DV_MAX_DEVICES], struct dvd_tenant *tenant,
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
    error = dvd_lessee_restore(&session->lessee, tenant, leases);
    session->control_fd = dv_take_fd(&kept->fds[DV_KEPT_CHANNEL]);
    dvd_incoming_prepare(session->control_fd);
    if (error == 0 && session->api != DV_API_LEASE) {
        session->zygote_generation = arbiter->zygote.adopted ? arbiter->zygote.generation : 0;
        session->worker_pidfd = dv_take_fd(&kept->fds[DV_KEPT_WORKER]);
        session->shm_fd = dv_take_fd(&kept->fds[DV_KEPT_SHM]);
        session->client_fd = dv_take_fd(&kept->fds[DV_KEPT_CLIENT]);
        if (session->client_fd >= 0) /* a daemon of an earlier release may have accepted it */
            dvd_incoming_prepare(session->client_fd);
        dv_cages_rejoin(session);
        error = dv_session_make_log(session);
        if (error >= 0)
            error = dv_worker_log_adopt(session->log, arbiter->event, &kept->fds[DV_KEPT_LOG]);
        if (error >= 0)
            error = dv_session_watch_worker(session);
        if (error >= 0 && session->client_fd >= 0)
            error = dv_session_watch_client(session);
    }
    if (error >= 0)
        error = rejoin_channels(session);
    if (error < 0) { /* nobody would know of its worker any more */
        dv_session_signal_worker(session, SIGKILL);
        dv_session_destroy(session);
        return error;
    }
    dv_arenas_watch(arbiter);
    if (!record->welcomed && (session->client_fd >= 0 || session->api == DV_API_LEASE))
        dv_session_welcome(session);
    return 0;
}
