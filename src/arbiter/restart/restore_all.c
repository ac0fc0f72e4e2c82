/* Going on where an earlier daemon stopped (see restore_all.h). Everything in the state file is checked here before it
 * is used. */
#include "src/arbiter/restart/restore_all.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/text.h"
#include "src/wire/lease/memory.h"
#include "src/wire/session/shm.h"

/* The restored objects, by the index of their records. */
struct restoring {
    const struct dvd_restore *restore;
    void **tenants;
    struct dv_state_lease *(*leases)[DV_MAX_DEVICES]; /* by session and its list of devices */
    unsigned restored, left_out;
};

static bool is_text(const char *field, size_t bytes)
{
    return memchr(field, '\0', bytes) != NULL;
}

/* ---- devices ---- */

static bool is_sound_report(const struct dv_device_report *report)
{
    return is_text(report->name, sizeof report->name) && is_text(report->vendor, sizeof report->vendor) &&
           is_text(report->version, sizeof report->version) && is_text(report->driver, sizeof report->driver) &&
           is_text(report->platform_name, sizeof report->platform_name) && is_text(report->uuid, sizeof report->uuid) &&
           is_text(report->pci, sizeof report->pci) && report->kind <= DV_DEVICE_GONE;
}

bool dvd_restore_devices(const struct dvd_state *state, struct dv_device_report reports[DV_MAX_DEVICES],
                         uint32_t *count, uint32_t *found)
{
    const struct dv_state_header *header = state->header;

    if (header->device_count == 0 || header->device_count > DV_MAX_DEVICES)
        return false;
    for (uint32_t i = 0; i < header->device_count; i++)
        if (!is_sound_report(&header->reports[i]))
            return false;
    memcpy(reports, header->reports, sizeof header->reports);
    *count = header->device_count;
    *found = header->devices_found;
    return true;
}

void dvd_restore_note_devices(struct dvd_state *state, const struct dv_device_report reports[DV_MAX_DEVICES],
                              uint32_t found_count, uint32_t found)
{
    struct dv_state_header *header = state->header;

    if (!header)
        return;
    /* if none was found now, the sessions on the earlier ones are kept */
    uint32_t count = found_count ? found_count : header->device_count;
    header->device_count = 0; /* while they are written */
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(header->reports, reports, sizeof header->reports);
    header->devices_found = found;
    atomic_signal_fence(memory_order_seq_cst);
    header->device_count = count;
}

/* ---- tenants ---- */

static bool read_terms(const struct dv_state_tenant *record, struct dvd_tenant_terms *terms)
{
    *terms = (struct dvd_tenant_terms){
        .memory = {.bytes = record->memory_bytes, .ppm = record->memory_ppm},
        .memory_request = {.bytes = record->memory_request_bytes, .ppm = record->memory_request_ppm},
        .host_bytes = record->host_bytes,
        .may_request_ppm = record->may_request_ppm,
        .may_weight = record->may_weight,
        .may_class = (enum dv_class)record->may_class,
        .configured_class =
            (enum dv_class)(record->configured_class ? record->configured_class - 1u : record->share.class),
        .slice_kernels = (enum dvd_slice_kernels)record->slice_kernels};
    return dvd_state_share_to(&record->share, &terms->share) && record->may_request_ppm <= DV_PPM &&
           record->may_weight <= DV_WEIGHT_MAX && record->may_class < DV_CLASS_COUNT &&
           terms->configured_class < DV_CLASS_COUNT && record->slice_kernels < DV_SLICE_KERNELS_COUNT &&
           record->memory_ppm <= DV_PPM && record->memory_bytes <= DV_MEMORY_BYTES_MAX &&
           record->memory_request_ppm <= DV_PPM && record->memory_request_bytes <= DV_MEMORY_BYTES_MAX &&
           record->host_bytes <= DV_MEMORY_BYTES_MAX;
}

/* Returns false when it makes no sense with the terms. */
static bool read_change(const struct dv_state_tenant *record, const struct dvd_tenant_terms *terms,
                        struct dvd_share_change *change)
{
    const struct dv_state_share *wished = &record->wish;

    *change = (struct dvd_share_change){.has_request = record->wishes & DV_STATE_WISH_REQUEST,
                                        .has_limit = record->wishes & DV_STATE_WISH_LIMIT,
                                        .has_weight = record->wishes & DV_STATE_WISH_WEIGHT,
                                        .has_class = record->wishes & DV_STATE_WISH_CLASS,
                                        .request_ppm = wished->request_ppm,
                                        .limit_ppm = wished->limit_ppm,
                                        .weight = wished->weight,
                                        .class = (enum dv_class)wished->class};
    struct dv_share sound, share = dvd_share_with(terms->share, change);
    struct dv_state_share checked = dvd_state_share_of(&share);
    return dvd_state_share_to(&checked, &sound);
}

static bool restore_tenant(struct restoring *restoring, uint32_t index, struct dv_state_tenant *record)
{
    const struct dvd_restore *restore = restoring->restore;
    struct dvd_tenant_terms terms;
    struct dvd_share_change change;

    if (!is_text(record->name, sizeof record->name) || !record->name[0] || !read_terms(record, &terms) ||
        !read_change(record, &terms, &change))
        return false;
    dv_text_clean(record->name, sizeof record->name);
    restoring->tenants[index] = restore->events->tenant(restore->owner, record, &terms, &change);
    return restoring->tenants[index] != NULL;
}

static void *tenant_at(const struct restoring *restoring, uint32_t index)
{
    return dvd_state_at(&restoring->restore->state->tenants, index) ? restoring->tenants[index] : NULL;
}

static bool restore_tenant_device(struct restoring *restoring, struct dv_state_tenant_device *record)
{
    const struct dvd_restore *restore = restoring->restore;
    void *tenant = tenant_at(restoring, record->tenant);
    struct dv_share share;

    return tenant && record->device < restore->device_count && record->quota <= DV_MEMORY_BYTES_MAX &&
           record->memory_request <= record->quota && dvd_state_share_to(&record->share, &share) &&
           restore->events->tenant_device(restore->owner, tenant, record, &share);
}

/* ---- sessions ---- */

static bool has_descriptors(const struct dv_state_session *record, const struct dvd_kept *kept)
{
    const int *fds = kept->fds;

    if (record->api == DV_API_OPENCL && record->worker_pid == 0) /* parked */
        return fds[DV_KEPT_TENANT] >= 0 && fds[DV_KEPT_SHM] >= 0 && fds[DV_KEPT_STORE] >= 0;
    return fds[DV_KEPT_TENANT] >= 0 && fds[DV_KEPT_CHANNEL] >= 0 &&
           (record->api == DV_API_LEASE ||
            (fds[DV_KEPT_WORKER] >= 0 && fds[DV_KEPT_SHM] >= 0 && fds[DV_KEPT_LOG] >= 0));
}

static bool is_sound_session(const struct dvd_restore *restore, const struct dv_state_session *record)
{
    if (record->id == 0 || record->id > restore->last_session || record->device_count == 0 ||
        record->device_count > DV_MAX_DEVICES || record->version < DV_WIRE_VERSION_OLDEST ||
        record->version > DV_WIRE_VERSION || record->present_as > DV_PRESENT_AS_ACCELERATOR ||
        !is_text(record->command, sizeof record->command) || record->tenant_pid < 0)
        return false;
    for (uint32_t i = 0; i < record->device_count; i++)
        if (record->devices[i] >= restore->device_count)
            return false;
    if (record->api == DV_API_OPENCL)
        return record->worker_pid >= 0 && record->shm_bytes >= DV_SHM_BYTES_MIN &&
               record->shm_bytes <= DV_SHM_BYTES_MAX;
    return record->api == DV_API_LEASE && record->worker_pid == 0;
}

static bool restore_session(struct restoring *restoring, uint32_t index, struct dv_state_session *record)
{
    const struct dvd_restore *restore = restoring->restore;
    struct dvd_kept *kept = dvd_keeper_found(restore->keeper, record->id);
    void *tenant = tenant_at(restoring, record->tenant);

    if (!kept || !tenant || !is_sound_session(restore, record) || !has_descriptors(record, kept))
        return false;
    dv_text_clean(record->command, sizeof record->command);
    return restore->events->session(restore->owner, record, restoring->leases[index], tenant, kept);
}

static void find_leases(struct restoring *restoring)
{
    const struct dvd_state *state = restoring->restore->state;

    for (uint32_t i = 0; i < state->leases.touched; i++) {
        struct dv_state_lease *record = dvd_state_at(&state->leases, i);
        if (record && record->index < DV_MAX_DEVICES && dvd_state_at(&state->sessions, record->session))
            restoring->leases[record->session][record->index] = record;
    }
}

/* Frees the records that no lease uses. */
static void drop_leases(struct restoring *restoring)
{
    const struct dvd_restore *restore = restoring->restore;
    struct dvd_state *state = restore->state;

    for (uint32_t i = 0; i < state->leases.touched; i++) {
        struct dv_state_lease *record = dvd_state_at(&state->leases, i);
        if (!record)
            continue;
        const struct dv_state_session *session = dvd_state_at(&state->sessions, record->session);
        if (!session || !restore->events->has_lease(restore->owner, session->id, record))
            dvd_state_drop(&state->leases, record);
    }
}

static void restore_records(struct restoring *restoring)
{
    struct dvd_state *state = restoring->restore->state;

    for (uint32_t i = 0; i < state->tenants.touched; i++) {
        struct dv_state_tenant *record = dvd_state_at(&state->tenants, i);
        if (record && !restore_tenant(restoring, i, record))
            dvd_state_drop(&state->tenants, record);
    }
    for (uint32_t i = 0; i < state->tenant_devices.touched; i++) {
        struct dv_state_tenant_device *record = dvd_state_at(&state->tenant_devices, i);
        if (record && !restore_tenant_device(restoring, record))
            dvd_state_drop(&state->tenant_devices, record);
    }
    find_leases(restoring);
    for (uint32_t i = 0; i < state->sessions.touched; i++) {
        struct dv_state_session *record = dvd_state_at(&state->sessions, i);
        if (!record)
            continue;
        if (restore_session(restoring, i, record)) {
            restoring->restored++;
        } else {
            restoring->left_out++;
            if (dvd_state_at(&state->sessions, i)) /* it may be dropped already */
                dvd_state_drop(&state->sessions, record);
        }
    }
    drop_leases(restoring);
}

void dvd_restore_all(const struct dvd_restore *restore)
{
    struct dvd_state *state = restore->state;
    struct restoring restoring = {.restore = restore};

    restoring.tenants = calloc(state->tenants.touched + 1, sizeof *restoring.tenants);
    restoring.leases = calloc(state->sessions.touched + 1, sizeof *restoring.leases);
    if (restoring.tenants && restoring.leases && restore->device_count)
        restore_records(&restoring);
    else
        dvd_state_clear(state);
    free(restoring.tenants);
    free(restoring.leases);
    if (restoring.restored || restoring.left_out)
        dv_info("%u sessions of the previous daemon go on%s", restoring.restored,
                restoring.left_out ? "; others have ended meanwhile" : "");
}
