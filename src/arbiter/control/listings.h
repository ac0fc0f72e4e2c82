/* Listings: the documents with a row for each session, tenant or device. There may be many thousands
 * of rows, and grants must not wait for them: a listing is made in short steps of the event loop while
 * it is sent, and keeps only one row. So each row is correct when it is made. Sessions or tenants that
 * come or go meanwhile may be listed or not. */
#ifndef DVD_CONTROL_LISTINGS_H
#define DVD_CONTROL_LISTINGS_H

#include <jansson.h>
#include <stdbool.h>

#include "src/base/clock.h"

struct dvd_control;
struct dvd_control_peer;
struct dvd_listing;
struct dvd_session;
struct dvd_tenant;
struct MHD_Connection;
struct MHD_Response;

enum dvd_listing_kind {
    DVD_LISTING_SESSIONS,
    DVD_LISTING_TENANTS,
    DVD_LISTING_DEVICES,
    DVD_LISTING_DEVICE,
    DVD_LISTING_ENDS,
    DVD_LISTING_METRICS,
    DVD_LISTING_WATCH,
    DVD_LISTING_TRACE
};

struct dvd_listings {
    struct dvd_listing *under_way;
    dv_ns spent_ns; /* on all of them, in this iteration of the event loop */
};

/* An answer that lists what the peer may see, or NULL when memory is short. */
struct MHD_Response *dvd_listing_respond(struct dvd_control *control, const struct dvd_control_peer *peer,
                                         enum dvd_listing_kind kind);
/* The same for one device: its sessions are counted as in the list. */
struct MHD_Response *dvd_device_respond(struct dvd_control *control, const struct dvd_control_peer *peer,
                                        uint32_t device);
/* A tenant that the configuration names and that has no session, or NULL. */
json_t *dvd_listing_absent_tenant(const struct dvd_control *control, const char *name);
/* An answer that lists devices, tenants and sessions, a line of JSON each time, until the peer closes the connection.
 * NULL when memory is short or there are too many. */
struct MHD_Response *dvd_watch_respond(struct dvd_control *control, const struct dvd_control_peer *peer,
                                       struct MHD_Connection *connection, dv_ns interval);
/* An answer with a line for each event of a lease, and if wanted for each command of a session, until the peer closes
 * the connection. The same. */
struct MHD_Response *dvd_trace_respond(struct dvd_control *control, const struct dvd_control_peer *peer,
                                       struct MHD_Connection *connection, bool has_commands);
/* Whether a trace with commands is under way. There is one at a time, as workers keep each record once. */
bool dvd_trace_shows_commands(const struct dvd_control *control);
/* No answer waits for its next time any more: the connections are about to be closed. */
void dvd_listings_wake(struct dvd_listings *listings);
/* Ends answers without end whose peers have lost the right to them: may_go_on tells. */
typedef bool dvd_listing_review(const struct dvd_control *control, struct MHD_Connection *connection,
                                const struct dvd_control_peer *peer);
void dvd_listings_review(struct dvd_listings *listings, dvd_listing_review *may_go_on);
/* An iteration of the event loop begins: listings may go on. */
void dvd_listings_continue(struct dvd_listings *listings);

/* It is about to be freed: no listing may continue from it. */
void dvd_listings_session_goes(struct dvd_control *control, const struct dvd_session *session);
void dvd_listings_tenant_goes(struct dvd_control *control, const struct dvd_tenant *tenant);

#endif
