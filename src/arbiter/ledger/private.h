/* Shared by the files of the ledger only. */
#ifndef DVD_LEDGER_PRIVATE_H
#define DVD_LEDGER_PRIVATE_H

#include "src/arbiter/ledger/ledger.h"
#include "src/base/probes.h"

/* Wide enough for %llu of an id. */
#define ID(lessee) ((unsigned long long)(lessee)->id.value)
#define PERCENT(ppm) ((double)(ppm) / (DV_PPM / 100.0))

static inline uint64_t dvd_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* By how much a sum exceeds a bound. */
static inline uint64_t dvd_excess(uint64_t have, uint64_t more, uint64_t bound)
{
    return have + more > bound ? have + more - bound : 0;
}

/* The counters of its tenant on its device, or NULL. */
static inline struct dvd_account_device *dvd_lease_account(const struct dvd_lease *lease)
{
    struct dvd_account *account = lease->tenant->tenant->account;

    return account ? &account->devices[lease->device->id.number] : NULL;
}

/* ---- trace.c ---- */

/* Notes an event of a lease. Inline, because most of the time nothing reads them: what is left is a no-op for tracers
 * from outside and a comparison. `kind` is a constant. */
static inline void dvd_trace_note(const struct dvd_lease *lease, enum dvd_trace_kind kind, uint64_t value, int more)
{
#ifndef DVD_WITHOUT_TRACE /* bench-ledger measures what it costs */
    if (kind == DVD_TRACE_GRANT)
        DV_PROBE3(grant, lease->lessee->id.value, lease->device->id.number, value);
    else if (kind == DVD_TRACE_RECALL)
        DV_PROBE3(recall, lease->lessee->id.value, lease->device->id.number, value);
    else if (kind == DVD_TRACE_RELEASE)
        DV_PROBE3(release, lease->lessee->id.value, lease->device->id.number, value);
    else if (kind == DVD_TRACE_EVICT)
        DV_PROBE3(evict, lease->lessee->id.value, lease->device->id.number, value);
    if (__builtin_expect(lease->lessee->ledger->trace.records != NULL, 0))
        dvd_trace_write(lease, kind, value, more);
#else
    (void)lease, (void)kind, (void)value, (void)more;
#endif
}

/* ---- device.c: decisions ---- */

/* Starts to share out the time of a device even if the configuration says otherwise by now. */
void dvd_device_start_anyway(struct dvd_device *device);
/* Sends all grants and recalls that are due. */
void dvd_device_dispatch(struct dvd_device *device);
/* The same soon, for callers that may run within a dispatch. */
void dvd_device_dispatch_soon(struct dvd_device *device);
/* Counts the time since it began to wait. */
void dvd_lease_waited(struct dvd_lease *lease, dv_ns now);
/* Ends a hold. */
void dvd_lease_release(struct dvd_lease *lease);
void dvd_lease_send(struct dvd_lease *lease, enum dv_lease_type type, uint32_t flags,
                    const struct dv_decision *decision);
/* The holder has moved memory for this time: its slice restarts, and is longer accordingly. */
void dvd_lease_moved(struct dvd_lease *lease, dv_ns took_ns);
/* How long it may keep the device, or memory of it, after a recall that others wait for; 0: for ever. */
dv_ns dvd_lease_deadline(const struct dvd_lease *lease);
/* How long parts of its kernels should be on the device now; 0: kernels stay whole. */
dv_ns dvd_lease_part(const struct dvd_lease *lease);
dv_ns dvd_lease_memory_deadline(const struct dvd_lease *lease);
/* A tenant comes to the device, changes and leaves. */
void dvd_device_add_tenant(struct dvd_tenant_device *tenant, const struct dv_share *share);
void dvd_device_set_share(struct dvd_tenant_device *tenant, const struct dv_share *share);
void dvd_device_remove_tenant(struct dvd_tenant_device *tenant);

/* ---- beside.c: which sessions hold a device at the same time ---- */

/* Notes the working set at the end of a hold. */
void dvd_beside_note(struct dvd_lease *lease);
/* Returns whether the memory of a session fits beside that of the holders: a policy's may_run_beside. */
bool dvd_beside_fits(const struct dv_policy *policy, const struct dv_policy_session *session);

/* ---- reservations.c ---- */

void dvd_memory_send(struct dvd_lease *lease, enum dv_memory_type type, uint64_t id, uint64_t bytes);
void dvd_reservations_join(struct dvd_lease *lease);
void dvd_reservations_part(struct dvd_lease *lease);
void dvd_reservations_take(struct dvd_lease *lease, const struct dv_memory_message *m);
/* Sets the reserved bytes without a message. */
void dvd_reservations_set(struct dvd_lease *lease, uint64_t bytes);
/* Answers waiting sessions of the tenant, as far as their answers are known. */
void dvd_reservations_settle(struct dvd_tenant_device *tenant);
void dvd_reservations_drop(struct dvd_tenant_device *tenant);

/* ---- room.c ---- */

void dvd_room_part(struct dvd_lease *lease);
/* The lease is not held any more: no session makes room for it until it asks again. */
void dvd_room_released(struct dvd_lease *lease);
void dvd_room_take(struct dvd_lease *lease, const struct dv_memory_message *m);
/* Answers sessions that wait for room, as far as their answers are known. */
void dvd_room_settle(struct dvd_device *device);
/* Evicts what the tenant has beyond its quota. */
void dvd_room_shrink(struct dvd_tenant_device *tenant);
/* After a restart: takes the record's figures, then the session's own where they are lower. */
void dvd_room_restore(struct dvd_lease *lease, uint64_t placed);
void dvd_room_sync(struct dvd_lease *lease, const struct dv_sync_message *m);

/* ---- memory.c: both together ---- */

void dvd_memory_take(struct dvd_lease *lease, const struct dv_memory_message *m);
void dvd_memory_sync(struct dvd_lease *lease, const struct dv_sync_message *m);
void dvd_memory_set_quota(struct dvd_tenant_device *tenant, uint64_t quota);
void dvd_memory_set_request(struct dvd_tenant_device *tenant, uint64_t request);
uint64_t dvd_memory_request_on(const struct dvd_device *device, const struct dvd_memory_size *request);

/* ---- records.c: for the next daemon ---- */

void dvd_record_account(struct dvd_tenant_device *tenant);
void dvd_record_hold(struct dvd_lease *lease);
void dvd_record_release(struct dvd_lease *lease);
void dvd_record_slice(struct dvd_lease *lease);
void dvd_record_memory(struct dvd_lease *lease);
void dvd_record_use(struct dvd_lease *lease);
void dvd_record_share(struct dvd_tenant_device *tenant);
void dvd_record_quota(struct dvd_tenant_device *tenant);
void dvd_record_terms(struct dvd_tenant *tenant);
void dvd_record_left(struct dvd_tenant *tenant);
void dvd_record_grants(const struct dvd_device *device);
void dvd_record_policy(const struct dvd_device *device);
void dvd_record_add_lease(struct dvd_lease *lease);
void dvd_record_add_tenant(struct dvd_tenant *tenant);
void dvd_record_add_tenant_device(struct dvd_tenant_device *tenant);

/* ---- admission.c: what can be promised ---- */

/* The requests of other tenants on the device. */
uint64_t dvd_promised_to_others(const struct dvd_device *device, const struct dvd_tenant *tenant);
/* These return 0, or a negative errno with the reason. */
int dvd_check_share(const struct dvd_tenant *tenant, const struct dv_share *old, const struct dvd_share_change *change,
                    bool bounded, struct dv_share *share, char *text, size_t bytes);
int dvd_check_promises(const struct dvd_device *device, const struct dvd_tenant *tenant, uint32_t request_ppm,
                       uint64_t memory_request, char *text, size_t bytes);
int dvd_check_devices(const struct dvd_tenant *tenant, const struct dvd_device *device,
                      const struct dvd_share_change *change, bool bounded, struct dv_share shares[DV_MAX_DEVICES],
                      char *text, size_t bytes);

/* ---- placement.c ---- */

/* Fills in the session's devices, as indices in its list, best first for a tenant with this request. */
void dvd_placement_order(const struct dvd_lessee *lessee, const struct dvd_tenant *tenant, uint32_t request_ppm,
                         struct dvd_list_index order[DV_MAX_DEVICES]);

/* ---- tenants.c ---- */

struct dvd_tenant *dvd_tenant_find_or_add(struct dvd_ledger *ledger, const struct dvd_identity *identity);
void dvd_tenant_take_in(struct dvd_lessee *lessee, struct dvd_tenant *tenant, const struct dvd_share_change *change,
                        const struct dv_share shares[DV_MAX_DEVICES]);
void dvd_tenant_forget(struct dvd_tenant *tenant);
void dvd_tenant_free_device(struct dvd_tenant_device *tenant);
/* The last session has ended. */
void dvd_tenant_remember(struct dvd_tenant *tenant, dv_ns left_at);
/* A session of the tenant comes to a device, with the tenant's request or without. Returns NULL with the reason. */
struct dvd_tenant_device *dvd_tenant_come(struct dvd_tenant *tenant, struct dvd_device *device, bool promised,
                                          char *text, size_t bytes);
int dvd_tenant_promise(struct dvd_tenant_device *tenant, char *text, size_t bytes);
void dvd_tenant_go(struct dvd_tenant_device *tenant, bool promised);
void dvd_tenant_count_session(struct dvd_tenant_device *tenant);
void dvd_tenant_count_user(struct dvd_tenant *tenant, uid_t uid);
/* A lease of a session on a device where its tenant is. NULL: out of memory. */
struct dvd_lease *dvd_lease_add(struct dvd_lessee *lessee, struct dvd_list_index index,
                                struct dvd_tenant_device *tenant);

/* Puts the share into force: the request only while a session uses the device. */
void dvd_tenant_apply_share(struct dvd_tenant_device *tenant);

#endif
