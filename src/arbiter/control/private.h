/* Shared by the files of this folder only. */
#ifndef DVD_CONTROL_PRIVATE_H
#define DVD_CONTROL_PRIVATE_H

#include "src/arbiter/control/server.h"

struct json_t;
struct MHD_Connection;
struct MHD_Response;

/* The caller, as the kernel says. */
struct dvd_control_peer {
    uid_t uid;
    bool is_operator;
    bool is_remote; /* it comes through the port for metrics: its user is unknown */
};

struct dvd_request {
    struct MHD_Connection *connection;
    int fd;
    struct dvd_control_peer peer;
    char name[DV_MAX_TENANT_NAME]; /* what the path names, such as NAME in /v1/tenants/NAME/share */
};

/* A document with its status, or a listing that is made while it is sent. Both NULL: memory is short. */
struct dvd_reply {
    unsigned status;
    char *body;
    struct MHD_Response *listing;
    const char *type; /* of the content; NULL: JSON */
};

/* ---- server.c ---- */

/* libmicrohttpd has something to do that no descriptor tells. */
void dvd_control_run_soon(struct dvd_control *control);

/* ---- routes.c ---- */

struct dvd_reply dvd_routes_serve(struct dvd_control *control, const char *method, const char *path,
                                  struct dvd_request *request);

/* ---- handlers of routes ---- */

struct dvd_reply dvd_serve_tenant_share(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_session_share(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_policy(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_explain(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_forget(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_park(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_resume(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_end(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_reload(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_whoami(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_hold(struct dvd_control *control, const struct dvd_request *request);

/* ---- views.c ---- */

/* How documents are written. Six digits are a microsecond in a day. */
#define DVD_VIEW_FLAGS (JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_ENCODE_ANY | JSON_REAL_PRECISION(12))
/* A document as text with a newline; takes over the document, which may be NULL. */
char *dvd_view_render(struct json_t *document);
struct dvd_reply dvd_view_reply(unsigned status, struct json_t *document);
struct dvd_reply dvd_view_error(unsigned status, const char *text);
/* NULL when memory is short. sessions: how many work on the device, if its time is not shared out. */
struct json_t *dvd_view_version(const struct dvd_control *control);
struct json_t *dvd_view_check(const struct dvd_control *control);
struct json_t *dvd_view_session(const struct dvd_session *session);
struct json_t *dvd_view_end(const struct dvd_end_record *end);
struct json_t *dvd_view_device(const struct dvd_control *control, uint32_t index, unsigned sessions);
struct json_t *dvd_view_warnings(const struct dvd_control *control);
/* A session on a device. */
struct json_t *dvd_view_lease(const struct dvd_lease *lease, const struct dvd_lease_figures *figures);
/* A tenant's share of a device; and what the tenant gets. */
struct json_t *dvd_view_share(const struct dvd_tenant_device *tenant);
struct json_t *dvd_view_tenant(const struct dvd_tenant *tenant);
struct json_t *dvd_view_tenant_device(struct dvd_tenant_device *tenant);
/* A date and time as ISO 8601 has them. */
struct json_t *dvd_view_time(time_t when);

/* ---- explain.c ---- */

/* A session, with the reason beside the state of each device that it waits for. */
struct json_t *dvd_view_session_watched(const struct dvd_session *session, bool for_operator);

/* ---- holds.c ---- */

void dvd_holds_fini(struct dvd_control *control);

struct dvd_reply dvd_view_no_session(const char *name);
struct dvd_reply dvd_view_no_tenant(const char *name);
struct dvd_reply dvd_view_no_device(void);
/* A tenant that the peer may see, or NULL. */
struct dvd_tenant *dvd_control_find_tenant(const struct dvd_control *control, const struct dvd_control_peer *peer,
                                           const char *name);
/* A session that the peer may see, by its number as text, or NULL. */
struct dvd_session *dvd_control_find_session(const struct dvd_control *control, const struct dvd_control_peer *peer,
                                             const char *text);

#endif
