/* What every tenant of a device is entitled to, for listings: as dv_policy_entitlements finds it, but
 * prepared once for all, so that each answer is quick however many they are. */
#ifndef DVD_LEDGER_ENTITLEMENTS_H
#define DVD_LEDGER_ENTITLEMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "src/policy/policy.h"

/* What tenants get together, by what a unit of weight gets: it grows from corner to corner, where
 * one more has left its request behind or reached its limit. */
struct dvd_entitlement_corner {
    double per_weight, sum, slope;
};
struct dvd_entitlement_curve {
    struct dvd_entitlement_corner *corners; /* the first at 0 */
    uint32_t count, capacity;
    double per_weight; /* what they get of a unit of weight */
};

/* Tenants who share by weight, and those who take what these leave over. */
struct dvd_entitlements {
    struct dvd_entitlement_curve sharing, left_over;
    dv_ns longest_slice_ns; /* of them */
    dv_ns made_at, took_ns;
};

/* Prepares for these tenants, who all have work. Returns 0 or a negative errno. */
int dvd_entitlements_make(struct dvd_entitlements *entitlements, const struct dv_share *shares, uint32_t count);
/* The same for the tenants of a device who have work, unless that was done a moment ago: a moment is
 * long enough that preparing takes a small part of the time. */
int dvd_entitlements_renew(struct dvd_entitlements *entitlements, const struct dv_policy *policy, dv_ns now);
/* What one of them is entitled to, or one more who would have work too. */
uint32_t dvd_entitlements_ppm(const struct dvd_entitlements *entitlements, const struct dv_share *share,
                         bool is_one_of_them);
/* Whether a tenant counts among those who have work: it does for a while after it had some. */
bool dvd_entitlements_counts(const struct dv_policy_tenant *tenant, dv_ns now);
void dvd_entitlements_fini(struct dvd_entitlements *entitlements);

#endif
