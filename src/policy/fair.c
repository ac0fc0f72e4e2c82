/* Weighted fair queueing: the tenant with the least device time for its weight goes next. Knows
 * weights only; it ignores requests, limits and classes. The reference for the other policies. */
#include "src/policy/order.h"

static void fair_init(struct dv_policy *policy, dv_ns now)
{
    (void)now;
    policy->fair_clock = 0;
    policy->by_other = (struct dv_policy_tree){0};
}

/* A tenant does not catch up on idle time: it begins where the least served one is now. */
static void fair_demand_begins(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    struct dv_policy_node *first = dv_tree_first(&policy->by_other);
    bool found = first != NULL;
    uint64_t least = first ? first->key : 0;

    if (now - tenant->demand_ended_at <= DV_SAME_DEMAND_NS)
        return;
    for (struct dv_policy_session *holder = policy->holders.first; holder; holder = holder->next)
        if (!found || dv_before(holder->tenant->fair_time, least)) {
            least = holder->tenant->fair_time;
            found = true;
        }
    if (found)
        policy->fair_clock = dv_later(policy->fair_clock, least);
    tenant->fair_time = dv_later(tenant->fair_time, policy->fair_clock);
}

static void fair_enter(struct dv_policy *policy, struct dv_policy_tenant *tenant, dv_ns now)
{
    (void)now;
    dv_tree_insert(&policy->by_other, &tenant->by_other, tenant->fair_time);
}

static void fair_leave(struct dv_policy *policy, struct dv_policy_tenant *tenant)
{
    (void)policy;
    dv_tree_remove(&tenant->by_other);
}

static struct dv_pick fair_pick(struct dv_policy *policy, dv_ns now)
{
    struct dv_policy_node *first = dv_tree_first(&policy->by_other);

    (void)now;
    policy->fair_clock = dv_later(policy->fair_clock, first->key);
    return (struct dv_pick){.tenant = DV_TENANT_OF(first, by_other),
                            .rule = policy->waiting_tenants == 1 ? DV_RULE_ONLY_ONE : DV_RULE_LEAST_SERVED};
}

static void fair_charge(struct dv_policy *policy, struct dv_policy_session *session, int64_t delta_ns, dv_ns now)
{
    struct dv_policy_tenant *tenant = session->tenant;

    (void)policy, (void)now;
    tenant->fair_time += (uint64_t)dv_weighted(delta_ns, tenant->share.weight);
}

const struct dv_policy_ops dv_policy_fair = {
    .name = "fair",
    .init = fair_init,
    .enter = fair_enter,
    .leave = fair_leave,
    .pick = fair_pick,
    .charge = fair_charge,
    .demand_begins = fair_demand_begins,
};
