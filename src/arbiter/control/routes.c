/* The paths of the control socket. */
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>

#include "src/arbiter/control/private.h"
#include "src/base/text.h"

static struct dvd_reply serve_version(struct dvd_control *control, const struct dvd_request *request)
{
    (void)request;
    return dvd_view_reply(MHD_HTTP_OK, dvd_view_version(control));
}

static struct dvd_reply serve_check(struct dvd_control *control, const struct dvd_request *request)
{
    (void)request;
    return dvd_view_reply(MHD_HTTP_OK, dvd_view_check(control));
}

static struct dvd_reply serve_devices(struct dvd_control *control, const struct dvd_request *request)
{
    return (struct dvd_reply){.listing = dvd_listing_respond(control, &request->peer, DVD_LISTING_DEVICES)};
}

static struct dvd_reply serve_sessions(struct dvd_control *control, const struct dvd_request *request)
{
    return (struct dvd_reply){.listing = dvd_listing_respond(control, &request->peer, DVD_LISTING_SESSIONS)};
}

static struct dvd_reply serve_tenants(struct dvd_control *control, const struct dvd_request *request)
{
    return (struct dvd_reply){.listing = dvd_listing_respond(control, &request->peer, DVD_LISTING_TENANTS)};
}

static struct dvd_reply serve_ends(struct dvd_control *control, const struct dvd_request *request)
{
    return (struct dvd_reply){.listing = dvd_listing_respond(control, &request->peer, DVD_LISTING_ENDS)};
}

static struct dvd_reply serve_metrics(struct dvd_control *control, const struct dvd_request *request)
{
    return (struct dvd_reply){.listing = dvd_listing_respond(control, &request->peer, DVD_LISTING_METRICS),
                              .type = "text/plain; version=0.0.4"};
}

static struct dvd_reply serve_watch(struct dvd_control *control, const struct dvd_request *request)
{
    const char *text = MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, "interval_ms");
    uint64_t interval_ms = 1000;

    if (text && (dv_text_parse_number(text, DV_WATCH_INTERVAL_MAX_MS, &interval_ms) < 0 ||
                 interval_ms < DV_WATCH_INTERVAL_MIN_MS))
        return dvd_view_error(MHD_HTTP_BAD_REQUEST, "interval_ms is a number from 100 to 60000");
    struct MHD_Response *lines =
        dvd_watch_respond(control, &request->peer, request->connection, interval_ms * DV_NS_PER_MS);
    if (!lines)
        return dvd_view_error(MHD_HTTP_SERVICE_UNAVAILABLE, "too many callers watch already");
    return (struct dvd_reply){.listing = lines, .type = "application/x-ndjson"};
}

static struct dvd_reply serve_trace(struct dvd_control *control, const struct dvd_request *request)
{
    const char *text = MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, "commands");
    bool has_commands = text && strcmp(text, "yes") == 0;

    if (text && !has_commands && strcmp(text, "no") != 0)
        return dvd_view_error(MHD_HTTP_BAD_REQUEST, "commands is yes or no");
    if (has_commands && dvd_trace_shows_commands(control))
        return dvd_view_error(MHD_HTTP_CONFLICT, "another trace is under way; try again when it has ended");
    struct MHD_Response *lines = dvd_trace_respond(control, &request->peer, request->connection, has_commands);
    if (!lines)
        return dvd_view_error(MHD_HTTP_SERVICE_UNAVAILABLE, "too many callers watch already");
    return (struct dvd_reply){.listing = lines, .type = "application/x-ndjson"};
}

static struct dvd_reply serve_health(struct dvd_control *control, const struct dvd_request *request)
{
    (void)control;
    (void)request;
    return dvd_view_reply(MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}

static struct dvd_reply serve_session(struct dvd_control *control, const struct dvd_request *request)
{
    const struct dvd_session *session = dvd_control_find_session(control, &request->peer, request->name);

    return session ? dvd_view_reply(MHD_HTTP_OK, dvd_view_session(session)) : dvd_view_no_session(request->name);
}

static struct dvd_reply serve_tenant(struct dvd_control *control, const struct dvd_request *request)
{
    const struct dvd_tenant *tenant = dvd_control_find_tenant(control, &request->peer, request->name);

    json_t *absent = !tenant && request->peer.is_operator ? dvd_listing_absent_tenant(control, request->name) : NULL;
    if (absent)
        return dvd_view_reply(MHD_HTTP_OK, absent);
    return tenant ? dvd_view_reply(MHD_HTTP_OK, dvd_view_tenant(tenant)) : dvd_view_no_tenant(request->name);
}

static struct dvd_reply serve_device(struct dvd_control *control, const struct dvd_request *request)
{
    uint64_t index;

    if (dv_text_parse_number(request->name, DV_MAX_DEVICES - 1, &index) < 0 || index >= control->devices->count)
        return dvd_view_no_device();
    return (struct dvd_reply){.listing = dvd_device_respond(control, &request->peer, (uint32_t)index)};
}

#define SHARE_ARGUMENTS "device", "request", "limit", "weight", "class", "memory", "memory_request", "save"

static const struct route {
    const char *method;
    const char *begin, *end; /* of the path, with a name between them; end NULL: that is all of it */
    struct dvd_reply (*serve)(struct dvd_control *control, const struct dvd_request *request);
    const char *only_operators; /* why others may not; NULL: they may */
    const char *arguments[9];   /* in the query; NULL ends them */
} routes[] = {
    {"GET", "/v1/version", NULL, serve_version, NULL, {NULL}},
    {"GET", "/v1/healthz", NULL, serve_health, NULL, {NULL}},
    {"GET", "/v1/whoami", NULL, dvd_serve_whoami, NULL, {NULL}},
    {"GET", "/v1/devices", NULL, serve_devices, NULL, {NULL}},
    {"GET", "/v1/sessions", NULL, serve_sessions, NULL, {NULL}},
    {"GET", "/v1/tenants", NULL, serve_tenants, NULL, {NULL}},
    {"GET", "/v1/ended", NULL, serve_ends, NULL, {NULL}},
    {"GET", "/v1/watch", NULL, serve_watch, NULL, {"interval_ms"}},
    {"GET", "/v1/trace", NULL, serve_trace, "only operators may trace, which is about all tenants", {"commands"}},
    {"GET", "/metrics", NULL, serve_metrics, "only operators may read metrics, which are about all tenants", {NULL}},
    {"GET", "/v1/check", NULL, serve_check, "only operators may check the ledger", {NULL}},
    {"POST", "/v1/hold", NULL, dvd_serve_hold, "only the daemon's owner may keep it from ending", {NULL}},
    {"POST", "/v1/reload", NULL, dvd_serve_reload, "only operators may reload the configuration", {NULL}},
    {"GET", "/v1/sessions/", "/explain", dvd_serve_explain, NULL, {NULL}},
    {"POST", "/v1/sessions/", "/share", dvd_serve_session_share, NULL, {SHARE_ARGUMENTS}},
    {"POST", "/v1/tenants/", "/share", dvd_serve_tenant_share, NULL, {SHARE_ARGUMENTS}},
    {"POST", "/v1/tenants/", "/forget", dvd_serve_forget, "only operators may change saved shares", {NULL}},
    {"POST",
     "/v1/devices/",
     "/policy",
     dvd_serve_policy,
     "only operators may change a device's policy",
     {"name", "slice_ns"}},
    {"POST", "/v1/sessions/", "/park", dvd_serve_park, NULL, {NULL}},
    {"POST", "/v1/sessions/", "/resume", dvd_serve_resume, NULL, {NULL}},
    {"GET", "/v1/sessions/", "", serve_session, NULL, {NULL}},
    {"DELETE", "/v1/sessions/", "", dvd_serve_end, NULL, {NULL}},
    {"GET", "/v1/tenants/", "", serve_tenant, NULL, {NULL}},
    {"GET", "/v1/devices/", "", serve_device, NULL, {NULL}},
};

/* ---- arguments ---- */

struct argument_check {
    const struct route *route;
    char wrong[64]; /* the first that the route does not know; empty: none */
};

static enum MHD_Result check_argument(void *userdata, enum MHD_ValueKind kind, const char *key, const char *value)
{
    struct argument_check *check = userdata;

    (void)kind;
    (void)value;
    for (int i = 0; check->route->arguments[i]; i++)
        if (strcmp(key, check->route->arguments[i]) == 0)
            return MHD_YES;
    snprintf(check->wrong, sizeof check->wrong, "%s", key);
    return MHD_NO;
}

/* A misspelt argument must not pass for one that was not given. */
static struct dvd_reply serve_checked(const struct route *route, struct dvd_control *control,
                                      const struct dvd_request *request)
{
    struct argument_check check = {.route = route};
    char text[256];
    size_t used;

    MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, check_argument, &check);
    if (!check.wrong[0])
        return route->serve(control, request);
    used = (size_t)snprintf(text, sizeof text, "unknown argument '%s'; %s", check.wrong,
                            route->arguments[0] ? "there are " : "this path takes none");
    for (int i = 0; route->arguments[i] && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "", route->arguments[i]);
    return dvd_view_error(MHD_HTTP_BAD_REQUEST, text);
}

/* ---- paths ---- */

/* Whether a path is one of this route. Copies the name in it. */
static bool matches(const struct route *route, const char *path, char *name, size_t bytes)
{
    size_t length = strlen(path), begins = strlen(route->begin), ends = route->end ? strlen(route->end) : 0;

    if (!route->end)
        return strcmp(path, route->begin) == 0;
    if (length <= begins + ends || length - begins - ends >= bytes || strncmp(path, route->begin, begins) != 0 ||
        strcmp(path + length - ends, route->end) != 0)
        return false;
    snprintf(name, bytes, "%.*s", (int)(length - begins - ends), path + begins);
    return true;
}

struct dvd_reply dvd_routes_serve(struct dvd_control *control, const char *method, const char *path,
                                  struct dvd_request *request)
{
    char use[32] = ""; /* methods of the path */
    size_t used = 0;

    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        const struct route *route = &routes[i];
        if (!matches(route, path, request->name, sizeof request->name))
            continue;
        if (strcmp(method, route->method) != 0) {
            used += (size_t)snprintf(use + used, sizeof use - used, "%s%s", used ? " or " : "use ", route->method);
            continue;
        }
        if (route->only_operators && !request->peer.is_operator && !request->peer.is_remote)
            return dvd_view_error(MHD_HTTP_FORBIDDEN, route->only_operators);
        return serve_checked(route, control, request);
    }
    if (used)
        return dvd_view_error(MHD_HTTP_METHOD_NOT_ALLOWED, use);
    return dvd_view_error(MHD_HTTP_NOT_FOUND, "unknown path; divvyd(8) lists the paths");
}
