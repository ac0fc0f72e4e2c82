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
};

/* ---- routes.c ---- */

struct dvd_reply dvd_routes_serve(struct dvd_control *control, const char *method, const char *path,
                                  struct dvd_request *request);

/* ---- handlers of routes ---- */

struct dvd_reply dvd_serve_tenant_share(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_session_share(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_policy(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_explain(struct dvd_control *control, const struct dvd_request *request);
struct dvd_reply dvd_serve_hold(struct dvd_control *control, const struct dvd_request *request);

/* ---- views.c ---- */

/* A document as text with a newline; takes over the document, which may be NULL. */
char *dvd_view_render(struct json_t *document);
struct dvd_reply dvd_view_reply(unsigned status, struct json_t *document);
struct dvd_reply dvd_view_error(unsigned status, const char *text);
/* NULL when memory is short. sessions: how many work on the device. The warnings, which are the same for all devices,
 * stay the caller's. */
struct json_t *dvd_view_version(const struct dvd_control *control);
struct json_t *dvd_view_check(const struct dvd_control *control);
struct json_t *dvd_view_session(const struct dvd_session *session);
struct json_t *dvd_view_device(const struct dvd_control *control, uint32_t index, unsigned sessions,
                               struct json_t *warnings);
struct json_t *dvd_view_warnings(const struct dvd_control *control);
/* A tenant's share of a device; and what the tenant gets. */
struct json_t *dvd_view_share(const struct dvd_tenant_device *tenant);
struct json_t *dvd_view_fares(struct dvd_tenant_device *tenant);

/* ---- holds.c ---- */

void dvd_holds_fini(struct dvd_control *control);

/* A session that the peer may see, by its number as text, or NULL. */
struct dvd_session *dvd_control_find_session(const struct dvd_control *control, const struct dvd_control_peer *peer,
                                             const char *text);

#endif
