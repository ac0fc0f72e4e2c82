/* The JSON of the control socket. Texts in it were cleaned on input; figures of a session come from its worker and are
 * for display only. */
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/arbiter/control/private.h"
#include "src/arbiter/session/kernels.h"
#include "src/arbiter/limits.h"
#include "src/arbiter/workers/icd_directory.h"
#include "src/base/text.h"

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
    char *text = json_dumps(document, DVD_VIEW_FLAGS);
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

/* A tenant with a session of the caller's; for an operator, with any session. */
struct dvd_tenant *dvd_control_find_tenant(const struct dvd_control *control, const struct dvd_control_peer *peer,
                                           const char *name)
{
    struct dvd_tenant *tenant;

    HASH_FIND_STR(control->ledger->tenants, name, tenant);
    if (!tenant || tenant->sessions == 0)
        return NULL;
    return peer->is_operator || dvd_tenant_has_user(tenant, peer->uid) ? tenant : NULL;
}

struct dvd_reply dvd_view_no_session(const char *name)
{
    char text[256];

    snprintf(text, sizeof text, "there is no session %.64s; `divvy ps` lists them, and `divvy ps --ended` earlier ones",
             name);
    return dvd_view_error(MHD_HTTP_NOT_FOUND, text);
}

struct dvd_reply dvd_view_no_tenant(const char *name)
{
    char text[256];

    snprintf(text, sizeof text, "there is no tenant %.96s with a session; `divvy tenants` lists them", name);
    return dvd_view_error(MHD_HTTP_NOT_FOUND, text);
}

struct dvd_reply dvd_view_no_device(void)
{
    return dvd_view_error(MHD_HTTP_NOT_FOUND, "there is no such device; `divvy devices` lists them with their numbers");
}

/* ---- sessions ---- */

static const char *const lease_words[] = {[DVD_LEASE_IDLE] = "idle",
                                          [DVD_LEASE_WAITING] = "waiting",
                                          [DVD_LEASE_HOLDING] = "computing",
                                          [DVD_LEASE_MOVING] = "moving memory",
                                          [DVD_LEASE_QUEUED] = "waiting for memory",
                                          [DVD_LEASE_UNKNOWN] = "recovering"};

/* The state that says most about a session with several devices comes last. */
static int rank(enum dvd_lease_state state)
{
    static const int ranks[] = {[DVD_LEASE_IDLE] = 0,   [DVD_LEASE_UNKNOWN] = 1, [DVD_LEASE_WAITING] = 2,
                                [DVD_LEASE_QUEUED] = 3, [DVD_LEASE_MOVING] = 4,  [DVD_LEASE_HOLDING] = 5};
    return ranks[state];
}

json_t *dvd_view_lease(const struct dvd_lease *lease, const struct dvd_lease_figures *figures)
{
    return json_pack("{s:i, s:s, s:s, s:f, s:i, s:i, s:i, s:f, s:f, s:o}", "index", (int)lease->device->id.number,
                     "name", lease->device->terms.name, "state", lease_words[figures->state], "state_s",
                     SECONDS(figures->since_ns), "share_1s_ppm", (int)figures->had.ppm_1s, "share_10s_ppm",
                     (int)figures->had.ppm_10s, "share_60s_ppm", (int)figures->had.ppm_60s, "used_s",
                     SECONDS(figures->used_ns), "waited_s", SECONDS(figures->waited_ns), "placed_bytes",
                     number(figures->placed_bytes));
}

/* What a session does, in a word, and for how long. */
struct session_state {
    const char *word;
    dv_ns since_ns, used_ns, waited_ns;
};

/* The devices that a session uses. A device whose time is not shared out has no figures. */
static json_t *list_devices(const struct dvd_session *session, uint64_t mask, struct session_state *state)
{
    const struct dvd_lessee *lessee = &session->lessee;
    json_t *list = json_array();
    int best = -1;

    for (uint32_t i = 0; list && i < lessee->device_count; i++) {
        const struct dvd_lease *lease = lessee->leases ? lessee->leases[i] : NULL;
        if (!lease && mask >> i & 1)
            json_array_append_new(list, json_pack("{s:i, s:s}", "index", (int)lessee->devices[i].number, "name",
                                                  dvd_session_device_name(session, i)));
        if (!lease || !lease->in_use)
            continue;
        struct dvd_lease_figures figures = dvd_lease_figures(lease);
        json_array_append_new(list, dvd_view_lease(lease, &figures));
        state->used_ns += figures.used_ns;
        state->waited_ns += figures.waited_ns;
        if (rank(figures.state) <= best)
            continue;
        best = rank(figures.state);
        state->word = lease_words[figures.state];
        state->since_ns = figures.since_ns;
    }
    return list;
}

json_t *dvd_view_time(time_t when)
{
    struct tm utc;
    char text[32] = "";

    if (gmtime_r(&when, &utc))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return json_string(text);
}

/* How many kernels can go to the device in parts. */
static json_t *view_kernels(const uint32_t kernels[DV_CUT_VERDICTS - 1])
{
    json_t *counts = json_object();

    for (int i = 1; counts && i < DV_CUT_VERDICTS; i++)
        json_object_set_new(counts, dvd_cut_verdict_word((enum dv_cut_verdict)i), number(kernels[i - 1]));
    return counts;
}

json_t *dvd_view_session(const struct dvd_session *session)
{
    struct dvd_session_figures figures;
    dv_ns now = dv_now(), age = now - session->started_us * DV_NS_PER_US;
    struct session_state state = {.since_ns = age};

    dvd_session_read_figures(session, &figures);
    state.word = figures.state;
    json_t *devices = list_devices(session, figures.device_mask, &state);
    if (figures.compiling_since && figures.compiling_since < now) {
        state.word = "compiling";
        state.since_ns = now - figures.compiling_since;
    }
    if (!figures.is_ready)
        state.word = figures.state;
    return json_pack("{s:o, s:i, s:o, s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:o, s:o, s:f, s:f, s:f, s:o, s:o, s:o, "
                     "s:o, s:f, s:o}",
                     "id", number(session->lessee.id.value), "tenant_pid", (int)session->tenant_pid, "worker_pid",
                     session->worker_pid ? json_integer(session->worker_pid) : json_null(), "uid",
                     number(session->lessee.uid), "user", session->user, "tenant",
                     session->lessee.tenant ? session->lessee.tenant->name : "", "name", figures.name, "command",
                     session->command, "command_line", figures.command_line, "state", state.word, "state_s",
                     SECONDS(state.since_ns), "devices", devices, "started", dvd_view_time(session->started), "age_s",
                     SECONDS(age), "used_s", SECONDS(state.used_ns), "waited_s", SECONDS(state.waited_ns),
                     "memory_bytes", number(figures.memory_bytes), "commands", number(figures.commands), "placed_bytes",
                     number(figures.placed_bytes), "moved_bytes", number(figures.moved_bytes), "moving_s",
                     SECONDS(figures.moving_ns), "kernels", view_kernels(figures.kernels));
}

json_t *dvd_view_end(const struct dvd_end_record *end)
{
    return json_pack("{s:o, s:i, s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:f, s:f, s:f, s:o, s:o, s:[], s:o}",
                     "id", number(end->id.value), "tenant_pid", (int)end->pid, "uid", number(end->uid), "user",
                     end->user, "tenant", end->tenant, "command", end->command, "command_line", end->command_line,
                     "state", dvd_end_kind_word(end->kind), "why", end->why, "started", dvd_view_time(end->started),
                     "ended", dvd_view_time(end->ended), "age_s", SECONDS(end->lasted_ns), "used_s",
                     SECONDS(end->used_ns), "waited_s", SECONDS(end->waited_ns), "commands", number(end->commands),
                     "memory_bytes", number(end->memory_peak_bytes), "devices", "kernels", view_kernels(end->kernels));
}

/* ---- devices ---- */

/* Warnings are for operators, who can do something about them. */
json_t *dvd_view_warnings(const struct dvd_control *control)
{
    json_t *list = json_array();
    char exposed[1024];

    dvd_vendors_list_exposed(control->icd_directory, exposed, sizeof exposed);
    if (list && exposed[0] && !control->config->of_user)
        json_array_append_new(list, json_sprintf("programs can use %s without divvy, unseen and unlimited; divvyd(8), "
                                                 "\"CLOSING THE WAY ROUND DIVVY\", says how to prevent that",
                                                 exposed));
    for (uint32_t i = 0; list && i < control->devices->count; i++) {
        const struct dvd_device *device = &control->ledger->devices[i];
        dv_ns unanswered = device->started ? dvd_device_unanswered(device) : 0;
        if (unanswered)
            json_array_append_new(list, json_sprintf("device %u: a program was asked to give it back %.0f s ago and "
                                                     "has not, while others wait; divvyd's log names it, and "
                                                     "`deadlines` in divvy.yaml limits this time",
                                                     (unsigned)i, SECONDS(unanswered)));
    }
    return list;
}

/* A part of the time, or null where divvyd does not know it. */
static json_t *part(bool known, uint32_t ppm)
{
    return known ? json_integer(ppm) : json_null();
}

static json_t *view_load(const struct dvd_device_figures *figures, unsigned sessions)
{
    return json_pack("{s:i, s:i, s:o, s:o, s:o, s:f, s:o, s:o, s:o, s:o}", "sessions", (int)sessions, "waiting",
                     (int)figures->waiting, "busy_1s_ppm", part(figures->is_leased, figures->busy.ppm_1s),
                     "busy_10s_ppm", part(figures->is_leased, figures->busy.ppm_10s), "busy_60s_ppm",
                     part(figures->is_leased, figures->busy.ppm_60s), "held_s", SECONDS(figures->held_ns), "grants",
                     number(figures->grants), "promised_ppm", number(figures->promised_ppm), "memory_bytes",
                     number(figures->capacity_bytes), "memory_used_bytes", number(figures->used_bytes));
}

json_t *dvd_view_device(const struct dvd_control *control, uint32_t index, unsigned sessions)
{
    const struct dv_device_report *report = &control->devices->reports[index];
    const struct dvd_device_rule *rule = dvd_devices_rule(control->devices, index, control->config);
    const struct dvd_device *leases = &control->ledger->devices[index];
    struct dvd_device_figures figures = dvd_device_figures(leases);
    int choice = dvd_devices_policy(control->devices, index, control->config);
    bool unified = report->host_unified;

    if (rule && rule->unified != DV_UNIFIED_AUTO)
        unified = rule->unified == DV_UNIFIED_YES;
    json_t *device = json_pack(
        "{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:b, s:b, s:s, s:b, s:s, s:i, s:o, s:o, s:f, s:f}", "index",
        (int)index, "name", rule && rule->name ? rule->name : report->name, "vendor", report->vendor, "version",
        report->version, "driver", report->driver, "platform", report->platform_name, "uuid",
        report->uuid[0] ? report->uuid : "unknown", "pci", report->pci[0] ? report->pci : "unknown", "type",
        dvd_devices_type_word(report), "compute_units", (int)report->compute_units, "unified", (int)unified, "swap",
        (int)leases->terms.swaps, "present_as",
        dvd_present_as_word(rule ? (uint32_t)rule->present_as : DV_PRESENT_AS_IS), "hidden",
        (int)leases->terms.is_hidden, "policy",
        leases->started ? leases->policy.ops->name : dvd_config_policy_word(choice), "slots",
        leases->started ? (int)leases->policy.slots : (int)(rule && rule->slots ? *rule->slots : 1), "slice_ns",
        number(leases->policy.fixed_slice_ns), "decisions", number(leases->decisions.count), "decision_p50_us",
        (double)dvd_histogram_percentile(&leases->decisions, 50) / DV_NS_PER_US, "decision_p99_us",
        (double)dvd_histogram_percentile(&leases->decisions, 99) / DV_NS_PER_US);
    json_t *load = view_load(&figures, figures.is_leased ? figures.sessions : sessions);

    if (device)
        json_object_update(device, load);
    json_decref(load);
    return device;
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

json_t *dvd_view_tenant_device(struct dvd_tenant_device *tenant)
{
    struct dvd_tenant_figures figures = dvd_tenant_figures(tenant);
    json_t *share = dvd_view_share(tenant);
    json_t *more = json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:f, s:f, s:o}", "policy", tenant->device->policy.ops->name,
        "sessions", (int)figures.sessions, "waiting", (int)figures.waiting, "holding", (int)figures.holding,
        "entitled_ppm", (int)figures.entitled_ppm, "share_1s_ppm", (int)figures.had.ppm_1s, "share_10s_ppm",
        (int)figures.had.ppm_10s, "share_60s_ppm", (int)figures.had.ppm_60s, "error_bound_ppm", (int)figures.bound_ppm,
        "at_limit", (int)figures.is_at_limit, "used_s", SECONDS(figures.used_ns), "waited_s",
        SECONDS(figures.waited_ns), "memory_placed_bytes", number(figures.placed_bytes));

    if (share)
        json_object_update(share, more);
    json_decref(more);
    return share;
}

json_t *dvd_view_tenant(const struct dvd_tenant *tenant)
{
    json_t *list = json_array();

    for (uint32_t i = 0; list && i < DV_MAX_DEVICES; i++)
        if (tenant->devices[i])
            json_array_append_new(list, dvd_view_tenant_device(tenant->devices[i]));
    return json_pack("{s:s, s:i, s:o}", "name", tenant->name, "sessions", (int)tenant->sessions, "devices", list);
}
