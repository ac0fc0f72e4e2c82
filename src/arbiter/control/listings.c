/* Listings (see listings.h). libmicrohttpd asks for the next bytes whenever the peer has taken the last
 * ones. */
#include "src/arbiter/control/listings.h"

#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "src/arbiter/control/private.h"
#include "src/arbiter/limits.h"

/* Copied at a time with HTTP 1.0, which has no chunks. */
#define BLOCK_BYTES 16384

struct dvd_listing {
    struct dvd_control *control;
    struct dvd_control_peer peer;
    enum dvd_listing_kind kind;
    bool complete, failed;
    bool has_rows; /* the next one is separated from the last */

    const struct dvd_session *session; /* the next one; NULL: that was all */
    uint64_t last_session;             /* those that come later are not listed */
    const struct dvd_tenant *tenant;   /* the next one, or the one whose devices are listed */
    bool in_tenant, has_places;
    bool has_lost_tenant;  /* the one whose devices were listed is gone: its list ends here */
    uint32_t device;       /* the next one */
    unsigned *sessions_on; /* each device, DV_MAX_DEVICES of them; NULL where they are not counted */
    json_t *warnings;

    char *text; /* of the row under way */
    size_t bytes, capacity, taken;
    struct dvd_listing *prev, *next;
};

/* ---- text ---- */

static bool reserve(struct dvd_listing *listing, size_t more)
{
    size_t wanted = listing->bytes + more, capacity = listing->capacity ? listing->capacity : 1024;

    while (capacity < wanted)
        capacity *= 2;
    if (capacity == listing->capacity)
        return true;
    char *grown = realloc(listing->text, capacity);
    if (!grown) {
        listing->failed = true;
        return false;
    }
    listing->text = grown;
    listing->capacity = capacity;
    return true;
}

static void put(struct dvd_listing *listing, const char *text)
{
    size_t bytes = strlen(text);

    if (!reserve(listing, bytes))
        return;
    memcpy(listing->text + listing->bytes, text, bytes);
    listing->bytes += bytes;
}

/* Takes over the value, which is NULL when memory was short. */
static void put_json(struct dvd_listing *listing, json_t *value)
{
    enum { FLAGS = JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_ENCODE_ANY };
    size_t bytes = 512;

    while (value && reserve(listing, bytes)) {
        size_t room = listing->capacity - listing->bytes;
        bytes = json_dumpb(value, listing->text + listing->bytes, room, FLAGS);
        if (bytes <= room) {
            listing->bytes += bytes;
            break;
        }
    }
    if (!value || bytes == 0)
        listing->failed = true;
    json_decref(value);
}

static void separate(struct dvd_listing *listing, bool *has_some)
{
    if (*has_some)
        put(listing, ",");
    *has_some = true;
}

/* ---- sessions ---- */

static bool may_see(const struct dvd_listing *listing, const struct dvd_session *session)
{
    return session->lessee.id.value <= listing->last_session &&
           (listing->peer.is_operator || listing->peer.uid == session->lessee.uid);
}

/* Each step does little, and returns false when nothing is left to do. */
static bool step_sessions(struct dvd_listing *listing)
{
    const struct dvd_session *session = listing->session;

    if (!session)
        return false;
    listing->session = session->hh.next;
    if (may_see(listing, session)) {
        separate(listing, &listing->has_rows);
        put_json(listing, dvd_view_session(session));
    }
    return true;
}

/* ---- tenants ---- */

static bool may_see_tenant(const struct dvd_listing *listing, const struct dvd_tenant *tenant)
{
    return tenant->sessions > 0 && (listing->peer.is_operator || dvd_tenant_has_user(tenant, listing->peer.uid));
}

static void begin_tenant(struct dvd_listing *listing, const struct dvd_tenant *tenant)
{
    char sessions[64];

    separate(listing, &listing->has_rows);
    put(listing, "{\"name\":");
    put_json(listing, json_string(tenant->name));
    snprintf(sessions, sizeof sessions, ",\"sessions\":%u,\"devices\":[", tenant->sessions);
    put(listing, sessions);
    listing->in_tenant = true;
    listing->has_places = false;
    listing->device = 0;
}

static bool step_tenants(struct dvd_listing *listing)
{
    const struct dvd_tenant *tenant = listing->tenant;

    if (listing->has_lost_tenant) {
        put(listing, "]}");
        listing->has_lost_tenant = false;
    }
    if (!tenant)
        return false;
    if (!listing->in_tenant) {
        if (may_see_tenant(listing, tenant))
            begin_tenant(listing, tenant);
        else
            listing->tenant = tenant->hh.next;
        return true;
    }
    while (listing->device < DV_MAX_DEVICES && !tenant->devices[listing->device])
        listing->device++;
    if (listing->device < DV_MAX_DEVICES) {
        separate(listing, &listing->has_places);
        put_json(listing, dvd_view_fares(tenant->devices[listing->device]));
        listing->device++;
        return true;
    }
    put(listing, "]}");
    listing->in_tenant = false;
    listing->tenant = tenant->hh.next;
    return true;
}

/* ---- devices ---- */

static void count_on_devices(struct dvd_listing *listing, const struct dvd_session *session)
{
    struct dvd_session_figures figures;

    dvd_session_read_figures(session, &figures);
    for (uint32_t i = 0; i < session->lessee.device_count; i++)
        listing->sessions_on[session->lessee.devices[i].number] += figures.device_mask >> i & 1;
}

/* First the sessions are counted, then the devices listed. */
static bool step_devices(struct dvd_listing *listing)
{
    const struct dvd_session *session = listing->session;
    uint32_t device = listing->device;

    if (session) {
        listing->session = session->hh.next;
        if (may_see(listing, session))
            count_on_devices(listing, session);
        return true;
    }
    if (device >= listing->control->devices->count)
        return false;
    if (!listing->warnings && !(listing->warnings = dvd_view_warnings(listing->control))) {
        listing->failed = true;
        return false;
    }
    listing->device++;
    separate(listing, &listing->has_rows);
    put_json(listing, dvd_view_device(listing->control, device, listing->sessions_on[device], listing->warnings));
    return true;
}

static void put_device_note(struct dvd_listing *listing)
{
    const struct dvd_devices *devices = listing->control->devices;

    put(listing, "],\"found\":");
    put_json(listing, json_integer(devices->found));
    put(listing, ",\"note\":");
    put_json(listing, json_string(!devices->known       ? "divvyd is still looking for devices"
                                  : devices->count == 0 ? devices->text
                                                        : ""));
    put(listing, "}\n");
}

/* ---- making text ---- */

static void end_list(struct dvd_listing *listing)
{
    put(listing, "]}\n");
}

static const struct {
    const char *head;
    bool (*step)(struct dvd_listing *listing);
    void (*end)(struct dvd_listing *listing);
} kinds[] = {[DVD_LISTING_SESSIONS] = {"{\"sessions\":[", step_sessions, end_list},
             [DVD_LISTING_TENANTS] = {"{\"tenants\":[", step_tenants, end_list},
             [DVD_LISTING_DEVICES] = {"{\"devices\":[", step_devices, put_device_note}};

void dvd_listings_continue(struct dvd_listings *listings)
{
    listings->spent_ns = 0;
}

/* Makes text until there is some, all of it is made, or the time is used up. */
static void make_text(struct dvd_listing *listing)
{
    dv_ns *spent_ns = &listing->control->listings.spent_ns;
    dv_ns before = *spent_ns, begin = dv_now();

    listing->bytes = listing->taken = 0;
    while (!listing->bytes && !listing->complete && !listing->failed && *spent_ns < DV_LISTING_STEP_NS) {
        if (!kinds[listing->kind].step(listing)) {
            kinds[listing->kind].end(listing);
            listing->complete = true;
        }
        *spent_ns = before + (dv_now() - begin);
    }
}

/* libmicrohttpd wants up to `most` bytes; after 0 it asks again when other sources were served. */
static ssize_t on_room(void *userdata, uint64_t position, char *buffer, size_t most)
{
    struct dvd_listing *listing = userdata;
    size_t filled = 0;

    (void)position;
    while (filled < most) {
        if (listing->taken == listing->bytes)
            make_text(listing);
        if (listing->failed)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        size_t left = listing->bytes - listing->taken;
        size_t bytes = left < most - filled ? left : most - filled;
        if (bytes == 0)
            break;
        memcpy(buffer + filled, listing->text + listing->taken, bytes);
        listing->taken += bytes;
        filled += bytes;
    }
    return filled == 0 && listing->complete ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)filled;
}

/* ---- life ---- */

static void destroy(void *userdata)
{
    struct dvd_listing *listing = userdata;

    DL_DELETE(listing->control->listings.under_way, listing);
    json_decref(listing->warnings);
    free(listing->sessions_on);
    free(listing->text);
    free(listing);
}

struct MHD_Response *dvd_listing_respond(struct dvd_control *control, const struct dvd_control_peer *peer,
                                         enum dvd_listing_kind kind)
{
    struct dvd_listing *listing = calloc(1, sizeof *listing);

    if (!listing)
        return NULL;
    *listing = (struct dvd_listing){.control = control,
                                    .peer = *peer,
                                    .kind = kind,
                                    .session = kind == DVD_LISTING_TENANTS ? NULL : control->sessions->all,
                                    .last_session = control->sessions->last_id,
                                    .tenant = control->ledger->tenants};
    DL_APPEND(control->listings.under_way, listing);
    put(listing, kinds[kind].head);
    if (kind == DVD_LISTING_DEVICES)
        listing->sessions_on = calloc(DV_MAX_DEVICES, sizeof *listing->sessions_on);
    struct MHD_Response *response = NULL;
    if (!listing->failed && (kind != DVD_LISTING_DEVICES || listing->sessions_on))
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, on_room, listing, destroy);
    if (!response)
        destroy(listing);
    return response;
}

void dvd_listings_session_goes(struct dvd_control *control, const struct dvd_session *session)
{
    struct dvd_listing *listing;

    DL_FOREACH (control->listings.under_way, listing)
        if (listing->session == session)
            listing->session = session->hh.next;
}

void dvd_listings_tenant_goes(struct dvd_control *control, const struct dvd_tenant *tenant)
{
    struct dvd_listing *listing;

    DL_FOREACH (control->listings.under_way, listing) {
        if (listing->tenant != tenant)
            continue;
        listing->tenant = tenant->hh.next;
        listing->has_lost_tenant |= listing->in_tenant;
        listing->in_tenant = false;
    }
}
