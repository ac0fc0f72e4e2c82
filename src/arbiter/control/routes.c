/* The paths of the control socket. */
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>

#include "src/arbiter/control/private.h"

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

static const struct route {
    const char *method;
    const char *begin, *end; /* of the path, with a name between them; end NULL: that is all of it */
    struct dvd_reply (*serve)(struct dvd_control *control, const struct dvd_request *request);
    const char *only_operators; /* the refusal for all other callers; NULL: all may call */
} routes[] = {
    {"GET", "/v1/version", NULL, serve_version, NULL},
    {"GET", "/v1/devices", NULL, serve_devices, NULL},
    {"GET", "/v1/sessions", NULL, serve_sessions, NULL},
    {"GET", "/v1/tenants", NULL, serve_tenants, NULL},
    {"GET", "/v1/check", NULL, serve_check, "only operators may check the ledger"},
    {"POST", "/v1/hold", NULL, dvd_serve_hold, "only the daemon's owner may keep it from ending"},
    {"GET", "/v1/sessions/", "/explain", dvd_serve_explain, NULL},
    {"POST", "/v1/sessions/", "/share", dvd_serve_session_share, NULL},
    {"POST", "/v1/tenants/", "/share", dvd_serve_tenant_share, NULL},
    {"POST", "/v1/devices/", "/policy", dvd_serve_policy, "only operators may change a device's policy"},
};

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
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        const struct route *route = &routes[i];
        if (!matches(route, path, request->name, sizeof request->name))
            continue;
        if (strcmp(method, route->method) != 0)
            return dvd_view_error(MHD_HTTP_METHOD_NOT_ALLOWED,
                                  strcmp(route->method, "GET") == 0 ? "use GET" : "use POST");
        if (route->only_operators && !request->peer.is_operator)
            return dvd_view_error(MHD_HTTP_FORBIDDEN, route->only_operators);
        return route->serve(control, request);
    }
    return dvd_view_error(
        MHD_HTTP_NOT_FOUND,
        "unknown path; there are /v1/version, /v1/devices, /v1/sessions, /v1/tenants, /v1/check, /v1/hold, "
        "/v1/sessions/ID/explain, /v1/sessions/ID/share, /v1/tenants/NAME/share and "
        "/v1/devices/INDEX/policy");
}
