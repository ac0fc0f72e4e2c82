/* What tenants should get if all of them always had work. */
#include "src/policy/policy.h"

static double clamp(double share, const struct dv_share *bounds)
{
    if (share < bounds->request_ppm)
        return bounds->request_ppm;
    return share > bounds->limit_ppm ? bounds->limit_ppm : share;
}

static double sum_at(const struct dv_share *shares, uint32_t count, double per_weight)
{
    double sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += clamp(per_weight * shares[i].weight, &shares[i]);
    return sum;
}

void dv_policy_entitlements(const struct dv_share *shares, uint32_t count, uint32_t *ppm)
{
    double low = 0, high = DV_PPM;

    /* How much a unit of weight gets when requests and limits are kept: the sum only grows with it,
     * so it is found by halving. Where even the limits leave something over, all are at theirs. */
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (sum_at(shares, count, middle) > DV_PPM)
            high = middle;
        else
            low = middle;
    }
    for (uint32_t i = 0; i < count; i++)
        ppm[i] = (uint32_t)clamp(low * shares[i].weight, &shares[i]);
}
