/* The JSON of the control socket. Texts in it were cleaned on input; figures of a session come from its worker and are
 * for display only. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/arbiter/control/private.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/workers/icd_directory.h"
#include "src/base/text.h"

#define COMPACT_WITH_ORDER (JSON_COMPACT | JSON_PRESERVE_ORDER)
#define SECONDS(ns) ((double)(ns) / DV_NS_PER_S)

/* Numbers of JSON are signed. */
static json_t *number(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

char *dvd_view_render(json_t *document)
{
    if (!document)
        return NULL;
    char *text = json_dumps(document, COMPACT_WITH_ORDER);
    json_decref(document);
    size_t length = text ? strlen(text) : 0;
    char *line = text ? realloc(text, length + 2) : NULL;
    if (!line) {
        free(text);
        return NULL;
    }
    memcpy(line + length, "\n", 2);
    return line;
}

struct dvd_reply dvd_view_reply(unsigned status, json_t *document)
{
    return (struct dvd_reply){.status = status, .body = dvd_view_render(document)};
}

struct dvd_reply dvd_view_error(unsigned status, const char *text)
{
    char clean[768]; /* names in it may have been cut in the middle of a character */

    dv_text_copy(clean, sizeof clean, text);
    return dvd_view_reply(status, json_pack("{s:s}", "error", clean));
}

json_t *dvd_view_version(const struct dvd_control *control)
{
    return json_pack("{s:s, s:i, s:i, s:s, s:s}", "version", DIVVY_VERSION, "protocol", DV_WIRE_VERSION,
                     "protocol_oldest", DV_WIRE_VERSION_OLDEST, "mode", control->config->of_user ? "user" : "system",
                     "directory", control->directory);
}

/* Checks the ledger against the workers' figures. */
json_t *dvd_view_check(const struct dvd_control *control)
{
    char text[1024];
    unsigned differences = dvd_ledger_check(control->ledger, text, sizeof text);

    for (const struct dvd_session *session = control->sessions->all; session; session = session->hh.next) {
        struct dvd_session_figures figures;
        if (session->state != DV_SESSION_SERVED || !session->lessee.leases)
            continue;
        dvd_session_read_figures(session, &figures);
        differences +=
            dvd_lessee_check(&session->lessee, figures.reserved_bytes, figures.placed_bytes, text, sizeof text);
    }
    return json_pack("{s:i, s:s}", "differences", (int)differences, "text", text);
}

struct dvd_session *dvd_control_find_session(const struct dvd_control *control, const struct dvd_control_peer *peer,
                                             const char *text)
{
    uint64_t id;

    if (dv_text_parse_number(text, UINT64_MAX, &id) < 0)
        return NULL;
    struct dvd_session *session = dvd_session_find(control->sessions, DVD_SESSION_ID(id));
    return session && (peer->is_operator || peer->uid == session->lessee.uid) ? session : NULL;
}

/* ---- sessions ---- */

/* The devices on which a session has work, or null. */
static json_t *device_names(const struct dvd_session *session, uint64_t mask)
{
    char names[DV_MAX_DEVICES * (DV_MAX_DEVICE_NAME + 2)];
    size_t used = 0;

    for (uint32_t i = 0; i < session->lessee.device_count; i++)
        if (mask >> i & 1)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                     dvd_session_device_name(session, i));
    return used ? json_string(names) : json_null();
}

json_t *dvd_view_session(const struct dvd_session *session)
{
    struct dvd_session_figures figures;
    struct tm utc;
    char started[32] = "";

    dvd_session_read_figures(session, &figures);
    if (gmtime_r(&session->started, &utc))
        strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", &utc);
    uint32_t share_ppm = 0;
    dv_ns waiting_ns = 0;
    for (uint32_t i = 0; session->lessee.leases && i < session->lessee.device_count; i++) {
        const struct dvd_lease *lease = session->lessee.leases[i];
        if (!lease)
            continue;
        share_ppm += dvd_tenant_used_ppm(lease->tenant, 1);
        if (lease->policy.waiting)
            waiting_ns = dv_now() - lease->policy.waiting_since;
    }
    uint64_t age_ms = (dv_now() / DV_NS_PER_US - session->started_us) / DV_MS;
    return json_pack("{s:o, s:i, s:o, s:o, s:s, s:s, s:s, s:o, s:s, s:f, s:o, s:o, s:s, s:f, s:i, s:o, s:o, s:f}", "id",
                     number(session->lessee.id.value), "tenant_pid", (int)session->tenant_pid, "worker_pid",
                     session->worker_pid ? json_integer(session->worker_pid) : json_null(), "uid",
                     number(session->lessee.uid), "user", session->user, "command", session->command, "state",
                     figures.state, "device", device_names(session, figures.device_mask), "started", started, "age_s",
                     (double)age_ms / 1000.0, "memory_bytes", number(figures.memory_bytes), "commands",
                     number(figures.commands), "tenant", session->lessee.tenant ? session->lessee.tenant->name : "",
                     "waiting_s", (double)waiting_ns / DV_NS_PER_S, "share_1s_ppm", (int)share_ppm, "placed_bytes",
                     number(figures.placed_bytes), "moved_bytes", number(figures.moved_bytes), "moving_s",
                     (double)figures.moving_ns / DV_NS_PER_S);
}

/* ---- devices ---- */

json_t *dvd_view_warnings(const struct dvd_control *control)
{
    json_t *list = json_array();
    char exposed[1024];

    dvd_vendors_list_exposed(control->icd_directory, exposed, sizeof exposed);
    if (list && exposed[0])
        json_array_append_new(list,
                              json_sprintf("programs can reach this device without divvy: its driver is announced to "
                                           "every program in %s, so a program started without `divvy run` uses the "
                                           "device directly and is neither seen nor limited. To prevent that, move the "
                                           "file out of " DV_VENDORS_PUBLIC " and name its new path under `vendors:` "
                                           "in divvyd's configuration; divvy's own divvy.icd may stay there.",
                                           exposed));
    return list;
}

/* Warnings common to all devices, and those about this one. */
static json_t *warnings_of(const struct dvd_device *device, json_t *common)
{
    dv_ns unanswered = device->started ? dvd_device_unanswered(device) : 0;

    if (!unanswered)
        return json_incref(common);
    json_t *list = json_copy(common);
    if (list)
        json_array_append_new(list, json_sprintf("a program was asked to give this device back %.0f s ago and has not, "
                                                 "while others wait; divvyd's log names it. `deadlines` in divvyd's "
                                                 "configuration limits this time.",
                                                 (double)unanswered / DV_NS_PER_S));
    return list;
}

json_t *dvd_view_device(const struct dvd_control *control, uint32_t index, unsigned sessions, json_t *warnings)
{
    const struct dv_device_report *report = &control->devices->reports[index];
    const struct dvd_device_rule *rule = dvd_devices_rule(control->devices, index, control->config);
    const struct dvd_device *leases = &control->ledger->devices[index];
    int choice = dvd_devices_policy(control->devices, index, control->config);
    bool unified = report->host_unified;

    if (rule && rule->unified != DV_UNIFIED_AUTO)
        unified = rule->unified == DV_UNIFIED_YES;
    return json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:i, s:b, s:s, s:b, s:i, s:o, "
                     "s:s, s:i, s:o, s:o, s:f, s:f}",
                     "index", (int)index, "name", rule && rule->name ? rule->name : report->name, "vendor",
                     report->vendor, "version", report->version, "driver", report->driver, "platform",
                     report->platform_name, "uuid", report->uuid[0] ? report->uuid : "unknown", "pci",
                     report->pci[0] ? report->pci : "unknown", "type", dvd_devices_type_word(report->type),
                     "memory_bytes", number(report->memory_bytes), "compute_units", (int)report->compute_units,
                     "unified", (int)unified, "present_as",
                     dvd_present_as_word(rule ? (uint32_t)rule->present_as : DV_PRESENT_AS_IS), "hidden",
                     rule && rule->hidden, "sessions", (int)sessions, "warnings", warnings_of(leases, warnings),
                     "policy", leases->started ? leases->policy.ops->name : dvd_config_policy_word(choice), "slots",
                     leases->started ? (int)leases->policy.slots : (int)(rule && rule->slots ? *rule->slots : 1),
                     "slice_ns", number(leases->policy.fixed_slice_ns), "decisions", number(leases->decisions.count),
                     "decision_p50_us", (double)dvd_histogram_percentile(&leases->decisions, 50) / DV_NS_PER_US,
                     "decision_p99_us", (double)dvd_histogram_percentile(&leases->decisions, 99) / DV_NS_PER_US);
}

/* ---- tenants ---- */

json_t *dvd_view_share(const struct dvd_tenant_device *tenant)
{
    const struct dv_share *share = &tenant->policy.share;

    return json_pack("{s:i, s:s, s:i, s:i, s:i, s:s, s:I, s:I, s:I}", "index", (int)tenant->device->id.number, "device",
                     tenant->device->terms.name, "request_ppm", (int)share->request_ppm, "limit_ppm",
                     (int)share->limit_ppm, "weight", (int)share->weight, "class", dv_class_word(share->class),
                     "memory_quota_bytes", (json_int_t)tenant->memory.quota, "memory_request_bytes",
                     (json_int_t)tenant->memory.request, "memory_reserved_bytes", (json_int_t)tenant->memory.reserved);
}

/* A tenant on a device: its present share, its entitlement, and the maximum difference. */
json_t *dvd_view_fares(struct dvd_tenant_device *tenant)
{
    const struct dv_policy *policy = &tenant->device->policy;
    struct dvd_entitlements *entitlements = &tenant->device->entitlements;
    dv_ns now = dv_now();
    bool known = dvd_entitlements_renew(entitlements, policy, now) == 0;
    dv_ns bound = dv_policy_error_bound(entitlements->longest_slice_ns, policy->longest_hold_ns);
    uint32_t entitled_ppm =
        known ? dvd_entitlements_ppm(entitlements, &tenant->policy.share, dvd_entitlements_counts(&tenant->policy, now))
              : 0;
    json_t *share = dvd_view_share(tenant);
    json_t *fares =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:f}", "policy", policy->ops->name, "entitled_ppm", (int)entitled_ppm,
                  "share_1s_ppm", (int)dvd_tenant_used_ppm(tenant, 1), "share_10s_ppm",
                  (int)dvd_tenant_used_ppm(tenant, 10), "share_60s_ppm", (int)dvd_tenant_used_ppm(tenant, 60),
                  "error_bound_ppm", (int)(bound / (DV_NS_PER_S / DV_PPM)), "used_s", SECONDS(tenant->policy.used_ns));

    if (share)
        json_object_update(share, fares);
    json_decref(fares);
    return share;
}
