/* Records a session for the next daemon, and then welcomes its client. */
#include <string.h>

#include "src/arbiter/session/private.h"

void dvd_session_record(struct dvd_session *session)
{
    struct dvd_sessions *sessions = session->sessions;
    struct dv_state_session *record = session->lessee.record;

    if (record) { /* it has another worker, or none */
        record->worker_pid = session->worker_pid;
        dvd_keeper_put(sessions->keeper, session->lessee.id.value);
        return;
    }
    if (session->lessee.tenant->record)
        record = dvd_state_add(&sessions->state->sessions);
    if (!record) {
        dv_debug("session %llu will not outlive this daemon", ID(session));
        return;
    }
    record->api = session->api;
    record->id = session->lessee.id.value;
    record->uid = session->lessee.uid;
    record->gid = session->gid;
    record->tenant_pid = session->tenant_pid;
    record->worker_pid = session->worker_pid;
    record->tenant = dvd_state_index(&sessions->state->tenants, session->lessee.tenant->record);
    record->version = session->version;
    record->present_as = session->present_as;
    record->device_count = session->lessee.device_count;
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++)
        record->devices[i] = session->lessee.devices[i].number;
    record->shm_bytes = session->shm_bytes;
    record->started = (uint64_t)session->started;
    record->started_us = session->started_us;
    record->leased_mask = session->lessee.leased_mask;
    memcpy(record->command, session->command, sizeof record->command);
    session->lessee.record = record;
    dvd_keeper_put(sessions->keeper, session->lessee.id.value);
    dvd_state_commit(record);
}

int dvd_session_welcome(struct dvd_session *session)
{
    bool lease_only = session->api == DV_API_LEASE;
    int error = dvd_session_send_welcome(
        lease_only ? session->channel.fd : session->client_fd, session->version, DV_WELCOME_OK,
        session->lessee.id.value, session->shm_bytes, session->shm_fd,
        session->lessee.change_ignored ? "the requested share is ignored because the tenant has several users: the "
                                         "operator sets it"
                                       : "");

    if (error >= 0 && session->lessee.record)
        session->lessee.record->welcomed = 1;
    return error;
}
