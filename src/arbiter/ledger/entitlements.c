/* Entitlements (see entitlements.h). */
#include "src/arbiter/ledger/entitlements.h"

#include <errno.h>
#include <stdlib.h>

/* Preparing takes at most 1/RENEW_PART of the time, and there may be dozens of devices; but figures are
 * never older than RENEW_MOST_NS. */
#define RENEW_PART 500
#define RENEW_MOST_NS (200 * DV_NS_PER_MS)

#define COUNTS_FOR_NS DV_NS_PER_S

/* Work of class idle has no share by weight. */
static bool takes_left_over(const struct dv_share *share)
{
    return share->class == DV_CLASS_IDLE;
}

static double clamp(double ppm, const struct dv_share *bounds)
{
    if (ppm < bounds->request_ppm)
        return bounds->request_ppm;
    return ppm > bounds->limit_ppm ? bounds->limit_ppm : ppm;
}

/* ---- curves ---- */

static int compare_corners(const void *left, const void *right)
{
    const struct dvd_entitlement_corner *a = left, *b = right;

    return (a->per_weight > b->per_weight) - (a->per_weight < b->per_weight);
}

static int make_room(struct dvd_entitlement_curve *curve, uint32_t capacity)
{
    if (capacity <= curve->capacity)
        return 0;
    free(curve->corners);
    curve->corners = calloc(capacity, sizeof *curve->corners);
    curve->capacity = curve->corners ? capacity : 0;
    return curve->corners ? 0 : -ENOMEM;
}

static int make_curve(struct dvd_entitlement_curve *curve, const struct dv_share *shares, uint32_t count,
                      bool left_over)
{
    double requests = 0;

    curve->count = 0;
    if (make_room(curve, 2 * count + 1) < 0)
        return -ENOMEM;
    struct dvd_entitlement_corner *corner = curve->corners;
    *corner++ = (struct dvd_entitlement_corner){0};
    for (uint32_t i = 0; i < count; i++) {
        const struct dv_share *share = &shares[i];
        if (takes_left_over(share) != left_over)
            continue;
        double weight = share->weight;
        requests += share->request_ppm;
        *corner++ = (struct dvd_entitlement_corner){.per_weight = share->request_ppm / weight, .slope = weight};
        *corner++ = (struct dvd_entitlement_corner){.per_weight = share->limit_ppm / weight, .slope = -weight};
    }
    curve->count = (uint32_t)(corner - curve->corners);
    qsort(curve->corners + 1, curve->count - 1, sizeof *corner, compare_corners);
    /* so far each slope is only the corner's change */
    curve->corners[0].sum = requests;
    for (uint32_t i = 1; i < curve->count; i++) {
        const struct dvd_entitlement_corner *before = &curve->corners[i - 1];
        corner = &curve->corners[i];
        corner->sum = before->sum + before->slope * (corner->per_weight - before->per_weight);
        corner->slope += before->slope;
    }
    return 0;
}

static double sum_at(const struct dvd_entitlement_curve *curve, double per_weight)
{
    uint32_t low = 0, high = curve->count;

    while (high - low > 1) { /* the last corner that is not above */
        uint32_t middle = low + (high - low) / 2;
        if (curve->corners[middle].per_weight <= per_weight)
            low = middle;
        else
            high = middle;
    }
    const struct dvd_entitlement_corner *corner = &curve->corners[low];
    return corner->sum + corner->slope * (per_weight - corner->per_weight);
}

/* The sum for the curve's tenants, and for one more if it is not NULL. */
static double sum_with(const struct dvd_entitlement_curve *curve, const struct dv_share *more, double per_weight)
{
    return sum_at(curve, per_weight) + (more ? clamp(per_weight * more->weight, more) : 0);
}

static double find_per_weight(const struct dvd_entitlement_curve *curve, const struct dv_share *more, double there_is)
{
    double low = 0, high = DV_PPM;

    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (sum_with(curve, more, middle) > there_is)
            high = middle;
        else
            low = middle;
    }
    return low;
}

/* ---- all tenants ---- */

/* Tenants that share by weight get the time not guaranteed to others. */
static double find_sharing(const struct dvd_entitlements *entitlements, const struct dv_share *more)
{
    const struct dv_share *left_over = more && takes_left_over(more) ? more : NULL;

    return find_per_weight(&entitlements->sharing, left_over ? NULL : more,
                           DV_PPM - sum_with(&entitlements->left_over, left_over, 0));
}

static double find_left_over(const struct dvd_entitlements *entitlements, const struct dv_share *more, double sharing)
{
    return find_per_weight(&entitlements->left_over, more, DV_PPM - sum_at(&entitlements->sharing, sharing));
}

int dvd_entitlements_make(struct dvd_entitlements *entitlements, const struct dv_share *shares, uint32_t count)
{
    if (make_curve(&entitlements->sharing, shares, count, false) < 0 ||
        make_curve(&entitlements->left_over, shares, count, true) < 0)
        return -ENOMEM;
    entitlements->sharing.per_weight = find_sharing(entitlements, NULL);
    entitlements->left_over.per_weight = find_left_over(entitlements, NULL, entitlements->sharing.per_weight);
    return 0;
}

uint32_t dvd_entitlements_ppm(const struct dvd_entitlements *entitlements, const struct dv_share *share,
                              bool is_one_of_them)
{
    bool left_over = takes_left_over(share);
    double per_weight = left_over ? entitlements->left_over.per_weight : entitlements->sharing.per_weight;

    if (!is_one_of_them) {
        per_weight = find_sharing(entitlements, share);
        if (left_over)
            per_weight = find_left_over(entitlements, share, per_weight);
    }
    return (uint32_t)clamp(per_weight * share->weight, share);
}

bool dvd_entitlements_counts(const struct dv_policy_tenant *tenant, dv_ns now)
{
    return tenant->in_demand || (tenant->used_ns && now - tenant->demand_ended_at < COUNTS_FOR_NS);
}

int dvd_entitlements_renew(struct dvd_entitlements *entitlements, const struct dv_policy *policy, dv_ns now)
{
    dv_ns age = now - entitlements->made_at;
    uint32_t count = 0;

    if (entitlements->made_at && age < RENEW_PART * entitlements->took_ns && age < RENEW_MOST_NS)
        return 0;
    struct dv_share *shares = calloc(policy->tenant_count + 1, sizeof *shares);
    if (!shares)
        return -ENOMEM;
    entitlements->longest_slice_ns = DV_SLICE_MAX_NS;
    for (const struct dv_policy_tenant *t = policy->tenants; t; t = t->next) {
        if (t->slice_ns > entitlements->longest_slice_ns)
            entitlements->longest_slice_ns = t->slice_ns;
        if (dvd_entitlements_counts(t, now))
            shares[count++] = t->share;
    }
    int error = dvd_entitlements_make(entitlements, shares, count);
    free(shares);
    entitlements->made_at = error < 0 ? 0 : now;
    entitlements->took_ns = dv_now() - now;
    return error;
}

void dvd_entitlements_fini(struct dvd_entitlements *entitlements)
{
    free(entitlements->sharing.corners);
    free(entitlements->left_over.corners);
    *entitlements = (struct dvd_entitlements){0};
}
