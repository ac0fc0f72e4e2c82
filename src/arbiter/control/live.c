/* What operators and tenants ask and change while everything runs: shares, policies, and why a
 * session waits (see control.h). */
#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/session/session.h"
#include "src/arbiter/ledger/ledger.h"
#include "src/base/text.h"

#define MS(ns) ((double)(ns) / DV_NS_PER_MS)
#define SECONDS(ns) ((double)(ns) / DV_NS_PER_S)

static unsigned fail(char **body, unsigned status, const char *text)
{
    char clean[768]; /* names in it may have been cut in the middle of a character */

    dv_text_copy(clean, sizeof clean, text);
    *body = dv_control_render(json_pack("{s:s}", "error", clean));
    return status;
}

static struct dv_session *find_session(struct dv_arbiter *arbiter,
                                       const struct dv_control_peer *peer, const char *text)
{
    uint64_t id;

    if (dv_text_parse_number(text, UINT64_MAX, &id) < 0)
        return NULL;
    struct dv_session *session = dv_session_find(arbiter, id);
    return session && (peer->is_operator || peer->uid == session->lessee.uid) ? session : NULL;
}

static const struct dv_ending *find_ending(const struct dv_arbiter *arbiter,
                                           const struct dv_control_peer *peer, const char *text)
{
    uint64_t id;

    if (dv_text_parse_number(text, UINT64_MAX, &id) < 0)
        return NULL;
    const struct dv_ending *ending = dv_session_find_ending(arbiter, id);
    return ending && (peer->is_operator || peer->uid == ending->uid) ? ending : NULL;
}

/* A tenant of whose sessions at least one is the caller's, unless an operator asks. */
static struct dvd_tenant *find_tenant(struct dv_arbiter *arbiter, const struct dv_control_peer *peer,
                                     const char *name)
{
    struct dvd_tenant *tenant;

    HASH_FIND_STR(arbiter->ledger.tenants, name, tenant);
    if (!tenant || tenant->sessions == 0)
        return NULL;
    return peer->is_operator || dvd_tenant_has_user(tenant, peer->uid) ? tenant : NULL;
}

/* ---- shares ---- */

static json_t *describe_share(const struct dv_arbiter *arbiter, uint32_t index,
                              const struct dvd_tenant_device *place)
{
    const struct dv_share *share = &place->policy.share;

    return json_pack("{s:i, s:s, s:i, s:i, s:i, s:s, s:I, s:I, s:I}", "index", (int)index, "device",
                     arbiter->ledger.devices[index].terms.name, "request_ppm", (int)share->request_ppm,
                     "limit_ppm", (int)share->limit_ppm, "weight", (int)share->weight, "class",
                     dv_class_word(share->class), "memory_quota_bytes",
                     (json_int_t)place->memory.quota, "memory_request_bytes",
                     (json_int_t)place->memory.request, "memory_reserved_bytes",
                     (json_int_t)place->memory.reserved);
}

static const char *read_wish(const struct dv_live_arguments *arguments, struct dvd_share_change *wish,
                             int *device)
{
    uint64_t number = 0;

    *wish = (struct dvd_share_change){.has_request = arguments->request != NULL,
                                   .has_limit = arguments->limit != NULL,
                                   .has_weight = arguments->weight != NULL,
                                   .has_class = arguments->class != NULL,
                                   .has_memory = arguments->memory != NULL,
                                   .has_memory_request = arguments->memory_request != NULL};
    if (arguments->memory_request && dv_text_parse_number(arguments->memory_request, DV_MEMORY_BYTES_MOST,
                                                          &wish->memory_request_bytes) < 0)
        return "memory_request is a number of bytes";
    if (arguments->memory &&
        (dv_text_parse_number(arguments->memory, DV_MEMORY_BYTES_MOST, &wish->memory_bytes) < 0 ||
         wish->memory_bytes == 0))
        return "memory is a number of bytes, at least 1";
    if (arguments->request && dv_text_parse_number(arguments->request, DV_PPM, &number) < 0)
        return "request is a number of parts per million, from 0 to 1000000";
    wish->request_ppm = (uint32_t)number;
    if (arguments->limit && dv_text_parse_number(arguments->limit, DV_PPM, &number) < 0)
        return "limit is a number of parts per million, from 10000 to 1000000";
    wish->limit_ppm = (uint32_t)number;
    if (arguments->weight && dv_text_parse_number(arguments->weight, DV_WEIGHT_MAX, &number) < 0)
        return "weight is a number from 1 to 10000";
    wish->weight = (uint32_t)number;
    if (arguments->class && !dv_class_by_word(arguments->class, &wish->class))
        return "class is " DV_CLASS_WORDS;
    *device = -1;
    if (arguments->device) {
        if (dv_text_parse_number(arguments->device, DV_MAX_DEVICES - 1, &number) < 0)
            return "device is the number of a device as `divvy devices` shows it";
        *device = (int)number;
    }
    if (!wish->has_request && !wish->has_limit && !wish->has_weight && !wish->has_class &&
        !wish->has_memory && !wish->has_memory_request)
        return "nothing to change is given: request, limit, weight, class, memory or memory_request";
    return NULL;
}

unsigned dv_live_set_share(struct dv_arbiter *arbiter, const struct dv_control_peer *peer,
                           const char *name, bool is_session,
                           const struct dv_live_arguments *arguments, char **body)
{
    char text[512];
    struct dvd_share_change wish;
    int device;

    const char *problem = read_wish(arguments, &wish, &device);
    if (problem)
        return fail(body, MHD_HTTP_BAD_REQUEST, problem);
    struct dv_session *session = is_session ? find_session(arbiter, peer, name) : NULL;
    struct dvd_tenant *tenant = is_session ? (session ? session->lessee.tenant : NULL)
                                          : find_tenant(arbiter, peer, name);
    if (!tenant) {
        snprintf(text, sizeof text,
                 is_session ? "there is no session %.64s; `divvy ps` lists them"
                            : "there is no tenant %.96s with a session; `divvy tenants` lists them",
                 name);
        return fail(body, MHD_HTTP_NOT_FOUND, text);
    }
    if (device >= 0 && !tenant->devices[device]) {
        snprintf(text, sizeof text, "tenant %s has no share of device %d", tenant->name, device);
        return fail(body, MHD_HTTP_NOT_FOUND, text);
    }
    int status =
        dvd_tenant_set(tenant, device < 0 ? NULL : &arbiter->ledger.devices[device], &wish, !peer->is_operator, text,
                       sizeof text);
    if (status < 0)
        return fail(body, status == -EPERM ? MHD_HTTP_FORBIDDEN : MHD_HTTP_CONFLICT, text);
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < DV_MAX_DEVICES; i++)
        if (tenant->devices[i] && (device < 0 || i == (uint32_t)device))
            json_array_append_new(list,
                                  describe_share(arbiter, i, tenant->devices[i]));
    dv_info("the share of tenant %s is changed by user %u", tenant->name, (unsigned)peer->uid);
    *body = dv_control_render(json_pack("{s:s, s:o}", "tenant", tenant->name, "devices", list));
    return MHD_HTTP_OK;
}

/* ---- policies ---- */

unsigned dv_live_set_policy(struct dv_arbiter *arbiter, const struct dv_control_peer *peer,
                            const char *device, const struct dv_live_arguments *arguments,
                            char **body)
{
    uint64_t index, slice_ns = 0;
    unsigned sessions = 0;

    if (!peer->is_operator)
        return fail(body, MHD_HTTP_FORBIDDEN, "only operators may change a device's policy");
    if (dv_text_parse_number(device, DV_MAX_DEVICES - 1, &index) < 0 ||
        index >= arbiter->devices.count)
        return fail(body, MHD_HTTP_NOT_FOUND,
                    "there is no such device; `divvy devices` lists them with their numbers");
    const struct dv_policy_ops *ops = arguments->name ? dv_policy_by_name(arguments->name) : NULL;
    if (!ops)
        return fail(body, MHD_HTTP_BAD_REQUEST, "a policy is elastic, fair, fifo or band: name=...");
    if (arguments->slice_ns &&
        (dv_text_parse_number(arguments->slice_ns, DV_SLICE_FIXED_MAX_NS, &slice_ns) < 0 ||
         (slice_ns && slice_ns < DV_SLICE_FIXED_MIN_NS)))
        return fail(body, MHD_HTTP_BAD_REQUEST,
                    "slice_ns is from 100000 (100 us) to 10000000000 (10 s), or 0: learned slices");
    struct dvd_device *target = &arbiter->ledger.devices[index];
    if (!dvd_device_start(target))
        return fail(body, MHD_HTTP_CONFLICT,
                    "the time of this device is not shared out (policy: none in divvy.yaml): change "
                    "that, reload divvyd, and start the programs anew");
    target->set_by_operator = true;
    dvd_device_set_policy(target, ops, slice_ns);
    for (const struct dv_session *s = arbiter->sessions; s; s = s->hh.next)
        for (uint32_t i = 0; i < s->lessee.device_count; i++)
            sessions += s->lessee.device_indices[i] == index;
    dv_info("the policy of device %u is %s now, set by user %u", (unsigned)index, ops->name,
            (unsigned)peer->uid);
    const struct dv_policy *policy = &target->policy;
    *body = dv_control_render(
        json_pack("{s:i, s:s, s:s, s:I, s:i, s:i}", "index", (int)index, "device",
                  target->terms.name, "policy", ops->name, "slice_ns",
                  (json_int_t)policy->fixed_slice_ns, "slots", (int)policy->slots, "sessions",
                  (int)sessions));
    return MHD_HTTP_OK;
}

/* ---- what a tenant has ---- */

/* Adds how a tenant fares on a device: its share now, what it should be, and how far off it may be.
 */
static void add_fares(struct dv_arbiter *arbiter, json_t *object,
                      const struct dvd_tenant_device *tenant, uint32_t index)
{
    const struct dv_policy *policy = &arbiter->ledger.devices[index].policy;
    struct dvd_entitlements *entitled = &arbiter->ledger.devices[index].entitlements;
    dv_ns now = dv_now();
    bool known = dvd_entitlements_renew(entitled, policy, now) == 0;
    dv_ns bound = dv_policy_error_bound(entitled->longest_turn_ns, policy->longest_hold_ns);
    uint32_t entitled_ppm = known ? dvd_entitlements_ppm(entitled, &tenant->policy.share,
                                                    dvd_entitlements_counts(&tenant->policy, now))
                                  : 0;
    json_t *fares = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:f}", "policy", policy->ops->name, "entitled_ppm",
        (int)entitled_ppm, "share_1s_ppm",
        (int)dvd_tenant_used_ppm(tenant, 1), "share_10s_ppm",
        (int)dvd_tenant_used_ppm(tenant, 10), "share_60s_ppm",
        (int)dvd_tenant_used_ppm(tenant, 60), "error_bound_ppm",
        (int)(bound / (DV_NS_PER_S / DV_PPM)), "used_s", SECONDS(tenant->policy.used_ns));
    json_object_update(object, fares);
    json_decref(fares);
}

json_t *dv_control_place(struct dv_arbiter *arbiter, const struct dvd_tenant_device *place,
                         uint32_t index)
{
    json_t *object = describe_share(arbiter, index, place);

    if (object)
        add_fares(arbiter, object, place, index);
    return object;
}

char *dv_control_check(struct dv_arbiter *arbiter)
{
    char text[1024];
    unsigned differences = dvd_ledger_check(&arbiter->ledger, text, sizeof text);

    for (const struct dv_session *session = arbiter->sessions; session; session = session->hh.next) {
        struct dv_session_figures figures;
        if (session->state != DV_SESSION_SERVED || !session->lessee.leases)
            continue;
        dv_session_read_figures(session, &figures);
        differences += dvd_lessee_check(&session->lessee, figures.reserved_bytes, figures.placed_bytes, text,
                                        sizeof text);
    }

    return dv_control_render(
        json_pack("{s:i, s:s}", "differences", (int)differences, "text", text));
}

/* ---- why ---- */

/* Who the holder is, if it is somebody else's, is for operators. */
static void explain_waiting(const struct dv_policy *policy, const struct dvd_lease *lease,
                            bool for_operator, dv_ns now, char *text, size_t bytes)
{
    const struct dv_policy_tenant *tenant = lease->policy.tenant;
    const struct dv_policy_session *holder = policy->holders.first;

    if (dv_policy_held_back(policy, tenant, now))
        snprintf(text, bytes, "its tenant %s has had its limit of %g%%; more in %.1f ms",
                 lease->tenant->tenant->name, tenant->share.limit_ppm / 1e4,
                 MS(dv_policy_held_back(policy, tenant, now)));
    else if (policy->crowded)
        snprintf(text, bytes, "%s", dv_rule_text(DV_RULE_CROWDED));
    else if (policy->free_slots > 0)
        snprintf(text, bytes, "%s", dv_rule_text(DV_RULE_IDLE_WINDOW));
    else if (holder && holder->tenant == tenant)
        snprintf(text, bytes, "session %llu of its own tenant has used the device for %.1f ms",
                 (unsigned long long)dvd_lease_of((struct dv_policy_session *)holder)->lessee->id,
                 MS(now - holder->granted_at));
    else if (holder && !for_operator)
        snprintf(text, bytes,
                 "another tenant has used the device for %.1f ms; tenants that wait: %u",
                 MS(now - holder->granted_at), policy->waiting_tenants);
    else if (holder)
        snprintf(text, bytes, "session %llu (%s) has used the device for %.1f ms; tenants that wait: %u",
                 (unsigned long long)dvd_lease_of((struct dv_policy_session *)holder)->lessee->id,
                 dvd_lease_of((struct dv_policy_session *)holder)->tenant->tenant->name,
                 MS(now - holder->granted_at), policy->waiting_tenants);
    else
        snprintf(text, bytes, "%s", dv_rule_text(DV_RULE_BUSY));
}

/* A turn that is longer than usual for what was moved concerns those who wait. */
static void explain_long_turn(const struct dv_policy *policy, char *text, size_t bytes)
{
    const struct dv_policy_session *holder = policy->holders.first;
    size_t used = strlen(text);

    if (holder && holder->moved_ns && holder->turn_ns > DV_SLICE_MAX_NS)
        snprintf(text + used, bytes - used,
                 "; memory was brought in for %.1f ms, so its turn lasts until %.1f ms",
                 MS(holder->moved_ns), MS(holder->turn_ns));
}

static json_t *explain_lease(struct dv_arbiter *arbiter, struct dvd_lease *lease,
                             uint32_t index, bool for_operator)
{
    const struct dv_policy *policy = &arbiter->ledger.devices[index].policy;
    const struct dv_policy_session *s = &lease->policy;
    dv_ns now = dv_now(), since = s->waiting ? s->waiting_since : lease->changed_at;
    char why[256];

    if (s->waiting) {
        explain_waiting(policy, lease, for_operator, now, why, sizeof why);
        explain_long_turn(policy, why, sizeof why);
    } else if (lease->memory.is_queued)
        snprintf(why, sizeof why, "waits for room on the device that others have");
    else if (s->holding && s->moving)
        snprintf(why, sizeof why, "brings the memory that its next command needs to the device");
    else if (s->holding && s->recalled)
        snprintf(why, sizeof why, "was asked to give the device back: somebody waits");
    else
        snprintf(why, sizeof why, "%s",
                 s->holding ? dv_rule_text(s->rule) : "has no work for this device");
    json_t *object = describe_share(arbiter, index, lease->tenant);
    json_t *more = json_pack(
        "{s:s, s:f, s:s, s:s, s:f, s:f, s:f, s:f, s:I, s:i, s:f, s:I, s:f, s:f}", "state",
        s->holding   ? "holds"
        : s->waiting ? "waits"
                     : "idle",
        "since_s", SECONDS(now - since), "why", why, "rule",
        lease->grants ? dv_rule_text(s->rule) : "it has not been granted the device yet",
        "slice_ms", MS(s->slice_ns), "kernel_ms", MS(s->burst.kernel_ns), "burst_ms",
        MS(s->learned_ns), "compiling_s", SECONDS(lease->compile_ns), "grants",
        (json_int_t)lease->grants, "recalls", (int)lease->recalls, "held_s",
        SECONDS(lease->used_ns), "placed_bytes", (json_int_t)lease->memory.placed, "moving_s",
        SECONDS(lease->memory.moved_ns), "turn_max_s", SECONDS(policy->turn_max_ns));
    json_object_update(object, more);
    json_decref(more);
    add_fares(arbiter, object, lease->tenant, index);
    return object;
}

unsigned dv_live_explain(struct dv_arbiter *arbiter, const struct dv_control_peer *peer,
                         const char *text, char **body)
{
    const struct dv_session *session = find_session(arbiter, peer, text);
    const struct dv_ending *ending = session ? NULL : find_ending(arbiter, peer, text);
    char problem[128];

    if (ending) {
        *body = dv_control_render(json_pack(
            "{s:I, s:s, s:s, s:s, s:s, s:I, s:[]}", "id", (json_int_t)ending->id, "tenant",
            ending->tenant, "command", ending->command, "state", "ended", "why", ending->why,
            "ended", (json_int_t)ending->when, "devices"));
        return MHD_HTTP_OK;
    }
    if (!session) {
        snprintf(problem, sizeof problem, "there is no session %.64s; `divvy ps` lists them", text);
        return fail(body, MHD_HTTP_NOT_FOUND, problem);
    }
    json_t *list = json_array();
    for (uint32_t i = 0; session->lessee.leases && i < session->lessee.device_count; i++)
        if (session->lessee.leases[i])
            json_array_append_new(list, explain_lease(arbiter, session->lessee.leases[i],
                                                      session->lessee.device_indices[i],
                                                      peer->is_operator));
    *body = dv_control_render(json_pack(
        "{s:I, s:s, s:s, s:s, s:s, s:o}", "id", (json_int_t)session->lessee.id, "tenant",
        session->lessee.tenant ? session->lessee.tenant->name : "", "command", session->command, "state",
        session->state == DV_SESSION_SERVED ? "served" : "waits for its worker", "turned_away",
        session->turned_away ? session->turned_away : "", "devices", list));
    return MHD_HTTP_OK;
}
