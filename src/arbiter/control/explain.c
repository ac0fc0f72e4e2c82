/* Why a session waits, or what has ended it. */
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/arbiter/control/private.h"
#include "src/base/text.h"

#define MS(ns) ((double)(ns) / DV_NS_PER_MS)
#define SECONDS(ns) ((double)(ns) / DV_NS_PER_S)

/* Only operators see the name of another tenant. */
static void explain_waiting(const struct dv_policy *policy, const struct dvd_lease *lease, bool for_operator, dv_ns now,
                            char *text, size_t bytes)
{
    const struct dv_policy_tenant *tenant = lease->policy.tenant;
    const struct dv_policy_session *holder = policy->holders.first;

    if (dv_policy_held_back(policy, tenant, now))
        snprintf(text, bytes, "its tenant %s is at its limit of %g%% for another %.1f ms", lease->tenant->tenant->name,
                 tenant->share.limit_ppm / 1e4, MS(dv_policy_held_back(policy, tenant, now)));
    else if (policy->crowded)
        snprintf(text, bytes, "%s", dv_rule_text(DV_RULE_CROWDED));
    else if (policy->free_slots > 0)
        snprintf(text, bytes, "%s", dv_rule_text(DV_RULE_IDLE_WINDOW));
    else if (holder && holder->tenant == tenant)
        snprintf(text, bytes, "session %llu of its own tenant has used the device for %.1f ms",
                 (unsigned long long)dvd_lease_of((struct dv_policy_session *)holder)->lessee->id.value,
                 MS(now - holder->granted_at));
    else if (holder && !for_operator)
        snprintf(text, bytes, "another tenant has used the device for %.1f ms; tenants that wait: %u",
                 MS(now - holder->granted_at), policy->waiting_tenants);
    else if (holder)
        snprintf(text, bytes, "session %llu (%s) has used the device for %.1f ms; tenants that wait: %u",
                 (unsigned long long)dvd_lease_of((struct dv_policy_session *)holder)->lessee->id.value,
                 dvd_lease_of((struct dv_policy_session *)holder)->tenant->tenant->name, MS(now - holder->granted_at),
                 policy->waiting_tenants);
    else
        snprintf(text, bytes, "%s", dv_rule_text(DV_RULE_BUSY));
}

/* Tells waiting sessions about a slice that is longer because memory was moved. */
static void explain_long_slice(const struct dv_policy *policy, char *text, size_t bytes)
{
    const struct dv_policy_session *holder = policy->holders.first;
    size_t used = strlen(text);

    if (holder && holder->moved_ns && holder->own_ns > DV_SLICE_MAX_NS)
        snprintf(text + used, bytes - used, "; bringing memory in took %.1f ms, so its slice lasts until %.1f ms",
                 MS(holder->moved_ns), MS(holder->own_ns));
}

static json_t *explain_lease(struct dvd_lease *lease, bool for_operator)
{
    const struct dv_policy *policy = &lease->device->policy;
    const struct dv_policy_session *s = &lease->policy;
    dv_ns now = dv_now(), since = s->waiting ? s->waiting_since : lease->changed_at;
    char why[256];

    if (s->waiting) {
        explain_waiting(policy, lease, for_operator, now, why, sizeof why);
        explain_long_slice(policy, why, sizeof why);
    } else if (lease->memory.is_queued)
        snprintf(why, sizeof why, "waits for other sessions to make room on the device");
    else if (s->holding && s->moving)
        snprintf(why, sizeof why, "brings the memory that its next command needs to the device");
    else if (s->holding && s->recalled)
        snprintf(why, sizeof why, "was asked to give the device back: another tenant waits");
    else
        snprintf(why, sizeof why, "%s", s->holding ? dv_rule_text(s->rule) : "has no work for this device");
    json_t *object = dvd_view_fares(lease->tenant);
    json_t *more =
        json_pack("{s:s, s:f, s:s, s:s, s:f, s:f, s:f, s:f, s:I, s:i, s:f, s:I, s:f, s:f}", "state",
                  s->holding   ? "holds"
                  : s->waiting ? "waits"
                               : "idle",
                  "since_s", SECONDS(now - since), "why", why, "rule",
                  lease->grants ? dv_rule_text(s->rule) : "it has not been granted the device yet", "slice_ms",
                  MS(s->slice_ns), "kernel_ms", MS(s->burst.kernel_ns), "burst_ms", MS(s->learned_ns), "compiling_s",
                  SECONDS(lease->compile_ns), "grants", (json_int_t)lease->grants, "recalls", (int)lease->recalls,
                  "held_s", SECONDS(lease->used_ns), "placed_bytes", (json_int_t)lease->memory.placed, "moving_s",
                  SECONDS(lease->memory.moved_ns), "slice_max_s", SECONDS(policy->moved_slice_max_ns));
    json_object_update(object, more);
    json_decref(more);
    return object;
}

static const struct dvd_end_record *find_end(const struct dvd_control *control, const struct dvd_request *request)
{
    const struct dvd_control_peer *peer = &request->peer;
    uint64_t id;

    if (dv_text_parse_number(request->name, UINT64_MAX, &id) < 0)
        return NULL;
    const struct dvd_end_record *end = dvd_sessions_find_end(control->sessions, DVD_SESSION_ID(id));
    return end && (peer->is_operator || peer->uid == end->uid) ? end : NULL;
}

static struct dvd_reply explain_end(const struct dvd_end_record *end)
{
    return dvd_view_reply(MHD_HTTP_OK,
                          json_pack("{s:I, s:s, s:s, s:s, s:s, s:I, s:[]}", "id", (json_int_t)end->id.value, "tenant",
                                    end->tenant, "command", end->command, "state", "ended", "why", end->why, "ended",
                                    (json_int_t)end->when, "devices"));
}

struct dvd_reply dvd_serve_explain(struct dvd_control *control, const struct dvd_request *request)
{
    const struct dvd_session *session = dvd_control_find_session(control, &request->peer, request->name);
    const struct dvd_end_record *end = session ? NULL : find_end(control, request);
    char problem[128];

    if (end)
        return explain_end(end);
    if (!session) {
        snprintf(problem, sizeof problem, "there is no session %.64s; `divvy ps` lists them", request->name);
        return dvd_view_error(MHD_HTTP_NOT_FOUND, problem);
    }
    const struct dvd_lessee *lessee = &session->lessee;
    json_t *list = json_array();
    for (uint32_t i = 0; lessee->leases && i < lessee->device_count; i++)
        if (lessee->leases[i])
            json_array_append_new(list, explain_lease(lessee->leases[i], request->peer.is_operator));
    return dvd_view_reply(MHD_HTTP_OK,
                          json_pack("{s:I, s:s, s:s, s:s, s:s, s:o}", "id", (json_int_t)lessee->id.value, "tenant",
                                    lessee->tenant ? lessee->tenant->name : "", "command", session->command, "state",
                                    session->state == DV_SESSION_SERVED ? "served" : "waits for its worker",
                                    "turned_away", session->turned_away ? session->turned_away : "", "devices", list));
}
