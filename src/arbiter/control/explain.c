/* Why a session waits, or what has ended it. */
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/arbiter/control/private.h"
#include "src/arbiter/session/kernels.h"
#include "src/base/text.h"

#define MS(ns) ((double)(ns) / DV_NS_PER_MS)
#define SECONDS(ns) ((double)(ns) / DV_NS_PER_S)

/* The reason for a session's state, and what a person can do about it (empty: nothing). */
struct reason {
    char because[384], to_change[128 + DV_MAX_TENANT_NAME];
};

#define TIME_BYTES 32

/* "9.0 ms", and from a second on "40.7 s". */
static const char *format_time(char field[TIME_BYTES], dv_ns ns)
{
    if (ns < DV_NS_PER_S)
        snprintf(field, TIME_BYTES, "%.1f ms", MS(ns));
    else
        snprintf(field, TIME_BYTES, "%.1f s", SECONDS(ns));
    return field;
}

static bool may_be_named(const struct dvd_lease *lease, const struct dvd_lease *holder, bool for_operator)
{
    return for_operator || holder->tenant == lease->tenant;
}

/* A holder, as the caller may see it: only operators see other tenants. */
static void name_holder(const struct dvd_lease *lease, const struct dvd_lease *holder, bool for_operator, char *text,
                        size_t bytes)
{
    unsigned long long id = holder->lessee->id.value;

    if (holder->tenant == lease->tenant)
        snprintf(text, bytes, "session %llu of its own tenant", id);
    else if (may_be_named(lease, holder, for_operator))
        snprintf(text, bytes, "session %llu of tenant %s", id, holder->tenant->tenant->name);
    else
        snprintf(text, bytes, "another tenant");
}

/* It has a long slice because bringing its memory in took long. */
static void explain_moved(const struct dvd_lease *lease, const struct dvd_lease *holder, const char *name,
                          bool for_operator, dv_ns held, struct reason *reason)
{
    const struct dv_policy_session *s = &holder->policy;
    bool may = may_be_named(lease, holder, for_operator);
    char size[32], slice[TIME_BYTES], left[TIME_BYTES], moved[TIME_BYTES];

    dv_text_format_size(size, sizeof size, holder->memory.placed);
    snprintf(reason->because, sizeof reason->because,
             "%s has a slice of %s (%s left): bringing its %s in took %s, and at most %g%% of the time may go into "
             "moving memory (swap-part)",
             name, format_time(slice, s->own_ns), format_time(left, s->own_ns > held ? s->own_ns - held : 0), size,
             format_time(moved, s->moved_ns), lease->device->policy.moving_part_ppm / 1e4);
    snprintf(reason->to_change, sizeof reason->to_change,
             "give the device more memory, lower the memory of %s%s, or raise swap-part or lower slice-max",
             may ? "tenant " : "the other tenant", may ? holder->tenant->tenant->name : "");
}

static void explain_holder(const struct dvd_lease *lease, const struct dvd_lease *holder, bool for_operator, dv_ns now,
                           struct reason *reason)
{
    const struct dv_policy_session *s = &holder->policy;
    dv_ns held = now - s->granted_at;
    char name[DV_MAX_TENANT_NAME + 64], text[TIME_BYTES], recalled[TIME_BYTES];

    name_holder(lease, holder, for_operator, name, sizeof name);
    if (s->moving) {
        snprintf(reason->because, sizeof reason->because, "%s brings its memory to the device, since %s ago", name,
                 format_time(text, now - s->moving_since));
    } else if (s->moved_ns && s->own_ns > DV_SLICE_MAX_NS) {
        explain_moved(lease, holder, name, for_operator, held, reason);
    } else if (s->recalled && now - s->recalled_at > DV_NS_PER_S) {
        snprintf(reason->because, sizeof reason->because,
                 "%s has used the device for %s and was asked to give it back %s ago: a kernel that runs whole "
                 "cannot be interrupted",
                 name, format_time(text, held), format_time(recalled, now - s->recalled_at));
        snprintf(reason->to_change, sizeof reason->to_change,
                 "wait, end that session (divvy end), or set `deadlines` in divvy.yaml");
    } else {
        snprintf(reason->because, sizeof reason->because, "%s has used the device for %s; tenants that wait: %u", name,
                 format_time(text, held), lease->device->policy.waiting_tenants);
    }
}

static void explain_waiting(const struct dvd_lease *lease, bool for_operator, dv_ns now, struct reason *reason)
{
    const struct dv_policy *policy = &lease->device->policy;
    const struct dv_policy_tenant *tenant = lease->policy.tenant;
    dv_ns held_back = dv_policy_held_back(policy, tenant, now);
    char text[TIME_BYTES];

    if (held_back) {
        snprintf(reason->because, sizeof reason->because, "its tenant %s is at its limit of %g%% for another %s",
                 lease->tenant->tenant->name, tenant->share.limit_ppm / 1e4, format_time(text, held_back));
        snprintf(reason->to_change, sizeof reason->to_change, "raise the limit: divvy set %s --limit ...",
                 lease->tenant->tenant->name);
    } else if (policy->crowded) {
        snprintf(reason->because, sizeof reason->because, "%s", dv_rule_text(DV_RULE_CROWDED));
    } else if (policy->free_slots > 0) {
        snprintf(reason->because, sizeof reason->because, "%s", dv_rule_text(DV_RULE_IDLE_WINDOW));
    } else if (policy->holders.first) {
        explain_holder(lease, dvd_lease_of(policy->holders.first), for_operator, now, reason);
    } else {
        snprintf(reason->because, sizeof reason->because, "%s", dv_rule_text(DV_RULE_BUSY));
    }
}

static void find_reason(const struct dvd_lease *lease, enum dvd_lease_state state, bool for_operator, dv_ns now,
                        struct reason *reason)
{
    const char *text = "";

    *reason = (struct reason){0};
    switch (state) {
    case DVD_LEASE_WAITING:
        explain_waiting(lease, for_operator, now, reason);
        return;
    case DVD_LEASE_QUEUED:
        text = "it waits for other sessions to make room on the device";
        break;
    case DVD_LEASE_MOVING:
        text = "it brings the memory that its next command needs to the device";
        break;
    case DVD_LEASE_HOLDING:
        text = lease->policy.recalled ? "it was asked to give the device back: another tenant waits"
                                      : dv_rule_text(lease->policy.rule);
        break;
    case DVD_LEASE_UNKNOWN:
        text = "divvyd was restarted, and the session has not said yet what it holds";
        break;
    case DVD_LEASE_IDLE:
        text = "it has no work for this device";
        break;
    }
    snprintf(reason->because, sizeof reason->because, "%s", text);
}

/* compiling_ns: for how long the session's worker has been compiling; 0: it does not. */
static json_t *explain_lease(struct dvd_lease *lease, dv_ns compiling_ns, bool for_operator)
{
    const struct dv_policy *policy = &lease->device->policy;
    const struct dv_policy_session *s = &lease->policy;
    struct dvd_lease_figures figures = dvd_lease_figures(lease);
    struct reason reason;

    bool compiles = compiling_ns && figures.state == DVD_LEASE_IDLE;
    find_reason(lease, figures.state, for_operator, dv_now(), &reason);
    if (compiles)
        snprintf(reason.because, sizeof reason.because, "the driver's compiler works for it, and needs no device");
    json_t *object = dvd_view_tenant_device(lease->tenant);
    json_t *own = dvd_view_lease(lease, &figures);
    json_t *more = json_pack(
        "{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:I, s:i, s:f, s:f}", "because", reason.because, "to_change",
        reason.to_change, "rule", lease->grants ? dv_rule_text(s->rule) : "it has not been granted the device yet",
        "slice_ms", MS(s->slice_ns), "kernel_ms", MS(s->burst.kernel_ns), "burst_ms", MS(s->learned_ns), "compiling_s",
        SECONDS(lease->compile_ns), "grants", (json_int_t)lease->grants, "recalls", (int)lease->recalls, "moving_s",
        SECONDS(lease->memory.moved_ns), "slice_max_s", SECONDS(policy->moved_slice_max_ns));

    if (object && own && more) {
        json_object_set_new(own, "of_tenant", object);
        json_object_update(own, more);
        if (compiles) {
            json_object_set_new(own, "state", json_string("compiling"));
            json_object_set_new(own, "state_s", json_real(SECONDS(compiling_ns)));
        }
        object = own;
        own = NULL;
    }
    json_decref(own);
    json_decref(more);
    return object;
}

json_t *dvd_view_session_watched(const struct dvd_session *session, bool for_operator)
{
    const struct dvd_lessee *lessee = &session->lessee;
    json_t *answer = dvd_view_session(session), *device;
    struct reason reason;
    size_t at;

    json_array_foreach(json_object_get(answer, "devices"), at, device)
    {
        const char *state = json_string_value(json_object_get(device, "state"));
        json_int_t number = json_integer_value(json_object_get(device, "index"));
        if (!state || strncmp(state, "waiting", 7) != 0)
            continue;
        for (uint32_t i = 0; lessee->leases && i < lessee->device_count; i++) {
            const struct dvd_lease *lease = lessee->leases[i];
            if (!lease || lease->device->id.number != number)
                continue;
            find_reason(lease, dvd_lease_figures(lease).state, for_operator, dv_now(), &reason);
            json_object_set_new(device, "because", json_string(reason.because));
        }
    }
    return answer;
}

static dv_ns compiling_for(const struct dvd_session *session)
{
    struct dvd_session_figures figures;
    dv_ns now = dv_now();

    dvd_session_read_figures(session, &figures);
    return figures.is_ready && figures.compiling_since && figures.compiling_since < now ? now - figures.compiling_since
                                                                                        : 0;
}

static const struct dvd_end_record *find_end(const struct dvd_control *control, const struct dvd_request *request)
{
    const struct dvd_control_peer *peer = &request->peer;
    uint64_t id;

    if (dv_text_parse_number(request->name, UINT64_MAX, &id) < 0)
        return NULL;
    const struct dvd_end_record *end = dvd_ends_find(&control->sessions->ends, DVD_SESSION_ID(id));
    return end && (peer->is_operator || peer->uid == end->uid) ? end : NULL;
}

static json_t *list_kernels(const struct dvd_session *session)
{
    struct dvd_kernel kernels[DVD_KERNELS_SHOWN];
    unsigned count = dvd_session_read_kernels(session, kernels);
    json_t *list = json_array();

    for (unsigned i = 0; list && i < count; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:I, s:I, s:I, s:s}", "name", kernels[i].name, "verdict",
                            dvd_cut_verdict_word(kernels[i].verdict), "launches", (json_int_t)kernels[i].launches,
                            "in_parts", (json_int_t)kernels[i].cut_launches, "parts", (json_int_t)kernels[i].parts,
                            "whole_because", dvd_whole_reason_text(kernels[i].reason)));
    return list;
}

struct dvd_reply dvd_serve_explain(struct dvd_control *control, const struct dvd_request *request)
{
    const struct dvd_session *session = dvd_control_find_session(control, &request->peer, request->name);
    const struct dvd_end_record *end = session ? NULL : find_end(control, request);

    if (end)
        return dvd_view_reply(MHD_HTTP_OK, dvd_view_end(end));
    if (!session)
        return dvd_view_no_session(request->name);
    const struct dvd_lessee *lessee = &session->lessee;
    dv_ns compiling_ns = compiling_for(session);
    json_t *answer = dvd_view_session(session), *list = json_array();
    for (uint32_t i = 0; list && lessee->leases && i < lessee->device_count; i++)
        if (lessee->leases[i])
            json_array_append_new(list, explain_lease(lessee->leases[i], compiling_ns, request->peer.is_operator));
    json_object_set_new(answer, "devices", list);
    json_object_set_new(answer, "kernel_list", list_kernels(session));
    json_object_set_new(answer, "turned_away", json_string(session->turned_away ? session->turned_away : ""));
    return dvd_view_reply(MHD_HTTP_OK, answer);
}
