/* Listings: the documents with a row for each session, tenant or device. There may be many thousands
 * of rows, and grants must not wait for them: a listing is made in short steps of the event loop while
 * it is sent, and keeps only one row. So each row is correct when it is made. Sessions or tenants that
 * come or go meanwhile may be listed or not. */
#ifndef DVD_CONTROL_LISTINGS_H
#define DVD_CONTROL_LISTINGS_H

#include "src/base/clock.h"

struct dvd_control;
struct dvd_control_peer;
struct dvd_listing;
struct dvd_session;
struct dvd_tenant;
struct MHD_Response;

enum dvd_listing_kind { DVD_LISTING_SESSIONS, DVD_LISTING_TENANTS, DVD_LISTING_DEVICES };

struct dvd_listings {
    struct dvd_listing *under_way;
    dv_ns spent_ns; /* on all of them, in this iteration of the event loop */
};

/* An answer that lists what the peer may see, or NULL when memory is short. */
struct MHD_Response *dvd_listing_respond(struct dvd_control *control, const struct dvd_control_peer *peer,
                                         enum dvd_listing_kind kind);
/* An iteration of the event loop begins: listings may go on. */
void dvd_listings_continue(struct dvd_listings *listings);

/* It is about to be freed: no listing may continue from it. */
void dvd_listings_session_goes(struct dvd_control *control, const struct dvd_session *session);
void dvd_listings_tenant_goes(struct dvd_control *control, const struct dvd_tenant *tenant);

#endif
