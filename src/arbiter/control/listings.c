/* Listings (see listings.h). libmicrohttpd asks for the next bytes whenever the peer has taken the last
 * ones. */
#include "src/arbiter/control/listings.h"

#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "src/arbiter/config/saved.h"
#include "src/arbiter/control/metrics.h"
#include "src/arbiter/control/private.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/session/kernels.h"
#include "src/arbiter/session/traced.h"

/* Copied at a time with HTTP 1.0, which has no chunks. */
#define BLOCK_BYTES 16384

struct dvd_listing {
    struct dvd_control *control;
    struct dvd_control_peer peer;
    enum dvd_listing_kind kind;
    bool complete, failed;
    bool has_rows; /* the next one is separated from the last */

    struct dvd_session *session;     /* the next one; NULL: that was all */
    uint64_t last_session;           /* those that come later are not listed */
    const struct dvd_tenant *tenant; /* the next one, or the one whose devices are listed */
    bool in_tenant, has_places;
    bool has_lost_tenant; /* the one whose devices were listed is gone: its list ends here */
    uint64_t place;       /* of the next record of an end, or of the trace */
    uint32_t device;      /* the next one */
    uint64_t rule;        /* for tenants, the next one */
    struct dvd_metrics_place metrics;
    unsigned *sessions_on; /* each device, DV_MAX_DEVICES of them; NULL where they are not counted */

    /* of DVD_LISTING_WATCH and DVD_LISTING_TRACE */
    struct MHD_Connection *connection;
    enum dvd_listing_kind part; /* devices, then tenants, then sessions */
    dv_ns interval, began;
    sd_event_source *timer;
    bool is_suspended; /* until the next time */
    bool is_over;      /* the peer has lost the right to it */
    bool traces;       /* it is a reader of the trace */
    bool has_commands; /* the trace shows those of each session as well */
    unsigned visits;   /* to the present session */
    unsigned commands; /* sent in this round */
    dv_ns traces_since;

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
    size_t bytes = 512;

    while (value && reserve(listing, bytes)) {
        size_t room = listing->capacity - listing->bytes;
        bytes = json_dumpb(value, listing->text + listing->bytes, room, DVD_VIEW_FLAGS);
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
        put_json(listing, listing->kind == DVD_LISTING_WATCH
                              ? dvd_view_session_watched(session, listing->peer.is_operator)
                              : dvd_view_session(session));
    }
    return true;
}

/* Records can be overwritten meanwhile: the place then names a later one. */
static bool step_ends(struct dvd_listing *listing)
{
    const struct dvd_ends *ends = &listing->control->sessions->ends;

    if (listing->place >= dvd_ends_kept(ends))
        return false;
    const struct dvd_end_record *end = dvd_ends_at(ends, listing->place++);
    if (end && (listing->peer.is_operator || listing->peer.uid == end->uid)) {
        separate(listing, &listing->has_rows);
        put_json(listing, dvd_view_end(end));
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

/* Whether a rule names a tenant that has no session, and no rule before it does. */
static bool is_absent(const struct dvd_control *control, uint64_t rule)
{
    const struct dvd_tenant_rule *rules = control->config->file->tenants;
    const struct dvd_tenant *tenant;

    if (!rules[rule].name || rules[rule].refuse)
        return false;
    HASH_FIND_STR(control->ledger->tenants, rules[rule].name, tenant);
    for (uint64_t i = 0; i < rule; i++)
        if (rules[i].name && strcmp(rules[i].name, rules[rule].name) == 0)
            return false;
    return !tenant || tenant->sessions == 0;
}

static json_t *view_absent(const struct dvd_control *control, uint64_t rule)
{
    const char *name = control->config->file->tenants[rule].name;
    struct dvd_tenant_terms terms = control->config->file->tenants[rule].terms;
    const struct dvd_saved *saved = control->sessions->saved;
    const struct dvd_share_change *change = saved ? dvd_saved_find(saved, name) : NULL;

    if (change)
        dvd_terms_apply(&terms, change);
    return json_pack("{s:s, s:i, s:[], s:i, s:i, s:i, s:s}", "name", name, "sessions", 0, "devices", "request_ppm",
                     (int)terms.share.request_ppm, "limit_ppm", (int)terms.share.limit_ppm, "weight",
                     (int)terms.share.weight, "class", dv_class_word(terms.share.class));
}

json_t *dvd_listing_absent_tenant(const struct dvd_control *control, const char *name)
{
    const struct dvd_config_file *file = control->config->file;

    for (uint64_t rule = 0; file && rule < file->tenants_count; rule++)
        if (file->tenants[rule].name && strcmp(file->tenants[rule].name, name) == 0 && is_absent(control, rule))
            return view_absent(control, rule);
    return NULL;
}

/* Tenants that the configuration names and that have no session, for operators. */
static bool step_absent_tenants(struct dvd_listing *listing)
{
    const struct dvd_config_file *file = listing->control->config->file;

    if (!listing->peer.is_operator || !file || listing->rule >= file->tenants_count)
        return false;
    uint64_t rule = listing->rule++;
    if (!is_absent(listing->control, rule))
        return true;
    separate(listing, &listing->has_rows);
    put_json(listing, view_absent(listing->control, rule));
    return true;
}

static bool step_tenants(struct dvd_listing *listing)
{
    const struct dvd_tenant *tenant = listing->tenant;

    if (listing->has_lost_tenant) {
        put(listing, "]}");
        listing->has_lost_tenant = false;
    }
    if (!tenant)
        return listing->kind == DVD_LISTING_TENANTS && step_absent_tenants(listing);
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
        put_json(listing, dvd_view_tenant_device(tenant->devices[listing->device]));
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
        count_on_devices(listing, session);
        return true;
    }
    if (device >= listing->control->devices->count)
        return false;
    listing->device++;
    separate(listing, &listing->has_rows);
    put_json(listing, dvd_view_device(listing->control, device, listing->sessions_on[device]));
    return true;
}

/* The same for one device, which is not in a list. */
static bool step_device(struct dvd_listing *listing)
{
    if (listing->session)
        return step_devices(listing);
    if (listing->has_rows)
        return false;
    listing->has_rows = true;
    if (listing->device < listing->control->devices->count)
        put_json(listing, dvd_view_device(listing->control, listing->device, listing->sessions_on[listing->device]));
    else
        listing->failed = true; /* a reload has taken it away meanwhile */
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
    put(listing, ",\"warnings\":");
    put_json(listing, listing->peer.is_operator ? dvd_view_warnings(listing->control) : json_array());
    put(listing, "}\n");
}

/* ---- metrics ---- */

static bool step_metrics(struct dvd_listing *listing)
{
    char line[1024];
    bool more = dvd_metrics_next(listing->control, &listing->metrics, line, sizeof line);

    put(listing, line);
    return more;
}

/* ---- all of it, again and again ---- */

static void begin_part(struct dvd_listing *listing, enum dvd_listing_kind part)
{
    listing->part = part;
    listing->has_rows = false;
    listing->session = part == DVD_LISTING_TENANTS ? NULL : listing->control->sessions->all;
    listing->last_session = listing->control->sessions->last_id;
    listing->tenant = part == DVD_LISTING_TENANTS ? listing->control->ledger->tenants : NULL;
    listing->device = 0;
}

static void begin_round(struct dvd_listing *listing)
{
    char head[64];

    listing->began = dv_now();
    listing->complete = false;
    memset(listing->sessions_on, 0, DV_MAX_DEVICES * sizeof *listing->sessions_on);
    begin_part(listing, DVD_LISTING_DEVICES);
    snprintf(head, sizeof head, "{\"time_s\":%.3f,\"devices\":[", (double)listing->began / DV_NS_PER_S);
    put(listing, head);
}

static bool step_watch(struct dvd_listing *listing)
{
    bool more = listing->part == DVD_LISTING_DEVICES   ? step_devices(listing)
                : listing->part == DVD_LISTING_TENANTS ? step_tenants(listing)
                                                       : step_sessions(listing);

    if (more || listing->part == DVD_LISTING_SESSIONS)
        return more;
    put(listing, listing->part == DVD_LISTING_DEVICES ? "],\"tenants\":[" : "],\"sessions\":[");
    begin_part(listing, listing->part == DVD_LISTING_DEVICES ? DVD_LISTING_TENANTS : DVD_LISTING_SESSIONS);
    return true;
}

static void resume(struct dvd_listing *listing)
{
    if (!listing->is_suspended)
        return;
    listing->is_suspended = false;
    MHD_resume_connection(listing->connection);
    dvd_control_run_soon(listing->control);
}

static int on_next_round(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct dvd_listing *listing = userdata;

    (void)source;
    (void)usec;
    if (listing->kind == DVD_LISTING_WATCH)
        begin_round(listing);
    else
        put(listing, "{}\n"); /* a peer that is gone is noticed only when it is sent something */
    listing->commands = 0;
    if (listing->has_commands && !listing->session)
        listing->session = listing->control->sessions->all;
    listing->began = dv_now();
    listing->complete = false;
    resume(listing);
    return 0;
}

/* A line is sent: the connection rests until the next one is due. */
static bool rest(struct dvd_listing *listing)
{
    dv_ns now = dv_now(), due = listing->began + listing->interval;
    uint64_t pause_us = due > now ? (due - now) / DV_NS_PER_US : 0;

    if (sd_event_source_set_time_relative(listing->timer, pause_us + 1) < 0 ||
        sd_event_source_set_enabled(listing->timer, SD_EVENT_ONESHOT) < 0)
        return false;
    MHD_suspend_connection(listing->connection);
    listing->is_suspended = true;
    return true;
}

void dvd_listings_wake(struct dvd_listings *listings)
{
    struct dvd_listing *listing;

    DL_FOREACH (listings->under_way, listing)
        resume(listing);
}

void dvd_listings_review(struct dvd_listings *listings, dvd_listing_review *may_go_on)
{
    struct dvd_listing *listing;

    DL_FOREACH (listings->under_way, listing) {
        if (!listing->connection || may_go_on(listing->control, listing->connection, &listing->peer))
            continue;
        listing->is_over = true;
        resume(listing);
    }
}

/* ---- a trace ---- */

static void put_command(struct dvd_listing *listing, const struct dvd_session *session, const struct dvd_traced *traced)
{
    put_json(listing,
             json_pack("{s:I, s:s, s:I, s:i, s:I, s:I, s:i, s:s, s:s, s:s, s:b}", "ns", (json_int_t)traced->begin_ns,
                       "what", dvd_traced_word(traced->kind), "session", (json_int_t)session->lessee.id.value, "device",
                       (int)traced->device, "end_ns", (json_int_t)traced->end_ns, "value",
                       (json_int_t)(traced->bytes & INT64_MAX), "count", (int)(traced->count & INT32_MAX), "name",
                       traced->name, "verdict", traced->verdict ? dvd_cut_verdict_word(traced->verdict) : "",
                       "whole_because", dvd_whole_reason_text(traced->reason), "is_part", traced->is_part));
    put(listing, "\n");
}

static void put_lost(struct dvd_listing *listing, uint64_t count)
{
    char line[64];

    snprintf(line, sizeof line, "{\"lost\":%llu}\n", (unsigned long long)(count & INT64_MAX));
    put(listing, line);
}

/* The next commands of a session. A round has a limit, and the next one goes on from there: a trace of many programs
 * that run tiny kernels loses some of them, and does not occupy divvyd. */
static bool step_commands(struct dvd_listing *listing)
{
    struct dvd_session *session = listing->session;
    struct dvd_traced found[DVD_TRACED_BATCH];
    unsigned valid;
    uint64_t lost;

    if (!session || listing->commands >= DV_TRACE_COMMANDS_MAX)
        return false;
    dvd_session_trace(session, dv_now());
    unsigned read = dvd_session_read_traced(session, listing->traces_since, found, &valid, &lost);
    listing->commands += read;
    for (unsigned i = 0; i < valid; i++)
        put_command(listing, session, &found[i]);
    if (lost)
        put_lost(listing, lost);
    if (read < DVD_TRACED_BATCH || ++listing->visits >= DV_TRACE_VISITS_MAX) {
        listing->session = session->hh.next;
        listing->visits = 0;
    }
    return true;
}

/* The next event. Events that were overwritten before they could be sent are counted. */
static bool step_trace(struct dvd_listing *listing)
{
    const struct dvd_trace *trace = &listing->control->ledger->trace;
    uint64_t oldest = trace->count > DVD_TRACE_RECORDS ? trace->count - DVD_TRACE_RECORDS : 0;
    char line[192];

    if (listing->place == trace->count)
        return listing->has_commands && step_commands(listing);
    if (listing->place < oldest) {
        put_lost(listing, oldest - listing->place);
        listing->place = oldest;
        return true;
    } else {
        const struct dvd_trace_record *record = &trace->records[listing->place++ % DVD_TRACE_RECORDS];
        snprintf(line, sizeof line,
                 "{\"ns\":%llu,\"what\":\"%s\",\"session\":%llu,\"device\":%u,\"value\":%llu,\"more\":%d}\n",
                 (unsigned long long)record->time, dvd_trace_word((enum dvd_trace_kind)record->kind),
                 (unsigned long long)record->session, record->device, (unsigned long long)record->value, record->more);
    }
    put(listing, line);
    return true;
}

static void end_device(struct dvd_listing *listing)
{
    put(listing, "\n");
}

static void end_nothing(struct dvd_listing *listing)
{
    (void)listing;
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
             [DVD_LISTING_DEVICES] = {"{\"devices\":[", step_devices, put_device_note},
             [DVD_LISTING_DEVICE] = {"", step_device, end_device},
             [DVD_LISTING_ENDS] = {"{\"ended\":[", step_ends, end_list},
             [DVD_LISTING_METRICS] = {"", step_metrics, end_nothing},
             [DVD_LISTING_WATCH] = {"", step_watch, end_list},
             [DVD_LISTING_TRACE] = {"", step_trace, end_nothing}};

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
    if (listing->is_over)
        return MHD_CONTENT_READER_END_OF_STREAM;
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
    if (filled > 0 || !listing->complete)
        return (ssize_t)filled;
    if (!listing->connection)
        return MHD_CONTENT_READER_END_OF_STREAM;
    return rest(listing) ? 0 : MHD_CONTENT_READER_END_WITH_ERROR;
}

/* ---- life ---- */

static void destroy(void *userdata)
{
    struct dvd_listing *listing = userdata;

    DL_DELETE(listing->control->listings.under_way, listing);
    listing->timer = sd_event_source_disable_unref(listing->timer);
    if (listing->traces)
        dvd_trace_end(&listing->control->ledger->trace);
    if (listing->has_commands)
        for (struct dvd_session *session = listing->control->sessions->all; session; session = session->hh.next)
            dvd_session_end_trace(session);
    free(listing->sessions_on);
    free(listing->text);
    free(listing);
}

static struct MHD_Response *respond(struct dvd_control *control, const struct dvd_control_peer *peer,
                                    enum dvd_listing_kind kind, uint32_t device)
{
    bool counts = kind == DVD_LISTING_DEVICES || kind == DVD_LISTING_DEVICE;
    struct dvd_listing *listing = calloc(1, sizeof *listing);

    if (!listing)
        return NULL;
    *listing = (struct dvd_listing){.control = control,
                                    .peer = *peer,
                                    .kind = kind,
                                    .device = device,
                                    .session = kind == DVD_LISTING_SESSIONS || counts ? control->sessions->all : NULL,
                                    .last_session = control->sessions->last_id,
                                    .tenant = control->ledger->tenants};
    DL_APPEND(control->listings.under_way, listing);
    put(listing, kinds[kind].head);
    if (counts)
        listing->sessions_on = calloc(DV_MAX_DEVICES, sizeof *listing->sessions_on);
    struct MHD_Response *response = NULL;
    if (!listing->failed && (!counts || listing->sessions_on))
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, on_room, listing, destroy);
    if (!response)
        destroy(listing);
    return response;
}

struct MHD_Response *dvd_listing_respond(struct dvd_control *control, const struct dvd_control_peer *peer,
                                         enum dvd_listing_kind kind)
{
    return respond(control, peer, kind, 0);
}

struct MHD_Response *dvd_device_respond(struct dvd_control *control, const struct dvd_control_peer *peer,
                                        uint32_t device)
{
    return respond(control, peer, DVD_LISTING_DEVICE, device);
}

/* Whether one more may have an answer without end. */
static bool may_stay(const struct dvd_control *control, const struct dvd_control_peer *peer)
{
    const struct dvd_listing *listing;
    unsigned all = 0, of_tenants = 0, own = 0;

    DL_FOREACH (control->listings.under_way, listing) {
        all += listing->connection != NULL;
        of_tenants += listing->connection && !listing->peer.is_operator;
        own += listing->connection && listing->peer.uid == peer->uid;
    }
    return all < DV_MAX_WATCHES &&
           (peer->is_operator || (of_tenants < DV_MAX_WATCHES_OF_TENANTS && own < DV_MAX_WATCHES_PER_TENANT));
}

/* An answer without end, not filled yet. */
static struct dvd_listing *new_endless(struct dvd_control *control, const struct dvd_control_peer *peer,
                                       struct MHD_Connection *connection, enum dvd_listing_kind kind, dv_ns interval)
{
    struct dvd_listing *listing = may_stay(control, peer) ? calloc(1, sizeof *listing) : NULL;

    if (!listing)
        return NULL;
    *listing = (struct dvd_listing){.control = control,
                                    .peer = *peer,
                                    .kind = kind,
                                    .connection = connection,
                                    .interval = interval,
                                    .began = dv_now(),
                                    .sessions_on = calloc(DV_MAX_DEVICES, sizeof *listing->sessions_on)};
    DL_APPEND(control->listings.under_way, listing);
    if (!listing->sessions_on || sd_event_add_time_relative(control->event, &listing->timer, CLOCK_MONOTONIC, 0, DV_MS,
                                                            on_next_round, listing) < 0) {
        destroy(listing);
        return NULL;
    }
    sd_event_source_set_enabled(listing->timer, SD_EVENT_OFF);
    return listing;
}

static struct MHD_Response *respond_endless(struct dvd_listing *listing)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, on_room, listing, destroy);

    if (!response)
        destroy(listing);
    return response;
}

struct MHD_Response *dvd_watch_respond(struct dvd_control *control, const struct dvd_control_peer *peer,
                                       struct MHD_Connection *connection, dv_ns interval)
{
    struct dvd_listing *listing = new_endless(control, peer, connection, DVD_LISTING_WATCH, interval);

    if (!listing)
        return NULL;
    begin_round(listing);
    return respond_endless(listing);
}

bool dvd_trace_shows_commands(const struct dvd_control *control)
{
    const struct dvd_listing *listing;

    DL_FOREACH (control->listings.under_way, listing)
        if (listing->has_commands)
            return true;
    return false;
}

/* Sessions that hold a device or wait for it when the trace begins: they may do so to its end without an event. */
static void note_present_leases(const struct dvd_control *control)
{
    for (const struct dvd_session *session = control->sessions->all; session; session = session->hh.next)
        for (uint32_t i = 0; session->lessee.leases && i < session->lessee.device_count; i++) {
            const struct dvd_lease *lease = session->lessee.leases[i];
            enum dvd_lease_state state = lease ? dvd_lease_figures(lease).state : DVD_LEASE_IDLE;
            if (state == DVD_LEASE_HOLDING || state == DVD_LEASE_MOVING)
                dvd_trace_write(lease, DVD_TRACE_GRANT, lease->policy.slice_ns, 0);
            else if (state == DVD_LEASE_WAITING || state == DVD_LEASE_QUEUED)
                dvd_trace_write(lease, DVD_TRACE_WAIT, 0, 0);
        }
}

struct MHD_Response *dvd_trace_respond(struct dvd_control *control, const struct dvd_control_peer *peer,
                                       struct MHD_Connection *connection, bool has_commands)
{
    struct dvd_trace *trace = &control->ledger->trace;
    struct dvd_listing *listing =
        new_endless(control, peer, connection, DVD_LISTING_TRACE, DV_TRACE_PAUSE_MS * DV_NS_PER_MS);

    if (!listing)
        return NULL;
    listing->traces = dvd_trace_begin(trace) == 0;
    if (!listing->traces) {
        destroy(listing);
        return NULL;
    }
    listing->place = trace->count;
    listing->has_commands = has_commands;
    listing->traces_since = dv_now();
    listing->session = has_commands ? control->sessions->all : NULL;
    note_present_leases(control);
    put(listing, "{\"begin\":true}\n");
    return respond_endless(listing);
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
        dvd_metrics_tenant_goes(&listing->metrics, tenant);
        if (listing->tenant != tenant)
            continue;
        listing->tenant = tenant->hh.next;
        listing->has_lost_tenant |= listing->in_tenant;
        listing->in_tenant = false;
    }
}
