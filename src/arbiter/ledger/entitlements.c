/* Entitlements (see entitled.h). */
#include "src/arbiter/ledger/entitlements.h"

#include <errno.h>
#include <stdlib.h>

/* Preparing takes at most one part in so many of the time, and there may be dozens of devices; but what
 * is shown is not older than this. */
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
    const struct dv_entitled_corner *a = left, *b = right;

    return (a->per_weight > b->per_weight) - (a->per_weight < b->per_weight);
}

static int make_room(struct dv_entitled_curve *curve, uint32_t capacity)
{
    if (capacity <= curve->capacity)
        return 0;
    free(curve->corners);
    curve->corners = calloc(capacity, sizeof *curve->corners);
    curve->capacity = curve->corners ? capacity : 0;
    return curve->corners ? 0 : -ENOMEM;
}

static int make_curve(struct dv_entitled_curve *curve, const struct dv_share *shares,
                      uint32_t count, bool left_over)
{
    double requests = 0;

    curve->count = 0;
    if (make_room(curve, 2 * count + 1) < 0)
        return -ENOMEM;
    struct dv_entitled_corner *corner = curve->corners;
    *corner++ = (struct dv_entitled_corner){0};
    for (uint32_t i = 0; i < count; i++) {
        const struct dv_share *share = &shares[i];
        if (takes_left_over(share) != left_over)
            continue;
        double weight = share->weight;
        requests += share->request_ppm;
        *corner++ = (struct dv_entitled_corner){.per_weight = share->request_ppm / weight,
                                                .slope = weight};
        *corner++ = (struct dv_entitled_corner){.per_weight = share->limit_ppm / weight,
                                                .slope = -weight};
    }
    curve->count = (uint32_t)(corner - curve->corners);
    qsort(curve->corners + 1, curve->count - 1, sizeof *corner, compare_corners);
    /* so far each corner has what it adds to the slope */
    curve->corners[0].sum = requests;
    for (uint32_t i = 1; i < curve->count; i++) {
        const struct dv_entitled_corner *before = &curve->corners[i - 1];
        corner = &curve->corners[i];
        corner->sum = before->sum + before->slope * (corner->per_weight - before->per_weight);
        corner->slope += before->slope;
    }
    return 0;
}

static double sum_at(const struct dv_entitled_curve *curve, double per_weight)
{
    uint32_t low = 0, high = curve->count;

    while (high - low > 1) { /* the last corner that is not above */
        uint32_t middle = low + (high - low) / 2;
        if (curve->corners[middle].per_weight <= per_weight)
            low = middle;
        else
            high = middle;
    }
    const struct dv_entitled_corner *corner = &curve->corners[low];
    return corner->sum + corner->slope * (per_weight - corner->per_weight);
}

/* What the curve's tenants get together, and one more if it is not NULL. */
static double sum_with(const struct dv_entitled_curve *curve, const struct dv_share *more,
                       double per_weight)
{
    return sum_at(curve, per_weight) + (more ? clamp(per_weight * more->weight, more) : 0);
}

static double find_per_weight(const struct dv_entitled_curve *curve, const struct dv_share *more,
                              double there_is)
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

/* Those who share by weight get what is not guaranteed to the others. */
static double find_sharing(const struct dv_entitled *entitled, const struct dv_share *more)
{
    const struct dv_share *left_over = more && takes_left_over(more) ? more : NULL;

    return find_per_weight(&entitled->sharing, left_over ? NULL : more,
                           DV_PPM - sum_with(&entitled->left_over, left_over, 0));
}

static double find_left_over(const struct dv_entitled *entitled, const struct dv_share *more,
                             double sharing)
{
    return find_per_weight(&entitled->left_over, more,
                           DV_PPM - sum_at(&entitled->sharing, sharing));
}

int dv_entitled_make(struct dv_entitled *entitled, const struct dv_share *shares, uint32_t count)
{
    if (make_curve(&entitled->sharing, shares, count, false) < 0 ||
        make_curve(&entitled->left_over, shares, count, true) < 0)
        return -ENOMEM;
    entitled->sharing.per_weight = find_sharing(entitled, NULL);
    entitled->left_over.per_weight =
        find_left_over(entitled, NULL, entitled->sharing.per_weight);
    return 0;
}

uint32_t dv_entitled_ppm(const struct dv_entitled *entitled, const struct dv_share *share,
                         bool is_one_of_them)
{
    bool left_over = takes_left_over(share);
    double per_weight = left_over ? entitled->left_over.per_weight : entitled->sharing.per_weight;

    if (!is_one_of_them) {
        per_weight = find_sharing(entitled, share);
        if (left_over)
            per_weight = find_left_over(entitled, share, per_weight);
    }
    return (uint32_t)clamp(per_weight * share->weight, share);
}

bool dv_entitled_counts(const struct dv_policy_tenant *tenant, dv_ns now)
{
    return tenant->in_demand ||
           (tenant->used_ns && now - tenant->demand_ended_at < COUNTS_FOR_NS);
}

int dv_entitled_renew(struct dv_entitled *entitled, const struct dv_policy *policy, dv_ns now)
{
    dv_ns age = now - entitled->made_at;
    uint32_t count = 0;

    if (entitled->made_at && age < RENEW_PART * entitled->took_ns && age < RENEW_MOST_NS)
        return 0;
    struct dv_share *shares = calloc(policy->tenant_count + 1, sizeof *shares);
    if (!shares)
        return -ENOMEM;
    entitled->longest_turn_ns = DV_SLICE_MAX_NS;
    for (const struct dv_policy_tenant *t = policy->tenants; t; t = t->next) {
        if (t->slice_ns > entitled->longest_turn_ns)
            entitled->longest_turn_ns = t->slice_ns;
        if (dv_entitled_counts(t, now))
            shares[count++] = t->share;
    }
    int error = dv_entitled_make(entitled, shares, count);
    free(shares);
    entitled->made_at = error < 0 ? 0 : now;
    entitled->took_ns = dv_now() - now;
    return error;
}

void dv_entitled_fini(struct dv_entitled *entitled)
{
    free(entitled->sharing.corners);
    free(entitled->left_over.corners);
    *entitled = (struct dv_entitled){0};
}
