/* Restores the state of an earlier daemon: restart/ reads the file and the keeper, this file passes the records
 * to the parts (see restart/restore_all.h). */
#include "src/arbiter/arbiter.h"
#include "src/arbiter/restart/restore_all.h"
#include "src/arbiter/session/identity.h"
#include "src/base/clock.h"

/* The list that sessions' device numbers refer to. A probe, if there is one, follows. */
static bool restore_devices(struct dvd_arbiter *arbiter)
{
    struct dvd_devices *devices = &arbiter->devices;

    if (!dvd_restore_devices(&arbiter->state, devices->reports, &devices->count, &devices->found))
        return false;
    dvd_devices_restored(devices, dv_now() / DV_NS_PER_US);
    dvd_devices_add_lease_only(devices, &arbiter->config);
    dvd_arbiter_devices_changed(arbiter);
    return true;
}

bool dvd_arbiter_restore_zygote(struct dvd_arbiter *arbiter)
{
    struct dvd_kept *kept = dvd_keeper_found(&arbiter->keeper, DV_KEEPER_DAEMON);
    const struct dv_state_header *header = arbiter->state.header;

    if (!arbiter->is_restart || !restore_devices(arbiter) || !kept ||
        header->zygote_identity != dvd_zygote_identity(&arbiter->zygote))
        return false;
    if (header->unsandboxed == 1 && arbiter->config.sandbox == DV_SANDBOX_IF_POSSIBLE)
        arbiter->sandboxes.off = true;
    if (dvd_zygote_adopt(&arbiter->zygote, header->zygote_pid, &kept->fds[DV_KEPT_ZYGOTE],
                         &kept->fds[DV_KEPT_ZYGOTE_SOCKET], &kept->fds[DV_KEPT_ZYGOTE_LOG]) < 0)
        return false;
    if (arbiter->sandboxes.off) /* the kernel may allow sandboxes by now */
        dvd_zygote_request_probe(&arbiter->zygote);
    return true;
}

static void *on_tenant(void *owner, struct dv_state_tenant *record, const struct dvd_tenant_terms *terms,
                       const struct dvd_share_change *change)
{
    struct dvd_arbiter *arbiter = owner;

    return dvd_tenant_restore(&arbiter->ledger, record, terms, change,
                              dvd_identity_is_shared(&arbiter->config, record->name));
}

static bool on_tenant_device(void *owner, void *tenant, struct dv_state_tenant_device *record,
                             const struct dv_share *share)
{
    struct dvd_arbiter *arbiter = owner;
    struct dvd_device *device = &arbiter->ledger.devices[record->device];
    struct dvd_tenant *of = tenant;

    return !of->devices[record->device] && dvd_device_restore(device) &&
           dvd_tenant_restore_device(of, device, record, share) == 0;
}

static bool on_session(void *owner, struct dv_state_session *record,
                       struct dv_state_lease *const leases[DV_MAX_DEVICES], void *tenant, struct dvd_kept *kept)
{
    struct dvd_arbiter *arbiter = owner;

    return !dvd_session_find(&arbiter->sessions, DVD_SESSION_ID(record->id)) &&
           dvd_session_restore(&arbiter->sessions, record, leases, tenant, kept) == 0;
}

static bool on_has_lease(void *owner, uint64_t id, const struct dv_state_lease *record)
{
    struct dvd_arbiter *arbiter = owner;
    const struct dvd_session *session = dvd_session_find(&arbiter->sessions, DVD_SESSION_ID(id));
    const struct dvd_lease *lease =
        session && record->index < session->lessee.device_count ? session->lessee.leases[record->index] : NULL;

    return lease && lease->record == record;
}

static const struct dvd_restore_events events = {
    .tenant = on_tenant, .tenant_device = on_tenant_device, .session = on_session, .has_lease = on_has_lease};

void dvd_arbiter_restore(struct dvd_arbiter *arbiter)
{
    struct dvd_restore restore = {.state = &arbiter->state,
                                  .keeper = &arbiter->keeper,
                                  .device_count = arbiter->devices.count,
                                  .last_session = arbiter->sessions.last_id,
                                  .events = &events,
                                  .owner = arbiter};

    if (!arbiter->is_restart)
        return;
    dvd_restore_all(&restore);
    dvd_ledger_restored(&arbiter->ledger);
}
