/* Going on where an earlier daemon stopped, however it ended: its state file has the records, its keeper has the
 * descriptors, and the sessions report what they hold (state.h, keeper_client.h, src/wire/lease/sync.h). */
#ifndef DVD_RESTART_RESTORE_ALL_H
#define DVD_RESTART_RESTORE_ALL_H

#include <stdbool.h>
#include <stdint.h>

#include "src/arbiter/config/terms.h"
#include "src/arbiter/restart/keeper_client.h"
#include "src/arbiter/restart/state.h"

/* Records reach the owner in this order, each one checked. Those that it does not take are dropped from the file. */
struct dvd_restore_events {
    /* Returns the tenant, for the events below, or NULL. */
    void *(*tenant)(void *owner, struct dv_state_tenant *record, const struct dvd_tenant_terms *terms,
                    const struct dvd_share_change *change);
    bool (*tenant_device)(void *owner, void *tenant, struct dv_state_tenant_device *record,
                          const struct dv_share *share);
    /* leases: by the session's list of devices; NULL: none. Takes over descriptors of `kept`. */
    bool (*session)(void *owner, struct dv_state_session *record, struct dv_state_lease *const leases[DV_MAX_DEVICES],
                    void *tenant, struct dvd_kept *kept);
    /* Returns whether a lease of the session goes on with this record. */
    bool (*has_lease)(void *owner, uint64_t session, const struct dv_state_lease *record);
};

struct dvd_restore {
    struct dvd_state *state;
    struct dvd_keeper *keeper;
    uint32_t device_count;
    uint64_t last_session; /* no session has a higher number */
    const struct dvd_restore_events *events;
    void *owner;
};

/* Restores tenants and sessions. Invalid records are left out, which is logged. */
void dvd_restore_all(const struct dvd_restore *restore);

/* The list of devices that the numbers of sessions refer to. Returns false when there is none. */
bool dvd_restore_devices(const struct dvd_state *state, struct dv_device_report reports[DV_MAX_DEVICES],
                         uint32_t *count, uint32_t *found);
/* Records the devices for a successor. */
void dvd_restore_note_devices(struct dvd_state *state, const struct dv_device_report reports[DV_MAX_DEVICES],
                              uint32_t found_count, uint32_t found);

#endif
