/* Going on where an earlier daemon stopped (see adopt.h). Everything in the state file is checked here
 * before it is used. */
#include "src/arbiter/restart/restore_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/session/identity.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/ledger/ledger.h"
#include "src/base/cleanup.h"
#include "src/base/text.h"
#include "src/wire/session/shm.h"

/* What the records of the file have become, by their index. */
struct adoption {
    struct dv_arbiter *arbiter;
    struct dvd_tenant **tenants;
    struct dv_state_lease *(*leases)[DV_MAX_DEVICES]; /* by session and its list of devices */
    unsigned adopted, left_out;
};

/* ---- devices and zygote ---- */

void dv_adopt_begin(struct dv_arbiter *arbiter)
{
    int error = dv_state_open(&arbiter->state, arbiter->directory, &arbiter->inherited);

    if (error < 0)
        dv_warning("cannot keep a state file in %s: %s; sessions will not outlive this daemon",
                   arbiter->directory, strerror(-error));
    dv_keeper_start(arbiter);
    if (arbiter->inherited)
        arbiter->last_session = atomic_load(&arbiter->state.header->last_session);
}

void dv_adopt_note_devices(struct dv_arbiter *arbiter)
{
    struct dv_state_header *header = arbiter->state.header;
    const struct dv_devices *devices = &arbiter->devices;

    if (!header)
        return;
    /* that none was found now is no reason to give up the sessions that run on those there were */
    uint32_t count = devices->count ? devices->count : header->device_count;
    header->device_count = 0; /* while they are written */
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(header->reports, devices->reports, sizeof header->reports);
    header->uncaged = arbiter->cages.off;
    header->devices_found = devices->found;
    header->zygote_pid = arbiter->zygote.pid;
    /* nor is it one not to look again: a successor starts a zygote of its own */
    header->zygote_identity = devices->count ? dv_zygote_identity(arbiter) : 0;
    atomic_signal_fence(memory_order_seq_cst);
    header->device_count = count;
}

static bool is_text(const char *field, size_t bytes)
{
    return memchr(field, '\0', bytes) != NULL;
}

static bool is_sound_report(const struct dv_device_report *report)
{
    return is_text(report->name, sizeof report->name) &&
           is_text(report->vendor, sizeof report->vendor) &&
           is_text(report->version, sizeof report->version) &&
           is_text(report->driver, sizeof report->driver) &&
           is_text(report->platform_name, sizeof report->platform_name) &&
           is_text(report->uuid, sizeof report->uuid) && is_text(report->pci, sizeof report->pci);
}

/* The list that sessions' numbers refer to. A probe, if there is one, follows. */
static bool adopt_devices(struct dv_arbiter *arbiter)
{
    const struct dv_state_header *header = arbiter->state.header;
    struct dv_devices *devices = &arbiter->devices;

    if (header->device_count == 0 || header->device_count > DV_MAX_DEVICES)
        return false;
    for (uint32_t i = 0; i < header->device_count; i++)
        if (!is_sound_report(&header->reports[i]))
            return false;
    memcpy(devices->reports, header->reports, sizeof devices->reports);
    devices->count = header->device_count;
    devices->found = header->devices_found;
    dv_devices_group(devices);
    devices->had_some = true;
    devices->known = true;
    devices->probed_us = dv_arbiter_now(arbiter);
    dv_arbiter_devices_changed(arbiter);
    return true;
}

bool dv_adopt_zygote(struct dv_arbiter *arbiter)
{
    struct dv_kept *kept = dv_keeper_found(arbiter, DV_KEEPER_DAEMON);
    const struct dv_state_header *header = arbiter->state.header;

    if (!arbiter->inherited || !adopt_devices(arbiter) || !kept ||
        header->zygote_identity != dv_zygote_identity(arbiter))
        return false;
    if (header->uncaged == 1 && arbiter->config.cage == DV_CAGE_IF_POSSIBLE)
        arbiter->cages.off = true;
    if (dv_zygote_adopt(arbiter, header->zygote_pid, &kept->fds[DV_KEPT_ZYGOTE],
                        &kept->fds[DV_KEPT_ZYGOTE_SOCKET], &kept->fds[DV_KEPT_ZYGOTE_LOG]) < 0)
        return false;
    if (arbiter->cages.off) /* the kernel may have been told otherwise since */
        dv_zygote_request_probe(arbiter);
    return true;
}

int dv_adopt_socket(struct dv_arbiter *arbiter, int kind)
{
    struct dv_kept *kept = dv_keeper_found(arbiter, DV_KEEPER_DAEMON);
    return kept ? dv_take_fd(&kept->fds[kind]) : -1;
}

/* ---- tenants ---- */

static bool read_terms(const struct dv_state_tenant *record, struct dv_tenant_terms *terms)
{
    *terms = (struct dv_tenant_terms){
        .memory = {.bytes = record->memory_bytes, .ppm = record->memory_ppm},
        .memory_request = {.bytes = record->memory_request_bytes, .ppm = record->memory_request_ppm},
        .host_bytes = record->host_bytes,
        .may_request_ppm = record->may_request_ppm,
        .may_weight = record->may_weight,
        .may_class = (enum dv_class)record->may_class};
    return dv_state_share_to(&record->share, &terms->share) && record->may_request_ppm <= DV_PPM &&
           record->may_weight <= DV_WEIGHT_MAX && record->may_class < DV_CLASS_COUNT &&
           record->memory_ppm <= DV_PPM && record->memory_bytes <= DV_MEMORY_BYTES_MOST &&
           record->memory_request_ppm <= DV_PPM &&
           record->memory_request_bytes <= DV_MEMORY_BYTES_MOST &&
           record->host_bytes <= DV_MEMORY_BYTES_MOST;
}

/* Returns false when it makes no sense with the terms. */
static bool read_wish(const struct dv_state_tenant *record, const struct dv_tenant_terms *terms,
                      struct dvd_share_change *wish)
{
    const struct dv_state_share *wished = &record->wish;

    *wish = (struct dvd_share_change){.has_request = record->wishes & DV_STATE_WISH_REQUEST,
                                   .has_limit = record->wishes & DV_STATE_WISH_LIMIT,
                                   .has_weight = record->wishes & DV_STATE_WISH_WEIGHT,
                                   .has_class = record->wishes & DV_STATE_WISH_CLASS,
                                   .request_ppm = wished->request_ppm,
                                   .limit_ppm = wished->limit_ppm,
                                   .weight = wished->weight,
                                   .class = (enum dv_class)wished->class};
    struct dv_state_share share = dv_state_share_of(&terms->share);
    struct dv_share sound;
    if (wish->has_request)
        share.request_ppm = wished->request_ppm;
    if (wish->has_limit)
        share.limit_ppm = wished->limit_ppm;
    if (wish->has_weight)
        share.weight = wished->weight;
    if (wish->has_class)
        share.class = wished->class;
    return dv_state_share_to(&share, &sound);
}

static struct dvd_tenant *adopt_tenant(struct adoption *adoption, struct dv_state_tenant *record)
{
    struct dv_arbiter *arbiter = adoption->arbiter;
    struct dv_tenant_terms terms;
    struct dvd_share_change wish;

    if (!is_text(record->name, sizeof record->name) || !record->name[0] ||
        !read_terms(record, &terms) || !read_wish(record, &terms, &wish))
        return NULL;
    dv_text_clean(record->name, sizeof record->name);
    return dvd_tenant_restore(&arbiter->ledger, record, &terms, &wish,
                              dvd_identity_is_shared(&arbiter->config, record->name));
}

static bool adopt_place(struct adoption *adoption, struct dv_state_place *record)
{
    struct dv_arbiter *arbiter = adoption->arbiter;
    struct dvd_tenant *tenant = dv_state_at(&arbiter->state.tenants, record->tenant)
                                   ? adoption->tenants[record->tenant]
                                   : NULL;
    struct dv_share share;

    return tenant && record->device < arbiter->devices.count && !tenant->devices[record->device] &&
           record->quota <= DV_MEMORY_BYTES_MOST && record->memory_request <= record->quota &&
           dv_state_share_to(&record->share, &share) &&
           dvd_device_restore(&arbiter->ledger.devices[record->device]) &&
           dvd_tenant_restore_device(tenant, &arbiter->ledger.devices[record->device], record, &share) == 0;
}

/* ---- sessions ---- */

static bool has_descriptors(const struct dv_state_session *record, const struct dv_kept *kept)
{
    const int *fds = kept->fds;

    return fds[DV_KEPT_TENANT] >= 0 && fds[DV_KEPT_CHANNEL] >= 0 &&
           (record->api == DV_API_LEASE || (fds[DV_KEPT_WORKER] >= 0 && fds[DV_KEPT_SHM] >= 0 &&
                                            fds[DV_KEPT_LOG] >= 0));
}

static bool is_sound_session(const struct dv_arbiter *arbiter, const struct dv_state_session *record)
{
    if (record->id == 0 || record->id > arbiter->last_session || record->device_count == 0 ||
        record->device_count > DV_MAX_DEVICES || record->version < DV_WIRE_VERSION_OLDEST ||
        record->version > DV_WIRE_VERSION || record->present_as > DV_PRESENT_AS_ACCELERATOR ||
        !is_text(record->command, sizeof record->command) || record->tenant_pid < 0)
        return false;
    for (uint32_t i = 0; i < record->device_count; i++)
        if (record->devices[i] >= arbiter->devices.count)
            return false;
    if (record->api == DV_API_OPENCL)
        return record->worker_pid > 0 && record->shm_bytes >= DV_SHM_BYTES_MIN &&
               record->shm_bytes <= DV_SHM_BYTES_MAX;
    return record->api == DV_API_LEASE && record->worker_pid == 0;
}

static bool adopt_session(struct adoption *adoption, uint32_t index,
                          struct dv_state_session *record)
{
    struct dv_arbiter *arbiter = adoption->arbiter;
    struct dv_kept *kept = dv_keeper_found(arbiter, record->id);
    struct dvd_tenant *tenant = dv_state_at(&arbiter->state.tenants, record->tenant)
                                   ? adoption->tenants[record->tenant]
                                   : NULL;

    if (!kept || !tenant || !is_sound_session(arbiter, record) || !has_descriptors(record, kept) ||
        dv_session_find(arbiter, record->id))
        return false;
    dv_text_clean(record->command, sizeof record->command);
    return dv_session_adopt(arbiter, record, adoption->leases[index], tenant, kept) == 0;
}

static void find_leases(struct adoption *adoption)
{
    const struct dv_state *state = &adoption->arbiter->state;

    for (uint32_t i = 0; i < state->leases.touched; i++) {
        struct dv_state_lease *record = dv_state_at(&state->leases, i);
        if (record && record->index < DV_MAX_DEVICES && dv_state_at(&state->sessions, record->session))
            adoption->leases[record->session][record->index] = record;
    }
}

/* Records that have become nothing are free again. */
static void drop_leases(struct adoption *adoption)
{
    struct dv_arbiter *arbiter = adoption->arbiter;
    struct dv_state *state = &arbiter->state;

    for (uint32_t i = 0; i < state->leases.touched; i++) {
        struct dv_state_lease *record = dv_state_at(&state->leases, i);
        if (!record)
            continue;
        struct dv_state_session *of = dv_state_at(&state->sessions, record->session);
        struct dv_session *session = of ? dv_session_find(arbiter, of->id) : NULL;
        const struct dvd_lease *lease =
            session && record->index < session->lessee.device_count ? session->lessee.leases[record->index] : NULL;
        if (!lease || lease->record != record)
            dv_state_drop(&state->leases, record);
    }
}

static void adopt_all(struct adoption *adoption)
{
    struct dv_state *state = &adoption->arbiter->state;

    for (uint32_t i = 0; i < state->tenants.touched; i++) {
        struct dv_state_tenant *record = dv_state_at(&state->tenants, i);
        if (record && !(adoption->tenants[i] = adopt_tenant(adoption, record)))
            dv_state_drop(&state->tenants, record);
    }
    for (uint32_t i = 0; i < state->places.touched; i++) {
        struct dv_state_place *record = dv_state_at(&state->places, i);
        if (record && !adopt_place(adoption, record))
            dv_state_drop(&state->places, record);
    }
    find_leases(adoption);
    for (uint32_t i = 0; i < state->sessions.touched; i++) {
        struct dv_state_session *record = dv_state_at(&state->sessions, i);
        if (!record)
            continue;
        if (adopt_session(adoption, i, record)) {
            adoption->adopted++;
        } else {
            adoption->left_out++;
            if (dv_state_at(&state->sessions, i)) /* it may be dropped already */
                dv_state_drop(&state->sessions, record);
        }
    }
    drop_leases(adoption);
    dvd_ledger_restored(&adoption->arbiter->ledger);
}

void dv_adopt_sessions(struct dv_arbiter *arbiter)
{
    struct dv_state *state = &arbiter->state;
    struct adoption adoption = {.arbiter = arbiter};

    if (!arbiter->inherited)
        return;
    adoption.tenants = calloc(state->tenants.touched + 1, sizeof *adoption.tenants);
    adoption.leases = calloc(state->sessions.touched + 1, sizeof *adoption.leases);
    if (adoption.tenants && adoption.leases && arbiter->devices.count)
        adopt_all(&adoption);
    else
        dv_state_clear(state);
    free(adoption.tenants);
    free(adoption.leases);
    if (adoption.adopted || adoption.left_out)
        dv_info("%u sessions of the daemon before go on%s", adoption.adopted,
                adoption.left_out ? "; others have ended meanwhile" : "");
}
