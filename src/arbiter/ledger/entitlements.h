/* The entitlement of each tenant of a device, for listings: as dv_policy_entitlements computes it, but
 * prepared once for all tenants, so that each answer is quick. */
#ifndef DVD_LEDGER_ENTITLEMENTS_H
#define DVD_LEDGER_ENTITLEMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "src/policy/policy.h"

/* The sum that tenants get, as a function of what a unit of weight gets. Its slope changes at corners,
 * where a tenant exceeds its request or reaches its limit. */
struct dvd_entitlement_corner {
    double per_weight, sum, slope;
};
struct dvd_entitlement_curve {
    struct dvd_entitlement_corner *corners; /* the first at 0 */
    uint32_t count, capacity;
    double per_weight; /* what a tenant gets per unit */
};

/* Tenants that share by weight, and tenants that take what is left over. */
struct dvd_entitlements {
    struct dvd_entitlement_curve sharing, left_over;
    dv_ns longest_slice_ns; /* of all */
    dv_ns made_at, took_ns;
};

/* Prepares for these tenants, which all have work. Returns 0 or a negative errno. */
int dvd_entitlements_make(struct dvd_entitlements *entitlements, const struct dv_share *shares, uint32_t count);
/* The same for the tenants of a device that have work, unless that was done a moment ago: preparing
 * must take only a small part of the time. */
int dvd_entitlements_renew(struct dvd_entitlements *entitlements, const struct dv_policy *policy, dv_ns now);
/* The entitlement of one of them, or of one more tenant with work. */
uint32_t dvd_entitlements_ppm(const struct dvd_entitlements *entitlements, const struct dv_share *share,
                              bool is_one_of_them);
/* Whether a tenant counts as having work: it does for a while after its work has ended. */
bool dvd_entitlements_counts(const struct dv_policy_tenant *tenant, dv_ns now);
void dvd_entitlements_fini(struct dvd_entitlements *entitlements);

#endif
