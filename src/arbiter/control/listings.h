/* Listings: the documents with a row for each session, tenant or device. There may be many thousands
 * of rows, and grants must not wait for them: a listing is made in short turns of the event loop while
 * it is sent, and keeps no more of it than one row. So each row is right for its own moment, and what
 * comes or goes meanwhile may be in it or not. */
#ifndef DVD_CONTROL_LISTINGS_H
#define DVD_CONTROL_LISTINGS_H

#include "src/base/clock.h"

struct dv_arbiter;
struct dv_control_peer;
struct dv_listing;
struct dv_session;
struct dvd_tenant;
struct MHD_Response;

enum dv_listing_kind { DV_LISTING_SESSIONS, DV_LISTING_TENANTS, DV_LISTING_DEVICES };

struct dv_listings {
    struct dv_listing *under_way;
    dv_ns spent_ns; /* on all of them, in this turn of the event loop */
};

/* An answer that lists what the peer may see, or NULL when memory is short. */
struct MHD_Response *dv_listing_respond(struct dv_arbiter *arbiter,
                                        const struct dv_control_peer *peer,
                                        enum dv_listing_kind kind);
/* A turn of the event loop begins in which listings may go on. */
void dv_listings_turn(struct dv_listings *listings);

/* It is about to be forgotten: no listing goes on from there. */
void dv_listings_session_goes(struct dv_arbiter *arbiter, const struct dv_session *session);
void dv_listings_tenant_goes(struct dv_arbiter *arbiter, const struct dvd_tenant *tenant);

#endif
