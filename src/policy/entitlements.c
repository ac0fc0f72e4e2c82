/* The shares of tenants if all of them always had work. */
#include "src/policy/policy.h"

static double clamp(double share, const struct dv_share *bounds)
{
    if (share < bounds->request_ppm)
        return bounds->request_ppm;
    return share > bounds->limit_ppm ? bounds->limit_ppm : share;
}

/* Shares of one kind of tenants: those of class idle, or all others. */
static double sum_at(const struct dv_share *shares, uint32_t count, bool idle, double per_weight)
{
    double sum = 0;

    for (uint32_t i = 0; i < count; i++)
        if ((shares[i].class == DV_CLASS_IDLE) == idle)
            sum += clamp(per_weight * shares[i].weight, &shares[i]);
    return sum;
}

/* How much a unit of weight gets when requests and limits are kept: the sum only grows with it, so
 * it is found by halving. If even the limits leave time over, all tenants are at theirs. */
static double per_weight(const struct dv_share *shares, uint32_t count, bool idle, double there_is)
{
    double low = 0, high = DV_PPM;

    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (sum_at(shares, count, idle, middle) > there_is)
            high = middle;
        else
            low = middle;
    }
    return low;
}

void dv_policy_entitlements(const struct dv_share *shares, uint32_t count, uint32_t *ppm)
{
    /* Work of class idle has its guaranteed share, and the time that the others leave over. */
    double others = per_weight(shares, count, false, DV_PPM - sum_at(shares, count, true, 0));
    double left = DV_PPM - sum_at(shares, count, false, others);
    double idle = per_weight(shares, count, true, left);

    for (uint32_t i = 0; i < count; i++)
        ppm[i] = (uint32_t)clamp((shares[i].class == DV_CLASS_IDLE ? idle : others) * shares[i].weight, &shares[i]);
}
