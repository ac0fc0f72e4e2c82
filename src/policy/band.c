/* Credit with an idle window, after the BAND scheduler of GPUvm: equal shares; a tenant is charged
 * after it ran, all tenants are credited with the time that passed, and the device is kept free for a
 * moment when an under-served tenant has just finished and may submit its next work. It is here for
 * comparison, for a few dozen tenants: a decision looks at the first LOOKED_AT_MOST that wait. */
#include "src/policy/order.h"

#define PERIOD_NS (50 * DV_NS_PER_MS)
#define IDLE_WINDOW_NS (500 * DV_NS_PER_US)
#define LOOKED_AT_MOST 64

enum standing { UNDER, BAND, OVER }; /* in the order in which they are served */

static void band_init(struct dv_policy *policy, dv_ns now)
{
    policy->by_other = (struct dv_policy_tree){0};
    policy->period_began = now;
    policy->window_ends = 0;
    policy->busy_ns = policy->last_busy_ns = 0;
    policy->fair_clock = 0;
}

/* fair_time is the tenant's place in the list of all tenants. */
static void move_to_tail(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    tenant->fair_time = ++policy->fair_clock;
}

static void band_tenant_added(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    (void)now;
    move_to_tail(policy, tenant);
}

static void band_enter(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    (void)now;
    dv_tree_insert(&policy->by_other, &tenant->by_other, tenant->fair_time);
}

static void band_leave(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    (void)policy;
    dv_tree_remove(&tenant->by_other);
}

static int64_t sharers(const struct dv_policy *policy)
{
    return policy->tenant_count ? policy->tenant_count : 1;
}

static bool exceeds_share(const struct dv_policy *policy, const struct dv_policy_tenant *tenant)
{
    int64_t part_of_last = policy->last_busy_ns / sharers(policy);

    return policy->busy_ns == 0 || (part_of_last && tenant->period_ns > part_of_last) ||
           tenant->period_ns * sharers(policy) > policy->busy_ns;
}

static enum standing standing_of(const struct dv_policy *policy, const struct dv_policy_tenant *tenant)
{
    if (tenant->credit_ns < 0)
        return OVER;
    return exceeds_share(policy, tenant) ? BAND : UNDER;
}

/* The credit handed out equals the time that passed. Credit and debt beyond a period are dropped. */
static void replenish(struct dv_policy *policy, dv_ns now)
{
    int64_t passed = (int64_t)(now - policy->period_began);
    int64_t part = passed / sharers(policy);
    int64_t fresh = (int64_t)PERIOD_NS / sharers(policy);

    if (passed < (int64_t)PERIOD_NS)
        return;
    for (struct dv_policy_tenant *tenant = policy->tenants; tenant; tenant = tenant->next) {
        tenant->credit_ns += part;
        if (tenant->credit_ns > (int64_t)PERIOD_NS || (policy->busy_ns == 0 && tenant->credit_ns > fresh))
            tenant->credit_ns = fresh;
        else if (tenant->credit_ns < -(int64_t)PERIOD_NS)
            tenant->credit_ns = 0;
        tenant->period_ns = 0;
    }
    policy->last_busy_ns = policy->busy_ns;
    policy->busy_ns = 0;
    policy->period_began = now;
}

static struct dv_policy_tenant *first_of_best_standing(struct dv_policy *policy)
{
    struct dv_policy_tenant *best = NULL;
    enum standing best_standing = OVER;
    int looked_at = 0;

    for (struct dv_policy_node *node = dv_tree_first(&policy->by_other); node && looked_at < LOOKED_AT_MOST;
         node = dv_tree_next(node), looked_at++) {
        struct dv_policy_tenant *tenant = DV_TENANT_OF(node, by_other);
        enum standing standing = standing_of(policy, tenant);
        if (!best || standing < best_standing) {
            best = tenant;
            best_standing = standing;
        }
        if (best_standing == UNDER)
            break;
    }
    return best;
}

static struct dv_pick band_pick(struct dv_policy *policy, dv_ns now)
{
    struct dv_policy_tenant *last = policy->last_tenant;
    struct dv_policy_tenant *best;

    replenish(policy, now);
    best = first_of_best_standing(policy);
    if (last && last != best && !exceeds_share(policy, last) && exceeds_share(policy, best) &&
        best->period_ns > last->period_ns) {
        if (last->waiting_count)
            best = last;
        else if (!policy->window_ends)
            policy->window_ends = now + IDLE_WINDOW_NS;
        if (policy->window_ends && dv_before(now, policy->window_ends) && best != last)
            return (struct dv_pick){.rule = DV_RULE_IDLE_WINDOW, .ask_again_ns = policy->window_ends};
    }
    return (struct dv_pick){.tenant = best, .rule = policy->waiting_tenants == 1 ? DV_RULE_ONLY_ONE : DV_RULE_CREDIT};
}

static void band_charge(struct dv_policy *policy, struct dv_policy_session *session, int64_t delta_ns, dv_ns now)
{
    (void)now;
    session->tenant->credit_ns -= delta_ns;
    session->tenant->period_ns += delta_ns;
    policy->busy_ns += delta_ns;
}

static void band_hold_ended(struct dv_policy *policy, struct dv_policy_session *session, dv_ns device_ns, dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;

    (void)device_ns, (void)now;
    policy->window_ends = 0;
    if (tenant->credit_ns < 0 && exceeds_share(policy, tenant))
        move_to_tail(policy, tenant);
}

const struct dv_policy_ops dv_policy_band = {
    .name = "band",
    .init = band_init,
    .enter = band_enter,
    .leave = band_leave,
    .pick = band_pick,
    .charge = band_charge,
    .tenant_added = band_tenant_added,
    .hold_ended = band_hold_ended,
};
